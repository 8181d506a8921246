//! The C library's asynchronous I/O, aio_read(3) and its family.
//!
//! The library makes each request by a plain call on a thread of its own, at most twenty of them in glibc. **Of one
//! descriptor it makes one request at a time, in order**: however deep the queue, a single file or drive is asked for one
//! request after another (glibc, `aio_misc.c`). Depth is real only over several descriptors: the members of a stripe, and
//! the engines of several threads, each of which has descriptors of its own. So it is in every program that uses the library,
//! fio's `posixaio` among them.
//!
//! Completions are looked for by aio_error(3), and waited for by aio_suspend(3). The control blocks and buffers belong to the
//! library until aio_return(3) has been called; dropping the engine waits for all of them.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::IoEngine;

use super::parts::Part;
use super::slots::{Begun, Outcome, Slots, answered_by_slots, check_local, discard};
use super::{Engine, EngineConfig, EngineError, LONGEST_WAIT, Op, RequestFailure};
use crate::device::Device;
use crate::kernel::{AioRequest, Kernel, Linux};

const NAME: &str = IoEngine::Posixaio.word();
/// How often in a row the library may take nothing, with nothing in flight, before that is an error. With a pause of 100 µs
/// after each, that is a second or two.
const MAX_REFUSALS: u32 = 10_000;
/// The most requests that one call waits for: the library keeps a record of each on the stack. The oldest come first, and
/// waiting for those ends, because the library always works on the oldest of a descriptor.
const MOST_AWAITED: usize = 64;

/// An engine over the C library's requests.
#[derive(Debug)]
pub struct Posixaio<K: Kernel = Linux> {
    kernel: K,
    slots: Slots,
    /// By member: the library keeps a queue for each number of a descriptor, which no other engine is to stand in.
    fds: Box<[OwnedFd]>,
    blocks: Blocks,
    /// Parts prepared and not yet taken, oldest first.
    queued: VecDeque<u32>,
    /// Parts that the library has, oldest first.
    under_way: Vec<u32>,
    /// What is over, waiting to be reaped.
    finished: VecDeque<(u32, i64)>,
}

/// One control block for each part that there can be; they do not move. The library writes to those that it has, so that they
/// are reached by pointers only.
struct Blocks(Box<[UnsafeCell<libc::aiocb>]>);

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} control blocks", self.0.len())
    }
}

fn blank() -> libc::aiocb {
    // SAFETY: the structure is made of integers and pointers, of which zero is a value.
    let mut blank: libc::aiocb = unsafe { std::mem::zeroed() };
    // Zero would be a signal.
    blank.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
    blank
}

impl Blocks {
    fn new(count: u32) -> Self {
        Self((0..count).map(|_| UnsafeCell::new(blank())).collect())
    }

    fn pointer(&self, id: u32) -> *mut libc::aiocb {
        self.0[id as usize].get()
    }
}

impl Posixaio<Linux> {
    /// Opens the engine for `device`.
    ///
    /// # Errors
    /// [`EngineError`] where buffers cannot be had.
    pub fn new(device: Arc<dyn Device>, config: &EngineConfig) -> Result<Self, EngineError> {
        Self::with_kernel(Linux, device, config)
    }
}

impl<K: Kernel> Posixaio<K> {
    /// Opens the engine; `kernel` may put other results in the place of the library's.
    ///
    /// # Errors
    /// As [`Posixaio::new`].
    pub fn with_kernel(
        kernel: K,
        device: Arc<dyn Device>,
        config: &EngineConfig,
    ) -> Result<Self, EngineError> {
        check_local(NAME, &device)?;
        let slots = Slots::new(NAME, device, config)?;
        let own = slots.members().iter().map(|member| member.fd().try_clone_to_owned());
        let fds = own.collect::<io::Result<_>>();
        let fds = fds.map_err(|source| EngineError { engine: NAME, operation: "dup", source })?;
        Ok(Self {
            kernel,
            fds,
            blocks: Blocks::new(slots.ids()),
            slots,
            queued: VecDeque::new(),
            under_way: Vec::new(),
            finished: VecDeque::new(),
        })
    }

    fn queue(&mut self, part: Part) {
        if part.op != Op::Trim {
            return self.queued.push_back(part.id);
        }
        // Accounted for first, so that a device that panics does not leave the slot in flight for ever.
        self.finished.push_back((part.id, -i64::from(libc::EIO)));
        let member = &*self.slots.members()[part.member as usize];
        let result = discard(member, part.offset, part.length);
        self.finished.back_mut().expect("just put there").1 = result;
    }

    /// Hands a request to the library.
    fn begin(&self, id: u32) -> io::Result<()> {
        let part = self.slots.part(id);
        let transfers = !part.op.is_sync();
        let fd = self.fds[part.member as usize].as_raw_fd();
        let address = self.slots.address(&part);
        let mut request = blank();
        request.aio_fildes = fd;
        if transfers {
            request.aio_buf = address.cast();
            request.aio_nbytes = part.length as usize;
            request.aio_offset = part.offset as libc::off_t;
        }
        let call = match part.op {
            Op::Read => AioRequest::Read,
            Op::Write => AioRequest::Write,
            Op::SyncData => AioRequest::SyncData,
            Op::Sync | Op::Trim => AioRequest::Sync,
        };
        let block = self.blocks.pointer(id);
        // SAFETY: the library does not have this block, for its id is not under way. It does not move and its slot is in flight,
        // so that block and buffer stay untouched until the result was fetched; `Drop` waits for that.
        unsafe {
            block.write(request);
            self.kernel.aio_begin(call, block)
        }
    }

