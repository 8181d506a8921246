//! How the files of all tasks become one checkpoint, in each way: a hidden directory is filled, made durable, and gets its name.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stage::error::StageError;
use stage::spec::Level;
use stage_service::store::{Store, StoreConfig, step_name};

use crate::error::FlashioError;

/// Where the checkpoints of a leg go.
pub enum Sets {
    /// To one directory.
    Plain(PathBuf),
    /// To the fast directory of a store that drains them.
    Drained(Arc<Drained>),
}

/// A store, how far its checkpoints can come, and the directory on its slow tier.
pub struct Drained {
    store: Store,
    level: Level,
    pub slow: PathBuf,
}

impl Drained {
    /// Opens a store; its slow tier may be in memory, where nothing becomes durable.
    pub fn open(fast: &Path, slow: &Path, slow_in_memory: bool) -> Result<Self, FlashioError> {
        let store = Store::open(StoreConfig::new(fast, slow))?;
        let level = if slow_in_memory { Level::InMemory } else { Level::Durable };
        Ok(Self { store, level, slow: slow.to_owned() })
    }

    /// Waits until a checkpoint is drained, unless it is to stop.
    pub fn wait(&self, step: u32, most: Duration, stops: &dyn Fn() -> bool) -> Result<(), FlashioError> {
        let go_on = || match stops() {
            true => Err(StageError::Stopped { what: "the drain".to_owned() }),
            false => Ok(()),
        };
        match self.store.wait(Some(u64::from(step)), self.level, Some(most), &go_on) {
            Ok(true) => Ok(()),
            Ok(false) => Err(FlashioError::Undrained { step: step.into(), waited_s: most.as_secs() }),
            Err(StageError::Stopped { .. }) => Err(FlashioError::Interrupted),
            Err(error) => Err(error.into()),
        }
    }

    /// Bytes that the store has read back itself.
    pub fn verified_bytes(&self) -> Result<u64, FlashioError> {
        Ok(self.store.progress()?.iter().map(|(_, job)| job.bytes_verified).sum())
    }

    /// The newest checkpoint on the fast tier, and its directory.
    pub fn newest(&self) -> Result<(u32, PathBuf), FlashioError> {
        let newest = self.store.latest(Level::Local)?;
        let step = newest.ok_or_else(|| StageError::invalid("there is no checkpoint", "write one"))?;
        // The tasks compare every byte that they read; once is enough.
        let path = self.store.restore(step, false, &stage_service::store::always)?;
        Ok((step as u32, path))
    }

    /// The directory of a drained checkpoint.
    pub fn drained(&self, step: u32) -> PathBuf {
        self.slow.join(step_name(u64::from(step)))
    }
}

impl Sets {
    /// A directory for the tasks to fill.
    pub fn begin(&self, step: u32) -> Result<PathBuf, FlashioError> {
        match self {
            Self::Plain(directory) => {
                let part = part(directory, step);
                std::fs::create_dir(&part).map_err(FlashioError::io("make the directory", &part))?;
                Ok(part)
            }
            Self::Drained(drained) => Ok(drained.store.begin(u64::from(step))?),
        }
    }

    /// Makes a filled directory durable and gives it its name.
    pub fn commit(&self, step: u32) -> Result<(), FlashioError> {
        match self {
            Self::Plain(directory) => {
                let part = part(directory, step);
                sync(&part).map_err(FlashioError::io("fsync", &part))?;
                let name = directory.join(step_name(u64::from(step)));
                std::fs::rename(&part, &name).map_err(FlashioError::io("rename", &part))?;
                sync(directory).map_err(FlashioError::io("fsync", directory))
            }
            Self::Drained(drained) => Ok(drained.store.commit(u64::from(step)).map(drop)?),
        }
    }
}

fn part(directory: &Path, step: u32) -> PathBuf {
    directory.join(format!(".step-{step}.part"))
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
