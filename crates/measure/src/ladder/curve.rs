//! The levels that a pointer chase shows.
//!
//! A chase through a random cycle over a set takes a level's latency as long as the set fits that level. Where it no
//! longer does, latency climbs: at once where the cache replaces what was used longest ago, since a cycle comes back to each
//! line last; along 1 − capacity/set where it replaces at random; somewhere between in real ones. So no
//! shape of the climb is assumed. In this order:
//!
//! 1. Latency cannot fall where a set grows. The medians' logarithms are replaced by their isotonic regression
//!    (pool adjacent violators; Ayer et al. 1955), which takes out what noise there is.
//! 2. A **plateau** is the longest run of points that spans `NARROWEST` octaves or more and rises by at most
//!    `LEVEL` in all. Of runs that overlap the one at the curve's end is taken, or else the longer. Neighbours that
//!    differ by less than `APART` are one.
//! 3. A plateau's **knee** is the last set whose latency is within `LEVEL` of the plateau's last quarter. The
//!    plateau that the curve ends on has none: it is memory. So is all that lies beyond twice the last cache that the
//!    kernel tells of, however unsteady.
//! 4. What the kernel says of the caches gives plateaus their names: a cache has the plateau whose knee
//!    is next to its size, between the size of the cache before and twice its own. A kernel that says nothing leaves
//!    them to be counted. A cache without a plateau, and a plateau without a cache, are said to be so.
//! 5. A level's **latency** is read where neither neighbour is mixed in: among the plateau's points between a quarter
//!    of the knee and 0.71 of it; of the last plateau over its last octave.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Octaves that a plateau spans at least.
const NARROWEST: f64 = 1.0;
/// How much latency rises over a plateau at most.
const LEVEL: f64 = 1.15;
/// How far plateaus that are two lie apart at least.
const APART: f64 = 1.3;
/// A cache's plateau ends within this many times its size.
const LARGER: f64 = 2.0;
/// A plateau that ends below its cache's size by more than this is of a part of it.
const SMALLER: f64 = 0.5;
/// What a set holds beyond the last cache at least, to be one of memory.
const BEYOND: u64 = 2;

/// A cache as the kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// 1 is nearest to the CPU.
    pub level: u32,
    /// Its size, bytes.
    pub bytes: u64,
}

/// How a chase and the kernel agree about a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sighting {
    /// The chase's knee is at the size that the kernel tells, within a factor of two.
    Confirmed,
    /// The knee lies below half of it: others use the rest, or this machine is given a part.
    Smaller,
    /// The chase shows no level that ends there.
    NotSeen,
    /// The chase shows a level of which the kernel says nothing.
    Untold,
}

impl Sighting {
    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Confirmed => "as the kernel tells",
            Self::Smaller => "less than the kernel tells",
            Self::NotSeen => "not seen in the chase",
            Self::Untold => "the kernel says nothing of it",
        }
    }
}

/// A level that was read out of a curve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// `L1`, `L2`, …, `DRAM`.
    pub name: String,
    /// Its size as the kernel tells it.
    pub told_bytes: Option<u64>,
    /// Its knee; none of memory, and where none was seen.
    pub knee_bytes: Option<u64>,
    /// Whether the two agree; none of memory.
    pub sighting: Option<Sighting>,
    /// The points of the curve that its latency is read from; none where nothing shows it.
    pub points: Vec<usize>,
}

impl Found {
    /// Whether it is memory.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        self.sighting.is_none()
    }

    /// What it holds for sure: the lesser of what is told and what was seen.
    #[must_use]
    pub fn holds_bytes(&self) -> Option<u64> {
        match (self.told_bytes, self.knee_bytes) {
            (Some(told), Some(knee)) => Some(told.min(knee)),
            (told, knee) => told.or(knee),
        }
    }
}

/// A run of points of one latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plateau {
    first: usize,
    last: usize,
}

