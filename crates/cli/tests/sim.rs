//! `flashwright sim` and `sweep --machine`: records in virtual time, and mistakes named in one line.

use std::path::Path;
use std::process::{Command, Output};

fn flashwright(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashwright"));
    command.current_dir(folder).args(args).output().expect("runs")
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("is JSON")
}

#[test]
fn a_simulated_run_is_a_bench_document_and_repeats_itself() {
    let folder = tempfile::tempdir().expect("a directory");
    let args = ["sim", "dash-io-node", "--rw=randread", "--iodepth=512", "--json"];
    let once = flashwright(folder.path(), &args);
    let document = json(&once);
    let iops = document["iops"].as_f64().expect("is a number");
    assert!((iops / 352e3 - 1.0).abs() < 0.02, "{iops}");
    assert_eq!(document["record"]["verdict"]["limit"], "one-cpu");
    assert_eq!(once.stdout, flashwright(folder.path(), &args).stdout);
    assert_eq!(std::fs::read_dir(folder.path()).expect("is there").count(), 0, "nothing is written");
}

#[test]
fn mistakes_are_named_in_one_line_and_end_with_2() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("is written");
    file("unknown.toml", "name = \"x\"\ndrives = 1\ndrvie = 3\n");
    file("cores.toml", "base = \"good.toml\"\n[host]\ncores = 0\n");
    let drive = "model = \"network\"\nsize = \"1g\"\nqueue_depth = 1\nstations = 1\nread_bytes_per_s = 1e9\nwrite_bytes_per_s = 1e9";
    let host = "cores = 1\nsubmission = \"jobs\"\npath_us = 1";
    file("good.toml", &format!("name = \"x\"\ndrives = 1\n[host]\n{host}\n[drive]\n{drive}\n"));
    file("small.toml", "base = \"good.toml\"\n[drive]\nsize = 100\n");
    let cases: [(&[&str], &str); 8] = [
        (&["unknown.toml"], "drvie"),
        (&["cores.toml"], "host.cores=0"),
        (&["small.toml"], "drive.size=100: is smaller than a sector, 512 bytes"),
        (&["dash-io-nod"], "dash-io-node"),
        (&["good.toml", "--layout=md-raid0"], "layout=md-raid0"),
        (&["good.toml", "--layout=single(scheduler=bfq)"], "scheduler=bfq"),
        (&["good.toml", "--direct=0"], "--direct=0"),
        (&["good.toml", "--size=2g"], "--size=2g"),
    ];
    for (args, expected) in cases {
        let output = flashwright(folder.path(), &[&["sim"], args].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 2, "{args:?}: {said}");
    }
}

