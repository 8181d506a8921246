//! Which few points of a large space are worth runs: a screening design, a race, and as few constructions as possible.
//!
//! Under [`crate::plan::Protocol::Screen`] a sweep does in this order, for each construction that it builds:
//!
//! 1. [`design`]: of each contest a fraction of the points runs, chosen so that every value of every cheap dimension
//!    occurs about equally often, and with every value of the others (a nearly orthogonal array).
//! 2. [`screen`]: effects of single dimensions are estimated by [`series`], and the *finalists* are the points that may be
//!    the best by them.
//! 3. The finalists race in blocks ([`measure::decide`]), which share no run with step 2. Finalists that by the effects over all
//!    runs are too far behind are *struck*: they get no further runs, and the race concludes nothing of them.
//!
//! Then [`constructions`] chooses what is built next: a neighbour, in one costly dimension, of what is best so far. The
//! sweep ends where no construction that was not built is likely to be better, or where [`Allowance`] is used.
//!
//! All of it is a pure function of the points, the seed and the stored runs, so that a resumed sweep goes on as the one
//! that was stopped would have. Step 2, what is struck and the choice of constructions assume that dimensions act independently;
//! what the race concludes does not.

pub mod additive;
pub mod constructions;
pub mod design;
pub mod screen;
pub mod series;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::work::Work;

/// Runs that a screened sweep may make, by the points of its space: a twentieth of five passes.
const POINTS_PER_RUN: usize = 4;
/// Runs of one contest on one construction below which screening and race cannot work.
const LEAST_RUNS: usize = 40;
/// Runs of one contest that are kept for each construction after the first: they tell whether it is better, and only if it is must its
/// best setting be known.
const LATER_RUNS: usize = 32;
/// Part of the constructions that may be built.
const CONSTRUCTIONS_PER_BUILD: usize = 10;
/// Constructions that may be built whatever their number.
const LEAST_BUILDS: usize = 3;

/// What a screened sweep has looked at, what it found of each dimension, and what it did not look at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchSummary {
    /// Points of the space that are measured here.
    pub points: u64,
    /// Points with a run.
    pub points_run: u64,
    /// Points that raced; of these, those that were not struck can be recommended.
    pub points_raced: u64,
    /// Runs that are made at most.
    pub runs_most: u32,
    /// Constructions of the space; 1 where nothing is built.
    pub constructions: u64,
    /// Those that were built, in the order of time: first that of which most was expected.
    pub built: Vec<String>,
    /// Values of costly dimensions that no built construction has: `width=1`.
    pub never_built: Vec<String>,
    /// The chance that a construction that was not built is better by 2 % for some work, as far as dimensions act
    /// independently; none where all were built.
    pub chance_unbuilt: Option<f64>,
    /// The screening and the race of each work on each construction that was built.
    pub contests: Vec<ScreenedContest>,
}

/// One work on one construction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScreenedContest {
    /// The work.
    pub work: Work,
    /// What is built for its points; none where nothing is.
    pub construction: Option<String>,
    /// The number of the last block of the screening; 0 where all points race.
    pub last_screened: u32,
    /// The points that race; empty before the screening is complete.
    pub points: Vec<u32>,
    /// Those of them that were struck, in the order of time.
    #[serde(default)]
    pub struck: Vec<StruckPoint>,
    /// By point, its figure by that of the best of them, as estimated from all runs of the contest together; empty where
    /// it was not screened.
    pub estimates: Vec<f64>,
    /// What screening said of each dimension.
    pub effects: Vec<ScreenedEffect>,
    /// Whether the race is decided.
    pub is_decided: bool,
}

/// A point that left its race without having lost: by the sum of effects over all runs until then it was too far behind to be worth
/// further ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StruckPoint {
    /// The point.
    pub point: u32,
    /// The number of the last block that it could run in.
    pub last_block: u32,
}

/// What screening said of one dimension.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScreenedEffect {
    /// Name of the dimension.
    pub name: String,
    /// The best value's figure by the worst one's, as estimated.
    pub ratio: f64,
    /// Whether they differ by more than two SDs.
    pub matters: bool,
    /// Values of points that race.
    pub kept: Vec<String>,
    /// Values that no such point has.
    pub left_out: Vec<String>,
}

