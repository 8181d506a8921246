//! Reading the lists of many vertices in ascending order, a deep queue of merged pages at a time.
//!
//! 1. Each list is a range of bytes. Ranges whose pages overlap or touch go into one *extent*, up to a slot's size; so
//!    neighbouring lists cost one request, and no page of an extent is read twice.
//! 2. A full extent is asked for. When all slots are under way, the oldest is waited for, its pages are
//!    [checked](Fwg::check), and its parts of lists are handed to the caller, in the order in which they were asked for.
//!
//! A list longer than a slot is handed over in several parts, each with the label that the caller gave the list. Memory:
//! the slots, and 24 bytes at most for each part under way, whose number is bounded.

use std::collections::VecDeque;

use storage::engine::{self, AnyEngine, Engine, EngineConfig, IoEngine, Op, RequestFailure};
use storage::on_engine;
use storage::pages::PageChoice;

use crate::GraphError;
use crate::format::{Fwg, List, PAGE_BYTES};

/// Most parts of lists under way, where memory allows.
const MAX_PARTS: u64 = 64 << 10;
/// Bytes of a part at most.
const PART_BYTES: u64 = size_of::<Part<[u64; 2]>>() as u64;
/// Largest request, bytes.
const SLOT_BYTES: u64 = 32 << 10;
/// Most requests under way.
const MAX_DEPTH: u64 = 64;

/// Part of a list in an extent.
#[derive(Debug, Clone, Copy)]
struct Part<L> {
    label: L,
    /// Where it begins in the extent, and how long it is, bytes.
    start: u32,
    length: u32,
}

/// Pages that are read by one request.
#[derive(Debug, Clone, Copy)]
struct Extent {
    offset: u64,
    length: u64,
    parts: usize,
}

/// An extent that was asked for.
#[derive(Debug, Clone, Copy)]
struct Request {
    slot: u32,
    extent: Extent,
}

/// Reads lists of one graph.
#[derive(Debug)]
pub(super) struct ListReader<'a, L> {
    graph: &'a Fwg,
    width: u64,
    engine: AnyEngine,
    free: Vec<u32>,
    done: Vec<bool>,
    under_way: VecDeque<Request>,
    parts: VecDeque<Part<L>>,
    max_parts: usize,
    open: Option<Extent>,
    failure: Option<RequestFailure>,
    pub bytes_read: u64,
}

impl<'a, L: Copy> ListReader<'a, L> {
    /// Bytes of memory that [`ListReader::open`] takes of `memory`.
    pub fn memory_bytes(memory: u64) -> u64 {
        Self::depth(memory) * SLOT_BYTES + Self::max_parts(memory) * PART_BYTES
    }

    fn max_parts(memory: u64) -> u64 {
        (memory / 16 / PART_BYTES).clamp(1 << 10, MAX_PARTS)
    }

    fn depth(memory: u64) -> u64 {
        (memory / 16 / SLOT_BYTES).clamp(4, MAX_DEPTH)
    }

    /// Reads lists of `graph` with what is a reader's share of `memory`.
    pub fn open(graph: &'a Fwg, memory: u64) -> Result<Self, GraphError> {
        let depth = Self::depth(memory) as u32;
        let config = EngineConfig {
            depth,
            slot_bytes: SLOT_BYTES as usize,
            pages: PageChoice::Base,
            ..EngineConfig::default()
        };
        let (engine, _) = engine::open(IoEngine::Auto, graph.device(), &config)
            .map_err(|error| failed(graph, None, std::io::Error::other(error)))?;
        Ok(Self {
            graph,
            width: graph.header().width.bytes() as u64,
            engine,
            free: (0..depth).rev().collect(),
            done: vec![false; depth as usize],
            under_way: VecDeque::new(),
            parts: VecDeque::with_capacity(Self::max_parts(memory) as usize + 1),
            max_parts: Self::max_parts(memory) as usize,
            open: None,
            failure: None,
            bytes_read: 0,
        })
    }

