//! Which of the searches outside memory suits a graph, a budget and a drive: how long each would take.
//!
//! A drive is two figures, measured on the graph's own in a moment ([`measure`]): single pages a second, many asked for at once,
//! and bytes a second in large requests. Bytes and requests of a search follow from the graph's counts; how many levels it
//! has does not, and is guessed from its degrees ([`levels`]). The estimate is for choosing between two, not for planning
//! a day: it has not been held against runs.
//!
//! With n vertices, m entries of w bytes on A bytes of lists, L levels, r and b of the drive, and c and d the time in which a
//! record is sorted and passed on:
//!
//! ```text
//! lists(L)   max(requests / r, bytes / b);  requests ≤ n, ≤ L·(A/32 KiB + 1);  bytes ≤ n·4 KiB + A, ≤ L·(A + 4 KiB)
//! sort(x)    2x / b if x bytes do not fit in an eighth of the budget, else 0
//! mr         lists(L) + L·sort(2wm / L) + cm
//! mm         lists(L') + L'·sort(2wm / L') + cm                clusters grow, L' = min(L, 1/μ)
//!            + A/b + sort(3wm) + sort(4wm) + 4wm/b + 2cm       edges are sorted by cluster
//!            + max(μn/r, 4wm/b)                                each cluster is read once
//!            + L'·(3wm/b + dm)                                 an edge waits in the pool for L'/2 levels, each of which reads and writes it
//! ```

use std::io;
use std::time::{Duration, Instant};

use storage::engine::{self, Engine, EngineConfig, IoEngine, Op};
use storage::on_engine;
use storage::pages::PageChoice;

use crate::GraphError;
use crate::format::{Fwg, Header, PAGE_BYTES, SectionKind};
use crate::fully_external::ExternalSearchOptions;

/// How long each of the two measurements lasts at most.
const MEASURED_FOR: Duration = Duration::from_millis(200);
/// Pages that are asked for at once, and large requests.
const PAGE_DEPTH: u32 = 32;
const LARGE_DEPTH: u32 = 8;
/// Bytes of a large request.
const LARGE_BYTES: u64 = 128 << 10;
/// Largest request for lists, bytes (`fully_external::lists`).
const LIST_REQUEST_BYTES: f64 = (32 << 10) as f64;
/// A vertex has no more neighbours in a graph that is like roads, and
const ROAD_MOST_DEGREE: u64 = 16;
/// so many on average.
const ROAD_MEAN_DEGREE: f64 = 4.0;

/// Time in which a record is sorted, and in which one is read, compared and written again, seconds: of one CPU of 2020.
const SORT_S: f64 = 60e-9;
const PASS_S: f64 = 10e-9;

/// What a drive does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DriveFigures {
    /// Pages of 4 KiB that were read at random places, a second.
    pub pages_per_s: f64,
    /// Bytes that were read in large requests, a second.
    pub bytes_per_s: f64,
    /// How long that was measured.
    pub measured: Duration,
}

/// Reads of the graph's device for less than half a second.
///
/// # Errors
/// [`GraphError::Io`] with the graph's path if no engine can be set up or a read fails.
pub fn measure(graph: &Fwg) -> Result<DriveFigures, GraphError> {
    let began = Instant::now();
    let pages = graph.header().file_bytes / PAGE_BYTES;
    let mut random = 0_u64;
    let (count, time) = reads(graph, PAGE_DEPTH, PAGE_BYTES, || {
        // Weyl's sequence, mixed: places that neither repeat soon nor follow each other.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (random ^ (random >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Some((mixed ^ (mixed >> 32)) % pages * PAGE_BYTES)
    })?;
    let pages_per_s = count as f64 / time.as_secs_f64();
    let length = LARGE_BYTES.min(pages * PAGE_BYTES);
    let mut places = (0..pages * PAGE_BYTES / length).map(|at| at * length);
    let (count, time) = reads(graph, LARGE_DEPTH, length, || places.next())?;
    let bytes_per_s = (count * length) as f64 / time.as_secs_f64();
    Ok(DriveFigures { pages_per_s, bytes_per_s, measured: began.elapsed() })
}

