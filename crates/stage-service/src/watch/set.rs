//! From a semaphore to the jobs that it asks for.
//!
//! A semaphore without a list vouches for one file or directory as it is. One with a list vouches for exactly the files
//! in it: each must be there with its size and digest, and a directory that they lie in must hold no others, or nothing
//! of the set moves. Sizes and names are compared here, before a job is made; digests by the job, while it reads; those
//! of a set that becomes several jobs here as well, because one of the jobs might be done before another one's digest is
//! found wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, Mode, OFlags};

use super::list::{self, Listed};
use super::pattern::{Pattern, Vouches};
use stage::calls;
use stage::digest::{Algorithm, CHUNK_BYTES, Digest, Hasher};
use stage::error::{StageError, shown};
use stage::names::PathText;
use stage::spec::Expected;

/// Bytes that a list may have: a million files with their digests.
const LIST_MAX: u64 = 256 << 20;

/// Sources that a semaphore may have: each is a job, and the server's answer on a semaphore has those of two such sets.
const SOURCES_MAX: usize = crate::protocol::JOBS / 2;

/// One source of a set, and what must be in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Relative to the directory that is watched.
    pub path: PathBuf,
    /// What must be there; relative to the source.
    pub expected: Vec<Expected>,
}

/// What a semaphore asks to have moved, all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// What is moved, each by a job of its own.
    pub sources: Vec<Source>,
    /// How the list's digests were made, if it has any.
    pub algorithm: Option<Algorithm>,
}

impl Set {
    /// The set of the semaphore `trigger`, with what is in it, if that is taken for a list.
    ///
    /// # Errors
    /// It is no list, or vouches for nothing.
    pub fn new(list: Option<&[u8]>, trigger: &Path, pattern: &Pattern) -> Result<Self, StageError> {
        let listed = list.map_or(Ok(Vec::new()), |contents| listed(contents, trigger))?;
        let directory = trigger.parent().unwrap_or(Path::new(""));
        let vouches = pattern.vouches(trigger.file_name().unwrap_or_default());
        if listed.is_empty() {
            return Self::unlisted(directory, vouches, trigger);
        }
        Self::of_list(directory, &vouches, listed, trigger)
    }

    fn unlisted(directory: &Path, vouches: Vouches, trigger: &Path) -> Result<Self, StageError> {
        let path = match vouches {
            Vouches::Beside(name) => directory.join(name),
            Vouches::Around => directory.to_owned(),
            Vouches::Listed => {
                return Err(StageError::invalid(
                    format!("{}: does not say what it vouches for", shown(trigger)),
                    "have it list files, PATH [SIZE [DIGEST]] a line, or take a pattern such as '*.done'",
                ));
            }
        };
        Ok(Self { sources: vec![Source { path, expected: Vec::new() }], algorithm: None })
    }

    fn of_list(
        directory: &Path,
        vouches: &Vouches,
        listed: Vec<Listed>,
        trigger: &Path,
    ) -> Result<Self, StageError> {
        let mut algorithm = None;
        let mut sources: BTreeMap<PathBuf, Vec<Expected>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for file in listed {
            let wrong = |why: String| {
                StageError::invalid(
                    format!("{}: {}: {why}", shown(trigger), shown(&file.path)),
                    "write the list again and rename it into place",
                )
            };
            if !seen.insert(file.path.clone()) {
                return Err(wrong("is listed twice".to_owned()));
            }
            if let Some((made, _)) = file.digest {
                match algorithm.replace(made) {
                    Some(other) if other != made => {
                        return Err(wrong("has a digest of another kind than the files before".to_owned()));
                    }
                    _ => {}
                }
            }
            let (source, inside) = split(directory, vouches, &file.path);
            if inside.as_os_str().is_empty() && Some(file.path.as_os_str()) == trigger.file_name() {
                return Err(wrong("is the semaphore itself".to_owned()));
            }
            sources.entry(source).or_default().push(Expected {
                path: PathText(inside),
                size: file.size,
                digest: file.digest.map(|(_, digest)| digest),
            });
        }
        if sources.len() > SOURCES_MAX {
            return Err(StageError::invalid(
                format!(
                    "{}: asks for {} files that would each be a job, and {SOURCES_MAX} are the most",
                    shown(trigger),
                    sources.len()
                ),
                "put them into a directory of their own, which is one job",
            ));
        }
        let sources = sources.into_iter().map(|(path, expected)| Source { path, expected }).collect();
        Ok(Self { sources, algorithm })
    }

