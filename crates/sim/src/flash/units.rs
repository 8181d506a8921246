//! Dies (or chips) and channels: what each executes next, and how long it takes.
//!
//! A unit executes one operation at a time, on one page or, if pages of the same number wait on other planes of the die, on
//! several at once. A channel is a server in order of arrival: commands and data of a program go over it before the array
//! works, data of a read after it.

use std::collections::VecDeque;

use crate::device::Time;
use crate::values::{ns, transfer_ns};

use super::divisor::Divisor;
use super::ftl::NONE;
use super::spec::{Collection, FlashSpec, Unit as OneOperationPer};

/// What an operation on flash is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A read of a page of the map, which entries wait for. `logical` is the page's number in the map.
    MapRead,
    /// A read of a page of the map that is about to be written back.
    MapMerge,
    /// A write of a page of the map.
    MapWrite,
    /// A read for the command in slot `owner`.
    Read,
    /// A read of a page of which the operation in slot `owner`, a write, has only a part.
    Fill,
    /// A write of data of the host. `owner` is the slot of the command that waits for it, if one does.
    Write,
    /// A read for the collection of block `owner`.
    CollectRead,
    /// A write for the collection of block `owner`.
    CollectWrite,
    /// The erase at the end of the collection of block `owner`.
    Erase,
}

impl Purpose {
    /// Its queue in a unit.
    fn queue(self) -> Queue {
        match self {
            Self::MapRead | Self::MapMerge => Queue::MapRead,
            Self::Read | Self::Fill => Queue::Read,
            Self::Write | Self::MapWrite => Queue::Write,
            Self::CollectRead => Queue::CollectRead,
            Self::CollectWrite => Queue::CollectWrite,
            Self::Erase => Queue::Erase,
        }
    }

    fn array(self) -> Array {
        match self {
            Self::MapRead | Self::MapMerge | Self::Read | Self::Fill | Self::CollectRead => Array::Read,
            Self::MapWrite | Self::Write | Self::CollectWrite => Array::Program,
            Self::Erase => Array::Erase,
        }
    }
}

/// What an array can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Array {
    Read,
    Program,
    Erase,
}

/// An operation on one page or block.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// What it is for.
    pub purpose: Purpose,
    /// The logical page, or the page of the map.
    pub logical: u32,
    /// The physical page; for an erase the first of the block.
    pub page: u32,
    /// Bytes over the channel.
    pub bytes: u32,
    /// Who waits for it, see [`Purpose`].
    pub owner: u32,
    /// For writes: the number of flushes before it.
    pub epoch: u32,
    /// The array works on it.
    pub issued: bool,
    /// The operation that waits for the same page of the map and came before it.
    pub before: u32,
}

/// Operations by slot; slots are used again.
#[derive(Debug, Default)]
pub struct Operations {
    slots: Vec<Operation>,
    free: Vec<u32>,
}

impl Operations {
    /// Keeps `operation` and returns its slot.
    pub fn add(&mut self, operation: Operation) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = operation;
            return slot;
        }
        self.slots.push(operation);
        self.slots.len() as u32 - 1
    }

    /// Frees `slot` and returns what was in it.
    pub fn take(&mut self, slot: u32) -> Operation {
        self.free.push(slot);
        self.slots[slot as usize]
    }

    /// How many slots hold an operation.
    #[cfg(test)]
    pub fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// What is in `slot`.
    pub fn at(&mut self, slot: u32) -> &mut Operation {
        &mut self.slots[slot as usize]
    }
}

/// The queues of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Queue {
    MapRead,
    Read,
    Write,
    CollectRead,
    CollectWrite,
    Erase,
}

/// How far into a queue a partner for a multi-plane operation is looked for.
const PARTNER_SEARCH_OPERATIONS: usize = 32;

/// An operation in a queue, with its place, by which partners are found: the look into the operations themselves would be the dearest step
/// of a start.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    slot: u32,
    plane: u32,
    /// The number of its page in the block.
    offset: u32,
}

/// What executes one operation at a time.
#[derive(Debug)]
struct Unit {
    queues: [VecDeque<Waiting>; 6],
    /// By plane of the unit, how many operations each queue has.
    by_plane: Vec<[u32; 6]>,
    running: Vec<u32>,
    busy: bool,
    /// Collections that have started and whose erase is not done.
    collections: u32,
    /// Operations of collection for each write of new data, and how many it is behind.
    pace: f64,
    behind: f64,
}

/// What a unit asks to be woken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The array has read; data can go over the channel.
    Fetched,
    /// The operation is done.
    Done,
}

