//! Caches and memory: the chase over growing sets, what it shows, and the four figures of each level.
//!
//! Everything runs on one CPU, on a thread of its own that is bound to it. Rounds are interleaved: each goes through all
//! sets, in a new cycle each, before any set is measured again, so that what changes slowly falls on all alike. The clock
//! is taken before and after each set. Memory of other nodes is measured last, one node after the other.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use measure::ladder::curve::{self, Found, Told};
use measure::ladder::{CurvePoint, FourFigures, Kind, Level, Requests};
use measure::stats::{DEFAULT_LEVEL, Estimate, median_estimate};
use storage::pages::PageKind;
use storage::sysfs::Cache;
use storage::words::WordBuffer;

use super::figures::{Four, LINE, four};
use super::{chase, tell::Teller};

/// The smallest set.
const SMALLEST: u64 = 4096;
/// The largest is so many times the last cache, so that the chase finds next to nothing there.
const BEYOND_CACHE: u64 = 8;
/// And at least this, where the kernel tells of no cache, or of small ones.
const LEAST_LARGEST: u64 = 128 << 20;
/// And at most this.
const MOST_LARGEST: u64 = 4 << 30;

/// Where and how long memory is measured.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    /// The CPU.
    pub cpu: u32,
    /// Its caches, as the kernel tells them.
    pub caches: Vec<Cache>,
    /// Its node, where there are several.
    pub node: Option<u32>,
    /// The others.
    pub far: Vec<u32>,
    /// The largest set.
    pub largest: u64,
    /// Time of one measurement.
    pub time: Duration,
    pub rounds: u32,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    pub curve: Vec<CurvePoint>,
    pub levels: Vec<Level>,
    /// Nodes whose memory could not be had.
    pub absent: Vec<(u32, io::ErrorKind, String)>,
    pub frequency_hz: Option<Estimate>,
    pub pages: String,
}

/// The largest set for these caches, of what memory there is.
pub(super) fn largest(caches: &[Cache], available: u64) -> u64 {
    let last = caches.iter().map(|cache| cache.bytes).max().unwrap_or(0);
    let wanted = last.saturating_mul(BEYOND_CACHE).clamp(LEAST_LARGEST, MOST_LARGEST);
    wanted.min(available / 4)
}

/// The sets: four to an octave, and two beyond twice the last cache, where only memory is left to be seen. The last
/// one is the largest itself.
pub(super) fn sets(largest: u64, caches: &[Cache], line: u64) -> Vec<u64> {
    let last = caches.iter().map(|cache| cache.bytes).max().unwrap_or(64 << 20);
    let mut sets = Vec::new();
    let (mut quarter, mut bytes) = (0u32, SMALLEST);
    while bytes < largest {
        sets.push(bytes);
        quarter += if bytes > 2 * last { 2 } else { 1 };
        bytes = (SMALLEST as f64 * 2f64.powf(f64::from(quarter) / 4.0)) as u64 / line * line;
    }
    sets.push(largest / line * line);
    sets
}

/// Bytes from one node of the chase to the next.
pub(super) fn line_bytes(caches: &[Cache]) -> u64 {
    let told = caches.iter().map(|cache| u64::from(cache.line_bytes)).max().unwrap_or(0);
    // A line below a word, or one that is no power of two, is a kernel's slip.
    if told.is_power_of_two() && told >= 8 { told } else { LINE as u64 }
}

/// How long it takes, for a progress bar: seconds.
pub(super) fn expected(setup: &Setup) -> f64 {
    let sets = sets(setup.largest, &setup.caches, line_bytes(&setup.caches));
    let chases = sets.iter().map(|set| cost(setup, *set)).sum::<f64>();
    let levels = setup.caches.len().max(1) + 1;
    let far = setup.far.len() as f64 * (cost(setup, setup.largest) + 5.0 * setup.time.as_secs_f64());
    f64::from(setup.rounds) * (chases + levels as f64 * 5.0 * setup.time.as_secs_f64() + far)
}

/// Seconds of one set: laying and going around once, at what memory takes for a line, and the measurement.
fn cost(setup: &Setup, set: u64) -> f64 {
    set as f64 / line_bytes(&setup.caches) as f64 * 1.5e-7 + 1.3 * setup.time.as_secs_f64()
}

/// Latencies of one set or level, a sample for each round.
#[derive(Debug, Clone, Default)]
struct Samples {
    ns: Vec<f64>,
    cycles: Vec<f64>,
}

impl Samples {
    fn push(&mut self, (ns, cycles): (f64, f64)) {
        self.ns.push(ns);
        self.cycles.push(cycles);
    }
}

