//! The requests that are under way, by their cookies.
//!
//! A cookie is the request's place in the table and a number that no other sending has, so that an answer that comes
//! twice, or to a request that was given up, is told from an answer to the one that stands there now, and a cookie that was
//! damaged from any other request's. A reply's
//! bytes go to the buffer of a request only through [`Table::fill`], which holds them to the request's range, and
//! never twice to the same place: a request is done only when every one of its bytes has arrived once.

use super::durability::Ticket;
use super::replies::ProtocolError;

/// What the server is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Read,
    Write,
    Flush,
    Trim,
    /// `NBD_CMD_WRITE_ZEROES` with these flags.
    Zero(u16),
}

/// A request as its maker hands it over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// By what its result is told.
    pub id: u32,
    /// Which export.
    pub host: u32,
    pub command: Command,
    pub offset: u64,
    pub length: u32,
    /// Where its bytes are, or are to be put; not looked at where it has none.
    pub buffer: *mut u8,
}

/// Chunks that arrived beyond the first gap: more of them than this are no use of the protocol.
const MOST_RANGES: usize = 1024;
/// Errors that one request may be answered with before the last chunk.
const MOST_ERRORS: u8 = 16;

/// One place in the table.
#[derive(Debug)]
pub(crate) struct Entry {
    pub call: Call,
    /// The number of its sending; the upper half of the cookie.
    turn: u32,
    /// The connection that it was sent on.
    pub link: u32,
    /// When it was handed over, milliseconds of the fleet's clock.
    pub since: u32,
    /// Bytes of the connection up to and with this request's last; an answer before these are sent is none.
    pub position: u64,
    /// Bytes from the beginning that have arrived without a gap.
    arrived: u32,
    /// What arrived behind that, ascending and apart.
    beyond: Vec<(u32, u32)>,
    /// The first error that it was answered with, an errno.
    pub error: i32,
    errors: u8,
    /// How often it was handed to a connection.
    pub attempts: u8,
    /// Of a flush that was begun.
    pub ticket: Option<Ticket>,
    pub under_way: bool,
}

// SAFETY: the buffer that an entry names is only touched while the request is under way, by whoever holds the table
// exclusively; see `Fleet::begin`.
unsafe impl Send for Entry {}

/// All places.
#[derive(Debug)]
pub(crate) struct Table {
    entries: Box<[Entry]>,
    /// Sendings so far.
    turns: u32,
}

impl Table {
    pub fn new(places: u32) -> Self {
        let idle = |id| Entry {
            call: Call {
                id,
                host: 0,
                command: Command::Flush,
                offset: 0,
                length: 0,
                buffer: std::ptr::null_mut(),
            },
            turn: 0,
            link: 0,
            since: 0,
            position: 0,
            arrived: 0,
            beyond: Vec::new(),
            error: 0,
            errors: 0,
            attempts: 0,
            ticket: None,
            under_way: false,
        };
        Self { entries: (0..places).map(idle).collect(), turns: 0 }
    }

