//! Properties of the job-file reader, and agreement with the installed fio.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use fio::{JobFile, keys, options_of};
use measure::Workload;
use measure::workload::{DataPattern, IoEngine, RandomDistribution, RateProcess, Rw, SizeShare, Verify};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

fn parse(text: &str) -> Result<JobFile, fio::JobFileError> {
    JobFile::parse(text, Path::new("p.fio"), &|name| Some(format!("<{name}>")))
}

/// What an error must have, whatever it is about.
fn is_helpful(error: &fio::JobFileError) -> bool {
    !error.hint().is_empty() && error.to_string().starts_with(['p', 'c'])
}

fn key() -> impl Strategy<Value = String> {
    let names: Vec<&str> =
        keys().flat_map(|k| std::iter::once(k.name).chain(k.aliases.iter().copied())).collect();
    prop_oneof![
        6 => proptest::sample::select(names).prop_map(str::to_owned),
        1 => "[a-z_$=-]{0,12}",
    ]
}

fn value() -> impl Strategy<Value = String> {
    const LIKELY: &[&str] = &[
        "0",
        "1",
        "4k",
        "1g",
        "100%",
        "50%",
        "randrw",
        "io_uring",
        "libaio",
        "zipf:1.2",
        "4k/50:8k",
        "1,2,3",
        ",8k,",
        "10s",
        "1ms",
        "crc32c",
        "99:99.9",
        "18446744073709551615",
        "${HOME}",
        "4k-4k",
        "18446744073709551615p",
        "-1",
    ];
    prop_oneof![
        3 => proptest::sample::select(LIKELY).prop_map(str::to_owned),
        1 => "[0-9a-z.,:/%$+-]{0,10}",
        1 => "\\PC{0,8}",
    ]
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (key(), value()).prop_map(|(key, value)| format!("{key}={value}")),
        2 => key(),
        2 => "\\[[a-z]{0,6}\\]?",
        1 => Just("[global]".to_owned()),
        1 => "include \\PC{0,8}",
        1 => "\\PC{0,16}",
    ]
}

/// Workloads that have a spelling in fio's words and are theirs alone.
fn workloads() -> impl Strategy<Value = Workload> {
    let shape = (
        proptest::sample::select(&Rw::ALL[..]),
        prop_oneof![Just(512u64), Just(4096), Just(5000), Just(4 << 20)],
        proptest::bool::ANY,
        1u32..300,
        1u32..300,
        1u32..300,
        1u32..64,
        0u8..=100,
    );
    let time = (
        proptest::option::of((1u64..1_000_000_000, proptest::bool::ANY)),
        0u64..2_000_000,
        proptest::option::of(1u64 << 30..1 << 40),
        0u64..1 << 40,
        0u64..1 << 40,
        proptest::option::of((1u64..100_000, proptest::bool::ANY)),
        proptest::bool::ANY,
    );
    let rest = (
        prop_oneof![
            Just(RandomDistribution::Random),
            (0.1f64..0.9).prop_map(RandomDistribution::Pareto),
            (1.01f64..3.0).prop_map(RandomDistribution::Zipf),
        ],
        // fio reads seeds as signed.
        0..=i64::MAX as u64,
        proptest::option::of(proptest::sample::select(&Verify::ALL[..])),
        0u8..=100,
        proptest::sample::select(&[IoEngine::IoUring, IoEngine::Libaio, IoEngine::Psync][..]),
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        0u32..100,
    );
    (shape, time, rest).prop_map(|(shape, time, rest)| {
        let (rw, bs, split, iodepth, batch, min, numjobs, rwmixread) = shape;
        let (run, ramp, size, offset, increment, rate, poisson) = time;
        let (random_distribution, randseed, verify, compress, ioengine, flags, fdatasync) = rest;
        let (direct, norandommap, hipri, sqthread_poll, end_fsync) = flags;
        let iodepth = if ioengine == IoEngine::Psync { 1 } else { iodepth };
        // What compresses is not verified.
        let compress = if verify.is_some() { 0 } else { compress };
        let is_patterned = verify.is_none() && fdatasync % 5 == 1;
        let is_mix = matches!(rw, Rw::Rw | Rw::RandRw);
        let is_uring = ioengine == IoEngine::IoUring;
        // Whole hundreds divide among the directions of any mix.
        let rate = rate.map(|(n, bytes)| (n * 100, bytes));
        Workload {
            name: "p".into(),
            rw,
            bs,
            bssplit: if split {
                vec![SizeShare { bs: 4096, percent: 60 }, SizeShare { bs: 8192, percent: 40 }]
            } else {
                Vec::new()
            },
            write_bssplit: if split && is_mix && batch % 2 == 1 {
                vec![SizeShare { bs: 8192, percent: 100 }]
            } else {
                Vec::new()
            },
            iodepth,
            iodepth_batch: batch.min(iodepth),
            iodepth_batch_complete_min: min.min(iodepth),
            numjobs,
            rwmixread,
            rate_iops: rate.filter(|(_, bytes)| !bytes).map(|(n, _)| n),
            rate: rate.filter(|(_, bytes)| *bytes).map(|(n, _)| n),
            rate_process: if poisson { RateProcess::Poisson } else { RateProcess::Linear },
            runtime: run.map(|(us, _)| Duration::from_micros(us)),
            time_based: run.is_some_and(|(_, time_based)| time_based),
            ramp_time: Duration::from_micros(ramp),
            size,
            offset,
            offset_increment: Some(increment),
            norandommap: norandommap || random_distribution != RandomDistribution::Random,
            random_distribution,
            randseed,
            verify,
            verify_interval: verify.filter(|_| fdatasync % 2 == 1).map(|_| bs),
            verify_pattern: verify.filter(|_| fdatasync % 3 > 0).map(|_| pattern("0xdeadface\"abc\"%o-12")),
            verify_backlog: if verify.is_some() && rw.writes() { fdatasync / 4 } else { 0 },
            buffer_pattern: is_patterned.then(|| pattern("\"x y\"0x1")),
            buffer_compress_percentage: if is_patterned { 0 } else { compress },
            direct,
            ioengine,
            hipri: hipri && is_uring,
            sqthread_poll: sqthread_poll && is_uring,
            fdatasync,
            fsync: fdatasync / 2,
            loops: 1 + fdatasync % 3,
            number_ios: Some(u64::from(fdatasync)).filter(|n| *n > 0),
            thinktime: Duration::from_micros(if rate.is_some() { 0 } else { 7 * u64::from(compress) }),
            rw_step: if rw.is_random() { 0 } else { i64::from(compress) * 4096 - 8192 },
            percentage_random: if rw.is_random() { 100 - compress } else { 100 },
            end_fsync,
            ..Workload::default()
        }
    })
}

