//! Measures a machine's ladder of memory and storage ([`measure::ladder`]).
//!
//! 1. `memory`: on a thread bound to one CPU, chases over growing sets, and what they show: caches and memory with
//!    latency, cycles and the papers' four figures; then memory of other NUMA nodes. [`chase`] and [`figures`] are the
//!    loops that are timed.
//! 2. `devices`: remote memory and drives, each run a [`run`](crate::run::run) with its warnings.
//! 3. What is found is put in order, and the gaps between neighbours are named.
//!
//! A wish to stop is heeded between two measurements, and what was measured before it is kept.

pub mod chase;
mod devices;
pub mod figures;
mod memory;
mod tell;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use measure::ladder::{self, Absent, Ladder, MEMORY_SHARE, Method, SCHEMA};
use measure::record::CpuCounts;
use measure::{Warning, WarningCode};
use storage::survey::Host;
use storage::sysfs::Sysfs;
use storage::{usage, words};

pub use devices::DeviceLevel;
pub use tell::Step;

use crate::lies::machine::{STEAL_FLOOR_MS, STEAL_LIMIT_ONE_CPU};
use crate::observe::cpu::{self, CpuTicks, Taken};
use crate::observe::host::{host_facts, node_of_cpu};
use crate::problem::Problem;
use memory::{Measured, Setup};
use tell::Teller;

/// How a ladder is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Time of one measurement of a device; one of memory takes [`MEMORY_SHARE`] of it.
    pub runtime: Duration,
    /// How often everything is measured.
    pub rounds: u32,
    /// The largest set of the chase, bytes; eight times the last cache where left out.
    pub largest_set: Option<u64>,
}

