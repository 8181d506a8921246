//! Preconditioning, the write-saturation curve, and the places of threads and buffers, as a user asks for them.

mod common;

use std::path::Path;
use std::process::Stdio;

use common::{fits_schema, json, names, place, refused, run, works, written};
use serde_json::Value;

/// The first CPU that this process may use.
fn first_cpu() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").expect("reads");
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("is there");
    line.trim().split([',', '-']).next().and_then(|cpu| cpu.parse().ok()).expect("a number")
}

#[test]
fn a_prepared_run_says_how_it_was_prepared() {
    let folder = place();
    written(folder.path(), "file", 8);
    let arguments = [
        "bench",
        "--rw=randwrite",
        "--direct=0",
        "--runtime=100ms",
        "--precondition=steady",
        "--round_time=100ms",
        "--max_rounds=5",
        "--target",
        "file",
    ];
    let document = json(folder.path(), &[&arguments[..], &["--json"]].concat());
    fits_schema(folder.path(), "bench", &document);
    let done = &document["record"]["precondition"];
    assert_eq!(done["asked"], "steady");
    assert_eq!(done["fill"]["written_bytes"], 16 << 20);
    assert_eq!(done["rounds"]["iops"].as_array().map(Vec::len), Some(5));
    let steady = done["rounds"]["steadiness"]["verdict"] == "steady";
    let codes: Vec<_> = document["warnings"].as_array().expect("a list").iter().map(|w| &w["code"]).collect();
    assert_eq!(codes.iter().any(|code| **code == "W-NOT-STEADY"), !steady, "{codes:?}");
    let screen = works(folder.path(), &arguments).out;
    assert!(screen.contains("prepared") && screen.contains("16 MiB written in 2 passes"), "{screen}");
}

#[test]
fn a_saturation_prints_its_answer_and_leaves_a_page_a_table_and_a_document() {
    let folder = place();
    written(folder.path(), "file", 16);
    let arguments =
        ["bench", "--wsat", "--direct=0", "--bs=64k", "--target", "file", "--output", "curve", "--json"];
    let document = json(folder.path(), &arguments);
    fits_schema(folder.path(), "wsat", &document);
    assert_eq!(document["schema"], "flashwright.wsat/1");
    assert_eq!((&document["ended"], &document["region_bytes"]), (&"capacity".into(), &(16 << 20).into()));
    let output = folder.path().join("curve");
    assert_eq!(names(&output), ["wsat.csv", "wsat.html", "wsat.json"]);
    let read = |name: &str| std::fs::read_to_string(output.join(name)).expect("reads");
    let kept: serde_json::Value = serde_json::from_str(&read("wsat.json")).expect("one document");
    assert_eq!(kept, document);
    let points = document["points"].as_array().expect("points").len();
    assert_eq!(read("wsat.csv").lines().count(), points + 1);
    let page = read("wsat.html");
    for part in ["<figure id=\"saturation\"", "<svg", "default-src 'none'", "</html>"] {
        assert!(page.contains(part), "{part} is missing");
    }
    let screen = works(folder.path(), &arguments[..6]).out;
    for word in ["written ", "not purged", "knee ", "steady "] {
        assert!(screen.contains(word), "{word} is missing in {screen}");
    }
}

#[test]
fn jobs_run_where_they_are_told_and_buffers_lie_in_the_pages_asked_for() {
    let folder = place();
    let cpu = first_cpu();
    let bound = format!("--cpus_allowed={cpu}");
    let quick =
        ["bench", "--rw=randwrite", "--runtime=100ms", "--numjobs=2", "--target", "mem:16m", "--json"];
    let split = ["--cpus_allowed_policy=split", "--pages=base", &bound];
    let document = json(folder.path(), &[&quick[..], &split].concat());
    let record = &document["record"];
    assert_eq!(record["workload"]["cpus_allowed"], cpu.to_string());
    let jobs = record["jobs"].as_array().expect("jobs");
    assert!(jobs.len() == 2 && jobs.iter().all(|job| job["cpu"] == cpu), "{jobs:?}");
    let features = record["engine"]["features"].as_array().expect("a list");
    assert!(features.iter().any(|feature| feature == "base pages"), "{features:?}");
    let came = run(folder.path(), &[&quick[..], &["--cpus_allowed=8191"]].concat());
    assert_eq!(came.code, 2, "{came:#?}");
    assert!(came.err.starts_with("error: cpus_allowed=8191: this process may run on CPU "), "{came:#?}");
    let came = run(folder.path(), &[&quick[..], &["--numa_cpu_nodes=8000"]].concat());
    assert_eq!(came.code, 2, "{came:#?}");
    assert!(came.err.starts_with("error: numa_cpu_nodes=8000: this "), "{came:#?}");
}

