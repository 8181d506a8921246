use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use ::parquet::data_type::Int64Type;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;

use super::*;
use crate::edges::EdgeList;

/// Imports bytes under a name; the list's header and pairs, or the message.
fn imported(name: &str, bytes: &[u8], options: ImportOptions) -> Result<(Imported, Vec<(u64, u64)>), String> {
    let folder = tempfile::tempdir().expect("a directory");
    let (input, output): (PathBuf, PathBuf) = (folder.path().join(name), folder.path().join("out.el"));
    std::fs::write(&input, bytes).expect("writes");
    let steps = Steps::default();
    let result = import(&input, &output, &options, &steps);
    let result = result.map_err(|error| {
        assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 1, "nothing stays");
        let prefix = format!("{}/", folder.path().display());
        base::with_causes(&error).replace(&prefix, "")
    })?;
    let list = EdgeList::open(&output).expect("opens");
    assert_eq!(list.header(), &result.header);
    let mut scan = list.scan(0..list.header().blocks(), 2).expect("begins");
    let mut pairs = Vec::new();
    while let Some((_, block)) = scan.next_block().expect("reads") {
        pairs.extend(block.iter());
    }
    Ok((result, pairs))
}

fn told(name: &str, bytes: &[u8]) -> (Imported, Vec<(u64, u64)>) {
    imported(name, bytes, ImportOptions::default()).expect("imports")
}

fn refused(name: &str, bytes: &[u8]) -> String {
    imported(name, bytes, ImportOptions::default()).expect_err("is bad")
}

const SNAP: &[u8] = b"# Nodes: 5 Edges: 3\n% a comment\n0\t1\n\n4 2\r\n1,3,0.5";

#[test]
fn snap_text_is_read_with_comments_separators_and_further_columns() {
    let (result, pairs) = told("a.txt", SNAP);
    assert_eq!(pairs, [(0, 1), (4, 2), (1, 3)]);
    assert_eq!((result.format, result.compression), (InputFormat::Snap, Compression::None));
    assert_eq!((result.header.vertices, result.header.directed), (5, false));
    let options = ImportOptions { directed: Some(true), vertices: Some(9), ..ImportOptions::default() };
    let (result, _) = imported("a.txt", SNAP, options).expect("imports");
    assert_eq!((result.header.vertices, result.header.directed), (9, true));
    assert_eq!(told("empty.txt", b"# nothing\n").0.header.vertices, 0);
}

#[test]
fn gzip_and_zstd_are_told_by_their_first_bytes() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(SNAP).expect("writes");
    let mut gzip = gzip.finish().expect("finishes");
    let zstd = zstd::encode_all(SNAP, 1).expect("compresses");
    assert_eq!(told("a.gz", &gzip).0.compression, Compression::Gzip);
    assert_eq!(told("a.gz", &gzip).1.len(), 3);
    assert_eq!(told("a", &zstd).0.compression, Compression::Zstd);
    assert_eq!(told("a", &zstd).1.len(), 3);
    gzip.truncate(gzip.len() - 9);
    assert!(refused("a.gz", &gzip).starts_with("a.gz: cannot read: "));
    assert!(refused("a", &zstd[..zstd.len() - 4]).starts_with("a: cannot read: "));
}

#[test]
fn bad_lines_are_named_by_their_number() {
    assert_eq!(refused("a", b"0 1\n# x\n2 x7\n"), "a: line 3: 'x7' is not a vertex");
    assert_eq!(refused("a", b"0 1\n-2 7\n"), "a: line 2: '-2' is not a vertex");
    assert_eq!(refused("a", b"0 1\n2 1.5\n"), "a: line 2: '1.5' is not a vertex");
    assert_eq!(refused("a", b"0 1\n2\n"), "a: line 2: has fewer than two vertices");
    assert_eq!(
        refused("a", b"18446744073709551616 1"),
        "a: line 1: vertex 18446744073709551616 does not fit 64 bits"
    );
    assert_eq!(refused("a", &[b'1'; 70_000]), "a: line 1: is longer than 65536 bytes");
    let options = ImportOptions { vertices: Some(4), ..ImportOptions::default() };
    assert_eq!(
        imported("a", SNAP, options).expect_err("4"),
        "a: line 5: vertex 4 is not below 4, the vertices that it has"
    );
    assert_eq!(refused("a", b"\x00\x01\x02"), "a: its format cannot be told from its first bytes");
}

#[test]
fn vertices_beyond_32_bits_are_read_again_with_8_bytes() {
    let (result, pairs) = told("a", b"0 1\n4294967296 7\n");
    assert_eq!(pairs, [(0, 1), (1 << 32, 7)]);
    assert_eq!((result.header.width, result.header.vertices), (IdWidth::Eight, (1 << 32) + 1));
    assert_eq!(told("a", b"4294967295 7\n").0.header.width, IdWidth::Four);
}

