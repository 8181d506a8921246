//! What a block device did: the counters of `/sys/class/block/NAME/stat`.
//!
//! The file holds one line with the same fields as the device's line in `/proc/diskstats` (kernel,
//! `Documentation/admin-guide/iostats.rst` and `Documentation/block/stat.rst`); reading it costs one
//! small read for each device of interest, where `/proc/diskstats` formats all devices of the machine.
//! Kernels before 4.18 have eleven fields, 4.18 adds four for discards, 5.5 adds two for flushes;
//! what is missing counts as zero. Sectors are 512 bytes here whatever the device's block.
//!
//! Two kinds of silence are not to be taken for idleness. With `queue/iostats` at 0 the kernel stops
//! counting and the file keeps its last values ([`super::Observed::counted`]). And some drivers never
//! count for some of their devices, as NVMe multipath did for the device that users see before Linux
//! learned it; such a file holds zeros from boot on ([`DiskStats::is_silent`]).

use measure::record::DriveCounts;

/// Bytes of a sector in the block layer's statistics, always.
const SECTOR_BYTES: u64 = 512;
/// The fewest fields that a whole device's line has had since Linux 2.6.25.
const FEWEST_FIELDS: usize = 11;

/// The counters of one device at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskStats {
    read_ios: u64,
    read_merges: u64,
    read_sectors: u64,
    write_ios: u64,
    write_merges: u64,
    write_sectors: u64,
    busy_ms: u64,
    in_flight_ms: u64,
    discard_ios: u64,
    flush_ios: u64,
}

impl DiskStats {
    /// Reads the text of a `stat` file; none where it has too few numbers to be one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut fields = [0u64; 17];
        let mut count = 0;
        for (slot, word) in fields.iter_mut().zip(text.split_ascii_whitespace()) {
            *slot = word.parse().ok()?;
            count += 1;
        }
        if count < FEWEST_FIELDS {
            return None;
        }
        Some(Self {
            read_ios: fields[0],
            read_merges: fields[1],
            read_sectors: fields[2],
            write_ios: fields[4],
            write_merges: fields[5],
            write_sectors: fields[6],
            busy_ms: fields[9],
            in_flight_ms: fields[10],
            discard_ios: fields[11],
            flush_ios: fields[15],
        })
    }

    /// Whether nothing was ever counted. A device that is in use cannot be in this state, since what
    /// is on it was read or written through it at some time.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        *self == Self::default()
    }

    /// What happened since `before`; none where a counter went backwards in a way that no wrap
    /// explains, as when the device was unplugged and another one took its name.
    #[must_use]
    pub fn since(&self, before: &Self, name: &str) -> Option<DriveCounts> {
        Some(DriveCounts {
            name: name.to_owned(),
            read_ios: difference(before.read_ios, self.read_ios)?,
            read_merges: difference(before.read_merges, self.read_merges)?,
            read_bytes: difference(before.read_sectors, self.read_sectors)? * SECTOR_BYTES,
            write_ios: difference(before.write_ios, self.write_ios)?,
            write_merges: difference(before.write_merges, self.write_merges)?,
            write_bytes: difference(before.write_sectors, self.write_sectors)? * SECTOR_BYTES,
            discard_ios: difference(before.discard_ios, self.discard_ios)?,
            flush_ios: difference(before.flush_ios, self.flush_ios)?,
            busy_ms: difference(before.busy_ms, self.busy_ms)?,
            in_flight_ms: difference(before.in_flight_ms, self.in_flight_ms)?,
            below: Vec::new(),
            media_write_bytes: None,
        })
    }
}

/// `after − before` of a counter that may wrap at 32 bits: `busy_ms` and `in_flight_ms` do everywhere, the others do
/// where a `long` has 32 bits. A step of more than half the range is taken for a restart.
fn difference(before: u64, after: u64) -> Option<u64> {
    const WRAP: u64 = 1 << 32;
    if after >= before {
        // Sectors times 512 must fit; a larger step is no counter's.
        return Some(after - before).filter(|d| *d < u64::MAX / SECTOR_BYTES);
    }
    if before >= WRAP {
        return None;
    }
    Some(after + WRAP - before).filter(|step| *step < WRAP / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FULL: &str =
        "56549 10623 5848026 21279 12418 28116 2650488 8760 0 9344 30587 6035 19 372144 499 1011 49\n";

    #[test]
    fn a_line_of_seventeen_fields_is_read() {
        let stats = DiskStats::parse(FULL).expect("a stat line");
        assert_eq!((stats.read_ios, stats.read_merges, stats.read_sectors), (56_549, 10_623, 5_848_026));
        assert_eq!((stats.write_ios, stats.write_merges, stats.write_sectors), (12_418, 28_116, 2_650_488));
        assert_eq!((stats.busy_ms, stats.discard_ios, stats.flush_ios), (9344, 6035, 1011));
    }

    #[test]
    fn kernels_without_discard_and_flush_fields_count_none() {
        let stats = DiskStats::parse("1 2 3 4 5 6 7 8 9 10 11").expect("eleven fields");
        assert_eq!((stats.busy_ms, stats.discard_ios, stats.flush_ios), (10, 0, 0));
        let stats = DiskStats::parse("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15").expect("fifteen fields");
        assert_eq!((stats.discard_ios, stats.flush_ios), (12, 0));
    }

    #[test]
    fn a_device_that_never_counted_anything_is_silent() {
        assert!(DiskStats::parse("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0").expect("zeros").is_silent());
        assert!(!DiskStats::parse(FULL).expect("a stat line").is_silent());
    }

    #[test]
    fn what_is_no_stat_line_is_none() {
        for text in ["", "1 2 3", "a b c d e f g h i j k", "1 2 3 4 5 6 7 8 9 10 -11"] {
            assert_eq!(DiskStats::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn sectors_become_bytes_of_512() {
        let before = DiskStats::parse("0 0 0 0 0 0 0 0 0 0 0").expect("zeros");
        let after = DiskStats::parse("1 0 8 0 2 0 16 0 0 3 7").expect("some");
        let counts = after.since(&before, "sda").expect("forwards");
        assert_eq!((counts.read_bytes, counts.write_bytes), (4096, 8192));
        assert_eq!((counts.busy_ms, counts.in_flight_ms), (3, 7));
    }

    #[test]
    fn a_counter_that_wraps_at_32_bits_goes_on() {
        assert_eq!(difference(u64::from(u32::MAX) - 4, 5), Some(10));
    }

    #[test]
    fn a_replaced_device_has_no_difference() {
        // 1000 sectors, then 10: no wrap makes that of a plausible step.
        assert_eq!(difference(1000, 10), None);
        assert_eq!(difference(1 << 40, 10), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9 \\-a-z\n]{0,120}") {
            let _ = DiskStats::parse(&text);
        }

        #[test]
        fn no_pair_of_counters_makes_the_difference_panic(before in any::<u64>(), after in any::<u64>()) {
            if let Some(step) = difference(before, after) {
                prop_assert!(step.checked_mul(SECTOR_BYTES).is_some());
            }
        }
    }
}
