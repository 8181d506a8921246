//! Engines: how requests reach a device and how their completions come back.
//!
//! An engine owns `depth` slots, each with a buffer. The life of a request:
//!
//! 1. The caller picks an idle slot, fills its buffer if it writes, and calls [`Engine::prepare`].
//!    From here on the buffer is the kernel's; touching it panics.
//! 2. [`Engine::submit`] hands over everything prepared and waits for as many completions as asked,
//!    in one system call where the engine can.
//! 3. [`Engine::reap`] passes each finished slot back with its outcome. A transfer that is short is a
//!    failure. `EINTR` and `EAGAIN` are tried again a bounded number of times, and counted ([`Engine::retries`]).
//!
//! A request to a device that is made of others ([`crate::device::Spread`]) goes to its members in parts, and
//! comes back when all of them have. One engine serves all members.
//!
//! Invariant: a slot is in flight from `prepare` until `reap` has passed it back, and the arena
//! outlives the last request that the kernel has; dropping an engine waits for all of them, and where
//! that fails the buffers are leaked rather than unmapped under the kernel's hands. What was prepared and
//! has not reached the kernel by then is not made: a thread that unwinds writes nothing more.
//!
//! The trait is used through generics, so that a loop over one engine compiles to that engine's code.

mod auto;
mod copy;
mod libaio;
mod misfit;
mod mmap;
mod nbd;
mod parts;
mod posixaio;
mod psync;
mod slots;
pub(crate) mod uring;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

pub use base::IoEngine;

pub use auto::{AnyEngine, Fallback, availability, availability_with_kernel, open, open_with_kernel};
pub use copy::MemoryCopy;
pub use libaio::Libaio;
pub use misfit::Misfit;
pub use mmap::Mmap;
pub use nbd::Nbd;
pub use posixaio::Posixaio;
pub use psync::Psync;
pub use uring::IoUring;
pub use uring::commands::IoUringCmd;
pub use uring::protection::Protection;
pub use uring::writes::{Placement, WriteCommands};

pub use crate::nvme::{Tag, TagChecks, TagMismatch, Tags};

use crate::device::Device;
use crate::pages::PageChoice;
use crate::usage::IoPriority;

/// Longer time-outs are cut to this, 136 years: the kernel adds them to the clock, and 64 bits of
/// nanoseconds hold 292.
const LONGEST_WAIT: Duration = Duration::from_secs(u32::MAX as u64);

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Op {
    /// Read into the slot's buffer.
    Read,
    /// Write from the slot's buffer.
    Write,
    /// Give the range back to the medium. A synchronous call, but where several are ranges of one command.
    Trim,
    /// Make completed writes durable (fdatasync(2)).
    SyncData,
    /// Make completed writes durable, and the file's times with them (fsync(2)).
    Sync,
}

impl Op {
    /// The word used in messages.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::SyncData => "fdatasync",
            Self::Sync => "fsync",
        }
    }

    /// Whether it makes writes durable, and moves no data.
    #[must_use]
    #[inline]
    pub fn is_sync(self) -> bool {
        matches!(self, Self::SyncData | Self::Sync)
    }
}

/// How an engine is to be set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// Slots, which is the most requests in flight; 1 to 32768.
    pub depth: u32,
    /// Bytes that each slot's buffer holds.
    pub slot_bytes: usize,
    /// Poll the device for completions instead of taking interrupts (io_uring and io_uring_cmd only; the other
    /// engines take no notice of it).
    pub hipri: bool,
    /// Let a kernel thread submit (io_uring and io_uring_cmd only; the other engines take no notice of it).
    pub sqthread_poll: bool,
    /// The CPU that this thread is bound to.
    pub sqthread_poll_cpu: Option<u32>,
    /// Requests come in no order, so that nothing is to be read ahead (mmap only; others leave that to the descriptor).
    pub random: bool,
    /// Read from the medium, past the drive's cache (io_uring_cmd only).
    pub read_fua: bool,
    /// Have each write on the medium when it completes (io_uring_cmd only).
    pub write_fua: bool,
    /// Writes are atomic: none is torn by a loss of power, or refused (RWF_ATOMIC). Of io_uring and libaio; the other
    /// engines are not opened with it.
    pub atomic: bool,
    /// Which commands make writes (io_uring_cmd only).
    pub write_commands: WriteCommands,
    /// Writes are appended to the zone that they lie in, and must come to lie where they were asked to (io_uring_cmd only).
    pub appends: bool,
    /// How many discards are ranges of one command, at most; 1 where each is a call of the device's own (io_uring_cmd
    /// only).
    pub ranges_per_trim: u32,
    /// Where data are placed that are written; None where the drive decides (io_uring_cmd only).
    pub placement: Option<Placement>,
    /// What is made of the metadata of a namespace's blocks; None where they have none (io_uring_cmd only).
    pub protection: Option<Protection>,
    /// The pages that buffers lie in.
    pub pages: PageChoice,
}

