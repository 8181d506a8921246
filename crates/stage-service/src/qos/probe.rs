//! The probe: one block of a small file of our own, read around the page cache.
//!
//! The file has no name (O_TMPFILE; where a file system does not know it, the name is gone before the first byte is
//! written), so that nothing stays behind whatever becomes of this process. It is written and made durable before it
//! is read: holes and unwritten extents are answered without asking the device. Its content does not repeat and does
//! not compress.
//!
//! Where the page cache cannot be gone around, or there is no device (memory), a probe would tell how fast memory is,
//! and nothing about the tier: there is no governor then, and the job says so.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use storage::fs_type;

/// The name that the file has where it needs one, for a moment.
const NAME: &str = ".flashwright-probe";

const BLOCK_BYTES: usize = 4096;

/// The file is written in pieces of this size: a tier may be slow, or limited in requests.
const PIECE_BYTES: usize = 128 << 10;

/// Enough places that a probe seldom meets the same one twice in a row; less where there is no room.
const FILE_BYTES: [usize; 2] = [8 << 20, 1 << 20];

/// Why there can be no probe; a note of the job, not an error.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoProbe {
    #[error("{} is memory", stage::error::shown(.0))]
    Memory(PathBuf),
    #[error("{}: the page cache cannot be gone around", stage::error::shown(.0))]
    Buffered(PathBuf),
    #[error("{}: cannot {operation}: {source}", stage::error::shown(.path))]
    Kernel { path: PathBuf, operation: &'static str, source: std::io::Error },
}

/// Memory as O_DIRECT wants it.
#[repr(align(4096))]
struct Piece([u8; PIECE_BYTES]);

/// An open probe file.
pub(super) struct Probe {
    file: OwnedFd,
    path: PathBuf,
    blocks: u64,
    piece: Box<Piece>,
    random: u64,
}

