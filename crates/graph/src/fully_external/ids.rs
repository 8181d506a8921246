//! Pairs of vertices and edges of a search tree, in 4 bytes a vertex where the graph's numbers fit.

use external::Record;

use crate::{IdWidth, VertexId};

/// How vertices are stored on temporary space.
pub(super) trait Ids: Copy + Send + Sync + std::fmt::Debug + 'static {
    /// A vertex.
    type Id: Record;
    /// A vertex and another one that goes with it, ordered by the first.
    type Pair: Record;
    /// Three numbers, such as a vertex, its parent and its level.
    type Triple: Record;
    /// Four numbers.
    type Quad: Record;
    /// Bytes of a vertex.
    const WIDTH: IdWidth;

    fn id(vertex: VertexId) -> Self::Id;
    fn vertex(id: &Self::Id) -> VertexId;
    fn pair(first: VertexId, second: VertexId) -> Self::Pair;
    fn first(pair: &Self::Pair) -> VertexId;
    fn second(pair: &Self::Pair) -> VertexId;
    fn triple(numbers: [u64; 3]) -> Self::Triple;
    fn three(triple: &Self::Triple) -> [u64; 3];
    fn quad(numbers: [u64; 4]) -> Self::Quad;
    fn four(quad: &Self::Quad) -> [u64; 4];

    /// Appends the pair of each neighbour in `list` with `label`.
    fn pairs(list: &[u8], label: u64, pairs: &mut Vec<Self::Pair>) {
        let width = Self::WIDTH;
        pairs.extend(list.chunks_exact(width.bytes()).map(|id| Self::pair(width.get(id), label)));
    }
}

/// Graphs of at most 2^32 vertices. A level takes 4 bytes too: there are no more levels than vertices.
#[derive(Debug, Clone, Copy)]
pub(super) struct Narrow;

impl Ids for Narrow {
    type Id = u32;
    type Pair = u64;
    type Triple = [u32; 3];
    type Quad = [u32; 4];
    const WIDTH: IdWidth = IdWidth::Four;

    #[inline(always)]
    fn id(vertex: VertexId) -> u32 {
        vertex as u32
    }

    #[inline(always)]
    fn vertex(id: &u32) -> VertexId {
        u64::from(*id)
    }

    #[inline(always)]
    fn pair(first: VertexId, second: VertexId) -> u64 {
        first << 32 | second
    }

    #[inline(always)]
    fn first(pair: &u64) -> VertexId {
        pair >> 32
    }

    #[inline(always)]
    fn second(pair: &u64) -> VertexId {
        pair & u64::from(u32::MAX)
    }

    #[inline(always)]
    fn triple(numbers: [u64; 3]) -> [u32; 3] {
        numbers.map(|number| number as u32)
    }

    #[inline(always)]
    fn three(triple: &[u32; 3]) -> [u64; 3] {
        triple.map(u64::from)
    }

    #[inline(always)]
    fn quad(numbers: [u64; 4]) -> [u32; 4] {
        numbers.map(|number| number as u32)
    }

    #[inline(always)]
    fn four(quad: &[u32; 4]) -> [u64; 4] {
        quad.map(u64::from)
    }
}

/// Graphs of any size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wide;

impl Ids for Wide {
    type Id = u64;
    type Pair = [u64; 2];
    type Triple = [u64; 3];
    type Quad = [u64; 4];
    const WIDTH: IdWidth = IdWidth::Eight;

    #[inline(always)]
    fn id(vertex: VertexId) -> u64 {
        vertex
    }

    #[inline(always)]
    fn vertex(id: &u64) -> VertexId {
        *id
    }

    #[inline(always)]
    fn pair(first: VertexId, second: VertexId) -> [u64; 2] {
        [first, second]
    }

    #[inline(always)]
    fn first(pair: &[u64; 2]) -> VertexId {
        pair[0]
    }

    #[inline(always)]
    fn second(pair: &[u64; 2]) -> VertexId {
        pair[1]
    }

    #[inline(always)]
    fn triple(numbers: [u64; 3]) -> [u64; 3] {
        numbers
    }

    #[inline(always)]
    fn three(triple: &[u64; 3]) -> [u64; 3] {
        *triple
    }

    #[inline(always)]
    fn quad(numbers: [u64; 4]) -> [u64; 4] {
        numbers
    }

    #[inline(always)]
    fn four(quad: &[u64; 4]) -> [u64; 4] {
        *quad
    }
}
