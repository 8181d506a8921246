//! How far a sweep is, also while it runs: `flashwright.status/1`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::Point;
use crate::plan::{Estimate, OVERHEAD_PER_RUN, Protocol};
use crate::store::{self, Failure, Meta, MissingPoint, Session, Store, StoreError};

/// The name of the format.
pub const SCHEMA: &str = "flashwright.status/1";

/// How far a sweep is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// `flashwright.status/1`.
    pub schema: String,
    /// The results file.
    pub path: String,
    /// Name of the sweep.
    pub name: String,
    /// Version that began it.
    pub version: String,
    /// When it began, nanoseconds since 1970-01-01 UTC.
    pub created_unix_ns: u64,
    /// The shards that it holds, `2/4`; none where it is whole.
    #[serde(default)]
    pub shard: Option<String>,
    /// Seed of its orders.
    pub seed: u64,
    /// Points of its space.
    pub points: u32,
    /// How its runs are chosen.
    #[serde(default = "Protocol::unnamed")]
    pub protocol: Protocol,
    /// Times that each is to run; 0 for as often as a decision takes.
    pub passes: u32,
    /// Runs in the plan.
    pub planned: u32,
    /// Runs stored.
    pub done: u32,
    /// Stored runs from which no conclusion may be drawn.
    pub void: u32,
    /// Whether every planned run is stored, and every work of a sweep of blocks decided or its time up.
    pub complete: bool,
    /// Kinds of work that blocks have not decided, their time being up or not; 0 in a sweep of a fixed number of runs.
    #[serde(default)]
    pub undecided: u32,
    /// Controls in the plan.
    pub controls_planned: u32,
    /// Controls stored.
    pub controls_done: u32,
    /// Runs that were repeated because something outside had spoilt the first attempt.
    pub repeated: u32,
    /// The points that lack passes.
    pub missing: Vec<Missing>,
    /// Attempts that gave no record, oldest first; those that succeeded later included.
    pub failures: Vec<FailureLine>,
    /// Starts and resumptions, oldest first.
    pub sessions: Vec<SessionLine>,
    /// The process that runs it now.
    pub running: Option<String>,
    /// Estimated time for all that is missing, seconds; none where nothing is, or nobody can know.
    pub time_left_s: Option<f64>,
}

/// A point that lacks passes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// Its id.
    pub point: u32,
    /// In words.
    pub label: String,
    /// Its settings.
    pub settings: BTreeMap<String, String>,
    /// Its target.
    pub target: String,
    /// The passes that are owed.
    pub passes: Vec<u32>,
    /// Why, where an attempt failed: the last error.
    pub last_error: Option<String>,
}

/// An attempt that gave no record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailureLine {
    /// The point's id.
    pub point: u32,
    /// The point in words.
    pub label: String,
    /// Repetition, from 1.
    pub pass: u32,
    /// Session in which it happened.
    pub session: i64,
    /// When, nanoseconds since 1970-01-01 UTC.
    pub at_unix_ns: u64,
    /// The error with its causes.
    pub error: String,
}

/// A start or resumption.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionLine {
    /// From 1.
    pub id: i64,
    /// When it began, nanoseconds since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// When it ended, where it did.
    pub ended_unix_ns: Option<u64>,
    /// How it ended: `complete`, `incomplete`, `interrupted`, `gave up`, `unanswered`, `refused`, `error`; `running`
    /// where it has not; `killed` where nobody runs it any more.
    pub outcome: String,
    /// Process id.
    pub pid: u32,
    /// Name of the machine.
    pub hostname: String,
    /// Version of the program.
    pub version: String,
}

impl Status {
    /// Reads the status of the sweep in a directory or results file.
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        let store = Store::open_read_only(path)?;
        Self::of(&store)
    }

    /// The status of an open store.
    pub fn of(store: &Store) -> Result<Self, StoreError> {
        let running = if store.is_writable() {
            Some(format!("process {}", std::process::id()))
        } else {
            store::running(store.path())?
        };
        let (meta, points) = (store.meta()?, store.points()?);
        let (completeness, failures) = (store.completeness()?, store.failures()?);
        let time_left_s = time_left(store, &points)?.map(|time| time.as_secs_f64());
        let sessions = session_lines(store.sessions()?, running.is_some());
        let repeated = u32::try_from(store.voided()?.len()).unwrap_or(u32::MAX);
        let shard = meta.part();
        let Meta { name, version, created_unix_ns, seed, passes, protocol, .. } = meta;
        Ok(Self {
            schema: SCHEMA.into(),
            path: store.path().display().to_string(),
            name,
            version,
            created_unix_ns,
            shard,
            seed,
            points: u32::try_from(store.plan()?.members.len()).unwrap_or(u32::MAX),
            protocol,
            passes,
            planned: completeness.planned,
            done: completeness.done,
            void: completeness.void,
            complete: completeness.is_complete(),
            undecided: if protocol.is_planned_ahead() { 0 } else { store.board()?.undecided_works() },
            controls_planned: completeness.controls_planned,
            controls_done: completeness.controls_done,
            repeated,
            missing: missing_lines(completeness.missing, &points, &failures),
            failures: failures.into_iter().map(|failure| failure_line(failure, &points)).collect(),
            sessions,
            running,
            time_left_s,
        })
    }
}

