//! What is lost without a check, after the world was changed at the moment that its case names.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use stage::fault::{Barrier, Call};
use stage::names::PathText;
use stage::{Place, State, Verb};

use super::strict::{stored, with_semaphore};
use super::{Mutant, order};
use crate::child::{Change, Ended, Hit, Order, Report, Strike, run};
use crate::device;
use crate::identity::{Mounted, Overlay};
use crate::world::{Scenario, World, copy, file, flip, part_in, part_of};

pub fn part_of_another_run(left: &Mutant) -> Vec<String> {
    let world = World::new(Scenario::Part, Verb::Copy);
    let first = crate::sets::PARTS[0];
    crate::sets::store(world.fast(), world.slow(), "b");
    fs::remove_dir_all(world.slow().join(crate::sets::SET).join(first)).unwrap();
    let other = world.slow().join("step-00000007.run-b").join(first);
    fs::rename(other, world.slow().join(crate::sets::SET).join(first)).unwrap();
    assert_eq!(run(&order(&world, left)).told().job().state, State::Done);
    match crate::sets::record(world.slow()).exists() {
        true => vec!["a set with a part of another run is complete".to_owned()],
        false => Vec::new(),
    }
}

pub fn fetched_replaced(left: &Mutant) -> Vec<String> {
    let world = stored();
    killed(&order(&world, &Mutant::none()).strike([Strike::nth_of(Call::Symlinkat, 0, Hit::Kill)]));
    let part = part_of(&world);
    fs::remove_file(part.join("rank-1")).unwrap();
    file(&part.join("rank-1"), 50_001, 77);
    run(&order(&world, left));
    same_bytes(&world)
}

/// Files of a fetched set that are there and are not those of the store.
fn same_bytes(world: &World) -> Vec<String> {
    let names = ["rank-0", "rank-1", "rank-2"];
    let there = names.iter().filter(|name| world.source.join(name).exists());
    let other = there
        .filter(|name| fs::read(world.source.join(name)).ok() != fs::read(world.destination.join(name)).ok());
    other.map(|name| format!("{name} has other bytes")).collect()
}

pub fn fetched_rotten(left: &Mutant) -> Vec<String> {
    let mut world = World::new(Scenario::Small, Verb::Copy);
    let url = Place::of_name(format!("file://{}/store/ckpt-7", world.fast().display())).unwrap();
    fs::create_dir(world.fast().join("store")).unwrap();
    let mut drain = world.spec.clone();
    drain.destination = url.clone();
    assert_eq!(run(&Order::to(&world.fast().join("drained"), &drain)).told().job().state, State::Done);
    world.spec.source = url;
    let rot = Change::Rot { below: world.slow().into(), name: String::new() };
    // Two syncs are the journal's.
    let strike = Strike::nth_of(Call::Fsync, 2, Hit::Meanwhile);
    let report = run(&order(&world, left).strike([strike]).meanwhile([rot])).told();
    assert_eq!((report.fired, &report.change_failed), (1, &None), "{:?}", report.calls);
    if fs::read(&world.destination).is_ok_and(|bytes| Some(bytes) != fs::read(&world.source).ok()) {
        return vec!["other bytes were published".to_owned()];
    }
    Vec::new()
}

pub fn killed(order: &Order) {
    assert!(matches!(run(order), Ended::Killed), "the mover was to be killed");
}

pub fn failed(order: &Order) -> Vec<String> {
    not_refused(run(order).told())
}

fn not_refused(report: Report) -> Vec<String> {
    let done = report.jobs.iter().filter(|job| job.state != State::Failed);
    done.map(|job| format!("not refused: {:?} {:?}", job.state, job.notes)).collect()
}

pub fn onto_itself(left: &Mutant) -> Vec<String> {
    let mut world = World::new(Scenario::Small, Verb::Move);
    let alias = world.slow().join("alias");
    std::os::unix::fs::symlink(world.fast(), &alias).unwrap();
    world.spec.destination = Place::of_path(&alias.join("ckpt-7")).unwrap();
    run(&order(&world, left));
    if world.source.exists() {
        Vec::new()
    } else {
        vec!["the source is gone, and it was its own copy".to_owned()]
    }
}

