//! How figures grow with the number of drives: Figs. 9 and 10 of the papers, and Fig. 4 of the DASH paper.
//!
//! A curve holds everything but `width` fixed. Of all the settings that a sweep holds beside each other, each layout is
//! drawn with those that were fastest at its largest width, because that is the configuration of which one asks whether
//! it scales; [`ScalingCurve::held`] names them. The straight line to compare with is the *sum of the drives*: the
//! width times what one drive does alone, at the depth that suits it best, under the same settings where the sweep has
//! that, else in the fastest configuration of one drive.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choices::choices;
use super::statistics::{compare, interval};
use super::{Access, Estimate, Interval, PointSummary, Work};

/// Bandwidth or requests: what a kind of work is measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Requests per second, for random work.
    Iops,
    /// Bytes per second, for sequential work.
    Bandwidth,
}

impl Metric {
    /// What people quote for this work.
    #[must_use]
    pub fn of(work: &Work) -> Self {
        if work.class.access == Access::Random { Self::Iops } else { Self::Bandwidth }
    }

    /// This figure of a point.
    #[must_use]
    pub fn figure(self, point: &PointSummary) -> Option<Estimate> {
        match self {
            Self::Iops => point.iops,
            Self::Bandwidth => point.bandwidth,
        }
    }

    /// A figure with its unit.
    #[must_use]
    pub fn words(self, figure: f64) -> String {
        match self {
            Self::Iops => units::iops(figure),
            Self::Bandwidth => units::bandwidth(figure),
        }
    }
}

/// How one kind of work scales.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scaling {
    /// The work.
    pub work: Work,
    /// What its figures are.
    pub metric: Metric,
    /// By layout, then depth.
    pub curves: Vec<ScalingCurve>,
}

/// One layout at one depth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScalingCurve {
    /// The layout, where it varies.
    pub layout: Option<String>,
    /// Requests in flight of each job.
    pub iodepth: u32,
    /// The other settings that vary in the sweep, at the values drawn.
    pub held: BTreeMap<String, String>,
    /// The figure of one drive alone: the smallest width's best over the depths, divided by that width.
    pub one_drive: f64,
    /// The width that it was measured at; 1 where the sweep has that.
    pub one_drive_width: u32,
    /// By ascending width; at least two.
    pub steps: Vec<ScalingStep>,
}

/// One width.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScalingStep {
    /// Drives.
    pub width: u32,
    /// The point.
    pub point: u32,
    /// Its figure.
    pub figure: Estimate,
    /// The figure by the sum of the drives: 1 where the drives are the limit.
    pub of_drives: f64,
    /// Its interval.
    pub of_drives_interval: Option<Interval>,
}

/// All that is fixed along a curve but the layout and the depth.
type Held = BTreeMap<String, String>;

/// The scaling of each kind of work; none where the width does not vary.
#[must_use]
pub fn scaling(points: &[PointSummary]) -> Vec<Scaling> {
    let mut works: BTreeMap<&Work, Vec<Wide<'_>>> = BTreeMap::new();
    for point in points {
        if let Some(wide) = Wide::of(point) {
            works.entry(&point.work).or_default().push(wide);
        }
    }
    works
        .into_iter()
        .map(|(work, points)| Scaling {
            work: work.clone(),
            metric: Metric::of(work),
            curves: curves(Metric::of(work), &points),
        })
        .filter(|scaling| !scaling.curves.is_empty())
        .collect()
}

/// A point of some width.
struct Wide<'a> {
    point: &'a PointSummary,
    width: u32,
    layout: Option<&'a str>,
    held: Held,
    figure: Estimate,
}

impl<'a> Wide<'a> {
    fn of(point: &'a PointSummary) -> Option<Self> {
        let width = point.settings.get("width")?.parse().ok().filter(|width| *width > 0)?;
        let figure = Metric::of(&point.work).figure(point).filter(|figure| figure.mean > 0.0)?;
        let held = choices(point).into_iter();
        let held = held.filter(|(name, _)| !["width", "iodepth", "layout"].contains(&name.as_str()));
        let layout = point.settings.get("layout").map(String::as_str);
        Some(Self { point, width, layout, held: held.collect(), figure })
    }
}

fn curves(metric: Metric, points: &[Wide<'_>]) -> Vec<ScalingCurve> {
    let widths = |of: &mut dyn Iterator<Item = &Wide<'_>>| {
        let mut widths: Vec<u32> = of.map(|p| p.width).collect();
        widths.sort_unstable();
        widths.dedup();
        widths
    };
    let mut layouts: Vec<Option<&str>> = Vec::new();
    for point in points {
        if !layouts.contains(&point.layout) {
            layouts.push(point.layout);
        }
    }
    let mut curves = Vec::new();
    for layout in layouts {
        let of_layout = || points.iter().filter(move |p| p.layout == layout);
        let all = widths(&mut of_layout());
        let [smallest, .., largest] = all.as_slice() else { continue };
        let by_figure = |a: &&Wide<'_>, b: &&Wide<'_>| {
            a.figure.mean.total_cmp(&b.figure.mean).then(b.point.point.cmp(&a.point.point))
        };
        let Some(fastest) = of_layout().filter(|p| p.width == *largest).max_by(by_figure) else { continue };
        let held = || of_layout().filter(|p| p.held == fastest.held);
        let alone = held().filter(|p| p.width == *smallest).max_by(by_figure);
        let Some(alone) = alone.or_else(|| of_layout().filter(|p| p.width == *smallest).max_by(by_figure))
        else {
            continue;
        };
        let mut depths: Vec<u32> = held().map(|p| p.point.iodepth).collect();
        depths.sort_unstable();
        depths.dedup();
        for iodepth in depths {
            let mut steps: Vec<ScalingStep> =
                held().filter(|p| p.point.iodepth == iodepth).map(|p| step(p, alone)).collect();
            steps.sort_by_key(|step| step.width);
            if steps.len() > 1 {
                curves.push(ScalingCurve {
                    layout: layout.map(str::to_owned),
                    iodepth,
                    held: varying(&fastest.held, points),
                    one_drive: metric.figure(alone.point).map_or(0.0, |f| f.mean) / f64::from(alone.width),
                    one_drive_width: alone.width,
                    steps,
                });
            }
        }
    }
    curves
}

fn step(at: &Wide<'_>, alone: &Wide<'_>) -> ScalingStep {
    let more = f64::from(at.width) / f64::from(alone.width);
    let comparison = compare(&at.point.kept, &alone.point.kept);
    let scaled = |i: Interval| Interval { low: i.low / more, high: i.high / more };
    ScalingStep {
        width: at.width,
        point: at.point.point,
        figure: at.figure,
        of_drives: at.figure.mean / alone.figure.mean / more,
        // The point that the others are compared with has no distance from itself.
        of_drives_interval: (at.point.point != alone.point.point)
            .then(|| comparison.interval.map(|i| scaled(interval(i))))
            .flatten(),
    }
}

/// Of what is held, that which is not the same in all points.
fn varying(held: &Held, points: &[Wide<'_>]) -> Held {
    let varies = |name: &String, value: &String| points.iter().any(|p| p.held.get(name) != Some(value));
    held.iter().filter(|(n, v)| varies(n, v)).map(|(n, v)| (n.clone(), v.clone())).collect()
}
