//! Where the requests of a thread come from, and what becomes of each.
//!
//! [`Reads`] is the narrow path. [`General`] does everything else.

use std::collections::HashSet;

use measure::dealing::Region;
use measure::pattern::{Blocks, Rng, Steady};
use measure::workload::{Rw, SizeShare, Workload, all_draws};
use storage::engine::{Engine, Op};
use storage::usage::IoPriority;

use super::BenchError;
use super::backlog::Backlog;
use super::budget::Budget;
use super::conduct::Conduct;
use super::order::{Cursor, Order};
use super::priorities::Draw;
use super::tally::Direction;
use crate::payload::{Copies, Payload};
use crate::verify::{Header, Verification, VerifyFailure};
use crate::zones::{Step, Walk, ZoneError};

mod reads;

pub(super) use reads::Reads;

/// A request that was issued, as its completion is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settled {
    pub direction: Direction,
    pub bytes: u64,
    /// Where it went; 0 where that is not kept ([`Reads`]).
    pub offset: u64,
    /// Its own, where it has one.
    pub priority: IoPriority,
    /// False for a flush, which is no transfer.
    pub counts: bool,
}

impl Settled {
    /// The priority that the drive was told: the request's own, or else its thread's.
    pub fn priority_in(&self, conduct: &Conduct) -> IoPriority {
        match self.priority {
            IoPriority::UNSET => conduct.priority.unwrap_or(IoPriority::UNSET),
            own => own,
        }
    }
}

/// Makes requests and judges their completions.
pub(super) trait Requests {
    /// Whether issuing takes so long that a request must not be timed from before its buffer was ready.
    const SLOW_TO_ISSUE: bool;
    /// Whether a request can be made before there is room for it: see [`Requests::make_ahead`].
    const WORKS_AHEAD: bool = false;

    /// Prepares the next request in an idle slot. False where the share is done.
    fn issue<E: Engine>(&mut self, engine: &mut E, slot: u32) -> bool;

    /// Makes the next request in an idle slot without handing it over. False where the share is done.
    fn make_ahead<E: Engine>(&mut self, _engine: &mut E, _slot: u32) -> bool {
        false
    }

    /// Whether a request was made ahead and waits to be issued.
    fn is_ahead(&self) -> bool {
        false
    }

    /// Prepares the request that was made ahead, and returns its slot; None where there is none.
    fn issue_ahead<E: Engine>(&mut self, _engine: &mut E) -> Option<u32> {
        None
    }

    /// Flushes in flight.
    fn flushes(&self) -> u32 {
        0
    }

    /// Whether the request in flight in this slot is a flush.
    fn is_flush(&self, _slot: u32) -> bool {
        false
    }

    /// Whether the last request could not be issued yet, because it waits for another of this thread or of others; the next one
    /// that is issued is that one.
    fn is_held(&self) -> bool {
        false
    }

    /// The zones that requests keep to, if there are any.
    fn walk(&mut self) -> Option<&mut Walk> {
        None
    }

    /// Why no more requests could be made, if that is no end.
    fn take_failure(&mut self) -> Option<BenchError> {
        None
    }

    /// The request in this slot has failed, and the job lives with that.
    fn abandon(&mut self, _slot: u32) {}

    /// What completed in this slot, its data checked where that was asked.
    fn settle<E: Engine>(&mut self, engine: &E, slot: u32) -> Result<Settled, VerifyFailure>;
}

/// A request in flight.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    op: Op,
    length: u32,
    offset: u64,
    /// What its block must hold when it is read; once written, where it is going to be read back meanwhile.
    header: Option<Header>,
    /// Its own, where it has one.
    priority: IoPriority,
    /// It reads back what the job has just written.
    reads_back: bool,
    is_under_way: bool,
}

impl InFlight {
    fn new(op: Op, offset: u64, length: u32) -> Self {
        let priority = IoPriority::UNSET;
        Self { op, length, offset, header: None, priority, reads_back: false, is_under_way: false }
    }
}

