//! What the target's data look like: zeros, repeats, or data that compress.
//!
//! A drive or layer that compresses or deduplicates answers such blocks faster than real data, and
//! blocks that were never written since the last discard read as zeros without the flash being asked.
//! So before a reading run some blocks are drawn from the region ([`sample`]) and looked at
//! ([`examine`]); the two are apart so that the second can be shown any data.
//!
//! How far data compress is estimated, not measured with a compressor: the order-0 entropy of all
//! sampled bytes, and the share of aligned 8-byte words that occurred before. Drives compress by
//! pages of 4 to 16 KiB with simple methods, so what neither of the two sees, they hardly find.

use std::collections::HashSet;
use std::io;

use measure::pattern::split_mix;
use measure::{Warning, WarningCode};
use storage::device::{BlockMetadata, Device, MetadataTransfer};
use xxhash_rust::xxh3::xxh3_64;

use super::Evidence;

/// Bytes of each block drawn: the page in which most drives and layers compress.
pub const SAMPLE_BYTES: usize = 4096;
/// How many blocks to draw of a target whose file system knows what was written. If a twentieth of the region is zeros,
/// one of 64 blocks at least is, and is told, with probability 1 − 0.95^64 = 96 %, for 256 KiB read.
pub const SAMPLE_COUNT: usize = 64;
/// The fewest to draw of each of several devices: of one that is zeros in a half, 8 blocks show it with probability
/// 1 − 0.5^8 = 99.6 %.
const LEAST_SAMPLES: usize = 8;
/// How many blocks to draw of a raw device, of which only its blocks tell whether it was written. If a twentieth was never
/// written, wherever it lies, 8 of 256 are zeros with a probability of at least 94 % (binomial; a stretch in one piece is
/// found for certain). With 4 of 64 it would be 60 %.
const RAW_SAMPLE_COUNT: usize = 256;
/// The fewest to draw of each of several raw devices: of one of which a fifth was never written, 32 blocks show two with
/// probability 99 %.
const LEAST_RAW_SAMPLES: usize = 32;
/// Part of the blocks drawn that are zeros where a raw device counts as never written: 8 of 256. Of data that hold one block
/// of zeros in a hundred, 0.5 % of draws have so many.
const NEVER_WRITTEN_SHARE: f64 = 1.0 / 32.0;
/// One block of zeros may be data, however few are drawn.
const LEAST_NEVER_WRITTEN: usize = 2;
/// Part of its size below which data are taken for compressible. Random bytes come to 0.999 at 256
/// KiB, and to 0.994 at one block, because so few samples do not fill all 256 values evenly.
pub(super) const COMPRESSED_SHARE_LIMIT: f64 = 0.9;

/// What the drawn blocks looked like.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sampled {
    /// Blocks looked at.
    pub blocks: usize,
    /// Blocks of zeros only.
    pub zero: usize,
    /// Blocks other than zeros that equal an earlier one.
    pub repeated: usize,
    /// Estimate of compressed size over size of the rest, 0 to 1; 1 where nothing else was left.
    pub compressed_ratio: f64,
}

impl Sampled {
    /// Whether so many blocks are zeros that a raw device was never written there, as far as anybody can tell.
    #[must_use]
    pub fn seems_never_written(&self) -> bool {
        let least = (NEVER_WRITTEN_SHARE * self.blocks as f64).ceil() as usize;
        self.blocks > 0 && self.zero >= least.max(LEAST_NEVER_WRITTEN.min(self.blocks))
    }

    /// Blocks of two regions together; they compress as well as the better of the two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            blocks: self.blocks + other.blocks,
            zero: self.zero + other.zero,
            repeated: self.repeated + other.repeated,
            compressed_ratio: self.compressed_ratio.min(other.compressed_ratio),
        }
    }
}

/// How many blocks to draw of each of so many devices that are looked at together. They are read one by one, which
/// 256 of each of sixteen slow drives would turn into seconds before a run.
#[must_use]
pub fn sample_count(devices: usize, is_raw: bool) -> usize {
    let (all, least) =
        if is_raw { (RAW_SAMPLE_COUNT, LEAST_RAW_SAMPLES) } else { (SAMPLE_COUNT, LEAST_SAMPLES) };
    all.div_ceil(devices.max(1)).max(least)
}

