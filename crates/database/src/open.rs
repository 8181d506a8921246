//! Engines by name, and where the database of each lies in a directory.

use std::path::{Path, PathBuf};

use crate::dataset::Workload;
use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::sqlite::{Journal, Sqlite};

base::words! {
    /// A database engine.
    #[derive(Default)]
    pub enum EngineKind {
        /// SQLite, within this program: no server, no set-up.
        #[default]
        Sqlite = "sqlite",
    }
}

/// The database of a workload in a directory.
#[must_use]
pub fn path(kind: EngineKind, workload: Workload, directory: &Path) -> PathBuf {
    match kind {
        EngineKind::Sqlite => directory.join(format!("flashwright-{}.sqlite", workload.word())),
    }
}

/// Opens the database of a workload in a directory, or makes an empty one.
///
/// # Errors
/// [`DatabaseError::Invalid`] if there is no such directory; those of the engine.
pub fn open_or_make(
    kind: EngineKind,
    workload: Workload,
    directory: &Path,
) -> Result<Box<dyn Engine>, DatabaseError> {
    if !directory.is_dir() {
        return Err(DatabaseError::Invalid {
            flag: format!("dir={}", directory.display()),
            problem: "is not a directory".to_owned(),
            hint: "name a directory on the tier, that is there and may be written to".to_owned(),
        });
    }
    let path = path(kind, workload, directory);
    match kind {
        EngineKind::Sqlite => Ok(Box::new(Sqlite::open(&path, Journal::Rollback)?)),
    }
}

/// Opens the database of a workload in a directory.
///
/// # Errors
/// [`DatabaseError::Incomplete`] if there is none; as [`open_or_make`].
pub fn open(
    kind: EngineKind,
    workload: Workload,
    directory: &Path,
) -> Result<Box<dyn Engine>, DatabaseError> {
    let path = path(kind, workload, directory);
    if directory.is_dir() && !path.exists() {
        return Err(DatabaseError::Incomplete { at: path.display().to_string() });
    }
    open_or_make(kind, workload, directory)
}
