//! What is granted, what is refused and why, how long it lasts, and what is named for eviction.

use super::*;

#[test]
fn what_does_not_fit_is_refused_before_its_first_byte() {
    let f = fixture(100, 60, 1000);
    let first = f.reserve("a", ALICE, "ckpt-1", 50).unwrap();
    assert_eq!(first.directory.0, f.at("tier/a/1000/ckpt-1"));
    assert_eq!(fs::read_dir(&first.directory.0).unwrap().count(), 0);
    for (owner, name, blocks, why) in [
        (ALICE, "ckpt-2", 20, "user 1000 has 0 B used and 200 KiB reserved of 240 KiB"),
        (BOB, "ckpt-2", 60, "no room for 240 KiB in pool a: 0 B used and 200 KiB reserved of 400 KiB"),
        (BOB, "x", 61, "will never fit"),
        (ALICE, "ckpt-1", 1, "there already"),
    ] {
        let message = f.refused("a", owner, name, blocks);
        assert!(message.contains(why), "{message}");
    }
    assert!(!f.at("tier/a/1001").exists());
    f.reserve("a", BOB, "ckpt-2", 50).unwrap();
}

#[test]
fn what_is_written_counts_once_while_it_is_reserved_and_once_after() {
    let f = fixture(100, 100, 1000);
    let reservation = f.reserve("a", ALICE, "s", 50).unwrap();
    write(&reservation, "x", 30);
    f.clock.pass(REMEMBERED);
    let status = f.status("a");
    assert_eq!((status.used, status.reserved), (30 * BLOCK, 20 * BLOCK));
    assert_eq!(status.reservations[0].used, 30 * BLOCK);
    // Written after the walk that is remembered, and released: the walk is forgotten with it.
    write(&reservation, "y", 20);
    f.pools.release(reservation.id, ALICE).unwrap();
    let status = f.status("a");
    assert_eq!((status.used, status.reserved), (50 * BLOCK, 0));
    assert_eq!(status.sets[0].bytes, 50 * BLOCK);
    f.refused("a", BOB, "t", 51);
    f.reserve("a", BOB, "t", 50).unwrap();
    f.pools.release(reservation.id, ALICE).unwrap();
}

#[test]
fn pools_of_one_file_system_do_not_promise_the_same_room() {
    let f = fixture(100, 100, 120);
    f.reserve("a", ALICE, "s", 80).unwrap();
    let message = f.refused("b", BOB, "t", 60);
    assert!(message.contains("480 KiB free, of which 320 KiB are reserved"), "{message}");
    f.reserve("b", BOB, "t", 40).unwrap();
}

#[test]
fn a_reservation_lasts_a_day_unless_it_is_renewed() {
    let f = fixture(100, 100, 1000);
    let reservation = f.reserve("a", ALICE, "s", 80).unwrap();
    f.clock.pass(LEASE / 2);
    assert!(f.pools.renew(reservation.id, ALICE).unwrap());
    assert!(f.pools.renew(reservation.id, BOB).is_err());
    f.clock.pass(LEASE / 2 + Duration::from_secs(1));
    f.refused("a", BOB, "t", 90);
    f.clock.pass(LEASE / 2);
    f.reserve("a", BOB, "t", 90).unwrap();
    assert!(!f.pools.renew(reservation.id, ALICE).unwrap());
}

#[test]
fn a_clock_that_is_set_neither_ends_a_reservation_nor_prolongs_it() {
    let f = fixture(100, 100, 1000);
    let reservation = f.reserve("a", ALICE, "s", 80).unwrap();
    for jump in [25 * 3600, -48 * 3600, 7 * 3600] {
        f.clock.set(jump);
        f.clock.pass(LEASE / 4);
        let left = f.status("a").reservations[0].expires - f.clock.now().wall.as_secs();
        assert!(left > 0 && left < LEASE.as_secs(), "{left}");
        assert!(reserve(&f.reopened(), "a", BOB, "t", 30).is_err());
    }
    f.clock.set(-1_000_000);
    f.clock.pass(LEASE / 4);
    f.reserve("a", BOB, "t", 100).unwrap();
    assert!(!f.pools.renew(reservation.id, ALICE).unwrap());
}

