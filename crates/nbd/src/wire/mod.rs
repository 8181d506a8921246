//! Messages as bytes: numbers, layouts, limits. No I/O, and no allocation but of what is encoded.
//!
//! All numbers are in network byte order, and all are unsigned (doc/proto.md, "Conventions"). Parsing takes a slice
//! and gives a value or a [`WireError`] that says what is wrong with it; a slice that is too short is an error as
//! well, because whoever reads knows from the layout, or from a length that was checked, how much there is to be.

mod flags;
pub mod limits;
pub mod options;
pub mod reply;
pub mod request;

pub use flags::TransmissionFlags;
pub use reply::{Chunk, ErrorCode, SimpleReply};
pub use request::Request;

/// `NBDMAGIC`, the first eight bytes of a server ("Newstyle negotiation").
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: a newstyle server, and the beginning of each option ("Newstyle negotiation").
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// What an oldstyle server says in place of [`OPTION_MAGIC`] ("Oldstyle negotiation").
pub const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
/// The beginning of each reply to an option ("Fixed newstyle negotiation").
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// `NBD_FLAG_FIXED_NEWSTYLE` ("Handshake flags").
pub const HANDSHAKE_FIXED_NEWSTYLE: u16 = 1 << 0;
/// `NBD_FLAG_NO_ZEROES` ("Handshake flags").
pub const HANDSHAKE_NO_ZEROES: u16 = 1 << 1;
/// `NBD_FLAG_C_FIXED_NEWSTYLE` ("Client flags").
pub const CLIENT_FIXED_NEWSTYLE: u32 = 1 << 0;
/// `NBD_FLAG_C_NO_ZEROES` ("Client flags").
pub const CLIENT_NO_ZEROES: u32 = 1 << 1;

/// The metadata context that the standard defines ("`base:allocation` metadata context").
pub const BASE_ALLOCATION: &str = "base:allocation";
/// `NBD_STATE_HOLE`: not allocated ("`base:allocation` metadata context").
pub const STATE_HOLE: u32 = 1 << 0;
/// `NBD_STATE_ZERO`: reads as zeroes ("`base:allocation` metadata context").
pub const STATE_ZERO: u32 = 1 << 1;

/// What is wrong with bytes that should have been a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A magic number that does not begin this message.
    #[error("{what} begins with {found:#018x} where {expected:#018x} should be")]
    Magic {
        /// The message.
        what: &'static str,
        /// The number that the protocol has.
        expected: u64,
        /// The number that was there.
        found: u64,
    },
    /// It ends before all of it was there, or lengths in it reach beyond its end.
    #[error("{what} ends too early")]
    Short {
        /// The message, or the part of it.
        what: &'static str,
    },
    /// There is something behind its end.
    #[error("{what} has {bytes} bytes too many")]
    Long {
        /// The message.
        what: &'static str,
        /// How many.
        bytes: usize,
    },
    /// It announces more than this crate takes.
    #[error("{what} of {length} is above the limit of {limit}")]
    Limit {
        /// What was announced.
        what: &'static str,
        /// How much of it.
        length: u64,
        /// How much is taken.
        limit: u64,
    },
    /// A string that is no UTF-8 or has a NUL in it ("Conventions").
    #[error("{what} is not a string that the protocol allows")]
    Text {
        /// Which string.
        what: &'static str,
    },
    /// A value that this field never has.
    #[error("{what} is {value}, which the protocol does not allow")]
    Value {
        /// Which field.
        what: &'static str,
        /// What it is.
        value: u64,
    },
}

/// Takes fields off the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, rest: bytes }
    }

    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(WireError::Short { what: self.what })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(WireError::Short { what: self.what })?;
        self.rest = rest;
        Ok(*taken)
    }

    pub fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    pub fn magic(&mut self, expected: u64) -> Result<(), WireError> {
        match self.u64()? {
            found if found == expected => Ok(()),
            found => Err(WireError::Magic { what: self.what, expected, found }),
        }
    }

    /// A string with its length in 32 bits before it.
    pub fn counted_text(&mut self, what: &'static str) -> Result<&'a str, WireError> {
        let length = self.u32()? as usize;
        text(what, self.bytes(length)?)
    }

    /// All that is left.
    pub fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// That nothing is left.
    pub fn end(self) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            bytes => Err(WireError::Long { what: self.what, bytes }),
        }
    }
}

/// A string as the protocol has them: UTF-8, no NUL, at most 4096 bytes ("Conventions").
pub(crate) fn text<'a>(what: &'static str, bytes: &'a [u8]) -> Result<&'a str, WireError> {
    if bytes.len() > limits::STRING {
        return Err(WireError::Limit { what, length: bytes.len() as u64, limit: limits::STRING as u64 });
    }
    match std::str::from_utf8(bytes) {
        Ok(string) if !string.contains('\0') => Ok(string),
        _ => Err(WireError::Text { what }),
    }
}

/// What a peer says to a person, fit for one line of a terminal, whatever bytes it is made of.
#[must_use]
pub fn said(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(limits::STRING)];
    String::from_utf8_lossy(bytes).trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_reaches_beyond_the_end_is_an_error() {
        let bytes = [0, 0, 0, 9, b'a', b'b'];
        let mut fields = Fields::new("test", &bytes);
        assert_eq!(fields.counted_text("name"), Err(WireError::Short { what: "test" }));
    }

    #[test]
    fn strings_are_utf8_without_nul_and_not_too_long() {
        assert_eq!(text("name", "näm".as_bytes()), Ok("näm"));
        assert!(matches!(text("name", b"a\0b"), Err(WireError::Text { .. })));
        assert!(matches!(text("name", b"\xff"), Err(WireError::Text { .. })));
        assert!(text("name", &[b'x'; 4096]).is_ok());
        assert!(matches!(text("name", &[b'x'; 4097]), Err(WireError::Limit { limit: 4096, .. })));
    }

    #[test]
    fn what_a_peer_says_cannot_move_the_cursor() {
        assert_eq!(said(b"no\x1b[2Jsuch\nthing\xff\n"), "no [2Jsuch thing\u{fffd}");
    }
}
