//! What the schedulers are for, on the disks that they were made for, and what they do to flash.

use std::sync::Arc;

use base::LayoutKind;
use measure::workload::Rw;
use measure::{RunRecord, Target, Workload};
use proptest::prelude::*;
use sim::{Layout, Machine, SimTarget, Stop};

/// A disk that takes one command at a time, so that the order is the host's; and each scheduler.
const DISK: &str = r#"
name = "disk"
drives = 1
[host]
cores = 4
submission = "jobs"
path_us = 5
[host.schedulers]
noop = { policy = "noop" }
elevator = { policy = "elevator" }
deadline = { policy = "deadline" }
anticipatory = { policy = "anticipatory", idle_us = 2000 }
cfq = { policy = "cfq", idle_us = 8000 }
cfq-eager = { policy = "cfq" }
[drive]
model = "disk"
size = "100g"
queue_depth = 1
command_us = 50
track_seek_us = 1000
full_seek_us = 16000
rpm = 7200
outer_bytes_per_s = 1.5e8
inner_bytes_per_s = 1.5e8
zones = 1
"#;

fn run(machine: &Machine, scheduler: &str, width: u32, stop: Stop, workload: &Workload) -> RunRecord {
    let layout = Layout {
        kind: if width == 1 { LayoutKind::Single } else { LayoutKind::MdRaid0 },
        devices: (0..width).collect(),
        chunk_bytes: 64 << 10,
        filesystem: None,
        scheduler: Some(scheduler.to_owned()),
        request_bytes: None,
    };
    let target = SimTarget::new(Arc::new(machine.clone()), layout, stop);
    target.expect("can be").run(workload).expect("fits")
}

fn disk(scheduler: &str, workload: &Workload) -> RunRecord {
    let machine = Machine::parse("disk", DISK).expect("can be");
    let stop = Stop { precision: 0.0, min_interval_ns: 0, max_interval_ns: 20_000_000_000 };
    run(&machine, scheduler, 1, stop, workload)
}

#[test]
fn order_by_address_shortens_the_way_of_a_disks_arm() {
    let workload = Workload { iodepth: 32, ..Workload::default() };
    let noop = disk("noop", &workload).iops();
    for scheduler in ["elevator", "deadline", "cfq", "cfq-eager"] {
        let iops = disk(scheduler, &workload).iops();
        assert!(iops > 1.4 * noop, "{scheduler}: {iops:.0}, no-op {noop:.0}");
    }
}

#[test]
fn waiting_for_a_reader_keeps_two_readers_of_a_disk_apart() {
    let workload = Workload { rw: Rw::Read, bs: 64 << 10, numjobs: 2, ..Workload::default() };
    let rate = |scheduler| disk(scheduler, &workload).bandwidth_bytes_per_s() / 1e6;
    let (noop, eager) = (rate("noop"), rate("cfq-eager"));
    assert!(noop < 10.0 && (eager / noop - 1.0).abs() < 0.2, "each read seeks: {noop:.1}, {eager:.1} MB/s");
    for scheduler in ["anticipatory", "cfq"] {
        let record = disk(scheduler, &workload);
        let megabytes = record.bandwidth_bytes_per_s() / 1e6;
        assert!(megabytes > 5.0 * noop, "{scheduler}: {megabytes:.1} MB/s, no-op {noop:.1}");
        let shares: Vec<u64> = record.jobs.iter().map(|job| job.bytes).collect();
        let (least, most) = (shares.iter().min().expect("two"), shares.iter().max().expect("two"));
        assert!(*most < 2 * least, "{scheduler}: {shares:?}");
    }
}

#[test]
fn what_helps_a_disk_holds_flash_back() {
    let machine = Machine::brought("dash-io-node", &|_, _| {}).expect("can be");
    let workload = Workload { iodepth: 128, ..Workload::default() };
    let iops = |scheduler| run(&machine, scheduler, 4, Stop::default(), &workload).iops();
    let (noop, deadline, cfq) = (iops("noop"), iops("deadline"), iops("cfq"));
    for (scheduler, iops) in [("deadline", deadline), ("cfq", cfq)] {
        assert!((iops / noop - 1.0).abs() < 0.05, "{scheduler}: {iops:.0}, no-op {noop:.0}");
    }
    // One command at a time, and then with waiting for a reader whose next request is most likely another drive's.
    let (one, waiting) = (iops("bfq"), iops("anticipatory"));
    assert!(one < 0.6 * noop && waiting < 0.6 * one, "{noop:.0}, {one:.0}, {waiting:.0}");
}

/// DASH's node with a CFQ that waits, besides its own.
fn node() -> Machine {
    let adjust = |_: &str, table: &mut toml::Table| {
        let all = table.get_mut("host").and_then(|host| host.get_mut("schedulers")).expect("has schedulers");
        let patient: toml::Table = "policy = \"cfq\"\nidle_us = 50\nslice_us = 500".parse().expect("is TOML");
        all.as_table_mut().expect("is a table").insert("patient".to_owned(), patient.into());
    };
    Machine::brought("dash-io-node", &adjust).expect("can be")
}

fn schedulers() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("noop"),
        Just("none"),
        Just("mq-deadline"),
        Just("deadline"),
        Just("cfq"),
        Just("patient"),
        Just("anticipatory"),
        Just("bfq")
    ]
}

fn workloads() -> impl Strategy<Value = Workload> {
    let directions = prop_oneof![Just(Rw::Read), Just(Rw::Write), Just(Rw::RandRead), Just(Rw::RandRw)];
    let sizes = prop_oneof![Just(4096_u64), Just(65_536), Just(1 << 20)];
    (directions, sizes, 1_u32..40, 1_u32..4, any::<u64>()).prop_map(|(rw, bs, iodepth, numjobs, randseed)| {
        Workload { rw, bs, iodepth, numjobs, randseed, size: Some(32 << 20), ..Workload::default() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_that_is_asked_for_reaches_the_drives_once_whatever_the_scheduler(
        workload in workloads(),
        width in 1_u32..5,
        scheduler in schedulers(),
    ) {
        let stop = Stop { min_interval_ns: 5_000_000, ..Stop::default() };
        let once = || run(&node(), scheduler, width, stop, &workload);
        let record = once();
        let drives = record.drives.iter().filter(|drive| drive.below.is_empty());
        let moved: u64 = drives.map(|drive| drive.read_bytes + drive.write_bytes).sum();
        prop_assert_eq!(moved, record.total.read_bytes + record.total.write_bytes);
        let share = (32 << 20) / u64::from(workload.numjobs) / workload.bs * workload.bs;
        prop_assert_eq!(moved, share * u64::from(workload.numjobs));
        prop_assert_eq!(serde_json::to_string(&record).unwrap(), serde_json::to_string(&once()).unwrap());
    }
}
