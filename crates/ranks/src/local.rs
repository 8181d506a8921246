//! Ranks on this machine: the root starts the others as processes of the same program.
//!
//! A child has [`base::environment::RANK`] in its environment and its socket to the root as standard input. It dies with the root (by
//! `PR_SET_PDEATHSIG`); the root sees its end as the end of the socket. What children print is handed to the root, line
//! by line. Children have a process group of their own, so that Ctrl-C reaches the root alone, which decides what it means.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use base::environment::RANK;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};

use crate::error::RanksError;
use crate::frame::{HEAD_BYTES, PAYLOAD_MAX_BYTES};
use crate::group::Ranks;
use crate::transport::{Received, Transport};

/// The longest line of a child that is passed on whole, bytes.
const LINE_MAX_BYTES: u64 = 16 << 10;

/// How long the root waits for the status of a child whose socket has ended.
const FATE_TIMEOUT: Duration = Duration::from_millis(500);

/// Takes a line that a rank printed.
pub type Listener = Arc<dyn Fn(u32, &str) + Send + Sync>;

/// Starts ranks 1 to `others` as processes of this program with these arguments, and joins them as rank 0. They end with the
/// thread that calls this.
///
/// # Errors
/// If a process cannot be started, or does not join in time.
pub fn start(
    others: u32,
    arguments: &[OsString],
    listener: &Listener,
    until: Instant,
) -> Result<Ranks, RanksError> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |source| RanksError::Start { what, source }
    };
    raise_file_limit();
    let program = std::env::current_exe().map_err(failed("find this program"))?;
    let mut root = Root { peers: Vec::new(), size: others + 1 };
    for rank in 1..=others {
        let (own, theirs) = UnixStream::pair().map_err(failed("make a socket"))?;
        own.set_nonblocking(true).map_err(failed("make a socket"))?;
        let (reader, writer) = io::pipe().map_err(failed("make a pipe"))?;
        let second = writer.try_clone().map_err(failed("make a pipe"))?;
        let child = Command::new(&program)
            .args(arguments)
            .env(RANK, format!("{rank}/{}", root.size))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(writer))
            .stderr(Stdio::from(second))
            .process_group(0)
            .spawn()
            .map_err(failed("start a process of this program"))?;
        let (listener, (said, printed)) = (Arc::clone(listener), mpsc::channel());
        root.peers.push(Peer { link: Link::new(own), child: Some(child), open: true, told: false, printed });
        std::thread::spawn(move || {
            pass_on(rank, reader, &*listener);
            let _ = said.send(());
        });
    }
    Ranks::join(Box::new(root), until)
}

/// Raises the soft limit of open files to the hard one: each rank takes two, and 1024 is a usual soft limit.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If it cannot be raised, making a socket says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Joins as the rank that this process was started as; None if it was not started so. Standard input is empty afterwards.
///
/// # Errors
/// If the root is gone.
pub fn join(until: Instant) -> Result<Option<Ranks>, RanksError> {
    let failed =
        |source| RanksError::Start { what: "join the process that started this one".to_owned(), source };
    let Some((rank, size)) = std::env::var(RANK).ok().as_deref().and_then(place) else { return Ok(None) };
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| failed(error.into()))?;
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    // Programs that this one starts shall not hold the socket open.
    let nothing = std::fs::File::open("/dev/null").map_err(failed)?;
    rustix::stdio::dup2_stdin(&nothing).map_err(|error| failed(error.into()))?;
    let socket = UnixStream::from(socket);
    socket.set_nonblocking(true).map_err(failed)?;
    // If the root ended before the signal was asked for, the socket has ended, and joining fails.
    let leaf = Leaf { link: Link::new(socket), rank, size, ended: false };
    Ranks::join(Box::new(leaf), until).map(Some)
}

/// Whether this process was started as a rank.
#[must_use]
pub fn is_child() -> bool {
    std::env::var(RANK).is_ok_and(|value| place(&value).is_some())
}

