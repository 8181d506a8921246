//! What job files ask of a run beside its workload: logs, least rates, steady ends, flows, where buffers lie.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::RunOptions;
use bench::problem::{ErrorClass, Problem};
use bench::run::BenchError;
use bench::run::cohorts::{Arranged, run_arranged};
use bench::run::flow::Flow;
use bench::run::log::{LogPlan, Quantity};
use bench::run::priorities::{PriorityShare, RequestPriorities};
use bench::run::steady::Criterion;
use bench::run::tolerance::Tolerance;
use bench::target::{BenchTarget, TargetOptions};
use fio::json::{GlobalInfo, JobResult, document};
use fio::{Job, JobFile};
use measure::WarningCode;
use measure::workload::{Rw, Workload, WriteSync};
use storage::usage::{IoClass, IoPriority, MemoryPolicy};

fn jobs(text: &str) -> Vec<Job> {
    match JobFile::parse(text, Path::new("test.fio"), &|_| None) {
        Ok(file) => file.jobs().cloned().collect(),
        Err(error) => panic!("{error} ({})\n{text}", error.hint()),
    }
}

fn one(options: &str) -> Job {
    jobs(&format!("[job]\nfilename=/x\n{options}\n")).remove(0)
}

fn one_of(text: &str) -> Job {
    jobs(text).remove(0)
}

fn refusal(text: &str) -> String {
    match JobFile::parse(text, Path::new("test.fio"), &|_| None) {
        Ok(file) => panic!("accepted: {text}\n{file:#?}"),
        Err(error) => format!("{error} ({})", error.hint()),
    }
}

/// Runs the jobs of one group on memory of 1 MiB.
fn run(text: &str) -> Result<Arranged, Problem> {
    let mut target = BenchTarget::new("mem:1m", TargetOptions::default()).expect("a spec");
    let jobs = jobs(text);
    let prepare = |job: &Job| {
        let mut prepared = target.job(&job.workload)?;
        prepared.conduct = job.conduct.clone();
        Ok(prepared)
    };
    let prepared = jobs.iter().map(prepare).collect::<Result<Vec<_>, Problem>>()?;
    let arrangements: Vec<_> = jobs.iter().map(|job| job.arrangement.clone()).collect();
    let never = AtomicBool::new(false);
    let options = RunOptions { stop: Some(&never), ..RunOptions::default() };
    run_arranged(&prepared, &arrangements, options).map_err(Problem::from)
}

/// The lines of a log, as numbers.
fn lines(text: &str) -> Vec<Vec<u64>> {
    let number = |field: &str| field.trim().parse().unwrap_or_else(|_| panic!("'{field}' in {text}"));
    text.lines().map(|line| line.split(',').map(number).collect()).collect()
}

fn log(arranged: &Arranged, job: usize, quantity: Quantity) -> Vec<Vec<u64>> {
    let mut out = Vec::new();
    arranged.asides[job].logs[0].write(quantity, &mut out).expect("writes to memory");
    lines(std::str::from_utf8(&out).expect("is text"))
}

#[test]
fn logs_have_fios_names_a_number_for_each_thread_and_the_jobs_name_by_default() {
    let jobs = jobs(
        "[a]\nfilename=/x\nnumjobs=2\nwrite_bw_log\n[b]\nsize=1m\nnumjobs=2\nwrite_lat_log=some/p\nwrite_iops_log=q\n\
         log_avg_msec=250\nlog_window_value=max\nlog_offset=1",
    );
    let names = |job: &Job| -> Vec<Vec<String>> {
        let of = |files: &Vec<(std::path::PathBuf, Quantity)>| {
            files.iter().map(|(path, _)| path.display().to_string()).collect()
        };
        job.log_files().iter().map(of).collect()
    };
    assert_eq!(names(&jobs[0]), [["a_bw.1.log"], ["a_bw.2.log"]]);
    assert_eq!(names(&jobs[1]), [["some/p_lat.3.log", "some/p_clat.3.log", "q_iops.3.log"]]);
    assert_eq!(names(&jobs[2]), [["some/p_lat.4.log", "some/p_clat.4.log", "q_iops.4.log"]]);
    let window = Some(Duration::from_millis(250));
    assert_eq!(
        jobs[1].conduct.log,
        Some(LogPlan { window, largest: true, offsets: true, ..LogPlan::default() })
    );
    assert_eq!(one("log_avg_msec=100").conduct.log, None, "nothing is logged");
    assert!(refusal("[a]\nfilename=/x\nlog_window_value=both").contains("avg or max"));
    assert!(refusal("[a]\nfilename=/x\nper_job_logs=0").contains("a log of its own"));
}

