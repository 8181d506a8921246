//! Pools on real directories, with a file system whose size and processes whose death the test decides.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use proptest::prelude::*;
use tempfile::TempDir;

use super::lease::{LEASE, Uptime};
use super::*;
use crate::qos::Now;
use stage::pace::Stop;

const BLOCK: u64 = 4096;
const ALICE: u32 = 1000;
const BOB: u32 = 1001;

/// Time that passes where somebody waits, on a machine whose clock is set and that is started anew.
#[derive(Debug, Default)]
struct TestClock {
    steady: Mutex<Duration>,
    set: Mutex<i64>,
    boots: Mutex<u32>,
}

impl TestClock {
    fn pass(&self, time: Duration) {
        *self.steady.lock().unwrap() += time;
    }

    fn set(&self, seconds: i64) {
        *self.set.lock().unwrap() += seconds;
    }

    fn reboot(&self) {
        *self.boots.lock().unwrap() += 1;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Now {
        let steady = *self.steady.lock().unwrap();
        let wall = Duration::from_secs(1_800_000_000_u64.saturating_add_signed(*self.set.lock().unwrap()));
        Now { steady, wall: wall + steady }
    }

    fn patience(&self, most: Duration) -> Duration {
        self.pass(most);
        Duration::ZERO
    }
}

#[derive(Debug)]
struct TestHost {
    size: u64,
    root: PathBuf,
    dead: Arc<Mutex<BTreeSet<u32>>>,
    clock: Arc<TestClock>,
}

impl Host for TestHost {
    fn quota_used(&self, _: &Path) -> std::io::Result<Option<u64>> {
        Ok(None)
    }

    fn free(&self, _: BorrowedFd<'_>) -> std::io::Result<u64> {
        let root = calls::open_directory(&self.root)?;
        Ok(self.size.saturating_sub(usage::walk(root.as_fd())?.bytes))
    }

    fn lives(&self, process: &Process) -> bool {
        !self.dead.lock().unwrap().contains(&process.pid)
    }

    fn uptime(&self) -> Option<Uptime> {
        let boot = format!("test {}", self.clock.boots.lock().unwrap());
        Some(Uptime { boot, seconds: self.clock.steady.lock().unwrap().as_secs() })
    }
}

struct Fixture {
    directory: TempDir,
    clock: Arc<TestClock>,
    dead: Arc<Mutex<BTreeSet<u32>>>,
    pools: Pools,
}

/// Pool `a` with this many blocks and pool `b` with as many, on a file system of this many.
fn fixture(quota: u64, share: u64, size: u64) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let text = ["a", "b"].map(|name| {
        let path = directory.path().join("tier").join(name);
        fs::create_dir_all(&path).unwrap();
        format!(
            "[pool.{name}]\npath = {path:?}\nquota = {}\nreserve_per_user = {}\nhigh = 0.8\nlow = 0.5\n",
            quota * BLOCK,
            share * BLOCK
        )
    });
    fs::write(directory.path().join("pools.toml"), text.concat()).unwrap();
    let (clock, dead) = (Arc::<TestClock>::default(), Arc::default());
    let pools = open(&directory, &clock, &dead, size);
    Fixture { directory, clock, dead, pools }
}

fn open(directory: &TempDir, clock: &Arc<TestClock>, dead: &Arc<Mutex<BTreeSet<u32>>>, size: u64) -> Pools {
    let root = directory.path().join("tier");
    let host = TestHost { size: size * BLOCK, root, dead: Arc::clone(dead), clock: Arc::clone(clock) };
    let ledger = directory.path().join("ledger");
    Pools::open_on(&directory.path().join("pools.toml"), &ledger, clock.clone(), Box::new(host)).unwrap()
}

fn request(pool: &str, owner: u32, label: &str, blocks: u64) -> Request {
    Request { pool: pool.into(), owner, label: label.into(), bytes: blocks * BLOCK, process: None }
}

fn holder(pid: u32) -> Option<Process> {
    Some(Process { pid, started: 1, boot: "test".into() })
}

fn write(reservation: &Reservation, name: &str, blocks: u64) {
    fs::write(reservation.directory.0.join(name), vec![7; (blocks * BLOCK) as usize]).unwrap();
}

impl Fixture {
    fn reserve(&self, request: &Request) -> Result<Reservation, StageError> {
        self.pools.reserve(request, None, &Stop::new())
    }

