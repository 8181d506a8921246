//! A source that is a set itself: what was read of it is held against its own manifest, so that a set that rotted
//! where it lay is not brought back, with a new manifest that says all is well.

use std::io::BufReader;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Notes, Run};
use crate::calls;
use crate::digest::CHUNK_BYTES;
use crate::error::{StageError, shown};
use crate::fault::{Check, enforced};
use crate::journal::Done;
use crate::manifest::{self, Entry, Kind, Reader};
use crate::names::joined;
use crate::set::{Manifest, Times};

impl Run<'_> {
    /// Compares what was copied with the source's own manifest, if it has one. On the fast tier a file that has another
    /// size or time was changed by its owner, and is copied as it is; one that has both and other bytes has rotted. What
    /// is brought back from the slow tier has to be what was written there.
    ///
    /// # Errors
    /// [`StageError::SourceCorrupt`], with the source's file and the offset, or, for what is brought back, with the name or
    /// size that differs.
    pub(super) fn against_its_manifest(
        &self,
        root: &OwnedFd,
        source: &Path,
        notes: &mut Notes,
    ) -> Result<(), StageError> {
        if self.spec.options.inward {
            return self.is_as_its_manifest_says(root, source, true);
        }
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
                && let Some(done) = self.journal.entry(self.entries(), &entry.path.0)?
            {
                let found = &done.entry;
                let is_untouched = (entry.size, entry.mtime_s, entry.mtime_ns)
                    == (found.size, found.mtime_s, found.mtime_ns);
                if is_untouched {
                    self.compare(&entry, &done, source)?;
                }
            }
        }
    }

    /// Compares a set on the slow tier with its manifest: names, kinds, sizes, and digests. `copied`: the journal has
    /// the digests of what was read; otherwise each file is read.
    ///
    /// # Errors
    /// Those of [`Self::against_its_manifest`].
    pub(super) fn is_as_its_manifest_says(
        &self,
        root: &OwnedFd,
        source: &Path,
        copied: bool,
    ) -> Result<(), StageError> {
        match calls::stat_at(root.as_fd(), manifest::NAME.as_ref()) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => return Ok(()),
            found => found.map_err(|error| StageError::io("stat", &source.join(manifest::NAME), error))?,
        };
        let other = |how: &str| StageError::SourceCorrupt { path: shown(source), how: how.to_owned() };
        let Some(manifest) = Manifest::read(root.as_fd(), source)? else {
            return Err(other("the manifest is damaged, or of another release"));
        };
        if let Some(how) = manifest.differs_from(root.as_fd(), source, Times::Ignored)? {
            return Err(other(&how));
        }
        if !copied || !manifest.is_digested_by(self.spec.options.digest, CHUNK_BYTES) {
            return manifest.verify(root.as_fd(), source, &|| self.stop.check()).map_err(
                |error| match error {
                    StageError::Corrupt { path, offset, expected, found } => {
                        differs(path, offset, &expected, &found)
                    }
                    error => error,
                },
            );
        }
        manifest.each::<()>(|entry| {
            self.stop.check()?;
            // Every name of a file: where hard links are not kept, each is a copy with a digest of its own.
            if entry.kind == Kind::File {
                let done = |path: &Path| {
                    let done = self.journal.entry(self.entries(), path)?;
                    done.ok_or_else(|| other(&format!("{} was not copied", shown(path))))
                };
                let copied = done(&entry.path.0)?;
                match &entry.link_to {
                    // The first name was compared before.
                    Some(first) => {
                        let expected = done(&first.0)?.entry;
                        let (digest, chunks) = (expected.digest, expected.chunks);
                        self.compare(&Entry { digest, chunks, ..entry }, &copied, source)?;
                    }
                    None => self.compare(&entry, &copied, source)?,
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }

    fn compare(&self, entry: &Entry, done: &Done, source: &Path) -> Result<(), StageError> {
        let found = &done.entry;
        let (Some(expected), Some(read)) = (entry.digest, found.digest) else { return Ok(()) };
        if expected == read || !enforced(Check::SourceManifest) {
            return Ok(());
        }
        let chunk =
            entry.chunks.iter().zip(&found.chunks).position(|(expected, read)| expected != read).unwrap_or(0);
        let algorithm = self.spec.options.digest;
        Err(differs(
            shown(&joined(source, &entry.path.0)),
            chunk as u64 * CHUNK_BYTES,
            &entry.chunks.get(chunk).unwrap_or(&expected).text(algorithm),
            &found.chunks.get(chunk).unwrap_or(&read).text(algorithm),
        ))
    }
}

fn differs(path: String, offset: u64, expected: &str, found: &str) -> StageError {
    StageError::SourceCorrupt { path, how: format!("at offset {offset} {expected} expected, {found} found") }
}
