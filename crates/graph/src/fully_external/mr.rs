//! Breadth-first search by sorting (Munagala and Ranade, SODA 1999), for undirected graphs: [`Levels`] around the source.
//!
//! In a directed graph an edge may lead back to any level, not only to the two before, so those are refused. A vertex's
//! parent is the lowest-numbered one in the level before.

use external::StreamWriter;

use super::ExternalSearchOptions;
use super::ids::{Narrow, Wide};
use super::levels::{Levels, check_undirected, single};
use super::tree::{self, SearchTree, TreeIds};
use crate::format::Fwg;
use crate::{GraphError, IdWidth, VertexId};

/// Searches from `source`, a vertex in the input's numbers.
///
/// # Errors
/// [`GraphError::Invalid`] for a directed graph, [`GraphError::NoVertex`], [`GraphError::Memory`] where the budget does not
/// hold the buffers; failures of the graph and of temporary space.
pub fn munagala_ranade(
    graph: &Fwg,
    source: VertexId,
    options: &ExternalSearchOptions,
) -> Result<SearchTree, GraphError> {
    check_undirected(graph, "mr")?;
    match graph.header().width {
        IdWidth::Four => search::<Narrow>(graph, source, options),
        IdWidth::Eight => search::<Wide>(graph, source, options),
    }
}

fn search<I: TreeIds>(
    graph: &Fwg,
    source: VertexId,
    options: &ExternalSearchOptions,
) -> Result<SearchTree, GraphError> {
    let space = &options.space;
    let before = space.usage();
    let source = graph.stored_number(source)?;
    let mut tree = StreamWriter::new(space, 3);
    tree.push(I::triple([source, source, 0]))?;
    let start = single(space, I::pair(source, source))?;
    let mut levels = Levels::<I>::new(graph, options, "mr", start, |vertex, _| vertex)?;
    let mut level = 1;
    while levels.advance(|pair| Ok(tree.push(I::triple([I::first(pair), I::second(pair), level]))?))? {
        level += 1;
    }
    let mut figures = levels.finish();
    figures.reached = tree.len();
    tree::finish::<I>(graph, tree.finish()?, options, figures, before)
}
