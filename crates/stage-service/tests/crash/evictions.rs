//! Evictions that are killed at each call: a set that lost its name and was not compared once more gets it back.

use std::fs;
use std::path::{Path, PathBuf};

use stage::fault::Call;
use stage::journal::{Journal, Purpose};
use stage::{State, Verb};

use crate::child::{Ended, Hit, Order, Strike, run};
use crate::kills::chosen;
use crate::tree::{differences, snapshot};
use crate::world::{Scenario, World, parts_in};

/// A copy after which its fast copy is to go.
fn keeping_none() -> World {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.keep_fast = Some(0);
    world.spec.options.latest = false;
    world
}

/// How the fast copy is not what it was. The time of its directory is moved by a probe that was interrupted.
fn harmed(world: &World) -> Vec<String> {
    let Some(mut found) = snapshot(&world.source).unwrap() else { return vec!["it is gone".to_owned()] };
    if let (Some(root), Some(before)) = (found.get_mut(&b""[..]), world.before.get(&b""[..])) {
        root.modified = before.modified;
    }
    differences(&world.before, &found)
}

/// Has a mover that was killed decided that the fast copy goes? By the journal it has not as long as it only took the name.
fn is_decided(world: &World, state: &Path) -> bool {
    let aside = Journal::peek_directories_of(state, Purpose::Aside).unwrap_or_default();
    !world.source.exists() && aside.is_empty()
}

/// The calls to strike: those of a sample, and the one that takes the fast copy's name, which comes after so many others
/// of its kind.
fn strikes(name: &str, calls: &[String], renames_before: u64) -> Vec<Strike> {
    let renames = calls.iter().enumerate().filter(|(_, call)| *call == "Renameat");
    let taken = renames.map(|(n, _)| n).nth(renames_before as usize).expect("it loses its name");
    let from = if renames_before == 0 { 0 } else { taken };
    let drawn = chosen(name, &calls[from..], 24).into_iter().map(|n| n + from as u64);
    let drawn = drawn.flat_map(|n| [Hit::Kill, Hit::KillAfter].map(|hit| Strike::nth(n, hit)));
    drawn.chain([Strike::nth_of(Call::Renameat, renames_before, Hit::KillAfter)]).collect()
}

#[test]
fn a_fast_copy_that_a_killed_mover_took_aside_gets_its_name_back_and_is_compared_anew() {
    let world = keeping_none();
    let report = run(&Order::to(&world.state, &world.spec)).told();
    assert!(report.job().state == State::Done && !world.source.exists(), "{:?}", report.jobs);
    for strike in strikes("an eviction after a copy", &report.calls, 1) {
        let (world, done) = (keeping_none(), format!("{strike:?}"));
        let order = Order::to(&world.state, &world.spec).strike([strike.clone()]);
        if let Ended::Told(report) = run(&order) {
            assert_eq!(report.fired, 0, "{done}: it was struck and lives");
        }
        let is_decided = is_decided(&world, &world.state);
        assert!(!is_decided || strike.call.is_none(), "{done}: nothing was compared since");
        // Its slow copy goes before the mover is there again.
        let moved = world.slow().join("moved");
        fs::rename(&world.destination, &moved).unwrap();
        run(&Order::to(&world.state, &world.spec)).told();
        if !is_decided {
            assert_eq!(harmed(&world), Vec::<String>::new(), "{done}");
            assert_eq!(parts_in(world.fast()), Vec::<PathBuf>::new(), "{done}");
        }
        let mut copy = snapshot(&moved).unwrap().expect("it is there");
        copy.remove(crate::world::MANIFEST.as_bytes());
        world.must(&done, differences(&world.before, &copy));
    }
}

#[test]
fn an_eviction_without_a_job_that_is_killed_at_any_call_leaves_nothing_and_loses_nothing() {
    let ready = || {
        let world = World::new(Scenario::Checkpoint, Verb::Copy);
        assert_eq!(run(&Order::to(&world.state, &world.spec)).told().job().state, State::Done);
        let mut order = Order::go_on(&world.fast().join("other-state"));
        order.evict = Some((world.source.clone(), world.slow().to_owned()));
        (world, order)
    };
    let (world, order) = ready();
    let report = run(&order).told();
    assert!(report.refused.is_none() && !world.source.exists(), "{:?}", report.refused);
    for strike in strikes("an eviction without a job", &report.calls, 0) {
        let ((world, order), done) = (ready(), format!("{strike:?}"));
        assert!(matches!(run(&order.clone().strike([strike.clone()])), Ended::Killed), "{done}");
        let is_decided = is_decided(&world, &order.state);
        assert!(!is_decided || strike.call.is_none(), "{done}: nothing was compared since");
        // There is no slow copy: nothing goes, and nothing of the probe stays.
        let moved = world.slow().join("moved");
        fs::rename(&world.destination, &moved).unwrap();
        let refused = run(&order).told().refused;
        if !is_decided {
            assert!(refused.is_some(), "{done}");
            assert_eq!(harmed(&world), Vec::<String>::new(), "{done}");
        }
        fs::rename(&moved, &world.destination).unwrap();
        run(&order).told();
        assert!(!world.source.exists(), "{done}");
        assert_eq!(parts_in(world.fast()), Vec::<PathBuf>::new(), "{done}");
        let copy = snapshot(&world.destination).unwrap().expect("it is there");
        world.must(&done, world.complete(&copy));
    }
}
