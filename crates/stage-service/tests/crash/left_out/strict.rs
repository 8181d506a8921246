//! The strictest file system that POSIX allows: a change is durable only when its own file or directory was synced.
//!
//! Journalled file systems make more durable than they were asked to, which hides a sync that is missing or late. So
//! `stage::fault` keeps a list of all files and directories that were changed and not synced since, and notes what is
//! on it whenever a job comes to a step that rests on syncs. [`early`] says what may not be on it then.

use std::fs;
use std::path::{Path, PathBuf};

use stage::fault::{Barrier, Call, Moment};
use stage::names::PathText;
use stage::semaphore::Semaphore;
use stage::{Place, State, Verb};

use super::{Mutant, order};
use crate::child::{Change, Ended, Hit, Order, Report, Step, Strike, run};
use crate::device::{Drive, Host};
use crate::power::copied_by_another;
use crate::world::{Scenario, World, file};

/// A world with an order to a mover.
pub struct Ready {
    pub world: World,
    order: Order,
    _drive: Option<Drive>,
}

impl Ready {
    fn of(world: World) -> Self {
        let mut order = order(&world, &Mutant::none());
        order.strict = true;
        order.trust = true;
        Self { world, order, _drive: None }
    }

    fn small() -> Self {
        Self::of(World::new(Scenario::Small, Verb::Move))
    }

    fn checkpoint() -> Self {
        Self::of(World::new(Scenario::Checkpoint, Verb::Move))
    }

    fn part() -> Self {
        Self::of(World::new(Scenario::Part, Verb::Copy))
    }

    /// Another rank has made the directory of the set, and has not synced its name yet.
    pub fn part_of_a_new_set() -> Self {
        let ready = Self::part().file_by_file();
        let (source, slow) = (ready.world.source.clone(), ready.world.slow().to_owned());
        let mut ready = ready.dirty(source);
        ready.order.dirty.push(slow.as_path().into());
        ready
    }

    fn tree() -> Self {
        Self::of(World::new(Scenario::Tree, Verb::Move))
    }

    /// No file system's syncfs is trusted.
    fn file_by_file(mut self) -> Self {
        (self.order.trust, self.order.distrust) = (false, true);
        self
    }

    /// The world's job has changed.
    fn asked(mut self, change: impl FnOnce(&mut World)) -> Self {
        change(&mut self.world);
        self.order.spec = Some(self.world.spec.clone());
        self
    }

    /// Others have changed this, and all below it, and not synced it.
    fn dirty(mut self, path: impl AsRef<Path>) -> Self {
        below(path.as_ref(), &mut self.order.dirty);
        self
    }

    /// What was changed and not synced when it had to be, on the way of the order to its end.
    pub fn carried_out(mut self, left: &Mutant) -> Vec<String> {
        if self.order.dirty.is_empty() {
            below(&self.world.source, &mut self.order.dirty);
        }
        let report = run(&left.apply(self.order)).told();
        let done = report.jobs.iter().all(|job| job.state == State::Done && job.error.is_none());
        assert!(done && report.refused.is_none(), "{:?} {:?}", report.jobs, report.refused);
        early(&self.world, &report)
    }
}

fn below(path: &Path, found: &mut Vec<PathText>) {
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    if metadata.is_dir() || metadata.is_file() {
        found.push(path.into());
    }
    if metadata.is_dir() {
        for one in fs::read_dir(path).into_iter().flatten().flatten() {
            below(&one.path(), found);
        }
    }
}