/// All units and channels of a drive.
#[derive(Debug)]
pub struct Units {
    units: Vec<Unit>,
    /// When each channel is free.
    channels: Vec<Time>,
    units_per_channel: Divisor,
    planes_per_unit: u32,
    planes_per_unit_divisor: Divisor,
    planes_per_die: u32,
    plane_pages: Divisor,
    pages_per_block: u32,
    page_of_block: Divisor,
    paced: bool,
    command: Time,
    read: Time,
    program: Time,
    erase: Time,
    bytes_per_s: f64,
}

impl Units {
    /// The units of `spec`, idle.
    #[must_use]
    pub fn new(spec: &FlashSpec) -> Self {
        let dies = if spec.one_operation_per == OneOperationPer::Die { 1 } else { spec.dies_per_chip };
        let planes_per_unit = dies * spec.planes_per_die;
        let units = spec.planes() / planes_per_unit;
        let idle = || Unit {
            queues: Default::default(),
            by_plane: vec![[0; 6]; planes_per_unit as usize],
            running: Vec::new(),
            busy: false,
            collections: 0,
            pace: 0.0,
            behind: 0.0,
        };
        Self {
            units: (0..units).map(|_| idle()).collect(),
            channels: vec![0; spec.channels as usize],
            units_per_channel: Divisor::new(units / spec.channels),
            planes_per_unit,
            planes_per_unit_divisor: Divisor::new(planes_per_unit),
            planes_per_die: spec.planes_per_die,
            plane_pages: Divisor::new(spec.blocks_per_plane * spec.pages_per_block),
            pages_per_block: spec.pages_per_block,
            page_of_block: Divisor::new(spec.pages_per_block),
            paced: spec.gc == Collection::Paced,
            command: spec.channel_command_ns,
            read: ns(spec.read_us),
            program: ns(spec.program_us),
            erase: ns(spec.erase_us),
            bytes_per_s: spec.channel_bytes_per_s,
        }
    }

    /// The unit that holds physical page `page`.
    #[inline]
    fn unit_of(&self, page: u32) -> u32 {
        self.planes_per_unit_divisor.quotient(self.plane_pages.quotient(page))
    }

    /// The planes of `unit`.
    pub fn planes_of(&self, unit: u32) -> std::ops::Range<u32> {
        unit * self.planes_per_unit..(unit + 1) * self.planes_per_unit
    }

    /// Queues the operation in `slot` and returns its unit, which may be idle.
    pub fn queue(&mut self, slot: u32, operation: &Operation) -> u32 {
        let plane = self.plane_pages.quotient(operation.page);
        let offset = self.page_of_block.remainder(operation.page);
        let unit = self.unit_of_plane(plane);
        let state = &mut self.units[unit as usize];
        let queue = operation.purpose.queue() as usize;
        state.queues[queue].push_back(Waiting { slot, plane, offset });
        state.by_plane[(plane - unit * self.planes_per_unit) as usize][queue] += 1;
        unit
    }

    /// A collection of a block with `valid` valid pages, of which `page` is one of the places, starts.
    pub fn collection_started(&mut self, page: u32, valid: u32) {
        let gained = f64::from((self.pages_per_block - valid).max(1));
        let unit = self.unit_of(page);
        let unit = &mut self.units[unit as usize];
        unit.collections += 1;
        unit.pace = 2.0 * f64::from(valid) / gained;
    }

    /// The unit of `plane`.
    pub fn unit_of_plane(&self, plane: u32) -> u32 {
        self.planes_per_unit_divisor.quotient(plane)
    }

    /// A collection on `unit` has ended.
    pub fn collection_ended(&mut self, unit: u32) {
        self.units[unit as usize].collections -= 1;
    }

    /// Starts what `unit` does next, if it is idle and something waits. `short` says whether one of its planes is short of free
    /// blocks. Returns when the unit must be woken, and for what.
    #[inline]
    pub fn start(
        &mut self,
        now: Time,
        unit: u32,
        operations: &mut Operations,
        short: impl FnOnce() -> bool,
    ) -> Option<(Time, Step)> {
        let state = &self.units[unit as usize];
        if state.busy {
            return None;
        }
        let urgent = state.collections > 0 && (!self.paced || short());
        let (first, second) = self.next_queues(unit, urgent)?;
        if self.paced {
            let state = &mut self.units[unit as usize];
            match first {
                Queue::Write if state.collections > 0 => state.behind += state.pace,
                Queue::CollectRead | Queue::CollectWrite => state.behind = (state.behind - 1.0).max(0.0),
                _ => {}
            }
        }
        self.gather(unit, first, second, operations);
        Some(self.issue(now, unit, operations))
    }

