//! How much of each tier a working set needs.
//!
//! A [`Curve`] says which share of accesses misses a memory of so many bytes. Tiers are filled from the fastest on, and
//! the last one holds everything: with boundaries b₁ ≤ b₂ ≤ … tier k serves the share m(bₖ₋₁) − m(bₖ), where m(0) is 1.
//! A tier costs the dearer of its capacity and the requests that it has to serve. [`cheapest`] tries boundaries on a
//! grid, then on a finer one around the best; the last boundary is solved for, where a mean access time is asked for.
//! Every choice of the tiers competes, so a tier that does not pay is left out.

use schemars::JsonSchema;
use serde::Serialize;

use crate::prices::{GB, Product};
use crate::{Formula, PlanError, positive};

/// How tiers are sized.
pub const FORMULAS: [Formula; 3] = [
    Formula {
        gives: "share of a tier",
        formula: "m(b_(k-1)) - m(b_k); m: miss ratio of so many bytes under LRU",
        source: "Mattson et al., IBM Systems Journal 9(2), 1970",
    },
    Formula {
        gives: "mean access time",
        formula: "sum of share x access time",
        source: "Hennessy and Patterson, Computer Architecture, average memory access time",
    },
    Formula {
        gives: "price of a tier",
        formula: "max(capacity x price per byte, requests a second x price / IOPS of one)",
        source: "Srinivasan and Canon, CUG 2013, section V, with requests for bandwidth",
    },
];

/// Marks of the first grid, and of the finer one, for each boundary.
const GRID: usize = 160;
const FINE: usize = 24;
/// Tiers that can be searched in a moment.
pub const MOST_TIERS: usize = 4;

/// Which share of accesses misses a memory of so many bytes: a falling line of straight pieces, or of stack distances a
/// stair.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Curve {
    /// Bytes and miss ratio, from 0 bytes on.
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// Reads lines of `bytes,miss_ratio`, or a histogram of LRU stack distances, `distance_bytes,count`, in which `inf`
    /// counts first accesses. The first line is one of these two headings; `#` begins a comment.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] with the line.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let lines =
            text.lines().zip(1..).map(|(line, number)| (line.split('#').next().unwrap_or("").trim(), number));
        let mut lines = lines.filter(|(line, _)| !line.is_empty());
        let (heading, _) = lines.next().unwrap_or(("", 1));
        let is_distances = match heading.split(',').map(str::trim).collect::<Vec<_>>()[..] {
            ["bytes", "miss_ratio"] => false,
            ["distance_bytes", "count"] => true,
            _ => {
                let hint = "bytes,miss_ratio, or distance_bytes,count for stack distances";
                return Err(PlanError::invalid("line 1", format!("'{heading}' is no heading"), hint));
            }
        };
        let mut rows = Vec::new();
        for (line, number) in lines {
            let hint = "two numbers, such as 1000000,0.25";
            let wrong = |problem: &str| {
                PlanError::invalid(format!("line {number}"), format!("'{line}' {problem}"), hint)
            };
            let (bytes, value) = line.split_once(',').ok_or_else(|| wrong("is not two numbers"))?;
            let read = |text: &str| text.trim().parse::<f64>().ok().filter(|n| *n >= 0.0);
            let (bytes, value) = read(bytes).zip(read(value)).ok_or_else(|| wrong("is not two numbers"))?;
            if value > crate::LARGEST || bytes > crate::LARGEST && !(is_distances && bytes.is_infinite()) {
                return Err(wrong("is not finite, or too large"));
            }
            if !is_distances && value > 1.0 {
                return Err(wrong("has a miss ratio above 1"));
            }
            rows.push((bytes, value));
        }
        if is_distances { Self::of_distances(rows) } else { Self::of_ratios(rows) }
    }

    /// The curve of miss ratios at sizes. A size of 0 misses everything, whatever is said of it.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] if there is no point above 0 bytes, or a larger memory misses more.
    pub fn of_ratios(mut points: Vec<(f64, f64)>) -> Result<Self, PlanError> {
        points.retain(|(bytes, _)| *bytes > 0.0);
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.insert(0, (0.0, 1.0));
        for pair in points.windows(2) {
            let (bytes, ratio) = pair[1];
            if ratio > pair[0].1 {
                let hint = "a miss ratio does not grow with the size";
                return Err(PlanError::invalid(
                    format!("bytes={bytes}"),
                    "misses more than fewer bytes do",
                    hint,
                ));
            }
        }
        if points.len() < 2 {
            return Err(PlanError::invalid("curve", "has no point", "at least one size above 0 bytes"));
        }
        Ok(Self { points })
    }

    /// The curve of a histogram of stack distances: an access hits a memory that is as large as its distance, and misses
    /// any smaller one, so the curve falls at each distance, and not between them.
    fn of_distances(mut rows: Vec<(f64, f64)>) -> Result<Self, PlanError> {
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all: f64 = rows.iter().map(|(_, count)| count).sum();
        positive("count", all)?;
        let mut left = all;
        let points = rows.into_iter().filter(|(bytes, _)| bytes.is_finite()).flat_map(|(bytes, count)| {
            let before = left;
            left -= count;
            [before, left].map(|misses| (bytes.max(1.0), (misses / all).max(0.0)))
        });
        Self::of_ratios(points.collect())
    }

    /// The share of accesses that misses so many bytes.
    #[must_use]
    pub fn misses(&self, bytes: f64) -> f64 {
        let after = self.points.partition_point(|(at, _)| *at <= bytes);
        let (low, high) = (self.points[after.max(1) - 1], self.points.get(after));
        high.map_or(low.1, |high| low.1 + (bytes - low.0) / (high.0 - low.0) * (high.1 - low.1))
    }

    /// The fewest bytes that miss at most a share; None if no size does.
    #[must_use]
    pub fn bytes_for(&self, ratio: f64) -> Option<f64> {
        let after = self.points.iter().position(|(_, miss)| *miss <= ratio)?;
        let Some(before) = after.checked_sub(1) else { return Some(0.0) };
        let ((x0, y0), (x1, y1)) = (self.points[before], self.points[after]);
        Some(if y0 == y1 { x1 } else { x0 + (y0 - ratio) / (y0 - y1) * (x1 - x0) })
    }

    /// The last size of which anything is known.
    #[must_use]
    pub fn last_bytes(&self) -> f64 {
        self.points[self.points.len() - 1].0
    }
}

