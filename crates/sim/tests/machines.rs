//! Machine files: those that the program brings can be, and mistakes are named in one line.

use std::sync::Arc;

use measure::workload::Rw;
use measure::{Target, Workload};
use sim::machine::brought::MACHINES;
use sim::{Layout, Machine, SimTarget, Stop};

#[test]
fn every_machine_that_the_program_brings_runs() {
    for (name, _) in MACHINES {
        let machine = Arc::new(Machine::brought(name, &|_, _| {}).expect(name));
        let layout = Layout::all(&machine);
        let stop = Stop { min_interval_ns: 1_000_000, ..Stop::default() };
        let mut target = SimTarget::new(machine, layout, stop).expect(name);
        assert!(target.run(&Workload::default()).expect(name).iops() > 0.0, "{name}");
    }
}

#[test]
fn the_load_is_dealt_out_to_separate_drives_as_on_real_ones() {
    let machine = Arc::new(Machine::brought("dash-io-node", &|_, _| {}).expect("is brought"));
    let mut layout = Layout::all(&machine);
    layout.kind = base::LayoutKind::Separate;
    layout.devices.truncate(4);
    let stop = Stop { min_interval_ns: 400_000_000, ..Stop::default() };
    let mut target = SimTarget::new(machine, layout, stop).expect("can be");
    let load = Workload {
        rw: Rw::RandRead,
        iodepth: 10,
        numjobs: 2,
        rate_iops: Some(2000),
        ramp_time: std::time::Duration::ZERO,
        ..Workload::default()
    };
    let record = target.run(&load).expect("runs");
    assert_eq!(record.jobs.len(), 8);
    // Each of the two jobs has the rate, on all its drives together.
    assert!((3900.0..4100.0).contains(&record.iops()), "{}", record.iops());
    let unpaced = target.run(&Workload { rate_iops: None, ..load.clone() }).expect("runs");
    let mean_ns = 1e9 * 20.0 / unpaced.iops();
    let percentile = unpaced.read.latency.percentile(50.0);
    assert!(
        (0.8..1.25).contains(&(percentile as f64 / mean_ns)),
        "twenty requests are in flight: {percentile} of {mean_ns}"
    );
    let error = target.run(&Workload { rate_iops: Some(3), ..load }).expect_err("less than one for each");
    assert!(format!("{:?}", error).contains("less than one for each of the separate devices"), "{error:?}");
}

#[test]
fn what_ends_within_the_ramp_time_is_not_counted() {
    let machine = Arc::new(Machine::brought("dash-one-drive", &|_, _| {}).expect("is brought"));
    let mut target =
        SimTarget::new(Arc::clone(&machine), Layout::all(&machine), Stop::default()).expect("can be");
    let mut of = |ramp_ms| {
        let ramp_time = std::time::Duration::from_millis(ramp_ms);
        target.run(&Workload { ramp_time, ..Workload::default() }).expect("runs")
    };
    let (without, with) = (of(0), of(700));
    assert!(without.ramp_ns < 400_000_000, "{}", without.ramp_ns);
    assert!((700_000_000..710_000_000).contains(&with.ramp_ns), "{}", with.ramp_ns);
    assert_eq!(with.total.elapsed_ns, with.ramp_ns + with.interval_ns);
    let uncounted = with.total.ios - with.read.ios;
    assert!((0.95..1.05).contains(&(uncounted as f64 / (without.iops() * 0.7))), "{uncounted} requests");
    // One that ends before the ramp time does counts nothing.
    let none = Workload {
        size: Some(1 << 20),
        ramp_time: std::time::Duration::from_secs(60),
        ..Workload::default()
    };
    assert_eq!(target.run(&none).expect("runs").read.ios, 0);
}

#[test]
fn a_run_that_is_stopped_has_what_was_seen_until_then() {
    let machine = Arc::new(Machine::brought("dash-one-drive", &|_, _| {}).expect("is brought"));
    let stop = Stop { precision: 0.0, ..Stop::default() };
    let stopped = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let target = SimTarget::new(Arc::clone(&machine), Layout::all(&machine), stop).expect("can be");
    let mut target = target.interrupted_by(stopped);
    // Nothing counts before its interval begins.
    let long = Workload { runtime: Some(std::time::Duration::from_secs(100)), ..Workload::default() };
    let error = target.run_once(&long).expect_err("is stopped");
    assert!(matches!(error, measure::TargetError::Interrupted), "{error}");
    // A run of a given size counts from its first request.
    let sized = Workload { size: Some(1 << 30), ..Workload::default() };
    let run = target.run_once(&sized).expect("runs");
    assert!(run.interrupted);
    assert_eq!((run.record.total.ios, run.record.read.ios), (1, 1));
    assert!(
        matches!(target.run(&sized), Err(measure::TargetError::Interrupted)),
        "a sweep keeps no part of a run"
    );
}

