//! `flashwright sweep` from plan to report.

mod common;

use std::path::Path;
use std::process::Stdio;

use common::{command, ended, fits_schema, json, names, place, refused, signal, wait_until, works};

/// The fourteen test types, small and quick.
const QUICK: [&str; 5] = ["--size=16m", "--runtime=20ms", "--passes=2", "--seed=7", "--protocol=dash"];

fn sweep(folder: &Path, output: &str) -> common::Came {
    works(folder, &[&["sweep", "--output", output], &QUICK[..]].concat())
}

fn examples() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples").to_owned()
}

#[test]
fn the_plan_of_the_papers_test_types_has_84_runs() {
    let folder = place();
    let space = examples() + "/dash14.toml";
    let text = works(folder.path(), &["sweep", "plan", &space, "--protocol=dash"]).out;
    assert!(text.contains("14 points × 6 passes = 84 runs and 7 controls; about "), "{text}");
    let document = json(folder.path(), &["sweep", "plan", &space, "--protocol=dash", "--json"]);
    fits_schema(folder.path(), "plan", &document);
    assert_eq!(document["runs"], 84);
    let text = works(folder.path(), &["sweep", "plan", &space]).out;
    assert!(
        text.contains("14 points in 4 kinds of work; blocks of each until it is decided, at most 2 min"),
        "{text}"
    );
    let document = json(folder.path(), &["sweep", "plan", &space, "--json"]);
    fits_schema(folder.path(), "plan", &document);
    assert_eq!((document["works"].as_u64(), document["budget_s"].as_f64()), (Some(4), Some(120.0)));
    assert_eq!(
        document,
        json(folder.path(), &["sweep", "plan", "--json"])
            .as_object()
            .map(|plan| {
                let mut plan = plan.clone();
                plan["name"] = document["name"].clone();
                serde_json::Value::Object(plan)
            })
            .expect("an object"),
        "it is what runs when no space is named"
    );
    assert!(names(folder.path()).is_empty(), "a plan touches nothing");
}

#[test]
fn the_plan_of_table_1_has_16800_runs_in_46_hours_40_and_builds_30_times() {
    let folder = place();
    let space = examples() + "/dash-io.toml";
    let text = works(folder.path(), &["sweep", "plan", &space]).out;
    assert!(text.contains("3,360 points × 5 passes = 16,800 runs and 180 controls; about "), "{text}");
    assert!(text.contains("46 h 40 min of measuring; 30 constructions, "), "{text}");
    let document = json(folder.path(), &["sweep", "plan", &space, "--seed=1", "--json"]);
    fits_schema(folder.path(), "plan", &document);
    assert_eq!((document["runs"].as_u64(), document["constructions"].as_u64()), (Some(16_800), Some(30)));
    assert_eq!(document["measuring_s"], 168_000.0);
    assert_eq!(document["points"][0]["layout"]["layout"], "md-raid0");
}

#[test]
fn shards_are_planned_measured_and_merged_into_one_report() {
    let folder = place();
    let quick = ["--size=16m", "--runtime=20ms", "--passes=2", "--protocol=dash"];
    for part in ["1/2", "2/2"] {
        let output = format!("--output=shard-{}", &part[..1]);
        works(folder.path(), &[&["sweep", "--shard", part, &output], &quick[..]].concat());
    }
    let said = works(folder.path(), &["sweep", "merge", "shard-1", "shard-2", "--output", "whole"]).out;
    assert!(said.starts_with("2 of 2 shards, 28 of their 28 runs\n"), "{said}");
    assert_eq!(names(&folder.path().join("whole")), ["report.html", "results.db", "results.json"]);
    let status = json(folder.path(), &["sweep", "status", "whole", "--json"]);
    fits_schema(folder.path(), "status", &status);
    assert_eq!((status["done"].as_u64(), status["points"].as_u64()), (Some(28), Some(14)), "{status:#}");
    let part = json(folder.path(), &["sweep", "status", "shard-2", "--json"]);
    assert_eq!((part["shard"].as_str(), part["points"].as_u64()), (Some("2/2"), Some(7)), "{part:#}");
    refused(
        folder.path(),
        &["sweep", "merge", "shard-1", "--output", "whole"],
        2,
        "error: whole/results.db: holds a sweep already\n\
         hint: go on with it by `flashwright sweep resume`, or choose another --output\n",
    );
}

