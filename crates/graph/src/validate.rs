//! Graph500's five checks of a search, made on the original edges and not on the stored graph.
//!
//! 1. The tree has no cycles: following parents, levels fall by one until the source.
//! 2. Each tree edge spans one level.
//! 3. Each edge of the input spans at most one level; of an edge with a direction, the target is at most one level further.
//! 4. The tree covers the source's component: no edge leads from what was reached to what was not.
//! 5. Each pair of a vertex and its parent is an edge of the input.
//!
//! (Graph500 specification 2.0, kernel 2.) In memory lie a parent and a level for each vertex, 8 bytes for graphs
//! of less than 2^32 vertices, and a bit for check 5.

use crate::results::{NO_LEVEL, Results};
use crate::{GraphError, IdWidth, VertexId};

/// What a validation takes of memory beside what grows with the graph: program, blocks of the edge list.
const FIXED_BYTES: u64 = 11 << 20;

/// Bytes of memory that a process takes which validates, the open graph not counted.
#[must_use]
pub fn memory_bytes(vertices: u64) -> u64 {
    // The number that means "not reached" must be none of a vertex.
    let of_parent = IdWidth::for_vertices(vertices + 1).bytes() as u64;
    FIXED_BYTES + vertices * (of_parent + 4) + vertices.div_ceil(64) * 8
}

/// The parent of each vertex; [`VertexId::MAX`] where it was not reached.
#[derive(Debug)]
enum Parents {
    Narrow(Vec<u32>),
    Wide(Vec<VertexId>),
}

impl Parents {
    fn with_capacity(width: IdWidth, vertices: usize) -> Self {
        match width {
            IdWidth::Four => Self::Narrow(Vec::with_capacity(vertices)),
            IdWidth::Eight => Self::Wide(Vec::with_capacity(vertices)),
        }
    }

    /// Of at most 4 bytes where the width is such; all ones where it was not reached.
    fn push(&mut self, parent: VertexId) {
        match self {
            Self::Narrow(parents) => parents.push(parent as u32),
            Self::Wide(parents) => parents.push(parent),
        }
    }

    #[inline]
    fn get(&self, vertex: usize) -> Option<VertexId> {
        match self {
            Self::Narrow(parents) => parents
                .get(vertex)
                .map(|parent| if *parent == u32::MAX { VertexId::MAX } else { (*parent).into() }),
            Self::Wide(parents) => parents.get(vertex).copied(),
        }
    }
}

/// The first violation of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The check, 1 to 5.
    pub check: u8,
    /// What was found.
    pub detail: String,
}

/// What a validation found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The first violation of each check that failed.
    pub violations: Vec<Violation>,
    /// Edges of the input between vertices that were reached, self-loops included: what TEPS counts.
    pub component_edges: u64,
    /// Edges that were looked at.
    pub edges: u64,
    /// Vertices reached.
    pub reached: u64,
    /// Levels.
    pub levels: u32,
}

/// A validation under way.
#[derive(Debug)]
pub struct Validator {
    parents: Parents,
    levels: Vec<u32>,
    /// Whether the edge from the parent was seen.
    confirmed: Vec<u64>,
    source: VertexId,
    directed: bool,
    verdict: Verdict,
}

impl Validator {
    /// Loads results, and makes the checks that need no edges.
    ///
    /// # Errors
    /// [`GraphError::Io`] if the results cannot be read; [`GraphError::Corrupt`] if the checksum of a page of them does not fit.
    pub fn new(results: &Results, directed: bool) -> Result<Self, GraphError> {
        let header = results.header();
        let vertices = header.vertices as usize;
        let mut parents = Parents::with_capacity(header.width, vertices);
        let mut levels = Vec::with_capacity(vertices);
        let (mut reached, mut level_count) = (0, 0);
        results.scan(|_, found| {
            let (parent, level) = found.unwrap_or((VertexId::MAX, NO_LEVEL));
            if found.is_some() {
                reached += 1;
                level_count = level_count.max(level.saturating_add(1));
            }
            parents.push(parent);
            levels.push(level);
        })?;
        let verdict =
            Verdict { violations: Vec::new(), component_edges: 0, edges: 0, reached, levels: level_count };
        let confirmed = vec![0; vertices.div_ceil(64)];
        let mut validator = Self { parents, levels, confirmed, source: header.source, directed, verdict };
        if (header.reached, header.levels) != (reached, level_count) {
            let (said, levels) = (header.reached, header.levels);
            validator.violated(1, || {
                format!("{said} vertices on {levels} levels are said to be reached, {reached} on {level_count} are")
            });
        }
        validator.check_tree();
        Ok(validator)
    }

