//! fio job files: what is read, what is refused, and that nothing is skipped.

use std::path::Path;
use std::time::Duration;

use bench::run::cohorts::{Arrangement, Ends};
use fio::{JobFile, JobFileError, options_of};
use measure::Workload;
use measure::workload::{
    CpusAllowedPolicy, IoEngine, Pages, RandomDistribution, RateProcess, Rw, SizeShare, Verify, WriteSync,
};
use storage::spec::DeviceSpec;

fn parse(text: &str) -> Result<JobFile, JobFileError> {
    JobFile::parse(text, Path::new("test.fio"), &|_| None)
}

fn jobs(text: &str) -> Vec<fio::Job> {
    match parse(text) {
        Ok(file) => file.jobs().cloned().collect(),
        Err(error) => panic!("{error} ({})\n{text}", error.hint()),
    }
}

/// The workload of a file with one job that has these options.
fn workload(options: &str) -> Workload {
    jobs(&format!("[job]\nfilename=/x\n{options}\n")).remove(0).workload
}

/// The error of a file with one job that has these options, with its hint.
fn refusal(options: &str) -> String {
    match parse(&format!("[job]\nfilename=/x\n{options}\n")) {
        Ok(file) => panic!("accepted: {options}\n{file:#?}"),
        Err(error) => format!("{error} ({})", error.hint()),
    }
}

#[test]
fn a_job_without_options_has_fios_defaults() {
    let job = jobs("[a]\nfilename=/x").remove(0);
    let expected = Workload {
        name: "a".into(),
        rw: Rw::Read,
        bs: 4096,
        iodepth: 1,
        iodepth_batch: 1,
        ioengine: IoEngine::Psync,
        direct: false,
        offset_increment: Some(0),
        ..Workload::default()
    };
    assert_eq!(job.workload, expected);
    assert!(job.invalidate && !job.unlink && job.notes.is_empty());
    assert_eq!((job.name.as_str(), job.at.line(), job.group_id), ("a", 1, 0));
}

#[test]
fn every_supported_option_reaches_the_workload() {
    let read = workload(
        "readwrite=randrw\nblocksize=8k\niodepth=32\nioengine=io_uring\niodepth_batch_submit=16\n\
         iodepth_batch_complete=4\nrwmixwrite=30\nnumjobs=3\nrate_iops=700,300\nrate_process=poisson\n\
         timeout=1500ms\ntime_based\nramp_time=2\nsize=1g\noffset=64m\noffset_increment=2g\n\
         random_distribution=zipf:1.2\nrandseed=7\nbuffer_compress_percentage=40\nbuffered=0\nhipri\n\
         sqthread_poll=1\nfixedbufs\nregisterfiles=1\nfdatasync=8\nend_fsync=1",
    );
    let expected = Workload {
        name: "job".into(),
        rw: Rw::RandRw,
        bs: 8192,
        iodepth: 32,
        ioengine: IoEngine::IoUring,
        iodepth_batch: 16,
        iodepth_batch_complete_min: 4,
        rwmixread: 70,
        numjobs: 3,
        rate_iops: Some(1000),
        rate_process: RateProcess::Poisson,
        runtime: Some(Duration::from_millis(1500)),
        time_based: true,
        ramp_time: Duration::from_secs(2),
        size: Some(1 << 30),
        offset: 64 << 20,
        offset_increment: Some(2 << 30),
        random_distribution: RandomDistribution::Zipf(1.2),
        norandommap: true,
        randseed: 7,
        buffer_compress_percentage: 40,
        direct: true,
        hipri: true,
        sqthread_poll: true,
        fdatasync: 8,
        end_fsync: true,
        ..Workload::default()
    };
    assert_eq!(read, expected);
}

#[test]
fn globals_hold_for_the_sections_after_them_and_the_last_value_wins() {
    let text = "[global]\nfilename=/x\nbs=8k\nrw=randread\n[a]\n[global]\nbs=16k\ndirect=1\n[b]\nrw=read\nbs=1k\nbs=2k\n\
                [global of more]\nbuffered=1\n[c]\n";
    let jobs = jobs(text);
    let seen: Vec<_> = jobs.iter().map(|j| (j.workload.rw, j.workload.bs, j.workload.direct)).collect();
    assert_eq!(seen, [(Rw::RandRead, 8192, false), (Rw::Read, 2048, true), (Rw::RandRead, 16384, false)]);
    assert_eq!(jobs[1].options, [("rw".to_owned(), "read".to_owned()), ("bs".into(), "2k".into())]);
    assert!(parse(text).unwrap().global_options.contains(&("buffered".into(), "1".into())));
}

#[test]
fn stonewall_divides_jobs_into_groups_that_run_one_after_the_other() {
    let file = parse(
        "[global]\nfilename=/x\n[a]\n[b]\nnumjobs=2\n[c]\nstonewall\n[d]\nnew_group\n[e]\nwait_for_previous=1\n[f]\nstonewall=0",
    )
    .unwrap();
    let names: Vec<Vec<&str>> =
        file.groups.iter().map(|g| g.jobs.iter().map(|j| j.name.as_str()).collect()).collect();
    assert_eq!(names, [vec!["a", "b"], vec!["c", "d"], vec!["e", "f"]]);
    let ids: Vec<u32> = file.jobs().map(|j| j.group_id).collect();
    assert_eq!(ids, [0, 0, 1, 2, 3, 3]);
}

#[test]
fn no_two_threads_of_a_file_draw_the_same_seeds() {
    let jobs = jobs("[global]\nfilename=/x\nrandseed=100\n[a]\nnumjobs=3\n[b]\n[c]");
    let seeds: Vec<u64> = jobs.iter().map(|j| j.workload.randseed).collect();
    assert_eq!(seeds, [100, 103, 104]);
    let fresh = || workload("randrepeat=0").randseed;
    assert_ne!(fresh(), fresh());
    assert_eq!(workload("randrepeat=0\nrandseed=5").randseed, 5);
}

