//! io_uring(7): one ring, one thread, one system call a batch.
//!
//! Set-up asks for everything that helps one thread with its own ring and drops what the kernel does
//! not know, newest first: `NO_SQARRAY` (6.6), `SINGLE_ISSUER` with `DEFER_TASKRUN` (6.1: completions
//! run when this thread asks for them, not by interrupting it), `COOP_TASKRUN` and `SUBMIT_ALL`. The
//! buffers, the files and the ring's own descriptor are registered, which saves a page walk and two
//! reference counts a request.
//!
//! A device that is made of others has its members' descriptors registered side by side, and each part of a
//! request names the one that it goes to. The ring has room for all parts that the slots can come to, up to
//! what a ring can have; what goes beyond waits in a backlog and goes in as soon as completions make room.
//!
//! Registration is a help and never a condition: locked memory may be short (RLIMIT_MEMLOCK), a thread
//! may have sixteen registered rings already, a filter may forbid the call. Requests then name plain
//! addresses and descriptors, and the features say so. What was registered is given back when the engine
//! is dropped, not when the kernel gets round to it: the ring registered with a thread would outlive its
//! descriptor, and with it the pages of the arena.
//!
//! What entries look like is the ring's [`Form`], known when it is compiled: plain requests, or commands to a driver.

pub(crate) mod commands;
#[cfg(test)]
mod controller;
mod enter;
mod form;
mod polling;
pub(crate) mod protection;
mod ranges;
mod register;
pub(crate) mod ring;
pub(crate) mod setup;
pub(crate) mod writes;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::form::{Asked, Form, Plain, Request};
use self::polling::check_pollable;
use self::ranges::Ranges;
use self::ring::Ring;
use self::setup::{not_set_up, setup, setup_features};
use super::parts::Part;
use super::slots::{Begun, Outcome, Slots, answered_by_slots, check_local, discard, errno_or_zero};
use super::{Engine, EngineConfig, EngineError, IoFailure, Misfit, Op, RequestFailure};
use crate::device::Device;
use crate::device::sys::Signal;
use crate::kernel::{Kernel, Linux};
use crate::uring_abi as abi;
use crate::usage::{IoPriority, Limit, raise_limit};

/// The most entries of a submission ring (`IORING_MAX_ENTRIES`).
const MAX_ENTRIES: u32 = 32_768;

/// What a part asks of its member.
#[inline(always)]
fn asked(part: &Part) -> Asked {
    let Part { op, member, offset, length, .. } = *part;
    Asked { op, member, offset, length }
}

/// An engine over one ring. See the module's argument.
#[derive(Debug)]
pub struct IoUring<K: Kernel = Linux, F: Form = Plain> {
    kernel: K,
    slots: Slots,
    form: F,
    ring: Ring<F::Sqe, F::Cqe>,
    /// What io_uring_enter(2) is given: the registered index, or the descriptor.
    enter_fd: RawFd,
    enter_flags: u32,
    sqthread_poll: bool,
    /// Completions are polled for: only reads and writes can be, and waits know no time-out.
    hipri: bool,
    /// io_uring_enter(2) takes a time-out (5.11).
    can_time_out: bool,
    /// Slots to a registered buffer; 0 where buffers are not registered.
    slots_per_buffer: u32,
    /// Descriptors of the device or of its members.
    fds: Box<[RawFd]>,
    fixed_files: bool,
    /// Local tail; the kernel sees it at `submit`.
    tail: u32,
    /// Entries that the kernel has taken; with a polling thread, entries it may see.
    submitted: u32,
    /// Completions that were reaped; the kernel sees it at the end of `reap`.
    head: u32,
    /// Since when the kernel takes no more entries, and at which one it stopped.
    stalled: Option<(Instant, u32)>,
    /// Results of calls that were made synchronously (discards), waiting to be reaped.
    immediate: Vec<(u32, i64)>,
    /// Parts for which the ring has no room yet, oldest first.
    backlog: VecDeque<u32>,
    /// Discards that share commands.
    ranges: Ranges,
    features: Vec<String>,
    /// Raised by the kernel at each completion, from when it was first asked for.
    signal: Option<Signal>,
}

impl IoUring<Linux> {
    /// Opens a ring for `device`.
    ///
    /// # Errors
    /// [`EngineError`]; `EPERM` where `kernel.io_uring_disabled` or seccomp forbids io_uring, `ENOSYS`
    /// on a kernel without it, `ENOMEM` where not even the ring fits into RLIMIT_MEMLOCK.
    pub fn new(device: Arc<dyn Device>, config: &EngineConfig) -> Result<Self, EngineError> {
        Self::with_kernel(Linux, device, config)
    }
}

