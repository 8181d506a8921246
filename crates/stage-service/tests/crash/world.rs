//! Two tiers with something to move between them, and what must hold for what is on them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileTimes};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use stage::digest::Digest;
use stage::mounts::Mount;
use stage::{JobSpec, Options, Place, Preserve, Verb};

use crate::sample::Random;
use crate::tree::{Kind, Tree, differences, snapshot};

/// The manifest's name in a directory that was copied.
pub const MANIFEST: &str = ".flashwright-manifest";

/// What is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// A file of 100,000 bytes.
    Small,
    /// A file of nine chunks, the last of them short.
    Large,
    /// Two chunks, the last of them short.
    Chunked,
    /// A directory with everything that may be in one.
    Tree,
    /// A directory of a few plain files: a checkpoint, with another before it, and `latest`.
    Checkpoint,
    /// The second of two parts of a set; the first is there, and its record is missing.
    Part,
}

/// Where the fast tier is, in tests that do not care which file system it is: memory, where there is such a directory.
pub fn memory() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let usable = tempfile::Builder::new().prefix("flashwright-crash").tempdir_in(memory).is_ok();
    if usable { memory.to_owned() } else { std::env::temp_dir() }
}

/// Where the slow tier is: the directory of temporary files, or one of the build's if that is in memory, where syncs mean
/// nothing.
pub fn disk() -> PathBuf {
    let directory = std::env::temp_dir();
    let is_in_memory = Mount::nearest(&directory).is_some_and(|mount| mount.is_in_memory());
    if is_in_memory { env!("CARGO_TARGET_TMPDIR").into() } else { directory }
}

/// See the module's argument.
pub struct World {
    fast: tempfile::TempDir,
    slow: tempfile::TempDir,
    pub source: PathBuf,
    pub destination: PathBuf,
    pub state: PathBuf,
    pub spec: JobSpec,
    /// The source, as it was before anything was moved.
    pub before: Tree,
    /// What else is in the destination's directory.
    others: Vec<OsString>,
}

impl Drop for World {
    fn drop(&mut self) {
        // Directories that nobody may write to would stay.
        for root in [self.fast.path(), self.slow.path()] {
            open_up(root);
        }
    }
}

fn open_up(path: &Path) {
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    if metadata.is_dir() {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
        for one in fs::read_dir(path).into_iter().flatten().flatten() {
            open_up(&one.path());
        }
    }
}

impl World {
    /// A world with its tiers on two file systems, where there are two.
    pub fn new(scenario: Scenario, verb: Verb) -> Self {
        Self::at(scenario, verb, &memory(), &disk())
    }

    /// A world with its tiers in these directories.
    pub fn at(scenario: Scenario, verb: Verb, fast: &Path, slow: &Path) -> Self {
        let directory =
            |root: &Path| tempfile::Builder::new().prefix("flashwright-crash").tempdir_in(root).unwrap();
        let (fast, slow) = (directory(fast), directory(slow));
        let (mut source, mut destination) = (fast.path().join("ckpt-7"), slow.path().join("ckpt-7"));
        let mut options = Options { preserve: Preserve::ALL, ..Options::default() };
        if scenario == Scenario::Part {
            let spec = crate::sets::with_the_first_part(fast.path(), slow.path());
            (source, destination) =
                (fast.path().join(crate::sets::SET), spec.destination.path().unwrap().into());
            options = spec.options;
        }
        build(scenario, &source);
        if scenario == Scenario::Checkpoint {
            fs::create_dir(slow.path().join("ckpt-6")).unwrap();
            fs::write(slow.path().join("ckpt-6/rank-0"), b"the one before").unwrap();
            std::os::unix::fs::symlink("ckpt-6", slow.path().join("latest")).unwrap();
            options.latest = true;
        }
        let spec = JobSpec {
            verb,
            source: Place::of_path(&source).unwrap(),
            destination: Place::of_path(&destination).unwrap(),
            options,
        };
        let before = snapshot(&source).unwrap().expect("the source was built");
        let others = names(slow.path());
        Self { state: fast.path().join("state"), fast, slow, source, destination, spec, before, others }
    }

    /// The directory that the destination is in.
    pub fn slow(&self) -> &Path {
        self.slow.path()
    }

    /// The directory that the source is in.
    pub fn fast(&self) -> &Path {
        self.fast.path()
    }

