//! The best setting for each kind of work: better by how much, equivalent, or undecided.
//!
//! For each [`Work`] of a sweep, in this order:
//!
//! 1. Where a run of any of its points is missing, nothing is recommended: the missing one might be
//!    the best.
//! 2. Points without a usable run, and points answered by the page cache where others are not, are left out,
//!    by name.
//! 3. The blocks decide ([`crate::analysis::contests`]). *Better*: one setting is left, and its gain has an interval
//!    that holds for all comparisons together. *Equivalent*: those that are left are within 5 % of the cheapest; the
//!    99th percentile of latency decides between them by the same rules, and where it does not, the cheapest is
//!    recommended: least requests in flight, then fewest jobs, then the one written first. *Undecided*: the
//!    cheapest of those that may still be the best, with how much better another one could be, and how many
//!    more blocks would tell.
//! 4. Points on different constructions share no block. Where the alternatives of a work are spread over several,
//!    their means are compared without pairs (Holm over all of them), and all that the machine moved from block to block while
//!    one construction stood counts as moved between two ([`measure::stats::apart`]); those of one construction are compared by their
//!    race. What cannot be told apart is *sufficient* where no other one is more than 5 % better, else undecided.
//! 5. The gain is given over the cheapest of all alternatives and over the runner-up, each with its
//!    interval, and the [`Knee`] says what a smaller depth would cost in bandwidth and save in latency.
//! 6. The recommended point as [`settings`] that a program can set, each with the measurement behind it; and over
//!    all kinds of work the [`Compromise`].
//!
//! Every figure of one setting against another, here and in the ladder, is by the same statistics (`pairs`), so that its interval
//! agrees with the outcome.
//!
//! [`ladder`] tells how one gets there from where the machine stands.

pub(crate) mod choice;
mod contests;
mod knee;
pub mod ladder;
mod pairs;
pub mod settings;
pub(crate) mod words;

use std::collections::BTreeMap;

use measure::WarningCode;
use measure::decide::{MoreBlocks, Standing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::analysis::statistics::Verdict;
use crate::analysis::{Analysis, ContestSummary, Estimate, Interval, PointSummary, Work};
use crate::plan::Margin;
use crate::search::SearchSummary;

use pairs::Judge;

pub use choice::rank;
pub use knee::{DepthPoint, Knee, NEAR_BEST};
pub use ladder::{Change, Ladder, Rung, ladders};
pub use settings::{Compromise, Measured, Setting, Share, compromise};
pub use words::{headline, ratio, times};

/// How a recommendation came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// One setting is better than every other.
    #[serde(alias = "clear")]
    Better,
    /// Several settings are equivalent: within 5 % of the cheapest of them. The one with the lowest 99th percentile of
    /// latency is recommended where that is decided, else the cheapest.
    Equivalent,
    /// No setting is better than the recommended one by more than 5 %. Whether others equal it is open.
    Sufficient,
    /// The runs do not suffice for any of these; the cheapest setting that may be the best is recommended.
    #[serde(alias = "tied", alias = "not-enough-runs")]
    Undecided,
    /// There was only one setting to choose from.
    OnlyOne,
    /// Runs are missing; nothing is recommended.
    Incomplete,
    /// No run is usable; nothing is recommended.
    NoFigure,
}

/// How much faster one setting is than another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gain {
    /// The point it is compared with.
    pub over: u32,
    /// What that point does differently, for people.
    pub setting: String,
    /// Mean bandwidth divided by that point's.
    pub ratio: f64,
    /// The ratio's interval.
    pub interval: Option<Interval>,
    /// Whether the interval leaves 1 out.
    pub beyond_noise: bool,
}

/// How far a decision is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Undecided {
    /// Another setting could be up to this many times as fast; none before an interval exists
    /// that ends below 100. At most the margin of equivalence where the outcome is *sufficient*.
    pub could_be: Option<f64>,
    /// How many more blocks would tell; none below six blocks, or where no number is in sight.
    pub more_blocks: Option<MoreBlocks>,
}

/// How the 99th percentile of latency decides between settings with equivalent bandwidths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tail {
    /// Whether one setting's is better, all are equivalent, or it is undecided.
    pub outcome: Outcome,
    /// The recommended setting's advantage over the next: the other one's percentile by its own. None where none is
    /// better.
    pub gain: Option<Gain>,
    /// The points that it has not dropped, cheapest first.
    #[serde(default)]
    pub tied: Vec<u32>,
}

