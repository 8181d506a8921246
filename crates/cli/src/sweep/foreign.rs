//! Another flashwright that measures one side of a sweep: each run is a `bench` of it, whose record is taken over.
//!
//! 1. The program is known by its path, version and contents, which are kept with the results; a resumed sweep refuses another one.
//! 2. Its defaults may be others than ours. A record of another workload or target than was asked for is no record.
//! 3. While it runs it holds the sweep's lock, as its standard input: if this process is killed, nobody goes on with the
//!    sweep before the run that is under way has ended.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use base::ErrorClass;
use bench::target::TargetOptions;
use measure::options::{self, OPTIONS, WorkloadOption};
use measure::record::{RunRecord, TargetFacts};
use measure::{Target, TargetError, UnansweredRequest, Workload};
use xxhash_rust::xxh3::xxh3_64;

use crate::failure::Failure;

/// Where a side's program is kept with the results.
pub fn note(side: &str) -> String {
    format!("binary of {side}")
}

/// A program that says that it is a flashwright.
#[derive(Debug, Clone)]
pub struct Binary {
    path: PathBuf,
    version: String,
    /// Of its contents.
    digest: u64,
}

impl Binary {
    /// Asks the program behind `flag` for its version.
    pub fn find(flag: &str, path: &Path) -> Result<Self, Failure> {
        let wrong = |why: String| {
            Failure::invalid(format!("{flag}={}: {why}", path.display()))
                .hint("name the flashwright that this side is to be measured by")
        };
        let path = std::path::absolute(path).map_err(|error| wrong(error.to_string()))?;
        let answer = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let answer = answer.map_err(|error| wrong(format!("cannot be started: {error}")))?;
        let version = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
        if !answer.status.success() || !version.starts_with("flashwright ") {
            return Err(wrong("is no flashwright".to_owned()));
        }
        let contents = std::fs::read(&path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        Ok(Self { path, version, digest: xxh3_64(&contents) })
    }

    /// The program of a note, if it is still the same.
    pub fn kept(side: &str, note: &str) -> Result<Self, Failure> {
        let path = note.lines().next().unwrap_or_default();
        let found = Self::find(&format!("--binary-{}", side.to_lowercase()), Path::new(path))?;
        if found.note() == note {
            return Ok(found);
        }
        let text = format!("{path}: is another program than the one that measured side {side} so far");
        Err(Failure::refused(text).hint("put the former one back, or begin another sweep"))
    }

    /// What is kept of it.
    pub fn note(&self) -> String {
        format!("{}\n{}\n{:016x}", self.path.display(), self.version, self.digest)
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `flashwright 0.1.0`.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// A target that another program measures.
#[derive(Debug)]
pub struct ForeignTarget {
    binary: PathBuf,
    facts: TargetFacts,
    options: TargetOptions,
    /// The sweep's lock.
    lock: File,
}

impl ForeignTarget {
    /// The target of `facts`, measured by `binary` with what the user allows, under the sweep's lock.
    pub fn new(binary: &Binary, facts: TargetFacts, options: TargetOptions, lock: File) -> Self {
        Self { binary: binary.path.clone(), facts, options, lock }
    }

    fn command(&self, workload: &Workload) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(["bench", "--json", "--target", &self.facts.spec]);
        for option in options::differing(workload) {
            command.args(option.text(workload).map(|text| format!("--{}={text}", option.name)));
        }
        for device in &self.options.destroy {
            command.arg("--destroy").arg(device);
        }
        if self.options.allow_unwritten {
            command.arg("--allow-unwritten");
        }
        command
    }
}

impl Target for ForeignTarget {
    fn facts(&self) -> &TargetFacts {
        &self.facts
    }

    fn run(&mut self, workload: &Workload) -> Result<RunRecord, TargetError> {
        let mut command = self.command(workload);
        let answer = self.lock.try_clone().and_then(|lock| command.stdin(lock).output());
        let answer = answer.map_err(|error| {
            TargetError::Failed(format!("cannot start {}: {error}", self.binary.display()).into())
        })?;
        if !answer.status.success() {
            return Err(failure(&self.binary, &answer));
        }
        #[derive(serde::Deserialize)]
        struct Document {
            record: RunRecord,
        }
        let failed = |text: String| TargetError::Failed(format!("{} {text}", self.binary.display()).into());
        let record = serde_json::from_slice::<Document>(&answer.stdout)
            .map_err(|error| failed(format!("printed no record that can be read: {error}")))?
            .record;
        match difference(workload, &record.workload) {
            Some(difference) => Err(failed(format!("measured something else: {difference}"))),
            None if record.target.spec != self.facts.spec => {
                Err(failed(format!("measured another target: {}", record.target.spec)))
            }
            None => Ok(record),
        }
    }
}

/// The first option in which a workload is not what was asked for.
fn difference(asked: &Workload, ran: &Workload) -> Option<String> {
    let text =
        |option: &WorkloadOption, of: &Workload| option.text(of).unwrap_or_else(|| "nothing".to_owned());
    let differs = |option: &&WorkloadOption| option.get(asked) != option.get(ran);
    OPTIONS
        .iter()
        .find(differs)
        .map(|option| format!("{}={} in place of {}", option.name, text(option, ran), text(option, asked)))
}

/// What a run that ended badly comes to: its exit code has the class, its first line the reason, and its document the request
/// that was not answered, which ends the sweep as it does where this process made it.
fn failure(binary: &Path, answer: &Output) -> TargetError {
    #[derive(serde::Deserialize)]
    struct Document {
        error: ErrorBody,
    }
    #[derive(serde::Deserialize)]
    struct ErrorBody {
        // Earlier versions do not tell it from other errors.
        unanswered: Option<UnansweredRequest>,
    }
    let said = String::from_utf8_lossy(&answer.stderr);
    let reason = said.lines().next().unwrap_or("it said nothing");
    let classes = [ErrorClass::Invalid, ErrorClass::Refused, ErrorClass::Interrupted];
    let is_code = |class: &ErrorClass| answer.status.code() == Some(i32::from(class.exit_code()));
    let class = classes.into_iter().find(is_code).unwrap_or(ErrorClass::Failed);
    let source = format!("{}: {}: {reason}", binary.display(), answer.status).into();
    match serde_json::from_slice::<Document>(&answer.stdout)
        .ok()
        .and_then(|document| document.error.unanswered)
    {
        Some(request) => TargetError::Unanswered { request: Box::new(request), source },
        None => TargetError::new(class, source),
    }
}
