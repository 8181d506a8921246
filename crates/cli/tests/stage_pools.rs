//! A pool that several users share, as the system's service keeps it. Needs root.

mod common;
mod stage_server;

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use common::{json, run, wait_until, works};
use stage::pools::{PoolStatus, Reservation};
use stage::service::Client;
use stage::service::pools::Wish;
use stage::{ErrorClass, Level, Options, Place, StageError, Verb};
use stage_server::spec;
use stage_server::world::{ALICE, BOB, World, by};

const MIB: u64 = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);

/// A pool of 100 MiB, of which each user may hold 60.
fn world() -> Option<World> {
    let mut world = World::new()?;
    world.server.take().expect("it runs").end();
    std::fs::create_dir(world.at("scratch")).expect("mkdir");
    std::fs::set_permissions(world.at("scratch"), Permissions::from_mode(0o755)).expect("chmod");
    let text = format!(
        "[pool.scratch]\npath = {:?}\nquota = '100m'\nreserve_per_user = '60m'\nhigh = 0.8\nlow = 0.5\n",
        world.at("scratch")
    );
    std::fs::write(world.at("pools.toml"), text).expect("writes");
    world.start_with(&["--pools", "pools.toml", "--metrics", "unix:run/metrics.sock"]);
    Some(world)
}

fn wish(name: &str, mebibytes: u64, wait: Option<Duration>) -> Wish {
    Wish { pool: "scratch".into(), name: name.into(), bytes: mebibytes * MIB, wait }
}

fn reserve(client: &mut Client, name: &str, mebibytes: u64) -> Result<Reservation, StageError> {
    client.reserve(&wish(name, mebibytes, None), &|| true)
}

fn class(refused: Result<impl std::fmt::Debug, StageError>) -> ErrorClass {
    refused.expect_err("is refused").class()
}

fn pool(client: &mut Client) -> PoolStatus {
    client.pools().expect("is answered").remove(0)
}

/// Runs what has to fail, and say why.
fn fails(folder: &Path, arguments: &[&str], code: i32, words: &str) {
    let came = run(folder, arguments);
    assert!(came.code == code && came.err.contains(words), "{arguments:?}: {came:#?}");
}

#[test]
fn each_user_has_room_of_their_own_in_a_pool_that_the_service_keeps() {
    let Some(world) = world() else { return };
    let hers = by(ALICE, &[], || {
        let mut client = world.client();
        let hers = reserve(&mut client, "ckpt-1", 50).expect("there is room");
        // Hers to write to, and empty.
        assert_eq!(hers.directory.0, world.at("scratch/12345/ckpt-1"));
        std::fs::write(hers.directory.0.join("data"), vec![7; MIB as usize]).expect("writes");
        let error = reserve(&mut client, "ckpt-2", 11).expect_err("her share is 60");
        assert!(error.to_string().contains("user 12345 has"), "{error}");
        hers
    });
    for path in [&hers.directory.0, &world.at("scratch/12345")] {
        let facts = std::fs::metadata(path).expect("is there");
        assert_eq!((facts.uid(), facts.mode() & 0o777), (ALICE, 0o700));
    }
    by(BOB, &[], || {
        let mut client = world.client();
        let error = reserve(&mut client, "ckpt-1", 51).expect_err("hers count");
        assert!(error.to_string().contains("MiB reserved of 100 MiB"), "{error}");
        reserve(&mut client, "ckpt-1", 40).expect("there is room beside hers");
    });
    by(ALICE, &[], || {
        let mut client = world.client();
        client.release(hers.id).expect("it is hers");
        assert!(!client.renew(hers.id).expect("is answered"));
        assert!(hers.directory.0.join("data").exists(), "what was written stays");
        assert_eq!(pool(&mut client).reserved, 40 * MIB);
    });
    // The service's state belongs to root, as does what is directly in the pool.
    by(BOB, &[], || {
        assert!(std::fs::read_dir(world.at("state/pools")).is_err());
        assert!(std::fs::read(world.at("state/pools/pools.db")).is_err());
        assert!(std::fs::rename(world.at("scratch/65534"), world.at("scratch/1")).is_err());
        assert!(std::fs::create_dir(world.at("scratch/0")).is_err());
    });
    let left = std::fs::read_dir(world.at("scratch")).expect("lists").count();
    assert_eq!(left, 2, "nothing of how directories were made is left");
}

