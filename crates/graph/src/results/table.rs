//! Results as a Parquet table: a row for each vertex, in order, with its level and its parent.
//!
//! ```text
//! vertex  INT64             the input's number
//! level   INT32, nullable   edges between it and the source; null if it was not reached
//! parent  INT64, nullable   the vertex it was found from, of the source itself; null if it was not reached
//! ```
//!
//! The source stands in the file's key-value metadata (`flashwright.bfs.source`). Rows are written in groups of
//! [`GROUP_ROWS`], so memory does not grow with the graph.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::format::GraphPlace;
use crate::{GraphError, VertexId};

/// Rows of a group: less than a megabyte in memory, and more rows than a reader loses time with.
const GROUP_ROWS: usize = 32 << 10;
const SCHEMA: &str = "message bfs { required int64 vertex; optional int32 level; optional int64 parent; }";
/// The columns of it.
const COLUMNS: [&str; 3] = ["vertex", "level", "parent"];
/// What a file of the format begins with.
const MAGIC: &[u8] = b"PAR1";
/// The key of the fact from which vertex was searched, by which a table of results is known from other tables.
const SOURCE: &str = "flashwright.bfs.source";
/// What an error says could not be done with a file.
const WRITTEN: &str = "written";

/// Whether a file is a table that [`TableWriter`] wrote, so that nothing is lost but results if it is replaced. Who reads a table,
/// adds a column and writes it again has its facts with it: columns must be these and no others.
#[must_use]
pub fn is_results_table(path: &Path) -> bool {
    let Some(reader) = File::open(path).ok().and_then(|file| SerializedFileReader::new(file).ok()) else {
        return false;
    };
    let file = reader.metadata().file_metadata();
    let has_source =
        file.key_value_metadata().is_some_and(|facts| facts.iter().any(|fact| fact.key == SOURCE));
    let columns = file.schema_descr().columns();
    has_source && columns.iter().map(|column| column.name()).eq(COLUMNS)
}

/// Writes a table in the order of the input's numbers.
#[derive(Debug)]
pub struct TableWriter {
    path: PathBuf,
    file: SerializedFileWriter<Sequential>,
    vertices: u64,
    written: u64,
    /// Of the open group, for each row whether it was reached.
    reached: Vec<i16>,
    levels: Vec<i32>,
    parents: Vec<i64>,
}

impl TableWriter {
    /// Begins a file.
    ///
    /// # Errors
    /// [`GraphError::Io`] if the partial file cannot be made; [`GraphError::Busy`] if another process writes the same file;
    /// [`GraphError::Parquet`] if the table cannot be begun.
    pub fn create(path: &Path, vertices: u64, source: VertexId) -> Result<Self, GraphError> {
        let failed = |source| GraphError::Parquet { operation: WRITTEN, path: path.to_owned(), source };
        let fact = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
        let facts = vec![fact(SOURCE, source.to_string())];
        // Neighbouring rows have little in common that a dictionary would find.
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(Some(facts))
            .build();
        let schema = Arc::new(parse_message_type(SCHEMA).map_err(failed)?);
        let sequential = Sequential { place: GraphPlace::file(path)?, at: 0 };
        let file = SerializedFileWriter::new(sequential, schema, Arc::new(properties)).map_err(failed)?;
        let (path, reached, levels, parents) = (path.to_owned(), Vec::new(), Vec::new(), Vec::new());
        Ok(Self { path, file, vertices, written: 0, reached, levels, parents })
    }

    /// Adds the next vertex: its parent and level, or None if it was not reached.
    ///
    /// # Errors
    /// [`GraphError::Parquet`] with the path if a full group of rows cannot be written.
    ///
    /// # Panics
    /// If there are more vertices than were promised.
    pub fn vertex(&mut self, found: Option<(VertexId, u32)>) -> Result<(), GraphError> {
        assert!(self.written < self.vertices, "more vertices than were promised");
        self.written += 1;
        self.reached.push(i16::from(found.is_some()));
        if let Some((parent, level)) = found {
            self.levels.push(level as i32);
            self.parents.push(parent as i64);
        }
        if self.reached.len() == GROUP_ROWS { self.end_group() } else { Ok(()) }
    }

    /// Completes the file and puts it into its place.
    ///
    /// # Errors
    /// [`GraphError::Parquet`] if the last rows or the table's footer cannot be written; [`GraphError::Io`] if the file cannot be
    /// synced or renamed.
    ///
    /// # Panics
    /// If vertices are missing.
    pub fn finish(mut self) -> Result<(), GraphError> {
        assert_eq!(self.written, self.vertices, "vertices are missing");
        if !self.reached.is_empty() {
            self.end_group()?;
        }
        let path = self.path;
        let sequential = self.file.into_inner().map_err(|source| GraphError::Parquet {
            operation: WRITTEN,
            path,
            source,
        })?;
        let mut place = sequential.place;
        place.complete(MAGIC)
    }

    fn end_group(&mut self) -> Result<(), GraphError> {
        let written = self.write_group().map_err(|source| GraphError::Parquet {
            operation: WRITTEN,
            path: self.path.clone(),
            source,
        });
        self.reached.clear();
        self.levels.clear();
        self.parents.clear();
        written
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let first = self.written - self.reached.len() as u64;
        let vertices: Vec<i64> = (first..self.written).map(|vertex| vertex as i64).collect();
        let mut group = self.file.next_row_group()?;
        column::<Int64Type>(&mut group, &vertices, None)?;
        column::<Int32Type>(&mut group, &self.levels, Some(&self.reached))?;
        column::<Int64Type>(&mut group, &self.parents, Some(&self.reached))?;
        group.close().map(drop)
    }
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Sequential>,
    values: &[T::T],
    defined: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let column = group.next_column()?;
    let mut column = column.ok_or_else(|| ParquetError::General("a column is missing".to_owned()))?;
    column.typed::<T>().write_batch(values, defined, None)?;
    column.close()
}

/// A file that is written from its beginning to its end.
#[derive(Debug)]
struct Sequential {
    place: GraphPlace,
    at: u64,
}

impl Write for Sequential {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.place.write(bytes, self.at).map_err(io::Error::other)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
