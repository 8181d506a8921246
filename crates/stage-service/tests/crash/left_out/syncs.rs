//! What is lost without a sync: after a power cut, or on the strictest file system.

use std::fs;
use std::path::Path;

use stage::fault::{Barrier, Call};
use stage::names::PathText;
use stage::semaphore::Semaphore;
use stage::{Place, State, Verb};

use super::{order, without};
use crate::child::{Change, Hit, Order, Strike, run};
use crate::power::{FAST, SLOW, copied_by_another, cut, live_with};
use crate::world::{Scenario, World, file};

pub fn moved(word: Option<&str>) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| World::at(Scenario::Small, Verb::Move, fast, slow);
    let past = live_with(("ext4", "xfs"), build, |_| {}, |order, _| without(order, word));
    match past.durable {
        Some(durable) => cut(&past, durable, None, false),
        None => vec![format!("it did not become durable: {:?}", past.report)],
    }
}

pub fn adopted(word: Option<&str>, distrust: bool) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| World::at(Scenario::Checkpoint, Verb::Move, fast, slow);
    let past = live_with(("ext4", "xfs"), build, copied_by_another, |order, _| {
        let mut order = without(order, word);
        order.distrust = distrust;
        order
    });
    cut(&past, past.durable.unwrap_or(past.end), None, false)
}

/// The application has written and not synced; the mover has said `local`, and dies as it makes its part.
pub fn local(word: Option<&str>, single: bool) -> Vec<String> {
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
        let mut order = without(order, word);
        order.distrust = single;
        // Before the source is read, which writes its pages back.
        order.strike([Strike::nth_of(Call::Read, 0, Hit::Kill)])
    });
    cut(&past, past.end, None, false)
}

/// A file beside the copy is synced, so that the copies' names and sizes are durable, and not their bytes.
pub fn sentinel(world: &World) -> Change {
    Change::Sync { path: PathText(world.slow().join("sentinel")) }
}

pub fn small_group(word: Option<&str>) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| World::at(Scenario::Checkpoint, Verb::Move, fast, slow);
    let past = live_with(
        ("xfs", "ext4-writeback"),
        build,
        |_| {},
        |order, world| {
            // The first syncfs is that of the source.
            let mut order = without(order, word)
                .strike([Strike::nth_of(Call::Syncfs, 1, Hit::Meanwhile)])
                .meanwhile([sentinel(world)]);
            order.kill_at = Some(Barrier::SetFileSystem.word().to_owned());
            order
        },
    );
    let _ = fs::remove_file(past.world.slow().join("sentinel"));
    cut_and_go_on(&past)
}

pub fn chunk_group(word: Option<&str>) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| World::at(Scenario::Large, Verb::Move, fast, slow);
    let past = live_with(
        ("ext4", "xfs"),
        build,
        |_| {},
        |order, world| {
            let mut order = without(order, word)
                .strike([Strike::nth_of(Call::Fdatasync, 0, Hit::Meanwhile)])
                .meanwhile([sentinel(world)]);
            order.kill_at = Some(Barrier::LargeFile.word().to_owned());
            order
        },
    );
    cut_and_go_on(&past)
}

pub fn shared_blocks(word: Option<&str>) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| {
        let mut world = World::at(Scenario::Chunked, Verb::Move, slow, slow);
        world.state = fast.join("state");
        world
    };
    let past = live_with(
        ("ext4", "xfs"),
        build,
        |_| {},
        |order, world| {
            let mut order = without(order, word)
                .strike([Strike::nth_of(Call::Ficlone, 0, Hit::Meanwhile)])
                .meanwhile([sentinel(world)]);
            order.kill_at = Some(Barrier::LargeFile.word().to_owned());
            order
        },
    );
    cut_and_go_on(&past)
}

pub fn cut_and_go_on(past: &crate::power::Past) -> Vec<String> {
    assert!(past.report.is_none(), "the mover was to be killed: {:?}", past.report);
    let wrong = cut(past, past.end, None, true);
    wrong.into_iter().filter(|line| !line.contains("beside the destination")).collect()
}

// The strictest file system that POSIX allows.