/// Reads up to `count` blocks at random places of `length` bytes of `device` from `offset`.
///
/// Places depend on `seed` alone. The region is cut into `count` equal parts and one block is drawn
/// from each, so that no part of it goes unseen.
pub fn sample(device: &dyn Device, offset: u64, length: u64, count: usize, seed: u64) -> io::Result<Sampled> {
    let metadata = interleaved(device);
    let unit = metadata.as_ref().map_or(SAMPLE_BYTES, sampled_bytes);
    let length = length.min(device.size().saturating_sub(offset));
    let places = places(unit as u64, (offset, length), count, seed);
    let mut contents = vec![0; places.len() * unit];
    for (block, place) in contents.chunks_exact_mut(unit).zip(places) {
        device.read_at(block, place)?;
    }
    let Some(metadata) = metadata else { return Ok(examine(contents.chunks_exact(unit))) };
    let (block, data) = (metadata.block_bytes() as usize, metadata.data_bytes as usize);
    let contents: Vec<u8> = contents.chunks_exact(block).flat_map(|block| &block[..data]).copied().collect();
    Ok(examine(contents.chunks_exact(unit / block * data)))
}

/// The metadata of a device's blocks where a read has it between the data. It says nothing of them: in blocks that were never
/// written it is ones, and data are zeros.
fn interleaved(device: &dyn Device) -> Option<BlockMetadata> {
    let metadata = device.namespace()?.metadata;
    metadata.filter(|metadata| metadata.transfer == MetadataTransfer::Interleaved)
}

/// Bytes of whole blocks, with their metadata, whose data are [`SAMPLE_BYTES`], or of one block where its data are more.
fn sampled_bytes(metadata: &BlockMetadata) -> usize {
    let blocks = (SAMPLE_BYTES as u32 / metadata.data_bytes).max(1);
    (blocks * metadata.block_bytes()) as usize
}

/// Offsets of the blocks to draw from a region (its offset, its length), multiples of their length `step`, ascending and distinct.
fn places(step: u64, (offset, length): (u64, u64), count: usize, seed: u64) -> Vec<u64> {
    let first = offset.div_ceil(step);
    let blocks = (offset.saturating_add(length) / step).saturating_sub(first);
    let parts = (count as u64).min(blocks);
    let place = |part: u64| {
        let (begin, end) = (blocks * part / parts, blocks * (part + 1) / parts);
        (first + begin + splitmix(seed ^ part) % (end - begin)) * step
    };
    (0..parts).map(place).collect()
}

/// What follows from `state` alone.
fn splitmix(mut state: u64) -> u64 {
    split_mix(&mut state)
}

/// Looks at blocks, of whatever lengths.
pub fn examine<'a>(blocks: impl Iterator<Item = &'a [u8]>) -> Sampled {
    let mut sampled = Sampled { compressed_ratio: 1.0, ..Sampled::default() };
    let mut hashes = HashSet::new();
    let (mut histogram, mut words) = ([0u64; 256], Vec::new());
    for block in blocks {
        sampled.blocks += 1;
        if block.iter().all(|byte| *byte == 0) {
            sampled.zero += 1;
        } else if !hashes.insert(xxh3_64(block)) {
            sampled.repeated += 1;
        } else {
            for byte in block {
                histogram[usize::from(*byte)] += 1;
            }
            words.extend(block.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)));
        }
    }
    let word_count = words.len();
    if word_count > 0 {
        // Every reading run pays for this; to sort some ten thousand words costs a fraction of hashing them.
        words.sort_unstable();
        words.dedup();
        let fresh = words.len() as f64 / word_count as f64;
        sampled.compressed_ratio = (entropy_bits(&histogram) / 8.0).min(fresh);
    }
    sampled
}

/// Shannon entropy of a byte histogram, bits a byte, with Miller and Madow's correction for the
/// bias of (values seen − 1) / 2n nats that a plain estimate has.
fn entropy_bits(histogram: &[u64; 256]) -> f64 {
    let n: u64 = histogram.iter().sum();
    let seen = histogram.iter().filter(|count| **count > 0);
    let plain: f64 = seen.clone().map(|count| *count as f64 / n as f64).map(|p| -p * p.log2()).sum();
    let bias = (seen.count() as f64 - 1.0) / (2.0 * n as f64) / std::f64::consts::LN_2;
    (plain + bias).min(8.0)
}

