//! A file that is nearly all holes, and very many files: cost by what is there, memory that does not grow.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use stage::{Place, State, Verb};

use crate::child::{Order, Report, run};
use crate::sample;
use crate::world::{Scenario, World};

#[test]
fn a_terabyte_of_holes_takes_no_room_and_keeps_its_few_bytes() {
    const BYTES: u64 = 1 << 40;
    let mut world = World::new(Scenario::Small, Verb::Copy);
    let sparse = File::create(&world.source).unwrap();
    sparse.set_len(BYTES).unwrap();
    // In the first block, across a chunk's end, in the midst, and the very last byte.
    let places: [(u64, &[u8]); 4] = [
        (0, b"first"),
        ((8 << 20) - 3, b"across"),
        (BYTES / 2 + 12_345, b"in the midst"),
        (BYTES - 4, b"last"),
    ];
    for (offset, bytes) in places {
        sparse.write_all_at(bytes, offset).unwrap();
    }
    sparse.sync_all().unwrap();
    let room = fs::metadata(&world.source).unwrap().blocks() * 512;
    let probe = File::create(world.slow().join("probe")).unwrap();
    if let Err(error) = probe.set_len(BYTES) {
        println!("SKIP a terabyte of holes: the file system here has no files as large: {error}");
        return;
    }
    fs::remove_file(world.slow().join("probe")).unwrap();
    world.spec.source = Place::of_path(&world.source).unwrap();
    let report = run(&Order::to(&world.state, &world.spec)).told();
    let job = report.job();
    assert_eq!((job.state, &job.error), (State::Done, &None), "{job:?}");
    let copy = File::open(&world.destination).unwrap();
    let metadata = copy.metadata().unwrap();
    assert_eq!(metadata.len(), BYTES);
    assert!(
        metadata.blocks() * 512 <= room + (1 << 20),
        "{} bytes of room for {room}",
        metadata.blocks() * 512
    );
    for (offset, bytes) in places {
        let mut found = vec![0; bytes.len()];
        copy.read_exact_at(&mut found, offset).unwrap();
        assert_eq!(found, bytes, "at {offset}");
    }
}

/// Makes so many files of a few bytes, a thousand in a directory.
fn many(root: &Path, files: u64) {
    for directory in 0..files.div_ceil(1000) {
        let directory_path = root.join(format!("{directory:05}"));
        fs::create_dir_all(&directory_path).unwrap();
        for file in directory * 1000..files.min((directory + 1) * 1000) {
            fs::write(directory_path.join(format!("{file:07}")), file.to_le_bytes()).unwrap();
        }
    }
}

fn move_many(files: u64) -> Report {
    let mut world = World::new(Scenario::Small, Verb::Move);
    fs::remove_file(&world.source).unwrap();
    many(&world.source, files);
    world.spec.source = Place::of_path(&world.source).unwrap();
    let mut order = Order::to(&world.state, &world.spec);
    order.quiet = true;
    // Each thread that has something to do makes buffers of its own. How many of several would is a matter of luck.
    order.threads = 1;
    let report = run(&order).told();
    let job = report.job();
    assert_eq!((job.state, &job.error), (State::Done, &None), "{job:?}");
    assert!(!world.source.exists());
    for file in 0..files {
        let path = world.destination.join(format!("{:05}/{file:07}", file / 1000));
        assert_eq!(fs::read(&path).unwrap(), file.to_le_bytes(), "{path:?}");
    }
    report
}

/// What the buffers of a thread take when all of them was used: small files are read into one of 4 MiB to be copied, and into
/// another to be compared. A move of few files uses little of them.
const BUFFERS: u64 = 2 * (4 << 20);

#[test]
fn memory_does_not_grow_with_the_number_of_files() {
    let (few, most) = if sample::full() { (10_000, 1_000_000) } else { (2_000, 40_000) };
    let small = move_many(few).most_resident;
    let large = move_many(most).most_resident;
    // Less than 100 bytes for each file more, beside caches of a fixed size: nothing is kept of each. Of a few files the caches
    // are the greater part, and those that wait for a sync are fewer than a group of 16,384.
    let allowed = small + BUFFERS + (most - few) * 100 + (16 << 20);
    println!("{few} files: {} MiB resident at most; {most} files: {} MiB", small >> 20, large >> 20);
    assert!(large < allowed, "{small} bytes for {few} files, {large} for {most}");
}
