//! Every engine does what the conformance suite asks, on every kind of device.

mod lab;
mod rig;

use std::path::Path;
use std::sync::Arc;

use lab::Loop;
use rig::{BLOCK, MIB, config, memory, options, scratch, seed};
use storage::conformance::{check_device, check_engine};
use storage::device::{Device, DeviceSpec, atomic_writes, open};
use storage::engine::{
    AnyEngine, Engine, EngineConfig, IoEngine, IoUring, Libaio, MemoryCopy, Mmap, Op, Posixaio, Psync,
    RequestError, availability,
};

const SIZE: u64 = 4 * MIB;

/// Every engine that there is, over one device.
fn check_all(device: &Arc<dyn Device>) {
    let seed = seed();
    check_device(&**device);
    check_engine(device, seed, IoUring::new);
    check_engine(device, seed, |device, config| {
        IoUring::new(device, &EngineConfig { sqthread_poll: true, ..config.clone() })
    });
    check_engine(device, seed, Libaio::new);
    check_engine(device, seed, Psync::new);
    check_engine(device, seed, Posixaio::new);
    check_engine(device, seed, Mmap::new);
}

#[test]
fn all_engines_conform_on_a_file_opened_directly() {
    let Some(device) = scratch(&std::env::temp_dir(), SIZE, true) else { return };
    assert!(device.is_direct());
    check_all(&device);
}

#[test]
fn all_engines_conform_on_a_buffered_file() {
    let device = scratch(&std::env::temp_dir(), SIZE, false).expect("buffered always works");
    check_all(&device);
}

#[test]
fn all_engines_conform_on_a_named_file() {
    let directory = tempfile::tempdir().unwrap();
    let spec = DeviceSpec::File { path: directory.path().join("named"), size: Some(SIZE) };
    let device = open(&spec, &options(false)).expect("is made");
    check_all(&device);
}

#[test]
fn all_engines_conform_on_tmpfs() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        return eprintln!("SKIPPED: no /dev/shm");
    }
    for direct in [false, true] {
        if let Some(device) = scratch(shm, SIZE, direct) {
            check_all(&device);
        }
    }
}

#[test]
fn all_engines_conform_on_a_block_device() {
    for arguments in [&[][..], &["--direct-io=on"], &["--sector-size", "4096"]] {
        let Some(looped) = Loop::with(SIZE, arguments) else { return };
        for direct in [true, false] {
            let spec = DeviceSpec::from(looped.path.as_path());
            let given_up =
                storage::device::OpenOptions { destroy: vec![looped.path.clone()], ..options(direct) };
            check_all(&open(&spec, &given_up).expect("a blank device"));
        }
    }
}

#[test]
fn all_engines_conform_on_memory() {
    let device = memory(SIZE);
    check_all(&device);
    check_engine(&device, seed(), MemoryCopy::new);
}

#[test]
fn memory_that_was_opened_for_reading_is_not_written() {
    let device = open(&DeviceSpec::Memory { size: SIZE }, &Default::default()).unwrap();
    let mut engine = MemoryCopy::new(device, &config(2)).unwrap();
    engine.prepare(0, Op::Write, 0, BLOCK);
    engine.prepare(1, Op::Read, 0, BLOCK);
    let endings = rig::finish(&mut engine);
    let refused = endings[0].as_ref().unwrap().as_ref().expect_err("is refused");
    assert_eq!(rig::errno(refused), Some(libc::EBADF));
    assert!(endings[1].as_ref().unwrap().is_ok());
}

#[test]
fn copying_is_for_memory_only() {
    let error = MemoryCopy::new(rig::any_file(MIB), &config(1)).expect_err("a file is no memory");
    assert!(error.source.to_string().contains("scratch is not memory"), "{}", error.source);
}

/// What the kernel, the driver and the file system say about polling is theirs; what must hold is that
/// it works or is refused by name, when the engine is opened.
#[test]
fn polled_rings_conform_or_are_refused_by_name() {
    let polled = |config: &EngineConfig| EngineConfig { hipri: true, ..config.clone() };
    let directories = [std::env::temp_dir(), "/dev/shm".into()];
    let files = directories.iter().filter(|d| d.is_dir()).filter_map(|d| scratch(d, SIZE, true));
    let looped = Loop::new(SIZE);
    let block = looped.iter().map(|l| open(&DeviceSpec::from(l.path.as_path()), &options(true)).unwrap());
    for device in files.chain(block) {
        match IoUring::new(Arc::clone(&device), &polled(&config(2))) {
            Ok(engine) => {
                eprintln!("{} is polled: {:?}", device.spec(), engine.features());
                drop(engine);
                for sqthread_poll in [false, true] {
                    check_engine(&device, seed(), |device, config| {
                        IoUring::new(device, &EngineConfig { sqthread_poll, ..polled(config) })
                    });
                }
            }
            Err(error) => {
                let said = error.source.to_string();
                eprintln!("{} is not polled: {said}", device.spec());
                assert!(
                    said.contains("hipri=1 is not possible on") && said.contains(device.spec()),
                    "{said}"
                );
            }
        }
    }
}

