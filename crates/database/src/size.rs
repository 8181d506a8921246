//! How much room a database takes, before it is loaded.
//!
//! A row follows from its number, so rows at places that are spread evenly over a table tell what all of them hold. How many a page holds
//! follows from the formats: of SQLite (<https://www.sqlite.org/fileformat2.html>, 1.6 and 2.1), and of PostgreSQL (chapter *Database
//! Physical Storage*), whose indexes hold a key that several rows have once (chapter *B-Tree Indexes*, *Deduplication*).

use std::path::Path;

use crate::dataset::Dataset;
use crate::error::DatabaseError;
use crate::open::EngineKind;
use crate::ptf::Ptf;
use crate::ptf::tables::NAME_RANGE;
use crate::schema::{Column, ColumnType, Index, IndexKey, Table, Value};

/// Places in a table that rows are taken from.
const PLACES: u64 = 8;
/// Rows of a place.
const ROWS_OF_PLACE: u64 = 64;

/// Bytes of an empty cluster with its first segments of the log.
const CLUSTER_BYTES: f64 = (40 << 20) as f64;
/// What the log of a load keeps at most: PostgreSQL's `max_wal_size`.
const LOG_MAX_BYTES: f64 = (1 << 30) as f64;
/// The log holds rows with a header each, and pages whole after a checkpoint. Indexes are built without it.
const LOG_OF_ROWS: f64 = 1.1;
/// Maps of free and of visible pages, what lies outside the table, first pages of indexes.
const POSTGRES_TABLE_BYTES: f64 = (48 << 10) as f64;

/// What a database will take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Tables and indexes.
    pub data_bytes: u64,
    /// What the engine keeps beside them while it loads.
    pub beside_bytes: u64,
}

impl Size {
    /// Room on the tier.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.data_bytes + self.beside_bytes
    }
}

/// What the database of a dataset will take.
#[must_use]
pub fn estimate(dataset: &Dataset, kind: EngineKind) -> Size {
    let (mut rows_bytes, mut indexes_bytes) = (0.0, 0.0);
    for table in dataset.tables() {
        let sample = Sample::of(dataset, table);
        rows_bytes += match kind {
            EngineKind::Sqlite => SQLITE.bytes(&sample, |number, row| sqlite_row(table, number, row)),
            EngineKind::Postgres => {
                POSTGRES_HEAP.bytes(&sample, |_, row| postgres_row(table, row)) + POSTGRES_TABLE_BYTES
            }
        };
        for index in table.indexes {
            let key = key_of(table, index);
            indexes_bytes += match kind {
                EngineKind::Sqlite => SQLITE.bytes(&sample, |number, row| sqlite_entry(&key, number, row)),
                EngineKind::Postgres => postgres_index(&sample, &key, false),
            };
        }
        if let (EngineKind::Postgres, Some(primary)) = (kind, table.primary) {
            indexes_bytes += postgres_index(&sample, &columns(table, primary), true);
        }
    }
    let beside_bytes = match kind {
        EngineKind::Sqlite => 0.0,
        EngineKind::Postgres => CLUSTER_BYTES + (rows_bytes * LOG_OF_ROWS).min(LOG_MAX_BYTES),
    };
    Size { data_bytes: (rows_bytes + indexes_bytes) as u64, beside_bytes: beside_bytes as u64 }
}

/// Refuses a tier that has not the room; `flag` names it.
///
/// # Errors
/// [`DatabaseError::NoRoom`], and [`DatabaseError::Io`] if it cannot be asked.
pub fn check(flag: String, directory: &Path, needed_bytes: u64) -> Result<(), DatabaseError> {
    match free(directory)? {
        Some(free_bytes) if needed_bytes > free_bytes => {
            Err(DatabaseError::NoRoom { flag, needed_bytes, free_bytes })
        }
        _ => Ok(()),
    }
}

/// Room that is left on a tier; None where the file system has no size, as ramfs.
///
/// # Errors
/// [`DatabaseError::Io`] if it cannot be asked.
pub fn free(directory: &Path) -> Result<Option<u64>, DatabaseError> {
    let facts = rustix::fs::statvfs(directory)
        .map_err(|error| DatabaseError::io("ask for its room", directory)(error.into()))?;
    Ok((facts.f_blocks > 0).then_some(facts.f_bavail * facts.f_frsize))
}

