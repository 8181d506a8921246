//! Where checksums lie on the members of a volume, and what their blocks look like (`docs/formats.md`).
//!
//! The data of a member lie where they lie without checksums. Behind them are two more areas:
//!
//! 1. **Blocks of sums.** The data of a member are divided into groups of [`SumsLayout::group_blocks`] blocks of 4 KiB.
//!    Each group has a block with a CRC-32C for each of its blocks, which lies on the *next* member, so that a device that
//!    loses or misplaces a write of data does not do the same to its checksum.
//! 2. **The map.** A region is [`SumsLayout::region_groups`] groups, the same ones of all members. The map has a byte for
//!    each region, which says whether its blocks of sums were ever written and whether it may be written at present.
//!    Each block of the map has two slots, on two members. A change goes to the slot with the older state, so a write
//!    that the power cuts short leaves the state before it.
//!
//! Each CRC begins with the volume's UUID, and the member and number of the block. A block that lies in another's place,
//! or is of another volume, therefore does not fit the checksum of that place.

use crate::label::Label;
use crate::sums_layout::{BLOCK, MAP_ENTRIES, MAP_HEADER, SUMS_HEADER, SumsLayout};

const SUMS_MAGIC: &[u8; 4] = b"fwsm";
const MAP_MAGIC: &[u8; 4] = b"fwmp";

/// The checksum of a block that was never written, or was discarded: none, so the block is not verified.
pub const NO_SUM: u32 = 0;
/// The checksum of a block whose block of sums was damaged. The block cannot be verified until it is written again.
pub const LOST_SUM: u32 = 1;

/// The bit of a region whose blocks of sums were written.
pub const HAS_SUMS: u8 = 1;
/// The bit of a region that is being written, or was when its writer was stopped.
pub const MARKED: u8 = 2;

/// The areas of one volume's members.
#[derive(Debug, Clone)]
pub struct Area {
    layout: SumsLayout,
    width: u32,
    chunk: u64,
    /// Where the data begin on each member, bytes.
    pub data_start: u64,
    /// Bytes of data on each member.
    pub data_bytes: u64,
    /// What the checksums of each member begin with.
    seeds: Vec<u32>,
    map_seed: u32,
}

impl Area {
    /// Those of the volume that a label is of; none if it keeps no checksums.
    pub fn of(label: &Label) -> Option<Self> {
        let Label { width, chunk, data_start, data_bytes, volume, .. } = *label;
        let volume = crc32c::crc32c(&volume.0);
        let seeds = (0..width).map(|member| crc32c::crc32c_append(volume, &member.to_le_bytes()));
        let seeds = seeds.collect();
        let map_seed = crc32c::crc32c_append(volume, MAP_MAGIC);
        Some(Self { layout: label.sums?, width, chunk, data_start, data_bytes, seeds, map_seed })
    }

    /// How many members there are.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Where a byte of a member's data lies in the volume.
    pub fn volume_offset(&self, member: u32, offset: u64) -> u64 {
        let (row, within) = (offset / self.chunk, offset % self.chunk);
        (row * u64::from(self.width) + u64::from(member)) * self.chunk + within
    }

    /// Blocks that share a block of sums.
    pub fn group_blocks(&self) -> u64 {
        u64::from(self.layout.group_blocks)
    }

    /// Groups of each member.
    pub fn groups(&self) -> u64 {
        self.layout.groups(self.data_bytes)
    }

    /// Regions of the volume.
    pub fn regions(&self) -> u64 {
        self.layout.regions(self.data_bytes)
    }

    /// Blocks of the map.
    pub fn map_blocks(&self) -> u64 {
        self.regions().div_ceil(MAP_ENTRIES)
    }

    /// Blocks of data of `group` on each member; the last group may be short.
    pub fn blocks_of(&self, group: u64) -> std::ops::Range<u64> {
        let first = group * self.group_blocks();
        first..(first + self.group_blocks()).min(self.data_bytes / BLOCK)
    }

    /// The group of a block of a member's data.
    pub fn group_of(&self, block: u64) -> u64 {
        block / self.group_blocks()
    }

    /// The region of a group.
    pub fn region_of(&self, group: u64) -> u64 {
        group / u64::from(self.layout.region_groups)
    }

    /// The groups of a region on each member.
    pub fn groups_of(&self, region: u64) -> std::ops::Range<u64> {
        let each = u64::from(self.layout.region_groups);
        region * each..((region + 1) * each).min(self.groups())
    }

    /// Bytes of data of a full region on each member.
    pub fn region_bytes(&self) -> u64 {
        self.layout.group_bytes() * u64::from(self.layout.region_groups)
    }

    fn next_member(&self, member: u32) -> u32 {
        (member + 1) % self.width
    }

    /// The member on which the block of sums of a member's group lies, and where.
    pub fn sums_place(&self, member: u32, group: u64) -> (u32, u64) {
        (self.next_member(member), self.data_start + self.data_bytes + group * BLOCK)
    }

