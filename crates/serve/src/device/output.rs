//! Replies on their way to the client, which takes them when it likes.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use nbd::stream::Stream;
use storage::engine::Engine;

use crate::reply::Head;

/// Parts that one call sends.
const PARTS: usize = 64;
/// Bytes that are put together for one record of TLS and its neighbours.
const SEALED: usize = 64 << 10;

/// A part of what is to be sent.
#[derive(Debug)]
pub(super) enum Piece {
    /// A head.
    Head(Head),
    /// The first bytes of a slot's buffer; the slot is idle again once they are sent.
    Slot { slot: u32, length: u32 },
    /// Bytes that were put together.
    Owned(Vec<u8>),
}

impl Piece {
    fn bytes<'a, E: Engine>(&'a self, engine: &'a E) -> &'a [u8] {
        match self {
            Self::Head(head) => head.bytes(),
            Self::Slot { slot, length } => &engine.buffer(*slot)[..*length as usize],
            Self::Owned(bytes) => bytes,
        }
    }
}

/// A queue of pieces.
#[derive(Debug, Default)]
pub(super) struct Output {
    pieces: VecDeque<Piece>,
    /// How much of the first piece was sent.
    sent: usize,
    /// Bytes of pieces that were put together.
    owned: u64,
    /// Under TLS: what was put together, and must be offered again as it is until it is taken.
    sealed: Vec<u8>,
    offered: usize,
}

impl Output {
    pub fn push(&mut self, piece: Piece) {
        if let Piece::Owned(bytes) = &piece {
            self.owned += bytes.len() as u64;
        }
        self.pieces.push_back(piece);
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.offered == self.sealed.len()
    }

    /// Pieces that wait.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Bytes of pieces that were put together and wait, or wait for their last bytes to be sent.
    pub fn owned(&self) -> u64 {
        self.owned
    }

    /// Sends as much as the client takes; bytes sent, and for each slot that was sent as a whole `done`.
    /// `WouldBlock` is no error.
    pub fn send<E: Engine>(
        &mut self,
        stream: &mut Stream,
        engine: &E,
        mut done: impl FnMut(u32),
    ) -> io::Result<usize> {
        let mut total = 0;
        while !self.is_empty() {
            let plain = stream.is_plain();
            let result = if plain {
                self.send_plain(stream, engine)
            } else {
                self.seal(engine, &mut done);
                stream.write(&self.sealed[self.offered..])
            };
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    total += sent;
                    if plain {
                        self.strike(sent, engine, &mut done);
                    } else {
                        self.offered += sent;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }

    fn send_plain<E: Engine>(&self, stream: &mut Stream, engine: &E) -> io::Result<usize> {
        let mut parts = [IoSlice::new(&[]); PARTS];
        let mut count = 0;
        for (part, piece) in parts.iter_mut().zip(&self.pieces) {
            let skip = if count == 0 { self.sent } else { 0 };
            *part = IoSlice::new(&piece.bytes(engine)[skip..]);
            count += 1;
        }
        stream.write_vectored(&parts[..count])
    }

    /// Strikes off the first `sent` bytes.
    fn strike<E: Engine>(&mut self, sent: usize, engine: &E, done: &mut impl FnMut(u32)) {
        self.sent += sent;
        while let Some(first) = self.pieces.front() {
            let length = first.bytes(engine).len();
            if self.sent < length {
                return;
            }
            self.sent -= length;
            match self.pieces.pop_front() {
                Some(Piece::Slot { slot, .. }) => done(slot),
                Some(Piece::Owned(_)) => self.owned -= length as u64,
                Some(Piece::Head(_)) | None => {}
            }
        }
    }

    /// Puts the next pieces together, once those before have been taken.
    fn seal<E: Engine>(&mut self, engine: &E, done: &mut impl FnMut(u32)) {
        if self.offered < self.sealed.len() {
            return;
        }
        self.offered = 0;
        self.sealed.clear();
        let mut skip = self.sent;
        for piece in &self.pieces {
            let bytes = &piece.bytes(engine)[skip..];
            let part = bytes.len().min(SEALED - self.sealed.len());
            self.sealed.extend_from_slice(&bytes[..part]);
            if part < bytes.len() {
                break;
            }
            skip = 0;
        }
        self.strike(self.sealed.len(), engine, done);
    }
}