#[test]
fn polling_without_direct_io_is_refused_and_auto_does_not_hide_it() {
    let device = rig::any_file(MIB);
    let polled = EngineConfig { hipri: true, ..config(1) };
    for choice in [IoEngine::IoUring, IoEngine::Auto] {
        let error = storage::engine::open(choice, &device, &polled).expect_err("cannot be polled");
        let said = error.source.to_string();
        assert!(said.contains("hipri=1") && said.contains("direct I/O"), "{said}");
    }
}

#[test]
fn auto_takes_the_first_engine_there_is() {
    let device = rig::any_file(MIB);
    let (engine, fallback) = storage::engine::open(IoEngine::Auto, &device, &config(4)).unwrap();
    let used = engine.name();
    let first = availability().into_iter().find(|(_, available)| available.is_ok());
    assert_eq!(first.map(|(name, _)| name), Some(used));
    assert_eq!(fallback.is_none(), used == "io_uring");
    let (engine, fallback) = storage::engine::open(IoEngine::Auto, &memory(MIB), &config(4)).unwrap();
    assert!(matches!(engine, AnyEngine::Memory(_)) && fallback.is_none());
}

/// What request `n` consists of.
fn mark(n: u32) -> u8 {
    (n % 251) as u8 + 1
}

/// Writes the whole device in requests of the slot size, then reads it back through other slots.
fn write_and_read_back<E: Engine>(engine: &mut E, request: u32) {
    let (depth, size) = (engine.depth(), engine.device().size());
    let requests = (size / u64::from(request)) as u32;
    for first in (0..requests).step_by(depth as usize) {
        for n in first..requests.min(first + depth) {
            engine.buffer_mut(n - first)[..request as usize].fill(mark(n));
            engine.prepare(n - first, Op::Write, u64::from(n) * u64::from(request), request);
        }
        assert!(rig::finish(engine).into_iter().flatten().all(|ending| ending.is_ok()));
    }
    for first in (0..requests).step_by(depth as usize) {
        let last = requests.min(first + depth);
        for n in first..last {
            engine.buffer_mut(last - 1 - n)[..request as usize].fill(0);
            engine.prepare(last - 1 - n, Op::Read, u64::from(n) * u64::from(request), request);
        }
        assert!(rig::finish(engine).into_iter().flatten().all(|ending| ending.is_ok()));
        for n in first..last {
            let buffer = &engine.buffer(last - 1 - n)[..request as usize];
            assert!(buffer.iter().all(|byte| *byte == mark(n)), "request {n} of {request} bytes");
        }
    }
}

#[test]
fn large_requests_arrive_whole() {
    let large = EngineConfig { depth: 5, slot_bytes: 4 << 20, ..EngineConfig::default() };
    for direct in [true, false] {
        let Some(device) = scratch(&std::env::temp_dir(), 48 * MIB, direct) else { continue };
        write_and_read_back(&mut IoUring::new(Arc::clone(&device), &large).unwrap(), 4 << 20);
        write_and_read_back(&mut Libaio::new(Arc::clone(&device), &large).unwrap(), 4 << 20);
        write_and_read_back(&mut Psync::new(Arc::clone(&device), &large).unwrap(), 4 << 20);
        write_and_read_back(&mut Posixaio::new(Arc::clone(&device), &large).unwrap(), 4 << 20);
        write_and_read_back(&mut Mmap::new(device, &large).unwrap(), 4 << 20);
    }
    let device = memory(48 * MIB);
    write_and_read_back(&mut MemoryCopy::new(device, &large).unwrap(), 4 << 20);
}

/// Three slots to a registered buffer, and the last buffer shorter than the others.
#[test]
fn an_arena_above_a_gibibyte_is_registered_in_parts() {
    let config = EngineConfig { depth: 7, slot_bytes: 300 << 20, ..EngineConfig::default() };
    let device = rig::any_file(MIB);
    let mut engine = match IoUring::new(Arc::clone(&device), &config) {
        Ok(engine) => engine,
        Err(error) if error.operation == "map buffers" => return eprintln!("SKIPPED: {}", error.source),
        Err(error) => panic!("{error}: {}", error.source),
    };
    eprintln!("{:?}", engine.features());
    for _ in 0..3 {
        write_and_read_back(&mut engine, BLOCK);
    }
    // The far end of the last slot lies in the last buffer too.
    let length = engine.buffer(6).len();
    engine.buffer_mut(6)[length - 1] = 0xa5;
}

