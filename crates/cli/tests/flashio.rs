//! `flashwright flashio` as a user runs it: its document, refusals, lost tasks, Ctrl-C, and throttled tiers.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{
    command, ended_and_printed, fits_schema, json, names, place, refused, signal, skipped, unmounted,
};
use serde_json::Value;

/// Small work, which a build without optimisation does in time.
const SMALL: [&str; 8] = [
    "--tasks=2",
    "--matrix=16",
    "--compute=40ms",
    "--every=2",
    "--checkpoints=2",
    "--checkpoint-size=64k",
    "--blocks=1",
    "--seed=1",
];

/// Flags of which those given replace those of small work.
fn arguments<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let flag = |argument: &'a str| argument.split('=').next().unwrap_or_default();
    let usual = ["--fast=fast", "--slow=slow"].into_iter().chain(SMALL);
    let kept = usual.filter(|usual| more.iter().all(|given| flag(given) != flag(usual)));
    ["flashio"].into_iter().chain(kept).chain(more.iter().copied()).collect()
}

/// A directory with two empty tiers.
fn tiers() -> tempfile::TempDir {
    let folder = place();
    for name in ["fast", "slow"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    folder
}

fn started(folder: &Path, more: &[&str]) -> Child {
    let mut command = command(folder, &arguments(more));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs")
}

/// Waits for something; a hang ends in a failure.
fn until<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = seen() {
            return seen;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The directory of the run on a tier, once a leg of this number is in it.
fn leg(tier: &Path, number: u32) -> PathBuf {
    until("a leg begins", || {
        let run = std::fs::read_dir(tier).ok()?.next()?.ok()?.path();
        let leg = run.join(format!("leg-{number:05}"));
        leg.is_dir().then_some(leg)
    })
}

/// The process of a task.
fn task(coordinator: &Child, number: u32) -> u32 {
    let wanted = format!("FLASHWRIGHT_RANK={number}/");
    until("a task runs", || {
        let children = format!("/proc/{0}/task/{0}/children", coordinator.id());
        let children = std::fs::read_to_string(children).ok()?;
        children.split_whitespace().find_map(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|variable| variable.starts_with(wanted.as_bytes())).then(|| pid.parse().ok())?
        })
    })
}

fn node() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

#[test]
fn a_run_prints_the_papers_table_and_its_document_fits_the_schema() {
    let folder = tiers();
    let document = json(folder.path(), &arguments(&["--json", "--output=results"]));
    fits_schema(folder.path(), "flashio", &document);
    let ways: Vec<&str> =
        document["ways"].as_array().unwrap().iter().map(|way| way["way"].as_str().unwrap()).collect();
    assert_eq!(ways, ["slow", "drained", "fast"]);
    assert_eq!(document["drain"]["checked_bytes"], 2 * 2 * 65536);
    assert_eq!(document["ended"], Value::Null);
    let page = std::fs::read_to_string(folder.path().join("results/report.html")).unwrap();
    for words in ["Table II", "Write B/W (MB/s)", "Slow-down ω", "Kill to the first new iteration done"] {
        assert!(page.contains(words), "{words}");
    }
    let kept: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("results/flashio.json")).unwrap()).unwrap();
    assert_eq!(kept, document);
    assert_eq!((names(&folder.path().join("fast")), names(&folder.path().join("slow"))), (vec![], vec![]));
}

