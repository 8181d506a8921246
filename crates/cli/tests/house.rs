//! The house is a stack: the modules of a crate import one another in one direction.
//!
//! `cargo test -p flashwright --test house -- --nocapture` prints the graph of every crate.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use base::environment::{CHILD_PREFIX, LOG, RANK, STAGE_SOCKET, STATE, VARIABLES};

/// Imports that close a circle: crate or module, importing module beneath it, imported module. The list only shrinks.
const CIRCULAR: [(&str, &str, &str); 42] = [
    ("bench::run", "requests", "conduct"),
    ("bench::run", "tally", "conduct"),
    ("bench::run", "tally", "log"),
    ("cli::db", "load", "page"),
    ("cli::db", "run", "page"),
    ("cli::probe", "screen", "far"),
    ("cli::stage", "objects", "verify"),
    ("cli::stage", "status", "control"),
    ("cli::stage", "transfer", "crew"),
    ("cli::sweep", "outcome", "session"),
    ("graph::build", "degrees", "arcs"),
    ("graph::build", "work", "arcs"),
    ("graph::format", "index", "header"),
    ("graph::format", "reader", "header"),
    ("graph::format", "reader", "index"),
    ("graph::format", "walk", "header"),
    ("graph::format", "walk", "index"),
    ("layout", "held", "system"),
    ("measure::decide", "race", "outcome"),
    ("storage", "device", "extents"),
    ("storage", "device", "memory"),
    ("storage", "device", "remote"),
    ("storage", "device", "safety"),
    ("storage", "device", "sysfs"),
    ("storage::device", "file", "open"),
    ("storage::device", "namespace", "block"),
    ("storage::device", "namespace", "open"),
    ("storage::device", "open", "block"),
    ("storage::device", "zones", "namespace"),
    ("storage::engine", "misfit", "slots"),
    ("storage::engine", "parts", "slots"),
    ("storage::remote", "table", "replies"),
    ("storage::survey", "notes", "export"),
    ("sweep::analysis", "statistics", "points"),
    ("sweep::analysis", "warnings", "points"),
    ("sweep::recommend", "settings", "ladder"),
    ("sweep::recommend", "settings", "words"),
    ("sweep::recommend", "words", "ladder"),
    ("sweep::report::html", "page", "figures"),
    ("sweep::report::html", "sections", "chart"),
    ("sweep::report::html", "sections", "figures"),
    ("sweep::store", "write", "details"),
];

type Graph = BTreeMap<String, BTreeSet<String>>;

#[test]
fn modules_import_one_another_in_one_direction() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for directory in std::fs::read_dir(crates).unwrap() {
        let directory = directory.unwrap().path();
        let name = directory.file_name().unwrap().to_str().unwrap();
        for (source, within) in modules_with_modules(&directory.join("src")) {
            let within: Vec<&str> = within.iter().map(String::as_str).collect();
            let graph = graph(&source, &within);
            let is_root = within.is_empty();
            assert!(
                !is_root || name == "capi" || name == "python" || !graph.is_empty(),
                "{name}: no module was found"
            );
            let place = [&[name], &within[..]].concat().join("::");
            if is_root {
                println!("{name}");
                for (module, imports) in &graph {
                    println!(
                        "    {module} -> {}",
                        imports.iter().map(String::as_str).collect::<Vec<_>>().join(" ")
                    );
                }
            }
            has_no_circle_but_the_known(&place, graph);
        }
    }
}

fn has_no_circle_but_the_known(place: &str, mut graph: Graph) {
    let known: Vec<_> = CIRCULAR.iter().filter(|(of, _, _)| *of == place).collect();
    for (_, importing, imported) in &known {
        let was_there = graph.get_mut(*importing).is_some_and(|imports| imports.remove(*imported));
        assert!(was_there, "{place}: {importing} does not import {imported} any more: take it off the list");
    }
    if let Some(circle) = circle(&graph) {
        panic!("{place}: {}", circle.join(" -> "));
    }
    for (_, importing, imported) in known {
        graph.get_mut(*importing).unwrap().insert((*imported).to_owned());
        assert!(
            circle(&graph).is_some(),
            "{place}: {importing} -> {imported} closes no circle: take it off the list"
        );
        graph.get_mut(*importing).unwrap().remove(*imported);
    }
}

