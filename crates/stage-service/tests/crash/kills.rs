//! SIGKILL before and after every call of a move, once and again while what it left is gone on with.

use stage::{State, Verb};

use crate::child::{Ended, Hit, Order, Report, Strike, run};
use crate::sample::{self, Random, Struck, points};
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
    kill_threads_everywhere(1, scenario, verb, most);
}

fn kill_threads_everywhere(threads: usize, scenario: Scenario, verb: Verb, most: usize) {
    let name = format!("kill {scenario:?} {verb:?}");
    let mut struck = Struck::of(&name);
    let calls = record(scenario, verb).calls;
    for n in chosen(&name, &calls, most) {
        for hit in [Hit::Kill, Hit::KillAfter] {
            let world = World::new(scenario, verb);
            let done = format!("{hit:?} at call {n} of {}, {}", calls.len(), calls[n as usize]);
            let order = Order::to(&world.state, &world.spec).threads(threads).strike([Strike::nth(n, hit)]);
            let ended = run(&order);
            struck.case(matches!(ended, Ended::Killed));
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

#[test]
fn a_part_and_the_record_of_its_set_survive_a_kill_at_every_call() {
    kill_everywhere(Scenario::Part, Verb::Copy, 24);
}

#[test]
fn a_tree_that_three_threads_move_survives_a_kill_at_every_call() {
    kill_threads_everywhere(3, Scenario::Tree, Verb::Move, 20);
}

/// Killed while it recovers from a kill, and again, at calls that are drawn anew each time.
fn kill_again_and_again(scenario: Scenario, verb: Verb, chains: usize) {
    let name = format!("chain {scenario:?} {verb:?}");
    let calls = record(scenario, verb).calls.len() as u64;
    let mut random = Random::of(&name);
    let mut struck = Struck::of(&name);
    for chain in 0..chains {
        let world = World::new(scenario, verb);
        let mut done = format!("{name} {chain}: killed at");
        for _ in 0..6 {
            // Recoveries are shorter than the move, and a chain is to go forward: draw small numbers more often.
            let n = random.below(calls) * random.below(calls) / calls;
            let hit = if random.below(2) == 0 { Hit::Kill } else { Hit::KillAfter };
            done.push_str(&format!(" {hit:?}:{n}"));
            let ended = run(&Order::to(&world.state, &world.spec).strike([Strike::nth(n, hit)]));
            struck.case(matches!(ended, Ended::Killed));
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
    let mut struck = Struck::of("lying lengths");
    for at in points("lying lengths", writes.len() as u64, sample::share(10)) {
        let world = World::new(Scenario::Large, Verb::Move);
        let done = format!("killed at call {}, and the part filled up", writes[at as usize]);
        let fault = Strike::nth(writes[at as usize], Hit::Kill);
        let ended = run(&Order::to(&world.state, &world.spec).strike([fault]));
        if !struck.case(matches!(ended, Ended::Killed)) {
            continue;
        }
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

#[test]
fn a_kill_at_each_call_that_gives_a_set_its_name_is_gone_on_from() {
    let gives_names = |name: &str| ["Renameat", "Linkat", "Unlinkat", "Mkdirat", "Fsync"].contains(&name);
    for scenario in [Scenario::Small, Scenario::Checkpoint] {
        // A copy, whose source is not removed afterwards.
        let calls = record(scenario, Verb::Copy).calls;
        let first = calls.iter().position(|name| name == "Renameat").expect("it is published");
        let mut killed = 0;
        for (n, name) in calls.iter().enumerate().skip(first).filter(|(_, name)| gives_names(name)) {
            // Counted by kind, because the numbers of others vary.
            let nth = calls[..n].iter().filter(|before| *before == name).count() as u64;
            for hit in [Hit::Kill, Hit::KillAfter] {
                let world = World::new(scenario, Verb::Copy);
                let done = format!("{scenario:?}: {hit:?} at {name} {nth}");
                let strike = Strike::nth_of(crate::child::call(name), nth, hit);
                if let Ended::Killed = run(&Order::to(&world.state, &world.spec).strike([strike])) {
                    killed += 1;
                }
                world.must(&done, world.check_between());
                go_on(&world, &done);
            }
        }
        let least = if crate::LIKE_NFS { 6 } else { 4 };
        assert!(killed >= least, "{scenario:?}: killed only {killed} times");
    }
}

#[test]
fn a_job_that_is_cancelled_after_a_kill_leaves_neither_a_part_nor_a_claim() {
    let world = World::new(Scenario::Checkpoint, Verb::Copy);
    let before = crate::world::names(world.slow());
    // As on NFS the second one: the first is refused, and the name is claimed in between.
    let nth = u64::from(crate::LIKE_NFS);
    let strike = Strike::nth_of(stage::fault::Call::Renameat, nth, Hit::Kill);
    let Ended::Killed = run(&Order::to(&world.state, &world.spec).strike([strike])) else {
        panic!("it was not killed")
    };
    assert_eq!(world.destination.exists(), crate::LIKE_NFS, "the name is claimed on NFS alone");
    // Without threads for jobs nothing is gone on with.
    let config = stage_service::MoverConfig { jobs: 0, ..stage_service::MoverConfig::new(&world.state) };
    let mover = stage_service::Mover::open(&config).unwrap();
    mover.cancel(mover.status(None).unwrap()[0].id).unwrap();
    assert_eq!(crate::world::names(world.slow()), before);
}
