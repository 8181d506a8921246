//! The free constants, each set again from one figure, and how near the figures come that were not looked at.
//!
//! [`PINS`] is the calibration: each entry names one constant, the one figure that pins it, and the range in which it is looked for. The
//! fit forgets the values of the files: all constants begin in the middle of their ranges, and are then set one after the other, in
//! the order of the list, so that each one's figure comes out (by bisection, or of whole numbers and of alternatives the one that
//! comes nearest). This is done [`ROUNDS`] times over, because some figures depend a little on constants that are set later. All
//! other figures are held out: nothing here reads what the papers say of them.
//!
//! What this cannot show is that the mechanisms of the model were found without them. They were not: whoever wrote the model knew
//! all the figures.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::figures::{Figure, Reproduced, figures, reproduce_with};
use super::{SEEDS, on_all_cpus};
use crate::machine::brought;

/// How often all constants are set.
pub const ROUNDS: usize = 2;
/// Seeds of a figure during the fit: fewer than of the figures themselves, for stripes only vary by 3 %.
const SEEDS_OF_FIT: u64 = 2;
/// Bisection ends when the range is narrower than this part of the constant.
const NARROW: f64 = 0.001;

/// The values among which a constant is looked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// Any between two, of which the figure is a monotone function.
    Number(f64, f64),
    /// Any whole number from one to another, likewise.
    Whole(i64, i64),
    /// Any whole number above the value of another constant of the same file, which is set earlier, up to a number.
    WholeAbove(&'static str, i64),
    /// One of these; without a text, the key is absent.
    OneOf(&'static [Option<&'static str>]),
}

/// A constant and the figure that pins it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pin {
    /// The machine file.
    pub machine: &'static str,
    /// The key.
    pub key: &'static str,
    /// The values that it may have.
    pub range: Range,
    /// Where the figure stands.
    pub source: &'static str,
    /// What it is of.
    pub what: &'static str,
}

const fn pin(
    (machine, key): (&'static str, &'static str),
    range: Range,
    source: &'static str,
    what: &'static str,
) -> Pin {
    Pin { machine, key, range, source, what }
}

/// The calibration, in the order in which constants are set.
pub const PINS: &[Pin] = &[
    pin(
        ("dash-io-node", "drive.command_us"),
        Range::Number(2.0, 40.0),
        "recipe, Table 4, one drive",
        "random read",
    ),
    pin(
        ("dash-io-node", "drive.programs_at_once"),
        Range::Whole(4, 40),
        "recipe, Table 4, one drive",
        "sequential write",
    ),
    pin(
        ("dash-io-node", "drive.random_write_amplification"),
        Range::Number(1.0, 20.0),
        "recipe, Table 4, one drive",
        "random write",
    ),
    pin(
        ("dash-io-node", "drive.link_bytes_per_s"),
        Range::Number(1.0e8, 3.0e8),
        "recipe, Table 7, separate",
        "sequential read",
    ),
    pin(("dash-io-node", "host.page_us"), Range::Number(0.05, 1.5), "recipe, Table 7, md", "sequential read"),
    // A program holds its page in the buffer, and another one is filled meanwhile: with fewer pages there would be fewer programs.
    pin(
        ("dash-io-node", "drive.buffer_pages"),
        Range::WholeAbove("drive.programs_at_once", 64),
        "recipe, Table 7, md",
        "sequential write",
    ),
    pin(
        ("dash-io-node", "host.filesystems.xfs.read_lock_us"),
        Range::Number(1.0, 16.0),
        "recipe, Table 7, md",
        "random read",
    ),
    pin(
        ("dash-io-node", "host.filesystems.xfs.log_bytes"),
        Range::OneOf(&[None, Some("4k"), Some("32k")]),
        "recipe, Table 7, md",
        "random write",
    ),
    pin(
        ("dash-io-node", "host.interrupts.member_us"),
        Range::Number(0.02, 1.0),
        "DASH-IO §3.4",
        "16 drives, md, raw, depth 512",
    ),
    pin(
        ("dash-no-msi", "host.interrupts.completion_us"),
        Range::Number(0.5, 20.0),
        "DASH-IO §3.4",
        "the same without MSI",
    ),
    pin(
        ("dash-raid", "controller.io_us"),
        Range::Number(5.0, 100.0),
        "recipe, Table 6, 64 KB",
        "random read",
    ),
    pin(
        ("dash-raid-untuned", "controller.untuned_us"),
        Range::Number(2.0, 100.0),
        "recipe, Fig. 3",
        "out of the box, RAID controllers",
    ),
    pin(
        ("dash-ram-drive", "drive.write_bytes_per_s"),
        Range::Number(1e9, 1e11),
        "recipe, Table 8, RAM drive",
        "sequential write",
    ),
    pin(
        ("dash-ram-drive", "drive.read_bytes_per_s"),
        Range::Number(1e9, 1e11),
        "recipe, Table 8, RAM drive",
        "sequential read",
    ),
    pin(
        ("dash-ram-drive", "host.path_us"),
        Range::Number(5.0, 200.0),
        "recipe, Table 8, RAM drive",
        "random read",
    ),
];

