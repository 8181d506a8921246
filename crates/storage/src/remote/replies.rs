//! What a server says on one connection, taken apart as it arrives.
//!
//! Bytes come in pieces of any length. Each call takes as much of what is there as can be understood: whole
//! headers, whole descriptions of errors, and any part of data. Data goes to its request's buffer, by a copy where
//! it was read along with headers, or straight from the socket where much of it is still to come
//! ([`Replies::direct`]). What the protocol does not allow ends the connection: an answer to nothing that was
//! asked on this connection, or to something not sent yet; the wrong kind of reply; bytes outside of what was asked,
//! or twice; an answer that is over before all bytes came. (NBD protocol, "Simple reply message", "Structured reply
//! chunk message", "Structured reply types".)

use nbd::wire::reply::{
    CHUNK_BYTES, CHUNK_MAGIC, ERROR_BIT, ERROR_OFFSET, ErrorCode, FLAG_DONE, NONE, OFFSET_DATA, OFFSET_HOLE,
    SIMPLE_BYTES, SIMPLE_MAGIC,
};

use super::table::{Command, Table};

/// The longest description of an error that is kept in hand: a string of the protocol has 4096 bytes at most.
pub(super) const LONGEST_ERROR: usize = 4096 + 64;

/// What a server said that the protocol does not allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolError {
    #[error("a reply begins with {0:#010x}, which is no reply's magic number")]
    Magic(u32),
    #[error("a reply has the cookie {0:#018x}, to which nothing is outstanding")]
    Cookie(u64),
    #[error("a simple reply to a read, after structured replies were agreed on")]
    SimpleRead,
    #[error("a structured reply, which was not agreed on")]
    Structured,
    #[error("a reply of type {0}, which is not known")]
    Type(u16),
    #[error("a reply of type {kind} with {length} bytes, which that type never has")]
    Length { kind: u16, length: u32 },
    #[error("data outside of what was asked for")]
    Range,
    #[error("the same data twice")]
    Twice,
    #[error("data in too many pieces")]
    Ranges,
    #[error("too many errors for one request")]
    Errors,
    #[error("a reply that is over before all of its data came")]
    Missing,
}

/// What stands at the beginning of what has not been taken yet.
#[derive(Debug, Clone, Copy)]
enum Next {
    Header,
    /// Data of a read, and whether its request is over with it.
    Data {
        place: u32,
        to: *mut u8,
        left: usize,
        done: bool,
    },
}

/// The state of one connection's incoming side.
#[derive(Debug)]
pub(crate) struct Replies {
    link: u32,
    structured: bool,
    next: Next,
    /// What the server last said about an error, for a person.
    pub said: String,
}

// SAFETY: the pointer is one of a request under way; see `table::Entry`.
unsafe impl Send for Replies {}

/// A request that is over: its place, and bytes transferred or `-errno`.
pub(crate) type Over = (u32, i64);

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

impl Replies {
    pub fn new(link: u32, structured: bool) -> Self {
        Self { link, structured, next: Next::Header, said: String::new() }
    }

    /// Where the next bytes from the socket belong, if they are all data of one read: address and length.
    #[inline]
    pub fn direct(&self) -> Option<(*mut u8, usize)> {
        match self.next {
            Next::Data { to, left, .. } => Some((to, left)),
            Next::Header => None,
        }
    }

    /// `count` bytes were put where [`direct`](Self::direct) said.
    #[inline]
    pub fn filled(
        &mut self,
        count: usize,
        table: &mut Table,
        over: &mut Vec<Over>,
    ) -> Result<(), ProtocolError> {
        let Next::Data { place, to, left, done } = &mut self.next else { return Ok(()) };
        debug_assert!(count <= *left, "no more than was asked for");
        *to = to.wrapping_add(count);
        *left -= count;
        if *left == 0 {
            let (place, done) = (*place, *done);
            self.next = Next::Header;
            if done {
                over.push((place, table.conclude(place)?));
            }
        }
        Ok(())
    }

