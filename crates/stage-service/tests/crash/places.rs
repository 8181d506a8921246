//! Destinations that are full, read-only, taken or the source itself, and trees with things in them that do not go.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use stage::fault::Barrier;
use stage::{ErrorClass, JobStatus, Place, State, Verb};

use crate::child::{Ended, Order, Report, run, run_as};
use crate::device;
use crate::failures::check_outcome;
use crate::tree::{differences, snapshot};
use crate::world::{Scenario, World, copy, file, flip, part_of};

/// A file system of a few megabytes, until this goes; none where there can be none.
struct Small(PathBuf, tempfile::TempDir);

impl Small {
    fn mount(options: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP a file system of its own: it takes root to mount one");
            return None;
        }
        let directory = tempfile::Builder::new().prefix("flashwright-small").tempdir().unwrap();
        let point = directory.path().join("mounted");
        fs::create_dir(&point).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(&point).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(point, directory)),
            other => {
                println!("SKIP a file system of its own: {other:?}");
                None
            }
        }
    }

    fn remount(&self, options: &str) {
        let status =
            Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.0).status().unwrap();
        assert!(status.success(), "remount with {options}");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // At once, though a process that another test has just forked may still hold a file there.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
        let _ = &self.1;
    }
}

fn retried(world: &World) -> Report {
    let mut order = Order::to(&world.state, &world.spec);
    order.retry = true;
    run(&order).told()
}

/// What became of a request that is refused, at once or as a job.
fn refusal(report: &Report) -> (String, ErrorClass) {
    match (&report.refused, &report.jobs[..]) {
        (Some(why), _) => (why.message.clone(), why.class),
        (None, [JobStatus { state: State::Failed, error: Some(why), .. }]) => {
            (why.message.clone(), why.class)
        }
        (None, jobs) => panic!("it was not refused: {jobs:?}"),
    }
}

#[test]
fn a_full_destination_fails_the_move_and_room_lets_it_be_retried() {
    for scenario in [Scenario::Tree, Scenario::Chunked] {
        let Some(small) = Small::mount("size=4m") else { return };
        let world = World::at(scenario, Verb::Move, &crate::world::memory(), &small.0);
        let report = run(&Order::to(&world.state, &world.spec)).told();
        let done = format!("a destination that is full, {scenario:?}");
        assert!(!check_outcome(&world, &done, &report, Some(rustix::io::Errno::NOSPC)), "{done}");
        let why = report.job().error.clone().unwrap();
        assert!(why.hint.is_some(), "{done}: there is no hint: {why:?}");
        small.remount("size=64m");
        let job = retried(&world).job().clone();
        assert_eq!((job.state, &job.error), (State::Done, &None), "{done}, with room: {job:?}");
        world.must(&done, world.check_end());
    }
}

#[test]
fn a_destination_without_inodes_fails_the_move_and_keeps_the_source() {
    let Some(small) = Small::mount("size=64m,nr_inodes=12") else { return };
    let world = World::at(Scenario::Tree, Verb::Move, &crate::world::memory(), &small.0);
    let report = run(&Order::to(&world.state, &world.spec)).told();
    assert!(!check_outcome(&world, "no inodes left", &report, Some(rustix::io::Errno::NOSPC)));
    small.remount("nr_inodes=10000");
    let job = retried(&world).job().clone();
    assert_eq!((job.state, &job.error), (State::Done, &None), "{job:?}");
    world.must("with inodes", world.check_end());
}

#[test]
fn a_read_only_destination_fails_the_move_and_keeps_the_source() {
    let Some(small) = Small::mount("size=64m") else { return };
    let world = World::at(Scenario::Checkpoint, Verb::Move, &crate::world::memory(), &small.0);
    small.remount("ro");
    let report = run(&Order::to(&world.state, &world.spec)).told();
    assert!(!check_outcome(&world, "read-only", &report, Some(rustix::io::Errno::ROFS)));
    small.remount("rw");
    let job = retried(&world).job().clone();
    assert_eq!((job.state, &job.error), (State::Done, &None), "{job:?}");
    world.must("writable again", world.check_end());
}

