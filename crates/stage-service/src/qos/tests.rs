//! The scheduler in virtual time, and the threads' side of it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use proptest::prelude::*;

use super::bucket::Limits;
use super::clock::{Now, VirtualClock};
use super::governor::Governor;
use super::sched::{Job, Scheduler, TierSchedule};
use super::*;
use stage::digest::CHUNK_BYTES;

const MB: u64 = 1_000_000;
const WALL: u64 = 1_800_000_000;

/// A thread of a job.
#[derive(Clone, Copy)]
enum Thread {
    Waits(u64),
    BusyUntil(Duration),
}

struct Mover {
    key: u64,
    bytes: u64,
    ios: u64,
    moved: u64,
    /// Bytes a second that one thread could move.
    speed: f64,
    threads: Vec<Thread>,
    progress: Arc<Progress>,
}

/// Jobs that move as fast as they are let, in virtual time.
struct World {
    scheduler: Scheduler,
    now: Now,
    movers: Vec<Mover>,
}

/// What a job of a test wants.
struct Wants {
    options: Options,
    bytes: u64,
    ios: u64,
    threads: usize,
    total: u64,
    tier: Option<u64>,
}

impl Default for Wants {
    fn default() -> Self {
        Self {
            options: Options::default(),
            bytes: CHUNK_BYTES,
            ios: 8,
            threads: 1,
            total: u64::MAX,
            tier: None,
        }
    }
}

impl World {
    fn new(bwlimit: Option<u64>, iops_limit: Option<u64>) -> Self {
        let mover = Limits::new(bwlimit, iops_limit, Duration::ZERO);
        let scheduler = Scheduler::new(mover);
        let now = Now { steady: Duration::ZERO, wall: Duration::from_secs(WALL) };
        Self { scheduler, now, movers: Vec::new() }
    }

    fn add(&mut self, wants: Wants) -> usize {
        let key = self.movers.len() as u64 + 1;
        let progress = Arc::new(Progress::default());
        progress.bytes_total.store(wants.total, Relaxed);
        let options = &wants.options;
        let limits = Limits::new(options.bwlimit, options.iops_limit, self.now.steady);
        let job =
            Job::new(options.priority, limits, wants.tier, options.deadline, Arc::clone(&progress), self.now);
        self.scheduler.jobs.insert(key, job);
        self.movers.push(Mover {
            key,
            bytes: wants.bytes,
            ios: wants.ios,
            moved: 0,
            speed: 20e9,
            threads: vec![Thread::BusyUntil(self.now.steady); wants.threads],
            progress,
        });
        self.movers.len() - 1
    }

    fn moved(&self, at: usize) -> u64 {
        self.movers[at].moved
    }

    fn jump(&mut self, seconds: i64) {
        let jump = Duration::from_secs(seconds.unsigned_abs());
        self.now.wall = if seconds < 0 { self.now.wall - jump } else { self.now.wall + jump };
    }

    /// Goes on for so long, or until all is moved.
    fn run(&mut self, time: Duration) {
        let end = self.now.steady + time;
        while self.now.steady < end {
            let idle = self.step();
            let next = (self.now.steady + idle).min(end);
            let passed = next.saturating_sub(self.now.steady);
            self.now.steady += passed;
            self.now.wall += passed;
            if self.movers.iter().all(|mover| mover.threads.is_empty()) {
                return;
            }
        }
    }

    /// Lets all happen that happens now; the time until something else may.
    fn step(&mut self) -> Duration {
        loop {
            let mut next = Duration::from_secs(1);
            for mover in &mut self.movers {
                let progress = &mover.progress;
                mover.threads.retain_mut(|thread| {
                    match *thread {
                        Thread::BusyUntil(until) if until <= self.now.steady => {
                            if mover.moved >= progress.bytes_total.load(Relaxed) {
                                return false;
                            }
                            *thread = Thread::Waits(self.scheduler.ask(mover.key, mover.bytes, mover.ios));
                        }
                        Thread::BusyUntil(until) => next = next.min(until - self.now.steady),
                        Thread::Waits(_) => {}
                    }
                    true
                });
            }
            let passed = self.scheduler.pass(self.now);
            if passed.granted == 0 {
                return next.min(passed.retry_in).max(Duration::from_nanos(100));
            }
            for mover in &mut self.movers {
                for thread in &mut mover.threads {
                    if let Thread::Waits(ticket) = *thread
                        && self.scheduler.redeem(ticket)
                    {
                        let busy = Duration::from_secs_f64(mover.bytes as f64 / mover.speed);
                        *thread = Thread::BusyUntil(self.now.steady + busy);
                        mover.moved += mover.bytes;
                        mover.progress.bytes_written.fetch_add(mover.bytes, Relaxed);
                    }
                }
            }
        }
    }
}

