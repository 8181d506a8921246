//! What a move does where nothing goes wrong, and what it refuses.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stage::journal::Journal;
use stage::names::PathText;
use stage::semaphore::Semaphore;
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

impl Bench {
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

fn fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
}

#[test]
fn a_source_that_is_not_there_makes_no_job() {
    let bench = Bench::new();
    let place = |name| Place::of_path(&bench.at(name)).unwrap();
    for verb in [Verb::Move, Verb::Copy] {
        for source in ["missing", "missing/below"] {
            let options = Options::default();
            let spec = JobSpec { verb, source: place(source), destination: place("slow/x"), options };
            let error = bench.mover.submit(spec.clone()).unwrap_err();
            assert_eq!(error.class(), ErrorClass::Invalid, "{error}");
            assert!(stage_service::desk::submit_or_retry(&bench.mover, spec).is_err());
        }
    }
    assert_eq!(bench.mover.status(None).unwrap(), []);
    // A failed job whose source has gone since is not begun again, either.
    fs::create_dir(bench.at("tree")).unwrap();
    fifo(&bench.at("tree/fifo"));
    assert_eq!(bench.run(Verb::Copy, "tree", "slow/tree", Options::default()).state, State::Failed);
    fs::remove_dir_all(bench.at("tree")).unwrap();
    let spec = bench.mover.status(None).unwrap()[0].spec.clone();
    assert!(stage_service::desk::submit_or_retry(&bench.mover, spec).is_err());
}

