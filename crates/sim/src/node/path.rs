//! The steps of a request and of its commands.

use super::command::NONE;
use super::cpu::Work;
use super::{Delivery, FileState, Kind, LOG_BYTES, Node, Request, Submission};
use crate::device::{Command, Operation, Time};
use crate::meter::Meter;
use crate::values::transfer_ns;

impl Node {
    /// Fills a stream's queue, or waits for its first request to be due.
    pub(super) fn begin(&mut self, stream: u32) {
        let own = &mut self.streams[stream as usize];
        if let Some(at) = own.next_due() {
            return self.events.push(at, Kind::Due(stream));
        }
        for _ in 0..own.depth {
            self.make(0, stream, 0);
        }
    }

    /// A request is due. Without a place for it, those after it are looked at when it has one.
    pub(super) fn due(&mut self, now: Time, stream: u32) {
        let own = &mut self.streams[stream as usize];
        if own.in_flight == own.depth {
            own.overdue = Some(now);
            return;
        }
        if let Some(at) = own.next_due() {
            self.events.push(at, Kind::Due(stream));
        }
        self.make(now, stream, now);
    }

    /// Makes the request that was due at `since` and has a place now.
    fn make_overdue(&mut self, now: Time, stream: u32, since: Time) {
        match self.streams[stream as usize].next_due() {
            Some(at) if at <= now => self.streams[stream as usize].overdue = Some(at),
            Some(at) => self.events.push(at, Kind::Due(stream)),
            None => {}
        }
        self.make(now, stream, since);
    }

    /// Makes a stream's next request, if it has any left.
    #[inline]
    fn make(&mut self, now: Time, stream: u32, since: Time) {
        let own = &mut self.streams[stream as usize];
        let Some(wish) = own.next_wish() else { return };
        own.in_flight += 1;
        let request = Request {
            stream,
            operation: wish.operation,
            bytes: wish.bytes,
            offset: wish.offset,
            since,
            submitted: 0,
            pending: 1,
            is_log: false,
        };
        let id = self.keep(request);
        if self.costs.read_lock > 0 && wish.operation == Operation::Read {
            let file = &mut self.files[self.streams[stream as usize].target as usize];
            file.lock_free_at = file.lock_free_at.max(now).saturating_add(self.costs.read_lock);
            let at = file.lock_free_at;
            return self.events.push(at, Kind::Locked(id));
        }
        self.enter(now, id);
    }

    fn keep(&mut self, request: Request) -> u32 {
        match self.free_requests.pop() {
            Some(id) => {
                self.requests[id as usize] = request;
                id
            }
            None => {
                self.requests.push(request);
                self.requests.len() as u32 - 1
            }
        }
    }

    /// A CPU takes a request through the layers.
    #[inline]
    pub(super) fn enter(&mut self, now: Time, id: u32) {
        let request = self.requests[id as usize];
        let pages = Time::from(request.bytes.div_ceil(4096).max(1));
        let first = self.bio_length(&request);
        let is_whole = first == request.bytes;
        let bios = if is_whole { 1 } else { self.count_bios(&request) };
        let costs = &self.costs;
        let total = costs.path + costs.page * (pages - 1) + costs.bio * (bios - 1);
        let own = &mut self.streams[request.stream as usize];
        own.cpu_ns += total;
        let end = match self.submission {
            Submission::Threads => self.cpus.run_anywhere(now, total, Work::System),
            Submission::Jobs => self.cpus.run_on(own.cpu, now, total, Work::System),
        };
        if !is_whole {
            let of_first = costs.path + costs.page * (Time::from(first.div_ceil(4096)) - 1);
            return self.events.push(end - total + of_first, Kind::Bio(id));
        }
        if end == now {
            self.submit_whole(now, id);
        } else {
            self.events.push(end, Kind::Submitted(id));
        }
    }

    fn count_bios(&self, request: &Request) -> Time {
        let mut rest = *request;
        let mut bios = 0;
        while rest.submitted < rest.bytes {
            rest.submitted += self.bio_length(&rest);
            bios += 1;
        }
        bios
    }

