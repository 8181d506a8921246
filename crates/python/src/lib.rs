//! The native half of the Python package `flashwright`: `flashwright._native`.
//!
//! It turns Python's values into `stage`'s and back, and nothing else; what a user sees is in `python/flashwright`.
//! **The GIL is released around everything that may touch a disk or wait** ([`Python::detach`]). What takes long asks
//! for pending signals twenty times a second, so that Ctrl-C ends it: its handler's exception, KeyboardInterrupt as a
//! rule, is what the call then raises.
#![deny(unsafe_code)]

mod errors;
mod graph;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use planner::checkpoint::due::{CheckpointCost, FailureLog, Moment};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use stage::complete::SetSurvey;
use stage::parts::PartId;
use stage::{JobStatus, Level, StageError};
use stage_service::store::{Member, Store, StoreConfig, run_of_environment};

use crate::errors::{invalid, raise};

/// Between two questions whether a signal came.
const SIGNALS: Duration = Duration::from_millis(50);

/// The module that Python imports.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::NativeStore;
    #[pymodule_export]
    use super::due;
    #[pymodule_export]
    use super::graph::bfs;
    #[pymodule_export]
    use crate::errors::NativeError;
}

/// Seconds until a checkpoint is due, and the word of what decides it (`planner::checkpoint::due`); `cost` is the time it
/// blocks, the time until it is drained, and the share of its speed that the program loses meanwhile.
#[pyfunction]
#[pyo3(signature = (uptimes, *, up_s, since_checkpoint_s, step_s, to_end_s, since_signal_s, cost))]
fn due(
    uptimes: Vec<f64>,
    up_s: f64,
    since_checkpoint_s: f64,
    step_s: f64,
    to_end_s: Option<f64>,
    since_signal_s: Option<f64>,
    cost: Option<(f64, f64, f64)>,
) -> (f64, &'static str) {
    let cost = cost.map(|(blocked_s, drain_s, slowdown)| CheckpointCost { blocked_s, drain_s, slowdown });
    let moment = Moment { up_s, since_checkpoint_s, step_s, to_end_s, since_signal_s };
    let answer = planner::checkpoint::due::due(&FailureLog::new(&uptimes), cost.as_ref(), &moment);
    (answer.in_s, answer.reason.word())
}

/// A store (`stage::store`).
#[pyclass(frozen, name = "Store", module = "flashwright._native")]
struct NativeStore {
    store: Arc<Store>,
}

/// What opens tiers: directories, and object stores if this library has them.
fn tiers() -> stage::tier::Tiers {
    #[cfg(feature = "s3")]
    return stage_object::tiers();
    #[cfg(not(feature = "s3"))]
    stage::tier::Tiers::default()
}

/// Runs what takes long without the GIL; `work` asks the closure it is given whether to go on.
fn patiently<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&dyn Fn() -> Result<(), StageError>) -> Result<T, StageError> + Send,
) -> PyResult<T> {
    let (result, raised) = py.detach(|| {
        let raised = RefCell::new(None);
        let asked = Cell::new(Instant::now());
        let go_on = || {
            if asked.get().elapsed() < SIGNALS {
                return Ok(());
            }
            let signals = Python::attach(|py| py.check_signals());
            asked.set(Instant::now());
            signals.map_err(|error| {
                *raised.borrow_mut() = Some(error);
                StageError::Stopped { what: "by a signal".to_owned() }
            })
        };
        let result = work(&go_on);
        (result, raised.into_inner())
    });
    match (result, raised) {
        (Err(StageError::Stopped { .. }), Some(error)) => Err(error),
        (result, _) => result.map_err(|error| raise(py, &error)),
    }
}

fn level(word: &str) -> Result<Level, StageError> {
    word.parse().map_err(|()| {
        StageError::invalid(
            format!("level {word:?}: there is no such level"),
            "staged, local or durable".to_owned(),
        )
    })
}

/// Bytes a second as a person writes them: `2GB/s`, `500m`.
fn rate(text: &str) -> Result<u64, StageError> {
    stage_service::qos::rate(text)
        .map_err(|error| StageError::invalid(format!("bwlimit {text:?}: {error}"), error.hint()))
}

/// How long to wait: as long as it takes where nothing is said.
fn most(py: Python<'_>, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let of = |seconds: f64| {
        Duration::try_from_secs_f64(seconds.max(0.0)).map_err(|error| {
            invalid(py, format!("timeout {seconds}: {error}"), "seconds, or None for as long as it takes")
        })
    };
    seconds.map(of).transpose()
}