    fn refused(&self, request: &Request) -> String {
        let error = self.reserve(request).unwrap_err();
        assert_eq!(error.class(), stage::ErrorClass::Refused, "{error}");
        assert!(error.hint().is_some());
        error.to_string()
    }
}

#[test]
fn what_does_not_fit_is_refused_before_its_first_byte() {
    let f = fixture(100, 60, 1000);
    let first = f.reserve(&request("a", ALICE, "ckpt-1", 50)).unwrap();
    assert_eq!(first.directory.0, f.directory.path().join("tier/a/1000/ckpt-1"));
    assert_eq!(fs::read_dir(&first.directory.0).unwrap().count(), 0);
    assert!(
        f.refused(&request("a", ALICE, "ckpt-2", 20))
            .contains("user 1000 has 0 B used and 200 KiB reserved of 240 KiB")
    );
    let message = f.refused(&request("a", BOB, "ckpt-2", 60));
    assert!(
        message.contains("no room for 240 KiB in pool a: 0 B used and 200 KiB reserved of 400 KiB"),
        "{message}"
    );
    assert!(!f.directory.path().join("tier/a/1001").exists());
    f.reserve(&request("a", BOB, "ckpt-2", 50)).unwrap();
    assert!(f.refused(&request("a", BOB, "x", 61)).contains("will never fit"));
    assert!(f.refused(&request("a", BOB, "ckpt-2", 1)).contains("there already"));
}

#[test]
fn what_is_written_counts_once_while_it_is_reserved_and_once_after() {
    let f = fixture(100, 100, 1000);
    let reservation = f.reserve(&request("a", ALICE, "s", 50)).unwrap();
    write(&reservation, "x", 30);
    f.clock.pass(REMEMBERED);
    let status = f.pools.status("a").unwrap();
    assert_eq!((status.used, status.reserved), (30 * BLOCK, 20 * BLOCK));
    assert_eq!(status.reservations[0].used, 30 * BLOCK);
    // Written after the walk that is remembered, and released: the walk is forgotten with it.
    write(&reservation, "y", 20);
    f.pools.release(reservation.id, ALICE).unwrap();
    let status = f.pools.status("a").unwrap();
    assert_eq!((status.used, status.reserved), (50 * BLOCK, 0));
    assert_eq!(status.sets[0].bytes, 50 * BLOCK);
    f.refused(&request("a", BOB, "t", 51));
    f.reserve(&request("a", BOB, "t", 50)).unwrap();
    f.pools.release(reservation.id, ALICE).unwrap();
}

#[test]
fn pools_of_one_file_system_do_not_promise_the_same_room() {
    let f = fixture(100, 100, 120);
    f.reserve(&request("a", ALICE, "s", 80)).unwrap();
    let message = f.refused(&request("b", BOB, "t", 60));
    assert!(message.contains("480 KiB free, of which 320 KiB are reserved"), "{message}");
    f.reserve(&request("b", BOB, "t", 40)).unwrap();
}

#[test]
fn the_room_of_a_process_that_died_comes_back_and_what_it_wrote_stays() {
    let f = fixture(100, 100, 1000);
    let wanted = Request { process: holder(7), ..request("a", ALICE, "s", 80) };
    let reservation = f.reserve(&wanted).unwrap();
    assert_eq!(reservation.expires, None);
    write(&reservation, "x", 10);
    f.clock.pass(LEASE * 3);
    f.refused(&request("a", BOB, "t", 90));
    f.dead.lock().unwrap().insert(7);
    f.refused(&request("a", BOB, "t", 91));
    f.reserve(&request("a", BOB, "t", 90)).unwrap();
}

#[test]
fn a_reservation_without_a_process_lasts_a_day_unless_it_is_renewed() {
    let f = fixture(100, 100, 1000);
    let reservation = f.reserve(&request("a", ALICE, "s", 80)).unwrap();
    f.clock.pass(LEASE / 2);
    assert!(f.pools.renew(reservation.id, ALICE).unwrap());
    assert!(f.pools.renew(reservation.id, BOB).is_err());
    f.clock.pass(LEASE / 2 + Duration::from_secs(1));
    f.refused(&request("a", BOB, "t", 90));
    f.clock.pass(LEASE / 2);
    f.reserve(&request("a", BOB, "t", 90)).unwrap();
    assert!(!f.pools.renew(reservation.id, ALICE).unwrap());
}

