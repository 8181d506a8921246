//! Searches at once find what each finds alone, and share their pages.

mod common;

use std::sync::atomic::AtomicBool;

use base::IoEngine;
use common::{adjacency, kronecker, levels, store, ten};
use graph::GraphError;
use graph::fetch::Traffic;
use graph::format::{Fwg, Order};
use graph::many::{MOST_SOURCES, ManyConfig, search};
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
                assert_eq!(found.levels, wanted, "{} from {}", edges.name, sources[at]);
                let reaches = |other: &usize| all[*other][sources[at] as usize].is_some();
                let wanted: Vec<usize> = (0..sources.len()).filter(reaches).collect();
                assert_eq!(found.reached_by, wanted, "{} at {}", edges.name, sources[at]);
                let sum: u64 = alone.iter().flatten().map(|level| u64::from(*level)).sum();
                assert_eq!(found.distances(), sum);
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
    let (index, stop) = (graph.index().expect("reads"), AtomicBool::new(false));
    let sources: Vec<u64> = (0..64).map(|i| i * 7919 % header.listed).collect();
    let together = Traffic::of(&graph);
    search(&graph, &sources, &CONFIG, &together, &stop).expect("searches");
    let alone = Traffic::of(&graph);
    for source in &sources {
        let config = SemiConfig { memory: 64 << 20, threads: 2, engine: IoEngine::Auto };
        let mut semi = Semi::new(&graph, &index, &alone, config).expect("fits");
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
}
