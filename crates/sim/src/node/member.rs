//! A block device as the host has it: the queue of requests that wait, in the order of its scheduler, and those in the device.

use std::collections::VecDeque;

use super::command::{Commands, NONE};
use crate::device::{Operation, Time};
use crate::machine::Policy;

/// What a device did, as diskstats counts it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Served {
    /// Requests, merges and bytes by operation: read, write, discard.
    pub ios: [u64; 3],
    pub merges: [u64; 3],
    pub bytes: [u64; 3],
    /// Time with at least one request in the queue or the device, nanoseconds.
    pub busy_ns: u64,
    /// Time of all requests in queue and device added up, nanoseconds.
    pub in_flight_ns: u128,
}

/// Position of an operation in [`Served`].
#[inline]
pub(crate) fn direction(operation: Operation) -> usize {
    match operation {
        Operation::Read => 0,
        Operation::Write => 1,
        Operation::Trim | Operation::Flush => 2,
    }
}

/// A block device.
#[derive(Debug)]
pub(crate) struct Member {
    waiting: VecDeque<u32>,
    /// Requests in the device, and how many it takes.
    in_device: u32,
    depth: u32,
    policy: Policy,
    /// Where the elevator stands.
    position: u64,
    /// Whether requests are held back until more of them are there.
    is_plugged: bool,
    max_bytes: u32,
    served: Served,
    changed_at: Time,
}

impl Member {
    pub fn new(depth: u32, policy: Policy, max_bytes: u32) -> Self {
        Self {
            waiting: VecDeque::new(),
            in_device: 0,
            depth: if policy == Policy::Anticipatory { 1 } else { depth },
            policy,
            position: 0,
            is_plugged: false,
            max_bytes,
            served: Served::default(),
            changed_at: 0,
        }
    }

    /// Accounts for the time until now.
    #[inline]
    fn account(&mut self, now: Time) {
        let time = now - self.changed_at;
        self.changed_at = now;
        let present = self.in_device as usize + self.waiting.len();
        if present > 0 {
            self.served.busy_ns += time;
            self.served.in_flight_ns += u128::from(time) * present as u128;
        }
    }

    /// The largest request that it takes, bytes.
    #[inline]
    pub fn max_bytes(&self) -> u32 {
        self.max_bytes
    }

    /// What it did until now.
    pub fn served(&mut self, now: Time) -> Served {
        self.account(now);
        self.served
    }

    /// Puts a command in the queue, merged with its neighbour where there is one. With `plug_at` more of the same submission may
    /// follow, so an empty queue is held back until that many requests wait.
    #[inline]
    pub fn add(&mut self, now: Time, id: u32, commands: &mut Commands, plug_at: Option<u32>) {
        self.account(now);
        if let Some(last) = self.waiting.back().copied() {
            if commands.merge(last, id, self.max_bytes) {
                self.served.merges[direction(commands.get(id).operation)] += 1;
                return;
            }
        } else if plug_at.is_some() {
            self.is_plugged = true;
        }
        self.waiting.push_back(id);
        if plug_at.is_some_and(|at| self.waiting.len() >= at as usize) {
            self.is_plugged = false;
        }
    }

    /// Holds nothing back any more.
    #[inline]
    pub fn unplug(&mut self) {
        self.is_plugged = false;
    }

    /// The next command for the device, if it takes one.
    #[inline]
    pub fn next(&mut self, commands: &Commands) -> Option<u32> {
        if self.is_plugged || self.in_device == self.depth || self.waiting.is_empty() {
            return None;
        }
        let chosen = match self.policy {
            Policy::Noop => 0,
            Policy::Elevator | Policy::Anticipatory => self.nearest_above(commands),
        };
        let id = if chosen == 0 { self.waiting.pop_front() } else { self.waiting.remove(chosen) }?;
        let command = commands.get(id);
        self.position = command.offset + u64::from(command.bytes);
        self.in_device += 1;
        Some(id)
    }

    /// The waiting command with the lowest address from the elevator upwards, or of all.
    fn nearest_above(&self, commands: &Commands) -> usize {
        let address = |id: u32| {
            let offset = commands.get(id).offset;
            (offset < self.position, offset)
        };
        (0..self.waiting.len()).min_by_key(|n| address(self.waiting[*n])).unwrap_or(0)
    }

    /// A command left the device.
    #[inline]
    pub fn finish(&mut self, now: Time, operation: Operation, bytes: u32) {
        self.account(now);
        self.in_device -= 1;
        let direction = direction(operation);
        self.served.ios[direction] += 1;
        self.served.bytes[direction] += u64::from(bytes);
    }
}

/// A drive behind a RAID processor: commands that wait for a place in it.
#[derive(Debug, Default)]
pub(crate) struct Port {
    pub waiting: VecDeque<u32>,
    pub in_device: u32,
    pub depth: u32,
}

const _: () = assert!(NONE == u32::MAX);
