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

/// A file of a fixed size for the time of a measurement. Its contents are unwritten at first.
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
        reserve(&file, directory, size).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => OpenError::NoSpace {
                path: directory.to_owned(),
                asked: size,
                available: sys::space(directory).map_or(0, |(free, _)| free),
                source: Some(error),
            },
            _ => failed(directory, "fallocate", error),
        })?;
        mark::set(file.as_fd());
        Ok(Self { file, directory: directory.to_owned(), size })
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
    fn a_missing_directory_and_a_lack_of_space_are_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = ScratchFile::create(&directory.path().join("nowhere"), 4096).unwrap_err();
        assert!(matches!(missing, OpenError::Missing { .. }), "{missing:?}");
        let huge = ScratchFile::create(directory.path(), 1 << 60).unwrap_err();
        assert!(matches!(huge, OpenError::NoSpace { .. } | OpenError::Io { .. }), "{huge:?}");
    }
}
