//! Driving the engine and the slow lane, and making replies of what they come back with.

use std::io;

use nbd::wire::ErrorCode;
use storage::engine::{Engine, Op};

use super::lane::{Answer, Job, Lane};
use super::output::Piece;
use super::{Conversation, Use, requests};
use crate::error::{Ending, code_of, code_of_cause};
use crate::reply::{self, Head};
use crate::terms::Kind;

impl<E: Engine> Conversation<'_, E> {
    /// Hands over what was prepared, and settles what has completed.
    pub(super) fn drive(&mut self) -> Result<bool, Ending> {
        while !self.syncs.is_empty() && !self.idle.is_empty() {
            if let (Some(id), Some(slot)) = (self.syncs.pop(), self.idle.pop()) {
                self.sync(id, slot);
            }
        }
        if !self.call_engine || self.engine.in_flight() == 0 {
            return Ok(false);
        }
        self.call_engine = false;
        self.engine.submit(0, None)?;
        let (uses, requests, completed, told) = (&self.uses, &self.requests, &mut self.completed, self.told);
        self.engine.reap(|slot, result| {
            let failure = result.err();
            if let Some(failure) = &failure {
                let (Use::Part { id, .. } | Use::Sync { id }) = uses[slot as usize] else { return };
                if let Some(pending) = requests.get(id) {
                    told(pending.kind.word(), pending.offset, pending.length, failure);
                }
            }
            completed.push((slot, failure.as_ref().map(|failure| code_of_cause(&failure.cause))));
        });
        let moved = !self.completed.is_empty();
        for at in 0..self.completed.len() {
            let (slot, failed) = self.completed[at];
            self.settle(slot, failed);
        }
        self.completed.clear();
        // More may have come with these; the engine is asked until it has nothing.
        self.call_engine |= moved;
        Ok(moved)
    }

    /// A slot's request is over.
    fn settle(&mut self, slot: u32, failed: Option<ErrorCode>) {
        match std::mem::replace(&mut self.uses[slot as usize], Use::Elsewhere) {
            Use::Elsewhere => unreachable!("slot {slot} was in flight for something"),
            Use::Sync { id } => {
                self.idle.push(slot);
                self.requests.fail(id, self.terms.flushes.ended(failed));
                self.finish(id);
            }
            Use::Part { id, start, length } => {
                if self.requests.part_over(id, failed) == requests::Part::Lost {
                    // The client is gone, or the request was given up.
                    self.idle.push(slot);
                    return;
                }
                match self.requests[id].kind {
                    Kind::Read => self.settle_read(id, slot, start, length, failed),
                    _ => self.settle_write(id, slot),
                }
            }
        }
    }

    fn settle_read(&mut self, id: usize, slot: u32, start: u32, length: u32, failed: Option<ErrorCode>) {
        let pending = &mut self.requests[id];
        let (cookie, offset, over) = (pending.cookie, pending.offset, pending.parts == 0);
        if failed.is_some() {
            self.idle.push(slot);
        } else if let Some(gathered) = &mut pending.gathered {
            let room = start as usize..(start + length) as usize;
            gathered[room].copy_from_slice(&self.engine.buffer(slot)[..length as usize]);
            self.idle.push(slot);
        } else {
            // One chunk of several, or the whole reply.
            let last = over && pending.failed.is_none();
            let head = if self.terms.structured {
                Head::data(cookie, offset + u64::from(start), length, last)
            } else {
                Head::simple(cookie, None)
            };
            self.reply(head);
            self.output.push(Piece::Slot { slot, length });
            if last {
                self.requests.forget(id);
                return;
            }
        }
        if over {
            self.finish(id);
        }
    }

    fn settle_write(&mut self, id: usize, slot: u32) {
        let pending = &self.requests[id];
        match (pending.parts, pending.failed, pending.fua) {
            (0, None, true) => self.sync(id, slot),
            (0, ..) => {
                self.idle.push(slot);
                self.finish(id);
            }
            _ => self.idle.push(slot),
        }
    }

    fn sync(&mut self, id: usize, slot: u32) {
        self.uses[slot as usize] = Use::Sync { id };
        self.engine.prepare(slot, Op::SyncData, 0, 0);
        self.call_engine = true;
    }

    pub(super) fn sync_later(&mut self, id: usize) {
        self.syncs.push(id);
    }

    pub(super) fn ask_lane(&mut self, id: usize, job: Job, offset: u64, length: u64) {
        if self.lane.is_none() {
            match Lane::start(self.engine.device()) {
                Ok(lane) => self.lane = Some(lane),
                Err(error) => return self.lane_failed(id, &error),
            }
        }
        if self.lane.as_ref().is_some_and(|lane| lane.ask(id, job, offset, length)) {
            self.requests.asked(id);
        } else {
            self.lane_failed(id, &out_of_order());
        }
    }

    pub(super) fn lane_failed(&mut self, id: usize, error: &io::Error) {
        let pending = &self.requests[id];
        (self.told)(pending.kind.word(), pending.offset, pending.length, error);
        self.requests.fail(id, Some(code_of(error)));
        self.finish(id);
    }

    /// Gives up what the lane was asked for and has not done.
    pub(super) fn abandon_lane(&self) {
        if let Some(lane) = &self.lane {
            lane.abandon();
        }
    }

    /// Gives up those of them that are hints.
    pub(super) fn abandon_hints(&self) {
        if let Some(lane) = &self.lane {
            lane.abandon_hints();
        }
    }

    pub(super) fn hear_lane(&mut self) -> bool {
        let mut moved = false;
        while let Some((id, answer)) = self.lane.as_ref().and_then(Lane::answer) {
            moved = true;
            self.requests.answered(id);
            self.settle_slow(id, answer);
        }
        moved
    }

    fn settle_slow(&mut self, id: usize, answer: Answer) {
        let pending = &self.requests[id];
        let (cookie, fua, kind) = (pending.cookie, pending.fua, pending.kind);
        match answer {
            // Asked for what is only done where it is fast, and it would not be: that is an answer and no failure.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.requests.fail(id, Some(ErrorCode::ENOTSUP));
                self.finish(id);
            }
            // It was given up, which nobody waits to hear.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.requests.fail(id, Some(ErrorCode::ESHUTDOWN));
                self.finish(id);
            }
            Err(error) => self.lane_failed(id, &error),
            Ok(stretches) if kind == Kind::BlockStatus => {
                let extents: Vec<(u32, u32)> = stretches.iter().map(reply::extent).collect();
                let context = self.terms.allocation.unwrap_or_default();
                self.output.push(Piece::Owned(reply::block_status(cookie, context, &extents)));
                self.requests.forget(id);
            }
            Ok(_) if fua => self.sync_later(id),
            Ok(_) => self.finish(id),
        }
    }
}

/// The device panicked.
pub(super) fn out_of_order() -> io::Error {
    io::Error::other("the device is out of order")
}
