//! The sorter on devices of all kinds, within its budget, and with devices that fail.

use std::sync::Arc;

use external::{ExternalError, Record, Sorter, SorterOptions, Source, Space, SpaceOptions};
use proptest::prelude::*;
use storage::device::{Access, Device, DeviceSpec, OpenOptions};

/// Opens `spec` to be written.
fn device(spec: &str) -> Arc<dyn Device> {
    let options = OpenOptions { access: Access::ReadWrite, ..OpenOptions::default() };
    volume::open(&DeviceSpec::parse(spec).expect("is a spec"), &options).expect("opens")
}

fn space_on(spec: &str, block_bytes: usize) -> Space {
    Space::on(device(spec), &SpaceOptions { block_bytes, ..SpaceOptions::default() }).expect("is usable")
}

fn options<T>(memory: u64, threads: usize) -> SorterOptions<T> {
    SorterOptions { threads, ..SorterOptions::new(memory) }
}

fn sorted<T: Record>(space: &Space, options: &SorterOptions<T>, records: &[T]) -> Vec<T> {
    let mut sorter = Sorter::new(space, options).expect("has memory enough");
    sorter.push_slice(records).expect("is pushed");
    sorter.finish().expect("is sorted").map(|record| record.expect("is read")).collect()
}

/// Numbers that look random, the same each time.
fn noise(count: u64, modulus: u64) -> Vec<u64> {
    let mut state = 0x2009_u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) % modulus
    };
    (0..count).map(|_| next()).collect()
}

fn check(space: &Space, options: &SorterOptions<u64>, records: &[u64]) {
    let mut expected = records.to_vec();
    expected.sort_unstable();
    if let Some(same) = options.unique {
        expected.dedup_by(|later, kept| same(kept, later));
    }
    assert!(sorted(space, options, records) == expected, "{} records, {options:?}", records.len());
    assert_eq!(space.usage().bytes_in_use, 0, "all blocks were given back");
}

#[test]
fn every_order_of_input_comes_out_sorted() {
    let space = space_on("mem:16m", 4096);
    for threads in [1, 2, 5] {
        let options = options(256 << 10, threads);
        check(&space, &options, &noise(300_000, u64::MAX));
        check(&space, &options, &noise(300_000, 1000));
        check(&space, &options, &(0..300_000).collect::<Vec<_>>());
        check(&space, &options, &(0..300_000).rev().collect::<Vec<_>>());
        check(&space, &options, &vec![7; 300_000]);
        check(&space, &options, &[]);
        check(&space, &options, &[3, 1, 2]);
    }
}

#[test]
fn more_runs_than_one_merge_takes_are_merged_in_steps() {
    let space = space_on("mem:32m", 4096);
    let options = options(64 << 10, 1);
    let records = noise(1_000_000, u64::MAX);
    check(&space, &options, &records);
    let usage = space.usage();
    assert!(usage.bytes_written > 2 * 8_000_000, "some runs were written twice: {usage:?}");
}

#[test]
fn data_of_one_merge_are_written_once_and_read_once() {
    let space = space_on("mem:16m", 4096);
    let records = noise(1_000_000, u64::MAX);
    check(&space, &options(1 << 20, 2), &records);
    let (usage, bytes) = (space.usage(), 8_000_000);
    for moved in [usage.bytes_read, usage.bytes_written] {
        assert!((bytes..bytes + bytes / 50).contains(&moved), "{usage:?}");
    }
    assert!(usage.bytes_in_use_peak <= bytes + bytes / 50, "{usage:?}");
}

#[test]
fn what_fits_in_memory_causes_no_io() {
    let space = space_on("mem:1m", 4096);
    check(&space, &options(1 << 20, 2), &noise(10_000, u64::MAX));
    assert_eq!(space.usage().requests, 0);
}

