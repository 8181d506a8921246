//! What a server answers in the transmission phase ("Simple reply message", "Structured reply chunk message",
//! "Structured reply types", "Error values").
//!
//! Heads are encoded into arrays, so that a server puts many of them into one buffer without allocating, and data
//! never passes through here.

use std::fmt;

use super::{Fields, WireError, limits};

/// `NBD_SIMPLE_REPLY_MAGIC`.
pub const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// `NBD_STRUCTURED_REPLY_MAGIC`.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// Bytes of a simple reply, without a read's data.
pub const SIMPLE_BYTES: usize = 16;
/// Bytes of a chunk's head.
pub const CHUNK_BYTES: usize = 20;
/// Bytes before the data of `NBD_REPLY_TYPE_OFFSET_DATA`: the chunk's head and an offset.
pub const DATA_BYTES: usize = CHUNK_BYTES + 8;
/// Bytes of `NBD_REPLY_TYPE_OFFSET_HOLE`.
pub const HOLE_BYTES: usize = CHUNK_BYTES + 12;
/// Bytes of `NBD_REPLY_TYPE_ERROR` without a message.
pub const ERROR_BYTES: usize = CHUNK_BYTES + 6;

/// `NBD_REPLY_FLAG_DONE`: no chunk of this reply comes after it.
pub const FLAG_DONE: u16 = 1 << 0;

/// `NBD_REPLY_TYPE_NONE`.
pub const NONE: u16 = 0;
/// `NBD_REPLY_TYPE_OFFSET_DATA`.
pub const OFFSET_DATA: u16 = 1;
/// `NBD_REPLY_TYPE_OFFSET_HOLE`.
pub const OFFSET_HOLE: u16 = 2;
/// `NBD_REPLY_TYPE_BLOCK_STATUS`.
pub const BLOCK_STATUS: u16 = 5;
/// The bit that all types of errors have.
pub const ERROR_BIT: u16 = 1 << 15;
/// `NBD_REPLY_TYPE_ERROR`.
pub const ERROR: u16 = ERROR_BIT | 1;
/// `NBD_REPLY_TYPE_ERROR_OFFSET`.
pub const ERROR_OFFSET: u16 = ERROR_BIT | 2;

/// One of the "Error values"; 0 in a simple reply is success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// Operation not permitted: a write to what is read-only.
    pub const EPERM: Self = Self(1);
    /// Input/output error.
    pub const EIO: Self = Self(5);
    /// Cannot allocate memory.
    pub const ENOMEM: Self = Self(12);
    /// Invalid argument.
    pub const EINVAL: Self = Self(22);
    /// No space left on device.
    pub const ENOSPC: Self = Self(28);
    /// Value too large: a read that cannot be sent in one piece.
    pub const EOVERFLOW: Self = Self(75);
    /// Operation not supported.
    pub const ENOTSUP: Self = Self(95);
    /// Server is in the process of being shut down.
    pub const ESHUTDOWN: Self = Self(108);

    /// The value that stands for an errno of Linux; what has none is `EIO`.
    #[must_use]
    pub const fn from_errno(errno: i32) -> Self {
        match errno {
            1 | 13 | 30 => Self::EPERM, // EPERM, EACCES, EROFS
            12 => Self::ENOMEM,
            22 => Self::EINVAL,
            27 | 28 | 122 => Self::ENOSPC, // EFBIG, ENOSPC, EDQUOT
            75 => Self::EOVERFLOW,
            95 => Self::ENOTSUP, // EOPNOTSUPP
            108 => Self::ESHUTDOWN,
            _ => Self::EIO,
        }
    }

    /// The errno of Linux that it stands for; "the client SHOULD treat all unknown values as `NBD_EINVAL`".
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::EPERM => 1,
            Self::EIO => 5,
            Self::ENOMEM => 12,
            Self::ENOSPC => 28,
            Self::EOVERFLOW => 75,
            Self::ENOTSUP => 95,
            Self::ESHUTDOWN => 108,
            _ => 22,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::EPERM => "EPERM",
            Self::EIO => "EIO",
            Self::ENOMEM => "ENOMEM",
            Self::EINVAL => "EINVAL",
            Self::ENOSPC => "ENOSPC",
            Self::EOVERFLOW => "EOVERFLOW",
            Self::ENOTSUP => "ENOTSUP",
            Self::ESHUTDOWN => "ESHUTDOWN",
            Self(other) => return write!(f, "error {other}"),
        })
    }
}

