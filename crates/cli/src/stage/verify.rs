//! `flashwright stage verify`, and looking whether something is at its destination already.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rustix::fs::{FileType, Mode, OFlags};
use stage::journal::{Digests, Journal};
use stage::manifest::{self, Entry};
use stage::names::{PathText, joined};
use stage::pace::{Progress, Stop};
use stage::set::{Manifest, Times};
use stage::{Algorithm, JobSpec, JobStatus, Place, StageError, State, Verb};

use super::args::VerifyArgs;
use super::desk::{self, Server, shown};
use super::documents::{Fault, StageVerify};
use super::request;
use crate::failure::Failure;
use crate::{output, signals};

/// Entries of a journal that are taken at a time.
const PAGE: usize = 10_000;
/// Faults that are told one by one.
const TOLD: usize = 20;

/// Compares what is stored with what was written.
pub fn verify(args: &VerifyArgs) -> Result<(), Failure> {
    let stop = Stop::from(signals::stop_flag()?);
    let (path, found) = match (desk::number(&args.what), request::place(&args.what)?) {
        (None, Place::Path(path)) if path.0.join(manifest::NAME).is_file() => {
            let found = by_manifest(&path.0, args.bwlimit, &stop)?;
            (path.0, found)
        }
        (None, Place::Object(url)) => in_store(url.as_str(), args.bwlimit, &stop)?,
        (None, Place::Path(path)) if std::fs::symlink_metadata(&path.0).is_err() => {
            return Err(absent(args, &path.0));
        }
        _ => of_job(args, &stop)?,
    };
    report(args, &path, found)
}

/// Nothing has the name. A copy that a job has made and that is gone is what `verify` is to find out; of anything else the
/// name is wrong.
fn absent(args: &VerifyArgs, path: &Path) -> Failure {
    let known = desk::known_jobs(&args.server).unwrap_or_default();
    let is_made = |job: &JobStatus| {
        matches!(job.state, State::Committed | State::Done) && job.spec.destination.path() == Some(path)
    };
    let what = format!("{}: is not there", shown(path));
    match known.iter().flat_map(|(_, jobs)| jobs).rfind(|job| is_made(job)) {
        Some(job) => Failure::failed(format!("{what}, where a copy of {} was made", job.spec.source.shown()))
            .hint("copy it again from a copy that is right"),
        None => Failure::invalid(what).hint("name what was made, or the number of the job that made it"),
    }
}

/// What a job made, by the journal's word.
fn of_job(args: &VerifyArgs, stop: &Stop) -> Result<(PathBuf, Found), Failure> {
    let (job, state) = find_job(args)?;
    if !matches!(job.state, State::Committed | State::Done) {
        return Err(Failure::failed(format!(
            "job {}: is {}, and has made nothing yet",
            job.id,
            job.state.word()
        ))
        .hint("wait for it first: flashwright stage wait"));
    }
    let path = match &job.spec.destination {
        Place::Path(path) => path.0.clone(),
        Place::Object(url) => return in_store(url.as_str(), args.bwlimit, stop),
    };
    if path.join(manifest::NAME).is_file() {
        let found = by_manifest(&path, args.bwlimit, stop)?;
        return Ok((path, found));
    }
    if path.is_dir() && !job.spec.options.no_manifest {
        let fault = Fault {
            path: PathText(manifest::NAME.into()),
            offset: None,
            what: "the manifest that was written with it is gone, and without it nothing can be compared"
                .into(),
        };
        return Ok((path, Found { faults: vec![fault], ..Found::default() }));
    }
    let found = by_journal(&state, &job, &path, args.bwlimit, stop)?;
    Ok((path, found))
}

/// A set in an object store. What it is called takes a path's place in messages.
fn in_store(url: &str, bwlimit: Option<u64>, stop: &Stop) -> Result<(PathBuf, Found), Failure> {
    #[cfg(feature = "s3")]
    return super::objects::verify(url, bwlimit, stop).map(|(name, found)| (name.into(), found));
    #[cfg(not(feature = "s3"))]
    {
        let _ = (bwlimit, stop);
        Err(Failure::invalid(format!("{url}: this program is built without object stores")))
    }
}

