//! Whole runs, small: the tasks are processes of this test program, in `task_process`.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use flashio::figures;
use flashio::run::{Config, Measured, run};
use flashio::{FlashioError, Way};
use ranks::Why;

/// Nothing takes this long unless it hangs.
const LONG: Duration = Duration::from_secs(120);

/// A task.
#[test]
fn task_process() {
    let Some(ranks) = ranks::local::join(Instant::now() + LONG).unwrap() else { return };
    if let Err(error) = flashio::task::serve(ranks) {
        println!("\n{error}");
    }
}

fn config(folder: &Path) -> Config {
    let tier = |name: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    Config {
        fast: tier("fast"),
        slow: tier("slow"),
        tasks: 2,
        matrix: 16,
        compute: Duration::from_millis(50),
        multiplications: None,
        every: 2,
        checkpoints: 2,
        checkpoint_bytes: 64 << 10,
        blocks: 1,
        timeout: LONG,
        seed: 1,
        keep: false,
        arguments: ["task_process", "--exact", "--nocapture", "--quiet"].map(Into::into).to_vec(),
        stop: Arc::new(AtomicBool::new(false)),
        listener: Arc::new(|_, _| {}),
        progress: |_, _| {},
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn is_empty(config: &Config) -> bool {
    [&config.fast, &config.slow].iter().all(|path| std::fs::read_dir(path).unwrap().next().is_none())
}

fn whole(measured: Measured) -> Measured {
    assert!(measured.ended.is_none(), "{:?}", measured.ended);
    measured
}

#[test]
fn each_way_is_run_in_each_block_and_every_drained_byte_is_compared() {
    let folder = folder();
    let config = Config { blocks: 2, ..config(folder.path()) };
    let measured = whole(run(&config, None).unwrap());
    for block in 0..2 {
        for way in Way::ALL {
            let of = |leg: &&flashio::record::Leg| leg.block == block && leg.way == way;
            assert_eq!(measured.legs.iter().filter(of).count(), 1, "block {block}, {}", way.label());
        }
    }
    let set = 2 * config.checkpoint_bytes;
    for leg in &measured.legs {
        let is_drained = leg.way == Way::Drained;
        assert_eq!(leg.checked_bytes, if is_drained { 2 * set } else { 0 });
        assert_eq!((leg.drain.is_some(), leg.restart.is_some()), (is_drained, is_drained));
        assert!(
            leg.checkpoints.iter().all(|one| one.tasks.len() == 2 && one.durable_s.is_some() == is_drained)
        );
        assert!(leg.run_s >= leg.compute_s().max(leg.io_s()) && leg.io_s() > 0.0, "{leg:?}");
        // The span of all writes is no shorter than any of them.
        for checkpoint in &leg.checkpoints {
            assert!(checkpoint.tasks.iter().all(|task| task.write_s <= checkpoint.write_s), "{checkpoint:?}");
        }
    }
    let drain = figures::drain(&measured.legs).unwrap();
    assert_eq!((drain.bytes, drain.checked_bytes), (4 * set, 4 * set));
    // The drain reads back the files, and a manifest beside them.
    assert!(drain.verified_bytes >= drain.bytes, "{drain:?}");
    let restart = figures::restart(&measured.legs).unwrap();
    assert!(
        restart.first_step_s >= restart.restored_s && restart.restored_s >= restart.started_s,
        "{restart:?}"
    );
    for pairs in measured.legs.iter().filter_map(|leg| Some(&leg.restart.as_ref()?.pairs)) {
        let order: Vec<bool> = pairs.iter().map(|pair| pair.restore_first).collect();
        assert_eq!(order, [true, false], "each comes first as often");
        assert!(pairs.iter().all(|pair| pair.restore_s > 0.0 && pair.read_s > 0.0), "{pairs:?}");
    }
    measured.remove().unwrap();
    assert!(is_empty(&config));
}

#[test]
fn what_is_kept_is_named_and_the_rest_is_gone() {
    let folder = folder();
    let config = Config { keep: true, ..config(folder.path()) };
    let [fast, slow] = whole(run(&config, None).unwrap()).kept.unwrap();
    let files = |directory: &Path| {
        let legs = std::fs::read_dir(directory).unwrap().map(|leg| leg.unwrap().path());
        legs.filter(|leg| leg.join("step-00000002/task-00002").is_file()).count()
    };
    assert_eq!((files(&fast), files(&slow)), (2, 2));
}

/// A byte of the first checkpoint's copy is changed as soon as it has its name, while the tasks compute on.
#[test]
fn a_wrong_block_on_the_slow_tier_is_named_with_task_step_and_offset() {
    let folder = folder();
    let config = Config { checkpoints: 3, compute: Duration::from_millis(500), ..config(folder.path()) };
    let (slow, done) = (config.slow.clone(), Arc::new(AtomicBool::new(false)));
    let over = Arc::clone(&done);
    let spoiler = std::thread::spawn(move || {
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            if let Some(file) = drained_file(&slow) {
                let mut byte = [0];
                file.read_exact_at(&mut byte, 8292).unwrap();
                return file.write_all_at(&[byte[0] ^ 4], 8292).unwrap();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let measured = run(&config, None).unwrap();
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    spoiler.join().unwrap();
    match &measured.ended {
        Some(FlashioError::Task(lost)) => {
            assert_eq!(lost.rank, 2);
            let Why::Failed(why) = &lost.why else { panic!("{lost}") };
            assert!(why.contains("the block at offset 8192 of task 2, step 1"), "{why}");
            assert!(why.ends_with("is damaged: its checksum is wrong"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    measured.remove().unwrap();
    assert!(is_empty(&config));
}

/// The second task's file of a first checkpoint that has a manifest beside it: one that was drained.
fn drained_file(slow: &Path) -> Option<std::fs::File> {
    let run = std::fs::read_dir(slow).ok()?.next()?.ok()?.path();
    for leg in std::fs::read_dir(run).ok()? {
        let step = leg.ok()?.path().join("step-00000001");
        if step.join(".flashwright-manifest").exists() {
            let path = step.join("task-00002");
            return std::fs::OpenOptions::new().read(true).write(true).open(path).ok();
        }
    }
    None
}

#[test]
fn a_stop_before_the_first_leg_measures_nothing_and_leaves_nothing() {
    let folder = folder();
    let config = config(folder.path());
    config.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(matches!(run(&config, None), Err(FlashioError::Interrupted)));
    assert!(is_empty(&config));
}

#[test]
fn values_that_make_no_sense_are_refused_with_their_flag() {
    let folder = folder();
    let refused = |change: fn(&mut Config), words: &str| {
        let mut config = config(folder.path());
        change(&mut config);
        let error = run(&config, None).map(drop).unwrap_err();
        assert!(error.to_string().starts_with(words), "{error}");
        assert!(error.hint().is_some() && error.class() == base::ErrorClass::Invalid);
        assert!(is_empty(&config));
    };
    refused(|config| config.checkpoint_bytes = 6144, "--checkpoint-size=6k: is not a multiple of 4 KiB");
    refused(
        |config| (config.matrix, config.compute) = (300, Duration::from_micros(1)),
        "--compute=1.00 µs: 2 iterations of one multiplication of matrices of 300 rows take",
    );
    refused(
        |config| config.matrix = 10_000_000,
        "--matrix=10000000: the matrices of all tasks take 4.26 PiB, and this host has",
    );
    refused(|config| config.tasks = 0, "--tasks=0: is not from 1 to 16777215");
    refused(|config| config.every = 1 << 24, "--every=16777216: is not from 1 to 16777215");
    refused(
        |config| (config.timeout, config.compute) = (Duration::from_secs(1), Duration::from_secs(1)),
        "--timeout=1.0 s: is less than twice the time of computing, 1.0 s",
    );
}
