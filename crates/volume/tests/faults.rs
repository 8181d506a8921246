//! Faults below the engines, on one piece of a request that goes to several members: the request fails as a whole
//! and says which member it was, its other pieces and all other requests are not disturbed, and everything
//! ends.

mod rig;

use std::sync::Arc;

use rig::{Ending, KIB, config, finish, pattern};
use storage::device::{Device, DeviceSpec, OpenOptions};
use storage::engine::{
    Engine, EngineConfig, IoUring, Libaio, MemberFailure, Op, Psync, RequestError, RequestFailure,
};
use storage::fault::{Call, Effect, Fault, Faulty};

const CHUNK: u64 = 16 * KIB;
const WIDTH: u64 = 4;
/// A request of all members, each of which has one chunk of it.
const ROW: u64 = WIDTH * CHUNK;
const DEPTH: u32 = 4;

/// A laid stripe over memory, which the kernel drives by its descriptors; and what it holds.
fn laid() -> (Arc<dyn Device>, Vec<u8>) {
    let member = DeviceSpec::Memory { size: 4 * CHUNK };
    let spec = DeviceSpec::Stripe { chunk: CHUNK, members: vec![member; WIDTH as usize] };
    let volume = volume::open(&spec, &OpenOptions::writing()).expect("memory");
    let contents = pattern(7, volume.size() as usize);
    volume.write_at(&contents, 0).expect("writes");
    (volume, contents)
}

fn plan(effect: Effect, after: u32, times: u32) -> Faulty {
    Faulty::new([Fault { call: Call::Completion, after, times, effect }])
}

/// Reads a row into each slot with one engine.
fn read_rows<E: Engine>(engine: &mut E) -> Vec<Ending> {
    for slot in 0..DEPTH {
        engine.buffer_mut(slot).fill(0);
        engine.prepare(slot, Op::Read, u64::from(slot) * ROW, ROW as u32);
    }
    finish(engine).into_iter().map(|ending| ending.expect("every slot came back")).collect()
}

/// The same with each engine, on a plan of its own. What did not fail holds its bytes.
fn on_each_engine(make: impl Fn() -> Faulty, check: impl Fn(&str, &Faulty, Vec<(u32, RequestFailure)>)) {
    fn failures<E: Engine>(engine: &mut E, contents: &[u8]) -> Vec<(u32, RequestFailure)> {
        let mut failures = Vec::new();
        for (slot, ending) in (0..).zip(read_rows(engine)) {
            let expected = &contents[(u64::from(slot) * ROW) as usize..][..ROW as usize];
            match ending {
                Ok(()) => {
                    assert!(&engine.buffer(slot)[..ROW as usize] == expected, "slot {slot} holds its bytes")
                }
                Err(failure) => failures.push((slot, failure)),
            }
        }
        assert_eq!(engine.in_flight(), 0);
        // The engine is good for more.
        assert!(read_rows(engine).len() == DEPTH as usize);
        failures
    }
    let (volume, contents) = laid();
    let config = config(DEPTH, ROW);
    let kernel = make();
    let mut ring = IoUring::with_kernel(kernel.clone(), Arc::clone(&volume), &config).unwrap();
    check("io_uring", &kernel, failures(&mut ring, &contents));
    let kernel = make();
    let polled = EngineConfig { sqthread_poll: true, ..config.clone() };
    let mut ring = IoUring::with_kernel(kernel.clone(), Arc::clone(&volume), &polled).unwrap();
    check("io_uring with sqthread_poll", &kernel, failures(&mut ring, &contents));
    let kernel = make();
    let mut native = Libaio::with_kernel(kernel.clone(), Arc::clone(&volume), &config).unwrap();
    check("libaio", &kernel, failures(&mut native, &contents));
    let kernel = make();
    let mut threads = Psync::with_kernel(kernel.clone(), volume, &config).unwrap();
    check("psync", &kernel, failures(&mut threads, &contents));
}

/// The failure names a member of the stripe and the place on it where the piece at fault lies.
fn assert_names_its_member(slot: u32, failure: &RequestFailure) -> &MemberFailure {
    assert_eq!((failure.op, failure.offset), (Op::Read, u64::from(slot) * ROW));
    assert_eq!(u64::from(failure.length), ROW);
    let member = failure.member.as_ref().expect("a member was at fault");
    assert_eq!((member.device.as_str(), member.offset), ("mem:64k", u64::from(slot) * CHUNK));
    assert_eq!(u64::from(member.length), CHUNK);
    let said = failure.to_string();
    assert!(said.contains("of stripe(chunk=16k):mem:64k,") && said.ends_with("of mem:64k"), "{said}");
    member
}

#[test]
fn an_error_of_one_piece_fails_its_request_and_names_the_member() {
    for errno in [libc::EIO, libc::ENOSPC, libc::ENODEV] {
        for piece in [0, 1, 5, 15] {
            on_each_engine(
                || plan(Effect::Errno(errno), piece, 1),
                |engine, kernel, failures| {
                    assert_eq!(kernel.fired(), 1, "{engine}");
                    let [(slot, failure)] = &failures[..] else { panic!("{engine}: {failures:?}") };
                    assert_names_its_member(*slot, failure);
                    let RequestError::Os(error) = &failure.cause else { panic!("{failure:?}") };
                    assert_eq!(error.raw_os_error(), Some(errno), "{engine}");
                },
            );
        }
    }
}

