//! What every device and every engine must do, as checks that panic where one does not.
//!
//! The suite is public so that wrappers (stripes, remote memory, fault layers) pass the same checks as
//! what they wrap. It writes to the device it is given.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::{Device, DeviceKind};
use crate::engine::{Engine, EngineConfig, EngineError, Op, RequestError, RequestFailure};

/// Block size of the checks: the largest alignment that any common device asks for.
const BLOCK: u32 = 4096;

/// A tiny generator (SplitMix64), so that a failing run can be replayed from the seed it prints.
#[derive(Debug)]
struct Mix(u64);

impl Mix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Fills a block so that its content names its place and version.
fn fill(buffer: &mut [u8], block: u64, version: u64) {
    let mut mix = Mix(block.wrapping_mul(0x1_0001) ^ (version << 48));
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&mix.next().to_le_bytes());
    }
}

fn assert_block(buffer: &[u8], block: u64, version: u64) {
    let mut expected = vec![0; buffer.len()];
    fill(&mut expected, block, version);
    assert!(buffer == expected, "block {block} does not hold version {version}");
}

/// The byte offset of a block.
fn at(block: u64) -> u64 {
    block * u64::from(BLOCK)
}

/// Checks a device's synchronous path: sizes, exactness at the end, round trips, discarded blocks gone
/// and their neighbours untouched.
///
/// # Panics
/// Where the device does not conform.
pub fn check_device(device: &dyn Device) {
    let size = device.size();
    assert!(size >= at(16), "the checks need at least 16 blocks");
    let geometry = device.geometry();
    assert!(geometry.logical_block.is_power_of_two() && geometry.memory_alignment.is_power_of_two());
    assert!(device.is_writable(), "the checks write");
    let mut buffer = vec![0; BLOCK as usize];
    for (version, block) in [(1, 0), (2, 3), (3, size / u64::from(BLOCK) - 1)] {
        fill(&mut buffer, block, version);
        device.write_at(&buffer, at(block)).expect("writes inside the device");
        buffer.fill(0);
        device.read_at(&mut buffer, at(block)).expect("reads inside the device");
        assert_block(&buffer, block, version);
    }
    device.sync_data().expect("syncs");
    the_end_is_exact(device);
    discarded_blocks_are_gone(device);
}

fn the_end_is_exact(device: &dyn Device) {
    let size = device.size();
    let mut two = vec![0; 2 * BLOCK as usize];
    for offset in [size - u64::from(BLOCK), size, size + u64::from(BLOCK), u64::MAX - 1, u64::MAX] {
        assert!(device.read_at(&mut two, offset).is_err(), "a read of two blocks at {offset} must fail");
        assert!(device.write_at(&two, offset).is_err(), "a write of two blocks at {offset} must fail");
        let length = u64::from(BLOCK) * 2;
        assert!(device.discard(offset, length).is_err(), "a discard of two blocks at {offset} must fail");
    }
    assert_eq!(device.size(), size, "a failed request changes no size");
}

fn discarded_blocks_are_gone(device: &dyn Device) {
    let mut buffer = vec![0; BLOCK as usize];
    for block in 2..=4 {
        fill(&mut buffer, block, 4);
        device.write_at(&buffer, at(block)).expect("writes inside the device");
    }
    match device.discard(at(3), u64::from(BLOCK)) {
        Ok(()) => {
            device.read_at(&mut buffer, at(3)).expect("discarded blocks are readable");
            // What a drive returns for a discarded block is the drive's own affair.
            let defined = is_without_blocks(device);
            assert!(!defined || buffer.iter().all(|byte| *byte == 0), "a discarded block reads as zeros");
        }
        Err(error) => {
            // A wrapper keeps the kind and may add to the message.
            assert!(
                matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::InvalidInput),
                "discard: {error}"
            );
        }
    }
    for block in [2, 4] {
        device.read_at(&mut buffer, at(block)).expect("reads inside the device");
        assert_block(&buffer, block, 4);
    }
}