    /// What must hold at any moment, whatever was killed; what does not, a line each.
    pub fn check_between(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let at_destination = snapshot(&self.destination).unwrap().filter(|found| !is_claim(found));
        let at_source = snapshot(&self.source).unwrap();
        let complete = match &at_destination {
            None => false,
            Some(found) => {
                let lines = self.complete(found);
                wrong.extend(lines.iter().map(|line| format!("visible and not whole: {line}")));
                lines.is_empty()
            }
        };
        if self.spec.verb == Verb::Copy || !complete {
            match &at_source {
                None => wrong.push("the source is gone and the destination is not complete".to_owned()),
                Some(found) => {
                    let lines = differences(&self.before, found);
                    wrong.extend(lines.into_iter().map(|line| format!("source: {line}")));
                }
            }
        } else if let Some(found) = &at_source {
            wrong.extend(self.remains(found));
        }
        if self.spec.options.part.is_some() {
            wrong.extend(crate::sets::between(self.slow()));
        } else if self.spec.options.latest {
            wrong.extend(self.latest_between(complete));
        }
        wrong
    }

    /// What must hold when the job is done; what does not, a line each.
    pub fn check_end(&self) -> Vec<String> {
        let mut wrong = self.check_between();
        if snapshot(&self.destination).unwrap().is_none_or(|found| is_claim(&found)) {
            wrong.push("the destination is not there at the end".to_owned());
        }
        if self.spec.verb == Verb::Move && fs::symlink_metadata(&self.source).is_ok() {
            wrong.push("the source is still there at the end of a move".to_owned());
        }
        if self.spec.options.part.is_some() {
            wrong.extend(crate::sets::end(self.slow()));
            return wrong;
        }
        let mut expected = self.others.clone();
        expected.extend(self.destination.file_name().map(OsStr::to_owned));
        expected.sort();
        let found = names(self.slow());
        if found != expected {
            wrong.push(format!("beside the destination: {expected:?} expected, {found:?} found"));
        }
        if self.spec.options.latest {
            let latest = fs::read_link(self.slow().join("latest")).ok();
            if latest.as_deref() != Some(Path::new("ckpt-7")) {
                wrong.push(format!("latest leads to {latest:?} at the end"));
            }
        }
        wrong
    }

    /// Why what is at the destination is not all of the source.
    pub fn complete(&self, found: &Tree) -> Vec<String> {
        let mut found = found.clone();
        let manifest = found.remove(MANIFEST.as_bytes());
        let mut wrong = differences(&self.before, &found);
        let is_directory = self.before.get(&b""[..]).is_some_and(|root| root.kind == Kind::Directory);
        if is_directory && !self.spec.options.no_manifest {
            match manifest {
                None => wrong.push("the manifest is missing".to_owned()),
                Some(_) => wrong.extend(manifest_faults(&self.destination.join(MANIFEST), &self.before)),
            }
        } else if manifest.is_some() {
            wrong.push("there is a manifest and should not be".to_owned());
        }
        wrong
    }

    /// What is left of a source that is being removed must be as it was; of directories the times may have changed.
    fn remains(&self, found: &Tree) -> Vec<String> {
        let mut expected = Tree::new();
        let mut found = found.clone();
        let mut wrong = Vec::new();
        for (name, entry) in &mut found {
            let Some(before) = self.before.get(name) else {
                wrong.push(format!("source: {:?} was not there before", stage::names::shown(name)));
                continue;
            };
            let mut before = before.clone();
            if before.kind == Kind::Directory {
                before.modified = entry.modified;
                // A directory that its owner may not write to is made writable to be emptied.
                before.mode |= entry.mode & 0o700;
            }
            // The first of a file's names may have gone.
            before.link_to = None;
            entry.link_to = None;
            expected.insert(name.clone(), before);
        }
        wrong.extend(differences(&expected, &found).into_iter().map(|line| format!("source: {line}")));
        wrong
    }

    fn latest_between(&self, complete: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        match fs::read_link(self.slow().join("latest")) {
            Ok(target) if target == Path::new("ckpt-6") => {}
            Ok(target) if target == Path::new("ckpt-7") && complete => {}
            other => wrong.push(format!("latest leads to {other:?} while complete is {complete}")),
        }
        if fs::read(self.slow().join("ckpt-6/rank-0")).ok().as_deref() != Some(b"the one before") {
            wrong.push("the checkpoint before is not whole any more".to_owned());
        }
        wrong
    }