#[test]
fn a_log_has_a_line_for_each_request_of_the_interval_with_its_offset() {
    let arranged = run("[a]\nfilename=/x\nrw=rw\nsize=1m\nbs=4k\nwrite_lat_log\nlog_offset=1").expect("runs");
    let record = arranged.records[0].as_ref().expect("a record");
    let latencies = log(&arranged, 0, Quantity::Latency);
    assert_eq!(latencies.len() as u64, record.ios());
    for direction in [0, 1] {
        let of = if direction == 0 { &record.read } else { &record.write };
        let own: Vec<u64> =
            latencies.iter().filter(|line| line[2] == direction).map(|line| line[1]).collect();
        assert_eq!(own.len() as u64, of.ios);
        assert_eq!(own.iter().max(), Some(&of.latency.max()));
    }
    let offsets: Vec<u64> = latencies.iter().map(|line| line[4]).collect();
    assert!(offsets.windows(2).all(|pair| pair[1] == pair[0] + 4096), "{offsets:?}");
    assert!(latencies.iter().all(|line| line.len() == 6 && line[3] == 4096));
}

/// The same job by the installed fio and here: lines with the same fields, and what the windows have adds up.
#[test]
fn logs_have_the_fields_of_the_installed_fio() {
    let folder = tempfile::tempdir().expect("a directory");
    for (extra, each) in
        [("", true), ("log_offset=1\n", true), ("log_avg_msec=50\ntime_based\nruntime=1\n", false)]
    {
        let job = format!(
            "[a]\nfilename={}/data\nrw=randrw\nsize=1m\nbs=4k\nioengine=psync\nwrite_bw_log=x\nwrite_lat_log=x\nwrite_iops_log=x\n{extra}",
            folder.path().display()
        );
        let file = folder.path().join("job.fio");
        std::fs::write(&file, &job).expect("writes");
        let came = Command::new("fio").arg("--output=out").arg(&file).current_dir(folder.path()).output();
        let Ok(came) = came else {
            eprintln!("skipped: fio cannot be started");
            return;
        };
        assert!(came.status.success(), "{}", String::from_utf8_lossy(&came.stderr));
        let arranged = run(&job).expect("runs");
        for (word, quantity) in [
            ("bw", Quantity::Bandwidth),
            ("clat", Quantity::Latency),
            ("lat", Quantity::Latency),
            ("iops", Quantity::Requests),
        ] {
            let name = folder.path().join(format!("x_{word}.1.log"));
            let theirs = lines(&std::fs::read_to_string(&name).expect("fio wrote it"));
            let ours = log(&arranged, 0, quantity);
            assert!(!theirs.is_empty() && !ours.is_empty(), "{word} {extra}");
            assert_eq!(ours[0].len(), theirs[0].len(), "{word} {extra}: {:?} {:?}", ours[0], theirs[0]);
            let column = |lines: &[Vec<u64>], at: usize| {
                let mut values: Vec<u64> = lines.iter().map(|line| line[at]).collect();
                values.sort_unstable();
                values.dedup();
                values
            };
            assert_eq!(column(&ours, 2), column(&theirs, 2), "directions");
            assert_eq!(column(&ours, 3), column(&theirs, 3), "block sizes");
            if each && word == "iops" {
                assert_eq!((column(&ours, 1), column(&theirs, 1)), (vec![1], vec![1]));
            }
            assert!(ours.iter().all(|line| line.last() == Some(&0)), "no request has a priority");
        }
    }
}

