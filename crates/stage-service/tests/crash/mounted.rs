//! Tiers that are not mounted when a job goes on: what was there is not what is there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stage::fault::Call;
use stage::{ErrorClass, State, Verb};
use stage_service::{Mover, MoverConfig};

use crate::child::{Ended, Hit, Order, Report, Strike, run};
use crate::device;
use crate::world::{Scenario, World, memory, names};

/// A file system of its own, until this goes.
struct MountedTier {
    directory: tempfile::TempDir,
    kind: &'static str,
}

fn ran(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

impl MountedTier {
    /// None where it takes root, or where there are no loop devices.
    fn new(kind: &'static str) -> Option<Self> {
        let tier = Self { directory: tempfile::tempdir().unwrap(), kind };
        fs::create_dir(tier.point()).unwrap();
        let image = tier.directory.path().join("image");
        if kind != "tmpfs" {
            fs::File::create(&image).unwrap().set_len(320 << 20).unwrap();
            ran(&format!("mkfs.{kind}"), &["-q", image.to_str().unwrap()]);
        }
        if rustix::process::geteuid().is_root() && tier.mount() {
            return Some(tier);
        }
        println!("SKIP a {kind} of its own: it takes root, loop devices and mkfs.{kind} to mount one");
        None
    }

    fn point(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    fn mount(&self) -> bool {
        let (image, point) = (self.directory.path().join("image"), self.point());
        let point = point.to_str().unwrap();
        match self.kind {
            "tmpfs" => ran("mount", &["-t", "tmpfs", "-o", "size=64m", "none", point]),
            kind => ran("mount", &["-t", kind, "-o", "loop", image.to_str().unwrap(), point]),
        }
    }

    fn unmount(&self) {
        assert!(device::unmounted(&self.point()), "{:?} is not unmounted", self.point());
    }
}

impl Drop for MountedTier {
    fn drop(&mut self) {
        ran("umount", &[self.point().to_str().unwrap()]);
    }
}

/// A world whose state directory is on neither tier.
fn world(verb: Verb, fast: &Path, slow: &Path) -> (World, tempfile::TempDir) {
    let state = tempfile::tempdir().unwrap();
    let mut world = World::at(Scenario::Checkpoint, verb, fast, slow);
    world.state = state.path().join("state");
    (world, state)
}

fn killed(world: &World, strike: Strike) {
    let ended = run(&Order::to(&world.state, &world.spec).strike([strike]));
    assert!(matches!(ended, Ended::Killed), "{ended:?}");
}

/// Goes on with the job, which is refused and says what was expected and what is there.
fn refused(world: &World, tier: &MountedTier) {
    let report = run(&Order::go_on(&world.state)).told();
    let job = report.job();
    assert_eq!(job.state, State::Failed, "{job:?}");
    let why = job.error.clone().unwrap();
    assert_eq!(why.class, ErrorClass::Refused, "{why:?}");
    assert!(why.message.contains(&format!("was on {} of ", tier.kind)), "{why:?}");
    assert!(why.message.contains(tier.point().to_str().unwrap()), "{why:?}");
    assert!(why.hint.is_some_and(|hint| hint.contains("stage retry")));
    assert_eq!(names(&tier.point()), Vec::<std::ffi::OsString>::new(), "something is under the mount point");
}

fn retried(world: &World) -> Report {
    let mut order = Order::go_on(&world.state);
    order.retry = true;
    run(&order).told()
}

#[test]
fn a_job_whose_destination_is_not_mounted_any_more_is_refused_and_makes_nothing_under_the_mount_point() {
    for kind in ["ext4", "xfs"] {
        let Some(tier) = MountedTier::new(kind) else { continue };
        for call in [Call::Renameat, Call::Mkdirat] {
            let (mut world, _state) = world(Verb::Move, &memory(), &tier.point());
            world.spec.options.parents = true;
            killed(&world, Strike::nth_of(call, 0, Hit::Kill));
            tier.unmount();
            refused(&world, &tier);
            assert!(tier.mount());
            let job = retried(&world).job().clone();
            assert_eq!((job.state, &job.error), (State::Done, &None), "{job:?}");
            world.must(&format!("{kind} is mounted again"), world.check_end());
        }
    }
}

/// Without udev nothing but the device's name tells two of these apart, and that is the same.
#[test]
fn another_file_system_on_the_same_device_is_not_taken_for_the_one_that_was_mounted() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| {
        let image = directory.path().join(name);
        fs::File::create(&image).unwrap().set_len(320 << 20).unwrap();
        ran("mkfs.xfs", &["-q", image.to_str().unwrap()]).then_some(image)
    });
    let point = directory.path().join("mounted");
    fs::create_dir(&point).unwrap();
    let has_loops = rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
    let (Some(first), Some(second), true) = (first, second, has_loops) else {
        println!("SKIP a loop device that is used twice: it takes root, loop devices and mkfs.xfs");
        return;
    };
    let number = device::KeptLoop::claim();
    let device = number.attach(&first);
    let unmounted = || device::unmounted(&point) && ran("losetup", &["--detach", &device]);
    let mounted = || ran("mount", &["-t", "xfs", &device, point.to_str().unwrap()]);
    let report = mounted().then(|| {
        let (mut world, state) = world(Verb::Copy, &memory(), &point);
        world.spec.options.parents = true;
        killed(&world, Strike::nth_of(Call::Renameat, 0, Hit::Kill));
        // Not a mount option or a place differs, and what the destination is in is made anew.
        assert!(unmounted());
        number.attach(&second);
        assert!(mounted());
        fs::create_dir(world.slow()).unwrap();
        let report = run(&Order::go_on(&world.state)).told();
        let made = names(world.slow());
        drop(state);
        (report, made)
    });
    assert!(unmounted());
    let Some((report, made)) = report else {
        println!("SKIP a loop device that is used twice: it takes root to mount it");
        return;
    };
    let job = report.job();
    let why = job.error.clone().unwrap_or_else(|| panic!("it went on: {job:?}"));
    assert_eq!((why.class, made), (ErrorClass::Refused, Vec::new()), "{why:?}");
    assert!(why.message.contains(&format!("was on xfs of {device} at ")), "{why:?}");
}