#[test]
fn a_clock_that_is_set_neither_ends_a_reservation_nor_prolongs_it() {
    let f = fixture(100, 100, 1000);
    let reservation = f.reserve(&request("a", ALICE, "s", 80)).unwrap();
    let shown = || f.pools.status("a").unwrap().reservations[0].expires.unwrap();
    for jump in [25 * 3600, -48 * 3600, 7 * 3600] {
        f.clock.set(jump);
        f.clock.pass(LEASE / 4);
        let left = shown() - f.clock.now().wall.as_secs();
        assert!(left > 0 && left < LEASE.as_secs(), "{left}");
        let other = open(&f.directory, &f.clock, &f.dead, 1000);
        assert!(other.reserve(&request("a", BOB, "t", 30), None, &Stop::new()).is_err());
    }
    f.clock.set(-1_000_000);
    f.clock.pass(LEASE / 4);
    f.reserve(&request("a", BOB, "t", 100)).unwrap();
    assert!(!f.pools.renew(reservation.id, ALICE).unwrap());
}

#[test]
fn after_a_restart_with_a_clock_that_went_back_a_reservation_lasts_a_day_at_most() {
    let f = fixture(100, 100, 1000);
    f.reserve(&request("a", ALICE, "s", 80)).unwrap();
    f.clock.set(-1_000_000);
    f.clock.reboot();
    f.refused(&request("a", BOB, "t", 30));
    f.clock.pass(LEASE - Duration::from_secs(60));
    f.refused(&request("a", BOB, "t", 30));
    f.clock.pass(Duration::from_secs(60));
    f.reserve(&request("a", BOB, "t", 30)).unwrap();
}

#[test]
fn another_process_sees_what_is_reserved_and_so_does_the_next_start() {
    let f = fixture(100, 100, 1000);
    let other = open(&f.directory, &f.clock, &f.dead, 1000);
    let reservation = f.reserve(&request("a", ALICE, "s", 80)).unwrap();
    assert!(other.reserve(&request("a", BOB, "t", 30), None, &Stop::new()).is_err());
    drop(other);
    let other = open(&f.directory, &f.clock, &f.dead, 1000);
    assert_eq!(other.status("a").unwrap().reservations[0].id, reservation.id);
    assert!(other.release(reservation.id, BOB).is_err());
    other.release(reservation.id, ALICE).unwrap();
    f.reserve(&request("a", BOB, "t", 100)).unwrap();
}

#[test]
fn who_waits_is_refused_when_the_time_is_up_or_asked_to_stop() {
    let f = fixture(100, 100, 1000);
    f.reserve(&request("a", ALICE, "s", 80)).unwrap();
    let begun = f.clock.now().steady;
    let hour = Duration::from_secs(3600);
    let error = f.pools.reserve(&request("a", BOB, "t", 30), Some(hour), &Stop::new()).unwrap_err();
    assert!(error.to_string().ends_with("(it was waited for)"), "{error}");
    assert_eq!(f.clock.now().steady - begun, hour);
    let stop = Stop::new();
    stop.ask();
    let error = f.pools.reserve(&request("a", BOB, "t", 30), Some(hour), &stop).unwrap_err();
    assert!(matches!(error, StageError::Stopped { .. }), "{error}");
}

#[test]
fn who_waits_is_woken_by_a_release_in_the_order_in_which_they_came() {
    let f = fixture(100, 100, 1000);
    let path = |file: &str| f.directory.path().join(file);
    let pools = Pools::open(&path("pools.toml"), &path("ledger")).unwrap();
    let hold = pools.reserve(&request("a", ALICE, "s", 100), None, &Stop::new()).unwrap();
    let waits = |n: usize| {
        while pools.lock().queues.get("a").is_none_or(|queue| queue.len() != n) {
            std::thread::yield_now();
        }
    };
    let (hour, stop) = (Some(Duration::from_secs(3600)), Stop::new());
    std::thread::scope(|scope| {
        let large = scope.spawn(|| pools.reserve(&request("a", ALICE, "large", 90), hour, &stop));
        waits(1);
        let small = scope.spawn(|| pools.reserve(&request("a", BOB, "small", 20), hour, &stop));
        waits(2);
        let hasty = pools.reserve(&request("a", BOB, "hasty", 1), None, &stop).unwrap_err();
        assert!(hasty.to_string().contains("2 other requests wait"), "{hasty}");
        pools.release(hold.id, ALICE).unwrap();
        let large = large.join().unwrap().unwrap();
        assert!(!small.is_finished());
        pools.release(large.id, ALICE).unwrap();
        small.join().unwrap().unwrap();
    });
}

