//! fio's job files against fio itself, and engines that move no data.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{command, ended, names, place, run, signal, skipped, tool, wait_until, works};
use serde_json::Value;

fn job_file(folder: &Path, text: &str) {
    fs::write(folder.join("j.fio"), text).expect("writes");
}

/// What `bench j.fio --json` prints beside its notes.
fn document(folder: &Path) -> Value {
    let came = run(folder, &["bench", "j.fio", "--json"]);
    assert_eq!(came.code, 0, "{}", came.err);
    serde_json::from_str(&came.out).expect("a document")
}

/// Fails unless the job file is refused with these words.
fn is_refused(folder: &Path, code: i32, words: &str) {
    let came = run(folder, &["bench", "j.fio"]);
    let error = came.err.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    assert!(
        came.code == code && error.contains(words) && came.err.contains("hint: "),
        "{}: {}",
        came.code,
        came.err
    );
}

#[test]
fn what_fio_and_flashwright_say_of_the_same_job_files_is_the_same() {
    for needed in ["fio", "python3"] {
        if tool(needed, &["--version"]).is_none() {
            return skipped(&format!("{needed} is not installed"));
        }
    }
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).expect("a tree");
    let script = tree.join("tools/fio-compare").display().to_string();
    let came = tool(
        &script,
        &["jobs", "--flashwright", env!("CARGO_BIN_EXE_flashwright"), "--place", env!("CARGO_TARGET_TMPDIR")],
    );
    let table = came.expect("python3 is there, and finds no difference");
    let page = fs::read_to_string(tree.join("docs/fio.md")).expect("reads");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.len() >= 8, "{table}");
    if page.contains(tool("fio", &["--version"]).expect("is there").trim()) {
        for row in rows {
            assert!(page.contains(row), "docs/fio.md lacks what `make fio-compare` prints:\n{row}");
        }
    }
}

#[test]
fn requests_that_move_nothing_are_counted_and_nothing_is_said_of_a_drive() {
    let folder = place();
    job_file(folder.path(), "[a]\nioengine=null\nsize=4m\nrw=randrw\niodepth=8\niodepth_batch=4\n");
    let document = document(folder.path());
    let record = &document["record"];
    assert_eq!(
        (&record["engine"]["used"], &record["target"]["kind"]),
        (&"null".into(), &"operations".into())
    );
    assert_eq!(record["total"]["ios"], 1024);
    assert!(record["verdict"].is_null() && record["drives"].as_array().is_none_or(Vec::is_empty), "{record}");
    assert_eq!(names(folder.path()), ["j.fio"], "no file was made");
    let text = works(folder.path(), &["bench", "j.fio"]);
    assert!(text.err.contains("ioengine=null moves no data"), "{}", text.err);
    for option in ["fsync=1", "sync=dsync", "end_fsync=1"] {
        job_file(folder.path(), &format!("[a]\nioengine=null\nsize=1m\nrw=write\n{option}\n"));
        is_refused(folder.path(), 2, "nothing that could be made durable");
    }
}

#[test]
fn files_that_somebody_else_has_put_there_are_neither_made_nor_removed() {
    let folder = place();
    let mine = folder.path().join("a.0.3");
    fs::write(&mine, "mine").expect("writes");
    for engine in ["filecreate", "filedelete", "dircreate", "dirdelete"] {
        job_file(folder.path(), &format!("[a]\nioengine={engine}\nnrfiles=8\nfilesize=4k\n"));
        is_refused(folder.path(), 3, "is there already");
        assert_eq!(names(folder.path()), ["a.0.3", "j.fio"], "{engine}");
    }
    assert_eq!(fs::read_to_string(&mine).expect("is there"), "mine");
    job_file(folder.path(), "[a]\nioengine=filestat\nnrfiles=8\nfilesize=4k\nallow_file_create=0\n");
    is_refused(folder.path(), 2, "is missing");
}

