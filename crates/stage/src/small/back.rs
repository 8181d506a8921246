//! Copies of small files, read back as the medium has them.
//!
//! Several at once, each around the page cache.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{Mode, OFlags};
use storage::transfer::RequestError;

use super::{Copier, Terms, Written};
use crate::calls;
use crate::digest::{Algorithm, Digest};
use crate::error::StageError;
use crate::fault::{Check, enforced};
use crate::manifest::Kind;
use crate::names::joined;
use crate::reads::{Completion, Reads};
use crate::uncached::{BLOCK, Uncached, refuses_direct};

impl Copier {
    /// Reads copies back around the cache, after they were synced, side by side.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub fn verify_many(&mut self, group: &[Written], terms: &Terms<'_>) -> Result<(), StageError> {
        let mut reads = self.reads()?;
        for (tag, written) in group.iter().enumerate() {
            let entry = &written.done.entry;
            if entry.kind != Kind::File || !Reads::takes(entry.size) {
                self.verify(written, terms)?;
                continue;
            }
            let file =
                open_back(written).map_err(|error| StageError::io("open", &written.shown(terms), error))?;
            if reads.is_full() {
                while !reads.has_room() && self.come_back(&mut reads, group, terms)? {}
            }
            reads
                .start(file.file(), entry.size, file.is_direct(), tag)
                .map_err(|errno| StageError::io("read back", &written.shown(terms), errno))?;
        }
        while self.come_back(&mut reads, group, terms)? {}
        self.reads = Some(reads);
        Ok(())
    }

    /// Compares the next copy whose read has completed. False if none is under way.
    fn come_back(
        &mut self,
        reads: &mut Reads,
        group: &[Written],
        terms: &Terms<'_>,
    ) -> Result<bool, StageError> {
        let completion = reads.next().map_err(|error| StageError::io("read back", terms.part, error))?;
        let Some(Completion { tag, slot, result }) = completion else { return Ok(false) };
        let written = &group[tag];
        match result {
            Ok(read) => {
                let found = whole(&reads.buffer(slot)[..read], written.done.entry.size, terms.algorithm)
                    .map_err(|error| StageError::io("read back", &written.shown(terms), error))?;
                written.judge(found, terms)?;
            }
            // One after another, through the cache.
            Err(RequestError::Os(error)) if refuses_direct(&error) => self.verify(written, terms)?,
            Err(RequestError::Os(error)) => {
                return Err(StageError::io("read back", &written.shown(terms), error));
            }
            Err(short @ RequestError::Short { .. }) => {
                return Err(StageError::io("read back", &written.shown(terms), io::Error::other(short)));
            }
        }
        reads.release(slot);
        Ok(true)
    }

    /// Reads a copy back around the cache, after it was synced.
    ///
    /// # Errors
    /// What was read back is something else.
    pub fn verify(&mut self, written: &Written, terms: &Terms<'_>) -> Result<(), StageError> {
        let entry = &written.done.entry;
        if (entry.kind, entry.digest.is_some()) == (Kind::File, true) {
            let found = self
                .read_back(written, terms.algorithm)
                .map_err(|error| StageError::io("read back", &written.shown(terms), error))?;
            written.judge(found, terms)
        } else {
            written.same_target(terms)
        }
    }

    /// The digest of a small copy as the medium has it.
    fn read_back(&mut self, written: &Written, algorithm: Algorithm) -> io::Result<Digest> {
        let size = written.done.entry.size;
        let room = (size as usize + 1).next_multiple_of(BLOCK);
        let read = open_back(written)?.read(&mut self.buffer[..room], 0)?;
        whole(&self.buffer[..read], size, algorithm)
    }
}

impl Written {
    /// The name of the copy.
    fn copied_to(&self) -> &OsStr {
        self.copy_name.as_deref().unwrap_or(&self.name)
    }

    /// The copy as a person reads it.
    fn shown(&self, terms: &Terms<'_>) -> PathBuf {
        joined(terms.part, &self.done.entry.path.0)
    }

    /// Is what the medium has what was written?
    fn judge(&self, found: Digest, terms: &Terms<'_>) -> Result<(), StageError> {
        match self.done.entry.digest {
            Some(expected) if expected != found && enforced(Check::SmallReadBack) => {
                Err(StageError::Corrupt {
                    path: crate::error::shown(&self.shown(terms)),
                    offset: 0,
                    expected: expected.text(terms.algorithm),
                    found: found.text(terms.algorithm),
                })
            }
            _ => {
                terms.progress.bytes_verified.fetch_add(self.done.entry.size, Relaxed);
                Ok(())
            }
        }
    }

    /// Does the copy of a symbolic link lead where it should?
    fn same_target(&self, terms: &Terms<'_>) -> Result<(), StageError> {
        let target = calls::read_link(self.directory.copy.as_fd(), self.copied_to())
            .map_err(|error| StageError::io("read the link", &self.shown(terms), error))?;
        let wanted = self.done.entry.target.as_ref().map(|target| target.0.as_os_str());
        if wanted == Some(&target) || !enforced(Check::LinkReadBack) {
            return Ok(());
        }
        Err(StageError::Corrupt {
            path: crate::error::shown(&self.shown(terms)),
            offset: 0,
            expected: wanted.map(|wanted| crate::error::shown(Path::new(wanted))).unwrap_or_default(),
            found: crate::error::shown(Path::new(&target)),
        })
    }
}

fn open_back(written: &Written) -> io::Result<Uncached> {
    let (directory, name) = (written.directory.copy.as_fd(), written.copied_to());
    Uncached::open(|direct| calls::open_at(directory, name, OFlags::RDONLY | direct, Mode::empty()))
}

/// The digest of all of a file's bytes, if these are all of them.
fn whole(bytes: &[u8], size: u64, algorithm: Algorithm) -> io::Result<Digest> {
    if bytes.len() as u64 != size {
        return Err(io::Error::other(format!("{} bytes are there, and {size} were written", bytes.len())));
    }
    Ok(algorithm.of(bytes))
}