    /// Bytes of a request's next bio: it crosses neither the largest bio nor a chunk.
    #[inline]
    fn bio_length(&self, request: &Request) -> u32 {
        let left = u64::from(request.bytes - request.submitted);
        let mut most = self.bio_bytes;
        if self.chunk_bytes > 0 {
            let at = request.offset + u64::from(request.submitted) + self.shift;
            most = most.min(self.chunk_bytes - at % self.chunk_bytes);
        }
        left.min(most) as u32
    }

    /// The block device of a request's next bio, and where on it.
    #[inline]
    fn place(&self, request: &Request) -> (u32, u64) {
        let at = request.offset + u64::from(request.submitted) + self.shift;
        if self.chunk_bytes == 0 {
            return (if self.is_separate { self.streams[request.stream as usize].target } else { 0 }, at);
        }
        let chunk = at / self.chunk_bytes;
        let width = self.members.len() as u64;
        ((chunk % width) as u32, chunk / width * self.chunk_bytes + at % self.chunk_bytes)
    }

    /// Puts the next `length` bytes of a request into the queue of their device, cut into commands that it takes.
    #[inline]
    fn put(&mut self, now: Time, id: u32, length: u32, plug: Option<u32>) -> u32 {
        let request = self.requests[id as usize];
        let (member, offset) = self.place(&request);
        let owner = if self.submission == Submission::Threads { id } else { request.stream };
        let queue = &mut self.members[member as usize];
        let mut done = 0;
        while done < length {
            let bytes = (length - done).min(queue.max_bytes());
            let at = offset + u64::from(done);
            let command = self.commands.make(request.operation, member, at, bytes, id);
            self.commands.get_mut(command).owner = owner;
            queue.add(now, command, &mut self.commands, plug);
            self.requests[id as usize].pending += 1;
            done += bytes;
        }
        member
    }

    /// A request of one bio goes to its device.
    #[inline]
    pub(super) fn submit_whole(&mut self, now: Time, id: u32) {
        let member = self.put(now, id, self.requests[id as usize].bytes, None);
        self.requests[id as usize].pending -= 1;
        self.members[member as usize].unplug();
        self.dispatch(now, member);
    }

    /// A bio is put into the queue of its device, and the next is made.
    pub(super) fn submit_bio(&mut self, now: Time, id: u32) {
        let request = self.requests[id as usize];
        let length = self.bio_length(&request);
        let member = self.put(now, id, length, Some(self.plug_requests));
        self.dispatch(now, member);
        let own = &mut self.requests[id as usize];
        own.submitted += length;
        let rest = *own;
        if rest.submitted < rest.bytes {
            let pages = Time::from(self.bio_length(&rest).div_ceil(4096));
            return self.events.push(now + self.costs.bio + self.costs.page * pages, Kind::Bio(id));
        }
        // No command of it may end before the submission does, so this is not the last part.
        self.requests[id as usize].pending -= 1;
        self.unplug(now, &request);
    }

    /// Lets go what a submission held back.
    fn unplug(&mut self, now: Time, request: &Request) {
        let first = self.place(&Request { submitted: 0, ..*request }).0;
        let width = self.members.len() as u32;
        let chunks = u64::from(request.bytes).checked_div(self.chunk_bytes).map_or(1, |chunks| chunks + 2);
        for n in 0..chunks.min(u64::from(width)) as u32 {
            let member = if self.is_separate { first } else { (first + n) % width };
            self.members[member as usize].unplug();
            self.dispatch(now, member);
        }
    }

    /// Lets commands into a device while it takes any.
    #[inline]
    pub(super) fn dispatch(&mut self, now: Time, member: u32) {
        while let Some(id) = self.members[member as usize].next(now, &self.commands) {
            self.commands.get_mut(id).dispatched = now;
            if self.drives_each > 1 {
                self.cut(now, id);
            } else if self.costs.controller > 0 {
                let controller = &mut self.controllers[self.controller_of[member as usize] as usize];
                controller.free_at = controller.free_at.max(now).saturating_add(self.costs.controller);
                self.events.push(controller.free_at, Kind::Controlled(id));
            } else {
                self.reach_drive(now, id);
            }
        }
        if let Some(at) = self.members[member as usize].wake() {
            self.events.push(at, Kind::Waited(member));
        }
    }

