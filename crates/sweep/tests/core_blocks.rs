//! Blocks until a decision, over targets whose truth is known and a clock that the test moves.

mod fake;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fake::identity;
use measure::decide::Decision;
use measure::record::TargetFacts;
use measure::{RunRecord, Target, TargetError, Workload};
use sweep::model::{Point, RunRow};
use sweep::plan::SplitMix64;
use sweep::plan::blocks::{order, race_rules, stages};
use sweep::run::{Ended, Outcome, Quiet, Runner, TargetFactory, Timer, begin};
use sweep::space::{Overrides, Space};
use sweep::status::Status;
use sweep::store::Store;

/// A clock that moves when a run or a pause takes time.
#[derive(Default)]
struct Time(Cell<Duration>);

impl Time {
    fn pass(&self, time: Duration) {
        self.0.set(self.0.get() + time);
    }
}

impl Timer for Time {
    fn now(&self) -> Duration {
        self.0.get()
    }

    fn wait(&self, pause: Duration, _: &AtomicBool) {
        self.pass(pause);
    }
}

/// A machine on which each point has a true speed.
struct World {
    time: Time,
    /// By the workload's name; 1 where it is not named.
    speeds: BTreeMap<&'static str, f64>,
    /// Standard deviation of ln speed between runs.
    noise: f64,
    /// Points that fail.
    failing: BTreeSet<&'static str>,
    /// Name and start of each run.
    runs: RefCell<Vec<(String, Duration)>>,
    /// Set after this many runs.
    stop_after: Option<usize>,
    stop: AtomicBool,
}

