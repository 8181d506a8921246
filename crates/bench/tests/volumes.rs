//! Runs on stripes and on separate devices: who gets which part of the load, and what the record says of it.

use std::path::Path;
use std::time::Duration;

use bench::problem::{ErrorClass, Problem};
use bench::target::{BenchTarget, TargetOptions};
use bench::{Outcome, RunOptions};
use measure::WarningCode;
use measure::record::RunRecord;
use measure::workload::{IoEngine, Rw, Verify, Workload};
use volume::{DeviceSpec, NewVolume};

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// `file:…` specs of files in a directory, joined by commas.
fn files(directory: &Path, count: usize, size: &str) -> String {
    let spec = |n| format!("file:{}/member{n}?size={size}", directory.display());
    (0..count).map(spec).collect::<Vec<_>>().join(",")
}

fn target(spec: &str) -> BenchTarget {
    BenchTarget::new(spec, TargetOptions::default()).expect("a spec")
}

fn run(target: &mut BenchTarget, workload: &Workload) -> Result<RunRecord, Problem> {
    let Outcome { mut records, interrupted, .. } = target.run_once(workload, RunOptions::default())?;
    assert!(!interrupted && records.len() == 1);
    Ok(records.remove(0))
}

/// Buffered, so that it runs on every file system.
fn workload(rw: Rw) -> Workload {
    Workload { rw, bs: 4096, iodepth: 8, direct: false, ..Workload::default() }
}

#[test]
fn separate_devices_are_each_driven_by_jobs_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut target = target(&format!("separate:{}", files(folder.path(), 3, "2m")));
    for (numjobs, ioengine) in [(1, IoEngine::Auto), (2, IoEngine::Libaio), (2, IoEngine::Psync)] {
        let record = run(&mut target, &Workload { numjobs, ioengine, ..workload(Rw::Write) }).expect("runs");
        assert_eq!(record.jobs.len(), 3 * numjobs as usize);
        assert_eq!(record.total.write_bytes, 6 * MIB, "each device once");
        assert_eq!((record.target.kind.as_str(), record.target.size_bytes), ("separate", 6 * MIB));
        let said = |name: &str| record.layout.get(name).map(String::as_str);
        assert_eq!((said("layout"), said("width")), (Some("separate"), Some("3")));
        assert_eq!((said("separate.depth_per_drive"), said("chunk")), (Some("2 or 3"), None));
    }
    for member in 0..3 {
        let bytes = std::fs::read(folder.path().join(format!("member{member}"))).unwrap();
        assert!(bytes.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)), "member {member}");
    }
    let record = run(&mut target, &workload(Rw::RandRead)).expect("what was written is read");
    assert_eq!(record.total.read_bytes, 6 * MIB);
}

#[test]
fn size_is_divided_among_separate_devices_and_offset_holds_on_each() {
    let folder = tempfile::tempdir().unwrap();
    let mut target = target(&format!("separate:{}", files(folder.path(), 2, "1m")));
    let part = Workload { size: Some(256 * KIB), offset: 512 * KIB, ..workload(Rw::Write) };
    let record = run(&mut target, &part).expect("runs");
    assert_eq!(record.total.write_bytes, 256 * KIB);
    for member in 0..2 {
        let bytes = std::fs::read(folder.path().join(format!("member{member}"))).unwrap();
        let written: Vec<usize> =
            (0..256).filter(|b| bytes[b * 4096..][..4096].iter().any(|x| *x != 0)).collect();
        assert_eq!(written, (128..160).collect::<Vec<_>>());
    }
    let record = run(&mut target, &Workload { rw: Rw::Read, ..part }).expect("that part was written");
    assert_eq!(record.total.read_bytes, 256 * KIB);
}

#[test]
fn a_rate_is_divided_among_separate_devices() {
    let mut target = target("separate:mem:1m,mem:1m,mem:1m,mem:1m");
    let limited = Workload {
        rate_iops: Some(402),
        runtime: Some(Duration::from_millis(500)),
        time_based: true,
        ..workload(Rw::RandRead)
    };
    let record = run(&mut target, &limited).expect("runs");
    assert_eq!(record.jobs.len(), 4);
    // The open loop starts no request before it is due, and each job's first is due when it starts.
    let due = 402 * record.total.elapsed_ns / 1_000_000_000 + 4;
    assert!(record.total.ios <= due, "{} of at most {due}", record.total.ios);
    let little = Workload { rate_iops: Some(3), ..limited };
    let problem = run(&mut target, &little).expect_err("one device would get nothing");
    assert_eq!(problem.class(), ErrorClass::Invalid);
    assert!(problem.to_string().contains("rate_iops=3"), "{problem}");
}