impl<K: Kernel> IoUring<K, Plain> {
    /// Opens a ring through `kernel`.
    ///
    /// # Errors
    /// As [`IoUring::new`].
    pub fn with_kernel(
        kernel: K,
        device: Arc<dyn Device>,
        config: &EngineConfig,
    ) -> Result<Self, EngineError> {
        let plain = |_: &[Arc<dyn Device>]| Ok(Plain { write_flags: config.write_flags() });
        let mut engine = Self::open(kernel, device, config, plain)?;
        if config.hipri {
            engine.try_polling()?;
        }
        Ok(engine)
    }
}

impl<K: Kernel, F: Form> IoUring<K, F> {
    /// Opens a ring whose form `form` makes from the devices that requests go to.
    fn open(
        kernel: K,
        device: Arc<dyn Device>,
        config: &EngineConfig,
        form: impl FnOnce(&[Arc<dyn Device>]) -> Result<F, EngineError>,
    ) -> Result<Self, EngineError> {
        check_local(F::NAME, &device)?;
        let slots = Slots::new(F::NAME, device, config)?;
        let ranges = F::RANGES.min(config.ranges_per_trim);
        if ranges > 1 && slots.members().len() > 1 {
            let device = slots.device.spec().to_owned();
            return Err(Misfit::RangesOfSeveral { ranges, device }.of(F::NAME));
        }
        if config.hipri {
            check_pollable(F::NAME, &slots.device)?;
        }
        let form = form(slots.members())?;
        // The ring itself counts as locked memory (as before 5.12 and again in 6.18), and so do buffers.
        let _ = raise_limit(Limit::LockedMemory);
        let entries = u32::try_from(slots.most_parts()).unwrap_or(u32::MAX).min(MAX_ENTRIES);
        let fds = slots.members().iter().map(|member| member.fd().as_raw_fd()).collect();
        let (fd, params) =
            setup(&kernel, config, entries.next_power_of_two(), F::SETUP).map_err(|source| {
                let unbound = |config: &EngineConfig| {
                    setup(&kernel, config, entries.next_power_of_two(), F::SETUP).is_ok()
                };
                not_set_up(F::NAME, config, source, unbound)
            })?;
        let ring = Ring::map(fd, &params).map_err(|source| EngineError {
            engine: F::NAME,
            operation: "map the ring",
            source,
        })?;
        let mut engine = Self {
            enter_fd: ring.fd.as_raw_fd(),
            enter_flags: 0,
            sqthread_poll: config.sqthread_poll,
            hipri: config.hipri,
            can_time_out: params.features & abi::FEAT_EXT_ARG != 0 && !config.hipri,
            slots_per_buffer: 0,
            fds,
            fixed_files: false,
            tail: 0,
            submitted: 0,
            head: 0,
            stalled: None,
            immediate: Vec::new(),
            backlog: VecDeque::new(),
            ranges: Ranges::new(ranges),
            features: form.features(),
            signal: None,
            kernel,
            slots,
            form,
            ring,
        };
        engine.features.extend(setup_features(params.flags));
        engine.features.extend(engine.slots.page_feature());
        engine.register_files()?;
        engine.register_buffers();
        engine.register_ring();
        Ok(engine)
    }

    /// Puts a part into the submission ring, or into the backlog where that is full. Of a device that is not made
    /// of others this is what each request comes to, so it is part of the caller's loop.
    #[inline(always)]
    fn push(&mut self, part: Part) {
        if part.op == Op::Trim && self.ranges.most > 1 {
            return self.push_range(part);
        }
        // No ring takes another discard, and one that polls takes nothing that cannot be polled for.
        if part.op == Op::Trim || (self.hipri && part.op.is_sync()) {
            return self.make_now(part.id..part.id + 1);
        }
        let asked = asked(&part);
        if let Some(result) = self.form.settled(&asked) {
            self.immediate.push((part.id, result));
            return;
        }
        // Each entry has one completion, so what was put in and not yet reaped is this much.
        if self.tail.wrapping_sub(self.head) >= self.ring.entries() {
            self.backlog.push_back(part.id);
            return;
        }
        let entry = self.form.entry(&self.request(&part));
        self.ring.write_sqe(self.tail, entry);
        self.tail = self.tail.wrapping_add(1);
    }