#[test]
fn nobody_takes_gives_back_or_learns_the_name_of_what_another_has_reserved() {
    let Some(world) = world() else { return };
    let hers = by(ALICE, &[], || reserve(&mut world.client(), "her-secret", 10).expect("there is room"));
    let keeper = world.at("state/pools.sock");
    for socket in [world.at("run/stage.sock"), keeper.clone()] {
        by(BOB, &[], || {
            let mut client = Client::connect(Some(&socket)).expect("is answered");
            assert_eq!(class(client.release(hers.id)), ErrorClass::Refused);
            assert_eq!(class(client.renew(hers.id)), ErrorClass::Refused);
            let seen = pool(&mut client);
            assert!(!format!("{seen:?}").contains("her-secret"), "{seen:?}");
            assert_eq!((seen.reservations.len(), seen.holders[0].owner), (1, ALICE));
            // Nobody can say who they are; and the keeper does nothing else with root's rights.
            let mut raw = UnixStream::connect(&socket).expect("the mode lets it");
            raw.write_all(b"{\"op\":\"pool-release\",\"id\":1,\"owner\":12345}\n").expect("writes");
            let mut text = [0; 1024];
            let read = raw.read(&mut text).expect("is answered");
            assert!(text[..read].starts_with(b"{\"error\":"), "{:?}", String::from_utf8_lossy(&text[..read]));
        });
    }
    by(BOB, &[], || {
        let mut client = Client::connect(Some(&keeper)).expect("is answered");
        let copy = spec(Verb::Copy, world.folder.path(), "pools.toml", "stolen");
        assert_eq!(class(client.submit(&copy)), ErrorClass::Refused);
        assert_eq!(class(client.status(None)), ErrorClass::Refused);
        for name in ["../12345/x", "a/b", ".", "..", ""] {
            assert_eq!(class(reserve(&mut client, name, 1)), ErrorClass::Invalid, "{name}");
        }
    });
    assert_eq!(pool(&mut world.client()).reservations[0].label, "her-secret", "root knows");
    by(ALICE, &[], || assert!(world.client().renew(hers.id).expect("it is hers")));
}

#[test]
fn no_directory_but_a_new_one_is_given_to_whoever_reserves() {
    let Some(world) = world() else { return };
    world.secret("root/file", 0o600);
    std::fs::set_permissions(world.at("root"), Permissions::from_mode(0o700)).expect("chmod");
    by(ALICE, &[], || {
        let mut client = world.client();
        reserve(&mut client, "first", 1).expect("there is room");
        symlink(world.at("root"), world.at("scratch/12345/link")).expect("links");
        std::fs::create_dir(world.at("scratch/12345/mine")).expect("mkdir");
        for name in ["link", "mine", "first"] {
            let error = reserve(&mut client, name, 1).expect_err("the name is taken");
            assert!(error.to_string().contains("is there already"), "{error}");
        }
        assert_eq!(pool(&mut client).reservations.len(), 1, "what was not made is not reserved");
    });
    let facts = std::fs::metadata(world.at("root")).expect("is there");
    assert_eq!((facts.uid(), facts.mode() & 0o777), (0, 0o700));
}

#[test]
fn who_waits_gets_what_is_given_back_and_who_has_gone_gets_nothing() {
    let Some(world) = world() else { return };
    let hers = by(ALICE, &[], || reserve(&mut world.client(), "a", 60).expect("there is room"));
    let waiting = |count| wait_until("the queue", || pool(&mut world.client()).waiting == count);
    // One that goes again is forgotten, though nobody says so.
    let gone = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            by(BOB, &[], || {
                let wanted = || !gone.load(std::sync::atomic::Ordering::Relaxed);
                let came = world.client().reserve(&wish("gone", 50, Some(HOUR)), &wanted);
                assert!(matches!(came, Err(StageError::Stopped { .. })), "{came:?}");
            });
        });
        waiting(1);
        gone.store(true, std::sync::atomic::Ordering::Relaxed);
        waiting(0);
    });
    std::thread::scope(|scope| {
        // Her own share is used up: that is no reason for anybody else to wait.
        let more =
            scope.spawn(|| by(ALICE, &[], || world.client().reserve(&wish("b", 30, Some(HOUR)), &|| true)));
        waiting(1);
        let his = by(BOB, &[], || {
            let mut client = world.client();
            let his = client.reserve(&wish("c", 40, Some(HOUR)), &|| true).expect("there is room for him");
            assert!(!more.is_finished());
            his
        });
        by(ALICE, &[], || world.client().release(hers.id).expect("it is hers"));
        more.join().expect("no panic").expect("now there is room for her");
        by(BOB, &[], || world.client().release(his.id).expect("it is his"));
    });
    let seen = pool(&mut world.client());
    assert_eq!((seen.reserved, seen.waiting), (30 * MIB, 0));
}

