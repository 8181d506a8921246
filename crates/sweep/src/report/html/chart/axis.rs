//! An axis: where a value stands on it, from 0 to 1, and where its ticks are.

use serde_json::Value;

use super::plain;

/// A tick: its place, from 0 to 1, and its text.
#[derive(Debug, Clone)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) text: String,
}

/// What an axis has to show: numbers with their whiskers, or names.
#[derive(Debug, Default)]
pub(super) struct Extent {
    low: Option<f64>,
    high: Option<f64>,
    smallest_positive: Option<f64>,
    names: Vec<String>,
    /// Whether it begins at 0.
    pub(super) is_from_zero: bool,
}

impl Extent {
    /// Adds the values of a trace and how far its whiskers reach.
    pub(super) fn add(&mut self, values: &Value, error: &Value) {
        for (i, value) in values.as_array().into_iter().flatten().enumerate() {
            match (value.as_f64(), value.as_str()) {
                (Some(number), _) => {
                    let reach = |key: &str| error[key][i].as_f64().unwrap_or(0.0);
                    self.number(number + reach("array"));
                    self.number(number - reach("arrayminus"));
                    self.number(number);
                }
                (None, Some(name)) if !self.names.iter().any(|known| known == name) => {
                    self.names.push(name.to_owned())
                }
                _ => {}
            }
        }
    }

    fn number(&mut self, number: f64) {
        self.low = Some(self.low.map_or(number, |low| low.min(number)));
        self.high = Some(self.high.map_or(number, |high| high.max(number)));
        if number > 0.0 {
            self.smallest_positive = Some(self.smallest_positive.map_or(number, |low| low.min(number)));
        }
    }
}

/// One axis of a figure.
#[derive(Debug)]
pub(super) struct Axis {
    pub(super) title: String,
    pub(super) is_category: bool,
    pub(super) has_grid: bool,
    pub(super) ticks: Vec<Tick>,
    is_log: bool,
    names: Vec<String>,
    /// Ends, as logarithms on a logarithmic axis.
    low: f64,
    high: f64,
    /// Where ticks stand, in the axis's own terms, and their texts, where the figure names them.
    given: Option<Vec<(f64, String)>>,
    most: f64,
}