fn pattern(text: &str) -> DataPattern {
    text.parse().expect("a pattern")
}

/// A job file of one section with every option of `workload`.
fn job_file(workload: &Workload, filename: &str) -> String {
    let name = if workload.name.is_empty() { "job" } else { &workload.name };
    let mut text = format!("[{name}]\nfilename={}\n", filename.replace(':', "\\:"));
    for (key, value) in options_of(workload) {
        text += &format!("{key}={value}\n");
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_text_makes_the_reader_panic(text in "(\\PC|\n|\t|\r){0,200}") {
        if let Err(error) = parse(&text) {
            prop_assert!(is_helpful(&error), "{error:?}");
        }
    }

    #[test]
    fn no_likely_mistake_makes_the_reader_panic_and_each_is_explained(
        lines in proptest::collection::vec(line(), 0..12),
    ) {
        match parse(&format!("[job]\n{}", lines.join("\n"))) {
            Err(error) => prop_assert!(is_helpful(&error), "{error:?}"),
            Ok(file) => for job in file.jobs() {
                prop_assert_eq!(job.workload.validate(), Ok(()));
            },
        }
    }

    #[test]
    fn no_key_is_skipped(key in key(), value in value()) {
        // Whatever is accepted stands in the options that are reported.
        let line = format!("{key}={value}");
        let is_option = !line.contains(['#', ';', '[']) && !key.contains('=');
        if let Ok(file) = parse(&format!("[job]\n{line}"))
            && is_option
        {
            let spelled: Vec<_> = keys()
                .filter(|k| k.name == key.trim() || k.aliases.contains(&key.trim()))
                .map(|k| k.name.to_owned())
                .collect();
            prop_assert_eq!(spelled.len(), 1);
            let reported = file.jobs().next().map(|job| job.options[0].0.clone());
            prop_assert_eq!(reported, Some(spelled[0].clone()));
        }
    }

    #[test]
    fn a_printed_workload_reads_back(workload in workloads()) {
        prop_assume!(workload.validate().is_ok());
        let text = job_file(&workload, "/dev/disk/a:b");
        let file = match parse(&text) {
            Ok(file) => file,
            Err(error) => return Err(TestCaseError::fail(format!("{error}\n{text}"))),
        };
        let job = file.jobs().next().expect("one job");
        prop_assert_eq!(&job.workload, &workload, "{}", text);
        prop_assert_eq!(job.path.to_str(), Some("/dev/disk/a:b"));
    }
}

/// What is printed for fio, fio itself takes: `fio --parse-only`.
#[test]
fn the_installed_fio_accepts_what_is_printed() {
    if let Err(error) = Command::new("fio").arg("--version").output() {
        eprintln!("skipped: fio cannot be started ({error})");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("printed.fio");
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut tried = 0;
    while tried < 15 {
        let workload = workloads().new_tree(&mut runner).expect("a workload").current();
        // fio refuses a depth or rate in combinations that have nothing to do with spelling.
        if workload.validate().is_err() || workload.ioengine == IoEngine::IoUring {
            continue;
        }
        tried += 1;
        let text = job_file(&workload, "/dev/null");
        std::fs::write(&path, &text).expect("written");
        let output = Command::new("fio").arg("--parse-only").arg(&path).output().expect("fio runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !said.contains("Bad option"), "{said}\n{text}");
    }
}