#[test]
fn reservations_are_there_after_the_service_was_killed() {
    let Some(mut world) = world() else { return };
    let hers = by(ALICE, &[], || reserve(&mut world.client(), "a", 60).expect("there is room"));
    world.server.take().expect("it runs").kill();
    world.start_with(&["--pools", "pools.toml"]);
    by(BOB, &[], || assert_eq!(class(reserve(&mut world.client(), "b", 41)), ErrorClass::Refused));
    by(ALICE, &[], || world.client().release(hers.id).expect("it is hers"));
    by(BOB, &[], || reserve(&mut world.client(), "b", 41).expect("there is room"));
    let (code, log) = world.server.take().expect("it runs").end();
    assert_eq!(code, 0, "{log}");
}

#[test]
fn a_full_pool_is_in_the_figures_and_the_doctor_says_who_holds_it() {
    let Some(world) = world() else { return };
    by(ALICE, &[], || {
        let mut client = world.client();
        for (name, mebibytes) in [("ckpt-1", 25), ("ckpt-2", 25)] {
            let room = reserve(&mut client, name, mebibytes).expect("there is room");
            std::fs::write(room.directory.0.join("data"), vec![7; (mebibytes * MIB) as usize])
                .expect("writes");
            client.release(room.id).expect("it is hers");
        }
        // The first has a slow copy.
        std::fs::create_dir(world.at("alice/slow")).expect("mkdir");
        let copy = stage::JobSpec {
            verb: Verb::Copy,
            source: Place::of_path(&world.at("scratch/12345/ckpt-1")).expect("a path"),
            destination: Place::of_path(&world.at("alice/slow/ckpt-1")).expect("a path"),
            options: Options::default(),
        };
        let id = client.submit(&copy).expect("accepted");
        client.wait(id, Level::Durable, None).expect("is done");
    });
    by(BOB, &[], || reserve(&mut world.client(), "b", 40).expect("there is room"));
    let found = by(ALICE, &[], || world.client().doctor().expect("is answered"));
    let found = found.iter().find(|finding| finding.code == "pool-full").expect("it is above its watermark");
    assert!(found.what.contains("MiB used and 40 MiB reserved of 100 MiB"), "{}", found.what);
    for words in
        ["uid 12345 holds ", "uid 65534 holds 40", "could be evicted", "ckpt-1", "ckpt-2 stays: no job"]
    {
        assert!(found.why.contains(words), "{words}: {}", found.why);
    }
    let mut scraper = UnixStream::connect(world.at("run/metrics.sock")).expect("is there");
    scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("writes");
    let mut text = String::new();
    scraper.read_to_string(&mut text).expect("is answered");
    for line in ["reserved_bytes{pool=\"scratch\"} 41943040\n", "quota_bytes{pool=\"scratch\"} 104857600\n"] {
        assert!(text.contains(&format!("\nflashwright_stage_pool_{line}")), "{text}");
    }
}

#[test]
fn the_command_asks_the_server_where_one_keeps_pools_and_a_file_where_none_does() {
    let Some(world) = world() else { return };
    let at = ["--socket", "run/stage.sock"];
    let with = |words: &[&'static str]| [&["stage", "pools"], words, &at].concat();
    let folder = world.folder.path();
    let made = json(folder, &with(&["reserve", "scratch", "ckpt-7", "--size=8m", "--json"]));
    let directory = made["reservation"]["directory"].as_str().expect("a path").to_owned();
    assert_eq!(Path::new(&directory), world.at("scratch/0/ckpt-7"));
    fails(folder, &with(&["reserve", "scratch", "ckpt-8", "--size=99m"]), 3, "will never fit");
    works(folder, &with(&["renew", "1"]));
    assert!(works(folder, &with(&["list"])).out.contains("reservation 1"));
    works(folder, &with(&["release", "1"]));
    assert_ne!(run(folder, &with(&["renew", "1"])).code, 0, "it is gone");
    // A file that is named is worked on, whoever keeps pools: its ledger knows nothing of the server's.
    let file = ["--config", "pools.toml", "--ledger", "own.db"];
    let listed = json(folder, &[&["stage", "pools", "list", "--json"][..], &file].concat());
    assert_eq!(listed["pools"][0]["reservations"].as_array().map(Vec::len), Some(0));
    fails(folder, &["stage", "pools", "list", "--socket", "run/none.sock"], 1, "no server answers");
}

#[test]
fn a_pool_that_others_could_write_to_is_not_kept_for_all() {
    let Some(mut world) = world() else { return };
    world.server.take().expect("it runs").end();
    std::fs::set_permissions(world.at("scratch"), Permissions::from_mode(0o777)).expect("chmod");
    let flags =
        ["stage", "serve", "--system", "--state", "state", "--socket", "run/s.sock", "--pools", "pools.toml"];
    fails(world.folder.path(), &flags, 3, "nobody else may write to");
}
