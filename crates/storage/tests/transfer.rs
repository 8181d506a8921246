//! Transfers between files: by io_uring and by threads, with and without faults.
//!
//! What is checked each time: a request is told of exactly once; what it says it moved was moved; what was struck
//! fails with its cause, and nothing else does.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use storage::fault::{Call, Effect, Fault, Faulty};
use storage::transfer::{Done, Method, Op, Request, RequestError, Ticket, Transfer, TransferConfig};

const SLOTS: u32 = 4;
const SLOT: u32 = 64 << 10;
const METHODS: [Method; 2] = [Method::IoUring, Method::Psync];

fn config(method: Method) -> TransferConfig {
    TransferConfig { slots: SLOTS, slot_bytes: SLOT, method, idle: false }
}

/// One of each method over a kernel that `make` makes; a machine without io_uring says so.
fn each(make: impl Fn() -> Faulty, check: impl Fn(Transfer<Faulty>, Faulty)) {
    for method in METHODS {
        let kernel = make();
        match Transfer::with_kernel(kernel.clone(), &config(method)) {
            Ok(transfer) => {
                assert_eq!(transfer.method(), method);
                check(transfer, kernel);
            }
            Err(error) if method == Method::IoUring => eprintln!("SKIP io_uring: {error}"),
            Err(error) => panic!("{error}"),
        }
    }
}

fn striking(call: Call, after: u32, times: u32, effect: Effect) -> Faulty {
    Faulty::new([Fault { call, after, times, effect }])
}

fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i.wrapping_mul(0x9e37_79b9).wrapping_add(seed * 31) >> 7) as u8).collect()
}

fn file(contents: &[u8]) -> (File, Arc<OwnedFd>) {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(contents).unwrap();
    let shared = Arc::new(OwnedFd::from(file.try_clone().unwrap()));
    (file, shared)
}

fn contents(file: &mut File) -> Vec<u8> {
    let mut all = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut all).unwrap();
    all
}

fn request(file: &Arc<OwnedFd>, op: Op, slot: u32, offset: u64, length: u32) -> Request<'_> {
    Request { file, op, slot, within: 0, offset, length, needed: length, alignment: 512, most: None }
}

/// All that is under way, in the order of its tickets.
fn all(transfer: &mut Transfer<Faulty>) -> Vec<Done> {
    let mut over = Vec::new();
    while let Some(done) = transfer.next().unwrap() {
        over.push(done);
    }
    over.sort_by_key(|done| match done.ticket {
        Ticket::Slot(slot) => slot,
        Ticket::Sync => u32::MAX,
    });
    assert_eq!(transfer.in_flight(), 0);
    over
}

fn read_all(transfer: &mut Transfer<Faulty>, file: &Arc<OwnedFd>) -> Vec<Done> {
    for slot in 0..SLOTS {
        transfer.start(&request(file, Op::Read, slot, u64::from(slot * SLOT), SLOT));
    }
    all(transfer)
}

/// All slots have been read and hold what the file has.
fn check_read(transfer: &Transfer<Faulty>, over: &[Done], expected: &[u8]) {
    assert_eq!(over.len(), SLOTS as usize);
    for (slot, done) in over.iter().enumerate() {
        assert_eq!(done.ticket, Ticket::Slot(slot as u32));
        assert_eq!(*done.result.as_ref().expect("it was not struck"), SLOT);
        let from = slot * SLOT as usize;
        assert!(transfer.buffer(slot as u32) == &expected[from..from + SLOT as usize], "slot {slot}");
    }
}

#[test]
fn ranges_go_from_several_files_to_several_files_at_once_and_a_sync_beside_them() {
    each(Faulty::default, |mut transfer, _| {
        let sources: Vec<_> = (0..SLOTS).map(|n| file(&pattern(n.into(), SLOT as usize))).collect();
        let mut targets: Vec<_> = (0..SLOTS).map(|_| file(&[])).collect();
        for (slot, source) in (0..).zip(&sources) {
            transfer.start(&request(&source.1, Op::Read, slot, 0, SLOT));
        }
        transfer.start_sync(&sources[0].1);
        let over = all(&mut transfer);
        assert_eq!(over.last().map(|done| done.ticket), Some(Ticket::Sync));
        assert!(over.iter().all(|done| done.result.is_ok()), "{over:?}");
        for (slot, target) in (0..).zip(&targets) {
            // The request keeps its file open.
            let passing = Arc::new(target.1.try_clone().unwrap());
            transfer.start(&request(&passing, Op::Write, slot, 0, SLOT));
        }
        assert_eq!(all(&mut transfer).len(), SLOTS as usize);
        for (n, target) in targets.iter_mut().enumerate() {
            assert!(contents(&mut target.0) == pattern(n as u64, SLOT as usize), "{n}");
        }
    });
}