impl Pin {
    /// The figure that pins it.
    ///
    /// # Panics
    /// If there is none of that name.
    #[must_use]
    pub fn figure(&self) -> Figure {
        let mut all = figures().into_iter();
        all.find(|figure| self.is_of(figure)).expect("each pin names a figure")
    }

    /// Whether this figure pins it.
    #[must_use]
    pub fn is_of(&self, figure: &Figure) -> bool {
        figure.source == self.source && figure.what == self.what
    }

    /// The value in its file; none where the key is absent.
    #[must_use]
    pub fn of_file(&self) -> Option<Value> {
        let table: Table = brought::text(self.machine)?.parse().ok()?;
        let mut keys = self.key.split('.');
        let first = table.get(keys.next()?)?;
        keys.try_fold(first, |value, key| value.get(key)).cloned()
    }
}

/// A constant that was set.
#[derive(Debug, Clone, PartialEq)]
pub struct Refitted {
    /// Which, and by what.
    pub pin: Pin,
    /// Its value; none where the key is to be absent.
    pub value: Option<Value>,
}

impl Refitted {
    /// The value by that of the file, less one; none where one of them is no number.
    #[must_use]
    pub fn moved(&self) -> Option<f64> {
        Some(number(self.value.as_ref()?)? / number(&self.pin.of_file()?)? - 1.0)
    }
}

/// What the fit came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Refit {
    /// The constants, in the order of [`PINS`].
    pub constants: Vec<Refitted>,
    /// All figures with these constants.
    pub figures: Vec<Reproduced>,
}

/// Values by file and key; without a value the key is removed.
type Values = BTreeMap<(&'static str, &'static str), Option<Value>>;

/// Sets all constants again, and makes all figures with them.
#[must_use]
pub fn refit() -> Refit {
    let mut values: Values = PINS.iter().map(|pin| ((pin.machine, pin.key), middle(pin.range))).collect();
    for _ in 0..ROUNDS {
        for pin in PINS {
            let value = solve(pin, &values);
            values.insert((pin.machine, pin.key), value);
        }
    }
    let constant = |pin: &Pin| Refitted { pin: *pin, value: values[&(pin.machine, pin.key)].clone() };
    let constants = PINS.iter().map(constant).collect();
    let figures = reproduce_with(SEEDS, &|file, table| lay_over(&values, file, table));
    Refit { constants, figures }
}

/// The value with which the figure of `pin` comes out, all others being as in `values`.
fn solve(pin: &Pin, values: &Values) -> Option<Value> {
    let figure = pin.figure();
    // ln of the model by the paper.
    let error = |value: Option<Value>| {
        let mut values = values.clone();
        values.insert((pin.machine, pin.key), value);
        let seeds: Vec<u64> = (1..=SEEDS_OF_FIT).collect();
        let models =
            on_all_cpus(&seeds, |seed| figure.model(*seed, &|file, table| lay_over(&values, file, table)));
        (models.iter().sum::<f64>() / models.len() as f64 / figure.paper).ln()
    };
    let whole = |low, high| Some(Value::Integer(bisect_whole(low, high, |n| error(Some(Value::Integer(n))))));
    match pin.range {
        Range::Number(low, high) => Some(Value::Float(bisect(low, high, |x| error(Some(Value::Float(x)))))),
        Range::Whole(low, high) => whole(low, high),
        Range::WholeAbove(key, high) => {
            let least = values.get(&(pin.machine, key)).and_then(|value| value.as_ref()?.as_integer());
            whole(least.expect("a constant that is set earlier") + 1, high)
        }
        Range::OneOf(all) => {
            let errors = all.iter().map(|text| (text, error(text.map(Value::from)).abs()));
            let nearest = errors.min_by(|a, b| a.1.total_cmp(&b.1));
            nearest.and_then(|(text, _)| text.map(Value::from))
        }
    }
}

