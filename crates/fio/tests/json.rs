//! fio-json against programs that were not written here: fio's own output, key by key and type by
//! type, and `fio_jsonplus_clat2csv` and `fio-plot`, which read it.

use std::path::{Path, PathBuf};
use std::process::Command;

use fio::json::{GlobalInfo, JobResult, document};
use fio::{JobFile, Reporting};
use measure::record::{
    DirectionCounts, DriveCounts, EngineFacts, HostFacts, JobCounts, ProcessCounts, RunRecord, SCHEMA,
    Sample, TargetFacts,
};
use measure::workload::{LatencyClock, Rw};
use measure::{Histogram, Workload};
use serde_json::Value;

/// A small generator, so that the latencies spread over many buckets and are the same every time.
fn latencies(n: u64, seed: u64) -> Histogram {
    let mut histogram = Histogram::new();
    let mut state = seed | 1;
    for _ in 0..n {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        histogram.record(300 + (state >> 33) % 3_000_000);
    }
    histogram
}

fn counts(ios: u64, bs: u64, seed: u64) -> DirectionCounts {
    DirectionCounts { bytes: ios * bs, ios, latency: latencies(ios, seed) }
}

/// Two seconds in which `reads` and `writes` were done evenly.
fn record(workload: Workload, reads: u64, writes: u64) -> RunRecord {
    let bs = workload.bs;
    let steps = 20;
    let step = |i: u64| Sample {
        end_ns: i * 100_000_000,
        read_bytes: reads * bs / steps,
        write_bytes: writes * bs / steps,
        ios: (reads + writes) / steps,
    };
    let drive = DriveCounts {
        name: "nvme0n1".into(),
        read_ios: reads,
        read_bytes: reads * bs,
        write_ios: writes,
        write_bytes: writes * bs,
        busy_ms: 1500,
        ..DriveCounts::default()
    };
    let share = JobCounts {
        bytes: (reads + writes) * bs / u64::from(workload.numjobs),
        ios: (reads + writes) / u64::from(workload.numjobs),
        interval_ns: 2_000_000_000,
        user_ns: 200_000_000,
        system_ns: 500_000_000,
        ..JobCounts::default()
    };
    let engine =
        EngineFacts { used: "io_uring".into(), latency_clock: LatencyClock::Batch, ..EngineFacts::default() };
    let process = ProcessCounts {
        voluntary_context_switches: 5,
        involuntary_context_switches: 2,
        major_faults: 1,
        ..ProcessCounts::default()
    };
    // By way of its data, so that a field that is added, and optional, changes nothing here.
    let value = serde_json::json!({
        "schema": SCHEMA,
        "target": TargetFacts { spec: "/dev/nvme0n1".into(), ..TargetFacts::default() },
        "layout": {},
        "pass": 1,
        "host": HostFacts::default(),
        "engine": engine,
        "started_unix_ns": 1_795_197_206_000_000_000u64,
        "interval_ns": 2_000_000_000u64,
        "ramp_ns": 100_000_000,
        "tail_ns": 0,
        "read": counts(reads, bs, 1),
        "write": counts(writes, bs, 2),
        "trim": DirectionCounts::default(),
        "jobs": vec![share; workload.numjobs as usize],
        "samples": (1..=steps).map(step).collect::<Vec<_>>(),
        "drives": [drive],
        "cpus": [],
        "process": process,
        "verified_blocks": 0,
        "warnings": [],
        "workload": workload,
    });
    serde_json::from_value(value).expect("a record")
}

fn mixed() -> RunRecord {
    let workload = Workload { rw: Rw::RandRw, iodepth: 32, numjobs: 2, ..Workload::default() };
    record(workload, 6000, 2000)
}

fn info(plus: bool) -> GlobalInfo {
    GlobalInfo {
        started_unix_ns: 1_795_197_205_500_000_000,
        finished_unix_ns: 1_795_197_208_250_000_000,
        options: vec![("direct".into(), "1".into())],
        plus,
    }
}

