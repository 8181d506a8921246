//! Targets that are built: arrays, file systems and settings below a point, made when its turn comes and taken
//! down at the end.
//!
//! The plan brings the points of one construction one after the other, so most steps only write settings. For each
//! point:
//!
//! 1. [`layout::Layouts::switch`] goes from what stands to what the point asks for, each change journalled;
//! 2. where something was built anew, data are laid: a file is written throughout, and of a raw target the region
//!    that is going to be read, if what lies there looks unwritten. Reading what was never written measures nothing.
//!    A volume over raw drives is laid drive by drive;
//!    Where the space asks for a state, the construction is brought into it: once, before its first run;
//! 3. the target is opened, and looked at before and after each run: where somebody changed a setting, uses a
//!    drive, or the array works in the background, the record is void (`W-SETTINGS-DRIFT`). The next run on it,
//!    which is the repetition, begins by making everything anew that differs.
//!
//! Whatever ends the session takes everything down: the last run, an error, a signal. What a killed process left is
//! in the journal, and the next session of the same sweep undoes it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::lies::blocks;
use bench::problem::Problem;
use bench::scratch;
use bench::target::{BenchTarget, History, TargetOptions};
use layout::system::{Host, Purpose, System};
use layout::{Availability, Built, LayoutError, LayoutSpec, Layouts, Permits};
use measure::precondition::Precondition;
use measure::record::{RunRecord, TargetFacts};
use measure::warning::{Warning, WarningCode};
use measure::{Target, TargetError, Workload};
use storage::device::{self, DeviceSpec, OpenOptions};
use sweep::model::Point;
use sweep::plan::{Preparation, Prepare, bytes_used, units};
use sweep::space::Space;
use sweep::store::Store;

use super::context::SessionContext;
use super::prepare;
use super::watch::{self, Speaker};
use crate::failure::Failure;
use crate::output;

/// Blocks that are drawn to tell whether a raw target was ever written.
const DRAWN: usize = 1024;
/// What each drive of a volume is laid beyond its share: shares are dealt in whole blocks and chunks.
const SLACK: u64 = 4 << 20;

/// The drives of a space that are not on this machine.
pub fn absent(space: &Space) -> Vec<String> {
    let drives = space.drives().into_iter();
    drives.filter(|drive| !Path::new(drive).exists()).map(str::to_owned).collect()
}

/// The space without what this machine cannot do, which is then named in it.
pub fn to_be_had(space: Space) -> Result<Space, Failure> {
    let drives: Vec<PathBuf> = space.drives().into_iter().map(PathBuf::from).collect();
    if drives.is_empty() {
        return Ok(space);
    }
    let available = layout::survey(&drives);
    Ok(space.without(|name, value| available.check(name, value).err())?)
}

/// What points ask for, as a layout.
fn spec_of(point: &Point) -> Result<LayoutSpec, LayoutError> {
    Ok(LayoutSpec::from_settings(&point.layout)?)
}

/// Checks that each point's settings make a layout, without looking at any drive.
///
/// # Errors
/// A [`Failure`] that names the first setting at fault.
pub fn check_layouts(space: &Space) -> Result<(), Failure> {
    let built = space.points.iter().filter(|point| !point.layout.is_empty());
    built.map(spec_of).try_for_each(|spec| spec.map(drop)).map_err(Failure::from)
}

/// All that is built in a session.
pub struct Builder {
    layouts: Layouts,
    options: TargetOptions,
    stop: Arc<AtomicBool>,
    /// Bytes that the points of each construction use, where all of them say so.
    needed: BTreeMap<String, Option<u64>>,
    /// What is done to each construction before its first run, where something is.
    preparations: BTreeMap<String, Preparation>,
    speaker: Speaker,
    /// The construction that stands with its data.
    laid: Option<Laid>,
}

/// What lies on a construction.
#[derive(Debug, Clone)]
struct Laid {
    construction: String,
    contents: &'static str,
    history: History,
}

/// What a record's layout says of the data below, under the name `contents`.
const LAID: &str = "laid for this sweep";
const AS_FOUND: &str = "as found";

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("layouts", &self.layouts).finish_non_exhaustive()
    }
}

