//! A file that memory is filled from at the start and written back to at the end.
//!
//! Written back as whatever must never be half there: into a file beside it, fsync(2), rename(2) over the old one,
//! fsync(2) of the directory. Whoever loses power on the way has the old contents or the new ones. Blocks of zeros
//! become holes, so an empty drive takes no space.
//!
//! Between start and end the file is not touched: what was written to the memory since the start is lost with the
//! process, as memory is.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use storage::memory::SharedMemory;
use tempfile::NamedTempFile;

/// Bytes that are moved at a time, and the least that becomes a hole.
const STEP: usize = 64 << 10;

/// A file that could not be loaded or written back.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// More than there is room for.
    #[error("{}: holds {}, more than the {} of memory", path.display(), units::bytes(*length), units::bytes(*size))]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        length: u64,
        /// Bytes of the memory.
        size: u64,
    },
    /// A FIFO, a device, a directory.
    #[error("{}: is no regular file", path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// A file that is to be read only, and is not there.
    #[error("{}: there is no such file", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// A file in a directory that is not there.
    #[error("{}: there is no directory {}", path.display(), directory.display())]
    NoDirectory {
        /// The path.
        path: PathBuf,
        /// Its directory.
        directory: PathBuf,
    },
    /// A step that failed.
    #[error("{}: cannot {operation}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was to be done.
        operation: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl ImageError {
    /// What to do about it, if there is something.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::TooLarge { length, .. } => Some(format!("--size={length} is the least that holds it")),
            Self::NoFile { .. } => Some("name a file, or a name that is free".to_owned()),
            Self::Missing { .. } => {
                Some("name a file that is there: with --read-only it is not made".to_owned())
            }
            Self::NoDirectory { .. } => Some("make the directory, or name another file".to_owned()),
            Self::Io { .. } => None,
        }
    }
}

fn failed(path: &Path, operation: &'static str) -> impl FnOnce(io::Error) -> ImageError {
    let path = path.to_owned();
    move |source| ImageError::Io { path, operation, source }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file beside it that is written before it takes its place: of a name that nobody can know before, never through a
/// link, for its owner alone, and removed unless it takes the place.
fn beside(path: &Path) -> Result<NamedTempFile, ImageError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    tempfile::Builder::new()
        .prefix(&format!(".{name}."))
        .tempfile_in(directory(path))
        .map_err(failed(path, "make a file beside it"))
}

/// Checks before the memory is taken that `path` can be loaded and, if it `is_written_back`, that a file can be made
/// beside it. A file that is written back may be missing.
///
/// # Errors
/// [`ImageError`]; what the user can mend is not [`ImageError::Io`].
pub fn check(path: &Path, is_written_back: bool) -> Result<(), ImageError> {
    let folder = directory(path);
    match folder.metadata() {
        Ok(facts) if facts.is_dir() => {}
        Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(failed(path, "look at its directory")(error));
        }
        _ => return Err(ImageError::NoDirectory { path: path.to_owned(), directory: folder.to_owned() }),
    }
    match path.metadata() {
        Ok(facts) if !facts.is_file() => return Err(ImageError::NoFile { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_written_back => {
            return Err(ImageError::Missing { path: path.to_owned() });
        }
        // Other errors are those of opening it.
        _ => {}
    }
    if is_written_back {
        beside(path)?.close().map_err(failed(path, "remove a file beside it"))?;
    }
    Ok(())
}

/// Fills the memory from the beginning with what the file holds, if it is there; bytes loaded. What lies behind stays
/// zero.
///
/// # Errors
/// [`ImageError`]; a file larger than the memory is not loaded in part.
pub fn load(memory: &SharedMemory, path: &Path) -> Result<u64, ImageError> {
    // Opening a FIFO waits for a writer, unless it is opened with O_NONBLOCK; on a regular file the flag has no effect.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(failed(path, "open it")(error)),
    };
    let facts = file.metadata().map_err(failed(path, "look at it"))?;
    if !facts.is_file() {
        return Err(ImageError::NoFile { path: path.to_owned() });
    }
    let (length, size) = (facts.len(), memory.len());
    if length > size {
        return Err(ImageError::TooLarge { path: path.to_owned(), length, size });
    }
    let mut buffer = vec![0; STEP];
    let mut at = 0;
    while at < length {
        let part = &mut buffer[..STEP.min((length - at) as usize)];
        file.read_exact_at(part, at).map_err(failed(path, "read it"))?;
        // Fresh memory is zero, and what a hole reads as needs no copy.
        if part.iter().any(|byte| *byte != 0) {
            memory.copy_in(at, part).map_err(|error| failed(path, "load it")(io::Error::other(error)))?;
        }
        at += part.len() as u64;
    }
    Ok(length)
}

