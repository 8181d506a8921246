//! Whether a checkpoint now is worth its cost: the interval as the costs and failures seen so far have it.
//!
//! 1. **The rate of failures** is estimated from a log of them: λ = (½ + Σw) / Σw·t, the mean of the posterior of an exponential rate with
//!    Jeffreys' prior. Waste grows linearly with λ, so this mean gives the interval of the least expected waste. A failure that
//!    is k failures ago weighs [`MEMORY`]ᵏ, so that the estimate follows a rate that drifts. With no failure known λ = 1 / 2t:
//!    the interval grows with the time survived, and the first checkpoint comes after four times its cost.
//! 2. **The cost** of a checkpoint is the time that it blocks, and what its drain takes from the application.
//! 3. **The interval** is Daly's for both; not shorter than a drain takes, because drains would pile up.
//! 4. **The end**: before the allocation ends, and after a signal, one checkpoint is due however short the time since the last,
//!    early enough for it to be drained.
//!
//! [`waste_of_histories`] draws histories of failures, and compares this policy's waste with that of fixed intervals.

use std::f64::consts::TAU;
use std::ops::RangeInclusive;

use measure::pattern::Rng;

use super::daly;

/// Weight of a failure against that of the one after it: the newest 30 or so count.
pub const MEMORY: f64 = 0.97;

/// Failures seen so far, and for how long there were none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FailureLog {
    failures: f64,
    time_s: f64,
}

impl FailureLog {
    /// Seconds between failures, oldest first.
    #[must_use]
    pub fn new(uptimes_s: &[f64]) -> Self {
        let mut log = Self::default();
        for uptime_s in uptimes_s {
            log.add(*uptime_s);
        }
        log
    }

    /// Adds a failure that came after so many seconds without one.
    pub fn add(&mut self, uptime_s: f64) {
        self.time_s = self.time_s * MEMORY + uptime_s;
        self.failures = self.failures * MEMORY + 1.0;
    }

    /// The estimated mean time between failures, where there was none for `up_s` since the last.
    #[must_use]
    pub fn mtbf_s(&self, up_s: f64) -> f64 {
        (self.time_s + up_s) / (self.failures + 0.5)
    }
}

/// What a checkpoint costs, as it was measured. All times are seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CheckpointCost {
    /// Time for which it keeps the application from computing: δ.
    pub blocked_s: f64,
    /// Time from its begin until it is on the slow tier.
    pub drain_s: f64,
    /// Share of its speed that the application loses meanwhile: ω of the drain.
    pub slowdown: f64,
}

impl CheckpointCost {
    fn total_s(&self) -> f64 {
        self.blocked_s + self.slowdown * self.drain_s
    }
}

/// When the question is asked. All times are seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// Since the last failure, or since the first run began.
    pub up_s: f64,
    /// Since the last checkpoint of this run began; since the run began if there was none.
    pub since_checkpoint_s: f64,
    /// Until the question is asked again.
    pub step_s: f64,
    /// Until the allocation ends, where that is known.
    pub to_end_s: Option<f64>,
    /// Since a signal announced the end.
    pub since_signal_s: Option<f64>,
}

/// Why the answer is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueReason {
    /// What it costs is not known.
    Unmeasured,
    /// A signal came.
    Signal,
    /// The allocation ends.
    End,
    /// The interval.
    Interval,
    /// The drain takes longer than the interval.
    Drain,
}

impl DueReason {
    /// One word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Unmeasured => "unmeasured",
            Self::Signal => "signal",
            Self::End => "end",
            Self::Interval => "interval",
            Self::Drain => "drain",
        }
    }
}

/// Whether a checkpoint is due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Due {
    /// Seconds until it is; zero or less if it is due.
    pub in_s: f64,
    /// What decides it.
    pub reason: DueReason,
}

impl Due {
    /// A checkpoint is worth its cost now.
    #[must_use]
    pub fn is_now(&self) -> bool {
        self.in_s <= 0.0
    }
}

