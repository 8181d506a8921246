//! A connection that was agreed on, and how long it is waited for.
//!
//! Between requests a client may be silent for as long as it likes. In the middle of a message it may not: who
//! sends half of one, or asks and does not take the answer, is given [`STALL_TIMEOUT`] in which not a byte moves, and is then
//! cut off. So a connection costs a thread and its buffers, whatever its client does, and not for ever. A server that
//! is to stop waits [`GRACE`] for what is under way.
//!
//! The descriptor has time-outs of [`TICK`] for both directions, so that a thread which waits in the kernel looks up
//! in between without a descriptor or a system call more for each request.

use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nbd::stream::Stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::door;
use crate::error::{Ending, STALL_TIMEOUT};
use crate::stop::Stop;

/// How long a server that is to stop waits for what is under way.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// How long a wait in the kernel is, before one looks up.
pub(crate) const TICK: Duration = Duration::from_millis(250);
/// How long a client is waited for that has been told good-bye.
const LINGER: Duration = Duration::from_secs(1);

/// A stream, and when to give it up.
#[derive(Debug)]
pub(crate) struct Link<'s> {
    pub stream: Stream,
    stop: &'s Stop,
    door: &'s door::Seat<'s>,
    /// The door was told that there is no request under way.
    rests: bool,
}

/// Where in the conversation a wait is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitPosition {
    /// Between requests.
    Between,
    /// In the middle of a message.
    Within,
}

/// Whether an error only says that nothing can be moved at present.
pub(crate) fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl<'s> Link<'s> {
    /// A link over `stream`, whose calls wait.
    pub fn waiting(stream: Stream, stop: &'s Stop, door: &'s door::Seat<'s>) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        set_time_outs(stream.as_fd(), Some(TICK))?;
        Ok(Self { stream, stop, door, rests: false })
    }

    /// A link over `stream`, whose calls do not wait.
    pub fn polled(stream: Stream, stop: &'s Stop, door: &'s door::Seat<'s>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, stop, door, rests: false })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub fn stop(&self) -> &'s Stop {
        self.stop
    }

    /// Whether the server was to stop so long ago that what is under way is given up.
    pub fn is_over(&self) -> bool {
        self.stop.since().is_some_and(|asked| asked.elapsed() > GRACE)
    }

    /// Whether the client has sent something that was not fetched.
    pub fn has_something(&self) -> Result<bool, Ending> {
        if self.stream.pending() > 0 {
            return Ok(true);
        }
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(ready) => Ok(ready > 0),
            Err(error) => Err(Ending::Io(error.into())),
        }
    }

    /// Makes a call that waits for the client until it moves something: bytes moved, 0 at the end.
    pub fn wait(
        &mut self,
        place: WaitPosition,
        mut call: impl FnMut(&mut Stream) -> io::Result<usize>,
    ) -> Result<usize, Ending> {
        let mut since = None;
        loop {
            match call(&mut self.stream) {
                Ok(bytes) => {
                    self.works();
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_not_yet(&error) => {
                    self.patience(place, *since.get_or_insert_with(Instant::now))?;
                }
                Err(error) => return Err(Ending::Io(error)),
            }
        }
    }

    /// Whether to go on waiting after nothing has moved since `since`.
    pub fn patience(&mut self, place: WaitPosition, since: Instant) -> Result<(), Ending> {
        let waited = since.elapsed();
        match place {
            WaitPosition::Between if self.stop.is_asked() => Err(Ending::Stopped),
            WaitPosition::Between => {
                if !self.rests {
                    self.rests = true;
                    self.door.rests(since);
                }
                Ok(())
            }
            WaitPosition::Within if waited > STALL_TIMEOUT => Err(Ending::Stalled),
            WaitPosition::Within if self.is_over() => Err(Ending::Stopped),
            WaitPosition::Within => Ok(()),
        }
    }

    /// Takes note that something has moved. The door hears of it only after it was told of a rest, so that a request
    /// which does not wait costs nothing.
    #[inline]
    pub fn works(&mut self) {
        if self.rests {
            self.rests = false;
            self.door.works();
        }
    }

    /// Ends the conversation so that the last replies arrive: what a client still sends would otherwise make the
    /// kernel throw away what it has not read yet.
    pub fn close(mut self) {
        let _ = self.stream.set_nonblocking(false);
        let _ = set_time_outs(self.stream.as_fd(), Some(LINGER));
        if self.stream.shutdown().is_err() {
            return;
        }
        let begun = Instant::now();
        let mut rest = [0; 4096];
        while begun.elapsed() < LINGER && matches!(self.stream.read(&mut rest), Ok(bytes) if bytes > 0) {}
    }
}

/// Sets SO_RCVTIMEO and SO_SNDTIMEO, which every kind of socket has.
fn set_time_outs(fd: BorrowedFd<'_>, limit: Option<Duration>) -> io::Result<()> {
    // A second descriptor of the same socket, for a type that has the calls; closed at once.
    let socket = TcpStream::from(fd.try_clone_to_owned()?);
    socket.set_read_timeout(limit)?;
    socket.set_write_timeout(limit)
}
