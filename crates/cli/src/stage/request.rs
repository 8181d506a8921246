//! Arguments turned into jobs: places as cp(1) reads them, options as they go over the socket.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use stage::names::PathText;
use stage::parts::{PartId, PartRecord, RunId};
use stage::{JobSpec, Options, Place, StageError, Verb};
use stage_service::store::run_of_environment;

use super::args::OptionArgs;
use crate::failure::Failure;

/// The options of jobs.
pub fn options(args: &OptionArgs) -> Options {
    let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Options {
        bwlimit: args.bwlimit,
        iops_limit: args.iops_limit,
        priority: args.priority,
        deadline: args.deadline.map(seconds),
        preserve: args.preserve,
        digest: args.digest,
        no_manifest: args.no_manifest,
        expected: Vec::new(),
        expected_digest: None,
        semaphore: None,
        latest: args.latest,
        keep_fast: args.keep_fast,
        keep_slow: args.keep_slow,
        background: args.background,
        inward: false,
        part: None,
        parents: args.parents,
    }
}

/// The job of `SRC DST` where SRC is a part of a set, and DST the directory of sets.
pub fn part(
    verb: Verb,
    paths: &[OsString],
    options: Options,
    part: PartId,
    step: u64,
    run: Option<RunId>,
) -> Result<JobSpec, Failure> {
    let [source, slow] = paths else {
        return Err(Failure::invalid(format!(
            "--part: takes SRC and DST, and {} places are named",
            paths.len()
        ))
        .hint("name this rank's part, and the directory of sets"));
    };
    let run = match run {
        Some(run) => Some(run),
        None => run_of_environment(&|name| std::env::var(name).ok())?,
    };
    let run = run.ok_or_else(|| {
        Failure::invalid("--part: nothing tells this launch from others")
            .hint("give the same identity to all ranks: --run ID, another one at each launch")
    })?;
    let PartId { rank, ranks } = part;
    let record = PartRecord { run, step, rank, ranks, node: node() };
    let set = place(slow)?.join(Path::new(&record.set().to_string()))?;
    let spec = JobSpec {
        verb,
        source: place(source)?,
        destination: set.join(Path::new(&part.to_string()))?,
        options: Options { part: Some(record), ..options },
    };
    spec.check_part()?;
    Ok(spec)
}

/// This host, as faults name it.
pub fn node() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The jobs of `SRC… DST`. With `exact`, DST is the name itself.
pub fn jobs(verb: Verb, paths: &[OsString], options: &Options, exact: bool) -> Result<Vec<JobSpec>, Failure> {
    let Some((to, sources)) = paths.split_last().filter(|(_, sources)| !sources.is_empty()) else {
        let only = paths.first().map_or_else(String::new, |path| shown(path));
        return Err(Failure::invalid(format!("'{only}' is one place, and there must be two"))
            .hint("name what is moved, and where to: SRC… DST"));
    };
    let to = Target::of(to, exact)?;
    if sources.len() > 1 && !to.takes_names {
        let why = if exact {
            "-T takes one source".to_owned()
        } else {
            format!("{}: is no directory, and {} sources need one", to.place.shown(), sources.len())
        };
        return Err(Failure::invalid(why)
            .hint("for a directory that is to be made, let a slash follow: --parents DST/"));
    }
    let mut jobs: Vec<JobSpec> = Vec::new();
    for source in sources {
        let source = place(source)?;
        if matches!((&source, &to.place), (Place::Object(_), Place::Object(_))) {
            return Err(Failure::invalid(format!(
                "{} and {} are both in object stores",
                source.shown(),
                to.place.shown()
            ))
            .hint("one of the two is a path"));
        }
        let destination = to.name(&source)?;
        if let Some(twin) = jobs.iter().find(|job| job.destination == destination) {
            return Err(Failure::invalid(format!(
                "{} and {} would both become {}",
                twin.source.shown(),
                source.shown(),
                destination.shown()
            ))
            .hint("move them by two commands, to different names"));
        }
        jobs.push(JobSpec { verb, source, destination, options: options.clone() });
    }
    Ok(jobs)
}

/// Where things go.
struct Target {
    place: Place,
    takes_names: bool,
}

impl Target {
    fn of(text: &OsStr, exact: bool) -> Result<Self, Failure> {
        let place = place(text)?;
        let bytes = text.as_bytes();
        let query = matches!(place, Place::Object(_)).then(|| bytes.iter().position(|byte| *byte == b'?'));
        let slash = bytes[..query.flatten().unwrap_or(bytes.len())].ends_with(b"/");
        let takes_names = !exact && (slash || place.path().is_some_and(Path::is_dir));
        Ok(Self { place, takes_names })
    }

    fn name(&self, source: &Place) -> Result<Place, Failure> {
        if !self.takes_names {
            return Ok(self.place.clone());
        }
        match source.name() {
            Some(name) => Ok(self.place.join(Path::new(&name))?),
            None => Err(Failure::invalid(format!("{}: has no name to be put under", source.shown()))
                .hint("name the destination as well: DST/NAME, with -T if DST/NAME is there")),
        }
    }
}

/// A place as it was typed.
pub fn place(text: &OsStr) -> Result<Place, Failure> {
    match Place::of_name(text)? {
        Place::Path(path) => Ok(Place::Path(PathText(absolute(&path.0)?))),
        url => Ok(url),
    }
}

