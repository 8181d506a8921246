//! All that reads a stored graph, held to its budget of memory.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use base::IoEngine;
use external::{Space, SpaceOptions};
use graph::export::{ExportOptions, gap};
use graph::fetch::Traffic;
use graph::format::{Fwg, SectionKind};
use graph::fully_external::{ExternalSearchOptions, SearchTree, mehlhorn_meyer, munagala_ranade};
use graph::many::{ManyConfig, space_options};
use graph::semi::{Semi, SemiConfig, in_input_order};
use graph::{GraphError, Steps, many, semi};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// Held by whoever looks at how much memory is taken.
pub static ALONE: Mutex<()> = Mutex::new(());

/// Where the searches begin, in the input's numbers.
const SOURCES: [u64; 3] = [0, 5, 77];
const EXTERNAL_BYTES: u64 = 4 << 20;
/// Beside the buffers of a search by sorting; a program has more for itself.
const BESIDE_BYTES: u64 = 256 << 10;
const EXPORT_BYTES: u64 = 24 << 20;

/// What a reader found, in a number.
pub type Answer = Result<u64, GraphError>;
/// A reader of a graph, with a directory for temporary files and the memory that it may take.
pub type Reader = (&'static str, fn(&Fwg, &Path) -> Answer);

pub const READERS: [Reader; 11] = [
    ("semi", |graph, _| search_semi(graph, 64 << 20)),
    ("semi in the least memory", |graph, _| {
        let needed = least(semi::plan(graph, &semi_config(1)).map(drop))?;
        search_semi(graph, needed)
    }),
    ("many", |graph, _| search_many(graph, 64 << 20)),
    ("many in the least memory", |graph, _| {
        let needed = least(many::plan(graph, &many_config(1), false).map(drop))?;
        search_many(graph, needed)
    }),
    ("many with trees", many_trees),
    ("mr", |graph, folder| {
        within(EXTERNAL_BYTES + BESIDE_BYTES, || drain(munagala_ranade(graph, 5, &options(folder))?))
    }),
    ("mm", |graph, folder| {
        within(EXTERNAL_BYTES + BESIDE_BYTES, || drain(mehlhorn_meyer(graph, 5, &options(folder))?))
    }),
    ("export", |graph, folder| {
        let (out, scratch) = (folder.join("g.sg"), folder.to_owned());
        let options = ExportOptions { memory: EXPORT_BYTES, scratch, threads: 1 };
        within(EXPORT_BYTES, || gap(graph, &out, &options, &Steps::default()))?;
        Ok(u64::from(crc32c::crc32c(&std::fs::read(out).expect("reads"))))
    }),
    ("lists by the index in memory", |graph, _| {
        let index = graph.index()?;
        neighbours(graph, index.cursor())
    }),
    ("lists by a window of the index", |graph, _| neighbours(graph, graph.windowed_cursor()?)),
    ("numbers", |graph, _| {
        let mut sum = 0;
        for kind in [SectionKind::OldToNew, SectionKind::NewToOld] {
            graph.numbers(kind, |first, part| {
                sum += (first..).zip(part).map(|(at, number)| (at + 1) * number).sum::<u64>();
                Ok(())
            })?;
        }
        Ok(sum)
    }),
];

/// Does work, and sees to it that no more memory is taken.
fn within<T>(memory: u64, work: impl FnOnce() -> T) -> T {
    ALLOCATED.reset_peak_usage();
    let before = ALLOCATED.current_usage();
    let result = work();
    let taken = ALLOCATED.peak_usage().saturating_sub(before) as u64;
    assert!(taken <= memory, "{taken} bytes of memory in place of {memory}");
    result
}

/// The least memory that a plan within one byte asks for.
fn least(planned: Result<(), GraphError>) -> Answer {
    match planned {
        Err(GraphError::Memory { needed, .. }) => Ok(needed),
        planned => planned.map(|()| 1),
    }
}

fn semi_config(memory: u64) -> SemiConfig {
    SemiConfig { memory, threads: 2, engine: IoEngine::Auto }
}

fn many_config(memory: u64) -> ManyConfig {
    ManyConfig { memory, threads: 2, engine: IoEngine::Auto }
}

/// Vertices reached and levels, in one number.
fn sum_of(found: impl Iterator<Item = u64>) -> u64 {
    found.map(|level| 1 + (level << 32)).sum()
}

fn search_semi(graph: &Fwg, memory: u64) -> Answer {
    let stop = AtomicBool::new(false);
    within(memory, || {
        let traffic = Traffic::of(graph);
        let mut semi = Semi::new(graph, &traffic, semi_config(memory))?;
        for source in SOURCES {
            semi.search(graph.stored_number(source)?, &stop)?;
        }
        let for_tree = semi.plan().for_tree(graph);
        let mut sum = 0;
        in_input_order(graph, semi.into_parents(), for_tree, &stop, |found| {
            sum += sum_of(found.iter().map(|(_, level)| (*level).into()));
            Ok(())
        })?;
        Ok(sum)
    })
}

fn stored(graph: &Fwg) -> Result<Vec<u64>, GraphError> {
    SOURCES.into_iter().map(|source| graph.stored_number(source)).collect()
}

fn search_many(graph: &Fwg, memory: u64) -> Answer {
    let stop = AtomicBool::new(false);
    within(memory, || {
        let traffic = Traffic::of(graph);
        let record = many::search(graph, &stored(graph)?, &many_config(memory), &traffic, &stop)?;
        Ok(record.found.iter().map(|found| found.reached + (found.distances << 32)).sum())
    })
}

fn many_trees(graph: &Fwg, folder: &Path) -> Answer {
    let (stop, memory) = (AtomicBool::new(false), 64 << 20);
    let space = Space::scratch(folder, 256 << 20, &space_options(memory))?;
    within(memory, || {
        let traffic = Traffic::of(graph);
        let stored = stored(graph)?;
        let (_, found) =
            many::search_with_trees(graph, &stored, &many_config(memory), &traffic, &stop, &space)?;
        let mut trees = found.trees(graph, &SOURCES, (memory, 1), &stop)?;
        let mut sum = 0;
        for search in 0..SOURCES.len() {
            while let Some(found) = trees.next_of(search)? {
                sum += sum_of(std::iter::once(found.level));
            }
        }
        Ok(sum)
    })
}

fn options(folder: &Path) -> ExternalSearchOptions {
    let blocks = SpaceOptions { block_bytes: 16 << 10, ..SpaceOptions::default() };
    let space = Space::scratch(folder, 256 << 20, &blocks).expect("is made");
    ExternalSearchOptions { memory: EXTERNAL_BYTES, threads: 1, space }
}

fn drain(mut tree: SearchTree) -> Answer {
    let mut sum = 0;
    while let Some(found) = tree.next_reached()? {
        sum += sum_of(std::iter::once(found.level));
    }
    Ok(sum)
}

fn neighbours(graph: &Fwg, mut cursor: graph::format::IndexCursor<'_>) -> Answer {
    let mut sum = 0;
    for vertex in 0..graph.header().vertices {
        sum += graph.neighbours(&mut cursor, vertex)?.iter().map(|id| id + 1).sum::<u64>();
    }
    Ok(sum)
}
