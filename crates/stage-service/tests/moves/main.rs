//! What a move does where nothing goes wrong, and what it refuses.

mod changes;
mod contents;
mod refusals;
mod semaphores;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stage::journal::{Accepted, Journal};
use stage::names::PathText;
use stage::semaphore::{Identity, Semaphore};
use stage::{ErrorClass, JobId, JobSpec, JobStatus, Level, Options, Place, Preserve, State, Verb};
use stage_service::desk::submit_or_retry;
use stage_service::{Mover, MoverConfig};
use tempfile::TempDir;

struct Bench {
    directory: TempDir,
    mover: Mover,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(directory.path().join("slow")).unwrap();
        let mover = Mover::open(&MoverConfig::new(directory.path().join("state"))).unwrap();
        Self { directory, mover }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, verb: Verb, from: &str, to: &str, options: Options) -> JobStatus {
        let place = |name| Place::of_path(&self.at(name)).unwrap();
        let spec = JobSpec { verb, source: place(from), destination: place(to), options };
        let id = self.mover.submit(spec).unwrap();
        self.mover.wait(id, Level::Durable, None).unwrap()
    }

    fn submit_or_retry(&self, spec: JobSpec) -> Result<JobId, stage::StageError> {
        submit_or_retry(&self.mover, spec, &self.mover.status(None).unwrap())
    }

    fn done(&self, verb: Verb, from: &str, to: &str) -> JobStatus {
        let status = self.run(verb, from, to, Options::default());
        assert_eq!(status.state, State::Done, "{status:?}");
        status
    }

    /// A tree with a bit of everything.
    fn tree(&self, name: &str) {
        let root = self.at(name);
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        fs::create_dir(root.join("empty")).unwrap();
        fs::create_dir(root.join("a-b")).unwrap();
        for (path, bytes) in [
            ("one", 1),
            ("a/zero", 0),
            ("a/b/page", 4096),
            ("a/b/c/odd", 70_001),
            ("a-b/x", 5),
            ("large", 9 << 20),
        ] {
            let bytes: Vec<u8> =
                (0..bytes).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            fs::write(root.join(path), bytes).unwrap();
        }
        symlink("../nowhere", root.join("a/link")).unwrap();
        fs::hard_link(root.join("one"), root.join("a/b/uno")).unwrap();
        fs::set_permissions(root.join("one"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o750)).unwrap();
    }

    fn spec(&self, verb: Verb, from: &str, to: &str, options: Options) -> JobSpec {
        let place = |name| Place::of_path(&self.at(name)).unwrap();
        JobSpec { verb, source: place(from), destination: place(to), options }
    }

    /// 600 files of 64 KB.
    fn many(&self, name: &str) {
        let root = self.at(name);
        fs::create_dir(&root).unwrap();
        for file in 0..600_u32 {
            fs::write(root.join(format!("{file:03}")), file.to_le_bytes().repeat(16_384)).unwrap();
        }
    }

    /// A slow copy of [`Self::many`], half way: the job, and a file that is copied and recorded, and one that is not begun.
    fn half_way(&self, options: Options) -> (JobId, PathBuf, PathBuf) {
        let limited = Options { bwlimit: Some(6 << 20), ..options };
        let id = self.mover.submit(self.spec(Verb::Copy, "fast", "slow/ckpt", limited)).unwrap();
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", self.mover.status(Some(id)));
            let recorded = Journal::peek_entries(&self.at("state"), id, Some(Path::new("")), 1).unwrap();
            let part = fs::read_dir(self.at("slow")).into_iter().flatten().flatten().next();
            if let (Some(recorded), Some(part)) = (recorded.first(), part) {
                let here = |name: &str| part.path().join(name).exists();
                // The walk comes to it last, so that it is not open yet.
                let last = fs::read_dir(self.at("fast")).unwrap().last().unwrap().unwrap().file_name();
                assert!(!here(last.to_str().unwrap()), "the copy was too fast for this test");
                return (id, recorded.entry.path.0.clone(), last.into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn rewrite(&self, path: impl AsRef<Path>) {
        let path = self.at("fast").join(path);
        let bytes = fs::metadata(&path).unwrap().len();
        fs::write(path, vec![0xee; bytes as usize]).unwrap();
    }
}

/// A path with its kind and mode, its time of modification, and its bytes.
type Seen = (PathBuf, u32, (i64, i64), Vec<u8>);

/// All below a directory.
fn snapshot(root: &Path) -> Vec<Seen> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let relative = path.strip_prefix(root).unwrap().to_owned();
        if relative == Path::new(".flashwright-manifest") {
            continue;
        }
        let bytes = if meta.is_symlink() {
            fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
        } else if meta.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        found.push((relative, meta.mode(), (meta.mtime(), meta.mtime_nsec()), bytes));
    }
    found.sort();
    found
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
}
