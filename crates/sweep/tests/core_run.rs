//! Running and resuming over a fake target.

mod fake;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::ErrorClass;
use fake::{Behaviour, Fakes, LADDER, identity};
use measure::WarningCode;
use sweep::run::{
    Ended, Observer, Outcome, RunError, RunFailed, RunFinished, RunStarted, Runner, SessionBegun, begin,
};
use sweep::space::Space;
use sweep::status::Status;
use sweep::store::{Store, StoreError};

fn ladder() -> Space {
    Space::parse("ladder.toml", LADDER).unwrap()
}

fn go(store: &mut Store, fakes: &Fakes) -> Result<Outcome, RunError> {
    let stop = fakes.stop_after.as_ref().map(|(_, stop)| Arc::clone(stop)).unwrap_or_default();
    Runner::new(store, &identity(), &mut fakes.clone(), &mut sweep::run::Quiet, &stop).run()
}

fn start(dir: &Path) -> Store {
    begin(&dir.join("results.db"), &ladder(), &identity()).unwrap().store
}

#[test]
fn a_sweep_does_exactly_what_was_planned_in_planned_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = start(dir.path());
    let fakes = Fakes::new();
    let outcome = go(&mut store, &fakes).unwrap();
    assert_eq!((outcome.ended, outcome.runs), (Ended::Complete, 12));
    let plan = store.plan().unwrap();
    let planned: Vec<String> =
        plan.steps().iter().map(|s| plan.points[s.planned.point as usize].workload.name.clone()).collect();
    assert_eq!(fakes.asked(), planned);
    let runs = store.runs().unwrap();
    assert_eq!(runs.len(), 12);
    let by_plan: Vec<_> = plan.runs.iter().map(|r| (r.position, r.point, r.pass)).collect();
    assert_eq!(runs.iter().map(|r| (r.position, r.point, r.pass)).collect::<Vec<_>>(), by_plan);
    assert_eq!(store.controls().unwrap().len(), plan.controls.len());
    assert_eq!(fakes.world.lock().unwrap().opened, 1, "the target stays open");
    for run in &runs {
        let record = store.record(run.id).unwrap();
        assert_eq!((record.pass, record.bytes()), (run.pass, run.bytes));
        assert!((record.iops() - run.iops).abs() < 1e-9);
        assert_eq!(run.warnings, [WarningCode::ClosedLoop]);
    }
}

#[test]
fn each_pass_walks_offsets_of_its_own_unless_the_space_fixes_the_seed() {
    let dir = tempfile::tempdir().unwrap();
    let fakes = Fakes::new();
    go(&mut start(dir.path()), &fakes).unwrap();
    let seeds = fakes.world.lock().unwrap().seeds.clone();
    assert_eq!(seeds.iter().collect::<BTreeSet<_>>().len(), seeds.len());
    let fixed =
        Space::parse("s", "[sweep]\nprotocol = 'dash'\n[base]\nrandseed = 5\n[space]\niodepth = [1, 2]")
            .unwrap();
    let mut store = begin(&dir.path().join("fixed.db"), &fixed, &identity()).unwrap().store;
    let fakes = Fakes::new();
    go(&mut store, &fakes).unwrap();
    assert!(fakes.world.lock().unwrap().seeds.iter().all(|seed| *seed == 5));
}

#[test]
fn resuming_a_full_sweep_does_nothing() {
    let dir = tempfile::tempdir().unwrap();
    go(&mut start(dir.path()), &Fakes::new()).unwrap();
    let before = std::fs::read(dir.path().join("results.db")).unwrap();
    let mut store = Store::open(dir.path()).unwrap();
    let fakes = Fakes::new();
    let outcome = go(&mut store, &fakes).unwrap();
    drop(store);
    assert_eq!((outcome.ended, outcome.runs, fakes.asked().len()), (Ended::Complete, 0, 0));
    assert_eq!(std::fs::read(dir.path().join("results.db")).unwrap(), before);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["results.db"], "no lock or journal is left behind");
}

