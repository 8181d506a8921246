//! A machine's levels of memory and storage: DASH's Fig. 1, measured.

use measure::ladder::{Kind, Ladder, Level};
use measure::stats::Estimate;

use super::super::super::sheet::Sheet;
use super::super::escape;
use super::{
    Axis, BLUE, DashType, Figure, GREEN, GREY, Layout, Line, Marker, Mode, ORANGE, PURPLE, Plot, SKY, Trace,
    VERMILLION, Whiskers, log_axis, marker, round_number,
};

/// What the ladder allows to be drawn.
pub(in super::super) fn figures(ladder: &Ladder) -> Vec<Figure> {
    [latency(ladder), chase(ladder), bandwidth(ladder)].into_iter().flatten().collect()
}

fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Cache => SKY,
        Kind::Memory => BLUE,
        Kind::FarMemory => PURPLE,
        Kind::RemoteMemory => GREEN,
        Kind::Flash => ORANGE,
        Kind::Disk => VERMILLION,
        Kind::Virtual => GREY,
    }
}

/// How far an interval reaches above and below its estimate.
fn reach(estimate: Estimate) -> (f64, f64) {
    estimate
        .interval
        .map_or((0.0, 0.0), |i| ((i.high - estimate.value).max(0.0), (estimate.value - i.low).max(0.0)))
}

fn latency(ladder: &Ladder) -> Option<Figure> {
    // The nearest on top, which is the last that is drawn.
    let levels: Vec<(&Level, Estimate)> =
        ladder.levels.iter().rev().filter_map(|level| Some((level, level.latency_ns?))).collect();
    if levels.is_empty() {
        return None;
    }
    let text = |(level, e): &(&Level, Estimate)| {
        let cycles = level.latency_cycles.map(|c| format!(" · {} cycles", units::count(c.value)));
        format!("{}{}", units::nanoseconds(e.value), cycles.unwrap_or_default())
    };
    let hover = |(level, e): &(&Level, Estimate)| {
        let gap = ladder.gaps.iter().find(|gap| gap.farther == level.name);
        let gap = gap
            .map(|gap| format!("<br>{}× {}", measure::ladder::times(gap.ratio), escape::label(&gap.nearer)));
        format!(
            "<b>{}</b> ({})<br>{}{}{}",
            escape::label(&level.name),
            level.kind.words(),
            units::nanoseconds(e.value),
            e.interval.map_or(String::new(), |i| format!(
                " ({} to {})",
                units::nanoseconds(i.low),
                units::nanoseconds(i.high)
            )),
            gap.unwrap_or_default()
        )
    };
    let values: Vec<f64> = levels.iter().map(|(_, e)| e.value).collect();
    let bar = Trace::lying_bars(values.clone(), levels.iter().map(|(level, _)| escape::label(&level.name)))
        .marker(Marker::of_each(levels.iter().map(|(level, _)| colour(level.kind)).collect()))
        .text(levels.iter().map(text))
        .hover(levels.iter().map(hover));
    let mut plot = Plot::default();
    plot.add_trace(bar);
    let (low, high) = ends(&values);
    // Bars of a logarithmic axis begin somewhere; room for the text stands at the other end.
    let x = log_axis("Latency of one access", decades(low, high * 10.0), nanoseconds)
        .range(low.log10().floor() - 0.3, high.log10() + (high / low).log10().max(1.0) * 0.4);
    let y = Axis::new("").of_names();
    let height = 110 + 34 * levels.len();
    plot.set_layout(Layout::new(x, y));
    let mut sheet = Sheet::new("Latency", &["Level", ">Latency (ns)", ">Cycles"]);
    for level in &ladder.levels {
        let number = |e: Option<Estimate>| e.map_or("–".to_owned(), |e| format!("{:.3}", e.value));
        sheet.push(vec![level.name.clone(), number(level.latency_ns), number(level.latency_cycles)]);
    }
    Some(Figure {
        id: "hierarchy".to_owned(),
        title: "How long one access takes".to_owned(),
        papers: Some("DASH Fig. 1"),
        caption: caption(ladder),
        plot,
        sheet,
        wide: true,
        height: Some(height),
    })
}

fn caption(ladder: &Ladder) -> String {
    let mut text = "Each mark of the scale is ten times the one before. Memory: a load that waits for the one before it. \
                    Devices: a random read of 4 KiB, one at a time."
        .to_owned();
    if let Some(widest) = &ladder.widest {
        text += &format!(" The widest gap is {}.", widest.words());
    }
    text
}

