//! Levels that are reached by requests: remote memory, drives, whatever a device spec names.
//!
//! Latency is that of 4 KiB random reads, one at a time. The four figures are the papers' (DASH §IV): sequential requests
//! of 1 MiB, random ones of 4 KiB, at depths that keep any drive busy. Each is a run of its own
//! ([`run`](crate::run::run)) with all its warnings; rounds are interleaved. Nothing is written unless the level may be.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use measure::ladder::{FourFigures, Kind, Level, Requests};
use measure::stats::{DEFAULT_LEVEL, Estimate, median_estimate};
use measure::workload::Rw;
use measure::{RunRecord, Warning, WarningCode, Workload};

use super::tell::Teller;
use crate::problem::Problem;
use crate::run::RunOptions;
use crate::target::BenchTarget;

/// Bytes of a sequential request.
pub const SEQUENTIAL_BYTES: u64 = 1 << 20;
/// Sequential requests in flight.
const SEQUENTIAL_DEPTH: u32 = 8;
/// Bytes of a random request.
const RANDOM_BYTES: u64 = 4096;
/// Random requests in flight.
const RANDOM_DEPTH: u32 = 32;
/// The ramp is the measured time divided by this.
const RAMP: u32 = 5;

/// A device to be measured as a level.
#[derive(Debug)]
pub struct DeviceLevel {
    /// Its name on the ladder; unique.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// More about it.
    pub about: String,
    /// Its size, bytes.
    pub capacity_bytes: Option<u64>,
    /// What runs are made on.
    pub target: BenchTarget,
    /// Past the page cache.
    pub direct: bool,
    /// Whether it may be written.
    pub writes: bool,
    /// What is to be known about its figures.
    pub notes: Vec<String>,
}

/// One of the runs of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    Latency,
    SequentialWrite,
    SequentialRead,
    RandomWrite,
    RandomRead,
}

impl Run {
    /// Latency first, then in the order of the papers' tables.
    const ALL: [Self; 5] =
        [Self::Latency, Self::SequentialWrite, Self::SequentialRead, Self::RandomWrite, Self::RandomRead];

    fn words(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::SequentialWrite => "sequential write",
            Self::SequentialRead => "sequential read",
            Self::RandomWrite => "random write",
            Self::RandomRead => "random read",
        }
    }

    fn workload(self, direct: bool, runtime: Duration) -> Workload {
        let (rw, bs, iodepth) = match self {
            Self::Latency => (Rw::RandRead, RANDOM_BYTES, 1),
            Self::SequentialWrite => (Rw::Write, SEQUENTIAL_BYTES, SEQUENTIAL_DEPTH),
            Self::SequentialRead => (Rw::Read, SEQUENTIAL_BYTES, SEQUENTIAL_DEPTH),
            Self::RandomWrite => (Rw::RandWrite, RANDOM_BYTES, RANDOM_DEPTH),
            Self::RandomRead => (Rw::RandRead, RANDOM_BYTES, RANDOM_DEPTH),
        };
        Workload {
            name: self.words().to_owned(),
            rw,
            bs,
            iodepth,
            runtime: Some(runtime),
            time_based: true,
            ramp_time: runtime / RAMP,
            direct,
            ..Workload::default()
        }
    }

    /// The run's figure: nanoseconds, bytes a second or requests a second.
    fn figure(self, record: &RunRecord) -> f64 {
        match self {
            Self::Latency => record.latency().mean(),
            Self::SequentialWrite | Self::SequentialRead => record.bandwidth_bytes_per_s(),
            Self::RandomWrite | Self::RandomRead => record.iops(),
        }
    }
}

/// A device with what was seen of it.
#[derive(Debug)]
pub(super) struct Measuring {
    device: DeviceLevel,
    samples: [Vec<f64>; Run::ALL.len()],
    region_bytes: Option<u64>,
    warnings: Vec<Warning>,
    /// Why it is not measured any more.
    problem: Option<Problem>,
}

impl DeviceLevel {
    /// Opens it as its runs will, to see whether it can be measured at all, and written if it is to be.
    pub fn try_out(&mut self) -> Result<(), Problem> {
        let job = self.target.job(&Run::Latency.workload(self.direct, Duration::from_secs(1)))?;
        self.capacity_bytes = self.capacity_bytes.or(Some(job.device.size()));
        drop(job);
        if self.writes {
            self.target
                .opened_for_writing(&Run::RandomWrite.workload(self.direct, Duration::from_secs(1)))?;
        }
        Ok(())
    }

    /// Seconds that all rounds take.
    pub(super) fn expected(&self, rounds: u32, runtime: Duration) -> f64 {
        f64::from(rounds) * self.runs().count() as f64 * seconds(runtime)
    }

    fn runs(&self) -> impl Iterator<Item = Run> + use<> {
        let writes = self.writes;
        let reads = |run: Run| !run.workload(false, Duration::ZERO).rw.modifies();
        Run::ALL.into_iter().filter(move |run| writes || reads(*run))
    }
}

/// A run with its ramp and what is around it.
fn seconds(runtime: Duration) -> f64 {
    (runtime + runtime / RAMP).as_secs_f64() + 0.05
}

/// Measures all devices, round by round. A device that fails is left alone from then on.
pub(super) fn measure(
    devices: Vec<DeviceLevel>,
    rounds: u32,
    runtime: Duration,
    stop: &AtomicBool,
    teller: &Teller<'_>,
) -> Vec<Measuring> {
    let begin = |device| Measuring {
        device,
        samples: Default::default(),
        region_bytes: None,
        warnings: Vec::new(),
        problem: None,
    };
    let mut all: Vec<Measuring> = devices.into_iter().map(begin).collect();
    for _ in 0..rounds {
        for one in &mut all {
            for run in one.device.runs() {
                if stop.load(Ordering::Relaxed) || one.problem.is_some() {
                    break;
                }
                teller.tell(&format!("{}, {}", one.device.name, run.words()));
                one.run(run, runtime, stop);
                teller.done(seconds(runtime));
            }
        }
    }
    all
}

