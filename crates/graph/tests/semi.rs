//! Semi-external searches find the levels that a search in memory finds.

mod common;

use std::sync::atomic::AtomicBool;

use base::IoEngine;
use common::{Edges, adjacency, kronecker, levels, store, ten};
use graph::GraphError;
use graph::fetch::Traffic;
use graph::format::{Fwg, Order};
use graph::semi::{Direction, SearchRecord, Semi, SemiConfig, UNREACHED};

const MEMORY: u64 = 64 << 20;

fn config(threads: usize) -> SemiConfig {
    SemiConfig { memory: MEMORY, threads, engine: IoEngine::Auto }
}

/// Searches a stored graph from an input vertex, and compares levels with a search in memory. Parents must be neighbours one
/// level nearer.
fn compare(edges: &Edges, graph: &Fwg, source: u64, threads: usize) -> SearchRecord {
    search(edges, graph, source, config(threads))
}

fn search(edges: &Edges, graph: &Fwg, source: u64, config: SemiConfig) -> SearchRecord {
    let lists = adjacency(edges);
    let wanted = levels(&lists, source);
    let traffic = Traffic::of(graph);
    let mut semi = Semi::new(graph, &traffic, config).expect("fits");
    let stored = graph.stored_number(source).expect("a number");
    let record = semi.search(stored, &AtomicBool::new(false)).expect("searches");
    let parents = semi.into_parents();
    let [by_old, by_new] = common::numbers(graph);
    for old in 0..edges.n {
        let parent = parents[by_old[old as usize] as usize];
        let what = format!("{} from {source}: vertex {old}", edges.name);
        match wanted[old as usize] {
            None => assert_eq!(parent, UNREACHED, "{what}"),
            Some(0) => assert_eq!(u64::from(parent), stored, "{what}"),
            Some(level) => {
                assert_ne!(parent, UNREACHED, "{what}");
                let parent = by_new[parent as usize];
                assert_eq!(wanted[parent as usize], Some(level - 1), "{what}");
                assert!(lists[parent as usize].binary_search(&old).is_ok(), "{what}");
            }
        }
    }
    assert_eq!(record.reached, wanted.iter().flatten().count() as u64);
    assert_eq!(record.level_count, u64::from(*wanted.iter().flatten().max().expect("the source")) + 1);
    record
}

#[test]
fn levels_are_those_of_a_search_in_memory_on_ten_graphs() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    for edges in ten() {
        for (order, heads, threads) in [(Order::Degree, 1, 2), (Order::Given, 2, 1), (Order::Degree, 0, 3)] {
            store(&path, &edges, order, heads);
            let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
            for source in [0, edges.n / 2, edges.n - 1] {
                compare(&edges, &graph, source, threads);
            }
        }
    }
}

#[test]
fn a_skewed_graph_is_searched_bottom_up_and_reads_a_fraction() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let edges = kronecker(16, 16, 7);
    let header = store(&path, &edges, Order::Degree, 1);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    let record = compare(&edges, &graph, 1, 2);
    assert!(record.levels.iter().any(|level| level.direction == Direction::BottomUp));
    let bytes: u64 = record.levels.iter().map(|level| level.bytes).sum();
    assert!(bytes < header.entries * 4, "{bytes} of {}", header.entries * 4);
}

/// A front moves over the map for a thousand levels, and most of its pages are those of the level before. Heads, which no such level
/// looks at, must not take their place.
#[test]
fn a_road_network_is_searched_from_pages_that_are_kept() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let header = store(&path, &common::grid(512, 512), Order::Given, 2);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    let traffic = Traffic::of(&graph);
    let lists = header.section(graph::format::SectionKind::Adjacency).length;
    // What the search needs, and as much as the lists.
    let needed = graph::semi::plan(&graph, &config(1)).map(|plan| plan.vertices + plan.index + plan.buffers);
    let memory = needed.expect("fits") + lists;
    let mut semi = Semi::new(&graph, &traffic, SemiConfig { memory, ..config(1) }).expect("fits");
    assert!(semi.plan().heads > 0 && semi.plan().total() <= memory, "{:?}", semi.plan());
    let record = semi.search(0, &AtomicBool::new(false)).expect("searches");
    assert_eq!((record.reached, record.levels.len()), (512 * 512, 1023));
    // A list that crosses from one page into the next has both read.
    assert!(traffic.bytes() < lists * 2, "{} of {lists}: {:?}", traffic.bytes(), semi.plan());
}

/// A front of vertices without out-edges is small by its lists, and must not be collected: it may be all of the graph.
#[test]
fn a_front_of_leaves_is_a_bitmap() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let leaves = 300_000;
    let pairs = (1..=leaves).map(|leaf| (0, leaf)).collect();
    let edges = Edges { name: "fan", n: leaves + 1, directed: true, pairs };
    store(&path, &edges, Order::Given, 0);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    assert_eq!(compare(&edges, &graph, 0, 2).reached, leaves + 1);
}

