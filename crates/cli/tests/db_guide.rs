//! The commands of docs/databases.md and docs/verbs/db.md, in their order, with fewer rows; those for PostgreSQL are tools/postgres's. And the
//! flags of the verbs, which docs/verbs/db.md names.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::{names, place, works};

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(path).expect("the page")
}

/// The commands of a page as words: in fewer rows and seconds, with tiers in this directory, once for all blocks.
fn commands(page: &str) -> Vec<Vec<String>> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("$ flashwright "));
    let small = lines.map(|line| {
        let line = line.replace("=/", "=").replace(" /", " ");
        let line = line.replace("1000000", "3000").replace("100000", "300").replace("60s", "1s");
        let more = if line.starts_with("db compare") { " --blocks 1" } else { "" };
        line + more
    });
    small.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn the_commands_of_the_pages_work_in_their_order() {
    let mut ran = Vec::new();
    for name in ["databases.md", "verbs/db.md"] {
        let place = place();
        for tier in ["flash", "disk"] {
            std::fs::create_dir(place.path().join(tier)).expect("a tier");
        }
        let commands = commands(&page(name));
        assert!(commands.len() > 3, "{name} has {} commands", commands.len());
        for command in commands {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            let came = works(place.path(), &words);
            // A load says what it will take; nothing else is said of what goes well.
            let is_told = came.err.lines().all(|line| line.starts_with("the database takes about "));
            assert!(is_told, "{words:?}: {}", came.err);
            assert!(!came.out.is_empty() || words.contains(&"--output"), "{words:?} says nothing");
            ran.push(words[1].to_owned());
        }
        assert!(names(&place.path().join("disk")).is_empty(), "{name}: what was compared is still there");
    }
    for verb in ["load", "run", "ingest", "compare", "report"] {
        assert!(ran.iter().any(|ran| ran == verb), "no page shows db {verb}");
    }
}

/// What begins with two dashes.
fn flags(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words.filter(|word| word.starts_with("--") && word.len() > 2).map(str::to_owned).collect()
}

#[test]
fn the_page_of_the_verb_names_each_flag_and_no_other() {
    let page = page("verbs/db.md");
    let synopsis = page.split("```").nth(1).expect("a synopsis");
    let (verbs, engine) = synopsis.split_once("ENGINE: ").expect("the flags of engines");
    let place = place();
    let mut seen = 0;
    let mut said: Vec<(String, String)> = Vec::new();
    for line in verbs.lines() {
        match (line.strip_prefix("flashwright db "), said.last_mut()) {
            (Some(rest), _) => {
                let (verb, rest) = rest.split_once(' ').expect("a verb and more");
                match said.iter_mut().find(|(known, _)| known == verb) {
                    Some((_, text)) => text.push_str(rest),
                    None => said.push((verb.to_owned(), rest.to_owned())),
                }
            }
            (None, Some((_, text))) => text.push_str(line),
            (None, None) => {}
        }
    }
    for (verb, text) in said {
        let help = works(place.path(), &["db", &verb, "--help"]).out;
        let options = help.lines().filter(|line| line.trim_start().starts_with('-'));
        // The first of a line: what it does may name another.
        let names = options.filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--")));
        let there: BTreeSet<String> = names.filter(|name| *name != "--help").map(str::to_owned).collect();
        let mut named = flags(&text);
        if text.contains("ENGINE") || text.contains("--engine postgres") {
            named.extend(flags(engine));
        }
        assert_eq!(named, there, "db {verb}");
        seen += 1;
    }
    assert_eq!(seen, 6);
}