/// "Simple reply message".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimpleReply {
    /// 0 where it succeeded.
    pub error: u32,
    /// The request's.
    pub cookie: u64,
}

impl SimpleReply {
    /// A reply to a request that succeeded, or that failed.
    #[must_use]
    pub const fn new(cookie: u64, error: Option<ErrorCode>) -> Self {
        let error = match error {
            Some(ErrorCode(0)) => ErrorCode::EIO.0,
            Some(ErrorCode(code)) => code,
            None => 0,
        };
        Self { error, cookie }
    }

    /// The reply as bytes.
    #[must_use]
    #[inline]
    pub fn encode(&self) -> [u8; SIMPLE_BYTES] {
        let mut bytes = [0; SIMPLE_BYTES];
        bytes[0..4].copy_from_slice(&SIMPLE_MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }
}

/// The head of a chunk: "Structured reply chunk message".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// [`FLAG_DONE`], and what is not known.
    pub flags: u16,
    /// [`NONE`] to [`ERROR_OFFSET`], or what is not known.
    pub kind: u16,
    /// The request's.
    pub cookie: u64,
    /// Bytes of payload that follow.
    pub length: u32,
}

impl Chunk {
    /// The head as bytes.
    #[must_use]
    #[inline]
    pub fn encode(&self) -> [u8; CHUNK_BYTES] {
        let mut bytes = [0; CHUNK_BYTES];
        bytes[0..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Whether no chunk of this reply comes after it.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.flags & FLAG_DONE != 0
    }

    /// Whether this head can be true of a reply to a request for `asked` bytes: lengths that its type never has are
    /// refused before anything is read of it.
    ///
    /// # Errors
    ///
    /// The type is not known and none of an error's, or the length is not one that the type has.
    pub fn check(&self, asked: u32) -> Result<(), WireError> {
        let length = self.length as usize;
        let fits = match self.kind {
            NONE => length == 0 && self.is_done(),
            OFFSET_DATA => length > 8 && length - 8 <= asked as usize,
            OFFSET_HOLE => length == 12,
            BLOCK_STATUS => {
                length >= 12 && (length - 4).is_multiple_of(8) && (length - 4) / 8 <= limits::EXTENTS
            }
            kind if kind & ERROR_BIT != 0 => (6..=limits::STRING + 64).contains(&length),
            kind => return Err(WireError::Value { what: "a chunk's type", value: kind.into() }),
        };
        if fits { Ok(()) } else { Err(WireError::Value { what: "a chunk's length", value: length as u64 }) }
    }
}

/// What a message of a server's is, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// Data follows where it answers a read and succeeded.
    Simple(SimpleReply),
    /// Its payload follows.
    Chunk(Chunk),
}

impl Head {
    /// The head at the front of `bytes`, and its length; nothing where more bytes are needed to say.
    ///
    /// # Errors
    ///
    /// The bytes begin with no magic number of a reply's.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, WireError> {
        let mut fields = Fields::new("a reply", bytes);
        let Ok(magic) = fields.u32() else { return Ok(None) };
        match magic {
            SIMPLE_MAGIC if bytes.len() < SIMPLE_BYTES => Ok(None),
            CHUNK_MAGIC if bytes.len() < CHUNK_BYTES => Ok(None),
            SIMPLE_MAGIC => {
                let reply = SimpleReply { error: fields.u32()?, cookie: fields.u64()? };
                Ok(Some((Self::Simple(reply), SIMPLE_BYTES)))
            }
            CHUNK_MAGIC => {
                let (flags, kind) = (fields.u16()?, fields.u16()?);
                let chunk = Chunk { flags, kind, cookie: fields.u64()?, length: fields.u32()? };
                Ok(Some((Self::Chunk(chunk), CHUNK_BYTES)))
            }
            found => {
                let expected = SIMPLE_MAGIC.into();
                Err(WireError::Magic { what: "a reply", expected, found: found.into() })
            }
        }
    }
}

