//! Exports are the graph, in the form that GAP's programs read.

mod common;

use common::{Edges, adjacency, store, ten};
use graph::export::{ExportOptions, gap};
use graph::format::{Fwg, Order};
use graph::{GraphError, Steps};

fn options(folder: &std::path::Path) -> ExportOptions {
    ExportOptions { memory: 20 << 20, scratch: folder.to_owned(), threads: 2 }
}

/// Direction, and the lists of each direction that the file has.
fn parse(bytes: &[u8]) -> (bool, Vec<Vec<Vec<u64>>>) {
    let long = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize;
    let (directed, entries, vertices) = (bytes[0] == 1, long(1), long(9));
    let mut directions = Vec::new();
    let mut at = 17;
    for _ in 0..1 + usize::from(directed) {
        let lists_at = at + 8 * (vertices + 1);
        let list = |vertex: usize| {
            let (begin, end) = (long(at + 8 * vertex), long(at + 8 * vertex + 8));
            let entry = |i: usize| {
                i32::from_le_bytes(bytes[lists_at + 4 * i..][..4].try_into().expect("4 bytes")) as u64
            };
            (begin..end).map(entry).collect()
        };
        directions.push((0..vertices).map(list).collect());
        assert_eq!(long(at + 8 * vertices), entries);
        at = lists_at + 4 * entries;
    }
    assert_eq!(at, bytes.len());
    (directed, directions)
}

fn check(edges: &Edges) {
    let folder = tempfile::tempdir().expect("a directory");
    let (path, out) = (folder.path().join("g.fwg"), folder.path().join("g.sg"));
    let wanted: Vec<Vec<u64>> = adjacency(edges)
        .into_iter()
        .map(|mut list| {
            list.sort_unstable();
            list
        })
        .collect();
    for order in [Order::Degree, Order::Given] {
        store(&path, edges, order, 1);
        let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
        let length = gap(&graph, &out, &options(folder.path()), &Steps::default()).expect("exports");
        let bytes = std::fs::read(&out).expect("reads");
        assert_eq!(bytes.len() as u64, length);
        let (directed, directions) = parse(&bytes);
        assert_eq!((directed, &directions[0]), (edges.directed, &wanted), "{} {order:?}", edges.name);
        if directed {
            let mut incoming = vec![Vec::new(); wanted.len()];
            for (vertex, list) in (0..).zip(&wanted) {
                list.iter().for_each(|neighbour| incoming[*neighbour as usize].push(vertex));
            }
            assert_eq!(directions[1], incoming, "{} {order:?}", edges.name);
        }
    }
}

#[test]
fn exports_of_graphs_of_all_kinds_have_the_lists_of_the_input() {
    ten().iter().for_each(check);
}

#[test]
fn an_export_that_is_stopped_or_has_too_little_memory_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a directory");
    let (path, out) = (folder.path().join("g.fwg"), folder.path().join("g.sg"));
    let edges = ten().into_iter().find(|edges| edges.name == "kronecker").expect("is one of ten");
    store(&path, &edges, Order::Degree, 1);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    let stopped = Steps::default();
    stopped.stop();
    let error = gap(&graph, &out, &options(folder.path()), &stopped).expect_err("stops");
    assert!(matches!(error, GraphError::Interrupted { .. }), "{error}");
    let small = ExportOptions { memory: 1 << 20, ..options(folder.path()) };
    let error = gap(&graph, &out, &small, &Steps::default()).expect_err("is too little");
    let GraphError::Memory { needed, .. } = error else { panic!("{error}") };
    let enough = ExportOptions { memory: needed, threads: 1, ..small };
    gap(&graph, &out, &enough, &Steps::default()).expect("what it needs is enough");
    std::fs::remove_file(&out).expect("is there");
    let names = std::fs::read_dir(folder.path()).expect("lists").count();
    assert_eq!(names, 1, "the graph alone");
}
