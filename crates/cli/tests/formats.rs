//! Documents that one command prints and another reads are read for ever: the fixtures of `formats/`.

mod common;
#[path = "../../../formats/fixture.rs"]
mod fixture;

use std::path::Path;

use common::{place, refused, works};
use fixture::fixture;
use serde_json::Value;

/// The fixture of a name as a file in a directory. One that is missing is what `arguments` print, or leave in `kept`.
fn document(folder: &Path, name: &str, arguments: &[&str], kept: Option<&str>) -> Value {
    let bytes = fixture(name, || {
        let there = place();
        for directory in ["fast", "slow", "source"] {
            std::fs::create_dir(there.path().join(directory)).unwrap();
        }
        std::fs::write(there.path().join("source/step"), vec![7; 3_000_000]).unwrap();
        std::fs::write(there.path().join("space.toml"), SPACE).unwrap();
        let printed = works(there.path(), arguments).out;
        let text = kept.map_or(printed, |kept| std::fs::read_to_string(there.path().join(kept)).unwrap());
        // Without blanks it is small, and the directory of the test is nobody's business.
        let text = text.replace(&there.path().display().to_string(), "/scratch");
        serde_json::to_vec(&serde_json::from_str::<Value>(&text).unwrap()).unwrap()
    });
    std::fs::write(folder.join(name), &bytes).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

const SPACE: &str = "[sweep]\nname = 'fixture'\nprotocol = 'dash'\nseed = 1\npasses = 2\ndiscard_first = false\n\
                     [base]\nruntime = '50ms'\n[space]\nrw = ['randread']\niodepth = [1, 8]";

/// What a flag of `plan checkpoint` took from a document.
fn taken(folder: &Path, more: &[&str]) -> Value {
    let plan = ["plan", "checkpoint", "--mtbf=30d", "--size=2TB", "--json"];
    let text = works(folder, &[&plan, more].concat()).out;
    let plan: Value = serde_json::from_str(&text).unwrap();
    plan["measured"][0].clone()
}

#[test]
fn a_bench_of_version_1_gives_a_plan_its_rate() {
    let folder = place();
    let arguments = ["bench", "--target=mem:8m", "--rw=write", "--bs=64k", "--runtime=100ms", "--json"];
    let found = document(folder.path(), "bench-1.json", &arguments, None);
    assert_eq!(found["schema"], "flashwright.bench/1");
    let taken = taken(folder.path(), &["--fast=bench-1.json"]);
    let ratio = taken["value"].as_f64().unwrap() / found["bandwidth_bytes_per_s"].as_f64().unwrap();
    assert!((ratio - 1.0).abs() < 0.001, "{taken}");
    assert!(taken["from"].as_str().unwrap().starts_with("memory: write 64"), "{taken}");
}

#[test]
fn the_status_of_a_drain_of_version_1_gives_a_plan_its_rate() {
    let folder = place();
    let arguments =
        ["stage", "mv", "source", "slow/x", "--state=state", "--foreground", "--bwlimit=1MB/s", "--json"];
    let found = document(folder.path(), "stage-status-1.json", &arguments, None);
    let job = &found["jobs"][0];
    let seconds = job["durable"].as_f64().unwrap() - job["created"].as_f64().unwrap();
    let flags = ["--fast=10GB/s", "--slow=stage-status-1.json", "--slow-failures=0.1"];
    let taken = taken(folder.path(), &flags);
    assert_eq!(taken["value"].as_f64(), Some(job["bytes_written"].as_f64().unwrap() / seconds));
}

#[test]
fn a_ladder_of_version_1_is_planned_with() {
    let folder = place();
    let arguments =
        ["probe", "--ladder", "--runtime=5ms", "--rounds=2", "--max-set=256k", ".", "--size=16m", "--json"];
    let found = document(folder.path(), "ladder-1.json", &arguments, None);
    let plan = works(folder.path(), &["plan", "hierarchy", "ladder-1.json"]).out;
    let levels = found["levels"].as_array().unwrap();
    assert!(levels.len() > 2);
    for level in levels {
        assert!(plan.contains(level["name"].as_str().unwrap()), "{plan}");
    }
}

#[test]
fn a_report_of_version_2_is_tuned_from() {
    let folder = place();
    let arguments = ["sweep", "space.toml", "--target=mem:8m", "--output=results", "--json"];
    let found = document(folder.path(), "report-2.json", &arguments, None);
    assert_eq!(found["schema"], "flashwright.report/2");
    let shown = works(folder.path(), &["tune", "show", "report-2.json"]).out;
    assert!(shown.starts_with("sweep \"fixture\", 4 runs of 2 configurations\n"), "{shown}");
    assert!(shown.contains("random-reads-4k"), "{shown}");
    let later = found.to_string().replace("flashwright.report/2", "flashwright.report/3");
    std::fs::write(folder.path().join("later.json"), later).unwrap();
    for verb in ["show", "apply"] {
        let words = "error: later.json: is flashwright.report/3, and flashwright.report/2 is read\n\
                     hint: name a sweep's directory, its results.db or its results.json\n";
        refused(folder.path(), &["tune", verb, "later.json"], 2, words);
    }
}

#[test]
fn a_flashio_of_version_2_is_reported_again() {
    let folder = place();
    let run = ["flashio", "--fast=fast", "--slow=slow", "--tasks=2", "--matrix=16", "--compute=40ms"];
    let size = ["--every=2", "--checkpoints=2", "--checkpoint-size=64k", "--blocks=1", "--output=results"];
    let made = [&run[..], &size].concat();
    let found = document(folder.path(), "flashio-2.json", &made, Some("results/flashio.json"));
    std::fs::rename(folder.path().join("flashio-2.json"), folder.path().join("flashio.json")).unwrap();
    let shown = works(folder.path(), &["flashio", "report", "."]).out;
    let rates: Vec<f64> = found["ways"]
        .as_array()
        .unwrap()
        .iter()
        .map(|way| way["write_bytes_per_s"].as_f64().unwrap() / 1e6)
        .collect();
    for (name, rate) in ["slow", "fast + drain", "fast"].iter().zip(rates) {
        let row = shown.lines().find(|line| line.trim_start().starts_with(&format!("{name}  "))).unwrap();
        let figures: Vec<&str> = row.trim_start()[name.len()..].split_whitespace().collect();
        let printed: f64 = figures[1].parse().unwrap();
        assert!((printed / rate - 1.0).abs() < 0.01, "{row}");
    }
}