    /// A RAID processor cuts a command into strips, and does one after the other.
    fn cut(&mut self, now: Time, id: u32) {
        let whole = *self.commands.get(id);
        let controller = self.controller_of[whole.member as usize] as usize;
        let mut at = whole.offset;
        let end = whole.offset + u64::from(whole.bytes);
        while at < end {
            let strip = at / self.strip_bytes;
            let length = (self.strip_bytes - at % self.strip_bytes).min(end - at);
            let drives = u64::from(self.drives_each);
            let offset = strip / drives * self.strip_bytes + at % self.strip_bytes;
            let piece = self.commands.make(whole.operation, whole.member, offset, length as u32, NONE);
            let own = self.commands.get_mut(piece);
            own.parent = id;
            own.drive = whole.member * self.drives_each + (strip % drives) as u32;
            self.commands.get_mut(id).pieces += 1;
            let state = &mut self.controllers[controller];
            state.free_at = state.free_at.max(now).saturating_add(self.costs.controller);
            self.events.push(state.free_at, Kind::Controlled(piece));
            at += length;
        }
    }

    /// A command reaches its drive, or waits for a place in it.
    #[inline]
    pub(super) fn reach_drive(&mut self, now: Time, id: u32) {
        let command = *self.commands.get(id);
        if command.parent == NONE {
            return self.serve(now, command.member, id);
        }
        let port = &mut self.ports[command.drive as usize];
        if port.in_device == port.depth {
            return port.waiting.push_back(id);
        }
        port.in_device += 1;
        self.serve(now, command.drive, id);
    }

    #[inline]
    fn serve(&mut self, now: Time, device: u32, id: u32) {
        let own = self.commands.get(id);
        let command = Command { tag: id, operation: own.operation, offset: own.offset, bytes: own.bytes };
        debug_assert!(command.bytes <= self.devices[device as usize].limits().max_command_bytes);
        self.devices[device as usize].submit(now, command, &mut self.effects);
        self.take_effects(device);
    }

    #[inline]
    pub(super) fn take_effects(&mut self, device: u32) {
        for (at, tag) in self.effects.completions.drain(..) {
            self.events.push(at, Kind::Done(tag));
        }
        for (at, token) in self.effects.wakes.drain(..) {
            self.events.push(at, Kind::Wake { device, token });
        }
    }

    /// A drive ended a command.
    pub(super) fn done(&mut self, now: Time, id: u32) {
        let command = *self.commands.get(id);
        if command.parent == NONE {
            return self.left_device(now, id);
        }
        self.commands.free(id);
        let port = &mut self.ports[command.drive as usize];
        match port.waiting.pop_front() {
            Some(next) => self.serve(now, command.drive, next),
            None => port.in_device -= 1,
        }
        let whole = self.commands.get_mut(command.parent);
        whole.pieces -= 1;
        if whole.pieces == 0 {
            self.left_device(now, command.parent);
        }
    }

    /// A block device ended a command: its place is free, and its data pass the bus.
    #[inline]
    fn left_device(&mut self, now: Time, id: u32) {
        let command = *self.commands.get(id);
        self.members[command.member as usize].finish(now, &command);
        self.dispatch(now, command.member);
        if self.bus_bytes_per_s > 0.0 {
            let controller = &mut self.controllers[self.controller_of[command.member as usize] as usize];
            // The data pass while the drive transfers them, so a free bus takes no time of its own.
            let since = controller.bus_free_at.max(command.dispatched);
            controller.bus_free_at = since.saturating_add(transfer_ns(command.bytes, self.bus_bytes_per_s));
            if controller.bus_free_at > now {
                return self.events.push(controller.bus_free_at, Kind::Arrived(id));
            }
        }
        self.interrupt(now, id);
    }

