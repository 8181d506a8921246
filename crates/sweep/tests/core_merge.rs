//! Shards: measured apart, put together, refused where they do not belong together, and gone on with.

mod fake;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::ErrorClass;
use fake::{Fakes, LADDER, identity};
use rusqlite::Connection;
use sweep::load::load;
use sweep::merge::{MergeError, merge};
use sweep::run::{Ended, Identity, Quiet, Runner, begin};
use sweep::space::Space;
use sweep::store::{NOTE_DRIVES, Store};

/// Runs one shard of a space on a machine, into a directory of its own; stops after some runs where told to.
fn shard(
    home: &Path,
    text: &str,
    part: (u32, u32),
    identity: &Identity,
    stop_after: Option<usize>,
) -> PathBuf {
    let folder = home.join(format!("{}-{}-{}", part.0, part.1, identity.machine.hostname));
    std::fs::create_dir_all(&folder).unwrap();
    let space = Space::parse("s.toml", text).unwrap().share(part.0, part.1).unwrap();
    let mut store = begin(&folder, &space, identity).unwrap().store;
    store.set_note(NOTE_DRIVES, "1 × Model, 1 TiB").unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut fakes = Fakes { stop_after: stop_after.map(|n| (n, Arc::clone(&stop))), ..Fakes::new() };
    Runner::new(&mut store, identity, &mut fakes, &mut Quiet, &stop).run().unwrap();
    folder
}

fn named(name: &str) -> Identity {
    let mut identity = identity();
    identity.machine.hostname = name.into();
    identity
}

fn resume(folder: &Path, identity: &Identity) -> Ended {
    let mut store = Store::open(folder).unwrap();
    let mut fakes = Fakes::new();
    Runner::new(&mut store, identity, &mut fakes, &mut Quiet, &AtomicBool::new(false)).run().unwrap().ended
}

