//! What is written, and how it is known again.
//!
//! A drive or layer that compresses or deduplicates must find nothing to save. Blocks of up to 64 KiB
//! have fresh random contents at every write. Larger ones, whose making would keep a fast drive
//! waiting, reuse their buffer's random contents with a stamp in each 512-byte sector that no other
//! write has: no two sectors are alike, and what resembles an earlier write lies further back than
//! layers look that compress (btrfs 128 KiB, VDO 4 KiB). fio without `refill_buffers` reuses buffers of
//! every size.
//!
//! Eight independent generators make eight words at a time, in a form that compiles to vector
//! instructions.
//!
//! Under `verify` the first bytes of each block hold a [`Header`] with the block's offset and generation
//! and a checksum of the rest, so that a block that is wrong, stale or in the wrong place is told from a
//! good one, and from each other.

use measure::pattern::Rng;
use measure::workload::{DedupeMode, Verify, Workload};

/// Compressible contents alternate within each page, the unit in which layers compress.
const PAGE: usize = 4096;
/// Sectors are the unit in which devices compare data.
const SECTOR: usize = 512;
/// Up to this size a block is made anew for each write: a few microseconds. Above, it takes so long to stamp one (0.1 to
/// 0.4 ms for 4 MiB) that it is done while the drive works: `run::worker`.
pub(crate) const MADE_ANEW: usize = 64 << 10;
const LANES: usize = 8;

/// Makes the contents of written blocks.
#[derive(Debug)]
pub struct Payload {
    lanes: [u64; LANES],
    compress_percentage: u8,
}

impl Payload {
    /// Contents that follow from `seed`, of which `compress_percentage` percent compress away.
    #[must_use]
    pub fn new(seed: u64, compress_percentage: u8) -> Self {
        let mut rng = Rng::new(seed ^ 0x0070_6179_6c6f_6164);
        // A generator at zero would stay there.
        Self { lanes: std::array::from_fn(|_| rng.next_u64() | 1), compress_percentage }
    }

    /// Fills a block: of each 4 KiB the last `compress_percentage` percent are zeros, the rest is
    /// random and never comes again.
    pub fn fill(&mut self, block: &mut [u8]) {
        if self.compress_percentage == 0 {
            return self.fill_random(block);
        }
        for page in block.chunks_mut(PAGE) {
            let random = page.len() * (100 - usize::from(self.compress_percentage)) / 100;
            let (random, zeros) = page.split_at_mut(random);
            self.fill_random(random);
            zeros.fill(0);
        }
    }

    /// Makes a block that was [filled](Self::fill) once unlike all written before; see the module's
    /// argument. Where it is to compress, one stamp at its beginning does, which costs a compressor least.
    pub fn renew(&mut self, block: &mut [u8]) {
        if block.len() <= MADE_ANEW {
            return self.fill(block);
        }
        let distance = if self.compress_percentage == 0 { SECTOR } else { block.len() };
        for sector in block.chunks_mut(distance) {
            let lane = &mut self.lanes[0];
            *lane ^= *lane << 13;
            *lane ^= *lane >> 7;
            *lane ^= *lane << 17;
            let n = sector.len().min(8);
            sector[..n].copy_from_slice(&lane.to_le_bytes()[..n]);
        }
    }

    /// xorshift64 (Marsaglia, 2003) in each lane.
    fn fill_random(&mut self, bytes: &mut [u8]) {
        let mut lanes = self.lanes;
        let mut step = || {
            for lane in &mut lanes {
                *lane ^= *lane << 13;
                *lane ^= *lane >> 7;
                *lane ^= *lane << 17;
            }
            lanes
        };
        let (chunks, rest) = bytes.as_chunks_mut::<{ LANES * 8 }>();
        for chunk in chunks {
            for (word, lane) in chunk.as_chunks_mut::<8>().0.iter_mut().zip(step()) {
                *word = lane.to_le_bytes();
            }
        }
        let last = step();
        for (word, lane) in rest.chunks_mut(8).zip(last) {
            word.copy_from_slice(&lane.to_le_bytes()[..word.len()]);
        }
        self.lanes = lanes;
    }
}

/// What the blocks follow from that all jobs copy.
const GLOBAL_SET: u64 = 0x666c_6173_6877;

