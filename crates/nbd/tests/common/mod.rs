//! A server of memory, as small as it can be and still be inspected, and peers that are not ours.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nbd::client::TransmissionFlags;
use nbd::server::{Context, ExportInfo, Exports, NegotiationError, Policy, negotiate};
use nbd::stream::Stream;
use nbd::wire::{BASE_ALLOCATION, ErrorCode, Request, SimpleReply, reply, request};

/// Bytes of the export.
pub const SIZE: usize = 1 << 20;

/// One export, `disk`, which is the default as well.
pub struct Disk;

impl Exports for Disk {
    fn list(&self) -> Vec<(String, String)> {
        vec![("disk".into(), "a mebibyte of memory".into())]
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        if !matches!(name, "" | "disk") {
            return None;
        }
        let can = TransmissionFlags::FLUSH | TransmissionFlags::DF | TransmissionFlags::MULTI_CONN;
        let mut export = ExportInfo::new("disk", SIZE as u64, TransmissionFlags::of(can));
        export.description = Some("a mebibyte of memory".into());
        export.contexts = vec![Context { id: 7, name: BASE_ALLOCATION.into() }];
        Some(export)
    }
}

/// A server on a port of its own; ends with this value.
pub struct Server {
    pub port: u16,
    /// How negotiations ended that did not get to an export.
    pub failures: Arc<Mutex<Vec<NegotiationError>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(policy: Policy) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, failures) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let memory = Arc::new(Mutex::new(vec![0; SIZE]));
        let (has_to_stop, seen) = (Arc::clone(&stop), Arc::clone(&failures));
        let thread = std::thread::spawn(move || {
            loop {
                let (socket, _) = listener.accept().unwrap();
                if has_to_stop.load(Ordering::SeqCst) {
                    return;
                }
                let (policy, memory, seen) = (policy.clone(), Arc::clone(&memory), Arc::clone(&seen));
                std::thread::spawn(move || match negotiate(Stream::tcp(socket).unwrap(), &policy, &Disk) {
                    Ok(agreed) => {
                        let _ = transmit(agreed.stream, agreed.structured, &agreed.export, &memory);
                    }
                    Err(error) => seen.lock().unwrap().push(error),
                });
            }
        });
        Self { port, failures, stop, thread: Some(thread) }
    }

    pub fn uri(&self, scheme: &str, query: &str) -> String {
        format!("{scheme}://127.0.0.1:{}/disk{query}", self.port)
    }

    /// The first failure, waited for.
    pub fn failure(&self) -> NegotiationError {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(error) = self.failures.lock().unwrap().pop() {
                return error;
            }
            assert!(Instant::now() < end, "the server noticed nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        let _ = self.thread.take().unwrap().join();
    }
}

/// Answers requests one after another.
fn transmit(
    mut stream: Stream,
    structured: bool,
    export: &ExportInfo,
    memory: &Mutex<Vec<u8>>,
) -> io::Result<()> {
    loop {
        let mut head = [0; request::BYTES];
        stream.read_exact(&mut head)?;
        let asked = Request::parse(&head).map_err(io::Error::other)?;
        let mut data = vec![0; asked.payload() as usize];
        stream.read_exact(&mut data)?;
        let range = asked.offset as usize..asked.offset as usize + asked.length as usize;
        let fits = range.end <= SIZE;
        let answer = match asked.command {
            request::DISC => return stream.shutdown(),
            request::READ if fits => {
                let mut answer = match structured {
                    true => reply::data_head(asked.cookie, asked.offset, asked.length, true).to_vec(),
                    false => SimpleReply::new(asked.cookie, None).encode().to_vec(),
                };
                answer.extend_from_slice(&memory.lock().unwrap()[range]);
                answer
            }
            request::READ if structured => {
                reply::error_with_message(asked.cookie, ErrorCode::EINVAL, "beyond the end")
            }
            request::WRITE if fits => {
                memory.lock().unwrap()[range].copy_from_slice(&data);
                SimpleReply::new(asked.cookie, None).encode().to_vec()
            }
            request::FLUSH => SimpleReply::new(asked.cookie, None).encode().to_vec(),
            request::BLOCK_STATUS if fits && !export.contexts.is_empty() => {
                reply::block_status(asked.cookie, export.contexts[0].id, &[(asked.length, 0)])
            }
            _ => SimpleReply::new(asked.cookie, Some(ErrorCode::EINVAL)).encode().to_vec(),
        };
        stream.write_all(&answer)?;
    }
}

