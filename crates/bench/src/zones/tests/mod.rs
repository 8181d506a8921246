//! The model against a drive that refuses what a real one refuses: in any order of requests and completions, and on threads.

use std::time::Duration;

use measure::pattern::Rng;
use measure::workload::{IoEngine, Rw, Verify, ZoneMode};
use storage::device::{OpenOptions, Zone, ZoneCondition, discard_pieces, whole_zones};
use storage::sysfs::Sysfs;

use super::zone::Busy;
use super::*;
use crate::lies::Known;
use crate::observe::{Observer, Subject};
use crate::run::conduct::Conduct;
use crate::run::{BenchError, Job, RunOptions, run};
use crate::target::{BenchTarget, TargetOptions};
use drive::{Drive, Make};
use storage::engine::Op;

mod drive;
mod waits;

const ZONE: u64 = 64 << 10;

const MAKE: Make = Make {
    zones: 8,
    zone_bytes: ZONE,
    capacity: ZONE,
    conventional: 0,
    max_open: 0,
    max_active: 0,
    last_bytes: 0,
};

/// A job, one of those that are at the drive at once.
#[derive(Debug)]
struct Player {
    /// None once it is over.
    walk: Option<Walk>,
    rw: Rw,
    bs: u64,
    region: Region,
    /// What is in flight, by slot.
    slots: Vec<Option<(Op, u64)>>,
    /// A request that has to wait.
    held: Option<(Op, u64)>,
    is_done: bool,
}

impl Player {
    fn new(zones: &Zones, device: &Arc<dyn Device>, workload: &Workload) -> Self {
        let table = zones.of(device, workload).expect("the workload fits the drive");
        let regions = regions_of(&table, workload, device.size()).expect("the region is there");
        let depth = workload.iodepth;
        let mut walk = Walk::new(&table, device, workload, &regions[0], depth);
        if workload.verify.is_some() {
            walk.clear(&|| false).expect("the drive resets them");
        }
        Self {
            walk: Some(walk),
            rw: workload.rw,
            bs: workload.bs,
            region: regions[0],
            slots: vec![None; depth as usize],
            held: None,
            is_done: false,
        }
    }

    /// Issues a request, if there is a slot and something to do. Whether anything happened.
    fn issue(&mut self, drive: &Drive, rng: &mut Rng) -> bool {
        let Some(slot) = self.slots.iter().position(Option::is_none).filter(|_| !self.is_done) else {
            return false;
        };
        let (op, hint) = self.held.take().unwrap_or_else(|| {
            let op = match self.rw {
                Rw::Read | Rw::RandRead => Op::Read,
                Rw::Trim | Rw::RandTrim => Op::Trim,
                Rw::Rw | Rw::RandRw if rng.below(2) == 0 => Op::Read,
                _ => Op::Write,
            };
            (op, self.region.start + rng.below(self.region.length / self.bs) * self.bs)
        });
        match self.walk.as_mut().expect("is not done").next(op, hint, slot as u32) {
            Ok(Step::At(op, offset)) => {
                if op != Op::Trim {
                    drive.begin(offset, op == Op::Write);
                }
                self.slots[slot] = Some((op, offset));
            }
            Ok(Step::Wait) => {
                self.held = Some((op, hint));
                return false;
            }
            Ok(Step::Done)
            | Err(ZoneError::Empty { .. } | ZoneError::NoneToWrite { .. } | ZoneError::AlreadyOpen { .. }) => {
                self.is_done = true
            }
            Err(error) => panic!("{error}"),
        }
        self.leave();
        true
    }

    /// As a thread does that has ended.
    fn leave(&mut self) {
        if self.is_done && self.slots.iter().all(Option::is_none) {
            self.walk = None;
        }
    }

    /// Ends a request in flight. Whether there was one.
    fn complete(&mut self, drive: &Drive, rng: &mut Rng) -> bool {
        let busy: Vec<usize> = (0..self.slots.len()).filter(|slot| self.slots[*slot].is_some()).collect();
        if busy.is_empty() {
            return false;
        }
        let slot = busy[rng.below(busy.len() as u64) as usize];
        let (op, offset) = self.slots[slot].take().expect("it is in flight");
        let mut buffer = vec![1; self.bs as usize];
        if op != Op::Trim {
            drive.end(offset, op == Op::Write);
        }
        let result = match op {
            Op::Read => drive.read_at(&mut buffer, offset),
            Op::Write => drive.write_at(&buffer, offset),
            _ => drive.discard(offset, self.bs),
        };
        result.unwrap_or_else(|error| panic!("{op:?} at {offset}: {error}"));
        self.walk.as_mut().expect("has a request in flight").settle(slot as u32);
        self.leave();
        true
    }
}

