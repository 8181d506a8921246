//! What goes and what stays of sets, on the slow tier and on each rank's fast one.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use stage::Level;
use stage_service::store::{Store, StoreConfig, always};

use crate::{Cluster, commit, drain, on_both};

/// The stores of two ranks that keep so many.
fn pair(cluster: &Cluster, run: &str, keep_fast: Option<u32>, keep_slow: u32) -> [Store; 2] {
    [0, 1].map(|rank| {
        let config = cluster.config(run, rank, 2);
        Store::open(StoreConfig { keep_fast, keep_slow: Some(keep_slow), ..config }).unwrap()
    })
}

fn drain_all(stores: &[Store; 2], run: &str, step: u64) {
    for (rank, store) in (0..).zip(stores) {
        drain(store, run, step, rank);
    }
    // What follows the last part's drain ends with it.
    for store in stores {
        assert!(store.wait(Some(step), Level::Durable, None, &always).unwrap());
    }
}

/// The sets that have anything on the slow tier.
fn on_slow(cluster: &Cluster) -> Vec<String> {
    let names = fs::read_dir(cluster.slow_directory()).unwrap();
    let mut names: Vec<String> = names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    let has_any = |name: &str| fs::read_dir(cluster.slow_directory().join(name)).unwrap().next().is_some();
    names.retain(|name| name.starts_with("step-") && has_any(name));
    names.sort();
    names
}

#[test]
fn a_wait_for_a_set_that_has_gone_for_newer_ones_ends() {
    on_both(|cluster| {
        let stores = pair(cluster, "a", Some(1), 1);
        for step in [1, 2] {
            drain_all(&stores, "a", step);
        }
        assert_eq!(on_slow(cluster), ["step-00000002.run-a"]);
        assert!(stores[0].wait_set(1, Some(Duration::from_secs(5)), &always).unwrap());
    });
}

#[test]
fn a_part_whose_set_has_gone_is_not_drained_again() {
    on_both(|cluster| {
        let stores = pair(cluster, "a", None, 1);
        for step in [1, 2] {
            drain_all(&stores, "a", step);
        }
        drop(stores);
        assert_eq!(on_slow(cluster), ["step-00000002.run-a"]);
        for run in ["a", "b"] {
            let store = &pair(cluster, run, None, 1)[0];
            assert!(store.wait(None, Level::Durable, None, &always).unwrap());
            assert_eq!(on_slow(cluster), ["step-00000002.run-a"], "{run}");
        }
    });
}

/// What a rank has on its fast tier, of two.
fn here(cluster: &Cluster, rank: u32) -> Vec<String> {
    let own = cluster.nodes.path().join(format!("node-{rank}/rank-{rank:06}-of-000002"));
    let mut names: Vec<String> =
        fs::read_dir(own).unwrap().map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.contains("step-"));
    names.sort();
    names
}

#[test]
fn a_part_that_was_restored_while_its_set_went_goes_when_the_store_is_opened() {
    on_both(|cluster| {
        let stores = pair(cluster, "a", Some(1), 1);
        drain_all(&stores, "a", 1);
        for store in &stores {
            store.restore(1, true, &always).unwrap();
        }
        for step in [2, 3] {
            drain_all(&stores, "a", step);
        }
        assert_eq!(here(cluster, 0), ["step-00000001.run-a", "step-00000003.run-a"], "it is restored");
        drop(stores);
        // Its owner has written to the one of the other rank.
        let changed =
            cluster.nodes.path().join("node-1/rank-000001-of-000002/step-00000001.run-a/layer/weights");
        fs::write(changed, "changed").unwrap();
        drop(pair(cluster, "b", Some(1), 1));
        assert_eq!(here(cluster, 0), ["step-00000003.run-a"]);
        assert_eq!(here(cluster, 1), ["step-00000001.run-a", "step-00000003.run-a"]);
        assert_eq!(on_slow(cluster), ["step-00000003.run-a"]);
    });
}

#[test]
fn a_part_that_was_staged_in_goes_when_the_store_is_opened_and_newer_ones_are_there() {
    on_both(|cluster| {
        drain_all(&pair(cluster, "a", Some(1), 1), "a", 1);
        // Nodes that have lost their flash.
        for rank in 0..2 {
            fs::remove_dir_all(cluster.nodes.path().join(format!("node-{rank}"))).unwrap();
        }
        let stores = pair(cluster, "b", Some(1), 1);
        for store in &stores {
            store.restore(1, true, &always).unwrap();
        }
        drop(stores);
        let stores = pair(cluster, "b", Some(1), 1);
        assert_eq!(here(cluster, 0), ["step-00000001.run-a"], "it is the newest");
        for step in [2, 3] {
            drain_all(&stores, "b", step);
        }
        drop(stores);
        let changed =
            cluster.nodes.path().join("node-1/rank-000001-of-000002/step-00000001.run-a/layer/weights");
        fs::write(changed, "changed").unwrap();
        drop(pair(cluster, "c", Some(2), 1));
        assert_eq!(here(cluster, 0), ["step-00000001.run-a", "step-00000003.run-b"], "two are kept");
        // Another process has it restored.
        let reader =
            fs::File::open(cluster.nodes.path().join("node-0/rank-000000-of-000002/step-00000001.run-a"))
                .unwrap();
        assert!(stage::lock::at_once(reader.as_fd(), false, Path::new("")).unwrap());
        drop(pair(cluster, "c", Some(1), 1));
        assert_eq!(here(cluster, 0), ["step-00000001.run-a", "step-00000003.run-b"]);
        drop(reader);
        drop(pair(cluster, "c", Some(1), 1));
        assert_eq!(here(cluster, 0), ["step-00000003.run-b"]);
        assert_eq!(here(cluster, 1), ["step-00000001.run-a", "step-00000003.run-b"], "it is changed");
    });
}

#[test]
fn a_part_whose_set_was_lost_and_not_superseded_is_kept_and_drained_again() {
    on_both(|cluster| {
        let stores = pair(cluster, "a", Some(1), 1);
        drain_all(&stores, "a", 1);
        // A newer one of this node, which is not complete.
        drain(&stores[0], "a", 2, 0);
        let part = stores[0].restore(1, true, &always);
        assert!(part.is_ok(), "{part:?}");
        drop(stores);
        fs::remove_dir_all(cluster.slow_directory().join("step-00000001.run-a")).unwrap();
        let stores = pair(cluster, "a", Some(1), 1);
        assert!(stores[0].wait(None, Level::Durable, None, &always).unwrap());
        assert!(stores[0].wait_set(1, None, &always).unwrap());
    });
}

#[test]
fn a_drain_of_an_earlier_run_that_fails_is_told_and_waited_for() {
    let cluster = Cluster::new(false);
    let in_the_way = cluster.slow_directory().join("step-00000003.run-a");
    fs::write(&in_the_way, "no directory").unwrap();
    let store = cluster.open("a", 0, 2);
    commit(&store, "a", 3, 0);
    store.wait(Some(3), Level::Durable, None, &always).unwrap_err();
    drop(store);
    let next = cluster.open("b", 0, 2);
    for _ in 0..2 {
        let error = next.wait(None, Level::Durable, None, &always).unwrap_err();
        assert!(error.to_string().starts_with("step-00000003.run-a is not drained"), "{error}");
    }
    fs::remove_file(&in_the_way).unwrap();
    assert_eq!(next.retry().unwrap(), 1);
    assert!(next.wait(None, Level::Durable, None, &always).unwrap());
    assert!(in_the_way.join("rank-000000-of-000002/layer").is_dir());
}