#[test]
fn matrix_market_counts_from_1_and_knows_its_direction() {
    let symmetric = b"%%MatrixMarket matrix coordinate pattern symmetric\n% c\n4 4 2\n2 1\n4 3\n";
    let (result, pairs) = told("a.mtx", symmetric);
    assert_eq!(
        (result.format, result.header.vertices, result.header.directed),
        (InputFormat::MatrixMarket, 4, false)
    );
    assert_eq!(pairs, [(1, 0), (3, 2)]);
    let general = b"%%MatrixMarket matrix coordinate real general\n3 3 1\n3 1 0.25\n";
    assert!(told("a.mtx", general).0.header.directed);
    let of = |text: &str| refused("a.mtx", format!("%%MatrixMarket matrix {text}").as_bytes());
    assert_eq!(of("array real general\n"), "a.mtx: line 1: is of a dense matrix; graphs are sparse");
    assert_eq!(of("coordinate real general\n3 4 1\n"), "a.mtx: line 2: 3 × 4 is not square");
    assert_eq!(
        of("coordinate real general\n3 3 1\n0 1\n"),
        "a.mtx: line 3: entry (0, 1) is not within 1 to 3"
    );
    assert_eq!(
        of("coordinate real general\n3 3 2\n1 2\n"),
        "a.mtx: line 3: is the last one: there are 1 entries, the line of sizes says 2"
    );
}

fn gap(directed: bool, offsets: &[i64], neighbours: &[i32]) -> Vec<u8> {
    let mut bytes = vec![u8::from(directed)];
    bytes.extend((neighbours.len() as i64).to_le_bytes());
    bytes.extend((offsets.len() as i64 - 1).to_le_bytes());
    offsets.iter().for_each(|offset| bytes.extend(offset.to_le_bytes()));
    neighbours.iter().for_each(|neighbour| bytes.extend(neighbour.to_le_bytes()));
    bytes
}

#[test]
fn gap_graphs_give_each_undirected_edge_once() {
    let (result, pairs) = told("a.sg", &gap(false, &[0, 2, 3, 4], &[1, 2, 0, 0]));
    assert_eq!((result.format, result.header.vertices, result.header.directed), (InputFormat::Gap, 3, false));
    assert_eq!(pairs, [(0, 1), (0, 2)]);
    let mut directed = gap(true, &[0, 2, 2, 3], &[1, 2, 0]);
    // Incoming edges follow.
    directed.extend([7; 44]);
    let (result, pairs) = told("a.sg", &directed);
    assert!(result.header.directed);
    assert_eq!(pairs, [(0, 1), (0, 2), (2, 0)]);
    let whole = gap(false, &[0, 2, 3, 4], &[1, 2, 0, 0]);
    assert_eq!(
        refused("a.sg", &whole[..whole.len() - 2]),
        "a.sg: is truncated: list of vertex 2 ends at byte 65, the file at 63"
    );
    assert_eq!(
        refused("a.sg", &gap(true, &[0, 1], &[9])),
        "a.sg: list of vertex 0 at offset 33 is corrupt: 9 is not a vertex"
    );
    assert!(refused("a.sg", &gap(true, &[1, 0], &[0])).ends_with("offsets descend"));
}

#[test]
fn raw_pairs_are_read_as_the_caller_says() {
    let options = |format| ImportOptions { format: Some(format), ..ImportOptions::default() };
    let narrow: Vec<u8> = [1u32, 2, 3, 4].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(imported("a", &narrow, options(InputFormat::Raw32)).expect("imports").1, [(1, 2), (3, 4)]);
    let wide: Vec<u8> = [1u64 << 40, 2].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(imported("a", &wide, options(InputFormat::Raw64)).expect("imports").1, [(1 << 40, 2)]);
    let cut = imported("a", &narrow[..13], options(InputFormat::Raw32)).expect_err("cut");
    assert_eq!(cut, "a: pair 2: has 5 of 8 bytes");
}

/// A Parquet file of nullable columns of these names.
fn parquet(names: [&str; 3], rows: &[[Option<i64>; 3]]) -> Vec<u8> {
    let [first, second, third] = names;
    let text =
        format!("message m {{ optional int64 {first}; optional int64 {second}; optional int64 {third}; }}");
    let schema = Arc::new(parse_message_type(&text).expect("a schema"));
    let mut bytes = Vec::new();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).expect("begins");
    for rows in rows.chunks(2) {
        let mut group = writer.next_row_group().expect("begins");
        for at in 0..3 {
            let values: Vec<i64> = rows.iter().filter_map(|row| row[at]).collect();
            let levels: Vec<i16> = rows.iter().map(|row| i16::from(row[at].is_some())).collect();
            let mut column = group.next_column().expect("begins").expect("there are three");
            column.typed::<Int64Type>().write_batch(&values, Some(&levels), None).expect("writes");
            column.close().expect("closes");
        }
        group.close().expect("closes");
    }
    writer.close().expect("closes");
    bytes
}

#[test]
fn parquet_columns_are_found_by_name_and_bad_rows_by_number() {
    let rows = [[Some(9), Some(1), Some(2)], [Some(9), Some(3), Some(4)], [Some(9), Some(5), Some(6)]];
    let (result, pairs) = told("a.parquet", &parquet(["weight", "target", "source"], &rows));
    assert_eq!(result.format, InputFormat::Parquet);
    assert_eq!(pairs, [(2, 1), (4, 3), (6, 5)]);
    assert_eq!(told("a.parquet", &parquet(["x", "y", "z"], &rows)).1, [(9, 1), (9, 3), (9, 5)]);
    let null = [rows[0], rows[1], [Some(9), None, Some(6)]];
    assert_eq!(refused("a.parquet", &parquet(["x", "y", "z"], &null)), "a.parquet: row 3: a vertex is null");
    let negative = [rows[0], [Some(9), Some(-3), Some(4)]];
    assert_eq!(
        refused("a.parquet", &parquet(["x", "y", "z"], &negative)),
        "a.parquet: row 2: '-3' is not a vertex"
    );
    assert!(
        refused("a.parquet", b"PAR1 and nothing else").starts_with("a.parquet: cannot be read as Parquet: ")
    );
}
