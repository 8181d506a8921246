//! What is to run, and where: from flags, from a workload in TOML, or from a fio job file.
//!
//! A workload from flags or TOML measures for a time: five seconds unless it says otherwise, over its region
//! again and again. In a job file fio's own defaults hold. A flag beside it takes the place of what each of its
//! sections says, as fio's flags do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bench::acts::Act;
use bench::{precondition, saturation};
use fio::JobFile;
use measure::{Workload, options};

use super::args::{BenchArgs, WorkloadArgs};
use super::prepare;
use crate::failure::Failure;

/// How long to measure where nothing says.
const RUNTIME: Duration = Duration::from_secs(5);

/// What is to run.
#[derive(Debug)]
pub struct Request {
    /// One after the other; the jobs of each at the same time.
    pub groups: Vec<Vec<Job>>,
    /// What the user gave up.
    pub destroy: Vec<PathBuf>,
    /// Measure reads of what was never written.
    pub allow_unwritten: bool,
    /// What is done to the target before the run.
    pub prepare: Option<precondition::Plan>,
    /// A write-saturation curve in place of a run.
    pub saturate: Option<saturation::Plan>,
    /// For fio's JSON: what stood in global sections.
    pub global_options: Vec<(String, String)>,
    /// Keys of a job file that change nothing here.
    pub without_effect: Vec<&'static str>,
}

/// A workload and its target.
#[derive(Debug, Clone)]
pub struct Job {
    /// Its name, where it was given one.
    pub name: String,
    /// Device spec.
    pub target: String,
    /// What runs.
    pub workload: Workload,
    /// What to do about a target that is not there.
    pub missing: Missing,
    /// The job of a job file that it comes from.
    pub fio: Option<Box<fio::Job>>,
}

/// What to do about a target that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// It is an error.
    Refuse,
    /// Make a file of so many bytes.
    Make(u64),
    /// Make it, and write all of it before the run: it is going to be read.
    Lay(u64),
}

impl Job {
    /// What its requests do, where they neither move data nor work on a file that holds any: it has no target then.
    #[must_use]
    pub fn act_alone(&self) -> Option<Act> {
        self.act().filter(|act| !act.is_on_file())
    }

    /// What its requests do, where they move no data.
    #[must_use]
    pub fn act(&self) -> Option<Act> {
        self.fio.as_ref().and_then(|fio| fio.act)
    }
}

impl Request {
    /// Reads flags and file.
    pub fn read(args: &BenchArgs) -> Result<Self, Failure> {
        let (prepare, mut saturate) = prepare::plans(&args.prepare)?;
        let Read { groups, global_options, without_effect } = match &args.file {
            Some(path) if !is_toml(path) => read_job_file(args, path)?,
            file => Read { groups: vec![vec![read_workload(args, file.as_deref())?]], ..Read::default() },
        };
        if let (Some(plan), Some(job)) = (&mut saturate, groups.first().and_then(|group| group.first())) {
            prepare::check_saturation(&job.workload)?;
            plan.time = job.workload.runtime.unwrap_or(plan.time);
        }
        Ok(Self {
            groups,
            prepare,
            saturate,
            destroy: args.destroy.clone(),
            allow_unwritten: args.allow_unwritten,
            global_options,
            without_effect,
        })
    }

    /// All jobs.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.groups.iter().flatten()
    }
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"))
}

/// What a file says.
#[derive(Default)]
struct Read {
    groups: Vec<Vec<Job>>,
    global_options: Vec<(String, String)>,
    without_effect: Vec<&'static str>,
}

/// Whether a path is more likely a target than a job file: a device, or a file that begins with what text never has.
fn is_target(path: &Path) -> bool {
    use std::io::Read as _;
    use std::os::unix::fs::FileTypeExt as _;
    let Ok(facts) = std::fs::metadata(path) else { return false };
    let mut start = Vec::new();
    if facts.is_file() {
        let read = std::fs::File::open(path).and_then(|file| file.take(4096).read_to_end(&mut start));
        // A character that the 4096 bytes cut in two is no sign of data.
        let is_text = std::str::from_utf8(&start).map_or_else(|error| error.error_len().is_none(), |_| true);
        return read.is_ok() && (!is_text || start.contains(&0));
    }
    facts.file_type().is_block_device()
}

