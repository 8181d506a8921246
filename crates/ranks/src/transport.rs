//! What carries frames between the root and each other rank.
//!
//! A transport neither reads frames nor decides who is lost. It must keep the order of frames between two ranks, deliver a frame
//! whole or not at all, and return at the given time even if the other side is stopped.

use std::io;
use std::time::Instant;

/// What was received.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// A frame of a rank.
    Frame {
        /// The rank that sent it.
        from: u32,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// The connection to a rank has ended; said once for each rank.
    Ended {
        /// The rank.
        from: u32,
    },
    /// Nothing until the given time.
    Nothing,
}

/// Carries frames.
pub trait Transport: Send {
    /// The number of this process.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn size(&self) -> u32;

    /// Sends a frame: the root to any other rank, another rank to the root.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if the other side does not take it until then; others where the connection has ended.
    fn send(&mut self, to: u32, frame: &[u8], until: Instant) -> io::Result<()>;

    /// The next frame: at the root of any rank, else of the root.
    ///
    /// # Errors
    /// If this process cannot receive at all.
    fn receive(&mut self, until: Instant) -> io::Result<Received>;

    /// How the process of a rank ended, where this one can know.
    fn fate(&mut self, _rank: u32) -> Option<String> {
        None
    }

    /// At the root, after the last collective: waits until the others have ended. The first that did not end well, with how.
    fn close(&mut self, _until: Instant) -> Option<(u32, String)> {
        None
    }
}

/// A single rank.
#[derive(Debug, Clone, Copy)]
pub struct Alone;

impl Transport for Alone {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn send(&mut self, _to: u32, _frame: &[u8], _until: Instant) -> io::Result<()> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn receive(&mut self, _until: Instant) -> io::Result<Received> {
        Ok(Received::Nothing)
    }
}
