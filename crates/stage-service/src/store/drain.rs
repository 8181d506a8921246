//! Draining: jobs of a mover, one for each checkpoint; waited for, resumed, and reported when they fail.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::time::{Duration, Instant};

use super::files::{is_directory, take_lock};
use super::{GoOn, SLICE, Store};
use crate::error::ServiceError;
use crate::mover::{Mover, MoverConfig};
use stage::error::StageError;
use stage::job::{JobId, JobStatus, State};
use stage::mounts;
use stage::names::PathText;
use stage::parts::PartRecord;
use stage::spec::{JobSpec, Level, Options, Place, Verb};

impl Store {
    pub(super) fn begin_draining(&self) -> Result<(), StageError> {
        let state = self.state();
        let lock = take_lock(&self.config.fast, &state)?;
        let mover = Mover::open(&MoverConfig {
            jobs: self.config.jobs.max(1),
            threads: self.config.threads.max(1),
            tiers: self.config.tiers.clone(),
            ..MoverConfig::new(state)
        })?;
        let jobs = mover.status(None)?;
        self.remove_leftovers(&mover, &jobs)?;
        let mut inner = self.locked();
        for job in &jobs {
            if let Some(step) = self.drained_by(job) {
                inner.jobs.insert(step, job.id);
            }
        }
        // What had failed before is retried below, or its fast copy is gone: there is nothing to report.
        inner.reported = jobs.iter().filter(|job| job.state.is_final()).map(|job| job.id).collect();
        inner.lock = Some(lock);
        inner.mover = Some(mover.clone());
        let known = inner.jobs.clone();
        drop(inner);
        if self.is_remote() {
            // A store that cannot be reached fails here, and not at the first checkpoint.
            let stored = self.stored_steps()?;
            self.locked().stored = stored.into_iter().collect();
        }
        for step in self.steps_here()? {
            let job = known.get(&step).and_then(|id| jobs.iter().find(|job| job.id == *id));
            match job {
                Some(job) if job.state == State::Failed => {
                    mover.retry(job.id)?;
                    self.locked().reported.remove(&job.id);
                }
                Some(job) if !job.state.is_final() => {}
                _ if self.is_stored(step)? => {}
                // A part alone would be a set that is never complete again.
                Some(job) if job.level.is_committed() && self.is_superseded(step)? => {}
                _ => self.drain(&mover, step)?,
            }
        }
        self.discard_surplus(&mover)?;
        self.drain_earlier_runs(&mover, &jobs)?;
        self.know_kept(&jobs);
        self.release_partner(&mover)
    }

    /// The step that a job drains.
    fn drained_by(&self, job: &JobStatus) -> Option<u64> {
        let source = job.spec.source.path()?;
        let step = self.step_of(source.file_name()?)?;
        let drains = source.parent() == Some(&*self.config.fast)
            && job.spec.destination == self.slow.place(&self.name(step));
        drains.then_some(step)
    }

    pub(super) fn drain(&self, mover: &Mover, step: u64) -> Result<(), StageError> {
        let part = self.config.member.as_ref().map(|member| member.record(step, &member.run));
        // First, so that the queue has it first.
        self.keep_at_partner(mover, &self.name(step))?;
        let id = self.submit(mover, &self.name(step), part)?;
        self.locked().jobs.insert(step, id);
        Ok(())
    }

    /// Hands in the drain of what has this name on the fast tier.
    pub(super) fn submit(
        &self,
        mover: &Mover,
        name: &OsStr,
        part: Option<PartRecord>,
    ) -> Result<JobId, StageError> {
        mover.submit_drain(JobSpec {
            verb: Verb::Copy,
            source: Place::Path(PathText(self.config.fast.join(name))),
            destination: self.slow.place(name),
            options: Options {
                latest: true,
                keep_fast: self.config.keep_fast,
                keep_slow: self.config.keep_slow,
                part,
                ..self.config.options.clone()
            },
        })
    }

    /// Waits until a checkpoint, or all that are committed, have come this far. False if the time is up before.
    ///
    /// # Errors
    /// [`StageError::Invalid`] if there is no such checkpoint; [`StageError::Refused`] for [`Level::Durable`] and a slow tier
    /// in memory; the failure of its drain; what `go_on` says.
    pub fn wait(
        &self,
        step: Option<u64>,
        level: Level,
        most: Option<Duration>,
        go_on: GoOn<'_>,
    ) -> Result<bool, StageError> {
        let until = most.and_then(|most| Instant::now().checked_add(most));
        let steps = match step {
            Some(step) => vec![step],
            None => self.steps_here()?,
        };
        for step in steps {
            if !self.wait_for(step, level, until, go_on)? {
                return Ok(false);
            }
        }
        if step.is_none() && level.is_committed() {
            let (mover, earlier) = (self.mover()?, self.locked().earlier.clone());
            for (set, id) in earlier {
                if !self.wait_job(&mover, id, until, go_on, &format!("{set} is not drained"))? {
                    return Ok(false);
                }
            }
        }
        self.report_failures()?;
        Ok(true)
    }