fn to_fio_json(results: &[JobResult<'_>], info: &GlobalInfo) -> Value {
    serde_json::to_value(document(results, info)).unwrap()
}

fn close(value: &Value, expected: f64) -> bool {
    value.as_f64().is_some_and(|v| (v - expected).abs() <= expected.abs() * 1e-9 + 1e-9)
}

#[test]
fn figures_are_the_records() {
    let record = mixed();
    let json = to_fio_json(&[JobResult::of_workload(&record)], &info(false));
    assert_eq!(json["fio version"], fio::json::VERSION);
    assert_eq!(json["timestamp"], 1_795_197_208u64);
    assert_eq!(json["time"], "Fri Nov 20 17:53:28 2026");
    assert_eq!(json["global options"]["direct"], "1");
    let job = &json["jobs"][0];
    assert_eq!(job["job options"]["iodepth"], "32");
    assert_eq!(job["elapsed"], 3);
    // 6000 reads in 2 s.
    let read = &job["read"];
    assert_eq!(read["io_bytes"], 6000 * 4096);
    assert_eq!(read["runtime"], 2000);
    assert!(close(&read["iops"], 3000.0), "{}", read["iops"]);
    assert_eq!(read["bw"], 3000 * 4);
    assert_eq!((&read["bw_samples"], &read["iops_samples"]), (&Value::from(4), &Value::from(4)));
    assert_eq!((&read["bw_min"], &read["bw_max"]), (&Value::from(12_000), &Value::from(12_000)));
    assert!(close(&read["bw_agg"], 100.0) && close(&read["iops_mean"], 3000.0));
    assert_eq!(read["clat_ns"]["N"], 6000);
    assert_eq!(read["slat_ns"]["N"], 0);
    assert_eq!(job["trim"]["runtime"], 0);
    // Two threads of 2 s, each with 0.2 s in user mode.
    assert_eq!(job["job_runtime"], 4000);
    assert!(close(&job["usr_cpu"], 10.0) && close(&job["sys_cpu"], 25.0));
    assert_eq!((&job["ctx"], &job["majf"]), (&Value::from(7), &Value::from(1)));
    assert!(close(&job["iodepth_level"]["32"], 100.0));
    assert!(close(&job["iodepth_submit"]["4"], 0.0), "not recorded, so not claimed");
    let coarse: f64 = ["latency_ns", "latency_us", "latency_ms"]
        .iter()
        .flat_map(|part| job[*part].as_object().into_iter().flatten())
        .filter_map(|(_, percent)| percent.as_f64())
        .sum();
    assert!((coarse - 100.0).abs() < 1e-6, "{coarse}");
    assert_eq!(json["disk_util"][0]["read_sectors"], 6000 * 8);
    assert!(close(&json["disk_util"][0]["util"], 75.0));
    let total = job["read"]["iops"].as_f64().unwrap() + job["write"]["iops"].as_f64().unwrap();
    assert!((total - record.iops()).abs() < 1e-6, "fio-json and --json agree");
}

#[test]
fn bins_and_percentiles_appear_where_they_were_asked_for() {
    let record = mixed();
    let mut result = JobResult::of_workload(&record);
    let plain = to_fio_json(std::slice::from_ref(&result), &info(false));
    assert!(plain["jobs"][0]["read"]["clat_ns"].get("bins").is_none());
    assert!(plain["jobs"][0]["read"]["lat_ns"].get("percentile").is_none());
    result.reporting =
        Reporting { lat_percentiles: true, clat_percentiles: false, percentile_list: vec![50.0, 100.0] };
    let plus = to_fio_json(&[result], &info(true));
    let read = &plus["jobs"][0]["read"];
    assert!(read["clat_ns"].get("percentile").is_none());
    let listed: Vec<_> = read["lat_ns"]["percentile"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(listed, ["100.000000", "50.000000"]);
    let bins = read["lat_ns"]["bins"].as_object().unwrap();
    let counted: u64 = bins.values().filter_map(Value::as_u64).sum();
    assert_eq!(counted, 6000);
    assert!(plus["jobs"][0]["trim"]["lat_ns"].get("bins").is_none(), "as fio where N is 0");
}

#[test]
fn keys_stand_in_fios_order() {
    let record = mixed();
    let text = serde_json::to_string(&document(&[JobResult::of_workload(&record)], &info(true))).unwrap();
    let at = |key: &str| text.find(&format!("\"{key}\"")).unwrap_or_else(|| panic!("no {key}"));
    assert!(at("fio version") < at("timestamp") && at("global options") < at("jobs"));
    assert!(at("5.000000") < at("10.000000") && at("10.000000") < at("99.990000"));
    assert!(at("jobs") < at("disk_util"));
}

#[test]
fn drives_are_not_counted_twice_where_jobs_ran_together() {
    let together = [mixed(), mixed()];
    let mut later = mixed();
    later.started_unix_ns += 10_000_000_000;
    let results = |records: &[RunRecord]| {
        let results: Vec<_> = records.iter().map(JobResult::of_workload).collect();
        to_fio_json(&results, &info(false))["disk_util"].clone()
    };
    assert_eq!(results(&together).as_array().map(Vec::len), Some(1));
    assert_eq!(results(&together)[0]["read_ios"], 6000);
    let [first, _] = together;
    assert_eq!(results(&[first, later])[0]["read_ios"], 12_000);
}

#[test]
fn a_record_of_nothing_has_no_figure_that_is_not_a_number() {
    let workload = Workload { bs: 4096, ..Workload::default() };
    let mut empty = record(workload, 0, 0);
    (empty.interval_ns, empty.jobs, empty.samples) = (0, Vec::new(), Vec::new());
    let json = to_fio_json(&[JobResult::of_workload(&empty)], &GlobalInfo::default());
    fn nulls(value: &Value) -> usize {
        match value {
            Value::Null => 1,
            Value::Array(items) => items.iter().map(nulls).sum(),
            Value::Object(map) => map.values().map(nulls).sum(),
            _ => 0,
        }
    }
    assert!(json.is_object());
    assert_eq!(nulls(&json), 0, "{json:#}");
}

fn has(program: &str, argument: &str) -> bool {
    match Command::new(program).arg(argument).output() {
        Ok(_) => true,
        Err(error) => {
            eprintln!("skipped: {program} cannot be started ({error})");
            false
        }
    }
}

/// Four sections of one tiny file each, as fio and we both read them.
fn job_text(dir: &Path) -> String {
    format!(
        "[global]\nfilename={}\nsize=1m\nbs=4k\n[a]\nrw=randrw\ndescription=mix\n[b]\nstonewall\nrw=read\n\
         percentile_list=50:99\n[c]\nstonewall\nrw=randread\nnumjobs=2\ngroup_reporting\n[d]\nstonewall\nrw=write\n",
        dir.join("data").display()
    )
}

/// A record for each job of a file, as a runner would hand them back.
fn results(file: &JobFile) -> Vec<RunRecord> {
    file.jobs()
        .map(|job| match job.workload.rw {
            Rw::RandRw => record(job.workload.clone(), 800, 400),
            Rw::Write => record(job.workload.clone(), 0, 400),
            _ => record(job.workload.clone(), 800, 0),
        })
        .collect()
}

fn documented(file: &JobFile, records: &[RunRecord], plus: bool) -> Value {
    let results: Vec<_> =
        file.jobs().zip(records).map(|(job, record)| JobResult::of_job(job, record)).collect();
    let info = GlobalInfo { options: file.global_options.clone(), ..info(plus) };
    to_fio_json(&results, &info)
}

#[test]
fn jobs_of_a_group_that_say_group_reporting_are_one_entry() {
    let text = "[global]\nfilename=/x\nsize=1m\nrw=randread\ngroup_reporting\n[a]\nnumjobs=2\n[b]\niodepth=8\n[c]\nnew_group\n\
                [d]\ngroup_reporting=0\n";
    let file = JobFile::parse(text, Path::new("g.fio"), &|_| None).expect("reads");
    let records = results(&file);
    let json = documented(&file, &records, false);
    let jobs = json["jobs"].as_array().expect("jobs");
    let names: Vec<&str> = jobs.iter().map(|job| job["jobname"].as_str().expect("a name")).collect();
    assert_eq!(names, ["a", "c", "d"]);
    assert_eq!(jobs[0]["read"]["total_ios"], 1600, "those of a and b");
    let one = documented(&file, &records, false)["jobs"][1]["read"]["iops"].as_f64().expect("a figure");
    let two = jobs[0]["read"]["iops"].as_f64().expect("a figure");
    assert!((two / one - 2.0).abs() < 0.01, "{two} and {one} requests a second");
    assert_eq!(jobs[0]["read"]["clat_ns"]["N"], 1600);
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Number(n) if n.is_f64() => "float",
        Value::Number(_) => "integer",
    }
}

/// Every key of `theirs` that `ours` lacks or has with another type. `bins` differ by nature: their keys
/// are the latencies that were seen.
fn differences(path: &str, theirs: &Value, ours: &Value, out: &mut Vec<String>) {
    if kind(theirs) != kind(ours) {
        out.push(format!("{path}: {} in fio, {} here", kind(theirs), kind(ours)));
        return;
    }
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) if !path.ends_with("bins") => {
            for (key, value) in theirs {
                match ours.get(key) {
                    Some(own) => differences(&format!("{path}/{key}"), value, own, out),
                    None => out.push(format!("{path}/{key}: missing here")),
                }
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            if path.ends_with("/jobs") && theirs.len() != ours.len() {
                out.push(format!("{path}: {} entries in fio, {} here", theirs.len(), ours.len()));
            }
            for (index, (value, own)) in theirs.iter().zip(ours).enumerate() {
                differences(&format!("{path}/{index}"), value, own, out);
            }
        }
        _ => {}
    }
}

