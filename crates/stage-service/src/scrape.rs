//! `GET /metrics`, for Prometheus and nobody else: as much of HTTP/1.1 (RFC 9112) as that takes.
//!
//! On a Unix socket or on a loopback address; others are refused, because the figures tell how a site works and there is
//! neither encryption nor a password here (a proxy has both). A request has a bound in bytes and in time, connections have a
//! number, and each is closed after its answer.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::lines::{LOOK, readable};
use crate::listen::{Access, Listening};
use crate::metrics::CONTENT_TYPE;
use stage::error::StageError;
use stage::pace::Stop;

/// Bytes of a request with its header fields.
const REQUEST_BYTES: usize = 8 << 10;
/// How long a request and its answer may take.
const TIME: Duration = Duration::from_secs(5);
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
        let is_loopback = match address.ip() {
            IpAddr::V4(ip) => ip.is_loopback(),
            IpAddr::V6(ip) => ip.is_loopback(),
        };
        if is_loopback {
            Ok(Self::Loopback(address))
        } else {
            Err("only a loopback address or a Unix socket: whoever reaches it could read it; let a proxy stand before it"
                .to_owned())
        }
    }
}

enum Listener {
    Tcp(TcpListener),
    Unix(Listening),
}

trait Stream: Read + Write + Send {
    fn fd(&self) -> BorrowedFd<'_>;
}

