//! What a sweep measures: scratch files that are laid for it, and what it was told to measure.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::ErrorClass;
use bench::problem::Problem;
use bench::scratch::{self, Scratch, ScratchError, ScratchSize};
use bench::target::{BenchTarget, History, TargetOptions};
use measure::{Target, TargetError};
use storage::device::{DeviceSpec, OpenOptions};
use sweep::model::{LAYOUT, Point, SIDE};
use sweep::plan::{Preparation, Prepare, units};
use sweep::run::TargetFactory;
use sweep::space::SIDES;
use sweep::store::Store;

use super::built::{Builder, BuiltTarget};
use super::context::SessionContext;
use super::foreign::{self, Binary, ForeignTarget};
use super::kinds::{self, Kind};
use super::prepare;
use super::watch;
use crate::failure::Failure;
use crate::output;

/// All targets of a sweep. Scratch files vanish with it.
#[derive(Debug)]
pub struct Targets {
    options: TargetOptions,
    scratch: BTreeMap<String, Scratch>,
    /// What is built, where anything is.
    builder: Option<Rc<RefCell<Builder>>>,
    /// What is done to the others before their first run, by spec.
    preparations: BTreeMap<String, Preparation>,
    /// What was done to those that keep it while they are closed.
    histories: BTreeMap<String, History>,
    stop: Arc<AtomicBool>,
    speaker: watch::Speaker,
    /// Programs that measure sides of the sweep.
    binaries: BTreeMap<String, (Binary, File)>,
    /// For people, a line for each scratch file: how large it is and why.
    pub said: String,
}

impl Targets {
    /// Lays what is to be laid for the points. The sizes are kept with the results, so that a resumed sweep
    /// measures files of the same size.
    pub fn prepare(points: &[Point], store: &mut Store, place: &SessionContext<'_>) -> Result<Self, Failure> {
        let mut targets = Self {
            options: TargetOptions {
                destroy: place.permits.destroy.clone(),
                allow_unwritten: place.permits.allow_unwritten,
                // A raw device is given as it is; W-REPEATED-DATA says what was read.
                refuse_zeros: false,
                stop: Some(Arc::clone(place.stop)),
            },
            scratch: BTreeMap::new(),
            builder: Builder::prepare(points, store, place)?.map(|builder| Rc::new(RefCell::new(builder))),
            preparations: preparations(points, store.meta()?.prepare),
            histories: BTreeMap::new(),
            stop: Arc::clone(place.stop),
            speaker: place.speaker.clone(),
            binaries: binaries(store)?,
            said: String::new(),
        };
        for spec in kinds::targets(points) {
            match kinds::kind(spec, place.here)? {
                Kind::Scratch(folder) => targets.lay_scratch(spec, &folder, points, store, place)?,
                Kind::Device(parsed) if !missing_files(&parsed).is_empty() => {
                    lay_files(&parsed, place.stop)?;
                    targets.try_out_preparing(spec)?;
                }
                Kind::Layout => {}
                Kind::Device(_) => {
                    targets.try_out_preparing(spec)?;
                    targets.try_out(spec, points)?;
                }
            }
        }
        Ok(targets)
    }

    /// What is built and stands.
    pub fn standing(&self) -> Option<String> {
        self.builder.as_ref()?.borrow().standing()
    }

    /// Takes down what was built. All targets must be closed.
    pub fn down(&mut self) -> Result<(), Failure> {
        self.builder.as_ref().map_or(Ok(()), |builder| builder.borrow_mut().down())
    }

