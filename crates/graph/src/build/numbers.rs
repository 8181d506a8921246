//! Numbers in degree order: the vertex with the highest degree is 0; those of equal degree keep their order; those without
//! neighbours come last.
//!
//! A vertex's number is the number of vertices with a higher degree, and of those with the same degree and a smaller input
//! number. So a scan of the degrees in input order and a counter for each degree give all numbers. There are at most
//! √(2 × arcs) different degrees.

use std::collections::BTreeMap;

use super::READ_DEPTH;
use crate::blocks::BlockScan;
use crate::edges::EdgeList;
use crate::{GraphError, Steps, VertexId};

/// Vertices between two looks at whether to go on.
const STOP_INTERVAL: u64 = 1 << 16;
/// Bytes of memory that a degree takes in a map, at most.
const BYTES_PER_DEGREE: u64 = 64;

/// Degrees, and how many vertices have each.
#[derive(Debug)]
pub struct Numbers {
    degrees: EdgeList,
    /// Vertices of each degree.
    counts: BTreeMap<u64, u64>,
    listed: u64,
}

impl Numbers {
    /// Of a list of vertices, ascending, with their degrees.
    pub fn count(degrees: EdgeList) -> Result<Self, GraphError> {
        let mut counts = BTreeMap::new();
        let mut scan = degrees.scan(0..degrees.header().blocks(), READ_DEPTH)?;
        while let Some((_, pairs)) = scan.next_block()? {
            pairs.iter().for_each(|(_, degree)| *counts.entry(degree).or_insert(0) += 1);
        }
        let listed = degrees.header().edges;
        Ok(Self { degrees, counts, listed })
    }

    /// Vertices that have neighbours.
    pub fn listed(&self) -> u64 {
        self.listed
    }

    /// Entries of all lists.
    pub fn entries(&self) -> u64 {
        self.counts.iter().map(|(degree, count)| degree * count).sum()
    }

    /// Bytes of memory that this and two scans take.
    pub fn memory_bytes(&self) -> u64 {
        3 * BYTES_PER_DEGREE * self.counts.len() as u64
    }

    /// Degrees from the highest down, with the number of their vertices.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().rev().map(|(degree, count)| (*degree, *count))
    }

    /// All vertices in input order.
    pub fn scan<'a>(&self, vertices: u64, steps: &'a Steps) -> Result<NumberScan<'a>, GraphError> {
        let mut above = 0;
        let mut next = BTreeMap::new();
        for (degree, count) in self.runs() {
            next.insert(degree, above);
            above += count;
        }
        next.insert(0, above);
        let scan = self.degrees.scan(0..self.degrees.header().blocks(), READ_DEPTH)?;
        Ok(NumberScan { scan, steps, next, batch: Vec::new(), position: 0, old: 0, vertices, current: None })
    }
}

/// A vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered {
    /// Its number in the input.
    pub old: VertexId,
    /// Its stored number in degree order.
    pub new: VertexId,
    /// Its degree.
    pub degree: u64,
}

/// Vertices in input order.
#[derive(Debug)]
pub struct NumberScan<'a> {
    scan: BlockScan,
    /// Asked now and then whether to go on: vertices without edges are no steps of anything else.
    steps: &'a Steps,
    /// The next number of each degree, 0 included.
    next: BTreeMap<u64, VertexId>,
    /// Vertices of the present block that have neighbours, and their degrees.
    batch: Vec<(VertexId, u64)>,
    position: usize,
    /// The next vertex.
    old: VertexId,
    vertices: u64,
    current: Option<Numbered>,
}

impl NumberScan<'_> {
    /// The next vertex, without going past it.
    pub fn peek(&mut self) -> Result<Option<Numbered>, GraphError> {
        if self.current.is_some() || self.old == self.vertices {
            return Ok(self.current);
        }
        if self.position == self.batch.len() {
            self.batch.clear();
            self.position = 0;
            if let Some((_, pairs)) = self.scan.next_block()? {
                self.batch.extend(pairs.iter());
            }
        }
        if self.old.is_multiple_of(STOP_INTERVAL) {
            self.steps.add(0, "numbering vertices")?;
        }
        let degree = match self.batch.get(self.position) {
            Some(&(old, degree)) if old == self.old => {
                self.position += 1;
                degree
            }
            _ => 0,
        };
        let next = self.next.get_mut(&degree).expect("the same file was counted");
        self.current = Some(Numbered { old: self.old, new: *next, degree });
        *next += 1;
        self.old += 1;
        Ok(self.current)
    }

    /// Goes past the vertex that was peeked at.
    pub fn advance(&mut self) {
        self.current = None;
    }

    /// The next vertex.
    pub fn next(&mut self) -> Result<Option<Numbered>, GraphError> {
        let next = self.peek()?;
        self.advance();
        Ok(next)
    }

    /// The number of `old`, which is not below the one asked for before.
    pub fn number(&mut self, old: VertexId) -> Result<VertexId, GraphError> {
        loop {
            let found = self.peek()?.expect("an end of an arc is a vertex");
            if found.old == old {
                return Ok(found.new);
            }
            self.advance();
        }
    }
}
