//! Failures drawn at random, against which the formulas are checked.
//!
//! A run completes a fixed amount of work, made of patterns: `segments` periods that each end with a checkpoint on the
//! fast level, and then, if there is a slow level, its checkpoint. The time to each failure is drawn; between failures
//! everything is arithmetic, so a run costs as much as it has failures. A failure of the slow kind loses the pattern,
//! one of the fast kind the segment. Recovery may be interrupted by the next failure.
//!
//! The waste of many runs is 1 − work ÷ mean wall time; its interval is that of the mean, carried through.

use measure::pattern::Rng;
use schemars::JsonSchema;
use serde::Serialize;

use super::Machine;
use super::levels::{Levels, Schedule};

/// How failures come.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Failures {
    /// Without memory, which the formulas assume.
    Exponential,
    /// Times between failures are Weibull's of this shape; below 1 failures come in clusters.
    Weibull(f64),
}

impl Failures {
    fn draw(self, rng: &mut Rng, mtbf_s: f64) -> f64 {
        match self {
            Self::Exponential => mtbf_s * rng.exponential(),
            Self::Weibull(shape) => {
                mtbf_s / libm::tgamma(1.0 + 1.0 / shape) * rng.exponential().powf(1.0 / shape)
            }
        }
    }
}

/// What is repeated until the work is done. All times are seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pattern {
    mtbf_s: f64,
    segments: u32,
    segment_s: f64,
    segment_work_s: f64,
    slow_write_s: f64,
    slow_share: f64,
    /// Down time, restart and repeated work after a failure of the fast and of the slow kind.
    recovery_s: [f64; 2],
}

impl Pattern {
    /// One level with a period.
    #[must_use]
    pub fn of(machine: &Machine, period_s: f64) -> Self {
        Self {
            mtbf_s: machine.mtbf_s,
            segments: 1,
            segment_s: period_s,
            segment_work_s: machine.work_s(period_s),
            slow_write_s: 0.0,
            slow_share: 0.0,
            recovery_s: [machine.recovery_s(); 2],
        }
    }

    /// Two levels with a schedule.
    #[must_use]
    pub fn of_levels(levels: &Levels, schedule: &Schedule) -> Self {
        Self {
            mtbf_s: levels.mtbf_s,
            segments: schedule.slow_every,
            segment_s: schedule.fast_interval_s + levels.fast_write_s,
            segment_work_s: schedule.fast_interval_s,
            slow_write_s: levels.slow_write_s,
            slow_share: levels.slow_share,
            recovery_s: [levels.fast_restart_s, levels.slow_restart_s].map(|s| s + levels.downtime_s),
        }
    }

    fn length_s(&self) -> f64 {
        f64::from(self.segments) * self.segment_s + self.slow_write_s
    }
}

/// What runs came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Simulated {
    /// The mean waste.
    pub waste: f64,
    /// Half of its 95 % interval.
    pub half_width: f64,
    /// Runs.
    pub runs: u32,
    /// Work of each run, seconds.
    pub work_s: f64,
    /// Failures of all runs.
    pub failures: u64,
}

/// Failures after which a simulation gives up: the machine makes no progress worth the name.
const MOST_FAILURES: u64 = 200_000_000;
/// Work of a run, in times between failures.
const RUN_MTBF: f64 = 10.0;

/// Runs the pattern so often; the same seed gives the same result. None if failures leave next to no progress.
#[must_use]
pub fn simulate(pattern: &Pattern, failures: Failures, runs: u32, seed: u64) -> Option<Simulated> {
    let patterns = (RUN_MTBF * pattern.mtbf_s / pattern.length_s()).ceil().max(1.0);
    let work_s = patterns * f64::from(pattern.segments) * pattern.segment_work_s;
    // A segment of T takes e^(T/M) attempts with exponential failures, which would end no sooner than the count.
    let attempts = (pattern.segment_s / pattern.mtbf_s).exp() - 1.0;
    if failures == Failures::Exponential
        && f64::from(runs) * patterns * f64::from(pattern.segments) * attempts > MOST_FAILURES as f64
    {
        return None;
    }
    let mut rng = Rng::new(seed);
    let (mut count, mut sum, mut squares) = (0u64, 0.0, 0.0);
    for _ in 0..runs {
        let wall = run(pattern, failures, patterns as u64, &mut rng, &mut count)?;
        sum += wall;
        squares += wall * wall;
    }
    let n = f64::from(runs);
    let mean = sum / n;
    let deviation = ((squares / n - mean * mean).max(0.0) * n / (n - 1.0).max(1.0)).sqrt();
    Some(Simulated {
        waste: 1.0 - work_s / mean,
        half_width: 1.96 * deviation / n.sqrt() * work_s / (mean * mean),
        runs,
        work_s,
        failures: count,
    })
}

/// Wall time of one run.
fn run(pattern: &Pattern, failures: Failures, patterns: u64, rng: &mut Rng, count: &mut u64) -> Option<f64> {
    let (mut wall, mut done, mut segment) = (0.0, 0, 0);
    let mut recovery = 0.0;
    while *count < MOST_FAILURES {
        let until = failures.draw(rng, pattern.mtbf_s);
        let left = until - recovery;
        if left > 0.0 {
            let (used, position) = advance(pattern, (done, segment), patterns, left);
            (done, segment) = position;
            if done == patterns {
                return Some(wall + recovery + used);
            }
        }
        wall += until;
        *count += 1;
        let is_slow = pattern.slow_share > 0.0 && rng.unit() < pattern.slow_share;
        if is_slow {
            segment = 0;
        }
        // A failure of the fast kind during a recovery from the slow level does not shorten that recovery.
        let begun = if left > 0.0 { 0.0 } else { recovery };
        recovery = pattern.recovery_s[usize::from(is_slow)].max(begun);
    }
    None
}

