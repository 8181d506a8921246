//! From parents in the file's numbers to parents and levels in the input's.
//!
//! 1. Levels follow from parents: each vertex walks up to one whose level is known, and then the same way again.
//! 2. Parents are translated in place, a block of the table of numbers at a time, whose length is what memory allows.
//! 3. Vertices are passed on in the order of the input.

use std::sync::atomic::{AtomicBool, Ordering};

use super::UNREACHED;
use crate::format::{Fwg, SectionKind};
use crate::results::NO_LEVEL;
use crate::{GraphError, VertexId};

/// The least entries of the table of numbers that are in memory at a time.
const LEAST_BLOCK: u64 = 256 << 10;

/// Bytes of memory at least, beside the open graph.
pub(super) fn memory_bytes(vertices: u64) -> u64 {
    vertices * 8 + vertices.div_ceil(64) * 8 + LEAST_BLOCK.min(vertices) * 4
}

/// Passes the parent and the level of each vertex on, in the order of the input. `memory` is what may be taken.
///
/// # Errors
/// [`GraphError::Io`] or [`GraphError::Corrupt`] if the numbers cannot be read or a checksum does not fit; any error that `each`
/// returns; [`GraphError::Interrupted`] once `stop` is set.
pub fn in_input_order(
    graph: &Fwg,
    mut parents: Vec<u32>,
    memory: u64,
    stop: &AtomicBool,
    mut each: impl FnMut(Option<(VertexId, u32)>) -> Result<(), GraphError>,
) -> Result<(), GraphError> {
    let vertices = parents.len() as u64;
    let levels = levels(&parents);
    if graph.header().is_renumbered() {
        let block = (memory.saturating_sub(vertices * 8 + vertices / 8) / 4).max(LEAST_BLOCK);
        translate(graph, &mut parents, block, stop)?;
    }
    graph.numbers(SectionKind::OldToNew, |_, part| {
        check_stop(stop)?;
        for new in part {
            match parents[new as usize] {
                UNREACHED => each(None)?,
                parent => each(Some((parent.into(), levels[new as usize])))?,
            }
        }
        Ok(())
    })
}

fn check_stop(stop: &AtomicBool) -> Result<(), GraphError> {
    if stop.load(Ordering::Relaxed) {
        return Err(GraphError::Interrupted { during: "writing results" });
    }
    Ok(())
}

/// The level of each vertex.
fn levels(parents: &[u32]) -> Vec<u32> {
    let mut levels = vec![NO_LEVEL; parents.len()];
    for vertex in 0..parents.len() {
        if parents[vertex] == UNREACHED {
            continue;
        }
        // Up to a known level, counting; then the same way again, setting. So no path needs memory.
        let (mut at, mut steps) = (vertex, 0);
        while levels[at] == NO_LEVEL && parents[at] as usize != at {
            at = parents[at] as usize;
            steps += 1;
        }
        let mut level = steps + if levels[at] == NO_LEVEL { 0 } else { levels[at] };
        at = vertex;
        while levels[at] == NO_LEVEL {
            levels[at] = level;
            level = level.saturating_sub(1);
            at = parents[at] as usize;
        }
    }
    levels
}

/// Replaces the file's numbers by the input's, `block` entries of the table at a time.
fn translate(graph: &Fwg, parents: &mut [u32], block: u64, stop: &AtomicBool) -> Result<(), GraphError> {
    let mut done = vec![0_u64; parents.len().div_ceil(64)];
    let mut table: Vec<u32> = Vec::new();
    let mut first_of_block = 0;
    graph.numbers(SectionKind::NewToOld, |_, part| {
        check_stop(stop)?;
        table.extend(part.map(|old| old as u32));
        let end = first_of_block + table.len() as u64;
        if table.len() as u64 >= block || end == parents.len() as u64 {
            for (vertex, parent) in parents.iter_mut().enumerate() {
                let bit = 1 << (vertex % 64);
                let at = u64::from(*parent).wrapping_sub(first_of_block) as usize;
                if *parent != UNREACHED
                    && done[vertex / 64] & bit == 0
                    && let Some(old) = table.get(at)
                {
                    *parent = *old;
                    done[vertex / 64] |= bit;
                }
            }
            first_of_block = end;
            table.clear();
        }
        Ok(())
    })
}
