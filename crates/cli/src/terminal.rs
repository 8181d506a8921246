//! Standard output and standard error: results, and what is said beside them.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether anything went to standard output.
static PRINTED: AtomicBool = AtomicBool::new(false);

/// Writes to standard output; colours are dropped where it is no terminal, and under `NO_COLOR`.
pub fn print(text: &str) -> io::Result<()> {
    PRINTED.store(true, Ordering::Relaxed);
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Whether anything was written to standard output, so that no other document may follow.
pub fn has_printed() -> bool {
    PRINTED.load(Ordering::Relaxed)
}

/// Writes to standard error; colours are dropped where it is no terminal, and under `NO_COLOR`.
pub fn tell(text: &str) {
    let mut err = anstream::stderr().lock();
    // A standard error that cannot be written to leaves no way to report that.
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}
