//! Files that appear as a whole: sections that grow side by side in a file of another name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use storage::device::Device;

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

/// Where the graph is written.
#[derive(Debug)]
pub(crate) struct Place {
    target: Target,
    /// Where it is to be.
    path: PathBuf,
    is_finished: bool,
}

#[derive(Debug)]
enum Target {
    File { file: File, partial: PathBuf },
    Device(Arc<dyn Device>),
}

impl Place {
    /// A device, of which the first page is lost at once.
    pub fn device(device: Arc<dyn Device>, path: &Path) -> Result<Self, GraphError> {
        let place = Self { target: Target::Device(device), path: path.to_owned(), is_finished: false };
        place.write(&[0; PAGE_BYTES as usize], 0)?;
        place.sync()?;
        Ok(place)
    }

    /// A file that will replace what is at `path`.
    pub fn file(path: &Path) -> Result<Self, GraphError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let partial = path.with_file_name(format!(".{name}.partial"));
        match std::fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(GraphError::io("remove", &partial, error));
            }
            _ => {}
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .custom_flags(O_NOFOLLOW)
            .open(&partial)
            .map_err(|source| GraphError::io("create", &partial, source))?;
        Ok(Self { target: Target::File { file, partial }, path: path.to_owned(), is_finished: false })
    }

    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<(), GraphError> {
        match &self.target {
            Target::File { file, .. } => file.write_all_at(bytes, offset),
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
