//! Each test that docs/faults.md names is there, and each row of its tables names one. Whether a test shows what its row says, a
//! reader must judge.

use std::collections::BTreeSet;
use std::path::Path;

/// Rows that are shown as a whole: the table is written by the test that carries its cases out.
const GENERATED: &str = "left out";
/// A table under this head says of each row why there is no test.
const UNSHOWN: &str = "| | why |";

#[test]
fn every_test_that_the_page_of_faults_names_is_there_and_every_row_has_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/faults.md")).unwrap();
    let shown = Shown::of(&root);
    assert!(shown.tests.len() > 1000 && shown.attacks.len() > 10 && shown.scenarios.contains("nfs"));
    let faults = faults(&page, &shown);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_test_that_is_not_there_and_a_row_without_one_are_found() {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let shown = Shown {
        tests: words(&["a_torn_write_is_found", "a_torn_read_is_found"]),
        attacks: words(&["crowd"]),
        scenarios: words(&["nfs"]),
        files: words(&["crates/a/tests/b.rs"]),
    };
    let found = |page: &str| faults(page, &shown);
    let head = "| fault | what happens | test |\n|---|---|---|\n";
    for right in [
        "A sentence of `io_uring` and `RLIMIT_MEMLOCK` (`a_torn_write_is_found`).",
        "`a_torn_…_is_found`; `a/tests/b.rs`",
        &format!("{head}| torn | an error | `a_torn_write_is_found` |"),
        &format!("{head}| torn | an error | the lab's `nfs` |"),
        "<!-- hostile: begin -->\n| what | where |\n|---|---|\n| many (`crowd`) | all |\n<!-- hostile: end -->",
        "<!-- left out: begin -->\n| what | where |\n|---|---|\n| many | all |\n<!-- left out: end -->",
        "| | why |\n|---|---|\n| a lie | no drive lies |",
    ] {
        assert_eq!(found(right), Vec::<String>::new(), "{right}");
    }
    for wrong in [
        "A sentence (`a_torn_write_is_not_found`).",
        "`…_survives_a_power_cut`",
        "`a/tests/c.rs`",
        &format!("{head}| torn | an error |  |"),
        &format!("{head}| torn | `EIO` | the tests of `b` |"),
        &format!("{head}| torn | an error | the lab's `nbd` |"),
        &format!("{head}| torn | an error | `crowd` |"),
        "<!-- hostile: begin -->\n| what | where |\n|---|---|\n| many (`few`) | all |\n<!-- hostile: end -->",
    ] {
        assert_eq!(found(wrong).len(), 1, "{wrong}: {:?}", found(wrong));
    }
}

/// What can show something.
struct Shown {
    /// Functions with `#[test]`.
    tests: BTreeSet<String>,
    /// Functions of tools/hostile.
    attacks: BTreeSet<String>,
    /// Files of tools/lab/scenarios.
    scenarios: BTreeSet<String>,
    /// Files of crates/.
    files: BTreeSet<String>,
}

impl Shown {
    fn of(root: &Path) -> Self {
        let (mut tests, mut attacks, mut files) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        each_file(&root.join("crates"), &mut |path| {
            if path.extension().is_some_and(|extension| extension == "rs") {
                files.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                let text = std::fs::read_to_string(path).unwrap();
                let after = text.split("#[test]").skip(1).filter_map(|after| after.split("fn ").nth(1));
                tests.extend(after.map(|name| name.split('(').next().unwrap_or_default().to_owned()));
            }
        });
        let text = std::fs::read_to_string(root.join("tools/hostile/attacks.py")).unwrap();
        attacks.extend(text.split("\ndef ").skip(1).map(|def| def.split('(').next().unwrap().to_owned()));
        let scenarios = std::fs::read_dir(root.join("tools/lab/scenarios")).unwrap();
        let stem = |path: std::path::PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        let scenarios = scenarios.map(|entry| stem(entry.unwrap().path())).collect();
        Self { tests, attacks, scenarios, files }
    }

    fn has_test(&self, name: &str) -> bool {
        match name.split_once('…') {
            None => self.tests.contains(name),
            Some((before, after)) => self.tests.iter().any(|test| {
                test.strip_prefix(before).is_some_and(|rest| match after.split_once('…') {
                    None => rest.ends_with(after),
                    Some((amid, end)) => rest.contains(amid) && rest.ends_with(end),
                })
            }),
        }
    }
}

fn each_file(directory: &Path, see: &mut dyn FnMut(&Path)) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { each_file(&path, see) } else { see(&path) }
    }
}

/// What is in backquotes on a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// A name of so many words is a test's; keywords of systems have fewer.
fn is_test_name(word: &str) -> bool {
    let in_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '…';
    word.chars().all(in_name) && (word.contains('…') || word.matches('_').count() >= 3)
}

/// What the page names and is not there, and rows of tables that name nothing.
fn faults(page: &str, shown: &Shown) -> Vec<String> {
    let mut faults = Vec::new();
    let (mut table, mut is_shown) = ("", true);
    let lines: Vec<&str> = page.lines().collect();
    for (n, line) in lines.iter().enumerate() {
        let fault = |what: &str| format!("docs/faults.md, line {}: {what}: {line}", n + 1);
        if let Some(mark) = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->")) {
            table = mark.strip_suffix(": begin").unwrap_or_default();
        }
        let attacks = table == "hostile";
        for word in quoted(line) {
            let is_attack = attacks && shown.attacks.contains(word);
            if is_test_name(word) && !is_attack && !shown.has_test(word) {
                faults.push(fault(&format!("there is no test `{word}`")));
            } else if word.ends_with(".rs") && !shown.files.contains(&format!("crates/{word}")) {
                faults.push(fault(&format!("there is no file crates/{word}")));
            }
        }
        let is_head = lines.get(n + 1).is_some_and(|next| next.starts_with("|---"));
        if is_head {
            is_shown = *line != UNSHOWN && table != GENERATED;
        }
        if !line.starts_with('|') || line.starts_with("|---") || is_head || !is_shown {
            continue;
        }
        let lab = line.split("the lab's ").skip(1).filter_map(|after| quoted(after).next());
        let named = quoted(line).any(|word| is_test_name(word) || attacks && shown.attacks.contains(word));
        if !named && !lab.into_iter().any(|name| shown.scenarios.contains(name)) {
            faults.push(fault("this row has no test"));
        }
    }
    faults
}
