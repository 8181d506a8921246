//! Streams: records written once, in order, and read in order.
//!
//! A writer fills one block in memory. What fits it never reaches the device, so short streams cost neither I/O nor an
//! engine. From the second block on, full blocks are written behind the caller's back, and a reader has as many
//! blocks under way as it has buffers, less the one that is being used.
//!
//! Blocks return to the space when the stream is dropped, or while it is read by [`Stream::into_reader`].

use std::collections::VecDeque;

use crate::blocks::{BlockIo, Entry};
use crate::{ExternalError, Record, Space};

/// Records that are read in order: the common face of streams, sorted output and whatever is made of them.
pub trait Source<T: Record> {
    /// The next records, as many as are at hand; empty only at the end.
    ///
    /// # Errors
    /// A failed or corrupt read. What was handed out before stays valid.
    fn fill(&mut self) -> Result<&[T], ExternalError>;

    /// Goes past `count` records of those that [`fill`](Source::fill) returned last.
    fn consume(&mut self, count: usize);

    /// Takes one record; none at the end.
    ///
    /// # Errors
    /// As [`fill`](Source::fill).
    fn next_record(&mut self) -> Result<Option<T>, ExternalError> {
        let record = self.fill()?.first().copied();
        if record.is_some() {
            self.consume(1);
        }
        Ok(record)
    }
}

/// How many records of `T` a block holds.
pub(crate) fn block_records<T: Record>(space: &Space) -> usize {
    space.block_bytes() / size_of::<T>()
}

/// Records on temporary space, or in memory where they are few.
#[derive(Debug)]
pub struct Stream<T: Record> {
    space: Space,
    entries: Vec<Entry>,
    /// All records, where there is no entry.
    short: Vec<T>,
    len: u64,
}

impl<T: Record> Stream<T> {
    /// One without records.
    #[must_use]
    pub fn empty(space: &Space) -> Self {
        Self { space: space.clone(), entries: Vec::new(), short: Vec::new(), len: 0 }
    }

    /// How many records it has.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads it with `buffers` blocks of memory, at least 2; it stays as it is.
    #[must_use]
    pub fn reader(&self, buffers: u32) -> StreamReader<'_, T> {
        StreamReader::new(StreamRef::Borrowed(self), buffers)
    }

    /// Reads it with `buffers` blocks of memory, at least 2, and returns each block to the space once it was read.
    #[must_use]
    pub fn into_reader(self, buffers: u32) -> StreamReader<'static, T> {
        StreamReader::new(StreamRef::Owned(self), buffers)
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Appends a block of `records` records that was written elsewhere; all blocks before it are full.
    pub(crate) fn append(&mut self, entry: Entry, records: usize) {
        self.entries.push(entry);
        self.len += records as u64;
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// Takes the records that lie in memory.
    pub(crate) fn take_short(&mut self) -> Vec<T> {
        self.len -= self.short.len() as u64;
        std::mem::take(&mut self.short)
    }

    /// Tells that the last block holds `length` bytes now, `records` more than before, which are not yet written.
    pub(crate) fn grow_last(&mut self, length: u32, records: u64) {
        if let Some(entry) = self.entries.last_mut() {
            entry.length = length;
            self.len += records;
        }
    }

    /// Tells that a block was written anew.
    pub(crate) fn replace(&mut self, index: usize, entry: Entry) {
        self.entries[index] = entry;
    }

    /// Gives up the block of entry `index`, which was read for the last time.
    pub(crate) fn return_block(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        if entry.block != RETURNED {
            self.space.return_block(std::mem::replace(&mut entry.block, RETURNED));
        }
    }
}

/// Marks an entry whose block is no longer the stream's.
const RETURNED: u64 = u64::MAX;

impl<T: Record> Drop for Stream<T> {
    fn drop(&mut self) {
        for index in 0..self.entries.len() {
            self.return_block(index);
        }
    }
}

