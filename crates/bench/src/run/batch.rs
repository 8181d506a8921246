//! How many requests one system call hands over.

use measure::workload::{LatencyClock, Workload};

/// The most requests that one system call hands over.
///
/// A call hands over what the last reap has made room for. So a drive that answers its requests one by one gets them
/// one by one, and a drive that answers in groups gets groups, up to these limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    /// Where nothing is in flight, because every request was served inside its submission (from the page cache, for
    /// instance): large enough that the system call's share is small, small enough to keep to a few warm buffers.
    pub inline: usize,
    /// Where requests are under way: an eighth of the depth, and 32 from depth 128 on. A larger burst waits in the drive's
    /// queue behind itself. A virtio disk gave a sixth fewer IOPS at depth 32 with bursts of 32 than with 4, and a fifth
    /// fewer (95 %: 0 to 39 %) with 8; at depth 128 bursts of 32 cost it nothing.
    pub under_way: usize,
}

/// Limits of [`Batch::under_way`]. At 32 the system call's share of a request is below a hundredth.
const SMALLEST_GROUP: usize = 4;
const LARGEST_GROUP: usize = 32;
/// From this depth on the queue is so long that a burst of [`LARGEST_GROUP`] is a small part of it.
const DEEP: usize = 128;
/// The most bytes whose contents are made before they are handed over: some 20 µs.
const MADE_AT_ONCE_BYTES: usize = 128 << 10;

impl Batch {
    pub fn new(workload: &Workload, engine: &str) -> Self {
        let depth = workload.iodepth as usize;
        let fixed = match (workload.latency_clock, workload.iodepth_batch) {
            (LatencyClock::Each, _) => 1,
            // Requests to other hosts are gathered: what is sent together costs one system call on either side, and
            // the drive's queue is not theirs.
            (LatencyClock::Batch, 0) if engine == "nbd" => depth,
            (LatencyClock::Batch, 0) => {
                // Contents are made for each write, and the drive need not wait until those of many are.
                let made_at_once = match workload.rw.writes() {
                    true => (MADE_AT_ONCE_BYTES / workload.max_bs().max(1) as usize).max(1),
                    false => usize::MAX,
                };
                let group = if depth >= DEEP { LARGEST_GROUP } else { (depth / 8).max(SMALLEST_GROUP) };
                let under_way = group.min(made_at_once);
                return Self { inline: LARGEST_GROUP.min(made_at_once), under_way };
            }
            (LatencyClock::Batch, asked) => asked as usize,
        };
        Self { inline: fixed, under_way: fixed }
    }

    #[inline]
    pub fn with(self, in_flight: u32) -> usize {
        if in_flight == 0 { self.inline } else { self.under_way }
    }
}