impl Builder {
    /// Takes the machine for the layouts of these points, if they have any. Each drive is looked at before
    /// anything is made: in use, or with data that were not given up, it refuses the sweep as a whole.
    pub fn prepare(
        points: &[Point],
        store: &Store,
        place: &SessionContext<'_>,
    ) -> Result<Option<Self>, Failure> {
        let built: Vec<&Point> = points.iter().filter(|point| !point.layout.is_empty()).collect();
        if built.is_empty() {
            return Ok(None);
        }
        let specs: BTreeSet<String> = built
            .iter()
            .map(|p| spec_of(p).map(|s| s.to_string()))
            .collect::<Result<_, _>>()
            .map_err(Failure::from)?;
        let mut layouts = open(store, place)?;
        let prepare = store.meta()?.prepare;
        check_drives(&built, &specs, &place.permits.destroy, prepare)?;
        let speaker = place.speaker.clone();
        layouts.tell(move |words| speaker.say(words));
        let speaker = place.speaker.clone();
        let constructions = units(built.iter().copied());
        let preparations = constructions.iter().filter_map(|(name, points)| {
            Preparation::of(prepare, points).map(|preparation| (name.clone(), preparation))
        });
        Ok(Some(Self {
            layouts,
            options: TargetOptions {
                destroy: place.permits.destroy.clone(),
                allow_unwritten: place.permits.allow_unwritten,
                // A raw device is given as it is; W-REPEATED-DATA says what was read.
                refuse_zeros: false,
                stop: Some(Arc::clone(place.stop)),
            },
            stop: Arc::clone(place.stop),
            preparations: preparations.collect(),
            needed: constructions.into_iter().map(|(name, points)| (name, bytes_used(points))).collect(),
            speaker,
            laid: None,
        }))
    }

    /// What stands, as a spec.
    pub fn standing(&self) -> Option<String> {
        self.layouts.standing().map(|(spec, _)| spec.to_string())
    }

    /// Takes everything down; a word where something could not be.
    pub fn down(&mut self) -> Result<(), Failure> {
        self.layouts.down().map(drop).map_err(Failure::from)
    }

    /// Makes what the point asks for, with data on it, and opens it.
    fn make(&mut self, point: &Point) -> Result<(BenchTarget, Built), TargetError> {
        let spec = spec_of(point).map_err(layout_failed)?;
        let construction = point.construction().unwrap_or_default();
        let needed = self.needed.get(&construction).copied().flatten();
        let share = needed.map(|bytes| share(&spec, bytes));
        self.layouts.set_file_bytes(share);
        let stands =
            self.layouts.standing().is_some_and(|(now, _)| now.construction() == spec.construction());
        if !stands {
            self.laid = None;
        }
        let mut built = self.layouts.switch(&spec).map_err(layout_failed)?;
        let mut options = self.options.clone();
        // What was made just now is nobody's data.
        options.destroy.extend(built.layers.iter().cloned());
        let laid = match self.laid.take() {
            Some(laid) if laid.construction == construction => laid,
            _ => self.lay_and_prepare(construction, &spec, &built, share, &options)?,
        };
        built.facts.insert("contents".to_owned(), laid.contents.to_owned());
        let target = BenchTarget::new(&built.device_spec, options).map_err(TargetError::from)?;
        let target = target.with_history(&laid.history);
        self.laid = Some(laid);
        Ok((target, built))
    }

    /// Brings what stands into the state in which its runs are to find it.
    fn lay_and_prepare(
        &self,
        construction: String,
        spec: &LayoutSpec,
        built: &Built,
        share: Option<u64>,
        options: &TargetOptions,
    ) -> Result<Laid, TargetError> {
        let Some(preparation) = self.preparations.get(&construction) else {
            let contents = self.lay(spec, built, share, options)?;
            return Ok(Laid { construction, contents, history: History::default() });
        };
        // Files have to be there before they are prepared; a raw device that was purged is laid afterwards.
        let is_raw = built.files.is_empty();
        let mut contents = if is_raw { AS_FOUND } else { self.lay(spec, built, share, options)? };
        let target = BenchTarget::new(&built.device_spec, options.clone());
        let mut target = target.map_err(TargetError::from)?;
        prepare::run(&mut target, preparation, &self.stop, &self.speaker).map_err(TargetError::from)?;
        let history = target.history();
        // Let go, for a device has one writer.
        drop(target);
        if preparation.prepare.how != Precondition::None {
            contents = LAID;
        } else if is_raw {
            contents = self.lay(spec, built, share, options)?;
        }
        Ok(Laid { construction, contents, history })
    }

