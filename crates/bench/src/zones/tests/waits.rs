//! Who waits for whom, and what ends it: jobs that are more than the zones that may be open, data that are kept, and ends of all
//! kinds.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::run::flow::Flow;
use crate::zones::zone::Set;
use measure::WarningCode;

/// A job over some of the zones.
fn over(zones: std::ops::Range<u64>, workload: Workload) -> Workload {
    Workload { offset: zones.start * ZONE, size: Some((zones.end - zones.start) * ZONE), ..workload }
}

/// Sequential jobs, each on zones of its own, that write part of the last one.
fn side_by_side(jobs: u32, bytes: u64) -> Workload {
    Workload {
        numjobs: jobs,
        size: Some(2 * ZONE),
        offset_increment: Some(2 * ZONE),
        io_size: Some(bytes),
        ..for_requests(Rw::Write, u64::MAX)
    }
}

#[test]
fn jobs_that_are_more_than_the_open_zones_take_turns_and_leave_their_places_to_others() {
    for (max_open, max_active) in [(2, 0), (2, 2), (0, 1)] {
        for rw in [Rw::Write, Rw::RandWrite] {
            let drive = Drive::new(Make { max_open, max_active, ..MAKE });
            let writes = Workload { rw, loops: 1, ..side_by_side(4, ZONE + 8192) };
            let outcome = run(&[job(&drive, &Zones::default(), &writes)], RunOptions::default());
            let record = &outcome.expect("none is lost").records[0];
            let name = format!("{max_open} {max_active} {rw:?}");
            assert_eq!(record.total.write_bytes, 4 * (ZONE + 8192), "{name}");
            assert_eq!(drive.refused(), [""; 0], "{name}");
            assert!(!record.has_warning(WarningCode::Zones), "{name}");
            // What a job has left partly written stays so, unless the drive takes no other.
            let finished = record.zones.expect("they are counted").finished;
            assert_eq!((finished, finished > 0), (drive.finished(), max_active > 0), "{name}");
            assert!(rw == Rw::RandWrite || drive.resets() == 0, "{name}");
        }
    }
}

#[test]
fn one_that_waits_for_a_place_has_the_next_one() {
    let drive = Drive::new(Make { max_open: 1, ..MAKE });
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    let zones = Zones::default();
    let mut rng = Rng::new(1);
    let mut first = Player::new(&zones, &device, &over(0..4, workload(Rw::Write)));
    let mut second = Player::new(&zones, &device, &over(4..8, workload(Rw::Write)));
    assert!(first.issue(&drive, &mut rng) && first.complete(&drive, &mut rng));
    assert!(!second.issue(&drive, &mut rng), "there is one place");
    for _ in 0..15 {
        assert!(first.issue(&drive, &mut rng) && first.complete(&drive, &mut rng));
    }
    assert!(!first.issue(&drive, &mut rng), "its zone is full, and it is the other's turn");
    for _ in 0..16 {
        assert!(second.issue(&drive, &mut rng) && second.complete(&drive, &mut rng));
    }
    assert!(!second.issue(&drive, &mut rng) && first.issue(&drive, &mut rng));
    assert!(first.complete(&drive, &mut rng));
    // One that is done, or held back by what is no zone, gives up its place.
    first.walk.as_mut().expect("is there").step_aside();
    assert!(second.issue(&drive, &mut rng) && second.complete(&drive, &mut rng));
    second.walk.as_mut().expect("is there").retire();
    assert!(first.issue(&drive, &mut rng) && first.complete(&drive, &mut rng));
    assert_eq!(drive.refused(), [""; 0]);
}