    pub fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    #[inline]
    pub fn get(&self, place: u32) -> &Entry {
        &self.entries[place as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, place: u32) -> &mut Entry {
        &mut self.entries[place as usize]
    }

    /// Takes a place for `call`.
    #[inline]
    pub fn begin(&mut self, place: u32, call: Call, since: u32) {
        let entry = &mut self.entries[place as usize];
        assert!(!entry.under_way, "place {place} is under way already");
        entry.call = call;
        entry.since = since;
        entry.attempts = 0;
        entry.ticket = None;
        entry.under_way = true;
    }

    /// Makes ready for (another) sending: forgets what arrived, and has a new cookie.
    #[inline]
    pub fn renew(&mut self, place: u32) -> u64 {
        let entry = &mut self.entries[place as usize];
        self.turns = self.turns.wrapping_add(1);
        entry.turn = self.turns;
        entry.arrived = 0;
        entry.beyond.clear();
        entry.error = 0;
        entry.errors = 0;
        entry.attempts = entry.attempts.saturating_add(1);
        u64::from(entry.turn) << 32 | u64::from(place)
    }

    /// The place that a cookie from connection `link` means, of whose bytes `sent` were sent.
    #[inline]
    pub fn place(&self, cookie: u64, link: u32, sent: u64) -> Result<u32, ProtocolError> {
        let place = cookie as u32;
        match self.entries.get(place as usize) {
            Some(entry)
                if entry.under_way
                    && entry.turn == (cookie >> 32) as u32
                    && entry.link == link
                    && entry.position <= sent =>
            {
                Ok(place)
            }
            _ => Err(ProtocolError::Cookie(cookie)),
        }
    }

    /// Where bytes `at..at + length` of a read's range are to be put. Claims them: nothing else may come there.
    #[inline]
    pub fn claim(&mut self, place: u32, at: u32, length: u32) -> Result<*mut u8, ProtocolError> {
        let entry = &mut self.entries[place as usize];
        let end = at.checked_add(length).filter(|end| *end <= entry.call.length);
        let Some(end) = end.filter(|_| entry.call.command == Command::Read) else {
            return Err(ProtocolError::Range);
        };
        if at == entry.arrived && entry.beyond.is_empty() {
            entry.arrived = end;
        } else {
            entry.claim_apart(at, end)?;
        }
        Ok(entry.call.buffer.wrapping_add(at as usize))
    }

    /// Copies bytes to where [`claim`](Self::claim) said.
    #[inline]
    pub fn fill(to: *mut u8, bytes: &[u8]) {
        // SAFETY: `to` came from `claim`, or is what `claim` returned advanced by what was filled of the length
        // that was claimed; those bytes belong to a request that is under way, whose buffer is this table's alone
        // until it is over. They are no part of `bytes`, which are a connection's own.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Zeroes a range of a read.
    pub fn zero(&mut self, place: u32, at: u32, length: u32) -> Result<(), ProtocolError> {
        let to = self.claim(place, at, length)?;
        // SAFETY: as in `fill`; `length` bytes were claimed.
        unsafe { to.write_bytes(0, length as usize) };
        Ok(())
    }

    /// Notes an error that the server answered with.
    pub fn fail(&mut self, place: u32, errno: i32) -> Result<(), ProtocolError> {
        let entry = &mut self.entries[place as usize];
        if entry.error == 0 {
            entry.error = errno;
        }
        entry.errors += 1;
        if entry.errors > MOST_ERRORS { Err(ProtocolError::Errors) } else { Ok(()) }
    }

    /// What a request came to whose last answer arrived: bytes, or `-errno`. From here on an answer to it is one too
    /// many.
    #[inline]
    pub fn conclude(&mut self, place: u32) -> Result<i64, ProtocolError> {
        let entry = &mut self.entries[place as usize];
        entry.position = u64::MAX;
        match entry.call.command {
            _ if entry.error != 0 => Ok(-i64::from(entry.error)),
            Command::Read if entry.arrived != entry.call.length => Err(ProtocolError::Missing),
            Command::Read | Command::Write => Ok(i64::from(entry.call.length)),
            Command::Flush | Command::Trim | Command::Zero(_) => Ok(0),
        }
    }
}

impl Entry {
    /// Claims a range that does not follow on what arrived.
    #[cold]
    fn claim_apart(&mut self, at: u32, end: u32) -> Result<(), ProtocolError> {
        if at < self.arrived {
            return Err(ProtocolError::Twice);
        }
        if self.beyond.len() >= MOST_RANGES {
            return Err(ProtocolError::Ranges);
        }
        let next = self.beyond.partition_point(|(begin, _)| *begin < at);
        let before = next.checked_sub(1).map_or(self.arrived, |n| self.beyond[n].1);
        if before > at || self.beyond.get(next).is_some_and(|(begin, _)| *begin < end) {
            return Err(ProtocolError::Twice);
        }
        self.beyond.insert(next, (at, end));
        let mut joined = 0;
        for (begin, end) in &self.beyond {
            if *begin != self.arrived {
                break;
            }
            self.arrived = *end;
            joined += 1;
        }
        self.beyond.drain(..joined);
        Ok(())
    }
}
