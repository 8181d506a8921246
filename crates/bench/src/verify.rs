//! How what was written is known again: `verify`, with `verify_interval` and `verify_pattern`.
//!
//! Each block, or each `verify_interval` bytes of one, begins with a [`Header`]: its offset, its generation and a checksum of the
//! rest. So a block that is wrong, stale or in the wrong place is told from a good one, and from each other. Blocks of
//! `verify=pattern` have no header, so that fio reads what flashwright wrote and the other way round; all that is told of
//! such a block is that it does not hold the pattern.

use md5::Md5;
use measure::workload::{DataPattern, Verify, Workload};
use sha2::{Digest, Sha256, Sha512};

use crate::payload::Payload;

/// What a verified block says about itself.
///
/// | bytes | meaning |
/// |---|---|
/// | 0–7 | the magic number `FWBLOCK1` |
/// | 8–15 | offset on the device |
/// | 16–23 | generation: the run's, plus the pass over the region |
/// | 24–27 | length of the block |
/// | 28–31 | checksum: 1 CRC-32C, 2 xxh3-64, 3 CRC-32, 4 CRC-64, 5 MD5, 6 SHA-256, 7 SHA-512, 8 CRC-32C of the header alone |
/// | from 32 | checksum of everything else: 16 bytes of MD5, 32 of SHA-256, 64 of SHA-512, 8 of the others |
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
/// Where the checksum begins.
const SUM_AT: usize = 32;
/// The longest checksum: SHA-512.
const MOST_SUM_BYTES: usize = 64;

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
        /// The checksum in the header; the first eight bytes of a longer one.
        stored: u64,
        /// The checksum of the contents, likewise.
        found: u64,
    },
    /// The block does not hold its pattern.
    #[error(
        "the block at offset {offset} does not hold its pattern: byte {at} is {found:#04x}, expected {expected:#04x}"
    )]
    OffPattern {
        /// Offset of the block on the device.
        offset: u64,
        /// The first byte in it that differs.
        at: usize,
        /// What should stand there.
        expected: u8,
        /// What stands there.
        found: u8,
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
        let length = sum_bytes(kind);
        block[SUM_AT..SUM_AT + length].copy_from_slice(&sum[..length]);
    }

    /// Compares a block with what should stand there.
    ///
    /// # Errors
    /// [`VerifyFailure`] with what was expected and what was found.
    pub fn check(self, kind: Verify, block: &[u8]) -> Result<(), VerifyFailure> {
        let word = |at: usize| first_word(&block[at..]);
        if word(0) != MAGIC {
            return Err(VerifyFailure::NoHeader { expected: self, found: word(0) });
        }
        let found = Self { offset: word(8), generation: word(16), length: word(24) as u32 };
        // The checksum comes first: a torn header must not be taken for one from elsewhere.
        let sum = checksum(kind, block);
        let length = sum_bytes(kind);
        if block[SUM_AT..SUM_AT + length] != sum[..length] || (word(24) >> 32) as u32 != number(kind) {
            let stored = word(SUM_AT);
            return Err(VerifyFailure::Corrupt { header: found, stored, found: first_word(&sum) });
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

/// How blocks are made that can be checked, and how they are checked.
#[derive(Debug, Clone)]
pub struct Verification {
    kind: Verify,
    /// Bytes between two headers of a block.
    interval: Option<usize>,
    pattern: Option<DataPattern>,
}

impl Verification {
    /// What a workload asks for; None where it asks for none.
    #[must_use]
    pub fn new(workload: &Workload) -> Option<Self> {
        workload.verify.map(|kind| Self {
            kind,
            interval: workload.verify_interval.map(|bytes| bytes as usize),
            pattern: workload.verify_pattern.clone(),
        })
    }

    /// Makes a block whose buffer was [filled](Payload::fill) once. `header` is that of a block with one header.
    pub fn seal(&self, payload: &mut Payload, header: Header, block: &mut [u8]) {
        match &self.pattern {
            Some(pattern) => pattern.fill(header.offset, block),
            None => payload.renew(block),
        }
        if self.kind == Verify::Pattern {
            return;
        }
        let each = self.interval.unwrap_or(block.len());
        for (number, part) in (0..).zip(block.chunks_mut(each)) {
            header.of_part(number, part.len()).seal(self.kind, part);
        }
    }

    /// Compares a block with what should stand there.
    ///
    /// # Errors
    /// [`VerifyFailure`] of the first part that is wrong.
    pub fn check(&self, header: Header, block: &[u8]) -> Result<(), VerifyFailure> {
        let each = self.interval.unwrap_or(block.len());
        let has_headers = self.kind != Verify::Pattern;
        for (number, part) in (0..).zip(block.chunks(each)) {
            if has_headers {
                header.of_part(number, part.len()).check(self.kind, part)?;
            }
            // A checksum covers the pattern as well.
            let Some(pattern) = self.pattern.as_ref().filter(|_| sums_no_data(self.kind)) else { continue };
            let skip = if has_headers { SUM_AT + sum_bytes(self.kind) } else { 0 };
            let from = number as usize * each + skip;
            if let Some((at, expected)) = pattern.difference(header.offset, from, &part[skip..]) {
                let (offset, found) = (header.offset, part[skip + at]);
                return Err(VerifyFailure::OffPattern { offset, at: from + at, expected, found });
            }
        }
        Ok(())
    }
}

impl Header {
    /// The header of one of the parts of `bytes` each that a block is cut into.
    fn of_part(self, number: u64, bytes: usize) -> Self {
        Self { offset: self.offset + number * bytes as u64, length: bytes as u32, ..self }
    }
}

/// Whether no checksum covers the data.
fn sums_no_data(kind: Verify) -> bool {
    matches!(kind, Verify::Meta | Verify::Pattern)
}

fn number(kind: Verify) -> u32 {
    match kind {
        Verify::Crc32c => 1,
        Verify::Xxh3 => 2,
        Verify::Crc32 => 3,
        Verify::Crc64 => 4,
        Verify::Md5 => 5,
        Verify::Sha256 => 6,
        Verify::Sha512 => 7,
        Verify::Meta => 8,
        Verify::Pattern => unreachable!("blocks that are verified by a pattern have no header"),
    }
}

/// How long a checksum is.
fn sum_bytes(kind: Verify) -> usize {
    match kind {
        Verify::Crc32c | Verify::Xxh3 | Verify::Crc32 | Verify::Crc64 | Verify::Meta | Verify::Pattern => 8,
        Verify::Md5 => 16,
        Verify::Sha256 => 32,
        Verify::Sha512 => 64,
    }
}

fn first_word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|at| bytes[at]))
}