/// Measures on the calling thread, which is bound to the CPU.
///
/// # Errors
/// The kernel's, where there is no memory to be had.
pub(super) fn measure(setup: &Setup, stop: &AtomicBool, teller: &Teller<'_>) -> io::Result<Measured> {
    let length = usize::try_from(setup.largest).unwrap_or(usize::MAX);
    let mut words = match setup.node {
        Some(node) => WordBuffer::on_node(node, length)?,
        None => WordBuffer::new(length)?,
    };
    let stride = line_bytes(&setup.caches) / 8;
    let sets = sets(setup.largest, &setup.caches, stride * 8);
    let mut clock = Vec::new();
    let mut samples = vec![Samples::default(); sets.len()];
    for round in 0..setup.rounds {
        for (set, samples) in sets.iter().zip(&mut samples) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            teller.tell(&format!("memory, set of {}", units::bytes(*set)));
            let words = &mut words[..(*set / 8) as usize];
            samples.push(latency(words, stride as usize, round, setup.time, &mut clock));
            teller.done(cost(setup, *set));
        }
    }
    let (curve, mut levels) = judged(setup, &sets, &samples);
    four_figures(setup, &mut words, &mut levels, stop, teller);
    let mut absent = Vec::new();
    for node in &setup.far {
        match far(setup, *node, stride as usize, stop, teller, &mut clock) {
            Ok(level) => levels.extend(level),
            Err(error) => absent.push((*node, error.kind(), error.to_string())),
        }
    }
    let pages = pages_word(words.pages()).to_owned();
    if matches!(words.pages(), PageKind::Base | PageKind::Mixed) {
        for level in levels.iter_mut().filter(|level| level.kind != Kind::FarMemory) {
            level.notes.push(format!("{pages}: of large sets, walks of page tables are in the figures"));
        }
    }
    Ok(Measured { curve, levels, absent, frequency_hz: median_estimate(&clock, DEFAULT_LEVEL), pages })
}

/// One chase over a set: nanoseconds and cycles a load.
fn latency(words: &mut [u64], stride: usize, round: u32, time: Duration, clock: &mut Vec<f64>) -> (f64, f64) {
    chase::lay(words, stride, u64::from(round) << 32 | words.len() as u64);
    let before = chase::frequency_hz();
    let ns = chase::latency_ns(words, words.len().div_ceil(stride), time);
    let hz = f64::midpoint(before, chase::frequency_hz());
    clock.push(hz);
    (ns, ns * hz / 1e9)
}

/// What the chase shows.
fn judged(setup: &Setup, sets: &[u64], samples: &[Samples]) -> (Vec<CurvePoint>, Vec<Level>) {
    // A round that was broken off leaves later sets without a sample, and the curve ends there.
    let point = |(set, samples): (&u64, &Samples)| {
        let latency_ns = median_estimate(&samples.ns, DEFAULT_LEVEL)?;
        Some(CurvePoint { bytes: *set, latency_ns })
    };
    let points: Vec<CurvePoint> = sets.iter().zip(samples).map_while(point).collect();
    let told: Vec<Told> =
        setup.caches.iter().map(|cache| Told { level: cache.level, bytes: cache.bytes }).collect();
    let medians: Vec<(u64, f64)> = points.iter().map(|p| (p.bytes, p.latency_ns.value)).collect();
    let found = curve::levels(&medians, &told);
    let mut levels = Vec::with_capacity(found.len());
    let mut before = 0;
    for found in &found {
        levels.push(level(setup, found, before, samples));
        before = found.holds_bytes().unwrap_or(before);
    }
    (points, levels)
}

