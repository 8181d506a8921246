//! Queue depth (the papers' Figs. 13 and 14), and what depth costs in latency.

use crate::analysis::{Access, DepthCurve, DepthStep};

use super::super::super::{Report, sheets};
use super::super::escape;
use super::{
    Axis, Figure, Layout, Line, Mode, Plot, Scale, Trace, Whiskers, dash, log_axis, marker, microseconds,
    of_direction, reach, round_number,
};

/// Bandwidth over depth and latency over bandwidth, sequential and random.
pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (access, name, papers) in
        [(Access::Sequential, "streaming", "DASH-IO Fig. 13"), (Access::Random, "random", "DASH-IO Fig. 14")]
    {
        let curves: Vec<&DepthCurve> = report.depth.iter().filter(|c| c.class.access == access).collect();
        if !curves.is_empty() {
            figures.push(over_depth(&curves, name, papers));
            figures.push(cost(&curves, name));
        }
    }
    figures
}

fn scale(curves: &[&DepthCurve]) -> Scale {
    let means = curves.iter().flat_map(|c| &c.steps).map(|s| s.bandwidth.mean);
    Scale::of(means.fold(0.0, f64::max))
}

fn hover(curve: &DepthCurve, step: &DepthStep) -> String {
    format!(
        "{}<br><b>depth {}</b><br>{}<br>{}<br>p99 {}",
        escape::label(&curve.label),
        step.iodepth,
        sheets::bandwidth(step.bandwidth),
        units::iops(step.iops),
        units::nanoseconds(step.latency_ns_p99)
    )
}

fn over_depth(curves: &[&DepthCurve], name: &str, papers: &'static str) -> Figure {
    let scale = scale(curves);
    let mut depths: Vec<u32> = curves.iter().flat_map(|c| &c.steps).map(|s| s.iodepth).collect();
    depths.sort_unstable();
    depths.dedup();
    let mut plot = Plot::default();
    for (i, curve) in curves.iter().enumerate() {
        let colour = of_direction(curve.class.direction);
        let (up, down) = curve.steps.iter().map(|s| reach(&s.bandwidth, &scale)).unzip();
        plot.add_trace(
            Trace::scatter(
                curve.steps.iter().map(|s| s.iodepth),
                curve.steps.iter().map(|s| scale.of_value(s.bandwidth.mean)),
                Mode::LinesMarkers,
            )
            .name(escape::label(&curve.label))
            .line(Line::new(colour, 2.0).dash(dash(i)))
            .marker(marker(i, colour))
            .error_y(Whiskers::new(up, down, colour))
            .hover(curve.steps.iter().map(|s| hover(curve, s))),
        );
    }
    let ticks = depths.iter().map(|d| f64::from(*d)).collect();
    let x = Axis::new("Queue depth").logarithmic().ticks(ticks, depths.iter().map(u32::to_string).collect());
    let bandwidths = curves.iter().flat_map(|c| &c.steps).map(|s| scale.of_value(s.bandwidth.mean));
    plot.set_layout(Layout::new(x, log_axis(&scale.title(), bandwidths, round_number)).legend(true));
    Figure {
        id: format!("depth-{name}"),
        title: format!("Queue depth, {name}"),
        papers: Some(papers),
        caption: rise(curves),
        plot,
        sheet: sheets::depth(curves.iter().copied()),
        wide: false,
        height: None,
    }
}

/// How each curve rises, in words.
fn rise(curves: &[&DepthCurve]) -> String {
    let sentences: Vec<String> = curves
        .iter()
        .take(4)
        .filter_map(|curve| {
            let first = curve.steps.first()?;
            let best = curve.steps.iter().max_by(|a, b| a.bandwidth.mean.total_cmp(&b.bandwidth.mean))?;
            Some(if best.iodepth == first.iodepth {
                format!("{} gains nothing from more depth than {}.", curve.label, first.iodepth)
            } else {
                format!(
                    "{} rises {} from depth {} to {}.",
                    curve.label,
                    crate::recommend::words::times(best.bandwidth.mean / first.bandwidth.mean),
                    first.iodepth,
                    best.iodepth
                )
            })
        })
        .collect();
    format!("{} Both axes are logarithmic.", sentences.join(" "))
}

/// Latency over bandwidth: each step to the right is bought with a step up.
fn cost(curves: &[&DepthCurve], name: &str) -> Figure {
    let scale = scale(curves);
    let mut plot = Plot::default();
    for (i, curve) in curves.iter().enumerate() {
        let colour = of_direction(curve.class.direction);
        plot.add_trace(
            Trace::scatter(
                curve.steps.iter().map(|s| scale.of_value(s.bandwidth.mean)),
                curve.steps.iter().map(|s| s.latency_ns_p99 / 1e3),
                Mode::LinesMarkersText,
            )
            .name(escape::label(&curve.label))
            .line(Line::new(colour, 2.0).dash(dash(i)))
            .marker(marker(i, colour))
            .text(curve.steps.iter().map(|s| s.iodepth.to_string()))
            .text_to_the_left()
            .hover(curve.steps.iter().map(|s| hover(curve, s))),
        );
    }
    let latencies = curves.iter().flat_map(|c| &c.steps).map(|s| s.latency_ns_p99 / 1e3);
    let y = log_axis("p99 latency", latencies, microseconds);
    plot.set_layout(Layout::new(Axis::new(&scale.title()), y).legend(true));
    Figure {
        id: format!("cost-{name}"),
        title: format!("What depth costs, {name}"),
        papers: None,
        caption:
            "Each mark is a queue depth. Where a curve turns upwards, more depth only makes requests wait: \
                  the best place is at the bend, far to the right and low."
                .to_owned(),
        plot,
        sheet: sheets::depth(curves.iter().copied()),
        wide: false,
        height: None,
    }
}
