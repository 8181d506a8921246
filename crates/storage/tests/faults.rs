//! Faults, planned one by one below the engines: each has the right outcome and nothing else has.
//!
//! What is checked each time: every request comes back exactly once; those that were not struck succeed
//! with their data; those that were carry operation, offset, length, device and cause; nothing is
//! counted as done that was not; and everything ends.

mod rig;

use std::sync::Arc;
use std::time::Instant;

use rig::{BLOCK, LONG, MIB, any_file, check_reads, config, errno, finish, lay, prepare_reads};
use storage::conformance::check_engine;
use storage::device::Device;
use storage::engine::{
    AnyEngine, Engine, EngineConfig, EngineError, IoEngine, IoUring, Libaio, Mmap, Op, Posixaio, Psync,
    RequestError, RequestFailure, availability_with_kernel, open_with_kernel,
};
use storage::fault::{Call, Effect, Fault, Faulty};

const DEPTH: u32 = 8;

fn fault(call: Call, after: u32, times: u32, effect: Effect) -> Fault {
    Fault { call, after, times, effect }
}

fn failing(call: Call, errno: i32, times: u32) -> Faulty {
    Faulty::new([fault(call, 0, times, Effect::Errno(errno))])
}

fn laid_file() -> Arc<dyn Device> {
    let device = any_file(MIB);
    lay(&*device, 64);
    device
}

/// Reads a queue full of blocks, and returns what failed.
fn reads(engine: &mut impl Engine) -> Vec<(u32, RequestFailure)> {
    prepare_reads(engine);
    let endings = finish(engine);
    check_reads(engine, endings)
}

/// The same on each engine; `make` makes a fresh plan for each.
fn on_each_engine(make: impl Fn() -> Faulty, check: impl Fn(&str, &Faulty, Vec<(u32, RequestFailure)>)) {
    let device = laid_file();
    let kernel = make();
    let mut ring = IoUring::with_kernel(kernel.clone(), Arc::clone(&device), &config(DEPTH)).unwrap();
    check("io_uring", &kernel, reads(&mut ring));
    let kernel = make();
    let polled = EngineConfig { sqthread_poll: true, ..config(DEPTH) };
    let mut ring = IoUring::with_kernel(kernel.clone(), Arc::clone(&device), &polled).unwrap();
    check("io_uring with sqthread_poll", &kernel, reads(&mut ring));
    let kernel = make();
    let mut native = Libaio::with_kernel(kernel.clone(), Arc::clone(&device), &config(DEPTH)).unwrap();
    check("libaio", &kernel, reads(&mut native));
    let kernel = make();
    let mut threads = Psync::with_kernel(kernel.clone(), Arc::clone(&device), &config(DEPTH)).unwrap();
    check("psync", &kernel, reads(&mut threads));
    let kernel = make();
    let mut library = Posixaio::with_kernel(kernel.clone(), Arc::clone(&device), &config(DEPTH)).unwrap();
    check("posixaio", &kernel, reads(&mut library));
    let kernel = make();
    let mut mapped = Mmap::with_kernel(kernel.clone(), Arc::clone(&device), &config(DEPTH)).unwrap();
    check("mmap", &kernel, reads(&mut mapped));
    // At depth 1 everything strikes the only request.
    let kernel = make();
    let mut single = Psync::with_kernel(kernel.clone(), device, &config(1)).unwrap();
    check("psync at depth 1", &kernel, reads(&mut single));
}

#[test]
fn requests_that_are_interrupted_or_put_off_are_made_again() {
    for number in [libc::EINTR, libc::EAGAIN] {
        for times in [1, 3, 200] {
            on_each_engine(
                || failing(Call::Completion, number, times),
                |engine, kernel, failures| {
                    assert!(failures.is_empty(), "{engine}: {failures:?}");
                    assert_eq!(kernel.fired(), times, "{engine}");
                },
            );
        }
    }
}