/// A job and the journal that has it: the server's, or one of a command without a server. A path is what the job made,
/// and not what it read: of a source, another place would be verified than the one that was named.
fn find_job(args: &VerifyArgs) -> Result<(JobStatus, PathBuf), Failure> {
    let number = desk::number(&args.what);
    let no_server: Failure = match Server::needed(&args.server) {
        Ok(server) if number.is_some() => match desk::job(&server, &args.what) {
            Ok(job) => return Ok((job, server.facts().state.0.clone())),
            Err(failure) => failure,
        },
        Ok(_) => Failure::failed("the server does not know it"),
        Err(failure) => failure,
    };
    let place = request::place(&args.what)?;
    let is_made = |job: &JobStatus| matches!(job.state, State::Committed | State::Done);
    let mut newest: Option<(JobStatus, PathBuf)> = None;
    let mut copied = None;
    for (index, (state, jobs)) in desk::known_jobs(&args.server)?.into_iter().enumerate() {
        // Numbers are those of the server's journal alone.
        if number.is_some() && index > 0 {
            break;
        }
        // By number, the newest last: a clock that was set back makes a later job look older. Only of different
        // journals is there nothing else to go by.
        let made = |job: &&JobStatus| {
            let meant = number.map_or_else(|| job.spec.destination == place, |number| job.id == number);
            meant && is_made(job)
        };
        if let Some(job) = jobs.iter().rfind(made)
            && newest.as_ref().is_none_or(|(other, _)| job.created >= other.created)
        {
            newest = Some((job.clone(), state));
        }
        copied = copied.or_else(|| jobs.into_iter().rfind(|job| job.spec.source == place && is_made(job)));
    }
    newest.ok_or_else(|| match copied {
        _ if number.is_some() => no_server,
        Some(job) => {
            let copy = job.spec.destination.shown();
            Failure::invalid(format!("{}: has no manifest; its copy is {copy}", place.shown()))
                .hint(format!("to read that one: flashwright stage verify {copy}"))
        }
        None => Failure::invalid(format!(
            "{}: has no manifest, and no journal knows it",
            stage::names::shown(args.what.as_bytes())
        ))
        .hint("only what flashwright stage has copied can be compared with what it was"),
    })
}

/// What reading came to.
#[derive(Debug, Default)]
pub struct Found {
    /// Files that were read.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// What is there and not in the manifest.
    pub unknown: Vec<PathText>,
}

/// Reads a directory with a manifest.
pub fn by_manifest(path: &Path, bwlimit: Option<u64>, stop: &Stop) -> Result<Found, StageError> {
    let root = open(path)?;
    let (file, shown) = manifest_of(path)?;
    let mut reader = manifest::Reader::new(BufReader::with_capacity(1 << 20, file), shown)?;
    let (algorithm, chunk_bytes) = (reader.header().algorithm, reader.header().chunk_bytes);
    let mut names = HashSet::new();
    let mut next = || {
        let entry = reader.next_entry()?;
        if let Some(entry) = &entry {
            names.insert(key(&entry.path.0));
        }
        Ok(entry)
    };
    let mut found = read(&root, path, algorithm, chunk_bytes, bwlimit, stop, &mut next)?;
    names.insert(key(Path::new("")));
    names.insert(key(Path::new(manifest::NAME)));
    found.unknown = unknown(&root, path, &names)?;
    Ok(found)
}

fn manifest_of(path: &Path) -> Result<(File, String), StageError> {
    let path = path.join(manifest::NAME);
    let file = File::open(&path).map_err(|error| StageError::io("open", &path, error))?;
    Ok((file, shown(&path)))
}

