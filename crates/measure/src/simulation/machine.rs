//! Simulated machines: settings of known levels, measured under one of eight kinds of noise.
//!
//! *vm* is fitted to sequential reads among 709 short runs on a shared virtual machine with two CPUs: two states,
//! the slow one at 0.65 of the speed for 6 s in 24 s on average, which both last exponentially long, and a drift of
//! minutes. Differences of runs 0.3 s apart have an SD of 8 %, of runs more than 7 s apart 28 %; measured were 7 %
//! and 29 %.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pattern::Rng;

/// Time between two runs, seconds.
const OVERHEAD_S: f64 = 0.013;
/// Speed in the slow state of *vm* by that in the fast one.
const SLOW_SPEED: f64 = 0.65;
/// Mean length of the slow state, seconds.
const SLOW_S: f64 = 6.0;
/// Mean length of the fast state, seconds.
const FAST_S: f64 = 18.0;
/// By how much a setting of *vm+* is faster or slower in the slow state than the others, ln.
const REACTION: f64 = 0.05;
/// Mean time between bursts of *heavy*, seconds.
const CALM_S: f64 = 40.0;
/// Mean length of a burst, seconds.
const BURST_S: f64 = 2.0;
/// By how much the scatter grows in a burst.
const BURST_FACTOR: f64 = 4.0;
/// What *trend* loses in a block, ln, and the number of runs in which it loses all but 1/e of that.
const TREND: (f64, f64) = (0.15, 10.0);

/// A kind of noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum World {
    /// Independent normal figures with an SD of 2 %.
    Quiet,
    /// The same with 5 %.
    Normal,
    /// Normal figures whose SD goes from 2 % for the first setting to 9 % for the last.
    Unequal,
    /// A drift of 15 % that is forgotten in 5 s, and an SD of 5 % for each run.
    Pass,
    /// A shared virtual machine: a fast and a slow state, a drift of 10 % that is forgotten in a minute, and 3.5 %
    /// for each run.
    Vm,
    /// The same, with settings that differ by another ± 5 % in the slow state.
    #[serde(rename = "vm+")]
    VmReacting,
    /// Student's t with 3 degrees of freedom, 5 % of runs far too slow, and bursts of scatter.
    Heavy,
    /// The scatter of *quiet* on a machine that rests between blocks and slows down within each: 1.4 % by its second run, 15 % in all.
    Trend,
}

impl World {
    /// Those that races are tried on.
    pub const ALL: [Self; 7] =
        [Self::Quiet, Self::Normal, Self::Unequal, Self::Pass, Self::Vm, Self::VmReacting, Self::Heavy];
    /// Those that searches are tried on.
    pub const OF_SEARCHES: [Self; 8] = [
        Self::Quiet,
        Self::Normal,
        Self::Unequal,
        Self::Pass,
        Self::Vm,
        Self::VmReacting,
        Self::Heavy,
        Self::Trend,
    ];

