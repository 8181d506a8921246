//! What the coordinator tells the tasks, and what they answer, as JSON in the messages of [`ranks`].

use std::time::{Duration, Instant};

use ranks::{Ranks, RanksError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stage::names::PathText;

use crate::error::FlashioError;
use crate::record::Work;

/// What tasks are to do next.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// Multiply for so long, and say how long one multiplication takes ([`Calibrated`]).
    Calibrate {
        /// Rows and columns.
        matrix: u32,
        /// Milliseconds.
        for_ms: u64,
    },
    /// Compute and write checkpoint after checkpoint; before each the coordinator broadcasts its directory.
    Run {
        /// The work.
        work: Work,
        /// The leg.
        leg: u16,
        /// How many checkpoints.
        checkpoints: u32,
    },
    /// Compute until the end of the process.
    Compute {
        /// The work.
        work: Work,
    },
    /// Read the task's file of a checkpoint and compare it; `compute` an iteration after that ([`Restored`]).
    Restore {
        /// The work.
        work: Work,
        /// The leg.
        leg: u16,
        /// The checkpoint.
        step: u32,
        /// Its directory.
        directory: PathText,
        /// Compute an iteration.
        compute: bool,
    },
    /// Read the file and do nothing with it ([`Restored`]).
    Read {
        /// The work.
        work: Work,
        /// The checkpoint's directory.
        directory: PathText,
    },
    /// End.
    End,
}

/// What a calibration found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Calibrated {
    /// Time of one multiplication, nanoseconds.
    pub one_ns: u64,
}

/// What a task did up to the end of its write of a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
pub struct Written {
    /// Time of computing, seconds.
    pub compute_s: f64,
    /// When its write began, by the task's clock.
    pub begun_ns: i64,
    /// When fsync(2) had returned.
    pub ended_ns: i64,
}

/// What became of reading.
#[derive(Debug, Serialize, Deserialize)]
pub struct Restored {
    /// When the first byte was asked for, by the task's clock.
    pub begun_ns: i64,
    /// When all bytes were read and compared.
    pub restored_ns: i64,
    /// When the iteration was done.
    pub done_ns: i64,
    /// Blocks that were compared.
    pub blocks: u64,
}

/// Further ahead than any run: a task waits for its next order, and ends with the coordinator.
pub fn far() -> Instant {
    Instant::now() + Duration::from_secs(365 * 86400)
}

/// From the coordinator, to all tasks.
pub fn tell(ranks: &mut Ranks, what: &impl Serialize, until: Instant) -> Result<(), RanksError> {
    ranks.broadcast(Some(&json(what)), until).map(drop)
}

/// At a task: what the coordinator says.
pub fn hear<T: DeserializeOwned>(ranks: &mut Ranks) -> Result<T, FlashioError> {
    let bytes = ranks.broadcast(None, far())?;
    serde_json::from_slice(&bytes).map_err(|_| ranks.fail("it does not understand the coordinator").into())
}

/// At a task: its answer.
pub fn answer(ranks: &mut Ranks, what: &impl Serialize) -> Result<(), RanksError> {
    ranks.gather(&json(what), far()).map(drop)
}

/// At the coordinator: the answers of all tasks, by number.
pub fn answers<T: DeserializeOwned>(ranks: &mut Ranks, until: Instant) -> Result<Vec<T>, FlashioError> {
    let all = ranks.gather(&[], until)?.unwrap_or_default();
    let read = |bytes: &Vec<u8>| serde_json::from_slice(bytes).ok();
    let read: Option<Vec<T>> = all.iter().skip(1).map(read).collect();
    read.ok_or_else(|| ranks.fail("the answer of a task is not understood").into())
}

fn json(what: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(what).expect("orders and answers have a JSON form")
}
