//! Searches outside memory find the levels that a search in memory finds, within their budget and their volume of I/O.

mod common;

use common::{Edges, adjacency, grid, kronecker, levels, store, ten, uniform};
use external::{Space, SpaceOptions};
use graph::GraphError;
use graph::format::{Fwg, Order};
use graph::fully_external::{ExternalSearchFigures, ExternalSearchOptions, SearchTree};
use graph::fully_external::{mehlhorn_meyer, munagala_ranade};

type Search = fn(&Fwg, u64, &ExternalSearchOptions) -> Result<SearchTree, GraphError>;

const SEARCHES: [(&str, Search); 2] = [("mr", munagala_ranade), ("mm", mehlhorn_meyer)];

/// Small blocks, and memory that holds a part of the test graphs only.
fn options(folder: &tempfile::TempDir, memory: u64) -> ExternalSearchOptions {
    let blocks = SpaceOptions { block_bytes: 16 << 10, ..SpaceOptions::default() };
    let space = Space::scratch(folder.path(), 256 << 20, &blocks).expect("is made");
    ExternalSearchOptions { memory, threads: 2, space }
}

/// Searches from an input vertex, and compares levels with a search in memory. Parents must be neighbours one level nearer.
fn compare(
    name: &str,
    edges: &Edges,
    graph: &Fwg,
    source: u64,
    options: &ExternalSearchOptions,
) -> ExternalSearchFigures {
    let (_, search) = SEARCHES.into_iter().find(|(word, _)| *word == name).expect("is one of them");
    let what = format!("{name} on {} from {source}", edges.name);
    let lists = adjacency(edges);
    let mut wanted = levels(&lists, source);
    let reached = wanted.iter().flatten().count() as u64;
    let deepest = wanted.iter().flatten().max().copied().expect("the source");
    let expected = wanted.clone();
    let mut tree = search(graph, source, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut last = None;
    while let Some(found) = tree.next_reached().expect("reads") {
        assert!(last.is_none_or(|last| last < found.vertex), "{what}: {found:?} after {last:?}");
        last = Some(found.vertex);
        let level = wanted[found.vertex as usize].take().map(u64::from);
        assert_eq!(level, Some(found.level), "{what}: {found:?}");
        if found.level == 0 {
            assert_eq!((found.vertex, found.parent), (source, source), "{what}");
        } else {
            let of_parent = expected[found.parent as usize].map(u64::from);
            assert_eq!(of_parent, Some(found.level - 1), "{what}: {found:?}");
            assert!(lists[found.parent as usize].binary_search(&found.vertex).is_ok(), "{what}: {found:?}");
        }
    }
    assert_eq!(wanted.iter().flatten().count(), 0, "{what}: vertices are missing");
    let figures = tree.figures();
    let entries = lists.iter().zip(&expected).filter(|(_, level)| level.is_some());
    let entries = entries.map(|(list, _)| list.len() as u64).sum::<u64>();
    assert_eq!(figures.entries, entries, "{what}: neighbours of what was reached, and of nothing else");
    assert_eq!((figures.reached, figures.levels), (reached, u64::from(deepest) + 1), "{what}");
    drop(tree);
    assert_eq!(options.space.usage().bytes_in_use, 0, "{what}");
    figures
}

#[test]
fn levels_are_those_of_a_search_in_memory_on_ten_graphs() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    for edges in ten().iter().filter(|edges| !edges.directed) {
        for (order, heads) in [(Order::Degree, 1), (Order::Given, 0)] {
            store(&path, edges, order, heads);
            let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
            for source in [0, edges.n - 1] {
                for (name, _) in SEARCHES {
                    compare(name, edges, &graph, source, &options(&folder, 3 << 20));
                }
            }
        }
    }
}

#[test]
fn no_more_is_moved_than_the_sorts_and_scans_ask_for() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    for edges in [kronecker(15, 16, 3), uniform(60_000, 500_000, 4)] {
        store(&path, &edges, Order::Degree, 0);
        let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
        let figures = compare("mr", &edges, &graph, 0, &options(&folder, 3 << 20));
        assert!(figures.space_bytes_written > 1 << 20, "memory does not hold it all: {figures:?}");
        let ratio = figures.bytes() as f64 / figures.bytes_in_theory as f64;
        assert!(ratio <= 1.1, "{ratio} times the theoretical volume: {figures:?}");
    }
}

#[test]
fn a_graph_of_many_levels_is_searched_by_both() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let edges = grid(200, 100);
    store(&path, &edges, Order::Given, 0);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    compare("mr", &edges, &graph, 5, &options(&folder, 3 << 20));
    compare("mm", &edges, &graph, 5, &options(&folder, 3 << 20));
}

#[test]
fn directed_graphs_unknown_vertices_and_small_budgets_are_refused_with_words() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let all = ten();
    let web = all.iter().find(|edges| edges.directed).expect("one is directed");
    for (name, search) in SEARCHES {
        store(&path, web, Order::Degree, 0);
        let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
        let error = search(&graph, 0, &options(&folder, 3 << 20)).expect_err("is directed");
        let words = format!("has directed edges, and algorithm {name} needs an undirected graph");
        assert!(error.to_string().ends_with(&words), "{error}");
        store(&path, &all[3], Order::Degree, 0);
        let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
        let error = search(&graph, 3000, &options(&folder, 3 << 20)).expect_err("is not there");
        assert!(matches!(error, GraphError::NoVertex { vertex: 3000, .. }), "{error:?}");
        let error = search(&graph, 0, &options(&folder, 100 << 10)).expect_err("is too little");
        let GraphError::Memory { needed, budget, .. } = error else { panic!("{error:?}") };
        assert_eq!(budget, 100 << 10);
        search(&graph, 0, &options(&folder, 3 * needed)).expect("is enough");
    }
}

#[test]
fn a_corrupt_page_and_a_full_space_end_the_search_with_their_names() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let edges = kronecker(14, 16, 3);
    let header = store(&path, &edges, Order::Degree, 0);
    let small = SpaceOptions { block_bytes: 4096, ..SpaceOptions::default() };
    for (name, search) in SEARCHES {
        store(&path, &edges, Order::Degree, 0);
        let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
        let space = Space::scratch(folder.path(), 256 << 10, &small).expect("is made");
        let little = ExternalSearchOptions { memory: 2 << 20, threads: 2, space };
        let error = search(&graph, 0, &little).expect_err("is full");
        assert!(error.to_string().contains("is full: all 256 KiB of it are in use"), "{name}: {error}");

        let at = header.section(graph::format::SectionKind::Adjacency).offset + 3 * 4096 + 100;
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opens");
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 8], at).expect("writes");
        let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
        let error = search(&graph, 0, &options(&folder, 3 << 20)).expect_err("is corrupt");
        assert!(matches!(error, GraphError::Corrupt { offset, .. } if offset == at - 100), "{name}: {error}");
    }
}
