//! An NBD server for tests, in this process: it serves a vector, and does with each reply what a script says.
//!
//! It takes connections on a Unix socket, so that it can come back at the same address, and ends with its value.
#![allow(dead_code)] // each test binary uses a part of it

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use nbd::server::{ExportInfo, Exports, Policy, negotiate};
use nbd::stream::Stream;
use nbd::wire::TransmissionFlags as Flags;
use nbd::wire::reply::{self, ErrorCode, SimpleReply};
use nbd::wire::request::{self, Request};

/// What becomes of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It is sent.
    Honest,
    /// This error is sent instead.
    Error(ErrorCode),
    /// These bytes are sent instead.
    Bytes(Vec<u8>),
    /// The request is not done and not answered.
    Silence,
    /// The request is not done, and the connection is closed.
    Close,
    /// The request is done, and the connection is closed after so many bytes of the reply.
    Cut(usize),
}

/// How replies to reads look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Simple replies.
    Simple,
    /// One chunk.
    Whole,
    /// Three chunks, the last first, and `NBD_REPLY_TYPE_NONE` behind them; zeros as holes.
    Pieces,
}

/// The number of a connection, from 0, that of a request on it, and the request.
pub type Script = dyn Fn(u32, u32, &Request) -> Reply + Send + Sync;

/// What outlives a server: its contents.
pub type Contents = Arc<Mutex<Vec<u8>>>;

pub struct Server {
    socket: PathBuf,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    info: ExportInfo,
    style: Style,
    contents: Contents,
    script: Box<Script>,
    policy: Policy,
    stop: AtomicBool,
    accepted: AtomicU32,
    requests: AtomicU32,
    open: Mutex<Vec<UnixStream>>,
}

impl Exports for Shared {
    fn list(&self) -> Vec<(String, String)> {
        vec![(self.info.name.clone(), String::new())]
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        (name == self.info.name).then(|| self.info.clone())
    }
}

/// An export that can do everything, of `size` bytes.
pub fn info(size: u64) -> ExportInfo {
    let all = Flags::FLUSH | Flags::FUA | Flags::TRIM | Flags::WRITE_ZEROES | Flags::MULTI_CONN;
    ExportInfo::new("", size, Flags::of(all))
}

pub fn contents(size: usize) -> Contents {
    Arc::new(Mutex::new((0..size).map(|at| ((at * 31) ^ (at >> 8)) as u8).collect()))
}

impl Server {
    pub fn start(
        socket: &Path,
        info: ExportInfo,
        style: Style,
        contents: &Contents,
        script: impl Fn(u32, u32, &Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(Policy::default(), socket, info, style, contents, script)
    }

    /// The same for those whom `policy` lets in.
    pub fn start_with(
        policy: Policy,
        socket: &Path,
        info: ExportInfo,
        style: Style,
        contents: &Contents,
        script: impl Fn(u32, u32, &Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let _ = std::fs::remove_file(socket);
        let listener = UnixListener::bind(socket).expect("a socket");
        let shared = Arc::new(Shared {
            info,
            style,
            contents: Arc::clone(contents),
            script: Box::new(script),
            policy,
            stop: AtomicBool::new(false),
            accepted: AtomicU32::new(0),
            requests: AtomicU32::new(0),
            open: Mutex::default(),
        });
        let of_acceptor = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || accept(&listener, &of_acceptor));
        Self { socket: socket.to_owned(), shared, acceptor: Some(acceptor) }
    }

    /// Does as it is told throughout.
    pub fn honest(socket: &Path, style: Style, contents: &Contents) -> Self {
        let size = contents.lock().unwrap().len() as u64;
        Self::start(socket, info(size), style, contents, |_, _, _| Reply::Honest)
    }

    /// The device spec with these parameters, `&` before each.
    pub fn spec(&self, parameters: &str) -> String {
        format!("nbd+unix:///?socket={}{parameters}", self.socket.display())
    }

    /// Requests that arrived on all connections.
    pub fn requests(&self) -> u32 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Connections that were accepted.
    pub fn accepted(&self) -> u32 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Cuts all connections that there are.
    pub fn cut(&self) {
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Lets it look at the word.
        let _ = UnixStream::connect(&self.socket);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let _ = std::fs::remove_file(&self.socket);
        self.cut();
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    while let Ok((socket, _)) = listener.accept() {
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
        shared.open.lock().unwrap().push(socket.try_clone().expect("a descriptor"));
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            let Some(mut stream) = agree(socket, &shared) else { return };
            serve(&mut stream, &shared, number);
            // The descriptor that is kept for cutting would keep the connection open.
            let _ = stream.shutdown();
        });
    }
}