#[test]
fn a_part_stays_while_another_destination_is_refused_and_goes_when_an_equal_one_is_adopted() {
    // Where each file is synced by itself, a part whose directories are being synced is in doubt.
    let half_way = if crate::LIKE_NFS { Barrier::SmallFile } else { Barrier::SetFileSystem };
    for (scenario, barrier) in [(Scenario::Checkpoint, half_way), (Scenario::Chunked, Barrier::LargeFile)] {
        let killed = || {
            let world = World::new(scenario, Verb::Move);
            let mut order = Order::to(&world.state, &world.spec);
            order.kill_at = Some(barrier.word().to_owned());
            assert!(matches!(run(&order), Ended::Killed), "the mover was to be killed");
            let part = part_of(&world);
            (world, part)
        };
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let equal = |world: &World| copy(&world.source, &world.destination);
        let other = |world: &World| {
            equal(world);
            let is_file = world.destination.is_file();
            // The last file that is compared, so that others were recorded before.
            flip(&if is_file { world.destination.clone() } else { world.destination.join("rank-2") });
        };
        // It is refused, and has gone when the job is tried again: the part is gone on with.
        let (world, part) = killed();
        let made = inode(&part);
        other(&world);
        let why = refusal(&run(&Order::to(&world.state, &world.spec)).told());
        assert!(why.0.contains("is there already"), "{why:?}");
        assert_eq!(inode(&part), made, "what was copied is lost");
        let removed = if world.destination.is_dir() { fs::remove_dir_all } else { fs::remove_file };
        removed(&world.destination).unwrap();
        let job = retried(&world).job().clone();
        assert_eq!((job.state, &job.error), (State::Done, &None), "{job:?}");
        assert_eq!(inode(&world.destination), made, "it was copied anew");
        world.must("refused, then free", world.check_end());
        // It is refused, and the job is given up.
        let (world, part) = killed();
        other(&world);
        refusal(&run(&Order::to(&world.state, &world.spec)).told());
        let config = stage_service::MoverConfig { jobs: 0, ..stage_service::MoverConfig::new(&world.state) };
        let mover = stage_service::Mover::open(&config).unwrap();
        mover.cancel(mover.status(None).unwrap()[0].id).unwrap();
        assert!(!part.exists(), "nothing removes {part:?} any more");
        // It is the same.
        let (world, part) = killed();
        equal(&world);
        let job = run(&Order::to(&world.state, &world.spec)).told().job().clone();
        assert_eq!((job.state, &job.error), (State::Done, &None), "{job:?}");
        assert!(!part.exists() && !world.source.exists(), "{job:?}");
    }
}

#[test]
fn a_destination_that_is_there_is_adopted_if_it_is_the_same_and_never_written_over() {
    // Slurm runs a job's stage-out again when its controller restarts: the second time must do no harm.
    for scenario in [Scenario::Small, Scenario::Checkpoint] {
        let world = World::new(scenario, Verb::Copy);
        let first = run(&Order::to(&world.state, &world.spec)).told();
        assert_eq!(first.job().state, State::Done);
        let again = run(&Order::to(&world.fast().join("another journal"), &world.spec)).told();
        assert_eq!((again.job().state, &again.job().error), (State::Done, &None), "{again:?}");
        world.must("copied twice", world.check_end());

        let victim = if scenario == Scenario::Small {
            world.destination.clone()
        } else {
            world.destination.join("rank-1")
        };
        let mut bytes = fs::read(&victim).unwrap();
        bytes[7] ^= 1;
        fs::write(&victim, &bytes).unwrap();
        let third = run(&Order::to(&world.fast().join("a third journal"), &world.spec)).told();
        let (message, class) = refusal(&third);
        assert_eq!(class, ErrorClass::Refused, "{message}");
        assert_eq!(fs::read(&victim).unwrap(), bytes, "what is at the destination was written over");
        let source = snapshot(&world.source).unwrap().expect("the source is there");
        world.must("refused", differences(&world.before, &source));
    }
}