/// It has no place yet, and nobody is in the line.
#[test]
fn who_comes_while_another_finishes_a_zone_that_was_left_waits_for_it() {
    let drive = Drive::new(Make { max_active: 1, ..MAKE });
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    let zones = Zones::default();
    let table = zones.of(&device, &workload(Rw::Write)).expect("it has zones");
    let player = |first: u64| Player::new(&zones, &device, &over(first..first + 2, workload(Rw::Write)));
    let writes = |player: &mut Player| {
        let rng = &mut Rng::new(1);
        player.issue(&drive, rng) && player.complete(&drive, rng)
    };
    let [mut first, mut second, mut third] = [0, 2, 4].map(player);
    assert!(writes(&mut first));
    first.walk.as_mut().expect("is there").retire();
    std::thread::scope(|scope| {
        let held = drive.hold_finishing();
        let finishing = scope.spawn(|| writes(&mut second));
        while !table.lock().any(Set::Busy, &(0..2)) {
            std::thread::yield_now();
        }
        assert!(!writes(&mut third) && !third.is_done, "there will be a place");
        drop(held);
        assert!(!finishing.join().expect("goes well"), "the place is the other's, who is in the line");
    });
    assert!(writes(&mut third) && !writes(&mut second) && !second.is_done);
    third.walk.as_mut().expect("is there").retire();
    assert!(writes(&mut second));
    assert_eq!((drive.finished(), drive.refused()), (2, Vec::new()));
}

#[test]
fn who_comes_while_another_is_about_to_trim_a_zone_that_was_left_waits_for_it() {
    let drive = Drive::new(Make { max_active: 1, ..MAKE });
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    let zones = Zones::default();
    let mut rng = Rng::new(1);
    let player = |first: u64, workload| Player::new(&zones, &device, &over(first..first + 2, workload));
    let mut first = player(0, workload(Rw::Write));
    assert!(first.issue(&drive, &mut rng) && first.complete(&drive, &mut rng));
    first.walk.as_mut().expect("is there").retire();
    let mut reader = player(0, workload(Rw::Read));
    let mut trimmer = player(0, Workload { bs: ZONE, ..workload(Rw::Trim) });
    let mut third = player(4, workload(Rw::Write));
    assert!(reader.issue(&drive, &mut rng));
    assert!(!trimmer.issue(&drive, &mut rng), "somebody reads there");
    assert!(!third.issue(&drive, &mut rng) && !third.is_done, "there will be a place");
    assert!(reader.complete(&drive, &mut rng));
    assert!(trimmer.issue(&drive, &mut rng) && trimmer.complete(&drive, &mut rng));
    assert!(third.issue(&drive, &mut rng) && third.complete(&drive, &mut rng));
    assert_eq!((drive.finished(), drive.refused()), (0, Vec::new()));
}

#[test]
fn jobs_of_a_flow_share_one_open_zone() {
    for max_active in [0, 1] {
        let drive = Drive::new(Make { max_open: 1, max_active, ..MAKE });
        let zones = Zones::default();
        let flow = |first: u64| {
            let writes = over(first..first + 4, for_requests(Rw::RandWrite, 40));
            let mut job = job(&drive, &zones, &writes);
            job.conduct.flow = Some(Flow { id: 1, weight: 1, sleep: Duration::ZERO });
            job
        };
        let outcome = run(&[flow(0), flow(4)], RunOptions::default()).expect("none waits for ever");
        let ios: Vec<u64> = outcome.records.iter().map(|record| record.total.ios).collect();
        assert_eq!((ios, drive.refused()), (vec![40, 40], Vec::new()));
    }
}

/// A part of a flow that has only to do with its own zones, and in turn with those of others.
fn of_flow(drive: &Arc<Drive>, zones: &Zones, workload: &Workload) -> Job {
    let mut job = job(drive, zones, workload);
    job.conduct.flow = Some(Flow { id: 1, weight: 1, sleep: Duration::ZERO });
    job
}