#[test]
fn more_threads_than_can_be_are_refused() {
    let mut target = target("separate:mem:1m,mem:1m,mem:1m");
    let problem = run(&mut target, &Workload { numjobs: 2000, bs: 512, ..workload(Rw::RandRead) });
    let problem = problem.expect_err("6000 threads");
    assert_eq!(problem.class(), ErrorClass::Invalid);
    assert!(problem.to_string().contains("numjobs=2000"), "{problem}");
}

#[test]
fn what_is_written_to_volumes_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    for (n, shape) in ["stripe(chunk=12k)", "separate"].into_iter().enumerate() {
        let place = folder.path().join(n.to_string());
        std::fs::create_dir(&place).unwrap();
        let mut target = target(&format!("{shape}:{}", files(&place, 3, "600k")));
        // Blocks that lie across chunks, and jobs that share them.
        for (rw, bs, numjobs) in [(Rw::RandWrite, 4096, 1), (Rw::Write, 32 * KIB, 2)] {
            let verify = Some(Verify::Crc32c);
            let checked = Workload { bs, numjobs, verify, ..workload(rw) };
            let record = run(&mut target, &checked).expect("every block is as it was written");
            assert!(record.verified_blocks >= 1500 * KIB / bs, "{} of {bs}", record.verified_blocks);
            assert!(!record.has_warning(WarningCode::VerifyPartial));
        }
    }
}

#[test]
fn a_volume_of_files_is_written_directly_and_through_the_page_cache_by_one_target() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let members = files(folder.path(), 2, "4m");
    let new = NewVolume { name: "both".to_owned(), chunk: 64 << 10, checksums: None };
    volume::create(&DeviceSpec::parse(&format!("volume:{members}")).unwrap(), &new, &[]).unwrap();
    let named =
        members.split(',').map(|member| member.trim_start_matches("file:").split('?').next().unwrap());
    let named: Vec<_> = named.collect();
    let options = TargetOptions { destroy: named.iter().map(Into::into).collect(), ..Default::default() };
    let mut target = BenchTarget::new(&format!("volume:{}", named.join(",")), options).expect("a spec");
    for direct in [true, false, true] {
        run(&mut target, &Workload { direct, ..workload(Rw::Write) }).expect("nobody else has it open");
    }
}

#[test]
fn a_stripes_record_tells_how_it_is_made_and_shows_each_members_devices() {
    let folder = tempfile::tempdir().unwrap();
    let mut target = target(&format!("stripe(chunk=16k):{}", files(folder.path(), 4, "1m")));
    let record = run(&mut target, &Workload { end_fsync: true, ..workload(Rw::Write) }).expect("runs");
    assert_eq!((record.target.kind.as_str(), record.target.size_bytes), ("stripe", 4 * MIB));
    let said = |name: &str| record.layout.get(name).map(String::as_str);
    assert_eq!((said("layout"), said("chunk"), said("width")), (Some("stripe"), Some("16k"), Some("4")));
    assert_eq!((record.jobs.len(), record.total.write_bytes), (1, 4 * MIB));
    // All members are on one file system, and its devices stand in the record once.
    let mut devices = record.target.block_devices.clone();
    devices.sort_unstable();
    devices.dedup();
    assert_eq!(devices.len(), record.target.block_devices.len());
    assert!(record.target.filesystem.is_some());
}

#[test]
fn a_stripe_of_memory_is_memory() {
    let mut target = target("stripe:mem:1m,mem:1m");
    run(&mut target, &workload(Rw::Write)).expect("writes");
    let record = run(&mut target, &workload(Rw::RandRead)).expect("its contents live on");
    assert_eq!(record.engine.used, "memory");
    assert!(record.has_warning(WarningCode::Virtual) && !record.has_warning(WarningCode::Unwatched));
    assert!(!record.has_warning(WarningCode::RepeatedData), "{:#?}", record.warnings);
}

#[test]
fn holes_in_one_member_are_refused_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    for (n, shape) in ["stripe(chunk=64k)", "separate"].into_iter().enumerate() {
        let place = folder.path().join(n.to_string());
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("written"), vec![7_u8; 256 << 10]).unwrap();
        std::fs::File::create(place.join("holes")).unwrap().set_len(256 << 10).unwrap();
        let spec = format!("{shape}:{0}/written,{0}/holes", place.display());
        match run(&mut target(&spec), &workload(Rw::RandRead)) {
            Ok(record) => eprintln!("SKIP holes are not told here: {:?}", record.target.filesystem),
            Err(problem) => {
                assert_eq!(problem.class(), ErrorClass::Refused);
                assert!(problem.to_string().contains("/holes:"), "{problem}");
            }
        }
    }
}

#[test]
fn requests_that_a_member_cannot_take_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut target = target(&format!("stripe:{}", files(folder.path(), 2, "1m")));
    let odd = Workload { bs: 1000, direct: true, ..workload(Rw::Write) };
    let problem = run(&mut target, &odd).expect_err("no block is 1000 bytes");
    assert_eq!(problem.class(), ErrorClass::Invalid, "{problem}");
}
