//! Large files by the chunk: contents, holes, going on, what is found when bytes rot, and every way without O_DIRECT.

mod large_rig;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use large_rig::{CHUNK, Copy, config, contents, digests, methods, pattern};
use proptest::prelude::*;
use stage::digest::CHUNK_BYTES;
use stage::large::{Lane, LaneConfig};
use stage::pace::{Pace, Progress, Stop, Unlimited};
use stage::{Algorithm, Digest, StageError};
use storage::transfer::Method;

/// A file of `bytes` in `directory`.
fn source(directory: &Path, bytes: &[u8]) -> File {
    let file = tempfile::tempfile_in(directory).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.sync_all().unwrap();
    file
}

fn empty(directory: &Path) -> File {
    tempfile::tempfile_in(directory).unwrap()
}

fn here() -> std::path::PathBuf {
    std::env::temp_dir()
}

#[test]
fn a_copy_has_the_sources_bytes_and_length_whatever_its_length() {
    const MIB: u64 = 1 << 20;
    for method in methods() {
        let mut lane =
            Lane::new(&LaneConfig { depth: 3, method, reflink: false, ..LaneConfig::default() }).unwrap();
        for bytes in [0, 1, 511, 512, 4095, 4096, 4097, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 20 * MIB + 13] {
            let expected = pattern(bytes, bytes);
            let (from, to) = (source(&here(), &expected), empty(&here()));
            let mut copy = Copy::new(&from, &to, bytes);
            let copied = copy.run(&mut lane).unwrap();
            assert!(contents(&to) == expected, "{bytes} bytes by {method:?}");
            assert_eq!(copied, digests(&expected, CHUNK_BYTES), "{bytes}");
            copy.check(&copied, CHUNK_BYTES);
        }
    }
}

#[test]
fn what_an_empty_file_was_given_before_goes() {
    let mut lane = Lane::new(&config(1, Method::Auto)).unwrap();
    let (from, to) = (source(&here(), b""), source(&here(), &[7; 5000]));
    assert_eq!(Copy::new(&from, &to, 0).run(&mut lane).unwrap(), []);
    assert_eq!(to.metadata().unwrap().len(), 0);
}

#[test]
fn a_file_system_in_memory_is_copied_to_and_from() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        return eprintln!("SKIP /dev/shm: there is none");
    }
    for method in methods() {
        let mut lane = Lane::new(&config(2, method)).unwrap();
        for (a, b) in [(memory, here().as_path()), (here().as_path(), memory), (memory, memory)] {
            let expected = pattern(3, 5 * CHUNK + 77);
            let (from, to) = (source(a, &expected), empty(b));
            let mut copy = Copy::new(&from, &to, expected.len() as u64);
            let copied = copy.run(&mut lane).unwrap();
            assert!(contents(&to) == expected);
            copy.check(&copied, CHUNK);
        }
    }
}

#[test]
fn chunks_that_an_earlier_attempt_told_of_are_not_touched() {
    for method in methods() {
        let mut lane = Lane::new(&config(2, method)).unwrap();
        let bytes = 6 * CHUNK + 13;
        let expected = pattern(4, bytes);
        let (from, to) = (source(&here(), &expected), empty(&here()));
        // A mark where the second chunk is said to be: it stays, because nobody looks there.
        to.write_all_at(b"mark", CHUNK).unwrap();
        // What a crash left behind the end goes.
        to.write_all_at(&[9; 4096], bytes).unwrap();
        let mut copy = Copy::new(&from, &to, bytes);
        let all = digests(&expected, CHUNK);
        copy.done = BTreeMap::from([(1, all[1]), (5, all[5])]);
        let copied = copy.run(&mut lane).unwrap();
        copy.check(&copied, CHUNK);
        assert_eq!(copied, all);
        let found = contents(&to);
        assert_eq!(found.len() as u64, bytes);
        for (index, range) in found.chunks(CHUNK as usize).enumerate() {
            let untouched = index == 1 || index == 5;
            assert_eq!(range == &expected[index * CHUNK as usize..][..range.len()], !untouched, "{index}");
        }
        assert_eq!(&found[CHUNK as usize..][..4], b"mark");
        // All of it done: nothing is left to do.
        let mut again = Copy::new(&from, &to, bytes);
        again.done = all.iter().copied().enumerate().map(|(index, digest)| (index as u64, digest)).collect();
        assert_eq!(again.run(&mut lane).unwrap(), all);
        again.check(&all, CHUNK);
    }
}

