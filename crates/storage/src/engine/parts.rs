//! The pieces of requests, where a device is made of several.
//!
//! A request to such a device is made in parts: one for each piece of it that lies on another member, and
//! for a flush one for each member. Each part is a claim to check of its own: its bytes are compared with
//! those asked for, and an `EINTR` or `EAGAIN` makes it, and it alone, once more. The request is over
//! when the last of its parts is; of several that failed, the one with the lowest offset is told. What
//! lies beyond the device's end is not asked of any member, since members may be longer than what of
//! them is used; the request is then short by as much. A request of which a piece cannot be is refused as a
//! whole, before any part of it is made.
//!
//! Slot n has the ids from n × `per_slot` on. Entries are written when a request begins and not moved.

use std::ops::Range;
use std::sync::Arc;

use super::slots::{MAX_RETRIES, is_transient};
use super::{MemberFailure, Op, RequestError};
use crate::device::{Device, Piece, Spread, WrongPiece, piece_of};

/// What goes to one descriptor: a request, or a part of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// By what its completion is told; the slot, where the device is not made of others.
    pub id: u32,
    /// Whose buffer it is.
    pub slot: u32,
    pub op: Op,
    /// Which of the device's descriptors.
    pub member: u32,
    /// Where on the member.
    pub offset: u64,
    pub length: u32,
    /// Where its bytes begin in the slot's buffer.
    pub start: u32,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    offset: u64,
    length: u32,
    start: u32,
    slot: u32,
    member: u16,
    retries: u16,
    op: Op,
}

/// What became of a part.
pub(super) enum PartOutcome {
    /// Others of its request are still under way.
    More,
    /// It is to be made again.
    Retry,
    /// It was the last one; of a request that failed, with the id of the part that is told, where one is at fault.
    Last(Result<(), (Option<(u32, MemberFailure)>, RequestError)>),
}

/// The parts of all slots.
#[derive(Debug)]
pub(super) struct Parts {
    spread: Arc<dyn Spread>,
    /// How many members there are.
    width: u32,
    /// Bytes of the whole device.
    size: u64,
    per_slot: u32,
    entries: Box<[Entry]>,
    requests: Box<[Request]>,
    /// Parts that began and are not over.
    outstanding: u32,
}

/// A slot's request.
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    remaining: u32,
    /// Bytes that its parts ask for together.
    covered: u32,
    /// Of those that failed the one with the lowest offset: its id, and the result.
    failed: Option<(u32, i64)>,
}

impl Parts {
    /// Room for the parts of `depth` requests of up to `slot_bytes`. None where they cannot be numbered.
    pub fn new(device: &dyn Device, spread: &Arc<dyn Spread>, depth: u32, slot_bytes: usize) -> Option<Self> {
        // A flush has a part for each member, whatever a transfer comes to.
        let width = u16::try_from(spread.members().len()).ok()?;
        let per_slot = u32::try_from(spread.most_pieces(slot_bytes as u64).max(u64::from(width))).ok()?;
        let entries = per_slot.checked_mul(depth)?;
        let idle = Entry { offset: 0, length: 0, start: 0, slot: 0, member: 0, retries: 0, op: Op::Read };
        Some(Self {
            spread: Arc::clone(spread),
            width: u32::from(width),
            size: device.size(),
            per_slot,
            entries: vec![idle; entries as usize].into_boxed_slice(),
            requests: vec![Request::default(); depth as usize].into_boxed_slice(),
            outstanding: 0,
        })
    }

    pub fn members(&self) -> &[Arc<dyn Device>] {
        self.spread.members()
    }