#[test]
fn a_flow_holds_nobody_back_for_one_that_waits_for_what_is_written() {
    // The reader's zones are the last that are written; the trims leave nothing, again and again.
    let drive = Drive::new(MAKE);
    let zones = Zones::default();
    let once = Workload { loops: 1, ..for_requests(Rw::Write, u64::MAX) };
    let reads = over(4..8, for_requests(Rw::RandRead, 100));
    let jobs = [of_flow(&drive, &zones, &once), of_flow(&drive, &zones, &reads)];
    let outcome = run(&jobs, RunOptions::default()).expect("the writer goes on");
    let ios = |outcome: &crate::run::Outcome| -> Vec<u64> {
        outcome.records.iter().map(|record| record.total.ios).collect()
    };
    assert_eq!((ios(&outcome), drive.refused()), (vec![128, 100], Vec::new()));

    let drive = Drive::new(MAKE);
    let zones = Zones::default();
    let trims =
        Workload { bs: ZONE, numjobs: 2, offset_increment: Some(0), ..for_requests(Rw::RandTrim, 50) };
    let jobs = [of_flow(&drive, &zones, &for_requests(Rw::RandWrite, 500)), of_flow(&drive, &zones, &trims)];
    let outcome = run(&jobs, RunOptions::default()).expect("the writer goes on");
    assert_eq!((ios(&outcome)[0], drive.refused()), (500, Vec::new()));
}

#[test]
fn who_waits_for_kept_data_leaves_its_place_to_who_keeps_them() {
    // What is left of a zone is less than a block.
    for max_active in [0, 1] {
        let drive = Drive::new(Make { capacity: 44 << 10, max_open: 1, max_active, ..MAKE });
        let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
        let zones = Zones::default();
        let mut rng = Rng::new(1);
        let blocks = Workload { bs: 8192, ..workload(Rw::RandWrite) };
        let checked = Workload { verify: Some(Verify::Crc32c), ..blocks.clone() };
        let mut other = Player::new(&zones, &device, &over(0..1, blocks));
        let mut verifying = Player::new(&zones, &device, &checked);
        assert!(other.issue(&drive, &mut rng) && other.complete(&drive, &mut rng), "it has the place");
        for _ in 0..4 {
            assert!(verifying.issue(&drive, &mut rng) && verifying.complete(&drive, &mut rng));
        }
        for _ in 0..3 {
            assert!(!other.issue(&drive, &mut rng) && !other.is_done, "its zone is full, and kept");
        }
        let mut written = 4;
        while verifying.issue(&drive, &mut rng) && verifying.complete(&drive, &mut rng) {
            written += 1;
        }
        assert_eq!((written, verifying.is_done), (7 * 5 + 4, true), "all that is left of the drive");
        assert!(other.issue(&drive, &mut rng) && other.complete(&drive, &mut rng));
        assert_eq!(drive.refused(), [""; 0]);
    }
}

#[test]
fn a_sequential_job_leaves_no_zone_out_because_another_has_the_place() {
    let drive = Drive::new(Make { max_open: 1, ..MAKE });
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    let zones = Zones::default();
    let mut rng = Rng::new(1);
    let once = Workload { time_based: false, runtime: None, ..workload(Rw::Write) };
    let mut first = Player::new(&zones, &device, &over(6..7, once.clone()));
    assert!(first.issue(&drive, &mut rng) && first.complete(&drive, &mut rng));
    let mut second = Player::new(&zones, &device, &once);
    let mut offsets = Vec::new();
    while offsets.len() < 128 && second.issue(&drive, &mut rng) {
        offsets.push(second.slots[0].expect("is in flight").1);
        assert!(second.complete(&drive, &mut rng));
    }
    // It helps to fill the zone that is open, and goes on where it was.
    let expected = (1..16)
        .map(|block| 6 * ZONE + block * 4096)
        .chain((0..96).map(|block| block * 4096))
        .chain((0..16).map(|block| 6 * ZONE + block * 4096))
        .chain([7 * ZONE]);
    let expected: Vec<u64> = expected.collect();
    assert_eq!((offsets, drive.refused()), (expected, Vec::new()));
}

