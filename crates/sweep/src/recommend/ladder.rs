//! From what the machine does as it stands to the best, one setting at a time: Fig. 3 of the DASH paper.
//!
//! For each kind of work, in this order:
//!
//! 1. **The baseline** is the first point of the work that has the values of the space's `[sweep] baseline`; without
//!    one, the first point: every dimension at the value that is written first.
//! 2. **A rung**: of all points that differ from where one stands in *one* setting, those that are faster beyond noise
//!    (`super::pairs`, for all of them together) and by 2 % are looked at, and the fastest is taken. What cannot be told from it is named
//!    beside it. Of points that may all be the best, or that the blocks showed to be equivalent, none is a rung above another. A change of `layout` may bring `chunk` and `width` with it, and one of `filesystem` its
//!    `mount_options`, as few as the sweep allows: those words mean nothing without it. One of `iodepth` may bring `rw`
//!    in the same way, because the papers' test types seek in sequence at depth 1 only.
//! 3. Repeated until no single change is faster.
//! 4. Where the fastest point of all still lies beyond noise (for all points together) and with its whole interval 2 % above, settings depend on each
//!    other, and no single change leads there: it is the last rung, with all its changes at once. Of points that cannot
//!    be told from the fastest, the one with the fewest changes is taken.
//!
//! Each rung is a measured point, not a product of averages, and its gain is over the rung below, with its interval.
//! The best of several is picked by looking at the data, so a gain close to the limit is somewhat flattered; the
//! correction for the number of comparisons keeps it from being noise.

use std::collections::BTreeMap;

use measure::stats::Verdict;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::analysis::choices::choices;
use crate::analysis::{Analysis, Estimate, Interval, Metric, PointSummary, Work};

use super::pairs::{Compared, Judge};
use super::words;

/// The way to the best for one kind of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ladder {
    /// The work.
    pub work: Work,
    /// What its figures are.
    pub metric: Metric,
    /// The point that it starts from.
    pub baseline: u32,
    /// The settings of that point that vary in the sweep.
    pub from: BTreeMap<String, String>,
    /// Its figure.
    pub figure: Estimate,
    /// The rungs; none where no change is faster.
    pub rungs: Vec<Rung>,
    /// All of this in a sentence or two.
    pub sentence: String,
}

/// One step up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rung {
    /// The point.
    pub point: u32,
    /// What changes: one setting, with those that come with it; several on the last rung only.
    pub changes: Vec<Change>,
    /// Whether these changes help only together.
    pub together: bool,
    /// Its figure.
    pub figure: Estimate,
    /// By the rung below.
    pub gain: f64,
    /// The gain's interval.
    pub interval: Option<Interval>,
    /// The p-value of the gain, corrected for all changes that might have been made; none where both rungs share blocks, whose bound
    /// has none.
    pub p_adjusted: Option<f64>,
    /// By the baseline.
    pub total: f64,
    /// Its interval.
    pub total_interval: Option<Interval>,
    /// Kept runs of both rungs.
    pub runs: u64,
    /// Other values of the same setting that cannot be told from this one.
    pub as_good: Vec<String>,
}

/// One setting from one value to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The setting.
    pub setting: String,
    /// Its value below; none where that point does not have it.
    pub from: Option<String>,
    /// Its value now.
    pub to: Option<String>,
    /// Whether it belongs to the layout; otherwise it is the application's to choose.
    pub of_layout: bool,
}

impl Ladder {
    /// The topmost rung's factor over the baseline; 1 without rungs.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.rungs.last().map_or(1.0, |rung| rung.total)
    }
}

/// Settings that may have to change with another, by that other one.
const BROUGHT: [(&str, &[&str]); 3] =
    [("layout", &["chunk", "width"]), ("filesystem", &["mount_options"]), ("iodepth", &["rw"])];

/// The settings that a change of this one may bring with it.
pub(super) fn brought(name: &str) -> &'static [&'static str] {
    BROUGHT.iter().find(|(first, _)| *first == name).map_or(&[], |(_, brought)| brought)
}

/// The last rung's changes are picked among many and made together, so the gain's whole interval must lie above this.
const WORTH_SEVERAL: f64 = 1.02;

type Settings = BTreeMap<String, String>;

/// A ladder for each kind of work of which nothing is missing and that has more than one setting.
#[must_use]
pub fn ladders(analysis: &Analysis) -> Vec<Ladder> {
    let mut works: BTreeMap<&Work, Vec<&PointSummary>> = BTreeMap::new();
    for point in &analysis.points {
        works.entry(&point.work).or_default().push(point);
    }
    works.into_iter().filter_map(|(work, points)| ladder(analysis, work, &points)).collect()
}

