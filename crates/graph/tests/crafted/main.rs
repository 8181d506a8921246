//! Stored graphs whose checksums are right and whose contents are not, as somebody writes them who means harm. No reader panics,
//! goes on for ever or takes more memory than its budget: it says what is corrupt, or finds what is right.

#[path = "../common/mod.rs"]
mod common;
mod readers;

use std::path::PathBuf;
use std::sync::LazyLock;

use common::{Edges, kronecker, store};
use graph::GraphError;
use graph::format::{Fwg, Header, Order, PAGE_BYTES, Section, SectionKind};
use proptest::prelude::*;
use readers::{ALONE, Answer, READERS, Reader};

const PAGE: usize = PAGE_BYTES as usize;

/// A stored graph to be changed.
#[derive(Clone)]
struct Crafted {
    bytes: Vec<u8>,
    /// As it was written.
    header: Header,
}

impl Crafted {
    fn of(edges: &Edges, order: Order, heads: u32) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("g.fwg");
        let header = store(&path, edges, order, heads);
        Self { bytes: std::fs::read(&path).expect("reads"), header }
    }

    fn section(&self, kind: SectionKind) -> Section {
        self.header.section(kind)
    }

    /// Where a number of a section lies, by its place among numbers of so many bytes.
    fn at(&self, kind: SectionKind, place: u64, width: u64) -> usize {
        (self.section(kind).offset + place * width) as usize
    }

    fn get(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("8 bytes"))
    }

    fn put(&mut self, at: usize, value: u64) {
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn put_id(&mut self, kind: SectionKind, place: u64, value: u32) {
        let at = self.at(kind, place, 4);
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// The same vertex once on each page of a section.
    fn put_on_each_page(&mut self, kind: SectionKind, value: u32) {
        let section = self.section(kind);
        (0..section.length / 4).step_by(PAGE / 4).for_each(|place| self.put_id(kind, place, value));
    }

    /// Makes all checksums right, of the sections where they were.
    fn mend(&mut self) {
        let sums = self.section(SectionKind::Sums);
        let pages = self.bytes[..sums.offset as usize].chunks_exact(PAGE).skip(1);
        let new: Vec<u8> = pages.flat_map(|page| crc32c::crc32c(page).to_le_bytes()).collect();
        let of_sums = &mut self.bytes[sums.offset as usize..];
        of_sums[..new.len()].copy_from_slice(&new);
        let sum = crc32c::crc32c(of_sums);
        self.bytes[24..28].copy_from_slice(&sum.to_le_bytes());
        let sum = crc32c::crc32c(&self.bytes[..PAGE - 4]);
        self.bytes[PAGE - 4..PAGE].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A place for files, and what was written there.
struct Place {
    folder: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("g.fwg");
        Self { folder, path }
    }

    fn open(&self, crafted: &Crafted) -> Result<Fwg, GraphError> {
        std::fs::write(&self.path, &crafted.bytes).expect("writes");
        Fwg::open(self.path.to_str().expect("a name"))
    }

    /// What a reader finds.
    fn answer(&self, crafted: &Crafted, (_, read): Reader) -> Answer {
        read(&self.open(crafted)?, self.folder.path())
    }

    /// Sees to it that readers call the changed graph corrupt in the case's words, or find what they find of the good one; those
    /// that `must` do the former.
    fn check(&self, case: &Case, good: &Crafted, readers: &[&str], must: &[&str]) {
        let changed = case.of(good);
        for reader in those(readers) {
            let what = format!("{}: {}", case.name, reader.0);
            match self.answer(&changed, reader) {
                Err(error @ GraphError::Corrupt { .. }) => {
                    let text = error.to_string();
                    assert!(text.contains(case.words), "{what}: {text}");
                    assert!(text.starts_with(self.path.to_str().expect("a name")), "{what}: {text}");
                }
                Err(error) => panic!("{what}: {error}"),
                Ok(answer) => {
                    assert!(!must.contains(&reader.0), "{what}: is not seen");
                    assert_eq!(answer, self.answer(good, reader).expect("is good"), "{what}");
                }
            }
        }
    }
}

/// Readers by their names; no names are those of all.
fn those(names: &[&str]) -> impl Iterator<Item = Reader> {
    READERS.into_iter().filter(|(name, _)| names.is_empty() || names.contains(name))
}

/// A change, and words of the message.
struct Case {
    name: &'static str,
    change: fn(&mut Crafted),
    words: &'static str,
}

impl Case {
    /// The changed graph, whose checksums are right.
    fn of(&self, good: &Crafted) -> Crafted {
        let mut changed = good.clone();
        (self.change)(&mut changed);
        changed.mend();
        changed
    }
}

const fn case(name: &'static str, change: fn(&mut Crafted), words: &'static str) -> Case {
    Case { name, change, words }
}

/// Where section number `kind` stands in the first page: its offset, and 8 bytes on its length.
const fn entry(kind: SectionKind) -> usize {
    128 + 24 * (kind as usize - 1) + 8
}

/// Of the first page: seen when the graph is opened.
const HEADER: [Case; 21] = [
    case("a vertex more", |g| g.put(32, g.header.vertices + 1), "header at offset"),
    case("no vertices", |g| g.put(32, 0), "have lists"),
    case("vertices past 4 bytes", |g| g.put(32, (1 << 32) + 1), "header at offset 16"),
    case("more vertices than numbers", |g| g.put(32, u64::MAX), "header at offset 16"),
    case("more lists than vertices", |g| g.put(40, g.header.vertices + 1), "have lists"),
    case("more neighbours than bytes", |g| g.put(48, u64::MAX), "of lists"),
    case("a vertex with more than all", |g| g.put(64, g.header.entries + 1), "of one vertex"),
    case("a file past all drives", |g| g.put(72, 1 << 60), "not the length"),
    case("a file that ends within a page", |g| g.put(72, g.header.file_bytes - 1), "not the length"),
    case("4 billion heads", |g| g.bytes[20..24].fill(0xff), "heads a vertex"),
    case("more heads than there are", |g| g.bytes[20] += 1, "do not fit its counts"),
    case("wide vertices", |g| g.bytes[16] = 8, "8 bytes"),
    case("the other order", |g| g.bytes[12] ^= 2, "header at offset"),
    case(
        "lists on heads",
        |g| {
            let heads = g.section(SectionKind::Heads).offset;
            g.put(entry(SectionKind::Adjacency), heads);
        },
        "on other bytes",
    ),
    case("lists on the first page", |g| g.put(entry(SectionKind::Adjacency), 0), "on other bytes"),
    case(
        "lists that are the checksums",
        |g| {
            let sums = g.section(SectionKind::Sums).offset;
            g.put(entry(SectionKind::Adjacency), sums);
        },
        "header at offset",
    ),
    case("lists behind all bytes", |g| g.put(entry(SectionKind::Adjacency), u64::MAX - 4095), "outside"),
    case("lists of all bytes", |g| g.put(entry(SectionKind::Adjacency) + 8, u64::MAX), "outside"),
    case(
        "a longer index",
        |g| {
            let length = g.section(SectionKind::Index).length;
            g.put(entry(SectionKind::Index) + 8, length + 1);
        },
        "do not fit",
    ),
    case("no checksums", |g| g.put(entry(SectionKind::Sums), 0), "do not fit"),
    case(
        "fewer checksums",
        |g| {
            let sums = g.section(SectionKind::Sums);
            g.put(entry(SectionKind::Sums), sums.offset - PAGE_BYTES);
            g.put(entry(SectionKind::Sums) + 8, sums.length - 4);
        },
        "header at offset",
    ),
];

/// Of the first page and contradicted by the index.
const COUNTS: [Case; 3] = [
    case("a neighbour less", |g| g.put(48, g.header.entries - 1), "index at offset"),
    case("a smaller degree", |g| g.put(64, 1), "more neighbours than any (1)"),
    case("a larger degree", |g| g.put(64, g.header.max_degree + 1), "neighbours of one vertex at most"),
];

/// Changes a number of an entry of the index: which entry, which byte of it.
fn change_index(g: &mut Crafted, [entry, byte]: [u64; 2], change: impl Fn(u64) -> u64) {
    let bytes = if g.header.order == Order::Degree { 24 } else { 72 };
    let at = g.at(SectionKind::Index, entry, bytes) + byte as usize;
    let value = change(g.get(at));
    g.put(at, value);
}

fn last_run(g: &Crafted) -> u64 {
    g.section(SectionKind::Index).length / 24 - 1
}

const RUNS: [Case; 11] = [
    case("no list of vertex 0", |g| change_index(g, [0, 0], |_| 1), "index at offset"),
    case("runs that do not ascend", |g| change_index(g, [2, 0], |_| 1), "begins at vertex 1 behind"),
    case("a run beyond all lists", |g| change_index(g, [last_run(g), 0], |_| 1 << 62), "index at offset"),
    case(
        "a run behind the last list",
        |g| {
            let listed = g.header.listed;
            change_index(g, [last_run(g), 0], |_| listed);
        },
        "index at offset",
    ),
    case("degrees that rise", |g| change_index(g, [1, 8], |degree| degree + 1_000), "degrees rise"),
    case("a degree beyond 64 bits of bytes", |g| change_index(g, [0, 8], |_| u64::MAX), "than any"),
    case("a shorter list", |g| change_index(g, [last_run(g), 8], |_| 0), "index at offset"),
    case("a list between two words", |g| change_index(g, [1, 16], |offset| offset + 2), "not at"),
    case("lists that overlap", |g| change_index(g, [1, 16], |offset| offset - 4), "not at"),
    case("a list behind the file", |g| change_index(g, [last_run(g), 16], |_| 1 << 40), "not at"),
    case("a list beyond 64 bits", |g| change_index(g, [0, 16], |_| u64::MAX - 3), "not at 0"),
];

const GROUPS: [Case; 6] = [
    case("lists that end too early", |g| change_index(g, [1, 0], |end| end - 4), "end at"),
    case("lists that end beyond 64 bits", |g| change_index(g, [3, 0], |_| u64::MAX - 3), "end at"),
    case("a list behind the file", |g| change_index(g, [0, 0], |_| 1 << 40), "end at"),
    case("a neighbour more", |g| change_index(g, [5, 8], |degrees| degrees + 1), "index at offset"),
    case("4 billion neighbours", |g| change_index(g, [2, 8], |_| u64::MAX), "than any"),
    case(
        "more lists than vertices",
        |g| {
            let last = g.section(SectionKind::Index).length / 72 - 1;
            change_index(g, [last, 8 + 4 * 14], |degrees| degrees | 1 << 32);
        },
        "more lists",
    ),
];

/// Vertices that the graph does not have.
const LISTS: [Case; 2] = [
    case(
        "lists of vertex 4294967295",
        |g| g.put_on_each_page(SectionKind::Adjacency, u32::MAX),
        "vertex 4294967295 is not below",
    ),
    case(
        "lists of the first vertex without one",
        |g| g.put_on_each_page(SectionKind::Adjacency, g.header.listed as u32),
        "adjacency at offset",
    ),
];

const NEW_NUMBERS: Case = case(
    "new numbers beyond all",
    |g| g.put_on_each_page(SectionKind::OldToNew, u32::MAX),
    "old-to-new numbers at offset",
);

const OLD_NUMBERS: Case = case(
    "old numbers beyond all",
    |g| g.put_on_each_page(SectionKind::NewToOld, g.header.vertices as u32),
    "new-to-old numbers at offset",
);

const ONE_NUMBER: Case = case(
    "two vertices of one number",
    |g| {
        let first = g.at(SectionKind::NewToOld, 0, 4);
        g.bytes.copy_within(first..first + 4, first + 4);
    },
    "is there twice",
);

const HEADS: Case = case(
    "heads beyond all",
    |g| g.put_on_each_page(SectionKind::Heads, g.header.listed as u32),
    "heads at offset",
);

/// All readers but that of the numbers.
fn of_lists() -> Vec<&'static str> {
    READERS.into_iter().map(|(name, _)| name).filter(|name| *name != "numbers").collect()
}

/// Not a multiple of the vertices of a group, and some have no neighbours.
fn small() -> Edges {
    Edges { n: 1029, ..kronecker(10, 8, 7) }
}

#[test]
fn a_first_page_that_contradicts_itself_is_corrupt() {
    let place = Place::new();
    for good in [Crafted::of(&small(), Order::Degree, 1), Crafted::of(&small(), Order::Given, 2)] {
        place.open(&good).expect("is good");
        for case in HEADER {
            let Err(error) = place.open(&case.of(&good)) else { panic!("{}: is not seen", case.name) };
            assert!(matches!(error, GraphError::Corrupt { .. }), "{}: {error}", case.name);
            assert!(error.to_string().contains(case.words), "{}: {error}", case.name);
        }
    }
}

#[test]
fn an_index_that_contradicts_itself_is_corrupt_to_each_reader() {
    let _alone = ALONE.lock();
    let (place, readers) = (Place::new(), of_lists());
    for (order, of_index) in [(Order::Degree, &RUNS[..]), (Order::Given, &GROUPS[..])] {
        let good = Crafted::of(&small(), order, 1);
        for case in COUNTS.iter().chain(of_index) {
            place.check(case, &good, &readers, &readers);
        }
    }
}

#[test]
fn a_vertex_that_is_none_of_the_graph_is_corrupt_to_each_reader() {
    let _alone = ALONE.lock();
    let (place, readers) = (Place::new(), of_lists());
    let good = Crafted::of(&small(), Order::Degree, 1);
    for good in [&good, &Crafted::of(&small(), Order::Given, 0)] {
        LISTS.iter().for_each(|case| place.check(case, good, &[], &readers));
    }
    let by_source = ["semi", "semi in the least memory", "many", "many with trees", "mr", "mm", "numbers"];
    place.check(&NEW_NUMBERS, &good, &[], &by_source);
    let by_result = ["semi", "semi in the least memory", "many with trees", "mr", "mm", "export", "numbers"];
    place.check(&OLD_NUMBERS, &good, &[], &by_result);
    let by_order = ["many with trees", "mr", "mm"];
    place.check(&ONE_NUMBER, &good, &by_order, &by_order);
}

/// Levels of a small graph are all searched from a queue. These are searched bottom-up, by heads in memory and by heads on the drive.
#[test]
fn a_head_that_is_none_of_the_graph_is_corrupt() {
    let _alone = ALONE.lock();
    let place = Place::new();
    let large = kronecker(15, 24, 3);
    let searches = ["semi", "semi in the least memory", "many", "many in the least memory"];
    let with_heads = ["semi", "semi in the least memory", "many"];
    let good = Crafted::of(&large, Order::Degree, 1);
    place.check(&HEADS, &good, &searches, &with_heads);
    LISTS.iter().for_each(|case| place.check(case, &good, &searches, &searches));
}

/// A ring of edges in one direction that calls itself undirected: two levels before are not all that was seen.
#[test]
fn a_search_by_sorting_of_edges_in_one_direction_ends() {
    let _alone = ALONE.lock();
    let place = Place::new();
    let pairs = (0..128).map(|v| (v, (v + 1) % 128)).collect();
    let ring = Edges { name: "ring", n: 128, directed: true, pairs };
    let case = case("edges in one direction", |g| g.bytes[12] &= !1, "in the list of one end only");
    for order in [Order::Degree, Order::Given] {
        let good = Crafted::of(&ring, order, 0);
        place.check(&case, &good, &["semi", "many"], &[]);
        expect_corrupt(&case, &good, &["mr", "mm"]);
    }
}

/// The clusters of such a graph can be grown, where a master lies opposite to the source: it is the search that never ends.
#[test]
fn a_search_by_clusters_of_edges_in_one_direction_ends() {
    let _alone = ALONE.lock();
    // Vertex 49 is a master; the two between it and the source are none.
    let pairs = vec![(5, 0), (0, 49), (49, 1), (1, 5)];
    let ring = Edges { name: "ring", n: 4096, directed: true, pairs };
    let case = case("edges in one direction", |g| g.bytes[12] &= !1, "in the list of one end only");
    expect_corrupt(&case, &Crafted::of(&ring, Order::Given, 0), &["mm"]);
}

/// A second run where all lists have one length, behind the last of them.
#[test]
fn a_run_without_a_list_is_corrupt() {
    let _alone = ALONE.lock();
    let pairs = (0..128).map(|v| (v, (v + 1) % 128)).collect();
    let ring = Edges { name: "ring", n: 128, directed: false, pairs };
    let change = |g: &mut Crafted| {
        let (first, end) = (g.at(SectionKind::Index, 0, 24), g.section(SectionKind::Adjacency).length);
        for (place, value) in [g.header.listed, 1, end].into_iter().enumerate() {
            g.put(first + 24 + 8 * place, value);
        }
        g.put(entry(SectionKind::Index) + 8, 48);
    };
    let case = case("a run without a list", change, "vertex 128 has no list");
    expect_corrupt(&case, &Crafted::of(&ring, Order::Degree, 0), &of_lists());
}

/// Readers call the changed graph corrupt.
fn expect_corrupt(case: &Case, good: &Crafted, readers: &[&str]) {
    let place = Place::new();
    for reader in those(readers) {
        let error = place.answer(&case.of(good), reader).expect_err(reader.0).to_string();
        assert!(error.contains(case.words), "{}: {error}", reader.0);
    }
}

/// A word of the file by what it is of, and what it is to be.
fn a_change() -> impl Strategy<Value = (u8, prop::sample::Index, u32)> {
    let value = prop_oneof![any::<u32>(), 0..1100_u32, Just(u32::MAX), Just(1 << 31)];
    (0..5_u8, any::<prop::sample::Index>(), value)
}

static GOOD: LazyLock<[Crafted; 2]> =
    LazyLock::new(|| [Crafted::of(&small(), Order::Degree, 1), Crafted::of(&small(), Order::Given, 2)]);

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_other_word_in_the_file_ends_in_an_answer_or_an_error((part, word, value) in a_change()) {
        let _alone = ALONE.lock();
        for good in &*GOOD {
            let mut changed = good.clone();
            // Half of the draws are of the few bytes that all others are found by.
            let index = good.section(SectionKind::Index);
            let (first, bytes) = match part {
                0 => (0, 272),
                1 | 2 => (index.offset as usize, index.length as usize),
                _ => (0, changed.bytes.len()),
            };
            let at = first + word.index(bytes / 4) * 4;
            changed.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            changed.mend();
            let place = Place::new();
            for reader in those(&["semi", "semi in the least memory", "many with trees", "mr"]) {
                let (name, answer) = (reader.0, place.answer(&changed, reader));
                let is_told = match &answer {
                    Ok(_) | Err(GraphError::Corrupt { .. }) => true,
                    // The magic, the version, the length and the flags say this.
                    Err(
                        GraphError::WrongFormat { .. }
                        | GraphError::NewerVersion { .. }
                        | GraphError::Truncated { .. }
                        | GraphError::Invalid { .. },
                    ) => at < PAGE,
                    Err(_) => false,
                };
                prop_assert!(is_told, "{name}, {value} at {at}: {answer:?}");
            }
        }
    }
}
