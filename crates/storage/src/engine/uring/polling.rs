//! Which devices completions can be polled for: known from the queue's settings where there are some, and from a
//! first read where the kernel alone knows.

use std::io;
use std::sync::Arc;

use super::IoUring;
use super::form::{Form, Plain};
use crate::device::{Device, DeviceKind, leaves, sys};
use crate::engine::slots::CONFIGURE;
use crate::engine::{Engine, EngineError, Op, RequestError, RequestFailure};
use crate::kernel::Kernel;
use crate::sysfs::{DeviceNumber, Sysfs};

impl<K: Kernel> IoUring<K, Plain> {
    /// Reads a block, so that a device that cannot be polled says so now and not at every request. (One
    /// that has no block there to read, as of a file's unwritten extent, passes; hence
    /// [`check_pollable`].)
    pub(super) fn try_polling(&mut self) -> Result<(), EngineError> {
        match self.first_read()?.map(|failure| failure.cause) {
            None => Ok(()),
            Some(RequestError::Os(error)) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                let reason = "its driver or file system does not support it";
                Err(cannot_poll(Plain::NAME, &*self.slots.device, reason))
            }
            // Whatever else is wrong is the first request's to report.
            Some(_) => Ok(()),
        }
    }
}

impl<K: Kernel, F: Form> IoUring<K, F> {
    /// Reads the first block; returns why that failed, if it did. Nothing is read where a slot has no room for a block.
    pub(super) fn first_read(&mut self) -> Result<Option<RequestFailure>, EngineError> {
        let block = self.slots.device.geometry().logical_block.max(1);
        if u64::from(block) > self.slots.device.size() || block as usize > self.slots.arena().slot_bytes() {
            return Ok(None);
        }
        self.prepare(0, Op::Read, 0, block);
        let mut failure = None;
        while self.in_flight() > 0 {
            self.submit(1, None)?;
            self.reap(|_, result| failure = result.err());
        }
        Ok(failure)
    }
}

/// Refuses to poll what is known not to be pollable.
pub(super) fn check_pollable(engine: &'static str, device: &Arc<dyn Device>) -> Result<(), EngineError> {
    leaves(device).iter().try_for_each(|member| check_pollable_alone(engine, &**member))
}

fn check_pollable_alone(engine: &'static str, device: &dyn Device) -> Result<(), EngineError> {
    if !device.is_direct() {
        return Err(cannot_poll(engine, device, "it is not open for direct I/O"));
    }
    let queue = match device.namespace() {
        Some(namespace) => namespace.twin.and_then(|twin| Sysfs::host().queue(twin)),
        None => sys::status(device.fd()).ok().and_then(|status| {
            let number = if device.kind() == DeviceKind::Block { status.special } else { status.device };
            Sysfs::host().queue(DeviceNumber::from(number))
        }),
    };
    match queue.and_then(|queue| queue.io_poll) {
        Some(false) => {
            Err(cannot_poll(engine, device, "queue/io_poll of its drive is 0, it has no polled queues"))
        }
        // Where there is no such queue, a first read will tell.
        Some(true) | None => Ok(()),
    }
}

/// The error of a device whose completions cannot be polled for.
fn cannot_poll(engine: &'static str, device: &dyn Device, reason: &str) -> EngineError {
    let message = format!("hipri=1 is not possible on {}: {reason}", device.spec());
    let source = io::Error::new(io::ErrorKind::Unsupported, message);
    EngineError { engine, operation: CONFIGURE, source }
}
