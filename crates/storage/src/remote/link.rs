//! One connection: requests gathered and sent together, replies taken with few large reads.
//!
//! Headers of requests, and small data, are gathered in one buffer; larger data is sent from where it lies. One
//! call then sends all of it, however many requests there are. Replies are read into one buffer, as many as have
//! arrived, and taken apart there; where much of a read's data is still to come it is read straight into the
//! request's buffer, and what follows it into the connection's, with one call (readv(2)). While nothing but long reads
//! is under way, what follows is the next one's header: no more than that is taken, so that no data is copied twice, and
//! each read's is copied from its first byte on to where it is aligned as in the server's memory.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use nbd::client::Session;
use nbd::wire::reply::{DATA_BYTES, SIMPLE_BYTES};
use nbd::wire::request::{self, Request};

use super::replies::{Over, ProtocolError, Replies};
use super::table::{Command, Table};

/// What replies are read into. With this many bytes what is copied on from it still lies in the second-level cache.
const INPUT: usize = 256 << 10;
/// Data of which as much is still to come is read to its place.
const DIRECT: usize = 32 << 10;
/// After so many bytes whoever waits for them has his turn, and asks for more while others are under way.
const ENOUGH: usize = 256 << 10;
/// Data up to this is sent along with its header; more costs less to send from its place.
const GATHERED: usize = 1 << 10;
/// The same where it is encrypted: what is not gathered makes a TLS record of its own.
const GATHERED_TLS: usize = 16 << 10;
/// Pieces that one call sends at most.
const SLICES: usize = 256;
/// Reads of one connection before others have their turn.
const READS: u32 = 8;

/// Why a connection is of no more use.
#[derive(Debug)]
pub(super) enum Broken {
    /// The server closed it.
    Closed,
    Io(io::Error),
    Protocol(ProtocolError),
}

/// Whether the answer to a request is short enough to be read along with others.
fn is_short(command: Command, length: u32) -> bool {
    command != Command::Read || (length as usize) < DIRECT
}

/// What is to be sent, in order.
#[derive(Debug, Clone, Copy)]
enum Segment {
    /// So many bytes of what was gathered.
    Gathered(usize),
    /// A request's data where it lies.
    Data(*const u8, usize),
}

/// See the module's argument.
#[derive(Debug)]
pub(super) struct Connection {
    session: Session,
    pub replies: Replies,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    gathered: Vec<u8>,
    gathered_sent: usize,
    segments: VecDeque<Segment>,
    queued: u64,
    sent: u64,
    /// Requests under way that are no long reads.
    short: u32,
    /// Bytes of the header that a long read's data follows.
    header: usize,
    /// Whether the socket's buffer was full.
    pub blocked: bool,
    /// Whether a read stopped for others' sake, with more there that nothing else announces.
    pub has_more: bool,
}

// SAFETY: pointers are those of requests under way; see `table::Entry`.
unsafe impl Send for Connection {}

