//! Going from one layout to the next: the least work, nothing that depends on what came before, and refusals.

mod world;

use std::collections::BTreeMap;

use layout::{Availability, ErrorClass, LayoutError, LayoutSpec, Layouts, Permits, Stop, standing, undo_on};
use std::path::PathBuf;
use world::{World, difference};

fn open(world: &World) -> Layouts {
    Layouts::open_on(world.process(None), &world.state, Permits::default(), Stop::default()).expect("opens")
}

fn spec(text: &str) -> LayoutSpec {
    LayoutSpec::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Changes to the machine that a switch makes, the journal's among them.
fn work(world: &World, layouts: &mut Layouts, text: &str) -> u64 {
    let (_, before) = world.died();
    layouts.switch(&spec(text)).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    world.died().1 - before
}

fn queue(world: &World, drive: &str) -> BTreeMap<&'static str, String> {
    let names =
        ["scheduler", "nr_requests", "wbt_lat_usec", "read_ahead_kb", "nomerges", "iosched/read_expire"];
    names.into_iter().map(|name| (name, world.text(&format!("sys/block/{drive}/queue/{name}")))).collect()
}

#[test]
fn what_is_under_test_does_not_depend_on_what_came_before() {
    let layouts = [
        "single:/dev/nvme0n1",
        "single(scheduler=kyber):/dev/nvme0n1",
        "single(scheduler=kyber,nr_requests=64):/dev/nvme0n1",
        "single(scheduler=bfq,wbt_lat_usec=500):/dev/nvme0n1",
        "single(scheduler=mq-deadline,read_ahead_kb=0):/dev/nvme0n1",
        "single(nr_requests=8,nomerges=1):/dev/nvme0n1",
    ];
    let direct: Vec<_> = layouts
        .iter()
        .map(|text| {
            let world = World::new();
            let mut layouts = open(&world);
            layouts.switch(&spec(text)).expect(text);
            queue(&world, "nvme0n1")
        })
        .collect();
    for (from, _) in layouts.iter().zip(&direct) {
        for (to, expected) in layouts.iter().zip(&direct) {
            let world = World::new();
            let mut layouts = open(&world);
            layouts.switch(&spec(from)).expect(from);
            layouts.switch(&spec(to)).expect(to);
            assert_eq!(&queue(&world, "nvme0n1"), expected, "{from} -> {to}");
        }
    }
}

#[test]
fn the_same_layout_again_is_no_work_but_a_line_in_the_journal() {
    let world = World::new();
    let mut layouts = open(&world);
    let text =
        "md-raid0(filesystem=xfs,scheduler=kyber,read_ahead_kb=0,irq_cpus=2):/dev/nvme1n1,/dev/nvme2n1";
    assert!(work(&world, &mut layouts, text) > 10);
    assert_eq!(work(&world, &mut layouts, text), 1);
}

#[test]
fn settings_of_queues_do_not_build_anew() {
    let world = World::new();
    let mut layouts = open(&world);
    let of = |inner: &str| format!("md-raid0(filesystem=xfs{inner}):/dev/nvme0n1,/dev/nvme1n1");
    let uuid = |world: &World| std::fs::read(world.at("dev/md127")).expect("an array")[32..48].to_vec();
    work(&world, &mut layouts, &of(",scheduler=kyber"));
    let before = uuid(&world);
    work(&world, &mut layouts, &of(",scheduler=none,nomerges=2"));
    work(&world, &mut layouts, &of(",mount_options=noatime"));
    assert_eq!(uuid(&world), before, "the same file system");
    work(&world, &mut layouts, &of("").replace("xfs", "ext4"));
    assert_ne!(uuid(&world), before);
}

#[test]
fn the_device_spec_is_what_is_to_be_measured() {
    let world = World::new();
    let mut layouts = open(&world);
    layouts.set_file_bytes(Some(64 << 10));
    let state = world.state.canonicalize().unwrap();
    let state = state.display();
    for (text, expected) in [
        ("single:/dev/nvme0n1", "/dev/nvme0n1".to_owned()),
        ("separate:/dev/nvme0n1,/dev/nvme1n1", "separate:/dev/nvme0n1,/dev/nvme1n1".to_owned()),
        (
            "stripe(chunk=64k):/dev/nvme0n1,/dev/nvme1n1",
            "stripe(chunk=64k):/dev/nvme0n1,/dev/nvme1n1".to_owned(),
        ),
        ("md-raid0(chunk=64k):/dev/nvme0n1,/dev/nvme1n1", "/dev/md127".to_owned()),
        ("lvm-stripe:/dev/nvme0n1,/dev/nvme1n1", "/dev/dm-0".to_owned()),
        ("single(filesystem=xfs):/dev/nvme0n1", format!("file:{state}/mount-0/data?size=64k")),
        (
            "separate(filesystem=ext4):/dev/nvme0n1,/dev/nvme1n1",
            format!("separate:file:{state}/mount-0/data?size=64k,file:{state}/mount-1/data?size=64k"),
        ),
    ] {
        assert_eq!(layouts.switch(&spec(text)).expect(text).device_spec, expected, "{text}");
    }
}

