//! One point against another, by the statistics that the recommendation of their work obeys.
//!
//! - Points that share blocks are compared by their race ([`measure::decide::Outcome::between`]): its weights, its bound, its
//!   correction for the number of settings. So no figure beside a verdict contradicts it.
//! - Points on different constructions share no block. They are compared without pairs, with what the machine moved from block to
//!   block counted between constructions as well ([`measure::stats::apart`]), and Holm's correction over a family. The interval of a comparison that no verdict was drawn from is corrected for the number of
//!   alternatives (Bonferroni), so that it leaves 1 out only where a verdict would have.
//! - Under `protocol = "dash"` a work that is spread over several constructions is compared without pairs throughout, and the
//!   intervals are those of each comparison by itself; between points on one construction nothing is counted as moved.

use std::collections::BTreeMap;

use measure::decide::Standing;
use measure::stats::{DEFAULT_LEVEL, Movement, Verdict};

use crate::analysis::statistics::{Comparison, compare_at, compare_pairs, interval};
use crate::analysis::{Analysis, ContestSummary, Interval, PointSummary, Work};

use super::is_beyond_noise;

/// The smallest gain that a verdict names: 2 %.
const MIN_GAIN: f64 = 1.02;

/// What is known of points against each other.
#[derive(Clone, Copy)]
pub(super) struct Judge<'a> {
    contests: &'a [ContestSummary],
    movements: &'a BTreeMap<Work, Movement>,
    is_papers: bool,
}

/// One point against another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compared {
    /// Figure of the first by that of the second.
    pub(super) ratio: f64,
    /// Its interval; none where the runs do not suffice for one.
    pub(super) interval: Option<Interval>,
    /// The corrected p-value; none where the points share blocks, whose bound has none.
    pub(super) p_adjusted: Option<f64>,
    /// What is concluded of the first.
    pub(super) verdict: Verdict,
}

impl Compared {
    pub(super) fn is_beyond_noise(&self) -> bool {
        is_beyond_noise(self.interval)
    }
}

impl<'a> Judge<'a> {
    pub(super) fn new(analysis: &'a Analysis) -> Self {
        Self {
            contests: &analysis.contests,
            movements: &analysis.movements,
            is_papers: analysis.cleaning.is_applied,
        }
    }