/// What to use for one kind of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recommendation {
    /// The work.
    pub work: Work,
    /// How it came about.
    pub outcome: Outcome,
    /// The point recommended; none where nothing is.
    pub point: Option<u32>,
    /// Its setting for people, only of what varied: `random seeking, depth 16`.
    pub setting: Option<String>,
    /// The same as flags of `flashwright bench`.
    pub flags: Option<String>,
    /// Its bandwidth, bytes per second.
    pub bandwidth: Option<Estimate>,
    /// Its requests per second.
    pub iops: Option<f64>,
    /// Its 99th percentile of latency, nanoseconds.
    pub latency_ns_p99: Option<f64>,
    /// The point with the highest mean; differs from `point` in a tie.
    pub fastest: Option<u32>,
    /// All points that are equivalent, or may still be the best, cheapest first; the winner alone where there is one.
    pub tied: Vec<u32>,
    /// How far apart settings may lie that count as equally good, as a part of one.
    #[serde(default)]
    pub equivalence: Margin,
    /// The interval within which all that are equivalent lie, relative to the cheapest of them.
    #[serde(default)]
    pub within: Option<Interval>,
    /// How far the decision is; none where there is one. Of a sufficient setting, how far it is to *better* or *equivalent*.
    #[serde(default)]
    pub undecided: Option<Undecided>,
    /// What the 99th percentile of latency says where bandwidths are equivalent.
    #[serde(default)]
    pub tail: Option<Tail>,
    /// Blocks that were judged; none where the alternatives share none.
    #[serde(default)]
    pub blocks: Option<u64>,
    /// Over the cheapest alternative; none where that is the recommended one.
    pub over_cheapest: Option<Gain>,
    /// Over the next best that is not tied; none where all tie.
    pub over_runner_up: Option<Gain>,
    /// Where more depth stops paying.
    pub knee: Option<Knee>,
    /// The recommended point as settings, by name, each with the measurement behind it.
    #[serde(default)]
    pub settings: BTreeMap<String, Setting>,
    /// What bears on it: points left out and why, warnings on the recommended runs, missing runs.
    pub caveats: Vec<String>,
    /// All of this in a sentence or two.
    pub sentence: String,
}

/// A recommendation for each kind of work that the sweep holds, in order of class.
#[must_use]
pub fn recommend(analysis: &Analysis) -> Vec<Recommendation> {
    let mut works: BTreeMap<&Work, Vec<&PointSummary>> = BTreeMap::new();
    for point in racing(analysis) {
        works.entry(&point.work).or_default().push(point);
    }
    works.into_iter().map(|(work, points)| for_work(analysis, work, &points)).collect()
}

/// The points to choose from: what was only screened has too few runs.
fn racing(analysis: &Analysis) -> impl Iterator<Item = &PointSummary> {
    let races = |point: u32| analysis.search.as_ref().is_none_or(|search| search.races(point));
    analysis.points.iter().filter(move |point| races(point.point))
}

impl Recommendation {
    fn nothing(work: &Work, outcome: Outcome, caveats: Vec<String>) -> Self {
        let mut nothing = Self {
            work: work.clone(),
            outcome,
            point: None,
            setting: None,
            flags: None,
            bandwidth: None,
            iops: None,
            latency_ns_p99: None,
            fastest: None,
            tied: Vec::new(),
            within: None,
            equivalence: Margin::default(),
            undecided: None,
            tail: None,
            blocks: None,
            over_cheapest: None,
            over_runner_up: None,
            knee: None,
            settings: BTreeMap::new(),
            caveats,
            sentence: String::new(),
        };
        nothing.sentence = words::sentence(&nothing);
        nothing
    }
}

fn for_work(analysis: &Analysis, work: &Work, points: &[&PointSummary]) -> Recommendation {
    let missing: Vec<String> = points
        .iter()
        .filter(|p| analysis.completeness.lacks(p.point))
        .map(|p| words::missing(p, &analysis.completeness))
        .collect();
    if !missing.is_empty() {
        return Recommendation::nothing(work, Outcome::Incomplete, words::at_most(missing, 8));
    }
    let contest = contests::of(analysis, points);
    let (candidates, mut caveats) = candidates(points, contest);
    let names = choice::Varying::among(points);
    let judge = Judge::new(analysis);
    let found = match contest {
        Some(contest) => contests::judged(contest, &candidates, &names),
        None => {
            Field::of(&judge, &candidates).map(|field| field.judged(&judge, &names, analysis.search.as_ref()))
        }
    };
    let Some((use_point, found)) = found else {
        return Recommendation::nothing(work, Outcome::NoFigure, caveats);
    };
    caveats.extend(words::seeking_caveat(use_point, &candidates));
    caveats.extend(words::warning_caveat(use_point));
    if contest.is_none() {
        caveats.push(words::not_interleaved(analysis.movements.get(work)));
    }
    let mut recommendation = Recommendation {
        work: work.clone(),
        point: Some(use_point.point),
        setting: Some(names.setting(use_point)),
        flags: Some(choice::flags(use_point)),
        bandwidth: use_point.bandwidth,
        iops: use_point.iops.map(|iops| iops.mean),
        latency_ns_p99: use_point.latency_ns_p99,
        knee: knee(&found, use_point, &candidates, contest),
        settings: settings::Ground::new(analysis, judge, points).settings(use_point),
        caveats,
        ..found
    };
    recommendation.sentence = words::sentence(&recommendation);
    recommendation
}

