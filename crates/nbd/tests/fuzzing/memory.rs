//! A connection in memory, which notices what must not be.

use std::io::{self, Read, Write};

use nbd::tls::{ClientTls, ServerTls, TlsError};
use nbd::transport::Transport;

/// What the other side says: in the clear, then through TLS.
pub struct Script {
    pub clear: Vec<u8>,
    pub secure: Vec<u8>,
}

/// See the module's words.
pub struct Memory {
    script: Script,
    at: usize,
    pub is_secure: bool,
    /// What was said in the clear, and how much through TLS.
    pub said: Vec<u8>,
    pub said_securely: usize,
    limit: usize,
    ends: u32,
    /// What must not be.
    pub finding: Option<String>,
    /// The most that one call gives.
    piece: usize,
}

impl Memory {
    pub fn new(script: Script, limit: usize, piece: usize) -> Self {
        Self {
            script,
            at: 0,
            is_secure: false,
            // Room that is not allocated while allocations are counted.
            said: Vec::with_capacity(1 << 20),
            said_securely: 0,
            limit,
            ends: 0,
            finding: None,
            piece,
        }
    }

    fn incoming(&self) -> &[u8] {
        let all = if self.is_secure { &self.script.secure } else { &self.script.clear };
        &all[self.at..]
    }

    /// What was taken of what came last: through TLS where there is some.
    pub fn taken(&self) -> &[u8] {
        let all = if self.is_secure { &self.script.secure } else { &self.script.clear };
        &all[..self.at]
    }

    /// What was not taken.
    pub fn rest(&self) -> Vec<u8> {
        self.incoming().to_vec()
    }

    fn found(&mut self, what: String) {
        self.finding.get_or_insert(what);
    }

    fn secure(&mut self) -> Result<(), TlsError> {
        if self.is_secure {
            self.found("TLS within TLS".into());
            return Err(TlsError::Twice);
        }
        if !self.incoming().is_empty() {
            // What was slipped in is no handshake, and OpenSSL says so.
            return Err(TlsError::NoProof);
        }
        (self.is_secure, self.at, self.ends) = (true, 0, 0);
        Ok(())
    }
}

impl Read for Memory {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.len() > self.limit {
            self.found(format!("a buffer of {} bytes, above the limit of {}", buffer.len(), self.limit));
        }
        let count = buffer.len().min(self.incoming().len()).min(self.piece);
        buffer[..count].copy_from_slice(&self.incoming()[..count]);
        self.at += count;
        if count == 0 && !buffer.is_empty() {
            self.ends += 1;
            // A conversation that goes on after the end would go on for ever.
            assert!(self.ends < 16, "the end of the input is not taken for one");
        }
        Ok(count)
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.limit {
            self.found(format!("{} bytes sent at once, above the limit of {}", bytes.len(), self.limit));
        }
        match self.is_secure {
            true => self.said_securely += bytes.len(),
            false => self.said.extend_from_slice(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Memory {
    fn is_secure(&self) -> bool {
        self.is_secure
    }

    fn secure_as_client(&mut self, _: &ClientTls) -> Result<(), TlsError> {
        self.secure()
    }

    fn secure_as_server(&mut self, _: &ServerTls) -> Result<(), TlsError> {
        self.secure()
    }
}
