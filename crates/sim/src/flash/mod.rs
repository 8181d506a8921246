//! A flash drive: channels, chips, dies and planes behind a page-mapped translation layer with garbage collection, a write
//! buffer and a link.
//!
//! A command goes this way:
//!
//! 1. The controller takes it (`controller_ns` each, one after another). Data of a write comes over the link.
//! 2. A write ends when the buffer has room for it; its pages go to flash at once, or wait in the buffer for the rest of
//!    their data (`open_pages`). Without a buffer it ends when its pages are programmed.
//! 3. Each page is looked up in the map (`mapping`), which costs a read if the entry is not in memory.
//! 4. A read goes to the unit that holds its page. A write gets a page of a plane with room (`ftl`), and waits if there is
//!    none; a write of a part of a page that holds data reads that page first.
//! 5. Units and channels execute what waits (`units`). A plane that runs out of free blocks collects one: its valid pages are
//!    read and written elsewhere on the plane, on the same unit and channel as everything else, then it is erased.
//! 6. Data of a read goes over the link.
//!
//! Latencies that delay each command alike are added at its end instead of its start, which saves an event.
//!
//! Not modelled: read retries and errors, wear, suspension of programs and erases, copy-back, power management.

mod divisor;
mod ftl;
mod hash;
mod mapping;
mod spec;
mod units;

use std::collections::{HashMap, VecDeque};

use measure::pattern::Rng;

use crate::device::{Command, DeviceCounts, DeviceModel, Effects, Limits, Operation as HostOperation, Time};
use crate::values::transfer_ns;

use self::ftl::{Ftl, NONE, Stream};
use self::hash::PageHash;
use self::mapping::MappingCache;
pub use self::spec::{Collection, FlashSpec, Placement, Preconditioning, Unit};
use self::units::{NO_OWNER, Operation, Operations, Purpose, Step, Units};

/// A command in the drive.
#[derive(Debug, Clone, Copy)]
struct Pending {
    command: Command,
    /// What its completion is later than its last step.
    latency: Time,
    /// When its data, if it is a write, is over the link.
    arrival: Time,
    /// Pages that it waits for.
    remaining: u32,
}

/// A flush that waits for the writes before it.
#[derive(Debug)]
struct Flush {
    tag: u32,
    epoch: u32,
    remaining: u32,
    latency: Time,
}

/// A flash drive.
#[derive(Debug)]
pub struct FlashDrive {
    spec: FlashSpec,
    data_pages: u32,
    ftl: Ftl,
    units: Units,
    operations: Operations,
    rng: Rng,
    mapping: Option<MappingCache>,
    /// The last operation that waits for each page of the map that is being read; each names the one before.
    waiting_for_map: HashMap<u32, u32, PageHash>,
    /// Operations that wait for room, by plane; with dynamic placement all of them at plane 0.
    stalled: Vec<VecDeque<u32>>,
    /// Valid pages that still have to leave a block in collection.
    moves_left: Vec<u32>,
    commands: Vec<Pending>,
    free_commands: Vec<u32>,
    /// Bytes in the write buffer.
    buffered: u64,
    /// Operations whose data is in the write buffer, and the last one of each page.
    buffered_operations: u32,
    buffered_pages: HashMap<u32, u32, PageHash>,
    /// Operations that wait for the rest of their page.
    open: VecDeque<u32>,
    /// Writes that wait for room in the buffer.
    queued: VecDeque<u32>,
    epoch: u32,
    flushes: VecDeque<Flush>,
    controller_free: Time,
    link_in_free: Time,
    link_out_free: Time,
    /// Units that may have to start, and operations that are done: kept for their memory.
    touched: Vec<u32>,
    done: Vec<u32>,
    counts: DeviceCounts,
}

impl FlashSpec {
    /// The drive, in its state before the run. The description has passed [`FlashSpec::check`].
    #[must_use]
    pub fn build(&self, seed: u64) -> FlashDrive {
        self.build_unless(seed, &|| false)
    }

