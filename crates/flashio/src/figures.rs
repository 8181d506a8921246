//! What the legs say: the paper's table, stalls, the drain, restarts, and comparisons within blocks.

use std::collections::BTreeSet;

use measure::decide::{Answer, Bounds, Outcome, Race, Rules};
use measure::stats::Direction;
use schemars::JsonSchema;
use serde::Serialize;

use crate::record::{Checkpoint, Leg, Restart, RestorePair, Way};

/// Times that differ by less are equivalent.
pub const EQUIVALENCE: f64 = 0.02;
/// Restoring aims to take at most this part more than the fast tier's own reading.
pub const RESTORE_MARGIN: f64 = 0.1;

/// The figures of a way, medians over its legs. Times are seconds.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WayFigures {
    /// The way.
    pub way: Way,
    /// Legs that it was run.
    pub legs: usize,
    /// Bytes of all checkpoints by `io_s`.
    pub write_bytes_per_s: f64,
    /// From the start of all tasks until the last checkpoint was published.
    pub run_s: f64,
    /// From the first byte of any task until the checkpoint was published, added up over checkpoints.
    pub io_s: f64,
    /// Computing time of the slowest task in each interval, added up.
    pub compute_s: f64,
    /// The stall of the slowest task: the longest of all checkpoints of all legs.
    pub stall_slowest_s: f64,
    /// The median over all tasks and checkpoints.
    pub stall_median_s: f64,
}

/// The drain, over all legs that drain. Times are seconds.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DrainFigures {
    /// Bytes drained.
    pub bytes: u64,
    /// Bytes that the drain read back itself.
    pub verified_bytes: u64,
    /// Bytes that tasks read from the slow tier after the legs, and compared block by block.
    pub checked_bytes: u64,
    /// Bytes by the time in which there was something to drain; the median of legs.
    pub bytes_per_s: f64,
    /// No checkpoint was committed before the one before it was drained.
    pub kept_up: bool,
    /// The most checkpoints that were waiting or being drained at once.
    pub most_behind: u32,
    /// From the first byte of a checkpoint until it was durable on the slow tier and read back: the median.
    pub durable_median_s: f64,
    /// The longest.
    pub durable_slowest_s: f64,
}

/// Restarts, medians. Times are seconds.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RestartFigures {
    /// How many there were.
    pub restarts: usize,
    /// From the kill until every task ran again.
    pub started_s: f64,
    /// From the kill until all bytes were read and compared.
    pub restored_s: f64,
    /// From the kill until the first new iteration was done.
    pub first_step_s: f64,
    /// Finding, opening, reading and comparing the newest checkpoint on the fast tier.
    pub restore_s: f64,
    /// The time of reading the same bytes from the fast tier with nothing else to do.
    pub read_s: f64,
    /// Pairs of the two, in alternating order.
    pub pairs: usize,
    /// The median of the restarts' ratios of restoring to reading.
    pub by_read: f64,
    /// The ratio with its interval; None before there is one.
    pub ratio: Option<Bounds>,
    /// Whether restoring takes at most 1.1 times as long as reading; None while the interval contains 1.1.
    pub within_aim: Option<bool>,
    /// How it was decided; a restart is a block, and the settings are restoring and reading.
    pub outcome: Outcome,
}

/// A figure of two ways, compared within blocks.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Contest {
    /// Which time is compared.
    pub figure: Figure,
    /// The way whose time is divided.
    pub of: Way,
    /// The way by whose time it is divided.
    pub by: Way,
    /// Blocks that have both.
    pub blocks: usize,
    /// The median of the blocks' ratios; None without a block.
    pub median: Option<f64>,
    /// The ratio with its interval; None before there is one.
    pub ratio: Option<Bounds>,
    /// How it was decided; of two settings, `of` and `by`.
    pub outcome: Outcome,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// [`Leg::run_s`].
    RunTime,
    /// [`Leg::compute_s`].
    ComputeTime,
}

