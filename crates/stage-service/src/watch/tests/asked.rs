//! What a journal knows of a semaphore's jobs: sets of two files, of which some are moved when the semaphore is looked at again.

use super::*;

/// A set of two files, and a desk.
struct Scene {
    fast: tempfile::TempDir,
    slow: tempfile::TempDir,
    desk: Still,
}

impl Scene {
    fn new() -> Self {
        let slow = tempfile::tempdir().unwrap();
        Self { fast: two_files_and_their_list(), slow, desk: Still::default() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.fast.path().join(name)
    }

    /// A watch that begins anew; of semaphores that are `kept`, or not.
    fn watch(&self, kept: bool) -> Watch<'_> {
        let check: &Check<'_> = if kept {
            &|job, _| Ok(is_at(&job.destination) && !is_at(&job.source))
        } else {
            &|_, _| unreachable!()
        };
        watch_to(self.slow.path(), self.fast.path(), &self.desk, kept, check)
    }

    /// Has jobs move their files.
    fn moved(&self, files: &[(JobId, &str)]) {
        for (id, name) in files {
            self.desk.set(*id, State::Done);
            fs::rename(self.at(name), self.slow.path().join(name)).unwrap();
        }
    }
}

fn is_at(place: &Place) -> bool {
    place.path().is_some_and(Path::exists)
}

/// The set is handed in, as these jobs.
fn submitted(watch: &mut Watch<'_>, ids: &[JobId]) {
    let told = next(watch);
    assert!(matches!(&told, Happened::Submitted { jobs, .. } if jobs == ids), "{told:?}");
}

/// The set is refused, because a file is not there.
fn lacks(watch: &mut Watch<'_>, file: &str) {
    let Happened::Refused { why, .. } = next(watch) else { panic!("it is not refused") };
    assert!(why.message.contains(&format!("vouches for {file}, which is not there")), "{why:?}");
}

/// Of two files the first is moved, and something happens before the second one is.
#[test]
fn a_set_that_is_half_moved_goes_on() {
    for is_new in [false, true] {
        let scene = Scene::new();
        let begun = || scene.watch(false);
        let mut first = begun();
        submitted(&mut first, &[1, 2]);
        scene.desk.set(1, State::Done);
        fs::rename(scene.at("a"), scene.slow.path().join("a")).unwrap();
        // Its job is just removing it.
        scene.desk.set(2, State::Committed);
        fs::rename(scene.at("b"), scene.at("kept")).unwrap();
        let mut second = if is_new {
            drop(first);
            begun()
        } else {
            touched(&scene.at("x.done"));
            first
        };
        submitted(&mut second, &[1, 2]);
        scene.desk.set(2, State::Failed);
        assert!(matches!(next(&mut second), Happened::Failed { job: 2, .. }));
        // It is mended, and asked for again.
        fs::rename(scene.at("kept"), scene.at("b")).unwrap();
        touched(&scene.at("x.done"));
        let Happened::Submitted { jobs, .. } = next(&mut second) else { panic!() };
        assert_eq!(jobs[0], 1);
        scene.desk.set(jobs[1], State::Done);
        fs::rename(scene.at("b"), scene.slow.path().join("b")).unwrap();
        assert!(matches!(next(&mut second), Happened::Durable { .. }));
        assert!(!scene.at("x.done").exists());
        // New ones of the names are moved anew.
        fs::write(scene.at("a"), "A").unwrap();
        fs::write(scene.at("b"), "B").unwrap();
        renamed_into_place(&scene.at("x.done"), "a\nb\n");
        let Happened::Submitted { jobs: anew, .. } = next(&mut second) else { panic!() };
        assert!(anew.iter().all(|job| !jobs.contains(job)), "{anew:?} {jobs:?}");
    }
}

/// Checkpoints that follow one another have the same names and sizes.
#[test]
fn what_was_moved_for_another_semaphore_does_not_count() {
    let scene = Scene::new();
    let mut watch = scene.watch(false);
    submitted(&mut watch, &[1, 2]);
    scene.moved(&[(1, "a"), (2, "b")]);
    assert!(matches!(next(&mut watch), Happened::Durable { .. }));
    // One of a new set's files is missing.
    fs::write(scene.at("a"), "new").unwrap();
    renamed_into_place(&scene.at("x.done"), "a\nb\n");
    lacks(&mut watch, "b");
}