#[test]
fn every_example_has_a_plan_and_a_seed_fixes_its_order() {
    let folder = place();
    for name in names(Path::new(&examples())).iter().filter(|name| name.ends_with(".toml")) {
        let space = format!("{}/{name}", examples());
        let document = json(folder.path(), &["sweep", "plan", &space, "--seed=3", "--json"]);
        let steps = document["steps"].as_array().expect("steps");
        let count = |key: &str| document[key].as_u64().expect("a number") as usize;
        // Blocks are drawn while the sweep runs.
        let planned = if document["protocol"] == "dash" { count("runs") + count("controls") } else { 0 };
        assert_eq!(steps.len(), planned, "{name}");
        assert_eq!(document, json(folder.path(), &["sweep", "plan", &space, "--seed=3", "--json"]), "{name}");
    }
}

#[test]
fn a_sweep_leaves_results_and_nothing_else() {
    let folder = place();
    let came = sweep(folder.path(), "out");
    assert_eq!(came.err, "", "nothing is said beside the results when piped");
    assert!(came.out.contains("14 points × 2 passes = 28 runs"), "{}", came.out);
    assert!(came.out.contains("scratch file of 16 MiB in "), "{}", came.out);
    assert!(came.out.contains("4 KiB random read, depth 512"), "{}", came.out);
    assert_eq!(names(folder.path()), ["out"]);
    let out = folder.path().join("out");
    assert_eq!(names(&out), ["report.html", "results.db", "results.json"]);

    let status = json(folder.path(), &["sweep", "status", "out", "--json"]);
    fits_schema(folder.path(), "status", &status);
    assert_eq!((status["done"].as_u64(), status["planned"].as_u64()), (Some(28), Some(28)));
    assert_eq!(status["complete"], true);

    let text = std::fs::read_to_string(out.join("results.json")).expect("reads");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    fits_schema(folder.path(), "report", &report);
    assert_eq!(report, json(folder.path(), &["report", "out", "--format=json"]));
    reports_come_in_every_form(folder.path());
    a_full_sweep_is_left_as_it_is(folder.path());
}

fn reports_come_in_every_form(folder: &Path) {
    std::fs::remove_file(folder.join("out/report.html")).expect("removes");
    assert_eq!(works(folder, &["report", "out/results.db"]).out, "out/report.html\n");
    assert!(std::fs::read_to_string(folder.join("out/report.html")).expect("reads").starts_with("<!"));
    assert!(works(folder, &["report", "out", "--format=md"]).out.starts_with('#'));
    works(folder, &["report", "out", "--output", "runs.csv"]);
    let words = "error: --output=page.pdf: no form has the extension .pdf\n\
                 hint: html, md, csv, json and svg are known; or say which by --format\n";
    refused(folder, &["report", "out", "--output", "page.pdf"], 2, words);
    assert!(!folder.join("page.pdf").exists());
    let csv = std::fs::read_to_string(folder.join("runs.csv")).expect("reads");
    assert!(csv.lines().count() >= 29, "{csv}");
    assert!(works(folder, &["report", "out", "--format=html", "--output=-"]).out.starts_with("<!"));
}

fn a_full_sweep_is_left_as_it_is(folder: &Path) {
    let database = folder.join("out/results.db");
    let before = (
        std::fs::read(&database).expect("reads"),
        database.metadata().expect("facts").modified().expect("a time"),
    );
    let came = works(folder, &["sweep", "resume", "out"]);
    assert_eq!(came.out, "complete, 28 of 28 runs; nothing to do. The report is out/report.html\n");
    let after = (
        std::fs::read(&database).expect("reads"),
        database.metadata().expect("facts").modified().expect("a time"),
    );
    assert!(before == after, "resuming a full sweep changed its results");
    refused(
        folder,
        &["sweep", "--output", "out"],
        2,
        "\
error: out/results.db: holds a sweep already
hint: flashwright sweep resume out goes on with it; or choose another --output
",
    );
    assert!(std::fs::read(&database).expect("reads") == before.0);
}

