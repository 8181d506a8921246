//! Slow devices: time-outs end waits, and buffers stay where they are until the kernel is done with them.
//!
//! For io_uring the slow device is a pipe, whose read is under way until the test writes to it. psync is
//! slowed down by [`Effect::Delay`]. Native asynchronous I/O is only asynchronous on real devices.

mod rig;

use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rig::{BLOCK, LONG, MIB, PipeDevice, config, lay, prepare_reads, scratch};
use storage::device::{Device, DeviceKind, Geometry};
use storage::engine::{Engine, EngineConfig, IoUring, Libaio, Op, Psync};
use storage::fault::{Call, Effect, Fault, Faulty};

/// `IORING_FEAT_EXT_ARG`: io_uring_enter(2) takes a time-out, from Linux 5.11.
const FEAT_EXT_ARG: u32 = 1 << 8;

/// Waits twice for what does not come, then lets it come.
fn waits_end(mut engine: impl Engine, mut writer: impl Write) {
    for slot in 0..2 {
        engine.prepare(slot, Op::Read, 0, 5);
    }
    for limit in [Duration::from_millis(30), Duration::ZERO] {
        let started = Instant::now();
        engine.submit(2, Some(limit)).expect("a time-out is no error");
        assert!(started.elapsed() >= limit, "it waited {:?} of {limit:?}", started.elapsed());
        assert!(started.elapsed() < LONG, "it did not wait much longer");
        assert_eq!(engine.reap(|_, _| {}), 0);
        assert_eq!(engine.in_flight(), 2);
    }
    writer.write_all(b"abcde").expect("goes into the pipe");
    let mut reaped = Vec::new();
    while reaped.is_empty() {
        engine.submit(1, Some(LONG)).expect("the engine goes on");
        engine.reap(|slot, result| {
            result.expect("the read succeeds");
            reaped.push(slot);
        });
    }
    assert_eq!(reaped.len(), 1, "the other one still waits");
    assert_eq!(&engine.buffer(reaped[0])[..5], b"abcde");
    drop(writer);
    let mut endings = 0;
    while engine.in_flight() > 0 {
        engine.submit(1, None).expect("the engine goes on");
        endings += engine.reap(|_, result| assert!(result.is_err(), "the end of the pipe is a short read"));
    }
    assert_eq!(endings, 1);
}

#[test]
fn waits_with_a_time_out_end() {
    let (device, writer) = PipeDevice::open();
    waits_end(IoUring::new(device, &config(2)).unwrap(), writer);
}

#[test]
fn waits_with_a_time_out_end_on_rings_that_know_none() {
    let (device, writer) = PipeDevice::open();
    let old = Faulty::default().lacking_features(FEAT_EXT_ARG);
    waits_end(IoUring::with_kernel(old, device, &config(2)).unwrap(), writer);
}

#[test]
fn waits_with_a_time_out_end_where_a_kernel_thread_submits() {
    for lacking in [0, FEAT_EXT_ARG] {
        let (device, writer) = PipeDevice::open();
        let polled = EngineConfig { sqthread_poll: true, ..config(2) };
        let kernel = Faulty::default().lacking_features(lacking);
        waits_end(IoUring::with_kernel(kernel, device, &polled).unwrap(), writer);
    }
}

/// The ring that has this file among its own, under another descriptor.
fn ring_with(file: &str) -> Option<OwnedFd> {
    let descriptors = std::fs::read_dir("/proc/self/fdinfo").expect("its descriptors");
    let has_it = |entry: &std::fs::DirEntry| {
        std::fs::read_to_string(entry.path())
            .is_ok_and(|text| text.contains("UserFiles:") && text.contains(file))
    };
    let number = descriptors.flatten().find(has_it)?.file_name().to_str()?.parse().ok()?;
    // SAFETY: dup(2) takes any number, and the descriptor that it gives is nobody else's.
    let ring = unsafe { libc::dup(number) };
    // SAFETY: it was just made.
    (ring >= 0).then(|| unsafe { OwnedFd::from_raw_fd(ring) })
}