#[test]
fn the_oldest_durable_sets_go_down_to_the_low_watermark() {
    let f = fixture(100, 100, 1000);
    for number in 0..9 {
        let reservation = f.reserve(&request("a", ALICE, &format!("ckpt-{number}"), 10)).unwrap();
        write(&reservation, "data", 10);
        let time =
            fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1000 + number));
        fs::File::open(&reservation.directory.0).unwrap().set_times(time).unwrap();
        if number != 1 {
            f.pools.release(reservation.id, ALICE).unwrap();
        }
    }
    let status = f.pools.status("a").unwrap();
    assert!(status.over);
    assert_eq!(status.sets[0].path.0.file_name().unwrap(), "ckpt-0");
    let but_the_third =
        |set: &Path| Ok(set.ends_with("ckpt-2").then(|| "its slow copy is not durable yet".to_owned()));
    let names = |sets: &[SetStatus]| -> Vec<String> {
        sets.iter().map(|set| set.path.0.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    };
    // 90 of 100 are used; 50 is the low watermark. ckpt-1 is being written, ckpt-2 is not durable.
    let eviction = f.pools.evict_candidates("a", 0, &but_the_third).unwrap();
    assert_eq!(names(&eviction.go), ["ckpt-0", "ckpt-3", "ckpt-4", "ckpt-5"]);
    assert_eq!((eviction.wanted, eviction.found), (40 * BLOCK, 40 * BLOCK));
    assert!(eviction.stay.is_empty());
    let nothing = |_: &Path| Ok(Some("the slow tier is not there".to_owned()));
    let eviction = f.pools.evict_candidates("a", 0, &nothing).unwrap();
    assert!(eviction.go.is_empty());
    assert_eq!(eviction.stay.len(), 9);
    assert!(eviction.stay[1].1.contains("being written"));
    assert_eq!(eviction.stay[2].1, "the slow tier is not there");
    // Below the high watermark nothing goes, unless something larger is to fit.
    for set in ["ckpt-7", "ckpt-8"] {
        fs::remove_dir_all(f.directory.path().join("tier/a/1000").join(set)).unwrap();
    }
    f.pools.room_was_made();
    let everything = |_: &Path| Ok(None);
    assert_eq!(f.pools.evict_candidates("a", 0, &everything).unwrap(), Eviction::default());
    let eviction = f.pools.evict_candidates("a", 70 * BLOCK, &everything).unwrap();
    assert_eq!((eviction.wanted, names(&eviction.go).len()), (40 * BLOCK, 4));
}

#[test]
fn a_name_that_leads_elsewhere_is_no_name() {
    let f = fixture(100, 100, 1000);
    for label in ["", ".", "..", "a/b", "../x", ".hidden", "a\nb", &"x".repeat(201)] {
        let error = f.reserve(&request("a", ALICE, label, 1)).unwrap_err();
        assert_eq!(error.class(), stage::ErrorClass::Invalid, "{label}");
    }
    assert!(f.reserve(&request("c", ALICE, "x", 1)).unwrap_err().hint().unwrap().contains("a, b"));
    // A link in the user's place is not followed, and the reservation is given back.
    let outside = f.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, f.directory.path().join("tier/a/1000")).unwrap();
    assert!(f.reserve(&request("a", ALICE, "x", 1)).is_err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert!(f.pools.status("a").unwrap().reservations.is_empty());
}

#[test]
fn links_out_of_a_pool_and_second_names_do_not_count() {
    let f = fixture(100, 100, 1000);
    let reservation = f.reserve(&request("a", ALICE, "s", 50)).unwrap();
    let outside = f.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("big"), vec![1; 1 << 20]).unwrap();
    write(&reservation, "x", 10);
    let inside = &reservation.directory.0;
    fs::hard_link(inside.join("x"), inside.join("y")).unwrap();
    std::os::unix::fs::symlink(&outside, inside.join("z")).unwrap();
    f.clock.pass(REMEMBERED);
    let used = f.pools.status("a").unwrap().used;
    // A file system may give a symbolic link a block.
    assert!((10 * BLOCK..=11 * BLOCK).contains(&used), "{used}");
}

#[test]
fn pools_in_each_other_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir_all(path("a/b")).unwrap();
    let text = format!(
        "[pool.a]\npath = {:?}\nquota = 1\n[pool.b]\npath = {:?}\nquota = 1\n",
        path("a"),
        path("a/b")
    );
    fs::write(path("pools.toml"), text).unwrap();
    let error = Pools::open(&path("pools.toml"), &path("ledger")).unwrap_err();
    assert!(error.to_string().contains("pool.b"), "{error}");
}

