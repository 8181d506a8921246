//! The power fails before, in the middle of and after each single change; `undo` brings back what was there.

mod world;

use std::path::Path;

use layout::{LayoutError, LayoutSpec, Layouts, Permits, Stop, undo_on};
use world::{Moment, World, difference};

/// A way through layouts that goes through every kind of change.
const WAY: [&str; 9] = [
    "single(scheduler=mq-deadline,nr_requests=64,read_ahead_kb=0):/dev/nvme0n1",
    "md-raid0(chunk=64k,filesystem=xfs,scheduler=kyber,read_ahead_kb=4096):/dev/nvme0n1,/dev/nvme1n1",
    "md-raid0(chunk=64k,filesystem=xfs,mount_options=noatime,scheduler=bfq):/dev/nvme0n1,/dev/nvme1n1",
    "md-raid0(chunk=64k,filesystem=ext4,nomerges=2,wbt_lat_usec=0):/dev/nvme0n1,/dev/nvme1n1",
    "md-raid0(chunk=128k):/dev/nvme0n1,/dev/nvme1n1,/dev/nvme2n1",
    "separate(filesystem=f2fs,irq_cpus=spread):/dev/nvme2n1,/dev/nvme3n1",
    "btrfs-raid0(scheduler=mq-deadline,write_cache=write through):/dev/nvme0n1,/dev/nvme1n1",
    "lvm-stripe(chunk=64k,filesystem=xfs,read_ahead_kb=512):/dev/nvme1n1,/dev/nvme2n1",
    "stripe(scheduler=bfq,iostats=0):/dev/nvme0n1,/dev/nvme3n1",
];

fn specs(way: &[&str]) -> Vec<LayoutSpec> {
    way.iter().map(|text| LayoutSpec::parse(text).expect(text)).collect()
}

/// Goes the way as far as the power lasts.
fn go(world: &World, end: Option<(u64, Moment)>, way: &[LayoutSpec], down: bool) -> Result<(), LayoutError> {
    let mut layouts =
        Layouts::open_on(world.process(end), &world.state, Permits::default(), Stop::default())?;
    for spec in way {
        layouts.switch(spec)?;
        assert_eq!(layouts.check()?, [], "{spec}");
    }
    if down {
        layouts.down()?;
    }
    Ok(())
}

fn undo(world: &World, end: Option<(u64, Moment)>) -> Result<Vec<String>, LayoutError> {
    undo_on(world.process(end).as_mut(), &world.state, &Stop::default(), &mut |_| {}, false)
        .map(|undone| undone.undone)
}

/// An administrator had settings of his own.
fn administered() -> World {
    let world = World::new();
    world.file("sys/block/nvme0n1/queue/nr_requests", "31\n");
    world.file("sys/block/nvme1n1/queue/read_ahead_kb", "256\n");
    world.file("sys/block/nvme1n1/queue/scheduler", "none [mq-deadline] kyber bfq\n");
    world.file("sys/block/nvme1n1/queue/nr_requests", "99\n");
    world.file("sys/block/nvme1n1/queue/iosched/read_expire", "77\n");
    world
}

#[test]
fn a_way_through_all_layouts_leaves_nothing_behind() {
    let world = administered();
    let before = world.everything();
    go(&world, None, &specs(&WAY), true).expect("goes");
    assert_eq!(difference(&before, &world.everything()), [""; 0]);
    go(&world, None, &specs(&WAY), false).expect("goes, and its end takes all down");
    assert_eq!(difference(&before, &world.everything()), [""; 0]);
}

#[test]
fn undo_after_death_at_any_change_brings_back_every_byte() {
    let way = specs(&WAY);
    // Each layout and the step to the next one, so that every kind of change and of going on is died in.
    let tried: usize = std::thread::scope(|scope| {
        let pairs: Vec<_> = way.windows(2).map(|pair| scope.spawn(|| undo_after_each_death(pair))).collect();
        pairs.into_iter().map(|pair| pair.join().expect("all is undone")).sum()
    });
    assert!(tried > 500, "only {tried} deaths were tried");
}