#[test]
fn a_stopped_sweep_goes_on_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = start(dir.path());
    let planned = store.plan().unwrap().steps();
    let mut done = 0;
    for after in [1, 4, 2] {
        let stop = Arc::new(AtomicBool::new(false));
        let fakes = Fakes { stop_after: Some((after, stop)), ..Fakes::new() };
        let outcome = go(&mut store, &fakes).unwrap();
        assert_eq!(outcome.ended, Ended::Interrupted);
        done += after;
        assert_eq!(store.missing_steps().unwrap(), planned[done..]);
    }
    assert_eq!(go(&mut store, &Fakes::new()).unwrap().ended, Ended::Complete);
    assert!(store.missing_steps().unwrap().is_empty());
    let outcomes: Vec<_> = store.sessions().unwrap().into_iter().map(|s| s.outcome.unwrap()).collect();
    assert_eq!(outcomes, ["interrupted", "interrupted", "interrupted", "complete"]);
}

#[test]
fn an_interrupted_run_is_lost_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = start(dir.path());
    let fakes = Fakes::new().always("iodepth=16", Behaviour::Interrupt);
    let outcome = go(&mut store, &fakes).unwrap();
    assert_eq!(outcome.ended, Ended::Interrupted);
    assert_eq!(outcome.runs + outcome.controls, fakes.asked().len() as u32 - 1);
    assert!(store.failures().unwrap().is_empty());
}

#[test]
fn a_sweep_ends_at_the_first_request_that_is_not_answered_and_keeps_what_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = start(dir.path());
    let fakes = Fakes::new().script("iodepth=16", &[Behaviour::Work, Behaviour::Hang]);
    let outcome = go(&mut store, &fakes).unwrap();
    assert_eq!(outcome.ended, Ended::Unanswered);
    let asked = fakes.asked();
    assert_eq!(asked.iter().filter(|name| *name == "iodepth=16").count(), 2);
    assert_eq!(asked.last().unwrap(), "iodepth=16", "nothing runs after it");
    assert_eq!((outcome.runs + outcome.controls) as usize, asked.len() - 1);
    assert_eq!(outcome.failures[&2], "the run failed: /dev/vda has not answered a request for 1 s");
    assert_eq!(outcome.unanswered.map(|request| request.target).as_deref(), Some("/dev/vda"));
    assert_eq!(store.sessions().unwrap()[0].outcome.as_deref(), Some("unanswered"));
    assert_eq!(go(&mut store, &Fakes::new()).unwrap().ended, Ended::Complete);
}

#[test]
fn runs_under_another_setting_than_the_first_are_void_until_it_is_set_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = start(dir.path());
    let points = ["iodepth=1", "iodepth=4", "iodepth=16", "iodepth=64"];
    let stop = Arc::new(AtomicBool::new(false));
    let before = Fakes { stop_after: Some((5, stop)), ..Fakes::new() };
    assert_eq!(go(&mut store, &before).unwrap().ended, Ended::Interrupted);
    // Somebody changes it while no session runs, and sets it back in the next one.
    let scripted = |fakes: Fakes, point: &&str| fakes.script(point, &[Behaviour::Scheduler("bfq")]);
    let outcome = go(&mut store, &points.iter().fold(Fakes::new(), scripted)).unwrap();
    assert_eq!(
        (outcome.ended, outcome.repeated),
        (Ended::Complete, 0),
        "to repeat it at once shows the same"
    );
    let mut all = [store.runs().unwrap(), store.controls().unwrap()].concat();
    all.sort_by_key(|run| run.position);
    let void: Vec<bool> = all.iter().map(sweep::model::RunRow::is_void).collect();
    assert!(!void[..5].contains(&true), "{void:?}");
    assert_eq!(void.iter().filter(|void| **void).count(), 4, "the next one of each point: {void:?}");
    let run = store.runs().unwrap().into_iter().find(sweep::model::RunRow::is_void).unwrap();
    let warnings = store.record(run.id).unwrap().warnings;
    let drift = warnings.iter().find(|w| w.code == WarningCode::SettingsDrift).unwrap();
    assert_eq!(drift.message, "not as in the runs before: scheduler: none → bfq");
}