fn about(found: u64, expected: u64, share: f64) {
    let (found, expected) = (found as f64, expected as f64);
    assert!((found - expected).abs() <= expected * share, "{found} is not {expected} within {share}");
}

#[test]
fn a_job_keeps_its_own_limit_and_all_jobs_together_keep_the_movers() {
    let mut world = World::new(Some(300 * MB), None);
    let slow = world
        .add(Wants { options: Options { bwlimit: Some(50 * MB), ..Options::default() }, ..Wants::default() });
    let free = world.add(Wants { threads: 4, ..Wants::default() });
    world.run(Duration::from_secs(100));
    about(world.moved(slow), 5_000 * MB, 0.01);
    about(world.moved(slow) + world.moved(free), 30_000 * MB, 0.01);
}

#[test]
fn requests_are_limited_as_bytes_are() {
    let mut world = World::new(None, Some(1000));
    let own = world.add(Wants {
        options: Options { iops_limit: Some(100), ..Options::default() },
        bytes: 4096,
        ios: 1,
        ..Wants::default()
    });
    let other = world.add(Wants { bytes: 4096, ios: 3, ..Wants::default() });
    world.run(Duration::from_secs(100));
    about(world.moved(own) / 4096, 100 * 100, 0.01);
    about(world.moved(own) / 4096 + world.moved(other) / 4096 * 3, 100 * 1000, 0.01);
}

#[test]
fn requests_of_one_priority_pass_in_the_order_in_which_they_came() {
    let mut world = World::new(Some(200 * MB), None);
    let wide = world.add(Wants { threads: 3, ..Wants::default() });
    let small = world.add(Wants { bytes: 1 << 20, ios: 1, ..Wants::default() });
    world.run(Duration::from_secs(50));
    // One request of each thread in turn, whatever its size.
    about(world.moved(wide), world.moved(small) * 8 * 3, 0.03);
}

#[test]
fn a_higher_priority_has_all_of_a_shared_limit_that_it_can_use_and_the_lower_one_the_rest() {
    for (own, of_high) in [(None, 200 * MB), (Some(150 * MB), 150 * MB)] {
        let mut world = World::new(Some(200 * MB), None);
        let low = world.add(Wants { threads: 3, ..Wants::default() });
        let high = world.add(Wants {
            options: Options { priority: 5, bwlimit: own, ..Options::default() },
            threads: 3,
            ..Wants::default()
        });
        world.run(Duration::from_secs(200));
        about(world.moved(high), of_high * 200, 0.01);
        about(world.moved(low) + world.moved(high), 200 * MB * 200, 0.01);
        // The lower one has the whole limit once the higher one has ended.
        let before = world.moved(low);
        world.movers[high].progress.bytes_total.store(0, Relaxed);
        world.run(Duration::from_secs(100));
        about(world.moved(low) - before, 200 * MB * 100, 0.01);
    }
}

#[test]
fn a_job_that_waits_for_itself_keeps_nobody_else() {
    let mut world = World::new(Some(500 * MB), None);
    let first = world.add(Wants {
        options: Options { bwlimit: Some(MB), priority: 9, ..Options::default() },
        ..Wants::default()
    });
    let other = world.add(Wants { threads: 2, ..Wants::default() });
    world.run(Duration::from_secs(100));
    about(world.moved(first), 100 * MB, 0.2);
    about(world.moved(other) + world.moved(first), 50_000 * MB, 0.01);
}

#[test]
fn a_deadline_is_met_over_every_limit_with_the_rate_that_it_takes() {
    let mut world = World::new(Some(200 * MB), None);
    let urgent = world.add(Wants {
        options: Options {
            bwlimit: Some(10 * MB),
            iops_limit: Some(10),
            deadline: Some(WALL + 100),
            ..Options::default()
        },
        total: 10_000 * MB,
        ..Wants::default()
    });
    let other = world.add(Wants { threads: 4, ..Wants::default() });
    world.run(Duration::from_secs(50));
    // 10 GB in 95 s, and a tenth faster: 116 MB/s at first.
    let halfway = world.moved(urgent);
    assert!((5_000 * MB..6_300 * MB).contains(&halfway), "{halfway}");
    // The other one makes room at the limit that both share.
    about(halfway + world.moved(other), 200 * MB * 50, 0.02);
    let words = words::held_back_by(&mut world.scheduler, 1, world.now).unwrap();
    assert!(words.contains("the deadline is in 50 s: raised to 1"), "{words}");
    assert!(words.contains("over "), "{words}");
    world.run(Duration::from_secs(46));
    assert!(world.moved(urgent) >= 10_000 * MB, "{}", world.moved(urgent));
}

