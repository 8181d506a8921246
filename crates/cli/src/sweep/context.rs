//! What a session hands to those that prepare its targets.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::args::PermitArgs;
use super::watch;

/// What the user allows, and where the sweep's own scratch file goes.
pub struct SessionContext<'a> {
    /// Devices and files whose contents may be lost, and unwritten extents.
    pub permits: &'a PermitArgs,
    /// Where the scratch file goes that no target names.
    pub here: &'a Path,
    /// Set to stop.
    pub stop: &'a Arc<AtomicBool>,
    /// Where words on long steps go.
    pub speaker: watch::Speaker,
}
