//! Blocks of vertex pairs: the body of edge lists, and of the temporary files of a build.
//!
//! ```text
//! 0   u64  number of the block, from 0
//! 8   u32  pairs in it
//! 12  u32  CRC-32C of bytes 0 to 11 and of the pairs
//! 16       pairs, each two vertices of 4 or 8 bytes, little-endian
//! ```
//!
//! All blocks of a file have one size, a multiple of 4096, so that the place of each is known and direct I/O is possible.
//! The last block of an edge list is cut to whole multiples of 4096. A block is verified before its pairs are used.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use storage::transfer::{ALIGNMENT, Method, Op, Request, RequestError, Ticket, Transfer, TransferConfig};

use crate::{GraphError, IdWidth, VertexId};

/// Bytes before the first pair.
pub const BLOCK_HEADER_BYTES: usize = 16;

/// How the blocks of a file lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockLayout {
    /// Where block 0 begins, bytes; a multiple of 4096.
    pub base: u64,
    /// Size of a block, bytes; a multiple of 4096.
    pub block_bytes: u32,
    /// Width of a vertex.
    pub width: IdWidth,
}

impl BlockLayout {
    /// The most pairs of a block.
    #[must_use]
    pub fn pairs_per_block(&self) -> usize {
        (self.block_bytes as usize - BLOCK_HEADER_BYTES) / (2 * self.width.bytes())
    }

    /// Where a block begins, bytes.
    #[must_use]
    pub fn offset(&self, block: u64) -> u64 {
        self.base + block * u64::from(self.block_bytes)
    }

    /// Bytes of a block of so many pairs, rounded up to what direct I/O takes.
    #[must_use]
    pub fn stored_bytes(&self, pairs: usize) -> usize {
        (BLOCK_HEADER_BYTES + pairs * 2 * self.width.bytes()).next_multiple_of(ALIGNMENT)
    }

    /// Writes a pair into a block.
    #[inline]
    pub fn put(&self, block: &mut [u8], pair: usize, source: VertexId, target: VertexId) {
        match self.width {
            IdWidth::Four => {
                let at = BLOCK_HEADER_BYTES + pair * 8;
                let both = (source & 0xffff_ffff) | (target << 32);
                block[at..at + 8].copy_from_slice(&both.to_le_bytes());
            }
            IdWidth::Eight => {
                let at = BLOCK_HEADER_BYTES + pair * 16;
                block[at..at + 8].copy_from_slice(&source.to_le_bytes());
                block[at + 8..at + 16].copy_from_slice(&target.to_le_bytes());
            }
        }
    }

    /// Completes a block whose pairs are in place; the bytes of it that are to be written.
    pub fn seal(&self, block: &mut [u8], number: u64, pairs: usize) -> usize {
        let used = BLOCK_HEADER_BYTES + pairs * 2 * self.width.bytes();
        let stored = self.stored_bytes(pairs);
        block[used..stored].fill(0);
        block[..8].copy_from_slice(&number.to_le_bytes());
        block[8..12].copy_from_slice(&(pairs as u32).to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&block[..12]), &block[BLOCK_HEADER_BYTES..used]);
        block[12..16].copy_from_slice(&sum.to_le_bytes());
        stored
    }

    /// The pairs of a block that was read; what is wrong with it otherwise.
    pub fn unseal<'a>(&self, block: &'a [u8], number: u64) -> Result<Pairs<'a>, String> {
        let stated = u64::from_le_bytes(block[..8].try_into().expect("8 bytes"));
        let pairs = u32::from_le_bytes(block[8..12].try_into().expect("4 bytes")) as usize;
        let sum = u32::from_le_bytes(block[12..16].try_into().expect("4 bytes"));
        let used = BLOCK_HEADER_BYTES + pairs * 2 * self.width.bytes();
        if used > block.len() {
            return Err(format!("it states {pairs} pairs, more than fit"));
        }
        let actual = crc32c::crc32c_append(crc32c::crc32c(&block[..12]), &block[BLOCK_HEADER_BYTES..used]);
        if actual != sum {
            return Err(format!("its checksum is {actual:08x}, not {sum:08x}"));
        }
        if stated != number {
            return Err(format!("it is block {stated}"));
        }
        Ok(Pairs { bytes: &block[BLOCK_HEADER_BYTES..used], width: self.width })
    }
}