#[test]
fn what_comes_back_short_is_gone_on_with_from_an_aligned_boundary() {
    let expected = pattern(5, (SLOTS * SLOT) as usize);
    for short in [1, 511, 512, 1000, 4096, SLOT as usize - 1] {
        each(
            || striking(Call::Completion, 0, 6, Effect::Short(short)),
            |mut transfer, kernel| {
                let (_, fd) = file(&expected);
                let over = read_all(&mut transfer, &fd);
                check_read(&transfer, &over, &expected);
                assert_eq!(kernel.fired(), 6, "{short}");
            },
        );
        each(
            || striking(Call::Completion, 0, 6, Effect::Short(short)),
            |mut transfer, _| {
                let (mut written, fd) = file(&[]);
                for slot in 0..SLOTS {
                    let from = (slot * SLOT) as usize;
                    transfer.buffer_mut(slot).copy_from_slice(&expected[from..from + SLOT as usize]);
                    transfer.start(&request(&fd, Op::Write, slot, from as u64, SLOT));
                }
                assert!(all(&mut transfer).iter().all(|done| done.result.is_ok()));
                assert!(contents(&mut written) == expected, "{short}");
            },
        );
    }
}

#[test]
fn a_first_attempt_that_is_cut_on_demand_moves_no_more_and_the_rest_is_asked_for() {
    let expected = pattern(6, SLOT as usize);
    each(Faulty::default, |mut transfer, _| {
        for most in [1, 512, 5000, SLOT] {
            let (_, fd) = file(&expected);
            transfer.buffer_mut(0).fill(0);
            transfer.start(&Request { most: Some(most), ..request(&fd, Op::Read, 0, 0, SLOT) });
            assert_eq!(*all(&mut transfer)[0].result.as_ref().unwrap(), SLOT);
            assert!(transfer.buffer(0) == expected, "{most}");
        }
        let (_, fd) = file(&expected);
        transfer.start(&Request { most: Some(0), ..request(&fd, Op::Read, 0, 0, SLOT) });
        assert!(matches!(all(&mut transfer)[0].result, Err(RequestError::Short { transferred: 0 })));
    });
}

#[test]
fn what_is_interrupted_or_put_off_is_made_again_but_not_for_ever() {
    let expected = pattern(7, (SLOTS * SLOT) as usize);
    for errno in [libc::EINTR, libc::EAGAIN] {
        each(
            || striking(Call::Completion, 0, 20, Effect::Errno(errno)),
            |mut transfer, _| {
                let (_, fd) = file(&expected);
                let over = read_all(&mut transfer, &fd);
                check_read(&transfer, &over, &expected);
            },
        );
        each(
            || striking(Call::Completion, 0, u32::MAX, Effect::Errno(errno)),
            |mut transfer, _| {
                let (_, fd) = file(&expected);
                for done in read_all(&mut transfer, &fd) {
                    assert_eq!(os_error(&done), Some(errno));
                }
            },
        );
    }
}

#[test]
fn an_error_is_told_of_for_the_request_that_it_struck_alone() {
    let expected = pattern(8, (SLOTS * SLOT) as usize);
    each(
        || striking(Call::Completion, 2, 1, Effect::Errno(libc::EIO)),
        |mut transfer, _| {
            let (_, fd) = file(&expected);
            let over = read_all(&mut transfer, &fd);
            assert_eq!(over.iter().filter(|done| os_error(done) == Some(libc::EIO)).count(), 1);
            assert_eq!(over.iter().filter(|done| done.result.is_ok()).count(), SLOTS as usize - 1);
        },
    );
}