    /// Takes what can be taken of `bytes`, where `sent` bytes of this connection were sent; returns how many, and
    /// puts what is over with them into `over`.
    #[inline]
    pub fn take(
        &mut self,
        bytes: &[u8],
        table: &mut Table,
        sent: u64,
        over: &mut Vec<Over>,
    ) -> Result<usize, ProtocolError> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            if let Next::Data { to, left, .. } = self.next {
                let count = left.min(rest.len());
                Table::fill(to, &rest[..count]);
                self.filled(count, table, over)?;
                at += count;
                if count < left {
                    return Ok(at);
                }
                continue;
            }
            if rest.len() < 4 {
                return Ok(at);
            }
            let taken = match be32(rest, 0) {
                SIMPLE_MAGIC if rest.len() < SIMPLE_BYTES => return Ok(at),
                CHUNK_MAGIC if rest.len() < CHUNK_BYTES => return Ok(at),
                SIMPLE_MAGIC => {
                    self.simple(rest, table, sent, over)?;
                    SIMPLE_BYTES
                }
                CHUNK_MAGIC => match self.chunk(rest, table, sent, over)? {
                    0 => return Ok(at),
                    taken => taken,
                },
                other => return Err(ProtocolError::Magic(other)),
            };
            at += taken;
        }
    }

    /// "Simple reply message": error, cookie, and the data of a read that succeeded.
    #[inline]
    fn simple(
        &mut self,
        bytes: &[u8],
        table: &mut Table,
        sent: u64,
        over: &mut Vec<Over>,
    ) -> Result<(), ProtocolError> {
        let (code, cookie) = (be32(bytes, 4), be64(bytes, 8));
        let place = table.place(cookie, self.link, sent)?;
        let call = table.get(place).call;
        let is_read = call.command == Command::Read;
        if is_read && self.structured {
            return Err(ProtocolError::SimpleRead);
        }
        if code != 0 {
            table.fail(place, ErrorCode(code).errno())?;
        } else if is_read {
            let to = table.claim(place, 0, call.length)?;
            self.next = Next::Data { place, to, left: call.length as usize, done: true };
            return Ok(());
        }
        over.push((place, table.conclude(place)?));
        Ok(())
    }

    /// "Structured reply chunk message". Returns bytes taken; none where more of them are needed first.
    fn chunk(
        &mut self,
        bytes: &[u8],
        table: &mut Table,
        sent: u64,
        over: &mut Vec<Over>,
    ) -> Result<usize, ProtocolError> {
        if !self.structured {
            return Err(ProtocolError::Structured);
        }
        let (flags, kind, cookie, length) = (be16(bytes, 4), be16(bytes, 6), be64(bytes, 8), be32(bytes, 16));
        let place = table.place(cookie, self.link, sent)?;
        let done = flags & FLAG_DONE != 0;
        let body = &bytes[CHUNK_BYTES..];
        let wrong = Err(ProtocolError::Length { kind, length });
        let taken = match kind {
            NONE if length == 0 && done => 0,
            NONE => return wrong,
            OFFSET_DATA if length < 9 => return wrong,
            OFFSET_DATA if body.len() < 8 => return Ok(0),
            OFFSET_DATA => {
                let data = length - 8;
                let at = relative(table, place, be64(body, 0))?;
                let to = table.claim(place, at, data)?;
                self.next = Next::Data { place, to, left: data as usize, done };
                return Ok(CHUNK_BYTES + 8);
            }
            OFFSET_HOLE if length != 12 => return wrong,
            OFFSET_HOLE if body.len() < 12 => return Ok(0),
            OFFSET_HOLE => {
                let at = relative(table, place, be64(body, 0))?;
                let hole = be32(body, 8);
                if hole == 0 {
                    return Err(ProtocolError::Range);
                }
                table.zero(place, at, hole)?;
                12
            }
            _ if kind & ERROR_BIT == 0 => return Err(ProtocolError::Type(kind)),
            _ if !(6..=LONGEST_ERROR as u32).contains(&length) => return wrong,
            _ if body.len() < length as usize => return Ok(0),
            _ => {
                self.error(kind, place, &body[..length as usize], table)?;
                length as usize
            }
        };
        if done {
            over.push((place, table.conclude(place)?));
        }
        Ok(CHUNK_BYTES + taken)
    }

    /// `NBD_REPLY_TYPE_ERROR` and `NBD_REPLY_TYPE_ERROR_OFFSET`; other types of error begin like them.
    #[cold]
    fn error(&mut self, kind: u16, place: u32, body: &[u8], table: &mut Table) -> Result<(), ProtocolError> {
        let (code, text) = (be32(body, 0), usize::from(be16(body, 4)));
        let wrong = || ProtocolError::Length { kind, length: body.len() as u32 };
        let message = body.get(6..6 + text).ok_or_else(wrong)?;
        if kind == ERROR_OFFSET {
            let at = body.get(6 + text..6 + text + 8).filter(|_| body.len() == 6 + text + 8);
            relative(table, place, be64(at.ok_or_else(wrong)?, 0))?;
        }
        self.said = String::from_utf8_lossy(message).escape_debug().to_string();
        // An error whose code says success is still an error.
        table.fail(place, if code == 0 { libc::EIO } else { ErrorCode(code).errno() })
    }
}

