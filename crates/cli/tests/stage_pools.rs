//! Pools that a user's server keeps, as programs and the command line meet them.

mod common;
mod stage_server;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use common::{json, place, run, wait_until, works};
use stage::{ErrorClass, JobSpec, Level, Options, Place, StageError, Verb};
use stage_server::Server;
use stage_service::Client;
use stage_service::pools::{PoolStatus, Reservation, Wish};

const MIB: u64 = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);
const FLAGS: [&str; 6] = ["--state", "state", "--pools", "pools.toml", "--metrics", "unix:metrics.sock"];

/// A pool of 100 MiB, of which a user may hold 60.
fn start(folder: &Path) -> Server {
    let scratch = folder.join("scratch");
    if !scratch.exists() {
        std::fs::create_dir(&scratch).expect("mkdir");
        let text = format!(
            "[pool.scratch]\npath = {scratch:?}\nquota = '100m'\nreserve_per_user = '60m'\nhigh = 0.5\nlow = 0.1\n"
        );
        std::fs::write(folder.join("pools.toml"), text).expect("writes");
    }
    Server::start(folder, &FLAGS)
}

fn wish(name: &str, mebibytes: u64, wait: Option<Duration>) -> Wish {
    Wish { pool: "scratch".into(), name: name.into(), bytes: mebibytes * MIB, wait }
}

fn reserve(client: &mut Client, name: &str, mebibytes: u64) -> Result<Reservation, StageError> {
    client.reserve(&wish(name, mebibytes, None), &|| true)
}

fn pool(server: &Server) -> PoolStatus {
    server.client().pools().expect("is answered").remove(0)
}

#[test]
fn a_reservation_outlives_the_server_and_its_room_comes_back_when_it_is_released() {
    let folder = place();
    let server = start(folder.path());
    let first = reserve(&mut server.client(), "ckpt-1", 50).expect("there is room");
    assert!(first.directory.0.ends_with("ckpt-1") && first.directory.0.is_dir());
    std::fs::write(first.directory.0.join("data"), vec![7; MIB as usize]).expect("writes");
    server.kill();
    let server = start(folder.path());
    let mut client = server.client();
    let class = |refused: Result<Reservation, StageError>| refused.expect_err("is refused").class();
    assert_eq!(class(reserve(&mut client, "ckpt-2", 11)), ErrorClass::Refused);
    assert_eq!(class(reserve(&mut client, "ckpt-1", 1)), ErrorClass::Refused, "the name is taken");
    for name in ["../x", "a/b", ".", ""] {
        assert_eq!(class(reserve(&mut client, name, 1)), ErrorClass::Invalid, "{name}");
    }
    assert!(client.renew(first.id).expect("is answered"));
    client.release(first.id).expect("it is there");
    assert!(!client.renew(first.id).expect("is answered"));
    assert!(first.directory.0.join("data").exists(), "what was written stays");
    reserve(&mut client, "ckpt-2", 59).expect("there is room");
    assert_eq!(server.end().0, 0);
}

#[test]
fn a_request_waits_for_room_and_a_client_that_has_gone_waits_no_more() {
    let folder = place();
    let server = start(folder.path());
    let first = reserve(&mut server.client(), "a", 60).expect("there is room");
    let waiting = |count| wait_until("the queue", || pool(&server).waiting == count);
    let gone = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let wanted = || !gone.load(std::sync::atomic::Ordering::Relaxed);
            let came = server.client().reserve(&wish("gone", 50, Some(HOUR)), &wanted);
            assert!(matches!(came, Err(StageError::Stopped { .. })), "{came:?}");
        });
        waiting(1);
        gone.store(true, std::sync::atomic::Ordering::Relaxed);
        waiting(0);
        let next = scope.spawn(|| server.client().reserve(&wish("b", 40, Some(HOUR)), &|| true));
        waiting(1);
        server.client().release(first.id).expect("it is there");
        next.join().expect("no panic").expect("now there is room");
    });
    let seen = pool(&server);
    assert_eq!((seen.reserved, seen.waiting), (40 * MIB, 0));
}