/// Estimate for the steps that have no row.
fn time_left(store: &Store, points: &[Point]) -> Result<Option<Duration>, StoreError> {
    let meta = store.meta()?;
    if let Some(budget) = meta.budget {
        // Each shard has the budget for itself; what is open is on one that has not used it up.
        let used = store.time_used()?.into_values().min().unwrap_or_default();
        return Ok((!store.completeness()?.is_complete()).then(|| budget.saturating_sub(used)));
    }
    let missing: Vec<u32> = if meta.protocol.is_planned_ahead() {
        store.missing_steps()?.iter().map(|step| step.planned.point).collect()
    } else {
        store.board()?.runs_left().unwrap_or_default()
    };
    let measured = store.overhead()?;
    let of_steps = missing.iter().filter_map(|point| points.get(*point as usize));
    let estimate = Estimate::of(of_steps, measured.unwrap_or(OVERHEAD_PER_RUN));
    let knowable = estimate.unbounded == 0 || measured.is_some();
    Ok((knowable && !missing.is_empty()).then_some(estimate.time))
}

fn label_of(points: &[Point], id: u32) -> String {
    points.get(id as usize).map_or_else(|| format!("point {id}"), Point::label)
}

fn missing_lines(missing: Vec<MissingPoint>, points: &[Point], failures: &[Failure]) -> Vec<Missing> {
    let mut last_errors: BTreeMap<u32, &str> = BTreeMap::new();
    for failure in failures {
        last_errors.insert(failure.planned.point, &failure.error);
    }
    let line = |missing: MissingPoint| {
        let point = points.get(missing.point as usize);
        Missing {
            point: missing.point,
            label: label_of(points, missing.point),
            settings: point.map(|p| p.settings.clone()).unwrap_or_default(),
            target: point.map(|p| p.target.clone()).unwrap_or_default(),
            passes: missing.passes,
            last_error: last_errors.get(&missing.point).map(|error| (*error).to_owned()),
        }
    };
    missing.into_iter().map(line).collect()
}

fn failure_line(failure: Failure, points: &[Point]) -> FailureLine {
    FailureLine {
        point: failure.planned.point,
        label: label_of(points, failure.planned.point),
        pass: failure.planned.pass,
        session: failure.session,
        at_unix_ns: failure.at_unix_ns,
        error: failure.error,
    }
}

fn session_lines(sessions: Vec<Session>, running: bool) -> Vec<SessionLine> {
    let last = sessions.last().map(|session| session.id);
    let line = |session: Session| {
        let lives = running && Some(session.id) == last;
        let unended = if lives { "running" } else { "killed" };
        SessionLine {
            id: session.id,
            started_unix_ns: session.started_unix_ns,
            ended_unix_ns: session.ended_unix_ns,
            outcome: session.outcome.unwrap_or_else(|| unended.to_owned()),
            pid: session.pid,
            hostname: session.machine.hostname,
            version: session.version,
        }
    };
    sessions.into_iter().map(line).collect()
}

impl fmt::Display for Status {
    /// For people: some lines of text, without colour.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, done, planned, points, passes, .. } = self;
        let part = self.shard.as_ref().map(|shard| format!(", shard {shard}")).unwrap_or_default();
        let is_in_blocks = !self.protocol.is_planned_ahead();
        let of_planned = format!(" of {planned}");
        let (of, how) = match passes {
            _ if self.protocol.is_screened() => ("", "screened".to_owned()),
            0 if is_in_blocks => ("", "blocks until a decision".to_owned()),
            blocks if is_in_blocks => (of_planned.as_str(), format!("{blocks} blocks")),
            passes => (of_planned.as_str(), format!("{passes} passes")),
        };
        writeln!(f, "{name}{part}: {done}{of} runs ({points} points, {how})")?;
        match (&self.running, self.time_left_s, self.complete) {
            (Some(who), Some(left), _) => {
                let left = units::seconds(Duration::try_from_secs_f64(left).unwrap_or_default());
                writeln!(f, "running ({who}), about {left} left")?;
            }
            (Some(who), None, _) => writeln!(f, "running ({who})")?,
            (None, _, true) if self.undecided > 0 => {
                let works = if self.undecided == 1 { "kind of work is" } else { "kinds of work are" };
                writeln!(f, "its time is up, and {} {works} undecided", self.undecided)?;
            }
            (None, _, true) => writeln!(f, "complete")?,
            (None, Some(left), false) if is_in_blocks && *passes == 0 => {
                let left = units::seconds(Duration::try_from_secs_f64(left).unwrap_or_default());
                writeln!(f, "not running; `flashwright sweep resume` goes on for {left} at most")?;
            }
            (None, _, false) => writeln!(f, "not running; `flashwright sweep resume` goes on")?,
        }
        if self.void > 0 {
            writeln!(f, "{} runs are void and take no part in conclusions", self.void)?;
        }
        // While it runs nearly all points lack passes; only those that failed are news.
        let news = self.missing.iter().filter(|m| self.running.is_none() || m.last_error.is_some());
        for missing in news {
            let passes: Vec<String> = missing.passes.iter().map(u32::to_string).collect();
            let noun = if is_in_blocks { "block" } else { "pass" };
            write!(f, "missing: {}, {noun} {}", missing.label, passes.join(", "))?;
            match &missing.last_error {
                Some(error) => writeln!(f, ": {error}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
