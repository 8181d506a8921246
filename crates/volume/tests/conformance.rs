//! Volumes do what the conformance suite asks of every device, and every engine does on them what it asks of
//! engines.

mod rig;

use std::sync::Arc;

use rig::{KIB, Loop, MIB, files, seed, written};
use storage::conformance::{check_device, check_engine};
use storage::device::{Device, OpenOptions};
use storage::engine::{EngineConfig, IoUring, Libaio, MemoryCopy, Psync};

/// Every engine that there is, over one volume.
fn check_all(volume: &Arc<dyn Device>) {
    eprintln!("{}: {:?}", volume.spec(), volume.geometry());
    let seed = seed();
    check_device(&**volume);
    check_engine(volume, seed, IoUring::new);
    check_engine(volume, seed, |device, config| {
        IoUring::new(device, &EngineConfig { sqthread_poll: true, ..config.clone() })
    });
    check_engine(volume, seed, Libaio::new);
    check_engine(volume, seed, Psync::new);
}

/// Chunks of one block, of more than a request, and of neither a power of two nor a block.
const CHUNKS: [u64; 3] = [4 * KIB, 64 * KIB, 20 * KIB];

#[test]
fn stripes_over_files_conform() {
    for (direct, chunk) in [(false, CHUNKS[0]), (false, CHUNKS[2]), (true, CHUNKS[0]), (true, CHUNKS[1])] {
        let folder = tempfile::tempdir().unwrap();
        let spec = format!("stripe(chunk={chunk}):{}", files(folder.path(), 3, 2 * MIB));
        if let Some(volume) = written(&spec, direct) {
            check_all(&volume);
        }
    }
}

/// A block that begins in one chunk and ends in the next but one.
#[test]
fn chunks_smaller_than_a_block_conform() {
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("stripe(chunk=1536):{}", files(folder.path(), 4, MIB));
    check_all(&written(&spec, false).expect("buffered always works"));
}

#[test]
fn stripes_over_memory_conform_and_are_copied() {
    for chunk in CHUNKS {
        let volume = written(&format!("stripe(chunk={chunk}):mem:2m,mem:2m,mem:2m"), true).expect("memory");
        check_all(&volume);
        check_engine(&volume, seed(), MemoryCopy::new);
    }
}

/// Unequal members, so that some end far behind what is used of them.
#[test]
fn stripes_over_files_and_memory_conform() {
    let folder = tempfile::tempdir().unwrap();
    for direct in [false, true] {
        let spec = format!("stripe(chunk=8k):mem:3m,{},mem:1m", files(folder.path(), 2, 2 * MIB + 4 * KIB));
        if let Some(volume) = written(&spec, direct) {
            assert_eq!(volume.size(), 4 * MIB);
            check_all(&volume);
        }
    }
}

#[test]
fn a_stripe_of_one_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("stripe:{}", files(folder.path(), 1, 2 * MIB));
    check_all(&written(&spec, false).expect("buffered always works"));
}

#[test]
fn stripes_over_block_devices_conform() {
    let folder = tempfile::tempdir().unwrap();
    let Some(loops) = Loop::several(folder.path(), 3, 2 * MIB) else { return };
    let names: Vec<&str> = loops.iter().map(|l| l.path.as_str()).collect();
    for direct in [true, false] {
        let given_up =
            OpenOptions { destroy: names.iter().map(Into::into).collect(), ..rig::writing(direct) };
        let volume =
            rig::open(&format!("stripe(chunk=16k):{}", names.join(",")), &given_up).expect("blank devices");
        check_all(&volume);
    }
}

/// As an address space they lie one after the other.
#[test]
fn separate_devices_and_stripes_of_stripes_conform() {
    let folder = tempfile::tempdir().unwrap();
    let separate = format!("separate:{},mem:1m", files(folder.path(), 2, MIB));
    check_all(&written(&separate, false).expect("buffered always works"));
    let nested = "stripe(chunk=16k):(stripe(chunk=4k):mem:1m,mem:1m),(stripe(chunk=12k):mem:1m,mem:1m)";
    check_all(&written(nested, false).expect("memory"));
}
