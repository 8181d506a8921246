//! How checksums are laid out behind the data of a member, as a label says it. [`crate::sums`] keeps them.

/// Bytes that one checksum covers, and bytes of a block of sums or of the map.
pub const BLOCK: u64 = 4096;
/// Checksums that fit into a block of sums beside its header.
pub const MOST_SUMS: u32 = ((BLOCK - SUMS_HEADER as u64) / 4) as u32;
/// Bytes of its header.
pub const SUMS_HEADER: usize = 16;
/// Bytes of the header of a block of the map.
pub const MAP_HEADER: usize = 64;
/// Regions of a block of the map.
pub const MAP_ENTRIES: u64 = BLOCK - MAP_HEADER as u64;

/// How checksums are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SumsLayout {
    /// Blocks of 4 KiB that share a block of sums, 1 to 1020.
    pub group_blocks: u32,
    /// Groups of each member that are marked together before they are written, 1 to 65536.
    pub region_groups: u32,
}

impl Default for SumsLayout {
    /// A block of sums for each 4080 KiB, in regions of 15.9 MiB of each member.
    fn default() -> Self {
        Self { group_blocks: MOST_SUMS, region_groups: 4 }
    }
}

impl SumsLayout {
    /// Whether the numbers are in range.
    pub fn makes_sense(self) -> bool {
        (1..=MOST_SUMS).contains(&self.group_blocks) && (1..=1 << 16).contains(&self.region_groups)
    }

    pub(crate) fn group_bytes(self) -> u64 {
        u64::from(self.group_blocks) * BLOCK
    }

    pub(crate) fn groups(self, data_bytes: u64) -> u64 {
        data_bytes.div_ceil(self.group_bytes())
    }

    pub(crate) fn regions(self, data_bytes: u64) -> u64 {
        self.groups(data_bytes).div_ceil(u64::from(self.region_groups))
    }

    /// Bytes of each member that checksums of `data_bytes` take behind the data.
    pub fn bytes_for(self, data_bytes: u64) -> u64 {
        (self.groups(data_bytes) + 2 * self.regions(data_bytes).div_ceil(MAP_ENTRIES)) * BLOCK
    }

    /// The most data, in whole chunks, that fit into `room` bytes of a member with their checksums.
    pub fn data_for(self, room: u64, chunk: u64) -> u64 {
        let (mut low, mut high) = (0, room / chunk);
        while low < high {
            let middle = high - (high - low) / 2;
            let data = middle * chunk;
            match data.checked_add(self.bytes_for(data)) {
                Some(all) if all <= room => low = middle,
                _ => high = middle - 1,
            }
        }
        low * chunk
    }
}
