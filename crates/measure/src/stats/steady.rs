//! Had the drive settled? SNIA's two rules.
//!
//! The SNIA Solid State Storage Performance Test Specification calls a drive steady over a measurement
//! window of five rounds, x−4 … x, when of the tracked figure y
//!
//! 1. **range:** max − min ≤ 20 % of the mean, and
//! 2. **slope:** the best linear fit moves by ≤ 10 % of the mean across the window,
//!    |slope| · (n − 1) ≤ 0.1 · mean.
//!
//! Steady state is reached at the first round whose window obeys both ([`steady`]). Within one run
//! ([`within_run`]) the measured interval is cut into five equal parts, and these are the rounds;
//! that is what `W-UNSTEADY` rests on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::describe::{finite, mean, sum};
use super::fit::linear_fit;

/// Rounds in SNIA's measurement window.
pub const WINDOW: usize = 5;
/// SNIA's limit of max − min, as a part of the mean.
pub const RANGE_LIMIT: f64 = 0.20;
/// SNIA's limit of the linear fit's movement across the window, as a part of the mean.
pub const SLOPE_LIMIT: f64 = 0.10;
/// Below so many requests in a run its fifths are too coarse to judge: with 20 requests each, one
/// request more or less is 5 % of a fifth, half of what the slope rule allows.
pub const MIN_REQUESTS: u64 = 100;

/// What the two rules say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SteadyVerdict {
    /// Both rules hold.
    Steady,
    /// At least one does not, in any window.
    NotReached,
    /// Too few rounds, or too few requests in them, to say.
    TooShort,
    /// A round's figure is not a finite number.
    NotFinite,
}

impl SteadyVerdict {
    /// The verdict in a report's words.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::NotReached => "not reached",
            Self::TooShort => "too short to say",
            Self::NotFinite => "not a finite number",
        }
    }
}

/// The verdict with the figures of the window that it rests on: the first steady one, or the last.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Steadiness {
    /// What the rules say.
    pub verdict: SteadyVerdict,
    /// Rounds in the series.
    pub rounds: usize,
    /// First round of the window, from 0.
    pub window_first: usize,
    /// Rounds in the window.
    pub window_rounds: usize,
    /// Mean of the window.
    pub mean: Option<f64>,
    /// max − min by |mean|; SNIA's limit is 0.20. None where the mean is 0.
    pub range_ratio: Option<f64>,
    /// Change of the linear fit across the window by |mean|, signed; SNIA's limit is 0.10 either way.
    pub slope_ratio: Option<f64>,
}

impl Steadiness {
    /// Whether steady state was reached.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.verdict == SteadyVerdict::Steady
    }

    /// The figures against their limits, for a message: `range 31 % of the mean (limit 20 %), slope
    /// -4 % (limit 10 %)`.
    #[must_use]
    pub fn explain(&self) -> String {
        // Figures of too few rounds would be read as a verdict.
        let judged = matches!(self.verdict, SteadyVerdict::Steady | SteadyVerdict::NotReached);
        let (Some(range), Some(slope), true) = (self.range_ratio, self.slope_ratio, judged) else {
            return format!("{} ({} rounds)", self.verdict.label(), self.rounds);
        };
        format!(
            "range {:.0} % of the mean (limit {:.0} %), slope {:+.0} % (limit {:.0} %)",
            range * 100.0,
            RANGE_LIMIT * 100.0,
            slope * 100.0,
            SLOPE_LIMIT * 100.0
        )
    }
}

/// Looks for the first window of five rounds that obeys both rules; `series` holds one figure for
/// each round.
#[must_use]
pub fn steady(series: &[f64]) -> Steadiness {
    if series.len() < WINDOW {
        let verdict = if all_finite(series) { SteadyVerdict::TooShort } else { SteadyVerdict::NotFinite };
        return Steadiness { verdict, ..judge(series, 0) };
    }
    let windows = || series.windows(WINDOW).enumerate().map(|(first, window)| judge(window, first));
    let found = windows().find(Steadiness::is_steady).or_else(|| windows().next_back());
    Steadiness { rounds: series.len(), ..found.unwrap_or_else(|| judge(series, 0)) }
}

/// Applies both rules to the whole of `window`, of whatever length from two rounds on.
#[must_use]
pub fn steady_over(window: &[f64]) -> Steadiness {
    let judged = judge(window, 0);
    match judged.verdict {
        SteadyVerdict::NotReached if window.len() < 2 => {
            Steadiness { verdict: SteadyVerdict::TooShort, ..judged }
        }
        _ => judged,
    }
}

/// Whether a run was steady: `samples` are its figures over steps of equal length, five at least,
/// of which each fifth of the run becomes a round; a step across a border counts on either side by
/// its share.
#[must_use]
pub fn within_run(samples: &[f64]) -> Steadiness {
    if samples.len() < WINDOW {
        return steady(samples);
    }
    steady_over(&fifths(samples))
}

/// The same where the number of `requests` in the run is known: with fewer than [`MIN_REQUESTS`],
/// the verdict is [`SteadyVerdict::TooShort`], because one request more or less would decide it.
#[must_use]
pub fn within_run_of(samples: &[f64], requests: u64) -> Steadiness {
    let judged = within_run(samples);
    match judged.verdict {
        SteadyVerdict::NotReached | SteadyVerdict::Steady if requests < MIN_REQUESTS => {
            Steadiness { verdict: SteadyVerdict::TooShort, ..judged }
        }
        _ => judged,
    }
}

/// The mean of each fifth.
fn fifths(samples: &[f64]) -> [f64; WINDOW] {
    // In units of a fifth of a step every border is whole: step i spans [5i, 5i + 5), round r [nr, nr + n).
    let n = samples.len();
    std::array::from_fn(|round| {
        let (start, end) = (n * round, n * (round + 1));
        let steps = start / WINDOW..end.div_ceil(WINDOW);
        let shares = steps.map(|step| {
            let inside = end.min(WINDOW * (step + 1)) - start.max(WINDOW * step);
            samples[step] * (inside as f64 / n as f64)
        });
        sum(shares)
    })
}

fn judge(window: &[f64], first: usize) -> Steadiness {
    let mut judged = Steadiness {
        verdict: if all_finite(window) { SteadyVerdict::NotReached } else { SteadyVerdict::NotFinite },
        rounds: window.len(),
        window_first: first,
        window_rounds: window.len(),
        mean: mean(window),
        range_ratio: None,
        slope_ratio: None,
    };
    let Some(mean) = judged.mean.filter(|m| *m != 0.0) else {
        return judged;
    };
    let rounds: Vec<f64> = (0..window.len()).map(|i| i as f64).collect();
    let (low, high) = window.iter().fold((f64::MAX, f64::MIN), |(l, h), y| (l.min(*y), h.max(*y)));
    judged.range_ratio = finite((high - low) / mean.abs());
    judged.slope_ratio = linear_fit(&rounds, window)
        .and_then(|fit| finite(fit.slope * (window.len() - 1) as f64 / mean.abs()));
    let obeys = |figure: Option<f64>, limit: f64| figure.is_some_and(|f| f.abs() <= limit);
    if obeys(judged.range_ratio, RANGE_LIMIT) && obeys(judged.slope_ratio, SLOPE_LIMIT) {
        judged.verdict = SteadyVerdict::Steady;
    }
    judged
}

fn all_finite(series: &[f64]) -> bool {
    series.iter().all(|y| y.is_finite())
}
