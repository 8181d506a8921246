//! Nobody is waited for without end: not who says nothing, and not who says a byte now and then.

mod common;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nbd::client::{ConnectError, ConnectOptions, connect};
use nbd::server::{NegotiationError, Policy, TlsPolicy, negotiate};
use nbd::stream::Stream;
use nbd::tls::ServerTls;
use nbd::wire::options::{self, Greeting};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

const SHORT: Duration = Duration::from_millis(200);

fn impatient() -> ConnectOptions {
    // Connecting on this machine is not what is waited for here.
    ConnectOptions {
        connect_timeout: Duration::from_secs(60),
        handshake_timeout: SHORT,
        ..ConnectOptions::default()
    }
}

/// Says a byte now and then until nobody listens; each byte comes long before the time that a read alone would have.
fn trickle(mut socket: TcpStream, bytes: &[u8]) {
    for byte in bytes.iter().chain(std::iter::repeat(&0)) {
        if socket.write_all(&[*byte]).is_err() {
            return;
        }
        std::thread::sleep(SHORT / 20);
    }
}

#[test]
fn a_client_that_says_nothing_or_little_is_left() {
    let policy = Policy { timeout: SHORT, ..Policy::default() };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    let error = negotiate(Stream::tcp(socket).unwrap(), &policy, &common::Disk).unwrap_err();
    assert!(matches!(error, NegotiationError::TimedOut), "{error:?}");
    drop(silent);

    let slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    let said = [&[0, 0, 0, 3][..], &options::option(99, &[0; 10_000])].concat();
    let thread = std::thread::spawn(move || trickle(slow, &said));
    let error = negotiate(Stream::tcp(socket).unwrap(), &policy, &common::Disk).unwrap_err();
    assert!(matches!(error, NegotiationError::TimedOut), "{error:?}");
    thread.join().unwrap();
}

#[test]
fn a_client_that_begins_tls_and_says_no_more_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("keys");
    std::fs::write(&file, format!("a:{}\n", "5a".repeat(32))).unwrap();
    let tls = TlsPolicy::Required(ServerTls::psk(&file).unwrap());
    let policy = Policy { timeout: SHORT, tls, ..Policy::default() };
    let (mut client, server) = UnixStream::pair().unwrap();
    client.write_all(&[0, 0, 0, 3]).unwrap();
    client.write_all(&options::option(options::STARTTLS, &[])).unwrap();
    let error = negotiate(Stream::unix(server), &policy, &common::Disk).unwrap_err();
    assert!(matches!(error, NegotiationError::TimedOut), "{error:?}");
}

#[test]
fn a_server_that_says_nothing_or_little_is_left() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let uri = format!("nbd://127.0.0.1:{}", listener.local_addr().unwrap().port()).parse().unwrap();
    // Nobody accepts: the kernel does, as for a server that hangs.
    let error = connect(&uri, &impatient()).unwrap_err();
    assert!(matches!(error, ConnectError::Silent { .. }) && error.may_pass(), "{error:?}");
    let (socket, _) = listener.accept().unwrap();
    drop(socket);

    let thread = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let said =
            [&Greeting { flags: 3 }.encode()[..], &options::reply(8, options::ERR_UNSUP, &[0; 10_000])]
                .concat();
        trickle(socket, &said);
    });
    let error = connect(&uri, &impatient()).unwrap_err();
    assert!(matches!(error, ConnectError::Silent { .. }), "{error:?}");
    thread.join().unwrap();
}

#[test]
fn a_socket_whose_server_accepts_nobody_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    let address = SocketAddrUnix::new(&path).unwrap();
    let socket =
        |flags| rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let listener = socket(SocketFlags::CLOEXEC);
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    // Fills the queue.
    let mut waiting = Vec::new();
    loop {
        let one = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        if rustix::net::connect(&one, &address).is_err() {
            break;
        }
        waiting.push(one);
    }
    let uri = format!("nbd+unix:///?socket={}", path.display()).parse().unwrap();
    let error = connect(&uri, &ConnectOptions { connect_timeout: SHORT, ..impatient() }).unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
}

#[test]
fn who_is_not_there_is_named() {
    // A port that is taken, on which nobody listens.
    let taken = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&taken, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let port = SocketAddr::try_from(rustix::net::getsockname(&taken).unwrap()).unwrap().port();
    let error = connect(&format!("nbd://127.0.0.1:{port}").parse().unwrap(), &impatient()).unwrap_err();
    assert_eq!(error.to_string(), format!("connect to 127.0.0.1:{port}"));
    assert!(error.hint().is_some() && error.may_pass());
    let error = connect(&"nbd+unix:///?socket=/nowhere/sock".parse().unwrap(), &impatient()).unwrap_err();
    assert_eq!(error.to_string(), "connect to /nowhere/sock");
    let error = connect(&"nbd://host.invalid".parse().unwrap(), &impatient()).unwrap_err();
    assert_eq!(error.to_string(), "find the address of host.invalid");
}

#[test]
fn a_deadline_is_gone_with_the_handshake() {
    let (client, server) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let policy = Policy { timeout: Duration::from_secs(60), ..Policy::default() };
        let agreed = negotiate(Stream::unix(server), &policy, &common::Disk).unwrap();
        // With the time-outs of the socket gone, this waits until the client is.
        let mut stream = agreed.stream;
        stream.read(&mut [0; 1])
    });
    let mut client = client;
    client.write_all(&[0, 0, 0, 3]).unwrap();
    client.write_all(&options::option(options::EXPORT_NAME, b"disk")).unwrap();
    let mut answer = [0; options::GREETING_BYTES + options::EXPORT_NAME_BYTES];
    client.read_exact(&mut answer).unwrap();
    std::thread::sleep(SHORT);
    drop(client);
    assert_eq!(thread.join().unwrap().unwrap(), 0);
}
