//! A volume that keeps checksums finds what is not as it was written, names it, and never takes a torn block for a rotten
//! one or the other way round.

mod rig;

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rig::disk::{Clock, Disk};
use rig::random::Random;
use rig::{KIB, MIB, raid0, seed};
use storage::device::{Device, ZeroOptions};
use volume::survey::check_data_on;
use volume::{DataCheck, FindingKind, NewVolume, SumsLayout, SumsLimits, Volume, VolumeError};

const BLOCK: u64 = 4 * KIB;
const CHUNK: u64 = 8 * KIB;
const SIZE: usize = (MIB + 200 * KIB) as usize;
const LAYOUT: SumsLayout = SumsLayout { group_blocks: 5, region_groups: 2 };
/// So little that everything has to make room for everything else.
const TIGHT: SumsLimits = SumsLimits { cached_blocks: 2, marked_regions: 2 };

type Images = Vec<Vec<u8>>;

fn disks(images: &Images, clock: &Arc<Clock>) -> Vec<Arc<Disk>> {
    images.iter().enumerate().map(|(number, bytes)| Disk::of(number, bytes.clone(), clock)).collect()
}

fn devices(disks: &[Arc<Disk>]) -> Vec<Arc<dyn Device>> {
    disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>).collect()
}

fn images_of(disks: &[Arc<Disk>]) -> Images {
    disks.iter().map(|disk| disk.image()).collect()
}

fn made(width: usize) -> Vec<Arc<Disk>> {
    let disks = disks(&vec![vec![0xee; SIZE]; width], &Arc::default());
    // What lies there is not zeros, so that an area that is not written is not mistaken for one that is.
    let new = NewVolume { name: "sums".to_owned(), chunk: CHUNK, checksums: Some(LAYOUT) };
    volume::create_on(&devices(&disks), &new).expect("it is made");
    disks
}

fn opened(disks: &[Arc<Disk>]) -> Volume {
    Volume::of_members_within(devices(disks), TIGHT).expect("it opens").0
}

fn scrubbed(disks: &[Arc<Disk>]) -> DataCheck {
    check_data_on(devices(disks), |_| true).expect("it opens")
}

fn block_of(number: u64, version: u64) -> Vec<u8> {
    rig::pattern(number * 1000 + version, BLOCK as usize)
}

/// Writes `version` to all blocks, and closes the volume.
fn filled(width: usize) -> (Vec<Arc<Disk>>, u64) {
    let disks = made(width);
    let volume = opened(&disks);
    let blocks = volume.size() / BLOCK;
    for block in 0..blocks {
        volume.write_at(&block_of(block, 0), block * BLOCK).expect("it writes");
    }
    (disks, blocks)
}

/// Where a block of the volume lies: the member, and the bytes on it.
fn place(width: usize, block: u64) -> (usize, std::ops::Range<usize>) {
    let (member, at) = raid0(CHUNK, width as u64, block * BLOCK);
    let at = (MIB + at) as usize;
    (member, at..at + BLOCK as usize)
}

fn change(disks: &[Arc<Disk>], block: u64, change: impl FnOnce(&mut Vec<u8>)) {
    let (member, range) = place(disks.len(), block);
    let mut bytes = disks[member].parts(std::slice::from_ref(&range));
    change(&mut bytes[0]);
    disks[member].put_back(&[range], &bytes);
}

fn bytes_at(disks: &[Arc<Disk>], block: u64) -> Vec<u8> {
    let (member, range) = place(disks.len(), block);
    disks[member].parts(&[range]).remove(0)
}

fn read(volume: &Volume, block: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; BLOCK as usize];
    volume.read_at(&mut bytes, block * BLOCK).map(|()| bytes)
}

