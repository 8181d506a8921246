//! What a thread does in a level.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::state::{State, ones_of};
use crate::fetch::{Fetcher, PagePool};
use crate::format::{Fwg, Header, IndexCursor, PAGE_BYTES, SectionKind};
use crate::{GraphError, VertexId};

/// Bytes of lists that a thread takes on at a time.
pub(super) const CHUNK_BYTES: u64 = 1 << 20;
/// Vertices that a thread takes on at a time.
const CHUNK_VERTICES: u64 = 64 << 10;
/// Misses in long lists that a thread collects before it reads on in them.
const MOST_MISSES: usize = 4096;
/// How many times what was read of a list is read of it next, up to [`MOST_READ_ON`] bytes.
const READ_ON_GROWTH: u64 = 3;
const MOST_READ_ON: u64 = 16 << 10;

/// The first vertices of chunks, multiples of 64 ascending, and the end.
pub(super) fn chunks(header: &Header, cursor: &mut IndexCursor<'_>) -> Result<Vec<VertexId>, GraphError> {
    let (mut starts, mut chunk_offset) = (vec![0], cursor.list(0)?.offset);
    for vertex in (64..header.listed).step_by(64) {
        let offset = cursor.list(vertex)?.offset;
        let first = *starts.last().expect("there is a first chunk");
        if vertex - first >= CHUNK_VERTICES || offset - chunk_offset >= CHUNK_BYTES {
            starts.push(vertex);
            chunk_offset = offset;
        }
    }
    starts.push(header.listed);
    Ok(starts)
}

/// What all threads of a search share.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    pub graph: &'a Fwg,
    pub state: &'a State,
    chunks: &'a [VertexId],
    /// The next chunk.
    claim: AtomicUsize,
    /// The first neighbours of all listed vertices, once they are in memory.
    pub heads: OnceLock<Vec<u32>>,
    /// Pages that the pending vertices' lists begin on, as counted by [`Worker::probe_heads`].
    pub pending_pages: AtomicU64,
    stop: &'a AtomicBool,
}

impl<'a> Shared<'a> {
    pub fn new(
        graph: &'a Fwg,
        state: &'a State,
        chunks: &'a [VertexId],
        heads: OnceLock<Vec<u32>>,
        stop: &'a AtomicBool,
    ) -> Self {
        let (claim, pending_pages) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { graph, state, chunks, claim, heads, pending_pages, stop }
    }

    pub fn begin_step(&self) {
        self.claim.store(0, Ordering::Relaxed);
    }

    pub fn check_stop(&self) -> Result<(), GraphError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(GraphError::Interrupted { during: "searching" });
        }
        Ok(())
    }

    /// Words of the bitmaps that the calling thread is to do next.
    fn next_chunk(&self) -> Result<Option<std::ops::Range<usize>>, GraphError> {
        self.check_stop()?;
        let at = self.claim.fetch_add(1, Ordering::Relaxed);
        let Some([first, end]) = self.chunks.get(at..at + 2) else { return Ok(None) };
        Ok(Some((first / 64) as usize..end.div_ceil(64) as usize))
    }

    /// Unvisited vertices of a word that may have neighbours.
    #[inline]
    fn unvisited(&self, word: usize) -> u64 {
        let left = self.graph.header().listed.saturating_sub(word as u64 * 64);
        let listed = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
        !self.state.visited.word(word) & listed
    }

    /// The least and the most that a bottom-up level would read, with so many neighbours in lists of unvisited vertices.
    pub fn bottom_up_bytes(&self, unexplored: u64) -> [u64; 2] {
        let header = self.graph.header();
        let word_bytes = 64 * u64::from(header.heads) * header.width.bytes() as u64;
        let (mut heads, mut vertices, mut last_page) = (0, 0, None);
        for word in 0..header.listed.div_ceil(64) as usize {
            let unvisited = self.unvisited(word);
            if unvisited != 0 {
                vertices += u64::from(unvisited.count_ones());
                let page = word as u64 * word_bytes / PAGE_BYTES;
                heads += u64::from(last_page.replace(page) != Some(page));
            }
        }
        let heads = if header.heads == 0 { 0 } else { heads * PAGE_BYTES.max(word_bytes) };
        let lists = (vertices * PAGE_BYTES).min(unexplored * header.width.bytes() as u64 + PAGE_BYTES);
        // Without heads, at least a vertex in 16 lies on another page.
        let least = if header.heads == 0 { lists / 16 } else { heads };
        [least, heads + lists]
    }
}

/// What the front weighs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Weight {
    pub vertices: u64,
    pub entries: u64,
    pub pages: u64,
}

/// A thread's own.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    fetcher: Fetcher<'a>,
    cursor: IndexCursor<'a>,
}