impl Probe {
    /// Makes one in a directory of the tier. The seed, which is not zero, decides what is in it and where it is read.
    pub(super) fn open(directory: &Path, seed: u64) -> Result<Self, NoProbe> {
        let failed = |operation, source: std::io::Error| NoProbe::Kernel {
            path: directory.to_owned(),
            operation,
            source,
        };
        let at = fs::open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| failed("open it", error.into()))?;
        if fs_type::is_memory(fs_type::of(&at).map_err(|error| failed("ask what it lies on", error))?) {
            return Err(NoProbe::Memory(directory.to_owned()));
        }
        let file = match nameless(&at) {
            Err(Errno::INVAL) => return Err(NoProbe::Buffered(directory.to_owned())),
            made => made.map_err(|error| failed("make a file to probe it with", error.into()))?,
        };
        let mut probe = Self {
            file,
            path: directory.to_owned(),
            blocks: 0,
            piece: Box::new(Piece([0; PIECE_BYTES])),
            random: seed,
        };
        probe.fill()?;
        // The first read tells whether blocks of this size can be read at all.
        probe.read()?;
        Ok(probe)
    }

    fn fill(&mut self) -> Result<(), NoProbe> {
        let mut last = Errno::NOSPC;
        for bytes in FILE_BYTES {
            match self.write(bytes) {
                Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                    last = error;
                    // Truncating what no name leads to can only fail where the next write fails as well.
                    let _ = fs::ftruncate(&self.file, 0);
                }
                Err(Errno::INVAL) => return Err(NoProbe::Buffered(self.path.clone())),
                made => return made.map_err(|error| self.failed("write a file to probe it with", error)),
            }
        }
        Err(self.failed("write a file to probe it with", last))
    }

    fn write(&mut self, bytes: usize) -> Result<(), Errno> {
        for offset in (0..bytes).step_by(PIECE_BYTES) {
            for word in self.piece.0.chunks_exact_mut(8) {
                self.random = next(self.random);
                word.copy_from_slice(&self.random.to_le_bytes());
            }
            let mut done = 0;
            while done < PIECE_BYTES {
                match rustix::io::pwrite(&self.file, &self.piece.0[done..], (offset + done) as u64) {
                    Ok(0) => return Err(Errno::NOSPC),
                    Ok(written) => done += written,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        fs::fsync(&self.file)?;
        self.blocks = (bytes / BLOCK_BYTES) as u64;
        Ok(())
    }

    /// Reads one block somewhere in the file; the nanoseconds that it took.
    pub(super) fn read(&mut self) -> Result<u64, NoProbe> {
        self.random = next(self.random);
        let offset = self.random % self.blocks.max(1) * BLOCK_BYTES as u64;
        let begun = Instant::now();
        let read = loop {
            match rustix::io::pread(self.file.as_fd(), &mut self.piece.0[..BLOCK_BYTES], offset) {
                Err(Errno::INTR) => {}
                read => break read,
            }
        };
        let took = begun.elapsed();
        match read {
            Ok(BLOCK_BYTES) => Ok(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)),
            Ok(_) => Err(self.failed("read its probe", Errno::IO)),
            Err(Errno::INVAL) => Err(NoProbe::Buffered(self.path.clone())),
            Err(error) => Err(self.failed("read its probe", error)),
        }
    }

    fn failed(&self, operation: &'static str, source: Errno) -> NoProbe {
        NoProbe::Kernel { path: self.path.clone(), operation, source: source.into() }
    }
}

/// xorshift64 (Marsaglia, 2003): never zero, and does not compress.
fn next(mut random: u64) -> u64 {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    random
}

/// A file without a name.
fn nameless(at: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT;
    let mode = Mode::RUSR | Mode::WUSR;
    match fs::openat(at, ".", flags | OFlags::TMPFILE, mode) {
        // ISDIR: a kernel or file system that does not know it, and sees a directory that is to be written to.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {}
        opened => return opened,
    }
    let named = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let file = match fs::openat(at, NAME, named, mode) {
        Err(Errno::EXIST) => {
            remove_left_behind(at)?;
            fs::openat(at, NAME, named, mode)?
        }
        opened => opened?,
    };
    fs::unlinkat(at, NAME, AtFlags::empty())?;
    Ok(file)
}

/// Removes what a process left behind that was killed between making the file and unlinking it. Only what can be that
/// goes: an empty file of our own.
fn remove_left_behind(at: &OwnedFd) -> Result<(), Errno> {
    let found = fs::statat(at, NAME, AtFlags::SYMLINK_NOFOLLOW)?;
    let ours = found.st_uid == rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || !ours || found.st_size != 0 {
        return Err(Errno::EXIST);
    }
    fs::unlinkat(at, NAME, AtFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory on a file system that is no memory, if the machine has one.
    fn on_a_device() -> Option<tempfile::TempDir> {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).ok()?;
        Some(directory)
    }

    #[test]
    fn nothing_of_a_probe_is_to_be_seen() {
        let Some(directory) = on_a_device() else { return };
        match Probe::open(directory.path(), 7) {
            Ok(mut probe) => {
                assert!(probe.read().unwrap() > 0);
                assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
            }
            Err(NoProbe::Memory(_) | NoProbe::Buffered(_)) => {
                println!("SKIP nothing_of_a_probe_is_to_be_seen: O_DIRECT cannot be had here");
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn memory_is_not_probed() {
        let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
            println!("SKIP memory_is_not_probed: no /dev/shm");
            return;
        };
        match Probe::open(directory.path(), 7) {
            Err(NoProbe::Memory(path)) => assert_eq!(path, directory.path()),
            other => panic!("{:?}", other.err()),
        }
    }

    #[test]
    fn what_a_killed_process_left_behind_goes_and_nothing_else_does() {
        let directory = tempfile::tempdir().unwrap();
        let at = fs::open(directory.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let path = directory.path().join(NAME);
        std::fs::write(&path, b"").unwrap();
        remove_left_behind(&at).unwrap();
        assert!(!path.exists());
        std::fs::write(&path, b"somebody's").unwrap();
        assert_eq!(remove_left_behind(&at), Err(Errno::EXIST));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert_eq!(remove_left_behind(&at), Err(Errno::EXIST));
    }
}
