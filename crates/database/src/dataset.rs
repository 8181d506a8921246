//! A database of a workload: its tables, and how they are loaded.
//!
//! The table [`IDENTITY`] says what the database is: workload, rows, seed, and `complete` in a second row after everything else. A load
//! that was cut off is resumed by the same command: each table goes on after its last durable row, and a database of another
//! workload, size or seed is refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ahead::ahead;
use crate::bionet::{self, Bionet};
use crate::engine::{Engine, Statement};
use crate::error::DatabaseError;
use crate::ptf::{self, Ptf};
use crate::schema::{Column, ColumnType, Rows, Table, Value};

base::words! {
    /// What is stored and asked.
    pub enum Workload {
        /// Palomar Transient Factory: a survey of the sky (DASH, section IV-B).
        Ptf = "ptf",
        /// BiologicalNetworks: a warehouse of pathways (DASH, section IV-C).
        Bionet = "bionet",
    }
}

/// Rows that are made durable at once.
const BATCH_ROWS: u64 = 100_000;

/// What the database is.
pub const IDENTITY: Table = Table {
    name: "flashwright_dataset",
    columns: &[
        Column { name: "workload", of: ColumnType::Text },
        Column { name: "scale", of: ColumnType::BigInt },
        Column { name: "seed", of: ColumnType::BigInt },
        Column { name: "state", of: ColumnType::Text },
    ],
    primary: None,
    indexes: &[],
};

/// A database of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dataset {
    /// Of PTF.
    Ptf(Ptf),
    /// Of BiologicalNetworks.
    Bionet(Bionet),
}

impl Dataset {
    /// Of a size: rows of `candidate`, or of `node`.
    ///
    /// # Errors
    /// [`DatabaseError::Invalid`] if there are too few rows, or too many for the numbers of rows.
    pub fn new(workload: Workload, scale: u64, seed: u64) -> Result<Self, DatabaseError> {
        let (least, most) = match workload {
            Workload::Ptf => (1, 1 << 40),
            Workload::Bionet => (Bionet::NODES_MIN, 1 << 30),
        };
        if !(least..=most).contains(&scale) {
            return Err(DatabaseError::Invalid {
                flag: format!("rows={scale}"),
                problem: format!("{} takes from {least} to {most}", workload.word()),
                hint: "for instance 1000000".to_owned(),
            });
        }
        Ok(match workload {
            Workload::Ptf => Self::Ptf(Ptf { candidates: scale, seed }),
            Workload::Bionet => Self::Bionet(Bionet { nodes: scale, seed }),
        })
    }

    /// Which workload.
    #[must_use]
    pub fn workload(&self) -> Workload {
        match self {
            Self::Ptf(_) => Workload::Ptf,
            Self::Bionet(_) => Workload::Bionet,
        }
    }

    /// Rows of `candidate`, or of `node`.
    #[must_use]
    pub fn scale(&self) -> u64 {
        match self {
            Self::Ptf(ptf) => ptf.candidates,
            Self::Bionet(bionet) => bionet.nodes,
        }
    }

    /// Its tables in the order of loading.
    #[must_use]
    pub fn tables(&self) -> &'static [Table] {
        match self {
            Self::Ptf(_) => &ptf::TABLES,
            Self::Bionet(_) => &bionet::TABLES,
        }
    }

    /// How many rows a table has.
    #[must_use]
    pub fn rows(&self, table: &Table) -> u64 {
        match self {
            Self::Ptf(ptf) => ptf.rows(table),
            Self::Bionet(bionet) => bionet.rows(table),
        }
    }

    /// The rows of a table from a number on.
    #[must_use]
    pub fn stream(&self, table: &Table, from: u64) -> Box<dyn Rows> {
        match self {
            Self::Ptf(ptf) => ptf.stream(table, from),
            Self::Bionet(bionet) => bionet.stream(table, from),
        }
    }

    fn identity(&self, state: &str) -> Vec<Value> {
        let seed = match self {
            Self::Ptf(ptf) => ptf.seed,
            Self::Bionet(bionet) => bionet.seed,
        };
        let scale = Value::from(self.scale() as i64);
        vec![Value::from(self.workload().word()), scale, Value::from(seed as i64), Value::from(state)]
    }
}

