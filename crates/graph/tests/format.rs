//! What is written is read back; what is damaged is named.

mod common;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use common::{adjacency, kronecker, store, ten};
use graph::GraphError;
use graph::format::{Fwg, Order, PAGE_BYTES, SectionKind};

#[test]
fn lists_and_numbers_are_read_back_in_both_orders() {
    let folder = tempfile::tempdir().expect("a directory");
    for edges in ten() {
        let lists = adjacency(&edges);
        for (order, heads) in [(Order::Degree, 1), (Order::Given, 0), (Order::Degree, 3)] {
            let path = folder.path().join("g.fwg");
            let header = store(&path, &edges, order, heads);
            let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
            assert_eq!(*graph.header(), header, "{}", edges.name);
            assert_eq!(header.entries, lists.iter().map(|l| l.len() as u64).sum::<u64>());
            let index = graph.index().expect("reads");
            let (mut cursor, mut windowed) = (index.cursor(), graph.windowed_cursor().expect("is sound"));
            for old in (0..edges.n).step_by(61) {
                let new = graph.stored_number(old).expect("a number");
                assert_eq!(graph.input_number(new).expect("a number"), old);
                let found = graph.neighbours(&mut cursor, new).expect("reads");
                assert!(found.is_sorted());
                let mut found: Vec<u64> =
                    found.into_iter().map(|v| graph.input_number(v).expect("a number")).collect();
                found.sort_unstable();
                assert_eq!(found, lists[old as usize], "{} vertex {old}", edges.name);
                assert_eq!(windowed.list(new).expect("reads"), cursor.list(new).expect("in memory"));
            }
        }
    }
}

#[test]
fn a_corrupted_byte_anywhere_is_named_with_its_page() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let header = store(&path, &kronecker(10, 8, 1), Order::Degree, 1);
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("opens");
    let name = path.to_str().expect("a name");
    for page in 0..header.file_bytes / PAGE_BYTES {
        let at = page * PAGE_BYTES + page * 37 % PAGE_BYTES;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("reads");
        file.write_all_at(&[byte[0] ^ 4], at).expect("writes");
        let section = header.section_at(at);
        let error = match (Fwg::open(name), section) {
            (Err(error), _) => error,
            (Ok(graph), _) => {
                let mut bytes = vec![0; 16];
                graph.read_at(&mut bytes, page * PAGE_BYTES).expect_err("a bad page")
            }
        };
        let text = error.to_string();
        match section {
            None => assert!(text.contains("header") || text.contains("is not a graph"), "{text}"),
            Some(SectionKind::Sums) => assert!(text.contains("checksums"), "{text}"),
            Some(kind) => {
                let named = format!("page {page} ({}) at offset {}", kind.word(), page * PAGE_BYTES);
                assert!(text.contains(&named), "{text}");
            }
        }
        file.write_all_at(&byte, at).expect("writes");
    }
    Fwg::open(name).expect("is whole again");
}

/// Whoever has a budget compares it with what the checksums take before they are read.
#[test]
fn a_graph_is_opened_without_its_checksums() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let header = common::store(&path, &common::kronecker(12, 8, 3), Order::Degree, 1);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    let sums = header.section(SectionKind::Sums);
    assert_eq!((graph.plain_bytes_read(), graph.memory_bytes()), (PAGE_BYTES, sums.length));
    graph.load().expect("reads");
    assert_eq!(graph.plain_bytes_read(), PAGE_BYTES + sums.length.next_multiple_of(PAGE_BYTES));
    graph.index().expect("reads");
    assert_eq!(graph.memory_bytes(), sums.length);
}

#[test]
fn a_truncated_file_is_named_at_every_length() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let header = store(&path, &kronecker(8, 8, 1), Order::Degree, 1);
    let file = OpenOptions::new().write(true).open(&path).expect("opens");
    for length in (1..header.file_bytes).rev().step_by(1001) {
        file.set_len(length).expect("truncates");
        let error = Fwg::open(path.to_str().expect("a name")).expect_err("is short");
        let is_named = match &error {
            // A device ends with its last whole block.
            GraphError::Truncated { found, .. } => *found <= length && *found + 512 > length,
            _ => length < 8,
        };
        assert!(is_named, "{length}: {error}");
    }
}

