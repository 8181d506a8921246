//! A connection: TCP, a Unix socket, or TLS over one of them.
//!
//! What is guaranteed:
//!
//! - [`Read`] and [`Write`] never fail with `Interrupted`.
//! - Under a deadline ([`Stream::set_deadline`]) a call that waits fails with `TimedOut` when it has passed, no matter how
//!   many bytes trickled in before.
//! - TLS that ends without its good-bye is an error, never an end of file: who can cut the connection cannot
//!   make what was said before look complete (RFC 8446, section 6.1).
//!
//! A TLS stream in non-blocking mode has one rule of its own: where `write` said `WouldBlock`, the next one begins with
//! the same bytes. More may follow them, and they may have moved.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use openssl::ssl::{ErrorCode, SslStream};

use crate::socket::Socket;
use crate::tls::{ClientTls, ServerTls, TlsError};
use crate::transport::Transport;

/// See the module's argument.
#[derive(Debug)]
pub struct Stream(Layer);

#[derive(Debug)]
enum Layer {
    Plain(Socket),
    Tls(Box<SslStream<Socket>>),
    /// Only while TLS begins, or where that failed.
    Closed,
}

fn closed() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl Stream {
    /// A stream over a TCP connection. Small messages are sent at once (`TCP_NODELAY`).
    pub fn tcp(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self(Layer::Plain(Socket::tcp(socket))))
    }

    /// A stream over a Unix socket.
    #[must_use]
    pub fn unix(socket: UnixStream) -> Self {
        Self(Layer::Plain(Socket::unix(socket)))
    }

    fn socket(&self) -> Option<&Socket> {
        match &self.0 {
            Layer::Plain(socket) => Some(socket),
            Layer::Tls(stream) => Some(stream.get_ref()),
            Layer::Closed => None,
        }
    }

    fn socket_mut(&mut self) -> Option<&mut Socket> {
        match &mut self.0 {
            Layer::Plain(socket) => Some(socket),
            Layer::Tls(stream) => Some(stream.get_mut()),
            Layer::Closed => None,
        }
    }

    /// Whether bytes are sent as they are, so that the descriptor may be read and written directly.
    #[must_use]
    #[inline]
    pub fn is_plain(&self) -> bool {
        matches!(self.0, Layer::Plain(_))
    }

    /// Bytes that were received and decrypted already. While there are some, waiting for the descriptor waits too long.
    #[must_use]
    #[inline]
    pub fn pending(&self) -> usize {
        match &self.0 {
            Layer::Tls(stream) => stream.ssl().pending(),
            _ => 0,
        }
    }

    /// Makes calls wait, or not wait.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket().ok_or_else(closed)?.set_nonblocking(nonblocking)
    }

    /// Until when calls that wait do so; for ever without one. It uses `SO_RCVTIMEO` and `SO_SNDTIMEO`, and takes them
    /// away with the deadline. Not for a stream whose calls do not wait.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.socket_mut().ok_or_else(closed)?.set_deadline(deadline)
    }

    /// The TLS version in use, as OpenSSL names it (`TLSv1.3`).
    #[must_use]
    pub fn tls_version(&self) -> Option<&'static str> {
        match &self.0 {
            Layer::Tls(stream) => Some(stream.ssl().version_str()),
            _ => None,
        }
    }

    /// Says that nothing more will be sent: TLS's good-bye, then the socket's. What the peer still sends can be read.
    ///
    /// # Errors
    ///
    /// The good-bye could not be sent, because the peer is gone or takes nothing.
    pub fn shutdown(&mut self) -> io::Result<()> {
        if let Layer::Tls(stream) = &mut self.0 {
            stream.shutdown().map_err(into_io)?;
        }
        let socket = self.socket().ok_or_else(closed)?;
        socket.shutdown_write()
    }

    /// Puts TLS on, by `handshake`.
    fn secure(
        &mut self,
        handshake: impl FnOnce(Socket) -> Result<SslStream<Socket>, TlsError>,
    ) -> Result<(), TlsError> {
        match std::mem::replace(&mut self.0, Layer::Closed) {
            Layer::Plain(socket) => {
                self.0 = Layer::Tls(Box::new(handshake(socket)?));
                Ok(())
            }
            other => {
                self.0 = other;
                Err(TlsError::Twice)
            }
        }
    }
}