/// Reads what a job made and compares it with the digests that the journal has recorded.
///
/// # Errors
/// [`StageError::Invalid`] if the journal has none: then nothing was compared.
fn by_journal(
    state: &Path,
    job: &JobStatus,
    path: &Path,
    bwlimit: Option<u64>,
    stop: &Stop,
) -> Result<Found, StageError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let single = std::fs::symlink_metadata(path).is_ok_and(|facts| !facts.is_dir());
    let (root, at) = if single { (open(parent)?, parent) } else { (open(path)?, path) };
    let mut page: std::collections::VecDeque<Entry> = std::collections::VecDeque::new();
    let mut after: Option<PathBuf> = None;
    let mut recorded = 0_u64;
    let mut names = HashSet::from([key(Path::new(""))]);
    let mut next = || {
        if page.is_empty() {
            let entries = Journal::peek_entries(state, job.id, after.as_deref(), PAGE)?;
            after = entries.last().map(|done| done.entry.path.0.clone()).or(after.take());
            page.extend(entries.into_iter().map(|done| done.entry));
        }
        let mut entry = page.pop_front();
        recorded += u64::from(entry.is_some());
        if let Some(entry) = entry.as_ref().filter(|_| !single) {
            names.insert(key(&entry.path.0));
        }
        if let (Some(entry), true, Some(name)) = (&mut entry, single, path.file_name()) {
            // A single file is the empty path of its job.
            entry.path = PathText(name.into());
        }
        Ok(entry)
    };
    let Digests { algorithm, chunk_bytes } = Journal::peek_digests(state, job.id, &job.spec)?;
    let mut found = read(&root, at, algorithm, chunk_bytes, bwlimit, stop, &mut next)?;
    if recorded == 0 {
        return Err(StageError::invalid(
            format!("{}: nothing was compared: the journal has no digests of it", shown(path)),
            "only what was copied by this journal's jobs can be compared",
        ));
    }
    if single {
        // It is named once, not beneath itself.
        found.faults.iter_mut().for_each(|fault| fault.path = PathText::default());
    } else {
        found.unknown = unknown(&root, path, &names)?;
    }
    Ok(found)
}

/// Compares entries with what is stored, with a bar where somebody watches.
fn read(
    root: &OwnedFd,
    path: &Path,
    algorithm: Algorithm,
    chunk_bytes: u64,
    bwlimit: Option<u64>,
    stop: &Stop,
    next: &mut (dyn FnMut() -> Result<Option<Entry>, StageError> + Send),
) -> Result<Found, StageError> {
    let progress = Progress::default();
    let faults = Mutex::new(Vec::new());
    let begun = Instant::now();
    let mut handed_out = 0_u64;
    let bar = bar();
    let mut paced = || {
        let entry = next()?;
        if let (Some(entry), Some(limit)) = (&entry, bwlimit) {
            // What was handed out takes as long as it may take before more is.
            let due = Duration::from_secs_f64(handed_out as f64 / limit as f64);
            while let Some(wait) = due.checked_sub(begun.elapsed()).filter(|wait| !wait.is_zero()) {
                stop.check()?;
                std::thread::sleep(wait.min(Duration::from_millis(100)));
            }
            handed_out += entry.size;
        }
        tick(&bar, &progress);
        Ok(entry)
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
    let fault = |error: StageError| match error {
        StageError::Stopped { .. } => Err(error),
        error => {
            faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault_of(path, &error));
            Ok(())
        }
    };
    let ended =
        stage::verify::tree(root, path, algorithm, chunk_bytes, threads, &progress, stop, &mut paced, &fault);
    bar.finish_and_clear();
    ended?;
    let mut faults = faults.into_inner().unwrap_or_else(PoisonError::into_inner);
    faults.sort_by(|a, b| (&a.path, a.offset).cmp(&(&b.path, b.offset)));
    let counted = |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::Relaxed);
    Ok(Found {
        files: counted(&progress.files_done),
        bytes: counted(&progress.bytes_verified),
        faults,
        unknown: Vec::new(),
    })
}

/// What is told of an error, whose path lies beneath `root`.
pub fn fault_of(root: &Path, error: &StageError) -> Fault {
    let inside = |text: &str| {
        let base = shown(root);
        let inner = text.strip_prefix(&base).map(|rest| rest.trim_start_matches('/'));
        PathText(inner.unwrap_or(text).into())
    };
    match error {
        StageError::Corrupt { path, offset, expected, found } => Fault {
            path: inside(path),
            offset: Some(*offset),
            what: format!("{expected} expected, {found} found"),
        },
        StageError::Io { path, operation, offset, source } => {
            Fault { path: inside(path), offset: *offset, what: format!("cannot {operation} it: {source}") }
        }
        other => Fault { path: PathText::default(), offset: None, what: other.to_string() },
    }
}