    /// A part on its way into an entry.
    #[inline(always)]
    fn request(&self, part: &Part) -> Request {
        let is_registered = self.fixed_files;
        let fd = if is_registered { part.member as i32 } else { self.fds[part.member as usize] };
        // An arena that fits one registered buffer, the usual case, needs no division.
        let buffer = match self.slots_per_buffer {
            0 => None,
            per if per < self.slots.depth() => Some((part.slot / per) as u16),
            _ => Some(0),
        };
        let address = self.slots.address(part) as u64;
        let priority = self.slots.priority(part.slot).number();
        Request { id: part.id, asked: asked(part), fd, is_registered, address, buffer, priority }
    }

    /// [`Engine::prepare`] for a device that is made of others.
    #[inline(never)]
    fn prepare_parts(&mut self, slot: u32, op: Op, offset: u64, length: u32) {
        match self.slots.begin(slot, op, offset, length) {
            Begun::One(part) => self.push(part),
            Begun::Several(ids) => self.push_all(ids),
            Begun::Nowhere(id, result) => self.immediate.push((id, result)),
        }
    }

    /// What the completion of part `id` comes to: the slot that is over, and how. None where others of its parts
    /// are under way, or this one has to be made again, which is seen to.
    #[inline(never)]
    fn judge(&mut self, id: u32, result: i64) -> Option<(u32, Result<(), RequestFailure>)> {
        match self.slots.finish(id, result) {
            Outcome::Done(slot) => Some((slot, Ok(()))),
            Outcome::Failed(slot, failure) => Some((slot, Err(failure))),
            Outcome::More => None,
            Outcome::Retry => {
                self.push_again(id);
                None
            }
        }
    }

    /// Parts that have to be made again, or whose turn came late: where speed does not matter.
    #[cold]
    #[inline(never)]
    fn push_again(&mut self, id: u32) {
        let part = self.slots.part(id);
        self.push(part);
    }

    /// Puts the parts of one request into the ring, or makes them where it does not take such.
    #[inline(never)]
    fn push_all(&mut self, ids: Range<u32>) {
        if self.slots.part(ids.start).op == Op::Trim && self.ranges.most == 1 {
            return self.make_now(ids);
        }
        for id in ids {
            let part = self.slots.part(id);
            self.push(part);
        }
    }

    /// Moves what waited into the ring, as far as there is room.
    #[cold]
    fn push_backlog(&mut self) {
        while self.tail.wrapping_sub(self.head) < self.ring.entries() {
            let Some(id) = self.backlog.pop_front() else { return };
            self.push_again(id);
        }
    }

    /// Makes parts that the ring does not take.
    #[cold]
    fn make_now(&mut self, ids: Range<u32>) {
        // Accounted for first, so that a device that panics does not leave the slot in flight for ever, and
        // whoever drops the engine waiting for it.
        let first = self.immediate.len();
        self.immediate.extend(ids.map(|id| (id, -i64::from(libc::EIO))));
        for at in first..self.immediate.len() {
            let part = self.slots.part(self.immediate[at].0);
            let member = &*self.slots.members()[part.member as usize];
            self.immediate[at].1 = match part.op {
                Op::Trim => discard(member, part.offset, part.length),
                // Its descriptor takes commands only.
                _ if member.namespace().is_some() => errno_or_zero(member.sync_data()),
                _ => errno_or_zero(self.kernel.fdatasync(member.fd().as_raw_fd())),
            };
        }
    }

    /// Completions that have arrived and were not reaped.
    #[inline]
    fn ready(&self) -> u32 {
        self.ring.completed().wrapping_sub(self.head)
    }

    /// Entries that the kernel has, or has done and were not reaped.
    fn under_way(&self) -> u32 {
        self.in_ring() - self.tail.wrapping_sub(self.submitted)
    }

    /// Entries that are in the ring, or whose completions were not reaped: of parts, but for ranges that share a command, as
    /// many as there are.
    #[inline]
    fn in_ring(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }
}

