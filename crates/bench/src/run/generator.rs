//! How many requests a thread of this program makes where a device answers each at once: the most that a figure can be.
//!
//! A figure near it is one of the CPU and not of the drive (`W-GENERATOR`). It is found by running the workload's shape on
//! [`Nothing`], whose requests are made, counted and timed as all others are, and cost the kernel and a drive nothing.
//!
//! 1. Only after a run one of whose threads was busy for [`GENERATOR_LIMIT`] of it: one that mostly waited, or for whose CPU others
//!    ran, cannot have spent half of its time making requests. So nearly all sweeps of drives calibrate nothing.
//! 2. After the run, so that nothing of it falls into a measured interval; each shape once a process, a tenth of a second.
//! 3. The fastest step of 10 ms counts: other programs that take the CPU away make steps slower, and none faster. Where they
//!    are many it is in none of them for long, and what the thread made in its own CPU time is more.
//! 4. A job that outran its shape shows that the shape was disturbed all the same. It is run again after such a run,
//!    [`TRIES`] times at most in all, and the most counts.
//!
//! What the shape leaves out (checksums of `verify`, synchronisation, rests) makes the limit higher, and a warning less
//! likely. Buffers of more than [`BUFFER_BYTES_MAX`] are not made a second time: the depth is lowered until they fit.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use measure::Workload;
use measure::record::{JobCounts, Sample};
use measure::workload::{IoEngine, Rw, WriteSync};
use storage::clock::Clock;
use storage::device::DeviceKind;
use storage::sysfs::Sysfs;

use super::nothing::Nothing;
use super::record::job_counts;
use super::share::Share;
use super::worker::Report;
use super::{Conduct, Job, RunOptions, run};
use crate::lies::Known;
use crate::lies::machine::GENERATOR_LIMIT;
use crate::observe::{Observer, Subject};
use crate::zones::Zones;

/// How long a shape is run.
const RUNTIME: Duration = Duration::from_millis(100);
/// Memory for the buffers: with more, filling them would take longer than the run.
const BUFFER_BYTES_MAX: u64 = 64 << 20;

/// How often a shape is run: a second in all, for a device that answers faster than [`Nothing`].
const TRIES: u32 = 10;

/// What a thread made of a shape.
struct Calibration {
    shape: Workload,
    /// Of the device that it ran on.
    size: u64,
    tries: u32,
    /// None before the first try, and where the shape could not be run.
    limit: Option<f64>,
}

/// The shapes that this process has run. Held while one runs, so that two do not take each other's CPU.
static CALIBRATIONS: Mutex<Vec<Calibration>> = Mutex::new(Vec::new());

/// Requests a second of one thread of a job that has run, if a device answered at once. None where nothing follows from
/// it: the job mostly waited, kept to a rate or rested, or moved no data, or others may still run.
pub(super) fn limit_iops(job: &Job, shares: &[Share], reports: &[Report]) -> Option<f64> {
    let share = shares.first()?;
    let (workload, conduct) = (&share.workload, &job.conduct);
    let is_paced = workload.is_open_loop() || workload.rests();
    let is_steered = conduct.burn.is_some() || conduct.latency.is_some() || conduct.flow.is_some();
    let moves_nothing = share.device.performs().is_some();
    // Jobs that begin and end at other times may still be measured.
    let is_beside_others = job.known.drives_are_shared;
    if is_paced || is_steered || is_beside_others || moves_nothing || workload.max_bs() > BUFFER_BYTES_MAX {
        return None;
    }
    let clock = Clock::get();
    let counts: Vec<_> = reports.iter().map(|report| job_counts(report, clock)).collect();
    if !counts.iter().any(|job| job.busy() >= GENERATOR_LIMIT) {
        return None;
    }
    let fastest = counts.iter().map(JobCounts::iops).fold(0.0, f64::max);
    let (shape, size) = (shape(workload), share.device.size());
    let mut known = CALIBRATIONS.lock().unwrap_or_else(PoisonError::into_inner);
    let at = known.iter().position(|other| other.size == size && other.shape == shape).unwrap_or_else(|| {
        known.push(Calibration { shape, size, tries: 0, limit: None });
        known.len() - 1
    });
    known[at].limit_for(fastest, calibrate)
}

impl Calibration {
    /// The limit for a job that made `fastest` requests a second.
    fn limit_for(
        &mut self,
        fastest: f64,
        calibrate: impl FnOnce(&Workload, u64) -> Option<f64>,
    ) -> Option<f64> {
        let is_outrun = self.limit.is_some_and(|limit| fastest > limit) && self.tries < TRIES;
        if self.tries == 0 || is_outrun {
            self.tries += 1;
            // None is less than any figure.
            let seen = calibrate(&self.shape, self.size);
            self.limit = if seen > self.limit { seen } else { self.limit };
        }
        self.limit
    }
}

