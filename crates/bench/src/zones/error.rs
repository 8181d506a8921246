//! Why requests cannot keep to zones, and what to do.

use std::io;

/// Why requests cannot keep to zones.
#[derive(Debug, thiserror::Error)]
pub enum ZoneError {
    /// A write to a host-managed drive without `zonemode=zbd`.
    #[error("{device} is a host-managed zoned drive, whose zones take writes at their write pointers only")]
    NotAsked {
        /// Spec of the device.
        device: String,
    },
    /// A host-managed drive that is to be filled before the run.
    #[error("precondition: {device} is a host-managed zoned drive, which is not filled in one go")]
    Fill {
        /// Spec of the device.
        device: String,
    },
    /// No zones, and no size of such as are to be kept account of.
    #[error("zonemode=zbd: {device} is no zoned drive, and nothing says how large its zones are to be")]
    NoSize {
        /// Spec of the device.
        device: String,
    },
    /// Another size than the drive's, or than that of a job that runs beside it.
    #[error("zonesize={asked}: the zones of {device} have {actual} bytes")]
    OtherSize {
        /// Spec of the device.
        device: String,
        /// What was asked for.
        asked: u64,
        /// What there is.
        actual: u64,
    },
    /// Blocks that do not fit the drive's zones.
    #[error("bs={bs}: the zones of {device} have {zone_bytes} bytes, {capacity} of which can be written")]
    Block {
        /// Spec of the device.
        device: String,
        /// Bytes of a block.
        bs: u64,
        /// Bytes of a zone.
        zone_bytes: u64,
        /// The least capacity of one.
        capacity: u64,
        /// Whether a block must be as large as a zone.
        trims: bool,
    },
    /// Writes to a host-managed drive through the page cache.
    #[error("direct=0: the page cache does not keep to the write pointers of {device}")]
    Buffered {
        /// Spec of the device.
        device: String,
    },
    /// A zoned drive as a part of something else.
    #[error("zonemode=zbd: {device} is made of several devices, and a zoned drive is one of them")]
    Spread {
        /// Spec of the device.
        device: String,
    },
    /// More open zones than there may be.
    #[error("max_open_zones={asked}: {device} has {limit} open at most")]
    TooManyOpen {
        /// Spec of the device.
        device: String,
        /// What was asked for.
        asked: u32,
        /// The drive's limit.
        limit: usize,
    },
    /// Zones that were open or partly written before the run take up what may be.
    #[error("{open} zones of {device} are open or partly written already, where {limit} may be")]
    AlreadyOpen {
        /// Spec of the device.
        device: String,
        /// How many are.
        open: usize,
        /// How many may be.
        limit: usize,
    },
    /// Nothing was written yet.
    #[error("no zone of the region of {device} holds a block that could be {}", if *trims { "given back" } else { "read" })]
    Empty {
        /// Spec of the device.
        device: String,
        /// Whether it was to be given back.
        trims: bool,
    },
    /// Nowhere to write.
    #[error("no zone of the region of {device} can be opened for writing")]
    NoneToWrite {
        /// Spec of the device.
        device: String,
    },
    /// More zones than are kept account of.
    #[error("zonesize={zone_bytes}: {device} would have {count} zones, and {most} are kept account of")]
    TooMany {
        /// Spec of the device.
        device: String,
        /// What was asked for.
        zone_bytes: u64,
        /// How many that makes.
        count: u64,
        /// The most.
        most: u64,
    },
    /// A request of another job in these zones was not answered.
    #[error("the zones of {device} are not known any more: a request in one of them was not answered")]
    Lost {
        /// Spec of the device.
        device: String,
    },
    /// The drive refused.
    #[error("{operation} zones of {device} at {at}")]
    Drive {
        /// `report`, `reset` or `finish`.
        operation: &'static str,
        /// Spec of the device.
        device: String,
        /// Where, bytes.
        at: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl ZoneError {
    /// Whether the request was wrong, so that nothing was tried.
    #[must_use]
    pub fn is_about_the_request(&self) -> bool {
        !matches!(self, Self::Drive { .. } | Self::Lost { .. })
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotAsked { .. } => {
                "add --zonemode=zbd: writes then go to the write pointers, and full zones are reset, which loses what they hold"
            }
            Self::Fill { .. } => {
                "write it before with --rw=write --zonemode=zbd --time_based=0; --purge resets its zones"
            }
            Self::NoSize { .. } => "add --zonesize=256m for zones that are kept account of",
            Self::OtherSize { .. } => "leave --zonesize out",
            Self::Block { trims: true, .. } => "write --bs with the size of a zone: a trim resets one",
            Self::Block { .. } => {
                "write a --bs that divides a zone, and is not larger than what can be written of it"
            }
            Self::Buffered { .. } => "leave out --direct=0",
            Self::Spread { .. } => "name the zoned drive alone",
            Self::TooManyOpen { .. } => "leave it out, or add --ignore_zone_limits",
            Self::TooMany { .. } => "raise --zonesize",
            Self::Lost { .. } => "see the kernel's log (dmesg) for the drive",
            Self::AlreadyOpen { .. } => {
                "raise --max_open_zones if it is lower than the drive's limit, or reset or finish some of them: blkzone reset"
            }
            Self::Empty { trims: true, .. } => "write to it first",
            Self::Empty { .. } => "write to it first, or add --read_beyond_wp",
            Self::NoneToWrite { .. } => {
                "others that are open take up the limit, or all are read-only: see blkzone report"
            }
            Self::Drive { .. } => "see the kernel's log (dmesg) for the drive, and blkzone report",
        }
    }
}
