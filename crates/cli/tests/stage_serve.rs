//! `stage serve` as its user, systemd and Prometheus meet it.

mod common;
mod stage_server;

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{ended, place, run, signal, wait_until};
use stage::{JobSpec, Level, Options, Place, State, Verb};
use stage_server::{Server, spec};
use stage_service::Client;

#[test]
fn a_move_is_carried_out_counted_and_logged_and_the_server_ends_with_0() {
    let folder = place();
    let server = Server::start(
        folder.path(),
        &["--state", "state", "--metrics", "unix:metrics.sock", "--log-format", "json"],
    );
    let mut client = server.client();
    assert_eq!(client.server().pid, server.child.id());
    std::fs::write(folder.path().join("a"), vec![7; 100_000]).expect("writes");
    let id = client.submit(&spec(Verb::Move, folder.path(), "a", "b")).expect("accepted");
    let done = client.wait(id, Level::Durable, None).expect("waits");
    assert_eq!((done.state, done.error), (State::Done, None));
    assert_eq!(std::fs::read(folder.path().join("b")).expect("is there"), vec![7; 100_000]);
    assert!(!folder.path().join("a").exists());

    let mut socket = UnixStream::connect(folder.path().join("metrics.sock")).expect("connects");
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("asks");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("is answered");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    for line in [
        "flashwright_stage_jobs{state=\"done\"} 1",
        "flashwright_stage_jobs_submitted_total 1",
        "flashwright_stage_jobs_ended_total{state=\"done\"} 1",
        "flashwright_stage_files_total 1",
        "flashwright_stage_written_bytes_total 100000",
        "flashwright_stage_verified_bytes_total 100000",
        "flashwright_stage_fsync_failures_total 0",
    ] {
        assert!(text.lines().any(|said| said == line), "{line} is not in {text}");
    }
    let (code, log) = server.end();
    assert_eq!(code, 0, "{log}");
    let events: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let done =
        events.iter().find(|event| event["fields"]["message"] == "done").expect("the job's end is logged");
    assert_eq!((&done["span"]["id"], &done["fields"]["bytes"]), (&id.into(), &100_000.into()), "{done}");
    assert!(!folder.path().join("state/stage.sock").exists());
}

#[test]
fn a_server_that_was_killed_is_followed_by_one_that_goes_on_and_the_waiter_does_not_notice() {
    let folder = place();
    std::fs::create_dir(folder.path().join("set")).expect("makes");
    for file in 0..200 {
        std::fs::write(folder.path().join(format!("set/{file}")), vec![file as u8; 10_000]).expect("writes");
    }
    let server = Server::start(folder.path(), &["--state", "state"]);
    let mut client = server.client();
    let id = client.submit(&spec(Verb::Move, folder.path(), "set", "there")).expect("accepted");
    let waiter = std::thread::spawn(move || client.wait(id, Level::Durable, None));
    server.kill();
    let server = Server::start(folder.path(), &["--state", "state"]);
    let done = waiter.join().expect("no panic").expect("waits");
    assert_eq!(done.state, State::Done, "{done:?}");
    for file in 0..200 {
        let bytes = std::fs::read(folder.path().join(format!("there/{file}"))).expect("is there");
        assert_eq!(bytes, vec![file as u8; 10_000]);
    }
    assert!(!folder.path().join("set").exists());
    assert_eq!(server.end().0, 0);
}

#[test]
fn a_second_server_is_refused_whether_it_wants_the_socket_or_the_journal() {
    let folder = place();
    let server = Server::start(folder.path(), &["--state", "state"]);
    let came = run(folder.path(), &["stage", "serve", "--state", "other", "--socket", "state/stage.sock"]);
    assert_eq!(came.code, 3, "{}", came.err);
    assert!(came.err.contains("a server listens there"), "{}", came.err);
    let came = run(folder.path(), &["stage", "serve", "--state", "state", "--socket", "another.sock"]);
    assert_ne!(came.code, 0, "{}", came.err);
    server.client().status(None).expect("the first one goes on");
    assert_eq!(server.end().0, 0);
}