/// What of a workload the work of its threads depends on, to be run by one of them.
fn shape(workload: &Workload) -> Workload {
    let depth = (BUFFER_BYTES_MAX / workload.max_bs().max(1)).clamp(1, u64::from(workload.iodepth)) as u32;
    let plain = Workload::default();
    Workload {
        name: String::new(),
        iodepth: depth,
        iodepth_batch: workload.iodepth_batch.min(depth),
        iodepth_batch_complete_min: workload.iodepth_batch_complete_min.min(depth),
        numjobs: 1,
        offset_increment: None,
        runtime: Some(RUNTIME),
        time_based: true,
        ramp_time: Duration::ZERO,
        io_size: None,
        loops: 1,
        number_ios: None,
        randseed: plain.randseed,
        verify: None,
        verify_interval: None,
        verify_pattern: None,
        verify_backlog: 0,
        direct: false,
        ioengine: IoEngine::Auto,
        hipri: false,
        sqthread_poll: false,
        fdatasync: 0,
        fsync: 0,
        sync: WriteSync::None,
        end_fsync: false,
        numa_cpu_nodes: None,
        cpus_allowed: None,
        cpus_allowed_policy: plain.cpus_allowed_policy,
        // Discards are calls of their own on every engine.
        rw: match workload.rw {
            Rw::Trim => Rw::Read,
            Rw::RandTrim => Rw::RandRead,
            other => other,
        },
        ..if workload.is_zbd() { workload.clone().without_zones() } else { workload.clone() }
    }
}

/// Runs a shape on nothing.
fn calibrate(shape: &Workload, size: u64) -> Option<f64> {
    let mut subject = Subject::default();
    subject.facts.kind = DeviceKind::Operations.word().to_owned();
    let job = Job {
        device: Arc::new(Nothing::new("null", size).ok()?),
        workload: shape.clone(),
        // There is nothing below a file, so that nothing is looked at.
        observer: Observer::new(Sysfs::at("/dev/null"), subject),
        known: Known::default(),
        conduct: Conduct::default(),
        zones: Zones::default(),
    };
    let outcome = run(&[job], RunOptions::default()).ok()?;
    let record = outcome.records.first()?;
    let job = record.jobs.first()?;
    // It never waits, so that its CPU time is what it would take alone.
    let alone = (job.busy() > 0.0).then(|| job.iops() / job.busy());
    fastest_step(&record.samples).into_iter().chain(alone).max_by(f64::total_cmp)
}

/// Requests a second in the fastest step. The last step ends with the run, and one much shorter than the first is no step.
fn fastest_step(samples: &[Sample]) -> Option<f64> {
    let whole_ns = samples.first()?.end_ns;
    let begins = std::iter::once(0).chain(samples.iter().map(|sample| sample.end_ns));
    let steps = samples.iter().zip(begins).map(|(sample, begin)| (sample.ios, sample.end_ns - begin));
    let rates = steps
        .filter(|(_, length_ns)| *length_ns > 0 && length_ns * 2 >= whole_ns)
        .map(|(ios, length_ns)| ios as f64 * 1e9 / length_ns as f64);
    rates.max_by(f64::total_cmp).filter(|rate| *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_whole_step_counts() {
        let sample = |end_ns, ios| Sample { end_ns, ios, ..Sample::default() };
        // The second step lost its CPU for a while; the last is a hundredth of one, and its rate an accident.
        let samples = [sample(10_000_000, 1000), sample(40_000_000, 1100), sample(40_100_000, 90)];
        assert_eq!(fastest_step(&samples), Some(100_000.0));
        assert_eq!(fastest_step(&[]), None);
        assert_eq!(fastest_step(&[sample(10_000_000, 0)]), None, "nothing was made");
    }

    #[test]
    fn a_shape_that_a_job_outran_is_run_again_and_its_fastest_run_counts() {
        let mut known = Calibration { shape: Workload::default(), size: 1, tries: 0, limit: None };
        let mut runs = 0;
        let mut limit_for = |fastest, seen| {
            known.limit_for(fastest, |_, _| {
                runs += 1;
                seen
            })
        };
        assert_eq!(limit_for(50.0, Some(100.0)), Some(100.0));
        assert_eq!(limit_for(100.0, Some(1.0)), Some(100.0), "the job is as fast, and the shape is not run");
        assert_eq!(limit_for(150.0, Some(90.0)), Some(100.0), "the second run was disturbed as well");
        assert_eq!(limit_for(150.0, Some(200.0)), Some(200.0));
        assert_eq!(limit_for(250.0, None), Some(200.0));
        for _ in 0..20 {
            assert_eq!(limit_for(250.0, Some(210.0)), Some(210.0));
        }
        assert_eq!(runs, TRIES);
    }

    #[test]
    fn every_shape_is_a_workload_that_runs_and_needs_little_memory() {
        let deep = Workload { bs: 4 << 20, iodepth: 512, iodepth_batch: 300, ..Workload::default() };
        let shaped = shape(&deep);
        assert_eq!((shaped.iodepth, shaped.iodepth_batch), (16, 16));
        let checked =
            Workload { rw: Rw::Write, verify: Some(measure::workload::Verify::Xxh3), ..deep.clone() };
        let split = Workload {
            cpus_allowed: Some("0".parse().expect("a list")),
            cpus_allowed_policy: measure::placement::CpusAllowedPolicy::Split,
            numjobs: 8,
            number_ios: Some(1),
            ..deep
        };
        for workload in [checked, split, Workload { rw: Rw::RandTrim, ..Workload::default() }] {
            let shape = shape(&workload);
            assert_eq!(shape.validate(), Ok(()), "{}", workload.summary());
            assert!(calibrate(&shape, 1 << 30).is_some(), "{}", workload.summary());
        }
    }
}