#[test]
fn a_destination_that_is_the_source_is_refused_by_whatever_name() {
    // rsync --remove-source-files destroys data where source and destination are one.
    let by = |name: &str, make: &dyn Fn(&World) -> PathBuf, scenario| {
        for verb in [Verb::Copy, Verb::Move] {
            let mut world = World::new(scenario, verb);
            world.spec.options.latest = false;
            let destination = make(&world);
            world.spec.destination = Place::of_path(&destination).unwrap();
            let report = run(&Order::to(&world.state, &world.spec)).told();
            let (message, class) = refusal(&report);
            assert!(
                matches!(class, ErrorClass::Refused | ErrorClass::Invalid),
                "{name}: {class:?} {message}"
            );
            let source = snapshot(&world.source).unwrap().expect("the source is there");
            world.must(name, differences(&world.before, &source));
        }
    };
    by("its own name", &|world| world.source.clone(), Scenario::Small);
    by("its own name", &|world| world.source.clone(), Scenario::Checkpoint);
    by(
        "another way to it",
        &|world| {
            let link = world.slow().join("way");
            std::os::unix::fs::symlink(world.fast(), &link).unwrap();
            link.join("ckpt-7")
        },
        Scenario::Checkpoint,
    );
    by("a directory in it", &|world| world.source.join("copy"), Scenario::Checkpoint);
    by("a directory deep in it", &|world| world.source.join("sub/deeper/copy"), Scenario::Tree);
}

#[test]
fn a_hard_link_to_the_source_is_the_source() {
    let mut world = World::new(Scenario::Small, Verb::Move);
    let other = world.fast().join("other name");
    fs::hard_link(&world.source, &other).unwrap();
    world.spec.destination = Place::of_path(&other).unwrap();
    let report = run(&Order::to(&world.state, &world.spec)).told();
    let (_, class) = refusal(&report);
    assert_eq!(class, ErrorClass::Refused);
    assert_eq!(fs::metadata(&world.source).unwrap().ino(), fs::metadata(&other).unwrap().ino());
}

#[test]
fn a_file_system_mounted_in_a_tree_is_not_moved_away() {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    let Some(small) = Small::mount("size=1m") else { return };
    fs::write(small.0.join("theirs"), b"on another file system").unwrap();
    let point = world.source.join("mounted");
    fs::create_dir(&point).unwrap();
    let bound = Command::new("mount").arg("--bind").arg(&small.0).arg(&point).status().unwrap();
    assert!(bound.success());
    let report = run(&Order::to(&world.state, &world.spec)).told();
    let kept = fs::read(point.join("theirs")).ok();
    assert!(device::unmounted(&point));
    assert_eq!(kept.as_deref(), Some(&b"on another file system"[..]), "{:?}", report.jobs);
    assert_eq!(refusal(&report).1, ErrorClass::Refused, "{:?}", report.jobs);
    for rank in ["rank-0", "rank-1", "rank-2"] {
        assert!(world.source.join(rank).exists(), "{rank} is gone: {:?}", report.jobs);
    }
}

#[test]
fn what_is_neither_file_nor_directory_nor_link_ends_the_move_with_its_name() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let root = rustix::process::geteuid().is_root();
    for kind in [FileType::Fifo, FileType::Socket, FileType::CharacterDevice] {
        if kind == FileType::CharacterDevice && !root {
            println!("SKIP a device in a tree: it takes root to make one");
            continue;
        }
        let world = World::new(Scenario::Tree, Verb::Move);
        let odd = world.source.join("sub/odd one");
        // /dev/null of null(4).
        mknodat(CWD, &odd, kind, Mode::RUSR, rustix::fs::makedev(1, 3)).unwrap();
        let report = run(&Order::to(&world.state, &world.spec)).told();
        let (message, _) = refusal(&report);
        assert!(message.contains("odd one"), "{kind:?}: {message}");
        assert!(odd.symlink_metadata().is_ok() && world.source.join("a").exists(), "{kind:?}: {message}");
        assert!(!world.destination.exists(), "{kind:?}: {message}");
    }
}

