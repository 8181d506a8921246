//! What a hand does with a task.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{Mode, OFlags};

use super::{Copied, Errand, Task};
use crate::calls;
use crate::digest::Digest;
use crate::error::{StageError, shown};
use crate::fingerprint::Identity;
use crate::fs_kind;
use crate::large::{self, Lane, LaneConfig, LargeFile};
use crate::names::{PathText, joined};
use crate::owned::FileId;
use crate::pace::{Pace, Progress, Stop, Unlimited};
use crate::small::{self, Copier, Terms, Written};
use crate::tree::Directory;

/// Files that are read back side by side.
const READ_BACK: usize = 128;

/// One that copies for a move, below the directories of one errand.
pub struct Hand {
    errand: Errand,
    source: OwnedFd,
    part: OwnedFd,
    sync_each: bool,
    copier: Copier,
    lane: Option<Lane>,
}

impl Hand {
    /// Opens source and part as this process sees them.
    ///
    /// # Errors
    /// [`StageError::Refused`] if one of them is not what the errand says.
    pub fn open(errand: &Errand) -> Result<Self, StageError> {
        let source = opened(&errand.source.0, errand.is_directory, OFlags::RDONLY)?;
        let part = opened(&errand.part.0, errand.is_directory, OFlags::RDWR)?;
        for (path, file, expected) in
            [(&errand.source.0, &source, errand.source_id), (&errand.part.0, &part, errand.part_id)]
        {
            let found = FileId::of(file.as_fd()).map_err(|error| StageError::io("look at", path, error))?;
            if found != expected {
                return Err(StageError::refused(
                    format!("{}: is not what the first task has there", shown(path)),
                    "each node must have source and destination mounted at the same place",
                ));
            }
        }
        let vouches =
            fs_kind::sync_vouches(&part).map_err(|error| StageError::io("look at", &errand.part.0, error))?;
        let errand = errand.clone();
        Ok(Self { errand, source, part, sync_each: !vouches, copier: Copier::default(), lane: None })
    }

    /// The errand that it was opened for.
    #[must_use]
    pub const fn errand(&self) -> &Errand {
        &self.errand
    }

    /// Does a task. What it returns is durable and was read back.
    ///
    /// # Errors
    /// Those of a copy.
    pub fn work(&mut self, task: &Task, stop: &Stop) -> Result<Copied, StageError> {
        match task {
            Task::Names(directories) => self.names(directories, stop),
            Task::Chunks { path, source, copy, chunks } => {
                self.chunks(&path.0, source, copy, chunks.clone(), stop)
            }
        }
    }

