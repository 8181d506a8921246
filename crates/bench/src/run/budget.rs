//! How much a thread is to do.

use measure::dealing::Region;
use measure::workload::Workload;

/// How many bytes a thread is to move: everything, or until told to stop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget(u64);

impl Budget {
    pub fn new(workload: &Workload, region: &Region) -> Self {
        if workload.time_based {
            return Self(u64::MAX);
        }
        let whole = |bytes: u64| bytes / workload.min_bs() * workload.min_bs();
        let once = whole(workload.io_size.unwrap_or(region.length));
        Self(once.saturating_mul(u64::from(workload.loops)))
    }

    #[inline]
    pub fn take(&mut self, bytes: u64) -> bool {
        if self.0 < bytes {
            return false;
        }
        // A budget of u64::MAX outlasts every drive.
        self.0 -= bytes;
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
        assert_eq!(requests(&Workload { io_size: Some(6 * 4096 + 1), ..Workload::default() }), 6);
        assert_eq!(requests(&Workload { io_size: Some(25 * 4096), loops: 2, ..Workload::default() }), 50);
        assert_eq!(
            requests(&Workload { io_size: Some(4096), time_based: true, ..Workload::default() }),
            1000
        );
    }
}
