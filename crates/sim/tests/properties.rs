//! What theory says of every machine.

use std::sync::Arc;

use base::LayoutKind;
use measure::workload::{RateProcess, Rw};
use measure::{Limit, RunRecord, Target, Workload};
use proptest::prelude::*;
use sim::{Layout, Machine, SimTarget, Stop};

/// One server of a mean service of 100 µs, and nothing else.
const SERVER: &str = r#"
name = "one server"
drives = 1
[host]
cores = 1
submission = "threads"
path_us = 0
[drive]
model = "network"
size = "1g"
queue_depth = 1000000
stations = 1
service_us = 100
read_bytes_per_s = 1e15
write_bytes_per_s = 1e15
"#;

fn run(machine: &Machine, layout: Option<Layout>, stop: Stop, workload: &Workload) -> RunRecord {
    let layout = layout.unwrap_or_else(|| Layout::all(machine));
    let target = SimTarget::new(Arc::new(machine.clone()), layout, stop);
    target.expect("can be").run(workload).expect("fits")
}

fn long() -> Stop {
    Stop { precision: 0.0, min_interval_ns: 0, max_interval_ns: 40_000_000_000 }
}

/// Mean time in the system of a queue with Poisson arrivals, service times of `service_us` and load ρ: Pollaczek and Khinchin,
/// with the squared coefficient of variation of the service (1 for M/M/1, 0 for M/D/1).
fn mean_time_us(service_us: f64, load: f64, variation: f64) -> f64 {
    service_us * (1.0 + load * (1.0 + variation) / (2.0 * (1.0 - load)))
}

#[test]
fn a_queue_of_the_text_books_has_the_mean_time_of_its_formula() {
    for (exponential, variation) in [(true, 1.0), (false, 0.0)] {
        let text = format!("{SERVER}exponential = {exponential}\n");
        let machine = Machine::parse("server", &text).expect("can be");
        for load in [0.3, 0.6, 0.8] {
            let workload = Workload {
                rate_iops: Some((load * 10_000.0) as u64),
                rate_process: RateProcess::Poisson,
                iodepth: 32_768,
                norandommap: true,
                ..Workload::default()
            };
            let record = run(&machine, None, long(), &workload);
            let (got, formula) = (record.latency().mean() / 1e3, mean_time_us(100.0, load, variation));
            assert!((got / formula - 1.0).abs() < 0.03, "{exponential} {load}: {got:.1} µs, {formula:.1}");
        }
    }
}

#[test]
fn an_open_loop_that_is_faster_than_the_machine_runs_at_its_rate() {
    let machine = Machine::parse("server", &format!("{SERVER}exponential = false\n")).expect("can be");
    for rate_process in [RateProcess::Linear, RateProcess::Poisson] {
        let workload =
            Workload { rate_iops: Some(4_000_000_000), rate_process, iodepth: 4, ..Workload::default() };
        let record = run(&machine, None, Stop::default(), &workload);
        assert!((record.iops() / 10_000.0 - 1.0).abs() < 0.01, "{:.0}", record.iops());
        // Each waits since it was due, which was at once.
        assert!(record.latency().max() as f64 > 0.9 * record.interval_ns as f64);
    }
}

#[test]
fn equal_stations_give_the_rate_of_a_closed_network() {
    let text = SERVER.replace("stations = 1", "stations = 6") + "exponential = true\n";
    let machine = Machine::parse("six", &text).expect("can be");
    for depth in [1, 3, 20] {
        let record = run(&machine, None, long(), &Workload { iodepth: depth, ..Workload::default() });
        let formula = 10_000.0 * f64::from(depth) / f64::from(depth + 5);
        assert!((record.iops() / formula - 1.0).abs() < 0.02, "{depth}: {:.0}, {formula:.0}", record.iops());
    }
}

fn dash() -> Machine {
    Machine::brought("dash-io-node", &|_, _| {}).expect("can be")
}

fn quick() -> Stop {
    Stop { min_interval_ns: 5_000_000, ..Stop::default() }
}

fn md(width: u32, chunk_bytes: u64) -> Layout {
    let kind = if width == 1 { LayoutKind::Single } else { LayoutKind::MdRaid0 };
    Layout {
        kind,
        devices: (0..width).collect(),
        chunk_bytes,
        filesystem: None,
        scheduler: None,
        request_bytes: None,
    }
}

fn workloads() -> impl Strategy<Value = Workload> {
    let directions = prop_oneof![
        Just(Rw::Read),
        Just(Rw::Write),
        Just(Rw::RandRead),
        Just(Rw::RandWrite),
        Just(Rw::RandRw)
    ];
    let sizes = prop_oneof![Just(4096_u64), Just(65_536), Just(1 << 20)];
    (directions, sizes, 1_u32..64, 1_u32..4, any::<u64>()).prop_map(|(rw, bs, iodepth, numjobs, randseed)| {
        Workload { rw, bs, iodepth, numjobs, randseed, ..Workload::default() }
    })
}

