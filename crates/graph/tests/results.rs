//! Results of searches, written, read and validated; and wrong ones, which the validator names.

mod common;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use base::IoEngine;
use common::{Edges, adjacency, grid, kronecker, levels, store, ten};
use graph::GraphError;
use graph::fetch::Traffic;
use graph::format::{Fwg, Order};
use graph::results::{Results, ResultsWriter, is_results_table};
use graph::semi::{Semi, SemiConfig, UNREACHED, in_input_order};
use graph::validate::{Validator, Verdict};

fn search(path: &Path, edges: &Edges, source: u64, memory: u64) -> Results {
    let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
    let traffic = Traffic::of(&graph);
    let config = SemiConfig { memory, threads: 2, engine: IoEngine::Auto };
    let mut semi = Semi::new(&graph, &traffic, config).expect("fits");
    let stored = graph.stored_number(source).expect("a number");
    semi.search(stored, &AtomicBool::new(false)).expect("searches");
    let out = path.with_extension("out");
    let mut writer = ResultsWriter::create(&out, edges.n, source).expect("creates");
    let memory = semi.plan().for_tree(&graph);
    let stop = AtomicBool::new(false);
    in_input_order(&graph, semi.into_parents(), memory, &stop, |found| writer.vertex(found)).expect("writes");
    writer.finish().expect("finishes");
    Results::open(&out).expect("opens")
}

#[test]
fn a_table_says_what_the_raw_results_say() {
    use graph::results::TableWriter;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    // Several groups of rows, and vertices that are not reached.
    let mut edges = grid(200, 200);
    edges.n += 30_000;
    store(&path, &edges, Order::Degree, 1);
    let results = search(&path, &edges, 1, 64 << 20);
    let table = folder.path().join("g.parquet");
    let mut writer = TableWriter::create(&table, edges.n, 1).expect("creates");
    let mut wanted = Vec::new();
    results.scan(|_, found| wanted.push(found)).expect("reads");
    wanted.iter().for_each(|found| writer.vertex(*found).expect("writes"));
    assert!(!table.exists(), "it is not whole");
    writer.finish().expect("finishes");
    let reader = SerializedFileReader::new(std::fs::File::open(&table).expect("opens")).expect("is Parquet");
    let facts = reader.metadata().file_metadata().key_value_metadata().expect("facts");
    assert!(
        facts.iter().any(|fact| fact.key == "flashwright.bfs.source" && fact.value.as_deref() == Some("1"))
    );
    let mut rows = 0;
    for (row, wanted) in reader.get_row_iter(None).expect("rows").zip(&wanted) {
        let row = row.expect("a row");
        assert_eq!(row.get_long(0).expect("a vertex"), rows);
        let found =
            row.get_long(2).ok().map(|parent| (parent as u64, row.get_int(1).expect("a level") as u32));
        assert_eq!(found, *wanted, "vertex {rows}");
        rows += 1;
    }
    assert_eq!(rows as u64, edges.n);
    assert_eq!(wanted.iter().flatten().count(), 40_000);
}

/// A table of a column each, none of which is null, with the fact by which results are known.
fn write_table(path: &Path, schema: &str) {
    use parquet::data_type::Int64Type;
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    let fact = KeyValue::new("flashwright.bfs.source".to_owned(), "1".to_owned());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![fact])).build();
    let schema = parquet::schema::parser::parse_message_type(schema).expect("a schema");
    let file = std::fs::File::create(path).expect("creates");
    let mut writer = SerializedFileWriter::new(file, schema.into(), properties.into()).expect("begins");
    let mut group = writer.next_row_group().expect("a group");
    while let Some(mut column) = group.next_column().expect("a column") {
        column.typed::<Int64Type>().write_batch(&[1, 2], None, None).expect("writes");
        column.close().expect("closes");
    }
    group.close().expect("closes");
    writer.close().expect("closes");
}

/// Who reads a table of results, adds a column and writes it again has the results' facts with it, and work that is not to be lost.
#[test]
fn a_table_of_other_columns_is_not_results() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.parquet");
    let is_results = |columns: &[&str]| {
        let columns = columns.iter().map(|name| format!("required int64 {name};")).collect::<String>();
        write_table(&path, &format!("message bfs {{ {columns} }}"));
        is_results_table(&path)
    };
    assert!(is_results(&["vertex", "level", "parent"]));
    assert!(!is_results(&["vertex", "level", "parent", "community"]));
    assert!(!is_results(&["vertex", "level"]));
    assert!(!is_results(&["vertex", "level", "rank"]));
}

fn validate(results: &Results, edges: &Edges) -> Verdict {
    let mut validator = Validator::new(results, edges.directed).expect("reads");
    validator.edges(edges.pairs.iter().copied());
    validator.finish()
}

#[test]
fn results_of_ten_graphs_are_those_of_a_search_in_memory_and_valid() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    for edges in ten() {
        let wanted = levels(&adjacency(&edges), 1);
        for order in [Order::Degree, Order::Given] {
            store(&path, &edges, order, 1);
            let results = search(&path, &edges, 1, 64 << 20);
            results
                .scan(|vertex, found| {
                    let level = found.map(|(_, level)| level);
                    assert_eq!(level, wanted[vertex as usize], "{} vertex {vertex}", edges.name);
                })
                .expect("reads");
            let verdict = validate(&results, &edges);
            assert_eq!(verdict.violations, [], "{}", edges.name);
            assert_eq!(verdict.reached, wanted.iter().flatten().count() as u64);
            assert_eq!(verdict.edges, edges.pairs.len() as u64);
        }
    }
}

