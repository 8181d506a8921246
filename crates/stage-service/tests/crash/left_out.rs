//! Each sync and each check of identity earns its place: left out alone, something is lost.
//!
//! A case is carried out twice, with nothing left out, which must be right, and with its barrier or check left out, which
//! must not. Barriers are shown in one of two ways. *Power cuts* are those of [`crate::power`], on drives that keep only
//! what was flushed. Journalled file systems make more durable than they were asked to; what they hide is shown on the
//! *strictest file system that POSIX allows*: `stage::fault` keeps a list of all files and directories that were changed
//! and not synced since, of which none may be left when the job is done.
//!
//! `make left-out` carries all cases out and prints the table that docs/faults.md holds.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use stage::fault::{Barrier, Call, Check};
use stage::names::PathText;
use stage::{Place, State, Verb};

use crate::child::{Change, Ended, Hit, Order, Strike, run};
use crate::device::lacking;
use crate::power::{FAST, SLOW, copied_by_another, cut, live_with};
use crate::sample;
use crate::world::{Scenario, World, file};

/// What does not hold, with the barrier or check of this word left out, or nothing.
type Case = (&'static str, fn(Option<&str>) -> Vec<String>);

fn of_barrier(barrier: Barrier) -> Case {
    match barrier {
        Barrier::JournalName => ("strict: a small file moves", |w| strict(w, Scenario::Small, usual)),
        Barrier::SourceFileSystem => ("power: a source is local and the mover dies", |w| local(w, false)),
        Barrier::SourceFile => ("power: a source file is local and the mover dies", |w| local(w, true)),
        Barrier::NewParent => {
            ("strict: to a directory that is made", |w| strict(w, Scenario::Small, to_new_parent))
        }
        Barrier::ExistingFileSystem => ("power: an equal destination is adopted", |w| adopted(w, false)),
        Barrier::Existing => ("power: an equal destination is adopted, file by file", |w| adopted(w, true)),
        Barrier::SmallFile => {
            ("strict: a checkpoint moves, file by file", |w| strict(w, Scenario::Checkpoint, distrusted))
        }
        Barrier::SingleFile => ("strict: a small file moves", |w| strict(w, Scenario::Small, usual)),
        Barrier::SmallGroup => ("power: a checkpoint goes on after the mover died", small_group),
        Barrier::ChunkGroup => ("power: a large file goes on after the mover died", chunk_group),
        Barrier::SharedBlocks => {
            ("power: a large file that shares blocks goes on after the mover died", shared_blocks)
        }
        Barrier::LargeFile => ("strict: a file of chunks moves", |w| strict(w, Scenario::Chunked, usual)),
        Barrier::Directory => {
            ("strict: a tree moves, file by file", |w| strict(w, Scenario::Tree, distrusted))
        }
        Barrier::Manifest => {
            ("strict: a checkpoint moves, file by file", |w| strict(w, Scenario::Checkpoint, distrusted))
        }
        Barrier::SetFileSystem => ("strict: a tree moves", |w| strict(w, Scenario::Tree, usual)),
        Barrier::Name => ("power: a small file moves", |w| moved(w, Scenario::Small, "xfs", false)),
        Barrier::SourceRemoved => ("strict: a tree moves", |w| strict(w, Scenario::Tree, usual)),
        Barrier::SemaphoreRemoved => {
            ("strict: a semaphore goes", |w| strict(w, Scenario::Small, with_semaphore))
        }
        Barrier::Latest => ("strict: `latest` moves", |w| strict(w, Scenario::Checkpoint, usual)),
        Barrier::Doomed => ("strict: a fast copy is evicted", |w| strict(w, Scenario::Checkpoint, evicting)),
        Barrier::FetchedChunks => ("power: a fetch goes on after the mover died", fetched_chunks),
        Barrier::FetchedFile | Barrier::FetchedDirectory | Barrier::FetchedManifest => {
            ("strict: a set is fetched", fetched)
        }
    }
}

fn of_check(check: Check) -> Case {
    match check {
        Check::SourceIsNotDestination => ("a move to the source, by a symbolic link", onto_itself),
        Check::DestinationOutsideSource => ("a copy into its own source", into_itself),
        Check::AdoptedNames => ("a destination with one name more", |w| taken(w, true)),
        Check::AdoptedBytes => ("a destination with other bytes", |w| taken(w, false)),
        Check::Mount => ("the slow tier is not mounted when the mover goes on", unmounted),
        Check::PartOnResume => ("another directory has the part's name", part_replaced),
        Check::DiscardedPart => {
            ("another directory has the name of a part that is given up", part_replaced_and_cancelled)
        }
        Check::PartBeforeRename => {
            ("another directory has the part's name before the rename", part_replaced_at_rename)
        }
        Check::PartAfterRename => {
            ("another directory has the destination's name after the rename", replaced_after_rename)
        }
        Check::Claim => ("another program makes an empty directory before the rename", unclaimed),
        Check::NameAfterError => {
            ("another program makes a file before the link, where there is no RENAME_NOREPLACE", name_taken)
        }
        Check::RenamedPartBytes => ("a bit changes between the rename and COMMITTED", renamed_rotten),
        Check::SourceOnResume => {
            ("a small file changes before the mover goes on", |w| changed_before_resume(w, false))
        }
        Check::ChunksOnResume => {
            ("a large file changes before the mover goes on", |w| changed_before_resume(w, true))
        }
        Check::SourceAfterRead => ("a file changes after it was copied", changed_after_copy),
        Check::SmallReadBack => {
            ("a bit of a small copy changes", |w| rotten(w, Scenario::Checkpoint, "rank-1", Call::Syncfs, 0))
        }
        Check::ChunkReadBack => {
            ("a bit of a chunk changes", |w| rotten(w, Scenario::Chunked, "", Call::Fdatasync, 0))
        }
        Check::LinkReadBack => {
            ("a copied link leads elsewhere", |w| rotten(w, Scenario::Tree, "to a", Call::Syncfs, 0))
        }
        Check::ManifestReadBack => ("a bit of the manifest changes", |w| {
            rotten(w, Scenario::Checkpoint, crate::world::MANIFEST, Call::Syncfs, 1)
        }),
        Check::SourceManifest => ("a set that has rotted moves", rotten_source),
        Check::CommittedDestination => ("the copy goes before the source", copy_gone),
        Check::SourceBeforeRemoval => ("a file changes after it was published", changed_after_rename),
        Check::EvictedItself => ("a fast copy is named as its own slow copy", evicted_itself),
        Check::EvictedNames => ("a fast copy changes before it is evicted", evicted_changed),
        Check::FetchedOnResume => ("a fetched file is replaced before the mover goes on", fetched_replaced),
        Check::FetchedReadBack => ("a bit of a fetched file changes", fetched_rotten),
    }
}

fn without(mut order: Order, word: Option<&str>) -> Order {
    order.left_out = word.map(str::to_owned);
    order
}

fn order(world: &World, word: Option<&str>) -> Order {
    without(Order::to(&world.state, &world.spec), word)
}

// Power cuts.

fn moved(word: Option<&str>, scenario: Scenario, to: &str, distrust: bool) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| World::at(scenario, Verb::Move, fast, slow);
    let past = live_with(
        ("ext4", to),
        build,
        |_| {},
        |order, _| {
            let mut order = without(order, word);
            order.distrust = distrust;
            order
        },
    );
    match past.durable {
        Some(durable) => cut(&past, durable, None, false),
        None => vec![format!("it did not become durable: {:?}", past.report)],
    }
}

