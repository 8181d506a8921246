//! What runs on several tiers say: medians of each query, and the tiers compared within blocks.

use measure::decide::{Answer, Bounds, Outcome, Race, Rules};
use measure::stats::{Direction, describe};
use schemars::JsonSchema;
use serde::Serialize;

use crate::ask::{PagesIn, Temperature};
use crate::query::Query;
use crate::record::Run;

/// Times that differ by less are equivalent.
pub const EQUIVALENCE: f64 = 0.05;

/// A query on a tier: medians over blocks.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct QueryFigures {
    /// The query.
    pub query: Query,
    /// What was in memory.
    pub temperature: Temperature,
    /// The tier, by its place in the list.
    pub tier: usize,
    /// Blocks.
    pub runs: usize,
    /// Milliseconds from the request until the last row.
    pub elapsed_ms: f64,
    /// Milliseconds in which the engine waited for reads.
    pub io_ms: Option<f64>,
    /// Milliseconds of CPU time.
    pub cpu_ms: Option<f64>,
    /// Blocks that the engine asked the system for.
    pub blocks_read: Option<f64>,
    /// Bytes of such a block.
    pub block_bytes: u32,
    /// Bytes that were read into memory for it, read-ahead included.
    pub bytes_in: Option<f64>,
    /// The part of these that lies in runs below 64 KiB.
    pub random_share: Option<f64>,
    /// Rows of the answer.
    pub rows: f64,
}

/// A query's time on a tier, compared with the last tier.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Contest {
    /// The query.
    pub query: Query,
    /// What was in memory.
    pub temperature: Temperature,
    /// The tier by whose time is divided.
    pub tier: usize,
    /// Blocks that have both.
    pub blocks: usize,
    /// The median of the blocks' ratios; None without a block.
    pub median: Option<f64>,
    /// How many times as fast as the last tier it is, with an interval; None before there is one.
    pub speedup: Option<Bounds>,
    /// How it was decided; of two settings, this tier and the last one.
    pub outcome: Outcome,
}

impl Contest {
    fn new(runs: &[Run], query: Query, temperature: Temperature, tier: usize, last: usize) -> Self {
        let rules =
            Rules { direction: Direction::LowerIsBetter, equivalence: EQUIVALENCE, ..Rules::default() };
        let (mut race, mut ratios) = (Race::new(2, rules), Vec::new());
        let blocks = runs.iter().map(|run| run.block + 1).max().unwrap_or(0);
        for block in 0..blocks {
            let is_of =
                |run: &&Run| run.block == block && run.query == query && run.temperature == temperature;
            let setting = |run: &Run| [tier, last].iter().position(|tier| *tier == run.tier);
            let pair: Vec<_> = runs
                .iter()
                .filter(is_of)
                .filter_map(|run| Some((setting(run)?, run.asked.cost.elapsed_ns as f64)))
                .collect();
            if let [(first, one), (_, other)] = pair[..] {
                race.block(&pair);
                ratios.push(if first == 0 { other / one } else { one / other });
            }
        }
        let outcome = race.outcome();
        let median = describe(&ratios).map(|description| description.median);
        Self {
            query,
            temperature,
            tier,
            blocks: ratios.len(),
            median,
            speedup: outcome.b_by_a(1, 0),
            outcome,
        }
    }

    /// Whether no further blocks are needed.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        matches!(self.outcome.answer, Answer::Better { .. } | Answer::Equivalent { .. })
    }

    /// The speed-up with its interval; None where that is so wide, a hundredfold and more, that it tells nothing yet.
    #[must_use]
    pub fn interval(&self) -> Option<Bounds> {
        self.speedup.filter(|bounds| bounds.high < 100.0 * bounds.low)
    }

    /// The best estimate of the speed-up: that with the interval, else the median.
    #[must_use]
    pub fn estimate(&self) -> Option<f64> {
        self.interval().map(|bounds| bounds.ratio).or(self.median)
    }
}

/// Every query and temperature of every tier against the last one.
#[must_use]
pub fn contests(runs: &[Run], queries: &[Query], tiers: usize) -> Vec<Contest> {
    let mut contests = Vec::new();
    for &query in queries {
        for temperature in Temperature::ALL {
            if !runs.iter().any(|run| run.query == query && run.temperature == temperature) {
                continue;
            }
            let others = 0..tiers.saturating_sub(1);
            contests.extend(others.map(|tier| Contest::new(runs, query, temperature, tier, tiers - 1)));
        }
    }
    contests
}

/// The figures of every query, temperature and tier that was run.
#[must_use]
pub fn figures(runs: &[Run], queries: &[Query], tiers: usize) -> Vec<QueryFigures> {
    let mut all = Vec::new();
    for &query in queries {
        for temperature in Temperature::ALL {
            for tier in 0..tiers {
                let of: Vec<&Run> = runs
                    .iter()
                    .filter(|run| (run.query, run.temperature, run.tier) == (query, temperature, tier))
                    .collect();
                all.extend((!of.is_empty()).then(|| of_runs(query, temperature, tier, &of)));
            }
        }
    }
    all
}

fn of_runs(query: Query, temperature: Temperature, tier: usize, runs: &[&Run]) -> QueryFigures {
    let median = |of: &dyn Fn(&Run) -> Option<f64>| {
        let known: Vec<f64> = runs.iter().filter_map(|run| of(run)).collect();
        describe(&known).map(|description| description.median)
    };
    let ms = |ns: u64| ns as f64 / 1e6;
    QueryFigures {
        query,
        temperature,
        tier,
        runs: runs.len(),
        elapsed_ms: median(&|run| Some(ms(run.asked.cost.elapsed_ns))).unwrap_or(0.0),
        io_ms: median(&|run| run.asked.cost.io_ns.map(ms)),
        cpu_ms: median(&|run| run.asked.cost.cpu_ns.map(ms)),
        blocks_read: median(&|run| run.asked.cost.blocks_read.map(|blocks| blocks as f64)),
        block_bytes: runs.first().map_or(0, |run| run.asked.cost.block_bytes),
        bytes_in: median(&|run| run.asked.pages.map(|pages| pages.bytes as f64)),
        random_share: median(&|run| run.asked.pages.as_ref().and_then(PagesIn::random_share)),
        rows: median(&|run| Some(run.asked.answer.rows as f64)).unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_of_a_hundredfold_is_none_and_the_estimate_is_the_median_then() {
        let of = |low, high| Contest {
            query: Query::Forward,
            temperature: Temperature::Cold,
            tier: 0,
            blocks: 2,
            median: Some(3.0),
            speedup: Some(Bounds { ratio: 5.0, low, high }),
            outcome: Race::new(2, Rules::default()).outcome(),
        };
        assert_eq!((of(4.0, 6.0).interval().is_some(), of(4.0, 6.0).estimate()), (true, Some(5.0)));
        assert_eq!((of(0.1, 50.0).interval().is_some(), of(0.1, 50.0).estimate()), (false, Some(3.0)));
    }
}