/// The pairs of a verified block.
#[derive(Debug, Clone, Copy)]
pub struct Pairs<'a> {
    bytes: &'a [u8],
    width: IdWidth,
}

impl Pairs<'_> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / (2 * self.width.bytes())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (VertexId, VertexId)> + '_ {
        let width = self.width;
        self.bytes
            .chunks_exact(2 * width.bytes())
            .map(move |pair| (width.get(pair), width.get(&pair[width.bytes()..])))
    }
}

/// Asks for direct I/O on an open file; what requests must be multiples of, 1 where its file system has none.
pub(crate) fn make_direct(file: &File) -> u32 {
    let flags = rustix::fs::fcntl_getfl(file);
    match flags.and_then(|flags| rustix::fs::fcntl_setfl(file, flags | rustix::fs::OFlags::DIRECT)) {
        Ok(()) => ALIGNMENT as u32,
        Err(_) => 1,
    }
}

/// The system's error of a request.
pub(crate) fn io_error(error: RequestError) -> io::Error {
    match error {
        RequestError::Os(error) => error,
        RequestError::Short { .. } => io::Error::new(io::ErrorKind::UnexpectedEof, "the file ended early"),
    }
}

/// Blocks of a file in order, read ahead around the page cache and verified.
#[derive(Debug)]
pub struct BlockScan {
    transfer: Transfer,
    file: Arc<OwnedFd>,
    path: PathBuf,
    layout: BlockLayout,
    alignment: u32,
    file_bytes: u64,
    /// Pairs of all blocks of the file: each but the last is full.
    pairs: u64,
    /// The block that comes next, the one that is asked for next, and the end.
    next: u64,
    asked: u64,
    end: u64,
    /// Of each slot: whether its block has arrived.
    arrived: Vec<bool>,
}

impl BlockScan {
    /// Reads the blocks `blocks` of an open file of `pairs` pairs, `depth` at once; `file_bytes` is the file's length.
    ///
    /// # Errors
    /// Of setting up the requests.
    pub fn new(
        (file, alignment): (Arc<OwnedFd>, u32),
        path: &Path,
        layout: BlockLayout,
        blocks: std::ops::Range<u64>,
        (file_bytes, pairs, depth): (u64, u64, u32),
    ) -> Result<Self, GraphError> {
        let config = TransferConfig {
            slots: depth,
            slot_bytes: layout.block_bytes,
            method: Method::Auto,
            idle: false,
        };
        let transfer =
            Transfer::new(&config).map_err(|source| GraphError::io("set up reads of", path, source))?;
        let (path, arrived) = (path.to_owned(), vec![false; depth as usize]);
        let (next, asked, end) = (blocks.start, blocks.start, blocks.end);
        Ok(Self { transfer, file, path, layout, alignment, file_bytes, pairs, next, asked, end, arrived })
    }

    /// The next block's number and pairs; None after the last.
    ///
    /// # Errors
    /// [`GraphError::Io`] if a block cannot be read; [`GraphError::Corrupt`] if a block is not what was written.
    pub fn next_block(&mut self) -> Result<Option<(u64, Pairs<'_>)>, GraphError> {
        if self.next == self.end {
            return Ok(None);
        }
        let depth = self.arrived.len() as u64;
        while self.asked < self.end && self.asked < self.next + depth {
            self.ask();
        }
        let (block, slot) = (self.next, (self.next % depth) as usize);
        let offset = self.layout.offset(block);
        while !self.arrived[slot] {
            let done = self.transfer.next().map_err(|e| GraphError::io("read", &self.path, e))?;
            let Some(done) = done else { unreachable!("the block was asked for") };
            if let Ticket::Slot(slot) = done.ticket {
                done.result.map_err(|e| GraphError::io_at("read", &self.path, offset, io_error(e)))?;
                self.arrived[slot as usize] = true;
            }
        }
        self.arrived[slot] = false;
        self.next += 1;
        let length = self.length(block);
        let bytes = &self.transfer.buffer(slot as u32)[..length];
        let full = self.layout.pairs_per_block() as u64;
        let wanted = self.pairs.saturating_sub(block * full).min(full);
        let pairs = self.layout.unseal(bytes, block).and_then(|pairs| match pairs.len() as u64 {
            found if found == wanted => Ok(pairs),
            found => Err(format!("it has {found} pairs, not {wanted}")),
        });
        let corrupt = |detail| GraphError::Corrupt {
            path: self.path.clone(),
            what: format!("block {block}"),
            offset,
            detail,
        };
        Ok(Some((block, pairs.map_err(corrupt)?)))
    }

