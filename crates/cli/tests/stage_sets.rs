//! `flashwright stage sets`, and parts that job scripts store without a store of their own.

mod common;
mod stage_alone;

use std::fs;
use std::path::Path;

use common::{fits_schema, place};
use stage_alone::{checkpoint, is_the_checkpoint, json, run, works};

fn refused(folder: &Path, arguments: &[&str], code: i32, words: &str) {
    let came = run(folder, arguments);
    assert_eq!(came.code, code, "{arguments:?}: {came:?}");
    assert!(came.err.contains(words), "{arguments:?}: {came:?}");
}

/// Has a rank of two store its part, as a job script does.
fn store(folder: &Path, step: &str, rank: &str) {
    works(
        folder,
        &["cp", "--foreground", "--latest", "--part", rank, "--run", "job-1", "--step", step, "ckpt", "slow"],
    );
}

#[test]
fn parts_of_job_scripts_make_a_set_and_what_lacks_is_named() {
    let folder = place();
    let folder = folder.path();
    checkpoint(folder, "ckpt");
    fs::create_dir(folder.join("slow")).expect("makes");
    assert!(works(folder, &["sets", "slow"]).out.ends_with("/slow: no sets of parts\n"));
    store(folder, "7", "0/2");
    assert_eq!(
        works(folder, &["sets", "slow"]).out,
        "step-00000007.run-job-1: not complete, 1 of 2 parts\n  rank 1: its part is not there\n"
    );
    assert!(!folder.join("slow/latest").exists());
    store(folder, "7", "1/2");
    assert_eq!(works(folder, &["sets", "slow"]).out, "step-00000007.run-job-1: complete, 2 parts\n");
    let latest = fs::read_link(folder.join("slow/latest")).expect("it is there");
    assert_eq!(latest, Path::new("step-00000007.run-job-1"));
    is_the_checkpoint(&folder.join("slow/latest/rank-000001-of-000002"));
    let came = works(folder, &["verify", "slow/step-00000007.run-job-1"]);
    assert!(came.out.contains("6 files, ") && came.out.contains("all as they were written"), "{came:?}");
    let found = json(folder, &["sets", "slow", "--json"]);
    assert_eq!((&found["sets"][0]["ranks"], &found["sets"][0]["complete"]), (&2.into(), &true.into()));
    fits_schema(folder, "stage-sets", &found);
    // The same script, run again, finds its part there.
    store(folder, "7", "1/2");

    fs::remove_file(folder.join("slow/step-00000007.run-job-1/.flashwright-manifest")).expect("removes");
    let found = works(folder, &["sets", "slow"]).out;
    assert!(found.contains("all 2 parts are there and the record is not"), "{found}");
    assert!(works(folder, &["sets", "slow", "--complete"]).out.contains(": complete, 2 parts"));
}

#[test]
fn a_set_is_removed_by_a_word_and_the_newest_complete_one_is_not() {
    let folder = place();
    let folder = folder.path();
    checkpoint(folder, "ckpt");
    fs::create_dir(folder.join("slow")).expect("makes");
    for (step, rank) in [("1", "0/2"), ("1", "1/2"), ("2", "0/2")] {
        store(folder, step, rank);
    }
    refused(
        folder,
        &["sets", "slow", "--remove", "step-00000001.run-job-1"],
        3,
        "is the newest complete set, and stays",
    );
    refused(folder, &["sets", "slow", "--remove", "ckpt-1"], 2, "--remove=ckpt-1: not the name of a set");
    refused(folder, &["sets", "slow", "--remove", "step-00000009.run-x"], 2, "there is no such set");
    let came = works(folder, &["sets", "slow", "--remove", "step-00000002.run-job-1"]);
    assert_eq!(came.out, "step-00000001.run-job-1: complete, 2 parts\n");
    for rank in ["0/2", "1/2"] {
        works(
            folder,
            &["cp", "--foreground", "--part", rank, "--run", "job-1", "--step", "3", "ckpt", "slow"],
        );
    }
    let first = ["sets", "slow", "--remove", "step-00000001.run-job-1"];
    refused(folder, &first, 3, "latest leads to it, and it stays");
    refused(
        folder,
        &["sets", "slow", "--remove", "step-00000003.run-job-1"],
        3,
        "is the newest complete set, and stays",
    );
    works(folder, &["sets", "slow", "--complete"]);
    works(folder, &first);
    assert_eq!(common::names(&folder.join("slow")), ["latest", "step-00000003.run-job-1"]);
}

#[test]
fn parts_that_a_lost_job_left_on_a_node_are_drained_and_complete_their_set() {
    let folder = place();
    let folder = folder.path();
    checkpoint(folder, "ckpt");
    fs::create_dir(folder.join("slow")).expect("makes");
    store(folder, "3", "0/2");
    let left = folder.join("flash/rank-000001-of-000002/step-00000003.run-job-1");
    fs::create_dir_all(left.parent().expect("a directory")).expect("makes");
    fs::rename(folder.join("ckpt"), &left).expect("renames");
    let came = works(folder, &["sets", "slow", "--drain", "flash"]);
    assert_eq!(came.out, "step-00000003.run-job-1: complete, 2 parts\n");
    is_the_checkpoint(&folder.join("slow/latest/rank-000001-of-000002"));
}

#[test]
fn what_is_no_part_is_refused_before_anything_is_stored() {
    let folder = place();
    let folder = folder.path();
    checkpoint(folder, "ckpt");
    fs::create_dir(folder.join("slow")).expect("makes");
    let cp = |more: &[&'static str]| [&["cp", "--foreground"], more, &["ckpt", "slow"]].concat();
    refused(folder, &cp(&["--part", "2/2", "--step", "1"]), 2, "rank 2 of 2");
    refused(folder, &cp(&["--part", "0/2"]), 2, "--step");
    refused(folder, &cp(&["--part", "0/2", "--step", "1", "--run", "a/b"]), 2, "a/b");
    refused(
        folder,
        &cp(&["--part", "0/2", "--step", "1"]),
        2,
        "--part: nothing tells this launch from others",
    );
    refused(
        folder,
        &cp(&["--part", "0/2", "--step", "1", "--run", "a", "--no-manifest"]),
        2,
        "without a manifest",
    );
    assert_eq!(common::names(&folder.join("slow")), [""; 0]);
}
