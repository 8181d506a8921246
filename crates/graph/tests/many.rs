//! Searches at once find what each finds alone, and share their pages.

mod common;

use std::sync::atomic::AtomicBool;

use base::IoEngine;
use common::{Edges, adjacency, kronecker, levels, store, ten};
use external::{Space, SpaceOptions, Usage};
use graph::GraphError;
use graph::fetch::Traffic;
use graph::format::{Fwg, Order};
use graph::many::{
    MOST_SOURCES, ManyConfig, most_space_bytes, plan, search, search_with_trees, space_options,
};
use graph::semi::{Semi, SemiConfig};

const CONFIG: ManyConfig = ManyConfig { memory: 64 << 20, threads: 2, engine: IoEngine::Auto };

#[test]
fn each_of_many_searches_finds_what_it_finds_alone() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    for edges in ten() {
        for (order, heads) in [(Order::Degree, 1), (Order::Given, 0)] {
            store(&path, &edges, order, heads);
            let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
            let sources: Vec<u64> = (0..23).map(|i| i * i * 31 % edges.n).collect();
            let stored: Vec<u64> =
                sources.iter().map(|old| graph.stored_number(*old).expect("a number")).collect();
            let stop = AtomicBool::new(false);
            let record = search(&graph, &stored, &CONFIG, &Traffic::of(&graph), &stop).expect("searches");
            let lists = adjacency(&edges);
            let all: Vec<_> = sources.iter().map(|source| levels(&lists, *source)).collect();
            for (at, (found, alone)) in record.found.iter().zip(&all).enumerate() {
                let deepest = *alone.iter().flatten().max().expect("the source");
                let count = |level: u32| alone.iter().flatten().filter(|l| **l == level).count() as u64;
                let wanted: Vec<u64> = (0..=deepest).map(count).collect();
                let first = wanted.len().min(graph::many::MOST_LEVELS);
                assert!(found.levels == wanted[..first], "{} from {}", edges.name, sources[at]);
                assert_eq!(found.level_count, wanted.len() as u64);
                let reaches = |other: &usize| all[*other][sources[at] as usize].is_some();
                let wanted: Vec<usize> = (0..sources.len()).filter(reaches).collect();
                assert_eq!(found.reached_by, wanted, "{} at {}", edges.name, sources[at]);
                let sum: u64 = alone.iter().flatten().map(|level| u64::from(*level)).sum();
                assert_eq!(found.distances, sum);
            }
        }
    }
}

#[test]
fn many_searches_share_pages() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let edges = kronecker(15, 16, 9);
    let header = store(&path, &edges, Order::Degree, 1);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    let stop = AtomicBool::new(false);
    let sources: Vec<u64> = (0..64).map(|i| i * 7919 % header.listed).collect();
    let together = Traffic::of(&graph);
    search(&graph, &sources, &CONFIG, &together, &stop).expect("searches");
    let alone = Traffic::of(&graph);
    for source in &sources {
        let config = SemiConfig { memory: 64 << 20, threads: 2, engine: IoEngine::Auto };
        let mut semi = Semi::new(&graph, &alone, config).expect("fits");
        semi.search(*source, &stop).expect("searches");
    }
    let (together, alone) = (together.bytes(), alone.bytes());
    assert!(together * 3 < alone, "{together} of {alone}");
}

#[test]
fn sources_and_memory_are_checked_before_the_start() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    store(&path, &kronecker(10, 8, 9), Order::Degree, 1);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    let (traffic, stop) = (Traffic::of(&graph), AtomicBool::new(false));
    let run = |sources: &[u64], config| search(&graph, sources, &config, &traffic, &stop);
    assert!(matches!(run(&[], CONFIG), Err(GraphError::Invalid { .. })));
    assert!(matches!(run(&[0; MOST_SOURCES + 1], CONFIG), Err(GraphError::Invalid { .. })));
    assert!(matches!(run(&[0, 1024], CONFIG), Err(GraphError::NoVertex { vertex: 1024, .. })));
    let small = ManyConfig { memory: 4 << 20, ..CONFIG };
    assert!(matches!(run(&[0], small), Err(GraphError::Memory { .. })));
    assert_eq!(traffic.bytes(), 0);
    // What is said to be needed is enough, for as many threads as that has room for.
    for trees in [false, true] {
        let least = ManyConfig { memory: 1, threads: usize::MAX, ..CONFIG };
        let Err(GraphError::Memory { needed, .. }) = plan(&graph, &least, trees) else { panic!("one byte") };
        let least = plan(&graph, &ManyConfig { memory: needed, ..least }, trees).expect("is enough");
        assert!(least.bytes <= needed, "trees {trees}: {least:?}");
    }
    let narrow = ManyConfig { memory: 24 << 20, threads: 512, ..CONFIG };
    assert_eq!(
        run(&[0], narrow).expect("with fewer threads").found[0].reached,
        run(&[0], CONFIG).expect("searches").found[0].reached
    );
}

