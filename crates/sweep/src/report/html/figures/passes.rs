//! Passes: how the first differs (Figs. 4 and 5), what cleaning does to the variation (Figs. 6 and 7), and whether the
//! machine drifted.

use std::collections::BTreeSet;

use plotly::common::{DashType, HoverInfo, Line, Marker, MarkerSymbol, Mode};
use plotly::layout::AxisType;
use plotly::{Plot, Scatter};

use crate::analysis::{Direction, Fate, JudgedRun, PassMean, PassTrend, PointSummary};

use super::super::super::sheet::Sheet;
use super::super::super::{Report, sheets};
use super::super::escape;
use super::{BLUE, Figure, GREY, VERMILLION, axis, layout, of_direction, thinned, whiskers};

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
    let mut plot = Plot::new();
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
    let x = axis("Pass (circled: set aside)");
    let x = if trend.passes.len() <= 20 { x.dtick(1.0) } else { x };
    plot.set_layout(layout(x, axis("Relative bandwidth")));
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
fn mean_line(trend: &PassTrend, colour: &'static str) -> Box<Scatter<u32, f64>> {
    let drawn = thinned(&trend.passes);
    let reach = |p: &&PassMean| p.interval.map_or((0.0, 0.0), |i| (i.high - p.relative, p.relative - i.low));
    let (up, down) = drawn.iter().map(reach).unzip();
    let hover = drawn.iter().map(|p| {
        format!("<b>pass {}</b><br>{:.3} of the mean<br>{} configurations", p.pass, p.relative, p.points)
    });
    Scatter::new(drawn.iter().map(|p| p.pass).collect(), drawn.iter().map(|p| p.relative).collect::<Vec<_>>())
        .mode(Mode::LinesMarkers)
        .name("mean")
        .show_legend(false)
        .line(Line::new().color(colour).width(3.0))
        .marker(Marker::new().size(9).color(colour))
        .error_y(whiskers(up, down, colour))
        .hover_text_array(hover.collect())
        .hover_info(HoverInfo::Text)
}

/// Circles around the passes that are set aside.
fn set_aside_marks(trend: &PassTrend, colour: &'static str) -> Box<Scatter<u32, f64>> {
    let (pass, at) = trend.passes.iter().filter(|p| p.set_aside).map(|p| (p.pass, p.relative)).unzip();
    Scatter::new(pass, at)
        .mode(Mode::Markers)
        .show_legend(false)
        .hover_info(HoverInfo::Skip)
        .marker(Marker::new().symbol(MarkerSymbol::CircleOpen).size(18).color(colour))
}

/// One configuration as a thin line.
fn single(report: &Report, point: &PointSummary) -> Option<Box<Scatter<u32, f64>>> {
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
    let trace = Scatter::new(
        runs.iter().map(|r| r.run.pass).collect(),
        runs.iter().map(|r| r.run.bandwidth_bytes_per_s / mean).collect::<Vec<_>>(),
    )
    .mode(Mode::Lines)
    .name(escape::label(&point.label))
    .show_legend(false)
    .opacity(0.35)
    .line(Line::new().color(GREY).width(1.0))
    .hover_text_array(runs.iter().map(hover).collect())
    .hover_info(HoverInfo::Text);
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
    let (x, title, kind) = places(&points, one_by_one);
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
        Scatter::new(x.clone(), values.iter().map(|v| v * 100.0).collect::<Vec<_>>())
            .mode(Mode::Markers)
            .name(name)
            .marker(marker)
            .hover_text_array(hover.collect())
            .hover_info(HoverInfo::Text)
    };
    let size = if one_by_one && all <= 40 { 10 } else { 5 };
    let mut plot = Plot::new();
    let before = Marker::new().symbol(MarkerSymbol::DiamondOpen).size(size).color(VERMILLION);
    plot.add_trace(trace("before cleaning", before, points.iter().map(|p| p.1).collect()));
    let after = Marker::new().symbol(MarkerSymbol::Circle).size(size).color(BLUE);
    plot.add_trace(trace("after", after, points.iter().map(|p| p.2).collect()));
    let y = axis("Coefficient of variation (%)").range_mode(plotly::layout::RangeMode::ToZero);
    plot.set_layout(layout(axis(title).type_(kind), y).show_legend(true));
    Some(Figure {
        id: "variation".to_owned(),
        title: "Variation before and after cleaning".to_owned(),
        papers: Some("DASH-IO Figs. 6, 7"),
        caption: variation_caption(report),
        plot,
        sheet,
        wide: false,
        height: None,
    })
}

/// Where each configuration stands on the axis, the axis's title and its kind.
fn places(points: &[(&PointSummary, f64, f64)], one_by_one: bool) -> (Vec<String>, &'static str, AxisType) {
    if !one_by_one {
        let last = (points.len() - 1) as f64;
        let places = (0..points.len()).map(|i| (100.0 * i as f64 / last).to_string()).collect();
        return (places, "Configurations, from steadiest to noisiest (%)", AxisType::Linear);
    }
    let types: BTreeSet<u8> = points.iter().filter_map(|(p, ..)| p.test_type).map(u8::from).collect();
    if types.len() == points.len() {
        let places = points.iter().map(|(p, ..)| sheets::number(p)).collect();
        return (places, "Test type", AxisType::Category);
    }
    // Several configurations of one test type stand side by side, not on top of each other.
    let places = points.iter().map(|(p, ..)| p.point.to_string()).collect();
    (places, "Configuration", AxisType::Category)
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
    let mut plot = Plot::new();
    let drawn = thinned(controls);
    let hover = drawn
        .iter()
        .map(|r| format!("position {}<br><b>{}</b>", r.position, units::bandwidth(r.bandwidth_bytes_per_s)));
    plot.add_trace(
        Scatter::new(
            drawn.iter().map(|r| r.position).collect(),
            drawn.iter().map(|r| r.bandwidth_bytes_per_s / mean).collect::<Vec<_>>(),
        )
        .mode(Mode::Markers)
        .show_legend(false)
        .marker(Marker::new().size(8).color(BLUE))
        .hover_text_array(hover.collect())
        .hover_info(HoverInfo::Text),
    );
    plot.add_trace(
        Scatter::new(vec![first, last], vec![1.0 - drift.trend / 2.0, 1.0 + drift.trend / 2.0])
            .mode(Mode::Lines)
            .show_legend(false)
            .hover_info(HoverInfo::Skip)
            .line(Line::new().color(GREY).dash(DashType::Dash).width(1.5)),
    );
    let y = axis("Relative bandwidth");
    plot.set_layout(layout(axis("Position in the sweep"), y));
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
