//! Where the sweep meets [`measure::stats`]: the one place that fixes level and rules.

use measure::stats::apart::Pair;
use measure::stats::cleaning::{MadVerdict, SetAside};
use measure::stats::{self, CleaningRules, CompareRules, DEFAULT_LEVEL, Movement};

use super::{Estimate, Fate, Interval};

pub(crate) use measure::stats::{Comparison, Verdict};

/// One point's passes, cleaned.
pub(super) struct Cleaned {
    /// A verdict for each pass that came in, in order.
    pub(super) verdicts: Vec<PassVerdict>,
    pub(super) cv_before: Option<f64>,
    pub(super) cv_after: Option<f64>,
    /// Passes that Chauvenet's criterion rejects with the first one among them.
    pub(super) rejected_with_first: u64,
}

/// The verdict on one pass.
pub(super) struct PassVerdict {
    pub(super) fate: Fate,
    pub(super) deviations: Option<f64>,
    pub(super) mad_outlier: bool,
}

/// Cleans the passes of a point, whose figures are finite.
pub(super) fn clean(passes: &[f64], discard_first: bool) -> Cleaned {
    let rules = CleaningRules { discard_first: u32::from(discard_first), ..CleaningRules::default() };
    let cleaned = stats::clean(passes, &rules);
    let verdicts = cleaned.passes.iter().map(|pass| PassVerdict {
        fate: match pass.set_aside {
            None => Fate::Kept,
            Some(SetAside::FirstPass) => Fate::FirstPass,
            Some(SetAside::Chauvenet | SetAside::Mad | SetAside::NotFinite) => Fate::Chauvenet,
        },
        deviations: pass.z,
        // A first pass is expected to lie off; flagging it would say nothing.
        mad_outlier: pass.mad_verdict == MadVerdict::Outlier && pass.set_aside != Some(SetAside::FirstPass),
    });
    Cleaned {
        verdicts: verdicts.collect(),
        cv_before: cleaned.before.and_then(|d| d.cv),
        cv_after: cleaned.after.and_then(|d| d.cv),
        rejected_with_first: cleaned.chauvenet_all_passes.outliers as u64,
    }
}

/// Chauvenet's limit for `n` passes, in sample deviations; 0 for none.
pub(super) fn limit(n: u32) -> f64 {
    if n == 0 { 0.0 } else { stats::cleaning::chauvenet_limit(n as usize) }
}

/// The largest deviation that `n` passes can have.
pub(super) fn largest_possible(n: u32) -> f64 {
    stats::cleaning::largest_possible_deviation(n as usize)
}

/// Whether Chauvenet's criterion can reject one of `n` passes.
pub(super) fn can_fire(n: u32) -> bool {
    stats::cleaning::chauvenet_can_fire(n as usize)
}

/// The mean with its t interval; none of no values.
pub(super) fn estimate(values: &[f64]) -> Option<Estimate> {
    let estimate = stats::mean_estimate(values, DEFAULT_LEVEL)?;
    Some(Estimate { mean: estimate.value, interval: estimate.interval.map(interval) })
}

/// An interval without its method.
pub(crate) fn interval(of: stats::Interval) -> Interval {
    Interval { low: of.low, high: of.high }
}

pub(super) use measure::stats::describe::{median, quantile};

/// `candidate` against `baseline`, on the passes that count.
pub(crate) fn compare(candidate: &[f64], baseline: &[f64]) -> Comparison {
    settle(stats::compare(baseline, candidate))
}

/// The same with an interval of another level, and with what moved between the two where they were measured one after the other.
pub(crate) fn compare_at(
    candidate: &[f64],
    baseline: &[f64],
    movement: Option<Movement>,
    level: f64,
) -> Comparison {
    let rules = CompareRules { level, ..CompareRules::default() };
    settle(stats::compare_apart(baseline, candidate, movement, &rules))
}

/// The second of each pair against its first, corrected for their number.
pub(crate) fn compare_pairs(pairs: &[Pair<'_>]) -> Vec<Comparison> {
    stats::compare_family_apart(pairs, &CompareRules::default()).into_iter().map(settle).collect()
}

/// With passes enough, "not enough data" means noise so wide that no interval exists: no difference
/// can be seen, and that is the answer.
fn settle(mut comparison: Comparison) -> Comparison {
    let enough = CompareRules::default().min_samples;
    if comparison.verdict == Verdict::NotEnoughData
        && comparison.baseline_samples.min(comparison.candidate_samples) >= enough
    {
        comparison.verdict = Verdict::NoDifference;
    }
    comparison
}
