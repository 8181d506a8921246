//! `GET /metrics`, for Prometheus: as much of HTTP/1.1 (RFC 9112) as that takes.
//!
//! It is served on a Unix socket or on a loopback address. Others are refused, because the figures tell how a site works, and
//! there is neither encryption nor a password here (a proxy has both). A connection has a thread and is closed after its
//! answer. Requests are bounded in bytes and in time, and connections in number, so that a slow or silent scraper keeps no
//! other waiting.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::lines::{POLL_INTERVAL, readable};
use crate::listen::{Access, Listening};
use crate::metrics::CONTENT_TYPE;
use stage::error::StageError;
use stage::pace::Stop;

/// Bytes of a request with its header fields.
const REQUEST_BYTES: usize = 8 << 10;
/// How long a request may take, and its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections at a time.
const CONNECTIONS: usize = 8;

/// Where figures can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A port of this host that only this host reaches.
    Loopback(SocketAddr),
}

impl FromStr for Endpoint {
    type Err = String;

    /// `unix:PATH`, or `127.0.0.1:PORT`, `[::1]:PORT`, `localhost:PORT`.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err("a path is missing after unix:".to_owned()),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let text = text
            .strip_prefix("localhost:")
            .map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
        let address: SocketAddr =
            text.parse().map_err(|_| "unix:PATH or 127.0.0.1:PORT is expected".to_owned())?;
        if address.ip().is_loopback() {
            Ok(Self::Loopback(address))
        } else {
            Err("only a loopback address or a Unix socket: any other may be read by other hosts; let a proxy stand before it"
                .to_owned())
        }
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(Listening),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listening) => listening.listener.as_fd(),
        }
    }
}

/// What a scraper is answered with: the figures, or why there are none.
pub type Answering = dyn Fn() -> Result<String, StageError> + Send + Sync;

/// Answers scrapers.
pub struct Scraping {
    listener: Listener,
    request_timeout: Duration,
}

impl Scraping {
    /// Takes the endpoint.
    ///
    /// # Errors
    /// Another process listens there, or this one may not.
    pub fn bind(endpoint: &Endpoint) -> Result<Self, StageError> {
        let listener = match endpoint {
            Endpoint::Unix(path) => Listener::Unix(Listening::bind(path, Access::Group)?),
            Endpoint::Loopback(address) => {
                let listener = TcpListener::bind(address)
                    .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
                Listener::Tcp(listener.map_err(|error| {
                    StageError::io("listen at --metrics", address.to_string().as_ref(), error)
                })?)
            }
        };
        Ok(Self { listener, request_timeout: REQUEST_TIMEOUT })
    }

