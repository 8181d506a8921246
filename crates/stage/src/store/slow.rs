//! The slow tier of a store: a directory, or a prefix in an object store.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::files::{is_directory, open_directory, steps_in, tier};
#[cfg(feature = "s3")]
use super::step_of;
use super::{GoOn, step_name};
use crate::error::StageError;
use crate::names::PathText;
#[cfg(feature = "s3")]
use crate::object::ObjectTier;
use crate::set::Manifest;
use crate::spec::Place;

#[derive(Debug)]
pub(super) enum Slow {
    Directory {
        path: PathBuf,
        directory: OwnedFd,
    },
    #[cfg(feature = "s3")]
    Objects(Box<ObjectTier>),
}

impl Slow {
    /// Opens it; a directory is made if its parent is there and it is to be written to.
    pub fn open(place: &Place, read_only: bool) -> Result<Self, StageError> {
        match place {
            Place::Path(path) => {
                let directory = tier("slow", &path.0, read_only)?;
                Ok(Self::Directory { path: path.0.clone(), directory })
            }
            #[cfg(feature = "s3")]
            Place::Object(url) => Ok(Self::Objects(Box::new(ObjectTier::open(url)?))),
            #[cfg(not(feature = "s3"))]
            Place::Object(_) => Err(StageError::invalid(
                "this program is built without object stores",
                "build it with the feature s3",
            )),
        }
    }

    /// Where checkpoints are.
    pub fn tier(&self) -> Place {
        match self {
            Self::Directory { path, .. } => Place::Path(PathText(path.clone())),
            #[cfg(feature = "s3")]
            Self::Objects(tier) => Place::Object(tier.prefix_url()),
        }
    }

    /// Where a checkpoint is, or is to be.
    pub fn place(&self, step: u64) -> Place {
        match self {
            Self::Directory { path, .. } => Place::Path(PathText(path.join(step_name(step)))),
            #[cfg(feature = "s3")]
            Self::Objects(tier) => Place::Object(tier.url(&step_name(step).to_string_lossy())),
        }
    }

    /// Has something the name of this checkpoint?
    pub fn has(&self, step: u64) -> Result<bool, StageError> {
        match self {
            Self::Directory { directory, .. } => Ok(is_directory(directory, &step_name(step))),
            #[cfg(feature = "s3")]
            Self::Objects(tier) => tier.has(&step_name(step).to_string_lossy()),
        }
    }

    /// The checkpoints that have a name, oldest first.
    pub fn steps(&self) -> Result<Vec<u64>, StageError> {
        match self {
            Self::Directory { path, directory } => steps_in(directory, path),
            #[cfg(feature = "s3")]
            Self::Objects(tier) => {
                let of = |name: &str| step_of(name.as_ref());
                let mut steps: Vec<u64> =
                    tier.names(&|name| of(name).is_some())?.iter().filter_map(|name| of(name)).collect();
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
            #[cfg(feature = "s3")]
            Self::Objects(_) => Ok(true),
        }
    }

    /// A checkpoint's manifest, if it is whole.
    pub fn manifest(&self, step: u64) -> Result<Option<Manifest>, StageError> {
        match self {
            Self::Directory { path, directory } => manifest_in(directory, path, step),
            #[cfg(feature = "s3")]
            Self::Objects(tier) => tier.manifest(&step_name(step).to_string_lossy()),
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
            #[cfg(feature = "s3")]
            Self::Objects(_) => Ok(()),
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