/// Whether no block device is part of it, and no export, behind which there may be one.
fn is_without_blocks(device: &dyn Device) -> bool {
    !matches!(device.kind(), DeviceKind::Block | DeviceKind::Nbd)
        && device.members().iter().all(|member| is_without_blocks(&**member))
}

/// Checks an engine over a device: every request comes back once, with the right bytes; ends, waits,
/// time-outs and drops behave, and the caller's panics do no harm. `open` may change the configuration
/// it is given, to check polling, say.
///
/// The device's end must be where its descriptor's is: a file of which only a part is used would let
/// requests beyond that part succeed.
///
/// # Panics
/// Where the engine does not conform; random checks print their seed first.
pub fn check_engine<E: Engine>(
    device: &Arc<dyn Device>,
    seed: u64,
    open: impl Fn(Arc<dyn Device>, &EngineConfig) -> Result<E, EngineError>,
) {
    let config = |depth| EngineConfig { depth, slot_bytes: 2 * BLOCK as usize, ..EngineConfig::default() };
    wrong_configurations_are_named(|config| open(Arc::clone(device), config).err());
    let open = |depth| open(Arc::clone(device), &config(depth)).expect("the engine opens");
    for depth in [1, 2, 7, 64] {
        a_queue_full_of_writes_reads_back(&mut open(depth), device.size());
    }
    random_requests_agree_with_a_model(&mut open(16), device.size(), seed);
    random_calls_lose_and_repeat_nothing(&mut open(13), device.size(), seed);
    requests_beyond_the_end_fail_and_others_do_not(&mut open(4), device.size());
    waiting_waits(&mut open(8));
    waiting_again_for_what_has_arrived_does_not_hang(&mut open(8));
    time_outs_end_waits(&mut open(2));
    syncs_and_discards_complete(&mut open(4));
    buffers_in_flight_cannot_be_touched(&mut open(2));
    a_panic_while_reaping_loses_nothing(&mut open(8));
    dropping_an_engine_in_full_flight_is_safe(|| open(32));
    what_was_not_submitted_is_not_made(device, || open(4));
}

fn wrong_configurations_are_named(try_open: impl Fn(&EngineConfig) -> Option<EngineError>) {
    for (depth, slot_bytes, word) in [
        (0, 4096, "iodepth=0"),
        (32_769, 4096, "iodepth=32769"),
        (u32::MAX, 4096, "iodepth=4294967295"),
        (1, 0, "bs=0"),
        (1, 1 << 31, "bs=2147483648"),
        (1, usize::MAX, "bs=18446744073709551615"),
    ] {
        let config = EngineConfig { depth, slot_bytes, ..EngineConfig::default() };
        let error = try_open(&config).expect("such an engine must not open");
        assert!(error.source.to_string().contains(word), "'{}' does not name {word}", error.source);
    }
}

/// Reaps until nothing is in flight.
fn finish<E: Engine>(engine: &mut E, mut on_complete: impl FnMut(u32)) {
    while engine.in_flight() > 0 {
        engine.submit(1, None).expect("the engine goes on");
        engine.reap(|slot, result| {
            result.expect("the request succeeds");
            on_complete(slot);
        });
    }
}