/// A tier that can be bought.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct PricedTier {
    /// The product.
    pub name: String,
    /// Time of one access, nanoseconds.
    pub access_ns: f64,
    /// Price of a byte.
    pub price_per_byte: f64,
    /// Price of one request a second; None if requests are not what limits it.
    pub price_per_iops: Option<f64>,
    /// Watts of a byte.
    pub watts_per_byte: Option<f64>,
}

impl PricedTier {
    /// A tier of a product.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] if the product has no access time or no price of capacity.
    pub fn of(product: &Product) -> Result<Self, PlanError> {
        Ok(Self {
            name: product.name.clone(),
            access_ns: product.needs("access_ns", product.access_ns)?,
            price_per_byte: product.needs("price_per_tb", product.price_per_byte())?,
            price_per_iops: product.price.zip(product.random_read_iops).map(|(price, iops)| price / iops),
            watts_per_byte: product.active_w.zip(product.capacity_gb).map(|(watts, gb)| watts / (gb * GB)),
        })
    }
}

/// What the tiers have to do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Demand {
    /// Bytes that the last tier holds.
    pub total_bytes: f64,
    /// Largest mean access time, nanoseconds.
    pub access_ns: Option<f64>,
    /// Requests a second.
    pub rate: Option<f64>,
}

/// A tier in a mix.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Share {
    /// The product.
    pub name: String,
    /// What it holds, bytes.
    pub bytes: f64,
    /// Share of the accesses that it serves.
    pub share: f64,
    /// Its price.
    pub price: f64,
    /// Its power while it works, watts.
    pub active_w: Option<f64>,
    /// Whether its requests and not its bytes decide the price.
    pub is_by_requests: bool,
}

/// Tiers that together do what is asked.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Mix {
    /// The tiers, fastest first.
    pub tiers: Vec<Share>,
    /// Mean access time, nanoseconds.
    pub access_ns: f64,
    /// Price of all.
    pub price: f64,
}

/// Bytes, share of accesses, price by bytes and price by requests of each tier; one boundary less than tiers.
fn parts<'a>(
    curve: &'a Curve,
    tiers: &'a [&PricedTier],
    boundaries: &'a [f64],
    demand: &'a Demand,
) -> impl Iterator<Item = (f64, f64, f64, f64)> + 'a {
    let mut above = (0.0, 1.0);
    tiers.iter().enumerate().map(move |(k, tier)| {
        let below = boundaries.get(k).map_or((demand.total_bytes, 0.0), |b| (*b, curve.misses(*b)));
        let bytes = if k == boundaries.len() { demand.total_bytes } else { below.0 - above.0 };
        let share = above.1 - below.1;
        let requests = demand.rate.unwrap_or(0.0) * share;
        above = below;
        (bytes, share, bytes * tier.price_per_byte, requests * tier.price_per_iops.unwrap_or(0.0))
    })
}

