//! `mem:4G`: memory of this process as a device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use super::{Device, DeviceKind, Geometry, OpenError, OpenOptions, ZeroOptions, sys};
use crate::memory::{MemoryPlacement, OutOfBounds, SharedMemory};

/// Memory that every engine can drive: see [`crate::memory`].
#[derive(Debug)]
pub(crate) struct MemoryDevice {
    spec: String,
    memory: SharedMemory,
    writable: bool,
}

/// Memory that is left to the rest of the system, whatever is asked for.
const RESERVE: u64 = 64 << 20;

/// Makes a memory device of `size` zeroed bytes, all of them present.
pub(crate) fn create(spec: String, size: u64, options: &OpenOptions) -> Result<MemoryDevice, OpenError> {
    create_on(spec, size, options, &MemoryPlacement::default())
}

/// Opens `mem:SIZE` in the pages and on the node that `placement` names.
///
/// # Errors
/// [`OpenError::NotEnoughMemory`] with what is free, or the step that failed.
pub fn open_memory(
    size: u64,
    options: &OpenOptions,
    placement: &MemoryPlacement,
) -> Result<Arc<dyn Device>, OpenError> {
    let spec = crate::spec::DeviceSpec::Memory { size }.to_string();
    Ok(Arc::new(create_on(spec, size, options, placement)?))
}

fn create_on(
    spec: String,
    size: u64,
    options: &OpenOptions,
    placement: &MemoryPlacement,
) -> Result<MemoryDevice, OpenError> {
    // Shared memory is overcommitted: what is not there is found out by the OOM killer.
    let available = available_memory().saturating_sub(RESERVE);
    if size > available {
        return Err(OpenError::NotEnoughMemory { asked: size, available });
    }
    let memory = SharedMemory::create_on(size, placement).map_err(|(operation, source)| {
        if source.raw_os_error() == Some(libc::ENOMEM) {
            return OpenError::NotEnoughMemory { asked: size, available };
        }
        OpenError::Io { target: spec.clone(), operation, source }
    })?;
    Ok(MemoryDevice { spec, memory, writable: options.access.writes() })
}

/// Bytes that can be had without swapping: the least of what the machine and the control groups leave.
/// Where neither says, no limit is assumed.
pub(crate) fn available_memory() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|t| mem_available(&t));
    let group = std::fs::read_to_string("/proc/self/cgroup").ok().and_then(|t| group_available(&t));
    machine.unwrap_or(u64::MAX).min(group.unwrap_or(u64::MAX))
}

/// `MemAvailable` of `/proc/meminfo`, bytes.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// What the version 2 control group of this process and its ancestors leave, bytes. Page cache that can
/// be dropped counts as used there, so `inactive_file` is given back.
fn group_available(cgroup: &str) -> Option<u64> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    let root = Path::new("/sys/fs/cgroup");
    let number = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    root.join(path.trim_start_matches('/'))
        .ancestors()
        .take_while(|group| group.starts_with(root))
        .filter_map(|group| {
            let limit = number(&group.join("memory.max"))?;
            let used = number(&group.join("memory.current"))?;
            let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
            let inactive = stat
                .lines()
                .find_map(|line| line.strip_prefix("inactive_file "))
                .and_then(|value| value.parse::<u64>().ok())
                .unwrap_or(0);
            Some(limit.saturating_sub(used.saturating_sub(inactive)))
        })
        .min()
}

fn io_error(kind: io::ErrorKind) -> impl Fn(OutOfBounds) -> io::Error {
    move |error| io::Error::new(kind, error)
}

impl Device for MemoryDevice {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Memory
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        self.memory.len()
    }

    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 1, physical_block: 4096, memory_alignment: 1 }
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn is_writable(&self) -> bool {
        self.writable
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    fn memory(&self) -> Option<&SharedMemory> {
        Some(&self.memory)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.memory.copy_out(offset, buffer).map_err(io_error(io::ErrorKind::UnexpectedEof))
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        if !self.writable {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading only"));
        }
        self.memory.copy_in(offset, buffer).map_err(io_error(io::ErrorKind::WriteZero))
    }

    fn sync_data(&self) -> io::Result<()> {
        // Memory is as durable as it will ever be.
        Ok(())
    }

    /// Zeroes the range and gives its pages back; the next access to them pays for new ones.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        if !self.writable {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading only"));
        }
        if offset.checked_add(length).is_none_or(|end| end > self.size()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if length == 0 {
            return Ok(());
        }
        sys::punch_hole(self.memory.file().as_fd(), offset, length)
    }

    /// Zeroes the range in place, so that its pages stay, huge ones too.
    fn write_zeroes(&self, offset: u64, length: u64, _how: ZeroOptions) -> io::Result<()> {
        if !self.writable {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "opened for reading only"));
        }
        self.memory.zero(offset, length).map_err(io_error(io::ErrorKind::InvalidInput))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_from_meminfo() {
        let text = "MemTotal: 100 kB\nMemFree:  5 kB\nMemAvailable:   42 kB\n";
        assert_eq!(mem_available(text), Some(42 * 1024));
        assert_eq!(mem_available("MemAvailable: 99999999999999999999 kB"), None);
        assert_eq!(mem_available(""), None);
        assert_eq!(group_available("garbage"), None);
    }
}