#[test]
fn only_the_first_of_equal_prefixes_is_kept_wherever_they_meet() {
    let space = space_on("mem:16m", 4096);
    for (count, modulus) in [(5_000, 1 << 20), (400_000, 1 << 20), (400_000, 1 << 12), (400_000, 5)] {
        let options = options(128 << 10, 2).unique(|a, b| a >> 8 == b >> 8);
        check(&space, &options, &noise(count, modulus));
    }
}

#[test]
fn duplicates_are_dropped_before_they_are_written() {
    let space = space_on("mem:16m", 4096);
    check(&space, &options(256 << 10, 2).unique(|a, b| a == b), &noise(400_000, 100));
    assert!(space.usage().bytes_written < 1 << 20, "{:?}", space.usage());
}

#[test]
fn wide_records_and_narrow_ones_are_sorted() {
    let space = space_on("mem:16m", 4096);
    let numbers = noise(200_000, u64::MAX);
    let triples: Vec<[u64; 3]> = numbers.iter().map(|n| [n >> 60, n % 977, *n]).collect();
    let mut expected = triples.clone();
    expected.sort_unstable();
    assert!(sorted(&space, &options(256 << 10, 2), &triples) == expected);
    let words: Vec<u32> = numbers.iter().map(|n| *n as u32).collect();
    let mut expected = words.clone();
    expected.sort_unstable();
    assert!(sorted(&space, &options(256 << 10, 2), &words) == expected);
}

#[test]
fn stripes_files_and_scratch_files_serve_alike() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let file = |name| format!("file:{}?size=3m", path(name));
    let records = noise(400_000, u64::MAX);
    for spec in [
        format!("file:{}?size=8m", path("alone")),
        format!("stripe(chunk=64k):{},{}", file("a"), file("b")),
        format!("separate:{},{}", file("c"), file("d")),
        "stripe(chunk=8k):mem:3m,mem:3m".to_owned(),
    ] {
        check(&space_on(&spec, 16 << 10), &options(768 << 10, 2), &records);
    }
    let block = SpaceOptions { block_bytes: 16 << 10, ..SpaceOptions::default() };
    let space = Space::scratch(directory.path(), 8 << 20, &block).expect("is made");
    check(&space, &options(768 << 10, 2), &records);
}

#[test]
fn a_scratch_file_takes_of_the_disk_what_is_used_of_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let block = SpaceOptions { block_bytes: 16 << 10, ..SpaceOptions::default() };
    let space =
        Space::scratch(directory.path(), 1 << 40, &block).expect("a terabyte that is not used costs nothing");
    assert_eq!(space.usage().bytes_set_aside, 0);
    check(&space, &options(768 << 10, 2), &noise(400_000, u64::MAX));
    let first = space.usage();
    assert!(
        first.bytes_set_aside >= first.bytes_in_use_peak && first.bytes_in_use_peak > 3 << 20,
        "{first:?}"
    );
    assert!(first.bytes_set_aside <= first.bytes_in_use_peak + (8 << 20), "{first:?}");
    // What was returned is used again.
    check(&space, &options(768 << 10, 2), &noise(400_000, u64::MAX));
    assert_eq!(space.usage().bytes_set_aside, first.bytes_set_aside);
}

#[test]
fn a_full_device_is_told_with_its_size() {
    let space = space_on("mem:1m", 4096);
    let mut sorter = Sorter::new(&space, &options(128 << 10, 2)).expect("has memory");
    let error = noise(400_000, u64::MAX)
        .chunks(1000)
        .find_map(|records| sorter.push_slice(records).err())
        .expect("3.2 MB do not fit 1 MiB");
    assert_eq!(error.to_string(), "temporary space mem:1m is full: all 1 MiB of it are in use");
    let later = sorter.finish().expect_err("records are missing");
    assert!(matches!(later, ExternalError::Poisoned { .. }), "{later:?}");
}

