//! A destination that is there already: the same, byte for byte, or somebody else's.
//!
//! What asks for moves asks twice: Slurm runs a job's stage-out again when its controller restarts. So a destination
//! that is what the move would have made is a success; anything else is refused, and never written over.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use storage::uuid::Uuid;

use super::Run;
use super::find::{Destination, Source};
use super::publish::taken;
use crate::calls;
use crate::digest::CHUNK_BYTES;
use crate::error::StageError;
use crate::journal::{Done, Identity};
use crate::manifest::{self, Entry, Kind};
use crate::names::part_name;
use crate::small::{joined, unchanged};
use crate::tree::entry_of;
use crate::verify::Reader;

impl Run<'_> {
    /// Reads source and destination, and records the source if they are the same.
    ///
    /// # Errors
    /// They are not; the kernel's.
    pub(super) fn adopt(
        &self,
        source: &Source,
        parent: &OwnedFd,
        destination: &Destination,
    ) -> Result<(), StageError> {
        // A part that is never made: whoever gives the job up removes what has its name.
        let uuid = Uuid::random()
            .map_err(|error| StageError::io("get a UUID", Path::new("/proc/sys/kernel/random"), error))?;
        self.journal.name_part(self.id, &part_name(&destination.name, uuid))?;
        let adopting = Adopting { run: self, source, destination, parent };
        if source.is_directory { adopting.directory() } else { adopting.file() }
    }
}

struct Adopting<'a> {
    run: &'a Run<'a>,
    source: &'a Source,
    destination: &'a Destination,
    parent: &'a OwnedFd,
}

impl Adopting<'_> {
    fn taken(&self) -> StageError {
        taken(&self.destination.path())
    }

    fn file(&self) -> Result<(), StageError> {
        let stat = calls::stat_at(self.source.parent.as_fd(), &self.source.name)
            .map_err(|error| StageError::io("look at", &self.source.path, error))?;
        let entry = entry_of(Path::new(""), Kind::File, &stat);
        let mut reader = Reader::new(CHUNK_BYTES);
        let places = [
            (&self.source.parent, self.source.name.as_os_str(), self.source.path.clone()),
            (self.parent, self.destination.name.as_os_str(), self.destination.path()),
        ];
        let done = self.compare(
            &mut reader,
            entry,
            Identity::of(&stat),
            places.each_ref().map(|(d, n, s)| (*d, Path::new(*n), s.as_path())),
        )?;
        unchanged(self.source.parent.as_fd(), &self.source.name, &done.source, &self.source.path)?;
        self.run.journal.record(self.run.id, &[done])
    }

    fn directory(&self) -> Result<(), StageError> {
        let shown = self.destination.path();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let root = calls::open_at(self.parent.as_fd(), &self.destination.name, flags, Mode::empty())
            .map_err(|_| self.taken())?;
        let source = self.source.open_root()?;
        let mut reader = Reader::new(CHUNK_BYTES);
        let mut waiting = vec![std::path::PathBuf::new()];
        while let Some(path) = waiting.pop() {
            self.run.stop.check()?;
            let names = [self.names(&source, &path, &self.source.path)?, self.names(&root, &path, &shown)?];
            if names[0] != names[1] {
                return Err(self.taken());
            }
            let mut done = vec![self.one(&mut reader, &source, &root, &path, Kind::Directory)?];
            for (name, kind) in &names[0] {
                let path = path.join(name);
                match kind {
                    Kind::Directory => waiting.push(path),
                    kind => done.push(self.one(&mut reader, &source, &root, &path, *kind)?),
                }
            }
            self.run.journal.record(self.run.id, &done)?;
        }
        Ok(())
    }

    /// The names in a directory of either tree, in order, without what is no part of a set.
    fn names(
        &self,
        root: &OwnedFd,
        path: &Path,
        shown: &Path,
    ) -> Result<Vec<(std::ffi::OsString, Kind)>, StageError> {
        let failed = |error| StageError::io("list", &joined(shown, path), error);
        let beneath = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let directory =
            calls::open_beneath(root.as_fd(), beneath, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
                .map_err(failed)?;
        let mut list = calls::List::of(directory.as_fd()).map_err(failed)?;
        let mut names = Vec::new();
        while let Some((name, mut kind)) = list.next().map_err(failed)? {
            if crate::names::is_part(&name) || path.join(&name) == Path::new(manifest::NAME) {
                continue;
            }
            if kind == FileType::Unknown {
                let stat = calls::stat_at(directory.as_fd(), &name).map_err(failed)?;
                kind = FileType::from_raw_mode(stat.stx_mode.into());
            }
            let kind = match kind {
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Directory,
                FileType::Symlink => Kind::Symlink,
                _ => return Err(self.taken()),
            };
            names.push((name, kind));
        }
        names.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(names)
    }

    fn one(
        &self,
        reader: &mut Reader,
        source: &OwnedFd,
        root: &OwnedFd,
        path: &Path,
        kind: Kind,
    ) -> Result<Done, StageError> {
        let shown = joined(&self.source.path, path);
        let beneath = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let failed = |error| StageError::io("look at", &shown, error);
        let (stat, targets) = match kind {
            Kind::Symlink => {
                let above =
                    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
                let name = path.file_name().unwrap_or_default();
                let open = |root: &OwnedFd| {
                    calls::open_beneath(
                        root.as_fd(),
                        above,
                        OFlags::RDONLY | OFlags::DIRECTORY,
                        Mode::empty(),
                    )
                };
                let (from, to) = (open(source).map_err(failed)?, open(root).map_err(failed)?);
                let link = |directory: &OwnedFd| calls::read_link(directory.as_fd(), name).map_err(failed);
                (calls::stat_at(from.as_fd(), name).map_err(failed)?, Some((link(&from)?, link(&to)?)))
            }
            _ => {
                let file = calls::open_beneath(source.as_fd(), beneath, OFlags::PATH, Mode::empty())
                    .map_err(failed)?;
                (calls::stat(file.as_fd()).map_err(failed)?, None)
            }
        };
        let mut entry = entry_of(path, kind, &stat);
        if let Some((from, to)) = targets {
            if from != to {
                return Err(self.taken());
            }
            entry.target = Some(crate::names::PathText(from.into()));
        }
        let identity = Identity::of(&stat);
        if kind != Kind::File {
            return Ok(Done { entry, source: identity });
        }
        let shown_there = joined(&self.destination.path(), path);
        self.compare(reader, entry, identity, [(source, path, &shown), (root, path, &shown_there)])
    }

    /// Digests a file in both places; it must be the same.
    fn compare(
        &self,
        reader: &mut Reader,
        mut entry: Entry,
        identity: Identity,
        places: [(&OwnedFd, &Path, &Path); 2],
    ) -> Result<Done, StageError> {
        let algorithm = self.run.spec.options.digest;
        let mut digests = [Vec::new(), Vec::new()];
        for ((directory, path, shown), digests) in places.into_iter().zip(&mut digests) {
            let read =
                reader.chunks(directory.as_fd(), path, shown, entry.size, algorithm, &mut |_, digest| {
                    self.run.stop.check()?;
                    digests.push(digest);
                    Ok(())
                });
            match read {
                Err(StageError::Corrupt { .. }) => return Err(self.taken()),
                read => read?,
            }
        }
        let [from, to] = digests;
        if from != to {
            return Err(self.taken());
        }
        entry.digest = Some(algorithm.of_chunks(&from));
        entry.chunks = if from.len() > 1 { from } else { Vec::new() };
        Ok(Done { entry, source: identity })
    }
}
