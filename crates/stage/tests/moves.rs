//! What a move does where nothing goes wrong, and what it refuses.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use stage::{JobSpec, JobStatus, Level, Mover, MoverConfig, Options, Place, Preserve, State, Verb};
use tempfile::TempDir;

struct Bench {
    directory: TempDir,
    mover: Mover,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
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

#[test]
fn a_tree_arrives_whole_with_its_manifest_and_stays_where_it_was() {
    let bench = Bench::new();
    bench.tree("fast");
    let before = snapshot(&bench.at("fast"));
    let status = bench.done(Verb::Copy, "fast", "slow/ckpt");
    assert_eq!(snapshot(&bench.at("slow/ckpt")), before);
    assert_eq!(snapshot(&bench.at("fast")), before);
    assert_eq!(names(&bench.at("slow")), ["ckpt"]);
    let uno = fs::metadata(bench.at("slow/ckpt/a/b/uno")).unwrap();
    assert_eq!((uno.nlink(), uno.ino()), (2, fs::metadata(bench.at("slow/ckpt/one")).unwrap().ino()));
    assert!(bench.at("slow/ckpt/.flashwright-manifest").exists());
    assert_eq!(status.files_total, 8, "{status:?}");
    assert_eq!(status.files_done, 8, "{status:?}");
    assert_eq!(status.bytes_written, status.bytes_verified);
}

#[test]
fn a_moved_tree_is_gone_from_where_it_was() {
    let bench = Bench::new();
    bench.tree("fast");
    let before = snapshot(&bench.at("fast"));
    let status = bench.done(Verb::Move, "fast", "slow/ckpt");
    assert_eq!(snapshot(&bench.at("slow/ckpt")), before);
    assert!(!bench.at("fast").exists(), "{status:?}");
    assert!(status.notes.is_empty(), "{status:?}");
}

#[test]
fn single_files_of_all_sizes_are_moved() {
    let bench = Bench::new();
    for size in [0, 1, 4095, 4096, 4097, (4 << 20) - 1, 4 << 20, (8 << 20) + 1, 20 << 20] {
        let bytes: Vec<u8> = (0..size).map(|at: u64| (at ^ (at >> 9)) as u8).collect();
        fs::write(bench.at("file"), &bytes).unwrap();
        let to = format!("slow/file-{size}");
        bench.done(Verb::Move, "file", &to);
        assert!(fs::read(bench.at(&to)).unwrap() == bytes, "{size} bytes");
        assert!(!bench.at("file").exists());
    }
}

#[test]
fn nothing_is_written_over_and_the_same_thing_twice_is_a_success() {
    let bench = Bench::new();
    bench.tree("fast");
    bench.done(Verb::Copy, "fast", "slow");
    let again = bench.done(Verb::Copy, "fast", "slow");
    assert!(again.notes[0].contains("there already"), "{again:?}");
    fs::write(bench.at("slow/a/b/page"), [1; 4096]).unwrap();
    let before = snapshot(&bench.at("slow"));
    let refused = bench.run(Verb::Move, "fast", "slow", Options::default());
    assert_eq!(refused.state, State::Failed);
    assert!(refused.error.as_ref().unwrap().message.contains("is there already"), "{refused:?}");
    assert_eq!(snapshot(&bench.at("slow")), before);
    assert!(bench.at("fast/one").exists());
}

#[test]
fn a_destination_that_is_the_source_or_in_it_is_refused() {
    let bench = Bench::new();
    bench.tree("fast");
    fs::hard_link(bench.at("fast/one"), bench.at("other")).unwrap();
    for (from, to) in
        [("fast", "fast/a/copy"), ("fast", "fast"), ("fast/one", "other"), ("fast", "fast/copy")]
    {
        let status = bench.run(Verb::Move, from, to, Options::default());
        assert_eq!(status.state, State::Failed, "{from} to {to}");
        assert!(bench.at("fast/one").exists() && bench.at("fast/large").exists(), "{from} to {to}");
    }
}

#[test]
fn a_fifo_in_a_tree_is_refused_and_nothing_appears() {
    let bench = Bench::new();
    bench.tree("fast");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        bench.at("fast/a/fifo"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let status = bench.run(Verb::Move, "fast", "slow/ckpt", Options::default());
    assert_eq!(status.state, State::Failed);
    assert!(status.error.unwrap().message.contains("fifo"));
    assert!(!bench.at("slow/ckpt").exists());
    // What was copied is kept for another attempt, and goes when there is to be none.
    bench.mover.cancel(status.id).unwrap();
    assert_eq!(names(&bench.at("slow")), Vec::<String>::new());
    fs::remove_file(bench.at("fast/a/fifo")).unwrap();
    bench.done(Verb::Move, "fast", "slow/ckpt");
}

#[test]
fn a_failed_job_goes_on_when_it_is_asked_to() {
    let bench = Bench::new();
    bench.tree("fast");
    rustix::fs::mknodat(rustix::fs::CWD, bench.at("fast/fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let status = bench.run(Verb::Copy, "fast", "slow/ckpt", Options::default());
    assert_eq!(status.state, State::Failed);
    fs::remove_file(bench.at("fast/fifo")).unwrap();
    fs::remove_file(bench.at("fast/a/zero")).unwrap();
    fs::write(bench.at("fast/a-b/x"), "something else").unwrap();
    bench.mover.retry(status.id).unwrap();
    let status = bench.mover.wait(status.id, Level::Durable, None).unwrap();
    assert_eq!(status.state, State::Done, "{status:?}");
    assert_eq!(snapshot(&bench.at("slow/ckpt")), snapshot(&bench.at("fast")));
}

#[test]
fn what_a_semaphore_promises_must_be_there() {
    let bench = Bench::new();
    bench.tree("fast");
    let digest = stage::Algorithm::Xxh3.of(&fs::read(bench.at("fast/large")).unwrap());
    let expected = |path: &str, size, digest| stage::spec::Expected {
        path: stage::names::PathText(path.into()),
        size,
        digest,
    };
    let wrong = Options { expected: vec![expected("one", Some(2), None)], ..Options::default() };
    assert_eq!(bench.run(Verb::Copy, "fast", "slow/a", wrong).state, State::Failed);
    let missing = Options { expected: vec![expected("two", None, None)], ..Options::default() };
    assert_eq!(bench.run(Verb::Copy, "fast", "slow/b", missing).state, State::Failed);
    let right = vec![expected("large", Some(9 << 20), Some(digest)), expected("a/b/page", Some(4096), None)];
    let status = bench.run(Verb::Copy, "fast", "slow/c", Options { expected: right, ..Options::default() });
    assert_eq!(status.state, State::Done, "{status:?}");
    assert_eq!(names(&bench.at("slow/c")), [".flashwright-manifest", "a", "large"]);
    assert_eq!(names(&bench.at("slow/c/a")), ["b"]);
}

#[test]
fn attributes_and_holes_are_kept_where_they_are_asked_for() {
    let bench = Bench::new();
    fs::create_dir(bench.at("fast")).unwrap();
    let file = fs::File::create(bench.at("fast/sparse")).unwrap();
    file.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"in the middle", 500 << 20).unwrap();
    let set = rustix::fs::fsetxattr(&file, "user.note", b"kept", rustix::fs::XattrFlags::empty());
    let options = Options { preserve: Preserve::ALL, ..Options::default() };
    let status = bench.run(Verb::Copy, "fast", "slow", options);
    assert_eq!(status.state, State::Done, "{status:?}");
    let copy = fs::File::open(bench.at("slow/sparse")).unwrap();
    let meta = copy.metadata().unwrap();
    assert_eq!(meta.len(), 1 << 30);
    assert!(meta.blocks() * 512 < 16 << 20, "{} blocks", meta.blocks());
    let mut middle = [0; 13];
    std::os::unix::fs::FileExt::read_exact_at(&copy, &mut middle, 500 << 20).unwrap();
    assert_eq!(&middle, b"in the middle");
    if set.is_ok() {
        let mut value = [0; 16];
        assert_eq!(rustix::fs::fgetxattr(&copy, "user.note", &mut value), Ok(4));
    } else {
        eprintln!("SKIP attributes: this file system has none");
    }
}

#[test]
fn a_second_mover_is_kept_out_of_a_journal() {
    let bench = Bench::new();
    let error = Mover::open(&MoverConfig::new(bench.at("state"))).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
}

#[test]
fn a_set_that_has_rotted_is_not_brought_back_and_one_that_was_changed_is() {
    let bench = Bench::new();
    bench.tree("fast");
    bench.done(Verb::Copy, "fast", "slow/ckpt");
    bench.done(Verb::Copy, "slow/ckpt", "back");
    assert_eq!(snapshot(&bench.at("back")), snapshot(&bench.at("fast")));
    let rot = |name: &str, offset, keep_time| {
        let file = fs::File::options().write(true).open(bench.at("slow/ckpt").join(name)).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        std::os::unix::fs::FileExt::write_at(&file, b"rot", offset).unwrap();
        if keep_time {
            file.set_modified(time).unwrap();
        }
    };
    rot("a/b/page", 17, false);
    bench.done(Verb::Copy, "slow/ckpt", "changed");
    rot("large", (8 << 20) + 5, true);
    let status = bench.run(Verb::Copy, "slow/ckpt", "again", Options::default());
    assert_eq!(status.state, State::Failed);
    let why = status.error.unwrap().message;
    assert!(why.contains("slow/ckpt/large") && why.contains("offset 8388608"), "{why}");
    assert!(!bench.at("again").exists());
}