/// The levels of a curve of sets in bytes, ascending, and latencies, nearest level first.
#[must_use]
pub fn levels(curve: &[(u64, f64)], told: &[Told]) -> Vec<Found> {
    let usable = |(bytes, ns): &(u64, f64)| *bytes > 0 && ns.is_finite() && *ns > 0.0;
    if curve.is_empty() || !curve.iter().all(usable) {
        return told.iter().map(|cache| unseen(cache, &[], 0)).collect();
    }
    let plateaus = plateaus(curve);
    let last = curve.len() - 1;
    let (of_caches, memory) = memory(curve, &plateaus, told);
    let mut found = name(curve, of_caches, told);
    found.extend(memory.map(|plateau| Found {
        name: "DRAM".to_owned(),
        told_bytes: None,
        knee_bytes: None,
        sighting: None,
        points: within(curve, plateau, curve[last].0 as f64 / 2.0, curve[last].0 as f64),
    }));
    found
}

/// The plateaus of caches, and that of memory if the sets reach so far.
fn memory<'p>(
    curve: &[(u64, f64)],
    plateaus: &'p [Plateau],
    told: &[Told],
) -> (&'p [Plateau], Option<Plateau>) {
    let last = curve.len() - 1;
    let Some(largest) = told.iter().map(|cache| cache.bytes).max() else {
        // Nobody knows where memory begins, but what the curve ends on is the farthest there is.
        return match plateaus.split_last() {
            Some((memory, caches)) if memory.last == last => (caches, Some(*memory)),
            _ => (plateaus, None),
        };
    };
    if curve[last].0 < largest.saturating_mul(BEYOND) {
        return (plateaus, None);
    }
    // Beyond the last cache there is memory, however unsteady: noise there makes no level.
    let knee = |p: &Plateau| curve[p.last].0 as f64;
    let caches = plateaus.iter().take_while(|p| knee(p) <= largest as f64 * LARGER).count();
    let of_memory = plateaus.get(caches).map_or(last, |p| p.first);
    let octave = curve.iter().position(|(bytes, _)| *bytes >= curve[last].0 / 2).unwrap_or(last);
    (&plateaus[..caches], Some(Plateau { first: of_memory.min(octave), last }))
}

/// Gives plateaus the names of caches.
fn name(curve: &[(u64, f64)], plateaus: &[Plateau], told: &[Told]) -> Vec<Found> {
    let knee = |plateau: &Plateau| curve[plateau.last].0;
    if told.is_empty() {
        let one = |(i, plateau): (usize, &Plateau)| of(curve, *plateau, format!("L{}", i + 1), None);
        return plateaus.iter().enumerate().map(one).collect();
    }
    let mut found = Vec::new();
    let mut next = 0;
    let mut before = 0;
    for cache in told {
        let low = (before as f64 * 2f64.sqrt()).min(cache.bytes as f64 * SMALLER);
        let fits = |p: &Plateau| {
            let knee = knee(p) as f64;
            knee > low && knee <= cache.bytes as f64 * LARGER
        };
        let distance = |p: &Plateau| (knee(p) as f64 / cache.bytes as f64).ln().abs();
        let candidates = plateaus.iter().enumerate().skip(next).filter(|(_, p)| fits(p));
        let best = candidates.min_by(|(_, a), (_, b)| distance(a).total_cmp(&distance(b)));
        match best {
            Some((i, plateau)) => {
                found.extend(plateaus[next..i].iter().map(|p| untold(curve, *p)));
                found.push(of(curve, *plateau, format!("L{}", cache.level), Some(cache)));
                next = i + 1;
            }
            None => found.push(unseen(cache, curve, before)),
        }
        before = cache.bytes;
    }
    found.extend(plateaus[next..].iter().map(|p| untold(curve, *p)));
    found
}

fn untold(curve: &[(u64, f64)], plateau: Plateau) -> Found {
    let knee = units::bytes(curve[plateau.last].0);
    of(curve, plateau, format!("up to {knee}"), None)
}

/// The level of a plateau.
fn of(curve: &[(u64, f64)], plateau: Plateau, name: String, told: Option<&Told>) -> Found {
    let knee = curve[plateau.last].0;
    let sighting = match told {
        None => Sighting::Untold,
        Some(told) if (knee as f64) < told.bytes as f64 * SMALLER => Sighting::Smaller,
        Some(_) => Sighting::Confirmed,
    };
    let holds = told.map_or(knee, |told| told.bytes.min(knee)) as f64;
    Found {
        name,
        told_bytes: told.map(|told| told.bytes),
        knee_bytes: Some(knee),
        sighting: Some(sighting),
        points: within(curve, plateau, holds / 4.0, holds * 0.71),
    }
}