    /// An interrupt for a command.
    #[inline]
    pub(super) fn interrupt(&mut self, now: Time, id: u32) {
        let alone = self.costs.completion + self.costs.interrupt;
        let request = self.commands.get(id).request;
        let end = match (self.delivery, self.submission) {
            (Delivery::OneCpu, _) => self.interrupt_on(0, now),
            (Delivery::Submitter, Submission::Jobs) => {
                let stream = self.requests[request as usize].stream;
                self.interrupt_on(self.streams[stream as usize].cpu, now)
            }
            _ => self.cpus.run_anywhere(now, alone, Work::Interrupt),
        };
        self.events.push(end, Kind::Ended(id));
    }

    /// An interrupt on this CPU, which takes what has come meanwhile with it.
    fn interrupt_on(&mut self, cpu: u32, now: Time) -> Time {
        let shared = if self.cpus.is_busy(cpu, now) { 0 } else { self.costs.interrupt };
        self.cpus.run_on(cpu, now, self.costs.completion + shared, Work::Interrupt)
    }

    /// A command ended, and with it all that was merged into it.
    #[inline]
    pub(super) fn ended(&mut self, now: Time, id: u32, meter: &mut Meter) {
        let mut next = id;
        while next != NONE {
            let command = *self.commands.get(next);
            self.commands.free(next);
            next = command.next;
            let request = &mut self.requests[command.request as usize];
            request.pending -= 1;
            if request.pending == 0 {
                self.finish(now, command.request, meter);
            }
        }
    }

    /// A request is done, but for its write to the log.
    #[inline]
    fn finish(&mut self, now: Time, id: u32, meter: &mut Meter) {
        let request = self.requests[id as usize];
        let target = self.streams[request.stream as usize].target as usize;
        if request.is_log {
            self.free_requests.push(id);
            let queue = &mut self.files[target].log_queue;
            let owner = queue.pop_front().expect("a write to the log has an owner");
            if let Some(next) = queue.front().copied() {
                self.write_log(now, next);
            }
            return self.complete(now, owner, meter);
        }
        if self.costs.log_bytes > 0 && request.operation == Operation::Write {
            let queue = &mut self.files[target].log_queue;
            queue.push_back(id);
            if queue.len() == 1 {
                self.write_log(now, id);
            }
            return;
        }
        self.complete(now, id, meter);
    }

    /// The write to the log that a request's write needs.
    fn write_log(&mut self, now: Time, owner: u32) {
        let stream = self.requests[owner as usize].stream;
        let target = self.streams[stream as usize].target as usize;
        let bytes = self.costs.log_bytes;
        let log_bytes = LOG_BYTES.min(self.target_bytes);
        let FileState { log_position, .. } = &mut self.files[target];
        let at = if *log_position + u64::from(bytes) > log_bytes { 0 } else { *log_position };
        *log_position = at + u64::from(bytes);
        // The log lies in the middle of the file system.
        let middle = (self.target_bytes / 2).saturating_sub(LOG_BYTES) >> 20 << 20;
        let request = Request {
            stream,
            operation: Operation::Write,
            bytes,
            offset: middle + at,
            since: now,
            submitted: 0,
            pending: 1,
            is_log: true,
        };
        let id = self.keep(request);
        self.enter(now, id);
    }

    /// A request is over; the next one takes its place.
    #[inline]
    fn complete(&mut self, now: Time, id: u32, meter: &mut Meter) {
        let request = self.requests[id as usize];
        self.free_requests.push(id);
        if meter.complete(now, request.stream, request.operation, request.bytes, now - request.since) {
            self.at_begin = Some(self.counters(now));
        }
        let own = &mut self.streams[request.stream as usize];
        own.in_flight -= 1;
        if !own.is_open_loop() {
            self.make(now, request.stream, now);
        } else if let Some(since) = own.overdue.take() {
            self.make_overdue(now, request.stream, since);
        }
    }
}