#[test]
fn a_deadline_that_the_limit_meets_raises_nothing() {
    let mut world = World::new(None, None);
    let job = world.add(Wants {
        options: Options { bwlimit: Some(100 * MB), deadline: Some(WALL + 1000), ..Options::default() },
        total: 20_000 * MB,
        ..Wants::default()
    });
    world.run(Duration::from_secs(100));
    about(world.moved(job), 10_000 * MB, 0.01);
    let words = words::held_back_by(&mut world.scheduler, 1, world.now).unwrap();
    assert_eq!(words, "bwlimit 100 MB/s");
}

#[test]
fn a_clock_set_forward_makes_it_late_and_one_set_back_gives_it_time() {
    let mut world = World::new(None, None);
    let wants = || Wants {
        options: Options { bwlimit: Some(MB), deadline: Some(WALL + 10_000), ..Options::default() },
        total: 100_000 * MB,
        ..Wants::default()
    };
    let job = world.add(wants());
    world.run(Duration::from_secs(100));
    let polite = world.moved(job);
    about(polite, 100_000 * MB / 9_500 * 110, 0.1);
    world.jump(9_000);
    world.run(Duration::from_secs(1));
    let words = words::held_back_by(&mut world.scheduler, 1, world.now).unwrap();
    assert!(words.contains("14 min 59 s"), "{words}");
    let note = words::of_the_clock(&world.scheduler, 1).unwrap();
    assert!(note.starts_with("the clock was set forward by 2 h 30 min"), "{note}");
    world.jump(-9_000_000);
    world.run(Duration::from_secs(20));
    let before = world.moved(job);
    world.run(Duration::from_secs(100));
    about(world.moved(job) - before, 100 * MB, 0.2);
    assert!(words::of_the_clock(&world.scheduler, 1).unwrap().contains("set back by 2500 h"));
}

#[test]
fn a_governed_job_rests_first_and_is_then_held_to_the_limit_of_its_tier() {
    let mut world = World::new(None, None);
    let governor = Governor::new(GovernorConfig::default(), 1, Duration::ZERO);
    world.scheduler.tiers.insert(7, TierSchedule::new(governor));
    let governed = world.add(Wants { tier: Some(7), ..Wants::default() });
    let free = world.add(Wants { bytes: 4096, ios: 1, total: 4096 * 100, ..Wants::default() });
    world.run(Duration::from_millis(500));
    assert_eq!(world.moved(governed), 0);
    assert_eq!(world.moved(free), 4096 * 100);
    let words = words::held_back_by(&mut world.scheduler, 1, world.now).unwrap();
    assert!(words.contains("left alone for a moment"), "{words}");
    // No probe ever comes back: the drain does not hang with them.
    world.run(Duration::from_secs(2));
    assert!(world.moved(governed) > 0);
    // It learns the latency at rest, then sees far more.
    let tier = world.scheduler.tiers.get_mut(&7).unwrap();
    tier.governor.begin(world.now.steady);
    world.now.steady += Duration::from_millis(200);
    for _ in 0..30 {
        tier.governor.observe(100_000, tier.moved, false, world.now.steady);
    }
    for _ in 0..200 {
        world.now.steady += Duration::from_millis(60);
        tier.governor.observe(350_000, tier.moved, true, world.now.steady);
    }
    let before = world.moved(governed);
    world.run(Duration::from_secs(10));
    about(world.moved(governed) - before, (16 << 20) * 10, 0.1);
    let words = words::held_back_by(&mut world.scheduler, 1, world.now).unwrap();
    assert_eq!(words, "the fast tier answers 3.5x slower than at rest: held to 16.8 MB/s");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_mix_of_jobs_gets_more_than_each_limit_allows(
        mover in 10u64..2_000,
        jobs in prop::collection::vec(
            (prop::option::of(1u64..500), -2i32..3, 19u32..26, 1usize..4), 1..6),
        seconds in 1u64..5,
    ) {
        let mut world = World::new(Some(mover * MB), None);
        for (limit, priority, shift, threads) in &jobs {
            world.add(Wants {
                options: Options { bwlimit: limit.map(|l| l * MB), priority: *priority, ..Options::default() },
                bytes: 1 << *shift,
                ios: 1,
                threads: *threads,
                ..Wants::default()
            });
        }
        world.run(Duration::from_secs(seconds));
        let allowed = |rate: u64, largest: u64| {
            rate * seconds + (rate / 10).max(largest) + 4096
        };
        let largest = jobs.iter().map(|job| 1 << job.2).max().unwrap();
        let total: u64 = world.movers.iter().map(|mover| mover.moved).sum();
        prop_assert!(total <= allowed(mover * MB, largest), "{total}");
        for (at, (limit, _, shift, _)) in jobs.iter().enumerate() {
            if let Some(limit) = limit {
                prop_assert!(world.moved(at) <= allowed(limit * MB, 1 << *shift));
            }
        }
        // And the limit is used: either it is, or every job is at its own.
        let own: u64 = jobs.iter().map(|job| job.0.map_or(u64::MAX / 16, |limit| limit * MB)).sum();
        let possible = mover.saturating_mul(MB).min(own) * seconds;
        prop_assert!(total + largest >= possible / 100 * 97, "{total} of {possible}");
    }

    #[test]
    fn a_deadline_that_can_be_met_is_met(
        base in 1u64..200,
        total in 100u64..20_000,
        seconds in 20u64..500,
        jump in prop::option::of((0u64..100, -200i64..200)),
    ) {
        let mut world = World::new(None, None);
        let job = world.add(Wants {
            options: Options { bwlimit: Some(base * MB), deadline: Some(WALL + seconds), ..Options::default() },
            total: total * MB,
            ..Wants::default()
        });
        if let Some((after, by)) = jump {
            world.run(Duration::from_secs(seconds * after / 200));
            world.jump(by);
        }
        let left = Duration::from_secs(WALL + seconds).saturating_sub(world.now.wall);
        let before = world.now.steady;
        world.run(left + Duration::from_secs(5));
        // What is left when the clock is set past the deadline goes at full speed, here 20 GB/s.
        let took = world.now.steady - before;
        prop_assert!(world.moved(job) >= total * MB);
        prop_assert!(took <= left + Duration::from_secs(2), "{took:?} of {left:?}");
    }
}