#[test]
fn tests_of_a_crate_need_no_crate_above_it() {
    let [imports, of_tests] = dependencies();
    assert!(imports.len() >= 15 && !of_tests.is_empty(), "{imports:?} {of_tests:?}");
    for (name, needed) in &of_tests {
        for above in needed {
            let (mut below, mut pending) = (BTreeSet::new(), vec![above]);
            while let Some(next) = pending.pop() {
                if below.insert(next) {
                    pending.extend(&imports[next]);
                }
            }
            assert!(!below.contains(name), "{name}: its tests need {above}, which depends on it");
        }
    }
}

/// The crates of this workspace that each crate depends on, and those that its tests depend on besides, by their directories.
fn dependencies() -> [Graph; 2] {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let [mut imports, mut of_tests] = [Graph::new(), Graph::new()];
    for directory in std::fs::read_dir(crates).unwrap() {
        let directory = directory.unwrap();
        let name = directory.file_name().into_string().unwrap();
        let manifest = std::fs::read_to_string(directory.path().join("Cargo.toml")).unwrap();
        imports.entry(name.clone()).or_default();
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line;
            } else if let Some(imported) = line.strip_prefix("flashwright") {
                let graph = match section {
                    "[dependencies]" => &mut imports,
                    "[dev-dependencies]" => &mut of_tests,
                    other => panic!("{name}: {other} has {line}"),
                };
                // The binary's package has no second word.
                let imported =
                    imported.strip_prefix('-').unwrap_or("cli").split(['.', ' ', '=']).next().unwrap();
                graph.entry(name.clone()).or_default().insert(imported.to_owned());
            }
        }
    }
    [imports, of_tests]
}

/// Every `FLASHWRIGHT_*` in the files of the tree is declared in `base::environment`, every declared one is used, and the
/// documentation says of each what the declaration says.
/// Cargo only warns of a profile's package that is in no lock file: after a crate is replaced, the next one is not optimised.
#[test]
fn profiles_name_packages_that_there_are() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| std::fs::read_to_string(tree.join(name)).unwrap();
    let (manifest, lock) = (read("Cargo.toml"), read("Cargo.lock"));
    let named = manifest.lines().filter_map(|line| line.strip_prefix("[profile.")?.split_once(".package."));
    let named: Vec<&str> = named.map(|(_, name)| name.trim_end_matches(']').trim_matches('"')).collect();
    assert!(named.len() > 20, "{named:?}");
    for name in named.into_iter().filter(|name| *name != "*") {
        assert!(
            lock.contains(&format!("\nname = \"{name}\"\n")),
            "Cargo.toml has a profile of {name}, Cargo.lock has not"
        );
    }
}

/// The profile `quick` does not optimise `measure`; what a request passes of it is compiled where the loop is, for which it is `#[inline]`.
#[test]
fn what_a_request_passes_of_measure_is_inlined() {
    const PASSED: [&str; 7] =
        ["next_block", "next_u64", "below", "unit", "exponential", "record", "record_n"];
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../measure/src");
    let mut files = Vec::new();
    list(&source.join("pattern"), &mut files);
    files.push(source.join("histogram.rs"));
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let text = product(&text);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.ends_with('{')) {
            let Some((_, rest)) = line.split_once("fn ") else { continue };
            let Some(name) = PASSED.iter().find(|name| **name == identifier(rest)) else { continue };
            assert_eq!(lines[number - 1], "#[inline]", "{}: {line}", file.display());
            found.push(*name);
        }
    }
    for name in PASSED {
        assert!(found.contains(&name), "{name} is not there: {found:?}");
    }
}

