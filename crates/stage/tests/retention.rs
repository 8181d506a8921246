//! Retention against a model: tiers of random sets, tidied with a fault at any system call, then tidied again.
//!
//! A process of its own, because a plan of faults is the whole process's.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use proptest::prelude::*;
use stage::fault::{Call, Effect, Fault, Meanwhile, Plan, install};
use stage::manifest::{self, Entry, Kind, Writer};
use stage::names::{PathText, is_part};
use stage::owned::{FileId, Record, TakenAside};
use stage::pace::Stop;
use stage::retention::{Keep, LATEST, Witness, evict, pin, place, tidy};
use stage::tier::directory::Directory;
use stage::{Algorithm, Place, StageError};

/// Tests of one process share its plan of faults.
static ALONE: Mutex<()> = Mutex::new(());

/// What a set is like when retention comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slow {
    Absent,
    Durable,
    /// A file of it is missing.
    Damaged,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fast {
    Absent,
    Same,
    /// Written to after it was copied.
    Changed,
    /// Somebody reads it.
    Pinned,
}

#[derive(Debug, Clone, Copy)]
struct Set {
    fast: Fast,
    slow: Slow,
    vouched: bool,
}

#[derive(Debug, Clone)]
struct World {
    sets: BTreeMap<u32, Set>,
    keep: Keep,
    latest: Option<u32>,
    committed: u32,
}

/// What a journal would hold of names that are to be removed.
#[derive(Default)]
struct Names {
    doomed: RefCell<BTreeMap<(PathBuf, OsString), Option<FileId>>>,
    aside: RefCell<Vec<(PathBuf, TakenAside)>>,
}

struct Vouched<'a>(BTreeSet<String>, &'a Names);

impl Record for Names {
    fn takes_aside(
        &self,
        directory: &Path,
        name: &OsStr,
        part: &OsStr,
        id: &FileId,
    ) -> Result<(), StageError> {
        let aside = TakenAside { part: part.to_owned(), name: name.to_owned(), id: *id };
        self.aside.borrow_mut().push((directory.to_owned(), aside));
        Ok(())
    }

    fn taken_aside(&self, directory: &Path) -> Result<Vec<TakenAside>, StageError> {
        let record = self.aside.borrow();
        Ok(record.iter().filter(|(of, _)| of == directory).map(|(_, aside)| aside.clone()).collect())
    }

    fn dooms(&self, directory: &Path, name: &OsStr, id: Option<&FileId>) -> Result<(), StageError> {
        self.aside.borrow_mut().retain(|(of, aside)| of != directory || aside.part != name);
        self.doomed.borrow_mut().insert((directory.to_owned(), name.to_owned()), id.copied());
        Ok(())
    }

    fn doomed(&self, directory: &Path) -> Result<Vec<(OsString, Option<FileId>)>, StageError> {
        let record = self.doomed.borrow();
        let its = record.iter().filter(|((of, _), _)| of == directory);
        Ok(its.map(|((_, name), id)| (name.clone(), *id)).collect())
    }

    fn forgets(&self, directory: &Path, name: &OsStr) -> Result<(), StageError> {
        self.aside.borrow_mut().retain(|(of, aside)| of != directory || aside.part != name);
        self.doomed.borrow_mut().remove(&(directory.to_owned(), name.to_owned()));
        Ok(())
    }
}

impl Witness for Vouched<'_> {
    fn vouches(&self, _: &Path, slow: &Place) -> Result<bool, StageError> {
        Ok(self.0.contains(slow.path().unwrap().file_name().unwrap().to_str().unwrap()))
    }

    fn record(&self) -> &dyn Record {
        self.1
    }
}

fn tier_at(path: &Path) -> Directory {
    Directory::open(path).unwrap()
}

fn name(number: u32) -> String {
    format!("ckpt-{number}")
}

fn world() -> impl Strategy<Value = World> {
    let set = (
        prop::sample::select(vec![Fast::Absent, Fast::Same, Fast::Same, Fast::Changed, Fast::Pinned]),
        prop::sample::select(vec![Slow::Absent, Slow::Durable, Slow::Durable, Slow::Damaged]),
        prop::bool::weighted(0.7),
    )
        .prop_map(|(fast, slow, vouched)| Set { fast, slow, vouched });
    let numbers = prop::sample::select(vec![1_u32, 7, 8, 9, 10, 11, 100]);
    let sets = prop::collection::btree_map(numbers, set, 1..6);
    let keep = (prop::option::of(0_u32..4), prop::option::of(0_u32..4), any::<bool>())
        .prop_map(|(fast, slow, latest)| Keep { fast, slow, latest });
    (sets, keep, any::<prop::sample::Index>(), prop::option::of(any::<prop::sample::Index>())).prop_map(
        |(sets, keep, committed, latest)| {
            let numbers: Vec<u32> = sets.keys().copied().collect();
            let committed = numbers[committed.index(numbers.len())];
            let latest = latest.map(|latest| numbers[latest.index(numbers.len())]);
            World { sets, keep, latest, committed }
        },
    )
}

