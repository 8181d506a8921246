//! Numbers that a seed and an execution's number determine (SplitMix64), and what is done with them.

/// A stream of numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64, execution: u64) -> Self {
        let mut random = Self(seed ^ execution.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Whether, one time in `many`.
    pub fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A number at an edge: of a type, of a limit, of what was to be there.
    pub fn edge(&mut self, right: u64) -> u64 {
        let base = self.pick(&[
            0,
            1,
            right,
            4096,
            16 << 10,
            1 << 20,
            1 << 31,
            u64::from(u32::MAX),
            1 << 63,
            u64::MAX,
        ]);
        match self.below(3) {
            0 => base.wrapping_sub(1),
            1 => base,
            _ => base.wrapping_add(1),
        }
    }

    /// A length that is right, or near an edge.
    pub fn length(&mut self, right: usize) -> u32 {
        if self.one_in(6) { self.edge(right as u64) as u32 } else { right as u32 }
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    /// Damages bytes, or leaves them as they are.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>) {
        if self.one_in(2) {
            return;
        }
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                return;
            }
            let at = self.below(bytes.len());
            match self.below(7) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = self.next() as u8,
                2 => bytes.truncate(at),
                3 => {
                    let end = (at + 1 + self.below(24)).min(bytes.len());
                    bytes.drain(at..end);
                }
                4 => {
                    let count = self.below(24);
                    let more = self.bytes(count);
                    bytes.splice(at..at, more);
                }
                5 => {
                    let end = (at + self.below(64)).min(bytes.len());
                    let again = bytes[at..end].to_vec();
                    bytes.splice(end..end, again);
                }
                _ => {
                    // A field of some width gets a number of an edge.
                    let number = self.edge(at as u64).to_be_bytes();
                    let width = self.pick(&[2, 4, 8]);
                    let end = (at + width).min(bytes.len());
                    bytes[at..end].copy_from_slice(&number[8 - width..][..end - at]);
                }
            }
        }
    }
}
