//! How a set gets its name where renameat2(2) does not know RENAME_NOREPLACE: by link(2), by a claim, and where there are
//! no links by rename(2).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::io::Errno;
use stage::fault::Call;
use stage::names::PathText;
use stage::{ErrorClass, JobStatus, State, Verb};

use crate::child::{Change, Ended, Hit, Order, Strike, run};
use crate::tree::{differences, snapshot};
use crate::world::{Scenario, World};

/// The copy of a world without `latest`, on a file system without RENAME_NOREPLACE.
fn copy(world: &mut World) -> Order {
    world.spec.options.latest = false;
    let mut order = Order::to(&world.state, &world.spec);
    order.lacks_noreplace = true;
    order
}

fn is_done(job: &JobStatus, done: &str) {
    assert_eq!((job.state, &job.error), (State::Done, &None), "{done}: {job:?}");
}

/// A copy that was killed between its claim and the rename over it.
fn claimed() -> (World, Order) {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    let order = copy(&mut world);
    let kill = Strike::nth_of(Call::Renameat, 1, Hit::Kill);
    assert!(matches!(run(&order.clone().strike([kill])), Ended::Killed));
    let mode = fs::metadata(&world.destination).expect("the name is claimed").mode();
    assert_eq!(mode & 0o7777, 0o1700);
    (world, order)
}

#[test]
fn a_claim_that_a_crash_left_is_taken_over_by_another_mover_of_the_same_user() {
    for is_local in [false, true] {
        let (world, order) = claimed();
        let mut other = order.clone();
        other.lacks_noreplace = !is_local;
        other.state = world.fast().join("another journal");
        is_done(run(&other).told().job(), "the other mover");
        // The first one finds an equal copy, and removes its part.
        is_done(run(&order).told().job(), "the first mover");
        world.must(&format!("taken over, local: {is_local}"), world.check_end());
    }
}

#[test]
fn a_claim_whose_mode_or_owner_the_file_system_does_not_keep_is_refused_until_it_is_removed() {
    // CIFS without POSIX extensions shows another mode, an export with all_squash another owner.
    let other_mode = |world: &World| {
        fs::set_permissions(&world.destination, fs::Permissions::from_mode(0o755)).unwrap();
        true
    };
    let other_owner = |world: &World| {
        let changed = std::os::unix::fs::chown(&world.destination, Some(65_534), Some(65_534));
        if let Err(error) = &changed {
            println!("SKIP a claim of another owner: {error}");
        }
        changed.is_ok()
    };
    for change in [&other_mode as &dyn Fn(&World) -> bool, &other_owner] {
        let (world, mut order) = claimed();
        if !change(&world) {
            continue;
        }
        let before = fs::metadata(&world.destination).unwrap();
        let job = run(&order).told().job().clone();
        assert_eq!(job.error.as_ref().map(|why| why.class), Some(ErrorClass::Refused), "{job:?}");
        let after = fs::metadata(&world.destination).unwrap();
        assert_eq!((after.ino(), after.mode(), after.uid()), (before.ino(), before.mode(), before.uid()));
        fs::remove_dir(&world.destination).unwrap();
        order.retry = true;
        is_done(run(&order).told().job(), "with the directory removed");
        world.must("with the directory removed", world.check_end());
    }
}

#[test]
fn an_empty_directory_that_replaces_a_claim_is_lost_to_the_set_and_a_filled_one_is_not() {
    for is_empty in [true, false] {
        let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
        let theirs = world.slow().join("theirs");
        fs::create_dir(&theirs).unwrap();
        if !is_empty {
            fs::write(theirs.join("thesis"), b"the only copy").unwrap();
        }
        let strike = Strike::nth_of(Call::Renameat, 1, Hit::Meanwhile);
        let rename = Change::Rename { from: PathText(theirs), to: PathText(world.destination.clone()) };
        let report = run(&copy(&mut world).strike([strike]).meanwhile([rename])).told();
        assert_eq!((report.fired, &report.change_failed), (1, &None));
        if is_empty {
            is_done(report.job(), "an empty directory");
            world.must("an empty directory", world.check_end());
        } else {
            let class = report.job().error.as_ref().map(|why| why.class);
            assert_eq!(class, Some(ErrorClass::Refused), "{:?}", report.jobs);
            assert_eq!(fs::read(world.destination.join("thesis")).unwrap(), b"the only copy");
        }
    }
}

