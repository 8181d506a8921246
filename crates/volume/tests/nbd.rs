//! Volumes whose members are exports of other hosts, alone and among others.

mod rig;
#[allow(unreachable_pub)]
#[path = "../../storage/tests/rig/server.rs"]
mod server;

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use rig::{KIB, MIB, seed, written};
use server::{Reply, Server, Style, contents, info};
use storage::conformance::{check_device, check_engine};
use storage::device::{DeviceSpec, OpenOptions};
use storage::engine::{self, Engine, EngineConfig, IoEngine, Nbd, Op, Psync};
use volume::{Flaw, NewVolume, Volume, VolumeError};

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
    let (engine, why) = engine::open(IoEngine::Auto, volume, &EngineConfig::default()).expect("opens");
    (engine.name(), why)
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

/// A server that says of its export what it always says, as most do.
fn host(folder: &Path, number: usize, style: Style, contents: &server::Contents) -> Server {
    Server::honest(&folder.join(format!("host{number}")), style, contents)
}

/// In the midst of its use, and when it is opened again: memory that is empty, and memory that is of an earlier time.
#[test]
fn a_host_that_comes_back_with_less_than_it_had_is_refused_by_who_is_there_and_by_who_comes() {
    for (is_empty, style) in
        [(true, Style::Simple), (false, Style::Simple), (true, Style::Pieces), (false, Style::Pieces)]
    {
        let folder = tempfile::tempdir().unwrap();
        let contents: Vec<server::Contents> =
            (0..2).map(|_| Arc::new(Mutex::new(vec![0; (2 * MIB) as usize]))).collect();
        let mut hosts: Vec<Server> =
            contents.iter().zip(0..).map(|(contents, n)| host(folder.path(), n, style, contents)).collect();
        let specs: Vec<String> = hosts.iter().map(|host| host.spec("&timeout=20")).collect();
        let spec = DeviceSpec::parse(&format!("volume:{}", specs.join(","))).unwrap();
        volume::create(
            &spec,
            &NewVolume { name: "of hosts".to_owned(), chunk: 16 * KIB, ..NewVolume::default() },
            &[],
        )
        .unwrap();
        let before = match is_empty {
            true => vec![0; (2 * MIB) as usize],
            false => contents[1].lock().unwrap().clone(),
        };
        let volume = Volume::open(&spec, &OpenOptions::writing()).unwrap();
        volume.write_at(&[7; 64 << 10], 0).unwrap();
        volume.sync().unwrap();
        // A connection that is lost and nothing else is no reason to refuse it.
        drop(hosts.remove(1));
        hosts.push(host(folder.path(), 1, style, &contents[1]));
        let mut found = vec![0; 64 << 10];
        volume.read_at(&mut found, 0).unwrap();
        assert_eq!(found, [7; 64 << 10]);

        drop(hosts.remove(1));
        *contents[1].lock().unwrap() = before;
        hosts.push(host(folder.path(), 1, style, &contents[1]));
        let error = volume.read_at(&mut found, 0).expect_err("it is not what it was");
        let said = said(&error);
        let why = if is_empty {
            "bears the label of its volume no more"
        } else {
            "of epoch 2 of its volume and is of 1"
        };
        assert!(said.contains("host1") && said.contains(why), "{said}");
        volume.write_at(&[8; 64 << 10], 0).expect_err("nor is it written");
        drop(volume);
        let member = &specs[1];
        for error in [
            Volume::open(&spec, &OpenOptions::writing()).unwrap_err(),
            Volume::open(&spec, &OpenOptions::reading()).unwrap_err(),
            volume::survey::check(spec.members(), &[]).unwrap_err(),
            volume::repair(&spec).unwrap_err(),
        ] {
            let is_told = match &error {
                VolumeError::Flaw(Flaw::Unlabelled { member: named }) => is_empty && named == member,
                VolumeError::Flaw(Flaw::Older { member: named, .. }) => !is_empty && named == member,
                _ => false,
            };
            assert!(is_told, "{error:?}");
        }
    }
}