/// Plays so many turns, and looks at the table and the drive in the end.
fn play(drive: &Arc<Drive>, workloads: &[Workload], turns: usize, rng: &mut Rng) -> Vec<usize> {
    let device: Arc<dyn Device> = Arc::clone(drive) as Arc<dyn Device>;
    let zones = Zones::default();
    let mut players: Vec<Player> = workloads.iter().map(|w| Player::new(&zones, &device, w)).collect();
    let mut moved = vec![0; players.len()];
    for _ in 0..turns {
        let at = rng.below(players.len() as u64) as usize;
        let happened = match rng.below(2) {
            0 => players[at].issue(drive, rng),
            _ => {
                let is_one = players[at].complete(drive, rng);
                moved[at] += usize::from(is_one);
                is_one
            }
        };
        zones.0.lock().unwrap().values().for_each(|table| table.lock().check());
        let is_idle = |player: &Player| player.slots.iter().all(Option::is_none);
        if !happened && players.iter().all(is_idle) && players.iter().any(|player| !player.is_done) {
            // Some look before others have given up what they wait for.
            let goes_on =
                (0..players.len()).any(|_| players.iter_mut().any(|player| player.issue(drive, rng)));
            assert!(goes_on, "all wait, and for nothing: {players:#?}");
        }
    }
    for (player, moved) in players.iter_mut().zip(&mut moved) {
        while player.complete(drive, rng) {
            *moved += 1;
        }
    }
    let table = zones.0.lock().unwrap().values().next().map(Arc::clone).expect("there is a table");
    let state = table.lock();
    for (known, zone) in state.zones.iter().zip(drive.zones_now()) {
        assert_eq!((known.busy, known.readers), (Busy::Idle, 0), "{known:?}");
        if !known.is_conventional {
            assert_eq!(known.pointer, zone.pointer, "{zone:?}");
            let is_written = zone.pointer > zone.start && zone.condition != ZoneCondition::Full;
            assert!(!known.is_open() || is_written, "{known:?} {zone:?}");
        }
    }
    drop(state);
    drop(players);
    let state = table.lock();
    state.check();
    assert_eq!(state.in_vain, 0);
    assert!(state.is_left_by_all() && state.open_zones().is_empty(), "{state:?}");
    assert!(state.zones.iter().all(|zone| zone.busy == Busy::Idle), "{state:?}");
    assert!(state.zones.iter().all(|zone| zone.claimed_by.is_none() && zone.keepers == 0), "{state:?}");
    assert_eq!(drive.refused(), [""; 0]);
    moved
}

fn workload(rw: Rw) -> Workload {
    Workload {
        rw,
        zonemode: ZoneMode::Zbd,
        bs: 4096,
        time_based: true,
        runtime: Some(Duration::from_secs(1)),
        ioengine: IoEngine::Psync,
        ..Workload::default()
    }
}

#[test]
fn every_request_is_one_that_the_drive_takes_and_the_pointers_are_the_drives() {
    let kinds =
        [Rw::Write, Rw::RandWrite, Rw::Rw, Rw::RandRw, Rw::Read, Rw::RandRead, Rw::RandTrim, Rw::Trim];
    let (mut resets, mut moved) = (0, 0);
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        // Capacities that are no whole number of blocks leave remainders.
        let capacity = [ZONE, 48 << 10, 44 << 10][rng.below(3) as usize];
        let max_open = rng.below(5) as u32;
        let max_active = if rng.below(2) == 0 { 0 } else { max_open.max(1) + rng.below(3) as u32 };
        let make = Make {
            zones: 4 + rng.below(8),
            capacity,
            conventional: rng.below(3),
            max_open,
            max_active,
            ..MAKE
        };
        let drive = Drive::new(make);
        let limit = [max_open, max_active].into_iter().filter(|limit| *limit > 0).min().unwrap_or(0);
        drive.fill(&mut rng, 4096, u64::from(limit.min(2)));
        let bs = [4096, 8192][rng.below(2) as usize];
        // Half of the time all regions are the whole drive.
        let is_whole = rng.below(2) == 0;
        let workloads: Vec<Workload> = (0..1 + rng.below(4))
            .map(|number| {
                let rw = if number == 0 { Rw::RandWrite } else { kinds[rng.below(8) as usize] };
                let trims = !rw.writes() && rw.modifies();
                let first = if is_whole { 0 } else { rng.below(make.zones) };
                Workload {
                    bs: if trims { ZONE } else { bs },
                    iodepth: 1 + rng.below(4) as u32,
                    offset: first * ZONE,
                    job_max_open_zones: rng.below(3) as u32,
                    verify: (rw.writes() && rng.below(6) == 0).then_some(Verify::Crc32c),
                    zone_reset_frequency: [0.0, 0.5][rng.below(2) as usize],
                    zone_reset_threshold: 0.3,
                    ..workload(rw)
                }
            })
            .collect();
        moved += play(&drive, &workloads, 600, &mut rng).iter().sum::<usize>();
        resets += drive.resets();
    }
    assert!(moved > 40_000 && resets > 1000, "{moved} requests, {resets} resets");
}