    fn lay_scratch(
        &mut self,
        spec: &str,
        folder: &Path,
        points: &[Point],
        store: &mut Store,
        place: &SessionContext<'_>,
    ) -> Result<(), Failure> {
        let note = format!("scratch bytes: {spec}");
        let before = store.notes()?.get(&note).and_then(|text| text.parse::<u64>().ok());
        let size = match before.or_else(|| kinds::bytes_needed(points, spec)) {
            // Direct requests end on a block.
            Some(bytes) => ScratchSize::Bytes(bytes.next_multiple_of(4096)),
            None => ScratchSize::Auto,
        };
        let bar = watch::laying(folder, 0, output::is_watched());
        let told = |done: u64, of: u64| {
            bar.set_length(of);
            bar.set_position(done);
        };
        let laid = Scratch::lay(folder, size, place.stop, &told);
        bar.finish_and_clear();
        let scratch = laid.map_err(failure)?;
        if !scratch.is_direct() && points.iter().any(|p| p.target == spec && p.workload.direct) {
            return Err(Failure::invalid(format!("{}: its file system has no direct I/O", folder.display()))
                .hint("name another --target, or measure the page cache as well: direct = false under [base] of a space"));
        }
        let bytes = scratch.file().size();
        store.set_note(&note, &bytes.to_string())?;
        let rate = scratch.laid_bytes_per_s();
        self.said += &format!(
            "scratch file of {} in {}: {}; written throughout with random data at {}\n",
            units::bytes(bytes),
            folder.display(),
            if before.is_some() { "as before" } else { scratch.reason() },
            units::bandwidth(rate)
        );
        let meta = store.meta()?;
        let here: Vec<Point> = points.iter().filter(|point| point.target == spec).cloned().collect();
        let budget = meta.budget.map(|all| all.mul_f64(here.len() as f64 / points.len().max(1) as f64));
        let writing = super::plan::writing_time(&here, budget, meta.passes).as_secs_f64();
        if writing > 0.0 {
            // Blocks may find a faster setting than the laying, and pauses make the time shorter.
            let all = units::bytes((writing * rate) as u64);
            self.said += &format!("the runs that write put about {all} on it at that rate\n");
        }
        self.scratch.insert(spec.to_owned(), scratch);
        Ok(())
    }
}

/// The programs that measure sides, by side, each with the sweep's lock.
fn binaries(store: &Store) -> Result<BTreeMap<String, (Binary, File)>, Failure> {
    let notes = store.notes()?;
    let mut binaries = BTreeMap::new();
    for side in SIDES {
        let Some(note) = notes.get(&foreign::note(side)) else { continue };
        binaries.insert(side.to_owned(), (Binary::kept(side, note)?, store.lock()?));
    }
    Ok(binaries)
}

/// What is done to targets that are not built, by spec.
fn preparations(points: &[Point], prepare: Prepare) -> BTreeMap<String, Preparation> {
    let units = units(points.iter().filter(|point| point.layout.is_empty()));
    units
        .into_iter()
        .filter_map(|(spec, points)| Preparation::of(prepare, &points).map(|preparation| (spec, preparation)))
        .collect()
}

impl Targets {
    /// Refuses what is to be prepared and cannot be.
    fn try_out_preparing(&self, spec: &str) -> Result<(), Failure> {
        let Some(preparation) = self.preparations.get(spec) else { return Ok(()) };
        let parsed = DeviceSpec::parse(spec).map_err(Problem::from)?;
        prepare::try_out(BenchTarget::new(spec, self.options.clone())?, &parsed, preparation)
    }

    /// The target, in the state that the space asks for.
    fn prepared(&mut self, spec: &str, target: BenchTarget) -> Result<BenchTarget, TargetError> {
        let Some(preparation) = self.preparations.get(spec) else { return Ok(target) };
        if let Some(history) = self.histories.get(spec) {
            return Ok(target.with_history(history));
        }
        let mut target = target;
        prepare::run(&mut target, preparation, &self.stop, &self.speaker)
            .map_err(measure::TargetError::from)?;
        // What is written to memory is gone when it is closed.
        let keeps =
            |spec: DeviceSpec| !spec.leaves().iter().any(|leaf| matches!(leaf, DeviceSpec::Memory { .. }));
        if self.scratch.contains_key(spec) || DeviceSpec::parse(spec).is_ok_and(keeps) {
            self.histories.insert(spec.to_owned(), target.history());
        }
        Ok(target)
    }

    /// Opens a target in each way in which its points need it, and lets go again, so that a refusal or a
    /// misspelt name shows before the first run and not in the middle of the sweep. What fails in one way
    /// only is left to the runs: the other points can be measured.
    fn try_out(&self, spec: &str, points: &[Point]) -> Result<(), Failure> {
        // What there is of memory is made when it is opened.
        let parsed = DeviceSpec::parse(spec).map_err(Problem::from)?;
        if parsed.leaves().iter().any(|leaf| matches!(leaf, DeviceSpec::Memory { .. })) {
            return Ok(());
        }
        let mut ways: BTreeMap<(bool, bool), &Point> = BTreeMap::new();
        for point in points.iter().filter(|p| p.target == spec) {
            ways.entry((point.workload.direct, point.workload.rw.modifies())).or_insert(point);
        }
        let mut failures = Vec::new();
        for point in ways.values() {
            match BenchTarget::new(spec, self.options.clone()).and_then(|mut t| t.job(&point.workload)) {
                Err(problem) if problem.class() == ErrorClass::Refused => return Err(problem.into()),
                Err(problem) => failures.push(problem),
                Ok(_) => {}
            }
        }
        let none_works = failures.len() == ways.len();
        failures.into_iter().next().filter(|_| none_works).map_or(Ok(()), |problem| Err(problem.into()))
    }
}