/// Makes reads of `length` bytes at the `next` places until there is none or the time is over; how many, and how long it took.
fn reads(
    graph: &Fwg,
    depth: u32,
    length: u64,
    mut next: impl FnMut() -> Option<u64>,
) -> Result<(u64, Duration), GraphError> {
    let failed = |source: io::Error| GraphError::io("measure", graph.path(), source);
    let pages = PageChoice::Base;
    let config = EngineConfig { depth, slot_bytes: length as usize, pages, ..EngineConfig::default() };
    let (mut engine, _) = engine::open(IoEngine::Auto, graph.device(), &config)
        .map_err(|error| failed(io::Error::other(error)))?;
    let (mut free, mut under_way, mut count) = ((0..depth).collect::<Vec<_>>(), 0_u32, 0_u64);
    let began = Instant::now();
    loop {
        while began.elapsed() < MEASURED_FOR
            && let Some(slot) = free.pop()
        {
            let Some(offset) = next() else { break };
            on_engine!(&mut engine, engine => engine.prepare(slot, Op::Read, offset, length as u32));
            under_way += 1;
        }
        if under_way == 0 {
            // A clock that stood still would make a drive infinitely fast.
            return Ok((count, began.elapsed().max(Duration::from_micros(1))));
        }
        let mut failure = None;
        on_engine!(&mut engine, engine => {
            engine.submit(1, None).map_err(|error| failed(io::Error::other(error)))?;
            engine.reap(|slot, outcome| {
                free.push(slot);
                under_way -= 1;
                count += 1;
                if let Err(error) = outcome {
                    failure.get_or_insert(error);
                }
            });
        });
        if let Some(failure) = failure {
            return Err(failed(io::Error::other(failure)));
        }
    }
}

/// How long each search would take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// Levels of the search, guessed.
    pub levels: f64,
    /// Seconds by [`munagala_ranade`](crate::fully_external::munagala_ranade).
    pub mr_s: f64,
    /// Seconds by [`mehlhorn_meyer`](crate::fully_external::mehlhorn_meyer).
    pub mm_s: f64,
}

/// Neighbours of a vertex that has any, on average.
#[must_use]
pub fn mean_degree(header: &Header) -> f64 {
    header.entries as f64 / header.listed.max(1) as f64
}

/// Levels of a search, by the degrees: few and even ones are those of a plane, where the levels grow with the root of
/// the number of vertices, and others spread by the mean degree with each level.
#[must_use]
pub fn levels(header: &Header) -> f64 {
    let (vertices, degree) = (header.listed.max(1) as f64, mean_degree(header));
    if header.max_degree <= ROAD_MOST_DEGREE && degree <= ROAD_MEAN_DEGREE {
        return 2.0 * vertices.sqrt();
    }
    2.0 + 2.0 * vertices.ln() / degree.max(2.0).ln()
}

/// The estimate for a graph within `memory` bytes. See the module's argument.
#[must_use]
pub fn forecast(header: &Header, memory: u64, drive: &DriveFigures) -> Forecast {
    let levels = levels(header);
    let width = header.width.bytes() as f64;
    let (n, m) = (header.listed.max(1) as f64, header.entries as f64);
    let lists = header.section(SectionKind::Adjacency).length as f64;
    let page = PAGE_BYTES as f64;
    let sort = |bytes: f64| {
        if bytes > memory as f64 / 8.0 { 2.0 * bytes / drive.bytes_per_s } else { 0.0 }
    };
    let read_lists = |levels: f64| {
        let requests = n.min(levels * (lists / LIST_REQUEST_BYTES + 1.0));
        let bytes = (n * page + lists).min(levels * (lists + page));
        (requests / drive.pages_per_s).max(bytes / drive.bytes_per_s)
    };
    let by_level = |levels: f64| read_lists(levels) + levels * sort(2.0 * width * m / levels) + SORT_S * m;
    let block = ExternalSearchOptions::space_options(memory).block_bytes as f64 / width;
    let all = header.vertices.max(1) as f64;
    let share = ((all + m) / (block * all)).sqrt().min(1.0);
    let within = levels.min(1.0 / share);
    let quads = 4.0 * width * m;
    let mm_s = by_level(within)
        + lists / drive.bytes_per_s
        + sort(3.0 * width * m)
        + sort(quads)
        + quads / drive.bytes_per_s
        + 2.0 * SORT_S * m
        + (share * n / drive.pages_per_s).max(quads / drive.bytes_per_s)
        + within * (3.0 * width * m / drive.bytes_per_s + PASS_S * m);
    Forecast { levels, mr_s: by_level(levels), mm_s }
}