/// One drive whose state is made before a run.
fn small_flash() -> Machine {
    let drive = "model = \"ftl\"\nchannels = 1\nchips_per_channel = 1\ndies_per_chip = 1\nplanes_per_die = 1\nblocks_per_plane = 64\n\
                 pages_per_block = 64\npage_bytes = \"4k\"\nover_provisioning = 0.3\nread_us = 50\nprogram_us = 200\nerase_us = 2000\n\
                 channel_bytes_per_s = 4e8\nwrite_buffer_bytes = \"64k\"\nlink_bytes_per_s = 1e9\nqueue_depth = 32";
    let host = "cores = 1\nsubmission = \"threads\"\npath_us = 1";
    let text = format!("name = \"small flash\"\ndrives = 1\n[host]\n{host}\n[drive]\n{drive}\n");
    Machine::parse("small.toml", &text).expect("can be")
}

#[test]
fn a_drive_that_is_told_to_stop_while_it_is_filled_runs_nothing() {
    let machine = Arc::new(Machine::brought("nvme-node-2026", &|_, _| {}).expect("is brought"));
    let flash = Arc::new(small_flash());
    for (machine, is_filled) in [(machine, false), (flash, true)] {
        let stopped = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let target = SimTarget::new(Arc::clone(&machine), Layout::all(&machine), Stop::default());
        let mut target = target.expect("can be").interrupted_by(stopped);
        let run = target.run_once(&Workload { size: Some(1 << 20), ..Workload::default() });
        assert_eq!(run.is_err(), is_filled, "{}", machine.name);
    }
}

#[test]
fn the_files_are_those_of_the_directory() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    for file in std::fs::read_dir(directory).expect("is there") {
        let path = file.expect("is there").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("has a name");
        let brought = MACHINES.iter().find(|(own, _)| *own == name).map(|(_, text)| (*text).to_owned());
        assert_eq!(brought, std::fs::read_to_string(&path).ok(), "{}", path.display());
        let by_path = Machine::load(&path).expect(name);
        assert_eq!(by_path, Machine::brought(name, &|_, _| {}).expect(name));
    }
}

#[test]
fn a_mistake_is_named_with_key_and_value_in_one_line() {
    let text = sim::machine::brought::text("dash-io-node").expect("is brought");
    let cases = [
        ("cores = 8 ", "cores = 0 ", "host.cores=0: must be from 1 to 4096"),
        ("drives = 16 ", "drives = 0 ", "drives=0: must be from 1 to 4096"),
        ("path_us = 9.6", "path_us = -1", "host.path_us=-1: must be from 0 to 10000000"),
        ("path_us = 9.6", "path_us = nan", "host.path_us=NaN: must be from 0"),
        ("idle_us = 300", "idle_us = -1", "host.schedulers.anticipatory.idle_us=-1: must be from 0"),
        (
            "noop = { policy = \"noop\" }",
            "noop = { policy = \"noop\", idle_us = 5 }",
            "host.schedulers.noop.idle_us=5: is for schedulers that wait",
        ),
        (
            "cfq = { policy = \"cfq\" }",
            "cfq = { policy = \"cfq\", quantum = 0 }",
            "host.schedulers.cfq.quantum=0: must be from 1",
        ),
        ("size = \"64g\"", "size = \"1k\"", "drive.size=1024: is smaller than a page, 4096 bytes"),
        ("size = \"64g\"", "size = 4097", "drive.size=4097: is not a multiple of a page, 4096 bytes"),
        ("page_bytes = \"4k\"", "page_bytes = 0", "drive.page_bytes=0: is smaller than a sector"),
        ("page_bytes = \"4k\"", "page_bytes = \"4x\"", "\"4x\""),
        ("channels = 10 ", "channels = 0 ", "drive.channels=0"),
        ("link_bytes_per_s = 2.05e8", "link_bytes_per_s = 0", "drive.link_bytes_per_s=0"),
        (
            "link_bytes_per_s = 2.05e8",
            "link_bytes_per_s = 1",
            "drive.link_bytes_per_s=1: must be from 1000 to",
        ),
        ("size = \"64g\"", "size = 1152921504606846976", "drives=16: make 18446744073709551616 bytes"),
        (
            "random_write_amplification = 4.59",
            "random_write_amplification = 0.5",
            "drive.random_write_amplification=0.5",
        ),
        ("erase_us = 2000", "erase_su = 2000", "unknown field `erase_su`"),
        ("model = \"ssd\"", "model = \"tape\"", "unknown variant `tape`"),
        ("kind = \"hba\"", "kind = \"hub\"", "unknown variant `hub`"),
        ("delivery = \"one-cpu\"", "delivery = \"none\"", "unknown variant `none`"),
        ("[host.filesystems.xfs]", "[host.filesystems.zfs]", "host.filesystems.zfs"),
        ("name = \"DASH I/O node\"", "name = 1", "expected a string"),
        ("name = \"DASH I/O node\"", "nome = \"x\"\nname = \"y\"", "unknown field `nome`"),
        ("[controller]", "[[exception]]\ndrives = [16]\ndrive = {}\n[controller]", "exception.drives=16"),
    ];
    for (good, bad, expected) in cases {
        assert!(text.contains(good), "{good}");
        let error = Machine::parse("x.toml", &text.replacen(good, bad, 1)).expect_err(bad).to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{bad}: {error}");
        assert!(error.starts_with("x.toml: "), "{error}");
    }
}