/// A request that was drawn, and has yet to be made.
#[derive(Debug, Clone, Copy)]
struct Drawn {
    op: Op,
    bytes: u64,
    /// Where it goes; on a zoned drive what chance says of that.
    offset: u64,
}

/// A request whose buffer is ready.
#[derive(Debug, Clone, Copy)]
struct Made {
    slot: u32,
    offset: u64,
    request: InFlight,
}

/// Writes, mixes, discards, several sizes, skew, checks.
#[derive(Debug)]
pub(super) struct General {
    workload: Workload,
    region: Region,
    order: Order,
    rng: Rng,
    budget: Budget,
    payload: Payload,
    /// Where blocks are copies of others.
    copies: Option<Copies>,
    in_flight: Vec<InFlight>,
    /// The next request, where it was made before there was room for it.
    ahead: Option<Made>,
    /// Where the next sequential request goes, where the order of blocks does not say.
    cursor: Cursor,
    /// Requests that may still be made.
    requests_left: u64,
    /// Requests issued, which with the region's blocks gives the pass.
    issued: u64,
    writes_since_data_sync: u32,
    writes_since_sync: u32,
    sync_due: Option<Op>,
    flushes: u32,
    generation: u64,
    verification: Option<Verification>,
    backlog: Option<Backlog>,
    /// Blocks of which, without a log, two writes were under way at once: nothing says which of them came last.
    uncertain: HashSet<u64>,
    /// A block that was discarded, and is written next.
    trimmed: Option<(u64, u32)>,
    priorities: Option<Draw>,
    /// Where requests may go, if that is decided by zones.
    walk: Option<Walk>,
    /// A request that cannot go there yet.
    held: Option<Drawn>,
    failure: Option<ZoneError>,
    pub verified_blocks: u64,
}

impl General {
    pub fn new(workload: &Workload, region: &Region, depth: u32, generation: u64) -> Self {
        let seed = workload.randseed.wrapping_add(u64::from(region.job));
        let idle = InFlight::new(Op::Read, 0, 0);
        Self {
            order: Order::new(workload, (region.length / workload.offset_unit()).max(1), seed),
            rng: Rng::new(seed ^ 0x006d_6978_6573),
            budget: Budget::new(workload, region),
            payload: Payload::new(seed, workload.buffer_compress_percentage),
            copies: Copies::new(workload, region.length / workload.min_bs(), seed),
            in_flight: vec![idle; depth as usize],
            ahead: None,
            cursor: Cursor::new(workload, region),
            requests_left: workload.number_ios.unwrap_or(u64::MAX),
            issued: 0,
            writes_since_data_sync: 0,
            writes_since_sync: 0,
            sync_due: None,
            flushes: 0,
            generation,
            verification: Verification::new(workload),
            backlog: None,
            uncertain: HashSet::new(),
            trimmed: None,
            priorities: None,
            walk: None,
            held: None,
            failure: None,
            verified_blocks: 0,
            workload: workload.clone(),
            region: *region,
        }
    }

    /// With what a job is to do beside its workload.
    pub fn with(mut self, conduct: &Conduct) -> Self {
        let seed = self.workload.randseed.wrapping_add(u64::from(self.region.job));
        self.backlog = Backlog::new(&self.workload, conduct.verify_backlog_batch, conduct.any_generation);
        self.priorities = conduct.request_priorities.as_ref().map(|priorities| Draw::new(priorities, seed));
        if let Some(plan) = conduct.steady_writes {
            let (blocks, bs) = (self.region.length / self.workload.bs, self.workload.bs);
            self.order = Order::Steady(Box::new(Steady::new(plan, blocks, seed)));
            self.budget = Budget::of(plan.writes(blocks).saturating_mul(bs), &self.workload);
        }
        self
    }

    /// On zones that decide where requests go.
    pub fn within(mut self, walk: Option<Walk>) -> Self {
        self.walk = walk;
        self
    }

    /// What of the backlog is left, once the job has ended; None where it had none.
    pub fn take_backlog(&mut self) -> Option<Backlog> {
        self.backlog.take()
    }

