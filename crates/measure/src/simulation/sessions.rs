//! Two sessions on simulated machines, compared by their contrasts: how often a difference is claimed that there is not, and how often
//! one that there is is found. From session to session each level moves as a whole, and contrasts by 1.5 %.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machine::{Machine, World, normal};
use super::trial::{RUN_S, SPACING_S, on_all_cpus, seed_of};
use crate::decide::Rules;
use crate::decide::sessions::{Block, ShiftVerdict, Tau, compare};
use crate::pattern::Rng;

/// Settings of a session; the first is the reference, and the third the one that changes.
const SETTINGS: usize = 4;
const CHANGES: usize = 2;
/// SD of a level from session to session, ln.
const LEVEL_SD: f64 = 0.10;
/// SD of a contrast from session to session, ln.
const CONTRAST_SD: f64 = 0.015;
/// Passes of each session.
const PASSES: [usize; 2] = [5, 12];

/// What came of pairs of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionsLine {
    /// Passes of each session.
    pub passes: usize,
    /// Part of the pairs of equal sessions in which any setting is called better or worse.
    pub any_when_equal: f64,
    /// The same where no session is counted as an effect.
    pub without_tau: f64,
    /// Part in which a setting that has become 1.1 times better is called so.
    pub found_at_1_1: f64,
    /// The same of 1.2 times.
    pub found_at_1_2: f64,
}

/// The figures of a session of these levels in so many passes, in which each setting's level moves by `sd` besides.
#[must_use]
pub fn session(levels: &[f64; SETTINGS], passes: usize, sd: f64, random: &mut Rng) -> Vec<Block> {
    let level = LEVEL_SD * normal(random);
    let levels: Vec<f64> = levels.iter().map(|l| l.ln() + level + sd * normal(random)).collect();
    let mut machine = Machine::new(World::Vm, &levels, random.next_u64());
    let all: Vec<usize> = (0..SETTINGS).collect();
    let pass = |_| {
        let start = machine.now();
        let order = machine.shuffled(&all);
        let block = order.into_iter().map(|i| (i, machine.run(i, RUN_S))).collect();
        machine.wait_until(start + SPACING_S);
        block
    };
    (0..passes).map(pass).collect()
}

/// Of two sessions, in the second of which one setting is `ratio` times better: whether any is called better or worse, and whether
/// that one is called better.
#[must_use]
pub fn called(ratio: f64, passes: usize, tau: &Tau, seed: u64) -> [bool; 2] {
    let mut random = Rng::new(seed);
    // A contrast is the difference of two levels.
    let sd = CONTRAST_SD / 2f64.sqrt();
    let first = session(&[1.0; SETTINGS], passes, sd, &mut random);
    let mut changed = [1.0; SETTINGS];
    changed[CHANGES] = ratio;
    let second = session(&changed, passes, sd, &mut random);
    let shifts = compare(SETTINGS, 0, [&first, &second], &Rules::default(), tau, SETTINGS - 1);
    let differs = |verdict| matches!(verdict, ShiftVerdict::Better | ShiftVerdict::Worse);
    [shifts.iter().any(|shift| differs(shift.verdict)), shifts[CHANGES].verdict == ShiftVerdict::Better]
}

/// Tries `repetitions` pairs of sessions of each length.
#[must_use]
pub fn tried(repetitions: usize, seed: u64) -> Vec<SessionsLine> {
    let none = Tau { sd: 0.0, freedom: None, sessions: 0 };
    let found = on_all_cpus(PASSES.len() * repetitions, |job| {
        let (at, seed) = (job / repetitions, seed_of(seed, job / repetitions, job % repetitions));
        let of = |ratio, tau| called(ratio, PASSES[at], tau, seed);
        let tau = Tau::default();
        [of(1.0, &tau)[0], of(1.0, &none)[0], of(1.1, &tau)[1], of(1.2, &tau)[1]]
    });
    let line = |(passes, found): (&usize, &[[bool; 4]])| {
        let part = |which: usize| found.iter().filter(|f| f[which]).count() as f64 / repetitions as f64;
        let [any_when_equal, without_tau, found_at_1_1, found_at_1_2] = [0, 1, 2, 3].map(part);
        SessionsLine { passes: *passes, any_when_equal, without_tau, found_at_1_1, found_at_1_2 }
    };
    PASSES.iter().zip(found.chunks(repetitions.max(1))).map(line).collect()
}