pub fn mounted_in_source(left: &Mutant) -> Vec<String> {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    let (other, point) = (world.fast().join("other"), world.source.join("in"));
    fs::create_dir(&other).unwrap();
    fs::create_dir(&point).unwrap();
    fs::write(other.join("kept"), "of another program").unwrap();
    let mounted = Mounted::bind(&other, &point).expect("root may mount");
    run(&order(&world, left));
    drop(mounted);
    if other.join("kept").exists() { Vec::new() } else { vec!["what was mounted is empty".to_owned()] }
}

pub fn through_overlay(left: &Mutant) -> Vec<String> {
    // A file: the proof's own file changes a directory, which is seen as well.
    let mut world = World::new(Scenario::Small, Verb::Move);
    let overlay = Overlay::of(world.fast(), true).expect("root may mount an overlay");
    world.spec.options.latest = false;
    world.spec.destination = Place::of_path(&overlay.merged.join("ckpt-7")).unwrap();
    run(&order(&world, left));
    // The overlay has names in its cache that are gone from its upper directory.
    if world.source.exists() { Vec::new() } else { vec!["source and copy are gone".to_owned()] }
}

pub fn into_memory(left: &Mutant) -> Vec<String> {
    let (disk, memory) = (crate::world::disk(), crate::world::memory());
    let mut world = World::at(Scenario::Checkpoint, Verb::Move, &disk, &memory);
    world.spec.options.latest = false;
    not_refused(run(&order(&world, left)).told())
}

pub fn into_itself(left: &Mutant) -> Vec<String> {
    let mut world = World::new(Scenario::Tree, Verb::Copy);
    world.spec.destination = Place::of_path(&world.source.join("sub/ckpt-7")).unwrap();
    // A copy that finds itself in its source has no end of its own. One that is refused makes no directory.
    let order = order(&world, left).strike([Strike::nth_of(Call::Mkdirat, 50, Hit::Kill)]);
    match run(&order) {
        Ended::Killed => vec!["it copies its own copy, without an end".to_owned()],
        Ended::Told(report) => not_refused(*report),
    }
}

pub fn taken(left: &Mutant, names: bool) -> Vec<String> {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    copy(&world.source, &world.destination);
    if names {
        fs::write(world.destination.join("another"), "name").unwrap();
    } else {
        flip(&world.destination.join("rank-1"));
    }
    failed(&order(&world, left))
}

/// Another program writes to a destination that exists, after it was compared.
pub fn written_later(left: &Mutant) -> Vec<String> {
    [Scenario::Small, Scenario::Checkpoint]
        .into_iter()
        .flat_map(|scenario| written_to(left, scenario))
        .collect()
}

fn written_to(left: &Mutant, scenario: Scenario) -> Vec<String> {
    let equal = || {
        let world = World::new(scenario, Verb::Move);
        copy(&world.source, &world.destination);
        world
    };
    // What is compared is recorded next after the proof's file has gone, which is the first that is removed.
    let twin = equal();
    let calls = run(&order(&twin, &Mutant::none())).told().calls;
    let named = |call: Call| format!("{call:?}");
    let before = calls.iter().take_while(|call| **call != named(Call::Unlinkat));
    let recorded = before.filter(|call| **call == named(Call::Journal)).count() as u64;
    let world = equal();
    let path = if scenario == Scenario::Small {
        world.destination.clone()
    } else {
        world.destination.join("rank-1")
    };
    let write = Change::Write {
        path: PathText(path.clone()),
        offset: 0,
        content: vec![0xee; 4096].into(),
        keep_times: true,
    };
    let strike = Strike::nth_of(Call::Journal, recorded, Hit::Meanwhile);
    let report = run(&order(&world, left).strike([strike]).meanwhile([write])).told();
    assert_eq!((report.fired, &report.change_failed), (1, &None), "{:?}", report.calls);
    let job = report.job();
    if !world.source.exists() {
        return vec![format!(
            "{scenario:?}: the source is gone, and its copy was written to after it was read"
        )];
    }
    let why = job.error.as_ref().map(|why| why.message.clone()).unwrap_or_default();
    assert!(why.contains(&format!("{}: changed while", path.display())), "{job:?}");
    Vec::new()
}

/// Kills a move at a barrier.
pub fn killed_at(world: &World, barrier: Barrier) {
    let mut order = order(world, &Mutant::none());
    order.kill_at = Some(barrier.word().to_owned());
    killed(&order);
}