#[test]
fn a_file_that_does_not_fit_is_refused_before_anything_is_made() {
    let world = World::new();
    let before = world.everything();
    let mut layouts = open(&world);
    layouts.set_file_bytes(Some(100 << 10));
    for text in ["single(filesystem=xfs):/dev/nvme0n1", "separate(filesystem=xfs):/dev/nvme0n1,/dev/nvme1n1"]
    {
        let error = layouts.switch(&spec(text)).expect_err("a drive has 72 KiB");
        assert_eq!(error.class(), ErrorClass::Invalid, "{error}");
        assert!(error.to_string().contains("100 KiB") && error.to_string().contains("72 KiB"), "{error}");
        assert_eq!(difference(&before, &world.everything()), [""; 0]);
    }
    layouts.switch(&spec("md-raid0(chunk=64k,filesystem=xfs):/dev/nvme0n1,/dev/nvme1n1")).expect("two fit");
    // On the file system there is room for 100 MiB, whatever the drives have.
    world.grow("nvme2n1", 1 << 30);
    layouts.set_file_bytes(Some(200 << 20));
    let error = layouts.switch(&spec("single(filesystem=xfs):/dev/nvme2n1")).expect_err("too large");
    assert!(error.to_string().contains("200 MiB") && error.to_string().contains("100 MiB"), "{error}");
    layouts.down().expect("down");
}

#[test]
fn managed_interrupts_are_told_and_fail_nothing_else() {
    let world = World::new();
    let mut layouts = open(&world);
    // Interrupt 11 of nvme0n1 is managed, 10 is not.
    let built = layouts.switch(&spec("single(irq_cpus=2,scheduler=kyber):/dev/nvme0n1")).expect("made");
    assert!(built.notes[0].contains("1 of 2 are managed"), "{:?}", built.notes);
    assert_eq!(built.facts["scheduler"], "kyber");
    assert_eq!(world.text("proc/irq/10/smp_affinity_list"), "2\n");
    let drifts = layouts.check().expect("checks");
    assert!(drifts.iter().any(|drift| drift.what.contains("interrupts of nvme0n1")), "{drifts:?}");
    layouts.down().expect("down");
    assert_eq!(world.text("proc/irq/10/smp_affinity_list"), "0-3\n");
}

#[test]
fn a_step_that_fails_leaves_what_stood_before_it_and_all_is_taken_down() {
    let world = World::new();
    let before = world.everything();
    let mut layouts = open(&world);
    layouts.switch(&spec("md-raid0(filesystem=xfs):/dev/nvme0n1,/dev/nvme1n1")).expect("made");
    // A scheduler of which the machine does not have enough requests: the kernel refuses the value.
    world.file("sys/block/nvme0n1/queue/nr_requests", "");
    let error = layouts.switch(&spec("md-raid0(filesystem=xfs,nr_requests=64):/dev/nvme0n1,/dev/nvme1n1"));
    assert!(error.is_err());
    world.file("sys/block/nvme0n1/queue/nr_requests", "1023\n");
    layouts
        .switch(&spec("md-raid0(filesystem=xfs,nr_requests=64):/dev/nvme0n1,/dev/nvme1n1"))
        .expect("now it works");
    layouts.down().expect("down");
    assert_eq!(difference(&before, &world.everything()), [""; 0]);
}