/// A level that was found, with its latency; `before` is what the level before it holds.
fn level(setup: &Setup, found: &Found, before: u64, samples: &[Samples]) -> Level {
    let mean = |of: fn(&Samples) -> &Vec<f64>| {
        let rounds = found.points.iter().map(|i| of(&samples[*i]).len()).min().unwrap_or(0);
        let of_round = |r: usize| {
            found.points.iter().map(|i| of(&samples[*i])[r]).sum::<f64>() / found.points.len() as f64
        };
        median_estimate(&(0..rounds).map(of_round).collect::<Vec<_>>(), DEFAULT_LEVEL)
    };
    let seen = found.sighting != Some(curve::Sighting::NotSeen);
    let cache = setup.caches.iter().find(|cache| Some(cache.bytes) == found.told_bytes);
    let about = match (found.is_memory(), cache, found.sighting) {
        (true, ..) => setup.node.map(|node| format!("of node {node}")).unwrap_or_default(),
        (_, Some(cache), _) if cache.shared_by > 1 => format!("shared by {} CPUs", cache.shared_by),
        (_, Some(_), _) => "of one CPU".to_owned(),
        (_, None, Some(sighting)) => sighting.words().to_owned(),
        (_, None, None) => String::new(),
    };
    Level {
        name: found.name.clone(),
        kind: if found.is_memory() { Kind::Memory } else { Kind::Cache },
        about,
        capacity_bytes: found.told_bytes,
        knee_bytes: found.knee_bytes,
        sighting: found.sighting,
        // What sets of its size take is not its own, where it is not there to be seen.
        latency_ns: mean(|s| &s.ns).filter(|_| seen),
        latency_cycles: mean(|s| &s.cycles).filter(|_| seen),
        figures: FourFigures::default(),
        requests: Requests {
            set_bytes: set(setup, found, before),
            random_bytes: LINE as u64,
            ..Requests::default()
        },
        notes: remark(found, mean(|s| &s.ns)).into_iter().collect(),
        warnings: Vec::new(),
    }
}

/// What is to be said of a cache of which the chase and the kernel do not say the same; `ns` is what sets of its size
/// took.
fn remark(found: &Found, ns: Option<Estimate>) -> Option<String> {
    let sighting = found.sighting.filter(|sighting| *sighting != curve::Sighting::Confirmed)?;
    let took = ns.filter(|_| sighting == curve::Sighting::NotSeen);
    let took =
        took.map(|ns| format!("; sets that should fit it took {} a load", units::nanoseconds(ns.value)));
    Some(format!("{}{}", sighting.words(), took.unwrap_or_default()))
}

/// The set that a level's four figures are taken over: half of what it holds, or between it and the level before where
/// that is larger than half; of memory the largest.
fn set(setup: &Setup, found: &Found, before: u64) -> Option<u64> {
    let bytes = match found.holds_bytes() {
        None => setup.largest,
        Some(holds) if holds / 2 >= before * 2 => holds / 2,
        Some(holds) => (holds as f64 * before.max(1) as f64).sqrt() as u64,
    };
    Some(bytes.min(setup.largest) / LINE as u64 * LINE as u64).filter(|bytes| *bytes > 0)
}

/// Takes the four figures of all levels, round by round.
fn four_figures(
    setup: &Setup,
    words: &mut [u64],
    levels: &mut [Level],
    stop: &AtomicBool,
    teller: &Teller<'_>,
) {
    let mut taken: Vec<Vec<Four>> = vec![Vec::new(); levels.len()];
    for _ in 0..setup.rounds {
        for (level, taken) in levels.iter().zip(&mut taken) {
            let Some(set) = level.requests.set_bytes.filter(|_| !stop.load(Ordering::Relaxed)) else {
                continue;
            };
            teller.tell(&format!("{}, set of {}", level.name, units::bytes(set)));
            taken.push(four(&mut words[..(set / 8) as usize], setup.time));
            teller.done(5.0 * setup.time.as_secs_f64());
        }
    }
    for (level, taken) in levels.iter_mut().zip(taken) {
        level.figures = estimates(&taken);
    }
}

fn estimates(taken: &[Four]) -> FourFigures {
    let of = |of: fn(&Four) -> f64| median_estimate(&taken.iter().map(of).collect::<Vec<_>>(), DEFAULT_LEVEL);
    FourFigures {
        sequential_write_bytes_per_s: of(|four| four.sequential_write),
        sequential_read_bytes_per_s: of(|four| four.sequential_read),
        random_write_iops: of(|four| four.random_write),
        random_read_iops: of(|four| four.random_read),
    }
}

/// Memory of another node: the largest set, by this CPU. None where it was stopped before there was a figure.
fn far(
    setup: &Setup,
    node: u32,
    stride: usize,
    stop: &AtomicBool,
    teller: &Teller<'_>,
    clock: &mut Vec<f64>,
) -> io::Result<Option<Level>> {
    if stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let mut words = WordBuffer::on_node(node, usize::try_from(setup.largest).unwrap_or(usize::MAX))?;
    let (mut samples, mut taken) = (Samples::default(), Vec::new());
    for round in 0..setup.rounds {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        teller.tell(&format!("memory of node {node}"));
        samples.push(latency(&mut words, stride, round, setup.time, clock));
        taken.push(four(&mut words, setup.time));
        teller.done(cost(setup, setup.largest) + 5.0 * setup.time.as_secs_f64());
    }
    Ok(Some(Level {
        name: format!("DRAM of node {node}"),
        kind: Kind::FarMemory,
        about: pages_word(words.pages()).to_owned(),
        capacity_bytes: None,
        knee_bytes: None,
        sighting: None,
        latency_ns: median_estimate(&samples.ns, DEFAULT_LEVEL),
        latency_cycles: median_estimate(&samples.cycles, DEFAULT_LEVEL),
        figures: estimates(&taken),
        requests: Requests {
            set_bytes: Some(setup.largest),
            random_bytes: LINE as u64,
            ..Requests::default()
        },
        notes: Vec::new(),
        warnings: Vec::new(),
    }))
}

