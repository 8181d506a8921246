//! A store whose checkpoints are parts of sets: what is complete, what lacks, and parts of other ranks.
//!
//! A part of another rank, or of a set of another number of ranks, is staged in as `PART.SET` beside this rank's own, and goes
//! when the store is closed, or opened next.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::files::is_directory;
use super::restore::Wanted;
use super::{GoOn, Member, SLICE, Store, staged_name, step_of};
use crate::mover::Mover;
use stage::calls;
use stage::complete::{self, Completion, SetSurvey};
use stage::error::StageError;
use stage::job::{JobStatus, State};
use stage::pace::Stop;
use stage::parts::{PartId, PartRecord, RunId, SetId, SetRecord};
use stage::tier::Tier;
use stage::tier::parts::PartTier;

/// Interval at which a wait for the other ranks looks at the slow tier.
const SURVEY_INTERVAL: Duration = Duration::from_millis(500);
/// Faults that a message names.
const FAULTS_TOLD: usize = 4;

impl Member {
    pub(super) fn record(&self, step: u64, run: &RunId) -> PartRecord {
        let PartId { rank, ranks } = self.part;
        PartRecord { run: run.clone(), step, rank, ranks, node: self.node.clone() }
    }
}

/// The identity of this launch: `FLASHWRIGHT_RUN`, or what Slurm calls the job step, restarts included. None if neither is
/// set; nor outside a step of `srun`, and beneath `torchrun`: one job or step launches the program several times there.
///
/// # Errors
/// [`StageError::Invalid`] for a variable that is no identity.
pub fn run_of_environment(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<RunId>, StageError> {
    if let Some(run) = variable(base::environment::RUN) {
        return run.parse().map(Some);
    }
    let step = base::environment::srun_step(variable);
    let (Some(job), Some(step)) = (variable("SLURM_JOB_ID"), step) else { return Ok(None) };
    if variable("TORCHELASTIC_RUN_ID").is_some() {
        return Ok(None);
    }
    let restart = variable("SLURM_RESTART_COUNT").unwrap_or_else(|| "0".to_owned());
    format!("slurm-{job}.{step}.{restart}").parse().map(Some)
}

/// The part and the set of a name that another rank's part has on the fast tier.
pub(super) fn part_of(name: &OsStr) -> Option<(PartId, SetId)> {
    let (part, set) = name.to_str()?.split_once('.')?;
    Some((PartId::of_name(OsStr::new(part))?, SetId::of_name(OsStr::new(set))?))
}

/// The step of anything that a store has on its fast tier.
pub(super) fn step_of_any(name: &OsStr) -> Option<u64> {
    let set = SetId::of_name(name).or_else(|| part_of(name).map(|(_, set)| set));
    set.map(|set| set.step).or_else(|| step_of(name))
}

/// Has this job brought what has this path by now?
fn is_staged_by(job: &JobStatus, path: &std::path::Path) -> bool {
    let staged = path.file_name().map(|name| path.with_file_name(staged_name(name)));
    job.spec.destination.path() == staged.as_deref()
}

impl Store {
    fn member(&self) -> Result<&Member, StageError> {
        self.config.member.as_ref().ok_or_else(|| {
            StageError::invalid(
                "this store's checkpoints are not parts of sets",
                "open it with rank, ranks and run",
            )
        })
    }

    /// The identity of the run, of a store whose checkpoints are parts of sets.
    #[must_use]
    pub fn run(&self) -> Option<&RunId> {
        self.config.member.as_ref().map(|member| &member.run)
    }

    /// The tier of whole sets, asked anew: an object store's remembers what it has found.
    fn sets_tier(&self) -> Result<Arc<dyn Tier>, StageError> {
        Ok(self.config.tiers.open(&self.slow_place, &Stop::new())?.into())
    }

    /// Every set on the slow tier, of whatever run, oldest first: whether it is complete, and what it lacks.
    ///
    /// # Errors
    /// [`StageError::Invalid`] if this store's checkpoints are not parts; the slow tier's.
    pub fn sets(&self) -> Result<Vec<SetSurvey>, StageError> {
        self.own_process()?;
        self.member()?;
        let slow = self.sets_tier()?;
        complete::sets(&*slow)?.iter().map(|id| complete::survey(&*slow, id)).collect()
    }

    /// The newest set that is complete, of whatever run. All ranks of a program take the same only if one of them asks and
    /// tells the others: a set may be completed in between.
    ///
    /// # Errors
    /// As [`Store::sets`].
    pub fn latest_set(&self) -> Result<Option<(SetId, SetRecord)>, StageError> {
        self.own_process()?;
        self.member()?;
        let slow = self.sets_tier()?;
        for id in complete::sets(&*slow)?.into_iter().rev() {
            if let Some(record) = self.completed(&*slow, &id)? {
                return Ok(Some((id, record)));
            }
        }
        Ok(None)
    }

    /// The record of a set, which is published now if all parts are there and the process that was to do it has died.
    fn completed(&self, slow: &dyn Tier, id: &SetId) -> Result<Option<SetRecord>, StageError> {
        if let Some(record) = complete::record_of(slow, id)? {
            return Ok(Some(record));
        }
        let Some(mover) = self.locked().mover.clone() else { return Ok(None) };
        match complete::complete(slow, id, mover.journal())? {
            Completion::Lacks(_) => Ok(None),
            Completion::Made | Completion::There => complete::record_of(&*self.sets_tier()?, id),
        }
    }

    /// Waits until the set of a step of this run is complete, or was and has gone for newer ones. False if the time is up
    /// before.
    ///
    /// # Errors
    /// The failure of this rank's own drain; as [`Store::sets`]; what `go_on` says.
    pub fn wait_set(&self, step: u64, most: Option<Duration>, go_on: GoOn<'_>) -> Result<bool, StageError> {
        let until = most.and_then(|most| Instant::now().checked_add(most));
        if !self.wait(Some(step), stage::Level::Durable, most, go_on)? {
            return Ok(false);
        }
        let id = SetId { step, run: self.member()?.run.clone() };
        loop {
            if self.completed(&*self.sets_tier()?, &id)?.is_some()
                || !self.slow.has(&self.name(step))? && self.is_superseded(step)?
            {
                return Ok(true);
            }
            let next = Instant::now() + SURVEY_INTERVAL;
            while Instant::now() < next {
                go_on()?;
                if until.is_some_and(|until| Instant::now() >= until) {
                    return Ok(false);
                }
                std::thread::sleep(SLICE);
            }
        }
    }

    /// Where a part of a complete set can be read on the fast tier ([`Store::restore`]): this rank's own, or that of `rank`.
    /// Without `run` the newest complete set of the step is meant.
    ///
    /// # Errors
    /// [`StageError::Refused`] if there is such a set and it is not complete, with what it lacks, and if it has another number
    /// of parts than this program has ranks and none is named; otherwise as [`Store::restore`].
    pub fn restore_part(
        &self,
        step: u64,
        run: Option<&RunId>,
        rank: Option<u32>,
        verify: bool,
        go_on: GoOn<'_>,
    ) -> Result<PathBuf, StageError> {
        self.own_process()?;
        let own = self.member()?.part;
        let sets = self.sets_tier()?;
        let (id, record) = self.complete_set(&*sets, step, run)?;
        if rank.is_none() && record.ranks != own.ranks {
            return Err(StageError::refused(
                format!("{id} has {} parts, and this program has {} ranks", record.ranks, own.ranks),
                "name the rank whose part is wanted",
            ));
        }
        let part = PartId::new(rank.unwrap_or(own.rank), record.ranks)?;
        let set = OsString::from(id.to_string());
        let name = if part == own { set.clone() } else { OsString::from(format!("{part}.{id}")) };
        let slow: Arc<dyn Tier> = Arc::new(PartTier::new(sets, part));
        self.bring(&Wanted { step, name, slow, in_slow: set }, verify, go_on)
    }

    fn complete_set(
        &self,
        slow: &dyn Tier,
        step: u64,
        run: Option<&RunId>,
    ) -> Result<(SetId, SetRecord), StageError> {
        let is_wanted = |id: &SetId| id.step == step && run.is_none_or(|run| id.run == *run);
        let candidates: Vec<SetId> = complete::sets(slow)?.into_iter().filter(is_wanted).collect();
        for id in candidates.iter().rev() {
            if let Some(record) = self.completed(slow, id)? {
                return Ok((id.clone(), record));
            }
        }
        let Some(id) = candidates.last() else { return Err(self.no_such(step)) };
        let survey = complete::survey(slow, id)?;
        let told: Vec<String> = survey.faults.iter().take(FAULTS_TOLD).map(ToString::to_string).collect();
        let more = match survey.faults.len().saturating_sub(FAULTS_TOLD) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        Err(StageError::refused(
            format!("{id} is not complete: {}{more}", told.join("; ")),
            "restore the latest set; the missing parts are drained by the nodes that have them",
        ))
    }

    /// Drains what earlier runs of the program have left in this directory.
    pub(super) fn drain_earlier_runs(&self, mover: &Mover, jobs: &[JobStatus]) -> Result<(), StageError> {
        let Some(member) = &self.config.member else { return Ok(()) };
        let names = calls::list(std::os::fd::AsFd::as_fd(&self.fast))
            .map_err(|error| StageError::io("read the directory", &self.config.fast, error))?;
        for (name, _) in names {
            let Some(id) = SetId::of_name(&name).filter(|id| id.run != member.run) else { continue };
            if !is_directory(&self.fast, &name) {
                continue;
            }
            let path = self.config.fast.join(&name);
            let place = self.slow.place(&name);
            let drains =
                |job: &&JobStatus| job.spec.source.path() == Some(&path) && job.spec.destination == place;
            let job = match jobs.iter().rev().find(drains) {
                Some(job) if job.state == State::Failed => {
                    mover.retry(job.id)?;
                    job.id
                }
                Some(job) if !job.state.is_final() => job.id,
                // It was drained, or brought back, and retention may have removed the set since.
                Some(_) => continue,
                _ if jobs.iter().any(|job| is_staged_by(job, &path)) || self.slow.has(&name)? => continue,
                _ => self.submit(mover, &name, Some(member.record(id.step, &id.run)))?,
            };
            let mut inner = self.locked();
            inner.reported.remove(&job);
            inner.earlier.insert(id, job);
        }
        Ok(())
    }

    /// Removes parts of other ranks that were staged in.
    pub(super) fn discard_others(&self, mover: &Mover) -> Result<(), StageError> {
        if self.config.member.is_none() {
            return Ok(());
        }
        let names = calls::list(std::os::fd::AsFd::as_fd(&self.fast))
            .map_err(|error| StageError::io("read the directory", &self.config.fast, error))?;
        for (name, _) in names.iter().filter(|(name, _)| part_of(name).is_some()) {
            self.discard_staged_as(mover, &staged_name(name), name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_taken_from_slurm_only_if_no_other_launch_has_it() {
        let run = |set: &[(&str, &str)]| {
            let variable =
                |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            run_of_environment(&variable).unwrap().map(|run| run.to_string())
        };
        let (job, step, restart) =
            (("SLURM_JOB_ID", "4711"), ("SLURM_STEP_ID", "3"), ("SLURM_RESTART_COUNT", "2"));
        let given = ("FLASHWRIGHT_RUN", "a");
        let torchrun = ("TORCHELASTIC_RUN_ID", "none");
        assert_eq!(run(&[job, step]).as_deref(), Some("slurm-4711.3.0"));
        assert_eq!(run(&[job, step, restart]).as_deref(), Some("slurm-4711.3.2"));
        assert_eq!(run(&[job, step, restart, torchrun, given]).as_deref(), Some("a"));
        assert_eq!(run(&[job, restart]), None, "a batch script may launch a program twice");
        assert_eq!(run(&[job, ("SLURM_STEP_ID", "4294967291")]), None, "the step of the batch script");
        assert_eq!(run(&[job, step, torchrun]), None, "it starts its workers anew in one step");
    }
}
