//! The way to the kernel for requests of a copy: [`storage::transfer`], with every request behind [`crate::fault`].
//!
//! A fault is asked for when a request is made. An error stands for the request's own; fewer bytes are what its first
//! attempt is cut to, so that the rest has to be asked for; a kill strikes before it is submitted or once it has completed.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use storage::transfer::{Done, Method, Op, Request, RequestError, Ticket, Transfer};

use super::side::Side;
use crate::fault::{Barrier, Call, Verdict, before, changed, durable, leaves_out_sync, synced};
use crate::uncached::refuses_direct;

/// How often in a row a request that is interrupted before it begins is made again.
const MOST_TRIES: u32 = 1000;

/// See the module's argument.
#[derive(Debug)]
pub(super) struct Port {
    transfer: Transfer,
    /// One for each slot, and the last for the sync.
    asked: Vec<Asked>,
    /// The file that is being synced.
    syncing: Option<Arc<OwnedFd>>,
}

/// What was known of a request when it was made.
#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    verdict: Verdict,
    direct: bool,
}

/// A completed request.
#[derive(Debug)]
pub(super) enum Completion {
    /// A slot's: whether it was direct, and the bytes moved or why not.
    Slot(u32, bool, Result<u32, RequestError>),
    /// The sync.
    Sync(Result<(), io::Error>),
}

impl Port {
    pub fn new(transfer: Transfer) -> Self {
        let asked = vec![Asked::default(); transfer.slots() as usize + 1];
        Self { transfer, asked, syncing: None }
    }

    pub fn method(&self) -> Method {
        self.transfer.method()
    }

    pub fn slots(&self) -> u32 {
        self.transfer.slots()
    }

    pub fn buffer(&self, slot: u32) -> &[u8] {
        self.transfer.buffer(slot)
    }

    pub fn buffer_mut(&mut self, slot: u32) -> &mut [u8] {
        self.transfer.buffer_mut(slot)
    }

    /// Starts a read or write of `range`, `within` its slot. Direct requests are rounded up to what they must be
    /// multiples of: a read then ends early at the file's end, and a write goes beyond it, with what the buffer has there.
    pub fn start(
        &mut self,
        side: &Side<'_>,
        op: Op,
        slot: u32,
        within: u32,
        range: &Range<u64>,
    ) -> Result<(), Errno> {
        let call = if op == Op::Write { Call::Write } else { Call::Read };
        if op == Op::Write {
            changed(side.fd());
        }
        let mut tries = 0;
        let verdict = loop {
            match before(call) {
                Err(Errno::INTR) if tries < MOST_TRIES => tries += 1,
                verdict => break verdict?,
            }
        };
        let bytes = u32::try_from(range.end - range.start).expect("a chunk fits its slot");
        let alignment = side.alignment();
        let length = bytes.next_multiple_of(alignment);
        self.asked[slot as usize] = Asked { verdict, direct: side.is_direct() };
        self.transfer.start(&Request {
            file: side.file(),
            op,
            slot,
            within,
            offset: range.start,
            length,
            needed: if op == Op::Write { length } else { bytes },
            alignment,
            most: verdict.short.map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
        });
        Ok(())
    }

    /// Starts an fdatasync(2), on the descriptor that has been open from the beginning, so that no error of write-back
    /// is missed. False where a plan has it left out and said to have been made.
    pub fn start_sync(&mut self, side: &Side<'_>) -> Result<bool, Errno> {
        let verdict = before(Call::Fdatasync).inspect_err(|_| synced(side.fd(), true))?;
        if verdict.skip || leaves_out_sync(Barrier::ChunkGroup, side.fd(), false) {
            synced(side.fd(), false);
            return Ok(false);
        }
        if let Some(last) = self.asked.last_mut() {
            *last = Asked { verdict, direct: false };
        }
        self.syncing = Some(Arc::clone(side.plain()));
        self.transfer.start_sync(side.plain());
        Ok(true)
    }

    /// What has completed by now, without waiting.
    pub fn poll(&mut self) -> io::Result<Option<Completion>> {
        let done = self.transfer.poll()?;
        Ok(done.map(|done| self.completion(done)))
    }

    /// Waits for a completion. None if nothing is under way.
    pub fn next(&mut self) -> io::Result<Option<Completion>> {
        let done = self.transfer.next()?;
        Ok(done.map(|done| self.completion(done)))
    }

    fn completion(&mut self, done: Done) -> Completion {
        match done.ticket {
            Ticket::Slot(slot) => {
                let Asked { verdict, direct } = self.asked[slot as usize];
                verdict.made();
                Completion::Slot(slot, direct, done.result)
            }
            Ticket::Sync => {
                self.asked.last().copied().unwrap_or_default().verdict.made();
                if let Some(file) = self.syncing.take() {
                    synced(file.as_fd(), done.result.is_err());
                    if done.result.is_ok() {
                        durable(file.as_fd(), false);
                    }
                }
                Completion::Sync(match done.result {
                    Ok(_) => Ok(()),
                    Err(RequestError::Os(error)) => Err(error),
                    Err(short @ RequestError::Short { .. }) => Err(io::Error::other(short)),
                })
            }
        }
    }

    /// Waits for all that is under way. What became of it does not matter any more, but for a sync that failed.
    pub fn drain(&mut self) -> io::Result<Option<io::Error>> {
        let mut lost = None;
        while let Some(completion) = self.next()? {
            if let Completion::Sync(Err(error)) = completion {
                lost = Some(error);
            }
        }
        Ok(lost)
    }
}

/// Is it the error of a file system that takes O_DIRECT and has no direct I/O for this request?
pub(super) fn is_refusal(error: &RequestError) -> bool {
    matches!(error, RequestError::Os(error) if refuses_direct(error))
}