#[test]
fn no_more_zones_are_open_than_workload_and_drive_allow() {
    for (of_drive, of_workload, of_job, expected) in [(0, 3, 0, 3), (4, 0, 0, 4), (4, 2, 0, 2), (0, 0, 1, 1)]
    {
        let drive = Drive::new(Make { max_open: of_drive, max_active: of_drive, ..MAKE });
        let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
        let (max_open_zones, job_max_open_zones) = (of_workload, of_job);
        let writes = Workload { max_open_zones, job_max_open_zones, ..workload(Rw::RandWrite) };
        let zones = Zones::default();
        let mut player = Player::new(&zones, &device, &writes);
        let (mut rng, mut most) = (Rng::new(1), 0);
        for _ in 0..100 {
            assert!(player.issue(&drive, &mut rng) && player.complete(&drive, &mut rng));
            let is_partly_written =
                |zone: &&Zone| zone.pointer > zone.start && zone.pointer < zone.start + ZONE;
            most = most.max(drive.zones_now().iter().filter(is_partly_written).count());
        }
        assert_eq!(most, expected, "{of_drive} {of_workload} {of_job}");
    }
    let drive: Arc<dyn Device> = Drive::new(Make { max_open: 4, ..MAKE });
    let many = Workload { max_open_zones: 5, ..workload(Rw::RandWrite) };
    let error = Zones::default().of(&drive, &many).unwrap_err().to_string();
    assert_eq!(error, "max_open_zones=5: /dev/zoned has 4 open at most");
    let ignoring = Workload { ignore_zone_limits: true, ..many };
    Zones::default().of(&drive, &ignoring).expect("the limit is ignored");
}

#[test]
fn a_sequential_job_fills_zone_after_zone_and_resets_what_it_comes_to() {
    let drive = Drive::new(Make { zones: 3, capacity: 48 << 10, ..MAKE });
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    let zones = Zones::default();
    let mut player = Player::new(&zones, &device, &Workload { bs: 16 << 10, ..workload(Rw::Write) });
    let mut rng = Rng::new(1);
    let mut offsets = Vec::new();
    for _ in 0..10 {
        player.issue(&drive, &mut rng);
        offsets.push(player.slots[0].expect("is in flight").1 >> 10);
        player.complete(&drive, &mut rng);
    }
    assert_eq!(offsets, [0, 16, 32, 64, 80, 96, 128, 144, 160, 0]);
    assert_eq!(drive.resets(), 1);
    drop(player);
    // Reads follow, and end where nothing more was written.
    let once = Workload { bs: 16 << 10, time_based: false, runtime: None, ..workload(Rw::Read) };
    let mut reader = Player::new(&zones, &device, &once);
    let mut read = Vec::new();
    while reader.issue(&drive, &mut rng) && !reader.is_done {
        read.push(reader.slots[0].expect("is in flight").1 >> 10);
        reader.complete(&drive, &mut rng);
    }
    assert_eq!(read, [0, 64, 80, 96, 128, 144, 160]);
    assert_eq!(drive.refused(), [""; 0]);
}

#[test]
fn zones_are_reset_at_the_frequency_once_so_much_holds_data() {
    let drive = Drive::new(MAKE);
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    let collecting =
        Workload { zone_reset_threshold: 0.5, zone_reset_frequency: 0.25, ..workload(Rw::RandWrite) };
    let zones = Zones::default();
    let mut player = Player::new(&zones, &device, &collecting);
    let mut rng = Rng::new(3);
    let held = |drive: &Drive| drive.zones_now().iter().map(|zone| zone.pointer - zone.start).sum::<u64>();
    let mut writes = 0;
    while held(&drive) < drive.size() / 2 {
        assert_eq!(drive.resets(), 0, "half of the region does not hold data yet");
        assert!(player.issue(&drive, &mut rng) && player.complete(&drive, &mut rng));
        writes += 1;
        assert!(writes <= 64, "64 blocks are half of the drive");
    }
    for _ in 0..400 {
        assert!(player.issue(&drive, &mut rng) && player.complete(&drive, &mut rng));
    }
    assert!(drive.resets() >= 10, "{} resets", drive.resets());
    let bytes = held(&drive);
    assert!(bytes < drive.size() * 3 / 4, "resets keep it near the threshold: {bytes} of {}", drive.size());
}

