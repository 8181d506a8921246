//! The kernel's native asynchronous I/O: io_submit(2) and io_getevents(2), batched.
//!
//! Named for the library whose calls everybody knows it by; the calls are made directly. Without
//! O_DIRECT the kernel serves a request inside io_submit, so that depth means nothing: the record of
//! such a run says `direct: false` and the warnings say what follows.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use base::IoEngine;

use super::parts::Part;
use super::slots::{Begun, Outcome, Slots, answered_by_slots, check_local, discard, errno_or_zero};
use super::{Engine, EngineConfig, EngineError, LONGEST_WAIT, Op, RequestFailure, write_features};
use crate::aio_abi::{self as abi, IoEvent, Iocb};
use crate::device::Device;
use crate::device::sys::Signal;
use crate::kernel::{Kernel, Linux};
use crate::usage::IoPriority;

const NAME: &str = IoEngine::Libaio.word();
/// How often in a row io_submit(2) may take nothing, with nothing in flight, before that is an error.
/// With a pause of 100 µs after each, that is a second or two.
const MAX_REFUSALS: u32 = 10_000;
/// Parts that a context is made for, beyond its depth: contexts share `fs.aio-max-nr`, 65536 by default.
/// What goes beyond waits until completions make room.
const MOST_EVENTS: u32 = 4096;

/// An engine over one AIO context.
#[derive(Debug)]
pub struct Libaio<K: Kernel = Linux> {
    kernel: K,
    context: u64,
    /// Flags of writes, as pwritev2(2) takes them.
    write_flags: u32,
    slots: Slots,
    /// One control block for each part that there can be; they do not move.
    blocks: Box<[Iocb]>,
    /// Parts prepared and not yet accepted, oldest first.
    queued: Vec<u32>,
    /// Room for the pointers that io_submit(2) wants.
    pointers: Vec<*mut Iocb>,
    events: Box<[IoEvent]>,
    /// Events got and not yet reaped: `events[reaped..got]`.
    reaped: usize,
    got: usize,
    /// Results of synchronous calls, waiting to be reaped.
    immediate: Vec<(u32, i64)>,
    /// What completions raise, once somebody has asked for it.
    signal: Option<Signal>,
}

impl Libaio<Linux> {
    /// Opens a context for `device`.
    ///
    /// # Errors
    /// [`EngineError`]; `EAGAIN` where `fs.aio-max-nr` is used up.
    pub fn new(device: Arc<dyn Device>, config: &EngineConfig) -> Result<Self, EngineError> {
        Self::with_kernel(Linux, device, config)
    }
}

impl<K: Kernel> Libaio<K> {
    /// Opens a context through `kernel`.
    ///
    /// # Errors
    /// As [`Libaio::new`].
    pub fn with_kernel(
        kernel: K,
        device: Arc<dyn Device>,
        config: &EngineConfig,
    ) -> Result<Self, EngineError> {
        check_local(NAME, &device)?;
        let slots = Slots::new(NAME, device, config)?;
        let events = u32::try_from(slots.most_parts()).unwrap_or(u32::MAX).min(config.depth.max(MOST_EVENTS));
        let context = kernel.io_setup(events).map_err(|source| EngineError {
            engine: NAME,
            operation: "io_setup",
            source,
        })?;
        Ok(Self {
            kernel,
            context,
            write_flags: config.write_flags(),
            blocks: vec![Iocb::default(); slots.ids() as usize].into_boxed_slice(),
            slots,
            queued: Vec::with_capacity(events as usize),
            pointers: Vec::with_capacity(events as usize),
            events: vec![IoEvent::default(); events as usize].into_boxed_slice(),
            reaped: 0,
            got: 0,
            immediate: Vec::new(),
            signal: None,
        })
    }

    #[inline]
    fn queue(&mut self, part: Part) {
        let opcode = match part.op {
            Op::Read => abi::CMD_PREAD,
            Op::Write => abi::CMD_PWRITE,
            Op::SyncData => abi::CMD_FDSYNC,
            Op::Sync => abi::CMD_FSYNC,
            Op::Trim => return self.discard_now(part.id..part.id + 1),
        };
        let transfers = !part.op.is_sync();
        let priority = self.slots.priority(part.slot);
        let signals = if self.signal.is_some() { abi::FLAG_RESFD } else { 0 };
        self.blocks[part.id as usize] = Iocb {
            data: u64::from(part.id),
            key_and_rw_flags: if part.op == Op::Write { u64::from(self.write_flags) << 32 } else { 0 },
            opcode,
            fd: self.slots.members()[part.member as usize].fd().as_raw_fd() as u32,
            buffer: if transfers { self.slots.address(&part) as u64 } else { 0 },
            bytes: if transfers { u64::from(part.length) } else { 0 },
            offset: if transfers { part.offset as i64 } else { 0 },
            priority: priority.number().cast_signed(),
            flags: signals | if priority == IoPriority::UNSET { 0 } else { abi::FLAG_IOPRIO },
            event_fd: self.signal.as_ref().map_or(0, |signal| signal.fd().as_raw_fd() as u32),
            ..Iocb::default()
        };
        self.queued.push(part.id);
    }

