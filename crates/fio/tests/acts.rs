//! fio job files with engines that move no data, zones, sequences and copies.

use std::path::Path;
use std::time::Duration;

use bench::acts::{Act, Operation, Range};
use bench::run::burn::{Burn, Work};
use fio::{Job, JobFile, options_of};
use measure::Workload;
use measure::workload::{DedupeMode, RandomDistribution, Rw, Sequence};

fn read(text: &str) -> Result<Vec<Job>, String> {
    match JobFile::parse(text, Path::new("test.fio"), &|_| None) {
        Ok(file) => Ok(file.jobs().cloned().collect()),
        Err(error) => Err(error.each().iter().map(|fault| format!("{fault} ({})\n", fault.hint())).collect()),
    }
}

fn job(options: &str) -> Job {
    read(&format!("[job]\n{options}\n")).unwrap_or_else(|error| panic!("{options}: {error}")).remove(0)
}

fn refusal(options: &str) -> String {
    match read(&format!("[job]\n{options}\n")) {
        Ok(jobs) => panic!("accepted: {options}\n{jobs:#?}"),
        Err(error) => error,
    }
}

#[test]
fn each_engine_without_data_is_what_its_requests_do() {
    let act = |options: &str| job(options).act;
    assert_eq!(act("size=1m"), None);
    assert_eq!(act("ioengine=null\nsize=1m"), Some(Act::Nothing));
    assert_eq!(act("ioengine=filecreate"), Some(Act::Names(Operation::CreateFile)));
    assert_eq!(act("ioengine=filestat\nstat_type=lstat"), Some(Act::Names(Operation::StatLink)));
    assert_eq!(act("ioengine=dirdelete"), Some(Act::Names(Operation::DeleteDirectory)));
    assert_eq!(act("ioengine=falloc\nsize=1m\nrw=randtrim"), Some(Act::OnFile(Range::Allocate)));
    assert_eq!(act("ioengine=ftruncate\nsize=1m\nrw=write"), Some(Act::OnFile(Range::Truncate)));
    let cpu = job("ioengine=cpuio\ncpuload=150\ncpuchunks=2000\ncpumode=qsort\nruntime=3");
    let burn = Burn { load: 100, chunk: Duration::from_millis(2), work: Work::Sort };
    assert_eq!((cpu.act, cpu.conduct.burn), (Some(Act::Compute), Some(burn)));
    assert!(cpu.workload.time_based);
    let text = "ioengine=cpuio\ncpuload=50\nruntime=1\nrate_iops=10\nrw=write\nnumber_ios=3\nzonemode=strided\nzonesize=64k\n\
                dedupe_percentage=50\nnrfiles=3\nio_size=1m";
    let cpu = job(text);
    let note = cpu.notes.iter().find(|note| note.contains("without effect")).expect("says what it drops");
    for option in ["rate_iops", "rw", "number_ios", "zonesize", "dedupe_percentage", "nrfiles", "io_size"] {
        assert!(note.contains(option), "{option}: {note}");
    }
    let w = cpu.workload;
    assert_eq!((w.rate_iops, w.number_ios, w.zonesize, w.rw), (None, None, None, Rw::Read));
    let text = "ioengine=cpuio\ncpuload=50\nruntime=1\nramp_time=2\nrw=rw\nbs=8k,16k\nrwmixwrite=30\nfileoffset=1m\ndirect=1\n\
                iodepth=4\nrandom_distribution=zipf\nrandseed=7\ncpumask=1";
    let cpu = job(text);
    let dropped = "rw, bs, iodepth, rwmixwrite, random_distribution, fileoffset, direct";
    let note = format!("without effect with ioengine=cpuio, which makes no requests: {dropped}");
    assert_eq!(cpu.notes[1..], [note], "names what was written, as it was");
    let kept = Workload {
        name: "job".to_owned(),
        runtime: Some(Duration::from_secs(1)),
        ramp_time: Duration::from_secs(2),
        time_based: true,
        randseed: 7,
        cpus_allowed: "0".parse().ok(),
        ..job("ioengine=cpuio\ncpuload=50\nruntime=3").workload
    };
    assert_eq!(cpu.workload, kept);
    let cpu = job(
        "ioengine=cpuio\ncpuload=50\nruntime=1\ndirect=0\nbuffered=0\nflow=1\nrate_min=1m\nrate_iops_min=0\nfill_fs=1",
    );
    assert!(cpu.notes[1].ends_with(": flow, rate_min, fill_fs, buffered"), "{:?}", cpu.notes);
    assert_eq!((cpu.conduct.flow, cpu.conduct.floor), (None, None), "others of the flow would wait for ever");
    let cpu = job("ioengine=cpuio\ncpuload=50\nruntime=1\nfilename=a:b");
    assert!(cpu.notes[1].ends_with(": filename"), "{:?}", cpu.notes);
    let rests = job("ioengine=cpuio\ncpuload=50\nruntime=1\nthinktime=10ms\nthinktime_spin=1ms").workload;
    assert!(!rests.rests() && rests.validate().is_ok(), "{rests:?}");
}

