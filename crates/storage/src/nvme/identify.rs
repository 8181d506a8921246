//! What a namespace says of itself.

/// Capacity and format, from Identify Namespace (NVM Command Set Specification 1.0, figure 97).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of one.
    pub block_bytes: u32,
}

/// A format that is not driven here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WrongFormat {
    /// Each block has metadata.
    #[error("has {0} bytes of metadata for each block")]
    Metadata(u16),
    /// Blocks below 512 bytes or above 64 KiB.
    #[error("has blocks of 2^{0} bytes")]
    Block(u8),
    /// Nothing on it can be addressed.
    #[error("has no blocks")]
    Empty,
}

impl WrongFormat {
    /// As what a target is not.
    pub fn what(self) -> &'static str {
        match self {
            Self::Metadata(_) => "an NVMe namespace with metadata for each block",
            Self::Block(_) => "an NVMe namespace with blocks of no usual size",
            Self::Empty => "an NVMe namespace without blocks",
        }
    }
}

impl Identity {
    /// Reads the first 384 bytes of the answer.
    pub fn parse(data: &[u8; 4096]) -> Result<Self, WrongFormat> {
        let blocks = u64::from_le_bytes(data[..8].try_into().expect("eight bytes"));
        // Bits 3:0, and above 16 formats bits 6:5 as well (FLBAS, NLBAF).
        let high = if data[25] > 15 { (data[26] >> 5 & 3) << 4 } else { 0 };
        let format = 128 + 4 * usize::from(data[26] & 15 | high);
        let metadata = u16::from_le_bytes([data[format], data[format + 1]]);
        if metadata != 0 {
            return Err(WrongFormat::Metadata(metadata));
        }
        match data[format + 2] {
            shift if !(9..=16).contains(&shift) => Err(WrongFormat::Block(shift)),
            _ if blocks == 0 => Err(WrongFormat::Empty),
            shift => Ok(Self { blocks, block_bytes: 1 << shift }),
        }
    }

    /// Bytes of the namespace.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1000 blocks, formatted by number `format`, which has these bytes.
    fn answer(format: u8, formats: u8, bytes: [u8; 4]) -> [u8; 4096] {
        let mut data = [0; 4096];
        data[..8].copy_from_slice(&1000_u64.to_le_bytes());
        data[25] = formats - 1;
        data[26] = format & 15 | (format >> 4) << 5;
        data[128 + 4 * usize::from(format)..][..4].copy_from_slice(&bytes);
        data
    }

    #[test]
    fn capacity_and_block_are_those_of_the_format_in_use() {
        let of = |format, formats, shift| Identity::parse(&answer(format, formats, [0, 0, shift, 0]));
        assert_eq!(of(0, 1, 9), Ok(Identity { blocks: 1000, block_bytes: 512 }));
        assert_eq!(of(4, 8, 12), Ok(Identity { blocks: 1000, block_bytes: 4096 }));
        assert_eq!(of(0x21, 64, 12).map(|identity| identity.bytes()), Ok(4_096_000));
        assert_eq!(of(0, 1, 0), Err(WrongFormat::Block(0)));
        assert_eq!(of(0, 1, 40), Err(WrongFormat::Block(40)));
    }

    #[test]
    fn the_upper_bits_of_the_format_count_only_above_sixteen_formats() {
        let mut data = answer(1, 8, [0, 0, 9, 0]);
        data[26] |= 3 << 5;
        assert_eq!(Identity::parse(&data).map(|identity| identity.block_bytes), Ok(512));
    }

    #[test]
    fn metadata_and_nothing_are_refused() {
        assert_eq!(Identity::parse(&answer(0, 1, [8, 0, 9, 0])), Err(WrongFormat::Metadata(8)));
        let mut empty = answer(0, 1, [0, 0, 9, 0]);
        empty[..8].fill(0);
        assert_eq!(Identity::parse(&empty), Err(WrongFormat::Empty));
    }
}
