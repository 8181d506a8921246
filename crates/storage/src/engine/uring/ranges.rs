//! Discards as ranges of one command: so many as the caller asks for, or as are prepared when it submits.
//!
//! The ranges are the command's data, and lie in the buffer of the first discard's slot, which has no data of its own. The others
//! wait for its completion, which is theirs: one command is done or not as a whole. Each of them is a request of its own otherwise,
//! and begins and ends with its own slot. A command goes to one member, so that discards on another begin a new one.

use std::collections::BTreeMap;

use super::form::Form;
use super::{IoUring, asked};
use crate::engine::parts::Part;
use crate::kernel::Kernel;
use crate::nvme::MOST_RANGES;

/// Discards that wait for others, and those that share a command.
#[derive(Debug)]
pub(super) struct Ranges {
    /// The most of one command; 1 where discards are no commands.
    pub most: u32,
    /// The next command's, oldest first.
    waiting: Vec<u32>,
    /// By the id that a command's completion has, the others that it completes.
    together: BTreeMap<u32, Vec<u32>>,
}

impl Ranges {
    pub fn new(most: u32) -> Self {
        Self { most: most.clamp(1, MOST_RANGES), waiting: Vec::new(), together: BTreeMap::new() }
    }

    /// The discards that end with `id`.
    #[inline]
    pub fn ending_with(&mut self, id: u32) -> Vec<u32> {
        if self.together.is_empty() { Vec::new() } else { self.together.remove(&id).unwrap_or_default() }
    }

    /// How many completions to wait for where so many parts are waited for: fewer will do where each ends several.
    #[inline]
    pub fn completions_of(&self, parts: u32) -> u32 {
        if self.most == 1 { parts } else { parts.div_ceil(self.most) }
    }
}

impl<K: Kernel, F: Form> IoUring<K, F> {
    /// Puts a discard among the ranges of the next command.
    #[cold]
    pub(super) fn push_range(&mut self, part: Part) {
        if let Some(result) = self.form.settled(&asked(&part)) {
            self.immediate.push((part.id, result));
            return;
        }
        let is_elsewhere =
            self.ranges.waiting.first().is_some_and(|first| self.slots.part(*first).member != part.member);
        if is_elsewhere {
            self.push_ranges();
        }
        self.ranges.waiting.push(part.id);
        if self.ranges.waiting.len() as u32 >= self.ranges.most {
            self.push_ranges();
        }
    }

    /// Puts the command of the ranges that are waiting into the ring, or them into the backlog where there is no room.
    #[cold]
    pub(super) fn push_ranges(&mut self) {
        let ids = std::mem::take(&mut self.ranges.waiting);
        let Some((&id, others)) = ids.split_first() else { return };
        if self.tail.wrapping_sub(self.head) >= self.ring.entries() {
            self.backlog.extend(ids);
            return;
        }
        let range = |id: &u32| self.form.range(&asked(&self.slots.part(*id)));
        let bytes: Vec<u8> = ids.iter().flat_map(range).collect();
        let first = self.slots.part(id);
        self.slots.put(first.slot, &bytes);
        let mut request = self.request(&first);
        // Wherever the discard itself would have its data, had it any.
        request.address = self.slots.arena().slot(first.slot).as_ptr() as u64;
        let entry =
            self.form.ranges(&request, ids.len() as u32).expect("only called where there is such a command");
        self.ring.write_sqe(self.tail, entry);
        self.tail = self.tail.wrapping_add(1);
        if !others.is_empty() {
            self.ranges.together.insert(id, others.to_vec());
        }
    }
}
