//! Many requests of any length at once, every member's queue full.
//!
//! 1. A read or write is cut into parts at the bounds of chunks, and where it is longer than a buffer of the engine. Such a
//!    part lies on one member; a sync, or at most 1 GiB of a discard, concerns several and goes one at a time.
//! 2. Parts wait in a lane for their member, first come, first served. A lane has `depth` parts in flight as long as
//!    it has as many: a member that is slow, or asked for more than its share, holds up nobody else's.
//! 3. A request is done when all of its parts are; its completion carries the buffer that was given with it, and each
//!    part that failed with its member, the place on it and the cause.
//!
//! Data are copied between the caller's buffers, which may lie anywhere, and those of the engine, which are aligned
//! and pinned; so no request waits for memory, and nothing of the caller's is ever the kernel's.
//!
//! Requests that overlap while both are under way happen in no particular order, as on any drive with a queue. A
//! sync covers the writes whose completions came before it was asked for.

use std::collections::VecDeque;
use std::sync::Arc;

use storage::device::{Device, Spread, longest_request, piece_of};
use storage::engine::{self, AnyEngine, Engine, EngineConfig, EngineError, IoEngine, Op, RequestFailure};
use storage::kernel::{Kernel, Linux};
use storage::on_engine;

use crate::handle::Volume;

/// The largest part where the volume has no chunks, and of a larger chunk, bytes.
const LARGEST_PART: u64 = 1 << 20;
/// The largest discard that is made at once.
const LARGEST_DISCARD: u64 = 1 << 30;
/// The most slots of an engine.
const MOST_SLOTS: u32 = 32_768;

/// How a queue is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueOptions {
    /// Parts in flight on each member.
    pub depth: u32,
    /// The largest part, bytes; the volume's chunk where it is left out, but no more than 1 MiB.
    pub part_bytes: Option<usize>,
    /// The engine.
    pub engine: IoEngine,
}

impl Default for QueueOptions {
    /// 32 parts in flight on each member, of one chunk at most, by the fastest engine that works.
    fn default() -> Self {
        Self { depth: 32, part_bytes: None, engine: IoEngine::Auto }
    }
}

/// A request's number, from 0, in the order in which they were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A request that is over.
#[derive(Debug)]
pub struct Completion {
    /// Which one.
    pub ticket: Ticket,
    /// What it was to do.
    pub op: Op,
    /// Where, bytes.
    pub offset: u64,
    /// The buffer that was given with it; after a read, what was read.
    pub buffer: Vec<u8>,
    /// Whether all of its parts did what was asked.
    pub result: Result<(), PartFailures>,
}

/// The parts of a request that failed; one at least, by their offsets. All others did what was asked.
#[derive(Debug)]
pub struct PartFailures(pub Vec<RequestFailure>);

impl std::fmt::Display for PartFailures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(first) = self.0.first() else { return f.write_str("nothing failed") };
        match self.0.len() {
            1 => write!(f, "{first}"),
            parts => write!(f, "{first}; and {} more parts of the request", parts - 1),
        }
    }
}

impl std::error::Error for PartFailures {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.first().and_then(|failure| failure.source())
    }
}

/// A request that was not taken, or a queue that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// Beyond the end.
    #[error("{} of {length} bytes at {offset} reaches beyond the end of {volume} at {size}", op.word())]
    Beyond {
        /// What it was to do.
        op: Op,
        /// The volume's spec.
        volume: String,
        /// Where, bytes.
        offset: u64,
        /// How much, bytes.
        length: u64,
        /// The volume's size, bytes.
        size: u64,
    },
    /// Not in whole blocks.
    #[error("{} of {length} bytes at {offset} is not in whole blocks of {block} bytes, which {volume} has", op.word())]
    Misaligned {
        /// What it was to do.
        op: Op,
        /// The volume's spec.
        volume: String,
        /// Where, bytes.
        offset: u64,
        /// How much, bytes.
        length: u64,
        /// The block, bytes.
        block: u32,
    },
    /// The engine cannot go on.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A part of a request.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// The number of the request among those under way.
    request: usize,
    op: Op,
    /// Where on the volume.
    offset: u64,
    length: u32,
    /// Where in the request's buffer.
    start: usize,
    /// The lane; none for what concerns all members.
    lane: Option<usize>,
}

