//! What an export can do.

use std::fmt;

/// "Transmission flags": what a client may ask of an export.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransmissionFlags(pub u16);

/// Each flag with its name, in the order of their bits.
const NAMES: [(u16, &str); 11] = [
    (TransmissionFlags::HAS_FLAGS, "has_flags"),
    (TransmissionFlags::READ_ONLY, "read_only"),
    (TransmissionFlags::FLUSH, "flush"),
    (TransmissionFlags::FUA, "fua"),
    (TransmissionFlags::ROTATIONAL, "rotational"),
    (TransmissionFlags::TRIM, "trim"),
    (TransmissionFlags::WRITE_ZEROES, "write_zeroes"),
    (TransmissionFlags::DF, "df"),
    (TransmissionFlags::MULTI_CONN, "multi_conn"),
    (TransmissionFlags::CACHE, "cache"),
    (TransmissionFlags::FAST_ZERO, "fast_zero"),
];

impl TransmissionFlags {
    /// `NBD_FLAG_HAS_FLAGS`: always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// `NBD_FLAG_READ_ONLY`.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `NBD_FLAG_SEND_FLUSH`.
    pub const FLUSH: u16 = 1 << 2;
    /// `NBD_FLAG_SEND_FUA`.
    pub const FUA: u16 = 1 << 3;
    /// `NBD_FLAG_ROTATIONAL`.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// `NBD_FLAG_SEND_TRIM`.
    pub const TRIM: u16 = 1 << 5;
    /// `NBD_FLAG_SEND_WRITE_ZEROES`.
    pub const WRITE_ZEROES: u16 = 1 << 6;
    /// `NBD_FLAG_SEND_DF`.
    pub const DF: u16 = 1 << 7;
    /// `NBD_FLAG_CAN_MULTI_CONN`.
    pub const MULTI_CONN: u16 = 1 << 8;
    /// `NBD_FLAG_SEND_CACHE`.
    pub const CACHE: u16 = 1 << 10;
    /// `NBD_FLAG_SEND_FAST_ZERO`.
    pub const FAST_ZERO: u16 = 1 << 11;

    /// These flags and `NBD_FLAG_HAS_FLAGS`.
    #[must_use]
    pub const fn of(flags: u16) -> Self {
        Self(flags | Self::HAS_FLAGS)
    }

    /// Whether one of `flags` is set.
    #[must_use]
    pub const fn has(self, flags: u16) -> bool {
        self.0 & flags != 0
    }

    /// These, without `flags`.
    #[must_use]
    pub const fn without(self, flags: u16) -> Self {
        Self(self.0 & !flags)
    }

    /// Whether the export cannot be written.
    #[must_use]
    pub const fn read_only(self) -> bool {
        self.has(Self::READ_ONLY)
    }

    /// Whether `NBD_CMD_FLUSH` is understood.
    #[must_use]
    pub const fn flush(self) -> bool {
        self.has(Self::FLUSH)
    }

    /// Whether `NBD_CMD_FLAG_FUA` is understood.
    #[must_use]
    pub const fn fua(self) -> bool {
        self.has(Self::FUA)
    }

    /// Whether `NBD_CMD_TRIM` is understood.
    #[must_use]
    pub const fn trim(self) -> bool {
        self.has(Self::TRIM)
    }

    /// Whether `NBD_CMD_WRITE_ZEROES` is understood.
    #[must_use]
    pub const fn write_zeroes(self) -> bool {
        self.has(Self::WRITE_ZEROES)
    }

    /// Whether a read can be asked for in one piece (`NBD_CMD_FLAG_DF`).
    #[must_use]
    pub const fn df(self) -> bool {
        self.has(Self::DF)
    }

    /// Whether a flush on one connection covers writes that were answered on others.
    #[must_use]
    pub const fn multi_conn(self) -> bool {
        self.has(Self::MULTI_CONN)
    }

    /// Whether `NBD_CMD_CACHE` is understood.
    #[must_use]
    pub const fn cache(self) -> bool {
        self.has(Self::CACHE)
    }

    /// Whether `NBD_CMD_FLAG_FAST_ZERO` is understood.
    #[must_use]
    pub const fn fast_zero(self) -> bool {
        self.has(Self::FAST_ZERO)
    }
}

impl Default for TransmissionFlags {
    fn default() -> Self {
        Self::of(0)
    }
}

impl fmt::Display for TransmissionFlags {
    /// The words of those that are set, but for `has_flags`, and the number of what has no word.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut rest = self.0;
        for (flag, name) in NAMES {
            if self.0 & flag != 0 && flag != Self::HAS_FLAGS {
                write!(f, "{separator}{name}")?;
                separator = ",";
            }
            rest &= !flag;
        }
        if rest != 0 {
            write!(f, "{separator}{rest:#06x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for TransmissionFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransmissionFlags({:#06x}: {self})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_named_and_unknown_ones_are_shown() {
        let flags = TransmissionFlags::of(TransmissionFlags::FLUSH | TransmissionFlags::MULTI_CONN | 1 << 14);
        assert_eq!(flags.to_string(), "flush,multi_conn,0x4000");
        assert!(flags.flush() && flags.multi_conn() && !flags.read_only());
        assert_eq!(flags.without(TransmissionFlags::FLUSH).to_string(), "multi_conn,0x4000");
    }
}