/// Of the same number of epoch, of a later one, and another member: each has a label of the volume.
#[test]
fn a_host_that_comes_back_with_a_copy_of_the_volume_that_was_written_elsewhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let start = |contents: &[server::Contents], n: usize| host(folder.path(), n, Style::Pieces, &contents[n]);
    let contents: Vec<server::Contents> =
        (0..2).map(|_| Arc::new(Mutex::new(vec![0; (2 * MIB) as usize]))).collect();
    let mut hosts: Vec<Server> = (0..2).map(|n| start(&contents, n)).collect();
    let specs: Vec<String> = hosts.iter().map(|host| host.spec("&timeout=20")).collect();
    let spec = DeviceSpec::parse(&format!("volume:{}", specs.join(","))).unwrap();
    volume::create(
        &spec,
        &NewVolume { name: "of hosts".to_owned(), chunk: 16 * KIB, ..NewVolume::default() },
        &[],
    )
    .unwrap();
    let image = |n: usize| contents[n].lock().unwrap().clone();
    let as_made = [image(0), image(1)];
    // While it is written, and after it was written so often.
    let written = |times: usize| {
        (0..times).for_each(|_| {
            Volume::open(&spec, &OpenOptions::writing()).unwrap().write_at(&[1; 64 << 10], 0).unwrap();
        });
    };
    let volume = Volume::open(&spec, &OpenOptions::writing()).unwrap();
    volume.write_at(&[3; 64 << 10], 0).unwrap();
    let same_number = image(1);
    drop(volume);
    written(2);
    let mut others =
        vec![(same_number, "of epoch 2 of another copy"), (image(1), "of epoch 2 of its volume and is of 7")];
    for (contents, as_made) in contents.iter().zip(as_made) {
        *contents.lock().unwrap() = as_made;
    }
    let volume = Volume::open(&spec, &OpenOptions::writing()).unwrap();
    volume.write_at(&[7; 64 << 10], 0).unwrap();
    others.push((image(0), "another member of its volume"));
    let current = image(1);
    let mut found = vec![0; 64 << 10];
    for (other, why) in others {
        drop(hosts.remove(1));
        *contents[1].lock().unwrap() = other;
        hosts.push(start(&contents, 1));
        let said = said(&volume.read_at(&mut found, 0).expect_err("it is not what it was"));
        assert!(said.contains("host1") && said.contains(why), "{said}");
        volume.write_at(&[8; 64 << 10], 0).expect_err("nor is it written");
    }
    drop(hosts.remove(1));
    *contents[1].lock().unwrap() = current;
    hosts.push(start(&contents, 1));
    volume.read_at(&mut found, 16 << 10).expect("what belongs there is back");
}

/// At each request while labels are written, done or not: the host that is there again is of the epoch before or of the new one.
#[test]
fn a_connection_that_is_lost_while_an_epoch_begins_or_ends_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let left = Arc::new(AtomicI64::new(-1));
    let script = {
        let left = Arc::clone(&left);
        move |_, _, _: &nbd::wire::request::Request| match left.fetch_sub(1, Ordering::Relaxed) {
            0 => Reply::Close,
            100 => Reply::Cut(0),
            _ => Reply::Honest,
        }
    };
    let contents = Arc::new(Mutex::new(vec![0; (2 * MIB) as usize]));
    let host = Server::start(&folder.path().join("host"), info(2 * MIB), Style::Whole, &contents, script);
    let spec = DeviceSpec::parse(&format!("volume:{}", host.spec("&timeout=20"))).unwrap();
    volume::create(
        &spec,
        &NewVolume { name: "of one".to_owned(), chunk: 16 * KIB, ..NewVolume::default() },
        &[],
    )
    .unwrap();
    let mut written = 0;
    for first in [0, 100] {
        for number in 0..18 {
            let volume = Volume::open(&spec, &OpenOptions::writing()).unwrap();
            left.store(first + number, Ordering::Relaxed);
            match volume.write_at(&[number as u8; 4096], 0) {
                Ok(()) => written += 1,
                // It was lost with labels that were not synced: the host may have lost them too.
                Err(error) => {
                    assert!(said(&error).contains("had not been flushed"), "{number}: {}", said(&error))
                }
            }
            drop(volume);
            assert!(left.swap(-1, Ordering::Relaxed) < first, "request {number} was made");
        }
    }
    assert!(written > 18, "{written}");
    Volume::open(&spec, &OpenOptions::writing()).unwrap().write_at(&[7; 4096], 0).unwrap();
    assert!(volume::survey::look(spec.members()).unwrap().volumes[0].clean);
}

fn said(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
