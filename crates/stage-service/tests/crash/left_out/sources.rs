//! Each sync of the sources has a label, and each sync's label one place.

use std::fs;
use std::path::Path;

use stage::fault::Barrier;

/// Where syncs are made that no move rests on, or that bear no label of their own: the file, what is written there, and
/// how often.
const OUTSIDE: [(&str, &str, usize); 14] = [
    // The layer of calls, where each takes its label.
    ("stage/src/calls.rs", "fs::fsync(", 1),
    ("stage/src/calls.rs", "fs::fdatasync(", 1),
    ("stage/src/calls.rs", "fs::syncfs(", 1),
    // Late syncs, of tests.
    ("stage/src/fault/mod.rs", "fs::fsync(", 1),
    ("stage/src/fault/mod.rs", "fs::syncfs(", 1),
    // Of a copy that is there already; whose sync it is, the caller says.
    ("stage/src/existing.rs", "calls::fsync(", 1),
    // The one request to an engine, which has its label.
    ("stage/src/large/port.rs", "start_sync(", 2),
    ("stage/src/large/copy.rs", "start_sync(", 1),
    // A file that measures a tier.
    ("stage-service/src/qos/probe.rs", "fs::fsync(", 1),
    // Sets that an application stores by `stage put`, pools and triggers.
    ("stage-service/src/store/write.rs", "_outside_move(", 2),
    ("stage-service/src/store/restore.rs", "_outside_move(", 1),
    ("stage-service/src/store/files.rs", "_outside_move(", 1),
    ("stage-service/src/watch/mod.rs", "_outside_move(", 1),
    ("stage-service/src/pools/", "_outside_move(", 4),
];

/// What makes something durable, as it is written in Rust.
const SYNCS: [&str; 9] = [
    "calls::fsync(",
    "fs::fsync(",
    "fs::fdatasync(",
    "fs::syncfs(",
    "sync_all(",
    ".sync_data(",
    "start_sync(",
    "_outside_move(",
    "libc::sync",
];

/// Each source file of the crates that a move runs through, without its tests.
fn each_source(crates: &Path, see: &mut dyn FnMut(&str, &str)) {
    let mut waiting: Vec<_> =
        ["stage", "stage-service", "stage-object"].map(|one| crates.join(one).join("src")).into();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|one| one.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let shown = path.strip_prefix(crates).unwrap().display().to_string();
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("\nmod tests {").next().unwrap_or_default();
            let lines: Vec<_> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            if !shown.contains("/tests") {
                see(&shown, &lines.join("\n"));
            }
        }
    }
}

#[test]
fn each_sync_of_the_sources_has_a_label_and_each_label_one_place() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut labels = vec![Vec::new(); Barrier::ALL.len()];
    let mut outside = [0; OUTSIDE.len()];
    let mut wrong = Vec::new();
    each_source(&crates, &mut |path, code| {
        for (n, barrier) in Barrier::ALL.iter().enumerate() {
            if path == "stage/src/fault/labels.rs" {
                continue;
            }
            let name = format!("Barrier::{barrier:?}");
            let ends = |at: usize| !code[at + name.len()..].starts_with(char::is_alphanumeric);
            labels[n].extend(code.match_indices(&name).filter(|(at, _)| ends(*at)).map(|_| path.to_owned()));
        }
        for sync in SYNCS {
            let found = code.matches(sync).count();
            if found == 0 {
                continue;
            }
            let known = OUTSIDE.iter().position(|(file, call, _)| path.starts_with(file) && *call == sync);
            match known {
                Some(known) => outside[known] += found,
                None if path == "stage/src/calls.rs" && sync == "_outside_move(" => {}
                None => wrong.push(format!("{path}: {sync}) has no label")),
            }
        }
    });
    for (barrier, places) in Barrier::ALL.iter().zip(labels) {
        if places.len() != 1 {
            wrong.push(format!("{barrier:?} is at {} places: {places:?}", places.len()));
        }
    }
    for ((path, call, expected), found) in OUTSIDE.iter().zip(outside) {
        if *expected != found {
            wrong.push(format!("{path}: {call}) is there {found} times, and {expected} are known"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