#[test]
fn a_changed_bit_is_told_with_its_block() {
    let device = device("mem:8m");
    let block = SpaceOptions { block_bytes: 4096, ..SpaceOptions::default() };
    let space = Space::on(Arc::clone(&device), &block).expect("is usable");
    let mut sorter = Sorter::new(&space, &options(128 << 10, 1)).expect("has memory");
    sorter.push_slice(&noise(300_000, u64::MAX)).expect("fits");
    // Block 200 was written by now, since the sorter holds no more than its budget.
    let at = 200 * 4096 + 17;
    let mut byte = [0];
    device.read_at(&mut byte, at).expect("reads");
    device.write_at(&[byte[0] ^ 4], at).expect("writes");
    let error = match sorter.finish() {
        Ok(mut sorted) => sorted.find_map(Result::err).expect("the bit is found"),
        Err(error) => error,
    };
    let text = error.to_string();
    assert!(text.starts_with("the block at offset 819200 of mem:8m is corrupt"), "{text}");
}

#[test]
fn a_truncated_file_is_a_named_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("space");
    let space = space_on(&format!("file:{}?size=8m", path.display()), 4096);
    let mut sorter = Sorter::new(&space, &options(128 << 10, 1)).expect("has memory");
    sorter.push_slice(&noise(300_000, u64::MAX)).expect("fits");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("opens");
    file.set_len(1 << 20).expect("truncates");
    let error = match sorter.finish() {
        Ok(mut sorted) => sorted.find_map(Result::err).expect("the end is missing"),
        Err(error) => error,
    };
    // Blocks behind the new end are short; where a later write made the file longer again, they are zeros.
    assert!(matches!(error, ExternalError::Request(_) | ExternalError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("at offset "), "{error}");
}

#[test]
fn a_sorter_or_its_result_may_be_dropped_at_any_time() {
    let space = space_on("mem:8m", 4096);
    for pushed in [0, 10_000, 300_000] {
        let mut sorter = Sorter::new(&space, &options(128 << 10, 2)).expect("has memory");
        sorter.push_slice(&noise(pushed, u64::MAX)).expect("fits");
        drop(sorter);
        assert_eq!(space.usage().bytes_in_use, 0);
        let mut sorter = Sorter::new(&space, &options(128 << 10, 2)).expect("has memory");
        sorter.push_slice(&noise(pushed, u64::MAX)).expect("fits");
        let mut sorted = sorter.finish().expect("sorts");
        let _ = sorted.next_record().expect("reads");
        drop(sorted);
        assert_eq!(space.usage().bytes_in_use, 0);
    }
}

#[test]
fn unsuitable_devices_and_budgets_are_refused_with_words() {
    let readonly = volume::open(&DeviceSpec::parse("mem:1m").expect("is a spec"), &OpenOptions::default());
    let error = Space::on(readonly.expect("opens"), &SpaceOptions::default()).expect_err("is not writable");
    assert_eq!(error.to_string(), "mem:1m is open for reading only, and temporary space is written");
    let odd = SpaceOptions { block_bytes: 5000, ..SpaceOptions::default() };
    let error = Space::on(device("mem:1m"), &odd).expect_err("is no block");
    assert_eq!(
        error.to_string(),
        "blocks of 5000 bytes are not possible on mem:1m: it is not a multiple of 4096"
    );
    let error =
        Sorter::<u64>::new(&space_on("mem:1m", 4096), &SorterOptions::new(4096)).expect_err("is too little");
    assert_eq!(error.to_string(), "sorting needs at least 46.9 KiB of memory, and was given 4 KiB");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_records_come_out_sorted(
        count in 0..60_000_u64,
        bits in 0..64_u32,
        threads in 1..4_usize,
        memory_kib in 64..300_u64,
        is_unique in any::<bool>(),
    ) {
        let space = space_on("mem:4m", 4096);
        let mut options = options(memory_kib << 10, threads);
        if is_unique {
            options = options.unique(|a, b| a >> 7 == b >> 7);
        }
        let records: Vec<u64> = noise(count, u64::MAX).into_iter().map(|record| record >> bits).collect();
        check(&space, &options, &records);
    }
}