#[test]
fn what_was_moved_for_a_semaphore_that_was_replaced_after_a_failure_does_not_count() {
    let scene = Scene::new();
    let mut watch = scene.watch(false);
    submitted(&mut watch, &[1, 2]);
    scene.moved(&[(1, "a")]);
    scene.desk.set(2, State::Failed);
    assert!(matches!(next(&mut watch), Happened::Failed { job: 2, .. }));
    renamed_into_place(&scene.at("x.done"), "a\nb\n");
    lacks(&mut watch, "a");
}

/// It was born before the jobs of the set before, and is put into its place after their end.
#[test]
fn what_was_moved_does_not_count_for_a_semaphore_whose_file_was_made_early() {
    let scene = Scene::new();
    fs::write(scene.at("x.tmp"), "").unwrap();
    let mut watch = scene.watch(false);
    submitted(&mut watch, &[1, 2]);
    scene.moved(&[(1, "a"), (2, "b")]);
    assert!(matches!(next(&mut watch), Happened::Durable { .. }));
    fs::write(scene.at("a"), "new").unwrap();
    renamed_into_place(&scene.at("x.done"), "a\nb\n");
    lacks(&mut watch, "b");
}

#[test]
fn a_semaphore_that_is_written_anew_where_it_lies_asks_for_another_set() {
    let scene = Scene::new();
    let mut watch = scene.watch(true);
    submitted(&mut watch, &[1, 2]);
    scene.moved(&[(1, "a"), (2, "b")]);
    assert!(matches!(next(&mut watch), Happened::Durable { .. }));
    fs::write(scene.at("a"), "new").unwrap();
    touched(&scene.at("x.done"));
    lacks(&mut watch, "b");
    assert_eq!(scene.desk.specs().len(), 2);
}

/// The jobs know of the semaphore that is there now.
#[test]
fn a_semaphore_that_was_replaced_while_its_jobs_were_under_way_or_had_failed_goes_on() {
    for state in [State::Queued, State::Failed] {
        let scene = Scene::new();
        let begun = || scene.watch(false);
        let mut first = begun();
        submitted(&mut first, &[1, 2]);
        scene.desk.set(1, state);
        scene.desk.set(2, state);
        let _ = first.step(SOON).unwrap();
        renamed_into_place(&scene.at("x.done"), "a\nb\n");
        submitted(&mut first, &[1, 2]);
        drop(first);
        scene.moved(&[(1, "a")]);
        scene.desk.set(2, state);
        let mut second = begun();
        submitted(&mut second, &[1, 2]);
        scene.desk.set(2, State::Failed);
        assert!(matches!(next(&mut second), Happened::Failed { job: 2, .. }));
        touched(&scene.at("x.done"));
        submitted(&mut second, &[1, 2]);
        scene.moved(&[(2, "b")]);
        drop(second);
        let Happened::Durable { jobs, .. } = next(&mut begun()) else { panic!() };
        assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [1, 2]);
        assert!(!scene.at("x.done").exists());
    }
}

#[test]
fn a_file_that_is_there_again_is_asked_for_again() {
    let scene = Scene::new();
    let mut watch = scene.watch(false);
    submitted(&mut watch, &[1, 2]);
    scene.moved(&[(1, "a")]);
    fs::write(scene.at("a"), "A").unwrap();
    touched(&scene.at("x.done"));
    submitted(&mut watch, &[3, 2]);
}

/// What has taken the copy since need not have anything to do with the set.
#[test]
fn a_copy_that_is_taken_away_behind_its_move_does_not_hold_the_set_up() {
    let scene = Scene::new();
    let mut watch = scene.watch(false);
    submitted(&mut watch, &[1, 2]);
    scene.moved(&[(2, "b")]);
    fs::remove_file(scene.slow.path().join("b")).unwrap();
    touched(&scene.at("x.done"));
    submitted(&mut watch, &[1, 2]);
    scene.moved(&[(1, "a")]);
    assert!(matches!(next(&mut watch), Happened::Durable { .. }));
}

/// A move that was interrupted behind its commit, and whose copy went before it went on, leaves its source and is done.
#[test]
fn the_semaphore_stays_if_a_file_is_at_its_source_and_not_at_its_destination() {
    let scene = Scene::new();
    let mut watch = scene.watch(false);
    submitted(&mut watch, &[1, 2]);
    scene.moved(&[(1, "a")]);
    scene.desk.set_left(2);
    assert!(matches!(next(&mut watch), Happened::Failed { job: 2, state: State::Done, .. }));
    assert_eq!(watch.step(SOON).unwrap(), []);
    assert!(scene.at("x.done").exists() && watch.under_way() == 0);
    touched(&scene.at("x.done"));
    submitted(&mut watch, &[1, 3]);
    // It does not count either once somebody has taken the file away.
    fs::remove_file(scene.at("b")).unwrap();
    scene.desk.set_left(3);
    assert!(matches!(next(&mut watch), Happened::Failed { job: 3, .. }));
    drop(watch);
    let mut watch = scene.watch(false);
    lacks(&mut watch, "b");
}