#[test]
fn after_a_restart_with_a_clock_that_went_back_a_reservation_lasts_a_day_at_most() {
    let f = fixture(100, 100, 1000);
    f.reserve("a", ALICE, "s", 80).unwrap();
    f.clock.set(-1_000_000);
    f.clock.reboot();
    f.refused("a", BOB, "t", 30);
    f.clock.pass(LEASE - Duration::from_secs(60));
    f.refused("a", BOB, "t", 30);
    f.clock.pass(Duration::from_secs(60));
    f.reserve("a", BOB, "t", 30).unwrap();
}

#[test]
fn another_process_sees_what_is_reserved_and_so_does_the_next_start() {
    let f = fixture(100, 100, 1000);
    let other = f.reopened();
    let reservation = f.reserve("a", ALICE, "s", 80).unwrap();
    assert!(reserve(&other, "a", BOB, "t", 30).is_err());
    let other = f.reopened();
    assert_eq!(status(&other, "a").reservations[0].id, reservation.id);
    assert!(other.release(reservation.id, BOB).is_err());
    other.release(reservation.id, ALICE).unwrap();
    f.reserve("a", BOB, "t", 100).unwrap();
}

#[test]
fn a_request_that_waits_ends_when_its_time_is_up_or_nobody_wants_it() {
    let f = fixture(100, 100, 1000);
    f.reserve("a", ALICE, "s", 80).unwrap();
    let begun = f.clock.now().steady;
    let hour = Duration::from_secs(3600);
    let wish = wish("a", "t", 30, Some(hour));
    let error = f.pools.reserve(&wish, BOB, &|| true).unwrap_err();
    assert!(error.to_string().ends_with("(it was waited for)"), "{error}");
    assert_eq!(f.clock.now().steady - begun, hour);
    let asked = std::cell::Cell::new(0);
    let wanted = || {
        asked.set(asked.get() + 1);
        asked.get() < 3
    };
    let error = f.pools.reserve(&wish, BOB, &wanted).unwrap_err();
    assert!(matches!(error, StageError::Stopped { .. }), "{error}");
    assert_eq!((asked.get(), f.status("a").waiting), (3, 0));
}

#[test]
fn requests_that_wait_are_woken_by_a_release_in_the_order_in_which_they_came() {
    let f = fixture(100, 100, 1000);
    let pools = Pools::open(&f.at("pools.toml"), &f.at("ledger")).unwrap();
    let hold = reserve(&pools, "a", ALICE, "s", 100).unwrap();
    let waits = |n: u64| {
        while status(&pools, "a").waiting != n {
            std::thread::yield_now();
        }
    };
    let waiting = |name, blocks| {
        let wish = wish("a", name, blocks, Some(Duration::from_secs(3600)));
        pools.reserve(&wish, ALICE, &|| true)
    };
    std::thread::scope(|scope| {
        let large = scope.spawn(|| waiting("large", 90));
        waits(1);
        let small = scope.spawn(|| waiting("small", 20));
        waits(2);
        let figures = &pools.figures().unwrap()[0];
        assert_eq!((figures.waiting, figures.waiting_bytes), (2, 110 * BLOCK));
        let hasty = reserve(&pools, "a", ALICE, "hasty", 1).unwrap_err();
        assert!(hasty.to_string().contains("2 other requests wait"), "{hasty}");
        pools.release(hold.id, ALICE).unwrap();
        let large = large.join().unwrap().unwrap();
        assert!(!small.is_finished());
        pools.release(large.id, ALICE).unwrap();
        small.join().unwrap().unwrap();
    });
}

