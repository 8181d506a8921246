//! Where the requests of a thread come from, and what becomes of each.
//!
//! [`Reads`] is the narrow path: one block size, reads only, nothing to check. It keeps no state a
//! request and compiles to an offset and a push. [`General`] does everything else.

use measure::dealing::Region;
use measure::pattern::{Blocks, Rng};
use measure::workload::{Rw, Workload};
use storage::engine::{Engine, Op};

use super::budget::Budget;
use super::order::{Cursor, Order};
use super::tally::Direction;
use crate::payload::{Copies, Header, Payload, VerifyFailure};

/// A request that was issued, as its completion is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settled {
    pub direction: Direction,
    pub bytes: u64,
    /// Where it went; 0 where that is not kept ([`Reads`]).
    pub offset: u64,
    /// False for a flush, which is no transfer.
    pub counts: bool,
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

    /// What completed in this slot, its data checked where that was asked.
    fn settle<E: Engine>(&mut self, engine: &E, slot: u32) -> Result<Settled, VerifyFailure>;
}

/// Reads of one size.
#[derive(Debug)]
pub(super) struct Reads<B> {
    blocks: B,
    start: u64,
    bs: u32,
    budget: Budget,
}

impl<B: Blocks> Reads<B> {
    pub fn new(blocks: B, workload: &Workload, region: &Region) -> Self {
        Self { blocks, start: region.start, bs: workload.bs as u32, budget: Budget::new(workload, region) }
    }
}

impl<B: Blocks> Requests for Reads<B> {
    const SLOW_TO_ISSUE: bool = false;

    #[inline]
    fn issue<E: Engine>(&mut self, engine: &mut E, slot: u32) -> bool {
        if !self.budget.take(u64::from(self.bs)) {
            return false;
        }
        let offset = self.start + self.blocks.next_block() * u64::from(self.bs);
        engine.prepare(slot, Op::Read, offset, self.bs);
        true
    }

    #[inline]
    fn settle<E: Engine>(&mut self, _engine: &E, _slot: u32) -> Result<Settled, VerifyFailure> {
        Ok(Settled { direction: Direction::Read, bytes: u64::from(self.bs), offset: 0, counts: true })
    }
}

/// A request in flight.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    op: Op,
    length: u32,
    offset: u64,
    /// The header that its block must hold, where it is checked.
    expected: Option<Header>,
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
    pub verified_blocks: u64,
}

impl General {
    pub fn new(workload: &Workload, region: &Region, depth: u32, generation: u64) -> Self {
        let seed = workload.randseed.wrapping_add(u64::from(region.job));
        let idle = InFlight { op: Op::Read, length: 0, offset: 0, expected: None };
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
            verified_blocks: 0,
            workload: workload.clone(),
            region: *region,
        }
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
            Rw::Trim | Rw::RandTrim => Op::Trim,
            Rw::Rw | Rw::RandRw => {
                let reads = self.rng.below(100) < u64::from(self.workload.rwmixread);
                if reads { Op::Read } else { Op::Write }
            }
        }
    }

    fn next_size(&mut self) -> u64 {
        let mut ticket = if self.workload.bssplit.is_empty() { 0 } else { self.rng.below(100) };
        for share in &self.workload.bssplit {
            match ticket.checked_sub(u64::from(share.percent)) {
                Some(rest) => ticket = rest,
                None => return share.bs,
            }
        }
        self.workload.bs
    }

    /// As fio does, draws again what is larger than what is left to be moved; the smallest always fits, or nothing does.
    fn next_fitting_size(&mut self) -> u64 {
        loop {
            let bytes = self.next_size();
            if bytes <= self.budget.most() || bytes == self.workload.min_bs() {
                return bytes;
            }
        }
    }

    /// Where a request of `bytes` goes. It never leaves the region.
    fn next_offset(&mut self, bytes: u64) -> u64 {
        let w = &self.workload;
        if w.rw.is_random() || (w.bssplit.is_empty() && w.rw_step == 0) {
            let unit = w.offset_unit();
            // The last request must fit, whatever its size.
            let last = self.region.length / w.min_bs() * w.min_bs() - bytes;
            let at = self.order.next_block() * unit;
            return self.region.start + at.min(last / unit * unit);
        }
        self.region.start + self.cursor.advance(bytes)
    }

    /// The header of the block that the request about to be issued writes: its generation counts the
    /// passes over the region.
    fn header(&self, offset: u64, length: u32) -> Header {
        let blocks = self.region.length / self.workload.bs;
        let generation = self.generation + self.issued / blocks;
        Header { generation, offset, length }
    }
}