/// A path from the root, so that another process finds the same, without a slash at its end. Names of symbolic links
/// stay; `..` at its end, which has no name, is looked up.
pub fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    if path.as_os_str().is_empty() {
        return Err(Failure::invalid("a path is empty").hint("name a file or a directory"));
    }
    let wrong = |error| Failure::io(path, "find it from the current directory", &error);
    let full = std::path::absolute(path).map_err(wrong)?;
    let full: PathBuf = full.components().collect();
    if full.components().any(|part| part == std::path::Component::ParentDir) {
        // `a/../b` is not `b` where a is a symbolic link; only the kernel knows.
        return match (full.parent(), full.file_name()) {
            (Some(parent), Some(name)) => Ok(parent.canonicalize().map_err(wrong)?.join(name)),
            _ => full.canonicalize().map_err(wrong),
        };
    }
    Ok(full)
}

/// The file that a flag names, which has to be there.
///
/// # Errors
/// Exit code 2, with the flag: nothing is there, or a directory.
pub fn file(flag: &str, path: &Path) -> Result<PathBuf, Failure> {
    let wrong = |what: &str| {
        Failure::invalid(format!("{flag}={}: {what}", shown(path.as_os_str()))).hint("name a file in TOML")
    };
    let path = absolute(path)?;
    match path.metadata() {
        Ok(facts) if facts.is_dir() => Err(wrong("is a directory")),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(wrong("is not there"))
        }
        // One that may not be read is for the reader to report.
        _ => Ok(path),
    }
}

/// The directory that a flag names, which need not be there.
///
/// # Errors
/// Exit code 2, with the flag: something else has its name, or one of the names above it.
pub fn directory(flag: &str, path: &Path) -> Result<PathBuf, Failure> {
    check_directory(flag, path)?;
    absolute(path)
}

/// [`directory`], for those who need no absolute path.
pub fn check_directory(flag: &str, path: &Path) -> Result<(), StageError> {
    let is_other = match path.metadata() {
        Ok(facts) => !facts.is_dir(),
        Err(error) => error.kind() == ErrorKind::NotADirectory,
    };
    if is_other {
        return Err(StageError::invalid(
            format!("{flag}={}: is not a directory", shown(path.as_os_str())),
            "name a directory; one that is not there is made when it is needed",
        ));
    }
    Ok(())
}

fn shown(text: &OsStr) -> String {
    stage::names::shown(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(paths: &[&str], exact: bool) -> Result<Vec<String>, String> {
        let paths: Vec<OsString> = paths.iter().map(OsString::from).collect();
        jobs(Verb::Copy, &paths, &Options::default(), exact)
            .map(|jobs| jobs.iter().map(|job| job.destination.shown()).collect())
            .map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn destinations_are_those_of_cp() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::create_dir(at("there")).unwrap();
        assert_eq!(to(&["/a/x", &at("there")], false), Ok(vec![at("there/x")]));
        assert_eq!(to(&["/a/x/", &at("there")], false), Ok(vec![at("there/x")]));
        assert_eq!(to(&["/a/x", &at("there")], true), Ok(vec![at("there")]));
        assert_eq!(to(&["/a/x", &at("new")], false), Ok(vec![at("new")]));
        assert_eq!(to(&["/a/x", &at("new/")], false), Ok(vec![at("new/x")]));
        assert_eq!(to(&["/a/x", "/a/y", &at("new/")], false), Ok(vec![at("new/x"), at("new/y")]));
        assert_eq!(
            to(&["/a/x", "/a/y", &at("new")], false),
            Err(format!("{}: is no directory, and 2 sources need one", at("new")))
        );
        assert_eq!(to(&["/a/x", "/b/x", &at("there")], false).unwrap_err(), {
            format!("/a/x and /b/x would both become {}", at("there/x"))
        });
        assert_eq!(to(&["/", &at("there")], false), Err("/: has no name to be put under".to_owned()));
        assert_eq!(to(&["/a/x"], false), Err("'/a/x' is one place, and there must be two".to_owned()));
    }

    #[test]
    fn object_stores_are_told_from_paths() {
        assert_eq!(to(&["/a/x y", "s3://bucket/run/"], false), Ok(vec!["s3://bucket/run/x%20y".to_owned()]));
        assert_eq!(to(&["/a/x", "s3://bucket/run"], false), Ok(vec!["s3://bucket/run".to_owned()]));
        assert_eq!(to(&["s3://bucket/run/c7", "/a/new/"], false), Ok(vec!["/a/new/c7".to_owned()]));
        assert_eq!(to(&["s3://b/c%207?region=x", "/a/new/"], false), Ok(vec!["/a/new/c 7".to_owned()]));
        assert_eq!(to(&["/a/x", "s3://b/r/?region=x"], false), Ok(vec!["s3://b/r/x?region=x".to_owned()]));
        assert!(to(&["s3://bucket", "/a/new/"], false).unwrap_err().contains("has no name to be put under"));
        assert!(to(&["s3://b/x", "s3://b/y"], false).unwrap_err().contains("are both in object stores"));
        assert!(to(&["/a", "gopher://x"], false).unwrap_err().contains("gopher://x: looks like a URL"));
        assert!(to(&["/a", "s3://"], false).unwrap_err().contains("names no bucket"));
        assert!(place(OsStr::new("./s3://x")).unwrap().path().is_some());
    }
}