#[test]
fn copies_without_a_filename_have_a_file_each() {
    let jobs = jobs(
        "[a b]\ndirectory=/data\nnumjobs=3\nsize=1m\noffset=4k\noffset_increment=8k\n[one]\nfilename_format=$jobname-$filenum\nnumjobs=2\nsize=1m",
    );
    let paths: Vec<String> = jobs.iter().map(|j| j.path.display().to_string()).collect();
    assert_eq!(paths, ["/data/a b.0.0", "/data/a b.1.0", "/data/a b.2.0", "one-0"]);
    let offsets: Vec<u64> = jobs.iter().map(|j| j.workload.offset).collect();
    assert_eq!(offsets, [4096, 12288, 20480, 0]);
    let threads: Vec<u32> = jobs.iter().map(|j| j.workload.numjobs).collect();
    assert_eq!(threads, [1, 1, 1, 2]);
    assert_eq!(jobs[2].file_bytes(), Some((1 << 20) + 20480));
}

#[test]
fn a_file_that_is_missing_is_to_be_made_as_large_as_the_job_needs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    let spec = |size: &str| {
        jobs(&format!("[a]\nfilename={}\noffset=4k\n{size}", path.display())).remove(0).device_spec()
    };
    assert_eq!(spec("size=1m"), DeviceSpec::File { path: path.clone(), size: Some((1 << 20) + 4096) });
    assert_eq!(spec(""), DeviceSpec::Path(path.clone()));
    std::fs::write(&path, "").unwrap();
    assert_eq!(spec("size=1m"), DeviceSpec::Path(path.clone()));
}

#[test]
fn a_name_changes_the_report_and_not_the_file() {
    let job = jobs("[a]\nname=shown\nsize=1m\ndescription=why it runs").remove(0);
    assert_eq!((job.name.as_str(), job.path.to_str()), ("shown", Some("a.0.0")));
    assert_eq!(job.workload.name, "shown");
    assert_eq!(job.description.as_deref(), Some("why it runs"));
}

#[test]
fn a_colon_in_a_filename_is_escaped_as_in_fio() {
    let job = jobs("[a]\nfilename=/dev/disk/pci-0000\\:01\\:00.0").remove(0);
    assert_eq!(job.path.to_str(), Some("/dev/disk/pci-0000:01:00.0"));
    let error = refusal("directory=/a:/b");
    assert!(error.starts_with("test.fio:3: directory=/a:/b: copies are not dealt out"), "{error}");
}

#[test]
fn comments_and_blanks_are_those_of_fio() {
    let text =
        "# a comment\n ; another\n\n \t[a] ; after\r\n  rw = randread # here\n\tbs= 8k\t\nfilename=/x;y\n";
    let job = jobs(text).remove(0);
    assert_eq!((job.workload.rw, job.workload.bs), (Rw::RandRead, 8192));
    assert_eq!(job.path.to_str(), Some("/x"));
}

#[test]
fn variables_come_from_the_environment_and_must_be_set() {
    let environment = |name: &str| (name == "SIZE").then(|| "64m".to_owned());
    let read = |text: &str| JobFile::parse(text, Path::new("e.fio"), &environment);
    let file = read("[a]\nfilename=/x\nsize=${SIZE}").unwrap();
    assert_eq!(file.groups[0].jobs[0].workload.size, Some(64 << 20));
    assert_eq!(file.groups[0].jobs[0].options[1], ("size".to_owned(), "64m".to_owned()));
    let error = read("[a]\nfilename=/data/${WHERE}/f").unwrap_err();
    assert_eq!(
        error.to_string(),
        "e.fio:2: filename=/data/${WHERE}/f: the environment variable 'WHERE' is not set"
    );
    let file = read("[a]\nfilename=/x\nbs=2*$pagesize").unwrap();
    assert_eq!(file.groups[0].jobs[0].workload.bs, 2 * storage::pages::page_bytes() as u64);
    let error = read("[a]\nfilename=/x\nsize=4k*$pagesize").unwrap_err();
    assert!(
        error.to_string().contains("size=4k*$pagesize: '4k*4096' cannot be calculated")
            || storage::pages::page_bytes() != 4096,
        "{error}"
    );
}

#[test]
fn includes_are_found_beside_the_file_and_keep_their_own_lines() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("main.fio", "[a]\nfilename=/x\ninclude common.inc\nbs=16k\n[b]\ninclude common.inc\nfilename=/y");
    write("common.inc", "bs=8k\n  include deeper.inc\n");
    write("deeper.inc", "iodepth=4\nioengine=libaio");
    let file = JobFile::read(&dir.path().join("main.fio")).unwrap();
    let seen: Vec<_> = file.jobs().map(|j| (j.workload.bs, j.workload.iodepth)).collect();
    assert_eq!(seen, [(16384, 4), (8192, 4)]);

    write("deeper.inc", "iodepth=4\niodpeth=8");
    let error = JobFile::read(&dir.path().join("main.fio")).unwrap_err();
    assert!(error.to_string().ends_with("deeper.inc:2: 'iodpeth' is not an option"), "{error}");
    assert_eq!(error.hint(), "did you mean iodepth?");

    write("deeper.inc", "include main.fio");
    let error = JobFile::read(&dir.path().join("main.fio")).unwrap_err();
    assert!(error.to_string().contains("includes itself"), "{error}");
    write("deeper.inc", "[section]");
    let error = JobFile::read(&dir.path().join("main.fio")).unwrap_err();
    assert!(error.to_string().contains("in an included file"), "{error}");
    write("deeper.inc", "include missing.inc");
    let error = JobFile::read(&dir.path().join("main.fio")).unwrap_err();
    assert!(error.to_string().contains("missing.inc, included at "), "{error}");
}

#[test]
fn a_chain_of_includes_ends() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..40 {
        let text = if i == 0 { "[a]\ninclude 1.fio".to_owned() } else { format!("include {}.fio", i + 1) };
        std::fs::write(dir.path().join(format!("{i}.fio")), text).unwrap();
    }
    let error = JobFile::read(&dir.path().join("0.fio")).unwrap_err();
    assert!(error.to_string().contains("nested more than 16 deep"), "{error}");
}