    /// The queue that goes next, and the one whose operations may join it in a multi-plane operation.
    #[inline]
    fn next_queues(&self, unit: u32, urgent: bool) -> Option<(Queue, Option<Queue>)> {
        let Unit { queues, behind, .. } = &self.units[unit as usize];
        let order: &[(Queue, Option<Queue>)] = if urgent {
            &[
                (Queue::MapRead, Some(Queue::CollectRead)),
                (Queue::CollectRead, Some(Queue::Read)),
                (Queue::CollectWrite, Some(Queue::Write)),
                (Queue::Erase, None),
            ]
        } else if *behind >= 1.0 {
            &[
                (Queue::MapRead, Some(Queue::Read)),
                (Queue::Read, Some(Queue::CollectRead)),
                (Queue::Erase, None),
                (Queue::CollectWrite, Some(Queue::Write)),
                (Queue::CollectRead, None),
                (Queue::Write, None),
            ]
        } else {
            &[
                (Queue::MapRead, Some(Queue::Read)),
                (Queue::Read, Some(Queue::CollectRead)),
                (Queue::Erase, None),
                (Queue::Write, Some(Queue::CollectWrite)),
                (Queue::CollectWrite, None),
                (Queue::CollectRead, None),
            ]
        };
        order.iter().copied().find(|(queue, _)| !queues[*queue as usize].is_empty())
    }

    /// Moves the first operation of `first` to what runs, and those of both queues that can run with it.
    fn gather(&mut self, unit: u32, first: Queue, second: Option<Queue>, operations: &mut Operations) {
        let Unit { queues, by_plane, running, busy, .. } = &mut self.units[unit as usize];
        *busy = true;
        let leader = queues[first as usize].pop_front().expect("the queue that was chosen is not empty");
        running.push(leader.slot);
        operations.at(leader.slot).issued = true;
        let first_plane = unit * self.planes_per_unit;
        by_plane[(leader.plane - first_plane) as usize][first as usize] -= 1;
        if self.planes_per_die == 1 || first == Queue::Erase {
            return;
        }
        let first_of_die = leader.plane - leader.plane % self.planes_per_die;
        let mut taken = 1u64 << (leader.plane - first_of_die);
        for queue in std::iter::once(first).chain(second).map(|queue| queue as usize) {
            // Collection often has operations of one plane only.
            let on_other_planes = (0..self.planes_per_die).any(|plane| {
                let place = (first_of_die - first_plane + plane) as usize;
                taken & (1 << plane) == 0 && by_plane[place][queue] > 0
            });
            if !on_other_planes {
                continue;
            }
            let (number, queue) = (queue, &mut queues[queue]);
            let mut at = 0;
            while at < queue.len().min(PARTNER_SEARCH_OPERATIONS)
                && (running.len() as u32) < self.planes_per_die
            {
                let candidate = queue[at];
                // Beyond the die for planes of others, which wrap around where they lie below it.
                let place = candidate.plane.wrapping_sub(first_of_die);
                let is_free = place < self.planes_per_die && taken & (1 << place) == 0;
                if is_free && candidate.offset == leader.offset {
                    taken |= 1 << place;
                    operations.at(candidate.slot).issued = true;
                    running.push(candidate.slot);
                    by_plane[(candidate.plane - first_plane) as usize][number] -= 1;
                    queue.remove(at);
                } else {
                    at += 1;
                }
            }
        }
    }

    /// Sends what runs on `unit` over its channel.
    fn issue(&mut self, now: Time, unit: u32, operations: &mut Operations) -> (Time, Step) {
        let channel = &mut self.channels[self.units_per_channel.quotient(unit) as usize];
        let running = &self.units[unit as usize].running;
        let array = operations.at(running[0]).purpose.array();
        let mut sent = (*channel).max(now) + self.command;
        if array == Array::Program {
            for slot in running {
                sent += transfer_ns(operations.at(*slot).bytes, self.bytes_per_s);
            }
        }
        *channel = sent;
        match array {
            Array::Read => (sent + self.read, Step::Fetched),
            Array::Program => (sent + self.program, Step::Done),
            Array::Erase => (sent + self.erase, Step::Done),
        }
    }

    /// The array of `unit` has read: returns when its data is over the channel.
    pub fn fetched(&mut self, now: Time, unit: u32, operations: &mut Operations) -> Time {
        let channel = &mut self.channels[self.units_per_channel.quotient(unit) as usize];
        let mut sent = (*channel).max(now);
        for slot in &self.units[unit as usize].running {
            sent += transfer_ns(operations.at(*slot).bytes, self.bytes_per_s);
        }
        *channel = sent;
        sent
    }

    /// `unit` is idle: moves what it did to `done`.
    pub fn done(&mut self, unit: u32, done: &mut Vec<u32>) {
        let unit = &mut self.units[unit as usize];
        unit.busy = false;
        done.append(&mut unit.running);
    }
}

/// No command, no collection.
pub const NO_OWNER: u32 = NONE;
