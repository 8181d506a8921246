//! Whole small files, read side by side.
//!
//! Whoever reads cold files one after another waits out the drive's latency for each, and the drive is idle while what
//! was read is digested and written. Here up to [`SLOTS`] reads are under way at once ([`storage::transfer`]), each into
//! an aligned buffer of its own, and are reported in the order in which they complete.
//!
//! A read asks for more than the file was said to have, so that one that has grown shows. It is gone on with until there
//! are as many bytes as were said, and what ends before that is an error, never an end of file. Each is behind
//! [`crate::fault`] when it is started.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use storage::transfer::{ALIGNMENT, Method, Op, Request, RequestError, Ticket, Transfer, TransferConfig};

use crate::fault::{Call, Verdict, before};

/// Reads at once.
pub const SLOTS: u32 = 32;
/// The same where each takes a thread, because io_uring is not to be had.
const THREADS: u32 = 8;
/// Bytes of a buffer.
const SLOT_BYTES: u32 = 128 << 10;

/// See the module's argument.
pub struct Reads {
    transfer: Transfer,
    idle: Vec<u32>,
    /// What is known of the read of each slot.
    asked: Vec<Asked>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    tag: usize,
    verdict: Verdict,
}

/// A completed read. Its slot is given back with [`Reads::release`].
pub struct Completion {
    /// What the caller calls it.
    pub tag: usize,
    /// Where the bytes are.
    pub slot: u32,
    /// How many there are: more than were said if the file has grown.
    pub result: Result<usize, RequestError>,
}

impl Reads {
    /// A window for one thread, by io_uring where it is to be had.
    pub fn new() -> io::Result<Self> {
        // A read has the I/O priority of the thread that starts it.
        let with = |method, slots| {
            Transfer::new(&TransferConfig { slots, slot_bytes: SLOT_BYTES, method, idle: false })
        };
        let transfer = with(Method::IoUring, SLOTS).or_else(|_| with(Method::Psync, THREADS))?;
        let slots = transfer.slots();
        Ok(Self { transfer, idle: (0..slots).rev().collect(), asked: vec![Asked::default(); slots as usize] })
    }

    /// Is a file of this size read here? An empty one needs no read.
    #[must_use]
    pub fn takes(bytes: u64) -> bool {
        bytes > 0 && bytes < u64::from(SLOT_BYTES)
    }

    /// Is there no room for another?
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.idle.is_empty()
    }

    /// Is there room for several, that they may be handed over together?
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.idle.len() >= self.asked.len() / 4
    }

    /// Starts to read a file that [`takes`](Self::takes) likes and there is room for; `direct` if it was opened so.
    pub fn start(&mut self, file: &Arc<OwnedFd>, bytes: u64, direct: bool, tag: usize) -> Result<(), Errno> {
        let verdict = before(Call::Read)?;
        let slot = self.idle.pop().expect("the caller has seen that there is room");
        let needed = u32::try_from(bytes).expect("it fits a slot");
        let alignment = if direct { ALIGNMENT as u32 } else { 1 };
        self.asked[slot as usize] = Asked { tag, verdict };
        self.transfer.start(&Request {
            file,
            op: Op::Read,
            slot,
            within: 0,
            offset: 0,
            length: (needed + 1).next_multiple_of(ALIGNMENT as u32),
            needed,
            alignment,
            most: verdict.short.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
        });
        Ok(())
    }

    /// Waits for a read to complete. None if none is under way.
    #[allow(clippy::should_implement_trait, reason = "it is no iterator: reads are asked for in between")]
    pub fn next(&mut self) -> io::Result<Option<Completion>> {
        // Reads that were started are submitted once no completion is left: many with one call.
        let completed = match self.transfer.take() {
            None => self.transfer.next()?,
            completed => completed,
        };
        let Some(done) = completed else { return Ok(None) };
        let Ticket::Slot(slot) = done.ticket else { unreachable!("nothing is synced here") };
        let Asked { tag, verdict } = self.asked[slot as usize];
        verdict.made();
        Ok(Some(Completion { tag, slot, result: done.result.map(|bytes| bytes as usize) }))
    }

    /// The buffer of a completed read.
    #[must_use]
    pub fn buffer(&self, slot: u32) -> &[u8] {
        self.transfer.buffer(slot)
    }

    /// Gives a slot back.
    pub fn release(&mut self, slot: u32) {
        self.idle.push(slot);
    }
}
