//! `sweep --machine`: the targets of a sweep are layouts of a machine in virtual time.
//!
//! Settings that the machine does not have are left out of the space and said, as on a real machine; what no machine could have
//! is refused before the first run. Time is virtual: runs follow one another from [`sim::EPOCH_UNIX_NS`] on.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ::sim::{EPOCH_UNIX_NS, Layout, Machine, SimTarget, Stop, check_modelled};
use base::ErrorClass;
use layout::LayoutError;
use layout::spec::LayoutSpec;
use measure::record::{HostFacts, RunRecord, TargetFacts};
use measure::{Target, TargetError, Workload};
use sweep::model::{LAYOUT, Point, SCRATCH};
use sweep::run::{TargetFactory, Timer};
use sweep::space::Space;
use sweep::store::{self, RecordOf, Store, StoreError};
use xxhash_rust::xxh3::xxh3_128;

use super::ahead::{self, Ahead};
use super::kinds;
use crate::failure::Failure;
use crate::{evidence, machine};

/// Kept with the results: the machine's file with those of its bases in one text, so that the sweep goes on with the machine
/// that it began with.
const NOTE_MACHINE: &str = "simulated machine";

/// The space without what the machine lacks, and each layout tried.
pub fn space(space: Space, machine: &Machine) -> Result<Space, Failure> {
    let lacks = |name: &str, value: &str| {
        let mut layout = Layout::all(machine);
        match name {
            "scheduler" => layout.scheduler = Some(value.to_owned()),
            "filesystem" if value != base::Filesystem::RAW => {
                layout.filesystem = base::Filesystem::ALL.iter().copied().find(|fs| fs.word() == value);
            }
            "layout" => {
                layout.kind = base::LayoutKind::ALL.iter().copied().find(|kind| kind.word() == value)?
            }
            _ => return None,
        }
        layout.check(machine).err().map(|error| error.reason)
    };
    let space = space.without(lacks)?;
    for target in kinds::targets(&space.points) {
        if target != LAYOUT && target != SCRATCH {
            return Err(Failure::invalid(format!("--machine: the space has target={target}"))
                .hint("take target out of the space: the machine's drives are the target"));
        }
    }
    if !space.prepare.is_nothing() {
        return Err(Failure::invalid(
            "--machine: the space asks for drives to be prepared, which is not simulated",
        )
        .hint("take precondition and purge out of the space"));
    }
    for point in &space.points {
        layout_of(machine, point)?;
        check_modelled(&point.workload)?;
    }
    Ok(space)
}

fn layout_of(machine: &Machine, point: &Point) -> Result<Layout, Failure> {
    if point.layout.is_empty() {
        return Ok(Layout::all(machine));
    }
    machine::of_spec(machine, &LayoutSpec::from_settings(&point.layout).map_err(LayoutError::from)?)
}

/// What is kept with the results of a machine.
pub fn note(machine: &Machine) -> (String, String) {
    (NOTE_MACHINE.to_owned(), machine.text())
}

/// The machine that notes describe, if the results are simulated.
pub fn of_notes<'a>(
    notes: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> Result<Option<Machine>, Failure> {
    let note = notes.into_iter().find(|(key, _)| *key == NOTE_MACHINE);
    let kept = note.map(|(key, text)| Machine::parse(key, text)).transpose();
    kept.map_err(|error| {
        Failure::of(ErrorClass::Invalid, &error).hint("the results keep no machine; begin the sweep again")
    })
}

/// Whether results are of a simulated machine, whether or not its file is still there.
pub fn is_simulated(store: &Store) -> Result<bool, Failure> {
    Ok(store.notes()?.contains_key(NOTE_MACHINE))
}

/// The machine of results, if they are simulated.
pub fn of_store(store: &Store) -> Result<Option<Machine>, Failure> {
    of_notes(&store.notes()?)
}

/// What the results say of the machine on which they were made. The CPU's name ends in a digest of all keys: machines that differ
/// in one constant are unlike.
pub fn identity(machine: &Machine) -> store::Machine {
    let host = HostFacts {
        kernel: "virtual time".to_owned(),
        cpu_model: format!("simulated: {} ({:032x})", machine.name, xxh3_128(machine.text().as_bytes())),
        cpus: machine.host.cores,
        ..HostFacts::default()
    };
    store::Machine { hostname: format!("simulated: {}", machine.name), host }
}

