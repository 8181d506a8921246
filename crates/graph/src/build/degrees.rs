//! The degree of each vertex, counted while sorted arcs pass.

use super::arcs::{Arcs, BATCH};
use crate::edges::EdgeWriter;
use crate::{GraphError, VertexId};

/// Counts the arcs of each vertex.
pub enum Counter {
    /// In the order of sources: of the present one so far, once there is one; and those that are complete.
    Runs(Option<(VertexId, u64)>, Vec<(VertexId, u64)>),
    /// Both ends of each arc, in any order.
    Array(Vec<u32>),
}

impl Counter {
    /// For the first sort's arcs of a graph.
    pub fn of(arcs: Arcs, vertices: u64) -> Self {
        match arcs {
            Arcs::Once => Self::Array(vec![0; vertices as usize]),
            Arcs::Directed | Arcs::Both => Self::Runs(None, Vec::with_capacity(BATCH)),
        }
    }

    /// Counts arcs, which come in the order of their sources, and writes degrees that are complete.
    pub fn count(
        &mut self,
        pairs: &[(VertexId, VertexId)],
        degrees: &mut EdgeWriter,
    ) -> Result<(), GraphError> {
        match self {
            Self::Runs(current, complete) => {
                for &(source, _) in pairs {
                    match &mut *current {
                        Some((vertex, degree)) if *vertex == source => *degree += 1,
                        other => complete.extend(other.replace((source, 1))),
                    }
                }
                degrees.extend(complete)?;
                complete.clear();
            }
            Self::Array(counts) => {
                for &(source, target) in pairs {
                    counts[source as usize] += 1;
                    counts[target as usize] += u32::from(source != target);
                }
            }
        }
        Ok(())
    }

    /// Writes what is not written yet.
    pub fn finish(self, degrees: &mut EdgeWriter) -> Result<(), GraphError> {
        let counts = match self {
            Self::Runs(current, _) => return degrees.extend(current.as_slice()),
            Self::Array(counts) => counts,
        };
        let mut batch: Vec<(VertexId, u64)> = Vec::with_capacity(BATCH);
        for (number, part) in (0..).zip(counts.chunks(BATCH)) {
            let vertices = (number * BATCH as u64..).zip(part).filter(|(_, degree)| **degree > 0);
            batch.extend(vertices.map(|(vertex, degree)| (vertex, u64::from(*degree))));
            degrees.extend(&batch)?;
            batch.clear();
        }
        Ok(())
    }
}