#[test]
fn two_sweeps_can_be_compared() {
    let folder = place();
    sweep(folder.path(), "a");
    sweep(folder.path(), "b");
    let document = json(folder.path(), &["sweep", "diff", "a", "b", "--json"]);
    fits_schema(folder.path(), "diff", &document);
    assert_eq!(document["points"].as_array().map(Vec::len), Some(14));
    let text = works(folder.path(), &["sweep", "diff", "a", "b"]).out;
    assert!(text.contains("A: a/results.db") && text.contains("too few passes"), "{text}");
}

#[test]
fn json_of_a_sweep_is_its_report() {
    let folder = place();
    let arguments = [&["sweep", "--json", "--output", "out", "--target", "mem:8m"], &QUICK[1..]].concat();
    let report = json(folder.path(), &arguments);
    fits_schema(folder.path(), "report", &report);
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(28));
}

#[test]
fn results_go_into_a_folder_of_their_own_unless_told() {
    let folder = place();
    let arguments = [&["sweep", "--target", "mem:8m"], &QUICK[1..]].concat();
    works(folder.path(), &arguments);
    let made = names(folder.path());
    assert_eq!(made.len(), 1);
    assert!(made[0].starts_with("flashwright-results-20") && made[0].ends_with('Z'), "{made:?}");
}

#[test]
fn blocks_end_with_their_budget_and_a_larger_one_goes_on() {
    let folder = place();
    let at = folder.path();
    let start = [
        "sweep",
        "--output",
        "out",
        "--size=16m",
        "--runtime=20ms",
        "--budget=2s",
        "--seed=7",
        "--equivalence=12%",
    ];
    let came = works(at, &start);
    assert_eq!(came.err, "");
    assert!(
        came.out.contains("14 points in 4 kinds of work; blocks of each until it is decided, at most 2"),
        "{}",
        came.out
    );
    let status = || json(at, &["sweep", "status", "out", "--json"]);
    let first = status();
    fits_schema(at, "status", &first);
    assert_eq!((&first["complete"], &first["protocol"]), (&true.into(), &"blocks".into()), "{first:#}");
    assert!(first["done"].as_u64() >= Some(14), "each point has run: {first:#}");
    let report = json(at, &["report", "out", "--format=json"]);
    fits_schema(at, "report", &report);
    let undecided = |r: &serde_json::Value| r["outcome"] == "undecided";
    let all = report["recommendations"].as_array().expect("recommendations");
    assert!(all.len() == 4 && all.iter().all(undecided), "one block decides nothing: {all:#?}");
    assert!(
        report["recommendations"].as_array().into_iter().flatten().all(|r| r["equivalence"] == 0.12),
        "{report:#}"
    );
    assert!(works(at, &["sweep", "resume", "out"]).out.contains("its time is up"));
    assert_eq!(status()["done"], first["done"]);
    works(at, &["sweep", "resume", "out", "--budget=8s"]);
    assert!(status()["done"].as_u64() > first["done"].as_u64());
    refused(
        at,
        &["sweep", "--passes=2", "--budget=2s"],
        2,
        "\
error: the command line: --budget=2.0 s: --passes fixes the number of blocks
hint: give one of the two
",
    );
    refused(
        at,
        &["sweep", "plan", "--equivalence=60%"],
        2,
        "\
error: --equivalence=60%: '60%' is no margin of equivalence
hint: for instance 3%, within 0.01% and 50%
",
    );
}

