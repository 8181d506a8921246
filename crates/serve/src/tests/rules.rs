//! What a client may do to a conversation, and what comes of it.

use std::io::Write;
use std::net::Shutdown;

use nbd::wire::ErrorCode;
use nbd::wire::request::{self, FLAG_FAST_ZERO, FLAG_REQ_ONE, Request};

use super::{Held, KIB, MIB, open};
use crate::error::Ending;

const EPERM: u32 = ErrorCode::EPERM.0;
const EINVAL: u32 = ErrorCode::EINVAL.0;
const ENOSPC: u32 = ErrorCode::ENOSPC.0;

/// Runs a test on memory directly, on memory through an engine, with simple replies and with chunks.
fn everywhere(test: impl Fn(&mut Held)) {
    let device = open("mem:64m");
    for (structured, through) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut held = Held::begin(&device, structured, true, through);
        test(&mut held);
        assert!(matches!(held.end(), Ending::Disconnected), "structured {structured}, engine {through}");
    }
}

#[test]
fn a_refused_write_leaves_the_conversation_in_step() {
    everywhere(|held| {
        let payload = vec![9; 300 * KIB as usize];
        for (offset, length) in [(64 * MIB, 1), (64 * MIB - 1, 2), (u64::MAX, 300 * KIB)] {
            let said = held.peer.call(request::WRITE, 0, offset, length as u32, &payload[..length as usize]);
            assert_eq!(said, Err(ENOSPC));
        }
        assert_eq!(held.peer.call(request::READ, 0, 64 * MIB - 1, 2, &[]), Err(EINVAL));
        assert_eq!(held.peer.call(77, 0, 0, 0, &[]), Err(EINVAL));
        assert_eq!(held.peer.call(request::WRITE, 0, 5, 3, b"abc"), Ok(vec![]));
        assert_eq!(held.peer.call(request::READ, 0, 4, 5, &[]), Ok(b"\0abc\0".to_vec()));
        assert_eq!(held.peer.call(request::WRITE_ZEROES, FLAG_FAST_ZERO, 5, 3, &[]), Ok(vec![]));
    });
}

#[test]
fn an_export_to_read_takes_no_writes_and_drops_their_payload() {
    let device = open("mem:1m");
    for through in [false, true] {
        let mut held = Held::begin(&device, true, false, through);
        assert_eq!(held.peer.call(request::WRITE, 0, 0, 100_000, &[1; 100_000]), Err(EPERM));
        assert_eq!(held.peer.call(request::TRIM, 0, 0, 4096, &[]), Err(EPERM));
        assert_eq!(held.peer.call(request::READ, 0, 0, 2, &[]), Ok(vec![0, 0]));
        assert_eq!(held.peer.call(request::FLUSH, 0, 0, 0, &[]), Ok(vec![]));
        assert!(held.end().is_orderly());
    }
}

#[test]
fn the_largest_requests_pass_and_larger_ones_are_refused() {
    everywhere(|held| {
        let most = 32 * MIB;
        let data: Vec<u8> = (0..most).map(|n| (n % 251) as u8).collect();
        assert_eq!(held.peer.call(request::WRITE, 0, MIB, most as u32, &data), Ok(vec![]));
        assert!(held.peer.call(request::READ, 0, MIB, most as u32, &[]).expect("reads") == data);
        assert_eq!(held.peer.call(request::READ, 0, 0, most as u32 + 1, &[]), Err(EINVAL));
        let larger = vec![0; most as usize + 1];
        assert_eq!(held.peer.call(request::WRITE, 0, 0, most as u32 + 1, &larger), Err(EINVAL));
        assert_eq!(held.peer.call(request::READ, 0, MIB, 3, &[]), Ok(vec![0, 1, 2]));
    });
}