#[test]
fn a_process_is_told_from_another_that_has_its_number() {
    let own = Process::own().unwrap();
    assert!(Machine.lives(&own));
    assert!(!Machine.lives(&Process { started: own.started + 1, ..own.clone() }));
    assert!(!Machine.lives(&Process { boot: "another".into(), ..own.clone() }));
    assert!(!Machine.lives(&Process { pid: u32::MAX, ..own }));
}

#[derive(Debug, Clone)]
enum Act {
    Reserve { pool: bool, owner: u32, blocks: u64, process: bool },
    Write { which: usize, blocks: u64 },
    Release { which: usize },
    Crash { which: usize },
    Evict { pool: bool, more: u64 },
    Pass { minutes: u64 },
    Restart,
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (any::<bool>(), ALICE..=BOB, 1u64..40, any::<bool>())
            .prop_map(|(pool, owner, blocks, process)| Act::Reserve { pool, owner, blocks, process }),
        4 => (any::<usize>(), 1u64..20).prop_map(|(which, blocks)| Act::Write { which, blocks }),
        2 => any::<usize>().prop_map(|which| Act::Release { which }),
        1 => any::<usize>().prop_map(|which| Act::Crash { which }),
        2 => (any::<bool>(), 0u64..40).prop_map(|(pool, more)| Act::Evict { pool, more }),
        1 => (0u64..1000).prop_map(|minutes| Act::Pass { minutes }),
        1 => Just(Act::Restart),
    ]
}

/// What the test knows of a reservation.
struct Held {
    reservation: Reservation,
    owner: u32,
    pid: Option<u32>,
    left: u64,
    files: u32,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_happens_quota_share_and_free_space_are_kept_and_only_what_is_durable_goes(
        acts in prop::collection::vec(acts(), 1..40),
        quota in 20u64..100,
        size in 20u64..150,
        durable_each in 1u64..4,
    ) {
        let share = quota / 2 + 1;
        let mut f = fixture(quota, share, size);
        let mut held: Vec<Held> = Vec::new();
        let mut next = 0u32;
        let name = |pool: bool| if pool { "a" } else { "b" };
        // By its number, a set's slow copy is durable or not.
        let durable = |set: &Path| {
            let number: u64 = set.file_name().unwrap().to_str().unwrap()[1..].parse().unwrap();
            number.is_multiple_of(durable_each)
        };
        for act in acts {
            match act {
                Act::Reserve { pool, owner, blocks, process } => {
                    next += 1;
                    let pid = process.then_some(next);
                    let process = pid.and_then(holder);
                    let wanted = Request { process, ..request(name(pool), owner, &format!("s{next}"), blocks) };
                    match f.reserve(&wanted) {
                        Ok(reservation) => {
                            held.push(Held { reservation, owner, pid, left: blocks, files: 0 });
                        }
                        Err(error) => prop_assert_eq!(error.class(), stage::ErrorClass::Refused, "{}", error),
                    }
                }
                Act::Write { which, blocks } if !held.is_empty() => {
                    let n = held.len();
                    let held = &mut held[which % n];
                    let blocks = blocks.min(held.left);
                    held.left -= blocks;
                    held.files += 1;
                    if blocks > 0 {
                        write(&held.reservation, &format!("f{}", held.files), blocks);
                    }
                }
                Act::Release { which } if !held.is_empty() => {
                    let held = held.remove(which % held.len());
                    f.pools.release(held.reservation.id, held.owner).unwrap();
                }
                Act::Crash { which } if !held.is_empty() => {
                    if let Some(pid) = held[which % held.len()].pid {
                        f.dead.lock().unwrap().insert(pid);
                        held.remove(which % held.len());
                    }
                }
                Act::Evict { pool, more } => {
                    let ask = |set: &Path| Ok((!durable(set)).then(|| "not durable".to_owned()));
                    let eviction = f.pools.evict_candidates(name(pool), more * BLOCK, &ask).unwrap();
                    for set in &eviction.go {
                        prop_assert!(durable(&set.path.0));
                        prop_assert!(held.iter().all(|held| held.reservation.directory != set.path));
                        fs::remove_dir_all(&set.path.0).unwrap();
                    }
                    prop_assert!(eviction.found >= eviction.wanted || eviction.stay.len() + eviction.go.len() > 0
                        || f.pools.status(name(pool)).unwrap().sets.is_empty());
                    f.pools.room_was_made();
                    let status = f.pools.status(name(pool)).unwrap();
                    if eviction.found >= eviction.wanted && eviction.wanted > 0 {
                        prop_assert!(status.used + status.reserved <= status.high);
                    }
                }
                Act::Pass { minutes } => {
                    f.clock.pass(Duration::from_secs(minutes * 60));
                    let now = f.clock.now().wall.as_secs();
                    held.retain(|held| held.reservation.expires.is_none_or(|expires| expires > now));
                }
                Act::Restart => f.pools = open(&f.directory, &f.clock, &f.dead, size),
                _ => {}
            }
            // What is reserved and written by those who keep to it, against every bound.
            let mut promised = 0;
            let mut free = 0;
            for pool in ["a", "b"] {
                f.pools.room_was_made();
                let status = f.pools.status(pool).unwrap();
                prop_assert!(status.used + status.reserved <= status.quota, "{status:?}");
                for owner in [ALICE, BOB] {
                    let used: u64 = status.sets.iter().filter(|s| s.owner == owner).map(|s| s.bytes).sum();
                    let own = status.reservations.iter().filter(|r| r.owner == owner);
                    let reserved: u64 = own.map(|r| r.bytes.saturating_sub(r.used)).sum();
                    prop_assert!(used + reserved <= share * BLOCK, "{status:?}");
                }
                promised += status.reserved;
                free = status.free;
            }
            prop_assert!(promised <= free, "{promised} of {free}");
            let alive: usize = f.pools.list().unwrap().iter().map(|pool| pool.reservations.len()).sum();
            prop_assert_eq!(alive, held.len());
        }
    }
}

