//! The slots of an engine: whose turn it is with each buffer, and what a completion's claim is worth.

use std::io;
use std::sync::Arc;

use super::{EngineConfig, EngineError, Op, RequestError, RequestFailure};
use crate::arena::Arena;
use crate::device::Device;
use crate::pages::PageKind;

/// How often one request that met EINTR or EAGAIN is made again before it counts as failed.
const MAX_RETRIES: u16 = 1000;

/// Most slots: io_uring takes no more entries (`IORING_MAX_ENTRIES`).
const MAX_DEPTH: u32 = 32_768;
/// What the kernel moves in one request at most: `MAX_RW_COUNT`, see read(2). A longer request comes
/// back short.
const MAX_REQUEST: usize = 0x7fff_f000;
/// The operation of an error that says that the configuration is wrong.
pub(super) const CONFIGURE: &str = "configure";
/// The operation of an error that says that memory for the buffers cannot be had.
pub(super) const MAP_BUFFERS: &str = "map buffers";

/// The part of [`Engine`](super::Engine) that every engine with a field `slots` answers alike.
macro_rules! answered_by_slots {
    () => {
        #[inline]
        fn device(&self) -> &Arc<dyn Device> {
            &self.slots.device
        }

        #[inline]
        fn depth(&self) -> u32 {
            self.slots.depth()
        }

        #[inline]
        fn in_flight(&self) -> u32 {
            self.slots.in_flight()
        }

        #[inline]
        fn buffer(&self, slot: u32) -> &[u8] {
            self.slots.buffer(slot)
        }

        #[inline]
        fn buffer_mut(&mut self, slot: u32) -> &mut [u8] {
            self.slots.buffer_mut(slot)
        }
    };
}
pub(super) use answered_by_slots;

#[derive(Debug, Clone, Copy)]
struct Slot {
    offset: u64,
    length: u32,
    retries: u16,
    op: Op,
    in_flight: bool,
}

/// What to do about a completion.
pub(super) enum Outcome {
    /// It did what was asked.
    Done,
    /// It is to be made again; the slot stays in flight.
    Retry,
    /// It failed for good.
    Failed(RequestFailure),
}

/// A request as it was prepared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prepared {
    pub op: Op,
    pub offset: u64,
    pub length: u32,
}

/// Buffers and their state.
#[derive(Debug)]
pub(super) struct Slots {
    // Some until `leak` takes it.
    arena: Option<Arena>,
    slots: Box<[Slot]>,
    in_flight: u32,
    pub device: Arc<dyn Device>,
}

impl Slots {
    pub fn new(
        engine: &'static str,
        device: Arc<dyn Device>,
        config: &EngineConfig,
    ) -> Result<Self, EngineError> {
        check(engine, config)?;
        let geometry = device.geometry();
        let alignment = geometry.memory_alignment.max(geometry.logical_block).max(512) as usize;
        let arena = Arena::new(config.depth, config.slot_bytes, alignment.next_power_of_two())
            .map_err(|source| EngineError { engine, operation: MAP_BUFFERS, source })?;
        let idle = Slot { offset: 0, length: 0, retries: 0, op: Op::Read, in_flight: false };
        let slots = vec![idle; config.depth as usize].into_boxed_slice();
        Ok(Self { arena: Some(arena), slots, in_flight: 0, device })
    }

    #[inline]
    pub fn arena(&self) -> &Arena {
        self.arena.as_ref().expect("the arena is only taken when the engine is dropped")
    }

