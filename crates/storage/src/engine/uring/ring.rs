//! The memory that a ring shares with the kernel.
//!
//! Offsets and sizes come from the kernel and are checked once, when the ring is mapped. After that every
//! index is masked, so that no arithmetic on indices can lead outside.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::uring_abi::{self as abi, Cqe, Params, Sqe};

/// The mapped rings, of entries `S` and completions `C`, which are those that the ring was set up with. Indices run freely
/// and are masked on access.
#[derive(Debug)]
pub(crate) struct Ring<S = Sqe, C = Cqe> {
    // The maps are dropped before the descriptor; either order is sound.
    sq_map: FileMap,
    _cq_map: Option<FileMap>,
    _sqe_map: FileMap,
    sqes: NonNull<S>,
    cqes: NonNull<C>,
    sq_mask: u32,
    cq_mask: u32,
    sq_tail: NonNull<AtomicU32>,
    sq_flags: NonNull<AtomicU32>,
    cq_head: NonNull<AtomicU32>,
    cq_tail: NonNull<AtomicU32>,
    pub fd: OwnedFd,
}

impl<S: Copy, C: Copy> Ring<S, C> {
    /// Maps what io_uring_setup(2) has made.
    pub fn map(fd: OwnedFd, params: &Params) -> io::Result<Self> {
        let (sq, cq) = (&params.sq_off, &params.cq_off);
        let array_entries = if params.flags & abi::SETUP_NO_SQARRAY == 0 { params.sq_entries } else { 0 };
        let mut sq_bytes = sq.array as usize + array_entries as usize * size_of::<u32>();
        let cq_bytes = cq.cqes as usize + params.cq_entries as usize * size_of::<C>();
        let single = params.features & abi::FEAT_SINGLE_MMAP != 0;
        if single {
            sq_bytes = sq_bytes.max(cq_bytes);
        }
        let sq_map = FileMap::new(&fd, sq_bytes, abi::OFF_SQ_RING)?;
        let cq_map = if single { None } else { Some(FileMap::new(&fd, cq_bytes, abi::OFF_CQ_RING)?) };
        let sqe_bytes = params.sq_entries as usize * size_of::<S>();
        let sqe_map = FileMap::new(&fd, sqe_bytes, abi::OFF_SQES)?;
        let cq_base = cq_map.as_ref().unwrap_or(&sq_map);
        if array_entries > 0 {
            let array: NonNull<u32> = sq_map.at(sq.array, array_entries as usize);
            for i in 0..array_entries {
                // SAFETY: the array has sq_entries elements (checked by `at`) and the kernel does not
                // read it before the tail moves. Entry i always names request i.
                unsafe { array.add(i as usize).write(i) };
            }
        }
        // SAFETY: `at` checked that the words lie in the mappings; the kernel has initialised them.
        let (sq_mask, cq_mask) =
            unsafe { (sq_map.at::<u32>(sq.ring_mask, 1).read(), cq_base.at::<u32>(cq.ring_mask, 1).read()) };
        assert!(sq_mask < params.sq_entries && cq_mask < params.cq_entries, "the kernel's masks fit");
        Ok(Self {
            sqes: sqe_map.at(0, params.sq_entries as usize),
            cqes: cq_base.at(cq.cqes, params.cq_entries as usize),
            sq_mask,
            cq_mask,
            sq_tail: sq_map.at(sq.tail, 1),
            sq_flags: sq_map.at(sq.flags, 1),
            cq_head: cq_base.at(cq.head, 1),
            cq_tail: cq_base.at(cq.tail, 1),
            sq_map,
            _cq_map: cq_map,
            _sqe_map: sqe_map,
            fd,
        })
    }

    #[inline]
    fn word(&self, word: NonNull<AtomicU32>) -> &AtomicU32 {
        let _mapped = &self.sq_map;
        // SAFETY: the words lie in mappings that self owns, are aligned, and are only ever accessed
        // atomically, by us and by the kernel.
        unsafe { word.as_ref() }
    }

    /// How many entries there are.
    #[inline]
    pub fn entries(&self) -> u32 {
        self.sq_mask + 1
    }

    /// Puts an entry where the kernel will read it once the tail has passed it.
    #[inline]
    pub fn write_sqe(&mut self, at: u32, sqe: S) {
        // SAFETY: the masked index lies in the mapping. The entry is not the kernel's: no more than `entries`
        // were written whose completions have not been reaped, and a completion comes after its entry was read.
        unsafe { self.sqes.add((at & self.sq_mask) as usize).write(sqe) };
    }

    /// The completion at an index below [`completed`](Self::completed) and not below the published head.
    #[inline]
    pub fn read_cqe(&self, at: u32) -> C {
        // SAFETY: the masked index lies in the mapping, and at < tail (read with Acquire), so the
        // kernel has written this entry and leaves it alone until the head passes it.
        unsafe { self.cqes.add((at & self.cq_mask) as usize).read() }
    }

    /// Shows the kernel the entries up to `tail`.
    #[inline]
    pub fn publish_tail(&self, tail: u32) {
        self.word(self.sq_tail).store(tail, Ordering::Release);
    }

    /// The entry at an index, for what stands in for a driver.
    #[cfg(test)]
    pub fn read_sqe(&self, at: u32) -> S {
        // SAFETY: the masked index lies in the mapping, which holds plain numbers.
        unsafe { self.sqes.add((at & self.sq_mask) as usize).read() }
    }

    /// One past the last entry that was published.
    #[cfg(test)]
    pub fn published(&self) -> u32 {
        self.word(self.sq_tail).load(Ordering::Acquire)
    }

    /// One past the last completion that has arrived.
    #[inline]
    pub fn completed(&self) -> u32 {
        self.word(self.cq_tail).load(Ordering::Acquire)
    }

    /// Gives the completions up to `head` back to the kernel.
    #[inline]
    pub fn publish_head(&self, head: u32) {
        self.word(self.cq_head).store(head, Ordering::Release);
    }

    /// What a polling kernel thread has to say.
    #[inline]
    pub fn sq_flags(&self) -> u32 {
        // The kernel sets NEED_WAKEUP after it has looked at the tail for the last time; without a full
        // fence our store of the tail could pass this load and both would sleep (io_uring(7)).
        fence(Ordering::SeqCst);
        self.word(self.sq_flags).load(Ordering::Relaxed)
    }
}

/// A shared mapping of a ring, unmapped when dropped.
#[derive(Debug)]
struct FileMap {
    address: NonNull<u8>,
    bytes: usize,
}

impl FileMap {
    fn new(fd: &impl AsFd, bytes: usize, offset: i64) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_fd().as_raw_fd(),
                offset,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, bytes })
    }

    /// A pointer to `count` values of type `T` at byte `offset`.
    fn at<T>(&self, offset: u32, count: usize) -> NonNull<T> {
        let end = offset as usize + count * size_of::<T>();
        assert!(
            end <= self.bytes && (offset as usize).is_multiple_of(align_of::<T>()),
            "the kernel's offsets fit"
        );
        // SAFETY: offset ≤ end ≤ bytes, so the result lies in the mapping.
        unsafe { self.address.add(offset as usize).cast() }
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what this value mapped, and it is unmapped once.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}
