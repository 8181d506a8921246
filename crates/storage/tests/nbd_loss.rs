//! Hosts that go, come back, come back as something else, or say nothing.

mod rig;
#[path = "rig/server.rs"]
mod server;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nbd::wire::reply::ErrorCode;
use nbd::wire::request;
use rig::{BLOCK, LONG, MIB, config, finish, options};
use server::{Reply, Server, Style, contents, info};
use storage::device::{Device, DeviceSpec, open};
use storage::engine::{Engine, Nbd, Op, RequestFailure};

const SIZE: usize = MIB as usize;

fn device(spec: &str) -> Arc<dyn Device> {
    open(&DeviceSpec::parse(spec).expect("a spec"), &options(true))
        .unwrap_or_else(|e| panic!("{spec}: {e:?}"))
}

/// The error with all its causes.
fn told(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said += &format!(": {error}");
        cause = error.source();
    }
    said
}

fn socket(directory: &tempfile::TempDir) -> std::path::PathBuf {
    directory.path().join("socket")
}

fn failures(engine: &mut Nbd) -> Vec<String> {
    let endings = finish(engine).into_iter().flatten();
    endings.filter_map(Result::err).map(|failure: RequestFailure| told(&failure)).collect()
}

fn read_blocks(engine: &mut Nbd) -> Vec<String> {
    for slot in 0..engine.depth() {
        engine.prepare(slot, Op::Read, u64::from(slot) * 4096, BLOCK);
    }
    failures(engine)
}

fn flush(engine: &mut Nbd) -> Vec<String> {
    engine.prepare(0, Op::SyncData, 0, 0);
    failures(engine)
}

fn write(engine: &mut Nbd) {
    engine.buffer_mut(0).fill(0x5a);
    engine.prepare(0, Op::Write, 4096, BLOCK);
    assert_eq!(failures(engine), [] as [&str; 0]);
}

#[test]
fn a_server_that_comes_back_in_time_is_used_as_if_nothing_had_happened() {
    let directory = tempfile::tempdir().unwrap();
    let contents = contents(SIZE);
    let server = Server::honest(&socket(&directory), Style::Whole, &contents);
    let spec = server.spec("");
    let device = device(&spec);
    let mut engine = Nbd::new(Arc::clone(&device), &config(8)).unwrap();
    assert!(read_blocks(&mut engine).is_empty());
    drop(server);
    for slot in 0..8 {
        engine.prepare(slot, Op::Read, u64::from(slot) * 4096, BLOCK);
    }
    engine.submit(1, Some(Duration::from_millis(50))).expect("no host is no error of the engine");
    let _server = Server::honest(&socket(&directory), Style::Whole, &contents);
    assert_eq!(failures(&mut engine), [] as [&str; 0]);
    for slot in 0..8 {
        let at = slot as usize * 4096;
        assert!(engine.buffer(slot)[..4096] == contents.lock().unwrap()[at..at + 4096], "slot {slot}");
    }
    device.read_at(&mut [0; 512], 512).expect("the plain path as well");
}

#[test]
fn a_server_that_stays_away_fails_everything_once_with_its_name_and_then_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::honest(&socket(&directory), Style::Simple, &contents(SIZE));
    let device = device(&server.spec("&timeout=1"));
    let mut engine = Nbd::new(Arc::clone(&device), &config(8)).unwrap();
    drop(server);
    let failed = read_blocks(&mut engine);
    assert_eq!(failed.len(), 8);
    let place = socket(&directory).display().to_string();
    for said in &failed {
        assert!(said.contains("host died") && said.contains(&place) && said.contains("timeout=1s"), "{said}");
        assert!(said.contains("bytes at offset"), "{said}");
    }
    // No patience is left for a host that is dead.
    engine.prepare(3, Op::Read, 0, BLOCK);
    assert_eq!(engine.in_flight(), 1);
    engine.submit(1, Some(Duration::ZERO)).unwrap();
    let mut ended = 0;
    engine.reap(|_, ending| ended += u32::from(ending.is_err()));
    assert_eq!(ended, 1);
    let error = device.read_at(&mut [0; 512], 0).expect_err("nobody is there");
    assert!(told(&error).contains(&place), "{}", told(&error));
}

