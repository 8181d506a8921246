//! Large files on their way: each goes on with what the journal says is durable of it, chunk by chunk.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{Mode, OFlags};

use super::hands::Divided;
use super::{By, Pipeline};
use crate::calls;
use crate::crew::is_unsynced;
use crate::error::StageError;
use crate::fault::{Barrier, Moment, comes_to};
use crate::journal::{Done, Identity};
use crate::large::{self, LargeFile};
use crate::manifest::{FILE_BYTES_MAX, Kind};
use crate::metadata;
use crate::names::joined;
use crate::tree::{Directory, entry_of};

impl Pipeline<'_> {
    /// Copies a large file; it is durable, verified and has its metadata when this returns. `written` is as for
    /// [`Lane::copy`].
    ///
    /// # Errors
    /// A source that becomes shorter; a copy that reads back differently.
    pub fn copy_large(
        &self,
        by: By<'_>,
        directory: &Directory,
        name: &OsStr,
        written: &mut dyn FnMut(),
    ) -> Result<Done, StageError> {
        self.copy_large_as(by, directory, name, None, directory.path.join(name), written)
    }

    /// Copies one name to another, which is open. `path` is what is recorded.
    ///
    /// # Errors
    /// As [`Self::copy_large`].
    pub fn copy_large_as(
        &self,
        by: By<'_>,
        directory: &Directory,
        name: &OsStr,
        copy: Option<(&OsStr, &OwnedFd)>,
        path: PathBuf,
        written: &mut dyn FnMut(),
    ) -> Result<Done, StageError> {
        let (from, to) = (joined(self.terms.source, &path), joined(self.terms.part, &path));
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let source = calls::open_at(directory.source.as_fd(), name, flags, Mode::empty())
            .map_err(|error| StageError::io("open", &from, error))?;
        let stat = calls::stat(source.as_fd()).map_err(|error| StageError::io("look at", &from, error))?;
        if stat.stx_size > FILE_BYTES_MAX && !path.as_os_str().is_empty() {
            return Err(StageError::refused(
                format!(
                    "{}: larger than the {FILE_BYTES_MAX} bytes that a manifest can list",
                    crate::error::shown(&from)
                ),
                "move it by itself: a single file has no manifest",
            ));
        }
        let identity = Identity::of(&stat);
        if self.terms.sync_source && self.terms.preserve.sparse {
            large::sync_holes(source.as_fd(), &from)?;
            comes_to(Moment::Sought, || vec![from.clone()]);
        }
        let (destination, done) = self.begin_large(directory, name, copy, &path, &identity, &to)?;
        let progress = self.terms.progress;
        let file = LargeFile {
            source: source.as_fd(),
            destination: destination.as_fd(),
            source_path: &from,
            destination_path: &to,
            bytes: identity.size,
            algorithm: self.terms.algorithm,
            preserve_sparse: self.terms.preserve.sparse,
        };
        let copied = if self.is_for_hands(&by, file.bytes) {
            let divided = Divided { file: &file, path: &path, source: &identity, done };
            self.copy_divided(by, self.lane.chunk_bytes, divided)
        } else {
            let By::Lane(lane) = by else { unreachable!("a hand's file is for hands") };
            let mut seal = |chunks: &[(u64, crate::Digest)]| self.journal.seal(self.id, &path, chunks);
            let copied =
                lane.copy(&file, &done, self.terms.pace, self.terms.stop, progress, &mut seal, written);
            self.note(lane.notes());
            copied
        };
        if copied.as_ref().is_err_and(is_unsynced) {
            // The kernel has dropped what it could not write: nothing in this inode is to be trusted again.
            self.journal.forget(self.id, std::slice::from_ref(&path))?;
        }
        let chunks = copied?;
        let mut entry = entry_of(&path, Kind::File, &stat);
        entry.digest = Some(self.terms.algorithm.of_chunks(&chunks));
        entry.chunks = if chunks.len() > 1 { chunks } else { Vec::new() };
        metadata::apply(
            Some(source.as_fd()),
            destination.as_fd(),
            &entry,
            self.terms.preserve,
            &to,
            progress,
        )?;
        if let Err(error) = calls::sync(destination.as_fd(), Barrier::LargeFile) {
            self.journal.forget(self.id, std::slice::from_ref(&path))?;
            return Err(StageError::sync("fsync", &to, error));
        }
        progress.files_done.fetch_add(1, Relaxed);
        Ok(Done::new(entry, identity))
    }

    /// The file that a large one is copied to, and what an earlier attempt has made durable of it.
    fn begin_large(
        &self,
        directory: &Directory,
        name: &OsStr,
        copy: Option<(&OsStr, &OwnedFd)>,
        path: &Path,
        identity: &Identity,
        shown: &Path,
    ) -> Result<(OwnedFd, BTreeMap<u64, crate::Digest>), StageError> {
        if let Some((_, file)) = copy {
            let file = file.try_clone().map_err(|error| StageError::io("duplicate", shown, error))?;
            let ino =
                calls::stat(file.as_fd()).map_err(|error| StageError::io("look at", shown, error))?.stx_ino;
            return match self.journal.chunks(self.id, path, identity, ino)? {
                Some(done) => Ok((file, done)),
                None if self.resumed => Err(StageError::SourceChanged {
                    path: crate::error::shown(self.terms.source),
                    how: "between two looks at it".to_owned(),
                }),
                None => {
                    self.journal.begin_large(self.id, path, identity, ino)?;
                    Ok((file, BTreeMap::new()))
                }
            };
        }
        if self.resumed
            && let Ok(file) = calls::open_at(directory.copy.as_fd(), name, OFlags::RDWR, Mode::empty())
        {
            let stat = calls::stat(file.as_fd()).map_err(|error| StageError::io("look at", shown, error))?;
            if let Some(done) = self.journal.chunks(self.id, path, identity, stat.stx_ino)? {
                return Ok((file, done));
            }
        }
        let file = calls::create(directory.copy.as_fd(), name, OFlags::RDWR)
            .map_err(|error| StageError::io("create", shown, error))?;
        let stat = calls::stat(file.as_fd()).map_err(|error| StageError::io("look at", shown, error))?;
        self.journal.begin_large(self.id, path, identity, stat.stx_ino)?;
        Ok((file, BTreeMap::new()))
    }
}