#[test]
fn a_layout_by_hand_keeps_others_out_until_it_is_taken_down() {
    let world = World::new();
    let mut layouts = open(&world);
    layouts.switch(&spec("single(filesystem=xfs):/dev/nvme0n1")).expect("made");
    layouts.leave().expect("stays");
    let error = Layouts::open_on(world.process(None), &world.state, Permits::default(), Stop::default())
        .expect_err("it stands");
    assert_eq!(error.class(), ErrorClass::Refused);
    assert!(error.to_string().contains("made by hand"), "{error}");
    assert!(error.hint().expect("a hint").contains("layout down"));
    let stands = standing(&world.state).expect("readable").expect("something");
    assert!(stands.by_hand && stands.spec.as_deref() == Some("single(filesystem=xfs):/dev/nvme0n1"));
    undo_on(world.process(None).as_mut(), &world.state, &Stop::default(), &mut |_| {}, false).expect("down");
    assert_eq!(standing(&world.state).expect("readable"), None);
    drop(open(&world));
}

#[test]
fn a_second_process_is_kept_out_while_the_first_is_at_work() {
    let world = World::new();
    let _first = open(&world);
    // The fake keeps no lock, so that deaths are forgotten; the file is locked by hand.
    let lock = std::fs::File::options().append(true).open(world.state.join("layout.lock")).expect("a lock");
    lock.lock().expect("locks");
    let error = Layouts::open_on(world.process(None), &world.state, Permits::default(), Stop::default())
        .expect_err("locked");
    assert_eq!(error.class(), ErrorClass::Refused);
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
}

#[test]
fn drives_in_use_or_named_twice_are_refused_before_anything_is_touched() {
    let world = World::new();
    let line = "9 1 259:1 / /srv rw - xfs /dev/nvme1n1 rw\n";
    world.file("proc/self/mountinfo", &format!("{}{line}", world.text("proc/self/mountinfo")));
    let before = world.everything();
    let mut layouts = open(&world);
    for text in ["md-raid0:/dev/nvme0n1,/dev/nvme1n1", "separate(scheduler=kyber):/dev/nvme0n1,/dev/nvme1n1"]
    {
        let error = layouts.switch(&spec(text)).expect_err("in use");
        assert_eq!(error.class(), ErrorClass::Refused, "{text}");
        assert!(error.to_string().contains("/dev/nvme1n1 is mounted on /srv"), "{error}");
    }
    let error = layouts.switch(&spec("separate:/dev/nvme0n1,/dev/disk/by-id/nvme0n1")).expect_err("twice");
    assert_eq!(error.class(), ErrorClass::Invalid);
    drop(layouts);
    assert_eq!(difference(&before, &world.everything()), [""; 0]);
}

#[test]
fn the_survey_says_why_something_is_not_to_be_had() {
    let world = World::new();
    let drives = [PathBuf::from("/dev/nvme2n1"), PathBuf::from("/dev/nvme1n1")];
    let ask =
        |name: &str, value: &str| Availability::of(world.process(None).as_ref(), &drives).check(name, value);
    for (name, value) in [
        ("layout", "md-raid0"),
        ("filesystem", "f2fs"),
        ("filesystem", "raw"),
        ("scheduler", "bfq"),
        ("width", "2"),
        ("irq_cpus", "spread"),
        ("io_poll", "0"),
        ("chunk", "64k"),
    ] {
        assert_eq!(ask(name, value), Ok(()), "{name}={value}");
    }
    for (name, value, words) in [
        ("layout", "raid5", "no such layout"),
        ("filesystem", "zfs", "no such file system"),
        ("scheduler", "cfq", "none, mq-deadline, kyber, bfq"),
        ("width", "3", "2 drives"),
        ("irq_cpus", "9", "no CPU 9"),
        ("io_poll", "1", "poll_queues"),
        ("nr_requests", "1", "from 4 on"),
        ("colour", "red", "no such setting"),
    ] {
        let reason = ask(name, value).expect_err(name);
        assert!(reason.contains(words), "{name}={value}: {reason}");
    }
    let managed = Availability::of(world.process(None).as_ref(), &["/dev/nvme0n1".into()]);
    let reason = managed.check("irq_cpus", "0").expect_err("one of its interrupts is managed");
    assert!(reason.contains("1 of 2 interrupts of /dev/nvme0n1 are managed"), "{reason}");
    world.file("proc/mdstat", "Personalities :\n");
    world.file("proc/filesystems", "\text4\n");
    assert!(ask("layout", "md-raid0").expect_err("gone").contains("raid0"));
    assert!(ask("filesystem", "xfs").expect_err("gone").contains("the kernel has no xfs"));
    world.file("proc/sys/kernel/osrelease", "6.1.0\n");
    world.file("lib/modules/6.1.0/modules.dep", "kernel/drivers/md/raid0.ko: kernel/drivers/md/md-mod.ko\n");
    assert_eq!(ask("layout", "md-raid0"), Ok(()), "it can be loaded");
}

