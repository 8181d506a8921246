//! SQLite as an engine: one file on the tier, no server.
//!
//! Rows lie in the file in the order of their primary key, or of loading: the rowid. A batch is a transaction with a rollback journal,
//! which has little to keep because a load only appends; it is durable when [`Engine::load`] returns. Statements read with pread(2), a
//! page a call: `mmap_size` is 0, so that reads can be counted. What sorts and groups need stays in memory, off the tier.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::functions::FunctionFlags;
use rusqlite::types::{Value as SqlValue, ValueRef};
use rusqlite::{Connection, InterruptHandle, OpenFlags, OptionalExtension, params_from_iter};

use crate::cold;
use crate::engine::{Cold, Cost, Dialect, Engine, EngineFacts, Interrupter, SkyIndex, Statement};
use crate::error::DatabaseError;
use crate::meter::Meter;
use crate::schema::{Column, ColumnType, Index, IndexKey, Rows, Table, Value};
use crate::sky;

/// The page cache of a connection.
const CACHE_BYTES: u64 = 64 << 20;
/// Bytes of a page.
const PAGE_BYTES: u32 = 4096;
/// How long a statement waits for a writer.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// How writers and readers share the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Journal {
    /// A writer keeps readers out. For data that is loaded once.
    Rollback,
    /// Readers go on while a writer appends to a log. For data that keeps coming.
    WriteAhead,
}

/// A database file.
pub struct Sqlite {
    path: PathBuf,
    journal: Journal,
    /// None only within [`Engine::make_cold`].
    connection: Option<Connection>,
    /// Of the connection that was opened last.
    handle: Arc<Mutex<Option<InterruptHandle>>>,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Sqlite {
    /// Opens a database file, or makes one.
    ///
    /// # Errors
    /// [`DatabaseError::Engine`] if there is no such directory, or the file is no database.
    pub fn open(path: &Path, journal: Journal) -> Result<Self, DatabaseError> {
        let mut sqlite = Self { path: path.to_owned(), journal, connection: None, handle: Arc::default() };
        sqlite.reopen()?;
        Ok(sqlite)
    }

    /// The file, its journal, its log and the log's index, as far as they are there.
    #[must_use]
    pub fn files_of(path: &Path) -> Vec<PathBuf> {
        let with = |end: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        ["", "-journal", "-wal", "-shm"].map(with).into_iter().filter(|path| path.exists()).collect()
    }

    fn reopen(&mut self) -> Result<(), DatabaseError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(&self.path, flags).and_then(|connection| {
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.pragma_update(None, "page_size", PAGE_BYTES)?;
            let journal = match self.journal {
                Journal::Rollback => "delete",
                Journal::WriteAhead => "wal",
            };
            connection.pragma_update(None, "journal_mode", journal)?;
            connection.pragma_update(None, "synchronous", "full")?;
            connection.pragma_update(None, "mmap_size", 0)?;
            connection.pragma_update(None, "temp_store", "memory")?;
            connection.pragma_update(None, "cache_size", -((CACHE_BYTES >> 10) as i64))?;
            let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
            connection.create_scalar_function("haversine", 4, flags, |context| {
                let degrees = |n| context.get::<f64>(n);
                Ok(sky::haversine(degrees(0)?, degrees(1)?, degrees(2)?, degrees(3)?))
            })?;
            Ok(connection)
        });
        let connection = opened.map_err(|error| self.failed("open it", error))?;
        let handle = connection.get_interrupt_handle();
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
        self.connection = Some(connection);
        Ok(())
    }

    fn connection(&mut self) -> Result<&mut Connection, DatabaseError> {
        if self.connection.is_none() {
            self.reopen()?;
        }
        let at = self.path.display().to_string();
        self.connection.as_mut().ok_or_else(|| DatabaseError::Engine {
            at,
            operation: "open it".to_owned(),
            source: "no connection".into(),
            hint: None,
        })
    }

