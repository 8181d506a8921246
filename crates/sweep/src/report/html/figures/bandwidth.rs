//! Bandwidth by test type, or by configuration in a space without them; and what each dimension does.

use std::collections::BTreeMap;

use crate::analysis::{Access, Direction, Effect, EffectOfValue, PointSummary};

use super::super::super::sheet::Sheet;
use super::super::super::{Report, sheets};
use super::super::escape;
use super::{
    Axis, Figure, GREY, Layout, Marker, Mode, Plot, Scale, Trace, Whiskers, log_axis, of_direction, reach,
    round_number, symbol,
};

/// Effects of a figure.
const EFFECTS: usize = 60;
/// Bars of a figure without test types.
const BARS: usize = 40;

/// Bandwidth by test type where nothing else varies that has a figure of its own; bars by configuration in a space
/// without test types.
pub(super) fn figures(report: &Report) -> Vec<Figure> {
    if report.points.iter().all(|p| p.bandwidth.is_none()) {
        return Vec::new();
    }
    if report.points.iter().any(|p| p.test_type.is_none()) {
        return vec![by_configuration(report)];
    }
    if !report.by_setting.is_empty() {
        return Vec::new();
    }
    [Access::Sequential, Access::Random]
        .into_iter()
        .filter_map(|access| by_test_type(report, access))
        .collect()
}

/// Mean over some points, which are never none.
fn mean(points: &[&PointSummary]) -> f64 {
    points.iter().filter_map(|p| p.bandwidth).map(|b| b.mean).sum::<f64>() / points.len() as f64
}

/// Test types of 4 MiB, or those of 4 KiB: on one axis the bars of one would hide the other's.
fn by_test_type(report: &Report, access: Access) -> Option<Figure> {
    let is_shown = |p: &&PointSummary| p.bandwidth.is_some() && p.class().access == access;
    let points: Vec<&PointSummary> = report.points.iter().filter(is_shown).collect();
    let (id, request, numbers) = match access {
        Access::Sequential => ("by-test-type-large", "4 MiB", 1..=8),
        Access::Random => ("by-test-type-small", "4 KiB", 9..=14),
    };
    points.first()?;
    let mut series: BTreeMap<Direction, BTreeMap<u8, Vec<&PointSummary>>> = BTreeMap::new();
    for &point in &points {
        let Some(test_type) = point.test_type else { continue };
        let of_direction = series.entry(point.class().direction).or_default();
        of_direction.entry(test_type.number()).or_default().push(point);
    }
    let means: Vec<f64> = series.values().flat_map(|by| by.values().map(|at| mean(at))).collect();
    let scale = Scale::of(means.iter().copied().fold(0.0, f64::max));
    let mut plot = Plot::default();
    let mut sheet =
        Sheet::new("Mean bandwidth by test type", &[">Test type", "Test", "Series", ">Bandwidth"]);
    for (direction, by_type) in &series {
        let name = sheets::capital(*direction);
        plot.add_trace(bars(&name, by_type, &scale, of_direction(*direction)));
        for (number, at) in by_type {
            sheet.push(vec![
                number.to_string(),
                at[0].test_type.map_or_else(String::new, |t| t.label()),
                name.clone(),
                units::bandwidth(mean(at)),
            ]);
        }
    }
    sheet.rows.sort_by_key(|row| row[0].parse::<u8>().unwrap_or_default());
    let x = Axis::new("Test type, as the papers number them")
        .of_names_in_order(numbers.map(|n| n.to_string()).collect());
    let y = log_if_wide(&scale, &means);
    plot.set_layout(Layout::new(x, y).bar_gap(0.35));
    Some(Figure {
        id: id.to_owned(),
        title: format!("Bandwidth by test type, requests of {request}"),
        papers: Some("DASH-IO Figs. 8, 11, 12"),
        caption: caption(&points),
        plot,
        sheet,
        wide: false,
        height: None,
    })
}

fn bars(name: &str, by_type: &BTreeMap<u8, Vec<&PointSummary>>, scale: &Scale, fill: &'static str) -> Trace {
    // A mean over several configurations has no interval of its own.
    let reach: Vec<(f64, f64)> = by_type
        .values()
        .map(|at| match (at.as_slice(), at[0].bandwidth) {
            ([_], Some(bandwidth)) => reach(&bandwidth, scale),
            _ => (0.0, 0.0),
        })
        .collect();
    let hover: Vec<String> = by_type
        .iter()
        .map(|(number, at)| {
            let label = at[0].test_type.map_or_else(String::new, |t| t.label());
            let figure = match (at.as_slice(), at[0].bandwidth) {
                ([_], Some(bandwidth)) => sheets::bandwidth(bandwidth),
                _ => format!("{}, mean of {}", units::bandwidth(mean(at)), at.len()),
            };
            format!("<b>{number}</b> {}<br>{}<br>{figure}", escape::label(&label), escape::label(name))
        })
        .collect();
    let (up, down) = reach.into_iter().unzip();
    Trace::bars(by_type.keys().map(u8::to_string), by_type.values().map(|at| scale.of_value(mean(at))))
        .name(escape::label(name))
        .marker(Marker::new(fill))
        .error_y(Whiskers::new(up, down, GREY))
        .hover(hover)
}

/// Beyond two decades, short bars cannot be read on a linear axis.
pub(super) fn log_if_wide(scale: &Scale, values: &[f64]) -> Axis {
    let largest = values.iter().copied().fold(0.0, f64::max);
    let smallest = values.iter().copied().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
    if largest / smallest > 100.0 {
        log_axis(&scale.title(), values.iter().map(|v| scale.of_value(*v)), round_number)
    } else {
        Axis::new(&scale.title()).beginning_at_zero()
    }
}

