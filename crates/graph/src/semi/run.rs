//! A search, level by level.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::choice::{Candidates, Direction, choose};
use super::crew::{Crew, Step};
use super::steps::{Shared, Weight, Worker};
use super::{LevelRecord, MemoryPlan};
use crate::fetch::{PagePool, Traffic};
use crate::format::PAGE_BYTES;
use crate::{GraphError, VertexId};

/// Bytes of lists up to which a front is a queue that one thread searches.
pub(super) const QUEUE_BYTES: u64 = 1 << 20;

/// Levels of which there is a record: a few hundred kilobytes, which the program's own memory has room for.
pub const MOST_RECORDS: usize = 4096;

/// The vertices that were found last.
#[derive(Debug)]
enum Front {
    /// Ascending.
    Queue(Vec<u32>),
    /// Set in the state's `front`.
    Bits { vertices: u64 },
}

/// One search.
#[derive(Debug)]
pub(super) struct Run<'a> {
    shared: &'a Shared<'a>,
    crew: Crew<'a>,
    pool: Option<PagePool>,
    /// The bytes that it may take beside the heads.
    pool_beside_heads: u64,
    traffic: &'a Traffic,
    /// Whether there are heads and memory for all of them, once they are wanted.
    is_heads_in_memory: bool,
    pub level_count: u64,
    /// Of the first levels.
    pub records: Vec<LevelRecord>,
}

impl<'a> Run<'a> {
    pub fn new(shared: &'a Shared<'a>, crew: Crew<'a>, plan: &MemoryPlan, traffic: &'a Traffic) -> Self {
        let MemoryPlan { pool_beside_heads, heads, .. } = *plan;
        let has_heads = shared.heads.get().is_some();
        let pool = PagePool::within(if has_heads { pool_beside_heads } else { plan.pool });
        let is_heads_in_memory = heads > 0;
        let (level_count, records) = (0, Vec::new());
        Self { shared, crew, pool, pool_beside_heads, traffic, is_heads_in_memory, level_count, records }
    }

    /// Searches until nothing is found; vertices reached, and neighbours in their lists.
    pub fn levels(&mut self, source: VertexId) -> Result<(u64, u64), GraphError> {
        let header = self.shared.graph.header();
        let mut front = Front::Queue(vec![source as u32]);
        let (mut last, mut front_before) = (Direction::TopDown, 0);
        let (mut reached, mut entries) = (0, 0);
        loop {
            self.shared.check_stop()?;
            let began = Instant::now();
            let bytes_before = self.traffic.bytes();
            let weight = self.weigh(&front)?;
            if weight.vertices == 0 {
                return Ok((reached, entries));
            }
            reached += weight.vertices;
            entries += weight.entries;
            // Vertices without out-edges have no entries, and a place in the queue all the same.
            let places = weight.entries.max(weight.vertices);
            let is_small = places * header.width.bytes() as u64 <= QUEUE_BYTES;
            let unexplored = header.entries.saturating_sub(entries);
            let is_top_down = header.directed || is_small && matches!(front, Front::Queue(_));
            let direction = match (is_top_down, self.is_heads_in_memory) {
                (true, _) => Direction::TopDown,
                (false, true) => self.cheaper(&front, &weight)?,
                (false, false) => choose(&Candidates {
                    last,
                    listed: header.listed,
                    front: weight.vertices,
                    front_before,
                    front_entries: weight.entries,
                    unexplored,
                    top_down_bytes: weight.pages * PAGE_BYTES,
                    bottom_up_bytes: self.shared.bottom_up_bytes(unexplored),
                }),
            };
            front = match direction {
                Direction::TopDown if is_small => self.queue_step(front)?,
                Direction::TopDown => self.bits_step(front, Worker::top_down)?,
                Direction::BottomUp => self.bottom_up(front)?,
            };
            let found = self.found(&front);
            (last, front_before) = (direction, weight.vertices);
            self.level_count += 1;
            if self.records.len() < MOST_RECORDS {
                self.records.push(LevelRecord {
                    direction,
                    front: weight.vertices,
                    front_entries: weight.entries,
                    found,
                    bytes: self.traffic.bytes() - bytes_before,
                    time: began.elapsed(),
                });
            }
        }
    }

    /// The direction that reads less, by looking at the heads in memory.
    fn cheaper(&mut self, front: &Front, weight: &Weight) -> Result<Direction, GraphError> {
        let shared = self.shared;
        if shared.heads.get().is_none() {
            // They take the place of pages. What those held is read again where it is wanted.
            self.pool = None;
            let heads = self.crew.first.load_heads(shared.graph)?;
            shared.heads.get_or_init(|| heads);
            self.pool = PagePool::within(self.pool_beside_heads);
        }
        self.to_bits(front);
        shared.pending_pages.store(0, Ordering::Relaxed);
        self.crew.all(Worker::probe_heads)?;
        let is_less = shared.pending_pages.load(Ordering::Relaxed) <= weight.pages;
        Ok(if is_less { Direction::BottomUp } else { Direction::TopDown })
    }

    /// Heads, then lists.
    fn bottom_up(&mut self, front: Front) -> Result<Front, GraphError> {
        self.to_bits(&front);
        if self.is_heads_in_memory {
            self.crew.all(Worker::adopt_heads)?;
        } else if self.shared.graph.header().heads > 0 {
            self.shared.state.pending.clear();
            self.crew.all(Worker::bottom_up_heads)?;
        }
        self.bits_step(front, Worker::bottom_up_lists)
    }

    fn found(&self, front: &Front) -> u64 {
        match front {
            Front::Queue(queue) => queue.len() as u64,
            Front::Bits { vertices } => *vertices,
        }
    }

    fn weigh(&mut self, front: &Front) -> Result<Weight, GraphError> {
        match front {
            Front::Queue(queue) => self.crew.first.weigh(queue.iter().copied()),
            Front::Bits { .. } => {
                let bits = &self.shared.state.front;
                self.crew.first.weigh(bits.ones(0..bits.words()))
            }
        }
    }

    /// One thread, pages kept.
    fn queue_step(&mut self, front: Front) -> Result<Front, GraphError> {
        let state = &self.shared.state;
        let queue = match front {
            Front::Queue(queue) => queue,
            Front::Bits { .. } => {
                let queue = state.front.ones(0..state.front.words()).collect();
                state.front.clear();
                queue
            }
        };
        let worker = &mut self.crew.first;
        worker.keep_pages(self.pool.take());
        let mut found = worker.top_down_queue(self.shared, &queue)?;
        self.pool = worker.keep_pages(None);
        found.sort_unstable();
        Ok(Front::Queue(found))
    }

    fn to_bits(&self, front: &Front) {
        if let Front::Queue(queue) = front {
            for vertex in queue {
                self.shared.state.front.set(*vertex);
            }
        }
    }

    /// All threads, from bitmap to bitmap.
    fn bits_step(&mut self, front: Front, step: Step<'a>) -> Result<Front, GraphError> {
        self.to_bits(&front);
        self.crew.all(step)?;
        Ok(Front::Bits { vertices: self.shared.state.advance() })
    }
}
