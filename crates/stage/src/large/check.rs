//! Reading a copy whose blocks are shared with its source around the page cache, chunks at once, and digesting it.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use storage::transfer::{Op, RequestError};

use super::holes::Holes;
use super::port::{Completion, Port, is_refusal};
use super::side::Side;
use super::{Sealed, Zeros, broken, chunk, failed};
use crate::digest::{Algorithm, Digest};
use crate::error::StageError;
use crate::pace::{Pace, Progress, Stop};

/// Chunks that are submitted together.
const GROUP: usize = 32;

/// A file to be read.
pub(super) struct Check<'c, 'a> {
    pub port: &'c mut Port,
    pub side: &'c mut Side<'a>,
    pub bytes: u64,
    pub chunk_bytes: u64,
    pub algorithm: Algorithm,
    /// Take a hole for the zeros that it reads as.
    pub holes: bool,
    pub pace: &'c dyn Pace,
    pub stop: &'c Stop,
    pub progress: &'c Progress,
}

impl Check<'_, '_> {
    /// Reads all of it, and hands `sealed` chunks by the group.
    pub fn run(mut self, sealed: &mut Sealed<'_>) -> Result<Vec<Digest>, StageError> {
        let path = self.side.path;
        let count = self.bytes.div_ceil(self.chunk_bytes);
        let mut digests: Vec<Option<Digest>> = vec![None; count as usize];
        let mut holes = self.holes.then(|| Holes::new(path, self.bytes));
        let mut idle: Vec<u32> = (0..self.port.slots()).collect();
        let mut reading: Vec<u64> = vec![0; idle.len()];
        let (mut zeros, mut unsealed, mut at) = (Zeros::default(), Vec::new(), 0);
        loop {
            self.stop.check()?;
            while at < count {
                let range = chunk(at, self.chunk_bytes, self.bytes);
                if let Some(holes) = &mut holes
                    && holes.is_hole(self.side.fd(), &range)?
                {
                    let digest = zeros.of(self.algorithm, range.end - range.start);
                    self.found(at, digest, &mut digests, &mut unsealed);
                    at += 1;
                    continue;
                }
                let Some(slot) = idle.pop() else { break };
                self.pace.admit(range.end - range.start, 1, self.stop);
                self.stop.check()?;
                self.read(slot, &range)?;
                reading[slot as usize] = at;
                at += 1;
            }
            let completion = self.port.next().map_err(|error| broken(path, error))?;
            let Some(Completion::Slot(slot, direct, result)) = completion else { break };
            let index = reading[slot as usize];
            let range = chunk(index, self.chunk_bytes, self.bytes);
            match result {
                Ok(_) => {
                    let bytes = &self.port.buffer(slot)[..(range.end - range.start) as usize];
                    let digest = self.algorithm.of(bytes);
                    idle.push(slot);
                    if !self.side.is_direct() {
                        self.side.forget(&range);
                    }
                    self.found(index, digest, &mut digests, &mut unsealed);
                }
                Err(error) => {
                    self.refused(direct, &range, error)?;
                    self.read(slot, &range)?;
                }
            }
            if unsealed.len() >= GROUP {
                sealed(&std::mem::take(&mut unsealed))?;
            }
        }
        if !unsealed.is_empty() {
            sealed(&unsealed)?;
        }
        Ok(digests.into_iter().map(|digest| digest.expect("all chunks have been read")).collect())
    }

    /// Starts a read.
    fn read(&mut self, slot: u32, range: &Range<u64>) -> Result<(), StageError> {
        loop {
            self.side.forget(range);
            match self.port.start(self.side, Op::Read, slot, 0, range) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let direct = self.side.is_direct();
                    self.refused(direct, range, RequestError::Os(error.into()))?;
                }
            }
        }
    }

    /// A request failed: the next goes through the page cache where direct ones are refused, and otherwise the check ends.
    fn refused(&mut self, direct: bool, range: &Range<u64>, error: RequestError) -> Result<(), StageError> {
        if direct && is_refusal(&error) {
            self.side.give_up_direct();
            return Ok(());
        }
        Err(failed("read", self.side.path, range.start, error))
    }

    fn found(
        &self,
        index: u64,
        digest: Digest,
        digests: &mut [Option<Digest>],
        unsealed: &mut Vec<(u64, Digest)>,
    ) {
        let range = chunk(index, self.chunk_bytes, self.bytes);
        self.progress.bytes_verified.fetch_add(range.end - range.start, Relaxed);
        digests[index as usize] = Some(digest);
        unsealed.push((index, digest));
    }
}
