//! The conversation about memory: requests are done as they are read, between the memory and the socket.
//!
//! 1. One recv(2) fetches all that the client has sent meanwhile.
//! 2. Each request in it is done at once. A small read is copied behind its head into the buffer of replies; a large
//!    one is noted, to be sent from the memory itself. A write is copied out of what was received, and what of its
//!    payload is still to come is received into the memory itself.
//! 3. One sendmsg(2) sends all replies, sooner where a good deal has come together, so that the client has something
//!    to do meanwhile. The data of long reads goes by sendfile(2), which copies nothing.
//!
//! So a busy connection costs two system calls for as many requests as the client keeps in flight, and one copy of
//! each byte beside those of the kernel, none for large requests; for long reads the kernel has none to make either.
//! Under TLS everything passes through the buffers.
//!
//! A client that does not take its replies is not read from any more; what it may make this side hold is two buffers.
//!
//! Memory is written when the reply says so, and stays written whatever connection is asked next: a flush has nothing
//! to add, and holds for all connections.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use nbd::stream::Stream;
use storage::device::{Device, ZeroOptions};
use storage::memory::{MOST_RUNS, Run, SharedMemory};

use crate::error::Ending;
use crate::input::Input;
use crate::link::{Link, WaitPosition};
use crate::reply::{self, Head};
use crate::terms::{Kind, Terms};
use nbd::wire::ErrorCode as Code;
use nbd::wire::request::{self, Request};

/// Reads from this on are sent from the memory itself. Below, a copy into the buffer costs less than the kernel takes
/// to look after one more part of a message.
const DIRECT: u32 = 16 << 10;
/// Reads from this on are not copied at all: the socket refers to the memory's pages, which halves what a read of this
/// length costs the server. Nothing shorter was measured.
const PAGES: u32 = 64 << 10;
/// Replies of this many bytes are sent before more requests are looked at.
const ENOUGH: usize = 256 << 10;
/// The buffer of heads and small replies: what one request may add comes on top of what is enough.
const BUFFER: usize = ENOUGH + DIRECT as usize + 2 * reply::LONGEST;

/// A part of what is to be sent.
#[derive(Debug, Clone, Copy)]
enum Piece {
    /// Of the buffer, up to here from where the last such piece ended.
    Buffer { end: usize },
    /// Of the memory.
    Memory { offset: u64, length: u32 },
}

/// A conversation.
#[derive(Debug)]
pub(crate) struct Conversation<'a> {
    device: &'a dyn Device,
    memory: &'a SharedMemory,
    terms: &'a Terms,
    link: Link<'a>,
    plain: bool,
    input: Input,
    buffer: Box<[u8]>,
    filled: usize,
    pieces: Vec<Piece>,
    waiting: usize,
}

impl<'a> Conversation<'a> {
    pub fn new(device: &'a dyn Device, memory: &'a SharedMemory, terms: &'a Terms, link: Link<'a>) -> Self {
        Self {
            device,
            memory,
            terms,
            plain: link.stream.is_plain(),
            link,
            input: Input::new(),
            buffer: vec![0; BUFFER].into_boxed_slice(),
            filled: 0,
            pieces: Vec::with_capacity(MOST_RUNS),
            waiting: 0,
        }
    }

    /// Answers until the end, and says which it was.
    pub fn hold(mut self) -> Ending {
        let ending = self.answer();
        // Replies that were made are sent, unless it is the connection that failed.
        if !matches!(ending, Ending::Io(_) | Ending::Stalled) {
            let _ = self.send();
        }
        if matches!(ending, Ending::Stopped | Ending::Disconnected) {
            self.link.close();
        }
        ending
    }

    fn answer(&mut self) -> Ending {
        loop {
            match self.answer_all_received() {
                Ok(true) => return Ending::Disconnected,
                Ok(false) => {}
                Err(ending) => return ending,
            }
            if let Err(ending) = self.send().and_then(|()| self.receive_requests()) {
                return ending;
            }
        }
    }

    /// Waits for more of what the client sends.
    fn receive_requests(&mut self) -> Result<(), Ending> {
        let place =
            if self.input.available().is_empty() { WaitPosition::Between } else { WaitPosition::Within };
        let stop = self.link.stop();
        if place == WaitPosition::Between
            && stop.is_asked()
            && (stop.is_due() || !self.link.has_something()?)
        {
            return Err(Ending::Stopped);
        }
        let room = self.input.room();
        match self.link.wait(place, |stream| stream.read(room))? {
            0 => Err(Ending::Closed),
            bytes => {
                self.input.received(bytes);
                Ok(())
            }
        }
    }