#[test]
fn a_failed_write_leaves_the_pointer_where_the_drive_says() {
    let drive = Drive::new(MAKE);
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    let zones = Zones::default();
    let mut player = Player::new(&zones, &device, &workload(Rw::Write));
    let mut rng = Rng::new(1);
    for reaches_the_drive in [false, true] {
        assert!(player.issue(&drive, &mut rng));
        let (_, offset) = player.slots[0].take().expect("is in flight");
        drive.end(offset, true);
        if reaches_the_drive {
            drive.write_at(&[1; 4096], offset).expect("is at the pointer");
        }
        player.walk.as_mut().expect("is not done").fail(0);
    }
    assert!(player.issue(&drive, &mut rng) && player.complete(&drive, &mut rng));
    assert_eq!(drive.zones_now()[0].pointer, 8192);
    assert_eq!(drive.refused(), [""; 0]);
}

#[test]
fn zones_that_are_to_be_verified_are_cleared_once_nothing_is_in_flight_in_them() {
    for rw in [Rw::Write, Rw::Read] {
        let drive = Drive::new(MAKE);
        let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
        let zones = Zones::default();
        let mut rng = Rng::new(1);
        let mut writer = Player::new(&zones, &device, &workload(Rw::Write));
        assert!(writer.issue(&drive, &mut rng) && writer.complete(&drive, &mut rng));
        let mut other = Player::new(&zones, &device, &workload(rw));
        assert!(other.issue(&drive, &mut rng));
        let checked = Workload { verify: Some(Verify::Crc32c), ..workload(Rw::Write) };
        std::thread::scope(|scope| {
            let clearing = scope.spawn(|| Player::new(&zones, &device, &checked));
            // Whether it waits yet or has still to come to that: the drive refuses a reset in the midst of a request.
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(drive.resets(), 0);
            assert!(other.complete(&drive, &mut rng));
            clearing.join().expect("clears the zone");
        });
        assert_eq!((drive.resets(), drive.zones_now()[0].pointer), (1, 0));
        assert_eq!(drive.refused(), [""; 0]);
    }
}

fn job(drive: &Arc<Drive>, zones: &Zones, workload: &Workload) -> Job {
    Job {
        device: Arc::clone(drive) as Arc<dyn Device>,
        workload: workload.clone(),
        observer: Observer::new(Sysfs::at("/dev/null"), Subject::default()),
        known: Known::default(),
        conduct: Conduct::default(),
        zones: zones.clone(),
    }
}

fn for_requests(rw: Rw, requests: u64) -> Workload {
    // The first thread to end does not end the others.
    Workload { number_ios: Some(requests), runtime: None, time_based: false, loops: 10_000, ..workload(rw) }
}

#[test]
fn threads_that_share_a_drive_keep_to_its_zones() {
    let drive = Drive::new(Make { max_open: 3, max_active: 3, conventional: 1, ..MAKE });
    let zones = Zones::default();
    let shared = |rw, requests| Workload {
        numjobs: 2,
        offset_increment: Some(0),
        iodepth: 4,
        offset: ZONE,
        ..for_requests(rw, requests)
    };
    let jobs = [
        job(&drive, &zones, &shared(Rw::RandWrite, 300)),
        job(&drive, &zones, &shared(Rw::RandRw, 300)),
        job(&drive, &zones, &shared(Rw::Write, 300)),
        job(&drive, &zones, &Workload { bs: ZONE, iodepth: 1, numjobs: 1, ..shared(Rw::RandTrim, 20) }),
    ];
    let outcome = run(&jobs, RunOptions::default()).expect("the drive refuses nothing");
    assert_eq!(drive.refused(), [""; 0]);
    let ios: Vec<u64> = outcome.records.iter().map(|record| record.total.ios).collect();
    assert_eq!(ios[..3], [600, 600, 600]);
    assert!((1..=20).contains(&ios[3]), "{ios:?}");
    assert!(drive.resets() > 20);
    // Those of full zones, and those that were asked for as trims.
    let resets: u64 =
        outcome.records.iter().filter_map(|record| record.zones).map(|zones| zones.resets).sum();
    assert_eq!(resets + ios[3], drive.resets());
}