#[test]
fn every_key_that_fio_prints_is_here_with_the_same_type() {
    if !has("fio", "--version") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("four.fio");
    std::fs::write(&path, job_text(dir.path())).unwrap();
    for (format, plus) in [("json", false), ("json+", true)] {
        let output =
            Command::new("fio").arg(format!("--output-format={format}")).arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let theirs: Value = serde_json::from_slice(&output.stdout).expect("fio prints JSON");
        let file = JobFile::read(&path).unwrap();
        let ours = documented(&file, &results(&file), plus);
        let mut out = Vec::new();
        differences("", &theirs, &ours, &mut out);
        assert!(out.is_empty(), "{format}: {out:#?}");
        for (theirs, ours) in theirs["jobs"].as_array().unwrap().iter().zip(ours["jobs"].as_array().unwrap())
        {
            for key in ["jobname", "groupid"] {
                assert_eq!(theirs[key], ours[key], "{key}");
            }
            // fio 3.33 leaves bare keys out, 3.42 prints them as "".
            for (option, value) in ours["job options"].as_object().unwrap() {
                let theirs = theirs["job options"].get(option).unwrap_or(&Value::from("")).clone();
                assert_eq!(theirs, *value, "{option}");
            }
        }
        assert_eq!(theirs["global options"], ours["global options"]);
    }
}

