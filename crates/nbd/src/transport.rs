//! What a handshake is held over: bytes both ways, and a way to put TLS on.
//!
//! The handshakes are written against this rather than against a socket, so that the fuzzer drives the same code from
//! memory.

use std::io::{self, Read, Write};

use crate::tls::{ClientTls, ServerTls, TlsError};

/// See the module's argument.
pub trait Transport: Read + Write {
    /// Whether what is read and written now goes through TLS.
    fn is_secure(&self) -> bool;

    /// Puts TLS on, as its client. After an error nothing more can be read or written.
    ///
    /// # Errors
    ///
    /// The handshake failed, or there is TLS already.
    fn secure_as_client(&mut self, tls: &ClientTls) -> Result<(), TlsError>;

    /// Puts TLS on, as its server. After an error nothing more can be read or written.
    ///
    /// # Errors
    ///
    /// The handshake failed, or there is TLS already.
    fn secure_as_server(&mut self, tls: &ServerTls) -> Result<(), TlsError>;
}

/// Reads and drops `count` bytes, through a small buffer.
pub(crate) fn drop_bytes(from: &mut impl Read, count: u64) -> io::Result<()> {
    let mut buffer = [0; 4096];
    let mut left = count;
    while left > 0 {
        let piece = left.min(buffer.len() as u64) as usize;
        from.read_exact(&mut buffer[..piece])?;
        left -= piece as u64;
    }
    Ok(())
}

/// Reads an array.
pub(crate) fn read_array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