/// Writes a [`Stream`].
#[derive(Debug)]
pub struct StreamWriter<T: Record> {
    stream: Stream<T>,
    block: Vec<T>,
    block_records: usize,
    io: Option<BlockIo>,
    buffers: u32,
}

impl<T: Record> StreamWriter<T> {
    /// Writes with `buffers` blocks of memory, at least 2: one is filled, the others are being written.
    #[must_use]
    pub fn new(space: &Space, buffers: u32) -> Self {
        Self {
            stream: Stream::empty(space),
            block: Vec::new(),
            block_records: block_records::<T>(space),
            io: None,
            buffers: buffers.max(2) - 1,
        }
    }

    /// Appends a record.
    ///
    /// # Errors
    /// A write that failed, also of an earlier record, and [`ExternalError::Full`].
    #[inline]
    pub fn push(&mut self, record: T) -> Result<(), ExternalError> {
        if self.block.len() == self.block_records {
            self.flush()?;
        }
        self.block.push(record);
        self.stream.len += 1;
        Ok(())
    }

    /// Appends records.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_slice(&mut self, mut records: &[T]) -> Result<(), ExternalError> {
        while !records.is_empty() {
            if self.block.len() == self.block_records {
                self.flush()?;
            }
            let (now, later) = records.split_at(records.len().min(self.block_records - self.block.len()));
            self.block.extend_from_slice(now);
            self.stream.len += now.len() as u64;
            records = later;
        }
        Ok(())
    }

    /// Appends all that `source` still has.
    ///
    /// # Errors
    /// As [`push`](Self::push), and those of the source.
    pub fn push_all(&mut self, source: &mut impl Source<T>) -> Result<(), ExternalError> {
        loop {
            let records = source.fill()?;
            let count = records.len();
            if count == 0 {
                return Ok(());
            }
            self.push_slice(records)?;
            source.consume(count);
        }
    }

    /// How many records were appended.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.stream.len
    }

    /// Whether none was appended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stream.len == 0
    }

    /// Waits for all writes.
    ///
    /// # Errors
    /// A write that failed.
    pub fn finish(mut self) -> Result<Stream<T>, ExternalError> {
        if self.io.is_none() {
            self.block.shrink_to_fit();
            self.stream.short = self.block;
            return Ok(self.stream);
        }
        if !self.block.is_empty() {
            self.flush()?;
        }
        if let Some(io) = &mut self.io {
            io.drain()?;
        }
        Ok(self.stream)
    }

    fn flush(&mut self) -> Result<(), ExternalError> {
        let io = match &mut self.io {
            Some(io) => io,
            none => none.insert(BlockIo::open(&self.stream.space, self.buffers)?),
        };
        let entry = io.write_records(&self.block)?;
        self.stream.entries.push(entry);
        self.block.clear();
        Ok(())
    }
}

#[derive(Debug)]
enum StreamRef<'a, T: Record> {
    Borrowed(&'a Stream<T>),
    Owned(Stream<T>),
}

impl<T: Record> StreamRef<'_, T> {
    fn get(&self) -> &Stream<T> {
        match self {
            Self::Borrowed(stream) => stream,
            Self::Owned(stream) => stream,
        }
    }
}

/// Reads a [`Stream`] from its beginning.
#[derive(Debug)]
pub struct StreamReader<'a, T: Record> {
    // Dropped first: its requests are over before a block may be written by its next owner.
    io: Option<BlockIo>,
    stream: StreamRef<'a, T>,
    buffers: u32,
    /// Slots that were asked for, in order, with the index of their entries.
    under_way: VecDeque<(u32, usize)>,
    next: usize,
    /// The slot in use and the bytes in it.
    current: Option<(u32, u32)>,
    position: usize,
}

