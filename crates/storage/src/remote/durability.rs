//! What a flush may promise when connections come and go.
//!
//! A write that was acknowledged and not flushed lives in the server's memory. When a connection is lost the server
//! may have gone with it, and a flush that a new incarnation of it answers says nothing about what the old one
//! held. So, as with the kernel's own files since 4.13 (`errseq_t`), a loss is counted, and whoever has not heard
//! of it is told by his next flush, once:
//!
//! 1. A write's acknowledgement marks the export as *dirty*, for all ([`Durability::wrote`]) and for the handle
//!    that made it ([`Handle::wrote`]).
//! 2. A flush that succeeds cleans the export and its own handle, if no loss was counted while it was under way.
//! 3. A connection that is lost while the export or the handle is dirty, or a flush is under way, is a *loss*.
//! 4. A flush of a handle that has not seen all losses fails, and has seen them then.
//!
//! It errs on one side: a connection that broke while the server lived on is counted too, because nobody can tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The state of one export, shared by all that use it in this process.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    dirty: AtomicBool,
    flushes: AtomicU32,
    losses: AtomicU64,
}

/// A loss stands between a flush and what it was to make durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost;

/// One user of an export: an engine, or the plain path of a device.
#[derive(Debug)]
pub(crate) struct Handle {
    export: Arc<Durability>,
    dirty: AtomicBool,
    seen: AtomicU64,
}

/// A flush under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// How many losses there were when it began.
    losses: u64,
    /// Whether there was anything for it to make durable.
    covers: bool,
}

impl Handle {
    /// A user who has not written yet.
    pub fn new(export: Arc<Durability>) -> Self {
        let seen = AtomicU64::new(export.losses.load(Ordering::SeqCst));
        Self { export, dirty: AtomicBool::new(false), seen }
    }

    /// A write of this user was acknowledged.
    #[inline]
    pub fn wrote(&self) {
        // Loads first, so that the cache lines stay shared while everybody writes.
        if !self.dirty.load(Ordering::SeqCst) {
            self.dirty.store(true, Ordering::SeqCst);
        }
        if !self.export.dirty.load(Ordering::SeqCst) {
            self.export.dirty.store(true, Ordering::SeqCst);
        }
    }

    /// A connection of this user was lost.
    pub fn lost(&self) {
        let mine = self.dirty.swap(false, Ordering::SeqCst);
        let anyones = self.export.dirty.swap(false, Ordering::SeqCst);
        if mine || anyones || self.export.flushes.load(Ordering::SeqCst) > 0 {
            self.export.losses.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A flush begins.
    ///
    /// # Errors
    /// [`Lost`] where it must not be made, because its success would say nothing.
    pub fn begin_flush(&self) -> Result<Ticket, Lost> {
        let losses = self.export.losses.load(Ordering::SeqCst);
        if self.seen.swap(losses, Ordering::SeqCst) != losses {
            return Err(Lost);
        }
        // Counted first, so that at no moment a loss could find neither mark nor flush. Whatever is acknowledged from
        // here on is not covered, and marks the export again.
        self.export.flushes.fetch_add(1, Ordering::SeqCst);
        let mine = self.dirty.swap(false, Ordering::SeqCst);
        let covers = self.export.dirty.swap(false, Ordering::SeqCst) || mine;
        if !covers {
            self.export.flushes.fetch_sub(1, Ordering::SeqCst);
        }
        Ok(Ticket { losses, covers })
    }

    /// A flush is over, whose answer was `success`.
    ///
    /// # Errors
    /// [`Lost`] where it succeeded and says nothing.
    pub fn end_flush(&self, ticket: Ticket, success: bool) -> Result<(), Lost> {
        let losses = self.export.losses.load(Ordering::SeqCst);
        if ticket.covers && !success {
            // What it was to make durable is as it was.
            self.dirty.store(true, Ordering::SeqCst);
            self.export.dirty.store(true, Ordering::SeqCst);
        }
        if ticket.covers {
            self.export.flushes.fetch_sub(1, Ordering::SeqCst);
        }
        if success && losses != ticket.losses {
            self.seen.store(losses, Ordering::SeqCst);
            return Err(Lost);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handles() -> (Handle, Handle) {
        let export = Arc::new(Durability::default());
        (Handle::new(Arc::clone(&export)), Handle::new(export))
    }

    fn flush(handle: &Handle) -> Result<(), Lost> {
        let ticket = handle.begin_flush()?;
        handle.end_flush(ticket, true)
    }

    #[test]
    fn a_loss_with_nothing_unflushed_harms_no_flush() {
        let (a, b) = handles();
        a.lost();
        assert_eq!((flush(&a), flush(&b)), (Ok(()), Ok(())));
        a.wrote();
        assert_eq!(flush(&a), Ok(()));
        a.lost();
        b.lost();
        assert_eq!((flush(&a), flush(&b)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_loss_of_unflushed_writes_fails_the_next_flush_of_everybody_once() {
        let (a, b) = handles();
        a.wrote();
        b.lost();
        assert_eq!((flush(&a), flush(&b)), (Err(Lost), Err(Lost)));
        assert_eq!((flush(&a), flush(&b)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_loss_during_a_flush_fails_that_flush() {
        let (a, b) = handles();
        a.wrote();
        let ticket = a.begin_flush().expect("nothing was lost yet");
        b.lost();
        assert_eq!(a.end_flush(ticket, true), Err(Lost));
        assert_eq!(flush(&a), Ok(()), "it was told already");
        assert_eq!(flush(&b), Err(Lost));
    }

    #[test]
    fn a_loss_during_a_flush_of_nothing_is_none() {
        let (a, b) = handles();
        let ticket = a.begin_flush().expect("nothing was lost");
        b.lost();
        assert_eq!(a.end_flush(ticket, true), Ok(()));
    }

    #[test]
    fn a_flush_that_the_server_refused_cleans_nothing() {
        let (a, b) = handles();
        a.wrote();
        let ticket = a.begin_flush().expect("nothing was lost");
        assert_eq!(a.end_flush(ticket, false), Ok(()));
        b.lost();
        assert_eq!(flush(&a), Err(Lost));
    }

    #[test]
    fn somebody_elses_flush_does_not_hide_the_loss_of_my_writes() {
        let (a, b) = handles();
        a.wrote();
        // The server restarted; `b` connected afresh, and `a` has not noticed yet.
        assert_eq!(flush(&b), Ok(()));
        a.lost();
        assert_eq!(flush(&a), Err(Lost));
    }
}
