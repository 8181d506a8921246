//! Sweeps that build what they measure, on loop devices: left as found however they end. Root only.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::loop_device::LoopDevice;
use common::{command, ended, finish, fits_schema, is_root, place, skipped, tool, wait_until};
use serde_json::Value;

/// What builds layouts, what varies them and what watches them keep lists of their own.
#[test]
fn each_setting_of_a_layout_is_a_key_of_a_space_and_each_of_a_queue_is_watched() {
    let is_key = |name: &str| {
        let space = sweep::space::Space::parse("space.toml", &format!("[space]\n{name} = [{{}}]\n"));
        !space.expect_err("a table is no value").to_string().contains("is not known")
    };
    assert!(!is_key("no_setting"));
    let not_of_queues = ["layout", "drives", "width", "chunk", "filesystem", "mount_options", "irq_cpus"];
    for name in layout::spec::setting_names() {
        assert!(is_key(name), "{name} is missing from sweep::space::layouts");
        let is_watched = bench::observe::settings::QUEUE_SETTINGS.contains(&name);
        assert!(is_watched || not_of_queues.contains(&name), "{name} is missing from QUEUE_SETTINGS");
    }
}

/// A loop device over a file, and a state directory of its own; both are gone at the end.
struct Rig {
    device: String,
    _attached: LoopDevice,
    folder: tempfile::TempDir,
}

impl Rig {
    fn new() -> Option<Self> {
        if !is_root() {
            skipped("building layouts needs root");
            return None;
        }
        let folder = place();
        let image = folder.path().join("image");
        std::fs::File::create(&image).and_then(|f| f.set_len(512 << 20)).expect("makes");
        let Ok(attached) = LoopDevice::attach(&image, &[]) else {
            skipped("no loop device can be had");
            return None;
        };
        let rig = Self { device: attached.text().to_owned(), _attached: attached, folder };
        if tool("mkfs.xfs", &["-V"]).is_none() || rig.scheduler().is_none() {
            skipped("this machine has no XFS, or its loop devices no scheduler");
            return None;
        }
        Some(rig)
    }

    fn space(&self, text: &str) -> PathBuf {
        let path = self.folder.path().join("space.toml");
        std::fs::write(&path, text.replace("DEVICE", &self.device)).expect("writes");
        path
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(self.folder.path(), arguments);
        command.env("FLASHWRIGHT_STATE", self.folder.path().join("state"));
        command
    }

    fn status(&self, sweep: &str) -> Option<Value> {
        serde_json::from_str(&finish(&mut self.command(&["sweep", "status", sweep, "--json"])).out).ok()
    }

    fn done(&self, sweep: &str) -> u64 {
        self.status(sweep).and_then(|status| status["done"].as_u64()).unwrap_or(0)
    }

    fn queue(&self, setting: &str) -> PathBuf {
        Path::new("/sys/block").join(self.device.trim_start_matches("/dev/")).join("queue").join(setting)
    }

    fn scheduler(&self) -> Option<String> {
        std::fs::read_to_string(self.queue("scheduler")).ok().filter(|text| text.contains("mq-deadline"))
    }

    /// What is to be the same afterwards: settings, mounts, journal, marks on the drive.
    fn state(&self) -> (Vec<Option<String>>, bool, bool, String) {
        let settings = ["scheduler", "read_ahead_kb", "nr_requests", "wbt_lat_usec"];
        let settings = settings.iter().map(|s| std::fs::read_to_string(self.queue(s)).ok()).collect();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("reads");
        let journal = self.folder.path().join("state/layout.journal").exists();
        let marks = tool("wipefs", &[&self.device]).unwrap_or_default();
        (settings, mounts.contains(&self.device), journal, marks)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // What a failed test left mounted would keep the loop device.
        let state = self.folder.path().join("state");
        if state.join("layout.journal").exists() {
            let space = self.folder.path().join("state/mount-0").display().to_string();
            let _ = tool("umount", &["-l", &space]);
        }
    }
}