impl Contest {
    fn new(legs: &[Leg], figure: Figure, of: Way, by: Way) -> Self {
        let (mut race, mut ratios) = (race(EQUIVALENCE), Vec::new());
        let blocks: BTreeSet<u32> = legs.iter().map(|leg| leg.block).collect();
        for block in blocks {
            let setting = |leg: &Leg| [of, by].iter().position(|way| *way == leg.way);
            let time = |leg: &Leg| match figure {
                Figure::RunTime => leg.run_s,
                Figure::ComputeTime => leg.compute_s(),
            };
            let runs = legs.iter().filter(|leg| leg.block == block);
            let runs: Vec<_> = runs.filter_map(|leg| Some((setting(leg)?, time(leg)))).collect();
            if let [(first, one), (_, other)] = runs[..] {
                race.block(&runs);
                ratios.push(if first == 0 { one / other } else { other / one });
            }
        }
        let outcome = race.outcome();
        let median = (!ratios.is_empty()).then(|| median(&ratios));
        Self { figure, of, by, blocks: ratios.len(), median, ratio: outcome.b_by_a(0, 1), outcome }
    }

    /// Whether no further blocks are needed.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        matches!(self.outcome.answer, Answer::Better { .. } | Answer::Equivalent { .. })
    }

    /// The best estimate of the ratio.
    #[must_use]
    pub fn estimate(&self) -> Option<f64> {
        self.ratio.map(|bounds| bounds.ratio).or(self.median)
    }
}

/// A race of two settings for the shorter time.
fn race(equivalence: f64) -> Race {
    Race::new(2, Rules { direction: Direction::LowerIsBetter, equivalence, ..Rules::default() })
}

/// The comparisons: what the drain gains over the slow tier, what it costs beside the fast tier alone, and what of that is
/// computing that it slowed down (ω is the ratio less 1).
#[must_use]
pub fn contests(legs: &[Leg]) -> [Contest; 3] {
    [
        Contest::new(legs, Figure::RunTime, Way::Slow, Way::Drained),
        Contest::new(legs, Figure::RunTime, Way::Drained, Way::Fast),
        Contest::new(legs, Figure::ComputeTime, Way::Drained, Way::Fast),
    ]
}

/// The figures of each way that was run; `tasks` tasks wrote `checkpoint_bytes` each time.
#[must_use]
pub fn ways(legs: &[Leg], set_bytes: u64) -> Vec<WayFigures> {
    let figures = |way: Way| {
        let legs: Vec<&Leg> = legs.iter().filter(|leg| leg.way == way).collect();
        let over_legs =
            |of: &dyn Fn(&Leg) -> f64| median(&legs.iter().map(|leg| of(leg)).collect::<Vec<_>>());
        let stalls: Vec<f64> =
            legs.iter().flat_map(|leg| &leg.checkpoints).flat_map(Checkpoint::stalls).collect();
        (!legs.is_empty()).then(|| WayFigures {
            way,
            legs: legs.len(),
            write_bytes_per_s: over_legs(&|leg| set_bytes as f64 * leg.checkpoints.len() as f64 / leg.io_s()),
            run_s: over_legs(&|leg| leg.run_s),
            io_s: over_legs(&Leg::io_s),
            compute_s: over_legs(&Leg::compute_s),
            stall_slowest_s: stalls.iter().copied().fold(0.0, f64::max),
            stall_median_s: median(&stalls),
        })
    };
    Way::ALL.into_iter().filter_map(figures).collect()
}

/// The drain of all legs that have one.
#[must_use]
pub fn drain(legs: &[Leg]) -> Option<DrainFigures> {
    let drained: Vec<_> = legs.iter().filter_map(|leg| Some((leg, leg.drain?))).collect();
    let durable: Vec<f64> = drained
        .iter()
        .flat_map(|(leg, _)| leg.checkpoints.iter().filter_map(|checkpoint| checkpoint.durable_s))
        .collect();
    let rates: Vec<f64> = drained.iter().map(|(_, drain)| drain.bytes as f64 / drain.busy_s).collect();
    let most_behind = drained.iter().map(|(_, drain)| drain.most_behind).max()?;
    Some(DrainFigures {
        bytes: drained.iter().map(|(_, drain)| drain.bytes).sum(),
        verified_bytes: drained.iter().map(|(_, drain)| drain.verified_bytes).sum(),
        checked_bytes: drained.iter().map(|(leg, _)| leg.checked_bytes).sum(),
        bytes_per_s: median(&rates),
        kept_up: most_behind <= 1,
        most_behind,
        durable_median_s: median(&durable),
        durable_slowest_s: durable.iter().copied().fold(0.0, f64::max),
    })
}