/// A directory with the part's name, and files as large as those that were copied.
pub fn replace(path: &Path) {
    let aside = path.with_file_name("aside");
    fs::rename(path, &aside).unwrap();
    fs::create_dir(path).unwrap();
    for rank in 0..3 {
        file(&path.join(format!("rank-{rank}")), 50_000 + rank, 50 + rank);
    }
}

pub fn part_replaced(left: &Mutant) -> Vec<String> {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    killed_at(&world, Barrier::SetFileSystem);
    let part = part_of(&world);
    replace(&part);
    fs::write(part.join("kept"), "of another program").unwrap();
    // As a part has it: what others may enter is looked at once more.
    fs::set_permissions(&part, fs::Permissions::from_mode(0o700)).unwrap();
    let report = run(&order(&world, left)).told();
    if part.join("kept").exists() {
        assert_eq!(report.job().state, State::Done, "{:?}", report.jobs);
        Vec::new()
    } else {
        vec![format!("what another program made was emptied: {:?}", report.job().error)]
    }
}

pub fn part_replaced_and_cancelled(left: &Mutant) -> Vec<String> {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    killed_at(&world, Barrier::SetFileSystem);
    let part = part_of(&world);
    replace(&part);
    run(&order(&world, left));
    let files = fs::read_dir(&part).map_or(0, |files| files.count());
    if files == 3 { Vec::new() } else { vec!["a directory of another program was removed".to_owned()] }
}

pub fn part_replaced_at_rename(left: &Mutant) -> Vec<String> {
    // The second syncfs is that of the whole set.
    let (world, _) = replaced_at(left, Call::Syncfs, 1);
    if world.destination.exists() { world.check_between() } else { Vec::new() }
}

pub fn replaced_after_rename(left: &Mutant) -> Vec<String> {
    let (world, state) = replaced_at(left, Call::Renameat, 0);
    if state == State::Done && !world.check_between().is_empty() {
        return vec!["done, and another directory has the destination's name".to_owned()];
    }
    Vec::new()
}

pub fn replaced_at(left: &Mutant, call: Call, n: u64) -> (World, State) {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.latest = false;
    let replace = Change::SwapPart { directory: world.slow().into(), content: b"of another program".into() };
    let strike = Strike::nth_of(call, n, Hit::Meanwhile);
    let report = run(&order(&world, left).strike([strike]).meanwhile([replace])).told();
    assert_eq!((report.fired, &report.change_failed), (1, &None));
    let state = report.job().state;
    (world, state)
}

pub fn unclaimed(left: &Mutant) -> Vec<String> {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.latest = false;
    let theirs = world.slow().join("theirs");
    fs::create_dir(&theirs).unwrap();
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let before = inode(&theirs);
    let give = Change::Rename { from: theirs.as_path().into(), to: world.destination.as_path().into() };
    let strike = Strike::nth_of(Call::Renameat, 0, Hit::Meanwhile);
    let report = run(&order(&world, left).strike([strike]).meanwhile([give])).told();
    assert_eq!((report.fired, &report.change_failed), (1, &None));
    if inode(&world.destination) == before {
        Vec::new()
    } else {
        vec!["a directory of another program was replaced".to_owned()]
    }
}

pub fn name_taken(left: &Mutant) -> Vec<String> {
    let world = World::new(Scenario::Small, Verb::Copy);
    let theirs =
        Change::Create { path: world.destination.as_path().into(), content: b"of another program".into() };
    let strike = Strike::nth_of(Call::Linkat, 0, Hit::Meanwhile);
    let mut order = order(&world, left).strike([strike]).meanwhile([theirs]);
    order.lacks_noreplace = true;
    let report = run(&order).told();
    assert_eq!((report.fired, &report.change_failed), (1, &None));
    let names = crate::world::names(world.slow());
    if names.iter().any(|name| stage::names::is_part(name)) {
        Vec::new()
    } else {
        vec!["the copy was removed".to_owned()]
    }
}

