//! Fits the constants of a flash drive to what was measured of one, and says how well they predict what was held out.
//!
//! The drive is one of [`crate::flash`] with the few constants that a sweep of block sizes and depths can tell apart:
//!
//! | constant | what shows it |
//! |---|---|
//! | `read_us` | a read alone |
//! | `channels` (units at once) | how the rate grows with the depth |
//! | `page_bytes` | how much of a large request's time is that of a small one; 4k to 256k |
//! | `controller_ns` | where the rate of small requests ends |
//! | `link_bytes_per_s` | where the rate of large requests ends |
//! | `program_us` | where writes end; contains what garbage collection costs |
//! | `command_ns`, `write_buffer_bytes` | a write alone, if it ends before it is programmed |
//!
//! All points are simulated for each trial, and the trial with the least mean square of ln(model/measured) wins; trials go along
//! one constant at a time, by steps that shrink. Reads determine the first five constants, then writes the others.

use crate::alone::{Load, run};
use crate::flash::{Collection, FlashSpec, Placement, Preconditioning, Unit};

/// A point of a sweep, measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// What a person calls it.
    pub label: String,
    /// Reads; otherwise writes.
    pub read: bool,
    /// Random places; otherwise one after another.
    pub random: bool,
    /// Bytes of a request.
    pub block_bytes: u32,
    /// Requests in flight.
    pub depth: u32,
    /// Requests a second.
    pub iops: f64,
    /// How far the passes typically lie from it, as a share; 0 for one pass.
    pub spread: f64,
    /// Not used for the constants.
    pub held_out: bool,
}

/// A constant that was fitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Constant {
    /// Its key in a machine file, under `drive`.
    pub key: &'static str,
    /// Its value, in the key's unit.
    pub value: f64,
    /// The root mean square error of the points behind it, as a share, if the constant is a fifth smaller, and larger; of
    /// `page_bytes`, the least with another size.
    pub error_if_moved: [f64; 2],
    /// That error as it is.
    pub error: f64,
}

impl Constant {
    /// Whether the points tell this value from one that is a fifth smaller or larger: the error grows by a tenth at least.
    #[must_use]
    pub fn is_identified(&self) -> bool {
        self.error_if_moved.iter().all(|moved| *moved > 1.1 * self.error)
    }
}

/// A drive that was fitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The drive.
    pub drive: FlashSpec,
    /// What was fitted.
    pub constants: Vec<Constant>,
    /// The model's rate of each observation, requests a second, in their order.
    pub iops: Vec<f64>,
}

/// The least share by which a step of the search changes a constant.
const LEAST_STEP: f64 = 0.02;
/// Requests that are simulated of a point, at least, and pages, about.
const REQUESTS: u64 = 200;
const PAGES: u64 = 4000;
/// Bytes of the write buffer, if the drive has one: enough for writes to be acknowledged early, little enough to be filled soon.
const BUFFER_BYTES: u64 = 256 << 10;
/// Bytes of a page in the model: how much one unit moves in one operation. All are tried.
const PAGE_BYTES: [u64; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// What the search moves, in the units of the machine file.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Trial {
    read_us: f64,
    units: f64,
    controller_ns: f64,
    link_bytes_per_s: f64,
    program_us: f64,
    command_ns: f64,
    buffered: bool,
    page_bytes: u64,
}

