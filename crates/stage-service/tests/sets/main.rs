//! Sets that many nodes write, each node with a fast directory of its own, on a slow tier that all of them see: a directory,
//! and an object store.
#![forbid(unsafe_code)]

mod kept;
mod model;
mod partner;

use std::fs;
use std::path::{Path, PathBuf};

use stage::error::ErrorClass;
use stage::names::PathText;
use stage::parts::PartId;
use stage::{Level, StageError};
use stage_service::store::{Member, Store, StoreConfig, always};
use stage_service::{Mover, MoverConfig};

/// Nodes and the slow tier that they share.
struct Cluster {
    nodes: tempfile::TempDir,
    folder: tempfile::TempDir,
    /// The slow tier is an object store in a directory.
    objects: bool,
}

impl Cluster {
    fn new(objects: bool) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(folder.path().join("slow")).unwrap();
        // Fast tiers are in memory, where there is such a directory.
        let in_memory = tempfile::Builder::new().prefix("flashwright-sets").tempdir_in("/dev/shm");
        let nodes = in_memory.unwrap_or_else(|_| tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
        Self { nodes, folder, objects }
    }

    fn slow_directory(&self) -> PathBuf {
        self.folder.path().join("slow")
    }

    fn config(&self, run: &str, rank: u32, ranks: u32) -> StoreConfig {
        let slow = self.slow_directory();
        let slow = if self.objects { format!("file://{}", slow.display()).into() } else { slow };
        let member = Member {
            run: run.parse().unwrap(),
            part: PartId::new(rank, ranks).unwrap(),
            node: format!("node-{rank}"),
            partner: None,
        };
        StoreConfig {
            member: Some(member),
            tiers: stage_object::tiers(),
            ..StoreConfig::new(self.nodes.path().join(format!("node-{rank}")), slow)
        }
    }

    fn open(&self, run: &str, rank: u32, ranks: u32) -> Store {
        Store::open(self.config(run, rank, ranks)).unwrap()
    }
}

/// What a rank writes at a step.
fn contents(run: &str, step: u64, rank: u32) -> String {
    format!("run {run}, step {step}, rank {rank}")
}

fn commit(store: &Store, run: &str, step: u64, rank: u32) {
    let directory = store.begin(step).unwrap();
    fs::create_dir(directory.join("layer")).unwrap();
    fs::write(directory.join("layer/weights"), contents(run, step, rank)).unwrap();
    fs::write(directory.join(".hidden"), "sorts before a manifest").unwrap();
    store.commit(step).unwrap();
}

fn drain(store: &Store, run: &str, step: u64, rank: u32) {
    commit(store, run, step, rank);
    assert!(store.wait(Some(step), Level::Durable, None, &always).unwrap());
}

fn read(part: &Path) -> String {
    fs::read_to_string(part.join("layer/weights")).unwrap()
}

/// Carries a case out on both kinds of slow tier.
fn on_both(case: impl Fn(&Cluster)) {
    for objects in [false, true] {
        println!("objects: {objects}");
        case(&Cluster::new(objects));
    }
}

#[test]
fn a_set_is_complete_when_the_last_part_is_durable_and_every_rank_restores_its_own() {
    on_both(|cluster| {
        let stores: Vec<Store> = (0..3).map(|rank| cluster.open("a", rank, 3)).collect();
        for rank in [2, 0] {
            drain(&stores[rank as usize], "a", 100, rank);
        }
        assert_eq!(stores[0].latest(Level::Durable).unwrap(), None);
        assert_eq!(stores[0].latest(Level::Local).unwrap(), None, "a part alone is no checkpoint");
        let error = stores[0].restore(100, true, &always).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Refused);
        assert!(error.to_string().contains("rank 1: its part is not there"), "{error}");
        drain(&stores[1], "a", 100, 1);
        for (rank, store) in (0..).zip(&stores) {
            assert!(store.wait_set(100, None, &always).unwrap());
            assert_eq!(store.latest(Level::Durable).unwrap(), Some(100));
            assert_eq!(read(&store.restore(100, true, &always).unwrap()), contents("a", 100, rank));
        }
    });
}

#[test]
fn a_program_with_another_number_of_ranks_restores_parts_by_rank_from_the_slow_tier() {
    on_both(|cluster| {
        for rank in 0..3 {
            drain(&cluster.open("a", rank, 3), "a", 7, rank);
        }
        let store = cluster.open("b", 0, 1);
        let (id, record) = store.latest_set().unwrap().expect("it is complete");
        assert_eq!((id.step, id.run.as_str(), record.ranks), (7, "a", 3));
        assert_eq!(store.restore(7, true, &always).unwrap_err().class(), ErrorClass::Refused);
        for rank in 0..3 {
            let part = store.restore_part(7, None, Some(rank), true, &always).unwrap();
            assert_eq!(read(&part), contents("a", 7, rank));
        }
        let own = cluster.nodes.path().join("node-0/rank-000000-of-000001");
        let staged = || {
            fs::read_dir(&own)
                .unwrap()
                .filter(|one| one.as_ref().unwrap().file_name().to_string_lossy().contains("step-"))
        };
        assert_eq!(staged().count(), 3);
        store.close().unwrap();
        assert_eq!(staged().count(), 0, "parts of other ranks go with the store");
    });
}

