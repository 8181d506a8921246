//! Memory and sockets: bytes go from one to the other without a buffer of ours in between.
//!
//! sendmsg(2) reads the mapping and recvmsg(2) writes it, as any engine's request does: the kernel's copy
//! races with other users of the same bytes in the way that [the memory](super) allows. Everything is checked
//! against the bounds first, and at most [`MOST_RUNS`] runs are handed over at once, so that a call needs no
//! memory but its own frame.
//!
//! Long runs go by sendfile(2), which copies nothing: the socket's buffer refers to the memory's own pages until the
//! receiver has them. What is written there meanwhile may so be seen by a read that was answered, and not yet received:
//! as in any race of a read with a write that was begun before the read was over.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{OutOfBounds, SharedMemory};

/// Runs that one call takes; further ones are left to the next.
pub const MOST_RUNS: usize = 128;

/// A source of zeros that stays in the first-level cache.
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// Bytes to be sent, one run after the other.
#[derive(Debug, Clone, Copy)]
pub enum Run<'a> {
    /// Of a buffer.
    Bytes(&'a [u8]),
    /// Of the memory.
    Memory {
        /// Where they begin.
        offset: u64,
        /// How many there are.
        length: usize,
    },
}

impl Run<'_> {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Memory { length, .. } => *length,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A request outside the memory, as an error of I/O.
fn outside(error: OutOfBounds) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// Bytes moved, or the error; again where a signal interrupted it.
fn moved(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(bytes) => return Ok(bytes),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// A message of these parts, without name or control data.
fn message(parts: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: msghdr is a structure of integers and pointers, for all of which zero is a value.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    message
}

impl SharedMemory {
    /// Sends runs over a socket, in one sendmsg(2). Returns the bytes that the kernel took, which may be fewer
    /// than there are. Where `more` will follow at once, the kernel may wait for it to fill a packet.
    ///
    /// # Errors
    /// `InvalidInput` where a run reaches beyond the memory, of which nothing was sent then; the kernel's
    /// otherwise, `WouldBlock` where the socket has a time-out that passed.
    pub fn send(&self, socket: BorrowedFd<'_>, runs: &[Run<'_>], more: bool) -> io::Result<usize> {
        const NOTHING: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut parts = [NOTHING; MOST_RUNS];
        let count = runs.len().min(MOST_RUNS);
        for (part, run) in parts.iter_mut().zip(runs) {
            *part = match *run {
                Run::Bytes(bytes) => {
                    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
                }
                Run::Memory { offset, length } => self.part(offset, length)?,
            };
        }
        let message = message(&mut parts[..count]);
        let flags = if more || count < runs.len() { libc::MSG_MORE } else { 0 };
        // SAFETY: every part is either a slice borrowed for this call or lies inside the mapping, which lives as
        // long as `self`; sendmsg only reads them.
        moved(|| unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL | flags) })
    }

    /// Sends bytes of the memory over a socket without a copy, in one sendfile(2). Returns how many the kernel took.
    ///
    /// Unlike [`Self::send`] this raises SIGPIPE where the other side is gone, as sendfile(2) has no flag against it: it
    /// is for programs that ignore it, which those of Rust do.
    ///
    /// # Errors
    /// `InvalidInput` where the range reaches beyond the memory; the kernel's otherwise, `WouldBlock` where the
    /// socket has a time-out that passed.
    pub fn send_pages(&self, socket: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<usize> {
        self.bounded(offset, length).map_err(outside)?;
        let (to, from) = (socket.as_raw_fd(), self.file.as_raw_fd());
        // SAFETY: both descriptors are open, and the offset, which is inside the memory and hence fits, is there to be
        // read and written.
        moved(|| unsafe {
            let mut at = offset as libc::off_t;
            libc::sendfile(to, from, &raw mut at, length)
        })
    }

    /// Receives up to `length` bytes from a socket to `offset`, and what comes after those into `then`, in one
    /// recvmsg(2). Returns how many came altogether; 0 at the end of the stream.
    ///
    /// # Errors
    /// `InvalidInput` where the range reaches beyond the memory; the kernel's otherwise, `WouldBlock` where
    /// the socket has a time-out that passed.
    pub fn receive(
        &self,
        socket: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        then: &mut [u8],
    ) -> io::Result<usize> {
        let rest = libc::iovec { iov_base: then.as_mut_ptr().cast(), iov_len: then.len() };
        let mut parts = [self.part(offset, length)?, rest];
        let mut message = message(&mut parts);
        // SAFETY: the first part lies inside the mapping, which is writable and lives as long as `self`; the
        // second is borrowed for this call alone.
        moved(|| unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) })
    }

    /// Makes a range zero.
    ///
    /// # Errors
    /// [`OutOfBounds`]; nothing was changed.
    pub fn zero(&self, offset: u64, length: u64) -> Result<(), OutOfBounds> {
        let whole = usize::try_from(length).unwrap_or(usize::MAX);
        self.bounded(offset, whole)?;
        let mut done = 0;
        while done < length {
            let part = ZEROS.len().min((length - done) as usize);
            self.copy_in(offset + done, &ZEROS[..part])?;
            done += part as u64;
        }
        Ok(())
    }

    /// A range as the kernel takes it.
    fn part(&self, offset: u64, length: usize) -> io::Result<libc::iovec> {
        let at = self.bounded(offset, length).map_err(outside)?;
        Ok(libc::iovec { iov_base: self.as_ptr().wrapping_add(at).cast(), iov_len: length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn runs_of_buffers_and_of_the_memory_arrive_in_order() {
        let memory = SharedMemory::create(1 << 20).unwrap();
        memory.copy_in(5000, b"from memory").unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let runs = [Run::Bytes(b"<"), Run::Memory { offset: 5000, length: 11 }, Run::Bytes(b">")];
        assert_eq!(memory.send(ours.as_fd(), &runs, false).unwrap(), 13);
        let mut back = [0; 13];
        theirs.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"<from memory>");
    }

    #[test]
    fn pages_arrive_as_they_are_from_any_offset() {
        let memory = SharedMemory::create(4 << 20).unwrap();
        let bytes: Vec<u8> =
            (0..4_u32 << 18).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        memory.copy_in(0, &bytes).unwrap();
        for (begin, length) in [(0, 1 << 20), (4095, 70_001), ((4 << 20) - 12_345, 12_345), (2_097_151, 2)] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let reader = std::thread::spawn(move || {
                let mut back = vec![0; length];
                theirs.read_exact(&mut back).map(|()| back)
            });
            let mut sent = 0;
            while sent < length {
                sent += memory.send_pages(ours.as_fd(), (begin + sent) as u64, length - sent).unwrap();
            }
            assert!(reader.join().unwrap().unwrap() == bytes[begin..begin + length], "{begin} {length}");
        }
    }

    #[test]
    fn what_comes_after_the_payload_goes_into_the_buffer() {
        let memory = SharedMemory::create(1 << 20).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"payload and the next request").unwrap();
        let mut then = [0; 64];
        assert_eq!(memory.receive(ours.as_fd(), 100, 7, &mut then).unwrap(), 28);
        assert_eq!(&then[..21], b" and the next request");
        let mut back = [0; 9];
        memory.copy_out(99, &mut back).unwrap();
        assert_eq!(&back, b"\0payload\0");
        drop(theirs);
        assert_eq!(memory.receive(ours.as_fd(), 100, 7, &mut then).unwrap(), 0);
    }

    #[test]
    fn nothing_beyond_the_end_is_sent_received_or_zeroed() {
        let memory = SharedMemory::create(8192).unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"more").unwrap();
        for (offset, length) in [(8192, 1), (8191, 2), (u64::MAX, 1), (u64::MAX, 0)] {
            assert!(memory.send(ours.as_fd(), &[Run::Memory { offset, length }], false).is_err());
            assert!(memory.send_pages(ours.as_fd(), offset, length).is_err());
            assert!(memory.receive(ours.as_fd(), offset, length, &mut []).is_err());
            assert!(memory.zero(offset, length as u64).is_err());
        }
        assert!(memory.zero(0, u64::MAX).is_err());
    }

    #[test]
    fn zeroing_ends_where_it_should() {
        let memory = SharedMemory::create(1 << 20).unwrap();
        memory.copy_in(0, &vec![7; 1 << 20]).unwrap();
        memory.zero(3, 100_000).unwrap();
        let mut back = vec![1; 1 << 20];
        memory.copy_out(0, &mut back).unwrap();
        assert!(back[..3].iter().chain(&back[100_003..]).all(|b| *b == 7));
        assert!(back[3..100_003].iter().all(|b| *b == 0));
    }
}