fn caption(points: &[&PointSummary]) -> String {
    let mean = |p: &&&PointSummary| p.bandwidth.map_or(0.0, |b| b.mean);
    let most = points.iter().max_by(|a, b| mean(a).total_cmp(&mean(b)));
    let least = points.iter().min_by(|a, b| mean(a).total_cmp(&mean(b)));
    let mut text = match (most, least) {
        (Some(most), Some(least)) => format!(
            "From {} ({}) to {} ({}). ",
            units::bandwidth(mean(&least)),
            least.label,
            units::bandwidth(mean(&most)),
            most.label
        ),
        _ => String::new(),
    };
    text += "Odd numbers read, even ones write. Whiskers: 95 % intervals of the mean.";
    text
}

/// The fastest configurations of a space without test types.
fn by_configuration(report: &Report) -> Figure {
    let mut points: Vec<&PointSummary> = report.points.iter().filter(|p| p.bandwidth.is_some()).collect();
    let mean = |p: &PointSummary| p.bandwidth.map_or(0.0, |b| b.mean);
    points.sort_by(|a, b| mean(b).total_cmp(&mean(a)).then(a.point.cmp(&b.point)));
    let all = points.len();
    points.truncate(BARS);
    let scale = Scale::of(points.first().map_or(0.0, |p| mean(p)));
    let mut sheet = Sheet::new("Mean bandwidth by configuration", &["Configuration", ">Bandwidth"]);
    for p in &points {
        sheet.push(vec![p.label.clone(), p.bandwidth.map_or_else(sheets::dash, sheets::bandwidth)]);
    }
    points.reverse();
    let reach: Vec<(f64, f64)> =
        points.iter().filter_map(|p| p.bandwidth).map(|b| reach(&b, &scale)).collect();
    let (up, down) = reach.into_iter().unzip();
    // Two labels that are cut alike must not fall into one bar.
    let label = |p: &&PointSummary| format!("{} <sub>{}</sub>", escape::label(&p.label), p.point);
    let fills: Vec<&'static str> = points.iter().map(|p| of_direction(p.class().direction)).collect();
    let bar = Trace::lying_bars(points.iter().map(|p| scale.of_value(mean(p))), points.iter().map(label))
        .marker(Marker::of_each(fills))
        .error_x(Whiskers::new(up, down, GREY));
    let mut plot = Plot::default();
    plot.add_trace(bar);
    let height = 90 + 22 * points.len();
    let y = Axis::new("").of_names();
    plot.set_layout(Layout::new(Axis::new(&scale.title()).beginning_at_zero(), y));
    let which =
        if all > BARS { format!("The fastest {BARS} of {all} configurations. ") } else { String::new() };
    Figure {
        id: "by-configuration".to_owned(),
        title: "Bandwidth by configuration".to_owned(),
        papers: None,
        caption: format!(
            "{which}Blue reads, vermillion writes, green does both. Whiskers: 95 % intervals of the mean."
        ),
        plot,
        sheet,
        wide: true,
        height: Some(height),
    }
}

/// Each value of each dimension against the best: one row each, with its interval.
pub(super) fn effects(report: &Report) -> Option<Figure> {
    let mut ratios: Vec<f64> = report.effects.iter().flat_map(|e| &e.values).map(|v| v.ratio).collect();
    ratios.sort_by(f64::total_cmp);
    // Of many, the strongest: those furthest below their dimension's best.
    let limit = *ratios.get(EFFECTS.min(ratios.len()).checked_sub(1)?)?;
    let mut plot = Plot::default();
    let mut rows = 0;
    for (i, effect) in report.effects.iter().enumerate().rev() {
        let values: Vec<&EffectOfValue> = effect.values.iter().rev().filter(|v| v.ratio <= limit).collect();
        rows += values.len();
        plot.add_trace(of_effect(i, effect, &values));
    }
    let height = 110 + 26 * rows;
    let y = Axis::new("").of_names();
    plot.set_layout(Layout::new(Axis::new("Relative to the best value"), y).upright_line(1.0));
    Some(Figure {
        id: "effects".to_owned(),
        title: "What each dimension does".to_owned(),
        papers: None,
        caption: effects_caption(report, rows),
        plot,
        sheet: sheets::effects(report),
        wide: true,
        height: Some(height),
    })
}

fn of_effect(series: usize, effect: &Effect, values: &[&EffectOfValue]) -> Trace {
    let dimension = format!("{}: {}", effect.work.label(), effect.dimension);
    let label = |v: &&EffectOfValue| escape::label(&format!("{dimension} {} vs {}", v.value, effect.best));
    let reach = |v: &&EffectOfValue| {
        v.interval.map_or((0.0, 0.0), |i| ((i.high - v.ratio).max(0.0), (v.ratio - i.low).max(0.0)))
    };
    let (up, down) = values.iter().map(reach).unzip();
    let fill = of_direction(effect.work.class.direction);
    Trace::scatter(values.iter().map(|v| v.ratio), values.iter().map(label), Mode::Markers)
        .without_legend()
        .name(escape::label(&dimension))
        .marker(Marker::new(fill).symbol(symbol(series)).size(9))
        .error_x(Whiskers::new(up, down, fill))
}

fn effects_caption(report: &Report, rows: usize) -> String {
    let all: usize = report.effects.iter().map(|e| e.values.len()).sum();
    let which = if rows < all { format!(" Shown are the {rows} strongest of {all}.") } else { String::new() };
    let mattering = report.effects.iter().filter(|e| e.matters == Some(true)).count();
    format!(
        "Each value against the best of its dimension, comparing only configurations that differ in nothing else; whiskers: \
         intervals from the scatter over blocks, or between constructions, which hold together in 95 % of sweeps. {mattering} of {} dimensions were shown to matter.{which}",
        report.effects.len()
    )
}