#[test]
fn who_waits_for_his_own_share_keeps_nobody_else_waiting() {
    let f = fixture(100, 50, 1000);
    let path = |file: &str| f.directory.path().join(file);
    let pools = Pools::open(&path("pools.toml"), &path("ledger")).unwrap();
    let hers = pools.reserve(&request("a", ALICE, "s", 50), None, &Stop::new()).unwrap();
    let (hour, stop) = (Some(Duration::from_secs(3600)), Stop::new());
    std::thread::scope(|scope| {
        let more = scope.spawn(|| pools.reserve(&request("a", ALICE, "t", 40), hour, &stop));
        while !pools.lock().queues.get("a").is_some_and(|queue| queue.iter().any(|waiting| waiting.in_share))
        {
            std::thread::yield_now();
        }
        let figures = &pools.figures().unwrap()[0];
        assert_eq!((figures.waiting, figures.waiting_bytes), (1, 40 * BLOCK));
        pools.reserve(&request("a", BOB, "u", 50), None, &stop).unwrap();
        // Her own requests stay in their order.
        let hasty = pools.reserve(&request("a", ALICE, "v", 1), None, &stop).unwrap_err();
        assert!(hasty.to_string().contains("another request waits"), "{hasty}");
        pools.release(hers.id, ALICE).unwrap();
        more.join().unwrap().unwrap();
    });
}

#[test]
fn who_has_gone_does_not_wait_any_more() {
    let f = fixture(100, 100, 1000);
    f.reserve(&request("a", ALICE, "s", 80)).unwrap();
    let asked = std::cell::Cell::new(0);
    let wanted = || {
        asked.set(asked.get() + 1);
        asked.get() < 3
    };
    let hour = Some(Duration::from_secs(3600));
    let error = f.pools.reserve_while(&request("a", BOB, "t", 30), hour, &wanted).unwrap_err();
    assert!(matches!(error, StageError::Stopped { .. }), "{error}");
    assert_eq!((asked.get(), f.pools.status("a").unwrap().waiting), (3, 0));
}

