//! A vector with random access: a stream whose blocks are read into a cache, changed there, and written back.
//!
//! Blocks are replaced by the clock algorithm: a block that was used since the hand last passed is spared once. A changed
//! block is written to the place that it has; its checksum in memory changes with it, so that a write that was lost is found
//! when the block is read again. Sequential passes are cheaper by [`Stream`]s, to and from which a vector converts without
//! copying.

use std::collections::HashMap;

use crate::blocks::{BlockIo, Entry};
use crate::stream::{Stream, block_records};
use crate::{ExternalError, Record, Space};

/// Records at positions, on temporary space.
#[derive(Debug)]
pub struct ExternalVec<T: Record> {
    // Dropped first: its requests are over before a block may be written by its next owner.
    io: BlockIo,
    stream: Stream<T>,
    cache: Vec<Cached>,
    /// The place in `cache` of each block that is there.
    places: HashMap<usize, usize>,
    hand: usize,
    buffers: usize,
    block_records: usize,
}

/// A block in memory.
#[derive(Debug)]
struct Cached {
    slot: u32,
    index: usize,
    is_changed: bool,
    is_recent: bool,
}

impl<T: Record> ExternalVec<T> {
    /// An empty vector with `buffers` blocks of memory, at least 2.
    ///
    /// # Errors
    /// [`ExternalError::Engine`] where the buffers cannot be had.
    pub fn new(space: &Space, buffers: u32) -> Result<Self, ExternalError> {
        Self::from_stream(Stream::empty(space), buffers)
    }

