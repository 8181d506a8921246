//! The system calls that engines make, behind one seam.
//!
//! [`Linux`] is the kernel itself and compiles to the bare calls. The seam exists so that
//! [`crate::fault`] can stand in it: short transfers, `EINTR`, `EAGAIN`, exhausted memory and refused
//! set-ups are then met by the very code that meets them in production, not by a wrapper above it.
//!
//! The C library's asynchronous I/O stands here too: it is a kernel to who drives it.
//!
//! `-errno` becomes an [`io::Error`] here and nowhere else.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use crate::aio_abi::{IoEvent, Iocb};
use crate::uring_abi::Params;

/// A request of the C library's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AioRequest {
    /// aio_read(3).
    Read,
    /// aio_write(3).
    Write,
    /// aio_fsync(3) with `O_DSYNC`.
    SyncData,
    /// aio_fsync(3) with `O_SYNC`.
    Sync,
}

/// The system calls of the engines. Every method is the call of that name in its man page.
///
/// # Safety
/// Implementors must behave as the kernel does towards memory: read and write only what the call
/// of that name would, and report no more bytes than were transferred.
pub unsafe trait Kernel: Clone + std::fmt::Debug + 'static {
    /// io_uring_setup(2).
    fn io_uring_setup(&self, entries: u32, params: &mut Params) -> io::Result<OwnedFd>;

    /// io_uring_register(2).
    ///
    /// # Safety
    /// `arg` points to `count` values of the type that `opcode` asks for; registered memory stays
    /// mapped until the ring is closed.
    unsafe fn io_uring_register(
        &self,
        ring: RawFd,
        opcode: u32,
        arg: *const libc::c_void,
        count: u32,
    ) -> io::Result<u32>;

    /// io_uring_enter(2). Returns the number of entries consumed.
    ///
    /// # Safety
    /// Every entry between the ring's head and tail describes memory that stays valid until its
    /// completion; `arg` points to `arg_bytes` bytes of what `flags` announces.
    unsafe fn io_uring_enter(
        &self,
        ring: RawFd,
        to_submit: u32,
        min_complete: u32,
        flags: u32,
        arg: *const libc::c_void,
        arg_bytes: usize,
    ) -> io::Result<u32>;

    /// io_setup(2).
    fn io_setup(&self, events: u32) -> io::Result<u64>;

    /// io_destroy(2). Waits for what is in flight.
    fn io_destroy(&self, context: u64) -> io::Result<()>;

    /// io_submit(2). Returns how many were accepted.
    ///
    /// # Safety
    /// `list` points to `count` pointers to control blocks whose buffers stay valid until their
    /// completions.
    unsafe fn io_submit(&self, context: u64, count: usize, list: *mut *mut Iocb) -> io::Result<usize>;

    /// io_getevents(2). Returns how many events were written.
    ///
    /// # Safety
    /// `events` has room for `max` events.
    unsafe fn io_getevents(
        &self,
        context: u64,
        min: usize,
        max: usize,
        events: *mut IoEvent,
        timeout: *mut libc::timespec,
    ) -> io::Result<usize>;

    /// pread(2).
    ///
    /// # Safety
    /// `buffer` is valid for `length` bytes of writing.
    unsafe fn pread(&self, fd: RawFd, buffer: *mut u8, length: usize, offset: u64) -> io::Result<usize>;

    /// pwrite(2).
    ///
    /// # Safety
    /// `buffer` is valid for `length` bytes of reading.
    unsafe fn pwrite(&self, fd: RawFd, buffer: *const u8, length: usize, offset: u64) -> io::Result<usize>;

    /// fdatasync(2).
    fn fdatasync(&self, fd: RawFd) -> io::Result<()>;
    /// fsync(2).
    fn fsync(&self, fd: RawFd) -> io::Result<()>;

    /// Hands a request to the C library.
    ///
    /// # Safety
    /// The control block is not one that the library has. It and its buffer stay as they are until [`Kernel::aio_result`] has
    /// given a result.
    unsafe fn aio_begin(&self, request: AioRequest, block: *mut libc::aiocb) -> io::Result<()> {
        // SAFETY: the caller promises what the calls need.
        let result = unsafe {
            match request {
                AioRequest::Read => libc::aio_read(block),
                AioRequest::Write => libc::aio_write(block),
                AioRequest::SyncData => libc::aio_fsync(libc::O_DSYNC, block),
                AioRequest::Sync => libc::aio_fsync(libc::O_SYNC, block),
            }
        };
        checked(libc::c_long::from(result)).map(drop)
    }

    /// aio_error(3), and aio_return(3) where the request is over: bytes or `-errno`, none while it is under way.
    ///
    /// # Safety
    /// The control block was handed over, and no result of it was given.
    unsafe fn aio_result(&self, block: *mut libc::aiocb) -> Option<i64> {
        // SAFETY: the caller promises what the call needs.
        match unsafe { libc::aio_error(block) } {
            libc::EINPROGRESS => None,
            error => {
                // SAFETY: as above, and the request is over.
                let result = unsafe { libc::aio_return(block) };
                Some(if error == 0 { result as i64 } else { -i64::from(error) })
            }
        }
    }

    /// aio_suspend(3).
    ///
    /// # Safety
    /// `list` has `count` pointers to control blocks that the library has; `timeout` is null or points to a time.
    unsafe fn aio_suspend(
        &self,
        list: *const *const libc::aiocb,
        count: usize,
        timeout: *const libc::timespec,
    ) -> io::Result<()> {
        // SAFETY: the caller promises what the call needs.
        let result = unsafe { libc::aio_suspend(list, count as libc::c_int, timeout) };
        checked(libc::c_long::from(result)).map(drop)
    }

    /// The result of a request as it arrived in a completion queue. The kernel's is its last word;
    /// an injector may put another in its place.
    #[inline]
    fn completed(&self, result: i64) -> i64 {
        result
    }
}