#[test]
fn threads_wait_in_the_time_of_their_clock() {
    let clock = VirtualClock::at(WALL);
    let qos = Qos::with_clock(QosConfig { bwlimit: Some(100 * MB), ..QosConfig::default() }, clock.clone());
    let pace = JobPace::new(&Options::default(), &qos, &Arc::default(), None);
    for _ in 0..1000 {
        pace.admit(10 * MB, 10, &Stop::new());
    }
    let took = clock.now().steady.as_secs_f64();
    assert!((99.0..100.5).contains(&took), "{took}");
    assert_eq!(pace.held_back_by().as_deref(), Some("the mover's bwlimit 100 MB/s"));
    clock.pass(Duration::from_secs(2));
    assert_eq!(pace.held_back_by(), None);
    assert!(pace.notes().is_empty());
}

#[test]
fn who_is_asked_to_stop_does_not_wait_and_takes_nothing() {
    let clock = VirtualClock::at(WALL);
    let qos = Qos::with_clock(QosConfig { bwlimit: Some(1), ..QosConfig::default() }, clock.clone());
    let pace = JobPace::new(&Options::default(), &qos, &Arc::default(), None);
    let stop = Stop::new();
    stop.ask();
    for _ in 0..100 {
        pace.admit(CHUNK_BYTES, 1, &stop);
    }
    assert_eq!(qos.shared.lock().scheduler.waiting(), 0);
    assert!(clock.now().steady < Duration::from_secs(10));
}

#[test]
fn a_thread_that_would_wait_for_days_is_woken_by_a_stop() {
    let qos = Qos::new(QosConfig { bwlimit: Some(1), ..QosConfig::default() });
    let pace = JobPace::new(&Options::default(), &qos, &Arc::default(), None);
    let stop = Stop::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pace.admit(CHUNK_BYTES, 1, &stop));
        while qos.shared.lock().scheduler.waiting() != 1 {
            std::thread::yield_now();
        }
        stop.ask();
        waiting.join().unwrap();
    });
}

#[test]
fn what_is_brought_back_is_governed_by_the_tier_that_it_goes_to() {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in ["fast", "slow"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    std::fs::write(at("slow/a"), [7; 5000]).unwrap();
    let config = crate::mover::MoverConfig::new(at("state"));
    let mover = crate::mover::Mover::open(&config).unwrap();
    let place = |name: &str| stage::Place::of_path(&at(name)).unwrap();
    let spec = stage::JobSpec {
        verb: stage::Verb::Copy,
        source: place("slow/a"),
        destination: place("fast/a"),
        options: Options { background: true, inward: true, ..Options::default() },
    };
    let id = mover.submit(spec).unwrap();
    let job = mover.wait(id, stage::Level::Durable, None).unwrap();
    assert_eq!(job.state, stage::State::Done, "{job:?}");
    let qos = config.qos.shared.lock();
    assert_eq!(
        qos.probing.values().map(|probing| probing.directory.clone()).collect::<Vec<_>>(),
        [at("fast")]
    );
}