    /// Compares what is there of one of its sources with what is vouched for: names, sizes, and of a set of several sources
    /// digests as well, until `stop` is set.
    ///
    /// # Errors
    /// What differs, or is not there; that it was stopped.
    pub fn check(
        &self,
        root: BorrowedFd<'_>,
        trigger: &Path,
        source: &Source,
        stop: &AtomicBool,
    ) -> Result<(), StageError> {
        let mut expected: BTreeMap<&Path, &Expected> =
            source.expected.iter().map(|file| (file.path.0.as_path(), file)).collect();
        let facts = find(root, &source.path).map_err(|error| vain(trigger, &source.path, &error))?;
        for file in expected.values() {
            let path = source.path.join(&file.path.0);
            let path = if file.path.0.as_os_str().is_empty() { &source.path } else { &path };
            self.check_file(root, trigger, path, file, stop)?;
        }
        let directory = FileType::from_raw_mode(facts.stx_mode.into()) == FileType::Directory;
        if directory && !expected.is_empty() {
            // The semaphore may lie among the files that it vouches for, and is none of them.
            let own = trigger.strip_prefix(&source.path).unwrap_or(Path::new("")).to_owned();
            let own_entry = Expected { path: PathText(own.clone()), size: None, digest: None };
            expected.insert(&own, &own_entry);
            only_these(root, trigger, &source.path, &expected)?;
        }
        Ok(())
    }

    fn check_file(
        &self,
        root: BorrowedFd<'_>,
        trigger: &Path,
        path: &Path,
        file: &Expected,
        stop: &AtomicBool,
    ) -> Result<(), StageError> {
        let facts = find(root, path).map_err(|error| vain(trigger, path, &error))?;
        let regular = FileType::from_raw_mode(facts.stx_mode.into()) == FileType::RegularFile;
        if !regular && (file.size.is_some() || file.digest.is_some()) {
            return Err(mismatch(trigger, path, "is no regular file"));
        }
        if let Some(size) = file.size.filter(|size| *size != facts.stx_size) {
            return Err(mismatch(trigger, path, &format!("has {} bytes, not {size}", facts.stx_size)));
        }
        if let (Some(digest), Some(algorithm), true) = (file.digest, self.algorithm, self.sources.len() > 1) {
            let found =
                digest_of(root, path, algorithm, stop).map_err(|error| vain(trigger, path, &error))?;
            if found != digest {
                let (found, digest) = (found.text(algorithm), digest.text(algorithm));
                return Err(mismatch(trigger, path, &format!("has the digest {found}, not {digest}")));
            }
        }
        Ok(())
    }
}

/// The source that a listed file belongs to, relative to what is watched, and its path in there: of a directory that the
/// semaphore stands for by its name or its place, that directory; otherwise the first name of the path.
fn split(directory: &Path, vouches: &Vouches, path: &Path) -> (PathBuf, PathBuf) {
    if *vouches == Vouches::Around {
        return (directory.to_owned(), path.to_owned());
    }
    let mut names = path.components();
    let first = names.next().map_or_else(OsString::new, |name| name.as_os_str().to_owned());
    (directory.join(first), names.as_path().to_owned())
}

fn listed(contents: &[u8], trigger: &Path) -> Result<Vec<Listed>, StageError> {
    list::parse(contents).map_err(|bad| {
        StageError::invalid(
            format!("{}: {bad}", shown(trigger)),
            "a line is PATH [SIZE [DIGEST]]; --no-list takes a semaphore whatever it holds",
        )
    })
}

/// What is in a semaphore.
///
/// # Errors
/// It cannot be read, or is too large for a list.
pub fn contents(file: BorrowedFd<'_>) -> std::io::Result<Vec<u8>> {
    let size = calls::stat(file)?.stx_size;
    if size > LIST_MAX {
        return Err(std::io::Error::other(format!("{size} bytes are too many for a list")));
    }
    let mut contents = vec![0; size as usize];
    let read = calls::read_at(file, &mut contents, 0)?;
    contents.truncate(read);
    Ok(contents)
}

