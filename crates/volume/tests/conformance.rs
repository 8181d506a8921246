//! Volumes do what the conformance suite asks of every device, and every engine does on them what it asks of
//! engines.

mod rig;

use std::sync::Arc;

use rig::{KIB, Loop, MIB, files, seed, written};
use storage::conformance::{check_device, check_engine};
use storage::device::{Device, DeviceSpec, OpenOptions, ZeroOptions};
use storage::engine::{AnyEngine, EngineConfig, IoEngine, IoUring, Libaio, MemoryCopy, Psync};
use volume::{NewVolume, SumsLayout};

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

/// Members that were labelled, by any engine that may be used: psync; and through a volume over volumes.
#[test]
fn volumes_with_checksums_conform() {
    let small = SumsLayout { group_blocks: 7, region_groups: 3 };
    for (direct, layout, size) in
        [(true, small, 2 * MIB), (false, small, 2 * MIB), (false, SumsLayout::default(), 20 * MIB)]
    {
        let folder = tempfile::tempdir().unwrap();
        let made = DeviceSpec::parse(&format!("volume:{}", files(folder.path(), 3, size))).unwrap();
        let new = NewVolume { chunk: 16 * KIB, checksums: Some(layout), ..NewVolume::default() };
        volume::create(&made, &new, &[]).expect("it is made");
        let member = |n| folder.path().join(format!("member{n}")).display().to_string();
        let spec = DeviceSpec::parse(&format!("volume:{},{},{}", member(1), member(0), member(2))).unwrap();
        let options = OpenOptions { as_owner: true, allow_unwritten: true, ..rig::writing(direct) };
        let Ok(volume) = volume::open(&spec, &options) else {
            eprintln!("SKIP direct volumes over {}", folder.path().display());
            continue;
        };
        assert_eq!(volume.geometry().logical_block, if direct { 4096 } else { 1 });
        check_device(&*volume);
        check_engine(&volume, seed(), Psync::new);
        discards_and_zeros_are_right(&*volume);
        for engine in ["io_uring", "libaio"] {
            let config = EngineConfig::default();
            let refused = match engine {
                "io_uring" => IoUring::new(Arc::clone(&volume), &config).err(),
                _ => Libaio::new(Arc::clone(&volume), &config).err(),
            };
            let words = refused.expect("it would go past the checksums").source.to_string();
            assert!(words.contains(&format!("ioengine={engine}")) && words.contains("psync"), "{words}");
        }
        let (engine, fallback) =
            storage::engine::open(IoEngine::Auto, &volume, &EngineConfig::default()).expect("it opens");
        assert!(matches!(engine, AnyEngine::Psync(_)) && fallback.is_none());
        drop((engine, volume));
        let check = volume::survey::check_data(spec.members(), |_| true).expect("it opens");
        assert!(check.sound && check.verified_bytes > 0, "{check:?}");
    }
}

/// Ranges of any length, over regions that have checksums and others: zeros afterwards, and neighbours as before.
fn discards_and_zeros_are_right(device: &dyn Device) {
    let size = device.size();
    let unit = u64::from(device.geometry().logical_block);
    let mut model = rig::pattern(3, size as usize);
    device.write_at(&model, 0).expect("it writes");
    let mut random = rig::random::Random::of(seed());
    for round in 0..24 {
        let at = random.below(size) / unit * unit;
        let longest = if round % 2 == 0 { size - at } else { (size - at).min(64 * KIB) };
        let length = (1 + random.below(longest)).next_multiple_of(unit).min(size - at);
        let range = at as usize..(at + length) as usize;
        match round % 3 {
            0 => device.discard(at, length).expect("files can"),
            1 => device.write_zeroes(at, length, ZeroOptions::default()).expect("it zeroes"),
            _ => {
                let bytes = rig::pattern(random.next(), length as usize);
                device.write_at(&bytes, at).expect("it writes");
                model[range.clone()].copy_from_slice(&bytes);
            }
        }
        if round % 3 < 2 {
            model[range].fill(0);
        }
        let mut found = vec![1; size as usize];
        device.read_at(&mut found, 0).expect("reads");
        assert!(found == model, "round {round}: {length} bytes at {at}");
    }
}

/// A stripe over volumes that verify is driven by their own calls too.
#[test]
fn stripes_over_volumes_with_checksums_conform() {
    let folder = tempfile::tempdir().unwrap();
    let mut volumes = Vec::new();
    for name in ["a", "b"] {
        let path = folder.path().join(name).display().to_string();
        let made = DeviceSpec::parse(&format!("volume:file:{path}?size=2m")).unwrap();
        let layout = SumsLayout { group_blocks: 7, region_groups: 3 };
        let new = NewVolume { chunk: 16 * KIB, checksums: Some(layout), ..NewVolume::default() };
        volume::create(&made, &new, &[]).expect("it is made");
        volumes.push(format!("(volume:{path})"));
    }
    let options = OpenOptions { as_owner: true, allow_unwritten: true, ..rig::writing(false) };
    let spec = format!("stripe(chunk=8k):{}", volumes.join(","));
    let stripe = rig::open(&spec, &options).expect("it opens");
    check_device(&*stripe);
    check_engine(&stripe, seed(), Psync::new);
    assert!(IoUring::new(Arc::clone(&stripe), &EngineConfig::default()).is_err());
}