/// Whether a program is there; says what is passed over where it is not.
pub fn has(program: &str, what: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        println!("SKIP {what}: {program} is not installed");
    }
    found.is_ok()
}

/// What a program prints, and whether it succeeded.
pub fn run(program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// A peer's server on a Unix socket; ends with this value.
pub struct Peer(Child);

impl Peer {
    /// Starts it, and waits until it listens.
    pub fn start(program: &str, arguments: &[&str], socket: &Path) -> Self {
        let child = Command::new(program).args(arguments).stdin(Stdio::null()).spawn().unwrap();
        let mut peer = Self(child);
        let end = Instant::now() + Duration::from_secs(60);
        while !is_listening(socket) {
            assert!(Instant::now() < end && peer.0.try_wait().unwrap().is_none(), "{program} did not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        peer
    }
}

/// Whether somebody listens on a Unix socket (proc_net_unix: `__SO_ACCEPTCON` among the flags); the file is there before.
fn is_listening(socket: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    table.lines().any(|line| {
        let mut fields = line.split_whitespace();
        fields.nth(3) == Some("00010000") && fields.last() == socket.to_str()
    })
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads from a session and returns the data.
pub fn read(session: &mut nbd::client::Session, offset: u64, length: u32) -> Vec<u8> {
    let asked = Request { flags: 0, command: request::READ, cookie: 42, offset, length };
    session.stream.write_all(&asked.encode()).unwrap();
    let mut data = vec![0; length as usize];
    if session.structured {
        let mut covered = 0;
        loop {
            let mut head = [0; reply::CHUNK_BYTES];
            session.stream.read_exact(&mut head).unwrap();
            let Ok(Some((reply::Head::Chunk(chunk), _))) = reply::Head::parse(&head) else {
                panic!("{head:?}")
            };
            chunk.check(length).unwrap();
            let mut body = vec![0; chunk.length as usize];
            session.stream.read_exact(&mut body).unwrap();
            match reply::Payload::parse(&chunk, &body).unwrap() {
                reply::Payload::Data(at, bytes) => {
                    let at = (at - offset) as usize;
                    data[at..at + bytes.len()].copy_from_slice(bytes);
                    covered += bytes.len() as u32;
                }
                reply::Payload::Hole(_, bytes) => covered += bytes,
                reply::Payload::None => {}
                other => panic!("{other:?}"),
            }
            if chunk.is_done() {
                assert_eq!(covered, length);
                return data;
            }
        }
    }
    let mut head = [0; reply::SIMPLE_BYTES];
    session.stream.read_exact(&mut head).unwrap();
    let expected = SimpleReply { error: 0, cookie: 42 };
    assert_eq!(reply::Head::parse(&head), Ok(Some((reply::Head::Simple(expected), 16))));
    session.stream.read_exact(&mut data).unwrap();
    data
}

/// Writes to a session.
pub fn write(session: &mut nbd::client::Session, offset: u64, data: &[u8]) {
    let asked = Request { flags: 0, command: request::WRITE, cookie: 43, offset, length: data.len() as u32 };
    session.stream.write_all(&asked.encode()).unwrap();
    session.stream.write_all(data).unwrap();
    let mut head = [0; reply::SIMPLE_BYTES];
    session.stream.read_exact(&mut head).unwrap();
    if head[..4] == reply::CHUNK_MAGIC.to_be_bytes() {
        let mut rest = [0; reply::CHUNK_BYTES - reply::SIMPLE_BYTES];
        session.stream.read_exact(&mut rest).unwrap();
        return assert_eq!([&head[..], &rest].concat(), reply::none(43));
    }
    let expected = SimpleReply { error: 0, cookie: 43 };
    assert_eq!(reply::Head::parse(&head), Ok(Some((reply::Head::Simple(expected), 16))));
}
