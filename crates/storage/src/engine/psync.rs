//! pread(2) and pwrite(2): one thread for each unit of depth, works everywhere.
//!
//! At depth 1 the call is made on the caller's own thread, which is what `psync` means in fio. Above,
//! `depth` workers take requests from one queue, so that depth is real and not only asked for. Where the
//! device is made of others and a request usually reaches several of them, there are as many workers for
//! each unit of depth, so that a request's parts are made at the same time.
//!
//! A device that verifies what it reads ([`Device::verifies`]) is driven by its own calls, as an export of another host
//! is, and its errors keep their words. So is one whose requests move no data ([`Device::performs`]), without workers: all
//! that was handed over is done when the call returns.
//!
//! Workers write to the arena, so they are joined before it is unmapped, whichever way the engine ends.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::IoEngine;

use super::parts::Part;
use super::slots::{Begun, Outcome, Slots, answered_by_slots, errno_or_bytes, errno_or_zero};
use super::{Engine, EngineConfig, EngineError, LONGEST_WAIT, Op, RequestFailure};
use crate::device::sys::Signal;
use crate::device::{Device, is_called, targets};
use crate::kernel::{Kernel, Linux};
use crate::remote::errno_of;

const NAME: &str = IoEngine::Psync.word();
/// More threads than a machine has any use for; a device made of others gets no more for its depth.
const MOST_WORKERS: u32 = 4096;
/// Enough for a few frames, a system call, and the report of a panic.
const WORKER_STACK: usize = 256 << 10;

/// An engine of plain system calls.
// Fields are dropped in this order: the workers end before their buffers do.
#[derive(Debug)]
pub struct Psync<K: Kernel + Send + Sync = Linux> {
    pool: Option<Pool>,
    kernel: K,
    slots: Slots,
    queued: Vec<Request>,
    finished: VecDeque<Finished>,
}

/// The id of a part that is over, its result, and what is behind a failure where that says more than its errno.
type Finished = (u32, i64, Option<io::Error>);

/// A request on its way to a worker.
#[derive(Debug, Clone, Copy)]
struct Request {
    part: Part,
    buffer: *mut u8,
}

// SAFETY: the buffer belongs to the request alone while it is in flight, on whichever thread, and the
// arena outlives it because `Psync` drops its pool, which joins the workers, before its slots.
unsafe impl Send for Request {}

#[derive(Debug)]
struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
    /// What completions raise, once somebody has asked for it.
    signal: OnceLock<Signal>,
}

#[derive(Debug, Default)]
struct State {
    requests: VecDeque<Request>,
    finished: VecDeque<Finished>,
    stop: bool,
    /// What a device that panicked said; raised again on the engine's own thread.
    panic: Option<Box<dyn Any + Send>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No thread can panic while it holds the lock: it only moves plain values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Psync<Linux> {
    /// Opens the engine for `device`.
    ///
    /// # Errors
    /// [`EngineError`] where threads or buffers cannot be had.
    pub fn new(device: Arc<dyn Device>, config: &EngineConfig) -> Result<Self, EngineError> {
        Self::with_kernel(Linux, device, config)
    }
}

impl<K: Kernel + Send + Sync> Psync<K> {
    /// Opens the engine with the calls of `kernel`.
    ///
    /// # Errors
    /// As [`Psync::new`].
    pub fn with_kernel(
        kernel: K,
        device: Arc<dyn Device>,
        config: &EngineConfig,
    ) -> Result<Self, EngineError> {
        let slots = Slots::new(NAME, device, config)?;
        let wanted = match slots.device.performs() {
            Some(_) => 1,
            None => config.depth.saturating_mul(slots.usual_parts()),
        };
        let threads = wanted.min(MOST_WORKERS.max(config.depth));
        let pool = if threads > 1 { Some(Pool::start(&kernel, &slots.device, threads)?) } else { None };
        Ok(Self { pool, kernel, slots, queued: Vec::new(), finished: VecDeque::new() })
    }

    fn queue(&mut self, part: Part) {
        let buffer = self.slots.address(&part);
        self.queued.push(Request { part, buffer });
    }