/// The checksum of a block without the field that holds it, and zeros behind it.
fn checksum(kind: Verify, block: &[u8]) -> [u8; MOST_SUM_BYTES] {
    let (head, rest) = (&block[..SUM_AT], &block[SUM_AT + sum_bytes(kind)..]);
    let mut sum = [0; MOST_SUM_BYTES];
    let number = match kind {
        Verify::Crc32c => u64::from(crc32c::crc32c_append(crc32c::crc32c(head), rest)),
        Verify::Meta | Verify::Pattern => u64::from(crc32c::crc32c(head)),
        Verify::Xxh3 => {
            let seed = xxhash_rust::xxh3::xxh3_64(head);
            xxhash_rust::xxh3::xxh3_64_with_seed(rest, seed)
        }
        Verify::Crc32 => {
            let mut crc = crc32fast::Hasher::new();
            crc.update(head);
            crc.update(rest);
            u64::from(crc.finalize())
        }
        Verify::Crc64 => crc64([head, rest]),
        Verify::Md5 => return digest::<Md5>([head, rest], sum),
        Verify::Sha256 => return digest::<Sha256>([head, rest], sum),
        Verify::Sha512 => return digest::<Sha512>([head, rest], sum),
    };
    sum[..8].copy_from_slice(&number.to_le_bytes());
    sum
}

/// The digest of several parts as one, in the beginning of `sum`.
fn digest<D: Digest>(parts: [&[u8]; 2], mut sum: [u8; MOST_SUM_BYTES]) -> [u8; MOST_SUM_BYTES] {
    let mut digest = D::new();
    parts.into_iter().for_each(|part| digest.update(part));
    let made = digest.finalize();
    sum[..made.len()].copy_from_slice(&made);
    sum
}

/// What each byte does to a CRC-64 (ECMA-182, reflected, as in xz).
const CRC64_OF_BYTE: [u64; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ 0xc96c_5795_d787_0f42 } else { sum >> 1 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
};

