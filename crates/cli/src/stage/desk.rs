//! Where jobs are handed in: at a server's socket.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stage::journal::{Journal, Purpose};
use stage::{JobId, JobSpec, JobStatus, Level, StageError};
use stage_service::commands::{self, CommandJournal};
use stage_service::desk::Desk;
use stage_service::doctor::NoServer;
use stage_service::place::Surroundings;
use stage_service::protocol::ServerFacts;
use stage_service::{Client, ServiceError};

use super::args::ServerArgs;
use super::request;
use crate::failure::Failure;
use crate::{output, paint};

/// Where in the state directory those of evictions without a job are.
pub const EVICTIONS: &str = "evictions";

/// A server, as a desk. One that has gone is looked for again by the next question.
#[derive(Debug)]
pub struct Server {
    client: Mutex<Option<Client>>,
    named: Option<PathBuf>,
    facts: ServerFacts,
}

impl Server {
    /// Connects to the server that is meant.
    pub fn find(args: &ServerArgs) -> Result<Self, StageError> {
        let named = socket(args)?;
        let client = Client::connect(named.as_deref())?;
        let facts = client.server().clone();
        Ok(Self { client: Mutex::new(Some(client)), named, facts })
    }

    /// The server that is meant, or why there is none, for a verb that can do its work without one. An `XDG_RUNTIME_DIR`
    /// that others could put a socket into counts as no server, with a warning.
    pub fn find_or_why(args: &ServerArgs) -> Result<Result<Self, NoServer>, StageError> {
        if let Err(unsafe_runtime) = Surroundings::here().tried(socket(args)?.as_deref()) {
            output::tell(&format!("{}: no server is asked: {unsafe_runtime}\n", paint::warn("warning")));
            let remedy = unsafe_runtime.hint().unwrap_or_default().to_string();
            return Ok(Err(NoServer::NotAsked { why: unsafe_runtime.to_string(), remedy }));
        }
        match Self::find(args) {
            Ok(server) => Ok(Ok(server)),
            Err(error) => match error.foreign() {
                Some(ServiceError::NoServer { .. }) => Ok(Err(NoServer::NoAnswer(error.to_string()))),
                _ => Err(error),
            },
        }
    }

    /// The same for what no command can do without a server.
    pub fn needed(args: &ServerArgs) -> Result<Self, Failure> {
        Self::find(args).map_err(|error| {
            let none = ServiceError::is_no_server(&error);
            let failure = Failure::from(error);
            if !none {
                return failure;
            }
            failure.hint("start one: flashwright stage serve, or systemctl --user start flashwright-stage")
        })
    }

    /// Who answered first.
    pub fn facts(&self) -> &ServerFacts {
        &self.facts
    }

    /// Asks a question.
    pub fn ask<T>(
        &self,
        question: impl FnOnce(&mut Client) -> Result<T, StageError>,
    ) -> Result<T, StageError> {
        let mut held: MutexGuard<'_, Option<Client>> =
            self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let mut client = match held.take() {
            Some(client) => client,
            None => Client::connect(self.named.as_deref())?,
        };
        let answer = question(&mut client);
        // After a lost connection nothing is known of what comes over it.
        if !answer.as_ref().is_err_and(ServiceError::is_no_answer) {
            *held = Some(client);
        }
        answer
    }
}

impl Desk for Server {
    fn submit(&self, spec: JobSpec) -> Result<JobId, StageError> {
        self.ask(|client| client.submit(&spec))
    }

    fn status(&self, id: Option<JobId>) -> Result<Vec<JobStatus>, StageError> {
        self.ask(|client| client.status(id))
    }

    fn known_to(&self, semaphore: &Path) -> Result<Vec<JobStatus>, StageError> {
        self.ask(|client| client.known_to(semaphore))
    }

    fn wait(&self, id: JobId, level: Level, most: Option<Duration>) -> Result<JobStatus, StageError> {
        self.ask(|client| client.wait(id, level, most))
    }

    fn cancel(&self, id: JobId) -> Result<JobStatus, StageError> {
        self.ask(|client| client.cancel(id))
    }

    fn retry(&self, id: JobId) -> Result<JobStatus, StageError> {
        self.ask(|client| client.retry(id))
    }
}