#[test]
fn a_job_has_one_request_a_name_and_each_copy_names_of_its_own() {
    let text =
        "[a]\nioengine=filecreate\ncreate_on_open=1\nnrfiles=31250\nfilesize=4k\nnumjobs=2\ndirectory=/d\n";
    let jobs = read(text).expect("reads");
    assert_eq!(jobs.len(), 2);
    for (copy, job) in jobs.iter().enumerate() {
        assert_eq!((job.files.len(), job.workload.size), (31250, Some(31250 * 4096)));
        assert_eq!(job.files[31249].to_str(), Some(&*format!("/d/a.{copy}.31249")));
        assert_eq!((job.workload.rw, job.workload.iodepth, job.workload.numjobs), (Rw::Read, 1, 1));
    }
    assert!(refusal("nrfiles=31250\nsize=1g").contains("31250 is out of range"));
}

#[test]
fn names_that_several_sections_make_or_remove_are_refused() {
    let global = "[global]\nfilename=a:b:c\nbs=4k\n";
    let sections = |rest: &str| read(&format!("{global}{rest}"));
    let make_and_remove = "[make]\nioengine=filecreate\n[look]\nstonewall\nioengine=filestat\n";
    let error = sections(make_and_remove).expect_err("is made twice");
    assert!(error.contains("job 'look': a is a name of job 'make' as well"), "{error}");
    sections("[x]\nioengine=filestat\n[y]\nstonewall\nioengine=filedelete\n").expect_err("is there");
    sections("[x]\nioengine=filestat\n[y]\nstonewall\nioengine=filestat\n").expect("both look them up");
    read("[x]\nioengine=filecreate\n[y]\nioengine=filedelete\n").expect("have names of their own");
}

#[test]
fn what_would_do_nothing_with_such_an_engine_is_refused() {
    for (options, words) in [
        ("ioengine=null", "no file that has a size"),
        ("ioengine=null\nsize=1m\nrw=write\nfsync=1", "nothing that could be made durable"),
        ("ioengine=filestat\nfdatasync=1", "nothing that could be made durable"),
        ("ioengine=null\nsize=1m\nrw=write\nsync=1", "nothing that could be made durable"),
        ("ioengine=null\nsize=1m\nrw=write\nverify=crc32c", "writes no data"),
        ("ioengine=filecreate\nrw=write", "one operation with one name"),
        ("ioengine=filecreate\nnrfiles=4\nfilesize=8k", "counts for one block (write bs=8k)"),
        ("ioengine=filedelete\ntime_based\nruntime=5", "but once"),
        ("ioengine=filedelete\nnrfiles=4\nio_size=32k", "but once"),
        (
            "ioengine=filedelete\nnrfiles=4\nzonemode=strided\nzonesize=8k\nzonerange=4k",
            "names are worked on in turn",
        ),
        ("ioengine=ftruncate\nsize=1m\nrw=write\nsync=1", "O_SYNC does nothing for ftruncate(2)"),
        ("ioengine=filedelete\nnrfiles=1048576\nnumjobs=2", "more than 1048576 in one section"),
        ("size=1g\nnrfiles=1048576\nnumjobs=2", "write at most nrfiles=524288"),
        ("ioengine=null\nsize=1m\nzonerange=64k\nzoneskip=64k", "without zonesize there are no zones"),
        ("size=1m\nzoneskip=64k", "without zonesize there are no zones"),
        ("ioengine=filestat\nfilename=x\nnumjobs=2", "work on the same names"),
        ("ioengine=falloc\nsize=1m\nrw=read", "would change the file"),
        ("ioengine=falloc\nsize=1m\nrw=randrw", "would change the file"),
        ("ioengine=ftruncate\nsize=1m\nrw=trim", "sets the length"),
        ("ioengine=cpuio\nruntime=3", "for how much of its time"),
        ("ioengine=cpuio\ncpuload=50", "no end without a runtime"),
        ("cpuload=50\nsize=1m", "it belongs to cpuio, and the engine is psync"),
        ("stat_type=lstat\nioengine=null\nsize=1m", "it belongs to filestat"),
        ("create_on_open=1\nioengine=null\nsize=1m", "null makes no files"),
        ("ioengine=exec", "commands are not run from job files"),
    ] {
        let error = refusal(options);
        assert!(error.contains(words), "{options}: {error}");
    }
}