/// A set as Python is told it: step, run, ranks, whether it is complete, and what it lacks.
type SetRow = (u64, String, u32, bool, Vec<String>);

/// The part that a process has in each set, if it has one.
fn member(
    rank: Option<u32>,
    ranks: Option<u32>,
    run: Option<String>,
    node: String,
    partner: Option<PathBuf>,
) -> Result<Option<Member>, StageError> {
    let (rank, ranks) = match (rank, ranks, &run, &partner) {
        (Some(rank), Some(ranks), ..) => (rank, ranks),
        (None, None, None, None) => return Ok(None),
        _ => {
            return Err(StageError::invalid(
                "rank and ranks belong together, and run and partner to them",
                "name rank and ranks for parts of a set, or none of the four for checkpoints of one process",
            ));
        }
    };
    let run = match run {
        Some(run) => Some(run.parse()?),
        None => run_of_environment(&|name| std::env::var(name).ok())?,
    };
    let run = run.ok_or_else(|| {
        StageError::invalid(
            "run: nothing tells this launch from others",
            "choose an identity on rank 0 and give it to all ranks, or set FLASHWRIGHT_RUN",
        )
    })?;
    Ok(Some(Member { run, part: PartId::new(rank, ranks)?, node, partner }))
}

#[pymethods]
impl NativeStore {
    #[new]
    #[pyo3(signature = (fast, slow, *, state, keep_fast, keep_slow, bwlimit, iops_limit, priority, digest, preserve,
        parents, read_only, jobs, threads, rank, ranks, run, node, partner))]
    #[allow(clippy::too_many_arguments, reason = "Python's half names each of them")]
    fn open(
        py: Python<'_>,
        fast: PathBuf,
        slow: PathBuf,
        state: Option<PathBuf>,
        keep_fast: Option<u32>,
        keep_slow: Option<u32>,
        bwlimit: Option<String>,
        iops_limit: Option<u64>,
        priority: i32,
        digest: &str,
        preserve: Option<String>,
        parents: bool,
        read_only: bool,
        jobs: usize,
        threads: usize,
        rank: Option<u32>,
        ranks: Option<u32>,
        run: Option<String>,
        node: String,
        partner: Option<PathBuf>,
    ) -> PyResult<Self> {
        let member = member(rank, ranks, run, node, partner).map_err(|error| raise(py, &error))?;
        let mut config = StoreConfig {
            state,
            keep_fast,
            keep_slow,
            read_only,
            jobs,
            threads,
            member,
            tiers: tiers(),
            ..StoreConfig::new(fast, slow)
        };
        let options = &mut config.options;
        options.bwlimit = bwlimit.as_deref().map(rate).transpose().map_err(|error| raise(py, &error))?;
        options.iops_limit = iops_limit;
        options.priority = priority;
        options.parents = parents;
        options.digest = digest.parse().map_err(|()| {
            invalid(py, format!("digest {digest:?}: there is no such digest"), "xxh3 or blake3")
        })?;
        if let Some(words) = preserve {
            options.preserve = words.parse().map_err(|why: String| {
                invalid(py, format!("preserve {words:?}: {why}"), "for example mode,times,xattrs")
            })?;
        }
        let store = py.detach(|| Store::open(config)).map_err(|error| raise(py, &error))?;
        Ok(Self { store: Arc::new(store) })
    }

    fn begin(&self, py: Python<'_>, step: u64) -> PyResult<PathBuf> {
        self.quickly(py, |store| store.begin(step))
    }

    fn commit(&self, py: Python<'_>, step: u64) -> PyResult<PathBuf> {
        self.quickly(py, |store| store.commit(step))
    }

    fn abandon(&self, py: Python<'_>, step: u64) -> PyResult<()> {
        self.quickly(py, |store| store.abandon(step))
    }

    /// False if the time was up.
    fn wait(&self, py: Python<'_>, step: Option<u64>, level: &str, seconds: Option<f64>) -> PyResult<bool> {
        let level = self::level(level).map_err(|error| raise(py, &error))?;
        let (store, most) = (&self.store, most(py, seconds)?);
        patiently(py, |go_on| store.wait(step, level, most, go_on))
    }

    fn latest(&self, py: Python<'_>, level: &str) -> PyResult<Option<u64>> {
        let level = self::level(level).map_err(|error| raise(py, &error))?;
        self.quickly(py, |store| store.latest(level))
    }

    /// `(step, on the fast tier, durable on the slow tier)`, oldest first.
    fn steps(&self, py: Python<'_>) -> PyResult<Vec<(u64, bool, bool)>> {
        let steps = self.quickly(py, Store::list)?;
        Ok(steps.into_iter().map(|step| (step.step, step.fast, step.slow)).collect())
    }

    /// The identity of the run, of a store whose checkpoints are parts of sets.
    fn run(&self) -> Option<String> {
        self.store.run().map(ToString::to_string)
    }

    /// False if the time was up.
    fn wait_set(&self, py: Python<'_>, step: u64, seconds: Option<f64>) -> PyResult<bool> {
        let (store, most) = (&self.store, most(py, seconds)?);
        patiently(py, |go_on| store.wait_set(step, most, go_on))
    }

    /// False if the time was up.
    fn wait_partner(&self, py: Python<'_>, step: u64, seconds: Option<f64>) -> PyResult<bool> {
        let (store, most) = (&self.store, most(py, seconds)?);
        patiently(py, |go_on| store.wait_partner(step, most, go_on))
    }

    /// `(step, run, ranks, complete, faults)` of the newest complete set.
    fn latest_set(&self, py: Python<'_>) -> PyResult<Option<SetRow>> {
        let found = self.quickly(py, Store::latest_set)?;
        Ok(found.map(|(id, record)| (id.step, id.run.to_string(), record.ranks, true, Vec::new())))
    }

    /// The same of all sets, oldest first.
    fn sets(&self, py: Python<'_>) -> PyResult<Vec<SetRow>> {
        let sets = self.quickly(py, Store::sets)?;
        let row = |set: SetSurvey| {
            let faults = set.faults.iter().map(ToString::to_string).collect();
            (set.id.step, set.id.run.to_string(), set.ranks, set.is_complete, faults)
        };
        Ok(sets.into_iter().map(row).collect())
    }

    fn restore_part(
        &self,
        py: Python<'_>,
        step: u64,
        run: Option<String>,
        rank: Option<u32>,
        verify: bool,
    ) -> PyResult<PathBuf> {
        let store = &self.store;
        patiently(py, |go_on| {
            let run = run.as_deref().map(str::parse).transpose()?;
            store.restore_part(step, run.as_ref(), rank, verify, go_on)
        })
    }

    fn restore(&self, py: Python<'_>, step: u64, verify: bool) -> PyResult<PathBuf> {
        let store = &self.store;
        patiently(py, |go_on| store.restore(step, verify, go_on))
    }

    fn release(&self, py: Python<'_>, step: u64) {
        py.detach(|| self.store.release(step));
    }

    fn evict(&self, py: Python<'_>, step: u64) -> PyResult<()> {
        self.quickly(py, |store| store.evict(step))
    }

    fn retry(&self, py: Python<'_>) -> PyResult<usize> {
        self.quickly(py, Store::retry)
    }

    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let all = self.quickly(py, Store::progress)?;
        all.iter().map(|(step, job)| progress_of(py, *step, job)).collect()
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.quickly(py, Store::close)
    }
}

impl NativeStore {
    fn quickly<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Store) -> Result<T, StageError> + Send,
    ) -> PyResult<T> {
        let store = &self.store;
        py.detach(|| work(store)).map_err(|error| raise(py, &error))
    }
}

fn progress_of<'py>(py: Python<'py>, step: u64, job: &JobStatus) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("step", step)?;
    fields.set_item("state", job.state.word())?;
    fields.set_item("level", job.level.word())?;
    fields.set_item("bytes_total", job.walked.then_some(job.bytes_total))?;
    fields.set_item("bytes_written", job.bytes_written)?;
    fields.set_item("bytes_verified", job.bytes_verified)?;
    fields.set_item("files_total", job.walked.then_some(job.files_total))?;
    fields.set_item("files_done", job.files_done)?;
    fields.set_item("bytes_per_s", job.bytes_per_s)?;
    fields.set_item("held_back_by", job.held_back_by.as_deref())?;
    fields.set_item("error", job.error.as_ref().map(|why| why.message.as_str()))?;
    Ok(fields)
}