#[test]
fn two_runs_with_the_same_steps_never_mix() {
    on_both(|cluster| {
        // The first run dies when one of two parts of step 5 is durable, and is begun anew.
        drain(&cluster.open("first", 0, 2), "first", 5, 0);
        let stores = [cluster.open("second", 0, 2), cluster.open("second", 1, 2)];
        drain(&stores[1], "second", 5, 1);
        assert_eq!(stores[0].latest_set().unwrap(), None);
        drain(&stores[0], "second", 5, 0);
        let (id, _) = stores[0].latest_set().unwrap().expect("complete");
        assert_eq!(id.run.as_str(), "second");
        for (rank, store) in (0..).zip(&stores) {
            assert_eq!(read(&store.restore(5, true, &always).unwrap()), contents("second", 5, rank));
        }
        let surveys = stores[0].sets().unwrap();
        let incomplete: Vec<_> = surveys.iter().filter(|set| !set.is_complete).collect();
        assert_eq!(incomplete.len(), 1);
        assert_eq!((incomplete[0].id.run.as_str(), incomplete[0].faults[0].rank), ("first", 1));
    });
}

#[test]
fn a_node_that_never_comes_back_is_named_and_the_set_before_is_restored_and_kept() {
    on_both(|cluster| {
        let keep =
            |rank| StoreConfig { keep_slow: Some(1), keep_fast: Some(1), ..cluster.config("a", rank, 2) };
        let stores = [Store::open(keep(0)).unwrap(), Store::open(keep(1)).unwrap()];
        for step in [1, 2] {
            for (rank, store) in (0..).zip(&stores) {
                drain(store, "a", step, rank);
            }
        }
        for step in [3, 4, 5] {
            drain(&stores[0], "a", step, 0);
        }
        let sets = stores[0].sets().unwrap();
        let steps: Vec<_> = sets.iter().map(|set| (set.id.step, set.is_complete)).collect();
        assert_eq!(steps, [(2, true), (3, false), (4, false), (5, false)], "1 went for 2; 2 stays");
        for set in &sets[1..] {
            let faults: Vec<_> = set.faults.iter().map(ToString::to_string).collect();
            assert_eq!(faults, ["rank 1 (node-1): its part is not there"]);
        }
        assert_eq!(stores[0].latest(Level::Durable).unwrap(), Some(2));
        assert_eq!(read(&stores[0].restore(2, true, &always).unwrap()), contents("a", 2, 0));
    });
}

/// The steps of the sets that are there.
fn steps(store: &Store) -> Vec<u64> {
    store.sets().unwrap().iter().map(|set| set.id.step).collect()
}

#[test]
fn a_fast_copy_stays_unless_its_set_was_removed_and_a_newer_one_is_complete() {
    let cluster = Cluster::new(false);
    let keep = |rank| StoreConfig { keep_fast: Some(1), ..cluster.config("a", rank, 2) };
    let open = || [Store::open(keep(0)).unwrap(), Store::open(keep(1)).unwrap()];
    let stores = open();
    let set = |step: u64| cluster.slow_directory().join(format!("step-{step:08}.run-a"));
    let own = cluster.nodes.path().join("node-1/rank-000001-of-000002");
    let here = |step: u64| own.join(format!("step-{step:08}.run-a")).exists();
    for (rank, store) in (0..).zip(&stores) {
        drain(store, "a", 2, rank);
    }
    fs::remove_dir_all(set(2)).unwrap();
    drain(&stores[1], "a", 3, 1);
    drop(stores);
    let stores = open();
    assert!(here(2), "no newer set is complete");
    fs::write(set(3).join("rank-000001-of-000002/layer/weights"), "torn").unwrap();
    for (rank, store) in (0..).zip(&stores) {
        drain(store, "a", 4, rank);
    }
    drop(stores);
    drop(open());
    assert!(here(3), "its set is there still, and its part is torn");
    assert!(!here(2), "its set was removed, and 4 is complete");
}

#[test]
fn what_was_durable_once_is_not_drained_again_after_its_set_was_removed() {
    let cluster = Cluster::new(false);
    for rank in 0..2 {
        drain(&cluster.open("a", rank, 2), "a", 1, rank);
    }
    // A new node takes the place of rank 1.
    fs::remove_dir_all(cluster.nodes.path().join("node-1")).unwrap();
    let store = cluster.open("b", 1, 2);
    assert_eq!(read(&store.restore(1, true, &always).unwrap()), contents("a", 1, 1));
    drop(store);
    fs::remove_dir_all(cluster.slow_directory().join("step-00000001.run-a")).unwrap();
    for rank in 0..2 {
        let store = cluster.open("c", rank, 2);
        drain(&store, "c", 2, rank);
        assert_eq!(steps(&store), [2], "rank {rank}");
    }
}

