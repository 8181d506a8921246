//! Ranges of open files, moved to and from aligned buffers, many at a time.
//!
//! An engine ([`crate::engine`]) drives one device for as long as it lives; a [`Transfer`] is for work that goes from
//! file to file, as a copy does: every request names the file that it is for. It has `slots` buffers, each of which
//! has at most one request under way, and one place more for an fdatasync(2), which so runs beside the others.
//!
//! 1. The caller takes an idle slot, fills its buffer if it writes, and calls [`Transfer::start`]. From here on the
//!    buffer is the kernel's; touching it panics. The file is kept open by the request itself, so that its number
//!    cannot come to mean another file while the kernel or a thread has still to look it up.
//! 2. [`Transfer::next`] hands over what was started, waits where it must, and tells of one request that is over.
//!
//! *A completion is a claim to check.* A transfer that comes back short is gone on with from the last boundary that
//! the file's direct I/O allows; one that moves nothing is a failure, [`RequestError::Short`], never an end of file that
//! is taken for granted. `EINTR` and `EAGAIN` are tried again a bounded number of times. A sync is never tried again:
//! after its failure the kernel says that all is well, and it is not.
//!
//! There are two ways to have the requests made: io_uring(7) with registered buffers, and a few threads with pread(2)
//! and pwrite(2) where a kernel has no io_uring or does not let us have it. The buffers outlive the last request that
//! the kernel has: who drops a transfer waits for it, and where that fails the buffers are leaked.

mod ring;
mod threads;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::arena::Arena;
pub use crate::engine::{Op, RequestError};
use crate::kernel::{Kernel, Linux};
use ring::Ring;
use threads::Threads;

/// Buffers begin at multiples of this, which every file system known takes for direct I/O.
pub const ALIGNMENT: usize = 4096;
/// How often in a row a request is made again that did not get on: interrupted, refused for now, or moved less than
/// one aligned block.
const MOST_TRIES: u32 = 64;

/// How requests are to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// io_uring where it is to be had, threads otherwise.
    #[default]
    Auto,
    /// io_uring(7).
    IoUring,
    /// Threads with pread(2), pwrite(2) and fdatasync(2).
    Psync,
}

/// How a transfer is to be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferConfig {
    /// Buffers, which is the most reads and writes at once; 1 to 4096.
    pub slots: u32,
    /// Bytes that each buffer holds; a multiple of [`ALIGNMENT`], at most 1 GiB.
    pub slot_bytes: u32,
    /// How requests are made.
    pub method: Method,
    /// Let others' I/O go first: the idle class of ioprio_set(2).
    pub idle: bool,
}

/// A read into a slot's buffer, or a write from it.
#[derive(Debug)]
pub struct Request<'a> {
    /// The file, open for what is asked of it.
    pub file: &'a Arc<OwnedFd>,
    /// [`Op::Read`] or [`Op::Write`].
    pub op: Op,
    /// The slot.
    pub slot: u32,
    /// Where in the slot's buffer, bytes.
    pub within: u32,
    /// Where in the file, bytes.
    pub offset: u64,
    /// How much is asked for, bytes.
    pub length: u32,
    /// How much it must come to, bytes: less than `length` where a read goes beyond the end of a file because it has
    /// to be a multiple of some block.
    pub needed: u32,
    /// What `within`, `offset` and `length` are multiples of and a transfer that is gone on with must be; 1 for
    /// buffered I/O.
    pub alignment: u32,
    /// The first attempt moves, or is said to have moved, no more than this: a fault on demand.
    pub most: Option<u32>,
}

/// What is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ticket {
    /// The read or write of a slot.
    Slot(u32),
    /// The sync.
    Sync,
}

/// A request that is over.
#[derive(Debug)]
pub struct Done {
    /// Which.
    pub ticket: Ticket,
    /// The bytes that were moved, at least as many as were needed; or why not.
    pub result: Result<u32, RequestError>,
}

