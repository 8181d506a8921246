//! Semaphores as applications write them, against a desk that moves nothing.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FileType;

use super::*;
use crate::testing::Still;

const HOUR: Duration = Duration::from_secs(3600);
/// Soon enough not to be waited for, and no measure of anything.
const SOON: Duration = Duration::from_millis(5);

fn finder(root: &Path, pattern: &str, rescan: Duration, settle: Duration) -> Finder {
    Finder::new(root, Pattern::parse(pattern).unwrap(), Timing { rescan, settle }).unwrap()
}

/// What is found, until it is `count` or a generous while has passed.
fn find(finder: &mut Finder, count: usize) -> Vec<PathBuf> {
    let begun = Instant::now();
    let mut paths = Vec::new();
    while paths.len() < count && begun.elapsed() < Duration::from_secs(60) {
        paths.extend(finder.next(Duration::from_millis(20)).unwrap().into_iter().map(|found| found.path));
    }
    paths.sort();
    paths
}

fn renamed_into_place(path: &Path, contents: &str) {
    let beside = path.with_extension("tmp");
    fs::write(&beside, contents).unwrap();
    fs::rename(&beside, path).unwrap();
}

#[test]
fn what_was_there_before_is_found_once_and_again_only_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.done"), "").unwrap();
    fs::write(folder.path().join("a"), "").unwrap();
    let mut finder = finder(folder.path(), "*.done", SOON, SOON);
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
    for _ in 0..20 {
        assert_eq!(finder.next(SOON).unwrap(), []);
    }
    renamed_into_place(&folder.path().join("a.done"), "changed");
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
    // Gone and back, in whatever state.
    fs::rename(folder.path().join("a.done"), folder.path().join("kept")).unwrap();
    for _ in 0..20 {
        assert_eq!(finder.next(SOON).unwrap(), []);
    }
    fs::rename(folder.path().join("kept"), folder.path().join("a.done")).unwrap();
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
}

#[test]
fn one_that_is_renamed_into_place_or_closed_is_found_by_its_event() {
    let folder = tempfile::tempdir().unwrap();
    let mut finder = finder(folder.path(), "*.done", HOUR, HOUR);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    renamed_into_place(&folder.path().join("a.done"), "");
    fs::write(folder.path().join("b\n.done"), "x").unwrap();
    fs::write(folder.path().join("c.other"), "x").unwrap();
    assert_eq!(find(&mut finder, 2), [Path::new("a.done"), Path::new("b\n.done")]);
}

#[test]
fn one_that_is_still_being_written_waits_for_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut finder = finder(folder.path(), "*.done", SOON, SOON);
    assert_eq!(finder.next(SOON).unwrap(), []);
    let mut file = fs::File::create(folder.path().join("a.done")).unwrap();
    file.write_all(b"half").unwrap();
    for _ in 0..20 {
        assert_eq!(finder.next(SOON).unwrap(), [], "it is open for writing");
    }
    drop(file);
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
}

#[test]
fn one_that_a_scan_sees_before_its_event_is_heard_waits_for_its_end_as_well() {
    let folder = tempfile::tempdir().unwrap();
    // Each call scans first, and what a scan has found would be whole at once.
    let mut finder = finder(folder.path(), "*.done", Duration::ZERO, Duration::ZERO);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    let mut file = fs::File::create(folder.path().join("a.done")).unwrap();
    file.write_all(b"half").unwrap();
    for _ in 0..20 {
        assert_eq!(finder.next(Duration::ZERO).unwrap(), [], "it is open for writing");
    }
    drop(file);
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
}

#[test]
fn one_that_is_opened_again_waits_for_its_end_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let mut finder = finder(folder.path(), "*.done", HOUR, HOUR);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    let at = folder.path().join("a.done");
    fs::write(&at, "whole\n").unwrap();
    let mut file = fs::File::create(&at).unwrap();
    file.write_all(b"half").unwrap();
    for _ in 0..20 {
        assert_eq!(finder.next(SOON).unwrap(), [], "it is open for writing again");
    }
    drop(file);
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
}