    /// The contest of all these points, if they share blocks.
    fn contest(&self, points: &[&PointSummary]) -> Option<&'a ContestSummary> {
        let has = |c: &&ContestSummary| points.iter().all(|p| c.setting(p.point).is_some());
        let found = self.contests.iter().find(has)?;
        let is_spread = || self.contests.iter().filter(|c| c.work == found.work).count() > 1;
        (!self.is_papers || !is_spread()).then_some(found)
    }

    /// What the machine may have moved between two points; none where they were measured on one construction.
    fn movement(&self, of: &PointSummary, over: &PointSummary) -> Option<Movement> {
        let has_both = |c: &ContestSummary| [of, over].iter().all(|p| c.setting(p.point).is_some());
        self.movements.get(&of.work).copied().filter(|_| !self.contests.iter().any(has_both))
    }

    /// Whether its race dropped it.
    pub(super) fn has_lost(&self, point: &PointSummary) -> bool {
        matches!(self.standing(point), Some(Standing::Dropped { .. }))
    }

    /// Whether its race went on without it, and concludes nothing of it.
    pub(super) fn was_struck(&self, point: &PointSummary) -> bool {
        matches!(self.standing(point), Some(Standing::Struck { .. }))
    }

    fn standing(&self, point: &PointSummary) -> Option<Standing> {
        let contest = self.contest(&[point])?;
        Some(contest.bandwidth.settings[contest.setting(point.point)?].standing)
    }

    fn by_race(&self, of: &PointSummary, over: &PointSummary) -> Option<Compared> {
        let contest = self.contest(&[of, over])?;
        let bounds = contest.bandwidth.between(contest.setting(of.point)?, contest.setting(over.point)?);
        let ratio = bounds.map_or_else(|| super::mean(of) / super::mean(over), |b| b.ratio);
        let interval = bounds.map(|b| Interval { low: b.low, high: b.high });
        let verdict = match interval {
            Some(i) if i.low > 1.0 && ratio >= MIN_GAIN => Verdict::Better,
            Some(i) if i.high < 1.0 && ratio <= 1.0 / MIN_GAIN => Verdict::Worse,
            _ => Verdict::NoDifference,
        };
        Some(Compared { ratio, interval, p_adjusted: None, verdict })
    }

    /// `of` against `over`, which is one of `among` alternatives to it.
    pub(super) fn compare(&self, of: &PointSummary, over: &PointSummary, among: usize) -> Compared {
        let without_pairs = || {
            let among = if self.is_papers { 1 } else { among.max(1) };
            let level = 1.0 - (1.0 - DEFAULT_LEVEL) / among as f64;
            let movement = self.movement(of, over);
            of_comparison(&compare_at(&of.compared, &over.compared, movement, level), of, over)
        };
        self.by_race(of, over).unwrap_or_else(without_pairs)
    }

    /// How many times better than `over` the other one is at most, at 95 % of each by itself: that the best of several is better by
    /// more is false only if all these are (Berger 1982).
    pub(super) fn at_most(&self, of: &PointSummary, over: &PointSummary) -> Option<f64> {
        if let Some(raced) = self.by_race(of, over) {
            return raced.interval.map(|interval| interval.high);
        }
        let both_ends = 1.0 - 2.0 * (1.0 - DEFAULT_LEVEL);
        let compared = compare_at(&of.compared, &over.compared, self.movement(of, over), both_ends);
        compared.interval.map(|interval| interval.high)
    }

    /// How far apart settings may lie that count as equally good.
    pub(super) fn equivalence(&self) -> f64 {
        self.contests.first().map_or(0.0, |contest| contest.bandwidth.rules.equivalence)
    }

    /// Each first against its second; what shares no block is corrected for the number of such pairs.
    pub(super) fn family(&self, pairs: &[(&PointSummary, &PointSummary)]) -> Vec<Compared> {
        let raced: Vec<Option<Compared>> = pairs.iter().map(|(of, over)| self.by_race(of, over)).collect();
        let apart: Vec<_> = pairs.iter().zip(&raced).filter(|(_, raced)| raced.is_none()).collect();
        let samples = apart.iter().map(|((of, over), _)| {
            (over.compared.as_slice(), of.compared.as_slice(), self.movement(of, over))
        });
        let compared = compare_pairs(&samples.collect::<Vec<_>>());
        let compared = apart.iter().zip(&compared).map(|(((of, over), _), c)| of_comparison(c, of, over));
        let mut compared = compared.collect::<Vec<_>>().into_iter();
        raced.iter().filter_map(|raced| raced.or_else(|| compared.next())).collect()
    }

    /// What orders points by bandwidth: within blocks where all of them share blocks and have intervals, because settings that lost
    /// early ran in other blocks than the rest, else by their means.
    pub(super) fn level(&self, points: &[&PointSummary]) -> impl Fn(&PointSummary) -> f64 + use<'a> {
        let contest = self.contest(points);
        let of_best =
            move |c: &ContestSummary, p: &PointSummary| c.bandwidth.settings[c.setting(p.point)?].of_best;
        let is_compared = contest.is_some_and(|c| points.iter().all(|p| of_best(c, p).is_some()));
        move |point| match contest.filter(|_| is_compared).and_then(|c| of_best(c, point)) {
            Some(bounds) => bounds.ratio,
            None => super::mean(point),
        }
    }
}

fn of_comparison(comparison: &Comparison, of: &PointSummary, over: &PointSummary) -> Compared {
    Compared {
        ratio: comparison.ratio.unwrap_or_else(|| super::mean(of) / super::mean(over)),
        interval: comparison.interval.map(interval),
        p_adjusted: comparison.p_adjusted,
        verdict: comparison.verdict,
    }
}