/// The tree of each search: levels are those of a search in memory, and parents are neighbours one level nearer.
fn check_trees(edges: &Edges, graph: &Fwg, sources: &[u64], config: &ManyConfig) -> Usage {
    let folder = tempfile::tempdir().expect("a directory");
    let options = space_options(config.memory);
    let space =
        Space::scratch(folder.path(), most_space_bytes(graph, sources.len()), &options).expect("is made");
    let stored: Vec<u64> = sources.iter().map(|old| graph.stored_number(*old).expect("a number")).collect();
    let (traffic, stop) = (Traffic::of(graph), AtomicBool::new(false));
    let (record, found) =
        search_with_trees(graph, &stored, config, &traffic, &stop, &space).expect("searches");
    let limits = (config.memory, config.threads);
    let mut trees = found.trees(graph, sources, limits, &stop).expect("sorts");
    let lists = adjacency(edges);
    for (search, source) in sources.iter().enumerate() {
        let wanted = levels(&lists, *source);
        let mut reached = vec![None; edges.n as usize];
        let mut last = None;
        while let Some(found) = trees.next_of(search).expect("reads") {
            assert!(last < Some(found.vertex), "ascending");
            last = Some(found.vertex);
            reached[found.vertex as usize] = Some((found.parent, found.level));
        }
        assert_eq!(record.found[search].reached, reached.iter().flatten().count() as u64);
        for (vertex, wanted_level) in wanted.iter().enumerate() {
            let what = format!("{} from {source}: vertex {vertex}", edges.name);
            let level = reached[vertex].map(|(_, level)| level);
            assert_eq!(level, wanted_level.map(u64::from), "{what}");
            match reached[vertex] {
                Some((parent, 0)) => assert_eq!((parent, vertex as u64), (*source, *source), "{what}"),
                Some((parent, level)) => {
                    assert_eq!(wanted[parent as usize].map(u64::from), Some(level - 1), "{what}");
                    assert!(lists[parent as usize].binary_search(&(vertex as u64)).is_ok(), "{what}");
                }
                None => {}
            }
        }
    }
    trees.usage()
}

#[test]
fn the_tree_of_each_search_is_one_of_a_search_alone() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    for edges in ten() {
        for (order, heads, threads) in [(Order::Degree, 1, 2), (Order::Given, 0, 1)] {
            store(&path, &edges, order, heads);
            let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
            // One of them twice.
            let sources: Vec<u64> = (0..9).map(|i| i * i * 31 % edges.n).chain([0]).collect();
            check_trees(&edges, &graph, &sources, &ManyConfig { threads, ..CONFIG });
        }
    }
}

#[test]
fn trees_that_do_not_fit_in_memory_are_sorted_on_the_drive() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let edges = kronecker(14, 8, 5);
    store(&path, &edges, Order::Degree, 1);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    let least = ManyConfig { memory: 1, ..CONFIG };
    let Err(GraphError::Memory { needed, .. }) = plan(&graph, &least, true) else { panic!("is too little") };
    let sources: Vec<u64> = (0..64).map(|i| i * 251).collect();
    let usage = check_trees(&edges, &graph, &sources, &ManyConfig { memory: needed + (1 << 20), ..CONFIG });
    // 64 trees of about 10,000 vertices, 16 bytes each.
    assert!(usage.bytes_written > 8 << 20, "{usage:?}");
}

#[test]
fn a_full_space_ends_searches_with_its_name() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let edges = kronecker(14, 8, 5);
    store(&path, &edges, Order::Degree, 1);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    let small = SpaceOptions { block_bytes: 4096, ..SpaceOptions::default() };
    let space = Space::scratch(folder.path(), 128 << 10, &small).expect("is made");
    let (traffic, stop) = (Traffic::of(&graph), AtomicBool::new(false));
    let sources: Vec<u64> = (0..64).collect();
    let error = search_with_trees(&graph, &sources, &CONFIG, &traffic, &stop, &space).expect_err("is full");
    assert!(error.to_string().contains("is full: all 128 KiB of it are in use"), "{error}");
}