/// Price and mean access time of tiers with boundaries between them.
fn price_and_access(curve: &Curve, tiers: &[&PricedTier], boundaries: &[f64], demand: &Demand) -> (f64, f64) {
    parts(curve, tiers, boundaries, demand).zip(tiers).fold(
        (0.0, 0.0),
        |(price, access_ns), ((_, share, by_bytes, by_requests), tier)| {
            (price + by_bytes.max(by_requests), access_ns + share * tier.access_ns)
        },
    )
}

/// The mix of tiers with boundaries between them, of which there is one less.
#[must_use]
pub fn mix(curve: &Curve, tiers: &[&PricedTier], boundaries: &[f64], demand: &Demand) -> Mix {
    let (price, access_ns) = price_and_access(curve, tiers, boundaries, demand);
    let share = |((bytes, share, by_bytes, by_requests), tier): ((f64, f64, f64, f64), &&PricedTier)| Share {
        name: tier.name.clone(),
        bytes,
        share,
        price: by_bytes.max(by_requests),
        active_w: tier.watts_per_byte.map(|watts| watts * bytes),
        is_by_requests: by_requests > by_bytes,
    };
    let tiers = parts(curve, tiers, boundaries, demand).zip(tiers).map(share).collect();
    Mix { tiers, access_ns, price }
}

/// The cheapest mix of each choice of tiers that does what is asked, cheapest first. Tiers come fastest first.
///
/// # Errors
/// [`PlanError::Invalid`] if tiers are not ordered by access time or are too many, or nothing is asked;
/// [`PlanError::Impossible`] if the fastest tier is slower than the access time that is asked for.
pub fn cheapest(curve: &Curve, tiers: &[PricedTier], demand: &Demand) -> Result<Vec<Mix>, PlanError> {
    check(tiers, demand)?;
    let mut mixes = Vec::new();
    for chosen in 1u32..1 << tiers.len() {
        let some: Vec<&PricedTier> =
            tiers.iter().enumerate().filter(|(k, _)| chosen >> k & 1 == 1).map(|(_, tier)| tier).collect();
        mixes.extend(cheapest_of(curve, &some, demand));
    }
    // A mix with an empty tier is the mix without it.
    mixes.retain(|mix| mix.tiers.iter().all(|tier| tier.bytes > 0.0));
    mixes.sort_by(|a, b| a.price.total_cmp(&b.price));
    Ok(mixes)
}

fn check(tiers: &[PricedTier], demand: &Demand) -> Result<(), PlanError> {
    positive("size", demand.total_bytes)?;
    if tiers.is_empty() || tiers.len() > MOST_TIERS {
        let hint = format!("1 to {MOST_TIERS}, fastest first");
        return Err(PlanError::invalid("tiers", format!("{} of them", tiers.len()), hint));
    }
    if let Some(pair) = tiers.windows(2).find(|pair| pair[0].access_ns >= pair[1].access_ns) {
        let problem = format!("{} is not faster than {}", pair[0].name, pair[1].name);
        return Err(PlanError::invalid("tiers", problem, "fastest first, by access_ns of the price file"));
    }
    match (demand.access_ns, demand.rate) {
        (None, None) => {
            Err(PlanError::invalid("access-time", "is lacking, and so is rate", "give one of them"))
        }
        (Some(asked), _) if asked < tiers[0].access_ns => Err(PlanError::impossible(
            format!("access-time={}", units::nanoseconds(asked)),
            format!(
                "{} takes {} if it holds everything",
                tiers[0].name,
                units::nanoseconds(tiers[0].access_ns)
            ),
            format!("at least {}, or a faster tier", units::nanoseconds(tiers[0].access_ns)),
        )),
        _ => Ok(()),
    }
}

/// The cheapest mix of these tiers; None if none does what is asked.
fn cheapest_of(curve: &Curve, tiers: &[&PricedTier], demand: &Demand) -> Option<Mix> {
    let coarse = marks(curve, demand.total_bytes);
    let search = Search { curve, tiers, demand };
    let grids = vec![coarse.clone(); tiers.len() - 1];
    let first = search.best(&grids)?;
    let around = |boundary: &f64| {
        let at = coarse.partition_point(|mark| mark < boundary);
        let (low, high) = (coarse[at.saturating_sub(2)], coarse[(at + 1).min(coarse.len() - 1)]);
        (0..=FINE).map(|n| low + (high - low) * n as f64 / FINE as f64).collect()
    };
    let finer: Vec<Vec<f64>> = first.1.iter().map(around).collect();
    let best = search.best(&finer).filter(|finer| finer.0 < first.0).unwrap_or(first);
    Some(mix(curve, tiers, &best.1, demand))
}