#[test]
fn what_is_made_again_is_counted() {
    let device = laid_file();
    let kernel = failing(Call::Completion, libc::EAGAIN, 3);
    let mut ring = IoUring::with_kernel(kernel, Arc::clone(&device), &config(DEPTH)).unwrap();
    assert_eq!((reads(&mut ring).len(), ring.retries()), (0, 3));
    let refused = Faulty::new([fault(Call::UringEnter, 0, 2, Effect::Errno(libc::EAGAIN))]);
    let mut ring = IoUring::with_kernel(refused, Arc::clone(&device), &config(DEPTH)).unwrap();
    assert_eq!((reads(&mut ring).len(), ring.retries()), (0, 2), "submissions are");
    let kernel = failing(Call::Completion, libc::EINTR, 3);
    let mut native = Libaio::with_kernel(kernel, Arc::clone(&device), &config(DEPTH)).unwrap();
    assert_eq!((reads(&mut native).len(), native.retries()), (0, 3));
    let refused = Faulty::new([fault(Call::IoSubmit, 0, 2, Effect::Errno(libc::EAGAIN))]);
    let mut native = Libaio::with_kernel(refused, Arc::clone(&device), &config(DEPTH)).unwrap();
    assert_eq!((reads(&mut native).len(), native.retries()), (0, 2), "submissions are");
    let kernel = failing(Call::Completion, libc::EAGAIN, 3);
    let mut threads = Psync::with_kernel(kernel, Arc::clone(&device), &config(DEPTH)).unwrap();
    assert_eq!((reads(&mut threads).len(), threads.retries()), (0, 3));
    let mut quiet = IoUring::with_kernel(Faulty::new([]), device, &config(DEPTH)).unwrap();
    assert_eq!((reads(&mut quiet).len(), quiet.retries()), (0, 0));
}

#[test]
fn requests_that_are_put_off_for_ever_fail_in_the_end() {
    on_each_engine(
        || failing(Call::Completion, libc::EAGAIN, u32::MAX),
        |engine, kernel, failures| {
            assert!(failures.iter().all(|(_, f)| errno(f) == Some(libc::EAGAIN)), "{engine}");
            // Each request was made once and then 1000 times again.
            assert_eq!(kernel.fired(), failures.len() as u32 * 1001, "{engine}");
        },
    );
}

#[test]
fn an_error_fails_the_request_that_met_it_and_no_other() {
    for number in [libc::EIO, libc::ENOSPC, libc::EINVAL, libc::ENOMEM, libc::EOPNOTSUPP, libc::ECANCELED] {
        on_each_engine(
            || failing(Call::Completion, number, 1),
            |engine, kernel, failures| {
                assert_eq!(kernel.fired(), 1, "{engine}");
                let [(_, failure)] = &failures[..] else { panic!("{engine}: {failures:?}") };
                assert_eq!(errno(failure), Some(number), "{engine}");
                assert_eq!(
                    failure.to_string(),
                    format!("read of 4096 bytes at offset {} of scratch", failure.offset)
                );
            },
        );
    }
}

#[test]
fn a_short_transfer_is_a_failure_that_says_how_short() {
    for bytes in [0, 1, 512, 4095] {
        on_each_engine(
            || Faulty::new([fault(Call::Completion, 0, 1, Effect::Short(bytes))]),
            |engine, _, failures| {
                let [(_, failure)] = &failures[..] else { panic!("{engine}: {failures:?}") };
                let RequestError::Short { transferred } = failure.cause else { panic!("{failure:?}") };
                assert_eq!(transferred, bytes as u64, "{engine}");
            },
        );
    }
}

#[test]
fn faults_of_the_third_request_are_the_third_requests() {
    // psync at depth 1 works in order, and so do the faults.
    let plan =
        [fault(Call::Pread, 2, 1, Effect::Errno(libc::EIO)), fault(Call::Pread, 4, 1, Effect::Short(100))];
    let kernel = Faulty::new(plan);
    let mut engine = Psync::with_kernel(kernel, laid_file(), &config(1)).unwrap();
    let mut failed = Vec::new();
    for n in 0..8 {
        engine.prepare(0, Op::Read, n * u64::from(BLOCK), BLOCK);
        for failure in finish(&mut engine).into_iter().flatten().filter_map(Result::err) {
            assert_eq!(failure.offset, n * u64::from(BLOCK));
            failed.push((n, matches!(failure.cause, RequestError::Short { transferred: 100 })));
        }
    }
    assert_eq!(failed, [(2, false), (5, true)]);
}