    fn wait_for(
        &self,
        step: u64,
        level: Level,
        until: Option<Instant>,
        go_on: GoOn<'_>,
    ) -> Result<bool, StageError> {
        let mover = self.mover()?;
        if level == Level::Durable {
            let why = format!("step {step} is not durable there");
            mounts::check_durable(&self.slow_place, self.slow_in_memory.as_ref(), &why)?;
        }
        let Some(id) = self.locked().jobs.get(&step).copied() else {
            let local = !level.is_committed() && is_directory(&self.fast, &self.name(step));
            if local || self.slow.has(&self.name(step))? {
                return Ok(true);
            }
            return Err(self.no_such(step));
        };
        // Only what is committed has a job: it is in the journal, and durable on the fast tier.
        if !level.is_committed() {
            return Ok(true);
        }
        self.wait_job(&mover, id, until, go_on, &format!("step {step} is not drained"))
    }

    pub(super) fn wait_job(
        &self,
        mover: &Mover,
        id: JobId,
        until: Option<Instant>,
        go_on: GoOn<'_>,
        what: &str,
    ) -> Result<bool, StageError> {
        loop {
            go_on()?;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let job = mover.wait(id, Level::Durable, Some(left.map_or(SLICE, |left| left.min(SLICE))))?;
            // A job that is committed still has to evict and to move `latest`.
            if job.state.is_final() || left == Some(Duration::ZERO) {
                if job.level.is_committed() || !job.state.is_final() {
                    return Ok(job.level.is_committed());
                }
                self.locked().reported.insert(id);
                return Err(failure(&job, what));
            }
            self.mover()?;
        }
    }

    /// How far each drain is that this journal knows, oldest first.
    pub fn progress(&self) -> Result<Vec<(u64, JobStatus)>, StageError> {
        let mover = self.mover()?;
        let jobs = self.locked().jobs.clone();
        let mut known: BTreeMap<JobId, JobStatus> =
            mover.status(None)?.into_iter().map(|job| (job.id, job)).collect();
        Ok(jobs.into_iter().filter_map(|(step, id)| Some((step, known.remove(&id)?))).collect())
    }

    /// Retries every drain that has failed; how many.
    pub fn retry(&self) -> Result<usize, StageError> {
        let mover = self.mover()?;
        let mut retried = 0;
        let mut jobs: Vec<JobStatus> = self.progress()?.into_iter().map(|(_, job)| job).collect();
        let earlier = self.locked().earlier.clone();
        for id in earlier.into_values() {
            jobs.extend(mover.status(Some(id))?);
        }
        for job in jobs {
            if job.state == State::Failed {
                mover.retry(job.id)?;
                self.locked().reported.remove(&job.id);
                retried += 1;
            }
        }
        Ok(retried)
    }

    /// The first failure of a drain that was not reported yet.
    pub(super) fn report_failures(&self) -> Result<(), StageError> {
        self.own_process()?;
        let Some((mover, jobs)) = ({
            let inner = self.locked();
            let own = inner.jobs.iter().map(|(step, id)| (format!("step {step}"), *id));
            let earlier = inner.earlier.iter().map(|(set, id)| (set.to_string(), *id));
            inner.mover.clone().map(|mover| (mover, own.chain(earlier).collect::<Vec<_>>()))
        }) else {
            return Ok(());
        };
        for (name, id) in jobs {
            if self.locked().reported.contains(&id) {
                continue;
            }
            for job in mover.status(Some(id))? {
                // A job that is done needs no further check.
                if job.state.is_final() {
                    self.locked().reported.insert(id);
                }
                if job.state == State::Failed {
                    let what = if job.level.is_committed() {
                        "is drained, but what follows is not done"
                    } else {
                        "is not drained"
                    };
                    return Err(failure(&job, &format!("{name} {what}")));
                }
            }
        }
        Ok(())
    }
}

/// A job's failure, and how to go on.
fn failure(job: &JobStatus, what: &str) -> StageError {
    ServiceError::Job { what: what.to_owned(), why: job.error.clone().map(Box::new) }.into()
}