#[test]
fn a_failing_point_does_not_stop_the_others_and_is_listed_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = start(dir.path());
    let fakes = Fakes::new().always("iodepth=64", Behaviour::Fail);
    let outcome = go(&mut store, &fakes).unwrap();
    assert_eq!((outcome.ended, outcome.runs), (Ended::Incomplete, 9));
    assert_eq!(outcome.failures[&3], "the run failed: read at 4096: EIO");
    let asked = fakes.asked().iter().filter(|name| *name == "iodepth=64").count();
    assert_eq!(asked, 2, "after two failures the point waits for the next session");
    assert_eq!(store.failures().unwrap().len(), 2);
    let status = Status::of(&store).unwrap();
    assert_eq!(status.missing.len(), 1);
    assert_eq!(status.missing[0].passes, [1, 2, 3]);
    assert_eq!(status.missing[0].last_error.as_deref(), Some("the run failed: read at 4096: EIO"));
    // The cause is gone; resuming does the three runs and no other.
    let fakes = Fakes::new();
    let outcome = go(&mut store, &fakes).unwrap();
    assert_eq!((outcome.ended, outcome.runs), (Ended::Complete, 3));
    assert!(fakes.asked().iter().all(|name| name == "iodepth=64"));
}

#[test]
fn a_workload_that_does_not_fit_is_tried_once() {
    let dir = tempfile::tempdir().unwrap();
    let fakes = Fakes::new().always("iodepth=1", Behaviour::Misfit);
    let outcome = go(&mut start(dir.path()), &fakes).unwrap();
    assert_eq!(outcome.ended, Ended::Incomplete);
    assert_eq!(fakes.asked().iter().filter(|name| *name == "iodepth=1").count(), 1);
}

#[test]
fn a_dead_target_ends_the_session_after_three_failures_in_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = start(dir.path());
    let fakes = ["iodepth=1", "iodepth=4", "iodepth=16", "iodepth=64"]
        .iter()
        .fold(Fakes::new(), |fakes, name| fakes.always(name, Behaviour::Fail));
    let outcome = go(&mut store, &fakes).unwrap();
    assert_eq!((outcome.ended, fakes.asked().len()), (Ended::GaveUp, 3));
    assert_eq!(store.failures().unwrap().len(), 3);
    assert_eq!(fakes.world.lock().unwrap().opened, 3, "a target that failed is opened anew");
}

#[test]
fn a_refusal_stops_the_sweep_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = start(dir.path());
    let error = go(&mut store, &Fakes::new().always("iodepth=4", Behaviour::Refuse)).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Refused);
    assert!(base::with_causes(&error).contains("/dev/vda is mounted on /"), "{error:?}");
    assert_eq!(store.sessions().unwrap()[0].outcome.as_deref(), Some("refused"));
}

#[test]
fn a_run_spoilt_from_outside_is_repeated_once_and_the_first_attempt_stays_visible() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = start(dir.path());
    let spoilt = Behaviour::Void(WarningCode::BackgroundWork);
    let outcome = go(&mut store, &Fakes::new().script("iodepth=1", &[spoilt])).unwrap();
    assert_eq!((outcome.ended, outcome.repeated, outcome.completeness.void), (Ended::Complete, 1, 0));
    let voided = store.voided().unwrap();
    assert_eq!((voided.len(), voided[0].point), (1, 0));
    assert!(voided[0].is_void());
    let record = store.record_of(sweep::store::RecordOf::Voided(voided[0].id)).unwrap();
    assert!(record.has_warning(WarningCode::BackgroundWork));
}

#[test]
fn a_run_that_stays_void_is_kept_flagged_and_counted() {
    for (code, repeated) in [(WarningCode::SettingsDrift, 3), (WarningCode::DirectBuffered, 0)] {
        let dir = tempfile::tempdir().unwrap();
        let mut store = start(dir.path());
        let outcome = go(&mut store, &Fakes::new().always("iodepth=1", Behaviour::Void(code))).unwrap();
        assert_eq!(outcome.ended, Ended::Complete);
        assert_eq!((outcome.repeated, outcome.completeness.void), (repeated, 3), "{code}");
        assert_eq!(store.runs().unwrap().iter().filter(|r| r.is_void()).count(), 3);
    }
}

