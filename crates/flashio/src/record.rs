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
    /// Time in which the files of all tasks got their name durably, after the last was written.
    pub publish_s: f64,
    /// Where it is drained: time from the first byte written until it was durable on the slow tier and read back.
    pub durable_s: Option<f64>,
}

impl Checkpoint {
    /// How long each task could not compute: its own write, and the publishing.
    pub fn stalls(&self) -> impl Iterator<Item = f64> {
        self.tasks.iter().map(|task| task.write_s + self.publish_s)
    }

    /// The longest of them.
    #[must_use]
    pub fn stall_s(&self) -> f64 {
        self.stalls().fold(0.0, f64::max)
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

/// Tasks that were killed and started again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Restart {
    /// From the kill until every task ran again.
    pub started_s: f64,
    /// From the kill until every task had read and checked its part of the newest checkpoint.
    pub restored_s: f64,
    /// From the kill until the first iteration after it was done.
    pub first_step_s: f64,
    /// The time of the restoring alone: opening, reading, checking.
    pub restore_s: f64,
    /// The time of reading the same bytes with nothing else to do.
    pub read_s: f64,
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
    /// Time in which the application could not compute for writing.
    #[must_use]
    pub fn io_s(&self) -> f64 {
        self.checkpoints.iter().map(Checkpoint::stall_s).sum()
    }

    /// Time of computing of the slowest task in each interval, added up.
    #[must_use]
    pub fn compute_s(&self) -> f64 {
        let slowest =
            |checkpoint: &Checkpoint| checkpoint.tasks.iter().map(|task| task.compute_s).fold(0.0, f64::max);
        self.checkpoints.iter().map(slowest).sum()
    }
}
