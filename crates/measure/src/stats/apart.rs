//! Is this one better than that one, where they were measured one after the other?
//!
//! Figures that share no block are compared with all that the machine did between them: a construction is built, measured and
//! taken down before the next one is made, and the machine that the second one meets need not be the first one's. The scatter
//! within each does not tell that, because what moves slowly is the same for all figures of a stretch. So a [`Movement`] is
//! counted as a random effect of each stretch, as a session is when sweeps are compared: the variance
//! of a difference of ln figures is that of both means, plus 2τ².
//!
//! τ is the SD by which whole blocks moved from the mean of their stretch, over all stretches: what the machine moved while one
//! construction stood, it may have moved until the next one did. It is [`LEAST_MOVEMENT`] at least. A machine that stands still
//! while anything stands and moves only in between is not told so; nothing tells it but building twice.
//! `sweep check-statistics` counts how often *better* is false with this, and how often without.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compare::{CompareRules, Comparison, Verdict, compare_with, corrected};
use super::describe::{mean, sample_sd};
use super::special::{t_multiplier, t_two_sided};
use super::{Interval, Method};

/// The least SD of a stretch, ln: contrasts, which move least, move by as much from session to session.
pub const LEAST_MOVEMENT: f64 = 0.02;
/// The SD where no stretch has two blocks: as levels moved between stretches some minutes apart, where that was measured.
const UNKNOWN_MOVEMENT: f64 = 0.10;

/// How far a machine moves from stretch to stretch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Movement {
    /// SD of a stretch's level, ln.
    pub sd: f64,
    /// Degrees of freedom of its estimate; none where it is not estimated.
    pub freedom: Option<f64>,
}

impl Movement {
    /// Of stretches, each with its blocks: setting and ln figure of each run.
    #[must_use]
    pub fn of(stretches: &[Vec<Vec<(usize, f64)>>]) -> Self {
        let (mut squares, mut freedom) = (0.0, 0.0);
        for blocks in stretches {
            let levels = levels(blocks);
            let (Some(of_all), true) = (mean(&levels), levels.len() > 1) else { continue };
            squares += levels.iter().map(|level| (level - of_all).powi(2)).sum::<f64>();
            freedom += levels.len() as f64 - 1.0;
        }
        if freedom == 0.0 {
            return Self { sd: UNKNOWN_MOVEMENT, freedom: None };
        }
        let sd: f64 = (squares / freedom).sqrt();
        if sd > LEAST_MOVEMENT {
            Self { sd, freedom: Some(freedom) }
        } else {
            Self { sd: LEAST_MOVEMENT, freedom: None }
        }
    }
}

/// The level of each block: the mean of its figures less those of their settings.
fn levels(blocks: &[Vec<(usize, f64)>]) -> Vec<f64> {
    let settings = blocks.iter().flatten().map(|(setting, _)| setting + 1).max().unwrap_or(0);
    let (mut sums, mut counts) = (vec![0.0; settings], vec![0.0; settings]);
    for (setting, y) in blocks.iter().flatten() {
        sums[*setting] += y;
        counts[*setting] += 1.0;
    }
    let level = |block: &Vec<(usize, f64)>| {
        mean(&block.iter().map(|(setting, y)| y - sums[*setting] / counts[*setting]).collect::<Vec<_>>())
    };
    blocks.iter().filter_map(level).collect()
}