#[test]
fn a_sequential_job_moves_all_of_its_io_size_or_says_that_it_has_not() {
    let drive = Drive::new(Make { capacity: 44 << 10, ..MAKE });
    let zones = Zones::default();
    let all = Workload { runtime: None, time_based: false, io_size: Some(7 * ZONE), ..workload(Rw::Write) };
    let outcome = run(&[job(&drive, &zones, &all)], RunOptions::default()).expect("writes");
    assert_eq!((outcome.records[0].total.write_bytes, drive.refused()), (7 * ZONE, Vec::new()));
    assert!(drive.resets() > 0 && !outcome.records[0].has_warning(WarningCode::Zones));
    // Zones that are kept are not written again.
    let drive = Drive::new(MAKE);
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    let mut rng = Rng::new(1);
    let once = Workload { time_based: false, runtime: None, ..workload(Rw::Write) };
    let checked = over(0..2, Workload { verify: Some(Verify::Crc32c), ..once.clone() });
    let zones = Zones::default();
    let mut keeper = Player::new(&zones, &device, &checked);
    for _ in 0..16 {
        assert!(keeper.issue(&drive, &mut rng) && keeper.complete(&drive, &mut rng));
    }
    for (region, blocks, early) in [(0..3, 32, 1), (4..6, 32, 0)] {
        let mut other = Player::new(&zones, &device, &over(region, once.clone()));
        let walk = other.walk.as_mut().expect("is there");
        for _ in 0..blocks {
            let Ok(Step::At(Op::Write, offset)) = walk.next(Op::Write, 0, 0) else { panic!("there is room") };
            drive.begin(offset, true);
            drive.end(offset, true);
            drive.write_at(&[1; 4096], offset).expect("is at the pointer");
            walk.settle(0);
        }
        assert_eq!(
            (walk.next(Op::Write, 0, 0).expect("ends"), walk.counts().ended_early),
            (Step::Done, early)
        );
    }
}

#[test]
fn a_wait_that_nothing_ends_ends_early() {
    let drive = Drive::new(Make { zones: 1, ..MAKE });
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    let zones = Zones::default();
    let mut rng = Rng::new(1);
    let mut others = [(); 2].map(|()| Player::new(&zones, &device, &workload(Rw::RandWrite)));
    for _ in 0..16 {
        assert!(others[0].issue(&drive, &mut rng) && others[0].complete(&drive, &mut rng));
    }
    // As nobody does who is there.
    let table = zones.of(&device, &workload(Rw::RandWrite)).expect("fits");
    table.lock().keep(0, true);
    let announced = table.announce(0..ZONE);
    for _ in 0..3 {
        assert!(others.iter_mut().all(|other| !other.issue(&drive, &mut rng) && !other.is_done));
    }
    announced.withdraw();
    assert!(!others[0].issue(&drive, &mut rng), "the other may find something");
    let ended = |other: &mut Player| {
        let walk = other.walk.as_mut().expect("is there");
        let step = walk.next(Op::Write, 0, 0).expect("no failure");
        (step, walk.counts().ended_early)
    };
    let [first, second] = &mut others;
    assert_eq!([ended(second), ended(first)], [(Step::Wait, 0); 2]);
    assert_eq!(ended(second), (Step::Done, 1), "both have looked twice");
    second.walk.as_mut().expect("is there").retire();
    assert_eq!(ended(first).0, Step::Wait, "it looks at what has changed");
    table.lock().keep(0, false);
    assert!(matches!(ended(first), (Step::At(..), 0)));
}

#[test]
fn a_random_writer_waits_for_zones_that_are_kept_to_be_verified() {
    let drive = Drive::new(MAKE);
    let zones = Zones::default();
    let checked = Workload { verify: Some(Verify::Crc32c), iodepth: 2, ..for_requests(Rw::Write, u64::MAX) };
    let jobs = [
        job(&drive, &zones, &checked),
        job(&drive, &zones, &Workload { iodepth: 4, ..for_requests(Rw::RandWrite, 500) }),
    ];
    let outcome = run(&jobs, RunOptions::default()).expect("neither is lost");
    assert_eq!(drive.refused(), [""; 0]);
    let [verifying, writer] = &outcome.records[..] else { panic!("two records") };
    // The other has written some of its blocks into the zones of the first.
    assert_eq!(verifying.verified_blocks, verifying.total.ios);
    assert_eq!(writer.total.ios, 500);
    assert!(!writer.has_warning(WarningCode::Zones));
}