    pub fn depth(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub fn page_feature(&self) -> Option<String> {
        match self.arena().pages() {
            PageKind::Reserved => Some("reserved huge pages".into()),
            PageKind::Transparent => Some("transparent huge pages".into()),
            PageKind::Mixed => Some("transparent huge pages in part".into()),
            PageKind::Base => None,
        }
    }

    pub fn buffer(&self, slot: u32) -> &[u8] {
        assert!(!self.slots[slot as usize].in_flight, "slot {slot} is in flight");
        let arena = self.arena();
        // SAFETY: the slot lies in the arena, which lives as long as self. It is not in flight, so
        // nobody else writes to it, and a slot only gets in flight through &mut self.
        unsafe { std::slice::from_raw_parts(arena.slot(slot).as_ptr(), arena.slot_bytes()) }
    }

    pub fn buffer_mut(&mut self, slot: u32) -> &mut [u8] {
        assert!(!self.slots[slot as usize].in_flight, "slot {slot} is in flight");
        let arena = self.arena();
        // SAFETY: as in `buffer`; &mut self makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(arena.slot(slot).as_ptr(), arena.slot_bytes()) }
    }

    /// Marks a slot as the kernel's.
    #[inline]
    pub fn begin(&mut self, slot: u32, op: Op, offset: u64, length: u32) {
        let fits = length as usize <= self.arena().slot_bytes();
        let state = &mut self.slots[slot as usize];
        assert!(!state.in_flight && fits, "slot {slot} is idle and holds {length} bytes");
        *state = Slot { offset, length, retries: 0, op, in_flight: true };
        self.in_flight += 1;
    }

    pub fn prepared(&self, slot: u32) -> Prepared {
        let Slot { op, offset, length, .. } = self.slots[slot as usize];
        Prepared { op, offset, length }
    }

    /// Judges a completion: `result` is bytes transferred, or `-errno`.
    #[inline]
    pub fn finish(&mut self, slot: u32, result: i64) -> Outcome {
        let state = &mut self.slots[slot as usize];
        assert!(state.in_flight, "a completion arrived for slot {slot}, which is idle");
        let expected = match state.op {
            Op::Read | Op::Write => i64::from(state.length),
            Op::Trim | Op::SyncData => 0,
        };
        if result == expected {
            state.in_flight = false;
            self.in_flight -= 1;
            return Outcome::Done;
        }
        self.unexpected(slot, result)
    }

    #[cold]
    fn unexpected(&mut self, slot: u32, result: i64) -> Outcome {
        let state = &mut self.slots[slot as usize];
        let errno = i32::try_from(-result).unwrap_or(0);
        let transient = errno == libc::EINTR || errno == libc::EAGAIN;
        if transient && state.retries < MAX_RETRIES {
            state.retries += 1;
            return Outcome::Retry;
        }
        state.in_flight = false;
        let Slot { op, offset, length, .. } = *state;
        self.in_flight -= 1;
        let cause = if result < 0 {
            RequestError::Os(io::Error::from_raw_os_error(errno))
        } else {
            RequestError::Short { transferred: result as u64 }
        };
        Outcome::Failed(RequestFailure { op, device: self.device.spec().to_owned(), offset, length, cause })
    }

    /// Gives the buffers up for ever, because the kernel may still write to them.
    pub fn leak(&mut self) {
        std::mem::forget(self.arena.take());
    }
}

/// Refuses what no engine can be set up with.
fn check(engine: &'static str, config: &EngineConfig) -> Result<(), EngineError> {
    let refuse = |message: String| {
        let source = io::Error::new(io::ErrorKind::InvalidInput, message);
        Err(EngineError { engine, operation: CONFIGURE, source })
    };
    if !(1..=MAX_DEPTH).contains(&config.depth) {
        return refuse(format!("iodepth={} is outside 1 to {MAX_DEPTH}", config.depth));
    }
    if !(1..=MAX_REQUEST).contains(&config.slot_bytes) {
        return refuse(format!("bs={} is outside 1 to {MAX_REQUEST} bytes", config.slot_bytes));
    }
    Ok(())
}

/// Runs a discard, which no engine makes asynchronously, and returns it as a completion's result.
pub(super) fn discard(device: &dyn Device, offset: u64, length: u32) -> i64 {
    errno_or_zero(device.discard(offset, u64::from(length)))
}

/// 0, or `-errno`.
pub(super) fn errno_or_zero(result: io::Result<()>) -> i64 {
    match result {
        Ok(()) => 0,
        Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}

/// Bytes transferred, or `-errno`.
pub(super) fn errno_or_bytes(result: io::Result<usize>) -> i64 {
    match result {
        Ok(bytes) => bytes as i64,
        Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}
