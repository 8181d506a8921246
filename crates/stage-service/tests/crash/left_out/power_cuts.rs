//! What is lost without a sync after a power cut, on drives that keep only what was flushed.

use std::fs;
use std::path::Path;

use stage::fault::{Barrier, Call};
use stage::names::PathText;
use stage::{Level, State, Verb};

use super::Mutant;
use super::strict::stored_in;
use crate::child::{Change, Hit, Order, Strike, run};
use crate::power::{FAST, Past, SLOW, copied_by_another, cut, live_with};
use crate::world::{Scenario, World, file};

pub fn moved(left: &Mutant) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| World::at(Scenario::Small, Verb::Move, fast, slow);
    let past = live_with(("ext4", "xfs"), build, |_| {}, |order, _| left.apply(order));
    match past.durable {
        Some(durable) => cut(&past, durable, None, false),
        None => vec![format!("it did not become durable: {:?}", past.report)],
    }
}

pub fn adopted(left: &Mutant, distrust: bool) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| World::at(Scenario::Checkpoint, Verb::Move, fast, slow);
    let past = live_with(("ext4", "xfs"), build, copied_by_another, |order, _| {
        let mut order = left.apply(order);
        order.distrust = distrust;
        order
    });
    cut(&past, past.durable.unwrap_or(past.end), None, false)
}

/// The application has written and not synced; the mover has said `local`, and dies as it makes its part.
pub fn local(left: &Mutant, single: bool) -> Vec<String> {
    let scenario = if single { Scenario::Small } else { Scenario::Checkpoint };
    let build = |fast: &Path, slow: &Path| World::at(scenario, Verb::Copy, fast, slow);
    let write = |world: &mut World| {
        let path = if single { world.source.clone() } else { world.source.join("rank-1") };
        fs::remove_file(&path).unwrap();
        file(&path, 50_000, 31);
        if !single {
            crate::world::set_time(&world.source, 1_700_000_000, 5);
        }
        world.before = crate::tree::snapshot(&world.source).unwrap().unwrap();
    };
    let past = live_with(("xfs", "ext4"), build, write, |order, _| {
        let mut order = left.apply(order);
        order.distrust = single;
        // Before the source is read, which writes its pages back.
        order.strike([Strike::nth_of(Call::Read, 0, Hit::Kill)])
    });
    cut(&past, past.end, None, false)
}

/// The request has been told that it is a job.
pub fn accepted(left: &Mutant) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| World::at(Scenario::Small, Verb::Copy, fast, slow);
    let past = live_with(
        ("ext4", "xfs"),
        build,
        |_| {},
        |order, _| {
            let mut order = left.apply(order);
            order.say = Some(Level::Staged);
            // Its syncfs would make the journal durable as well.
            order.kill_at = Some(Barrier::SourceFileSystem.word().to_owned());
            order
        },
    );
    let _mounted = past.fast.power_up(&past.host.image(FAST, past.end, None));
    match stage::journal::Journal::peek(&past.world.state) {
        Ok(jobs) if jobs.len() == 1 => Vec::new(),
        found => vec![format!("an accepted job is forgotten: {found:?}")],
    }
}

/// A file beside the copy is synced, so that the copies' names and sizes are durable, and not their bytes.
pub fn sentinel(world: &World) -> Change {
    Change::Sync { path: PathText(world.slow().join("sentinel")) }
}

/// A job whose part gets its name and size durably before call number `after` of this kind, by a sync beside it, and which
/// dies before the sync that follows its last bytes. What was written in between is durable by the job's own syncs alone.
fn interrupted(
    left: &Mutant,
    file_systems: (&str, &str),
    build: impl FnOnce(&Path, &Path) -> World,
    (call, after): (Call, u64),
    last: Barrier,
) -> Past {
    live_with(
        file_systems,
        build,
        |_| {},
        |order, world| {
            let strike = Strike::nth_of(call, after, Hit::Meanwhile);
            let mut order = left.apply(order).strike([strike]).meanwhile([sentinel(world)]);
            order.kill_at = Some(last.word().to_owned());
            order
        },
    )
}

pub fn small_group(left: &Mutant) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| World::at(Scenario::Checkpoint, Verb::Move, fast, slow);
    // The first syncfs is that of the source.
    let at = (Call::Syncfs, 1);
    let past = interrupted(left, ("xfs", "ext4-writeback"), build, at, Barrier::SetFileSystem);
    let _ = fs::remove_file(past.world.slow().join("sentinel"));
    cut_and_go_on(&past)
}

pub fn chunk_group(left: &Mutant) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| World::at(Scenario::Large, Verb::Move, fast, slow);
    // Before the first chunk: a flush of the drive would make durable what was written by then.
    let past = interrupted(left, ("ext4", "xfs"), build, (Call::Write, 0), Barrier::LargeFile);
    cut_and_go_on(&past)
}

pub fn shared_blocks(left: &Mutant) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| {
        let mut world = World::at(Scenario::Chunked, Verb::Move, slow, slow);
        world.state = fast.join("state");
        world
    };
    let past = interrupted(left, ("ext4", "xfs"), build, (Call::Ficlone, 0), Barrier::LargeFile);
    cut_and_go_on(&past)
}

fn cut_and_go_on(past: &Past) -> Vec<String> {
    assert!(past.report.is_none(), "the mover was to be killed: {:?}", past.report);
    let wrong = cut(past, past.end, None, true);
    wrong.into_iter().filter(|line| !line.contains("beside the destination")).collect()
}

pub fn fetched_chunks(left: &Mutant) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| stored_in(World::at(Scenario::Large, Verb::Copy, fast, slow));
    let past = interrupted(left, ("ext4", "xfs"), build, (Call::Write, 0), Barrier::FetchedFile);
    let image = |drive| past.host.image(drive, past.end, None);
    let _mounted = [past.fast.power_up(&image(FAST)), past.slow.power_up(&image(SLOW))];
    // What is read back at the end finds lost chunks, and all of it is fetched anew.
    let report = run(&Order::to(&past.world.state, &past.world.spec)).told();
    let job = report.job();
    let mut wrong = Vec::new();
    if job.attempts > 2 || job.state != State::Done {
        wrong.push(format!("{} attempts, {:?}: {:?}", job.attempts, job.state, job.error));
    }
    if fs::read(&past.world.source).ok() != fs::read(&past.world.destination).ok() {
        wrong.push("other bytes were published".to_owned());
    }
    wrong
}
