//! A socket, TCP or Unix, whose calls end at a deadline and are never interrupted. [`crate::stream`] says what that means.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A socket of either kind.
#[derive(Debug)]
enum Kind {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket, and until when it is waited for.
#[derive(Debug)]
pub(crate) struct Socket {
    kind: Kind,
    deadline: Option<Instant>,
}

/// Makes the same call on whichever socket it is.
macro_rules! on {
    ($kind:expr, $socket:ident => $call:expr) => {
        match $kind {
            Kind::Tcp($socket) => $call,
            Kind::Unix($socket) => $call,
        }
    };
}

impl Socket {
    /// A TCP connection, without a deadline.
    pub fn tcp(socket: TcpStream) -> Self {
        Self { kind: Kind::Tcp(socket), deadline: None }
    }

    /// A connection of a Unix socket, without a deadline.
    pub fn unix(socket: UnixStream) -> Self {
        Self { kind: Kind::Unix(socket), deadline: None }
    }

    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        on!(&self.kind, socket => socket.set_nonblocking(nonblocking))
    }

    pub fn set_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.deadline = deadline;
        if deadline.is_none() {
            on!(&self.kind, socket => socket.set_read_timeout(None))?;
            on!(&self.kind, socket => socket.set_write_timeout(None))?;
        }
        Ok(())
    }

    /// Lets calls that follow wait for ever; the socket's own time-outs stay as they are.
    pub fn forget_deadline(&mut self) {
        self.deadline = None;
    }

    /// Ends the sending side.
    pub fn shutdown_write(&self) -> io::Result<()> {
        on!(&self.kind, socket => socket.shutdown(Shutdown::Write))
    }

    pub fn as_fd(&self) -> BorrowedFd<'_> {
        on!(&self.kind, socket => socket.as_fd())
    }

    /// Makes a call until it is not interrupted, and within what is left of the time.
    #[inline]
    fn within(
        &mut self,
        mut call: impl FnMut(&mut Kind) -> io::Result<usize>,
        set_timeout: impl Fn(&Kind, Duration) -> io::Result<()>,
    ) -> io::Result<usize> {
        loop {
            if let Some(deadline) = self.deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                set_timeout(&self.kind, left)?;
            }
            match call(&mut self.kind) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel's time-out ends where the deadline does; what comes of it is asked of the clock above.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.deadline.is_some() => {}
                result => return result,
            }
        }
    }
}

impl Read for Socket {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.within(
            |kind| on!(kind, socket => socket.read(buffer)),
            |kind, left| on!(kind, socket => socket.set_read_timeout(Some(left))),
        )
    }

    #[inline]
    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.within(
            |kind| on!(kind, socket => socket.read_vectored(buffers)),
            |kind, left| on!(kind, socket => socket.set_read_timeout(Some(left))),
        )
    }
}

impl Write for Socket {
    #[inline]
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.within(
            |kind| on!(kind, socket => socket.write(buffer)),
            |kind, left| on!(kind, socket => socket.set_write_timeout(Some(left))),
        )
    }

    #[inline]
    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.within(
            |kind| on!(kind, socket => socket.write_vectored(buffers)),
            |kind, left| on!(kind, socket => socket.set_write_timeout(Some(left))),
        )
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