impl<'a, T: Record> StreamReader<'a, T> {
    fn new(stream: StreamRef<'a, T>, buffers: u32) -> Self {
        Self {
            io: None,
            stream,
            buffers: buffers.max(2),
            under_way: VecDeque::new(),
            next: 0,
            current: None,
            position: 0,
        }
    }

    /// Makes the next block the current one; false at the end.
    fn advance(&mut self) -> Result<bool, ExternalError> {
        let stream = self.stream.get();
        let io = match &mut self.io {
            Some(io) => io,
            none => none.insert(BlockIo::open(&stream.space, self.buffers)?),
        };
        if let Some((slot, _)) = self.current.take() {
            io.release(slot);
        }
        self.position = 0;
        while self.next < stream.entries.len() {
            let Some(slot) = io.try_hold() else { break };
            io.read(slot, &stream.entries[self.next]);
            self.under_way.push_back((slot, self.next));
            self.next += 1;
        }
        io.submit()?;
        let Some((slot, index)) = self.under_way.pop_front() else { return Ok(false) };
        let entry = stream.entries[index];
        io.wait(slot, &entry)?;
        self.current = Some((slot, entry.length));
        if let StreamRef::Owned(stream) = &mut self.stream {
            stream.return_block(index);
        }
        Ok(true)
    }
}

impl<T: Record> Source<T> for StreamReader<'_, T> {
    #[inline]
    fn fill(&mut self) -> Result<&[T], ExternalError> {
        if self.stream.get().entries.is_empty() {
            return Ok(&self.stream.get().short[self.position..]);
        }
        let is_used_up = |(_, length): (u32, u32)| self.position * size_of::<T>() >= length as usize;
        if self.current.is_none_or(is_used_up) && !self.advance()? {
            return Ok(&[]);
        }
        let (Some(io), Some((slot, length))) = (&self.io, self.current) else { return Ok(&[]) };
        Ok(&io.records(slot, length)[self.position..])
    }

    #[inline]
    fn consume(&mut self, count: usize) {
        self.position += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::memory_space;

    fn collect<T: Record>(mut source: impl Source<T>) -> Vec<T> {
        std::iter::from_fn(|| source.next_record().expect("reads")).collect()
    }

    #[test]
    fn what_was_written_is_read_in_order_and_often() {
        let space = memory_space(1 << 20, 4096);
        for count in [0, 1, 511, 512, 513, 1024, 5000_u64] {
            let mut writer = StreamWriter::new(&space, 3);
            for value in 0..count {
                writer.push(value * 3).expect("has room");
            }
            let stream = writer.finish().expect("writes");
            assert_eq!(stream.len(), count);
            let expected: Vec<u64> = (0..count).map(|v| v * 3).collect();
            assert_eq!(collect(stream.reader(2)), expected);
            assert_eq!(collect(stream.reader(9)), expected);
            assert_eq!(collect(stream.into_reader(4)), expected);
            assert_eq!(space.usage().bytes_in_use, 0, "{count}");
        }
    }

    #[test]
    fn a_short_stream_causes_no_io() {
        let space = memory_space(1 << 20, 4096);
        let mut writer = StreamWriter::new(&space, 3);
        writer.push_slice(&[1_u64; 512]).expect("fits");
        assert_eq!(collect(writer.finish().expect("finishes").reader(2)), [1; 512]);
        assert_eq!(space.usage(), crate::Usage::default());
    }

    #[test]
    fn blocks_return_while_a_stream_is_read_for_the_last_time() {
        let space = memory_space(1 << 20, 4096);
        let mut writer = StreamWriter::new(&space, 3);
        writer.push_slice(&[7_u64; 512 * 20]).expect("fits");
        let mut reader = writer.finish().expect("finishes").into_reader(2);
        for _ in 0..512 * 10 {
            reader.next_record().expect("reads");
        }
        assert_eq!(space.usage().bytes_in_use, 10 * 4096);
        drop(reader);
        assert_eq!(space.usage().bytes_in_use, 0);
    }
}