#[test]
fn what_cannot_go_on_ends_early_and_fails_only_if_nothing_was_moved() {
    let drive = Drive::new(Make { zones: 1, ..MAKE });
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    let zones = Zones::default();
    let mut rng = Rng::new(1);
    let checked = Workload { verify: Some(Verify::Crc32c), ..workload(Rw::Write) };
    let mut verifying = Player::new(&zones, &device, &checked);
    let mut other = Player::new(&zones, &device, &workload(Rw::RandWrite));
    assert!(other.issue(&drive, &mut rng) && other.complete(&drive, &mut rng));
    while verifying.issue(&drive, &mut rng) && !verifying.slots.iter().all(Option::is_none) {
        assert!(verifying.complete(&drive, &mut rng));
    }
    assert!(verifying.is_done, "the zone is full");
    let mut keeper = Player::new(&zones, &device, &workload(Rw::RandRead));
    let table = zones.of(&device, &checked).expect("fits");
    table.lock().keep(0, true);
    assert!(!other.issue(&drive, &mut rng) && !other.is_done, "the data are kept, but not for ever");
    table.lock().keep(0, false);
    assert!(keeper.issue(&drive, &mut rng) && keeper.complete(&drive, &mut rng));
    assert!(other.issue(&drive, &mut rng) && other.complete(&drive, &mut rng));
    // A job that verifies comes to zones that others of its kind have filled: nothing is left for it, and nothing is wrong.
    let mut filled = Player::new(&zones, &device, &checked);
    while filled.issue(&drive, &mut rng) && filled.complete(&drive, &mut rng) {}
    table.lock().keep(0, true);
    let mut late = Player::new(&zones, &device, &Workload { rw: Rw::RandWrite, ..checked.clone() });
    let walk = late.walk.as_mut().expect("is there");
    assert!(matches!(walk.next(Op::Write, 0, 0), Ok(Step::Done)));
    assert_eq!(walk.counts().ended_early, 1);
    table.lock().keep(0, false);
    // Another program has left as many zones partly written as the drive allows, and none in the region.
    let drive = Drive::new(Make { max_active: 2, ..MAKE });
    drive.leave_partly_written(0..2, 4096);
    let writes = over(4..8, for_requests(Rw::RandWrite, 100));
    let error = run(&[job(&drive, &Zones::default(), &writes)], RunOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "2 zones of /dev/zoned are open or partly written already, where 2 may be");
    assert_eq!((drive.finished(), drive.resets()), (0, 0), "they are another's");
}

#[test]
fn what_the_last_run_left_partly_written_is_no_obstacle_to_the_next() {
    for max_open_zones in [0, 1] {
        let drive = Drive::new(Make { max_open: 4, max_active: 4, ..MAKE });
        drive.leave_partly_written(0..4, 4096);
        let writes = Workload { max_open_zones, ..for_requests(Rw::RandWrite, 300) };
        let outcome = run(&[job(&drive, &Zones::default(), &writes)], RunOptions::default());
        let record = &outcome.expect("they are written further").records[0];
        assert_eq!((record.total.ios, drive.refused()), (300, Vec::new()), "{max_open_zones}");
    }
}

#[test]
fn of_several_limits_of_open_zones_the_least_holds_whoever_comes_first() {
    for limits in [[2, 3], [3, 2]] {
        let drive: Arc<dyn Device> = Drive::new(MAKE);
        let zones = Zones::default();
        let limited = |max_open_zones| Workload { max_open_zones, ..workload(Rw::RandWrite) };
        let tables = limits.map(|limit| zones.of(&drive, &limited(limit)).expect("fits"));
        let mut state = tables[0].lock();
        let walk = state.enter(0..8, true, false);
        let opened = (0..8).take_while(|at| {
            let may_open = state.may_take_place(walk, usize::MAX);
            if may_open {
                state.open(*at, walk);
            }
            may_open
        });
        assert_eq!(opened.count(), 2, "{limits:?}");
        drop(state);
        drop(tables);
        zones.of(&drive, &limited(3)).expect("the others are over");
    }
}