#[test]
fn a_file_that_the_caller_may_not_read_ends_the_move_with_its_name_and_the_source_whole() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP another user's files: it takes root to be somebody else");
        return;
    }
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    // The rest of the world is theirs, and one file is not.
    let theirs = ["rank-0", "rank-2"].map(|rank| world.source.join(rank));
    for path in [world.fast(), world.slow(), &world.source, &theirs[0], &theirs[1]] {
        std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
    }
    let state = world.fast().join("state");
    fs::create_dir(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(65_534), Some(65_534)).unwrap();
    fs::set_permissions(world.source.join("rank-1"), fs::Permissions::from_mode(0o600)).unwrap();
    let Some(report) = as_nobody(&Order::to(&world.state, &world.spec)) else { return };
    let (message, _) = refusal(&report);
    assert!(message.contains("rank-1") && message.contains("denied"), "{message}");
    assert!(["rank-0", "rank-1", "rank-2"].iter().all(|rank| world.source.join(rank).exists()), "{message}");
    assert!(!world.destination.exists());
}

#[test]
fn directories_that_their_owner_may_not_write_to_are_copied_by_who_is_not_root() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP the rights of somebody else: it takes root to be somebody else");
        return;
    }
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.latest = false;
    let locked = world.source.join("locked");
    fs::create_dir(&locked).unwrap();
    file(&locked.join("kept"), 1000, 9);
    for path in [
        world.fast(),
        world.slow(),
        &world.source,
        &locked,
        &locked.join("kept"),
        &world.source.join("rank-0"),
        &world.source.join("rank-1"),
        &world.source.join("rank-2"),
    ] {
        std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
    }
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
    world.before = snapshot(&world.source).unwrap().unwrap();
    let Some(report) = as_nobody(&Order::to(&world.state, &world.spec)) else { return };
    let job = report.job();
    assert_eq!((job.state, &job.error), (State::Done, &None), "{job:?}");
    world.must("copied by nobody", world.check_end());
}

/// Runs a child as nobody, from a place where nobody may execute it.
fn as_nobody(order: &Order) -> Option<Report> {
    let nobody = run_as(order, 65_534, 65_534);
    match nobody {
        Ok(ended) => Some(ended.told()),
        Err(error) => {
            println!("SKIP the rights of nobody: {error}");
            None
        }
    }
}

#[test]
fn a_file_that_looks_like_a_part_is_not_lost_by_a_move() {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    let odd = world.source.join(format!(".mine.{}.part", "a1".repeat(16)));
    fs::write(&odd, b"mine").unwrap();
    let report = run(&Order::to(&world.state, &world.spec)).told();
    let there = |root: &Path| fs::read(root.join(odd.file_name().unwrap())).ok();
    assert!(
        there(&world.source).is_some() || there(&world.destination).is_some(),
        "it is lost: {:?}",
        report.jobs
    );
}

#[test]
fn a_semaphore_is_not_removed_for_a_copy_that_an_earlier_version_has_made_in_memory() {
    let (disk, memory) = (crate::world::disk(), crate::world::memory());
    let is_in_memory =
        |path: &Path| stage::mounts::Mount::nearest(path).is_some_and(|mount| mount.is_in_memory());
    if !is_in_memory(&memory) {
        println!("SKIP a semaphore and a copy in memory: there is no /dev/shm in memory");
        return;
    }
    let mut world = World::at(Scenario::Small, Verb::Copy, &disk, &memory);
    let semaphore = world.fast().join("ckpt-7.done");
    fs::write(&semaphore, "").unwrap();
    world.spec.options.semaphore = Some(stage::semaphore::Semaphore::at(semaphore.clone()).unwrap());
    let mut order = Order::to(&world.state, &world.spec);
    // Earlier versions did not refuse it.
    order.left_out = Some(stage::fault::Check::InMemory.word().to_owned());
    let report = run(&order).told();
    let job = report.job();
    assert_eq!((job.state, job.level), (State::Done, stage::Level::InMemory), "{job:?}");
    assert!(semaphore.exists(), "it asked for a durable copy");
}