fn adopted(word: Option<&str>, distrust: bool) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| World::at(Scenario::Checkpoint, Verb::Move, fast, slow);
    let past = live_with(("ext4", "xfs"), build, copied_by_another, |order, _| {
        let mut order = without(order, word);
        order.distrust = distrust;
        order
    });
    cut(&past, past.durable.unwrap_or(past.end), None, false)
}

/// The application has written and not synced; the mover has said `local`, and dies as it makes its part.
fn local(word: Option<&str>, single: bool) -> Vec<String> {
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
fn sentinel(world: &World) -> Change {
    Change::Sync { path: PathText(world.slow().join("sentinel")) }
}

fn small_group(word: Option<&str>) -> Vec<String> {
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

fn chunk_group(word: Option<&str>) -> Vec<String> {
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

fn shared_blocks(word: Option<&str>) -> Vec<String> {
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

fn cut_and_go_on(past: &crate::power::Past) -> Vec<String> {
    assert!(past.report.is_none(), "the mover was to be killed: {:?}", past.report);
    let wrong = cut(past, past.end, None, true);
    wrong.into_iter().filter(|line| !line.contains("beside the destination")).collect()
}

// The strictest file system that POSIX allows.

fn strict(word: Option<&str>, scenario: Scenario, change: fn(&mut World, &mut Order)) -> Vec<String> {
    let mut world = World::new(scenario, Verb::Move);
    let mut order = order(&world, word);
    change(&mut world, &mut order);
    order.spec = Some(world.spec.clone());
    strictly(&order)
}

fn strictly(order: &Order) -> Vec<String> {
    let mut order = order.clone();
    order.strict = true;
    let report = run(&order).told();
    let done = report.jobs.iter().all(|job| job.state == State::Done && job.error.is_none());
    assert!(done || !order.strikes.is_empty(), "{:?} {:?}", report.jobs, report.refused);
    // What has a part's name is taken apart, now or after a crash.
    let promised = report.unsynced.into_iter().filter(|path| !path.ends_with(".part"));
    promised.map(|path| format!("{path} was changed and not synced")).collect()
}

fn usual(_: &mut World, _: &mut Order) {}

fn distrusted(_: &mut World, order: &mut Order) {
    order.distrust = true;
}

fn to_new_parent(world: &mut World, _: &mut Order) {
    world.spec.destination = Place::of_path(&world.slow().join("new/newer/ckpt-7")).unwrap();
    allow_parents(&mut world.spec);
}

fn with_semaphore(world: &mut World, _: &mut Order) {
    let place = world.slow().join("semaphores");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("ckpt-7.done"), "").unwrap();
    world.spec.options.semaphore = Some(PathText(place.join("ckpt-7.done")));
}

fn evicting(world: &mut World, order: &mut Order) {
    world.spec.verb = Verb::Copy;
    // It is still whole when the mover begins to take it apart.
    order.strikes.push(Strike::nth_of(Call::Unlinkat, 0, Hit::Errno(13)));
    world.spec.options.keep_fast = Some(0);
}

// Fetches.

/// A set of an object store, which is a directory beside the source, and the job that fetches it.
fn stored(large: bool) -> World {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.latest = false;
    if large {
        file(&world.source.join("chunks"), 6 * stage::digest::CHUNK_BYTES + 5, 41);
    }
    std::os::unix::fs::symlink("rank-0", world.source.join("link")).unwrap();
    world.before = crate::tree::snapshot(&world.source).unwrap().unwrap();
    let url = Place::Object(format!("file://{}/store/ckpt-7", world.fast().display()));
    fs::create_dir(world.fast().join("store")).unwrap();
    let mut drain = world.spec.clone();
    drain.destination = url.clone();
    let report = run(&Order::to(&world.fast().join("drained"), &drain)).told();
    assert_eq!(report.job().state, State::Done, "{:?}", report.jobs);
    world.spec.source = url;
    world
}

fn fetched(word: Option<&str>) -> Vec<String> {
    let world = stored(false);
    strictly(&order(&world, word))
}

fn same_bytes(world: &World) -> Vec<String> {
    let names = ["rank-0", "rank-1", "rank-2", "chunks"];
    let there = names.iter().filter(|name| world.source.join(name).exists());
    let other = there
        .filter(|name| fs::read(world.source.join(name)).ok() != fs::read(world.destination.join(name)).ok());
    other.map(|name| format!("{name} has other bytes")).collect()
}

fn fetched_chunks(word: Option<&str>) -> Vec<String> {
    let build = |fast: &Path, slow: &Path| {
        let mut world = World::at(Scenario::Large, Verb::Copy, fast, slow);
        fs::create_dir(world.fast().join("store")).unwrap();
        let mut drain = world.spec.clone();
        drain.destination = Place::Object(format!("file://{}/store/ckpt-7", world.fast().display()));
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

fn fetched_replaced(word: Option<&str>) -> Vec<String> {
    let world = stored(false);
    killed(&order(&world, None).strike([Strike::nth_of(Call::Symlinkat, 0, Hit::Kill)]));
    let part = part_of(&world);
    fs::remove_file(part.join("rank-1")).unwrap();
    file(&part.join("rank-1"), 50_001, 77);
    run(&order(&world, word));
    same_bytes(&world)
}

fn fetched_rotten(word: Option<&str>) -> Vec<String> {
    let mut world = World::new(Scenario::Small, Verb::Copy);
    let url = Place::Object(format!("file://{}/store/ckpt-7", world.fast().display()));
    fs::create_dir(world.fast().join("store")).unwrap();
    let mut drain = world.spec.clone();
    drain.destination = url.clone();
    assert_eq!(run(&Order::to(&world.fast().join("drained"), &drain)).told().job().state, State::Done);
    world.spec.source = url;
    let rot = Change::Rot { below: world.slow().into(), name: String::new() };
    // Two syncs are the journal's.
    let strike = Strike::nth_of(Call::Fsync, 2, Hit::Meanwhile);
    let report = run(&order(&world, word).strike([strike]).meanwhile([rot])).told();
    assert_eq!((report.fired, &report.change_failed), (1, &None), "{:?}", report.calls);
    if fs::read(&world.destination).is_ok_and(|bytes| Some(bytes) != fs::read(&world.source).ok()) {
        return vec!["other bytes were published".to_owned()];
    }
    Vec::new()
}

// Checks.

fn killed(order: &Order) {
    assert!(matches!(run(order), Ended::Killed), "the mover was to be killed");
}

/// What is under way on the slow tier.
fn part_of(world: &World) -> PathBuf {
    let parts: Vec<_> = crate::world::names(world.slow())
        .into_iter()
        .filter(|name| name.to_string_lossy().ends_with(".part"))
        .collect();
    assert_eq!(parts.len(), 1, "{parts:?}");
    world.slow().join(&parts[0])
}

fn copy(from: &Path, to: &Path) {
    assert!(std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// A file is written over in place, its times kept.
fn flip(path: &Path) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5).unwrap();
    file.write_all_at(&[byte[0] ^ 4], 5).unwrap();
    file.set_modified(before).unwrap();
    file.sync_all().unwrap();
}

fn failed(order: &Order) -> Vec<String> {
    let report = run(order).told();
    let done = report.jobs.iter().filter(|job| job.state != State::Failed);
    done.map(|job| format!("not refused: {:?} {:?}", job.state, job.notes)).collect()
}

fn onto_itself(word: Option<&str>) -> Vec<String> {
    let mut world = World::new(Scenario::Small, Verb::Move);
    let alias = world.slow().join("alias");
    std::os::unix::fs::symlink(world.fast(), &alias).unwrap();
    world.spec.destination = Place::of_path(&alias.join("ckpt-7")).unwrap();
    run(&order(&world, word));
    if world.source.exists() {
        Vec::new()
    } else {
        vec!["the source is gone, and it was its own copy".to_owned()]
    }
}

fn into_itself(word: Option<&str>) -> Vec<String> {
    let mut world = World::new(Scenario::Tree, Verb::Copy);
    world.spec.destination = Place::of_path(&world.source.join("sub/ckpt-7")).unwrap();
    failed(&order(&world, word))
}

fn taken(word: Option<&str>, names: bool) -> Vec<String> {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    copy(&world.source, &world.destination);
    if names {
        fs::write(world.destination.join("another"), "name").unwrap();
    } else {
        flip(&world.destination.join("rank-1"));
    }
    failed(&order(&world, word))
}

/// Kills a move at a barrier.
fn killed_at(world: &World, barrier: Barrier) {
    let mut order = order(world, None);
    order.kill_at = Some(barrier.word().to_owned());
    killed(&order);
}

/// A directory with the part's name, and files as large as those that were copied.
fn replace(path: &Path) {
    let aside = path.with_file_name("aside");
    fs::rename(path, &aside).unwrap();
    fs::create_dir(path).unwrap();
    for rank in 0..3 {
        file(&path.join(format!("rank-{rank}")), 50_000 + rank, 50 + rank);
    }
}

fn part_replaced(word: Option<&str>) -> Vec<String> {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    killed_at(&world, Barrier::SetFileSystem);
    let part = part_of(&world);
    replace(&part);
    fs::write(part.join("kept"), "of another program").unwrap();
    let report = run(&order(&world, word)).told();
    if report.job().state == State::Done && part.join("kept").exists() {
        Vec::new()
    } else {
        vec![format!("worked on in what another program made: {:?}", report.job().error)]
    }
}

fn part_replaced_and_cancelled(word: Option<&str>) -> Vec<String> {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    killed_at(&world, Barrier::SetFileSystem);
    let part = part_of(&world);
    replace(&part);
    run(&order(&world, word));
    let files = fs::read_dir(&part).map_or(0, |files| files.count());
    if files == 3 { Vec::new() } else { vec!["a directory of another program was removed".to_owned()] }
}

fn part_replaced_at_rename(word: Option<&str>) -> Vec<String> {
    // The second syncfs is that of the whole set.
    let (world, _) = replaced_at(word, Call::Syncfs, 1);
    if world.destination.exists() { world.check_between() } else { Vec::new() }
}

fn replaced_after_rename(word: Option<&str>) -> Vec<String> {
    let (world, state) = replaced_at(word, Call::Renameat, 0);
    if state == State::Done && !world.check_between().is_empty() {
        return vec!["done, and another directory has the destination's name".to_owned()];
    }
    Vec::new()
}

fn replaced_at(word: Option<&str>, call: Call, n: u64) -> (World, State) {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.latest = false;
    let replace = Change::SwapPart { directory: world.slow().into(), bytes: b"of another program".to_vec() };
    let strike = Strike::nth_of(call, n, Hit::Meanwhile);
    let report = run(&order(&world, word).strike([strike]).meanwhile([replace])).told();
    assert_eq!((report.fired, &report.change_failed), (1, &None));
    let state = report.job().state;
    (world, state)
}

fn unclaimed(word: Option<&str>) -> Vec<String> {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.latest = false;
    let theirs = world.slow().join("theirs");
    fs::create_dir(&theirs).unwrap();
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let before = inode(&theirs);
    let give = Change::Rename { from: theirs.as_path().into(), to: world.destination.as_path().into() };
    let strike = Strike::nth_of(Call::Renameat, 0, Hit::Meanwhile);
    let report = run(&order(&world, word).strike([strike]).meanwhile([give])).told();
    assert_eq!((report.fired, &report.change_failed), (1, &None));
    if inode(&world.destination) == before {
        Vec::new()
    } else {
        vec!["a directory of another program was replaced".to_owned()]
    }
}

fn name_taken(word: Option<&str>) -> Vec<String> {
    let world = World::new(Scenario::Small, Verb::Copy);
    let theirs =
        Change::Create { path: world.destination.as_path().into(), bytes: b"of another program".to_vec() };
    let strike = Strike::nth_of(Call::Linkat, 0, Hit::Meanwhile);
    let mut order = order(&world, word).strike([strike]).meanwhile([theirs]);
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

fn unmounted(word: Option<&str>) -> Vec<String> {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    let tier = world.slow().join("tier");
    fs::create_dir(&tier).unwrap();
    let ran = |program: &str, arguments: &[&std::ffi::OsStr]| {
        assert!(std::process::Command::new(program).args(arguments).status().unwrap().success(), "{program}");
    };
    ran("mount", &["-t".as_ref(), "tmpfs".as_ref(), "tmpfs".as_ref(), tier.as_os_str()]);
    world.spec.options.latest = false;
    world.spec.destination = Place::of_path(&tier.join("ckpt-7")).unwrap();
    let mut begun = order(&world, None);
    begun.kill_at = Some(Barrier::Name.word().to_owned());
    killed(&begun);
    ran("umount", &[tier.as_os_str()]);
    run(&order(&world, word));
    let under = crate::world::names(&tier);
    if under.is_empty() { Vec::new() } else { vec![format!("under the mount point: {under:?}")] }
}

fn renamed_rotten(word: Option<&str>) -> Vec<String> {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    killed_at(&world, Barrier::Name);
    flip(&world.destination.join("rank-1"));
    failed(&order(&world, word))
}

fn changed_before_resume(word: Option<&str>, large: bool) -> Vec<String> {
    let scenario = if large { Scenario::Chunked } else { Scenario::Checkpoint };
    let mut world = World::new(scenario, Verb::Copy);
    killed_at(&world, if large { Barrier::LargeFile } else { Barrier::SetFileSystem });
    flip(&if large { world.source.clone() } else { world.source.join("rank-1") });
    world.before = crate::tree::snapshot(&world.source).unwrap().unwrap();
    run(&order(&world, word));
    world.check_end()
}

fn changed_after_copy(word: Option<&str>) -> Vec<String> {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    // The second syncfs is that of the whole set, whose files have been read back.
    let write = Change::Write {
        path: PathText(world.source.join("rank-1")),
        offset: 0,
        bytes: vec![0xee; 4096],
        keep_times: true,
    };
    let strike = Strike::nth_of(Call::Syncfs, 1, Hit::Meanwhile);
    let report = run(&order(&world, word).strike([strike]).meanwhile([write])).told();
    assert_eq!(report.fired, 1);
    world.before = crate::tree::snapshot(&world.source).unwrap().unwrap();
    world.check_end()
}

fn rotten(word: Option<&str>, scenario: Scenario, name: &str, call: Call, n: u64) -> Vec<String> {
    let world = World::new(scenario, Verb::Copy);
    let rot = Change::Rot { below: world.slow().into(), name: name.to_owned() };
    let report =
        run(&order(&world, word).strike([Strike::nth_of(call, n, Hit::Meanwhile)]).meanwhile([rot])).told();
    assert_eq!((report.fired, &report.change_failed), (1, &None), "{:?}", report.calls);
    if report.job().state == State::Failed { world.check_between() } else { world.check_end() }
}

fn rotten_source(word: Option<&str>) -> Vec<String> {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.latest = false;
    assert_eq!(run(&order(&world, None)).told().job().state, State::Done);
    flip(&world.destination.join("rank-1"));
    let mut back = world.spec.clone();
    back.source = world.spec.destination.clone();
    back.destination = Place::of_path(&world.fast().join("back")).unwrap();
    failed(&without(Order::to(&world.fast().join("other-state"), &back), word))
}

fn copy_gone(word: Option<&str>) -> Vec<String> {
    let world = World::new(Scenario::Checkpoint, Verb::Move);
    // Only the source's files are removed by name.
    killed(&order(&world, None).strike([Strike::nth_of(Call::Unlinkat, 0, Hit::Kill)]));
    fs::rename(&world.destination, world.slow().join("aside")).unwrap();
    run(&order(&world, word));
    let left = crate::world::names(&world.source).len();
    if left == 3 { Vec::new() } else { vec!["the source was removed without its copy".to_owned()] }
}

fn changed_after_rename(word: Option<&str>) -> Vec<String> {
    let world = World::new(Scenario::Small, Verb::Move);
    let bytes = vec![0xee; 4096];
    let write = Change::Write { path: PathText(world.source.clone()), offset: 0, bytes, keep_times: true };
    let strike = Strike::nth_of(Call::Renameat, 0, Hit::Meanwhile);
    run(&order(&world, word).strike([strike]).meanwhile([write]));
    let kept = fs::read(&world.source).is_ok_and(|bytes| bytes[..4096] == [0xee; 4096]);
    if kept { Vec::new() } else { vec!["what was written to the source is lost".to_owned()] }
}

fn evicted_itself(word: Option<&str>) -> Vec<String> {
    let mut world = World::new(Scenario::Checkpoint, Verb::Move);
    world.spec.options.latest = false;
    assert_eq!(run(&order(&world, None)).told().job().state, State::Done);
    // The copy has the manifest that a slow copy needs.
    let mut order = without(Order::go_on(&world.fast().join("other-state")), word);
    order.evict = Some((world.destination.clone(), world.slow().to_owned()));
    let report = run(&order).told();
    if !world.destination.exists() {
        return vec!["the only copy was evicted".to_owned()];
    }
    let refused = report.refused.map(|why| why.message).unwrap_or_default();
    if refused.contains("is the source itself") {
        Vec::new()
    } else {
        vec![format!("not refused: {refused:?}")]
    }
}

fn evicted_changed(word: Option<&str>) -> Vec<String> {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.keep_fast = Some(0);
    // `latest` is moved after the commit and before anything is evicted.
    let change = Change::Create { path: PathText(world.source.join("another")), bytes: b"new".to_vec() };
    let strike = Strike::nth_of(Call::Symlinkat, 0, Hit::Meanwhile);
    run(&order(&world, word).strike([strike]).meanwhile([change]));
    if world.source.join("another").exists() { Vec::new() } else { vec!["a new file was evicted".to_owned()] }
}

fn allow_parents(spec: &mut stage::JobSpec) {
    spec.options.parents = true;
}

// The proof.

/// All barriers and checks: word, place, loss, case.
fn all() -> Vec<(&'static str, &'static str, &'static str, Case)> {
    let barriers = Barrier::ALL.iter().map(|it| (it.word(), it.place(), it.loss(), of_barrier(*it)));
    let checks = Check::ALL.iter().map(|it| (it.word(), it.place(), it.loss(), of_check(*it)));
    barriers.chain(checks).collect()
}

fn table() -> String {
    let mut table =
        String::from("| | which call or comparison | without it | shown by |\n|---|---|---|---|\n");
    for (word, place, loss, (case, _)) in all() {
        table.push_str(&format!("| `{word}` | {place} | {loss} | {case} |\n"));
    }
    table
}

/// Every case, or in a sample those that need no drives.
#[test]
fn each_sync_and_each_check_that_is_left_out_alone_is_missed() {
    let more = sample::full() || std::env::var_os("FLASHWRIGHT_LEFT_OUT").is_some();
    let only = std::env::var("FLASHWRIGHT_LEFT_OUT").unwrap_or_default();
    let mut wrong = Vec::new();
    let mut done = 0;
    for (word, _, _, (name, case)) in all() {
        let drives = name.starts_with("power");
        if (drives && !more) || !(only.is_empty() || only == "1" || only.split(',').any(|one| one == word)) {
            continue;
        }
        if drives && let Some(why) = lacking() {
            println!("SKIP {word}: {why}");
            continue;
        }
        done += 1;
        let caught = |left_out| {
            std::panic::catch_unwind(move || case(left_out)).map_err(|panic| {
                panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned())
            })
        };
        match caught(None) {
            Ok(lines) if lines.is_empty() => {}
            other => wrong.push(format!("{word}: wrong with nothing left out: {other:?}")),
        }
        match caught(Some(word)) {
            Ok(lines) if lines.is_empty() => wrong.push(format!("{word}: not missed when it is left out")),
            Ok(lines) => println!("{word}: {name}: {}", lines[0]),
            Err(panic) => println!("{word}: {name}: {panic}"),
        }
    }
    assert!(done > 0, "no case was carried out");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_of_syncs_and_checks_is_the_one_in_the_documentation() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/faults.md");
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- left out: begin -->\n", "<!-- left out: end -->");
    let (before, rest) = text.split_once(begin).expect("the table's beginning");
    let (found, after) = rest.split_once(end).expect("the table's end");
    if std::env::var("FLASHWRIGHT_LEFT_OUT").is_ok_and(|value| value == "write") {
        fs::write(&path, format!("{before}{begin}{}{end}{after}", table())).unwrap();
    } else {
        assert_eq!(found, table(), "make left-out prints it; FLASHWRIGHT_LEFT_OUT=write writes it");
    }
    println!("{}", table());
}
