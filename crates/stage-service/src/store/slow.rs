//! The slow tier of a store: a directory, or a prefix in an object store.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::files::{is_directory, open_directory, steps_in, tier};
use super::{GoOn, step_name, step_of};
use stage::error::StageError;
use stage::names::PathText;
use stage::pace::Stop;
use stage::set::Manifest;
use stage::spec::Place;
use stage::tier::{Tier, Tiers};

#[derive(Debug)]
pub(super) enum Slow {
    Directory { path: PathBuf, directory: OwnedFd },
    Objects { url: String, tier: Box<dyn Tier> },
}

impl Slow {
    /// Opens it; a directory is made if its parent is there and it is to be written to.
    pub fn open(place: &Place, read_only: bool, parents: bool, tiers: &Tiers) -> Result<Self, StageError> {
        match place {
            Place::Path(path) => {
                let directory = tier("slow", &path.0, read_only, parents)?;
                Ok(Self::Directory { path: path.0.clone(), directory })
            }
            Place::Object(url) => {
                Ok(Self::Objects { url: url.clone(), tier: tiers.open(place, &Stop::new())? })
            }
        }
    }

    /// Where checkpoints are.
    pub fn tier(&self) -> Place {
        match self {
            Self::Directory { path, .. } => Place::Path(PathText(path.clone())),
            Self::Objects { url, .. } => Place::Object(url.clone()),
        }
    }

    /// Where a checkpoint is, or is to be.
    pub fn place(&self, step: u64) -> Place {
        match self {
            Self::Directory { path, .. } => Place::Path(PathText(path.join(step_name(step)))),
            Self::Objects { tier, .. } => tier.place(&step_name(step)),
        }
    }

    /// Has something the name of this checkpoint?
    pub fn has(&self, step: u64) -> Result<bool, StageError> {
        match self {
            Self::Directory { directory, .. } => Ok(is_directory(directory, &step_name(step))),
            Self::Objects { tier, .. } => tier.has(&step_name(step)),
        }
    }

    /// The checkpoints that have a name, oldest first.
    pub fn steps(&self) -> Result<Vec<u64>, StageError> {
        match self {
            Self::Directory { path, directory } => steps_in(directory, path),
            Self::Objects { tier, .. } => {
                let names = tier.names(&|name| step_of(name).is_some())?;
                let mut steps: Vec<u64> = names.iter().filter_map(|name| step_of(name)).collect();
                steps.sort_unstable();
                Ok(steps)
            }
        }
    }

    /// Is a checkpoint that has a name one that is whole, as far as its manifest tells?
    pub fn is_whole(&self, step: u64) -> Result<bool, StageError> {
        match self {
            Self::Directory { .. } => Ok(self.manifest(step)?.is_some()),
            // The manifest is what gives it the name, and it was read back when it was put.
            Self::Objects { .. } => Ok(true),
        }
    }

    /// A checkpoint's manifest, if it is whole.
    pub fn manifest(&self, step: u64) -> Result<Option<Manifest>, StageError> {
        match self {
            Self::Directory { path, directory } => manifest_in(directory, path, step),
            Self::Objects { tier, .. } => tier.manifest(&step_name(step)),
        }
    }

    /// Says which file of a checkpoint is not as its manifest has it. What comes out of an object store was compared
    /// with the manifest on its way.
    pub fn verify(&self, step: u64, manifest: &Manifest, go_on: GoOn<'_>) -> Result<(), StageError> {
        match self {
            Self::Directory { path, directory } => {
                let path = path.join(step_name(step));
                let set = open_directory(directory.as_fd(), &step_name(step), &path)?;
                manifest.verify(set.as_fd(), &path, go_on)
            }
            Self::Objects { .. } => Ok(()),
        }
    }
}

fn manifest_in(tier: &OwnedFd, path: &Path, step: u64) -> Result<Option<Manifest>, StageError> {
    if !is_directory(tier, &step_name(step)) {
        return Ok(None);
    }
    let path = path.join(step_name(step));
    Manifest::read(open_directory(tier.as_fd(), &step_name(step), &path)?.as_fd(), &path)
}
