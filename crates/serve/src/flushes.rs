//! A failed flush, which every client of the export hears of.
//!
//! The kernel reports data that could not be written back once for each open file (fsync(2), "Reporting writeback
//! errors"), and connections share the files of the device. Without more, one client's flush would fail, and another's
//! next one would succeed, although what it covers may be among what was lost. So a failure stays for as long as the
//! device is open: every later flush, and every request with FUA, fails with what the first one failed with.
//!
//! A flush of another connection that was under way at the same moment may still be answered before the failure is
//! noted here; its client hears of it with the next one.

use std::sync::OnceLock;

use nbd::wire::ErrorCode;

/// What became of an export's flushes since its device was opened.
#[derive(Debug, Default)]
pub(crate) struct Flushes(OnceLock<ErrorCode>);

impl Flushes {
    /// Takes note of how a flush ended, and says how it is to be answered.
    pub fn ended(&self, failed: Option<ErrorCode>) -> Option<ErrorCode> {
        match (self.0.get(), failed) {
            (Some(first), _) => Some(*first),
            (None, None) => None,
            (None, Some(code)) => Some(*self.0.get_or_init(|| code)),
        }
    }
}