#[test]
fn what_is_no_job_file_is_said_to_be_none() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        JobFile::read(&path).unwrap_err().to_string()
    };
    assert!(read(b"[a]\nrw=\xff\xfe").ends_with("line 2 is not UTF-8 text"));
    assert!(read(b"[a]\nrw=read\0").contains("NUL"));
    assert!(read(&vec![b' '; 2 << 20]).ends_with("it is larger than 1 MiB"));
    assert!(read(b"").ends_with("has no job section"));
    assert!(read(b"[global]\nrw=read").ends_with("has no job section"));
    assert!(read(b"rw=read").ends_with(":1: 'rw=read' stands before the first section"));
    assert!(read(b"[a\nrw=read").ends_with(":1: section '[a' does not end in ']'"));
    let error = JobFile::read(&dir.path().join("missing.fio")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read job file "), "{error}");
    assert!(JobFile::read(dir.path()).is_err());
}

#[test]
fn an_unknown_key_is_named_with_its_line_even_where_no_job_uses_it() {
    let error = parse("[a]\nfilename=/x\n[global]\nrandon_distribution=zipf").unwrap_err();
    assert_eq!(error.to_string(), "test.fio:4: 'randon_distribution' is not an option");
    assert_eq!(error.hint(), "did you mean random_distribution?");
    assert!(refusal("--rw=read").contains("without dashes: rw"));
    assert!(refusal("include=x").contains("write: include FILE"));
    assert!(refusal("qwertzuiop=1").contains("--cmdhelp"));
    assert!(refusal("RW=read").contains("is not an option"));
}

#[test]
fn an_option_of_a_foreign_engine_is_explained_by_the_engine() {
    let error = refusal("http_verbose=1\nioengine=http");
    assert!(error.starts_with("test.fio:4: ioengine=http: flashwright has no such engine"), "{error}");
}

#[test]
fn the_hint_of_an_unknown_engine_names_every_engine() {
    let error = parse("[a]\nioengine=http").unwrap_err();
    let hint = error.hint();
    let named: Vec<_> = hint.split([' ', ',', ':', '(', ')']).collect();
    let without_data = bench::acts::Act::all().map(bench::acts::Act::word);
    let of_fio = ["linuxaio", "aio", "sync", "pvsync", "pvsync2"];
    for word in IoEngine::WORDS.iter().copied().chain(of_fio).chain(without_data) {
        assert!(named.contains(&word), "{word}: {hint}");
    }
}

#[test]
fn a_refused_key_is_refused_even_where_a_later_one_would_replace_it() {
    let error = refusal("exec_prerun=rm -rf /\nexec_prerun=");
    assert!(error.starts_with("test.fio: 2 settings do not run here"), "{error}");
    let error = parse("[a]\nfilename=/x\nexec_prerun=rm -rf /\nexec_prerun=").unwrap_err();
    let first = error.each()[0].to_string();
    assert!(first.starts_with("test.fio:3: exec_prerun=rm -rf /: commands are not run"), "{first}");
}

#[test]
fn values_that_change_nothing_are_accepted_and_others_refused() {
    for (accepted, refused) in [
        ("fadvise_hint=0", "fadvise_hint=1"),
        ("zero_buffers=0", "zero_buffers"),
        ("mem=malloc", "mem=mmaphuge:/huge"),
        ("kb_base=1024", "kb_base=1000"),
        ("pre_read=0", "pre_read=1"),
    ] {
        workload(accepted);
        let error = refusal(refused);
        assert!(error.starts_with(&format!("test.fio:3: {refused}: ")), "{error}");
        assert!(error.contains("leave it out"), "{error}");
    }
    // The last value counts, as in fio.
    workload("pre_read=1\npre_read=0");
    for line in ["thread", "group_reporting=1", "refill_buffers", "gtod_reduce=1", "fallocate=none"] {
        workload(line);
    }
}

