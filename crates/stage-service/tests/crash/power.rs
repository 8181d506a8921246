//! Power cuts: what was said to be durable is there, whatever drives lose that they were not told to keep.
//!
//! The fast tier, with the journal, and the slow tier are file systems on drives with volatile caches (`device`). A job
//! runs; then the power fails at moments of its past, the file systems recover, what is on them is judged, and a mover
//! goes on. That the method can fail is shown by a mover whose syncs are left out.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use stage::fault::Call;
use stage::{Level, State, Verb};

use crate::child::{Hit, Order, Report, Strike, command, run};
use crate::device::{Drive, Host, lacking};
use crate::sample::{self, Random};
use crate::world::{Scenario, World};

const BYTES: usize = 320 << 20;
pub const FAST: usize = 0;
pub const SLOW: usize = 1;

/// A job that has run, on drives that are unplugged now.
pub struct Past {
    pub host: Arc<Host>,
    pub fast: Drive,
    pub slow: Drive,
    pub world: World,
    /// When the job was about to be submitted.
    begin: usize,
    /// When a process had been told that the job is durable, unless the job was killed before.
    pub durable: Option<usize>,
    pub end: usize,
    /// What the process had to tell, unless it was killed.
    pub report: Option<Report>,
}

/// Makes two drives, has `build` make a world on them, which is synced, then `change` it, which is not; then carries out
/// the order that `order` makes of the usual one.
pub fn live_with(
    file_systems: (&str, &str),
    build: impl FnOnce(&Path, &Path) -> World,
    change: impl FnOnce(&mut World),
    order: impl FnOnce(Order, &World) -> Order,
) -> Past {
    let host = Arc::new(Host::default());
    let mut fast = Drive::make(&host, FAST, BYTES, file_systems.0);
    let mut slow = Drive::make(&host, SLOW, BYTES, file_systems.1);
    let mut world = build(&fast.point, &slow.point);
    std::fs::create_dir_all(&world.state).unwrap();
    for point in [&fast.point, &slow.point] {
        rustix::fs::syncfs(std::fs::File::open(point).unwrap()).unwrap();
    }
    change(&mut world);
    let begin = host.now();
    for drive in [FAST, SLOW] {
        assert!(!host.flushes(drive, 0, begin).is_empty(), "syncfs has not flushed drive {drive}");
    }
    let mut usual = Order::to(&world.state, &world.spec);
    usual.say = Some(Level::Durable);
    let order = order(usual, &world);
    let mut child = command(&order).stdout(Stdio::piped()).spawn().unwrap();
    let mut durable = None;
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        if line.starts_with("crash-child: durable") {
            durable = Some(host.now());
        }
    }
    let status = child.wait().unwrap();
    let end = host.now();
    let report = (status.signal() != Some(9)).then(|| {
        assert!(status.success(), "the child ended with {status}");
        order.report()
    });
    fast.unplug();
    slow.unplug();
    Past { host, fast, slow, world, begin, durable, end, report }
}

fn live(
    scenario: Scenario,
    verb: Verb,
    file_systems: (&str, &str),
    order: impl FnOnce(Order) -> Order,
) -> Past {
    let build = |fast: &Path, slow: &Path| World::at(scenario, verb, fast, slow);
    let past = live_with(file_systems, build, |_| {}, |usual, _| order(usual));
    assert!(past.durable.is_some(), "the job was durable at some time: {:?}", past.report);
    past
}

/// What does not hold after a power cut at `moment`, before anything is gone on with and after.
pub fn cut(past: &Past, moment: usize, luck: Option<Random>, go_on: bool) -> Vec<String> {
    let mut luck = luck;
    let image = |drive, luck: Option<&mut Random>| past.host.image(drive, moment, luck);
    let _fast = past.fast.power_up(&image(FAST, luck.as_mut()));
    let _slow = past.slow.power_up(&image(SLOW, luck.as_mut()));
    let mut wrong = past.world.check_between();
    if past.durable.is_some_and(|durable| moment >= durable) && !past.world.destination.exists() {
        wrong.push("it was said to be durable and is not there".to_owned());
    }
    if go_on && wrong.is_empty() {
        let report = run(&Order::to(&past.world.state, &past.world.spec)).told();
        let job = report.job();
        if job.state != State::Done || job.error.is_some() {
            wrong.push(format!("gone on with, it came to {job:?}"));
        }
        wrong.extend(past.world.check_end().into_iter().map(|line| format!("gone on with: {line}")));
    }
    wrong
}