    /// The same, given up once `stopped` says so: what is returned then is of no use.
    #[must_use]
    pub fn build_unless(&self, seed: u64, stopped: &dyn Fn() -> bool) -> FlashDrive {
        let mut rng = Rng::new(seed);
        let data_pages = self.data_pages() as u32;
        let mapping = self
            .entries_per_mapping_page()
            .map(|entries| MappingCache::new(self.mapping_cache_entries, entries, data_pages));
        FlashDrive {
            data_pages,
            ftl: Ftl::new(self, &mut rng, stopped),
            units: Units::new(self),
            operations: Operations::default(),
            rng,
            mapping,
            waiting_for_map: HashMap::default(),
            stalled: vec![VecDeque::new(); self.planes() as usize],
            moves_left: vec![0; (self.planes() * self.blocks_per_plane) as usize],
            commands: Vec::new(),
            free_commands: Vec::new(),
            buffered: 0,
            buffered_operations: 0,
            buffered_pages: HashMap::default(),
            open: VecDeque::new(),
            queued: VecDeque::new(),
            epoch: 0,
            flushes: VecDeque::new(),
            controller_free: 0,
            link_in_free: 0,
            link_out_free: 0,
            touched: Vec::new(),
            done: Vec::new(),
            counts: DeviceCounts::default(),
            spec: self.clone(),
        }
    }
}

impl DeviceModel for FlashDrive {
    fn limits(&self) -> Limits {
        Limits {
            size_bytes: self.spec.size_bytes(),
            logical_block_bytes: 512,
            max_command_bytes: self.spec.max_command_bytes as u32,
            queue_depth: self.spec.queue_depth,
        }
    }

    fn submit(&mut self, now: Time, command: Command, effects: &mut Effects) {
        self.controller_free = self.controller_free.max(now) + self.spec.controller_ns;
        let latency = self.controller_free - now + self.spec.command_ns;
        match command.operation {
            HostOperation::Read => self.read(now, command, latency, effects),
            HostOperation::Write => self.write(now, command, latency, effects),
            HostOperation::Trim => {
                self.trim(command);
                effects.complete(now + latency, command.tag);
            }
            HostOperation::Flush => self.flush(now, command.tag, latency, effects),
        }
        self.start_touched(now, effects);
    }

    fn wake(&mut self, now: Time, token: u32, effects: &mut Effects) {
        let unit = token >> 1;
        if token & 1 == 0 {
            let sent = self.units.fetched(now, unit, &mut self.operations);
            effects.wake(sent, unit << 1 | 1);
            return;
        }
        let mut done = std::mem::take(&mut self.done);
        self.units.done(unit, &mut done);
        self.touched.push(unit);
        for slot in done.drain(..) {
            self.finish(now, slot, effects);
        }
        self.done = done;
        self.start_touched(now, effects);
    }

    fn counts(&self) -> DeviceCounts {
        self.counts
    }
}

/// Time on a link that is free at `free`; returns when the last byte is over.
fn send(free: &mut Time, now: Time, bytes: u32, bytes_per_s: f64) -> Time {
    *free = (*free).max(now) + transfer_ns(bytes, bytes_per_s);
    *free
}

/// The parts of `command` in pages of `page_bytes`: page and bytes of each.
fn pages(command: Command, page_bytes: u64) -> impl Iterator<Item = (u32, u32)> {
    let end = command.offset + u64::from(command.bytes);
    let first = command.offset / page_bytes;
    (first..end.div_ceil(page_bytes)).map(move |page| {
        let from = command.offset.max(page * page_bytes);
        (page as u32, (end.min((page + 1) * page_bytes) - from) as u32)
    })
}

impl FlashDrive {
    fn keep(&mut self, pending: Pending) -> u32 {
        if let Some(slot) = self.free_commands.pop() {
            self.commands[slot as usize] = pending;
            return slot;
        }
        self.commands.push(pending);
        self.commands.len() as u32 - 1
    }

    fn read(&mut self, now: Time, command: Command, latency: Time, effects: &mut Effects) {
        let slot = self.keep(Pending { command, latency, arrival: now, remaining: 1 });
        for (logical, bytes) in pages(command, self.spec.page_bytes) {
            if self.buffered_operations == 0 || !self.buffered_pages.contains_key(&logical) {
                self.commands[slot as usize].remaining += 1;
                let operation = self.operation(Purpose::Read, logical, bytes, slot);
                self.translate(now, operation, effects);
            }
        }
        self.page_done(now, slot, effects);
    }

