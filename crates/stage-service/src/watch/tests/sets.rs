//! What is made of semaphores: jobs, and what becomes of them, against a desk that moves nothing.

use super::*;

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
    let semaphore = || {
        let watched = Some(PathText(folder.path().to_owned()));
        Some(Semaphore { watched, ..Semaphore::at(folder.path().join("ckpt-7.done")).unwrap() })
    };
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
fn a_list_that_a_process_still_writes_is_not_obeyed_and_is_told() {
    // One writer alone, and a second one that comes and goes, as touch(1).
    for is_touched in [false, true] {
        let (folder, desk) = (two_files_and_their_list(), Still::default());
        let at = |name: &str| folder.path().join(name);
        fs::remove_file(at("x.done")).unwrap();
        let mut watch = watch(folder.path(), &desk, false, &|_, _| unreachable!());
        assert_eq!(watch.step(SOON).unwrap(), []);
        let mut writer = fs::File::create(at("x.done")).unwrap();
        writer.write_all(b"a\n").unwrap();
        let mut told = Vec::new();
        for round in 0..2000 {
            if is_touched && round < 20 {
                drop(fs::OpenOptions::new().append(true).open(at("x.done")).unwrap());
            }
            told.extend(watch.step(SOON).unwrap());
            if !told.is_empty() {
                break;
            }
        }
        let note = format!(
            "{}: is open for writing, or another process has a lease on it, and is waited for",
            at("x.done").display()
        );
        assert_eq!(told, [Happened::Note(note)]);
        assert!(!watch.is_idle());
        for _ in 0..20 {
            assert_eq!(watch.step(SOON).unwrap(), [], "it is told once");
        }
        writer.write_all(b"b\n").unwrap();
        drop(writer);
        assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
    }
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

#[test]
fn nothing_is_handed_in_once_another_directory_has_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let desk = Still::default();
    fs::create_dir_all(at("above/watched")).unwrap();
    let pattern = Pattern::parse("*.done").unwrap();
    let timing = Timing { rescan: HOUR, settle: SOON };
    let orders = orders(Path::new("/slow"), false);
    let watched = at("above/watched");
    let mut watch = Watch::new(&watched, pattern, timing, orders, &desk, &|_, _| unreachable!()).unwrap();
    assert_eq!(watch.step(Duration::ZERO).unwrap(), []);
    // Of what is above it no event tells.
    fs::rename(at("above"), at("old")).unwrap();
    fs::create_dir_all(&watched).unwrap();
    fs::write(watched.join("a"), "another").unwrap();
    fs::write(at("old/watched/a"), "a").unwrap();
    fs::write(at("old/watched/a.done"), "").unwrap();
    let told = std::iter::repeat_with(|| watch.step(SOON))
        .take(100)
        .find(|it| !matches!(it, Ok(it) if it.is_empty()));
    assert!(matches!(told, Some(Ok(it)) if matches!(it[..], [Happened::Refused { .. }])));
    assert!(desk.specs().is_empty());
}

#[test]
fn no_semaphore_goes_for_what_another_directory_of_the_name_lacks() {
    let (above, slow, desk) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Still::default());
    let folder = two_files_and_their_list();
    let at = |name: &str| above.path().join(name);
    fs::create_dir(at("above")).unwrap();
    fs::rename(folder.path(), at("above/watched")).unwrap();
    let watched = at("above/watched");
    let begun = || watch_to(slow.path(), &watched, &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut begun()), Happened::Submitted { .. }));
    for (id, name) in [(1, "a"), (2, "b")] {
        desk.set(id, State::Done);
        fs::copy(watched.join(name), slow.path().join(name)).unwrap();
    }
    // It has scanned, and hears of what the old directory holds by events alone.
    let timing = Timing { rescan: HOUR, settle: HOUR };
    let (pattern, orders) = (Pattern::parse("*.done").unwrap(), orders(slow.path(), false));
    let mut second = Watch::new(&watched, pattern, timing, orders, &desk, &|_, _| unreachable!()).unwrap();
    assert_eq!(second.step(Duration::ZERO).unwrap(), []);
    fs::rename(at("above"), at("old")).unwrap();
    fs::create_dir_all(&watched).unwrap();
    touched(&at("old/watched/x.done"));
    let told = std::iter::repeat_with(|| second.step(SOON).unwrap()).take(100).find(|it| !it.is_empty());
    assert!(matches!(told.as_deref(), Some([Happened::Refused { .. }])), "{told:?}");
    assert!(at("old/watched/x.done").exists());
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