    /// Its name in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Normal => "normal",
            Self::Unequal => "unequal",
            Self::Pass => "pass",
            Self::Vm => "vm",
            Self::VmReacting => "vm+",
            Self::Heavy => "heavy",
            Self::Trend => "trend",
        }
    }

    /// SD of the drift, ln, and the time in which it is forgotten to 1/e, seconds.
    fn drift(self) -> (f64, f64) {
        match self {
            Self::Pass => (0.15, 5.0),
            Self::Vm | Self::VmReacting => (0.10, 60.0),
            _ => (0.0, 1.0),
        }
    }

    /// SD of the figures of one setting in equal circumstances, ln.
    fn scatter(self, setting: usize, settings: usize) -> f64 {
        match self {
            Self::Quiet | Self::Trend => 0.02,
            Self::Normal | Self::Pass => 0.05,
            Self::Unequal => 0.02 + 0.07 * setting as f64 / (settings as f64 - 1.0).max(1.0),
            Self::Vm | Self::VmReacting => 0.035,
            Self::Heavy => 0.03,
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A machine on which settings of known levels can be measured, one run after the other.
#[derive(Debug, Clone)]
pub struct Machine {
    world: World,
    random: Rng,
    /// Level of each setting, ln.
    levels: Vec<f64>,
    /// What each setting gains in the slow state, ln.
    reactions: Vec<f64>,
    /// Seconds since the machine was made.
    now: f64,
    /// Whether it is in its slow state, or in a burst.
    is_disturbed: bool,
    /// When that ends.
    until: f64,
    drift: f64,
    drift_at: f64,
    /// Runs since the machine rested.
    runs: u32,
}

impl Machine {
    /// A machine of a world with settings of these levels, ln.
    #[must_use]
    pub fn new(world: World, levels: &[f64], seed: u64) -> Self {
        let mut random = Rng::new(seed);
        let reactions = levels.iter().map(|_| match world {
            World::VmReacting if random.unit() < 0.5 => REACTION,
            World::VmReacting => -REACTION,
            _ => 0.0,
        });
        let reactions = reactions.collect();
        let (disturbed_s, calm_s) = lengths(world);
        let is_disturbed = random.unit() < disturbed_s / (disturbed_s + calm_s);
        let until = random.exponential() * if is_disturbed { disturbed_s } else { calm_s };
        let drift = world.drift().0 * normal(&mut random);
        Self {
            world,
            random,
            levels: levels.to_vec(),
            reactions,
            now: 0.0,
            is_disturbed,
            until,
            drift,
            drift_at: 0.0,
            runs: 0,
        }
    }

    /// Lets the machine rest, as between two blocks.
    pub fn rest(&mut self) {
        self.runs = 0;
    }

    /// Seconds since the machine was made.
    #[must_use]
    pub fn now(&self) -> f64 {
        self.now
    }

    /// Lets time pass until `then`, seconds since the machine was made.
    pub fn wait_until(&mut self, then: f64) {
        if then > self.now {
            self.pass(then - self.now);
        }
    }

    /// The settings in random order.
    pub fn shuffled(&mut self, settings: &[usize]) -> Vec<usize> {
        let mut order = settings.to_vec();
        for last in (1..order.len()).rev() {
            order.swap(last, self.random.below(last as u64 + 1) as usize);
        }
        order
    }

    /// One run of `seconds`: its figure, which is the mean speed over its time.
    pub fn run(&mut self, setting: usize, seconds: f64) -> f64 {
        let disturbed = self.pass(seconds) / seconds;
        let scatter = self.world.scatter(setting, self.levels.len());
        let noise = scatter * normal(&mut self.random);
        let level = self.levels[setting];
        let (lost, runs) = TREND;
        let trend = lost * (-f64::from(self.runs) / runs).exp_m1();
        self.runs += 1;
        let figure = match self.world {
            World::Trend => (level + noise + trend).exp(),
            World::Quiet | World::Normal | World::Unequal => (level + noise).exp(),
            World::Pass => (level + noise + self.drift_now()).exp(),
            World::Vm | World::VmReacting => {
                // The reaction averages to nothing over time, so that the level is the truth.
                let mean_slow = SLOW_S / (SLOW_S + FAST_S);
                let reaction = self.reactions[setting];
                let slow = SLOW_SPEED * reaction.exp();
                (level + noise + self.drift_now() - reaction * mean_slow).exp()
                    * (1.0 - disturbed + disturbed * slow)
            }
            World::Heavy => {
                // Student's t: a normal deviate by the root of a mean of three squared ones.
                let squares: f64 = (0..3).map(|_| normal(&mut self.random).powi(2)).sum();
                let noise = noise / (squares / 3.0).sqrt() * (1.0 + disturbed * (BURST_FACTOR - 1.0));
                let is_outlier = self.random.unit() < 0.05;
                let lost = if is_outlier { 0.2 + 0.6 * self.random.unit() } else { 0.0 };
                (level + noise).exp() * (1.0 - lost)
            }
        };
        self.pass(OVERHEAD_S);
        figure
    }

    /// Moves the time on, and returns the seconds of it in which the machine was disturbed.
    fn pass(&mut self, seconds: f64) -> f64 {
        let (end, mut disturbed) = (self.now + seconds, 0.0);
        let (disturbed_s, calm_s) = lengths(self.world);
        while self.until < end {
            disturbed += if self.is_disturbed { self.until - self.now } else { 0.0 };
            self.now = self.until;
            self.is_disturbed = !self.is_disturbed;
            self.until += self.random.exponential() * if self.is_disturbed { disturbed_s } else { calm_s };
        }
        disturbed += if self.is_disturbed { end - self.now } else { 0.0 };
        self.now = end;
        disturbed
    }

    /// The drift at this time: an Ornstein-Uhlenbeck process.
    fn drift_now(&mut self) -> f64 {
        let (sd, forgotten_s) = self.world.drift();
        let kept = (-(self.now - self.drift_at) / forgotten_s).exp();
        self.drift = self.drift * kept + sd * (1.0 - kept * kept).sqrt() * normal(&mut self.random);
        self.drift_at = self.now;
        self.drift
    }
}

/// Mean lengths of the disturbed and the calm state, seconds.
fn lengths(world: World) -> (f64, f64) {
    match world {
        World::Heavy => (BURST_S, CALM_S),
        _ => (SLOW_S, FAST_S),
    }
}

/// A standard normal deviate (Box and Muller 1958).
pub(super) fn normal(random: &mut Rng) -> f64 {
    (2.0 * random.exponential()).sqrt() * (std::f64::consts::TAU * random.unit()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::describe::{mean, sample_sd};

    /// The SD of ln differences of runs of two equal settings that start `apart` seconds apart.
    fn sd_of_differences(world: World, apart: f64) -> f64 {
        let mut machine = Machine::new(world, &[0.0, 0.0], 7);
        let differences: Vec<f64> = (0..4_000)
            .map(|_| {
                let start = machine.now();
                let first = machine.run(0, 0.25).ln();
                machine.wait_until(start + apart);
                let second = machine.run(1, 0.25).ln();
                machine.wait_until(start + 60.0);
                first - second
            })
            .collect();
        sample_sd(&differences).unwrap()
    }

    #[test]
    fn the_virtual_machine_scatters_as_the_measured_one_did() {
        let (near, second, far) = (0.3, 1.0, 10.0);
        let sds = [near, second, far].map(|apart| sd_of_differences(World::Vm, apart));
        assert!((0.06..0.10).contains(&sds[0]), "{sds:?}");
        assert!((0.09..0.17).contains(&sds[1]), "{sds:?}");
        assert!((0.24..0.32).contains(&sds[2]), "{sds:?}");
        assert!((sd_of_differences(World::Normal, near) - 0.05 * 2f64.sqrt()).abs() < 0.004);
    }

    #[test]
    fn a_trend_slows_a_block_down_until_the_machine_rests() {
        let mut machine = Machine::new(World::Trend, &[0.0], 3);
        let mut mean_of = |place: usize| {
            let mut sum = 0.0;
            for _ in 0..400 {
                machine.rest();
                sum += (0..=place).map(|_| machine.run(0, 0.25).ln()).last().unwrap();
            }
            sum / 400.0
        };
        let [first, second, last] = [0, 1, 60].map(&mut mean_of);
        assert!(first.abs() < 0.004, "{first}");
        assert!((second + 0.0143).abs() < 0.004, "{second}");
        assert!((last + 0.15).abs() < 0.004, "{last}");
    }

    #[test]
    fn levels_are_the_truth_in_every_world() {
        for world in World::ALL {
            let mut machine = Machine::new(world, &[0.0, 0.2], 11);
            let differences: Vec<f64> = (0..6_000)
                .map(|_| {
                    let start = machine.now();
                    let order = machine.shuffled(&[0, 1]);
                    let mut figures = [0.0; 2];
                    order.into_iter().for_each(|setting| figures[setting] = machine.run(setting, 0.25).ln());
                    machine.wait_until(start + 8.0);
                    figures[1] - figures[0]
                })
                .collect();
            let difference = mean(&differences).unwrap();
            let error = sample_sd(&differences).unwrap() / (differences.len() as f64).sqrt();
            assert!((difference - 0.2).abs() < 4.5 * error, "{world}: {difference} ± {error}");
        }
    }
}