#[test]
fn ctrl_c_keeps_what_was_measured_and_leaves_no_debris() {
    let folder = place();
    let database = folder.path().join("out/results.db");
    let mut child = command(
        folder.path(),
        &["sweep", "--protocol=dash", "--output", "out", "--size=16m", "--runtime=100ms", "--passes=2"],
    )
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .expect("runs");
    let done = || {
        let status = common::run(folder.path(), &["sweep", "status", "out", "--json"]);
        let document: Option<serde_json::Value> = serde_json::from_str(&status.out).ok();
        document.and_then(|d| d["done"].as_u64()).unwrap_or(0)
    };
    wait_until("some runs", || database.exists() && done() >= 2);
    signal(&child, "-INT");
    let status = ended(&mut child);
    let output = child.wait_with_output().expect("reads");
    let err = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(status.code(), Some(130), "{err}");
    assert!(err.starts_with("error: interrupted after ") && err.contains("all of them are kept"), "{err}");
    assert!(err.ends_with("hint: `flashwright sweep resume out` goes on where this stopped\n"), "{err}");
    assert_eq!(names(folder.path()), ["out"], "the scratch file is gone");
    assert_eq!(names(&folder.path().join("out")), ["report.html", "results.db", "results.json"]);
    let kept = done();
    assert!((2..28).contains(&kept), "{kept}");
    // The scratch file of a resumed sweep is as large as the first one was, from wherever it is resumed.
    let came = works(Path::new("/"), &["sweep", "resume", &folder.path().join("out").display().to_string()]);
    assert!(
        came.out.contains("scratch file of 16 MiB in ") && came.out.contains("as before"),
        "{}",
        came.out
    );
    assert_eq!(done(), 28);
}

#[test]
fn settings_that_make_no_layout_are_refused_by_the_plan_as_by_the_sweep() {
    let folder = place();
    for (setting, wrong) in [
        ("mount_options = ['noatime', 'noatime,,x']", "mount_options=noatime,,x: are no options of a mount"),
        ("irq_cpus = ['0', '0-4294967295']", "irq_cpus=0-4294967295: is no list of CPUs"),
    ] {
        let space = format!(
            "[sweep]\npasses = 2\n[base]\ndrives = ['/dev/no-such-drive']\nfilesystem = 'xfs'\nsize = '32m'\n\
             bs = '4k'\nrw = 'randread'\n[space]\niodepth = [1, 2]\n{setting}\n"
        );
        std::fs::write(folder.path().join("space.toml"), space).expect("writes");
        let came = common::run(folder.path(), &["sweep", "plan", "space.toml"]);
        assert!(came.code == 2 && came.err.contains(wrong), "{came:?}");
    }
}

#[test]
fn the_decision_procedure_is_checked_on_simulated_machines() {
    let folder = place();
    let few = ["sweep", "check-statistics", "--settings=2", "--repetitions=20", "--seed=5"];
    let text = works(folder.path(), &few).out;
    assert!(text.contains("Worst of 7 worlds (20 races a line, seed 5)"), "{text}");
    assert!(text.contains("All lines keep coverage"), "{text}");
    let document = json(folder.path(), &[&few[..], &["--json"]].concat());
    fits_schema(folder.path(), "statistics", &document);
    assert_eq!(document["races"].as_array().map(Vec::len), Some(7 * 6));
    assert_eq!(document["holds"], true);
    assert!(names(folder.path()).is_empty(), "it touches nothing");
}

#[test]
fn sides_alternate_and_are_judged_pair_by_pair() {
    let folder = place();
    let write = |name: &str, target: &str| {
        let text = format!(
            "[sweep]\nblock_spacing = \"1ms\"\n[base]\nrw = \"randread\"\ntarget = \"{target}\"\n[space]\nbs = [\"4k\", \"64k\"]\n"
        );
        std::fs::write(folder.path().join(name), text).expect("writes");
    };
    write("a.toml", "mem:32m");
    write("b.toml", "file:b?size=32m");
    let quick = ["--runtime=20ms", "--passes=8", "--output=out"];
    let came = works(folder.path(), &[&["sweep", "ab", "a.toml", "b.toml"], &quick[..]].concat());
    assert!(came.out.contains("A target=mem:32m\nB target=file:b?size=32m\n"), "{}", came.out);
    let rows =
        |size: &str| came.out.lines().filter(|l| l.starts_with(&format!("Random reads, {size} "))).count();
    assert_eq!((rows("4k"), rows("64k")), (1, 1), "{}", came.out);
    let report = json(folder.path(), &["report", "out", "--format=json"]);
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(32));
    for contest in report["contests"].as_array().expect("contests") {
        assert_eq!(contest["points"].as_array().map(Vec::len), Some(2), "{contest:#}");
    }
}

