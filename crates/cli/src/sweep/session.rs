//! A session: from the results file to the report. Starting a sweep and going on with one differ in where the
//! results file comes from, and in nothing else.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ::sim::Machine;
use bench::observe::host::host_facts;
use storage::survey::Host;
use storage::sysfs::Sysfs;
use sweep::model::Point;
use sweep::run::{Ended, Identity, Outcome, RunError, Runner, begin};
use sweep::space::Space;
use sweep::store::{self, NOTE_DRIVES, NOTE_HERE, Store, StoreError, locate};

use super::args::{BeginningArgs, PermitArgs, ResumeArgs, RunArgs};
use super::context::SessionContext;
use super::simulated::SimulatedTargets;
use super::targets::{Targets, current_directory};
use super::watch::Watch;
use super::{built, kinds, outcome, plan, request, simulated};
use crate::failure::Failure;
use crate::machine;
use crate::{output, paint, signals};

/// Where a session works, and what it prints.
#[derive(Debug)]
pub struct Session<'a> {
    /// The directory of results.db.
    pub folder: PathBuf,
    /// What the user allows.
    pub permits: &'a PermitArgs,
    /// Whether the report goes to standard output as JSON instead of its gist as text.
    pub json: bool,
}

/// Starts a sweep.
pub fn start(args: &RunArgs) -> Result<(), Failure> {
    let machine = args.machine.as_deref().map(machine::load).transpose()?;
    let space = match &machine {
        Some(machine) => request::space_simulated(args.space.as_deref(), &args.overrides, machine)?,
        None => request::space_here(args.space.as_deref(), &args.overrides)?,
    };
    let notes = machine.as_ref().map(simulated::note).into_iter().collect();
    begin_here(&space, &Beginning { flags: &args.beginning, notes, said: String::new() })
}

/// What a sweep begins with, besides its space.
pub struct Beginning<'a> {
    /// What the user said.
    pub flags: &'a BeginningArgs,
    /// Kept with the results.
    pub notes: Vec<(String, String)>,
    /// Lines for people that follow the sweep's name.
    pub said: String,
}

/// Starts a sweep of a space.
pub fn begin_here(space: &Space, beginning: &Beginning<'_>) -> Result<(), Failure> {
    let here = current_directory()?;
    for spec in kinds::targets(&space.points) {
        kinds::kind(spec, &here)?;
    }
    let stop = signals::stop_flag()?;
    let flags = beginning.flags;
    let folder = flags.output.clone().unwrap_or_else(default_folder);
    let made = make_folder(&folder)?;
    let session = Session { folder, permits: &flags.permits, json: flags.json };
    let result = session.first(space, beginning, &here, &stop);
    if let Err(Early::BeforeAnything(_)) = &result {
        session.remove_debris(made);
    }
    result.map_err(Early::into_failure)
}

/// Goes on with a sweep.
pub fn resume(args: &ResumeArgs) -> Result<(), Failure> {
    let path = locate(&args.sweep);
    let mut store = Store::open(&path)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned();
    let session = Session { folder, permits: &args.permits, json: args.json };
    let stop = signals::stop_flag()?;
    if let Some(budget) = args.budget {
        set_budget(&mut store, budget)?;
    }
    built::undo_remains(&store, &stop)?;
    if !owes_steps(&store)? && session.has_reports() {
        return session.nothing_to_do(&store);
    }
    let here = store.notes()?.get(NOTE_HERE).map(PathBuf::from);
    let here = here.map_or_else(current_directory, Ok)?;
    let machine = simulated::of_store(&store)?;
    let identity = Identity { allow_other_machine: args.allow_other_machine, ..identity(machine.as_ref()) };
    let all = store.completeness()?;
    let meta = store.meta()?;
    let there = match meta.passes {
        0 => format!("{} runs", all.done),
        _ => format!("{} of {} runs", all.done, all.planned),
    };
    let header = format!("{}: {there} are there\n", paint::title(&meta.name));
    session.go(&mut store, &identity, &here, &stop, &header).map_err(Early::into_failure)
}

/// Whether a session has anything to do: a plan of passes may lack controls only.
fn owes_steps(store: &Store) -> Result<bool, StoreError> {
    let is_planned = store.meta()?.protocol.is_planned_ahead();
    Ok(if is_planned { !store.missing_steps()?.is_empty() } else { !store.completeness()?.is_complete() })
}

/// Changes how long a sweep of blocks may take.
fn set_budget(store: &mut Store, budget: Duration) -> Result<(), Failure> {
    let meta = store.meta()?;
    if meta.budget.is_none() {
        let reason = if meta.protocol.is_planned_ahead() {
            "its passes say how long it takes"
        } else if meta.protocol.is_screened() {
            "its runs are bounded, not its time"
        } else {
            "its number of blocks is fixed"
        };
        let refused = Failure::invalid(format!("--budget={}: {reason}", units::seconds(budget)));
        return Err(refused.hint("leave --budget out"));
    }
    Ok(store.set_budget(budget)?)
}