fn read_job_file(args: &BenchArgs, path: &Path) -> Result<Read, Failure> {
    let is_named_so = path.extension().is_some_and(|extension| extension == "fio" || extension == "job");
    let is_missing = !is_named_so && args.workload.first_given().is_some() && !path.exists();
    if args.target.is_none() && (is_missing || is_target(path)) {
        let path = path.display();
        return Err(Failure::invalid(format!("{path}: is no job file"))
            .hint(format!("did you mean --target {path}?")));
    }
    if let Some(flag) = args.prepare.first_given() {
        return Err(Failure::invalid(format!("--{flag} cannot be combined with a job file"))
            .hint("write the workload as flags, or as TOML"));
    }
    let environment = |name: &str| std::env::var(name).ok();
    let mut flags = args.workload.fio_settings()?;
    if let Some(target) = &args.target {
        flags.push(("filename".to_owned(), filename(target)));
    }
    let file = JobFile::read_with(path, &environment, &flags)?;
    let job = |job| {
        let mut job = fio_job(job);
        args.workload.apply_own(&mut job.workload)?;
        if let (Some(target), None) = (&args.target, job.act_alone()) {
            job.target.clone_from(target);
        }
        Ok::<_, Failure>(job)
    };
    let group = |group: fio::Group| group.jobs.into_iter().map(job).collect::<Result<Vec<_>, _>>();
    Ok(Read {
        groups: file.groups.into_iter().map(group).collect::<Result<_, _>>()?,
        global_options: file.global_options,
        without_effect: file.without_effect,
    })
}

/// A target as `filename` has it. That of a target that is no path has the name of its spec, which no job opens.
fn filename(target: &str) -> String {
    let path = match target.parse::<storage::spec::DeviceSpec>() {
        // Relative to this directory, and not to that of the section.
        Ok(storage::spec::DeviceSpec::Path(path)) => std::path::absolute(&path).unwrap_or(path),
        _ => PathBuf::from(target),
    };
    path.display().to_string().replace(':', "\\:")
}

fn fio_job(job: fio::Job) -> Job {
    let missing = match job.file_bytes() {
        _ if job.is_export || !job.allow_file_create || !works_on_target(&job) => Missing::Refuse,
        Some(bytes) if !job.create_on_open && (job.workload.rw.reads() || job.overwrite) => {
            Missing::Lay(bytes)
        }
        Some(bytes) => Missing::Make(bytes),
        None => Missing::Refuse,
    };
    Job {
        name: job.name.clone(),
        target: match job.files.as_slice() {
            _ if !works_on_target(&job) => acted_on(&job),
            [_, _, ..] => job.device_spec().to_string(),
            _ if job.is_export => job.path.display().to_string(),
            _ => path_spec(&job.path),
        },
        workload: job.workload.clone(),
        missing,
        fio: Some(Box::new(job)),
    }
}

/// Whether a job of a job file works on a file or device that is opened as a target.
fn works_on_target(job: &fio::Job) -> bool {
    job.act.is_none_or(Act::is_on_file)
}

/// What a job works on whose requests move no data.
fn acted_on(job: &fio::Job) -> String {
    match (job.act, job.files.as_slice()) {
        (Some(Act::Names(_)), [only]) => only.display().to_string(),
        (Some(Act::Names(_)), [first, .., last]) => {
            format!("{} … {} ({} names)", first.display(), last.display(), job.files.len())
        }
        (Some(Act::Fault), _) => "memory of its own".to_owned(),
        _ => "nothing".to_owned(),
    }
}

/// A path as a device spec that means that path, whatever its name looks like.
fn path_spec(path: &Path) -> String {
    storage::spec::DeviceSpec::from(path).to_string()
}

/// A workload from its flags and a TOML file, over `default`, which runs for `runtime` unless it says otherwise.
fn written(
    args: &WorkloadArgs,
    file: Option<&Path>,
    default: Workload,
    runtime: Duration,
) -> Result<Written, Failure> {
    let mut written = match file {
        Some(path) => Written::read(path)?,
        None => Written { workload: default, ..Written::default() },
    };
    let workload = &mut written.workload;
    args.apply(workload)?;
    let says_time_based = written.says_time_based || args.has("time_based");
    if !says_time_based {
        workload.time_based = true;
    }
    // Told to end with its region, it needs no other end.
    if workload.runtime.is_none() && workload.time_based {
        workload.runtime = Some(runtime);
    }
    workload.validate().map_err(|invalid| match file {
        Some(path) if !args.has(invalid.option) => {
            Failure::invalid(format!("{}: {invalid}", path.display())).hint(invalid.hint)
        }
        _ => Failure::from(invalid),
    })?;
    Ok(written)
}

/// A workload without a target, which somebody else names.
pub fn workload(args: &WorkloadArgs, file: Option<&Path>) -> Result<Workload, Failure> {
    let written = written(args, file, Workload::default(), RUNTIME)?;
    match (written.target, file) {
        (Some(target), Some(file)) => {
            Err(Failure::invalid(format!("{}: target={target}: the machine is the target", file.display()))
                .hint("take target out of the workload"))
        }
        _ => Ok(written.workload),
    }
}

