//! What stands in a results file besides points and runs.

use std::time::Duration;

use measure::record::HostFacts;
use serde::{Deserialize, Serialize};

use crate::plan::{Margin, Order, PlannedRun, Prepare, Protocol, StepKind};

/// What a sweep is, as it was when it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Name of the sweep, from its space.
    pub name: String,
    /// The space as it was written, TOML.
    pub space: String,
    /// When the file was made, nanoseconds since 1970-01-01 UTC.
    pub created_unix_ns: u64,
    /// Version of the program that began it.
    pub version: String,
    /// What the orders were drawn from.
    pub seed: u64,
    /// Blocks: how often each point is to run; 0 for as often as a decision takes.
    pub passes: u32,
    /// The order inside a block.
    pub order: Order,
    /// Whether the first pass of each point is set aside, as the papers do.
    pub discard_first: bool,
    /// The point repeated as a control, if one is.
    pub control: Option<u32>,
    /// Runs after which it is repeated; 0 for at the blocks' ends only.
    pub control_every: u32,
    /// Failed runs in a row after which a session gives up.
    pub max_consecutive_failures: u32,
    /// Digest of the whole plan, [`crate::plan::Plan::digest`]; the same in all shards.
    pub plan_digest: String,
    /// Machines that share the sweep, 1 or more.
    pub shards: u32,
    /// The shards that the file holds, ascending; all of them in a whole sweep.
    pub parts: Vec<u32>,
    /// What is done to targets before their first run.
    pub prepare: Prepare,
    /// How its runs are chosen.
    pub protocol: Protocol,
    /// The longest that it measures, all its sessions together; none where `passes` says how often.
    pub budget: Option<Duration>,
    /// Time between the starts of two blocks of one work, at least.
    pub spacing: Duration,
    /// How far apart settings may lie that count as equally good.
    pub equivalence: Margin,
    /// Where it began.
    pub machine: Machine,
}

impl Meta {
    /// `2/4`, `1,3/4`; none where the file holds the whole sweep.
    #[must_use]
    pub fn part(&self) -> Option<String> {
        if self.parts.len() as u64 == u64::from(self.shards) {
            return None;
        }
        let parts: Vec<String> = self.parts.iter().map(u32::to_string).collect();
        Some(format!("{}/{}", parts.join(","), self.shards))
    }
}

/// A machine, as far as figures depend on it and a program can see.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name in the network. Nodes of one model differ by nothing else.
    pub hostname: String,
    /// What it is made of.
    pub host: HostFacts,
}

impl Machine {
    /// What makes `now` another machine than this one, each as `name: then → now`; empty where it is
    /// the same. Memory may differ by a sixteenth, for what firmware and kernel keep varies between
    /// boots. Kernel and governor are settings of a machine and do not make it another.
    #[must_use]
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let mut all = Vec::new();
        if self.hostname != now.hostname {
            all.push(format!("host name: {} → {}", self.hostname, now.hostname));
        }
        all.extend(self.other_make(now));
        all
    }

    /// What makes `now` a machine whose figures cannot stand beside this one's, each as `name: this → now`: all
    /// but the name, and what is set on it.
    #[must_use]
    pub fn unlike(&self, now: &Self) -> Vec<String> {
        let mut all = self.other_make(now);
        let word = |v: &Option<String>| v.clone().unwrap_or_else(|| "none".into());
        let (then, at_present) = (word(&self.host.virtualization), word(&now.host.virtualization));
        if then != at_present {
            all.push(format!("hypervisor: {then} → {at_present}"));
        }
        all.extend(self.changes(now));
        all
    }

    fn other_make(&self, now: &Self) -> Vec<String> {
        let mut all = Vec::new();
        let mut compare = |name: &str, then: &dyn ToString, now: &dyn ToString| {
            let (then, now) = (then.to_string(), now.to_string());
            if then != now {
                all.push(format!("{name}: {then} → {now}"));
            }
        };
        compare("architecture", &self.host.architecture, &now.host.architecture);
        compare("CPU", &self.host.cpu_model, &now.host.cpu_model);
        compare("CPUs", &self.host.cpus, &now.host.cpus);
        compare("NUMA nodes", &self.host.numa_nodes, &now.host.numa_nodes);
        let (then, at_present) = (self.host.memory_bytes, now.host.memory_bytes);
        if then.abs_diff(at_present) > then.max(at_present) / 16 {
            compare("memory", &units::bytes(then), &units::bytes(at_present));
        }
        all
    }

    /// What changed on the same machine and bears on its figures: kernel and governor.
    #[must_use]
    pub fn changes(&self, now: &Self) -> Vec<String> {
        let mut all = Vec::new();
        if self.host.kernel != now.host.kernel {
            all.push(format!("kernel: {} → {}", self.host.kernel, now.host.kernel));
        }
        if self.host.governor != now.host.governor {
            let word = |g: &Option<String>| g.clone().unwrap_or_else(|| "none".into());
            all.push(format!("governor: {} → {}", word(&self.host.governor), word(&now.host.governor)));
        }
        all
    }
}

/// One start or resumption of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Row in `sessions`, from 1.
    pub id: i64,
    /// When it began, nanoseconds since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// When it ended; none where it runs, or was killed.
    pub ended_unix_ns: Option<u64>,
    /// How it ended: `complete`, `incomplete`, `interrupted`, `gave up`, `unanswered`, `refused`, `error`; none
    /// where it runs, or was killed.
    pub outcome: Option<String>,
    /// Process id.
    pub pid: u32,
    /// Version of the program.
    pub version: String,
    /// Where it ran.
    pub machine: Machine,
}

/// One attempt that gave no record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Row in `failures`.
    pub id: i64,
    /// Session in which it happened.
    pub session: i64,
    /// What was attempted.
    pub planned: PlannedRun,
    /// What it was for.
    pub kind: StepKind,
    /// When, nanoseconds since 1970-01-01 UTC.
    pub at_unix_ns: u64,
    /// The error with all its causes, outermost first.
    pub error: String,
}

/// Points and passes that are still owed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingPoint {
    /// [`crate::model::Point::id`].
    pub point: u32,
    /// The passes that have no run, ascending.
    pub passes: Vec<u32>,
}

/// How much of the plan has been measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completeness {
    /// Runs in the plan: points × passes. Under the protocol `blocks` those that were begun and are not cut.
    pub planned: u32,
    /// Runs in the file, void ones included.
    pub done: u32,
    /// Runs in the file from which no conclusion may be drawn.
    pub void: u32,
    /// Controls in the plan.
    pub controls_planned: u32,
    /// Controls in the file.
    pub controls_done: u32,
    /// The points that lack passes, by id.
    pub missing: Vec<MissingPoint>,
    /// Works that are still to be measured under the protocol `blocks`: not decided, and with budget left.
    pub open_works: u32,
}

impl Completeness {
    /// Whether every planned run is there, and every work decided or its budget used. Controls do not count: without
    /// them the figures stand, and only drift cannot be told.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.open_works == 0
    }
}
