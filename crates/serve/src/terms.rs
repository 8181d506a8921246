//! What a client may ask of an export, and what it gets where it may not.
//!
//! The rules are those of the protocol (doc/proto.md of the NBD project, "Transmission phase", "Request types" and "Error
//! values"):
//!
//! - beyond the end: `NBD_ENOSPC` for what writes, `NBD_EINVAL` for the rest;
//! - anything that writes on an export that is read-only: `NBD_EPERM`;
//! - what is no multiple of the minimum block size: `NBD_EINVAL`;
//! - a flag that the command does not have, or that was not agreed on: `NBD_EINVAL`;
//! - a read above the maximum payload: `NBD_EOVERFLOW` where one chunk was asked for, else `NBD_EINVAL`.
//!
//! A write that is refused still has its payload behind it, which whoever reads the stream has to drop.

use std::sync::Arc;

use crate::error::Ending;
use crate::flushes::Flushes;
use nbd::wire::request::{self, Request};
use nbd::wire::{ErrorCode as Code, WireError, limits};

/// The payload that every client may use without having been told another (doc/proto.md, "Block size constraints").
pub(crate) const MAX_PAYLOAD: u32 = limits::DEFAULT_PAYLOAD;

/// What was agreed on.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// Bytes of the export.
    pub size: u64,
    /// Whether it may be written.
    pub writable: bool,
    /// Requests are multiples of this.
    pub block: u32,
    /// Replies to reads come in chunks.
    pub structured: bool,
    /// The identity of the context `base:allocation`, where it was asked for.
    pub allocation: Option<u32>,
    /// What became of the export's flushes so far.
    pub flushes: Arc<Flushes>,
}

/// What a request comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
}

impl Kind {
    fn of(command: u16) -> Option<Self> {
        Some(match command {
            request::READ => Self::Read,
            request::WRITE => Self::Write,
            request::DISC => Self::Disconnect,
            request::FLUSH => Self::Flush,
            request::TRIM => Self::Trim,
            request::CACHE => Self::Cache,
            request::WRITE_ZEROES => Self::WriteZeroes,
            request::BLOCK_STATUS => Self::BlockStatus,
            _ => return None,
        })
    }

    /// For messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Disconnect => "disconnect",
            Self::Flush => "flush",
            Self::Trim => "trim",
            Self::Cache => "cache",
            Self::WriteZeroes => "write_zeroes",
            Self::BlockStatus => "block_status",
        }
    }

    /// Whether it changes the export.
    fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Trim | Self::WriteZeroes)
    }

    /// The flags that it has, where everything was agreed on. FUA means something only to what writes; the
    /// protocol lets a server that knows it take it on any command.
    fn flags(self, terms: &Terms) -> u16 {
        let own = match self {
            Self::Read if terms.structured => request::FLAG_DF,
            Self::WriteZeroes => request::FLAG_NO_HOLE | request::FLAG_FAST_ZERO,
            Self::BlockStatus => request::FLAG_REQ_ONE,
            _ => 0,
        };
        own | request::FLAG_FUA
    }
}

/// The payload of a refused write, to be dropped. One above twice what was announced ends the conversation: who sends
/// it has not read the announcement, and may have anything to send.
pub(crate) fn droppable(length: u32) -> Result<usize, Ending> {
    if length <= 2 * MAX_PAYLOAD {
        return Ok(length as usize);
    }
    let (length, limit) = (u64::from(length), u64::from(MAX_PAYLOAD));
    Err(WireError::Limit { what: "a write's length", length, limit }.into())
}

impl Terms {
    /// Whether replies to a command come in chunks.
    pub fn is_chunked(&self, command: u16) -> bool {
        self.structured && matches!(command, request::READ | request::BLOCK_STATUS)
    }

