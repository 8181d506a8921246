//! Files that appear as a whole: sections that grow side by side in a file of another name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use storage::cache;
use storage::device::Device;
use storage::locks::{self, Attempt};

use super::{PAGE_BYTES, Section};
use crate::GraphError;

/// Bytes that a section collects before they are written.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;
/// O_NOFOLLOW of open(2), the same on all architectures that this is built for but a few, where a link is then followed.
const O_NOFOLLOW: i32 = 0o400_000;

/// Writes the checksum section at `offset`; its place and its own checksum.
pub(crate) fn write_sums(sums: &[u32], offset: u64, place: &Place) -> Result<(Section, u32), GraphError> {
    let (mut checksum, mut at) = (0, offset);
    for part in sums.chunks(BUFFER_BYTES / 4) {
        let mut bytes: Vec<u8> = part.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES as usize), 0);
        checksum = crc32c::crc32c_append(checksum, &bytes);
        place.write(&bytes, at)?;
        at += bytes.len() as u64;
    }
    Ok((Section { offset, length: 4 * sums.len() as u64 }, checksum))
}

/// A section that grows.
#[derive(Debug)]
pub(crate) struct Stream {
    offset: u64,
    /// What it will be at the end, where that is known.
    reserved: u64,
    pub length: u64,
    buffer: Vec<u8>,
    pub sums: Vec<u32>,
}

impl Stream {
    pub fn at(offset: u64, reserved: u64) -> Self {
        Self { offset, reserved, length: 0, buffer: Vec::new(), sums: Vec::new() }
    }

    pub fn end(&self) -> u64 {
        self.offset + self.reserved.next_multiple_of(PAGE_BYTES)
    }

    pub fn add(&mut self, mut bytes: &[u8], place: &Place) -> Result<(), GraphError> {
        self.length += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BUFFER_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == BUFFER_BYTES {
                self.flush(place)?;
            }
        }
        Ok(())
    }

    pub fn zeros(&mut self, mut count: u64, place: &Place) -> Result<(), GraphError> {
        const ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];
        while count > 0 {
            let now = count.min(PAGE_BYTES);
            self.add(&ZEROS[..now as usize], place)?;
            count -= now;
        }
        Ok(())
    }

    /// Writes the buffer, padded to whole pages.
    fn flush(&mut self, place: &Place) -> Result<(), GraphError> {
        self.buffer.resize(self.buffer.len().next_multiple_of(PAGE_BYTES as usize), 0);
        place.write(&self.buffer, self.offset + self.sums.len() as u64 * PAGE_BYTES)?;
        self.sums.extend(self.buffer.chunks_exact(PAGE_BYTES as usize).map(crc32c::crc32c));
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest; where the section lies.
    pub fn close(&mut self, place: &Place) -> Result<Section, GraphError> {
        assert!(self.reserved == 0 || self.length == self.reserved, "a section is not as long as promised");
        self.flush(place)?;
        Ok(Section { offset: self.offset, length: self.length })
    }
}

/// Bytes that are written through the page cache before the kernel is told to bring them to the drive. A control group's limit
/// counts dirty pages as well; the kernel waits for pages that are under way, and ends a process that has only dirty ones.
const WRITEBACK_BYTES: u64 = 1 << 20;

/// Where the graph is written.
#[derive(Debug)]
pub(crate) struct Place {
    target: Target,
    /// Where it is to be.
    path: PathBuf,
    /// Bytes written since the kernel was told to bring them to the drive.
    dirty: AtomicU64,
    is_finished: bool,
}

#[derive(Debug)]
enum Target {
    /// The file is locked as long as it is open.
    File {
        file: File,
        partial: PathBuf,
    },
    Device(Arc<dyn Device>),
}

impl Place {
    /// A device, of which the first page is lost at once.
    pub fn device(device: Arc<dyn Device>, path: &Path) -> Result<Self, GraphError> {
        let place = Self {
            target: Target::Device(device),
            path: path.to_owned(),
            dirty: AtomicU64::new(0),
            is_finished: false,
        };
        place.write(&[0; PAGE_BYTES as usize], 0)?;
        place.sync()?;
        Ok(place)
    }