#[test]
fn another_program_measures_a_side_and_a_resumed_sweep_asks_it_again() {
    let folder = place();
    std::fs::write(folder.path().join("a.toml"), "[base]\nrw = \"randread\"\ntarget = \"mem:32m\"\n")
        .expect("writes");
    let other = folder.path().join("other");
    let log = folder.path().join("log");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {}\nexec {} \"$@\"\n",
        log.display(),
        env!("CARGO_BIN_EXE_flashwright")
    );
    common::script(&other, &script);
    let flags = ["--runtime=20ms", "--budget=1s", "--output=out", "--binary-b=other"];
    let came = works(folder.path(), &[&["sweep", "ab", "a.toml", "a.toml"], &flags[..]].concat());
    assert!(came.out.contains("A and B have the same settings\n"), "{}", came.out);
    let benches =
        || std::fs::read_to_string(&log).expect("reads").matches("bench --json --target mem:32m").count();
    let before = benches();
    assert!(before >= 1, "{}", came.out);
    let report = json(folder.path(), &["report", "out", "--format=json"]);
    let runs = report["runs"].as_array().expect("runs");
    let of_b = runs.iter().filter(|run| run["point"] == 1).count();
    assert!(of_b >= 1 && of_b <= before, "each run of B is one of the other program: {of_b} of {before}");
    works(folder.path(), &["sweep", "resume", "out", "--budget=12s"]);
    assert!(benches() > before, "a resumed sweep asks the other program as well");
    std::fs::write(&other, script.replace("exec", "exec ")).expect("writes");
    let came = common::run(folder.path(), &["sweep", "resume", "out", "--budget=20s"]);
    assert!(
        came.code == 3 && came.err.contains("is another program than the one that measured side B"),
        "{came:?}"
    );
    // Whatever it prints is not believed.
    let liar = script.replace("\"$@\"\n", "\"$@\" $([ $1 = bench ] && echo --bs=64k)\n");
    std::fs::write(&other, liar).expect("writes");
    let came = common::run(
        folder.path(),
        &[
            "sweep",
            "ab",
            "a.toml",
            "a.toml",
            "--binary-b=other",
            "--runtime=20ms",
            "--passes=2",
            "--output=lies",
        ],
    );
    assert!(
        came.code == 1 && came.err.contains("measured something else: bs=64k in place of 4k"),
        "{came:?}"
    );
    refused(
        folder.path(),
        &["sweep", "ab", "a.toml", "a.toml", "--binary-a=/bin/true"],
        2,
        "error: --binary-a=/bin/true: is no flashwright\nhint: name the flashwright that this side is to be measured by\n",
    );
}