impl Default for Plan {
    fn default() -> Self {
        Self { runtime: Duration::from_secs(1), rounds: 5, largest_set: None }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// The ladder, as far as it was measured.
    pub ladder: Ladder,
    /// The devices that failed, by name.
    pub problems: Vec<(String, Problem)>,
}

/// Why there is no ladder.
#[derive(Debug, thiserror::Error)]
pub enum LadderError {
    /// There is not enough memory for the sets.
    #[error("memory for sets of up to {}", units::bytes(*.bytes))]
    Memory {
        /// Bytes of the largest set.
        bytes: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The thread that measures could not be started or bound to its CPU.
    #[error("measure on CPU {cpu}")]
    Thread {
        /// The CPU.
        cpu: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl LadderError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Memory { .. } => "ask for smaller sets: --max-set=64m",
            Self::Thread { .. } => "look at the CPUs that this process may use (taskset -p)",
        }
    }
}

/// Measures memory, then `devices`; `tell` hears what is being measured, from more than one thread.
///
/// # Errors
/// [`LadderError`]. A device that fails is no error, but stands in the outcome.
pub fn run(
    plan: &Plan,
    devices: Vec<DeviceLevel>,
    stop: &AtomicBool,
    tell: &(dyn Fn(&Step<'_>) + Sync),
) -> Result<Outcome, LadderError> {
    let started_unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos() as u64);
    let host = Host::read(&Sysfs::host());
    let setup = setup(plan, &host);
    let of_memory = memory::expected(&setup);
    let of_devices: f64 = devices.iter().map(|d| d.expected(plan.rounds, plan.runtime)).sum();
    let whole = of_memory + of_devices;
    let before = ticks();
    let measured = on_its_cpu(&setup, stop, tell, whole)?;
    let taken = cpu::counts(&before, &ticks(), &Taken::default());
    let teller = Teller::new(tell, of_memory, whole);
    let hz = measured.frequency_hz.map(|estimate| estimate.value);
    let mut ladder = Ladder {
        schema: SCHEMA.to_owned(),
        interrupted: false,
        started_unix_ns,
        host: host_facts(&host),
        method: Method {
            cpu: setup.cpu,
            frequency_hz: measured.frequency_hz,
            line_bytes: u32::try_from(memory::line_bytes(&setup.caches)).unwrap_or(u32::MAX),
            pages: measured.pages,
            vector_bytes: words::vector_bytes(),
            rounds: plan.rounds,
            runtime_ns: u64::try_from(plan.runtime.as_nanos()).unwrap_or(u64::MAX),
        },
        curve: measured.curve,
        levels: measured.levels,
        gaps: Vec::new(),
        widest: None,
        absent: absent_memory(&setup, measured.absent),
        warnings: warnings(&host, setup.cpu, &taken),
    };
    let mut problems = Vec::new();
    for device in devices::measure(devices, plan.rounds, plan.runtime, stop, &teller) {
        let (level, problem) = device.finish(hz);
        problems.extend(problem.map(|problem| (level.name.clone(), problem)));
        ladder.levels.push(level);
    }
    ladder.interrupted = stop.load(Ordering::Relaxed);
    ladder::sort(&mut ladder.levels);
    ladder.gaps = ladder::gaps(&ladder.levels);
    ladder.widest = ladder::widest(&ladder.gaps).cloned();
    Ok(Outcome { ladder, problems })
}

fn setup(plan: &Plan, host: &Host) -> Setup {
    // The last CPU, for interrupts and the kernel's own work prefer the first.
    let cpu = usage::allowed_cpus().last().copied().unwrap_or(0);
    let nodes = node_of_cpu(host);
    let node = nodes.get(&cpu).copied().filter(|_| host.numa_nodes.len() > 1);
    let with_memory = host.numa_nodes.iter().filter(|node| node.memory_bytes > 0).map(|node| node.node);
    let far = with_memory.filter(|other| node.is_some_and(|node| node != *other)).collect();
    let caches = Sysfs::host().caches(cpu);
    let available = host.memory_available_bytes.unwrap_or(host.memory_bytes);
    let largest = plan.largest_set.unwrap_or_else(|| memory::largest(&caches, available));
    Setup { cpu, caches, node, far, largest, time: plan.runtime / MEMORY_SHARE, rounds: plan.rounds }
}

/// Measures memory on a thread that is bound to the CPU, so that this one is not.
fn on_its_cpu(
    setup: &Setup,
    stop: &AtomicBool,
    tell: &(dyn Fn(&Step<'_>) + Sync),
    whole: f64,
) -> Result<Measured, LadderError> {
    let of_thread = |source| LadderError::Thread { cpu: setup.cpu, source };
    std::thread::scope(|scope| {
        let work = || {
            usage::bind_to_cpu(setup.cpu).map_err(of_thread)?;
            memory::measure(setup, stop, &Teller::new(tell, 0.0, whole))
                .map_err(|source| LadderError::Memory { bytes: setup.largest, source })
        };
        let thread = std::thread::Builder::new().name("ladder".to_owned());
        let running = thread.spawn_scoped(scope, work).map_err(of_thread)?;
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn ticks() -> CpuTicks {
    CpuTicks::parse(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
}

fn absent_memory(setup: &Setup, failed: Vec<(u32, io::ErrorKind, String)>) -> Vec<Absent> {
    let absent = |what: String, why: String| Absent { what, why };
    let mut all: Vec<Absent> =
        failed.into_iter().map(|(node, _, why)| absent(format!("memory of node {node}"), why)).collect();
    if setup.far.is_empty() {
        let why = "this machine has one NUMA node, or shows one";
        all.push(absent("memory of another node".into(), why.into()));
    }
    if setup.caches.is_empty() {
        let why = "the kernel tells of none; levels are counted as the chase shows them";
        all.push(absent("sizes of caches".into(), why.into()));
    }
    all
}

/// What bears on the figures of memory.
fn warnings(host: &Host, cpu: u32, taken: &[CpuCounts]) -> Vec<Warning> {
    let mut all = Vec::new();
    if let Some(kind) = &host.virtualization {
        let message = format!("a {kind} guest: caches may be shared with others, and CPU time taken away");
        all.push(Warning::new(WarningCode::Virtual, message));
    }
    if let Some(governor) = host_facts(host).governor.filter(|governor| governor != "performance") {
        let message = format!("the frequency governor is {governor}");
        all.push(Warning::new(WarningCode::Governor, message));
    }
    if let Some(counts) = taken.iter().find(|counts| counts.cpu == cpu) {
        let time = counts.user_ms + counts.system_ms + counts.irq_ms + counts.idle_ms + counts.steal_ms;
        if counts.steal_ms >= STEAL_FLOOR_MS && counts.steal_ms as f64 >= STEAL_LIMIT_ONE_CPU * time as f64 {
            let message = format!(
                "{} ms of {time} ms of CPU {cpu} were stolen while memory was measured (limit {})",
                counts.steal_ms,
                units::percent(STEAL_LIMIT_ONE_CPU)
            );
            all.push(Warning::new(WarningCode::Steal, message));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use storage::survey::NumaNode;

    #[test]
    fn what_bears_on_memory_is_said() {
        let host = Host {
            virtualization: Some("kvm".into()),
            governors: vec!["powersave".into()],
            ..Host::default()
        };
        let stolen = CpuCounts { cpu: 3, user_ms: 900, steal_ms: 100, ..CpuCounts::default() };
        let codes = |cpu, counts: &[CpuCounts]| -> Vec<WarningCode> {
            warnings(&host, cpu, counts).iter().map(|w| w.code).collect()
        };
        let quiet = [WarningCode::Virtual, WarningCode::Governor];
        assert_eq!(codes(3, std::slice::from_ref(&stolen))[..2], quiet);
        assert_eq!(codes(3, std::slice::from_ref(&stolen))[2], WarningCode::Steal);
        assert_eq!(codes(1, std::slice::from_ref(&stolen)), quiet);
        assert_eq!(codes(3, &[CpuCounts { steal_ms: 10, ..stolen }]), quiet);
        assert_eq!(warnings(&Host::default(), 0, &[]), []);
    }

    #[test]
    fn other_nodes_with_memory_are_far_and_one_node_is_said_to_be_all() {
        let cpu = usage::allowed_cpus().last().copied().unwrap_or(0).to_string();
        let node = |node, cpus: &str, memory_bytes| NumaNode { node, cpus: cpus.into(), memory_bytes };
        let nodes = vec![node(0, &cpu, 1 << 30), node(1, "", 1 << 30), node(2, "", 0)];
        let host = Host { numa_nodes: nodes, memory_bytes: 1 << 30, ..Host::default() };
        let two = setup(&Plan::default(), &host);
        assert_eq!((two.node, two.far.as_slice()), (Some(0), &[1][..]));
        let one = setup(&Plan::default(), &Host { numa_nodes: vec![node(0, &cpu, 1)], ..host });
        assert_eq!((one.node, one.far.len()), (None, 0));
        assert!(absent_memory(&one, vec![]).iter().any(|absent| absent.what == "memory of another node"));
    }
}