#[test]
fn more_buffers_than_memory_is_an_error_that_says_how_much() {
    let config = EngineConfig { depth: 32_768, slot_bytes: 1 << 30, ..EngineConfig::default() };
    let device = rig::any_file(MIB);
    let choices = [IoEngine::Auto, IoEngine::IoUring, IoEngine::Libaio, IoEngine::Psync];
    for choice in choices.into_iter().chain([IoEngine::Posixaio, IoEngine::Mmap]) {
        let error = storage::engine::open(choice, &device, &config).expect_err("32 TiB");
        assert_eq!(error.source.kind(), std::io::ErrorKind::OutOfMemory);
        assert!(error.source.to_string().contains("32 TiB"), "{}", error.source);
    }
}

#[test]
fn a_polling_thread_on_a_cpu_that_there_is_not_is_an_error_that_names_it() {
    let asked = EngineConfig { sqthread_poll: true, sqthread_poll_cpu: Some(1 << 20), ..config(2) };
    let error = IoUring::new(rig::any_file(MIB), &asked).expect_err("no machine has so many");
    let said = error.source.to_string();
    assert!(said.contains("sqthread_poll_cpu=1048576") || error.operation == "io_uring_setup", "{said}");
}

#[test]
fn commands_are_for_namespaces_only() {
    for device in [rig::any_file(MIB), memory(MIB)] {
        let error =
            storage::engine::open(IoEngine::IoUringCmd, &device, &config(4)).expect_err("is no namespace");
        let said = error.source.to_string();
        assert!(said.contains("ioengine=io_uring_cmd") && said.contains(device.spec()), "{said}");
    }
}

/// Offsets in a file that is cut to half its length under the engine: a block before the end, one that the end divides, and
/// one behind it.
#[test]
fn a_mapped_file_that_is_cut_short_ends_as_it_does_for_read_and_no_signal_ends_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![7; 64 * BLOCK as usize]).unwrap();
    let spec = DeviceSpec::from(path.as_path());
    let device = open(&spec, &storage::device::OpenOptions { destroy: vec![path.clone()], ..options(false) });
    let mut engine = Mmap::new(device.unwrap(), &config(3)).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(u64::from(32 * BLOCK)).unwrap();
    for op in [Op::Read, Op::Write] {
        engine.prepare(0, op, u64::from(31 * BLOCK), BLOCK);
        engine.prepare(1, op, u64::from(31 * BLOCK), 2 * BLOCK);
        engine.prepare(2, op, u64::from(40 * BLOCK), BLOCK);
        let mut endings = rig::finish(&mut engine).into_iter().map(Option::unwrap);
        assert!(endings.next().unwrap().is_ok());
        for transferred in [u64::from(BLOCK), 0] {
            let failure = endings.next().unwrap().expect_err("is cut short");
            assert!(
                matches!(failure.cause, RequestError::Short { transferred: t } if t == transferred),
                "{failure:?}"
            );
        }
    }
    file.set_len(u64::from(64 * BLOCK)).unwrap();
    engine.prepare(0, Op::Read, u64::from(40 * BLOCK), BLOCK);
    assert!(rig::finish(&mut engine)[0].as_ref().unwrap().is_ok());
    assert!(engine.buffer(0)[..BLOCK as usize].iter().all(|byte| *byte == 0), "what has grown is zeros");
}

#[test]
fn what_was_opened_for_reading_is_not_stored_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![7; 4 * BLOCK as usize]).unwrap();
    let device = open(&DeviceSpec::from(path.as_path()), &Default::default()).unwrap();
    for name in ["mmap", "posixaio"] {
        let choice = IoEngine::from_word(name).unwrap();
        let (mut engine, _) = storage::engine::open(choice, &device, &config(2)).unwrap();
        storage::on_engine!(&mut engine, engine => {
            engine.prepare(0, Op::Write, 0, BLOCK);
            engine.prepare(1, Op::Read, 0, BLOCK);
            let endings = rig::finish(engine);
            let refused = endings[0].as_ref().unwrap().as_ref().expect_err("is refused");
            assert_eq!(rig::errno(refused), Some(libc::EBADF), "{name}");
            assert!(endings[1].as_ref().unwrap().is_ok(), "{name}");
        });
    }
    assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 7));
}