impl General {
    /// Makes the next request in an idle slot; None where the share is done. At most one is made and not launched, so
    /// that a header's generation is that of the request's own place in the order.
    fn make<E: Engine>(&mut self, engine: &mut E, slot: u32) -> Option<Made> {
        if let Some(op) = self.sync_due.take() {
            let request = InFlight { op, length: 0, offset: 0, expected: None };
            return Some(Made { slot, offset: 0, request });
        }
        let bytes = self.next_fitting_size();
        if self.requests_left == 0 || !self.budget.take(bytes) {
            return None;
        }
        self.requests_left -= 1;
        let op = self.next_op();
        let offset = self.next_offset(bytes);
        let length = bytes as u32;
        let mut expected = None;
        match (op, self.workload.verify) {
            (Op::Write, None) => {
                let buffer = &mut engine.buffer_mut(slot)[..length as usize];
                match &mut self.copies {
                    Some(copies) => copies.fill(buffer),
                    None => self.payload.renew(buffer),
                }
            }
            (Op::Write, Some(kind)) => {
                let header = self.header(offset, length);
                let buffer = &mut engine.buffer_mut(slot)[..length as usize];
                self.payload.renew(buffer);
                header.seal(kind, buffer);
            }
            (Op::Read, Some(_)) => expected = Some(Header { generation: Header::ANY, offset, length }),
            _ => {}
        }
        Some(Made { slot, offset, request: InFlight { op, length, offset, expected } })
    }

    /// Prepares a request that was made.
    fn launch<E: Engine>(&mut self, engine: &mut E, made: Made) {
        let Made { slot, offset, request } = made;
        self.in_flight[slot as usize] = request;
        engine.prepare(slot, request.op, offset, request.length);
        if request.op.is_sync() {
            self.flushes += 1;
            return;
        }
        self.issued += 1;
        if request.op == Op::Write && (self.workload.fdatasync > 0 || self.workload.fsync > 0) {
            self.count_write();
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

    fn settle<E: Engine>(&mut self, engine: &E, slot: u32) -> Result<Settled, VerifyFailure> {
        let InFlight { op, length, offset, expected } = self.in_flight[slot as usize];
        self.flushes -= u32::from(op.is_sync());
        if let (Some(header), Some(kind)) = (expected, self.workload.verify) {
            header.check(kind, &engine.buffer(slot)[..length as usize])?;
            self.verified_blocks += 1;
        }
        let direction = match op {
            Op::Read | Op::SyncData | Op::Sync => Direction::Read,
            Op::Write => Direction::Write,
            Op::Trim => Direction::Trim,
        };
        Ok(Settled { direction, bytes: u64::from(length), offset, counts: !op.is_sync() })
    }
}

/// Reads back what a writing [`General`] of the same workload, region and generation has written.
#[derive(Debug)]
pub(super) struct ReadBack {
    order: Order,
    workload: Workload,
    region: Region,
    blocks: u64,
    at: u64,
    /// Requests that were issued by the writer.
    written: u64,
    generation: u64,
    in_flight: Vec<Header>,
    pub verified_blocks: u64,
}

impl ReadBack {
    pub fn new(workload: &Workload, region: &Region, depth: u32, generation: u64, written: u64) -> Self {
        let seed = workload.randseed.wrapping_add(u64::from(region.job));
        let blocks = region.length / workload.bs;
        let pass = written.saturating_sub(1) / blocks;
        let mut order = Order::new(workload, blocks, seed);
        // The last pass visits its blocks in an order of its own; earlier ones are skipped over.
        if let Order::Cover(cover) = &mut order {
            cover.skip_passes(pass);
        }
        let nothing = Header { generation: 0, offset: 0, length: 0 };
        Self {
            order,
            workload: workload.clone(),
            region: *region,
            blocks,
            at: 0,
            written,
            generation: generation + pass,
            in_flight: vec![nothing; depth as usize],
            verified_blocks: 0,
        }
    }
}

impl Requests for ReadBack {
    const SLOW_TO_ISSUE: bool = false;

    fn issue<E: Engine>(&mut self, engine: &mut E, slot: u32) -> bool {
        // The first `fresh` blocks of the last pass's order hold its generation; the others hold that of
        // the pass before, or were never written.
        let passes_before = self.written.saturating_sub(1) / self.blocks;
        let fresh = self.written - passes_before * self.blocks;
        let known = if passes_before > 0 { self.blocks } else { fresh };
        if self.at == known {
            return false;
        }
        let offset = self.region.start + self.order.next_block() * self.workload.bs;
        let generation = self.generation - u64::from(self.at >= fresh);
        let length = self.workload.bs as u32;
        self.in_flight[slot as usize] = Header { generation, offset, length };
        engine.prepare(slot, Op::Read, offset, length);
        self.at += 1;
        true
    }

    fn settle<E: Engine>(&mut self, engine: &E, slot: u32) -> Result<Settled, VerifyFailure> {
        let header = self.in_flight[slot as usize];
        let kind = self.workload.verify.expect("only made for workloads that verify");
        header.check(kind, &engine.buffer(slot)[..header.length as usize])?;
        self.verified_blocks += 1;
        Ok(Settled {
            direction: Direction::Read,
            bytes: u64::from(header.length),
            offset: header.offset,
            counts: true,
        })
    }
}