fn survives(scenario: Scenario, verb: Verb, file_systems: (&str, &str), most: usize) {
    if let Some(why) = lacking() {
        println!("SKIP a power cut: {why}");
        return;
    }
    let past = live(scenario, verb, file_systems, |usual| usual);
    let name = format!("power {scenario:?} {verb:?} {file_systems:?}");
    let mut random = Random::of(&name);
    // The cruellest: right when it was said to be durable, with nothing kept that need not be.
    let mut moments: Vec<usize> = past.durable.into_iter().collect();
    let span = (past.end - past.begin) as u64;
    let flushes = past.host.flushes(SLOW, past.begin, past.end);
    for _ in 0..if sample::full() { 150 } else { most / 2 } {
        moments.push(past.begin + random.below(span) as usize);
        moments.push(flushes[random.below(flushes.len() as u64) as usize]);
    }
    for (n, moment) in moments.into_iter().enumerate() {
        // Every other time as chance has it.
        let luck = (n % 2 == 1).then(|| Random::of(&format!("{name} {moment}")));
        let done =
            format!("{name}: cut at {moment} of {}..{}, luck {}", past.begin, past.end, luck.is_some());
        past.world.must(&done, cut(&past, moment, luck, true));
    }
}

#[test]
fn a_move_of_everything_from_ext4_to_xfs_survives_a_power_cut() {
    survives(Scenario::Tree, Verb::Move, ("ext4", "xfs"), 6);
}

#[test]
fn a_checkpoint_from_xfs_to_ext4_and_latest_survive_a_power_cut() {
    survives(Scenario::Checkpoint, Verb::Move, ("xfs", "ext4"), 6);
}

#[test]
fn a_file_of_chunks_survives_a_power_cut() {
    survives(Scenario::Chunked, Verb::Move, ("ext4", "ext4"), 4);
}

#[test]
fn the_record_of_a_set_survives_a_power_cut() {
    survives(Scenario::Part, Verb::Copy, ("ext4", "xfs"), 6);
}

#[test]
fn a_mover_that_leaves_its_syncs_out_is_found_out_by_a_power_cut() {
    if let Some(why) = lacking() {
        println!("SKIP the control of power cuts: {why}");
        return;
    }
    let skip = |call| Strike { times: u64::MAX, ..Strike::nth_of(call, 0, Hit::Skip) };
    let all = [Call::Fsync, Call::Fdatasync, Call::Syncfs].map(skip);
    for (scenario, to) in [(Scenario::Checkpoint, "ext4"), (Scenario::Chunked, "xfs")] {
        let past = live(scenario, Verb::Move, ("ext4", to), |usual| usual.strike(all.iter().cloned()));
        let wrong = cut(&past, past.durable.unwrap(), None, false);
        assert!(!wrong.is_empty(), "{scenario:?}: nothing was lost without a sync, so the test cannot fail");
    }
}

/// A copy that another program has made of the whole source, of which all but one file is synced.
pub fn copied_by_another(world: &mut World) {
    let copy = |from: &Path, to: &Path| {
        let done = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
        assert!(done.success(), "cp -a {from:?} {to:?}");
    };
    world.spec.options.no_manifest = true;
    world.spec.options.latest = false;
    copy(&world.source, &world.destination);
    for path in [&world.source, &world.destination] {
        rustix::fs::syncfs(std::fs::File::open(path).unwrap()).unwrap();
    }
    crate::world::file(&world.source.join("late"), 30_000, 9);
    rustix::fs::syncfs(std::fs::File::open(&world.source).unwrap()).unwrap();
    copy(&world.source.join("late"), &world.destination.join("late"));
    for root in [&world.source, &world.destination] {
        crate::world::set_time(root, 1_700_000_000, 5);
    }
    world.before = crate::tree::snapshot(&world.source).unwrap().unwrap();
}

#[test]
fn a_destination_that_another_program_made_is_durable_before_its_source_goes() {
    if let Some(why) = lacking() {
        println!("SKIP an adopted destination and a power cut: {why}");
        return;
    }
    for distrust in [false, true] {
        let build = |fast: &Path, slow: &Path| World::at(Scenario::Checkpoint, Verb::Move, fast, slow);
        let past = live_with(("ext4", "xfs"), build, copied_by_another, |mut order, _| {
            order.distrust = distrust;
            order
        });
        let durable = past.durable.unwrap_or_else(|| panic!("not adopted: {:?}", past.report));
        let done = format!("adopted, distrust {distrust}: cut when it was said to be durable");
        past.world.must(&done, cut(&past, durable, None, true));
    }
}