impl World {
    fn new(noise: f64, speeds: &[(&'static str, f64)]) -> Self {
        Self {
            time: Time::default(),
            speeds: speeds.iter().copied().collect(),
            noise,
            failing: BTreeSet::new(),
            runs: RefCell::default(),
            stop_after: None,
            stop: AtomicBool::new(false),
        }
    }

    fn names(&self) -> Vec<String> {
        self.runs.borrow().iter().map(|(name, _)| name.clone()).collect()
    }
}

#[derive(Clone)]
struct Machines(Rc<World>);

impl TargetFactory for Machines {
    fn open(&mut self, _: &str, _: &Point) -> Result<Box<dyn Target>, TargetError> {
        Ok(Box::new(Machine { world: Rc::clone(&self.0), facts: TargetFacts::default() }))
    }
}

struct Machine {
    world: Rc<World>,
    facts: TargetFacts,
}

impl Target for Machine {
    fn facts(&self) -> &TargetFacts {
        &self.facts
    }

    fn run(&mut self, workload: &Workload) -> Result<RunRecord, TargetError> {
        let world = &self.world;
        let mut runs = world.runs.borrow_mut();
        runs.push((workload.name.clone(), world.time.now()));
        world.time.pass(Duration::from_millis(300));
        world.stop.store(world.stop_after.is_some_and(|after| runs.len() >= after), Ordering::Relaxed);
        if world.failing.contains(workload.name.as_str()) {
            return Err(TargetError::Failed("read at 4096: EIO".into()));
        }
        let mut random = SplitMix64::new(workload.randseed);
        // Normal by the sum of twelve uniforms.
        let uniform = |random: &mut SplitMix64| random.below(1 << 32) as f64 / (1u64 << 32) as f64;
        let normal = (0..12).map(|_| uniform(&mut random)).sum::<f64>() - 6.0;
        let speed = world.speeds.get(workload.name.as_str()).copied().unwrap_or(1.0);
        let flat = speed * (world.noise * normal).exp() / f64::from(workload.iodepth).sqrt();
        Ok(fake::record(workload, &self.facts, flat))
    }
}

const SPACE: &str = "
[sweep]
name = 'race'
seed = 7
budget = '300s'
control = false
[space]
iodepth = [1, 4, 16, 64]
";

fn space(text: &str) -> Space {
    Space::parse("race.toml", text).unwrap()
}

fn start(dir: &Path, space: &Space) -> Store {
    begin(&dir.join("results.db"), space, &identity()).unwrap().store
}

fn go(store: &mut Store, world: &Rc<World>) -> Outcome {
    let identity = identity();
    let mut machines = Machines(Rc::clone(world));
    let mut quiet = Quiet;
    let runner = Runner::new(store, &identity, &mut machines, &mut quiet, &world.stop);
    runner.with_timer(&world.time).run().unwrap()
}

/// A sweep from start to end.
fn sweep(text: &str, world: World) -> (tempfile::TempDir, Store, Rc<World>, Outcome) {
    let dir = tempfile::tempdir().unwrap();
    let mut store = start(dir.path(), &space(text));
    let world = Rc::new(world);
    let outcome = go(&mut store, &world);
    (dir, store, world, outcome)
}

fn decision(store: &Store) -> Option<Decision> {
    store.board().unwrap().stages[0].entries[0].race.decided()
}

#[test]
fn a_better_setting_ends_its_contest_and_settings_that_lost_run_no_more() {
    let (_dir, store, world, outcome) =
        sweep(SPACE, World::new(0.03, &[("iodepth=16", 1.25), ("iodepth=64", 1.10), ("iodepth=1", 0.5)]));
    assert_eq!((outcome.ended, decision(&store)), (Ended::Complete, Some(Decision::Better)));
    let board = store.board().unwrap();
    let entry = &board.stages[0].entries[0];
    assert_eq!(entry.alive().collect::<Vec<_>>(), [2], "depth 16");
    assert!((4..30).contains(&entry.whole), "{} blocks", entry.whole);
    // Depth 1 is far behind and leaves first; what has left is in no later block.
    let last_block =
        |point: u32| store.runs().unwrap().iter().filter(|r| r.point == point).map(|r| r.pass).max();
    assert!(last_block(0) < last_block(2), "{:?} {:?}", last_block(0), last_block(2));
    let late: BTreeSet<u32> =
        store.runs().unwrap().iter().filter(|r| Some(r.pass) > last_block(0)).map(|r| r.point).collect();
    assert!(!late.contains(&0) && late.contains(&2));
    assert_eq!(world.names().len(), store.runs().unwrap().len());
    assert!(outcome.completeness.is_complete());
}

#[test]
fn equal_settings_end_as_equivalent() {
    let (_dir, store, world, outcome) = sweep(SPACE, World::new(0.02, &[]));
    assert_eq!((outcome.ended, decision(&store)), (Ended::Complete, Some(Decision::Equivalent)));
    let before = world.names().len();
    let (mut store, world) = (store, world);
    let outcome = go(&mut store, &world);
    assert_eq!((outcome.ended, outcome.runs), (Ended::Complete, 0));
    assert_eq!(world.names().len(), before, "a decided sweep runs nothing when it is resumed");
    let status = Status::of(&store).unwrap();
    assert_eq!((status.complete, status.undecided), (true, 0));
    assert!(status.to_string().contains("\ncomplete\n") || status.running.is_some(), "{status}");
}

#[test]
fn a_sweep_whose_time_is_up_is_told_with_what_is_undecided() {
    let (_dir, store, _, _) = sweep(&SPACE.replace("300s", "30s"), World::new(0.3, &[("iodepth=16", 1.02)]));
    assert_eq!(decision(&store), None);
    let status = Status { running: None, ..Status::of(&store).unwrap() };
    assert_eq!((status.complete, status.undecided), (true, 1));
    assert!(status.to_string().contains("its time is up, and 1 kind of work is undecided"), "{status}");
    assert!(!status.to_string().contains("complete"), "{status}");
}

#[test]
fn work_ends_where_a_setting_is_enough_and_the_report_says_the_same() {
    let (_dir, mut store, world, outcome) = sweep(SPACE, World::new(0.06, &[]));
    assert_eq!((outcome.ended, decision(&store)), (Ended::Complete, Some(Decision::Sufficient)));
    assert!(world.time.now() < Duration::from_secs(200), "{:?}", world.time.now());
    let report = sweep::report::Report::new(&sweep::load::load(&store).unwrap()).unwrap();
    let recommendation = &report.recommendations[0];
    assert_eq!(recommendation.outcome, sweep::recommend::Outcome::Sufficient);
    let at_most = recommendation.undecided.unwrap().could_be.unwrap();
    assert!(
        (1.0..=1.05).contains(&at_most) && recommendation.sentence.contains("faster"),
        "{recommendation:#?}"
    );
    assert_eq!(go(&mut store, &world).runs, 0, "it is decided");
}

#[test]
fn sides_are_compared_to_the_end() {
    let text = SPACE.replace("iodepth = [1, 4, 16, 64]", "iodepth = [4]\nnumjobs = [1, 2]");
    let with = space(&text);
    let points: Vec<Point> = with.points.clone();
    let contest = sweep::contest::Contest::all(&points).remove(0);
    let rules = |points: &[Point], protocol| race_rules(&contest, points, protocol, 0, with.equivalence);
    assert!(rules(&points, sweep::plan::Protocol::Blocks).ends_at_sufficient);
    assert!(!rules(&points, sweep::plan::Protocol::Screen).ends_at_sufficient);
    let mut sides = points;
    sides[1].settings.insert("side".into(), "B".into());
    assert!(!rules(&sides, sweep::plan::Protocol::Blocks).ends_at_sufficient);
}

#[test]
fn blocks_end_by_the_margin_of_the_space() {
    let blocks = |margin: &str| {
        let text = SPACE.replacen("[sweep]", &format!("[sweep]\nequivalence = \"{margin}\""), 1);
        let (_dir, store, world, _) = sweep(&text, World::new(0.05, &[]));
        (decision(&store), world.runs.borrow().len())
    };
    let ((wide, few), (narrow, many)) = (blocks("30%"), blocks("2%"));
    assert_eq!(wide, Some(Decision::Equivalent));
    assert!(few < many, "{few} runs, {many} with {narrow:?}");
}

#[test]
fn blocks_of_one_work_start_five_seconds_apart_and_run_back_to_back() {
    let (_dir, store, world, _) = sweep(SPACE, World::new(0.03, &[("iodepth=16", 1.2)]));
    let (runs, times) = (store.runs().unwrap(), world.runs.borrow());
    let mut starts: BTreeMap<u32, Vec<Duration>> = BTreeMap::new();
    for (run, (_, time)) in runs.iter().zip(times.iter()) {
        starts.entry(run.pass).or_default().push(*time);
    }
    let first: Vec<Duration> = starts.values().map(|block| block[0]).collect();
    assert!(first.len() > 3);
    assert!(first.windows(2).all(|w| w[1] - w[0] >= Duration::from_secs(5)), "{first:?}");
    for block in starts.values() {
        assert!(block.windows(2).all(|w| w[1] - w[0] == Duration::from_millis(300)), "{block:?}");
    }
}

#[test]
fn works_take_turns_while_the_others_wait() {
    let text = SPACE.replace("[space]", "[space]\nrw = ['randread', 'randwrite']");
    let (_dir, store, _, _) = sweep(&text, World::new(0.03, &[]));
    let works: Vec<u32> = store.runs().unwrap().iter().filter(|r| r.pass <= 2).map(|r| r.point / 4).collect();
    let mut turns = works.clone();
    turns.dedup();
    assert_eq!(turns, [0, 1, 0, 1], "{works:?}");
}

#[test]
fn the_budget_is_kept_and_a_larger_one_goes_on() {
    let text = SPACE.replace("300s", "60s");
    let (_dir, mut store, world, outcome) = sweep(&text, World::new(0.5, &[]));
    let used = world.time.now();
    assert!(used >= Duration::from_secs(60) && used < Duration::from_secs(63), "{used:?}");
    assert_eq!((outcome.ended, decision(&store)), (Ended::Complete, None));
    assert_eq!(go(&mut store, &world).runs, 0, "the budget is used");
    let blocks = store.board().unwrap().stages[0].entries[0].whole;
    store.set_budget(Duration::from_secs(120)).unwrap();
    assert!(!store.completeness().unwrap().is_complete());
    assert!(go(&mut store, &world).runs > 0);
    let used = world.time.now();
    assert!(used >= Duration::from_secs(120) && used < Duration::from_secs(126), "{used:?}");
    assert!(store.board().unwrap().stages[0].entries[0].whole > blocks);
}

#[test]
fn every_setting_runs_once_whatever_the_budget() {
    let (_dir, store, _, outcome) = sweep(&SPACE.replace("300s", "1ms"), World::new(0.1, &[]));
    assert_eq!((outcome.ended, outcome.runs), (Ended::Complete, 4));
    assert_eq!(store.board().unwrap().missing(), []);
}

/// What is stored of a sweep, without the times.
fn rows(store: &Store) -> Vec<(u32, u32, u32, u64)> {
    let row = |r: &RunRow| (r.position, r.point, r.pass, r.bytes);
    store.runs().unwrap().iter().map(row).collect()
}

#[test]
fn the_same_seed_gives_the_same_sweep() {
    let world = || World::new(0.04, &[("iodepth=16", 1.1)]);
    let (_a, first, ..) = sweep(SPACE, world());
    let (_b, second, ..) = sweep(SPACE, world());
    assert_eq!(rows(&first), rows(&second));
    let (_c, other, ..) = sweep(&SPACE.replace("seed = 7", "seed = 8"), world());
    assert_ne!(rows(&first), rows(&other));
}

#[test]
fn the_order_of_a_block_depends_on_seed_work_and_number_and_not_on_who_is_left() {
    let text = SPACE.replace("[space]", "[space]\nrw = ['randread', 'randwrite']");
    let (both, alone) = (space(&text), space(SPACE));
    let contests = |space: &Space| stages(&space.points, &space.rules(7)).remove(0).contests;
    let (both, alone) = (contests(&both), contests(&alone));
    assert_eq!((both.len(), alone.len()), (2, 1));
    let mut orders = BTreeSet::new();
    for block in 1..=40 {
        // Points 0 to 3 are the reads in both spaces.
        assert_eq!(order(&both[0], 7, block), order(&alone[0], 7, block));
        orders.insert(order(&both[0], 7, block));
    }
    assert!(orders.len() > 12, "24 orders are possible");
    assert!((1..=9).any(|block| order(&both[1], 7, block)
        != order(&both[0], 7, block).iter().map(|p| p + 4).collect::<Vec<_>>()));
    // In a sweep, those that are left keep that order.
    let (_dir, store, ..) = sweep(SPACE, World::new(0.03, &[("iodepth=1", 0.3), ("iodepth=16", 1.08)]));
    let runs = store.runs().unwrap();
    let last = runs.last().unwrap().pass;
    for block in 1..=last {
        let ran: Vec<u32> = runs.iter().filter(|r| r.pass == block).map(|r| r.point).collect();
        let mut drawn = order(&alone[0], 7, block);
        drawn.retain(|point| ran.contains(point));
        assert_eq!(ran, drawn, "block {block}");
    }
}

#[test]
fn a_block_that_was_cut_short_is_not_analysed_and_another_is_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = start(dir.path(), &space(SPACE));
    // Two whole blocks, and two of four runs of the third.
    let world = World { stop_after: Some(10), ..World::new(0.03, &[("iodepth=16", 1.2)]) };
    let world = Rc::new(world);
    assert_eq!(go(&mut store, &world).ended, Ended::Interrupted);
    let entry = store.board().unwrap().stages[0].entries[0].clone();
    assert_eq!((entry.whole, entry.last_block, entry.race.blocks()), (2, 3, 2));
    assert_eq!(store.cut().unwrap().len(), 4, "all four runs of the plan of block 3");
    assert!(!store.completeness().unwrap().is_complete());
    let world = Rc::new(World::new(0.03, &[("iodepth=16", 1.2)]));
    assert_eq!(go(&mut store, &world).ended, Ended::Complete);
    let runs = store.runs().unwrap();
    let of = |block: u32| runs.iter().filter(|r| r.pass == block).count();
    assert_eq!((of(3), of(4)), (2, 4), "the cut block is not continued, and the next one is whole");
    let entry = store.board().unwrap().stages[0].entries[0].clone();
    assert_eq!(entry.race.blocks() as u32, entry.whole);
    assert_eq!(entry.whole, entry.last_block - 1);
    assert!(Status::of(&store).unwrap().complete);
    let report = sweep::report::Report::new(&sweep::load::load(&store).unwrap()).unwrap();
    let cut = report.runs.iter().filter(|r| r.fate == sweep::analysis::Fate::Cut).count();
    assert_eq!(cut, 2, "they stay visible");
}

#[test]
fn a_fixed_number_of_blocks_drops_nothing() {
    let text = SPACE.replace("budget = '300s'", "passes = 6");
    let (_dir, store, _, outcome) = sweep(&text, World::new(0.01, &[("iodepth=1", 0.1)]));
    assert_eq!((outcome.ended, outcome.runs), (Ended::Complete, 24));
    let plan = store.plan().unwrap();
    for block in 1..=6 {
        let points: BTreeSet<u32> = plan.runs.iter().filter(|r| r.pass == block).map(|r| r.point).collect();
        assert_eq!(points.len(), 4);
    }
}

#[test]
fn a_setting_that_fails_leaves_its_contest_and_is_named() {
    let world = World { failing: BTreeSet::from(["iodepth=4"]), ..World::new(0.03, &[("iodepth=16", 1.3)]) };
    let (_dir, mut store, world, outcome) = sweep(SPACE, world);
    assert_eq!(outcome.ended, Ended::Incomplete);
    assert_eq!(outcome.failures[&1], "the run failed: read at 4096: EIO");
    assert_eq!(world.names().iter().filter(|name| *name == "iodepth=4").count(), 2);
    assert_eq!(decision(&store), Some(Decision::Better), "the others are decided without it");
    assert_eq!(go(&mut store, &world).runs, 0);
}

#[test]
fn controls_stand_between_blocks() {
    let text = SPACE.replace("control = false", "control_every = 8");
    let (_dir, store, ..) = sweep(&text, World::new(0.03, &[("iodepth=16", 1.1)]));
    let plan = store.plan().unwrap();
    let controls: Vec<u32> = plan.controls.iter().map(|c| c.position).collect();
    assert_eq!(controls[..3], [0, 9, 18], "at the start, and after eight runs");
    assert_eq!(store.controls().unwrap().len(), controls.len());
}

#[test]
fn shards_share_works_and_are_put_together() {
    let text =
        SPACE.replace("[space]", "[space]\nrw = ['randread', 'randwrite']").replace("control = false\n", "");
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let world = || Rc::new(World::new(0.03, &[("rw=randread iodepth=16", 1.2)]));
    for (dir, shard) in dirs.iter().zip(1..=2) {
        let mut store = start(dir.path(), &space(&text).share(shard, 2).unwrap());
        assert_eq!(go(&mut store, &world()).ended, Ended::Complete);
        assert_eq!(store.plan().unwrap().members.len(), 4, "a work is not split");
    }
    assert!(space(&text).share(1, 3).unwrap_err().to_string().contains("2 works"));
    let parts: Vec<_> = dirs[..2].iter().map(|dir| dir.path().to_owned()).collect();
    let merged = sweep::merge::merge(&parts, dirs[2].path()).unwrap();
    assert!(merged.completeness.is_complete());
    let whole = Store::open(dirs[2].path()).unwrap();
    let board = whole.board().unwrap();
    assert!(board.stages.iter().flat_map(|s| &s.entries).all(|e| e.race.decided().is_some()));
    let mut whole = whole;
    assert_eq!(go(&mut whole, &world()).runs, 0);
}

#[test]
fn a_shard_that_was_measured_twice_is_refused() {
    let text = SPACE.replace("[space]", "[space]\nrw = ['randread', 'randwrite']");
    let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    // On the second machine another setting leaves first, whichever of the two works the shard has.
    let slowest = [
        ["rw=randread iodepth=1", "rw=randwrite iodepth=1"],
        ["rw=randread iodepth=64", "rw=randwrite iodepth=64"],
    ];
    for (dir, slowest) in dirs.iter().zip(slowest) {
        let mut store = start(dir.path(), &space(&text).share(1, 2).unwrap());
        let world = World::new(0.03, &slowest.map(|name| (name, 0.3)));
        assert_eq!(go(&mut store, &Rc::new(world)).ended, Ended::Complete);
    }
    let parts: Vec<_> = dirs[..2].iter().map(|dir| dir.path().to_owned()).collect();
    let error = sweep::merge::merge(&parts, dirs[2].path()).unwrap_err().to_string();
    assert!(error.contains("has other figures than in a shard before"), "{error}");
    assert_eq!(std::fs::read_dir(dirs[2].path()).unwrap().count(), 0);
}

#[test]
fn what_belongs_to_the_other_protocol_is_refused() {
    let complaint = |text: &str| Space::parse("s.toml", text).unwrap_err().to_string();
    for (sweep, reason) in [
        ("protocol = 'dash'\nbudget = '1m'", "s.toml:3: budget: belongs to protocol = \"blocks\""),
        (
            "protocol = 'blocks'\ndiscard_first = true",
            "s.toml:3: discard_first: belongs to protocol = \"dash\"",
        ),
        ("budget = '1m'\npasses = 3", "s.toml:2: budget: cannot stand beside passes"),
        ("protocol = 'race'", "s.toml:2: protocol='race': is not a protocol"),
        ("budget = '0s'", "s.toml:2: budget='0s': leaves no time to measure"),
    ] {
        let text = format!("[sweep]\n{sweep}\n[space]\niodepth = [1, 2]");
        assert!(complaint(&text).contains(reason), "{}", complaint(&text));
    }
    let flags = Overrides { budget: Some(Duration::from_secs(9)), passes: Some(3), ..Overrides::default() };
    assert!(space(SPACE).with(&flags).unwrap_err().to_string().contains("--budget"));
    let dash = Overrides { protocol: Some(sweep::plan::Protocol::Dash), ..Overrides::default() };
    let dash = space("[space]\niodepth = [1, 2]").with(&dash).unwrap();
    assert_eq!((dash.passes, dash.discard_first, dash.budget), (6, true, None));
    assert_eq!(dash.points[0].workload.runtime, Some(Duration::from_millis(500)));
    let blocks = space("[space]\niodepth = [1, 2]");
    assert_eq!((blocks.passes, blocks.budget), (0, Some(Duration::from_secs(120))));
    assert_eq!(blocks.points[0].workload.runtime, Some(Duration::from_millis(250)));
}
