//! Where a server can be reached.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nbd::stream::Stream;
use rustix::net::sockopt;

use crate::error::ServeError;

/// A connection that has been silent for this long is asked whether its other end is there,
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// again after this long,
const KEEP_ALIVE_AGAIN: Duration = Duration::from_secs(10);
/// and given up after so many questions without an answer.
const KEEP_ALIVE_QUESTIONS: u32 = 6;

/// A socket that takes connections.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub fn tcp(address: SocketAddr) -> Result<Self, ServeError> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        listen().map(Self::Tcp).map_err(|source| ServeError::Listen { address, source })
    }

    /// A socket in the file system. One that a server left behind that was killed is taken away first; one at which
    /// somebody listens is not.
    pub fn unix(path: &Path) -> Result<Self, ServeError> {
        let listen = || {
            let old = std::fs::symlink_metadata(path).is_ok_and(|facts| facts.file_type().is_socket());
            if old && UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
                std::fs::remove_file(path)?;
            }
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        listen()
            .map(|listener| Self::Unix(listener, path.to_owned()))
            .map_err(|source| ServeError::Socket { path: path.to_owned(), source })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }

    /// The address, where it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// Takes a connection that waits, and says whose it is.
    pub fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Self::Tcp(listener) => {
                let (socket, peer) = listener.accept()?;
                socket.set_nonblocking(false)?;
                // A host that has lost its power never says that it is gone.
                sockopt::set_socket_keepalive(&socket, true)?;
                sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE)?;
                sockopt::set_tcp_keepintvl(&socket, KEEP_ALIVE_AGAIN)?;
                sockopt::set_tcp_keepcnt(&socket, KEEP_ALIVE_QUESTIONS)?;
                Ok((Stream::tcp(socket)?, peer.to_string()))
            }
            Self::Unix(listener, path) => {
                let (socket, _) = listener.accept()?;
                socket.set_nonblocking(false)?;
                Ok((Stream::unix(socket), path.display().to_string()))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}