/// Dies at each change on the way from the first layout to the second, in a world of its own, and undoes it; how many
/// deaths there were.
fn undo_after_each_death(pair: &[LayoutSpec]) -> usize {
    let world = administered();
    let before = world.everything();
    let mut tried = 0;
    go(&world, None, pair, true).expect("goes");
    let ((_, changes), halves) = (world.died(), world.halves());
    for (at, moment) in (1..=changes).flat_map(|at| MOMENTS.map(|moment| (at, moment))) {
        if moment == Moment::Half && !halves.contains(&at) {
            continue;
        }
        let when = format!("{} -> {}, {at} {moment:?}", pair[0], pair[1]);
        let end = go(&world, Some((at, moment)), pair, true);
        assert!(world.died().0, "{when}: {end:?}");
        undo(&world, None).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!(difference(&before, &world.everything()), [""; 0], "{when}");
        assert_eq!(undo(&world, None).expect("again"), [""; 0], "{when}");
        tried += 1;
    }
    tried
}

const MOMENTS: [Moment; 3] = [Moment::Before, Moment::Half, Moment::After];

#[test]
fn undo_that_dies_itself_is_finished_by_the_next() {
    let world = administered();
    let before = world.everything();
    for text in [WAY[1], WAY[5], WAY[6], WAY[7]] {
        let way = specs(&[text]);
        for moment in MOMENTS {
            for at in 1.. {
                stay(&world, &way[0]);
                let first = undo(&world, Some((at, moment)));
                let is_over = !world.died().0;
                undo(&world, None).unwrap_or_else(|error| panic!("{text}, {at} {moment:?}: {error}"));
                assert_eq!(difference(&before, &world.everything()), [""; 0], "{text}, {at} {moment:?}");
                if is_over {
                    first.expect("nothing stood in its way");
                    break;
                }
            }
        }
    }
}

/// As `tune apply` does: settings of drives that are at work, below an array, and of the array.
fn tune(world: &World, state: &Path, end: Option<(u64, Moment)>) -> Result<(), LayoutError> {
    let settings = "separate(scheduler=kyber,nr_requests=64,read_ahead_kb=4096,nomerges=2,irq_cpus=spread)";
    let spec = LayoutSpec::parse(&format!("{settings}:/dev/nvme0n1,/dev/nvme1n1")).expect("a layout");
    let mut layouts = Layouts::open_on(world.process(end), state, Permits::default(), Stop::default())?;
    layouts.tune(&spec)?;
    layouts.leave()
}

#[test]
fn settings_that_were_applied_as_far_as_any_change_are_set_back_byte_for_byte() {
    for array in [None, Some("md-raid0(chunk=64k,filesystem=xfs):/dev/nvme0n1,/dev/nvme1n1")] {
        let world = administered();
        let state = world.state.join("tune");
        if let Some(array) = array {
            stay(&world, &specs(&[array])[0]);
        }
        std::fs::create_dir(&state).expect("a directory of its own");
        let before = world.everything();
        let set_back =
            |end| undo_on(world.process(end).as_mut(), &state, &Stop::default(), &mut |_| {}, false);
        tune(&world, &state, None).expect("applies");
        let changes = world.died().1;
        assert!(changes > 8, "{changes} changes");
        assert!(set_back(None).expect("sets back").undone.len() > 3);
        assert_eq!(difference(&before, &world.everything()), [""; 0], "{array:?}");
        for (at, moment) in (1..=changes).flat_map(|at| MOMENTS.map(|moment| (at, moment))) {
            let when = format!("{array:?}, {at} {moment:?}");
            let _ = tune(&world, &state, Some((at, moment)));
            // The first undo dies as well, a change later each time.
            let _ = set_back(Some((at % 7 + 1, moment)));
            set_back(None).unwrap_or_else(|error| panic!("{when}: {error}"));
            assert_eq!(difference(&before, &world.everything()), [""; 0], "{when}");
            assert!(set_back(None).expect("again").undone.is_empty(), "{when}");
        }
    }
}

/// A layout that stays after its process.
fn stay(world: &World, spec: &LayoutSpec) {
    let mut layouts =
        Layouts::open_on(world.process(None), &world.state, Permits::default(), Stop::default())
            .expect("opens");
    layouts.switch(spec).expect("made");
    layouts.leave().expect("left");
}