const SPACE: &str = "
[sweep]
passes = 2
runtime = '0.1s'
seed = 5
[base]
drives = ['DEVICE']
size = '32m'
bs = '4k'
[space]
filesystem = ['raw', 'xfs']
scheduler = ['none', 'mq-deadline', 'no-such-one']
rw = ['randread', 'randwrite']
";

#[test]
fn killed_in_the_middle_and_resumed_it_ends_complete_and_leaves_the_machine_as_it_was() {
    let Some(rig) = Rig::new() else { return };
    let before = rig.state();
    let space = rig.space(SPACE).display().to_string();
    let start = ["sweep", &space, "--output", "out"];
    let mut child = rig.command(&start).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
    // Half of the runs: the second construction is being measured or made.
    wait_until("half of the runs", || rig.done("out") >= 8);
    child.kill().expect("kills");
    child.wait().expect("ends");
    let state = rig.folder.path().join("state/layout.journal");
    assert!(state.exists(), "what a killed process changed is in the journal");

    // Another sweep does not clear away what is not its own.
    let came = finish(&mut rig.command(&["sweep", &space, "--output", "other"]));
    assert_eq!(came.code, 3, "{came:#?}");
    assert!(came.err.contains("ended without taking down"), "{}", came.err);
    assert!(!rig.folder.path().join("other").exists(), "a sweep that never began leaves nothing");

    let came = finish(&mut rig.command(&["sweep", "resume", "out"]));
    assert_eq!(came.code, 0, "{came:#?}");
    assert!(came.err.starts_with("undone: "), "{}", came.err);
    let status = rig.status("out").expect("a status");
    assert_eq!((status["done"].as_u64(), status["complete"].as_bool()), (Some(16), Some(true)), "{status:#}");
    assert_eq!(rig.state(), before);
}

#[test]
fn an_interrupted_sweep_takes_everything_down_and_its_records_say_what_was_in_force() {
    let Some(rig) = Rig::new() else { return };
    let before = rig.state();
    let space = rig.space(SPACE).display().to_string();
    let start = ["sweep", &space, "--output", "out"];
    let mut child = rig.command(&start).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
    wait_until("some runs", || rig.done("out") >= 3);
    common::signal(&child, "-INT");
    assert_eq!(ended(&mut child).code(), Some(130));
    assert_eq!(rig.state(), before);

    let plan = finish(&mut rig.command(&["sweep", "plan", &space, "--json"]));
    let plan: Value = serde_json::from_str(&plan.out).expect("a plan");
    assert_eq!(plan["constructions"], 2);
    let lacking = plan["unavailable"][0].as_str().expect("a value that is not to be had");
    assert!(lacking.starts_with("scheduler=no-such-one: "), "{lacking}");
    assert_eq!(plan["runs"], 16);
}

/// The whole records of a sweep's runs.
fn records(sweep: &Path) -> Vec<Value> {
    let store = sweep::store::Store::open_read_only(sweep).expect("opens");
    let runs = store.runs().expect("reads");
    let record = |run: &sweep::model::RunRow| store.record(run.id).expect("reads");
    runs.iter().map(|run| serde_json::to_value(record(run)).expect("serialises")).collect()
}

const PREPARED: &str = "
[sweep]
passes = 2
runtime = '0.1s'
seed = 5
precondition = 'fill'
[base]
drives = ['DEVICE']
size = '16m'
bs = '4k'
rw = 'randread'
filesystem = 'raw'
[space]
scheduler = ['none', 'mq-deadline']
";