#[test]
fn a_server_that_takes_requests_and_never_answers_runs_into_the_time_out() {
    let directory = tempfile::tempdir().unwrap();
    let script = |_, _, _: &request::Request| Reply::Silence;
    let server = Server::start(&socket(&directory), info(MIB), Style::Whole, &contents(SIZE), script);
    let device = open(
        &DeviceSpec::parse(&server.spec("&timeout=1")).unwrap(),
        &storage::device::OpenOptions::reading(),
    )
    .expect("opening asks nothing");
    let begun = Instant::now();
    let failed = read_blocks(&mut Nbd::new(Arc::clone(&device), &config(4)).unwrap());
    assert_eq!(failed.len(), 4);
    assert!(failed.iter().all(|said| said.contains("no answer within")), "{failed:?}");
    let error = device.read_at(&mut [0; 512], 0).expect_err("no answer there either");
    assert!(told(&error).contains("no answer within"), "{}", told(&error));
    assert!(begun.elapsed() < LONG);
}

/// One request that is never answered, among others that are.
#[test]
fn a_request_that_is_always_overtaken_fails_in_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let script = |_, _, request: &request::Request| match request.offset {
        0 => Reply::Silence,
        _ => Reply::Honest,
    };
    let server = Server::start(&socket(&directory), info(MIB), Style::Whole, &contents(SIZE), script);
    let spec = DeviceSpec::parse(&server.spec("&timeout=1&connections=1")).unwrap();
    let device = open(&spec, &storage::device::OpenOptions::reading()).unwrap();
    let mut engine = Nbd::new(device, &config(2)).unwrap();
    engine.prepare(0, Op::Read, 0, BLOCK);
    engine.prepare(1, Op::Read, 4096, BLOCK);
    let begun = Instant::now();
    let mut failure = None;
    while failure.is_none() {
        assert!(begun.elapsed() < 2 * LONG, "it never fails");
        engine.submit(1, Some(Duration::from_secs(1))).unwrap();
        let mut again = false;
        engine.reap(|slot, ending| match (slot, ending) {
            (0, ending) => failure = Some(ending.expect_err("it is never answered")),
            (_, Ok(())) => again = true,
            (_, Err(error)) => panic!("{}", told(&error)),
        });
        if again && failure.is_none() {
            engine.prepare(1, Op::Read, 4096, BLOCK);
        }
    }
    assert!(told(&failure.unwrap()).contains("no answer within"));
}

#[test]
fn a_request_that_breaks_every_connection_is_given_up_and_others_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let script = |_, _, request: &request::Request| match (request.command, request.offset) {
        (request::READ, 8192) => Reply::Close,
        _ => Reply::Honest,
    };
    let server = Server::start(&socket(&directory), info(MIB), Style::Whole, &contents(SIZE), script);
    let mut engine = Nbd::new(device(&server.spec("&connections=1")), &config(4)).unwrap();
    let failed = read_blocks(&mut engine);
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].contains("offset 8192") && failed[0].contains("was lost 6 times"), "{failed:?}");
}

#[test]
fn a_server_that_is_shutting_down_is_asked_again_when_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let script = |connection, _, request: &request::Request| match (request.command, connection) {
        (request::READ, 0) => Reply::Error(ErrorCode::ESHUTDOWN),
        _ => Reply::Honest,
    };
    let server = Server::start(&socket(&directory), info(MIB), Style::Simple, &contents(SIZE), script);
    let spec = DeviceSpec::parse(&server.spec("&connections=1")).unwrap();
    let device = open(&spec, &storage::device::OpenOptions::reading()).unwrap();
    assert_eq!(read_blocks(&mut Nbd::new(device, &config(4)).unwrap()), [] as [&str; 0]);
    assert!(server.accepted() >= 2);
}

