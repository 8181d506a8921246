//! Which pages of a file the page cache holds: mincore(2) over a mapping that is never touched.
//!
//! The kernel answers truly only to a caller who owns the file or may write to it (since Linux 5.2); to others every page is said to be
//! resident. The answer is of one moment: pages come and go while it is given.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The pages of a file that are in memory, in runs of neighbours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Residency {
    /// Pages of the file.
    pub pages: u64,
    /// Pages in memory.
    pub resident: u64,
    /// Runs of neighbouring pages in memory.
    pub runs: u64,
    /// Pages in memory that belong to runs of fewer than [`SEQUENTIAL_PAGES`].
    pub scattered: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
}

/// A run of at least so many pages counts as sequential: 64 KiB of pages of 4 KiB.
pub const SEQUENTIAL_PAGES: u64 = 16;

impl Residency {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            pages: self.pages + other.pages,
            resident: self.resident + other.resident,
            runs: self.runs + other.runs,
            scattered: self.scattered + other.scattered,
            page_bytes: self.page_bytes.max(other.page_bytes),
        }
    }

    /// Bytes in memory.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.resident * self.page_bytes
    }
}

/// What the page cache holds of a file.
///
/// # Errors
/// The kernel's, of mmap(2) foremost: what cannot be mapped, such as a directory, has no such pages.
pub fn of(file: &File) -> io::Result<Residency> {
    let length = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: the call takes no pointer.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let mut found = Residency { page_bytes: page_bytes as u64, ..Residency::default() };
    if length == 0 {
        return Ok(found);
    }
    let mut vector = vec![0u8; length.div_ceil(page_bytes)];
    // SAFETY: a new mapping at an address of the kernel's choice; no memory of this program is replaced. It is never read, so a
    // file that is cut meanwhile raises no signal.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range is the mapping made above, and `vector` has a byte for each of its pages.
    let answered = unsafe { libc::mincore(address, length, vector.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: the mapping is this function's own, and nothing refers to it.
    unsafe { libc::munmap(address, length) };
    if answered != 0 {
        return Err(error);
    }
    found.count(vector.iter().map(|page| page & 1 == 1));
    Ok(found)
}

impl Residency {
    fn count(&mut self, pages: impl Iterator<Item = bool>) {
        let mut run = 0;
        for is_resident in pages.chain([false]) {
            self.pages += 1;
            if is_resident {
                run += 1;
                continue;
            }
            self.resident += run;
            self.runs += u64::from(run > 0);
            self.scattered += if run < SEQUENTIAL_PAGES { run } else { 0 };
            run = 0;
        }
        // The last one closed the last run.
        self.pages -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn runs_are_counted_up_to_the_end() {
        let mut found = Residency::default();
        let pages = [vec![true; 3], vec![false; 2], vec![true; 16], vec![false], vec![true]].concat();
        found.count(pages.into_iter());
        assert_eq!((found.pages, found.resident, found.runs, found.scattered), (23, 20, 3, 4));
    }

    #[test]
    fn what_was_written_is_resident_and_what_was_dropped_is_not() {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        assert_eq!(of(&file).expect("an empty file").pages, 0);
        file.write_all(&vec![7u8; 1 << 20]).expect("written");
        let written = of(&file).expect("mincore");
        assert_eq!(written.resident, written.pages);
        crate::cache::drop_cached(file.as_fd()).expect("dropped");
        let dropped = of(&file).expect("mincore");
        if dropped.resident > 0 {
            return eprintln!("skipped: this file system keeps its pages");
        }
        file.seek(SeekFrom::Start(512 << 10)).expect("sought");
        file.read_exact(&mut [0; 1]).expect("read");
        let read = of(&file).expect("mincore");
        assert!(read.resident >= 1 && read.runs >= 1 && read.resident < read.pages, "{read:?}");
    }
}