/// Which blocks are copies of others: fio's `dedupe_percentage`.
///
/// Each block's contents follow from a number, so that a copy is made by making the block again. It is made in full,
/// whatever its size. The blocks that are no copies have numbers in turn, and a working set is, as in fio, the first of
/// these: whether the job has written a block of it before or copies it first, the block is the same.
#[derive(Debug)]
pub struct Copies {
    percent: u64,
    mode: DedupeMode,
    /// Different blocks that there are to copy.
    set: u64,
    /// The number of the first block of the set.
    set_first: u64,
    rng: Rng,
    /// The number of the next block that is no copy.
    next: u64,
    /// That of the last one; of the first one before that.
    last: u64,
    compress_percentage: u8,
}

impl Copies {
    /// None where every block is unlike all others. `blocks` are those of the job's region, and `seed` is the job's own.
    #[must_use]
    pub fn new(workload: &Workload, blocks: u64, seed: u64) -> Option<Self> {
        let set = u128::from(blocks) * u128::from(workload.dedupe_working_set_percentage) / 100;
        // Jobs have seeds of their own, and the numbers of two jobs are not to be near each other.
        let first_of = |seed: u64| Rng::new(seed ^ 0x0073_6574).next_u64();
        let first = first_of(seed);
        (workload.dedupe_percentage > 0).then(|| Self {
            percent: workload.dedupe_percentage.into(),
            mode: workload.dedupe_mode,
            set: (set as u64).max(1),
            set_first: if workload.dedupe_global { first_of(GLOBAL_SET) } else { first },
            rng: Rng::new(seed ^ 0x0064_6564_7570_6500),
            next: first,
            last: first,
            compress_percentage: workload.buffer_compress_percentage,
        })
    }

    /// Fills the next block.
    pub fn fill(&mut self, block: &mut [u8]) {
        let is_copy = self.rng.below(100) < self.percent;
        let contents = match (is_copy, self.mode) {
            (true, DedupeMode::Repeat) => self.last,
            (true, DedupeMode::WorkingSet) => self.set_first.wrapping_add(self.rng.below(self.set)),
            (false, _) => {
                (self.last, self.next) = (self.next, self.next.wrapping_add(1));
                self.last
            }
        };
        Payload::new(contents, self.compress_percentage).fill(block);
    }
}

/// What a verified block says about itself.
///
/// | bytes | meaning |
/// |---|---|
/// | 0–7 | the magic number `FWBLOCK1` |
/// | 8–15 | offset on the device |
/// | 16–23 | generation: the run's, plus the pass over the region |
/// | 24–27 | length of the block |
/// | 28–31 | checksum: 1 CRC-32C, 2 xxh3-64 |
/// | 32–39 | checksum of everything else |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The writing run and pass; [`Header::ANY`] where any will do.
    pub generation: u64,
    /// Offset on the device, bytes.
    pub offset: u64,
    /// Length of the block, bytes.
    pub length: u32,
}

const MAGIC: u64 = u64::from_le_bytes(*b"FWBLOCK1");
const HEADER_BYTES: usize = 40;

/// A block that does not hold what was written there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyFailure {
    /// There is no header: the block was never written with verification, or is wiped.
    #[error("the block at offset {} has no header (expected generation {}, found {found:#018x} for the magic number)", .expected.offset, .expected.generation)]
    NoHeader {
        /// What should stand there.
        expected: Header,
        /// What stands where the magic number should.
        found: u64,
    },
    /// The block belongs somewhere else.
    #[error("the block at offset {} belongs at offset {} (generation {})", .expected.offset, .found.offset, .found.generation)]
    Misplaced {
        /// What should stand there.
        expected: Header,
        /// What stands there.
        found: Header,
    },
    /// The block is of an earlier write: a later one was lost.
    #[error("the block at offset {} is stale: generation {}, expected {}", .expected.offset, .found.generation, .expected.generation)]
    Stale {
        /// What should stand there.
        expected: Header,
        /// What stands there.
        found: Header,
    },
    /// The header is right but the contents are not.
    #[error("the block at offset {} (generation {}) is corrupt: its checksum is {found:#018x}, its header says {stored:#018x}", .header.offset, .header.generation)]
    Corrupt {
        /// The block's header.
        header: Header,
        /// The checksum in the header.
        stored: u64,
        /// The checksum of the contents.
        found: u64,
    },
}

