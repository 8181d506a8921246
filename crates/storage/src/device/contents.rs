//! Whether an existing file may be overwritten because it holds nothing: holes, zeros or noise.
//!
//! A benchmark is often pointed at a file that `dd`, `fallocate` or another benchmark has made. Such a
//! file holds zeros, one repeated byte, or random bytes, and no format's signature. Anything else, a
//! text, a program, an image, an archive, may be somebody's work and is only written over when it is
//! named in `--destroy`. The judgement errs towards refusing: every piece that is looked at must be
//! empty or noise. Up to 256 MiB that is the whole file; of a larger one it is 4096 pieces spread evenly
//! from end to end. What cannot be told from noise is a file that was encrypted without any header.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::safety::signatures;

/// Up to this size all of a file is looked at.
const WHOLE: u64 = 256 << 20;
/// Pieces of a larger one that are looked at, spread evenly from the first byte to the last.
const PIECES: u64 = 4096;
const PIECE: usize = 4096;

/// The first bytes of formats whose contents look like noise: they are compressed.
const COMPRESSED: [&[u8]; 17] = [
    b"\x1f\x8b",           // gzip, RFC 1952
    b"\xfd7zXZ\0",         // xz
    b"\x28\xb5\x2f\xfd",   // zstd, RFC 8878
    b"BZh",                // bzip2
    b"PK",                 // zip, APPNOTE.TXT 4.3
    b"7z\xbc\xaf\x27\x1c", // 7z
    b"Rar!",               // rar
    b"\x04\x22\x4d\x18",   // lz4 frame
    b"\x89PNG",            // PNG
    b"\xff\xd8\xff",       // JPEG
    b"GIF8",               // GIF
    b"%PDF",               // PDF
    b"\x1a\x45\xdf\xa3",   // Matroska
    b"OggS",               // Ogg
    b"ID3",                // MP3
    b"PAR1",               // Parquet
    b"\x89HDF",            // HDF5
];

/// Whether a file of `size` bytes holds nothing that could be missed.
///
/// # Errors
/// The kernel's, where the file cannot be read: then nothing may be taken for empty.
pub(super) fn are_worthless(file: &File, size: u64) -> io::Result<bool> {
    if !signatures(file, size)?.is_empty() {
        return Ok(false);
    }
    let mut first = [0; 12];
    let seen = file.read_at(&mut first, 0)?;
    let begins_with = |magic: &&[u8]| first[..seen].starts_with(magic);
    // ISO base media (MP4 and its like) has its word after a length.
    if COMPRESSED.iter().any(begins_with) || &first[4..8] == b"ftyp" {
        return Ok(false);
    }
    let length = PIECE as u64;
    let (pieces, distance) = if size <= WHOLE {
        (size.div_ceil(length), length)
    } else {
        // The last piece begins a piece before the end.
        (PIECES, (size - length) / (PIECES - 1))
    };
    let mut piece = [0; PIECE];
    for at in 0..pieces {
        let read = file.read_at(&mut piece, at * distance)?;
        if !is_empty_or_noise(&piece[..read]) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// One repeated byte, or bytes that are as evenly spread as random ones.
fn is_empty_or_noise(piece: &[u8]) -> bool {
    let Some(first) = piece.first() else { return true };
    if piece.iter().all(|byte| byte == first) {
        return true;
    }
    let mut counts = [0_u32; 256];
    piece.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let expected = piece.len() as f64 / 256.0;
    // Pearson's statistic over 256 values has mean 255 and deviation 22.6 for random bytes; text comes
    // to tens of thousands, machine code to thousands. Short pieces say too little either way.
    let chi2: f64 = counts.iter().map(|n| (f64::from(*n) - expected).powi(2) / expected).sum();
    piece.len() >= 1024 && chi2 < 400.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn worthless(contents: &[u8]) -> bool {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(contents).expect("writes");
        are_worthless(&file, contents.len() as u64).expect("reads")
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let x = state ^ (state >> 33);
            (x.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 40) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn zeros_noise_and_holes_hold_nothing() {
        assert!(worthless(&[]));
        assert!(worthless(&[0; 100]));
        assert!(worthless(&vec![0; 1 << 20]));
        assert!(worthless(&vec![0xaa; 1 << 20]));
        assert!(worthless(&noise(1 << 20)));
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1 << 30).expect("grows");
        assert!(are_worthless(&file, 1 << 30).expect("reads"));
    }

    #[test]
    fn texts_programs_archives_and_a_single_line_among_zeros_are_kept() {
        let text = include_str!("contents.rs").repeat(20);
        assert!(!worthless(text.as_bytes()));
        assert!(!worthless(b"one line\n"));
        let program = std::fs::read(std::env::current_exe().expect("a path")).expect("reads");
        assert!(!worthless(&program));
        let mut archive = noise(1 << 20);
        archive[..3].copy_from_slice(b"\x1f\x8b\x08");
        assert!(!worthless(&archive));
        let mut mostly_empty = vec![0; 1 << 20];
        mostly_empty[777_777..777_786].copy_from_slice(b"my thesis");
        assert!(!worthless(&mostly_empty));
    }
}
