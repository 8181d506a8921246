//! The figures: the papers' own, drawn with this sweep's data, and the curves that storage engineers ask for beside them.
//!
//! A [`Figure`] is a [`Plot`] ([`super::chart`] draws it), a caption that says what to see in *these* data, and the same figures
//! as a table for those who cannot see it. Colours are Okabe and Ito's (Color Universal Design, 2008), which
//! people with any colour vision tell apart; the page's style lightens them on a dark page. Wherever colour
//! tells series apart, so does a symbol or a dash.

mod bandwidth;
mod by_setting;
mod depth;
mod hierarchy;
mod interactions;
mod ladder;
mod latency;
mod page;
mod passes;
mod plot;
mod saturation;
mod scaling;

use crate::analysis::Direction;

use super::super::Report;
use super::super::sheet::Sheet;
use plot::{Axis, DashType, Layout, Line, Marker, Mode, Plot, Symbol, Trace, Whiskers};

/// One figure.
pub(super) struct Figure {
    /// Its name in the document, unique and stable.
    pub(super) id: String,
    /// Its title.
    pub(super) title: String,
    /// Which figures of the papers it corresponds to.
    pub(super) papers: Option<&'static str>,
    /// What to see in it.
    pub(super) caption: String,
    /// The plot.
    pub(super) plot: Plot,
    /// The same as a table.
    pub(super) sheet: Sheet,
    /// Whether it needs the page's whole width.
    pub(super) wide: bool,
    /// Its height in pixels, where its contents decide it.
    pub(super) height: Option<usize>,
}

/// All figures that the data allow, in the order in which they are read, by section.
pub(super) fn measured(report: &Report) -> Vec<Figure> {
    let mut figures = bandwidth::figures(report);
    figures.extend(by_setting::figures(report));
    figures.extend(scaling::figures(report));
    figures.extend(depth::figures(report));
    figures.extend(bandwidth::effects(report));
    figures.extend(interactions::figures(report));
    figures.extend(passes::trends(report));
    figures.extend(passes::variation(report));
    figures.extend(passes::control(report));
    figures
}

pub(super) use hierarchy::figures as hierarchy;
pub(super) use page::figure as page;
pub(super) use saturation::figure as saturation;

/// From the baseline to the best.
pub(super) fn ladders(report: &Report) -> Vec<Figure> {
    ladder::figures(report)
}

/// The latency curves.
pub(super) fn latency(report: &Report) -> Vec<Figure> {
    latency::figures(report)
}

const BLUE: &str = "#0072B2";
const VERMILLION: &str = "#D55E00";
const GREEN: &str = "#009E73";
const PURPLE: &str = "#CC79A7";
const ORANGE: &str = "#E69F00";
const SKY: &str = "#56B4E9";
const GREY: &str = "#5C636B";

/// Colours of series, in the order in which they are taken.
pub(super) const SERIES: [&str; 7] = [BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY];

fn colour(series: usize) -> &'static str {
    SERIES[series % SERIES.len()]
}

fn of_direction(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => BLUE,
        Direction::Write => VERMILLION,
        Direction::Mixed => GREEN,
        Direction::Trim => PURPLE,
    }
}

fn symbol(series: usize) -> Symbol {
    match series % 6 {
        0 => Symbol::Circle,
        1 => Symbol::Square,
        2 => Symbol::Diamond,
        3 => Symbol::TriangleUp,
        4 => Symbol::Cross,
        _ => Symbol::X,
    }
}

fn dash(series: usize) -> DashType {
    match series % 4 {
        0 => DashType::Solid,
        1 => DashType::Dash,
        2 => DashType::Dot,
        _ => DashType::DashDot,
    }
}

fn marker(series: usize, colour: &'static str) -> Marker {
    Marker::new(colour).symbol(symbol(series)).size(8)
}

/// Marks of one series beyond which a browser draws slowly and an eye sees no more.
const MOST_MARKS: usize = 400;

/// At most [`MOST_MARKS`] of `items`, evenly spaced, the first and the last among them.
fn thinned<T>(items: &[T]) -> Vec<&T> {
    if items.len() <= MOST_MARKS {
        return items.iter().collect();
    }
    (0..MOST_MARKS).map(|i| &items[i * (items.len() - 1) / (MOST_MARKS - 1)]).collect()
}

/// A logarithmic axis with round figures, as many as can be read, and each written with its unit.
fn log_axis(title: &str, values: impl Iterator<Item = f64>, write: impl Fn(f64) -> String) -> Axis {
    let (mut low, mut high) = (f64::INFINITY, 0.0f64);
    for value in values.filter(|v| *v > 0.0) {
        (low, high) = (low.min(value), high.max(value));
    }
    let axis = Axis::new(title).logarithmic();
    if high == 0.0 {
        return axis;
    }
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let ticks = |steps: &[f64]| -> Vec<f64> {
        let all = decades.clone().flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d)));
        all.filter(|t| (low * 0.7..=high * 1.4).contains(t)).collect()
    };
    let steps: [&[f64]; 3] = [&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0], &[1.0, 2.0, 5.0], &[1.0]];
    let few = steps.iter().map(|s| ticks(s)).find(|t| t.len() <= 9);
    let ticks = few.unwrap_or_else(|| ticks(steps[2]));
    let text = ticks.iter().map(|t| write(*t)).collect();
    axis.ticks(ticks, text)
}

/// A round number of microseconds with its unit: `200 µs`, `1 ms`.
fn microseconds(us: f64) -> String {
    let (value, unit) = match us {
        us if us >= 1e6 => (us / 1e6, "s"),
        us if us >= 1e3 => (us / 1e3, "ms"),
        us => (us, "µs"),
    };
    format!("{} {unit}", round_number(value))
}

/// A tick's number without the digits that arithmetic adds.
fn round_number(value: f64) -> String {
    format!("{}", (value * 1e6).round() / 1e6)
}

/// A unit that keeps the numbers on an axis short.
struct Scale {
    divisor: f64,
    unit: &'static str,
}

impl Scale {
    fn of(largest: f64) -> Self {
        let (divisor, unit) = match largest {
            l if l >= 2e9 => (1e9, "GB/s"),
            l if l >= 2e6 => (1e6, "MB/s"),
            _ => (1e3, "kB/s"),
        };
        Self { divisor, unit }
    }

    fn title(&self) -> String {
        format!("Bandwidth ({})", self.unit)
    }

    fn of_value(&self, value: f64) -> f64 {
        value / self.divisor
    }
}

/// How far an interval reaches above and below its mean, in units of `scale`; nothing where there is none.
fn reach(estimate: &crate::analysis::Estimate, scale: &Scale) -> (f64, f64) {
    reach_by(estimate, scale.divisor)
}

/// The same in units of `divisor`.
fn reach_by(estimate: &crate::analysis::Estimate, divisor: f64) -> (f64, f64) {
    estimate.interval.map_or((0.0, 0.0), |i| {
        (
            (i.high - estimate.mean).max(0.0) / divisor,
            // An axis of bandwidth ends at 0, and so does what is drawn there.
            (estimate.mean - i.low.max(0.0)).max(0.0) / divisor,
        )
    })
}

/// A name that may stand in an id.
fn slug(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let mut slug: String = name.chars().map(plain).collect();
    while slug.contains("--") {
        slug = slug.replace("--", "-");
    }
    slug
}