/// The kernel frees a ring some time after its last descriptor has gone; here there is another one.
#[test]
fn a_device_is_in_use_no_longer_than_its_engine() {
    let (device, mut writer) = PipeDevice::open();
    let number = device.fd().as_raw_fd();
    let file = std::fs::read_link(format!("/proc/self/fd/{number}")).expect("a pipe");
    let engine = IoUring::new(device, &config(2)).unwrap();
    let Some(_ring) = ring_with(&file.to_string_lossy()) else {
        return eprintln!("SKIPPED: this kernel does not say which files a ring has");
    };
    drop(engine);
    // A process that another test was just starting may have it for a moment. So many bytes fit into a pipe.
    let pause = |_: &std::io::Result<usize>| std::thread::sleep(Duration::from_millis(1));
    let mut written = std::iter::repeat_with(|| writer.write(b"x")).take(60_000).inspect(pause);
    let refused = written.find_map(Result::err).expect("nobody reads it");
    assert_eq!(refused.kind(), ErrorKind::BrokenPipe);
}

/// Whether poll(2) finds the engine's descriptor readable within `patience`.
fn announces(engine: &mut impl Engine, patience: Duration) -> bool {
    let fd = engine.completion_fd().expect("can be had").expect("this engine has one").as_raw_fd();
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd is passed, and lives until the call returns.
    unsafe { libc::poll(&raw mut poll, 1, patience.as_millis() as libc::c_int) == 1 }
}

/// A caller that waits in poll(2) hears of a completion, and of none twice.
fn completions_are_announced(mut engine: impl Engine) {
    assert!(!announces(&mut engine, Duration::ZERO), "{}: nothing was asked for", engine.name());
    for round in 0..20 {
        engine.prepare(0, Op::Read, round * u64::from(BLOCK), BLOCK);
        engine.submit(0, None).expect("is taken");
        while engine.reap(|_, result| result.expect("the read succeeds")) == 0 {
            assert!(announces(&mut engine, LONG), "{}: round {round}", engine.name());
            engine.submit(0, None).expect("goes on");
        }
        engine.submit(0, None).expect("goes on");
        assert!(!announces(&mut engine, Duration::ZERO), "{}: it was fetched", engine.name());
    }
}

#[test]
fn a_caller_that_polls_hears_of_completions() {
    let file = rig::any_file(MIB);
    completions_are_announced(IoUring::new(Arc::clone(&file), &config(2)).unwrap());
    completions_are_announced(Libaio::new(Arc::clone(&file), &config(2)).unwrap());
    completions_are_announced(Psync::new(file, &config(2)).unwrap());
}

#[test]
fn a_read_that_is_late_is_announced_when_it_comes() {
    let (device, mut writer) = PipeDevice::open();
    let mut engine = IoUring::new(device, &config(2)).unwrap();
    engine.prepare(0, Op::Read, 0, 5);
    engine.submit(0, None).unwrap();
    assert!(!announces(&mut engine, Duration::ZERO), "the pipe is empty");
    writer.write_all(b"abcde").expect("goes into the pipe");
    assert!(announces(&mut engine, LONG));
    engine.submit(1, Some(LONG)).unwrap();
    assert_eq!(engine.reap(|_, result| result.expect("the read succeeds")), 1);
}

/// Where completions run only when the thread asks for them, nothing of the ring itself would wake it.
#[test]
fn a_caller_that_sleeps_in_poll_is_woken_by_what_completes_meanwhile() {
    let (device, writer) = PipeDevice::open();
    let mut engine = IoUring::new(device, &config(2)).unwrap();
    for _ in 0..3 {
        engine.prepare(0, Op::Read, 0, 5);
        engine.submit(0, None).unwrap();
        assert!(!announces(&mut engine, Duration::ZERO), "the pipe is empty");
        let mut writer = writer.try_clone().unwrap();
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            writer.write_all(b"abcde").unwrap();
        });
        let begun = Instant::now();
        assert!(announces(&mut engine, LONG));
        // poll(2) looks once more as its time ends, so that it was woken shows only in when it returned.
        assert!(begun.elapsed() < LONG, "nobody woke it");
        late.join().unwrap();
        engine.submit(1, Some(LONG)).unwrap();
        assert_eq!(engine.reap(|_, result| result.expect("the read succeeds")), 1);
    }
}