#[test]
fn a_reader_waits_for_those_only_that_write_in_its_zones() {
    let drive = Drive::new(MAKE);
    let zones = Zones::default();
    let writes = job(&drive, &zones, &over(0..4, for_requests(Rw::RandWrite, 2000)));
    for rw in [Rw::Read, Rw::RandRead] {
        let reads = job(&drive, &zones, &over(4..8, for_requests(rw, 10)));
        let error = run(&[writes.clone(), reads], RunOptions::default()).expect_err("nothing will be there");
        assert!(error.to_string().contains("no zone of the region"), "{error}");
    }
    let reads = job(&drive, &zones, &over(3..8, for_requests(Rw::RandRead, 10)));
    let outcome =
        run(&[writes, reads], RunOptions::default()).expect("waits for what is written in the fourth");
    assert_eq!(outcome.records[1].total.ios, 10);
    assert_eq!(drive.refused(), [""; 0]);
}

#[test]
fn what_reads_waits_for_writers_that_have_yet_to_begin_and_no_longer_if_they_never_will() {
    let drive = Drive::new(MAKE);
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    let zones = Zones::default();
    let mut rng = Rng::new(1);
    let mut reader = Player::new(&zones, &device, &over(0..4, workload(Rw::RandRead)));
    let table = zones.of(&device, &workload(Rw::Write)).expect("fits");
    let elsewhere = table.announce(4 * ZONE..8 * ZONE);
    let announced = table.announce(0..ZONE);
    assert!(!reader.issue(&drive, &mut rng) && !reader.is_done, "it waits");
    let mut writer = Player::new(&zones, &device, &workload(Rw::Write));
    announced.withdraw();
    assert!(!reader.issue(&drive, &mut rng) && !reader.is_done, "nothing is written yet");
    assert!(writer.issue(&drive, &mut rng) && writer.complete(&drive, &mut rng));
    assert!(reader.issue(&drive, &mut rng) && reader.complete(&drive, &mut rng));
    // A thread whose engine cannot be opened goes without a word.
    let mut other = Player::new(&zones, &device, &over(1..4, workload(Rw::RandRead)));
    writer.walk.as_mut().expect("is there").retire();
    let announced = table.announce(0..8 * ZONE);
    assert!(!other.issue(&drive, &mut rng) && !other.is_done, "it waits");
    drop(announced);
    assert!(other.issue(&drive, &mut rng) && other.is_done, "nobody will write there");
    drop(elsewhere);
}

#[test]
fn clearing_zones_ends_when_the_run_is_stopped() {
    let drive = Drive::new(MAKE);
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    drive.leave_partly_written(0..8, 4096);
    let zones = Zones::default();
    let checked = Workload { verify: Some(Verify::Crc32c), ..workload(Rw::Write) };
    let table = zones.of(&device, &checked).expect("fits");
    let region = regions_of(&table, &checked, device.size()).expect("is there")[0];
    // Between two zones.
    let looks = AtomicU32::new(0);
    let is_over = || looks.fetch_add(1, Ordering::Relaxed) >= 6;
    let mut walk = Walk::new(&table, &device, &checked, &region, 0);
    assert!(!walk.clear(&is_over).expect("resets some"));
    assert_eq!(drive.resets(), 6, "it is asked before each zone");
    // And in the midst of a wait for a read that does not end.
    let mut reader = Player::new(&zones, &device, &workload(Rw::RandRead));
    assert!(reader.issue(&drive, &mut Rng::new(1)));
    looks.store(0, Ordering::Relaxed);
    let is_over = || looks.fetch_add(1, Ordering::Relaxed) >= 12;
    assert!(!walk.clear(&is_over).expect("resets the others"));
    assert_eq!(drive.resets(), 6, "the next one is read");
    drop(walk);
    assert!(reader.complete(&drive, &mut Rng::new(1)));
    assert!(reader.issue(&drive, &mut Rng::new(1)), "no claim is left");
}