impl Measuring {
    fn run(&mut self, run: Run, runtime: Duration, stop: &AtomicBool) {
        let workload = run.workload(self.device.direct, runtime);
        let options = RunOptions { stop: Some(stop), ..RunOptions::default() };
        match self.device.target.run_once(&workload, options) {
            Err(problem) => self.problem = Some(problem),
            // A part of a run would stand beside whole ones.
            Ok(outcome) if outcome.interrupted => {}
            Ok(outcome) => outcome.records.iter().for_each(|record| self.note(run, record)),
        }
    }

    fn note(&mut self, run: Run, record: &RunRecord) {
        self.samples[run as usize].push(run.figure(record));
        self.region_bytes = self.region_bytes.or(Some(record.target.size_bytes).filter(|bytes| *bytes > 0));
        for warning in &record.warnings {
            // Every run here is a closed loop, and its latency is what one of them is made for.
            let expected = warning.code == WarningCode::ClosedLoop;
            if !expected && self.warnings.iter().all(|known| known.code != warning.code) {
                let message = format!("{}: {}", run.words(), warning.message);
                self.warnings.push(Warning::new(warning.code, message));
            }
        }
    }

    /// The level with its figures, at this clock; and why it was not measured to the end.
    pub(super) fn finish(self, frequency_hz: Option<f64>) -> (Level, Option<Problem>) {
        let estimate = |run: Run| median_estimate(&self.samples[run as usize], DEFAULT_LEVEL);
        let cycles = |hz: f64| -> Option<Estimate> {
            let samples: Vec<f64> =
                self.samples[Run::Latency as usize].iter().map(|ns| ns * hz / 1e9).collect();
            median_estimate(&samples, DEFAULT_LEVEL)
        };
        let level = Level {
            latency_ns: estimate(Run::Latency),
            latency_cycles: frequency_hz.and_then(cycles),
            figures: FourFigures {
                sequential_write_bytes_per_s: estimate(Run::SequentialWrite),
                sequential_read_bytes_per_s: estimate(Run::SequentialRead),
                random_write_iops: estimate(Run::RandomWrite),
                random_read_iops: estimate(Run::RandomRead),
            },
            requests: Requests {
                set_bytes: self.region_bytes.or(self.device.capacity_bytes),
                sequential_bytes: Some(SEQUENTIAL_BYTES),
                sequential_depth: Some(SEQUENTIAL_DEPTH),
                random_bytes: RANDOM_BYTES,
                random_depth: Some(RANDOM_DEPTH),
            },
            name: self.device.name,
            kind: self.device.kind,
            about: self.device.about,
            capacity_bytes: self.device.capacity_bytes,
            knee_bytes: None,
            sighting: None,
            notes: self.device.notes,
            warnings: self.warnings,
        };
        (level, self.problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::TargetOptions;

    fn memory(writes: bool) -> DeviceLevel {
        DeviceLevel {
            name: "mem".into(),
            kind: Kind::RemoteMemory,
            about: String::new(),
            capacity_bytes: None,
            target: BenchTarget::new("mem:8m", TargetOptions::default()).expect("a spec"),
            direct: true,
            writes,
            notes: Vec::new(),
        }
    }

    fn measured(device: DeviceLevel, stop: bool) -> (Level, Option<Problem>) {
        let all =
            measure(vec![device], 2, Duration::from_millis(5), &AtomicBool::new(stop), &Teller::silent());
        all.into_iter().next().expect("one device").finish(Some(2e9))
    }

    #[test]
    fn a_device_that_may_be_written_has_all_figures() {
        let mut device = memory(true);
        device.try_out().expect("opens");
        let (level, problem) = measured(device, false);
        assert!(problem.is_none(), "{problem:?}");
        let four = level.figures;
        for figure in [
            level.latency_ns,
            four.sequential_write_bytes_per_s,
            four.sequential_read_bytes_per_s,
            four.random_write_iops,
            four.random_read_iops,
        ] {
            let figure = figure.expect("was measured");
            assert!(figure.samples == 2 && figure.value > 0.0, "{level:?}");
        }
        let (ns, cycles) = (level.latency_ns.expect("is there"), level.latency_cycles.expect("is there"));
        assert!((cycles.value / ns.value - 2.0).abs() < 1e-9);
        assert_eq!(level.capacity_bytes, Some(8 << 20));
        assert!(level.warnings.iter().all(|w| w.code != WarningCode::ClosedLoop));
    }

    #[test]
    fn nothing_is_written_where_it_may_not_be() {
        let (level, _) = measured(memory(false), false);
        let four = level.figures;
        assert!(four.sequential_read_bytes_per_s.is_some() && four.random_read_iops.is_some());
        assert!(four.sequential_write_bytes_per_s.is_none() && four.random_write_iops.is_none());
    }

    #[test]
    fn a_device_that_fails_says_why_and_a_stopped_one_has_no_figures() {
        let target = BenchTarget::new("/no/such/device", TargetOptions::default()).expect("a spec");
        let (level, problem) = measured(DeviceLevel { target, ..memory(true) }, false);
        assert!(level.latency_ns.is_none() && problem.is_some());
        let (level, problem) = measured(memory(true), true);
        assert!(level.latency_ns.is_none() && problem.is_none());
    }
}