fn ladder(analysis: &Analysis, work: &Work, points: &[&PointSummary]) -> Option<Ladder> {
    if points.len() < 2 || points.iter().any(|p| analysis.completeness.lacks(p.point)) {
        return None;
    }
    let (candidates, _) = super::candidates(points, super::contests::of(analysis, points));
    let climb = Climb::new(Judge::new(analysis), Metric::of(work), candidates);
    let start = climb.start(&analysis.baseline)?;
    let figure = climb.metric.figure(start)?;
    let rungs = climb.rungs(start);
    let varies = |name: &str, value: &str| {
        climb.settings.values().any(|other| other.get(name).is_none_or(|v| v.as_str() != value))
    };
    let from = &climb.settings[&start.point];
    let from = from.iter().filter(|(n, v)| varies(n, v)).map(|(n, v)| (n.clone(), v.clone())).collect();
    let mut ladder = Ladder {
        work: work.clone(),
        metric: climb.metric,
        baseline: start.point,
        from,
        figure,
        rungs,
        sentence: String::new(),
    };
    ladder.sentence = sentence(&ladder);
    Some(ladder)
}

/// The points of one kind of work, by id and by settings.
struct Climb<'a> {
    judge: Judge<'a>,
    metric: Metric,
    points: Vec<&'a PointSummary>,
    settings: BTreeMap<u32, Settings>,
    /// What orders them.
    levels: BTreeMap<u32, f64>,
}

impl<'a> Climb<'a> {
    fn new(judge: Judge<'a>, metric: Metric, mut points: Vec<&'a PointSummary>) -> Self {
        points.sort_by_key(|p| p.point);
        let settings = points.iter().map(|p| (p.point, choices(p).into_iter().collect())).collect();
        let level = judge.level(&points);
        let levels = points.iter().map(|p| (p.point, level(p))).collect();
        Self { judge, metric, points, settings, levels }
    }

    fn level(&self, point: &PointSummary) -> f64 {
        self.levels[&point.point]
    }

    /// Whether `other` may be a rung above `at`. Each rung's level is above the one below, so that the way ends: pairs that were last
    /// compared after different blocks could lead in a circle.
    fn may_rise(&self, at: &PointSummary, other: &PointSummary) -> bool {
        at.point != other.point && self.level(other) > self.level(at)
    }

    fn start(&self, baseline: &Settings) -> Option<&'a PointSummary> {
        let named = |p: &&&PointSummary| {
            baseline.iter().all(|(name, value)| p.settings.get(name).is_none_or(|v| v == value))
        };
        self.points.iter().find(named).or(self.points.first()).copied()
    }

    /// Every rung above `start`.
    fn rungs(&self, start: &PointSummary) -> Vec<Rung> {
        let mut rungs: Vec<Rung> = Vec::new();
        let mut at = start;
        while let Some((next, rung)) = self.next(start, at) {
            rungs.push(rung);
            at = next;
        }
        rungs.extend(self.last(start, at));
        rungs
    }

    /// The fastest single change from `at`.
    fn next(&self, start: &PointSummary, at: &PointSummary) -> Option<(&'a PointSummary, Rung)> {
        let near = self.near(at);
        let compared = self.judge.family(&near.iter().map(|(p, _)| (*p, at)).collect::<Vec<_>>());
        let rises = |(near, c): &(&(&PointSummary, _), &Compared)| {
            c.verdict == Verdict::Better && self.may_rise(at, near.0)
        };
        let (best, comparison) = near.iter().zip(&compared).filter(rises).max_by(|a, b| {
            self.level(a.0.0).total_cmp(&self.level(b.0.0)).then(b.0.0.point.cmp(&a.0.0.point))
        })?;
        let (point, changes) = best;
        let main = changes.first()?;
        let as_good = near.iter().filter(|(p, other)| {
            p.point != point.point
                && other.first().is_some_and(|c| c.setting == main.setting)
                && self.judge.compare(p, point, 1).verdict == Verdict::NoDifference
        });
        let as_good = as_good.filter_map(|(_, other)| other.first()?.to.clone()).collect();
        let rung = self.rung(start, at, point, changes.clone(), comparison)?;
        Some((point, Rung { as_good, ..rung }))
    }

    /// The fastest of all, where single changes do not lead to it.
    fn last(&self, start: &PointSummary, at: &PointSummary) -> Option<Rung> {
        let others: Vec<&PointSummary> =
            self.points.iter().copied().filter(|p| p.point != at.point).collect();
        let compared = self.judge.family(&others.iter().map(|p| (*p, at)).collect::<Vec<_>>());
        let enough = |c: &Compared| c.interval.is_some_and(|i| i.low >= WORTH_SEVERAL);
        let is_better = |p: &PointSummary, c: &Compared| {
            c.verdict == Verdict::Better && enough(c) && self.may_rise(at, p)
        };
        let better = || others.iter().copied().zip(&compared).filter(|(p, c)| is_better(p, c));
        let (fastest, _) = better().max_by(|a, b| self.level(a.0).total_cmp(&self.level(b.0)))?;
        // What makes no difference need not change.
        let as_good = |p: &PointSummary| {
            p.point == fastest.point || self.judge.compare(p, fastest, 1).verdict == Verdict::NoDifference
        };
        let (point, comparison) =
            better().filter(|(p, _)| as_good(p)).min_by_key(|(p, _)| (self.changes(at, p).len(), p.point))?;
        let changes = self.changes(at, point);
        let together = changes.len() > 1;
        self.rung(start, at, point, changes, comparison).map(|rung| Rung { together, ..rung })
    }

    fn rung(
        &self,
        start: &PointSummary,
        below: &PointSummary,
        point: &PointSummary,
        changes: Vec<Change>,
        compared: &Compared,
    ) -> Option<Rung> {
        let total = match start.point == below.point {
            true => *compared,
            false => self.judge.compare(point, start, self.points.len() - 1),
        };
        Some(Rung {
            point: point.point,
            changes,
            together: false,
            figure: self.metric.figure(point)?,
            gain: compared.ratio,
            interval: compared.interval,
            p_adjusted: compared.p_adjusted,
            total: total.ratio,
            total_interval: total.interval,
            runs: (below.kept.len() + point.kept.len()) as u64,
            as_good: Vec::new(),
        })
    }

    /// The points that one change leads to, each with that change first.
    fn near(&self, at: &PointSummary) -> Vec<(&'a PointSummary, Vec<Change>)> {
        let differing = |p: &&PointSummary| p.point != at.point;
        let all = self.points.iter().copied().filter(differing).map(|p| (p, self.changes(at, p)));
        let all: Vec<(&PointSummary, Vec<Change>)> = all.filter(|(_, changes)| changes.len() <= 3).collect();
        // Of changes that bring others with them, those that bring the fewest.
        let fewest = |first: &Change| {
            let same = all.iter().filter(|(_, other)| other.first() == Some(first) && brings(other));
            same.map(|(_, other)| other.len()).min().unwrap_or(usize::MAX)
        };
        let single = |changes: &[Change]| brings(changes) && changes.len() == fewest(&changes[0]);
        all.iter().filter(|(_, changes)| single(changes)).cloned().collect()
    }

    /// What differs between two points; what brings others with it first.
    fn changes(&self, from: &PointSummary, to: &PointSummary) -> Vec<Change> {
        let (from_settings, to_settings) = (&self.settings[&from.point], &self.settings[&to.point]);
        let mut names: Vec<&String> = from_settings.keys().chain(to_settings.keys()).collect();
        names.sort_by_key(|name| (!BROUGHT.iter().any(|(first, _)| first == name), name.as_str()));
        names.dedup();
        names
            .into_iter()
            .filter(|name| from_settings.get(*name) != to_settings.get(*name))
            .map(|name| Change {
                setting: name.clone(),
                from: from_settings.get(name).cloned(),
                to: to_settings.get(name).cloned(),
                of_layout: from.layout.contains_key(name) || to.layout.contains_key(name),
            })
            .collect()
    }
}

