//! What each dimension does, other settings held; which of them depend on each other; and whether the machine
//! drifted meanwhile.

use std::collections::BTreeMap;

use measure::effects::{
    self, AgainstBest, DimensionEffect, DimensionVerdict, EffectRules, InteractionCell, Observation,
};
use measure::stats::drift::DriftVerdict;
use measure::stats::{DriftRules, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::RunRow;

use super::choices::choices;
use super::statistics::interval;
use super::{ContestSummary, Interval, PointSummary, SweepData, Work, contests};

/// What one dimension does to the bandwidth of one kind of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// The work whose points were compared.
    pub work: Work,
    /// The dimension.
    pub dimension: String,
    /// The value with the most bandwidth, other settings equal.
    pub best: String,
    /// Whether any two values differ beyond noise and by enough to matter; none where that could not be tested.
    pub matters: Option<bool>,
    /// Every other value against the best.
    pub values: Vec<EffectOfValue>,
}

impl EffectOfValue {
    /// The verdict: `differs`.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.interval {
            _ if self.beyond_noise => "differs",
            Some(i) if i.low > 1.0 || i.high < 1.0 => "differs within the margin of equivalence",
            Some(_) => "not told apart",
            None if self.constructions == 1 => "one construction each: cannot be told",
            None => "too few runs to tell",
        }
    }
}

/// What one value does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EffectOfValue {
    /// The value.
    pub value: String,
    /// Bandwidth with this value divided by bandwidth with the best: a geometric mean over pairs of points that
    /// differ in nothing else.
    pub ratio: f64,
    /// Its interval from the scatter over blocks, or between constructions where the values lie on different ones; those of all
    /// dimensions of a work hold together. None where blocks or constructions are too few.
    pub interval: Option<Interval>,
    /// Sets of constructions that the interval rests on; 0 where the values share constructions.
    #[serde(default)]
    pub constructions: u64,
    /// Its interval over the pairs: whether it would hold at other settings. None with a single pair.
    pub across_pairs: Option<Interval>,
    /// Pairs.
    pub pairs: u64,
    /// Whether the interval leaves 1 out and the difference is at least the margin of equivalence; never where the blocks showed
    /// all of its points to be equivalent.
    pub beyond_noise: bool,
}

/// How two dimensions act together on the bandwidth of one kind of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interaction {
    /// The work.
    pub work: Work,
    /// One dimension.
    pub first: String,
    /// The other.
    pub second: String,
    /// Every combination of their values.
    pub cells: Vec<InteractionCell>,
    /// The combination that departs most from the product of its two effects.
    pub largest: InteractionCell,
    /// The interval of that departure; those of all pairs of dimensions of a work hold together.
    pub interval: Option<Interval>,
    /// Sets of configurations, equal in all else, that have every combination.
    pub blocks: u64,
    /// Whether the departure exceeds noise and is large enough to matter; none where that could not be tested.
    pub matters: Option<bool>,
    /// Whether it matters and the best value of one is another one elsewhere along the other.
    pub changes_the_best: bool,
    /// The best value of `first` at each value of `second`.
    pub best_first: BTreeMap<String, String>,
}

/// The control point over the sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// Control runs.
    pub runs: u64,
    /// What they say: `no drift`, `drifting`, `jumping`.
    pub verdict: String,
    /// Whether figures from the two ends of the sweep may not be comparable.
    pub moved: bool,
    /// Change along the line from first to last, by the mean: −0.08 is a loss of 8 %.
    pub trend: f64,
    /// Its interval.
    pub interval: Option<Interval>,
    /// Distance of the control run furthest from the median, by the median.
    pub largest_deviation: f64,
}

impl Drift {
    /// `no drift: −0.4 % from first to last (−1.0 % to 0.2 %), at most 2.1 % off the median`.
    #[must_use]
    pub fn sentence(&self) -> String {
        // The estimates know no bound, but nothing loses more than all.
        let signed = |ratio: f64| signed(ratio.max(-1.0));
        let range = self.interval.map(|i| format!(" ({} to {})", signed(i.low), signed(i.high)));
        let range = range.unwrap_or_default();
        format!(
            "{}: {} from first to last{range}, at most {} off the median",
            self.verdict,
            signed(self.trend),
            units::percent(self.largest_deviation.abs())
        )
    }
}