    /// A file that will replace what is at `path`. There is one writer of a path at a time.
    ///
    /// # Errors
    /// [`GraphError::Busy`] if another writer of the same path is at work.
    pub fn file(path: &Path) -> Result<Self, GraphError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let partial = path.with_file_name(format!(".{name}.partial"));
        remove_abandoned(&partial, path)?;
        let file = OpenOptions::new().write(true).create_new(true).custom_flags(O_NOFOLLOW).open(&partial);
        let file = match file {
            // Another writer came between these two steps.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(busy(path, None)),
            file => file.map_err(|source| GraphError::io("create", &partial, source))?,
        };
        lock(&file, &partial, path)?;
        // A writer that found the file before it was locked took it for abandoned, and removed it.
        if !is_at(&file, &partial) {
            return Err(busy(path, None));
        }
        Ok(Self {
            target: Target::File { file, partial },
            path: path.to_owned(),
            dirty: AtomicU64::new(0),
            is_finished: false,
        })
    }

    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<(), GraphError> {
        match &self.target {
            Target::File { file, .. } => {
                let dirty = self.dirty.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                let written = file.write_all_at(bytes, offset);
                if dirty + bytes.len() as u64 >= WRITEBACK_BYTES {
                    self.dirty.store(0, Ordering::Relaxed);
                    // Only a hint: what cannot be written is told when the file is synced.
                    let _ = cache::begin_writeback(file.as_fd());
                }
                written
            }
            Target::Device(device) => device.write_at(bytes, offset),
        }
        .map_err(|source| GraphError::io_at("write", &self.path, offset, source))
    }

    pub fn sync(&self) -> Result<(), GraphError> {
        match &self.target {
            Target::File { file, .. } => file.sync_all(),
            Target::Device(device) => device.sync_data(),
        }
        .map_err(|source| GraphError::io("sync", &self.path, source))
    }

    /// Writes the header after all else is durable, and gives the file its name.
    pub fn complete(&mut self, first_page: &[u8]) -> Result<(), GraphError> {
        self.sync()?;
        self.write(first_page, 0)?;
        self.sync()?;
        if let Target::File { partial, .. } = &self.target {
            std::fs::rename(partial, &self.path)
                .map_err(|source| GraphError::io("rename into place", &self.path, source))?;
            let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(folder)
                .and_then(|folder| folder.sync_all())
                .map_err(|source| GraphError::io("sync the directory of", &self.path, source))?;
        }
        self.is_finished = true;
        Ok(())
    }
}

/// Removes what a writer that was killed has left. A writer at work has it locked.
fn remove_abandoned(partial: &Path, path: &Path) -> Result<(), GraphError> {
    let failed = |operation, source| GraphError::io(operation, partial, source);
    let is_file = match std::fs::symlink_metadata(partial) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        facts => facts.map_err(|source| failed("stat", source))?.is_file(),
    };
    // Opened for writing, because NFS locks nothing else. The lock lasts until the file is removed.
    let file = if is_file {
        let opened = OpenOptions::new().write(true).custom_flags(O_NOFOLLOW).open(partial);
        Some(opened.map_err(|source| failed("open", source))?)
    } else {
        None
    };
    if let Some(file) = &file {
        lock(file, partial, path)?;
        if !is_at(file, partial) {
            return Err(busy(path, None));
        }
    }
    std::fs::remove_file(partial).map_err(|source| failed("remove", source))
}

/// Locks a partial file, where the file system has locks.
fn lock(file: &File, partial: &Path, path: &Path) -> Result<(), GraphError> {
    match locks::try_exclusive(file.as_fd()) {
        Ok(Attempt::Held { by }) => Err(busy(path, by)),
        Ok(Attempt::Taken | Attempt::Unsupported) => Ok(()),
        Err(source) => Err(GraphError::io("lock", partial, source)),
    }
}

fn busy(path: &Path, by: Option<String>) -> GraphError {
    let by = by.unwrap_or_else(|| "another process".to_owned());
    GraphError::Busy { path: path.to_owned(), by }
}

/// Whether a name still stands for an open file.
fn is_at(file: &File, name: &Path) -> bool {
    let identity = |facts: std::fs::Metadata| (facts.dev(), facts.ino());
    let (open, named) = (file.metadata().map(identity), std::fs::symlink_metadata(name).map(identity));
    matches!((open, named), (Ok(open), Ok(named)) if open == named)
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Target::File { partial, .. } = &self.target
            && !self.is_finished
        {
            // The error that ended the writing is told already; the next writer removes what stays.
            let _ = std::fs::remove_file(partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_of_a_path_is_refused_and_what_a_dead_one_left_is_replaced() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("a.fwg");
        let partial = folder.path().join(".a.fwg.partial");
        std::fs::write(&partial, "of a writer that was killed").expect("writes");
        let mut first = Place::file(&path).expect("the old one is nobody's");
        first.write(b"first", 4096).expect("writes");
        let second = Place::file(&path).expect_err("the first is at work");
        assert!(matches!(second, GraphError::Busy { .. }), "{second}");
        first.complete(b"begin").expect("completes");
        let bytes = std::fs::read(&path).expect("is there");
        assert_eq!((&bytes[..5], &bytes[4096..]), (&b"begin"[..], &b"first"[..]));
        drop(first);
        drop(Place::file(&path).expect("the first has ended"));
        assert!(!partial.exists() && path.exists(), "a writer that gives up leaves what was there");
    }
}