#[test]
fn where_there_are_no_links_a_file_is_renamed_to_a_name_that_is_free() {
    for errno in [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::MLINK] {
        let no_link = Strike::nth_of(Call::Linkat, 0, Hit::Errno(errno.raw_os_error()));
        let take = |world: &World| Change::Create {
            path: world.destination.as_path().into(),
            content: b"of another program".into(),
        };

        let mut world = World::new(Scenario::Small, Verb::Move);
        let report = run(&copy(&mut world).strike([no_link.clone()])).told();
        assert_eq!(report.fired, 1, "{errno:?}");
        is_done(report.job(), "a free name");
        world.must(&format!("{errno:?}, a free name"), world.check_end());

        let mut world = World::new(Scenario::Small, Verb::Move);
        let taken = Strike::nth_of(Call::Linkat, 0, Hit::Meanwhile);
        let order = copy(&mut world).strike([taken, no_link.clone()]).meanwhile([take(&world)]);
        let job = run(&order).told().job().clone();
        assert_eq!(job.error.as_ref().map(|why| why.class), Some(ErrorClass::Refused), "{errno:?}: {job:?}");
        assert_eq!(fs::read(&world.destination).unwrap(), b"of another program", "{errno:?}");
        let source = snapshot(&world.source).unwrap().expect("the source is there");
        world.must(&format!("{errno:?}, taken"), differences(&world.before, &source));

        // The window: between stat(2) and rename(2).
        let mut world = World::new(Scenario::Small, Verb::Move);
        let late = Strike::nth_of(Call::Renameat, 1, Hit::Meanwhile);
        let absent = Change::Absent { path: world.destination.as_path().into() };
        let order = copy(&mut world).strike([no_link, late]).meanwhile([absent, take(&world)]);
        let report = run(&order).told();
        assert_eq!((report.fired, &report.change_failed), (2, &None), "{errno:?}");
        is_done(report.job(), "taken between the two calls");
        world.must(&format!("{errno:?}, taken between the two calls"), world.check_end());
    }
}

#[test]
fn the_directory_of_a_destination_is_synced_again_only_after_the_copy_was_read_back() {
    for is_rotten in [false, true] {
        let mut world = World::new(Scenario::Checkpoint, Verb::Move);
        world.spec.options.latest = false;
        let calls = run(&Order::to(&world.state, &world.spec)).told().calls;
        let named = calls.iter().rposition(|name| name == "Renameat").expect("it is published");
        let nth = calls[..named].iter().filter(|name| *name == "Fsync").count() as u64;

        let mut world = World::new(Scenario::Checkpoint, Verb::Move);
        world.spec.options.latest = false;
        let hit = |hit| Strike::nth_of(Call::Fsync, nth, hit);
        let mut order =
            Order::to(&world.state, &world.spec).strike([hit(Hit::Errno(Errno::IO.raw_os_error()))]);
        if is_rotten {
            let rot = Change::Rot { below: PathText(world.slow().to_owned()), name: "rank-1".to_owned() };
            order = order.strike([hit(Hit::Meanwhile)]).meanwhile([rot]);
        }
        let report = run(&order).told();
        assert_eq!((report.fired, &report.change_failed), (1 + u64::from(is_rotten), &None));
        let after = report.calls.iter().rposition(|name| name == "Renameat").expect("it is published");
        let mut calls = report.calls[after..].iter();
        assert!(calls.any(|name| name == "Fsync") && calls.any(|name| name == "Read"), "{:?}", report.calls);
        assert_eq!(calls.any(|name| name == "Fsync"), !is_rotten, "{:?}", report.calls);
        if is_rotten {
            assert_eq!(report.job().state, State::Failed, "{:?}", report.jobs);
            let source = snapshot(&world.source).unwrap().expect("the source is there");
            world.must("a copy that rotted", differences(&world.before, &source));
        } else {
            is_done(report.job(), "synced again");
            world.must("synced again", world.check_end());
        }
    }
}