impl SearchSummary {
    /// What was looked at and what was not, for people; a sentence or two each.
    #[must_use]
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = vec![format!(
            "Screened: {} of {} points ran, of which {} raced for the recommendation{}; {} of {} constructions were measured.",
            self.points_run,
            self.points,
            self.points_raced,
            match self.contests.iter().map(|contest| contest.struck.len()).sum::<usize>() {
                0 => String::new(),
                struck => format!(
                    ", {struck} of them not to the end, because by the sum of effects they were too far behind"
                ),
            },
            self.contests.iter().map(|contest| &contest.construction).collect::<BTreeSet<_>>().len(),
            self.constructions
        )];
        if let Some(chance) = self.chance_unbuilt {
            let never = match self.never_built.as_slice() {
                [] => String::new(),
                values => format!(", among them all with {}", values.join(", ")),
            };
            let left = self.constructions - self.built.len() as u64;
            sentences.push(format!(
                "Not looked at: {left} constructions{never}. If dimensions act independently, the chance that one of them is \
                 better by 2 % is {} for some work.",
                units::percent(chance)
            ));
        }
        let open = self.contests.iter().filter(|contest| !contest.is_decided).count();
        if open > 0 {
            let races = self.contests.len();
            sentences.push(format!("{open} of {races} races were open when their runs were used."));
        }
        sentences.extend(self.dimensions());
        sentences
    }

    /// Of each work what screening said of its dimensions, on any construction.
    fn dimensions(&self) -> Vec<String> {
        let mut works: BTreeMap<&Work, BTreeMap<&str, (f64, bool)>> = BTreeMap::new();
        for contest in &self.contests {
            let effects = works.entry(&contest.work).or_default();
            for effect in &contest.effects {
                let known = effects.entry(&effect.name).or_insert((1.0, false));
                *known = (known.0.max(effect.ratio), known.1 || effect.matters);
            }
        }
        let sentence = |(work, effects): (&Work, BTreeMap<&str, (f64, bool)>)| {
            let named = |wanted: bool| {
                let of = |(name, (ratio, matters)): (&&str, &(f64, bool))| match matters {
                    true => format!("{name} (up to {ratio:.2}×)"),
                    false => (*name).to_owned(),
                };
                let named: Vec<String> = effects.iter().filter(|(_, e)| e.1 == wanted).map(of).collect();
                if named.is_empty() { "none".to_owned() } else { named.join(", ") }
            };
            format!(
                "{}: dimensions that matter: {}; no effect seen: {}.",
                work.label(),
                named(true),
                named(false)
            )
        };
        works.into_iter().filter(|(_, effects)| !effects.is_empty()).map(sentence).collect()
    }

    /// When a point's construction was built, by the place among those that were.
    #[must_use]
    pub fn turn(&self, point: u32) -> Option<usize> {
        let contest = self.contests.iter().find(|contest| contest.points.contains(&point))?;
        self.built.iter().position(|built| Some(built) == contest.construction.as_ref())
    }

    /// A point's figure by that of the best on its construction, as estimated from all runs there.
    #[must_use]
    pub fn estimate(&self, point: u32) -> Option<f64> {
        let mut places = self.contests.iter().filter_map(|contest| {
            let place = contest.points.iter().position(|id| *id == point)?;
            contest.estimates.get(place).copied()
        });
        places.next()
    }

    /// Whether a point races, and so can be recommended.
    #[must_use]
    pub fn races(&self, point: u32) -> bool {
        self.contests.iter().any(|contest| contest.points.contains(&point))
    }
}

/// What a screened sweep may spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Runs, all constructions together.
    pub runs: u32,
    /// Constructions that are built; 1 where nothing is built.
    pub builds: u32,
    /// Runs that are kept for each construction after the first.
    pub later: u32,
}

impl Allowance {
    /// For a space of so many points and constructions with `works` contests on each.
    #[must_use]
    pub fn of(points: usize, constructions: usize, works: usize) -> Self {
        let builds = (constructions / CONSTRUCTIONS_PER_BUILD).max(LEAST_BUILDS).min(constructions).max(1);
        let runs = (points / POINTS_PER_RUN).max(LEAST_RUNS * works * builds);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { runs: count(runs), builds: count(builds), later: count(LATER_RUNS * works) }
    }

    /// Runs for a construction, of those that are left, where so many others were begun: the first gets all that is not
    /// kept for later ones, which share equally.
    #[must_use]
    pub fn share(&self, left: u32, begun: u32) -> u32 {
        let builds = self.builds.saturating_sub(begun).max(1);
        if begun == 0 { left.saturating_sub(self.later.saturating_mul(builds - 1)) } else { left / builds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_construction_gets_what_is_not_kept_for_later_ones_which_share_equally() {
        let papers = Allowance::of(3360, 30, 4);
        assert_eq!((papers.runs, papers.builds, papers.later), (840, 3, 128));
        assert_eq!(papers.share(840, 0), 584);
        assert_eq!((papers.share(256, 1), papers.share(128, 2), papers.share(9, 3)), (128, 128, 9));
        // What the first one left goes to the others.
        assert_eq!(papers.share(640, 1), 320);
        let one = Allowance::of(100, 1, 2);
        assert_eq!((one.runs, one.builds, one.share(one.runs, 0)), (80, 1, 80));
    }
}