#[test]
fn a_flipped_bit_is_found_and_named_by_member_and_offset() {
    for width in [1, 3] {
        let (disks, blocks) = filled(width);
        assert!(scrubbed(&disks).sound);
        let (victim, bit) = (blocks / 2, 12_345);
        change(&disks, victim, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        let (member, range) = place(width, victim);
        let volume = opened(&disks);
        for block in 0..blocks {
            match read(&volume, block) {
                Ok(bytes) => assert!(block != victim && bytes == block_of(block, 0), "block {block}"),
                Err(error) => {
                    assert_eq!(block, victim, "{error}");
                    let words = error.to_string();
                    let (at, of) = (victim * BLOCK, format!("{} of disk{member},", range.start));
                    assert!(words.contains(&format!("offset {at} of the volume")), "{words}");
                    assert!(words.contains(&of) && words.contains("expected"), "{words}");
                }
            }
        }
        // A part of it cannot be written, for the rest is not known; all of it can, and is good again.
        volume.write_at(&[1; 100], victim * BLOCK).expect_err("the rest of the block is rotten");
        drop(volume);
        let check = scrubbed(&disks);
        assert_eq!((check.sound, check.finding_count), (false, 1), "{check:?}");
        let finding = &check.findings[0];
        assert_eq!((finding.kind, finding.volume_offset), (FindingKind::Rotten, Some(victim * BLOCK)));
        assert_eq!(
            (finding.member.as_str(), finding.member_offset),
            (disks[member].spec(), range.start as u64)
        );
        let volume = opened(&disks);
        volume.write_at(&block_of(victim, 1), victim * BLOCK).expect("it writes");
        assert_eq!(read(&volume, victim).expect("it fits"), block_of(victim, 1));
        drop(volume);
        assert!(scrubbed(&disks).sound);
    }
}

#[test]
fn a_lost_write_is_found() {
    let (disks, _) = filled(2);
    let before = bytes_at(&disks, 7);
    let volume = opened(&disks);
    volume.write_at(&block_of(7, 1), 7 * BLOCK).expect("it writes");
    drop(volume);
    change(&disks, 7, |bytes| *bytes = before);
    read(&opened(&disks), 7).expect_err("its last write was lost");
    assert_eq!(scrubbed(&disks).findings[0].kind, FindingKind::Rotten);
}

/// The write of block 7 went to where block 11 lies, on the same member or another.
#[test]
fn a_misdirected_write_is_found_and_said_to_be_one() {
    for other in [8, 11] {
        let (disks, _) = filled(2);
        let before = bytes_at(&disks, 7);
        let volume = opened(&disks);
        volume.write_at(&block_of(7, 1), 7 * BLOCK).expect("it writes");
        drop(volume);
        change(&disks, 7, |bytes| *bytes = before);
        change(&disks, other, |bytes| *bytes = block_of(7, 1));
        let volume = opened(&disks);
        read(&volume, 7).expect_err("its write went elsewhere");
        read(&volume, other).expect_err("it was overwritten");
        drop(volume);
        let check = scrubbed(&disks);
        let kinds: Vec<_> = check.findings.iter().map(|f| (f.volume_offset, f.kind)).collect();
        let expected =
            [(Some(7 * BLOCK), FindingKind::Rotten), (Some(other * BLOCK), FindingKind::Misdirected)];
        assert_eq!(kinds, expected);
        let (_, range) = place(2, 7);
        assert!(check.findings[1].detail.contains(&range.start.to_string()), "{check:?}");
    }
}

/// Two blocks with the same contents are not interchangeable; nor are members.
#[test]
fn a_block_in_the_place_of_another_is_found_although_it_was_written_whole() {
    let (disks, _) = filled(2);
    for (from, to) in [(4, 5), (4, 6)] {
        let before = bytes_at(&disks, to);
        let moved = bytes_at(&disks, from);
        change(&disks, to, |bytes| *bytes = moved);
        read(&opened(&disks), to).expect_err("that is another block");
        change(&disks, to, |bytes| *bytes = before);
        read(&opened(&disks), to).expect("it is back");
    }
    // Of equal contents.
    let volume = opened(&disks);
    let same = vec![7; 4 * BLOCK as usize];
    volume.write_at(&same, 4 * BLOCK).expect("it writes");
    drop(volume);
    assert!(scrubbed(&disks).sound);
}

/// With its block of sums, so that all of it fits but for the place.
#[test]
fn a_group_in_the_place_of_another_members_with_its_checksums_is_found() {
    let (disks, _) = filled(2);
    let label = volume::Candidate::read(&*disks[0]).expect("reads").label().cloned().expect("a label");
    let group = MIB as usize..(MIB + u64::from(LAYOUT.group_blocks) * BLOCK) as usize;
    let sums = (label.data_start + label.data_bytes) as usize;
    let sums = sums..sums + BLOCK as usize;
    let data = disks[0].parts(std::slice::from_ref(&group));
    disks[1].put_back(&[group], &data);
    // The checksums of member 0 lie on member 1, and the other way round.
    let checksums = disks[1].parts(std::slice::from_ref(&sums));
    disks[0].put_back(&[sums], &checksums);
    let volume = opened(&disks);
    read(&volume, 0).expect("it is where it was written");
    read(&volume, CHUNK / BLOCK).expect_err("that is member 0's");
}

/// The write that takes the marks of a session away is lost; what rots afterwards is not taken for torn.
#[test]
fn marks_of_a_session_that_was_closed_are_not_believed() {
    let (disks, blocks) = filled(2);
    let label = volume::Candidate::read(&*disks[0]).expect("reads").label().cloned().expect("a label");
    let map = (label.data_start + label.data_bytes + label.sums_bytes() - 2 * BLOCK) as usize;
    let slots = [map..map + BLOCK as usize, map + BLOCK as usize..map + 2 * BLOCK as usize];
    let volume = opened(&disks);
    volume.write_at(&block_of(0, 1), 0).expect("it writes");
    volume.write_at(&block_of(blocks - 1, 1), (blocks - 1) * BLOCK).expect("it writes");
    let marked: Vec<_> = disks.iter().map(|disk| disk.parts(&slots)).collect();
    drop(volume);
    disks.iter().zip(marked).for_each(|(disk, parts)| disk.put_back(&slots, &parts));
    change(&disks, 0, |bytes| bytes[0] ^= 1);
    assert_eq!(scrubbed(&disks).findings[0].kind, FindingKind::Rotten);
    let volume = opened(&disks);
    read(&volume, 0).expect_err("it is rotten");
    volume.write_at(&block_of(9, 1), 9 * BLOCK).expect("it writes");
    read(&volume, 0).expect_err("it is rotten still");
    // What was refused has written nothing, so the volume is closed all the same.
    volume.write_at(&[1], 5).expect_err("the rest of the block is rotten");
    drop(volume);
    let candidate = volume::Candidate::read(&*disks[0]).expect("reads");
    assert_eq!(candidate.label().map(|label| label.state), Some(volume::State::Ready));
}

#[test]
fn a_change_of_the_map_that_a_drive_loses_is_made_again() {
    let disks = made(2);
    let label = volume::Candidate::read(&*disks[0]).expect("reads").label().cloned().expect("a label");
    let map = label.data_start + label.data_bytes + label.sums_bytes() - 2 * BLOCK;
    let slot = |number: u64| map + number * BLOCK..map + (number + 1) * BLOCK;
    let held = |number: u64| {
        let range = slot(number).start as usize..slot(number).end as usize;
        disks[number as usize].parts(&[range])
    };
    let before = [held(0), held(1)];
    (0..2).for_each(|number| *disks[number as usize].loses.lock().unwrap() = Some(slot(number)));
    let volume = opened(&disks);
    volume.write_at(&block_of(0, 1), 0).expect("it writes");
    assert!(held(0) != before[0] && held(1) != before[1], "both slots say that there are checksums");
}

#[test]
fn a_damaged_block_of_sums_spoils_its_blocks_until_they_are_written_again() {
    let (disks, blocks) = filled(2);
    let label = volume::Candidate::read(&*disks[0]).expect("reads").label().cloned().expect("a label");
    // The one of group 0 of member 0, which lies on member 1.
    let at = (label.data_start + label.data_bytes) as usize;
    let range = at + 40..at + 44;
    disks[1].put_back(&[range], &[vec![1, 2, 3, 4]]);
    let in_group = |block: u64| {
        let (member, range) = place(2, block);
        member == 0 && (range.start as u64 - MIB) / BLOCK < u64::from(LAYOUT.group_blocks)
    };
    let check = scrubbed(&disks);
    assert_eq!((check.finding_count, check.findings[0].kind), (1, FindingKind::Sums), "{check:?}");
    assert_eq!((check.findings[0].member.as_str(), check.findings[0].member_offset), ("disk1", at as u64));
    let volume = opened(&disks);
    for block in 0..blocks {
        let read = read(&volume, block);
        assert_eq!(read.is_err(), in_group(block), "block {block}: {read:?}");
        if let Err(error) = read {
            assert!(error.to_string().contains(&format!("checksums at {at} of disk1")), "{error}");
        }
    }
    volume.write_at(&block_of(0, 1), 0).expect("it writes");
    drop(volume);
    let volume = opened(&disks);
    assert_eq!(read(&volume, 0).expect("it was written again"), block_of(0, 1));
    read(&volume, 1).expect_err("it was not");
    for block in (0..blocks).filter(|block| in_group(*block)) {
        volume.write_at(&block_of(block, 1), block * BLOCK).expect("it writes");
    }
    drop(volume);
    assert!(scrubbed(&disks).sound);
}

#[test]
fn one_damaged_slot_of_the_map_is_survived_and_said() {
    let (disks, blocks) = filled(2);
    let label = volume::Candidate::read(&*disks[0]).expect("reads").label().cloned().expect("a label");
    let map = (label.data_start + label.data_bytes + label.sums_bytes() - 2 * BLOCK) as usize;
    for (disk, at) in [(0, map), (1, map + BLOCK as usize)] {
        let range = at + 64..at + 65;
        let before = disks[disk].parts(std::slice::from_ref(&range));
        disks[disk].put_back(std::slice::from_ref(&range), &[vec![before[0][0] ^ 1]]);
        let check = scrubbed(&disks);
        let finding = check.findings.first().expect("one is found");
        assert_eq!((finding.kind, finding.member_offset), (FindingKind::Map, at as u64), "{check:?}");
        let volume = opened(&disks);
        for block in 0..blocks {
            assert_eq!(read(&volume, block).expect("reads"), block_of(block, 0));
        }
        drop(volume);
        disks[disk].put_back(&[range], &before);
    }
}

#[test]
fn a_fresh_volume_reads_what_lies_there_and_keeps_checksums_of_what_is_written() {
    let disks = made(2);
    let volume = opened(&disks);
    assert_eq!(read(&volume, 3).expect("reads"), vec![0xee; BLOCK as usize]);
    volume.write_at(&[1; 10], 3 * BLOCK + 5).expect("it writes");
    drop(volume);
    let check = scrubbed(&disks);
    assert!(check.sound && check.verified_bytes == BLOCK && check.read_bytes > BLOCK, "{check:?}");
    change(&disks, 3, |bytes| bytes[4000] ^= 1);
    read(&opened(&disks), 3).expect_err("it was written");
    read(&opened(&disks), 2).expect("it was not");
}

/// Requests of any length at any place, with so little memory that all of it goes back and forth; from several threads,
/// whose writes do not overlap and whose reads do.
#[test]
fn many_threads_with_little_memory_read_what_was_written() {
    let disks = made(3);
    let volume = opened(&disks);
    let share = volume.size() / 4 / BLOCK * BLOCK;
    let seed = seed();
    for _ in 0..2 {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (volume, mut random) = (volume.clone(), Random::of(seed ^ (thread << 40)));
                scope.spawn(move || {
                    let start = thread * share;
                    let mut model = vec![0; share as usize];
                    volume.read_at(&mut model, start).expect("reads");
                    for _ in 0..400 {
                        let at = random.below(share);
                        let length = 1 + random.below((share - at).min(40 * KIB));
                        let range = at as usize..(at + length) as usize;
                        match random.below(8) {
                            0..4 => {
                                let bytes = rig::pattern(random.next(), length as usize);
                                volume.write_at(&bytes, start + at).expect("it writes");
                                model[range].copy_from_slice(&bytes);
                            }
                            4 => volume.sync().expect("it syncs"),
                            5 => {
                                let how = ZeroOptions::default();
                                volume.device().write_zeroes(start + at, length, how).expect("it zeroes");
                                model[range].fill(0);
                            }
                            6 => {
                                // Anywhere: what another thread writes at this moment is no mismatch.
                                let at = random.below(volume.size() - 64 * KIB);
                                volume.read_at(&mut [0; 64 * KIB as usize], at).expect("reads");
                            }
                            _ => {
                                let mut bytes = vec![0; length as usize];
                                volume.read_at(&mut bytes, start + at).expect("reads");
                                assert!(bytes == model[range], "seed {seed}, {length} bytes at {at}");
                            }
                        }
                    }
                });
            }
        });
    }
    drop(volume);
    let check = scrubbed(&disks);
    assert!(check.sound && check.verified_bytes > 0, "{check:?}");
}

