//! SIGKILL before and after every call of a move, once and again while what it left is gone on with.

use stage::{State, Verb};

use crate::child::{Ended, Hit, Order, Report, Strike, run};
use crate::sample::{self, Random, points};
use crate::world::{Scenario, World};

/// Carries a job out with nothing in the way: what it must come to, and which calls it makes.
pub fn record(scenario: Scenario, verb: Verb) -> Report {
    let world = World::new(scenario, verb);
    let report = run(&Order::to(&world.state, &world.spec)).told();
    assert_eq!(report.job().state, State::Done, "{:?}", report.jobs);
    assert_eq!(report.job().error, None, "{:?}", report.jobs);
    world.must("with nothing in the way", world.check_end());
    assert!(report.calls.len() > 10, "only these calls were seen: {:?}", report.calls);
    report
}

/// Calls next to which a crash is worst; a sample has them first.
fn matters(call: &str) -> bool {
    ["Journal", "Renameat", "Unlinkat", "Syncfs", "Fsync", "Fdatasync", "Linkat"].contains(&call)
}

/// The calls to strike: all of them in a full run, otherwise half of `most` from those that matter and the rest
/// from anywhere.
pub fn chosen(name: &str, calls: &[String], most: usize) -> Vec<u64> {
    let (count, most) = (calls.len() as u64, sample::share(most));
    let mut chosen = points(name, count, most / 2);
    if !sample::full() {
        let worst: Vec<u64> = (0..count).filter(|n| matters(&calls[*n as usize])).collect();
        let drawn = points(&format!("{name} worst"), worst.len() as u64, most - most / 2);
        chosen.extend(drawn.into_iter().map(|at| worst[at as usize]));
        chosen.sort_unstable();
        chosen.dedup();
    }
    chosen
}

/// Goes on with what is there until it is done, and looks at what it came to.
pub fn go_on(world: &World, done: &str) {
    let report = run(&Order::to(&world.state, &world.spec)).told();
    for job in &report.jobs {
        assert_eq!((job.state, &job.error), (State::Done, &None), "{done}: {:?}", report.jobs);
    }
    assert!(!report.jobs.is_empty(), "{done}: no job was done; refused: {:?}", report.refused);
    world.must(&format!("{done}, and went on"), world.check_end());
}

fn kill_everywhere(scenario: Scenario, verb: Verb, most: usize) {
    let name = format!("kill {scenario:?} {verb:?}");
    let calls = record(scenario, verb).calls;
    for n in chosen(&name, &calls, most) {
        for hit in [Hit::Kill, Hit::KillAfter] {
            let world = World::new(scenario, verb);
            let done = format!("{hit:?} at call {n} of {}, {}", calls.len(), calls[n as usize]);
            let order = Order::to(&world.state, &world.spec).strike([Strike::nth(n, hit)]);
            let ended = run(&order);
            world.must(&done, world.check_between());
            if let Ended::Told(report) = ended {
                // Threads of the mover may divide the work otherwise this time, and need fewer calls.
                assert_eq!(report.fired, 0, "{done}: it was struck and lives: {report:?}");
                assert_eq!(report.job().state, State::Done, "{done}");
            }
            go_on(&world, &done);
        }
    }
}

#[test]
fn a_small_file_survives_a_kill_at_every_call_of_its_move() {
    kill_everywhere(Scenario::Small, Verb::Move, 24);
}

#[test]
fn a_small_file_survives_a_kill_at_every_call_of_its_copy() {
    kill_everywhere(Scenario::Small, Verb::Copy, 8);
}

#[test]
fn a_file_of_many_chunks_survives_a_kill_at_every_call_of_its_move() {
    kill_everywhere(Scenario::Large, Verb::Move, 10);
}

#[test]
fn a_file_of_two_chunks_survives_a_kill_at_every_call_of_its_copy() {
    kill_everywhere(Scenario::Chunked, Verb::Copy, 10);
}

