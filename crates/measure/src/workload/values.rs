//! What options of a workload can be: words, and the sizes of a split with their shares.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words;

base::words! {
    /// The direction and order of the requests: fio's `rw`.
    pub enum Rw {
        /// Sequential reads.
        Read = "read",
        /// Sequential writes.
        Write = "write",
        /// Reads at random offsets.
        RandRead = "randread",
        /// Writes at random offsets.
        RandWrite = "randwrite",
        /// A sequential mix of reads and writes in the proportion `rwmixread`.
        Rw = "rw" | "readwrite",
        /// A random mix of reads and writes in the proportion `rwmixread`.
        RandRw = "randrw",
        /// Sequential discards: `BLKDISCARD` on a block device, a punched hole in a file.
        Trim = "trim",
        /// Discards at random offsets.
        RandTrim = "randtrim",
        /// Sequential blocks, each of which is discarded and then written.
        TrimWrite = "trimwrite",
        /// Blocks at random offsets, likewise.
        RandTrimWrite = "randtrimwrite",
    }
}

impl Rw {
    /// Whether offsets are drawn at random.
    #[must_use]
    #[inline]
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandRw | Self::RandTrim | Self::RandTrimWrite)
    }

    /// Whether each block is discarded and then written.
    #[must_use]
    #[inline]
    pub fn trims_and_writes(self) -> bool {
        matches!(self, Self::TrimWrite | Self::RandTrimWrite)
    }

    /// Whether any request reads.
    #[must_use]
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::RandRead | Self::Rw | Self::RandRw)
    }

    /// Whether any request writes or discards, so that what is on the device changes.
    #[must_use]
    pub fn modifies(self) -> bool {
        !matches!(self, Self::Read | Self::RandRead)
    }

    /// Whether any request writes data.
    #[must_use]
    pub fn writes(self) -> bool {
        self.trims_and_writes() || matches!(self, Self::Write | Self::RandWrite | Self::Rw | Self::RandRw)
    }
}

base::words! {
    /// The checksum in the header of each written block: fio's `verify`.
    pub enum Verify {
        /// CRC-32C, in hardware where there is any.
        Crc32c = "crc32c",
        /// xxh3-64, faster in software.
        Xxh3 = "xxh3",
        /// CRC-32, that of Ethernet and zip.
        Crc32 = "crc32",
        /// CRC-64, that of xz.
        Crc64 = "crc64",
        /// MD5.
        Md5 = "md5",
        /// SHA-256.
        Sha256 = "sha256",
        /// SHA-512.
        Sha512 = "sha512",
        /// None: the header alone is checked, and `verify_pattern` where there is one.
        Meta = "meta",
        /// None, and no header either: a block holds `verify_pattern`.
        Pattern = "pattern",
    }
}

base::words! {
    /// Which blocks are copied under `dedupe_percentage`: fio's `dedupe_mode`.
    #[derive(Default)]
    pub enum DedupeMode {
        /// The last block that was no copy.
        #[default]
        Repeat = "repeat",
        /// One of a set, each as likely as any other.
        WorkingSet = "working_set",
    }
}

base::words! {
    /// When arrivals are due under `rate_iops`: fio's `rate_process`.
    #[derive(Default)]
    pub enum RateProcess {
        /// At equal distances.
        #[default]
        Linear = "linear",
        /// With exponential gaps, as requests from many independent users arrive.
        Poisson = "poisson",
    }
}

base::words! {
    /// What a write has made durable when it completes: fio's `sync`.
    #[derive(Default)]
    pub enum WriteSync {
        /// Nothing, as far as the descriptor goes.
        #[default]
        None = "none" | "0",
        /// Its data (O_DSYNC).
        Dsync = "dsync",
        /// Its data and the file's times (O_SYNC).
        Sync = "sync" | "1",
    }
}

base::words! {
    /// What zones are: fio's `zonemode`.
    #[derive(Default)]
    pub enum ZoneMode {
        /// Parts of any target that are visited one after the other; there are none without `zonesize`.
        #[default]
        Strided = "strided",
        /// Those of a zoned drive, each of which is written at its write pointer. On any other target they are kept account
        /// of, and begin empty.
        Zbd = "zbd",
    }
}

base::words! {
    /// How often the clock is read.
    #[derive(Default)]
    pub enum LatencyClock {
        /// Once a submitted batch and once a reaped group: a request's latency is exact to within the
        /// time between two reaps. No cost a request.
        #[default]
        Batch = "batch",
        /// Once a request, at submission and at completion; every request is submitted by itself.
        Each = "each",
    }
}

/// One block size and its share of the requests, in percent: an entry of fio's `bssplit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SizeShare {
    /// Block size in bytes.
    #[serde(with = "words::size")]
    #[schemars(with = "u64")]
    pub bs: u64,
    /// Share of the requests, 1–100 percent; 0 in all entries where each size is as frequent as any other.
    pub percent: u8,
}

impl SizeShare {
    /// How many requests of [`all_draws`] have this size.
    #[must_use]
    #[inline]
    pub fn draws(self) -> u64 {
        u64::from(self.percent.max(1))
    }
}

/// As it is typed: `4k/60`, and `4k` where each size is as frequent as any other.
impl std::fmt::Display for SizeShare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bs = units::bytes_short(self.bs);
        if self.percent == 0 { write!(f, "{bs}") } else { write!(f, "{bs}/{}", self.percent) }
    }
}

/// Of how many requests the sizes of a split have their shares: 100, or as many as there are sizes where each is as
/// frequent as any other.
#[must_use]
#[inline]
pub fn all_draws(split: &[SizeShare]) -> u64 {
    match split.first() {
        Some(SizeShare { percent: 0, .. }) => split.len() as u64,
        _ => 100,
    }
}

/// Requests in flight while the queues of all jobs are full. `separate_devices` is how many devices a job serves one by
/// one, 1 where it serves one: each of them has at least one request of each job.
#[must_use]
pub fn full_queues(iodepth: u32, numjobs: u32, separate_devices: u32) -> u64 {
    u64::from(iodepth.max(separate_devices)) * u64::from(numjobs)
}