    /// The member on which a slot, 0 or 1, of a block of the map lies, and where.
    pub fn map_place(&self, index: u64, slot: u64) -> (u32, u64) {
        let first = (index % u64::from(self.width)) as u32;
        let holder = if slot == 0 { first } else { self.next_member(first) };
        (holder, self.data_start + self.data_bytes + (self.groups() + 2 * index + slot) * BLOCK)
    }

    /// The checksum of `block` of `member`, which holds `bytes`.
    #[inline]
    pub fn sum(&self, member: u32, block: u64, bytes: &[u8]) -> u32 {
        sum_of(crc32c::crc32c_append(self.seed(member, block), bytes))
    }

    /// What the checksum of `block` of `member` would be, had it the contents of which `plain` is the CRC-32C.
    pub fn sum_of_contents(&self, member: u32, block: u64, plain: u32) -> u32 {
        sum_of(crc32c::crc32c_combine(self.seed(member, block), plain, BLOCK as usize))
    }

    #[inline]
    fn seed(&self, member: u32, block: u64) -> u32 {
        crc32c::crc32c_append(self.seeds[member as usize], &block.to_le_bytes())
    }

    /// The block of sums of a member's group.
    pub fn encode_sums(&self, member: u32, group: u64, sums: &[u32], block: &mut [u8]) {
        block.fill(0);
        block[4..8].copy_from_slice(SUMS_MAGIC);
        block[8..16].copy_from_slice(&group.to_le_bytes());
        for (to, sum) in block[SUMS_HEADER..].chunks_exact_mut(4).zip(sums) {
            to.copy_from_slice(&sum.to_le_bytes());
        }
        let own = crc32c::crc32c_append(self.seed(member, group), &block[4..]);
        block[..4].copy_from_slice(&own.to_le_bytes());
    }

    /// The checksums in the block of sums of a member's group; none if it is not as it was written there.
    pub fn decode_sums(&self, member: u32, group: u64, block: &[u8]) -> Option<Box<[u32]>> {
        let own = crc32c::crc32c_append(self.seed(member, group), &block[4..]);
        let is_whole = block[..4] == own.to_le_bytes()
            && block[4..8] == SUMS_MAGIC[..]
            && block[8..16] == group.to_le_bytes();
        let count = self.layout.group_blocks as usize;
        let sums = block[SUMS_HEADER..].chunks_exact(4).take(count);
        is_whole.then(|| sums.map(|sum| u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]])).collect())
    }

    fn map_sum(&self, index: u64, block: &[u8]) -> u32 {
        let seed = crc32c::crc32c_append(self.map_seed, &index.to_le_bytes());
        crc32c::crc32c_append(seed, &block[4..])
    }

    /// A block of the map.
    pub fn encode_map(&self, index: u64, map: &MapBlock) -> Vec<u8> {
        let mut block = vec![0; BLOCK as usize];
        block[4..8].copy_from_slice(MAP_MAGIC);
        block[8..16].copy_from_slice(&index.to_le_bytes());
        block[16..24].copy_from_slice(&map.generation.to_le_bytes());
        block[24..32].copy_from_slice(&map.resealed.to_le_bytes());
        block[MAP_HEADER..MAP_HEADER + map.entries.len()].copy_from_slice(&map.entries);
        let own = self.map_sum(index, &block);
        block[..4].copy_from_slice(&own.to_le_bytes());
        block
    }

    /// What a block of the map says; none if it is not as it was written there.
    pub fn decode_map(&self, index: u64, block: &[u8]) -> Option<MapBlock> {
        let is_whole = block[..4] == self.map_sum(index, block).to_le_bytes()
            && block[4..8] == MAP_MAGIC[..]
            && block[8..16] == index.to_le_bytes();
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| block[at + i]));
        is_whole.then(|| {
            let regions = self.regions_of(index);
            let end = MAP_HEADER + (regions.end - regions.start) as usize;
            let entries = block[MAP_HEADER..end].to_vec();
            MapBlock { generation: number(16), resealed: number(24), entries }
        })
    }

    /// The regions of a block of the map.
    pub fn regions_of(&self, index: u64) -> std::ops::Range<u64> {
        index * MAP_ENTRIES..((index + 1) * MAP_ENTRIES).min(self.regions())
    }
}

/// A CRC-32C as it is stored: never one of the two values that stand for no checksum.
#[inline]
fn sum_of(crc: u32) -> u32 {
    if crc > LOST_SUM { crc } else { crc + 2 }
}

/// One state of a block of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapBlock {
    /// Counts the times that it was written; of two slots the one with the higher holds.
    pub generation: u64,
    /// Blocks of data that were given a new checksum after a crash, since the volume was made; counted in block 0.
    pub resealed: u64,
    /// Of each region, [`HAS_SUMS`] and [`MARKED`].
    pub entries: Vec<u8>,
}

