//! Rows in the binary format of COPY: a header, then for each row the number of its fields, and for each field its length and its bytes,
//! all in network order (PostgreSQL manual, COPY, "Binary Format").

use crate::schema::{Column, ColumnType, Table, Value};

const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const TRAILER: [u8; 2] = (-1i16).to_be_bytes();

/// The statement that reads this format into a table.
pub(super) fn statement(table: &Table) -> String {
    let columns: Vec<_> = table.columns.iter().map(|column| column.name).collect();
    format!("COPY {} ({}) FROM STDIN (FORMAT binary)", table.name, columns.join(", "))
}

/// Rows of a table as bytes, to be taken away in pieces of any size.
#[derive(Debug)]
pub(super) struct Encoder {
    columns: &'static [Column],
    bytes: Vec<u8>,
}

impl Encoder {
    pub(super) fn new(table: &Table, room: usize) -> Self {
        let mut bytes = Vec::with_capacity(room);
        bytes.extend_from_slice(HEADER);
        Self { columns: table.columns, bytes }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If a value is not of its column's type: generators and tables are of one program.
    pub(super) fn row(&mut self, row: &[Value]) {
        assert_eq!(row.len(), self.columns.len(), "a value for each column");
        self.bytes.extend_from_slice(&(row.len() as i16).to_be_bytes());
        for (column, value) in self.columns.iter().zip(row) {
            match (column.of, value) {
                (ColumnType::BigInt, Value::Integer(value)) => self.field(&value.to_be_bytes()),
                (ColumnType::Integer, Value::Integer(value)) => {
                    let narrow =
                        i32::try_from(*value).unwrap_or_else(|_| panic!("{value} in {}", column.name));
                    self.field(&narrow.to_be_bytes());
                }
                (ColumnType::Double, Value::Double(value)) => self.field(&value.to_be_bytes()),
                (ColumnType::Text, Value::Text(value)) => self.field(value.as_bytes()),
                (of, value) => panic!("{value:?} in {}, which is {of:?}", column.name),
            }
        }
    }

    fn field(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
        self.bytes.extend_from_slice(bytes);
    }

    /// Ends the stream.
    pub(super) fn end(&mut self) {
        self.bytes.extend_from_slice(&TRAILER);
    }

    /// What has not been taken away yet.
    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes
    }

    /// It has been taken away.
    pub(super) fn taken(&mut self) {
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column { name: "a", of: ColumnType::BigInt },
        Column { name: "b", of: ColumnType::Integer },
        Column { name: "c", of: ColumnType::Double },
        Column { name: "d", of: ColumnType::Text },
    ];
    const TABLE: Table = Table { name: "t", columns: COLUMNS, primary: None, indexes: &[] };

    #[test]
    fn a_row_has_the_bytes_that_the_manual_says() {
        assert_eq!(statement(&TABLE), "COPY t (a, b, c, d) FROM STDIN (FORMAT binary)");
        let mut encoder = Encoder::new(&TABLE, 64);
        encoder.row(&[1.into(), (-2).into(), 1.5.into(), "é".into()]);
        encoder.end();
        let mut expected = HEADER.to_vec();
        assert_eq!(expected.len(), 19);
        expected.extend([0, 4]);
        expected.extend([0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
        expected.extend([0, 0, 0, 4, 0xff, 0xff, 0xff, 0xfe]);
        expected.extend([0, 0, 0, 8, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0]);
        expected.extend([0, 0, 0, 2, 0xc3, 0xa9]);
        expected.extend([0xff, 0xff]);
        assert_eq!(encoder.pending(), expected);
    }

    #[test]
    #[should_panic(expected = "4294967296 in b")]
    fn an_integer_that_does_not_fit_its_column_is_never_cut() {
        Encoder::new(&TABLE, 0).row(&[1.into(), (1i64 << 32).into(), 1.5.into(), "".into()]);
    }
}
