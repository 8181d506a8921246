//! A sweep that is killed at any moment and resumed ends with exactly the planned runs.

mod common;

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use common::{command, json, names, place, run, works};

/// xorshift64: enough to choose moments.
struct Moments(u64);

impl Moments {
    fn next(&mut self, milliseconds: std::ops::Range<u64>) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_millis(milliseconds.start + self.0 % (milliseconds.end - milliseconds.start))
    }
}

#[test]
fn killed_at_ten_random_moments_and_resumed_it_ends_with_exactly_the_planned_runs() {
    let folder = place();
    let seed = std::env::var("FLASHWRIGHT_TEST_SEED").ok().and_then(|text| text.parse().ok());
    // Zero would stay zero.
    let seed = seed.unwrap_or(2009_u64) | 1;
    eprintln!("FLASHWRIGHT_TEST_SEED={seed}");
    let mut moments = Moments(seed);
    let start = ["sweep", "--output", "out", "--size=16m", "--runtime=50ms", "--passes=4", "--protocol=dash"];
    let resume = ["sweep", "resume", "out"];
    let (mut kills, mut kills_before_progress) = (0, 0);
    let mut done_before = 0;
    while kills < 10 || done_before == 0 {
        // On a machine that does other things a sweep may need seconds to begin.
        let longest = 300_u64 << (kills_before_progress / 10);
        // Killed before it had written its plan, a sweep is started again.
        let begun = run(folder.path(), &["sweep", "status", "out"]).code == 0;
        let arguments: &[&str] = if begun { &resume } else { &start };
        let mut child = command(folder.path(), arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs");
        std::thread::sleep(moments.next(1..longest));
        // The whole takes longer than ten of the longest moments of the first round, so it is never over before.
        assert_eq!(child.try_wait().expect("can be asked"), None);
        child.kill().expect("kills");
        child.wait().expect("ends");
        kills += 1;
        // A results directory that was killed before it held anything is all that may stay.
        assert!(names(folder.path()).iter().all(|name| name == "out"), "{:?}", names(folder.path()));
        let status = run(folder.path(), &["sweep", "status", "out", "--json"]);
        // Without a plan there is no status, but an error.
        if status.code == 0 {
            let status: serde_json::Value = serde_json::from_str(&status.out).expect("a document");
            let done = status["done"].as_u64().expect("a number");
            assert!(done >= done_before, "runs were lost: {done} of {done_before}");
            done_before = done;
        }
        if done_before == 0 {
            kills_before_progress += 1;
        }
    }
    works(folder.path(), &resume);

    let status = json(folder.path(), &["sweep", "status", "out", "--json"]);
    assert_eq!((status["done"].as_u64(), status["planned"].as_u64()), (Some(56), Some(56)), "{status:#}");
    assert_eq!(status["failures"].as_array().map(Vec::len), Some(0), "{status:#}");
    let report = json(folder.path(), &["report", "out", "--format=json"]);
    let runs = report["runs"].as_array().expect("runs");
    let of = |run: &serde_json::Value| {
        let run = run.get("run").unwrap_or(run);
        (run["point"].as_u64().expect("a point"), run["pass"].as_u64().expect("a pass"))
    };
    let seen: BTreeSet<(u64, u64)> = runs.iter().map(of).collect();
    let planned: BTreeSet<(u64, u64)> =
        (0..14).flat_map(|point| (1..=4).map(move |pass| (point, pass))).collect();
    assert_eq!((runs.len(), &seen), (56, &planned), "each planned run, none twice");
    assert_eq!(names(&folder.path().join("out")), ["report.html", "results.db", "results.json"]);
}
