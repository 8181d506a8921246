//! What the C library's allocator keeps of memory that was freed.
//!
//! glibc maps a block above a threshold on its own and gives it back to the kernel when it is freed. The threshold is 128 KiB
//! at first, and grows with each such block that is freed, up to 32 MiB (mallopt(3), `M_MMAP_THRESHOLD`). From then on, blocks
//! of that size come from heaps, one for each thread, which shrink at their ends only: chunks and batches that a sort has freed stay
//! resident beside those of the next one. A program that keeps to a budget of memory cannot count that, so it fixes the threshold.

/// Blocks of at least this size are the kernel's as soon as they are freed, bytes.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: i32 = 128 << 10;

/// Fixes the threshold for this process. Other C libraries have none that grows.
pub fn return_freed_blocks() {
    #[cfg(target_env = "gnu")]
    for parameter in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: mallopt(3) takes two integers, and changes a parameter of the allocator under the allocator's own lock.
        unsafe { libc::mallopt(parameter, MAPPED_BYTES) };
    }
}