/// A machine of `cores` whose requests take 10 µs of a CPU on the way down and 10 µs on the way up.
fn twenty_micros(cores: u32, drives: u32, submission: &str, delivery: &str) -> Machine {
    let text = SERVER
        .replace("cores = 1", &format!("cores = {cores}"))
        .replace("drives = 1", &format!("drives = {drives}"))
        .replace("\"threads\"", &format!("\"{submission}\""))
        .replace(
            "path_us = 0",
            &format!("path_us = 10\ninterrupts = {{ delivery = \"{delivery}\", completion_us = 10 }}"),
        )
        .replace("service_us = 100", "service_us = 1");
    Machine::parse("twenty", &text).expect("can be")
}

#[test]
fn one_cpu_does_the_work_of_one_cpu() {
    for submission in ["threads", "jobs"] {
        for delivery in ["any-cpu", "submitter"] {
            let machine = twenty_micros(1, 1, submission, delivery);
            let record =
                run(&machine, None, Stop::default(), &Workload { iodepth: 32, ..Workload::default() });
            assert!(
                (record.iops() / 50_000.0 - 1.0).abs() < 0.02,
                "{submission} {delivery}: {:.0}",
                record.iops()
            );
        }
    }
}

const DISK: &str = r#"
model = "disk"
size = "1000g"
queue_depth = 32
command_us = 50
track_seek_us = 1000
full_seek_us = 16000
rpm = 7200
outer_bytes_per_s = 2e8
inner_bytes_per_s = 1e8
zones = 20
"#;

/// Four of these drives under md.
fn with_drives(drive: &str) -> Machine {
    let host = "cores = 4\nsubmission = \"threads\"\npath_us = 1\nmd_us = 1";
    let text = format!("name = \"four\"\ndrives = 4\n[host]\n{host}\n[drive]\n{drive}");
    Machine::parse("four", &text).expect("can be")
}

#[test]
fn a_disk_serves_each_of_its_jobs() {
    let workload = Workload { rw: Rw::Read, numjobs: 8, ..Workload::default() };
    let record = run(&with_drives(DISK), Some(md(1, 65_536)), Stop::default(), &workload);
    let ios: Vec<u64> = record.jobs.iter().map(|job| job.ios).collect();
    assert!(ios.iter().max() <= ios.iter().min().map(|least| 3 * least).as_ref(), "{ios:?}");
}

