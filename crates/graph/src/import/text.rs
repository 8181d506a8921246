//! Lines of text.

use std::io::BufRead;
use std::path::Path;

use super::Edges;
use crate::{GraphError, VertexId};

/// The longest line, bytes: longer ones are no edges, and would fill the memory.
const LONGEST_LINE: usize = 64 << 10;

/// The lines of a text, with their numbers.
pub struct Lines<'a> {
    path: &'a Path,
    input: &'a mut dyn BufRead,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    /// Of an input; `path` is what messages name.
    pub fn new(path: &'a Path, input: &'a mut dyn BufRead) -> Self {
        Self { path, input, line: Vec::new(), number: 0 }
    }

    /// The next line without its end; None at the end of the text.
    pub fn next(&mut self) -> Result<Option<&[u8]>, GraphError> {
        self.line.clear();
        loop {
            let available = self.input.fill_buf().map_err(|e| GraphError::io("read", self.path, e))?;
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(available.len());
            self.line.extend_from_slice(&available[..taken]);
            let is_over = available.is_empty();
            self.input.consume(taken + usize::from(end.is_some()));
            if is_over && self.line.is_empty() {
                return Ok(None);
            }
            if end.is_some() || is_over {
                self.number += 1;
                return Ok(Some(self.line.trim_ascii()));
            }
            if self.line.len() > LONGEST_LINE {
                self.number += 1;
                return Err(self.bad(format!("is longer than {LONGEST_LINE} bytes")));
            }
        }
    }

    /// An error about the line that was taken last.
    pub fn bad(&self, detail: impl Into<String>) -> GraphError {
        let (path, detail) = (self.path.to_owned(), detail.into());
        GraphError::BadInput { path, unit: "line", number: self.number, detail }
    }
}

/// Whether a line holds no edge.
pub fn is_comment(line: &[u8]) -> bool {
    matches!(line.first(), None | Some(b'#' | b'%'))
}

/// The vertices that a line begins with; what is wrong with it otherwise. Further columns are skipped.
pub fn pair(line: &[u8]) -> Result<(VertexId, VertexId), String> {
    let (source, rest) = vertex(line)?;
    let (target, _) = vertex(rest)?;
    Ok((source, target))
}

/// A vertex at the beginning of a line, and what follows.
pub fn vertex(line: &[u8]) -> Result<(VertexId, &[u8]), String> {
    let is_gap = |byte: &u8| matches!(byte, b' ' | b'\t' | b',' | b';');
    let line = &line[line.iter().take_while(|byte| is_gap(byte)).count()..];
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = line.split_at(digits);
    if digits == 0 || rest.first().is_some_and(|byte| !is_gap(byte)) {
        let word = line.split(is_gap).next().unwrap_or_default();
        let word: String = String::from_utf8_lossy(word).chars().take(40).collect();
        return Err(if word.is_empty() {
            "has fewer than two vertices".to_owned()
        } else {
            format!("'{}' is not a vertex", word.escape_default())
        });
    }
    let mut vertex: u64 = 0;
    for digit in number {
        let next = vertex.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit - b'0')));
        vertex = next.ok_or_else(|| {
            format!("vertex {} does not fit 64 bits", String::from_utf8_lossy(&number[..digits.min(40)]))
        })?;
    }
    Ok((vertex, rest))
}

/// Reads lines of two vertices.
pub fn snap(path: &Path, input: &mut dyn BufRead, edges: &mut Edges<'_>) -> Result<(), GraphError> {
    edges.begin(None, false)?;
    let mut lines = Lines::new(path, input);
    loop {
        let found = match lines.next()? {
            None => return Ok(()),
            Some(line) if is_comment(line) => continue,
            Some(line) => pair(line),
        };
        let edge = found.map_err(|detail| lines.bad(detail))?;
        edges.push(edge, |detail| lines.bad(detail))?;
    }
}