/// See the module's argument.
// Fields are dropped in this order: what makes the requests ends before files and buffers do.
#[derive(Debug)]
pub struct Transfer<K: Kernel + Send + Sync = Linux> {
    backend: Backend<K>,
    /// One for each slot, and the last for the sync.
    flights: Box<[Option<Flight>]>,
    /// Some until it has to be leaked.
    arena: Option<Arena>,
    in_flight: u32,
    finished: VecDeque<Done>,
    results: Vec<(u32, i64)>,
    fallback: Option<io::Error>,
}

#[derive(Debug)]
enum Backend<K: Kernel + Send + Sync> {
    Ring(Ring<K>),
    Threads(Threads),
}

/// A request under way.
#[derive(Debug)]
struct Flight {
    file: Arc<OwnedFd>,
    op: Op,
    within: u32,
    offset: u64,
    length: u32,
    needed: u32,
    alignment: u32,
    most: Option<u32>,
    /// Bytes that were moved by earlier attempts.
    moved: u32,
    /// Attempts since it last got on.
    tries: u32,
}

/// One attempt at a request, as it goes to the kernel.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    /// Which entry of the table it is for.
    id: u32,
    op: Op,
    fd: RawFd,
    address: *mut u8,
    offset: u64,
    length: u32,
}

// SAFETY: the address lies in the arena, which outlives whoever has an attempt (`Transfer` drops its threads, which
// joins them, before the arena), and belongs to this request alone for as long as its slot is in flight.
unsafe impl Send for Attempt {}

/// What an attempt comes to.
enum Verdict {
    Over(Result<u32, RequestError>),
    Again,
}

impl Flight {
    /// How much the next attempt asks for.
    fn asks(&self) -> u32 {
        let rest = self.length - self.moved;
        self.most.map_or(rest, |most| (most - most % self.alignment).max(self.alignment).min(rest))
    }

    /// Judges what the kernel says of an attempt: bytes moved, or `-errno`.
    fn judge(&mut self, result: i64) -> Verdict {
        let most = self.most.take();
        let Ok(said) = u32::try_from(result) else {
            let errno = i32::try_from(-result).unwrap_or(libc::EIO);
            self.tries += 1;
            let passes = matches!(errno, libc::EINTR | libc::EAGAIN) && !self.op.is_sync();
            if passes && self.tries < MOST_TRIES {
                return Verdict::Again;
            }
            return Verdict::Over(Err(RequestError::Os(io::Error::from_raw_os_error(errno))));
        };
        if self.op.is_sync() {
            return Verdict::Over(Ok(0));
        }
        let reached = self.moved + said.min(most.unwrap_or(u32::MAX)).min(self.length - self.moved);
        if reached >= self.needed {
            return Verdict::Over(Ok(reached));
        }
        let kept = reached - reached % self.alignment;
        self.tries = if kept > self.moved { 0 } else { self.tries + 1 };
        if reached == self.moved || self.tries >= MOST_TRIES {
            return Verdict::Over(Err(RequestError::Short { transferred: u64::from(reached) }));
        }
        self.moved = kept;
        Verdict::Again
    }
}

impl Transfer<Linux> {
    /// Sets one up, for this thread.
    ///
    /// # Errors
    /// `OutOfMemory` where there is no room for the buffers; what keeps us from io_uring where nothing else will do;
    /// what keeps us from starting threads.
    pub fn new(config: &TransferConfig) -> io::Result<Self> {
        Self::with_kernel(Linux, config)
    }
}