#[test]
fn report_makes_the_page_and_the_figures_again_from_the_document() {
    let folder = tiers();
    let printed = common::works(folder.path(), &arguments(&["--output=results"]));
    let page = folder.path().join("results/report.html");
    let first = std::fs::read_to_string(&page).unwrap();
    std::fs::remove_file(&page).unwrap();
    let report = ["flashio", "report", "results"];
    assert_eq!(common::works(folder.path(), &report).out, printed.out);
    assert_eq!(std::fs::read_to_string(&page).unwrap(), first);

    let document = folder.path().join("results/flashio.json");
    let older =
        std::fs::read_to_string(&document).unwrap().replace("flashwright.flashio/2", "flashwright.flashio/1");
    std::fs::write(&document, older).unwrap();
    let words = "error: results/flashio.json: is flashwright.flashio/1, and flashwright.flashio/2 is read\n";
    refused(
        folder.path(),
        &report,
        2,
        &(words.to_owned() + "hint: run flashwright flashio --output again\n"),
    );
    let came = common::run(folder.path(), &["flashio", "report", "fast"]);
    assert!(came.code == 2 && came.err.starts_with("error: fast/flashio.json: cannot be read: "), "{came:?}");
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_is_written() {
    let folder = tiers();
    let path = folder.path();
    let with = |slow: &'static str, more: &[&'static str]| arguments(&[&[slow], more].concat());
    let own = path.canonicalize().unwrap();
    let words = format!("error: --slow={}/fast: is the directory of the fast tier\n", own.display());
    let hint = "hint: name two directories, on different devices\n";
    refused(path, &with("--slow=./fast", &[]), 2, &(words + hint));
    refused(
        path,
        &with("--slow=none", &[]),
        2,
        "error: --slow=none: No such file or directory (os error 2)\nhint: name a directory that is there and may be written to\n",
    );
    refused(
        path,
        &with("--slow=slow", &["--checkpoint-size=5000"]),
        2,
        "error: --checkpoint-size=5000: is not a multiple of 4 KiB\nhint: for instance 64m\n",
    );
    let came = common::run(path, &with("--slow=slow", &["--checkpoint-size=1p"]));
    assert!(came.code == 2 && came.err.contains("--fast="), "{came:?}");
    assert!(came.err.contains(" are needed there, and ") && came.err.contains("hint: a smaller"), "{came:?}");
    assert!(names(&path.join("fast")).is_empty() && names(&path.join("slow")).is_empty());
}

#[test]
fn directory_whose_name_is_not_utf_8_is_in_the_document_as_its_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tiers();
    let odd = folder.path().join(std::ffi::OsStr::from_bytes(b"slow\xff"));
    std::fs::create_dir(&odd).unwrap();
    let named = command(folder.path(), &["flashio", "--json", "--fast=fast"])
        .args(SMALL)
        .arg("--slow")
        .arg(&odd)
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&named.stdout).unwrap_or_else(|_| panic!("{named:?}"));
    fits_schema(folder.path(), "flashio", &document);
    assert!(
        document["slow"]["path"]["hex"].as_str().unwrap().ends_with("736c6f77ff"),
        "{}",
        document["slow"]
    );
}

#[test]
fn directory_that_may_not_be_written_to_is_refused_with_its_flag() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tiers();
    let slow = folder.path().join("slow");
    std::fs::set_permissions(&slow, std::fs::Permissions::from_mode(0o500)).unwrap();
    if std::fs::create_dir(slow.join("probe")).is_ok() {
        skipped("SKIP a directory that may not be written to: root may write everywhere");
        return;
    }
    let own = folder.path().canonicalize().unwrap();
    let words =
        format!("error: --slow={}/slow: no directory can be made there: permission denied\n", own.display());
    let hint = "hint: name a directory that is there and may be written to\n";
    refused(folder.path(), &arguments(&[]), 2, &(words + hint));
    assert!(names(&folder.path().join("fast")).is_empty());
}

/// What a checkpoint's name vouches for, from outside: the order of syncs and renames, by strace(1).
#[test]
fn files_and_directory_are_synced_before_a_checkpoint_gets_its_name_and_the_name_after_it() {
    let folder = tiers();
    let trace = folder.path().join("trace");
    let calls = "trace=fsync,fdatasync,rename,renameat,renameat2";
    let traced = Command::new("strace")
        .args(["-f", "-y", "-e", calls, "-o"])
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_flashwright"))
        .args(arguments(&["--checkpoints=1"]))
        .current_dir(folder.path())
        .output();
    let Ok(traced) = traced else {
        skipped("SKIP the order of syncs: no strace");
        return;
    };
    assert!(traced.status.success(), "{}", String::from_utf8_lossy(&traced.stderr));
    let trace = std::fs::read_to_string(&trace).unwrap();
    let lines: Vec<&str> = trace.lines().filter(|line| !line.contains("resumed>")).collect();
    // Two of the three ways publish a plain directory.
    let renames =
        lines.iter().enumerate().filter(|(_, line)| line.contains("rename") && line.contains(".step-1.part"));
    let renames: Vec<(usize, &str)> =
        renames.map(|(at, line)| (at, line.split('"').nth(1).expect("a path"))).collect();
    assert_eq!(renames.len(), 2, "{trace}");
    for (at, part) in renames {
        let synced = |lines: &[&str], path: &str| {
            lines.iter().any(|line| line.contains("sync(") && line.contains(&format!("<{path}>")))
        };
        for path in [part.to_owned(), format!("{part}/task-00001"), format!("{part}/task-00002")] {
            assert!(synced(&lines[..at], &path), "{path} is not synced before it gets its name:\n{trace}");
        }
        let leg = Path::new(part).parent().unwrap().to_str().unwrap();
        assert!(synced(&lines[at..], leg), "{leg} is not synced after the name:\n{trace}");
    }
    // Of the way that drains, each task's own sync, before the store's.
    let own = lines.iter().filter(|line| line.contains("fsync(") && line.contains("/task-0000")).count();
    assert!(own >= 6, "{trace}");
}

