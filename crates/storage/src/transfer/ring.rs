//! Requests by io_uring(7): the ring that the engine uses ([`crate::engine::uring`]), with entries that each name a
//! file of their own. A slot is a registered buffer where locked memory allows it, and plain memory otherwise.
//!
//! There are never more entries than slots and one sync, for which the ring has room, so neither queue can overflow.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use super::Attempt;
use crate::arena::Arena;
use crate::engine::uring::ring::Ring as Shared;
use crate::engine::uring::setup::setup;
use crate::engine::{EngineConfig, Op};
use crate::kernel::Kernel;
use crate::uring_abi::{self as abi, Sqe};
use crate::usage::{Limit, raise_limit};

/// How long a submission that the kernel keeps refusing for lack of something that passes is tried.
const PATIENCE: Duration = Duration::from_secs(10);
/// The idle class of ioprio_set(2), as an entry carries it.
const IDLE: u16 = 3 << 13;

#[derive(Debug)]
pub(super) struct Ring<K: Kernel> {
    kernel: K,
    shared: Shared,
    /// Slot n is registered buffer n.
    fixed: bool,
    priority: u16,
    /// One past the last entry that was written.
    tail: u32,
    /// One past the last that the kernel has taken.
    submitted: u32,
    /// One past the last completion that was reaped; each entry has one.
    head: u32,
}

impl<K: Kernel> Ring<K> {
    /// A ring of this thread's, for requests that lie in `arena`.
    pub fn new(kernel: K, arena: &Arena, idle: bool) -> io::Result<Self> {
        // The ring itself counts as locked memory on some kernels, and so do buffers.
        let _ = raise_limit(Limit::LockedMemory);
        let entries = (arena.slots() + 1).next_power_of_two();
        let (fd, params) = setup(&kernel, &EngineConfig::default(), entries, 0)?;
        let shared = Shared::map(fd, &params)?;
        let slots: Vec<libc::iovec> = (0..arena.slots()).map(|slot| arena.span(slot, 1)).collect();
        // SAFETY: the iovecs describe slots of the arena, which stays mapped until the ring has been closed: `close`
        // waits for what is under way and unregisters, and the arena is leaked where it cannot.
        let fixed = unsafe {
            kernel.io_uring_register(
                shared.fd.as_raw_fd(),
                abi::REGISTER_BUFFERS,
                slots.as_ptr().cast(),
                slots.len() as u32,
            )
        };
        let priority = if idle { IDLE } else { 0 };
        Ok(Self { kernel, shared, fixed: fixed.is_ok(), priority, tail: 0, submitted: 0, head: 0 })
    }

    /// Writes an entry; the kernel sees it with the next [`exchange`](Self::exchange).
    pub fn push(&mut self, attempt: Attempt) {
        assert!(self.tail.wrapping_sub(self.head) < self.shared.entries(), "a slot has one entry");
        let (opcode, op_flags) = match (attempt.op, self.fixed) {
            (Op::Read, true) => (abi::OP_READ_FIXED, 0),
            (Op::Read, false) => (abi::OP_READ, 0),
            (Op::Write, true) => (abi::OP_WRITE_FIXED, 0),
            (Op::Write, false) => (abi::OP_WRITE, 0),
            (Op::Sync, _) => (abi::OP_FSYNC, 0),
            (Op::SyncData | Op::Trim, _) => (abi::OP_FSYNC, abi::FSYNC_DATASYNC),
        };
        let transfers = !attempt.op.is_sync();
        self.shared.write_sqe(
            self.tail,
            Sqe {
                opcode,
                flags: 0,
                ioprio: if transfers { self.priority } else { 0 },
                fd: attempt.fd,
                off: attempt.offset,
                addr: attempt.address as u64,
                len: attempt.length,
                op_flags,
                user_data: u64::from(attempt.id),
                buf_index: if transfers && self.fixed { attempt.id as u16 } else { 0 },
                personality: 0,
                file_index: 0,
                addr3: 0,
                reserved: 0,
            },
        );
        self.tail = self.tail.wrapping_add(1);
    }