/// Does something at each chunk that is let in.
struct At<F: Fn(u64) + Send + Sync>(Mutex<u64>, F);

impl<F: Fn(u64) + Send + Sync> At<F> {
    fn each(act: F) -> Self {
        Self(Mutex::new(0), act)
    }
}

impl<F: Fn(u64) + Send + Sync> Pace for At<F> {
    fn admit(&self, _: u64, _: u64, _: &Stop) {
        let mut count = self.0.lock().unwrap();
        (self.1)(*count);
        *count += 1;
    }
}

#[test]
fn bytes_that_rot_between_writing_and_reading_back_are_found() {
    for method in methods() {
        // One chunk at a time, and no group before the end: when the last is let in, the others have been written and
        // none has been read back.
        let lane_config = LaneConfig { group_bytes: 1 << 30, ..config(1, method) };
        let mut lane = Lane::new(&lane_config).unwrap();
        let bytes = 5 * CHUNK;
        let (from, to) = (source(&here(), &pattern(5, bytes)), empty(&here()));
        let rot = At::each(|chunk| {
            if chunk == 4 {
                let mut byte = [0];
                to.read_exact_at(&mut byte, 2 * CHUNK + 7).unwrap();
                to.write_all_at(&[byte[0] ^ 0x10], 2 * CHUNK + 7).unwrap();
            }
        });
        let mut copy = Copy::new(&from, &to, bytes);
        let error = copy.run_at(&mut lane, &rot, &Stop::new()).unwrap_err();
        assert!(matches!(error, StageError::Corrupt { offset, .. } if offset == 2 * CHUNK), "{error}");
        assert!(copy.sealed.is_empty(), "its group is not told of");
    }
}

#[test]
fn a_source_that_becomes_shorter_is_an_error_and_what_was_told_of_stays_valid() {
    for method in methods() {
        for cut in [3 * CHUNK, 3 * CHUNK + 100, 3 * CHUNK + 4096] {
            let mut lane = Lane::new(&config(1, method)).unwrap();
            let bytes = 8 * CHUNK;
            let (from, to) = (source(&here(), &pattern(6, bytes)), empty(&here()));
            let shorten = At::each(|chunk| {
                if chunk == 3 {
                    from.set_len(cut).unwrap();
                }
            });
            let mut copy = Copy::new(&from, &to, bytes);
            let error = copy.run_at(&mut lane, &shorten, &Stop::new()).unwrap_err();
            assert!(matches!(error, StageError::SourceChanged { .. }), "{error}");
            copy.check_told(CHUNK);
            // The lane is as good as new.
            let (from, to) = (source(&here(), &pattern(7, bytes)), empty(&here()));
            Copy::new(&from, &to, bytes).run(&mut lane).unwrap();
        }
    }
}

#[test]
fn a_copy_that_is_stopped_goes_on_from_what_it_told_of() {
    for method in methods() {
        let mut lane = Lane::new(&config(2, method)).unwrap();
        let bytes = 20 * CHUNK + 5;
        let expected = pattern(8, bytes);
        let (from, to) = (source(&here(), &expected), empty(&here()));
        let stop = Stop::new();
        let mut first = Copy::new(&from, &to, bytes);
        first.stops = Some(&stop);
        let error = first.run_at(&mut lane, &Unlimited, &stop).unwrap_err();
        assert!(matches!(error, StageError::Stopped { .. }), "{error}");
        assert!(!first.sealed.is_empty() && first.sealed.len() <= 15, "{}", first.sealed.len());
        first.check_told(CHUNK);
        let mut second = Copy::new(&from, &to, bytes);
        second.done = first.sealed.iter().copied().collect();
        let copied = second.run(&mut lane).unwrap();
        second.check(&copied, CHUNK);
        assert!(contents(&to) == expected);
    }
}

