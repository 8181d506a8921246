//! results.db of a comparison: an SQLite file with the tiers and every run.
//!
//! A block's runs go in with one transaction and a synced rollback journal, so what was measured before an interruption is kept. Columns
//! stand for those who ask the file themselves; `record` has the whole run as JSON (docs/formats.md).

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, params};
use serde::{Deserialize, Serialize};

use crate::dataset::Dataset;
use crate::error::DatabaseError;
use crate::query::Query;
use crate::record::{LoadedTier, Plan, Run};

/// `fldb`: marks an SQLite file as the results of a comparison of databases.
const APPLICATION_ID: i64 = 0x666c_6462;
/// The format that this program writes and reads.
const FORMAT: i64 = 1;
/// The file's name in the directory of results.
pub const FILE_NAME: &str = "results.db";

/// What was compared, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// The database.
    pub dataset: Dataset,
    /// The queries.
    pub queries: Vec<Query>,
    /// The tiers.
    pub tiers: Vec<LoadedTier>,
    /// How each query is answered; empty in results of versions that did not ask.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<Plan>,
    /// What bears on the figures.
    pub notes: Vec<String>,
}

/// An open results file.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

/// What a results file has.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// What was compared.
    pub meta: Meta,
    /// All runs of complete blocks.
    pub runs: Vec<Run>,
}

impl Store {
    /// Makes a results file.
    ///
    /// # Errors
    /// [`DatabaseError::Io`] if there is a file already; [`DatabaseError::Engine`].
    pub fn create(path: &Path, meta: &Meta) -> Result<Self, DatabaseError> {
        // The file must be new: another one's runs are not mixed with these.
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(DatabaseError::io("make it", path))?;
        let made = Connection::open(path).and_then(|connection| {
            connection.execute_batch(&format!(
                "PRAGMA application_id = {APPLICATION_ID};
                 PRAGMA user_version = {FORMAT};
                 CREATE TABLE meta (document TEXT NOT NULL);
                 CREATE TABLE runs (
                     id INTEGER PRIMARY KEY,
                     block INTEGER NOT NULL,
                     tier TEXT NOT NULL,
                     query TEXT NOT NULL,
                     temperature TEXT NOT NULL,
                     query_key INTEGER NOT NULL,
                     elapsed_ns INTEGER NOT NULL,
                     rows INTEGER NOT NULL,
                     record TEXT NOT NULL,
                     UNIQUE (block, tier, query, temperature)
                 );"
            ))?;
            let document = serde_json::to_string(meta).map_err(unstorable)?;
            connection.execute("INSERT INTO meta VALUES (?1)", [document])?;
            Ok(connection)
        });
        let connection = made.map_err(|error| failed(path, "make it", error))?;
        Ok(Self { connection, path: path.to_owned() })
    }

    /// Opens a results file to add blocks.
    ///
    /// # Errors
    /// As [`read`].
    pub fn open(path: &Path) -> Result<Self, DatabaseError> {
        read(path)?;
        let connection = Connection::open(path).map_err(|error| failed(path, "open it", error))?;
        Ok(Self { connection, path: path.to_owned() })
    }

    /// Keeps a block, durably and whole.
    ///
    /// # Errors
    /// [`DatabaseError::Engine`].
    pub fn block(&mut self, tiers: &[LoadedTier], runs: &[Run]) -> Result<(), DatabaseError> {
        let kept = self.connection.transaction().and_then(|transaction| {
            for run in runs {
                let record = serde_json::to_string(run).map_err(unstorable)?;
                transaction.execute(
                    "INSERT INTO runs (block, tier, query, temperature, query_key, elapsed_ns, rows, record) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                    params![
                        run.block,
                        tiers[run.tier].name,
                        run.query.word(),
                        run.temperature.word(),
                        run.key as i64,
                        run.asked.cost.elapsed_ns as i64,
                        run.asked.answer.rows as i64,
                        record
                    ],
                )?;
            }
            transaction.commit()
        });
        kept.map_err(|error| failed(&self.path, "keep a block", error))
    }
}

/// Reads a results file, or the one of a directory.
///
/// # Errors
/// [`DatabaseError::Engine`] if it cannot be read, [`DatabaseError::Invalid`] if it is another file or of another format.
pub fn read(path: &Path) -> Result<Kept, DatabaseError> {
    let path = if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() };
    let invalid = |problem: String, hint: &str| DatabaseError::Invalid {
        flag: format!("results={}", path.display()),
        problem,
        hint: hint.to_owned(),
    };
    let opened = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let connection = opened.map_err(|error| failed(&path, "open it", error))?;
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let marks = number("application_id").and_then(|id| Ok((id, number("user_version")?)));
    match marks.map_err(|error| failed(&path, "read it", error))? {
        (APPLICATION_ID, FORMAT) => {}
        (APPLICATION_ID, newer) => {
            let problem = format!("has format {newer}, and this program reads {FORMAT}");
            return Err(invalid(problem, "use the flashwright that wrote it"));
        }
        _ => {
            let problem = "is not the results of db compare".to_owned();
            return Err(invalid(problem, "flashwright report shows those of a sweep"));
        }
    }
    let kept = documents(&connection).map_err(|error| failed(&path, "read it", error))?;
    let parse =
        |error: serde_json::Error| invalid(format!("holds what is no record: {error}"), "it is damaged");
    let meta = serde_json::from_str(&kept.0).map_err(parse)?;
    let runs =
        kept.1.iter().map(|record| serde_json::from_str(record)).collect::<Result<_, _>>().map_err(parse)?;
    Ok(Kept { meta, runs })
}

fn documents(connection: &Connection) -> rusqlite::Result<(String, Vec<String>)> {
    let meta = connection.query_row("SELECT document FROM meta", [], |row| row.get(0))?;
    let mut runs = connection.prepare("SELECT record FROM runs ORDER BY id")?;
    let runs = runs.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok((meta, runs))
}

fn unstorable(error: serde_json::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}

fn failed(path: &Path, operation: &str, error: rusqlite::Error) -> DatabaseError {
    DatabaseError::Engine {
        at: path.display().to_string(),
        operation: operation.to_owned(),
        source: Box::new(error),
        hint: None,
    }
}
