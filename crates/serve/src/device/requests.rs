//! Requests that were taken in and not answered yet.

use std::ops::{Index, IndexMut};

use crate::terms::Kind;
use nbd::wire::ErrorCode as Code;

/// A request under way.
#[derive(Debug)]
pub(super) struct Pending {
    pub cookie: u64,
    pub kind: Kind,
    pub offset: u64,
    pub length: u32,
    /// To be followed by fdatasync(2).
    pub fua: bool,
    /// Parts that are not over.
    pub parts: u32,
    /// What its first part to fail failed with.
    pub failed: Option<Code>,
    /// The bytes of a reply that has to be whole; empty until it is begun.
    pub gathered: Option<Vec<u8>>,
}

/// Whether a part that is over belonged to a request that is still wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// It did, and was counted.
    Counted,
    /// Its request was given up.
    Lost,
}

/// Requests by small numbers, which are used again.
#[derive(Debug, Default)]
pub(super) struct Requests {
    all: Vec<Option<Pending>>,
    free: Vec<usize>,
    in_lane: Vec<usize>,
    gathering: u64,
}

impl Requests {
    pub fn add(&mut self, pending: Pending) -> usize {
        match self.free.pop() {
            Some(id) => {
                self.all[id] = Some(pending);
                id
            }
            None => {
                self.all.push(Some(pending));
                self.all.len() - 1
            }
        }
    }

    pub fn len(&self) -> usize {
        self.all.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, id: usize) -> Option<&Pending> {
        self.all[id].as_ref()
    }

    /// Takes a request out.
    pub fn forget(&mut self, id: usize) -> Option<Pending> {
        let pending = self.all[id].take()?;
        self.free.push(id);
        self.gathering -= pending.gathered.as_ref().map_or(0, |bytes| bytes.len() as u64);
        Some(pending)
    }

    /// Whether a reply that has to be put together must wait for others, which with it, and with `waiting` bytes of
    /// those that the client has not taken yet, would come to more than `most`. The only one never has to.
    pub fn must_wait(&self, id: usize, waiting: u64, most: u64) -> bool {
        let (pending, held) = (&self[id], self.gathering + waiting);
        pending.gathered.is_some() && held > 0 && held + u64::from(pending.length) > most
    }

    /// Makes room to put a reply together, where it has to be.
    pub fn gather(&mut self, id: usize) {
        let length = self[id].length;
        if let Some(gathered) = &mut self[id].gathered {
            gathered.resize(length as usize, 0);
            self.gathering += u64::from(length);
        }
    }

    /// Notes a failure, unless there was one before.
    pub fn fail(&mut self, id: usize, failed: Option<Code>) {
        if let Some(pending) = &mut self.all[id] {
            pending.failed = pending.failed.or(failed);
        }
    }

    /// Counts a part that is over.
    pub fn part_over(&mut self, id: usize, failed: Option<Code>) -> Part {
        self.fail(id, failed);
        match &mut self.all[id] {
            Some(pending) => {
                pending.parts -= 1;
                Part::Counted
            }
            None => Part::Lost,
        }
    }

    /// Notes that the slow lane has it.
    pub fn asked(&mut self, id: usize) {
        self.in_lane.push(id);
    }

    /// Notes that the slow lane has answered.
    pub fn answered(&mut self, id: usize) {
        self.in_lane.retain(|other| *other != id);
    }

    /// How many the slow lane has.
    pub fn in_lane(&self) -> usize {
        self.in_lane.len()
    }

    /// Takes back all that the slow lane has.
    pub fn take_lane(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.in_lane)
    }
}

impl Index<usize> for Requests {
    type Output = Pending;

    fn index(&self, id: usize) -> &Pending {
        self.all[id].as_ref().expect("a request is there until it was answered")
    }
}

impl IndexMut<usize> for Requests {
    fn index_mut(&mut self, id: usize) -> &mut Pending {
        self.all[id].as_mut().expect("a request is there until it was answered")
    }
}