fn a_queue_full_of_writes_reads_back<E: Engine>(engine: &mut E, size: u64) {
    let depth = engine.depth();
    let blocks = (size / u64::from(BLOCK)).min(u64::from(depth));
    for slot in 0..blocks as u32 {
        fill(&mut engine.buffer_mut(slot)[..BLOCK as usize], u64::from(slot), 7);
        engine.prepare(slot, Op::Write, at(u64::from(slot)), BLOCK);
    }
    assert_eq!(u64::from(engine.in_flight()), blocks);
    let mut seen = vec![0; depth as usize];
    finish(engine, |slot| seen[slot as usize] += 1);
    assert!(seen[..blocks as usize].iter().all(|n| *n == 1), "each write comes back once: {seen:?}");
    // Read in other slots than they were written from.
    for slot in 0..blocks as u32 {
        engine.buffer_mut(slot).fill(0);
        let block = blocks - 1 - u64::from(slot);
        engine.prepare(slot, Op::Read, at(block), BLOCK);
    }
    finish(engine, |_| {});
    for slot in 0..blocks as u32 {
        assert_block(&engine.buffer(slot)[..BLOCK as usize], blocks - 1 - u64::from(slot), 7);
    }
}

fn random_requests_agree_with_a_model<E: Engine>(engine: &mut E, size: u64, seed: u64) {
    println!("conformance seed {seed}");
    let mut mix = Mix(seed);
    let blocks = (size / u64::from(BLOCK)).min(256);
    // Every block starts at a known version.
    let mut versions = vec![0_u64; blocks as usize];
    for block in 0..blocks {
        fill(&mut engine.buffer_mut(0)[..BLOCK as usize], block, 0);
        engine.prepare(0, Op::Write, at(block), BLOCK);
        finish(engine, |_| {});
    }
    let depth = engine.depth();
    let mut reading: Vec<Option<u64>> = vec![None; depth as usize];
    for round in 1..=200_u64 {
        // A round uses each block at most once, so that requests in flight never overlap.
        let mut used = std::collections::HashSet::new();
        for slot in 0..1 + mix.below(u64::from(depth)) as u32 {
            let block = mix.below(blocks);
            if !used.insert(block) {
                continue;
            }
            if mix.below(2) == 0 {
                versions[block as usize] = round;
                fill(&mut engine.buffer_mut(slot)[..BLOCK as usize], block, round);
                engine.prepare(slot, Op::Write, at(block), BLOCK);
            } else {
                reading[slot as usize] = Some(block);
                engine.prepare(slot, Op::Read, at(block), BLOCK);
            }
        }
        finish(engine, |_| {});
        for slot in 0..depth {
            if let Some(block) = reading[slot as usize].take() {
                assert_block(&engine.buffer(slot)[..BLOCK as usize], block, versions[block as usize]);
            }
        }
    }
}

/// Any order of calls: slots are filled, submitted with any minimum, reaped or not, as the generator has
/// it. Each request must come back exactly once, and with its data.
fn random_calls_lose_and_repeat_nothing<E: Engine>(engine: &mut E, size: u64, seed: u64) {
    let mut mix = Mix(seed ^ 0x63_616c_6c73);
    let depth = engine.depth();
    let blocks = (size / u64::from(BLOCK)).min(u64::from(depth) * 4);
    for block in 0..blocks {
        fill(&mut engine.buffer_mut(0)[..BLOCK as usize], block, 9);
        engine.prepare(0, Op::Write, at(block), BLOCK);
        finish(engine, |_| {});
    }
    let mut under_way: Vec<Option<u64>> = vec![None; depth as usize];
    let mut issued = 0_u32;
    let mut reaped = 0_u32;
    while issued < 2_000 || engine.in_flight() > 0 {
        if issued < 2_000 && mix.below(3) > 0 {
            for slot in 0..depth {
                if under_way[slot as usize].is_none() && mix.below(2) == 0 {
                    let block = mix.below(blocks);
                    engine.buffer_mut(slot).fill(0);
                    engine.prepare(slot, Op::Read, at(block), BLOCK);
                    under_way[slot as usize] = Some(block);
                    issued += 1;
                }
            }
        }
        let minimum = mix.below(u64::from(depth) + 3) as u32;
        let timeout = [None, Some(Duration::ZERO), Some(Duration::from_millis(1)), Some(Duration::MAX)];
        engine.submit(minimum, timeout[mix.below(4) as usize]).expect("the engine goes on");
        if mix.below(3) == 0 {
            continue;
        }
        let mut done = Vec::new();
        let count = engine.reap(|slot, result| {
            result.expect("the read succeeds");
            done.push(slot);
        });
        assert_eq!(count as usize, done.len(), "reap counts what it passed on");
        reaped += count;
        for slot in done {
            let block = under_way[slot as usize].take().expect("a slot comes back once");
            assert_block(&engine.buffer(slot)[..BLOCK as usize], block, 9);
        }
        let waiting = under_way.iter().flatten().count();
        assert_eq!(engine.in_flight() as usize, waiting, "in flight is what was not passed back");
    }
    assert_eq!(issued, reaped);
}