/// Whether a checkpoint is due; `cost` is None before one was measured.
#[must_use]
pub fn due(log: &FailureLog, cost: Option<&CheckpointCost>, moment: &Moment) -> Due {
    let since_s = moment.since_checkpoint_s;
    if let Some(signal_s) = moment.since_signal_s
        && since_s > signal_s
    {
        return Due { in_s: 0.0, reason: DueReason::Signal };
    }
    let Some(cost) = cost else {
        return Due { in_s: 0.0, reason: DueReason::Unmeasured };
    };
    let interval_s = daly(cost.total_s(), log.mtbf_s(moment.up_s)).max(cost.blocked_s);
    // A step late is as far from the interval as a step early.
    let mut answer = if cost.drain_s > interval_s {
        Due { in_s: cost.drain_s - since_s, reason: DueReason::Drain }
    } else {
        Due { in_s: interval_s - moment.step_s / 2.0 - since_s, reason: DueReason::Interval }
    };
    if let Some(to_end_s) = moment.to_end_s {
        // The last moment from which a checkpoint is drained before the end, asked once more before it, with as much again to spare.
        let last_s = to_end_s - 2.0 * (cost.blocked_s + cost.drain_s) - moment.step_s;
        if last_s > 0.0 && last_s < answer.in_s {
            answer = Due { in_s: last_s, reason: DueReason::End };
        } else if last_s <= 0.0 && since_s >= -last_s {
            return Due { in_s: 0.0, reason: DueReason::End };
        }
    }
    answer
}

/// How failures of a history come, with a mean time of 1 between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FailureModel {
    /// Without memory.
    Exponential,
    /// Weibull's of this shape; below 1 failures come in clusters.
    Weibull(f64),
    /// Exponential, with a mean that grows or falls by this factor from the history's begin to its end, geometrically.
    Trend(f64),
    /// Exponential, with a mean that rises and falls by this factor about its middle, once in a history.
    Wave(f64),
    /// Exponential, with a mean that is so many times as long from the middle of the history on.
    Jump(f64),
}

impl FailureModel {
    fn draw(self, rng: &mut Rng, progress: f64) -> f64 {
        let exponential = rng.exponential();
        match self {
            Self::Exponential => exponential,
            Self::Weibull(shape) => exponential.powf(1.0 / shape) / libm::tgamma(1.0 + 1.0 / shape),
            Self::Trend(factor) => exponential * factor.powf(progress - 0.5),
            Self::Wave(factor) => exponential * factor.powf((TAU * progress).sin()),
            Self::Jump(factor) => exponential * if progress < 0.5 { 1.0 } else { factor },
        }
    }
}

/// Histories to draw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Histories {
    /// How failures come.
    pub model: FailureModel,
    /// Time for which a checkpoint blocks, in mean times between failures.
    pub blocked: f64,
    /// Time from the end of the blocking until the checkpoint can be restored.
    pub commit: f64,
    /// Failures of a history.
    pub failures: u32,
    /// Histories.
    pub count: u32,
    /// Random numbers.
    pub seed: u64,
}

/// Shares of the time that were no useful work.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryWaste {
    /// With the policy, which knows nothing at first.
    pub policy: f64,
    /// With the fixed interval that wastes least over all of these histories.
    pub best_fixed: f64,
    /// That interval, in mean times between failures.
    pub best_interval: f64,
    /// With the interval of each history that wastes least in it.
    pub best_of_each: f64,
}

/// Fixed intervals that are tried: Young's times 1.08 to these powers.
const FIXED: RangeInclusive<i32> = -18..=18;
/// Steps of the application in Young's interval, about: the policy is asked after each.
const STEPS: f64 = 50.0;

/// The waste of the policy and of fixed intervals in histories of failures.
#[must_use]
pub fn waste_of_histories(histories: &Histories) -> HistoryWaste {
    let mut rng = Rng::new(histories.seed);
    let young = super::young(histories.blocked, 1.0);
    let intervals: Vec<f64> = FIXED.map(|power| young * 1.08f64.powi(power)).collect();
    let mut fixed = vec![0.0; intervals.len()];
    let (mut wall, mut policy, mut each) = (0.0, 0.0, 0.0);
    let mut uptimes = Vec::new();
    for _ in 0..histories.count {
        uptimes.clear();
        uptimes.extend((0..histories.failures).map(|number| {
            histories.model.draw(&mut rng, (f64::from(number) + 0.5) / f64::from(histories.failures))
        }));
        wall += uptimes.iter().sum::<f64>();
        policy += work_with_policy(histories, &uptimes, young / STEPS);
        let mut best = 0.0f64;
        for (interval, sum) in intervals.iter().zip(&mut fixed) {
            let work = work_with_interval(histories, &uptimes, *interval);
            *sum += work;
            best = best.max(work);
        }
        each += best;
    }
    let best = (0..fixed.len()).max_by(|a, b| fixed[*a].total_cmp(&fixed[*b])).unwrap_or(0);
    HistoryWaste {
        policy: 1.0 - policy / wall,
        best_fixed: 1.0 - fixed[best] / wall,
        best_interval: intervals[best],
        best_of_each: 1.0 - each / wall,
    }
}

