//! A connection on which the other side has said everything already.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{self, Cursor, Read, Write};

use nbd::tls::{ClientTls, ServerTls, TlsError};
use nbd::transport::Transport;
use nbd::wire::options;

/// See the module's words.
pub struct Scripted {
    incoming: Cursor<Vec<u8>>,
    /// What we said.
    pub said: Vec<u8>,
}

impl Scripted {
    pub fn new(parts: &[Vec<u8>]) -> Self {
        Self { incoming: Cursor::new(parts.concat()), said: Vec::new() }
    }

    /// What was not read.
    pub fn rest(&self) -> &[u8] {
        &self.incoming.get_ref()[self.incoming.position() as usize..]
    }

    /// What we said behind `skip` bytes, as replies to options: option, kind, data.
    pub fn replies(&self, skip: usize) -> Vec<(u32, u32, Vec<u8>)> {
        let (mut rest, mut replies) = (&self.said[skip..], Vec::new());
        while let Some((head, after)) = rest.split_first_chunk() {
            let head = options::ReplyHead::parse(head).unwrap();
            let (data, after) = after.split_at(head.length as usize);
            replies.push((head.option, head.kind, data.to_vec()));
            rest = after;
        }
        assert!(rest.is_empty(), "{rest:?}");
        replies
    }
}

impl Read for Scripted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.incoming.read(buffer)
    }
}

impl Write for Scripted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.said.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Scripted {
    fn is_secure(&self) -> bool {
        false
    }

    fn secure_as_client(&mut self, _: &ClientTls) -> Result<(), TlsError> {
        Err(TlsError::NoProof)
    }

    fn secure_as_server(&mut self, _: &ServerTls) -> Result<(), TlsError> {
        Err(TlsError::NoProof)
    }
}
