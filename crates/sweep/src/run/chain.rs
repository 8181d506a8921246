//! Errors in one line.

use std::error::Error;

/// An error with all its causes, outermost first: `the run failed: /dev/vdb: read at 4096: …`.
#[must_use]
pub fn causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        line += ": ";
        line += &cause.to_string();
        next = cause.source();
    }
    line
}