#[test]
fn a_user_is_told_how_much_others_hold_and_not_how_they_call_it() {
    let f = fixture(100, 100, 1000);
    for (owner, label) in [(ALICE, "s"), (ALICE, "secret-1"), (BOB, "t"), (ALICE, "secret-2")] {
        let reservation = f.reserve(&request("a", owner, label, 10)).unwrap();
        write(&reservation, "data", 5);
    }
    f.clock.pass(Duration::from_secs(10));
    let seen = f.pools.status("a").unwrap().seen_by(BOB);
    assert!(!format!("{seen:?}").contains("secret"), "{seen:?}");
    let held: Vec<_> = seen.holders.iter().map(|h| (h.owner, h.used, h.reserved)).collect();
    assert_eq!(held, [(ALICE, 15 * BLOCK, 15 * BLOCK), (BOB, 5 * BLOCK, 5 * BLOCK)]);
    let sets: Vec<_> = seen.sets.iter().map(|set| (set.owner, set.bytes)).collect();
    assert_eq!(sets, [(BOB, 5 * BLOCK), (ALICE, 15 * BLOCK)]);
    assert_eq!(seen.reservations.iter().filter(|row| row.label == "t").count(), 1);
    assert_eq!(f.pools.status("a").unwrap().seen_by(0), f.pools.status("a").unwrap());
}

#[test]
fn figures_are_of_late_and_know_every_reservation() {
    let f = fixture(100, 100, 1000);
    let reservation = f.reserve(&request("a", ALICE, "s", 80)).unwrap();
    let figures = |f: &Fixture| f.pools.figures().unwrap().remove(0);
    assert_eq!((figures(&f).used, figures(&f).reserved), (0, 80 * BLOCK));
    write(&reservation, "data", 50);
    f.pools.release(reservation.id, ALICE).unwrap();
    f.clock.pass(Duration::from_secs(60));
    let now = figures(&f);
    assert_eq!((now.used, now.reserved, now.reservations), (50 * BLOCK, 0, 0));
    assert_eq!((now.quota, now.high, now.low), (100 * BLOCK, 80 * BLOCK, 50 * BLOCK));
    // What is seen now counts for a while; reservations are always those of the ledger.
    let other = f.reserve(&request("a", BOB, "t", 20)).unwrap();
    write(&other, "data", 10);
    assert_eq!((figures(&f).reserved, figures(&f).reservations), (20 * BLOCK, 1));
    f.clock.pass(Duration::from_secs(60));
    assert_eq!((figures(&f).used, figures(&f).reserved), (60 * BLOCK, 10 * BLOCK));
}

/// Does something as another user, in a thread that ends with it. On Linux identity belongs to a thread.
fn by<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    use rustix::process::{Gid, Uid};
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn users_who_share_a_ledger_can_neither_change_each_others_reservations_nor_claim_more_than_their_share() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP users who share a ledger: not root");
        return;
    }
    let f = fixture(100, 60, 1000);
    let path = |file: &str| f.directory.path().join(file);
    set_mode(f.directory.path(), 0o755);
    for shared in ["ledger", "tier/a", "tier/b"] {
        set_mode(&path(shared), 0o1777);
    }
    let open = || Pools::open(&path("pools.toml"), &path("ledger"));
    let reserve = |owner: u32, label: &'static str, blocks: u64| {
        by(owner, || open().unwrap().reserve(&request("a", owner, label, blocks), None, &Stop::new()))
    };
    let hers = reserve(ALICE, "s", 50).unwrap();
    // The kernel keeps him from her file, under whatever name.
    let his = |name: &str| path(&format!("ledger/{name}"));
    by(BOB, || {
        assert!(fs::write(his("1000.json"), "{}").is_err());
        assert!(fs::remove_file(his("1000.json")).is_err());
        fs::write(his("x"), "{}").unwrap();
        assert!(fs::rename(his("x"), his("1000.json")).is_err());
        assert_eq!(open().unwrap().release(hers.id, BOB).unwrap_err().class(), stage::ErrorClass::Refused);
        // Nor does it help to say that one is she.
        open().unwrap().release(hers.id, ALICE).unwrap();
    });
    assert_eq!(open().unwrap().status("a").unwrap().reserved, 50 * BLOCK);
    // What he claims in his own file counts as far as his share goes, and garbage not at all.
    let row = |id: i64, blocks: u64, label: &str| {
        let (bytes, boot) = (blocks * BLOCK, "x");
        serde_json::json!({ "id": id, "pool": "a", "owner": ALICE, "label": label, "bytes": bytes, "created": 1,
            "lease": { "expires": 1u64 << 60, "until": { "boot": boot, "seconds": 1u64 << 60 } } })
    };
    let file = |rows: &[serde_json::Value]| {
        serde_json::json!({ "schema": "flashwright.stage-ledger/1", "last": i64::MAX, "changes": 0,
            "reservations": rows })
    };
    let claim =
        file(&[row(1, 40, "t"), row(2, 1000, "u"), row(3, u64::MAX / BLOCK, "v"), row(4, 1, "../1000/s")]);
    by(BOB, || fs::write(his("1001.json"), claim.to_string()).unwrap());
    let seen = open().unwrap().status("a").unwrap();
    assert_eq!(seen.reserved, 90 * BLOCK, "{seen:?}");
    assert!(seen.reservations.iter().all(|row| row.owner != ALICE || row.label == "s"), "{seen:?}");
    by(BOB, || fs::write(his("1001.json"), "garbage").unwrap());
    assert_eq!(open().unwrap().status("a").unwrap().reserved, 50 * BLOCK);
    reserve(ALICE, "more", 10).unwrap();
    // Somebody who was there first with her name is told of, and not followed.
    by(BOB, || fs::create_dir(path("tier/b/1000")).unwrap());
    let wish = request("b", ALICE, "s", 1);
    by(ALICE, || assert!(open().unwrap().reserve(&wish, None, &Stop::new()).is_err()));
}

