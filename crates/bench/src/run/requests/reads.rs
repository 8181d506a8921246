//! The narrow path: one block size, reads only, nothing to check. It keeps no state a request and compiles to an offset and a push.

use measure::dealing::Region;
use measure::pattern::Blocks;
use measure::workload::Workload;
use storage::engine::{Engine, Op};
use storage::usage::IoPriority;

use super::{Requests, Settled};
use crate::run::budget::Budget;
use crate::run::order::Order;
use crate::run::tally::Direction;
use crate::verify::VerifyFailure;

/// Reads of one size. Their order is chosen by a branch, always the same one in a run, and not by a type: no loss of rate was
/// seen, and the loop is compiled once for an engine instead of once for each order.
#[derive(Debug)]
pub(in crate::run) struct Reads {
    order: Order,
    start: u64,
    bs: u32,
    budget: Budget,
}

impl Reads {
    pub fn new(workload: &Workload, region: &Region) -> Self {
        let seed = workload.randseed.wrapping_add(u64::from(region.job));
        Self {
            order: Order::new(workload, region.length / workload.min_bs(), seed),
            start: region.start,
            bs: workload.bs as u32,
            budget: Budget::new(workload, region),
        }
    }
}

impl Requests for Reads {
    const SLOW_TO_ISSUE: bool = false;

    #[inline]
    fn issue<E: Engine>(&mut self, engine: &mut E, slot: u32) -> bool {
        if !self.budget.take(u64::from(self.bs)) {
            return false;
        }
        let offset = self.start + self.order.next_block() * u64::from(self.bs);
        engine.prepare(slot, Op::Read, offset, self.bs);
        true
    }

    #[inline]
    fn settle<E: Engine>(&mut self, _engine: &E, _slot: u32) -> Result<Settled, VerifyFailure> {
        let priority = IoPriority::UNSET;
        Ok(Settled {
            direction: Direction::Read,
            bytes: u64::from(self.bs),
            offset: 0,
            priority,
            counts: true,
        })
    }
}