    /// The parts of one request.
    fn queue_all(&mut self, ids: Range<u32>) {
        if self.slots.part(ids.start).op == Op::Trim {
            return self.discard_now(ids);
        }
        for id in ids {
            let part = self.slots.part(id);
            self.queue(part);
        }
    }

    #[cold]
    fn discard_now(&mut self, ids: Range<u32>) {
        // Accounted for first, so that a device that panics does not leave the slot in flight for ever, and
        // whoever drops the engine waiting for it.
        let first = self.immediate.len();
        self.immediate.extend(ids.map(|id| (id, -i64::from(libc::EIO))));
        for at in first..self.immediate.len() {
            let part = self.slots.part(self.immediate[at].0);
            let member = &*self.slots.members()[part.member as usize];
            self.immediate[at].1 = discard(member, part.offset, part.length);
        }
    }

    /// Hands over what is queued. What the kernel has no room for, and what is left when the engine
    /// cannot go on, stays queued.
    fn submit_queued(&mut self) -> Result<(), EngineError> {
        self.pointers.clear();
        let blocks = self.blocks.as_mut_ptr();
        // SAFETY: a queued id was an index of blocks when its block was written.
        self.pointers.extend(self.queued.iter().map(|id| unsafe { blocks.add(*id as usize) }));
        let mut done = 0;
        let result = self.submit_pointers(&mut done);
        self.queued.drain(..done);
        result
    }

    /// Hands over the requests behind the pointers; `done` counts those that are off our hands.
    fn submit_pointers(&mut self, done: &mut usize) -> Result<(), EngineError> {
        let mut refusals = 0;
        while *done < self.pointers.len() {
            let rest = &mut self.pointers[*done..];
            // SAFETY: the pointers name control blocks of self.blocks, which do not move, for slots
            // that are in flight, so their buffers stay untouched until reaped.
            let result = unsafe { self.kernel.io_submit(self.context, rest.len(), rest.as_mut_ptr()) };
            let errno = match &result {
                Ok(accepted) => {
                    *done += accepted;
                    if *accepted > 0 {
                        continue;
                    }
                    // Nothing taken and no reason given is no progress either.
                    libc::EAGAIN
                }
                Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
            };
            match errno {
                libc::EAGAIN | libc::EINTR => {
                    self.slots.retries += 1;
                    let waiting = self.queued.len() - *done;
                    if errno == libc::EAGAIN && self.slots.outstanding() as usize > waiting {
                        // A completion makes room, or tells the caller something.
                        return Ok(());
                    }
                    refusals += 1;
                    if refusals > MAX_REFUSALS {
                        let source = io::Error::from_raw_os_error(errno);
                        return Err(EngineError { engine: NAME, operation: "io_submit", source });
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
                libc::ENOSYS => {
                    let source = io::Error::from_raw_os_error(errno);
                    return Err(EngineError { engine: NAME, operation: "io_submit", source });
                }
                // The context is good and the pointers are, so the first request is at fault: it is settled
                // by itself, and the others go on.
                errno => {
                    let id = self.queued[*done];
                    let result = self.refused(id, errno);
                    self.immediate.push((id, result));
                    *done += 1;
                }
            }
        }
        Ok(())
    }

    /// The result of a request that io_submit(2) would not take. Not every file takes an asynchronous
    /// fdatasync or fsync; the plain call always does.
    #[cold]
    fn refused(&self, id: u32, errno: i32) -> i64 {
        let unsupported = matches!(errno, libc::EINVAL | libc::EOPNOTSUPP);
        let part = self.slots.part(id);
        if unsupported && part.op.is_sync() {
            let fd = self.slots.members()[part.member as usize].fd().as_raw_fd();
            return errno_or_zero(match part.op {
                Op::Sync => self.kernel.fsync(fd),
                _ => self.kernel.fdatasync(fd),
            });
        }
        -i64::from(errno)
    }

    fn get_events(&mut self, min: usize, timeout: Option<Duration>) -> Result<(), EngineError> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let time_ptr = match timeout {
            Some(limit) => {
                let limit = limit.min(LONGEST_WAIT);
                time.tv_sec = limit.as_secs() as _;
                time.tv_nsec = limit.subsec_nanos() as _;
                &raw mut time
            }
            None if min == 0 => &raw mut time,
            None => std::ptr::null_mut(),
        };
        if let Some(signal) = &self.signal {
            // Before the events are fetched, so that one which comes afterwards raises it again.
            signal.clear();
        }
        let room = &mut self.events[self.got..];
        if room.is_empty() {
            return Ok(());
        }
        // SAFETY: room has as many events as are announced; time lives until the call returns.
        let result = unsafe {
            self.kernel.io_getevents(
                self.context,
                min.min(room.len()),
                room.len(),
                room.as_mut_ptr(),
                time_ptr,
            )
        };
        match result {
            Ok(got) => self.got += got,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(source) => return Err(EngineError { engine: NAME, operation: "io_getevents", source }),
        }
        Ok(())
    }

    /// Parts that the kernel has and whose events were not got.
    fn under_way(&self) -> usize {
        let here = self.queued.len() + self.immediate.len() + (self.got - self.reaped);
        self.slots.outstanding() as usize - here
    }

    /// Waits until the kernel has no request of ours. False where it no longer answers.
    fn drain(&mut self) -> bool {
        while self.under_way() > 0 {
            if self.get_events(1, None).is_err() {
                return false;
            }
            self.reap(|_, _| {});
        }
        true
    }

    #[inline]
    fn settle(
        &mut self,
        id: u32,
        result: i64,
        on_complete: &mut impl FnMut(u32, Result<(), RequestFailure>),
    ) -> u32 {
        match self.slots.finish(id, self.kernel.completed(result)) {
            Outcome::Done(slot) => on_complete(slot, Ok(())),
            Outcome::More => return 0,
            Outcome::Failed(slot, failure) => on_complete(slot, Err(failure)),
            Outcome::Retry => {
                let part = self.slots.part(id);
                self.queue(part);
                return 0;
            }
        }
        1
    }
}

impl<K: Kernel> Engine for Libaio<K> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn features(&self) -> Vec<String> {
        write_features(self.write_flags).chain(self.slots.page_feature()).collect()
    }

