//! Requests that wait for a device, in the order of its scheduler.
//!
//! What each does with neighbours, with the order, and with a device that is free while the next request may be about to come:
//!
//! - *no-op*: first come, first served. A request that continues the one that came last is merged with it.
//! - *elevator*: by address upwards, then from the lowest again; merges as no-op.
//! - *deadline* (Linux 2.6, `block/deadline-iosched.c`): reads and writes by address, each in batches. Reads go first, and writes that wait
//!   come after so many batches of reads. A batch begins with the oldest request of its direction where that one's time is over.
//!   Merges with any request of the same direction that it continues, or that continues it.
//! - *anticipatory* (`block/as-iosched.c`): the elevator with one request in the device at a time. After a read it waits for the next
//!   request of the same process, unless one that begins where the last one ended is there, or the process has had the device for a slice of time.
//! - *cfq* (`block/cfq-iosched.c`): a queue for each process, by address, which has the device for a slice of time, one process after
//!   the other; of each at most so many requests are in the device while others wait. Within its slice it waits for the next request of the process. Merges
//!   within a process.
//!
//! A process is a job, or where each request in flight has a thread of its own, that thread. All requests here are direct, so that writes
//! are waited for by their process as reads are: CFQ's queues of asynchronous writes have nothing to do. What the kernels decide from
//! what they have seen (whether a process thinks too long, or seeks, to be worth waiting for) is for the machine file to say: without `idle_us` they do not wait.

use std::collections::VecDeque;

use super::command::{Command, Commands};
use crate::device::{Operation, Time};
use crate::machine::{Policy, Scheduler};
use crate::values::ns;

/// Batches of reads after which writes that wait have their turn (`writes_starved`).
const STARVED_AFTER: u32 = 2;

/// What waits for one device.
#[derive(Debug)]
pub(super) enum Queue {
    /// No-op, elevator and anticipatory.
    Single(Single),
    /// Deadline.
    Deadline(Deadline),
    /// CFQ.
    Fair(Fair),
}

/// One queue for all requests.
#[derive(Debug, Default)]
pub(super) struct Single {
    waiting: VecDeque<u32>,
    by_address: bool,
    /// Where the elevator stands.
    position: u64,
    /// How long the device waits for a reader's next request; 0 does not.
    idle: Time,
    /// How long one process may keep the device so.
    slice: Time,
    /// The process whose turn it is, and when that is over.
    turn: Option<(u32, Time)>,
    /// The process whose next request is waited for, and until when.
    expected: Option<(u32, Time)>,
}

/// Reads and writes apart, in batches.
#[derive(Debug)]
pub(super) struct Deadline {
    /// Reads and writes, in the order of their arrival, each with the time by which it should be served.
    waiting: [VecDeque<(u32, Time)>; 2],
    expire: [Time; 2],
    batch: u32,
    /// Direction of the batch that is served, and how many of it are left.
    current: usize,
    left: u32,
    starved: u32,
    position: [u64; 2],
}

/// A queue for each process.
#[derive(Debug)]
pub(super) struct Fair {
    /// Processes that have requests, in the order of their turns. The first one has the device if `slice_end` is known.
    processes: VecDeque<Process>,
    slice: Time,
    idle: Time,
    quantum: u32,
    slice_end: Option<Time>,
    /// How long the first one's next request is waited for.
    idle_until: Option<Time>,
    position: u64,
}

#[derive(Debug)]
struct Process {
    owner: u32,
    waiting: Vec<u32>,
    in_device: u32,
}

impl Queue {
    /// An empty queue of a scheduler; without one, first come, first served.
    pub fn new(scheduler: Option<&Scheduler>) -> Self {
        let Some(scheduler) = scheduler else { return Self::Single(Single::default()) };
        let idle = ns(scheduler.idle_us);
        match scheduler.policy {
            Policy::Noop => Self::Single(Single::default()),
            Policy::Elevator => Self::Single(Single { by_address: true, ..Single::default() }),
            Policy::Anticipatory => Self::Single(Single {
                by_address: true,
                idle,
                slice: ns(scheduler.slice_us),
                ..Single::default()
            }),
            Policy::Deadline => Self::Deadline(Deadline {
                waiting: Default::default(),
                expire: [ns(scheduler.read_expire_us), ns(scheduler.write_expire_us)],
                batch: scheduler.batch,
                current: 0,
                left: 0,
                starved: 0,
                position: [0; 2],
            }),
            Policy::Cfq => Self::Fair(Fair {
                processes: VecDeque::new(),
                slice: ns(scheduler.slice_us),
                idle,
                quantum: scheduler.quantum,
                slice_end: None,
                idle_until: None,
                position: 0,
            }),
        }
    }

