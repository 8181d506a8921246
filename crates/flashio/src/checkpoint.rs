//! A task's checkpoint file: written with large direct requests, several at once, and made durable; read back around the page
//! cache.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bench::payload::Payload;
use rustix::fs::{Mode, OFlags};
use stage::uncached::Uncached;
use storage::transfer::{ALIGNMENT, Method, Op, Request, RequestError, Ticket, Transfer, TransferConfig};

use crate::error::FlashioError;
use crate::pattern::Stamp;

/// Bytes of a request.
const REQUEST_BYTES: u64 = 4 << 20;
/// Requests at once.
const REQUESTS: u32 = 4;

/// The file of a task in the directory of a checkpoint.
pub fn file_name(task: u32) -> String {
    format!("task-{task:05}")
}

/// Writes and reads checkpoint files.
pub struct Files {
    transfer: Transfer,
    payload: Payload,
    request_bytes: u32,
}

impl Files {
    /// For files of so many bytes, a multiple of 4096.
    pub fn new(file_bytes: u64, seed: u64) -> io::Result<Self> {
        let request_bytes = REQUEST_BYTES.min(file_bytes) as u32;
        let (slots, method) = (REQUESTS, Method::Auto);
        let config = TransferConfig { slots, slot_bytes: request_bytes, method, idle: false };
        let (mut transfer, mut payload) = (Transfer::new(&config)?, Payload::new(seed, 0));
        (0..slots).for_each(|slot| payload.fill(transfer.buffer_mut(slot)));
        Ok(Self { transfer, payload, request_bytes })
    }

    /// Writes a new file and makes it durable.
    pub fn write(&mut self, path: &Path, bytes: u64, stamp: Stamp) -> Result<(), FlashioError> {
        let (file, alignment) = create(path).map_err(FlashioError::io("create it", path))?;
        let file = Arc::new(file);
        self.each(
            bytes,
            |files, slot, offset, length| {
                let buffer = &mut files.transfer.buffer_mut(slot)[..length as usize];
                files.payload.renew(buffer);
                stamp.seal(buffer, offset);
                Request {
                    file: &file,
                    op: Op::Write,
                    slot,
                    within: 0,
                    offset,
                    length,
                    needed: length,
                    alignment,
                    most: None,
                }
            },
            |_, _, _, _| Ok(()),
        )
        .map_err(|failure| failure.of("write", path))?;
        rustix::fs::fsync(&*file).map_err(|error| FlashioError::io("fsync it", path)(error.into()))
    }