    /// One less for the command in `slot` to wait for; ends it if that was the last.
    fn page_done(&mut self, now: Time, slot: u32, effects: &mut Effects) {
        let pending = &mut self.commands[slot as usize];
        pending.remaining -= 1;
        if pending.remaining > 0 {
            return;
        }
        let at = match pending.command.operation {
            HostOperation::Read => {
                send(&mut self.link_out_free, now, pending.command.bytes, self.spec.link_bytes_per_s)
            }
            _ => now.max(pending.arrival),
        };
        effects.complete(at + pending.latency, pending.command.tag);
        self.free_commands.push(slot);
    }

    fn write(&mut self, now: Time, command: Command, latency: Time, effects: &mut Effects) {
        self.counts.host_write_bytes += u64::from(command.bytes);
        let arrival = send(&mut self.link_in_free, now, command.bytes, self.spec.link_bytes_per_s);
        let slot = self.keep(Pending { command, latency, arrival, remaining: 1 });
        if self.spec.write_buffer_bytes == 0 {
            for (logical, bytes) in pages(command, self.spec.page_bytes) {
                self.commands[slot as usize].remaining += 1;
                let operation = self.operation(Purpose::Write, logical, bytes, slot);
                self.translate(now, operation, effects);
            }
            self.page_done(now, slot, effects);
        } else {
            self.queued.push_back(slot);
            self.admit(now, effects);
        }
    }

    /// Takes writes into the buffer while it has room.
    fn admit(&mut self, now: Time, effects: &mut Effects) {
        while self.buffered < self.spec.write_buffer_bytes {
            let Some(slot) = self.queued.pop_front() else { return };
            let command = self.commands[slot as usize].command;
            for (logical, bytes) in pages(command, self.spec.page_bytes) {
                self.buffer(now, logical, bytes, effects);
            }
            self.page_done(now, slot, effects);
        }
    }

    /// Puts `bytes` of page `logical` into the buffer: to what waits there for the same page, or as a new operation.
    fn buffer(&mut self, now: Time, logical: u32, bytes: u32, effects: &mut Effects) {
        let page_bytes = self.spec.page_bytes as u32;
        if let Some(slot) = self.buffered_pages.get(&logical).copied() {
            let operation = self.operations.at(slot);
            if !operation.issued {
                let more = bytes.min(page_bytes - operation.bytes);
                operation.bytes += more;
                self.buffered += u64::from(more);
                if operation.bytes == page_bytes
                    && let Some(at) = self.open.iter().position(|open| *open == slot)
                {
                    self.open.remove(at);
                    self.translate(now, slot, effects);
                }
                return;
            }
        }
        let slot = self.operation(Purpose::Write, logical, bytes, NO_OWNER);
        self.buffered += u64::from(bytes);
        self.buffered_operations += 1;
        self.buffered_pages.insert(logical, slot);
        if bytes < page_bytes && self.spec.open_pages > 0 {
            self.open.push_back(slot);
            if self.open.len() > self.spec.open_pages as usize {
                self.close_oldest(now, effects);
            }
        } else {
            self.translate(now, slot, effects);
        }
    }

    /// Writes the page that has waited longest for the rest of its data.
    fn close_oldest(&mut self, now: Time, effects: &mut Effects) {
        if let Some(slot) = self.open.pop_front() {
            self.translate(now, slot, effects);
        }
    }

    fn flush(&mut self, now: Time, tag: u32, latency: Time, effects: &mut Effects) {
        if !self.spec.volatile_cache || self.buffered_operations == 0 {
            effects.complete(now + latency, tag);
            return;
        }
        while !self.open.is_empty() {
            self.close_oldest(now, effects);
        }
        self.flushes.push_back(Flush {
            tag,
            epoch: self.epoch,
            remaining: self.buffered_operations,
            latency,
        });
        self.epoch += 1;
    }

    /// Pages that `command` covers hold no data any more, but those in the buffer.
    fn trim(&mut self, command: Command) {
        for (logical, bytes) in pages(command, self.spec.page_bytes) {
            if u64::from(bytes) == self.spec.page_bytes && !self.buffered_pages.contains_key(&logical) {
                self.ftl.discard(logical);
            }
        }
    }

    /// A new operation that has no physical page yet.
    fn operation(&mut self, purpose: Purpose, logical: u32, bytes: u32, owner: u32) -> u32 {
        let epoch = self.epoch;
        self.operations.add(Operation {
            purpose,
            logical,
            page: NONE,
            bytes,
            owner,
            epoch,
            issued: false,
            before: NONE,
        })
    }