#[test]
fn a_set_whose_failed_job_has_ended_well_before_it_was_seen_at_work_is_durable() {
    let scene = Scene::new();
    let mut watch = scene.watch(false);
    submitted(&mut watch, &[1, 2]);
    scene.moved(&[(1, "a")]);
    // Each of its attempts that fails is told, also if it does so at once.
    for _ in 0..2 {
        scene.desk.set(2, State::Running);
        scene.desk.set(2, State::Failed);
        assert!(matches!(next(&mut watch), Happened::Failed { job: 2, .. }));
        assert_eq!(watch.step(SOON).unwrap(), []);
    }
    scene.moved(&[(2, "b")]);
    assert!(matches!(next(&mut watch), Happened::Durable { .. }));
    assert!(!scene.at("x.done").exists());
}

#[test]
fn a_semaphore_that_is_touched_when_all_of_its_set_is_moved_goes_unless_it_is_kept_or_a_file_is_there() {
    for (kept, is_there) in [(false, false), (false, true), (true, false)] {
        let scene = Scene::new();
        let begun = || scene.watch(kept);
        submitted(&mut begun(), &[1, 2]);
        scene.moved(&[(1, "a"), (2, "b")]);
        if is_there {
            fs::write(scene.at("a"), "new").unwrap();
        }
        touched(&scene.at("x.done"));
        let told = next(&mut begun());
        let is_as_it_should_be = match told {
            Happened::Durable { .. } => !kept && !is_there,
            Happened::AlreadyThere { .. } => kept,
            Happened::Refused { .. } => is_there,
            _ => false,
        };
        assert!(is_as_it_should_be, "{kept} {is_there}: {told:?}");
        assert_eq!(scene.at("x.done").exists(), kept || is_there);
    }
}

/// Half a set must not be moved because the other half was fit to be moved before.
#[test]
fn what_a_job_under_way_was_asked_for_by_another_state_of_the_semaphore_is_looked_at_again() {
    for state in [State::Queued, State::Running] {
        let scene = Scene::new();
        let mut watch = scene.watch(false);
        submitted(&mut watch, &[1, 2]);
        scene.desk.set(1, state);
        fs::remove_file(scene.at("a")).unwrap();
        fs::write(scene.at("c"), "c").unwrap();
        renamed_into_place(&scene.at("x.done"), "a\nc\n");
        lacks(&mut watch, "a");
        assert_eq!(scene.desk.specs().len(), 2);
    }
}

/// A set is not refused for what becomes of a source once its job is at it.
#[test]
fn what_a_job_was_asked_for_by_this_state_of_the_semaphore_or_is_removing_is_not_looked_at_again() {
    for (state, is_new) in [(State::Running, false), (State::Committed, false), (State::Committed, true)] {
        let scene = Scene::new();
        let list = "a 1\nb 1\n";
        renamed_into_place(&scene.at("x.done"), list);
        let mut watch = scene.watch(false);
        submitted(&mut watch, &[1, 2]);
        drop(watch);
        scene.desk.set(1, state);
        fs::write(scene.at("a"), "longer").unwrap();
        if is_new {
            renamed_into_place(&scene.at("x.done"), list);
        }
        submitted(&mut scene.watch(false), &[1, 2]);
    }
}

/// A command that asks for the same goes on with what a semaphore's job has copied, and leaves the job to it.
#[test]
fn a_failed_job_is_retried_without_its_semaphore_as_well() {
    for is_set in [false, true] {
        let scene = Scene::new();
        if is_set {
            // What `stage mv` does not have: a list, here of names alone.
            submitted(&mut scene.watch(false), &[1, 2]);
        } else {
            fs::remove_file(scene.at("x.done")).unwrap();
            fs::write(scene.at("a.done"), "").unwrap();
            submitted(&mut scene.watch(false), &[1]);
        }
        scene.desk.set(1, State::Failed);
        let asked = scene.desk.specs().remove(0);
        let expected = asked.options.expected.clone();
        assert_eq!(expected.is_empty(), !is_set);
        let alone = JobSpec { options: Options { expected, ..Options::default() }, ..asked.clone() };
        let known = scene.desk.status(None).unwrap();
        assert_eq!(crate::desk::submit_or_retry(&scene.desk, alone, &known).unwrap(), 1);
        assert_eq!(scene.desk.status(Some(1)).unwrap()[0].state, State::Queued);
        assert_eq!(scene.desk.specs()[0], asked);
    }
}

