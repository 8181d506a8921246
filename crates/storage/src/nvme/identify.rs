//! What a namespace says of itself.

use super::protection::{BlockMetadata, Guard, MetadataTransfer, ProtectionAction, ProtectionFormat};

/// Capacity and format, from Identify Namespace (NVM Command Set Specification 1.0, figure 97).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of the data of one.
    pub block_bytes: u32,
    /// The number of the format in use.
    pub format: u8,
    /// The metadata of each block, where there is some.
    pub metadata: Option<MetadataFormat>,
}

/// The metadata of each block, before it is known what protection information it can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MetadataFormat {
    /// Bytes for each block.
    pub bytes: u16,
    /// It lies behind each block's data (an extended logical block), and not in a buffer of its own.
    pub is_interleaved: bool,
    /// The type of protection information, 0 for none.
    pub protection: u8,
    /// Protection information is the first bytes of the metadata.
    pub is_first: bool,
}

/// A format that is not driven here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WrongFormat {
    /// Blocks below 512 bytes or above 64 KiB.
    #[error("has blocks of 2^{0} bytes")]
    Block(u8),
    /// Nothing on it can be addressed.
    #[error("has no blocks")]
    Empty,
    /// Protection information of a type that there is not, or for which the metadata has no room.
    #[error("has protection information of type {0} that is not known")]
    Protection(u8),
    /// A guard of 32 bits, or of a kind that there is not.
    #[error("has guard tags of kind {0}")]
    Guard(u8),
    /// Part of the reference tag is a storage tag.
    #[error("has storage tags of {0} bits")]
    StorageTag(u8),
}

/// What a namespace with metadata is, to whom asks for a namespace without.
pub(crate) const WITH_METADATA: &str = "an NVMe namespace with metadata for each block";

impl WrongFormat {
    /// As what a target is not.
    pub fn what(self) -> &'static str {
        match self {
            Self::Block(_) => "an NVMe namespace with blocks of no usual size",
            Self::Empty => "an NVMe namespace without blocks",
            Self::Protection(_) => "an NVMe namespace with protection information of no known type",
            Self::Guard(_) => "an NVMe namespace with guard tags of 32 bits, or of no known kind",
            Self::StorageTag(_) => "an NVMe namespace with storage tags",
        }
    }
}

impl Identity {
    /// Reads the first 384 bytes of the answer.
    pub fn parse(data: &[u8; 4096]) -> Result<Self, WrongFormat> {
        let blocks = u64::from_le_bytes(data[..8].try_into().expect("eight bytes"));
        let (flbas, dps) = (data[26], data[29]);
        // Bits 3:0, and above 16 formats bits 6:5 as well (FLBAS, NLBAF).
        let high = if data[25] > 15 { (flbas >> 5 & 3) << 4 } else { 0 };
        let format = flbas & 15 | high;
        let at = 128 + 4 * usize::from(format);
        let bytes = u16::from_le_bytes([data[at], data[at + 1]]);
        let metadata = (bytes > 0).then_some(MetadataFormat {
            bytes,
            is_interleaved: flbas & 1 << 4 != 0,
            protection: dps & 7,
            is_first: dps & 1 << 3 != 0,
        });
        match data[at + 2] {
            shift if !(9..=16).contains(&shift) => Err(WrongFormat::Block(shift)),
            _ if blocks == 0 => Err(WrongFormat::Empty),
            shift => Ok(Self { blocks, block_bytes: 1 << shift, format, metadata }),
        }
    }

    /// Bytes of the data of the namespace.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_bytes))
    }

    /// The metadata of its blocks, for who has protection information made by `action`. `extended` says what of it is not
    /// in every drive: see [`extended_part`].
    pub fn block_metadata(
        &self,
        extended: u32,
        action: ProtectionAction,
    ) -> Result<Option<BlockMetadata>, WrongFormat> {
        let Some(metadata) = self.metadata else { return Ok(None) };
        let protection = protection(metadata, extended)?;
        let is_only = |format: ProtectionFormat| format.guard.tuple_bytes() == usize::from(metadata.bytes);
        let transfer = match metadata.is_interleaved {
            _ if action == ProtectionAction::Controller && protection.is_some_and(is_only) => {
                MetadataTransfer::None
            }
            true => MetadataTransfer::Interleaved,
            false => MetadataTransfer::Separate,
        };
        let (data_bytes, bytes) = (self.block_bytes, u32::from(metadata.bytes));
        Ok(Some(BlockMetadata { data_bytes, bytes, transfer, action, protection }))
    }
}

fn protection(metadata: MetadataFormat, extended: u32) -> Result<Option<ProtectionFormat>, WrongFormat> {
    let MetadataFormat { bytes, protection: kind, is_first, .. } = metadata;
    let (storage_tag, guard) = ((extended & 0x7f) as u8, (extended >> 7 & 3) as u8);
    let guard = match (kind, guard) {
        (0, _) => return Ok(None),
        (4.., _) => return Err(WrongFormat::Protection(kind)),
        _ if storage_tag > 0 => return Err(WrongFormat::StorageTag(storage_tag)),
        (_, 0) => Guard::Bits16,
        (_, 2) => Guard::Bits64,
        (_, other) => return Err(WrongFormat::Guard(other)),
    };
    if guard.tuple_bytes() > usize::from(bytes) {
        return Err(WrongFormat::Protection(kind));
    }
    Ok(Some(ProtectionFormat { kind, is_first, guard }))
}