impl EngineConfig {
    /// The flags of writes (linux/fs.h: RWF_ATOMIC, from Linux 6.11; older kernels refuse it).
    pub(crate) fn write_flags(&self) -> u32 {
        const RWF_ATOMIC: u32 = 0x40;
        if self.atomic { RWF_ATOMIC } else { 0 }
    }
}

/// Words for the record, of flags of writes as [`EngineConfig::write_flags`] has them.
fn write_features(flags: u32) -> impl Iterator<Item = String> {
    (flags != 0).then(|| "atomic writes".to_owned()).into_iter()
}

impl Default for EngineConfig {
    /// One request of 4 KiB at a time.
    fn default() -> Self {
        Self {
            depth: 1,
            slot_bytes: 4096,
            hipri: false,
            sqthread_poll: false,
            sqthread_poll_cpu: None,
            random: false,
            read_fua: false,
            write_fua: false,
            atomic: false,
            write_commands: WriteCommands::default(),
            appends: false,
            ranges_per_trim: 1,
            placement: None,
            protection: None,
            pages: PageChoice::Auto,
        }
    }
}

/// A request that failed: what was asked for, where, and why.
#[derive(Debug, thiserror::Error)]
#[error("{} of {length} bytes at offset {offset} of {device}{}", .op.word(), of_member(.member.as_ref()))]
pub struct RequestFailure {
    /// What it was to do.
    pub op: Op,
    /// The device's spec.
    pub device: String,
    /// Where, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    pub length: u32,
    /// The member at fault, where the device is made of others.
    pub member: Option<MemberFailure>,
    /// Why it failed.
    #[source]
    pub cause: RequestError,
}

/// The part of a request that failed, on the member that it went to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberFailure {
    /// The member's spec.
    pub device: String,
    /// Where on the member, in bytes.
    pub offset: u64,
    /// How much of it, in bytes.
    pub length: u32,
}

fn of_member(member: Option<&MemberFailure>) -> String {
    member.map_or_else(String::new, |m| {
        format!(", in its {} bytes at offset {} of {}", m.length, m.offset, m.device)
    })
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The kernel said so.
    #[error(transparent)]
    Os(#[from] std::io::Error),
    /// Fewer bytes were moved than asked for; 0 is the end of the device.
    #[error("only {transferred} bytes were transferred")]
    Short {
        /// Bytes that were moved.
        transferred: u64,
    },
}

impl RequestError {
    /// What `result`, an unexpected number of bytes or `-errno`, means for a request of which `before` bytes
    /// were transferred otherwise.
    fn of(result: i64, before: u64) -> Self {
        match u64::try_from(result) {
            Ok(transferred) => Self::Short { transferred: before + transferred },
            Err(_) => Self::Os(std::io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(0))),
        }
    }
}

/// An I/O error (EIO) in the words of who knows more of it: a drive's answer, for instance. It is within the error of
/// [`RequestError::Os`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct IoFailure(pub String);

impl IoFailure {
    fn error(words: impl Into<String>) -> std::io::Error {
        std::io::Error::other(Self(words.into()))
    }
}

impl RequestError {
    /// The number of the error: the kernel's, and EIO where the drive, or the check of what it has returned, says in words what is wrong.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        let Self::Os(error) = self else { return None };
        let told =
            || error.get_ref().is_some_and(|error| error.is::<IoFailure>() || error.is::<TagMismatch>());
        error.raw_os_error().or_else(|| told().then_some(libc::EIO))
    }
}

