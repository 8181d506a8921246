//! A file or block device mapped into memory: loads and stores in the place of read(2) and write(2).
//!
//! Requests are done inside [`submit`](Engine::submit), in order, on the caller's thread, whatever the depth. They go through the
//! page cache, also where the descriptor does not. A sync is msync(2), which writes what was stored; an fsync(2) follows where
//! the file's times are to be durable too. What a load or store cannot have is an error of its request and never a signal
//! ([`crate::mapping`]): a file that has been cut short gives what it still holds, like read(2) at its end.
//!
//! In the page in which a file that was cut short ends now, loads give zeros and stores are lost, and nothing says so. So the
//! file's length is looked at with each sync, which fails then, and at the end ([`Engine::conclude`]).

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use base::IoEngine;

use super::parts::Part;
use super::slots::{Begun, CONFIGURE, Outcome, Slots, answered_by_slots, check_local, discard};
use super::{Engine, EngineConfig, EngineError, IoFailure, Op, RequestFailure};
use crate::device::{Device, sys};
use crate::kernel::{Kernel, Linux};
use crate::mapping::{BusError, Mapping};

const NAME: &str = IoEngine::Mmap.word();
/// What an access that failed may mean, where the file is as long as it was.
const BUS_ERROR: &str = "SIGBUS: the medium failed, or there was no room for the page";

/// An engine of loads and stores.
#[derive(Debug)]
pub struct Mmap<K: Kernel = Linux> {
    kernel: K,
    slots: Slots,
    /// By member.
    mappings: Box<[Mapping]>,
    queued: Vec<u32>,
    finished: VecDeque<(u32, i64)>,
}

impl Mmap<Linux> {
    /// Maps `device`.
    ///
    /// # Errors
    /// [`EngineError`] where the device cannot be mapped, or buffers cannot be had.
    pub fn new(device: Arc<dyn Device>, config: &EngineConfig) -> Result<Self, EngineError> {
        Self::with_kernel(Linux, device, config)
    }
}

impl<K: Kernel> Mmap<K> {
    /// Maps `device`; `kernel` syncs, and may put other results in the place of those that requests have.
    ///
    /// # Errors
    /// As [`Mmap::new`].
    pub fn with_kernel(
        kernel: K,
        device: Arc<dyn Device>,
        config: &EngineConfig,
    ) -> Result<Self, EngineError> {
        check_local(NAME, &device)?;
        let slots = Slots::new(NAME, device, config)?;
        let map = |member: &Arc<dyn Device>| {
            let mapping =
                Mapping::new(member.fd(), member.size(), member.is_writable()).map_err(|source| {
                    let operation =
                        if source.raw_os_error() == Some(libc::ENODEV) { CONFIGURE } else { "mmap" };
                    EngineError { engine: NAME, operation, source }
                })?;
            let advised = mapping.advise(config.random);
            advised.map_err(|source| EngineError { engine: NAME, operation: "madvise", source })?;
            Ok(mapping)
        };
        let mappings = slots.members().iter().map(map).collect::<Result<_, _>>()?;
        Ok(Self { kernel, slots, mappings, queued: Vec::new(), finished: VecDeque::new() })
    }

    /// Does one part; bytes transferred, or `-errno`.
    fn perform(&mut self, id: u32) -> i64 {
        let part = self.slots.part(id);
        let device = Arc::clone(&self.slots.members()[part.member as usize]);
        match part.op {
            Op::Read => self.transfer(&*device, &part),
            Op::Write if !device.is_writable() => -i64::from(libc::EBADF),
            Op::Write => self.transfer(&*device, &part),
            Op::Trim => discard(&*device, part.offset, part.length),
            Op::SyncData | Op::Sync => {
                let Err(error) = self.sync(&*device, &part) else { return 0 };
                let errno = error.raw_os_error();
                if errno.is_none() {
                    self.slots.explain(id, error);
                }
                -i64::from(errno.unwrap_or(libc::EIO))
            }
        }
    }

