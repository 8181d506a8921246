//! How far it is, for whoever watches.

use std::cell::Cell;

/// What is being measured, and how far it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step<'a> {
    /// In a few words.
    pub what: &'a str,
    /// Seconds' worth that is done, by the estimate made at the start.
    pub done: f64,
    /// Seconds' worth in all.
    pub of: f64,
}

/// Counts what is done, and tells it.
pub(super) struct Teller<'a> {
    tell: &'a (dyn Fn(&Step<'_>) + Sync),
    done: Cell<f64>,
    of: f64,
}

impl std::fmt::Debug for Teller<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Teller").field("done", &self.done).field("of", &self.of).finish_non_exhaustive()
    }
}

impl<'a> Teller<'a> {
    /// Tells of work that `of` seconds are expected for, `done` of them over.
    pub fn new(tell: &'a (dyn Fn(&Step<'_>) + Sync), done: f64, of: f64) -> Self {
        Self { tell, done: Cell::new(done), of }
    }

    /// Tells nobody.
    #[cfg(test)]
    pub fn silent() -> Teller<'static> {
        Teller::new(&|_| {}, 0.0, 1.0)
    }

    /// Something begins.
    pub fn tell(&self, what: &str) {
        (self.tell)(&Step { what, done: self.done.get().min(self.of), of: self.of });
    }

    /// Seconds' worth is done.
    pub fn done(&self, seconds: f64) {
        self.done.set(self.done.get() + seconds);
    }
}
