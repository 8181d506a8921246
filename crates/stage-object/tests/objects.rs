//! Jobs of a mover between directories and object stores; a directory stands in for the store.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stage::digest::CHUNK_BYTES;
use stage::names::PathText;
use stage::semaphore::Semaphore;
use stage::spec::Expected;
use stage::{Algorithm, JobId, JobSpec, JobStatus, Level, Options, Place, State, Verb};
use stage_object::tiers;
use stage_service::{Mover, MoverConfig};

struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["fast", "store", "back"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self, name: &str) -> Place {
        Place::of_name(format!("file://{}/run/{name}", self.at("store").display())).unwrap()
    }

    fn set(&self, name: &str) -> PathBuf {
        let set = self.at("fast").join(name);
        fs::create_dir_all(set.join("below")).unwrap();
        fs::write(set.join("below/small"), name).unwrap();
        fs::write(set.join("large"), vec![7; CHUNK_BYTES as usize + 5]).unwrap();
        set
    }

    fn mover(&self) -> Mover {
        Mover::open(&MoverConfig { jobs: 1, tiers: tiers(), ..MoverConfig::new(self.at("state")) }).unwrap()
    }

    fn spec(&self, verb: Verb, source: Place, destination: Place, options: Options) -> JobSpec {
        JobSpec { verb, source, destination, options }
    }

    /// Stores a set of the fast tier under its own name.
    fn store(&self, mover: &Mover, name: &str, verb: Verb, options: Options) -> JobStatus {
        let source = Place::Path(self.at("fast").join(name).as_path().into());
        done(mover, mover.submit(self.spec(verb, source, self.url(name), options)).unwrap())
    }

    fn names(&self) -> Vec<String> {
        let all = fs::read_dir(self.at("store/run")).unwrap();
        let mut names: Vec<String> =
            all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn done(mover: &Mover, id: JobId) -> JobStatus {
    mover.wait(id, Level::Durable, None).unwrap()
}

fn is_set(directory: &Path, name: &str) {
    assert_eq!(fs::read_to_string(directory.join("below/small")).unwrap(), name);
    assert!(fs::read(directory.join("large")).unwrap() == vec![7; CHUNK_BYTES as usize + 5]);
}

#[test]
fn jobs_keep_as_many_sets_as_were_asked_for_and_say_what_stays() {
    let _beside = PLAN.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let world = World::new();
    let mover = world.mover();
    let options = || Options { latest: true, keep_fast: Some(1), keep_slow: Some(2), ..Options::default() };
    for name in ["ckpt-8", "ckpt-9", "ckpt-10"] {
        world.set(name);
        let job = world.store(&mover, name, Verb::Copy, options());
        assert_eq!((job.state, job.notes.as_slice()), (State::Done, &[][..]), "{job:?}");
    }
    assert_eq!(world.names(), ["ckpt-10", "ckpt-9", "latest"]);
    assert!(!world.at("fast/ckpt-9").exists() && world.at("fast/ckpt-10").exists());
    // What came back keeps its slow copy.
    let back = world.spec(
        Verb::Copy,
        world.url("ckpt-9"),
        Place::Path(world.at("fast/ckpt-9").as_path().into()),
        Options { latest: true, ..Options::default() },
    );
    assert_eq!(done(&mover, mover.submit(back).unwrap()).state, State::Done);
    is_set(&world.at("fast/ckpt-9"), "ckpt-9");
    assert_eq!(fs::read_link(world.at("fast/latest")).unwrap(), Path::new("ckpt-9"));
    world.set("ckpt-11");
    let job =
        world.store(&mover, "ckpt-11", Verb::Move, Options { keep_slow: Some(1), ..Options::default() });
    assert_eq!(job.state, State::Done, "{job:?}");
    // One has its fast copy still, another is what latest names.
    assert_eq!(world.names(), ["ckpt-10", "ckpt-11", "ckpt-9", "latest"]);
    assert_eq!(job.notes.len(), 2, "{job:?}");
}

#[test]
fn a_fetch_that_is_stopped_goes_on_in_the_same_part() {
    let _beside = PLAN.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let world = World::new();
    let set = world.set("ckpt-1");
    fs::write(set.join("larger"), vec![5; 12 * CHUNK_BYTES as usize]).unwrap();
    let mover = world.mover();
    assert_eq!(world.store(&mover, "ckpt-1", Verb::Copy, Options::default()).state, State::Done);
    let to = world.at("back/ckpt-1");
    let slowly = Options { bwlimit: Some(4 << 20), ..Options::default() };
    let spec = world.spec(Verb::Copy, world.url("ckpt-1"), Place::Path(to.as_path().into()), slowly);
    let id = mover.submit(spec).unwrap();
    while mover.status(Some(id)).unwrap()[0].bytes_written == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    mover.stop();
    drop(mover);
    let part = || fs::read_dir(world.at("back")).unwrap().next().unwrap().unwrap().file_name();
    let begun = part();
    assert!(!to.exists());
    let journal = stage::journal::Journal::open(&world.at("state")).unwrap();
    journal.hurry(id, &Options::default()).unwrap();
    drop(journal);
    let mover = world.mover();
    let still = mover.status(Some(id)).unwrap();
    assert!(still[0].state != State::Failed, "{still:?}");
    let job = done(&mover, id);
    assert_eq!((job.state, job.attempts), (State::Done, 2), "{job:?}");
    assert_eq!(job.bytes_written, job.bytes_total, "what was there is counted, once");
    is_set(&to, "ckpt-1");
    assert!(fs::read(to.join("larger")).unwrap() == vec![5; 12 * CHUNK_BYTES as usize]);
    assert!(begun.to_str().unwrap().ends_with(".part"), "{begun:?}");
    assert_eq!(part(), "ckpt-1", "nothing else is left");
}

/// Tests of one process share its plan of faults.
static PLAN: std::sync::RwLock<()> = std::sync::RwLock::new(());

#[test]
fn a_failed_sync_of_what_is_fetched_is_final_for_its_inode() {
    use stage::fault::{Call, Effect, Fault, Plan, install};
    use std::os::unix::fs::MetadataExt;
    let _alone = PLAN.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    let inode = |file: std::os::fd::OwnedFd| {
        let metadata = fs::File::from(file).metadata().unwrap();
        (metadata.dev(), metadata.ino())
    };
    for single in [true, false] {
        let world = World::new();
        let mover = world.mover();
        let set = world.set("ckpt-1");
        // Of more than four chunks, so that it is noted by the chunk.
        fs::write(set.join("chunks"), vec![9; 6 * CHUNK_BYTES as usize]).unwrap();
        let source = if single { set.join("chunks") } else { set.clone() };
        let name = source.file_name().unwrap().to_str().unwrap().to_owned();
        let spec =
            world.spec(Verb::Copy, Place::of_path(&source).unwrap(), world.url(&name), Options::default());
        assert_eq!(done(&mover, mover.submit(spec).unwrap()).state, State::Done);
        for kind in [Call::Fdatasync, Call::Fsync] {
            for after in [0, 1, 4] {
                let to = world.at("fast").join(format!("back-{kind:?}-{after}"));
                let effect = Effect::Errno(5);
                let mut plan = Plan::new([Fault { call: Some(kind), after, times: 1, effect }]);
                plan.syncs = Some(Vec::new());
                install(Some(plan));
                let spec = world.spec(
                    Verb::Copy,
                    world.url(&name),
                    Place::of_path(&to).unwrap(),
                    Options::default(),
                );
                let job = done(&mover, mover.submit(spec).unwrap());
                let struck = stage::fault::fired();
                let syncs = install(None).and_then(|plan| plan.syncs).unwrap();
                if struck == 0 {
                    break;
                }
                // The directory that the copy is published in cannot be made anew.
                let parent = fs::metadata(world.at("fast")).unwrap();
                let mut failed = Vec::new();
                for sync in syncs {
                    let which = inode(sync.file);
                    if which == (parent.dev(), parent.ino()) {
                        continue;
                    }
                    assert!(!failed.contains(&which), "{kind:?} {after}, single {single}: synced again");
                    if sync.failed {
                        failed.push(which);
                    }
                }
                assert_eq!(job.state, State::Done, "{kind:?} {after}, single {single}: {:?}", job.error);
                let copied = if single { to } else { to.join("chunks") };
                assert!(fs::read(copied).unwrap() == vec![9; 6 * CHUNK_BYTES as usize]);
            }
        }
    }
}

#[test]
fn a_semaphores_list_holds_for_a_store_and_its_semaphore_stays_until_all_is_there() {
    let _beside = PLAN.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let world = World::new();
    let (set, mover) = (world.set("ckpt-1"), world.mover());
    fs::write(set.join("DONE"), "").unwrap();
    let listed = |digest: &[u8]| {
        let of = |path: &str, size, digest| Expected { path: PathText(path.into()), size, digest };
        vec![
            of("below/small", Some(6), Some(Algorithm::Xxh3.of(digest))),
            of("large", Some(CHUNK_BYTES + 5), None),
        ]
    };
    let options = |digest: &[u8]| Options {
        expected: listed(digest),
        semaphore: Some(Semaphore::at(set.join("DONE")).unwrap()),
        ..Options::default()
    };
    let job = world.store(&mover, "ckpt-1", Verb::Move, options(b"ckpt-2"));
    assert_eq!(job.state, State::Failed);
    assert!(job.error.unwrap().message.contains("the semaphore says"));
    assert!(set.join("DONE").exists() && set.join("large").exists());
    mover.cancel(job.id).unwrap();
    let job = world.store(&mover, "ckpt-1", Verb::Move, options(b"ckpt-1"));
    assert_eq!(job.state, State::Done, "{job:?}");
    assert!(!set.join("DONE").exists() && !set.join("large").exists());
    is_set(&world.at("store/run/ckpt-1"), "ckpt-1");
    assert!(!world.at("store/run/ckpt-1/DONE").exists(), "the semaphore is none of what it lists");
}

/// What the child does: `drain` or `fetch`, and the directory of it all, each on a line.
const CHILD: &str = "FLASHWRIGHT_CHILD_OBJECTS";

/// No test by itself: a process whose memory is measured.
#[test]
fn child() {
    let Ok(orders) = std::env::var(CHILD) else { return };
    let orders: Vec<&str> = orders.lines().collect();
    let [what, folder] = orders[..] else { panic!("{orders:?}") };
    let folder = Path::new(folder);
    let mover =
        Mover::open(&MoverConfig { jobs: 1, tiers: tiers(), ..MoverConfig::new(folder.join(what)) }).unwrap();
    let place = |name: &str| Place::Path(folder.join(name).as_path().into());
    let store = Place::of_name(format!("file://{}/set", folder.display())).unwrap();
    let (source, destination) =
        if what == "drain" { (place("source"), store) } else { (store, place("back")) };
    let spec = JobSpec { verb: Verb::Copy, source, destination, options: Options::default() };
    let job = done(&mover, mover.submit(spec).unwrap());
    assert_eq!(job.state, State::Done, "{job:?}");
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("PEAK {}", peak.trim().trim_end_matches(" kB"));
}

/// `cargo test -p flashwright-stage-object --test objects -- --ignored --nocapture` prints the figures of docs/s3.md.
#[test]
#[ignore = "takes minutes, and prints figures"]
fn memory_of_a_drain_and_of_a_fetch_by_the_file() {
    const FILES: [u64; 2] = [10_000, 100_000];
    let mut peaks = [[0_u64; 2]; 2];
    for (nth, files) in FILES.into_iter().enumerate() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        for file in 0..files {
            let directory = folder.path().join(format!("source/directory-{}", file / 1000));
            if file % 1000 == 0 {
                fs::create_dir_all(&directory).unwrap();
            }
            fs::write(directory.join(format!("shard-of-a-checkpoint-{file:08}")), file.to_string()).unwrap();
        }
        for (which, what) in ["drain", "fetch"].into_iter().enumerate() {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "child", "--nocapture"]);
            child.env(CHILD, format!("{what}\n{}", folder.path().display()));
            let output = child.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let peak = text.lines().find_map(|line| line.split_once("PEAK ")).expect("it has told").1;
            peaks[which][nth] = peak.trim().parse::<u64>().unwrap() * 1024;
            println!("{what} of {files} files: {:.0} MB", peaks[which][nth] as f64 / 1e6);
        }
    }
    for (what, [few, many]) in ["drain", "fetch"].into_iter().zip(peaks) {
        println!("{what}: {} bytes a file", (many - few) / (FILES[1] - FILES[0]));
    }
}

