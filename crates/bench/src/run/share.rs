//! Which thread works on which part of which device, and with how much of the load.
//!
//! On one device, or a stripe, `numjobs` threads share it ([`divide`]). **Separate** devices have no address
//! space that they could share, so each device gets `numjobs` threads of its own, and the load is dealt out:
//!
//! - `iodepth` of a job is divided among its threads, one on each device, so that their depths differ by one at
//!   most and add up to `iodepth`; each is at least 1. `iodepth_batch` and `iodepth_batch_complete_min` hold for
//!   each thread, as far as its depth goes.
//! - `size`, `rate_iops` and `rate` are divided likewise; of `size` each device gets an equal part, in whole blocks.
//! - `offset` and `offset_increment` are places on each device. Everything else holds for each thread as it stands;
//!   each has a seed of its own.
//!
//! Threads are numbered device by device.

use std::sync::Arc;

use measure::Workload;
use measure::workload::InvalidWorkload;
use storage::device::{Device, DeviceKind};

use super::region::{Region, divide};
use super::{BenchError, Job};

/// The most threads of a job: as many as `numjobs` may be.
const MOST_THREADS: u64 = 4096;

/// One thread's share of a job.
#[derive(Debug, Clone)]
pub(super) struct Share {
    pub device: Arc<dyn Device>,
    /// What this thread is to do, and no other.
    pub workload: Workload,
    pub region: Region,
}

/// The shares of a job's threads.
pub(super) fn shares(job: &Job) -> Result<Vec<Share>, BenchError> {
    let (workload, device) = (&job.workload, &job.device);
    let on = |device: &Arc<dyn Device>, workload: &Workload, first: u32| {
        let regions = divide(workload, device.spec(), device.size())?;
        let share = |region: Region| Share {
            device: Arc::clone(device),
            workload: workload.clone(),
            region: Region { job: first + region.job, ..region },
        };
        Ok(regions.into_iter().map(share).collect::<Vec<_>>())
    };
    if device.kind() != DeviceKind::Separate {
        return on(device, workload, 0);
    }
    let members = device.members();
    if u64::from(workload.numjobs) * members.len() as u64 > MOST_THREADS {
        return Err(too_many_threads(workload, members.len()).into());
    }
    let mut shares = Vec::new();
    for (member, number) in members.iter().zip(0..) {
        let part = part_of(workload, members.len() as u32, number)?;
        shares.extend(on(member, &part, number * workload.numjobs)?);
    }
    Ok(shares)
}

/// What a thread on member `number` of `members` separate devices is to do of a workload.
///
/// # Errors
/// [`InvalidWorkload`] where there is less of a rate than one for each device.
pub(crate) fn part_of(w: &Workload, members: u32, number: u32) -> Result<Workload, InvalidWorkload> {
    let part = |whole: u64| {
        let (each, rest) = (whole / u64::from(members), whole % u64::from(members));
        each + u64::from(u64::from(number) < rest)
    };
    let rate = |option, whole: Option<u64>| match whole.map(part) {
        Some(0) => Err(InvalidWorkload {
            option,
            value: whole.unwrap_or(0).to_string(),
            reason: "is less than one for each of the separate devices",
            hint: "raise it, or name fewer devices",
        }),
        part => Ok(part),
    };
    let iodepth = (part(u64::from(w.iodepth)) as u32).max(1);
    let unit = w.min_bs().max(1);
    Ok(Workload {
        iodepth,
        iodepth_batch: w.iodepth_batch.min(iodepth),
        iodepth_batch_complete_min: w.iodepth_batch_complete_min.min(iodepth),
        size: w.size.map(|size| size / u64::from(members) / unit * unit),
        rate_iops: rate("rate_iops", w.rate_iops)?,
        rate: rate("rate", w.rate)?,
        ..w.clone()
    })
}

fn too_many_threads(workload: &Workload, members: usize) -> InvalidWorkload {
    InvalidWorkload {
        option: "numjobs",
        value: format!("{} on each of {members} separate devices", workload.numjobs),
        reason: "comes to more than 4096 threads",
        hint: "lower --numjobs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(workload: &Workload, members: u32) -> Vec<Workload> {
        (0..members).map(|n| part_of(workload, members, n).expect("can be divided")).collect()
    }

    #[test]
    fn depths_differ_by_one_at_most_and_add_up() {
        for (iodepth, members) in [(32, 4), (32, 5), (7, 7), (100, 16)] {
            let parts = parts(&Workload { iodepth, ..Workload::default() }, members);
            let depths: Vec<u32> = parts.iter().map(|w| w.iodepth).collect();
            assert_eq!(depths.iter().sum::<u32>(), iodepth);
            let (least, most) = (depths.iter().min().unwrap(), depths.iter().max().unwrap());
            assert!(most - least <= 1, "{depths:?}");
        }
    }

    #[test]
    fn every_device_has_a_request_in_flight_however_small_the_depth() {
        let parts = parts(&Workload { iodepth: 2, ..Workload::default() }, 4);
        assert!(parts.iter().all(|w| w.iodepth == 1));
    }

    #[test]
    fn rates_and_sizes_are_dealt_out() {
        let workload =
            Workload { rate_iops: Some(10), size: Some(10 * 4096 + 5), iodepth: 8, ..Workload::default() };
        let parts = parts(&workload, 4);
        assert_eq!(parts.iter().map(|w| w.rate_iops.unwrap()).collect::<Vec<_>>(), [3, 3, 2, 2]);
        assert!(parts.iter().all(|w| w.size == Some(2 * 4096)));
    }

    #[test]
    fn batches_do_not_exceed_a_threads_depth() {
        let workload =
            Workload { iodepth: 8, iodepth_batch: 8, iodepth_batch_complete_min: 4, ..Workload::default() };
        for part in parts(&workload, 4) {
            part.validate().expect("each part is a workload");
            assert_eq!((part.iodepth_batch, part.iodepth_batch_complete_min), (2, 2));
        }
    }

    #[test]
    fn a_rate_below_one_for_each_device_is_refused() {
        let workload = Workload { rate_iops: Some(3), ..Workload::default() };
        let error = (0..4).find_map(|n| part_of(&workload, 4, n).err()).expect("one gets nothing");
        assert_eq!((error.option, error.value.as_str()), ("rate_iops", "3"));
    }
}