    /// Requests that wait.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Single(own) => own.waiting.len(),
            Self::Deadline(own) => own.waiting.iter().map(VecDeque::len).sum(),
            Self::Fair(own) => own.processes.iter().map(|process| process.waiting.len()).sum(),
        }
    }

    /// Takes a command in. False if it was merged with one that waits.
    #[inline]
    pub fn add(&mut self, now: Time, id: u32, commands: &mut Commands, max_bytes: u32) -> bool {
        match self {
            Self::Single(own) => {
                let merged = own.waiting.back().is_some_and(|last| commands.merge(*last, id, max_bytes));
                if !merged {
                    own.waiting.push_back(id);
                }
                !merged
            }
            Self::Deadline(own) => own.add(now, id, commands, max_bytes),
            Self::Fair(own) => own.add(id, commands, max_bytes),
        }
    }

    /// The next command for a device that holds `in_device` and takes another one. None where none waits, or where one is waited for.
    #[inline]
    pub fn next(&mut self, now: Time, commands: &Commands) -> Option<u32> {
        match self {
            Self::Single(own) => own.next(now, commands),
            Self::Deadline(own) => own.next(now, commands),
            Self::Fair(own) => own.next(now, commands),
        }
    }

    /// A command has left the device.
    #[inline]
    pub fn finish(&mut self, now: Time, command: &Command) {
        match self {
            Self::Single(own) => own.finish(now, command),
            Self::Deadline(_) => {}
            Self::Fair(own) => own.finish(now, command),
        }
    }

    /// Until when the device waits for a request, if it does.
    #[inline]
    pub fn idle_until(&self) -> Option<Time> {
        match self {
            Self::Single(own) => own.expected.map(|(_, until)| until),
            Self::Deadline(_) => None,
            Self::Fair(own) => own.idle_until,
        }
    }
}

/// The index of the waiting command with the lowest address from `position` upwards, or of all.
fn nearest_above(waiting: impl Iterator<Item = u32>, position: u64, commands: &Commands) -> usize {
    let address = |id: u32| {
        let offset = commands.get(id).offset;
        (offset < position, offset)
    };
    waiting.enumerate().min_by_key(|(_, id)| address(*id)).map_or(0, |(place, _)| place)
}

fn end_of(command: &Command) -> u64 {
    command.offset + u64::from(command.bytes)
}

/// How a new command was merged with one that waits.
enum Merged {
    /// It continues that one.
    Behind,
    /// It is continued by the one at this place, which it stands for now.
    InFront(usize),
}

/// Merges a new command with one of those that wait, if it can be.
fn merge_any(
    waiting: impl Iterator<Item = u32>,
    id: u32,
    commands: &mut Commands,
    max_bytes: u32,
) -> Option<Merged> {
    for (place, other) in waiting.enumerate() {
        if commands.merge(other, id, max_bytes) {
            return Some(Merged::Behind);
        }
        if commands.merge(id, other, max_bytes) {
            return Some(Merged::InFront(place));
        }
    }
    None
}

impl Single {
    #[inline]
    fn next(&mut self, now: Time, commands: &Commands) -> Option<u32> {
        if self.waiting.is_empty() && self.expected.is_none() {
            return None;
        }
        let chosen = match self.expected {
            Some((owner, until)) if now < until => self.worth_the_wait(owner, commands)?,
            _ if self.by_address => nearest_above(self.waiting.iter().copied(), self.position, commands),
            _ => 0,
        };
        self.expected = None;
        let id = if chosen == 0 { self.waiting.pop_front() } else { self.waiting.remove(chosen) }?;
        let command = commands.get(id);
        self.position = end_of(command);
        if self.idle > 0 && self.turn.is_none_or(|(owner, _)| owner != command.owner) {
            self.turn = Some((command.owner, now.saturating_add(self.slice)));
        }
        Some(id)
    }

    #[inline]
    fn finish(&mut self, now: Time, command: &Command) {
        if self.idle == 0 || command.operation != Operation::Read {
            return;
        }
        let has_its_turn = self.turn.is_some_and(|(owner, end)| owner == command.owner && now < end);
        self.expected = has_its_turn.then(|| (command.owner, now.saturating_add(self.idle)));
        if !has_its_turn {
            self.turn = None;
        }
    }

    /// Of what waits, what ends the wait for the next request of `owner`: that one, or one that begins where the last one ended.
    fn worth_the_wait(&self, owner: u32, commands: &Commands) -> Option<usize> {
        self.waiting.iter().position(|id| {
            let command = commands.get(*id);
            command.owner == owner || command.offset == self.position
        })
    }
}