/// Whether all changes but the first come with the first.
fn brings(changes: &[Change]) -> bool {
    let [first, rest @ ..] = changes else { return false };
    rest.iter().all(|change| brought(&first.setting).contains(&change.setting.as_str()))
}

/// Other values of a setting that cannot be told from the one of a rung, in parentheses.
fn as_good(values: &[String]) -> String {
    match values {
        [] => String::new(),
        [one] => format!(" ({one} is as good)"),
        several => format!(" ({} are as good)", words::list(several)),
    }
}

/// `Random reads, 4k: from 32.1k IOPS to 441k, 13.7× (13.5–13.9): width=16 8.9×, depth 512 1.5×.`
fn sentence(ladder: &Ladder) -> String {
    let work = ladder.work.label();
    let figure = ladder.metric.words(ladder.figure.mean);
    let Some(top) = ladder.rungs.last() else {
        return format!("{work}: no change of one setting is faster than the baseline's {figure}.");
    };
    let steps: Vec<String> = ladder
        .rungs
        .iter()
        .map(|rung| {
            let changes: Vec<String> = rung.changes.iter().map(Change::words).collect();
            format!("{} {}{}", words::list(&changes), words::times(rung.gain), as_good(&rung.as_good))
        })
        .collect();
    format!(
        "{work}: from {figure} at the baseline to {}, {}: {}.",
        ladder.metric.words(top.figure.mean),
        words::ratio(top.total, top.total_interval),
        steps.join(", then ")
    )
}

impl Change {
    /// `depth 128`, `scheduler=none`, `without chunk`.
    #[must_use]
    pub fn words(&self) -> String {
        match &self.to {
            Some(value) => super::choice::words(&self.setting, value),
            None => format!("without {}", self.setting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::as_good;

    #[test]
    fn a_rung_names_the_values_that_are_as_good() {
        let words = |values: &[&str]| as_good(&values.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(words(&[]), "");
        assert_eq!(words(&["32"]), " (32 is as good)");
        assert_eq!(words(&["32", "64", "128"]), " (32, 64 and 128 are as good)");
    }
}