    /// Submits everything, waits for a completion if asked to, and fetches those that are there.
    pub fn exchange(&mut self, wait: bool, results: &mut Vec<(u32, i64)>) -> io::Result<()> {
        self.shared.publish_tail(self.tail);
        let mut outcome = self.submit(u32::from(wait));
        if !wait && self.under_way() > 0 && self.ready() == 0 && outcome.is_ok() {
            // Completions may wait for this thread to run them.
            outcome = match self.enter(0, 0) {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => Err(error),
                _ => Ok(()),
            };
        }
        let tail = self.shared.completed();
        while self.head != tail {
            let cqe = self.shared.read_cqe(self.head);
            self.head = self.head.wrapping_add(1);
            results.push((cqe.user_data as u32, self.kernel.completed(i64::from(cqe.res))));
        }
        self.shared.publish_head(self.head);
        outcome
    }

    /// Has the kernel take all entries; returns early where completions are there to be fetched instead.
    fn submit(&mut self, wanted: u32) -> io::Result<()> {
        let mut since: Option<Instant> = None;
        loop {
            let rest = self.tail.wrapping_sub(self.submitted);
            let wanted = if self.ready() > 0 { 0 } else { wanted };
            if rest == 0 && wanted == 0 {
                return Ok(());
            }
            match self.enter(rest, wanted) {
                Ok(taken) => {
                    self.submitted = self.submitted.wrapping_add(taken);
                    if taken > 0 || rest == 0 {
                        since = None;
                        continue;
                    }
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::EAGAIN | libc::EBUSY) => {}
                    _ => return Err(error),
                },
            }
            // The kernel lacks something for the next entry. A completion may free it, and so may time.
            if self.ready() > 0 {
                return Ok(());
            }
            if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return Err(io::Error::from_raw_os_error(libc::EBUSY));
            }
            if self.under_way() > 0 {
                match self.enter(0, 1) {
                    Ok(_) if self.ready() > 0 => return Ok(()),
                    _ => {}
                }
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn enter(&mut self, to_submit: u32, wanted: u32) -> io::Result<u32> {
        let ring: RawFd = self.shared.fd.as_raw_fd();
        // SAFETY: every entry up to the tail names memory of a slot that is in flight, which nobody touches and which
        // stays mapped until its completion has been fetched. No argument is announced and none is passed.
        unsafe {
            self.kernel.io_uring_enter(ring, to_submit, wanted, abi::ENTER_GETEVENTS, std::ptr::null(), 0)
        }
    }

    /// Completions that have arrived and were not fetched.
    fn ready(&self) -> u32 {
        self.shared.completed().wrapping_sub(self.head)
    }

    /// Entries that the kernel has taken and that were not fetched.
    fn under_way(&self) -> u32 {
        self.submitted.wrapping_sub(self.head)
    }

    /// Waits for what the kernel has and gives the buffers back. What it has not taken is not made. False where the
    /// ring no longer answers, so that the kernel may still use the buffers.
    pub fn close(&mut self) -> bool {
        let mut since: Option<Instant> = None;
        while self.under_way() > 0 {
            let ready = self.ready();
            if ready > 0 {
                self.head = self.head.wrapping_add(ready);
                self.shared.publish_head(self.head);
                since = None;
                continue;
            }
            if self.enter(0, 1).is_err() && since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                return false;
            }
        }
        if self.fixed {
            let ring = self.shared.fd.as_raw_fd();
            // SAFETY: UNREGISTER_BUFFERS takes no argument, and no request is under way that uses them.
            let _ =
                unsafe { self.kernel.io_uring_register(ring, abi::UNREGISTER_BUFFERS, std::ptr::null(), 0) };
        }
        true
    }
}