/// A failure, and whether anything of use was stored before.
enum Early {
    /// Nothing was measured and nothing is to be kept.
    BeforeAnything(Failure),
    /// What was measured stays.
    Later(Failure),
}

impl Early {
    fn into_failure(self) -> Failure {
        match self {
            Self::BeforeAnything(failure) | Self::Later(failure) => failure,
        }
    }
}

impl Session<'_> {
    /// Makes the results file and runs.
    fn first(
        &self,
        space: &Space,
        beginning: &Beginning<'_>,
        here: &Path,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), Early> {
        let path = self.folder.join(store::FILE_NAME);
        // Whoever names the directory of another sweep must neither lose it nor add to it.
        match Store::open_read_only(&path) {
            Ok(_) => return Err(Early::Later(self.refuse_existing(&path))),
            Err(StoreError::Missing { .. } | StoreError::Unbegun { .. }) => {}
            Err(error) => return Err(Early::Later(error.into())),
        }
        let machine = simulated::of_notes(beginning.notes.iter().map(|(key, value)| (key, value)));
        let machine = machine.map_err(Early::BeforeAnything)?;
        let identity = identity(machine.as_ref());
        let begun = begin(&path, space, &identity).map_err(|error| match error {
            // Somebody else began one here just now; it is not ours to take away.
            StoreError::Exists { .. } | StoreError::Locked { .. } | StoreError::OtherPlan { .. } => {
                Early::Later(error.into())
            }
            _ => Early::BeforeAnything(error.into()),
        })?;
        if begun.resumed {
            return Err(Early::Later(self.refuse_existing(&path)));
        }
        let mut store = begun.store;
        store
            .set_note(NOTE_HERE, &here.display().to_string())
            .map_err(|e| Early::BeforeAnything(e.into()))?;
        for (key, value) in &beginning.notes {
            store.set_note(key, value).map_err(|e| Early::BeforeAnything(e.into()))?;
        }
        for (n, value) in space.unavailable.iter().enumerate() {
            let key = format!("left out {}", n + 1);
            store.set_note(&key, value).map_err(|e| Early::BeforeAnything(e.into()))?;
        }
        let left_out: String =
            space.unavailable.iter().map(|value| format!("{} {value}\n", paint::warn("left out:"))).collect();
        let said = &beginning.said;
        let header = format!("{}: {}\n{said}{left_out}", paint::title(&space.name), plan::gist(space));
        self.go(&mut store, &identity, here, stop, &header)
    }

    fn refuse_existing(&self, path: &Path) -> Failure {
        let folder = self.folder.display();
        Failure::from(StoreError::Exists { path: path.to_owned() })
            .hint(format!("flashwright sweep resume {folder} goes on with it; or choose another --output"))
    }

    /// Lays what is to be laid, runs what is missing, and reports.
    fn go(
        &self,
        store: &mut Store,
        identity: &Identity,
        here: &Path,
        stop: &Arc<AtomicBool>,
        header: &str,
    ) -> Result<(), Early> {
        let outcome = if !owes_steps(store).map_err(later)? {
            None
        } else {
            let points = store.points().map_err(later)?;
            let mut watch = Watch::new();
            let place = SessionContext { permits: self.permits, here, stop, speaker: watch.speaker() };
            let mut targets =
                Measured::prepare(&points, store, &place).map_err(|f| self.early(store, f, stop))?;
            if !self.json {
                output::print(&format!("{header}{}", targets.said())).map_err(Early::Later)?;
            }
            let result = targets.run(store, identity, &mut watch, stop);
            watch.end();
            let hangs = matches!(&result, Ok(outcome) if outcome.ended == Ended::Unanswered);
            // Whatever came of it, the machine is given back as it was; but not from below a request in flight, which would
            // be waited for without an end.
            let down = if hangs { targets.abandon() } else { targets.down() };
            if let (Err(_), Err(left)) = (&result, &down) {
                output::tell(&format!("{}: {}\n", paint::warn("left behind"), left.message()));
            }
            let outcome = result.map_err(|error| self.early(store, error.into(), stop))?;
            down.map_err(Early::Later)?;
            Some(outcome)
        };
        outcome::report(self, store, outcome.as_ref()).map_err(Early::Later)?;
        self.conclude(store, outcome.as_ref()).map_err(Early::Later)
    }

    /// Sorts a failure by whether there is anything to keep. What was interrupted is always kept: it was
    /// wanted.
    fn early(&self, store: &Store, failure: Failure, stop: &AtomicBool) -> Early {
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Early::Later(failure.hint(self.resume_hint()));
        }
        match store.completeness() {
            Ok(c) if c.done == 0 && c.controls_done == 0 && store.failures().is_ok_and(|f| f.is_empty()) => {
                Early::BeforeAnything(failure)
            }
            _ => Early::Later(failure),
        }
    }

    /// The exit code and the last words.
    fn conclude(&self, store: &Store, outcome: Option<&Outcome>) -> Result<(), Failure> {
        let Some(outcome) = outcome else { return Ok(()) };
        let (done, planned) = (outcome.completeness.done, outcome.completeness.planned);
        // Until a decision nobody knows how many there will be.
        let is_open = store.meta()?.passes == 0;
        let failed = || {
            let points = store.points().unwrap_or_default();
            let mut failures = outcome.failures.iter().map(|(id, error)| {
                points.get(*id as usize).map_or_else(|| error.clone(), |p| format!("{}: {error}", p.label()))
            });
            let first = failures.next().unwrap_or_default();
            match failures.count() {
                0 => first,
                more => format!(
                    "{first}; and {more} points more, see `flashwright sweep status {}`",
                    self.folder.display()
                ),
            }
        };
        match outcome.ended {
            Ended::Complete => Ok(()),
            Ended::Unanswered => {
                let text =
                    format!("{}: the sweep ends here, with {done} runs done, which are kept", failed());
                let hint = format!(
                    "see the kernel's log (dmesg) for the drive; once it answers again, {}",
                    self.resume_hint()
                );
                Err(Failure::failed(text).hint(hint).unanswered(outcome.unanswered.as_ref()))
            }
            Ended::Incomplete | Ended::Interrupted | Ended::GaveUp if is_open => {
                let what = match outcome.ended {
                    Ended::Interrupted => {
                        let text = format!("interrupted after {done} runs; all of them are kept");
                        return Err(Failure::interrupted(text).hint(self.resume_hint()));
                    }
                    Ended::GaveUp => "gave up after several failures in a row",
                    _ => "some runs gave no record",
                };
                let text = format!("{what}, with {done} runs done: {}", failed());
                Err(Failure::failed(text).hint(self.resume_hint()))
            }
            Ended::Interrupted => Err(Failure::interrupted(format!(
                "interrupted after {done} of {planned} runs; all of them are kept"
            ))
            .hint(self.resume_hint())),
            Ended::Incomplete => Err(Failure::failed(format!(
                "{} of {planned} runs gave no record: {}",
                planned - done,
                failed()
            ))
            .hint(self.resume_hint())),
            Ended::GaveUp => Err(Failure::failed(format!(
                "gave up after several failures in a row, with {done} of {planned} runs done: {}",
                failed()
            ))
            .hint(self.resume_hint())),
        }
    }

    fn resume_hint(&self) -> String {
        let mut command =
            format!("flashwright sweep resume {}", shell_word(&self.folder.display().to_string()));
        for device in &self.permits.destroy {
            command += &format!(" --destroy {}", shell_word(&device.display().to_string()));
        }
        if self.permits.allow_unwritten {
            command += " --allow-unwritten";
        }
        format!("`{command}` goes on where this stopped")
    }

    fn has_reports(&self) -> bool {
        [outcome::HTML, outcome::JSON].iter().all(|name| self.folder.join(name).is_file())
    }

    fn nothing_to_do(&self, store: &Store) -> Result<(), Failure> {
        if self.json {
            return outcome::print_json(store);
        }
        let all = store.completeness()?;
        let report = self.folder.join(outcome::HTML);
        let report = report.display();
        output::print(&match store.meta()?.budget {
            None => format!(
                "complete, {} of {} runs; nothing to do. The report is {report}\n",
                all.done, all.planned
            ),
            Some(budget) => format!(
                "every kind of work is decided, or its time is up ({} in all), after {} runs; nothing to do. A longer \
                 `--budget TIME`, which counts the earlier sessions as well, gives more. The report is {report}\n",
                units::seconds(budget),
                all.done
            ),
        })
    }

    /// Takes away what a session made that measured nothing.
    fn remove_debris(&self, made: Vec<PathBuf>) {
        // What cannot be removed does no harm; the failure to report is the one that led here.
        let _ = std::fs::remove_file(self.folder.join(store::FILE_NAME));
        for folder in made {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// What a sweep runs on.
enum Measured {
    Here(Box<Targets>),
    Simulated(SimulatedTargets),
}

impl Measured {
    /// Drives and files of this machine, laid and looked at; or a simulated machine, where the results are of one.
    fn prepare(points: &[Point], store: &mut Store, place: &SessionContext<'_>) -> Result<Self, Failure> {
        if let Some(machine) = simulated::of_store(store)? {
            return Ok(Self::Simulated(SimulatedTargets::new(machine, store, place.stop)?));
        }
        let targets = Targets::prepare(points, store, place)?;
        note_drives(store, points)?;
        Ok(Self::Here(Box::new(targets)))
    }

    fn said(&self) -> &str {
        match self {
            Self::Here(targets) => &targets.said,
            Self::Simulated(_) => "",
        }
    }

    fn run(
        &mut self,
        store: &mut Store,
        identity: &Identity,
        watch: &mut Watch,
        stop: &AtomicBool,
    ) -> Result<Outcome, RunError> {
        match self {
            Self::Here(targets) => Runner::new(store, identity, &mut **targets, watch, stop).run(),
            Self::Simulated(targets) => {
                let timer = targets.timer();
                Runner::new(store, identity, targets, watch, stop).with_timer(&timer).run()
            }
        }
    }

    /// Leaves all of it as it is, to the end of the process.
    fn abandon(self) -> Result<(), Failure> {
        if let Self::Here(targets) = &self
            && let Some(standing) = targets.standing()
        {
            output::tell(&format!(
                "{}: {standing}; resuming the sweep takes it down\n",
                paint::warn("left standing")
            ));
        }
        std::mem::forget(self);
        Ok(())
    }

    fn down(mut self) -> Result<(), Failure> {
        match &mut self {
            Self::Here(targets) => targets.down(),
            Self::Simulated(_) => Ok(()),
        }
    }
}

/// Keeps which drives lie below, so that `sweep merge` can tell whether two machines have the same.
fn note_drives(store: &mut Store, points: &[Point]) -> Result<(), StoreError> {
    let drives = kinds::drives_below(points);
    if drives.is_empty() || store.notes()?.contains_key(NOTE_DRIVES) {
        return Ok(());
    }
    store.set_note(NOTE_DRIVES, &drives)
}

fn later(error: StoreError) -> Early {
    Early::Later(error.into())
}

fn identity(simulated: Option<&Machine>) -> Identity {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    if let Some(machine) = simulated {
        return Identity { version, machine: simulated::identity(machine), allow_other_machine: false };
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Identity {
        version,
        machine: store::Machine {
            hostname: name.trim().to_owned(),
            host: host_facts(&Host::read(&Sysfs::host())),
        },
        allow_other_machine: false,
    }
}

/// `flashwright-results-2026-11-20T18-20-31Z`: in order of time when listed, and without a character that a
/// shell or a file system minds.
fn default_folder() -> PathBuf {
    let seconds = (store::now_unix_ns() / 1_000_000_000) as i64;
    let (date, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(date);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    PathBuf::from(format!(
        "flashwright-results-{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}Z"
    ))
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar. Counts in eras of
/// 400 years that begin in March, so that the leap day is the last of its year.
fn civil(days: i64) -> (i64, i64, i64) {
    const DAYS_PER_ERA: i64 = 146_097;
    let since = days + 719_468; // 0000-03-01
    let (era, day) = (since.div_euclid(DAYS_PER_ERA), since.rem_euclid(DAYS_PER_ERA));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Makes a directory with its parents, and returns those that were not there, innermost first.
pub fn make_folder(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let missing: Vec<PathBuf> = folder
        .ancestors()
        .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
        .map(Path::to_owned)
        .collect();
    if folder.exists() && !folder.is_dir() {
        return Err(Failure::invalid(format!("--output={}: is no directory", folder.display()))
            .hint("name a directory; it is made where there is none"));
    }
    std::fs::create_dir_all(folder).map_err(|error| {
        for made in &missing {
            // Only what was made just now is empty and goes.
            let _ = std::fs::remove_dir(made);
        }
        Failure::io(folder, "make the directory for results", &error)
            .hint("name one that can be written: --output DIR")
    })?;
    Ok(missing)
}

/// A word as a shell takes it.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_turned_into_dates() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_777, (2026, 11, 20)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(civil(days), date, "{days}");
        }
    }

    #[test]
    fn a_command_in_a_hint_can_be_pasted() {
        assert_eq!(shell_word("/dev/nvme0n1"), "/dev/nvme0n1");
        assert_eq!(shell_word("my results"), "'my results'");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }

    #[test]
    fn directories_that_were_made_are_known() {
        let folder = tempfile::tempdir().expect("a directory");
        let inner = folder.path().join("a/b");
        let made = make_folder(&inner).expect("is made");
        assert_eq!(made, [inner.clone(), folder.path().join("a")]);
        assert!(make_folder(&inner).expect("is there").is_empty());
    }
}