fn pages_word(pages: PageKind) -> &'static str {
    match pages {
        PageKind::Reserved => "reserved huge pages",
        PageKind::Transparent => "transparent huge pages",
        PageKind::Mixed => "transparent huge pages in part",
        PageKind::Base => "base pages",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(level: u32, bytes: u64) -> Cache {
        Cache { level, bytes, line_bytes: 64, shared_by: level }
    }

    fn setup(largest: u64) -> Setup {
        Setup {
            cpu: 0,
            caches: vec![cache(1, 32 << 10), cache(2, 256 << 10)],
            node: None,
            far: Vec::new(),
            largest,
            time: Duration::from_micros(200),
            rounds: 2,
        }
    }

    #[test]
    fn sets_grow_in_whole_lines_from_the_smallest_to_the_largest() {
        for (largest, line) in [(1 << 20, 64), (100_000_000, 128), (4096, 64), (5000, 64)] {
            let sets = sets(largest, &[cache(1, 32 << 10)], line);
            assert_eq!(*sets.last().expect("there are sets"), largest / line * line);
            assert!(sets.windows(2).all(|pair| pair[0] < pair[1]), "{sets:?}");
            assert!(sets.iter().all(|set| set % line == 0 && *set >= 4096));
        }
    }

    #[test]
    fn the_largest_set_is_far_beyond_the_caches_and_a_quarter_of_memory_at_most() {
        assert_eq!(largest(&[cache(3, 36 << 20)], u64::MAX), 288 << 20);
        assert_eq!(largest(&[], u64::MAX), 128 << 20);
        assert_eq!(largest(&[cache(3, 36 << 20)], 400 << 20), 100 << 20);
        assert_eq!(largest(&[cache(3, 4 << 30)], u64::MAX), 4 << 30);
    }

    #[test]
    fn a_line_is_what_the_kernel_says_if_that_can_be() {
        assert_eq!(line_bytes(&[]), 64);
        assert_eq!(line_bytes(&[Cache { line_bytes: 128, ..cache(1, 1) }]), 128);
        assert_eq!(line_bytes(&[Cache { line_bytes: 100, ..cache(1, 1) }]), 64);
    }

    #[test]
    fn the_set_of_a_level_fits_it_and_not_the_level_before() {
        let setup = setup(64 << 20);
        let found = |told: u64, knee: u64| Found {
            name: "L2".into(),
            told_bytes: Some(told),
            knee_bytes: Some(knee),
            sighting: Some(curve::Sighting::Confirmed),
            points: vec![],
        };
        assert_eq!(set(&setup, &found(1 << 20, 2 << 20), 32 << 10), Some(512 << 10));
        assert_eq!(set(&setup, &found(64 << 10, 64 << 10), 32 << 10), Some(46_336));
        let memory = Found { told_bytes: None, knee_bytes: None, sighting: None, ..found(1, 1) };
        assert_eq!(set(&setup, &memory, 1 << 20), Some(64 << 20));
    }

    #[test]
    fn memory_is_measured_whatever_it_shows() {
        let teller = Teller::silent();
        let setup = setup(1 << 20);
        let measured = measure(&setup, &AtomicBool::new(false), &teller).expect("there is memory");
        assert_eq!(measured.curve.len(), sets(1 << 20, &setup.caches, 64).len());
        assert!(measured.curve.iter().all(|point| point.latency_ns.samples == 2));
        assert!(measured.levels.iter().any(|level| level.name == "L1"));
        assert!(measured.frequency_hz.is_some() && !measured.pages.is_empty());
        for level in measured.levels.iter().filter(|level| level.requests.set_bytes.is_some()) {
            assert_eq!(level.figures.random_read_iops.expect("was measured").samples, 2, "{level:?}");
        }
    }

    #[test]
    fn a_wish_to_stop_is_heeded_at_once() {
        let measured =
            measure(&setup(1 << 20), &AtomicBool::new(true), &Teller::silent()).expect("there is memory");
        assert!(measured.curve.is_empty() && measured.frequency_hz.is_none());
        assert!(measured.levels.iter().all(|level| level.latency_ns.is_none()));
    }
}