fn read_workload(args: &BenchArgs, file: Option<&Path>) -> Result<Job, Failure> {
    let (default, runtime) = match args.prepare.wsat {
        true => (saturation::workload(), saturation::Plan::default().time),
        false => (Workload::default(), RUNTIME),
    };
    let written = written(&args.workload, file, default, runtime)?;
    let Some(target) = args.target.clone().or(written.target) else {
        return Err(Failure::invalid("flashwright bench needs --target")
            .hint("name a file, a block device, file:PATH?size=4g or mem:4g: --target SPEC"));
    };
    let workload = written.workload;
    let missing = match workload.size {
        // The first writes into a file that was only made measure the file system's allocation.
        Some(size) if args.prepare.wsat => Missing::Lay(workload.offset.saturating_add(size)),
        Some(size) if workload.rw.modifies() && !workload.rw.reads() => {
            Missing::Make(workload.offset.saturating_add(size))
        }
        Some(size) if workload.rw.modifies() => Missing::Lay(workload.offset.saturating_add(size)),
        _ => Missing::Refuse,
    };
    Ok(Job { name: workload.name.clone(), target, workload, missing, fio: None })
}

/// A workload as a TOML file has it.
#[derive(Debug, Default)]
struct Written {
    workload: Workload,
    target: Option<String>,
    says_time_based: bool,
}

impl Written {
    fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::invalid(format!("{}: cannot read the workload: {error}", path.display()))
                .hint("check the path; a workload in TOML is for instance rw = \"randread\", bs = \"4k\"")
        })?;
        Self::parse(&text).map_err(|(offset, message)| {
            let line = offset.map_or(1, |at| 1 + text[..at.min(text.len())].matches('\n').count());
            Failure::invalid(format!("{}:{line}: {message}", path.display())).hint(
                "a workload has target and the options of `flashwright bench --help`, without the hyphens",
            )
        })
    }

    /// The error is where, in bytes, and what.
    fn parse(text: &str) -> Result<Self, (Option<usize>, String)> {
        /// Keys with their places, and the target, which is not a workload's.
        type Keys = BTreeMap<toml::Spanned<String>, toml::Value>;
        #[derive(serde::Deserialize)]
        struct Beside {
            target: Option<String>,
            time_based: Option<toml::Value>,
        }
        let place_and_message =
            |error: toml::de::Error| (error.span().map(|s| s.start), error.message().to_owned());
        let keys: Keys = toml::from_str(text).map_err(place_and_message)?;
        // Reading a workload keeps unknown options, for the sake of records; here they are misspelt.
        let names = keys.keys().filter(|key| key.get_ref() != "target");
        let mut mistakes =
            names.filter_map(|key| Some((key.span().start, options::unknown_option(key.get_ref())?)));
        if let Some((at, message)) = mistakes.next() {
            return Err((Some(at), message));
        }
        let beside: Beside = toml::from_str(text).map_err(place_and_message)?;
        let mut workload: Workload = toml::from_str(text).map_err(place_and_message)?;
        workload.later_options.clear();
        Ok(Self { workload, target: beside.target, says_time_based: beside.time_based.is_some() })
    }
}

/// What the user should know about a job before it runs.
pub fn notes(request: &Request) -> Vec<String> {
    let of = |job: &Job| job.fio.as_ref().map(|fio| fio.notes.clone()).unwrap_or_default();
    let about = |job: &Job, note: String| format!("{}: {note}", job.name);
    let mut notes: Vec<String> =
        request.jobs().flat_map(|job| of(job).into_iter().map(|note| about(job, note))).collect();
    if !request.without_effect.is_empty() {
        let keys = request.without_effect.join(", ");
        notes.push(format!("without effect here: {keys} (flashwright bench --cmdhelp=KEY says why)"));
    }
    notes
}

/// An error with the job that it is about, where there are several.
pub fn about(failure: Failure, job: &Job, of_several: bool) -> Failure {
    if of_several { failure.about(format!("job '{}'", job.name)) } else { failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toml_workload_may_name_its_target() {
        let written = Written::parse(
            "rw = \"randwrite\"\ntarget = \"mem:1g\" # here\nbs = \"64k\"\ntime_based = false\n",
        )
        .expect("reads");
        assert_eq!(written.target.as_deref(), Some("mem:1g"));
        assert_eq!(written.workload.bs, 65536);
        assert!(written.says_time_based && !written.workload.time_based);
    }

    #[test]
    fn errors_in_toml_keep_their_place() {
        let text = "target = \"mem:1g\"\nrw = \"randread\"\niodeph = 4\n";
        let (at, message) = Written::parse(text).unwrap_err();
        assert_eq!(text[..at.expect("a place")].matches('\n').count(), 2);
        assert!(message.contains("iodeph"), "{message}");
        assert!(Written::parse("rw = ").is_err());
        assert!(Written::parse("target = 5").is_err());
    }
}