#[test]
fn the_end_of_a_file_that_had_the_name_before_is_not_the_end_of_this() {
    let folder = tempfile::tempdir().unwrap();
    let mut finder = finder(folder.path(), "*.done", HOUR, HOUR);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    let at = folder.path().join("a.done");
    let before = fs::File::create(&at).unwrap();
    fs::remove_file(&at).unwrap();
    let mut file = fs::File::create(&at).unwrap();
    file.write_all(b"half").unwrap();
    drop(before);
    for _ in 0..20 {
        assert_eq!(finder.next(SOON).unwrap(), [], "it is open for writing");
    }
    drop(file);
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
}

#[test]
fn what_happens_in_a_directory_that_was_renamed_tells_nothing_of_its_old_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut finder = finder(folder.path(), "run-*/ckpt-*/DONE", HOUR, HOUR);
    fs::create_dir_all(at("run-1/ckpt-7")).unwrap();
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    fs::rename(at("run-1"), at("old-1")).unwrap();
    fs::create_dir_all(at("run-1/ckpt-7")).unwrap();
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    let mut file = fs::File::create(at("run-1/ckpt-7/DONE")).unwrap();
    file.write_all(b"half").unwrap();
    fs::write(at("old-1/ckpt-7/DONE"), "").unwrap();
    for _ in 0..20 {
        assert_eq!(finder.next(SOON).unwrap(), [], "it is open for writing");
    }
    drop(file);
    assert_eq!(find(&mut finder, 1), [Path::new("run-1/ckpt-7/DONE")]);
}

#[test]
fn an_overflow_may_have_swallowed_that_a_directory_was_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let longest: usize =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    if longest > 100_000 {
        println!("SKIP overflow of inotify's queue: it holds {longest} events");
        return;
    }
    let mut finder = finder(folder.path(), "ckpt-*/DONE", HOUR, HOUR);
    fs::create_dir(at("ckpt-7")).unwrap();
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    for number in 0..longest / 2 + 100 {
        fs::write(at(&format!("ckpt-7/{number}")), "").unwrap();
    }
    fs::rename(at("ckpt-7"), at("old-7")).unwrap();
    fs::create_dir(at("ckpt-7")).unwrap();
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), [], "it is scanned");
    let mut file = fs::File::create(at("ckpt-7/DONE")).unwrap();
    file.write_all(b"half").unwrap();
    fs::write(at("old-7/DONE"), "").unwrap();
    for _ in 0..20 {
        assert_eq!(finder.next(SOON).unwrap(), [], "it is open for writing");
    }
    drop(file);
    assert_eq!(find(&mut finder, 1), [Path::new("ckpt-7/DONE")]);
}

#[test]
fn a_directory_that_comes_back_is_looked_into_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut finder = finder(folder.path(), "ckpt-*/DONE", HOUR, SOON);
    fs::create_dir(at("ckpt-7")).unwrap();
    fs::write(at("ckpt-7/DONE"), "").unwrap();
    assert_eq!(find(&mut finder, 1), [Path::new("ckpt-7/DONE")]);
    fs::rename(at("ckpt-7"), at("out")).unwrap();
    fs::rename(at("out"), at("ckpt-7")).unwrap();
    assert_eq!(find(&mut finder, 1), [Path::new("ckpt-7/DONE")]);
}

#[test]
fn another_directory_of_the_name_is_not_watched() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("watched")).unwrap();
    let mut finder = finder(&at("watched"), "*.done", HOUR, SOON);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    fs::rename(at("watched"), at("old")).unwrap();
    fs::create_dir(at("watched")).unwrap();
    fs::write(at("old/a.done"), "").unwrap();
    let error = std::iter::repeat_with(|| finder.next(SOON)).take(100).find_map(Result::err).unwrap();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "another directory has its name now", "{error}");
}

#[test]
fn one_that_settles_again_is_waited_for_however_soon_it_settles() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.done"), "").unwrap();
    let mut finder = finder(folder.path(), "*.done", HOUR, Duration::ZERO);
    let found = finder.next(Duration::ZERO).unwrap().remove(0);
    finder.settle_again(&found);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
}

