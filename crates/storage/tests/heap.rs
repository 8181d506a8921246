//! Freed memory is the kernel's, whatever was allocated and freed before. A program of its own: what other tests hold would count.

use std::hint::black_box;

/// Memory of this process that is no file's, bytes (proc(5), `RssAnon`).
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux 4.5");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().expect("a number") << 10
}

/// `count` blocks of `bytes`, all of them touched, with small ones in between that stay.
fn blocks(count: usize, bytes: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    (0..count).map(|_| (black_box(vec![1; bytes]), black_box(vec![1; 64]))).unzip()
}

#[test]
fn blocks_of_a_mebibyte_are_given_back_also_after_larger_ones_were_freed() {
    storage::heap::return_freed_blocks();
    // As long as nothing is fixed, this raises the size from which blocks are mapped.
    drop(black_box(vec![1_u8; 16 << 20]));
    let before = anonymous_bytes();
    let (large, small) = blocks(64, 1 << 20);
    let within = anonymous_bytes();
    assert!(within >= before + (60 << 20), "{before} and {within}");
    drop(large);
    let after = anonymous_bytes();
    assert!(after < before + (8 << 20), "{before}, {within} and {after}");
    drop(black_box(small));
}