/// The difference check is worth something only if it finds differences.
#[test]
fn the_comparison_with_fio_finds_what_is_missing_or_of_another_type() {
    let theirs = serde_json::json!({"jobs": [{"a": 1, "b": 1.5, "c": {"d": "x"}}]});
    let ours = serde_json::json!({"jobs": [{"a": 1.0, "c": {}}]});
    let mut out = Vec::new();
    differences("", &theirs, &ours, &mut out);
    assert_eq!(
        out,
        ["/jobs/0/a: integer in fio, float here", "/jobs/0/b: missing here", "/jobs/0/c/d: missing here"]
    );
}

#[test]
fn fio_jsonplus_clat2csv_converts_and_validates_our_json_plus() {
    const SCRIPT: &str = "fio_jsonplus_clat2csv";
    if !has(SCRIPT, "--help") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let text = job_text(dir.path());
    let file = JobFile::parse(&text, Path::new("four.fio"), &|_| None).unwrap();
    let mut records = results(&file);
    // Beyond fio's last bucket the script would not end if a bin were named wrongly.
    records[0].read.latency.record(40_000_000_000);
    records[0].read.ios += 1;
    let source = dir.path().join("out.json");
    std::fs::write(&source, documented(&file, &records, true).to_string()).unwrap();
    let run = |more: &[&str]| {
        let mut command = Command::new(SCRIPT);
        command.arg(&source).arg(dir.path().join("out.csv")).args(more);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let (converted, said) = run(&[]);
    if said.contains("No module named") {
        eprintln!("skipped: {SCRIPT} lacks a Python module ({})", said.lines().last().unwrap_or(""));
        return;
    }
    assert!(converted, "{said}");
    let (validated, said) = run(&["--validate"]);
    assert!(validated && said.matches("validated").count() == 4, "{said}");
    let csv = std::fs::read_to_string(dir.path().join("out_job0.csv")).unwrap();
    // The cumulated count in the last line is that of all reads, at a percentile of 1.
    let last = csv.lines().rev().find(|line| !line.trim().is_empty()).unwrap();
    assert!(last.starts_with("17112760320, ") && last.contains(", 801, 1.0, "), "{last}");
}

/// Runs where `FIO_PLOT` names a `fio-plot`, or one is in the path: `tools/fio-plot.sh` installs one.
#[test]
fn fio_plot_draws_charts_from_our_documents() {
    let program = std::env::var("FIO_PLOT").unwrap_or_else(|_| "fio-plot".to_owned());
    if !has(&program, "--help") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("drive");
    std::fs::create_dir(&data).unwrap();
    for iodepth in [1, 8, 32] {
        for numjobs in [1, 4] {
            let workload = Workload { iodepth, numjobs, ..Workload::default() };
            let record = record(workload, 4000 * u64::from(iodepth) * u64::from(numjobs), 0);
            let json = document(&[JobResult::of_workload(&record)], &info(false));
            let path = data.join(format!("randread-{iodepth}-{numjobs}.json"));
            std::fs::write(path, serde_json::to_string_pretty(&json).unwrap()).unwrap();
        }
    }
    let charts: [(&str, &[&str]); 4] = [
        ("2d.png", &["-l", "-d", "1", "8", "32", "-n", "4"]),
        ("3d.png", &["-L", "-t", "iops", "-d", "1", "8", "32", "-n", "1", "4"]),
        ("histogram.png", &["-H", "-d", "8", "-n", "1"]),
        ("numjobs.png", &["-N", "-d", "8", "-n", "1", "4"]),
    ];
    for (name, arguments) in charts {
        let chart: PathBuf = dir.path().join(name);
        let output = Command::new(&program)
            .args([
                "-i".as_ref(),
                data.as_os_str(),
                "-T".as_ref(),
                "flashwright".as_ref(),
                "-r".as_ref(),
                "randread".as_ref(),
            ])
            .args(["-o".as_ref(), chart.as_os_str()])
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let size = std::fs::metadata(&chart).map(|m| m.len()).unwrap_or(0);
        assert!(output.status.success() && size > 10_000, "{name}: {size} bytes\n{said}");
        if let Ok(keep) = std::env::var("FIO_PLOT_KEEP") {
            std::fs::copy(&chart, Path::new(&keep).join(name)).unwrap();
        }
    }
}