#[test]
fn places_of_threads_and_buffers_are_taken_over() {
    let asked = workload("cpus_allowed=0-3,8\ncpus_allowed_policy=split\niomem=mmaphuge");
    assert_eq!(asked.cpus_allowed.map(|cpus| cpus.to_string()).as_deref(), Some("0-3,8"));
    assert_eq!(asked.cpus_allowed_policy, CpusAllowedPolicy::Split);
    assert_eq!(asked.pages, Pages::Huge);
    assert_eq!(
        workload("cpumask=0x10d").cpus_allowed.map(|cpus| cpus.to_string()).as_deref(),
        Some("0,2-3,8")
    );
    assert!(workload("numa_cpu_nodes=1").numa_cpu_nodes.is_some());
    for (line, reason) in [
        ("numa_cpu_nodes=all", "is neither a number"),
        ("cpus_allowed_policy=split", "needs CPUs to divide"),
        ("cpus_allowed=0\nnuma_cpu_nodes=0", "cannot be combined with cpus_allowed"),
        ("cpumask=0", "out of range"),
    ] {
        let error = refusal(line);
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_value_that_fio_would_misread_is_refused_with_what_fio_makes_of_it() {
    for (line, reason) in [
        ("bs=1.5k", "it reads '1.5k' as 1"),
        ("size=4GiB", "powers of 1000"),
        ("size=4x", "'x' is not a unit of size"),
        ("size=1e9", "is not a unit of size"),
        ("size=-1", "negative"),
        ("size=99999999999t", "out of range"),
        ("size=(4*1024)", "arithmetic"),
        ("size=50%", "the file does not exist"),
        ("size=12z", "zones"),
        ("bs=0", "out of range"),
        ("bs=0x", "hexadecimal"),
        ("bs=", "needs a value"),
        ("bs", "needs a value"),
        ("runtime=5min", "microseconds"),
        ("runtime=0.5s", "it reads '0.5s' as 0 s"),
        ("runtime=x", "is not a time"),
        ("runtime=99999999999d", "out of range"),
        ("direct=yes", "neither 0 nor 1"),
        ("direct", "needs a value"),
        ("rw=randred", "not a direction"),
        ("rw=randread:8", "several requests at one random offset"),
        ("rw=trimwrite\nbs=4k,4k,8k", "in one size"),
        ("rw=trimwrite\nrate_iops=9", "cannot be combined with a rate"),
        ("verify=sha1", "not computed here"),
        ("verify=crc16", "lets wrong blocks pass"),
        ("verify=null", "checks nothing"),
        ("verify=md6", "not a kind of verification"),
        ("verify_only", "nothing says how blocks are known"),
        ("rw=randrw\nverify=md5\nverify_only", "of a mix were written is not known"),
        ("verify=md5\nverify_interval=1000", "must divide bs"),
        ("verify=pattern", "needs the pattern"),
        ("verify_pattern=abc", "neither a number, a quoted text nor %o"),
        ("buffer_pattern='x'", "not read as a pattern"),
        ("rw=write\nbuffer_pattern=%o", "has no offsets"),
        ("rw=write\nbuffer_pattern=1\nverify=md5", "leave one of them out"),
        ("rw=trim\nverify=md5", "writes or reads alone"),
        ("rw=write\nverify=md5\nverify_backlog=8\nrate_iops=9", "cannot be combined with a rate"),
        ("rw=write\nsize=1g\nfill_device=1", "leave out one of the two"),
        ("rw=randwrite\nfill_device=1", "block after block"),
        ("prio=3", "add prioclass=2"),
        ("prioclass=4", "out of range"),
        ("cmdprio_percentage=20", "with io_uring and libaio only"),
        ("ioengine=libaio\ncmdprio_percentage=20\ncmdprio_bssplit=4k/10", "leave out one of the two"),
        ("ioengine=libaio\ncmdprio_bssplit=4k", "has 1 parts"),
        ("ioengine=libaio\ncmdprio_bssplit=4k/60:4k/50/1/2", "come to 110 %"),
        ("ioengine=rados", "no such engine"),
        ("cmd_type=nvme", "it belongs to io_uring_cmd, and the engine is psync"),
        ("ioengine=io_uring\nwritefua=1", "it belongs to io_uring_cmd, and the engine is io_uring"),
        ("ioengine=io_uring_cmd\ncmd_type=bsg", "NVMe namespaces only"),
        ("ioengine=io_uring_cmd\nrw=write\nwrite_mode=zone_append", "with zonemode=zbd"),
        (
            "ioengine=io_uring_cmd\nrw=write\nzonemode=zbd\nzonesize=1m\nwrite_mode=zone_append/50:write/50",
            "by all writes or by none",
        ),
        (
            "ioengine=io_uring_cmd\nrw=write\nzonemode=zbd\nzonesize=1m\nwrite_mode=zeroes",
            "only writes move the pointers",
        ),
        ("ioengine=io_uring_cmd\nrw=trim\nbs=1m\nzonemode=zbd\nzonesize=1m\nnum_range=4", "resets one zone"),
        ("ioengine=io_uring_cmd\nwrite_mode=erase", "not a command that writes"),
        ("ioengine=io_uring_cmd\nwrite_mode=write/40:zeroes/50", "come to 90 %"),
        ("ioengine=io_uring_cmd\nwrite_mode=write:zeroes", "has no share"),
        ("ioengine=io_uring_cmd\nwrite_mode=write/50:write/50", "stands there twice"),
        ("ioengine=io_uring_cmd\nwrite_mode=write/300", "not a percentage"),
        ("write_mode=zeroes", "it belongs to io_uring_cmd, and the engine is psync"),
        ("ioengine=io_uring_cmd\nrw=write\nverify=crc32c\nwrite_mode=write/90:uncor/10", "move no data"),
        ("fdp=1", "it belongs to io_uring_cmd, and the engine is psync"),
        ("ioengine=io_uring_cmd\ndataplacement=streams", "streams are not supported"),
        ("ioengine=io_uring_cmd\nfdp=1\nfdp_pli=0,4-2", "'4-2' is neither"),
        ("ioengine=io_uring_cmd\nfdp=1\nplids=128", "'128' is neither"),
        ("ioengine=io_uring_cmd\nfdp=1\nplid_select=scheme", "schemes are not read"),
        ("pi_chk=GUARD", "it belongs to io_uring_cmd, and the engine is psync"),
        ("ioengine=io_uring_cmd\npi_act=2", "neither"),
        ("ioengine=io_uring_cmd\npi_chk=GUARD,TAG", "'TAG' is not a tag"),
        ("ioengine=io_uring_cmd\napptag=0x10000", "not a number of 16 bits"),
        ("ioengine=io_uring_cmd\napptag=0xffff", "checked by no drive"),
        ("ioengine=io_uring_cmd\napptag_mask=-1", "not a number of 16 bits"),
        ("ioengine=io_uring_cmd\nmd_per_io_size=8g", "out of range"),
        ("ioengine=io_uring_cmd\nrw=write\npi_act=1\nwrite_mode=zeroes", "move no data, and no metadata"),
        ("rw=trim\nnum_range=8", "it belongs to io_uring_cmd, and the engine is psync"),
        ("ioengine=io_uring_cmd\nrw=write\nnum_range=8", "only discards have ranges"),
        ("ioengine=io_uring_cmd\nrw=trimwrite\nnum_range=8", "only discards have ranges"),
        ("ioengine=io_uring_cmd\nrw=trim\nnum_range=257", "out of range"),
        ("ioengine=io_uring_cmd\nrw=trim\nnum_range=2\nrate_iops=9", "made together"),
        ("ioengine=io_uring_cmd\nrw=trim\nnum_range=256\niodepth=1024", "32768"),
        ("sqthread_poll_cpu=0", "belongs to io_uring"),
        ("ioengine=io_uring\nsqthread_poll_cpu=x", "not the number of a CPU"),
        ("ioengine=mmap\nrw=write\nsync=dsync", "msync(2)"),
        ("random_distribution=zoned:60/10", "do not come to 100 %"),
        ("random_distribution=zipf:x", "not a number"),
        ("random_distribution=zipf:1.2:0.5", "a centre"),
        ("random_distribution=zipf:1", "not be 1"),
        ("percentile_list=0:50", "not a percentile"),
        ("numjobs=0", "out of range"),
        ("rwmixread=101", "out of range"),
        ("bs=4k,8k,16k,32k", "more than three"),
        ("size=1k", "smaller than one block"),
        ("time_based", "needs a runtime"),
        ("hipri", "belongs to io_uring"),
        ("ioengine=io_uring\nfixedbufs=0", "always registers"),
        ("norandommap\nrandom_generator=lfsr", "visit each once"),
        ("rw=randwrite\nverify=crc32c\nnorandommap", "stale from fresh"),
        ("iodepth_batch_complete_min=0", "without ever waiting"),
        ("filename=-", "no drive"),
        ("filename_format=$clientuid", "client"),
    ] {
        let error = refusal(line);
        assert!(error.contains(reason), "{line}: {error}");
        assert!(error.starts_with("test.fio:"), "{line}: {error}");
    }
}

#[test]
fn a_fault_of_several_options_names_the_line_of_one() {
    let error = parse("[global]\nrw=write\nverify=crc32c\n[a]\nfilename=/x\nbs=100").unwrap_err();
    assert_eq!(error.to_string(), "test.fio:3: verify=crc32c: needs blocks of at least 512 bytes");
    assert_eq!(error.hint(), "raise bs");
    let error = parse("[global]\nruntime=0\n[a]\nfilename=/x\ntime_based=1").unwrap_err();
    assert_eq!(error.location().map(|at| at.line()), Some(5));
}

#[test]
fn sizes_by_direction_are_taken_as_far_as_the_job_uses_them() {
    assert_eq!(workload("rw=read\nbs=8k,32k").bs, 8192);
    assert_eq!(workload("rw=write\nbs=8k,32k").bs, 32768);
    assert_eq!(workload("rw=trim\nbs=8k,32k").bs, 32768);
    assert_eq!(workload("rw=trim\nbs=8k,32k,").bs, 4096);
    assert_eq!(workload("rw=read\nbs=,8k").bs, 4096);
    assert_eq!(workload("rw=randrw\nbs=8k,8k").bs, 8192);
    let of_writes = |text: &str| {
        let workload = workload(text);
        let list = |split: &[SizeShare]| split.iter().map(|s| (s.bs, s.percent)).collect::<Vec<_>>();
        (workload.bs, list(&workload.bssplit), list(&workload.write_bssplit))
    };
    assert_eq!(of_writes("rw=randrw\nbs=8k,32k"), (8192, vec![], vec![(32768, 100)]));
    assert_eq!(of_writes("rw=randrw\nbs=8k,"), (8192, vec![], vec![(4096, 100)]));
    let split = "rw=randrw\nbssplit=64k/40:1024k/60,1024k/100";
    assert_eq!(of_writes(split), (4096, vec![(65536, 40), (1 << 20, 60)], vec![(1 << 20, 100)]));
    assert!(refusal("rw=randrw\nbs=8k,12k").contains("multiple of the smallest"));
    assert_eq!(workload("bs=64k\nbsrange=8k-8k").bs, 8192);
    let range = workload("bsrange=4k-16k").bssplit;
    let expected: Vec<SizeShare> = (1..=4).map(|n| SizeShare { bs: n * 4096, percent: 25 }).collect();
    assert_eq!(range, expected);
    let many = workload("bsrange=4k-12k");
    assert_eq!(
        many.bssplit.iter().map(|size| (size.bs, size.percent)).collect::<Vec<_>>(),
        [(4096, 0), (8192, 0), (12288, 0)]
    );
    assert_eq!((many.mean_bs(), many.validate()), (8192.0, Ok(())));
    assert!(options_of(&many).contains(&("bsrange".to_owned(), "4k-12k".to_owned())));
    assert!(refusal("bsrange=4k-2m").contains("more than 256"));
    assert!(refusal("bsrange=8k-4k").contains("below the lower one"));
    assert_eq!(workload("rw=randread\nblockalign=4k").bs, 4096);
    assert_eq!(workload("rw=randread\nblockalign=16k").blockalign, Some(16 << 10));
    assert!(refusal("rw=randread\nba=512").contains("must be a multiple of the smallest block"));
}

#[test]
fn bssplit_divides_what_is_left_as_fio_does() {
    let split = |text: &str| -> Vec<(u64, u8)> {
        workload(text).bssplit.iter().map(|SizeShare { bs, percent }| (*bs, *percent)).collect()
    };
    assert_eq!(split("bssplit=4k/10:64k/50:32k/40"), [(4096, 10), (65536, 50), (32768, 40)]);
    assert_eq!(split("bssplit=4k/50:8k:16k"), [(4096, 50), (8192, 25), (16384, 25)]);
    assert_eq!(split("bssplit=4k/50:8k/0:16k/"), [(4096, 50), (8192, 25), (16384, 25)]);
    assert_eq!(split("bssplit=4k/50:8k/50,64k/90:4k/10"), [(4096, 50), (8192, 50)]);
    assert_eq!(workload("bssplit=8k").bs, 8192);
    for bad in ["4k/60:64k/50", "4k/60:64k/30", "4k/x", "4k/200", ":", "4k/70:6k/30"] {
        assert!(refusal(&format!("bssplit={bad}")).contains("bssplit="), "{bad}");
    }
}

#[test]
fn a_mix_has_one_rate_where_its_directions_keep_the_proportion() {
    assert_eq!(workload("rw=randrw\nrate_iops=500").rate_iops, Some(1000));
    assert_eq!(workload("rw=rw\nrwmixread=75\nrate=3m,1m").rate, Some(4 << 20));
    assert_eq!(workload("rw=read\nrate=3m,1m").rate, Some(3 << 20));
    assert_eq!(workload("rw=write\nrate=3m,").rate, None);
    assert_eq!(workload("rw=randrw\nrwmixread=100\nrate_iops=9").rate_iops, Some(9));
    let error = refusal("rw=randrw\nrwmixread=70\nrate_iops=700");
    assert!(error.contains("rate_iops=700,300"), "{error}");
    assert!(refusal("rw=randrw\nrate_iops=,5").contains("proportion"));
    assert!(refusal("rw=randrw\nrwmixread=0\nrate_iops=5,").contains("proportion"));
    assert!(refusal("rate=1m\nrate_iops=5").contains("cannot be combined with rate"));
}

#[test]
fn a_synchronous_engine_keeps_one_request_in_flight_and_says_so() {
    let job = jobs("[a]\nfilename=/x\nioengine=pvsync2\niodepth=32\niodepth_batch=8").remove(0);
    assert_eq!((job.workload.ioengine, job.workload.iodepth), (IoEngine::Psync, 1));
    assert_eq!(job.workload.iodepth_batch, 1);
    assert_eq!(job.notes.len(), 2, "{:?}", job.notes);
    let uring = workload("ioengine=io_uring\niodepth=8\niodepth_batch=0\niodepth_batch_complete_min=99");
    assert_eq!((uring.iodepth_batch, uring.iodepth_batch_complete_min), (8, 8));
}

#[test]
fn commands_have_their_flags_and_pass_by_the_page_cache() {
    use bench::run::conduct::RingConduct;
    let text = "ioengine=io_uring_cmd\ncmd_type=nvme\niodepth=32\nhipri\nfixedbufs\nregisterfiles=1\nnonvectored=1\n\
                write_mode=write\nsqthread_poll=1\nsqthread_poll_cpu=3\nwritefua=1\nreadfua=0";
    let job = jobs(&format!("[a]\nfilename=/x\n{text}")).remove(0);
    let asked = &job.workload;
    assert_eq!((asked.ioengine, asked.iodepth, asked.direct), (IoEngine::IoUringCmd, 32, true));
    assert!(asked.hipri && asked.sqthread_poll);
    assert_eq!(job.conduct.ring, RingConduct { sqthread_poll_cpu: Some(3), ..RingConduct::default() });
    assert!(asked.sync == WriteSync::Dsync && asked.makes_durable(), "W-VOLATILE-CACHE does not apply");
    // What is off belongs to no engine.
    workload("readfua=0\nwritefua=0");
}

#[test]
fn a_discard_of_several_ranges_is_as_many_requests_of_which_so_many_are_in_flight() {
    let text = "ioengine=io_uring_cmd\nrw=randtrim\nbs=4k\niodepth=32\nnum_range=8\nsize=10m\nnumber_ios=5";
    let job = jobs(&format!("[a]\nfilename=/x\n{text}")).remove(0);
    let asked = &job.workload;
    assert_eq!((asked.iodepth, asked.iodepth_batch, asked.iodepth_batch_complete_min), (256, 8, 8));
    assert_eq!((asked.number_ios, asked.bs), (Some(40), 4096));
    assert_eq!(job.conduct.ring.ranges_per_trim, Some(8));
    assert!(job.notes.iter().any(|note| note.contains("a request is a range here")), "{:?}", job.notes);
    let one = jobs("[a]\nfilename=/x\nrw=write\nnum_range=1").remove(0);
    assert_eq!((one.conduct.ring.ranges_per_trim, one.notes.len()), (None, 0));
}

#[test]
fn data_are_placed_by_the_identifiers_that_a_job_names() {
    use storage::engine::Placement;
    let of = |text: &str| {
        let job = jobs(&format!("[a]\nfilename=/x\nioengine=io_uring_cmd\nrw=write\n{text}")).remove(0);
        (job.conduct.ring.placement, job.notes.len())
    };
    assert_eq!(of("fdp=0"), (None, 0));
    assert_eq!(of("fdp"), (Some(Placement::default()), 0));
    let named = Placement { places: vec![0, 2, 3, 4], random: true };
    assert_eq!(of("dataplacement=fdp\nplids=0,2-4\nplid_select=random"), (Some(named), 0));
    let in_turn = Placement { places: vec![4, 5], random: false };
    assert_eq!(of("fdp=1\nfdp_pli=4,5\nfdp_pli_select=roundrobin"), (Some(in_turn), 0));
    assert_eq!(of("fdp_pli=4,5"), (None, 1), "as in fio, they mean nothing then");
}

#[test]
fn what_becomes_of_metadata_is_said_by_any_of_its_keys_and_has_fios_defaults_otherwise() {
    use storage::device::ProtectionAction::{Controller, Host};
    use storage::engine::{Protection, TagChecks, Tags};
    let of = |text: &str| {
        let job = jobs(&format!("[a]\nfilename=/x\nioengine=io_uring_cmd\nrw=write\n{text}")).remove(0);
        job.conduct.ring.protection
    };
    let default = Protection::default();
    assert_eq!((default.tags.application, default.tags.mask), (0x1234, 0xffff));
    assert_eq!(of("pi_act=1"), Some((Controller, default)));
    assert_eq!(of("pi_act=0"), Some((Host, default)));
    // Without a word the namespace is not opened, for discards either.
    assert_eq!(of("rw=trim\npi_act=1"), Some((Controller, default)));
    assert_eq!(of("rw=randtrim\nnum_range=8\npi_act=0"), Some((Host, default)));
    assert_eq!(of("md_per_io_size=0"), None);
    assert_eq!(
        of("md_per_io_size=64"),
        Some((Controller, Protection { metadata_bytes: Some(64), ..default }))
    );
    let checks = TagChecks { guard: true, application: true, reference: true };
    let tags = Tags { application: 0x0888, mask: 0x0fff, checks };
    let all = "pi_act=0\npi_chk=GUARD,APPTAG,REFTAG\napptag=0x0888\napptag_mask=4095";
    assert_eq!(of(all), Some((Host, Protection { tags, metadata_bytes: None })));
    let guard = TagChecks { guard: true, ..TagChecks::default() };
    let tags = Tags { checks: guard, ..default.tags };
    assert_eq!(of("pi_chk=GUARD"), Some((Controller, Protection { tags, metadata_bytes: None })));
}

#[test]
fn commands_that_write_have_their_shares_and_a_note_says_what_moves_no_data() {
    use storage::engine::WriteCommands;
    let of = |mode: &str| {
        let text = format!("[a]\nfilename=/x\nioengine=io_uring_cmd\nrw=write\nwrite_mode={mode}");
        let job = jobs(&text).remove(0);
        (job.conduct.ring.write_commands, job.notes.join("; "))
    };
    let (mixed, note) = of("write/40:zeroes/30:uncor/20:verify/10");
    assert_eq!(mixed, WriteCommands { write: 40, zeroes: 30, uncorrectable: 20, verify: 10 });
    assert!(note.contains("60 %") && note.contains("cannot be read until they are written anew"), "{note}");
    let (zeroes, note) = of("zeroes");
    assert_eq!(zeroes, WriteCommands { write: 0, zeroes: 100, ..WriteCommands::default() });
    assert!(note.contains("100 %") && !note.contains("cannot be read"), "{note}");
    assert_eq!(of("write"), (WriteCommands::default(), String::new()));
}

#[test]
fn a_mapping_is_the_page_cache_and_keeps_one_request_in_flight() {
    let job = jobs("[a]\nfilename=/x\nioengine=mmap\niodepth=4\ndirect=1").remove(0);
    assert_eq!(
        (job.workload.ioengine, job.workload.iodepth, job.workload.direct),
        (IoEngine::Mmap, 1, false)
    );
    assert_eq!(job.notes.len(), 2, "{:?}", job.notes);
    let library = workload("ioengine=posixaio\niodepth=4\ndirect=1");
    assert_eq!((library.ioengine, library.iodepth, library.direct), (IoEngine::Posixaio, 4, true));
}

#[test]
fn verification_is_mapped_or_refused() {
    assert_eq!(workload("rw=write\nverify=crc32c-intel").verify, Some(Verify::Crc32c));
    assert_eq!(workload("rw=write\nverify=0").verify, None);
    let job = jobs("[a]\nfilename=/x\nrw=randwrite\nverify=xxhash\nverify_fatal=1").remove(0);
    assert_eq!(job.workload.verify, Some(Verify::Xxh3));
    assert!(job.notes[0].contains("XXH3-64"));
    workload("rw=read\nverify=crc32c\ndo_verify=0");
    // What a job only reads may be of any write, so it may be read twice.
    assert!(workload("rw=randread\nverify=crc32c\nnorandommap").norandommap);
    for (word, verify) in [
        ("md5", Verify::Md5),
        ("sha256", Verify::Sha256),
        ("sha512", Verify::Sha512),
        ("crc32", Verify::Crc32),
    ] {
        assert_eq!(workload(&format!("rw=write\nverify={word}")).verify, Some(verify));
    }
    assert_eq!(workload("rw=write\nverify=crc64").verify, Some(Verify::Crc64));
    // As in fio, a pattern alone says how blocks are known.
    let pattern = workload("rw=write\nverify_pattern=0xdead%o");
    assert_eq!(pattern.verify, Some(Verify::Pattern));
    assert_eq!(pattern.verify_pattern.map(|pattern| pattern.to_string()).as_deref(), Some("0xdead%o"));
    let surface =
        "verify=meta\nverify_pattern=0xaa555aa5\nverify_interval=512\nbs=64k\nrw=write\ndo_verify=0";
    let job = jobs(&format!("[a]\nfilename=/x\n{surface}")).remove(0);
    assert_eq!((job.workload.verify, job.workload.verify_interval), (Some(Verify::Meta), Some(512)));
    assert!(job.conduct.leaves_unverified && job.notes.iter().any(|note| note.contains("not read back")));
    assert_eq!(workload("rw=write\nfilesize=1g\nsize=2g\noffset=1m").size, Some((1 << 30) - (1 << 20)));
    let skewed = workload("rw=randwrite\nverify=md5\nverify_backlog=8\nrandom_distribution=zipf:1.2");
    assert!(skewed.verifies_by_log() && workload("rw=randrw\nverify=md5").verifies_by_log());
    let only = workload("rw=randwrite\nverify=md5\nverify_only\nverify_backlog=8");
    assert_eq!((only.rw, only.verify_backlog), (Rw::RandRead, 0));
    let job = jobs("[a]\nfilename=/x\nrw=write\nverify_interval=512").remove(0);
    assert_eq!(job.workload.verify_interval, None);
    assert!(job.notes[0].contains("no effect without verify"), "{:?}", job.notes);
}

#[test]
fn what_fio_json_is_to_spell_out_is_kept_with_the_job() {
    let job =
        jobs("[a]\nfilename=/x\npercentile_list=99.9:50\nlat_percentiles=1\nclat_percentiles=0").remove(0);
    assert_eq!(job.reporting.percentile_list, [50.0, 99.9]);
    assert!(job.reporting.lat_percentiles && !job.reporting.clat_percentiles);
}

#[test]
fn a_section_named_after_something_that_is_no_block_device_gets_a_made_up_name() {
    assert_eq!(jobs("[/dev/null]\nsize=1m").remove(0).path.to_str(), Some("/dev/null.0.0"));
}

#[test]
fn all_that_is_wrong_is_told_at_once_with_each_line() {
    let text = "[global]\nfilename=/data/${NOWHERE}\niodpeth=8\n[a]\nbs=1.5k\nexec_prerun=x\n[b]\nbs=8k\nrw=sideways\n";
    let error = parse(text).unwrap_err();
    let lines: Vec<usize> = error.each().iter().filter_map(|fault| Some(fault.location()?.line())).collect();
    assert_eq!(lines, [2, 3, 5, 6, 9], "{error:?}");
    assert_eq!(error.to_string(), "test.fio: 5 settings do not run here");
    let text = "[global]\nbs=1.5k\n[a]\nfilename=/x\n[b]\nfilename=/x\n";
    assert_eq!(parse(text).unwrap_err().each().len(), 1, "a global setting is told once");
}

#[test]
fn how_much_a_job_does_and_what_comes_between_is_taken_over() {
    let w = workload(
        "size=1m\nio_size=4m\nloops=3\nnumber_ios=100\nthinktime=2000\nthinktime_spin=1ms\nthinktime_blocks=4",
    );
    assert_eq!((w.size, w.io_size, w.loops, w.number_ios), (Some(1 << 20), Some(4 << 20), 3, Some(100)));
    assert_eq!((w.thinktime, w.thinktime_spin), (Duration::from_millis(2), Duration::from_millis(1)));
    assert_eq!(w.thinktime_blocks, 4);
    let w = workload("rw=write\nfsync=32\nsync=dsync");
    assert_eq!((w.fsync, w.sync, w.fdatasync), (32, WriteSync::Dsync, 0));
    assert_eq!(workload("sync=1").sync, WriteSync::Sync);
    assert_eq!(workload("rw=read:8k").rw_step, 8192);
    assert_eq!(workload("rw=write:-8k").rw_step, -8192);
    assert_eq!(workload("rw=randread\npercentage_random=30").percentage_random, 30);
    assert_eq!(workload("rw=read\npercentage_random=30").percentage_random, 100);
    let zoned = workload("rw=randread\nrandom_distribution=zoned:50/5:30/15:20/");
    assert_eq!(zoned.random_distribution.to_string(), "zoned:50/5:30/15:20/80");
    assert!(zoned.norandommap);
    for (line, reason) in [
        ("thinktime=1ms\nrate=1m", "cannot be combined with a rate"),
        ("rw=randread:8", "several requests at one random offset"),
        ("rw=randrw\npercentage_random=10,90", "alike"),
        ("rw=randread\nrandom_distribution=zoned:50/50", "do not come to 100 %"),
        ("ioengine=nbd", "named by uri"),
    ] {
        assert!(refusal(line).contains(reason), "{line}: {}", refusal(line));
    }
}

#[test]
fn percentages_are_of_the_file_or_of_filesize() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, vec![1; 10 * 4096 + 100]).unwrap();
    let of = |options: &str| jobs(&format!("[a]\nfilename={}\n{options}", path.display())).remove(0).workload;
    let w = of("size=50%\noffset=25%\nio_size=20%");
    assert_eq!((w.size, w.offset, w.io_size), (Some(5 * 4096), 3 * 4096, Some(2 * 4096)));
    let w = jobs("[a]\nfilename=/none/x\nfilesize=1m\nsize=50%").remove(0);
    assert_eq!((w.workload.size, w.file_bytes()), (Some(512 << 10), Some(1 << 20)));
    let error = parse("[a]\nfilename=/none/x\nsize=50%").unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
}