/// What stands before `length` bytes of data at `offset`: `NBD_REPLY_TYPE_OFFSET_DATA`. `length` is at least 1, and
/// small enough that 8 more are no overflow.
#[must_use]
#[inline]
pub fn data_head(cookie: u64, offset: u64, length: u32, done: bool) -> [u8; DATA_BYTES] {
    let flags = if done { FLAG_DONE } else { 0 };
    let chunk = Chunk { flags, kind: OFFSET_DATA, cookie, length: length + 8 };
    let mut bytes = [0; DATA_BYTES];
    bytes[..CHUNK_BYTES].copy_from_slice(&chunk.encode());
    bytes[CHUNK_BYTES..].copy_from_slice(&offset.to_be_bytes());
    bytes
}

/// `length` bytes of zeroes at `offset`: `NBD_REPLY_TYPE_OFFSET_HOLE`.
#[must_use]
pub fn hole(cookie: u64, offset: u64, length: u32, done: bool) -> [u8; HOLE_BYTES] {
    let flags = if done { FLAG_DONE } else { 0 };
    let chunk = Chunk { flags, kind: OFFSET_HOLE, cookie, length: 12 };
    let mut bytes = [0; HOLE_BYTES];
    bytes[..CHUNK_BYTES].copy_from_slice(&chunk.encode());
    bytes[CHUNK_BYTES..CHUNK_BYTES + 8].copy_from_slice(&offset.to_be_bytes());
    bytes[CHUNK_BYTES + 8..].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// The last chunk of a reply that succeeded and has no data of its own: `NBD_REPLY_TYPE_NONE`.
#[must_use]
pub fn none(cookie: u64) -> [u8; CHUNK_BYTES] {
    Chunk { flags: FLAG_DONE, kind: NONE, cookie, length: 0 }.encode()
}

/// The last chunk of a reply that failed, without a message: `NBD_REPLY_TYPE_ERROR`.
#[must_use]
pub fn error(cookie: u64, code: ErrorCode) -> [u8; ERROR_BYTES] {
    let code = if code.0 == 0 { ErrorCode::EIO } else { code };
    let mut bytes = [0; ERROR_BYTES];
    let chunk = Chunk { flags: FLAG_DONE, kind: ERROR, cookie, length: 6 };
    bytes[..CHUNK_BYTES].copy_from_slice(&chunk.encode());
    bytes[CHUNK_BYTES..CHUNK_BYTES + 4].copy_from_slice(&code.0.to_be_bytes());
    bytes
}

/// The last chunk of a reply that failed, with a line for a person: `NBD_REPLY_TYPE_ERROR`. What is longer than a
/// string of the protocol's is cut.
#[must_use]
pub fn error_with_message(cookie: u64, code: ErrorCode, message: &str) -> Vec<u8> {
    let mut end = message.len().min(limits::STRING);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let message = &message[..end];
    let code = if code.0 == 0 { ErrorCode::EIO } else { code };
    let chunk = Chunk { flags: FLAG_DONE, kind: ERROR, cookie, length: 6 + message.len() as u32 };
    let mut bytes = Vec::with_capacity(ERROR_BYTES + message.len());
    bytes.extend_from_slice(&chunk.encode());
    bytes.extend_from_slice(&code.0.to_be_bytes());
    bytes.extend_from_slice(&(message.len() as u16).to_be_bytes());
    bytes.extend_from_slice(message.as_bytes());
    bytes
}

/// The whole reply to `NBD_CMD_BLOCK_STATUS`: `NBD_REPLY_TYPE_BLOCK_STATUS` with a context's identity and its extents,
/// each of a length and of flags. Extents beyond [`limits::EXTENTS`] are left out, which the protocol allows.
#[must_use]
pub fn block_status(cookie: u64, context: u32, extents: &[(u32, u32)]) -> Vec<u8> {
    let extents = &extents[..extents.len().min(limits::EXTENTS)];
    let length = 4 + 8 * extents.len() as u32;
    let chunk = Chunk { flags: FLAG_DONE, kind: BLOCK_STATUS, cookie, length };
    let mut bytes = Vec::with_capacity(CHUNK_BYTES + length as usize);
    bytes.extend_from_slice(&chunk.encode());
    bytes.extend_from_slice(&context.to_be_bytes());
    for (length, flags) in extents {
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&flags.to_be_bytes());
    }
    bytes
}