/// Who writes into a directory while it is moved has nothing to do with what the semaphore asked for.
#[test]
fn a_directory_is_gone_when_nothing_of_it_is_there_that_is_listed() {
    for (kept, is_half) in [(false, false), (true, false), (false, true)] {
        let scene = Scene::new();
        for directory in ["d", "e"] {
            fs::create_dir(scene.at(directory)).unwrap();
            fs::write(scene.at(directory).join("x"), "x").unwrap();
        }
        renamed_into_place(&scene.at("x.done"), "d/x\ne/x\n");
        let check: &Check<'_> = if kept { &|_, _| Ok(false) } else { &|_, _| unreachable!() };
        let begun = || watch_to(scene.slow.path(), scene.fast.path(), &scene.desk, kept, check);
        submitted(&mut begun(), &[1, 2]);
        for (id, directory) in [(1, "d"), (2, "e")].into_iter().take(2 - usize::from(is_half)) {
            scene.desk.set(id, State::Done);
            fs::remove_file(scene.at(directory).join("x")).unwrap();
            fs::write(scene.at(directory).join("other"), "").unwrap();
        }
        let told = next(&mut begun());
        let is_as_it_should_be = match &told {
            Happened::Durable { .. } => !kept && !is_half,
            Happened::Submitted { jobs, .. } => is_half && *jobs == [1, 2],
            Happened::Refused { why, .. } => kept && why.message.contains("was moved there"),
            _ => false,
        };
        assert!(is_as_it_should_be, "{kept} {is_half}: {told:?}");
    }
}

/// A server has so many jobs in one answer, and a set may take longer than they do.
#[test]
fn jobs_that_a_server_does_not_tell_of_any_more_are_asked_for() {
    for is_new in [false, true] {
        let scene = Scene::new();
        let desk = Forgetting(&scene.desk, std::sync::Mutex::default());
        let begun = || watch_to(scene.slow.path(), scene.fast.path(), &desk, false, &|_, _| unreachable!());
        let mut watch = begun();
        submitted(&mut watch, &[1, 2]);
        scene.moved(&[(1, "a")]);
        if is_new {
            watch = begun();
            submitted(&mut watch, &[1, 2]);
        }
        (0..3).for_each(|_| assert_eq!(watch.step(SOON).unwrap(), []));
        scene.moved(&[(2, "b")]);
        let Happened::Durable { jobs, .. } = next(&mut watch) else { panic!() };
        assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [1, 2]);
    }
}

/// Tells of jobs that have ended only who asks for them, and each once, because there may be thousands.
struct Forgetting<'a>(&'a Still, std::sync::Mutex<Vec<JobId>>);

