//! Whose connection it is, as the kernel says, and whether their paths mean the same files.
//!
//! The user is the one at connect(2) (SO_PEERCRED of unix(7)): what the process does with its
//! identity afterwards does not change them. The mount namespace is read from `/proc/PID/ns/mnt`, which is by number, and
//! the number could have become another process's. The race is met by the order: get a descriptor of the very process
//! (SO_PEERPIDFD, Linux 6.5), read by number, then ask the descriptor whether its process still lives: if so, the
//! number was its own all the while. Older kernels have no such descriptor of the peer: there, pidfd_open(2) by number
//! closes the race from that moment on, and what is left is a process that ends between connect(2) and accept(2)
//! while its number comes round again.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use stage::error::StageError;

/// The other end of a Unix socket.
#[derive(Debug)]
pub struct Peer {
    /// Effective user at connect(2).
    pub uid: u32,
    /// The process that connected.
    pub pid: u32,
    process: Option<OwnedFd>,
}

impl Peer {
    /// Asks the kernel.
    pub fn of(socket: &UnixStream) -> Result<Self, StageError> {
        let unknown = |what: &str| {
            StageError::refused(format!("the kernel does not say who connected: {what}"), "connect again")
        };
        let credentials =
            storage::peer::credentials(socket.as_fd()).map_err(|error| unknown(&error.to_string()))?;
        let Some(pid) = credentials.process else {
            return Err(StageError::refused(
                "the caller is a process of another PID namespace, so its paths cannot be told to be the server's"
                    .to_owned(),
                "outside of this container: use --foreground, or a server out there",
            ));
        };
        let process = match storage::peer::process(socket.as_fd()) {
            Ok(process) => Some(process),
            // ENOPROTOOPT: the kernel is older than 6.5.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOPROTOOPT.raw_os_error()) => {
                by_number(pid)
            }
            Err(_) => None,
        };
        Ok(Self { uid: credentials.user, pid, process })
    }

    /// Refuses a caller in another mount namespace than this process's, or with another root directory.
    ///
    /// # Errors
    /// [`StageError::Refused`]: it is another one, or cannot be told.
    pub fn check_mounts(&self) -> Result<(), StageError> {
        let file = |path: String| std::fs::metadata(path).map(|facts| (facts.dev(), facts.ino()));
        // A process in a chroot(2) has the same namespace, and other files under its paths all the same.
        let namespace = |process: &str| -> std::io::Result<_> {
            Ok([file(format!("/proc/{process}/ns/mnt"))?, file(format!("/proc/{process}/root"))?])
        };
        let refused = |what: &str| {
            StageError::refused(
                what.to_owned(),
                "inside a container or a unit with a private view of files: use --foreground, or a server in there",
            )
        };
        let here =
            namespace("self").map_err(|error| StageError::io("stat", "/proc/self/ns/mnt".as_ref(), error))?;
        let there = match namespace(&self.pid.to_string()) {
            Ok(there) => there,
            // A user's own server may look neither at root nor at a process of the user's that is not dumpable; both have
            // the server's rights already, and gain nothing by another view of files.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Ok(());
            }
            Err(error) => {
                return Err(refused(&format!(
                    "the mount namespace of process {} cannot be told: {error}",
                    self.pid
                )));
            }
        };
        if there != here {
            return Err(refused(
                "the caller's paths are not the server's: it lives in another mount namespace, or has another root",
            ));
        }
        // Only now does the number prove to have been the caller's when it was looked up.
        match &self.process {
            Some(process) if lives(process) => Ok(()),
            _ => Err(refused("the process that connected has gone")),
        }
    }
}

/// Has the process of this descriptor not ended yet? It is readable once it has (pidfd_open(2)).
fn lives(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

fn by_number(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_says_who_connected() {
        let (near, _far) = UnixStream::pair().unwrap();
        let peer = Peer::of(&near).unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.pid, std::process::id());
        peer.check_mounts().unwrap();
    }

    #[test]
    fn a_caller_outside_of_the_pid_namespace_is_answered_in_words() {
        use std::io::{Read, Write};
        const INSIDE: &str = "FLASHWRIGHT_CHILD_PEER";
        if let Some(path) = std::env::var_os(INSIDE) {
            let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
            let (mut socket, _) = listener.accept().unwrap();
            let said = Peer::of(&socket).map(|peer| peer.pid).map_err(|error| error.to_string());
            socket.write_all(format!("{said:?}").as_bytes()).unwrap();
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let name = "peer::tests::a_caller_outside_of_the_pid_namespace_is_answered_in_words";
        let mut server = std::process::Command::new("unshare")
            .args(["--pid", "--fork"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(INSIDE, &path)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut said = String::new();
        loop {
            if let Ok(mut client) = UnixStream::connect(&path) {
                client.read_to_string(&mut said).unwrap();
                break;
            }
            if server.try_wait().unwrap().is_some() {
                println!("SKIP a PID namespace: it takes root to make one");
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        server.wait().unwrap();
        assert!(said.contains("another PID namespace"), "{said}");
    }

    #[test]
    fn a_process_lives_until_it_has_ended() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        assert!(lives(&process));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!lives(&process));
    }
}