#[test]
fn a_tree_with_everything_survives_a_kill_at_every_call_of_its_move() {
    kill_everywhere(Scenario::Tree, Verb::Move, 40);
}

#[test]
fn a_tree_with_everything_survives_a_kill_at_every_call_of_its_copy() {
    kill_everywhere(Scenario::Tree, Verb::Copy, 16);
}

#[test]
fn a_checkpoint_and_latest_survive_a_kill_at_every_call() {
    kill_everywhere(Scenario::Checkpoint, Verb::Move, 24);
}

/// Killed while it recovers from a kill, and again, at calls that are drawn anew each time.
fn kill_again_and_again(scenario: Scenario, verb: Verb, chains: usize) {
    let name = format!("chain {scenario:?} {verb:?}");
    let calls = record(scenario, verb).calls.len() as u64;
    let mut random = Random::of(&name);
    for chain in 0..chains {
        let world = World::new(scenario, verb);
        let mut done = format!("{name} {chain}: killed at");
        for _ in 0..6 {
            // Recoveries are shorter than the move, and a chain is to go forward: draw small numbers more often.
            let n = random.below(calls) * random.below(calls) / calls;
            let hit = if random.below(2) == 0 { Hit::Kill } else { Hit::KillAfter };
            done.push_str(&format!(" {hit:?}:{n}"));
            let ended = run(&Order::to(&world.state, &world.spec).strike([Strike::nth(n, hit)]));
            world.must(&done, world.check_between());
            if let Ended::Told(report) = ended {
                assert_eq!(report.fired, 0, "{done}: {report:?}");
                break;
            }
        }
        go_on(&world, &done);
    }
}

#[test]
fn a_move_survives_being_killed_again_while_it_recovers() {
    let chains = if sample::full() { 200 } else { 4 };
    kill_again_and_again(Scenario::Tree, Verb::Move, chains);
    kill_again_and_again(Scenario::Small, Verb::Move, chains);
}

#[test]
fn a_file_of_chunks_survives_being_killed_again_while_it_recovers() {
    kill_again_and_again(Scenario::Large, Verb::Move, if sample::full() { 60 } else { 1 });
}

#[test]
fn a_part_as_long_as_its_source_is_not_taken_for_a_copy() {
    // AXL goes on at the length of what is there; preallocation and other writers make lengths lie.
    use std::os::unix::fs::FileExt;
    let calls = record(Scenario::Large, Verb::Move).calls;
    let writes: Vec<u64> = (0..)
        .zip(&calls)
        .filter(|(_, name)| *name == "Write" || *name == "Fdatasync")
        .map(|(n, _)| n)
        .collect();
    for at in points("lying lengths", writes.len() as u64, sample::share(10)) {
        let world = World::new(Scenario::Large, Verb::Move);
        let done = format!("killed at call {}, and the part filled up", writes[at as usize]);
        let fault = Strike::nth(writes[at as usize], Hit::Kill);
        let Ended::Killed = run(&Order::to(&world.state, &world.spec).strike([fault])) else { continue };
        let size = std::fs::metadata(&world.source).unwrap().len();
        for name in crate::world::names(world.slow()) {
            let part =
                std::fs::File::options().read(true).write(true).open(world.slow().join(&name)).unwrap();
            part.set_len(size).unwrap();
            // What was not written yet reads as zeros; now it reads as something else. What is recorded is left alone.
            let chunk = stage::digest::CHUNK_BYTES;
            let mut bytes = vec![0; chunk as usize];
            for offset in (0..size).step_by(chunk as usize) {
                let length = chunk.min(size - offset) as usize;
                part.read_exact_at(&mut bytes[..length], offset).unwrap();
                if bytes[..length].iter().all(|byte| *byte == 0) {
                    part.write_all_at(&vec![0x55; length], offset).unwrap();
                }
            }
        }
        go_on(&world, &done);
    }
}