/// In memory, degrees have a byte each where the header says that none needs more.
#[test]
fn a_degree_above_the_largest_that_the_header_tells_is_damage() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let open = || Fwg::open(path.to_str().expect("a name")).expect("opens");
    for (degree, order) in [255, 256, 300].into_iter().flat_map(|n| [(n, Order::Given), (n, Order::Degree)]) {
        let star: Vec<(u64, u64)> = (1..=degree).map(|leaf| (0, leaf)).collect();
        let edges = common::Edges { name: "star", n: degree + 1, directed: false, pairs: star };
        assert_eq!(store(&path, &edges, order, 0).max_degree, degree);
        let index = open().index().expect("reads");
        let (mut cursor, mut degrees) = (index.cursor(), Vec::new());
        degrees.extend((0..=degree).map(|vertex| cursor.list(vertex).expect("a list").degree));
        assert_eq!((degrees[0], degrees[1..].iter().all(|d| *d == 1)), (degree, true), "{order:?}");

        for told in [degree - 1, 7] {
            let file = OpenOptions::new().read(true).write(true).open(&path).expect("opens");
            let mut page = vec![0; PAGE_BYTES as usize];
            file.read_exact_at(&mut page, 0).expect("reads");
            page[64..72].copy_from_slice(&told.to_le_bytes());
            let sum = crc32c::crc32c(&page[..4092]);
            page[4092..].copy_from_slice(&sum.to_le_bytes());
            file.write_all_at(&page, 0).expect("writes");
            let error = open().index().expect_err("contradicts the header");
            assert!(error.to_string().contains(&format!("more neighbours than any ({told})")), "{error}");
        }
    }
}

#[test]
fn a_file_that_was_not_finished_is_no_graph_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let config = graph::format::FwgConfig {
        vertices: 4,
        listed: 4,
        order: Order::Given,
        directed: false,
        heads: 0,
        input_edges: 0,
    };
    let mut writer = graph::format::FwgWriter::create(&path, config).expect("creates");
    writer.vertex(0, &[1, 2]).expect("writes");
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0);
    std::fs::write(&path, [0; 8192]).expect("writes");
    let error = Fwg::open(path.to_str().expect("a name")).expect_err("no header");
    assert!(error.to_string().contains("is not a graph"), "{error}");
}

/// A graph of 2^20 vertices with 2^13 neighbours each, byte by byte as docs/formats.md says. Its adjacency section is a hole:
/// every list names vertex 0 only.
fn write_sparse_graph(path: &std::path::Path) -> u64 {
    let (vertices, degree) = (1_u64 << 20, 1_u64 << 13);
    let numbers = 4 * vertices;
    let adjacency = PAGE_BYTES + 2 * numbers;
    let index = adjacency + 4 * vertices * degree;
    let sums = index + PAGE_BYTES;
    let pages = (sums / PAGE_BYTES - 1) as usize;
    let mut run = vec![0; PAGE_BYTES as usize];
    run[8..16].copy_from_slice(&degree.to_le_bytes());
    let of_zeros = crc32c::crc32c(&[0; PAGE_BYTES as usize]);
    let mut sum_bytes = of_zeros.to_le_bytes().repeat(pages);
    sum_bytes[4 * (pages - 1)..].copy_from_slice(&crc32c::crc32c(&run).to_le_bytes());
    sum_bytes.resize(sum_bytes.len().next_multiple_of(PAGE_BYTES as usize), 0);
    let file_bytes = sums + sum_bytes.len() as u64;
    let mut page = vec![0; PAGE_BYTES as usize];
    page[..8].copy_from_slice(b"FWGRAPH\0");
    for (at, value) in [(8, 1_u32), (12, 2), (16, 4), (24, crc32c::crc32c(&sum_bytes))] {
        page[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    let counts = [vertices, vertices, vertices * degree, vertices * degree / 2, degree, file_bytes];
    let sections = [
        [1, PAGE_BYTES, numbers],
        [2, PAGE_BYTES + numbers, numbers],
        [3, adjacency, 0],
        [4, adjacency, 4 * vertices * degree],
        [5, index, 24],
        [6, sums, 4 * pages as u64],
    ];
    for (i, value) in counts.into_iter().enumerate() {
        page[32 + 8 * i..40 + 8 * i].copy_from_slice(&value.to_le_bytes());
    }
    for (i, value) in sections.into_iter().flatten().enumerate() {
        page[128 + 8 * i..136 + 8 * i].copy_from_slice(&value.to_le_bytes());
    }
    let sum = crc32c::crc32c(&page[..4092]);
    page[4092..].copy_from_slice(&sum.to_le_bytes());
    let file = OpenOptions::new().write(true).create_new(true).open(path).expect("creates");
    for (bytes, at) in [(&page, 0), (&run, index), (&sum_bytes, sums)] {
        file.write_all_at(bytes, at).expect("writes");
    }
    file_bytes
}

#[test]
fn a_graph_of_2_to_the_33_edges_is_addressed() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("sparse.fwg");
    assert!(write_sparse_graph(&path) > 1 << 35);
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    assert_eq!(graph.header().entries, 1 << 33);
    let index = graph.index().expect("reads");
    let last = (1 << 20) - 1;
    let list = index.cursor().list(last).expect("a list");
    assert_eq!((list.degree, list.offset % PAGE_BYTES), (1 << 13, 0));
    assert!(list.offset > 1 << 34);
    assert_eq!(graph.neighbours(&mut index.cursor(), last).expect("reads"), vec![0; 1 << 13]);
}
