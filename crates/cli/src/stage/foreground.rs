//! Work without a server: a mover in this process, over a journal that belongs to this very command.
//!
//! The journal's directory is named by what is moved and where to, so that the same command, given again after
//! an interruption, finds what it has copied, and two commands are not in each other's way.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stage::crew::Crew;
use stage::journal::{Journal, Purpose};
use stage::names::PathText;
use stage::pace::Stop;
use stage::{Algorithm, JobSpec, JobStatus, Place, StageError, State, runner};
use stage_service::commands::{CommandJournal, FOREGROUND};
use stage_service::{Mover, MoverConfig};

use super::args::ServerArgs;
use super::desk;
use crate::failure::Failure;

/// Gives up what a command without a server has left unfinished from or to this place; none: nothing is.
pub fn give_up(args: &ServerArgs, place: &Place) -> Result<Option<JobStatus>, Failure> {
    let is_left = |job: &JobStatus| {
        matches!(job.state, State::Queued | State::Running | State::Failed)
            && (job.spec.source == *place || job.spec.destination == *place)
    };
    let mut given_up = None;
    for (CommandJournal { directory: state, .. }, jobs) in desk::journals_of_commands(args)? {
        if !jobs.iter().any(is_left) {
            continue;
        }
        // Refused while the command is at work.
        let journal = Journal::open(&state)?;
        for row in journal.jobs()? {
            if is_left(&JobStatus::from(row.clone())) {
                let mut notes = row.notes.clone();
                runner::give_up(&journal, &row, &super::tiers(), &Stop::new(), &mut notes)?;
                journal.settle(row.id, State::Cancelled, runner::now(), None, &notes)?;
                given_up = Some(row.id);
            }
        }
        let jobs = journal.jobs()?;
        if let Some(row) = jobs.into_iter().find(|row| Some(row.id) == given_up) {
            return Ok(Some(row.into()));
        }
    }
    Ok(None)
}

/// Jobs at once.
const JOBS: usize = 4;

/// Where a command's journal is.
pub struct Foreground {
    state: PathBuf,
    /// Other processes that copy as well.
    crew: Option<Arc<dyn Crew>>,
}

impl Foreground {
    /// For these jobs.
    pub fn of(args: &ServerArgs, jobs: &[JobSpec]) -> Result<Self, Failure> {
        let places: Vec<_> = jobs.iter().map(|job| (job.verb, &job.source, &job.destination)).collect();
        Self::named(args, &places)
    }

    /// For the eviction of this fast copy. Such a journal has no jobs, and comes and goes with its command, so it lies
    /// where nobody looks for jobs.
    pub fn of_eviction(args: &ServerArgs, fast: &Path) -> Result<Self, Failure> {
        Self::in_folder(args, desk::EVICTIONS, &PathText(fast.to_owned()))
    }

    /// With other processes that copy as well.
    pub fn with_crew(self, crew: Arc<dyn Crew>) -> Self {
        Self { crew: Some(crew), ..self }
    }

    /// For what is completed or removed among the sets of a slow tier; as [`Foreground::of_eviction`].
    pub fn of_sets(args: &ServerArgs, slow: &Place) -> Result<Self, Failure> {
        Self::in_folder(args, desk::EVICTIONS, slow)
    }

    /// For whatever this says.
    pub fn named(args: &ServerArgs, what: &impl serde::Serialize) -> Result<Self, Failure> {
        Self::in_folder(args, FOREGROUND, what)
    }

    fn in_folder(args: &ServerArgs, folder: &str, what: &impl serde::Serialize) -> Result<Self, Failure> {
        let text = serde_json::to_vec(what)
            .map_err(|error| Failure::failed(format!("cannot name the journal: {error}")))?;
        let name = Algorithm::Xxh3.of(&text).text(Algorithm::Xxh3);
        Ok(Self { state: desk::state(args)?.join(folder).join(name), crew: None })
    }

    /// Takes the journal, and goes on with what is in it; with what `jobs` say now about how fast.
    pub fn open(&self, specs: &[JobSpec], jobs: usize) -> Result<Mover, Failure> {
        if !specs.is_empty() && self.exists() {
            let journal = Journal::open(&self.state)?;
            for row in journal.jobs()? {
                let same = |spec: &&JobSpec| spec.has_places_of(&row.spec);
                if let Some(spec) = specs.iter().find(same) {
                    journal.hurry(row.id, &spec.options)?;
                }
            }
        }
        let config = MoverConfig {
            jobs: jobs.clamp(1, JOBS),
            tiers: super::tiers(),
            crew: self.crew.clone(),
            ..MoverConfig::new(&self.state)
        };
        Ok(Mover::open(&config)?)
    }

    /// Takes the journal alone, for a command that makes no job.
    pub fn journal(&self) -> Result<Journal, Failure> {
        Ok(Journal::open(&self.state)?)
    }

    /// Removes the journal of such a command when nothing is recorded in it.
    pub fn end(&self, journal: Journal) -> Result<(), Failure> {
        let is_empty = [Purpose::Aside, Purpose::Doomed]
            .into_iter()
            .map(|purpose| Ok(journal.directories_of(purpose)?.is_empty()))
            .collect::<Result<Vec<bool>, StageError>>()?;
        if is_empty.into_iter().all(|empty| empty) {
            let _ = std::fs::remove_dir_all(&self.state);
        }
        Ok(())
    }

    /// Has an earlier command of the same words left a journal?
    pub fn exists(&self) -> bool {
        self.state.join("journal.db").exists()
    }

    /// The jobs that an earlier command of the same words has left under way, and that will be of their sources as they
    /// are now.
    pub fn under_way(&self) -> Result<Vec<JobStatus>, Failure> {
        if !self.exists() {
            return Ok(Vec::new());
        }
        let journal = Journal::open(&self.state)?;
        let mut jobs = Vec::new();
        for row in journal.jobs()?.into_iter().filter(|row| !row.state.is_final()) {
            if row.source.is_none() || stage::runner::is_source_of(&journal, &row, &super::tiers())? {
                jobs.push(JobStatus::from(row));
            }
        }
        Ok(jobs)
    }

    /// The directory of its journal.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// What the journal has on the last job between the same places, and where it is.
    pub fn known(&self, like: &JobSpec) -> Result<Option<(JobStatus, PathBuf)>, Failure> {
        if !self.exists() {
            return Ok(None);
        }
        let rows = Journal::peek(&self.state)?;
        let jobs = rows.into_iter().map(JobStatus::from);
        Ok(jobs.rev().find(|job| job.spec.has_places_of(like)).map(|job| (job, self.state.clone())))
    }

    /// Removes the journal when nobody needs it any more: all is done, and each copy has its manifest with it.
    pub fn tidy(&self, jobs: &[JobStatus]) {
        let has_manifest = |job: &JobStatus| {
            let path = job.spec.destination.path();
            path.is_some_and(|path| path.join(stage::manifest::NAME).is_file())
                || matches!(job.spec.destination, stage::Place::Object(_))
        };
        if jobs.iter().all(|job| job.state == State::Done && job.error.is_none() && has_manifest(job)) {
            // What stays is looked into by the next command of the same words, which finds nothing to do in it.
            let _ = std::fs::remove_dir_all(&self.state);
        }
    }
}