/// The knee, unless it would contradict the decision: of an undecided work the estimates do not say which depth is enough,
/// and where latency has dropped settings of equivalent bandwidth, none of these is named.
fn knee(
    found: &Recommendation,
    use_point: &PointSummary,
    candidates: &[&PointSummary],
    contest: Option<&ContestSummary>,
) -> Option<Knee> {
    let agrees = |knee: &Knee| match &found.tail {
        Some(tail) if tail.outcome == Outcome::Better => knee.at.point == use_point.point,
        Some(tail) => tail.tied.is_empty() || tail.tied.contains(&knee.at.point),
        None => true,
    };
    knee::knee(use_point, candidates, contest)
        .filter(|knee| found.outcome != Outcome::Undecided && agrees(knee))
}

/// The points that may be recommended, and for those that may not, why.
fn candidates<'a>(
    points: &[&'a PointSummary],
    contest: Option<&ContestSummary>,
) -> (Vec<&'a PointSummary>, Vec<String>) {
    let mut caveats = Vec::new();
    let (usable, unusable): (Vec<_>, Vec<_>) =
        points.iter().copied().partition(|p| p.bandwidth.is_some_and(|b| b.mean > 0.0));
    if !unusable.is_empty() {
        let labels = unusable.iter().map(|p| p.label.clone()).collect();
        let labels = words::at_most(labels, 4).join("; ");
        caveats.push(format!("Left out, because no run of it is usable: {labels}."));
    }
    // What the page cache answers is always fastest, and says nothing about the flash.
    // Blocks leave such runs out themselves, and decide by the others.
    let has_others = |p: &PointSummary| {
        let standing = contest.and_then(|c| Some(c.bandwidth.settings[c.setting(p.point)?].standing));
        standing.is_some_and(|standing| standing != Standing::Failed)
    };
    let (cached, direct): (Vec<_>, Vec<_>) =
        usable.iter().copied().partition(|p| p.warnings.contains(&WarningCode::Cached) && !has_others(p));
    if cached.is_empty() || direct.is_empty() {
        return (usable, caveats);
    }
    let labels = cached.iter().map(|p| p.label.clone()).collect();
    let labels = words::at_most(labels, 4).join("; ");
    caveats.push(format!(
        "Left out, because memory answered instead of the flash ({}): {labels}.",
        WarningCode::Cached
    ));
    (direct, caveats)
}

/// The candidates around the fastest of them.
struct Field<'a> {
    fastest: &'a PointSummary,
    /// Cheapest first.
    tied: Vec<&'a PointSummary>,
    /// Those that the fastest, or one of their own construction, beats beyond noise, fastest first.
    beaten: Vec<&'a PointSummary>,
    /// Whether every comparison had runs enough.
    enough: bool,
}

