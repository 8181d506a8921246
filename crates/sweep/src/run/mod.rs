//! Running a plan, and going on with one that was cut short.
//!
//! [`begin`] makes the results file; [`Runner::run`] does the steps that it lacks, in planned order,
//! and stores each before the next begins. A first start and a resumption are the same thing: what is
//! missing is what is done. So after `kill -9` at any moment at most the run in progress is lost, no
//! run is made twice, and resuming a full sweep does nothing.
//!
//! What happens when a step does not give a good record:
//!
//! | what | then |
//! |---|---|
//! | the target fails | the error is stored in `failures`, the target is opened anew for the next step; after two failures of a point in one session, its other passes wait for the next session |
//! | the workload does not fit the target | likewise, but the point waits at once: nothing about it changes by trying again |
//! | several failures in a row ([`crate::space::Limits::failures`]) | the session gives up: the target is gone, or the machine is ill |
//! | a refusal | the session stops: a refusal is about safety or about the truth of figures, and the user has to decide |
//! | a record that is void because of something outside that may pass ([`may_pass`]) | it is kept in `voided` and the run is repeated once, at once; the second record counts as the run, void or not |
//! | a setting of the machine is not what it was in earlier runs (`surroundings`) | the record is void, and stored as the run |
//! | a record that is void otherwise | it is stored as the run, and flagged; repeating it would show the same |
//! | a request that is not answered in the time allowed for it | the error is stored, and the session ends at once: what is in flight may still come, so that neither this target nor another one is measured undisturbed |
//! | an interruption | the session ends; everything measured so far is kept |
//! | the results file cannot be written | the session ends with that error; the run in progress is lost |
//!
//! Runs that failed stay owed. At the end the sweep is incomplete and says what is missing; resuming
//! tries again.

mod begin;
mod blocks;
mod observe;
mod pace;
mod surroundings;
mod targets;
mod timer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use measure::{RunRecord, TargetError, UnansweredRequest, Warning, WarningCode, Workload};

pub use begin::{Begun, begin};
pub use observe::{Observer, Quiet, RunFailed, RunFinished, RunStarted, SessionBegun};
pub use targets::TargetFactory;
pub use timer::{SystemTimer, Timer};

use crate::model::{Point, RunRow};
use crate::plan::{Plan, Step, StepKind, run_seed};
use crate::store::{Completeness, Machine, Measured, Store, StoreError};
use pace::Pace;
use surroundings::Surroundings;
use targets::OpenTargets;

/// Failures of one point in a session after which its other passes wait for the next session.
const FAILURES_OF_A_POINT: u32 = 2;

/// Steps of a plan of passes that targets are told of at once: so many that what waits for the last of them does not count.
const STEPS_AHEAD: usize = 512;

/// Who runs the sweep, and where.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// Version of the program.
    pub version: String,
    /// This machine.
    pub machine: Machine,
    /// Go on with a sweep that was begun on another one.
    pub allow_other_machine: bool,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Every planned run is stored.
    Complete,
    /// All that could be done was done, and some runs failed.
    Incomplete,
    /// Somebody asked to stop.
    Interrupted,
    /// Too many runs in a row failed.
    GaveUp,
    /// The drive did not answer a request, which is still in flight.
    Unanswered,
}

impl Ended {
    /// The word stored with the session.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Interrupted => "interrupted",
            Self::GaveUp => "gave up",
            Self::Unanswered => "unanswered",
        }
    }
}

/// What a session came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// Runs stored in this session.
    pub runs: u32,
    /// Controls stored in this session.
    pub controls: u32,
    /// Runs that were repeated because something outside had spoilt the first attempt.
    pub repeated: u32,
    /// The last error of each point that failed in this session.
    pub failures: BTreeMap<u32, String>,
    /// The request that was not answered, where that ended it.
    pub unanswered: Option<UnansweredRequest>,
    /// How much of the plan is there now.
    pub completeness: Completeness,
}

/// Why a session could not go on. All that was stored stays.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The results file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The target refused.
    #[error("{target}: refused at the point {point}")]
    Refused {
        /// Device spec.
        target: String,
        /// The point's settings.
        point: String,
        /// The target's reason.
        #[source]
        source: TargetError,
    },
}

/// Whether a void record may come out well when the run is repeated: something outside interfered,
/// and may be over.
#[must_use]
pub fn may_pass(code: WarningCode) -> bool {
    matches!(code, WarningCode::BackgroundWork | WarningCode::SettingsDrift)
}

/// Runs what a results file lacks.
pub struct Runner<'a> {
    store: &'a mut Store,
    identity: &'a Identity,
    observer: &'a mut dyn Observer,
    stop: &'a AtomicBool,
    timer: &'a dyn Timer,
    targets: OpenTargets<'a>,
    /// How long opening targets took, laying and preparing them included.
    opening: Duration,
}