#[test]
fn undo_after_a_reboot_finds_the_array_under_its_new_name() {
    for text in WAY {
        let world = World::new();
        let before = world.everything();
        stay(&world, &specs(&[text])[0]);
        assert_ne!(world.everything(), before, "{text}");
        world.reboot();
        undo(&world, None).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(difference(&before, &world.everything()), [""; 0], "{text}");
    }
}

#[test]
fn what_others_put_on_a_drive_meanwhile_is_not_wiped() {
    let world = World::new();
    stay(&world, &specs(&["single(filesystem=xfs):/dev/nvme0n1"])[0]);
    world.reboot();
    // Somebody makes an XFS of his own: another UUID in the same place.
    let drive = world.at("dev/nvme0n1");
    let mut bytes = std::fs::read(&drive).unwrap();
    bytes[32..48].copy_from_slice(&[7; 16]);
    std::fs::write(&drive, &bytes).unwrap();
    undo(&world, None).expect("nothing of ours is there");
    assert_eq!(std::fs::read(&drive).unwrap(), bytes);
}

#[test]
fn a_drive_that_was_given_another_name_is_found_by_its_serial_number() {
    let world = World::new();
    let before = world.everything();
    stay(&world, &specs(&["single(filesystem=xfs,read_ahead_kb=0):/dev/nvme0n1"])[0]);
    let swap = |one: &str, other: &str| {
        let (a, b) = (world.at(one), world.at(other));
        let spare = world.at("spare");
        std::fs::rename(&a, &spare).unwrap();
        std::fs::rename(&b, &a).unwrap();
        std::fs::rename(&spare, &b).unwrap();
    };
    world.reboot();
    let exchange = || {
        swap("dev/nvme0n1", "dev/nvme3n1");
        swap("sys/devices/pci0/nvme/nvme0n1/serial", "sys/devices/pci3/nvme/nvme3n1/serial");
    };
    exchange();
    undo(&world, None).expect("finds it");
    exchange();
    assert_eq!(difference(&before, &world.everything()), [""; 0]);
}

#[test]
fn a_drive_that_is_gone_keeps_the_journal_until_it_is_given_up() {
    let world = World::new();
    stay(&world, &specs(&["single(filesystem=xfs):/dev/nvme0n1"])[0]);
    world.reboot();
    world.file("sys/devices/pci0/nvme/nvme0n1/serial", "another\n");
    let error = undo(&world, None).expect_err("the drive is not there");
    assert!(error.to_string().contains("SN0"), "{error}");
    assert!(error.hint().expect("a hint").contains("--abandon"));
    let process = &mut *world.process(None);
    let undone = undo_on(process, &world.state, &Stop::default(), &mut |_| {}, true).expect("given up");
    assert_eq!(undone.abandoned.len(), 1);
    assert_eq!(undo(&world, None).expect("nothing is left"), [""; 0]);
}

#[test]
fn a_damaged_line_in_the_middle_is_told_and_the_rest_undone() {
    let world = World::new();
    stay(&world, &specs(&["single(filesystem=xfs,read_ahead_kb=0):/dev/nvme0n1"])[0]);
    let journal = world.state.join("layout.journal");
    let mut text = std::fs::read(&journal).unwrap();
    let second = text.iter().position(|b| *b == b'\n').unwrap() + 40;
    text[second] ^= 1;
    std::fs::write(&journal, &text).unwrap();
    let error = undo(&world, None).expect_err("it is damaged");
    assert!(error.to_string().contains("line 2 of the journal"), "{error}");
    assert_eq!(world.text("sys/block/nvme0n1/queue/read_ahead_kb"), "128\n");
}

#[test]
fn a_journal_of_a_later_form_is_refused() {
    let world = World::new();
    stay(&world, &specs(&["single(read_ahead_kb=0):/dev/nvme0n1"])[0]);
    let journal = world.state.join("layout.journal");
    let json = r#"{"head":{"format":"flashwright.layout-journal/9","process":1,"boot":"x"}}"#;
    std::fs::write(&journal, format!("{:08x} {json}\n", crc32c::crc32c(json.as_bytes()))).unwrap();
    let error = undo(&world, None).expect_err("a later form");
    assert!(error.to_string().contains("journal/9"), "{error}");
    assert!(Path::new(&journal).exists());
}