/// The data of one and the checksum of the other would be a block that fits nothing.
#[test]
fn writers_of_the_same_block_leave_one_of_them_and_its_checksum() {
    let disks = made(2);
    let volume = Volume::of_members(devices(&disks)).expect("it opens").0;
    for round in 0..50 {
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let volume = volume.clone();
                scope.spawn(move || {
                    let all = vec![writer as u8 + 1; 3 * BLOCK as usize];
                    volume.write_at(&all, (1 + writer) * BLOCK).expect("it writes");
                });
            }
        });
        let mut all = vec![0; 8 * BLOCK as usize];
        volume.read_at(&mut all, 0).unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
}

/// At each write and sync, from opening to the end, of a volume at rest and of one that was not closed: nothing that was
/// synced is lost or doubted, and what was not is some of what was written.
#[test]
fn power_that_goes_at_any_step_tears_nothing_that_cannot_be_read() {
    let mut random = Random::of(seed());
    for width in [1, 2] {
        let (disks_before, _) = filled(width);
        let mut before = images_of(&disks_before);
        for round in 0..2 {
            let versions = (10 * round + 1, 10 * round + 2);
            let work = |volume: &Volume, is_synced: &Cell<bool>| -> io::Result<()> {
                // Two regions at least; the second write overlaps with the first and begins within a block.
                volume.write_at(&block_of(3, versions.0), 3 * BLOCK)?;
                volume.write_at(&block_of(22, versions.0), 22 * BLOCK)?;
                volume.sync()?;
                is_synced.set(true);
                volume.write_at(&block_of(3, versions.1)[..3000], 3 * BLOCK)?;
                volume.write_at(&block_of(13, versions.1), 13 * BLOCK)?;
                volume.device().discard(20 * BLOCK, BLOCK).or(Ok::<(), io::Error>(()))
            };
            let clock = Arc::new(Clock::default());
            work(&opened(&disks(&before, &clock)), &Cell::default()).expect("nothing stops it");
            let steps = clock.made();
            let mut unclosed = before.clone();
            for stop_at in 0..=steps {
                let clock = Arc::new(Clock::default());
                clock.stop_after(stop_at);
                let disks = disks(&before, &clock);
                let (volume, is_synced) = (opened(&disks), Cell::default());
                let ended = work(&volume, &is_synced);
                drop(volume);
                assert!(stop_at < steps || ended.is_ok(), "step {stop_at} of {steps}: {ended:?}");
                disks.iter().for_each(|disk| disk.lose_power(&mut random));
                let after = images_of(&disks);
                verify_after_crash(&after, &before, versions, is_synced.get(), stop_at);
                if stop_at % 7 == 3 {
                    unclosed = images_of(&reopened(&after));
                }
            }
            before = unclosed;
        }
    }
}