    /// Answers what has been received as a whole. True where the client said good-bye.
    fn answer_all_received(&mut self) -> Result<bool, Ending> {
        while let Some(head) = self.input.available().first_chunk::<{ request::BYTES }>() {
            let request = Request::parse(head)?;
            self.input.consume(request::BYTES);
            match self.terms.judge(&request) {
                Ok(Kind::Read) => self.read(&request)?,
                Ok(Kind::Write) => self.write(&request)?,
                Ok(Kind::Disconnect) => return Ok(true),
                Ok(kind) => self.other(kind, &request),
                Err(code) => self.refuse(&request, code)?,
            }
            if self.waiting >= ENOUGH || self.pieces.len() >= MOST_RUNS {
                self.send()?;
            }
        }
        Ok(false)
    }

    #[inline]
    fn read(&mut self, request: &Request) -> Result<(), Ending> {
        let Request { cookie, offset, length, .. } = *request;
        self.put(Head::whole(self.terms.structured, cookie, offset, length).bytes());
        if length < DIRECT {
            let end = self.filled + length as usize;
            self.memory.copy_out(offset, &mut self.buffer[self.filled..end]).map_err(impossible)?;
            self.note(length as usize);
        } else if self.plain {
            self.pieces.push(Piece::Memory { offset, length });
            self.waiting += length as usize;
        } else {
            self.read_through(offset, length)?;
        }
        Ok(())
    }

    /// A large read where all bytes pass through the buffer.
    fn read_through(&mut self, mut offset: u64, length: u32) -> Result<(), Ending> {
        let mut left = length as usize;
        while left > 0 {
            if self.filled == self.buffer.len() {
                self.send()?;
            }
            let part = left.min(self.buffer.len() - self.filled);
            let room = self.filled..self.filled + part;
            self.memory.copy_out(offset, &mut self.buffer[room]).map_err(impossible)?;
            self.note(part);
            (offset, left) = (offset + part as u64, left - part);
        }
        // The next head must fit, whatever is left of the buffer.
        if self.filled > ENOUGH { self.send() } else { Ok(()) }
    }

    #[inline]
    fn write(&mut self, request: &Request) -> Result<(), Ending> {
        let (mut offset, mut left) = (request.offset, request.length as usize);
        while left > 0 {
            let here = self.input.available();
            if here.is_empty() {
                let directly = self.receive_payload(offset, left)?;
                (offset, left) = (offset + directly as u64, left - directly);
                continue;
            }
            let part = here.len().min(left);
            self.memory.copy_in(offset, &here[..part]).map_err(impossible)?;
            self.input.consume(part);
            (offset, left) = (offset + part as u64, left - part);
        }
        self.put(Head::simple(request.cookie, None).bytes());
        Ok(())
    }

    /// Receives up to `left` bytes of a payload into the memory, and what comes after them into the buffer.
    /// Returns how many went into the memory.
    fn receive_payload(&mut self, offset: u64, left: usize) -> Result<usize, Ending> {
        // Whoever waits for these replies before sending the rest is not to wait for ever.
        self.send()?;
        let room = self.input.room();
        let (plain, memory) = (self.plain, self.memory);
        let receive = |stream: &mut Stream| {
            if plain { memory.receive(stream.as_fd(), offset, left, room) } else { stream.read(room) }
        };
        let bytes = match self.link.wait(WaitPosition::Within, receive)? {
            0 => return Err(Ending::Closed),
            bytes => bytes,
        };
        let directly = if self.plain { bytes.min(left) } else { 0 };
        self.input.received(bytes - directly);
        Ok(directly)
    }

    fn other(&mut self, kind: Kind, request: &Request) {
        let Request { cookie, offset, length, .. } = *request;
        let code = match kind {
            // Zeroes in place, which is as much as a discard can mean where all pages are to stay.
            Kind::Trim | Kind::WriteZeroes => {
                let zeroed = self.device.write_zeroes(offset, u64::from(length), ZeroOptions::default());
                zeroed.err().map(|error| crate::error::code_of(&error))
            }
            Kind::BlockStatus => {
                let context = self.terms.allocation.unwrap_or_default();
                // All of it is there.
                let status = reply::block_status(cookie, context, &[(length, 0)]);
                return self.put(&status);
            }
            _ => None,
        };
        self.put(Head::simple(cookie, code).bytes());
    }

    /// Answers a request that is not done, and drops its payload.
    #[cold]
    fn refuse(&mut self, request: &Request, code: Code) -> Result<(), Ending> {
        if request.command == request::WRITE {
            self.drop_payload(request.length)?;
        }
        let chunked = self.terms.is_chunked(request.command);
        self.put(Head::refusal(chunked, request.cookie, code).bytes());
        Ok(())
    }