/// The parts of one member.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Part>,
    in_flight: u32,
}

/// A request under way.
#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    op: Op,
    offset: u64,
    buffer: Vec<u8>,
    remaining: usize,
    failures: Vec<RequestFailure>,
}

/// See the module's argument.
///
/// ```
/// use volume::{DeviceSpec, OpenOptions, QueueOptions, Volume};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let volume = Volume::open(&DeviceSpec::parse("stripe(chunk=4k):mem:8m,mem:8m")?, &OpenOptions::writing())?;
/// let mut queue = volume.queue(&QueueOptions::default())?;
/// for block in 0..64_u64 {
///     queue.write(block * 65_536, vec![block as u8; 65_536])?;
/// }
/// while let Some(done) = queue.wait()? {
///     done.result?;
/// }
/// let third = queue.read(3 * 65_536, vec![0; 65_536])?;
/// let done = queue.wait()?.expect("one request is under way");
/// assert_eq!((done.ticket, done.buffer[17]), (third, 3));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Queue<K: Kernel + Send + Sync = Linux> {
    engine: AnyEngine<K>,
    volume: Arc<dyn Device>,
    part_bytes: u64,
    depth: u32,
    idle: Vec<u32>,
    /// What is in each slot.
    slots: Vec<Option<Part>>,
    lanes: Vec<Lane>,
    /// Syncs and discards, which concern several members.
    broad: VecDeque<Part>,
    /// One of those at a time.
    is_broad_one_in_flight: bool,
    requests: Vec<Option<Pending>>,
    free: Vec<usize>,
    done: VecDeque<Completion>,
    next: u64,
    ended: Vec<(u32, Result<(), RequestFailure>)>,
}

impl Volume {
    /// A queue for many requests at once; as many as wanted may be open, one for each thread.
    ///
    /// # Errors
    /// [`QueueError`], where no engine can be had.
    pub fn queue(&self, options: &QueueOptions) -> Result<Queue, QueueError> {
        Queue::open(self, options)
    }
}

impl Queue {
    /// Opens a queue on a volume.
    pub(crate) fn open(volume: &Volume, options: &QueueOptions) -> Result<Self, QueueError> {
        Queue::with_kernel(&Linux, volume, options)
    }
}

impl<K: Kernel + Send + Sync> Queue<K> {
    /// Opens a queue whose engine makes its system calls through `kernel`.
    ///
    /// # Errors
    /// [`QueueError::Engine`], where no engine can be had.
    pub fn with_kernel(kernel: &K, volume: &Volume, options: &QueueOptions) -> Result<Self, QueueError> {
        let block = u64::from(volume.block());
        let part = options.part_bytes.map_or(volume.chunk().unwrap_or(LARGEST_PART), |bytes| bytes as u64);
        // Whole blocks, or the second part of a request would begin within one.
        let part_bytes =
            (part.clamp(1, longest_request(volume.device(), LARGEST_PART)) / block * block).max(block);
        let width = volume.members().len() as u32;
        let depth = options.depth.clamp(1, (MOST_SLOTS - 1) / width);
        // One more than all lanes take, for what concerns several members.
        let slots = depth * width + 1;
        let config =
            EngineConfig { depth: slots, slot_bytes: part_bytes as usize, ..EngineConfig::default() };
        let (engine, _) = engine::open_with_kernel(kernel, options.engine, volume.device(), &config)?;
        Ok(Self {
            engine,
            volume: Arc::clone(volume.device()),
            part_bytes,
            depth,
            idle: (0..slots).rev().collect(),
            slots: vec![None; slots as usize],
            lanes: (0..width).map(|_| Lane::default()).collect(),
            broad: VecDeque::new(),
            is_broad_one_in_flight: false,
            requests: Vec::new(),
            free: Vec::new(),
            done: VecDeque::new(),
            next: 0,
            ended: Vec::new(),
        })
    }

