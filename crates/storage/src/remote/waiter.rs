//! Waiting for any of several connections, or for a thread that makes one: epoll(7) and eventfd(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// What is waited for on behalf of [`Bell`].
const BELL: u64 = u64::MAX;
/// The most events that one call takes.
const EVENTS: usize = 64;

/// Wakes a [`Waiter`] from another thread.
#[derive(Debug, Clone)]
pub(crate) struct Bell(Arc<OwnedFd>);

impl Bell {
    /// Lets the waiter's next or present wait end.
    pub fn ring(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: the descriptor is open as long as self, and the eight bytes are there to be read. A counter that
        // is full (EAGAIN) rings all the same.
        let _ = unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn silence(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: the descriptor is open as long as self, and the eight bytes are there to be written.
        let _ = unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// Shorter waits than this are not left to epoll_wait(2), which counts whole milliseconds.
const FINE: Duration = Duration::from_millis(2);

/// What a wait brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// There is something to be read from the connection of this number, or it is broken.
    Readable(u32),
    /// There is room to write.
    Writable(u32),
    /// The bell was rung.
    Rung,
}

/// An epoll instance and its bell.
#[derive(Debug)]
pub(crate) struct Waiter {
    epoll: OwnedFd,
    bell: Bell,
}

fn descriptor(result: i32) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so this is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

impl Waiter {
    pub fn new() -> io::Result<Self> {
        // SAFETY: neither call takes memory.
        let epoll = descriptor(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: as above.
        let bell = descriptor(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        let waiter = Self { epoll, bell: Bell(Arc::new(bell)) };
        waiter.control(libc::EPOLL_CTL_ADD, waiter.bell.0.as_raw_fd(), libc::EPOLLIN, BELL)?;
        Ok(waiter)
    }

    /// What poll(2) finds readable when a wait would bring something.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    fn control(&self, operation: i32, fd: i32, events: i32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: data };
        // SAFETY: both descriptors are open, and the event is there to be read.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &raw mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits for connection `number` from now on. It ends by itself when the descriptor is closed.
    pub fn add(&self, fd: BorrowedFd<'_>, number: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), libc::EPOLLIN, u64::from(number))
    }

    /// Waits for room to write as well, or no longer.
    pub fn watch_room(&self, fd: BorrowedFd<'_>, number: u32, watch: bool) -> io::Result<()> {
        let events = if watch { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLIN };
        self.control(libc::EPOLL_CTL_MOD, fd.as_raw_fd(), events, u64::from(number))
    }

    /// Waits for less than a second, to the nanosecond; returns the milliseconds that are left to wait, which are none.
    fn wait_finely(&self, limit: Duration) -> io::Result<i32> {
        let mut poll = libc::pollfd { fd: self.epoll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit = libc::timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() };
        // SAFETY: one pollfd and one timespec are there, and no signal mask is given.
        let found = unsafe { libc::ppoll(&raw mut poll, 1, &raw const limit, std::ptr::null()) };
        if found < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) };
        }
        Ok(0)
    }

    /// Waits at most `limit` and puts what happened into `found`. A signal ends it with nothing found.
    pub fn wait(&self, limit: Duration, found: &mut Vec<Event>) -> io::Result<()> {
        found.clear();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let limit = match limit {
            Duration::ZERO => 0,
            short if short < FINE => self.wait_finely(short)?,
            long => long.as_millis().min(i32::MAX as u128) as i32,
        };
        // SAFETY: the descriptor is open, and there is room for EVENTS events.
        let count =
            unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS as i32, limit) };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        for event in &events[..count as usize] {
            let (what, number) = (event.events as i32, event.u64);
            if number == BELL {
                self.bell.silence();
                found.push(Event::Rung);
                continue;
            }
            if what & libc::EPOLLOUT != 0 {
                found.push(Event::Writable(number as u32));
            }
            // An error or a hang-up is told by the read that follows.
            if what & !libc::EPOLLOUT != 0 {
                found.push(Event::Readable(number as u32));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_wait_ends_with_what_arrived_and_with_the_bell() {
        let waiter = Waiter::new().unwrap();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        waiter.add(theirs.as_fd(), 7).unwrap();
        let mut found = Vec::new();
        waiter.wait(Duration::ZERO, &mut found).unwrap();
        assert_eq!(found, []);
        ours.write_all(b"x").unwrap();
        waiter.wait(LONG, &mut found).unwrap();
        assert_eq!(found, [Event::Readable(7)]);
        waiter.watch_room(theirs.as_fd(), 7, true).unwrap();
        waiter.wait(LONG, &mut found).unwrap();
        assert_eq!(found, [Event::Writable(7), Event::Readable(7)]);
        drop(theirs);
        let bell = waiter.bell();
        let ringer = std::thread::spawn(move || bell.ring());
        waiter.wait(LONG, &mut found).unwrap();
        assert_eq!(found, [Event::Rung]);
        ringer.join().unwrap();
        waiter.wait(Duration::ZERO, &mut found).unwrap();
        assert_eq!(found, [], "it was silenced");
    }
}