#[test]
fn an_export_that_comes_back_different_is_an_error() {
    type Change = fn(&mut nbd::ExportInfo);
    let changes: [(&str, Change); 4] = [
        ("size", |info| info.size = MIB / 2),
        ("flags", |info| info.flags = info.flags.without(nbd::wire::TransmissionFlags::TRIM)),
        ("block sizes", |info| info.minimum_block = 4096),
        ("description", |info| info.description = Some("another incarnation".into())),
    ];
    for (word, change) in changes {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::honest(&socket(&directory), Style::Whole, &contents(SIZE));
        let mut engine = Nbd::new(device(&server.spec("")), &config(4)).unwrap();
        drop(server);
        let mut other = info(MIB);
        change(&mut other);
        let _server =
            Server::start(&socket(&directory), other, Style::Whole, &contents(SIZE), |_, _, _| Reply::Honest);
        let failed = read_blocks(&mut engine);
        assert_eq!(failed.len(), 4);
        assert!(
            failed.iter().all(|said| said.contains("another export") && said.contains(word)),
            "{failed:?}"
        );
    }
}

/// Restarts a server over the same contents.
fn restart(server: Server, socket: &Path, contents: &server::Contents) -> Server {
    drop(server);
    Server::honest(socket, Style::Whole, contents)
}

#[test]
fn a_flush_after_a_loss_of_unflushed_writes_fails_and_the_next_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, contents) = (socket(&directory), contents(SIZE));
    let mut server = Server::honest(&socket, Style::Whole, &contents);
    let device = device(&server.spec("&connections=2"));
    let mut engine = Nbd::new(Arc::clone(&device), &config(4)).unwrap();
    let mut other = Nbd::new(Arc::clone(&device), &config(4)).unwrap();
    write(&mut engine);
    server = restart(server, &socket, &contents);
    let failed = flush(&mut engine);
    assert!(failed.len() == 1 && failed[0].contains("had not been flushed"), "{failed:?}");
    assert_eq!(flush(&mut engine), [] as [&str; 0], "told once");
    // Whoever else flushes may have relied on it, too.
    assert_eq!(flush(&mut other).len(), 1);
    let error = device.sync_data().expect_err("the plain path is told as well");
    assert!(told(&error).contains("had not been flushed"), "{}", told(&error));
    device.sync_data().expect("told once");
    // What was flushed is not lost with the server.
    write(&mut engine);
    assert_eq!(flush(&mut engine), [] as [&str; 0]);
    server = restart(server, &socket, &contents);
    assert_eq!(flush(&mut engine), [] as [&str; 0]);
    drop(server);
}

#[test]
fn a_flush_under_way_when_the_server_goes_fails() {
    let directory = tempfile::tempdir().unwrap();
    let (socket, contents) = (socket(&directory), contents(SIZE));
    let gone = Arc::new(AtomicBool::new(false));
    let of_server = Arc::clone(&gone);
    let script = move |_, _, request: &request::Request| match request.command {
        request::FLUSH if !of_server.swap(true, Ordering::SeqCst) => Reply::Close,
        _ => Reply::Honest,
    };
    let server = Server::start(&socket, info(MIB), Style::Whole, &contents, script);
    let mut engine = Nbd::new(device(&server.spec("&connections=1")), &config(4)).unwrap();
    write(&mut engine);
    let failed = flush(&mut engine);
    assert!(failed.len() == 1 && failed[0].contains("had not been flushed"), "{failed:?}");
    assert_eq!(flush(&mut engine), [] as [&str; 0]);
}

#[test]
fn one_connection_of_several_may_break_without_anybodys_noticing() {
    let directory = tempfile::tempdir().unwrap();
    let contents = contents(SIZE);
    let script = |connection, number, _: &request::Request| match (connection, number) {
        (1, 2) => Reply::Cut(17),
        _ => Reply::Honest,
    };
    let server = Server::start(&socket(&directory), info(MIB), Style::Whole, &contents, script);
    let mut engine = Nbd::new(device(&server.spec("&connections=4")), &config(32)).unwrap();
    for _ in 0..20 {
        assert_eq!(read_blocks(&mut engine), [] as [&str; 0]);
        for slot in 0..32 {
            let at = slot as usize * 4096;
            assert!(engine.buffer(slot)[..4096] == contents.lock().unwrap()[at..at + 4096], "slot {slot}");
        }
    }
}