#[test]
fn two_state_directories_share_the_locks_of_drives_and_interrupts() {
    let world = World::new();
    let other = world.at("other");
    std::fs::create_dir(&other).unwrap();
    let attempt = |state: &std::path::Path, text: &str| {
        let mut layouts =
            Layouts::open_on(world.process(None), state, Permits::default(), Stop::default()).expect("opens");
        layouts.switch(&spec(text)).map(drop).map_err(|error| (error.class(), error.to_string()))
    };
    let refused = |text: &str, what: &str| {
        let (class, error) = attempt(&other, text).expect_err(text);
        assert_eq!(class, ErrorClass::Refused, "{error}");
        let me = format!("process {} (", std::process::id());
        assert!(error.contains(what) && error.contains(&me) && error.contains("is at work"), "{error}");
    };
    let mut layouts = open(&world);
    layouts.switch(&spec("single(scheduler=kyber,irq_cpus=2):/dev/nvme0n1")).expect("made");
    refused("single(scheduler=bfq):/dev/nvme0n1", "nvme0n1");
    refused("separate:/dev/nvme1n1,/dev/nvme0n1", "nvme0n1");
    refused("single(irq_cpus=1):/dev/nvme1n1", "layout.lock");
    attempt(&other, "single(scheduler=bfq):/dev/nvme1n1").expect("another drive is free");
    // What is left by a process that has ended is undone by one that has the locks.
    layouts.leave().expect("left");
    let mut holds = open_other(&world, &other);
    holds.switch(&spec("single:/dev/nvme0n1")).expect("the lock went with its process");
    let undo = || undo_on(world.process(None).as_mut(), &world.state, &Stop::default(), &mut |_| {}, false);
    let error = undo().expect_err("another is at work").to_string();
    assert!(error.contains("nvme0n1") && error.contains("is at work"), "{error}");
    assert!(world.text("sys/block/nvme0n1/queue/scheduler").contains("[kyber]"), "nothing was undone");
    drop(holds);
    undo().expect("undone");
    assert!(world.text("sys/block/nvme0n1/queue/scheduler").contains("[none]"));
}

#[test]
fn a_wait_for_a_lock_ends_when_it_is_asked_to_stop() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Barrier};
    let world = World::new();
    let other = world.at("other");
    std::fs::create_dir(&other).unwrap();
    let mut first = open(&world);
    first.switch(&spec("single(scheduler=kyber):/dev/nvme0n1")).expect("made");
    let stopped = || Stop::from(Arc::new(AtomicBool::new(true)));
    let second = |stop| Layouts::open_on(world.process(None), &other, Permits::default(), stop);
    let error = second(stopped()).expect("opens").switch(&spec("single:/dev/nvme0n1")).expect_err("stopped");
    assert_eq!(error.class(), ErrorClass::Interrupted, "{error}");

    // The lock of the state directory, whose process has ended: the wait has no bound but this.
    first.leave().expect("stays");
    let path = world.state.join("layout.lock");
    let lock = std::fs::File::options().append(true).open(&path).expect("a lock");
    lock.lock().expect("locks");
    std::fs::write(&path, "4194304999").expect("the number of no process");
    let flag = Arc::new(AtomicBool::new(false));
    let begun = Barrier::new(2);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            begun.wait();
            let stop = Stop::from(Arc::clone(&flag));
            undo_on(world.process(None).as_mut(), &world.state, &stop, &mut |_| {}, false)
        });
        begun.wait();
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!waiting.is_finished(), "it waits for the program that inherited the lock");
        flag.store(true, Ordering::Relaxed);
        let error = waiting.join().expect("no panic").expect_err("stopped");
        assert_eq!(error.class(), ErrorClass::Interrupted, "{error}");
        assert!(error.to_string().contains("layout.lock"), "{error}");
    });
    let error = Layouts::open_on(world.process(None), &world.state, Permits::default(), stopped());
    assert_eq!(error.expect_err("stopped").class(), ErrorClass::Interrupted);
    drop(lock);
    // Between two changes, with the rest in the journal.
    let error = undo_on(world.process(None).as_mut(), &world.state, &stopped(), &mut |_| {}, false);
    assert_eq!(error.expect_err("stopped").class(), ErrorClass::Interrupted);
    assert!(world.text("sys/block/nvme0n1/queue/scheduler").contains("[kyber]"));
    undo_on(world.process(None).as_mut(), &world.state, &Stop::default(), &mut |_| {}, false)
        .expect("undone");
    assert!(world.text("sys/block/nvme0n1/queue/scheduler").contains("[none]"));
}

