use std::path::Path;

#[path = "../../../../formats/fixture.rs"]
mod fixture;

use super::*;
use crate::{GraphError, IdWidth};

fn config(width: IdWidth, vertices: Option<u64>) -> EdgesConfig {
    EdgesConfig { vertices, directed: true, width, origin: "a test".to_owned() }
}

/// A list of some blocks, and its pairs.
fn written(path: &Path, width: IdWidth, edges: u64) -> (EdgesHeader, Vec<(u64, u64)>) {
    let pairs: Vec<(u64, u64)> = (0..edges).map(|edge| (edge, edge * 7 % 1000)).collect();
    let mut writer = EdgeWriter::create(path, config(width, None)).expect("creates");
    pairs.chunks(1000).for_each(|chunk| writer.extend(chunk).expect("writes"));
    assert_eq!(writer.edges(), edges);
    (writer.finish().expect("finishes"), pairs)
}

fn read(path: &Path) -> Result<Vec<(u64, u64)>, GraphError> {
    let list = EdgeList::open(path)?;
    let mut scan = list.scan(0..list.header().blocks(), 2)?;
    let mut pairs = Vec::new();
    while let Some((_, block)) = scan.next_block()? {
        pairs.extend(block.iter());
    }
    Ok(pairs)
}

#[test]
fn pairs_are_read_back_in_order() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("list.el");
    for (width, edges) in
        [(IdWidth::Four, 0), (IdWidth::Four, 1), (IdWidth::Four, 131_070), (IdWidth::Eight, 200_000)]
    {
        let (header, pairs) = written(&path, width, edges);
        assert_eq!(header.edges, edges);
        assert_eq!(header.vertices, edges.max(pairs.iter().map(|pair| pair.1 + 1).max().unwrap_or(0)));
        assert_eq!(header.file_bytes(), std::fs::metadata(&path).expect("is there").len());
        assert!(read(&path).expect("reads") == pairs);
        assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 1);
    }
}

#[test]
fn a_corrupt_block_a_truncated_file_and_a_newer_version_are_named() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("list.el");
    let (header, _) = written(&path, IdWidth::Four, 300_000);
    let whole = std::fs::read(&path).expect("reads");
    let mut bytes = whole.clone();
    bytes[4096 + (1 << 20) + 500] ^= 1;
    std::fs::write(&path, &bytes).expect("writes");
    let error = read(&path).expect_err("corrupt").to_string();
    assert!(error.contains("list.el: block 1 at offset 1052672 is corrupt: its checksum is"), "{error}");
    std::fs::write(&path, &whole[..whole.len() - 1]).expect("writes");
    let error = read(&path).expect_err("truncated").to_string();
    let end = header.file_bytes();
    assert!(
        error.ends_with(&format!("is truncated: block 2 ends at byte {end}, the file at {}", end - 1)),
        "{error}"
    );
    // A block that is sound by itself, of fewer pairs than the header promises.
    let mut bytes = whole.clone();
    header.layout().seal(&mut bytes[4096..], 0, 100);
    std::fs::write(&path, &bytes).expect("writes");
    let error = read(&path).expect_err("fewer").to_string();
    assert!(error.ends_with("block 0 at offset 4096 is corrupt: it has 100 pairs, not 131070"), "{error}");
    for at in (0..64).chain(4090..4096) {
        let mut bytes = whole[..4096].to_vec();
        bytes[at] ^= 4;
        assert!(EdgesHeader::decode(&bytes, &path).is_err(), "byte {at}");
    }
    let mut newer = whole[..4096].to_vec();
    newer[8] = 2;
    let sum = crc32c::crc32c(&newer[..4092]);
    newer[4092..].copy_from_slice(&sum.to_le_bytes());
    let error = EdgesHeader::decode(&newer, &path).expect_err("newer").to_string();
    assert!(error.ends_with("is version 2 of its format; this program reads up to 1"), "{error}");
    // Counts whose sizes do not fit into 64 bits, with a checksum that fits.
    let whole =
        EdgesHeader { vertices: 9, edges: 9, directed: false, width: IdWidth::Eight, origin: String::new() };
    for header in
        [EdgesHeader { vertices: 1 << 62, ..whole.clone() }, EdgesHeader { edges: 1 << 62, ..whole }]
    {
        let error = EdgesHeader::decode(&header.encode(), &path).expect_err("too many").to_string();
        assert!(error.ends_with("more than any drive holds"), "{error}");
    }
    std::fs::write(&path, b"# a text").expect("writes");
    assert!(read(&path).expect_err("a text").to_string().ends_with("is not an edge list (.el)"));
}