/// Added to the present, it would wrap round to the past, and the wait would end at once.
#[test]
fn a_time_out_longer_than_any_clock_waits_for_what_comes() {
    for lacking in [0, FEAT_EXT_ARG] {
        let (device, mut writer) = PipeDevice::open();
        let kernel = Faulty::default().lacking_features(lacking);
        let mut engine = IoUring::with_kernel(kernel, device, &config(1)).unwrap();
        engine.prepare(0, Op::Read, 0, 5);
        engine.submit(0, None).unwrap();
        let late = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            writer.write_all(b"abcde").unwrap();
        });
        engine.submit(1, Some(Duration::MAX)).expect("such a time-out is no error");
        assert_eq!(engine.reap(|_, result| result.expect("the read succeeds")), 1, "one wait is enough");
        late.join().unwrap();
    }
}

/// A kernel that lacks memory for new requests still completes the old ones, if it is asked for them.
#[test]
fn completions_arrive_while_new_entries_are_not_taken() {
    let (device, mut writer) = PipeDevice::open();
    let full = Fault { call: Call::UringEnter, after: 1, times: u32::MAX, effect: Effect::Short(0) };
    let mut engine = IoUring::with_kernel(Faulty::new([full]), device, &config(2)).unwrap();
    engine.prepare(0, Op::Read, 0, 5);
    engine.submit(0, None).unwrap();
    engine.prepare(1, Op::Read, 0, 5);
    writer.write_all(b"abcde").unwrap();
    let started = Instant::now();
    let mut done = Vec::new();
    while done.is_empty() {
        engine.submit(1, None).expect("the engine goes on");
        engine.reap(|slot, result| {
            result.expect("the read succeeds");
            done.push(slot);
        });
        assert!(started.elapsed() < LONG);
    }
    assert_eq!((&done[..], engine.in_flight()), (&[0][..], 1));
    assert_eq!(&engine.buffer(0)[..5], b"abcde");
}

/// Whether the address is mapped, by the kernel's own account.
fn is_mapped(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("proc(5)");
    maps.lines().any(|line| {
        let (start, end) = line.split(' ').next().and_then(|r| r.split_once('-')).expect("a range");
        let parse = |text| usize::from_str_radix(text, 16).expect("hexadecimal");
        (parse(start)..parse(end)).contains(&address)
    })
}

/// Drops an engine while a read of the pipe is under way.
fn dropping_waits(config: EngineConfig) {
    let (device, mut writer) = PipeDevice::open();
    let (tell, hear) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mut engine = IoUring::new(device, &config).unwrap();
        let address = engine.buffer(0).as_ptr() as usize;
        engine.prepare(0, Op::Read, 0, 5);
        engine.submit(0, None).unwrap();
        // Prepared only: nobody waits for it.
        engine.prepare(1, Op::Read, 0, 5);
        tell.send(address).unwrap();
        drop(engine);
        tell.send(address).unwrap();
    });
    let address = hear.recv_timeout(LONG).expect("the engine is about to be dropped");
    assert!(hear.recv_timeout(Duration::from_millis(100)).is_err(), "the drop waits for the read");
    assert!(is_mapped(address), "the kernel may still write to the buffer");
    writer.write_all(b"abcde").unwrap();
    hear.recv_timeout(LONG).expect("the drop ends with the read");
    thread.join().unwrap();
}

#[test]
fn dropping_a_ring_waits_for_what_the_kernel_has_and_for_nothing_else() {
    dropping_waits(config(2));
    dropping_waits(EngineConfig { sqthread_poll: true, ..config(2) });
}

/// A ring that no longer answers cannot be waited for; then its buffers must stay for ever.
#[test]
fn buffers_are_left_mapped_where_the_ring_does_not_answer() {
    let (device, mut writer) = PipeDevice::open();
    // The first call submits; from then on the ring is dead.
    let dead =
        Fault { call: Call::UringEnter, after: 1, times: u32::MAX, effect: Effect::Errno(libc::EFAULT) };
    let mut engine = IoUring::with_kernel(Faulty::new([dead]), device, &config(1)).unwrap();
    let address = engine.buffer(0).as_ptr() as usize;
    engine.prepare(0, Op::Read, 0, 5);
    engine.submit(0, None).unwrap();
    let error = engine.submit(1, None).expect_err("the ring is dead");
    assert_eq!((error.engine, error.operation), ("io_uring", "io_uring_enter"));
    assert_eq!(error.source.raw_os_error(), Some(libc::EFAULT));
    drop(engine);
    assert!(is_mapped(address), "the kernel may write to it at any time");
    let _ = writer.write_all(b"abcde");
}

