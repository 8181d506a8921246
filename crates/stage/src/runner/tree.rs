//! A file or a directory as the source of a move.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};

use super::find::Source;
use super::{Notes, adopt};
use crate::calls;
use crate::crew::Errand;
use crate::digest::Digest;
use crate::error::StageError;
use crate::fingerprint::Fingerprint;
use crate::fs_kind;
use crate::journal::Identity;
use crate::large::LaneConfig;
use crate::mounts;
use crate::names::PathText;
use crate::owned::FileId;
use crate::pipeline::{self, Pipeline};
use crate::small::Terms;
use crate::spec::Verb;
use crate::tier::{self, At, Local, Part, Run};
use crate::tree::mounted;

/// See the module.
pub(super) struct Tree {
    path: PathBuf,
    opened: Option<Source>,
    /// Was all of it synced? If not, each file is.
    synced: bool,
}

impl Tree {
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), opened: None, synced: false }
    }

    /// What other processes are told of the move.
    fn errand(&self, run: &Run<'_>, part: &Part<'_>, part_path: &Path) -> Result<Errand, StageError> {
        let source = self.source();
        let absolute = |path: &Path| {
            std::path::absolute(path).map(PathText).map_err(|error| StageError::io("find", path, error))
        };
        let source_id = match source.is_directory {
            true => FileId::of(source.open_root()?.as_fd()),
            false => calls::stat_at(source.parent.as_fd(), &source.name).map(|stat| FileId::in_stat(&stat)),
        };
        Ok(Errand {
            source: absolute(&source.path)?,
            source_id: source_id.map_err(|error| StageError::io("look at", &source.path, error))?,
            part: absolute(part_path)?,
            part_id: FileId::of(part.file.as_fd())
                .map_err(|error| StageError::io("look at", part_path, error))?,
            is_directory: source.is_directory,
            algorithm: run.spec.options.digest,
            preserve: run.spec.options.preserve,
            sync_source: !self.synced,
        })
    }

    fn source(&self) -> &Source {
        self.opened.as_ref().expect("it is opened first")
    }
}

impl tier::Source for Tree {
    fn open(&mut self, run: &Run<'_>) -> Result<(), StageError> {
        adopt::clear_probe(run.journal, run.id, run.spec)?;
        let source = Source::open(&self.path, run.spec.watched())?;
        if run.spec.verb == Verb::Move {
            // Without `/proc`, the walk of the source finds a mount, before the copy has its name.
            if let Ok(Some(point)) = mounts::at_or_below(source.parent.as_fd(), &source.name) {
                return Err(mounted(&point));
            }
        }
        self.opened = Some(source);
        Ok(())
    }

    fn is_directory(&self) -> bool {
        self.source().is_directory
    }

    fn local(&self) -> Option<Local<'_>> {
        Some(self.source().local())
    }

    fn identity(&self) -> Option<Digest> {
        None
    }

    fn goes_on_in(&self, run: &Run<'_>, part: &FileId) -> Result<bool, StageError> {
        // Of a file, which is its own part, only a copy by the chunk.
        let source = self.source();
        if source.is_directory {
            return Ok(true);
        }
        let stat = calls::stat_at(source.parent.as_fd(), &source.name)
            .map_err(|error| StageError::io("look at", &source.path, error))?;
        Ok(run.journal.chunks(run.id, Path::new(""), &Identity::of(&stat), part.ino)?.is_some())
    }

    fn make_durable(&mut self, run: &Run<'_>) -> Result<(), StageError> {
        self.synced = run.local(self.source())?;
        Ok(())
    }

    fn copy_into(
        &mut self,
        run: &Run<'_>,
        part: &Part<'_>,
        notes: &mut Notes,
    ) -> Result<Fingerprint, StageError> {
        let (source, At { parent, path, name }) = (self.source(), part.at);
        let sync =
            calls::open_at(parent.as_fd(), ".".as_ref(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
                .map_err(|error| StageError::io("open the directory", path, error))?;
        let part_path = path.join(name);
        let vouches =
            fs_kind::sync_vouches(parent).map_err(|error| StageError::io("look at", path, error))?;
        let options = &run.spec.options;
        let pipeline = Pipeline {
            id: run.id,
            journal: run.journal,
            terms: Terms {
                source: &source.path,
                part: &part_path,
                algorithm: options.digest,
                preserve: options.preserve,
                sync_each: !vouches,
                sync_source: !self.synced,
                pace: run.pace,
                stop: run.stop,
                progress: run.progress,
            },
            threads: run.threads,
            crew: run
                .crew
                .map(|crew| Ok::<_, StageError>((crew, self.errand(run, part, &part_path)?)))
                .transpose()?,
            resumed: part.resumed,
            lane: LaneConfig {
                depth: match (options.background, source.is_directory) {
                    (true, _) => pipeline::BACKGROUND_DEPTH,
                    (false, true) => pipeline::LANE_DEPTH,
                    (false, false) => LaneConfig::default().depth,
                },
                background: options.background,
                ..LaneConfig::default()
            },
            background: options.background,
            notes: Mutex::default(),
        };
        let copied = if source.is_directory {
            let copied = run.copy_tree(&pipeline, source, part, &sync, vouches)?;
            run.against_its_manifest(&source.open_root()?, &source.path, notes)?;
            copied
        } else {
            run.copy_file(&pipeline, source, part)?
        };
        notes.append(&mut pipeline.notes.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(copied)
    }

    fn adopt(
        &mut self,
        run: &Run<'_>,
        there: &At<'_>,
        is_still: &dyn Fn() -> Result<(), StageError>,
    ) -> Result<(), StageError> {
        run.adopt(self.source(), there, is_still)
    }

    fn is_what_was_copied(&mut self, run: &Run<'_>, copied: Fingerprint) -> Result<(), StageError> {
        run.is_what_was_copied(self.source(), copied)
    }

    fn remove(
        &mut self,
        run: &Run<'_>,
        copy: &dyn tier::Destination,
        notes: &mut Notes,
    ) -> Result<Option<StageError>, StageError> {
        super::remove::remove(run, &self.path, copy, notes)
    }
}