#[test]
fn a_full_pool_is_in_the_figures_and_the_doctor_says_who_holds_it() {
    let folder = place();
    let server = start(folder.path());
    let mut client = server.client();
    for name in ["ckpt-1", "ckpt-2"] {
        let room = reserve(&mut client, name, 28).expect("there is room");
        std::fs::write(room.directory.0.join("data"), vec![7; (28 * MIB) as usize]).expect("writes");
        client.release(room.id).expect("it is there");
        if name == "ckpt-1" {
            std::fs::create_dir(folder.path().join("slow")).expect("mkdir");
            let copy = JobSpec {
                verb: Verb::Copy,
                source: Place::of_path(&room.directory.0).expect("a path"),
                destination: Place::of_path(&folder.path().join("slow/ckpt-1")).expect("a path"),
                options: Options::default(),
            };
            let id = client.submit(&copy).expect("accepted");
            client.wait(id, Level::Durable, None).expect("is done");
        }
    }
    let found = client.doctor().expect("is answered");
    let found = found.iter().find(|finding| finding.code == "pool-full").expect("it is above its watermark");
    for words in ["holds 56", "could be evicted", "ckpt-1", "ckpt-2 stays: no job"] {
        assert!(found.why.contains(words), "{words}: {}", found.why);
    }
    let mut scraper = UnixStream::connect(folder.path().join("metrics.sock")).expect("is there");
    scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("writes");
    let mut text = String::new();
    scraper.read_to_string(&mut text).expect("is answered");
    assert!(text.contains("\nflashwright_stage_pool_quota_bytes{pool=\"scratch\"} 104857600\n"), "{text}");
}

#[test]
fn the_command_asks_the_server_where_one_keeps_pools_and_a_ledger_where_none_does() {
    let folder = place();
    let server = start(folder.path());
    let folder = folder.path();
    let with =
        |words: &[&'static str]| [&["stage", "pools"], words, &["--socket", "state/stage.sock"]].concat();
    let fails = |arguments: &[&str], code: i32, words: &str| {
        let came = run(folder, arguments);
        assert!(came.code == code && came.err.contains(words), "{arguments:?}: {came:#?}");
    };
    let made = json(folder, &with(&["reserve", "scratch", "ckpt-7", "--size=8m", "--json"]));
    assert!(Path::new(made["reservation"]["directory"].as_str().expect("a path")).is_dir());
    fails(&with(&["reserve", "scratch", "ckpt-8", "--size=99m"]), 3, "will never fit");
    works(folder, &with(&["renew", "1"]));
    assert!(works(folder, &with(&["list"])).out.contains("reservation 1"));
    works(folder, &with(&["release", "1"]));
    fails(&with(&["renew", "1"]), 1, "reservation 1: is not there");
    fails(&with(&["release", "1"]), 1, "reservation 1: is not there");
    fails(&with(&["release", "one"]), 2, "error: one: is not the number of a reservation");
    fails(&with(&["reserve", "scratch"]), 2, "error: flashwright stage pools reserve needs ");
    // A ledger that is named is worked on, whoever keeps pools.
    let file = ["--config", "pools.toml", "--ledger", "own"];
    let list = [&["stage", "pools", "list", "--json"][..], &file].concat();
    fails(&list, 2, "error: --ledger=");
    assert!(!folder.join("own").exists(), "it is not made by being named");
    std::fs::create_dir(folder.join("own")).expect("makes");
    let listed = json(folder, &list);
    assert_eq!(listed["pools"][0]["reservations"].as_array().map(Vec::len), Some(0));
    fails(&["stage", "pools", "list", "--socket", "none.sock"], 1, "no server answers");
    // One that the configuration names is everybody's who is given that configuration.
    let text = std::fs::read_to_string(folder.join("pools.toml")).expect("reads");
    let shared = format!("ledger = {:?}\n{text}", folder.join("shared"));
    std::fs::write(folder.join("shared.toml"), shared).expect("writes");
    let at = |words: &[&'static str], state: &'static str| {
        [&["stage", "pools"], words, &["--config", "shared.toml", "--state", state]].concat()
    };
    works(folder, &at(&["reserve", "scratch", "one", "--size=50m"], "s1"));
    fails(&at(&["reserve", "scratch", "two", "--size=50m"], "s2"), 3, "no room");
    assert_eq!(server.end().0, 0);
}
