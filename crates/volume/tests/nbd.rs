//! Volumes whose members are exports of other hosts, alone and among others.

mod rig;
#[allow(unreachable_pub)]
#[path = "../../storage/tests/rig/server.rs"]
mod server;

use std::path::Path;
use std::sync::Arc;

use rig::{KIB, MIB, seed, written};
use server::{Reply, Server, Style, contents, info};
use storage::conformance::{check_device, check_engine};
use storage::device::{DeviceSpec, OpenOptions};
use storage::engine::{self, AnyEngine, Engine, EngineChoice, EngineConfig, Nbd, Op, Psync};

/// Three servers, of unequal size and with replies of every style, and the specs of their exports.
fn servers(folder: &Path) -> (Vec<Server>, String) {
    let styles = [Style::Simple, Style::Whole, Style::Pieces];
    let servers: Vec<Server> = (0..)
        .zip(styles)
        .map(|(n, style)| {
            let size = (2 * MIB + n * 100 * KIB) as usize;
            Server::honest(&folder.join(format!("host{n}")), style, &contents(size))
        })
        .collect();
    let specs: Vec<String> = servers.iter().map(|server| server.spec("")).collect();
    (servers, specs.join(","))
}

fn auto(volume: &Arc<dyn storage::device::Device>) -> (&'static str, Option<String>) {
    let (engine, why) = engine::open(EngineChoice::Auto, volume, &EngineConfig::default()).expect("opens");
    let name = match engine {
        AnyEngine::Nbd(engine) => engine.name(),
        AnyEngine::Psync(engine) => engine.name(),
        other => panic!("{other:?}"),
    };
    (name, why)
}

#[test]
fn stripes_over_exports_conform_also_with_memory_among_them() {
    let folder = tempfile::tempdir().unwrap();
    let (_servers, exports) = servers(folder.path());
    for chunk in [4 * KIB, 64 * KIB, 20 * KIB] {
        for members in [exports.clone(), format!("{exports},mem:2m")] {
            let volume = written(&format!("stripe(chunk={chunk}):{members}"), true).expect("opens");
            assert_eq!(auto(&volume), ("nbd", None));
            check_device(&*volume);
            check_engine(&volume, seed(), Nbd::new);
        }
    }
}

#[test]
fn files_among_exports_are_driven_by_plain_calls_and_the_record_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let (_servers, exports) = servers(folder.path());
    let spec = format!("stripe(chunk=64k):{exports},file:{}?size=2m", folder.path().join("file").display());
    let volume = written(&spec, false).expect("opens");
    let (name, why) = auto(&volume);
    assert!(name == "psync" && why.is_some_and(|why| why.contains("other hosts")));
    check_device(&*volume);
    check_engine(&volume, seed(), Psync::new);
}

#[test]
fn an_export_is_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::honest(&folder.path().join("host"), Style::Whole, &contents(MIB as usize));
    let spec = format!("stripe:{},{}", server.spec("&timeout=5"), server.spec("&connections=2"));
    let error =
        volume::open(&DeviceSpec::parse(&spec).unwrap(), &OpenOptions::reading()).expect_err("is refused");
    assert!(error.to_string().contains("named twice"), "{error}");
}

#[test]
fn a_failure_names_the_member_its_place_and_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let bad = |_, _, request: &nbd::wire::request::Request| match request.command {
        nbd::wire::request::READ if request.offset == 64 << 10 => Reply::Error(nbd::wire::ErrorCode::EIO),
        _ => Reply::Honest,
    };
    let good = Server::honest(&folder.path().join("good"), Style::Whole, &contents(MIB as usize));
    let bad =
        Server::start(&folder.path().join("bad"), info(MIB), Style::Whole, &contents(MIB as usize), bad);
    let spec = format!("stripe(chunk=64k):{},{}", good.spec(""), bad.spec(""));
    let volume = volume::open(&DeviceSpec::parse(&spec).unwrap(), &OpenOptions::reading()).expect("opens");
    let config = EngineConfig { depth: 4, slot_bytes: 256 << 10, ..EngineConfig::default() };
    let mut engine = Nbd::new(volume, &config).unwrap();
    engine.prepare(0, Op::Read, 0, 256 << 10);
    engine.prepare(1, Op::Read, 512 << 10, 256 << 10);
    let mut endings = Vec::new();
    while engine.in_flight() > 0 {
        engine.submit(1, None).unwrap();
        engine.reap(|slot, ending| endings.push((slot, ending)));
    }
    for (slot, ending) in endings {
        let Err(failure) = ending else {
            assert_eq!(slot, 1);
            continue;
        };
        assert_eq!(slot, 0);
        let member = failure.member.as_ref().expect("the member at fault");
        assert_eq!((&*member.device, member.offset, member.length), (&*bad.spec(""), 64 << 10, 64 << 10));
        assert!(failure.cause.to_string().contains("as the test has it"), "{}", failure.cause);
    }
}