/// The restarts of all legs.
#[must_use]
pub fn restart(legs: &[Leg]) -> Option<RestartFigures> {
    let all: Vec<&Restart> = legs.iter().filter_map(|leg| leg.restart.as_ref()).collect();
    if all.is_empty() {
        return None;
    }
    let over = |of: fn(&Restart) -> f64| median(&all.iter().map(|restart| of(restart)).collect::<Vec<_>>());
    let pairs: Vec<_> = all.iter().flat_map(|restart| &restart.pairs).collect();
    let over_pairs =
        |of: fn(&RestorePair) -> f64| median(&pairs.iter().map(|pair| of(pair)).collect::<Vec<_>>());
    let mut race = race(RESTORE_MARGIN);
    for restart in &all {
        let [restoring, reading] = restart.means_s();
        race.block(&[(0, restoring), (1, reading)]);
    }
    let outcome = race.outcome();
    let ratio = outcome.b_by_a(0, 1);
    let aim = 1.0 + RESTORE_MARGIN;
    let within_aim =
        ratio.filter(|ratio| ratio.high <= aim || ratio.low > aim).map(|ratio| ratio.high <= aim);
    Some(RestartFigures {
        restarts: all.len(),
        started_s: over(|restart| restart.started_s),
        restored_s: over(|restart| restart.restored_s),
        first_step_s: over(|restart| restart.first_step_s),
        restore_s: over_pairs(|pair| pair.restore_s),
        read_s: over_pairs(|pair| pair.read_s),
        pairs: pairs.len(),
        by_read: over(|restart| restart.means_s()[0] / restart.means_s()[1]),
        ratio,
        within_aim,
        outcome,
    })
}

