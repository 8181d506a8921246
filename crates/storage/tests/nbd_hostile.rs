//! A server that says anything at all: at every byte of a stream of replies it stops, lies, or goes on with noise. A
//! request then succeeds with its own bytes, or fails; it never hangs and never succeeds with others.

mod rig;
#[path = "rig/server.rs"]
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use nbd::wire::reply;
use nbd::wire::request::{self, Request};
use rig::LONG;
use server::{Contents, Reply, Server, Style, contents, info, read_reply};
use storage::device::{Device, DeviceSpec, OpenOptions, open};
use storage::engine::{Engine, EngineConfig, Nbd, Op, RequestFailure};

/// Bytes of one read; small, so that nearly every byte of a stream is the protocol's.
const LENGTH: u32 = 24;
const READS: u32 = 3;
const STYLES: [Style; 3] = [Style::Simple, Style::Whole, Style::Pieces];

fn device(server: &Server, parameters: &str) -> Arc<dyn Device> {
    // To be read: nothing is asked of the server before the test does.
    open(&DeviceSpec::parse(&server.spec(parameters)).unwrap(), &OpenOptions::reading()).expect("opens")
}

fn engine(device: &Arc<dyn Device>) -> Nbd {
    let config = EngineConfig { depth: READS, slot_bytes: LENGTH as usize, ..EngineConfig::default() };
    Nbd::new(Arc::clone(device), &config).expect("connects")
}

/// The error with all its causes.
fn told(failure: &RequestFailure) -> String {
    let mut said = failure.to_string();
    let mut cause = std::error::Error::source(failure);
    while let Some(error) = cause {
        said += &format!(": {error}");
        cause = error.source();
    }
    said
}

/// Reads through a fresh engine; the failures. What succeeds has the right bytes.
fn read_all(device: &Arc<dyn Device>, contents: &Contents) -> Vec<String> {
    let begun = Instant::now();
    let mut engine = engine(device);
    for slot in 0..READS {
        engine.buffer_mut(slot).fill(0xee);
        engine.prepare(slot, Op::Read, u64::from(slot * LENGTH), LENGTH);
    }
    let mut failures = Vec::new();
    for (slot, ending) in (0..).zip(rig::finish(&mut engine)) {
        let at = slot as usize * LENGTH as usize;
        match ending.expect("every request comes back") {
            Ok(()) => {
                let expected = contents.lock().unwrap()[at..at + LENGTH as usize].to_vec();
                assert!(
                    engine.buffer(slot) == &expected[..],
                    "wrong data in slot {slot} of {}",
                    device.spec()
                );
            }
            Err(failure) => failures.push(told(&failure)),
        }
    }
    assert!(begun.elapsed() < LONG);
    failures
}

/// Contents; with zeros in them where those are sent as holes, so that there are some.
fn laid(style: Style) -> Contents {
    let contents = contents(4096);
    if style == Style::Pieces {
        contents.lock().unwrap()[24..48].fill(0);
    }
    contents
}

/// Bytes of the replies to all reads, and whether each is the protocol's (and not the data's).
fn stream(style: Style, contents: &Contents) -> usize {
    let contents = contents.lock().unwrap();
    let reply = |n: u32| {
        let request = Request {
            flags: 0,
            command: request::READ,
            cookie: 0,
            offset: u64::from(n * LENGTH),
            length: LENGTH,
        };
        let at = (n * LENGTH) as usize;
        read_reply(&request, &contents[at..at + LENGTH as usize], style).len()
    };
    (0..READS).map(reply).sum()
}

/// A server that does with the `at`th byte of the first connection's replies to reads what `change` says.
fn changing(
    socket: &std::path::Path,
    style: Style,
    contents: &Contents,
    at: usize,
    change: impl Fn(&mut Vec<u8>, usize) -> bool + Send + Sync + 'static,
) -> Server {
    let sent = AtomicU32::new(0);
    let of_server = Arc::clone(contents);
    Server::start(socket, info(4096), style, contents, move |connection, _, request| {
        if connection > 0 || request.command != request::READ {
            return Reply::Honest;
        }
        let range = request.offset as usize..request.offset as usize + request.length as usize;
        let mut bytes = read_reply(request, &of_server.lock().unwrap()[range], style);
        let begun = sent.fetch_add(bytes.len() as u32, Ordering::SeqCst) as usize;
        if !(begun..begun + bytes.len()).contains(&at) {
            return Reply::Bytes(bytes);
        }
        match change(&mut bytes, at - begun) {
            true => Reply::Bytes(bytes),
            false => Reply::Cut(at - begun),
        }
    })
}

#[test]
fn a_connection_that_ends_at_any_byte_is_replaced_and_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    for style in STYLES {
        let contents = laid(style);
        for at in 0..stream(style, &contents) {
            let server = changing(&directory.path().join("socket"), style, &contents, at, |_, _| false);
            let failures = read_all(&device(&server, "&connections=1"), &contents);
            assert_eq!(failures, [] as [&str; 0], "{style:?}, cut at byte {at}");
        }
    }
}

/// A bit of the data itself may be wrong without anyone's being able to tell, so data bytes are left out.
#[test]
fn a_bit_that_is_wrong_anywhere_in_the_protocol_never_gives_wrong_data() {
    let directory = tempfile::tempdir().unwrap();
    let mut outcomes = [0, 0];
    for style in STYLES {
        let contents = laid(style);
        for at in 0..stream(style, &contents) {
            for bit in [0, 3, 7] {
                let data = contents.lock().unwrap().clone();
                let flipped = move |bytes: &mut Vec<u8>, at: usize| {
                    // Data is found by its contents, which no header has eight bytes of.
                    let is_data = (at.saturating_sub(7)..=at).any(|start| {
                        bytes
                            .get(start..start + 8)
                            .is_some_and(|piece| data[..72].windows(8).any(|w| w == piece) && piece != [0; 8])
                    });
                    if !is_data {
                        bytes[at] ^= 1 << bit;
                    }
                    true
                };
                let server = changing(&directory.path().join("socket"), style, &contents, at, flipped);
                // A reply that never ends is waited for this long.
                let failures = read_all(&device(&server, "&connections=1&timeout=1"), &contents);
                outcomes[usize::from(failures.is_empty())] += 1;
            }
        }
    }
    assert!(outcomes[0] > 100, "lies are noticed: {outcomes:?}");
}

