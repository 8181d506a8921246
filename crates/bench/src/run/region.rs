//! Which part of a device each thread works on.

use measure::Workload;

use super::BenchError;

/// A thread's part of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Region {
    pub start: u64,
    pub length: u64,
    /// The thread's number within its job, from 0.
    pub job: u32,
}

/// Divides a device of `size` bytes among the threads of a workload. With `offset_increment` thread n
/// begins n increments further; otherwise the used part is cut into equal shares, so that no two
/// threads walk the same offsets.
pub(super) fn divide(workload: &Workload, device: &str, size: u64) -> Result<Vec<Region>, BenchError> {
    let bs = workload.max_bs();
    let too_small = |needed| BenchError::TooSmall { device: device.to_owned(), size, needed };
    let unit = workload.min_bs();
    let available = size.checked_sub(workload.offset).ok_or_else(|| too_small(workload.offset + bs))?;
    let jobs = u64::from(workload.numjobs);
    let used = workload.size.unwrap_or(available);
    if used > available {
        return Err(too_small(workload.offset + used));
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
            return Err(too_small(workload.offset + bs * jobs));
        }
        regions.push(Region { start, length, job });
    }
    Ok(regions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts_and_lengths(workload: &Workload, size: u64) -> Vec<(u64, u64)> {
        divide(workload, "d", size).expect("fits").iter().map(|r| (r.start, r.length)).collect()
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
            assert!(divide(&workload, "d", 65536).is_err(), "{workload:?}");
        }
    }
}
