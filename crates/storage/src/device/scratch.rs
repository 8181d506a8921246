//! Scratch files that leave nothing behind.
//!
//! A scratch file has no name where the file system can make such files (`O_TMPFILE`, open(2)): it
//! vanishes with its last descriptor, so that neither an error nor `kill -9` leaves debris. Elsewhere
//! it is made under a name that begins with `.flashwright-scratch-` and is removed at once, before any
//! space is taken. It is reached again through `/proc/self/fd`, so that it can be open directly and
//! buffered at the same time.

use std::fs::{File, OpenOptions as FsOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::file::{self, reserve};
use super::{Access, Device, OpenError, OpenOptions, failed, mark, open_error, sys};

/// A file of a fixed length that lasts as long as it is open. Its contents are unwritten at first.
#[derive(Debug)]
pub struct ScratchFile {
    file: File,
    directory: PathBuf,
    size: u64,
}

impl ScratchFile {
    /// Makes a file of `size` bytes in `directory`, with the space for it set aside.
    ///
    /// # Errors
    /// [`OpenError`]: no such directory, no permission, no space.
    pub fn create(directory: &Path, size: u64) -> Result<Self, OpenError> {
        let file = unnamed(directory)?;
        reserve(&file, directory, size).map_err(|error| no_space(directory, size, error))?;
        mark::set(file.as_fd());
        Ok(Self { file, directory: directory.to_owned(), size })
    }

    /// Makes a file of `size` bytes in `directory` that takes no space yet. A range is [set aside](Self::set_aside) before
    /// it is written: a direct write into a hole would go through the page cache on some file systems.
    ///
    /// # Errors
    /// As [`create`](Self::create), and where the file system has no files of that length.
    pub fn create_empty(directory: &Path, size: u64) -> Result<Self, OpenError> {
        let file = unnamed(directory)?;
        file.set_len(size).map_err(|error| no_space(directory, size, error))?;
        mark::set(file.as_fd());
        Ok(Self { file, directory: directory.to_owned(), size })
    }

    /// Sets the space of a range aside, which lies within the file's size.
    ///
    /// # Errors
    /// [`OpenError::NoSpace`].
    pub fn set_aside(&self, offset: u64, length: u64) -> Result<(), OpenError> {
        assert!(offset + length <= self.size, "a range within the file");
        match sys::allocate_range(self.file.as_fd(), offset, length) {
            // No such call on this file system: a write takes the space.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => Ok(()),
            result => result.map_err(|error| no_space(&self.directory, length, error)),
        }
    }

    /// Where it was made.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Its size, bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The open file, for whoever needs no device.
    #[must_use]
    pub fn into_file(self) -> File {
        self.file
    }

    /// The name by which this process, and nobody else, can open it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Opens it as a device; `spec` is what messages call it.
    ///
    /// # Errors
    /// [`OpenError`], for instance where the file system has no direct I/O.
    pub fn open(&self, spec: &str, options: &OpenOptions) -> Result<Arc<dyn Device>, OpenError> {
        let path = self.path();
        let status = sys::status(self.file.as_fd()).map_err(|e| failed(&self.directory, "statx", e))?;
        Ok(Arc::new(file::open_existing(spec.to_owned(), &path, &status, None, options)?))
    }
}

/// The failure of setting `asked` bytes aside.
fn no_space(directory: &Path, asked: u64, error: io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => OpenError::NoSpace {
            path: directory.to_owned(),
            asked,
            available: sys::space(directory).map_or(0, |(free, _)| free),
            source: Some(error),
        },
        _ => failed(directory, "fallocate", error),
    }
}

/// An open file without a name.
fn unnamed(directory: &Path) -> Result<File, OpenError> {
    let error = |error: io::Error| open_error(directory, Access::ReadWrite, error);
    let open =
        |flags| FsOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(directory);
    match open(libc::O_TMPFILE | libc::O_CLOEXEC) {
        Ok(file) => return Ok(file),
        // EISDIR is what a kernel or file system answers that does not know the flag.
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => {}
        Err(e) => return Err(error(e)),
    }
    // The name only lives between these two calls. Removing the name of an open file keeps its contents
    // on every file system that Linux mounts (NFS renames it until the last close).
    for attempt in 0..100 {
        let name = format!(".flashwright-scratch-{}-{attempt}", std::process::id());
        let path = directory.join(name);
        let made = FsOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        match made {
            Ok(file) => {
                std::fs::remove_file(&path).map_err(error)?;
                return Ok(file);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(error(e)),
        }
    }
    Err(error(io::ErrorKind::AlreadyExists.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_written_and_read_and_has_no_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let scratch = ScratchFile::create(directory.path(), 1 << 20).expect("is made");
        let device = scratch
            .open("scratch", &OpenOptions { direct: false, ..OpenOptions::writing() })
            .expect("opens for writing");
        assert_eq!((device.spec(), device.size()), ("scratch", 1 << 20));
        device.write_at(&[7; 4096], 8192).expect("writes");
        let mut back = [0; 4096];
        device.read_at(&mut back, 8192).expect("reads");
        assert_eq!(back, [7; 4096]);
        assert_eq!(std::fs::read_dir(directory.path()).expect("lists").count(), 0);
    }

    #[test]
    fn an_empty_one_takes_the_space_that_is_set_aside_and_no_more() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().expect("a directory");
        let scratch = ScratchFile::create_empty(directory.path(), 1 << 30).expect("is made");
        let taken = || std::fs::metadata(scratch.path()).expect("is there").blocks() * 512;
        assert_eq!(taken(), 0);
        scratch.set_aside(1 << 20, 1 << 20).expect("fits");
        // A file system may round up, and count its own tables.
        assert!((1 << 20..4 << 20).contains(&taken()), "{} bytes", taken());
        let device = scratch
            .open("scratch", &OpenOptions { direct: false, ..OpenOptions::writing() })
            .expect("opens for writing");
        assert_eq!(device.size(), 1 << 30);
        device.write_at(&[7; 4096], 1 << 20).expect("writes");
    }

    #[test]
    fn a_missing_directory_and_a_lack_of_space_are_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = ScratchFile::create(&directory.path().join("nowhere"), 4096).unwrap_err();
        assert!(matches!(missing, OpenError::Missing { .. }), "{missing:?}");
        let huge = ScratchFile::create(directory.path(), 1 << 60).unwrap_err();
        assert!(matches!(huge, OpenError::NoSpace { .. } | OpenError::Io { .. }), "{huge:?}");
    }
}