    /// Parts that began and are not over.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Into how many ids all slots come.
    pub fn ids(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The slot that a part belongs to.
    pub fn slot(&self, id: u32) -> u32 {
        self.entries[id as usize].slot
    }

    pub fn part(&self, id: u32) -> Part {
        let Entry { offset, length, start, slot, member, op, .. } = self.entries[id as usize];
        Part { id, slot, op, member: u32::from(member), offset, length, start }
    }

    /// The fewest parts that must come back before any one request is over.
    pub fn fewest_remaining(&self) -> u32 {
        self.requests.iter().map(|request| request.remaining).filter(|n| *n > 0).min().unwrap_or(0)
    }

    /// Cuts a request into its parts. None of them where it lies beyond the end.
    ///
    /// # Errors
    /// The first piece that cannot be. The request then has no part but the one by which it is [refused](Self::refuse).
    pub fn begin(&mut self, slot: u32, op: Op, offset: u64, length: u32) -> Result<Range<u32>, WrongPiece> {
        let first = slot * self.per_slot;
        let end = offset.saturating_add(u64::from(length));
        if matches!(op, Op::Read | Op::Write) && length > 0 && end <= self.size {
            // Nearly all requests lie on one member.
            let Piece { member, offset, length: run } =
                piece_of(&*self.spread, self.width, offset, u64::from(length))?;
            if run == u64::from(length) {
                let member = member as u16;
                self.entries[first as usize] =
                    Entry { offset, length, start: 0, slot, member, retries: 0, op };
                self.requests[slot as usize] = Request { remaining: 1, covered: length, failed: None };
                self.outstanding += 1;
                return Ok(first..first + 1);
            }
        }
        let (mut count, mut covered) = (0, 0);
        // The slot's own entries, so that nothing can run into the next one's.
        let entries = &mut self.entries[first as usize..(first + self.per_slot) as usize];
        // What does not fit was not foreseen by `most_pieces`.
        let wrong = |piece| WrongPiece { piece, offset, length: u64::from(length), members: self.width };
        let mut put = |piece: Piece, start: u64| {
            let Piece { member, offset, length } = piece;
            let entry = entries.get_mut(count as usize).ok_or(wrong(piece))?;
            let (length, start, member) = (length as u32, start as u32, member as u16);
            *entry = Entry { offset, length, start, slot, member, retries: 0, op };
            count += 1;
            Ok(())
        };
        match op {
            Op::Read | Op::Write => {
                let inside = end.min(self.size);
                let mut at = offset;
                while at < inside {
                    let piece = piece_of(&*self.spread, self.width, at, inside - at)?;
                    put(piece, at - offset)?;
                    at += piece.length;
                }
                covered = inside.saturating_sub(offset) as u32;
            }
            // A discard beyond the end is refused as a whole, as a single device refuses it.
            Op::Trim if end <= self.size => {
                for (member, part) in self.spread.extents(offset..end) {
                    let run = part.end.saturating_sub(part.start);
                    let piece = Piece { member, offset: part.start, length: run };
                    if member >= self.width || !(1..=u64::from(length)).contains(&run) {
                        return Err(wrong(piece));
                    }
                    put(piece, 0)?;
                }
                covered = length;
            }
            Op::Trim => {}
            Op::SyncData | Op::Sync => {
                for member in 0..self.width {
                    put(Piece { member, offset: 0, length: 0 }, 0)?;
                }
            }
        }
        if count == 0 {
            self.lone(slot, op, offset, covered);
            return Ok(first..first);
        }
        self.requests[slot as usize] = Request { remaining: count, covered, failed: None };
        self.outstanding += count;
        Ok(first..first + count)
    }

    /// Gives a request one part that goes to no member.
    fn lone(&mut self, slot: u32, op: Op, offset: u64, covered: u32) {
        let first = slot * self.per_slot;
        self.entries[first as usize] = Entry { offset, length: 0, start: 0, slot, member: 0, retries: 0, op };
        self.requests[slot as usize] = Request { remaining: 1, covered, failed: None };
        self.outstanding += 1;
    }

    /// The id under which a request is answered that is not made at all.
    pub fn refuse(&mut self, slot: u32, op: Op, offset: u64) -> u32 {
        self.lone(slot, op, offset, 0);
        slot * self.per_slot
    }

    /// The id under which a request without parts is answered, and the answer: nothing transferred, or
    /// refused.
    pub fn nowhere(&self, slot: u32) -> (u32, i64) {
        let id = slot * self.per_slot;
        let refused = self.entries[id as usize].op == Op::Trim;
        (id, if refused { -i64::from(libc::EINVAL) } else { 0 })
    }

    /// Judges a completion of a part of a request of `length` bytes: bytes transferred, or `-errno`.
    #[inline]
    pub fn finish(&mut self, id: u32, length: u32, result: i64) -> PartOutcome {
        let entry = &mut self.entries[id as usize];
        let request = &mut self.requests[entry.slot as usize];
        assert!(request.remaining > 0, "a completion arrived for part {id}, whose request is idle");
        let expected = match entry.op {
            Op::Read | Op::Write => i64::from(entry.length),
            Op::Trim | Op::SyncData | Op::Sync => 0,
        };
        if result != expected {
            if is_transient(result) && entry.retries < MAX_RETRIES {
                entry.retries += 1;
                return PartOutcome::Retry;
            }
            if request.failed.is_none_or(|(earlier, _)| id < earlier) {
                request.failed = Some((id, result));
            }
        }
        request.remaining -= 1;
        self.outstanding -= 1;
        if request.remaining > 0 {
            return PartOutcome::More;
        }
        let request = *request;
        if request.failed.is_none() && request.covered == length {
            return PartOutcome::Last(Ok(()));
        }
        PartOutcome::Last(Err(self.failure(request)))
    }

    /// What is to be said of a request that failed: of the member at fault, and why.
    #[cold]
    fn failure(&self, request: Request) -> (Option<(u32, MemberFailure)>, RequestError) {
        let Some((id, result)) = request.failed else {
            return (None, RequestError::Short { transferred: u64::from(request.covered) });
        };
        let part = self.part(id);
        let member = MemberFailure {
            device: self.members()[part.member as usize].spec().to_owned(),
            offset: part.offset,
            length: part.length,
        };
        // The bytes before the part at fault were transferred, as those of one short request are.
        let cause = RequestError::of(result, u64::from(part.start));
        (Some((id, member)), cause)
    }
}