/// A constant of a trial: its key, and where it is.
type Knob = (&'static str, fn(&mut Trial) -> &mut f64);

const READ_KNOBS: [Knob; 4] = [
    ("read_us", |trial| &mut trial.read_us),
    ("channels", |trial| &mut trial.units),
    ("controller_ns", |trial| &mut trial.controller_ns),
    ("link_bytes_per_s", |trial| &mut trial.link_bytes_per_s),
];
const WRITE_KNOBS: [Knob; 2] =
    [("program_us", |trial| &mut trial.program_us), ("command_ns", |trial| &mut trial.command_ns)];

/// Fits a drive to those of `observations` that are not held out, of which at least one is a read. The same seed gives the same
/// drive.
#[must_use]
pub fn fit(observations: &[Observation], seed: u64) -> Fitted {
    let used = |read: bool| -> Vec<&Observation> {
        observations.iter().filter(|one| one.read == read && !one.held_out).collect()
    };
    let (reads, writes) = (used(true), used(false));
    let found: Vec<(f64, Trial)> = starts(&reads)
        .map(|mut trial| {
            search(&mut trial, &READ_KNOBS, &reads, seed);
            (error(&trial, &reads, seed), trial)
        })
        .collect();
    let least = |with: &dyn Fn(&Trial) -> bool| {
        let some = found.iter().filter(|(_, trial)| with(trial));
        *some.min_by(|a, b| a.0.total_cmp(&b.0)).expect("each size of a page was tried")
    };
    let (error_now, mut trial) = least(&|_| true);
    let (other_page, _) = least(&|other| other.page_bytes != trial.page_bytes);
    let mut constants = judged(&trial, &READ_KNOBS, &reads, seed);
    constants.push(Constant {
        key: "page_bytes",
        value: trial.page_bytes as f64,
        error_if_moved: [other_page; 2],
        error: error_now,
    });
    if !writes.is_empty() {
        let (alone_us, pages_per_s) = ends(&writes, trial.page_bytes);
        let program_us = trial.units * 1e6 / pages_per_s;
        let mut buffered = Trial { buffered: true, program_us, command_ns: alone_us * 500.0, ..trial };
        search(&mut buffered, &WRITE_KNOBS, &writes, seed);
        let mut through = Trial { program_us, ..trial };
        search(&mut through, &WRITE_KNOBS[..1], &writes, seed);
        let is_buffered = error(&buffered, &writes, seed) < error(&through, &writes, seed);
        trial = if is_buffered { buffered } else { through };
        let knobs = if is_buffered { &WRITE_KNOBS[..] } else { &WRITE_KNOBS[..1] };
        constants.extend(judged(&trial, knobs, &writes, seed));
    }
    for constant in &mut constants {
        if constant.key == "channels" {
            constant.value = constant.value.round().max(1.0);
        }
    }
    let iops = observations.iter().map(|one| rate(&trial, one, seed)).collect();
    Fitted { drive: drive(&trial, false), constants, iops }
}

impl Fitted {
    /// The machine file of a host without costs and this drive; `source` says what it was fitted to.
    #[must_use]
    pub fn machine(&self, name: &str, source: &str) -> String {
        let drive = toml::to_string(&self.drive).expect("a description has a form in TOML");
        let mut text = format!(
            "# A drive fitted to {source}: the constants marked so; the others are chosen. What the host costs is in the drive's\n\
             # constants, and what garbage collection costs is in program_us.\n\nname = {name:?}\ndrives = 1\n\n[host]\ncores = 64\n\
             submission = \"threads\"\npath_us = 0\n\n[drive]\nmodel = \"ftl\"\n"
        );
        for line in drive.lines() {
            let key = line.split(' ').next().unwrap_or_default();
            let fitted = self.constants.iter().find(|constant| constant.key == key);
            let mark = match fitted {
                Some(constant) if constant.is_identified() => "  # fitted",
                Some(_) => "  # fitted, but the points hardly tell it",
                None => "",
            };
            text += &format!("{line}{mark}\n");
        }
        text
    }
}

/// Where the search begins: each size of a page, with the rate of small requests bounded by the controller or by the units.
fn starts(reads: &[&Observation]) -> impl Iterator<Item = Trial> {
    let (alone, _) = ends(reads, PAGE_BYTES[0]);
    let most = reads.iter().map(|one| one.iops).fold(1.0, f64::max);
    let bandwidth = reads.iter().map(|one| one.iops * f64::from(one.block_bytes)).fold(1.0, f64::max);
    let units = most * alone / 1e6;
    PAGE_BYTES.into_iter().flat_map(move |page_bytes| {
        [(2.0 * units, 1e9 / most), (units, 1e8 / most)].map(|(units, controller_ns)| Trial {
            read_us: alone,
            units: units.clamp(1.0, 64.0),
            controller_ns,
            link_bytes_per_s: bandwidth,
            program_us: alone,
            command_ns: 0.0,
            buffered: false,
            page_bytes,
        })
    })
}

/// The shortest time of a request, microseconds, and the most pages a second.
fn ends(points: &[&Observation], page_bytes: u64) -> (f64, f64) {
    let alone = points.iter().map(|one| f64::from(one.depth) * 1e6 / one.iops).fold(f64::INFINITY, f64::min);
    let pages = points.iter().map(|one| one.iops * (f64::from(one.block_bytes) / page_bytes as f64).ceil());
    (alone, pages.fold(1.0, f64::max))
}

/// The drive of a trial; with room for data, or as small as reads need it.
fn drive(trial: &Trial, small: bool) -> FlashSpec {
    // What each command takes is part of what a read alone takes.
    let command_us = (trial.command_ns / 1e3).min(0.95 * trial.read_us);
    FlashSpec {
        channels: (trial.units.round() as u32).clamp(1, 256),
        chips_per_channel: 1,
        dies_per_chip: 1,
        planes_per_die: 1,
        blocks_per_plane: if small { 16 } else { 512 },
        pages_per_block: 64,
        page_bytes: trial.page_bytes,
        over_provisioning: 1.0,
        // What a page's data takes besides its array is in the link.
        read_us: trial.read_us - command_us,
        program_us: trial.program_us,
        erase_us: 0.0,
        channel_bytes_per_s: 1e12,
        channel_command_ns: 0,
        one_operation_per: Unit::Die,
        placement: Placement::Dynamic,
        gc_start_free: 0.01,
        gc_reserve_blocks: 2,
        gc_sample_blocks: 0,
        gc: Collection::Paced,
        mapping_cache_entries: 0,
        mapping_entry_bytes: 4,
        write_buffer_bytes: if trial.buffered { BUFFER_BYTES } else { 0 },
        open_pages: 0,
        volatile_cache: false,
        link_bytes_per_s: trial.link_bytes_per_s,
        command_ns: (command_us * 1e3).round() as u64,
        controller_ns: trial.controller_ns.round() as u64,
        queue_depth: 1 << 12,
        max_command_bytes: 1 << 28,
        state: if small { Preconditioning::Full } else { Preconditioning::Empty },
        occupied: 1.0,
    }
}

/// The model's rate of a point, requests a second.
fn rate(trial: &Trial, one: &Observation, seed: u64) -> f64 {
    let pages = u64::from(one.block_bytes).div_ceil(trial.page_bytes);
    let commands = (PAGES / pages).max(REQUESTS);
    let load = Load {
        reads: if one.read { 1.0 } else { 0.0 },
        random: one.random,
        block_bytes: one.block_bytes,
        align_bytes: one.block_bytes,
        share: 1.0,
        depth: one.depth.min(1 << 12),
        ramp: u64::from(one.depth) * 2
            + if trial.buffered { 4 * BUFFER_BYTES / u64::from(one.block_bytes) } else { 0 },
        commands,
    };
    run(&mut drive(trial, one.read).build(seed), &load, seed).iops
}

/// Root mean square of ln(model/measured) over `points`: for small errors, their share.
fn error(trial: &Trial, points: &[&Observation], seed: u64) -> f64 {
    let squares = points.iter().map(|one| (rate(trial, one, seed) / one.iops).ln().powi(2));
    (squares.sum::<f64>() / points.len() as f64).sqrt()
}

/// Moves one constant after another as long as that lessens the error.
fn search(trial: &mut Trial, knobs: &[Knob], points: &[&Observation], seed: u64) {
    let mut least = error(trial, points, seed);
    let mut step = 0.4;
    while step > LEAST_STEP {
        let before = least;
        for (_, knob) in knobs {
            for factor in [1.0 + step, 1.0 / (1.0 + step)] {
                let mut moved = *trial;
                *knob(&mut moved) *= factor;
                let found = error(&moved, points, seed);
                if found < least {
                    (*trial, least) = (moved, found);
                    break;
                }
            }
        }
        if least > before * 0.999 {
            step /= 2.0;
        }
    }
}

/// What each constant does to the error when it is moved.
fn judged(trial: &Trial, knobs: &[Knob], points: &[&Observation], seed: u64) -> Vec<Constant> {
    let error_now = error(trial, points, seed);
    let judge = |(key, knob): &Knob| {
        let error_if_moved = [0.8, 1.2].map(|factor| {
            let mut moved = *trial;
            *knob(&mut moved) *= factor;
            error(&moved, points, seed)
        });
        Constant { key, value: *knob(&mut trial.clone()), error_if_moved, error: error_now }
    };
    knobs.iter().map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A drive of known constants, "measured" in the model, is found again, and predicts the points that were held out.
    #[test]
    fn a_drive_of_known_constants_is_found_again() {
        let truth = Trial {
            read_us: 80.0,
            units: 12.0,
            controller_ns: 9000.0,
            link_bytes_per_s: 4e8,
            program_us: 300.0,
            command_ns: 20_000.0,
            buffered: true,
            page_bytes: 4096,
        };
        let mut observations = Vec::new();
        for read in [true, false] {
            for block_bytes in [4096, 65536] {
                for depth in [1, 8, 64] {
                    let held_out = observations.len() % 3 == 1;
                    let one = Observation {
                        label: String::new(),
                        read,
                        random: true,
                        block_bytes,
                        depth,
                        iops: 0.0,
                        spread: 0.0,
                        held_out,
                    };
                    observations.push(Observation { iops: rate(&truth, &one, 5), ..one });
                }
            }
        }
        let fitted = fit(&observations, 1);
        for (one, iops) in observations.iter().zip(&fitted.iops) {
            assert!((iops / one.iops - 1.0).abs() < 0.2, "{one:?}: {iops}");
        }
        let constant = |key| fitted.constants.iter().find(|one| one.key == key).expect("it was fitted");
        assert!((constant("read_us").value / 80.0 - 1.0).abs() < 0.1, "{fitted:?}");
        assert!((constant("link_bytes_per_s").value / 4e8 - 1.0).abs() < 0.1, "{fitted:?}");
        assert!(constant("read_us").is_identified(), "{fitted:?}");
    }
}