    fn failed(&self, operation: &str, error: rusqlite::Error) -> DatabaseError {
        let hint = match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Some("free space there, then load again: it goes on"),
            Some(rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt) => {
                Some("name another directory, or remove the file")
            }
            Some(rusqlite::ErrorCode::CannotOpen) => {
                Some("name a directory that is there and may be written to")
            }
            Some(rusqlite::ErrorCode::DatabaseBusy) => {
                Some("another process is writing to it: wait for its end")
            }
            _ => None,
        };
        DatabaseError::Engine {
            at: self.path.display().to_string(),
            operation: operation.to_owned(),
            source: Box::new(error),
            hint: hint.map(str::to_owned),
        }
    }

    /// Runs `work` on the connection; `operation` says what it is for.
    fn with<T>(
        &mut self,
        operation: &str,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, DatabaseError> {
        let done = work(self.connection()?);
        done.map_err(|error| self.failed(operation, error))
    }
}

/// A column's declaration.
fn declared(table: &Table, column: &Column) -> String {
    let of = match column.of {
        ColumnType::BigInt | ColumnType::Integer => "INTEGER",
        ColumnType::Double => "REAL",
        ColumnType::Text => "TEXT",
    };
    let key = if table.primary == Some(column.name) { " PRIMARY KEY" } else { " NOT NULL" };
    format!("{} {of}{key}", column.name)
}

/// A parameter as it is bound.
fn bound(value: &Value) -> SqlValue {
    match value {
        Value::Integer(value) => SqlValue::Integer(*value),
        Value::Double(value) => SqlValue::Real(*value),
        Value::Text(value) => SqlValue::Text(value.clone()),
        Value::Null => SqlValue::Null,
    }
}

/// `?1` in place of `$1`: named parameters would be numbered by their first use.
fn numbered(sql: &str) -> String {
    sql.replace('$', "?")
}

impl Engine for Sqlite {
    fn facts(&mut self) -> Result<EngineFacts, DatabaseError> {
        let names = ["page_size", "cache_size", "journal_mode", "synchronous", "mmap_size", "temp_store"];
        let settings = self.with("read its settings", |connection| {
            let setting = |name: &&str| {
                let value = connection.pragma_query_value(None, name, |row| row.get::<_, SqlValue>(0))?;
                let value = match value {
                    SqlValue::Text(text) => text,
                    SqlValue::Integer(number) => number.to_string(),
                    other => format!("{other:?}"),
                };
                Ok(((*name).to_owned(), value))
            };
            names.iter().map(setting).collect::<rusqlite::Result<_>>()
        })?;
        Ok(EngineFacts { version: format!("SQLite {}", rusqlite::version()), settings, is_owned: true })
    }

    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn sky(&self) -> SkyIndex {
        SkyIndex::Healpix
    }

    fn create(&mut self, tables: &[Table]) -> Result<(), DatabaseError> {
        for table in tables {
            let columns: Vec<_> = table.columns.iter().map(|column| declared(table, column)).collect();
            let sql = format!("CREATE TABLE IF NOT EXISTS {} ({})", table.name, columns.join(", "));
            self.with(&format!("make table {}", table.name), |connection| connection.execute(&sql, []))?;
        }
        Ok(())
    }

    /// Rows are never deleted, so the last rowid is their number.
    fn loaded(&mut self, table: &Table) -> Result<u64, DatabaseError> {
        let sql = format!("SELECT max(rowid) FROM {}", table.name);
        let last: Option<i64> = self.with(&format!("count {}", table.name), |connection| {
            connection.query_row(&sql, [], |row| row.get(0)).optional().map(Option::flatten)
        })?;
        Ok(last.unwrap_or(0).unsigned_abs())
    }

    fn load(&mut self, table: &Table, rows: &mut dyn Rows) -> Result<u64, DatabaseError> {
        let marks = vec!["?"; table.columns.len()].join(", ");
        let sql = format!("INSERT INTO {} VALUES ({marks})", table.name);
        self.with(&format!("load {}", table.name), |connection| {
            let transaction = connection.transaction()?;
            let (mut row, mut count) = (Vec::new(), 0);
            {
                let mut insert = transaction.prepare_cached(&sql)?;
                while rows.next(&mut row) {
                    for (n, value) in row.iter().enumerate() {
                        match value {
                            Value::Integer(value) => insert.raw_bind_parameter(n + 1, value)?,
                            Value::Double(value) => insert.raw_bind_parameter(n + 1, value)?,
                            Value::Text(value) => insert.raw_bind_parameter(n + 1, value)?,
                            Value::Null => insert.raw_bind_parameter(n + 1, rusqlite::types::Null)?,
                        }
                    }
                    insert.raw_execute()?;
                    count += 1;
                }
            }
            transaction.commit()?;
            Ok(count)
        })
    }

