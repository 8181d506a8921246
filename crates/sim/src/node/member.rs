//! A block device as the host has it: the requests that wait ([`super::scheduler`]), and those in the device.

use std::collections::VecDeque;

use super::command::{Command, Commands};
use super::scheduler::Queue;
use crate::device::{Operation, Time};
use crate::machine::{Policy, Scheduler};

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
    waiting: Queue,
    /// Requests in the device, and how many it takes.
    in_device: u32,
    depth: u32,
    /// Whether requests are held back until more of them are there.
    is_plugged: bool,
    max_bytes: u32,
    /// The instant of the last wake that was asked for, while the device waits for a request.
    wake_at: Option<Time>,
    served: Served,
    changed_at: Time,
}

impl Member {
    pub fn new(depth: u32, scheduler: Option<&Scheduler>, max_bytes: u32) -> Self {
        let is_one_by_one = scheduler.is_some_and(|scheduler| scheduler.policy == Policy::Anticipatory);
        Self {
            waiting: Queue::new(scheduler),
            in_device: 0,
            depth: if is_one_by_one { 1 } else { depth },
            is_plugged: false,
            max_bytes,
            wake_at: None,
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
        let was_empty = self.waiting.len() == 0;
        if !self.waiting.add(now, id, commands, self.max_bytes) {
            self.served.merges[direction(commands.get(id).operation)] += 1;
            return;
        }
        if was_empty && plug_at.is_some() {
            self.is_plugged = true;
        }
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
    pub fn next(&mut self, now: Time, commands: &Commands) -> Option<u32> {
        if self.is_plugged || self.in_device == self.depth {
            return None;
        }
        let id = self.waiting.next(now, commands)?;
        self.in_device += 1;
        Some(id)
    }

    /// An instant at which the device has waited long enough for a request, the first time that it is asked for: others are let in then.
    #[inline]
    pub fn wake(&mut self) -> Option<Time> {
        let until = self.waiting.idle_until()?;
        if self.wake_at == Some(until) || self.waiting.len() == 0 {
            return None;
        }
        self.wake_at = Some(until);
        self.wake_at
    }

    /// A command left the device.
    #[inline]
    pub fn finish(&mut self, now: Time, command: &Command) {
        self.account(now);
        self.in_device -= 1;
        self.waiting.finish(now, command);
        let direction = direction(command.operation);
        self.served.ios[direction] += 1;
        self.served.bytes[direction] += u64::from(command.bytes);
    }
}

/// A drive behind a RAID processor: commands that wait for a place in it.
#[derive(Debug, Default)]
pub(crate) struct Port {
    pub waiting: VecDeque<u32>,
    pub in_device: u32,
    pub depth: u32,
}
