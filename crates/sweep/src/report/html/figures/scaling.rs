//! Figures over the number of drives, against the sum of the drives: DASH-IO's Figs. 9 and 10, DASH's Fig. 4.

use crate::analysis::{Access, Metric, Scaling, ScalingCurve, ScalingStep};

use super::super::super::{Report, papers, sheets};
use super::super::escape;
use super::{
    Axis, DashType, Figure, GREY, Layout, Line, Marker, Mode, Plot, Scale, Trace, Whiskers, colour, dash,
    log_axis, reach_by, round_number, slug, symbol,
};

/// Curves that a figure still shows legibly.
const CURVES: usize = 12;

/// One figure for each kind of work.
pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let rank = |s: &&Scaling| (s.work.class.access == Access::Sequential, s.work.class.direction);
    let mut all: Vec<&Scaling> = report.scaling.iter().collect();
    all.sort_by_key(rank);
    all.into_iter().map(figure).collect()
}

fn figure(scaling: &Scaling) -> Figure {
    let largest = scaling.curves.iter().flat_map(|c| &c.steps).map(|s| s.figure.mean).fold(0.0, f64::max);
    let unit = Unit::of(scaling.metric, largest);
    let mut curves: Vec<&ScalingCurve> = scaling.curves.iter().collect();
    curves.truncate(CURVES);
    let layouts = distinct(curves.iter().map(|c| c.layout.as_deref()));
    let depths = distinct(curves.iter().map(|c| c.iodepth));
    let mut plot = Plot::default();
    let mut drawn: Vec<f64> = Vec::new();
    if let Some(line) = drives(&curves, &unit, &mut drawn) {
        plot.add_trace(line);
    }
    for curve in &curves {
        let of_layout = layouts.iter().position(|l| *l == curve.layout.as_deref()).unwrap_or(0);
        let of_depth = depths.iter().position(|d| *d == curve.iodepth).unwrap_or(0);
        drawn.extend(curve.steps.iter().map(|s| unit.of_value(s.figure.mean)));
        plot.add_trace(trace(scaling.metric, curve, &unit, of_layout, of_depth, layouts.len() > 1));
    }
    let mut widths: Vec<u32> = curves.iter().flat_map(|c| &c.steps).map(|s| s.width).collect();
    widths.sort_unstable();
    widths.dedup();
    let x = Axis::new("Drives")
        .logarithmic()
        .ticks(widths.iter().map(|w| f64::from(*w)).collect(), widths.iter().map(u32::to_string).collect());
    let y = log_axis(&unit.title, drawn.into_iter(), round_number);
    plot.set_layout(Layout::new(x, y).legend(true));
    let label = scaling.work.label();
    Figure {
        id: format!("scaling-{}", slug(&label.to_lowercase())),
        title: format!("{label} over the number of drives"),
        papers: papers::of_scaling(&scaling.work),
        caption: caption(scaling),
        plot,
        sheet: sheets::scaling(scaling),
        wide: false,
        height: None,
    }
}

/// A unit for the axis.
struct Unit {
    scale: Scale,
    title: String,
}

impl Unit {
    fn of(metric: Metric, largest: f64) -> Self {
        let scale = match metric {
            Metric::Bandwidth => Scale::of(largest),
            Metric::Iops if largest >= 2e6 => Scale { divisor: 1e6, unit: "million" },
            Metric::Iops if largest >= 2e3 => Scale { divisor: 1e3, unit: "thousand" },
            Metric::Iops => Scale { divisor: 1.0, unit: "" },
        };
        let title = match metric {
            Metric::Bandwidth => scale.title(),
            Metric::Iops if scale.unit.is_empty() => "IOPS".to_owned(),
            Metric::Iops => format!("IOPS ({}s)", scale.unit),
        };
        Self { scale, title }
    }