#[test]
fn systemd_is_told_that_it_is_ready_alive_and_stopping() {
    let folder = place();
    let notices = UnixDatagram::bind(folder.path().join("notify")).expect("binds");
    notices.set_read_timeout(Some(Duration::from_secs(60))).expect("sets");
    let mut command = Server::command(folder.path(), &["--state", "state"]);
    command.env("NOTIFY_SOCKET", folder.path().join("notify")).env("WATCHDOG_USEC", "400000");
    let server = Server::spawn(folder.path(), command);
    let until = |what: &str| {
        let mut buffer = [0; 4096];
        let mut seen = String::new();
        while !seen.lines().any(|line| line.starts_with(what)) {
            let bytes = notices.recv(&mut buffer).unwrap_or_else(|e| panic!("{what}: {e}, only {seen}"));
            seen += &String::from_utf8_lossy(&buffer[..bytes]);
        }
    };
    until("READY=1");
    // Again and again, and what is going on in words.
    until("WATCHDOG=1");
    until("STATUS=0 running, 0 queued, 0 failed");
    until("WATCHDOG=1");
    signal(&server.child, "-TERM");
    until("STOPPING=1");
    assert_eq!(server.reap().0, 0);
}

/// Plays systemd: hands a socket over as descriptor 3.
fn handed(folder: &std::path::Path, socket: OwnedFd) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\" 3<&0 </dev/null", "sh"]);
    command.arg(env!("CARGO_BIN_EXE_flashwright")).args(["stage", "serve", "--state", "state"]);
    command.current_dir(folder).stdin(Stdio::from(socket)).stderr(Stdio::piped()).stdout(Stdio::null());
    command
}

#[test]
fn a_socket_that_systemd_hands_over_is_served_and_left_where_it_is() {
    let folder = place();
    let path = folder.path().join("handed.sock");
    let listener = UnixListener::bind(&path).expect("binds");
    // Whoever connects before the server starts is answered once it has.
    let early = {
        let path = path.clone();
        std::thread::spawn(move || Client::connect(Some(&path)).and_then(|mut client| client.status(None)))
    };
    let mut server = handed(folder.path(), listener.into()).spawn().expect("starts");
    assert_eq!(early.join().expect("no panic").expect("is answered"), []);
    signal(&server, "-TERM");
    assert_eq!(ended(&mut server).code(), Some(0));
    assert!(path.exists());
}

#[test]
fn what_is_handed_over_must_be_a_socket_that_is_listened_on() {
    let folder = place();
    let (near, _far) = UnixStream::pair().expect("a pair");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let file = std::fs::File::open("/dev/null").expect("opens");
    for wrong in [OwnedFd::from(near), tcp.into(), file.into()] {
        let output = handed(folder.path(), wrong).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("error: LISTEN_FDS=1: ") && said.contains("hint: "), "{said}");
    }
}

#[test]
fn what_would_be_wrong_is_said_before_anything_is_served() {
    let folder = place();
    std::fs::write(folder.path().join("c.toml"), "jobs = 2\nthreds = 4\n").expect("writes");
    for (arguments, words) in [
        (&["--metrics", "0.0.0.0:9750"][..], "only a loopback address or a Unix socket"),
        (&["--jobs", "0"], "must be above zero"),
        (&["--config", "c.toml"], "line 2: unknown field `threds`"),
        (&["--system"], "--system is no flag"),
    ] {
        let arguments = [&["stage", "serve", "--state", "state"], arguments].concat();
        let came = run(folder.path(), &arguments);
        assert_eq!(came.code, 2, "{arguments:?}: {}", came.err);
        assert!(came.err.contains(words), "{arguments:?}: {}", came.err);
        assert!(!folder.path().join("state").exists());
    }
}

#[test]
fn jobs_that_make_no_sense_are_refused_over_the_socket_as_well() {
    let folder = place();
    let server = Server::start(folder.path(), &["--state", "state"]);
    let relative = JobSpec {
        verb: Verb::Copy,
        source: Place::Path(stage::names::PathText("a".into())),
        destination: Place::Path(stage::names::PathText("b".into())),
        options: Options::default(),
    };
    let error = server.client().submit(&relative).expect_err("is refused");
    assert_eq!(error.class(), stage::ErrorClass::Invalid);
    assert!(error.to_string().contains("not an absolute path"), "{error}");
    wait_until("the connection to be gone", || {
        server.client().metrics().is_ok_and(|text| text.contains("connections 1\n"))
    });
    assert_eq!(server.end().0, 0);
}
