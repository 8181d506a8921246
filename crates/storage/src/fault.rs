//! Faults on demand, below the engines.
//!
//! [`Faulty`] is a [`Kernel`] that does what a plan says and otherwise calls Linux. What it can do is
//! what the kernel can do: refuse a call with an `errno`, cut a transfer or a list of requests short,
//! take its time, lack a feature, replace a completion's result. So every error path of an engine runs in
//! tests as it would in the field.
//!
//! It also keeps what an engine asked for at set-up and what Linux itself refused, so that a test can
//! tell a planned failure from one that the engine brought about.

use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::aio_abi::{IoEvent, Iocb};
use crate::kernel::{AioRequest, Kernel, Linux};
use crate::uring_abi::{self as abi, Params};

/// Where a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// io_uring_setup(2).
    UringSetup,
    /// io_uring_register(2).
    UringRegister,
    /// io_uring_enter(2).
    UringEnter,
    /// io_setup(2).
    IoSetup,
    /// io_destroy(2).
    IoDestroy,
    /// io_submit(2).
    IoSubmit,
    /// io_getevents(2).
    IoGetevents,
    /// pread(2).
    Pread,
    /// pwrite(2).
    Pwrite,
    /// fdatasync(2).
    Fdatasync,
    /// fsync(2).
    Fsync,
    /// aio_read(3), aio_write(3) or aio_fsync(3).
    AioBegin,
    /// aio_error(3): what is struck seems to be under way still.
    AioResult,
    /// aio_suspend(3).
    AioSuspend,
    /// The result of a request, as it comes out of a completion queue.
    Completion,
}

/// What happens there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The call fails with this `errno` and does nothing.
    Errno(i32),
    /// At most this many bytes are moved; of a list, at most this many requests or events are taken.
    Short(usize),
    /// The call is made this much later.
    Delay(Duration),
}

/// One planned fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Which call.
    pub call: Call,
    /// How many such calls go through first. Calls that an earlier fault of the plan struck do not count.
    pub after: u32,
    /// How many in a row are then struck.
    pub times: u32,
    /// How.
    pub effect: Effect,
}

/// A kernel with a plan. Clones share the plan.
#[derive(Debug, Clone, Default)]
pub struct Faulty {
    plan: Arc<Mutex<Plan>>,
}

#[derive(Debug, Default)]
struct Plan {
    faults: Vec<Fault>,
    fired: u32,
    features_lacking: u32,
    setup_flags: Vec<u32>,
    refusals: Vec<(Call, i32)>,
}

impl Faulty {
    /// A kernel that meets these faults.
    #[must_use]
    pub fn new(faults: impl IntoIterator<Item = Fault>) -> Self {
        let plan = Plan { faults: faults.into_iter().collect(), ..Plan::default() };
        Self { plan: Arc::new(Mutex::new(plan)) }
    }

    /// Hides these `IORING_FEAT_*` bits from io_uring_setup(2)'s answer, as an older kernel would.
    #[must_use]
    pub fn lacking_features(self, features: u32) -> Self {
        self.plan().features_lacking = features;
        self
    }

    /// How many faults have struck.
    #[must_use]
    pub fn fired(&self) -> u32 {
        self.plan().fired
    }

    /// The `IORING_SETUP_*` flags of each io_uring_setup(2), in order.
    #[must_use]
    pub fn setup_flags(&self) -> Vec<u32> {
        self.plan().setup_flags.clone()
    }

    /// The calls that Linux itself refused, and with which `errno`.
    #[must_use]
    pub fn refusals(&self) -> Vec<(Call, i32)> {
        self.plan().refusals.clone()
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a refusal of Linux's.
    fn noted<T>(&self, call: Call, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.plan().refusals.push((call, error.raw_os_error().unwrap_or(0)));
        }
        result
    }

    /// The effect on this call, if any; counts the call.
    fn strike(&self, call: Call) -> Option<Effect> {
        let mut plan = self.plan();
        let Plan { faults, fired, .. } = &mut *plan;
        for fault in faults.iter_mut().filter(|f| f.call == call && f.times > 0) {
            if fault.after > 0 {
                fault.after -= 1;
                continue;
            }
            fault.times -= 1;
            *fired += 1;
            return Some(fault.effect);
        }
        None
    }

    /// How much of `length` the call may do, an error, or a pause and all of it.
    fn limit(&self, call: Call, length: usize) -> io::Result<usize> {
        match self.strike(call) {
            Some(Effect::Errno(errno)) => Err(io::Error::from_raw_os_error(errno)),
            Some(Effect::Short(bytes)) => Ok(length.min(bytes)),
            Some(Effect::Delay(pause)) => {
                std::thread::sleep(pause);
                Ok(length)
            }
            None => Ok(length),
        }
    }

    /// The same for a call that cannot be done in part.
    fn check(&self, call: Call) -> io::Result<()> {
        self.limit(call, 0).map(drop)
    }
}