impl<T: Read + Write + AsFd + Send> Stream for T {
    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

/// Answers scrapers.
pub struct Scraping {
    listener: Listener,
    open: Arc<AtomicUsize>,
}

impl Scraping {
    /// Takes the endpoint.
    ///
    /// # Errors
    /// The kernel's; somebody listens there.
    pub fn bind(endpoint: &Endpoint) -> Result<Self, StageError> {
        let listener = match endpoint {
            Endpoint::Unix(path) => Listener::Unix(Listening::bind(path, Access::Group)?),
            Endpoint::Loopback(address) => {
                let listen = || {
                    let listener = TcpListener::bind(address)?;
                    listener.set_nonblocking(true)?;
                    Ok::<_, io::Error>(listener)
                };
                let name = address.to_string();
                Listener::Tcp(
                    listen().map_err(|error| StageError::io("listen at --metrics", name.as_ref(), error))?,
                )
            }
        };
        Ok(Self { listener, open: Arc::default() })
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

    /// Answers until it is asked to stop, from a thread of its own.
    pub fn serve(self, stop: Stop, figures: Arc<dyn Fn() -> Result<String, StageError> + Send + Sync>) {
        while !stop.asked() {
            match self.take() {
                Ok(Some(stream)) if self.open.load(Relaxed) < CONNECTIONS => {
                    let seat = Seat::take(&self.open);
                    let figures = Arc::clone(&figures);
                    let started =
                        std::thread::Builder::new().name("stage-metrics".to_owned()).spawn(move || {
                            let _seat = seat;
                            let mut stream = stream;
                            // An error is the scraper's end; there is nobody to tell.
                            let _ = answer(&mut *stream, figures.as_ref());
                        });
                    if let Err(error) = started {
                        tracing::warn!(%error, "no thread for a scraper");
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot take a scraper's connection");
                    std::thread::sleep(LOOK);
                }
            }
        }
    }

    fn take(&self) -> io::Result<Option<Box<dyn Stream>>> {
        let waits = match &self.listener {
            Listener::Tcp(listener) => readable(listener, LOOK)?,
            Listener::Unix(listening) => readable(&listening.listener, LOOK)?,
        };
        if !waits {
            return Ok(None);
        }
        let taken: io::Result<Box<dyn Stream>> = match &self.listener {
            Listener::Tcp(listener) => listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(TIME))?;
                Ok(Box::new(stream) as _)
            }),
            Listener::Unix(listening) => listening.listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(false)?;
                stream.set_write_timeout(Some(TIME))?;
                Ok(Box::new(stream) as _)
            }),
        };
        match taken {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

fn answer(stream: &mut dyn Stream, figures: &dyn Fn() -> Result<String, StageError>) -> io::Result<()> {
    let head = read_head(stream)?;
    let (status, extra, body) = match Asked::of(&head) {
        Asked::Figures { head_only } => match figures() {
            Ok(text) => ("200 OK", "", if head_only { Body::Length(text.len()) } else { Body::Text(text) }),
            Err(error) => ("500 Internal Server Error", "", Body::Text(format!("{error}\n"))),
        },
        Asked::Elsewhere => ("404 Not Found", "", Body::Text("figures are at /metrics\n".to_owned())),
        Asked::Otherwise => {
            ("405 Method Not Allowed", "Allow: GET, HEAD\r\n", Body::Text("GET /metrics\n".to_owned()))
        }
        Asked::Nonsense => ("400 Bad Request", "", Body::Text("not HTTP/1.1\n".to_owned())),
    };
    let (length, text) = match &body {
        Body::Text(text) => (text.len(), text.as_str()),
        Body::Length(length) => (*length, ""),
    };
    let kind = if status.starts_with("200") { CONTENT_TYPE } else { "text/plain; charset=utf-8" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{extra}Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(text.as_bytes())?;
    stream.flush()
}

enum Body {
    Text(String),
    Length(usize),
}

/// Reads to the empty line behind the header fields, or as much as there is.
fn read_head(stream: &mut dyn Stream) -> io::Result<Vec<u8>> {
    let began = Instant::now();
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while head.len() < REQUEST_BYTES && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = TIME.saturating_sub(began.elapsed());
        if left.is_zero() || !readable(&stream.fd(), left)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match stream.read(&mut buffer)? {
            0 => break,
            read => head.extend_from_slice(&buffer[..read]),
        }
    }
    Ok(head)
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Figures { head_only: bool },
    Elsewhere,
    Otherwise,
    Nonsense,
}

impl Asked {
    fn of(head: &[u8]) -> Self {
        if !head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Self::Nonsense;
        }
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let Ok(line) = std::str::from_utf8(line) else { return Self::Nonsense };
        let words: Vec<&str> = line.split(' ').collect();
        let [method, target, version] = words[..] else { return Self::Nonsense };
        if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
            return Self::Nonsense;
        }
        let path = target.split('?').next().unwrap_or_default();
        match method {
            "GET" | "HEAD" if path == "/metrics" => Self::Figures { head_only: method == "HEAD" },
            "GET" | "HEAD" => Self::Elsewhere,
            _ => Self::Otherwise,
        }
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
    fn requests_are_told_apart() {
        let of = |line: &str| Asked::of(format!("{line}\r\nHost: x\r\n\r\n").as_bytes());
        assert_eq!(of("GET /metrics HTTP/1.1"), Asked::Figures { head_only: false });
        assert_eq!(of("HEAD /metrics?x=1 HTTP/1.0"), Asked::Figures { head_only: true });
        assert_eq!(of("GET / HTTP/1.1"), Asked::Elsewhere);
        assert_eq!(of("GET /metricsx HTTP/1.1"), Asked::Elsewhere);
        assert_eq!(of("POST /metrics HTTP/1.1"), Asked::Otherwise);
        for line in
            ["", "GET", "GET /metrics", "GET  /metrics HTTP/1.1", "GET metrics HTTP/1.1", "\u{0} / HTTP/2"]
        {
            assert_eq!(of(line), Asked::Nonsense, "{line}");
        }
        assert_eq!(Asked::of(b"GET /metrics HTTP/1.1\r\n"), Asked::Nonsense);
        assert_eq!(Asked::of(b"\xff\r\n\r\n"), Asked::Nonsense);
    }

    #[test]
    fn a_silent_scraper_and_an_endless_one_keep_nobody_from_their_figures() {
        let scraping = Scraping::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let Listener::Tcp(listener) = &scraping.listener else { unreachable!() };
        let address = listener.local_addr().unwrap();
        let stop = Stop::new();
        let server = {
            let stop = stop.clone();
            std::thread::spawn(move || scraping.serve(stop, Arc::new(|| Ok("figure 1\n".to_owned()))))
        };
        let _silent = TcpStream::connect(address).unwrap();
        let mut endless = TcpStream::connect(address).unwrap();
        let _ = endless.write_all(&vec![b'x'; 4 * REQUEST_BYTES]);
        let mut asks = TcpStream::connect(address).unwrap();
        asks.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        asks.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\nfigure 1\n"), "{text}");
        assert!(text.contains("Content-Length: 9\r\n"));
        stop.ask();
        server.join().unwrap();
    }
}