#[test]
fn flags_beside_a_file_take_the_place_of_what_its_sections_say() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j.fio");
    std::fs::write(&path, "[global]\nfilename=/x\nbs=8k\niodepth=32\n[a]\nbs=16k\n[b]\n").unwrap();
    let read = |flags: &[(&str, &str)]| {
        let flags: Vec<_> =
            flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        JobFile::read_with(&path, &|_| None, &flags)
    };
    let file = read(&[("bs", "64k"), ("ioengine", "libaio")]).unwrap();
    let seen: Vec<_> = file.jobs().map(|job| (job.workload.bs, job.workload.iodepth)).collect();
    assert_eq!(seen, [(65536, 32), (65536, 32)], "the depth of an asynchronous engine stays");
    let error = read(&[("bs", "0x")]).unwrap_err();
    assert!(error.to_string().starts_with("command line: bs=0x: "), "{error}");
}

#[test]
fn an_export_of_another_host_is_named_by_its_address() {
    let job = jobs("[a]\nioengine=nbd\nuri=nbd://host:10809/disk\niodepth=8\nrw=randread").remove(0);
    assert_eq!((job.workload.ioengine, job.workload.iodepth), (IoEngine::Nbd, 8));
    assert_eq!(job.device_spec().to_string(), "nbd://host:10809/disk");
    assert!(refusal("ioengine=nbd\nuri=/dev/sda").contains("not the address of an export"));
}