impl<K: Kernel, F: Form> Engine for IoUring<K, F> {
    fn name(&self) -> &'static str {
        F::NAME
    }

    fn features(&self) -> Vec<String> {
        self.features.clone()
    }

    answered_by_slots!();

    fn set_priority(&mut self, slot: u32, priority: IoPriority) {
        self.slots.set_priority(slot, priority);
    }

    #[inline]
    fn prepare(&mut self, slot: u32, op: Op, offset: u64, length: u32) {
        if self.form.is_protected() && op == Op::Write {
            self.seal(slot, offset, length);
        }
        match self.slots.begin_one(slot, op, offset, length) {
            Some(part) => self.push(part),
            None => self.prepare_parts(slot, op, offset, length),
        }
    }

    #[inline]
    fn submit(&mut self, min_complete: u32, timeout: Option<Duration>) -> Result<(), EngineError> {
        if self.ranges.most > 1 {
            self.push_ranges();
        }
        self.ring.publish_tail(self.tail);
        if let Some(signal) = &self.signal {
            // Before the kernel is asked: what completes after this raises it again.
            signal.clear();
        }
        let ready = self.immediate.len() as u32;
        let parts = self.slots.parts_of(min_complete).saturating_sub(ready);
        let wanted = self.ranges.completions_of(parts).min(self.in_ring());
        let to_submit = if self.sqthread_poll {
            self.submitted = self.tail;
            // A polled submission needs a system call only to wake the thread or to wait.
            if self.ready() >= wanted && self.ring.sq_flags() & abi::SQ_NEED_WAKEUP == 0 {
                return Ok(());
            }
            0
        } else {
            self.tail.wrapping_sub(self.submitted)
        };
        if let Some(limit) = timeout
            && !self.can_time_out
        {
            return self.submit_and_look(to_submit, wanted, limit);
        }
        if self.enter(to_submit, wanted, timeout)? {
            return Ok(());
        }
        self.submit_rest(timeout)
    }

    /// An eventfd(2) that the kernel raises for each completion, also for one that runs only when this thread asks for
    /// it (io_uring_register(2), `IORING_REGISTER_EVENTFD`). The ring's own descriptor would not do: who sleeps in
    /// poll(2) on a ring with `IORING_SETUP_DEFER_TASKRUN` is not woken (seen on Linux 6.18), so that what a drive or
    /// a worker thread of the kernel finishes later is not heard of. None where completions are polled for.
    fn completion_fd(&mut self) -> io::Result<Option<BorrowedFd<'_>>> {
        if self.hipri {
            return Ok(None);
        }
        if self.signal.is_none() {
            self.signal = Some(self.register_signal()?);
        }
        Ok(self.signal.as_ref().map(Signal::fd))
    }

    #[inline]
    fn reap(&mut self, mut on_complete: impl FnMut(u32, Result<(), RequestFailure>)) -> u32 {
        let mut reaped = 0;
        let tail = self.ring.completed();
        let first = self.head;
        while self.head != tail {
            let cqe = self.ring.read_cqe(self.head);
            // Struck off before the caller hears of it, so that nothing is settled twice, and nothing lost,
            // should the caller's code panic.
            self.head = self.head.wrapping_add(1);
            let (id, result) = F::completion(&cqe);
            let (result, error) = match self.form.misplaced(&cqe, || asked(&self.slots.part(id))) {
                None => self.form.outcome(result, || asked(&self.slots.part(id))),
                Some(error) => (-i64::from(libc::EIO), Some(error)),
            };
            let others = self.ranges.ending_with(id);
            if let Some(error) = error {
                let again = |error: &io::Error| io::Error::new(error.kind(), IoFailure(error.to_string()));
                others.iter().for_each(|other| self.slots.explain(*other, again(&error)));
                self.slots.explain(id, error);
            }
            let result = self.kernel.completed(result);
            for other in others {
                if let Some((slot, result)) = self.judge(other, result) {
                    on_complete(slot, result);
                    reaped += 1;
                }
            }
            if self.slots.finish_one(id, result) {
                let result = if self.form.is_protected() { self.examine(id) } else { Ok(()) };
                on_complete(id, result);
            } else if let Some((slot, result)) = self.judge(id, result) {
                on_complete(slot, result);
            } else {
                continue;
            }
            reaped += 1;
        }
        if first != tail {
            self.ring.publish_head(tail);
        }
        // As many as there are: what has to be made again may come back to this very list, and with the same word.
        for _ in 0..self.immediate.len() {
            let Some((id, result)) = self.immediate.pop() else { break };
            let result = self.kernel.completed(result);
            let Some((slot, result)) = self.judge(id, result) else { continue };
            on_complete(slot, result);
            reaped += 1;
        }
        if !self.backlog.is_empty() {
            self.push_backlog();
        }
        reaped
    }
}

impl<K: Kernel, F: Form> Drop for IoUring<K, F> {
    fn drop(&mut self) {
        let drained = self.drain();
        self.unregister(drained);
        if !drained {
            self.form.leak();
            self.slots.leak();
        }
    }
}