fn reopened(images: &Images) -> Vec<Arc<Disk>> {
    let disks = disks(images, &Arc::default());
    if let Err(VolumeError::OneCopy { .. }) = Volume::of_members(devices(&disks)) {
        volume::repair_on(&devices(&disks)).expect("the other copy is whole");
    }
    disks
}

fn verify_after_crash(images: &Images, before: &Images, versions: (u64, u64), is_synced: bool, step: u32) {
    let disks = reopened(images);
    // Who only reads sees no error; nor does who writes, before the first write and after it.
    let volume = opened(&disks);
    let blocks = volume.size() / BLOCK;
    let first: Vec<_> = (0..blocks).map(|block| read(&volume, block)).collect();
    volume.write_at(&[9; 1], 30 * BLOCK).unwrap_or_else(|error| panic!("step {step}: {error}"));
    for (block, found) in (0..blocks).zip(first) {
        let found = found.unwrap_or_else(|error| panic!("step {step}: {error}"));
        let then = read(&volume, block).unwrap_or_else(|error| panic!("step {step}: {error}"));
        assert!(block == 30 || found == then, "step {step}: block {block}");
        let (member, range) = place(disks.len(), block);
        let old = &before[member][range];
        let is_of =
            |bytes: &[u8], at: usize, version: u64| bytes == &block_of(block, version)[at..at + bytes.len()];
        for (number, sector) in found.chunks(256).enumerate() {
            let at = number * 256;
            let known = is_of(sector, at, versions.0)
                || is_of(sector, at, versions.1)
                || *sector == old[at..at + 256]
                || matches!(block, 3 | 13 | 20 | 30);
            assert!(known, "step {step}: block {block} at {at}");
        }
        if is_synced && block == 22 {
            assert_eq!(found, block_of(22, versions.0), "step {step}: it was synced");
        }
    }
    drop(volume);
    let check = scrubbed(&disks);
    assert!(check.sound, "step {step}: {check:?}");
}