    answered_by_slots!();

    fn set_priority(&mut self, slot: u32, priority: IoPriority) {
        self.slots.set_priority(slot, priority);
    }

    #[inline]
    fn prepare(&mut self, slot: u32, op: Op, offset: u64, length: u32) {
        match self.slots.begin(slot, op, offset, length) {
            Begun::One(part) => self.queue(part),
            Begun::Several(ids) => self.queue_all(ids),
            Begun::Nowhere(id, result) => self.immediate.push((id, result)),
        }
    }

    fn submit(&mut self, min_complete: u32, timeout: Option<Duration>) -> Result<(), EngineError> {
        let handed_over = if self.queued.is_empty() { Ok(()) } else { self.submit_queued() };
        let ready = self.immediate.len() + (self.got - self.reaped);
        let under_way = self.under_way();
        if under_way > 0 {
            // Where the engine cannot go on, what it has done can still be reaped.
            let minimum = if handed_over.is_ok() { self.slots.parts_of(min_complete) as usize } else { 0 };
            self.get_events(minimum.saturating_sub(ready).min(under_way), timeout)?;
        }
        handed_over
    }

    /// An eventfd(2) that the kernel raises for each request prepared from now on.
    fn completion_fd(&mut self) -> io::Result<Option<BorrowedFd<'_>>> {
        if self.signal.is_none() {
            self.signal = Some(Signal::new()?);
        }
        Ok(self.signal.as_ref().map(Signal::fd))
    }

    fn reap(&mut self, mut on_complete: impl FnMut(u32, Result<(), RequestFailure>)) -> u32 {
        let mut count = 0;
        // What is settled is struck off first, so that nothing is settled twice, and nothing lost, should
        // the caller's code panic.
        while self.reaped < self.got {
            let event = self.events[self.reaped];
            self.reaped += 1;
            count += self.settle(event.data as u32, event.result, &mut on_complete);
        }
        (self.reaped, self.got) = (0, 0);
        // A discard that is made again is done at once, and waits for the next call.
        for _ in 0..self.immediate.len() {
            let (id, result) = self.immediate.remove(0);
            count += self.settle(id, result, &mut on_complete);
        }
        count
    }
}

impl<K: Kernel> Drop for Libaio<K> {
    fn drop(&mut self) {
        if !self.drain() {
            self.slots.leak();
        }
        // The context is ours, so that this cannot fail; it waits for what is in flight.
        let _ = self.kernel.io_destroy(self.context);
    }
}
