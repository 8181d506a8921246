//! The recommendation as settings that a program can set, each with the measurement behind it; and the one layout that
//! serves every kind of work best.
//!
//! **The measurement behind a setting** compares the recommended point with the one that differs from it in this
//! setting alone: with the baseline's value, or, where the baseline's value is the recommended one, with the best
//! of the others. So it says what is lost by leaving the setting as it was, at these very settings, and not on average.
//! Where the sweep has no such point, there is none.
//!
//! **The compromise.** A node can serve several kinds of work and has one layout. For each layout that was measured with
//! every kind of work, its best figure for each is divided by the best of all layouts; the layout with the highest
//! geometric mean of these shares is chosen. Of layouts that cannot be told from it in any kind of work the first one written is taken, so that what makes no difference stays as it was. Each kind weighs
//! the same; whoever knows better reads the shares.

use std::collections::{BTreeMap, BTreeSet};

use measure::stats::Verdict;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::analysis::choices::choices;
use crate::analysis::{Analysis, Estimate, Interval, Metric, PointSummary, Work};

use super::pairs::Judge;
use super::{Field, words};

/// One setting of a recommendation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Its value, as it would be typed.
    pub value: String,
    /// Whether it belongs to the layout, which `tune` can set; otherwise the application chooses it.
    pub of_layout: bool,
    /// Whether the sweep has other values of it.
    pub varied: bool,
    /// Whether any two of its values differ beyond noise, all else equal; none where it was not varied or
    /// not tested.
    pub matters: Option<bool>,
    /// What is lost without it, for each kind of work that it was measured for.
    pub measured: Vec<Measured>,
}

/// A value against another, all else equal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// The work.
    pub work: Work,
    /// The other value.
    pub against: String,
    /// Whether that is the baseline's.
    pub is_baseline: bool,
    /// Figure with the recommended value by the figure with the other.
    pub ratio: f64,
    /// Its interval.
    pub interval: Option<Interval>,
    /// Kept runs of both.
    pub runs: u64,
    /// Whether the interval leaves 1 out.
    pub beyond_noise: bool,
}

/// One layout for all kinds of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compromise {
    /// Its settings, by name, `drives` among them.
    pub settings: BTreeMap<String, Setting>,
    /// What each kind of work gets from it.
    pub works: Vec<Share>,
    /// Geometric mean of the shares.
    pub share: f64,
    /// Layouts that cannot be told from it, it included.
    pub tied: u64,
    /// All of this in a sentence or two.
    pub sentence: String,
}

/// What one kind of work gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// The work.
    pub work: Work,
    /// What its figures are.
    pub metric: Metric,
    /// The point.
    pub point: u32,
    /// Its figure.
    pub figure: Estimate,
    /// By the best that any layout gave.
    pub of_best: f64,
    /// The interval of that.
    pub interval: Option<Interval>,
    /// By the same work's figure at the baseline's layout, the application's choices being the best there.
    pub over_baseline: Option<f64>,
    /// The interval of that.
    pub over_baseline_interval: Option<Interval>,
}

type Settings = BTreeMap<String, String>;

/// Points of one kind of work, and what they are compared with.
pub(super) struct Ground<'a> {
    analysis: &'a Analysis,
    judge: Judge<'a>,
    points: &'a [&'a PointSummary],
    baseline: Option<&'a PointSummary>,
}