/// An offset of the export as one into the read's range.
fn relative(table: &Table, place: u32, offset: u64) -> Result<u32, ProtocolError> {
    let call = table.get(place).call;
    let at = offset.checked_sub(call.offset).filter(|at| *at < u64::from(call.length));
    at.map(|at| at as u32).ok_or(ProtocolError::Range)
}

#[cfg(test)]
mod tests {
    use super::super::table::Call;
    use super::*;
    use nbd::wire::reply::{data_head, error_with_message, hole, none};
    use proptest::prelude::*;

    const LENGTH: u32 = 40;

    /// A table with reads of `LENGTH` bytes under way on link 0, their buffers and cookies.
    fn asked(reads: u32) -> (Table, Vec<Vec<u8>>, Vec<u64>) {
        let mut buffers: Vec<Vec<u8>> = (0..reads).map(|_| vec![0xee; LENGTH as usize]).collect();
        let mut table = Table::new(reads);
        let cookies = (0..reads)
            .map(|place| {
                let buffer = buffers[place as usize].as_mut_ptr();
                let offset = u64::from(place * 1000);
                let call =
                    Call { id: place, host: 0, command: Command::Read, offset, length: LENGTH, buffer };
                table.begin(place, call, 0);
                table.renew(place)
            })
            .collect();
        (table, buffers, cookies)
    }

    #[test]
    fn an_answer_that_comes_twice_at_once_is_noticed() {
        let (mut table, _buffers, cookies) = asked(1);
        let error = error_with_message(cookies[0], ErrorCode::EIO, "");
        let fed = feed(&error.repeat(2), &[], &mut table);
        assert_eq!(fed, Err(ProtocolError::Cookie(cookies[0])));
    }

    /// Feeds `bytes` in pieces that end where `ends` says, as a connection does.
    fn feed(bytes: &[u8], ends: &[usize], table: &mut Table) -> Result<Vec<Over>, ProtocolError> {
        let (mut replies, mut over) = (Replies::new(0, true), Vec::new());
        let (mut held, mut begin) = (Vec::new(), 0);
        for end in ends.iter().copied().chain([bytes.len()]) {
            held.extend_from_slice(&bytes[begin..end.max(begin)]);
            begin = end.max(begin);
            let taken = replies.take(&held, table, 0, &mut over)?;
            held.drain(..taken);
            assert!(held.len() < LONGEST_ERROR + CHUNK_BYTES, "what is held never outgrows a header");
        }
        Ok(over)
    }

    /// Honest answers to three reads, one of them with an error, in between each other.
    fn honest(cookies: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(data_head(cookies[0], 20, 20, false));
        bytes.extend([1; 20]);
        bytes.extend(hole(cookies[1], 1000, 10, false));
        bytes.extend(data_head(cookies[0], 0, 20, false));
        bytes.extend([2; 20]);
        bytes.extend(error_with_message(cookies[2], ErrorCode::EIO, "bad sector"));
        bytes.extend(data_head(cookies[1], 1010, 30, true));
        bytes.extend([3; 30]);
        bytes.extend(none(cookies[0]));
        bytes
    }

    proptest! {
        #[test]
        fn pieces_of_any_length_come_to_the_same(mut ends in prop::collection::vec(0_usize..300, 0..20)) {
            let (mut table, buffers, cookies) = asked(3);
            let bytes = honest(&cookies);
            ends.iter_mut().for_each(|end| *end = (*end).min(bytes.len()));
            ends.sort_unstable();
            let over = feed(&bytes, &ends, &mut table);
            prop_assert_eq!(over, Ok(vec![(2, -5), (1, 40), (0, 40)]));
            prop_assert_eq!(&buffers[0], &[[2; 20], [1; 20]].concat());
            prop_assert_eq!(&buffers[1], &[&[0; 10][..], &[3; 30]].concat());
        }

        #[test]
        fn bytes_of_any_kind_make_nothing_panic_or_write_outside(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            ends in prop::collection::vec(0_usize..300, 0..4),
        ) {
            let (mut table, buffers, cookies) = asked(3);
            let mut bytes = honest(&cookies);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let mut ends: Vec<usize> = ends.into_iter().map(|end| end.min(bytes.len())).collect();
            ends.sort_unstable();
            // Whatever is over was under way, and once.
            if let Ok(over) = feed(&bytes, &ends, &mut table) {
                let mut places: Vec<u32> = over.iter().map(|(place, _)| *place).collect();
                places.sort_unstable();
                places.dedup();
                prop_assert_eq!(places.len(), over.len());
            }
            prop_assert!(buffers.iter().all(|buffer| buffer.len() == LENGTH as usize));
        }
    }
}
