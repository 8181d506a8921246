//! Clients of every kind against a server whose desk moves nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;

use crate::client::Client;
use crate::desk::Desk;
use crate::error::ServiceError;
use crate::house::{House, Limits};
use crate::listen::{Access, Listening};
use crate::mover::MoverConfig;
use crate::protocol::{Answer, JOBS, LINE_BYTES, Reply, ServerFacts};
use crate::server::each_round;
use crate::testing::{Still, spec};
use stage::error::ErrorClass;
use stage::job::{JobStatus, State};
use stage::pace::Stop;
use stage::spec::Level;

struct Running {
    directory: TempDir,
    desk: Arc<Still>,
    house: Arc<House>,
    accepting: Option<JoinHandle<()>>,
}

/// Takes connections until the server stops.
fn accept(house: &Arc<House>, listening: Listening) -> JoinHandle<()> {
    let house = Arc::clone(house);
    std::thread::spawn(move || {
        while !house.stop.asked() {
            each_round(&listening.listener, &mut |socket| house.receive(socket)).unwrap();
        }
    })
}

impl Running {
    fn with(limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let desk = Arc::new(Still::default());
        let config = MoverConfig { jobs: 1, threads: 1, ..MoverConfig::new(directory.path()) };
        let facts: ServerFacts = super::own::facts(&config.state);
        let house = Arc::new(House::new(desk.clone(), facts, limits, Stop::new()));
        let listening = Listening::bind(&directory.path().join("s"), Access::Own).unwrap();
        let accepting = Some(accept(&house, listening));
        Self { directory, desk, house, accepting }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    fn client(&self) -> Client {
        Client::connect(Some(&self.socket())).unwrap()
    }

    fn raw(&self) -> UnixStream {
        UnixStream::connect(self.socket()).unwrap()
    }

    /// Until so many connections are left. It ends, or the test hangs and says where.
    fn until_connections(&self, left: usize) {
        while self.house.counts.connections.load(Relaxed) != left {
            std::thread::yield_now();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.house.stop.ask();
        self.accepting.take().unwrap().join().unwrap();
        self.house.farewell();
    }
}

fn answer(stream: &UnixStream) -> Answer {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

fn class(answer: &Answer) -> Option<ErrorClass> {
    match answer {
        Answer::Error(why) => Some(why.class),
        Answer::Ok(_) => None,
    }
}

#[test]
fn a_job_is_submitted_waited_for_cancelled_and_retried() {
    let running = Running::with(Limits::default());
    let mut client = running.client();
    assert_eq!(client.server().pid, std::process::id());
    let id = client.submit(&spec("a")).unwrap();
    assert_eq!(client.wait(id, Level::Staged, None).unwrap().state, State::Queued);
    let early = client.wait(id, Level::Durable, Some(Duration::from_millis(1))).unwrap();
    assert_eq!(early.state, State::Queued);

    let waiter = {
        let mut client = running.client();
        std::thread::spawn(move || client.wait(id, Level::Durable, None).unwrap().state)
    };
    running.desk.set(id, State::Done);
    assert_eq!(waiter.join().unwrap(), State::Done);

    running.desk.set_in_memory(id);
    let ended = client.wait(id, Level::Durable, None).unwrap();
    assert_eq!(
        (ended.state, ended.level),
        (State::Done, Level::InMemory),
        "a copy in memory is not waited for"
    );

    assert_eq!(client.cancel(id).unwrap().state, State::Cancelled);
    assert_eq!(client.retry(id).unwrap().state, State::Queued);
    assert_eq!(client.status(None).unwrap().len(), 1);
    let error = client.status(Some(99)).unwrap_err();
    assert_eq!((error.class(), error.hint().as_deref()), (ErrorClass::Invalid, Some("stage status")));
    assert!(client.metrics().unwrap().contains("flashwright_stage_jobs{state=\"queued\"} 1\n"));
    client.doctor().unwrap();
}

/// What ended long ago is not told among all others, and nothing else tells of it.
#[test]
fn an_answer_has_so_many_jobs_and_a_semaphore_is_told_of_its_own() {
    let running = Running::with(Limits::default());
    let mut client = running.client();
    let of_set = |name: &str| {
        let identity = stage::semaphore::Identity::default();
        let path = stage::names::PathText("/fast/x.done".into());
        let semaphore = stage::semaphore::Semaphore { path, identity, watched: None, stays: true };
        let mut spec = spec(name);
        spec.options.semaphore = Some(semaphore);
        spec
    };
    for (id, name) in [(1, "a"), (2, "b")] {
        assert_eq!(client.submit(&of_set(name)).unwrap(), id);
    }
    running.desk.set(1, State::Done);
    let last = JOBS as i64 + 2;
    (3..=last).for_each(|id| running.desk.set(id, State::Done));
    let ids = |jobs: Vec<JobStatus>| jobs.into_iter().map(|job| job.id).collect::<Vec<_>>();
    let told = |jobs: Vec<JobStatus>| {
        let ids = ids(jobs);
        (ids.len(), ids[..3].to_vec(), ids.last().copied())
    };
    let all = told(client.status(None).unwrap());
    assert_eq!(all, (JOBS, vec![2, 4, 5], Some(last)));
    assert_eq!(told(client.known_to(Path::new("/fast/x.done")).unwrap()), (JOBS, vec![1, 2, 5], Some(last)));
    assert_eq!(told(client.known_to(Path::new("/fast/y.done")).unwrap()), all);
}

#[test]
fn whoever_follows_sees_changes_until_they_have_seen_enough() {
    let running = Running::with(Limits::default());
    let mut client = running.client();
    let id = client.submit(&spec("a")).unwrap();
    let mut seen = Vec::new();
    client
        .follow(Duration::from_millis(100), &mut |jobs| {
            seen.push(jobs[0].state);
            running.desk.set(id, State::Running);
            if seen.len() == 3 {
                std::ops::ControlFlow::Break(())
            } else {
                std::ops::ControlFlow::Continue(())
            }
        })
        .unwrap();
    assert_eq!(seen, [State::Queued, State::Running, State::Running]);
    // The client can go on asking, and the thread of the stream has gone.
    assert_eq!(client.status(Some(id)).unwrap().len(), 1);
    running.until_connections(1);
}

#[test]
fn garbage_is_answered_by_an_error_and_the_connection_goes_on() {
    let running = Running::with(Limits::default());
    let mut stream = running.raw();
    for line in [
        &b"\n"[..],
        b"{}\n",
        b"\xff\xfe\x00\n",
        b"[[[[[[[[\n",
        b"{\"op\":\"status\",\"op\":\"status\"}\n",
        b"null\n",
    ] {
        stream.write_all(line).unwrap();
        assert_eq!(class(&answer(&stream)), Some(ErrorClass::Invalid), "{line:?}");
    }
    // Nesting deeper than the parser's bound is an error and no overflow of the stack.
    let mut deep = vec![b'['; LINE_BYTES - 2];
    deep.push(b'\n');
    stream.write_all(&deep).unwrap();
    assert_eq!(class(&answer(&stream)), Some(ErrorClass::Invalid));
    stream.write_all(b"{\"op\":\"status\"}\n").unwrap();
    assert_eq!(answer(&stream), Answer::Ok(Reply::Jobs(Vec::new())));
}

#[test]
fn another_version_is_refused_by_name() {
    let running = Running::with(Limits::default());
    let mut stream = running.raw();
    stream.write_all(b"{\"op\":\"hello\",\"version\":\"flashwright.stage/2\\u001b[2J\"}\n").unwrap();
    let Answer::Error(why) = answer(&stream) else { panic!("accepted") };
    assert!(why.message.contains("flashwright.stage/2\\u{1b}"), "{}", why.message);
}

#[test]
fn a_line_too_long_ends_the_connection_and_no_other() {
    let running = Running::with(Limits::default());
    let mut other = running.client();
    let mut stream = running.raw();
    // It may be closed before all is written.
    let _ = stream.write_all(&vec![b'x'; LINE_BYTES + 1]);
    assert_eq!(class(&answer(&stream)), Some(ErrorClass::Invalid));
    running.until_connections(1);
    other.status(None).unwrap();
}

#[test]
fn half_a_line_is_given_up() {
    let line = Duration::ZERO;
    let running = Running::with(Limits { line, ..Limits::default() });
    let mut stream = running.raw();
    stream.write_all(b"{\"op\":").unwrap();
    assert_eq!(class(&answer(&stream)), Some(ErrorClass::Refused));
    running.until_connections(0);
}

#[test]
fn clients_that_vanish_while_they_wait_or_follow_leave_nothing_behind() {
    let running = Running::with(Limits::default());
    let id = running.client().submit(&spec("a")).unwrap();
    for request in [
        format!("{{\"op\":\"wait\",\"id\":{id},\"level\":\"durable\"}}\n"),
        "{\"op\":\"follow\",\"interval_ms\":60000}\n".into(),
    ] {
        let mut stream = running.raw();
        stream.write_all(request.as_bytes()).unwrap();
        running.until_connections(1);
        drop(stream);
        running.until_connections(0);
    }
}

#[test]
fn who_has_said_all_and_closed_that_half_still_gets_the_answer() {
    let running = Running::with(Limits::default());
    let id = running.client().submit(&spec("a")).unwrap();
    let mut stream = running.raw();
    stream.write_all(format!("{{\"op\":\"wait\",\"id\":{id},\"level\":\"durable\"}}\n").as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    running.desk.set(id, State::Done);
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.contains("\"state\":\"done\""), "{text}");
}

#[test]
fn a_client_that_takes_no_answers_does_not_keep_others_from_theirs() {
    let running = Running::with(Limits::default());
    let mut glutton = running.raw();
    glutton.set_nonblocking(true).unwrap();
    while glutton.write(b"{\"op\":\"metrics\"}\n").is_ok() {}
    running.client().status(None).unwrap();
}

#[test]
fn connections_beyond_the_limit_are_told_so_and_make_room_when_one_ends() {
    let running = Running::with(Limits { connections: 2, ..Limits::default() });
    let first = running.client();
    let _second = running.client();
    let Err(error) = Client::connect(Some(&running.socket())) else { panic!("let in") };
    assert_eq!(error.class(), ErrorClass::Refused);
    drop(first);
    running.until_connections(1);
    running.client();
}

#[test]
fn jobs_beyond_the_limit_are_refused_until_some_have_ended() {
    let running = Running::with(Limits { jobs: 1, ..Limits::default() });
    let mut client = running.client();
    let id = client.submit(&spec("a")).unwrap();
    assert_eq!(client.submit(&spec("b")).unwrap_err().class(), ErrorClass::Refused);
    running.desk.set(id, State::Done);
    client.submit(&spec("b")).unwrap();
}

#[test]
fn a_request_that_is_a_job_already_does_not_count_as_another() {
    let running = Running::with(Limits { jobs: 2, ..Limits::default() });
    let mut client = running.client();
    let made: Vec<_> = (0..5).map(|_| client.submit(&spec("a")).unwrap()).collect();
    assert!(made.iter().all(|id| *id == made[0]), "{made:?}");
    client.submit(&spec("b")).unwrap();
    assert_eq!(client.submit(&spec("c")).unwrap_err().class(), ErrorClass::Refused);
}

#[test]
fn a_waiter_survives_a_server_that_dies_and_comes_back() {
    let running = Running::with(Limits::default());
    let mut client = running.client();
    let id = client.submit(&spec("a")).unwrap();
    let socket = running.socket();
    let waiter = std::thread::spawn(move || client.wait(id, Level::Durable, None).map(|job| job.state));
    let mut running = running;
    running.house.stop.ask();
    running.accepting.take().unwrap().join().unwrap();
    running.house.farewell();

    let successor = Arc::new(Still::default());
    successor.set(id, State::Done);
    let house = Arc::new(House::new(successor, running.house.facts.clone(), Limits::default(), Stop::new()));
    let listening = Listening::bind(&socket, Access::Own).unwrap();
    running.accepting = Some(accept(&house, listening));
    running.house = house;
    assert_eq!(waiter.join().unwrap().unwrap(), State::Done);
}

#[test]
fn without_a_server_a_client_says_where_it_looked() {
    let directory = tempfile::tempdir().unwrap();
    let error = Client::connect(Some(&directory.path().join("s"))).unwrap_err();
    assert!(ServiceError::is_no_server(&error));
    assert!(error.hint().unwrap().contains("--foreground"));
}

#[test]
fn a_list_of_any_length_reaches_the_job_in_requests_of_bounded_length() {
    let running = Running::with(Limits::default());
    let mut wanted = spec("a");
    let file = |number: u64| stage::spec::Expected {
        path: PathBuf::from(format!("{number}{}", "\u{1}".repeat(200))).as_path().into(),
        size: Some(number),
        digest: None,
    };
    wanted.options.expected = (0..5000).map(file).collect();
    let mut client = running.client();
    let id = client.submit(&wanted).unwrap();
    assert_eq!(running.desk.status(Some(id)).unwrap()[0].spec.options.expected, wanted.options.expected);
    // It was this job's, and is not in what is answered.
    let next = client.submit(&spec("b")).unwrap();
    assert_eq!(
        running.desk.status(Some(next)).unwrap()[0].spec.options.expected,
        [] as [stage::spec::Expected; 0]
    );
    assert_eq!(client.status(Some(id)).unwrap()[0].spec.options.expected, [] as [stage::spec::Expected; 0]);
    assert_eq!(running.house.counts.expected_bytes.load(Relaxed), 0);
    // A client that goes takes its list with it.
    let mut stream = running.raw();
    stream.write_all(b"{\"op\":\"expect\",\"files\":[{\"path\":\"a\"}]}\n").unwrap();
    assert_eq!(answer(&stream), Answer::Ok(Reply::Expected { files: 1 }));
    assert_ne!(running.house.counts.expected_bytes.load(Relaxed), 0);
    drop(stream);
    running.until_connections(1);
    assert_eq!(running.house.counts.expected_bytes.load(Relaxed), 0);
}

#[test]
fn lists_of_all_connections_together_have_a_bound() {
    let running = Running::with(Limits { expected_bytes: 1 << 20, ..Limits::default() });
    let mut wanted = spec("a");
    let path: PathBuf = "x".repeat(4000).into();
    let file = stage::spec::Expected { path: path.as_path().into(), size: None, digest: None };
    wanted.options.expected = vec![file; (1 << 20) / 4000];
    let error = running.client().submit(&wanted).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Refused, "{error}");
    running.until_connections(0);
    assert_eq!(running.house.counts.expected_bytes.load(Relaxed), 0);
}

#[test]
fn requests_that_are_begun_on_all_connections_take_little_memory() {
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let running = Running::with(Limits::default());
    let before = resident();
    // Spaces: half a request, as far as a server can tell.
    let _begun: Vec<UnixStream> = (0..running.house.limits.connections)
        .map(|_| {
            let mut stream = running.raw();
            stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
            // It is cut off where the line is too long.
            let _ = stream.write_all(&vec![b' '; 2 << 20]);
            stream
        })
        .collect();
    let grown = resident().saturating_sub(before);
    assert!(grown < 128 << 20, "{} MiB", grown >> 20);
}

/// What this process has had in memory at most, bytes.
fn most_resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim_end_matches("kB").trim().parse::<usize>().unwrap() << 10
}

#[test]
fn a_hundred_connections_take_little_memory_whatever_they_send() {
    const ALONE: &str = "FLASHWRIGHT_CHILD_MEMORY";
    // What a line repeats: files that are kept, and what is refused at once, later, and within a path.
    let kinds = [r#"{"path":"a"}"#, "{}", r#"{"a":0}"#, "0", r#"{"path":"a","size":"#, r#"{"path":["#];
    let Some(kind) = std::env::var_os(ALONE) else {
        // Each in a process of its own: others' tests take memory as well.
        let name = "tests::a_hundred_connections_take_little_memory_whatever_they_send";
        for kind in kinds {
            let output = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--nocapture"])
                .env(ALONE, kind)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && said.contains("1 passed"), "{kind}: {said}");
            print!(
                "{}",
                said.lines().find(|line| line.contains(" KiB ")).unwrap_or_default().to_owned() + "\n"
            );
        }
        return;
    };
    let kind = kind.to_str().unwrap();
    let (start, repeated, end) = match kind.strip_suffix(['[', ':']) {
        // One file whose field is a list of numbers.
        Some(_) => (format!("{}[", kind.trim_end_matches('[')), "0", "]}]}\n"),
        None => (String::new(), kind, "]}\n"),
    };
    let server = Running::with(Limits::default());
    let before = most_resident();
    let clients: Vec<_> = (0..100).map(|_| server.raw()).collect();
    let many = vec![repeated; (LINE_BYTES - 128) / (repeated.len() + 1)].join(",");
    for mut client in &clients {
        // A request that is begun and not finished, and in the end is one.
        client.write_all(format!("{{\"op\":\"expect\",\"files\":[{start}{many}").as_bytes()).unwrap();
    }
    for mut client in &clients {
        client.write_all(end.as_bytes()).unwrap();
    }
    let mut kept = 0;
    for client in &clients {
        match answer(client) {
            Answer::Ok(_) => kept += 1,
            Answer::Error(why) => assert!(kind != kinds[0] || why.class == ErrorClass::Refused, "{why:?}"),
        }
    }
    // Lists are kept up to their bound, and nothing else is.
    assert_eq!(kept > 10, kind == kinds[0], "{kept}");
    let grown = most_resident() - before;
    println!("{kind}: {} KiB for a hundred connections, {kept} lists kept", grown >> 10);
    assert!(grown < 64 << 20, "{grown} bytes for a hundred connections");
}
