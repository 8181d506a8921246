//! Lines over a socket, from a peer that is not trusted: bounded in bytes, bounded in time.
//!
//! A line has a bound, and once its first byte is there the rest must follow within a time; before
//! that, a silent peer is waited for as long as the caller allows. Nothing is allocated but for bytes that have arrived.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes asked of the socket at once.
const READ_BYTES: usize = 64 << 10;

/// What came of waiting for a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// It is there, without its newline.
    Whole(Vec<u8>),
    /// The other end has closed; what it had begun to say is not a line.
    Ended,
    /// It is longer than a line may be.
    TooLong,
    /// It was begun and not finished in time, or not begun.
    Late,
    /// The caller did not want to wait any more.
    Stopped,
}

/// A socket that is read by the line.
#[derive(Debug)]
pub(super) struct Lines {
    socket: UnixStream,
    /// What has arrived and is not yet taken.
    pending: Vec<u8>,
    /// Bytes of it that are known to hold no newline.
    searched: usize,
    /// Bytes that a line may have, with its newline.
    most: usize,
}

impl Lines {
    /// Of a socket in blocking mode, with lines of at most `most` bytes.
    pub fn new(socket: UnixStream, most: usize) -> Self {
        Self { socket, pending: Vec::new(), searched: 0, most }
    }

    /// The next line. `idle` is how long nothing may come, `whole` how long a line may take from its first byte on;
    /// `stop` is asked every `look` whether to go on.
    pub fn next(
        &mut self,
        idle: Option<Duration>,
        whole: Duration,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<Line> {
        let began = Instant::now();
        let mut first = (!self.pending.is_empty()).then(Instant::now);
        loop {
            if let Some(at) = self.pending[self.searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.pending.split_off(self.searched + at + 1);
                let mut line = std::mem::replace(&mut self.pending, rest);
                line.pop();
                self.searched = 0;
                return Ok(if line.len() < self.most { Line::Whole(line) } else { Line::TooLong });
            }
            self.searched = self.pending.len();
            if self.pending.len() >= self.most {
                return Ok(Line::TooLong);
            }
            let late = match first {
                Some(first) => first.elapsed() > whole,
                None => idle.is_some_and(|idle| began.elapsed() > idle),
            };
            if late {
                return Ok(Line::Late);
            }
            if stop() {
                return Ok(Line::Stopped);
            }
            if !readable(&self.socket, POLL_INTERVAL)? {
                continue;
            }
            // What is read ahead belongs to the next lines; without a bound on it a client could fill memory by
            // sending while it is not answered. It is not read then: the kernel's buffer is the bound.
            let had = self.pending.len();
            self.pending.resize(had + READ_BYTES, 0);
            let read = (&self.socket).read(&mut self.pending[had..]);
            self.pending.truncate(had + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(Line::Ended),
                Ok(_) => first = first.or_else(|| Some(Instant::now())),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(Line::Ended),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Says a line.
    ///
    /// # Errors
    /// The socket's; among them that the other end did not take it within the socket's time.
    pub fn say(&mut self, document: &impl serde::Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(document)?;
        text.push(b'\n');
        (&self.socket).write_all(&text)
    }

    /// Closes both ways, so that the other end sees it at once, even if another process holds the socket.
    pub fn hang_up(&self) {
        // One that is closed already cannot be shut down, and need not be.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Has the other end gone for good? One that has only said all it wants to say has not.
    pub fn has_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok()
            && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
    }
}

/// How often a wait looks up.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until there is something to read, or its end; not longer than `most`.
pub(super) fn readable(fd: &impl AsFd, most: Duration) -> io::Result<bool> {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
    match poll(&mut fds, Some(&most)) {
        Ok(_) => Ok(!fds[0].revents().is_empty()),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::LINE_BYTES;

    const LONG: Duration = Duration::from_secs(60);

    fn pair() -> (UnixStream, Lines) {
        let (near, far) = UnixStream::pair().unwrap();
        (near, Lines::new(far, LINE_BYTES))
    }

    fn next(lines: &mut Lines) -> Line {
        lines.next(Some(LONG), LONG, &|| false).unwrap()
    }

    #[test]
    fn lines_come_one_by_one_however_they_are_cut() {
        let (mut near, mut lines) = pair();
        near.write_all(b"one\ntwo\nth").unwrap();
        assert_eq!(next(&mut lines), Line::Whole(b"one".to_vec()));
        assert_eq!(next(&mut lines), Line::Whole(b"two".to_vec()));
        near.write_all(b"ree\n\nhalf").unwrap();
        assert_eq!(next(&mut lines), Line::Whole(b"three".to_vec()));
        assert_eq!(next(&mut lines), Line::Whole(Vec::new()));
        drop(near);
        assert_eq!(next(&mut lines), Line::Ended);
    }

    #[test]
    fn a_line_without_an_end_is_given_up_at_its_bound() {
        let (mut near, mut lines) = pair();
        let writer = std::thread::spawn(move || {
            let _ = near.write_all(&vec![b'x'; 2 * LINE_BYTES]);
        });
        assert_eq!(next(&mut lines), Line::TooLong);
        assert!(lines.pending.len() < LINE_BYTES + READ_BYTES);
        drop(lines);
        writer.join().unwrap();
    }

    #[test]
    fn the_longest_line_is_taken_and_one_byte_more_is_not() {
        for (bytes, taken) in [(LINE_BYTES - 1, true), (LINE_BYTES, false)] {
            let (mut near, mut lines) = pair();
            let writer = std::thread::spawn(move || {
                let mut line = vec![b'x'; bytes];
                line.push(b'\n');
                let _ = near.write_all(&line);
            });
            assert_eq!(matches!(next(&mut lines), Line::Whole(_)), taken, "{bytes}");
            drop(lines);
            writer.join().unwrap();
        }
    }

    #[test]
    fn half_a_line_is_not_waited_for_for_ever_and_silence_as_long_as_allowed() {
        let (mut near, mut lines) = pair();
        near.write_all(b"half").unwrap();
        assert_eq!(lines.next(None, Duration::ZERO, &|| false).unwrap(), Line::Late);
        let (_near, mut lines) = pair();
        assert_eq!(lines.next(Some(Duration::ZERO), LONG, &|| false).unwrap(), Line::Late);
        assert_eq!(lines.next(None, Duration::ZERO, &|| true).unwrap(), Line::Stopped);
    }

    #[test]
    fn who_has_said_all_is_still_there_and_who_has_closed_is_not() {
        let (near, lines) = pair();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(!lines.has_gone());
        drop(near);
        assert!(lines.has_gone());
    }
}