#[test]
fn flags_that_would_change_nothing_are_refused() {
    let folder = place();
    let cases: [(&[&str], &str); 8] = [
        (
            &["--precondition=fil"],
            "error: --precondition=fil: 'fil' is not known\nhint: did you mean fill? There are none, fill, steady\n",
        ),
        (
            &["--wsat", "--precondition=fill"],
            "error: --precondition=fill cannot be combined with --wsat\n\
             hint: a write-saturation curve begins with a fresh drive: --purge\n",
        ),
        (
            &["--wsat", "--rw=randread"],
            "error: --rw=randread cannot be combined with --wsat\n\
             hint: a write-saturation curve is of rw=randwrite, or write\n",
        ),
        (&["--capacities=2"], "error: --capacities needs --wsat\nhint: add --wsat, or drop --capacities\n"),
        (
            &["--precondition=steady", "--max_rounds=4"],
            "error: --max_rounds=4: steadiness is judged over five rounds\nhint: SNIA's 25 is the default\n",
        ),
        (
            &["--rw=randread", "--precondition=steady"],
            "error: precondition=steady repeats the workload until its writes are steady, and rw=randread writes nothing\n\
             hint: a reading test wants --precondition=fill\n",
        ),
        (
            &["--rw=randwrite", "--purge"],
            "error: mem:16m is memory: there is nothing to purge\nhint: drop --purge\n",
        ),
        (
            &["--cpus_allowed=1-x"],
            "error: --cpus_allowed=1-x: '1-x' is neither a number up to 8191 nor a range such as 0-3\n\
             hint: numbers and ranges, for instance 0-3,8\n",
        ),
    ];
    for (flags, words) in cases {
        refused(folder.path(), &[&["bench", "--target", "mem:16m"], flags].concat(), 2, words);
    }
}

/// A space over a target, with these lines under `[sweep]`.
fn space(folder: &Path, sweep: &str, rw: &str, target: &str) -> String {
    let path = folder.join("space.toml");
    let text = format!(
        "[sweep]\npasses = 2\nruntime = '50ms'\nseed = 5\n{sweep}\n\
         [base]\nsize = '8m'\nbs = '4k'\ntarget = '{target}'\n[space]\nrw = {rw}\n"
    );
    std::fs::write(&path, text).expect("writes");
    path.display().to_string()
}

/// How the targets of a sweep's runs were prepared, as its records say.
fn prepared(sweep: &Path) -> Vec<Value> {
    let store = sweep::store::Store::open_read_only(sweep).expect("opens");
    let runs = store.runs().expect("reads");
    let of = |run: &sweep::model::RunRow| store.record(run.id).expect("reads").precondition;
    runs.iter().map(|run| serde_json::to_value(of(run)).expect("serialises")).collect()
}

#[test]
fn a_sweep_fills_its_target_before_the_first_run_of_each_session_and_its_records_say_so() {
    let folder = place();
    let at = folder.path();
    let space = space(at, "precondition = 'steady'\ncontrol = false", "['randread', 'read']", "scratch");
    let plan = works(at, &["sweep", "plan", &space]).out;
    assert!(plan.contains("prepared: the target is written 2 times, 16 MiB in all"), "{plan}");
    assert!(plan.contains("scratch: no point writes"), "{plan}");
    let document = json(at, &["sweep", "plan", &space, "--json"]);
    common::fits_schema(at, "plan", &document);
    assert_eq!((&document["precondition"], &document["fill_bytes"]), (&"steady".into(), &(16 << 20).into()));

    works(at, &["sweep", &space, "--output", "out"]);
    let done = prepared(&at.join("out"));
    assert_eq!(done.len(), 4);
    assert_eq!(done[0]["fill"]["written_bytes"], 16 << 20, "{done:#?}");
    assert!(done[0]["rounds"].is_null(), "nothing was there to make it steady with");
    assert!(done.iter().all(|one| *one == done[0]), "one preparation for all of them: {done:#?}");
}

#[test]
fn a_sweep_that_purges_memory_is_refused_and_leaves_nothing() {
    let folder = place();
    let at = folder.path();
    let space = space(at, "purge = true", "['randread', 'randwrite']", "mem:16m");
    let came = common::run(at, &["sweep", &space, "--output", "out"]);
    assert_eq!(came.code, 2, "{came:#?}");
    assert!(came.err.contains("purge=true: mem:16m is memory"), "{}", came.err);
    assert!(!at.join("out").exists());
}

#[test]
fn a_sweep_interrupted_while_its_target_is_made_steady_ends_with_130_and_can_go_on() {
    let folder = place();
    let at = folder.path();
    let space = space(at, "precondition = 'steady'", "['randwrite']", "scratch");
    let arguments = ["sweep", &space, "--output", "out"];
    let mut command = common::command(at, &arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
    // Five rounds of a minute come before the first run, and a session begins before them.
    common::wait_until("a session", || {
        sweep::store::Store::open_read_only(&at.join("out"))
            .and_then(|store| store.sessions())
            .is_ok_and(|sessions| !sessions.is_empty())
    });
    common::signal(&child, "-INT");
    assert_eq!(common::ended(&mut child).code(), Some(130));
    let status = json(at, &["sweep", "status", "out", "--json"]);
    assert_eq!((&status["done"], &status["complete"]), (&0.into(), &false.into()), "{status:#}");
}
