//! Taking in what the client sends, as far as there is room for it.

use std::io::{self, Read};

use nbd::wire::request::{self, Request};
use storage::device::ZeroOptions;
use storage::engine::{Engine, Op};

use super::lane::Job;
use super::requests::Pending;
use super::{BACKLOG, Conversation, DIRECT, EXTENTS, GATHERED, Intake, SLOT, Use};
use crate::error::Ending;
use crate::reply::Head;
use crate::terms::{Kind, droppable};

impl<E: Engine> Conversation<'_, E> {
    /// Whether there is room for more from the client.
    pub(super) fn has_room(&self) -> bool {
        let room = match self.intake {
            Intake::Write { slot: Some(_), .. } | Intake::Drop { .. } => true,
            Intake::Read { id, next: 0 } if self.requests.must_wait(id, self.output.owned(), GATHERED) => {
                false
            }
            _ => !self.idle.is_empty() && self.requests.len() < BACKLOG,
        };
        room && self.ending.is_none() && self.output.len() < BACKLOG
    }

    /// Takes in what the client has sent, as far as there is room.
    pub(super) fn take_in(&mut self) -> Result<bool, Ending> {
        let mut moved = false;
        while self.has_room() && (self.go_on_with_intake()? || self.next_request()? || self.receive()?) {
            moved = true;
        }
        Ok(moved)
    }

    /// Goes on with the request that is being taken in. False where nothing came of it.
    fn go_on_with_intake(&mut self) -> Result<bool, Ending> {
        match self.intake {
            Intake::Nothing => Ok(false),
            Intake::Read { id, next } => Ok(self.prepare_read(id, next)),
            Intake::Write { id, next, slot, filled } => Ok(self.take_payload(id, next, slot, filled)),
            Intake::Drop { left } => {
                let part = self.input.available().len().min(left);
                self.input.consume(part);
                self.intake = if part == left { Intake::Nothing } else { Intake::Drop { left: left - part } };
                Ok(part > 0 || left == 0)
            }
        }
    }

    /// Looks at the next request, if it has come as a whole.
    fn next_request(&mut self) -> Result<bool, Ending> {
        if !matches!(self.intake, Intake::Nothing) {
            return Ok(false);
        }
        let Some(head) = self.input.available().first_chunk::<{ request::BYTES }>() else { return Ok(false) };
        let request = match Request::parse(head) {
            Ok(request) => request,
            Err(error) => return Ok(self.end_by(error.into())),
        };
        self.input.consume(request::BYTES);
        match self.terms.judge(&request) {
            Ok(Kind::Disconnect) => self.ending = Some(Ending::Disconnected),
            Ok(kind) => self.begin(kind, &request),
            Err(code) => {
                if request.command == request::WRITE {
                    match droppable(request.length) {
                        Ok(left) => self.intake = Intake::Drop { left },
                        Err(ending) => return Ok(self.end_by(ending)),
                    }
                }
                let chunked = self.terms.is_chunked(request.command);
                self.reply(Head::refusal(chunked, request.cookie, code));
            }
        }
        Ok(true)
    }

    /// Takes in nothing more; what was asked before is answered.
    fn end_by(&mut self, ending: Ending) -> bool {
        self.ending = Some(ending);
        true
    }

    fn begin(&mut self, kind: Kind, request: &Request) {
        let Request { cookie, offset, length, flags, .. } = *request;
        let structured = self.terms.structured;
        let whole = kind == Kind::Read && (!structured || flags & request::FLAG_DF != 0) && length > SLOT;
        let fua =
            flags & request::FLAG_FUA != 0 && matches!(kind, Kind::Write | Kind::Trim | Kind::WriteZeroes);
        let gathered = whole.then(Vec::new);
        let id = self.requests.add(Pending {
            cookie,
            kind,
            offset,
            length,
            fua,
            parts: length.div_ceil(SLOT),
            failed: None,
            gathered,
        });
        let job = match kind {
            Kind::Read if length > 0 => return self.intake = Intake::Read { id, next: 0 },
            Kind::Write if length > 0 => {
                return self.intake = Intake::Write { id, next: 0, slot: None, filled: 0 };
            }
            Kind::Flush => return self.sync_later(id),
            Kind::Trim => Job::Trim,
            Kind::Cache => Job::Cache,
            Kind::WriteZeroes => Job::Zero(ZeroOptions {
                keep_space: flags & request::FLAG_NO_HOLE != 0,
                fast_only: flags & request::FLAG_FAST_ZERO != 0,
            }),
            Kind::BlockStatus if flags & request::FLAG_REQ_ONE != 0 => Job::Extents(1),
            Kind::BlockStatus => Job::Extents(EXTENTS),
            // Of no length: done.
            _ => return self.finish(id),
        };
        self.ask_lane(id, job, offset, u64::from(length));
    }

    /// Prepares the parts of a read, as far as there are slots and room to put them together.
    fn prepare_read(&mut self, id: usize, mut next: u32) -> bool {
        let (offset, length) = (self.requests[id].offset, self.requests[id].length);
        if next == 0 {
            self.requests.gather(id);
        }
        let begun = next;
        while next < length {
            let Some(slot) = self.idle.pop() else { break };
            let part = SLOT.min(length - next);
            self.prepare(slot, Op::Read, id, next, offset, part);
            next += part;
        }
        self.intake = if next == length { Intake::Nothing } else { Intake::Read { id, next } };
        next > begun
    }

    fn prepare(&mut self, slot: u32, op: Op, id: usize, start: u32, offset: u64, length: u32) {
        self.uses[slot as usize] = Use::Part { id, start, length };
        self.engine.prepare(slot, op, offset + u64::from(start), length);
        self.call_engine = true;
    }

    /// Moves what was received of a payload into slots, and prepares those that are full.
    pub(super) fn take_payload(&mut self, id: usize, next: u32, slot: Option<u32>, filled: u32) -> bool {
        let (offset, length) = (self.requests[id].offset, self.requests[id].length);
        let Some(slot) = slot.or_else(|| self.idle.pop()) else { return false };
        let start = next - filled;
        let size = SLOT.min(length - start);
        let here = self.input.available();
        let part = here.len().min((size - filled) as usize);
        let room = filled as usize..filled as usize + part;
        self.engine.buffer_mut(slot)[room].copy_from_slice(&here[..part]);
        self.input.consume(part);
        let moved = part > 0 || filled == size;
        self.filled(id, slot, next + part as u32, filled + part as u32, offset, length);
        moved
    }

    /// Takes note of a payload that was received up to `next`; a slot that is full, or has the end, is written.
    fn filled(&mut self, id: usize, slot: u32, next: u32, filled: u32, offset: u64, length: u32) {
        if next < length && filled < SLOT {
            self.intake = Intake::Write { id, next, slot: Some(slot), filled };
            return;
        }
        self.prepare(slot, Op::Write, id, next - filled, offset, filled);
        self.intake =
            if next == length { Intake::Nothing } else { Intake::Write { id, next, slot: None, filled: 0 } };
    }

    /// Fetches more of what the client sends: a large payload straight into its slot.
    fn receive(&mut self) -> Result<bool, Ending> {
        if !self.readable {
            return Ok(false);
        }
        let direct = match self.intake {
            Intake::Write { id, next, slot: Some(slot), filled } => {
                let length = self.requests[id].length;
                let size = SLOT.min(length - (next - filled));
                ((size - filled) as usize >= DIRECT).then_some((id, next, slot, filled, size, length))
            }
            _ => None,
        };
        let room = match direct {
            Some((_, _, slot, filled, size, _)) => {
                &mut self.engine.buffer_mut(slot)[filled as usize..size as usize]
            }
            None => self.input.room(),
        };
        let asked = room.len();
        let bytes = match self.link.stream.read(room) {
            Ok(0) => {
                self.ending = Some(Ending::Closed);
                self.abandon_hints();
                self.abandon_intake();
                return Ok(true);
            }
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                return Ok(false);
            }
            Err(error) => return Err(Ending::Io(error)),
        };
        self.link.works();
        // A plain socket that gave less than was asked for has no more; a record of TLS may be followed by another.
        self.readable = bytes == asked || !self.link.stream.is_plain();
        match direct {
            Some((id, next, slot, filled, _, length)) => {
                let offset = self.requests[id].offset;
                self.filled(id, slot, next + bytes as u32, filled + bytes as u32, offset, length);
            }
            None => self.input.received(bytes),
        }
        Ok(true)
    }

    /// Gives up a request whose payload will never come. Parts of it that were written stay written, which the
    /// client cannot have been told of.
    fn abandon_intake(&mut self) {
        if let Intake::Write { id, slot, .. } = std::mem::replace(&mut self.intake, Intake::Nothing) {
            self.idle.extend(slot);
            self.requests.forget(id);
        }
    }
}
