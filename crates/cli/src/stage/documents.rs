//! The documents of `stage … --json`.

use schemars::JsonSchema;
use serde::Serialize;
use stage::job::Why;
use stage::names::PathText;
use stage::parts::PartFault;
use stage::{JobId, JobStatus};
use stage_service::doctor::Finding;
use stage_service::pools::{PoolStatus, Reservation};
use stage_service::protocol::ServerFacts;

/// `flashwright.stage-status/1`: jobs, as they are now.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StageStatus {
    /// `flashwright.stage-status/1`.
    pub schema: &'static str,
    /// The server that was asked; none where the work was done without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerFacts>,
    /// The jobs, the newest last.
    pub jobs: Vec<JobStatus>,
}

impl StageStatus {
    /// These jobs.
    pub fn new(server: Option<ServerFacts>, jobs: Vec<JobStatus>) -> Self {
        Self { schema: "flashwright.stage-status/1", server, jobs }
    }
}

/// `flashwright.stage-watch/1`: something that `stage watch` saw or did, a line each.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StageWatch {
    /// `flashwright.stage-watch/1`.
    pub schema: &'static str,
    /// `submitted`, `durable`, `already-there`, `failed`, `refused`, `note`.
    pub what: &'static str,
    /// The semaphore, relative to the directory that is watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<PathText>,
    /// Its jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobId>,
    /// Why it failed or was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Why>,
    /// What is worth knowing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// `flashwright.stage-verify/1`: what is stored, compared with what was written.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StageVerify {
    /// `flashwright.stage-verify/1`.
    pub schema: &'static str,
    /// What was read; of a set in an object store its URL without options.
    pub path: PathText,
    /// All of it is as it was written.
    pub right: bool,
    /// Files that were read.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// What differs or is missing.
    pub faults: Vec<Fault>,
    /// Names that the manifest does not know, relative to the directory.
    pub unknown: Vec<PathText>,
}

/// Something that is not as it was written.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Fault {
    /// The file, relative to what was verified; empty for itself.
    pub path: PathText,
    /// Where the part that differs begins, bytes, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// What is wrong with it.
    pub what: String,
}

/// `flashwright.stage-evict/1`: a fast copy that went.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StageEvict {
    /// `flashwright.stage-evict/1`.
    pub schema: &'static str,
    /// What went.
    pub path: PathText,
    /// The copy that stays; of one in an object store its URL.
    pub copy: PathText,
}

/// `flashwright.stage-sets/1`: checkpoints that many nodes write, as they are on a slow tier.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StageSets {
    /// `flashwright.stage-sets/1`.
    pub schema: &'static str,
    /// The sets, oldest first.
    pub sets: Vec<StageSet>,
}

/// A set.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StageSet {
    /// Its name.
    pub name: String,
    /// The step.
    pub step: u64,
    /// The launch that wrote it.
    pub run: String,
    /// Its parts; 0 if none is there.
    pub ranks: u32,
    /// Every part is durable, and its record is there.
    pub complete: bool,
    /// The parts that lack, by rank.
    pub faults: Vec<PartFault>,
}

/// `flashwright.stage-doctor/1`: what is stuck, and why.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StageDoctor {
    /// `flashwright.stage-doctor/1`.
    pub schema: &'static str,
    /// The server that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerFacts>,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
}

/// `flashwright.stage-pools/1`: pools and what is in them.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StagePools {
    /// `flashwright.stage-pools/1`.
    pub schema: &'static str,
    /// The pools, by name.
    pub pools: Vec<PoolStatus>,
}

/// `flashwright.stage-reservation/1`: room that has been reserved.
#[derive(Debug, Serialize, JsonSchema)]
pub struct StageReservation {
    /// `flashwright.stage-reservation/1`.
    pub schema: &'static str,
    /// The room.
    pub reservation: Reservation,
}
