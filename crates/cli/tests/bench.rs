//! `flashwright bench` and `flashwright probe` on what this machine has.

mod common;

use std::io::Read;
use std::process::{Child, Stdio};

use common::loop_device::LoopDevice;
use common::{
    command, ended, ended_and_printed, finish, fits_schema, json, names, place, refused, run, signal,
    skipped, tool, wait_until, works, written,
};

const QUICK: [&str; 3] = ["--runtime=100ms", "--bs=4k", "--iodepth=8"];

#[test]
fn figures_are_printed_for_people_on_a_screen() {
    let folder = place();
    written(folder.path(), "file", 16);
    let came = works(folder.path(), &[&["bench", "--rw=randread", "--target", "file"], &QUICK[..]].concat());
    assert_eq!(came.err, "", "nothing is said beside the results when piped");
    for word in [
        "target ",
        "workload ",
        "IOPS ",
        " MB/s = ",
        " GiB/s",
        "p50 ",
        "p99 ",
        "p99.9 ",
        "max ",
        "engine ",
        "CPU / I/O",
    ] {
        assert!(came.out.contains(word), "{word} is missing in {}", came.out);
    }
    assert!(came.out.contains("W-SMALL-SET"), "{}", came.out);
    assert!(came.out.lines().count() < 50, "more than a screen");
}

#[test]
fn json_is_one_document_that_fits_its_schema() {
    let folder = place();
    written(folder.path(), "file", 16);
    let document = json(
        folder.path(),
        &[&["bench", "--rw=randread", "--target", "file", "--json"], &QUICK[..]].concat(),
    );
    fits_schema(folder.path(), "bench", &document);
    fits_schema(folder.path(), "run", &document["record"]);
    assert_eq!(document["schema"], "flashwright.bench/1");
    let iops = document["iops"].as_f64().expect("a figure");
    let bandwidth = document["bandwidth_bytes_per_s"].as_f64().expect("a figure");
    assert!(iops > 0.0 && (bandwidth / iops - 4096.0).abs() < 1.0, "{iops} {bandwidth}");
    let latency = &document["latency_ns"];
    let at = |name: &str| latency[name].as_f64().expect("a figure");
    assert!(at("min") <= at("p50") && at("p50") <= at("p99") && at("p99_9") <= at("max"), "{latency}");
    assert!(
        document["warnings"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|w| w["code"].as_str().is_some_and(|c| c.starts_with("W-")))
    );
}

#[test]
fn jobs_that_run_at_once_add_up() {
    let folder = place();
    written(folder.path(), "file", 16);
    std::fs::write(
        folder.path().join("two.fio"),
        "[global]\nfilename=file\ndirect=1\nioengine=libaio\nruntime=200ms\ntime_based\nrw=randread\n[a]\niodepth=2\n[b]\niodepth=4\n",
    )
    .expect("writes");
    let document = json(folder.path(), &["bench", "two.fio", "--json"]);
    fits_schema(folder.path(), "bench", &document);
    let jobs = document["jobs"].as_array().expect("jobs");
    let sum: f64 = jobs.iter().map(|j| j["iops"].as_f64().expect("a figure")).sum();
    assert_eq!(jobs.len(), 2);
    assert!((document["iops"].as_f64().expect("a figure") / sum - 1.0).abs() < 1e-9);
    assert!(document.get("record").is_none());
}

#[test]
fn a_dry_run_says_what_would_run_and_changes_nothing() {
    let folder = place();
    let text =
        "[global]\nsize=1m\nthread\n[lay]\nfilename=a:b\nrw=write\n[read]\nstonewall\nfilename=c\nloops=2\n";
    std::fs::write(folder.path().join("j.fio"), text).expect("writes");
    let came = works(folder.path(), &["bench", "j.fio", "--dry-run", "--bs=8k"]);
    for part in [
        "group 1: 1 job",
        "lay: write 8 KiB",
        "stripe(chunk=8k):file:a?size=512k,file:b?size=512k",
        "until each copy moved 1 MiB 2 times",
        "which would be made with 1 MiB and written in full first",
        "without effect here: thread",
        "nothing was changed",
    ] {
        assert!(came.out.contains(part), "{part} is missing:\n{}", came.out);
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("reads").count(), 1, "nothing was made");
}