impl<'a> Ground<'a> {
    pub(super) fn new(analysis: &'a Analysis, judge: Judge<'a>, points: &'a [&'a PointSummary]) -> Self {
        let named = |p: &&&PointSummary| {
            analysis.baseline.iter().all(|(name, value)| p.settings.get(name).is_none_or(|v| v == value))
        };
        let first =
            |among: &mut dyn Iterator<Item = &&'a PointSummary>| among.min_by_key(|p| p.point).copied();
        let baseline = first(&mut points.iter().filter(named)).or_else(|| first(&mut points.iter()));
        Self { analysis, judge, points, baseline }
    }

    /// All settings of a point that a person can change: its layout's, and its choices that vary.
    pub(super) fn settings(&self, of: &PointSummary) -> BTreeMap<String, Setting> {
        let all: Vec<Settings> = self.points.iter().map(|p| choices(p).into_iter().collect()).collect();
        let own: Settings = choices(of).into_iter().collect();
        let mut settings = BTreeMap::new();
        for (name, value) in of.layout.iter().chain(&own) {
            let of_layout = of.layout.contains_key(name);
            let varied = all.iter().any(|other| other.get(name).is_some_and(|v| own.get(name) != Some(v)));
            if !of_layout && (!varied || name == "target") {
                continue;
            }
            let measured = self.measured(of, &own, &all, name);
            // A layout whose chunk the others do not have is matched with none of them, but was compared.
            let matters = self.matters(of, name).or(measured.as_ref().map(|m| m.beyond_noise));
            let measured = measured.into_iter().collect();
            settings
                .insert(name.clone(), Setting { value: value.clone(), of_layout, varied, matters, measured });
        }
        settings
    }

    fn matters(&self, of: &PointSummary, name: &str) -> Option<bool> {
        self.analysis.effects.iter().find(|e| e.work == of.work && e.dimension == name)?.matters
    }

    /// `of` against the point that differs in `name` alone.
    fn measured(&self, of: &PointSummary, own: &Settings, all: &[Settings], name: &str) -> Option<Measured> {
        let value = own.get(name)?;
        let may_differ = |n: &String| n == name || super::ladder::brought(name).contains(&n.as_str());
        let differing = |settings: &Settings| {
            let names: BTreeSet<&String> = own.keys().chain(settings.keys()).collect();
            names.into_iter().filter(|n| own.get(*n) != settings.get(*n)).cloned().collect::<Vec<String>>()
        };
        let others = self.points.iter().zip(all).filter_map(|(point, settings)| {
            let other = settings.get(name).filter(|v| *v != value && point.bandwidth.is_some())?;
            let differing = differing(settings);
            differing.iter().all(may_differ).then_some((*point, other, differing.len()))
        });
        // As few differences as the sweep has: another layout may come with a chunk of its own.
        let others: Vec<(&PointSummary, &String, usize)> = others.collect();
        let fewest = others.iter().map(|(.., n)| *n).min()?;
        let others = others.into_iter().filter(|(.., n)| *n == fewest).map(|(p, v, _)| (p, v));
        let mut others: Vec<(&PointSummary, &String)> = others.collect();
        let level = self.judge.level(self.points);
        others.sort_by(|a, b| level(b.0).total_cmp(&level(a.0)).then(a.0.point.cmp(&b.0.point)));
        let default = self.baseline.and_then(|p| choices(p).into_iter().find(|(n, _)| n == name));
        let at_default = default.and_then(|(_, v)| others.iter().find(|(_, other)| **other == v).copied());
        let (other, against) = at_default.or_else(|| others.first().copied())?;
        let compared = self.judge.compare(of, other, self.points.len() - 1);
        Some(Measured {
            work: of.work.clone(),
            against: against.clone(),
            is_baseline: at_default.is_some(),
            ratio: compared.ratio,
            interval: compared.interval,
            runs: (of.kept.len() + other.kept.len()) as u64,
            beyond_noise: compared.is_beyond_noise(),
        })
    }
}

/// The points of each kind of work that may be recommended.
type Works<'a> = BTreeMap<&'a Work, Vec<&'a PointSummary>>;

/// The layout that serves all kinds of work best; none where the sweep has no layouts, or where runs are missing.
#[must_use]
pub fn compromise(analysis: &Analysis) -> Option<Compromise> {
    if analysis.points.iter().any(|p| p.layout.is_empty()) || !analysis.completeness.is_complete() {
        return None;
    }
    let mut works: Works<'_> = BTreeMap::new();
    for point in super::racing(analysis) {
        works.entry(&point.work).or_default().push(point);
    }
    works.values_mut().for_each(|points| {
        *points = super::candidates(points, super::contests::of(analysis, points)).0;
    });
    let judge = Judge::new(analysis);
    let layouts: Vec<Layout<'_>> = layouts(&judge, &works);
    let best: BTreeMap<&Work, &PointSummary> = works
        .iter()
        .filter_map(|(work, points)| {
            let level = judge.level(points);
            let bests = layouts.iter().filter_map(|l| l.best.get(work)).copied();
            Some((*work, bests.max_by(|a, b| level(a).total_cmp(&level(b)))?))
        })
        .collect();
    let complete: Vec<&Layout<'_>> = layouts.iter().filter(|l| l.best.len() == works.len()).collect();
    let score = |l: &Layout<'_>| {
        let logs = l.best.iter().map(|(work, p)| judge.compare(p, best[work], 1).ratio.ln());
        logs.sum::<f64>() / works.len() as f64
    };
    let top =
        complete.iter().copied().max_by(|a, b| score(a).total_cmp(&score(b)).then(b.first.cmp(&a.first)))?;
    let tied = tied(&judge, top, &complete);
    let chosen = tied.iter().copied().min_by_key(|l| l.first)?;
    let base = baseline(analysis, &complete);
    let family = complete.len().saturating_sub(1);
    let share = |(work, point): (&&Work, &&PointSummary)| share(&judge, family, point, best[*work], base);
    let mut compromise = Compromise {
        settings: settings(analysis, judge, &works, chosen),
        works: chosen.best.iter().filter_map(share).collect(),
        share: score(chosen).exp(),
        tied: tied.len() as u64,
        sentence: String::new(),
    };
    compromise.sentence = sentence(&compromise);
    Some(compromise)
}

/// One layout with its point for each kind of work.
struct Layout<'a> {
    /// The id of its first point.
    first: u32,
    best: BTreeMap<&'a Work, &'a PointSummary>,
}

