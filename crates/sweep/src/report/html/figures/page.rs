//! The chart of a page: bars by name, or a curve.

use super::super::super::sheet::Sheet;
use super::super::escape;
use super::super::page::PageChart;
use super::{Axis, BLUE, Figure, Layout, Line, Marker, Mode, Plot, Trace, log_axis};

/// The chart as the page's figure of a number.
pub(in super::super) fn figure(number: usize, chart: &PageChart) -> Figure {
    let mut plot = Plot::default();
    let (trace, page, height) = match chart.x {
        Some(x) => curve(chart, x),
        None => bars(chart),
    };
    plot.add_trace(trace);
    plot.set_layout(page);
    let mut sheet = Sheet::new(chart.title.clone(), &["", ">Figure"]);
    for mark in &chart.marks {
        sheet.push(vec![mark.label.clone(), mark.words.clone()]);
    }
    Figure {
        id: format!("page-{number}"),
        title: chart.title.clone(),
        papers: None,
        caption: chart.y.to_owned(),
        plot,
        sheet,
        wide: true,
        height,
    }
}

fn bars(chart: &PageChart) -> (Trace, Layout, Option<usize>) {
    // The first on top, which is the last that is drawn.
    let marks = || chart.marks.iter().rev();
    let values: Vec<f64> = marks().map(|mark| mark.y).collect();
    let bar = Trace::lying_bars(values.clone(), marks().map(|mark| escape::label(&mark.label)))
        .marker(Marker::new(BLUE))
        .text(marks().map(|mark| escape::label(&mark.words)));
    let x = match chart.is_logarithmic {
        false => Axis::new(chart.y),
        true => {
            let positive = || values.iter().copied().filter(|value| *value > 0.0);
            let (low, high) = (positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max));
            log_axis(chart.y, [low / 2.0, high * 2.0].into_iter(), units::count)
                .range((low / 2.0).log10(), high.log10() + 0.3)
        }
    };
    let height = 110 + 34 * values.len();
    let page = Layout::new(x, Axis::new("").of_names());
    (bar, page, Some(height))
}

fn curve(chart: &PageChart, x: &'static str) -> (Trace, Layout, Option<usize>) {
    let marks = || chart.marks.iter();
    let hover = marks().map(|mark| escape::label(&format!("{}: {}", mark.label, mark.words)));
    let trace = Trace::scatter(marks().map(|mark| mark.x), marks().map(|mark| mark.y), Mode::LinesMarkers)
        .without_legend()
        .line(Line::new(BLUE, 2.0))
        .hover(hover);
    let horizontal = Axis::new(x).logarithmic();
    let vertical = if chart.is_logarithmic { Axis::new(chart.y).logarithmic() } else { Axis::new(chart.y) };
    (trace, Layout::new(horizontal, vertical), None)
}