pub fn unmounted(left: &Mutant) -> Vec<String> {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    let tier = world.slow().join("tier");
    fs::create_dir(&tier).unwrap();
    let ran = |program: &str, arguments: &[&std::ffi::OsStr]| {
        assert!(std::process::Command::new(program).args(arguments).status().unwrap().success(), "{program}");
    };
    ran("mount", &["-t".as_ref(), "tmpfs".as_ref(), "tmpfs".as_ref(), tier.as_os_str()]);
    world.spec.options.latest = false;
    world.spec.destination = Place::of_path(&tier.join("ckpt-7")).unwrap();
    let mut begun = order(&world, &Mutant::none());
    begun.kill_at = Some(Barrier::Name.word().to_owned());
    killed(&begun);
    assert!(device::unmounted(&tier));
    run(&order(&world, left));
    let under = crate::world::names(&tier);
    if under.is_empty() { Vec::new() } else { vec![format!("under the mount point: {under:?}")] }
}

pub fn renamed_rotten(left: &Mutant) -> Vec<String> {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    killed_at(&world, Barrier::Name);
    flip(&world.destination.join("rank-1"));
    failed(&order(&world, left))
}

pub fn changed_before_resume(left: &Mutant, large: bool) -> Vec<String> {
    let scenario = if large { Scenario::Chunked } else { Scenario::Checkpoint };
    let mut world = World::new(scenario, Verb::Copy);
    killed_at(&world, if large { Barrier::LargeFile } else { Barrier::SetFileSystem });
    flip(&if large { world.source.clone() } else { world.source.join("rank-1") });
    world.before = crate::tree::snapshot(&world.source).unwrap().unwrap();
    run(&order(&world, left));
    world.check_end()
}

pub fn changed_after_copy(left: &Mutant) -> Vec<String> {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    // The second syncfs is that of the whole set, whose files have been read back.
    let write = Change::Write {
        path: PathText(world.source.join("rank-1")),
        offset: 0,
        content: vec![0xee; 4096].into(),
        keep_times: true,
    };
    let strike = Strike::nth_of(Call::Syncfs, 1, Hit::Meanwhile);
    let report = run(&order(&world, left).strike([strike]).meanwhile([write])).told();
    assert_eq!(report.fired, 1);
    world.before = crate::tree::snapshot(&world.source).unwrap().unwrap();
    world.check_end()
}

pub fn rotten(left: &Mutant, scenario: Scenario, name: &str, call: Call, n: u64) -> Vec<String> {
    let world = World::new(scenario, Verb::Copy);
    let rot = Change::Rot { below: world.slow().into(), name: name.to_owned() };
    let report =
        run(&order(&world, left).strike([Strike::nth_of(call, n, Hit::Meanwhile)]).meanwhile([rot])).told();
    assert_eq!((report.fired, &report.change_failed), (1, &None), "{:?}", report.calls);
    if report.job().state == State::Failed { world.check_between() } else { world.check_end() }
}

pub fn rotten_source(left: &Mutant) -> Vec<String> {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.latest = false;
    assert_eq!(run(&order(&world, &Mutant::none())).told().job().state, State::Done);
    flip(&world.destination.join("rank-1"));
    let mut back = world.spec.clone();
    back.source = world.spec.destination.clone();
    back.destination = Place::of_path(&world.fast().join("back")).unwrap();
    failed(&left.apply(Order::to(&world.fast().join("other-state"), &back)))
}

pub fn copy_gone(left: &Mutant) -> Vec<String> {
    source_kept(left, |world| fs::rename(&world.destination, world.slow().join("aside")).unwrap())
}

pub fn copy_rotten(left: &Mutant) -> Vec<String> {
    source_kept(left, |world| flip(&world.destination.join("rank-1")))
}

/// Of a move that is killed before it removes its source, and goes on after something has happened to its copy.
fn source_kept(left: &Mutant, happens: fn(&World)) -> Vec<String> {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    // Only the source's files are removed by name.
    killed(&order(&world, &Mutant::none()).strike([Strike::nth_of(Call::Unlinkat, 0, Hit::Kill)]));
    happens(&world);
    run(&order(&world, left));
    let kept = crate::world::names(&world.source).len();
    if kept == 3 { Vec::new() } else { vec!["the source was removed without its copy".to_owned()] }
}

pub fn changed_after_rename(left: &Mutant) -> Vec<String> {
    let world = World::new(Scenario::Small, Verb::Move);
    let bytes = vec![0xee; 4096];
    let write = Change::Write {
        path: PathText(world.source.clone()),
        offset: 0,
        content: bytes.into(),
        keep_times: true,
    };
    let strike = Strike::nth_of(Call::Renameat, 0, Hit::Meanwhile);
    run(&order(&world, left).strike([strike]).meanwhile([write]));
    let kept = fs::read(&world.source).is_ok_and(|bytes| bytes[..4096] == [0xee; 4096]);
    if kept { Vec::new() } else { vec!["what was written to the source is lost".to_owned()] }
}