/// The median; 0 for no samples.
pub(crate) fn median(samples: &[f64]) -> f64 {
    measure::stats::describe(samples).map_or(0.0, |description| description.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Drain, TaskTimes};

    /// A leg of two tasks and two checkpoints that computes for this long. The tasks write one after the other: the first for
    /// `write_s`, the second for half as long.
    fn leg(block: u32, way: Way, compute_s: f64, write_s: f64) -> Leg {
        let task = |part: f64| TaskTimes { compute_s: compute_s * part / 2.0, write_s: write_s * part };
        let checkpoint = |step| Checkpoint {
            step,
            tasks: vec![task(1.0), task(0.5)],
            write_s: 1.5 * write_s,
            publish_s: 0.25,
            durable_s: (way == Way::Drained).then_some(f64::from(step)),
        };
        let drain = Drain { bytes: 100, verified_bytes: 100, busy_s: 4.0, most_behind: block + 1 };
        Leg {
            block,
            way,
            run_s: compute_s + 2.0 * (1.5 * write_s + 0.25),
            checkpoints: vec![checkpoint(1), checkpoint(2)],
            drain: (way == Way::Drained).then_some(drain),
            checked_bytes: 0,
            restart: None,
        }
    }

    #[test]
    fn a_way_has_the_papers_columns() {
        let legs = [leg(0, Way::Slow, 4.0, 1.0), leg(1, Way::Slow, 4.0, 1.0)];
        let [slow] = &ways(&legs, 1000)[..] else { panic!() };
        // Of two checkpoints, from the first task's first byte to the last one's end, and the publishing: the slowest task's own
        // time would be 2.5 s, and its bandwidth more than a device gives that wrote for 3 s.
        assert_eq!((slow.legs, slow.io_s, slow.run_s, slow.compute_s), (2, 3.5, 7.5, 4.0));
        assert_eq!(slow.write_bytes_per_s, 2000.0 / 3.5);
        assert!(slow.write_bytes_per_s <= 2000.0 / 3.0);
        // A stall is a task's own, without the other's write.
        assert_eq!((slow.stall_slowest_s, slow.stall_median_s), (1.25, 1.0));
    }

    #[test]
    fn a_drain_that_was_behind_once_did_not_keep_up() {
        let first = leg(0, Way::Drained, 4.0, 1.0);
        assert!(drain(std::slice::from_ref(&first)).unwrap().kept_up);
        let both = drain(&[first, leg(1, Way::Drained, 4.0, 1.0)]).unwrap();
        assert_eq!((both.kept_up, both.most_behind, both.bytes, both.bytes_per_s), (false, 2, 200, 25.0));
        assert_eq!((both.durable_median_s, both.durable_slowest_s), (1.5, 2.0));
        assert_eq!(drain(&[leg(0, Way::Fast, 1.0, 1.0)]), None);
    }

    /// A drained leg with a restart of which restoring took so many times as long as reading, while the tier got slower by a tenth
    /// with each of the four.
    fn restarted(block: u32, by_read: f64) -> Leg {
        let time = |place: i32, factor: f64| factor * 1.1_f64.powi(place);
        let pairs = vec![
            RestorePair { restore_first: true, restore_s: time(0, by_read), read_s: time(1, 1.0) },
            RestorePair { restore_first: false, restore_s: time(3, by_read), read_s: time(2, 1.0) },
        ];
        let restart = Some(Restart { started_s: 1.0, restored_s: 2.0, first_step_s: 3.0, pairs });
        Leg { restart, ..leg(block, Way::Drained, 4.0, 1.0) }
    }

    #[test]
    fn drift_between_restoring_and_reading_cancels_out() {
        let figures = restart(&[restarted(0, 1.0)]).unwrap();
        assert!((figures.by_read - 1.0).abs() < 1e-12, "{figures:?}");
        assert_eq!((figures.restarts, figures.pairs), (1, 2));
        assert_eq!((figures.ratio, figures.within_aim), (None, None));
    }

    #[test]
    fn restoring_is_within_its_aim_only_if_the_whole_interval_is() {
        let of = |by_read: &dyn Fn(u32) -> f64| {
            let legs: Vec<Leg> = (0..8).map(|block| restarted(block, by_read(block))).collect();
            restart(&legs).unwrap()
        };
        let scatter = |block: u32| if block.is_multiple_of(2) { 1.001 } else { 0.999 };
        assert_eq!(of(&|block| 1.05 * scatter(block)).within_aim, Some(true));
        assert_eq!(of(&|block| 1.2 * scatter(block)).within_aim, Some(false));
        let wide = of(&|block| if block.is_multiple_of(2) { 1.4 } else { 0.8 });
        assert_eq!(wide.within_aim, None, "{wide:?}");
        assert!(matches!(wide.outcome.answer, Answer::Undecided { .. }), "{wide:?}");
        assert_eq!(restart(&[leg(0, Way::Drained, 4.0, 1.0)]), None);
    }

    #[test]
    fn ratios_are_within_blocks_and_a_block_without_both_ways_does_not_count() {
        // Blocks differ by far more than the ways do.
        let mut legs = Vec::new();
        for block in 0..6 {
            let scale = 4.0_f64.powi(block as i32) * (1.0 + 0.001 * f64::from(block % 2));
            legs.push(leg(block, Way::Fast, scale, 0.0));
            legs.push(leg(block, Way::Drained, 1.1 * scale, 0.0));
        }
        legs.push(leg(6, Way::Fast, 1.0, 0.0));
        let [gain, _, slowdown] = contests(&legs);
        assert_eq!((gain.blocks, gain.median, gain.ratio), (0, None, None));
        assert_eq!(slowdown.blocks, 6);
        assert!((slowdown.median.unwrap() - 1.1).abs() < 1e-9);
        assert!(slowdown.is_decided(), "{slowdown:?}");
        let bounds = slowdown.ratio.unwrap();
        assert!(bounds.low <= 1.1 + 1e-9 && bounds.high >= 1.1 - 1e-9 && bounds.low > 1.0, "{bounds:?}");
    }
}