/// The targets of a simulated sweep.
#[derive(Debug)]
pub struct SimulatedTargets {
    machine: Arc<Machine>,
    clock: Rc<Cell<u64>>,
    ahead: Rc<RefCell<Ahead>>,
    interrupt: Arc<AtomicBool>,
}

impl SimulatedTargets {
    /// Targets whose next run begins when the last one of the results has ended. `interrupt` ends a run in progress.
    pub fn new(machine: Machine, store: &Store, interrupt: &Arc<AtomicBool>) -> Result<Self, Failure> {
        let clock = Rc::new(Cell::new(end_of_last_run(store)?));
        let (machine, interrupt) = (Arc::new(machine), Arc::clone(interrupt));
        Ok(Self { machine, clock, ahead: Rc::default(), interrupt })
    }

    /// The clock of the runs: budgets count virtual time, and a pause costs none.
    pub fn timer(&self) -> VirtualTimer {
        VirtualTimer { clock: Rc::clone(&self.clock) }
    }
}

/// When the last run ended, its first and uncounted requests included.
fn end_of_last_run(store: &Store) -> Result<u64, StoreError> {
    let runs = store.runs()?.into_iter().map(|row| (row.started_unix_ns, RecordOf::Run(row.id)));
    let controls = store.controls()?.into_iter().map(|row| (row.started_unix_ns, RecordOf::Control(row.id)));
    let voided = store.voided()?.into_iter().map(|row| (row.started_unix_ns, RecordOf::Voided(row.id)));
    let last = runs.chain(controls).chain(voided).max_by_key(|(started, _)| *started);
    let Some((started, row)) = last else { return Ok(EPOCH_UNIX_NS) };
    Ok(started + store.record_of(row)?.total.elapsed_ns)
}

/// Virtual time as the clock of budgets and pauses.
#[derive(Debug)]
pub struct VirtualTimer {
    clock: Rc<Cell<u64>>,
}

impl Timer for VirtualTimer {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.get() - EPOCH_UNIX_NS)
    }

    fn wait(&self, pause: Duration, _stop: &AtomicBool) {
        self.clock.set(self.clock.get() + pause.as_nanos() as u64);
    }
}

impl TargetFactory for SimulatedTargets {
    fn open(&mut self, _spec: &str, point: &Point) -> Result<Box<dyn Target>, TargetError> {
        let invalid = |failure: Failure| TargetError::Invalid(failure.message().into());
        let layout = layout_of(&self.machine, point).map_err(invalid)?;
        let target = SimTarget::new(Arc::clone(&self.machine), layout.clone(), Stop::default())
            .map_err(|error| TargetError::Invalid(Box::new(error)))?;
        Ok(Box::new(Clocked {
            target: target.interrupted_by(Arc::clone(&self.interrupt)),
            clock: Rc::clone(&self.clock),
            ahead: Rc::clone(&self.ahead),
            key: self.key(point),
            machine: Arc::clone(&self.machine),
            layout,
            words: point.layout.clone(),
        }))
    }

    fn key(&self, point: &Point) -> String {
        point.layout.iter().map(|(name, value)| format!("{name}={value} ")).collect()
    }

    fn ahead(&mut self, next: &mut dyn Iterator<Item = (&Point, Workload)>) {
        // A layout that cannot be is told when its turn comes.
        let job =
            |(point, workload)| Some((self.key(point), layout_of(&self.machine, point).ok()?, workload));
        let jobs = next.filter_map(job).collect();
        let threads = ahead::threads(&self.machine);
        *self.ahead.borrow_mut() = Ahead::new(&self.machine, &self.interrupt, threads, jobs);
    }
}

/// A target on the clock of the sweep.
#[derive(Debug)]
struct Clocked {
    target: SimTarget,
    clock: Rc<Cell<u64>>,
    ahead: Rc<RefCell<Ahead>>,
    key: String,
    machine: Arc<Machine>,
    layout: Layout,
    /// The layout as the space has it.
    words: std::collections::BTreeMap<String, String>,
}

impl Target for Clocked {
    fn facts(&self) -> &TargetFacts {
        self.target.facts()
    }

    fn run(&mut self, workload: &Workload) -> Result<RunRecord, TargetError> {
        let computed = self.ahead.borrow_mut().take(&self.key, workload);
        let record = computed.unwrap_or_else(|| self.target.run(workload))?;
        let mut record = evidence::judged(&self.machine, &self.layout, record);
        record.started_unix_ns = self.clock.get();
        self.clock.set(record.started_unix_ns + record.total.elapsed_ns);
        record.layout.extend(self.words.clone());
        Ok(record)
    }
}