#[test]
fn a_trim_waits_for_reads_in_its_zone_and_none_begin_meanwhile() {
    let drive = Drive::new(MAKE);
    drive.leave_partly_written(0..1, 8192);
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    let zones = Zones::default();
    let mut rng = Rng::new(1);
    let mut reader = Player::new(&zones, &device, &Workload { iodepth: 2, ..workload(Rw::RandRead) });
    let mut trims = Player::new(&zones, &device, &Workload { bs: ZONE, ..workload(Rw::RandTrim) });
    assert!(reader.issue(&drive, &mut rng));
    assert!(!trims.issue(&drive, &mut rng), "a read is in flight");
    assert!(!reader.issue(&drive, &mut rng), "the zone is going to be trimmed");
    assert!(reader.complete(&drive, &mut rng));
    assert!(trims.issue(&drive, &mut rng) && trims.complete(&drive, &mut rng));
    assert_eq!((drive.resets(), drive.refused()), (1, Vec::new()));
}

#[test]
fn a_zone_of_which_the_drive_says_nothing_leaves_its_place_to_others() {
    let drive = Drive::new(Make { max_open: 1, ..MAKE });
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    let zones = Zones::default();
    let mut rng = Rng::new(1);
    let mut player = Player::new(&zones, &device, &workload(Rw::Write));
    assert!(player.issue(&drive, &mut rng));
    let (_, offset) = player.slots[0].take().expect("is in flight");
    drive.end(offset, true);
    drive.fall_silent();
    player.walk.as_mut().expect("is there").fail(0);
    assert!(player.issue(&drive, &mut rng), "the next zone is opened");
    assert_eq!(player.slots[0].expect("is in flight").1, ZONE);
}

#[test]
fn a_run_after_a_request_without_an_answer_asks_the_drive_anew() {
    let drive = Drive::new(MAKE);
    let device: Arc<dyn Device> = Arc::clone(&drive) as Arc<dyn Device>;
    let zones = Zones::default();
    let mut rng = Rng::new(1);
    let mut stuck = Player::new(&zones, &device, &workload(Rw::Write));
    let mut other = Player::new(&zones, &device, &workload(Rw::Write));
    assert!(stuck.issue(&drive, &mut rng) && !other.issue(&drive, &mut rng));
    zones.of(&device, &workload(Rw::Write)).expect("fits").lose();
    let next = other.walk.as_mut().expect("is there").next(Op::Write, 0, 0);
    assert!(matches!(next, Err(ZoneError::Lost { .. })), "{next:?}");
    drive.end(0, true);
    let mut later = Player::new(&zones, &device, &workload(Rw::Write));
    assert!(later.issue(&drive, &mut rng) && later.complete(&drive, &mut rng));
    // What comes of the first one does not matter any more.
    stuck.slots[0] = None;
    assert_eq!(drive.refused(), [""; 0]);
}

#[test]
fn a_shorter_last_zone_bounds_no_block() {
    let drive = Drive::new(Make { last_bytes: 8192, ..MAKE });
    let writes = Workload { bs: 16 << 10, loops: 1, ..for_requests(Rw::Write, u64::MAX) };
    let outcome = run(&[job(&drive, &Zones::default(), &writes)], RunOptions::default()).expect("fits");
    assert_eq!(outcome.records[0].total.write_bytes, 7 * ZONE);
    let filled = drive.zones_now().iter().filter(|zone| zone.condition == ZoneCondition::Full).count();
    assert_eq!((filled, drive.refused()), (7, Vec::new()));
}

#[test]
fn zones_are_given_back_whole_whatever_the_pieces() {
    let drive = Drive::new(Make { last_bytes: 8192, ..MAKE });
    let device: &dyn Device = &*drive;
    let pieces = |range, most| discard_pieces(device, range, most).collect::<Vec<_>>();
    // A piece that is less than a zone would be refused.
    for (most, expected) in [(4096, 8), (ZONE, 8), (ZONE + 4096, 8), (3 * ZONE, 3), (1 << 30, 1)] {
        let all = pieces(0..drive.size(), most);
        assert_eq!(all.len(), expected, "{most}");
        for piece in all {
            device.discard(piece.start, piece.end - piece.start).expect("are whole zones");
        }
    }
    assert_eq!(drive.refused(), [""; 0]);
    let inside = whole_zones(device, 4096..drive.size() - 1);
    assert_eq!(inside, ZONE..7 * ZONE, "what is half outside is not given back");
    assert_eq!(whole_zones(device, ZONE..drive.size()), ZONE..drive.size());
    assert!(whole_zones(device, 4096..8192).is_empty());
}