impl<K: Kernel + Send + Sync> Transfer<K> {
    /// The same with the calls of `kernel`.
    ///
    /// # Errors
    /// As [`Transfer::new`].
    pub fn with_kernel(kernel: K, config: &TransferConfig) -> io::Result<Self> {
        let fits = (1..=4096).contains(&config.slots)
            && (1..=1 << 30).contains(&config.slot_bytes)
            && (config.slot_bytes as usize).is_multiple_of(ALIGNMENT);
        if !fits {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let arena = Arena::new(config.slots, config.slot_bytes as usize, ALIGNMENT)?;
        let mut fallback = None;
        let ring = match config.method {
            Method::Psync => None,
            Method::IoUring => Some(Ring::new(kernel.clone(), &arena, config.idle)?),
            Method::Auto => match Ring::new(kernel.clone(), &arena, config.idle) {
                Ok(ring) => Some(ring),
                Err(error) => {
                    fallback = Some(error);
                    None
                }
            },
        };
        let backend = match ring {
            Some(ring) => Backend::Ring(ring),
            None => Backend::Threads(Threads::start(&kernel, config.slots + 1, config.idle)?),
        };
        Ok(Self {
            backend,
            flights: (0..=config.slots).map(|_| None).collect(),
            arena: Some(arena),
            in_flight: 0,
            finished: VecDeque::new(),
            results: Vec::new(),
            fallback,
        })
    }

    /// Which way requests are made; [`Method::IoUring`] or [`Method::Psync`].
    #[must_use]
    pub fn method(&self) -> Method {
        match self.backend {
            Backend::Ring(_) => Method::IoUring,
            Backend::Threads(_) => Method::Psync,
        }
    }

    /// Why requests are not made by io_uring, where that was tried.
    #[must_use]
    pub fn fallback(&self) -> Option<&io::Error> {
        self.fallback.as_ref()
    }

    /// How many buffers there are.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.flights.len() as u32 - 1
    }