#[test]
fn an_error_of_the_journal_ends_the_copy() {
    let mut lane = Lane::new(&config(2, Method::Auto)).unwrap();
    let (from, to) = (source(&here(), &pattern(9, 9 * CHUNK)), empty(&here()));
    let file = stage::large::LargeFile {
        source: from.as_fd(),
        destination: to.as_fd(),
        source_path: Path::new("SOURCE"),
        destination_path: Path::new("DESTINATION"),
        bytes: 9 * CHUNK,
        algorithm: Algorithm::Blake3,
        preserve_sparse: true,
    };
    let (progress, mut calls) = (Progress::default(), 0);
    let full = || StageError::invalid("the journal is full", "");
    let sealed = &mut |_: &[(u64, Digest)]| {
        calls += 1;
        if calls == 2 { Err(full()) } else { Ok(()) }
    };
    let none = BTreeMap::new();
    let result = lane.copy(&file, &none, &Unlimited, &Stop::new(), &progress, sealed, &mut || {});
    assert_eq!(result.unwrap_err().to_string(), full().to_string());
    assert_eq!(calls, 2);
}

/// Blocks of a file, bytes.
fn allocated(file: &File) -> u64 {
    file.metadata().unwrap().blocks() * 512
}

/// A source of holes and data, each so many blocks, beginning with a hole; and its bytes.
fn with_holes(lengths: &[(u64, u64)], tail: u64) -> (File, Vec<u8>) {
    let file = empty(&here());
    let mut expected = Vec::new();
    for (hole, data) in lengths {
        expected.resize(expected.len() + (hole * 4096) as usize, 0);
        let bytes = pattern(expected.len() as u64, data * 4096);
        file.write_all_at(&bytes, expected.len() as u64).unwrap();
        expected.extend_from_slice(&bytes);
    }
    expected.resize(expected.len() + tail as usize, 0);
    file.set_len(expected.len() as u64).unwrap();
    file.sync_all().unwrap();
    (file, expected)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn holes_stay_holes_and_bytes_stay_bytes(
        lengths in proptest::collection::vec((0_u64..600, 0_u64..300), 1..6),
        tail in 0_u64..10_000,
        depth in 1_u32..5,
        psync: bool,
    ) {
        let method = if psync { Method::Psync } else { Method::Auto };
        let mut lane = Lane::new(&config(depth, method)).unwrap();
        let (from, expected) = with_holes(&lengths, tail);
        let to = empty(&here());
        let bytes = expected.len() as u64;
        let mut copy = Copy::new(&from, &to, bytes);
        copy.sparse = true;
        let copied = copy.run(&mut lane).unwrap();
        copy.check(&copied, CHUNK);
        prop_assert!(contents(&to) == expected);
        prop_assert_eq!(&copied, &digests(&expected, CHUNK));
        prop_assert!(allocated(&to) <= allocated(&from) + (64 << 10), "{} of {}", allocated(&to), allocated(&from));
        // Where holes are not to stay, there are none.
        let to = empty(&here());
        let mut copy = Copy::new(&from, &to, bytes);
        let copied = copy.run(&mut lane).unwrap();
        copy.check(&copied, CHUNK);
        prop_assert!(contents(&to) == expected);
    }

    #[test]
    fn any_length_and_depth_and_any_part_done(
        bytes in 0_u64..6 * CHUNK,
        depth in 1_u32..6,
        seed: u64,
        done in proptest::collection::btree_set(0_u64..6, 0..6),
    ) {
        let mut lane = Lane::new(&config(depth, Method::Auto)).unwrap();
        let expected = pattern(seed, bytes);
        let (from, to) = (source(&here(), &expected), empty(&here()));
        let all = digests(&expected, CHUNK);
        let mut copy = Copy::new(&from, &to, bytes);
        for index in done.into_iter().filter(|index| *index < all.len() as u64) {
            let start = (index * CHUNK) as usize;
            let end = expected.len().min(start + CHUNK as usize);
            to.write_all_at(&expected[start..end], start as u64).unwrap();
            copy.done.insert(index, all[index as usize]);
        }
        let copied = copy.run(&mut lane).unwrap();
        copy.check(&copied, CHUNK);
        prop_assert!(contents(&to) == expected);
        prop_assert_eq!(copied, all);
    }
}

