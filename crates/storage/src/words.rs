//! Memory of one owner as plain words, for measuring memory itself.
//!
//! A [`WordBuffer`] is a [`Mapping`](crate::pages) that nobody else knows of, so that it can be lent as ordinary
//! slices; whoever measures with it needs no `unsafe`. It is present throughout, in the largest pages that the
//! machine gives, and on the NUMA node that was asked for.
//!
//! [`sum`] and [`fill`] go through words as fast as one CPU can with the widest vectors that it has and that
//! the compiler uses: 32 bytes where there is AVX2, and those of the architecture's base elsewhere. Both are plain
//! loops which the compiler turns into vector code, compiled twice; which one runs is looked up once a call.

use std::io;
use std::ops::{Deref, DerefMut};

use crate::device::available_memory;
use crate::pages::{Mapping, PageKind};

/// Memory that is left to the rest of the system.
const RESERVE: u64 = 64 << 20;
/// MPOL_BIND of set_mempolicy(2): from these nodes or not at all.
const MPOL_BIND: libc::c_int = 2;
/// MPOL_DEFAULT: from the node of the CPU that touches a page first.
const MPOL_DEFAULT: libc::c_int = 0;
/// As many nodes as any kernel is built for (`MAX_NUMNODES`).
const MAX_NODES: usize = 1024;

/// Owned memory as words of eight bytes, zero at first.
#[derive(Debug)]
pub struct WordBuffer {
    mapping: Mapping,
    count: usize,
}

impl WordBuffer {
    /// `bytes`, rounded down to whole words and at least one, of present memory on the node of the CPU that the
    /// calling thread runs on.
    ///
    /// # Errors
    /// `OutOfMemory` where there is not that much to be had without swapping; the kernel's otherwise.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let available = available_memory().saturating_sub(RESERVE);
        if bytes as u64 > available {
            let message = format!("{} of {}", units::bytes(bytes as u64), units::bytes(available));
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, message));
        }
        let count = (bytes / size_of::<u64>()).max(1);
        let mapping = Mapping::anonymous(count * size_of::<u64>(), size_of::<u64>())?;
        Ok(Self { mapping, count })
    }

    /// The same on NUMA node `node` and nowhere else, whether or not it has CPUs of its own.
    ///
    /// # Errors
    /// The same; and the kernel's where there is no such node, or it has no memory left (set_mempolicy(2)).
    pub fn on_node(node: u32, bytes: usize) -> io::Result<Self> {
        // A policy is a thread's own, so a thread of its own keeps it from whatever else this one maps.
        let allocate = move || {
            policy(MPOL_BIND, Some(node))?;
            let words = Self::new(bytes);
            policy(MPOL_DEFAULT, None)?;
            words
        };
        std::thread::Builder::new()
            .name("allocate".to_owned())
            .spawn(allocate)?
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The kind of pages that it got.
    #[must_use]
    pub fn pages(&self) -> PageKind {
        self.mapping.kind()
    }
}

impl Deref for WordBuffer {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        // SAFETY: the mapping is at least `count` words long, page-aligned, initialised (with zeros) and lives as
        // long as `self`; its address is given to nobody, so that who borrows `self` shared only reads it.
        unsafe { std::slice::from_raw_parts(self.mapping.address().as_ptr().cast(), self.count) }
    }
}

impl DerefMut for WordBuffer {
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.address().as_ptr().cast(), self.count) }
    }
}

/// Sets where the calling thread's pages come from from now on.
fn policy(mode: libc::c_int, node: Option<u32>) -> io::Result<()> {
    const BITS: usize = libc::c_ulong::BITS as usize;
    let mut mask = [0 as libc::c_ulong; MAX_NODES / BITS];
    if let Some(node) = node {
        let Some(word) = mask.get_mut(node as usize / BITS) else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        *word |= 1 << (node as usize % BITS);
    }
    let (mask, bits) = match node {
        // The kernel takes one bit less than it is told of.
        Some(_) => (mask.as_ptr(), MAX_NODES + 1),
        None => (std::ptr::null(), 0),
    };
    // SAFETY: the mask is MAX_NODES bits long, of which the kernel reads no more than told, or null with none.
    match unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The sum of all words: every byte is read once, in order.
#[must_use]
pub fn sum(words: &[u64]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has just said that it has AVX2.
        return unsafe { sum_avx2(words) };
    }
    sum_plainly(words)
}

/// Writes `value` to all words, in order, by ordinary stores.
pub fn fill(words: &mut [u64], value: u64) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has just said that it has AVX2.
        return unsafe { fill_avx2(words, value) };
    }
    fill_plainly(words, value);
}

/// The vectors that [`sum`] and [`fill`] use here, in bytes.
#[must_use]
pub fn vector_bytes() -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return 32;
    }
    16
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(words: &[u64]) -> u64 {
    sum_plainly(words)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fill_avx2(words: &mut [u64], value: u64) {
    fill_plainly(words, value);
}

#[inline(always)]
fn sum_plainly(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}

#[inline(always)]
fn fill_plainly(words: &mut [u64], value: u64) {
    for word in words {
        *word = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_at_first_and_keep_what_is_written() {
        for bytes in [1, 8, 4096, (2 << 20) + 8] {
            let mut words = WordBuffer::new(bytes).expect("maps");
            assert_eq!(words.len(), (bytes / 8).max(1));
            assert_eq!(sum(&words), 0);
            fill(&mut words, 3);
            assert_eq!(sum(&words), 3 * words.len() as u64);
            let last = words.len() - 1;
            words[last] = 10;
            assert_eq!(sum(&words), 3 * words.len() as u64 + 7);
        }
    }

    #[test]
    fn vector_code_and_plain_code_agree_on_every_length() {
        let words: Vec<u64> = (0..200).map(|i: u64| i.wrapping_mul(u64::MAX / 7)).collect();
        for end in 0..words.len() {
            assert_eq!(sum(&words[..end]), sum_plainly(&words[..end]), "{end}");
            let (mut a, mut b) = (words.clone(), words.clone());
            fill(&mut a[..end], 5);
            fill_plainly(&mut b[..end], 5);
            assert_eq!(a, b, "{end}");
        }
        assert!([16, 32].contains(&vector_bytes()));
    }

    #[test]
    fn memory_is_taken_from_a_node_that_is_there_and_from_no_other() {
        match WordBuffer::on_node(0, 1 << 20) {
            Ok(words) => assert_eq!(words.len(), 1 << 17),
            Err(error) => eprintln!("SKIP memory of node 0: {error}"),
        }
        for missing in [MAX_NODES as u32 - 1, MAX_NODES as u32, u32::MAX] {
            assert!(WordBuffer::on_node(missing, 4096).is_err(), "{missing}");
        }
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        for bytes in [usize::MAX, 1 << 50] {
            assert_eq!(
                WordBuffer::new(bytes).expect_err("no machine has this").kind(),
                io::ErrorKind::OutOfMemory
            );
        }
    }
}