/// A volume whose block 1 is on the medium, and its checksum is not; and how many blocks it has.
fn torn() -> (Images, u64) {
    let (disks_before, blocks) = filled(2);
    let clock = Arc::new(Clock::default());
    let disks = disks(&images_of(&disks_before), &clock);
    let volume = opened(&disks);
    volume.write_at(&block_of(0, 1), 0).expect("it writes");
    volume.sync().expect("it syncs");
    volume.write_at(&block_of(1, 1), BLOCK).expect("it writes");
    clock.stop_after(0);
    disks[0].sync_data().expect_err("the power is gone");
    drop(volume);
    (images_of(&reopened(&images_of(&disks))), blocks)
}

#[test]
fn a_call_that_fails_while_torn_blocks_are_resealed_makes_none_of_them_rotten() {
    let (images, _) = torn();
    for step in 0..200 {
        let clock = Arc::new(Clock::default());
        let disks = disks(&images, &clock);
        let volume = opened(&disks);
        clock.stop_after(step);
        let written = volume.write_at(&[1], 5 * BLOCK);
        // All is well again before the volume is closed.
        clock.go_on();
        drop(volume);
        let disks = reopened(&images_of(&disks));
        let check = scrubbed(&disks);
        assert!(check.findings.iter().all(|f| f.kind == FindingKind::Torn), "step {step}: {check:?}");
        assert_eq!(read(&opened(&disks), 1).expect("it is no rot"), block_of(1, 1), "step {step}");
        if written.is_ok() {
            assert!(step > 10 && check.sound, "step {step}: {check:?}");
            return;
        }
    }
    panic!("it never came to its end");
}

