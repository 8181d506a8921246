//! Passes: how the first differs (Figs. 4 and 5), what cleaning does to the variation (Figs. 6 and 7), and whether the
//! machine drifted.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::analysis::{Direction, Fate, JudgedRun, PassMean, PassTrend, PointSummary};

use super::super::super::sheet::Sheet;
use super::super::super::{Report, papers, sheets};
use super::super::escape;
use super::{
    Axis, BLUE, DashType, Figure, GREY, Layout, Line, Marker, Mode, Plot, Symbol, Trace, VERMILLION,
    Whiskers, of_direction, thinned,
};

/// Lines of single configurations behind a mean, and passes along them, that are still legible.
const LINES: usize = 40;
/// Configurations whose variation is drawn one by one.
const MARKS: usize = 200;

/// Relative bandwidth by pass, one figure for each direction.
pub(super) fn trends(report: &Report) -> Vec<Figure> {
    let drawn = report.passes.iter().filter(|trend| trend.passes.len() > 1);
    drawn.map(|trend| by_pass(report, trend)).collect()
}

fn by_pass(report: &Report, trend: &PassTrend) -> Figure {
    let colour = of_direction(trend.direction);
    let mut plot = Plot::default();
    let points: Vec<&PointSummary> =
        report.points.iter().filter(|p| p.class().direction == trend.direction).collect();
    if points.len() <= LINES && trend.passes.len() <= LINES {
        for point in points {
            if let Some(line) = single(report, point) {
                plot.add_trace(line);
            }
        }
    }
    plot.add_trace(mean_line(trend, colour));
    plot.add_trace(set_aside_marks(trend, colour));
    let x = Axis::new("Pass (circled: set aside)");
    plot.set_layout(Layout::new(x, Axis::new("Relative bandwidth")));
    let name = trend.direction.plural();
    let (id, papers) = match trend.direction {
        Direction::Read => ("passes-reads", Some("DASH-IO Fig. 4")),
        Direction::Write => ("passes-writes", Some("DASH-IO Fig. 5")),
        Direction::Mixed => ("passes-mixed", None),
        Direction::Trim => ("passes-discards", None),
    };
    let mut sheet = sheets::passes(report);
    let this = sheets::capital(trend.direction);
    sheet.rows.retain(|row| row[0] == this);
    Figure {
        id: id.to_owned(),
        title: format!("Throughput over passes, {name}"),
        papers,
        caption: caption(trend),
        plot,
        sheet,
        wide: false,
        height: None,
    }
}

/// The mean over all configurations, with its interval.
fn mean_line(trend: &PassTrend, colour: &'static str) -> Trace {
    let drawn = thinned(&trend.passes);
    let reach = |p: &&PassMean| p.interval.map_or((0.0, 0.0), |i| (i.high - p.relative, p.relative - i.low));
    let (up, down) = drawn.iter().map(reach).unzip();
    let hover = drawn.iter().map(|p| {
        format!("<b>pass {}</b><br>{:.3} of the mean<br>{} configurations", p.pass, p.relative, p.points)
    });
    Trace::scatter(drawn.iter().map(|p| p.pass), drawn.iter().map(|p| p.relative), Mode::LinesMarkers)
        .name("mean")
        .without_legend()
        .line(Line::new(colour, 3.0))
        .marker(Marker::new(colour).size(9))
        .error_y(Whiskers::new(up, down, colour))
        .hover(hover)
}

/// Circles around the passes that are set aside.
fn set_aside_marks(trend: &PassTrend, colour: &'static str) -> Trace {
    let aside = || trend.passes.iter().filter(|p| p.set_aside);
    Trace::scatter(aside().map(|p| p.pass), aside().map(|p| p.relative), Mode::Markers)
        .without_legend()
        .marker(Marker::new(colour).symbol(Symbol::CircleOpen).size(18))
}

