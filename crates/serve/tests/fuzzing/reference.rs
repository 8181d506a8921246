//! What the protocol says of a stream of requests (doc/proto.md of the NBD project, "Request message", "Request types",
//! "Command flags", "Error values", "Size constraints"), read independently of the server.

use std::ops::Range;

use nbd::wire::reply::{CHUNK_BYTES, DATA_BYTES};
use nbd::wire::request::{self, Request};

const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;
const ENOTSUP: u32 = 95;

/// The largest payload of clients that were told of no other.
pub const MOST: u32 = 32 << 20;
/// Extents in one reply of this server's.
const EXTENTS: usize = 2048;

/// What was agreed on.
#[derive(Debug, Clone)]
pub struct Rules {
    pub size: u64,
    pub writable: bool,
    pub structured: bool,
    pub allocation: bool,
}

/// A request that came as a whole.
#[derive(Debug)]
pub struct Asked {
    pub request: Request,
    /// The errors of which it must be answered with one; with success where there are none.
    pub errors: Vec<u32>,
    /// Whether success is as good as one of the errors.
    pub may_succeed: bool,
    /// Whether it may go without an answer, since its payload is not all there.
    pub is_cut: bool,
    /// Where in the stream its payload is.
    pub payload: Range<usize>,
}

/// How a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Between two requests.
    Not,
    /// In the middle of one.
    Within,
    /// With a good-bye.
    Goodbye,
    /// With what is no request.
    Wrong,
}

/// A stream that was read.
#[derive(Debug)]
pub struct Reading {
    pub asked: Vec<Asked>,
    pub over: Over,
}

impl Rules {
    pub fn read(&self, bytes: &[u8]) -> Reading {
        let mut reading = Reading { asked: Vec::new(), over: Over::Not };
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let Some(head) = rest.first_chunk::<{ request::BYTES }>() else {
                if !rest.is_empty() {
                    reading.over = Over::Within;
                }
                return reading;
            };
            let Ok(asked) = Request::parse(head) else {
                reading.over = Over::Wrong;
                return reading;
            };
            at += request::BYTES;
            if asked.command == request::DISC {
                reading.over = Over::Goodbye;
                return reading;
            }
            let errors = self.errors(&asked);
            // Who announces this much has anything to send, and is not listened to.
            if !errors.is_empty() && asked.payload() > 2 * MOST {
                reading.over = Over::Wrong;
                return reading;
            }
            let end = at + asked.payload() as usize;
            let is_cut = end > bytes.len();
            let fast = asked.command == request::WRITE_ZEROES && asked.flags & request::FLAG_FAST_ZERO != 0;
            let may_succeed = errors.is_empty();
            let errors = if fast && may_succeed { vec![ENOTSUP] } else { errors };
            let payload = at..end.min(bytes.len());
            at = payload.end;
            reading.asked.push(Asked { request: asked, errors, may_succeed, is_cut, payload });
            if is_cut {
                reading.over = Over::Within;
                return reading;
            }
        }
    }

    /// All that is wrong with a request.
    fn errors(&self, asked: &Request) -> Vec<u32> {
        let Request { flags, command, offset, length, .. } = *asked;
        let mut errors = Vec::new();
        let known = request::FLAG_FUA
            | match command {
                request::READ if self.structured => request::FLAG_DF,
                request::WRITE_ZEROES => request::FLAG_NO_HOLE | request::FLAG_FAST_ZERO,
                request::BLOCK_STATUS => request::FLAG_REQ_ONE,
                _ => 0,
            };
        if command > request::BLOCK_STATUS || flags & !known != 0 {
            errors.push(EINVAL);
        }
        if matches!(command, request::FLUSH) || command > request::BLOCK_STATUS {
            return errors;
        }
        if !self.writable && matches!(command, request::WRITE | request::TRIM | request::WRITE_ZEROES) {
            errors.push(EPERM);
        }
        if u128::from(offset) + u128::from(length) > u128::from(self.size) {
            let adds = matches!(command, request::WRITE | request::WRITE_ZEROES);
            errors.push(if adds { ENOSPC } else { EINVAL });
        }
        match command {
            request::READ if length > MOST && flags & request::FLAG_DF != 0 => errors.push(EOVERFLOW),
            request::READ | request::WRITE if length > MOST => errors.push(EINVAL),
            request::BLOCK_STATUS if !self.allocation || length == 0 => errors.push(EINVAL),
            _ => {}
        }
        errors
    }
}

impl Asked {
    /// Whether it changes what is exported, where it succeeds.
    pub fn writes(&self) -> bool {
        let command = self.request.command;
        matches!(command, request::WRITE | request::TRIM | request::WRITE_ZEROES) && self.may_succeed
    }

    /// The bytes of the export that it is about, where it is about any.
    pub fn range(&self) -> Range<usize> {
        let start = self.request.offset as usize;
        start..start + self.request.length as usize
    }
}

impl Reading {
    /// Whether it cannot be told from an answer to which request it is.
    pub fn is_ambiguous(&self) -> bool {
        let mut cookies: Vec<u64> = self.asked.iter().map(|asked| asked.request.cookie).collect();
        cookies.sort_unstable();
        cookies.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Bytes of the longest answer to all of it: reads come in pieces of no less than 4 KiB, but for the last.
    pub fn longest_answer(&self) -> usize {
        let longest = |asked: &Asked| match asked.request.command {
            request::READ if asked.may_succeed => {
                let length = asked.request.length as usize;
                length + DATA_BYTES * (length / 4096 + 2)
            }
            request::BLOCK_STATUS => CHUNK_BYTES + 4 + 8 * EXTENTS,
            _ => 2 * DATA_BYTES,
        };
        self.asked.iter().map(longest).sum()
    }
}