/// Vertices enough for several blocks of the table of numbers in the least memory.
#[test]
fn numbers_are_translated_in_blocks_where_memory_is_short() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let edges = grid(1200, 600);
    store(&path, &edges, Order::Degree, 0);
    let results = search(&path, &edges, 77, 19 << 20);
    assert_eq!(validate(&results, &edges).violations, []);
}

/// Changes one vertex of the results of a path 0 – 1 – … and returns the checks that fail.
fn checks_failed(change: impl Fn(u64, Option<(u64, u32)>) -> Option<(u64, u32)>) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().join("o.out");
    let pairs = (0..9).map(|v| (v, v + 1)).chain([(0, 0)]).collect();
    let edges = Edges { name: "path", n: 12, directed: false, pairs };
    let mut writer = ResultsWriter::create(&out, 12, 0).expect("creates");
    for vertex in 0..12_u64 {
        let right = (vertex < 10).then(|| (vertex.saturating_sub(1), vertex as u32));
        writer.vertex(change(vertex, right)).expect("writes");
    }
    writer.finish().expect("finishes");
    let verdict = validate(&Results::open(&out).expect("opens"), &edges);
    verdict.violations.iter().map(|violation| violation.check).collect()
}

#[test]
fn each_check_finds_what_it_is_for() {
    assert_eq!(checks_failed(|_, right| right), [0_u8; 0]);
    // Two vertices that are each other's parents.
    let cycle = |vertex, right| match vertex {
        8 => Some((9, 8)),
        _ => right,
    };
    assert_eq!(checks_failed(cycle), [2]);
    assert_eq!(checks_failed(|v, right| if v == 5 { Some((5, 0)) } else { right }), [1, 2, 3, 5]);
    assert_eq!(checks_failed(|v, right| if v == 0 { Some((1, 2)) } else { right }), [1, 2]);
    let skipped = |v, right: Option<(u64, u32)>| right.map(|(p, l)| (p, if v > 4 { l + 1 } else { l }));
    assert_eq!(checks_failed(skipped), [2, 3]);
    assert_eq!(checks_failed(|v, right| if v >= 7 { None } else { right }), [4]);
    assert_eq!(checks_failed(|v, right| if v == 10 { Some((3, 4)) } else { right }), [5]);
    let half = |v, right| if v == 11 { Some((1 << 31, 3)) } else { right };
    assert_eq!(checks_failed(half), [1, 5]);
}

#[test]
fn writing_results_can_be_stopped() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    for order in [Order::Degree, Order::Given] {
        store(&path, &kronecker(10, 8, 2), order, 1);
        let graph = Fwg::open(path.to_str().expect("a name")).expect("opens");
        let stop = AtomicBool::new(true);
        let stopped =
            in_input_order(&graph, vec![UNREACHED; 1024], 64 << 20, &stop, |_| panic!("is written"));
        assert!(matches!(stopped, Err(GraphError::Interrupted { .. })), "{stopped:?}");
    }
}

#[test]
fn results_without_a_name_are_read_back_and_leave_nothing() {
    let folder = tempfile::tempdir().expect("a directory");
    let mut writer = ResultsWriter::unnamed(folder.path(), 3000, 7).expect("creates");
    let wanted = |v: u64| (!v.is_multiple_of(3)).then_some((v / 2, v as u32 % 5));
    (0..3000).for_each(|v| writer.vertex(wanted(v)).expect("writes"));
    let results = writer.into_results().expect("completes").expect("has no name");
    assert_eq!((results.header().source, results.header().reached), (7, 2000));
    let mut vertices = 0;
    results
        .scan(|v, found| {
            assert_eq!(found, wanted(v), "vertex {v}");
            vertices += 1;
        })
        .expect("reads");
    assert_eq!(vertices, 3000);
    assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0);
}

#[test]
fn damaged_results_are_named() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("g.fwg");
    let edges = kronecker(12, 8, 2);
    store(&path, &edges, Order::Degree, 1);
    search(&path, &edges, 3, 64 << 20);
    let out = path.with_extension("out");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&out).expect("opens");
    let length = file.metadata().expect("stat").len();
    for at in (0..length).step_by(4096) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at + 9).expect("reads");
        file.write_all_at(&[byte[0] ^ 1], at + 9).expect("writes");
        let found = Results::open(&out).and_then(|results| results.scan(|_, _| ()));
        assert!(found.is_err(), "page at {at}");
        file.write_all_at(&byte, at + 9).expect("writes");
    }
    file.set_len(length - 1).expect("truncates");
    let error = Results::open(&out).expect_err("is short");
    assert!(error.to_string().contains("is truncated"), "{error}");
    // More vertices and levels than there are.
    file.set_len(length).expect("grows");
    let mut crafted = std::fs::read(&out).expect("reads");
    crafted[48..56].copy_from_slice(&999_999_u64.to_le_bytes());
    let sum = crc32c::crc32c(&crafted[..4092]);
    crafted[4092..4096].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&out, &crafted).expect("writes");
    let verdict = validate(&Results::open(&out).expect("opens"), &edges);
    assert_eq!(verdict.violations.len(), 1);
    assert!(verdict.violations[0].detail.starts_with("999999 vertices on "), "{:?}", verdict.violations);
    // Vertices whose bytes do not fit into 64 bits, with a checksum that fits.
    let mut crafted = std::fs::read(&out).expect("reads");
    crafted[32..40].copy_from_slice(&(1_u64 << 62).to_le_bytes());
    let sum = crc32c::crc32c(&crafted[..4092]);
    crafted[4092..4096].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&out, &crafted).expect("writes");
    let error = Results::open(&out).expect_err("too many").to_string();
    assert!(error.ends_with("4611686018427387904 vertices, more than any drive holds"), "{error}");
}