/// Semaphores that nobody closes, although the events of their making look as if somebody had opened them.
#[test]
fn what_needs_no_close_is_found_by_a_scan() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut finder = finder(folder.path(), "*.done", SOON, SOON);
    fs::write(at("empty"), "").unwrap();
    fs::write(at("cut.done"), "contents").unwrap();
    assert_eq!(find(&mut finder, 1), [Path::new("cut.done")]);
    fs::hard_link(at("empty"), at("linked.done")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, at("made.done"), FileType::RegularFile, Mode::RUSR, 0).unwrap();
    // truncate(2), without a descriptor.
    assert!(
        std::process::Command::new("python3")
            .args(["-c", "import os, sys; os.truncate(sys.argv[1], 1)"])
            .arg(at("cut.done"))
            .status()
            .unwrap()
            .success()
    );
    let all = ["cut.done", "linked.done", "made.done"].map(PathBuf::from);
    assert_eq!(find(&mut finder, 3), all);
    assert!(finder.is_quiet());
}

/// The kernel grants a lease to the owner and to root alone.
#[test]
fn events_alone_tell_of_the_semaphores_of_another_user() {
    use rustix::process::Uid;
    if !rustix::process::geteuid().is_root() {
        println!("SKIP the semaphores of another user: it takes root to become one");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut finder = finder(folder.path(), "*.done", SOON, SOON);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    fs::write(at("other"), "").unwrap();
    fs::hard_link(at("other"), at("a.done")).unwrap();
    let mut finder = std::thread::scope(|scope| {
        let as_nobody = scope.spawn(|| {
            // Of this thread alone.
            rustix::thread::set_thread_uid(Uid::from_raw(65534)).unwrap();
            for _ in 0..20 {
                assert_eq!(finder.next(SOON).unwrap(), [], "it may be open");
            }
            finder
        });
        as_nobody.join().unwrap()
    });
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")], "of one's own it is known");
}

#[test]
fn nothing_is_lost_when_the_queue_of_events_overflows() {
    let folder = tempfile::tempdir().unwrap();
    let longest: usize =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    if longest > 100_000 {
        println!("SKIP overflow of inotify's queue: it holds {longest} events");
        return;
    }
    let mut finder = finder(folder.path(), "*.done", HOUR, SOON);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    // Two events each, none of which is taken meanwhile.
    let count = longest / 2 + 100;
    for number in 0..count {
        fs::write(folder.path().join(format!("{number}.done")), "").unwrap();
    }
    assert_eq!(find(&mut finder, count).len(), count);
}

#[test]
fn directories_that_come_later_are_looked_into_and_links_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("DONE"), "").unwrap();
    let mut finder = finder(folder.path(), "ckpt-*/DONE", HOUR, SOON);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    std::os::unix::fs::symlink(outside.path(), folder.path().join("ckpt-0")).unwrap();
    fs::create_dir(folder.path().join("ckpt-2")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("DONE"), folder.path().join("ckpt-2/DONE")).unwrap();
    fs::create_dir(folder.path().join("ckpt-1")).unwrap();
    fs::write(folder.path().join("ckpt-1/DONE"), "").unwrap();
    // A directory that gets its name when it is whole, as writers do that publish by renaming.
    fs::create_dir(folder.path().join("hidden")).unwrap();
    fs::write(folder.path().join("hidden/DONE"), "").unwrap();
    fs::rename(folder.path().join("hidden"), folder.path().join("ckpt-3")).unwrap();
    assert_eq!(find(&mut finder, 2), [Path::new("ckpt-1/DONE"), Path::new("ckpt-3/DONE")]);
    fs::remove_file(folder.path().join("ckpt-2/DONE")).unwrap();
    fs::write(folder.path().join("ckpt-2/DONE"), "").unwrap();
    assert_eq!(find(&mut finder, 1), [Path::new("ckpt-2/DONE")]);
}

fn orders(to: &Path, keep_trigger: bool) -> Orders {
    let to = Place::of_path(to).unwrap();
    Orders { to, verb: Verb::Move, options: Options::default(), keep_trigger, lists: true }
}

fn watch<'a>(folder: &Path, desk: &'a Still, keep: bool, check: &'a Check<'a>) -> Watch<'a> {
    let pattern = Pattern::parse("*.done").unwrap();
    let timing = Timing { rescan: SOON, settle: SOON };
    Watch::new(folder, pattern, timing, orders(Path::new("/slow"), keep), desk, check).unwrap()
}

