//! Two sweeps compared.

mod fake;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use fake::{Behaviour, Fakes, identity};
use measure::WarningCode;
use measure::decide::sessions::ShiftVerdict;
use sweep::diff::{Diff, diff};
use sweep::run::{Quiet, Runner, begin};
use sweep::space::Space;
use sweep::store::Store;

const SPACE: &str =
    "[sweep]\nprotocol = 'dash'\nname = 'ladder'\nseed = 3\n[space]\niodepth = [1, 4, 16, 64]";

fn measure(directory: &Path, name: &str, space: &str, fakes: Fakes, hostname: &str) -> Store {
    let path = directory.join(name);
    let space = Space::parse(name, space).unwrap();
    let mut identity = identity();
    identity.machine.hostname = hostname.into();
    let mut store = begin(&path, &space, &identity).unwrap().store;
    Runner::new(&mut store, &identity, &mut fakes.clone(), &mut Quiet, &AtomicBool::new(false))
        .run()
        .unwrap();
    drop(store);
    Store::open_read_only(&path).unwrap()
}

fn faster(factor: f64) -> Fakes {
    let fakes = Fakes::new();
    fakes.world.lock().unwrap().speed = factor;
    fakes
}

/// A sweep in which one point is faster than it was.
fn faster_at(point: &str, factor: f64) -> Fakes {
    let fakes = Fakes::new();
    fakes.world.lock().unwrap().speed_of.insert(point.into(), factor);
    fakes
}

fn verdicts(diff: &Diff) -> Vec<Option<ShiftVerdict>> {
    diff.points.iter().map(|p| Some(p.bandwidth.contrast?.verdict)).collect()
}

#[test]
fn equal_sweeps_do_not_differ_and_a_machine_that_is_faster_as_a_whole_has_no_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let a = measure(dir.path(), "a.db", SPACE, Fakes::new(), "node1");
    let b = measure(dir.path(), "b.db", &SPACE.replace("seed = 3", "seed = 4"), Fakes::new(), "node1");
    let same = diff(&a, &b, &[]).unwrap();
    assert_eq!((same.better, same.worse, same.equivalent + same.undecided), (0, 0, 3), "{same}");
    assert!(same.conditions.is_empty(), "{:?}", same.conditions);
    let c = measure(dir.path(), "c.db", SPACE, faster(1.5), "node2");
    let faster = diff(&a, &c, &[]).unwrap();
    assert_eq!((faster.better, faster.worse), (0, 0), "{faster}");
    for point in &faster.points {
        assert!((point.bandwidth.ratio.unwrap() - 1.5).abs() < 0.05);
        assert_eq!(point.bandwidth.passes_a, 5, "the first pass is set aside");
    }
    let changed: Vec<&str> = faster.conditions.iter().map(|c| c.what.as_str()).collect();
    assert_eq!(changed, ["host name"]);
    let text = faster.to_string();
    assert!(
        text.contains("iodepth=64") && text.contains("0 better, 0 worse") && text.contains("+50."),
        "{text}"
    );
    assert!(text.contains("reference") && text.contains("moves by 2.0 % (SD, taken for granted"), "{text}");
    assert!(serde_json::to_string(&faster).unwrap().contains("flashwright.diff/2"));
}

#[test]
fn a_point_that_gains_on_the_reference_is_better_with_an_interval_that_agrees() {
    let dir = tempfile::tempdir().unwrap();
    let a = measure(dir.path(), "a.db", SPACE, Fakes::new(), "node1");
    let b = measure(dir.path(), "b.db", SPACE, faster_at("iodepth=16", 1.3), "node1");
    let better = diff(&a, &b, &[]).unwrap();
    assert_eq!(verdicts(&better)[0], None, "the first point is the reference");
    assert_eq!(verdicts(&better)[2], Some(ShiftVerdict::Better), "{better}");
    assert_eq!((better.better, better.worse), (1, 0), "{better}");
    assert_eq!((better.points[0].reference, better.points[2].reference), (None, Some(0)));
    let bounds = better.points[2].bandwidth.contrast.unwrap().bounds.unwrap();
    assert!(bounds.low > 1.1 && bounds.low < 1.3 && bounds.high > 1.3 && bounds.high < 1.5, "{bounds:?}");
    let worse = diff(&b, &a, &[]).unwrap();
    assert_eq!(verdicts(&worse)[2], Some(ShiftVerdict::Worse), "{worse}");
}