#[test]
fn jobs_wait_for_earlier_ones_begin_later_and_end_each_other_as_their_sections_say() {
    let text = "[global]\nfilename=/x\n[a]\nnumjobs=2\nexitall\n[b]\nwait_for=a\nstartdelay=1500ms\n[c]\nnew_group\n";
    let plan: Vec<Arrangement> = jobs(text).into_iter().map(|job| job.arrangement).collect();
    assert_eq!(plan[0].ends, Ends::Group);
    assert_eq!(
        plan[1],
        Arrangement { after: vec![0], delay: Duration::from_millis(1500), ..Arrangement::default() }
    );
    assert_eq!((plan[2].group, plan[2].is_plain()), (1, true));
    let copies = jobs("[a]\nsize=1m\nnumjobs=3\n[b]\nsize=1m\nwait_for=a").remove(3);
    assert_eq!(copies.arrangement.after, [0, 1, 2]);
    let over = jobs("[a]\nfilename=/x\n[b]\nstonewall\nfilename=/x\nwait_for=a").remove(1);
    assert!(over.arrangement.is_plain(), "it is over when the group begins");
    for (what, ends) in [("group", Ends::Group), ("stonewall", Ends::Running), ("all", Ends::Everything)] {
        let job = jobs(&format!("[a]\nfilename=/x\nexitall=1\nexit_what={what}")).remove(0);
        assert_eq!(job.arrangement.ends, ends);
    }
    assert!(refusal("wait_for=b").contains("no job before this one"));
    assert!(refusal("startdelay=1-5").contains("drawn from a range"));
}