/// Work that survives: each checkpoint that is committed before the failure keeps what was computed until its begin.
fn work_with_interval(histories: &Histories, uptimes: &[f64], interval: f64) -> f64 {
    let kept = |uptime: &f64| {
        let whole = ((uptime - histories.commit) / (interval + histories.blocked)).floor();
        whole.max(0.0) * interval
    };
    uptimes.iter().map(kept).sum()
}

fn work_with_policy(histories: &Histories, uptimes: &[f64], step_s: f64) -> f64 {
    let blocked_s = histories.blocked;
    let cost = CheckpointCost { blocked_s, drain_s: blocked_s + histories.commit, slowdown: 0.0 };
    let mut log = FailureLog::default();
    let mut measured = None;
    let mut work = 0.0;
    for uptime in uptimes {
        let (mut up_s, mut begun_s) = (0.0, 0.0);
        while up_s < *uptime {
            let moment = Moment {
                up_s,
                since_checkpoint_s: up_s - begun_s,
                step_s,
                to_end_s: None,
                since_signal_s: None,
            };
            let answer = due(&log, measured.as_ref(), &moment);
            if answer.is_now() && up_s > begun_s {
                let end_s = up_s + blocked_s;
                if end_s + histories.commit > *uptime {
                    break;
                }
                work += up_s - begun_s;
                measured = Some(cost);
                (up_s, begun_s) = (end_s, end_s);
            } else {
                up_s += (answer.in_s / step_s).ceil().max(1.0) * step_s;
            }
        }
        log.add(*uptime);
    }
    work
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: CheckpointCost = CheckpointCost { blocked_s: 2.0, drain_s: 30.0, slowdown: 0.0 };
    const MOMENT: Moment =
        Moment { up_s: 0.0, since_checkpoint_s: 0.0, step_s: 0.0, to_end_s: None, since_signal_s: None };

    fn ask(log: &FailureLog, moment: Moment) -> (f64, DueReason) {
        let answer = due(log, Some(&COST), &moment);
        (answer.in_s, answer.reason)
    }

    #[test]
    fn the_waste_is_at_most_two_percent_above_that_of_the_best_fixed_interval() {
        for (model, blocked) in [
            (FailureModel::Exponential, 1e-2),
            (FailureModel::Exponential, 1e-3),
            (FailureModel::Weibull(0.5), 1e-3),
            (FailureModel::Weibull(0.7), 1e-3),
            (FailureModel::Weibull(1.5), 1e-3),
            (FailureModel::Trend(4.0), 1e-3),
            (FailureModel::Trend(0.25), 1e-3),
            (FailureModel::Wave(3.0), 1e-3),
            (FailureModel::Jump(0.1), 1e-3),
        ] {
            let histories = Histories { model, blocked, commit: 0.0, failures: 100, count: 1000, seed: 7 };
            let waste = waste_of_histories(&histories);
            assert!(waste.policy <= 1.02 * waste.best_fixed, "{model:?} {waste:?}");
            assert!(waste.best_of_each <= waste.best_fixed, "{model:?} {waste:?}");
        }
    }

    #[test]
    fn fixed_intervals_waste_in_histories_what_the_formula_says() {
        let histories = Histories {
            model: FailureModel::Exponential,
            blocked: 1e-2,
            commit: 0.0,
            failures: 100,
            count: 1000,
            seed: 7,
        };
        let waste = waste_of_histories(&histories);
        let machine = super::super::Machine {
            mtbf_s: 1.0,
            write_s: 1e-2,
            restart_s: 0.0,
            downtime_s: 0.0,
            overlap: 0.0,
        };
        let exact = machine.waste(machine.exact_period());
        assert!((waste.best_fixed / exact - 1.0).abs() < 0.02, "{waste:?} {exact}");
        assert!((waste.best_interval / machine.exact_period() - 1.0).abs() < 0.2, "{waste:?}");
    }

    #[test]
    fn with_nothing_known_a_checkpoint_is_due() {
        assert!(due(&FailureLog::default(), None, &MOMENT).is_now());
        let moment = Moment { up_s: 1.0, since_checkpoint_s: 1.0, ..MOMENT };
        assert_eq!(due(&FailureLog::default(), None, &moment).reason, DueReason::Unmeasured);
    }

    #[test]
    fn without_failures_the_interval_grows_with_the_time_survived() {
        let interval = |up_s| ask(&FailureLog::default(), Moment { up_s, ..MOMENT }).0;
        assert!((interval(8.0) - daly(2.0, 16.0)).abs() < 30.0);
        assert!((interval(1e6) - daly(2.0, 2e6)).abs() < 1e-6);
        assert!(interval(1e8) > interval(1e6));
    }

    #[test]
    fn the_interval_follows_the_newest_failures() {
        let rare = [1e6; 100];
        let frequent = [1e4; 100];
        let mtbf = |uptimes: &[f64]| FailureLog::new(uptimes).mtbf_s(0.0);
        assert!((mtbf(&rare) / 1e6 - 1.0).abs() < 0.05);
        assert!(mtbf(&[rare, frequent].concat()) < 1e5, "a tenth of the mean of all");
        let (in_s, reason) = ask(&FailureLog::new(&rare), Moment { since_checkpoint_s: 500.0, ..MOMENT });
        assert_eq!(reason, DueReason::Interval);
        assert!((in_s + 500.0 - daly(2.0, mtbf(&rare))).abs() < 1e-6);
    }

    #[test]
    fn a_checkpoint_is_due_at_the_step_that_is_nearest_to_the_interval() {
        let log = FailureLog::new(&[1e6; 100]);
        let interval = ask(&log, MOMENT).0;
        for (since, is_now) in [(interval - 51.0, false), (interval - 49.0, true)] {
            let moment = Moment { since_checkpoint_s: since, step_s: 100.0, ..MOMENT };
            assert_eq!(due(&log, Some(&COST), &moment).is_now(), is_now);
        }
    }

    #[test]
    fn drains_do_not_pile_up() {
        let log = FailureLog::new(&[100.0; 100]);
        assert_eq!(ask(&log, Moment { since_checkpoint_s: 20.0, ..MOMENT }), (10.0, DueReason::Drain));
        assert!(ask(&log, Moment { since_checkpoint_s: 30.0, ..MOMENT }).0 <= 0.0);
    }

    #[test]
    fn what_a_drain_takes_from_the_application_lengthens_the_interval() {
        let log = FailureLog::new(&[1e6; 100]);
        let slowed = CheckpointCost { slowdown: 0.2, ..COST };
        let interval = due(&log, Some(&slowed), &MOMENT).in_s;
        assert!((interval - daly(8.0, log.mtbf_s(0.0))).abs() < 1e-6);
    }

    #[test]
    fn one_checkpoint_is_due_before_the_end_in_time_for_its_drain() {
        let log = FailureLog::new(&[1e9; 100]);
        let at = |to_end_s, since_checkpoint_s| {
            ask(&log, Moment { to_end_s: Some(to_end_s), since_checkpoint_s, step_s: 5.0, ..MOMENT })
        };
        assert_eq!(at(100.0, 1000.0), (31.0, DueReason::End));
        assert_eq!(at(69.0, 1000.0), (0.0, DueReason::End));
        assert_eq!(at(60.0, 1000.0), (0.0, DueReason::End));
        let (in_s, reason) = at(60.0, 8.0);
        assert!(in_s > 1000.0 && reason == DueReason::Interval, "it was made: {in_s}");
    }

    #[test]
    fn one_checkpoint_is_due_after_a_signal() {
        let log = FailureLog::new(&[1e9; 100]);
        let at = |since_signal_s, since_checkpoint_s| {
            ask(&log, Moment { since_signal_s: Some(since_signal_s), since_checkpoint_s, ..MOMENT })
        };
        assert_eq!(at(1.0, 50.0), (0.0, DueReason::Signal));
        assert_eq!(at(51.0, 50.0).1, DueReason::Interval);
    }
}