    fn names(
        &mut self,
        directories: &[(PathText, Vec<PathText>)],
        stop: &Stop,
    ) -> Result<Copied, StageError> {
        let (progress, errand) = (Progress::default(), self.errand.clone());
        let terms = Terms {
            source: &errand.source.0,
            part: &errand.part.0,
            algorithm: errand.algorithm,
            preserve: errand.preserve,
            sync_each: self.sync_each,
            sync_source: errand.sync_source,
            pace: &Unlimited,
            stop,
            progress: &progress,
        };
        let (mut written, mut large, mut linked): (Vec<Written>, _, _) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (path, names)) in directories.iter().enumerate() {
            stop.check()?;
            let directory = Arc::new(self.directory(&path.0)?);
            let names = names.iter().map(|name| name.0.clone().into_os_string()).collect();
            let mut became = |name: &OsStr, copied| {
                let name = PathText(PathBuf::from(name));
                match copied {
                    small::Copied::Written(one) => written.push(one),
                    small::Copied::Large(size) => large.push((number, name, size)),
                    small::Copied::Linked { inode: (_, _, ino) } => linked.push((number, name, ino)),
                }
                Ok(())
            };
            self.copier.copy_many(&directory, names, errand.preserve.links, &terms, &mut became)?;
        }
        if !self.sync_each && !written.is_empty() {
            small::sync_group(self.part.as_fd(), terms.part)?;
        }
        for group in written.chunks(READ_BACK) {
            self.copier.verify_many(group, &terms)?;
        }
        let done = written.into_iter().map(|written| (written.done.entry, written.done.source)).collect();
        Ok(Copied::Names { done, large, linked, not_preserved: progress.not_preserved.load(Relaxed) })
    }

    fn directory(&self, path: &Path) -> Result<Directory, StageError> {
        let open = |root: &OwnedFd, shown: &Path| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let beneath = if path.as_os_str().is_empty() { Path::new(".") } else { path };
            calls::open_beneath(root.as_fd(), beneath, flags, Mode::empty())
                .map_err(|error| StageError::io("open the directory", &shown.join(path), error))
        };
        let source = open(&self.source, &self.errand.source.0)?;
        let copy = open(&self.part, &self.errand.part.0)?;
        Ok(Directory { source, copy, path: path.to_owned() })
    }

    fn chunks(
        &mut self,
        path: &Path,
        expected: &Identity,
        copy: &FileId,
        chunks: Range<u64>,
        stop: &Stop,
    ) -> Result<Copied, StageError> {
        let (from, to) = (joined(&self.errand.source.0, path), joined(&self.errand.part.0, path));
        let source = file(&self.source, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, &from)?;
        let stat = calls::stat(source.as_fd()).map_err(|error| StageError::io("look at", &from, error))?;
        if let Some(how) = expected.change(&Identity::of(&stat)) {
            return Err(StageError::SourceChanged { path: shown(&from), how: how.to_string() });
        }
        let destination = file(&self.part, path, OFlags::RDWR, &to)?;
        let found = FileId::of(destination.as_fd()).map_err(|error| StageError::io("look at", &to, error))?;
        if found != *copy {
            return Err(StageError::refused(
                format!("{}: something else was put in its place", shown(&to)),
                "others may write to this directory; take that away",
            ));
        }
        if self.errand.sync_source && self.errand.preserve.sparse {
            large::sync_holes(source.as_fd(), &from)?;
        }
        let file = LargeFile {
            source: source.as_fd(),
            destination: destination.as_fd(),
            source_path: &from,
            destination_path: &to,
            bytes: expected.size,
            algorithm: self.errand.algorithm,
            preserve_sparse: self.errand.preserve.sparse,
        };
        if self.lane.is_none() {
            self.lane = Some(Lane::new(&LaneConfig { reflink: false, ..LaneConfig::default() })?);
        }
        let lane = self.lane.as_mut().expect("it was made above");
        Ok(Copied::Chunks(copy_range(lane, &file, chunks, &Unlimited, stop)?))
    }
}

/// Copies some chunks of a file as if all others were there; they are durable and read back then.
pub(crate) fn copy_range(
    lane: &mut Lane,
    file: &LargeFile<'_>,
    chunks: Range<u64>,
    pace: &dyn Pace,
    stop: &Stop,
) -> Result<Vec<(u64, Digest)>, StageError> {
    let all = 0..file.bytes.div_ceil(lane.chunk_bytes());
    let elsewhere: BTreeMap<u64, Digest> =
        all.filter(|index| !chunks.contains(index)).map(|index| (index, file.algorithm.of(&[]))).collect();
    let mut copied = Vec::new();
    let mut seal = |sealed: &[(u64, Digest)]| {
        copied.extend_from_slice(sealed);
        Ok(())
    };
    lane.copy(file, &elsewhere, pace, stop, &Progress::default(), &mut seal, &mut || {})?;
    Ok(copied)
}

/// A root by its path. Nothing is followed at its end.
fn opened(path: &Path, is_directory: bool, of_file: OFlags) -> Result<OwnedFd, StageError> {
    let flags = if is_directory { OFlags::RDONLY | OFlags::DIRECTORY } else { of_file };
    let (parent, name) = (path.parent().unwrap_or(path), path.file_name());
    let failed = |error| StageError::io("open", path, error);
    let parent = calls::open_directory(parent).map_err(failed)?;
    calls::open_at(parent.as_fd(), name.unwrap_or(".".as_ref()), flags, Mode::empty()).map_err(failed)
}

