//! One command by several processes of this host: `--tasks`. With mpirun: `make test-mpi`.

mod common;

use std::path::Path;
use std::process::Stdio;

use common::{command, ended, fits_schema, json, place, run, wait_until, works};

const MIB: u64 = 1 << 20;
const WRITE: [&str; 6] = ["bench", "--rw=write", "--bs=256k", "--size=4m", "--tasks", "3"];

fn with<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [first, more].concat()
}

/// The children of a process.
fn children(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

fn signal(pid: u32, name: &str) {
    let sent = std::process::Command::new("kill").args([format!("-{name}"), pid.to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

#[test]
fn each_task_writes_a_file_and_the_figures_are_of_all() {
    let folder = place();
    let document = json(folder.path(), &with(&WRITE, &["--target", "f", "--json"]));
    fits_schema(folder.path(), "bench-tasks", &document);
    assert_eq!(document["aggregate_bytes"], 12 * MIB);
    assert_eq!((&document["nodes"], &document["tasks"]), (&1.into(), &3.into()));
    for rank in 0..3 {
        let file = folder.path().join(format!("f.0000000{rank}"));
        assert_eq!(std::fs::metadata(&file).expect("a file of its own").len(), 4 * MIB);
        assert_eq!(document["by_task"][rank]["bytes"], 4 * MIB);
    }
    let number = |name: &str| document[name].as_f64().expect("a number");
    let expected = 12.0 * MIB as f64 * 1e9 / number("elapsed_ns");
    assert!((number("bandwidth_bytes_per_s") / expected - 1.0).abs() < 1e-9);
    // Each task's own time is within the time of all.
    assert!(number("bandwidth_sum_bytes_per_s") >= number("bandwidth_bytes_per_s"));
    // The counts are of the measured interval, which begins once the queue is full.
    assert!(document["figures"]["bytes"].as_u64() <= Some(12 * MIB));
}

#[test]
fn shared_file_is_written_in_blocks_and_read_back_by_others() {
    let folder = place();
    let shared = ["--shared", "--verify=crc32c", "--target", "f"];
    works(folder.path(), &with(&WRITE, &shared));
    assert_eq!(std::fs::metadata(folder.path().join("f")).expect("one file").len(), 12 * MIB);
    let read = ["bench", "--rw=read", "--bs=256k", "--size=4m", "--tasks", "3", "--reorder", "--json"];
    let document = json(folder.path(), &with(&read, &shared));
    assert_eq!(document["reorder"], true);
    for rank in 0..3_u64 {
        let record = &document["by_task"][rank as usize]["record"];
        assert_eq!(record["workload"]["offset"], (rank + 1) % 3 * 4 * MIB, "rank {rank} reads its own block");
        assert_eq!(record["verified_blocks"], 16);
    }
}

#[test]
fn nothing_is_printed_where_nothing_was_measured() {
    let folder = place();
    let came =
        run(folder.path(), &["bench", "--rw=read", "--bs=256k", "--size=4m", "--tasks=2", "--target=f"]);
    assert_eq!((came.code, came.out.as_str()), (2, ""), "{came:?}");
    assert!(came.err.contains("f.00000000: no such file"), "{came:?}");
}

#[test]
fn what_makes_no_sense_with_several_tasks_is_refused() {
    let folder = place();
    let at = folder.path();
    let refuses = |arguments: &[&str], words: &str| {
        let came = run(at, arguments);
        assert!(came.err.contains(words), "{arguments:?}: {came:?}");
        assert_eq!(
            (came.code, came.err.lines().count(), came.out.as_str()),
            (2, 2, ""),
            "{arguments:?}: {came:?}"
        );
    };
    refuses(&with(&WRITE, &["--target", "f", "--reorder"]), "--reorder: rw=write writes");
    refuses(&["bench", "--rw=write", "--tasks", "2", "--shared", "--target", "f"], "--shared needs --size");
    refuses(&with(&WRITE, &["--target", "mem:64m"]), "each task has a file of its own");
    refuses(&with(&WRITE, &["--target", "f", "--purge"]), "--purge cannot be combined with several tasks");
    refuses(&["bench", "--tasks", "0", "--target", "f", "--size=1m", "--rw=write"], "--tasks=0");
    refuses(&["bench", "--shared", "--target", "f"], "--shared needs several tasks");
    refuses(
        &["bench", "--rw=read", "--tasks", "1", "--reorder", "--target", "f"],
        "--reorder needs another task",
    );
    assert_eq!(std::fs::read_dir(at).expect("a directory").count(), 0);
}

#[test]
fn task_that_fails_is_named_and_the_others_end() {
    let folder = place();
    std::fs::create_dir(folder.path().join("f.00000001")).expect("makes");
    let came = run(folder.path(), &with(&WRITE, &["--target", "f"]));
    assert!(came.err.starts_with("error: rank 1 on ") && came.err.contains("is a directory"), "{}", came.err);
    assert_eq!((came.code, came.err.lines().count()), (2, 2), "{}", came.err);
}

/// Starts three tasks that write for a minute, strikes one of them once all are at work, and returns code, output and errors.
fn struck(folder: &Path, rank: usize, signal_name: &str, more: &[&str]) -> (i32, String, String) {
    let arguments = with(&WRITE, &["--runtime=60s", "--time_based", "--target", "f", "--live"]);
    let mut child = command(folder, &with(&arguments, more))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut said = String::new();
    // A line a second, once all write.
    let mut err = child.stderr.take().expect("is piped");
    let mut byte = [0];
    while !said.contains("MB/s") && !said.contains("GB/s") {
        std::io::Read::read_exact(&mut err, &mut byte).unwrap_or_else(|error| panic!("{error}: {said}"));
        said.push(char::from(byte[0]));
    }
    let others = children(child.id());
    assert_eq!(others.len(), 2, "{said}");
    signal([&[child.id()], &others[..]].concat()[rank], signal_name);
    std::io::Read::read_to_string(&mut err, &mut said).expect("text");
    let mut out = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().expect("is piped"), &mut out).expect("text");
    let status = ended(&mut child);
    wait_until("the tasks have ended", || {
        others.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    });
    (status.code().unwrap_or(-1), out, said)
}

#[test]
fn task_that_is_killed_is_named_and_what_was_measured_is_kept() {
    let folder = place();
    let (code, out, err) = struck(folder.path(), 2, "KILL", &["--json"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("rank 2 on ") && err.contains("killed by signal 9"), "{err}");
    let document: serde_json::Value = serde_json::from_str(&out).expect("a document");
    fits_schema(folder.path(), "bench-tasks", &document);
    assert!(document["lost"].as_str().is_some_and(|lost| lost.contains("rank 2")), "{out}");
    // Each task is there, with what it had told by then; the bar, which was waited for, showed bytes of one at least.
    assert_eq!(document["by_task"].as_array().map(Vec::len), Some(3), "{out}");
    assert!(document["aggregate_bytes"].as_u64() > Some(0), "{out}");
}

#[test]
fn task_that_is_stopped_is_named_once_the_limit_has_passed() {
    let folder = place();
    let (code, out, err) = struck(folder.path(), 2, "STOP", &["--request_timeout=2s"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("rank 2 on ") && err.contains("did not answer within"), "{err}");
    assert!(out.contains("tasks/node"), "{out}");
}

#[test]
fn interruption_is_told_once_and_by_the_root() {
    let folder = place();
    let (code, out, err) = struck(folder.path(), 0, "INT", &[]);
    assert_eq!((code, err.matches("error: ").count()), (130, 1), "{err}");
    assert!(err.contains("error: interrupted") && out.contains("tasks/node"), "{err}\n{out}");
}

#[test]
fn soft_limit_of_open_files_is_raised_and_the_hard_one_named() {
    let folder = place();
    let limited = |kind: &str| {
        let script = format!("ulimit -{kind} 40 && exec \"$0\" \"$@\"");
        let arguments = ["bench", "--rw=write", "--bs=4k", "--size=4k", "--tasks", "24", "--target", "f"];
        let came = std::process::Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_flashwright")])
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .expect("sh runs");
        (came.status.code(), String::from_utf8_lossy(&came.stderr).into_owned())
    };
    let (code, err) = limited("n");
    assert!(code == Some(1) && err.contains("Too many open files"), "{err}");
    assert!(err.contains("hint: start fewer tasks, or raise the limit of open files"), "{err}");
    let (code, err) = limited("Sn");
    assert_eq!(code, Some(0), "{err}");
}

/// A tree with empty, small and large files, a second name, a link and directories in each other.
fn tree(folder: &Path) {
    for directory in 0..6_usize {
        let at = folder.join(format!("source/d{directory}/below"));
        std::fs::create_dir_all(&at).expect("makes");
        for file in 0..200 {
            std::fs::write(at.join(format!("f{file}")), vec![file as u8; file * 37 * directory])
                .expect("writes");
        }
        std::fs::write(at.join("large"), vec![directory as u8; 5 << 20]).expect("writes");
    }
    let at = |name: &str| folder.join("source/d1").join(name);
    std::fs::hard_link(at("below/f3"), at("second")).expect("links");
    std::os::unix::fs::symlink("below/f4", at("link")).expect("links");
}

fn are_equal(folder: &Path, one: &str, other: &str) -> bool {
    let compared = std::process::Command::new("diff")
        .args(["-r", "--no-dereference", "--exclude=.flashwright-manifest", one, other])
        .current_dir(folder)
        .status();
    compared.expect("diff runs").success()
}

#[test]
fn several_tasks_copy_a_tree_that_verifies() {
    let folder = place();
    tree(folder.path());
    works(folder.path(), &["stage", "cp", "--tasks", "3", "--state", "state", "source", "copy"]);
    assert!(are_equal(folder.path(), "source", "copy"));
    let verified = works(folder.path(), &["stage", "verify", "--state", "state", "copy"]);
    assert!(verified.out.contains("all as they were written"), "{}", verified.out);
    let inode = |name: &str| {
        let file = std::fs::metadata(folder.path().join("copy/d1").join(name)).expect("is there");
        std::os::unix::fs::MetadataExt::ino(&file)
    };
    assert_eq!(inode("below/f3"), inode("second"), "two names of one file");
}

#[test]
fn copy_whose_task_is_killed_publishes_nothing_and_is_gone_on_with() {
    let folder = place();
    let at = folder.path();
    // Large enough to be divided among tasks; its holes are copied as zeros.
    let source = std::fs::File::create(at.join("source")).expect("makes");
    source.set_len(768 * MIB).expect("is given a length");
    std::os::unix::fs::FileExt::write_all_at(&source, b"end", 768 * MIB - 3).expect("writes");
    let copy =
        ["stage", "cp", "--tasks", "3", "--state", "state", "--preserve", "mode", "-T", "source", "copy"];
    let mut child = command(at, &copy).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts");
    let has_part = || common::names(at).iter().any(|name| name.starts_with(".copy."));
    wait_until("a part is there", has_part);
    let others = children(child.id());
    signal(others[1], "KILL");
    let mut err = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().expect("is piped"), &mut err).expect("text");
    assert_eq!(ended(&mut child).code(), Some(1), "{err}");
    assert!(err.contains("rank 2 on ") && err.contains("killed by signal 9"), "{err}");
    assert!(err.starts_with("error: the copy has stopped: rank 2 on "), "{err}");
    assert!(err.ends_with("hint: the same command goes on where it stopped\n"), "{err}");
    assert!(!at.join("copy").exists(), "it has its name only when it is whole");
    works(at, &copy);
    let compared = std::process::Command::new("cmp").args(["source", "copy"]).current_dir(at).status();
    assert!(compared.expect("cmp runs").success());
    assert!(!has_part(), "{:?}", common::names(at));
}

#[test]
fn several_tasks_refuse_to_move_and_to_be_slowed() {
    let folder = place();
    let at = folder.path();
    std::fs::write(at.join("source"), "data").expect("writes");
    for (more, words) in
        [(["mv", "--json"], "do not move"), (["cp", "--background"], "--background cannot be combined")]
    {
        let came =
            run(at, &["stage", more[0], more[1], "--tasks", "2", "--state", "state", "source", "copy"]);
        assert!(came.code == 2 && came.err.contains(words), "{came:?}");
    }
    assert_eq!(common::names(at), ["source"]);
}

#[test]
fn srun_without_pmi_is_refused_once_and_writes_nothing() {
    let folder = place();
    for name in ["fast", "slow", "source"] {
        std::fs::create_dir(folder.path().join(name)).expect("makes");
    }
    let of_rank = |arguments: &[&str], rank: &str| {
        let step = [("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0"), ("SLURM_NTASKS", "4")];
        common::finish(command(folder.path(), arguments).envs(step).env("SLURM_PROCID", rank))
    };
    let bench = ["bench", "--rw=write", "--size=1m", "--target", "f"];
    let flashio = ["flashio", "--fast", "fast", "--slow", "slow", "--compute=10ms", "--blocks=1"];
    let with_tasks = ["bench", "--rw=write", "--size=1m", "--target", "f", "--tasks=2"];
    let copy = ["stage", "cp", "--state", "state", "source", "copy"];
    for arguments in [&bench[..], &flashio, &with_tasks, &copy] {
        let root = of_rank(arguments, "0");
        assert_eq!((root.code, root.out.as_str()), (2, ""), "{root:?}");
        let lines: Vec<&str> = root.err.lines().collect();
        let [error, hint] = lines[..] else { panic!("{root:?}") };
        assert!(error.starts_with("error: srun has started 4 processes without PMI: "), "{error}");
        assert!(hint.contains("srun --mpi=pmix") && hint.contains("--features mpi"), "{hint}");
    }
    let other = of_rank(&bench, "3");
    assert_eq!((other.code, other.out.as_str(), other.err.as_str()), (2, "", ""));
    assert_eq!(common::names(folder.path()), ["fast", "slow", "source"]);
    assert!(common::names(&folder.path().join("fast")).is_empty());
}

#[test]
fn what_a_batch_script_or_one_process_of_srun_starts_works_alone() {
    let folder = place();
    let works = |step: &[(&str, &str)]| {
        let bench = ["bench", "--rw=write", "--size=1m", "--target", "f"];
        let slurm = [("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")];
        let mut command = command(folder.path(), &bench);
        let came = common::finish(command.envs(slurm).envs(step.iter().copied()));
        assert_eq!(came.code, 0, "{step:?}: {came:?}");
    };
    works(&[("SLURM_STEP_ID", "4294967291")]);
    works(&[]);
    works(&[("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]);
}

#[test]
#[cfg(not(feature = "mpi"))]
fn srun_with_pmix_needs_a_program_with_mpi() {
    let folder = place();
    let root = common::finish(
        command(folder.path(), &["bench", "--rw=write", "--size=1m", "--target", "f"])
            .envs([("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "0")])
            .env("PMIX_RANK", "0"),
    );
    assert!(root.err.starts_with("error: srun has started 4 processes, and this program"), "{root:?}");
    assert_eq!((root.code, common::names(folder.path()).len()), (2, 0));
}

#[test]
#[cfg(not(feature = "mpi"))]
fn mpirun_without_mpi_is_refused_once() {
    let folder = place();
    let of_rank = |rank: &str| {
        common::finish(
            command(folder.path(), &["bench", "--rw=write", "--size=1m", "--target", "f"])
                .env("OMPI_COMM_WORLD_RANK", rank)
                .env("OMPI_COMM_WORLD_SIZE", "4"),
        )
    };
    let root = of_rank("0");
    assert_eq!(root.code, 2);
    assert_eq!(root.err.lines().count(), 2, "{}", root.err);
    assert!(
        root.err.contains("mpirun has started 4 processes") && root.err.contains("--features mpi"),
        "{}",
        root.err
    );
    let other = of_rank("1");
    assert_eq!((other.code, other.err.as_str()), (2, ""));
    assert_eq!(std::fs::read_dir(folder.path()).expect("a directory").count(), 0, "nothing was written");
}
