//! The socket in the file system: made, handed over by systemd, taken away.
//!
//! - A socket without a server is what a killed one left, and goes; a socket with a server stays, and so
//!   does everything that is no socket. Two servers that start at once are kept apart by a lock beside the socket.
//! - Its mode is 0600 from the moment it has a name, and is set by descriptor before listen(2), so that no more may connect
//!   than should at any moment.
//! - It is not made in a directory in which others could replace it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use stage::error::{StageError, shown};
use storage::locks::Held;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 128;

/// Who may connect, as far as the file system decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The server's user: a socket 0600, in a directory 0700 where it is made here.
    Own,
    /// Its group as well: for collectors of metrics.
    Group,
}

/// A socket that takes connections. What was made goes when this goes.
#[derive(Debug)]
pub struct Listening {
    /// Nonblocking.
    pub listener: UnixListener,
    made: Option<Made>,
}

#[derive(Debug)]
struct Made {
    path: PathBuf,
    /// Device and inode, so that another server's socket of the same name is left alone.
    identity: (u64, u64),
    /// Held as long as the socket is listened on.
    _lock: Held<File>,
}

impl Listening {
    /// Makes a socket.
    ///
    /// # Errors
    /// A server listens there; something else is there; the directory is not safe.
    pub fn bind(path: &Path, access: Access) -> Result<Self, StageError> {
        let address = SocketAddrUnix::new(path).map_err(|_| {
            StageError::invalid(
                format!("--socket={}: the kernel takes 107 bytes at most for a socket's path", shown(path)),
                "name a shorter one",
            )
        })?;
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        prepare(directory)?;
        let lock = lock(path)?;
        clear(path)?;
        let failed = |operation: &str, error: io::Error| StageError::io(operation, path, error);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|error| failed("make a socket", error.into()))?;
        // The name gets the socket's own mode (unix(7)), without the bits of the umask.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)
            .map_err(|error| failed("set the mode", error.into()))?;
        rustix::net::bind(&socket, &address).map_err(|error| failed("bind", error.into()))?;
        let name = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let name = name.map_err(|error| failed("open", error.into()))?;
        let facts = name.try_clone().and_then(|name| File::from(name).metadata());
        let facts = facts.map_err(|error| failed("stat", error))?;
        if !facts.file_type().is_socket() {
            return Err(StageError::refused(
                format!("{}: something else was put in its place", shown(path)),
                "name a socket in a directory of your own",
            ));
        }
        let mode = match access {
            Access::Own => 0o600,
            Access::Group => 0o660,
        };
        stage::calls::set_mode_of_path(name.as_fd(), mode).map_err(|error| failed("set the mode", error))?;
        let made = Made { path: path.to_owned(), identity: (facts.dev(), facts.ino()), _lock: lock };
        let listening = Self { listener: socket.into(), made: Some(made) };
        rustix::net::listen(&listening.listener, BACKLOG).map_err(|error| failed("listen", error.into()))?;
        Ok(listening)
    }

    /// The socket that systemd has handed over, if it has (sd_listen_fds(3)). To be called before there are threads: it
    /// takes the variables away, so that no child believes them.
    ///
    /// # Errors
    /// What was handed over is not one Unix stream socket that is listened on.
    pub fn handed_over() -> Result<Option<Self>, StageError> {
        let mut handed = listenfd::ListenFd::from_env();
        if handed.len() == 0 {
            return Ok(None);
        }
        let wrong = |what: String| {
            StageError::invalid(what, "one ListenStream= with a path, and Accept=no (systemd.socket(5))")
        };
        if handed.len() > 1 {
            return Err(wrong(format!("LISTEN_FDS={}: one socket is expected", handed.len())));
        }
        let listener = handed
            .take_unix_listener(0)
            .map_err(|error| wrong(format!("LISTEN_FDS=1: {error}")))?
            .ok_or_else(|| wrong("LISTEN_FDS=1: there is no descriptor 3".to_owned()))?;
        if !rustix::net::sockopt::socket_acceptconn(&listener).unwrap_or(false) {
            return Err(wrong("LISTEN_FDS=1: nobody listens on the socket".to_owned()));
        }
        listener
            .set_nonblocking(true)
            .map_err(|error| StageError::io("set O_NONBLOCK on", "descriptor 3".as_ref(), error))?;
        Ok(Some(Self { listener, made: None }))
    }

    /// Where it is, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        let address = self.listener.local_addr().ok();
        address
            .as_ref()
            .and_then(|address| address.as_pathname())
            .map_or_else(|| "a socket".to_owned(), shown)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(made) = &self.made
            && std::fs::symlink_metadata(&made.path)
                .is_ok_and(|facts| (facts.dev(), facts.ino()) == made.identity)
        {
            let _ = std::fs::remove_file(&made.path);
        }
    }
}

