//! What every tier promises, faults included: one suite, which a directory and an object store both pass.
//!
//! A process of its own, because a plan of faults is the whole process's. The store is a directory that stands in for one
//! (`file://`), so that both keep a set's bytes in files of the same names. What each request of a store can come to is
//! in `src/tests`; how a process that is killed goes on, in the crash tests of `stage`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stage::fault::{self, Call, Effect, Fault, Meanwhile, Plan};
use stage::names::PathText;
use stage::pace::Stop;
use stage::retention::{self, Keep};
use stage::spec::Expected;
use stage::tier::Tier;
use stage::{Algorithm, ErrorClass, JobSpec, JobStatus, Level, Options, Place, StageError, State, Verb};
use stage_object::tiers;
use stage_service::{Mover, MoverConfig};

/// ENOSPC: no job is begun again by itself after it.
const FULL: i32 = 28;
/// `EIO`.
const IO: i32 = 5;
/// Of the calls of a move so many fail in turn, spread over all of them.
const STRIKES: u64 = 40;

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Two tiers and a state directory.
struct World {
    folder: tempfile::TempDir,
    /// Is the slow tier a store?
    store: bool,
    _alone: MutexGuard<'static, ()>,
}

/// Has a rule hold for each kind of tier.
fn on_each_tier(rule: impl Fn(&World)) {
    static ALONE: Mutex<()> = Mutex::new(());
    for store in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        for name in ["fast", "slow"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        println!("{}", if store { "an object store" } else { "a directory" });
        rule(&World { folder, store, _alone: alone });
        fault::install(None);
    }
}

impl World {
    fn fast(&self, name: &str) -> PathBuf {
        self.folder.path().join("fast").join(name)
    }

    /// Where a set's bytes are, on either tier.
    fn stored(&self, name: &str) -> PathBuf {
        self.folder.path().join("slow").join(name)
    }

    fn place(&self, name: &str) -> Place {
        let path = self.stored(name);
        if self.store {
            Place::of_name(format!("file://{}", path.display())).unwrap()
        } else {
            Place::Path(path.as_path().into())
        }
    }

    fn tier(&self) -> Box<dyn Tier> {
        tiers().open(&self.place(""), &Stop::new()).unwrap()
    }

    fn has(&self, name: &str) -> bool {
        self.tier().has(OsStr::new(name)).unwrap()
    }

    /// A new mover; `run` is the number of its state directory.
    fn mover(&self, run: u64) -> Mover {
        let state = self.folder.path().join(format!("state-{run}"));
        Mover::open(&MoverConfig { jobs: 1, threads: 2, tiers: tiers(), ..MoverConfig::new(state) }).unwrap()
    }

    /// A set on the fast tier.
    fn set(&self, name: &str) -> Files {
        let set = self.fast(name);
        fs::create_dir_all(set.join("below/empty")).unwrap();
        fs::write(set.join("below/small"), name).unwrap();
        fs::write(set.join("large"), name.repeat(100_000)).unwrap();
        fs::write(set.join("nothing"), "").unwrap();
        files(&set)
    }

    fn spec(&self, verb: Verb, name: &str, options: Options) -> JobSpec {
        JobSpec {
            verb,
            source: Place::Path(self.fast(name).as_path().into()),
            destination: self.place(name),
            options,
        }
    }

    fn run(&self, mover: &Mover, verb: Verb, name: &str, options: Options) -> Result<JobStatus, StageError> {
        let id = mover.submit(self.spec(verb, name, options))?;
        mover.wait(id, Level::Durable, None)
    }

    fn done(&self, mover: &Mover, verb: Verb, name: &str) -> JobStatus {
        let job = self.run(mover, verb, name, Options::default()).unwrap();
        assert_eq!(job.state, State::Done, "{job:?}");
        job
    }

    /// What comes back of a set.
    fn back(&self, mover: &Mover, name: &str) -> Files {
        let to = self.folder.path().join("back").join(name);
        let options = Options { parents: true, ..Options::default() };
        let destination = Place::Path(to.as_path().into());
        let spec = JobSpec { verb: Verb::Copy, source: self.place(name), destination, options };
        let id = mover.submit(spec).unwrap();
        let job = mover.wait(id, Level::Durable, None).unwrap();
        assert_eq!(job.state, State::Done, "{job:?}");
        let found = files(&to);
        fs::remove_dir_all(to).unwrap();
        found
    }
}

