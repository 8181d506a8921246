//! Where a server can be reached, and by whom.
//!
//! A socket in the file system can be opened by its owner alone (mode 0600, from the moment that it has a name), unless
//! others are named: then everybody may connect, and who is none of them is sent away before a byte is exchanged. It is
//! removed at the end if it is still the one that was made.

use std::fs::Metadata;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nbd::stream::Stream;
use rustix::fs::{Mode, OFlags, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with, sockopt,
};
use storage::peer;

use crate::door::Peer;
use crate::error::ServeError;

/// A connection that has been silent for this long is asked whether its other end is there,
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// again after this long,
const KEEP_ALIVE_AGAIN: Duration = Duration::from_secs(10);
/// and given up after so many questions without an answer.
const KEEP_ALIVE_QUESTIONS: u32 = 6;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// The most groups that a user can be in: NGROUPS_MAX of Linux.
const GROUPS: usize = 65_536;

/// Who may connect to a socket in the file system, beside its owner and root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Users, by number.
    pub users: Vec<u32>,
    /// Groups, by number.
    pub groups: Vec<u32>,
}

impl Allowed {
    fn nobody(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Whether the other end is one of them.
    fn admits(&self, socket: &UnixStream) -> bool {
        let Ok(found) = peer::credentials(socket.as_fd()) else { return false };
        let own = rustix::process::geteuid().as_raw();
        if found.user == 0 || found.user == own || self.users.contains(&found.user) {
            return true;
        }
        let is_in = |group: u32| self.groups.contains(&group);
        !self.groups.is_empty()
            && (is_in(found.group)
                || peer::groups(socket.as_fd(), GROUPS).is_ok_and(|groups| groups.into_iter().any(is_in)))
    }
}

/// A socket that takes connections.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

/// A socket in the file system.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of its name.
    identity: (u64, u64),
    allowed: Allowed,
}

/// What came of taking a connection.
#[derive(Debug)]
pub(crate) enum Taken {
    /// Its stream, who it is for messages, and whose it is.
    In(Stream, String, Peer),
    /// Somebody who may not connect; for messages.
    Stranger(String),
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
    pub fn unix(path: &Path, allowed: &Allowed) -> Result<Self, ServeError> {
        let listener = || {
            let old = std::fs::symlink_metadata(path).is_ok_and(|facts| facts.file_type().is_socket());
            if old && UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
                std::fs::remove_file(path)?;
            }
            bind_unix(path, allowed)
        };
        listener().map(Self::Unix).map_err(|source| ServeError::Socket { path: path.to_owned(), source })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(socket) => socket.listener.as_fd(),
        }
    }

    /// The address, where it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// Takes a connection that waits.
    pub fn accept(&self) -> io::Result<Taken> {
        match self {
            Self::Tcp(listener) => {
                let (socket, peer) = listener.accept()?;
                socket.set_nonblocking(false)?;
                // A host that has lost its power never says that it is gone.
                sockopt::set_socket_keepalive(&socket, true)?;
                sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE)?;
                sockopt::set_tcp_keepintvl(&socket, KEEP_ALIVE_AGAIN)?;
                sockopt::set_tcp_keepcnt(&socket, KEEP_ALIVE_QUESTIONS)?;
                Ok(Taken::In(Stream::tcp(socket)?, peer.to_string(), Peer::at(peer.ip())))
            }
            Self::Unix(UnixSocket { listener, path, allowed, .. }) => {
                let (socket, _) = listener.accept()?;
                socket.set_nonblocking(false)?;
                let user = peer::credentials(socket.as_fd()).ok().map(|found| found.user);
                let of_user = user.map(|user| format!(" (user {user})")).unwrap_or_default();
                let name = format!("{}{of_user}", path.display());
                if !allowed.nobody() && !allowed.admits(&socket) {
                    return Ok(Taken::Stranger(name));
                }
                Ok(Taken::In(Stream::unix(socket), name, user.map_or(Peer::Unknown, Peer::User)))
            }
        }
    }
}

fn bind_unix(path: &Path, allowed: &Allowed) -> io::Result<UnixSocket> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The name gets the socket's own mode (unix(7)), so that nobody else can open it for a moment either.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let name = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let facts = std::fs::File::from(name.try_clone()?).metadata()?;
    if !facts.file_type().is_socket() {
        return Err(io::Error::other("its name was taken by somebody else"));
    }
    if !allowed.nobody() {
        // By descriptor: in a directory of others the name could be another file's by now.
        storage::mode::set_of_path(std::os::fd::AsFd::as_fd(&name), 0o666)?;
    }
    listen(&socket, BACKLOG)?;
    let listener = UnixListener::from(socket);
    let allowed = allowed.clone();
    Ok(UnixSocket { listener, path: path.to_owned(), identity: identity(&facts), allowed })
}

fn identity(facts: &Metadata) -> (u64, u64) {
    (facts.dev(), facts.ino())
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|facts| identity(&facts) == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
