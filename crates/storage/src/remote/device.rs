//! An export of another host as a [`Device`]: the plain path.
//!
//! Each call has a connection to itself, of as many as the spec allows; further callers wait for their turn. Between
//! calls nothing but idle connections is kept, which engines take over: some servers serve one client at a time.
//! Longer transfers go in pieces of up to a mebibyte, several under way at a time. Where the server asks for whole
//! blocks, a part of one is read with its block, and written by reading that block first; nobody else's write to the
//! same block may come in between.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use nbd::uri::Uri;
use nbd::wire::request;

use super::durability::Handle;
use super::{Call, Command, Fleet, Remote, RemoteError, io_error};
use crate::device::{Device, DeviceKind, Geometry, ZeroOptions, zeroes};

/// Pieces of a longer transfer, and how many of them are under way at a time.
const PIECE: u64 = 1 << 20;
const AT_A_TIME: u32 = 4;
/// The longest discard of one request: a length has 32 bits, and stays a multiple of any block.
const LONGEST_DISCARD: u64 = 1 << 30;

/// An export of another host. See the module's argument.
#[derive(Debug)]
pub struct NbdDevice {
    spec: String,
    remote: Arc<Remote>,
    writable: bool,
    size: u64,
    /// Calls under way.
    calls: Mutex<u32>,
    call_ended: Condvar,
    handle: Arc<Handle>,
    /// For whoever asks for a descriptor: an export has none that reads and writes.
    null: File,
}

impl NbdDevice {
    /// Connects to the export that `uri` names.
    ///
    /// # Errors
    /// [`RemoteError`] where that fails, or the export does not allow what it is wanted for.
    pub fn open(uri: &Uri, for_writing: bool) -> Result<Self, RemoteError> {
        let remote = Remote::open(uri, for_writing)?;
        let local = |source| RemoteError::Local { host: uri.host(), operation: "open /dev/null", source };
        let null = File::open("/dev/null").map_err(local)?;
        let size = remote.export().size;
        let size = size - size % u64::from(remote.minimum());
        Ok(Self {
            spec: uri.to_string(),
            handle: Arc::new(remote.handle()),
            remote: Arc::new(remote),
            writable: for_writing,
            size,
            calls: Mutex::default(),
            call_ended: Condvar::new(),
            null,
        })
    }

    /// Runs `work` with a fleet of its own, which is gone before this returns.
    fn with_fleet<T>(&self, work: impl FnOnce(&mut Fleet) -> io::Result<T>) -> io::Result<T> {
        let _turn = Turn::take(self);
        let remotes = [(Arc::clone(&self.remote), Arc::clone(&self.handle))];
        let mut fleet = Fleet::connect(&remotes, 1, AT_A_TIME, PIECE).map_err(io_error)?;
        work(&mut fleet)
    }

    /// Does `command` over a range, in pieces.
    fn transfer(&self, command: Command, buffer: *mut u8, offset: u64, length: u64) -> io::Result<()> {
        let has_data = matches!(command, Command::Read | Command::Write);
        let step = if has_data { PIECE } else { LONGEST_DISCARD };
        self.with_fleet(|fleet| {
            let (mut begun, mut failure) = (0, None);
            let mut idle: Vec<u32> = (0..AT_A_TIME).collect();
            loop {
                while begun < length && failure.is_none() {
                    let Some(id) = idle.pop() else { break };
                    let part = step.min(length - begun);
                    let call = Call {
                        id,
                        host: 0,
                        command,
                        offset: offset + begun,
                        length: part as u32,
                        buffer: buffer.wrapping_add(begun as usize),
                    };
                    // SAFETY: the caller's buffer holds `length` bytes (none for a discard), which are his for this
                    // call; it does not return before all that began is over, or the fleet is dropped.
                    unsafe { fleet.begin(call) };
                    begun += part;
                }
                if idle.len() == AT_A_TIME as usize {
                    return failure.map_or(Ok(()), Err);
                }
                fleet.transmit();
                if fleet.finished.is_empty() {
                    fleet.wait(Duration::MAX)?;
                }
                while let Some((id, result)) = fleet.finished.pop_front() {
                    idle.push(id);
                    if result < 0 && failure.is_none() {
                        failure = Some(told(fleet, id, result));
                    }
                }
            }
        })
    }

    fn block(&self) -> u64 {
        u64::from(self.remote.minimum())
    }

    /// The whole blocks that hold a range, read; where they begin.
    fn blocks_around(&self, offset: u64, length: u64) -> io::Result<(u64, Vec<u8>)> {
        let start = offset - offset % self.block();
        let end = (offset + length).next_multiple_of(self.block());
        let mut whole = vec![0; (end - start) as usize];
        self.transfer(Command::Read, whole.as_mut_ptr(), start, end - start)?;
        Ok((start, whole))
    }