impl Connection {
    pub fn new(session: Session, link: u32) -> Self {
        let replies = Replies::new(link, session.structured);
        let header = if session.structured { DATA_BYTES } else { SIMPLE_BYTES };
        Self {
            session,
            replies,
            input: vec![0; INPUT].into_boxed_slice(),
            start: 0,
            end: 0,
            gathered: Vec::with_capacity(4096),
            gathered_sent: 0,
            segments: VecDeque::with_capacity(SLICES),
            queued: 0,
            sent: 0,
            short: 0,
            header,
            blocked: false,
            has_more: false,
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.session.stream.as_fd()
    }

    /// Whether all that was queued is sent.
    pub fn is_sent(&self) -> bool {
        self.sent == self.queued
    }

    /// The session, where nothing is under way on it.
    pub fn into_session(self) -> Session {
        self.session
    }

    /// Queues a request ("Request message"); returns how many bytes are queued up to and with it.
    #[inline]
    pub fn queue(&mut self, command: Command, cookie: u64, offset: u64, length: u32, data: *const u8) -> u64 {
        let kind: u16 = match command {
            Command::Read => request::READ,
            Command::Write => request::WRITE,
            Command::Flush => request::FLUSH,
            Command::Trim => request::TRIM,
            Command::Zero(_) => request::WRITE_ZEROES,
        };
        let flags = if let Command::Zero(flags) = command { flags } else { 0 };
        self.short += u32::from(is_short(command, length));
        self.gather_header(flags, kind, cookie, offset, length);
        if command == Command::Write {
            let length = length as usize;
            let limit = if self.session.stream.is_plain() { GATHERED } else { GATHERED_TLS };
            self.queued += length as u64;
            if length <= limit {
                // SAFETY: a write that is handed over has `length` bytes at `data`, which stay as they are until it
                // is over; see `Fleet::begin`.
                let bytes = unsafe { std::slice::from_raw_parts(data, length) };
                self.gathered.extend_from_slice(bytes);
                self.note_gathered(length);
            } else {
                self.segments.push_back(Segment::Data(data, length));
            }
        }
        self.queued
    }

    #[inline]
    fn gather_header(&mut self, flags: u16, kind: u16, cookie: u64, offset: u64, length: u32) {
        let header = Request { flags, command: kind, cookie, offset, length }.encode();
        self.gathered.extend_from_slice(&header);
        self.queued += header.len() as u64;
        self.note_gathered(header.len());
    }

    #[inline]
    fn note_gathered(&mut self, bytes: usize) {
        match self.segments.back_mut() {
            Some(Segment::Gathered(length)) => *length += bytes,
            _ => self.segments.push_back(Segment::Gathered(bytes)),
        }
    }

    /// Sends what is queued, as far as the socket takes it. Returns whether any was sent.
    pub fn send(&mut self) -> Result<bool, Broken> {
        let before = self.sent;
        self.blocked = false;
        while self.sent != self.queued {
            match self.send_some() {
                Ok(0) => return Err(Broken::Closed),
                Ok(count) => self.advance(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    break;
                }
                Err(error) => return Err(Broken::Io(error)),
            }
        }
        Ok(self.sent != before)
    }

    fn send_some(&mut self) -> io::Result<usize> {
        if let [Segment::Gathered(_)] = self.segments.as_slices().0
            && self.segments.len() == 1
        {
            return self.session.stream.write(&self.gathered[self.gathered_sent..]);
        }
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        let mut gathered = self.gathered_sent;
        for segment in self.segments.iter().take(SLICES) {
            slices[count] = match *segment {
                Segment::Gathered(length) => {
                    gathered += length;
                    IoSlice::new(&self.gathered[gathered - length..gathered])
                }
                Segment::Data(data, length) => {
                    // SAFETY: as in `queue`.
                    let bytes = unsafe { std::slice::from_raw_parts(data, length) };
                    IoSlice::new(bytes)
                }
            };
            count += 1;
        }
        self.session.stream.write_vectored(&slices[..count])
    }

    /// Strikes off what was sent.
    fn advance(&mut self, mut count: usize) {
        self.sent += count as u64;
        while count > 0 {
            let Some(segment) = self.segments.front_mut() else { return };
            let taken = match segment {
                Segment::Gathered(left) => {
                    let taken = count.min(*left);
                    self.gathered_sent += taken;
                    *left -= taken;
                    if *left > 0 {
                        return;
                    }
                    taken
                }
                Segment::Data(data, left) => {
                    let taken = count.min(*left);
                    *data = data.wrapping_add(taken);
                    *left -= taken;
                    if *left > 0 {
                        return;
                    }
                    taken
                }
            };
            count -= taken;
            self.segments.pop_front();
        }
        if self.segments.is_empty() {
            self.gathered.clear();
            self.gathered_sent = 0;
        }
    }

    /// Takes what has arrived; puts requests that are over into `over`. Returns whether anything arrived.
    pub fn receive(&mut self, table: &mut Table, over: &mut Vec<Over>) -> Result<bool, Broken> {
        let (mut heard, mut bytes) = (false, 0);
        self.has_more = false;
        for _ in 0..READS {
            let (count, asked) = match self.read_some() {
                Ok((0, _)) => return Err(Broken::Closed),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(heard),
                Err(error) => return Err(Broken::Io(error)),
            };
            heard = true;
            bytes += count;
            let before = over.len();
            self.taken_in(count, table, over).map_err(Broken::Protocol)?;
            for (place, _) in &over[before..] {
                let call = table.get(*place).call;
                self.short -= u32::from(is_short(call.command, call.length));
            }
            // A plain socket that gave less than there was room for is empty; a TLS one gives a record at a time.
            if count < asked && self.session.stream.is_plain() {
                return Ok(heard);
            }
            if bytes >= ENOUGH && !over.is_empty() {
                break;
            }
        }
        // A plain socket says again that there is more; what TLS has decrypted already no descriptor announces.
        self.has_more = !self.session.stream.is_plain();
        Ok(heard)
    }

    /// Reads once; returns how much, and for how much there was room.
    #[inline]
    fn read_some(&mut self) -> io::Result<(usize, usize)> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if let Some((to, left)) = self.replies.direct().filter(|(_, left)| *left >= DIRECT) {
                // SAFETY: the bytes belong to a read that is under way and were claimed for this; see
                // `Table::fill`. They are no part of the connection's own buffer.
                let place = unsafe { std::slice::from_raw_parts_mut(to, left) };
                let then = if self.short == 0 { self.header } else { INPUT };
                let asked = left + then;
                let mut both = [IoSliceMut::new(place), IoSliceMut::new(&mut self.input[..then])];
                return Ok((self.session.stream.read_vectored(&mut both)?, asked));
            }
        } else if self.start > 0 {
            // What is left is less than a header and the longest description of an error.
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let only_header = self.end == 0 && self.short == 0 && self.replies.direct().is_none();
        let room = if only_header { &mut self.input[..self.header] } else { &mut self.input[self.end..] };
        let asked = room.len();
        Ok((self.session.stream.read(room)?, asked))
    }

    /// Takes apart `count` bytes that [`read_some`](Self::read_some) read.
    #[inline]
    fn taken_in(
        &mut self,
        count: usize,
        table: &mut Table,
        over: &mut Vec<Over>,
    ) -> Result<(), ProtocolError> {
        let direct = match self.replies.direct() {
            Some((_, left)) if self.end == 0 && left >= DIRECT => left.min(count),
            _ => 0,
        };
        if direct > 0 {
            self.replies.filled(direct, table, over)?;
        }
        self.end += count - direct;
        let taken = self.replies.take(&self.input[self.start..self.end], table, self.sent, over)?;
        self.start += taken;
        Ok(())
    }

    /// Takes leave ("Terminating the transmission phase"), if that goes without waiting.
    pub fn disconnect(mut self) {
        if self.is_sent() {
            self.gather_header(0, request::DISC, 0, 0, 0);
            let _ = self.send();
        }
    }
}