/// A path has as many levels as vertices: there is a record of the first ones, and a count of all.
#[test]
fn levels_without_end_take_no_memory() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let n = 3 * graph::semi::MOST_RECORDS as u64;
    let edges = Edges { name: "path", n, directed: false, pairs: (1..n).map(|v| (v - 1, v)).collect() };
    store(&path, &edges, Order::Given, 0);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    let traffic = Traffic::of(&graph);
    let mut semi = Semi::new(&graph, &traffic, config(1)).expect("fits");
    let record = semi.search(0, &AtomicBool::new(false)).expect("searches");
    assert_eq!((record.level_count, record.levels.len()), (n, graph::semi::MOST_RECORDS));
    // Few pages of lists have a pool of their own size.
    let lists = graph.header().section(graph::format::SectionKind::Adjacency).length;
    assert!(traffic.bytes() < 4 * lists, "{} of {lists}", traffic.bytes());
}

/// Levels take eight bytes a vertex, but only when the search has ended and its pages are gone.
#[test]
fn memory_that_results_take_later_holds_pages_until_then() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let pairs = (0..1 << 14).map(|vertex| (vertex, vertex + 1)).collect();
    let edges = Edges { name: "way", n: 3 << 20, directed: false, pairs };
    store(&path, &edges, Order::Given, 0);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    let least =
        graph::semi::plan(&graph, &SemiConfig { memory: 256 << 20, ..config(1) }).expect("fits").results;
    let plan = graph::semi::plan(&graph, &SemiConfig { memory: least, ..config(1) }).expect("fits");
    let lists = graph.header().section(graph::format::SectionKind::Adjacency).length;
    assert!(plan.vertices + plan.index + plan.buffers + lists < least, "{plan:?}");
    assert!(plan.pool >= lists && plan.total() == least, "{plan:?}");
}

/// The heads of 64 vertices come in one piece, also where they begin within a page and requests are the shortest.
#[test]
fn the_most_heads_are_searched_in_the_least_memory() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let edges = kronecker(15, 24, 3);
    for heads in [61, graph::format::MOST_HEADS] {
        store(&path, &edges, Order::Degree, heads);
        let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
        let least = SemiConfig { memory: 1, ..config(1) };
        let Err(GraphError::Memory { needed, .. }) = graph::semi::plan(&graph, &least) else {
            panic!("is too little")
        };
        let record = search(&edges, &graph, 1, SemiConfig { memory: needed, ..config(1) });
        assert!(record.levels.iter().any(|level| level.direction == Direction::BottomUp));
    }
}

/// Each thread has buffers, and on a machine of many CPUs they would take more than the vertices.
#[test]
fn threads_that_have_no_room_are_fewer() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let edges = kronecker(10, 8, 3);
    store(&path, &edges, Order::Degree, 1);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    for (threads, memory) in [(1024, 24 << 20), (usize::MAX, 12 << 20)] {
        let plan = graph::semi::plan(&graph, &SemiConfig { memory, ..config(threads) }).expect("fits");
        assert!((1..threads).contains(&plan.threads) && plan.total() <= memory, "{plan:?}");
        search(&edges, &graph, 1, SemiConfig { memory, ..config(threads) });
    }
}

#[test]
fn one_vertex_is_its_own_tree() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let edges = Edges { name: "one", n: 1, directed: false, pairs: vec![] };
    for order in [Order::Degree, Order::Given] {
        store(&path, &edges, order, 1);
        let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
        assert_eq!(compare(&edges, &graph, 0, 2).reached, 1);
    }
}

#[test]
fn a_source_out_of_range_a_small_budget_and_a_stop_are_told() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let edges = kronecker(10, 8, 7);
    store(&path, &edges, Order::Degree, 1);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    let traffic = Traffic::of(&graph);
    let small = SemiConfig { memory: 1 << 20, ..config(1) };
    let error = Semi::new(&graph, &traffic, small).expect_err("does not fit");
    assert!(matches!(error, GraphError::Memory { budget, .. } if budget == 1 << 20), "{error}");
    let mut semi = Semi::new(&graph, &traffic, config(1)).expect("fits");
    let error = semi.search(1 << 10, &AtomicBool::new(false)).expect_err("no such vertex");
    assert!(error.to_string().contains("has no vertex 1024: vertices are 0 to 1023"), "{error}");
    let error = semi.search(0, &AtomicBool::new(true)).expect_err("stops");
    assert!(matches!(error, GraphError::Interrupted { .. }), "{error}");
    semi.search(0, &AtomicBool::new(false)).expect("can be used again");
}

#[test]
fn a_corrupted_page_ends_a_search_with_its_number() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let edges = kronecker(12, 8, 7);
    let header = store(&path, &edges, Order::Degree, 0);
    let section = header.section(graph::format::SectionKind::Adjacency);
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opens");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 4], section.offset + 8).expect("writes");
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    let traffic = Traffic::of(&graph);
    let mut semi = Semi::new(&graph, &traffic, config(2)).expect("fits");
    let error = semi.search(0, &AtomicBool::new(false)).expect_err("is corrupt");
    let wanted = format!("page {} (adjacency) at offset {}", section.offset / 4096, section.offset);
    assert!(error.to_string().contains(&wanted), "{error}");
}
