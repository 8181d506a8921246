//! Matrix Market's coordinate format: <https://math.nist.gov/MatrixMarket/formats.html>.

use std::io::BufRead;
use std::path::Path;

use super::Edges;
use super::text::{Lines, is_comment, pair, vertex};
use crate::{GraphError, VertexId};

/// Reads a square sparse matrix: an entry of row i and column j is an edge from i − 1 to j − 1.
pub fn read(path: &Path, input: &mut dyn BufRead, edges: &mut Edges<'_>) -> Result<(), GraphError> {
    let mut lines = Lines::new(path, input);
    let banner = lines.next()?.map(|line| String::from_utf8_lossy(line).to_ascii_lowercase());
    let banner = banner.unwrap_or_default();
    let directed = is_directed(&banner).map_err(|detail| lines.bad(detail))?;
    let (vertices, entries) = loop {
        match lines.next()? {
            None => return Err(lines.bad("is the last one, and there is no line of sizes")),
            Some(line) if is_comment(line) => {}
            Some(line) => break sizes(line).map_err(|detail| lines.bad(detail))?,
        }
    };
    edges.begin(Some(vertices), directed)?;
    let mut found = 0;
    loop {
        let entry = match lines.next()? {
            None => break,
            Some(line) if is_comment(line) => continue,
            Some(line) => pair(line),
        };
        let (row, column) = entry.map_err(|detail| lines.bad(detail))?;
        if row.min(column) == 0 || row.max(column) > vertices {
            return Err(lines.bad(format!("entry ({row}, {column}) is not within 1 to {vertices}")));
        }
        found += 1;
        edges.push((row - 1, column - 1), |detail| lines.bad(detail))?;
    }
    if found == entries {
        Ok(())
    } else {
        Err(lines
            .bad(format!("is the last one: there are {found} entries, the line of sizes says {entries}")))
    }
}

fn is_directed(banner: &str) -> Result<bool, String> {
    let words: Vec<&str> = banner.split_whitespace().collect();
    match words.as_slice() {
        ["%%matrixmarket", "matrix", "coordinate", _, "general"] => Ok(true),
        ["%%matrixmarket", "matrix", "coordinate", _, "symmetric" | "skew-symmetric" | "hermitian"] => {
            Ok(false)
        }
        ["%%matrixmarket", "matrix", "array", ..] => {
            Err("is of a dense matrix; graphs are sparse".to_owned())
        }
        _ => Err("is not a header of Matrix Market's coordinate format".to_owned()),
    }
}

/// Rows, which are as many as columns, and entries.
fn sizes(line: &[u8]) -> Result<(VertexId, u64), String> {
    let (rows, rest) = vertex(line)?;
    let (columns, rest) = vertex(rest)?;
    let (entries, _) = vertex(rest).map_err(|_| "lacks the number of entries".to_owned())?;
    if rows == columns { Ok((rows, entries)) } else { Err(format!("{rows} × {columns} is not square")) }
}