#[test]
fn a_short_piece_fails_its_request_and_says_how_short() {
    for bytes in [0, 512, CHUNK - 1] {
        on_each_engine(
            || plan(Effect::Short(bytes as usize), 2, 1),
            |engine, kernel, failures| {
                assert_eq!(kernel.fired(), 1, "{engine}");
                let [(slot, failure)] = &failures[..] else { panic!("{engine}: {failures:?}") };
                assert_names_its_member(*slot, failure);
                let RequestError::Short { transferred } = failure.cause else { panic!("{failure:?}") };
                assert_eq!(transferred % CHUNK, bytes, "whole pieces before it, and the part of it");
                assert!(transferred < ROW, "{engine}");
            },
        );
    }
}

#[test]
fn a_piece_that_is_put_off_is_made_again_and_no_other() {
    for errno in [libc::EAGAIN, libc::EINTR] {
        for times in [1, 3, 200] {
            on_each_engine(
                || plan(Effect::Errno(errno), 1, times),
                |engine, kernel, failures| {
                    assert!(failures.is_empty(), "{engine}: {failures:?}");
                    assert_eq!(kernel.fired(), times, "{engine}");
                },
            );
        }
    }
}

#[test]
fn pieces_that_are_put_off_for_ever_fail_in_the_end() {
    on_each_engine(
        || plan(Effect::Errno(libc::EAGAIN), 0, 16 * 1001),
        |engine, kernel, failures| {
            assert_eq!(failures.len(), DEPTH as usize, "{engine}");
            // Each of sixteen pieces was made once and then 1000 times again.
            assert_eq!(kernel.fired(), 16 * 1001, "{engine}");
        },
    );
}

#[test]
fn of_several_pieces_that_fail_the_first_in_the_volume_is_told() {
    // psync makes the pieces of a row with a worker each, which end in any order; which of them is told must
    // not depend on who was first.
    let (volume, _) = laid();
    for round in 0..20 {
        let kernel = plan(Effect::Errno(libc::EIO), 0, 4);
        let mut engine = Psync::with_kernel(kernel, Arc::clone(&volume), &config(1, ROW)).unwrap();
        engine.prepare(0, Op::Read, 0, ROW as u32);
        let failure = finish(&mut engine).remove(0).expect("it came back").expect_err("all four failed");
        assert_eq!(failure.member.expect("a member").offset, 0, "round {round}");
    }
}

#[test]
fn a_flush_goes_to_every_member_and_fails_if_one_does() {
    let (volume, _) = laid();
    for failing in 0..WIDTH as u32 {
        let fault =
            Fault { call: Call::Fdatasync, after: failing, times: 1, effect: Effect::Errno(libc::EIO) };
        let kernel = Faulty::new([fault]);
        let mut engine =
            Psync::with_kernel(kernel.clone(), Arc::clone(&volume), &config(1, 4 * KIB)).unwrap();
        engine.prepare(0, Op::SyncData, 0, 0);
        let failure = finish(&mut engine).remove(0).expect("it came back").expect_err("a member failed");
        assert_eq!((failure.op, kernel.fired()), (Op::SyncData, 1));
        assert!(failure.member.is_some());
    }
}

/// More pieces than a ring or context holds at once: they wait, and all are made.
#[test]
fn requests_of_very_many_pieces_are_made_whole() {
    let member = DeviceSpec::Memory { size: 8 << 20 };
    let spec = DeviceSpec::Stripe { chunk: 512, members: vec![member; 2] };
    let volume = volume::open(&spec, &OpenOptions::writing()).expect("memory");
    let contents = pattern(11, volume.size() as usize);
    volume.write_at(&contents, 0).expect("writes");
    // 8 × 8192 pieces, of which a ring takes 32768.
    let length = 4 << 20;
    let config = config(8, length);
    let read = |engine: &mut dyn FnMut(u32) -> Option<Vec<u8>>| {
        for slot in 0..4 {
            let expected = &contents[slot as usize * length as usize..][..length as usize];
            assert!(engine(slot).as_deref() == Some(expected), "slot {slot}");
        }
    };
    fn all<E: Engine>(mut engine: E, length: u64) -> impl FnMut(u32) -> Option<Vec<u8>> {
        for slot in 0..8 {
            engine.prepare(slot, Op::Read, u64::from(slot % 4) * length, length as u32);
        }
        let endings = finish(&mut engine);
        assert!(endings.into_iter().all(|ending| ending.expect("came back").is_ok()));
        move |slot| Some(engine.buffer(slot)[..length as usize].to_vec())
    }
    read(&mut all(IoUring::new(Arc::clone(&volume), &config).unwrap(), length));
    read(&mut all(Libaio::new(volume, &config).unwrap(), length));
}