#[cfg(test)]
#[path = "../../../../formats/fixture.rs"]
mod fixture;

#[cfg(test)]
mod tests {
    use super::*;
    use storage::uuid::Uuid;

    fn area_of(volume: Uuid, width: u32, data_bytes: u64) -> Area {
        let sums = Some(SumsLayout { group_blocks: 3, region_groups: 2 });
        let chunk = BLOCK;
        let label = crate::label::tests::label();
        Area::of(&Label { volume, width, chunk, data_bytes, sums, ..label }).expect("it keeps checksums")
    }

    fn area(width: u32, data_bytes: u64) -> Area {
        area_of(Uuid([7; 16]), width, data_bytes)
    }

    #[test]
    fn a_block_fits_the_checksum_of_its_own_place_only() {
        let (area, bytes) = (area(3, 30 * BLOCK), vec![9; BLOCK as usize]);
        let sum = area.sum(1, 4, &bytes);
        assert_eq!(sum, area.sum_of_contents(1, 4, crc32c::crc32c(&bytes)));
        for (member, block) in [(0, 4), (2, 4), (1, 3), (1, 5)] {
            assert_ne!(sum, area.sum(member, block, &bytes));
        }
        let other = area_of(Uuid([8; 16]), 3, 30 * BLOCK);
        assert_ne!(sum, other.sum(1, 4, &bytes));
    }

    #[test]
    fn blocks_of_sums_and_of_the_map_are_read_for_ever() {
        let area = area(2, 30 * BLOCK);
        let data: Vec<u8> = (0..BLOCK).map(|at| (at % 251) as u8).collect();
        let sums = [area.sum(1, 6, &data), NO_SUM, LOST_SUM];
        let state = MapBlock { generation: 3, resealed: 9, entries: vec![0, HAS_SUMS, MARKED, 3, 0] };
        let mut written = vec![0; BLOCK as usize];
        area.encode_sums(1, 2, &sums, &mut written);
        written.extend(area.encode_map(0, &state));
        let kept = super::fixture::fixture("sums-3.bin", || written.clone());
        let (block, map) = kept.split_at(BLOCK as usize);
        assert_eq!(area.decode_sums(1, 2, block).as_deref(), Some(&sums[..]));
        assert_eq!(area.decode_map(0, map), Some(state));
        assert!(written == kept, "what is written today is the same, byte for byte");
    }

    #[test]
    fn a_flipped_bit_or_another_place_spoils_a_block_of_sums_and_of_the_map() {
        let area = area(2, 30 * BLOCK);
        let mut block = vec![0; BLOCK as usize];
        area.encode_sums(1, 2, &[5, 6, 7], &mut block);
        assert_eq!(area.decode_sums(1, 2, &block).as_deref(), Some(&[5, 6, 7][..]));
        assert_eq!(area.decode_sums(0, 2, &block), None);
        assert_eq!(area.decode_sums(1, 3, &block), None);
        let state = MapBlock { generation: 3, resealed: 9, entries: vec![0, 1, 3, 0, 1] };
        let map = area.encode_map(0, &state);
        assert_eq!(area.decode_map(0, &map), Some(state));
        assert_eq!(area.decode_map(1, &map), None);
        for bit in 0..8 * BLOCK as usize {
            let flipped = |block: &[u8]| {
                let mut block = block.to_vec();
                block[bit / 8] ^= 1 << (bit % 8);
                block
            };
            assert_eq!(area.decode_sums(1, 2, &flipped(&block)), None, "bit {bit}");
            assert_eq!(area.decode_map(0, &flipped(&map)), None, "bit {bit}");
        }
    }

    #[test]
    fn areas_do_not_overlap_and_fill_what_they_are_said_to_take() {
        for width in [1, 2, 3] {
            let area = area(width, 31 * BLOCK);
            let mut places = std::collections::BTreeSet::new();
            for group in 0..area.groups() {
                places.extend((0..width).map(|member| area.sums_place(member, group)));
            }
            for index in 0..area.map_blocks() {
                places.extend([area.map_place(index, 0), area.map_place(index, 1)]);
            }
            let sums = area.groups() * u64::from(width);
            assert_eq!(places.len() as u64, sums + 2 * area.map_blocks());
            let start = area.data_start + area.data_bytes;
            let end = start + area.layout.bytes_for(area.data_bytes);
            assert!(places.iter().all(|(_, at)| (start..end).contains(at)));
        }
    }

    #[test]
    fn as_much_data_fits_as_leaves_room_for_its_checksums() {
        let layout = SumsLayout::default();
        for (room, chunk) in
            [(64 << 20, 64 << 10), (1 << 40, 4096), ((5 << 30) + 4096, 1 << 20), (8192, 4096)]
        {
            let data = layout.data_for(room, chunk);
            assert!(data.is_multiple_of(chunk) && data + layout.bytes_for(data) <= room);
            assert!(data + chunk + layout.bytes_for(data + chunk) > room);
        }
    }
}
