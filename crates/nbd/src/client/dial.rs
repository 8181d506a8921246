//! From a place to a connection, within a time.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::ConnectError;
use crate::stream::Stream;
use crate::uri::ServerAddress;

/// Connects to a place: each address of a host in turn, all within `timeout`.
pub(super) fn dial(place: &ServerAddress, timeout: Duration) -> Result<Stream, ConnectError> {
    let deadline = Instant::now() + timeout;
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            ConnectError::Unreachable { host: place.to_string(), within: timeout }
        }
        _ => ConnectError::Connect { host: place.to_string(), source },
    };
    match place {
        ServerAddress::Unix(path) => unix(path, timeout).map(Stream::unix).map_err(failed),
        ServerAddress::Tcp(host, port) => {
            let addresses = resolve(host, *port, deadline)
                .map_err(|source| ConnectError::Resolve { host: host.clone(), source })?;
            tcp(&addresses, deadline).and_then(Stream::tcp).map_err(failed)
        }
    }
}

fn left(deadline: Instant) -> Option<Duration> {
    Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

fn tcp(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::TimedOut.into();
    for (before, address) in addresses.iter().enumerate() {
        let Some(left) = left(deadline) else { break };
        // What an address that does not answer takes is not to be all there is for those after it.
        let share = left / (addresses.len() - before) as u32;
        match TcpStream::connect_timeout(address, share.max(Duration::from_millis(1))) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The addresses of a host. getaddrinfo(3) knows no time-out, so it is called aside where it may have to ask somebody.
fn resolve(host: &str, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let (sender, receiver) = mpsc::channel();
    let name = host.to_owned();
    std::thread::Builder::new().name("resolve".into()).spawn(move || {
        let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        // Nobody may be waiting any more.
        let _ = sender.send(found);
    })?;
    match receiver.recv_timeout(left(deadline).unwrap_or_default()) {
        Ok(Ok(addresses)) if addresses.is_empty() => Err(io::Error::other("the name has no address")),
        Ok(found) => found,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
    }
}

/// connect(2) on a Unix socket waits while the server's queue is full, for as long as `SO_SNDTIMEO` says (unix(7)).
fn unix(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let address = match path.as_os_str().as_bytes().strip_prefix(b"\0") {
        Some(name) => SocketAddrUnix::new_abstract_name(name)?,
        None => SocketAddrUnix::new(path)?,
    };
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address))?;
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket.into())
}