#[test]
fn directories_are_made_looked_up_and_removed() {
    let folder = place();
    let text = "[global]\nnrfiles=5\nfilesize=4k\nnumjobs=2\n[make]\nioengine=dircreate\ncreate_on_open=1\n\
                [look]\nstonewall\nioengine=dirstat\n[remove]\nstonewall\nioengine=dirdelete\n";
    job_file(folder.path(), text);
    let dry = works(folder.path(), &["bench", "j.fio", "--dry-run"]).out;
    assert!(dry.contains("make.0.0 … make.0.4 (5 names), which must not be there"), "{dry}");
    assert_eq!(names(folder.path()), ["j.fio"]);
    let document = document(folder.path());
    let jobs = document["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.len(), 6);
    for job in jobs {
        assert_eq!(job["record"]["total"]["ios"], 5, "{job}");
    }
    let left = names(folder.path());
    assert_eq!(left.iter().filter(|name| name.starts_with("make.")).count(), 10, "{left:?}");
    assert_eq!(left.iter().filter(|name| name.starts_with("look.")).count(), 10, "{left:?}");
    assert!(!left.iter().any(|name| name.starts_with("remove.")), "{left:?}");
}

#[test]
fn a_file_that_is_there_keeps_its_length_unless_it_is_given_up() {
    let folder = place();
    let data = folder.path().join("data");
    fs::write(&data, "somebody's work\n".repeat(4096)).expect("writes");
    job_file(folder.path(), "[a]\nioengine=ftruncate\nfilename=data\nsize=64k\nbs=4k\nrw=write\n");
    is_refused(folder.path(), 3, "data");
    assert_eq!(fs::metadata(&data).expect("is there").len(), 65536);
    works(folder.path(), &["bench", "j.fio", "--destroy", "data"]);
    assert_eq!(fs::metadata(&data).expect("is there").len(), 61440, "the offset of the last request");
    for (engine, rw) in
        [("falloc", "read"), ("falloc", "randrw"), ("ftruncate", "read"), ("ftruncate", "trim")]
    {
        job_file(folder.path(), &format!("[a]\nioengine={engine}\nfilename=data\nbs=4k\nrw={rw}\n"));
        is_refused(folder.path(), 2, "rw");
    }
}

#[test]
fn a_job_may_compute_beside_one_that_does_io() {
    let folder = place();
    job_file(
        folder.path(),
        "[burn]\nioengine=cpuio\ncpuload=30\ncpuchunks=5000\nruntime=1\n[io]\nioengine=null\nsize=1g\nrate_iops=200\nnumber_ios=40\n",
    );
    let document = document(folder.path());
    let jobs = document["jobs"].as_array().expect("jobs");
    let total = |place: usize| jobs[place]["record"]["total"]["ios"].clone();
    assert_eq!((total(0), total(1)), (0.into(), 40.into()));
    assert!(jobs[0]["record"]["jobs"][0]["user_ns"].as_u64().is_some_and(|ns| ns > 0), "{}", jobs[0]);
    job_file(folder.path(), "[burn]\nioengine=cpuio\ncpuload=30\n");
    is_refused(folder.path(), 2, "no end without a runtime");
}

#[test]
fn a_file_in_the_place_of_one_that_the_run_made_is_not_removed_for_it() {
    let folder = place();
    let text = "[a]\nioengine=falloc\nrw=write\nsize=64m\nbs=4k\nfilename=y\nunlink=1\nrate_iops=20\ntime_based=1\n\
                runtime=600\n";
    job_file(folder.path(), text);
    let made = folder.path().join("y");
    let mut command = command(folder.path(), &["bench", "j.fio"]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    wait_until("the file", || made.exists());
    fs::write(folder.path().join("mine"), "mine").expect("writes");
    fs::rename(folder.path().join("mine"), &made).expect("takes its place");
    signal(&run, "-INT");
    ended(&mut run);
    assert_eq!(fs::read_to_string(&made).expect("is there"), "mine");

    job_file(folder.path(), &text.replace("filename=y", "filename=z").replace("runtime=600", "runtime=1"));
    works(folder.path(), &["bench", "j.fio"]);
    assert_eq!(names(folder.path()), ["j.fio", "y"], "z was the run's own");
}

#[test]
fn figures_of_a_searched_depth_are_of_that_depth() {
    let folder = place();
    let search = "[a]\nioengine=null\nsize=1g\nrw=randread\nnorandommap=1\niodepth=4\nlatency_percentile=50\ntime_based=1\n";
    // Depths 1, 2 and 4 are tried before what is counted begins.
    job_file(folder.path(), &format!("{search}latency_target=10s\nlatency_window=20ms\nruntime=60\n"));
    let record = document(folder.path())["record"].clone();
    let ns = |key: &str| record[key].as_u64().expect("a number");
    assert!(ns("ramp_ns") >= 60_000_000 && ns("interval_ns") >= 20_000_000, "{record}");
    assert!(record["read"]["ios"].as_u64() < record["total"]["ios"].as_u64(), "{record}");
    let depth = |options: &str| {
        job_file(folder.path(), &format!("{search}{options}"));
        let came = works(folder.path(), &["bench", "j.fio", "--output-format=fio-json"]);
        let document: Value = serde_json::from_str(&came.out).expect("a document");
        (document["jobs"][0]["latency_depth"].clone(), came.err)
    };
    let (found, text) = depth("latency_target=10s\nlatency_window=20ms\nruntime=60\n");
    assert!(found == 4 && text.contains("iodepth=4 is what"), "{found}: {text}");
    let (found, text) = depth("latency_target=10s\nlatency_window=60s\nruntime=1\n");
    assert!(found == 0 && text.contains("the run ended before the search"), "{found}: {text}");
}

#[test]
fn a_depth_that_holds_nothing_is_not_told_as_found() {
    let folder = place();
    // Each request of 4 MiB from memory takes longer than a microsecond.
    fs::write(folder.path().join("data"), vec![7; 4 << 20]).expect("writes");
    job_file(
        folder.path(),
        "[a]\nfilename=data\nrw=randread\nbs=4m\nnorandommap=1\nlatency_target=1us\nlatency_window=20ms\n\
         latency_percentile=90\ntime_based=1\nruntime=2\n",
    );
    let came = works(folder.path(), &["bench", "j.fio", "--output-format=fio-json"]);
    let document: Value = serde_json::from_str(&came.out).expect("a document");
    assert_eq!(document["jobs"][0]["latency_depth"], 0, "{}", came.err);
    assert!(came.err.contains("no depth holds 90 % of requests within 1"), "{}", came.err);
}

#[test]
fn names_that_were_made_for_a_run_that_does_not_begin_are_removed() {
    let folder = place();
    fs::write(folder.path().join("taken"), "mine").expect("writes");
    let text = "[look]\nioengine=filestat\nnrfiles=3\nfilesize=4k\n[make]\nstonewall\nioengine=filecreate\n\
                filename=taken\nfilesize=4k\n";
    job_file(folder.path(), text);
    is_refused(folder.path(), 3, "is there already");
    assert_eq!(names(folder.path()), ["j.fio", "taken"]);
    job_file(folder.path(), &text.replace("taken", "free"));
    works(folder.path(), &["bench", "j.fio"]);
    assert_eq!(names(folder.path()), ["free", "j.fio", "look.0.0", "look.0.1", "look.0.2", "taken"]);
}

#[test]
fn blocks_of_a_pattern_are_known_again_by_fio_and_by_flashwright() {
    if tool("fio", &["--version"]).is_none() {
        return skipped("fio is not installed");
    }
    let folder = place();
    let common =
        "[a]\nfilename=data\nsize=256k\nbs=8k\nverify=pattern\nverify_pattern=0xdead\"f ace\"%o-12\n";
    let fio = |rw: &str| {
        job_file(folder.path(), &format!("{common}rw={rw}\ndo_verify=0\nverify_state_save=0\n"));
        let mut fio = Command::new("fio");
        fio.arg("--output=out").arg("j.fio").current_dir(folder.path()).output().expect("starts")
    };
    assert!(fio("write").status.success());
    job_file(folder.path(), &format!("{common}rw=randread\n"));
    let record = document(folder.path())["record"].clone();
    assert_eq!(record["verified_blocks"], 32, "{record}");
    fs::remove_file(folder.path().join("data")).expect("removes");
    job_file(folder.path(), &format!("{common}rw=randwrite\n"));
    works(folder.path(), &["bench", "j.fio"]);
    assert!(fio("read").status.success());
    let mut data = fs::read(folder.path().join("data")).expect("reads");
    data[100_000] ^= 1;
    fs::write(folder.path().join("data"), data).expect("writes");
    assert!(!fio("read").status.success(), "fio notices as well");
    job_file(folder.path(), &format!("{common}rw=read\n"));
    let came = run(folder.path(), &["bench", "j.fio"]);
    assert_eq!(came.code, 1, "{}", came.err);
    assert!(came.err.contains("offset 98304 does not hold its pattern: byte 1696 is"), "{}", came.err);
}

#[test]
fn priorities_stand_in_the_logs_as_fio_writes_them() {
    if tool("fio", &["--version"]).is_none() {
        return skipped("fio is not installed");
    }
    let folder = place();
    fs::write(folder.path().join("data"), vec![7; 1 << 20]).expect("writes");
    let common = "[a]\nfilename=data\nrw=randread\nnorandommap=1\ntime_based=1\nruntime=1\nbs=4k\nioengine=libaio\niodepth=4\nprioclass=3\ncmdprio_percentage=40\n\
                  cmdprio_class=2\ncmdprio=3\n";
    let priorities = || {
        let log = folder.path().join("x_lat.1.log");
        let text = fs::read_to_string(&log).expect("a log");
        fs::remove_file(log).expect("removes");
        let last = |line: &str| line.rsplit(", ").next().expect("a field").to_owned();
        text.lines().map(last).collect::<std::collections::BTreeSet<String>>()
    };
    for log_prio in [0, 1] {
        job_file(folder.path(), &format!("{common}write_lat_log=x\nlog_prio={log_prio}\n"));
        let record = document(folder.path())["record"].clone();
        let ours = priorities();
        let mut fio = Command::new("fio");
        let came = fio.arg("--output=out").arg("j.fio").current_dir(folder.path()).output().expect("starts");
        assert!(came.status.success(), "{}", String::from_utf8_lossy(&came.stderr));
        assert_eq!(ours, priorities(), "log_prio={log_prio}");
        assert_eq!(ours.len(), 1 + log_prio, "{ours:?}");
        let layout = &record["layout"];
        assert_eq!(layout["io_priority"], "idle", "{record}");
        assert_eq!(layout["io_priority.requests"], "reads 40 % be/3; writes 40 % be/3", "{record}");
    }
}

#[test]
fn a_job_that_fills_its_file_system_says_how_far() {
    let folder = place();
    job_file(folder.path(), "[a]\nfilename=data\nrw=write\nbs=64k\nfill_device=1\n");
    let came = works(folder.path(), &["bench", "j.fio", "--dry-run"]);
    assert!(came.out.contains("note: a: fill_device ends at"), "{}", came.out);
    assert!(came.out.contains("data, which would be made with"), "{}", came.out);
}

/// Of the shape of fio's own examples for zoned drives, on a file whose zones are smaller than theirs.
#[test]
fn job_files_for_zoned_drives_are_understood_and_run_on_a_file() {
    let folder = place();
    let global = "[global]\ngroup_reporting\nzonemode=zbd\nzonesize=256k\nfilename=data\nfilesize=16m\n";
    let for_time = "time_based\nruntime=300ms\n";
    let writes = format!(
        "{global}{for_time}rw=randwrite\nmax_open_zones=4\nbs=64k\nnumjobs=4\n[drive]\nsize=16m\nioengine=psync\n"
    );
    let resets = format!(
        "{global}{for_time}rw=randwrite\nbs=64k\n[drive]\nsize=8z\noffset=24z\nioengine=psync\n\
         zone_reset_threshold=0.7\nzone_reset_frequency=0.125\n"
    );
    let trims = format!(
        "{global}time_based\nruntime=3s\noffset=24z\nsize=8z\n[warmup]\nrw=randwrite\nbs=64k\nioengine=libaio\n\
         [writes]\nwait_for=warmup\nrw=randwrite\nbs=64k\nioengine=libaio\nflow=16\n\
         [trims]\nwait_for=warmup\nrw=randtrim\nbs=256k\nioengine=psync\nflow=1\n"
    );
    for (text, jobs) in [(writes, 1), (resets, 1), (trims, 3)] {
        job_file(folder.path(), &text);
        let dry = works(folder.path(), &["bench", "j.fio", "--dry-run"]);
        assert!(dry.out.contains("nothing was changed"), "{}", dry.out);
        let document = document(folder.path());
        let records: Vec<&Value> = match document["jobs"].as_array() {
            Some(jobs) => jobs.iter().map(|job| &job["record"]).collect(),
            None => vec![&document["record"]],
        };
        assert_eq!(records.len(), jobs, "{document}");
        for record in records {
            assert!(record["total"]["ios"].as_u64().is_some_and(|ios| ios > 0), "{record}");
            assert_eq!(record["workload"]["zonemode"], "zbd");
        }
    }
    // What was written in this process is read in a later section, and nothing beyond it.
    let text = format!(
        "{global}bs=64k\n[writes]\nrw=write\nsize=3m\n[reads]\nstonewall\nrw=read\nread_beyond_wp=0\noffset=524288\n\
         size=12m\nioengine=libaio\niodepth=16\n"
    );
    job_file(folder.path(), &text);
    let document = document(folder.path());
    let total = |job: usize| document["jobs"][job]["record"]["total"].clone();
    assert_eq!(total(0)["write_bytes"], 3 << 20, "{document}");
    assert_eq!(total(1)["read_bytes"], (3 << 20) - 524_288, "{document}");
    job_file(folder.path(), &format!("{global}[reads]\nrw=read\nsize=1m\n"));
    is_refused(folder.path(), 2, "no zone of the region");
}

#[test]
fn failures_that_a_job_lives_with_are_counted_and_told_as_fio_counts_them() {
    for needed in ["fio", "prlimit"] {
        if tool(needed, &["--version"]).is_none() {
            return skipped(&format!("{needed} is not installed"));
        }
    }
    let folder = place();
    let data = folder.path().join("data");
    // No byte beyond half of the file may be written, so that eight of sixteen writes fail.
    let limited = |program: &str, arguments: &[&str]| {
        fs::write(&data, vec![7; 1 << 20]).expect("writes");
        let script = "trap '' XFSZ; exec prlimit --fsize=524288 -- \"$@\"";
        let mut sh = Command::new("sh");
        let sh = sh.args(["-c", script, "sh", program]).args(arguments);
        let came = sh.current_dir(folder.path()).output().expect("starts");
        (
            came.status.code(),
            String::from_utf8(came.stdout).expect("text"),
            String::from_utf8(came.stderr).expect("text"),
        )
    };
    let flashwright = |arguments: &[&str]| {
        let common = ["bench", "j.fio", "--destroy", "data"];
        limited(env!("CARGO_BIN_EXE_flashwright"), &[&common, arguments].concat())
    };
    let text = "[a]\nfilename=data\nsize=1m\nbs=64k\nrw=write\nfallocate=none\n";
    job_file(folder.path(), text);
    let (code, _, error) = flashwright(&[]);
    assert!(code == Some(1) && error.contains("File too large"), "{code:?}: {error}");
    job_file(folder.path(), &format!("{text}continue_on_error=all\n"));
    let (code, _, error) = flashwright(&[]);
    assert!(code == Some(1) && error.contains("File too large"), "it is not among the usual ones: {error}");

    for names in ["EFBIG", "27", "ENOSPC:EFBIG"] {
        job_file(folder.path(), &format!("{text}ignore_error=,{names}\n"));
        let (code, out, error) = flashwright(&["--output-format=fio-json"]);
        assert_eq!(code, Some(0), "{error}");
        let ours: Value = serde_json::from_str(&out).expect("a document");
        let (code, out, error) = limited("fio", &["--output-format=json", "j.fio"]);
        assert_eq!(code, Some(0), "{error}");
        let theirs: Value = serde_json::from_str(&out[out.find('{').expect("a document")..]).expect("one");
        for key in ["error", "total_err", "first_error"] {
            assert_eq!(ours["jobs"][0][key], theirs["jobs"][0][key], "{key}");
        }
        assert_eq!(ours["jobs"][0]["total_err"], 8);
    }
    let (code, out, _) = flashwright(&["--json"]);
    let record = serde_json::from_str::<Value>(&out).expect("a document")["record"].clone();
    assert_eq!((code, &record["total"]["write_bytes"]), (Some(0), &524_288.into()), "{record}");
    assert_eq!(
        (&record["failed"][0]["count"], &record["failed"][0]["operation"]),
        (&8.into(), &"write".into())
    );
    let first = record["failed"][0]["first"].as_str().expect("text");
    assert!(first.contains("write of 65536 bytes at offset 524288 of data: File too large"), "{first}");
    let (_, out, error) = flashwright(&[]);
    assert!(format!("{out}{error}").contains("W-FAILED-REQUESTS"), "{out}{error}");
}

#[test]
fn page_faults_are_counted_and_too_much_memory_is_refused_before_anything_runs() {
    let place = place();
    let folder = place.path();
    let global = "[global]\nioengine=page_fault\nbs=$pagesize\nstonewall\n";
    job_file(
        folder,
        &format!(
            "{global}[w]\nrw=write\nsize=256*$pagesize\n[hot]\nrw=randread\nsize=64*$pagesize\nloops=3\nnumjobs=2\n"
        ),
    );
    let document = document(folder);
    let job = |at: usize| &document["jobs"][at]["record"];
    assert_eq!(
        (job(0)["total"]["ios"].as_u64(), job(1)["total"]["ios"].as_u64()),
        (Some(256), Some(192)),
        "{document}"
    );
    assert_eq!(job(0)["target"]["kind"], "operations");
    assert_eq!(job(0)["engine"]["used"], "page_fault");
    job_file(
        folder,
        &format!("{global}[w]\nrw=write\nsize=1m\nfilename=w\n[much]\nsize=64*1024*1024*$mb_memory\n"),
    );
    is_refused(folder, 2, "of memory are asked for");
}

#[test]
fn a_pass_to_the_steady_state_leaves_no_block_unwritten() {
    let place = place();
    let folder = place.path();
    job_file(folder, "[a]\nfilename=data\nsize=1m\nrw=randwrite\nbs=4k\nsprandom=1\nspr_num_regions=10\n");
    let dry = works(folder, &["bench", "j.fio", "--dry-run"]).out;
    assert!(dry.contains("until the steady state of random writes, 1.15 times 1 MiB"), "{dry}");
    let document = document(folder);
    let written = document["record"]["total"]["write_bytes"].as_u64().expect("a number");
    assert!((1_160_000..1_240_000).contains(&written), "{written}");
    let data = fs::read(folder.join("data")).expect("reads");
    assert_eq!(data.len(), 1 << 20);
    assert!(data.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)), "a block was not written");
}