/// Rows of a table with their numbers.
struct Sample {
    rows: Vec<(u64, Vec<Value>)>,
    /// Rows of the table.
    of: u64,
}

impl Sample {
    fn of(dataset: &Dataset, table: &Table) -> Self {
        if let (Dataset::Ptf(ptf), true) = (dataset, table.name == NAME_RANGE.name) {
            return Self::of_ranges(ptf, dataset, table);
        }
        let of = dataset.rows(table);
        let mut rows = Vec::new();
        for place in 0..PLACES {
            // The last place ends with the table, so that the largest number is among the rows.
            let from = of.saturating_sub(ROWS_OF_PLACE) / (PLACES - 1) * place;
            let from = if place + 1 == PLACES { of.saturating_sub(ROWS_OF_PLACE) } else { from };
            let (mut stream, mut row) = (dataset.stream(table, from), Vec::new());
            for number in from..of.min(from + ROWS_OF_PLACE) {
                if stream.next(&mut row) {
                    rows.push((number, row.clone()));
                }
            }
        }
        Self { rows, of }
    }

    /// Rows of this table are found and counted only by computing all of them, so the first ones stand for all.
    fn of_ranges(ptf: &Ptf, dataset: &Dataset, table: &Table) -> Self {
        let (mut stream, mut row, mut rows) = (dataset.stream(table, 0), Vec::new(), Vec::new());
        while (rows.len() as u64) < PLACES * ROWS_OF_PLACE && stream.next(&mut row) {
            rows.push((rows.len() as u64, row.clone()));
        }
        let names = match rows.last().map(|(_, row)| &row[0]) {
            Some(Value::Integer(name)) => name.unsigned_abs().max(1),
            _ => 1,
        };
        let of = (ptf.names() as f64 * rows.len() as f64 / names as f64) as u64;
        Self { rows, of }
    }

    fn mean(&self, bytes: impl Fn(u64, &[Value]) -> u64) -> f64 {
        let sum: u64 = self.rows.iter().map(|(number, row)| bytes(*number, row)).sum();
        sum as f64 / self.rows.len().max(1) as f64
    }

    /// How many rows have the same key. Numbers of other tables count from 1 and are all used, so the largest one is how many there
    /// are; a text is of one row.
    fn rows_of_key(&self, key: &Key) -> f64 {
        let mut keys: f64 = 1.0;
        for (place, _) in key {
            let largest = self.rows.iter().map(|(_, row)| match row[*place] {
                Value::Integer(number) => number as f64,
                _ => f64::INFINITY,
            });
            keys *= largest.fold(1.0, f64::max);
        }
        (self.of as f64 / keys).max(1.0)
    }
}

/// Columns of a key with their places in a row.
type Key = Vec<(usize, Column)>;

fn columns(table: &Table, names: &str) -> Key {
    let of = |name: &str| {
        let place = table.columns.iter().position(|column| column.name == name)?;
        Some((place, table.columns[place]))
    };
    names.split(", ").filter_map(of).collect()
}

/// Q3C's number of a position has the bytes of a cell.
fn key_of(table: &Table, index: &Index) -> Key {
    match index.key {
        IndexKey::Columns(names) => columns(table, names),
        IndexKey::Sky { cell, .. } => columns(table, cell),
    }
}

/// Pages that are filled one after another.
struct Pages {
    bytes: f64,
    /// What rows or entries may fill.
    usable_bytes: f64,
}

const SQLITE: Pages = Pages { bytes: 4096.0, usable_bytes: 4088.0 };
const POSTGRES_HEAP: Pages = Pages { bytes: 8192.0, usable_bytes: 8168.0 };
/// Nine tenths of a leaf are filled.
const POSTGRES_LEAF: Pages = Pages { bytes: 8192.0, usable_bytes: 0.9 * 8152.0 };
/// Pages above the leaves, to each leaf.
const ABOVE: f64 = 0.005;

impl Pages {
    fn bytes(&self, sample: &Sample, each: impl Fn(u64, &[Value]) -> u64) -> f64 {
        self.filled(sample.of as f64, sample.mean(each))
    }