#[test]
fn settings_of_two_state_directories_are_undone_newest_first() {
    let world = World::new();
    let other = world.at("other");
    std::fs::create_dir(&other).unwrap();
    let before = world.everything();
    let scheduler = || world.text("sys/block/nvme0n1/queue/scheduler");
    let undo = |state: &std::path::Path| {
        undo_on(world.process(None).as_mut(), state, &Stop::default(), &mut |_| {}, false)
    };
    let up = |state: &std::path::Path, text: &str| {
        let opened = Layouts::open_on(world.process(None), state, Permits::default(), Stop::default());
        let mut layouts = opened.expect("opens");
        layouts.switch(&spec(text)).expect(text);
        layouts.leave().expect("stays");
    };
    let refused = |state: &std::path::Path, disk: &str| {
        let error = undo(state).expect_err("a newer one stands");
        assert_eq!(error.class(), ErrorClass::Refused, "{error}");
        assert!(error.to_string().contains(&format!("settings of {disk} were changed later")), "{error}");
        assert!(error.to_string().contains("other/layout.journal"), "{error}");
        assert!(error.hint().expect("a hint").contains("newest first"));
    };
    up(&world.state, "single(scheduler=kyber):/dev/nvme0n1");
    up(&other, "single(scheduler=bfq):/dev/nvme0n1");
    refused(&world.state, "nvme0n1");
    assert!(scheduler().contains("[bfq]"), "nothing was undone");
    undo(&other).expect("the newest");
    assert!(scheduler().contains("[kyber]"));
    // The order is that of the changes, not of the state directories' first use.
    up(&other, "single(scheduler=mq-deadline,irq_cpus=2):/dev/nvme0n1");
    refused(&world.state, "nvme0n1");
    undo(&other).expect("the newest");
    undo(&world.state).expect("the last");
    assert_eq!(difference(&before, &world.everything()), [""; 0]);

    // Interrupts; and another drive is no concern of it.
    up(&world.state, "single(irq_cpus=2):/dev/nvme1n1");
    up(&other, "single(irq_cpus=1):/dev/nvme1n1");
    refused(&world.state, "interrupts");
    up(&world.at("third"), "single(scheduler=bfq):/dev/nvme2n1");
    undo(&world.at("third")).expect("another drive");
    // A journal that was removed by hand counts no more.
    std::fs::remove_file(other.join("layout.journal")).expect("removes");
    undo(&world.state).expect("undone");
}

fn open_other(world: &World, state: &std::path::Path) -> Layouts {
    Layouts::open_on(world.process(None), state, Permits::default(), Stop::default()).expect("opens")
}

#[test]
fn a_drive_that_may_not_be_used_is_not_mended_by_another_directory_for_the_journal() {
    let denied = |path: &str| {
        let source = std::io::ErrorKind::PermissionDenied.into();
        LayoutError::Io { path: path.into(), operation: "open", source }.hint().expect("a hint")
    };
    assert!(!denied("/dev/nvme0n1").contains("journal"));
    assert!(denied("/run/flashwright/layout").contains("journal"));
}

/// As where /proc is not mounted.
#[test]
fn nothing_is_undone_where_the_boot_is_not_known() {
    let world = World::new();
    let mut layouts = open(&world);
    layouts.switch(&spec("single(irq_cpus=2):/dev/nvme1n1")).expect("made");
    layouts.leave().expect("stays");
    let boot = world.text("proc/sys/kernel/random/boot_id");
    std::fs::remove_file(world.at("proc/sys/kernel/random/boot_id")).unwrap();
    let before = world.everything();
    let undo = || undo_on(world.process(None).as_mut(), &world.state, &Stop::default(), &mut |_| {}, false);
    let error = undo().expect_err("refused");
    assert!(error.to_string().contains("boot_id"), "{error}");
    assert_eq!(difference(&before, &world.everything()), [""; 0]);
    assert!(world.state.join("layout.journal").exists());
    world.file("proc/sys/kernel/random/boot_id", &boot);
    undo().expect("undone");
}