    /// Blocks that may be of either of two writes.
    pub fn take_uncertain(&mut self) -> HashSet<u64> {
        std::mem::take(&mut self.uncertain)
    }

    /// How many requests were issued.
    pub fn issued(&self) -> u64 {
        self.issued
    }

    /// Fills all buffers once: large blocks are only stamped before each write.
    pub fn fill_buffers<E: Engine>(&mut self, engine: &mut E) {
        if self.workload.rw.writes() {
            for slot in 0..engine.depth() {
                self.payload.fill(engine.buffer_mut(slot));
            }
        }
    }

    fn next_op(&mut self) -> Op {
        match self.workload.rw {
            Rw::Read | Rw::RandRead => Op::Read,
            Rw::Write | Rw::RandWrite => Op::Write,
            // The write follows each: see `make`.
            Rw::Trim | Rw::RandTrim | Rw::TrimWrite | Rw::RandTrimWrite => Op::Trim,
            Rw::Rw | Rw::RandRw => {
                let reads = self.rng.below(100) < u64::from(self.workload.rwmixread);
                if reads { Op::Read } else { Op::Write }
            }
        }
    }

    /// The sizes that requests of this kind have, where it is known already.
    fn split(&self, op: Option<Op>) -> &[SizeShare] {
        if op == Some(Op::Write) { &self.workload.write_bssplit } else { &self.workload.bssplit }
    }

    fn next_size(&mut self, op: Option<Op>) -> u64 {
        let all = all_draws(self.split(op));
        let mut ticket = if self.split(op).is_empty() { 0 } else { self.rng.below(all) };
        for share in self.split(op) {
            match ticket.checked_sub(share.draws()) {
                Some(rest) => ticket = rest,
                None => return share.bs,
            }
        }
        self.workload.bs
    }

    /// As fio does, draws again what is larger than what is left to be moved; the smallest always fits, or nothing does.
    fn next_fitting_size(&mut self, op: Option<Op>) -> u64 {
        let least = self.split(op).iter().map(|share| share.bs).min().unwrap_or(self.workload.bs);
        loop {
            let bytes = self.next_size(op);
            if bytes <= self.budget.most() || bytes == least {
                return bytes;
            }
        }
    }

    /// Where a request of `bytes` goes. It never leaves the region.
    fn next_offset(&mut self, bytes: u64) -> u64 {
        let w = &self.workload;
        if w.rw.is_random() || (w.has_one_size() && w.rw_step == 0) {
            let unit = w.offset_unit();
            // The last request must fit, whatever its size.
            let last = self.region.length / w.min_bs() * w.min_bs() - bytes;
            let at = self.order.next_block() * unit;
            return self.region.start + at.min(last / unit * unit);
        }
        self.region.start + self.cursor.advance(bytes)
    }

    /// The header of the block that the request about to be issued writes: its generation counts the
    /// passes over the region; where a log knows each write, the requests.
    fn header(&self, offset: u64, length: u32) -> Header {
        let blocks = match self.backlog {
            Some(_) => 1,
            None => blocks_of_a_pass(&self.workload, &self.region),
        };
        let generation = self.generation + self.issued / blocks;
        Header { generation, offset, length }
    }
}

/// Blocks that a verifying job visits before it comes to one again.
pub(super) fn blocks_of_a_pass(workload: &Workload, region: &Region) -> u64 {
    match u64::try_from(workload.rw_step) {
        Ok(step) if step > 0 => {
            (region.length / workload.bs * workload.bs - workload.bs) / (workload.bs + step) + 1
        }
        _ => region.length / workload.bs,
    }
}