    fn length(&self, block: u64) -> usize {
        let rest = self.file_bytes.saturating_sub(self.layout.offset(block));
        rest.min(u64::from(self.layout.block_bytes)) as usize
    }

    fn ask(&mut self) {
        let length = self.length(self.asked) as u32;
        self.transfer.start(&Request {
            file: &self.file,
            op: Op::Read,
            slot: (self.asked % self.arrived.len() as u64) as u32,
            within: 0,
            offset: self.layout.offset(self.asked),
            length,
            needed: length,
            alignment: self.alignment,
            most: None,
        });
        self.asked += 1;
    }
}

/// Buffers for blocks that are being filled, and writes of those that are full.
#[derive(Debug)]
pub struct BlockSink {
    transfer: Transfer,
    idle: Vec<u32>,
    block_bytes: u32,
}

impl BlockSink {
    /// With `slots` buffers of a block each.
    ///
    /// # Errors
    /// Of setting up the requests; `path` is what the message names.
    pub fn new(slots: u32, block_bytes: u32, path: &Path) -> Result<Self, GraphError> {
        let config = TransferConfig { slots, slot_bytes: block_bytes, method: Method::Auto, idle: false };
        let transfer =
            Transfer::new(&config).map_err(|source| GraphError::io("set up writes of", path, source))?;
        Ok(Self { transfer, idle: (0..slots).rev().collect(), block_bytes })
    }

    /// A buffer that nothing uses; waits for a write where all are in use.
    ///
    /// # Errors
    /// Of the write; a full disk among them.
    pub fn take(&mut self, path: &Path) -> Result<u32, GraphError> {
        loop {
            if let Some(slot) = self.idle.pop() {
                return Ok(slot);
            }
            self.complete_one(path)?;
        }
    }

    /// The bytes of a buffer that was taken.
    pub fn buffer(&mut self, slot: u32) -> &mut [u8] {
        self.transfer.buffer_mut(slot)
    }

    /// Gives back a buffer without writing it.
    pub fn give_back(&mut self, slot: u32) {
        self.idle.push(slot);
    }

    /// Starts the write of a buffer, which is given back when it is over.
    pub fn write(&mut self, slot: u32, (file, alignment): (&Arc<OwnedFd>, u32), offset: u64, length: usize) {
        debug_assert!(length <= self.block_bytes as usize);
        let length = length as u32;
        let op = Op::Write;
        let (within, needed, most) = (0, length, None);
        self.transfer.start(&Request { file, op, slot, within, offset, length, needed, alignment, most });
    }

    /// Waits for all writes.
    ///
    /// # Errors
    /// Of the writes.
    pub fn drain(&mut self, path: &Path) -> Result<(), GraphError> {
        while self.transfer.in_flight() > 0 {
            self.complete_one(path)?;
        }
        Ok(())
    }

    fn complete_one(&mut self, path: &Path) -> Result<(), GraphError> {
        let done = self.transfer.next().map_err(|e| GraphError::io("write", path, e))?;
        let Some(done) = done else { unreachable!("each buffer is idle or being written") };
        if let Ticket::Slot(slot) = done.ticket {
            self.idle.push(slot);
        }
        done.result.map(drop).map_err(|e| GraphError::io("write", path, io_error(e)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_block_is_read_back_and_every_flipped_bit_is_found() {
        for width in [IdWidth::Four, IdWidth::Eight] {
            let layout = BlockLayout { base: 0, block_bytes: 4096, width };
            let mut block = vec![0xaa; 4096];
            let pairs = [(0, 1), (7, 7), (u64::from(u32::MAX), 3)];
            for (at, (source, target)) in pairs.iter().enumerate() {
                layout.put(&mut block, at, *source, *target);
            }
            assert_eq!(layout.seal(&mut block, 5, pairs.len()), 4096);
            let read: Vec<_> = layout.unseal(&block, 5).expect("as written").iter().collect();
            assert_eq!(read, pairs);
            assert!(layout.unseal(&block, 6).unwrap_err().contains("it is block 5"));
            let used = BLOCK_HEADER_BYTES + pairs.len() * 2 * width.bytes();
            for bit in 0..used * 8 {
                block[bit / 8] ^= 1 << (bit % 8);
                assert!(layout.unseal(&block, 5).is_err(), "bit {bit}");
                block[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