/// Where `error`, which rises or falls throughout, passes zero; the nearer end where it does not.
fn bisect(mut low: f64, mut high: f64, error: impl Fn(f64) -> f64) -> f64 {
    let (at_low, at_high) = (error(low), error(high));
    if at_low.signum() == at_high.signum() {
        return if at_low.abs() <= at_high.abs() { low } else { high };
    }
    while high / low - 1.0 > NARROW {
        let middle = (low * high).sqrt();
        if error(middle).signum() == at_low.signum() {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low * high).sqrt()
}

/// The same of whole numbers: that of the two beside the zero which comes nearer.
fn bisect_whole(mut low: i64, mut high: i64, error: impl Fn(i64) -> f64) -> i64 {
    let (mut at_low, mut at_high) = (error(low), error(high));
    while high - low > 1 && at_low.signum() != at_high.signum() {
        let middle = i64::midpoint(low, high);
        let there = error(middle);
        if there.signum() == at_low.signum() {
            (low, at_low) = (middle, there);
        } else {
            (high, at_high) = (middle, there);
        }
    }
    if at_low.abs() <= at_high.abs() { low } else { high }
}

/// Where a constant begins.
fn middle(range: Range) -> Option<Value> {
    match range {
        Range::Number(low, high) => Some(Value::Float((low * high).sqrt())),
        Range::Whole(low, high) => Some(Value::Integer(((low * high) as f64).sqrt().round() as i64)),
        // No less than any value of the other constant.
        Range::WholeAbove(_, high) => Some(Value::Integer(high)),
        Range::OneOf(all) => all[0].map(Value::from),
    }
}

/// Lays the values of a file over its keys.
fn lay_over(values: &Values, file: &str, table: &mut Table) {
    for ((_, key), value) in values.iter().filter(|((machine, _), _)| *machine == file) {
        put(table, key, value.as_ref());
    }
}

/// Sets or removes a dotted key of tables that there are.
fn put(table: &mut Table, key: &str, value: Option<&Value>) {
    match (key.split_once('.'), value) {
        (Some((first, rest)), _) => {
            if let Some(Value::Table(inner)) = table.get_mut(first) {
                put(inner, rest, value);
            }
        }
        (None, Some(value)) => {
            table.insert(key.to_owned(), value.clone());
        }
        (None, None) => {
            table.remove(key);
        }
    }
}

/// The number that a value is.
fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|n| n as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_is_found_from_either_side_and_its_absence_gives_the_nearer_end() {
        assert!((bisect(1.0, 100.0, |x| (x / 7.0).ln()) / 7.0 - 1.0).abs() < NARROW);
        assert!((bisect(1.0, 100.0, |x| (7.0 / x).ln()) / 7.0 - 1.0).abs() < NARROW);
        assert_eq!(bisect(8.0, 100.0, |x| (x / 7.0).ln()).to_bits(), 8.0_f64.to_bits());
        assert_eq!(bisect_whole(1, 40, |n| 12.4 - n as f64), 12);
        assert_eq!(bisect_whole(1, 40, |n| n as f64 - 12.6), 13);
    }

    #[test]
    fn each_pin_has_a_figure_and_a_constant_of_its_own_that_is_in_the_file_it_names() {
        let mut of: Vec<_> = PINS.iter().map(|pin| (pin.source, pin.what)).collect();
        let mut keys: Vec<_> = PINS.iter().map(|pin| (pin.machine, pin.key)).collect();
        for all in [&mut of, &mut keys] {
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), PINS.len());
        }
        for pin in PINS {
            assert!(pin.figure().paper > 0.0, "{pin:?}");
            assert!(pin.of_file().is_some(), "{pin:?}");
        }
    }
}