    fn of_value(&self, value: f64) -> f64 {
        self.scale.of_value(value)
    }
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

/// The sum of the drives, as a straight line from the fewest to the most.
fn drives(curves: &[&ScalingCurve], unit: &Unit, drawn: &mut Vec<f64>) -> Option<Trace> {
    let best = curves.iter().max_by(|a, b| a.one_drive.total_cmp(&b.one_drive))?;
    let widths = || curves.iter().flat_map(|c| &c.steps).map(|s| s.width);
    let ends = [widths().min()?, widths().max()?];
    let figures: Vec<f64> = ends.iter().map(|w| unit.of_value(best.one_drive * f64::from(*w))).collect();
    drawn.extend(&figures);
    let trace = Trace::scatter(ends.to_vec(), figures, Mode::Lines)
        .name("sum of the drives")
        .line(Line::new(GREY, 1.5).dash(DashType::Dot));
    Some(trace)
}

/// The depth is the colour, as in the papers; the layout the symbol and the dash.
fn trace(
    metric: Metric,
    curve: &ScalingCurve,
    unit: &Unit,
    of_layout: usize,
    of_depth: usize,
    several: bool,
) -> Trace {
    let name = match &curve.layout {
        // One layout alone needs no name.
        Some(layout) if several => format!("{layout}, depth {}", curve.iodepth),
        _ => format!("depth {}", curve.iodepth),
    };
    let hover = |step: &ScalingStep| {
        format!(
            "{}<br><b>{} drives</b><br>{}<br>{} of the sum of the drives",
            escape::label(&name),
            step.width,
            metric.words(step.figure.mean),
            units::percent(step.of_drives)
        )
    };
    let (up, down) = curve.steps.iter().map(|s| reach_by(&s.figure, unit.scale.divisor)).unzip();
    let colour = colour(of_depth);
    Trace::scatter(
        curve.steps.iter().map(|s| s.width),
        curve.steps.iter().map(|s| unit.of_value(s.figure.mean)),
        Mode::LinesMarkers,
    )
    .name(escape::label(&name))
    .line(Line::new(colour, 2.0).dash(dash(of_layout)))
    .marker(Marker::new(colour).symbol(symbol(of_layout)).size(8))
    .error_y(Whiskers::new(up, down, colour))
    .hover(curve.steps.iter().map(hover))
}

/// How far the best curve of each layout gets.
fn caption(scaling: &Scaling) -> String {
    let layouts = distinct(scaling.curves.iter().map(|c| c.layout.as_deref()));
    let mut sentences = Vec::new();
    for layout in layouts.iter().take(4) {
        let of_layout = scaling.curves.iter().filter(|c| c.layout.as_deref() == *layout);
        let ends = of_layout.filter_map(|c| Some((c, c.steps.last()?)));
        let Some((curve, last)) = ends
            .max_by(|a, b| a.1.figure.mean.total_cmp(&b.1.figure.mean).then(b.0.iodepth.cmp(&a.0.iodepth)))
        else {
            continue;
        };
        let name = layout.map_or_else(String::new, |layout| format!("{layout}: "));
        sentences.push(format!(
            "{name}{} with {} drives at depth {}, {} of the sum of the drives.",
            scaling.metric.words(last.figure.mean),
            last.width,
            curve.iodepth,
            units::percent(last.of_drives)
        ));
    }
    let held: Vec<String> = scaling
        .curves
        .first()
        .map_or_else(Vec::new, |curve| crate::recommend::choice::in_words(curve.held.iter()));
    let held = if held.is_empty() { String::new() } else { format!(", here {}", held.join(", ")) };
    let one = scaling.curves.first().map_or(1, |curve| curve.one_drive_width);
    let alone = if one == 1 {
        "one drive alone at its best depth".to_owned()
    } else {
        format!("{one} drives at their best depth, divided among them")
    };
    format!(
        "{} Everything else is held at what was fastest with the most drives{held}. Dotted: the number of drives times {alone}.",
        sentences.join(" ")
    )
}