#[test]
fn environment_variables_are_declared_once_and_documented() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().parent().unwrap();
    let page = std::fs::read_to_string(tree.join("docs/environment.md")).unwrap();
    for variable in VARIABLES {
        let row = format!("| `{}` | {} |", variable.name, variable.meaning);
        assert!(page.lines().any(|line| line == row), "docs/environment.md lacks this row:\n{row}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, VARIABLES.len(), "docs/environment.md has a row of no declared variable");
    let mut files = vec![tree.join("Makefile"), tree.join(".cargo/config.toml")];
    for part in ["crates", "docs", "examples", "formats", "python", "tools"] {
        texts(&tree.join(part), &mut files);
    }
    assert!(files.len() > 500, "{}", files.len());
    let mut used = BTreeSet::new();
    for file in files {
        if file.ends_with("base/src/environment.rs") || file.ends_with("docs/environment.md") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        for (at, _) in text.match_indices("FLASHWRIGHT_") {
            let name = identifier(&text[at..]);
            let is_declared = VARIABLES.iter().any(|variable| variable.name == name);
            let is_mark = name.starts_with(CHILD_PREFIX) || name == "FLASHWRIGHT_H" || name == "FLASHWRIGHT_";
            assert!(is_declared || is_mark, "{}: {name} is not declared", file.display());
            used.insert(name.to_owned());
        }
        // Inside the product a variable is named by its constant.
        for (constant, name) in [
            ("environment::STATE", STATE),
            ("environment::STAGE_SOCKET", STAGE_SOCKET),
            ("environment::LOG", LOG),
            ("environment::RANK", RANK),
        ] {
            if text.contains(constant) {
                used.insert(name.to_owned());
            }
        }
    }
    for variable in VARIABLES {
        assert!(used.contains(variable.name), "{} is declared, and nothing reads it", variable.name);
    }
}

/// The table of crates in docs/architecture.md has each crate, with what its Cargo.toml says that it imports.
#[test]
fn architecture_says_what_each_crate_imports() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().parent().unwrap();
    let page = std::fs::read_to_string(tree.join("docs/architecture.md")).unwrap();
    let [imports, _] = dependencies();
    let front_doors = ["capi", "cli", "python"];
    let all = || imports.keys().filter(|name| !front_doors.contains(&name.as_str())).cloned().collect();
    let table = page.split("| crate |").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a table");
    let row = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let imports = match cells[3] {
            "nothing" => BTreeSet::new(),
            "all of them" => all(),
            list => list.split(", ").map(str::to_owned).collect(),
        };
        (cells[1].trim_matches('`').to_owned(), imports)
    };
    let said: Graph = table.lines().skip(2).map(row).collect();
    assert_eq!(said, imports, "docs/architecture.md says the first, Cargo.toml the second");
}

/// Each path of modules that docs/architecture.md names leads somewhere: to a module's file, and what follows is a word in it.
#[test]
fn architecture_names_what_there_is() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().parent().unwrap();
    let page = std::fs::read_to_string(tree.join("docs/architecture.md")).unwrap();
    let table = page.split("## Where a change goes").nth(1).expect("a table");
    let is_path = |text: &&str| {
        text.contains("::") && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
    };
    let paths: BTreeSet<&str> = table.split('`').skip(1).step_by(2).filter(is_path).collect();
    assert!(paths.len() > 100, "{}", paths.len());
    let lost: Vec<_> = paths.into_iter().filter(|path| !leads_somewhere(tree, path)).collect();
    assert!(lost.is_empty(), "docs/architecture.md names what there is not: {lost:?}");
    assert!(leads_somewhere(tree, "stage_service::pools::room") && leads_somewhere(tree, "measure::verdict"));
    assert!(
        !leads_somewhere(tree, "stage_service::pools::nowhere")
            && !leads_somewhere(tree, "measures::verdict")
    );
}