#[test]
fn what_announces_more_than_anybody_sends_ends_the_conversation() {
    let device = open("mem:1m");
    for through in [false, true] {
        let mut held = Held::begin(&device, true, true, through);
        held.peer.ask(request::WRITE, 0, 0, u32::MAX, b"and so on");
        assert!(matches!(held.ended(), Ending::Protocol(_)));
        assert!(held.peer.is_closed());
    }
}

#[test]
fn what_is_no_request_ends_the_conversation_after_the_replies_before_it() {
    let device = open("mem:1m");
    for through in [false, true] {
        let mut held = Held::begin(&device, false, true, through);
        let asked = held.peer.ask(request::READ, 0, 0, 1, &[]);
        held.peer.send(vec![0x55; 28]);
        assert_eq!(held.peer.reply(), (asked, Ok(vec![0])));
        assert!(matches!(held.ended(), Ending::Protocol(_)));
        assert!(held.peer.is_closed());
    }
}

#[test]
fn a_client_that_goes_in_the_middle_of_anything_leaves_nothing_hanging() {
    let device = open("mem:1m");
    let request =
        Request { flags: 0, command: request::WRITE, cookie: 1, offset: 0, length: 200_000 }.encode();
    let mut message = request.to_vec();
    message.resize(28 + 200_000, 3);
    for through in [false, true] {
        for cut in [0, 1, 27, 28, 29, 70_000, 28 + 131_072, message.len() - 1, message.len()] {
            let mut held = Held::begin(&device, true, true, through);
            held.peer.stream.write_all(&message[..cut]).expect("goes out");
            held.peer.stream.shutdown(Shutdown::Write).expect("shuts");
            let ending = held.ended();
            assert!(matches!(ending, Ending::Closed), "cut at {cut}, engine {through}: {ending}");
        }
        // The last of them had come as a whole.
        let mut found = vec![0; 200_000];
        device.read_at(&mut found, 0).expect("reads");
        assert!(found == message[28..], "engine {through}");
        device.write_at(&vec![0; 200_000], 0).expect("writes");
    }
}

#[test]
fn requests_that_came_before_good_bye_are_answered() {
    everywhere(|held| {
        let cookies: Vec<u64> =
            (0..300).map(|n| held.peer.ask(request::READ, 0, n * 4096, 4096, &[])).collect();
        let mut answered: Vec<u64> = cookies.iter().map(|_| held.peer.reply().0).collect();
        answered.sort_unstable();
        assert_eq!(answered, cookies);
    });
}

#[test]
fn holes_of_a_file_are_told_and_memory_is_all_there() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("f");
    let file = std::fs::File::create(&path).expect("makes it");
    file.set_len(8 * MIB).expect("has a length");
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; MIB as usize], 2 * MIB).expect("writes");
    let options = storage::device::OpenOptions { allow_unwritten: true, ..Default::default() };
    let spec = storage::device::DeviceSpec::Path(path);
    let device = storage::device::open(&spec, &options).expect("opens");
    let mut held = Held::begin(&device, true, false, true);
    assert_eq!(held.peer.call(request::BLOCK_STATUS, 0, 0, 8 * MIB as u32, &[]), Ok(vec![]));
    let (hole, data) = (|m: u32| (m << 20, 3), |m: u32| (m << 20, 0));
    assert_eq!(held.peer.extents, [hole(2), data(1), hole(5)]);
    assert_eq!(
        held.peer.call(request::BLOCK_STATUS, FLAG_REQ_ONE, MIB, 8 * MIB as u32 - (1 << 20), &[]),
        Ok(vec![])
    );
    assert_eq!(held.peer.extents, [hole(1)]);
    assert!(held.end().is_orderly());
    let mut held = Held::begin(&open("mem:8m"), true, false, false);
    assert_eq!(held.peer.call(request::BLOCK_STATUS, 0, 0, 8 << 20, &[]), Ok(vec![]));
    assert_eq!(held.peer.extents, [data(8)]);
    assert_eq!(held.peer.call(request::BLOCK_STATUS, 0, 0, 0, &[]), Err(EINVAL));
    assert!(held.end().is_orderly());
}