#[test]
fn a_job_goes_round_several_files_that_are_made_for_it() {
    let folder = place();
    let text = "[a]\nfilename=x:y\nsize=1m\nrw=randread\nbs=4k\n";
    std::fs::write(folder.path().join("j.fio"), text).expect("writes");
    let document = json(folder.path(), &["bench", "j.fio", "--json"]);
    let bytes: u64 = document["record"]["total"]["read_bytes"].as_u64().expect("bytes");
    assert_eq!(bytes, 1 << 20);
    for name in ["x", "y"] {
        assert_eq!(std::fs::metadata(folder.path().join(name)).expect("is there").len(), 512 << 10);
    }
}

#[test]
fn a_job_file_of_four_sections_is_read_by_fios_own_tool() {
    let folder = place();
    std::fs::write(
        folder.path().join("four.fio"),
        "[global]\nfilename=file\nsize=16m\nbs=4k\ndirect=1\nioengine=io_uring\nruntime=100ms\ntime_based\n\
         [write]\nrw=write\nbs=1m\n[read]\nstonewall\nrw=randread\niodepth=16\n\
         [mix]\nstonewall\nrw=randrw\niodepth=8\n[beside]\nrw=randread\niodepth=4\n",
    )
    .expect("writes");
    let came = works(folder.path(), &["bench", "four.fio", "--output-format=json+", "--output", "four.json"]);
    assert_eq!((came.out.as_str(), came.err.as_str()), ("", ""));
    let text = std::fs::read_to_string(folder.path().join("four.json")).expect("reads");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let names_of_jobs: Vec<&str> = document["jobs"]
        .as_array()
        .expect("jobs")
        .iter()
        .map(|j| j["jobname"].as_str().expect("a name"))
        .collect();
    assert_eq!(names_of_jobs, ["write", "read", "mix", "beside"]);
    let path = |name: &str| folder.path().join(name).display().to_string();
    if tool("fio_jsonplus_clat2csv", &[&path("four.json"), &path("four.csv")]).is_none() {
        return skipped("fio_jsonplus_clat2csv is not installed");
    }
    for job in 0..4 {
        let csv =
            std::fs::read_to_string(folder.path().join(format!("four_job{job}.csv"))).expect("was made");
        assert!(csv.lines().count() > 2, "job {job}: {csv}");
    }
}

#[test]
fn a_workload_in_toml_runs_and_flags_go_before_it() {
    let folder = place();
    std::fs::write(
        folder.path().join("work.toml"),
        "rw = \"randrw\"\nbs = \"8k\"\niodepth = 4\nruntime = \"100ms\"\ntarget = \"mem:16m\"\n",
    )
    .expect("writes");
    let document = json(folder.path(), &["bench", "work.toml", "--iodepth=2", "--json"]);
    let workload = &document["record"]["workload"];
    assert_eq!((workload["bs"].as_u64(), workload["iodepth"].as_u64()), (Some(8192), Some(2)));
    assert_eq!(document["record"]["target"]["spec"], "mem:16m");
    assert!(document["read"]["ios"].as_u64() > Some(0) && document["write"]["ios"].as_u64() > Some(0));
}

#[test]
fn what_verify_wrote_is_read_back() {
    let folder = place();
    let common = ["--bs=64k", "--size=4m", "--time_based=0", "--target", "file", "--verify=crc32c", "--json"];
    let wrote = json(folder.path(), &[&["bench", "--rw=write"], &common[..]].concat());
    assert_eq!(wrote["record"]["verified_blocks"], 64);
    let read = json(folder.path(), &[&["bench", "--rw=read"], &common[..]].concat());
    assert_eq!(read["record"]["verified_blocks"], 64);
    // One byte of one block is changed behind its back.
    let path = folder.path().join("file");
    let mut bytes = std::fs::read(&path).expect("reads");
    bytes[3 * 65536 + 1000] ^= 1;
    std::fs::write(&path, bytes).expect("writes");
    let came = run(folder.path(), &[&["bench", "--rw=read"], &common[..]].concat());
    assert_eq!(came.code, 1);
    assert!(came.out.contains("flashwright.error/1"), "{}", came.out);
    assert!(came.err.contains("offset 196608") && came.err.contains("corrupt"), "{}", came.err);
    assert!(came.err.lines().count() <= 2, "{}", came.err);
}