/// How far `left` seconds without a failure lead from a position (patterns done, segments done), and how many of them
/// are used if the last pattern is completed.
fn advance(pattern: &Pattern, (done, segment): (u64, u32), patterns: u64, left: f64) -> (f64, (u64, u32)) {
    let to_end = f64::from(pattern.segments - segment) * pattern.segment_s + pattern.slow_write_s;
    if left < to_end {
        let more = (left / pattern.segment_s) as u32;
        return (left, (done, (segment + more).min(pattern.segments)));
    }
    let whole = ((left - to_end) / pattern.length_s()).floor().min((patterns - done - 1) as f64);
    let used = to_end + whole * pattern.length_s();
    let done = done + 1 + whole as u64;
    if done == patterns {
        return (used, (done, 0));
    }
    let more = ((left - used) / pattern.segment_s) as u32;
    (left, (done, more.min(pattern.segments)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of the tests; the documentation's figures are from 10⁵.
    const RUNS: u32 = 20_000;

    fn machine(mtbf_s: f64, overlap: f64) -> Machine {
        Machine { mtbf_s, write_s: 300.0, restart_s: 300.0, downtime_s: 60.0, overlap }
    }

    #[test]
    fn the_exact_waste_is_what_failures_come_to() {
        for (mtbf, overlap) in [(86_400.0, 0.0), (86_400.0, 0.5), (3600.0, 0.0), (1800.0, 0.3)] {
            let machine = machine(mtbf, overlap);
            let period = machine.exact_period();
            let seen = simulate(&Pattern::of(&machine, period), Failures::Exponential, RUNS, 1).unwrap();
            let waste = machine.waste(period);
            assert!((seen.waste - waste).abs() < 3.0 * seen.half_width, "{waste} {seen:?}");
            assert!((seen.waste - waste).abs() < 0.02 * waste, "{waste} {seen:?}");
        }
    }

    #[test]
    fn the_first_order_waste_holds_where_failures_are_rare_and_fails_where_they_are_not() {
        let error = |mtbf: f64| {
            let machine = machine(mtbf, 0.0);
            let period = machine.exact_period();
            let seen = simulate(&Pattern::of(&machine, period), Failures::Exponential, RUNS, 2).unwrap();
            (machine.is_first_order(period), (machine.first_order_waste(period) / seen.waste - 1.0).abs())
        };
        let (holds, rare) = error(30.0 * 86_400.0);
        assert!(holds && rare < 0.02, "{rare}");
        let (holds, frequent) = error(1800.0);
        assert!(!holds && frequent > 0.02, "{frequent}");
        let long_restart =
            Machine { mtbf_s: 1e5, write_s: 1.0, restart_s: 9500.0, downtime_s: 0.0, overlap: 0.0 };
        assert!(!long_restart.is_first_order(long_restart.exact_period()), "4.7 % off");
    }

    #[test]
    fn two_levels_waste_what_benoits_formula_says_where_failures_are_rare() {
        let rare = Levels {
            mtbf_s: 5e6,
            slow_share: 0.1,
            fast_write_s: 10.0,
            slow_write_s: 100.0,
            fast_restart_s: 10.0,
            slow_restart_s: 100.0,
            downtime_s: 0.0,
        };
        let long_restart = Levels { fast_restart_s: 2e5, slow_restart_s: 4e5, ..rare };
        let rare_drains = Levels { slow_share: 0.01, slow_write_s: 4000.0, ..rare };
        let always = Levels { slow_share: 0.99, ..rare };
        for levels in [rare, long_restart, rare_drains, always] {
            let levels = [1.0, 0.1, 0.01].map(|rarer| Levels { mtbf_s: rarer * levels.mtbf_s, ..levels });
            for levels in levels.into_iter().filter(|levels| levels.fast_restart_s < 0.1 * levels.mtbf_s) {
                let schedule = levels.schedule(None).unwrap();
                let pattern = Pattern::of_levels(&levels, &schedule);
                let seen = simulate(&pattern, Failures::Exponential, RUNS, 3).unwrap();
                let off = (schedule.waste / seen.waste - 1.0).abs();
                assert!(off < 0.025 || !schedule.is_first_order, "{levels:?} {schedule:?} {seen:?}");
            }
        }
        assert!(rare.schedule(None).unwrap().is_first_order);
        assert!(!Levels { mtbf_s: 500.0, ..rare }.schedule(None).unwrap().is_first_order);
    }

    #[test]
    fn clustered_failures_waste_something_else_than_the_formula_says() {
        let machine = machine(3600.0, 0.0);
        let pattern = Pattern::of(&machine, machine.exact_period());
        let seen = simulate(&pattern, Failures::Weibull(0.6), RUNS, 4).unwrap();
        let waste = machine.waste(machine.exact_period());
        assert!((seen.waste - waste).abs() > 0.05 * waste, "{waste} {seen:?}");
        let same = simulate(&pattern, Failures::Weibull(1.0), RUNS, 4).unwrap();
        assert!((same.waste - waste).abs() < 0.02 * waste, "shape 1 is the exponential distribution");
    }

    #[test]
    fn the_same_seed_gives_the_same_waste_and_another_one_another() {
        let machine = machine(3600.0, 0.0);
        let of = |seed| simulate(&Pattern::of(&machine, 2000.0), Failures::Exponential, 100, seed);
        assert_eq!(simulate(&Pattern::of(&machine, 36.0 * 3600.0), Failures::Exponential, 100, 1), None);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
