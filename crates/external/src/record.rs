//! Records: values of a fixed size that are their own sort key.
//!
//! A record is stored as it lies in memory, so blocks need no encoding. Its order is that of [`Record::word`], from the
//! most significant word down, which lets the sorter distribute by bits instead of comparing. Fields that do not matter
//! to the order still take part in it: equal records are identical, so no sort is unstable.

use std::fmt::Debug;

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Whether two neighbours in sorted order count as the same, so that only the first is kept.
pub type Same<T> = fn(&T, &T) -> bool;

/// A value of a fixed size without padding and pointers.
///
/// Implemented for `u32`, `u64`, `u128` and arrays of `u32` and `u64`, which are ordered by their first element, then their
/// second, and so on.
///
/// `Ord` must be the order of the words: `a < b` exactly if `[a.word(WORDS - 1), …, a.word(0)]` is below the same of `b`.
pub trait Record:
    FromBytes + IntoBytes + Immutable + Copy + Ord + Default + Debug + Send + Sync + 'static
{
    /// How many 64-bit words the key has.
    const WORDS: usize;

    /// Word `index` of the key; 0 is the least significant.
    fn word(&self, index: usize) -> u64;
}

impl Record for u32 {
    const WORDS: usize = 1;

    #[inline(always)]
    fn word(&self, _: usize) -> u64 {
        u64::from(*self)
    }
}

impl Record for u64 {
    const WORDS: usize = 1;

    #[inline(always)]
    fn word(&self, _: usize) -> u64 {
        *self
    }
}

impl Record for u128 {
    const WORDS: usize = 2;

    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        (*self >> (64 * index)) as u64
    }
}

macro_rules! array_record {
    ($element:ty; $($length:literal)*) => {$(
        impl Record for [$element; $length] {
            const WORDS: usize = $length;

            #[inline(always)]
            fn word(&self, index: usize) -> u64 {
                u64::from(self[$length - 1 - index])
            }
        }
    )*};
}

array_record!(u64; 1 2 3 4);
array_record!(u32; 1 2 3 4);