#[test]
fn what_was_never_written_is_refused_unless_waived() {
    let folder = place();
    std::fs::File::create(folder.path().join("sparse")).and_then(|f| f.set_len(8 << 20)).expect("makes");
    refused(
        folder.path(),
        &["bench", "--rw=randread", "--target", "sparse"],
        3,
        "\
error: sparse: 8 MiB (holes) in the 8 MiB from 0 on were never written, so reading them measures nothing
hint: write the whole region first (--rw=write --bs=1m --time_based=0), or add --allow-unwritten to measure it anyway
",
    );
    let came = works(
        folder.path(),
        &["bench", "--rw=randread", "--target", "sparse", "--allow-unwritten", "--runtime=100ms"],
    );
    assert!(came.out.contains("W-UNWRITTEN (void)"), "{}", came.out);
}

#[test]
fn a_file_that_is_not_ours_is_not_overwritten_unless_given_up() {
    let folder = place();
    let path = folder.path().join("thesis");
    let text = "It was a dark and stormy night; ".repeat(1 << 15);
    std::fs::write(&path, &text).expect("writes");
    let arguments = ["bench", "--rw=randwrite", "--runtime=100ms", "--target", "thesis"];
    refused(
        folder.path(),
        &arguments,
        3,
        "\
error: thesis: holds 1 MiB that were not laid by flashwright; writing would destroy them
hint: if its contents may be lost add --destroy thesis; otherwise name a new file
",
    );
    assert!(std::fs::read_to_string(&path).expect("reads") == text);
    works(folder.path(), &[&arguments[..], &["--destroy", "thesis"]].concat());
}

#[test]
fn a_scratch_file_is_made_with_the_size_asked_for_and_may_be_written_again() {
    let folder = place();
    let path = written(folder.path(), "scratch", 4);
    assert_eq!(path.metadata().expect("is there").len(), 4 << 20);
    written(folder.path(), "scratch", 4);
    works(folder.path(), &["bench", "--rw=write", "--target", "file:other?size=2m", "--runtime=100ms"]);
    assert_eq!(names(folder.path()), ["other", "scratch"]);
}

