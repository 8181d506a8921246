//! What a checkpoint's blocks hold: each proves of which leg, task, step and offset it is.
//!
//! A block of 4 KiB has the header of `bench`'s verification ([`bench::verify::Header`]), whose generation here is
//! leg, task and step, and whose checksum covers the whole block. The rest is random, so that nothing compresses and no two
//! blocks are alike.

use bench::verify::{Header, VerifyFailure};
use measure::workload::Verify;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;

/// Which checkpoint file a block is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stamp {
    /// The leg of the run, modulo 2^16.
    pub leg: u16,
    /// The task; below 2^24.
    pub task: u32,
    /// The number of the checkpoint; below 2^24.
    pub step: u32,
}

/// Tasks and steps are below this.
pub const STAMP_LIMIT: u32 = 1 << 24;

impl Stamp {
    fn generation(self) -> u64 {
        (u64::from(self.leg) << 48) | (u64::from(self.task) << 24) | u64::from(self.step)
    }

    fn of(generation: u64) -> Self {
        let low = |n: u64| (n & u64::from(STAMP_LIMIT - 1)) as u32;
        Self { leg: (generation >> 48) as u16, task: low(generation >> 24), step: low(generation) }
    }

    fn header(self, offset: u64) -> Header {
        Header { generation: self.generation(), offset, length: BLOCK_BYTES as u32 }
    }

    /// Marks the blocks of a buffer that is to lie at `offset` of the file.
    pub fn seal(self, buffer: &mut [u8], offset: u64) {
        for (block, at) in buffer.chunks_exact_mut(BLOCK_BYTES).zip((offset..).step_by(BLOCK_BYTES)) {
            self.header(at).seal(Verify::Xxh3, block);
        }
    }

    /// Compares the blocks of a buffer that lay at `offset` of the file; how many there are.
    ///
    /// # Errors
    /// What is wrong with the first that is not right.
    pub fn check(self, buffer: &[u8], offset: u64) -> Result<u64, String> {
        let mut blocks = 0;
        for (block, at) in buffer.chunks_exact(BLOCK_BYTES).zip((offset..).step_by(BLOCK_BYTES)) {
            self.header(at).check(Verify::Xxh3, block).map_err(|failure| self.words(at, &failure))?;
            blocks += 1;
        }
        Ok(blocks)
    }

    fn words(self, at: u64, failure: &VerifyFailure) -> String {
        let Self { leg, task, step } = self;
        let expected = format!("the block at offset {at} of task {task}, step {step} (leg {leg})");
        match failure {
            VerifyFailure::NoHeader { .. } => format!("{expected} was never written, or is wiped"),
            VerifyFailure::Corrupt { .. } | VerifyFailure::OffPattern { .. } => {
                format!("{expected} is damaged: its checksum is wrong")
            }
            VerifyFailure::Misplaced { found, .. } | VerifyFailure::Stale { found, .. } => {
                let Self { leg, task, step } = Self::of(found.generation);
                format!(
                    "{expected} is that of offset {} of task {task}, step {step} (leg {leg})",
                    found.offset
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { leg: 7, task: STAMP_LIMIT - 1, step: 3 };

    fn sealed(stamp: Stamp, offset: u64) -> Vec<u8> {
        let mut buffer = vec![1; 4 * BLOCK_BYTES];
        stamp.seal(&mut buffer, offset);
        buffer
    }

    #[test]
    fn a_block_proves_its_leg_task_step_and_offset() {
        assert_eq!(Stamp::of(STAMP.generation()), STAMP);
        let right = sealed(STAMP, 8192);
        assert_eq!(STAMP.check(&right, 8192), Ok(4));
        let wrong = |stamp: Stamp, offset| stamp.check(&right, offset).unwrap_err();
        let text = wrong(Stamp { step: 4, ..STAMP }, 8192);
        assert_eq!(
            text,
            "the block at offset 8192 of task 16777215, step 4 (leg 7) is that of offset 8192 of task 16777215, step 3 (leg 7)"
        );
        assert!(wrong(Stamp { task: 1, ..STAMP }, 8192).contains("of task 1, step 3"));
        assert!(wrong(Stamp { leg: 8, ..STAMP }, 8192).contains("(leg 8) is that of"));
        assert!(wrong(STAMP, 4096).contains("is that of offset 8192"));
    }

    #[test]
    fn a_damaged_and_a_missing_block_are_told_from_each_other() {
        let mut buffer = sealed(STAMP, 0);
        buffer[3 * BLOCK_BYTES + 100] ^= 1;
        let text = STAMP.check(&buffer, 0).unwrap_err();
        assert!(text.contains("offset 12288") && text.contains("is damaged"), "{text}");
        buffer[BLOCK_BYTES..2 * BLOCK_BYTES].fill(0);
        let text = STAMP.check(&buffer, 0).unwrap_err();
        assert!(text.contains("offset 4096") && text.contains("never written"), "{text}");
    }
}