    /// Finds the map's entry for the operation in `slot`, and goes on with it when the entry is in memory.
    fn translate(&mut self, now: Time, slot: u32, effects: &mut Effects) {
        let Operation { purpose, logical, .. } = *self.operations.at(slot);
        if let Some(cache) = &mut self.mapping {
            let found = cache.look_up(logical, purpose == Purpose::Write);
            let map_page = cache.page_of(logical);
            if let Some(dirty) = found.write_back {
                self.read_map(dirty, Purpose::MapMerge);
            }
            if !found.hit {
                let before = self.waiting_for_map.insert(map_page, slot);
                self.operations.at(slot).before = before.unwrap_or(NONE);
                if before.is_none() {
                    self.read_map(map_page, Purpose::MapRead);
                }
                return;
            }
        }
        self.place(now, slot, effects);
    }

    /// Reads page `map_page` of the map.
    fn read_map(&mut self, map_page: u32, purpose: Purpose) {
        /// What an entry's surroundings take on the channel.
        const SECTOR_BYTES: u32 = 512;
        let slot = self.operation(purpose, map_page, SECTOR_BYTES, NO_OWNER);
        self.operations.at(slot).page = self
            .ftl
            .find(self.data_pages + map_page)
            .expect("each page of the map is on flash from the start");
        self.queue(slot);
    }

    /// Gives the operation in `slot`, whose map entry is known, its physical page, and queues it.
    fn place(&mut self, now: Time, slot: u32, effects: &mut Effects) {
        let Operation { purpose, logical, owner, bytes, .. } = *self.operations.at(slot);
        if purpose == Purpose::Read {
            match self.ftl.find(logical) {
                Some(page) => {
                    self.operations.at(slot).page = page;
                    self.queue(slot);
                }
                None => {
                    self.operations.take(slot);
                    self.page_done(now, owner, effects);
                }
            }
            return;
        }
        match self.ftl.choose(logical) {
            Ok(plane) => {
                let partial = purpose == Purpose::Write && u64::from(bytes) < self.spec.page_bytes;
                let former = if partial { self.ftl.find(logical) } else { None };
                self.operations.at(slot).page = self.allocate(logical, plane);
                if let Some(former) = former {
                    let rest = self.spec.page_bytes as u32 - bytes;
                    let fill = self.operation(Purpose::Fill, logical, rest, slot);
                    self.operations.at(fill).page = former;
                    self.queue(fill);
                } else {
                    self.queue(slot);
                }
            }
            Err(plane) => {
                if !self.ftl.is_collecting(plane) {
                    self.collect(plane);
                }
                let plane = if self.spec.placement == Placement::Static { plane } else { 0 };
                self.stalled[plane as usize].push_back(slot);
            }
        }
    }

    /// A page of `plane` for `logical`; collection starts if that leaves too few free blocks.
    fn allocate(&mut self, logical: u32, plane: u32) -> u32 {
        let page = self.ftl.write_to(logical, plane, Stream::New);
        self.collect_if_filled(page);
        page
    }

    /// Starts collection where `page`, which was given away, was the last of its block and that leaves too few free ones.
    fn collect_if_filled(&mut self, page: u32) {
        if self.ftl.offset(page) + 1 == self.spec.pages_per_block {
            let plane = self.ftl.plane_of_page(page);
            if self.ftl.wants_collection(plane) {
                self.collect(plane);
            }
        }
    }

    /// Queues the operation in `slot` at its unit.
    fn queue(&mut self, slot: u32) {
        let operation = *self.operations.at(slot);
        let unit = self.units.queue(slot, &operation);
        self.touched.push(unit);
    }

    /// Starts the collection of a block of `plane`.
    fn collect(&mut self, plane: u32) {
        let Some(block) = self.ftl.collect(plane, &mut self.rng) else { return };
        let first = block * self.spec.pages_per_block;
        let valid: Vec<(u32, u32)> = self.ftl.valid_pages(block).collect();
        self.units.collection_started(first, valid.len() as u32);
        self.moves_left[block as usize] = valid.len() as u32 + 1;
        for (page, logical) in valid {
            let slot = self.operation(Purpose::CollectRead, logical, self.spec.page_bytes as u32, block);
            self.operations.at(slot).page = page;
            self.queue(slot);
        }
        self.move_done(block);
    }