    fn drop_payload(&mut self, length: u32) -> Result<(), Ending> {
        let mut left = crate::terms::droppable(length)?;
        while left > 0 {
            if self.input.available().is_empty() {
                self.send()?;
                let room = self.input.room();
                match self.link.wait(WaitPosition::Within, |stream| stream.read(room))? {
                    0 => return Err(Ending::Closed),
                    bytes => self.input.received(bytes),
                }
            }
            let part = self.input.available().len().min(left);
            self.input.consume(part);
            left -= part;
        }
        Ok(())
    }

    /// Adds bytes to the buffer, which has room for them: see [`BUFFER`].
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.buffer[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.note(bytes.len());
    }

    /// Takes `bytes` that were put behind what the buffer holds for part of what is to be sent.
    #[inline]
    fn note(&mut self, bytes: usize) {
        self.filled += bytes;
        self.waiting += bytes;
        match self.pieces.last_mut() {
            Some(Piece::Buffer { end }) => *end = self.filled,
            _ => self.pieces.push(Piece::Buffer { end: self.filled }),
        }
    }

    /// Sends all that waits.
    fn send(&mut self) -> Result<(), Ending> {
        if self.waiting == 0 {
            return Ok(());
        }
        if self.plain {
            self.send_pieces()?
        } else {
            self.send_buffer()?
        }
        (self.filled, self.waiting) = (0, 0);
        self.pieces.clear();
        Ok(())
    }

    /// Sends the pieces in order: what is copied together, as far as it goes, and long stretches of the memory as pages.
    fn send_pieces(&mut self) -> Result<(), Ending> {
        let mut begin = 0;
        let mut runs: Vec<Run<'_>> = Vec::with_capacity(self.pieces.len());
        let (memory, link) = (self.memory, &mut self.link);
        for piece in &self.pieces {
            match *piece {
                Piece::Buffer { end } => {
                    runs.push(Run::Bytes(&self.buffer[begin..end]));
                    begin = end;
                }
                Piece::Memory { offset, length } if length < PAGES => {
                    runs.push(Run::Memory { offset, length: length as usize });
                }
                Piece::Memory { offset, length } => {
                    send_runs(memory, link, &mut runs, true)?;
                    runs.clear();
                    send_pages(memory, link, offset, length as usize)?;
                }
            }
        }
        send_runs(memory, link, &mut runs, false)
    }

    fn send_buffer(&mut self) -> Result<(), Ending> {
        let mut rest = &self.buffer[..self.filled];
        while !rest.is_empty() {
            let sent = self.link.wait(WaitPosition::Within, |stream| stream.write(rest))?;
            rest = &rest[sent..];
        }
        Ok(())
    }
}

fn send_runs(
    memory: &SharedMemory,
    link: &mut Link<'_>,
    runs: &mut [Run<'_>],
    more: bool,
) -> Result<(), Ending> {
    let mut rest = runs;
    while !rest.is_empty() {
        let sent = link.wait(WaitPosition::Within, |stream| memory.send(stream.as_fd(), rest, more))?;
        rest = advance(rest, sent);
    }
    Ok(())
}

fn send_pages(
    memory: &SharedMemory,
    link: &mut Link<'_>,
    mut offset: u64,
    mut left: usize,
) -> Result<(), Ending> {
    while left > 0 {
        let sent =
            link.wait(WaitPosition::Within, |stream| memory.send_pages(stream.as_fd(), offset, left))?;
        (offset, left) = (offset + sent as u64, left - sent);
    }
    Ok(())
}

/// What is left of runs after the first `sent` bytes of them.
fn advance<'r, 'b>(mut runs: &'r mut [Run<'b>], mut sent: usize) -> &'r mut [Run<'b>] {
    loop {
        match runs.first_mut() {
            Some(first) if first.len() <= sent => {
                sent -= first.len();
                runs = &mut runs[1..];
            }
            Some(first) => {
                *first = match *first {
                    Run::Bytes(bytes) => Run::Bytes(&bytes[sent..]),
                    Run::Memory { offset, length } => {
                        Run::Memory { offset: offset + sent as u64, length: length - sent }
                    }
                };
                return runs;
            }
            None => return runs,
        }
    }
}

/// A request that was found to lie inside and does not: the memory's size never changes, so this cannot be.
fn impossible(error: storage::memory::OutOfBounds) -> Ending {
    Ending::Io(std::io::Error::other(error))
}
