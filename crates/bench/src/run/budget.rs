//! How much a thread is to do.

use measure::dealing::Region;
use measure::workload::Workload;

/// How many bytes a thread is to move: everything, or until told to stop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    left: u64,
    /// A request may begin before the end of the budget and reach beyond it.
    overshoots: bool,
}

impl Budget {
    /// The whole blocks of the region; of an `io_size` so many requests as fio makes, which begins one as long as anything
    /// is left.
    pub fn new(workload: &Workload, region: &Region) -> Self {
        if workload.time_based {
            return Self { left: u64::MAX, overshoots: false };
        }
        let unit = workload.min_bs();
        let loops = u64::from(workload.loops);
        let left = match workload.io_size {
            Some(bytes) => bytes.saturating_mul(loops).div_ceil(unit).saturating_mul(unit),
            None => (region.length / unit * unit).saturating_mul(loops),
        };
        Self { left, overshoots: workload.io_size.is_some() }
    }

    /// So many bytes, as often as `loops` says.
    pub fn of(bytes: u64, workload: &Workload) -> Self {
        Self { left: bytes.saturating_mul(u64::from(workload.loops)), overshoots: false }
    }

    /// The largest request that may be made.
    pub fn most(&self) -> u64 {
        if self.overshoots { u64::MAX } else { self.left }
    }

    #[inline]
    pub fn take(&mut self, bytes: u64) -> bool {
        if self.left < bytes {
            let fits = self.overshoots && self.left > 0;
            self.left = 0;
            return fits;
        }
        // A budget of u64::MAX outlasts every drive.
        self.left -= bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_moves_its_region_or_its_io_size_as_often_as_loops_says() {
        let region = Region { start: 0, length: 10 * 4096 + 100, job: 0 };
        let requests = |workload: &Workload| {
            let mut budget = Budget::new(workload, &region);
            (0..1000).take_while(|_| budget.take(workload.bs)).count()
        };
        assert_eq!(requests(&Workload::default()), 10);
        assert_eq!(requests(&Workload { loops: 3, ..Workload::default() }), 30);
        assert_eq!(requests(&Workload { io_size: Some(6 * 4096), ..Workload::default() }), 6);
        assert_eq!(requests(&Workload { io_size: Some(6 * 4096 + 1), ..Workload::default() }), 7);
        assert_eq!(requests(&Workload { io_size: Some(25 * 4096), loops: 2, ..Workload::default() }), 50);
        assert_eq!(
            requests(&Workload { io_size: Some(4096), time_based: true, ..Workload::default() }),
            1000
        );
    }

    #[test]
    fn the_last_request_of_an_io_size_may_reach_beyond_it_and_that_of_a_region_may_not() {
        let region = Region { start: 0, length: 12288, job: 0 };
        let mut of_region = Budget::new(&Workload::default(), &region);
        assert_eq!(of_region.most(), 12288);
        assert!(of_region.take(8192) && !of_region.take(8192));
        let mut of_size = Budget::new(&Workload { io_size: Some(12288), ..Workload::default() }, &region);
        assert!(of_size.take(8192) && of_size.take(8192) && !of_size.take(4096));
    }
}