#[test]
fn zones_sequences_and_copies_reach_the_workload_and_are_written_as_they_are_read() {
    let read =
        job("size=64m\nbs=4k\nrw=randwrite\nzonemode=strided\nzonesize=1m\nzonerange=2m\nzoneskip=7m\n\
         dedupe_percentage=50\ndedupe_mode=working_set\ndedupe_working_set_percentage=20\ndedupe_global=1")
        .workload;
    let expected = Workload {
        zonesize: Some(1 << 20),
        zonerange: Some(2 << 20),
        zoneskip: 7 << 20,
        dedupe_percentage: 50,
        dedupe_mode: DedupeMode::WorkingSet,
        dedupe_working_set_percentage: 20,
        dedupe_global: true,
        ..read.clone()
    };
    assert_eq!(read, expected);
    for strided in [false, true] {
        let stride = u8::from(strided);
        let text = format!(
            "size=48k\nrw=randread\nrandom_distribution=sequence:2,0,1\nrandom_sequence_stride={stride}"
        );
        let sequence = Sequence { blocks: vec![2, 0, 1], strided };
        let read = job(&text).workload;
        assert_eq!(read.random_distribution, RandomDistribution::Sequence(sequence));
        let options = options_of(&read).into_iter().map(|(key, value)| format!("{key}={value}\n"));
        assert_eq!(job(&options.collect::<String>()).workload.random_distribution, read.random_distribution);
    }
    for (options, words) in [
        ("zonemode=zoned", "not a kind of zones"),
        ("zonemode=zbd\nsize=8z", "nothing says how large"),
        ("zonemode=zbd\nzonesize=6k\nsize=1m", "multiple of bs"),
        ("zonemode=zbd\nzonesize=64k\nzonecapacity=128k\nsize=1m", "from bs to zonesize"),
        ("zonemode=zbd\nzonesize=64k\nzoneskip=64k\nsize=1m", "cannot be combined"),
        ("zonemode=zbd\nzonesize=64k\nbssplit=4k/50:8k/50\nsize=1m", "cannot be combined"),
        ("zonemode=zbd\nzonesize=64k\nrw=randtrim\nsize=1m", "resets a zone"),
        ("zonemode=zbd\nzonesize=64k\nfilename=a:b\nsize=1m", "of one drive"),
        ("zonemode=zbd\nzonesize=64k\nzone_reset_frequency=2\nsize=1m", "from 0 to 1"),
        ("zonemode=zbd\nzonesize=64k\nzone_reset_threshold=0.5\nsize=1m", "does nothing without"),
        ("zonemode=zbd\nzonesize=64k\nrecover_zbd_write_error=1\nsize=1m", "no second time"),
        ("max_open_zones=8\nsize=1m", "needs zonemode=zbd"),
        ("zonemode=strided\nsize=1m", "need a size"),
        ("zonesize=1m\nsize=1m", "there are no zones"),
        ("zonemode=strided\nzonesize=6k\nsize=1m", "multiple of bs"),
        ("zonemode=strided\nzonesize=2m\nsize=1m", "larger than size"),
        ("zonemode=strided\nzonesize=1m\nsize=4m\nbssplit=4k/50:8k/50", "cannot be combined"),
        ("zonemode=strided\nzonesize=1m\nsize=4m\nrw=write\nverify=crc32c", "stale from fresh"),
        ("dedupe_percentage=101\nsize=1m", "out of range"),
        ("dedupe_percentage=50\nsize=1m\nrw=write\nverify=crc32c", "unlike all others"),
        ("random_distribution=sequence:a\nrw=randread\nsize=1m", "not a block's number"),
    ] {
        let error = refusal(options);
        assert!(error.contains(words), "{options}: {error}");
    }
}

#[test]
fn page_faults_are_made_in_memory_that_each_copy_has_for_itself() {
    let text =
        "[a]\nioengine=page_fault\nrw=randrw\nsize=8*1024*$pagesize\nbs=$pagesize\nnumjobs=3\niodepth=8\n";
    let jobs = read(text).expect("reads");
    let page = storage::pages::page_bytes() as u64;
    assert_eq!(jobs.len(), 3);
    for job in &jobs {
        assert_eq!((job.act, job.workload.numjobs, job.workload.iodepth), (Some(Act::Fault), 1, 1));
        assert_eq!((job.workload.bs, job.file_bytes()), (page, Some(8192 * page)));
    }
    let of_range = job("ioengine=page_fault\nrw=write\nsize=64m\nbsrange=16k-1M\nblockalign=2M");
    assert_eq!(of_range.workload.bssplit.len(), 64);
    assert!(refusal("ioengine=page_fault").contains("add size=1g"));
    let refused = |options: &str| refusal(&format!("ioengine=page_fault\nsize=1m\n{options}"));
    assert!(refused("rw=trim").contains("page_fault reads and writes"));
    assert!(refused("offset=4k").contains("offset=4k"));
    assert!(refused("nrfiles=2").contains("nrfiles=2"));
    assert!(refused("filename=x\nnumjobs=2").contains("numjobs=2"));
    assert!(refused("fsync=1\nrw=write").contains("fsync=1"));
    assert!(refused("verify=md5\nrw=write").contains("verify=md5"));
    assert!(refusal("size=8k*$ncpus").contains("cannot be calculated"));
}
