//! Making a range read as zeros.
//!
//! fallocate(2) does it for files and, from Linux 4.9, for block devices: `PUNCH_HOLE` gives the space back (a block
//! device's answers `EOPNOTSUPP` where its drive has no command for it), `ZERO_RANGE` keeps the space (a block
//! device's then writes zeros itself, if there is no better way). What neither can do is done by writing zeros.

use std::io;

use super::channel::{AlignedBuffer, Channel};
use super::sys;

/// Zeros written at a time.
const STEP: usize = 1 << 20;

/// In which way a range may be made zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZeroOptions {
    /// Space that the range has stays reserved; otherwise it may be given back.
    pub keep_space: bool,
    /// Not at all rather than by writing zeros.
    pub fast_only: bool,
}

/// `EOPNOTSUPP`.
fn unsupported() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV))
}

/// Writes zeros.
pub(crate) fn write(
    mut write_at: impl FnMut(&[u8], u64) -> io::Result<()>,
    offset: u64,
    length: u64,
    how: ZeroOptions,
) -> io::Result<()> {
    if how.fast_only {
        return Err(unsupported());
    }
    let zeros = AlignedBuffer::zeroed(STEP, 4096);
    let mut done = 0;
    while done < length {
        let part = (STEP as u64).min(length - done);
        write_at(&zeros[..part as usize], offset + done)?;
        done += part;
    }
    Ok(())
}

impl Channel {
    /// Makes a range of a file, or of a block device, zero.
    pub fn write_zeroes(&self, offset: u64, length: u64, how: ZeroOptions, block: bool) -> io::Result<()> {
        self.check_discard(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        let unit = u64::from(self.geometry.logical_block.max(1));
        if offset.is_multiple_of(unit) && length.is_multiple_of(unit) {
            match self.zero_by_fallocate(offset, length, how, block) {
                Err(error) if is_unsupported(&error) => {}
                // A block device that is open through the page cache takes any range, but this only in sectors.
                Err(error) if block && error.kind() == io::ErrorKind::InvalidInput => {}
                result => return result,
            }
        }
        write(|bytes, at| self.write_at(bytes, at), offset, length, how)
    }

    fn zero_by_fallocate(&self, offset: u64, length: u64, how: ZeroOptions, block: bool) -> io::Result<()> {
        if !how.keep_space {
            match sys::punch_hole(self.fd(), offset, length) {
                Err(error) if is_unsupported(&error) => {}
                result => return result,
            }
        }
        // A block device's ZERO_RANGE may write zeros itself, and nobody says whether it will.
        if block && how.fast_only {
            return Err(unsupported());
        }
        sys::zero_range(self.fd(), offset, length)
    }
}

#[cfg(test)]
mod tests {
    use crate::device::{self, DeviceSpec, OpenOptions, ZeroOptions};

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_range_of_any_device_reads_as_zeros_afterwards_and_its_neighbours_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let file = format!("file:{}?size=4m", folder.path().join("f").display());
        for spec in ["mem:4m", &file] {
            let options = OpenOptions { direct: false, ..OpenOptions::writing() };
            let device = device::open(&DeviceSpec::parse(spec).unwrap(), &options).unwrap();
            for keep_space in [false, true] {
                for (offset, length) in [(0, 4 * MIB), (4096, 8192), (5, 3), (MIB - 1, 2 * MIB + 3), (7, 0)] {
                    device.write_at(&vec![7; 4 * MIB as usize], 0).unwrap();
                    device
                        .write_zeroes(offset, length, ZeroOptions { keep_space, fast_only: false })
                        .unwrap();
                    let mut back = vec![1; 4 * MIB as usize];
                    device.read_at(&mut back, 0).unwrap();
                    let inside = offset as usize..(offset + length) as usize;
                    for (at, byte) in back.iter().enumerate() {
                        let expected = if inside.contains(&at) { 0 } else { 7 };
                        assert_eq!(*byte, expected, "{spec} {offset}+{length} at {at}");
                    }
                }
            }
            assert!(device.write_zeroes(4 * MIB, 1, ZeroOptions::default()).is_err());
        }
    }
}