impl General {
    /// Makes the next request in an idle slot; None where the share is done. At most one is made and not launched, so
    /// that a header's generation is that of the request's own place in the order.
    fn make<E: Engine>(&mut self, engine: &mut E, slot: u32) -> Option<Made> {
        if let Some(op) = self.sync_due.take() {
            return Some(Made { slot, offset: 0, request: InFlight::new(op, 0, 0) });
        }
        if let Some(header) = self.backlog.as_mut().and_then(Backlog::next_due) {
            let read = InFlight::new(Op::Read, header.offset, header.length);
            let request = InFlight { header: Some(header), reads_back: true, ..read };
            return Some(Made { slot, offset: header.offset, request });
        }
        // Every engine discards before it returns, so that the write comes after it.
        if let Some((offset, length)) = self.trimmed.take() {
            return Some(self.fill(engine, slot, Op::Write, offset, length));
        }
        let drawn = match self.held.take() {
            Some(drawn) => drawn,
            None => self.draw()?,
        };
        let (op, offset) = self.place(drawn, slot)?;
        let length = drawn.bytes as u32;
        if self.workload.rw.trims_and_writes() {
            self.trimmed = Some((offset, length));
        }
        Some(self.fill(engine, slot, op, offset, length))
    }

    /// Draws the next request; None where the share is done.
    fn draw(&mut self) -> Option<Drawn> {
        // Where the sizes of writes are their own, what a request does is drawn before its size.
        let drawn = (!self.workload.write_bssplit.is_empty()).then(|| self.next_op());
        let bytes = self.next_fitting_size(drawn);
        if self.requests_left == 0 || !self.budget.take(bytes) {
            return None;
        }
        self.requests_left -= 1;
        let op = drawn.unwrap_or_else(|| self.next_op());
        Some(Drawn { op, bytes, offset: self.next_offset(bytes) })
    }

    /// What a request that was drawn does, and where; None if it cannot go anywhere, or not yet.
    fn place(&mut self, drawn: Drawn, slot: u32) -> Option<(Op, u64)> {
        let Some(walk) = &mut self.walk else { return Some((drawn.op, drawn.offset)) };
        match walk.next(drawn.op, drawn.offset, slot) {
            Ok(Step::At(op, offset)) => return Some((op, offset)),
            Ok(Step::Wait) => self.held = Some(drawn),
            Ok(Step::Done) => {}
            Err(failure) => self.failure = Some(failure),
        }
        None
    }

    /// Makes a request of what is drawn, and its data if it writes.
    fn fill<E: Engine>(&mut self, engine: &mut E, slot: u32, op: Op, offset: u64, length: u32) -> Made {
        let mut request = InFlight::new(op, offset, length);
        match op {
            Op::Write => {
                let header = self.verification.is_some().then(|| self.header(offset, length));
                let buffer = &mut engine.buffer_mut(slot)[..length as usize];
                match (&self.verification, header, &mut self.copies, &self.workload.buffer_pattern) {
                    (Some(verification), Some(header), ..) => {
                        verification.seal(&mut self.payload, header, buffer);
                    }
                    (.., Some(pattern)) => pattern.fill(offset, buffer),
                    (.., Some(copies), None) => copies.fill(buffer),
                    (.., None, None) => self.payload.renew(buffer),
                }
                request.header = header.filter(|_| self.backlog.is_some());
            }
            // What a mix reads may have been written by others, or never.
            Op::Read if self.verification.is_some() && self.backlog.is_none() => {
                request.header = Some(Header { generation: Header::ANY, offset, length });
            }
            _ => {}
        }
        Made { slot, offset, request }
    }

    /// Prepares a request that was made.
    fn launch<E: Engine>(&mut self, engine: &mut E, made: Made) {
        let Made { slot, offset, mut request } = made;
        if request.op == Op::Write && self.verification.is_some() {
            self.supersede(offset, &mut request);
        }
        if let Some(priorities) = &mut self.priorities {
            request.priority = priorities.next(request.op, u64::from(request.length));
            engine.set_priority(slot, request.priority);
        }
        self.in_flight[slot as usize] = InFlight { is_under_way: true, ..request };
        engine.prepare(slot, request.op, offset, request.length);
        if request.op.is_sync() {
            self.flushes += 1;
            return;
        }
        if request.reads_back {
            return;
        }
        self.issued += 1;
        if request.op == Op::Write && (self.workload.fdatasync > 0 || self.workload.fsync > 0) {
            self.count_write();
        }
    }

