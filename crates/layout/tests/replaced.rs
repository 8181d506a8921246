//! Another drive takes the name of one that was named, before any single call: nothing is written to it.

mod world;

use layout::{ErrorClass, LayoutError, LayoutSpec, Layouts, Permits, Stop, undo_on};
use world::{ARRAY, SWAPPED, Swap, World};

/// A layout of each kind, from one to the next, so that taking down is gone through as well.
const WAYS: [[&str; 2]; 4] = [
    [
        "separate(filesystem=xfs,scheduler=kyber):/dev/nvme0n1,/dev/nvme1n1",
        "separate(filesystem=f2fs,nr_requests=64):/dev/nvme1n1,/dev/nvme0n1",
    ],
    [
        "btrfs-raid0(scheduler=mq-deadline,nr_requests=64):/dev/nvme0n1,/dev/nvme1n1",
        "separate(filesystem=ext4):/dev/nvme1n1",
    ],
    [
        "md-raid0(chunk=64k,filesystem=xfs,read_ahead_kb=512):/dev/nvme0n1,/dev/nvme1n1",
        "single(scheduler=bfq):/dev/nvme1n1",
    ],
    [
        "lvm-stripe(chunk=64k,filesystem=ext4):/dev/nvme0n1,/dev/nvme1n1",
        "single(read_ahead_kb=0):/dev/nvme1n1",
    ],
];

/// Goes the way with the contents of both drives given up, and takes it down.
fn go(world: &World, way: [&str; 2], at: u64, swap: Swap) -> Result<(), LayoutError> {
    let destroy = vec!["/dev/nvme0n1".into(), "/dev/nvme1n1".into()];
    let mut layouts =
        Layouts::open_on(world.swapping(at, swap), &world.state, Permits { destroy }, Stop::default())
            .expect("opens");
    let made = way.iter().try_for_each(|text| {
        let spec = LayoutSpec::parse(text).expect(text);
        layouts.switch(&spec).map(drop)
    });
    made.and_then(|()| layouts.down().map(drop))
}

fn check(way: [&str; 2]) {
    for swap in [Swap::Node, Swap::Disk] {
        let (mut at, mut tried, mut refused) = (0, 0, 0);
        loop {
            let world = World::new();
            // An old file system, which was given up: it is wiped before anything is made.
            let mut old = std::fs::read(world.at("dev/nvme1n1")).unwrap();
            old[..4].copy_from_slice(b"XFSB");
            std::fs::write(world.at("dev/nvme1n1"), old).unwrap();
            let queue = world.queue(SWAPPED);
            let went = go(&world, way, at + 1, swap);
            let Some(swapped) = world.swapped() else { break };
            (at, tried) = (swapped, tried + 1);
            refused += u64::from(went.is_err_and(|error| error.class() == ErrorClass::Refused));
            let _ = undo_on(world.process(None).as_mut(), &world.state, &Stop::default(), &mut |_| {}, true);
            let when = format!("{way:?}, {swap:?} before call {at}");
            assert!(std::fs::read(world.at("dev/nvme1n1")).unwrap() == World::intruder(), "{when}");
            assert!(swap == Swap::Node || world.queue(SWAPPED) == queue, "{when}");
        }
        // A disk that is locked is open, from before it is looked at to the end.
        let least = if swap == Swap::Node { 40 } else { 1 };
        assert!(tried >= least, "{way:?}, {swap:?}: only {tried} were tried");
        // The others are swapped when nothing is left to do with them, or when what was done is undone.
        assert!(refused * 2 > tried, "{way:?}, {swap:?}: only {refused} of {tried} were refused");
    }
}

#[test]
fn a_drive_that_takes_the_name_of_another_below_file_systems_is_not_written() {
    check(WAYS[0]);
    check(WAYS[1]);
}

#[test]
fn a_drive_that_takes_the_name_of_another_below_an_array_is_not_written() {
    check(WAYS[2]);
}

#[test]
fn a_drive_that_takes_the_name_of_another_below_a_volume_is_not_written() {
    check(WAYS[3]);
}

#[test]
fn an_array_that_takes_the_name_of_another_before_that_is_held_is_not_written() {
    let (mut at, mut tried) = (0, 0);
    loop {
        let world = World::new();
        let went = go(&world, WAYS[2], at + 1, Swap::Array);
        let Some(swapped) = world.swapped() else { break };
        (at, tried) = (swapped, tried + 1);
        let _ = undo_on(world.process(None).as_mut(), &world.state, &Stop::default(), &mut |_| {}, true);
        // Right before `mdadm --stop` the other array is stopped, which loses nothing.
        let found = std::fs::read(world.at(format!("dev/{ARRAY}"))).ok();
        assert!(found.is_none_or(|found| found == World::other_array()), "before call {at}: {went:?}");
    }
    assert!(tried > 0);
}

#[test]
fn a_mount_that_shows_another_drive_is_undone_and_refused() {
    for text in [
        "single(filesystem=xfs):/dev/nvme0n1",
        "single(filesystem=ext4):/dev/nvme0n1",
        "separate(filesystem=f2fs):/dev/nvme0n1,/dev/nvme1n1",
        "btrfs-raid0:/dev/nvme0n1,/dev/nvme1n1",
        "md-raid0(chunk=64k,filesystem=xfs):/dev/nvme0n1,/dev/nvme1n1",
    ] {
        let world = World::new();
        std::fs::write(world.at("dev/nvme3n1"), World::intruder()).unwrap();
        let before = world.everything();
        let mut layouts =
            Layouts::open_on(world.mounting("nvme3n1"), &world.state, Permits::default(), Stop::default())
                .expect("opens");
        let error = layouts.switch(&LayoutSpec::parse(text).expect(text)).expect_err(text);
        assert!(matches!(error, LayoutError::Replaced { .. }), "{text}: {error}");
        assert_eq!(error.class(), ErrorClass::Refused);
        assert!(!world.text("proc/self/mountinfo").contains("/state/mount-"), "{text}: unmounted at once");
        layouts.down().expect("down");
        assert_eq!(world::difference(&before, &world.everything()), [""; 0], "{text}");
    }
}
