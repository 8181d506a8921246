//! How a sorter divides its memory.
//!
//! *Forming runs*: each thread has one chunk that it sorts and one as scratch, one chunk is being filled, one waits; and each
//! thread has buffers for blocks that are being written. *Merging*: each thread has one batch that it sorts and one as
//! scratch, one batch is gathered, one waits, one is consumed; the rest is blocks, one for each run, and some ahead.
//!
//! A [`TABLE_SHARE`] of the budget is left for the tables of blocks, which grow with the data.

use crate::ExternalError;

/// One part in this many is for tables.
const TABLE_SHARE: u64 = 16;
/// Most blocks that a thread has under way as it writes a run.
const WRITE_BUFFERS: u64 = 8;
/// Most blocks that are read ahead in a merge.
const AHEAD: u64 = 64;
/// Longest batch of a merge, bytes: a batch and its scratch stay in the second-level cache.
const LARGEST_BATCH: u64 = 1 << 20;
/// Blocks of the shortest chunk that a thread is worth: each run ends with a block that is not full.
const LEAST_CHUNK: u64 = 4;
/// The fewest runs that a merge can take at a time.
const MIN_FAN_IN: u64 = 4;

/// What each part of the work may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Threads besides the caller's and the one that reads.
    pub threads: usize,
    /// Records of a chunk.
    pub chunk: usize,
    /// Block buffers of each thread that writes runs.
    pub write_buffers: u32,
    /// Records of a batch.
    pub batch: usize,
    /// Block buffers of a merge whose result is consumed in memory.
    pub read_buffers: u32,
    /// Of those, how many are read ahead.
    pub ahead: u32,
}

impl Plan {
    /// Divides `memory` bytes for records of `record` bytes in blocks of `block`.
    pub fn new(memory: u64, threads: usize, record: usize, block: usize) -> Result<Self, ExternalError> {
        let (record, block) = (record as u64, block as u64);
        let budget = memory - memory / TABLE_SHARE;
        // Fewer threads where each would get too little. A thread takes more than a block in any case.
        let mut threads = (threads.max(1) as u64).min((budget / block).max(1));
        let chunk_bytes = |threads: u64| budget.saturating_sub(threads * 2 * block) / (2 * threads + 2);
        while threads > 1
            && (budget / block < Self::least_blocks(threads) * 2
                || chunk_bytes(threads) < LEAST_CHUNK * block)
        {
            threads -= 1;
        }
        if budget / block < Self::least_blocks(threads) {
            let needed = (Self::least_blocks(threads) * block * TABLE_SHARE).div_ceil(TABLE_SHARE - 1);
            return Err(ExternalError::TooLittleMemory { what: "sorting", needed, given: memory });
        }
        let write_buffers = (budget / 16 / threads / block).clamp(2, WRITE_BUFFERS);
        let chunk = (budget - threads * write_buffers * block) / (2 * threads + 2) / record;
        let batches = 2 * threads + 3;
        let batch_bytes = (budget / 4 / batches).clamp(block / 2, LARGEST_BATCH);
        let read_buffers = (budget - batches * batch_bytes) / block;
        let ahead = (read_buffers / 4).clamp(2, AHEAD);
        Ok(Self {
            threads: threads as usize,
            chunk: chunk as usize,
            write_buffers: write_buffers as u32,
            batch: (batch_bytes / record) as usize,
            read_buffers: read_buffers.min(32_768) as u32,
            ahead: ahead as u32,
        })
    }

    /// How many runs one merge takes.
    pub fn fan_in(&self) -> usize {
        (self.read_buffers - self.ahead) as usize
    }

    /// Block buffers of a merge whose result is written again, beside those for writing.
    pub fn inner_read_buffers(&self) -> u32 {
        self.read_buffers - self.write_buffers.min(2)
    }

    /// Blocks that the least division needs: in a merge, half a block for each batch, and the fewest runs with two
    /// blocks ahead and two that are written.
    fn least_blocks(threads: u64) -> u64 {
        (2 * threads + 3).div_ceil(2) + MIN_FAN_IN + 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_phase_takes_more_than_the_budget() {
        for memory in [1 << 20, 3 << 20, 64 << 20, 5 << 30_u64] {
            for threads in [1, 2, 7, 64, 256, usize::MAX] {
                for (record, block) in [(8, 4096), (16, 32 << 10), (24, 64 << 10), (4, 16 << 10)] {
                    let Ok(plan) = Plan::new(memory, threads, record, block) else { continue };
                    let t = plan.threads as u64;
                    let (record, block) = (record as u64, block as u64);
                    let forming =
                        (2 * t + 2) * plan.chunk as u64 * record + t * u64::from(plan.write_buffers) * block;
                    let merging =
                        (2 * t + 3) * plan.batch as u64 * record + u64::from(plan.read_buffers) * block;
                    assert!(forming.max(merging) <= memory, "{memory} {plan:?}");
                    assert!(plan.fan_in() >= MIN_FAN_IN as usize && plan.ahead >= 2, "{memory} {plan:?}");
                    assert!(plan.chunk > 0 && plan.batch > 0 && plan.write_buffers >= 2);
                    // Or scratch space is mostly blocks that are not full.
                    let is_long = plan.chunk as u64 * record >= LEAST_CHUNK * block / 2;
                    assert!(is_long || t == 1, "{memory} {plan:?}");
                }
            }
        }
    }

    #[test]
    fn too_little_memory_says_how_much_would_do() {
        let Err(ExternalError::TooLittleMemory { needed, given, .. }) = Plan::new(100_000, 4, 8, 128 << 10)
        else {
            panic!("is refused")
        };
        assert_eq!(given, 100_000);
        assert!(Plan::new(needed, 1, 8, 128 << 10).is_ok());
        assert!(Plan::new(needed - needed / 16, 1, 8, 128 << 10).is_err());
    }
}