    fn sync(&self, device: &dyn Device, part: &Part) -> io::Result<()> {
        self.mappings[part.member as usize].sync()?;
        check_length(device)?;
        if part.op == Op::Sync { self.kernel.fsync(device.fd().as_raw_fd()) } else { Ok(()) }
    }

    fn transfer(&mut self, device: &dyn Device, part: &Part) -> i64 {
        let bytes = device.size().saturating_sub(part.offset).min(u64::from(part.length)) as usize;
        if bytes == 0 {
            return 0;
        }
        let mapping = &self.mappings[part.member as usize];
        let buffer = self.slots.address(part);
        let offset = part.offset as usize;
        let result = if part.op == Op::Read {
            // SAFETY: the slot is in flight, so the part's length bytes of its buffer are the part's alone, and bytes ≤ length.
            mapping.load(device.fd(), offset, unsafe { std::slice::from_raw_parts_mut(buffer, bytes) })
        } else {
            // SAFETY: as above.
            mapping.store(device.fd(), offset, unsafe { std::slice::from_raw_parts(buffer, bytes) })
        };
        match result {
            Ok(()) => bytes as i64,
            Err(BusError) => self.what_is_left(device, part, bytes),
        }
    }

    /// The result of an access that failed: of a file that has been cut short, the bytes that it still holds there.
    #[cold]
    fn what_is_left(&mut self, device: &dyn Device, part: &Part, bytes: usize) -> i64 {
        let left = match sys::status(device.fd()) {
            Ok(status) if status.file_type() == libc::S_IFREG => status.size.saturating_sub(part.offset),
            _ => u64::MAX,
        };
        if left < bytes as u64 {
            return left as i64;
        }
        self.slots.explain(part.id, IoFailure::error(BUS_ERROR));
        -i64::from(libc::EIO)
    }
}

/// Fails where a file is shorter than what is mapped of it.
fn check_length(device: &dyn Device) -> io::Result<()> {
    let status = sys::status(device.fd())?;
    if status.file_type() != libc::S_IFREG || status.size >= device.size() {
        return Ok(());
    }
    let (now, mapped) = (status.size, device.size());
    Err(io::Error::other(format!("{}: was cut short to {now} of {mapped} bytes meanwhile", device.spec())))
}

impl<K: Kernel> Engine for Mmap<K> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn features(&self) -> Vec<String> {
        self.slots.page_feature().into_iter().collect()
    }

    answered_by_slots!();

    fn prepare(&mut self, slot: u32, op: Op, offset: u64, length: u32) {
        match self.slots.begin(slot, op, offset, length) {
            Begun::One(part) => self.queued.push(part.id),
            Begun::Several(ids) => self.queued.extend(ids),
            Begun::Nowhere(id, result) => self.finished.push_back((id, result)),
        }
    }

    fn submit(&mut self, _min_complete: u32, _timeout: Option<Duration>) -> Result<(), EngineError> {
        // Taken out first: a device that panics must not have its earlier requests made twice.
        let mut queued = std::mem::take(&mut self.queued);
        for id in queued.drain(..) {
            let result = self.perform(id);
            self.finished.push_back((id, result));
        }
        self.queued = queued;
        Ok(())
    }

    fn conclude(&mut self) -> Result<(), EngineError> {
        let cut = self.slots.members().iter().try_for_each(|member| check_length(&**member));
        cut.map_err(|source| EngineError { engine: NAME, operation: "look at the file's length", source })
    }

    fn reap(&mut self, mut on_complete: impl FnMut(u32, Result<(), RequestFailure>)) -> u32 {
        let mut reaped = 0;
        // Each is struck off before the caller hears of it, should the caller's code panic.
        while let Some((id, result)) = self.finished.pop_front() {
            match self.slots.finish(id, self.kernel.completed(result)) {
                Outcome::Done(slot) => on_complete(slot, Ok(())),
                Outcome::More => continue,
                Outcome::Failed(slot, failure) => on_complete(slot, Err(failure)),
                Outcome::Retry => {
                    self.queued.push(id);
                    continue;
                }
            }
            reaped += 1;
        }
        reaped
    }
}