    fn violated(&mut self, check: u8, detail: impl FnOnce() -> String) {
        if self.verdict.violations.iter().all(|known| known.check != check) {
            self.verdict.violations.push(Violation { check, detail: detail() });
        }
    }

    /// Checks 1 and 2. Where levels fall by one along each tree edge, following parents ends at level 0, where only the
    /// source is.
    fn check_tree(&mut self) {
        let source = self.source;
        if self.parents.get(source as usize) != Some(source) || self.levels[source as usize] != 0 {
            self.violated(1, || format!("the source {source} is not the root of the tree"));
        }
        for vertex in 0..self.levels.len() {
            let (parent, level) = (self.parents.get(vertex).unwrap_or(VertexId::MAX), self.levels[vertex]);
            let is_reached = parent != VertexId::MAX;
            if is_reached != (level != NO_LEVEL) {
                self.violated(1, || format!("vertex {vertex} has a parent or a level, not both"));
            }
            if !is_reached || vertex as u64 == source {
                continue;
            }
            match self.levels.get(parent as usize).copied() {
                None | Some(NO_LEVEL) => {
                    self.violated(1, || format!("the parent {parent} of vertex {vertex} was not reached"));
                }
                Some(_) if level == 0 || parent == vertex as u64 => {
                    self.violated(1, || format!("vertex {vertex} is a second root"));
                }
                Some(above) if above.checked_add(1) != Some(level) => {
                    let detail =
                        || format!("vertex {vertex} is on level {level}, its parent {parent} on {above}");
                    self.violated(2, detail);
                }
                Some(_) => {}
            }
        }
    }

    /// Looks at edges of the input.
    pub fn edges(&mut self, edges: impl IntoIterator<Item = (VertexId, VertexId)>) {
        for (from, to) in edges {
            self.verdict.edges += 1;
            let level = |vertex: VertexId| self.levels.get(vertex as usize).copied().unwrap_or(NO_LEVEL);
            let (near, far) = (level(from), level(to));
            match (near, far) {
                (NO_LEVEL, NO_LEVEL) => continue,
                (NO_LEVEL, _) if self.directed => continue,
                (NO_LEVEL, _) | (_, NO_LEVEL) => {
                    self.violated(4, || format!("of the edge {from} – {to} only one end was reached"));
                    continue;
                }
                _ => self.verdict.component_edges += 1,
            }
            let is_far = far > near + 1 || !self.directed && near > far + 1;
            if is_far {
                let detail = || format!("the edge {from} – {to} joins levels {near} and {far}");
                self.violated(3, detail);
            }
            self.confirm(from, to);
            if !self.directed {
                self.confirm(to, from);
            }
        }
    }

    #[inline]
    fn confirm(&mut self, parent: VertexId, vertex: VertexId) {
        if self.parents.get(vertex as usize) == Some(parent) {
            self.confirmed[vertex as usize / 64] |= 1 << (vertex % 64);
        }
    }

    /// Check 5, and what was found.
    #[must_use]
    pub fn finish(mut self) -> Verdict {
        for vertex in 0..self.levels.len() {
            let parent = self.parents.get(vertex).unwrap_or(VertexId::MAX);
            let is_confirmed = self.confirmed[vertex / 64] >> (vertex % 64) & 1 != 0;
            if parent != VertexId::MAX && vertex as u64 != self.source && !is_confirmed {
                self.violated(5, || format!("vertex {vertex} and its parent {parent} are not an edge"));
            }
        }
        self.verdict.violations.sort_by_key(|violation| violation.check);
        self.verdict
    }
}