#[test]
fn a_vertex_beyond_the_number_of_vertices_or_the_width_is_refused() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("list.el");
    for (config, vertex) in [
        (config(IdWidth::Four, Some(10)), 10),
        (config(IdWidth::Four, None), 1 << 32),
        (config(IdWidth::Eight, None), 1 << 48),
    ] {
        let mut writer = EdgeWriter::create(&path, config).expect("creates");
        writer.extend(&[(vertex - 1, 0)]).expect("the largest that fits");
        let error = writer.extend(&[(0, vertex)]).expect_err("too large").to_string();
        assert!(error.ends_with(&format!("vertex {vertex} is not below {vertex}")), "{error}");
    }
    let error = EdgeWriter::create(&path, config(IdWidth::Eight, Some((1 << 48) + 1))).expect_err("too many");
    assert_eq!(error.to_string(), "281474976710657 vertices are more than 2^48");
    assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0, "nothing stays");
}

#[test]
fn a_second_writer_of_the_same_list_is_refused_and_a_dead_ones_file_is_replaced() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("list.el");
    let first = EdgeWriter::create(&path, config(IdWidth::Four, None)).expect("creates");
    let error = EdgeWriter::create(&path, config(IdWidth::Four, None)).expect_err("busy");
    assert!(error.to_string().contains("list.el: is being written by process"), "{error}");
    drop(first);
    std::fs::write(folder.path().join(".list.el.partial"), vec![1; 9 << 20]).expect("writes");
    let (header, pairs) = written(&path, IdWidth::Four, 10);
    assert_eq!(std::fs::metadata(&path).expect("is there").len(), header.file_bytes());
    assert_eq!(read(&path).expect("reads"), pairs);
}

/// In the place of the partial file: what others also know by another name, and what no end of is read.
#[test]
fn a_writer_writes_to_no_file_but_its_own() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("list.el");
    let (partial, others) = (folder.path().join(".list.el.partial"), folder.path().join("other"));
    std::fs::write(&others, "somebody's").expect("writes");
    std::fs::hard_link(&others, &partial).expect("links");
    written(&path, IdWidth::Four, 10);
    assert_eq!(std::fs::read(&others).expect("reads"), b"somebody's");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &partial, rustix::fs::FileType::Fifo, mode, 0).expect("makes");
    let (_, pairs) = written(&path, IdWidth::Four, 11);
    assert_eq!(read(&path).expect("reads"), pairs);
}

#[test]
fn edge_lists_of_version_1_are_read() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("list.el");
    let pairs = [(0, 1), (7, 7), (3, 1 << 33), (0, 1)];
    let write = |path: &Path| {
        let mut writer = EdgeWriter::create(path, config(IdWidth::Eight, Some(1 << 40))).expect("creates");
        writer.extend(&pairs).expect("writes");
        writer.finish().expect("finishes");
        std::fs::read(path).expect("reads")
    };
    let bytes = fixture::fixture("edges-1.el", || write(&path));
    std::fs::write(&path, &bytes).expect("writes");
    let header = EdgeList::open(&path).expect("opens").header().clone();
    assert_eq!((header.vertices, header.edges, header.directed), (1 << 40, 4, true));
    assert_eq!((header.width, header.origin.as_str()), (IdWidth::Eight, "a test"));
    assert_eq!(read(&path).expect("reads"), pairs);
    // What is written today is the same, byte for byte.
    assert!(write(&path) == bytes);
}
