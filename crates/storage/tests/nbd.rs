//! Exports of other hosts conform as all devices do, whatever the server and the way to it.

#[path = "rig/nbdkit.rs"]
mod nbdkit;
mod rig;
#[path = "rig/server.rs"]
mod server;

use std::sync::Arc;

use nbdkit::Nbdkit;
use rig::{BLOCK, MIB, config, errno, finish, options, seed};
use server::{Reply, Server, Style, contents, info};
use storage::conformance::{check_device, check_engine};
use storage::device::{Device, DeviceKind, DeviceSpec, OpenError, OpenOptions, ZeroOptions, open};
use storage::engine::{
    self, AnyEngine, Engine, EngineConfig, IoEngine, IoUring, Libaio, Nbd, Op, Psync, RequestError,
};

const SIZE: u64 = 4 * MIB;

fn device(spec: &str) -> Arc<dyn Device> {
    open(&DeviceSpec::parse(spec).expect("a spec"), &options(true))
        .unwrap_or_else(|e| panic!("{spec}: {e:?}"))
}

fn check(device: &Arc<dyn Device>) {
    check_device(&**device);
    check_engine(device, seed(), Nbd::new);
}

#[test]
fn every_style_of_reply_conforms() {
    let directory = tempfile::tempdir().unwrap();
    for style in [Style::Simple, Style::Whole, Style::Pieces] {
        let socket = directory.path().join("socket");
        let server = Server::honest(&socket, style, &contents(SIZE as usize));
        for parameters in ["", "&connections=1"] {
            check(&device(&server.spec(parameters)));
        }
        check_engine(&device(&server.spec("")), seed(), Psync::new);
    }
}

#[test]
fn nbdkit_conforms_over_tcp_and_a_socket_with_one_connection_and_with_several() {
    let Some(unix) = Nbdkit::on_socket(&["memory", "4M"]) else { return };
    check(&device(&unix.spec("")));
    let Some(tcp) = Nbdkit::on_port(&["memory", "4M"]) else { return };
    for parameters in ["", "?connections=1", "?connections=16"] {
        let device = device(&tcp.spec(parameters));
        assert_eq!((device.kind(), device.size(), device.is_direct()), (DeviceKind::Nbd, SIZE, true));
        check(&device);
    }
}

#[test]
fn exports_behind_tls_conform() {
    use nbd::server::{Policy, TlsPolicy};
    let directory = tempfile::tempdir().unwrap();
    let (socket, keys) = (directory.path().join("socket"), directory.path().join("keys.psk"));
    std::fs::write(&keys, format!("alice:{}\n", "5eed".repeat(16))).unwrap();
    let tls = nbd::tls::ServerTls::psk(&keys).expect("keys");
    let policy = Policy { tls: TlsPolicy::Required(tls), ..Policy::default() };
    let contents = contents(SIZE as usize);
    let server =
        Server::start_with(policy, &socket, info(SIZE), Style::Pieces, &contents, |_, _, _| Reply::Honest);
    let (socket, keys) = (socket.display(), keys.display());
    let spec = format!("nbds+unix:///?socket={socket}&tls-psk-file={keys}&tls-username=alice");
    let device = device(&spec);
    check(&device);
    // Longer than a record, and than what is gathered.
    let large = EngineConfig { depth: 4, slot_bytes: 1 << 20, ..EngineConfig::default() };
    let mut engine = Nbd::new(Arc::clone(&device), &large).unwrap();
    for slot in 0..4 {
        engine.buffer_mut(slot).fill(slot as u8 + 1);
        engine.prepare(slot, Op::Write, u64::from(slot) << 20, 1 << 20);
    }
    assert!(finish(&mut engine).into_iter().flatten().all(|ending| ending.is_ok()));
    for slot in 0..4 {
        engine.prepare(slot, Op::Read, u64::from(3 - slot) << 20, 1 << 20);
    }
    assert!(finish(&mut engine).into_iter().flatten().all(|ending| ending.is_ok()));
    for slot in 0..4 {
        assert!(engine.buffer(slot).iter().all(|byte| *byte == 4 - slot as u8), "slot {slot}");
    }
    let error =
        open(&DeviceSpec::parse(&server.spec("")).unwrap(), &options(true)).expect_err("in the clear");
    assert!(matches!(error, OpenError::Remote(_)), "{error}");
}