#[test]
fn a_construction_is_prepared_once_and_all_of_its_records_say_so() {
    let Some(rig) = Rig::new() else { return };
    let before = rig.state();
    let space = rig.space(PREPARED).display().to_string();
    let plan = finish(&mut rig.command(&["sweep", "plan", &space]));
    assert!(plan.out.contains("prepared: the construction is written 2 times, 32 MiB in all"), "{plan:#?}");

    let came = finish(&mut rig.command(&["sweep", &space, "--output", "out"]));
    assert_eq!(came.code, 0, "{came:#?}");
    let records = records(&rig.folder.path().join("out"));
    assert_eq!(records.len(), 4);
    let fills: Vec<&Value> = records.iter().map(|record| &record["precondition"]["fill"]).collect();
    assert_eq!(fills[0]["written_bytes"], 32 << 20, "{fills:#?}");
    // The time that it took would differ, had it been done again for another scheduler.
    assert!(fills.iter().all(|fill| *fill == fills[0]), "{fills:#?}");
    assert!(records.iter().all(|record| record["layout"]["contents"] == "laid for this sweep"));
    assert_eq!(rig.state(), before);
}

#[test]
fn a_space_that_only_reads_is_refused_a_drive_with_data_where_it_is_to_be_prepared() {
    let Some(rig) = Rig::new() else { return };
    let Some(_) = tool("mkfs.xfs", &["-f", "-q", &rig.device]) else { panic!("mkfs.xfs fails") };
    let space = rig.space(PREPARED).display().to_string();
    let came = finish(&mut rig.command(&["sweep", &space, "--output", "out"]));
    assert_eq!(came.code, 3, "{came:#?}");
    assert!(came.err.contains("--destroy"), "{}", came.err);
}

#[test]
fn a_setting_that_somebody_changes_voids_the_run_and_is_put_right_for_the_next() {
    let Some(rig) = Rig::new() else { return };
    let before = rig.state();
    // One scheduler for all points, so that nothing but a repair would set it anew.
    let text = SPACE
        .replace("scheduler = ['none', 'mq-deadline', 'no-such-one']", "scheduler = ['mq-deadline']")
        .replace("0.1s", "0.5s");
    let space = rig.space(&text).display().to_string();
    let start = ["sweep", &space, "--output", "out"];
    let mut child = rig.command(&start).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
    let repeated = || rig.status("out").and_then(|s| s["repeated"].as_u64()).unwrap_or(0);
    wait_until("a run that was spoilt", || {
        std::fs::write(rig.queue("scheduler"), "none").expect("can be set");
        std::thread::sleep(std::time::Duration::from_millis(200));
        repeated() > 0 || child.try_wait().expect("can be asked").is_some()
    });
    // A change that hits the moment in which the setting is made fails that run, which is then owed.
    if !ended(&mut child).success() {
        let came = finish(&mut rig.command(&["sweep", "resume", "out"]));
        assert_eq!(came.code, 0, "{came:#?}");
    }
    let status = rig.status("out").expect("a status");
    assert!(status["repeated"].as_u64() > Some(0), "{status:#}");
    // Left alone, the setting was put right: the sweep's end is sound.
    assert_eq!(status["complete"], true, "{status:#}");
    assert!(status["void"].as_u64() < Some(8), "{status:#}");
    assert_eq!(rig.state(), before);
}

#[test]
fn drives_with_data_or_in_use_refuse_the_sweep_before_anything_is_made() {
    let Some(rig) = Rig::new() else { return };
    assert!(tool("mkfs.xfs", &["-q", &rig.device]).is_some());
    let before = rig.state();
    let space = rig.space(SPACE).display().to_string();
    let came = finish(&mut rig.command(&["sweep", &space, "--output", "out"]));
    assert_eq!(came.code, 3, "{came:#?}");
    assert!(
        came.err.contains("xfs") && came.err.contains(&format!("--destroy {}", rig.device)),
        "{}",
        came.err
    );
    let at = rig.folder.path().join("mounted");
    std::fs::create_dir(&at).expect("makes");
    assert!(tool("mount", &[&rig.device, &at.display().to_string()]).is_some());
    let came = finish(&mut rig.command(&["sweep", &space, "--output", "out", "--destroy", &rig.device]));
    let unmounted = tool("umount", &[&at.display().to_string()]);
    assert_eq!(came.code, 3, "{came:#?}");
    assert!(came.err.contains("is mounted on"), "{}", came.err);
    assert!(unmounted.is_some());
    assert_eq!(rig.state(), before);
    assert!(!rig.folder.path().join("out").exists());
}