#[test]
fn a_sync_that_fails_is_told_of_and_never_tried_again() {
    for errno in [libc::EIO, libc::EINTR, libc::EAGAIN] {
        each(
            || striking(Call::Completion, 0, 1, Effect::Errno(errno)),
            |mut transfer, kernel| {
                let (_, fd) = file(b"x");
                transfer.start_sync(&fd);
                let over = all(&mut transfer);
                assert_eq!(over.len(), 1);
                assert_eq!(os_error(&over[0]), Some(errno));
                assert_eq!(kernel.fired(), 1);
            },
        );
    }
}

#[test]
fn a_read_beyond_the_end_is_enough_where_it_needs_no_more_and_a_failure_otherwise() {
    each(Faulty::default, |mut transfer, _| {
        let (_, fd) = file(&pattern(9, 4097));
        transfer.start(&Request { needed: 4097, ..request(&fd, Op::Read, 0, 0, 8192) });
        assert_eq!(*all(&mut transfer)[0].result.as_ref().unwrap(), 4097);
        transfer.start(&Request { needed: 4098, ..request(&fd, Op::Read, 0, 0, 8192) });
        assert!(matches!(all(&mut transfer)[0].result, Err(RequestError::Short { transferred: 4097 })));
        transfer.start(&request(&fd, Op::Read, 0, 1 << 20, 4096));
        assert!(matches!(all(&mut transfer)[0].result, Err(RequestError::Short { transferred: 0 })));
    });
}

#[test]
fn a_machine_without_io_uring_gets_threads_and_is_told_why() {
    let forbidden = || striking(Call::UringSetup, 0, u32::MAX, Effect::Errno(libc::EPERM));
    let transfer = Transfer::with_kernel(forbidden(), &config(Method::Auto)).unwrap();
    assert_eq!(transfer.method(), Method::Psync);
    assert_eq!(transfer.fallback().and_then(std::io::Error::raw_os_error), Some(libc::EPERM));
    let error = Transfer::with_kernel(forbidden(), &config(Method::IoUring)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EPERM));
}

#[test]
fn buffers_that_cannot_be_registered_and_submissions_that_are_refused_for_now_do_not_matter() {
    let expected = pattern(10, (SLOTS * SLOT) as usize);
    for (call, effect) in [
        (Call::UringRegister, Effect::Errno(libc::ENOMEM)),
        (Call::UringEnter, Effect::Errno(libc::EAGAIN)),
        (Call::UringEnter, Effect::Errno(libc::EBUSY)),
        (Call::UringEnter, Effect::Errno(libc::EINTR)),
        (Call::UringEnter, Effect::Short(0)),
        (Call::UringEnter, Effect::Short(1)),
    ] {
        each(
            || striking(call, 0, 3, effect),
            |mut transfer, _| {
                let (_, fd) = file(&expected);
                let over = read_all(&mut transfer, &fd);
                check_read(&transfer, &over, &expected);
            },
        );
    }
}

#[test]
fn a_transfer_that_is_dropped_waits_for_what_is_under_way() {
    each(Faulty::default, |mut transfer, _| {
        let (mut written, fd) = file(&[]);
        for slot in 0..SLOTS {
            transfer.buffer_mut(slot).fill(3);
            transfer.start(&request(&fd, Op::Write, slot, u64::from(slot * SLOT), SLOT));
        }
        let _ = transfer.poll().unwrap();
        drop(transfer);
        // What was not handed over was not made; what was made was made to its end.
        assert!(contents(&mut written).iter().all(|byte| *byte == 3 || *byte == 0));
    });
}

#[test]
#[should_panic(expected = "in flight")]
fn a_buffer_that_is_under_way_is_not_to_be_touched() {
    let mut transfer = Transfer::new(&config(Method::Psync)).unwrap();
    let (_, fd) = file(&pattern(1, 4096));
    transfer.start(&request(&fd, Op::Read, 1, 0, 4096));
    let _ = transfer.buffer(1);
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    for (slots, slot_bytes) in [(0, 4096), (4097, 4096), (1, 0), (1, 4095), (1, (1 << 30) + 4096)] {
        let asked = TransferConfig { slots, slot_bytes, ..config(Method::Auto) };
        assert_eq!(Transfer::new(&asked).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }
}

fn os_error(done: &Done) -> Option<i32> {
    match &done.result {
        Err(RequestError::Os(error)) => error.raw_os_error(),
        _ => None,
    }
}