#[test]
fn a_request_with_a_url_that_no_store_can_have_is_not_a_request() {
    let request = |url: &str| {
        let spec =
            serde_json::json!({"verb": "move", "source": {"path": "/a"}, "destination": {"object": url}});
        serde_json::from_value::<JobSpec>(spec)
    };
    assert!(request("s3://bucket/x?region=here").is_ok());
    for url in [
        "http://host/x",
        "s3:/bucket",
        "gs://bucket/x",
        "file:/x",
        "x",
        "memory:///x",
        "s3://key:hunter2@bucket/x",
        "s3://bucket/x?regoin=hunter2",
        "s3://bucket/a/../x",
    ] {
        let error = request(url).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

/// A set on the slow tier as something other than its manifest says, in one way after another.
#[test]
fn what_is_brought_back_has_to_be_what_its_manifest_says() {
    type Way = (&'static str, fn(&Path));
    let ways: [Way; 5] = [
        ("other bytes, other time", |set| {
            let bytes = fs::read(set.join("one")).unwrap();
            fs::write(set.join("one"), vec![bytes[0] ^ 1]).unwrap();
        }),
        ("another size", |set| fs::write(set.join("a-b/x"), "longer than it was").unwrap()),
        ("a file too few", |set| fs::remove_file(set.join("a/zero")).unwrap()),
        ("a file too many", |set| fs::write(set.join("empty/new"), "new").unwrap()),
        ("a damaged manifest", |set| fs::write(set.join(".flashwright-manifest"), "{}").unwrap()),
    ];
    let get = |digest| Options { inward: true, digest, ..Options::default() };
    for (how, change) in ways {
        for digest in [stage::Algorithm::Xxh3, stage::Algorithm::Blake3] {
            let bench = Bench::new();
            bench.tree("fast");
            bench.done(Verb::Copy, "fast", "slow/set");
            assert_eq!(bench.run(Verb::Copy, "slow/set", "back", get(digest)).state, State::Done);
            change(&bench.at("slow/set"));
            let status = bench.run(Verb::Copy, "slow/set", "again", get(digest));
            assert_eq!(status.state, State::Failed, "{how}: {status:?}");
            assert!(!bench.at("again").exists(), "{how}");
            if !how.contains("manifest") {
                // The same bytes at the destination make them no better.
                bench.done(Verb::Copy, "slow/set", "there");
                let status = bench.run(Verb::Copy, "slow/set", "there", get(digest));
                assert_eq!(status.state, State::Failed, "{how}: {status:?}");
            }
        }
    }
}

#[test]
fn what_its_owner_has_changed_on_the_fast_tier_is_copied_as_it_is() {
    let bench = Bench::new();
    bench.tree("fast");
    bench.done(Verb::Copy, "fast", "slow/one");
    let back = Options { inward: true, ..Options::default() };
    assert_eq!(bench.run(Verb::Copy, "slow/one", "fast-2", back).state, State::Done);
    fs::write(bench.at("fast-2/one"), "changed").unwrap();
    fs::write(bench.at("fast-2/new"), "new").unwrap();
    bench.done(Verb::Move, "fast-2", "slow/two");
    assert_eq!(fs::read(bench.at("slow/two/one")).unwrap(), b"changed");
    assert!(bench.at("slow/two/new").exists());
}

#[test]
fn a_mode_that_is_not_preserved_is_that_of_cp() {
    let bench = Bench::new();
    fs::create_dir(bench.at("set")).unwrap();
    for (name, mode) in
        [("plain", 0o644), ("script", 0o755), ("secret", 0o600), ("open", 0o666), ("suid", 0o4755)]
    {
        fs::write(bench.at("set").join(name), name).unwrap();
        fs::set_permissions(bench.at("set").join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(bench.at("set/large"), vec![7; 9 << 20]).unwrap();
    fs::write(bench.at("single"), "x").unwrap();
    let cp = |from: &str, to: &str| {
        let done = std::process::Command::new("cp").arg("-r").args([bench.at(from), bench.at(to)]).status();
        assert!(done.unwrap().success());
    };
    let plain = || Options { preserve: "times".parse().unwrap(), ..Options::default() };
    let modes = |directory: &str| {
        let mut all: Vec<_> =
            snapshot(&bench.at(directory)).into_iter().map(|(name, mode, ..)| (name, mode)).collect();
        all.sort();
        all
    };
    cp("set", "by-cp");
    assert_eq!(bench.run(Verb::Copy, "set", "by-us", plain()).state, State::Done);
    assert_eq!(modes("by-us"), modes("by-cp"));
    cp("single", "single-by-cp");
    assert_eq!(bench.run(Verb::Copy, "single", "single-by-us", plain()).state, State::Done);
    let mode = |name: &str| fs::metadata(bench.at(name)).unwrap().mode();
    assert_eq!(mode("single-by-us"), mode("single-by-cp"));
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
fn a_destination_that_is_the_source_or_in_it_is_refused() {
    let bench = Bench::new();
    bench.tree("fast");
    fs::hard_link(bench.at("fast/one"), bench.at("other")).unwrap();
    for (from, to) in
        [("fast", "fast/a/copy"), ("fast", "fast"), ("fast/one", "other"), ("fast", "fast/copy")]
    {
        let place = |name| Place::of_path(&bench.at(name)).unwrap();
        let options = Options::default();
        let spec = JobSpec { verb: Verb::Move, source: place(from), destination: place(to), options };
        // At once where the paths show it, else when the job opens them.
        match bench.mover.submit(spec) {
            Err(error) => assert_eq!(error.class(), ErrorClass::Refused, "{from} to {to}: {error}"),
            Ok(id) => {
                let status = bench.mover.wait(id, Level::Durable, None).unwrap();
                assert_eq!(status.state, State::Failed, "{from} to {to}");
            }
        }
        assert!(bench.at("fast/one").exists() && bench.at("fast/large").exists(), "{from} to {to}");
    }
}

#[test]
fn a_fifo_in_a_tree_is_refused_and_nothing_appears() {
    let bench = Bench::new();
    bench.tree("fast");
    fifo(&bench.at("fast/a/fifo"));
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
fn no_link_is_followed_for_the_digest_of_a_listed_file() {
    let bench = Bench::new();
    bench.tree("fast");
    fs::write(bench.at("outside"), "of another").unwrap();
    symlink(bench.at("outside"), bench.at("fast/leads out")).unwrap();
    let path = PathText("leads out".into());
    let digest = Some(stage::Algorithm::Xxh3.of(b""));
    let expected = vec![stage::spec::Expected { path, size: None, digest }];
    let status = bench.run(Verb::Copy, "fast", "slow/a", Options { expected, ..Options::default() });
    assert_eq!(status.state, State::Failed, "{status:?}");
}

#[test]
fn a_semaphore_that_was_replaced_while_its_job_ran_is_left_and_one_that_asks_for_the_same_goes() {
    let bench = Bench::new();
    bench.tree("fast");
    let at = bench.at("fast.done");
    let read = |contents: &str| {
        let made = bench.at("made");
        fs::write(&made, contents).unwrap();
        fs::rename(&made, &at).unwrap();
        Semaphore::at(at.clone()).unwrap()
    };
    let first = read("");
    read("another");
    let options = Options { semaphore: Some(first), ..Options::default() };
    let status = bench.run(Verb::Copy, "fast", "slow/a", options);
    assert_eq!(status.state, State::Done, "{status:?}");
    assert!(status.notes.iter().any(|note| note.contains("was replaced")), "{status:?}");
    assert_eq!(fs::read(&at).unwrap(), b"another");
    // At work for half a second or more.
    let submit = |semaphore| {
        let options = Options { semaphore: Some(semaphore), bwlimit: Some(18 << 20), ..Options::default() };
        let (source, destination) = (bench.at("fast"), bench.at("slow/b"));
        let [source, destination] = [source, destination].map(|path| Place::of_path(&path).unwrap());
        bench.mover.submit(JobSpec { verb: Verb::Copy, source, destination, options }).unwrap()
    };
    let id = submit(read("x"));
    assert_eq!(submit(read("y")), id);
    let status = bench.mover.wait(id, Level::Durable, None).unwrap();
    assert_eq!((status.state, status.notes.len()), (State::Done, 0), "{status:?}");
    assert!(!at.exists());
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
    let status = bench.run(Verb::Copy, "fast", "slow/copy", options);
    assert_eq!(status.state, State::Done, "{status:?}");
    let copy = fs::File::open(bench.at("slow/copy/sparse")).unwrap();
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
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
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

#[test]
fn files_that_change_behind_and_before_the_copy_are_published_as_one_state() {
    let bench = Bench::new();
    bench.many("fast");
    let (id, copied, open) = bench.half_way(Options::default());
    bench.rewrite(&copied);
    bench.rewrite(&open);
    fs::write(bench.at("fast/new"), "new").unwrap();
    let status = bench.mover.wait(id, Level::Durable, None).unwrap();
    assert_eq!(status.state, State::Done, "{status:?}");
    assert_eq!(
        snapshot(&bench.at("slow/ckpt")),
        snapshot(&bench.at("fast")),
        "{copied:?} and {open:?} were rewritten"
    );
    assert_eq!(status.files_done, 601);
}

#[test]
fn names_that_go_or_become_directories_while_others_are_copied_are_not_in_the_copy() {
    let bench = Bench::new();
    bench.many("fast");
    let (id, copied, open) = bench.half_way(Options::default());
    fs::remove_file(bench.at("fast").join(&open)).unwrap();
    fs::remove_file(bench.at("fast").join(&copied)).unwrap();
    fs::create_dir(bench.at("fast").join(&copied)).unwrap();
    fs::write(bench.at("fast").join(&copied).join("in it"), "x").unwrap();
    let status = bench.mover.wait(id, Level::Durable, None).unwrap();
    assert_eq!(status.state, State::Done, "{status:?}");
    assert_eq!(snapshot(&bench.at("slow/ckpt")), snapshot(&bench.at("fast")));
}

#[test]
fn a_request_that_comes_again_is_answered_for_the_bytes_that_are_there_then() {
    let bench = Bench::new();
    bench.many("fast");
    let (_, copied, _) = bench.half_way(Options::default());
    bench.rewrite(&copied);
    let again = bench.mover.submit(bench.spec(Verb::Copy, "fast", "slow/ckpt", Options::default())).unwrap();
    let status = bench.mover.wait(again, Level::Durable, None).unwrap();
    assert_eq!((status.state, status.level), (State::Done, Level::Durable), "{status:?}");
    assert_eq!(snapshot(&bench.at("slow/ckpt")), snapshot(&bench.at("fast")));
    assert_eq!(
        status.source,
        stage::runner::fingerprint_of(&status.spec, &stage::tier::Tiers::default()).unwrap()
    );
    bench.rewrite(&copied);
    assert_ne!(
        status.source,
        stage::runner::fingerprint_of(&status.spec, &stage::tier::Tiers::default()).unwrap()
    );
}

#[test]
fn a_request_for_other_files_of_a_source_is_a_job_of_its_own_that_begins_when_the_first_has_ended() {
    let bench = Bench::new();
    bench.many("fast");
    let (first, ..) = bench.half_way(Options::default());
    let expected =
        |path: &str| stage::spec::Expected { path: PathText(path.into()), size: None, digest: None };
    let some = Options { expected: vec![expected("001"), expected("no such")], ..Options::default() };
    let second = bench.mover.submit(bench.spec(Verb::Copy, "fast", "slow/ckpt", some)).unwrap();
    assert_ne!(first, second);
    std::thread::sleep(Duration::from_millis(300));
    let states: Vec<State> = bench.mover.status(None).unwrap().iter().map(|job| job.state).collect();
    assert_eq!(states, [State::Running, State::Queued], "two jobs are free, and one destination is not");
    let status = bench.mover.wait(second, Level::Durable, None).unwrap();
    assert_eq!(status.state, State::Failed, "durable was said of a file that is not there: {status:?}");
    assert_eq!(bench.mover.status(Some(first)).unwrap()[0].state, State::Done);
}

#[test]
fn what_failed_behind_its_commit_is_gone_on_with_only_for_the_source_that_it_copied() {
    let bench = Bench::new();
    bench.tree("fast");
    // A semaphore that cannot be removed, because it is a directory.
    fs::create_dir(bench.at("semaphore")).unwrap();
    let options =
        Options { semaphore: Some(Semaphore::at(bench.at("semaphore")).unwrap()), ..Options::default() };
    let spec = bench.spec(Verb::Copy, "fast", "slow/ckpt", options);
    let run = || {
        let id = submit_or_retry(&bench.mover, spec.clone()).unwrap();
        bench.mover.wait(id, Level::Durable, None).unwrap()
    };
    let first = run();
    assert_eq!((first.state, first.level), (State::Failed, Level::Durable), "{first:?}");
    assert_eq!(run().id, first.id);
    bench.rewrite("a/b/page");
    fs::remove_dir(bench.at("semaphore")).unwrap();
    let second = run();
    assert_ne!(second.id, first.id, "durable was said of the bytes from before");
    let why = second.error.unwrap().message;
    assert!(second.state == State::Failed && why.contains("is something else"), "{why}");
}

#[test]
fn another_users_empty_directory_is_no_claim() {
    let bench = Bench::new();
    bench.tree("run");
    let claim = bench.at("slow/run");
    fs::create_dir(&claim).unwrap();
    fs::set_permissions(&claim, fs::Permissions::from_mode(0o1700)).unwrap();
    if let Err(error) = std::os::unix::fs::chown(&claim, Some(65_534), Some(65_534)) {
        println!("SKIP a directory of another user: {error}");
        return;
    }
    let before = fs::metadata(&claim).unwrap();
    let status = bench.run(Verb::Move, "run", "slow/run", Options::default());
    assert_eq!(status.state, State::Failed, "{status:?}");
    let after = fs::metadata(&claim).unwrap();
    assert_eq!((after.ino(), after.uid(), after.mode()), (before.ino(), before.uid(), before.mode()));
    assert!(bench.at("run/large").exists());
    // One's own is what a crash leaves on a file system without RENAME_NOREPLACE.
    std::os::unix::fs::chown(&claim, Some(rustix::process::geteuid().as_raw()), None).unwrap();
    bench.done(Verb::Move, "run", "slow/run");
}