/// Puts all of the memory into the file, durably: see the module's argument.
///
/// # Errors
/// [`ImageError`]; the old file is then as it was.
pub fn write_back(memory: &SharedMemory, path: &Path) -> Result<(), ImageError> {
    let beside = beside(path)?;
    fill(memory, beside.as_file()).map_err(|(operation, source)| failed(path, operation)(source))?;
    beside.persist(path).map_err(|error| failed(path, "put the new contents into its place")(error.error))?;
    let folder = directory(path);
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(failed(folder, "make the new name durable"))
}

fn fill(memory: &SharedMemory, file: &File) -> Result<(), (&'static str, io::Error)> {
    file.set_len(memory.len()).map_err(|error| ("make it as long as the memory", error))?;
    let mut buffer = vec![0; STEP];
    let mut at = 0;
    while at < memory.len() {
        let part = &mut buffer[..STEP.min((memory.len() - at) as usize)];
        memory.copy_out(at, part).map_err(|error| ("copy to it", io::Error::other(error)))?;
        if part.iter().any(|byte| *byte != 0) {
            file.write_all_at(part, at).map_err(|error| ("write it", error))?;
        }
        at += part.len() as u64;
    }
    file.sync_all().map_err(|error| ("make it durable", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use storage::device::{self, DeviceSpec, OpenOptions};

    fn with_memory(size: u64, test: impl FnOnce(&SharedMemory)) {
        let device = device::open(&DeviceSpec::Memory { size }, &OpenOptions::writing()).expect("memory");
        test(device.memory().expect("is memory"));
    }

    #[test]
    fn what_was_written_back_is_loaded_again_and_zeros_take_no_space() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("image");
        with_memory(8 << 20, |memory| {
            assert_eq!(load(memory, &path).expect("nothing there"), 0);
            memory.copy_in(5_000_000, b"flash").expect("inside");
            write_back(memory, &path).expect("is written");
        });
        let facts = std::fs::metadata(&path).expect("is there");
        assert_eq!(facts.len(), 8 << 20);
        assert!(facts.blocks() * 512 < 1 << 20, "{} blocks", facts.blocks());
        with_memory(16 << 20, |memory| {
            assert_eq!(load(memory, &path).expect("fits"), 8 << 20);
            let mut back = [0; 5];
            memory.copy_out(5_000_000, &mut back).expect("inside");
            assert_eq!(&back, b"flash");
        });
        assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 1, "nothing stays beside it");
    }

    #[test]
    fn a_file_that_does_not_fit_is_refused_and_stays() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("image");
        std::fs::write(&path, vec![7; 2 << 20]).expect("writes");
        with_memory(1 << 20, |memory| {
            let error = load(memory, &path).expect_err("is too large");
            assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
            assert!(load(memory, folder.path()).is_err());
        });
        assert_eq!(std::fs::metadata(&path).expect("is there").len(), 2 << 20);
    }

    #[test]
    fn a_link_that_lies_in_wait_is_not_followed() {
        let folder = tempfile::tempdir().expect("a directory");
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "precious").expect("writes");
        // The name that was taken before, and the image's own.
        let name = format!(".image.{}", std::process::id());
        std::os::unix::fs::symlink(&victim, folder.path().join(name)).expect("links");
        std::os::unix::fs::symlink(&victim, folder.path().join("image")).expect("links");
        let path = folder.path().join("image");
        check(&path, true).expect("can be written");
        with_memory(1 << 20, |memory| write_back(memory, &path).expect("is written"));
        assert_eq!(std::fs::read_to_string(&victim).expect("is there"), "precious");
        assert!(std::fs::symlink_metadata(&path).expect("is there").is_file());
    }

    #[test]
    fn a_place_that_cannot_be_written_to_is_told_before_it_is_relied_on() {
        let folder = tempfile::tempdir().expect("a directory");
        let missing = check(&folder.path().join("no/such/place"), true);
        assert!(matches!(missing, Err(ImageError::NoDirectory { .. })), "{missing:?}");
        let image = folder.path().join("image");
        check(&image, true).expect("can be written");
        assert!(matches!(check(&image, false), Err(ImageError::Missing { .. })));
        assert!(matches!(check(folder.path(), true), Err(ImageError::NoFile { .. })));
        assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0);
    }
}