#[test]
fn a_source_that_cannot_be_looked_at_is_not_gone() {
    let (folder, desk) = (tempfile::tempdir().unwrap(), Still::default());
    std::os::unix::fs::symlink("circle", folder.path().join("circle")).unwrap();
    let watch = watch(folder.path(), &desk, false, &|_, _| unreachable!());
    let of = |path: &str| set::Source { path: path.into(), expected: Vec::new() };
    assert!(watch.is_absent(&of("a")));
    assert!(!watch.is_absent(&of("circle/a")));
}

/// Has a job end while it is asked for again, or, once, when all jobs were told; its source is taken away if so.
struct Ending<'a> {
    still: &'a Still,
    job: JobId,
    end: State,
    source: PathBuf,
    takes_source: bool,
    ends_early: AtomicBool,
}

impl Ending<'_> {
    fn end(&self) {
        self.still.set(self.job, self.end);
        if self.takes_source {
            fs::remove_file(&self.source).unwrap();
        }
    }
}

impl Desk for Ending<'_> {
    fn submit(&self, spec: JobSpec) -> Result<JobId, StageError> {
        let is_it = self.still.status(Some(self.job)).is_ok_and(|job| job[0].spec.is_same_request(&spec));
        if is_it {
            if self.source.exists() {
                self.end();
            }
            return Err(StageError::invalid("is not there", "name what is to be moved"));
        }
        self.still.submit(spec)
    }

    fn status(&self, id: Option<JobId>) -> Result<Vec<JobStatus>, StageError> {
        let known = self.still.status(id);
        if id.is_none() && self.ends_early.swap(false, Ordering::Relaxed) {
            self.end();
        }
        known
    }

    fn wait(&self, id: JobId, level: Level, most: Option<Duration>) -> Result<JobStatus, StageError> {
        self.still.wait(id, level, most)
    }

    fn cancel(&self, id: JobId) -> Result<JobStatus, StageError> {
        self.still.cancel(id)
    }

    fn retry(&self, id: JobId) -> Result<JobStatus, StageError> {
        self.still.retry(id)
    }
}

fn ending(still: &Still, job: JobId, end: State, source: PathBuf, takes_source: bool) -> Ending<'_> {
    Ending { still, job, end, source, takes_source, ends_early: false.into() }
}