#[test]
fn noise_from_any_byte_on_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    for style in STYLES {
        let contents = laid(style);
        for at in 0..stream(style, &contents) {
            let noise = move |bytes: &mut Vec<u8>, from: usize| {
                bytes.truncate(from);
                let mut state = at as u64 + 1;
                bytes.extend((0..5000).map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                }));
                true
            };
            let server = changing(&directory.path().join("socket"), style, &contents, at, noise);
            let device = device(&server, "&connections=1&timeout=1");
            // Where it begins within data, that data is what the server says it is.
            let result =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read_all(&device, &contents)));
            if let Ok(failures) = result {
                assert!(!failures.is_empty(), "{style:?}, noise from byte {at}");
            }
        }
    }
}

/// What one answer to the first read says, and a word of what becomes of it.
fn answered(style: Style, word: &str, answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) {
    let directory = tempfile::tempdir().unwrap();
    let contents = laid(style);
    let script = move |_, _, request: &Request| match request.command {
        request::READ => Reply::Bytes(answer(request)),
        _ => Reply::Honest,
    };
    let server = Server::start(&directory.path().join("socket"), info(4096), style, &contents, script);
    let failures = read_all(&device(&server, "&connections=1&timeout=1"), &contents);
    assert!(!failures.is_empty(), "{word}");
    assert!(
        failures.iter().all(|said| said.contains(word) && said.contains("socket")),
        "{word}: {failures:?}"
    );
}

#[test]
fn each_breach_of_the_protocol_is_named_with_the_host() {
    let simple = |cookie| reply::SimpleReply::new(cookie, None).encode().to_vec();
    answered(Style::Simple, "magic number", |_| vec![0x42; 64]);
    answered(Style::Simple, "nothing is outstanding", move |r| simple(r.cookie ^ 1 << 40));
    answered(Style::Simple, "nothing is outstanding", move |r| simple(r.cookie ^ 1 << 20));
    answered(Style::Simple, "not agreed on", |r| reply::none(r.cookie).to_vec());
    answered(Style::Whole, "simple reply to a read", move |r| simple(r.cookie));
    answered(Style::Whole, "before all of its data came", |r| reply::none(r.cookie).to_vec());
    answered(Style::Whole, "before all of its data came", |r| {
        let mut bytes = reply::data_head(r.cookie, r.offset, 8, true).to_vec();
        bytes.extend([0; 8]);
        bytes
    });
    answered(Style::Whole, "outside of what was asked", |r| {
        reply::data_head(r.cookie, r.offset, LENGTH + 1, true).to_vec()
    });
    answered(Style::Whole, "outside of what was asked", |r| {
        reply::data_head(r.cookie, r.offset.wrapping_sub(1), 8, true).to_vec()
    });
    answered(Style::Whole, "the same data twice", |r| {
        let mut bytes = Vec::new();
        for _ in 0..2 {
            bytes.extend(reply::data_head(r.cookie, r.offset, LENGTH / 2, false));
            bytes.extend([1; LENGTH as usize / 2]);
        }
        bytes
    });
    answered(Style::Whole, "the same data twice", |r| {
        [reply::hole(r.cookie, r.offset + 8, 8, false), reply::hole(r.cookie, r.offset + 4, 8, false)]
            .concat()
    });
    answered(Style::Whole, "too many errors", |r| {
        let error = reply::Chunk { flags: 0, kind: reply::ERROR, cookie: r.cookie, length: 6 };
        let one = [&error.encode()[..], &[0, 0, 0, 5, 0, 0]].concat();
        one.repeat(1000)
    });
    answered(Style::Whole, "is not known", |r| {
        reply::Chunk { flags: 1, kind: 77, cookie: r.cookie, length: 0 }.encode().to_vec()
    });
    answered(Style::Whole, "never has", |r| {
        reply::Chunk { flags: 1, kind: reply::ERROR, cookie: r.cookie, length: u32::MAX }.encode().to_vec()
    });
}

#[test]
fn an_answer_that_comes_twice_ends_the_use_of_the_host() {
    let directory = tempfile::tempdir().unwrap();
    let contents = laid(Style::Whole);
    let of_server = Arc::clone(&contents);
    let script = move |_, _, request: &Request| {
        let at = request.offset as usize;
        let bytes = &of_server.lock().unwrap()[at..at + request.length as usize];
        Reply::Bytes(read_reply(request, bytes, Style::Whole).repeat(2))
    };
    let server = Server::start(&directory.path().join("socket"), info(4096), Style::Whole, &contents, script);
    let device = device(&server, "&connections=1");
    let mut engine = engine(&device);
    // The first may be taken before its double arrives; nothing after it is.
    for _ in 0..2 {
        engine.prepare(0, Op::Read, 0, LENGTH);
        rig::finish(&mut engine);
    }
    engine.prepare(0, Op::Read, 0, LENGTH);
    let failure =
        rig::finish(&mut engine).swap_remove(0).unwrap().expect_err("the host is not used any more");
    assert!(told(&failure).contains("breaks the protocol"), "{}", told(&failure));
}
