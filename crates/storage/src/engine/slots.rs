//! The slots of an engine: whose turn it is with each buffer, and what a completion's claim is worth.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use base::IoEngine;

use super::parts::{Part, PartOutcome, Parts};
use super::{EngineConfig, EngineError, Op, RequestError, RequestFailure};
use crate::arena::Arena;
use crate::device::{Device, is_called, route, targets};
use crate::pages::{PageChoice, PageKind};
use crate::usage::IoPriority;

/// How often one request that met EINTR or EAGAIN is made again before it counts as failed.
pub(super) const MAX_RETRIES: u16 = 1000;

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
        fn request(&self, slot: u32) -> Option<(Op, u64)> {
            self.slots.request(slot)
        }

        fn retries(&self) -> u64 {
            self.slots.retries
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
    /// The slot's request did what was asked.
    Done(u32),
    /// Other parts of the same request are still under way.
    More,
    /// The part is to be made again; its slot stays in flight.
    Retry,
    /// The slot's request failed for good.
    Failed(u32, RequestFailure),
}

/// What a request comes to.
pub(super) enum Begun {
    /// One call.
    One(Part),
    /// Several, by their ids: see [`Slots::part`].
    Several(Range<u32>),
    /// None, because nothing of it lies on the device: the id and the result to finish it with.
    Nowhere(u32, i64),
}

/// Whether a result says that the same request may succeed a little later.
pub(super) fn is_transient(result: i64) -> bool {
    let errno = i32::try_from(-result).unwrap_or(0);
    errno == libc::EINTR || errno == libc::EAGAIN
}

/// Buffers and their state.
#[derive(Debug)]
pub(super) struct Slots {
    // Some until `leak` takes it.
    arena: Option<Arena>,
    slots: Box<[Slot]>,
    in_flight: u32,
    pages: PageChoice,
    /// Some where the device is made of others.
    parts: Option<Box<Parts>>,
    /// Whether the device is ready to be written past it.
    may_write: bool,
    /// Requests that were not made, by their slots, and why; until they are told.
    refused: BTreeMap<u32, io::Error>,
    /// Errors that say more than an errno, by the part that met them; until its request is told.
    explained: BTreeMap<u32, io::Error>,
    /// The priorities of requests by slot; none as long as none has any.
    priorities: Vec<IoPriority>,
    /// See [`Engine::retries`](super::Engine::retries).
    pub retries: u64,
    pub device: Arc<dyn Device>,
}

impl Slots {
    pub fn new(
        engine: &'static str,
        device: Arc<dyn Device>,
        config: &EngineConfig,
    ) -> Result<Self, EngineError> {
        check(engine, config)?;
        check_verifying(engine, &device)?;
        super::misfit::check(engine, &device, config)?;
        let geometry = device.geometry();
        let alignment = geometry.memory_alignment.max(geometry.logical_block).max(512) as usize;
        let arena =
            Arena::of_pages(config.pages, config.depth, config.slot_bytes, alignment.next_power_of_two())
                .map_err(|source| EngineError { engine, operation: MAP_BUFFERS, source })?;
        let idle = Slot { offset: 0, length: 0, retries: 0, op: Op::Read, in_flight: false };
        let slots = vec![idle; config.depth as usize].into_boxed_slice();
        let parts = match route(&*device) {
            Some(spread) => Some(Box::new(
                Parts::new(&*device, spread, config.depth, config.slot_bytes)
                    .ok_or_else(|| too_many_parts(engine, &*device))?,
            )),
            None => None,
        };
        Ok(Self {
            arena: Some(arena),
            slots,
            in_flight: 0,
            pages: config.pages,
            parts,
            may_write: false,
            refused: BTreeMap::new(),
            explained: BTreeMap::new(),
            priorities: Vec::new(),
            retries: 0,
            device,
        })
    }

    /// The devices that requests go to: the device itself, or those that it is made of.
    pub fn members(&self) -> &[Arc<dyn Device>] {
        match &self.parts {
            Some(parts) => parts.members(),
            None => std::slice::from_ref(&self.device),
        }
    }

    /// How many ids there are, all of them below this.
    pub fn ids(&self) -> u32 {
        self.parts.as_ref().map_or(self.depth(), |parts| parts.ids())
    }

