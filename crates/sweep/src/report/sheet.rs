//! A table before it is written in any form.

use std::borrow::Cow;

/// How a column is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    /// Words.
    Left,
    /// Figures.
    Right,
    /// Sentences, which break over lines.
    Prose,
    /// Codes with spaces between them, where lines break.
    Codes,
}

/// One column.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) title: Cow<'static, str>,
    pub(super) align: Align,
}

impl Column {
    /// A column; one of figures if its title begins with `>`, of sentences if with `~`, of codes if with `#`.
    pub(super) fn new(title: Cow<'static, str>) -> Self {
        let align = match title.chars().next() {
            Some('>') => Align::Right,
            Some('~') => Align::Prose,
            Some('#') => Align::Codes,
            _ => Align::Left,
        };
        Self { title: Cow::Owned(title.trim_start_matches(['>', '~', '#']).to_owned()), align }
    }
}

/// A table: its caption, its columns and its cells, as plain text.
#[derive(Debug, Clone)]
pub(super) struct Sheet {
    pub(super) caption: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Sheet {
    /// A table without rows. A title that begins with `>` is of a column of figures, with `~` of sentences, with `#` of codes.
    pub(super) fn new(caption: impl Into<String>, titles: &[&'static str]) -> Self {
        let column = |title: &&'static str| Column::new(Cow::Borrowed(*title));
        Self { caption: caption.into(), columns: titles.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row; one cell for each column.
    pub(super) fn push(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    /// The table without the columns that hold the same text in every row, or nothing at all. The first
    /// column stays.
    pub(super) fn without_empty_columns(mut self) -> Self {
        let keep: Vec<bool> = (0..self.columns.len())
            .map(|c| c == 0 || self.rows.iter().any(|row| !matches!(row[c].as_str(), "" | "–")))
            .collect();
        let filter = |cells: Vec<String>| -> Vec<String> {
            cells.into_iter().zip(&keep).filter(|(_, k)| **k).map(|(cell, _)| cell).collect()
        };
        self.rows = self.rows.into_iter().map(filter).collect();
        self.columns = self.columns.into_iter().zip(&keep).filter(|(_, k)| **k).map(|(c, _)| c).collect();
        self
    }
}
