//! A TOML file as a tree in which everything knows its line, and keys keep the order in which they
//! are written.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Fault, SpaceError};
use super::names;

/// A value with its place.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Line on which it begins, from 1.
    pub line: usize,
    /// The value as it was typed, cut short for messages.
    pub typed: String,
    /// What it is.
    pub value: Value,
}

/// What TOML can hold, as far as a space uses it.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    Integer(i128),
    Float(f64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(Vec<Entry>),
    /// Dates, and numbers that nothing here can mean.
    Other,
}

/// A key with its value.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub key: String,
    /// Line of the key, from 1.
    pub line: usize,
    pub node: Node,
}

/// The source, for line numbers and messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub origin: &'a str,
    pub text: &'a str,
}

impl Source<'_> {
    /// The whole file as entries in written order.
    pub fn parse(self) -> Result<Vec<Entry>, SpaceError> {
        let root = DeTable::parse(self.text).map_err(|error| SpaceError::Syntax {
            origin: self.origin.to_owned(),
            line: error.span().map_or(1, |span| self.line(span.start)),
            // The parser's messages may run over several lines; one error is one line.
            message: error.message().split_whitespace().collect::<Vec<_>>().join(" "),
        })?;
        Ok(self.entries(root.get_ref()))
    }

    fn line(&self, offset: usize) -> usize {
        let end = offset.min(self.text.len());
        1 + self.text.as_bytes()[..end].iter().filter(|byte| **byte == b'\n').count()
    }

    fn typed(&self, span: std::ops::Range<usize>) -> String {
        let text = self.text.get(span).unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        match first.char_indices().nth(60) {
            Some((end, _)) => format!("{}…", &first[..end]),
            None if text.lines().nth(1).is_some() => format!("{first}…"),
            None => first.to_owned(),
        }
    }

    fn entries(&self, table: &DeTable<'_>) -> Vec<Entry> {
        let mut keys: Vec<_> = table.iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let key_text: &std::borrow::Cow<'_, str> = key.get_ref();
            Entry {
                key: key_text.clone().into_owned(),
                line: self.line(key.span().start),
                node: self.node(value),
            }
        };
        keys.into_iter().map(entry).collect()
    }

    fn node(&self, value: &Spanned<DeValue<'_>>) -> Node {
        let span = value.span();
        let held = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.clone().into_owned()),
            DeValue::Integer(digits) => {
                i128::from_str_radix(digits.as_str(), digits.radix()).map_or(Value::Other, Value::Integer)
            }
            DeValue::Float(digits) => digits.as_str().parse().map_or(Value::Other, Value::Float),
            DeValue::Boolean(truth) => Value::Boolean(*truth),
            DeValue::Datetime(_) => Value::Other,
            DeValue::Array(items) => Value::Array(items.iter().map(|item| self.node(item)).collect()),
            DeValue::Table(table) => Value::Table(self.entries(table)),
        };
        Node { line: self.line(span.start), typed: self.typed(span), value: held }
    }

    /// An error about a value.
    pub fn bad_value(&self, key: &str, node: &Node, reason: impl Into<String>, hint: &str) -> SpaceError {
        Fault {
            origin: self.origin.to_owned(),
            line: Some(node.line),
            key: key.to_owned(),
            value: Some(node.typed.clone()),
            reason: reason.into(),
            hint: (!hint.is_empty()).then(|| hint.to_owned()),
        }
        .into()
    }

    /// An error about a key.
    pub fn bad_key(&self, line: usize, key: &str, reason: impl Into<String>, hint: &str) -> SpaceError {
        Fault {
            origin: self.origin.to_owned(),
            line: Some(line),
            key: key.to_owned(),
            value: None,
            reason: reason.into(),
            hint: (!hint.is_empty()).then(|| hint.to_owned()),
        }
        .into()
    }

    /// An error about a key that nobody knows, with the nearest one that somebody does.
    pub fn unknown_key<'k>(
        &self,
        entry: &Entry,
        place: &str,
        known: impl Iterator<Item = &'k str> + Clone,
    ) -> SpaceError {
        let hint = match names::nearest(&entry.key, known.clone()) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("{place} knows {}", known.collect::<Vec<_>>().join(", ")),
        };
        self.bad_key(entry.line, &entry.key, format!("is not known in {place}"), &hint)
    }
}

impl Node {
    /// The entries, where it is a table.
    pub fn table(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Table(entries) => Some(entries),
            _ => None,
        }
    }
}