pub fn semaphore_replaced(left: &Mutant) -> Vec<String> {
    let mut world = World::new(Scenario::Small, Verb::Copy);
    world.spec.options.latest = false;
    with_semaphore(&mut world);
    let order = order(&world, left);
    let (path, made) = (world.slow().join("semaphores/ckpt-7.done"), world.slow().join("semaphores/made"));
    let changes = [
        Change::Create { path: PathText(made.clone()), content: b"another\n".into() },
        Change::Rename { from: PathText(made), to: PathText(path.clone()) },
    ];
    let strike = Strike::nth_of(Call::Renameat, 0, Hit::Meanwhile);
    let report = run(&order.strike([strike]).meanwhile(changes)).told();
    assert_eq!((report.fired, &report.change_failed), (1, &None));
    if path.exists() {
        Vec::new()
    } else {
        vec!["another semaphore than the one that was read is gone".to_owned()]
    }
}

pub fn evicted_changed(left: &Mutant) -> Vec<String> {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.keep_fast = Some(0);
    world.spec.options.latest = false;
    // The first rename gives the copy its name, the second takes the fast copy's.
    let change = Change::Create { path: PathText(world.source.join("another")), content: b"new".into() };
    let strike = Strike::nth_of(Call::Renameat, 1, Hit::Meanwhile);
    let report = run(&order(&world, left).strike([strike]).meanwhile([change])).told();
    assert_eq!((report.fired, &report.change_failed), (1, &None));
    if world.source.join("another").exists() { Vec::new() } else { vec!["a new file was evicted".to_owned()] }
}

/// A mover dies right after a fast copy has lost its name, and another program puts a directory in its place.
pub fn aside_replaced(left: &Mutant) -> Vec<String> {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.keep_fast = Some(0);
    world.spec.options.latest = false;
    killed(&order(&world, &Mutant::none()).strike([Strike::nth_of(Call::Renameat, 1, Hit::KillAfter)]));
    let aside = part_in(world.fast());
    fs::rename(&aside, world.fast().join("aside")).unwrap();
    fs::create_dir(&aside).unwrap();
    fs::write(aside.join("theirs"), "of another program").unwrap();
    run(&order(&world, left));
    if world.source.join("theirs").exists() {
        vec!["another directory has the set's name".to_owned()]
    } else {
        Vec::new()
    }
}

/// A program that has a source file in memory mapped already stores to it right before the copy gets its name.
pub fn stored_through_a_mapping(left: &Mutant, verb: Verb) -> Vec<String> {
    const PROGRAM: &str = "\
import mmap, os, sys, time
path, ready, go, done = sys.argv[1:]
with open(path, 'r+b') as file:
    mapped = mmap.mmap(file.fileno(), 0)
mapped[5] = mapped[5]
open(ready, 'w').close()
while not os.path.exists(go):
    time.sleep(0.001)
mapped[5] ^= 4
open(done, 'w').close()
";
    let mut world = World::new(Scenario::Checkpoint, verb);
    world.spec.options.latest = false;
    world.spec.options.keep_fast = (verb == Verb::Copy).then_some(0);
    let path = world.source.join("rank-1");
    let [ready, go, done] = ["ready", "go", "done"].map(|name| world.fast().join(name));
    let mut program = std::process::Command::new("python3");
    let mut program = program.args(["-c", PROGRAM]).args([&path, &ready, &go, &done]).spawn().unwrap();
    Change::Await { path: PathText(ready) }.make().expect("python3 maps the file");
    let stored = fs::read(&path).unwrap();
    let changes = [
        Change::Create { path: PathText(go), content: Vec::new().into() },
        Change::Await { path: PathText(done) },
    ];
    let strike = Strike::nth_of(Call::Renameat, 0, Hit::Meanwhile);
    let report = run(&order(&world, left).strike([strike]).meanwhile(changes)).told();
    program.wait().unwrap();
    assert_eq!((report.fired, &report.change_failed), (1, &None));
    match fs::read(&path) {
        Ok(found) if found != stored => Vec::new(),
        Ok(_) => vec!["nothing was stored".to_owned()],
        Err(_) => vec!["what was stored is lost".to_owned()],
    }
}
