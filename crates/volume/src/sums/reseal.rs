//! New checksums for what a crash has torn.

use std::io;

use storage::device::AlignedBuffer;

use super::STEP;
use super::area::{LOST_SUM, NO_SUM};
use super::cache::{Cache, Key};
use super::marks::Marks;
use super::store::Store;
use crate::sums_layout::BLOCK;

/// Blocks of which the places are kept; the others are only counted.
const MOST_PLACES: usize = 1000;

/// What was given new checksums by a session, because it did not fit them after a crash.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resealed {
    /// How many blocks of 4 KiB.
    pub blocks: u64,
    /// The first of them: the member's spec, the offset on it, and the offset in the volume, bytes.
    pub places: Vec<(String, u64, u64)>,
}

impl Resealed {
    /// For people: how many blocks of `volume`, and the first of them.
    pub fn lines(&self, volume: &str) -> Vec<String> {
        if self.blocks == 0 {
            return Vec::new();
        }
        let were = if self.blocks == 1 { "block was" } else { "blocks were" };
        let count = format!(
            "{} {were} being written when {volume} was not closed, and given new checksums",
            self.blocks
        );
        let place = |(member, at, in_volume): &(String, u64, u64)| {
            format!("torn: 4096 bytes at offset {at} of {member}, at {in_volume} of the volume")
        };
        std::iter::once(count).chain(self.places.iter().map(place)).collect()
    }
}

/// How far the work is.
#[derive(Debug, Default)]
pub(super) enum Stage {
    #[default]
    Ahead,
    Done(Resealed),
    /// It is not tried again.
    Failed(io::ErrorKind, String),
}

impl Stage {
    /// Does the work, unless it was done.
    ///
    /// # Errors
    /// What kept it from that, now or the first time.
    pub fn run(&mut self, store: &Store, cache: &Cache, marks: &Marks) -> io::Result<()> {
        if matches!(self, Self::Ahead) {
            *self = match reseal(store, cache, marks) {
                Ok(resealed) => Self::Done(resealed),
                Err(error) => Self::Failed(error.kind(), base::with_causes(&error)),
            };
        }
        match self {
            Self::Failed(kind, why) => Err(io::Error::new(*kind, why.clone())),
            _ => Ok(()),
        }
    }

    pub fn resealed(&self) -> Resealed {
        match self {
            Self::Done(resealed) => resealed.clone(),
            _ => Resealed::default(),
        }
    }
}

/// Reads all of the marked regions, all members at the same time, writes checksums where they do not fit, and then
/// takes the marks away. A crash on the way leaves the marks, and it is done again.
fn reseal(store: &Store, cache: &Cache, marks: &Marks) -> io::Result<Resealed> {
    let suspects = marks.suspects();
    if suspects.is_empty() {
        return Ok(Resealed::default());
    }
    let of_member = |member: u32| {
        let mut resealed = Resealed::default();
        for group in suspects.iter().flat_map(|region| store.area.groups_of(*region)) {
            reseal_group(store, cache, (member, group), &mut resealed)?;
        }
        Ok(resealed)
    };
    let results: Vec<io::Result<Resealed>> = std::thread::scope(|scope| {
        let of_member = &of_member;
        let start = |member| scope.spawn(move || of_member(member));
        let threads: Vec<_> = (1..store.area.width()).map(start).collect();
        let first = of_member(0);
        let others = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())));
        std::iter::once(first).chain(others).collect()
    });
    let mut all = Resealed::default();
    for resealed in results {
        let resealed = resealed?;
        all.blocks += resealed.blocks;
        all.places.extend(resealed.places);
    }
    all.places.sort_unstable_by_key(|(_, _, volume_offset)| *volume_offset);
    all.places.truncate(MOST_PLACES);
    store.sync_all()?;
    marks.forgive(store, all.blocks)?;
    Ok(all)
}

fn panicked() -> io::Error {
    io::Error::other("a thread that verified data after a crash panicked")
}

fn reseal_group(store: &Store, cache: &Cache, key: Key, resealed: &mut Resealed) -> io::Result<()> {
    let (member, group) = key;
    let stored = store.read_sums_if_whole(key)?;
    let is_torn = stored.is_none();
    let count = store.area.group_blocks() as usize;
    let mut sums = stored.unwrap_or_else(|| vec![NO_SUM; count].into());
    let mut is_changed = is_torn;
    let blocks = store.area.blocks_of(group);
    for_each_block(store, member, blocks.clone(), |block, bytes| {
        let sum = &mut sums[(block - blocks.start) as usize];
        let Ok(bytes) = bytes else {
            // It may be readable later, as it was written or as it was before: not verified until it is written again.
            (*sum, is_changed) = (NO_SUM, true);
            return;
        };
        let found = store.area.sum(member, block, bytes);
        if is_torn || (*sum != found && !matches!(*sum, NO_SUM | LOST_SUM)) {
            (*sum, is_changed) = (found, true);
            resealed.blocks += 1;
            if resealed.places.len() < MOST_PLACES {
                let volume_offset = store.area.volume_offset(member, block * BLOCK);
                let member_offset = store.area.data_start + block * BLOCK;
                let spec = store.member(member).spec().to_owned();
                resealed.places.push((spec, member_offset, volume_offset));
            }
        }
    });
    if is_changed {
        store.write_sums(key, &[sums])?;
        cache.forget(|other| other == key);
    }
    Ok(())
}

/// Hands each block of a range of a member's data to `visit`, or why it cannot be read.
pub(super) fn for_each_block(
    store: &Store,
    member: u32,
    blocks: std::ops::Range<u64>,
    mut visit: impl FnMut(u64, Result<&[u8], io::Error>),
) {
    let size = BLOCK as usize;
    let mut buffer = AlignedBuffer::zeroed(STEP as usize, size);
    let mut first = blocks.start;
    while first < blocks.end {
        let count = (blocks.end - first).min(STEP / BLOCK);
        let bytes = &mut buffer[..(count * BLOCK) as usize];
        let at = |block: u64| store.area.data_start + block * BLOCK;
        if store.read(member, bytes, at(first)).is_ok() {
            (first..).zip(bytes.chunks_exact(size)).for_each(|(block, bytes)| visit(block, Ok(bytes)));
        } else {
            for block in first..first + count {
                let read = store.read(member, &mut bytes[..size], at(block));
                visit(block, read.map(|()| &bytes[..size]));
            }
        }
        first += count;
    }
}