/// A set of two files with its manifest beside them on the slow tier.
fn fill(directory: &Path, number: u32, with_manifest: bool) {
    fs::create_dir_all(directory.join("below")).unwrap();
    for file in ["a", "below/b"] {
        let path = directory.join(file);
        fs::write(&path, format!("{number} {file}")).unwrap();
        fs::File::open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    if !with_manifest {
        return;
    }
    let header = stage::manifest::Header::new(Algorithm::Xxh3, Path::new(&name(number)), 0);
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    for path in ["", "a", "below", "below/b"] {
        let stat = fs::metadata(directory.join(path)).unwrap();
        let is_file = stat.is_file();
        writer
            .entry(&Entry {
                path: PathText(path.into()),
                kind: if is_file { Kind::File } else { Kind::Directory },
                size: if is_file { stat.len() } else { 0 },
                mode: stat.mode() & 0o7777,
                uid: stat.uid(),
                gid: stat.gid(),
                mtime_s: stat.mtime(),
                mtime_ns: stat.mtime_nsec() as u32,
                digest: is_file.then(|| Algorithm::Xxh3.of(&fs::read(directory.join(path)).unwrap())),
                chunks: Vec::new(),
                target: None,
                link_to: None,
            })
            .unwrap();
    }
    fs::write(directory.join(manifest::NAME), writer.finish().unwrap().0).unwrap();
}

struct Tiers {
    _scratch: tempfile::TempDir,
    fast: PathBuf,
    slow: PathBuf,
    pins: Vec<OwnedFd>,
    record: Names,
}

impl Tiers {
    fn of(world: &World) -> Self {
        // Memory, where there is any: thousands of syncs are about to be made.
        let shm = Path::new("/dev/shm");
        let scratch = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap();
        let (fast, slow) = (scratch.path().join("fast"), scratch.path().join("slow"));
        let mut pins = Vec::new();
        for tier in [&fast, &slow] {
            // What is nobody's to remove.
            fs::create_dir_all(tier.join("other-1")).unwrap();
            fs::create_dir_all(tier.join("ckpt-final")).unwrap();
            fs::write(tier.join("ckpt-2"), "a file").unwrap();
            fs::create_dir(tier.join(".ckpt-3.0123456789ab4def8123456789abcdef.part")).unwrap();
            // A name that sets had which were removed by an earlier release: a name is no proof of anything.
            fs::create_dir(tier.join(".ckpt-3.0123456789ab8dd08123456789abcdef.part")).unwrap();
            fs::write(tier.join(".ckpt-3.0123456789ab8dd08123456789abcdef.part/thesis"), b"the only copy")
                .unwrap();
        }
        for (number, set) in &world.sets {
            if set.slow != Slow::Absent {
                fill(&slow.join(name(*number)), *number, true);
            }
            if set.slow == Slow::Damaged {
                fs::remove_file(slow.join(name(*number)).join("below/b")).unwrap();
            }
            if set.fast != Fast::Absent {
                let directory = fast.join(name(*number));
                fill(&directory, *number, false);
                match set.fast {
                    Fast::Changed => fs::write(directory.join("a"), format!("{number} A")).unwrap(),
                    Fast::Pinned => {
                        let open = fs::File::open(&directory).unwrap();
                        pins.extend(pin(open.as_fd(), &directory, &stage::pace::always).unwrap());
                    }
                    Fast::Absent | Fast::Same => {}
                }
            }
        }
        if let Some(latest) = world.latest {
            symlink(name(latest), slow.join(LATEST)).unwrap();
        }
        Self { _scratch: scratch, fast, slow, pins, record: Names::default() }
    }

    fn tidy(&self, world: &World) -> Result<(), StageError> {
        let vouched = world.sets.iter().filter(|(_, set)| set.vouched).map(|(number, _)| name(*number));
        let witness = Vouched(vouched.collect(), &self.record);
        let name = name(world.committed);
        // The first call may be the one that fails.
        let slow = Directory::open(&self.slow)?;
        tidy(&self.fast, &slow, OsStr::new(&name), world.keep, &witness, &Stop::new()).map(drop)
    }

    /// Every name below both tiers, and where links lead.
    fn listing(&self) -> BTreeSet<String> {
        fn walk(top: &Path, at: &Path, found: &mut BTreeSet<String>) {
            for entry in fs::read_dir(at).unwrap() {
                let path = entry.unwrap().path();
                let shown = path.strip_prefix(top).unwrap().display().to_string();
                if let Ok(target) = fs::read_link(&path) {
                    found.insert(format!("{shown} -> {}", target.display()));
                } else {
                    found.insert(shown);
                    if path.is_dir() {
                        walk(top, &path, found);
                    }
                }
            }
        }
        let mut found = BTreeSet::new();
        let top = self.fast.parent().unwrap();
        walk(top, top, &mut found);
        found
    }
}

/// What must be left: the numbers on the fast tier and on the slow one, and `latest`. Read from the rules, not the code.
fn model(world: &World) -> (BTreeSet<u32>, BTreeSet<u32>, Option<u32>) {
    let Keep { fast: keep_fast, slow: keep_slow, latest: moves } = world.keep;
    let durable = |number: &u32| world.sets[number].slow == Slow::Durable;
    let mut latest = world.latest;
    if moves && durable(&world.committed) {
        let stays =
            latest.is_some_and(|latest| latest > world.committed && world.sets[&latest].slow != Slow::Absent);
        if !stays {
            latest = Some(world.committed);
        }
    }
    let mut fast: BTreeSet<u32> =
        world.sets.iter().filter(|(_, set)| set.fast != Fast::Absent).map(|(number, _)| *number).collect();
    if let Some(keep) = keep_fast {
        let keep = keep.min(keep_slow.map_or(u32::MAX, |slow| slow.max(1))) as usize;
        let surplus: Vec<u32> = fast.iter().rev().skip(keep).copied().collect();
        for number in surplus {
            let set = world.sets[&number];
            if set.fast == Fast::Same && set.slow == Slow::Durable && set.vouched {
                fast.remove(&number);
            }
        }
    }
    let mut slow: BTreeSet<u32> =
        world.sets.iter().filter(|(_, set)| set.slow != Slow::Absent).map(|(number, _)| *number).collect();
    if let Some(keep) = keep_slow {
        let newest: Vec<u32> = slow.iter().rev().filter(|number| durable(number)).copied().collect();
        let (kept, surplus) = newest.split_at(newest.len().min(keep.max(1) as usize));
        if kept.iter().any(|number| world.sets[number].vouched) {
            for number in surplus {
                if *number != world.committed && latest != Some(*number) && !fast.contains(number) {
                    slow.remove(number);
                }
            }
        }
    }
    (fast, slow, latest)
}

/// What must hold at every moment.
fn never_broken(world: &World, tiers: &Tiers, before: &BTreeSet<String>, after: &BTreeSet<String>) {
    let whole = |tier: &str, number: u32| {
        let prefix = format!("{tier}/{}/", name(number));
        // The proof's file, which a fault may leave until the next time.
        let is_probe = |path: &str| is_part(Path::new(path).file_name().unwrap_or_default());
        let of = |listing: &BTreeSet<String>| -> Vec<String> {
            let within = listing.iter().filter(|path| path.starts_with(&prefix));
            within.filter(|path| !is_probe(path)).cloned().collect()
        };
        (of(after) == of(before), of(after).is_empty() && !after.contains(prefix.trim_end_matches('/')))
    };
    for number in world.sets.keys() {
        for tier in ["fast", "slow"] {
            let (is_whole, is_gone) = whole(tier, *number);
            assert!(is_whole || is_gone, "half of {tier}/{number}");
        }
    }
    let durable: Vec<u32> =
        world.sets.iter().filter(|(_, set)| set.slow == Slow::Durable).map(|(number, _)| *number).collect();
    let left = durable.iter().filter(|number| tiers.slow.join(name(**number)).exists()).count();
    let owed = world.keep.slow.map_or(durable.len(), |keep| durable.len().min(keep.max(1) as usize));
    assert!(left >= owed, "{left} durable sets are left of {owed}");
    if let Some(newest) = durable.last() {
        assert!(tiers.slow.join(name(*newest)).exists(), "the last durable one is gone");
    }
    for (number, set) in &world.sets {
        let fast_gone = set.fast != Fast::Absent && !tiers.fast.join(name(*number)).exists();
        assert!(!fast_gone || (set.fast == Fast::Same && set.slow == Slow::Durable && set.vouched));
        let slow_gone = set.slow != Slow::Absent && !tiers.slow.join(name(*number)).exists();
        assert!(!slow_gone || !tiers.fast.join(name(*number)).exists(), "a fast copy nothing could evict");
    }
    if let Ok(latest) = fs::read_link(tiers.slow.join(LATEST)) {
        let was = world.latest.map(name);
        assert!(
            Some(latest.to_str().unwrap()) == was.as_deref() || tiers.slow.join(&latest).exists(),
            "latest leads nowhere"
        );
    } else {
        assert!(world.latest.is_none(), "latest is gone");
    }
}

fn reached(tiers: &Tiers, world: &World) -> (BTreeSet<u32>, BTreeSet<u32>, Option<u32>) {
    let there = |tier: &Path| {
        world
            .sets
            .keys()
            .copied()
            .filter(|number| tier.join(name(*number)).exists())
            .collect::<BTreeSet<u32>>()
    };
    let latest = fs::read_link(tiers.slow.join(LATEST)).ok();
    let latest = latest.and_then(|latest| latest.to_str()?.strip_prefix("ckpt-")?.parse().ok());
    (there(&tiers.fast), there(&tiers.slow), latest)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_call_fails_the_rules_hold_and_the_next_time_ends_where_it_would_have(
        world in world(),
        strikes in prop::collection::vec(any::<prop::sample::Index>(), 4),
    ) {
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let tiers = Tiers::of(&world);
        install(Some(Plan::recording()));
        let tidied = tiers.tidy(&world);
        let calls = install(None).and_then(|plan| plan.calls).unwrap_or_default().len();
        tidied.unwrap();
        prop_assert_eq!(reached(&tiers, &world), model(&world));
        let end = tiers.listing();
        drop(tiers);

        for strike in strikes {
            let tiers = Tiers::of(&world);
            let before = tiers.listing();
            let after = strike.index(calls.max(1)) as u64;
            install(Some(Plan::new([Fault { call: None, after, times: u64::MAX, effect: Effect::Errno(5) }])));
            // Every call from there on fails, as if there were none any more.
            let tidied = tiers.tidy(&world);
            install(None);
            prop_assert!(tidied.is_err() || calls == 0);
            never_broken(&world, &tiers, &before, &tiers.listing());
            tiers.tidy(&world).unwrap();
            prop_assert_eq!(tiers.listing(), end.clone(), "call {} of {}", after, calls);
            drop(tiers.pins);
        }
    }
}

#[test]
fn a_set_that_is_asked_to_go_says_why_it_may_not() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let cases = [
        (Fast::Same, Slow::Absent, true, Some("no durable copy")),
        (Fast::Same, Slow::Damaged, true, Some("no durable copy")),
        (Fast::Same, Slow::Durable, false, Some("nobody vouches")),
        (Fast::Changed, Slow::Durable, true, Some("a has another time of modification")),
        (Fast::Pinned, Slow::Durable, true, Some("somebody is reading it")),
        (Fast::Same, Slow::Durable, true, None),
    ];
    for (fast, slow, vouched, why) in cases {
        let sets = BTreeMap::from([(7, Set { fast, slow, vouched })]);
        let tiers = Tiers::of(&World { sets, keep: Keep::default(), latest: None, committed: 7 });
        let witness = Vouched(vouched.then(|| name(7)).into_iter().collect(), &tiers.record);
        let evicted = evict(&tiers.fast, &tier_at(&tiers.slow), OsStr::new("ckpt-7"), &witness, &Stop::new());
        match (evicted, why) {
            (Err(error), Some(why)) => assert!(error.to_string().contains(why), "{error}"),
            (Ok(()), None) => assert!(!tiers.fast.join("ckpt-7").exists()),
            (evicted, why) => panic!("{fast:?} {slow:?} {vouched}: {evicted:?}, and not {why:?}"),
        }
        assert_eq!(tiers.fast.join("ckpt-7").exists(), why.is_some());
    }
}