#[test]
fn a_directory_in_which_members_could_replace_each_others_files_is_refused() {
    let f = fixture(100, 100, 1000);
    for (mode, refused) in [(0o777, true), (0o775, true), (0o1777, false), (0o1770, false)] {
        set_mode(&f.directory.path().join("tier/b"), mode);
        let label = format!("s{mode:o}");
        let reserved = f.reserve(&request("b", ALICE, &label, 1));
        assert_eq!(reserved.is_err(), refused, "{mode:o}: {reserved:?}");
        let ledger = f.directory.path().join(&label);
        fs::create_dir(&ledger).unwrap();
        set_mode(&ledger, mode);
        assert_eq!(Ledger::open(&ledger).is_err(), refused, "{mode:o}");
    }
}

#[test]
fn a_locked_ledger_is_waited_for_with_a_bound_and_its_holder_is_named() {
    let f = fixture(100, 100, 1000);
    let held = calls::open_directory(&f.directory.path().join("ledger")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockShared).unwrap();
    let error = f.reserve(&request("a", ALICE, "s", 1)).unwrap_err().to_string();
    assert!(error.contains(&format!("locked by process {}", std::process::id())), "{error}");
    drop(held);
    f.reserve(&request("a", ALICE, "s", 1)).unwrap();
}

#[test]
fn under_a_project_quota_the_file_system_says_what_is_used_and_free() {
    use std::process::Command;
    if !rustix::process::geteuid().is_root() {
        println!("SKIP project quotas: not root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let run = |line: &str| {
        Command::new("sh")
            .args(["-ec", line])
            .current_dir(directory.path())
            .status()
            .is_ok_and(|s| s.success())
    };
    fs::create_dir(path("mnt")).unwrap();
    if !run("truncate -s 400m image && mkfs.xfs -q image && mount -o loop,prjquota image mnt 2>mount.err") {
        println!("SKIP project quotas: no xfs with prjquota can be mounted here");
        return;
    }
    struct Unmount<F: Fn(&str) -> bool>(F);
    impl<F: Fn(&str) -> bool> Drop for Unmount<F> {
        fn drop(&mut self) {
            (self.0)("umount mnt");
        }
    }
    let _unmount = Unmount(run);
    assert!(run(
        "mkdir mnt/pool && xfs_quota -x -c 'project -s -p mnt/pool 7' -c 'limit -p bhard=40m 7' mnt >/dev/null"
    ));
    let text = format!("[pool.a]\npath = {:?}\nquota = '60m'\n", path("mnt/pool"));
    fs::write(path("pools.toml"), text).unwrap();
    let pools = Pools::open(&path("pools.toml"), &path("ledger")).unwrap();
    let reserve = |label: &str, mebibytes: u64| {
        let bytes = mebibytes << 20;
        let wish = Request { pool: "a".into(), owner: ALICE, label: label.into(), bytes, process: None };
        pools.reserve(&wish, None, &Stop::new())
    };
    let error = reserve("s", 41).unwrap_err().to_string();
    assert!(error.contains("the file system has 40 MiB free"), "{error}");
    // What a walk cannot see is counted all the same: a file without a name.
    let file = tempfile::tempfile_in(path("mnt/pool")).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 30 << 20).unwrap();
    pools.room_was_made();
    let seen = pools.status("a").unwrap();
    assert!(seen.used >= 30 << 20 && seen.free <= 10 << 20, "{seen:?}");
    assert!(reserve("t", 11).is_err());
    reserve("u", 5).unwrap();
}
