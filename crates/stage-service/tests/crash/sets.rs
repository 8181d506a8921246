//! Sets of parts: what must hold for the one whose second part is moved, and two processes that complete it.

use std::fs;
use std::path::{Path, PathBuf};

use stage::complete::{self, Completion};
use stage::fault::Barrier;
use stage::parts::{PartRecord, SetId};
use stage::tier::directory::Directory;
use stage::{JobSpec, Options, Place, Preserve, State, Verb};

use crate::child::{Ended, Order, run};
use crate::kills::go_on;
use crate::world::{MANIFEST, Scenario, World, file, names};

/// The set's name.
pub const SET: &str = "step-00000007.run-a";
/// Its parts.
pub const PARTS: [&str; 2] = ["rank-000000-of-000002", "rank-000001-of-000002"];

/// The job of a part of a set of two.
fn spec(source: &Path, slow: &Path, run: &str, rank: u32) -> JobSpec {
    let node = format!("node-{rank}");
    let part = PartRecord { run: run.parse().unwrap(), step: 7, rank, ranks: 2, node };
    let place = slow.join(part.set().to_string()).join(part.part().unwrap().to_string());
    JobSpec {
        verb: Verb::Copy,
        source: Place::of_path(source).unwrap(),
        destination: Place::of_path(&place).unwrap(),
        options: Options { part: Some(part), latest: true, preserve: Preserve::ALL, ..Options::default() },
    }
}

/// Has the first of two parts stored.
pub fn store(fast: &Path, slow: &Path, run_id: &str) {
    let source = fast.join(format!("first-of-{run_id}"));
    fs::create_dir(&source).unwrap();
    file(&source.join("weights"), 40_000, 3);
    // Sorts before the manifest's name.
    file(&source.join(".a"), 10, 4);
    let state = fast.join(format!("state-of-{run_id}"));
    let report = run(&Order::to(&state, &spec(&source, slow, run_id, 0))).told();
    assert_eq!(report.job().state, State::Done, "{:?} {:?}", report.jobs, report.refused);
}

/// Has the first of two parts stored; the job of the second.
pub fn with_the_first_part(fast: &Path, slow: &Path) -> JobSpec {
    store(fast, slow, "a");
    spec(&fast.join(SET), slow, "a", 1)
}

/// The path of the set's record.
pub fn record(slow: &Path) -> PathBuf {
    slow.join(SET).join(MANIFEST)
}

/// What must hold at any moment; what does not, a line each: a record lists what is there, and of both parts, and `latest`
/// leads to a set with a record.
pub fn between(slow: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let text = fs::read_to_string(record(slow)).ok();
    for line in text.iter().flat_map(|text| text.lines()).skip(1) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
        let Some(path) = line["path"].as_str().filter(|_| line["kind"] == "file") else { continue };
        let found = fs::metadata(slow.join(SET).join(path)).ok().map(|found| found.len());
        if found != line["size"].as_u64() {
            wrong.push(format!("the record lists {path:?}, of which {found:?} bytes are there"));
        }
    }
    if let Some(text) = &text {
        for part in PARTS {
            if !text.contains(&format!("\"{part}/{MANIFEST}\"")) {
                wrong.push(format!("the record lacks {part}"));
            }
        }
        if !text.ends_with('\n') || !text.lines().last().is_some_and(|line| line.starts_with("{\"end\":")) {
            wrong.push("the record is visible and torn".to_owned());
        }
    }
    match fs::read_link(slow.join("latest")) {
        Err(_) => {}
        Ok(target) if target == Path::new(SET) && text.is_some() => {}
        Ok(target) => wrong.push(format!("latest leads to {target:?}, which is not complete")),
    }
    wrong
}

/// What must hold when the job is done; what does not, a line each.
pub fn end(slow: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    let found = names(&slow.join(SET));
    if found != [MANIFEST, PARTS[0], PARTS[1]] {
        wrong.push(format!("{found:?} in the set at the end"));
    }
    if fs::read_link(slow.join("latest")).ok().as_deref() != Some(Path::new(SET)) {
        wrong.push("latest does not lead to the set at the end".to_owned());
    }
    wrong
}

fn id() -> SetId {
    SetId { step: 7, run: "a".parse().unwrap() }
}

fn completed(slow: &Path) -> Completion {
    complete::complete(&Directory::open(slow).unwrap(), &id(), &()).unwrap()
}

#[test]
fn a_set_that_one_process_was_about_to_complete_is_completed_by_another_and_both_agree() {
    for (at, other_is_first) in
        [(Barrier::SetRecord, true), (Barrier::PartNames, true), (Barrier::SetRecordName, false)]
    {
        let world = World::new(Scenario::Part, Verb::Copy);
        let mut order = Order::to(&world.state, &world.spec);
        order.kill_at = Some(at.word().to_owned());
        assert!(matches!(run(&order), Ended::Killed), "{at:?}: it was not come to");
        world.must("killed", world.check_between());
        let expected = if other_is_first { Completion::Made } else { Completion::There };
        assert_eq!(completed(world.slow()), expected, "{at:?}");
        let text = fs::read(record(world.slow())).unwrap();
        go_on(&world, &format!("killed at {at:?}, and completed by another"));
        assert_eq!(fs::read(record(world.slow())).unwrap(), text, "{at:?}: the record was replaced");
    }
}

#[test]
fn a_record_that_is_torn_is_replaced_and_a_part_that_is_missing_is_named() {
    let world = World::new(Scenario::Part, Verb::Copy);
    run(&Order::to(&world.state, &world.spec)).told();
    let text = fs::read(record(world.slow())).unwrap();
    fs::write(record(world.slow()), &text[..text.len() / 2]).unwrap();
    assert_eq!(completed(world.slow()), Completion::Made);
    assert_eq!(fs::read(record(world.slow())).unwrap(), text);
    fs::remove_dir_all(world.slow().join(SET).join(PARTS[0])).unwrap();
    let survey = complete::survey(&Directory::open(world.slow()).unwrap(), &id()).unwrap();
    assert!(!survey.is_complete);
    assert_eq!(survey.faults.iter().map(|fault| fault.rank).collect::<Vec<_>>(), [0]);
}