fn layouts<'a>(judge: &Judge<'_>, works: &Works<'a>) -> Vec<Layout<'a>> {
    let mut found: BTreeMap<&BTreeMap<String, String>, BTreeMap<&Work, Vec<&PointSummary>>> = BTreeMap::new();
    for (work, points) in works {
        for point in points {
            found.entry(&point.layout).or_default().entry(work).or_default().push(point);
        }
    }
    let layout = |by_work: BTreeMap<&'a Work, Vec<&'a PointSummary>>| Layout {
        first: by_work.values().flatten().map(|p| p.point).min().unwrap_or(u32::MAX),
        best: by_work
            .into_iter()
            .filter_map(|(work, points)| Some((work, Field::of(judge, &points)?.recommended())))
            .collect(),
    };
    found.into_values().map(layout).collect()
}

/// The layouts that no kind of work can tell from `top`.
fn tied<'l, 'a>(judge: &Judge<'_>, top: &'l Layout<'a>, layouts: &[&'l Layout<'a>]) -> Vec<&'l Layout<'a>> {
    let mut pairs: Vec<(&PointSummary, &PointSummary)> = Vec::new();
    let mut of: Vec<usize> = Vec::new();
    for (i, layout) in layouts.iter().enumerate().filter(|(_, l)| l.first != top.first) {
        for (work, point) in &layout.best {
            pairs.push((*point, top.best[work]));
            of.push(i);
        }
    }
    let told: BTreeSet<usize> = judge
        .family(&pairs)
        .iter()
        .zip(of)
        .filter(|(c, _)| c.verdict != Verdict::NoDifference)
        .map(|(_, i)| i)
        .collect();
    layouts.iter().enumerate().filter(|(i, _)| !told.contains(i)).map(|(_, l)| *l).collect()
}

/// The layout that the baseline names, or the first.
fn baseline<'l, 'a>(analysis: &Analysis, layouts: &[&'l Layout<'a>]) -> Option<&'l Layout<'a>> {
    let named = |l: &&&Layout<'_>| {
        let layout = l.best.values().next().map(|p| &p.layout);
        layout.is_some_and(|layout| {
            analysis.baseline.iter().all(|(name, value)| layout.get(name).is_none_or(|v| v == value))
        })
    };
    let first = layouts.iter().min_by_key(|l| l.first);
    layouts.iter().filter(named).min_by_key(|l| l.first).or(first).copied()
}

/// What a layout's point gives by the best of all, and by the baseline's, each one of `family` alternatives.
fn share(
    judge: &Judge<'_>,
    family: usize,
    point: &PointSummary,
    best: &PointSummary,
    base: Option<&Layout<'_>>,
) -> Option<Share> {
    let work = &point.work;
    let metric = Metric::of(work);
    let against = |other: &PointSummary| match other.point == point.point {
        true => (1.0, None),
        false => {
            let compared = judge.compare(point, other, family);
            (compared.ratio, compared.interval)
        }
    };
    let (of_best, interval) = against(best);
    let base = base.and_then(|l| l.best.get(work)).map(|base| against(base));
    Some(Share {
        work: work.clone(),
        metric,
        point: point.point,
        figure: metric.figure(point)?,
        of_best,
        interval,
        over_baseline: base.map(|(ratio, _)| ratio),
        over_baseline_interval: base.and_then(|(_, interval)| interval),
    })
}

/// The layout's settings, with what each kind of work says of each.
fn settings(
    analysis: &Analysis,
    judge: Judge<'_>,
    works: &Works<'_>,
    chosen: &Layout<'_>,
) -> BTreeMap<String, Setting> {
    let mut all: BTreeMap<String, Setting> = BTreeMap::new();
    for (work, point) in &chosen.best {
        let ground = Ground::new(analysis, judge, &works[work]);
        for (name, setting) in ground.settings(point).into_iter().filter(|(_, s)| s.of_layout) {
            match all.get_mut(&name) {
                None => {
                    all.insert(name, setting);
                }
                Some(known) => {
                    known.varied |= setting.varied;
                    known.matters = known.matters.max(setting.matters);
                    known.measured.extend(setting.measured);
                }
            }
        }
    }
    all
}

/// The settings that were varied and of which `which` holds, in words.
pub(super) fn named(c: &Compromise, which: impl Fn(&Setting) -> bool) -> Vec<String> {
    let varied = c.settings.iter().filter(|(_, setting)| setting.varied && which(setting));
    super::choice::in_words(varied.map(|(name, setting)| (name, &setting.value)))
}

fn sentence(c: &Compromise) -> String {
    let named = named(c, |setting| setting.matters != Some(false));
    let layout = if named.is_empty() { "any layout".to_owned() } else { words::list(&named) };
    let shares: Vec<String> = c
        .works
        .iter()
        .map(|s| {
            // Of layouts that cannot be told apart, the baseline's is one.
            let gain = s
                .over_baseline
                .filter(|_| !named.is_empty())
                .map_or_else(String::new, |ratio| format!(", {} the baseline's", words::times(ratio)));
            format!("{} of the best for {}{gain}", units::percent(s.of_best), s.work.label().to_lowercase())
        })
        .collect();
    let others = match c.tied {
        0 | 1 => String::new(),
        n => format!(" {n} layouts cannot be told from each other here; this is the one written first."),
    };
    format!("One layout for all: {layout} gives {}.{others}", shares.join("; "))
}