#[test]
fn a_space_is_swept_on_a_machine_and_the_same_seed_gives_the_same_records() {
    let folder = tempfile::tempdir().expect("a directory");
    let space = r#"
[sweep]
name = "simulated"
protocol = "dash"
passes = 2
seed = 7
[base]
layout = "md-raid0"
drives = ["/dev/a", "/dev/b", "/dev/c", "/dev/d"]
rw = "randread"
[space]
chunk = ["16k", "64k"]
width = [1, 2, 4]
filesystem = ["raw", "xfs"]
scheduler = ["none", "cfq"]
"#;
    std::fs::write(folder.path().join("space.toml"), space).expect("is written");
    let runs = |output: &str| {
        let args = ["sweep", "space.toml", "--machine", "dash-io-node", "--output", output, "--json"];
        json(&flashwright(folder.path(), &args));
        flashwright(folder.path(), &["report", output, "--format", "csv"]).stdout
    };
    let once = runs("a");
    assert_eq!(String::from_utf8_lossy(&once), String::from_utf8_lossy(&runs("b")));
    // The machine has no scheduler called cfq, so that half of the space is left out.
    assert!(once.iter().filter(|byte| **byte == b'\n').count() >= 24);
    let again = flashwright(folder.path(), &["sweep", "resume", "a", "--json"]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
}

#[test]
fn a_drive_fitted_to_a_sweep_is_a_machine_that_runs() {
    let folder = tempfile::tempdir().expect("a directory");
    let space = r#"
[sweep]
name = "one drive"
protocol = "dash"
passes = 2
[base]
layout = "single"
drives = ["/dev/a"]
[space]
rw = ["randread", "randwrite"]
bs = ["4k", "64k"]
iodepth = [1, 4, 32]
"#;
    std::fs::write(folder.path().join("space.toml"), space).expect("is written");
    let swept =
        flashwright(folder.path(), &["sweep", "space.toml", "--machine=dash-one-drive", "--output=s"]);
    assert!(swept.status.success(), "{}", String::from_utf8_lossy(&swept.stderr));
    let fitted = json(&flashwright(folder.path(), &["sim", "fit", "s", "--output=fitted.toml", "--json"]));
    let points = fitted["points"].as_array().expect("is a list");
    assert_eq!(points.len(), 12);
    assert_eq!(points.iter().filter(|point| point["held_out"] == true).count(), 4);
    // The sweep's drive is another model, so that its points are met roughly.
    let error = fitted["held_out_error_median"].as_f64().expect("is a number");
    assert!(error < 0.5, "{fitted}");
    let run = flashwright(folder.path(), &["sim", "fitted.toml", "--rw=randread", "--iodepth=32", "--json"]);
    let measured = points.iter().find(|point| {
        point["point"].as_str().is_some_and(|name| name.contains("bs=4k iodepth=32 rw=randread"))
    });
    let model = measured.expect("the point is there")["model_iops"].as_f64().expect("is a number");
    let iops = json(&run)["iops"].as_f64().expect("is a number");
    assert!((iops / model - 1.0).abs() < 0.15, "{iops} in a run, {model} in the fit");
}

/// A sweep of two drives, whose layouts are two.
const REPEATED: &str = "[sweep]\nname = \"repeated\"\nprotocol = \"dash\"\npasses = 60\nseed = 7\n[base]\nlayout = \"md-raid0\"\n\
                        drives = [\"/dev/a\", \"/dev/b\"]\n[space]\nchunk = [\"16k\", \"64k\"]\nrw = [\"randread\", \"randwrite\"]\n";

/// A machine whose drives take `command_us` for a command, in a file based on another one.
fn machine_of(folder: &Path, command_us: f64) {
    let node = sim::machine::brought::text("dash-io-node").expect("is brought");
    std::fs::write(folder.join("base.toml"), node).expect("is written");
    let text = format!("base = \"base.toml\"\n[drive]\ncommand_us = {command_us}\n");
    std::fs::write(folder.join("machine.toml"), text).expect("is written");
}

#[test]
fn a_killed_sweep_goes_on_with_the_machine_and_the_clock_that_it_began_with() {
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::write(folder.path().join("space.toml"), REPEATED).expect("is written");
    machine_of(folder.path(), 10.5);
    let sweep = |output| ["sweep", "space.toml", "--machine=machine.toml", "--output", output, "--json"];
    let whole = json(&flashwright(folder.path(), &sweep("whole")));
    let mut child = Command::new(env!("CARGO_BIN_EXE_flashwright"))
        .current_dir(folder.path())
        .args(sweep("killed"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("runs");
    while json_of(&flashwright(folder.path(), &["sweep", "status", "killed", "--json"]))["done"].as_u64()
        < Some(5)
    {}
    child.kill().expect("is killed");
    child.wait().expect("ends");
    machine_of(folder.path(), 100.0);
    let resumed = json(&flashwright(folder.path(), &["sweep", "resume", "killed", "--json"]));
    assert_eq!(resumed["points"], whole["points"]);
    let runs = |output| flashwright(folder.path(), &["report", output, "--format", "csv"]).stdout;
    assert_eq!(String::from_utf8_lossy(&runs("killed")), String::from_utf8_lossy(&runs("whole")));

    let other = flashwright(folder.path(), &sweep("other"));
    assert!(other.status.success());
    let diff = flashwright(folder.path(), &["sweep", "diff", "whole", "other"]);
    let said = String::from_utf8_lossy(&diff.stdout).into_owned();
    assert!(said.lines().any(|line| line.contains("CPU") && line.contains("simulated: ")), "{said}");
}

/// A document, or null where there is none.
fn json_of(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

#[test]
fn shards_of_two_machines_are_not_merged() {
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::write(folder.path().join("space.toml"), REPEATED.replace("60", "2")).expect("is written");
    for (shard, output, command_us) in [("1/2", "a", 10.5), ("2/2", "b", 100.0)] {
        machine_of(folder.path(), command_us);
        let args = [
            "sweep",
            "space.toml",
            "--machine=machine.toml",
            "--shard",
            shard,
            "--output",
            output,
            "--seed=1",
        ];
        let output = flashwright(folder.path(), &args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let merged = flashwright(folder.path(), &["sweep", "merge", "a", "b", "--output=m"]);
    let said = String::from_utf8_lossy(&merged.stderr).into_owned();
    assert!(!merged.status.success() && said.contains("unlike machines: CPU: simulated: "), "{said}");
}