#[test]
fn further_sweeps_of_the_baselines_kind_tell_how_far_sessions_move() {
    let dir = tempfile::tempdir().unwrap();
    let sweep = |name: &str, seed: &str, fakes| {
        measure(dir.path(), name, &SPACE.replace("seed = 3", seed), fakes, "node1")
    };
    let (a, b) = (sweep("a.db", "seed = 1", Fakes::new()), sweep("b.db", "seed = 2", Fakes::new()));
    let alike = [sweep("c.db", "seed = 3", Fakes::new()), sweep("d.db", "seed = 4", faster(1.4))];
    assert_eq!(diff(&a, &b, &alike[..1]).unwrap().tau.sessions, 0, "two sweeps do not suffice");
    let calm = diff(&a, &b, &alike).unwrap();
    assert_eq!(calm.tau.sessions, 3);
    assert!(calm.tau.sd < 0.02, "{:?}", calm.tau);
    assert!(calm.to_string().contains("estimated from 3 sweeps"), "{calm}");
    let moved =
        [sweep("e.db", "seed = 5", faster_at("iodepth=4", 1.3)), sweep("f.db", "seed = 6", Fakes::new())];
    let moved = diff(&a, &b, &moved).unwrap();
    assert!(moved.tau.sd > 0.05, "{:?}", moved.tau);
}

#[test]
fn points_are_matched_by_what_they_run_whatever_the_dimensions_are_called() {
    let dir = tempfile::tempdir().unwrap();
    let a = measure(dir.path(), "a.db", SPACE, Fakes::new(), "node1");
    let other = "[sweep]\nprotocol = 'dash'\nruntime = '0.25s'\n[base]\nrw = 'randread'\n[space]\nbs = ['4k', '8k']\niodepth = [16, 64, 128]";
    let b = measure(dir.path(), "b.db", other, Fakes::new(), "node1");
    let diff = diff(&a, &b, &[]).unwrap();
    let pairs: Vec<_> = diff.points.iter().map(|p| (p.point_a, p.point_b)).collect();
    assert_eq!(pairs, [(2, 0), (3, 1)]);
    assert_eq!(diff.only_in_a, ["iodepth=1", "iodepth=4"]);
    assert_eq!(diff.only_in_b.len(), 4);
    let condition = &diff.points[0].conditions[0];
    assert_eq!(
        (condition.what.as_str(), condition.a.as_str(), condition.b.as_str()),
        ("runtime", "0.5", "0.25")
    );
}

#[test]
fn points_that_differ_in_a_condition_alone_are_matched_and_the_condition_is_listed() {
    use measure::options::{OPTIONS, OptionClass};
    let dir = tempfile::tempdir().unwrap();
    let space = |base: &str| {
        format!(
            "[sweep]\nprotocol = 'dash'\nname = 'one'\npasses = 2\n[base]\n{base}\n[space]\niodepth = [4]"
        )
    };
    // Each condition that a space may set in [base] and that is not stated for the whole sweep.
    for option in ["size = '1g'", "offset = '1m'", "offset_increment = '64m'"] {
        let name = option.split(' ').next().unwrap();
        let class = OPTIONS.iter().find(|known| known.name == name).unwrap().class;
        assert_eq!(class, OptionClass::Condition, "{name}");
        let a =
            measure(dir.path(), &format!("{name}-a.db"), &space("rw = 'randread'"), Fakes::new(), "node1");
        let other = space(&format!("rw = 'randread'\n{option}"));
        let b = measure(dir.path(), &format!("{name}-b.db"), &other, Fakes::new(), "node1");
        let diff = diff(&a, &b, &[]).unwrap();
        assert_eq!(diff.points.len(), 1, "{name}");
        let changed: Vec<&str> = diff.points[0].conditions.iter().map(|c| c.what.as_str()).collect();
        assert_eq!(changed, [name]);
    }
}

#[test]
fn a_test_type_and_its_workload_spelled_out_are_the_same_point() {
    let dir = tempfile::tempdir().unwrap();
    let a = measure(dir.path(), "a.db", "[space]\ntest_type = [9, 10]", Fakes::new(), "node1");
    let spelled = "[base]\nrw = 'randread'\nbs = 4096\n[space]\niodepth = [32]";
    let b = measure(dir.path(), "b.db", spelled, Fakes::new(), "node1");
    let diff = diff(&a, &b, &[]).unwrap();
    assert_eq!((diff.points.len(), diff.only_in_a.len(), diff.only_in_b.len()), (1, 1, 0));
}

#[test]
fn void_runs_take_no_part_and_too_few_passes_give_no_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let a = measure(dir.path(), "a.db", SPACE, Fakes::new(), "node1");
    let void = Fakes::new().always("iodepth=4", Behaviour::Void(WarningCode::DirectBuffered));
    let b = measure(dir.path(), "b.db", SPACE, void, "node1");
    let diff = diff(&a, &b, &[]).unwrap();
    assert_eq!(diff.points[1].bandwidth.passes_b, 0);
    assert_eq!(verdicts(&diff)[1], Some(ShiftVerdict::NotEnoughData));
    assert_eq!((diff.b.void, diff.not_enough_data), (6, 1));
}

#[test]
fn an_incomplete_sweep_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let a = measure(dir.path(), "a.db", SPACE, Fakes::new(), "node1");
    let failing = Fakes::new().always("iodepth=1", Behaviour::Fail);
    let b = measure(dir.path(), "b.db", SPACE, failing, "node1");
    let diff = diff(&a, &b, &[]).unwrap();
    assert_eq!((diff.b.done, diff.b.planned), (18, 24));
    assert!(diff.to_string().contains("incomplete: 18 of 24 runs"), "{diff}");
}
