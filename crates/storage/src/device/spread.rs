//! Devices that are made of others, as engines see them.
//!
//! An engine sends requests to descriptors. Where a device has several, as a stripe does, it says through
//! [`Spread`] which bytes lie where, and the engine makes each request in pieces, all of them in its own
//! queue: one ring, one system call a batch, whatever the number of members.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::Device;

/// A run of bytes on one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Which member, from 0.
    pub member: u32,
    /// Where on it, bytes.
    pub offset: u64,
    /// How long, bytes; not zero.
    pub length: u64,
}

/// Where the bytes of a device lie that is made of others.
///
/// What an implementation answers is not believed: [`piece_of`] checks each piece before anything is made of it.
pub trait Spread: Send + Sync + Debug {
    /// The devices at the bottom, each with a descriptor of its own, none of them spread any further.
    fn members(&self) -> &[Arc<dyn Device>];

    /// Bytes that one member holds before the next, where there is one such number.
    fn chunk(&self) -> Option<u64> {
        None
    }

    /// Where a range begins: the longest run of it that lies on one member, at most `length` bytes, which
    /// is not zero. The range lies inside the device.
    fn piece(&self, offset: u64, length: u64) -> Piece;

    /// Into how many pieces a request of `length` bytes is cut at most, wherever it begins.
    fn most_pieces(&self, length: u64) -> u64;

    /// What `range` touches of each member, by the member's number; those that it does not touch are left
    /// out. On every member that is one run.
    fn extents(&self, range: Range<u64>) -> Vec<(u32, Range<u64>)>;
}

/// A piece that cannot be: whoever says where the bytes of a device lie is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{length} bytes at {offset} were said to begin with {} bytes at {} of member {} of {members}",
    piece.length,
    piece.offset,
    piece.member
)]
pub struct WrongPiece {
    /// What was said.
    pub piece: Piece,
    /// Where the range begins, bytes.
    pub offset: u64,
    /// How long it is, bytes.
    pub length: u64,
    /// How many members there are.
    pub members: u32,
}

/// Where a range of a device begins of which `spread` says where it lies over `members` members: the one place where
/// that becomes a request.
///
/// # Errors
/// [`WrongPiece`], where it names no member, no byte, more bytes than there are, or some beyond what an offset can say.
#[inline]
pub fn piece_of(spread: &dyn Spread, members: u32, offset: u64, length: u64) -> Result<Piece, WrongPiece> {
    let piece = spread.piece(offset, length);
    let ends = piece.offset.checked_add(piece.length).is_some_and(|end| end <= i64::MAX as u64);
    if piece.member < members && (1..=length).contains(&piece.length) && ends {
        Ok(piece)
    } else {
        Err(WrongPiece { piece, offset, length, members })
    }
}

/// The devices at the bottom of `device`: itself, where it is not made of others.
pub fn leaves(device: &Arc<dyn Device>) -> &[Arc<dyn Device>] {
    match device.spread() {
        Some(spread) => spread.members(),
        None => std::slice::from_ref(device),
    }
}

/// Where an engine sends the requests to `device`, if not to the device itself: its spread, unless the device
/// [verifies](Device::verifies) what passes through it.
pub fn route(device: &dyn Device) -> Option<&Arc<dyn Spread>> {
    device.spread().filter(|_| !device.verifies())
}

/// The devices to which an engine sends the requests to `device`: those of its [`route`], or the device itself.
pub fn targets(device: &Arc<dyn Device>) -> &[Arc<dyn Device>] {
    match route(&**device) {
        Some(spread) => spread.members(),
        None => std::slice::from_ref(device),
    }
}
