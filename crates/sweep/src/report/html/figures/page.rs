//! The chart of a page: bars by name, or a curve.

use plotly::common::{Font, HoverInfo, Line, Marker, Mode, Orientation, TextPosition};
use plotly::layout::{AxisType, Margin};
use plotly::{Bar, Layout, Plot, Scatter, Trace};

use super::super::super::sheet::Sheet;
use super::super::escape;
use super::super::page::PageChart;
use super::{BLUE, Figure, axis, layout, log_axis};

/// The chart as the page's figure of a number.
pub(in super::super) fn figure(number: usize, chart: &PageChart) -> Figure {
    let mut plot = Plot::new();
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

fn bars(chart: &PageChart) -> (Box<dyn Trace>, Layout, Option<usize>) {
    // The first on top, which is the last that plotly draws.
    let marks = || chart.marks.iter().rev();
    let values: Vec<f64> = marks().map(|mark| mark.y).collect();
    let bar = Bar::new(values.clone(), marks().map(|mark| escape::label(&mark.label)).collect())
        .orientation(Orientation::Horizontal)
        .show_legend(false)
        .marker(Marker::new().color(BLUE))
        .text_array(marks().map(|mark| escape::label(&mark.words)).collect())
        .text_position(TextPosition::Auto)
        .text_angle(0.0)
        .text_font(Font::new().size(11))
        .hover_info(HoverInfo::Text);
    let x = match chart.is_logarithmic {
        false => axis(chart.y),
        true => {
            let positive = || values.iter().copied().filter(|value| *value > 0.0);
            let (low, high) = (positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max));
            let range = vec![(low / 2.0).log10(), high.log10() + 0.3];
            log_axis(chart.y, [low / 2.0, high * 2.0].into_iter(), units::count).range(range)
        }
    };
    let height = 110 + 34 * values.len();
    let page = layout(x, axis("").type_(AxisType::Category).show_grid(false))
        .height(height)
        .margin(Margin::new().left(56).right(16).top(8).bottom(44));
    (bar, page, Some(height))
}

fn curve(chart: &PageChart, x: &'static str) -> (Box<dyn Trace>, Layout, Option<usize>) {
    let marks = || chart.marks.iter();
    let hover = marks().map(|mark| escape::label(&format!("{}: {}", mark.label, mark.words)));
    let trace =
        Scatter::new(marks().map(|mark| mark.x).collect(), marks().map(|mark| mark.y).collect::<Vec<_>>())
            .mode(Mode::LinesMarkers)
            .show_legend(false)
            .line(Line::new().color(BLUE))
            .hover_text_array(hover.collect())
            .hover_info(HoverInfo::Text);
    let horizontal = axis(x).type_(AxisType::Log);
    let vertical = if chart.is_logarithmic { axis(chart.y).type_(AxisType::Log) } else { axis(chart.y) };
    (trace, layout(horizontal, vertical), None)
}