/// Does what counts bytes read back, with a bar where somebody watches.
#[cfg(feature = "s3")]
pub fn watched<T: Send>(progress: &Progress, work: impl FnOnce() -> T + Send) -> T {
    let bar = bar();
    let done = std::thread::scope(|scope| {
        let worker = scope.spawn(work);
        while !worker.is_finished() {
            tick(&bar, progress);
            std::thread::sleep(Duration::from_millis(50));
        }
        worker.join()
    });
    bar.finish_and_clear();
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn bar() -> ProgressBar {
    let bar = crate::sweep::watch::bytes(0, output::is_watched());
    bar.set_length(0);
    bar
}

fn tick(bar: &ProgressBar, progress: &Progress) {
    let bytes = progress.bytes_verified.load(std::sync::atomic::Ordering::Relaxed);
    bar.set_position(bytes);
    bar.set_message(format!("{} read back", units::bytes(bytes)));
}

/// What is in a directory that the manifest does not know.
fn unknown(root: &OwnedFd, path: &Path, names: &HashSet<[u8; 16]>) -> Result<Vec<PathText>, StageError> {
    let mut unknown = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(inside) = directories.pop() {
        let beneath = if inside.as_os_str().is_empty() { Path::new(".") } else { &inside };
        let failed = |error| StageError::io("list", &path.join(&inside), error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory =
            stage::calls::open_beneath(root.as_fd(), beneath, flags, Mode::empty()).map_err(failed)?;
        for (name, _) in stage::calls::list(directory.as_fd()).map_err(failed)? {
            let entry = inside.join(&name);
            if !names.contains(&key(&entry)) {
                unknown.push(PathText(entry));
                continue;
            }
            let facts = stage::calls::stat_at(directory.as_fd(), &name).map_err(failed)?;
            if FileType::from_raw_mode(facts.stx_mode.into()) == FileType::Directory {
                directories.push(entry);
            }
        }
    }
    unknown.sort();
    Ok(unknown)
}

/// A path in 16 bytes, so that a million of them are not too many.
fn key(path: &Path) -> [u8; 16] {
    let digest = Algorithm::Xxh3.of(path.as_os_str().as_bytes());
    let mut key = [0; 16];
    key.copy_from_slice(&digest.0[..16]);
    key
}

fn open(path: &Path) -> Result<OwnedFd, StageError> {
    stage::calls::open_directory(path).map_err(|error| StageError::io("open", path, error))
}

fn report(args: &VerifyArgs, path: &Path, found: Found) -> Result<(), Failure> {
    let right = found.faults.is_empty();
    let verdict = match found.faults.as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::failed(fault_words(path, one))),
        many => Err(Failure::failed(format!(
            "{}: {} faults, the first: {}",
            shown(path),
            many.len(),
            fault_words(path, &many[0])
        ))),
    };
    let verdict = verdict.map_err(|failure| failure.hint("copy it again from a copy that is right"));
    if args.json {
        let document = StageVerify {
            schema: "flashwright.stage-verify/1",
            path: PathText(path.to_owned()),
            right,
            files: found.files,
            bytes: found.bytes,
            faults: found.faults,
            unknown: found.unknown,
        };
        output::print_document(&document)?;
        return verdict;
    }
    if found.faults.len() > 1 {
        for fault in found.faults.iter().take(TOLD) {
            output::print(&format!("{}\n", fault_words(path, fault)))?;
        }
        if found.faults.len() > TOLD {
            output::print(&format!("… and {} more; --json lists them\n", found.faults.len() - TOLD))?;
        }
    }
    if right {
        output::print(&format!(
            "{}: {}, {}, all as they were written\n",
            shown(path),
            units::counted(found.files, "file"),
            units::bytes(found.bytes)
        ))?;
    }
    for name in found.unknown.iter().take(TOLD) {
        output::tell(&format!(
            "note: {}: is there, and was not written with it\n",
            shown(&path.join(&name.0))
        ));
    }
    verdict
}

fn fault_words(path: &Path, fault: &Fault) -> String {
    let name =
        if fault.path.0.as_os_str().is_empty() { shown(path) } else { shown(&path.join(&fault.path.0)) };
    let at = fault.offset.map_or_else(String::new, |offset| format!(" at offset {offset}"));
    format!("{name}: is not as it was written{at}: {}", fault.what)
}