/// `a` and `b`, and `x.done`, which lists them.
fn two_files_and_their_list() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, contents) in [("a", "a"), ("b", "b"), ("x.done", "a\nb\n")] {
        fs::write(folder.path().join(name), contents).unwrap();
    }
    folder
}

fn next(watch: &mut Watch<'_>) -> Happened {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        let mut happened = watch.step(SOON).unwrap();
        if !happened.is_empty() {
            assert_eq!(happened.len(), 1, "{happened:?}");
            return happened.remove(0);
        }
    }
    panic!("nothing happened");
}

#[test]
fn one_source_is_one_job_whose_affair_the_semaphore_is() {
    let folder = tempfile::tempdir().unwrap();
    let desk = Still::default();
    fs::create_dir(folder.path().join("ckpt-7")).unwrap();
    fs::write(folder.path().join("ckpt-7.done"), "").unwrap();
    let mut watch = watch(folder.path(), &desk, false, &|_, _| unreachable!());
    let trigger = PathBuf::from("ckpt-7.done");
    assert_eq!(next(&mut watch), Happened::Submitted { trigger: trigger.clone(), jobs: vec![1] });
    let specs = desk.specs();
    assert_eq!(specs[0].source.path(), Some(folder.path().join("ckpt-7").as_path()));
    assert_eq!(specs[0].destination.path(), Some(Path::new("/slow/ckpt-7")));
    let semaphore = || Some(Semaphore::at(folder.path().join("ckpt-7.done")).unwrap());
    assert_eq!(specs[0].options.semaphore, semaphore());
    desk.set(1, State::Failed);
    assert!(matches!(next(&mut watch), Happened::Failed { job: 1, .. }));
    assert_eq!((watch.under_way(), watch.failures()), (0, 1));
    // The application writes it a second time: the same job goes on.
    renamed_into_place(&folder.path().join("ckpt-7.done"), "");
    assert_eq!(next(&mut watch), Happened::Submitted { trigger, jobs: vec![1] });
    assert_eq!(desk.specs()[0].options.semaphore, semaphore(), "the new one goes when it is durable");
    desk.set(1, State::Done);
    assert!(matches!(next(&mut watch), Happened::Durable { .. }));
    assert!(watch.is_idle());
}

/// Half a list vouches for half a set: the other half would stay for ever, with no semaphore.
#[test]
fn a_list_that_anybody_still_writes_is_not_obeyed() {
    let (folder, desk) = (two_files_and_their_list(), Still::default());
    let at = |name: &str| folder.path().join(name);
    fs::remove_file(at("x.done")).unwrap();
    let mut watch = watch(folder.path(), &desk, false, &|_, _| unreachable!());
    assert_eq!(watch.step(SOON).unwrap(), []);
    let mut writer = fs::File::create(at("x.done")).unwrap();
    writer.write_all(b"a\n").unwrap();
    for _ in 0..20 {
        // The end of another's writing, as of touch(1).
        drop(fs::OpenOptions::new().append(true).open(at("x.done")).unwrap());
        assert_eq!(watch.step(SOON).unwrap(), []);
    }
    assert!(!watch.is_idle());
    let Happened::Note(note) = next(&mut watch) else { panic!() };
    assert!(note.ends_with("x.done: a process has it open for writing, and it is waited for"), "{note}");
    writer.write_all(b"b\n").unwrap();
    drop(writer);
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
}

/// As a file server has one for a client that writes.
#[test]
fn a_semaphore_with_a_write_lease_is_waited_for_and_holds_no_other_up() {
    use std::io::Read;
    use std::process::{Command, Stdio};
    let (folder, desk) = (two_files_and_their_list(), Still::default());
    let script = "import fcntl, signal, sys; signal.signal(signal.SIGIO, signal.SIG_IGN); file = open(sys.argv[1]); \
                  fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK); print('', flush=True); sys.stdin.read()";
    let mut holder = Command::new("python3");
    holder.args(["-c", script]).arg(folder.path().join("x.done"));
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    holder.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let mut watch = watch(folder.path(), &desk, false, &|_, _| unreachable!());
    fs::write(folder.path().join("c"), "").unwrap();
    fs::write(folder.path().join("c.done"), "").unwrap();
    assert!(
        matches!(next(&mut watch), Happened::Submitted { trigger, .. } if trigger == Path::new("c.done"))
    );
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
    let submitted = std::iter::repeat_with(|| next(&mut watch)).find(|it| !matches!(it, Happened::Note(_)));
    assert!(matches!(submitted, Some(Happened::Submitted { jobs, .. }) if jobs == [2, 3]));
}

