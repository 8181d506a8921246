//! What went wrong, as the user is told: one line, a hint, an exit code.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use base::ErrorClass;
use bench::problem::Problem;
use fio::JobFileError;
use measure::UnansweredRequest;
use measure::workload::InvalidWorkload;
use schemars::JsonSchema;
use serde::Serialize;
use sweep::merge::MergeError;
use sweep::run::RunError;
use sweep::space::SpaceError;
use sweep::store::StoreError;

use crate::{paint, terminal};

/// The name of the format.
pub const SCHEMA: &str = "flashwright.error/1";

/// An error as a document, in the place of the one that was asked for.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ErrorDocument {
    /// `flashwright.error/1`.
    schema: &'static str,
    /// What went wrong.
    error: ErrorBody,
}

/// What went wrong.
#[derive(Debug, Serialize, JsonSchema)]
struct ErrorBody {
    /// `invalid`, `refused`, `failed` or `interrupted`.
    class: ErrorClass,
    /// 2, 3, 1 or 130, in the order of classes.
    exit_code: u8,
    /// One line.
    message: String,
    /// What to do about it, where something is known.
    hint: Option<String>,
    /// The request that a drive or a server did not answer in time, where that is what went wrong.
    unanswered: Option<UnansweredRequest>,
}

/// The end of a command that did not do what was asked.
#[derive(Debug)]
pub struct Failure {
    class: ErrorClass,
    message: String,
    hint: Option<String>,
    /// What it consists of, where it is several things at once: a line each.
    details: Vec<String>,
    /// The request that was not answered, where that is it; boxed, so that a result stays small.
    unanswered: Option<Box<UnansweredRequest>>,
    /// Another process tells it.
    told_by_root: bool,
}

/// How long a process that leaves the word to rank 0 waits to be ended with it.
const FOR_ROOT: Duration = Duration::from_secs(5);

impl Failure {
    /// A failure of a class.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            hint: None,
            details: Vec::new(),
            unanswered: None,
            told_by_root: false,
        }
    }

    /// The work failed: exit code 1.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Failed, message)
    }

    /// The request was wrong: exit code 2.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Invalid, message)
    }

    /// It might cost somebody data: exit code 3.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Refused, message)
    }

    /// Somebody asked to stop: exit code 130.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Interrupted, message)
    }

    /// Its class.
    pub fn class(&self) -> ErrorClass {
        self.class
    }

    /// An error with all its causes.
    pub fn of(class: ErrorClass, error: &dyn Error) -> Self {
        Self::new(class, base::with_causes(error))
    }

    /// An operation of the system on a path that failed: exit code 1.
    pub fn io(path: &Path, operation: &str, error: &io::Error) -> Self {
        Self::failed(format!("{}: cannot {operation}: {error}", path.display()))
    }

    /// With what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With what to do about it, if there is something; otherwise the hint that is there stays.
    pub fn hint_if(self, hint: Option<impl Into<String>>) -> Self {
        match hint {
            Some(hint) => self.hint(hint),
            None => self,
        }
    }

    /// With what it consists of, a line each.
    pub fn details(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }

    /// With the request that was not answered, if that is it.
    pub fn unanswered(mut self, request: Option<&UnansweredRequest>) -> Self {
        self.unanswered = request.cloned().map(Box::new);
        self
    }

    /// With what it is about in front: the job, the target.
    pub fn about(mut self, what: impl Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Of one of several processes that meet the same error: only rank 0 prints it.
    pub fn of_root(mut self) -> Self {
        let is_other = ranks::launched().is_some_and(|launch| launch.rank > 0) || ranks::local::is_child();
        self.told_by_root |= is_other;
        self
    }

    /// Class, message, hint, and the request that was not answered.
    pub fn into_parts(self) -> (ErrorClass, String, Option<String>, Option<Box<UnansweredRequest>>) {
        (self.class, self.message, self.hint, self.unanswered)
    }

    /// What went wrong, without what to do about it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it, where there is something.
    pub fn remedy(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Prints it, and gives the exit code.
    pub fn report(&self) -> ExitCode {
        if self.told_by_root {
            // A launcher ends all processes once one has failed, and rank 0 may not have been heard yet: it ends this one.
            if ranks::launched().is_some() {
                std::thread::sleep(FOR_ROOT);
            }
            return ExitCode::from(self.class.exit_code());
        }
        let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut text = format!("{}: {}\n", paint::bad("error"), line(&self.message));
        for detail in &self.details {
            text += &format!("  {}\n", line(detail));
        }
        if let Some(hint) = &self.hint {
            text += &format!("{}: {}\n", paint::good("hint"), line(hint));
        }
        terminal::tell(&text);
        if is_json_asked() && !terminal::has_printed() {
            let body = ErrorBody {
                class: self.class,
                exit_code: self.class.exit_code(),
                message: line(&self.message),
                hint: self.hint.as_deref().map(line),
                unanswered: self.unanswered.as_deref().cloned(),
            };
            // The lines on standard error have said it; a standard output that fails adds nothing to them.
            let document = serde_json::to_string_pretty(&ErrorDocument { schema: SCHEMA, error: body });
            let _ = document.map(|text| terminal::print(&(text + "\n")));
        }
        ExitCode::from(self.class.exit_code())
    }
}

/// Whether documents were asked for, also on a command line that could not be read.
fn is_json_asked() -> bool {
    let flags = std::env::args_os().skip(1).take_while(|word| word != "--");
    flags.into_iter().any(|word| word == "--json" || word == "--output-format=json")
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::of(problem.class(), &problem).hint_if(problem.hint()).unanswered(problem.unanswered())
    }
}

impl From<JobFileError> for Failure {
    fn from(error: JobFileError) -> Self {
        let failure = Self::of(ErrorClass::Invalid, &error).hint(error.hint());
        let details = |fault: &JobFileError| format!("{fault} ({})", fault.hint());
        match error.each() {
            [_] => failure,
            several => failure.details(several.iter().map(details)),
        }
    }
}

impl From<SpaceError> for Failure {
    fn from(error: SpaceError) -> Self {
        Self::of(error.class(), &error).hint_if(error.hint())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::of(error.class(), &error).hint_if(error.hint())
    }
}

impl From<MergeError> for Failure {
    fn from(error: MergeError) -> Self {
        Self::of(error.class(), &error).hint_if(error.hint())
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        // Why, and what to do about it, is known to the device that refused.
        let mut cause: Option<&(dyn Error + 'static)> = error.source();
        while let Some(inner) = cause {
            if let Some(problem) = inner.downcast_ref::<Problem>() {
                return Self::of(error.class(), problem).hint_if(problem.hint());
            }
            cause = inner.source();
        }
        Self::of(error.class(), &error).hint_if(error.hint())
    }
}

/// A contradiction among flags.
impl From<InvalidWorkload> for Failure {
    fn from(invalid: InvalidWorkload) -> Self {
        Self::invalid(format!("--{invalid}")).hint(invalid.hint)
    }
}
