//! The caller's wish to stop, which ends waits and the work between two steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::LayoutError;

/// A flag that the caller may set at any time, as on Ctrl-C. The default is never set.
#[derive(Debug, Clone, Default)]
pub struct Stop(Option<Arc<AtomicBool>>);

impl Stop {
    /// Fails with [`LayoutError::Interrupted`] if the flag is set; `what` says what was under way.
    pub(crate) fn check(&self, what: &str) -> Result<(), LayoutError> {
        let is_set = self.0.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed));
        if is_set { Err(LayoutError::Interrupted { what: what.to_owned() }) } else { Ok(()) }
    }
}

impl From<Arc<AtomicBool>> for Stop {
    fn from(flag: Arc<AtomicBool>) -> Self {
        Self(Some(flag))
    }
}
