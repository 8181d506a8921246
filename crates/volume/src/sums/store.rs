//! The members of a volume with checksums, as what reads and writes blocks of sums, blocks of the map, and data.

use std::io;
use std::sync::Arc;

use storage::device::{AlignedBuffer, Device};

use super::area::{Area, LOST_SUM, MapBlock, NO_SUM};
use super::cache::Key;
use crate::census::Candidate;
use crate::device::with_member_context;
use crate::label::State;
use crate::sums_layout::BLOCK;

/// How often a block of sums that is not as it was written is read before it counts as damaged.
const MOST_READS: u32 = 2;
/// How often a block of the map is written that is not there afterwards.
const MOST_MAP_WRITES: u32 = 4;

/// See the module's argument.
#[derive(Debug)]
pub struct Store {
    /// Where everything lies.
    pub area: Area,
    /// The members in the order of the volume.
    pub members: Vec<Arc<dyn Device>>,
}

impl Store {
    /// The member at a position.
    pub fn member(&self, position: u32) -> &dyn Device {
        &*self.members[position as usize]
    }

    /// Reads the checksums of a group. Of a block of sums that is damaged all checksums are lost.
    pub fn read_sums(&self, (member, group): Key) -> io::Result<Box<[u32]>> {
        for _ in 0..MOST_READS {
            if let Some(sums) = self.read_sums_if_whole((member, group))? {
                return Ok(sums);
            }
        }
        Ok(vec![LOST_SUM; self.area.group_blocks() as usize].into())
    }

    /// Reads the checksums of a group; none if their block is damaged.
    pub fn read_sums_if_whole(&self, (member, group): Key) -> io::Result<Option<Box<[u32]>>> {
        let (holder, at) = self.area.sums_place(member, group);
        let mut block = AlignedBuffer::zeroed(BLOCK as usize, BLOCK as usize);
        self.read(holder, &mut block, at)?;
        Ok(self.area.decode_sums(member, group, &block))
    }

    /// Writes the checksums of a group and of those that follow it.
    pub fn write_sums(&self, (member, first): Key, all: &[Box<[u32]>]) -> io::Result<()> {
        let mut blocks = AlignedBuffer::zeroed(all.len() * BLOCK as usize, BLOCK as usize);
        for ((group, sums), block) in (first..).zip(all).zip(blocks.chunks_exact_mut(BLOCK as usize)) {
            self.area.encode_sums(member, group, sums, block);
        }
        let (holder, at) = self.area.sums_place(member, first);
        self.write(holder, &blocks[..all.len() * BLOCK as usize], at)
    }

    /// Writes blocks of sums without a checksum for the groups of a region on all members.
    pub fn write_fresh_sums(&self, region: u64) -> io::Result<()> {
        let groups = self.area.groups_of(region);
        let none: Box<[u32]> = vec![NO_SUM; self.area.group_blocks() as usize].into();
        let all = vec![none; (groups.end - groups.start) as usize];
        (0..self.area.width()).try_for_each(|member| self.write_sums((member, groups.start), &all))
    }

    /// Whether the last session that wrote has ended in peace, by the labels. Each member is *open* from before the
    /// first write of a session until its end, and one that is not shows that all of them were synced.
    pub fn was_closed(&self) -> io::Result<bool> {
        for member in &self.members {
            let candidate = Candidate::read(&**member)?;
            if candidate.label().is_some_and(|label| label.state != State::Open) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads a block of the map: the slot that was written last, and whether the other was as it was written.
    pub fn read_map(&self, index: u64) -> io::Result<(Option<MapBlock>, bool)> {
        let mut slots = [None, None];
        for (slot, found) in (0..).zip(&mut slots) {
            let (holder, at) = self.area.map_place(index, slot);
            let mut block = AlignedBuffer::zeroed(BLOCK as usize, BLOCK as usize);
            self.read(holder, &mut block, at)?;
            *found = self.area.decode_map(index, &block);
        }
        let are_whole = slots.iter().all(Option::is_some);
        Ok((slots.into_iter().flatten().max_by_key(|block| block.generation), are_whole))
    }

    /// Writes a block of the map to the slot of its generation, makes it durable, and reads it back: where the write of
    /// a slot is lost and the next one, to the other slot, is cut short, a state of long ago would hold.
    ///
    /// # Errors
    /// The member's; `InvalidData` if it is not there after several attempts.
    pub fn write_map(&self, index: u64, map: &MapBlock) -> io::Result<()> {
        let (holder, at) = self.area.map_place(index, map.generation % 2);
        let block = self.area.encode_map(index, map);
        let mut found = AlignedBuffer::zeroed(BLOCK as usize, BLOCK as usize);
        for _ in 0..MOST_MAP_WRITES {
            self.write(holder, &block, at)?;
            self.sync(holder)?;
            self.read(holder, &mut found, at)?;
            if found[..] == block[..] {
                return Ok(());
            }
        }
        let member = self.member(holder).spec();
        let why =
            format!("the map of checksums at {at} of {member} is not what was written there just before");
        Err(io::Error::new(io::ErrorKind::InvalidData, why))
    }

    /// Reads from a member.
    ///
    /// # Errors
    /// The member's, with the place on it.
    pub fn read(&self, member: u32, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let (device, length) = (self.member(member), buffer.len() as u64);
        device.read_at(buffer, offset).map_err(|e| with_member_context("read", device, offset, length, e))
    }

    /// Writes to a member.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&self, member: u32, buffer: &[u8], offset: u64) -> io::Result<()> {
        let (device, length) = (self.member(member), buffer.len() as u64);
        device.write_at(buffer, offset).map_err(|e| with_member_context("write", device, offset, length, e))
    }

    fn sync(&self, member: u32) -> io::Result<()> {
        let device = self.member(member);
        device.sync_data().map_err(|e| with_member_context("fdatasync", device, 0, 0, e))
    }

    /// Syncs every member, the others too where one fails.
    pub fn sync_all(&self) -> io::Result<()> {
        let results: Vec<_> = (0..self.area.width()).map(|member| self.sync(member)).collect();
        results.into_iter().collect()
    }
}
