//! A source that is a set itself: what was read of it is held against its own manifest, so that a set that rotted
//! where it lay is not brought back, with a new manifest that says all is well.

use std::io::BufReader;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Notes, Run};
use crate::calls;
use crate::digest::CHUNK_BYTES;
use crate::error::{StageError, shown};
use crate::journal::Done;
use crate::manifest::{self, Entry, Kind, Reader};
use crate::small::joined;

impl Run<'_> {
    /// Compares what was copied with the source's own manifest, if it has one. A file that somebody has changed since,
    /// by its size or time, is theirs to change; one that has both and other bytes has rotted.
    ///
    /// # Errors
    /// [`StageError::Corrupt`], with the source's file and the offset; the kernel's.
    pub(super) fn against_its_manifest(
        &self,
        root: &OwnedFd,
        source: &Path,
        notes: &mut Notes,
    ) -> Result<(), StageError> {
        let path = source.join(manifest::NAME);
        let file = match calls::open_at(
            root.as_fd(),
            manifest::NAME.as_ref(),
            OFlags::RDONLY | OFlags::NONBLOCK,
            Mode::empty(),
        ) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => return Ok(()),
            opened => opened.map_err(|error| StageError::io("open", &path, error))?,
        };
        let stream = BufReader::with_capacity(1 << 20, std::fs::File::from(file));
        let mut reader = match Reader::new(stream, shown(&path)) {
            Ok(reader) => reader,
            Err(error) => {
                notes.push(format!("{error}; what was copied was held against nothing"));
                return Ok(());
            }
        };
        let header = reader.header();
        if (header.algorithm, header.chunk_bytes) != (self.spec.options.digest, CHUNK_BYTES) {
            notes.push(format!(
                "{}: its digests are by {}, and could not be held against what was copied",
                shown(&path),
                header.algorithm.word()
            ));
            return Ok(());
        }
        loop {
            self.stop.check()?;
            let entry = match reader.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(()),
                Err(error) => {
                    notes.push(format!("{error}; what is after that was held against nothing"));
                    return Ok(());
                }
            };
            if entry.kind == Kind::File
                && entry.link_to.is_none()
                && let Some(done) = self.journal.entry(self.id, &entry.path.0)?
            {
                self.compare(&entry, &done, source)?;
            }
        }
    }

    fn compare(&self, entry: &Entry, done: &Done, source: &Path) -> Result<(), StageError> {
        let found = &done.entry;
        let untouched =
            (entry.size, entry.mtime_s, entry.mtime_ns) == (found.size, found.mtime_s, found.mtime_ns);
        let (Some(expected), Some(read)) = (entry.digest, found.digest) else { return Ok(()) };
        if !untouched || expected == read {
            return Ok(());
        }
        let chunk =
            entry.chunks.iter().zip(&found.chunks).position(|(expected, read)| expected != read).unwrap_or(0);
        let algorithm = self.spec.options.digest;
        Err(StageError::Corrupt {
            path: shown(&joined(source, &entry.path.0)),
            offset: chunk as u64 * CHUNK_BYTES,
            expected: entry.chunks.get(chunk).unwrap_or(&expected).text(algorithm),
            found: found.chunks.get(chunk).unwrap_or(&read).text(algorithm),
        })
    }
}
