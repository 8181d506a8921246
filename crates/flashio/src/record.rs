//! What was measured. Times are seconds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where checkpoints go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// To the slow tier.
    Slow,
    /// To the fast tier, drained to the slow one in the background.
    Drained,
    /// To the fast tier, and no further.
    Fast,
}

impl Way {
    /// All, from the cheapest to the dearest.
    pub const ALL: [Self; 3] = [Self::Slow, Self::Drained, Self::Fast];

    /// As a person reads it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Drained => "fast + drain",
            Self::Fast => "fast",
        }
    }
}

/// The work between two checkpoints, the same for every task and way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Work {
    /// Rows and columns of the matrices.
    pub matrix: u32,
    /// Multiplications of an iteration.
    pub multiplications: u32,
    /// Iterations between two checkpoints.
    pub every: u32,
    /// Bytes of a task's checkpoint.
    pub checkpoint_bytes: u64,
}

/// What a task did up to the end of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskTimes {
    /// Time of computing.
    pub compute_s: f64,
    /// Time from the first byte to the end of fsync(2).
    pub write_s: f64,
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// Its number, from 1.
    pub step: u32,
    /// Of each task, in order.
    pub tasks: Vec<TaskTimes>,
    /// Time from the first byte of any task to the end of the last task's fsync(2), on the coordinator's clock. Tasks that write one
    /// after the other make it longer than the longest of their own times.
    pub write_s: f64,
    /// Time from then until the files of all tasks had their name durably.
    pub publish_s: f64,
    /// Where it is drained: time from the first byte written until it was durable on the slow tier and read back.
    pub durable_s: Option<f64>,
}

impl Checkpoint {
    /// How long each task could not compute: its own write, and the publishing.
    pub fn stalls(&self) -> impl Iterator<Item = f64> {
        self.tasks.iter().map(|task| task.write_s + self.publish_s)
    }

    /// From the first byte of any task until the checkpoint was published.
    #[must_use]
    pub fn io_s(&self) -> f64 {
        self.write_s + self.publish_s
    }
}

/// What the drain of a leg did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drain {
    /// Bytes of checkpoints that it copied.
    pub bytes: u64,
    /// Bytes that it read back itself.
    pub verified_bytes: u64,
    /// Time in which there was something to drain.
    pub busy_s: f64,
    /// The most checkpoints that were waiting or being drained at once.
    pub most_behind: u32,
}

/// Restoring a checkpoint, and reading its bytes, one directly after the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RestorePair {
    /// Whether restoring came first.
    pub restore_first: bool,
    /// Time of restoring: finding, opening, reading, checking.
    pub restore_s: f64,
    /// Time of reading the same bytes with nothing else to do.
    pub read_s: f64,
}

/// Tasks that were killed and started again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Restart {
    /// From the kill until every task ran again.
    pub started_s: f64,
    /// From the kill until every task had read and checked its part of the newest checkpoint.
    pub restored_s: f64,
    /// From the kill until the first iteration after it was done.
    pub first_step_s: f64,
    /// Restoring and reading after that, in alternating order.
    pub pairs: Vec<RestorePair>,
}

impl Restart {
    /// Geometric means over the pairs: restoring, reading. Every order occurs as often, so that what drifts cancels out.
    #[must_use]
    pub fn means_s(&self) -> [f64; 2] {
        let mean = |of: fn(&RestorePair) -> f64| {
            let logarithms: f64 = self.pairs.iter().map(|pair| of(pair).ln()).sum();
            (logarithms / self.pairs.len() as f64).exp()
        };
        [mean(|pair| pair.restore_s), mean(|pair| pair.read_s)]
    }
}

/// One way, once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Leg {
    /// The block, from 0.
    pub block: u32,
    /// The way.
    pub way: Way,
    /// From the start of all tasks until the last checkpoint was published.
    pub run_s: f64,
    /// The checkpoints.
    pub checkpoints: Vec<Checkpoint>,
    /// Of the way that drains.
    pub drain: Option<Drain>,
    /// Bytes on the slow tier that were read back and compared after the leg.
    pub checked_bytes: u64,
    /// Of the way that drains.
    pub restart: Option<Restart>,
}

impl Leg {
    /// Time in which a checkpoint was being written and published: the spans of all checkpoints, added up. Bytes by this time are
    /// never more than the tier took.
    #[must_use]
    pub fn io_s(&self) -> f64 {
        self.checkpoints.iter().map(Checkpoint::io_s).sum()
    }

    /// Time of computing of the slowest task in each interval, added up.
    #[must_use]
    pub fn compute_s(&self) -> f64 {
        let slowest =
            |checkpoint: &Checkpoint| checkpoint.tasks.iter().map(|task| task.compute_s).fold(0.0, f64::max);
        self.checkpoints.iter().map(slowest).sum()
    }
}
