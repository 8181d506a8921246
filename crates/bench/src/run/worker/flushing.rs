//! Flushes among a thread's requests, and the one at its end. Buffered writes may take any time to reach the drive, in which the
//! thread is not taken for one that hangs.

use storage::engine::{Engine, Op};

use super::Turn;
use crate::run::BenchError;
use crate::run::requests::Requests;

impl<E: Engine, R: Requests> Turn<'_, E, R> {
    /// Rests the pulse while a flush of buffered writes is in flight: what the page cache holds may take any time to write.
    #[inline]
    pub(super) fn rest_while_flushing(&self) {
        if self.requests.flushes() > 0 && self.has_unlimited_flushes() {
            self.pulse.rest();
        }
    }

    /// Whether flushes may take any time, because they write what the page cache holds.
    pub(super) fn has_unlimited_flushes(&self) -> bool {
        !self.task.device.is_direct()
    }

    /// fsync(2), waited for.
    pub(super) fn flush(&mut self) -> Result<(), BenchError> {
        if self.has_unlimited_flushes() {
            self.pulse.rest();
        }
        self.engine.prepare(0, Op::Sync, 0, 0);
        self.pulse.waits_for(self.engine.request(0));
        let mut failure = None;
        while self.engine.in_flight() > 0 {
            self.engine.submit(1, None)?;
            self.engine.reap(|_, result| failure = result.err());
        }
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}
