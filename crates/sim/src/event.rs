//! What happens next: a queue of instants.
//!
//! A four-ary heap ordered by time and, within an instant, by the order in which events were put in, so that a run never
//! depends on the heap's shape. Four children a node: the levels of a binary heap by half, and the children of a node lie side
//! by side in memory.

use crate::device::Time;

/// One event: when, and what the node made of it.
#[derive(Debug, Clone, Copy)]
pub struct Event<K> {
    /// When it happens.
    pub at: Time,
    order: u32,
    /// What happens.
    pub kind: K,
}

impl<K> Event<K> {
    #[inline]
    fn key(&self) -> (Time, u32) {
        (self.at, self.order)
    }
}

/// Events to come.
#[derive(Debug)]
pub struct Events<K> {
    heap: Vec<Event<K>>,
    next_order: u32,
}

impl<K> Default for Events<K> {
    fn default() -> Self {
        Self { heap: Vec::new(), next_order: 0 }
    }
}

impl<K: Copy> Events<K> {
    /// Puts an event in.
    #[inline]
    pub fn push(&mut self, at: Time, kind: K) {
        if self.next_order == u32::MAX {
            self.renumber();
        }
        let event = Event { at, order: self.next_order, kind };
        self.next_order += 1;
        let mut hole = self.heap.len();
        self.heap.push(event);
        while hole > 0 {
            let parent = (hole - 1) / 4;
            if self.heap[parent].key() <= event.key() {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = event;
    }

    /// Counts the order from 0 again, so that a run may have any number of events: a sorted array is a heap.
    #[cold]
    fn renumber(&mut self) {
        self.heap.sort_unstable_by_key(Event::key);
        self.next_order = 0;
        for event in &mut self.heap {
            event.order = self.next_order;
            self.next_order += 1;
        }
    }

    /// Takes the next event out.
    #[inline]
    pub fn pop(&mut self) -> Option<Event<K>> {
        let last = self.heap.pop()?;
        let Some(first) = self.heap.first().copied() else { return Some(last) };
        let len = self.heap.len();
        let mut hole = 0;
        loop {
            let child = hole * 4 + 1;
            if child >= len {
                break;
            }
            let mut least = child;
            for other in child + 1..len.min(child + 4) {
                if self.heap[other].key() < self.heap[least].key() {
                    least = other;
                }
            }
            if last.key() <= self.heap[least].key() {
                break;
            }
            self.heap[hole] = self.heap[least];
            hole = least;
        }
        self.heap[hole] = last;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_come_by_time_and_then_in_the_order_of_their_arrival(
            times in proptest::collection::vec(0u64..20, 0..300),
            left in 0u32..300,
        ) {
            let mut events = Events { heap: Vec::new(), next_order: u32::MAX - left };
            for (n, at) in times.iter().enumerate() {
                events.push(*at, n);
            }
            let mut expected: Vec<(u64, usize)> = times.iter().copied().enumerate().map(|(n, at)| (at, n)).collect();
            expected.sort_unstable();
            let got: Vec<(u64, usize)> = std::iter::from_fn(|| events.pop()).map(|e| (e.at, e.kind)).collect();
            prop_assert_eq!(got, expected);
        }
    }
}