#[test]
fn an_older_state_of_a_semaphore_does_not_have_it_handed_out_twice() {
    let (folder, desk) = (two_files_and_their_list(), Still::default());
    let mut watch = watch(folder.path(), &desk, false, &|_, _| unreachable!());
    let mut found = || std::iter::repeat_with(|| watch.finder.next(SOON).unwrap()).find(|it| !it.is_empty());
    let older = found().unwrap().remove(0);
    renamed_into_place(&folder.path().join("x.done"), "a 1\nb 1\n");
    let newer = found().unwrap().remove(0);
    assert_eq!(watch.obey(&older).unwrap(), None);
    assert!(matches!(watch.obey(&newer).unwrap(), Some(Happened::Submitted { .. })));
    for _ in 0..20 {
        assert_eq!(watch.step(SOON).unwrap(), []);
    }
}

/// Of two files the first is moved, and something happens before the second one is.
#[test]
fn a_set_that_is_half_moved_goes_on() {
    for is_new in [false, true] {
        let (folder, desk) = (two_files_and_their_list(), Still::default());
        let at = |name: &str| folder.path().join(name);
        let mut first = watch(folder.path(), &desk, false, &|_, _| unreachable!());
        assert!(matches!(next(&mut first), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
        desk.set(1, State::Done);
        fs::remove_file(at("a")).unwrap();
        // Its job is just removing it.
        fs::rename(at("b"), at("kept")).unwrap();
        // The watch is started anew; the semaphore is written anew.
        let mut second = if is_new {
            drop(first);
            watch(folder.path(), &desk, false, &|_, _| unreachable!())
        } else {
            renamed_into_place(&at("x.done"), "a\nb\n");
            first
        };
        assert!(matches!(next(&mut second), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
        desk.set(2, State::Failed);
        assert!(matches!(next(&mut second), Happened::Failed { job: 2, .. }));
        // It is mended, and asked for again.
        fs::rename(at("kept"), at("b")).unwrap();
        renamed_into_place(&at("x.done"), "a\nb\n");
        let Happened::Submitted { jobs, .. } = next(&mut second) else { panic!() };
        assert_eq!(jobs[0], 1);
        desk.set(jobs[1], State::Done);
        fs::remove_file(at("b")).unwrap();
        assert!(matches!(next(&mut second), Happened::Durable { .. }));
        assert!(!at("x.done").exists());
        // New ones of the names are moved anew.
        fs::write(at("a"), "new").unwrap();
        fs::write(at("b"), "new").unwrap();
        renamed_into_place(&at("x.done"), "a\nb\n");
        let Happened::Submitted { jobs: anew, .. } = next(&mut second) else { panic!() };
        assert!(anew.iter().all(|job| !jobs.contains(job)), "{anew:?} {jobs:?}");
    }
}

#[test]
fn a_semaphore_of_one_file_that_was_moved_before_asks_for_what_is_not_there() {
    let (folder, desk) = (tempfile::tempdir().unwrap(), Still::default());
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a"), "a").unwrap();
    fs::write(at("a.done"), "").unwrap();
    let mut watch = watch(folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut watch), Happened::Submitted { .. }));
    desk.set(1, State::Done);
    fs::remove_file(at("a")).unwrap();
    fs::remove_file(at("a.done")).unwrap();
    assert!(matches!(next(&mut watch), Happened::Durable { .. }));
    renamed_into_place(&at("a.done"), "");
    let Happened::Refused { why, .. } = next(&mut watch) else { panic!() };
    assert!(why.message.contains("vouches for a, which is not there"), "{why:?}");
}

/// Refuses the jobs of one source.
struct Refusing<'a>(&'a Still, std::sync::Mutex<Option<PathBuf>>);

impl Desk for Refusing<'_> {
    fn submit(&self, spec: JobSpec) -> Result<JobId, StageError> {
        match self.1.lock().unwrap().as_deref() == spec.source.path() {
            true => Err(StageError::invalid("is there already", "move it away")),
            false => self.0.submit(spec),
        }
    }

    fn status(&self, id: Option<JobId>) -> Result<Vec<JobStatus>, StageError> {
        self.0.status(id)
    }

    fn wait(&self, id: JobId, level: Level, most: Option<Duration>) -> Result<JobStatus, StageError> {
        self.0.wait(id, level, most)
    }

    fn cancel(&self, id: JobId) -> Result<JobStatus, StageError> {
        self.0.cancel(id)
    }

    fn retry(&self, id: JobId) -> Result<JobStatus, StageError> {
        let spec = self.0.status(Some(id))?.remove(0).spec;
        self.submit(spec).and_then(|_| self.0.retry(id))
    }
}

