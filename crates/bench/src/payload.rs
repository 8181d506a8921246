//! What is written. How it is known again is [`verify`](crate::verify)'s.
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

use measure::pattern::Rng;
use measure::workload::{DedupeMode, Workload};

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