#[test]
fn atomic_writes_are_made_where_there_are_any_and_refused_with_one_line_elsewhere() {
    let place = place();
    let folder = place.path();
    let global = "[global]\nfilename=data\nsize=1m\nrw=randwrite\nbs=4k\ndirect=1\n";
    job_file(folder, &format!("{global}[lay]\nrw=write\n"));
    if run(folder, &["bench", "j.fio"]).code != 0 {
        return skipped("the file system has no direct I/O");
    }
    for engine in ["io_uring", "libaio"] {
        let options =
            format!("ioengine={engine}\niodepth=16\nverify=crc64\natomic=1\nverify_write_sequence=0\n");
        job_file(folder, &format!("{global}[write-and-verify]\n{options}"));
        let came = run(folder, &["bench", "j.fio", "--json"]);
        if came.code == 0 {
            let document: Value = serde_json::from_str(&came.out).expect("a document");
            assert_eq!(document["record"]["verified_blocks"], 256, "{document}");
        } else {
            let errors: Vec<&str> = came.err.lines().filter(|line| line.starts_with("error: ")).collect();
            assert!(came.code == 2 && errors.len() == 1 && errors[0].contains("atomic=1: "), "{}", came.err);
        }
        // No drive and no file system has atomic writes of this size, or of this alignment.
        for wrong in ["bs=12k", "offset=2k\nsize=512k"] {
            job_file(folder, &format!("{global}[odd]\nioengine={engine}\natomic=1\n{wrong}\n"));
            let came = run(folder, &["bench", "j.fio"]);
            assert_eq!(came.code, 2, "{wrong}: {}", came.err);
        }
    }
}