fn chase(ladder: &Ladder) -> Option<Figure> {
    if ladder.curve.len() < 2 {
        return None;
    }
    let x: Vec<f64> = ladder.curve.iter().map(|p| p.bytes as f64).collect();
    let y: Vec<f64> = ladder.curve.iter().map(|p| p.latency_ns.value).collect();
    let (up, down): (Vec<f64>, Vec<f64>) = ladder.curve.iter().map(|p| reach(p.latency_ns)).unzip();
    let hover = ladder.curve.iter().map(|p| {
        format!("set of {}<br><b>{}</b>", units::bytes(p.bytes), units::nanoseconds(p.latency_ns.value))
    });
    let mut plot = Plot::default();
    plot.add_trace(
        Trace::scatter(x.clone(), y.clone(), Mode::LinesMarkers)
            .name("a load")
            .line(Line::new(BLUE, 1.5))
            .marker(marker(0, BLUE).size(5))
            .error_y(Whiskers::new(up, down, BLUE))
            .hover(hover),
    );
    let (low, high) = ends(&y);
    let mut knees = Vec::new();
    for (i, level) in ladder.levels.iter().filter(|level| level.knee_bytes.is_some()).enumerate() {
        let at = level.knee_bytes.unwrap_or_default() as f64;
        let colour = [VERMILLION, GREEN, ORANGE, PURPLE][i % 4];
        let dash = [DashType::Dash, DashType::Dot, DashType::DashDot, DashType::LongDash][i % 4];
        plot.add_trace(
            Trace::scatter(vec![at, at], vec![low, high], Mode::LinesText)
                .name(format!("{} ends", escape::label(&level.name)))
                .text(vec![String::new(), escape::label(&level.name)])
                .line(Line::new(colour, 1.5).dash(dash)),
        );
        knees.push(format!("{} at {}", level.name, units::bytes(at as u64)));
    }
    let x_axis = Axis::new("Set").logarithmic();
    let ticks: Vec<f64> =
        (12..40).step_by(2).map(|p| 2f64.powi(p)).filter(|t| *t <= ends(&x).1 * 1.1).collect();
    let words = ticks.iter().map(|t| units::bytes(*t as u64)).collect();
    let x_axis = x_axis.ticks(ticks, words);
    let y_axis = log_axis("Latency of a load", y.iter().copied(), nanoseconds);
    plot.set_layout(Layout::new(x_axis, y_axis).legend(false));
    let mut sheet = Sheet::new("The chase", &[">Set", ">Latency"]);
    for point in &ladder.curve {
        sheet.push(vec![units::bytes(point.bytes), units::nanoseconds(point.latency_ns.value)]);
    }
    let caption = match knees.as_slice() {
        [] => "No level ends within the sets that were chased.".to_owned(),
        knees => format!(
            "Latency stays flat as long as a set fits a level. Levels end: {}. Whiskers are the intervals of the medians.",
            knees.join(", ")
        ),
    };
    Some(Figure {
        id: "chase".to_owned(),
        title: "A pointer chase over growing sets".to_owned(),
        papers: None,
        caption,
        plot,
        sheet,
        wide: false,
        height: None,
    })
}

fn bandwidth(ladder: &Ladder) -> Option<Figure> {
    let any = |level: &&Level| {
        level.figures.sequential_read_bytes_per_s.or(level.figures.sequential_write_bytes_per_s).is_some()
    };
    let levels: Vec<&Level> = ladder.levels.iter().filter(any).collect();
    if levels.is_empty() {
        return None;
    }
    let names: Vec<String> = levels.iter().map(|level| escape::label(&level.name)).collect();
    let mut all = Vec::new();
    let mut plot = Plot::default();
    for (name, colour, of) in [
        ("write", VERMILLION, (|l| l.figures.sequential_write_bytes_per_s) as fn(&Level) -> Option<Estimate>),
        ("read", BLUE, |l| l.figures.sequential_read_bytes_per_s),
    ] {
        let there: Vec<(String, Estimate)> =
            levels.iter().zip(&names).filter_map(|(l, n)| Some((n.clone(), of(l)?))).collect();
        let (up, down): (Vec<f64>, Vec<f64>) = there.iter().map(|(_, e)| reach(*e)).unzip();
        all.extend(there.iter().map(|(_, e)| e.value));
        let words = there.iter().map(|(n, e)| format!("<b>{n}</b>, {name}<br>{}", units::bandwidth(e.value)));
        plot.add_trace(
            Trace::bars(there.iter().map(|(n, _)| n.clone()), there.iter().map(|(_, e)| e.value))
                .name(name)
                .marker(Marker::new(colour))
                .error_y(Whiskers::new(up, down, GREY))
                .hover(words),
        );
    }
    let (low, high) = ends(&all);
    let y = log_axis("Bandwidth", decades(low, high), |v| units::bandwidth(v).replace(".00 ", " "))
        .range(low.log10().floor() - 0.2, high.log10() + 0.2);
    let x = Axis::new("").of_names();
    plot.set_layout(Layout::new(x, y).legend(true));
    let mut sheet = Sheet::new("Bandwidth", &["Level", ">Write", ">Read"]);
    for level in &levels {
        let word = |e: Option<Estimate>| e.map_or("–".to_owned(), |e| units::bandwidth(e.value));
        let f = &level.figures;
        sheet.push(vec![
            level.name.clone(),
            word(f.sequential_write_bytes_per_s),
            word(f.sequential_read_bytes_per_s),
        ]);
    }
    Some(Figure {
        id: "bandwidth-of-levels".to_owned(),
        title: "Sequential bandwidth".to_owned(),
        papers: None,
        caption:
            "Caches and memory by one CPU; devices with requests of 1 MiB. The scale is logarithmic. A level \
                  without a bar for writing was not to be written."
                .to_owned(),
        plot,
        sheet,
        wide: false,
        height: None,
    })
}

fn ends(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, 0.0), |(low, high), v| (f64::min(low, *v), f64::max(high, *v)))
}

/// The powers of ten around a range, so that an axis has its marks there and nowhere else.
fn decades(low: f64, high: f64) -> impl Iterator<Item = f64> {
    (low.log10().floor() as i32..=high.log10().ceil() as i32).map(|d| 10f64.powi(d))
}

/// A round number of nanoseconds with its unit.
fn nanoseconds(ns: f64) -> String {
    if ns < 1e3 { format!("{} ns", round_number(ns)) } else { super::microseconds(ns / 1e3) }
}
