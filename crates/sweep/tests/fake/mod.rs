//! A target in memory: figures that follow from the workload and a seed, and faults on order.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use measure::record::{
    DirectionCounts, EngineFacts, HostFacts, JobCounts, ProcessCounts, SCHEMA, TargetFacts,
};
use measure::{RunRecord, Target, TargetError, UnansweredRequest, Warning, WarningCode, Workload};
use sweep::board::Board;
use sweep::model::Point;
use sweep::plan::{Plan, PlannedRun, SplitMix64};
use sweep::run::{Identity, TargetFactory};
use sweep::store::{Machine, Store};

/// What a fake does when it is asked for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    Work,
    Fail,
    Misfit,
    Refuse,
    Interrupt,
    Hang,
    /// It works under this scheduler.
    Scheduler(&'static str),
    Void(WarningCode),
}

/// What all targets of a fake factory share.
#[derive(Debug, Default)]
pub struct World {
    /// Names of the workloads in the order in which they were asked for.
    pub asked: Vec<String>,
    /// Seeds of their offsets.
    pub seeds: Vec<u64>,
    /// What to do with the next runs of a point, by workload name; `Work` once the list is empty.
    pub script: BTreeMap<String, Vec<Behaviour>>,
    /// Behaviour of every run of these points.
    pub always: BTreeMap<String, Behaviour>,
    /// How often targets were opened.
    pub opened: usize,
    /// Factor on all figures.
    pub speed: f64,
    /// A further factor on the figures of these points, by workload name.
    pub speed_of: BTreeMap<String, f64>,
}

/// Opens fake targets.
#[derive(Clone)]
pub struct Fakes {
    pub world: Arc<Mutex<World>>,
    /// How long a run takes.
    pub delay: Duration,
    /// Set after this many runs, if any.
    pub stop_after: Option<(usize, Arc<AtomicBool>)>,
}

impl Fakes {
    pub fn new() -> Self {
        let world = World { speed: 1.0, ..World::default() };
        Self { world: Arc::new(Mutex::new(world)), delay: Duration::ZERO, stop_after: None }
    }

    pub fn always(self, point: &str, behaviour: Behaviour) -> Self {
        self.world.lock().unwrap().always.insert(point.into(), behaviour);
        self
    }

    pub fn script(self, point: &str, behaviours: &[Behaviour]) -> Self {
        self.world.lock().unwrap().script.insert(point.into(), behaviours.to_vec());
        self
    }

    pub fn asked(&self) -> Vec<String> {
        self.world.lock().unwrap().asked.clone()
    }
}

impl TargetFactory for Fakes {
    fn open(&mut self, spec: &str, _: &Point) -> Result<Box<dyn Target>, TargetError> {
        self.world.lock().unwrap().opened += 1;
        let facts = TargetFacts {
            spec: spec.into(),
            kind: "memory".into(),
            size_bytes: 1 << 30,
            ..TargetFacts::default()
        };
        Ok(Box::new(Fake { fakes: self.clone(), facts }))
    }
}

struct Fake {
    fakes: Fakes,
    facts: TargetFacts,
}

impl Target for Fake {
    fn facts(&self) -> &TargetFacts {
        &self.facts
    }

    fn run(&mut self, workload: &Workload) -> Result<RunRecord, TargetError> {
        std::thread::sleep(self.fakes.delay);
        let mut world = self.fakes.world.lock().unwrap();
        world.asked.push(workload.name.clone());
        world.seeds.push(workload.randseed);
        if let Some((after, stop)) = &self.fakes.stop_after {
            stop.store(world.asked.len() >= *after, Ordering::Relaxed);
        }
        let scripted = world.script.get_mut(&workload.name).filter(|s| !s.is_empty()).map(|s| s.remove(0));
        let behaviour =
            scripted.or_else(|| world.always.get(&workload.name).copied()).unwrap_or(Behaviour::Work);
        let speed = world.speed * world.speed_of.get(&workload.name).unwrap_or(&1.0);
        let mut record = record(workload, &self.facts, speed);
        match behaviour {
            Behaviour::Work => Ok(record),
            Behaviour::Fail => Err(TargetError::Failed("read at 4096: EIO".into())),
            Behaviour::Misfit => Err(TargetError::Invalid("bs=3 is no multiple of 512".into())),
            Behaviour::Refuse => Err(TargetError::Refused("/dev/vda is mounted on /".into())),
            Behaviour::Interrupt => Err(TargetError::Interrupted),
            Behaviour::Hang => {
                let request = UnansweredRequest {
                    operation: Some("read".into()),
                    target: "/dev/vda".into(),
                    offset: Some(4096),
                    seconds: 1.0,
                };
                let source = "/dev/vda has not answered a request for 1 s".into();
                Err(TargetError::Unanswered { request: Box::new(request), source })
            }
            Behaviour::Scheduler(scheduler) => {
                record.layout.insert("scheduler".into(), scheduler.into());
                Ok(record)
            }
            Behaviour::Void(code) => {
                record.warnings.push(Warning::new(code, "planted"));
                Ok(record)
            }
        }
    }
}

