//! A client that does no more than it is told.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nbd::wire::reply::{Head, Payload};
use nbd::wire::request::{self, Request};

/// What a reply said: data or nothing, or an error's number.
pub(super) type Said = Result<Vec<u8>, u32>;

/// The client's end of a conversation.
pub(super) struct Peer {
    pub stream: UnixStream,
    /// To a thread that sends, so that no reply is in the way of the next request.
    outgoing: Sender<Vec<u8>>,
    sender: Option<JoinHandle<()>>,
    structured: bool,
    next: u64,
    /// Offset and length of reads that wait for their replies.
    reads: HashMap<u64, (u64, Vec<u8>)>,
    /// Extents of the last reply that had any.
    pub extents: Vec<(u32, u32)>,
}

impl Peer {
    pub fn new(stream: UnixStream, structured: bool) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("has time-outs");
        let (outgoing, messages) = channel::<Vec<u8>>();
        let mut sender = stream.try_clone().expect("a second descriptor");
        let sends = move || while messages.recv().is_ok_and(|message| sender.write_all(&message).is_ok()) {};
        let sender = Some(std::thread::spawn(sends));
        Self { stream, outgoing, sender, structured, next: 1, reads: HashMap::new(), extents: Vec::new() }
    }

    /// Sends a request, and gives its cookie.
    pub fn ask(&mut self, command: u16, flags: u16, offset: u64, length: u32, payload: &[u8]) -> u64 {
        let cookie = self.next;
        self.next += 1;
        let mut bytes = Request { flags, command, cookie, offset, length }.encode().to_vec();
        bytes.extend_from_slice(payload);
        self.send(bytes);
        if command == request::READ {
            self.reads.insert(cookie, (offset, vec![0; length.min(1 << 26) as usize]));
        }
        cookie
    }

    /// Sends bytes, whatever they mean.
    pub fn send(&mut self, bytes: Vec<u8>) {
        // Where the server has hung up, that shows in the replies.
        let _ = self.outgoing.send(bytes);
    }

    /// The next reply that is complete.
    pub fn reply(&mut self) -> (u64, Said) {
        loop {
            let mut head = vec![0; 16];
            self.stream.read_exact(&mut head).expect("comes in");
            let parsed = match Head::parse(&head).expect("is a reply") {
                Some((parsed, _)) => parsed,
                None => {
                    head.resize(20, 0);
                    self.stream.read_exact(&mut head[16..]).expect("comes in");
                    Head::parse(&head).expect("is a reply").expect("is whole").0
                }
            };
            match parsed {
                Head::Simple(simple) => {
                    let read = self.reads.remove(&simple.cookie);
                    assert!(!self.structured || read.is_none(), "a read is answered in chunks");
                    if simple.error != 0 {
                        return (simple.cookie, Err(simple.error));
                    }
                    let mut data = read.map(|(_, data)| data).unwrap_or_default();
                    self.stream.read_exact(&mut data).expect("comes in");
                    return (simple.cookie, Ok(data));
                }
                Head::Chunk(chunk) => {
                    assert!(self.structured, "no chunks were agreed on");
                    let mut payload = vec![0; chunk.length as usize];
                    self.stream.read_exact(&mut payload).expect("comes in");
                    let failed =
                        self.take_chunk(chunk.cookie, &Payload::parse(&chunk, &payload).expect("parses"));
                    if chunk.is_done() {
                        let data = self.reads.remove(&chunk.cookie).map(|(_, data)| data).unwrap_or_default();
                        return (chunk.cookie, failed.map_or(Ok(data), Err));
                    }
                    assert_eq!(failed, None, "what failed says so last");
                }
            }
        }
    }

    fn take_chunk(&mut self, cookie: u64, payload: &Payload<'_>) -> Option<u32> {
        match payload {
            Payload::Data(offset, bytes) => {
                let (begin, data) = self.reads.get_mut(&cookie).expect("was asked for");
                let at = (offset - *begin) as usize;
                data[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Payload::Status(context, extents) => {
                assert_eq!(*context, 7);
                self.extents = extents.iter().collect();
            }
            Payload::Error(code, ..) => return Some(code.0),
            other => panic!("{other:?} is not sent by this server"),
        }
        None
    }

    /// One request and its reply.
    pub fn call(&mut self, command: u16, flags: u16, offset: u64, length: u32, payload: &[u8]) -> Said {
        let cookie = self.ask(command, flags, offset, length, payload);
        let (answered, said) = self.reply();
        assert_eq!(answered, cookie);
        said
    }

    /// Asks for a byte, and whether an answer came rather than the end.
    pub fn goes_on_answering(&mut self) -> bool {
        self.ask(request::READ, 0, 0, 1, &[]);
        let mut reply = [0; 29];
        self.stream.read_exact(&mut reply).is_ok()
    }

    pub fn say_goodbye(&mut self) {
        self.ask(request::DISC, 0, 0, 0, &[]);
    }

    /// Closes its side once all that it was told to send is sent.
    pub fn finish(&mut self) {
        self.outgoing = channel().0;
        let _ = self.sender.take().map(JoinHandle::join);
        self.stream.shutdown(Shutdown::Write).expect("shuts");
    }

    /// Whether the server has closed its side and said nothing more.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}