/// The kernel itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linux;

/// The result of a raw system call, or its `errno`.
fn checked(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

// SAFETY: every method is the system call itself.
unsafe impl Kernel for Linux {
    fn io_uring_setup(&self, entries: u32, params: &mut Params) -> io::Result<OwnedFd> {
        // SAFETY: params is a valid io_uring_params for reading and writing.
        let fd =
            checked(unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, std::ptr::from_mut(params)) })?;
        // SAFETY: the call succeeded, so fd is a new descriptor that nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
    }

    unsafe fn io_uring_register(
        &self,
        ring: RawFd,
        opcode: u32,
        arg: *const libc::c_void,
        count: u32,
    ) -> io::Result<u32> {
        // SAFETY: the caller promises what the call needs.
        checked(unsafe { libc::syscall(libc::SYS_io_uring_register, ring, opcode, arg, count) })
            .map(|n| n as u32)
    }

    #[inline]
    unsafe fn io_uring_enter(
        &self,
        ring: RawFd,
        to_submit: u32,
        min_complete: u32,
        flags: u32,
        arg: *const libc::c_void,
        arg_bytes: usize,
    ) -> io::Result<u32> {
        // SAFETY: the caller promises what the call needs.
        checked(unsafe {
            libc::syscall(libc::SYS_io_uring_enter, ring, to_submit, min_complete, flags, arg, arg_bytes)
        })
        .map(|n| n as u32)
    }

    fn io_setup(&self, events: u32) -> io::Result<u64> {
        let mut context: u64 = 0;
        // SAFETY: the pointer is to an aio_context_t that is zero, as io_setup(2) asks.
        checked(unsafe { libc::syscall(libc::SYS_io_setup, events, &raw mut context) })?;
        Ok(context)
    }

    fn io_destroy(&self, context: u64) -> io::Result<()> {
        // SAFETY: io_destroy takes a number; one that names no context is answered by EINVAL.
        checked(unsafe { libc::syscall(libc::SYS_io_destroy, context) }).map(drop)
    }

    #[inline]
    unsafe fn io_submit(&self, context: u64, count: usize, list: *mut *mut Iocb) -> io::Result<usize> {
        // SAFETY: the caller promises what the call needs.
        checked(unsafe { libc::syscall(libc::SYS_io_submit, context, count, list) })
    }

    #[inline]
    unsafe fn io_getevents(
        &self,
        context: u64,
        min: usize,
        max: usize,
        events: *mut IoEvent,
        timeout: *mut libc::timespec,
    ) -> io::Result<usize> {
        // SAFETY: the caller promises what the call needs.
        checked(unsafe { libc::syscall(libc::SYS_io_getevents, context, min, max, events, timeout) })
    }

    #[inline]
    unsafe fn pread(&self, fd: RawFd, buffer: *mut u8, length: usize, offset: u64) -> io::Result<usize> {
        // SAFETY: the caller promises that the buffer holds length bytes.
        checked(unsafe { libc::pread(fd, buffer.cast(), length, offset as libc::off_t) } as libc::c_long)
    }

    #[inline]
    unsafe fn pwrite(&self, fd: RawFd, buffer: *const u8, length: usize, offset: u64) -> io::Result<usize> {
        // SAFETY: the caller promises that the buffer holds length bytes.
        checked(unsafe { libc::pwrite(fd, buffer.cast(), length, offset as libc::off_t) } as libc::c_long)
    }

    fn fdatasync(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: fdatasync takes no pointer.
        checked(libc::c_long::from(unsafe { libc::fdatasync(fd) })).map(drop)
    }

    fn fsync(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: fsync takes no pointer.
        checked(libc::c_long::from(unsafe { libc::fsync(fd) })).map(drop)
    }
}
