//! Tables, columns, indexes and values, without the words of any engine.

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// A signed 64-bit integer.
    BigInt,
    /// A signed 32-bit integer.
    Integer,
    /// A 64-bit float.
    Double,
    /// UTF-8 text without zero bytes.
    Text,
}

/// A column. No column holds nulls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its name, which needs no quotes.
    pub name: &'static str,
    /// Its type.
    pub of: ColumnType,
}

/// What an index is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKey {
    /// Columns, separated by commas.
    Columns(&'static str),
    /// A position in the sky: a right ascension, a declination, and the HEALPix cell of both. An engine indexes the cell, or the
    /// coordinates in a way of its own.
    Sky {
        /// Right ascension, degrees.
        ra: &'static str,
        /// Declination, degrees.
        dec: &'static str,
        /// The cell of order 29, nested scheme.
        cell: &'static str,
    },
}

/// An index, built after the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Index {
    /// Its name, unique in the schema.
    pub name: &'static str,
    /// What it is on.
    pub key: IndexKey,
}

/// A table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Its name, which needs no quotes.
    pub name: &'static str,
    /// Its columns in the order of rows.
    pub columns: &'static [Column],
    /// The unique integer column that names a row. An engine may store rows in its order, which is the order of loading.
    pub primary: Option<&'static str>,
    /// Further indexes.
    pub indexes: &'static [Index],
}

/// A value of a row or a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Of [`ColumnType::BigInt`] or [`ColumnType::Integer`].
    Integer(i64),
    /// Of [`ColumnType::Double`].
    Double(f64),
    /// Of [`ColumnType::Text`].
    Text(String),
    /// Only in results: an aggregate of no rows.
    Null,
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Double(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

/// Rows in the order of loading.
pub trait Rows: Send {
    /// Replaces `row` by the next one; false after the last.
    fn next(&mut self, row: &mut Vec<Value>) -> bool;
}