    /// One page less to leave `block`; the last one is followed by the erase.
    fn move_done(&mut self, block: u32) {
        let left = &mut self.moves_left[block as usize];
        *left -= 1;
        if *left == 0 {
            let slot = self.operation(Purpose::Erase, NONE, 0, block);
            self.operations.at(slot).page = block * self.spec.pages_per_block;
            self.queue(slot);
        }
    }

    /// What follows from the operation in `slot`, which is done.
    fn finish(&mut self, now: Time, slot: u32, effects: &mut Effects) {
        let operation = *self.operations.at(slot);
        let Operation { purpose, logical, page, owner, .. } = operation;
        if matches!(purpose, Purpose::Write | Purpose::MapWrite | Purpose::CollectWrite) {
            self.counts.media_write_bytes += self.spec.page_bytes;
        }
        match purpose {
            Purpose::Read => self.page_done(now, owner, effects),
            Purpose::Fill => {
                self.queue(owner);
            }
            Purpose::Write if owner != NO_OWNER => self.page_done(now, owner, effects),
            Purpose::Write => self.programmed(now, slot, operation, effects),
            Purpose::MapRead => {
                let mut waiting = self.waiting_for_map.remove(&logical).unwrap_or(NONE);
                while waiting != NONE {
                    let before = self.operations.at(waiting).before;
                    self.place(now, waiting, effects);
                    waiting = before;
                }
            }
            Purpose::MapMerge => {
                let bytes = self.spec.page_bytes as u32;
                let write = self.operation(Purpose::MapWrite, self.data_pages + logical, bytes, NO_OWNER);
                self.place(now, write, effects);
            }
            Purpose::MapWrite => {}
            Purpose::CollectRead if self.ftl.is_valid(page) => {
                let to = self.ftl.relocate(logical, page);
                self.collect_if_filled(to);
                let write =
                    self.operation(Purpose::CollectWrite, logical, self.spec.page_bytes as u32, owner);
                self.operations.at(write).page = to;
                self.queue(write);
            }
            Purpose::CollectRead | Purpose::CollectWrite => self.move_done(owner),
            Purpose::Erase => self.erased(now, owner, effects),
        }
        self.operations.take(slot);
    }

    /// Data of the write in `slot` has left the buffer.
    fn programmed(&mut self, now: Time, slot: u32, operation: Operation, effects: &mut Effects) {
        self.buffered -= u64::from(operation.bytes);
        self.buffered_operations -= 1;
        if self.buffered_pages.get(&operation.logical) == Some(&slot) {
            self.buffered_pages.remove(&operation.logical);
        }
        for flush in self.flushes.iter_mut().filter(|flush| operation.epoch <= flush.epoch) {
            flush.remaining -= 1;
            if flush.remaining == 0 {
                effects.complete(now + flush.latency, flush.tag);
            }
        }
        self.flushes.retain(|flush| flush.remaining > 0);
        self.admit(now, effects);
    }

    /// `block` is erased: what waited for room goes on.
    fn erased(&mut self, now: Time, block: u32, effects: &mut Effects) {
        self.counts.erases += 1;
        self.ftl.erased(block);
        let plane = self.ftl.plane_of_block(block);
        self.units.collection_ended(self.units.unit_of_plane(plane));
        let queue = if self.spec.placement == Placement::Static { plane } else { 0 };
        let waiting = self.stalled[queue as usize].len();
        for _ in 0..waiting {
            let Some(slot) = self.stalled[queue as usize].pop_front() else { break };
            self.place(now, slot, effects);
        }
        if self.ftl.wants_collection(plane) {
            self.collect(plane);
        }
    }

    /// Starts the units that got something to do.
    fn start_touched(&mut self, now: Time, effects: &mut Effects) {
        let mut touched = std::mem::take(&mut self.touched);
        for unit in touched.drain(..) {
            let (ftl, planes) = (&self.ftl, self.units.planes_of(unit));
            let short = || planes.clone().any(|plane| ftl.is_short(plane));
            if let Some((at, step)) = self.units.start(now, unit, &mut self.operations, short) {
                effects.wake(at, unit << 1 | u32::from(step == Step::Done));
            }
        }
        self.touched = touched;
    }
}

#[cfg(test)]
mod tests;
