//! Blocks on their way between memory and the device, through one engine's buffers.
//!
//! The engine's slots are the only block buffers there are; data are used in place. A slot is
//!
//! - *free*: nobody's;
//! - *held*: a caller fills it or uses what was read into it;
//! - *in flight*: being written, after which it is free, or being read, after which it is held.
//!
//! A block's length is rounded up to [`UNIT`] for the request, and the checksum is over the records alone.

use storage::engine::{self, AnyEngine, Engine, EngineConfig, Op, RequestFailure};
use storage::on_engine;
use storage::pages::PageChoice;
use zerocopy::FromBytes;

use crate::{ExternalError, Record, Space};

/// Lengths of requests are multiples of this and of the device's blocks, bytes.
const UNIT: usize = 4096;

/// Where a block lies and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Number of the block in its space.
    pub block: u64,
    /// Bytes of records in it.
    pub length: u32,
    /// CRC-32C of those.
    pub crc: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Free,
    Held,
    Writing,
    Reading,
}

/// An engine and who has which of its buffers.
#[derive(Debug)]
pub(crate) struct BlockIo {
    space: Space,
    engine: AnyEngine,
    slots: Vec<Slot>,
    free: Vec<u32>,
    unit: usize,
    /// The first request that failed; everything fails from then on.
    failure: Option<RequestFailure>,
    failed: bool,
}

impl BlockIo {
    pub fn open(space: &Space, slots: u32) -> Result<Self, ExternalError> {
        // Base pages: a budget must not be overdrawn by rounding up to huge ones.
        let config = EngineConfig {
            depth: slots,
            slot_bytes: space.block_bytes(),
            pages: PageChoice::Base,
            ..EngineConfig::default()
        };
        let (engine, _) = engine::open(space.engine(), space.device(), &config)?;
        let unit = UNIT.max(space.device().geometry().logical_block as usize);
        Ok(Self {
            space: space.clone(),
            engine,
            slots: vec![Slot::Free; slots as usize],
            free: (0..slots).rev().collect(),
            unit,
            failure: None,
            failed: false,
        })
    }

    /// A free slot, held from now on; none if all are held or being read.
    pub fn try_hold(&mut self) -> Option<u32> {
        let slot = self.free.pop()?;
        self.slots[slot as usize] = Slot::Held;
        Some(slot)
    }

    /// A free slot, held from now on; waits for writes where there is none.
    pub fn hold(&mut self) -> Result<u32, ExternalError> {
        loop {
            if let Some(slot) = self.try_hold() {
                return Ok(slot);
            }
            assert!(self.slots.contains(&Slot::Writing), "a slot is free or becomes so");
            self.complete(true)?;
        }
    }

    /// Gives a held slot back.
    pub fn release(&mut self, slot: u32) {
        assert_eq!(self.slots[slot as usize], Slot::Held, "only a held slot is given back");
        self.slots[slot as usize] = Slot::Free;
        self.free.push(slot);
    }

    /// The buffer of a held slot.
    pub fn buffer(&self, slot: u32) -> &[u8] {
        on_engine!(&self.engine, engine => engine.buffer(slot))
    }

    /// The records of a held slot, of `length` bytes.
    pub fn records<T: Record>(&self, slot: u32, length: u32) -> &[T] {
        <[T]>::ref_from_bytes(&self.buffer(slot)[..length as usize])
            .expect("slots begin at pages, and blocks hold whole records")
    }

    /// The records of a held slot, of `length` bytes, to change.
    pub fn records_mut<T: Record>(&mut self, slot: u32, length: u32) -> &mut [T] {
        let buffer = on_engine!(&mut self.engine, engine => engine.buffer_mut(slot));
        <[T]>::mut_from_bytes(&mut buffer[..length as usize])
            .expect("slots begin at pages, and blocks hold whole records")
    }