impl Header {
    /// Stands for any generation, where a run reads what an earlier one wrote.
    pub const ANY: u64 = u64::MAX;

    /// Writes the header into a block whose contents are ready.
    ///
    /// # Panics
    /// If the block is shorter than a header.
    pub fn seal(self, kind: Verify, block: &mut [u8]) {
        block[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        block[8..16].copy_from_slice(&self.offset.to_le_bytes());
        block[16..24].copy_from_slice(&self.generation.to_le_bytes());
        block[24..28].copy_from_slice(&self.length.to_le_bytes());
        block[28..32].copy_from_slice(&number(kind).to_le_bytes());
        let sum = checksum(kind, block);
        block[32..40].copy_from_slice(&sum.to_le_bytes());
    }

    /// Compares a block with what should stand there.
    ///
    /// # Errors
    /// [`VerifyFailure`] with what was expected and what was found.
    pub fn check(self, kind: Verify, block: &[u8]) -> Result<(), VerifyFailure> {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| block[at + i]));
        if word(0) != MAGIC {
            return Err(VerifyFailure::NoHeader { expected: self, found: word(0) });
        }
        let found = Self { offset: word(8), generation: word(16), length: word(24) as u32 };
        // The checksum comes first: a torn header must not be taken for one from elsewhere.
        let (stored, sum) = (word(32), checksum(kind, block));
        if stored != sum || (word(24) >> 32) as u32 != number(kind) {
            return Err(VerifyFailure::Corrupt { header: found, stored, found: sum });
        }
        if found.offset != self.offset || found.length != self.length {
            return Err(VerifyFailure::Misplaced { expected: self, found });
        }
        if self.generation != Self::ANY && found.generation != self.generation {
            return Err(VerifyFailure::Stale { expected: self, found });
        }
        Ok(())
    }
}

fn number(kind: Verify) -> u32 {
    match kind {
        Verify::Crc32c => 1,
        Verify::Xxh3 => 2,
    }
}