    /// Whether all there is to do is one call at depth 1, which needs no worker.
    fn is_alone(&self) -> bool {
        self.slots.depth() == 1 && self.slots.outstanding() == 1 && self.queued.len() == 1
    }
}

impl Pool {
    fn start<K: Kernel + Send + Sync>(
        kernel: &K,
        device: &Arc<dyn Device>,
        threads: u32,
    ) -> Result<Self, EngineError> {
        let shared = Arc::new(Shared::default());
        let mut pool = Self { shared, workers: Vec::with_capacity(threads as usize) };
        for n in 0..threads {
            let (shared, device, kernel) = (Arc::clone(&pool.shared), Arc::clone(device), kernel.clone());
            let worker = std::thread::Builder::new()
                .name(format!("psync-{n}"))
                .stack_size(WORKER_STACK)
                .spawn(move || work(&shared, targets(&device), &kernel))
                .map_err(|source| EngineError { engine: NAME, operation: "start a thread", source })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // A worker that panicked has nothing more to say.
            let _ = worker.join();
        }
    }
}

/// A worker's life. Requests still queued when it is told to stop are dropped unmade.
fn work<K: Kernel>(shared: &Shared, members: &[Arc<dyn Device>], kernel: &K) {
    let mut state = shared.lock();
    loop {
        if state.stop {
            return;
        }
        let Some(request) = state.requests.pop_front() else {
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(state);
        // Without this, a device that panics would leave the engine waiting for ever.
        let outcome = catch_unwind(AssertUnwindSafe(|| perform(kernel, members, request)));
        state = shared.lock();
        match outcome {
            Ok((result, error)) => state.finished.push_back((request.part.id, result, error)),
            Err(panic) => state.panic = Some(panic),
        }
        shared.done.notify_one();
        if let Some(signal) = shared.signal.get() {
            signal.raise();
        }
    }
}

/// Makes the call and returns bytes transferred, or `-errno` and perhaps the error.
fn perform<K: Kernel>(kernel: &K, members: &[Arc<dyn Device>], request: Request) -> (i64, Option<io::Error>) {
    let Request { part: Part { op, offset, length, member, .. }, buffer } = request;
    let device = &members[member as usize];
    if device.remote().is_some() || is_called(&**device) {
        return match perform_by_device(&**device, request) {
            Ok(bytes) => (bytes as i64, None),
            Err(error) => {
                let errno = errno_behind(&error);
                // What the kernel has no number for.
                let says_more = device.verifies() && errno == libc::EIO || device.performs().is_some();
                (-i64::from(errno), says_more.then_some(error))
            }
        };
    }
    let fd = device.fd().as_raw_fd();
    let result = match op {
        // SAFETY: the slot is in flight, and its length bytes from buffer on are this part's alone.
        Op::Read => errno_or_bytes(unsafe { kernel.pread(fd, buffer, length as usize, offset) }),
        // SAFETY: as above.
        Op::Write => errno_or_bytes(unsafe { kernel.pwrite(fd, buffer, length as usize, offset) }),
        Op::SyncData => errno_or_zero(kernel.fdatasync(fd)),
        Op::Sync => errno_or_zero(kernel.fsync(fd)),
        Op::Trim => errno_or_zero(device.discard(offset, u64::from(length))),
    };
    (result, None)
}

/// The same by the device's own calls, for an export of another host, which has no descriptor, and for a device that
/// verifies what it reads. Returns the bytes transferred.
fn perform_by_device(device: &dyn Device, request: Request) -> io::Result<usize> {
    let Request { part: Part { op, offset, length, .. }, buffer } = request;
    let inside = device.size().saturating_sub(offset).min(u64::from(length)) as usize;
    match op {
        Op::Read | Op::Write if inside == 0 => {}
        // SAFETY: the slot is in flight, and its length bytes from buffer on are this part's alone.
        Op::Read => device.read_at(unsafe { std::slice::from_raw_parts_mut(buffer, inside) }, offset)?,
        // SAFETY: as above.
        Op::Write => device.write_at(unsafe { std::slice::from_raw_parts(buffer, inside) }, offset)?,
        // Such a device has no times to be kept.
        Op::SyncData | Op::Sync => return device.sync_data().map(|()| 0),
        Op::Trim => return device.discard(offset, u64::from(length)).map(|()| 0),
    }
    Ok(inside)
}

/// The errno of an error, or of the first cause that has one.
fn errno_behind(error: &io::Error) -> i32 {
    let inner = |error: &io::Error| {
        let cause = error.get_ref()?.source()?.downcast_ref::<io::Error>()?;
        Some(cause.raw_os_error().unwrap_or_else(|| errno_of(cause)))
    };
    match (error.kind(), errno_of(error)) {
        (io::ErrorKind::Unsupported, libc::EIO) => libc::EOPNOTSUPP,
        (_, libc::EIO) => inner(error).unwrap_or(libc::EIO),
        (_, errno) => errno,
    }
}

impl<K: Kernel + Send + Sync> Engine for Psync<K> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn features(&self) -> Vec<String> {
        let threads = self.pool.as_ref().map(|pool| format!("{} threads", pool.workers.len()));
        threads.into_iter().chain(self.slots.page_feature()).collect()
    }

    answered_by_slots!();

    fn prepare(&mut self, slot: u32, op: Op, offset: u64, length: u32) {
        match self.slots.begin(slot, op, offset, length) {
            Begun::One(part) => self.queue(part),
            Begun::Several(ids) => {
                for id in ids {
                    let part = self.slots.part(id);
                    self.queue(part);
                }
            }
            Begun::Nowhere(id, result) => self.finished.push_back((id, result, None)),
        }
    }

    fn submit(&mut self, min_complete: u32, timeout: Option<Duration>) -> Result<(), EngineError> {
        let Some(pool) = self.pool.as_ref().filter(|_| !self.is_alone()) else {
            for request in self.queued.drain(..) {
                let (result, error) = perform(&self.kernel, self.slots.members(), request);
                self.finished.push_back((request.part.id, result, error));
            }
            return Ok(());
        };
        let ready = self.finished.len();
        let wanted = (self.slots.parts_of(min_complete) as usize).saturating_sub(ready);
        let deadline = timeout.map(|limit| Instant::now() + limit.min(LONGEST_WAIT));
        if let Some(signal) = pool.shared.signal.get() {
            // Before what is finished is fetched, so that what comes afterwards raises it again.
            signal.clear();
        }
        let mut state = pool.shared.lock();
        let added = self.queued.len();
        state.requests.extend(self.queued.drain(..));
        for _ in 0..added {
            pool.shared.work.notify_one();
        }
        while state.finished.len() < wanted && state.panic.is_none() {
            state = match deadline {
                None => pool.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    pool.shared.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        self.finished.append(&mut state.finished);
        let panic = state.panic.take();
        drop(state);
        panic.map_or(Ok(()), |panic| resume_unwind(panic))
    }

    /// An eventfd(2) that workers raise; none at depth 1, where `submit` makes the calls itself.
    fn completion_fd(&mut self) -> io::Result<Option<BorrowedFd<'_>>> {
        let Some(pool) = self.pool.as_ref().filter(|_| self.slots.depth() > 1) else { return Ok(None) };
        if pool.shared.signal.get().is_none() {
            let _ = pool.shared.signal.set(Signal::new()?);
        }
        Ok(pool.shared.signal.get().map(Signal::fd))
    }

    fn reap(&mut self, mut on_complete: impl FnMut(u32, Result<(), RequestFailure>)) -> u32 {
        let mut reaped = 0;
        // Each is struck off before the caller hears of it, should the caller's code panic.
        while let Some((id, result, error)) = self.finished.pop_front() {
            if let Some(error) = error {
                self.slots.explain(id, error);
            }
            match self.slots.finish(id, self.kernel.completed(result)) {
                Outcome::Done(slot) => on_complete(slot, Ok(())),
                Outcome::More => continue,
                Outcome::Failed(slot, failure) => on_complete(slot, Err(failure)),
                Outcome::Retry => {
                    let part = self.slots.part(id);
                    self.queue(part);
                    continue;
                }
            }
            reaped += 1;
        }
        reaped
    }
}