#[test]
fn a_job_that_ends_while_its_set_is_handed_in_again_is_one_of_the_set() {
    for (end, is_gone, goes_on) in [
        (State::Committed, true, true),
        (State::Running, true, false),
        (State::Done, true, true),
        (State::Failed, true, false),
        (State::Done, false, false),
    ] {
        // Before what is there is compared with the list, or after that.
        for is_early in [true, false] {
            let (folder, still) = (two_files_and_their_list(), Still::default());
            let desk = ending(&still, 2, end, folder.path().join("b"), is_gone);
            let begun = || watch_to(Path::new("/slow"), folder.path(), &desk, false, &|_, _| unreachable!());
            assert!(matches!(next(&mut begun()), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
            renamed_into_place(&folder.path().join("x.done"), "a\nb\n");
            desk.ends_early.store(is_early, Ordering::Relaxed);
            let told = next(&mut begun());
            let is_handed_in = matches!(&told, Happened::Submitted { jobs, .. } if *jobs == [1, 2]);
            assert_eq!(is_handed_in, goes_on, "{is_early} {end:?}: {told:?}");
        }
    }
    // One whose affair the semaphore is has left the new one.
    let (folder, still) = (two_files_and_their_list(), Still::default());
    let desk = ending(&still, 1, State::Done, folder.path().join("a"), true);
    let mut watch = watch_to(Path::new("/slow"), folder.path(), &desk, false, &|_, _| unreachable!());
    renamed_into_place(&folder.path().join("x.done"), "a\n");
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1]));
    renamed_into_place(&folder.path().join("x.done"), "a\n");
    let told = std::iter::repeat_with(|| watch.step(SOON).unwrap()).find(|told| !told.is_empty()).unwrap();
    assert!(matches!(told[0], Happened::Refused { .. }), "{told:?}");
    // What knows of this state of the semaphore need not be asked for again.
    let (folder, still) = (two_files_and_their_list(), Still::default());
    let desk = ending(&still, 2, State::Failed, folder.path().join("b"), true);
    let begun = || watch_to(Path::new("/slow"), folder.path(), &desk, false, &|_, _| unreachable!());
    for _ in 0..2 {
        assert!(matches!(next(&mut begun()), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
    }
}

#[test]
fn a_digest_that_takes_long_is_broken_off() {
    let (folder, desk) = (two_files_and_their_list(), Still::default());
    let at = |name: &str| folder.path().join(name);
    // Longer than anybody waits for.
    let bytes = 1 << 40;
    fs::File::create(at("a")).unwrap().set_len(bytes).unwrap();
    let digest = stage::Algorithm::Xxh3.of(b"").text(stage::Algorithm::Xxh3);
    renamed_into_place(&at("x.done"), &format!("a {bytes} {digest}\nb\n"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut watch = watch(folder.path(), &desk, false, &|_, _| unreachable!()).until(&stop);
        scope.spawn(|| {
            std::thread::sleep(20 * SOON);
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            assert_eq!(watch.step(SOON).unwrap(), []);
        }
        fs::write(at("a"), "a").unwrap();
        renamed_into_place(&at("x.done"), "a 1\nb\n");
        stop.store(false, Ordering::Relaxed);
        assert!(matches!(next(&mut watch), Happened::Submitted { .. }));
    });
}

/// Refuses some jobs.
struct Refusing<'a>(&'a Still, &'a (dyn Fn(&JobSpec) -> Option<StageError> + Sync));

impl Desk for Refusing<'_> {
    fn submit(&self, spec: JobSpec) -> Result<JobId, StageError> {
        match (self.1)(&spec) {
            Some(refusal) => Err(refusal),
            None => self.0.submit(spec),
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
    let is_taken = AtomicBool::new(true);
    let refuses = |spec: &JobSpec| {
        let is_it = is_taken.load(Ordering::Relaxed) && spec.source.path() == Some(&*at("b"));
        is_it.then(|| StageError::invalid("is there already", "move it away"))
    };
    let desk = Refusing(&still, &refuses);
    let mut watch = watch_to(Path::new("/slow"), folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut watch), Happened::Refused { .. }));
    assert_eq!(still.status(Some(1)).unwrap()[0].state, State::Cancelled);
    assert!(watch.is_idle());
    is_taken.store(false, Ordering::Relaxed);
    renamed_into_place(&at("x.done"), "a\nb\n");
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [2, 3]));
    // One that was under way before is not.
    still.set(3, State::Failed);
    assert!(matches!(next(&mut watch), Happened::Failed { job: 3, .. }));
    is_taken.store(true, Ordering::Relaxed);
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
fn a_semaphore_that_stays_has_its_set_moved_once() {
    let folder = tempfile::tempdir().unwrap();
    let desk = Still::default();
    fs::write(folder.path().join("a"), "a").unwrap();
    fs::write(folder.path().join("a.done"), "").unwrap();
    let there = std::cell::Cell::new(false);
    let check = |job: &JobSpec, _: &[JobStatus]| {
        let places = (job.source.path(), job.destination.path());
        assert_eq!(places, (Some(folder.path().join("a").as_path()), Some(Path::new("/slow/a"))));
        Ok(there.get())
    };
    let mut first = watch(folder.path(), &desk, true, &check);
    assert!(matches!(next(&mut first), Happened::Submitted { .. }));
    assert!(desk.specs()[0].options.semaphore.as_ref().unwrap().stays);
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

#[test]
fn a_directory_that_is_listed_vouches_for_nothing_in_it() {
    let (folder, desk) = (tempfile::tempdir().unwrap(), Still::default());
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("s/sub")).unwrap();
    fs::write(at("s/sub/b"), "b").unwrap();
    fs::write(at("x.done"), "s/sub\n").unwrap();
    let mut watch = watch(folder.path(), &desk, false, &|_, _| unreachable!());
    let Happened::Refused { why, .. } = next(&mut watch) else { panic!() };
    assert!(why.message.contains("vouches for s/sub/b, which is there and is not listed"), "{why:?}");
    renamed_into_place(&at("x.done"), "s/sub\ns/sub/b\n");
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1]));
}

/// Otherwise the jobs before it would be at work, or done, by then.
#[test]
fn a_set_of_which_a_request_can_only_be_refused_is_not_begun() {
    let (folder, desk) = (two_files_and_their_list(), Still::default());
    let at = |name: &str| folder.path().join(name);
    fs::rename(at("b"), at("kept")).unwrap();
    std::os::unix::fs::symlink("kept", at("b")).unwrap();
    let mut watch = watch(folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut watch), Happened::Refused { .. }));
    assert_eq!(desk.specs(), []);
}