    /// What a request asks for, or why it is refused.
    #[inline]
    pub fn judge(&self, request: &Request) -> Result<Kind, Code> {
        let Some(kind) = Kind::of(request.command) else { return Err(Code::EINVAL) };
        if matches!(kind, Kind::Disconnect) {
            return Ok(kind);
        }
        if request.flags & !kind.flags(self) != 0 {
            return Err(Code::EINVAL);
        }
        if matches!(kind, Kind::Flush) {
            return Ok(kind);
        }
        if kind.writes() && !self.writable {
            return Err(Code::EPERM);
        }
        let inside =
            request.offset.checked_add(u64::from(request.length)).is_some_and(|end| end <= self.size);
        if !inside {
            let writes = matches!(kind, Kind::Write | Kind::WriteZeroes);
            return Err(if writes { Code::ENOSPC } else { Code::EINVAL });
        }
        let block = u64::from(self.block);
        if block > 1
            && !(request.offset.is_multiple_of(block) && u64::from(request.length).is_multiple_of(block))
        {
            return Err(Code::EINVAL);
        }
        match kind {
            Kind::Read if request.length > MAX_PAYLOAD => {
                let whole = request.flags & request::FLAG_DF != 0;
                Err(if whole { Code::EOVERFLOW } else { Code::EINVAL })
            }
            Kind::Write if request.length > MAX_PAYLOAD => Err(Code::EINVAL),
            Kind::BlockStatus if self.allocation.is_none() || request.length == 0 => Err(Code::EINVAL),
            _ => Ok(kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Terms {
        let (structured, allocation) = (true, Some(1));
        Terms { size: 1 << 30, writable: true, block: 1, structured, allocation, flushes: Arc::default() }
    }

    fn asked(command: u16, offset: u64, length: u32, flags: u16) -> Request {
        Request { flags, command, cookie: 7, offset, length }
    }

    #[test]
    fn what_reaches_beyond_the_end_is_refused_as_the_protocol_says() {
        let end = 1 << 30;
        for (command, code) in [
            (request::READ, Code::EINVAL),
            (request::WRITE, Code::ENOSPC),
            (request::WRITE_ZEROES, Code::ENOSPC),
            (request::TRIM, Code::EINVAL),
            (request::CACHE, Code::EINVAL),
            (request::BLOCK_STATUS, Code::EINVAL),
        ] {
            for (offset, length) in [(end, 1), (end - 1, 2), (u64::MAX, 1), (u64::MAX, u32::MAX)] {
                assert_eq!(terms().judge(&asked(command, offset, length, 0)), Err(code), "{command}");
            }
            assert!(terms().judge(&asked(command, end - 1, 1, 0)).is_ok(), "{command}");
        }
    }

    #[test]
    fn nothing_that_writes_is_done_on_an_export_to_read() {
        let terms = Terms { writable: false, ..terms() };
        for command in [request::WRITE, request::TRIM, request::WRITE_ZEROES] {
            assert_eq!(terms.judge(&asked(command, 0, 1, 0)), Err(Code::EPERM));
        }
        assert_eq!(terms.judge(&asked(request::FLUSH, 0, 0, 0)), Ok(Kind::Flush));
    }

    #[test]
    fn blocks_flags_and_payloads_are_held_to() {
        let blocks = Terms { block: 512, ..terms() };
        assert_eq!(blocks.judge(&asked(request::READ, 512, 1024, 0)), Ok(Kind::Read));
        assert_eq!(blocks.judge(&asked(request::READ, 511, 512, 0)), Err(Code::EINVAL));
        assert_eq!(blocks.judge(&asked(request::WRITE, 512, 511, 0)), Err(Code::EINVAL));
        let whole = request::FLAG_DF;
        assert_eq!(terms().judge(&asked(request::READ, 0, MAX_PAYLOAD + 1, 0)), Err(Code::EINVAL));
        assert_eq!(terms().judge(&asked(request::READ, 0, MAX_PAYLOAD + 1, whole)), Err(Code::EOVERFLOW));
        assert_eq!(terms().judge(&asked(request::READ, 0, MAX_PAYLOAD, whole)), Ok(Kind::Read));
        let simple = Terms { structured: false, ..terms() };
        assert_eq!(simple.judge(&asked(request::READ, 0, 1, whole)), Err(Code::EINVAL));
        assert_eq!(terms().judge(&asked(request::WRITE, 0, 1, whole)), Err(Code::EINVAL));
        assert_eq!(terms().judge(&asked(request::WRITE, 0, 1, request::FLAG_FUA)), Ok(Kind::Write));
        assert_eq!(terms().judge(&asked(99, 0, 1, 0)), Err(Code::EINVAL));
        let unasked = Terms { allocation: None, ..terms() };
        assert_eq!(unasked.judge(&asked(request::BLOCK_STATUS, 0, 1, 0)), Err(Code::EINVAL));
    }
}