fn requests_beyond_the_end_fail_and_others_do_not<E: Engine>(engine: &mut E, size: u64) {
    let end = at(size / u64::from(BLOCK));
    let spec = engine.device().spec().to_owned();
    engine.prepare(0, Op::Read, 0, BLOCK);
    engine.prepare(1, Op::Read, end, BLOCK);
    engine.prepare(2, Op::Read, end - u64::from(BLOCK), 2 * BLOCK);
    engine.prepare(3, Op::Read, end + at(5), BLOCK);
    let mut outcomes: [Option<Result<(), RequestFailure>>; 4] = [const { None }; 4];
    while engine.in_flight() > 0 {
        engine.submit(1, None).expect("the engine goes on");
        engine.reap(|slot, result| outcomes[slot as usize] = Some(result));
    }
    let [first, at_the_end, across, beyond] = outcomes.map(|outcome| outcome.expect("each came back"));
    first.expect("a read inside succeeds");
    let last = end - u64::from(BLOCK);
    for (result, offset, length, expected) in
        [(at_the_end, end, BLOCK, 0), (across, last, 2 * BLOCK, BLOCK), (beyond, end + at(5), BLOCK, 0)]
    {
        let failure = result.expect_err("a read beyond the end fails");
        assert_eq!((failure.op, failure.offset, failure.length), (Op::Read, offset, length));
        assert_eq!(failure.device, spec);
        let RequestError::Short { transferred } = failure.cause else { panic!("{failure:?}") };
        assert_eq!(transferred, u64::from(expected), "what is there is transferred, and no more");
    }
}

fn waiting_waits<E: Engine>(engine: &mut E) {
    let started = Instant::now();
    engine.submit(5, Some(Duration::from_millis(5))).expect("nothing in flight is no error");
    assert_eq!(engine.reap(|_, _| {}), 0);
    assert!(started.elapsed() < Duration::from_secs(5), "there was nothing to wait for");
    for slot in 0..8 {
        engine.prepare(slot, Op::Read, at(u64::from(slot)), BLOCK);
    }
    let mut reaped = 0;
    while reaped < 8 {
        engine.submit(8, None).expect("the engine goes on");
        reaped += engine.reap(|_, result| result.expect("the read succeeds"));
    }
    assert_eq!(engine.in_flight(), 0);
}

/// Submits, leaves the completions where they are, and waits for as many again.
fn waiting_again_for_what_has_arrived_does_not_hang<E: Engine>(engine: &mut E) {
    for slot in 0..8 {
        engine.prepare(slot, Op::Read, at(u64::from(slot)), BLOCK);
    }
    for minimum in [8, 8, 1, 0, 100] {
        engine.submit(minimum, None).expect("the engine goes on");
    }
    let mut reaped = 0;
    while reaped < 8 {
        reaped += engine.reap(|_, result| result.expect("the read succeeds"));
        engine.submit(1, None).expect("the engine goes on");
    }
}

/// Whatever the device does, a wait with a time-out ends; and one that is longer than any clock holds
/// is no error.
fn time_outs_end_waits<E: Engine>(engine: &mut E) {
    for timeout in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(2), Duration::MAX] {
        engine.prepare(0, Op::Read, 0, BLOCK);
        engine.submit(1, Some(timeout)).expect("the engine goes on");
        finish(engine, |_| {});
    }
}