/// The CRC-64 of several parts as one.
fn crc64(parts: [&[u8]; 2]) -> u64 {
    let step = |sum: u64, byte: &u8| CRC64_OF_BYTE[usize::from(sum as u8 ^ byte)] ^ (sum >> 8);
    !parts.into_iter().flatten().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WITH_HEADERS: [Verify; 8] = [
        Verify::Crc32c,
        Verify::Xxh3,
        Verify::Crc32,
        Verify::Crc64,
        Verify::Md5,
        Verify::Sha256,
        Verify::Sha512,
        Verify::Meta,
    ];

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
        for kind in WITH_HEADERS {
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
    fn a_block_of_one_checksum_is_no_good_block_of_another() {
        for kind in WITH_HEADERS {
            let block = sealed(kind, HEADER);
            for other in WITH_HEADERS.into_iter().filter(|other| *other != kind) {
                assert!(HEADER.check(other, &block).is_err(), "{kind:?} read as {other:?}");
            }
        }
    }

    #[test]
    fn a_failure_names_both_what_was_expected_and_what_was_found() {
        let block = sealed(Verify::Xxh3, HEADER);
        let failure = Header { generation: 9, ..HEADER }.check(Verify::Xxh3, &block).unwrap_err();
        assert_eq!(failure.to_string(), "the block at offset 8192 is stale: generation 7, expected 9");
    }

    #[test]
    fn checksums_are_those_that_others_compute() {
        let sum = |kind: fn([&[u8]; 2]) -> [u8; MOST_SUM_BYTES]| kind([b"1234", b"56789"]);
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        // The catalogue of parametrised CRC algorithms; md5sum(1) and sha256sum(1) of the same digits.
        assert_eq!(crc64([b"1234", b"56789"]), 0x995d_c9bb_df19_39fa);
        assert_eq!(hex(&sum(|p| digest::<Md5>(p, [0; 64]))[..16]), "25f9e794323b453885f5181f1b624d0b");
        assert_eq!(
            hex(&sum(|p| digest::<Sha256>(p, [0; 64]))[..32]),
            "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"
        );
    }

    fn workload(verify: Verify, interval: Option<u64>, pattern: Option<&str>) -> Verification {
        Verification::new(&Workload {
            verify: Some(verify),
            verify_interval: interval,
            verify_pattern: pattern.map(|text| text.parse().expect("a pattern")),
            ..Workload::default()
        })
        .expect("it verifies")
    }

    /// A block that was made for `HEADER`.
    fn made(verification: &Verification) -> Vec<u8> {
        let mut block = vec![0; HEADER.length as usize];
        let mut payload = Payload::new(1, 0);
        payload.fill(&mut block);
        verification.seal(&mut payload, HEADER, &mut block);
        assert_eq!(verification.check(HEADER, &block), Ok(()));
        block
    }

    #[test]
    fn each_interval_has_a_header_that_says_where_it_belongs() {
        let verification = workload(Verify::Crc32c, Some(512), None);
        let mut block = made(&verification);
        let third = Header { offset: 8192 + 1024, length: 512, ..HEADER };
        assert_eq!(third.check(Verify::Crc32c, &block[1024..1536]), Ok(()));
        block.copy_within(512..1024, 1024);
        let failure = verification.check(HEADER, &block).expect_err("a sector is in the wrong place");
        assert!(failure.to_string().contains("offset 9216 belongs at offset 8704"), "{failure}");
    }

    #[test]
    fn a_pattern_without_a_checksum_is_compared() {
        for (verify, interval) in [(Verify::Meta, Some(512)), (Verify::Meta, None), (Verify::Pattern, None)] {
            let verification = workload(verify, interval, Some("0xaa555aa5"));
            let mut block = made(&verification);
            block[4095] ^= 1;
            let failure = verification.check(HEADER, &block).expect_err("a byte is wrong");
            let text = "the block at offset 8192 does not hold its pattern: byte 4095 is 0xa4, expected 0xa5";
            assert_eq!(failure.to_string(), text);
        }
    }

    #[test]
    fn a_pattern_with_offsets_tells_blocks_apart() {
        let verification = workload(Verify::Pattern, None, Some("0xff%o"));
        let block = made(&verification);
        assert_eq!(block[..10], [0xff, 0, 0x20, 0, 0, 0, 0, 0, 0, 0xff]);
        assert!(verification.check(Header { offset: 4096, ..HEADER }, &block).is_err());
    }

    #[test]
    fn the_header_alone_is_checked_where_nothing_says_what_the_data_are() {
        let verification = workload(Verify::Meta, None, None);
        let mut block = made(&verification);
        block[2000] ^= 1;
        assert_eq!(verification.check(HEADER, &block), Ok(()));
        block[9] ^= 1;
        assert!(matches!(verification.check(HEADER, &block), Err(VerifyFailure::Corrupt { .. })));
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_noticed(at in 0usize..4096, bit in 0u8..8) {
            for kind in WITH_HEADERS.into_iter().filter(|kind| *kind != Verify::Meta) {
                let mut block = sealed(kind, HEADER);
                block[at] ^= 1 << bit;
                prop_assert!(HEADER.check(kind, &block).is_err());
            }
        }
    }
}