/// One configuration as a thin line.
fn single(report: &Report, point: &PointSummary) -> Option<Trace> {
    let mean = point.bandwidth.map(|b| b.mean).filter(|mean| *mean > 0.0)?;
    let mut runs: Vec<&JudgedRun> =
        report.runs.iter().filter(|r| r.run.point == point.point && r.fate != Fate::Void).collect();
    runs.sort_by_key(|r| r.run.pass);
    let hover = |r: &&JudgedRun| {
        format!(
            "{}<br><b>pass {}</b>, {}<br>{}",
            escape::label(&point.label),
            r.run.pass,
            r.fate.label(),
            units::bandwidth(r.run.bandwidth_bytes_per_s)
        )
    };
    let trace = Trace::scatter(
        runs.iter().map(|r| r.run.pass),
        runs.iter().map(|r| r.run.bandwidth_bytes_per_s / mean),
        Mode::Lines,
    )
    .name(escape::label(&point.label))
    .without_legend()
    .opacity(0.35)
    .line(Line::new(GREY, 1.0))
    .hover(runs.iter().map(hover));
    Some(trace)
}

fn caption(trend: &PassTrend) -> String {
    let first = trend.passes.iter().find(|p| p.pass == 1);
    let name = sheets::capital(trend.direction);
    let lines = if trend.passes.len() > LINES {
        "1 is the mean of a configuration's kept passes; the line is the mean over all of them with its 95 % interval."
    } else {
        "1 is the mean of a configuration's kept passes. Thick: the mean over all of them with its 95 % interval; thin: single ones."
    };
    match first {
        Some(first) => {
            let off = first.relative - 1.0;
            let clear = first.interval.is_some_and(|i| i.low > 1.0 || i.high < 1.0);
            let how = match (clear, off < 0.0) {
                (false, _) => "was not seen to differ from what follows".to_owned(),
                (true, true) => format!("runs {} below what follows", units::percent(-off)),
                (true, false) => format!("runs {} above what follows", units::percent(off)),
            };
            let aside = if first.set_aside { ", and is set aside" } else { "" };
            format!("{name}: the first pass {how}{aside}. {lines}")
        }
        None => lines.to_owned(),
    }
}

/// Coefficients of variation before and after cleaning.
pub(super) fn variation(report: &Report) -> Option<Figure> {
    let mut points: Vec<(&PointSummary, f64, f64)> =
        report.points.iter().filter_map(|p| Some((p, p.cv_before?, p.cv_after?))).collect();
    let all = points.len();
    if all < 2 {
        return None;
    }
    let one_by_one = all <= MARKS;
    if !one_by_one {
        points.sort_by(|a, b| a.2.total_cmp(&b.2).then(a.0.point.cmp(&b.0.point)));
        points = thinned(&points).into_iter().copied().collect();
    }
    let (places, x) = places(&points, one_by_one);
    let mut sheet = Sheet::new(
        "Coefficient of variation of the bandwidth",
        &["Configuration", ">Before cleaning", ">After"],
    );
    for (p, before, after) in &points {
        sheet.push(vec![p.label.clone(), units::percent(*before), units::percent(*after)]);
    }
    let trace = |name: &str, marker: Marker, values: Vec<f64>| {
        let hover = points.iter().zip(&values).map(|((p, ..), v)| {
            format!("{}<br>{name}: <b>{}</b>", escape::label(&p.label), units::percent(*v))
        });
        Trace::scatter(places.clone(), values.iter().map(|v| v * 100.0), Mode::Markers)
            .name(name)
            .marker(marker)
            .hover(hover)
    };
    let size = if one_by_one && all <= 40 { 10 } else { 5 };
    let mut plot = Plot::default();
    let before = Marker::new(VERMILLION).symbol(Symbol::DiamondOpen).size(size);
    plot.add_trace(trace("before cleaning", before, points.iter().map(|p| p.1).collect()));
    let after = Marker::new(BLUE).symbol(Symbol::Circle).size(size);
    plot.add_trace(trace("after", after, points.iter().map(|p| p.2).collect()));
    let y = Axis::new("Coefficient of variation (%)").beginning_at_zero();
    plot.set_layout(Layout::new(x, y).legend(true));
    Some(Figure {
        id: "variation".to_owned(),
        title: "Variation before and after cleaning".to_owned(),
        papers: Some(papers::VARIATION),
        caption: variation_caption(report),
        plot,
        sheet,
        wide: false,
        height: None,
    })
}