    /// Remembers what runs did to what stands.
    fn note(&mut self, history: History) {
        if let Some(laid) = &mut self.laid {
            laid.history = history;
        }
    }

    /// Lays data on what stands, where it is needed, and tells what is there then.
    fn lay(
        &self,
        spec: &LayoutSpec,
        built: &Built,
        share: Option<u64>,
        options: &TargetOptions,
    ) -> Result<&'static str, TargetError> {
        let mut contents = AS_FOUND;
        for file in &built.files {
            let file = DeviceSpec::File { path: file.clone(), size: Some(built.file_bytes) };
            self.lay_on(&file, built.file_bytes, options)?;
            contents = LAID;
        }
        if built.files.is_empty() {
            let nodes = if built.layers.is_empty() { &spec.drives } else { &built.layers };
            for node in nodes {
                let node = DeviceSpec::Path(node.clone());
                let bytes = share.unwrap_or(u64::MAX);
                if self.looks_unwritten(&node, bytes)? {
                    self.speaker.say(&format!("{node} was never written throughout; data are laid on it"));
                    self.lay_on(&node, bytes, options)?;
                    contents = LAID;
                }
            }
        }
        Ok(contents)
    }

    /// Whether blocks drawn from the first bytes of a raw device are zeros.
    fn looks_unwritten(&self, spec: &DeviceSpec, bytes: u64) -> Result<bool, TargetError> {
        let failed = |problem: Problem| TargetError::from(problem);
        let options = OpenOptions { allow_unwritten: true, ..OpenOptions::reading() };
        let device = device::open(spec, &options).map_err(|e| failed(e.into()))?;
        let drawn = blocks::sample(&*device, 0, bytes.min(device.size()), DRAWN, 1).map_err(|source| {
            failed(Problem::Look { device: spec.to_string(), operation: "read sample blocks", source })
        })?;
        Ok(drawn.zero > 0)
    }

    fn lay_on(&self, spec: &DeviceSpec, bytes: u64, options: &TargetOptions) -> Result<(), TargetError> {
        let open = OpenOptions { destroy: options.destroy.clone(), ..OpenOptions::writing() };
        let device = device::open(spec, &open).map_err(|e| TargetError::from(Problem::from(e)))?;
        let bytes = bytes.min(device.size());
        let bar = watch::laying(Path::new(&spec.to_string()), bytes, output::is_watched());
        let laid = scratch::lay(&device, bytes, &self.stop, &|done, _| bar.set_position(done));
        bar.finish_and_clear();
        laid.map_err(|e| TargetError::from(Problem::from(e)))?;
        if self.stop.load(Ordering::Relaxed) { Err(TargetError::Interrupted) } else { Ok(()) }
    }
}

/// Bytes of each file or drive, where all of them together are to hold `bytes`.
fn share(spec: &LayoutSpec, bytes: u64) -> u64 {
    use layout::spec::LayoutKind;
    match spec.kind {
        LayoutKind::Separate | LayoutKind::Stripe => {
            let each = bytes.div_ceil(spec.width() as u64) + spec.chunk_bytes().unwrap_or(0);
            each.next_multiple_of(SLACK) + SLACK
        }
        _ => bytes.next_multiple_of(4096),
    }
}

/// Takes the lock of the machine's layouts.
fn open(store: &Store, place: &SessionContext<'_>) -> Result<Layouts, Failure> {
    undo_remains(store, place.stop)?;
    let permits = Permits { destroy: place.permits.destroy.clone() };
    Layouts::open(&layout::state_dir(), permits, Arc::clone(place.stop).into()).map_err(Failure::from)
}

/// Undoes, and says, what the last session of this very sweep left when it was killed, be it in its last moment. What
/// another process left is its user's to look at. The store must be locked, so that the session is over.
pub fn undo_remains(store: &Store, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    if store.points()?.iter().all(|point| point.layout.is_empty()) {
        return Ok(());
    }
    let state = layout::state_dir();
    let Some(remains) = layout::standing(&state).map_err(Failure::from)? else { return Ok(()) };
    let is_own = store.sessions()?.last().is_some_and(|last| last.pid == remains.process);
    if remains.by_hand || !is_own {
        return Ok(());
    }
    let undone = layout::undo(&state, &Arc::clone(stop).into()).map_err(Failure::from)?;
    output::tell(&format!(
        "undone: {} changes that process {} had left when it ended\n",
        undone.undone.len(),
        remains.process
    ));
    Ok(())
}

