//! The order of a graph's vertices if nobody names one.
//!
//! Degree order puts hubs first, where lists and heads name them, so bottom-up levels find parents early: worth it where there are
//! hubs and levels go bottom-up, that is where edges have no direction. It takes apart what the input may have put together. On a road
//! network numbers that are close belong to places that are close, and a front that moves over the map reads a page for many of
//! its vertices; in degree order, which keeps the input's order among vertices of equal degree, it reads up to twice as many, and on a large
//! map a page for nearly each. So the given order is kept where most neighbours have close
//! numbers and hubs are missing or of no use.
//!
//! Close is measured on blocks of a list, evenly spread: the same for the same list, also when a build goes on. It is asked of the
//! input first: where that is not close the order is degree order, whatever the hubs, and the first sort has half of the work.

use super::numbers::Numbers;
use crate::GraphError;
use crate::edges::EdgeList;
use crate::format::Order;

/// Blocks that are looked at.
const SAMPLE: u64 = 64;
/// Numbers are close within this share of all vertices. Of numbers drawn at random a hundred-and-twenty-eighth is.
const CLOSE_SHARE: u64 = 256;
/// A vertex with so many times the mean of neighbours is a hub.
const HUB: u64 = 16;

/// The order for sorted arcs. `numbers` has the degrees of their sources.
///
/// # Errors
/// [`GraphError::Io`] if a block cannot be read; [`GraphError::Corrupt`] if a block is not what was written.
pub fn choose(arcs: &EdgeList, numbers: &Numbers, directed: bool) -> Result<Order, GraphError> {
    let header = arcs.header();
    let highest = numbers.runs().next().map_or(0, |(degree, _)| degree);
    let has_hubs = highest.saturating_mul(numbers.listed()) > header.edges.saturating_mul(HUB);
    if !directed && has_hubs {
        return Ok(Order::Degree);
    }
    Ok(if are_close(arcs)? { Order::Given } else { Order::Degree })
}

/// Whether most edges of a list lead to a close number.
///
/// # Errors
/// [`GraphError::Io`] if a block cannot be read; [`GraphError::Corrupt`] if a block is not what was written.
pub fn are_close(list: &EdgeList) -> Result<bool, GraphError> {
    let header = list.header();
    let (blocks, reach) = (header.blocks(), header.vertices / CLOSE_SHARE);
    let (mut close, mut all) = (0u64, 0u64);
    for at in 0..blocks.min(SAMPLE) {
        let block = at * blocks / blocks.min(SAMPLE);
        let mut scan = list.scan(block..block + 1, 1)?;
        while let Some((_, pairs)) = scan.next_block()? {
            all += pairs.len() as u64;
            close += pairs.iter().filter(|(source, target)| source.abs_diff(*target) <= reach).count() as u64;
        }
    }
    Ok(close * 2 > all)
}