#[test]
fn zones_without_number_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("large");
    std::fs::File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    let options = OpenOptions { direct: false, allow_unwritten: true, ..OpenOptions::default() };
    let device = storage::device::open(&path.display().to_string().parse().expect("a spec"), &options);
    let device = device.expect("opens");
    let tiny = Workload { zonesize: Some(4096), ..workload(Rw::Read) };
    let error = BenchError::from(Zones::default().of(&device, &tiny).expect_err("2^28 zones"));
    assert!(error.to_string().contains("would have 268435456 zones"), "{error}");
    assert!(error.is_about_the_request() && error.hint().is_some());
    let large = Workload { zonesize: Some(256 << 20), ..tiny };
    Zones::default().of(&device, &large).expect("4096 zones");
}

#[test]
fn holes_below_the_pointers_of_zones_are_not_read_as_data() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("zones");
    let spec = format!("file:{}?size=1m", path.display());
    let zoned = |rw, requests| Workload { zonesize: Some(ZONE), direct: false, ..for_requests(rw, requests) };
    let mut target = BenchTarget::new(&spec, TargetOptions::default()).expect("a spec");
    let reads = |target: &mut BenchTarget| target.run_once(&zoned(Rw::RandRead, 8), RunOptions::default());
    target.run_once(&zoned(Rw::Write, 32), RunOptions::default()).expect("writes");
    reads(&mut target).expect("reads what was written");
    // Another program gives a zone back.
    let options = OpenOptions { destroy: vec![path.clone()], direct: false, ..OpenOptions::writing() };
    let device = storage::device::open(&path.display().to_string().parse().expect("a spec"), &options);
    device.expect("opens").discard(ZONE, ZONE).expect("makes a hole");
    match reads(&mut target) {
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("never written") || error.contains("holes"), "{error}");
        }
        // Of a file in memory the kernel does not say where its holes are.
        Ok(outcome) => assert!(outcome.records[0].target.is_file_in_memory()),
    }
    // What this program gives back past the zones holds nothing any more.
    target.run_once(&zoned(Rw::Write, 32), RunOptions::default()).expect("writes");
    let trims =
        Workload { zonemode: ZoneMode::Strided, direct: false, bs: ZONE, ..for_requests(Rw::Trim, 16) };
    target.run_once(&trims, RunOptions::default()).expect("trims");
    let error = reads(&mut target).expect_err("all is a hole").to_string();
    assert!(error.contains("no zone of the region"), "{error}");
}

#[test]
fn zones_larger_than_any_drive_are_refused_without_an_overflow() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("data");
    std::fs::File::create(&path).and_then(|file| file.set_len(4 << 20)).expect("a sparse file");
    let options = OpenOptions { direct: false, allow_unwritten: true, ..OpenOptions::default() };
    let device = storage::device::open(&path.display().to_string().parse().expect("a spec"), &options);
    let device = device.expect("opens");
    let zonesize = Some(18_446_744_073_709_547_520);
    let huge = Workload { zonesize, offset: 1 << 20, numjobs: 3, ..workload(Rw::Read) };
    let table = Zones::default().of(&device, &huge).expect("no zone at all");
    regions_of(&table, &huge, device.size()).expect_err("too small");
}

/// A job that ignores the drive's limits lifts none for the others.
#[test]
fn of_several_limits_of_partly_written_zones_the_least_holds_whoever_comes_first() {
    for limits in [[2, usize::MAX], [usize::MAX, 2]] {
        let mut state = super::super::state::State::new(&[]);
        limits.into_iter().for_each(|limit| state.admit(4096, limit, limit));
        assert_eq!(state.partly_written(), (0, 2), "{limits:?}");
    }
}