#[test]
fn if_one_job_of_a_set_is_refused_those_before_it_are_given_up() {
    let (folder, still) = (two_files_and_their_list(), Still::default());
    let at = |name: &str| folder.path().join(name);
    let desk = Refusing(&still, Some(at("b")).into());
    let pattern = Pattern::parse("*.done").unwrap();
    let timing = Timing { rescan: SOON, settle: SOON };
    let orders = orders(Path::new("/slow"), false);
    let mut watch =
        Watch::new(folder.path(), pattern, timing, orders, &desk, &|_, _| unreachable!()).unwrap();
    assert!(matches!(next(&mut watch), Happened::Refused { .. }));
    assert_eq!(still.status(Some(1)).unwrap()[0].state, State::Cancelled);
    assert!(watch.is_idle());
    *desk.1.lock().unwrap() = None;
    renamed_into_place(&at("x.done"), "a\nb\n");
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [2, 3]));
    // One that was under way before is not.
    still.set(3, State::Failed);
    assert!(matches!(next(&mut watch), Happened::Failed { job: 3, .. }));
    *desk.1.lock().unwrap() = Some(at("b"));
    renamed_into_place(&at("x.done"), "a\nb\n");
    assert!(matches!(next(&mut watch), Happened::Refused { .. }));
    assert_eq!(still.status(Some(2)).unwrap()[0].state, State::Queued);
}

#[test]
fn a_semaphore_that_is_not_as_it_was_found_is_found_again() {
    let (folder, desk) = (two_files_and_their_list(), Still::default());
    let at = |name: &str| folder.path().join(name);
    let mut watch = watch(folder.path(), &desk, false, &|_, _| unreachable!());
    let found = std::iter::repeat_with(|| watch.finder.next(SOON).unwrap()).find(|found| !found.is_empty());
    let found = found.unwrap().remove(0);
    renamed_into_place(&at("x.done"), "a\n");
    assert_eq!(watch.obey(&found).unwrap(), None);
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1]));
    assert_eq!(desk.specs().len(), 1);
}

#[test]
fn the_end_of_each_job_of_a_semaphore_that_was_replaced_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let desk = Still::default();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("a")).unwrap();
    fs::write(at("a/x"), "x").unwrap();
    fs::write(at("a.done"), "").unwrap();
    let mut watch = watch(folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1]));
    renamed_into_place(&at("a.done"), "a/x 1\n");
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [2]));
    assert_eq!(watch.under_way(), 2);
    let [first, second] = [0, 1].map(|job| desk.specs()[job].options.semaphore.clone().unwrap());
    assert_ne!(first.identity, second.identity);
    desk.set(1, State::Done);
    assert!(matches!(next(&mut watch), Happened::Durable { jobs, .. } if jobs[0].id == 1));
    desk.set(2, State::Failed);
    assert!(matches!(next(&mut watch), Happened::Failed { job: 2, .. }));
    assert_eq!((watch.under_way(), watch.failures()), (0, 1));
}

#[test]
fn the_semaphore_of_several_files_goes_when_the_last_is_durable_and_none_starts_where_one_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let desk = Still::default();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a"), "a").unwrap();
    fs::write(at("b"), "b").unwrap();
    fs::write(at("x.done"), "a 1\nb 2\n").unwrap();
    let mut watch = watch(folder.path(), &desk, false, &|_, _| unreachable!());
    let Happened::Refused { why, .. } = next(&mut watch) else { panic!() };
    assert!(why.message.contains("vouches for b, which has 1 bytes, not 2"), "{why:?}");
    assert!(desk.specs().is_empty());
    renamed_into_place(&at("x.done"), "a 1\nb 1\n");
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
    desk.set(1, State::Done);
    assert_eq!(watch.step(SOON).unwrap(), []);
    assert!(at("x.done").exists());
    desk.set(2, State::Done);
    assert!(matches!(next(&mut watch), Happened::Durable { .. }));
    assert!(!at("x.done").exists());
}