    /// Adds a list. Lists that are read meanwhile are given to `consume`, with their labels.
    pub fn add<E: From<GraphError>>(
        &mut self,
        label: L,
        list: List,
        consume: &mut impl FnMut(L, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut at, end) = (list.offset, list.offset + list.degree * self.width);
        while at < end {
            let page = at - at % PAGE_BYTES;
            let fits = |open: &Extent| {
                (open.offset..=open.offset + open.length).contains(&page) && at < open.offset + SLOT_BYTES
            };
            if !self.open.as_ref().is_some_and(fits) {
                self.ask(consume)?;
                self.open = Some(Extent { offset: page, length: 0, parts: 0 });
            }
            let Some(open) = &mut self.open else { continue };
            let stop = end.min(open.offset + SLOT_BYTES);
            self.parts.push_back(Part {
                label,
                start: (at - open.offset) as u32,
                length: (stop - at) as u32,
            });
            open.parts += 1;
            open.length = open.length.max(stop.next_multiple_of(PAGE_BYTES) - open.offset);
            at = stop;
        }
        while self.parts.len() > self.max_parts {
            self.ask(consume)?;
            self.take_oldest(consume)?;
        }
        Ok(())
    }

    /// Reads all that was added.
    pub fn finish<E: From<GraphError>>(
        &mut self,
        consume: &mut impl FnMut(L, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.ask(consume)?;
        while !self.under_way.is_empty() {
            self.take_oldest(consume)?;
        }
        Ok(())
    }

    /// Asks for the open extent.
    fn ask<E: From<GraphError>>(
        &mut self,
        consume: &mut impl FnMut(L, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(extent) = self.open.take() else { return Ok(()) };
        if self.free.is_empty() {
            self.take_oldest(consume)?;
        }
        let slot = self.free.pop().expect("the oldest extent's slot is free now");
        self.done[slot as usize] = false;
        on_engine!(&mut self.engine, engine => {
            engine.prepare(slot, Op::Read, extent.offset, extent.length as u32);
        });
        self.under_way.push_back(Request { slot, extent });
        self.bytes_read += extent.length;
        Ok(self.complete(0)?)
    }

    /// Waits for the oldest extent, and hands over what is in it.
    fn take_oldest<E: From<GraphError>>(
        &mut self,
        consume: &mut impl FnMut(L, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(Request { slot, extent }) = self.under_way.pop_front() else { return Ok(()) };
        while !self.done[slot as usize] {
            self.complete(1)?;
        }
        let pages = on_engine!(&self.engine, engine => engine.buffer(slot));
        self.graph.check(extent.offset, &pages[..extent.length as usize])?;
        for part in self.parts.drain(..extent.parts) {
            consume(part.label, &pages[part.start as usize..][..part.length as usize])?;
        }
        self.free.push(slot);
        Ok(())
    }

    /// Hands requests over, waits for `count` of them, and notes what is done.
    fn complete(&mut self, count: u32) -> Result<(), GraphError> {
        let (done, failure) = (&mut self.done, &mut self.failure);
        let result = on_engine!(&mut self.engine, engine => {
            let result = self.graph.clock().during(|| engine.submit(count, None));
            engine.reap(|slot, outcome| {
                done[slot as usize] = true;
                if let Err(error) = outcome {
                    failure.get_or_insert(error);
                }
            });
            result
        });
        if let Some(failure) = self.failure.take() {
            let offset = failure.offset;
            return Err(failed(self.graph, Some(offset), std::io::Error::other(failure)));
        }
        result.map_err(|error| failed(self.graph, None, std::io::Error::other(error)))
    }
}

fn failed(graph: &Fwg, offset: Option<u64>, source: std::io::Error) -> GraphError {
    GraphError::Io { operation: "read", path: graph.path().to_owned(), offset, source }
}