#[test]
fn failing_calls_of_threads_are_the_requests_failures() {
    let device = laid_file();
    let calls = [
        (Call::Pread, Op::Read),
        (Call::Pwrite, Op::Write),
        (Call::Fdatasync, Op::SyncData),
        (Call::Fsync, Op::Sync),
    ];
    for (call, op) in calls {
        for depth in [1, 4] {
            for (number, succeeds) in [(libc::EINTR, true), (libc::EIO, false), (libc::ENOSPC, false)] {
                let kernel = failing(call, number, 1);
                let mut engine = Psync::with_kernel(kernel, Arc::clone(&device), &config(depth)).unwrap();
                let length = if op.is_sync() { 0 } else { BLOCK };
                engine.prepare(0, op, 8192, length);
                let ending = finish(&mut engine).swap_remove(0).expect("it came back");
                match ending {
                    Ok(()) => assert!(succeeds, "{op:?} with {number}"),
                    Err(failure) => {
                        assert!(!succeeds);
                        assert_eq!((failure.op, failure.offset, failure.length), (op, 8192, length));
                        assert_eq!(errno(&failure), Some(number));
                    }
                }
            }
        }
    }
}

#[test]
fn a_write_that_is_cut_short_is_not_counted_as_done() {
    let device = any_file(MIB);
    for depth in [1, 4] {
        let kernel = Faulty::new([fault(Call::Pwrite, 0, 1, Effect::Short(512))]);
        let mut engine = Psync::with_kernel(kernel, Arc::clone(&device), &config(depth)).unwrap();
        engine.prepare(0, Op::Write, 0, BLOCK);
        let failure = finish(&mut engine).swap_remove(0).unwrap().expect_err("is short");
        assert!(matches!(failure.cause, RequestError::Short { transferred: 512 }), "{failure:?}");
        assert_eq!(failure.op, Op::Write);
    }
}

// ---- io_uring -------------------------------------------------------------------------------------

const CQSIZE: u32 = 1 << 3;
const SUBMIT_ALL: u32 = 1 << 7;
const COOP_TASKRUN: u32 = 1 << 8;
const SINGLE_ISSUER: u32 = 1 << 12;
const DEFER_TASKRUN: u32 = 1 << 13;
const NO_SQARRAY: u32 = 1 << 16;
const SQPOLL: u32 = 1 << 1;

#[test]
fn setup_leaves_out_flags_newest_first_and_every_such_ring_conforms() {
    let device = laid_file();
    let deferred = CQSIZE | SUBMIT_ALL | SINGLE_ISSUER | COOP_TASKRUN | DEFER_TASKRUN;
    let plain = [deferred | NO_SQARRAY, deferred, CQSIZE | SUBMIT_ALL | COOP_TASKRUN, CQSIZE];
    let issuer = CQSIZE | SQPOLL | SUBMIT_ALL | SINGLE_ISSUER;
    let polled = [issuer | NO_SQARRAY, issuer, CQSIZE | SQPOLL];
    for (sqthread_poll, attempts) in [(false, &plain[..]), (true, &polled[..])] {
        let config = EngineConfig { sqthread_poll, ..config(DEPTH) };
        for refused in 0..attempts.len() {
            let kernel = failing(Call::UringSetup, libc::EINVAL, refused as u32);
            let mut engine = IoUring::with_kernel(kernel.clone(), Arc::clone(&device), &config).unwrap();
            assert_eq!(kernel.setup_flags(), attempts[..=refused]);
            let has = |word: &str| engine.features().iter().any(|feature| feature == word);
            let last = attempts[refused];
            assert_eq!(has("no_sqarray"), last & NO_SQARRAY != 0);
            assert_eq!(has("single_issuer"), last & SINGLE_ISSUER != 0);
            assert_eq!(has("defer_taskrun"), last & DEFER_TASKRUN != 0);
            assert_eq!(has("coop_taskrun"), last & COOP_TASKRUN != 0);
            assert_eq!(has("sqpoll"), sqthread_poll);
            assert!(reads(&mut engine).is_empty());
            check_engine(&device, rig::seed(), |device, config| {
                let config = EngineConfig { sqthread_poll, ..config.clone() };
                IoUring::with_kernel(failing(Call::UringSetup, libc::EINVAL, refused as u32), device, &config)
            });
            lay(&*device, DEPTH);
        }
        let kernel = failing(Call::UringSetup, libc::EINVAL, u32::MAX);
        let error = IoUring::with_kernel(kernel.clone(), Arc::clone(&device), &config).expect_err("no ring");
        assert_eq!(kernel.setup_flags(), attempts, "it gives up after the last");
        assert_eq!((error.operation, error.source.raw_os_error()), ("io_uring_setup", Some(libc::EINVAL)));
    }
}

