//! Where a file has data, and where it has holes: lseek(2) with SEEK_DATA and SEEK_HOLE, asked in ascending order.
//!
//! Only for files that no program writes to and that have been synced: what is still on its way to the drive has been
//! reported as a hole before (openzfs/zfs#15526). A file system that does not tell has data everywhere.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::error::StageError;
use crate::fault::{Call, before, hides_data};

/// What is known of a file's data, a stretch at a time.
#[derive(Debug)]
pub(super) struct Holes<'a> {
    path: &'a Path,
    bytes: u64,
    /// From here to the beginning of the stretch there is a hole.
    from: u64,
    /// The first stretch of data from there; it begins at the end of the file where there is none.
    data: Range<u64>,
}

impl<'a> Holes<'a> {
    /// Nothing is known yet of a file of `bytes`.
    pub fn new(path: &'a Path, bytes: u64) -> Self {
        Self { path, bytes, from: 0, data: 0..0 }
    }

    /// The first stretch of data that ends behind `at`; an empty one at the file's end where there is none.
    fn data_behind(&mut self, file: BorrowedFd<'_>, at: u64) -> Result<Range<u64>, StageError> {
        if at < self.from || at >= self.data.end {
            self.from = at;
            self.data = self.next_data(file, at)?;
        }
        Ok(self.data.clone())
    }

    fn next_data(&self, file: BorrowedFd<'_>, at: u64) -> Result<Range<u64>, StageError> {
        if at >= self.bytes {
            return Ok(u64::MAX..u64::MAX);
        }
        let failed = |error: Errno| StageError::io_at("look for data", self.path, at, error);
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // No more data.
            Err(Errno::NXIO) => return Ok(u64::MAX..u64::MAX),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(at..u64::MAX),
            Err(error) => return Err(failed(error)),
        };
        match seek(file, SeekFrom::Hole(start)) {
            Ok(end) if end > start => Ok(start..end),
            Ok(_) | Err(Errno::NXIO) => Ok(start..u64::MAX),
            Err(error) => Err(failed(error)),
        }
    }

    /// Whether the file is data from end to end.
    pub fn has_none(&mut self, file: BorrowedFd<'_>) -> Result<bool, StageError> {
        let data = self.data_behind(file, 0)?;
        Ok(data.start == 0 && data.end >= self.bytes)
    }

    /// Whether a range has no data at all.
    pub fn is_hole(&mut self, file: BorrowedFd<'_>, range: &Range<u64>) -> Result<bool, StageError> {
        Ok(self.data_behind(file, range.start)?.start >= range.end)
    }

    /// The data in a range, rounded out to multiples of `grain` and joined where that makes them meet.
    pub fn data_in(
        &mut self,
        file: BorrowedFd<'_>,
        range: &Range<u64>,
        grain: u64,
    ) -> Result<Vec<Range<u64>>, StageError> {
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let data = self.data_behind(file, at)?;
            if data.start >= range.end {
                break;
            }
            let start = data.start.max(range.start);
            let start = (start - start % grain).max(range.start);
            let end = data.end.min(range.end).next_multiple_of(grain).min(range.end);
            match found.last_mut() {
                Some(last) if last.end >= start => last.end = end.max(last.end),
                _ => found.push(start..end),
            }
            at = data.end.max(at + 1);
        }
        Ok(found)
    }
}

/// lseek(2) on a descriptor whose position is not used otherwise.
fn seek(file: BorrowedFd<'_>, to: SeekFrom) -> Result<u64, Errno> {
    let verdict = before(Call::Lseek)?;
    let found = match to {
        SeekFrom::Data(_) if hides_data(file) => Err(Errno::NXIO),
        to => rustix::fs::seek(file, to),
    };
    verdict.made();
    found
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a stretch of data is a range")]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Data from 64 KiB to 128 KiB and in the last block of a megabyte.
    fn file() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 64 << 10], 64 << 10).unwrap();
        file.write_all_at(&[1; 10], (1 << 20) - 10).unwrap();
        file.sync_all().unwrap();
        file
    }

    #[test]
    fn stretches_of_data_are_found_and_what_lies_between_is_a_hole() {
        let file = file();
        let fd = file.as_fd();
        let mut holes = Holes::new(Path::new("f"), 1 << 20);
        let all = holes.data_in(fd, &(0..1 << 20), PAGE).unwrap();
        if all == [0..1 << 20] {
            return eprintln!("SKIP holes: the file system does not tell of them");
        }
        assert_eq!(all, [64 << 10..128 << 10, (1 << 20) - 4096..1 << 20]);
        let mut holes = Holes::new(Path::new("f"), 1 << 20);
        assert!(holes.is_hole(fd, &(0..64 << 10)).unwrap());
        assert!(!holes.is_hole(fd, &(0..(64 << 10) + 1)).unwrap());
        assert!(holes.is_hole(fd, &(128 << 10..(1 << 20) - 4096)).unwrap());
        assert_eq!(holes.data_in(fd, &(100 << 10..1 << 19), PAGE).unwrap(), [100 << 10..128 << 10]);
    }

    const PAGE: u64 = super::super::side::PAGE;

    #[test]
    fn a_file_of_nothing_but_a_hole_has_no_data() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        let mut holes = Holes::new(Path::new("f"), 1 << 40);
        assert!(holes.is_hole(file.as_fd(), &(0..1 << 40)).unwrap());
        assert!(holes.data_in(file.as_fd(), &(0..1 << 40), PAGE).unwrap().is_empty());
    }
}