impl<'a> Field<'a> {
    fn of(judge: &Judge<'_>, candidates: &[&'a PointSummary]) -> Option<Self> {
        // What lost to a point of its own construction is not the best of all, although its mean is that of other blocks.
        let candidates: Vec<_> = candidates.iter().copied().filter(|p| !judge.was_struck(p)).collect();
        let (lost, mut ranked): (Vec<_>, Vec<_>) =
            candidates.iter().copied().partition(|p| judge.has_lost(p));
        let mut beaten = lost;
        if ranked.is_empty() {
            ranked = std::mem::take(&mut beaten);
        }
        let level = judge.level(&candidates);
        ranked.sort_by(|a, b| level(b).total_cmp(&level(a)).then(a.point.cmp(&b.point)));
        let (&fastest, others) = ranked.split_first()?;
        let comparisons = judge.family(&others.iter().map(|other| (fastest, *other)).collect::<Vec<_>>());
        let enough = comparisons.iter().all(|c| c.verdict != Verdict::NotEnoughData);
        let mut tied = vec![fastest];
        for (other, comparison) in others.iter().zip(&comparisons) {
            match comparison.verdict {
                // Without runs enough to tell, a lower mean is all there is to go by.
                Verdict::Better | Verdict::NotEnoughData => beaten.push(*other),
                Verdict::NoDifference | Verdict::Worse => tied.push(*other),
            }
        }
        tied.sort_by_key(|p| choice::cost(p));
        beaten.sort_by(|a, b| level(b).total_cmp(&level(a)).then(a.point.cmp(&b.point)));
        Some(Self { fastest, tied, beaten, enough })
    }

    fn outcome(&self) -> Outcome {
        match (self.tied.len(), self.beaten.is_empty()) {
            _ if !self.enough => Outcome::Undecided,
            (1, true) => Outcome::OnlyOne,
            (1, false) => Outcome::Better,
            _ => Outcome::Undecided,
        }
    }

    /// What is recommended, and how that came about.
    fn judged(
        &self,
        judge: &Judge<'_>,
        names: &choice::Varying,
        search: Option<&SearchSummary>,
    ) -> (&'a PointSummary, Recommendation) {
        let use_point = search.map_or_else(|| self.recommended(), |search| self.expected(search));
        let (mut outcome, mut could_be) = (self.outcome(), None);
        if outcome == Outcome::Undecided && self.enough {
            could_be = self.could_be(judge, use_point);
            // What a search expects to be best need not be the simplest of those that are as good.
            if let Some(most) = self.sufficient(judge, use_point).filter(|_| search.is_none()) {
                (outcome, could_be) = (Outcome::Sufficient, Some(most));
            }
        }
        let is_open = matches!(outcome, Outcome::Undecided | Outcome::Sufficient);
        let found = Recommendation {
            fastest: Some(self.fastest.point),
            tied: self.tied.iter().map(|p| p.point).collect(),
            equivalence: Margin::of_part(judge.equivalence()).unwrap_or_default(),
            undecided: is_open.then_some(Undecided { could_be, more_blocks: None }),
            over_cheapest: self
                .cheapest()
                .filter(|p| p.point != use_point.point)
                .map(|p| self.gain(judge, use_point, p, names)),
            over_runner_up: self.runner_up().map(|p| self.gain(judge, use_point, p, names)),
            ..Recommendation::nothing(&use_point.work, outcome, Vec::new())
        };
        (use_point, found)
    }

    fn tied_with(&self, point: &PointSummary) -> impl Iterator<Item = &'a PointSummary> {
        self.tied.iter().copied().filter(move |other| other.point != point.point)
    }

    /// How many times as fast another setting that may be the best could be.
    fn could_be(&self, judge: &Judge<'_>, point: &PointSummary) -> Option<f64> {
        let among = self.tied.len() + self.beaten.len() - 1;
        let highest = |other| Some(judge.compare(other, point, among).interval?.high);
        let most = self.tied_with(point).map(highest).try_fold(1.0, |most, next| Some(f64::max(most, next?)));
        most.filter(|most| *most <= contests::MOST_TELLING)
    }

    /// The same where no other setting is faster by more than the margin of equivalence.
    fn sufficient(&self, judge: &Judge<'_>, point: &PointSummary) -> Option<f64> {
        let most = self
            .tied_with(point)
            .map(|other| judge.at_most(other, point))
            .try_fold(1.0, |most, next| Some(f64::max(most, next?)));
        most.filter(|most| *most <= 1.0 + judge.equivalence())
    }

    /// Of a screened sweep, whose settings do not tie by being equal: the best by estimate of those on the first construction that
    /// has any. More is expected of it than of the later ones, and it was not told from them.
    fn expected(&self, search: &SearchSummary) -> &'a PointSummary {
        let tied = self.tied.iter().copied();
        let turn = |p: &&PointSummary| search.turn(p.point);
        let level = |p: &PointSummary| search.estimate(p.point).unwrap_or_else(|| mean(p));
        let best = tied.min_by(|a, b| turn(a).cmp(&turn(b)).then(level(b).total_cmp(&level(a))));
        best.unwrap_or(self.fastest)
    }

    fn recommended(&self) -> &'a PointSummary {
        self.tied.first().copied().unwrap_or(self.fastest)
    }

    fn cheapest(&self) -> Option<&'a PointSummary> {
        self.tied.iter().chain(&self.beaten).copied().min_by_key(|p| choice::cost(p))
    }

    fn runner_up(&self) -> Option<&'a PointSummary> {
        self.beaten.first().copied()
    }

    fn gain(
        &self,
        judge: &Judge<'_>,
        of: &PointSummary,
        over: &PointSummary,
        names: &choice::Varying,
    ) -> Gain {
        // What was beaten was told apart in the whole family.
        let is_tied = self.tied.iter().any(|p| p.point == over.point);
        let among = if is_tied { self.tied.len() + self.beaten.len() - 1 } else { 1 };
        let compared = judge.compare(of, over, among);
        Gain {
            over: over.point,
            setting: names.difference(over, of),
            ratio: compared.ratio,
            interval: compared.interval,
            beyond_noise: compared.is_beyond_noise(),
        }
    }
}

fn mean(point: &PointSummary) -> f64 {
    point.bandwidth.map_or(0.0, |b| b.mean)
}

/// Whether an interval of a ratio leaves 1 out.
fn is_beyond_noise(interval: Option<Interval>) -> bool {
    interval.is_some_and(|interval| interval.low > 1.0 || interval.high < 1.0)
}