/// A journal that says yes, after another program has done something: the slow copy is read at that moment.
struct Busy<'a>(&'a dyn Fn());

impl Witness for Busy<'_> {
    fn vouches(&self, _: &Path, _: &Place) -> Result<bool, StageError> {
        (self.0)();
        Ok(true)
    }
}

fn one_set() -> Tiers {
    let sets = BTreeMap::from([(7, Set { fast: Fast::Same, slow: Slow::Durable, vouched: true })]);
    Tiers::of(&World { sets, keep: Keep::default(), latest: None, committed: 7 })
}

#[test]
fn what_is_written_while_the_slow_copy_is_read_stays() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for file in ["a", "added"] {
        let tiers = one_set();
        let set = tiers.fast.join("ckpt-7");
        let write = || fs::write(set.join(file), "new").unwrap();
        let evicted =
            evict(&tiers.fast, &tier_at(&tiers.slow), OsStr::new("ckpt-7"), &Busy(&write), &Stop::new());
        let why = evicted.unwrap_err().to_string();
        assert!(why.contains("it is not what was copied"), "{why}");
        assert_eq!(fs::read_to_string(set.join(file)).unwrap(), "new");
    }
}

#[test]
fn of_two_equal_copies_each_evicted_for_the_other_one_stays() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let tiers = one_set();
    let manifest = [&tiers.fast, &tiers.slow].map(|tier| tier.join("ckpt-7").join(manifest::NAME));
    fs::copy(&manifest[1], &manifest[0]).unwrap();
    let one = |from: &Path, copy: &Path, meanwhile: &dyn Fn()| {
        evict(from, &tier_at(copy), OsStr::new("ckpt-7"), &Busy(meanwhile), &Stop::new())
    };
    // The second one while the first reads what the second removes.
    let second = || {
        let why = one(&tiers.slow, &tiers.fast, &|| ()).unwrap_err().to_string();
        assert!(why.contains("removes another copy for its sake"), "{why}");
    };
    one(&tiers.fast, &tiers.slow, &second).unwrap();
    assert!(tiers.slow.join("ckpt-7/below/b").exists() && !tiers.fast.join("ckpt-7").exists());
    let why = one(&tiers.slow, &tiers.fast, &|| ()).unwrap_err().to_string();
    assert!(why.contains("no durable copy"), "{why}");
}