#[test]
fn waits_for_threads_end_and_dropping_joins_them_before_the_buffers_go() {
    let device = rig::any_file(MIB);
    lay(&*device, 8);
    let slow = Fault {
        call: Call::Pread,
        after: 0,
        times: u32::MAX,
        effect: Effect::Delay(Duration::from_millis(150)),
    };
    let kernel = Faulty::new([slow]);
    let mut engine = Psync::with_kernel(kernel.clone(), device, &config(4)).unwrap();
    prepare_reads(&mut engine);
    for limit in [Duration::from_millis(20), Duration::ZERO] {
        let started = Instant::now();
        engine.submit(4, Some(limit)).expect("a time-out is no error");
        assert!(started.elapsed() >= limit && started.elapsed() < LONG);
    }
    drop(engine);
    assert!(kernel.fired() > 0, "the threads were at it");
    assert_eq!(kernel.refusals(), [], "no thread met a buffer that was gone (EFAULT)");
}

#[test]
fn what_libaio_was_given_is_done_when_it_is_dropped() {
    let Some(device) = scratch(&std::env::temp_dir(), 32 * MIB, true) else { return };
    let config = EngineConfig { depth: 8, slot_bytes: 4 << 20, ..config(8) };
    for version in 1..=3_u8 {
        let kernel = Faulty::default();
        let mut engine = Libaio::with_kernel(kernel.clone(), Arc::clone(&device), &config).unwrap();
        for slot in 0..8_u32 {
            engine.buffer_mut(slot).fill(version * 16 + slot as u8);
            engine.prepare(slot, Op::Write, u64::from(slot) * 4 * MIB, 4 << 20);
        }
        engine.submit(0, None).unwrap();
        drop(engine);
        assert_eq!(kernel.refusals(), []);
        let mut back = vec![0; 4 << 20];
        for slot in 0..8_u32 {
            device.read_at(&mut back, u64::from(slot) * 4 * MIB).unwrap();
            assert!(back.iter().all(|byte| *byte == version * 16 + slot as u8), "slot {slot}");
        }
    }
}

/// A device whose discard panics, as a wrapper with a bug might.
#[derive(Debug)]
struct Broken(Arc<dyn Device>);

impl Device for Broken {
    fn spec(&self) -> &str {
        self.0.spec()
    }
    fn kind(&self) -> DeviceKind {
        self.0.kind()
    }
    fn path(&self) -> Option<&std::path::Path> {
        self.0.path()
    }
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }
    fn is_direct(&self) -> bool {
        self.0.is_direct()
    }
    fn is_writable(&self) -> bool {
        self.0.is_writable()
    }
    fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.fd()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.0.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> std::io::Result<()> {
        self.0.write_at(buffer, offset)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        self.0.sync_data()
    }
    fn discard(&self, _: u64, _: u64) -> std::io::Result<()> {
        panic!("a bug in discard")
    }
}

#[test]
fn a_panic_on_another_thread_reaches_the_caller() {
    let device: Arc<dyn Device> = Arc::new(Broken(rig::any_file(MIB)));
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let mut engine = Psync::new(device, &config(2)).unwrap();
        engine.prepare(0, Op::Trim, 0, BLOCK);
        engine.submit(1, None)
    }));
    let payload = outcome.expect_err("it does not wait for ever");
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"a bug in discard"));
}

/// Rings and contexts make a discard inside `prepare`.
fn survives_a_panicking_discard(mut engine: impl Engine) {
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| engine.prepare(0, Op::Trim, 0, BLOCK)));
    assert!(outcome.is_err(), "the panic is the caller's to see");
    let endings = rig::finish(&mut engine);
    let failure = endings[0].as_ref().expect("it came back").as_ref().expect_err("it was not done");
    assert_eq!((failure.op, rig::errno(failure)), (Op::Trim, Some(libc::EIO)));
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| engine.prepare(1, Op::Trim, 0, BLOCK)));
    assert!(outcome.is_err());
    drop(engine);
}

#[test]
fn a_panic_in_a_discard_leaves_nobody_waiting() {
    let device: Arc<dyn Device> = Arc::new(Broken(rig::any_file(MIB)));
    survives_a_panicking_discard(IoUring::new(Arc::clone(&device), &config(2)).unwrap());
    survives_a_panicking_discard(Libaio::new(device, &config(2)).unwrap());
}
