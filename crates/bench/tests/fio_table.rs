//! The table of keys against the page that shows it, and against the installed fio.

use std::path::PathBuf;
use std::process::Command;

use bench::fio::{KeyInfo, KeySupport, keys};

fn spellings(key: &KeyInfo) -> String {
    let all = std::iter::once(&key.name).chain(key.aliases);
    all.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn row(key: &KeyInfo) -> String {
    match key.support {
        KeySupport::Supported => format!("| {} | {} |", spellings(key), key.note),
        KeySupport::Accepted([]) => format!("| {} | any | {} |", spellings(key), key.note),
        KeySupport::Accepted(values) => {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            format!("| {} | {} | {} |", spellings(key), values.join(", "), key.note)
        }
        KeySupport::Refused(hint) => format!("| {} | {} | {hint} |", spellings(key), key.note),
    }
}

#[test]
fn the_page_lists_every_key_as_the_table_has_it_and_no_other() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/fio.md");
    let page = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
    let expected: Vec<String> = keys().map(|key| row(&key)).collect();
    // The tables of keys are those whose rows begin with a key in code marks, between the two marks.
    let begin = page.find("<!-- keys -->").expect("the page marks where the keys begin");
    let end = page.find("<!-- end of keys -->").expect("the page marks where the keys end");
    let listed: Vec<&str> = page[begin..end].lines().filter(|line| line.starts_with("| `")).collect();
    for (expected, listed) in expected.iter().zip(&listed) {
        assert_eq!(expected, listed, "docs/fio.md differs from the table of keys");
    }
    let missing: String = expected.iter().skip(listed.len()).map(|row| format!("{row}\n")).collect();
    assert_eq!(expected.len(), listed.len(), "docs/fio.md lacks or has too many rows:\n{missing}");
}

#[test]
fn no_spelling_means_two_things() {
    let mut seen = std::collections::BTreeSet::new();
    for key in keys() {
        for name in std::iter::once(&key.name).chain(key.aliases) {
            assert!(seen.insert(*name), "{name} is listed twice");
        }
        assert!(!key.note.contains('|'), "{} would break the page's table", key.name);
    }
}

#[test]
fn every_option_of_the_installed_fio_has_a_place_in_the_table() {
    let output = match Command::new("fio").arg("--cmdhelp=all").output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => panic!("fio --cmdhelp=all: {}", output.status),
        Err(error) => {
            eprintln!("skipped: fio cannot be started ({error})");
            return;
        }
    };
    let text = String::from_utf8(output.stdout).expect("fio prints text");
    let known: Vec<&str> =
        keys().flat_map(|key| std::iter::once(key.name).chain(key.aliases.iter().copied())).collect();
    let mut options = text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    let unknown: Vec<&str> = options.by_ref().filter(|name| !known.contains(name)).collect();
    assert!(text.lines().count() > 150, "fio listed too little:\n{text}");
    assert!(unknown.is_empty(), "fio has options that the table lacks: {unknown:?}");
}
