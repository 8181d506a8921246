//! What may be wrong with a job file. Every error names the file, the line, the option and its value.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A line of a job file, printed as `jobs/read.fio:12`, or the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    file: Arc<Path>,
    line: usize,
}

impl Location {
    pub(super) fn new(file: &Arc<Path>, line: usize) -> Self {
        Self { file: Arc::clone(file), line }
    }

    /// The flags beside a job file.
    pub(super) fn of_flags() -> Self {
        Self { file: Arc::from(Path::new("command line")), line: 0 }
    }

    /// The file, as it was named.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The line, from 1; 0 for a flag beside the file.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.file.display()),
            line => write!(f, "{}:{line}", self.file.display()),
        }
    }
}

/// The option at fault, in its main spelling, and what is wrong with it.
pub(super) type Fault = (&'static str, Problem);

/// Why a job file does not run here. Nothing has been touched when it is returned.
#[derive(Debug, thiserror::Error)]
pub enum JobFileError {
    /// The job file, or a file that it includes, cannot be read.
    #[error("cannot read job file {}{}", path.display(), included_from(.from.as_ref()))]
    Read {
        /// The file.
        path: PathBuf,
        /// The line that includes it, unless it is the job file itself.
        from: Option<Location>,
        /// The kernel's reason.
        #[source]
        source: io::Error,
    },
    /// A file that cannot be a job file: too large, or no text.
    #[error("{} is no job file: {reason}", path.display())]
    NotAJobFile {
        /// The file.
        path: PathBuf,
        /// What gives it away.
        reason: String,
    },
    /// A line that is neither a section, an option nor a comment, or stands where it must not.
    #[error("{at}: {reason}")]
    Syntax {
        /// Where.
        at: Location,
        /// What is wrong.
        reason: String,
        /// What to write instead.
        hint: String,
    },
    /// A key that neither fio nor flashwright knows.
    #[error("{at}: '{key}' is not an option")]
    UnknownKey {
        /// Where.
        at: Location,
        /// The key.
        key: String,
        /// The nearest known key, or where to look.
        hint: String,
    },
    /// A key or value of fio's that flashwright does not honour, or that makes no sense.
    #[error("{at}: {}: {reason}", setting(key, .value.as_deref()))]
    Refused {
        /// Where.
        at: Location,
        /// The key, as it was written.
        key: String,
        /// Its value after substitution, where it has one.
        value: Option<String>,
        /// What is wrong with it.
        reason: String,
        /// What to write instead.
        hint: String,
    },
    /// Several settings that do not run here, or make no sense, each with its line.
    #[error("{}: {} settings do not run here", path.display(), faults.len())]
    Several {
        /// The job file.
        path: PathBuf,
        /// In the order of their lines; each is [`Refused`](Self::Refused), [`UnknownKey`](Self::UnknownKey) or
        /// [`Syntax`](Self::Syntax).
        faults: Vec<JobFileError>,
    },
    /// Nothing to run.
    #[error("{} has no job section", path.display())]
    NoJobs {
        /// The job file.
        path: PathBuf,
    },
}

impl JobFileError {
    /// What to do about it, in a few words.
    #[must_use]
    pub fn hint(&self) -> &str {
        match self {
            Self::Read { .. } => "check the path and its permissions",
            Self::NotAJobFile { .. } => "a job file is text of the form [section], then key=value lines",
            Self::NoJobs { .. } => "add one: [job], then rw=randread, filename=…",
            Self::Several { .. } => "flashwright bench --cmdhelp says what becomes of each key",
            Self::Syntax { hint, .. } | Self::UnknownKey { hint, .. } | Self::Refused { hint, .. } => hint,
        }
    }

    /// The single errors that it consists of: itself, unless there are several.
    #[must_use]
    pub fn each(&self) -> &[Self] {
        match self {
            Self::Several { faults, .. } => faults,
            single => std::slice::from_ref(single),
        }
    }

    /// Where in the file, if it is about a line.
    #[must_use]
    pub fn location(&self) -> Option<&Location> {
        match self {
            Self::Read { from, .. } => from.as_ref(),
            Self::NotAJobFile { .. } | Self::NoJobs { .. } | Self::Several { .. } => None,
            Self::Syntax { at, .. } | Self::UnknownKey { at, .. } | Self::Refused { at, .. } => Some(at),
        }
    }
}

fn included_from(from: Option<&Location>) -> String {
    from.map(|at| format!(", included at {at}")).unwrap_or_default()
}

fn setting(key: &str, value: Option<&str>) -> String {
    value.map_or_else(|| key.to_owned(), |value| format!("{key}={value}"))
}

/// What is wrong with one value, before it is known where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub reason: String,
    pub hint: String,
}

impl Problem {
    pub fn new(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { reason: reason.into(), hint: hint.into() }
    }
}

/// What is wrong with a job file, gathered so that it can all be mended at once.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<JobFileError>);

impl Faults {
    /// Adds an error. Of those about one line the first is kept: the others may follow from it, and a line of a global
    /// section is read once for each job.
    pub fn push(&mut self, error: JobFileError) {
        let at = error.location();
        if at.is_none() || !self.0.iter().any(|earlier| earlier.location() == at) {
            self.0.push(error);
        }
    }

    pub fn into_iter(self) -> impl Iterator<Item = JobFileError> {
        self.0.into_iter()
    }

    pub fn extend(&mut self, errors: impl IntoIterator<Item = JobFileError>) {
        errors.into_iter().for_each(|error| self.push(error));
    }

    pub fn retain(&mut self, keep: impl Fn(&JobFileError) -> bool) {
        self.0.retain(keep);
    }

    /// # Errors
    /// The one error, or all of them, in the order of their lines.
    pub fn into_result(mut self, path: &Path) -> Result<(), JobFileError> {
        // Those of included files come last.
        let line = |error: &JobFileError| match error.location() {
            Some(at) if at.file() == path => at.line(),
            _ => usize::MAX,
        };
        self.0.sort_by_key(line);
        match self.0.len() {
            0 => Ok(()),
            1 => Err(self.0.remove(0)),
            _ => Err(JobFileError::Several { path: path.to_owned(), faults: self.0 }),
        }
    }
}