/// Is what a job would make at its destination, whole and right, and is the source of a copy, if it is still there, the
/// same? False for a move whose source is there: the job compares both, and removes the source. `known`: the newest job between
/// the same places, and the state directory of its journal, by whose word goes what has no manifest.
pub fn is_there(
    job: &JobSpec,
    stop: &Stop,
    known: &dyn Fn() -> Result<Option<(JobStatus, PathBuf)>, Failure>,
) -> Result<bool, Failure> {
    let done = || Ok::<_, Failure>(known()?.filter(|(made, _)| made.state == State::Done));
    #[cfg(feature = "s3")]
    if let (Some(source), Place::Object(url)) = (job.source.path(), &job.destination) {
        let is_copied = || is_source_copied(job, done()?.as_ref().map(|(made, _)| made));
        return super::objects::is_there(job, source, url, &is_copied, stop);
    }
    let (Some(source), Some(destination)) = (job.source.path(), job.destination.path()) else {
        return Ok(false);
    };
    let Ok(facts) = std::fs::symlink_metadata(destination) else { return Ok(false) };
    let made = done()?;
    // A link is no manifest: what it leads to is not in the set.
    let is_file = |path: &Path| path.symlink_metadata().is_ok_and(|facts| facts.is_file());
    let has_manifest = facts.is_dir() && is_file(&destination.join(manifest::NAME));
    let is_recorded =
        |made: &JobStatus| !facts.is_dir() || made.spec.options.no_manifest && job.options.no_manifest;
    let recorded = made.as_ref().filter(|(made, _)| !has_manifest && is_recorded(made));
    if !has_manifest && recorded.is_none() {
        return Ok(false);
    }
    if has_manifest && let Some(manifest) = Manifest::read(open(destination)?.as_fd(), destination)? {
        if !is_as_listed(job, &manifest)? {
            return Ok(false);
        }
        if let Some(how) = changed_since(job, source, &manifest)? {
            return Err(another(&shown(destination), &how));
        }
    }
    if has_source(job, source) && !is_source_copied(job, made.as_ref().map(|(made, _)| made))? {
        // The job, asked for again, compares bytes.
        return Ok(false);
    }
    // Another program may have put it there, and not have synced it.
    stage::make_durable(destination, None, stop)?;
    let found = match recorded {
        Some((made, state)) => by_journal(state, made, destination, None, stop)?,
        None => by_manifest(destination, None, stop)?,
    };
    verdict(destination, &found)
}

/// Is the source of a copy still what a job that is done has copied? Names, sizes and times do not tell whether the bytes at
/// the destination are those. A move has its source to remove. Of a source in memory they tell nothing: stores through a shared
/// mapping move no time.
fn is_source_copied(job: &JobSpec, made: Option<&JobStatus>) -> Result<bool, Failure> {
    if stage::mounts::of_place(&job.source, false).is_none_or(|mount| mount.is_in_memory()) {
        return Ok(false);
    }
    let copied = made.filter(|_| job.verb == Verb::Copy).and_then(|made| made.source);
    Ok(copied.is_some() && stage::runner::fingerprint_of(job, &super::tiers())? == copied)
}

/// Is something of what a job copies at its source? What cannot be looked at may be. Of a directory in which files are listed
/// others are no affair of the job.
pub fn has_source(job: &JobSpec, source: &Path) -> bool {
    let may_be = |path: &Path| {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        !path.symlink_metadata().is_err_and(|error| matches!(error.kind(), NotADirectory | NotFound))
    };
    let listed = &job.options.expected;
    may_be(source) && (listed.is_empty() || listed.iter().any(|file| may_be(&joined(source, &file.path.0))))
}

/// Is a copy that has this manifest one of exactly what is listed, if something is?
pub fn is_as_listed(job: &JobSpec, manifest: &Manifest) -> Result<bool, StageError> {
    let listed = &job.options.expected;
    Ok(listed.is_empty() || manifest.is_of_list(listed, job.options.digest)?)
}

/// How a source differs from the copy that has this manifest; none: it does not, or it is gone.
pub fn changed_since(
    job: &JobSpec,
    source: &Path,
    manifest: &Manifest,
) -> Result<Option<String>, StageError> {
    let Ok(set) = stage::calls::open_directory(source) else { return Ok(None) };
    match job.options.expected.is_empty() {
        true => manifest.differs_from(set.as_fd(), source, Times::Compared),
        false if has_source(job, source) => manifest.lacks_of(set.as_fd(), source, Times::Compared),
        false => Ok(None),
    }
}

/// True, or what is wrong with what is there.
pub fn verdict(destination: &Path, found: &Found) -> Result<bool, Failure> {
    match found.faults.first() {
        None => Ok(true),
        Some(fault) => Err(Failure::failed(fault_words(destination, fault))
            .hint("what is there is not what was written; move it away and copy it again")),
    }
}

/// The destination is not the source's copy.
pub fn another(destination: &str, how: &str) -> Failure {
    Failure::refused(format!("{destination}: is there already, and the source is another set: {how}"))
        .hint("name another destination, or move away what is there")
}