/// What became of a step.
enum Advance {
    Stored(RunRow),
    /// It failed, or its point waits for the next session.
    Passed,
    /// The session is over.
    Ended(Ended),
}

/// What came of one attempt.
enum Attempt {
    Stored(RunRow),
    Failed {
        error: String,
        hopeless: bool,
        /// The request that is still in flight.
        unanswered: Option<UnansweredRequest>,
    },
    Interrupted,
}

impl<'a> Runner<'a> {
    /// A runner over an open store. `stop` is looked at between runs; to end a run in progress, give
    /// the same flag to the targets.
    pub fn new(
        store: &'a mut Store,
        identity: &'a Identity,
        factory: &'a mut dyn TargetFactory,
        observer: &'a mut dyn Observer,
        stop: &'a AtomicBool,
    ) -> Self {
        Self {
            store,
            identity,
            observer,
            stop,
            timer: &SystemTimer,
            targets: OpenTargets::new(factory),
            opening: Duration::ZERO,
        }
    }

    /// Takes another clock for budgets and for the pauses between blocks.
    #[must_use]
    pub fn with_timer(self, timer: &'a dyn Timer) -> Self {
        Self { timer, ..self }
    }

    /// Does all that is missing.
    ///
    /// # Errors
    /// [`RunError::Store`] where the file cannot be read or written, or belongs to another machine;
    /// [`RunError::Refused`] where a target refuses.
    pub fn run(mut self) -> Result<Outcome, RunError> {
        let before = self.store.completeness()?;
        let is_planned = self.store.meta()?.protocol.is_planned_ahead();
        let missing = if is_planned { self.store.missing_steps()? } else { Vec::new() };
        if missing.is_empty() && before.is_complete() {
            return Ok(Outcome::nothing_to_do(before));
        }
        self.check_machine()?;
        let session = self.store.begin_session(&self.identity.version, &self.identity.machine)?;
        let ended = self.session(session, &missing);
        let word = match &ended {
            Ok(outcome) => outcome.ended.word(),
            Err(RunError::Refused { .. }) => "refused",
            Err(RunError::Store(_)) => "error",
        };
        let noted = self.store.end_session(session, word);
        // The first error is the one to report: the second is its consequence.
        let outcome = ended?;
        noted?;
        Ok(outcome)
    }

    fn check_machine(&mut self) -> Result<(), StoreError> {
        let meta = self.store.meta()?;
        let then = &meta.machine;
        // What several machines measured together, any machine like them may go on with.
        let differences = if meta.parts.len() > 1 {
            then.unlike(&self.identity.machine)
        } else {
            then.differences(&self.identity.machine)
        };
        if !differences.is_empty() {
            if !self.identity.allow_other_machine {
                return Err(StoreError::OtherMachine { path: self.store.path().to_owned(), differences });
            }
            self.observer.notice(&format!("figures of two machines: {}", differences.join(", ")));
        }
        for change in then.changes(&self.identity.machine) {
            self.observer.notice(&format!("changed since the sweep began: {change}"));
        }
        Ok(())
    }

    fn session(&mut self, session: i64, missing: &[Step]) -> Result<Outcome, RunError> {
        let plan = self.store.plan()?;
        let before = self.store.completeness()?;
        let is_planned = plan.rules.protocol.is_planned_ahead();
        let board = if is_planned { None } else { Some(self.store.board()?) };
        let left: Option<Vec<u32>> = match &board {
            None => Some(missing.iter().map(|step| step.planned.point).collect()),
            Some(board) => board.runs_left(),
        };
        let mut live = Live {
            session,
            seed: plan.rules.seed,
            limit: self.store.meta()?.max_consecutive_failures,
            pace: Pace::new(&plan, &left.unwrap_or_default(), self.store.overhead()?),
            tally: Tally::default(),
            done: before.done,
            planned: before.planned,
            spent: None,
            is_in_blocks: !is_planned,
            surroundings: Surroundings::of(self.store)?,
            changes: BTreeSet::new(),
        };
        self.observer.session_begun(&SessionBegun {
            planned: before.planned,
            done: before.done,
            controls_left: before.controls_planned - before.controls_done,
            time_left: live.pace.time_left(),
        });
        let ended = match board {
            None => self.passes(&plan, missing, &mut live)?,
            Some(board) => self.blocks(&plan, board, &mut live)?,
        };
        Ok(live.tally.outcome(ended, self.store.completeness()?))
    }

