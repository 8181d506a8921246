//! What a client asks in the transmission phase ("Request message", "Request types", "Command flags").

use super::{Fields, WireError};

/// `NBD_REQUEST_MAGIC`.
pub const MAGIC: u32 = 0x2560_9513;

/// `NBD_CMD_READ`.
pub const READ: u16 = 0;
/// `NBD_CMD_WRITE`; its data comes right behind it.
pub const WRITE: u16 = 1;
/// `NBD_CMD_DISC`; there is no reply.
pub const DISC: u16 = 2;
/// `NBD_CMD_FLUSH`.
pub const FLUSH: u16 = 3;
/// `NBD_CMD_TRIM`.
pub const TRIM: u16 = 4;
/// `NBD_CMD_CACHE`.
pub const CACHE: u16 = 5;
/// `NBD_CMD_WRITE_ZEROES`.
pub const WRITE_ZEROES: u16 = 6;
/// `NBD_CMD_BLOCK_STATUS`.
pub const BLOCK_STATUS: u16 = 7;

/// `NBD_CMD_FLAG_FUA`: durable before it is answered.
pub const FLAG_FUA: u16 = 1 << 0;
/// `NBD_CMD_FLAG_NO_HOLE`: zeroes that stay allocated.
pub const FLAG_NO_HOLE: u16 = 1 << 1;
/// `NBD_CMD_FLAG_DF`: a read in one piece.
pub const FLAG_DF: u16 = 1 << 2;
/// `NBD_CMD_FLAG_REQ_ONE`: one extent for each context.
pub const FLAG_REQ_ONE: u16 = 1 << 3;
/// `NBD_CMD_FLAG_FAST_ZERO`: zeroes faster than writing them, or an error.
pub const FLAG_FAST_ZERO: u16 = 1 << 4;

/// Bytes of a request, without a write's data.
pub const BYTES: usize = 28;

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Command flags, `FLAG_*`.
    pub flags: u16,
    /// What to do: one of [`READ`] to [`BLOCK_STATUS`], or what is not known.
    pub command: u16,
    /// The client's name for it, which the reply bears.
    pub cookie: u64,
    /// Bytes from the beginning of the export.
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

impl Request {
    /// The request as bytes.
    #[must_use]
    #[inline]
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// The request in the first [`BYTES`] of `bytes`.
    ///
    /// # Errors
    ///
    /// There are fewer, or they do not begin with the magic number.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let what = "a request";
        let mut fields = Fields::new(what, bytes);
        match fields.u32()? {
            MAGIC => {}
            found => {
                return Err(WireError::Magic { what, expected: MAGIC.into(), found: found.into() });
            }
        }
        Ok(Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        })
    }

    /// Bytes of data that follow it.
    #[must_use]
    #[inline]
    pub const fn payload(&self) -> u32 {
        if self.command == WRITE { self.length } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_laid_out_as_the_protocol_has_it() {
        let request = Request {
            flags: FLAG_FUA,
            command: WRITE,
            cookie: 0x0102_0304_0506_0708,
            offset: 1 << 40,
            length: 9,
        };
        let bytes = request.encode();
        let expected: [u8; BYTES] =
            [0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(bytes, expected);
        assert_eq!(Request::parse(&bytes), Ok(request));
        assert_eq!(request.payload(), 9);
    }

    #[test]
    fn a_request_that_is_cut_or_begins_otherwise_is_none() {
        let bytes = Request { flags: 0, command: READ, cookie: 1, offset: 2, length: 3 }.encode();
        for length in 0..BYTES {
            assert_eq!(Request::parse(&bytes[..length]), Err(WireError::Short { what: "a request" }));
        }
        let mut wrong = bytes;
        wrong[3] ^= 1;
        assert!(matches!(Request::parse(&wrong), Err(WireError::Magic { found: 0x2560_9512, .. })));
    }
}