fn signed(ratio: f64) -> String {
    let text = units::percent(ratio.abs());
    match ratio {
        r if text == "0.0 %" || r == 0.0 => text,
        r if r < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

/// Judges the control runs; none where there are too few to tell. Where constructions have controls of their own
/// ([`crate::plan`]), each is taken relative to the median of its own: how one construction differs from the next is
/// no drift.
#[must_use]
pub fn drift(controls: &[RunRow]) -> Option<Drift> {
    let mut by_point: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for run in controls {
        by_point.entry(run.point).or_default().push(run.bandwidth_bytes_per_s);
    }
    let several = by_point.len() > 1;
    let unit = |run: &RunRow| match by_point[&run.point].as_slice() {
        // A point's only control says nothing about drift.
        [_] if several => None,
        own if several => measure::stats::describe::median(own).filter(|median| *median > 0.0),
        _ => Some(1.0),
    };
    let figure = |run: &RunRow| Some((f64::from(run.position), run.bandwidth_bytes_per_s / unit(run)?));
    let mut series: Vec<(f64, f64)> = controls.iter().filter_map(figure).collect();
    series.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let drift = measure::stats::drift(&series, &DriftRules::default());
    if drift.verdict == DriftVerdict::NotEnoughData {
        return None;
    }
    Some(Drift {
        runs: drift.n as u64,
        verdict: drift.verdict.label().to_owned(),
        moved: drift.verdict != DriftVerdict::NoDrift,
        trend: drift.trend_ratio?,
        interval: drift.interval.map(interval),
        largest_deviation: drift.largest_deviation?.ratio,
    })
}

/// The effect of each dimension that varies, for each kind of work, and which of them depend on each other, strongest
/// first. Points that did not race and points that no other point matches take no part.
#[must_use]
pub fn effects(
    data: &SweepData,
    contests: &[ContestSummary],
    summaries: &[PointSummary],
) -> (Vec<Effect>, Vec<Interaction>) {
    let mut raced: BTreeMap<u32, Observation> =
        contests.iter().flat_map(|contest| contests::observations(data, contest)).collect();
    let points = super::by_id(&data.points);
    let mut constructions: BTreeMap<Option<String>, u32> = BTreeMap::new();
    let mut works: BTreeMap<&Work, Vec<Observation>> = BTreeMap::new();
    for point in summaries.iter().filter(|p| !p.kept.is_empty()) {
        let next = constructions.len() as u32;
        let construction = points.get(&point.point).and_then(|p| p.construction());
        // What was only screened shares no block with what raced.
        let Some(observation) = raced.remove(&point.point) else { continue };
        works.entry(&point.work).or_default().push(Observation {
            settings: choices(point).into_iter().collect(),
            construction: *constructions.entry(construction).or_insert(next),
            ..observation
        });
    }
    let (mut all, mut together) = (Vec::new(), Vec::new());
    let rules = EffectRules {
        min_effect: data.meta.equivalence.part(),
        every_block: data.meta.stops(),
        ..EffectRules::default()
    };
    for (work, observations) in works {
        // Fails only for a level that these rules do not have.
        let Ok(found) = effects::effects(&observations, &rules) else { continue };
        all.extend(of_work(work, found.dimensions));
        together.extend(found.interactions.iter().map(|i| interaction(work, i)));
    }
    let strength = |i: &Interaction| i.largest.ratio.ln().abs();
    together.sort_by(|a, b| b.matters.cmp(&a.matters).then(strength(b).total_cmp(&strength(a))));
    (all, together)
}

fn of_work(work: &Work, mut dimensions: Vec<DimensionEffect>) -> Vec<Effect> {
    dimensions.sort_by(|a, b| a.dimension.cmp(&b.dimension));
    let effect = |d: DimensionEffect| {
        let values: Vec<EffectOfValue> = d.against_best.iter().filter_map(of_value).collect();
        Some(Effect {
            work: work.clone(),
            best: d.best?,
            matters: verdict(d.verdict),
            dimension: d.dimension,
            values,
        })
    };
    dimensions.into_iter().filter_map(effect).filter(|effect| !effect.values.is_empty()).collect()
}

fn verdict(verdict: DimensionVerdict) -> Option<bool> {
    match verdict {
        DimensionVerdict::Matters => Some(true),
        DimensionVerdict::NoDifference => Some(false),
        DimensionVerdict::NotEnoughData => None,
    }
}

fn interaction(work: &Work, of: &effects::Interaction) -> Interaction {
    Interaction {
        work: work.clone(),
        first: of.first.clone(),
        second: of.second.clone(),
        cells: of.cells.clone(),
        largest: of.largest.clone(),
        interval: of.effect.noise.map(interval),
        blocks: of.complete_blocks as u64,
        matters: verdict(of.verdict),
        changes_the_best: of.changes_the_best(),
        best_first: of.best_first.clone(),
    }
}

fn of_value(against: &AgainstBest) -> Option<EffectOfValue> {
    let effect = against.effect?;
    Some(EffectOfValue {
        value: against.value.clone(),
        ratio: effect.ratio,
        interval: effect.noise.map(interval),
        constructions: effect.constructions as u64,
        across_pairs: effect.across_blocks.map(interval),
        pairs: effect.blocks as u64,
        beyond_noise: matches!(against.verdict, Verdict::Worse | Verdict::Better),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sentence_tells_of_a_loss_of_more_than_all() {
        let drift = Drift {
            runs: 3,
            verdict: "jumping".to_owned(),
            moved: true,
            trend: -3.0,
            interval: Some(Interval { low: -9.73, high: -1.2 }),
            largest_deviation: 0.5,
        };
        let sentence = "jumping: −100 % from first to last (−100 % to −100 %), at most 50.0 % off the median";
        assert_eq!(drift.sentence(), sentence);
    }
}
