//! What a database engine does for a workload.
//!
//! The order of calls: [`Engine::create`], then for each table [`Engine::loaded`] and [`Engine::load`] until all its rows are there,
//! [`Engine::build_index`] for each index, [`Engine::finish_load`]; then [`Engine::run`], with [`Engine::make_cold`] in between.
//! A load can be cut off at any call and resumed by the same calls.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::DatabaseError;
use crate::schema::{Index, Rows, Table, Value};

/// Cancels the statement that a connection runs, from another thread; does nothing if there is none.
pub type Interrupter = Arc<dyn Fn() + Send + Sync>;

base::words! {
    /// How cones are searched.
    #[derive(Default)]
    pub enum SkyIndex {
        /// Ranges of HEALPix cells of order 29 and an exact filter: any engine.
        #[default]
        Healpix = "healpix",
        /// The Q3C extension of PostgreSQL.
        Q3c = "q3c",
    }
}

/// In which words statements are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite, with the function `haversine(ra1, dec1, ra2, dec2)` of this crate.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

/// What an engine is, and how it is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EngineFacts {
    /// Its name and version.
    pub version: String,
    /// Settings that bear on I/O, name and value.
    pub settings: Vec<(String, String)>,
    /// The engine may be stopped and its files evicted. False for a server that is the user's own.
    pub is_owned: bool,
}

/// A query in the words of an engine. Parameters are `$1`, `$2`, ….
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// The text.
    pub sql: String,
    /// The values of its parameters.
    pub parameters: Vec<Value>,
}

/// What a statement cost, as far as the engine can tell. None is not measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// From the request until the last row was there.
    pub elapsed_ns: u64,
    /// CPU time of the engine.
    pub cpu_ns: Option<u64>,
    /// Time in which the engine waited for reads.
    pub io_ns: Option<u64>,
    /// Blocks of `block_bytes` that the engine asked the system for.
    pub blocks_read: Option<u64>,
    /// Blocks that were in the engine's own cache.
    pub blocks_hit: Option<u64>,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes that came from the device for it.
    pub device_bytes: Option<u64>,
}

/// What was done to have nothing of the data in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cold {
    /// The engine was stopped and started again, or its connection closed and opened.
    pub is_restarted: bool,
    /// Bytes of its files.
    pub file_bytes: u64,
    /// Bytes of its files that were still in the page cache afterwards (mincore(2)).
    pub resident_bytes: u64,
}

/// A database on a tier.
///
/// # Errors
/// A call fails with [`DatabaseError::Engine`], which has what was tried and the engine's own words, or with [`DatabaseError::Io`]
/// for a file of its directory. What else a call can fail with stands with it.
pub trait Engine: Send {
    /// What it is and how it is set.
    fn facts(&mut self) -> Result<EngineFacts, DatabaseError>;

    /// In which words it is asked.
    fn dialect(&self) -> Dialect;

    /// How it searches cones.
    fn sky(&self) -> SkyIndex;

    /// Makes all tables that are not there yet, without indexes.
    fn create(&mut self, tables: &[Table]) -> Result<(), DatabaseError>;

    /// How many rows a table has durably. They are the first ones of its stream.
    fn loaded(&mut self, table: &Table) -> Result<u64, DatabaseError>;

    /// Appends rows until the stream ends, durably and all or none. Returns how many.
    ///
    /// # Errors
    /// [`DatabaseError`] of the engine, out of space foremost.
    fn load(&mut self, table: &Table, rows: &mut dyn Rows) -> Result<u64, DatabaseError>;

    /// Builds an index that is not there yet.
    fn build_index(&mut self, table: &Table, index: &Index) -> Result<(), DatabaseError>;

    /// Statistics for the planner, and whatever makes what was loaded stay as it is.
    fn finish_load(&mut self, tables: &[Table]) -> Result<(), DatabaseError>;

    /// Runs a statement; every row goes to `sink`.
    fn run(
        &mut self,
        statement: &Statement,
        sink: &mut dyn FnMut(&[Value]) -> Result<(), DatabaseError>,
    ) -> Result<Cost, DatabaseError>;

    /// The plan of a statement, a step a line; the statement does not run.
    fn plan(&mut self, statement: &Statement) -> Result<String, DatabaseError>;

    /// The plan with what each step cost, if the engine can tell: then the statement runs.
    fn explain(&mut self, statement: &Statement) -> Result<String, DatabaseError> {
        self.plan(statement)
    }

    /// Leaves nothing of the data in this system's memory, and says what stayed.
    ///
    /// # Errors
    /// [`DatabaseError::NotOwned`] for a server that is the user's own.
    fn make_cold(&mut self) -> Result<Cold, DatabaseError>;

    /// The files with the data; none for a server that is the user's own.
    fn files(&self) -> Vec<PathBuf>;

    /// Bytes of tables and indexes on disk.
    fn size_bytes(&mut self) -> Result<u64, DatabaseError>;

    /// Another connection to the same database, for a second thread.
    fn connect(&self) -> Result<Box<dyn Engine>, DatabaseError>;

    /// What cancels a statement of this connection.
    fn interrupter(&self) -> Interrupter;

    /// Removes the database with all its files. The engine is not used afterwards.
    ///
    /// # Errors
    /// [`DatabaseError::Io`] for a file that cannot be removed, and those of the engine.
    fn remove(&mut self) -> Result<(), DatabaseError>;
}