/// Where each configuration stands, and the axis.
fn places(points: &[(&PointSummary, f64, f64)], one_by_one: bool) -> (Vec<Value>, Axis) {
    if !one_by_one {
        let last = (points.len() - 1) as f64;
        let places = (0..points.len()).map(|i| (100.0 * i as f64 / last).into()).collect();
        return (places, Axis::new("Configurations, from steadiest to noisiest (%)"));
    }
    let types: BTreeSet<u8> = points.iter().filter_map(|(p, ..)| p.test_type).map(u8::from).collect();
    if types.len() == points.len() {
        let places = points.iter().map(|(p, ..)| sheets::number(p).into()).collect();
        return (places, Axis::new("Test type").of_names());
    }
    // Several configurations of one test type stand side by side, not on top of each other.
    let places = points.iter().map(|(p, ..)| p.point.to_string().into()).collect();
    (places, Axis::new("Configuration").of_names())
}

fn variation_caption(report: &Report) -> String {
    let c = &report.cleaning;
    let mut text = match (c.cv_before, c.cv_after) {
        (Some(before), Some(after)) => format!(
            "The median configuration varies by {} before cleaning and {} after. ",
            units::percent(before.median),
            units::percent(after.median)
        ),
        _ => String::new(),
    };
    text += if c.can_fire {
        "What remains after the first pass is set aside is the drive's and the machine's own noise."
    } else {
        "Chauvenet's criterion cannot reject anything with so few passes; what changed is the first pass alone."
    };
    text
}

/// The control point over the sweep.
pub(super) fn control(report: &Report) -> Option<Figure> {
    let drift = report.drift.as_ref()?;
    let controls = &report.controls;
    let mean = controls.iter().map(|r| r.bandwidth_bytes_per_s).sum::<f64>() / controls.len() as f64;
    let (first, last) = (controls.first()?.position, controls.last()?.position);
    let mut sheet = Sheet::new("Runs of the control point", &[">Position", ">Bandwidth", ">Of the mean"]);
    for run in controls {
        let figure = run.bandwidth_bytes_per_s;
        sheet.push(vec![run.position.to_string(), units::bandwidth(figure), format!("{:.3}", figure / mean)]);
    }
    let mut plot = Plot::default();
    let drawn = thinned(controls);
    let hover = drawn
        .iter()
        .map(|r| format!("position {}<br><b>{}</b>", r.position, units::bandwidth(r.bandwidth_bytes_per_s)));
    plot.add_trace(
        Trace::scatter(
            drawn.iter().map(|r| r.position),
            drawn.iter().map(|r| r.bandwidth_bytes_per_s / mean),
            Mode::Markers,
        )
        .without_legend()
        .marker(Marker::new(BLUE).size(8))
        .hover(hover),
    );
    plot.add_trace(
        Trace::scatter(
            vec![first, last],
            vec![1.0 - drift.trend / 2.0, 1.0 + drift.trend / 2.0],
            Mode::Lines,
        )
        .without_legend()
        .line(Line::new(GREY, 1.5).dash(DashType::Dash)),
    );
    let y = Axis::new("Relative bandwidth");
    plot.set_layout(Layout::new(Axis::new("Position in the sweep"), y));
    let verdict = if drift.moved {
        "The machine changed while it was measured; compare figures from different times with care."
    } else {
        "Figures from the sweep's beginning and end may be compared."
    };
    Some(Figure {
        id: "control".to_owned(),
        title: "Control point over the sweep".to_owned(),
        papers: None,
        caption: format!(
            "The same configuration again and again. {}. {verdict}",
            capitalised(&drift.sentence())
        ),
        plot,
        sheet,
        wide: false,
        height: None,
    })
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}