/// A cache without a plateau, with the points where it alone should answer, if there are any.
fn unseen(cache: &Told, curve: &[(u64, f64)], before: u64) -> Found {
    let (low, high) = ((cache.bytes / 4).max(before.saturating_mul(2)) as f64, cache.bytes as f64 * 0.71);
    let inside = |(_, (bytes, _)): &(usize, &(u64, f64))| (low..=high).contains(&(*bytes as f64));
    Found {
        name: format!("L{}", cache.level),
        told_bytes: Some(cache.bytes),
        knee_bytes: None,
        sighting: Some(Sighting::NotSeen),
        points: curve.iter().enumerate().filter(inside).map(|(i, _)| i).collect(),
    }
}

/// The points of a plateau whose sets lie between two sizes; all of them where none does.
fn within(curve: &[(u64, f64)], plateau: Plateau, low: f64, high: f64) -> Vec<usize> {
    let all = plateau.first..=plateau.last;
    let inside: Vec<usize> = all.clone().filter(|i| (low..=high).contains(&(curve[*i].0 as f64))).collect();
    if inside.is_empty() { all.collect() } else { inside }
}

/// The plateaus, in order.
fn plateaus(curve: &[(u64, f64)]) -> Vec<Plateau> {
    let heights = isotonic(&curve.iter().map(|(_, ns)| ns.ln()).collect::<Vec<_>>());
    let octaves = |p: &Plateau| (curve[p.last].0 as f64 / curve[p.first].0 as f64).log2();
    let mut runs: Vec<Plateau> = (0..curve.len())
        .map(|first| {
            let top = heights[first] + LEVEL.ln();
            let last = first + heights[first..].iter().take_while(|h| **h <= top).count() - 1;
            Plateau { first, last }
        })
        .filter(|run| octaves(run) >= NARROWEST)
        .collect();
    // The one that the curve ends on before all, for only the end of the measurement keeps it from being longer; then
    // the longest; of equals the one that begins first.
    let ends = |run: &Plateau| run.last + 1 == curve.len();
    runs.sort_by(|a, b| {
        ends(b).cmp(&ends(a)).then(octaves(b).total_cmp(&octaves(a))).then(a.first.cmp(&b.first))
    });
    let mut taken: Vec<Plateau> = Vec::new();
    for run in runs {
        if taken.iter().all(|t| run.last < t.first || t.last < run.first) {
            taken.push(run);
        }
    }
    taken.sort_by_key(|p| p.first);
    let height = |p: &Plateau| heights[p.first + (p.last - p.first) / 2];
    let mut apart: Vec<Plateau> = Vec::new();
    for plateau in taken {
        match apart.last_mut() {
            Some(last) if height(&plateau) - height(last) < APART.ln() => last.last = plateau.last,
            _ => apart.push(plateau),
        }
    }
    // A run that begins on the climb from the level before has spent its rise there: it ends where latency
    // leaves that of its last quarter.
    for i in 0..apart.len() {
        let limit = apart.get(i + 1).map_or(curve.len(), |next| next.first);
        let quarter = (apart[i].last - apart[i].first) / 4;
        let top = heights[apart[i].last - quarter] + LEVEL.ln();
        let more = heights[apart[i].last + 1..limit].iter().take_while(|h| **h <= top).count();
        apart[i].last += more;
    }
    apart
}