    /// Fails with what is wrong, saying what was done.
    pub fn must(&self, done: &str, wrong: Vec<String>) {
        assert!(
            wrong.is_empty(),
            "{done} (seed {}):\n  {}\n  beside the destination: {:?}",
            crate::sample::seed(),
            wrong.join("\n  "),
            names(self.slow())
        );
    }

    /// Leaves the files where they are, to be looked at.
    #[allow(dead_code, reason = "called by hand when a failure is looked into")]
    pub fn keep(mut self) {
        self.fast.disable_cleanup(true);
        self.slow.disable_cleanup(true);
        eprintln!("kept: {:?} {:?}", self.fast.path(), self.slow.path());
    }
}

/// Is this the empty directory of mode 1700 that holds a set's name where there is no RENAME_NOREPLACE?
pub fn is_claim(tree: &Tree) -> bool {
    let root = tree.get(&b""[..]);
    crate::LIKE_NFS
        && tree.len() == 1
        && root.is_some_and(|root| root.kind == Kind::Directory && root.mode & 0o7777 == 0o1700)
}

/// The names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<OsString> {
    let mut names: Vec<_> =
        fs::read_dir(directory).into_iter().flatten().flatten().map(|one| one.file_name()).collect();
    names.sort();
    names
}

/// How a manifest (`flashwright.manifest/1`) differs from what it should say; read without the library's help.
fn manifest_faults(path: &Path, expected: &Tree) -> Vec<String> {
    let mut wrong = Vec::new();
    let text = fs::read(path).unwrap_or_default();
    let body_bytes =
        text[..text.len().saturating_sub(1)].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines: Vec<serde_json::Value> = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap_or(serde_json::Value::Null))
        .collect();
    let (Some(first), Some(last)) = (lines.first(), lines.last()) else {
        return vec!["the manifest is empty".to_owned()];
    };
    if first["format"] != "flashwright.manifest/1" || first["algorithm"] != "xxh3" {
        wrong.push(format!("the manifest begins with {first}"));
    }
    let digest = stage::Algorithm::Xxh3.of(&text[..body_bytes]).text(stage::Algorithm::Xxh3);
    if last["end"] != true || last["digest"] != digest.as_str() {
        wrong.push(format!("the manifest ends with {last}, and has the digest {digest}"));
    }
    let mut listed = BTreeMap::new();
    for line in &lines[1..lines.len() - 1] {
        let path: stage::names::PathText = serde_json::from_value(line["path"].clone()).unwrap_or_default();
        listed.insert(path.0.into_os_string().into_vec(), line.clone());
    }
    listed.remove(&b""[..]);
    for (name, entry) in expected.iter().filter(|(name, _)| !name.is_empty()) {
        let Some(line) = listed.remove(name) else {
            wrong.push(format!("{:?} is not in the manifest", stage::names::shown(name)));
            continue;
        };
        if let Kind::File { size, digest, .. } = &entry.kind
            && entry.link_to.is_none()
            && (line["size"].as_u64() != Some(*size)
                || line["digest"].as_str().and_then(Digest::parse) != Some(*digest))
        {
            wrong.push(format!("{line} stands in the manifest for {size} bytes of {digest:?}"));
        }
    }
    wrong.extend(
        listed.keys().map(|name| format!("{:?} is in the manifest alone", stage::names::shown(name))),
    );
    wrong
}

fn build(scenario: Scenario, source: &Path) {
    match scenario {
        Scenario::Small => file(source, 100_000, 1),
        Scenario::Large => file(source, (64 << 20) + 12_345, 2),
        Scenario::Chunked => file(source, (8 << 20) + 4_321, 3),
        Scenario::Tree => tree(source),
        Scenario::Checkpoint | Scenario::Part => {
            fs::create_dir(source).unwrap();
            for rank in 0..3 {
                file(&source.join(format!("rank-{rank}")), 50_000 + rank, rank);
            }
            set_time(source, 1_700_000_000, 5);
        }
    }
}

/// A file of so many bytes that differ from one seed to the next, with a time of its own.
pub fn file(path: &Path, bytes: u64, seed: u64) {
    let mut contents = vec![0; bytes as usize];
    let mut random = Random::of("contents");
    for _ in 0..seed {
        random.next();
    }
    random.fill(&mut contents);
    fs::write(path, contents).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o640)).unwrap();
    set_time(path, 1_600_000_000 + seed as i64, 123_456_789);
}

