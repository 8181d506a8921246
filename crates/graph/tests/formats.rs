//! Stored graphs and results of searches are read for ever: the fixtures of `formats/`, compressed by zstd, because most of
//! their pages are padding.

mod common;

#[path = "../../../formats/fixture.rs"]
mod fixture;

use std::path::Path;

use common::{Edges, adjacency, levels, store};
use fixture::fixture;
use graph::format::{Fwg, Order, SectionKind};
use graph::results::{Results, ResultsWriter};

const SOURCE: u64 = 3;

/// A star, a path, a self-loop, a duplicate, and vertices without neighbours.
fn edges() -> Edges {
    let star = (10..40).map(|leaf| (3, leaf));
    let path = (40..60).map(|vertex| (vertex - 1, vertex));
    let pairs = star.chain(path).chain([(5, 5), (3, 10), (70, 71)]).collect();
    Edges { name: "fixture", n: 80, directed: false, pairs }
}

/// A file of the test's own with what the fixture holds; `make` writes a missing one to the path it is given.
fn unpacked(path: &Path, name: &str, make: impl FnOnce(&Path)) {
    let packed = fixture(name, || {
        make(path);
        zstd::encode_all(&std::fs::read(path).expect("was made")[..], 19).expect("packs")
    });
    std::fs::write(path, zstd::decode_all(&packed[..]).expect("unpacks")).expect("writes");
}

#[test]
fn a_stored_graph_of_version_1_is_read() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let edges = edges();
    unpacked(&path, "graph-1.fwg.zst", |path| {
        store(path, &edges, Order::Degree, 2);
    });
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    let header = graph.header();
    let counts = (header.vertices, header.listed, header.entries, header.input_edges, header.max_degree);
    assert_eq!(counts, (80, 53, 102, 53, 30));
    assert_eq!((header.directed, header.order, header.heads), (false, Order::Degree, 2));
    assert!(header.section(SectionKind::Heads).length > 0);
    let lists = adjacency(&edges);
    let index = graph.index().expect("reads");
    let mut cursor = index.cursor();
    for old in 0..edges.n {
        let stored = graph.stored_number(old).expect("a number");
        assert_eq!(graph.input_number(stored).expect("a number"), old);
        let list = graph.neighbours(&mut cursor, stored).expect("reads");
        let mut list: Vec<u64> =
            list.into_iter().map(|vertex| graph.input_number(vertex).expect("a number")).collect();
        list.sort_unstable();
        assert_eq!(list, lists[old as usize], "vertex {old}");
    }
}

#[test]
fn results_of_version_1_are_read() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.out");
    let lists = adjacency(&edges());
    let wanted: Vec<Option<(u64, u32)>> = levels(&lists, SOURCE)
        .iter()
        .zip(0..)
        .map(|(level, vertex)| match (level, vertex) {
            (None, _) => None,
            (Some(level), SOURCE) => Some((SOURCE, *level)),
            // Of the star and the path each vertex has one neighbour nearer to the source, the one with the lower number.
            (Some(level), vertex) => Some((lists[vertex as usize][0], *level)),
        })
        .collect();
    unpacked(&path, "results-1.out.zst", |path| {
        let mut writer = ResultsWriter::create(path, 80, SOURCE).expect("creates");
        wanted.iter().for_each(|found| writer.vertex(*found).expect("writes"));
        writer.finish().expect("finishes");
    });
    let results = Results::open(&path).expect("opens");
    let header = results.header();
    assert_eq!((header.vertices, header.source, header.reached, header.levels), (80, SOURCE, 51, 22));
    let mut found = Vec::new();
    results.scan(|_, vertex| found.push(vertex)).expect("reads");
    assert_eq!(found, wanted);
}