#[test]
fn a_block_that_cannot_be_read_while_torn_ones_are_resealed_is_not_rotten_afterwards() {
    let (images, _) = torn();
    let disks = reopened(&images);
    let (member, range) = place(2, 1);
    let volume = opened(&disks);
    *disks[member].unreadable.lock().unwrap() = range.start as u64..range.end as u64;
    volume.write_at(&[1], 5 * BLOCK).expect("it writes");
    *disks[member].unreadable.lock().unwrap() = 0..0;
    assert_eq!(read(&volume, 1).expect("it can be read again"), block_of(1, 1));
    drop(volume);
    let check = scrubbed(&disks);
    assert!(check.sound, "{check:?}");
}

#[test]
fn a_region_stays_marked_after_a_write_that_failed_in_it() {
    let (before, blocks) = filled(1);
    let clock = Arc::new(Clock::default());
    let disks = disks(&images_of(&before), &clock);
    let volume = opened(&disks);
    volume.write_at(&block_of(0, 1), 0).expect("it writes");
    // The data of the next block are on the medium, and its write has failed.
    clock.stop_after(0);
    volume.write_at(&block_of(1, 1), BLOCK).expect_err("it fails");
    clock.go_on();
    // Other regions need its place among the few that may be marked.
    for block in (blocks / 2)..blocks {
        volume.write_at(&block_of(block, 1), block * BLOCK).expect("it writes");
    }
    volume.sync().expect("it syncs");
    clock.stop_after(0);
    disks[0].sync_data().expect_err("the power is gone");
    drop(volume);
    let volume = opened(&reopened(&images_of(&disks)));
    assert_eq!(read(&volume, 1).expect("it is torn, and not rotten"), block_of(1, 1));
}