#[test]
fn what_is_written_to_zones_is_verified_and_ends_when_they_are_full() {
    for rw in [Rw::Write, Rw::RandWrite, Rw::RandRw] {
        let drive = Drive::new(Make { max_open: 2, capacity: 48 << 10, ..MAKE });
        drive.fill(&mut Rng::new(5), 4096, 2);
        let checked = Workload {
            verify: Some(Verify::Crc32c),
            iodepth: 3,
            numjobs: 2,
            offset_increment: Some(0),
            ..for_requests(rw, u64::MAX)
        };
        let outcome =
            run(&[job(&drive, &Zones::default(), &checked)], RunOptions::default()).expect("verifies");
        assert_eq!(drive.refused(), [""; 0], "{rw:?}");
        let record = &outcome.records[0];
        assert_eq!(record.total.write_bytes, 8 * (48 << 10), "{rw:?}: each zone is written once");
        assert_eq!(record.verified_blocks, 8 * 12, "{rw:?}");
        assert!(drive.zones_now().iter().all(|zone| zone.condition == ZoneCondition::Full), "{rw:?}");
    }
}

#[test]
fn what_a_zoned_drive_cannot_do_is_refused_before_anything_is_written() {
    let drive = Drive::new(Make { capacity: 48 << 10, ..MAKE });
    let plain = Workload { zonemode: ZoneMode::Strided, ..for_requests(Rw::RandWrite, 1) };
    let cases = [
        (
            plain,
            "/dev/zoned is a host-managed zoned drive, whose zones take writes at their write pointers only",
        ),
        (for_requests(Rw::Read, 1), "no zone of the region of /dev/zoned holds a block that could be read"),
        (
            Workload { bs: ZONE / 2, ..for_requests(Rw::Trim, 1) },
            "bs=32768: the zones of /dev/zoned have 65536 bytes",
        ),
        (Workload { bs: ZONE, ..for_requests(Rw::Write, 1) }, "49152 of which can be written"),
        (
            Workload { zonesize: Some(2 * ZONE), ..for_requests(Rw::Write, 1) },
            "zonesize=131072: the zones of /dev/zoned have 65536",
        ),
        (Workload { size: Some(8192), ..for_requests(Rw::Write, 1) }, "but the workload needs 65536"),
    ];
    for (workload, words) in cases {
        let error = run(&[job(&drive, &Zones::default(), &workload)], RunOptions::default()).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.is_about_the_request() && error.hint().is_some(), "{error}");
    }
    assert!(drive.zones_now().iter().all(|zone| zone.pointer == zone.start));
}

#[test]
fn a_file_has_zones_that_are_kept_account_of_as_long_as_it_is_open() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("zones");
    let spec = format!("file:{}?size=1m", path.display());
    let mut target = BenchTarget::new(&spec, TargetOptions::default()).expect("a spec");
    let zoned = |rw, requests| Workload { zonesize: Some(ZONE), direct: false, ..for_requests(rw, requests) };
    let nothing = |target: &mut BenchTarget| target.run_once(&zoned(Rw::RandRead, 8), RunOptions::default());
    let written = target.run_once(&zoned(Rw::Write, 24), RunOptions::default()).expect("writes");
    assert_eq!(written.records[0].total.write_bytes, 24 * 4096);
    assert_eq!(nothing(&mut target).expect("reads what was written").records[0].total.ios, 8);
    let data = std::fs::read(&path).expect("is there");
    assert!(data[..24 * 4096].chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)));
    assert!(data[24 * 4096..].iter().all(|byte| *byte == 0), "nothing lies beyond the pointers");
    // Another opening knows nothing of them.
    let options = TargetOptions { destroy: vec![path.clone()], ..TargetOptions::default() };
    let mut again = BenchTarget::new(&spec, options).expect("a spec");
    let error = nothing(&mut again).expect_err("all zones are empty").to_string();
    assert!(error.contains("no zone of the region"), "{error}");
    let options = OpenOptions { direct: false, allow_unwritten: true, ..OpenOptions::default() };
    let device = storage::device::open(&spec.parse().expect("a spec"), &options).expect("opens");
    assert!(matches!(Zones::default().of(&device, &workload(Rw::Read)), Err(ZoneError::NoSize { .. })));
}