impl<'a> Worker<'a> {
    pub fn new(fetcher: Fetcher<'a>, cursor: IndexCursor<'a>) -> Self {
        Self { fetcher, cursor }
    }

    pub fn engine(&self) -> &'static str {
        self.fetcher.engine()
    }

    pub fn keep_pages(&mut self, pool: Option<PagePool>) -> Option<PagePool> {
        self.fetcher.keep_pages(pool)
    }

    /// Weighs ascending vertices.
    pub fn weigh(&mut self, vertices: impl Iterator<Item = u32>) -> Result<Weight, GraphError> {
        let mut weight = Weight::default();
        let mut behind = 0;
        for vertex in vertices {
            let list = self.cursor.list(vertex.into())?;
            weight.vertices += 1;
            weight.entries += list.degree;
            if list.degree > 0 {
                let end = (list.offset + list.degree * 4).div_ceil(PAGE_BYTES);
                weight.pages += end.saturating_sub(behind.max(list.offset / PAGE_BYTES));
                behind = end;
            }
        }
        Ok(weight)
    }

    /// Top-down from a queue; what was found, in any order.
    pub fn top_down_queue(&mut self, shared: &Shared<'a>, queue: &[u32]) -> Result<Vec<u32>, GraphError> {
        let (state, mut found) = (shared.state, Vec::new());
        let mut visit = |vertex: VertexId, _: u64, bytes: &[u8]| {
            found.extend(ids(bytes).filter(|id| state.claim(*id, vertex as u32)));
        };
        for &vertex in queue {
            let list = self.cursor.list(vertex.into())?;
            self.fetcher.add(vertex.into(), list.offset, list.degree * 4, &mut visit)?;
        }
        self.fetcher.finish(&mut visit)?;
        Ok(found)
    }

    /// Top-down from the front's bitmap.
    pub fn top_down(&mut self, shared: &Shared<'a>) -> Result<(), GraphError> {
        let state = shared.state;
        let mut visit = |vertex: VertexId, _: u64, bytes: &[u8]| {
            for id in ids(bytes) {
                if state.claim(id, vertex as u32) {
                    state.next.set(id);
                }
            }
        };
        while let Some(words) = shared.next_chunk()? {
            for vertex in state.front.ones(words) {
                let list = self.cursor.list(vertex.into())?;
                self.fetcher.add(vertex.into(), list.offset, list.degree * 4, &mut visit)?;
            }
        }
        self.fetcher.finish(&mut visit)
    }

    /// Looks for parents among heads; vertices without one become pending.
    pub fn bottom_up_heads(&mut self, shared: &Shared<'a>) -> Result<(), GraphError> {
        let header = shared.graph.header();
        let heads = header.heads as usize;
        let section = header.section(SectionKind::Heads);
        let word_bytes = 64 * u64::from(header.heads) * 4;
        let mut visit = |word: VertexId, _: u64, bytes: &[u8]| {
            let mut pending = 0;
            for bit in ones_of(shared.unvisited(word as usize)) {
                let vertex = word as u32 * 64 + bit;
                let own = &bytes[bit as usize * heads * 4..][..heads * 4];
                match ids(own).find(|id| shared.state.front.has(*id)) {
                    Some(parent) => adopt(shared.state, vertex, parent),
                    None => pending |= 1 << bit,
                }
            }
            shared.state.pending.set_word(word as usize, pending);
        };
        while let Some(words) = shared.next_chunk()? {
            for word in words {
                if shared.unvisited(word) != 0 {
                    let start = word as u64 * word_bytes;
                    let length = word_bytes.min(section.length - start);
                    self.fetcher.add(word as u64, section.offset + start, length, &mut visit)?;
                }
            }
        }
        self.fetcher.finish(&mut visit)
    }

    /// Marks the vertices without a parent among their heads as pending, and counts the pages that their lists begin on. The
    /// heads are in memory; nothing is read or claimed.
    pub fn probe_heads(&mut self, shared: &Shared<'a>) -> Result<(), GraphError> {
        let state = shared.state;
        let heads = shared.graph.header().heads as usize;
        let all = shared.heads.get().expect("heads are loaded before they are probed");
        let mut pages = 0;
        while let Some(words) = shared.next_chunk()? {
            let mut behind = 0;
            for word in words {
                let mut pending = 0;
                for bit in ones_of(shared.unvisited(word)) {
                    let vertex = word * 64 + bit as usize;
                    if all[vertex * heads..][..heads].iter().all(|id| !state.front.has(*id)) {
                        pending |= 1 << bit;
                        let list = self.cursor.list(vertex as u64)?;
                        if list.degree > heads as u64 {
                            let end = list.offset + (list.degree * 4).min(PAGE_BYTES);
                            let end = end.div_ceil(PAGE_BYTES);
                            pages += end.saturating_sub(behind.max(list.offset / PAGE_BYTES));
                            behind = end;
                        }
                    }
                }
                state.pending.set_word(word, pending);
            }
        }
        shared.pending_pages.fetch_add(pages, Ordering::Relaxed);
        Ok(())
    }

    /// Gives each unvisited vertex that is not pending its parent among the heads in memory.
    pub fn adopt_heads(&mut self, shared: &Shared<'a>) -> Result<(), GraphError> {
        let state = shared.state;
        let heads = shared.graph.header().heads as usize;
        let all = shared.heads.get().expect("heads are loaded before they are probed");
        while let Some(words) = shared.next_chunk()? {
            for word in words {
                let pending = state.pending.word(word);
                for bit in ones_of(shared.unvisited(word) & !pending) {
                    let vertex = word * 64 + bit as usize;
                    let own = &all[vertex * heads..][..heads];
                    if let Some(parent) = own.iter().find(|id| state.front.has(**id)) {
                        adopt(state, vertex as u32, *parent);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads all heads into memory.
    pub fn load_heads(&mut self, graph: &Fwg) -> Result<Vec<u32>, GraphError> {
        let section = graph.header().section(SectionKind::Heads);
        let mut all = vec![0; (section.length / 4) as usize];
        let mut keep = |_: VertexId, at: u64, bytes: &[u8]| {
            let first = ((at - section.offset) / 4) as usize;
            for (head, id) in all[first..].iter_mut().zip(ids(bytes)) {
                *head = id;
            }
        };
        self.fetcher.add(0, section.offset, section.length, &mut keep)?;
        self.fetcher.finish(&mut keep)?;
        Ok(all)
    }

    /// Looks for parents in the lists of vertices that have none among their heads, the first page of each list first.
    pub fn bottom_up_lists(&mut self, shared: &Shared<'a>) -> Result<(), GraphError> {
        let heads = shared.graph.header().heads;
        let mut misses = Vec::new();
        while let Some(words) = shared.next_chunk()? {
            for word in words {
                let pending =
                    if heads == 0 { shared.unvisited(word) } else { shared.state.pending.word(word) };
                for bit in ones_of(pending) {
                    let vertex = word as u32 * 64 + bit;
                    let list = self.cursor.list(vertex.into())?;
                    if list.degree > u64::from(heads) {
                        let length = (list.degree * 4).min(PAGE_BYTES);
                        let mut visit = |vertex: VertexId, at: u64, bytes: &[u8]| {
                            find_parent(shared.state, vertex as u32, at, bytes, &mut misses);
                        };
                        self.fetcher.add(vertex.into(), list.offset, length, &mut visit)?;
                    }
                }
            }
            if misses.len() >= MOST_MISSES {
                self.search_on(shared, &mut misses)?;
            }
        }
        self.search_on(shared, &mut misses)
    }

    /// Completes what is under way, then reads on in lists whose first pages held no parent, until there are none.
    fn search_on(&mut self, shared: &Shared<'a>, misses: &mut Vec<Miss>) -> Result<(), GraphError> {
        loop {
            let mut visit = |vertex: VertexId, at: u64, bytes: &[u8]| {
                find_parent(shared.state, vertex as u32, at, bytes, misses);
            };
            self.fetcher.finish(&mut visit)?;
            if misses.is_empty() {
                return Ok(());
            }
            let mut before = std::mem::take(misses);
            before.sort_unstable_by_key(|miss| miss.vertex);
            for Miss { vertex, end } in before {
                let list = self.cursor.list(vertex.into())?;
                let list_end = list.offset + list.degree * 4;
                let length = ((end - list.offset) * READ_ON_GROWTH).min(MOST_READ_ON).min(list_end - end);
                let mut visit = |vertex: VertexId, at: u64, bytes: &[u8]| {
                    find_parent(shared.state, vertex as u32, at, bytes, misses);
                };
                self.fetcher.add(vertex.into(), end, length, &mut visit)?;
            }
        }
    }
}

/// A list that was read up to `end` without a parent in it.
#[derive(Debug, Clone, Copy)]
struct Miss {
    vertex: u32,
    end: u64,
}

/// Takes a parent from a part of a list that lies at `at`.
fn find_parent(state: &State, vertex: u32, at: u64, bytes: &[u8], misses: &mut Vec<Miss>) {
    match ids(bytes).find(|id| state.front.has(*id)) {
        Some(parent) => adopt(state, vertex, parent),
        None if bytes.len() as u64 >= PAGE_BYTES => {
            misses.push(Miss { vertex, end: at + bytes.len() as u64 })
        }
        None => {}
    }
}

/// Neighbours in the bytes of a list.
#[inline]
fn ids(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]))
}

/// Gives a vertex that only the calling thread looks after its parent.
#[inline]
fn adopt(state: &State, vertex: u32, parent: u32) {
    if state.claim(vertex, parent) {
        state.next.set(vertex);
    }
}
