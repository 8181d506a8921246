//! Where did a rate fall for good? The cliff of a write-saturation curve.
//!
//! A drive that was purged takes writes at a high rate until its pre-erased blocks are used up, and then
//! at the rate at which it can erase (Figure 1 of the Cray paper on flash file systems; SNIA calls the test
//! *write saturation*). [`curve`] finds that place in three steps:
//!
//! 1. The rates, one for each step of equal length, are averaged over at most [`MOST_POINTS`] equal parts
//!    of the run, and their logarithms taken, because a drive's noise is in proportion to its rate.
//! 2. The series is cut into the segments of constant mean that fit it best: for each number of segments
//!    exactly, by dynamic programming (the segment neighbourhood method; Auger and Lawrence, Bull. Math.
//!    Biol. 51, 1989), and the number is chosen by Schwarz's criterion, which finds the true one as the
//!    series grows (Yao, Stat. Probab. Lett. 6, 1988).
//! 3. The *knee* is the first border of two segments after which **every** segment lies at least
//!    [`LEAST_FALL`] below the mean of all before. So a dip that recovers is not a knee, nor is a slow drift
//!    of less than a third; a larger one, such as a disk's from its outer tracks to its inner ones, is.
//!
//! Schwarz's criterion takes the noise of different points for independent, which a drive's is not: its
//! housekeeping comes in waves, and waves look like segments. What keeps a wave from becoming a knee is the
//! size asked for in step 3, SNIA's own limit of what still is one steady state, and that the two sides must
//! not overlap: at most one point in twenty after the knee may reach the median before it, and at most one in
//! twenty before it may fall to the median after it. And the fall must have lasted for a tenth of the run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::describe::{mean, median, sum};
use super::steady::RANGE_LIMIT;

/// A curve is looked at in at most so many points: a border is known to 1/240 of the run.
pub const MOST_POINTS: usize = 240;
/// Fewer points than these have no shape.
pub const FEWEST_POINTS: usize = 20;
/// A fall of less is no cliff: SNIA calls a drive steady while its rounds lie within 20 % of their mean.
pub const LEAST_FALL: f64 = RANGE_LIMIT;
/// Most segments: a plateau, a cliff in three steps, a bottom, a recovery.
const MOST_SEGMENTS: usize = 6;
/// Fewest points in a segment: one point alone is an outlier.
const SHORTEST: usize = 3;
/// Deviations below a thousandth are the clock's.
const LEAST_VARIANCE: f64 = 1e-6;
/// A fall has lasted when it is followed by this part of the run: a wave at the very end looks like one.
const LASTING: f64 = 0.1;
/// Points on the wrong side that are allowed, as a part of a side.
const OVERLAP: f64 = 0.05;

/// A part of the curve with one rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Segment {
    /// First step, from 0.
    pub first: usize,
    /// Step after the last.
    pub end: usize,
    /// Mean rate in it.
    pub mean: f64,
}

/// A fall for good.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Knee {
    /// The first step after it.
    pub at: usize,
    /// Mean rate before it.
    pub before: f64,
    /// Mean rate of the lowest segment after it.
    pub bottom: f64,
    /// Mean rate of everything after it.
    pub after: f64,
}

impl Knee {
    /// How far the rate fell in the end, as a part of the rate before.
    #[must_use]
    pub fn fall(&self) -> f64 {
        1.0 - self.after / self.before
    }
}

/// What a curve looks like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Curve {
    /// Points that were looked at.
    pub points: usize,
    /// The segments, in order; none where the curve is too short to have a shape.
    pub segments: Vec<Segment>,
    /// The fall for good, where there was one.
    pub knee: Option<Knee>,
}

/// The shape of `rates`, one for each step of equal length. Rates that are not finite, or negative, give a
/// curve without segments.
#[must_use]
pub fn curve(rates: &[f64]) -> Curve {
    let parts = rates.len().min(MOST_POINTS);
    let border = |part: usize| part * rates.len() / parts.max(1);
    let points: Vec<f64> =
        (0..parts).filter_map(|part| mean(&rates[border(part)..border(part + 1)])).collect();
    let usable = points.len() == parts && rates.iter().all(|r| r.is_finite() && *r >= 0.0);
    let nothing = Curve { points: parts, segments: Vec::new(), knee: None };
    let Some(typical) = median(&points).filter(|m| usable && parts >= FEWEST_POINTS && *m > 0.0) else {
        return nothing;
    };
    // A standstill has no logarithm; a thousandth of what is usual says the same.
    let logs: Vec<f64> = points.iter().map(|p| p.max(typical * 1e-3).ln()).collect();
    let ends = best_ends(&logs);
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let pieces: Vec<(usize, usize)> = starts.zip(ends.iter().copied()).collect();
    let segments = pieces
        .iter()
        .map(|(first, end)| Segment {
            first: border(*first),
            end: border(*end),
            mean: mean(&points[*first..*end]).unwrap_or(0.0),
        })
        .collect();
    let knee = (1..pieces.len()).find_map(|place| fall_at(&points, &pieces, place));
    let knee = knee.map(|knee| Knee { at: border(knee.at), ..knee });
    Curve { points: parts, segments, knee }
}