/// `W-REPEATED-DATA` for a reading run, and for one that writes a pattern. Data that were asked to compress
/// (`buffer_compress_percentage`) are no surprise.
pub(super) fn repeated_data(evidence: &Evidence<'_>) -> Option<Warning> {
    let workload = &evidence.record.workload;
    if let Some((option, pattern)) = workload.pattern().filter(|_| workload.rw.writes()) {
        let message = format!(
            "{option}={pattern} fills each block that is written: a layer that compresses or deduplicates stores next to nothing"
        );
        return Some(Warning::new(WarningCode::RepeatedData, message));
    }
    let sampled = evidence.known.sampled.filter(|sampled| sampled.blocks > 0)?;
    if !workload.rw.reads() {
        return None;
    }
    let share = |count: usize| count as f64 / sampled.blocks as f64;
    let wished = 1.0 - f64::from(workload.buffer_compress_percentage) / 100.0;
    let mut findings = Vec::new();
    // Random data have none: two equal 64-bit hashes among a thousand blocks have probability 3·10⁻¹⁴.
    if sampled.zero > 0 {
        findings.push(format!("{} are zeros", units::percent(share(sampled.zero))));
    }
    if sampled.repeated > 0 {
        findings.push(format!("{} repeat another", units::percent(share(sampled.repeated))));
    }
    if sampled.compressed_ratio < COMPRESSED_SHARE_LIMIT * wished {
        findings.push(format!("they compress to about {}", units::percent(sampled.compressed_ratio)));
    }
    if findings.is_empty() {
        return None;
    }
    let message = format!("of {} blocks drawn from the region, {}", sampled.blocks, findings.join(", "));
    Some(Warning::new(WarningCode::RepeatedData, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn random(seed: u64, length: usize) -> Vec<u8> {
        let words = (0..length as u64 / 8).map(|n| splitmix(seed.wrapping_mul(1 << 32) ^ n));
        words.flat_map(u64::to_le_bytes).collect()
    }

    fn look(blocks: &[Vec<u8>]) -> Sampled {
        examine(blocks.iter().map(Vec::as_slice))
    }

    #[test]
    fn random_unique_blocks_are_neither_zero_nor_repeated_nor_compressible() {
        let blocks: Vec<_> = (0..64).map(|n| random(n, 4096)).collect();
        let sampled = look(&blocks);
        assert_eq!((sampled.blocks, sampled.zero, sampled.repeated), (64, 0, 0));
        assert!(sampled.compressed_ratio > 0.998, "{}", sampled.compressed_ratio);
        assert!(look(&blocks[..1]).compressed_ratio > 0.98, "one block alone must not look compressible");
    }

    #[test]
    fn zeros_and_repeats_are_counted_apart() {
        let blocks = [vec![0; 4096], random(1, 4096), random(1, 4096), vec![0; 4096]];
        let sampled = look(&blocks);
        assert_eq!((sampled.zero, sampled.repeated), (2, 1));
    }

    /// Of so many runs with 64 blocks each, of which a part is zeros, those in which a block of zeros is seen.
    fn seen_in(runs: u64, zeros: f64) -> u64 {
        let is_seen = |run: &u64| {
            let is_zero = |n: u64| (splitmix((run << 20) ^ n) as f64) < zeros * u64::MAX as f64;
            let blocks = (0..SAMPLE_COUNT as u64)
                .map(|n| if is_zero(n) { vec![0; 64] } else { random((run << 20) ^ n, 64) });
            look(&blocks.collect::<Vec<_>>()).zero > 0
        };
        (0..runs).filter(is_seen).count() as u64
    }

    #[test]
    fn a_twentieth_of_zeros_is_seen_in_96_of_100_runs_and_none_in_random_data() {
        let seen = seen_in(2000, 0.05);
        assert!((1890..=1960).contains(&seen), "{seen} of 2000");
        assert_eq!(seen_in(200, 0.0), 0);
    }

    #[test]
    fn a_raw_device_is_never_written_where_a_32nd_of_what_is_drawn_and_two_blocks_are_zeros() {
        let seems = |zero, blocks| Sampled { blocks, zero, ..Sampled::default() }.seems_never_written();
        assert!(!seems(7, 256) && seems(8, 256));
        assert!(!seems(1, 32) && seems(2, 32), "one block may be data");
        assert!(seems(1, 1) && !seems(0, 1), "a region of one block");
        assert!(!seems(0, 0), "nothing was looked at");
    }

    /// The probability that a raw device counts as never written if each block drawn is zeros with probability `zeros`.
    fn refused(devices: usize, zeros: f64) -> f64 {
        let blocks = sample_count(devices, true);
        let mut exactly = (1.0 - zeros).powi(blocks as i32);
        let mut sum = 0.0;
        for zero in 0..=blocks {
            if (Sampled { blocks, zero, ..Sampled::default() }).seems_never_written() {
                sum += exactly;
            }
            exactly *= (blocks - zero) as f64 / (zero + 1) as f64 * zeros / (1.0 - zeros);
        }
        sum
    }

    #[test]
    fn an_unwritten_twentieth_of_a_raw_device_is_refused_in_94_of_100_runs_and_a_hundredth_of_zeros_in_none()
    {
        assert!((0.94..0.95).contains(&refused(1, 0.05)), "{}", refused(1, 0.05));
        assert!(refused(1, 0.01) < 0.005, "{}", refused(1, 0.01));
        assert!(refused(16, 0.2) > 0.99, "{}", refused(16, 0.2));
        assert!(refused(16, 0.01) < 0.05, "{}", refused(16, 0.01));
    }

    #[test]
    fn a_stretch_in_one_piece_that_was_never_written_is_seen_in_every_draw() {
        let (length, hole) = (20_000u64 << 12, 1_000u64 << 12);
        for seed in 0..50 {
            let start = splitmix(seed) % (length - hole);
            let drawn = places(4096, (0, length), sample_count(1, true), seed);
            let zero = drawn.iter().filter(|place| (start..start + hole).contains(place)).count();
            let sampled = Sampled { blocks: drawn.len(), zero, ..Sampled::default() };
            assert!(sampled.seems_never_written(), "seed {seed}: {zero} of {}", drawn.len());
        }
    }

    #[test]
    fn of_blocks_with_metadata_between_their_data_the_data_are_looked_at() {
        for (data_bytes, bytes) in [(512, 8), (4096, 64)] {
            let metadata = BlockMetadata {
                data_bytes,
                bytes,
                transfer: MetadataTransfer::Interleaved,
                action: storage::device::ProtectionAction::Host,
                protection: None,
            };
            let device = crate::namespaced::with_metadata(None, Some(metadata));
            let block = metadata.block_bytes() as usize;
            let fill = |data: &dyn Fn(u64) -> Vec<u8>| {
                for number in 0..device.size() / block as u64 {
                    let whole = [data(number), vec![0xff; bytes as usize]].concat();
                    device.write_at(&whole, number * block as u64).expect("memory");
                }
                sample(&*device, 0, device.size(), sample_count(1, true), 3).expect("memory")
            };
            let unwritten = fill(&|_| vec![0; data_bytes as usize]);
            assert!(unwritten.zero == 256 && unwritten.seems_never_written(), "{unwritten:?}");
            let written = fill(&|number| random(number, data_bytes as usize));
            assert_eq!((written.blocks, written.zero, written.repeated), (256, 0, 0));
            assert!(written.compressed_ratio > 0.998, "the ones are no data: {}", written.compressed_ratio);
        }
    }

    #[test]
    fn text_and_half_empty_blocks_compress() {
        let text: Vec<u8> =
            (0u32..).flat_map(|n| format!("line {n} of a log\n").into_bytes()).take(4096).collect();
        assert!(look(&[text]).compressed_ratio < 0.7);
        let half: Vec<Vec<u8>> = (0..8).map(|n| [random(n, 2048), vec![0; 2048]].concat()).collect();
        assert!(look(&half).compressed_ratio < 0.75);
        // All byte values alike often, so that entropy sees nothing, but one pattern again and again.
        let pattern: Vec<u8> = (0..4096u32).map(|n| (n * 37 + n / 256) as u8 ^ 0x5a).collect();
        let cycle: Vec<u8> = pattern.iter().copied().cycle().take(16 * 4096).collect();
        assert!(look(&[cycle]).compressed_ratio < 0.2);
    }

    #[test]
    fn nothing_sampled_is_no_verdict() {
        assert_eq!(look(&[]), Sampled { compressed_ratio: 1.0, ..Sampled::default() });
        assert_eq!(look(&[vec![]]).blocks, 1);
    }

    proptest! {
        #[test]
        fn drawn_blocks_lie_within_the_region_and_apart(
            offset in 0u64..1 << 40, length in 0u64..1 << 40, count in 0usize..200, seed in any::<u64>(),
            step in prop_oneof![Just(SAMPLE_BYTES as u64), Just(4160), Just(8 * 520)],
        ) {
            let places = places(step, (offset, length), count, seed);
            prop_assert!(places.len() <= count);
            for place in &places {
                prop_assert!(*place >= offset && place + step <= offset + length);
                prop_assert_eq!(place % step, 0);
            }
            prop_assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
        }

        #[test]
        fn an_estimate_is_a_share(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let ratio = examine(bytes.chunks(64)).compressed_ratio;
            prop_assert!((0.0..=1.0).contains(&ratio), "{ratio}");
        }
    }
}
