//! What tests of the service have in common: jobs out of thin air, and a desk that moves nothing.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::desk::Desk;
use crate::pools::PoolStatus;
use stage::error::StageError;
use stage::job::{JobId, JobStatus, State, Why};
use stage::names::PathText;
use stage::spec::{JobSpec, Level, Options, Place, Verb};

pub fn spec(name: &str) -> JobSpec {
    JobSpec {
        verb: Verb::Copy,
        source: Place::of_path(format!("/fast/{name}").as_ref()).unwrap(),
        destination: Place::of_path(format!("/slow/{name}").as_ref()).unwrap(),
        options: Options::default(),
    }
}

pub fn job(id: JobId, state: State) -> JobStatus {
    JobStatus {
        id,
        spec: spec(&id.to_string()),
        state,
        level: if matches!(state, State::Done | State::Committed) { Level::Durable } else { Level::Staged },
        error: None,
        notes: Vec::new(),
        attempts: 1,
        created: 90,
        durable: None,
        finished: None,
        files_total: 0,
        files_done: 0,
        bytes_total: 0,
        bytes_written: 0,
        bytes_verified: 0,
        walked: true,
        bytes_per_s: None,
        held_back_by: None,
        in_memory: false,
        source: None,
    }
}

pub fn pool() -> PoolStatus {
    PoolStatus {
        name: "scratch".into(),
        path: PathText("/fast".into()),
        quota: 1000 << 20,
        used: 800 << 20,
        reserved: 100 << 20,
        free: 1 << 40,
        high: 850 << 20,
        low: 700 << 20,
        over: true,
        reserve_per_user: None,
        unseen: 0,
        waiting: 0,
        waiting_bytes: 0,
        holders: Vec::new(),
        sets: Vec::new(),
        reservations: Vec::new(),
    }
}

/// Takes jobs and leaves them queued until a test says otherwise. The same request is the same job.
#[derive(Default)]
pub struct Still {
    jobs: Mutex<BTreeMap<JobId, JobStatus>>,
    changed: Condvar,
}

impl Still {
    /// Has a job come to a state, as far as that state needs.
    pub fn set(&self, id: JobId, state: State) {
        let JobStatus { level, .. } = job(id, state);
        let mut jobs = self.jobs.lock().unwrap();
        let known = jobs.remove(&id).unwrap_or_else(|| job(id, state));
        let attempts = known.attempts + u32::from(state == State::Running);
        jobs.insert(id, JobStatus { state, level, attempts, error: None, ..known });
        self.changed.notify_all();
    }

    /// Has a job come to its end with a copy in memory.
    pub fn set_in_memory(&self, id: JobId) {
        self.set(id, State::Done);
        let mut jobs = self.jobs.lock().unwrap();
        let job = jobs.get_mut(&id).unwrap();
        (job.level, job.in_memory) = (Level::InMemory, true);
        self.changed.notify_all();
    }

    /// Has a job find its copy taken away, and leave its source.
    pub fn set_left(&self, id: JobId) {
        let mut jobs = self.jobs.lock().unwrap();
        let job = jobs.get_mut(&id).unwrap();
        (job.state, job.level) = (State::Done, Level::Durable);
        job.error = Some(Why::of(&StageError::refused("the copy is not there any more", "look for it")));
    }

    /// Has a job fail when its copy is durable, and something is left to be removed.
    pub fn set_left_over(&self, id: JobId) {
        let mut jobs = self.jobs.lock().unwrap();
        let job = jobs.get_mut(&id).unwrap();
        (job.state, job.level) = (State::Failed, Level::Durable);
        job.error = Some(Why::of(&StageError::refused("the semaphore cannot be removed", "see to it")));
    }

    pub fn specs(&self) -> Vec<JobSpec> {
        self.jobs.lock().unwrap().values().map(|job| job.spec.clone()).collect()
    }

    fn one(&self, id: JobId) -> Result<JobStatus, StageError> {
        let jobs = self.jobs.lock().unwrap();
        jobs.get(&id)
            .cloned()
            .ok_or_else(|| StageError::invalid(format!("there is no job {id}"), "stage status"))
    }
}

impl Desk for Still {
    fn submit(&self, spec: JobSpec) -> Result<JobId, StageError> {
        let mut jobs = self.jobs.lock().unwrap();
        // As a mover has it, of a semaphore that was written anew while its job was under way or after it failed.
        let is_it = |job: &&mut JobStatus| match job.state {
            State::Queued | State::Running | State::Committed => job.spec.is_same_request(&spec),
            State::Failed => spec.options.semaphore.is_some() && job.spec.is_same_request(&spec),
            _ => false,
        };
        if let Some(job) = jobs.values_mut().find(is_it) {
            if spec.options.semaphore.is_some() {
                job.spec = spec;
            }
            if job.state == State::Failed {
                job.state = State::Queued;
            }
            return Ok(job.id);
        }
        let id = jobs.last_key_value().map_or(1, |(id, _)| id + 1);
        jobs.insert(id, JobStatus { spec, ..job(id, State::Queued) });
        Ok(id)
    }

    fn status(&self, id: Option<JobId>) -> Result<Vec<JobStatus>, StageError> {
        match id {
            Some(id) => self.one(id).map(|job| vec![job]),
            None => Ok(self.jobs.lock().unwrap().values().cloned().collect()),
        }
    }

    fn wait(&self, id: JobId, level: Level, most: Option<Duration>) -> Result<JobStatus, StageError> {
        self.one(id)?;
        let jobs = self.jobs.lock().unwrap();
        let there =
            |jobs: &mut BTreeMap<JobId, JobStatus>| jobs[&id].level < level && !jobs[&id].state.is_final();
        let most = most.expect("a session waits in slices");
        let (jobs, _) = self.changed.wait_timeout_while(jobs, most, there).unwrap();
        Ok(jobs[&id].clone())
    }

    fn cancel(&self, id: JobId) -> Result<JobStatus, StageError> {
        self.one(id)?;
        self.set(id, State::Cancelled);
        self.one(id)
    }

    fn retry(&self, id: JobId) -> Result<JobStatus, StageError> {
        self.one(id)?;
        self.set(id, State::Queued);
        self.one(id)
    }
}