/// The handshake.
fn agree(socket: UnixStream, shared: &Shared) -> Option<Stream> {
    if shared.style == Style::Simple {
        let mut stream = Stream::unix(socket);
        return simple_handshake(&mut stream, &shared.info).ok().map(|()| stream);
    }
    let agreed = negotiate(Stream::unix(socket), &shared.policy, shared).ok()?;
    assert!(agreed.structured, "the client takes chunks");
    Some(agreed.stream)
}

/// A handshake that knows `NBD_OPT_GO` and nothing else, as of a server without structured replies.
fn simple_handshake(stream: &mut Stream, info: &ExportInfo) -> std::io::Result<()> {
    let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    stream.read_exact(&mut [0; 4])?;
    loop {
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        let mut data = vec![0; word(&head[12..]) as usize];
        stream.read_exact(&mut data)?;
        let mut answer = |kind: u32, data: &[u8]| {
            let magic = 0x0003_e889_0455_65a9_u64.to_be_bytes();
            let length = (data.len() as u32).to_be_bytes();
            stream.write_all(&[&magic, &head[8..12], &kind.to_be_bytes(), &length, data].concat())
        };
        if word(&head[8..12]) != 7 {
            answer(1 << 31 | 1, &[])?;
            continue;
        }
        answer(3, &[&[0, 0], &info.size.to_be_bytes()[..], &info.flags.0.to_be_bytes()].concat())?;
        let sizes = [info.minimum_block, info.preferred_block, info.maximum_block].map(u32::to_be_bytes);
        answer(3, &[&[0, 3], &sizes.concat()[..]].concat())?;
        return answer(1, &[]);
    }
}

/// Answers requests until either side has enough.
fn serve(stream: &mut Stream, shared: &Shared, connection: u32) {
    let structured = shared.style != Style::Simple;
    for number in 0.. {
        let mut bytes = [0; request::BYTES];
        if stream.read_exact(&mut bytes).is_err() {
            return;
        }
        let request = Request::parse(&bytes).expect("the client sends requests");
        if request.command == request::DISC {
            return;
        }
        let mut data = vec![0; request.payload() as usize];
        if stream.read_exact(&mut data).is_err() {
            return;
        }
        shared.requests.fetch_add(1, Ordering::SeqCst);
        let what = (shared.script)(connection, number, &request);
        let answer = match &what {
            Reply::Silence => continue,
            Reply::Close => return,
            Reply::Bytes(bytes) => bytes.clone(),
            Reply::Error(code) if structured => {
                reply::error_with_message(request.cookie, *code, "as the test has it")
            }
            Reply::Error(code) => SimpleReply::new(request.cookie, Some(*code)).encode().to_vec(),
            Reply::Honest | Reply::Cut(_) => honest(shared, &request, &data, structured),
        };
        let sent = match what {
            Reply::Cut(at) => &answer[..at.min(answer.len())],
            _ => &answer[..],
        };
        if stream.write_all(sent).is_err() || matches!(what, Reply::Cut(_)) {
            return;
        }
    }
}

/// Does a request, and returns the reply to it.
fn honest(shared: &Shared, request: &Request, data: &[u8], structured: bool) -> Vec<u8> {
    let mut contents = shared.contents.lock().unwrap();
    let range = request.offset as usize..request.offset as usize + request.length as usize;
    match request.command {
        request::READ => return read_reply(request, &contents[range], shared.style),
        request::WRITE => contents[range].copy_from_slice(data),
        request::TRIM | request::WRITE_ZEROES => contents[range].fill(0),
        _ => {}
    }
    if structured {
        return reply::none(request.cookie).to_vec();
    }
    SimpleReply::new(request.cookie, None).encode().to_vec()
}

/// The reply to a read.
pub fn read_reply(request: &Request, bytes: &[u8], style: Style) -> Vec<u8> {
    let Request { cookie, offset, .. } = *request;
    let mut answer = Vec::new();
    match style {
        Style::Simple => {
            answer.extend(SimpleReply::new(cookie, None).encode());
            answer.extend(bytes);
        }
        Style::Whole => {
            answer.extend(reply::data_head(cookie, offset, bytes.len() as u32, true));
            answer.extend(bytes);
        }
        Style::Pieces => {
            let third = bytes.len() / 3;
            for (start, end) in [(2 * third, bytes.len()), (0, third), (third, 2 * third)] {
                let (piece, at) = (&bytes[start..end], offset + start as u64);
                match piece {
                    [] => {}
                    piece if piece.iter().all(|byte| *byte == 0) => {
                        answer.extend(reply::hole(cookie, at, piece.len() as u32, false));
                    }
                    piece => {
                        answer.extend(reply::data_head(cookie, at, piece.len() as u32, false));
                        answer.extend(piece);
                    }
                }
            }
            answer.extend(reply::none(cookie));
        }
    }
    answer
}
