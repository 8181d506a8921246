//! Crowds at a server's door: who is refused, who hangs, who comes and goes, and what is left of it all.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Barrier};

use nbd::client::{ConnectOptions, Session, connect};

use super::open;
use crate::export::Export;
use crate::listen::Allowed;
use crate::server::{Event, Options, Server};

const PLACES: usize = 4;

/// A server of a little memory on a socket, and how many conversations it holds.
fn with_server(test: impl FnOnce(&Path, &AtomicI64)) {
    let folder = tempfile::tempdir().expect("a directory");
    let socket = folder.path().join("s");
    let export =
        Export { name: String::new(), description: String::new(), device: open("mem:1m"), writable: true };
    let inside = Arc::new(AtomicI64::new(0));
    let counted = Arc::clone(&inside);
    let mut server = Server::new(export, Options { max_connections: PLACES, tls: None }, move |event| {
        match event {
            Event::Begun { .. } => counted.fetch_add(1, Ordering::Relaxed),
            Event::Ended { .. } => counted.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    })
    .expect("a server");
    server.listen_unix(&socket, &Allowed::default()).expect("a socket");
    let (stop, asked) = std::io::pipe().expect("a pipe");
    std::thread::scope(|scope| {
        scope.spawn(|| server.run(stop.as_fd()).expect("it serves"));
        test(&socket, &inside);
        drop(asked);
    });
}

fn come(socket: &Path) -> Option<Session> {
    let uri = format!("nbd+unix:///?socket={}", socket.display()).parse().expect("a URI");
    connect(&uri, &ConnectOptions::default()).ok()
}

/// Comes until it is let in; a server that has lost its places never does it.
fn come_in(socket: &Path) -> Session {
    for _ in 0..6000 {
        if let Some(session) = come(socket) {
            return session;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("nobody is served any more");
}

/// A connection that never ends its handshake.
fn half(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).expect("somebody listens");
    let _ = stream.write_all(&[0, 0]);
    stream
}

#[test]
fn a_socket_is_its_owners_alone_from_the_beginning() {
    use std::os::unix::fs::PermissionsExt;
    with_server(|socket, _| {
        let mode = std::fs::metadata(socket).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    });
}

#[test]
fn after_any_crowd_there_are_as_many_places_as_before() {
    with_server(|socket, _| {
        // Numbers from nowhere in particular, the same every time.
        let mut state = 20_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (mut sessions, mut halves) = (Vec::new(), Vec::new());
        for _ in 0..3000 {
            match draw(6) {
                0 => drop(UnixStream::connect(socket)),
                1 => halves.push(half(socket)),
                2 | 3 => sessions.extend(come(socket)),
                4 if !sessions.is_empty() => drop(sessions.swap_remove(draw(sessions.len() as u64) as usize)),
                5 if !halves.is_empty() => drop(halves.swap_remove(draw(halves.len() as u64) as usize)),
                _ => {}
            }
            // So that there is always somebody who comes and goes.
            if sessions.len() + halves.len() > 3 * PLACES {
                halves.clear();
            }
        }
        drop((sessions, halves));
        let all: Vec<Session> = (0..PLACES).map(|_| come_in(socket)).collect();
        assert!(come(socket).is_none(), "one more than there are places");
        drop(all);
    });
}

#[test]
fn no_more_are_served_at_a_time_than_there_are_places() {
    with_server(|socket, inside| {
        let (together, most) = (Barrier::new(24), AtomicI64::new(0));
        let kept: Vec<Option<Session>> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..24)
                .map(|_| {
                    scope.spawn(|| {
                        together.wait();
                        let session = come(socket);
                        most.fetch_max(inside.load(Ordering::Relaxed), Ordering::Relaxed);
                        session
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().expect("does not panic")).collect()
        });
        assert_eq!(kept.iter().flatten().count(), PLACES);
        assert!(most.load(Ordering::Relaxed) <= PLACES as i64);
    });
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    with_server(|socket, _| {
        let mut silent: Vec<UnixStream> = (0..PLACES).map(|_| half(socket)).collect();
        let session = come_in(socket);
        // One of them has given its place up for it, and finds the end behind the greeting.
        let gone = silent.iter_mut().filter_map(|stream| {
            stream.set_read_timeout(Some(std::time::Duration::from_millis(50))).expect("has time-outs");
            let mut greeting = Vec::new();
            stream.read_to_end(&mut greeting).ok()
        });
        assert!(gone.count() >= 1);
        drop(session);
    });
}