/// Sizes to try: those of the curve, and others between them by ratio, so that small and large ones are alike.
fn marks(curve: &Curve, total: f64) -> Vec<f64> {
    let smallest = curve.points.get(1).map_or(total, |(bytes, _)| bytes / 100.0).min(total);
    let by_ratio = (0..=GRID).map(|n| smallest * (total / smallest).powf(n as f64 / GRID as f64));
    let mut marks: Vec<f64> = curve.points.iter().map(|(bytes, _)| *bytes).chain(by_ratio).collect();
    marks.retain(|bytes| *bytes <= total);
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    let stride = marks.len().div_ceil(2 * GRID).max(1);
    marks.into_iter().step_by(stride).chain([total]).collect()
}

struct Search<'a> {
    curve: &'a Curve,
    tiers: &'a [&'a PricedTier],
    demand: &'a Demand,
}

impl Search<'_> {
    /// Price and boundaries of the cheapest mix with boundaries on these grids.
    fn best(&self, grids: &[Vec<f64>]) -> Option<(f64, Vec<f64>)> {
        let mut best = None;
        self.extend(grids, &mut Vec::new(), &mut best);
        best
    }

    fn extend(&self, grids: &[Vec<f64>], boundaries: &mut Vec<f64>, best: &mut Option<(f64, Vec<f64>)>) {
        let Some(grid) = grids.get(boundaries.len()) else {
            self.consider(boundaries, best);
            return;
        };
        let least = boundaries.last().copied().unwrap_or(0.0);
        let is_last = boundaries.len() + 1 == grids.len();
        let solved = if is_last { self.solved(boundaries) } else { None };
        for boundary in grid.iter().copied().chain(solved).filter(|b| *b >= least) {
            boundaries.push(boundary.min(self.demand.total_bytes));
            self.extend(grids, boundaries, best);
            boundaries.pop();
        }
    }

    /// The last boundary with which the mean access time is what was asked for.
    fn solved(&self, boundaries: &[f64]) -> Option<f64> {
        let (asked, k) = (self.demand.access_ns?, boundaries.len());
        let mut above = 1.0;
        let mut fixed = 0.0;
        for (boundary, tier) in boundaries.iter().zip(self.tiers) {
            let misses = self.curve.misses(*boundary);
            fixed += (above - misses) * tier.access_ns;
            above = misses;
        }
        let (near, far) = (self.tiers[k].access_ns, self.tiers[k + 1].access_ns);
        let misses = (asked - fixed - above * near) / (far - near);
        // Rounding may leave the mean a little above what was asked.
        let bytes = self.curve.bytes_for(misses - 1e-12).or_else(|| self.curve.bytes_for(misses));
        bytes.filter(|_| misses >= 0.0)
    }

    fn consider(&self, boundaries: &[f64], best: &mut Option<(f64, Vec<f64>)>) {
        let (price, access_ns) = price_and_access(self.curve, self.tiers, boundaries, self.demand);
        let is_met = self.demand.access_ns.is_none_or(|asked| access_ns <= asked * (1.0 + 1e-9));
        if is_met && best.as_ref().is_none_or(|(least, _)| price < *least) {
            *best = Some((price, boundaries.to_vec()));
        }
    }
}

#[cfg(test)]
mod tests {
    use measure::pattern::Rng;
    use proptest::prelude::*;

    use super::*;

    fn tier(name: &str, access_ns: f64, price_per_gb: f64) -> PricedTier {
        PricedTier {
            name: name.to_owned(),
            access_ns,
            price_per_byte: price_per_gb / GB,
            price_per_iops: None,
            watts_per_byte: None,
        }
    }

    fn three() -> Vec<PricedTier> {
        vec![tier("dram", 100.0, 10.0), tier("flash", 1e5, 0.5), tier("disk", 1e7, 0.02)]
    }

    fn curve() -> Curve {
        Curve::parse("bytes,miss_ratio\n1e9,0.5\n1e10,0.2\n1e11,0.05\n1e12,0\n").unwrap()
    }