/// What is in a tree, without what makes a set of it.
fn files(root: &Path) -> Files {
    let (mut found, mut left) = (Files::new(), vec![root.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir() {
                left.push(path);
            } else if !name.to_string_lossy().starts_with(".flashwright") {
                found.insert(path.strip_prefix(root).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn strike(call: Option<Call>, after: u64, effect: Effect) {
    fault::install(Some(Plan::new([Fault { call, after, times: 1, effect }])));
}

#[test]
fn a_set_comes_back_as_it_was_stored() {
    on_each_tier(|world| {
        let (set, mover) = (world.set("ckpt-1"), world.mover(0));
        world.done(&mover, Verb::Move, "ckpt-1");
        assert!(!world.fast("ckpt-1").exists());
        assert_eq!(world.back(&mover, "ckpt-1"), set);
    });
}

#[test]
fn an_error_at_any_call_leaves_nothing_visible_or_all_of_it_and_the_next_run_ends_well() {
    on_each_tier(|world| {
        let set = world.set("ckpt-0");
        let mover = world.mover(0);
        fault::install(Some(Plan::recording()));
        world.done(&mover, Verb::Move, "ckpt-0");
        let calls = fault::install(None).unwrap().calls.unwrap().len() as u64;
        assert!(calls > STRIKES, "{calls} calls are no move");
        let mut struck = 0;
        for nth in 1..=STRIKES {
            let name = format!("ckpt-{nth}");
            let (set, mover) = (world.set(&name), world.mover(nth));
            strike(None, nth * calls / (STRIKES + 1), Effect::Errno(FULL));
            let job = world.run(&mover, Verb::Move, &name, Options::default());
            struck += u64::from(fault::fired() > 0);
            fault::install(None);
            let is_committed = job.as_ref().is_ok_and(|job| job.level.is_committed());
            assert!(is_committed || !world.has(&name) || world.back(&world.mover(1000 + nth), &name) == set);
            if !is_committed {
                assert_eq!(files(&world.fast(&name)), set, "the source of what is not durable is whole");
            }
            match job {
                Ok(job) if job.state == State::Failed => {
                    mover.retry(job.id).unwrap();
                    let job = mover.wait(job.id, Level::Durable, None).unwrap();
                    assert_eq!(job.state, State::Done, "call {nth}: {job:?}");
                }
                Ok(job) => assert_eq!(job.state, State::Done, "{job:?}"),
                Err(_) => drop(world.done(&mover, Verb::Move, &name)),
            }
            assert_eq!(files(&world.stored(&name)), set, "call {nth}");
            assert!(!world.fast(&name).exists(), "call {nth}");
        }
        assert!(struck >= STRIKES * 9 / 10, "{struck} of {STRIKES} faults happened");
        assert_eq!(files(&world.stored("ckpt-0")), set);
    });
}

#[test]
fn another_set_under_the_name_is_never_written_over() {
    on_each_tier(|world| {
        let mover = world.mover(0);
        world.set("ckpt-1");
        world.done(&mover, Verb::Copy, "ckpt-1");
        let stored = files(&world.stored("ckpt-1"));
        fs::write(world.fast("ckpt-1").join("below/small"), "another").unwrap();
        let job = world.run(&mover, Verb::Move, "ckpt-1", Options::default()).unwrap();
        assert_eq!((job.state, job.error.unwrap().class), (State::Failed, ErrorClass::Refused));
        assert!(world.fast("ckpt-1").join("below/small").exists());
        assert_eq!(files(&world.stored("ckpt-1")), stored);
    });
}

#[test]
fn the_same_set_under_the_name_is_adopted() {
    on_each_tier(|world| {
        let (set, mover) = (world.set("ckpt-1"), world.mover(0));
        world.done(&mover, Verb::Copy, "ckpt-1");
        // A journal that knows nothing of the first.
        let job = world.done(&world.mover(1), Verb::Move, "ckpt-1");
        assert!(job.notes[0].contains("the same, byte for byte"), "{job:?}");
        assert_eq!((job.files_total, job.files_done, job.bytes_total), (3, 3, 600_006), "{job:?}");
        assert!(!world.fast("ckpt-1").exists());
        assert_eq!(files(&world.stored("ckpt-1")), set);
    });
}

#[test]
fn a_set_that_was_brought_back_already_is_adopted_and_one_that_was_changed_is_refused() {
    on_each_tier(|world| {
        let (set, mover) = (world.set("ckpt-1"), world.mover(0));
        world.done(&mover, Verb::Move, "ckpt-1");
        let get = |run| {
            let mover = world.mover(run);
            let spec = world.spec(Verb::Copy, "ckpt-1", Options::default());
            let back = JobSpec { source: spec.destination, destination: spec.source, ..spec };
            mover.wait(mover.submit(back).unwrap(), Level::Durable, None).unwrap()
        };
        assert_eq!((get(1).state, files(&world.fast("ckpt-1"))), (State::Done, set));
        let job = get(2);
        assert!(job.state == State::Done && job.notes[0].contains("byte for byte"), "{job:?}");
        assert_eq!((job.files_total, job.files_done, job.bytes_total), (3, 3, 600_006), "{job:?}");
        fs::write(world.fast("ckpt-1").join("below/small"), "CKPT-1").unwrap();
        assert_eq!(get(3).error.unwrap().class, ErrorClass::Refused);
        assert_eq!(fs::read(world.fast("ckpt-1").join("below/small")).unwrap(), b"CKPT-1");
    });
}

#[test]
fn a_set_that_differs_in_one_bit_is_not_adopted_and_does_not_read_back() {
    on_each_tier(|world| {
        world.set("ckpt-1");
        world.done(&world.mover(0), Verb::Copy, "ckpt-1");
        let tier = world.tier();
        let name = OsStr::new("ckpt-1");
        let manifest = tier.durable(name).unwrap().unwrap();
        assert!(tier.reads_back(name, &manifest).unwrap());
        let large = world.stored("ckpt-1").join("large");
        let mut bytes = fs::read(&large).unwrap();
        bytes[70_000] ^= 1;
        fs::write(&large, bytes).unwrap();
        assert!(!world.tier().reads_back(name, &manifest).unwrap());
        let job = world.run(&world.mover(1), Verb::Move, "ckpt-1", Options::default()).unwrap();
        assert_eq!(job.state, State::Failed, "{job:?}");
        assert!(world.fast("ckpt-1").join("large").exists(), "the only whole copy");
    });
}

#[test]
fn the_source_of_a_set_that_is_there_already_stays_until_that_set_is_synced() {
    on_each_tier(|world| {
        let set = world.set("ckpt-1");
        world.done(&world.mover(0), Verb::Copy, "ckpt-1");
        let mover = world.mover(1);
        // The source is synced first where its file system is synced as one.
        let fails = |call, after| Fault { call: Some(call), after, times: 1000, effect: Effect::Errno(IO) };
        fault::install(Some(Plan::new([fails(Call::Syncfs, 1), fails(Call::Fsync, 0)])));
        let job = world.run(&mover, Verb::Move, "ckpt-1", Options::default()).unwrap();
        assert!(fault::fired() > 0, "{job:?}");
        fault::install(None);
        assert_eq!((job.state, files(&world.fast("ckpt-1"))), (State::Failed, set), "{job:?}");
    });
}

#[test]
fn a_job_that_is_given_up_takes_what_it_made_and_nothing_else() {
    on_each_tier(|world| {
        let (set, mover) = (world.set("ckpt-1"), world.mover(0));
        world.set("ckpt-2");
        world.done(&mover, Verb::Copy, "ckpt-2");
        let beside = files(&world.stored("ckpt-2"));
        // While the source is read, when the name is taken already.
        strike(Some(Call::Read), 1, Effect::Errno(FULL));
        let job = world.run(&mover, Verb::Move, "ckpt-1", Options::default()).unwrap();
        fault::install(None);
        assert_eq!(job.state, State::Failed, "{job:?}");
        assert_eq!(mover.cancel(job.id).unwrap().state, State::Cancelled);
        let left: Vec<_> =
            fs::read_dir(world.stored("")).unwrap().flatten().map(|entry| entry.file_name()).collect();
        let empty = !world.stored("ckpt-1").exists() || files(&world.stored("ckpt-1")).is_empty();
        assert!(empty && !left.iter().any(|name| name.to_string_lossy().ends_with(".part")), "{left:?}");
        assert_eq!((files(&world.fast("ckpt-1")), files(&world.stored("ckpt-2"))), (set, beside));
    });
}

#[test]
fn a_source_that_changes_while_it_is_copied_is_stored_as_one_state() {
    on_each_tier(|world| {
        let (mut set, mover) = (world.set("ckpt-1"), world.mover(0));
        world.set("ckpt-0");
        fault::install(Some(Plan::recording()));
        world.done(&mover, Verb::Copy, "ckpt-0");
        let calls = fault::install(None).unwrap().calls.unwrap();
        let steps = calls.iter().filter(|call| **call == Call::Journal).count() as u64;
        let file = world.fast("ckpt-1").join("below/small");
        set.insert("below/small".into(), b"later".to_vec());
        // All is copied and recorded. Three steps follow: the name, COMMITTED, DONE.
        let mut plan = Plan::new([Fault {
            call: Some(Call::Journal),
            after: steps - 4,
            times: 1,
            effect: Effect::Meanwhile,
        }]);
        plan.meanwhile = Some(Meanwhile(Box::new(move || fs::write(&file, "later").unwrap())));
        fault::install(Some(plan));
        let job = world.done(&mover, Verb::Copy, "ckpt-1");
        assert_eq!(fault::fired(), 1, "nothing was written meanwhile: {job:?}");
        fault::install(None);
        assert_eq!(files(&world.stored("ckpt-1")), set);
    });
}

#[test]
fn what_a_semaphore_lists_is_stored_alone_and_only_as_it_was_promised() {
    on_each_tier(|world| {
        let (set, mover) = (world.set("ckpt-1"), world.mover(0));
        let of = |path: &str, size, bytes: Option<&[u8]>| Expected {
            path: PathText(path.into()),
            size,
            digest: bytes.map(|bytes| Algorithm::Xxh3.of(bytes)),
        };
        let cases = [
            (of("gone", None, None), "it is not there"),
            (of("nothing", Some(1), None), "1 bytes, and it has 0"),
            (of("large", None, Some(b"other")), "the semaphore says"),
        ];
        for (wrong, words) in cases {
            let expected = vec![of("below/small", Some(6), Some(b"ckpt-1")), wrong];
            let job =
                world.run(&mover, Verb::Move, "ckpt-1", Options { expected, ..Options::default() }).unwrap();
            assert!(job.error.as_ref().is_some_and(|why| why.message.contains(words)), "{job:?}");
            assert!(!world.has("ckpt-1"));
            mover.cancel(job.id).unwrap();
        }
        let expected = vec![of("below/small", Some(6), Some(b"ckpt-1")), of("large", Some(600_000), None)];
        let job =
            world.run(&mover, Verb::Copy, "ckpt-1", Options { expected, ..Options::default() }).unwrap();
        assert_eq!(job.state, State::Done, "{job:?}");
        let listed: Vec<PathBuf> = files(&world.stored("ckpt-1")).into_keys().collect();
        assert_eq!(listed, [PathBuf::from("below/small"), "large".into()]);
        assert_eq!(files(&world.fast("ckpt-1")), set);
    });
}

#[test]
fn latest_never_goes_back_and_the_last_durable_set_never_goes() {
    on_each_tier(|world| {
        let mover = world.mover(0);
        for name in ["ckpt-9", "ckpt-10"] {
            world.set(name);
            world.done(&mover, Verb::Copy, name);
        }
        let tidy = |name: &str, keep| {
            retention::tidy(
                &world.fast(""),
                &*world.tier(),
                OsStr::new(name),
                keep,
                mover.journal(),
                &Stop::new(),
            )
            .unwrap()
        };
        let latest = || world.tier().latest().unwrap();
        let keep = Keep { latest: true, ..Keep::default() };
        tidy("ckpt-10", keep);
        tidy("ckpt-9", keep);
        assert_eq!(latest().as_deref(), Some(OsStr::new("ckpt-10")));
        let outcome = tidy("ckpt-10", Keep { fast: Some(0), slow: Some(1), latest: true });
        assert_eq!(outcome.evicted.len(), 2, "{outcome:?}");
        assert_eq!((world.has("ckpt-9"), world.has("ckpt-10")), (false, true), "{outcome:?}");
        let last = world.tier().members(&retention::place(OsStr::new("ckpt-10")).unwrap()).unwrap();
        assert_eq!(last, ["ckpt-10"]);
    });
}