#[test]
fn what_an_earlier_attempt_left_in_a_hole_goes() {
    for method in methods() {
        let mut lane = Lane::new(&config(2, method)).unwrap();
        let (from, expected) = with_holes(&[(700, 30), (100, 7), (400, 1)], 5);
        let bytes = expected.len() as u64;
        let to = source(&here(), &pattern(10, bytes + 5000));
        let mut copy = Copy::new(&from, &to, bytes);
        copy.sparse = true;
        let copied = copy.run(&mut lane).unwrap();
        copy.check(&copied, CHUNK);
        assert!(contents(&to) == expected);
        assert_eq!(copied, digests(&expected, CHUNK));
    }
}

#[test]
fn bytes_that_appear_in_a_hole_are_found() {
    for method in methods() {
        let lane_config = LaneConfig { group_bytes: 1 << 30, ..config(1, method) };
        let mut lane = Lane::new(&lane_config).unwrap();
        // A chunk of data, two of holes, a chunk of data.
        let (from, expected) = with_holes(&[(0, 256), (512, 256)], 0);
        let to = empty(&here());
        let rot = At::each(|chunk| {
            if chunk == 1 {
                to.write_all_at(b"x", CHUNK + 9).unwrap();
            }
        });
        let mut copy = Copy::new(&from, &to, expected.len() as u64);
        copy.sparse = true;
        let error = copy.run_at(&mut lane, &rot, &Stop::new()).unwrap_err();
        assert!(matches!(error, StageError::Corrupt { offset, .. } if offset == CHUNK), "{error}");
    }
}

#[test]
fn a_terabyte_of_holes_is_copied_without_a_request() {
    let mut lane = Lane::new(&LaneConfig { reflink: false, ..LaneConfig::default() }).unwrap();
    let (from, to) = (empty(&here()), empty(&here()));
    let bytes = (1 << 40) + 5;
    if let Err(error) = from.set_len(bytes).and_then(|()| from.write_all_at(b"data", 1 << 39)) {
        return eprintln!("SKIP a terabyte: {error}");
    }
    from.sync_all().unwrap();
    let admitted = Mutex::new(0);
    let counting = At::each(|_| *admitted.lock().unwrap() += 1);
    let mut copy = Copy::new(&from, &to, bytes);
    copy.sparse = true;
    let copied = copy.run_at(&mut lane, &counting, &Stop::new()).unwrap();
    copy.check(&copied, CHUNK_BYTES);
    assert_eq!(*admitted.lock().unwrap(), 1, "one chunk has data");
    assert!(allocated(&to) <= 1 << 20, "{}", allocated(&to));
    let mut found = [0; 6];
    to.read_exact_at(&mut found, (1 << 39) - 1).unwrap();
    assert_eq!(&found, b"\0data\0");
}

#[test]
fn chunks_of_an_odd_size_are_refused() {
    for (depth, chunk_bytes) in [(0, CHUNK), (1, 0), (1, 4095), (1, 1 << 40)] {
        assert!(Lane::new(&LaneConfig { depth, chunk_bytes, ..LaneConfig::default() }).is_err());
    }
}

/// A file system of its own on a loop device, gone with the value.
struct Mounted {
    directory: tempfile::TempDir,
}