/// A record whose figures follow from the workload: depth helps up to 64, and one percent of noise.
pub fn record(workload: &Workload, facts: &TargetFacts, speed: f64) -> RunRecord {
    let mut random = SplitMix64::new(workload.randseed);
    let interval_ns = 500_000_000;
    let noise = 0.99 + 0.02 * (random.below(1000) as f64 / 1000.0);
    let ios = (10_000.0 * f64::from(workload.iodepth.min(64)).sqrt() * noise * speed) as u64 + 1;
    let mut read = DirectionCounts { bytes: ios * workload.max_bs(), ios, ..DirectionCounts::default() };
    for _ in 0..20 {
        read.latency.record_n(80_000 + random.below(40_000), ios / 20);
    }
    RunRecord {
        workload: workload.clone(),
        target: facts.clone(),
        layout: BTreeMap::from([("scheduler".into(), "none".into())]),
        host: host(),
        engine: EngineFacts { used: "memory".into(), ..EngineFacts::default() },
        started_unix_ns: sweep::store::now_unix_ns(),
        interval_ns,
        jobs: vec![JobCounts { bytes: read.bytes, ios, interval_ns, ..JobCounts::default() }],
        read,
        warnings: vec![Warning::new(WarningCode::ClosedLoop, "each request waited for an earlier one")],
        ..empty_record()
    }
}

/// A record of nothing, read as data: fields that records gain are optional there.
fn empty_record() -> RunRecord {
    let nothing = serde_json::to_value(DirectionCounts::default()).unwrap();
    serde_json::from_value(serde_json::json!({
        "schema": SCHEMA, "workload": {}, "target": TargetFacts::default(), "layout": {}, "pass": 1,
        "host": HostFacts::default(), "engine": EngineFacts::default(), "started_unix_ns": 1,
        "interval_ns": 1, "ramp_ns": 0, "tail_ns": 0, "read": nothing, "write": nothing,
        "trim": nothing, "jobs": [], "samples": [], "drives": [], "cpus": [],
        "process": ProcessCounts::default(), "verified_blocks": 0, "warnings": [],
    }))
    .unwrap()
}

pub fn host() -> HostFacts {
    HostFacts {
        kernel: "6.1".into(),
        architecture: "x86_64".into(),
        cpu_model: "Model 1".into(),
        cpus: 8,
        numa_nodes: 1,
        memory_bytes: 16 << 30,
        ..HostFacts::default()
    }
}

pub fn identity() -> Identity {
    let machine = Machine { hostname: "node1".into(), host: host() };
    Identity { version: "0.1.0".into(), machine, allow_other_machine: false }
}

/// A small space: four depths, three passes, a control at the blocks' ends.
pub const LADDER: &str = "
[sweep]
name = 'ladder'
protocol = 'dash'
passes = 3
seed = 7
runtime = '0.01s'
control = { iodepth = 4 }
control_every = 3
[space]
iodepth = [1, 4, 16, 64]
";

/// Checks that each block, and each choice of a construction, follows from what was stored before it.
pub fn check_that_blocks_follow_from_what_was_stored(store: &Store) {
    let (plan, runs, cut) = (store.plan().unwrap(), store.runs().unwrap(), store.cut().unwrap());
    let mut from = 0;
    while from < plan.runs.len() {
        let of = |run: &PlannedRun| {
            (
                plan.points[run.point as usize].construction(),
                run.pass,
                plan.points[run.point as usize].workload.rw,
            )
        };
        let block: Vec<PlannedRun> =
            plan.runs[from..].iter().take_while(|run| of(run) == of(&plan.runs[from])).copied().collect();
        let before = block[0].position;
        let earlier = Plan { runs: plan.runs[..from].to_vec(), ..plan.clone() };
        let stored: Vec<_> = runs.iter().filter(|run| run.position < before).cloned().collect();
        let cut_before = cut.iter().filter(|run| run.position < before).copied().collect();
        let board = Board::new(&earlier, &[1], None, &stored, &cut_before);
        let stage = board.stage(0, &BTreeSet::new()).expect("a block was owed");
        let entry = board.stages[stage].entries.iter().find(|e| e.contest.members.contains(&block[0].point));
        let mut expected: Vec<u32> =
            entry.expect("the construction is the one that was chosen").alive().collect();
        let mut found: Vec<u32> = block.iter().map(|run| run.point).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "block at {before}");
        from += block.len();
    }
}