fn open(root: BorrowedFd<'_>, path: &Path) -> std::io::Result<OwnedFd> {
    // NONBLOCK: a FIFO that has come into the file's place must not hold this process.
    calls::open_beneath(root, path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
}

pub(super) fn find(root: BorrowedFd<'_>, path: &Path) -> std::io::Result<rustix::fs::Statx> {
    let file = calls::open_beneath(root, path, OFlags::PATH, Mode::empty())?;
    calls::stat(file.as_fd())
}

fn digest_of(
    root: BorrowedFd<'_>,
    path: &Path,
    algorithm: Algorithm,
    stop: &AtomicBool,
) -> std::io::Result<Digest> {
    let file = open(root, path)?;
    let mut hasher = Hasher::new(algorithm);
    let mut buffer = vec![0; (CHUNK_BYTES / 8) as usize];
    let mut offset = 0;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let read = calls::read_at(file.as_fd(), &mut buffer, offset)?;
        if read == 0 {
            return Ok(hasher.finish());
        }
        hasher.update(&buffer[..read]);
        offset += read as u64;
    }
}

/// Refuses a directory that holds a file which is not among those expected.
fn only_these(
    root: BorrowedFd<'_>,
    trigger: &Path,
    source: &Path,
    expected: &BTreeMap<&Path, &Expected>,
) -> Result<(), StageError> {
    let mut directories = vec![PathBuf::new()];
    while let Some(inside) = directories.pop() {
        let path = if inside.as_os_str().is_empty() { source.to_owned() } else { source.join(&inside) };
        let entries = calls::open_beneath(root, &path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            .and_then(|directory| calls::list(directory.as_fd()))
            .map_err(|error| vain(trigger, &path, &error))?;
        for (name, kind) in entries {
            let inside = inside.join(&name);
            // A directory that is listed vouches for nothing that is in it.
            let is_listed = expected.contains_key(inside.as_path());
            if is_listed && !matches!(kind, FileType::Directory | FileType::Unknown) {
                continue;
            }
            let path = source.join(&inside);
            let facts = find(root, &path).map_err(|error| vain(trigger, &path, &error))?;
            if FileType::from_raw_mode(facts.stx_mode.into()) == FileType::Directory {
                directories.push(inside);
            } else if !is_listed {
                return Err(mismatch(trigger, &path, "is there and is not listed"));
            }
        }
    }
    Ok(())
}

fn vain(trigger: &Path, path: &Path, error: &std::io::Error) -> StageError {
    match error.kind() {
        std::io::ErrorKind::NotFound => mismatch(trigger, path, "is not there"),
        _ => mismatch(trigger, path, &format!("cannot be looked at: {error}")),
    }
}

fn mismatch(trigger: &Path, path: &Path, why: &str) -> StageError {
    StageError::refused(
        format!("{}: vouches for {}, which {why}", shown(trigger), shown(path)),
        "nothing is handed in for it; it is looked at again when it changes",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    static NEVER: AtomicBool = AtomicBool::new(false);
    const DIGEST_OF_A: &str = "a96faf705af16834e6c632b61e964e1f";

    fn place() -> (tempfile::TempDir, OwnedFd) {
        let folder = tempfile::tempdir().expect("a directory");
        let root = calls::open_directory(folder.path()).expect("opens");
        (folder, root)
    }

    fn check(set: &Set, root: &OwnedFd, trigger: &str) -> Result<(), StageError> {
        set.sources.iter().try_for_each(|source| set.check(root.as_fd(), Path::new(trigger), source, &NEVER))
    }

    fn read(root: &OwnedFd, trigger: &str, pattern: &str) -> Result<Set, StageError> {
        let list = contents(open(root.as_fd(), Path::new(trigger)).expect("opens").as_fd()).expect("reads");
        Set::new(Some(&list), Path::new(trigger), &Pattern::parse(pattern).expect("a pattern"))
    }

    #[test]
    fn a_semaphore_without_a_list_vouches_for_what_its_name_leaves() {
        let (folder, root) = place();
        fs::create_dir(folder.path().join("ckpt-7")).unwrap();
        for (trigger, pattern, source) in
            [("ckpt-7.done", "*.done", "ckpt-7"), ("ckpt-7/DONE", "ckpt-*/DONE", "ckpt-7")]
        {
            fs::write(folder.path().join(trigger), "\n").unwrap();
            let set = read(&root, trigger, pattern).unwrap();
            assert_eq!(set.sources, [Source { path: source.into(), expected: Vec::new() }]);
            check(&set, &root, trigger).unwrap();
        }
        fs::write(folder.path().join("DONE"), "").unwrap();
        assert!(read(&root, "DONE", "DONE").unwrap_err().to_string().contains("does not say"));
    }

    #[test]
    fn a_list_is_held_against_what_is_there() {
        let (folder, root) = place();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("set/deep")).unwrap();
        fs::write(at("set/a"), "a").unwrap();
        fs::write(at("set/deep/b"), "bb").unwrap();
        fs::write(at("set.done"), format!("set/a 1 {DIGEST_OF_A}\nset/deep/b\t2\n")).unwrap();
        let check = || {
            let set = read(&root, "set.done", "*.done")?;
            check(&set, &root, "set.done").map(|()| set)
        };
        let set = check().unwrap();
        assert_eq!((set.sources.len(), set.algorithm), (1, Some(Algorithm::Xxh3)));
        assert_eq!(set.sources[0].path, Path::new("set"));
        assert_eq!(set.sources[0].expected[1].path.0, Path::new("deep/b"));

        let refused = |words: &str| {
            let error = check().unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(error.class(), stage::ErrorClass::Refused);
        };
        fs::write(at("set/deep/extra"), "").unwrap();
        refused("set/deep/extra, which is there and is not listed");
        fs::remove_file(at("set/deep/extra")).unwrap();
        fs::write(at("set/deep/b"), "bbb").unwrap();
        refused("set/deep/b, which has 3 bytes, not 2");
        fs::remove_file(at("set/deep/b")).unwrap();
        refused("set/deep/b, which is not there");
        std::os::unix::fs::symlink("../a", at("set/deep/b")).unwrap();
        refused("set/deep/b, which is no regular file");
    }

    #[test]
    fn a_list_inside_the_directory_is_relative_to_it_and_does_not_list_itself() {
        let (folder, root) = place();
        fs::create_dir(folder.path().join("ckpt-7")).unwrap();
        fs::write(folder.path().join("ckpt-7/a"), "a").unwrap();
        fs::write(folder.path().join("ckpt-7/DONE"), "a 1\n").unwrap();
        let set = read(&root, "ckpt-7/DONE", "ckpt-*/DONE").unwrap();
        assert_eq!(set.sources[0].path, Path::new("ckpt-7"));
        assert_eq!(set.sources[0].expected[0].path.0, Path::new("a"));
        check(&set, &root, "ckpt-7/DONE").unwrap();
    }

    #[test]
    fn several_files_are_several_jobs_whose_digests_are_all_compared_first() {
        let (folder, root) = place();
        fs::write(folder.path().join("a"), "a").unwrap();
        fs::write(folder.path().join("b"), "b").unwrap();
        fs::write(folder.path().join("x.done"), format!("a 1 {DIGEST_OF_A}\nb 1 {DIGEST_OF_A}\n")).unwrap();
        let set = read(&root, "x.done", "*.done").unwrap();
        assert_eq!(set.sources.len(), 2);
        assert_eq!(set.sources[0].expected[0].path.0, Path::new(""));
        let error = check(&set, &root, "x.done").unwrap_err().to_string();
        assert!(error.starts_with("x.done: vouches for b, which has the digest "), "{error}");
    }

    #[test]
    fn a_list_has_no_more_sources_than_the_server_tells_of() {
        let (folder, root) = place();
        for (directory, is_refused) in [("", true), ("d/", false)] {
            for (more, is_more) in [(0, false), (1, true)] {
                let list: String = (0..SOURCES_MAX + more).map(|n| format!("{directory}{n}\n")).collect();
                fs::write(folder.path().join("x.done"), list).unwrap();
                let read = read(&root, "x.done", "*.done");
                let refused = (is_refused && is_more).then(|| {
                    "x.done: asks for 5001 files that would each be a job, and 5000 are the most".to_owned()
                });
                assert_eq!(read.err().map(|error| error.to_string()), refused);
            }
        }
    }

    #[test]
    fn lists_that_contradict_themselves_are_refused() {
        let (folder, root) = place();
        let blake = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        for (list, words) in [
            ("a\na\n".to_owned(), "is listed twice"),
            (format!("a 1 {DIGEST_OF_A}\nb 1 {blake}\n"), "another kind"),
            ("x.done 1\n".to_owned(), "is the semaphore itself"),
            ("../a\n".to_owned(), "line 1"),
        ] {
            fs::write(folder.path().join("x.done"), list).unwrap();
            let error = read(&root, "x.done", "*.done").unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
