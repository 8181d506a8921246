//! Files that appear as a whole: sections that grow side by side in a file of another name.
//!
//! What holds after a power failure at any moment, and the tests at the end enumerate:
//!
//! - **A file.** Under its name is what was there before, or all of the new one. It is synced before it is renamed, and the
//!   directory afterwards.
//! - **A device.** It begins with a header only if all that the header speaks of is on it. So the first page is cleared, and that is
//!   synced, before anything else is written; and the header is written after all else was synced.
//! - **A file without a name** is gone with the process, and nothing of it is synced.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use external::ExternalError;
use storage::cache;
use storage::device::{Device, ScratchFile, leaves};

use super::{PAGE_BYTES, Section};
use crate::{GraphError, partial};

/// Bytes that a section collects before they are written.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;

/// Writes the checksum section at `offset`; its place and its own checksum.
pub(crate) fn write_sums(
    sums: &[u32],
    offset: u64,
    place: &GraphPlace,
) -> Result<(Section, u32), GraphError> {
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

    pub fn add(&mut self, mut bytes: &[u8], place: &GraphPlace) -> Result<(), GraphError> {
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

    pub fn zeros(&mut self, mut count: u64, place: &GraphPlace) -> Result<(), GraphError> {
        const ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];
        while count > 0 {
            let now = count.min(PAGE_BYTES);
            self.add(&ZEROS[..now as usize], place)?;
            count -= now;
        }
        Ok(())
    }

    /// Writes the buffer, padded to whole pages.
    fn flush(&mut self, place: &GraphPlace) -> Result<(), GraphError> {
        self.buffer.resize(self.buffer.len().next_multiple_of(PAGE_BYTES as usize), 0);
        place.write(&self.buffer, self.offset + self.sums.len() as u64 * PAGE_BYTES)?;
        self.sums.extend(self.buffer.chunks_exact(PAGE_BYTES as usize).map(crc32c::crc32c));
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest; where the section lies.
    pub fn close(&mut self, place: &GraphPlace) -> Result<Section, GraphError> {
        assert!(self.reserved == 0 || self.length == self.reserved, "a section is not as long as promised");
        self.flush(place)?;
        Ok(Section { offset: self.offset, length: self.length })
    }
}

/// Bytes that are written through the page cache before the kernel is told to bring them to the drive. A control group's limit
/// counts dirty pages as well; the kernel waits for pages that are under way, and ends a process that has only dirty ones.
const WRITEBACK_BYTES: u64 = 1 << 20;

/// The system calls on a file. Tests have others, after each of which the power may fail.
trait FileCalls: Send + Sync + Debug {
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn sync(&self, file: &File) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// The kernel's own.
#[derive(Debug)]
struct KernelCalls;

impl FileCalls for KernelCalls {
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

/// Where the graph is written.
#[derive(Debug)]
pub(crate) struct GraphPlace {
    target: Target,
    calls: Arc<dyn FileCalls>,
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
    Unnamed(File),
    Device(Arc<dyn Device>),
}

impl GraphPlace {
    /// A device, of which the first page is lost at once.
    pub fn device(device: Arc<dyn Device>, path: &Path) -> Result<Self, GraphError> {
        let place = Self::of(Target::Device(device), path, Arc::new(KernelCalls));
        place.write(&[0; PAGE_BYTES as usize], 0)?;
        place.sync()?;
        Ok(place)
    }

    /// A file of `bytes` bytes in `folder` that has no name and is gone when the process ends, in whichever way.
    pub fn unnamed(folder: &Path, bytes: u64) -> Result<Self, GraphError> {
        let place = folder.display().to_string();
        let file = ScratchFile::create_empty(folder, bytes)
            .map_err(|error| ExternalError::Open { place, source: Box::new(error) })?;
        Ok(Self::of(Target::Unnamed(file.into_file()), folder, Arc::new(KernelCalls)))
    }

    /// A file that will replace what is at `path`. There is one writer of a path at a time.
    ///
    /// # Errors
    /// [`GraphError::Busy`] if another writer of the same path is at work.
    pub fn file(path: &Path) -> Result<Self, GraphError> {
        Self::file_by(path, Arc::new(KernelCalls))
    }

    fn file_by(path: &Path, calls: Arc<dyn FileCalls>) -> Result<Self, GraphError> {
        let (file, partial) = partial::create(path)?;
        Ok(Self::of(Target::File { file, partial }, path, calls))
    }

    fn of(target: Target, path: &Path, calls: Arc<dyn FileCalls>) -> Self {
        Self { target, calls, path: path.to_owned(), dirty: AtomicU64::new(0), is_finished: false }
    }

    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<(), GraphError> {
        let written = match &self.target {
            Target::File { file, .. } | Target::Unnamed(file) => self.calls.write(file, bytes, offset),
            Target::Device(device) => device.write_at(bytes, offset),
        };
        let length = bytes.len() as u64;
        if self.dirty.fetch_add(length, Ordering::Relaxed) + length >= WRITEBACK_BYTES {
            self.dirty.store(0, Ordering::Relaxed);
            self.begin_writeback();
        }
        written.map_err(|source| GraphError::io_at("write", &self.path, offset, source))
    }

    /// Only a hint: what cannot be written is told when the file is synced.
    fn begin_writeback(&self) {
        match &self.target {
            Target::File { file, .. } | Target::Unnamed(file) => {
                let _ = cache::begin_writeback(file.as_fd());
            }
            Target::Device(device) => {
                for leaf in leaves(device).iter().filter(|leaf| !leaf.is_direct()) {
                    let _ = cache::begin_writeback(leaf.fd());
                }
            }
        }
    }

    pub fn sync(&self) -> Result<(), GraphError> {
        match &self.target {
            Target::File { file, .. } => self.calls.sync(file),
            Target::Unnamed(_) => Ok(()),
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
            self.calls
                .rename(partial, &self.path)
                .map_err(|source| GraphError::io("rename into place", &self.path, source))?;
            let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            self.calls
                .sync_folder(folder)
                .map_err(|source| GraphError::io("sync the directory of", &self.path, source))?;
        }
        self.is_finished = true;
        Ok(())
    }

    /// The file, if it has no name.
    pub fn unnamed_file(&self) -> Result<Option<File>, GraphError> {
        match &self.target {
            Target::Unnamed(file) => file.try_clone().map(Some),
            Target::File { .. } | Target::Device(_) => Ok(None),
        }
        .map_err(|source| GraphError::io("duplicate a descriptor of", &self.path, source))
    }
}

impl Drop for GraphPlace {
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
mod tests;
