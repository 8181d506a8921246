//! Parents and levels of many searches, search by search, each in the order of the input.
//!
//! 1. While the searches run, what they find goes to temporary space ([`notes`](super::notes)).
//! 2. When they have given their memory back, each record becomes one for each of its searches, in the input's numbers, and these
//!    are sorted by search and vertex ([`external::Sorter`]). In memory lies the input's number of each vertex that can be found, 4 bytes.
//! 3. The last merge is read search by search.
//!
//! Temporary space: 16 bytes for each time that a vertex is found from another one, by however many searches; and 16 for each vertex that
//! each search reaches.

use std::sync::atomic::{AtomicBool, Ordering};

use external::{Sorted, Sorter, SorterOptions, Source, Space, SpaceOptions, Stream, Usage};

use super::notes::{Note, Rounds};
use super::{PROGRAM_BYTES, words_of};
use crate::format::{Fwg, SectionKind};
use crate::fully_external::{Ascending, ExternalSearchOptions, Reached};
use crate::{GraphError, VertexId};

/// The least that the sort takes, bytes.
const LEAST_SORT_BYTES: u64 = 4 << 20;
/// Blocks of what was noted that are read at once.
const READ_BLOCKS: u32 = 3;
/// What a writer of results takes, bytes: its buffers, or a group of a table's rows.
const WRITER_BYTES: u64 = 4 << 20;

/// How temporary space is best cut for searches within `memory`.
#[must_use]
pub fn space_options(memory: u64) -> SpaceOptions {
    ExternalSearchOptions::space_options(memory)
}

/// A bound on the temporary space that `sources` searches of a graph take, bytes; the file grows as it is used.
#[must_use]
pub fn most_space_bytes(graph: &Fwg, sources: usize) -> u64 {
    // Each vertex is noted at most once for each search, and sorted once; runs end with blocks that are not full.
    3 * 16 * (words_of(graph.header()) + 1) * sources as u64 + (64 << 20)
}

/// Bytes that making the trees takes at least of `memory`, once the searches are over.
pub(super) fn memory_bytes(graph: &Fwg, memory: u64) -> u64 {
    fixed_bytes(graph, memory) + LEAST_SORT_BYTES
}

/// All but the sort.
fn fixed_bytes(graph: &Fwg, memory: u64) -> u64 {
    let block = space_options(memory).block_bytes as u64;
    let numbers = if graph.header().is_renumbered() { 4 * words_of(graph.header()) } else { 0 };
    // A checksum of 4 bytes for each page of results of 8 bytes a vertex.
    let writer = WRITER_BYTES + graph.header().vertices * 8 / 1024;
    PROGRAM_BYTES + graph.memory_bytes() + (numbers + u64::from(READ_BLOCKS) * block).max(writer)
}

/// What the searches found, in the graph's numbers.
#[derive(Debug)]
pub struct Discoveries {
    pub(super) notes: Stream<Note>,
    pub(super) space: Space,
}

impl Discoveries {
    /// Sorts what was found by the searches from `sources`, in the input's numbers, within `memory` bytes for the whole program.
    ///
    /// # Errors
    /// Of temporary space and of reading the graph; [`GraphError::Interrupted`] once `stop` is set.
    pub fn trees(
        self,
        graph: &Fwg,
        sources: &[VertexId],
        (memory, threads): (u64, usize),
        stop: &AtomicBool,
    ) -> Result<ManyTrees, GraphError> {
        let sort = memory.saturating_sub(fixed_bytes(graph, memory)).max(LEAST_SORT_BYTES);
        let options = SorterOptions { threads, ..SorterOptions::new(sort) };
        let mut sorter = Sorter::<Note>::new(&self.space, &options)?;
        for (search, source) in (0..).zip(sources) {
            sorter.push([search, *source as u32, *source as u32, 0])?;
        }
        let numbers = input_numbers(graph)?;
        let old = |stored: u32| if numbers.is_empty() { stored } else { numbers[stored as usize] };
        let mut rounds = Rounds::new();
        let mut notes = self.notes.into_reader(READ_BLOCKS);
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(GraphError::Interrupted { during: "sorting what was found" });
            }
            let part = notes.fill()?;
            let count = part.len();
            if count == 0 {
                break;
            }
            for note in part {
                let Some(searches) = rounds.next(note) else { continue };
                let (vertex, parent) = (old(note[0]), old(note[1]));
                for search in super::ones(searches) {
                    sorter.push([search as u32, vertex, parent, rounds.level(search)])?;
                }
            }
            notes.consume(count);
        }
        drop((notes, numbers));
        Ok(ManyTrees { edges: sorter.finish()?, order: Ascending::of(graph), space: self.space })
    }
}

/// The input's number of each stored vertex that can be found; empty where they are the same.
fn input_numbers(graph: &Fwg) -> Result<Vec<u32>, GraphError> {
    let mut numbers = Vec::new();
    if graph.header().is_renumbered() {
        let words = words_of(graph.header()) as usize;
        numbers.reserve_exact(words);
        graph.numbers(SectionKind::NewToOld, |_, part| {
            let left = words - numbers.len();
            numbers.extend(part.take(left).map(|old| old as u32));
            Ok(())
        })?;
    }
    Ok(numbers)
}

/// The trees of all searches, each read once, in the order of the sources.
#[derive(Debug)]
pub struct ManyTrees {
    edges: Sorted<Note>,
    order: Ascending,
    space: Space,
}

impl ManyTrees {
    /// The next vertex that search number `search` has reached, in ascending order; None at the end of its tree. What is left of the
    /// trees before is skipped.
    ///
    /// # Errors
    /// Of temporary space; [`GraphError::Corrupt`] if two vertices of the graph have one number in the input.
    pub fn next_of(&mut self, search: usize) -> Result<Option<Reached>, GraphError> {
        loop {
            let Some(&[of, vertex, parent, level]) = self.edges.fill()?.first() else { return Ok(None) };
            if of as usize > search {
                return Ok(None);
            }
            self.edges.consume(1);
            self.order.check(of, vertex.into())?;
            if of as usize == search {
                let (vertex, parent, level) = (vertex.into(), parent.into(), level.into());
                return Ok(Some(Reached { vertex, parent, level }));
            }
        }
    }

    /// What was done on temporary space so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.space.usage()
    }
}