/// The checksum of a block without the field that holds it.
fn checksum(kind: Verify, block: &[u8]) -> u64 {
    let (head, rest) = (&block[..32], &block[HEADER_BYTES..]);
    match kind {
        Verify::Crc32c => u64::from(crc32c::crc32c_append(crc32c::crc32c(head), rest)),
        Verify::Xxh3 => {
            let seed = xxhash_rust::xxh3::xxh3_64(head);
            xxhash_rust::xxh3::xxh3_64_with_seed(rest, seed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sealed(kind: Verify, header: Header) -> Vec<u8> {
        let mut payload = Payload::new(1, 0);
        let mut block = vec![0; header.length as usize];
        payload.fill(&mut block);
        header.seal(kind, &mut block);
        block
    }

    const HEADER: Header = Header { generation: 7, offset: 8192, length: 4096 };

    #[test]
    fn a_good_block_passes_and_each_fault_is_told_from_the_others() {
        for kind in [Verify::Crc32c, Verify::Xxh3] {
            let block = sealed(kind, HEADER);
            assert_eq!(HEADER.check(kind, &block), Ok(()));
            assert_eq!(Header { generation: Header::ANY, ..HEADER }.check(kind, &block), Ok(()));
            let elsewhere = Header { offset: 0, ..HEADER };
            assert!(matches!(elsewhere.check(kind, &block), Err(VerifyFailure::Misplaced { .. })));
            let later = Header { generation: 8, ..HEADER };
            assert!(matches!(later.check(kind, &block), Err(VerifyFailure::Stale { .. })));
            let zeros = vec![0; 4096];
            assert!(matches!(HEADER.check(kind, &zeros), Err(VerifyFailure::NoHeader { found: 0, .. })));
        }
    }

    #[test]
    fn a_failure_names_both_what_was_expected_and_what_was_found() {
        let block = sealed(Verify::Xxh3, HEADER);
        let failure = Header { generation: 9, ..HEADER }.check(Verify::Xxh3, &block).unwrap_err();
        assert_eq!(failure.to_string(), "the block at offset 8192 is stale: generation 7, expected 9");
    }

    #[test]
    fn no_eight_bytes_of_any_two_writes_are_alike() {
        let mut payload = Payload::new(3, 0);
        let mut block = vec![0; 8192 + 5];
        let mut seen = std::collections::HashSet::new();
        for _ in 0..64 {
            payload.fill(&mut block);
            assert!(block.chunks_exact(8).all(|word| seen.insert(word.to_vec())));
        }
    }

    /// How many blocks are unlike all others, of so many that jobs with these seeds write each.
    fn different(workload: &Workload, blocks: u64, seeds: &[u64]) -> usize {
        let mut seen = std::collections::HashSet::new();
        for seed in seeds {
            let mut copies = Copies::new(workload, blocks, *seed).expect("some are copies");
            for _ in 0..blocks {
                let mut block = vec![0; 512];
                copies.fill(&mut block);
                seen.insert(block);
            }
        }
        seen.len()
    }

    #[test]
    fn as_many_blocks_are_copies_as_asked() {
        let repeat = Workload { dedupe_percentage: 60, ..Workload::default() };
        let unlike = different(&repeat, 1000, &[1]);
        assert!((350..450).contains(&unlike), "{unlike}");
        assert!(Copies::new(&Workload::default(), 1000, 1).is_none());
        let of_set = |percentage, set| Workload {
            dedupe_percentage: percentage,
            dedupe_mode: DedupeMode::WorkingSet,
            dedupe_working_set_percentage: set,
            ..Workload::default()
        };
        let set = of_set(100, 2);
        assert_eq!(different(&set, 1000, &[1]), 20);
        assert_eq!(different(&set, 1000, &[1, 2]), 40, "each job has a set of its own");
        assert_eq!(different(&Workload { dedupe_global: true, ..set }, 1000, &[1, 2]), 20, "all have one");
        // fio 3.33 writes 818 and 2031: the blocks of a set are those that are no copies.
        for (percentage, set, fio) in [(80, 20, 818_usize), (50, 5, 2031)] {
            let unlike = different(&of_set(percentage, set), 4096, &[1]);
            assert!(
                unlike.abs_diff(fio) <= 80,
                "{percentage} % of copies, set {set} %: {unlike}, and fio {fio}"
            );
        }
    }

    #[test]
    fn no_sector_of_any_two_renewed_blocks_is_alike() {
        for length in [4096, MADE_ANEW, 2 * MADE_ANEW] {
            let mut payload = Payload::new(3, 0);
            let mut block = vec![0; length];
            payload.fill(&mut block);
            let mut seen = std::collections::HashSet::new();
            for _ in 0..16 {
                payload.renew(&mut block);
                assert!(block.chunks(SECTOR).all(|sector| seen.insert(sector.to_vec())));
            }
        }
    }

    #[test]
    fn contents_do_not_compress_and_follow_from_the_seed() {
        let filled = |seed| {
            let mut block = vec![0; 1 << 20];
            Payload::new(seed, 0).fill(&mut block);
            block
        };
        let sampled = crate::lies::blocks::examine(filled(1).chunks_exact(4096));
        assert!(sampled.compressed_ratio > 0.99 && sampled.repeated == 0, "{sampled:?}");
        assert_eq!(filled(1), filled(1));
        assert_ne!(filled(1), filled(2));
    }

    #[test]
    fn the_compressible_part_is_as_large_as_asked() {
        for percentage in [0_u8, 30, 100] {
            let mut payload = Payload::new(3, percentage);
            let mut block = vec![1; 1 << 16];
            payload.fill(&mut block);
            let zeros = block.iter().filter(|b| **b == 0).count() as f64 / block.len() as f64;
            // Random bytes are zero once in 256.
            assert!((zeros - f64::from(percentage) / 100.0).abs() < 0.01, "{percentage}: {zeros}");
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_noticed(at in 0usize..4096, bit in 0u8..8) {
            for kind in [Verify::Crc32c, Verify::Xxh3] {
                let mut block = sealed(kind, HEADER);
                block[at] ^= 1 << bit;
                prop_assert!(HEADER.check(kind, &block).is_err());
            }
        }
    }
}
