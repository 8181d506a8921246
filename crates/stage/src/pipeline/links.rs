//! Files of several names. They are left to the end, when all of their names are known: the first of them, in the order
//! of their bytes, is copied, and the others become names of the copy.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{Mode, OFlags};

use super::{By, Pipeline, lane_of};
use crate::calls;
use crate::error::StageError;
use crate::fault::Barrier;
use crate::journal::Done;
use crate::large::Lane;
use crate::names::joined;
use crate::small::{Copied, Copier, Written};
use crate::tree::Directory;

/// Copies that are synced together; each holds two descriptors.
const GROUP: usize = 64;

/// Names by the device and inode that they share.
pub(super) type Links = BTreeMap<(u32, u32, u64), Vec<PathBuf>>;

impl Pipeline<'_> {
    /// Files of several names: the first name, in order, is copied, the others are made names of it.
    pub(super) fn link(
        &self,
        links: Links,
        roots: (OwnedFd, OwnedFd),
        sync: &OwnedFd,
    ) -> Result<(), StageError> {
        let root = Directory { source: roots.0, copy: roots.1, path: PathBuf::new() };
        let mut copier = Copier::default();
        let mut lane = None;
        let mut done = Vec::new();
        let mut written = Vec::new();
        for (_, mut names) in links {
            names.sort_by(|a, b| as_bytes(a).cmp(as_bytes(b)));
            let Some((first, others)) = names.split_first() else { continue };
            let copied = self.copy_linked(&root, first, &mut copier, &mut lane, &mut written)?;
            for other in others {
                done.push(self.another_name(&root, first, other, &copied)?);
            }
            done.push(copied);
            if written.len() >= GROUP {
                self.verify_linked(&mut copier, &mut written, sync)?;
            }
        }
        self.verify_linked(&mut copier, &mut written, sync)?;
        if !done.is_empty() {
            self.journal.record(self.id, &done)?;
        }
        Ok(())
    }

    fn copy_linked(
        &self,
        root: &Directory,
        path: &Path,
        copier: &mut Copier,
        lane: &mut Option<Lane>,
        pending: &mut Vec<Written>,
    ) -> Result<Done, StageError> {
        let (directory, name) = self.directory_of(root, path)?;
        let directory = Arc::new(directory);
        match copier.copy(&directory, &name, false, &self.terms)? {
            Copied::Written(written) => {
                let done = written.done.clone();
                pending.push(written);
                Ok(done)
            }
            Copied::Large(size) => {
                self.found(size);
                let lane = lane_of(lane, &self.lane)?;
                self.copy_large(By::Lane(lane), &directory, &name, &mut || {})
            }
            Copied::Linked { .. } => unreachable!("it was not asked to tell those of several names"),
        }
    }

    /// Makes copies durable and reads them back. Their further names are made durable with the directories that they are
    /// in: what goes on after a crash trusts none of them.
    fn verify_linked(
        &self,
        copier: &mut Copier,
        written: &mut Vec<Written>,
        sync: &OwnedFd,
    ) -> Result<(), StageError> {
        if !written.is_empty() && !self.terms.sync_each {
            calls::sync_file_system(sync.as_fd(), Barrier::LinkedGroup)
                .map_err(|error| StageError::sync("syncfs", self.terms.part, error))?;
        }
        for written in written.drain(..) {
            copier.verify(&written, &self.terms)?;
            self.terms.progress.files_done.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// The directories that a path beneath the roots is in, opened beneath them, and its last name.
    fn directory_of(&self, root: &Directory, path: &Path) -> Result<(Directory, OsString), StageError> {
        let above = path.parent().unwrap_or(Path::new(""));
        let beneath = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let open = |root: &OwnedFd, shown: &Path| {
            calls::open_beneath(root.as_fd(), beneath, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
                .map_err(|error| StageError::io("open the directory", &joined(shown, above), error))
        };
        let directory = Directory {
            source: open(&root.source, self.terms.source)?,
            copy: open(&root.copy, self.terms.part)?,
            path: above.to_owned(),
        };
        Ok((directory, path.file_name().unwrap_or_default().to_owned()))
    }

    fn another_name(
        &self,
        root: &Directory,
        first: &Path,
        other: &Path,
        copied: &Done,
    ) -> Result<Done, StageError> {
        let (from, old) = self.directory_of(root, first)?;
        let (to, new) = self.directory_of(root, other)?;
        let shown = joined(self.terms.part, other);
        match calls::link(from.copy.as_fd(), &old, to.copy.as_fd(), &new) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                calls::remove_file(to.copy.as_fd(), &new)
                    .map_err(|error| StageError::io("remove an earlier copy", &shown, error))?;
                calls::link(from.copy.as_fd(), &old, to.copy.as_fd(), &new)
                    .map_err(|error| StageError::io("link", &shown, error))?;
            }
            made => made.map_err(|error| StageError::io("link", &shown, error))?,
        }
        self.terms.progress.files_total.fetch_add(1, Relaxed);
        self.terms.progress.files_done.fetch_add(1, Relaxed);
        let mut entry = copied.entry.clone();
        entry.path = crate::names::PathText(other.to_owned());
        (entry.digest, entry.chunks) = (None, Vec::new());
        entry.link_to = Some(crate::names::PathText(first.to_owned()));
        Ok(Done::new(entry, copied.source))
    }
}

fn as_bytes(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}