    /// The records of a stream, with `buffers` blocks of memory, at least 2.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_stream(mut stream: Stream<T>, buffers: u32) -> Result<Self, ExternalError> {
        let buffers = buffers.max(2);
        let io = BlockIo::open(stream.space(), buffers)?;
        let short = stream.take_short();
        let block_records = block_records::<T>(stream.space());
        let mut vector = Self {
            io,
            stream,
            cache: Vec::new(),
            places: HashMap::new(),
            hand: 0,
            buffers: buffers as usize,
            block_records,
        };
        for record in short {
            vector.push(record)?;
        }
        Ok(vector)
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.stream.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stream.is_empty()
    }

    /// Appends a record.
    ///
    /// # Errors
    /// The failure of a write of another block, and [`ExternalError::Full`].
    pub fn push(&mut self, record: T) -> Result<(), ExternalError> {
        let (index, position) = self.locate(self.len());
        let place = if position == 0 {
            let block = self.stream.space().take_block()?;
            // Without bytes yet, and so without need to be read.
            self.stream.append(Entry { block, length: 0, crc: 0 }, 0);
            let slot = self.slot()?;
            self.keep(slot, index)
        } else {
            self.load(index)?
        };
        let length = ((position + 1) * size_of::<T>()) as u32;
        self.io.records_mut::<T>(self.cache[place].slot, length)[position] = record;
        self.cache[place].is_changed = true;
        self.stream.grow_last(length, 1);
        Ok(())
    }

    /// The record at `index`.
    ///
    /// # Errors
    /// [`ExternalError::OutOfRange`]; a failed or corrupt read, and the failure of a write of another block.
    pub fn get(&mut self, index: u64) -> Result<T, ExternalError> {
        let (block, position) = self.checked(index)?;
        let place = self.load(block)?;
        let length = self.stream.entries()[block].length;
        Ok(self.io.records::<T>(self.cache[place].slot, length)[position])
    }

    /// The records from `index` to the end of its block.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn records_from(&mut self, index: u64) -> Result<&[T], ExternalError> {
        let (block, position) = self.checked(index)?;
        let place = self.load(block)?;
        let length = self.stream.entries()[block].length;
        Ok(&self.io.records::<T>(self.cache[place].slot, length)[position..])
    }

    /// Replaces the record at `index`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn set(&mut self, index: u64, record: T) -> Result<(), ExternalError> {
        let (block, position) = self.checked(index)?;
        let place = self.load(block)?;
        let length = self.stream.entries()[block].length;
        self.io.records_mut::<T>(self.cache[place].slot, length)[position] = record;
        self.cache[place].is_changed = true;
        Ok(())
    }

    /// Writes all changes, and makes a stream of the records.
    ///
    /// # Errors
    /// The failure of a write.
    pub fn into_stream(mut self) -> Result<Stream<T>, ExternalError> {
        for place in 0..self.cache.len() {
            if self.cache[place].is_changed {
                self.write_back(place)?;
            }
        }
        self.io.drain()?;
        Ok(self.stream)
    }

    fn locate(&self, index: u64) -> (usize, usize) {
        let records = self.block_records as u64;
        ((index / records) as usize, (index % records) as usize)
    }

    fn checked(&self, index: u64) -> Result<(usize, usize), ExternalError> {
        if index >= self.len() {
            return Err(ExternalError::OutOfRange { index, length: self.len() });
        }
        Ok(self.locate(index))
    }

    /// The place in the cache of block `index`, which is read unless it is there.
    fn load(&mut self, index: usize) -> Result<usize, ExternalError> {
        if let Some(&place) = self.places.get(&index) {
            self.cache[place].is_recent = true;
            return Ok(place);
        }
        let slot = self.slot()?;
        let entry = self.stream.entries()[index];
        self.io.read(slot, &entry);
        self.io.wait(slot, &entry)?;
        Ok(self.keep(slot, index))
    }

    /// A slot for another block; one is written back and dropped from the cache where all are in use.
    fn slot(&mut self) -> Result<u32, ExternalError> {
        if self.cache.len() < self.buffers {
            return self.io.hold();
        }
        let place = loop {
            self.hand = (self.hand + 1) % self.cache.len();
            if !std::mem::take(&mut self.cache[self.hand].is_recent) {
                break self.hand;
            }
        };
        if self.cache[place].is_changed {
            self.write_back(place)?;
        } else {
            self.io.release(self.cache[place].slot);
        }
        self.places.remove(&self.cache[place].index);
        self.cache.swap_remove(place);
        if let Some(moved) = self.cache.get(place) {
            self.places.insert(moved.index, place);
        }
        self.io.hold()
    }

    fn keep(&mut self, slot: u32, index: usize) -> usize {
        self.cache.push(Cached { slot, index, is_changed: false, is_recent: true });
        self.places.insert(index, self.cache.len() - 1);
        self.cache.len() - 1
    }

    /// Writes a block; its slot is given up.
    fn write_back(&mut self, place: usize) -> Result<(), ExternalError> {
        let Cached { slot, index, .. } = self.cache[place];
        let Entry { block, length, .. } = self.stream.entries()[index];
        let entry = self.io.write(slot, block, length)?;
        self.stream.replace(index, entry);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;
    use crate::tests::memory_space;

    #[test]
    fn random_accesses_are_those_of_a_vector_in_memory() {
        let space = memory_space(1 << 20, 4096);
        let mut vector = ExternalVec::new(&space, 3).expect("opens");
        let mut expected = Vec::new();
        let mut state = 2009_u64;
        for step in 0..60_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let index = (state >> 33) % (step + 1);
            if step % 3 == 0 || index >= expected.len() as u64 {
                vector.push(state).expect("fits");
                expected.push(state);
            } else if step % 3 == 1 {
                vector.set(index, step).expect("is there");
                expected[index as usize] = step;
            } else {
                assert_eq!(vector.get(index).expect("is there"), expected[index as usize]);
            }
        }
        assert!(space.usage().bytes_read > 1 << 20, "the cache is smaller than the vector");
        let mut reader = vector.into_stream().expect("is written").into_reader(2);
        let found: Vec<u64> = std::iter::from_fn(|| reader.next_record().expect("reads")).collect();
        assert!(found == expected);
        drop(reader);
        assert_eq!(space.usage().bytes_in_use, 0);
    }

    #[test]
    fn a_stream_becomes_a_vector_and_a_position_behind_it_is_refused() {
        let space = memory_space(1 << 20, 4096);
        for count in [0, 3, 512, 2000_u64] {
            let mut writer = crate::StreamWriter::new(&space, 2);
            (0..count).for_each(|value| writer.push(value * 5).expect("fits"));
            let mut vector =
                ExternalVec::from_stream(writer.finish().expect("is written"), 2).expect("opens");
            assert_eq!(vector.len(), count);
            for index in (0..count).rev() {
                assert_eq!(vector.get(index).expect("is there"), index * 5);
            }
            vector.push(7).expect("fits");
            assert_eq!(vector.get(count).expect("is there"), 7);
            let error = vector.set(count + 1, 0).expect_err("is not there");
            assert_eq!(error.to_string(), format!("record {} was asked for, of {}", count + 1, count + 1));
        }
        assert_eq!(space.usage().bytes_in_use, 0);
    }

    #[test]
    fn a_write_that_was_lost_is_found() {
        let space = memory_space(1 << 20, 4096);
        let mut vector = ExternalVec::new(&space, 2).expect("opens");
        (0..2048_u64).for_each(|value| vector.push(value).expect("fits"));
        assert_eq!(vector.get(5).expect("is there"), 5);
        let mut old = [0; 4096];
        space.device().read_at(&mut old, 0).expect("reads");
        vector.set(5, 99).expect("is there");
        for index in [600, 1100, 1600] {
            vector.get(index).expect("is there");
        }
        space.device().write_at(&old, 0).expect("writes");
        assert!(matches!(vector.get(5), Err(ExternalError::Corrupt { offset: 0, .. })));
    }
}
