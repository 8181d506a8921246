//! Which of several settings is best, decided block by block under noise.
//!
//! A *block* runs each living setting once, back to back, in random order. [`Race::block`] takes its figures;
//! after each block the race drops settings that cannot win, and ends in one of four answers ([`Answer`]):
//! *better* (one setting is left), *equivalent* (all that are left lie within [`Rules::equivalence`] of the
//! cheapest), *sufficient* (none that is left is better than the one that is recommended by more than that, which is all that a
//! recommendation needs; the race ends there only if it is told to) or, where the caller stops first, *undecided*. The answer is valid whenever the caller stops, and more
//! blocks may follow later.
//!
//! With k settings at the start, a of them alive, n blocks and y = ln figure (negated where lower is better):
//!
//! 1. *Neighbours.* In a block of more than eight runs the machine changes within the block, so each y is taken
//!    relative to the runs around it (Papadakis 1937).
//! 2. *Block weights.* A block whose residuals scatter beyond what chance explains gets a smaller weight.
//! 3. *Pairs.* The difference of two settings is the weighted mean of their differences within blocks.
//! 4. *Pooling.* With few blocks a pair's variance borrows from the other pairs (Smyth 2004).
//! 5. *Memory.* Where residuals of successive blocks resemble each other, variances grow by (1 + r)/(1 − r).
//! 6. *Critical value.* The t-mixture bound holds at all n together (Lai 1976; Wang and Ramdas 2024), which is
//!    what permits an analysis after every block.
//! 7. *Verdicts.* From four blocks on, setting j is dropped if some living i is better by more than
//!    c(α/(k − 1)) standard errors. The cheapest living setting is the *reference*; setting i gets a certificate
//!    of equivalence when |difference| + c(2α) standard errors ≤ ln(1 + equivalence). The reference is sufficient when difference +
//!    c(2α) standard errors is at most that for every other living setting; if it is not, the next
//!    one up to that with the highest estimate may be, with c(α), because it is chosen by its figures, and those between with c(α/k) against
//!    the latter.
//!
//! A caller may also *strike* a setting ([`Race::strike`]), for which the blocks need give no reason: it runs no further, and the
//! answer speaks of the others. k stays what it was at the start.
//!
//! Intervals belong to the verdicts: against the best by Edwards and Hsu (1983), where a dropped setting keeps
//! the interval that it was dropped with; equivalence by Berger and Hsu (1996), as it was when the
//! certificate was granted. So an interval never contradicts its verdict. Steps 1, 2 and 5 rest on
//! simulation.
//!
//! Figures of different sessions are compared by [`sessions`].
//!
//! The module is pure: the same blocks in the same order give the same answer, so a resumed race is a replay of
//! its blocks. After a block the analysis costs about 6a²n + 100an floating-point operations (eleven for each block of a
//! pair, and seven rounds each of neighbours and of fits with some seven for each figure): 1.6 million for 40 settings and
//! 120 blocks, if none of them was dropped.

pub(crate) mod analysis;
pub(crate) mod critical;
mod outcome;
mod race;
pub mod sessions;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use outcome::{Answer, Bounds, Contrast, Gain, MoreBlocks, Outcome, Standing};
pub use race::{Decision, Enough, Race};

use crate::stats::Direction;

/// The most settings of one race: time and memory grow with the square of their number.
pub const SETTINGS_MAX: usize = 1000;

/// Least time between the starts of two blocks of one race, unless the caller knows its machine better. The slow moments of
/// a shared machine last for seconds, and blocks within one of them say the same. Step 5 does not make up for all of it:
/// with half of this time two settings are called different too often (docs/methodology.md).
pub const SPACING: Duration = Duration::from_secs(5);

/// How a race is decided.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rules {
    /// Which way is good.
    pub direction: Direction,
    /// Settings that differ by at most this part of the reference are equivalent: 0.05 for ± 5 %. Above 0.
    pub equivalence: f64,
    /// The chance of any false *better* in a race, and of any false *equivalent*; strictly between 0 and 0.5.
    pub alpha: f64,
    /// Blocks before the first verdict, 2 or more.
    pub min_blocks: usize,
    /// Whether settings that cannot win are dropped and the race ends when it is decided. If not, every block
    /// has all settings, and [`Race::outcome`] draws the conclusions from all blocks at once: a fixed number of
    /// passes.
    pub stops: bool,
    /// Whether a race that stops also ends where a setting is *sufficient* and neither *better* nor *equivalent* is near. Who only
    /// asks which setting to use needs no more; who asks how two compare does.
    #[serde(default)]
    pub ends_at_sufficient: bool,
    /// The steps of the analysis that are applied; all, except to show what one is for.
    pub steps: Steps,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            direction: Direction::default(),
            equivalence: 0.05,
            alpha: 0.05,
            min_blocks: 4,
            stops: true,
            ends_at_sufficient: false,
            steps: Steps::default(),
        }
    }
}

/// The steps of the analysis that can be left out to show what each of them is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Steps {
    /// Figures of large blocks are taken relative to their neighbours.
    pub neighbours: bool,
    /// Unsteady blocks weigh less.
    pub block_weights: bool,
    /// Variances borrow from each other.
    pub pooling: bool,
    /// Variances grow with the resemblance of successive blocks.
    pub memory: bool,
    /// The critical value holds at all numbers of blocks together. If not, it is Student's t at each of them.
    pub every_block: bool,
}

impl Default for Steps {
    fn default() -> Self {
        Self { neighbours: true, block_weights: true, pooling: true, memory: true, every_block: true }
    }
}