/// Whether a controller has extended formats, which say how long guard and storage tags are: bit 15 of CTRATT, from
/// Identify Controller.
pub(crate) fn has_extended_formats(controller: &[u8; 4096]) -> bool {
    controller[97] & 0x80 != 0
}

/// The extended part of a format, from the I/O Command Set specific Identify Namespace (figure 100): the size of the storage
/// tag in bits 6:0, and in bits 8:7 which guard it has.
pub(crate) fn extended_part(data: &[u8; 4096], format: u8) -> u32 {
    let at = 12 + 4 * usize::from(format);
    u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes"))
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
        let identity = |format, block_bytes| Identity { blocks: 1000, block_bytes, format, metadata: None };
        assert_eq!(of(0, 1, 9), Ok(identity(0, 512)));
        assert_eq!(of(4, 8, 12), Ok(identity(4, 4096)));
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
    fn a_namespace_without_blocks_is_refused() {
        let mut empty = answer(0, 1, [0, 0, 9, 0]);
        empty[..8].fill(0);
        assert_eq!(Identity::parse(&empty), Err(WrongFormat::Empty));
    }

    /// The identity of a namespace with so many bytes of metadata, interleaved or not, and this byte of protection.
    fn with_metadata(bytes: u8, is_interleaved: bool, protection: u8) -> Identity {
        let mut data = answer(2, 4, [bytes, 0, 12, 0]);
        (data[26], data[29]) = (data[26] | u8::from(is_interleaved) << 4, protection);
        Identity::parse(&data).expect("has blocks")
    }

    #[test]
    fn metadata_is_transferred_behind_each_block_or_beside_unless_the_controller_makes_all_of_it() {
        let (controller, host) = (ProtectionAction::Controller, ProtectionAction::Host);
        let of = |bytes, is_interleaved, protection, action| {
            let identity = with_metadata(bytes, is_interleaved, protection);
            assert_eq!((identity.bytes(), identity.format), (4_096_000, 2));
            let metadata = identity.block_metadata(0, action).expect("is driven").expect("has some");
            assert_eq!((metadata.data_bytes, metadata.bytes), (4096, u32::from(bytes)));
            (metadata.transfer, metadata.block_bytes(), metadata.protection)
        };
        let crc = |kind, is_first| Some(ProtectionFormat { kind, is_first, guard: Guard::Bits16 });
        assert_eq!(of(64, true, 1, host), (MetadataTransfer::Interleaved, 4160, crc(1, false)));
        assert_eq!(of(64, true, 1, controller), (MetadataTransfer::Interleaved, 4160, crc(1, false)));
        assert_eq!(of(8, true, 9, controller), (MetadataTransfer::None, 4096, crc(1, true)));
        assert_eq!(of(8, true, 2, host), (MetadataTransfer::Interleaved, 4104, crc(2, false)));
        assert_eq!(of(8, false, 11, host), (MetadataTransfer::Separate, 4096, crc(3, true)));
        assert_eq!(of(8, false, 0, controller), (MetadataTransfer::Separate, 4096, None), "plain metadata");
        let plain = Identity::parse(&answer(0, 1, [0, 0, 9, 0])).expect("has blocks");
        assert_eq!(plain.block_metadata(0, host), Ok(None));
    }

    #[test]
    fn guards_of_64_bits_are_told_by_the_extended_format_and_what_is_not_driven_is_refused() {
        let of = |bytes, protection, extended| {
            let metadata = with_metadata(bytes, false, protection)
                .block_metadata(extended, ProtectionAction::Controller);
            metadata.map(|metadata| metadata.expect("has some"))
        };
        let long = of(16, 1, 2 << 7).expect("is driven");
        assert_eq!(long.protection.map(|format| format.guard), Some(Guard::Bits64));
        assert_eq!(long.transfer, MetadataTransfer::None);
        assert_eq!(of(16, 1, 0).map(|short| short.transfer), Ok(MetadataTransfer::Separate), "8 of 16 bytes");
        assert_eq!(of(16, 1, 1 << 7), Err(WrongFormat::Guard(1)));
        assert_eq!(of(16, 1, 2 << 7 | 8), Err(WrongFormat::StorageTag(8)));
        assert_eq!(of(8, 1, 2 << 7), Err(WrongFormat::Protection(1)), "there is no room for the tuple");
        assert_eq!(of(8, 4, 0), Err(WrongFormat::Protection(4)));
        assert!(of(16, 0, 2 << 7 | 8).is_ok(), "without protection information none of it matters");
        let mut data = [0; 4096];
        data[12 + 4 * 5..][..4].copy_from_slice(&(2_u32 << 7 | 3).to_le_bytes());
        assert_eq!((extended_part(&data, 5), extended_part(&data, 4)), (2 << 7 | 3, 0));
        assert!(!has_extended_formats(&data));
        data[97] = 0x80;
        assert!(has_extended_formats(&data));
    }
}