#[test]
fn documents_of_layouts_fit_their_schemas() {
    let folder = place();
    let state = folder.path().join("state");
    for (words, schema) in
        [(&["layout", "show"][..], "layout-standing"), (&["layout", "undo"], "layout-undone")]
    {
        let mut prepared = command(folder.path(), &[words, &["--json"]].concat());
        let came = finish(prepared.env("FLASHWRIGHT_STATE", &state));
        assert_eq!(came.code, 0, "{words:?}: {came:?}");
        let document: Value = serde_json::from_str(&came.out).expect("JSON");
        assert_eq!(document["schema"], format!("flashwright.{schema}/1"));
        fits_schema(folder.path(), schema, &document);
    }
    let Some(rig) = Rig::new() else { return };
    let spec = format!("single(scheduler=none):{}", rig.device);
    let survey = finish(&mut rig.command(&["layout", "survey", &rig.device, "--json"]));
    let up = finish(&mut rig.command(&["layout", "up", &spec, "--json"]));
    let show = finish(&mut rig.command(&["layout", "show", "--json"]));
    let down = finish(&mut rig.command(&["layout", "down", "--json"]));
    for (came, schema) in
        [(survey, "layout-survey"), (up, "layout"), (show, "layout-standing"), (down, "layout-undone")]
    {
        assert_eq!(came.code, 0, "{schema}: {came:?}");
        let document: Value = serde_json::from_str(&came.out).expect("JSON");
        fits_schema(rig.folder.path(), schema, &document);
    }
}

/// The lock of a state directory, held by a program whose process that took the lock has ended.
struct Inherited {
    folder: tempfile::TempDir,
    program: std::process::Child,
}

impl Inherited {
    fn new() -> Self {
        let folder = place();
        let state = folder.path().join("state");
        std::fs::create_dir(&state).expect("makes");
        let lock = std::fs::File::create(state.join("layout.lock")).expect("makes");
        lock.lock().expect("locks");
        std::fs::write(state.join("layout.lock"), "4194304999").expect("the number of no process");
        std::fs::write(state.join("layout.journal"), "").expect("writes");
        // Standard input carries the lock, as to programs that layouts start.
        let program = Command::new("sleep").arg("600").stdin(Stdio::from(lock)).spawn().expect("sleep runs");
        Self { folder, program }
    }
}

impl Drop for Inherited {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[test]
fn a_wait_for_the_lock_of_the_state_directory_ends_at_the_first_interrupt() {
    let held = Inherited::new();
    for arguments in [
        &["layout", "undo"][..],
        &["layout", "down"],
        &["tune", "undo"],
        &["layout", "up", "single:/dev/null"],
    ] {
        let state = match arguments[0] {
            // `tune` has its journal in `tune/` below the state directory.
            "tune" => {
                let state = held.folder.path().join("link");
                std::fs::create_dir_all(&state).expect("makes");
                let _ = std::os::unix::fs::symlink(held.folder.path().join("state"), state.join("tune"));
                state
            }
            _ => held.folder.path().join("state"),
        };
        let mut command = command(held.folder.path(), arguments);
        command.env("FLASHWRIGHT_STATE", state).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("runs");
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(child.try_wait().expect("can be asked").is_none(), "{arguments:?} waits");
        common::signal(&child, "-INT");
        assert_eq!(ended(&mut child).code(), Some(130), "{arguments:?}");
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().expect("a pipe"), &mut said).expect("reads");
        assert!(said.contains("interrupted while waiting for the lock"), "{arguments:?}: {said}");
    }
}