#[test]
fn what_is_written_right_before_a_set_loses_its_name_stays() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // The name is taken, and given back; or something else has it then.
    for renames in [1, 2] {
        let tiers = one_set();
        let set = tiers.fast.join("ckpt-7");
        let (written, mut renamed) = (set.clone(), 0);
        let write = move || {
            renamed += 1;
            match renamed {
                1 => fs::write(written.join("a"), "new").unwrap(),
                _ => fs::create_dir(&written).unwrap(),
            }
        };
        let fault = Fault { call: Some(Call::Renameat), after: 0, times: renames, effect: Effect::Meanwhile };
        let mut plan = Plan::new([fault]);
        plan.meanwhile = Some(Meanwhile(Box::new(write)));
        install(Some(plan));
        let evicted =
            evict(&tiers.fast, &tier_at(&tiers.slow), OsStr::new("ckpt-7"), &Busy(&|| ()), &Stop::new());
        install(None);
        let StageError::Refused { what, hint } = evicted.unwrap_err() else { panic!("it is refused") };
        let at = if renames == 1 {
            assert!(what.contains("a has another"), "{what}");
            set
        } else {
            assert!(what.contains("something else has its name"), "{what}");
            PathBuf::from(hint.unwrap().trim_start_matches("it is ").trim_end_matches("; give it a name"))
        };
        assert_eq!(fs::read_to_string(at.join("a")).unwrap(), "new", "{}", at.display());
    }
}

#[test]
fn a_series_is_in_the_order_of_its_numbers() {
    let order = |a: &str, b: &str| {
        let (a, b) = (place(OsStr::new(a)).unwrap(), place(OsStr::new(b)).unwrap());
        a.is_beside(&b).then(|| a.order(&b))
    };
    use std::cmp::Ordering::{Greater, Less};
    assert_eq!(order("ckpt-9", "ckpt-10"), Some(Less));
    assert_eq!(order("step-00000100", "step-99"), Some(Greater));
    assert_eq!(order("9", "99999999999999999999999999999999999999999"), Some(Less));
    assert_eq!(order("ckpt-7", "ckpt-07"), Some(Less), "a total order");
    assert_eq!(order("run1-ckpt-7", "run2-ckpt-8"), None, "two runs are two series");
    assert_eq!(order("ckpt-7", "ckpt-8.old"), None);
    assert!(place(OsStr::new("final")).is_none());
}