/// The socket of the server that is meant; none: the first that answers.
pub fn socket(args: &ServerArgs) -> Result<Option<PathBuf>, StageError> {
    Ok(match (&args.socket, &args.state) {
        (Some(socket), _) => Some(socket.clone()),
        // A server that was started with a state directory of its own has its socket there.
        (None, Some(state)) => {
            request::check_directory("--state", state)?;
            Some(Surroundings::here().own_socket(Some(state))?)
        }
        (None, None) => None,
    })
}

/// Where the journal is, where nobody says so.
pub fn state(args: &ServerArgs) -> Result<PathBuf, Failure> {
    match &args.state {
        Some(state) => request::directory("--state", state),
        None => Ok(Surroundings::here().state()?),
    }
}

/// Each journal of a command without a server, and its jobs. One that cannot be read is passed over with a warning: it may
/// be made, or removed, at this moment, or be that of another version of flashwright.
pub fn journals_of_commands(args: &ServerArgs) -> Result<Vec<(CommandJournal, Vec<JobStatus>)>, Failure> {
    let journals = commands::journals(&state(args)?);
    let read = journals.into_iter().filter_map(|(journal, jobs)| match jobs {
        Ok(jobs) => Some((journal, jobs)),
        Err(error) => {
            if journal.directory.exists() {
                let failure = Failure::from(error);
                output::tell(&format!("{}: passed over: {}\n", paint::warn("warning"), failure.message()));
            }
            None
        }
    });
    Ok(read.collect())
}

fn peek(journal: &Path) -> Result<Vec<JobStatus>, Failure> {
    Ok(Journal::peek(journal)?.into_iter().map(JobStatus::from).collect())
}

/// The directories in which an eviction without a job was interrupted, as the journals of such commands know them. One that
/// is at work, or that cannot be read at this moment, is left out.
pub fn interrupted_evictions(args: &ServerArgs) -> Result<BTreeSet<PathBuf>, Failure> {
    let entries = std::fs::read_dir(state(args)?.join(EVICTIONS)).into_iter().flatten().flatten();
    let mut interrupted = BTreeSet::new();
    for journal in entries.map(|entry| entry.path()) {
        if commands::at_work(&journal).is_none() {
            for purpose in [Purpose::Aside, Purpose::Doomed] {
                interrupted.extend(Journal::peek_directories_of(&journal, purpose).unwrap_or_default());
            }
        }
    }
    Ok(interrupted)
}

/// The jobs of each journal that may know a path: the server's first, or else that of the state directory, then those
/// of commands without a server.
pub fn known_jobs(args: &ServerArgs) -> Result<Vec<(PathBuf, Vec<JobStatus>)>, Failure> {
    let state = match Server::find_or_why(args)? {
        Ok(server) => Some((server.facts().state.0.clone(), server.status(None)?)),
        Err(_) => None,
    };
    let own = self::state(args)?;
    let mut known: Vec<_> = state.into_iter().collect();
    if own.join("journal.db").is_file() && known.iter().all(|(other, _)| *other != own) {
        known.push((own.clone(), peek(&own)?));
    }
    let of_commands = journals_of_commands(args)?.into_iter();
    known.extend(of_commands.map(|(journal, jobs)| (journal.directory, jobs)));
    Ok(known)
}

/// The job that `ID|PATH` means: of a path, the newest that has it as its source or its destination.
pub fn job(desk: &dyn Desk, what: &OsStr) -> Result<JobStatus, Failure> {
    if let Some(id) = number(what) {
        let mut jobs = desk.status(Some(id))?;
        return jobs.pop().ok_or_else(|| none(what));
    }
    let place = request::place(what)?;
    let is_it = |job: &JobStatus| job.spec.source == place || job.spec.destination == place;
    desk.status(None)?.into_iter().rev().find(is_it).ok_or_else(|| none(what))
}

/// `7`; a file of that name is `./7`.
pub fn number(what: &OsStr) -> Option<JobId> {
    let digits = what.as_bytes();
    let number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    number.then(|| what.to_str()?.parse().ok()).flatten()
}

fn none(what: &OsStr) -> Failure {
    Failure::invalid(format!(
        "{}: no job has this number, source or destination",
        stage::names::shown(what.as_bytes())
    ))
    .hint("`flashwright stage status --all` lists them")
}

/// A path as a person reads it.
pub fn shown(path: &Path) -> String {
    stage::error::shown(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_job_and_anything_else_a_path() {
        assert_eq!(number(OsStr::new("7")), Some(7));
        for text in ["", "./7", "7a", "-7", "99999999999999999999"] {
            assert_eq!(number(OsStr::new(text)), None, "{text}");
        }
    }
}