    /// What does not fit at a page's end is half an entry on average.
    fn filled(&self, entries: f64, mean: f64) -> f64 {
        (entries * mean / (self.usable_bytes - mean / 2.0)).ceil() * self.bytes * (1.0 + ABOVE)
    }
}

fn varint(value: u64) -> u64 {
    u64::from(64 - value.leading_zeros()).div_ceil(7).clamp(1, 9)
}

/// A value in a record of SQLite: its type, and its bytes.
fn sqlite_value(value: &Value) -> u64 {
    let of_integer = |number: i64| match number {
        0 | 1 => 0,
        _ => match 65 - number.unsigned_abs().leading_zeros() {
            0..=8 => 1,
            9..=16 => 2,
            17..=24 => 3,
            25..=32 => 4,
            33..=48 => 6,
            _ => 8,
        },
    };
    match value {
        Value::Null => 1,
        Value::Integer(number) => 1 + of_integer(*number),
        // A whole one is stored as an integer.
        Value::Double(number) if number.fract() == 0.0 && number.abs() < 1e14 => {
            1 + of_integer(*number as i64)
        }
        Value::Double(_) => 9,
        Value::Text(text) => varint(13 + 2 * text.len() as u64) + text.len() as u64,
    }
}

/// A row with its place in the page's list.
fn sqlite_row(table: &Table, number: u64, row: &[Value]) -> u64 {
    let of = |(column, value): (&Column, &Value)| {
        if table.primary == Some(column.name) { 1 } else { sqlite_value(value) }
    };
    let record: u64 = 1 + table.columns.iter().zip(row).map(of).sum::<u64>();
    2 + varint(record) + varint(number + 1) + record
}

/// A key with the number of its row.
fn sqlite_entry(key: &Key, number: u64, row: &[Value]) -> u64 {
    let of_key: u64 = key.iter().map(|(place, _)| sqlite_value(&row[*place])).sum();
    let record = 1 + of_key + sqlite_value(&Value::Integer(number as i64 + 1));
    2 + varint(record) + record
}

/// Bytes from the beginning of a row's values to the end of one, where it is aligned.
fn after(offset: u64, of: ColumnType, value: &Value) -> u64 {
    match (of, value) {
        (ColumnType::Text, Value::Text(text)) if text.len() < 127 => offset + 1 + text.len() as u64,
        (ColumnType::Text, Value::Text(text)) => offset.next_multiple_of(4) + 4 + text.len() as u64,
        (ColumnType::Integer, _) => offset.next_multiple_of(4) + 4,
        _ => offset.next_multiple_of(8) + 8,
    }
}

/// A row with its header of 24 bytes, and its place in the page's list.
fn postgres_row(table: &Table, row: &[Value]) -> u64 {
    let values = table.columns.iter().zip(row);
    let end = values.fold(24, |offset, (column, value)| after(offset, column.of, value));
    end.next_multiple_of(8) + 4
}

fn postgres_index(sample: &Sample, key: &Key, is_unique: bool) -> f64 {
    /// A row's place, in a list of those that have the same key.
    const PLACE: f64 = 6.0;
    /// Such lists are a tenth of a page at most.
    const PLACES_MAX: f64 = 132.0;
    let entry = sample.mean(|_, row| {
        let end = key.iter().fold(8, |offset, (place, column)| after(offset, column.of, &row[*place]));
        end.next_multiple_of(8) + 4
    });
    let rows = if is_unique { 1.0 } else { sample.rows_of_key(key) };
    // A list ends on 8 bytes, half of which are lost.
    let mean = if rows > 1.0 { entry.min(PLACE + (entry + 4.0) / rows.min(PLACES_MAX)) } else { entry };
    POSTGRES_LEAF.filled(sample.of as f64, mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_without_the_room_is_refused_with_both_figures() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        check("dir=.".to_owned(), here, 0).unwrap();
        let refused = check("dir=.".to_owned(), here, u64::MAX).unwrap_err();
        assert!(refused.to_string().starts_with("--dir=.: ") && refused.hint().is_some(), "{refused}");
        assert_eq!(refused.class(), base::ErrorClass::Invalid);
    }
}