/// Whether a task has begun its file of a checkpoint in this leg.
fn has_begun(folder: &Path, leg: u32, task: u32) -> bool {
    fn holds(directory: &Path, name: &str) -> bool {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name() == name || holds(&entry.path(), name))
    }
    let runs = ["fast", "slow"].map(|tier| folder.join(tier));
    let runs = runs.iter().flat_map(|tier| std::fs::read_dir(tier).into_iter().flatten().flatten());
    runs.into_iter().any(|run| holds(&run.path().join(format!("leg-{leg:05}")), &format!("task-{task:05}")))
}

/// CPU time that a process has used in user mode, in clock ticks, and its state.
fn stat(pid: u32) -> (u64, String) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse().unwrap(), fields[0].to_owned())
}

/// Task 2 is stopped while it computes, until task 1 has written and half a second has gone by.
#[test]
fn bandwidth_is_no_more_than_the_bytes_by_the_time_from_the_first_byte_to_the_last() {
    let folder = tiers();
    let mut run = started(folder.path(), &["--json", "--compute=1s", "--checkpoints=1"]);
    let apart = Duration::from_millis(500);
    // A leg in which the task was too quick to be stopped does not count; there are three.
    let stopped = (1..=3).find(|number| {
        let directory = leg(&folder.path().join("slow"), *number);
        let pid = task(&run, 2);
        let (before, _) = stat(pid);
        let is_late = || has_begun(folder.path(), *number, 2) || !directory.is_dir();
        // What it does before it computes takes less CPU time.
        until("the task computes", || (stat(pid).0 >= before + 5 || is_late()).then_some(()));
        let send = |name: &str| Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
        assert!(send("-STOP").success());
        until("the task is stopped", || (stat(pid).1 == "T").then_some(()));
        let is_apart = !is_late();
        if is_apart {
            until("the other task writes", || has_begun(folder.path(), *number, 1).then_some(()));
            std::thread::sleep(apart);
        }
        assert!(send("-CONT").success());
        is_apart
    });
    let (status, out, err) = ended_and_printed(&mut run);
    assert!(status.success(), "{err}");
    let document: Value = serde_json::from_str(&out).unwrap();
    let stopped = &document["legs"][stopped.expect("a leg with writes apart") as usize - 1];
    assert!(stopped["checkpoints"][0]["write_s"].as_f64().unwrap() >= apart.as_secs_f64(), "{stopped}");
    let way = document["ways"].as_array().unwrap().iter().find(|way| way["way"] == stopped["way"]).unwrap();
    let most = 2.0 * 65536.0 / apart.as_secs_f64();
    assert!(way["write_bytes_per_s"].as_f64().unwrap() <= most, "{way}");
}

#[test]
fn a_killed_task_is_named_and_what_was_measured_before_is_kept() {
    let folder = tiers();
    let mut run = started(folder.path(), &["--json", "--compute=300ms", "--blocks=4"]);
    leg(&folder.path().join("slow"), 4);
    let of = task(&run, 2);
    assert!(Command::new("kill").args(["-9", &of.to_string()]).status().unwrap().success());
    let (status, out, err) = ended_and_printed(&mut run);
    assert_eq!(status.code(), Some(1), "{err}");
    assert_eq!(err, format!("error: task 2 on {} ended: killed by signal 9\n", node()));
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["legs"].as_array().unwrap().len(), 3);
    assert_eq!(document["ended"], format!("task 2 on {} ended: killed by signal 9", node()));
    assert!(names(&folder.path().join("fast")).is_empty() && names(&folder.path().join("slow")).is_empty());
}

#[test]
fn a_task_that_does_not_answer_is_named_with_a_hint() {
    let folder = tiers();
    // Each step is short, and the time-out long beside it, whatever else the machine does.
    let mut run = started(folder.path(), &["--blocks=1000", "--timeout=12s", "--multiplications=1"]);
    leg(&folder.path().join("slow"), 2);
    let of = task(&run, 1);
    assert!(Command::new("kill").args(["-STOP", &of.to_string()]).status().unwrap().success());
    let (status, _, err) = ended_and_printed(&mut run);
    assert_eq!(status.code(), Some(1), "{err}");
    assert!(err.starts_with(&format!("error: task 1 on {} did not answer within ", node())), "{err}");
    assert!(err.ends_with("hint: a task that is only slow needs a longer --timeout\n"), "{err}");
    assert!(!Path::new(&format!("/proc/{of}")).exists(), "the stopped task is left behind");
    assert!(names(&folder.path().join("fast")).is_empty() && names(&folder.path().join("slow")).is_empty());
}