#[test]
fn setup_that_is_forbidden_is_not_tried_again() {
    for number in [libc::EPERM, libc::ENOSYS, libc::ENOMEM, libc::EMFILE, libc::ENFILE] {
        let kernel = failing(Call::UringSetup, number, 1);
        let error = IoUring::with_kernel(kernel.clone(), laid_file(), &config(1)).expect_err("is forbidden");
        assert_eq!(error.to_string(), "io_uring: io_uring_setup");
        assert_eq!(error.source.raw_os_error(), Some(number));
        assert_eq!(kernel.setup_flags().len(), 1);
    }
}

/// The file, the buffers and the ring are registered in this order; each may be refused, and all.
#[test]
fn registration_is_a_help_and_no_condition() {
    let device = laid_file();
    let words =
        [("registered file", "plain file"), ("fixed buffers", "plain buffers"), ("registered ring", "")];
    for number in [libc::ENOMEM, libc::EPERM, libc::EAGAIN, libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP] {
        for (after, times) in [(0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (0, 3)] {
            let plan = || Faulty::new([fault(Call::UringRegister, after, times, Effect::Errno(number))]);
            let kernel = plan();
            let mut engine =
                IoUring::with_kernel(kernel.clone(), Arc::clone(&device), &config(DEPTH)).unwrap();
            assert_eq!(kernel.fired(), times);
            for (n, (with, without)) in (0..).zip(words) {
                let refused = (after..after + times).contains(&n);
                let has = |word: &str| engine.features().iter().any(|feature| feature.starts_with(word));
                assert_eq!(has(with), !refused, "{with}: {:?}", engine.features());
                assert!(!refused || without.is_empty() || has(without), "{without}: {:?}", engine.features());
            }
            assert!(reads(&mut engine).is_empty());
            if number == libc::ENOMEM {
                check_engine(&device, rig::seed(), |device, config| {
                    IoUring::with_kernel(plan(), device, config)
                });
                lay(&*device, DEPTH);
            }
        }
    }
}

#[test]
fn an_interrupted_or_refused_enter_loses_nothing() {
    let device = laid_file();
    for number in [libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ETIME] {
        for (after, times) in [(0, 1), (1, 1), (0, 20), (1, 20)] {
            for sqthread_poll in [false, true] {
                let kernel = Faulty::new([fault(Call::UringEnter, after, times, Effect::Errno(number))]);
                let config = EngineConfig { sqthread_poll, ..config(DEPTH) };
                let mut engine = IoUring::with_kernel(kernel.clone(), Arc::clone(&device), &config).unwrap();
                for _ in 0..4 {
                    assert!(reads(&mut engine).is_empty());
                }
                assert!(sqthread_poll || kernel.fired() > 0, "the fault struck");
                assert_eq!(kernel.refusals(), []);
            }
        }
    }
}

#[test]
fn entries_that_the_kernel_leaves_are_handed_over_later() {
    let device = laid_file();
    for (taken, times) in [(1, 1), (1, 7), (3, 2), (0, 5), (1, 1000)] {
        let kernel = Faulty::new([fault(Call::UringEnter, 0, times, Effect::Short(taken))]);
        let mut engine = IoUring::with_kernel(kernel.clone(), Arc::clone(&device), &config(DEPTH)).unwrap();
        for _ in 0..4 {
            assert!(reads(&mut engine).is_empty());
        }
        assert!(kernel.fired() > 0);
    }
    check_engine(&device, rig::seed(), |device, config| {
        let kernel = Faulty::new([fault(Call::UringEnter, 0, u32::MAX, Effect::Short(2))]);
        IoUring::with_kernel(kernel, device, config)
    });
}

/// Ten seconds of a kernel that takes nothing is an error; meanwhile every call ends soon.
#[test]
fn entries_that_are_never_taken_end_in_an_error() {
    let kernel = failing(Call::UringEnter, libc::EBUSY, u32::MAX);
    let mut engine = IoUring::with_kernel(kernel, laid_file(), &config(DEPTH)).unwrap();
    prepare_reads(&mut engine);
    let started = Instant::now();
    let error: EngineError = loop {
        let call = Instant::now();
        if let Err(error) = engine.submit(1, None) {
            break error;
        }
        assert_eq!(engine.reap(|_, _| {}), 0);
        assert!(started.elapsed() < LONG && call.elapsed() < LONG / 10);
    };
    assert_eq!((error.operation, error.source.raw_os_error()), ("io_uring_enter", Some(libc::EBUSY)));
    assert_eq!(engine.in_flight(), DEPTH, "they are still the engine's to answer for");
    drop(engine);
}

#[test]
fn a_ring_that_breaks_says_so_and_can_be_dropped() {
    for number in [libc::EFAULT, libc::ENXIO, libc::EOPNOTSUPP, libc::EBADF] {
        let kernel = Faulty::new([fault(Call::UringEnter, 1, 1, Effect::Errno(number))]);
        let mut engine = IoUring::with_kernel(kernel, laid_file(), &config(DEPTH)).unwrap();
        assert!(engine.submit(0, None).is_ok());
        prepare_reads(&mut engine);
        let error = engine.submit(DEPTH, None).expect_err("the ring is broken");
        assert_eq!(error.source.raw_os_error(), Some(number));
        // It was broken for one call only: nothing was lost by it.
        let endings = finish(&mut engine);
        assert!(check_reads(&engine, endings).is_empty());
    }
}

// ---- libaio ---------------------------------------------------------------------------------------

#[test]
fn a_context_that_cannot_be_had_is_an_error() {
    for number in [libc::EAGAIN, libc::ENOMEM, libc::ENOSYS, libc::EPERM] {
        let kernel = failing(Call::IoSetup, number, 1);
        let error = Libaio::with_kernel(kernel, laid_file(), &config(1)).expect_err("no context");
        assert_eq!(error.to_string(), "libaio: io_setup");
        assert_eq!(error.source.raw_os_error(), Some(number));
    }
}

#[test]
fn requests_that_io_submit_leaves_are_handed_over_later() {
    let device = laid_file();
    let errno = Effect::Errno;
    for (effect, times) in [
        (errno(libc::EINTR), 3),
        (errno(libc::EAGAIN), 3),
        (errno(libc::EAGAIN), 100),
        (Effect::Short(1), 1),
        (Effect::Short(1), 1000),
        (Effect::Short(3), 2),
        (Effect::Short(0), 20),
    ] {
        for after in [0, 1, 2] {
            let kernel = Faulty::new([fault(Call::IoSubmit, after, times, effect)]);
            let mut engine =
                Libaio::with_kernel(kernel.clone(), Arc::clone(&device), &config(DEPTH)).unwrap();
            for _ in 0..4 {
                assert!(reads(&mut engine).is_empty(), "{effect:?}");
            }
            assert!(kernel.fired() > 0);
            assert_eq!(kernel.refusals(), []);
        }
    }
    check_engine(&device, rig::seed(), |device, config| {
        let every = [
            fault(Call::IoSubmit, 0, u32::MAX, Effect::Short(2)),
            fault(Call::IoGetevents, 0, u32::MAX, Effect::Short(1)),
        ];
        Libaio::with_kernel(Faulty::new(every), device, config)
    });
}

#[test]
fn a_request_that_io_submit_refuses_fails_alone() {
    for number in
        [libc::EINVAL, libc::EBADF, libc::EOPNOTSUPP, libc::EIO, libc::ENOMEM, libc::EPERM, libc::EFAULT]
    {
        let kernel = failing(Call::IoSubmit, number, 2);
        let mut engine = Libaio::with_kernel(kernel, laid_file(), &config(DEPTH)).unwrap();
        let failures = reads(&mut engine);
        let slots: Vec<u32> = failures.iter().map(|(slot, _)| *slot).collect();
        assert_eq!(slots, [0, 1], "the first of the list is at fault, twice");
        assert!(failures.iter().all(|(_, failure)| errno(failure) == Some(number)));
    }
}

#[test]
fn a_flush_that_cannot_be_asynchronous_is_made_plainly() {
    for (number, plain, succeeds) in [
        (libc::EINVAL, 0, true),
        (libc::EOPNOTSUPP, 0, true),
        (libc::EINVAL, 1, false),
        (libc::EIO, 0, false),
    ] {
        let plan = [
            fault(Call::IoSubmit, 0, 1, Effect::Errno(number)),
            fault(Call::Fdatasync, 0, plain, Effect::Errno(libc::EIO)),
        ];
        let mut engine = Libaio::with_kernel(Faulty::new(plan), laid_file(), &config(2)).unwrap();
        engine.prepare(0, Op::SyncData, 0, 0);
        let ending = finish(&mut engine).swap_remove(0).expect("it came back");
        assert_eq!(ending.is_ok(), succeeds, "{ending:?}");
        if let Err(failure) = ending {
            assert_eq!((failure.op, errno(&failure)), (Op::SyncData, Some(libc::EIO)));
        }
    }
}

#[test]
fn a_submission_that_is_put_off_for_ever_ends_in_an_error_and_nothing_is_made_twice() {
    for effect in [
        Effect::Errno(libc::EAGAIN),
        Effect::Errno(libc::EINTR),
        Effect::Short(0),
        Effect::Errno(libc::ENOSYS),
    ] {
        // The first two of the list go through.
        let plan =
            [fault(Call::IoSubmit, 0, 1, Effect::Short(2)), fault(Call::IoSubmit, 0, u32::MAX, effect)];
        let kernel = Faulty::new(plan);
        let mut engine = Libaio::with_kernel(kernel.clone(), laid_file(), &config(DEPTH)).unwrap();
        prepare_reads(&mut engine);
        let mut done = [0; DEPTH as usize];
        let started = Instant::now();
        let error = loop {
            assert!(started.elapsed() < LONG);
            let result = engine.submit(1, None);
            engine.reap(|slot, ending| {
                ending.expect("what was taken succeeds");
                done[slot as usize] += 1;
            });
            if let Err(error) = result {
                break error;
            }
        };
        assert_eq!(error.operation, "io_submit");
        engine.submit(0, None).err();
        engine.reap(|slot, _| done[slot as usize] += 1);
        assert_eq!(done, [1, 1, 0, 0, 0, 0, 0, 0], "the two that were taken came back once");
        assert_eq!(engine.in_flight(), DEPTH - 2);
        drop(engine);
        assert_eq!(kernel.refusals(), []);
    }
}

#[test]
fn waiting_for_events_survives_interruptions_and_reports_the_rest() {
    let device = laid_file();
    for (effect, times) in [(Effect::Errno(libc::EINTR), 20), (Effect::Short(1), 100), (Effect::Short(0), 5)]
    {
        let kernel = Faulty::new([fault(Call::IoGetevents, 0, times, effect)]);
        let mut engine = Libaio::with_kernel(kernel.clone(), Arc::clone(&device), &config(DEPTH)).unwrap();
        for _ in 0..4 {
            assert!(reads(&mut engine).is_empty());
        }
        assert!(kernel.fired() > 0);
    }
    let kernel = failing(Call::IoGetevents, libc::EFAULT, u32::MAX);
    let mut engine = Libaio::with_kernel(kernel.clone(), device, &config(DEPTH)).unwrap();
    prepare_reads(&mut engine);
    let error = engine.submit(1, None).expect_err("no events");
    assert_eq!((error.operation, error.source.raw_os_error()), ("io_getevents", Some(libc::EFAULT)));
    drop(engine);
    assert_eq!(kernel.refusals(), [], "the context is destroyed all the same");
}

// ---- auto -----------------------------------------------------------------------------------------

fn opened(kernel: &Faulty) -> (&'static str, Option<String>) {
    let (engine, fallback) =
        open_with_kernel(kernel, IoEngine::Auto, &laid_file(), &config(2)).expect("something opens");
    let name = storage::on_engine!(engine, mut engine => {
        assert!(reads(&mut engine).is_empty());
        engine.name()
    });
    (name, fallback)
}

#[test]
fn auto_steps_down_one_engine_at_a_time_and_says_why() {
    assert_eq!(opened(&Faulty::default()), ("io_uring", None));
    for (number, reason) in [
        (libc::ENOSYS, "this kernel has none"),
        (libc::EPERM, "seccomp"),
        (libc::ENOMEM, "RLIMIT_MEMLOCK"),
        (libc::EMFILE, "io_uring_setup: Too many open files"),
    ] {
        let kernel = failing(Call::UringSetup, number, u32::MAX);
        let (name, fallback) = opened(&kernel);
        let said = fallback.expect("a reason");
        assert_eq!(name, "libaio");
        // Where the machine really forbids it, the setting is named instead.
        assert!(said.contains(reason) || said.contains("kernel.io_uring_disabled"), "{said}");
        let [(_, ring), (_, native), (_, threads)] = availability_with_kernel(&kernel);
        assert_eq!(ring.expect_err("is refused"), said);
        assert!(native.is_ok() && threads.is_ok());
    }
    let kernel = Faulty::new([
        fault(Call::UringSetup, 0, u32::MAX, Effect::Errno(libc::ENOSYS)),
        fault(Call::IoSetup, 0, u32::MAX, Effect::Errno(libc::EAGAIN)),
    ]);
    let (name, fallback) = opened(&kernel);
    assert_eq!(name, "psync");
    let said = fallback.expect("two reasons");
    assert!(said.starts_with("io_uring: this kernel") && said.contains("; libaio: fs.aio-max-nr"), "{said}");
    let [_, (_, native), _] = availability_with_kernel(&kernel);
    assert!(native.is_err_and(|reason| said.ends_with(&reason)));
}

#[test]
fn an_engine_that_was_asked_for_by_name_is_not_replaced() {
    let kernel = Faulty::new([
        fault(Call::UringSetup, 0, u32::MAX, Effect::Errno(libc::EPERM)),
        fault(Call::IoSetup, 0, u32::MAX, Effect::Errno(libc::ENOSYS)),
    ]);
    for (choice, engine) in [(IoEngine::IoUring, "io_uring"), (IoEngine::Libaio, "libaio")] {
        let error = open_with_kernel(&kernel, choice, &laid_file(), &config(2)).expect_err("is refused");
        assert_eq!(error.engine, engine);
    }
    let (engine, fallback) = open_with_kernel(&kernel, IoEngine::Psync, &laid_file(), &config(2)).unwrap();
    assert!(matches!(engine, AnyEngine::Psync(_)) && fallback.is_none());
}

#[test]
fn auto_ends_where_no_engine_would_do() {
    for (depth, slot_bytes, word) in [(0, 4096, "iodepth=0"), (1, 0, "bs=0"), (32_768, 1 << 30, "32 TiB")] {
        let kernel = Faulty::default();
        let config = EngineConfig { slot_bytes, ..config(depth) };
        let error = open_with_kernel(&kernel, IoEngine::Auto, &laid_file(), &config).expect_err("is wrong");
        assert!(error.source.to_string().contains(word), "{}", error.source);
        assert_eq!(error.engine, "io_uring", "the others were not tried");
    }
}

fn library(kernel: &Faulty, device: &Arc<dyn Device>) -> Posixaio<Faulty> {
    Posixaio::with_kernel(kernel.clone(), Arc::clone(device), &config(DEPTH)).expect("opens")
}

#[test]
fn what_the_c_library_has_no_room_for_is_handed_over_again_and_counted() {
    let device = laid_file();
    // With none under way, and with some.
    for after in [0, 3] {
        let kernel = Faulty::new([fault(Call::AioBegin, after, 5, Effect::Errno(libc::EAGAIN))]);
        let mut engine = library(&kernel, &device);
        assert_eq!(reads(&mut engine).len(), 0);
        assert_eq!((kernel.fired(), engine.retries()), (5, 5), "after {after}");
    }
}

#[test]
fn a_c_library_that_takes_nothing_is_an_error_of_the_engine_in_the_end() {
    let device = laid_file();
    let kernel = failing(Call::AioBegin, libc::EAGAIN, u32::MAX);
    let mut engine = library(&kernel, &device);
    prepare_reads(&mut engine);
    let started = Instant::now();
    let error = engine.submit(1, None).expect_err("it takes nothing");
    assert!(error.source.raw_os_error() == Some(libc::EAGAIN) && started.elapsed() < LONG, "{error:?}");
}

#[test]
fn a_request_that_the_c_library_refuses_fails_by_itself() {
    let device = laid_file();
    let mut engine = library(&failing(Call::AioBegin, libc::EINVAL, 1), &device);
    let failures = reads(&mut engine);
    assert!(matches!(&failures[..], [(_, failure)] if errno(failure) == Some(libc::EINVAL)), "{failures:?}");
}

#[test]
fn a_signal_ends_the_wait_for_the_c_library_and_no_request() {
    let device = laid_file();
    // As if nothing were over yet, so that it is waited.
    let begun = fault(Call::AioResult, 0, DEPTH, Effect::Errno(libc::EINPROGRESS));
    let kernel = Faulty::new([begun, fault(Call::AioSuspend, 0, 1, Effect::Errno(libc::EINTR))]);
    let mut engine = library(&kernel, &device);
    prepare_reads(&mut engine);
    engine.submit(DEPTH, None).expect("is interrupted");
    assert_eq!(kernel.fired(), DEPTH + 1);
    let endings = finish(&mut engine);
    assert_eq!(check_reads(&engine, endings).len(), 0);
}

#[test]
fn what_a_c_library_that_no_longer_answers_has_is_given_up_with_the_device() {
    let device = laid_file();
    let under_way = fault(Call::AioResult, 0, u32::MAX, Effect::Errno(libc::EINPROGRESS));
    let kernel = Faulty::new([under_way, fault(Call::AioSuspend, 0, u32::MAX, Effect::Errno(libc::EINVAL))]);
    let mut engine = library(&kernel, &device);
    prepare_reads(&mut engine);
    assert_eq!(engine.submit(1, None).expect_err("it does not answer").operation, "aio_suspend");
    let with_engine = Arc::strong_count(&device);
    drop(engine);
    // Whatever keeps others out of the device stays, for the request may still be made.
    assert_eq!(Arc::strong_count(&device), with_engine);
    let mut healthy = library(&Faulty::new([]), &device);
    assert_eq!(reads(&mut healthy).len(), 0);
    let with_engine = Arc::strong_count(&device);
    drop(healthy);
    assert_eq!(Arc::strong_count(&device), with_engine - 1);
}
