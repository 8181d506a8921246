//! Bytes of an export that are read and judged on each new connection, before it is used.
//!
//! A server that was restarted may describe its export as before and hold nothing, or what it held long ago. Its
//! description cannot tell; the bytes can.

use std::fmt;
use std::io::{self, Read, Write};
use std::time::Instant;

use nbd::client::Session;
use nbd::wire::reply::{Chunk, Head, Payload, SIMPLE_BYTES};
use nbd::wire::request::{READ, Request};

/// Whether bytes are what they must be; else what is wrong with them, in words that follow the host's name.
type Judge = dyn Fn(&[u8]) -> Result<(), String> + Send + Sync;

/// A range of an export, and who knows what must stand there.
pub struct Witness {
    offset: u64,
    length: u32,
    judge: Box<Judge>,
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").field("offset", &self.offset).field("length", &self.length).finish()
    }
}

impl Witness {
    /// Of so many bytes, a few thousand at most, from `offset` on.
    pub fn new(
        offset: u64,
        length: u32,
        judge: impl Fn(&[u8]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self { offset, length, judge: Box::new(judge) }
    }

    /// Whether a server takes a request for it that asks for whole blocks.
    pub(super) fn fits(&self, block: u32) -> bool {
        self.offset.is_multiple_of(u64::from(block)) && self.length.is_multiple_of(block)
    }

    /// Looks at the bytes over a connection on which nothing is under way, until `deadline`; what is wrong with them.
    pub(super) fn question(
        &self,
        session: &mut Session,
        deadline: Instant,
    ) -> io::Result<Result<(), String>> {
        session.stream.set_deadline(Some(deadline))?;
        let bytes = self.read(session)?;
        session.stream.set_deadline(None)?;
        Ok((self.judge)(&bytes))
    }

    fn read(&self, session: &mut Session) -> io::Result<Vec<u8>> {
        let (offset, length) = (self.offset, self.length);
        let request = Request { flags: 0, command: READ, cookie: 0, offset, length };
        session.stream.write_all(&request.encode())?;
        session.stream.flush()?;
        let mut found = vec![0; length as usize];
        loop {
            let mut head = [0; SIMPLE_BYTES];
            session.stream.read_exact(&mut head)?;
            let mut bytes = head.to_vec();
            let head = match Head::parse(&bytes).map_err(wrong)? {
                Some((head, _)) => head,
                None => {
                    // A chunk's head is four bytes longer.
                    let mut rest = [0; 4];
                    session.stream.read_exact(&mut rest)?;
                    bytes.extend(rest);
                    Head::parse(&bytes).map_err(wrong)?.ok_or_else(|| wrong("a head that does not end"))?.0
                }
            };
            match head {
                Head::Simple(reply) if reply.cookie != 0 => {
                    return Err(wrong("an answer to another request"));
                }
                Head::Simple(reply) if reply.error != 0 => return Err(wrong("an error")),
                Head::Simple(_) => {
                    session.stream.read_exact(&mut found)?;
                    return Ok(found);
                }
                Head::Chunk(chunk) => {
                    if chunk.cookie != 0 {
                        return Err(wrong("an answer to another request"));
                    }
                    chunk.check(length).map_err(wrong)?;
                    let mut payload = vec![0; chunk.length as usize];
                    session.stream.read_exact(&mut payload)?;
                    self.take(&chunk, &payload, &mut found)?;
                    if chunk.is_done() {
                        return Ok(found);
                    }
                }
            }
        }
    }

    /// Puts what a chunk brings where it belongs. Holes are zeros already, and so is what the server leaves out: whoever
    /// judges will see that.
    fn take(&self, chunk: &Chunk, payload: &[u8], found: &mut [u8]) -> io::Result<()> {
        match Payload::parse(chunk, payload).map_err(wrong)? {
            Payload::Data(at, data) => {
                let start = at.checked_sub(self.offset).and_then(|start| usize::try_from(start).ok());
                let place = start.and_then(|start| found.get_mut(start..start.checked_add(data.len())?));
                place.ok_or_else(|| wrong("data that nobody asked for"))?.copy_from_slice(data);
                Ok(())
            }
            Payload::Hole(..) | Payload::None => Ok(()),
            Payload::Status(..) | Payload::Error(..) => Err(wrong("an error")),
        }
    }
}

fn wrong(why: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server answered a read with {why}"))
}
