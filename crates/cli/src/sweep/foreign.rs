//! Another flashwright that measures one side of a sweep: each run is a `bench` of it, whose record is taken over.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use base::ErrorClass;
use bench::target::TargetOptions;
use measure::record::{RunRecord, TargetFacts};
use measure::{Target, TargetError, Workload, options};

use crate::failure::Failure;

/// Where the path of a side's program is kept with the results.
pub fn note(side: &str) -> String {
    format!("binary of {side}")
}

/// A program that says that it is a flashwright.
#[derive(Debug, Clone)]
pub struct Binary {
    path: PathBuf,
    version: String,
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
        match answer.status.success() && version.starts_with("flashwright ") {
            true => Ok(Self { path, version }),
            false => Err(wrong("is no flashwright".to_owned())),
        }
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
}

impl ForeignTarget {
    /// The target of `facts`, measured by `binary` with what the user allows.
    pub fn new(binary: &Path, facts: TargetFacts, options: TargetOptions) -> Self {
        Self { binary: binary.to_owned(), facts, options }
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
        let answer = command.stdin(Stdio::null()).output();
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
        let read = serde_json::from_slice::<Document>(&answer.stdout);
        read.map(|document| document.record).map_err(|error| {
            let text = format!("{} printed no record that can be read: {error}", self.binary.display());
            TargetError::Failed(text.into())
        })
    }
}

/// What a run that ended badly comes to: its exit code has the class, its first line the reason.
fn failure(binary: &Path, answer: &Output) -> TargetError {
    let said = String::from_utf8_lossy(&answer.stderr);
    let reason = said.lines().next().unwrap_or("it said nothing");
    let classes = [ErrorClass::Invalid, ErrorClass::Refused, ErrorClass::Interrupted];
    let is_code = |class: &ErrorClass| answer.status.code() == Some(i32::from(class.exit_code()));
    let class = classes.into_iter().find(is_code).unwrap_or(ErrorClass::Failed);
    TargetError::new(class, format!("{}: {}: {reason}", binary.display(), answer.status).into())
}