/// Whether a path, `crate::module::word`, names a file of a module or a word in the last one.
fn leads_somewhere(tree: &Path, path: &str) -> bool {
    let mut parts = path.split("::");
    let crate_name = parts.next().unwrap_or_default().replace('_', "-");
    let mut directory = tree.join("crates").join(crate_name).join("src");
    let text_of = |file: &Path| std::fs::read_to_string(file).ok();
    let Some(mut text) = ["lib.rs", "main.rs"].iter().find_map(|name| text_of(&directory.join(name))) else {
        return false;
    };
    for part in parts {
        let files = [directory.join(format!("{part}.rs")), directory.join(part).join("mod.rs")];
        match files.iter().find_map(|file| text_of(file)) {
            Some(inside) => (text, directory) = (inside, directory.join(part)),
            None => return text.match_indices(part).any(|(at, _)| identifier(&text[at..]) == part),
        }
    }
    true
}

/// The text files of a directory that may name variables.
fn texts(directory: &Path, files: &mut Vec<PathBuf>) {
    const KINDS: [&str; 9] = ["rs", "md", "py", "pyi", "sh", "toml", "h", "c", "f90"];
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let kind = path.extension().and_then(|kind| kind.to_str());
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if entry.file_type().unwrap().is_dir() && !is_hidden {
            texts(&path, files);
        } else if kind.is_some_and(|kind| KINDS.contains(&kind)) {
            files.push(path);
        }
    }
}

#[test]
fn a_circle_is_found_through_lists_reexports_and_super() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::Thing;\n");
    write("a.rs", "use crate::{b::{self, X}, std};\n");
    write("b.rs", "// use crate::a;\nuse crate::Thing;\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n");
    write("c.rs", "fn f() {}\n");
    let found = graph(directory.path(), &[]);
    let imports = |module: &str| found[module].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!((imports("a"), imports("b"), imports("c")), (vec!["b"], vec!["c"], vec![]));
    assert_eq!(circle(&found), None);
    write("c.rs", "fn f() { super::a::g() }\n");
    assert_eq!(circle(&graph(directory.path(), &[])).unwrap().len(), 4);
}

#[test]
fn a_circle_is_found_beneath_a_module() {
    let directory = tempfile::tempdir().unwrap();
    let beneath = directory.path().join("d");
    std::fs::create_dir_all(beneath.join("e")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(beneath.join(name), text).unwrap();
    write("mod.rs", "mod e;\nmod f;\n");
    write("e/mod.rs", "mod inner;\n");
    write("e/inner.rs", "use super::super::f::X;\n");
    write("f.rs", "use super::Y;\n");
    assert_eq!(modules_with_modules(directory.path()).len(), 3);
    let found = graph(&beneath, &["d"]);
    assert_eq!((found["e"].len(), found["f"].len(), circle(&found)), (1, 0, None));
    for back in ["use super::e::Y;\n", "fn f() { crate::d::e::y() }\n"] {
        write("f.rs", back);
        assert_eq!(circle(&graph(&beneath, &["d"])).unwrap().len(), 3, "{back}");
    }
}

/// What the modules right beneath a crate's root, or beneath one of its modules (`within`), import of each other, tests left out.
fn graph(directory: &Path, within: &[&str]) -> Graph {
    let roots = match within {
        [] => [directory.join("lib.rs"), directory.join("main.rs")],
        _ => [directory.join("mod.rs"), directory.with_extension("rs")],
    };
    let Some(root) = roots.iter().find_map(|root| std::fs::read_to_string(root).ok()) else {
        return Graph::new();
    };
    let root = product(&root);
    let modules: BTreeSet<&str> = after(&root, "mod ").map(identifier).collect();
    let from_crate: String = ["crate"].iter().chain(within).flat_map(|step| [*step, "::"]).collect();
    // What the root exports is its module's.
    let mut exported: BTreeMap<String, String> = BTreeMap::new();
    for import in after(&root, "use ") {
        let import = import.split(';').next().unwrap_or_default();
        let import = import.strip_prefix(&from_crate).unwrap_or(import);
        for name in import.split(|c: char| !c.is_alphanumeric() && c != '_').skip(1) {
            exported.insert(name.to_owned(), identifier(import).to_owned());
        }
    }
    let mut graph: Graph = modules.iter().map(|module| ((*module).to_owned(), BTreeSet::new())).collect();
    let mut files = Vec::new();
    list(directory, &mut files);
    for file in files {
        let steps: Vec<&str> =
            file.strip_prefix(directory).unwrap().iter().map(|step| step.to_str().unwrap()).collect();
        let module = steps[0].trim_end_matches(".rs");
        let Some(imports) = graph.get_mut(module) else { continue };
        let text = product(&std::fs::read_to_string(&file).unwrap());
        let upwards = "super::".repeat(steps.len() - usize::from(steps.last() == Some(&"mod.rs")));
        for prefix in [&from_crate, &upwards] {
            for import in after(&text, prefix) {
                for name in heads(import) {
                    let name = exported.get(name).map_or(name, String::as_str);
                    if name != module && modules.contains(name) {
                        imports.insert(name.to_owned());
                    }
                }
            }
        }
    }
    graph
}

/// The directories of a crate's modules, by the paths of these, the crate's root first.
fn modules_with_modules(source: &Path) -> Vec<(PathBuf, Vec<String>)> {
    let mut found = vec![(source.to_owned(), Vec::new())];
    let mut at = 0;
    while let Some((directory, path)) = found.get(at).cloned() {
        let entries = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap());
        let is_module = |entry: &std::fs::DirEntry| entry.path().is_dir() && entry.file_name() != "tests";
        let mut beneath: Vec<_> =
            entries.filter(is_module).map(|entry| entry.file_name().into_string().unwrap()).collect();
        beneath.sort();
        found.extend(
            beneath
                .into_iter()
                .map(|name| (directory.join(&name), path.iter().cloned().chain([name]).collect())),
        );
        at += 1;
    }
    found
}