/// Seconds, to the microsecond: such a number is the same after it was written and read as JSON.
fn seconds_since(begun: Instant) -> f64 {
    begun.elapsed().as_micros() as f64 / 1e6
}

/// What a load is doing.
#[derive(Debug, Clone, Copy)]
pub struct LoadProgress<'a> {
    /// The table, or the index that is built.
    pub what: &'a str,
    /// Rows of all tables that are durable.
    pub rows: u64,
    /// Rows of all tables.
    pub of: u64,
    /// Only indexes and statistics are left.
    pub is_indexing: bool,
}

/// A table's part in a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TableLoad {
    /// Its name.
    pub table: String,
    /// Rows that were there before.
    pub resumed_rows: u64,
    /// Rows that were added.
    pub rows: u64,
    /// Seconds to make and add them.
    pub load_s: f64,
    /// Seconds to build its indexes.
    pub index_s: f64,
}

/// What a load did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Loaded {
    /// The database was complete already: nothing was done.
    pub was_complete: bool,
    /// Each table.
    pub tables: Vec<TableLoad>,
    /// Seconds of statistics, and of what follows the indexes.
    pub finish_s: f64,
    /// Bytes of tables and indexes on disk.
    pub size_bytes: u64,
}

/// At most a number of rows of a stream, unless it is told to stop.
struct Batch<'a> {
    rows: &'a mut dyn Rows,
    left: u64,
    stop: &'a AtomicBool,
}

impl Rows for Batch<'_> {
    fn next(&mut self, row: &mut Vec<Value>) -> bool {
        if self.left == 0 || self.stop.load(Ordering::Relaxed) {
            return false;
        }
        self.left -= 1;
        self.rows.next(row)
    }
}

/// A single row.
struct Once(Option<Vec<Value>>);

impl Rows for Once {
    fn next(&mut self, row: &mut Vec<Value>) -> bool {
        self.0.take().is_some_and(|only| {
            *row = only;
            true
        })
    }
}

/// The rows of [`IDENTITY`] that are there; None if the database has no such table or is empty.
pub fn identity(engine: &mut dyn Engine) -> Result<Vec<Vec<Value>>, DatabaseError> {
    let columns = IDENTITY.columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
    let sql = format!("SELECT {columns} FROM {} ORDER BY state DESC", IDENTITY.name);
    let mut rows = Vec::new();
    engine.run(&Statement { sql, parameters: Vec::new() }, &mut |row| {
        rows.push(row.to_vec());
        Ok(())
    })?;
    Ok(rows)
}

/// Whether a complete database of this workload, size and seed is there.
///
/// # Errors
/// [`DatabaseError::Other`] if it is another one, and those of the engine.
pub fn is_complete(engine: &mut dyn Engine, dataset: &Dataset) -> Result<bool, DatabaseError> {
    engine.create(&[IDENTITY])?;
    let there = identity(engine)?;
    let expected = [dataset.identity("loading"), dataset.identity("complete")];
    let is_ours = there.iter().zip(&expected).all(|(there, expected)| there == expected) && there.len() <= 2;
    if is_ours {
        return Ok(there.len() == 2);
    }
    let words = |row: &[Value]| match row {
        [Value::Text(workload), Value::Integer(scale), Value::Integer(seed), _] => {
            format!("{workload} of {scale} rows and seed {}", *seed as u64)
        }
        other => format!("{other:?}"),
    };
    Err(DatabaseError::Other { found: words(&there[0]), expected: words(&expected[0]) })
}