    fn is_aligned(&self, offset: u64, length: u64) -> bool {
        offset.is_multiple_of(self.block()) && length.is_multiple_of(self.block())
    }

    fn bounded(&self, offset: u64, length: u64, kind: io::ErrorKind) -> io::Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(io::Error::new(
                kind,
                format!("{length} bytes at {offset} reach beyond the end at {}", self.size),
            )),
        }
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.writable {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading only"))
    }
}

/// A call's leave to have a connection.
struct Turn<'d>(&'d NbdDevice);

impl<'d> Turn<'d> {
    fn take(device: &'d NbdDevice) -> Self {
        let calls = device.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |calls: &mut u32| *calls >= device.remote.connections();
        let mut calls = device.call_ended.wait_while(calls, full).unwrap_or_else(PoisonError::into_inner);
        *calls += 1;
        Self(device)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.calls.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.call_ended.notify_one();
    }
}

/// What an error of a request means.
fn told(fleet: &mut Fleet, id: u32, result: i64) -> io::Error {
    match fleet.reason(id) {
        Some(reason) => io_error(reason),
        None => io::Error::from_raw_os_error(-result as i32),
    }
}

impl Device for NbdDevice {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Nbd
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn geometry(&self) -> Geometry {
        let minimum = self.remote.minimum();
        let physical_block = self.remote.export().preferred_block.max(minimum);
        Geometry { logical_block: minimum, physical_block, memory_alignment: 1 }
    }

    /// Nothing of it is cached on this host, so it is as direct as a drive opened with O_DIRECT.
    fn is_direct(&self) -> bool {
        true
    }

    fn is_writable(&self) -> bool {
        self.writable
    }

    /// `/dev/null`: there is no descriptor that reads and writes the export.
    fn fd(&self) -> BorrowedFd<'_> {
        self.null.as_fd()
    }

    fn remote(&self) -> Option<&Arc<Remote>> {
        Some(&self.remote)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let length = buffer.len() as u64;
        self.bounded(offset, length, io::ErrorKind::UnexpectedEof)?;
        if self.is_aligned(offset, length) {
            return self.transfer(Command::Read, buffer.as_mut_ptr(), offset, length);
        }
        let (start, whole) = self.blocks_around(offset, length)?;
        buffer.copy_from_slice(&whole[(offset - start) as usize..][..buffer.len()]);
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable()?;
        let length = buffer.len() as u64;
        self.bounded(offset, length, io::ErrorKind::WriteZero)?;
        if self.is_aligned(offset, length) {
            return self.transfer(Command::Write, buffer.as_ptr().cast_mut(), offset, length);
        }
        let (start, mut whole) = self.blocks_around(offset, length)?;
        whole[(offset - start) as usize..][..buffer.len()].copy_from_slice(buffer);
        self.transfer(Command::Write, whole.as_mut_ptr(), start, whole.len() as u64)
    }

    /// `NBD_CMD_FLUSH`. A server without it has no way to say that anything is durable, so this is an error then.
    fn sync_data(&self) -> io::Result<()> {
        if !self.remote.export().flags.flush() {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        self.transfer_flush()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check_writable()?;
        self.bounded(offset, length, io::ErrorKind::InvalidInput)?;
        if !self.remote.export().flags.trim() {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        if !self.is_aligned(offset, length) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.transfer(Command::Trim, std::ptr::null_mut(), offset, length)
    }

    fn write_zeroes(&self, offset: u64, length: u64, how: ZeroOptions) -> io::Result<()> {
        self.check_writable()?;
        self.bounded(offset, length, io::ErrorKind::InvalidInput)?;
        let can = self.remote.export().flags;
        if !can.write_zeroes() || !self.is_aligned(offset, length) || (how.fast_only && !can.fast_zero()) {
            return zeroes::write(|bytes, at| self.write_at(bytes, at), offset, length, how);
        }
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        let flags =
            flag(how.keep_space, request::FLAG_NO_HOLE) | flag(how.fast_only, request::FLAG_FAST_ZERO);
        self.transfer(Command::Zero(flags), std::ptr::null_mut(), offset, length)
    }
}

impl NbdDevice {
    fn transfer_flush(&self) -> io::Result<()> {
        self.with_fleet(|fleet| {
            let call = Call {
                id: 0,
                host: 0,
                command: Command::Flush,
                offset: 0,
                length: 0,
                buffer: std::ptr::null_mut(),
            };
            // SAFETY: a flush has no data.
            unsafe { fleet.begin(call) };
            loop {
                fleet.transmit();
                if let Some((id, result)) = fleet.finished.pop_front() {
                    return if result < 0 { Err(told(fleet, id, result)) } else { Ok(()) };
                }
                fleet.wait(Duration::MAX)?;
            }
        })
    }
}
