//! What each job gets of a workload: its part of the target, and on separate devices its part of the load.
//!
//! On one device, or a stripe, `numjobs` jobs share it ([`regions`]). **Separate** devices have no address space that they
//! could share, so each device gets `numjobs` jobs of its own, and the load is dealt out ([`part_of`]):
//!
//! - `iodepth` is divided among the devices, so that depths differ by one at most and add up to `iodepth`; each is at least
//!   1. `iodepth_batch` and `iodepth_batch_complete_min` hold for each job, as far as its depth goes.
//! - `size`, `io_size`, `number_ios`, `rate_iops` and `rate` are divided likewise; of `size` and `io_size` each device gets
//!   an equal part, in whole blocks.
//! - `offset` and `offset_increment` are places on each device. Everything else holds for each job as it stands; each has a
//!   seed of its own.
//!
//! Jobs are numbered device by device.

use crate::workload::{InvalidWorkload, Workload};

/// A job's part of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Where it begins.
    pub start: u64,
    /// Its length.
    pub length: u64,
    /// The job's number, from 0.
    pub job: u32,
}

/// A device is too small for the regions of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooSmall {
    /// Bytes that it would need to have, at least.
    pub needed: u64,
}

/// Divides a device of `size` bytes among the jobs of a workload. With `offset_increment` job n begins n increments further;
/// otherwise the used part is cut into equal shares, so that no two jobs walk the same offsets.
///
/// # Errors
/// [`TooSmall`] where a region would reach beyond the end, or would not hold a request.
pub fn regions(workload: &Workload, size: u64) -> Result<Vec<Region>, TooSmall> {
    let bs = workload.max_bs();
    let too_small = |needed| TooSmall { needed };
    let unit = workload.min_bs();
    let available =
        size.checked_sub(workload.offset).ok_or_else(|| too_small(workload.offset.saturating_add(bs)))?;
    let jobs = u64::from(workload.numjobs);
    let used = workload.size.unwrap_or(available);
    if used > available {
        return Err(too_small(workload.offset.saturating_add(used)));
    }
    let mut regions = Vec::new();
    for job in 0..workload.numjobs {
        let n = u64::from(job);
        let (start, length) = match workload.offset_increment {
            Some(step) => {
                let start = workload.offset.saturating_add(step.saturating_mul(n));
                let length = workload.size.unwrap_or(size.saturating_sub(start));
                (start, length)
            }
            None => {
                let share = used / jobs / unit * unit;
                (workload.offset + share * n, share)
            }
        };
        if start.saturating_add(length) > size {
            return Err(too_small(start.saturating_add(length)));
        }
        if length < bs {
            return Err(too_small(workload.offset.saturating_add(bs.saturating_mul(jobs))));
        }
        regions.push(Region { start, length, job });
    }
    Ok(regions)
}

/// What a thread on member `number` of `members` separate devices is to do of a workload.
///
/// # Errors
/// [`InvalidWorkload`] where there is less of a rate than one for each device.
pub fn part_of(w: &Workload, members: u32, number: u32) -> Result<Workload, InvalidWorkload> {
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
        io_size: w.io_size.map(|bytes| (bytes / u64::from(members) / unit * unit).max(w.max_bs())),
        number_ios: w.number_ios.map(|requests| part(requests).max(1)),
        rate_iops: rate("rate_iops", w.rate_iops)?,
        rate: rate("rate", w.rate)?,
        ..w.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts_and_lengths(workload: &Workload, size: u64) -> Vec<(u64, u64)> {
        regions(workload, size).expect("fits").iter().map(|r| (r.start, r.length)).collect()
    }

    #[test]
    fn shares_are_equal_aligned_and_disjoint() {
        let workload = Workload { numjobs: 3, offset: 4096, ..Workload::default() };
        let regions = starts_and_lengths(&workload, 4096 * 11);
        assert_eq!(regions, [(4096, 12288), (16384, 12288), (28672, 12288)]);
    }

    #[test]
    fn an_increment_places_each_job_as_fio_does() {
        let workload =
            Workload { numjobs: 2, offset_increment: Some(0), size: Some(8192), ..Workload::default() };
        assert_eq!(starts_and_lengths(&workload, 65536), [(0, 8192), (0, 8192)]);
        let workload = Workload { offset_increment: Some(16384), ..workload };
        assert_eq!(starts_and_lengths(&workload, 65536), [(0, 8192), (16384, 8192)]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for workload in [
            Workload { size: Some(1 << 20), ..Workload::default() },
            Workload { offset: 1 << 20, ..Workload::default() },
            Workload { numjobs: 64, bs: 4096, ..Workload::default() },
            Workload { numjobs: 2, offset_increment: Some(65536), ..Workload::default() },
        ] {
            assert!(regions(&workload, 65536).is_err(), "{workload:?}");
        }
    }

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