/// Refuses, before anything is made, what could only be refused in the middle.
fn check_drives(
    built: &[&Point],
    specs: &BTreeSet<String>,
    destroy: &[PathBuf],
    prepare: Prepare,
) -> Result<(), Failure> {
    let mut drives: BTreeMap<PathBuf, Purpose> = BTreeMap::new();
    for text in specs {
        let spec = LayoutSpec::parse(text).map_err(|e| Failure::from(LayoutError::from(e)))?;
        let builds = spec.mounted_filesystem().is_some()
            || matches!(spec.kind, layout::spec::LayoutKind::MdRaid0 | layout::spec::LayoutKind::LvmStripe);
        let writes = !prepare.is_nothing() || built.iter().any(|point| point.workload.rw.modifies());
        for drive in &spec.drives {
            let purpose = drives.entry(drive.clone()).or_insert(Purpose::Settings);
            if builds || writes {
                *purpose = Purpose::Contents;
            }
        }
    }
    let all: Vec<PathBuf> = drives.keys().cloned().collect();
    if let Some(absent) = all.iter().find(|drive| !drive.exists()) {
        return Err(Failure::invalid(format!("drives={}: there is no such device", absent.display()))
            .hint("name the drives of this machine by --drives DEV,DEV…"));
    }
    let system = Host::default();
    for (drive, purpose) in &drives {
        system.check_free(drive, *purpose, destroy).map_err(|e| Failure::from(LayoutError::from(e)))?;
    }
    let available = Availability::of(&system, &all);
    for text in specs {
        let spec = LayoutSpec::parse(text).map_err(|e| Failure::from(LayoutError::from(e)))?;
        available.check_spec(&spec).map_err(Failure::from)?;
    }
    Ok(())
}

fn layout_failed(error: LayoutError) -> TargetError {
    TargetError::new(error.class(), Box::new(error))
}

/// The target of one layout.
#[derive(Debug)]
pub struct BuiltTarget {
    builder: Rc<RefCell<Builder>>,
    point: Point,
    /// None between a run that drifted and the next.
    open: Option<(BenchTarget, Built)>,
    facts: TargetFacts,
}

impl BuiltTarget {
    /// Makes and opens what the point asks for.
    pub fn open(builder: &Rc<RefCell<Builder>>, point: &Point) -> Result<Self, TargetError> {
        let open = builder.borrow_mut().make(point)?;
        let facts = open.0.facts().clone();
        Ok(Self { builder: Rc::clone(builder), point: point.clone(), open: Some(open), facts })
    }

    /// What differs from what was asked for, each in words.
    fn drifts(&self) -> Result<Vec<String>, TargetError> {
        let drifts = self.builder.borrow().layouts.check().map_err(layout_failed)?;
        Ok(drifts.iter().map(ToString::to_string).collect())
    }
}

impl Target for BuiltTarget {
    fn facts(&self) -> &TargetFacts {
        &self.facts
    }

    fn run(&mut self, workload: &Workload) -> Result<RunRecord, TargetError> {
        if self.open.is_none() {
            self.open = Some(self.builder.borrow_mut().make(&self.point)?);
        }
        let mut drifts = self.drifts()?;
        let (target, built) = self.open.as_mut().expect("it was opened just now");
        let result = target.run(workload);
        self.builder.borrow_mut().note(target.history());
        let mut record = result?;
        self.facts = target.facts().clone();
        record.layout.extend(built.facts.clone());
        for drift in self.drifts()? {
            if !drifts.contains(&drift) {
                drifts.push(drift);
            }
        }
        if !drifts.is_empty() {
            let message = format!("the layout is not what was asked for: {}", drifts.join("; "));
            record.warn(Warning::new(WarningCode::SettingsDrift, message));
            // Closed, so that whatever it takes to set things right can be done.
            self.open = None;
        }
        Ok(record)
    }
}