    /// Copies `records` to a slot and writes them to a block of the space.
    pub fn write_records<T: Record>(&mut self, records: &[T]) -> Result<Entry, ExternalError> {
        let slot = self.hold()?;
        let length = size_of_val(records) as u32;
        self.records_mut(slot, length).copy_from_slice(records);
        let block = match self.space.take_block() {
            Ok(block) => block,
            Err(error) => {
                self.release(slot);
                return Err(error);
            }
        };
        self.write(slot, block, length).inspect_err(|_| self.space.return_block(block))
    }

    /// Writes the first `length` bytes of a held slot to `block`; the slot is free afterwards.
    pub fn write(&mut self, slot: u32, block: u64, length: u32) -> Result<Entry, ExternalError> {
        assert_eq!(self.slots[slot as usize], Slot::Held, "only a held slot is written");
        let crc = crc32c::crc32c(&self.buffer(slot)[..length as usize]);
        let padded = self.padded(length);
        on_engine!(&mut self.engine, engine => {
            engine.buffer_mut(slot)[length as usize..padded as usize].fill(0);
            engine.prepare(slot, Op::Write, block * self.space.block_bytes() as u64, padded);
        });
        self.slots[slot as usize] = Slot::Writing;
        self.space.count_written(padded);
        self.complete(false)?;
        Ok(Entry { block, length, crc })
    }

    /// Begins to read a block into a held slot. [`BlockIo::submit`] hands the request over, or any call that waits.
    pub fn read(&mut self, slot: u32, entry: &Entry) {
        assert_eq!(self.slots[slot as usize], Slot::Held, "only a held slot is read into");
        let length = self.padded(entry.length);
        let offset = entry.block * self.space.block_bytes() as u64;
        on_engine!(&mut self.engine, engine => engine.prepare(slot, Op::Read, offset, length));
        self.slots[slot as usize] = Slot::Reading;
        self.space.count_read(length);
    }

    /// Hands over what was begun.
    pub fn submit(&mut self) -> Result<(), ExternalError> {
        self.complete(false)
    }

    /// Waits until the read into `slot` is done, and checks what it brought.
    pub fn wait(&mut self, slot: u32, entry: &Entry) -> Result<(), ExternalError> {
        while self.slots[slot as usize] == Slot::Reading {
            self.complete(true)?;
        }
        let found = crc32c::crc32c(&self.buffer(slot)[..entry.length as usize]);
        if found == entry.crc {
            return Ok(());
        }
        Err(ExternalError::Corrupt {
            device: self.space.device().spec().to_owned(),
            offset: entry.block * self.space.block_bytes() as u64,
            length: entry.length,
            expected: entry.crc,
            found,
        })
    }

    /// Waits until all writes are done.
    pub fn drain(&mut self) -> Result<(), ExternalError> {
        while self.slots.contains(&Slot::Writing) {
            self.complete(true)?;
        }
        Ok(())
    }

    fn padded(&self, length: u32) -> u32 {
        (length as usize).next_multiple_of(self.unit).min(self.space.block_bytes()) as u32
    }

    /// Hands over what was begun and notes what is done; waits for one request at least if `wait`.
    fn complete(&mut self, wait: bool) -> Result<(), ExternalError> {
        let (slots, free, failure) = (&mut self.slots, &mut self.free, &mut self.failure);
        let result = on_engine!(&mut self.engine, engine => {
            // An engine without a queue waits here, whatever is asked.
            let result = self.space.clock().during(|| engine.submit(u32::from(wait), None));
            engine.reap(|slot, outcome| {
                let state = &mut slots[slot as usize];
                if *state == Slot::Writing {
                    *state = Slot::Free;
                    free.push(slot);
                } else {
                    *state = Slot::Held;
                }
                if let Err(error) = outcome {
                    failure.get_or_insert(error);
                }
            });
            result
        });
        if let Some(failure) = self.failure.take() {
            self.failed = true;
            return Err(Box::new(failure).into());
        }
        if self.failed {
            return Err(ExternalError::Poisoned { what: "a stream" });
        }
        Ok(result?)
    }
}