    /// Hands over what is queued. What the library has no room for stays queued.
    fn hand_over(&mut self) -> Result<(), EngineError> {
        let mut refusals = 0;
        while let Some(&id) = self.queued.front() {
            match self.begin(id) {
                Ok(()) => {
                    self.queued.pop_front();
                    self.under_way.push(id);
                }
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                    self.slots.retries += 1;
                    if !self.under_way.is_empty() {
                        // A completion makes room.
                        return Ok(());
                    }
                    refusals += 1;
                    if refusals > MAX_REFUSALS {
                        return Err(EngineError { engine: NAME, operation: "aio_read", source: error });
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
                // The request is at fault: it is settled by itself, and the others go on.
                Err(error) => {
                    self.queued.pop_front();
                    let errno = error.raw_os_error().unwrap_or(libc::EIO);
                    self.finished.push_back((id, -i64::from(errno)));
                }
            }
        }
        Ok(())
    }

    /// Fetches the results of all that is over.
    fn collect(&mut self) {
        let Self { kernel, blocks, under_way, finished, .. } = self;
        // SAFETY: what is under way was handed over, and is struck off with its result.
        under_way.retain(|id| match unsafe { kernel.aio_result(blocks.pointer(*id)) } {
            None => true,
            Some(result) => {
                finished.push_back((*id, result));
                false
            }
        });
    }

    /// Waits until one of the oldest requests is over, `left` has passed, or a signal arrives; false in the last case.
    fn suspend(&mut self, left: Option<Duration>) -> Result<bool, EngineError> {
        let awaited = self.under_way.iter().take(MOST_AWAITED);
        let list: Vec<*const libc::aiocb> = awaited.map(|id| self.blocks.pointer(*id).cast_const()).collect();
        let time = left
            .map(|left| libc::timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the list has as many pointers as are announced, to blocks that the library has; it and the time live until
        // the call returns.
        let result = unsafe { self.kernel.aio_suspend(list.as_ptr(), list.len(), time) };
        let Err(error) = result else { return Ok(true) };
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Ok(true),
            Some(libc::EINTR) => Ok(false),
            _ => Err(EngineError { engine: NAME, operation: "aio_suspend", source: error }),
        }
    }

    /// Waits until the library has no request of ours. False where it no longer answers.
    fn drain(&mut self) -> bool {
        loop {
            self.collect();
            if self.under_way.is_empty() {
                return true;
            }
            if self.suspend(None).is_err() {
                return false;
            }
        }
    }
}

impl<K: Kernel> Engine for Posixaio<K> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn features(&self) -> Vec<String> {
        std::iter::once("the C library's threads".to_owned()).chain(self.slots.page_feature()).collect()
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
            Begun::Nowhere(id, result) => self.finished.push_back((id, result)),
        }
    }

    fn submit(&mut self, min_complete: u32, timeout: Option<Duration>) -> Result<(), EngineError> {
        let handed_over = self.hand_over();
        // Where the engine cannot go on, what it has done can still be reaped.
        let wanted = if handed_over.is_ok() { self.slots.parts_of(min_complete) as usize } else { 0 };
        let deadline = timeout.map(|limit| Instant::now() + limit.min(LONGEST_WAIT));
        loop {
            self.collect();
            if self.finished.len() >= wanted || self.under_way.is_empty() {
                return handed_over;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return handed_over;
            }
            if !self.suspend(left)? {
                self.collect();
                return handed_over;
            }
        }
    }

    fn reap(&mut self, mut on_complete: impl FnMut(u32, Result<(), RequestFailure>)) -> u32 {
        let mut reaped = 0;
        // As many as there are, for a discard that is made again comes back to this very list. Each is struck off before the
        // caller hears of it, should the caller's code panic.
        for _ in 0..self.finished.len() {
            let Some((id, result)) = self.finished.pop_front() else { break };
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

impl<K: Kernel> Drop for Posixaio<K> {
    fn drop(&mut self) {
        if !self.drain() {
            self.slots.leak();
            // The library may still write to them, and by the numbers of these, which nothing else may come to have.
            std::mem::forget(std::mem::take(&mut self.blocks.0));
            std::mem::forget(std::mem::take(&mut self.fds));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{OpenOptions, ScratchFile};

    /// The library would make the requests of all threads one after another, were they of one descriptor.
    #[test]
    fn engines_over_one_device_have_descriptors_of_their_own() {
        let file = ScratchFile::create(&std::env::temp_dir(), 1 << 20).expect("a scratch file");
        let device = file.open("scratch", &OpenOptions { direct: false, ..OpenOptions::writing() });
        let device: Arc<dyn Device> = device.expect("opens");
        let engines = [(), ()].map(|()| Posixaio::new(Arc::clone(&device), &EngineConfig::default()));
        let [first, second] = engines.map(|engine| engine.expect("opens"));
        assert_ne!(first.fds[0].as_raw_fd(), second.fds[0].as_raw_fd());
        assert_ne!(first.fds[0].as_raw_fd(), device.fd().as_raw_fd());
    }
}
