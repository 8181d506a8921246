//! Heads of replies.
//!
//! Reads are answered by structured replies where those were agreed on, and by simple ones where not; a command
//! without a payload in its reply may always be answered by a simple one (doc/proto.md, "Reply message"), which is the
//! shorter.

use nbd::wire::reply::{self, SimpleReply};
use nbd::wire::{self, ErrorCode};
use storage::extents::Stretch;

pub(crate) use nbd::wire::reply::block_status;

/// The longest head: a chunk's, with the offset of its data.
pub(crate) const LONGEST: usize = reply::DATA_BYTES;

/// The bytes that come before a reply's data, or that are all of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    bytes: [u8; LONGEST],
    length: u8,
}

impl Head {
    #[inline]
    fn of<const N: usize>(encoded: [u8; N]) -> Self {
        let mut bytes = [0; LONGEST];
        bytes[..N].copy_from_slice(&encoded);
        Self { bytes, length: N as u8 }
    }

    /// A simple reply.
    #[inline]
    pub fn simple(cookie: u64, code: Option<ErrorCode>) -> Self {
        Self::of(SimpleReply::new(cookie, code).encode())
    }

    /// The chunk that `length` bytes of data at `offset` follow; `last` where no chunk comes after it.
    #[inline]
    pub fn data(cookie: u64, offset: u64, length: u32, last: bool) -> Self {
        Self::of(reply::data_head(cookie, offset, length, last))
    }

    /// What comes before `length` bytes of data of a read at `offset` that is answered at once. A chunk of data has at
    /// least one byte, so a read of none is answered by a chunk without any.
    #[inline]
    pub fn whole(structured: bool, cookie: u64, offset: u64, length: u32) -> Self {
        match structured {
            false => Self::simple(cookie, None),
            true if length == 0 => Self::of(reply::none(cookie)),
            true => Self::data(cookie, offset, length, true),
        }
    }

    /// The answer to a request of which nothing was done. `chunked` where it was one whose replies come in chunks.
    pub fn refusal(chunked: bool, cookie: u64, code: ErrorCode) -> Self {
        if chunked { Self::of(reply::error(cookie, code)) } else { Self::simple(cookie, Some(code)) }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// A stretch as an extent of `base:allocation` (doc/proto.md, "Metadata querying"): a hole is neither allocated nor anything but
/// zeros.
pub(crate) fn extent(stretch: &Stretch) -> (u32, u32) {
    let length = u32::try_from(stretch.length).unwrap_or(u32::MAX);
    (length, if stretch.hole { wire::STATE_HOLE | wire::STATE_ZERO } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_no_bytes_is_answered_by_a_chunk_without_any() {
        assert_eq!(Head::whole(true, 7, 4096, 0).bytes(), reply::none(7));
        assert_eq!(Head::whole(true, 7, 4096, 1).bytes(), reply::data_head(7, 4096, 1, true));
        assert_eq!(Head::whole(false, 7, 4096, 0).bytes(), SimpleReply::new(7, None).encode());
    }
}
