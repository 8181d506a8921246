//! The distribution of latencies, far into the tail.

use crate::analysis::{Access, Class, Direction, PointSummary};

use super::super::super::{LatencyCurve, Report, sheets};
use super::super::escape;
use super::{Axis, Figure, Layout, Line, Mode, Plot, Trace, colour, dash, log_axis, microseconds, slug};

/// Curves that one figure shows legibly.
const CURVES: usize = 10;

/// A figure for each direction that has curves; requests of megabytes and small ones apart.
pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let directions = [Direction::Read, Direction::Write, Direction::Mixed, Direction::Trim];
    let classes = directions
        .into_iter()
        .flat_map(|direction| [Access::Sequential, Access::Random].map(|access| Class { access, direction }));
    classes.filter_map(|class| figure(report, class)).collect()
}

fn figure(report: &Report, class: Class) -> Option<Figure> {
    let mut curves: Vec<(&PointSummary, &LatencyCurve)> = report
        .latency
        .iter()
        .filter_map(|curve| Some((report.point(curve.point)?, curve)))
        .filter(|(point, _)| point.class() == class)
        .collect();
    let all = curves.len();
    if all > CURVES {
        // Those that are recommended first, then in the order of the space.
        curves.sort_by_key(|(p, _)| {
            (!report.recommendations.iter().any(|r| r.point == Some(p.point)), p.point)
        });
        curves.truncate(CURVES);
        curves.sort_by_key(|(p, _)| p.point);
    }
    let mut plot = Plot::default();
    for (i, (point, curve)) in curves.iter().enumerate() {
        plot.add_trace(trace(i, point, curve));
    }
    if curves.is_empty() {
        return None;
    }
    let marks = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999];
    let x = Axis::new("Percentile of requests")
        .ticks(marks.iter().map(|p| nines(*p)).collect(), marks.iter().map(f64::to_string).collect());
    let latencies = curves.iter().flat_map(|(_, c)| &c.percentiles).map(|s| s.ns as f64 / 1e3);
    plot.set_layout(Layout::new(x, log_axis("Latency", latencies, microseconds)).legend(true));
    let which = if all > CURVES { format!(" {CURVES} of {all} configurations.") } else { String::new() };
    Some(Figure {
        id: format!("latency-{}", slug(&class.label().to_lowercase())),
        title: format!("Latency of {}", class.label().to_lowercase()),
        papers: None,
        caption: format!("{}{which}", caption(&curves)),
        plot,
        sheet: sheets::latency(report, |p| p.class() == class),
        wide: false,
        height: None,
    })
}

/// How many nines a percentile has; spreads the tail out.
fn nines(percentile: f64) -> f64 {
    -(1.0 - percentile / 100.0).log10()
}

fn trace(i: usize, point: &PointSummary, curve: &LatencyCurve) -> Trace {
    // The figure's title says the direction.
    let name = match point.test_type {
        Some(test_type) => {
            let label = point.label.replacen(" read,", ",", 1).replacen(" write,", ",", 1);
            format!("{} · {label}", test_type.number())
        }
        None => point.label.clone(),
    };
    let hover = curve.percentiles.iter().map(|s| {
        let ns = units::nanoseconds(s.ns as f64);
        format!("{}<br><b>{} %</b> within {ns}", escape::label(&name), s.percentile)
    });
    Trace::scatter(
        curve.percentiles.iter().map(|s| nines(s.percentile)),
        curve.percentiles.iter().map(|s| s.ns as f64 / 1e3),
        Mode::Lines,
    )
    .name(escape::label(&name))
    .line(Line::new(colour(i), 2.0).dash(dash(i / 7 + i % 2)))
    .hover(hover)
}

/// A percentile of a curve, where it has requests enough to tell it.
fn at(curve: &LatencyCurve, percentile: f64) -> Option<u64> {
    curve.percentiles.iter().find(|step| step.percentile == percentile).map(|step| step.ns)
}

/// The farthest percentile that all of these curves have requests for, so that like is compared with like, and one in how many
/// requests lies beyond it.
fn farthest(curves: &[&LatencyCurve]) -> Option<(f64, &'static str)> {
    let tails = [(99.9, "a thousand"), (99.0, "a hundred"), (90.0, "ten")];
    tails.into_iter().find(|(percentile, _)| curves.iter().all(|curve| at(curve, *percentile).is_some()))
}

fn caption(curves: &[(&PointSummary, &LatencyCurve)]) -> String {
    let known = farthest(&curves.iter().map(|(_, curve)| *curve).collect::<Vec<_>>());
    let Some((percentile, in_so_many)) = known else {
        return "All kept passes together; there are too few requests to tell of a tail.".to_owned();
    };
    let tail = |c: &LatencyCurve| at(c, percentile).unwrap_or(0) as f64 / c.summary.p50.max(1) as f64;
    let worst = curves.iter().max_by(|a, b| tail(a.1).total_cmp(&tail(b.1)));
    let mut text =
        "All kept passes together; each step to the right on the axis is a tenth of the requests left."
            .to_owned();
    if let Some((point, curve)) = worst {
        text += &format!(
            " The heaviest tail: {}, where one request in {in_so_many} takes more than {} and the median {}.",
            point.label,
            units::nanoseconds(at(curve, percentile).unwrap_or(0) as f64),
            units::nanoseconds(curve.summary.p50 as f64)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use measure::Histogram;

    use super::*;

    #[test]
    fn no_percentile_is_named_that_the_requests_cannot_carry() {
        let of = |requests: u64| {
            let mut histogram = Histogram::default();
            (1..=requests).for_each(|ns| histogram.record(1000 * ns));
            LatencyCurve::of(0, &histogram)
        };
        let (many, some, few, none) = (of(5000), of(472), of(30), of(5));
        assert_eq!(farthest(&[&many]), Some((99.9, "a thousand")));
        assert_eq!(farthest(&[&many, &some]), Some((99.0, "a hundred")));
        assert_eq!(farthest(&[&some, &few]), Some((90.0, "ten")));
        assert_eq!(farthest(&[&none]), None);
    }
}