#[test]
fn colours_are_for_terminals_and_no_color_is_honoured() {
    let folder = place();
    let bench = ["bench", "--target", "mem:1m", "--runtime=50ms"];
    let escape = '\u{1b}';
    assert!(!works(folder.path(), &bench).out.contains(escape));
    let forced = finish(command(folder.path(), &bench).env("CLICOLOR_FORCE", "1"));
    assert!(forced.out.contains(escape), "{}", forced.out);
    let none = finish(command(folder.path(), &bench).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1"));
    assert!(!none.out.contains(escape));
    let error =
        finish(command(folder.path(), &["bench", "--bs=4x"]).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1"));
    assert!(!error.err.contains(escape));
}

#[test]
fn the_live_view_is_a_line_a_second_on_standard_error_if_asked_for() {
    let folder = place();
    let came = works(
        folder.path(),
        &["bench", "--rw=randread", "--target", "mem:1m", "--runtime=2500ms", "--live", "--json"],
    );
    let lines: Vec<&str> = came.err.lines().collect();
    assert_eq!(lines.len(), 2, "{}", came.err);
    assert!(
        lines[0].starts_with("1 of 2.5 s") && lines[0].contains("IOPS") && lines[0].contains("/s"),
        "{}",
        lines[0]
    );
    serde_json::from_str::<serde_json::Value>(&came.out).expect("one document");
}

/// A bench that measures.
fn measuring(folder: &std::path::Path) -> Child {
    let words = ["bench", "--rw=randread", "--target", "mem:16m", "--runtime=60s", "--live", "--json"];
    let mut child =
        command(folder, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    // The first line of the live view says that it measures.
    let mut first = [0; 1];
    child.stderr.as_mut().expect("piped").read_exact(&mut first).expect("a line");
    child
}

fn printed(child: &mut Child) -> (String, String) {
    let (status, out, err) = ended_and_printed(child);
    assert_eq!(status.code(), Some(130));
    (out, err)
}

#[test]
fn a_bench_that_is_interrupted_by_any_signal_keeps_what_it_measured() {
    for name in ["-INT", "-TERM", "-HUP"] {
        let folder = place();
        let mut child = measuring(folder.path());
        signal(&child, name);
        let (out, err) = printed(&mut child);
        let document: serde_json::Value = serde_json::from_str(&out).expect("one document");
        assert_eq!(document["interrupted"], true, "{name}");
        assert!(document["ios"].as_u64() > Some(0), "{name}");
        assert!(err.contains("error: interrupted; the figures are of the time before"), "{name}: {err}");
    }
}

#[test]
fn a_second_interrupt_ends_a_bench_at_once() {
    let folder = place();
    // Both are there when it runs again. Threads on two CPUs may take one each in the same moment, and then neither is the
    // second: so another attempt is made, but not many.
    let ended_at_once = || {
        let mut child = measuring(folder.path());
        for name in ["-STOP", "-INT", "-TERM", "-CONT"] {
            signal(&child, name);
        }
        let (out, _) = printed(&mut child);
        out.is_empty()
    };
    assert!((0..5).any(|_| ended_at_once()), "figures are printed after the second interrupt");
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    let folder = place();
    let mut child = command(folder.path(), &["schema"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(child.stdout.take());
    assert_eq!(ended(&mut child).code(), Some(0));
    let mut err = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut err).expect("reads");
    assert_eq!(err, "");
}

#[test]
fn probe_fits_its_schema_and_a_screen() {
    let folder = place();
    let document = json(folder.path(), &["probe", ".", "--json"]);
    fits_schema(folder.path(), "probe", &document);
    let came = works(folder.path(), &["probe", "."]);
    for word in ["machine ", "CPUs ", "memory ", "engines ", "psync", "limits ", "directory on"] {
        assert!(came.out.contains(word), "{word} is missing in {}", came.out);
    }
    works(folder.path(), &["probe"]);
}

/// A loop device over a file of a file system of its own, which can be frozen: writes to the device then wait in the kernel
/// as they do on a drive that hangs.
struct Freezing {
    device: Option<LoopDevice>,
    mount: std::path::PathBuf,
    _below: LoopDevice,
}

impl Freezing {
    /// Fails with what a program printed, where this machine or user cannot have such a device.
    fn new(folder: &std::path::Path) -> Result<Self, String> {
        let image = |name: &str, bytes| {
            let path = folder.join(name);
            let made = std::fs::File::create(&path).and_then(|file| file.set_len(bytes));
            made.map(|()| path).map_err(|error| error.to_string())
        };
        let below = LoopDevice::attach(&image("file-system", 128 << 20)?, &[])?;
        system("mkfs.ext4", &["-q", below.text()])?;
        let mount = folder.join("frozen");
        std::fs::create_dir(&mount).map_err(|error| error.to_string())?;
        system("mount", &[below.text(), mount.to_str().expect("a name in ASCII")])?;
        let mut freezing = Self { device: None, mount, _below: below };
        freezing.device = Some(LoopDevice::attach(&image("frozen/image", 64 << 20)?, &[])?);
        Ok(freezing)
    }

    fn text(&self) -> &str {
        self.device.as_ref().expect("it was attached").text()
    }

    fn freeze(&self) {
        system("fsfreeze", &["-f", self.mount.to_str().expect("a name in ASCII")]).expect("is frozen");
    }

    fn thaw(&self) {
        let _ = system("fsfreeze", &["-u", self.mount.to_str().expect("a name in ASCII")]);
    }
}

impl Drop for Freezing {
    fn drop(&mut self) {
        self.thaw();
        self.device = None;
        for _ in 0..50 {
            if system("umount", &[self.mount.to_str().expect("a name in ASCII")]).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        eprintln!("left behind: {}", self.mount.display());
    }
}

fn system(program: &str, arguments: &[&str]) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let done = std::process::Command::new(program).args(arguments).env("PATH", path).output();
    let done = done.map_err(|error| format!("{program}: {error}"))?;
    let said = || format!("{program}: {}", String::from_utf8_lossy(&done.stderr).trim());
    if done.status.success() { Ok(()) } else { Err(said()) }
}

/// Writes to a device that hangs after a second, until the run has failed. Returns how long that took, whether the
/// process ended before the device answered again, and what it said.
fn writes_until_it_hangs(
    freezing: &Freezing,
    folder: &std::path::Path,
    engine: &str,
) -> (std::time::Duration, bool, String) {
    let device = freezing.text();
    let (engine, errors) = (format!("--ioengine={engine}"), folder.join("errors"));
    let write = ["bench", "--rw=randwrite", "--iodepth=4", "--runtime=60s", "--request_timeout=1s", &engine];
    let mut child = command(folder, &[&write[..], &["--target", device, "--destroy", device]].concat())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&errors).expect("a file"))
        .spawn()
        .expect("starts");
    std::thread::sleep(std::time::Duration::from_secs(1));
    freezing.freeze();
    let since = std::time::Instant::now();
    let said = || std::fs::read_to_string(&errors).expect("text");
    wait_until("a failure", || said().contains("hint:"));
    let took = since.elapsed();
    // Long enough to be waited for, if it ends.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let has_ended = child.try_wait().expect("can be asked").is_some();
    freezing.thaw();
    assert_eq!(ended(&mut child).code(), Some(1), "{}", said());
    (took, has_ended, said())
}

#[test]
fn a_drive_that_hangs_fails_the_run_by_name_and_the_process_ends() {
    let folder = place();
    let freezing = match Freezing::new(folder.path()) {
        Ok(freezing) => freezing,
        Err(reason) => return skipped(&format!("no device that can be frozen: {reason}")),
    };
    for engine in ["io_uring", "libaio", "psync"] {
        let (took, has_ended, said) = writes_until_it_hangs(&freezing, folder.path(), engine);
        if said.contains("switched off here") {
            skipped("no io_uring");
            continue;
        }
        let expected = format!("error: {} has not answered a request for 1.00 s\nhint: ", freezing.text());
        assert!(said.starts_with(&expected) && said.contains("--request_timeout"), "{engine}: {said}");
        assert!(took < std::time::Duration::from_secs(20), "{engine}: it took {took:?}");
        // What libaio and psync wait for in the kernel cannot be interrupted.
        assert!(has_ended || engine != "io_uring", "the process waits for the drive");
    }
}

#[test]
fn what_to_do_about_a_warning_has_the_words_of_the_job_file_or_of_the_flags() {
    let folder = place();
    std::fs::write(folder.path().join("small"), vec![7; 4 << 20]).expect("a file");
    let flags = ["bench", "--json", "--rw=randread", "--direct=0", "--runtime=100ms", "--target", "small"];
    let by_flags = works(folder.path(), &flags);
    assert!(by_flags.out.contains("or use --direct=1."), "{}", by_flags.out);
    let jobs =
        "[small]\nfilename=small\nrw=randread\nbs=4k\ndirect=0\nsize=4m\nruntime=100ms\ntime_based=1\n";
    std::fs::write(folder.path().join("small.fio"), jobs).expect("writes");
    let by_keys = works(folder.path(), &["bench", "small.fio", "--json"]);
    assert!(by_keys.out.contains("or use direct=1."), "{}", by_keys.out);
    assert!(!by_keys.out.contains("--direct=1"), "{}", by_keys.out);
}

/// A raw device of 16 MiB on which nobody has written; none, said aloud, where there are no loop devices.
fn never_written(folder: &std::path::Path) -> Option<LoopDevice> {
    let image = folder.join("zeros");
    std::fs::write(&image, vec![0; 16 << 20]).expect("an image");
    let device = LoopDevice::attach(&image, &[]);
    device.inspect_err(|reason| skipped(&format!("no loop device: {reason}"))).ok()
}

#[test]
fn a_raw_device_that_was_never_written_is_not_read_unless_allowed() {
    let folder = place();
    let Some(device) = never_written(folder.path()) else { return };
    let read = ["bench", "--rw=randread", "--target", device.text(), "--runtime=100ms"];
    let device_name = device.text();
    let words = format!(
        "error: {device_name}: 256 of 256 blocks drawn from the region are zeros, as blocks are that were never written: a drive \
         answers reads of them from nothing\nhint: add --allow-unwritten to measure it anyway; or, if nothing on it is needed, write \
         the whole region first (--rw=write --bs=1m --time_based=0 --destroy {device_name})\n"
    );
    refused(folder.path(), &read, 3, &words);
    let allowed = works(folder.path(), &[&read[..], &["--allow-unwritten"]].concat());
    assert!(allowed.out.contains("W-REPEATED-DATA"), "{}", allowed.out);
    let (_, hinted) = words.rsplit_once('(').expect("the hint's command");
    let hinted: Vec<&str> = hinted.trim_end().trim_end_matches(')').split(' ').collect();
    works(folder.path(), &[&["bench", "--target", device_name], &hinted[..]].concat());
    works(folder.path(), &read);
}

#[test]
fn a_job_reads_what_an_earlier_job_of_the_file_has_written() {
    let folder = place();
    let Some(device) = never_written(folder.path()) else { return };
    // The mix draws blocks, which are zeros.
    let jobs = format!(
        "[global]\nfilename={}\nbs=1m\ndirect=1\n[mix]\nrw=randrw\n[fill]\nstonewall\nrw=write\n[read]\nstonewall\nrw=read\n",
        device.text()
    );
    std::fs::write(folder.path().join("three.fio"), jobs).expect("writes");
    works(folder.path(), &["bench", "three.fio", "--destroy", device.text()]);
}

#[test]
fn a_process_that_was_stopped_for_longer_than_the_limit_goes_on() {
    let folder = place();
    let words = ["bench", "--rw=randread", "--target", "mem:16m", "--numjobs=8", "--request_timeout=2s"];
    let words = [&words[..], &["--runtime=60s", "--live", "--json"]].concat();
    let mut child =
        command(folder.path(), &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let mut first = [0; 1];
    child.stderr.as_mut().expect("piped").read_exact(&mut first).expect("a line");
    signal(&child, "-STOP");
    std::thread::sleep(std::time::Duration::from_secs(5));
    signal(&child, "-CONT");
    std::thread::sleep(std::time::Duration::from_secs(1));
    signal(&child, "-INT");
    let (_, err) = printed(&mut child);
    assert!(!err.contains("has not answered"), "{err}");
}

#[test]
fn a_job_file_leaves_logs_that_replace_logs_and_nothing_else() {
    let folder = place();
    let text = "[a]\nfilename=file\nsize=1m\nrw=randread\nwrite_bw_log=x\nwrite_lat_log\nlog_avg_msec=10\n\
                [b]\nfilename=none\nsize=1m\nallow_file_create=0\n";
    std::fs::write(folder.path().join("j.fio"), text).expect("writes");
    let dry = works(folder.path(), &["bench", "j.fio", "--dry-run"]).out;
    assert!(dry.contains("logs to x_bw.1.log … a_clat.1.log (3 files)"), "{dry}");
    assert!(dry.contains("on none, which does not exist"), "{dry}");
    let words = "error: job 'b': none: no such file or device\n\
                 hint: check the name; to make it: flashwright bench --rw=write --bs=1m --size=1g --time_based=0 --target none\n";
    refused(folder.path(), &["bench", "j.fio"], 2, words);
    let one = text.split("[b]").next().expect("a section");
    std::fs::write(folder.path().join("j.fio"), one).expect("writes");
    for again in 0..2 {
        works(folder.path(), &["bench", "j.fio"]);
        for name in ["x_bw.1.log", "a_lat.1.log", "a_clat.1.log"] {
            let log = std::fs::read_to_string(folder.path().join(name)).expect("is there");
            assert!(log.lines().all(|line| line.split(", ").count() == 5), "{again} {name}: {log}");
        }
    }
    std::fs::write(folder.path().join("x_bw.1.log"), "my diary\n").expect("writes");
    let words = "error: x_bw.1.log: is there already, and is no log\n\
                 hint: name the log otherwise, or move this away\n";
    refused(folder.path(), &["bench", "j.fio"], 3, words);
    let kept = std::fs::read_to_string(folder.path().join("x_bw.1.log")).expect("is there");
    assert_eq!(kept, "my diary\n");
    works(folder.path(), &["bench", "j.fio", "--force"]);
}