#[test]
fn a_committed_move_whose_source_is_not_mounted_any_more_is_not_done() {
    let Some(tier) = MountedTier::new("ext4") else { return };
    let (world, _state) = world(Verb::Move, &tier.point(), &crate::world::disk());
    // The first name that goes is one of the source.
    killed(&world, Strike::nth_of(Call::Unlinkat, 0, Hit::Kill));
    assert!(world.destination.join("rank-0").exists() && world.source.join("rank-0").exists());
    tier.unmount();
    refused(&world, &tier);
    assert!(tier.mount());
    let job = retried(&world).job().clone();
    assert_eq!((job.state, &job.error), (State::Done, &None), "{job:?}");
    world.must("mounted again", world.check_end());
}

#[test]
fn a_job_that_is_cancelled_while_its_destination_is_not_mounted_leaves_what_is_there() {
    let Some(tier) = MountedTier::new("tmpfs") else { return };
    let (mut world, _state) = world(Verb::Copy, &memory(), &tier.point());
    world.spec.options.parents = true;
    killed(&world, Strike::nth_of(Call::Renameat, 0, Hit::Kill));
    tier.unmount();
    refused(&world, &tier);
    let mover = Mover::open(&MoverConfig::new(&world.state)).unwrap();
    let job = mover.cancel(1).unwrap();
    assert_eq!(job.state, State::Cancelled);
    assert!(job.notes.iter().any(|note| note.contains("was left")), "{job:?}");
}

#[test]
fn directories_above_a_destination_are_made_only_if_that_is_asked_for() {
    let mut world = World::new(Scenario::Small, Verb::Copy);
    let deep = world.slow().join("not/there/ckpt-7");
    world.spec.destination = stage::Place::of_path(&deep).unwrap();
    let report = run(&Order::to(&world.state, &world.spec)).told();
    let why = report.refused.expect("it is no job");
    assert_eq!(why.class, ErrorClass::Invalid, "{why:?}");
    assert!(why.hint.is_some_and(|hint| hint.contains("--parents")));
    assert!(!world.slow().join("not").exists());
    world.spec.options.parents = true;
    let job = run(&Order::to(&world.state, &world.spec)).told().job().clone();
    assert_eq!((job.state, &job.error), (State::Done, &None), "{job:?}");
    assert!(deep.exists());
}