    #[test]
    fn curves_are_read_from_miss_ratios_and_from_stack_distances() {
        let curve = curve();
        assert_eq!((curve.misses(0.0), curve.misses(5e8), curve.misses(2e12)), (1.0, 0.75, 0.0));
        assert_eq!((curve.bytes_for(0.75), curve.bytes_for(1.0)), (Some(5e8), Some(0.0)));
        let distances = Curve::parse("distance_bytes,count # LRU\n100,6\n1000,3\ninf,1\n").unwrap();
        assert!((distances.misses(100.0) - 0.4).abs() < 1e-12 && (distances.misses(1e9) - 0.1).abs() < 1e-12);
        assert_eq!(distances.bytes_for(0.05), None);
        let cyclic = Curve::parse("distance_bytes,count\n1e12,1000\n").unwrap();
        assert_eq!((cyclic.misses(0.99e12), cyclic.misses(1e12)), (1.0, 0.0), "a scan of 1 TB, under LRU");
        assert_eq!(cyclic.bytes_for(0.5), Some(1e12));
        for (text, words) in [
            ("", "line 1: '' is no heading"),
            ("a,b", "line 1: 'a,b' is no heading"),
            ("bytes,miss_ratio", "curve: has no point"),
            ("bytes,miss_ratio\n1", "line 2: '1' is not two numbers"),
            ("bytes,miss_ratio\n1,-1", "line 2: '1,-1' is not two numbers"),
            ("bytes,miss_ratio\n1,nan", "line 2: '1,nan' is not two numbers"),
            ("bytes,miss_ratio\n\n1,2", "line 3: '1,2' has a miss ratio above 1"),
            ("bytes,miss_ratio\ninf,0.1", "line 2: 'inf,0.1' is not finite"),
            ("bytes,miss_ratio\n1,0.1\n2,0.2", "bytes=2: misses more"),
            ("distance_bytes,count\n1,0", "count=0: must be"),
        ] {
            assert!(Curve::parse(text).unwrap_err().to_string().starts_with(words), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_is_told_with_what_could() {
        let demand = Demand { total_bytes: 1e12, access_ns: Some(50.0), rate: None };
        let error = cheapest(&curve(), &three(), &demand).unwrap_err();
        assert_eq!(error.to_string(), "access-time=50 ns: dram takes 100 ns if it holds everything");
        assert_eq!(error.hint(), "at least 100 ns, or a faster tier");
        let nothing = Demand { access_ns: None, ..demand };
        assert!(cheapest(&curve(), &three(), &nothing).is_err());
        let backwards: Vec<PricedTier> = three().into_iter().rev().collect();
        let easy = Demand { access_ns: Some(1e6), ..demand };
        assert!(cheapest(&curve(), &backwards, &easy).unwrap_err().to_string().contains("is not faster"));
        assert!(cheapest(&curve(), &[], &easy).is_err());
    }

    #[test]
    fn requests_buy_what_bytes_do_not() {
        let disk = PricedTier { price_per_iops: Some(2.0), ..tier("disk", 1e7, 0.02) };
        let demand = Demand { total_bytes: 1e12, access_ns: None, rate: Some(1000.0) };
        let alone = &cheapest(&curve(), std::slice::from_ref(&disk), &demand).unwrap()[0];
        assert!(alone.price == 2000.0 && alone.tiers[0].is_by_requests);
        let with_flash = &cheapest(&curve(), &[tier("flash", 1e5, 0.5), disk], &demand).unwrap()[0];
        assert!(with_flash.price < alone.price / 10.0, "{with_flash:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn no_mix_that_meets_the_target_is_much_cheaper(seed in any::<u64>(), asked in 2.0f64..6.9) {
            let (curve, tiers) = (curve(), three());
            let demand = Demand { total_bytes: 1e12, access_ns: Some(10f64.powf(asked)), rate: None };
            let best = &cheapest(&curve, &tiers, &demand).unwrap()[0];
            prop_assert!(best.access_ns <= demand.access_ns.unwrap() * (1.0 + 1e-6));
            let all: Vec<&PricedTier> = tiers.iter().collect();
            let mut rng = Rng::new(seed);
            for _ in 0..2000 {
                let mut boundaries = [0, 1].map(|_| 10f64.powf(6.0 + 6.0 * rng.unit()));
                boundaries.sort_by(f64::total_cmp);
                let other = mix(&curve, &all, &boundaries, &demand);
                if other.access_ns <= demand.access_ns.unwrap() {
                    prop_assert!(best.price <= other.price * 1.01, "{best:?} {other:?}");
                }
            }
        }

        #[test]
        fn a_looser_target_is_never_dearer(asked in 2.0f64..6.5, looser in 0.0f64..0.5) {
            let price = |exponent: f64| {
                let demand = Demand { total_bytes: 1e12, access_ns: Some(10f64.powf(exponent)), rate: None };
                cheapest(&curve(), &three(), &demand).unwrap()[0].price
            };
            prop_assert!(price(asked + looser) <= price(asked) * 1.001);
        }
    }
}