    /// Does the steps that a plan of passes lacks.
    fn passes(&mut self, plan: &Plan, missing: &[Step], live: &mut Live) -> Result<Option<Ended>, RunError> {
        for steps in missing.chunks(STEPS_AHEAD) {
            self.ahead(plan, steps, live.seed);
            for step in steps {
                if let Advance::Ended(ended) =
                    self.advance(step, &plan.points[step.planned.point as usize], live)?
                {
                    return Ok(Some(ended));
                }
            }
        }
        Ok(None)
    }

    /// Tells the targets which runs come next.
    fn ahead(&mut self, plan: &Plan, steps: &[Step], seed: u64) {
        let mut next = steps.iter().map(|step| {
            let point = &plan.points[step.planned.point as usize];
            (point, workload_of(point, seed, step.planned.position))
        });
        self.targets.ahead(&mut next);
    }

    /// One step of the session, stored or written down as failed.
    fn advance(&mut self, step: &Step, point: &Point, live: &mut Live) -> Result<Advance, RunError> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Advance::Ended(Ended::Interrupted));
        }
        if live.tally.given_up(point.id) {
            live.pace.skipped(point);
            if live.is_in_blocks && step.kind == StepKind::Run {
                // A block whose runs are not all stored or failed would count as cut.
                let error = "its point was given up before";
                self.store.insert_failure(live.session, step.planned, step.kind, error)?;
            }
            return Ok(Advance::Passed);
        }
        let (kind, pass) = (step.kind, step.planned.pass);
        self.observer.run_started(&RunStarted {
            point,
            kind,
            pass,
            done: live.done,
            planned: live.planned,
            time_left: live.pace.time_left(),
            spent: live.spent,
        });
        let began = Instant::now();
        match self.step(step, point, live)? {
            Attempt::Interrupted => Ok(Advance::Ended(Ended::Interrupted)),
            Attempt::Stored(row) => {
                live.stored(kind, point, began.elapsed());
                self.observer.run_finished(&RunFinished {
                    point,
                    kind,
                    row: &row,
                    void: row.is_void(),
                    done: live.done,
                    planned: live.planned,
                    time_left: live.pace.time_left(),
                });
                Ok(Advance::Stored(row))
            }
            Attempt::Failed { error, hopeless, unanswered } => {
                self.store.insert_failure(live.session, step.planned, kind, &error)?;
                live.pace.skipped(point);
                self.observer.run_failed(&RunFailed { point, kind, pass, error: &error });
                live.tally.failed(point.id, error, hopeless);
                live.tally.unanswered = unanswered;
                Ok(match live.tally.in_a_row >= live.limit {
                    _ if live.tally.unanswered.is_some() => Advance::Ended(Ended::Unanswered),
                    true => Advance::Ended(Ended::GaveUp),
                    false => Advance::Passed,
                })
            }
        }
    }

    /// One step, with its repetition where the first record was spoilt from outside.
    fn step(&mut self, step: &Step, point: &Point, live: &mut Live) -> Result<Attempt, RunError> {
        let workload = workload_of(point, live.seed, step.planned.position);
        for last in [false, true] {
            let began = Instant::now();
            let mut record = match self.attempt(point, &workload) {
                Ok(record) => record,
                Err(error) => return self.failed(point, error),
            };
            record.pass = step.planned.pass;
            // Judged after the rest, because to repeat the run at once would show the same.
            let is_spoilt = spoilt(&record);
            self.hold_against_earlier(point, &mut record, live);
            let measured = Measured { planned: step.planned, record: &record, wall: began.elapsed() };
            if !last && step.kind == StepKind::Run && is_spoilt {
                self.store.insert_voided(live.session, measured)?;
                live.tally.repeated += 1;
                self.observer
                    .notice(&format!("{}: the run was spoilt from outside and is repeated", point.label()));
                continue;
            }
            let row = match step.kind {
                StepKind::Run => self.store.insert_run(live.session, measured)?,
                StepKind::Control => self.store.insert_control(live.session, measured)?,
            };
            return Ok(Attempt::Stored(row));
        }
        unreachable!("the last attempt is stored")
    }

    /// Warns in the record of settings that are not those of earlier runs, and aloud of each the first time.
    fn hold_against_earlier(&mut self, point: &Point, record: &mut RunRecord, live: &mut Live) {
        let changes = live.surroundings.meet(point, record);
        if changes.is_empty() {
            return;
        }
        let words = format!("not as in the runs before: {}", changes.join("; "));
        if live.changes.insert(words.clone()) {
            let label = point.label();
            self.observer
                .notice(&format!("{label}: {words}; while that is so, runs are not compared with those"));
        }
        record.warn(Warning::new(WarningCode::SettingsDrift, words));
    }

    fn attempt(&mut self, point: &Point, workload: &Workload) -> Result<RunRecord, TargetError> {
        let began = self.timer.now();
        let opened = self.targets.open(point);
        self.opening += self.timer.now() - began;
        opened?.run(workload)
    }

    fn failed(&mut self, point: &Point, error: TargetError) -> Result<Attempt, RunError> {
        match error {
            TargetError::Interrupted => return Ok(Attempt::Interrupted),
            TargetError::Refused(_) => {
                let (target, point) = (point.target.clone(), point.label());
                return Err(RunError::Refused { target, point, source: error });
            }
            TargetError::Invalid(_) | TargetError::Failed(_) | TargetError::Unanswered { .. } => {}
        }
        let unanswered = match &error {
            TargetError::Unanswered { request, .. } => Some(UnansweredRequest::clone(request)),
            _ => None,
        };
        // A target that failed is not trusted to be in a good state; to close one that does not answer may take for ever.
        if unanswered.is_some() {
            self.targets.abandon();
        } else {
            self.targets.close(&point.target);
        }
        let hopeless = matches!(error, TargetError::Invalid(_));
        Ok(Attempt::Failed { error: base::with_causes(&error), hopeless, unanswered })
    }
}

