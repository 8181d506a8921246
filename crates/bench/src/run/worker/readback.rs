//! Reading back what a verifying job wrote, once it has written all of it.

use std::collections::HashSet;

use measure::dealing::Region;
use measure::pattern::Blocks;
use measure::workload::Workload;
use storage::clock::Clock;
use storage::engine::{Engine, Op};
use storage::usage::IoPriority;

use super::Task;
use crate::run::BenchError;
use crate::run::control::{Control, Phase, Pulse};
use crate::run::order::{Cursor, Order};
use crate::run::requests::{General, Requests, Settled, blocks_of_a_pass};
use crate::run::tally::Direction;
use crate::run::tolerance::Failures;
use crate::verify::{Header, Verification, VerifyFailure};

/// What a job that has ended is to read back, and how many blocks it is to have read back then, all in all. None where that
/// was not asked for.
pub(super) fn owed(requests: &mut General, task: &Task, depth: u32) -> Option<(ReadBack, u64)> {
    let Task { workload, region, generation, .. } = task;
    if workload.verify.is_none() || !workload.rw.writes() || task.conduct.leaves_unverified {
        return None;
    }
    if let Some(backlog) = requests.take_backlog() {
        let (expected, left) = backlog.close();
        return Some((ReadBack::new(workload, depth, Left::Backlog(left.into_iter()))?, expected));
    }
    let written = requests.issued();
    let mut passes = Passes::new(workload, region, *generation, written, requests.take_uncertain());
    passes.any_generation = task.conduct.any_generation;
    let check = ReadBack::new(workload, depth, Left::All(Box::new(passes)))?;
    Some((check, written.min(blocks_of_a_pass(workload, region))))
}

/// Reads everything back, unmeasured, until done or told to stop.
pub(super) fn read_back<E: Engine>(
    engine: &mut E,
    check: &mut ReadBack,
    control: &Control,
    pulse: &Pulse,
    failures: &mut Failures,
) -> Result<(), BenchError> {
    let clock = Clock::get();
    // A job that is told to stop leaves requests in flight, none of which is of this check.
    while engine.in_flight() > 0 {
        pulse.beat(clock.now());
        engine.submit(1, None)?;
        engine.reap(|_, _| ());
    }
    let mut idle: Vec<u32> = (0..engine.depth()).rev().collect();
    let mut reaped = Vec::new();
    let mut more = true;
    let mut newest = 0;
    while more || engine.in_flight() > 0 {
        pulse.beat(clock.now());
        more = more && control.phase() != Phase::Stop;
        while more && let Some(slot) = idle.pop() {
            if !check.issue(engine, slot) {
                idle.push(slot);
                more = false;
                break;
            }
            newest = slot;
        }
        pulse.waits_for(engine.request(newest));
        engine.submit(1, None)?;
        let mut failed = Vec::new();
        engine.reap(|slot, result| match result {
            Ok(()) => reaped.push(slot),
            Err(error) => failed.push((slot, error)),
        });
        for slot in reaped.drain(..) {
            if let Err(wrong) = check.settle(engine, slot) {
                failures.block(wrong).map_err(|wrong| verify_error(engine, wrong))?;
            }
            idle.push(slot);
        }
        for (slot, failure) in failed {
            failures.request(failure)?;
            idle.push(slot);
        }
    }
    Ok(())
}

pub(super) fn verify_error<E: Engine>(engine: &E, source: VerifyFailure) -> BenchError {
    BenchError::Verify { device: engine.device().spec().to_owned(), source }
}

/// Reads back what a writing [`General`] of the same workload, region and generation has written.
#[derive(Debug)]
pub(super) struct ReadBack {
    left: Left,
    verification: Verification,
    in_flight: Vec<Header>,
    pub verified_blocks: u64,
}

/// The blocks that are still to be read back.
#[derive(Debug)]
enum Left {
    All(Box<Passes>),
    /// What a backlog has left.
    Backlog(std::vec::IntoIter<Header>),
}

/// All blocks that were written, in the order of the last pass over the region.
#[derive(Debug)]
struct Passes {
    order: Order,
    /// Where the order of blocks does not say.
    cursor: Option<Cursor>,
    region: Region,
    bs: u64,
    blocks: u64,
    at: u64,
    /// Requests that were issued by the writer.
    written: u64,
    generation: u64,
    /// Blocks that may be of either of two passes.
    uncertain: HashSet<u64>,
    /// Blocks may be of any write.
    any_generation: bool,
}

impl ReadBack {
    /// None where nothing is to be verified.
    fn new(workload: &Workload, depth: u32, left: Left) -> Option<Self> {
        let nothing = Header { generation: 0, offset: 0, length: 0 };
        Some(Self {
            left,
            verification: Verification::new(workload)?,
            in_flight: vec![nothing; depth as usize],
            verified_blocks: 0,
        })
    }
}

