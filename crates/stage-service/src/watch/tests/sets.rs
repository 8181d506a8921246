//! What is made of semaphores: jobs, and what becomes of them, against a desk that moves nothing.

use super::*;

fn orders(to: &Path, keep_trigger: bool) -> Orders {
    let to = Place::of_path(to).unwrap();
    Orders { to, verb: Verb::Move, options: Options::default(), keep_trigger, lists: true }
}

fn watch<'a>(folder: &Path, desk: &'a Still, keep: bool, check: &'a Check<'a>) -> Watch<'a> {
    watch_to(Path::new("/slow"), folder, desk, keep, check)
}

fn watch_to<'a>(to: &Path, folder: &Path, desk: &'a dyn Desk, keep: bool, check: &'a Check<'a>) -> Watch<'a> {
    let pattern = Pattern::parse("*.done").unwrap();
    let timing = Timing { rescan: SOON, settle: SOON };
    Watch::new(folder, pattern, timing, orders(to, keep), desk, check).unwrap()
}

/// Writes the same into a semaphore, as one does who wants it looked at again.
fn touched(path: &Path) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_modified(std::time::SystemTime::now()).unwrap();
}

/// Has jobs move their files.
fn moved(desk: &Still, from: &Path, to: &Path, files: &[(JobId, &str)]) {
    for (id, name) in files {
        desk.set(*id, State::Done);
        fs::rename(from.join(name), to.join(name)).unwrap();
    }
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

/// Of two files the first is moved, and something happens before the second one is.
#[test]
fn a_set_that_is_half_moved_goes_on() {
    for is_new in [false, true] {
        let (folder, slow, desk) =
            (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
        let at = |name: &str| folder.path().join(name);
        let begun = || watch_to(slow.path(), folder.path(), &desk, false, &|_, _| unreachable!());
        let mut first = begun();
        assert!(matches!(next(&mut first), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
        desk.set(1, State::Done);
        fs::rename(at("a"), slow.path().join("a")).unwrap();
        // Its job is just removing it.
        fs::rename(at("b"), at("kept")).unwrap();
        let mut second = if is_new {
            drop(first);
            begun()
        } else {
            touched(&at("x.done"));
            first
        };
        assert!(matches!(next(&mut second), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
        desk.set(2, State::Failed);
        assert!(matches!(next(&mut second), Happened::Failed { job: 2, .. }));
        // It is mended, and asked for again.
        fs::rename(at("kept"), at("b")).unwrap();
        touched(&at("x.done"));
        let Happened::Submitted { jobs, .. } = next(&mut second) else { panic!() };
        assert_eq!(jobs[0], 1);
        desk.set(jobs[1], State::Done);
        fs::rename(at("b"), slow.path().join("b")).unwrap();
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

/// Checkpoints that follow one another have the same names and sizes.
#[test]
fn what_was_moved_for_another_semaphore_does_not_count() {
    let (folder, slow, desk) = (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
    let at = |name: &str| folder.path().join(name);
    let mut watch = watch_to(slow.path(), folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut watch), Happened::Submitted { .. }));
    moved(&desk, folder.path(), slow.path(), &[(1, "a"), (2, "b")]);
    assert!(matches!(next(&mut watch), Happened::Durable { .. }));
    // One of a new set's files is missing.
    fs::write(at("a"), "new").unwrap();
    renamed_into_place(&at("x.done"), "a\nb\n");
    let Happened::Refused { why, .. } = next(&mut watch) else { panic!() };
    assert!(why.message.contains("vouches for b, which is not there"), "{why:?}");
}

#[test]
fn what_was_moved_for_a_semaphore_that_was_replaced_after_a_failure_does_not_count() {
    let (folder, slow, desk) = (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
    let at = |name: &str| folder.path().join(name);
    let mut watch = watch_to(slow.path(), folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut watch), Happened::Submitted { .. }));
    moved(&desk, folder.path(), slow.path(), &[(1, "a")]);
    desk.set(2, State::Failed);
    assert!(matches!(next(&mut watch), Happened::Failed { job: 2, .. }));
    renamed_into_place(&at("x.done"), "a\nb\n");
    let Happened::Refused { why, .. } = next(&mut watch) else { panic!() };
    assert!(why.message.contains("vouches for a, which is not there"), "{why:?}");
}

/// It was born before the jobs of the set before, and is put into its place after their end.
#[test]
fn what_was_moved_does_not_count_for_a_semaphore_whose_file_was_made_early() {
    let (folder, slow, desk) = (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
    let at = |name: &str| folder.path().join(name);
    fs::write(at("x.tmp"), "").unwrap();
    let mut watch = watch_to(slow.path(), folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut watch), Happened::Submitted { .. }));
    moved(&desk, folder.path(), slow.path(), &[(1, "a"), (2, "b")]);
    assert!(matches!(next(&mut watch), Happened::Durable { .. }));
    fs::write(at("a"), "new").unwrap();
    renamed_into_place(&at("x.done"), "a\nb\n");
    let Happened::Refused { why, .. } = next(&mut watch) else { panic!() };
    assert!(why.message.contains("vouches for b, which is not there"), "{why:?}");
}

#[test]
fn a_semaphore_that_is_written_anew_where_it_lies_asks_for_another_set() {
    let (folder, slow, desk) = (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
    let at = |name: &str| folder.path().join(name);
    let mut watch = watch_to(slow.path(), folder.path(), &desk, true, &|_, _| Ok(false));
    assert!(matches!(next(&mut watch), Happened::Submitted { .. }));
    moved(&desk, folder.path(), slow.path(), &[(1, "a"), (2, "b")]);
    assert!(matches!(next(&mut watch), Happened::Durable { .. }));
    fs::write(at("a"), "new").unwrap();
    touched(&at("x.done"));
    let Happened::Refused { why, .. } = next(&mut watch) else { panic!() };
    assert!(why.message.contains("vouches for b, which is not there"), "{why:?}");
    assert_eq!(desk.specs().len(), 2);
}

/// The jobs know of the semaphore that is there now.
#[test]
fn a_semaphore_that_was_replaced_while_its_jobs_were_under_way_or_had_failed_goes_on() {
    for state in [State::Queued, State::Failed] {
        let (folder, slow, desk) =
            (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
        let at = |name: &str| folder.path().join(name);
        let begun = || watch_to(slow.path(), folder.path(), &desk, false, &|_, _| unreachable!());
        let mut first = begun();
        assert!(matches!(next(&mut first), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
        desk.set(1, state);
        desk.set(2, state);
        let _ = first.step(SOON).unwrap();
        renamed_into_place(&at("x.done"), "a\nb\n");
        assert!(matches!(next(&mut first), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
        drop(first);
        moved(&desk, folder.path(), slow.path(), &[(1, "a")]);
        desk.set(2, state);
        let mut second = begun();
        assert!(matches!(next(&mut second), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
        desk.set(2, State::Failed);
        assert!(matches!(next(&mut second), Happened::Failed { job: 2, .. }));
        touched(&at("x.done"));
        assert!(matches!(next(&mut second), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
        moved(&desk, folder.path(), slow.path(), &[(2, "b")]);
        drop(second);
        let Happened::Durable { jobs, .. } = next(&mut begun()) else { panic!() };
        assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [1, 2]);
        assert!(!at("x.done").exists());
    }
}

#[test]
fn a_file_that_is_there_again_is_asked_for_again() {
    let (folder, slow, desk) = (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
    let at = |name: &str| folder.path().join(name);
    let mut watch = watch_to(slow.path(), folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
    moved(&desk, folder.path(), slow.path(), &[(1, "a")]);
    fs::write(at("a"), "new").unwrap();
    touched(&at("x.done"));
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [3, 2]));
}

/// What has taken the copy since need not have anything to do with the set.
#[test]
fn a_copy_that_is_taken_away_behind_its_move_does_not_hold_the_set_up() {
    let (folder, slow, desk) = (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
    let at = |name: &str| folder.path().join(name);
    let mut watch = watch_to(slow.path(), folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut watch), Happened::Submitted { .. }));
    moved(&desk, folder.path(), slow.path(), &[(2, "b")]);
    fs::remove_file(slow.path().join("b")).unwrap();
    touched(&at("x.done"));
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
    moved(&desk, folder.path(), slow.path(), &[(1, "a")]);
    assert!(matches!(next(&mut watch), Happened::Durable { .. }));
}

/// A move that was interrupted behind its commit, and whose copy went before it went on, leaves its source and is done.
#[test]
fn the_semaphore_stays_if_a_file_is_at_its_source_and_not_at_its_destination() {
    let (folder, slow, desk) = (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
    let at = |name: &str| folder.path().join(name);
    let mut watch = watch_to(slow.path(), folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut watch), Happened::Submitted { .. }));
    moved(&desk, folder.path(), slow.path(), &[(1, "a")]);
    desk.set_left(2);
    let Happened::Refused { why, .. } = next(&mut watch) else { panic!() };
    assert!(why.message.ends_with("/b is not there any more, and its source was left alone"), "{why:?}");
    assert_eq!(watch.step(SOON).unwrap(), []);
    assert!(at("x.done").exists() && watch.under_way() == 0);
    touched(&at("x.done"));
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1, 3]));
    // It does not count either once somebody has taken the file away.
    fs::remove_file(at("b")).unwrap();
    desk.set_left(3);
    assert!(matches!(next(&mut watch), Happened::Refused { .. }));
    drop(watch);
    let mut watch = watch_to(slow.path(), folder.path(), &desk, false, &|_, _| unreachable!());
    let Happened::Refused { why, .. } = next(&mut watch) else { panic!() };
    assert!(why.message.contains("vouches for b, which is not there"), "{why:?}");
}

#[test]
fn a_set_whose_failed_job_has_ended_well_before_it_was_seen_at_work_is_durable() {
    let (folder, slow, desk) = (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
    let mut watch = watch_to(slow.path(), folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut watch), Happened::Submitted { .. }));
    moved(&desk, folder.path(), slow.path(), &[(1, "a")]);
    for _ in 0..2 {
        desk.set(2, State::Running);
        assert_eq!(watch.step(SOON).unwrap(), []);
        desk.set(2, State::Failed);
        assert!(matches!(next(&mut watch), Happened::Failed { job: 2, .. }));
        assert_eq!(watch.step(SOON).unwrap(), []);
    }
    moved(&desk, folder.path(), slow.path(), &[(2, "b")]);
    assert!(matches!(next(&mut watch), Happened::Durable { .. }));
    assert!(!folder.path().join("x.done").exists());
}

#[test]
fn a_semaphore_that_is_touched_when_all_of_its_set_is_moved_goes_unless_it_is_kept_or_a_file_is_there() {
    for (kept, is_there) in [(false, false), (false, true), (true, false)] {
        let (folder, slow, desk) =
            (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
        let begun = || watch_to(slow.path(), folder.path(), &desk, kept, &|_, _| Ok(false));
        assert!(matches!(next(&mut begun()), Happened::Submitted { .. }));
        moved(&desk, folder.path(), slow.path(), &[(1, "a"), (2, "b")]);
        if is_there {
            fs::write(folder.path().join("a"), "new").unwrap();
        }
        touched(&folder.path().join("x.done"));
        let told = next(&mut begun());
        assert_eq!(matches!(told, Happened::Durable { .. }), !kept && !is_there, "{told:?}");
        assert_eq!(matches!(told, Happened::Refused { .. }), kept || is_there, "{told:?}");
        assert_eq!(folder.path().join("x.done").exists(), kept || is_there);
    }
}

/// Of one of the two jobs the semaphore was touched.
#[test]
fn a_set_that_was_moved_for_two_states_of_a_semaphore_does_not_count_for_a_third() {
    let (folder, slow, desk) = (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
    let at = |name: &str| folder.path().join(name);
    let begun = || watch_to(slow.path(), folder.path(), &desk, true, &|_, _| Ok(false));
    let mut watch = begun();
    assert!(matches!(next(&mut watch), Happened::Submitted { .. }));
    moved(&desk, folder.path(), slow.path(), &[(1, "a")]);
    desk.set(2, State::Failed);
    assert!(matches!(next(&mut watch), Happened::Failed { job: 2, .. }));
    touched(&at("x.done"));
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
    moved(&desk, folder.path(), slow.path(), &[(2, "b")]);
    drop(watch);
    let mut watch = begun();
    assert!(matches!(next(&mut watch), Happened::Durable { .. }));
    fs::write(at("b"), "new").unwrap();
    touched(&at("x.done"));
    let Happened::Refused { why, .. } = next(&mut watch) else { panic!() };
    assert!(why.message.contains("vouches for a, which is not there"), "{why:?}");
}

/// Another semaphore may list the same file, and a client may hand in what it lists.
#[test]
fn a_job_of_a_set_may_have_been_asked_for_without_its_semaphore() {
    let (folder, slow, desk) = (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
    let [source, destination] = [folder.path(), slow.path()].map(|at| Place::of_path(&at.join("a")).unwrap());
    let expected = vec![stage::spec::Expected { path: PathText(PathBuf::new()), size: None, digest: None }];
    let options = Options { expected, ..Options::default() };
    let alone = JobSpec { verb: Verb::Move, source, destination, options };
    assert_eq!(desk.submit(alone.clone()).unwrap(), 1);
    let begun = || watch_to(slow.path(), folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut begun()), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
    assert_eq!(desk.submit(alone.clone()).unwrap(), 1);
    moved(&desk, folder.path(), slow.path(), &[(1, "a")]);
    assert!(matches!(next(&mut begun()), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
    // What one has copied that failed is given up: it would not know of the semaphore.
    let (folder, desk) = (two_files_and_their_list(), Still::default());
    let source = Place::of_path(&folder.path().join("a")).unwrap();
    assert_eq!(desk.submit(JobSpec { source, ..alone }.sealed()).unwrap(), 1);
    desk.set(1, State::Failed);
    let mut watch = watch_to(slow.path(), folder.path(), &desk, false, &|_, _| unreachable!());
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [2, 3]));
    assert_eq!(desk.status(Some(1)).unwrap()[0].state, State::Cancelled);
}

#[test]
fn the_semaphore_of_a_set_that_was_moved_stays_where_it_is_to_be_kept() {
    let (folder, slow, desk) = (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
    let at = |name: &str| folder.path().join(name);
    let begun = || watch_to(slow.path(), folder.path(), &desk, true, &|_, _| Ok(false));
    let mut first = begun();
    assert!(matches!(next(&mut first), Happened::Submitted { .. }));
    moved(&desk, folder.path(), slow.path(), &[(1, "a"), (2, "b")]);
    assert!(matches!(next(&mut first), Happened::Durable { .. }));
    assert!(matches!(next(&mut begun()), Happened::Durable { .. }));
    assert!(at("x.done").exists());
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
    assert!(watch.is_gone(&of("a")));
    assert!(!watch.is_gone(&of("circle/a")));
}

/// Has a job end while it is asked for again.
struct Ending<'a>(&'a Still, JobId, State, PathBuf, bool);

impl Desk for Ending<'_> {
    fn submit(&self, spec: JobSpec) -> Result<JobId, StageError> {
        let is_it = self.0.status(Some(self.1)).is_ok_and(|job| job[0].spec.is_same_request(&spec));
        if is_it {
            self.0.set(self.1, self.2);
            if self.4 {
                fs::remove_file(&self.3).unwrap();
            }
            return Err(StageError::invalid("is not there", "name what is to be moved"));
        }
        self.0.submit(spec)
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
        self.0.retry(id)
    }
}

#[test]
fn a_job_that_ends_while_its_set_is_handed_in_again_is_one_of_the_set() {
    for (end, is_gone, goes_on) in [
        (State::Running, true, true),
        (State::Done, true, true),
        (State::Failed, true, false),
        (State::Done, false, false),
    ] {
        let (folder, still) = (two_files_and_their_list(), Still::default());
        let desk = Ending(&still, 2, end, folder.path().join("b"), is_gone);
        let mut watch = watch_to(Path::new("/slow"), folder.path(), &desk, false, &|_, _| unreachable!());
        assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
        renamed_into_place(&folder.path().join("x.done"), "a\nb\n");
        let mut told = watch.step(SOON).unwrap();
        while told.is_empty() {
            told = watch.step(SOON).unwrap();
        }
        let is_handed_in = matches!(&told[0], Happened::Submitted { jobs, .. } if *jobs == [1, 2]);
        assert_eq!(is_handed_in, goes_on, "{told:?}");
    }
    // One whose affair the semaphore is has left the new one.
    let (folder, still) = (two_files_and_their_list(), Still::default());
    let desk = Ending(&still, 1, State::Done, folder.path().join("a"), true);
    let mut watch = watch_to(Path::new("/slow"), folder.path(), &desk, false, &|_, _| unreachable!());
    renamed_into_place(&folder.path().join("x.done"), "a\n");
    assert!(matches!(next(&mut watch), Happened::Submitted { jobs, .. } if jobs == [1]));
    renamed_into_place(&folder.path().join("x.done"), "a\n");
    let told = std::iter::repeat_with(|| watch.step(SOON).unwrap()).find(|told| !told.is_empty()).unwrap();
    assert!(matches!(told[0], Happened::Refused { .. }), "{told:?}");
    // What knows of this state of the semaphore need not be asked for again.
    let (folder, still) = (two_files_and_their_list(), Still::default());
    let desk = Ending(&still, 2, State::Failed, folder.path().join("b"), true);
    let begun = || watch_to(Path::new("/slow"), folder.path(), &desk, false, &|_, _| unreachable!());
    for _ in 0..2 {
        assert!(matches!(next(&mut begun()), Happened::Submitted { jobs, .. } if jobs == [1, 2]));
    }
}

#[test]
fn a_digest_that_takes_long_is_broken_off() {
    let (folder, desk) = (two_files_and_their_list(), Still::default());
    let at = |name: &str| folder.path().join(name);
    let bytes = vec![0; 9 << 20];
    fs::write(at("a"), &bytes).unwrap();
    let digest = stage::Algorithm::Xxh3.of(&bytes).text(stage::Algorithm::Xxh3);
    renamed_into_place(&at("x.done"), &format!("a {} {digest}\nb\n", bytes.len()));
    let stop = AtomicBool::new(false);
    let mut watch = watch(folder.path(), &desk, false, &|_, _| unreachable!()).until(&stop);
    stop.store(true, Ordering::Relaxed);
    for _ in 0..20 {
        assert_eq!(watch.step(SOON).unwrap(), []);
    }
    stop.store(false, Ordering::Relaxed);
    assert!(matches!(next(&mut watch), Happened::Submitted { .. }));
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
    let mut watch = watch_to(Path::new("/slow"), folder.path(), &desk, false, &|_, _| unreachable!());
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
    let (folder, slow, desk) = (two_files_and_their_list(), tempfile::tempdir().unwrap(), Still::default());
    let at = |name: &str| folder.path().join(name);
    let begun = || watch_to(slow.path(), folder.path(), &desk, false, &|_, _| unreachable!());
    let mut first = begun();
    assert!(matches!(next(&mut first), Happened::Submitted { .. }));
    drop(first);
    moved(&desk, folder.path(), slow.path(), &[(1, "a"), (2, "b")]);
    let mut second = begun();
    assert!(matches!(next(&mut second), Happened::Durable { .. }));
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
