//! Engines by name, and where the database of each lies in a directory.

use std::path::{Path, PathBuf};

use crate::dataset::Workload;
use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::postgres::{self, Existing, Managed, Postgres, PostgresOptions};
use crate::sqlite::{Journal, Sqlite};

base::words! {
    /// A database engine.
    #[derive(Default)]
    pub enum EngineKind {
        /// SQLite, within this program: no server, no set-up.
        #[default]
        Sqlite = "sqlite",
        /// PostgreSQL: a server of our own in the directory, or the user's.
        Postgres = "postgres",
    }
}

/// An engine, and how it is reached and set.
#[derive(Debug, Clone, Default)]
pub struct EngineChoice {
    /// Which.
    pub kind: EngineKind,
    /// Of PostgreSQL.
    pub postgres: PostgresOptions,
}

impl From<EngineKind> for EngineChoice {
    fn from(kind: EngineKind) -> Self {
        Self { kind, postgres: PostgresOptions::default() }
    }
}

/// What the database of `db ingest` is called in the place of a workload.
pub const INGEST: &str = "ingest";

/// The database of a workload in a directory.
#[must_use]
pub fn path(kind: EngineKind, workload: Workload, directory: &Path) -> PathBuf {
    named(kind, workload.word(), directory)
}

/// A database in a directory.
#[must_use]
pub fn named(kind: EngineKind, name: &str, directory: &Path) -> PathBuf {
    directory.join(format!("flashwright-{name}.{}", kind.word()))
}

/// Removes a database and all its files, whatever state they are in. A server that a killed command left on it is stopped.
///
/// # Errors
/// [`DatabaseError::Io`]; those of the engine.
pub fn remove(kind: EngineKind, path: &Path) -> Result<(), DatabaseError> {
    match kind {
        EngineKind::Sqlite => Sqlite::files_of(path)
            .iter()
            .try_for_each(|file| std::fs::remove_file(file).map_err(DatabaseError::io("remove it", file))),
        EngineKind::Postgres => postgres::remove(path),
    }
}

/// Opens the database of a workload in a directory, or makes an empty one.
///
/// # Errors
/// [`DatabaseError::Invalid`] if there is no such directory; those of the engine.
pub fn open_or_make(
    choice: &EngineChoice,
    workload: Workload,
    directory: &Path,
) -> Result<Box<dyn Engine>, DatabaseError> {
    check_directory(directory)?;
    open_at(choice, &path(choice.kind, workload, directory), Journal::Rollback)
}

/// Refuses what is not a directory.
pub(crate) fn check_directory(directory: &Path) -> Result<(), DatabaseError> {
    if directory.is_dir() {
        return Ok(());
    }
    Err(DatabaseError::Invalid {
        flag: format!("dir={}", directory.display()),
        problem: "is not a directory".to_owned(),
        hint: "name a directory on the tier, that is there and may be written to".to_owned(),
    })
}

/// Opens a database, or makes an empty one. The journal is SQLite's.
pub(crate) fn open_at(
    choice: &EngineChoice,
    path: &Path,
    journal: Journal,
) -> Result<Box<dyn Engine>, DatabaseError> {
    match choice.kind {
        EngineKind::Sqlite => Ok(Box::new(Sqlite::open(path, journal)?)),
        EngineKind::Postgres => Ok(Box::new(managed(&choice.postgres, path)?)),
    }
}

/// Opens the database of a workload in a directory.
///
/// # Errors
/// [`DatabaseError::Incomplete`] if there is none; as [`open_or_make`].
pub fn open(
    choice: &EngineChoice,
    workload: Workload,
    directory: &Path,
) -> Result<Box<dyn Engine>, DatabaseError> {
    let path = path(choice.kind, workload, directory);
    let is_there = match choice.kind {
        EngineKind::Sqlite => path.exists(),
        EngineKind::Postgres => postgres::is_there(&path),
    };
    if directory.is_dir() && !is_there {
        return Err(DatabaseError::Incomplete { at: path.display().to_string() });
    }
    open_or_make(choice, workload, directory)
}

/// Opens the PostgreSQL database of a workload in a directory.
///
/// # Errors
/// [`DatabaseError::Incomplete`] if there is none; as [`Postgres::managed`].
pub fn server(
    options: &PostgresOptions,
    workload: Workload,
    directory: &Path,
) -> Result<Postgres, DatabaseError> {
    check_directory(directory)?;
    let path = path(EngineKind::Postgres, workload, directory);
    if !postgres::is_there(&path) {
        return Err(DatabaseError::Incomplete { at: path.display().to_string() });
    }
    managed(options, &path)
}

fn managed(options: &PostgresOptions, path: &Path) -> Result<Postgres, DatabaseError> {
    let managed = Managed {
        directory: path.to_owned(),
        programs: options.programs.clone(),
        settings: options.settings.clone(),
        memory_bytes: options.memory_bytes,
    };
    Postgres::managed(&managed, options.sky)
}

/// Opens the database on a server of the user's own, or makes an empty one there.
///
/// # Errors
/// As [`Postgres::existing`].
pub fn connect(connection: &str, options: &PostgresOptions) -> Result<Postgres, DatabaseError> {
    let existing = Existing { connection: connection.to_owned(), settings: options.settings.clone() };
    Postgres::existing(&existing, options.sky)
}
