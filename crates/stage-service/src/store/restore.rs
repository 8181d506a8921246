//! Restoring: what is on the fast tier, read and compared; what is not, staged in from the slow one.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
use stage::tier::Tier;

/// A checkpoint that is to be on the fast tier.
pub(super) struct Wanted {
    pub step: u64,
    /// Its name on the fast tier.
    pub name: OsString,
    /// The tier that has its slow copy.
    pub slow: Arc<dyn Tier>,
    /// Its name there.
    pub in_slow: OsString,
}

impl Wanted {
    fn place(&self) -> Place {
        self.slow.place(&self.in_slow)
    }

    fn manifest(&self) -> Result<Option<Manifest>, StageError> {
        self.slow.manifest(&self.in_slow)
    }
}

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
        if self.config.member.is_some() {
            return self.restore_part(step, None, None, verify, go_on);
        }
        let name = step_name(step);
        self.bring(&Wanted { step, slow: Arc::clone(&self.slow), in_slow: name.clone(), name }, verify, go_on)
    }

    /// Reads what is wanted where it is on the fast tier, or stages it in.
    pub(super) fn bring(
        &self,
        wanted: &Wanted,
        verify: bool,
        go_on: GoOn<'_>,
    ) -> Result<PathBuf, StageError> {
        let path = self.config.fast.join(&wanted.name);
        if is_directory(&self.fast, &wanted.name) {
            match self.restore_here(wanted, &path, verify, go_on) {
                Err(StageError::Corrupt { .. }) if self.can_stage_in(wanted)? => {
                    self.set_aside(&wanted.name)?
                }
                Err(StageError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                restored => return restored.map(|()| path),
            }
        }
        if wanted.manifest()?.is_none() {
            return Err(self.no_such(wanted.step));
        }
        if self.config.read_only {
            return Err(StageError::refused(
                format!(
                    "step {} is on the slow tier alone, and this store is open to be read only",
                    wanted.step
                ),
                format!("read it where it is: {}", wanted.place().shown()),
            ));
        }
        self.stage_in(wanted, go_on)?;
        Ok(path)
    }

    fn can_stage_in(&self, wanted: &Wanted) -> Result<bool, StageError> {
        Ok(!self.config.read_only && wanted.manifest()?.is_some())
    }

    fn restore_here(
        &self,
        wanted: &Wanted,
        path: &Path,
        verify: bool,
        go_on: GoOn<'_>,
    ) -> Result<(), StageError> {
        let directory = open_directory(self.fast.as_fd(), &wanted.name, path)?;
        let pinned = pin(directory.as_fd(), path, go_on)?;
        // It may have been evicted between the two: what is under the name must be what is held.
        let named = open_directory(self.fast.as_fd(), &wanted.name, path)?;
        if !same(&directory, &named).map_err(|error| StageError::io("stat", path, error))? {
            return Err(StageError::io("keep", path, io::Error::from(io::ErrorKind::NotFound)));
        }
        let manifest = match Manifest::read(directory.as_fd(), path)? {
            Some(manifest) => Some((manifest, Times::Ignored)),
            None if !verify => None,
            None => wanted.manifest()?.map(|manifest| (manifest, Times::Compared)),
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
            self.locked().pins.insert(wanted.name.clone(), pinned);
        }
        Ok(())
    }

    /// Names the file of a slow copy that is not as its manifest has it. What comes out of an object store was compared
    /// with the manifest on its way.
    fn check_slow(wanted: &Wanted, manifest: &Manifest, go_on: GoOn<'_>) -> Result<(), StageError> {
        let place = wanted.place();
        let Some(path) = place.path() else { return Ok(()) };
        let set =
            calls::open_directory(path).map_err(|error| StageError::io("open the directory", path, error))?;
        manifest.verify(set.as_fd(), path, go_on)
    }

    /// Removes a fast copy: one that has rotted, of which there is a durable one, or one that is not needed any more.
    pub(super) fn set_aside(&self, name: &OsStr) -> Result<(), StageError> {
        self.locked().pins.remove(name);
        let mover = self.mover()?;
        let stat = |error| StageError::io("stat", &self.config.fast.join(name), error);
        let Some(id) = FileId::at(self.fast.as_fd(), name).map_err(stat)? else { return Ok(()) };
        let part = self.begun_name(&mover, name, Some(&id))?;
        let failed = |error| StageError::io("rename, to remove it,", &self.config.fast.join(name), error);
        calls::publish(self.fast.as_fd(), name, &part).map_err(failed)?;
        self.discard_begun(&mover, &part, Some(&id))
    }

    fn stage_in(&self, wanted: &Wanted, go_on: GoOn<'_>) -> Result<(), StageError> {
        let mover = self.mover()?;
        let (name, staged) = (&wanted.name, staged_name(&wanted.name));
        let (source, path) = (wanted.place(), self.config.fast.join(&staged));
        let manifest = wanted.manifest()?.ok_or_else(|| self.no_such(wanted.step))?;
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
        let waited =
            self.wait_job(&mover, id, None, go_on, &format!("step {} is not staged in", wanted.step));
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
            Self::check_slow(wanted, &manifest, go_on)?;
            let how = "names, or bytes that were right at the second reading".to_owned();
            return Err(StageError::SourceChanged { path: source.shown(), how });
        }
        let pinned = pin(directory.as_fd(), &path, go_on)?;
        calls::publish(self.fast.as_fd(), &staged, name)
            .map_err(|error| StageError::io(format!("rename to {}", shown(Path::new(name))), &path, error))?;
        calls::sync_outside_move(self.fast.as_fd())
            .map_err(|error| StageError::sync("fsync", &self.config.fast, error))?;
        if let Some(pinned) = pinned {
            self.locked().pins.insert(wanted.name.clone(), pinned);
        }
        Ok(())
    }
}
