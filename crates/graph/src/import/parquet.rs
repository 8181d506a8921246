//! Parquet: two columns of whole numbers.
//!
//! The columns are those named `source` and `target`, `src` and `dst`, `from` and `to`, or `u` and `v`; if there are none, the
//! first two that hold whole numbers. A column must not be nested, and a null is an error.

use std::fs::File;
use std::path::Path;

use parquet::basic::{ConvertedType, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::SchemaDescriptor;

use super::Edges;
use crate::{GraphError, Steps, VertexId};

/// Names of the two columns.
const NAMES: [[&str; 2]; 4] = [["source", "target"], ["src", "dst"], ["from", "to"], ["u", "v"]];
/// Rows that are decoded at once.
const ROWS: usize = 1 << 14;

/// Reads both columns of all row groups.
pub fn read(path: &Path, edges: &mut Edges<'_>, steps: &Steps) -> Result<(), GraphError> {
    let failed =
        |error: ParquetError| GraphError::Parquet { operation: "read", path: path.to_owned(), source: error };
    let file = File::open(path).map_err(|source| GraphError::io("open", path, source))?;
    let reader = SerializedFileReader::new(file).map_err(failed)?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let columns = columns(&schema).ok_or_else(|| GraphError::Invalid {
        message: format!("{}: has no two columns of whole numbers", path.display()),
    })?;
    edges.begin(None, false)?;
    let mut row = 0;
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(failed)?;
        let (bytes, mut rows) = (group.metadata().compressed_size(), group.metadata().num_rows());
        let mut ends = [column(&*group, columns[0]), column(&*group, columns[1])];
        while rows > 0 {
            let [sources, targets] = &mut ends;
            let values = [sources, targets].map(|end| match end {
                Ok(end) => end.next(ROWS.min(rows as usize)),
                Err(error) => {
                    Err(BadColumn::Format(std::mem::replace(error, ParquetError::EOF(String::new()))))
                }
            });
            let bad = |error| match error {
                BadColumn::Format(error) => failed(error),
                BadColumn::Row(at, detail) => {
                    GraphError::BadInput { path: path.to_owned(), unit: "row", number: row + at + 1, detail }
                }
            };
            let [sources, targets] = values;
            let (sources, targets) = (sources.map_err(bad)?, targets.map_err(bad)?);
            if sources.is_empty() || sources.len() != targets.len() {
                return Err(failed(ParquetError::EOF("a column ends before the row group".to_owned())));
            }
            for (number, edge) in (row + 1..).zip(sources.iter().copied().zip(targets.iter().copied())) {
                edges.push(edge, |detail| GraphError::BadInput {
                    path: path.to_owned(),
                    unit: "row",
                    number,
                    detail,
                })?;
            }
            row += sources.len() as u64;
            rows -= sources.len() as i64;
        }
        steps.add(bytes as u64, "importing edges")?;
    }
    Ok(())
}

/// The two columns.
fn columns(schema: &SchemaDescriptor) -> Option<[usize; 2]> {
    let is_whole = |at: usize| {
        let column = schema.column(at);
        matches!(column.physical_type(), Type::INT32 | Type::INT64) && column.max_rep_level() == 0
    };
    let whole: Vec<usize> = (0..schema.num_columns()).filter(|at| is_whole(*at)).collect();
    let named =
        |name: &str| whole.iter().copied().find(|at| schema.column(*at).name().eq_ignore_ascii_case(name));
    let by_name = NAMES.iter().find_map(|[source, target]| Some([named(source)?, named(target)?]));
    by_name.or_else(|| Some([*whole.first()?, *whole.get(1)?]))
}

/// What is wrong with a column.
enum BadColumn {
    Format(ParquetError),
    /// A value, by its row within what was read last.
    Row(u64, String),
}

impl From<ParquetError> for BadColumn {
    fn from(error: ParquetError) -> Self {
        Self::Format(error)
    }
}

/// One of the two columns.
struct Column {
    reader: ColumnReader,
    is_unsigned: bool,
    nullable: bool,
}

fn column(group: &dyn RowGroupReader, at: usize) -> Result<Column, ParquetError> {
    let description = group.metadata().column(at).column_descr_ptr();
    let is_unsigned = matches!(description.converted_type(), ConvertedType::UINT_32 | ConvertedType::UINT_64);
    let nullable = description.max_def_level() > 0;
    Ok(Column { reader: group.get_column_reader(at)?, is_unsigned, nullable })
}

impl Column {
    /// The next values, at most `rows`.
    fn next(&mut self, rows: usize) -> Result<Vec<VertexId>, BadColumn> {
        let (nullable, is_unsigned) = (self.nullable, self.is_unsigned);
        let widen =
            |signed: i64, unsigned: u64| if is_unsigned { Some(unsigned) } else { signed.try_into().ok() };
        match &mut self.reader {
            ColumnReader::Int32ColumnReader(reader) => {
                values::<Int32Type>(reader, rows, nullable, |v| widen(v.into(), u64::from(v as u32)))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                values::<Int64Type>(reader, rows, nullable, |v| widen(v, v as u64))
            }
            _ => unreachable!("columns of whole numbers were chosen"),
        }
    }
}

fn values<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    nullable: bool,
    vertex: impl Fn(T::T) -> Option<VertexId>,
) -> Result<Vec<VertexId>, BadColumn>
where
    T::T: Copy + std::fmt::Display,
{
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let mut read = 0;
    while read < rows {
        let (now, _, _) =
            reader.read_records(rows - read, nullable.then_some(&mut levels), None, &mut values)?;
        if now == 0 {
            break;
        }
        read += now;
    }
    if let Some(at) = levels.iter().position(|level| *level == 0) {
        return Err(BadColumn::Row(at as u64, "a vertex is null".to_owned()));
    }
    let mut vertices = Vec::with_capacity(values.len());
    for (at, value) in values.into_iter().enumerate() {
        let negative = || BadColumn::Row(at as u64, format!("'{value}' is not a vertex"));
        vertices.push(vertex(value).ok_or_else(negative)?);
    }
    Ok(vertices)
}