/// The knee between the pieces `place − 1` and `place`, if the curve has fallen there for good; `at` counts
/// points.
fn fall_at(points: &[f64], pieces: &[(usize, usize)], place: usize) -> Option<Knee> {
    let at = pieces[place].0;
    let (earlier, later) = points.split_at(at);
    if (later.len() as f64) < LASTING * points.len() as f64 {
        return None;
    }
    let before = mean(earlier)?;
    let after = mean(later)?;
    let means = pieces[place..].iter().filter_map(|(first, end)| mean(&points[*first..*end]));
    let means: Vec<f64> = means.collect();
    let limit = before * (1.0 - LEAST_FALL);
    if means.iter().any(|segment| *segment > limit) {
        return None;
    }
    let (usual_before, usual_after) = (median(earlier)?, median(later)?);
    let share = |side: &[f64], wrong: &dyn Fn(f64) -> bool| {
        side.iter().filter(|p| wrong(**p)).count() as f64 / side.len() as f64
    };
    let apart =
        share(later, &|p| p >= usual_before) <= OVERLAP && share(earlier, &|p| p <= usual_after) <= OVERLAP;
    let bottom = means.into_iter().fold(f64::INFINITY, f64::min);
    apart.then_some(Knee { at, before, bottom, after })
}

/// Where the segments of the best cut end, the last at the end of the series.
fn best_ends(series: &[f64]) -> Vec<usize> {
    let n = series.len();
    let sums = Sums::new(series);
    // cost[k][end]: least squares of the first `end` points in k + 1 segments; cut[k][end]: where the last
    // of these begins.
    let mut cost = vec![vec![f64::INFINITY; n + 1]; MOST_SEGMENTS];
    let mut cut = vec![vec![0; n + 1]; MOST_SEGMENTS];
    for (end, squares) in cost[0].iter_mut().enumerate().skip(SHORTEST) {
        *squares = sums.squares(0, end);
    }
    for k in 1..MOST_SEGMENTS {
        for end in (k + 1) * SHORTEST..=n {
            for start in k * SHORTEST..=end - SHORTEST {
                let squares = cost[k - 1][start] + sums.squares(start, end);
                if squares < cost[k][end] {
                    (cost[k][end], cut[k][end]) = (squares, start);
                }
            }
        }
    }
    let score = |k: usize| schwarz(cost[k][n], n, k + 1);
    let possible = (0..MOST_SEGMENTS).filter(|k| cost[*k][n].is_finite());
    let best = possible.min_by(|a, b| score(*a).total_cmp(&score(*b))).unwrap_or(0);
    let mut ends = vec![n];
    for k in (1..=best).rev() {
        let end = ends[ends.len() - 1];
        ends.push(cut[k][end]);
    }
    ends.reverse();
    ends
}

/// Schwarz's criterion: a mean for each segment, a place for each border, one variance.
fn schwarz(squares: f64, n: usize, segments: usize) -> f64 {
    let n = n as f64;
    let parameters = (2 * segments) as f64;
    n * (squares / n).max(LEAST_VARIANCE).ln() + parameters * n.ln()
}

/// Sums of the first values and of their squares, from which the squares of any part follow. Values are
/// taken from their mean, so that little cancels.
struct Sums(Vec<(f64, f64)>);

impl Sums {
    fn new(series: &[f64]) -> Self {
        let centre = sum(series.iter().copied()) / series.len() as f64;
        let mut all = vec![(0.0, 0.0)];
        let (mut first, mut second) = (0.0, 0.0);
        for value in series.iter().map(|v| v - centre) {
            first += value;
            second += value * value;
            all.push((first, second));
        }
        Self(all)
    }