impl Passes {
    fn new(
        workload: &Workload,
        region: &Region,
        generation: u64,
        written: u64,
        uncertain: HashSet<u64>,
    ) -> Self {
        let seed = workload.randseed.wrapping_add(u64::from(region.job));
        let blocks = blocks_of_a_pass(workload, region);
        let pass = written.saturating_sub(1) / blocks;
        let mut order = Order::new(workload, blocks, seed);
        // The last pass visits its blocks in an order of its own; earlier ones are skipped over.
        if let Order::Cover(cover) = &mut order {
            cover.skip_passes(pass);
        }
        Self {
            order,
            cursor: (workload.rw_step != 0).then(|| Cursor::new(workload, region)),
            region: *region,
            bs: workload.bs,
            blocks,
            at: 0,
            written,
            generation: generation + pass,
            uncertain,
            any_generation: false,
        }
    }
}

impl Iterator for Passes {
    type Item = Header;

    fn next(&mut self) -> Option<Header> {
        // The first `fresh` blocks of the last pass's order hold its generation; the others hold that of
        // the pass before, or were never written.
        let passes_before = self.written.saturating_sub(1) / self.blocks;
        let fresh = self.written - passes_before * self.blocks;
        let known = if passes_before > 0 { self.blocks } else { fresh };
        if self.at == known {
            return None;
        }
        let at = match &mut self.cursor {
            Some(cursor) => cursor.advance(self.bs),
            None => self.order.next_block() * self.bs,
        };
        let offset = self.region.start + at;
        let generation = match self.any_generation || self.uncertain.contains(&offset) {
            true => Header::ANY,
            false => self.generation - u64::from(self.at >= fresh),
        };
        self.at += 1;
        Some(Header { generation, offset, length: self.bs as u32 })
    }
}

impl Requests for ReadBack {
    const SLOW_TO_ISSUE: bool = false;

    fn issue<E: Engine>(&mut self, engine: &mut E, slot: u32) -> bool {
        let next = match &mut self.left {
            Left::All(passes) => passes.next(),
            Left::Backlog(blocks) => blocks.next(),
        };
        let Some(header) = next else { return false };
        self.in_flight[slot as usize] = header;
        engine.prepare(slot, Op::Read, header.offset, header.length);
        true
    }

    fn settle<E: Engine>(&mut self, engine: &E, slot: u32) -> Result<Settled, VerifyFailure> {
        let header = self.in_flight[slot as usize];
        self.verified_blocks += 1;
        self.verification.check(header, &engine.buffer(slot)[..header.length as usize])?;
        Ok(Settled {
            direction: Direction::Read,
            bytes: u64::from(header.length),
            offset: header.offset,
            priority: IoPriority::UNSET,
            counts: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::workload::{Rw, Verify};
    use storage::device::{self, OpenOptions};
    use storage::engine::{self, EngineConfig, IoEngine};

    #[test]
    fn what_was_in_flight_when_a_job_was_told_to_stop_is_not_checked() {
        let verify = Some(Verify::Crc32c);
        let workload = Workload { rw: Rw::RandWrite, verify, size: Some(64 << 10), ..Workload::default() };
        let region = Region { start: 0, length: 64 << 10, job: 0 };
        let passes = Passes::new(&workload, &region, 7, 16, HashSet::new());
        let mut check = ReadBack::new(&workload, 4, Left::All(Box::new(passes))).expect("verifies");
        let device =
            device::open(&"mem:1m".parse().expect("a spec"), &OpenOptions::writing()).expect("is there");
        let config = EngineConfig { depth: 4, slot_bytes: 4096, ..EngineConfig::default() };
        let (engine, _) = engine::open(IoEngine::Auto, &device, &config).expect("opens");
        let control = Control::new(1);
        control.advance(Phase::Stop);
        storage::on_engine!(engine, mut engine => {
            engine.prepare(0, Op::Read, 0, 4096);
            engine.submit(0, None).expect("submits");
            assert_eq!(engine.in_flight(), 1);
            let pulse = &control.pulses()[0];
            read_back(&mut engine, &mut check, &control, pulse, &mut Failures::new(None)).expect("ends");
            assert_eq!((engine.in_flight(), check.verified_blocks), (0, 0));
        });
    }

    #[test]
    fn where_any_write_will_do_no_generation_is_asked_for() {
        let verify = Some(Verify::Crc32c);
        let workload = Workload { rw: Rw::RandWrite, verify, size: Some(64 << 10), ..Workload::default() };
        let region = Region { start: 0, length: 64 << 10, job: 0 };
        let passes = |any| {
            let mut passes = Passes::new(&workload, &region, 7, 20, HashSet::new());
            passes.any_generation = any;
            passes.map(|header| header.generation).collect::<Vec<_>>()
        };
        let strict = passes(false);
        assert_eq!((strict.len(), strict.contains(&7), strict.contains(&8)), (16, true, true));
        assert_eq!(passes(true), [Header::ANY; 16]);
    }
}