/// A file beneath a root, or the root itself.
fn file(root: &OwnedFd, path: &Path, flags: OFlags, shown: &Path) -> Result<OwnedFd, StageError> {
    let failed = |error| StageError::io("open", shown, error);
    if path.as_os_str().is_empty() {
        return root.try_clone().map_err(failed);
    }
    let root: BorrowedFd<'_> = root.as_fd();
    calls::open_beneath(root, path, flags, Mode::empty()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Algorithm;
    use crate::spec::Preserve;

    fn id(path: &Path) -> FileId {
        FileId::of(std::fs::File::open(path).expect("opens").as_fd()).expect("is there")
    }

    fn errand(folder: &Path) -> Errand {
        let [source, part] = ["source", "part"].map(|name| folder.join(name));
        for path in [&source, &part] {
            std::fs::create_dir(path).expect("makes");
        }
        Errand {
            source_id: id(&source),
            part_id: id(&part),
            source: PathText(source),
            part: PathText(part),
            is_directory: true,
            algorithm: Algorithm::default(),
            preserve: Preserve::default(),
            sync_source: true,
        }
    }

    #[test]
    fn errand_of_other_directories_is_refused() {
        let folder = tempfile::tempdir().expect("a directory");
        let right = errand(folder.path());
        assert!(Hand::open(&right).is_ok());
        for wrong in [
            Errand { source_id: right.part_id, ..right.clone() },
            Errand { part_id: right.source_id, ..right.clone() },
        ] {
            assert!(matches!(Hand::open(&wrong), Err(StageError::Refused { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn chunks_of_a_changed_source_and_of_a_replaced_copy_are_refused() {
        let folder = tempfile::tempdir().expect("a directory");
        let errand = errand(folder.path());
        let [from, to] = [&errand.source, &errand.part].map(|root| root.0.join("file"));
        std::fs::write(&from, vec![7; 10_000]).expect("writes");
        std::fs::write(&to, "").expect("writes");
        let source =
            Identity::of(&calls::stat(std::fs::File::open(&from).expect("opens").as_fd()).expect("is there"));
        let mut hand = Hand::open(&errand).expect("opens");
        let mut copy = |source: Identity, copy: FileId| {
            let path = PathText("file".into());
            hand.work(&Task::Chunks { path, source, copy, chunks: 0..1 }, &Stop::new())
        };
        let changed = Identity { size: source.size + 1, ..source };
        assert!(matches!(copy(changed, id(&to)), Err(StageError::SourceChanged { .. })));
        assert!(matches!(copy(source, id(&from)), Err(StageError::Refused { .. })));
        assert_eq!(std::fs::read(&to).expect("reads"), b"", "nothing was written");
        assert!(matches!(copy(source, id(&to)), Ok(Copied::Chunks(chunks)) if chunks.len() == 1));
        assert_eq!(std::fs::read(&to).expect("reads"), vec![7; 10_000]);
    }

    #[test]
    fn names_are_copied_synced_and_told_with_their_sources() {
        let folder = tempfile::tempdir().expect("a directory");
        let errand = errand(folder.path());
        let from = errand.source.0.clone();
        std::fs::write(from.join("small"), "abc").expect("writes");
        std::fs::write(from.join("large"), vec![1; small::LARGE as usize]).expect("writes");
        std::fs::write(from.join("one"), "two names").expect("writes");
        std::fs::hard_link(from.join("one"), from.join("other")).expect("links");
        let names = ["small", "large", "one"].map(|name| PathText(name.into())).to_vec();
        let mut hand = Hand::open(&errand).expect("opens");
        let task = Task::Names(vec![(PathText::default(), names)]);
        let Ok(Copied::Names { done, large, linked, .. }) = hand.work(&task, &Stop::new()) else {
            panic!("names")
        };
        assert_eq!(std::fs::read(errand.part.0.join("small")).expect("reads"), b"abc");
        assert_eq!((done.len(), done[0].0.size, done[0].0.path.0.as_path()), (1, 3, Path::new("small")));
        assert_eq!(large, [(0, PathText("large".into()), small::LARGE)]);
        assert_eq!(linked.len(), 1);
        assert!(!errand.part.0.join("one").exists(), "a file of several names is left to the move");
    }
}