#[test]
fn no_request_is_larger_than_the_queue_takes() {
    let sized = |_: &str, table: &mut toml::Table| {
        table["drive"]["size"] = "1g".into();
    };
    let machine = Machine::brought("dash-io-node", &sized).expect("can be");
    for (kilobytes, bs) in [(16, 64 << 10), (64, 4 << 20), (1280, 4 << 20)] {
        let layout = Layout { request_bytes: Some(kilobytes << 10), ..md(1, 65_536) };
        let workload = Workload { rw: Rw::Read, bs, size: Some(64 << 20), ..Workload::default() };
        let record = run(&machine, Some(layout), quick(), &workload);
        let drive = &record.drives[0];
        assert_eq!(drive.read_bytes, 64 << 20);
        let mean = drive.read_bytes / drive.read_ios;
        assert!(
            mean <= u64::from(kilobytes) << 10 && mean > u64::from(kilobytes) << 9,
            "{kilobytes}: {mean}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn the_same_seed_gives_the_same_record(workload in workloads(), width in 1_u32..5) {
        let once = || run(&dash(), Some(md(width, 65_536)), quick(), &workload);
        prop_assert_eq!(serde_json::to_string(&once()).unwrap(), serde_json::to_string(&once()).unwrap());
    }

    #[test]
    fn bytes_that_a_job_of_a_given_size_asks_for_reach_the_drives(workload in workloads(), width in 1_u32..5) {
        let workload = Workload { size: Some(64 << 20), ..workload };
        let record = run(&dash(), Some(md(width, 65_536)), quick(), &workload);
        let drives = record.drives.iter().filter(|drive| drive.below.is_empty());
        let moved: u64 = drives.map(|drive| drive.read_bytes + drive.write_bytes).sum();
        prop_assert_eq!(moved, record.total.read_bytes + record.total.write_bytes);
        let share = (64 << 20) / u64::from(workload.numjobs) / workload.bs * workload.bs;
        prop_assert_eq!(moved, share * u64::from(workload.numjobs));
    }

    #[test]
    fn cpus_do_no_more_work_than_they_have_time(
        workload in workloads(),
        cores in 2_u32..6,
        drives in 1_u32..4,
        submission in prop_oneof![Just("threads"), Just("jobs")],
        delivery in prop_oneof![Just("any-cpu"), Just("submitter"), Just("one-cpu")],
    ) {
        let machine = twenty_micros(cores, drives, submission, delivery);
        let layout = Layout { kind: LayoutKind::Separate, ..md(drives, 65_536) };
        let stop = Stop { min_interval_ns: 50_000_000, ..Stop::default() };
        let record = run(&machine, Some(layout), stop, &workload);
        let most = f64::from(cores) / 20e-6;
        prop_assert!(record.iops() < most * 1.02, "{} of {}", record.iops(), most);
    }

    #[test]
    fn littles_law_holds_and_nothing_is_busier_than_time(
        workload in workloads(),
        width in 1_u32..5,
        drive in prop_oneof![Just("ssd"), Just("disk"), Just("network")],
    ) {
        // A disk takes milliseconds for each of up to 189 requests.
        let (machine, min_interval_ns) = match drive {
            "disk" => (with_drives(DISK), 60_000_000_000),
            "network" => (with_drives(SERVER.split("[drive]").nth(1).expect("has drives")), 2_000_000_000),
            _ => (dash(), 200_000_000),
        };
        let stop = Stop { min_interval_ns, max_interval_ns: 10 * min_interval_ns, ..Stop::default() };
        let record = run(&machine, Some(md(width, 65_536)), stop, &workload);
        let in_flight = record.iops() * record.latency().mean() / 1e9;
        let asked = f64::from(workload.iodepth * workload.numjobs);
        prop_assert!((in_flight / asked - 1.0).abs() < 0.1, "{} of {}", in_flight, asked);
        let interval_ms = record.interval_ns / 1_000_000 + 1;
        for drive in &record.drives {
            prop_assert!(drive.busy_ms <= interval_ms);
        }
        for cpu in &record.cpus {
            prop_assert!(cpu.system_ms + cpu.irq_ms + cpu.idle_ms <= interval_ms + 1);
        }
    }
}

#[test]
fn more_depth_drives_and_link_never_give_less() {
    let read = |machine: &Machine, width, depth| {
        let workload = Workload { iodepth: depth, ..Workload::default() };
        run(
            machine,
            Some(md(width, 65_536)),
            Stop { min_interval_ns: 50_000_000, ..Stop::default() },
            &workload,
        )
        .iops()
    };
    let machine = dash();
    let by_depth: Vec<f64> = [1, 2, 8, 32, 128].iter().map(|depth| read(&machine, 4, *depth)).collect();
    let by_width: Vec<f64> = [1, 2, 4, 8, 16].iter().map(|width| read(&machine, *width, 128)).collect();
    let by_link: Vec<f64> = [1e8, 2e8, 4e8]
        .map(|rate| {
            let link = |_: &str, table: &mut toml::Table| {
                table["drive"]["link_bytes_per_s"] = toml::Value::Float(rate);
            };
            read(&Machine::brought("dash-io-node", &link).expect("can be"), 4, 128)
        })
        .to_vec();
    for series in [by_depth, by_width, by_link] {
        assert!(series.windows(2).all(|pair| pair[1] >= 0.99 * pair[0]), "{series:.0?}");
    }
}

#[test]
fn a_limit_that_is_planted_in_a_machine_is_named() {
    let verdict = |machine: &Machine, workload: &Workload| {
        let record = run(machine, None, Stop::default(), workload);
        record.verdict.expect("each record has one").limit
    };
    let random = Workload { iodepth: 512, ..Workload::default() };
    assert_eq!(verdict(&dash(), &random), Limit::OneCpu, "MSI on one CPU");
    assert_eq!(verdict(&dash(), &Workload { iodepth: 8, ..random.clone() }), Limit::QueueDepth);
    let sequential = Workload { rw: Rw::Read, bs: 1 << 20, iodepth: 64, ..Workload::default() };
    let one = Machine::brought("dash-one-drive", &|_, _| {}).expect("can be");
    assert_eq!(verdict(&one, &sequential), Limit::Link);
    let slow = "[[exception]]\ndrives = [3]\n[exception.drive]\ncommand_us = 100\n";
    let text = sim::machine::brought::text("dash-io-node").expect("is brought");
    let machine = Machine::parse("slow", &format!("{text}\n{slow}")).expect("can be");
    assert_eq!(verdict(&machine, &Workload { iodepth: 128, ..random }), Limit::UnbalancedDrives);
}

/// A host that costs nothing but what its keys say.
fn bare_host(drive: &str, host: &str) -> Machine {
    let text = format!("name = \"bare\"\ndrives = 1\n[host]\ncores = 4\n{host}\n[drive]\n{drive}");
    Machine::parse("bare", &text).expect("can be")
}

#[test]
fn a_disk_takes_seek_and_half_a_turn_for_random_and_its_zone_for_sequential_reads() {
    let drive = "model = \"disk\"\nsize = \"1000g\"\nqueue_depth = 1\ncommand_us = 1\ntrack_seek_us = 1000\nfull_seek_us = 16000\n\
                 rpm = 7200\nouter_bytes_per_s = 2e8\ninner_bytes_per_s = 1e8\nzones = 20\n";
    let machine = bare_host(drive, "submission = \"threads\"\npath_us = 0");
    let random = run(&machine, None, Stop::default(), &Workload { norandommap: true, ..Workload::default() });
    // The mean of the square root of the distance of two places drawn at random is 8/15.
    let expected_ms = 1.0 + 15.0 * 8.0 / 15.0 + 60e3 / 7200.0 / 2.0;
    let got_ms = random.latency().mean() / 1e6;
    assert!((got_ms / expected_ms - 1.0).abs() < 0.03, "{got_ms:.2} ms, {expected_ms:.2}");
    for (offset, rate) in [(0, 2e8), (999 << 30, 1e8)] {
        let workload =
            Workload { rw: Rw::Read, bs: 1 << 20, size: Some(256 << 20), offset, ..Workload::default() };
        let got = run(&machine, None, Stop::default(), &workload).bandwidth_bytes_per_s();
        assert!((got / rate - 1.0).abs() < 0.06, "{got:.3e}, {rate:.0e}");
    }
}

#[test]
fn a_job_whose_thread_makes_all_requests_is_found_to_be_the_limit() {
    let drive = "model = \"network\"\nsize = \"1g\"\nqueue_depth = 1000\nstations = 1\nread_bytes_per_s = 1e12\nwrite_bytes_per_s = 1e12\n";
    let host = "submission = \"jobs\"\npath_us = 8\n[host.interrupts]\ndelivery = \"submitter\"\ncompletion_us = 1\ninterrupt_us = 1";
    let machine = bare_host(drive, host);
    let one = run(&machine, None, Stop::default(), &Workload { iodepth: 32, ..Workload::default() });
    let several =
        run(&machine, None, Stop::default(), &Workload { iodepth: 32, numjobs: 3, ..Workload::default() });
    // Path and completion; of a thread that is busy, no completion has an interrupt of its own.
    assert!((one.iops() / (1e6 / 9.0) - 1.0).abs() < 0.15, "{:.0}", one.iops());
    assert!((several.iops() / one.iops() - 3.0).abs() < 0.1, "{:.0}", several.iops());
    let processor_time =
        |record: &RunRecord| record.cpus.iter().map(|cpu| cpu.system_ms + cpu.irq_ms).sum::<u64>();
    assert!(processor_time(&several) as f64 > 2.9 * several.interval_ns as f64 / 1e6);
}

#[test]
fn the_slowest_drive_that_a_file_may_describe_ends_a_run() {
    let slow = |_: &str, table: &mut toml::Table| {
        for (key, value) in [
            ("link_bytes_per_s", 1e3),
            ("read_us", 1e7),
            ("program_us", 1e7),
            ("random_write_amplification", 1e3),
        ] {
            table["drive"][key] = toml::Value::Float(value);
        }
        table["drive"]["queue_depth"] = toml::Value::Integer(1 << 20);
    };
    let machine = Machine::brought("dash-io-node", &slow).expect("can be");
    for rw in [Rw::RandRead, Rw::RandWrite] {
        let workload = Workload { rw, bs: 4 << 20, iodepth: 1024, ..Workload::default() };
        let record = run(&machine, Some(md(1, 65_536)), quick(), &workload);
        assert!(record.total.elapsed_ns < 1 << 62, "{rw:?}");
    }
}

#[test]
fn the_log_stays_within_a_target_that_is_smaller_than_it() {
    let small = |_: &str, table: &mut toml::Table| {
        table["drive"]["size"] = "20k".into();
        table["host"]["filesystems"]["xfs"]["log_bytes"] = "12k".into();
    };
    let machine = Machine::brought("dash-io-node", &small).expect("can be");
    let layout = Layout { filesystem: Some(base::Filesystem::Xfs), ..md(1, 65_536) };
    let runtime = Some(std::time::Duration::from_millis(200));
    let workload = Workload { rw: Rw::RandWrite, runtime, ..Workload::default() };
    let record = run(&machine, Some(layout), quick(), &workload);
    let written: u64 = record.drives.iter().map(|drive| drive.write_bytes).sum();
    let by_asked = written as f64 / record.write.bytes as f64;
    assert!((by_asked - 4.0).abs() < 0.4, "a write of 4 KiB makes one of 12: {by_asked:.2}");
}
