//! A part on another node's flash until it is durable, and what a lost node has left there.

use std::fs;
use std::path::PathBuf;

use stage::Level;
use stage::error::ErrorClass;
use stage_service::store::{Store, StoreConfig, always, drain_left};

use crate::{Cluster, commit, contents, drain, on_both, read};

fn with_partner(cluster: &Cluster, run: &str, rank: u32, of: u32) -> StoreConfig {
    let mut config = cluster.config(run, rank, 2);
    if let Some(member) = &mut config.member {
        member.partner = Some(node(cluster, of));
    }
    config
}

fn node(cluster: &Cluster, rank: u32) -> PathBuf {
    cluster.nodes.path().join(format!("node-{rank}"))
}

/// Waits for what comes for certain.
fn until(is_there: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_there() {
        assert!(begun.elapsed().as_secs() < 60, "it does not come");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// The copies at a node of what another rank has written.
fn kept_at(cluster: &Cluster, at: u32, rank: u32) -> usize {
    let directory = node(cluster, at).join(format!("rank-{rank:06}-of-000002"));
    let names = fs::read_dir(directory).into_iter().flatten().map(|one| one.unwrap().file_name());
    names.filter(|name| !name.to_string_lossy().starts_with(".flashwright")).count()
}

#[test]
fn a_node_that_is_lost_with_what_it_has_not_drained_loses_nothing() {
    on_both(|cluster| {
        let first = cluster.open("a", 0, 2);
        for step in [1, 2] {
            drain(&first, "a", step, 0);
        }
        let mut config = with_partner(cluster, "a", 1, 0);
        let second = Store::open(config.clone()).unwrap();
        drain(&second, "a", 1, 1);
        drop(second);
        // Its drain of step 2 does not come far.
        config.options.bwlimit = Some(1);
        let second = Store::open(config).unwrap();
        commit(&second, "a", 2, 1);
        assert!(second.wait_partner(2, None, &always).unwrap());
        second.begin(3).unwrap();
        assert_eq!(kept_at(cluster, 0, 1), 1, "it is not durable yet");
        let begun = cluster.slow_directory().join("step-00000002.run-a/rank-000001-of-000002");
        if cluster.objects {
            until(|| begun.join(".flashwright-claim").exists());
        }
        drop(second);
        fs::remove_dir_all(node(cluster, 1)).unwrap();
        assert_eq!(first.latest(Level::Durable).unwrap(), Some(1));
        drop(first);
        let drain_all = || {
            let left = drain_left(&cluster.config("b", 0, 1), "node-0", &always).unwrap();
            let found = left.iter().map(|left| (left.part.rank, left.failed.len(), left.busy.is_none()));
            (found.collect::<Vec<_>>(), format!("{left:?}"))
        };
        if cluster.objects {
            // Nobody but a person can know that the drain which has the claim never goes on.
            let (found, left) = drain_all();
            assert_eq!(found, [(0, 0, true), (1, 1, true)], "{left}");
            assert!(left.contains("another drain has claimed this name"), "{left}");
            fs::remove_dir_all(&begun).unwrap();
        }
        let (found, left) = drain_all();
        assert_eq!(found, [(0, 0, true), (1, 0, true)], "{left}");
        // The next launch, on a new node.
        let stores = [cluster.open("b", 0, 2), cluster.open("b", 1, 2)];
        for (rank, store) in (0..).zip(&stores) {
            assert_eq!(store.latest(Level::Durable).unwrap(), Some(2));
            assert_eq!(read(&store.restore(2, true, &always).unwrap()), contents("a", 2, rank));
        }
    });
}

#[test]
fn a_copy_at_the_partner_goes_once_the_part_is_durable() {
    let cluster = Cluster::new(false);
    fs::create_dir(node(&cluster, 0)).unwrap();
    let store = Store::open(with_partner(&cluster, "a", 1, 0)).unwrap();
    commit(&store, "a", 1, 1);
    assert!(store.wait_partner(1, None, &always).unwrap());
    assert!(store.wait(Some(1), Level::Durable, None, &always).unwrap());
    commit(&store, "a", 2, 1);
    assert!(store.wait(Some(2), Level::Durable, None, &always).unwrap());
    // The journal knows the copies also in another process.
    drop(store);
    let store = Store::open(with_partner(&cluster, "a", 1, 0)).unwrap();
    assert_eq!(kept_at(&cluster, 0, 1), 0);
    assert_eq!(
        read(&node(&cluster, 1).join("rank-000001-of-000002/step-00000002.run-a")),
        contents("a", 2, 1)
    );
    drop(store);
}

#[test]
fn a_partner_that_is_the_node_itself_or_is_not_there_is_refused() {
    let cluster = Cluster::new(false);
    let error = Store::open(with_partner(&cluster, "a", 1, 1)).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Invalid, "{error}");
    assert!(error.to_string().contains("own fast directory"), "{error}");
    let error = Store::open(with_partner(&cluster, "a", 1, 0)).unwrap_err();
    assert!(error.to_string().contains("there is no such directory"), "{error}");
}

#[test]
fn a_directory_that_a_store_has_open_is_left_to_it() {
    let cluster = Cluster::new(false);
    let store = cluster.open("a", 0, 2);
    let left = drain_left(&cluster.config("b", 0, 1), "node-0", &always).unwrap();
    assert!(left[0].busy.as_ref().is_some_and(|why| why.contains("writes to this store")), "{left:?}");
    drop(store);
}