    /// The engine at work: `io_uring`, `libaio`, ….
    #[must_use]
    pub fn engine(&self) -> &'static str {
        on_engine!(&self.engine, engine => engine.name())
    }

    /// Requests that were made and whose completions were not yet handed out.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.requests.len() - self.free.len() + self.done.len()
    }

    /// Asks for `buffer.len()` bytes at `offset`, to be read into `buffer`. Nothing is sent before the next
    /// [`wait`](Self::wait) or [`poll`](Self::poll).
    ///
    /// # Errors
    /// [`QueueError::Beyond`] and [`QueueError::Misaligned`]; nothing is under way then.
    pub fn read(&mut self, offset: u64, buffer: Vec<u8>) -> Result<Ticket, QueueError> {
        self.transfer(Op::Read, offset, buffer)
    }

    /// Asks for `buffer` to be written at `offset`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&mut self, offset: u64, buffer: Vec<u8>) -> Result<Ticket, QueueError> {
        self.transfer(Op::Write, offset, buffer)
    }

    /// Asks for the writes whose completions were handed out to be made durable on every member.
    pub fn sync(&mut self) -> Ticket {
        let request = self.pending(Op::SyncData, 0, Vec::new(), 1);
        let part = Part { request, op: Op::SyncData, offset: 0, length: 0, start: 0, lane: None };
        self.broad.push_back(part);
        Ticket(self.next - 1)
    }

    /// Asks for a range to be given back to the members' media.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn discard(&mut self, offset: u64, length: u64) -> Result<Ticket, QueueError> {
        self.check(Op::Trim, offset, length)?;
        let count = length.div_ceil(LARGEST_DISCARD) as usize;
        let request = self.pending(Op::Trim, offset, Vec::new(), count);
        let mut at = 0;
        while at < length {
            let part = (length - at).min(LARGEST_DISCARD);
            let (offset, length) = (offset + at, part as u32);
            self.broad.push_back(Part { request, op: Op::Trim, offset, length, start: 0, lane: None });
            at += part;
        }
        Ok(self.begun(request, count))
    }

    fn transfer(&mut self, op: Op, offset: u64, buffer: Vec<u8>) -> Result<Ticket, QueueError> {
        let length = buffer.len() as u64;
        self.check(op, offset, length)?;
        let request = self.pending(op, offset, buffer, 0);
        let spread = self.volume.spread().cloned();
        let (mut at, mut count) = (0, 0);
        while at < length {
            let left = (length - at).min(self.part_bytes);
            let (lane, part) = lane_of(spread.as_ref(), offset + at, left);
            let (offset, length) = (offset + at, part as u32);
            let part = Part { request, op, offset, length, start: at as usize, lane: Some(lane) };
            self.lanes[lane].waiting.push_back(part);
            at += u64::from(length);
            count += 1;
        }
        Ok(self.begun(request, count))
    }

    fn check(&self, op: Op, offset: u64, length: u64) -> Result<(), QueueError> {
        let (volume, size) = (|| self.volume.spec().to_owned(), self.volume.size());
        if offset.checked_add(length).is_none_or(|end| end > size) {
            return Err(QueueError::Beyond { op, volume: volume(), offset, length, size });
        }
        let block = self.volume.geometry().logical_block;
        if !(offset | length).is_multiple_of(u64::from(block)) {
            return Err(QueueError::Misaligned { op, volume: volume(), offset, length, block });
        }
        Ok(())
    }

    /// Puts a request down as under way; its number among those.
    fn pending(&mut self, op: Op, offset: u64, buffer: Vec<u8>, remaining: usize) -> usize {
        let ticket = Ticket(self.next);
        self.next += 1;
        let pending = Pending { ticket, op, offset, buffer, remaining, failures: Vec::new() };
        match self.free.pop() {
            Some(at) => {
                self.requests[at] = Some(pending);
                at
            }
            None => {
                self.requests.push(Some(pending));
                self.requests.len() - 1
            }
        }
    }

    /// Says into how many parts a request was cut. One of no length is done at once.
    fn begun(&mut self, request: usize, parts: usize) -> Ticket {
        if let Some(pending) = &mut self.requests[request] {
            pending.remaining = parts;
        }
        if parts == 0 {
            self.finish(request);
        }
        Ticket(self.next - 1)
    }

    /// The next completion, waiting for one where there is none yet; none where nothing is under way.
    ///
    /// # Errors
    /// [`QueueError::Engine`]. What is under way then ends with the queue.
    pub fn wait(&mut self) -> Result<Option<Completion>, QueueError> {
        while self.done.is_empty() && self.under_way() > 0 {
            self.turn(1)?;
        }
        Ok(self.done.pop_front())
    }

    /// The next completion, if there is one already. Sends what waits.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn poll(&mut self) -> Result<Option<Completion>, QueueError> {
        if self.done.is_empty() && self.under_way() > 0 {
            self.turn(0)?;
        }
        Ok(self.done.pop_front())
    }

    /// Fills every lane, hands over, and takes back what is done.
    fn turn(&mut self, least: u32) -> Result<(), QueueError> {
        self.fill();
        let mut ended = std::mem::take(&mut self.ended);
        on_engine!(&mut self.engine, engine => {
            engine.submit(least, None)?;
            engine.reap(|slot, result| ended.push((slot, result)));
        });
        for (slot, result) in ended.drain(..) {
            self.end_part(slot, result);
        }
        self.ended = ended;
        Ok(())
    }

    /// Puts waiting parts into idle slots, as many for each member as it takes.
    fn fill(&mut self) {
        for lane in 0..self.lanes.len() {
            while self.lanes[lane].in_flight < self.depth
                && let Some(part) = self.lanes[lane].waiting.pop_front()
            {
                self.lanes[lane].in_flight += 1;
                self.prepare(part);
            }
        }
        // The lanes leave one slot over.
        if !self.is_broad_one_in_flight
            && let Some(part) = self.broad.pop_front()
        {
            self.is_broad_one_in_flight = true;
            self.prepare(part);
        }
    }

    fn prepare(&mut self, part: Part) {
        let slot = self.idle.pop().expect("each lane has slots of its own");
        let length = part.length as usize;
        let pending = self.requests[part.request].as_ref().expect("its parts are under way");
        on_engine!(&mut self.engine, engine => {
            if part.op == Op::Write {
                let bytes = &pending.buffer[part.start..part.start + length];
                engine.buffer_mut(slot)[..length].copy_from_slice(bytes);
            }
            engine.prepare(slot, part.op, part.offset, part.length);
        });
        self.slots[slot as usize] = Some(part);
    }

    fn end_part(&mut self, slot: u32, result: Result<(), RequestFailure>) {
        let part = self.slots[slot as usize].take().expect("the engine hands back what it was given");
        let length = part.length as usize;
        let pending = self.requests[part.request].as_mut().expect("its parts are under way");
        match result {
            Ok(()) if part.op == Op::Read => {
                let bytes = on_engine!(&self.engine, engine => &engine.buffer(slot)[..length]);
                pending.buffer[part.start..part.start + length].copy_from_slice(bytes);
            }
            Ok(()) => {}
            Err(failure) => pending.failures.push(failure),
        }
        pending.remaining -= 1;
        let over = pending.remaining == 0;
        self.idle.push(slot);
        match part.lane {
            Some(lane) => self.lanes[lane].in_flight -= 1,
            None => self.is_broad_one_in_flight = false,
        }
        if over {
            self.finish(part.request);
        }
    }

    /// Turns a request whose parts are all over into a completion.
    fn finish(&mut self, request: usize) {
        let Some(mut pending) = self.requests[request].take() else { return };
        self.free.push(request);
        pending.failures.sort_by_key(|failure| failure.offset);
        let Pending { ticket, op, offset, buffer, failures, .. } = pending;
        let result = if failures.is_empty() { Ok(()) } else { Err(PartFailures(failures)) };
        self.done.push_back(Completion { ticket, op, offset, buffer, result });
    }
}

/// Which member a range begins on, and how much of it lies there without a break. Of what cannot be the engine makes an
/// error of the request's.
fn lane_of(spread: Option<&Arc<dyn Spread>>, offset: u64, length: u64) -> (usize, u64) {
    let first = (0, length);
    let Some(spread) = spread else { return first };
    let piece = piece_of(&**spread, spread.members().len() as u32, offset, length);
    piece.map_or(first, |piece| (piece.member as usize, piece.length))
}