/// A region that was not being written is not forgiven because of a crash elsewhere.
#[test]
fn after_a_crash_rot_is_told_from_what_was_torn() {
    let (images, blocks) = torn();
    let disks = reopened(&images);
    let far = blocks - 1;
    change(&disks, far, |bytes| bytes[0] ^= 1);
    let check = scrubbed(&disks);
    let kinds: Vec<_> = check.findings.iter().map(|f| (f.volume_offset, f.kind)).collect();
    let expected = [(Some(BLOCK), FindingKind::Torn), (Some(far * BLOCK), FindingKind::Rotten)];
    assert_eq!(kinds, expected);
    let volume = opened(&disks);
    assert_eq!(read(&volume, 1).expect("torn blocks are read as they are"), block_of(1, 1));
    read(&volume, far).expect_err("it is rotten");
    assert!(volume.notices().is_empty());
    volume.write_at(&[1], 5 * BLOCK).expect("it writes");
    let notices = volume.notices();
    let (member, range) = place(2, 1);
    assert!(notices[1].contains(&format!("{} of disk{member}", range.start)), "{notices:?}");
    assert_eq!(notices.len(), 2, "{notices:?}");
    read(&volume, far).expect_err("it is rotten still");
    drop(volume);
    let check = scrubbed(&disks);
    assert_eq!((check.finding_count, check.resealed_blocks), (1, 1), "{check:?}");
}

#[test]
fn a_volume_without_checksums_cannot_be_verified() {
    let disks = disks(&vec![vec![0; SIZE]; 2], &Arc::default());
    volume::create_on(&devices(&disks), &NewVolume::default()).expect("it is made");
    let refused = check_data_on(devices(&disks), |_| true);
    assert!(matches!(refused, Err(VolumeError::NoSums { .. })));
    let odd = NewVolume { chunk: 1536, checksums: Some(LAYOUT), ..NewVolume::default() };
    let refused = volume::create_on(&devices(&disks), &odd);
    assert!(matches!(refused, Err(VolumeError::SumsChunk { chunk: 1536 })));
}

#[test]
fn blocks_that_cannot_be_read_are_not_counted_as_read_and_their_cause_is_in_the_detail() {
    let (disks, _) = filled(2);
    let sound = scrubbed(&disks);
    assert!(sound.sound && sound.verified_bytes == sound.read_bytes, "{sound:?}");
    // As a check opens its members.
    disks.iter().for_each(|disk| disk.writable.store(false, Ordering::Relaxed));
    let (member, range) = place(2, 7);
    *disks[member].unreadable.lock().unwrap() = range.start as u64..range.end as u64;
    let mut passed = Vec::new();
    let check = check_data_on(devices(&disks), |progress| {
        passed.push((progress.passed_bytes, progress.total_bytes));
        true
    })
    .expect("it opens");
    assert_eq!(check.finding_count, 1, "{check:?}");
    let finding = &check.findings[0];
    assert_eq!((finding.kind, finding.volume_offset), (FindingKind::Unreadable, Some(7 * BLOCK)));
    assert!(finding.detail.ends_with(": it cannot be read for the time being"), "{finding:?}");
    assert_eq!(check.read_bytes, sound.read_bytes - BLOCK);
    assert_eq!(check.verified_bytes, sound.verified_bytes - BLOCK);
    assert!(passed.iter().all(|(passed, total)| passed <= total), "{passed:?}");
}

#[test]
fn a_damaged_label_makes_a_check_of_sound_data_unsound() {
    let (disks, _) = filled(2);
    disks.iter().for_each(|disk| disk.writable.store(false, Ordering::Relaxed));
    // The copy at the beginning.
    disks[1].flip(4096 + 100, 1);
    let check = scrubbed(&disks);
    assert_eq!((check.finding_count, check.problems.len()), (0, 1), "{check:?}");
    assert!(!check.sound && check.problems[0].contains("head of disk1"), "{check:?}");
    assert_eq!(check.volume.name, "sums");
}

#[test]
fn a_scrub_that_is_stopped_says_so() {
    let (disks, _) = filled(2);
    let check = check_data_on(devices(&disks), |_| false).expect("it opens");
    assert!(check.interrupted && !check.sound);
    assert_eq!(check.read_bytes, 0, "asked before any region is read");
}