/// Runs what must panic.
fn must_panic(what: &str, run: impl FnOnce()) {
    let outcome = catch_unwind(AssertUnwindSafe(run));
    assert!(outcome.is_err(), "{what} must panic");
}

fn buffers_in_flight_cannot_be_touched<E: Engine>(engine: &mut E) {
    engine.prepare(0, Op::Read, 0, BLOCK);
    let length = engine.buffer(1).len() as u32;
    must_panic("reading a buffer in flight", || drop(engine.buffer(0).to_vec()));
    must_panic("writing a buffer in flight", || engine.buffer_mut(0).fill(0));
    must_panic("preparing a slot in flight", || engine.prepare(0, Op::Read, 0, BLOCK));
    must_panic("a request beyond its buffer", || engine.prepare(1, Op::Read, 0, length + 1));
    must_panic("a slot that there is not", || engine.prepare(2, Op::Read, 0, BLOCK));
    assert_eq!(engine.in_flight(), 1, "what was refused is not in flight");
    finish(engine, |slot| assert_eq!(slot, 0));
    assert_eq!(engine.buffer(0).len(), length as usize, "the buffer is the caller's again");
}

fn a_panic_while_reaping_loses_nothing<E: Engine>(engine: &mut E) {
    for slot in 0..8 {
        engine.prepare(slot, Op::Read, at(u64::from(slot)), BLOCK);
    }
    let mut seen = [0; 8];
    while engine.in_flight() > 0 {
        engine.submit(8, None).expect("the engine goes on");
        let _ = catch_unwind(AssertUnwindSafe(|| {
            engine.reap(|slot, _| {
                seen[slot as usize] += 1;
                std::panic::resume_unwind(Box::new("the caller's own affair"));
            })
        }));
    }
    assert_eq!(seen, [1; 8], "each comes back once");
}

fn syncs_and_discards_complete<E: Engine>(engine: &mut E) {
    engine.prepare(0, Op::SyncData, 0, 0);
    finish(engine, |slot| assert_eq!(slot, 0));
    engine.prepare(1, Op::Trim, 0, BLOCK);
    let mut outcome = None;
    while engine.in_flight() > 0 {
        engine.submit(1, None).expect("the engine goes on");
        engine.reap(|_, result| outcome = Some(result));
    }
    if let Some(Err(failure)) = outcome {
        let RequestError::Os(error) = &failure.cause else { panic!("{failure:?}") };
        let errno = error.raw_os_error();
        assert!(matches!(errno, Some(libc::EOPNOTSUPP | libc::EINVAL)), "{failure:?}");
    }
}

fn dropping_an_engine_in_full_flight_is_safe<E: Engine>(open: impl Fn() -> E) {
    for _ in 0..8 {
        let mut engine = open();
        for slot in 0..engine.depth().min(16) {
            engine.prepare(slot, Op::Read, at(u64::from(slot)), BLOCK);
        }
        engine.submit(0, None).expect("the engine goes on");
        drop(engine);
    }
}

/// A thread that unwinds drops its engine, and must not write what it was about to.
fn what_was_not_submitted_is_not_made<E: Engine>(device: &Arc<dyn Device>, open: impl Fn() -> E) {
    let mut engine = open();
    for version in [1, 2] {
        for slot in 0..4 {
            fill(&mut engine.buffer_mut(slot)[..BLOCK as usize], u64::from(slot), version);
            engine.prepare(slot, Op::Write, at(u64::from(slot)), BLOCK);
        }
        if version == 1 {
            finish(&mut engine, |_| {});
        }
    }
    drop(engine);
    let mut buffer = vec![0; BLOCK as usize];
    for block in 0..4 {
        device.read_at(&mut buffer, at(block)).expect("reads inside the device");
        assert_block(&buffer, block, 1);
    }
}