    /// Reads a whole file. With a stamp, its blocks are compared with what was written; how many were.
    pub fn read(&mut self, path: &Path, bytes: u64, stamp: Option<Stamp>) -> Result<u64, FlashioError> {
        let open =
            |flags| Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | flags, Mode::empty())?);
        let file = Uncached::open(open).map_err(FlashioError::io("open it", path))?;
        let length = rustix::fs::fstat(file.file().as_fd()).map_err(|error| error.into());
        let length = length.map_err(FlashioError::io("stat it", path))?.st_size as u64;
        if length != bytes {
            let what = format!("it has {length} bytes in place of {bytes}");
            return Err(FlashioError::Wrong { path: path.to_owned(), what });
        }
        let alignment = if file.is_direct() { ALIGNMENT as u32 } else { 1 };
        let mut blocks = 0;
        let request = |_: &mut Self, slot, offset, length| Request {
            file: file.file(),
            op: Op::Read,
            slot,
            within: 0,
            offset,
            length,
            needed: length,
            alignment,
            most: None,
        };
        self.each(bytes, request, |files, slot, offset, length| {
            let buffer = &files.transfer.buffer(slot)[..length as usize];
            blocks += stamp.map_or(Ok(0), |stamp| stamp.check(buffer, offset))?;
            Ok(())
        })
        .map_err(|failure| failure.of("read", path))?;
        Ok(blocks)
    }

    /// Makes a request for each part of a file, as many at once as there are buffers.
    fn each<'a>(
        &mut self,
        bytes: u64,
        mut request: impl FnMut(&mut Self, u32, u64, u32) -> Request<'a>,
        mut done: impl FnMut(&mut Self, u32, u64, u32) -> Result<(), String>,
    ) -> Result<(), Failure> {
        let part = |n: u64| {
            let offset = n * u64::from(self.request_bytes);
            (offset, (bytes - offset).min(u64::from(self.request_bytes)) as u32)
        };
        let parts: Vec<(u64, u32)> = (0..bytes.div_ceil(u64::from(self.request_bytes))).map(part).collect();
        let mut next = parts.iter().copied();
        let mut under_way = [(0, 0); REQUESTS as usize];
        for slot in 0..REQUESTS {
            let Some((offset, length)) = next.next() else { break };
            under_way[slot as usize] = (offset, length);
            let request = request(self, slot, offset, length);
            self.transfer.start(&request);
        }
        let mut failed = None;
        while let Some(over) = self.transfer.next().map_err(Failure::Os)? {
            let Ticket::Slot(slot) = over.ticket else { continue };
            let (offset, length) = under_way[slot as usize];
            let result = over.result.map_err(Failure::of_request);
            let result = result.and_then(|_| done(self, slot, offset, length).map_err(Failure::Wrong));
            // After a failure what is under way is waited for, so that the buffers are idle for the next file.
            failed = failed.or(result.err());
            if let Some((offset, length)) = next.next().filter(|_| failed.is_none()) {
                under_way[slot as usize] = (offset, length);
                let request = request(self, slot, offset, length);
                self.transfer.start(&request);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Why a file could not be written or read.
enum Failure {
    Os(io::Error),
    Wrong(String),
}

impl Failure {
    fn of_request(error: RequestError) -> Self {
        match error {
            RequestError::Os(error) => Self::Os(error),
            short @ RequestError::Short { .. } => Self::Os(io::Error::other(short)),
        }
    }

    fn of(self, operation: &'static str, path: &Path) -> FlashioError {
        match self {
            Self::Os(source) => FlashioError::Io { operation, path: path.to_owned(), source },
            Self::Wrong(what) => FlashioError::Wrong { path: path.to_owned(), what },
        }
    }
}

/// A new file for direct writes where the file system takes them, and what they are multiples of.
fn create(path: &Path) -> io::Result<(OwnedFd, u32)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = |more| rustix::fs::open(path, flags | more, Mode::from_raw_mode(0o644));
    match open(OFlags::DIRECT) {
        Ok(file) => Ok((file, ALIGNMENT as u32)),
        Err(rustix::io::Errno::INVAL) => {
            // Some file systems have made the file before they refuse the flag.
            let _ = rustix::fs::unlink(path);
            Ok((open(OFlags::empty())?, 1))
        }
        Err(error) => Err(error.into()),
    }
}

/// The file of a task.
pub fn path(directory: &Path, task: u32) -> PathBuf {
    directory.join(file_name(task))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    const STAMP: Stamp = Stamp { leg: 1, task: 2, step: 3 };

    #[test]
    fn what_was_written_is_read_back_and_every_block_is_compared() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        for bytes in [4096, REQUEST_BYTES, 5 * REQUEST_BYTES + 3 * 4096] {
            let path = folder.path().join(bytes.to_string());
            let mut files = Files::new(bytes, 9).unwrap();
            files.write(&path, bytes, STAMP).unwrap();
            assert_eq!(files.read(&path, bytes, Some(STAMP)).unwrap(), bytes / 4096);
            assert_eq!(files.read(&path, bytes, None).unwrap(), 0);
            // A file that is there is never written over.
            assert!(matches!(files.write(&path, bytes, STAMP), Err(FlashioError::Io { .. })));
            // The last byte, in the last block.
            let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let mut last = [0];
            file.read_exact_at(&mut last, bytes - 1).unwrap();
            file.write_all_at(&[last[0] ^ 1], bytes - 1).unwrap();
            file.sync_all().unwrap();
            let error = files.read(&path, bytes, Some(STAMP)).unwrap_err().to_string();
            assert!(error.contains(&format!("offset {} of task 2, step 3", bytes - 4096)), "{error}");
            file.set_len(bytes - 1).unwrap();
            let error = files.read(&path, bytes, Some(STAMP)).unwrap_err().to_string();
            assert!(error.contains("in place of"), "{error}");
        }
    }
}