#[test]
fn the_oldest_sets_that_may_go_are_named_until_there_is_room_enough() {
    let f = fixture(100, 100, 1000);
    for number in 0..9 {
        let reservation = f.reserve("a", ALICE, &format!("ckpt-{number}"), 10).unwrap();
        write(&reservation, "data", 10);
        let time =
            fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1000 + number));
        fs::File::open(&reservation.directory.0).unwrap().set_times(time).unwrap();
        if number != 1 {
            f.pools.release(reservation.id, ALICE).unwrap();
        }
    }
    let status = f.status("a");
    assert!(status.over);
    let names = |sets: &[SetStatus]| -> Vec<String> {
        sets.iter().map(|set| set.path.0.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    };
    // 90 of 100 are used; 50 is the low watermark. ckpt-1 has a reservation on it, ckpt-2 is not durable.
    let wanted = status.used + status.reserved - status.low;
    let but_the_third =
        |set: &Path| Ok(set.ends_with("ckpt-2").then(|| "its slow copy is not durable yet".to_owned()));
    let eviction = status.eviction(wanted, &but_the_third);
    assert_eq!(names(&eviction.go), ["ckpt-0", "ckpt-3", "ckpt-4", "ckpt-5"]);
    assert_eq!((eviction.wanted, eviction.found), (40 * BLOCK, 40 * BLOCK));
    assert!(eviction.stay.is_empty());
    let eviction = status.eviction(wanted, &|_| Ok(Some("the slow tier is not there".to_owned())));
    assert!(eviction.go.is_empty());
    assert_eq!(eviction.stay.len(), 9);
    assert!(eviction.stay[1].1.contains("being written"));
    assert_eq!(eviction.stay[2].1, "the slow tier is not there");
    assert_eq!(status.eviction(0, &|_| Ok(None)), Eviction::default());
}

#[test]
fn a_name_that_leads_elsewhere_is_no_name() {
    let f = fixture(100, 100, 1000);
    for label in ["", ".", "..", "a/b", "../x", ".hidden", "a\nb", &"x".repeat(201)] {
        let error = f.reserve("a", ALICE, label, 1).unwrap_err();
        assert_eq!(error.class(), stage::ErrorClass::Invalid, "{label}");
    }
    assert!(f.reserve("c", ALICE, "x", 1).unwrap_err().hint().unwrap().contains("a, b"));
    // A link in the user's place is not followed, and the reservation is given back.
    let outside = f.at("outside");
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, f.at("tier/a/1000")).unwrap();
    assert!(f.reserve("a", ALICE, "x", 1).is_err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert!(f.status("a").reservations.is_empty());
}

#[test]
fn links_out_of_a_pool_and_second_names_do_not_count() {
    let f = fixture(100, 100, 1000);
    let reservation = f.reserve("a", ALICE, "s", 50).unwrap();
    let outside = f.at("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("big"), vec![1; 1 << 20]).unwrap();
    write(&reservation, "x", 10);
    let inside = &reservation.directory.0;
    fs::hard_link(inside.join("x"), inside.join("y")).unwrap();
    std::os::unix::fs::symlink(&outside, inside.join("z")).unwrap();
    f.clock.pass(REMEMBERED);
    let used = f.status("a").used;
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
fn figures_are_of_late_and_know_every_reservation() {
    let f = fixture(100, 100, 1000);
    let reservation = f.reserve("a", ALICE, "s", 80).unwrap();
    let figures = |f: &Fixture| f.pools.figures().unwrap().remove(0);
    assert_eq!((figures(&f).used, figures(&f).reserved), (0, 80 * BLOCK));
    write(&reservation, "data", 50);
    f.pools.release(reservation.id, ALICE).unwrap();
    f.clock.pass(Duration::from_secs(60));
    let now = figures(&f);
    assert_eq!((now.used, now.reserved, now.reservations.len()), (50 * BLOCK, 0, 0));
    assert_eq!((now.quota, now.high, now.low), (100 * BLOCK, 80 * BLOCK, 50 * BLOCK));
    // What is seen now counts for a while; reservations are always those of the ledger.
    let other = f.reserve("a", BOB, "t", 20).unwrap();
    write(&other, "data", 10);
    assert_eq!((figures(&f).reserved, figures(&f).reservations.len()), (20 * BLOCK, 1));
    f.clock.pass(Duration::from_secs(60));
    assert_eq!((figures(&f).used, figures(&f).reserved), (60 * BLOCK, 10 * BLOCK));
}