impl Axis {
    /// Of a layout's axis that shows `extent`, with about `most` ticks at most.
    pub(super) fn of(layout: &Value, extent: &Extent, most: f64) -> Self {
        let kind = layout["type"].as_str().unwrap_or_default();
        let is_category =
            kind == "category" || kind.is_empty() && extent.low.is_none() && !extent.names.is_empty();
        let is_log = kind == "log";
        let mut names = strings(&layout["categoryarray"]);
        names.extend(extent.names.iter().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>());
        // Names that are numbers stand where the number is on an axis of numbers.
        let numbers: Vec<f64> = match is_category {
            true => Vec::new(),
            false => names.iter().filter_map(|name| name.parse().ok()).collect(),
        };
        let fold = |start: Option<f64>, pick: fn(f64, f64) -> f64| {
            numbers.iter().copied().chain(start).reduce(pick).unwrap_or(1.0)
        };
        let (mut low, mut high) = (fold(extent.low, f64::min), fold(extent.high, f64::max));
        if is_log {
            low = extent.smallest_positive.unwrap_or(1.0).log10();
            high = if high > 0.0 { high.log10() } else { low };
        } else if extent.is_from_zero || layout["rangemode"] == "tozero" {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if let [Some(from), Some(to)] = [0, 1].map(|end| layout["range"][end].as_f64()) {
            (low, high) = (from, to);
        }
        if high <= low {
            (low, high) = if is_log {
                (low - 0.3, low + 0.3)
            } else {
                (low - low.abs() * 0.1 - 0.1, low + low.abs() * 0.1 + 0.1)
            };
        }
        let texts = strings(&layout["ticktext"]);
        let given = layout["tickvals"].as_array().map(|values| {
            let values = values.iter().filter_map(Value::as_f64);
            let text = |i: usize, value: f64| texts.get(i).cloned().unwrap_or_else(|| value.to_string());
            values.enumerate().map(|(i, v)| (if is_log { v.log10() } else { v }, text(i, v))).collect()
        });
        let title = plain(layout["title"]["text"].as_str().unwrap_or_default());
        let has_grid = !is_category;
        let mut axis =
            Self { title, is_category, has_grid, ticks: Vec::new(), is_log, names, low, high, given, most };
        axis.mark();
        axis
    }

    /// Makes room at both ends.
    pub(super) fn widen(&mut self, part: f64) {
        let by = (self.high - self.low) * part;
        // What begins at zero goes on to do so.
        if self.is_log || self.low != 0.0 {
            self.low -= by;
        }
        self.high += by;
        self.mark();
    }

    /// Makes room at the upper end.
    pub(super) fn widen_above(&mut self, part: f64) {
        self.high += (self.high - self.low) * part;
        self.mark();
    }

    /// Where a value stands; none for a name that is not on the axis, and for what a logarithm does not have.
    pub(super) fn place(&self, value: &Value) -> Option<f64> {
        if self.is_category {
            let name = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let at = self.names.iter().position(|known| *known == name)?;
            return Some((at as f64 + 0.5) / self.names.len() as f64);
        }
        let number = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
        self.number(number)
    }

    /// Where a number stands; what lies below a logarithmic axis stands at its end.
    pub(super) fn number(&self, number: f64) -> Option<f64> {
        let number = match self.is_log {
            true if number <= 0.0 => self.low,
            true => number.log10(),
            false => number,
        };
        number.is_finite().then(|| ((number - self.low) / (self.high - self.low)).clamp(-0.02, 1.02))
    }

    /// The part of the axis that a name has.
    pub(super) fn share(&self) -> f64 {
        1.0 / self.names.len().max(1) as f64
    }

    pub(super) fn longest_tick(&self) -> usize {
        self.ticks.iter().map(|tick| tick.text.chars().count()).max().unwrap_or(0)
    }

    pub(super) fn last_tick(&self) -> usize {
        self.ticks.last().map_or(0, |tick| tick.text.chars().count())
    }

    fn mark(&mut self) {
        let ticks = if self.is_category {
            let share = self.share();
            let tick = |(i, name): (usize, &String)| Tick { at: (i as f64 + 0.5) * share, text: plain(name) };
            return self.ticks = self.names.iter().enumerate().map(tick).collect();
        } else if let Some(given) = &self.given {
            given.clone()
        } else if self.is_log {
            decades(self.low, self.high)
        } else {
            linear(self.low, self.high, self.most)
        };
        let (low, length) = (self.low, self.high - self.low);
        let is_within = |at: &f64| (-0.001..=1.001).contains(at);
        let placed =
            ticks.into_iter().map(|(value, text)| Tick { at: (value - low) / length, text: plain(&text) });
        self.ticks = placed.filter(|tick| is_within(&tick.at)).collect();
    }
}

fn strings(values: &Value) -> Vec<String> {
    values.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Powers of ten, with halves and fifths between them where there are few.
fn decades(low: f64, high: f64) -> Vec<(f64, String)> {
    let steps: &[f64] = if high - low < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let all =
        (low.floor() as i32..=high.ceil() as i32).flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d)));
    all.map(|value| (value.log10(), number(value))).collect()
}

/// Round numbers at equal distances.
fn linear(low: f64, high: f64, most: f64) -> Vec<(f64, String)> {
    let rough = (high - low) / most.clamp(2.0, 10.0);
    let unit = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|s| s * unit).find(|s| *s >= rough).unwrap_or(unit * 10.0);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last.min(first + 50)).map(|i| (i as f64 * step, number(i as f64 * step))).collect()
}

/// A tick's number without the digits that arithmetic adds, and with its minus.
fn number(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { (5 - value.abs().log10().floor() as i32).max(0) as usize };
    let text = format!("{value:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    text.replace('-', "−")
}
