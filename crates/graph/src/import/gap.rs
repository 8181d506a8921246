//! The serialized graph `.sg` of the GAP Benchmark Suite.
//!
//! ```text
//! 0    bool  directed
//! 1    i64   edges
//! 9    i64   vertices
//! 17   i64   offsets [vertices + 1], in neighbours
//!      i32   neighbours [offsets[vertices]]
//!            in a directed graph the same again for incoming edges
//! ```
//!
//! An undirected graph has each edge in the lists of both ends; one of them is imported.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::{BUFFER_BYTES, Edges};
use crate::{GraphError, Steps};

/// Where the offsets begin.
const OFFSETS_AT: u64 = 17;

/// Reads the lists of outgoing edges.
pub fn read(path: &Path, edges: &mut Edges<'_>, steps: &Steps) -> Result<(), GraphError> {
    let corrupt = |what: &str, offset: u64, detail: String| GraphError::Corrupt {
        path: path.to_owned(),
        what: what.to_owned(),
        offset,
        detail,
    };
    let mut head = [0; OFFSETS_AT as usize];
    let mut offsets = part(path, 0)?;
    let found = offsets.get_ref().metadata().map_err(|e| GraphError::io("stat", path, e))?.len();
    let truncated = |what: &str, needed: u64| GraphError::Truncated {
        path: path.to_owned(),
        what: what.to_owned(),
        needed,
        found,
    };
    if found < OFFSETS_AT {
        return Err(truncated("header", OFFSETS_AT));
    }
    offsets.read_exact(&mut head).map_err(|e| GraphError::io("read", path, e))?;
    let number = |at: usize| i64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    let (directed, vertices) = (head[0] == 1, number(9));
    let vertices = u64::try_from(vertices)
        .ok()
        .filter(|vertices| head[0] <= 1 && *vertices <= 1 << 31)
        .ok_or_else(|| corrupt("header", 0, format!("{vertices} vertices, direction {}", head[0])))?;
    let lists_at = OFFSETS_AT + 8 * (vertices + 1);
    if found < lists_at {
        return Err(truncated("index", lists_at));
    }
    let mut lists = part(path, lists_at)?;
    edges.begin(Some(vertices), directed)?;
    let mut next_offset = |vertex: u64| {
        let mut bytes = [0; 8];
        offsets.read_exact(&mut bytes).map_err(|e| GraphError::io("read", path, e))?;
        u64::try_from(i64::from_le_bytes(bytes))
            .map_err(|_| corrupt("index", OFFSETS_AT + 8 * vertex, "an offset is negative".to_owned()))
    };
    let mut begin = next_offset(0)?;
    for vertex in 0..vertices {
        let end = next_offset(vertex + 1)?;
        if end < begin {
            return Err(corrupt("index", OFFSETS_AT + 8 * vertex, "offsets descend".to_owned()));
        }
        let needed = end.checked_mul(4).and_then(|bytes| bytes.checked_add(lists_at)).unwrap_or(u64::MAX);
        if found < needed {
            return Err(truncated(&format!("list of vertex {vertex}"), needed));
        }
        for at in begin..end {
            let mut bytes = [0; 4];
            lists.read_exact(&mut bytes).map_err(|e| GraphError::io("read", path, e))?;
            let neighbour = u64::try_from(i32::from_le_bytes(bytes)).unwrap_or(u64::MAX);
            if neighbour >= vertices {
                let detail = format!("{} is not a vertex", i32::from_le_bytes(bytes));
                return Err(corrupt(&format!("list of vertex {vertex}"), lists_at + 4 * at, detail));
            }
            if directed || vertex <= neighbour {
                edges.push((vertex, neighbour), |detail| GraphError::BadInput {
                    path: path.to_owned(),
                    unit: "list",
                    number: vertex + 1,
                    detail,
                })?;
            }
        }
        steps.add(8 + 4 * (end - begin), "importing edges")?;
        begin = end;
    }
    Ok(())
}

fn part(path: &Path, offset: u64) -> Result<BufReader<File>, GraphError> {
    let mut file = File::open(path).map_err(|source| GraphError::io("open", path, source))?;
    file.seek(SeekFrom::Start(offset)).map_err(|source| GraphError::io("seek", path, source))?;
    Ok(BufReader::with_capacity(BUFFER_BYTES, file))
}