impl Transport for Stream {
    fn is_secure(&self) -> bool {
        matches!(self.0, Layer::Tls(_))
    }

    fn secure_as_client(&mut self, tls: &ClientTls) -> Result<(), TlsError> {
        self.secure(|socket| tls.handshake(socket))
    }

    fn secure_as_server(&mut self, tls: &ServerTls) -> Result<(), TlsError> {
        self.secure(|socket| tls.handshake(socket))
    }
}

impl Drop for Stream {
    /// Says TLS's good-bye where that needs no waiting.
    fn drop(&mut self) {
        if let Layer::Tls(stream) = &mut self.0 {
            stream.get_mut().forget_deadline();
            if stream.get_ref().set_nonblocking(true).is_ok() {
                let _ = stream.shutdown();
            }
        }
    }
}

/// An error of OpenSSL's as the I/O error that it means.
fn into_io(error: openssl::ssl::Error) -> io::Error {
    match error.code() {
        ErrorCode::WANT_READ | ErrorCode::WANT_WRITE => io::ErrorKind::WouldBlock.into(),
        _ => match error.into_io_error() {
            Ok(error) => error,
            Err(error) if let Some(errno) = errno_of(&error) => io::Error::from_raw_os_error(errno),
            Err(error) if is_cut(&error) => {
                io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended without TLS's good-bye")
            }
            // What the peer says against us, or what is not TLS.
            Err(error) => io::Error::new(io::ErrorKind::InvalidData, error),
        },
    }
}

/// What the kernel said, where OpenSSL passes it on as an entry in its own list of errors, as 3.6 does of a write: the
/// code is the errno with the highest of 32 bits set (`ERR_SYSTEM_FLAG`, err.h).
fn errno_of(error: &openssl::ssl::Error) -> Option<i32> {
    const SYSTEM: u64 = 1 << 31;
    let codes = error.ssl_error()?.errors().iter().map(|error| error.code());
    codes.filter(|code| code & SYSTEM != 0).find_map(|code| i32::try_from(code & !SYSTEM).ok())
}

/// Whether the socket ended in the middle of TLS.
fn is_cut(error: &openssl::ssl::Error) -> bool {
    match error.ssl_error() {
        Some(stack) => stack.errors().iter().any(|e| e.reason() == Some("unexpected eof while reading")),
        None => error.code() == ErrorCode::SYSCALL,
    }
}

impl Read for Stream {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Layer::Plain(socket) => socket.read(buffer),
            Layer::Tls(_) if buffer.is_empty() => Ok(0),
            Layer::Tls(stream) => match stream.ssl_read(buffer) {
                Ok(bytes) => Ok(bytes),
                Err(error) if error.code() == ErrorCode::ZERO_RETURN => Ok(0),
                Err(error) => Err(into_io(error)),
            },
            Layer::Closed => Err(closed()),
        }
    }

    #[inline]
    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match &mut self.0 {
            Layer::Plain(socket) => socket.read_vectored(buffers),
            _ => match buffers.iter_mut().find(|buffer| !buffer.is_empty()) {
                Some(buffer) => self.read(buffer),
                None => Ok(0),
            },
        }
    }
}

impl Write for Stream {
    #[inline]
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Layer::Plain(socket) => socket.write(buffer),
            Layer::Tls(_) if buffer.is_empty() => Ok(0),
            Layer::Tls(stream) => stream.ssl_write(buffer).map_err(into_io),
            Layer::Closed => Err(closed()),
        }
    }

    #[inline]
    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.0 {
            Layer::Plain(socket) => socket.write_vectored(buffers),
            _ => match buffers.iter().find(|buffer| !buffer.is_empty()) {
                Some(buffer) => self.write(buffer),
                None => Ok(0),
            },
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    /// The socket's descriptor.
    ///
    /// # Panics
    ///
    /// After TLS could not be begun, when there is no socket any more; whoever tried was told.
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().expect("a stream whose handshake failed is not used further").as_fd()
    }
}