#[test]
fn a_request_that_is_not_answered_on_a_side_of_another_program_ends_the_sweep() {
    let folder = place();
    std::fs::write(folder.path().join("a.toml"), "[base]\nrw = \"randread\"\ntarget = \"mem:32m\"\n")
        .expect("writes");
    let other = folder.path().join("other");
    let ended = |unanswered: &str, output: &str| {
        let script = format!(
            "#!/bin/sh\nif [ $1 = bench ]; then echo 'error: it hangs' >&2; echo '{{\"schema\": \"flashwright.error/1\", \
             \"error\": {{\"class\": \"failed\", \"exit_code\": 1, \"message\": \"it hangs\", \"hint\": null{unanswered}}}}}'; \
             exit 1; fi\nexec {} \"$@\"\n",
            env!("CARGO_BIN_EXE_flashwright")
        );
        common::script(&other, &script);
        let flags = ["--runtime=20ms", "--passes=2", "--binary-b=other", "--output", output];
        let came = common::run(folder.path(), &[&["sweep", "ab", "a.toml", "a.toml"], &flags[..]].concat());
        assert_eq!(came.code, 1, "{came:?}");
        assert!(came.err.contains("it hangs"), "{came:?}");
        let status = json(folder.path(), &["sweep", "status", output, "--json"]);
        let failures = status["failures"].as_array().map(Vec::len);
        (
            came.err.contains("the sweep ends here") && came.err.contains("dmesg"),
            failures,
            status["sessions"][0].clone(),
        )
    };
    let request = ", \"unanswered\": {\"operation\": \"read\", \"target\": \"mem:32m\", \"offset\": 0, \"seconds\": 120.0}";
    let (ends, failures, session) = ended(request, "hangs");
    assert!(ends && failures == Some(1), "{failures:?}: {session:#}");
    assert_eq!(session["outcome"].as_str().or(session["ended"].as_str()), Some("unanswered"), "{session:#}");
    // A program of an earlier version says no more than that it failed.
    let (ends, _, session) = ended("", "fails");
    assert!(!ends, "{session:#}");
    assert_ne!(session["outcome"].as_str().or(session["ended"].as_str()), Some("unanswered"), "{session:#}");
}

#[test]
fn nobody_goes_on_with_a_sweep_while_another_program_measures_for_a_killed_one() {
    let folder = place();
    std::fs::write(folder.path().join("a.toml"), "[base]\nrw = \"randread\"\ntarget = \"mem:32m\"\n")
        .expect("writes");
    let script = format!(
        "#!/bin/sh\n[ $1 = bench ] && {{ touch began; while [ ! -e end ]; do sleep 0.05; done; }}\nexec {} \"$@\"\n",
        env!("CARGO_BIN_EXE_flashwright")
    );
    let other = folder.path().join("other");
    common::script(&other, &script);
    let flags = [
        "sweep",
        "ab",
        "a.toml",
        "a.toml",
        "--runtime=20ms",
        "--passes=2",
        "--output=out",
        "--binary-b=other",
    ];
    let mut child =
        command(folder.path(), &flags).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    wait_until("the other program runs", || folder.path().join("began").exists());
    child.kill().expect("kills");
    child.wait().expect("ends");
    let resume = || common::run(folder.path(), &["sweep", "resume", "out"]);
    let came = resume();
    assert!(came.code != 0 && came.err.contains("another process"), "{came:?}");
    std::fs::write(folder.path().join("end"), "").expect("writes");
    wait_until("the other program has ended", || resume().code == 0);
}

#[test]
fn what_belongs_to_a_point_is_no_setting_of_the_machine_that_changed() {
    let folder = place();
    let folder = folder.path();
    let space = "[sweep]\nprotocol = 'dash'\npasses = 2\n[base]\nsize = '4m'\nruntime = '20ms'\n[space]\n\
                 target = ['separate:file:a?size=8m,file:b?size=8m', 'stripe(chunk=64k):file:c?size=8m,file:d?size=8m', '.']\n\
                 iodepth = [1, 2, 3, 16]\nrw = ['randread', 'randwrite']\n";
    std::fs::write(folder.join("space.toml"), space).expect("writes");
    let came = works(folder, &["sweep", "space.toml", "--output", "out"]);
    let store = sweep::store::Store::open_read_only(&folder.join("out")).expect("opens");
    let runs = store.runs().expect("reads");
    assert_eq!(runs.len(), 3 * 4 * 2 * 2, "{came:?}");
    let drifted = |run: &&sweep::model::RunRow| run.warnings.contains(&measure::WarningCode::SettingsDrift);
    let told = |run| store.record(run).expect("reads").warnings;
    assert!(!runs.iter().any(|run| drifted(&run)), "{:?}", runs.iter().find(drifted).map(|run| told(run.id)));
    let dealt: std::collections::BTreeSet<_> = runs
        .iter()
        .filter_map(|run| store.record(run.id).expect("reads").layout.remove("separate.depth_per_drive"))
        .collect();
    assert!(dealt.len() > 1, "the records differ in what belongs to the point: {dealt:?}");
}
