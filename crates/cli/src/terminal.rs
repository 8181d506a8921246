//! Standard error: what is said beside the results.

use std::io::Write;

/// Writes to standard error; colours are dropped where it is no terminal, and under `NO_COLOR`.
pub fn tell(text: &str) {
    let mut err = anstream::stderr().lock();
    // A standard error that cannot be written to leaves no way to report that.
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}
