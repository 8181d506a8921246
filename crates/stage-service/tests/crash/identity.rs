//! One file under two names that device and inode do not tell apart, and mounts where one directory tree is expected.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stage::fault::Call;
use stage::names::PathText;
use stage::{ErrorClass, Level, Place, State, Verb};

use crate::child::{Change, Hit, Order, Report, Strike, run};
use crate::tree::{differences, snapshot};
use crate::world::{Scenario, World, copy};

/// What is mounted, until this goes.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Mounts by mount(8) with these arguments and the mount point; none where that is not possible.
    pub fn new(arguments: &[&OsStr], point: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP a mount in the way of a move: it takes root to mount");
            return None;
        }
        let output = Command::new("mount").args(arguments).arg(point).output().unwrap();
        if !output.status.success() {
            println!("SKIP a mount in the way of a move: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(Self(point.to_owned()))
    }

    /// What is at `from` has the name `point` as well.
    pub fn bind(from: &Path, point: &Path) -> Option<Self> {
        Self::new(&["--bind".as_ref(), from.as_os_str()], point)
    }

    /// A file system of its own.
    pub fn memory(point: &Path) -> Option<Self> {
        Self::new(&["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref()], point)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// The directory that the source is in, as the upper one of an overlay.
pub struct Overlay {
    pub merged: PathBuf,
    _mounted: Mounted,
    _directory: tempfile::TempDir,
}

impl Overlay {
    pub fn of(layer: &Path, is_upper: bool) -> Option<Self> {
        Self::with(layer, is_upper, "")
    }

    /// With more options, each after a comma.
    fn with(layer: &Path, is_upper: bool, more: &str) -> Option<Self> {
        let beside = layer.parent().unwrap();
        let directory = tempfile::tempdir_in(beside).unwrap();
        let made = ["merged", "other", "work"].map(|name| {
            let path = directory.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        });
        let [merged, other, work] = &made;
        let (lower, upper) = if is_upper { (other.as_path(), layer) } else { (layer, other.as_path()) };
        let [lower, upper, work] = [lower, upper, work].map(Path::display);
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}{more}");
        let arguments = ["-t", "overlay", "-o", &options, "none"].map(OsStr::new);
        let mounted = Mounted::new(&arguments, merged)?;
        let merged = merged.clone();
        Some(Self { merged, _mounted: mounted, _directory: directory })
    }
}

fn refused(world: &World, report: &Report, word: &str) {
    let why = match (&report.refused, &report.jobs[..]) {
        (Some(why), _) => why.clone(),
        (None, [job]) if job.state == State::Failed => job.error.clone().unwrap(),
        (None, jobs) => panic!("it was not refused: {jobs:?}"),
    };
    assert_eq!(why.class, ErrorClass::Refused, "{why:?}");
    assert!(why.message.contains(word), "{why:?}");
    let source = snapshot(&world.source).unwrap().expect("the source is there");
    world.must("refused", differences(&world.before, &source));
}

#[test]
fn a_source_that_is_seen_through_an_overlay_is_not_its_own_copy() {
    for (scenario, is_upper) in
        [(Scenario::Checkpoint, true), (Scenario::Checkpoint, false), (Scenario::Small, true)]
    {
        let mut world = World::new(scenario, Verb::Move);
        let Some(overlay) = Overlay::of(world.fast(), is_upper) else { return };
        world.spec.options.latest = false;
        world.spec.destination = Place::of_path(&overlay.merged.join("ckpt-7")).unwrap();
        refused(&world, &run(&Order::to(&world.state, &world.spec)).told(), "may be one");
    }
}

/// A set with a manifest is evicted for itself, as it has another path in the directory that `show` returns with. None
/// where that cannot be.
fn evicted_for_itself<T>(
    change: impl FnOnce(Order) -> Order,
    show: impl FnOnce(&World) -> Option<(PathBuf, T)>,
) -> Option<Vec<String>> {
    let mut world = World::new(Scenario::Checkpoint, Verb::Move);
    world.spec.options.latest = false;
    assert_eq!(run(&Order::to(&world.state, &world.spec)).told().job().state, State::Done);
    let (slow, shown) = show(&world)?;
    let names = || [world.slow(), &world.destination].map(crate::world::names);
    let before = names();
    let mut order = Order::go_on(&world.fast().join("other-state"));
    order.evict = Some((world.destination.clone(), slow));
    let report = run(&change(order)).told();
    drop(shown);
    if !world.destination.join("rank-0").exists() {
        return Some(vec!["the only copy was evicted".to_owned()]);
    }
    assert_eq!(names(), before, "something of the proof is left");
    let refused = report.refused.map(|why| why.message).unwrap_or_default();
    let is_refused = refused.contains("both may be one");
    Some(if is_refused { Vec::new() } else { vec![format!("not refused: {refused:?}")] })
}

/// The same by an overlay.
pub fn evicted_through_overlay(change: impl FnOnce(Order) -> Order, is_upper: bool) -> Option<Vec<String>> {
    evicted_for_itself(change, |world| {
        let overlay = Overlay::of(world.slow(), is_upper)?;
        Some((overlay.merged.clone(), overlay))
    })
}

#[test]
fn a_fast_copy_is_not_evicted_for_itself_as_an_overlay_shows_it() {
    for is_upper in [true, false] {
        let Some(wrong) = evicted_through_overlay(|order| order, is_upper) else { return };
        assert_eq!(wrong, Vec::<String>::new(), "is_upper: {is_upper}");
    }
}

#[test]
fn a_fast_copy_is_not_evicted_for_itself_in_a_directory_that_an_overlay_has_redirected() {
    // What is beside the set in its own directory is not beside it where it was moved to.
    let wrong = evicted_for_itself(
        |order| order,
        |world| {
            let overlay = Overlay::with(world.slow(), false, ",redirect_dir=on")?;
            let slow = overlay.merged.join("moved");
            fs::create_dir(&slow).unwrap();
            fs::rename(overlay.merged.join("ckpt-7"), slow.join("ckpt-7")).unwrap();
            Some((slow, overlay))
        },
    );
    assert_eq!(wrong.unwrap_or_default(), Vec::<String>::new());
}

#[test]
fn a_fast_copy_is_not_evicted_for_itself_by_a_bind_mount_or_below_a_link() {
    let bound = evicted_for_itself(
        |order| order,
        |world| {
            let point = world.fast().join("bound");
            fs::create_dir(&point).unwrap();
            Some((point.clone(), Mounted::bind(world.slow(), &point)?))
        },
    );
    assert_eq!(bound.unwrap_or_default(), Vec::<String>::new());
    let linked = evicted_for_itself(
        |order| order,
        |world| {
            let above = world.fast().join("above");
            std::os::unix::fs::symlink(world.slow().parent().unwrap(), &above).unwrap();
            Some((above.join(world.slow().file_name().unwrap()), ()))
        },
    );
    assert_eq!(linked.unwrap_or_default(), Vec::<String>::new());
}

#[test]
fn a_copy_that_is_another_thing_is_adopted_and_nothing_of_the_proof_is_left() {
    for scenario in [Scenario::Checkpoint, Scenario::Small] {
        let world = World::new(scenario, Verb::Move);
        let copied = Command::new("cp").arg("-a").args([&world.source, &world.destination]).status().unwrap();
        assert!(copied.success());
        // The proof is interrupted while its file is there.
        let kill = Strike::nth_of(Call::Unlinkat, 0, Hit::Kill);
        run(&Order::to(&world.state, &world.spec).strike([kill]));
        let job = run(&Order::go_on(&world.state)).told().job().clone();
        assert_eq!((job.state, &job.error), (State::Done, &None), "{job:?}");
        let stayed = job.notes.iter().find(|note| note.contains("stayed"));
        assert_eq!((world.source.exists(), stayed), (false, None), "{job:?}");
        let left: Vec<_> = crate::world::names(world.fast())
            .into_iter()
            .filter(|name| name.to_string_lossy().ends_with(".part"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn what_is_mounted_in_a_source_is_not_emptied_by_its_move() {
    for is_file in [false, true] {
        let world = World::new(Scenario::Checkpoint, Verb::Move);
        let other = world.fast().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("kept"), b"of another program").unwrap();
        let (from, point) = if is_file {
            (other.join("kept"), world.source.join("rank-1"))
        } else {
            (other.clone(), world.source.join("in"))
        };
        if !is_file {
            fs::create_dir(&point).unwrap();
        }
        let Some(mounted) = Mounted::bind(&from, &point) else { return };
        let report = run(&Order::to(&world.state, &world.spec)).told();
        drop(mounted);
        assert!(other.join("kept").exists(), "{:?}", report.jobs);
        if !is_file {
            fs::remove_dir(&point).unwrap();
        }
        let job = report.job();
        assert_eq!(job.error.as_ref().map(|why| why.class), Some(ErrorClass::Refused), "{job:?}");
        assert!(!world.destination.exists(), "{job:?}");
        assert!(["rank-0", "rank-1", "rank-2"].iter().all(|rank| world.source.join(rank).exists()));
    }
}

#[test]
fn a_destination_in_which_something_is_mounted_is_not_adopted() {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    let inner = world.source.join("sub");
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("late"), b"written late").unwrap();
    let copied = Command::new("cp").arg("-a").args([&world.source, &world.destination]).status().unwrap();
    assert!(copied.success());
    let point = world.destination.join("sub");
    let Some(_mounted) = Mounted::memory(&point) else { return };
    fs::write(point.join("late"), b"written late").unwrap();
    let report = run(&Order::to(&world.state, &world.spec)).told();
    let why = report.job().error.clone().expect("it is refused");
    assert_eq!(why.class, ErrorClass::Refused, "{why:?}");
    assert!(why.message.contains("sub: something is mounted there"), "{why:?}");
    assert!(inner.join("late").exists());
}

#[test]
fn a_source_in_which_something_is_mounted_is_not_called_local() {
    let disk = crate::world::disk();
    let level = |inner: bool| {
        let mut world = World::at(Scenario::Checkpoint, Verb::Copy, &disk, &disk);
        world.spec.options.latest = false;
        let point = world.source.join("sub");
        fs::create_dir(&point).unwrap();
        let mounted = if inner { Some(Mounted::memory(&point)?) } else { None };
        let refuse = Strike::nth_of(Call::Renameat, 0, Hit::Errno(13));
        let report = run(&Order::to(&world.state, &world.spec).strike([refuse])).told();
        drop(mounted);
        Some(report.job().level)
    };
    if level(false) != Some(Level::Local) {
        println!("SKIP a source that is local: one sync does not vouch for {disk:?}");
        return;
    }
    if let Some(level) = level(true) {
        assert_eq!(level, Level::Staged);
    }
}

#[test]
fn a_copy_whose_directory_was_renamed_meanwhile_is_not_called_durable() {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.latest = false;
    let (place, moved) = (world.slow().join("k"), world.slow().join("k2.old"));
    fs::create_dir(&place).unwrap();
    world.destination = place.join("ckpt-7");
    world.spec.destination = Place::of_path(&world.destination).unwrap();
    let changes = [
        Change::Rename { from: PathText(place.clone()), to: PathText(moved.clone()) },
        Change::Plant {
            made: PathText(world.slow().join("new")),
            to: PathText(place),
            content: b"new".into(),
        },
    ];
    let strike = Strike::nth_of(Call::Renameat, 0, Hit::Meanwhile);
    let report = run(&Order::to(&world.state, &world.spec).strike([strike]).meanwhile(changes)).told();
    assert_eq!((report.fired, &report.change_failed), (1, &None));
    let job = report.job();
    assert_eq!((job.state, job.level < Level::Durable), (State::Failed, true), "{job:?}");
    let mut again = Order::go_on(&world.state);
    again.retry = true;
    let job = run(&again).told().job().clone();
    assert_eq!((job.state, &job.error), (State::Done, &None), "{job:?}");
    let copy = snapshot(&world.destination).unwrap().expect("the copy is at its path");
    assert!(world.complete(&copy).is_empty());
}

#[test]
fn an_adopted_copy_whose_directory_is_renamed_at_any_call_after_the_comparison_is_not_lost_with_its_source() {
    for scenario in [Scenario::Checkpoint, Scenario::Small] {
        let ready = || {
            let mut world = World::new(scenario, Verb::Move);
            world.spec.options.latest = false;
            let place = world.slow().join("k");
            fs::create_dir(&place).unwrap();
            world.destination = place.join("ckpt-7");
            world.spec.destination = Place::of_path(&world.destination).unwrap();
            copy(&world.source, &world.destination);
            (world, place)
        };
        let (world, _) = ready();
        let report = run(&Order::to(&world.state, &world.spec)).told();
        assert_eq!(report.job().state, State::Done, "{:?}", report.jobs);
        // The proof's file is the first that is removed; what is compared is recorded next.
        let compared = report.calls.iter().position(|call| call == "Unlinkat").expect("there is a proof");
        let name = format!("renamed {scenario:?}");
        for n in crate::kills::chosen(&name, &report.calls[compared..], 24) {
            let (world, place) = ready();
            let moved = world.slow().join("k2");
            let rename = Change::Rename { from: PathText(place.clone()), to: PathText(moved.clone()) };
            let strike = Strike::nth(n + compared as u64, Hit::Meanwhile);
            let order = Order::to(&world.state, &world.spec).strike([strike]).meanwhile([rename]);
            let report = run(&order).told();
            let done = format!("{scenario:?}: renamed before call {n} after the comparison");
            assert_eq!(report.change_failed, None, "{done}");
            let copy = snapshot(&moved.join("ckpt-7")).unwrap();
            let copy = copy.or(snapshot(&world.destination).unwrap()).expect("the copy is somewhere");
            for (path, entry) in &world.before {
                let is_there = snapshot(&world.source).unwrap().is_some_and(|left| left.contains_key(path));
                assert!(is_there || copy.get(path) == Some(entry), "{done}: {path:?} is lost");
            }
            let job = report.job();
            assert!(world.source.exists() || job.level.is_committed(), "{done}: {job:?}");
        }
    }
}