fn list(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let is_test = matches!(path.file_name().and_then(|name| name.to_str()), Some("tests" | "tests.rs"));
        if path.is_dir() && !is_test {
            list(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            files.push(path);
        }
    }
}

/// A file's text without comments and without what is compiled for tests alone.
fn product(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    let mut kept = String::new();
    let mut parts = text.split("#[cfg(test)]");
    kept.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let mut depth = 0;
        let end = part.find(|c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0 && (c == '}' || c == ';')
        });
        kept.push_str(end.map_or("", |end| &part[end + 1..]));
    }
    kept
}

/// What follows each use of a word, which does not begin within another.
fn after<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(word).filter_map(move |(at, _)| {
        let before = text[..at].chars().next_back();
        let begins = before.is_none_or(|before| !before.is_alphanumeric() && before != '_' && before != ':');
        begins.then(|| &text[at + word.len()..])
    })
}

fn identifier(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The first names of what is imported: of `a::b`, `a`; of `{a::b, c::{d}}`, `a` and `c`.
fn heads(import: &str) -> Vec<&str> {
    let Some(group) = import.strip_prefix('{') else { return vec![identifier(import)] };
    let (mut depth, mut heads, mut fresh) = (1, Vec::new(), true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => fresh = true,
            c if fresh && !c.is_whitespace() => {
                heads.push(identifier(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    heads
}

/// A way through the graph that leads back to where it began.
fn circle(graph: &Graph) -> Option<Vec<String>> {
    fn walk<'a>(
        graph: &'a Graph,
        at: &'a str,
        way: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<Vec<String>> {
        if let Some(begin) = way.iter().position(|module| *module == at) {
            return Some(way[begin..].iter().chain([&at]).map(|module| (*module).to_owned()).collect());
        }
        if done.contains(at) {
            return None;
        }
        way.push(at);
        let found = graph[at].iter().find_map(|next| walk(graph, next, way, done));
        way.pop();
        done.insert(at);
        found
    }
    let mut done = BTreeSet::new();
    graph.keys().find_map(|module| walk(graph, module, &mut Vec::new(), &mut done))
}