/// The point's workload with the offsets of this step: each pass walks others, unless the space
/// fixed the seed.
fn workload_of(point: &Point, seed: u64, position: u32) -> Workload {
    let mut workload = point.workload.clone();
    if workload.randseed == Workload::default().randseed {
        workload.randseed = run_seed(seed, position);
    }
    workload
}

/// Whether the record is void, and only for reasons that may pass.
fn spoilt(record: &RunRecord) -> bool {
    let is_void = |code: WarningCode| code.explain().severity == measure::warning::Severity::Void;
    let mut void = record.warnings.iter().map(|w| w.code).filter(|code| is_void(*code)).peekable();
    void.peek().is_some() && void.all(may_pass)
}

/// A session in progress.
struct Live {
    session: i64,
    seed: u64,
    /// Failures in a row after which it gives up.
    limit: u32,
    pace: Pace,
    tally: Tally,
    /// Runs stored, of all sessions.
    done: u32,
    planned: u32,
    /// The time that is used of the budget, and the budget, where there is one.
    spent: Option<(Duration, Duration)>,
    /// Whether runs belong to blocks.
    is_in_blocks: bool,
    surroundings: Surroundings,
    /// Changes of settings that were told.
    changes: BTreeSet<String>,
}

impl Live {
    fn stored(&mut self, kind: StepKind, point: &Point, took: Duration) {
        self.done += u32::from(kind == StepKind::Run);
        self.pace.finished(point, took);
        self.tally.stored(kind);
    }
}

/// What a session has done so far.
#[derive(Default)]
struct Tally {
    runs: u32,
    controls: u32,
    repeated: u32,
    in_a_row: u32,
    /// By point: how often it failed, and the last error.
    failures: BTreeMap<u32, (u32, String)>,
    unanswered: Option<UnansweredRequest>,
}

impl Tally {
    fn stored(&mut self, kind: StepKind) {
        self.in_a_row = 0;
        match kind {
            StepKind::Run => self.runs += 1,
            StepKind::Control => self.controls += 1,
        }
    }

    fn failed(&mut self, point: u32, error: String, hopeless: bool) {
        self.in_a_row += 1;
        let (times, last) = self.failures.entry(point).or_default();
        *times = if hopeless { FAILURES_OF_A_POINT } else { *times + 1 };
        *last = error;
    }

    fn given_up(&self, point: u32) -> bool {
        self.failures.get(&point).is_some_and(|(times, _)| *times >= FAILURES_OF_A_POINT)
    }

    fn outcome(self, ended: Option<Ended>, completeness: Completeness) -> Outcome {
        // In a sweep of blocks a point that never ran leaves its contest, which is decided without it.
        let lacks_a_point = self.failures.values().any(|(times, _)| *times >= FAILURES_OF_A_POINT);
        // Work that is undecided when the budget ends, or shortly before its end, has all its records.
        let is_complete = completeness.missing.is_empty() && !lacks_a_point;
        let at_the_end = if is_complete { Ended::Complete } else { Ended::Incomplete };
        Outcome {
            ended: ended.unwrap_or(at_the_end),
            runs: self.runs,
            controls: self.controls,
            repeated: self.repeated,
            failures: self.failures.into_iter().map(|(point, (_, error))| (point, error)).collect(),
            unanswered: self.unanswered,
            completeness,
        }
    }
}

impl Outcome {
    fn nothing_to_do(completeness: Completeness) -> Self {
        Tally::default().outcome(None, completeness)
    }
}
