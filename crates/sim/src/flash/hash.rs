//! A hash of page numbers for tables that are asked at each operation.

use std::hash::{BuildHasherDefault, Hasher};

/// Makes the hasher of a table by page number.
pub type PageHash = BuildHasherDefault<PageHasher>;

/// A multiplication, whose high bits depend on all bits of the number. Nothing outside chooses the numbers, so that the standard
/// library's protection against chosen ones is not needed.
#[derive(Debug, Default)]
pub struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, page: u32) {
        self.0 = (self.0 ^ u64::from(page)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(32);
    }
}