/// An engine that could not be set up or driven.
#[derive(Debug, thiserror::Error)]
#[error("{engine}: {operation}")]
pub struct EngineError {
    /// The engine's [name](Engine::name).
    pub engine: &'static str,
    /// The call that failed.
    pub operation: &'static str,
    /// Why.
    #[source]
    pub source: std::io::Error,
}

/// See the module's argument.
pub trait Engine {
    /// The word a user types ([`IoEngine`]); `memory` for plain copying.
    fn name(&self) -> &'static str;

    /// What is in use, for the record: `fixed buffers`, `huge pages`, ….
    fn features(&self) -> Vec<String>;

    /// The device it drives.
    fn device(&self) -> &Arc<dyn Device>;

    /// Number of slots.
    fn depth(&self) -> u32;

    /// Requests that were prepared and not yet reaped.
    fn in_flight(&self) -> u32;

    /// What the request in flight in a slot does, and where; None where the slot is idle, or the engine does not say.
    fn request(&self, _slot: u32) -> Option<(Op, u64)> {
        None
    }

    /// How often a request or a part of one, or a system call that hands requests over, was made again because the
    /// kernel answered EAGAIN, EBUSY or EINTR.
    fn retries(&self) -> u64 {
        0
    }

    /// The buffer of an idle slot.
    ///
    /// # Panics
    /// If the slot is in flight.
    fn buffer(&self, slot: u32) -> &[u8];

    /// The buffer of an idle slot, to fill.
    ///
    /// # Panics
    /// If the slot is in flight.
    fn buffer_mut(&mut self, slot: u32) -> &mut [u8];

    /// Gives the requests that are prepared in `slot` from now on a priority of their own; [`IoPriority::UNSET`] that of the
    /// thread. io_uring and libaio pass it on, the other engines take no notice of it.
    fn set_priority(&mut self, _slot: u32, _priority: IoPriority) {}

    /// Queues a request of `length` bytes at `offset` in `slot`. No system call is made, except that
    /// a [`Op::Trim`] may be carried out at once, which no engine makes asynchronously.
    ///
    /// # Panics
    /// If the slot is in flight, or its buffer is shorter than the data of a read or write.
    fn prepare(&mut self, slot: u32, op: Op, offset: u64, length: u32);

    /// Hands over all that is prepared, then waits until `min_complete` requests are done (at most as
    /// many as are in flight), a signal arrives, or `timeout` has passed. Requests that turn out to have
    /// to be made again, or that the kernel has no room for at present, are handed over by the next call;
    /// so a caller who needs `n` calls `submit` and `reap` until it has them.
    ///
    /// An engine that does its requests inside this call (psync at depth 1, memory) has no use for
    /// `timeout`.
    ///
    /// # Errors
    /// [`EngineError`] where the engine itself cannot go on; failed requests come out of `reap`. What was
    /// handed over before the error is still in flight.
    fn submit(&mut self, min_complete: u32, timeout: Option<Duration>) -> Result<(), EngineError>;

    /// What poll(2) finds readable once the kernel, or a thread, has finished a request, for callers that wait
    /// for other things as well; none where [`submit`](Self::submit) itself makes the requests, or where only
    /// `submit` can wait for them. It stays readable until `submit` has been called; what that fetched is to be
    /// reaped before polling again. Requests that have to be made again are not announced, so a caller with
    /// requests in flight calls `submit` once in a while.
    ///
    /// # Errors
    /// The kernel's, where the engine cannot be made to tell.
    fn completion_fd(&mut self) -> std::io::Result<Option<BorrowedFd<'_>>> {
        Ok(None)
    }

    /// Looks once more whether what was done can be trusted, for callers that are through with their requests.
    ///
    /// # Errors
    /// [`EngineError`] where requests may have been done that moved nothing: [`Mmap`] does not see at each of them that a
    /// file has been cut short.
    fn conclude(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Passes every finished slot to `on_complete` and makes it idle. Returns how many there were.
    fn reap(&mut self, on_complete: impl FnMut(u32, Result<(), RequestFailure>)) -> u32;
}