#[test]
fn a_set_that_is_replaced_while_it_is_fetched_is_fetched_again() {
    let world = World::new();
    let mover = world.mover();
    for name in ["ckpt-1", "ckpt-2"] {
        let set = world.set(name);
        fs::write(set.join("larger"), vec![5; 4 * CHUNK_BYTES as usize]).unwrap();
        assert_eq!(world.store(&mover, name, Verb::Copy, Options::default()).state, State::Done);
    }
    let slowly = Options { bwlimit: Some(8 << 20), ..Options::default() };
    let back = Place::Path(world.at("back/ckpt").as_path().into());
    let spec = world.spec(Verb::Copy, world.url("ckpt-1"), back, slowly);
    let id = mover.submit(spec.clone()).unwrap();
    // What differs between the two is fetched, and what does not is not fetched yet.
    let small_is_there = || {
        let part = fs::read_dir(world.at("back"))
            .unwrap()
            .flatten()
            .find(|one| one.file_name().to_string_lossy().ends_with(".part"));
        part.is_some_and(|part| {
            fs::read(part.path().join("below/small")).is_ok_and(|bytes| bytes == b"ckpt-1")
        })
    };
    while !small_is_there() {
        assert!(!world.at("back/ckpt").exists(), "the fetch was too fast for this test");
        std::thread::sleep(Duration::from_millis(5));
    }
    fs::rename(world.at("store/run/ckpt-1"), world.at("store/run/was")).unwrap();
    fs::rename(world.at("store/run/ckpt-2"), world.at("store/run/ckpt-1")).unwrap();
    let job = done(&mover, id);
    assert_eq!(job.state, State::Done, "{job:?}");
    is_set(&world.at("back/ckpt"), "ckpt-2");
    assert_eq!(job.source, stage::runner::fingerprint_of(&spec, &tiers()).unwrap());
}