/// What was not durable when the job came to a step that rests on it, a line each.
pub fn early(world: &World, report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for step in &report.steps {
        for PathText(path) in &step.unsynced {
            if rests_on(world, step, path) {
                let line = format!("before {}: {} was not synced", step.before, shown(world, path));
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
    }
    lines
}

/// Does a step rest on this file or directory being durable?
fn rests_on(world: &World, step: &Step, path: &Path) -> bool {
    let about = |test: &dyn Fn(&Path) -> bool| step.about.iter().any(|PathText(about)| test(about));
    let copy = copy_of(world);
    let copy_and_name = path.starts_with(&copy) || copy.starts_with(path);
    let is = |moment: Moment| step.before == moment.word();
    if is(Moment::Accepted) {
        path == world.state || Some(path) == world.state.parent()
    } else if is(Moment::Local) {
        path.starts_with(&world.source)
    } else if is(Moment::Sought) {
        about(&|source| path == source)
    } else if is(Moment::Compared) || is(Moment::Committed) {
        copy_and_name
    } else if is(Moment::Recorded) {
        in_part(path).is_some_and(|within| about(&|about| within == about))
    } else if is(Moment::Forgotten) {
        path == world.slow()
    } else if is(Moment::Renamed) {
        // A fast copy that loses its name, or gets it back, is its application's.
        // The record of a set rests on the names of its parts.
        about(&|part| path.starts_with(part) || is_record(part) && part.parent() == Some(path))
            && !path.starts_with(world.fast())
    } else if is(Moment::Removed) {
        // Of the source; of a set that is evicted, which rests on its slow copy and on having lost its name; of an older
        // set, which rests on the newer ones. What is under way may be taken apart at any time.
        let within = |about: &Path| in_part(about).is_some_and(|within| !within.as_os_str().is_empty());
        let evicted = about(&|about| within(about) && about.starts_with(world.fast()));
        let older = about(&|about| about.to_string_lossy().contains("/.ckpt-6."));
        about(&|about| about.starts_with(&world.source) && in_part(about).is_none()) && copy_and_name
            || evicted && (copy_and_name || path == world.fast())
            || older && path.starts_with(world.slow().join("ckpt-8"))
    } else {
        // What has a part's name is taken apart, now or after a crash. A copy's source stays its application's.
        in_part(path).is_none() && (world.spec.verb == Verb::Move || !path.starts_with(&world.source))
    }
}

/// Is it the record of a set of parts, on its way?
fn is_record(part: &Path) -> bool {
    part.file_name().is_some_and(|name| name.to_string_lossy().starts_with("..flashwright-manifest."))
}

/// The destination's path, also where it is a set of an object store in a directory.
fn copy_of(world: &World) -> PathBuf {
    if world.spec.destination.path().is_some() {
        world.spec.destination.path().unwrap().to_owned()
    } else {
        world.slow().join("store/ckpt-7")
    }
}

/// The path within the part, of what is in one.
fn in_part(path: &Path) -> Option<PathBuf> {
    let mut components = path.components();
    components.find(|one| stage::names::is_part(one.as_os_str()))?;
    Some(components.as_path().to_owned())
}

fn shown(world: &World, path: &Path) -> String {
    let part = |name: &std::ffi::OsStr| {
        if stage::names::is_part(name) { "part".into() } else { name.to_string_lossy().into_owned() }
    };
    for (word, root) in [("fast", world.fast()), ("slow", world.slow())] {
        if let Ok(within) = path.strip_prefix(root) {
            return std::iter::once(word.to_owned())
                .chain(within.iter().map(part))
                .collect::<Vec<_>>()
                .join("/");
        }
    }
    path.display().to_string()
}

/// A world in words, what makes it, and the path that is not durable there.
type Missed = (&'static str, fn() -> Ready, &'static str);

/// The world in which a sync is missed, in words, and the path that is not durable without it. None for what the list
/// cannot see.
pub fn world_of(barrier: Barrier) -> Option<Missed> {
    Some(match barrier {
        // SQLite makes its own calls.
        Barrier::JournalCommit => return None,
        Barrier::JournalName => ("a small file moves", Ready::small, "fast/state"),
        Barrier::SourceFileSystem => ("a small file moves", Ready::small, "fast/ckpt-7"),
        Barrier::SourceFile => {
            ("a small file moves, file by file", || Ready::small().file_by_file(), "fast/ckpt-7")
        }
        Barrier::SourceHoles => {
            ("a tree moves, file by file", || Ready::tree().file_by_file(), "fast/ckpt-7/large")
        }
        Barrier::NewParent => ("to a directory that is made", to_new_parent, "slow/new"),
        Barrier::ExistingFileSystem | Barrier::Adopted => {
            ("an equal destination is adopted", adopting, "slow/ckpt-7/rank-1")
        }
        Barrier::ExistingFile => {
            let name = "an equal destination is adopted, file by file";
            (name, || adopting().file_by_file(), "slow/ckpt-7/rank-1")
        }
        Barrier::ExistingDirectory => {
            let name = "an equal destination is adopted, file by file";
            (name, || adopting().file_by_file(), "slow/ckpt-7")
        }
        Barrier::ExistingName => {
            ("an equal destination is adopted, file by file", || adopting().file_by_file(), "slow")
        }
        Barrier::AdoptedMetadata => {
            ("an equal destination of another mode is adopted", adopting_mode, "slow/ckpt-7/rank-1")
        }
        Barrier::AdoptedObjects => {
            ("an equal set of an object store is adopted", adopting_objects, "slow/store/ckpt-7/rank-1")
        }
        Barrier::PartDiscarded => {
            ("a tree whose part is in doubt moves, file by file", part_in_doubt, "slow")
        }
        Barrier::SmallFile => {
            let name = "a checkpoint moves, file by file";
            (name, || Ready::checkpoint().file_by_file(), "slow/part/rank-1")
        }
        Barrier::SingleFile => ("a small file moves", Ready::small, "slow/part"),
        Barrier::SmallGroup => ("a checkpoint moves", Ready::checkpoint, "slow/part/rank-1"),
        Barrier::LinkedGroup => ("a tree moves", Ready::tree, "slow/part/a"),
        Barrier::ChunkGroup | Barrier::LargeFile => {
            let chunked = || Ready::of(World::new(Scenario::Chunked, Verb::Move));
            ("a file of chunks moves", chunked, "slow/part")
        }
        Barrier::SharedBlocks => ("a file that shares blocks moves", sharing, "slow/part"),
        Barrier::Directory => {
            ("a tree moves, file by file", || Ready::tree().file_by_file(), "slow/part/sub")
        }
        Barrier::Manifest => {
            let name = "a checkpoint moves, file by file";
            (name, || Ready::checkpoint().file_by_file(), "slow/part/.flashwright-manifest")
        }
        Barrier::SetFileSystem => ("a tree moves", Ready::tree, "slow/part/sub"),
        Barrier::Name => ("a small file moves", Ready::small, "slow"),
        Barrier::StoredObjects => ("a set is stored", storing, "slow/store"),
        Barrier::SourceRemoved => ("a tree moves", Ready::tree, "fast"),
        Barrier::SemaphoreRemoved => ("a semaphore goes", semaphore_goes, "slow/semaphores"),
        Barrier::PartNames => ("a set of parts is completed", Ready::part, "slow/step-00000007.run-a"),
        Barrier::SetRecord => ("a set of parts is completed", Ready::part, "slow/step-00000007.run-a/part"),
        Barrier::SetRecordName => ("a set of parts is completed", Ready::part, "slow/step-00000007.run-a"),
        Barrier::Latest => ("`latest` moves", Ready::checkpoint, "slow"),
        Barrier::LatestAgain => ("another program has replaced `latest`", latest_again, "slow"),
        Barrier::SlowCopy => ("a fast copy is evicted", evicting, "slow/ckpt-7/rank-1"),
        Barrier::NewerSet => ("an older set is removed, file by file", removing_older, "slow/ckpt-8/rank-1"),
        Barrier::GivenBack => ("a fast copy that has changed gets its name back", giving_back, "fast"),
        Barrier::Doomed => ("a fast copy goes when it was copied", evicting_after_commit, "fast"),
        Barrier::TakenApart => ("a fast copy goes when it was copied", evicting_after_commit, "fast"),
        Barrier::FetchedChunks => ("a large file is fetched", fetching_large, "slow/part"),
        Barrier::FetchedFile => ("a set is fetched", fetching, "slow/part/rank-1"),
        Barrier::FetchedDirectory => ("a set is fetched", fetching, "slow/part/sub"),
        Barrier::FetchedManifest => ("a set is fetched", fetching, "slow/part/.flashwright-manifest"),
        Barrier::FetchedRoot => ("a set is fetched", fetching, "slow/part"),
        Barrier::FetchedMetadata => (
            "an equal destination of another mode is adopted for a fetch",
            adopting_fetch,
            "slow/ckpt-7/rank-1",
        ),
    })
}

fn to_new_parent() -> Ready {
    Ready::small().asked(|world| {
        world.spec.destination = Place::of_path(&world.slow().join("new/newer/ckpt-7")).unwrap();
        world.spec.options.parents = true;
    })
}

fn adopting() -> Ready {
    let ready = Ready::checkpoint().asked(copied_by_another);
    let (slow, destination) = (ready.world.slow().to_owned(), ready.world.destination.clone());
    let mut ready = ready.dirty(destination);
    ready.order.dirty.push(slow.as_path().into());
    ready
}

fn adopting_mode() -> Ready {
    let mut ready = adopting();
    ready.order.dirty.clear();
    set_mode(&ready.world.destination.join("rank-1"), 0o600);
    ready
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

/// A file that is moved on one file system that can share blocks.
fn sharing() -> Ready {
    let drive = Drive::make(&std::sync::Arc::new(Host::default()), 0, 320 << 20, "xfs");
    let world = World::at(Scenario::Chunked, Verb::Move, &drive.point, &drive.point);
    Ready { _drive: Some(drive), ..Ready::of(world) }
}

pub fn with_semaphore(world: &mut World) {
    let place = world.slow().join("semaphores");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("ckpt-7.done"), "").unwrap();
    world.spec.options.semaphore = Some(Semaphore::at(place.join("ckpt-7.done")).unwrap());
}

fn semaphore_goes() -> Ready {
    Ready::small().asked(with_semaphore)
}

/// A mover has died while it synced a directory of its part, which the next one does not go on with.
fn part_in_doubt() -> Ready {
    let ready = Ready::tree().file_by_file();
    let mut killed = ready.order.clone();
    (killed.strict, killed.kill_at) = (false, Some(Barrier::Directory.word().to_owned()));
    assert!(matches!(run(&killed), Ended::Killed), "the mover was to be killed");
    ready
}

/// After COMMITTED another program gives `latest` its target, and does not sync it.
fn latest_again() -> Ready {
    let mut ready = Ready::checkpoint();
    let mut killed = ready.order.clone();
    killed.strict = false;
    killed.kill_at = Some(Barrier::SourceRemoved.word().to_owned());
    assert!(matches!(run(&killed), Ended::Killed), "the mover was to be killed");
    let latest = ready.world.slow().join("latest");
    fs::remove_file(&latest).unwrap();
    std::os::unix::fs::symlink("ckpt-7", &latest).unwrap();
    ready.order.dirty.push(ready.world.slow().into());
    ready
}

/// Carries out what `ready` is to do, with nothing left out and nothing noted.
fn before(ready: &Ready) {
    let mut order = ready.order.clone();
    order.strict = false;
    let report = run(&order).told();
    assert!(report.jobs.iter().all(|job| job.state == State::Done), "{:?} {:?}", report.jobs, report.refused);
}

fn evicting() -> Ready {
    let mut ready = Ready::of(World::new(Scenario::Checkpoint, Verb::Copy));
    before(&ready);
    (ready.order.state, ready.order.spec) = (ready.world.fast().join("other-state"), None);
    ready.order.evict = Some((ready.world.source.clone(), ready.world.slow().to_owned()));
    let destination = ready.world.destination.clone();
    ready.dirty(destination)
}

fn evicting_after_commit() -> Ready {
    Ready::of(World::new(Scenario::Checkpoint, Verb::Copy))
        .asked(|world| world.spec.options.keep_fast = Some(0))
}

/// The fast copy changes right before it loses its name.
fn giving_back() -> Ready {
    let mut ready = evicting_after_commit().asked(|world| world.spec.options.latest = false);
    let path = PathText(ready.world.source.join("another"));
    ready.order.changes.push(Change::Create { path, content: b"new".into() });
    ready.order.strikes.push(Strike::nth_of(Call::Renameat, 1, Hit::Meanwhile));
    ready
}

/// Three sets of which one is to be kept: an older one, this, and a newer one.
fn removing_older() -> Ready {
    let mut ready = Ready::checkpoint().file_by_file();
    fs::remove_dir_all(ready.world.slow().join("ckpt-6")).unwrap();
    fs::remove_file(ready.world.slow().join("latest")).unwrap();
    for name in ["ckpt-6", "ckpt-8"] {
        let source = ready.world.fast().join(name);
        fs::create_dir(&source).unwrap();
        (0..3).for_each(|rank| file(&source.join(format!("rank-{rank}")), 50_000, 40 + rank));
        ready = ready.asked(|world| {
            world.spec.options.latest = false;
            world.spec.source = Place::of_path(&source).unwrap();
            world.spec.destination = Place::of_path(&world.slow().join(name)).unwrap();
        });
        ready.order.again = true;
        before(&ready);
    }
    let newer = ready.world.slow().join("ckpt-8");
    ready
        .asked(|world| {
            world.spec.source = Place::of_path(&world.source).unwrap();
            world.spec.destination = Place::of_path(&world.destination).unwrap();
            world.spec.options.keep_slow = Some(1);
        })
        .dirty(newer)
}

// Object stores, which are directories beside the destination: a sync of the source's file system does not reach them.

fn store(world: &World) -> Place {
    let _ = fs::create_dir(world.slow().join("store"));
    Place::of_name(format!("file://{}/store/ckpt-7", world.slow().display())).unwrap()
}

/// The world's job fetches what it would have copied, from a store.
pub fn stored_in(mut world: World) -> World {
    world.spec.options.latest = false;
    let mut drain = world.spec.clone();
    drain.destination = store(&world);
    let report = run(&Order::to(&world.fast().join("drained"), &drain)).told();
    assert_eq!(report.job().state, State::Done, "{:?}", report.jobs);
    world.spec.source = drain.destination;
    world
}

/// A set of a store, and the job that fetches it.
pub fn stored() -> World {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    std::os::unix::fs::symlink("rank-0", world.source.join("link")).unwrap();
    fs::create_dir(world.source.join("sub")).unwrap();
    file(&world.source.join("sub/page"), 4096, 6);
    world.before = crate::tree::snapshot(&world.source).unwrap().unwrap();
    stored_in(world)
}

fn fetching() -> Ready {
    Ready::of(stored())
}

fn fetching_large() -> Ready {
    Ready::of(stored_in(World::new(Scenario::Large, Verb::Copy)))
}

fn adopting_fetch() -> Ready {
    let mut ready = Ready::of(stored());
    before(&ready);
    set_mode(&ready.world.destination.join("rank-1"), 0o600);
    ready.order.state = ready.world.fast().join("other-state");
    ready
}

/// A killed attempt has made the store's directory, and not synced it.
fn storing() -> Ready {
    let mut ready = Ready::checkpoint().asked(|world| {
        world.spec.options.latest = false;
        world.spec.destination = store(world);
    });
    ready.order.dirty.push(ready.world.slow().join("store").as_path().into());
    ready
}

fn adopting_objects() -> Ready {
    let ready = Ready::of(stored_in(World::new(Scenario::Checkpoint, Verb::Copy))).asked(|world| {
        world.spec.destination = world.spec.source.clone();
        world.spec.source = Place::of_path(&world.source).unwrap();
    });
    let set = ready.world.slow().join("store/ckpt-7");
    ready.dirty(set)
}