/// The complete database of a workload that is there; `at` says where.
///
/// # Errors
/// [`DatabaseError::Incomplete`] if there is none, and those of the engine.
pub fn find(engine: &mut dyn Engine, workload: Workload, at: &str) -> Result<Dataset, DatabaseError> {
    engine.create(&[IDENTITY])?;
    match identity(engine)?.as_slice() {
        [first, _] => match first.as_slice() {
            [Value::Text(word), Value::Integer(scale), Value::Integer(seed), _]
                if word == workload.word() =>
            {
                Dataset::new(workload, scale.unsigned_abs(), *seed as u64)
            }
            _ => Err(DatabaseError::Incomplete { at: at.to_owned() }),
        },
        _ => Err(DatabaseError::Incomplete { at: at.to_owned() }),
    }
}

/// Loads what is not there yet. Ends between two batches if `stop` is set, and goes on there the next time.
///
/// # Errors
/// [`DatabaseError::Other`] if there is another database, [`DatabaseError::Interrupted`], and those of the engine.
pub fn load(
    engine: &mut dyn Engine,
    dataset: &Dataset,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(LoadProgress<'_>),
) -> Result<Loaded, DatabaseError> {
    let was_complete = is_complete(engine, dataset)?;
    let mut loaded = Loaded { was_complete, tables: Vec::new(), finish_s: 0.0, size_bytes: 0 };
    if !was_complete {
        if engine.loaded(&IDENTITY)? == 0 {
            engine.load(&IDENTITY, &mut Once(Some(dataset.identity("loading"))))?;
        }
        engine.create(dataset.tables())?;
        load_tables(engine, dataset, stop, progress, &mut loaded)?;
        load_indexes(engine, dataset, stop, progress, &mut loaded)?;
        let begun = Instant::now();
        engine.finish_load(dataset.tables())?;
        engine.load(&IDENTITY, &mut Once(Some(dataset.identity("complete"))))?;
        loaded.finish_s = seconds_since(begun);
    }
    loaded.size_bytes = engine.size_bytes()?;
    Ok(loaded)
}

fn load_tables(
    engine: &mut dyn Engine,
    dataset: &Dataset,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(LoadProgress<'_>),
    loaded: &mut Loaded,
) -> Result<(), DatabaseError> {
    let of = dataset.tables().iter().map(|table| dataset.rows(table)).sum();
    let mut durable = 0;
    for table in dataset.tables() {
        let begun = Instant::now();
        let resumed_rows = engine.loaded(table)?;
        let (mut there, all) = (resumed_rows, dataset.rows(table));
        ahead(&mut *dataset.stream(table, there), |rows| {
            while there < all {
                progress(LoadProgress { what: table.name, rows: durable + there, of, is_indexing: false });
                there += engine.load(table, &mut Batch { rows: &mut *rows, left: BATCH_ROWS, stop })?;
                if stop.load(Ordering::Relaxed) {
                    return Err(DatabaseError::Interrupted);
                }
            }
            Ok(())
        })?;
        durable += there;
        loaded.tables.push(TableLoad {
            table: table.name.to_owned(),
            resumed_rows,
            rows: there - resumed_rows,
            load_s: seconds_since(begun),
            index_s: 0.0,
        });
    }
    Ok(())
}

fn load_indexes(
    engine: &mut dyn Engine,
    dataset: &Dataset,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(LoadProgress<'_>),
    loaded: &mut Loaded,
) -> Result<(), DatabaseError> {
    let of = dataset.tables().iter().map(|table| dataset.rows(table)).sum();
    for (table, figures) in dataset.tables().iter().zip(&mut loaded.tables) {
        let begun = Instant::now();
        for index in table.indexes {
            progress(LoadProgress { what: index.name, rows: of, of, is_indexing: true });
            engine.build_index(table, index)?;
            if stop.load(Ordering::Relaxed) {
                return Err(DatabaseError::Interrupted);
            }
        }
        figures.index_s = seconds_since(begun);
    }
    Ok(())
}