#[test]
fn a_job_goes_round_several_files_block_by_block() {
    let job = jobs("[a]\nfilename=/none/x:/none/y\\:z\nbs=8k\nsize=1m\noffset=64k\nrw=write").remove(0);
    let file = |path: &str| DeviceSpec::File { path: path.into(), size: Some((512 << 10) + (64 << 10)) };
    let members = vec![file("/none/x"), file("/none/y:z")];
    assert_eq!(job.device_spec(), DeviceSpec::Stripe { chunk: 8192, members });
    assert_eq!((job.workload.size, job.workload.offset), (Some(1 << 20), 128 << 10));
    let spec = job.device_spec().to_string();
    assert_eq!(spec.parse::<DeviceSpec>().unwrap(), job.device_spec(), "{spec}");
    let copies = jobs("[a]\nnrfiles=2\nnumjobs=2\nsize=64k");
    let names: Vec<Vec<String>> =
        copies.iter().map(|job| job.files.iter().map(|file| file.display().to_string()).collect()).collect();
    assert_eq!(names, [["a.0.0", "a.0.1"], ["a.1.0", "a.1.1"]]);
    for (line, reason) in [
        ("filename=/x:/y\nbssplit=4k/50:8k/50", "blocks of one size"),
        ("filename=/x:/y\nbs=100", "whole sectors"),
        ("filename=/x:/y\nrw=read:8k", "steps are of one file"),
        ("filename=/x::/y", "is empty"),
        ("file_service_type=sequential", "after each request"),
    ] {
        assert!(refusal(line).contains(reason), "{line}: {}", refusal(line));
    }
}