/// What a chunk's payload says. Data itself is not in it, only where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload<'a> {
    /// `NBD_REPLY_TYPE_NONE`.
    None,
    /// `NBD_REPLY_TYPE_OFFSET_DATA`: the offset in the export, and the data.
    Data(u64, &'a [u8]),
    /// `NBD_REPLY_TYPE_OFFSET_HOLE`: the offset in the export, and the length.
    Hole(u64, u32),
    /// `NBD_REPLY_TYPE_BLOCK_STATUS`: the context's identity, and its extents.
    Status(u32, Extents<'a>),
    /// `NBD_REPLY_TYPE_ERROR`, `NBD_REPLY_TYPE_ERROR_OFFSET` and what begins like them: what is wrong, what the server
    /// says of it ([`super::said`] makes it fit for a terminal), and where.
    Error(ErrorCode, &'a [u8], Option<u64>),
}

impl<'a> Payload<'a> {
    /// The payload of `chunk`, whose bytes are all of `bytes`.
    pub fn parse(chunk: &Chunk, bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut fields = Fields::new("a chunk", bytes);
        let payload = match chunk.kind {
            NONE => Self::None,
            OFFSET_DATA => {
                let offset = fields.u64()?;
                return Ok(Self::Data(offset, fields.rest()));
            }
            OFFSET_HOLE => {
                let (offset, length) = (fields.u64()?, fields.u32()?);
                if length == 0 {
                    return Err(WireError::Value { what: "a hole's length", value: 0 });
                }
                Self::Hole(offset, length)
            }
            BLOCK_STATUS => {
                let context = fields.u32()?;
                return Extents::parse(fields.rest()).map(|extents| Self::Status(context, extents));
            }
            kind if kind & ERROR_BIT != 0 => {
                let (code, length) = (ErrorCode(fields.u32()?), fields.u16()?);
                let message = fields.bytes(length.into())?;
                // An error that says success is one all the same.
                let code = if code.0 == 0 { ErrorCode::EIO } else { code };
                let offset = match kind {
                    ERROR_OFFSET => Some(fields.u64()?),
                    ERROR => None,
                    _ => return Ok(Self::Error(code, message, None)),
                };
                Self::Error(code, message, offset)
            }
            kind => return Err(WireError::Value { what: "a chunk's type", value: kind.into() }),
        };
        fields.end()?;
        Ok(payload)
    }
}

/// Extents of one context, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extents<'a>(&'a [u8]);

impl<'a> Extents<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        if bytes.is_empty() || !bytes.len().is_multiple_of(8) {
            return Err(WireError::Short { what: "a list of extents" });
        }
        let extents = Self(bytes);
        match extents.iter().any(|(length, _)| length == 0) {
            true => Err(WireError::Value { what: "an extent's length", value: 0 }),
            false => Ok(extents),
        }
    }

    /// Length in bytes and flags of each.
    pub fn iter(self) -> impl Iterator<Item = (u32, u32)> + 'a {
        self.0.chunks_exact(8).map(|extent| {
            let word =
                |at: usize| u32::from_be_bytes([extent[at], extent[at + 1], extent[at + 2], extent[at + 3]]);
            (word(0), word(4))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(bytes: &[u8]) -> (Chunk, &[u8]) {
        let Ok(Some((Head::Chunk(chunk), length))) = Head::parse(bytes) else { panic!("{bytes:?}") };
        assert_eq!(length + chunk.length as usize, bytes.len(), "the length covers all of it");
        (chunk, &bytes[length..])
    }

    #[test]
    fn simple_replies_are_laid_out_as_the_protocol_has_them() {
        let bytes = SimpleReply::new(7, Some(ErrorCode::ENOSPC)).encode();
        assert_eq!(bytes, [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 7]);
        let expected = Head::Simple(SimpleReply { error: 28, cookie: 7 });
        assert_eq!(Head::parse(&bytes), Ok(Some((expected, 16))));
        for length in 0..16 {
            assert_eq!(Head::parse(&bytes[..length]), Ok(None));
        }
        assert!(Head::parse(&[0x67, 0x44, 0x66, 0x99]).is_err());
    }

    #[test]
    fn what_is_encoded_is_what_is_parsed() {
        let mut bytes = data_head(3, 4096, 5, true).to_vec();
        bytes.extend_from_slice(b"hello");
        let (head, payload) = chunk(&bytes);
        assert_eq!(head.check(5), Ok(()));
        assert!(head.check(4).is_err(), "more than was asked for");
        assert_eq!(Payload::parse(&head, payload), Ok(Payload::Data(4096, b"hello")));

        let bytes = hole(3, 512, 1 << 20, false);
        let (head, payload) = chunk(&bytes);
        assert_eq!((head.check(1), head.is_done()), (Ok(()), false));
        assert_eq!(Payload::parse(&head, payload), Ok(Payload::Hole(512, 1 << 20)));

        let bytes = error_with_message(3, ErrorCode::EIO, "bad sector");
        let (head, payload) = chunk(&bytes);
        assert_eq!(Payload::parse(&head, payload), Ok(Payload::Error(ErrorCode::EIO, b"bad sector", None)));
        let bytes = error(3, ErrorCode::EPERM);
        let (head, payload) = chunk(&bytes);
        assert_eq!(Payload::parse(&head, payload), Ok(Payload::Error(ErrorCode::EPERM, b"", None)));

        let bytes = block_status(3, 9, &[(4096, 0), (8192, 3)]);
        let (head, payload) = chunk(&bytes);
        assert_eq!(head.check(0), Ok(()));
        let Ok(Payload::Status(9, extents)) = Payload::parse(&head, payload) else { panic!() };
        assert_eq!(extents.iter().collect::<Vec<_>>(), [(4096, 0), (8192, 3)]);
        assert_eq!(chunk(&none(3)).0.check(0), Ok(()));
    }

    #[test]
    fn lengths_that_a_type_never_has_are_refused() {
        let head = |kind, length| Chunk { flags: FLAG_DONE, kind, cookie: 0, length };
        for (kind, length) in [
            (NONE, 1),
            (OFFSET_DATA, 8),
            (OFFSET_DATA, u32::MAX),
            (OFFSET_HOLE, 11),
            (OFFSET_HOLE, 13),
            (BLOCK_STATUS, 4),
            (BLOCK_STATUS, 13),
            (BLOCK_STATUS, u32::MAX - 3),
            (ERROR, 5),
            (ERROR, 1 << 20),
            (3, 0),
        ] {
            assert!(head(kind, length).check(1 << 20).is_err(), "{kind} {length}");
        }
        assert!(Chunk { flags: 0, ..head(NONE, 0) }.check(0).is_err(), "the last chunk says that it is");
    }

    #[test]
    fn errors_whose_message_is_longer_than_they_are_refused() {
        let mut bytes = error_with_message(3, ErrorCode::EIO, "abc");
        bytes[CHUNK_BYTES + 5] = 4;
        let (head, payload) = chunk(&bytes);
        assert!(Payload::parse(&head, payload).is_err());
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        let bytes = error_with_message(1, ErrorCode::EIO, &"ä".repeat(4096));
        let (head, payload) = chunk(&bytes);
        let Ok(Payload::Error(_, message, None)) = Payload::parse(&head, payload) else { panic!() };
        assert_eq!((message.len(), std::str::from_utf8(message).is_ok()), (4096, true));
    }

    #[test]
    fn errors_of_linux_have_a_value_and_unknown_values_are_invalid() {
        assert_eq!(ErrorCode::from_errno(30), ErrorCode::EPERM);
        assert_eq!(ErrorCode::from_errno(71), ErrorCode::EIO);
        assert_eq!(ErrorCode(4711).errno(), 22);
        for code in [1, 5, 12, 22, 28, 75, 95, 108] {
            assert_eq!(ErrorCode::from_errno(code).errno(), code);
        }
    }
}