fn output(home: &Path, name: &str) -> PathBuf {
    let folder = home.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// What a results file says of a run beside its figures.
fn details(path: &Path, run: i64) -> Vec<Option<String>> {
    let path = if path.is_dir() { path.join("results.db") } else { path.to_owned() };
    let connection = Connection::open(path).unwrap();
    let ask = |sql: &str| -> Option<String> {
        connection
            .query_row(&format!("{sql} r USING (record) WHERE r.id = {run}"), [], |row| row.get(0))
            .unwrap()
    };
    vec![
        ask(
            "SELECT group_concat(direction || d.bytes || ' ' || d.latency_ns_max) FROM directions d JOIN runs",
        ),
        ask("SELECT group_concat(number || code || message) FROM warnings JOIN runs"),
        ask("SELECT group_concat(user_ns || ' ' || system_ns) FROM cpu JOIN runs"),
        ask("SELECT group_concat(word || verdict) FROM verdicts JOIN runs"),
    ]
}

#[test]
fn shards_of_two_machines_make_one_whole_sweep() {
    let home = tempfile::tempdir().unwrap();
    let one = shard(home.path(), LADDER, (1, 2), &named("a"), None);
    let two = shard(home.path(), LADDER, (2, 2), &named("b"), None);
    let verdicts = "INSERT INTO verdicts SELECT record, 'drives', \
         '{\"limit\":\"drives\",\"evidence\":\"busy\",\"at_percent_of_drives\":null,\"others\":[]}' FROM runs";
    Connection::open(one.join("results.db")).unwrap().execute_batch(verdicts).unwrap();
    let whole = output(home.path(), "whole");
    let merged = merge(&[two.clone(), one.clone()], &whole).unwrap();
    assert!(merged.completeness.is_complete() && merged.absent.is_empty());
    assert_eq!((merged.completeness.planned, merged.completeness.done), (12, 12));
    let store = Store::open_read_only(&whole).unwrap();
    assert_eq!(store.meta().unwrap().part(), None, "nothing is missing");
    assert_eq!(store.sessions().unwrap().len(), 2);
    let parts = [Store::open_read_only(&one).unwrap(), Store::open_read_only(&two).unwrap()];
    let runs = store.runs().unwrap();
    for part in &parts {
        for run in part.runs().unwrap() {
            let here = runs.iter().find(|r| r.position == run.position).expect("it was taken");
            assert_eq!(store.record(here.id).unwrap(), part.record(run.id).unwrap());
            assert_eq!((here.limit, details(&whole, here.id)), (run.limit, details(part.path(), run.id)));
        }
        for control in part.controls().unwrap() {
            assert!(store.controls().unwrap().iter().any(|c| c.position == control.position));
        }
    }
    let data = load(&store).unwrap();
    assert_eq!((data.points.len(), data.runs.len()), (4, 12));
    assert_eq!(std::fs::read_dir(&whole).unwrap().count(), 1, "nothing but the results is left");
    // Nothing is missing: there is nothing to do, on whatever machine.
    assert_eq!(resume(&whole, &named("c")), Ended::Complete);
}

#[test]
fn a_shard_by_itself_is_judged_by_what_it_owes() {
    let home = tempfile::tempdir().unwrap();
    let two = shard(home.path(), LADDER, (2, 2), &named("a"), None);
    let store = Store::open_read_only(&two).unwrap();
    assert_eq!(store.meta().unwrap().part().as_deref(), Some("2/2"));
    assert!(store.completeness().unwrap().is_complete());
    let data = load(&store).unwrap();
    assert_eq!((data.points.len(), data.meta.name.as_str()), (2, "ladder (shard 2/2)"));
    assert!(sweep::analysis::analyse(&data).unwrap().completeness.is_complete());
}

#[test]
fn what_is_missing_of_a_merged_sweep_is_said_and_a_like_machine_goes_on_with_it() {
    let home = tempfile::tempdir().unwrap();
    let one = shard(home.path(), LADDER, (1, 4), &named("a"), Some(2));
    let three = shard(home.path(), LADDER, (3, 4), &named("b"), None);
    let merged = merge(&[one, three], &output(home.path(), "part")).unwrap();
    assert_eq!((merged.absent.as_slice(), merged.shards), (&[2, 4][..], 4));
    assert!(!merged.completeness.is_complete());
    assert_eq!(merged.completeness.planned, 6, "of the shards that are there");
    let mut other = named("c");
    other.machine.host.cpu_model = "Model 2".into();
    let mut store = Store::open(&merged.path).unwrap();
    let refused =
        Runner::new(&mut store, &other, &mut Fakes::new(), &mut Quiet, &AtomicBool::new(false)).run();
    assert!(refused.unwrap_err().to_string().contains("CPU: Model 1 → Model 2"));
    drop(store);
    assert_eq!(resume(&merged.path, &named("c")), Ended::Complete);
    // What was merged can be merged with what comes later.
    let two = shard(home.path(), LADDER, (2, 4), &named("a"), None);
    let four = shard(home.path(), LADDER, (4, 4), &named("a"), None);
    let whole = merge(&[merged.path, two, four], &output(home.path(), "whole")).unwrap();
    assert!(whole.completeness.is_complete() && whole.absent.is_empty());
    assert_eq!(whole.completeness.done, 12);
}

#[test]
fn shards_that_do_not_belong_together_are_refused_with_the_difference() {
    let home = tempfile::tempdir().unwrap();
    let one = shard(home.path(), LADDER, (1, 2), &named("a"), None);
    let refused = |other: &Path, class: ErrorClass, words: &str| {
        let folder = output(home.path(), "refused");
        let error = merge(&[one.clone(), other.to_owned()], &folder).expect_err(words);
        assert!(error.to_string().contains(words), "{error}\n want: {words}");
        assert_eq!(error.class(), class, "{error}");
        assert!(!error.to_string().contains('\n'));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing is left: {error}");
    };
    let mut unlike = named("b");
    unlike.machine.host.kernel = "6.2".into();
    refused(&shard(home.path(), LADDER, (2, 2), &unlike, None), ErrorClass::Refused, "kernel: 6.1 → 6.2");

    let mut version = named("v");
    version.version = "0.2.0".into();
    refused(
        &shard(home.path(), LADDER, (2, 2), &version, None),
        ErrorClass::Refused,
        "flashwright: 0.1.0 → 0.2.0",
    );

    let drives = shard(home.path(), LADDER, (2, 2), &named("c"), None);
    Store::open(&drives).unwrap().set_note(NOTE_DRIVES, "1 × Model, 2 TiB").unwrap();
    refused(&drives, ErrorClass::Refused, "drives: 1 × Model, 1 TiB → 1 × Model, 2 TiB");

    let seed = LADDER.replace("seed = 7", "seed = 8");
    refused(&shard(home.path(), &seed, (2, 2), &named("d"), None), ErrorClass::Invalid, "seed: 7 → 8");
    let space = LADDER.replace("[space]", "[base]\nbs = '8k'\n[space]");
    refused(
        &shard(home.path(), &space, (2, 2), &named("e"), None),
        ErrorClass::Invalid,
        "digest of the plan: ",
    );
    refused(&shard(home.path(), LADDER, (2, 3), &named("f"), None), ErrorClass::Invalid, "shards: 2 → 3");
    refused(&home.path().join("nowhere"), ErrorClass::Invalid, "there is no such results file");

    // The same shard, measured twice.
    refused(&shard(home.path(), LADDER, (1, 2), &named("g"), None), ErrorClass::Invalid, "has other figures");

    let whole = home.path().join("alone");
    std::fs::create_dir(&whole).unwrap();
    drop(begin(&whole, &Space::parse("s", LADDER).unwrap(), &identity()).unwrap());
    refused(&whole, ErrorClass::Invalid, "is a whole sweep and no shard of one");

    let busy = shard(home.path(), LADDER, (2, 2), &named("h"), None);
    let _held = Store::open(&busy).unwrap();
    refused(&busy, ErrorClass::Refused, "is still being measured");
}

#[test]
fn a_copy_of_a_shard_adds_nothing_and_does_no_harm() {
    let home = tempfile::tempdir().unwrap();
    let early = shard(home.path(), LADDER, (1, 2), &named("a"), Some(3));
    let copy = output(home.path(), "copy");
    std::fs::copy(early.join("results.db"), copy.join("results.db")).unwrap();
    assert_eq!(resume(&early, &named("a")), Ended::Complete);
    let merged = merge(&[copy, early.clone(), early], &output(home.path(), "out")).unwrap();
    assert_eq!((merged.completeness.done, merged.completeness.planned), (6, 6));
    let store = Store::open_read_only(&merged.path).unwrap();
    assert_eq!(store.sessions().unwrap().len(), 2, "the interrupted one, and the one that went on");
    let again = merge(std::slice::from_ref(&merged.path), merged.path.parent().unwrap()).unwrap_err();
    assert!(matches!(again, MergeError::Store(sweep::store::StoreError::Exists { .. })), "{again}");
}

#[test]
fn the_digest_of_a_plan_without_layouts_is_that_of_version_0_1_0() {
    // Noted from the commit before layouts; a sweep that was begun then is still the same sweep.
    let digest = Space::parse("s.toml", LADDER).unwrap().plan(7).digest();
    assert_eq!(digest, DIGEST_BEFORE);
}

const DIGEST_BEFORE: &str = "7d38c4224069fba7ffde92bad3e446bf";