impl TargetFactory for Targets {
    fn open(&mut self, spec: &str, point: &Point) -> Result<Box<dyn Target>, TargetError> {
        if let (LAYOUT, Some(builder)) = (spec, &self.builder) {
            return Ok(Box::new(BuiltTarget::open(builder, point)?));
        }
        let options = self.options.clone();
        if let Some((binary, lock)) = point.settings.get(SIDE).and_then(|side| self.binaries.get(side)) {
            let lock = lock.try_clone().map_err(|error| TargetError::Failed(Box::new(error)))?;
            let target = BenchTarget::new(spec, options.clone());
            let facts = target.map_err(|p| TargetError::Invalid(Box::new(p)))?.facts().clone();
            return Ok(Box::new(ForeignTarget::new(binary, facts, options, lock)));
        }
        let target = match self.scratch.get(spec) {
            Some(scratch) => BenchTarget::scratch(Arc::clone(scratch.file()), options),
            None => BenchTarget::new(spec, options).map_err(|p| TargetError::Invalid(Box::new(p)))?,
        };
        Ok(Box::new(self.prepared(spec, target)?))
    }

    /// A target opens its device anew for each way in which a workload needs it, and knows what it wrote;
    /// so one serves all points. What is built, or measured by another program, serves the points that ask for the same.
    fn key(&self, point: &Point) -> String {
        let side = point.settings.get(SIDE).filter(|side| self.binaries.contains_key(*side));
        let layout = point.layout.iter().map(|(name, value)| format!("{name}={value} "));
        layout.chain(side.cloned()).collect()
    }
}

/// The `file:PATH?size=N` that a spec names and that are not there.
fn missing_files(spec: &DeviceSpec) -> Vec<PathBuf> {
    let missing = |leaf: &&DeviceSpec| match leaf {
        DeviceSpec::File { path, size: Some(_) } => std::fs::symlink_metadata(path).is_err(),
        _ => false,
    };
    let leaves = spec.leaves();
    leaves.iter().copied().filter(missing).filter_map(|leaf| Some(leaf.path()?.to_owned())).collect()
}

/// Makes the files of a spec that are not there and writes all of what it names, for it is going to be read.
/// They stay: they have names.
fn lay_files(spec: &DeviceSpec, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let made = missing_files(spec);
    let device = volume::open(spec, &OpenOptions { direct: false, ..OpenOptions::writing() });
    let device = device.map_err(Problem::from)?;
    let bar = watch::laying(&made[0], device.size(), output::is_watched());
    let laid = scratch::lay(&device, device.size(), stop, &|done, _| bar.set_position(done));
    bar.finish_and_clear();
    let stopped = stop.load(std::sync::atomic::Ordering::Relaxed);
    if laid.is_err() || stopped {
        // Half a file would be refused by whoever comes next.
        for path in &made {
            let _ = std::fs::remove_file(path);
        }
    }
    laid.map_err(Problem::from)?;
    if stopped { Err(interrupted()) } else { Ok(()) }
}

fn interrupted() -> Failure {
    Failure::interrupted("interrupted before the first run")
}

pub fn failure(error: ScratchError) -> Failure {
    match error {
        ScratchError::Open(error) => Problem::from(error).into(),
        ScratchError::Interrupted => interrupted(),
        ScratchError::TooFull { .. } => Failure::of(ErrorClass::Failed, &error)
            .hint("free some space, or name a directory elsewhere: --target DIR"),
        ScratchError::Write { .. } => {
            Failure::of(ErrorClass::Failed, &error).hint("name a directory elsewhere: --target DIR")
        }
    }
}

/// The directory in which the sweep's own scratch file goes.
pub fn current_directory() -> Result<PathBuf, Failure> {
    std::env::current_dir()
        .map_err(|error| Failure::failed(format!("cannot tell the current directory: {error}")))
}
