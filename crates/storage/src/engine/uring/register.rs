//! What is registered with the ring, and given back: files, buffers and the ring itself. Each is a help; a condition are
//! descriptors by which devices are claimed, and those alone. What could not be had is told by the engine's features.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use super::form::Form;
use super::{EngineError, IoUring};
use crate::device::sys::Signal;
use crate::kernel::Kernel;
use crate::uring_abi::{self as abi, RsrcUpdate};

/// The kernel registers no buffer above 1 GiB (`rsrc.c`), so a larger arena is registered in parts.
pub(super) const MAX_REGISTERED: usize = 1 << 30;

impl<K: Kernel, F: Form> IoUring<K, F> {
    /// Registers the descriptors of the device or of its members, which saves their look-up and a reference count, and
    /// behind them those by which the devices are [claimed](crate::device::Device::claim).
    ///
    /// A request holds the descriptor that it is made on. A command is made on a character device, and a process that is
    /// killed leaves it to the drive: without a reference of the ring's, which goes with the last of its requests, the
    /// kernel would give the claim away while the drive still writes.
    ///
    /// # Errors
    /// The kernel's, where there is a claim to be held.
    pub(super) fn register_files(&mut self) -> Result<(), EngineError> {
        let claims: Vec<RawFd> =
            self.slots.members().iter().filter_map(|member| Some(member.claim()?.as_raw_fd())).collect();
        let files = [&*self.fds, claims.as_slice()].concat();
        // SAFETY: REGISTER_FILES takes an array of i32 descriptors, and `files` is one, of that length.
        let result = unsafe {
            self.kernel.io_uring_register(
                self.ring.fd.as_raw_fd(),
                abi::REGISTER_FILES,
                files.as_ptr().cast(),
                files.len() as u32,
            )
        };
        if let Err(source) = &result
            && !claims.is_empty()
        {
            let source = io::Error::new(source.kind(), format!("the claim cannot be held: {source}"));
            return Err(EngineError { engine: F::NAME, operation: "register files", source });
        }
        self.fixed_files = result.is_ok();
        let word = if self.fixed_files { "registered" } else { "plain" };
        self.features.push(match self.fds.len() {
            1 => format!("{word} file"),
            files => format!("{files} {word} files"),
        });
        Ok(())
    }

    /// Registers the arena in parts that hold whole slots. Without enough lockable memory the engine
    /// goes on unregistered.
    pub(super) fn register_buffers(&mut self) {
        let arena = self.slots.arena();
        let per_buffer = (F::REGISTERED_BYTES / arena.stride()).max(1).min(arena.slots() as usize) as u32;
        if arena.stride() > MAX_REGISTERED {
            self.features.push("plain buffers (a slot exceeds 1 GiB)".into());
            return;
        }
        let parts: Vec<libc::iovec> = (0..arena.slots())
            .step_by(per_buffer as usize)
            .map(|first| arena.span(first, per_buffer.min(arena.slots() - first)))
            .collect();
        // SAFETY: the iovecs describe the arena, which stays mapped until the ring is closed: `Drop`
        // drains the ring first and leaks the arena where it cannot.
        let result = unsafe {
            self.kernel.io_uring_register(
                self.ring.fd.as_raw_fd(),
                abi::REGISTER_BUFFERS,
                parts.as_ptr().cast(),
                parts.len() as u32,
            )
        };
        match result {
            Ok(_) => {
                self.slots_per_buffer = per_buffer;
                self.features.push("fixed buffers".into());
            }
            Err(error) => self.features.push(format!("plain buffers (registration: {error})")),
        }
    }

    /// Goes on with plain buffers where the driver does not take the registered ones. No request is under way.
    pub(super) fn give_buffers_back(&mut self) {
        let fd = self.ring.fd.as_raw_fd();
        // SAFETY: UNREGISTER_BUFFERS takes no argument, and no request is under way that uses them.
        let _ = unsafe { self.kernel.io_uring_register(fd, abi::UNREGISTER_BUFFERS, std::ptr::null(), 0) };
        self.slots_per_buffer = 0;
        self.features.retain(|feature| feature != "fixed buffers");
        self.features.push("plain buffers (the driver takes no registered ones of this size)".into());
    }

    /// Registers the ring's own descriptor with this thread (5.18), which saves its look-up.
    pub(super) fn register_ring(&mut self) {
        let mut update = RsrcUpdate { offset: u32::MAX, reserved: 0, data: self.ring.fd.as_raw_fd() as u64 };
        // SAFETY: REGISTER_RING_FDS takes an array of io_uring_rsrc_update and writes the index back;
        // one is passed, mutable.
        let result = unsafe {
            self.kernel.io_uring_register(
                self.ring.fd.as_raw_fd(),
                abi::REGISTER_RING_FDS,
                (&raw mut update).cast_const().cast(),
                1,
            )
        };
        if matches!(result, Ok(1)) {
            self.enter_fd = update.offset as RawFd;
            self.enter_flags = abi::ENTER_REGISTERED_RING;
            self.features.push("registered ring".into());
        }
    }

    /// Has the kernel raise an eventfd(2) at each completion from now on.
    pub(super) fn register_signal(&mut self) -> io::Result<Signal> {
        let signal = Signal::new()?;
        let fd = signal.fd().as_raw_fd();
        // SAFETY: REGISTER_EVENTFD takes one descriptor, and one is passed; the kernel keeps a reference of its own.
        unsafe {
            self.kernel.io_uring_register(
                self.ring.fd.as_raw_fd(),
                abi::REGISTER_EVENTFD,
                (&raw const fd).cast(),
                1,
            )?;
        }
        // What was done before is not told of again, and some of it may wait to be run.
        if self.under_way() > 0 && (self.enter(0, 0, None).is_err() || self.ready() > 0) {
            signal.raise();
        }
        Ok(signal)
    }

    /// Gives back what was registered, at once and not when the ring's last reference is gone.
    pub(super) fn unregister(&mut self, drained: bool) {
        let fd = self.ring.fd.as_raw_fd();
        if drained && self.slots_per_buffer > 0 {
            // SAFETY: UNREGISTER_BUFFERS takes no argument. No request is under way that uses them.
            let _ =
                unsafe { self.kernel.io_uring_register(fd, abi::UNREGISTER_BUFFERS, std::ptr::null(), 0) };
        }
        if drained && self.fixed_files {
            // The kernel frees a closed ring later, on a busy machine by tens of milliseconds. Until then a drive would be in use:
            // neither this process nor mkfs(8) could have it for itself.
            // SAFETY: UNREGISTER_FILES takes no argument. No request is under way that uses them.
            let _ = unsafe { self.kernel.io_uring_register(fd, abi::UNREGISTER_FILES, std::ptr::null(), 0) };
        }
        if self.enter_flags & abi::ENTER_REGISTERED_RING != 0 {
            let update = RsrcUpdate { offset: self.enter_fd as u32, reserved: 0, data: 0 };
            // SAFETY: UNREGISTER_RING_FDS takes an array of io_uring_rsrc_update; one is passed. The engine
            // is not Send, so this is the thread that registered it.
            let _ = unsafe {
                self.kernel.io_uring_register(fd, abi::UNREGISTER_RING_FDS, (&raw const update).cast(), 1)
            };
        }
    }
}