#[test]
fn the_semaphore_of_several_files_stays_if_a_copy_is_in_memory() {
    let (folder, desk) = (two_files_and_their_list(), Still::default());
    let at = |name: &str| folder.path().join(name);
    let mut watch = watch(folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
    desk.set_in_memory(1);
    let Happened::Failed { job: 1, why, .. } = next(&mut watch) else { panic!() };
    assert!(why.message.ends_with(": copied to memory, not durable"), "{why:?}");
    desk.set(2, State::Done);
    assert_eq!(watch.step(SOON).unwrap(), []);
    assert!(at("x.done").exists());
    assert_eq!((watch.under_way(), watch.failures()), (0, 1));
}

#[test]
fn a_destination_in_memory_is_not_watched_for() {
    let folder = tempfile::tempdir().unwrap();
    let (desk, memory) = (Still::default(), Path::new("/dev/shm"));
    if !stage::mounts::Mount::nearest(memory).is_some_and(|mount| mount.is_in_memory()) {
        println!("SKIP a semaphore for a copy in memory: /dev/shm is not in memory");
        return;
    }
    let orders = Orders {
        to: Place::of_path(memory).unwrap(),
        verb: Verb::Copy,
        options: Options::default(),
        keep_trigger: true,
        lists: true,
    };
    let timing = Timing { rescan: HOUR, settle: SOON };
    let pattern = Pattern::parse("*.done").unwrap();
    let error = Watch::new(folder.path(), pattern, timing, orders, &desk, &|_, _| unreachable!()).err();
    assert!(matches!(error, Some(StageError::Refused { .. })), "{error:?}");
}

#[test]
fn a_crash_before_the_semaphore_of_several_files_goes_is_made_up_for() {
    let (folder, desk) = (two_files_and_their_list(), Still::default());
    let at = |name: &str| folder.path().join(name);
    let mut first = watch(folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut first), Happened::Submitted { .. }));
    drop(first);
    for (id, name) in [(1, "a"), (2, "b")] {
        desk.set(id, State::Done);
        fs::remove_file(at(name)).unwrap();
    }
    let mut second = watch(folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut second), Happened::AlreadyThere { .. }));
    assert!(!at("x.done").exists());
    assert_eq!(desk.specs().len(), 2);
}

#[test]
fn a_semaphore_that_stays_has_its_set_moved_once() {
    let folder = tempfile::tempdir().unwrap();
    let desk = Still::default();
    fs::write(folder.path().join("a"), "a").unwrap();
    fs::write(folder.path().join("a.done"), "").unwrap();
    let there = std::cell::Cell::new(false);
    let check = |source: &Path, to: &Place| {
        assert_eq!((source, to.path()), (folder.path().join("a").as_path(), Some(Path::new("/slow/a"))));
        Ok(there.get())
    };
    let mut first = watch(folder.path(), &desk, true, &check);
    assert!(matches!(next(&mut first), Happened::Submitted { .. }));
    assert_eq!(desk.specs()[0].options.semaphore, None);
    desk.set(1, State::Done);
    assert!(matches!(next(&mut first), Happened::Durable { .. }));
    there.set(true);
    let mut second = watch(folder.path(), &desk, true, &check);
    assert!(matches!(next(&mut second), Happened::AlreadyThere { .. }));
    assert_eq!(desk.specs().len(), 1);
    assert!(folder.path().join("a.done").exists());
}

#[test]
fn names_in_urls_are_escaped() {
    let to = Place::of_name("s3://bucket/run/").unwrap();
    let place = to.join(Path::new("a b/c%")).unwrap();
    assert_eq!(place, Place::of_name("s3://bucket/run/a%20b/c%25").unwrap());
    let to = Place::of_name("s3://bucket/run/?region=x").unwrap();
    assert_eq!(to.join(Path::new("a")).unwrap(), Place::of_name("s3://bucket/run/a?region=x").unwrap());
}