impl Desk for Forgetting<'_> {
    fn submit(&self, spec: JobSpec) -> Result<JobId, StageError> {
        self.0.submit(spec)
    }

    fn status(&self, id: Option<JobId>) -> Result<Vec<JobStatus>, StageError> {
        let mut jobs = self.0.status(id)?;
        jobs.retain(|job| id.is_some() || !job.state.is_final());
        if let Some(job) = jobs.first().filter(|job| job.state.is_final()) {
            let mut told = self.1.lock().unwrap();
            assert!(!told.contains(&job.id), "job {}", job.id);
            told.push(job.id);
        }
        Ok(jobs)
    }

    fn known_to(&self, _: &Path) -> Result<Vec<JobStatus>, StageError> {
        self.0.status(None)
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

/// Of one of the two jobs the semaphore was touched.
#[test]
fn a_set_that_was_moved_for_two_states_of_a_semaphore_does_not_count_for_a_third() {
    let scene = Scene::new();
    let begun = || scene.watch(true);
    let mut watch = begun();
    submitted(&mut watch, &[1, 2]);
    scene.moved(&[(1, "a")]);
    scene.desk.set(2, State::Failed);
    assert!(matches!(next(&mut watch), Happened::Failed { job: 2, .. }));
    touched(&scene.at("x.done"));
    submitted(&mut watch, &[1, 2]);
    scene.moved(&[(2, "b")]);
    drop(watch);
    let mut watch = begun();
    assert!(matches!(next(&mut watch), Happened::AlreadyThere { .. }));
    fs::write(scene.at("b"), "new").unwrap();
    touched(&scene.at("x.done"));
    lacks(&mut watch, "a");
}

/// Another semaphore may list the same file, and a client may hand in what it lists.
#[test]
fn a_job_of_a_set_may_have_been_asked_for_without_its_semaphore() {
    let scene = Scene::new();
    let [source, destination] =
        [scene.fast.path(), scene.slow.path()].map(|at| Place::of_path(&at.join("a")).unwrap());
    let expected = vec![stage::spec::Expected { path: PathText(PathBuf::new()), size: None, digest: None }];
    let options = Options { expected, ..Options::default() };
    let alone = JobSpec { verb: Verb::Move, source, destination, options };
    assert_eq!(scene.desk.submit(alone.clone()).unwrap(), 1);
    let begun = || scene.watch(false);
    submitted(&mut begun(), &[1, 2]);
    assert_eq!(scene.desk.submit(alone.clone()).unwrap(), 1);
    scene.moved(&[(1, "a")]);
    submitted(&mut begun(), &[1, 2]);
    // What one has copied that failed is given up: it would not know of the semaphore.
    let scene = Scene::new();
    let source = Place::of_path(&scene.at("a")).unwrap();
    let destination = Place::of_path(&scene.slow.path().join("a")).unwrap();
    assert_eq!(scene.desk.submit(JobSpec { source, destination, ..alone }.sealed()).unwrap(), 1);
    scene.desk.set(1, State::Failed);
    submitted(&mut scene.watch(false), &[2, 3]);
    assert_eq!(scene.desk.status(Some(1)).unwrap()[0].state, State::Cancelled);
}

#[test]
fn the_semaphore_of_a_set_that_was_moved_stays_where_it_is_to_be_kept() {
    let scene = Scene::new();
    let begun = || scene.watch(true);
    let mut first = begun();
    submitted(&mut first, &[1, 2]);
    scene.moved(&[(1, "a"), (2, "b")]);
    assert!(matches!(next(&mut first), Happened::Durable { .. }));
    assert!(matches!(next(&mut begun()), Happened::AlreadyThere { .. }));
    // A copy that is gone is no durable one.
    fs::remove_file(scene.slow.path().join("b")).unwrap();
    let Happened::Refused { why, .. } = next(&mut begun()) else { panic!() };
    assert!(why.message.ends_with("/b: was moved there, and is not there any more"), "{why:?}");
    assert!(scene.at("x.done").exists());
}

#[test]
fn a_crash_before_the_semaphore_of_several_files_goes_is_made_up_for() {
    let scene = Scene::new();
    let begun = || scene.watch(false);
    let mut first = begun();
    submitted(&mut first, &[1, 2]);
    drop(first);
    scene.moved(&[(1, "a"), (2, "b")]);
    let mut second = begun();
    assert!(matches!(next(&mut second), Happened::Durable { .. }));
    assert!(!scene.at("x.done").exists());
    assert_eq!(scene.desk.specs().len(), 2);
}

/// A semaphore that could not be removed, for instance.
#[test]
fn a_job_that_failed_after_it_was_committed_goes_on_though_its_source_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let (desk, at) = (Still::default(), |name: &str| folder.path().join(name));
    fs::write(at("a"), "a").unwrap();
    fs::write(at("a.done"), "").unwrap();
    let begun = || watch(folder.path(), &desk, false, &|_, _| unreachable!());
    submitted(&mut begun(), &[1]);
    fs::remove_file(at("a")).unwrap();
    desk.set_left_over(1);
    submitted(&mut begun(), &[1]);
    assert_eq!(desk.status(Some(1)).unwrap()[0].state, State::Queued);
    assert!(at("a.done").exists());
}

/// What is at its source is the next set's perhaps.
#[test]
fn a_job_that_failed_after_it_was_committed_is_looked_at_as_any_other_if_its_source_is_there() {
    let scene = Scene::new();
    renamed_into_place(&scene.at("x.done"), "a 1\nb\n");
    submitted(&mut scene.watch(false), &[1, 2]);
    scene.desk.set_left_over(1);
    scene.desk.set(2, State::Failed);
    fs::write(scene.at("a"), "new").unwrap();
    renamed_into_place(&scene.at("x.done"), "a 1\nb\n");
    let mut watch = scene.watch(false);
    let Happened::Refused { why, .. } = next(&mut watch) else { panic!("it is not refused") };
    assert!(why.message.contains("vouches for a, which has 3 bytes, not 1"), "{why:?}");
    assert_eq!(scene.desk.status(Some(2)).unwrap()[0].state, State::Failed);
}