    /// A block is about to be written of which there may be an earlier write to read back. What is read after that may be
    /// of either write, and of two that are under way at once nothing says which comes last.
    fn supersede(&mut self, offset: u64, request: &mut InFlight) {
        let is_same = |other: &InFlight| other.is_under_way && other.offset == offset;
        let Some(backlog) = &mut self.backlog else {
            // At the end of a pass its last blocks may be the first ones of the next.
            if self.in_flight.iter().any(|other| is_same(other) && other.op == Op::Write) {
                self.uncertain.insert(offset);
            } else {
                self.uncertain.remove(&offset);
            }
            return;
        };
        backlog.forget(offset);
        for other in self.in_flight.iter_mut().filter(|other| is_same(other)) {
            match (other.op, other.header.take()) {
                (Op::Read, Some(_)) if other.reads_back => backlog.give_up(),
                (Op::Write, _) => request.header = None,
                _ => {}
            }
        }
    }

    /// Says whether a sync is due. Where both are, fsync(2) does what fdatasync(2) does.
    fn count_write(&mut self) {
        self.writes_since_data_sync += 1;
        self.writes_since_sync += 1;
        if self.writes_since_data_sync == self.workload.fdatasync {
            (self.writes_since_data_sync, self.sync_due) = (0, Some(Op::SyncData));
        }
        if self.writes_since_sync == self.workload.fsync {
            (self.writes_since_sync, self.sync_due) = (0, Some(Op::Sync));
        }
    }
}

impl Requests for General {
    const SLOW_TO_ISSUE: bool = true;
    const WORKS_AHEAD: bool = true;

    fn issue<E: Engine>(&mut self, engine: &mut E, slot: u32) -> bool {
        debug_assert!(self.ahead.is_none(), "the request made ahead goes first");
        let Some(made) = self.make(engine, slot) else { return false };
        self.launch(engine, made);
        true
    }

    fn make_ahead<E: Engine>(&mut self, engine: &mut E, slot: u32) -> bool {
        self.ahead = self.make(engine, slot);
        self.ahead.is_some()
    }

    fn is_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    fn issue_ahead<E: Engine>(&mut self, engine: &mut E) -> Option<u32> {
        let made = self.ahead.take()?;
        self.launch(engine, made);
        Some(made.slot)
    }

    fn flushes(&self) -> u32 {
        self.flushes
    }

    fn is_flush(&self, slot: u32) -> bool {
        self.in_flight[slot as usize].op.is_sync()
    }

    fn is_held(&self) -> bool {
        self.held.is_some()
    }

    fn walk(&mut self) -> Option<&mut Walk> {
        self.walk.as_mut()
    }

    fn take_failure(&mut self) -> Option<BenchError> {
        self.failure.take().map(BenchError::from)
    }

    fn abandon(&mut self, slot: u32) {
        if let Some(walk) = &mut self.walk {
            walk.fail(slot);
        }
        let request = &mut self.in_flight[slot as usize];
        request.is_under_way = false;
        if request.reads_back
            && let Some(backlog) = self.backlog.as_mut().filter(|_| request.header.is_some())
        {
            backlog.give_up();
        }
    }

    fn settle<E: Engine>(&mut self, engine: &E, slot: u32) -> Result<Settled, VerifyFailure> {
        if let Some(walk) = &mut self.walk {
            walk.settle(slot);
        }
        self.in_flight[slot as usize].is_under_way = false;
        let InFlight { op, length, offset, header, priority, .. } = self.in_flight[slot as usize];
        self.flushes -= u32::from(op.is_sync());
        match (op, header, &self.verification, &mut self.backlog) {
            (Op::Read, Some(header), Some(verification), _) => {
                self.verified_blocks += 1;
                verification.check(header, &engine.buffer(slot)[..length as usize])?;
            }
            (Op::Write, Some(header), _, Some(backlog)) => backlog.add(header),
            _ => {}
        }
        let direction = match op {
            Op::Read | Op::SyncData | Op::Sync => Direction::Read,
            Op::Write => Direction::Write,
            Op::Trim => Direction::Trim,
        };
        Ok(Settled { direction, bytes: u64::from(length), offset, priority, counts: !op.is_sync() })
    }
}
