//! What a client has sent and was not looked at yet.

use std::ops::Range;

/// Bytes of the buffer: enough for sixty-odd requests of 4 KiB with their payloads, so that one call of the kernel
/// fetches all that a busy client has sent meanwhile.
const BUFFER: usize = 256 << 10;

/// A buffer that is filled at its end and taken from at its beginning.
#[derive(Debug)]
pub(crate) struct Input {
    bytes: Box<[u8]>,
    filled: Range<usize>,
}

impl Input {
    pub fn new() -> Self {
        Self { bytes: vec![0; BUFFER].into_boxed_slice(), filled: 0..0 }
    }

    /// What is there.
    pub fn available(&self) -> &[u8] {
        &self.bytes[self.filled.clone()]
    }

    /// Strikes off the first bytes, at most as many as there are.
    pub fn consume(&mut self, bytes: usize) {
        self.filled.start += bytes.min(self.filled.len());
        if self.filled.is_empty() {
            self.filled = 0..0;
        }
    }

    /// Room to receive into, never empty: what is there is never more than the beginning of a message, since payloads
    /// are taken out as they come.
    pub fn room(&mut self) -> &mut [u8] {
        if self.filled.end > BUFFER / 2 {
            self.bytes.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        &mut self.bytes[self.filled.end..]
    }

    /// Says that `bytes` of the room have been filled.
    pub fn received(&mut self, bytes: usize) {
        self.filled.end += bytes;
        assert!(self.filled.end <= BUFFER, "nothing is received beyond the room that was given");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_whatever_the_portions() {
        let mut input = Input::new();
        let (mut sent, mut taken) = (0_u8, 0_u8);
        for round in 0..5000_usize {
            let portion = (round * 7919) % 60_000;
            let room = input.room();
            let portion = portion.min(room.len());
            for byte in &mut room[..portion] {
                *byte = sent;
                sent = sent.wrapping_add(1);
            }
            input.received(portion);
            // All but a few bytes are taken, as of a message that has not come as a whole.
            let take = input.available().len().saturating_sub(round % 28);
            for byte in &input.available()[..take] {
                assert_eq!(*byte, taken);
                taken = taken.wrapping_add(1);
            }
            input.consume(take);
        }
    }
}