#[test]
fn a_plan_or_a_machine_that_differs_is_refused_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results.db");
    let stop = Arc::new(AtomicBool::new(false));
    go(&mut start(dir.path()), &Fakes { stop_after: Some((2, stop)), ..Fakes::new() }).unwrap();
    let other = Space::parse("s", &LADDER.replace("64]", "128]")).unwrap();
    let error = begin(&path, &other, &identity()).unwrap_err();
    assert!(matches!(error, StoreError::OtherPlan { .. }), "{error}");
    assert!(begin(&path, &ladder(), &identity()).unwrap().resumed);
    let mut elsewhere = identity();
    elsewhere.machine.hostname = "node2".into();
    let mut store = Store::open(&path).unwrap();
    let mut run = |identity: &_| {
        Runner::new(&mut store, identity, &mut Fakes::new(), &mut sweep::run::Quiet, &AtomicBool::new(false))
            .run()
    };
    let error = run(&elsewhere).unwrap_err();
    assert!(error.to_string().contains("host name: node1 → node2"), "{error}");
    assert!(error.hint().unwrap().contains("--allow-other-machine"));
    assert_eq!(error.class(), ErrorClass::Refused);
    elsewhere.allow_other_machine = true;
    assert_eq!(run(&elsewhere).unwrap().ended, Ended::Complete);
}

#[test]
fn a_space_without_a_seed_resumes_under_the_recorded_one() {
    let dir = tempfile::tempdir().unwrap();
    let space = Space::parse("s", &LADDER.replace("seed = 7", "")).unwrap();
    let path = dir.path().join("results.db");
    let seed = begin(&path, &space, &identity()).unwrap().store.meta().unwrap().seed;
    let again = begin(&path, &space, &identity()).unwrap();
    assert!(again.resumed);
    assert_eq!(again.store.meta().unwrap().seed, seed);
}

/// Writes down what it is told.
#[derive(Default)]
struct Watcher {
    told: Vec<String>,
    times: Vec<Option<Duration>>,
}

impl Observer for Watcher {
    fn session_begun(&mut self, s: &SessionBegun) {
        self.told.push(format!("begun {}/{}", s.done, s.planned));
        self.times.push(s.time_left);
    }
    fn run_started(&mut self, s: &RunStarted<'_>) {
        self.told.push(format!("started {} {:?}", s.point.id, s.kind));
    }
    fn run_finished(&mut self, s: &RunFinished<'_>) {
        assert!(s.row.bandwidth_bytes_per_s > 0.0);
        self.told.push(format!("finished {} {}/{}", s.point.id, s.done, s.planned));
        self.times.push(s.time_left);
    }
    fn run_failed(&mut self, s: &RunFailed<'_>) {
        self.told.push(format!("failed {} {}", s.point.id, s.error));
    }
}

#[test]
fn an_observer_hears_of_every_step_and_the_time_left_runs_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = start(dir.path());
    let mut watcher = Watcher::default();
    let fakes = Fakes { delay: Duration::from_millis(10), ..Fakes::new() };
    let mut factory = fakes.clone().script("iodepth=1", &[Behaviour::Fail]);
    Runner::new(&mut store, &identity(), &mut factory, &mut watcher, &AtomicBool::new(false)).run().unwrap();
    assert_eq!(watcher.told[0], "begun 0/12");
    assert!(watcher.told.contains(&"failed 0 the run failed: read at 4096: EIO".to_owned()));
    assert!(watcher.told.iter().any(|told| told.ends_with("11/12")));
    let times: Vec<Duration> = watcher.times.into_iter().flatten().collect();
    assert!(times[0] > times[times.len() / 2], "{times:?}");
    assert_eq!(*times.last().unwrap(), Duration::ZERO);
}

#[test]
fn status_can_be_asked_while_the_sweep_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let stop = Arc::new(AtomicBool::new(false));
    let mut store = start(dir.path());
    let worker = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let fakes = Fakes { delay: Duration::from_millis(20), ..Fakes::new() };
            Runner::new(&mut store, &identity(), &mut fakes.clone(), &mut sweep::run::Quiet, &stop).run()
        }
    });
    let mut seen = Vec::new();
    for _ in 0..10 {
        let status = Status::read(&path).unwrap();
        assert!(status.running.as_deref().unwrap().contains(&std::process::id().to_string()));
        seen.push(status.done);
        std::thread::sleep(Duration::from_millis(10));
    }
    stop.store(true, Ordering::Relaxed);
    let outcome = worker.join().unwrap().unwrap();
    assert!(seen.windows(2).all(|w| w[0] <= w[1]), "{seen:?}");
    let status = Status::read(&path).unwrap();
    assert_eq!((status.done, &status.running), (outcome.completeness.done, &None));
    let text = serde_json::to_string(&status).unwrap();
    assert!(text.contains("flashwright.status/1"));
}