#[test]
fn requests_above_the_servers_limit_go_in_pieces_and_parts_of_blocks_in_whole_ones() {
    let directory = tempfile::tempdir().unwrap();
    let contents = contents(SIZE as usize);
    let limited = nbd::ExportInfo { minimum_block: 512, maximum_block: 1 << 20, ..info(SIZE) };
    let server = Server::start(
        &directory.path().join("socket"),
        limited,
        Style::Simple,
        &contents,
        |_, _, request| {
            let whole = request.offset.is_multiple_of(512) && request.length.is_multiple_of(512);
            let data = matches!(request.command, nbd::wire::request::READ | nbd::wire::request::WRITE);
            match whole && (!data || request.length <= 1 << 20) {
                true => Reply::Honest,
                false => Reply::Error(nbd::wire::reply::ErrorCode::EINVAL),
            }
        },
    );
    let device = device(&server.spec(""));
    assert_eq!(device.geometry().logical_block, 512);
    check(&device);
    let large = EngineConfig { depth: 2, slot_bytes: 3 << 20, ..EngineConfig::default() };
    let mut engine = Nbd::new(Arc::clone(&device), &large).unwrap();
    engine.buffer_mut(0).fill(0x77);
    engine.prepare(0, Op::Write, 512, (2 << 20) + 512);
    assert!(finish(&mut engine)[0].as_ref().unwrap().is_ok());
    engine.prepare(1, Op::Read, 0, 3 << 20);
    engine.prepare(0, Op::Read, SIZE - (1 << 20), 2 << 20);
    let endings = finish(&mut engine);
    assert!(engine.buffer(1) == &contents.lock().unwrap()[..3 << 20]);
    let beyond = endings[0].as_ref().unwrap().as_ref().expect_err("half of it lies beyond the end");
    assert!(matches!(beyond.cause, RequestError::Short { transferred: 1_048_576 }), "{beyond:?}");
    drop(engine);
    let before = contents.lock().unwrap()[..4096].to_vec();
    device.write_at(b"across a block", 505).expect("parts of blocks are written");
    let mut read = [0; 14];
    device.read_at(&mut read, 505).expect("and read");
    assert_eq!(&read, b"across a block");
    let after = contents.lock().unwrap()[..4096].to_vec();
    assert_eq!(
        (&before[..505], &before[519..]),
        (&after[..505], &after[519..]),
        "neighbours are as they were"
    );
}

#[test]
fn long_requests_arrive_whole() {
    let directory = tempfile::tempdir().unwrap();
    let size = 24 * MIB;
    let large = EngineConfig { depth: 3, slot_bytes: 4 << 20, ..EngineConfig::default() };
    for style in [Style::Simple, Style::Pieces] {
        let contents = contents(size as usize);
        let server = Server::honest(&directory.path().join("socket"), style, &contents);
        let mut engine = Nbd::new(device(&server.spec("")), &large).unwrap();
        for slot in 0..3 {
            engine.prepare(slot, Op::Read, u64::from(slot) * (5 << 20) + 77, 4 << 20);
        }
        assert!(finish(&mut engine).into_iter().flatten().all(|ending| ending.is_ok()));
        for slot in 0..3 {
            let at = slot as usize * (5 << 20) + 77;
            assert!(engine.buffer(slot) == &contents.lock().unwrap()[at..at + (4 << 20)], "slot {slot}");
        }
        engine.buffer_mut(1).fill(0xa5);
        engine.prepare(1, Op::Write, 12_345, 4 << 20);
        assert!(finish(&mut engine).into_iter().flatten().all(|ending| ending.is_ok()));
        let contents = contents.lock().unwrap();
        assert!(contents[12_345..12_345 + (4 << 20)].iter().all(|byte| *byte == 0xa5));
    }
}

