//! Restoring: what is on the fast tier, read and compared; what is not, staged in from the slow one.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use super::files::{is_directory, open_directory, same};
use super::{GoOn, Store, staged_name, step_name};
use stage::State;
use stage::calls;
use stage::error::{StageError, shown};
use stage::job::JobStatus;
use stage::names::PathText;
use stage::owned::FileId;
use stage::retention::pin;
use stage::set::{Manifest, Times};
use stage::spec::{JobSpec, Options, Place, Preserve, Verb};

impl Store {
    /// Where a checkpoint can be read on the fast tier: where it is, or, if it has gone from there, staged in from the
    /// slow tier. It stays there until the store is closed. `verify` reads what is there and compares it with its
    /// manifest, its own or the slow copy's, before it is handed out; what is staged in is always verified. A fast copy
    /// whose bytes have rotted is replaced by the durable one.
    ///
    /// # Errors
    /// [`StageError::Invalid`] if there is no such checkpoint; [`StageError::Refused`] if the fast copy is not what was
    /// committed; [`StageError::Corrupt`] if no copy is right; what `go_on` says.
    pub fn restore(&self, step: u64, verify: bool, go_on: GoOn<'_>) -> Result<PathBuf, StageError> {
        self.own_process()?;
        let path = self.config.fast.join(step_name(step));
        if is_directory(&self.fast, &step_name(step)) {
            match self.restore_here(step, &path, verify, go_on) {
                Err(StageError::Corrupt { .. }) if self.can_stage_in(step)? => self.set_aside(step)?,
                Err(StageError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                restored => return restored.map(|()| path),
            }
        }
        if self.slow.manifest(&step_name(step))?.is_none() {
            return Err(self.no_such(step));
        }
        if self.config.read_only {
            return Err(StageError::refused(
                format!("step {step} is on the slow tier alone, and this store is open to be read only"),
                format!("read it where it is: {}", self.slow.place(&step_name(step)).shown()),
            ));
        }
        self.stage_in(step, go_on)?;
        Ok(path)
    }

    fn can_stage_in(&self, step: u64) -> Result<bool, StageError> {
        Ok(!self.config.read_only && self.slow.manifest(&step_name(step))?.is_some())
    }

    fn restore_here(&self, step: u64, path: &Path, verify: bool, go_on: GoOn<'_>) -> Result<(), StageError> {
        let directory = open_directory(self.fast.as_fd(), &step_name(step), path)?;
        let pinned = pin(directory.as_fd(), path, go_on)?;
        // It may have been evicted between the two: what is under the name must be what is held.
        let named = open_directory(self.fast.as_fd(), &step_name(step), path)?;
        if !same(&directory, &named).map_err(|error| StageError::io("stat", path, error))? {
            return Err(StageError::io("keep", path, io::Error::from(io::ErrorKind::NotFound)));
        }
        let manifest = match Manifest::read(directory.as_fd(), path)? {
            Some(manifest) => Some((manifest, Times::Ignored)),
            None if !verify => None,
            None => self.slow.manifest(&step_name(step))?.map(|manifest| (manifest, Times::Compared)),
        };
        if let Some((manifest, times)) = manifest.filter(|_| verify) {
            if let Some(how) = manifest.differs_from(directory.as_fd(), path, times)? {
                return Err(StageError::refused(
                    format!("{} is not what was committed: {how}", shown(path)),
                    "rename it; the next restore takes the durable copy",
                ));
            }
            manifest.verify(directory.as_fd(), path, go_on)?;
        }
        if let Some(pinned) = pinned {
            self.locked().pins.insert(step, pinned);
        }
        Ok(())
    }

    /// Names the file of a slow copy that is not as its manifest has it. What comes out of an object store was compared
    /// with the manifest on its way.
    fn check_slow(&self, step: u64, manifest: &Manifest, go_on: GoOn<'_>) -> Result<(), StageError> {
        let place = self.slow.place(&step_name(step));
        let Some(path) = place.path() else { return Ok(()) };
        let set =
            calls::open_directory(path).map_err(|error| StageError::io("open the directory", path, error))?;
        manifest.verify(set.as_fd(), path, go_on)
    }

    /// A fast copy that has rotted, of which there is a durable one.
    fn set_aside(&self, step: u64) -> Result<(), StageError> {
        self.locked().pins.remove(&step);
        let (mover, name) = (self.mover()?, step_name(step));
        let stat = |error| StageError::io("stat", &self.config.fast.join(&name), error);
        let Some(id) = FileId::at(self.fast.as_fd(), &name).map_err(stat)? else { return Ok(()) };
        let part = self.begun_name(&mover, &name, Some(&id))?;
        let failed = |error| StageError::io("rename, to remove it,", &self.config.fast.join(&name), error);
        calls::publish(self.fast.as_fd(), &name, &part).map_err(failed)?;
        self.discard_begun(&mover, &part, Some(&id))
    }

    fn stage_in(&self, step: u64, go_on: GoOn<'_>) -> Result<(), StageError> {
        let mover = self.mover()?;
        let (name, staged) = (step_name(step), staged_name(step));
        let (source, path) = (self.slow.place(&step_name(step)), self.config.fast.join(&staged));
        let manifest = self.slow.manifest(&step_name(step))?.ok_or_else(|| self.no_such(step))?;
        let spec = JobSpec {
            verb: Verb::Copy,
            source: source.clone(),
            destination: Place::Path(PathText(path.clone())),
            options: Options {
                digest: manifest.algorithm(),
                preserve: Preserve { xattrs: self.config.options.preserve.xattrs, ..Preserve::USUAL },
                inward: true,
                ..Options::default()
            },
        };
        let under_way = |job: &JobStatus| !job.state.is_final() && job.spec == spec;
        if !mover.status(None)?.iter().any(under_way) {
            self.discard_staged(&mover, &staged)?;
        }
        let id = mover.submit(spec)?;
        let waited = self.wait_job(&mover, id, None, go_on, &format!("step {step} is not staged in"));
        if waited.is_err() && mover.status(Some(id))?.iter().any(|job| job.state == State::Failed) {
            // The next restore begins anew, so that nothing of a copy that is not right is left on the fast tier.
            if let Err(error) = mover.cancel(id) {
                tracing::warn!(job = id, %error, "what was staged in could not be removed");
            }
        }
        waited?;
        // The job has read back what it wrote; that it wrote what was once drained, the two manifests say.
        let directory = open_directory(self.fast.as_fd(), &staged, &path)?;
        let copied = Manifest::read(directory.as_fd(), &path)?;
        let right = copied.map(|copied| copied.same_bytes(&manifest)).transpose()?;
        if right != Some(true) {
            self.discard_staged(&mover, &staged)?;
            self.check_slow(step, &manifest, go_on)?;
            let how = "names, or bytes that were right at the second reading".to_owned();
            return Err(StageError::SourceChanged { path: source.shown(), how });
        }
        let pinned = pin(directory.as_fd(), &path, go_on)?;
        calls::publish(self.fast.as_fd(), &staged, &name).map_err(|error| {
            StageError::io(format!("rename to {}", shown(Path::new(&name))), &path, error)
        })?;
        calls::sync_outside_move(self.fast.as_fd())
            .map_err(|error| StageError::sync("fsync", &self.config.fast, error))?;
        if let Some(pinned) = pinned {
            self.locked().pins.insert(step, pinned);
        }
        Ok(())
    }
}
