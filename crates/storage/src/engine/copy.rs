//! The engine of memory devices, and of those that are made of nothing else: a copy, without the kernel.
//!
//! Requests are done inside [`submit`](Engine::submit), in order. The device's bytes may be shared
//! with other threads and with the kernel; [`SharedMemory`](crate::memory::SharedMemory) says why
//! copying from and to them is sound.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::slots::{Begun, CONFIGURE, Outcome, Slots, answered_by_slots, discard};
use super::{Engine, EngineConfig, EngineError, Op, RequestFailure};
use crate::device::{Device, leaves};

const NAME: &str = "memory";

/// An engine that copies.
#[derive(Debug)]
pub struct MemoryCopy {
    slots: Slots,
    queued: Vec<u32>,
    finished: VecDeque<(u32, i64)>,
}

impl MemoryCopy {
    /// Opens the engine for a device that is memory.
    ///
    /// # Errors
    /// [`EngineError`] where the device is no memory, or buffers cannot be had.
    pub fn new(device: Arc<dyn Device>, config: &EngineConfig) -> Result<Self, EngineError> {
        if let Some(other) = leaves(&device).iter().find(|member| member.memory().is_none()) {
            let message = format!("{} is not memory", other.spec());
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, message);
            return Err(EngineError { engine: NAME, operation: CONFIGURE, source });
        }
        Ok(Self { slots: Slots::new(NAME, device, config)?, queued: Vec::new(), finished: VecDeque::new() })
    }
}

/// Does one part, of a member that is memory; bytes transferred, or `-errno`.
pub(super) fn perform(slots: &Slots, id: u32) -> i64 {
    let request = slots.part(id);
    let device = &slots.members()[request.member as usize];
    let memory = device.memory().expect("checked when the engine was opened");
    let left = device.size().saturating_sub(request.offset);
    let bytes = left.min(u64::from(request.length)) as usize;
    if bytes == 0 && matches!(request.op, Op::Read) {
        return 0;
    }
    let buffer = slots.address(&request);
    match request.op {
        Op::Read => {
            // SAFETY: the slot is in flight, so the part's length bytes of its buffer are the part's alone,
            // and bytes ≤ length.
            let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, bytes) };
            if memory.copy_out(request.offset, buffer).is_err() {
                return -i64::from(libc::EINVAL);
            }
        }
        Op::Write if !device.is_writable() => return -i64::from(libc::EBADF),
        Op::Write => {
            // SAFETY: as above.
            let buffer = unsafe { std::slice::from_raw_parts(buffer, bytes) };
            if memory.copy_in(request.offset, buffer).is_err() {
                return -i64::from(libc::EINVAL);
            }
        }
        Op::Trim => return discard(&**device, request.offset, request.length),
        Op::SyncData | Op::Sync => return 0,
    }
    bytes as i64
}

impl Engine for MemoryCopy {
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
            let result = perform(&self.slots, id);
            self.finished.push_back((id, result));
        }
        self.queued = queued;
        Ok(())
    }

    fn reap(&mut self, mut on_complete: impl FnMut(u32, Result<(), RequestFailure>)) -> u32 {
        let mut reaped = 0;
        // Each is struck off before the caller hears of it, should the caller's code panic.
        while let Some((id, result)) = self.finished.pop_front() {
            match self.slots.finish(id, result) {
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