/// Makes the directory where it is not there, and looks whether others could replace what is in it.
fn prepare(directory: &Path) -> Result<(), StageError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| StageError::io("make the directory", directory, error))?;
    let facts = std::fs::metadata(directory).map_err(|error| StageError::io("stat", directory, error))?;
    let (mode, sticky) = (facts.mode(), facts.mode() & 0o1000 != 0);
    let me = rustix::process::geteuid().as_raw();
    if facts.uid() != me && facts.uid() != 0 {
        return Err(StageError::refused(
            format!(
                "{}: belongs to uid {}, who could put another socket there",
                shown(directory),
                facts.uid()
            ),
            "name a socket in a directory of your own",
        ));
    }
    if mode & 0o022 != 0 && !sticky {
        return Err(StageError::refused(
            format!(
                "{}: others may write to it (mode {:o}) and could replace the socket",
                shown(directory),
                mode & 0o7777
            ),
            format!("chmod go-w {}", shown(directory)),
        ));
    }
    Ok(())
}

/// The lock that says that this path has a server. Its file stays: to remove it would let two servers lock two files.
fn lock(path: &Path) -> Result<Held<File>, StageError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let beside = path.with_file_name(name);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(&beside)
        .map_err(|error| StageError::io("open", &beside, error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Held::new(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(taken(path)),
        Err(error) => Err(StageError::io("lock", &beside, error)),
    }
}

fn taken(path: &Path) -> StageError {
    StageError::refused(
        format!("{}: a server listens there", shown(path)),
        "stop it first, or name another socket",
    )
}

/// Takes away what a killed server has left.
fn clear(path: &Path) -> Result<(), StageError> {
    let facts = match std::fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(StageError::io("stat", path, error)),
    };
    if !facts.file_type().is_socket() {
        return Err(StageError::refused(
            format!("{}: is there, and is not a socket to listen at", shown(path)),
            "name another path",
        ));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|error| StageError::io("remove", path, error))
        }
        // Its queue is full (EAGAIN), it may not be asked (EACCES), or it answers: it belongs to a server.
        _ => Err(taken(path)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_socket_is_for_its_user_alone_and_goes_with_the_server() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/stage.sock");
        let listening = Listening::bind(&path, Access::Own).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        UnixStream::connect(&path).unwrap();
        drop(listening);
        assert!(!path.exists());
    }

    #[test]
    fn what_a_killed_server_left_goes_and_what_is_listened_on_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stage.sock");
        drop(UnixListener::bind(&path).unwrap());
        let first = Listening::bind(&path, Access::Own).unwrap();
        assert!(matches!(Listening::bind(&path, Access::Own), Err(StageError::Refused { .. })));
        UnixStream::connect(&path).unwrap();
        drop(first);

        // Of a server that does not take our lock.
        let other = UnixListener::bind(&path).unwrap();
        assert!(matches!(Listening::bind(&path, Access::Own), Err(StageError::Refused { .. })));
        assert!(path.exists());
        drop(other);
    }

    #[test]
    fn what_is_no_socket_is_not_removed_and_unsafe_directories_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stage.sock");
        std::fs::write(&path, "a file").unwrap();
        assert!(matches!(Listening::bind(&path, Access::Own), Err(StageError::Refused { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"a file");

        let open = directory.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Listening::bind(&open.join("s"), Access::Own), Err(StageError::Refused { .. })));
        let long = directory.path().join("x".repeat(120));
        assert!(matches!(Listening::bind(&long, Access::Own), Err(StageError::Invalid { .. })));
    }

    #[test]
    fn a_server_that_goes_leaves_its_successors_socket_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stage.sock");
        let first = Listening::bind(&path, Access::Own).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }
}