    /// Requests that were started and have not been told of.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight + self.finished.len() as u32
    }

    fn arena(&self) -> &Arena {
        self.arena.as_ref().expect("only dropping takes it")
    }

    /// The buffer of an idle slot.
    ///
    /// # Panics
    /// If its request is under way.
    #[must_use]
    pub fn buffer(&self, slot: u32) -> &[u8] {
        let arena = self.arena();
        let start = arena.slot(slot);
        assert!(self.flights[slot as usize].is_none(), "slot {slot} is in flight");
        // SAFETY: the slot is slot_bytes of mapped memory, initialised when it was mapped. No request of it is under
        // way (checked above), one can only be started with `self` borrowed exclusively, and nobody else has the
        // address.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), arena.slot_bytes()) }
    }

    /// The buffer of an idle slot, to fill.
    ///
    /// # Panics
    /// If its request is under way.
    pub fn buffer_mut(&mut self, slot: u32) -> &mut [u8] {
        let arena = self.arena();
        let (start, bytes) = (arena.slot(slot), arena.slot_bytes());
        assert!(self.flights[slot as usize].is_none(), "slot {slot} is in flight");
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), bytes) }
    }

    /// Starts a read or a write. It reaches the kernel with the next call of [`next`](Self::next), or before.
    ///
    /// # Panics
    /// If the slot is in flight or its buffer ends before the request does, or if it is neither a read nor a write.
    pub fn start(&mut self, request: &Request<'_>) {
        let Request { file, op, slot, within, offset, length, needed, alignment, most } = *request;
        assert!(matches!(op, Op::Read | Op::Write), "a slot is read into or written from");
        assert!(slot < self.slots() && self.flights[slot as usize].is_none(), "slot {slot} is in flight");
        let end = within as usize + length as usize;
        assert!(end <= self.arena().slot_bytes() && needed <= length, "a request fits its slot");
        assert!(needed > 0 && alignment > 0, "a request has something to do");
        let file = Arc::clone(file);
        let flight = Flight { file, op, within, offset, length, needed, alignment, most, moved: 0, tries: 0 };
        self.begin(slot, flight);
    }

    /// Starts an fdatasync(2) of a file: it vouches for the writes that were told of before.
    ///
    /// # Panics
    /// If one is under way.
    pub fn start_sync(&mut self, file: &Arc<OwnedFd>) {
        let id = self.slots();
        assert!(self.flights[id as usize].is_none(), "one sync at a time");
        let flight = Flight {
            file: Arc::clone(file),
            op: Op::SyncData,
            within: 0,
            offset: 0,
            length: 0,
            needed: 0,
            alignment: 1,
            most: None,
            moved: 0,
            tries: 0,
        };
        self.begin(id, flight);
    }

    fn begin(&mut self, id: u32, flight: Flight) {
        self.flights[id as usize] = Some(flight);
        self.in_flight += 1;
        self.attempt(id);
    }

    /// Passes the next attempt at a request on.
    fn attempt(&mut self, id: u32) {
        let flight = self.flights[id as usize].as_ref().expect("it is under way");
        let address = if flight.op.is_sync() {
            std::ptr::null_mut()
        } else {
            let into = (flight.within + flight.moved) as usize;
            // SAFETY: `start` checked that within + length lies in the slot, and moved ≤ length.
            unsafe { self.arena().slot(id).add(into) }.as_ptr()
        };
        let attempt = Attempt {
            id,
            op: flight.op,
            fd: flight.file.as_raw_fd(),
            address,
            offset: flight.offset + u64::from(flight.moved),
            length: flight.asks(),
        };
        match &mut self.backend {
            Backend::Ring(ring) => ring.push(attempt),
            Backend::Threads(threads) => threads.push(attempt),
        }
    }

    /// Hands over what was started, and tells of a request that is over, waiting for one if need be. None where
    /// nothing is under way.
    ///
    /// # Errors
    /// The kernel takes or gives back nothing any more. What is under way stays so.
    #[allow(clippy::should_implement_trait, reason = "it is no iterator: requests are started in between")]
    pub fn next(&mut self) -> io::Result<Option<Done>> {
        loop {
            let done = self.poll()?;
            if done.is_some() || self.in_flight == 0 {
                return Ok(done);
            }
            self.exchange(true)?;
        }
    }

    /// One of those that are known to be over, without a look at the others: nothing is handed over, and the kernel is not
    /// asked.
    pub fn take(&mut self) -> Option<Done> {
        self.finished.pop_front()
    }

    /// The same without waiting: none where nothing is over yet.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn poll(&mut self) -> io::Result<Option<Done>> {
        let ready = self.finished.pop_front();
        let exchanged = if self.in_flight > 0 { self.exchange(false) } else { Ok(()) };
        match ready {
            // It is told of, whatever has become of the others: the next call meets the error again.
            Some(done) => Ok(Some(done)),
            None => exchanged.map(|()| self.finished.pop_front()),
        }
    }

    /// Hands over what was started and fetches what is over.
    fn exchange(&mut self, wait: bool) -> io::Result<()> {
        let mut results = std::mem::take(&mut self.results);
        let exchanged = match &mut self.backend {
            Backend::Ring(ring) => ring.exchange(wait, &mut results),
            Backend::Threads(threads) => {
                threads.exchange(wait, &mut results);
                Ok(())
            }
        };
        for (id, result) in results.drain(..) {
            self.settle(id, result);
        }
        self.results = results;
        exchanged
    }

    /// What an attempt came to.
    fn settle(&mut self, id: u32, result: i64) {
        let flight = self.flights[id as usize].as_mut().expect("a completion is of something under way");
        match flight.judge(result) {
            Verdict::Again => self.attempt(id),
            Verdict::Over(result) => {
                self.flights[id as usize] = None;
                self.in_flight -= 1;
                let ticket = if id == self.slots() { Ticket::Sync } else { Ticket::Slot(id) };
                self.finished.push_back(Done { ticket, result });
            }
        }
    }
}

impl<K: Kernel + Send + Sync> Drop for Transfer<K> {
    fn drop(&mut self) {
        let over = match &mut self.backend {
            Backend::Ring(ring) => ring.close(),
            // They are joined when the field is dropped, before the arena.
            Backend::Threads(_) => true,
        };
        if !over {
            std::mem::forget(self.arena.take());
        }
    }
}