/// Sets the time of modification.
pub fn set_time(path: &Path, seconds: i64, nanoseconds: u32) {
    let since = Duration::new(seconds.unsigned_abs(), 0);
    let time = if seconds < 0 { UNIX_EPOCH - since } else { UNIX_EPOCH + since };
    let time = time + Duration::from_nanos(u64::from(nanoseconds));
    File::open(path).unwrap().set_times(FileTimes::new().set_modified(time).set_accessed(time)).unwrap();
}

/// Everything that may be in a directory.
fn tree(root: &Path) {
    fs::create_dir_all(root.join("sub/deeper/deepest")).unwrap();
    fs::create_dir(root.join("empty directory")).unwrap();
    fs::create_dir(root.join("read-only")).unwrap();
    file(&root.join("a"), 100_000, 1);
    file(&root.join("one byte"), 1, 2);
    file(&root.join("empty"), 0, 3);
    file(&root.join("sub/page"), 4096, 4);
    file(&root.join("sub/deeper/deepest/leaf"), 5000, 5);
    file(&root.join("read-only/kept"), 777, 6);
    file(&root.join("large"), (4 << 20) + 54_321, 7);
    fs::hard_link(root.join("a"), root.join("sub/another name of a")).unwrap();
    fs::hard_link(root.join("large"), root.join("sub/another name of large")).unwrap();
    for (name, target) in
        [("to a", "a"), ("to nothing", "no/such"), ("out", "/etc/hostname"), ("up", "../../..")]
    {
        std::os::unix::fs::symlink(target, root.join(name)).unwrap();
    }
    for (name, bytes) in [("holes", 1 << 20), ("large holes", 24 << 20)] {
        let sparse = File::create(root.join(name)).unwrap();
        sparse.set_len(bytes).unwrap();
        sparse.write_all_at(&[7; 4096], 256 << 10).unwrap();
        sparse.write_all_at(&[9; 100], bytes - 5000).unwrap();
    }
    let odd: [&[u8]; 6] = [b"new\nline", b"\xff\xfe not UTF-8", b"-rf", b"*", b" ", &[b'x'; 255]];
    for (seed, name) in odd.into_iter().enumerate() {
        file(&root.join(OsStr::from_bytes(name)), 10 + seed as u64, 10 + seed as u64);
    }
    attribute(&root.join("a"), "user.kind", b"a checkpoint");
    attribute(&root.join("sub"), "user.of", b"a directory");
    // Before 1970, its very beginning, and far ahead; tmpfs and ext4 keep all of these.
    set_time(&root.join("one byte"), -86_400 * 365, 1);
    set_time(&root.join("empty"), 0, 0);
    set_time(&root.join("sub/page"), 10_000_000_000, 999_999_999);
    for (name, mode) in [("a", 0o600), ("one byte", 0o4755), ("read-only/kept", 0o400), ("sub/page", 0o000)] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for (seconds, name) in
        [(4, "sub/deeper/deepest"), (3, "sub/deeper"), (2, "sub"), (5, "empty directory"), (6, "read-only")]
    {
        set_time(&root.join(name), seconds * 1_000_000, 7);
    }
    fs::set_permissions(root.join("read-only"), fs::Permissions::from_mode(0o555)).unwrap();
    set_time(root, 1_650_000_000, 42);
}

fn attribute(path: &Path, name: &str, value: &[u8]) {
    // A file system without them has one thing less to lose.
    let _ = rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty());
}

/// What is under way on the slow tier.
pub fn part_of(world: &World) -> PathBuf {
    part_in(world.slow())
}

/// The one name in a directory that looks like a part's.
pub fn part_in(directory: &Path) -> PathBuf {
    let mut parts = parts_in(directory);
    assert_eq!(parts.len(), 1, "{parts:?}");
    parts.remove(0)
}

/// What has names like those of parts in a directory.
pub fn parts_in(directory: &Path) -> Vec<PathBuf> {
    let parts = names(directory).into_iter().filter(|name| stage::names::is_part(name));
    parts.map(|name| directory.join(name)).collect()
}

/// Another program copies it.
pub fn copy(from: &Path, to: &Path) {
    assert!(std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

/// A file is written over in place, its times kept.
pub fn flip(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5).unwrap();
    file.write_all_at(&[byte[0] ^ 4], 5).unwrap();
    file.set_modified(before).unwrap();
    file.sync_all().unwrap();
}