    /// Where it is: with the port that was given where 0 was asked for.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.listener {
            Listener::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| String::new(), |a| format!("http://{a}/metrics"))
            }
            Listener::Unix(listening) => format!("unix:{}", listening.shown()),
        }
    }

    /// Answers until it is asked to stop, each scraper from a thread of its own.
    pub fn serve(self, stop: &Stop, figures: &Arc<Answering>) {
        let connections = Arc::new(Connections::default());
        while !stop.asked() {
            let stream = match self.accept() {
                Ok(Some(stream)) => stream,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(%error, "cannot take a scraper's connection");
                    std::thread::sleep(POLL_INTERVAL);
                    continue;
                }
            };
            let Some(entry) = Connections::enter(&connections, &stream) else { continue };
            let (figures, timeout) = (Arc::clone(figures), self.request_timeout);
            let started = std::thread::Builder::new().name("stage-metrics".to_owned()).spawn(move || {
                // An error of the socket is the scraper's end.
                let _ = answer(&stream, &*figures, &entry, timeout);
            });
            if let Err(error) = started {
                tracing::warn!(%error, "no thread for a scraper");
            }
        }
    }

    /// Waits a moment for a connection. Of a socket's family nothing is asked of it but to be read, written and closed, so one type
    /// stands for both.
    fn accept(&self) -> io::Result<Option<UnixStream>> {
        if !readable(&self.listener, POLL_INTERVAL)? {
            return Ok(None);
        }
        match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
            Ok(socket) => {
                let stream = UnixStream::from(socket);
                stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
                Ok(Some(stream))
            }
            Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The open connections. When as many are open as may be, the oldest whose request is not complete is evicted for one that
/// comes, so that silent scrapers keep no other waiting.
#[derive(Debug, Default)]
struct Connections {
    /// By number, in the order of arrival.
    open: Mutex<BTreeMap<u64, Connection>>,
    closed: Condvar,
}

#[derive(Debug)]
struct Connection {
    socket: UnixStream,
    has_request: bool,
    is_evicted: bool,
}

/// A connection's entry, removed when this is dropped.
#[derive(Debug)]
struct Entry {
    connections: Arc<Connections>,
    number: u64,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Connection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a connection. None if all others have complete requests, which are being answered.
    fn enter(connections: &Arc<Self>, stream: &UnixStream) -> Option<Entry> {
        let socket = stream.try_clone().ok()?;
        let is_full = |open: &mut BTreeMap<u64, Connection>| {
            open.len() >= 2 * CONNECTIONS && open.values().any(|one| one.is_evicted)
        };
        // The thread of an evicted connection finds its socket shut down and ends. Until then it is a thread too many; the
        // scraper that comes is not turned away for it.
        let open = connections.open();
        let waited = connections.closed.wait_timeout_while(open, REQUEST_TIMEOUT, is_full);
        let (mut open, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if open.len() >= 2 * CONNECTIONS {
            return None;
        }
        if open.values().filter(|one| !one.is_evicted).count() >= CONNECTIONS {
            let silent = open.values_mut().find(|one| !one.has_request && !one.is_evicted)?;
            silent.is_evicted = true;
            // An error means that its other end has closed it.
            let _ = silent.socket.shutdown(std::net::Shutdown::Both);
        }
        let number = open.last_key_value().map_or(0, |(last, _)| last + 1);
        open.insert(number, Connection { socket, has_request: false, is_evicted: false });
        drop(open);
        Some(Entry { connections: Arc::clone(connections), number })
    }
}

impl Entry {
    /// Its request is complete: it is answered, and not evicted any more.
    fn has_request(&self) {
        if let Some(own) = self.connections.open().get_mut(&self.number) {
            own.has_request = true;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.connections.open().remove(&self.number);
        self.connections.closed.notify_all();
    }
}

fn answer(mut stream: &UnixStream, figures: &Answering, entry: &Entry, timeout: Duration) -> io::Result<()> {
    let plain = "text/plain; charset=utf-8";
    let head = read_head(stream, timeout)?;
    entry.has_request();
    let (status, kind, body) = match target(&head) {
        None => ("400 Bad Request", plain, "GET /metrics is all that is answered\n".to_owned()),
        Some("/metrics") => match figures() {
            Ok(text) => ("200 OK", CONTENT_TYPE, text),
            Err(error) => ("500 Internal Server Error", plain, format!("{error}\n")),
        },
        Some(_) => ("404 Not Found", plain, "figures are at /metrics\n".to_owned()),
    };
    let length = body.len();
    // In one piece: small ones would wait for each other's acknowledgement.
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes())
}

/// Reads to the empty line after the header fields, or as much as there is.
fn read_head(mut stream: &UnixStream, timeout: Duration) -> io::Result<Vec<u8>> {
    let began = Instant::now();
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while head.len() < REQUEST_BYTES && !is_complete(&head) {
        let left = timeout.saturating_sub(began.elapsed());
        if left.is_zero() || !readable(stream, left)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.read(&mut buffer)? {
            0 => break,
            read => head.extend_from_slice(&buffer[..read]),
        }
    }
    Ok(head)
}

fn is_complete(head: &[u8]) -> bool {
    head.windows(4).any(|end| end == b"\r\n\r\n")
}

/// The path of a GET request, without its query. None for anything else.
fn target(head: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["GET", target, version] if version.starts_with("HTTP/1.") && is_complete(head) => {
            target.split('?').next().filter(|path| path.starts_with('/'))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn only_this_host_may_read_figures() {
        assert_eq!("unix:/run/x".parse(), Ok(Endpoint::Unix("/run/x".into())));
        assert_eq!("localhost:9".parse(), Ok(Endpoint::Loopback(([127, 0, 0, 1], 9).into())));
        for text in ["127.0.0.1:9100", "[::1]:0"] {
            assert!(matches!(text.parse(), Ok(Endpoint::Loopback(_))), "{text}");
        }
        for text in ["0.0.0.0:9100", "10.0.0.1:1", "[::]:1", "unix:", "9100", "", "host:1", "127.0.0.1"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_a_get_request_has_a_target() {
        for (line, path) in [
            ("GET /metrics HTTP/1.1", Some("/metrics")),
            ("GET /metrics?x=1 HTTP/1.0", Some("/metrics")),
            ("GET /metricsx HTTP/1.1", Some("/metricsx")),
            ("POST /metrics HTTP/1.1", None),
            ("", None),
            ("GET", None),
            ("GET /metrics", None),
            ("GET  /metrics HTTP/1.1", None),
            ("GET metrics HTTP/1.1", None),
            ("GET / HTTP/2", None),
        ] {
            assert_eq!(target(format!("{line}\r\nHost: x\r\n\r\n").as_bytes()), path, "{line}");
        }
        assert_eq!(target(b"GET /metrics HTTP/1.1\r\n"), None);
        assert_eq!(target(b"\xff\r\n\r\n"), None);
    }

    #[test]
    fn a_scraper_that_comes_waits_for_the_threads_of_evicted_connections_to_end() {
        let connections = Arc::default();
        let mut others = Vec::new();
        let mut enter = || {
            let (near, far) = UnixStream::pair().unwrap();
            others.push(far);
            Connections::enter(&connections, &near)
        };
        let mut entries: Vec<_> = (0..2 * CONNECTIONS).map(|_| enter().unwrap()).collect();
        let evicted = entries.remove(0);
        let (said, is_said) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // As the thread of an evicted connection: it ends once the next scraper has come.
            is_said.recv().unwrap();
            drop(evicted);
        });
        said.send(()).unwrap();
        let last = enter().expect("one has left for it");
        thread.join().unwrap();
        // No evicted connection is left to wait for.
        entries.retain(|entry| !connections.open()[&entry.number].is_evicted);
        entries.push(last);
        for entry in &entries {
            entry.has_request();
        }
        assert_eq!(entries.len(), CONNECTIONS);
        assert!(enter().is_none(), "all are being answered");
    }

    #[test]
    fn a_silent_scraper_and_an_endless_one_keep_no_other_from_the_figures() {
        let mut scraping = Scraping::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        // No scraper is given up for its silence while the test runs.
        scraping.request_timeout = Duration::from_secs(3600);
        let Listener::Tcp(listener) = &scraping.listener else { unreachable!() };
        let address = listener.local_addr().unwrap();
        let stop = Stop::new();
        let server = {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let figures: Arc<Answering> = Arc::new(|| Ok("figure 1\n".to_owned()));
                scraping.serve(&stop, &figures);
            })
        };
        // More than there are seats, and in the queue before the one that asks.
        let _silent: Vec<_> = (0..2 * CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut endless = TcpStream::connect(address).unwrap();
        let _ = endless.write_all(&vec![b'x'; 4 * REQUEST_BYTES]);
        let mut asks = TcpStream::connect(address).unwrap();
        asks.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        asks.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        asks.read_to_string(&mut text).expect("it does not wait for those that are silent");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nfigure 1\n"), "{text}");
        assert!(text.contains("Content-Length: 9\r\n"));
        stop.ask();
        server.join().unwrap();
    }
}