    /// Squared deviations of a part from its mean.
    fn squares(&self, start: usize, end: usize) -> f64 {
        let (first, second) = (self.0[end].0 - self.0[start].0, self.0[end].1 - self.0[start].1);
        (second - first * first / (end - start) as f64).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Rng;

    /// Normal noise by Box and Muller.
    fn normal(rng: &mut Rng) -> f64 {
        let (u, v) = (1.0 - rng.unit(), rng.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// A curve with noise in proportion, of which `memory` is the last step's.
    fn noisy(shape: impl Fn(f64) -> f64, steps: usize, noise: f64, memory: f64, seed: u64) -> Vec<f64> {
        let mut rng = Rng::new(seed);
        let mut wave = 0.0;
        let fresh = (1.0 - memory * memory).sqrt();
        (0..steps)
            .map(|step| {
                wave = memory * wave + fresh * normal(&mut rng);
                shape(step as f64 / steps as f64) * (noise * wave).exp()
            })
            .collect()
    }

    #[test]
    fn a_cliff_is_found_where_it_is_through_noise_of_a_tenth_and_more() {
        for seed in 0..40 {
            for (noise, place) in [(0.02, 0.3), (0.1, 0.5), (0.2, 0.15)] {
                let rates = noisy(|x| if x < place { 400e6 } else { 100e6 }, 1000, noise, 0.0, seed);
                let knee = curve(&rates).knee.unwrap_or_else(|| panic!("seed {seed}, noise {noise}"));
                assert!((knee.at as f64 / 1000.0 - place).abs() < 0.01, "seed {seed}: {knee:?}");
                assert!((knee.before / 400e6 - 1.0).abs() < 0.08, "seed {seed}: {knee:?}");
                assert!((knee.after / 100e6 - 1.0).abs() < 0.08, "seed {seed}: {knee:?}");
            }
        }
    }

    #[test]
    fn a_flat_curve_has_no_knee_however_its_noise_is_coloured() {
        for seed in 0..100 {
            for (noise, memory) in [(0.0, 0.0), (0.1, 0.0), (0.5, 0.0), (0.1, 0.9), (0.2, 0.95)] {
                let rates = noisy(|_| 250e6, 1000, noise, memory, seed);
                assert_eq!(curve(&rates).knee, None, "seed {seed}, noise {noise}, memory {memory}");
            }
        }
    }

    #[test]
    fn a_dip_that_recovers_a_rise_and_a_slow_drift_are_no_knee() {
        let shapes: [fn(f64) -> f64; 3] = [
            |x| if (0.4..0.6).contains(&x) { 50.0 } else { 200.0 },
            |x| if x < 0.5 { 100.0 } else { 300.0 },
            |x| 100.0 - 30.0 * x,
        ];
        for (place, shape) in shapes.iter().enumerate() {
            for seed in 0..20 {
                assert_eq!(
                    curve(&noisy(shape, 600, 0.03, 0.0, seed)).knee,
                    None,
                    "shape {place}, seed {seed}"
                );
            }
        }
    }

    #[test]
    fn a_cliff_with_a_slope_and_an_undershoot_begins_where_the_plateau_ends() {
        let shape = |x: f64| match x {
            x if x < 0.4 => 500.0,
            x if x < 0.5 => 500.0 - 4200.0 * (x - 0.4),
            x if x < 0.6 => 80.0,
            _ => 120.0,
        };
        for seed in 0..20 {
            let knee = curve(&noisy(shape, 2000, 0.05, 0.3, seed)).knee.expect("there is one");
            let at = knee.at as f64 / 2000.0;
            assert!((0.4..0.46).contains(&at), "seed {seed}: {at}");
            assert!((knee.bottom - 80.0).abs() < 15.0, "seed {seed}: {knee:?}");
        }
    }

    #[test]
    fn too_few_points_and_what_is_no_rate_have_no_shape() {
        for rates in [vec![], vec![5.0; FEWEST_POINTS - 1], vec![0.0; 50], vec![f64::NAN; 50], vec![-1.0; 50]]
        {
            assert_eq!((curve(&rates).segments, curve(&rates).knee), (Vec::new(), None));
        }
        let still = curve(&[vec![100.0; 30], vec![0.0; 30]].concat());
        assert_eq!(still.knee.map(|knee| knee.at), Some(30), "a standstill is a fall");
    }

    #[test]
    fn segments_cover_the_curve_without_a_gap() {
        let rates = noisy(|x| if x < 0.3 { 9.0 } else { 1.0 }, 777, 0.1, 0.0, 3);
        let found = curve(&rates);
        assert_eq!(found.segments.first().map(|s| s.first), Some(0));
        assert_eq!(found.segments.last().map(|s| s.end), Some(777));
        assert!(found.segments.windows(2).all(|pair| pair[0].end == pair[1].first), "{found:?}");
    }
}