// SAFETY: every method either makes the call with the caller's arguments (or a shorter length), or
// makes none and returns an error; no byte is claimed that was not moved.
unsafe impl Kernel for Faulty {
    fn io_uring_setup(&self, entries: u32, params: &mut Params) -> io::Result<OwnedFd> {
        self.plan().setup_flags.push(params.flags);
        self.check(Call::UringSetup)?;
        let result = self.noted(Call::UringSetup, Linux.io_uring_setup(entries, params));
        params.features &= !self.plan().features_lacking;
        result
    }

    unsafe fn io_uring_register(
        &self,
        ring: RawFd,
        opcode: u32,
        arg: *const libc::c_void,
        count: u32,
    ) -> io::Result<u32> {
        self.check(Call::UringRegister)?;
        // SAFETY: the caller's promise, passed on.
        self.noted(Call::UringRegister, unsafe { Linux.io_uring_register(ring, opcode, arg, count) })
    }

    unsafe fn io_uring_enter(
        &self,
        ring: RawFd,
        to_submit: u32,
        min_complete: u32,
        flags: u32,
        arg: *const libc::c_void,
        arg_bytes: usize,
    ) -> io::Result<u32> {
        let taken = self.limit(Call::UringEnter, to_submit as usize)? as u32;
        // Where entries are left over, the kernel returns without waiting, and without running the work
        // that completions may need.
        let cut = taken < to_submit;
        let (min_complete, flags) =
            if cut { (0, flags & !abi::ENTER_GETEVENTS) } else { (min_complete, flags) };
        // SAFETY: the caller's promise, passed on; no more entries are taken.
        unsafe { Linux.io_uring_enter(ring, taken, min_complete, flags, arg, arg_bytes) }
    }

    fn io_setup(&self, events: u32) -> io::Result<u64> {
        self.check(Call::IoSetup)?;
        self.noted(Call::IoSetup, Linux.io_setup(events))
    }

    fn io_destroy(&self, context: u64) -> io::Result<()> {
        self.check(Call::IoDestroy)?;
        self.noted(Call::IoDestroy, Linux.io_destroy(context))
    }

    unsafe fn io_submit(&self, context: u64, count: usize, list: *mut *mut Iocb) -> io::Result<usize> {
        let count = self.limit(Call::IoSubmit, count)?;
        // SAFETY: the caller's promise, passed on; count is no larger.
        self.noted(Call::IoSubmit, unsafe { Linux.io_submit(context, count, list) })
    }

    unsafe fn io_getevents(
        &self,
        context: u64,
        min: usize,
        max: usize,
        events: *mut IoEvent,
        timeout: *mut libc::timespec,
    ) -> io::Result<usize> {
        let max = self.limit(Call::IoGetevents, max)?;
        // SAFETY: the caller's promise, passed on; max is no larger.
        self.noted(Call::IoGetevents, unsafe {
            Linux.io_getevents(context, min.min(max), max, events, timeout)
        })
    }

    unsafe fn pread(&self, fd: RawFd, buffer: *mut u8, length: usize, offset: u64) -> io::Result<usize> {
        let length = self.limit(Call::Pread, length)?;
        // SAFETY: the caller's promise, passed on; length is no larger.
        self.noted(Call::Pread, unsafe { Linux.pread(fd, buffer, length, offset) })
    }

    unsafe fn pwrite(&self, fd: RawFd, buffer: *const u8, length: usize, offset: u64) -> io::Result<usize> {
        let length = self.limit(Call::Pwrite, length)?;
        // SAFETY: the caller's promise, passed on; length is no larger.
        self.noted(Call::Pwrite, unsafe { Linux.pwrite(fd, buffer, length, offset) })
    }

    fn fdatasync(&self, fd: RawFd) -> io::Result<()> {
        self.check(Call::Fdatasync)?;
        self.noted(Call::Fdatasync, Linux.fdatasync(fd))
    }

    fn fsync(&self, fd: RawFd) -> io::Result<()> {
        self.check(Call::Fsync)?;
        self.noted(Call::Fsync, Linux.fsync(fd))
    }

    unsafe fn aio_begin(&self, request: AioRequest, block: *mut libc::aiocb) -> io::Result<()> {
        self.check(Call::AioBegin)?;
        // SAFETY: the caller's promise, passed on.
        self.noted(Call::AioBegin, unsafe { Linux.aio_begin(request, block) })
    }

    unsafe fn aio_result(&self, block: *mut libc::aiocb) -> Option<i64> {
        self.check(Call::AioResult).ok()?;
        // SAFETY: the caller's promise, passed on.
        unsafe { Linux.aio_result(block) }
    }

    unsafe fn aio_suspend(
        &self,
        list: *const *const libc::aiocb,
        count: usize,
        timeout: *const libc::timespec,
    ) -> io::Result<()> {
        self.check(Call::AioSuspend)?;
        // SAFETY: the caller's promise, passed on.
        unsafe { Linux.aio_suspend(list, count, timeout) }
    }

    fn completed(&self, result: i64) -> i64 {
        match self.strike(Call::Completion) {
            Some(Effect::Errno(errno)) => -i64::from(errno),
            Some(Effect::Short(bytes)) => result.min(bytes as i64),
            Some(Effect::Delay(pause)) => {
                std::thread::sleep(pause);
                result
            }
            None => result,
        }
    }
}