#[test]
fn what_is_wrong_with_a_part_is_named_with_its_rank_and_node() {
    let cluster = Cluster::new(false);
    let part = |run: &str, step: u64, rank: u32| {
        cluster.slow_directory().join(format!("step-{step:08}.run-{run}/rank-{rank:06}-of-000002"))
    };
    for run in ["a", "b"] {
        for rank in 0..2 {
            drain(&cluster.open(run, rank, 2), run, 1, rank);
        }
    }
    let store = cluster.open("c", 0, 2);
    let fault = || {
        let sets = store.sets().unwrap();
        let set = sets.iter().find(|set| set.id.run.as_str() == "a").unwrap();
        assert!(!set.is_complete, "{set:?}");
        set.faults.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    fs::write(part("a", 1, 1).join("layer/weights"), "torn").unwrap();
    assert_eq!(
        fault(),
        ["rank 1 (node-1): its part lacks a file, or has one of another size, than its manifest lists"]
    );
    assert_eq!(store.latest_set().unwrap().unwrap().0.run.as_str(), "b");
    fs::write(part("a", 1, 1).join(".flashwright-manifest"), "{").unwrap();
    assert_eq!(fault(), ["rank 1: its part has no manifest that is whole"]);
    fs::remove_dir_all(part("a", 1, 1)).unwrap();
    fs::rename(part("b", 1, 1), part("a", 1, 1)).unwrap();
    assert_eq!(fault(), ["rank 1 (node-1): its part is of run b"]);
    assert_eq!(store.latest_set().unwrap(), None);
}

#[test]
fn a_set_whose_last_drainer_died_before_it_was_complete_is_completed_by_any_other() {
    on_both(|cluster| {
        for rank in 0..2 {
            drain(&cluster.open("a", rank, 2), "a", 9, rank);
        }
        let record = cluster.slow_directory().join("step-00000009.run-a/.flashwright-manifest");
        let text = fs::read(&record).unwrap();
        fs::remove_file(&record).unwrap();
        let reader = Store::open(StoreConfig { read_only: true, ..cluster.config("a", 0, 2) }).unwrap();
        assert_eq!(reader.latest_set().unwrap(), None, "a reader publishes nothing");
        drop(reader);
        assert_eq!(cluster.open("a", 1, 2).latest(Level::Durable).unwrap(), Some(9));
        assert_eq!(fs::read(&record).unwrap(), text);
    });
}

#[test]
fn what_an_earlier_run_left_undrained_is_drained_by_the_next_that_opens_the_directory() {
    on_both(|cluster| {
        drain(&cluster.open("a", 0, 2), "a", 3, 0);
        // No thread drains: it is committed on the fast tier alone, and the process dies.
        let store = cluster.open("a", 1, 2);
        commit(&store, "a", 3, 1);
        let committed = store.path(3).unwrap_err();
        assert!(matches!(committed, StageError::Invalid { .. }));
        drop(store);
        let next = cluster.open("b", 1, 2);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while next.latest(Level::Durable).unwrap() != Some(3) {
            assert!(std::time::Instant::now() < until, "{:?}", next.sets());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(next.latest_set().unwrap().unwrap().0.run.as_str(), "a");
    });
}

#[test]
fn threads_and_processes_that_complete_a_set_at_once_agree() {
    on_both(|cluster| {
        let stores: Vec<Store> = (0..3).map(|rank| cluster.open("a", rank, 3)).collect();
        for (rank, store) in (0..).zip(&stores) {
            drain(store, "a", 1, rank);
        }
        let record = cluster.slow_directory().join("step-00000001.run-a/.flashwright-manifest");
        let text = fs::read(&record).unwrap();
        for _ in 0..10 {
            fs::remove_file(&record).unwrap();
            std::thread::scope(|scope| {
                for store in stores.iter().chain(&stores) {
                    scope.spawn(|| assert_eq!(store.latest(Level::Durable).unwrap(), Some(1)));
                }
            });
            assert_eq!(fs::read(&record).unwrap(), text);
        }
        let names = fs::read_dir(record.parent().unwrap()).unwrap().count();
        assert_eq!(names, 4, "three parts and the record");
    });
}

#[test]
fn a_part_is_stored_in_its_own_place_and_in_no_other() {
    let cluster = Cluster::new(false);
    let store = cluster.open("a", 0, 2);
    commit(&store, "a", 1, 0);
    let (_, job) = store.progress().unwrap().pop().unwrap();
    let mut spec = job.spec;
    drop(store);
    let mover = Mover::open(&MoverConfig::new(cluster.nodes.path().join("state"))).unwrap();
    spec.destination = stage::Place::Path(PathText(cluster.slow_directory().join("elsewhere")));
    let error = mover.submit(spec).unwrap_err();
    assert!(error.to_string().contains("not the place of rank 0"), "{error}");
}
