//! A client that sends what it is told and gives up on nobody for long: see [`PATIENCE`].

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nbd::wire::BASE_ALLOCATION;
use nbd::wire::options::{self, ContextQuery, InfoRequest, ReplyHead};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::script::Script;
use super::talk::Talk;

/// How often nothing may come of a wait, and how long each is: together far beyond what any step takes on the slowest
/// machine, and below what the server itself waits for. Nothing moving for this long is a hang.
pub const PATIENCE: u32 = 50;
pub const SHORT: Duration = Duration::from_secs(1);
/// Bytes of everything that is said before the first reply, at most.
pub const AGREEMENT: usize = 1024;
/// How long somebody who reads late is late.
const LATE: Duration = Duration::from_millis(2);

/// How a client takes leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It sends everything, closes its side, and reads until the end.
    Shut,
    /// It is gone after so many bytes, whatever there is to read.
    Vanish { after: usize },
}

/// See the module's words.
pub struct Client<'b> {
    socket: UnixStream,
    incoming: &'b mut [u8],
    filled: usize,
    taken: usize,
    piece: usize,
    lazy: bool,
    /// Sent before the first phase.
    agreement: Vec<u8>,
    agreed: bool,
    is_over: bool,
}

impl<'b> Client<'b> {
    pub fn connect(path: &Path, script: &Script, incoming: &'b mut [u8]) -> Result<Self, String> {
        let socket = UnixStream::connect(path).map_err(|error| format!("connect: {error}"))?;
        socket.set_nonblocking(true).map_err(|error| format!("fcntl: {error}"))?;
        let mut agreement = 3_u32.to_be_bytes().to_vec();
        if script.structured {
            agreement.extend(options::option(options::STRUCTURED_REPLY, &[]));
        }
        if script.allocation {
            let query = ContextQuery::encode("", &[BASE_ALLOCATION]);
            agreement.extend(options::option(options::SET_META_CONTEXT, &query));
        }
        agreement.extend(options::option(options::GO, &InfoRequest::encode("", &[])));
        let (piece, lazy) = (script.piece, script.lazy);
        Ok(Self {
            socket,
            incoming,
            filled: 0,
            taken: 0,
            piece,
            lazy,
            agreement,
            agreed: false,
            is_over: false,
        })
    }

    /// Sends `bytes`, and hears what is said, until all is answered, or as it takes leave.
    pub fn hold(&mut self, bytes: &[u8], leave: Option<Leave>, talk: &mut Talk<'_>) -> Result<(), String> {
        let agreement = std::mem::take(&mut self.agreement);
        let bytes = match leave {
            Some(Leave::Vanish { after }) => &bytes[..after],
            _ => bytes,
        };
        let mut outgoing = [&agreement[..], bytes];
        let mut is_shut = false;
        loop {
            let sent = self.send(&mut outgoing)?;
            let has_sent = outgoing.iter().all(|part| part.is_empty());
            match leave {
                Some(Leave::Vanish { .. }) if has_sent => return Ok(()),
                Some(Leave::Shut) if has_sent && !is_shut => {
                    is_shut = true;
                    // Where the server has gone already, that is found when its last words are read.
                    let _ = self.socket.shutdown(Shutdown::Write);
                }
                _ => {}
            }
            if sent && self.lazy && !has_sent {
                continue;
            }
            if std::mem::take(&mut self.lazy) {
                std::thread::sleep(LATE);
            }
            let heard = self.hear(talk)?;
            if self.is_over && !self.agreed {
                return Err("the server left before anything was agreed on".into());
            }
            let is_done =
                if leave.is_some() { self.is_over } else { has_sent && self.agreed && talk.is_complete() };
            if is_done {
                return Ok(());
            }
            if self.is_over {
                return Err("the server left in the middle".into());
            }
            if !sent && !heard {
                self.wait(!has_sent)?;
            }
        }
    }

    /// Sends one piece; whether any of it went.
    fn send(&mut self, outgoing: &mut [&[u8]; 2]) -> Result<bool, String> {
        let Some(part) = outgoing.iter_mut().find(|part| !part.is_empty()) else { return Ok(false) };
        let piece = &part[..part.len().min(self.piece)];
        match self.socket.write(piece) {
            Ok(count) => {
                *part = &part[count..];
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if is_gone(&error) => {
                // Whether it might go is judged by what it says of it.
                *outgoing = [&[], &[]];
                Ok(true)
            }
            Err(error) => Err(format!("send: {error}")),
        }
    }

    /// Reads what is there; whether there was anything.
    fn hear(&mut self, talk: &mut Talk<'_>) -> Result<bool, String> {
        let room = &mut self.incoming[self.filled..];
        if room.is_empty() {
            return Err("more is said than was asked".into());
        }
        match self.socket.read(room) {
            Ok(0) => self.is_over = true,
            Ok(count) => self.filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) if is_gone(&error) => self.is_over = true,
            Err(error) => return Err(format!("receive: {error}")),
        }
        if !self.agreed {
            self.agree()?;
        }
        if self.agreed {
            self.taken += talk.take(&self.incoming[self.taken..self.filled])?;
            if self.is_over && self.taken != self.filled {
                return Err("the last reply is cut".into());
            }
        }
        Ok(true)
    }

    /// Looks whether all of the agreement has come.
    fn agree(&mut self) -> Result<(), String> {
        let mut rest = self.incoming[..self.filled].get(options::GREETING_BYTES..).unwrap_or_default();
        while let Some(head) = rest.first_chunk::<{ options::REPLY_BYTES }>() {
            let head = ReplyHead::parse(head).map_err(|error| error.to_string())?;
            let Some(behind) = rest.get(options::REPLY_BYTES + head.length as usize..) else { return Ok(()) };
            rest = behind;
            match (head.option, head.kind) {
                (options::GO, options::REP_ACK) => {
                    self.agreed = true;
                    self.taken = self.filled - rest.len();
                    return Ok(());
                }
                (_, kind) if kind & options::REP_ERROR_BIT != 0 => return Err("no agreement".into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn wait(&self, to_send: bool) -> Result<(), String> {
        let interest = if to_send { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let limit = Timespec { tv_sec: SHORT.as_secs() as _, tv_nsec: 0 };
        for _ in 0..PATIENCE {
            match poll(&mut [PollFd::new(&self.socket, interest)], Some(&limit)) {
                Ok(0) => {}
                Ok(_) | Err(rustix::io::Errno::INTR) => return Ok(()),
                Err(error) => return Err(format!("poll: {error}")),
            }
        }
        Err("nothing moves any more".into())
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}