#[test]
fn a_machine_in_which_a_request_takes_no_time_or_drives_take_all_memory_is_refused() {
    let network = "model = \"network\"\nsize = \"1g\"\nqueue_depth = 1\nstations = 1\nread_bytes_per_s = 1e15\nwrite_bytes_per_s = 1e15";
    let dash = sim::machine::brought::text("dash-io-node").expect("is brought");
    let ssd = dash
        .split("[drive]")
        .nth(1)
        .expect("has drives")
        .replace("buffer_pages = ", "buffer_pages = 1048576 # ");
    let cases = [
        (network, 1, "host.path_us=0: leaves a request less than 10 ns"),
        (ssd.as_str(), 4096, "drives=4096: have "),
    ];
    for (drive, drives, expected) in cases {
        let host = "cores = 1\nsubmission = \"threads\"\npath_us = 0";
        let text = format!("name = \"x\"\ndrives = {drives}\n[host]\n{host}\n[drive]\n{drive}\n");
        let error = Machine::parse("x.toml", &text).expect_err(expected).to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_log_larger_than_a_write_or_a_drive_is_refused() {
    let text = sim::machine::brought::text("dash-io-node").expect("is brought");
    let line = text.lines().find(|line| line.starts_with("log_bytes")).expect("has a log");
    let small = text.replace("size = \"64g\"", "size = \"4k\"");
    for (text, log, expected) in [
        (text, "8g", "host.filesystems.xfs.log_bytes=8589934592: must be from 512 to 1048576"),
        (&small, "8k", "host.filesystems.xfs.log_bytes=8192: does not fit on a drive, which has 4096 bytes"),
    ] {
        let text = text.replace(line, &format!("log_bytes = \"{log}\""));
        let error = Machine::parse("x.toml", &text).expect_err(log).to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_circle_of_bases_ends() {
    let folder = std::env::temp_dir().join(format!("sim-circle-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("is made");
    let path = folder.join("a.toml");
    std::fs::write(&path, "base = \"a.toml\"\n").expect("is written");
    let error = Machine::load(&path).expect_err("goes round").to_string();
    std::fs::remove_dir_all(&folder).expect("goes");
    assert!(error.contains("base=a.toml"), "{error}");
}

/// Each option by itself with a value that is not its default: those that are refused are named with that value.
#[test]
fn what_the_model_does_not_have_is_refused_with_its_name_and_value() {
    let expected = [
        ("rw", "randtrimwrite"),
        ("rw_step", "64"),
        ("percentage_random", "64"),
        ("write_bssplit", "4k/60:64k/40"),
        ("blockalign", "64"),
        ("io_size", "64"),
        ("loops", "64"),
        ("number_ios", "64"),
        ("thinktime", "0.5s"),
        ("zonemode", "zbd"),
        ("zonesize", "64"),
        ("verify", "pattern"),
        ("buffer_pattern", "0xdeadface\"abc\""),
        ("buffer_compress_percentage", "64"),
        ("dedupe_percentage", "64"),
        ("ioengine", measure::options::find("ioengine").unwrap().example().as_str().unwrap()),
        ("direct", "0"),
        ("iodepth_batch", "64"),
        ("iodepth_batch_complete_min", "64"),
        ("hipri", "1"),
        ("sqthread_poll", "1"),
        ("pages", "huge"),
        ("fdatasync", "64"),
        ("fsync", "64"),
        ("sync", "sync"),
        ("end_fsync", "1"),
        ("cpus_allowed", "0-3,8"),
        ("numa_cpu_nodes", "0-3,8"),
    ]
    .map(|(option, value)| (option.to_owned(), value.to_owned()));
    let mut refused = Vec::new();
    for option in measure::options::OPTIONS {
        let mut workload = Workload::default();
        option.set(&mut workload, option.example()).expect("an example is a value");
        if let Err(error) = sim::check_modelled(&workload) {
            assert_eq!(error.option, option.name);
            assert!(!error.reason.is_empty() && !error.hint.is_empty(), "{error}");
            refused.push((error.option.to_owned(), error.value));
        }
    }
    let (mut refused, mut expected) = (refused, expected.to_vec());
    refused.sort();
    expected.sort();
    assert_eq!(refused, expected);
}
