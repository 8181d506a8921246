//! Which figures move when a constant moves.

use toml::{Table, Value};

use super::figures::{Reproduced, reproduce_with};

/// Seeds of each figure here; the differences asked for are larger than what seeds make.
const SEEDS: u64 = 2;
/// A constant is moved by this part, up and down.
pub const STEP: f64 = 0.20;
/// A figure moves if it changes by more than this part.
pub const MOVES: f64 = 0.10;

/// Constants: machine file, key.
pub const CONSTANTS: &[(&str, &str)] = &[
    ("dash-io-node", "host.cores"),
    ("dash-io-node", "host.path_us"),
    ("dash-io-node", "host.md_us"),
    ("dash-io-node", "host.page_us"),
    ("dash-io-node", "host.bio_us"),
    ("dash-io-node", "host.plug_requests"),
    ("dash-io-node", "host.interrupts.member_us"),
    ("dash-no-msi", "host.interrupts.completion_us"),
    ("dash-io-node", "host.filesystems.xfs.read_lock_us"),
    ("dash-io-node", "controller.io_us"),
    ("dash-io-node", "controller.bytes_per_s"),
    ("dash-onboard", "controller.io_us"),
    ("dash-raid", "controller.io_us"),
    ("dash-raid-untuned", "controller.untuned_us"),
    ("dash-io-node", "drive.command_us"),
    ("dash-io-node", "drive.link_bytes_per_s"),
    ("dash-one-drive", "drive.link_bytes_per_s"),
    ("dash-io-node", "drive.queue_depth"),
    ("dash-io-node", "drive.read_us"),
    ("dash-io-node", "drive.channels"),
    ("dash-io-node", "drive.program_us"),
    ("dash-io-node", "drive.programs_at_once"),
    ("dash-io-node", "drive.programs_per_erase"),
    ("dash-io-node", "drive.erase_us"),
    ("dash-io-node", "drive.buffer_pages"),
    ("dash-io-node", "drive.random_write_amplification"),
    ("dash-ram-drive", "host.path_us"),
];

/// A constant moved, and what moved with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// The machine file.
    pub machine: &'static str,
    /// The key.
    pub key: &'static str,
    /// By what part it was moved.
    pub step: f64,
    /// The figures that moved by more than [`MOVES`], with how far.
    pub figures: Vec<(String, f64)>,
    /// How many figures lie beyond the tolerance then.
    pub beyond: usize,
}

/// Moves each constant up and down.
#[must_use]
pub fn sensitivity() -> Vec<Moved> {
    let plain = reproduce_with(SEEDS, super::AS_THEY_ARE);
    let steps = CONSTANTS.iter().flat_map(|constant| [-STEP, STEP].map(|step| (*constant, step)));
    steps
        .map(|((machine, key), step)| {
            let adjust = |file: &str, table: &mut Table| {
                if file == machine {
                    scale(table, key, 1.0 + step);
                }
            };
            let moved = reproduce_with(SEEDS, &adjust);
            let change = |(plain, moved): (&Reproduced, &Reproduced)| {
                let part = moved.model / plain.model - 1.0;
                let name = format!("{}: {}", plain.figure.source, plain.figure.what);
                (part.abs() > MOVES).then_some((name, part))
            };
            let figures = plain.iter().zip(&moved).filter_map(change).collect();
            Moved { machine, key, step, figures, beyond: moved.iter().filter(|one| !one.holds()).count() }
        })
        .collect()
}

/// Multiplies the number of a dotted key; a whole number stays one.
fn scale(table: &mut Table, key: &str, factor: f64) {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    match (table.get_mut(first), rest) {
        (Some(Value::Table(inner)), Some(rest)) => scale(inner, rest, factor),
        (Some(Value::Integer(n)), None) => *n = (*n as f64 * factor).round() as i64,
        (Some(Value::Float(x)), None) => *x *= factor,
        _ => {}
    }
}