pub fn strict(word: Option<&str>, scenario: Scenario, change: fn(&mut World, &mut Order)) -> Vec<String> {
    let mut world = World::new(scenario, Verb::Move);
    let mut order = order(&world, word);
    change(&mut world, &mut order);
    order.spec = Some(world.spec.clone());
    strictly(&order)
}

pub fn strictly(order: &Order) -> Vec<String> {
    let mut order = order.clone();
    order.strict = true;
    let report = run(&order).told();
    let done = report.jobs.iter().all(|job| job.state == State::Done && job.error.is_none());
    assert!(done || !order.strikes.is_empty(), "{:?} {:?}", report.jobs, report.refused);
    // What has a part's name is taken apart, now or after a crash.
    let promised = report.unsynced.into_iter().filter(|path| !path.ends_with(".part"));
    promised.map(|path| format!("{path} was changed and not synced")).collect()
}

pub fn usual(_: &mut World, _: &mut Order) {}

pub fn distrusted(_: &mut World, order: &mut Order) {
    order.distrust = true;
}

pub fn to_new_parent(world: &mut World, _: &mut Order) {
    world.spec.destination = Place::of_path(&world.slow().join("new/newer/ckpt-7")).unwrap();
    world.spec.options.parents = true;
}

pub fn with_semaphore(world: &mut World, _: &mut Order) {
    let place = world.slow().join("semaphores");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("ckpt-7.done"), "").unwrap();
    world.spec.options.semaphore = Some(Semaphore::at(place.join("ckpt-7.done")).unwrap());
}

pub fn evicting(world: &mut World, order: &mut Order) {
    world.spec.verb = Verb::Copy;
    // It is still whole when the mover begins to take it apart. The first name that goes is that of the probe beside it.
    order.strikes.push(Strike::nth_of(Call::Unlinkat, 1, Hit::Errno(13)));
    world.spec.options.keep_fast = Some(0);
}

// Fetches.

/// A set of an object store, which is a directory beside the source, and the job that fetches it.
pub fn stored() -> World {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.latest = false;
    std::os::unix::fs::symlink("rank-0", world.source.join("link")).unwrap();
    world.before = crate::tree::snapshot(&world.source).unwrap().unwrap();
    let url = Place::of_name(format!("file://{}/store/ckpt-7", world.fast().display())).unwrap();
    fs::create_dir(world.fast().join("store")).unwrap();
    let mut drain = world.spec.clone();
    drain.destination = url.clone();
    let report = run(&Order::to(&world.fast().join("drained"), &drain)).told();
    assert_eq!(report.job().state, State::Done, "{:?}", report.jobs);
    world.spec.source = url;
    world
}

pub fn fetched(word: Option<&str>) -> Vec<String> {
    let world = stored();
    strictly(&order(&world, word))
}

pub fn same_bytes(world: &World) -> Vec<String> {
    let names = ["rank-0", "rank-1", "rank-2"];
    let there = names.iter().filter(|name| world.source.join(name).exists());
    let other = there
        .filter(|name| fs::read(world.source.join(name)).ok() != fs::read(world.destination.join(name)).ok());
    other.map(|name| format!("{name} has other bytes")).collect()
}

pub fn fetched_chunks(word: Option<&str>) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| {
        let mut world = World::at(Scenario::Large, Verb::Copy, fast, slow);
        fs::create_dir(world.fast().join("store")).unwrap();
        let mut drain = world.spec.clone();
        drain.destination =
            Place::of_name(format!("file://{}/store/ckpt-7", world.fast().display())).unwrap();
        assert_eq!(run(&Order::to(&world.fast().join("drained"), &drain)).told().job().state, State::Done);
        world.spec.source = drain.destination;
        world
    };
    let past = live_with(
        ("ext4", "xfs"),
        build,
        |_| {},
        |order, world| {
            let mut order = without(order, word)
                .strike([Strike::nth_of(Call::Fdatasync, 0, Hit::Meanwhile)])
                .meanwhile([sentinel(world)]);
            order.kill_at = Some(Barrier::FetchedFile.word().to_owned());
            order
        },
    );
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
