//! The write-saturation curve: bandwidth over what was written (Figure 1 of the Cray paper).

use measure::saturation::{Point, Saturation};

use super::super::super::sheet::Sheet;
use super::{
    Axis, BLUE, DashType, Figure, GREY, Layout, Line, Mode, Plot, Scale, Trace, VERMILLION, thinned,
};

const GIB: f64 = (1u64 << 30) as f64;
/// Rows of the table beside the plot; the CSV has all points.
const ROWS: usize = 60;

/// The curve with its segments and its knee.
pub(in super::super) fn figure(saturation: &Saturation) -> Figure {
    let points = thinned(&saturation.points);
    let fastest = saturation.points.iter().map(|p| p.bandwidth_bytes_per_s).fold(0.0, f64::max);
    let scale = Scale::of(fastest);
    let written = |bytes: u64| bytes as f64 / GIB;
    let mut plot = Plot::default();
    plot.add_trace(
        Trace::scatter(
            points.iter().map(|p| written(p.written_bytes)),
            points.iter().map(|p| scale.of_value(p.bandwidth_bytes_per_s)),
            Mode::Lines,
        )
        .name("each step")
        .line(Line::new(BLUE, 1.0))
        .hover(points.iter().map(|p| hover(p))),
    );
    let (x, y) = steps(saturation, &scale);
    plot.add_trace(
        Trace::scatter(x, y, Mode::Lines)
            .name("parts of one rate")
            .line(Line::new(VERMILLION, 2.0).in_steps()),
    );
    if let Some(cliff) = saturation.cliff {
        let at = written(cliff.written_bytes);
        plot.add_trace(
            Trace::scatter(vec![at, at], vec![0.0, scale.of_value(fastest)], Mode::Lines)
                .name("the cliff")
                .line(Line::new(GREY, 1.5).dash(DashType::Dash)),
        );
    }
    plot.set_layout(Layout::new(Axis::new("Written (GiB)"), Axis::new(&scale.title())).legend(true));
    Figure {
        id: "saturation".to_owned(),
        title: "Write rate over what was written".to_owned(),
        papers: None,
        caption: caption(saturation),
        plot,
        sheet: sheet(saturation),
        wide: true,
        height: None,
    }
}

fn hover(point: &Point) -> String {
    format!(
        "{} written<br><b>{}</b><br>{}",
        units::bytes(point.written_bytes),
        units::bandwidth(point.bandwidth_bytes_per_s),
        units::iops(point.iops)
    )
}

/// Where each part of one rate begins, how high it is, and where the last one ends.
fn steps(saturation: &Saturation, scale: &Scale) -> (Vec<f64>, Vec<f64>) {
    let before = |step: usize| match step.checked_sub(1).and_then(|last| saturation.points.get(last)) {
        Some(point) => point.written_bytes as f64 / GIB,
        None => 0.0,
    };
    let segments = &saturation.shape.segments;
    let mut x: Vec<f64> = segments.iter().map(|s| before(s.first)).collect();
    let mut y: Vec<f64> = segments.iter().map(|s| scale.of_value(s.mean)).collect();
    if let Some(last) = segments.last() {
        x.push(before(last.end));
        y.push(scale.of_value(last.mean));
    }
    (x, y)
}

fn caption(saturation: &Saturation) -> String {
    match saturation.cliff {
        Some(cliff) => format!(
            "The rate falls for good after {} ({:.2} times the region): from {} to {}.",
            units::bytes(cliff.written_bytes),
            cliff.of_region,
            units::bandwidth(cliff.before_bytes_per_s),
            units::bandwidth(cliff.after_bytes_per_s)
        ),
        None if saturation.has_shape() => "The rate never falls by a fifth for good.".to_owned(),
        None => "The run is too short for its curve to have a shape.".to_owned(),
    }
}

fn sheet(saturation: &Saturation) -> Sheet {
    let mut sheet = Sheet::new("The curve", &[">Seconds", ">Written", ">Bandwidth", ">IOPS"]);
    let points = &saturation.points;
    let stride = points.len().div_ceil(ROWS).max(1);
    for point in points.iter().step_by(stride) {
        sheet.push(vec![
            format!("{:.1}", point.end_ns as f64 / 1e9),
            units::bytes(point.written_bytes),
            units::bandwidth(point.bandwidth_bytes_per_s),
            units::iops(point.iops),
        ]);
    }
    sheet
}