    /// The most parts that all slots' transfers together come to.
    pub fn most_parts(&self) -> u64 {
        let pieces = route(&*self.device).map_or(1, |s| s.most_pieces(self.arena().slot_bytes() as u64));
        pieces.saturating_mul(u64::from(self.depth()))
    }

    /// Into how many pieces, on different members, a full slot's request is cut that begins with a piece.
    pub fn usual_parts(&self) -> u32 {
        let Some(spread) = route(&*self.device) else { return 1 };
        let length = (self.arena().slot_bytes() as u64).min(self.device.size());
        spread.extents(0..length).len().max(1) as u32
    }

    /// Parts that began and are not over; requests, where the device is not made of others.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        match &self.parts {
            Some(parts) => parts.outstanding(),
            None => self.in_flight,
        }
    }

    /// The fewest parts that must come back before `requests` requests are over, or all of them.
    #[inline]
    pub fn parts_of(&self, requests: u32) -> u32 {
        let requests = requests.min(self.in_flight);
        match &self.parts {
            Some(parts) if parts.outstanding() > self.in_flight => {
                requests.saturating_mul(parts.fewest_remaining()).min(parts.outstanding())
            }
            _ => requests,
        }
    }

    /// Where a part's bytes are.
    #[inline]
    pub fn address(&self, part: &Part) -> *mut u8 {
        debug_assert!(part.start as usize <= self.arena().slot_bytes());
        // The start of a part lies inside its slot; the arithmetic itself needs no proof.
        self.arena().slot(part.slot).as_ptr().wrapping_add(part.start as usize)
    }

    /// Puts bytes into the buffer of a slot whose request is a discard, which has no data of its own.
    pub fn put(&mut self, slot: u32, bytes: &[u8]) {
        let state = &self.slots[slot as usize];
        assert!(state.in_flight && state.op == Op::Trim, "slot {slot} has data of its own, or none at all");
        let arena = self.arena();
        assert!(bytes.len() <= arena.slot_bytes(), "slot {slot} holds {} bytes", bytes.len());
        // SAFETY: the slot lies in the arena and has room for the bytes. Its request has no data, so that neither the kernel nor
        // the caller, who may not ask for the buffer of a slot in flight, looks at them; &mut self makes this the only access.
        unsafe { arena.slot(slot).as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    #[inline]
    pub fn arena(&self) -> &Arena {
        self.arena.as_ref().expect("the arena is only taken when the engine is dropped")
    }

    pub fn depth(&self) -> u32 {
        self.slots.len() as u32
    }

    /// See [`Engine::request`](super::Engine::request).
    #[inline]
    pub fn request(&self, slot: u32) -> Option<(Op, u64)> {
        let state = self.slots.get(slot as usize).filter(|state| state.in_flight)?;
        Some((state.op, state.offset))
    }

    /// What an idle slot's request was, and where: of a device that is not made of others.
    pub fn last_request(&self, slot: u32) -> (Op, u64, u32) {
        let Slot { op, offset, length, in_flight, .. } = self.slots[slot as usize];
        assert!(!in_flight, "slot {slot} is in flight");
        (op, offset, length)
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The priority of a slot's requests.
    #[inline]
    pub fn priority(&self, slot: u32) -> IoPriority {
        self.priorities.get(slot as usize).copied().unwrap_or(IoPriority::UNSET)
    }

    pub fn set_priority(&mut self, slot: u32, priority: IoPriority) {
        self.priorities.resize(self.slots.len(), IoPriority::UNSET);
        self.priorities[slot as usize] = priority;
    }

    pub fn page_feature(&self) -> Option<String> {
        match self.arena().pages() {
            PageKind::Reserved => Some("reserved huge pages".into()),
            PageKind::Transparent => Some("transparent huge pages".into()),
            PageKind::Mixed => Some("transparent huge pages in part".into()),
            PageKind::Base => (self.pages == PageChoice::Base).then(|| "base pages".into()),
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

    /// Marks a slot as the kernel's, and says what is to be asked of it.
    #[inline]
    pub fn begin(&mut self, slot: u32, op: Op, offset: u64, length: u32) -> Begun {
        self.mark(slot, op, offset, length);
        if self.parts.is_some() {
            return self.begin_parts(slot);
        }
        Begun::One(Part { id: slot, slot, op, member: 0, offset, length, start: 0 })
    }

    /// [`Slots::begin`] where the device is not made of others; none, and nothing done, where it is. Apart, so
    /// that in the caller's loop all that is known of such a part is known to the compiler.
    #[inline(always)]
    pub fn begin_one(&mut self, slot: u32, op: Op, offset: u64, length: u32) -> Option<Part> {
        if self.parts.is_some() {
            return None;
        }
        self.mark(slot, op, offset, length);
        Some(Part { id: slot, slot, op, member: 0, offset, length, start: 0 })
    }

    #[inline(always)]
    fn mark(&mut self, slot: u32, op: Op, offset: u64, length: u32) {
        // A discard has no data.
        let fits = length as usize <= self.arena().slot_bytes() || op == Op::Trim;
        let state = &mut self.slots[slot as usize];
        assert!(!state.in_flight && fits, "slot {slot} is idle and holds {length} bytes");
        *state = Slot { offset, length, retries: 0, op, in_flight: true };
        self.in_flight += 1;
    }

    #[inline(never)]
    fn begin_parts(&mut self, slot: u32) -> Begun {
        let Slot { op, offset, length, .. } = self.slots[slot as usize];
        let parts = self.parts.as_mut().expect("only called where there are parts");
        if matches!(op, Op::Write | Op::Trim) && !self.may_write {
            match self.device.begin_writing() {
                Ok(()) => self.may_write = true,
                Err(error) => return self.refuse(slot, error),
            }
        }
        let ids = match parts.begin(slot, op, offset, length) {
            Ok(ids) => ids,
            Err(wrong) => return self.refuse(slot, io::Error::new(io::ErrorKind::InvalidData, wrong)),
        };
        match ids.len() {
            0 => {
                let (id, result) = parts.nowhere(slot);
                Begun::Nowhere(id, result)
            }
            1 => Begun::One(parts.part(ids.start)),
            _ => Begun::Several(ids),
        }
    }

    #[cold]
    fn refuse(&mut self, slot: u32, error: io::Error) -> Begun {
        let Slot { op, offset, .. } = self.slots[slot as usize];
        self.refused.insert(slot, error);
        let parts = self.parts.as_mut().expect("only called where there are parts");
        // Whatever the error is: not one for which the request would be made again.
        Begun::Nowhere(parts.refuse(slot, op, offset), -i64::from(libc::EIO))
    }

    /// A part of a request in flight.
    pub fn part(&self, id: u32) -> Part {
        match &self.parts {
            Some(parts) => parts.part(id),
            None => {
                let Slot { op, offset, length, .. } = self.slots[id as usize];
                Part { id, slot: id, op, member: 0, offset, length, start: 0 }
            }
        }
    }

    /// The ids that the parts of a slot's requests can have.
    pub fn ids_of(&self, slot: u32) -> Range<u32> {
        let each = self.ids() / self.depth();
        slot * each..(slot + 1) * each
    }

    /// Judges the completion of part `id`: `result` is bytes transferred, or `-errno`.
    #[inline]
    pub fn finish(&mut self, id: u32, result: i64) -> Outcome {
        if self.finish_one(id, result) {
            return Outcome::Done(id);
        }
        if self.parts.is_some() {
            return self.finish_part(id, result);
        }
        self.unexpected(id, result)
    }

    /// Whether slot `id` did what was asked, of a device that is not made of others. Where this is false nothing
    /// was done, and [`Slots::finish`] has the judgement.
    #[inline(always)]
    pub fn finish_one(&mut self, id: u32, result: i64) -> bool {
        if self.parts.is_some() {
            return false;
        }
        let state = &mut self.slots[id as usize];
        assert!(state.in_flight, "a completion arrived for slot {id}, which is idle");
        let expected = match state.op {
            Op::Read | Op::Write => i64::from(state.length),
            Op::Trim | Op::SyncData | Op::Sync => 0,
        };
        if result != expected {
            return false;
        }
        state.in_flight = false;
        self.in_flight -= 1;
        true
    }

    /// Keeps the error behind the result of part `id`, for the failure that [`Slots::finish`] makes of it.
    #[cold]
    pub fn explain(&mut self, id: u32, error: io::Error) {
        self.explained.insert(id, error);
    }

    #[cold]
    fn unexpected(&mut self, slot: u32, result: i64) -> Outcome {
        let explained = self.explained.remove(&slot);
        let state = &mut self.slots[slot as usize];
        if is_transient(result) && state.retries < MAX_RETRIES {
            state.retries += 1;
            self.retries += 1;
            return Outcome::Retry;
        }
        state.in_flight = false;
        let Slot { op, offset, length, .. } = *state;
        self.in_flight -= 1;
        let device = self.device.spec().to_owned();
        let cause = explained.map_or_else(|| RequestError::of(result, 0), RequestError::Os);
        Outcome::Failed(slot, RequestFailure { op, device, offset, length, member: None, cause })
    }

    #[inline(never)]
    fn finish_part(&mut self, id: u32, result: i64) -> Outcome {
        let parts = self.parts.as_mut().expect("only called where there are parts");
        let slot = parts.slot(id);
        let state = &mut self.slots[slot as usize];
        assert!(state.in_flight, "a completion arrived for slot {slot}, which is idle");
        let ended = match parts.finish(id, state.length, result) {
            PartOutcome::More => return Outcome::More,
            PartOutcome::Retry => {
                self.explained.remove(&id);
                self.retries += 1;
                return Outcome::Retry;
            }
            PartOutcome::Last(ended) => ended,
        };
        state.in_flight = false;
        self.in_flight -= 1;
        let Slot { op, offset, length, .. } = *state;
        match ended {
            Ok(()) => Outcome::Done(slot),
            Err((part, cause)) => {
                let (part, cause) = match self.refused.remove(&slot) {
                    Some(error) => (None, RequestError::Os(error)),
                    None => (part, cause),
                };
                let explained = part.as_ref().and_then(|(id, _)| self.explained.remove(id));
                let (member, cause) =
                    (part.map(|(_, member)| member), explained.map_or(cause, RequestError::Os));
                // Of the other parts none is told.
                let ids = self.ids_of(slot);
                self.explained.retain(|id, _| !ids.contains(id));
                if op == Op::Write || op.is_sync() {
                    self.device.writing_failed();
                }
                let device = self.device.spec().to_owned();
                Outcome::Failed(slot, RequestFailure { op, device, offset, length, member, cause })
            }
        }
    }

    /// Gives the buffers up for ever, because the kernel may still write to them, and leaves the device open, so that what
    /// keeps others out of it stays.
    pub fn leak(&mut self) {
        std::mem::forget(self.arena.take());
        std::mem::forget(Arc::clone(&self.device));
    }
}

/// Refuses devices that the kernel does not drive: exports of other hosts.
pub(super) fn check_local(engine: &'static str, device: &Arc<dyn Device>) -> Result<(), EngineError> {
    let Some(remote) = crate::device::leaves(device).iter().find(|member| member.remote().is_some()) else {
        return Ok(());
    };
    let message =
        format!("ioengine={engine} is not possible on {}, which is not of this host", remote.spec());
    let source = io::Error::new(io::ErrorKind::InvalidInput, message);
    Err(EngineError { engine, operation: CONFIGURE, source })
}

/// Refuses to send requests past a device that verifies what it reads, or that performs them itself.
fn check_verifying(engine: &'static str, device: &Arc<dyn Device>) -> Result<(), EngineError> {
    if IoEngine::from_word(engine).is_some_and(IoEngine::calls_device) {
        return Ok(());
    }
    let Some(target) = targets(device).iter().find(|target| is_called(&***target)) else { return Ok(()) };
    let what = if target.verifies() { "the checksums of " } else { "" };
    let message = format!(
        "ioengine={engine} would go past {what}{}; use psync, or auto, which takes it",
        target.spec()
    );
    let source = io::Error::new(io::ErrorKind::InvalidInput, message);
    Err(EngineError { engine, operation: CONFIGURE, source })
}

fn too_many_parts(engine: &'static str, device: &dyn Device) -> EngineError {
    let message = format!("iodepth times bs comes to too many chunks of {}", device.spec());
    let source = io::Error::new(io::ErrorKind::InvalidInput, message);
    EngineError { engine, operation: CONFIGURE, source }
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