/// Compares `candidate` with `baseline`; of one stretch where there is no movement. The ratio is that of the means.
#[must_use]
pub fn compare_apart(
    baseline: &[f64],
    candidate: &[f64],
    movement: Option<Movement>,
    rules: &CompareRules,
) -> Comparison {
    let plain = compare_with(baseline, candidate, rules);
    let Some(movement) = movement else { return plain };
    // The square of a mean's relative standard error, and its degrees of freedom.
    let of_mean = |samples: &[f64]| {
        let (mean, sd) = (mean(samples)?, sample_sd(samples)?);
        let freedom = samples.len() as f64 - 1.0;
        (mean > 0.0).then(|| (sd * sd / (mean * mean) / samples.len() as f64, freedom, mean))
    };
    let unknown = Comparison {
        ratio: None,
        interval: None,
        p_value: None,
        p_adjusted: None,
        verdict: Verdict::NotEnoughData,
        ..plain
    };
    let is_enough = baseline.len().min(candidate.len()) >= rules.min_samples.max(2);
    let (true, Some(a), Some(b)) = (is_enough, of_mean(baseline), of_mean(candidate)) else { return unknown };
    let of_stretches = 2.0 * movement.sd * movement.sd;
    let variance = a.0 + b.0 + of_stretches;
    // Welch and Satterthwaite.
    let of_freedom =
        a.0 * a.0 / a.1 + b.0 * b.0 / b.1 + movement.freedom.map_or(0.0, |f| of_stretches.powi(2) / f);
    let freedom = (variance * variance / of_freedom).min(1e9);
    let (ratio, error) = (b.2 / a.2, variance.sqrt());
    let p_value = t_two_sided(ratio.ln() / error, freedom);
    let half = t_multiplier(rules.level, freedom) * error;
    let (low, high) = ((ratio.ln() - half).exp(), (ratio.ln() + half).exp());
    if !(ratio.is_finite() && low.is_normal() && high.is_finite() && p_value.is_finite()) {
        return unknown;
    }
    Comparison {
        ratio: Some(ratio),
        interval: Some(Interval { low, high, level: rules.level, method: Method::Welch }),
        p_value: Some(p_value),
        p_adjusted: Some(p_value),
        verdict: rules.verdict(ratio, p_value),
        ..plain
    }
}

/// A candidate and its baseline, in the other order, and what moved between them.
pub type Pair<'s> = (&'s [f64], &'s [f64], Option<Movement>);

/// Compares the pairs of a family, corrected for their number (Holm).
#[must_use]
pub fn compare_family_apart(pairs: &[Pair<'_>], rules: &CompareRules) -> Vec<Comparison> {
    let all = pairs
        .iter()
        .map(|(baseline, candidate, movement)| compare_apart(baseline, candidate, *movement, rules));
    corrected(all.collect(), rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of two settings whose levels are these.
    fn stretch(levels: &[f64]) -> Vec<Vec<(usize, f64)>> {
        levels.iter().map(|level| vec![(0, *level), (1, level + 0.7)]).collect()
    }

    #[test]
    fn whole_blocks_move_and_settings_and_constructions_differ() {
        let moved = Movement::of(&[stretch(&[0.0, 0.1, 0.2]), stretch(&[5.0, 5.1, 5.2])]);
        assert!((moved.sd - 0.1).abs() < 1e-12 && moved.freedom == Some(4.0), "{moved:?}");
        let still = Movement::of(&[stretch(&[0.0; 4]), stretch(&[1.0; 4])]);
        assert_eq!(still, Movement { sd: LEAST_MOVEMENT, freedom: None });
        assert_eq!(Movement::of(&[stretch(&[0.0])]), Movement { sd: UNKNOWN_MOVEMENT, freedom: None });
    }

    #[test]
    fn steady_figures_are_told_apart_beyond_the_movement_only() {
        let rules = CompareRules::default();
        let (low, high) = ([100.0, 100.1, 99.9, 100.0], [112.0, 112.1, 111.9, 112.0]);
        let verdict =
            |sd, freedom| compare_apart(&low, &high, Some(Movement { sd, freedom }), &rules).verdict;
        assert_eq!(compare_apart(&low, &high, None, &rules).verdict, Verdict::Better);
        assert_eq!(verdict(0.02, None), Verdict::Better);
        assert_eq!(verdict(0.10, None), Verdict::NoDifference);
        assert_eq!(verdict(0.035, None), Verdict::Better, "the normal limit of 1.96 standard errors is 10 %");
        assert_eq!(verdict(0.035, Some(3.0)), Verdict::NoDifference, "known from four blocks, it is 17 %");
        let of = compare_apart(&low, &high, Some(Movement { sd: 0.1, freedom: None }), &rules);
        assert!((of.ratio.unwrap() - 1.12).abs() < 1e-12 && of.interval.unwrap().low < 1.0, "{of:?}");
        assert_eq!(compare_apart(&low[..2], &high, None, &rules).verdict, Verdict::NotEnoughData);
        let movement = Some(Movement { sd: 0.1, freedom: None });
        assert_eq!(compare_apart(&[0.0; 4], &high, movement, &rules).verdict, Verdict::NotEnoughData);
    }
}