impl Mounted {
    fn new(mkfs: &str, arguments: &[&str]) -> Option<Self> {
        let skip = |why: String| {
            eprintln!("SKIP {mkfs}: {why}");
            None
        };
        if !rustix::process::geteuid().is_root() {
            return skip("not root".to_owned());
        }
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        File::create(&image).unwrap().set_len(400 << 20).unwrap();
        match Command::new(mkfs).args(arguments).arg(&image).output() {
            Ok(made) if made.status.success() => {}
            Ok(made) => return skip(String::from_utf8_lossy(&made.stderr).into_owned()),
            Err(error) => return skip(error.to_string()),
        }
        let mounted = Self { directory };
        std::fs::create_dir(mounted.root()).unwrap();
        let mount =
            Command::new("mount").args(["-o", "loop"]).arg(&image).arg(mounted.root()).output().unwrap();
        if !mount.status.success() {
            return skip(String::from_utf8_lossy(&mount.stderr).into_owned());
        }
        Some(mounted)
    }

    fn root(&self) -> std::path::PathBuf {
        self.directory.path().join("root")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Its loop device is detached with it (mount -o loop).
        let _ = Command::new("umount").arg(self.root()).status();
    }
}

#[test]
fn blocks_are_shared_within_one_file_system_that_can() {
    for (mkfs, arguments) in [("mkfs.btrfs", &["-q"][..]), ("mkfs.xfs", &["-q", "-m", "reflink=1"])] {
        let Some(mounted) = Mounted::new(mkfs, arguments) else { continue };
        let mut lane = Lane::new(&LaneConfig { reflink: true, ..config(3, Method::Auto) }).unwrap();
        for bytes in [1, 4097, 9 * CHUNK + 13] {
            let expected = pattern(bytes, bytes);
            let (from, to) = (source(&mounted.root(), &expected), empty(&mounted.root()));
            // Nothing is let in where nothing is read from the source: what is read back is the copy.
            let mut copy = Copy::new(&from, &to, bytes);
            copy.sparse = true;
            let copied = copy.run(&mut lane).unwrap();
            copy.check(&copied, CHUNK);
            assert_eq!(copied, digests(&expected, CHUNK));
            assert!(contents(&to) == expected, "{mkfs}");
            assert!(shares_blocks(&to, mkfs, bytes), "{mkfs}: {bytes}");
            // And without.
            let mut lane = Lane::new(&config(3, Method::Auto)).unwrap();
            let to = empty(&mounted.root());
            let mut copy = Copy::new(&from, &to, bytes);
            let copied = copy.run(&mut lane).unwrap();
            copy.check(&copied, CHUNK);
            assert!(contents(&to) == expected, "{mkfs}");
        }
    }
}

/// Whether a file's extents are marked as shared (FIEMAP); asked of filefrag(8).
fn shares_blocks(file: &File, mkfs: &str, bytes: u64) -> bool {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    match Command::new("filefrag").args(["-v", &path]).output() {
        // Small files of btrfs lie in its trees, each its own.
        _ if mkfs.ends_with("btrfs") && bytes < 4096 => true,
        Ok(told) if told.status.success() => String::from_utf8_lossy(&told.stdout).contains("shared"),
        _ => {
            eprintln!("SKIP whether blocks are shared: no filefrag");
            true
        }
    }
}

#[test]
fn file_systems_without_room_say_so_before_a_byte_is_copied() {
    let Some(mounted) = Mounted::new("mkfs.ext4", &["-q", "-F"]) else { return };
    let mut lane = Lane::new(&config(2, Method::Auto)).unwrap();
    let from = empty(&here());
    from.set_len(1 << 30).unwrap();
    from.write_all_at(b"x", 0).unwrap();
    let to = empty(&mounted.root());
    let mut copy = Copy::new(&from, &to, 1 << 30);
    let error = copy.run(&mut lane).unwrap_err();
    assert_eq!(error.errno(), Some(rustix::io::Errno::NOSPC.raw_os_error()), "{error}");
    assert_eq!(copy.progress.bytes_written.load(Relaxed), 0);
}
