//! How members are put together, down to the devices at the bottom.
//!
//! A member may be a volume itself. Requests never pass through it: a piece is followed down to the device at
//! the bottom, of which there is one flat list. A volume that verifies what it reads counts as such a device.

use std::ops::Range;
use std::sync::Arc;

use storage::device::{Device, Piece, Spread, route, targets};

use crate::stripe::Stripe;

/// How the address space is laid over the members.
#[derive(Debug)]
pub(crate) enum Arrangement {
    /// Chunk by chunk.
    Striped(Stripe),
    /// One after the other: where each begins, and, last, where all end. Ascending.
    Joined(Vec<u64>),
}

/// Members, and the devices at their bottom.
#[derive(Debug)]
pub(crate) struct Map {
    arrangement: Arrangement,
    /// Where on each member the data begin, bytes.
    start: u64,
    below: Vec<Below>,
    leaves: Vec<Arc<dyn Device>>,
}

/// What lies below a member.
#[derive(Debug)]
struct Below {
    /// The number of its first device at the bottom.
    first: u32,
    spread: Option<Arc<dyn Spread>>,
}

impl Arrangement {
    #[inline]
    fn piece(&self, offset: u64, length: u64) -> Piece {
        match self {
            Self::Striped(stripe) => stripe.piece(offset, length),
            Self::Joined(starts) => {
                // The last one that begins at or before the offset.
                let member = starts.partition_point(|start| *start <= offset) - 1;
                let length = length.min(starts[member + 1] - offset);
                Piece { member: member as u32, offset: offset - starts[member], length }
            }
        }
    }

    fn most_pieces(&self, length: u64) -> u64 {
        match self {
            Self::Striped(stripe) => stripe.most_pieces(length),
            Self::Joined(starts) => {
                let smallest = starts.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(1);
                let crossed = 1 + length.saturating_sub(1).div_ceil(smallest.max(1));
                crossed.min(starts.len() as u64 - 1)
            }
        }
    }

    fn extents(&self, range: Range<u64>) -> Vec<(u32, Range<u64>)> {
        match self {
            Self::Striped(stripe) => stripe.extents(range).collect(),
            Self::Joined(starts) => {
                let part = |pair: &[u64]| range.start.max(pair[0])..range.end.min(pair[1]);
                let parts = (0..).zip(starts.windows(2)).map(|(member, pair)| (member, part(pair), pair[0]));
                parts
                    .filter(|(_, part, _)| !part.is_empty())
                    .map(|(member, part, start)| (member, part.start - start..part.end - start))
                    .collect()
            }
        }
    }
}

impl Map {
    /// For members whose data begin at `start`.
    pub fn new(arrangement: Arrangement, start: u64, members: &[Arc<dyn Device>]) -> Self {
        let (mut below, mut leaves) = (Vec::new(), Vec::new());
        for member in members {
            below.push(Below { first: leaves.len() as u32, spread: route(&**member).cloned() });
            leaves.extend_from_slice(targets(member));
        }
        Self { arrangement, start, below, leaves }
    }
}

impl Spread for Map {
    fn members(&self) -> &[Arc<dyn Device>] {
        &self.leaves
    }

    fn chunk(&self) -> Option<u64> {
        match &self.arrangement {
            Arrangement::Striped(stripe) => Some(stripe.chunk()),
            Arrangement::Joined(_) => None,
        }
    }

    #[inline]
    fn piece(&self, offset: u64, length: u64) -> Piece {
        let mut piece = self.arrangement.piece(offset, length);
        piece.offset += self.start;
        let below = &self.below[piece.member as usize];
        let piece = match &below.spread {
            None => Piece { member: 0, ..piece },
            Some(spread) => spread.piece(piece.offset, piece.length),
        };
        Piece { member: below.first + piece.member, ..piece }
    }

    fn most_pieces(&self, length: u64) -> u64 {
        let further = self.below.iter().filter_map(|below| below.spread.as_ref());
        // A piece of a request is no longer than the request.
        let further = further.map(|spread| spread.most_pieces(length)).max().unwrap_or(1);
        self.arrangement.most_pieces(length).saturating_mul(further)
    }

    fn extents(&self, range: Range<u64>) -> Vec<(u32, Range<u64>)> {
        let mut found = Vec::new();
        for (member, part) in self.arrangement.extents(range) {
            let below = &self.below[member as usize];
            let part = part.start + self.start..part.end + self.start;
            match &below.spread {
                None => found.push((below.first, part)),
                Some(spread) => found
                    .extend(spread.extents(part).into_iter().map(|(leaf, part)| (below.first + leaf, part))),
            }
        }
        found
    }
}