#[test]
fn a_semaphore_of_several_files_that_cannot_be_removed_is_a_failure() {
    let (folder, desk) = (two_files_and_their_list(), Still::default());
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("sub")).unwrap();
    for name in ["a", "b", "x.done"] {
        fs::rename(at(name), at("sub").join(name)).unwrap();
    }
    let timing = Timing { rescan: SOON, settle: SOON };
    let (pattern, orders) = (Pattern::parse("sub/*.done").unwrap(), orders(Path::new("/slow"), false));
    let mut watch =
        Watch::new(folder.path(), pattern, timing, orders, &desk, &|_, _| unreachable!()).unwrap();
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
    fs::rename(at("sub"), at("aside")).unwrap();
    fs::write(at("sub"), "").unwrap();
    (1..=2).for_each(|job| desk.set(job, State::Done));
    let told = watch.step(SOON).unwrap();
    assert!(matches!(&told[..], [Happened::Refused { .. }, Happened::Durable { .. }]), "{told:?}");
    assert_eq!(watch.failures(), 1);
}

/// What is broken off is found again, and so are those behind it.
#[test]
fn a_watch_that_is_to_stop_begins_nothing_more_and_refuses_nothing() {
    let (folder, desk) = (tempfile::tempdir().unwrap(), Still::default());
    let names = ["a", "b", "c"];
    for name in names {
        fs::write(folder.path().join(name), name).unwrap();
        fs::write(folder.path().join(format!("{name}.done")), "").unwrap();
    }
    let (stop, looks) = (AtomicBool::new(false), std::cell::Cell::new(0));
    let check = |_: &JobSpec, _: &[JobStatus]| {
        looks.set(looks.get() + 1);
        if looks.get() == 2 {
            stop.store(true, Ordering::Relaxed);
            return Err(StageError::Stopped { what: "by the user".to_owned() });
        }
        Ok(false)
    };
    let mut watch = watch(folder.path(), &desk, true, &check).until(&stop);
    let told = std::iter::repeat_with(|| watch.step(20 * SOON).unwrap());
    let told: Vec<Happened> = told.take_while(|_| !stop.load(Ordering::Relaxed)).flatten().collect();
    assert!(told.iter().all(|told| matches!(told, Happened::Submitted { .. })), "{told:?}");
    assert_eq!((looks.get(), watch.failures()), (2, 0));
    stop.store(false, Ordering::Relaxed);
    while desk.specs().len() < names.len() {
        let told = watch.step(SOON).unwrap();
        assert!(told.iter().all(|told| matches!(told, Happened::Submitted { .. })), "{told:?}");
    }
}

fn no_room() -> StageError {
    let busy = StageError::Busy { what: "1 job is under way".to_owned(), hint: "wait".to_owned() };
    crate::ServiceError::Answered(Box::new(Why::of(&busy))).into()
}

#[test]
fn a_server_without_room_is_asked_again() {
    let (folder, still) = (two_files_and_their_list(), Still::default());
    let is_full = AtomicBool::new(true);
    let refuses = |_: &JobSpec| is_full.load(Ordering::Relaxed).then(no_room);
    let desk = Refusing(&still, &refuses);
    let mut watch = watch_to(Path::new("/slow"), folder.path(), &desk, false, &|_, _| unreachable!());
    let note = "1 job is under way; the watch waits for room".to_owned();
    assert_eq!(next(&mut watch), Happened::Note(note.clone()));
    assert!(!watch.is_idle());
    is_full.store(false, Ordering::Relaxed);
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
    assert_eq!(watch.failures(), 0);
}

/// What was handed in of a set before there was no room goes on, is told, and is not begun again and again.
#[test]
fn a_set_that_is_handed_in_in_part_is_followed_and_not_retried() {
    for end in [State::Done, State::Failed] {
        let (folder, still) = (two_files_and_their_list(), Still::default());
        let is_full = AtomicBool::new(true);
        // For more than one job.
        let refuses =
            |_: &JobSpec| (is_full.load(Ordering::Relaxed) && !still.specs().is_empty()).then(no_room);
        let desk = Refusing(&still, &refuses);
        let mut watch = watch_to(Path::new("/slow"), folder.path(), &desk, false, &|_, _| unreachable!());
        assert!(matches!(next(&mut watch), Happened::Note(_)));
        assert_eq!(still.specs().len(), 1);
        still.set(1, end);
        fs::rename(folder.path().join("a"), folder.path().join("kept")).unwrap();
        if end == State::Failed {
            assert!(matches!(next(&mut watch), Happened::Failed { job: 1, .. }));
            while !watch.is_idle() {
                assert_eq!(watch.step(SOON).unwrap(), []);
            }
            let job = still.status(Some(1)).unwrap().remove(0);
            assert_eq!((job.state, still.specs().len(), watch.failures()), (State::Failed, 1, 1));
            continue;
        }
        is_full.store(false, Ordering::Relaxed);
        assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
        still.set(2, State::Done);
        assert!(matches!(next(&mut watch), Happened::Durable { jobs, .. } if jobs.len() == 2));
    }
}
