//! The wish that a server stops, which every thread of it sees.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long requests are taken after the wish was made, from clients that have them ready.
const DRAIN: Duration = Duration::from_millis(500);

/// A wish that is made once. It can be asked about, and polled for: its descriptor hangs up when it is made.
#[derive(Debug)]
pub(crate) struct Stop {
    asked: OnceLock<Instant>,
    reader: PipeReader,
    writer: Mutex<Option<PipeWriter>>,
}

impl Stop {
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        Ok(Self { asked: OnceLock::new(), reader, writer: Mutex::new(Some(writer)) })
    }

    /// Makes the wish.
    pub fn ask(&self) {
        let _ = self.asked.set(Instant::now());
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether it was made.
    pub fn is_asked(&self) -> bool {
        self.asked.get().is_some()
    }

    /// Whether it was made long enough ago for whoever had sent requests to have been served.
    pub fn is_due(&self) -> bool {
        self.since().is_some_and(|asked| asked.elapsed() > DRAIN)
    }

    /// When it was made.
    pub fn since(&self) -> Option<Instant> {
        self.asked.get().copied()
    }

    /// What poll(2) reports as hung up once it was made.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