/// The non-decreasing sequence that is nearest by squares: pool adjacent violators.
fn isotonic(values: &[f64]) -> Vec<f64> {
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for value in values {
        blocks.push((*value, 1));
        while let [.., (low, n), (high, m)] = blocks[..]
            && low > high
        {
            blocks.pop();
            let last = blocks.len() - 1;
            blocks[last] = ((low * n as f64 + high * m as f64) / (n + m) as f64, n + m);
        }
    }
    blocks.into_iter().flat_map(|(value, count)| std::iter::repeat_n(value, count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How a cache forgets.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Replacement {
        Oldest,
        Random,
    }

    /// Sets from 4 KiB, four to an octave.
    fn sets(largest: u64) -> Vec<u64> {
        let step = |i: u32| (4096.0 * 2f64.powf(f64::from(i) / 4.0)) as u64 / 64 * 64;
        (0..).map(step).take_while(|set| *set <= largest).collect()
    }

    /// The curve of caches of these sizes and latencies, and of memory behind them.
    fn curve(caches: &[(u64, f64)], memory: f64, how: Replacement, largest: u64) -> Vec<(u64, f64)> {
        let latency = |set: u64| {
            let (mut ns, mut held) = (0.0, 0.0);
            for (bytes, latency) in caches {
                let share = match how {
                    Replacement::Oldest => f64::from(u8::from(set <= *bytes)),
                    Replacement::Random => (*bytes as f64 / set as f64).min(1.0),
                };
                ns += (share - held).max(0.0) * latency;
                held = share.max(held);
            }
            ns + (1.0 - held) * memory
        };
        sets(largest).into_iter().map(|set| (set, latency(set))).collect()
    }

    fn told(sizes: &[u64]) -> Vec<Told> {
        sizes.iter().enumerate().map(|(i, bytes)| Told { level: i as u32 + 1, bytes: *bytes }).collect()
    }

    /// The latency that a level is read at.
    fn read(curve: &[(u64, f64)], found: &Found) -> f64 {
        found.points.iter().map(|i| curve[*i].1).sum::<f64>() / found.points.len() as f64
    }

    const XEON: [(u64, f64); 3] = [(32 << 10, 1.6), (1 << 20, 4.8), (36 << 20, 22.0)];

    #[test]
    fn a_servers_levels_are_found_where_the_kernel_says() {
        for how in [Replacement::Oldest, Replacement::Random] {
            let curve = curve(&XEON, 90.0, how, 256 << 20);
            let found = levels(&curve, &told(&[32 << 10, 1 << 20, 36 << 20]));
            let names: Vec<&str> = found.iter().map(|f| f.name.as_str()).collect();
            assert_eq!(names, ["L1", "L2", "L3", "DRAM"], "{how:?}: {found:?}");
            assert!(found[..3].iter().all(|f| f.sighting == Some(Sighting::Confirmed)), "{found:?}");
            for (f, ns) in found.iter().zip([1.6, 4.8, 22.0, 90.0]) {
                // Sets that a random cache holds in part take a part of the level before.
                assert!((read(&curve, f) / ns - 1.0).abs() < 0.2, "{how:?} {}: {}", f.name, read(&curve, f));
            }
        }
    }

    #[test]
    fn caches_that_a_hypervisor_hides_are_counted() {
        let curve = curve(&XEON, 90.0, Replacement::Oldest, 256 << 20);
        let found = levels(&curve, &[]);
        let names: Vec<&str> = found.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["L1", "L2", "L3", "DRAM"]);
        assert!(found[..3].iter().all(|f| f.sighting == Some(Sighting::Untold)));
    }

    #[test]
    fn a_machine_without_a_third_cache_has_none() {
        let curve = curve(&XEON[..2], 90.0, Replacement::Oldest, 64 << 20);
        let found = levels(&curve, &told(&[32 << 10, 1 << 20]));
        let names: Vec<&str> = found.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["L1", "L2", "DRAM"]);
    }

    #[test]
    fn a_cache_that_is_shared_away_is_told_and_not_seen() {
        let curve = curve(&XEON[..2], 90.0, Replacement::Oldest, 256 << 20);
        let found = levels(&curve, &told(&[32 << 10, 1 << 20, 36 << 20]));
        assert_eq!(found[2].sighting, Some(Sighting::NotSeen));
        assert_eq!((found[2].name.as_str(), found[3].name.as_str()), ("L3", "DRAM"));
    }

    #[test]
    fn a_cache_of_which_a_part_is_given_is_smaller_than_told() {
        let part = [XEON[0], XEON[1], (12 << 20, 22.0)];
        let curve = curve(&part, 90.0, Replacement::Oldest, 256 << 20);
        let found = levels(&curve, &told(&[32 << 10, 1 << 20, 36 << 20]));
        assert_eq!(found[2].sighting, Some(Sighting::Smaller), "{found:?}");
        assert!(found[2].holds_bytes() <= Some(12 << 20));
    }

    #[test]
    fn memory_that_is_busy_is_one_level_all_the_same() {
        let mut curve = curve(&XEON, 90.0, Replacement::Oldest, 256 << 20);
        // Somebody else uses it: two levels of it, and no end to the climb.
        for (i, (bytes, ns)) in curve.iter_mut().filter(|(bytes, _)| *bytes > 80 << 20).enumerate() {
            *ns *= if *bytes < 160 << 20 { 1.0 } else { 1.4 + i as f64 / 4.0 };
        }
        let found = levels(&curve, &told(&[32 << 10, 1 << 20, 36 << 20]));
        let names: Vec<&str> = found.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["L1", "L2", "L3", "DRAM"], "{found:?}");
        assert!(found[3].points.iter().all(|i| curve[*i].0 >= 128 << 20));
    }

    #[test]
    fn sets_that_the_last_cache_holds_show_no_memory() {
        let curve = curve(&XEON, 90.0, Replacement::Oldest, 32 << 20);
        let found = levels(&curve, &told(&[32 << 10, 1 << 20, 36 << 20]));
        assert!(found.iter().all(|f| !f.is_memory()), "{found:?}");
        assert_eq!(found[2].name, "L3");
    }

    #[test]
    fn a_curve_that_is_none_shows_nothing() {
        let caches = told(&[32 << 10]);
        for curve in [vec![], vec![(4096, f64::NAN)], vec![(0, 1.0)], vec![(4096, 0.0)]] {
            let found = levels(&curve, &caches);
            assert_eq!((found.len(), found[0].sighting), (1, Some(Sighting::NotSeen)), "{curve:?}");
            assert!(found[0].points.is_empty());
        }
        assert_eq!(levels(&[], &[]), []);
    }

    #[test]
    fn violators_are_pooled() {
        assert_eq!(isotonic(&[1.0, 3.0, 2.0, 4.0, 0.0]), [1.0, 2.25, 2.25, 2.25, 2.25]);
        assert_eq!(isotonic(&[]), [0.0; 0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        /// Knees of known places come back within half an octave, whatever the sizes, steps and noise up to 3 %.
        #[test]
        fn knees_of_known_places_come_back(
            first in 14u32..17,
            apart in proptest::collection::vec(4u32..6, 0..3),
            steps in proptest::collection::vec(2.0..6.0f64, 3),
            oldest in any::<bool>(),
            noise in proptest::collection::vec(-0.03..0.03f64, 100),
        ) {
            let mut caches = vec![(1u64 << first, 1.5)];
            for (octaves, step) in apart.iter().zip(&steps) {
                let (bytes, ns) = caches[caches.len() - 1];
                caches.push((bytes << octaves, ns * step));
            }
            let (last, ns) = caches[caches.len() - 1];
            let how = if oldest { Replacement::Oldest } else { Replacement::Random };
            let mut curve = curve(&caches, ns * steps[2], how, last << 5);
            for ((_, ns), by) in curve.iter_mut().zip(&noise) {
                *ns *= 1.0 + by;
            }
            let sizes: Vec<u64> = caches.iter().map(|(bytes, _)| *bytes).collect();
            for kernel in [told(&sizes), Vec::new()] {
                let found = levels(&curve, &kernel);
                let knees: Vec<u64> = found.iter().filter_map(|f| f.knee_bytes).collect();
                prop_assert_eq!(knees.len(), sizes.len(), "{:?} of {:?}", &found, &caches);
                for (knee, size) in knees.iter().zip(&sizes) {
                    let off = (*knee as f64 / *size as f64).log2().abs();
                    prop_assert!(off <= 0.5, "{} for {}", knee, size);
                }
                prop_assert!(found.last().is_some_and(Found::is_memory));
            }
        }

        /// Whatever is measured, nothing panics, levels come in order, and their points are the curve's.
        #[test]
        fn any_curve_is_read(
            latencies in proptest::collection::vec(1e-3..1e6f64, 0..80),
            sizes in proptest::collection::btree_set(1u64..1 << 30, 0..5),
        ) {
            let curve: Vec<(u64, f64)> = sets(u64::MAX >> 8).into_iter().zip(latencies).collect();
            let kernel = told(&sizes.into_iter().collect::<Vec<_>>());
            let found = levels(&curve, &kernel);
            prop_assert!(kernel.iter().all(|cache| found.iter().any(|f| f.told_bytes == Some(cache.bytes))));
            prop_assert!(found.iter().flat_map(|f| &f.points).all(|i| *i < curve.len()));
            prop_assert!(found.iter().filter(|f| f.is_memory()).count() <= 1);
        }
    }
}