#[test]
fn a_mapped_file_that_is_cut_within_a_page_fails_the_next_sync_and_the_end() {
    let device = rig::any_file(MIB);
    rig::lay(&*device, (MIB / u64::from(BLOCK)) as u32);
    let mut engine = Mmap::new(Arc::clone(&device), &config(1)).unwrap();
    engine.conclude().expect("is whole");
    let file = std::fs::File::from(device.fd().try_clone_to_owned().unwrap());
    file.set_len(MIB - 100).unwrap();
    let mut request = |op, offset, length| {
        engine.prepare(0, op, offset, length);
        rig::finish(&mut engine)[0].take().unwrap()
    };
    request(Op::Read, MIB - u64::from(BLOCK), BLOCK).expect("nothing says that it holds zeros");
    for op in [Op::SyncData, Op::Sync] {
        let RequestError::Os(error) = request(op, 0, 0).expect_err("is told").cause else { panic!("{op:?}") };
        assert!(error.to_string().contains("was cut short"), "{error}");
    }
    let said = engine.conclude().expect_err("is told").source.to_string();
    assert!(said.contains("was cut short"), "{said}");
    file.set_len(MIB).unwrap();
    engine.conclude().expect("is as long as it was");
}

#[test]
fn the_deepest_queue_works() {
    let device = rig::any_file(MIB);
    let config = EngineConfig { depth: 32_768, slot_bytes: 512, ..EngineConfig::default() };
    let mut engine = IoUring::new(device, &config).unwrap();
    for slot in 0..32_768 {
        engine.prepare(slot, Op::Read, u64::from(slot % 2048) * 512, 512);
    }
    assert!(rig::finish(&mut engine).into_iter().all(|ending| ending.unwrap().is_ok()));
}

/// A ring registered with its thread outlives its descriptor, and its buffers with it, unless it is
/// given back; and there is room for sixteen.
#[test]
fn a_thread_can_open_engines_for_ever() {
    let device = rig::any_file(MIB);
    let first = IoUring::new(Arc::clone(&device), &config(4)).unwrap().features();
    for _ in 0..40 {
        let engine = IoUring::new(Arc::clone(&device), &config(4)).unwrap();
        assert_eq!(engine.features(), first);
    }
    let many: Vec<_> = (0..20).map(|_| IoUring::new(Arc::clone(&device), &config(4)).unwrap()).collect();
    let registered = |e: &&IoUring| e.features().iter().any(|f| f == "registered ring");
    if first.iter().any(|feature| feature == "registered ring") {
        assert_eq!(many.iter().filter(registered).count(), 16, "the rest do without");
    }
    for mut engine in many {
        write_and_read_back(&mut engine, BLOCK);
    }
}

#[test]
fn engines_survive_any_order_of_calls() {
    let device = rig::any_file(SIZE);
    let first = seed();
    for round in 0..6 {
        check_engine(&device, first.wrapping_add(round), IoUring::new);
        check_engine(&device, first.wrapping_add(round), Libaio::new);
        check_engine(&device, first.wrapping_add(round), Psync::new);
    }
}

#[test]
fn a_write_that_is_to_be_atomic_is_made_so_or_refused() {
    let Some(device) = scratch(&std::env::temp_dir(), SIZE, true) else { return };
    let sizes = atomic_writes(device.fd()).expect("the kernel says");
    let is_atomic = sizes.is_some_and(|sizes| sizes.contains(&u64::from(BLOCK)));
    let config = EngineConfig { atomic: true, ..config(2) };
    for choice in [IoEngine::IoUring, IoEngine::Libaio] {
        let Ok((mut engine, _)) = storage::engine::open(choice, &device, &config) else {
            eprintln!("SKIPPED: {} is not to be had here", choice.word());
            continue;
        };
        let features = storage::on_engine!(&engine, engine => engine.features());
        assert!(features.contains(&"atomic writes".to_owned()), "{}: {features:?}", choice.word());
        let endings = storage::on_engine!(&mut engine, engine => {
            engine.prepare(0, Op::Write, 0, BLOCK);
            let mut endings = rig::finish(engine);
            engine.prepare(1, Op::Read, 0, BLOCK);
            endings[1] = rig::finish(engine)[1].take();
            endings
        });
        let wrote = endings[0].as_ref().expect("ended");
        assert_eq!(wrote.is_ok(), is_atomic, "{}: {wrote:?}", choice.word());
        assert!(endings[1].as_ref().expect("ended").is_ok(), "{}: a read is no write", choice.word());
    }
    for choice in [IoEngine::Psync, IoEngine::Auto] {
        assert!(storage::engine::open(choice, &device, &config).is_err(), "{} drops the flag", choice.word());
    }
}
