//! Where the bytes of a stripe lie.
//!
//! The address arithmetic of RAID-0: chunks go round the members, a row of one chunk on each after the
//! other. It runs once for each request, so it costs a shift and a multiplication where it can: chunks are
//! powers of two nearly always, and the division by the width, which seldom is one, is a
//! multiplication by its reciprocal.

use std::ops::Range;

use storage::device::Piece;

/// The arithmetic for one chunk size and one width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stripe {
    chunk: u64,
    /// The chunk's logarithm to base 2, where it has a whole one.
    shift: Option<u32>,
    width: u64,
    /// ⌈2^64 / width⌉, for widths above 1.
    reciprocal: u64,
}

/// Offsets of files are signed.
const LARGEST_OFFSET: u64 = i64::MAX as u64;

impl Stripe {
    /// For chunks of `chunk` bytes, 512 at least, on `width` members, 1 to 1024.
    pub fn new(chunk: u64, width: u32) -> Self {
        assert!(chunk >= 512 && (1..=1024).contains(&width), "a stripe of {width} with chunks of {chunk}");
        let width = u64::from(width);
        let shift = chunk.is_power_of_two().then(|| chunk.trailing_zeros());
        // For width 1 it would need a 65th bit, and is not used.
        let reciprocal = if width == 1 { 0 } else { (u64::MAX / width) + 1 };
        Self { chunk, shift, width, reciprocal }
    }

    /// Bytes that one member holds before the next.
    pub fn chunk(self) -> u64 {
        self.chunk
    }

    /// How many chunks lie before a byte, and how far it lies into its own.
    #[inline]
    fn chunk_of(self, offset: u64) -> (u64, u64) {
        debug_assert!(offset <= LARGEST_OFFSET);
        match self.shift {
            Some(shift) => (offset >> shift, offset & (self.chunk - 1)),
            None => (offset / self.chunk, offset % self.chunk),
        }
    }

    /// The row of a chunk, and the member that it is on.
    #[inline]
    fn row_of(self, chunk: u64) -> (u64, u64) {
        if self.width == 1 {
            return (chunk, 0);
        }
        // Exact as long as chunk × width < 2^64: the reciprocal is too large by less than one, so the
        // product by less than chunk / 2^64, which is below the 1 / width that a wrong quotient would take.
        // Offsets are below 2^63 and chunks at least 2^9 bytes, so chunk < 2^54, and width ≤ 2^10.
        let row = ((u128::from(chunk) * u128::from(self.reciprocal)) >> 64) as u64;
        (row, chunk - row * self.width)
    }

    /// Where a range begins: see [`storage::device::Spread::piece`].
    #[inline]
    pub fn piece(self, offset: u64, length: u64) -> Piece {
        if self.width == 1 {
            return Piece { member: 0, offset, length };
        }
        let (chunk, within) = self.chunk_of(offset);
        let (row, member) = self.row_of(chunk);
        Piece {
            member: member as u32,
            offset: row * self.chunk + within,
            length: length.min(self.chunk - within),
        }
    }

    /// Pieces of a request of `length` bytes that begins with the last byte of a chunk.
    pub fn most_pieces(self, length: u64) -> u64 {
        if self.width == 1 { 1 } else { 1 + length.saturating_sub(1).div_ceil(self.chunk) }
    }

    /// What a range touches of each member: one run, because the chunks of a member that follow each other in
    /// the volume follow each other on the member.
    pub fn extents(self, range: Range<u64>) -> impl Iterator<Item = (u32, Range<u64>)> {
        let before = move |member: u64, offset: u64| {
            let (chunk, within) = self.chunk_of(offset);
            let (row, next) = self.row_of(chunk);
            row * self.chunk
                + match member.cmp(&next) {
                    std::cmp::Ordering::Less => self.chunk,
                    std::cmp::Ordering::Equal => within,
                    std::cmp::Ordering::Greater => 0,
                }
        };
        let parts = (0..self.width)
            .map(move |member| (member as u32, before(member, range.start)..before(member, range.end)));
        parts.filter(|(_, part)| !part.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The member and place of one byte, by walking the chunks from the beginning as one deals cards.
    fn dealt(chunk: u64, width: u32, byte: u64) -> (u32, u64) {
        let mut ends = vec![0; width as usize];
        let (mut begin, mut member) = (0, 0);
        while begin + chunk <= byte {
            ends[member] += chunk;
            begin += chunk;
            member = if member + 1 == width as usize { 0 } else { member + 1 };
        }
        (member as u32, ends[member] + byte - begin)
    }

    fn chunks() -> impl Strategy<Value = u64> {
        prop_oneof![(9_u32..21).prop_map(|bits| 1 << bits), (1_u64..200).prop_map(|sectors| sectors * 512)]
    }

    proptest! {
        #[test]
        fn every_byte_lies_where_dealing_the_chunks_out_puts_it(
            chunk in chunks(), width in 1_u32..20, at in 0_u64..1 << 12, length in 1_u64..1 << 12, chunks in 0_u64..300,
        ) {
            let stripe = Stripe::new(chunk, width);
            let (mut offset, end) = (chunks * chunk + at, chunks * chunk + at + length);
            while offset < end {
                let piece = stripe.piece(offset, end - offset);
                prop_assert!(piece.length >= 1 && piece.length <= end - offset);
                for byte in [0, piece.length / 2, piece.length - 1] {
                    prop_assert_eq!((piece.member, piece.offset + byte), dealt(chunk, width, offset + byte));
                }
                offset += piece.length;
            }
        }

        #[test]
        fn md_puts_chunks_where_we_do(chunk in chunks(), width in 1_u32..=1024, offset in 0_u64..1 << 63) {
            // linux/drivers/md/raid0.c, map_sector and find_zone with one zone, in bytes.
            let (number, within) = (offset / chunk, offset % chunk);
            let expected = (number % u64::from(width), number / u64::from(width) * chunk + within);
            let piece = Stripe::new(chunk, width).piece(offset, 1);
            prop_assert_eq!((u64::from(piece.member), piece.offset), expected);
        }

        #[test]
        fn pieces_are_no_more_than_foretold_and_extents_are_their_unions(
            chunk in chunks(), width in 1_u32..10, offset in 0_u64..1 << 22, length in 1_u64..1 << 22,
        ) {
            let stripe = Stripe::new(chunk, width);
            let mut runs = vec![None::<Range<u64>>; width as usize];
            let (mut at, mut pieces) = (offset, 0);
            while at < offset + length {
                let piece = stripe.piece(at, offset + length - at);
                let run = runs[piece.member as usize].get_or_insert(piece.offset..piece.offset);
                prop_assert_eq!(run.end, piece.offset, "the pieces on a member follow each other");
                run.end += piece.length;
                at += piece.length;
                pieces += 1;
            }
            prop_assert!(pieces <= stripe.most_pieces(length), "{} > {}", pieces, stripe.most_pieces(length));
            let expected: Vec<_> =
                runs.into_iter().enumerate().filter_map(|(m, run)| Some((m as u32, run?))).collect();
            prop_assert_eq!(stripe.extents(offset..offset + length).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn an_empty_range_touches_nothing() {
        assert_eq!(Stripe::new(4096, 3).extents(5000..5000).count(), 0);
    }
}