    fn build_index(&mut self, table: &Table, index: &Index) -> Result<(), DatabaseError> {
        let columns = match index.key {
            IndexKey::Columns(columns) => columns,
            IndexKey::Sky { cell, .. } => cell,
        };
        let sql = format!("CREATE INDEX IF NOT EXISTS {} ON {} ({columns})", index.name, table.name);
        self.with(&format!("build index {}", index.name), |connection| connection.execute(&sql, []))?;
        Ok(())
    }

    fn finish_load(&mut self, _tables: &[Table]) -> Result<(), DatabaseError> {
        self.with("gather statistics", |connection| connection.execute_batch("ANALYZE"))
    }

    fn run(
        &mut self,
        statement: &Statement,
        sink: &mut dyn FnMut(&[Value]) -> Result<(), DatabaseError>,
    ) -> Result<Cost, DatabaseError> {
        let meter = Meter::start();
        let stopped = self.with("ask it", |connection| {
            let mut prepared = connection.prepare_cached(&numbered(&statement.sql))?;
            let width = prepared.column_count();
            let mut rows = prepared.query(params_from_iter(statement.parameters.iter().map(bound)))?;
            let mut values = Vec::with_capacity(width);
            while let Some(row) = rows.next()? {
                values.clear();
                for n in 0..width {
                    values.push(match row.get_ref(n)? {
                        ValueRef::Null => Value::Null,
                        ValueRef::Integer(value) => Value::Integer(value),
                        ValueRef::Real(value) => Value::Double(value),
                        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
                        ValueRef::Blob(_) => {
                            return Err(rusqlite::Error::InvalidColumnType(
                                n,
                                String::new(),
                                rusqlite::types::Type::Blob,
                            ));
                        }
                    });
                }
                if let Err(error) = sink(&values) {
                    return Ok(Some(error));
                }
            }
            Ok(None)
        })?;
        stopped.map_or(Ok(meter.stop(PAGE_BYTES)), Err)
    }

    fn plan(&mut self, statement: &Statement) -> Result<String, DatabaseError> {
        let sql = format!("EXPLAIN QUERY PLAN {}", numbered(&statement.sql));
        self.with("explain a statement", |connection| {
            let mut prepared = connection.prepare(&sql)?;
            let parameters = params_from_iter(statement.parameters.iter().map(bound));
            let steps = prepared.query_map(parameters, |row| row.get::<_, String>(3))?;
            Ok(steps.collect::<rusqlite::Result<Vec<_>>>()?.join("\n"))
        })
    }

    fn make_cold(&mut self) -> Result<Cold, DatabaseError> {
        // The connection's own cache goes with it.
        self.connection = None;
        let cold = cold::evict(&self.files())?;
        self.reopen()?;
        Ok(Cold { is_restarted: true, ..cold })
    }

    fn files(&self) -> Vec<PathBuf> {
        Self::files_of(&self.path)
    }

    fn size_bytes(&mut self) -> Result<u64, DatabaseError> {
        let path = &self.path;
        std::fs::metadata(path).map(|facts| facts.len()).map_err(DatabaseError::io("look at it", path))
    }

    fn remove(&mut self) -> Result<(), DatabaseError> {
        self.connection = None;
        for file in self.files() {
            std::fs::remove_file(&file).map_err(DatabaseError::io("remove it", &file))?;
        }
        Ok(())
    }

    fn connect(&self) -> Result<Box<dyn Engine>, DatabaseError> {
        Ok(Box::new(Self::open(&self.path, self.journal)?))
    }

    fn interrupter(&self) -> Interrupter {
        let handle = Arc::clone(&self.handle);
        Arc::new(move || {
            if let Some(handle) = &*handle.lock().unwrap_or_else(PoisonError::into_inner) {
                handle.interrupt();
            }
        })
    }
}