#[test]
fn auto_takes_the_engine_for_exports_and_others_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::honest(&directory.path().join("socket"), Style::Whole, &contents(SIZE as usize));
    let device = device(&server.spec(""));
    let (engine, fallback) = engine::open(IoEngine::Auto, &device, &config(8)).unwrap();
    let AnyEngine::Nbd(engine) = engine else { panic!("{engine:?}") };
    assert_eq!((engine.name(), fallback), ("nbd", None));
    assert_eq!(engine.features()[0], "4 connections");
    let shallow = Nbd::new(Arc::clone(&device), &config(1)).unwrap();
    assert_eq!(shallow.features()[0], "1 connection", "never more connections than requests");
    for (error, word) in [
        (IoUring::new(Arc::clone(&device), &config(1)).err(), "ioengine=io_uring"),
        (Libaio::new(Arc::clone(&device), &config(1)).err(), "ioengine=libaio"),
        (Nbd::new(rig::any_file(MIB), &config(1)).err(), "scratch is not reached over NBD"),
    ] {
        let said = error.expect("is refused").source.to_string();
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn a_server_that_takes_one_client_at_a_time_is_enough() {
    let Some(kit) = Nbdkit::on_socket(&["--filter=limit", "memory", "4M", "limit=1"]) else { return };
    let device = device(&kit.spec("&connections=1"));
    device.write_at(&[7; 4096], 8192).expect("a plain write");
    let mut engine = Nbd::new(Arc::clone(&device), &config(4)).expect("takes the device's connection over");
    engine.prepare(0, Op::Read, 8192, BLOCK);
    assert!(finish(&mut engine)[0].as_ref().unwrap().is_ok());
    assert!(engine.buffer(0)[..4096].iter().all(|byte| *byte == 7));
    drop(engine);
    device.sync_data().expect("and it goes back");
}

#[test]
fn ranges_are_zeroed_by_the_server_where_it_can() {
    let directory = tempfile::tempdir().unwrap();
    let contents = contents(SIZE as usize);
    for able in [true, false] {
        let mut offered = info(SIZE);
        if !able {
            offered.flags = offered.flags.without(nbd::wire::TransmissionFlags::WRITE_ZEROES);
        }
        contents.lock().unwrap().fill(1);
        let socket = directory.path().join("socket");
        let server = Server::start(&socket, offered, Style::Whole, &contents, move |_, _, request| {
            match (request.command, able) {
                (nbd::wire::request::WRITE_ZEROES, false) | (nbd::wire::request::WRITE, true) => Reply::Close,
                _ => Reply::Honest,
            }
        });
        let device = device(&server.spec(""));
        device.write_zeroes(1000, 3 << 20, ZeroOptions::default()).expect("zeroes");
        let contents = contents.lock().unwrap();
        assert!(contents[1000..1000 + (3 << 20)].iter().all(|byte| *byte == 0));
        assert_eq!((contents[999], contents[1000 + (3 << 20)]), (1, 1));
    }
}

#[test]
fn what_the_server_refuses_fails_with_its_words() {
    let directory = tempfile::tempdir().unwrap();
    let script = |_, _, request: &nbd::wire::request::Request| match request.offset {
        8192 => Reply::Error(nbd::wire::reply::ErrorCode::ENOSPC),
        _ => Reply::Honest,
    };
    for style in [Style::Simple, Style::Whole] {
        let socket = directory.path().join("socket");
        let server = Server::start(&socket, info(SIZE), style, &contents(SIZE as usize), script);
        let device = device(&server.spec(""));
        let mut engine = Nbd::new(Arc::clone(&device), &config(4)).unwrap();
        for slot in 0..4 {
            engine.prepare(slot, Op::Write, u64::from(slot) * 4096, BLOCK);
        }
        let endings = finish(&mut engine);
        for (slot, ending) in (0..).zip(endings.into_iter().flatten()) {
            assert_eq!(ending.is_err(), slot == 2, "slot {slot}");
            let Err(failure) = ending else { continue };
            let RequestError::Os(error) = &failure.cause else { panic!("{failure:?}") };
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
            let said = error.to_string();
            assert!(style == Style::Simple || said.contains("as the test has it"), "{said}");
        }
    }
}

#[test]
fn an_export_opened_for_reading_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let contents = contents(SIZE as usize);
    let server = Server::honest(&directory.path().join("socket"), Style::Whole, &contents);
    let spec = DeviceSpec::parse(&server.spec("")).unwrap();
    let device = open(&spec, &OpenOptions::reading()).unwrap();
    let mut engine = Nbd::new(Arc::clone(&device), &config(2)).unwrap();
    engine.prepare(0, Op::Write, 0, BLOCK);
    engine.prepare(1, Op::Trim, 0, BLOCK);
    for ending in finish(&mut engine).into_iter().flatten() {
        assert_eq!(errno(&ending.expect_err("is refused")), Some(libc::EBADF));
    }
    assert!(device.write_at(&[0; 512], 0).is_err() && device.discard(0, 4096).is_err());
    let before = server.requests();
    drop(engine);
    assert_eq!(server.requests(), before, "the server was not even asked");
}

#[test]
fn what_an_export_does_not_allow_is_refused_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let open_writing = |server: &Server, parameters: &str, destroy: bool| {
        let text = server.spec(parameters);
        let destroy = if destroy { vec![text.clone().into()] } else { Vec::new() };
        open(&DeviceSpec::parse(&text).unwrap(), &OpenOptions { destroy, ..OpenOptions::writing() })
    };
    let blank = contents(SIZE as usize);
    let mut read_only = info(SIZE);
    read_only.flags = nbd::wire::TransmissionFlags::of(nbd::wire::TransmissionFlags::READ_ONLY);
    let server = Server::start(&socket, read_only, Style::Simple, &blank, |_, _, _| Reply::Honest);
    let error = open_writing(&server, "", false).expect_err("is read-only");
    assert!(error.to_string().contains("read-only") && error.hint().is_some(), "{error}");
    drop(server);
    let mut apart = info(SIZE);
    apart.flags = apart.flags.without(nbd::wire::TransmissionFlags::MULTI_CONN);
    let server = Server::start(&socket, apart, Style::Simple, &blank, |_, _, _| Reply::Honest);
    let error = open_writing(&server, "&connections=4", false).expect_err("is not coherent");
    assert!(error.to_string().contains("connections=4"), "{error}");
    let device = open_writing(&server, "", false).expect("one connection");
    let engine = Nbd::new(device, &config(8)).unwrap();
    assert_eq!(engine.features()[0], "1 connection");
    drop((engine, server));
    let signed = contents(SIZE as usize);
    signed.lock().unwrap()[..4].copy_from_slice(b"XFSB");
    let server = Server::honest(&socket, Style::Whole, &signed);
    let error = open_writing(&server, "", false).expect_err("bears a file system");
    assert!(matches!(error, OpenError::InUse(_)), "{error}");
    assert!(
        error.to_string().contains("xfs") && error.hint().unwrap().contains("--destroy nbd+unix"),
        "{error}"
    );
    open_writing(&server, "", true).expect("given up by name");
}
