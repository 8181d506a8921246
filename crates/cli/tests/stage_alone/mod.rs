//! `flashwright stage` with a home of its own, and sets to move.
#![allow(dead_code)] // each test binary uses its part

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::common::{Came, command, finish};

/// The binary, with a home of its own, so that no server and no journal of the user's is in it.
pub fn stage(folder: &Path, arguments: &[&str]) -> Command {
    let mut all = vec!["stage"];
    all.extend(arguments);
    let mut command = command(folder, &all);
    command.env("HOME", folder.join("home"));
    for variable in [
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
        "XDG_RUNTIME_DIR",
        "STATE_DIRECTORY",
        "FLASHWRIGHT_STAGE_SOCKET",
        "FLASHWRIGHT_RUN",
        "SLURM_JOB_ID",
    ] {
        command.env_remove(variable);
    }
    command
}

pub fn run(folder: &Path, arguments: &[&str]) -> Came {
    finish(&mut stage(folder, arguments))
}

pub fn works(folder: &Path, arguments: &[&str]) -> Came {
    let came = run(folder, arguments);
    assert_eq!(came.code, 0, "{arguments:?}: {came:#?}");
    came
}

pub fn json(folder: &Path, arguments: &[&str]) -> Value {
    let came = works(folder, arguments);
    serde_json::from_str(&came.out).expect("one JSON document")
}

pub fn refused(folder: &Path, arguments: &[&str], code: i32, words: &str) {
    let came = run(folder, arguments);
    assert_eq!((came.err.as_str(), came.code, came.out.as_str()), (words, code, ""), "{arguments:?}");
}

/// Bytes that are the same nowhere else.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = 2 * seed + 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A checkpoint of two files, one of more than a chunk, and a directory.
pub fn checkpoint(folder: &Path, name: &str) -> PathBuf {
    let set = folder.join(name);
    fs::create_dir_all(set.join("deep")).expect("makes");
    fs::write(set.join("large"), bytes(1, 9 << 20)).expect("writes");
    fs::write(set.join("deep/small"), bytes(2, 5000)).expect("writes");
    set
}

pub fn is_the_checkpoint(set: &Path) {
    assert!(fs::read(set.join("large")).expect("reads") == bytes(1, 9 << 20));
    assert!(fs::read(set.join("deep/small")).expect("reads") == bytes(2, 5000));
}