impl Deadline {
    fn add(&mut self, now: Time, id: u32, commands: &mut Commands, max_bytes: u32) -> bool {
        let direction = usize::from(commands.get(id).operation != Operation::Read);
        let waiting = &mut self.waiting[direction];
        match merge_any(waiting.iter().map(|(other, _)| *other), id, commands, max_bytes) {
            Some(merged) => {
                // The merged request keeps the older one's time.
                if let Merged::InFront(place) = merged {
                    waiting[place].0 = id;
                }
                false
            }
            None => {
                waiting.push_back((id, now.saturating_add(self.expire[direction])));
                true
            }
        }
    }

    fn next(&mut self, now: Time, commands: &Commands) -> Option<u32> {
        if self.left == 0 || self.waiting[self.current].is_empty() {
            self.begin_batch()?;
        }
        let waiting = &mut self.waiting[self.current];
        let is_new = self.left == self.batch;
        let is_late = waiting.front().is_some_and(|(_, until)| *until <= now);
        let position = self.position[self.current];
        let chosen = if is_new && is_late {
            0
        } else {
            nearest_above(waiting.iter().map(|(id, _)| *id), position, commands)
        };
        let (id, _) = waiting.remove(chosen)?;
        self.position[self.current] = end_of(commands.get(id));
        self.left -= 1;
        Some(id)
    }

    /// Reads, unless there are none or writes have waited long enough. None where nothing waits.
    fn begin_batch(&mut self) -> Option<()> {
        let [reads, writes] = [0, 1].map(|direction: usize| !self.waiting[direction].is_empty());
        self.current = match (reads, writes) {
            (false, false) => return None,
            (true, false) => 0,
            (false, true) => 1,
            (true, true) => usize::from(self.starved >= STARVED_AFTER),
        };
        self.starved = if self.current == 0 && writes { self.starved + 1 } else { 0 };
        self.left = self.batch;
        Some(())
    }
}

impl Fair {
    fn add(&mut self, id: u32, commands: &mut Commands, max_bytes: u32) -> bool {
        let owner = commands.get(id).owner;
        let place = match self.processes.iter().position(|process| process.owner == owner) {
            Some(place) => place,
            None => {
                self.processes.push_back(Process { owner, waiting: Vec::new(), in_device: 0 });
                self.processes.len() - 1
            }
        };
        let waiting = &mut self.processes[place].waiting;
        match merge_any(waiting.iter().copied(), id, commands, max_bytes) {
            Some(merged) => {
                if let Merged::InFront(place) = merged {
                    waiting[place] = id;
                }
                false
            }
            None => {
                waiting.push(id);
                true
            }
        }
    }

    fn next(&mut self, now: Time, commands: &Commands) -> Option<u32> {
        // Each process is looked at once at most: one whose slice ends goes to the end.
        for _ in 0..=self.processes.len() {
            let alone = self.processes.iter().filter(|process| !process.waiting.is_empty()).count() < 2;
            let first = self.processes.front_mut()?;
            let slice_end = *self.slice_end.get_or_insert(now.saturating_add(self.slice));
            let is_over = now >= slice_end && !alone;
            if !is_over && !first.waiting.is_empty() {
                if !alone && first.in_device >= self.quantum {
                    return None;
                }
                self.idle_until = None;
                let chosen = nearest_above(first.waiting.iter().copied(), self.position, commands);
                let id = first.waiting.remove(chosen);
                first.in_device += 1;
                self.position = end_of(commands.get(id));
                return Some(id);
            }
            let is_waited_for = first.in_device > 0 || self.idle_until.is_some_and(|until| now < until);
            if now < slice_end && self.idle > 0 && first.waiting.is_empty() && is_waited_for {
                return None;
            }
            self.end_slice();
        }
        None
    }

    /// The next process has its turn; one without requests is forgotten when it has none in the device.
    fn end_slice(&mut self) {
        self.slice_end = None;
        self.idle_until = None;
        self.processes.rotate_left(1);
        if self.processes.back().is_some_and(|last| last.waiting.is_empty() && last.in_device == 0) {
            self.processes.pop_back();
        }
    }

    fn finish(&mut self, now: Time, command: &Command) {
        let Some(place) = self.processes.iter().position(|process| process.owner == command.owner) else {
            return;
        };
        let process = &mut self.processes[place];
        process.in_device -= 1;
        let is_done = process.in_device == 0 && process.waiting.is_empty();
        if place == 0 && self.slice_end.is_some() {
            self.idle_until = (is_done && self.idle > 0).then(|| now.saturating_add(self.idle));
        } else if is_done {
            self.processes.remove(place);
        }
    }
}

#[cfg(test)]
mod tests;