#[test]
fn a_thread_below_its_least_rate_fails_the_run_and_one_above_does_not() {
    let job = one("rw=randrw\nrate_min=1m,2m\nratemin=1m\nrate_iops_min=,50\nrate_cycle=500");
    let floor = job.conduct.floor.expect("is given");
    assert_eq!(
        (floor.bytes, floor.ios, floor.cycle),
        ([1 << 20, 1 << 20, 0], [0, 50, 0], Duration::from_millis(500))
    );
    assert_eq!(one("rate_cycle=500").conduct.floor, None);
    assert_eq!(one("rw=read\nrate_min=,1m").conduct.floor, None, "it does not write");
    assert!(refusal("[a]\nfilename=/x\nrate=1k\nrate_min=2k").contains("above rate"));
    let text = |least: u32| {
        format!(
            "[a]\nfilename=/x\nrw=randread\nthinktime=20ms\nrate_iops_min={least}\ntime_based\nruntime=3\n"
        )
    };
    run(&text(1)).expect("is fast enough");
    match run(&text(1000)) {
        Err(problem @ Problem::Run(BenchError::TooSlow { option, wanted, got, .. })) => {
            assert_eq!((option, wanted, problem.class()), ("rate_iops_min", 1000, ErrorClass::Failed));
            assert!((1..60).contains(&got), "{got} a second");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_ends_once_it_is_steady_and_fio_json_says_so() {
    let plan =
        one("ss=bw_slope:1.5%\nss_dur=30s\nss_ramp=10\nss_interval=2").conduct.steady.expect("is given");
    assert_eq!(
        (plan.criterion, plan.slope, plan.percent, plan.limit),
        (Criterion::Bandwidth, true, true, 1.5)
    );
    let seconds = Duration::from_secs;
    assert_eq!((plan.window, plan.ramp, plan.interval), (seconds(30), seconds(10), seconds(2)));
    let off = one("ss=iops:5");
    assert!(off.conduct.steady.is_none() && off.notes[0].contains("judges nothing"), "{:?}", off.notes);
    for (options, reason) in [
        ("ss=lat:5\nss_dur=5", "units of time"),
        ("ss=iops\nss_dur=5", "no limit"),
        ("ss=speed:1\nss_dur=5", "no criterion"),
        ("ss=iops:x\nss_dur=5", "not a limit"),
        ("ss=iops:5%\nss_dur=1", "less than two figures"),
    ] {
        let said = refusal(&format!("[a]\nfilename=/x\n{options}"));
        assert!(said.contains(reason), "{options}: {said}");
    }
    let beside = refusal("[a]\nfilename=/x\nss=iops:5%\nss_dur=5\n[b]\nfilename=/x");
    assert!(beside.contains("no other beside it"), "{beside}");

    // A limit that is met as soon as the window is full: two seconds of a minute.
    let text =
        "[a]\nfilename=/x\nrw=randread\nthinktime=1ms\nss=iops:1000%\nss_dur=2\ntime_based\nruntime=60\n";
    let arranged = run(text).expect("runs");
    let record = arranged.records[0].as_ref().expect("a record");
    let steadiness = arranged.asides[0].steadiness.as_ref().expect("was judged");
    assert!(steadiness.attained && record.interval_ns < 30_000_000_000, "{}", record.interval_ns);
    assert_eq!(steadiness.iops.len(), 2);
    let mean = steadiness.iops.iter().sum::<f64>() / 2.0;
    assert!((0.5..2.0).contains(&(mean / record.iops())), "{mean} and {}", record.iops());
    let job = &jobs(text)[0];
    let result = JobResult::of_job(job, record).with_steadiness(Some(steadiness));
    let json = serde_json::to_value(document(&[result], &GlobalInfo::default())).expect("is JSON");
    let state = &json["jobs"][0]["steadystate"];
    assert_eq!((&state["ss"], &state["attained"]), (&"iops:1000.000000%".into(), &1.into()));
    let keys: Vec<&String> = state["data"].as_object().expect("an object").keys().collect();
    assert_eq!(keys.len(), 5, "{keys:?}");
}

#[test]
fn a_job_by_size_ends_once_it_is_steady_too() {
    let text =
        "[a]\nfilename=/x\nrw=randread\nthinktime=1ms\nss=iops:1000%\nss_dur=2\nloops=1000000\nend_fsync=1\n";
    let arranged = run(text).expect("runs");
    assert!(arranged.records[0].as_ref().expect("a record").total.elapsed_ns < 30_000_000_000);
}

#[test]
fn jobs_of_a_flow_issue_in_the_proportion_of_their_weights() {
    let flow = one("flow=8\nflow_id=3\nflow_sleep=1000").conduct.flow;
    assert_eq!(flow, Some(Flow { id: 3, weight: 8, sleep: Duration::from_millis(1) }));
    assert_eq!(one("flow=0\nflow_id=3").conduct.flow, None);
    assert!(refusal("[a]\nfilename=/x\nflow=1\nrate=1m").contains("so does a flow"));
    let later = refusal("[a]\nfilename=/x\nflow=1\n[b]\nfilename=/x\nflow=1\nstartdelay=1");
    assert!(later.contains("begin together"), "{later}");
    let waiting = "[w]\nfilename=/x\n[a]\nfilename=/x\nflow=1\nwait_for=w\n[b]\nfilename=/x\nflow=2\n";
    assert!(refusal(waiting).contains("begin together"));
    JobFile::parse(&format!("{waiting}wait_for=w\n"), Path::new("test.fio"), &|_| None)
        .expect("both begin when the first has ended");
    let awaited = "[a]\nfilename=/x\nflow=1\n[b]\nfilename=/x\nflow=2\n[c]\nfilename=/x\nwait_for=a\n";
    assert!(refusal(awaited).contains("none is waited for"));
    // One of the two could be done at once, and the other rests so often that it takes a second.
    for (many, few, sleep) in [("", "thinktime=8ms", 0), ("thinktime=1ms", "", 200)] {
        let text = format!(
            "[global]\nfilename=/x\nbs=4k\nflow_sleep={sleep}\n\
             [many]\nrw=randread\nflow=8\nsize=1m\nio_size=4000k\n{many}\n\
             [few]\nrw=write\nflow=1\nsize=1m\nio_size=500k\n{few}\n"
        );
        let arranged = run(&text).expect("runs");
        let total = |job: usize| &arranged.records[job].as_ref().expect("a record").total;
        assert_eq!((total(0).ios, total(1).ios), (1000, 125));
        let [many, few] = [0, 1].map(|job| total(job).elapsed_ns as f64 / 1e9);
        assert!(few.min(many) > 0.8 * few.max(many) && few.max(many) > 0.9, "{many} s and {few} s");
    }
}

#[test]
fn a_memory_policy_is_set_recorded_and_refused_where_the_machine_lacks_the_node() {
    let policy = |text: &str| one(&format!("numa_mem_policy={text}")).conduct.memory.expect("is given");
    assert_eq!(policy("bind:0,2-3"), MemoryPolicy::Bind(vec![0, 2, 3]));
    assert_eq!(policy("interleave:0-1"), MemoryPolicy::Interleave(vec![0, 1]));
    assert_eq!((policy("prefer:1"), policy("local")), (MemoryPolicy::Prefer(1), MemoryPolicy::Local));
    for wrong in ["bind", "bind:all", "prefer:0-1", "local:0", "nearest"] {
        refusal(&format!("[a]\nfilename=/x\nnuma_mem_policy={wrong}"));
    }
    let text = |policy: &str| format!("[a]\nfilename=/x\nrw=read\nnuma_mem_policy={policy}\n");
    match run(&text("bind:0")) {
        Ok(arranged) => {
            let record = arranged.records[0].as_ref().expect("a record");
            assert_eq!(record.layout.get("numa_mem_policy").map(String::as_str), Some("bind:0"));
        }
        // Containers may forbid the call, and kernels may lack it.
        Err(problem) => eprintln!("skipped: the kernel sets no memory policy ({problem:?})"),
    }
    let problem = run(&text("bind:1000")).expect_err("no machine has this node");
    assert_eq!(problem.class(), ErrorClass::Invalid);
    assert!(problem.to_string().contains("numa_mem_policy=bind:1000"), "{problem}");
}

#[test]
fn writes_that_are_to_be_durable_at_once_are_refused_where_no_descriptor_makes_them_so() {
    let mut target = BenchTarget::new("mem:1m", TargetOptions::default()).expect("a spec");
    let workload = |rw, sync| Workload { rw, sync, direct: false, ..Workload::default() };
    let problem = target.job(&workload(Rw::RandWrite, WriteSync::Dsync)).expect_err("memory has no O_DSYNC");
    assert_eq!(problem.class(), ErrorClass::Invalid);
    assert!(problem.to_string().contains("sync=dsync: mem:1m is memory"), "{problem}");
    target
        .job(&workload(Rw::RandRead, WriteSync::Dsync))
        .expect("what only reads has nothing to make durable");
    target.job(&workload(Rw::RandWrite, WriteSync::None)).expect("no promise is made");
}

#[test]
fn a_missing_file_is_made_unless_the_job_forbids_it() {
    assert!(one("size=1m").allow_file_create);
    assert!(!one("size=1m\nallow_file_create=0").allow_file_create);
}

#[test]
fn a_backlog_lets_copies_share_blocks_and_says_what_that_means() {
    let text = "[a]\nfilename=/x\nnumjobs=3\nrw=write:112k\nbs=16k\nverify=crc32c\nverify_backlog=16\n\
                verify_backlog_batch=4\noffset_increment=1g\nio_size=1g\nloops=2";
    let job = jobs(text).remove(0);
    assert_eq!((job.workload.verify_backlog, job.conduct.verify_backlog_batch), (16, 4));
    assert!(job.notes.iter().any(|note| note.contains("write the same blocks")), "{:?}", job.notes);
    let apart = jobs(&format!("{text}\nsize=1g")).remove(0);
    assert!(!apart.notes.iter().any(|note| note.contains("write the same blocks")), "{:?}", apart.notes);
}

#[test]
fn a_file_that_is_to_fill_its_file_system_takes_most_of_what_is_free() {
    let folder = tempfile::tempdir().expect("a directory");
    let name = folder.path().join("data");
    let text = format!("[a]\nfilename={}\nrw=write\nbs=64k\nfill_device=1", name.display());
    let (free, _) = storage::device::space(folder.path()).expect("has room");
    let job = jobs(&text).remove(0);
    let size = job.workload.size.expect("is known beforehand");
    // Others may write meanwhile.
    assert!(size.is_multiple_of(65536) && size <= free && size > free / 2, "{size} of {free}");
    assert!(job.notes.iter().any(|note| note.contains("fio goes on until a write fails")));
    std::fs::write(&name, "there").expect("writes");
    assert!(refusal(&text).contains("does not grow"));
}

#[test]
fn priorities_are_those_of_threads_and_of_requests() {
    let of = |class, level, hint| IoPriority::new(class, level, hint).expect("in range");
    let conduct = |options: &str| one(options).conduct;
    assert_eq!(conduct("prioclass=2\nprio=7").priority, Some(of(IoClass::BestEffort, 7, 0)));
    assert_eq!(conduct("prioclass=3").priority, Some(IoPriority::IDLE));
    assert_eq!(conduct("prio=0").priority, None);
    assert_eq!(conduct("ioengine=libaio\ncmdprio_percentage=0").request_priorities, None);
    let share = |bytes, percent, priority| PriorityShare { bytes, percent, priority };
    let drawn =
        conduct("ioengine=io_uring\nrw=randrw\ncmdprio_percentage=20,5\ncmdprio_class=2\ncmdprio=1,3");
    let expected = RequestPriorities {
        reads: vec![share(None, 20, of(IoClass::BestEffort, 1, 0))],
        writes: vec![share(None, 5, of(IoClass::BestEffort, 3, 0))],
    };
    assert_eq!(drawn.request_priorities, Some(expected));
    let sizes =
        "ioengine=libaio\ncmdprio_bssplit=64k/25/1/1:64k/75/3/2/5:1024k/0,1024k/0\nwrite_lat_log\nlog_prio=1";
    let expected = RequestPriorities {
        reads: vec![
            share(Some(65536), 25, of(IoClass::RealTime, 1, 0)),
            share(Some(65536), 75, of(IoClass::Idle, 2, 5)),
        ],
        writes: Vec::new(),
    };
    let drawn = conduct(sizes);
    assert_eq!(drawn.request_priorities, Some(expected));
    assert!(drawn.log.is_some_and(|log| log.priorities && log.priority.is_none()));
    let simple = conduct("ioengine=libaio\ncmdprio_bssplit=64k/100\ncmdprio=4").request_priorities;
    assert_eq!(simple.map(|s| s.reads), Some(vec![share(Some(65536), 100, of(IoClass::RealTime, 4, 0))]));
}

#[test]
fn failures_to_live_with_are_those_that_are_named_or_fios_usual_ones() {
    let tolerance = |options: &str| one(options).conduct.tolerance;
    let of = |reads: &[i32], writes: &[i32], wrong_blocks| {
        Some(Tolerance { reads: reads.to_vec(), writes: writes.to_vec(), wrong_blocks })
    };
    assert_eq!(tolerance("continue_on_error=none"), None);
    assert_eq!(tolerance("continue_on_error=read"), of(&[5, 84], &[], false));
    assert_eq!(tolerance("continue_on_error=io"), of(&[5, 84], &[5, 84], false));
    assert_eq!(tolerance("continue_on_error=verify"), of(&[], &[], true));
    assert_eq!(tolerance("continue_on_error=1"), of(&[5, 84], &[5, 84], true));
    assert_eq!(tolerance("ignore_error=,ENOSPC"), of(&[], &[28], false));
    assert_eq!(tolerance("ignore_error=EIO:61,,EILSEQ"), of(&[5, 61], &[], true));
    assert_eq!(tolerance("continue_on_error=write\nignore_error=,ENOSPC"), of(&[], &[28], false));
    let unknown = refusal("[a]\nfilename=/x\nignore_error=EIOU");
    assert!(unknown.contains("'EIOU' is not an error"), "{unknown}");
    let unverifiable = refusal("[a]\nfilename=/x\nrw=write\nverify=md5\ncontinue_on_error=all");
    assert!(unverifiable.contains("add verify_backlog"), "{unverifiable}");
    one("rw=write\nverify=md5\nverify_backlog=9\ncontinue_on_error=all");
    assert!(refusal("[a]\nfilename=/x\ncontinue_on_error=maybe").contains("no kind of failure"));
}

#[test]
fn blocks_that_are_wrong_are_counted_where_a_job_goes_on_with_them() {
    let write = "[a]\nfilename=/x\nrw=write\nsize=1m\nbs=4k\nverify=md5\ndo_verify=0\n";
    let read = "[a]\nfilename=/x\nrw=read\nsize=1m\nbs=8k\nverify=md5\n";
    let mut target = BenchTarget::new("mem:1m", TargetOptions::default()).expect("a spec");
    let mut run = |text: &str| {
        let job = one_of(text);
        let mut prepared = target.job(&job.workload)?;
        prepared.conduct = job.conduct;
        let arranged = run_arranged(&[prepared], &[job.arrangement], RunOptions::default());
        arranged.map(|mut arranged| arranged.records.remove(0).expect("a record")).map_err(Problem::from)
    };
    run(write).expect("writes");
    // A block of 8 KiB holds two of 4 KiB, none of which is what is looked for.
    let problem = run(read).expect_err("ends with the first");
    assert!(matches!(problem, Problem::Run(BenchError::Verify { .. })), "{problem:?}");
    let record = run(&format!("{read}continue_on_error=verify\n")).expect("goes on");
    let failed: Vec<_> = record.failed.iter().map(|kind| (kind.operation.as_str(), kind.count)).collect();
    assert_eq!((failed, record.verified_blocks, record.total.ios), (vec![("verify", 128)], 128, 0));
    assert!(record.has_warning(WarningCode::FailedRequests));
}

#[test]
fn atomic_writes_are_those_of_engines_and_workloads_that_keep_the_flag() {
    let job = one(
        "rw=randwrite\nsize=1m\nioengine=libaio\ndirect=1\natomic=1\nverify=crc64\nverify_write_sequence=0\nnumjobs=4",
    );
    assert!(job.conduct.atomic && job.conduct.any_generation && job.workload.regions_overlap());
    assert!(job.notes.iter().all(|note| !note.contains("told as wrong")), "{:?}", job.notes);
    assert!(
        !one("rw=randread\nsize=1m\nioengine=libaio\ndirect=1\natomic=1").conduct.atomic,
        "it writes nothing"
    );
    let refused =
        |options: &str| refusal(&format!("[job]\nfilename=/x\nsize=1m\natomic=1\nrw=write\n{options}\n"));
    assert!(refused("direct=1").contains("only io_uring and libaio"));
    assert!(refused("direct=1\nioengine=pvsync2").contains("only io_uring and libaio"));
    assert!(refused("ioengine=io_uring").contains("add direct=1"));
    assert!(refused("ioengine=io_uring\ndirect=1\nbssplit=4k/50:8k/50").contains("several sizes"));
    let error = run("[job]\nfilename=/x\nsize=1m\natomic=1\nrw=write\nioengine=io_uring\ndirect=1\n")
        .expect_err("memory has none");
    assert!(error.to_string().contains("atomic=1: mem:1m: it is not one file"), "{error}");
    assert_eq!(error.class(), ErrorClass::Invalid);
}

#[test]
fn copies_that_write_the_same_blocks_are_verified_where_any_write_will_do() {
    let text =
        "[job]\nfilename=/x\nsize=1m\nrw=randwrite\nbs=4k\nverify=crc32c\nnumjobs=3\nioengine=io_uring\n";
    assert!(run(text).is_err(), "which write was the last is not known");
    let arranged = run(&format!("{text}do_verify=0\nverify_write_sequence=0\n")).expect("is allowed");
    assert_eq!(arranged.records[0].as_ref().expect("ran").total.ios, 3 * 256);
}

#[test]
fn a_pass_to_the_steady_state_writes_more_than_the_space_and_ends() {
    let text =
        "[job]\nfilename=/x\nrw=randwrite\nbs=4k\nnorandommap\nsprandom=1\nspr_op=0.25\nspr_num_regions=8\n";
    let plan = jobs(text).remove(0).conduct.steady_writes.expect("is asked for");
    assert_eq!((plan.over_provisioning, plan.regions, plan.defers), (0.25, 8, false));
    let arranged = run(text).expect("runs");
    let record = arranged.records[0].as_ref().expect("ran");
    assert_eq!((record.total.ios, plan.writes(256) > 300), (plan.writes(256), true));
    let cached = one("rw=randwrite\nsize=1m\nsprandom\nspr_cs=64k");
    assert_eq!(
        (cached.conduct.cache_bytes, cached.conduct.steady_writes.expect("is on").defers),
        (65536, true)
    );
    let error = run(&text.replace("regions=8", "regions=1000")).expect_err("has 256 blocks");
    assert!(error.to_string().contains("spr_num_regions=1000: a region of mem:1m has 0 bytes"), "{error}");
    run(&format!("{text}spr_cs=1m\n")).expect_err("a region is smaller than the cache");
}

#[test]
fn what_would_change_the_pass_to_the_steady_state_is_refused() {
    let refused = |options: &str| {
        refusal(&format!("[job]\nfilename=/x\nsize=1m\nrw=randwrite\nsprandom=1\n{options}\n"))
    };
    for options in [
        "rw=write",
        "rw=randrw",
        "time_based\nruntime=1",
        "io_size=2m",
        "numjobs=2",
        "bssplit=4k/50:8k/50",
        "random_distribution=zipf",
        "percentage_random=50",
        "blockalign=8k",
        "verify=md5",
        "filename=/x:/y",
        "ioengine=null",
    ] {
        assert!(refused(options).contains("sprandom"), "{options}");
    }
    assert!(refused("spr_op=1.5").contains("not between 0 and 1"));
    assert!(refused("sprandom=0\nspr_op=0.2").contains("belongs to sprandom"));
}