#[test]
fn after_ctrl_c_the_legs_before_are_printed_and_nothing_is_left() {
    let folder = tiers();
    let mut run = started(folder.path(), &["--json", "--blocks=6", "--compute=300ms"]);
    leg(&folder.path().join("slow"), 3);
    signal(&run, "-INT");
    let (status, out, err) = ended_and_printed(&mut run);
    assert_eq!((status.code(), err.as_str()), (Some(130), "error: interrupted\n"));
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (document["ended"].as_str(), document["legs"].as_array().unwrap().len()),
        (Some("interrupted"), 2)
    );
    fits_schema(folder.path(), "flashio", &document);
    assert!(names(&folder.path().join("fast")).is_empty() && names(&folder.path().join("slow")).is_empty());
}

/// A file system of its own, filled under the tasks.
#[test]
fn a_task_whose_disk_is_full_is_named_with_its_file() {
    let folder = tiers();
    let slow = folder.path().join("slow");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=40m", "none"]).arg(&slow).output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        skipped("SKIP a full disk: no file system can be mounted here, which takes root");
        return;
    }
    let _mounted = Mounted(slow.clone());
    // The fast tier in memory as well: a drain into memory from a disk is refused.
    let more = ["--fast=slow/fast", "--slow=slow/slow", "--compute=300ms", "--blocks=6"];
    for name in ["fast", "slow"] {
        std::fs::create_dir(slow.join(name)).unwrap();
    }
    let mut run = started(folder.path(), &more);
    leg(&slow.join("slow"), 2);
    let filled = Command::new("dd")
        .args(["if=/dev/zero", "bs=4k", "status=none"])
        .arg(format!("of={}", slow.join("filler").display()))
        .output()
        .unwrap();
    assert!(!filled.status.success(), "the file system is full");
    let (status, _, err) = ended_and_printed(&mut run);
    assert_eq!(status.code(), Some(1), "{err}");
    assert!(err.contains("No space left on device"), "{err}");
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        assert!(unmounted(&self.0) || std::thread::panicking(), "{} stays", self.0.display());
    }
}

/// The example's tiers; unmade when dropped.
struct Tiers(PathBuf);

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/flashio-tiers.sh");

impl Tiers {
    fn script(&self, verb: &str, more: &[&str]) -> std::process::Output {
        Command::new("sh")
            .args([SCRIPT, verb])
            .arg(&self.0)
            .args(more)
            .env("FLASHWRIGHT", env!("CARGO_BIN_EXE_flashwright"))
            .envs([("MIB", "320"), ("SLOW_MB", "10"), ("COMPUTE", "200ms"), ("CHECKPOINT", "4m")])
            .output()
            .expect("sh runs")
    }
}

impl Drop for Tiers {
    fn drop(&mut self) {
        let done = self.script("down", &[]);
        if !done.status.success() {
            eprintln!("left behind: {}", String::from_utf8_lossy(&done.stderr));
        }
    }
}

#[test]
fn four_tasks_run_on_the_throttled_tiers_of_the_example() {
    let folder = place();
    let tiers = Tiers(folder.path().join("tiers"));
    let made = tiers.script("up", &[]);
    if !made.status.success() {
        let why = String::from_utf8_lossy(&made.stderr).trim().replace('\n', " ");
        skipped(&format!("SKIP throttled tiers: {why}"));
        return;
    }
    let more = ["--matrix=16", "--checkpoints=2", "--blocks=1", "--json"];
    let done = tiers.script("run", &more);
    let err = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{err}");
    let document: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&document["tasks"], &document["fast"]["file_system"]), (&4.into(), &"xfs".into()));
    assert_eq!(document["drain"]["checked_bytes"], 32 << 20);
    // Of 1.7 s. The kernel lets the bytes of a slice of a tenth of a second through at once, on a busy machine those of two.
    assert_eq!(document["ways"][0]["way"], "slow");
    let written = document["ways"][0]["write_bytes_per_s"].as_f64().unwrap();
    assert!(written <= 1.5 * 10e6, "{written} bytes a second on a tier of 10 MB/s");
    let down = tiers.script("down", &[]);
    assert!(down.status.success(), "{}", String::from_utf8_lossy(&down.stderr));
    assert!(names(&folder.path().join("tiers")).is_empty());
}