/// Rank and size from `rank/size`.
fn place(value: &str) -> Option<(u32, u32)> {
    let (rank, size) = value.split_once('/')?;
    let (rank, size) = (rank.parse().ok()?, size.parse().ok()?);
    (0 < rank && rank < size).then_some((rank, size))
}

fn pass_on(rank: u32, reader: io::PipeReader, listener: &(dyn Fn(u32, &str) + Send + Sync)) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.by_ref().take(LINE_MAX_BYTES).read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        listener(rank, String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
}

/// A socket that carries frames: the length as four bytes, little-endian, then the bytes.
struct Link {
    socket: UnixStream,
    /// Bytes received that are not a whole frame yet.
    begun: Vec<u8>,
    frames: VecDeque<Vec<u8>>,
}

impl Link {
    fn new(socket: UnixStream) -> Self {
        Self { socket, begun: Vec::new(), frames: VecDeque::new() }
    }

    fn send(&mut self, frame: &[u8], until: Instant) -> io::Result<()> {
        let length = u32::try_from(frame.len()).map_err(io::Error::other)?;
        let bytes = [&length.to_le_bytes(), frame].concat();
        let mut sent = 0;
        while sent < bytes.len() {
            match self.socket.write(&bytes[sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => sent += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !wait(&mut [PollFd::new(&self.socket, PollFlags::OUT)], until)? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes what has arrived; whether the other side may send more.
    fn take(&mut self) -> bool {
        let mut buffer = [0; 64 << 10];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => return false,
                Ok(bytes) => self.begun.extend(&buffer[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
            while let Some(length) = self.begun.first_chunk().map(|head| u32::from_le_bytes(*head) as usize) {
                if length > HEAD_BYTES + PAYLOAD_MAX_BYTES {
                    return false;
                }
                if self.begun.len() < 4 + length {
                    break;
                }
                let rest = self.begun.split_off(4 + length);
                let mut frame = std::mem::replace(&mut self.begun, rest);
                self.frames.push_back(frame.split_off(4));
            }
        }
    }
}

/// Waits for one of these; false if it is `until` before.
fn wait(descriptors: &mut [PollFd<'_>], until: Instant) -> io::Result<bool> {
    let left = until.saturating_duration_since(Instant::now());
    let time = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    match poll(descriptors, Some(&time)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The root's side.
struct Root {
    /// Rank 1 and on.
    peers: Vec<Peer>,
    size: u32,
}

struct Peer {
    link: Link,
    /// None once its status was taken.
    child: Option<Child>,
    /// Its socket has not ended.
    open: bool,
    /// The end of its socket was reported.
    told: bool,
    /// Has an element once all that it printed was passed on.
    printed: mpsc::Receiver<()>,
}

impl Transport for Root {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn send(&mut self, to: u32, frame: &[u8], until: Instant) -> io::Result<()> {
        self.peers[to as usize - 1].link.send(frame, until)
    }

    fn receive(&mut self, until: Instant) -> io::Result<Received> {
        loop {
            for (from, peer) in (1..).zip(&mut self.peers) {
                if let Some(bytes) = peer.link.frames.pop_front() {
                    return Ok(Received::Frame { from, bytes });
                }
                if !peer.open && !std::mem::replace(&mut peer.told, true) {
                    return Ok(Received::Ended { from });
                }
            }
            // Only sockets that have something are read: a look at each for each frame would be a system call a pair of ranks.
            let open = self.peers.iter().filter(|peer| peer.open);
            let mut descriptors: Vec<_> =
                open.map(|peer| PollFd::new(&peer.link.socket, PollFlags::IN)).collect();
            if !wait(&mut descriptors, until)? {
                return Ok(Received::Nothing);
            }
            let ready: Vec<bool> = descriptors.iter().map(|one| !one.revents().is_empty()).collect();
            let open = self.peers.iter_mut().filter(|peer| peer.open);
            for (peer, _) in open.zip(ready).filter(|(_, is_ready)| *is_ready) {
                peer.open = peer.link.take();
            }
        }
    }

    fn fate(&mut self, rank: u32) -> Option<String> {
        let peer = &mut self.peers[rank as usize - 1];
        status(peer, Instant::now() + FATE_TIMEOUT).map(how)
    }

    fn close(&mut self, until: Instant) -> Option<(u32, String)> {
        for (rank, peer) in (1..).zip(&mut self.peers) {
            match status(peer, until) {
                Some(status) if status.success() => {}
                Some(status) => return Some((rank, how(status))),
                None => return Some((rank, "it does not end".to_owned())),
            }
        }
        None
    }
}

/// The status of a child once it has ended; None if it has not ended by then, or the status was taken before.
fn status(peer: &mut Peer, until: Instant) -> Option<ExitStatus> {
    let child = peer.child.as_mut()?;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            peer.child = None;
            return Some(status);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("killed by signal {signal}"),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => status.to_string(),
    }
}

/// Ends the children with SIGKILL, and waits for them: none outlives the root's work.
impl Drop for Root {
    fn drop(&mut self) {
        for child in self.peers.iter_mut().filter_map(|peer| peer.child.as_mut()) {
            let _ = child.kill();
        }
        for peer in &mut self.peers {
            if let Some(child) = &mut peer.child {
                let _ = child.wait();
            }
            // A program that the child started may hold its output open.
            let _ = peer.printed.recv_timeout(FATE_TIMEOUT);
        }
    }
}

/// A child's side.
struct Leaf {
    link: Link,
    rank: u32,
    size: u32,
    ended: bool,
}

impl Transport for Leaf {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn send(&mut self, _to: u32, frame: &[u8], until: Instant) -> io::Result<()> {
        self.link.send(frame, until)
    }

    fn receive(&mut self, until: Instant) -> io::Result<Received> {
        loop {
            if let Some(bytes) = self.link.frames.pop_front() {
                return Ok(Received::Frame { from: 0, bytes });
            }
            if self.ended {
                return Ok(Received::Ended { from: 0 });
            }
            if self.link.take() {
                if self.link.frames.is_empty()
                    && !wait(&mut [PollFd::new(&self.link.socket, PollFlags::IN)], until)?
                {
                    return Ok(Received::Nothing);
                }
            } else {
                self.ended = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Link, UnixStream) {
        let (own, theirs) = UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        (Link::new(own), theirs)
    }

    #[test]
    fn frames_arrive_whole_however_the_bytes_are_cut() {
        let (mut link, mut theirs) = pair();
        let bytes =
            [&3_u32.to_le_bytes()[..], b"abc", &0_u32.to_le_bytes(), &2_u32.to_le_bytes(), b"de"].concat();
        for byte in bytes {
            theirs.write_all(&[byte]).unwrap();
            assert!(link.take());
        }
        assert_eq!(link.frames, [&b"abc"[..], b"", b"de"]);
    }

    #[test]
    fn a_length_beyond_the_largest_frame_ends_the_connection_before_anything_is_kept() {
        let (mut link, mut theirs) = pair();
        let length = (HEAD_BYTES + PAYLOAD_MAX_BYTES + 1) as u32;
        theirs.write_all(&length.to_le_bytes()).unwrap();
        assert!(!link.take());
    }

    #[test]
    fn sending_to_a_rank_that_reads_nothing_ends_at_the_deadline() {
        let (mut link, theirs) = pair();
        let until = Instant::now() + Duration::from_millis(50);
        let error = link.send(&vec![0; 8 << 20], until).expect_err("nothing is read");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(theirs);
    }

    #[test]
    fn only_ranks_above_the_root_are_children() {
        assert_eq!(place("1/2"), Some((1, 2)));
        for value in ["0/2", "2/2", "1", "x/2", "1/x", ""] {
            assert_eq!(place(value), None, "{value}");
        }
    }
}
