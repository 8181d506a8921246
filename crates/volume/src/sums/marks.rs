//! The map: which regions have checksums, and which may be written at present.
//!
//! A region is marked, durably, before its first block is written, and stays so until all of its checksums are durable
//! and nothing writes to it. So after a crash only blocks of marked regions can be at odds with their checksums for a
//! reason other than a fault of a drive. To keep these few, no more than a limit of regions stay marked: where another is
//! to be marked, those that were not written for longest are settled (their checksums written and synced) and unmarked,
//! a quarter of the limit at a time, in the same write of the map.
//!
//! That a region has checksums is written to both slots of its block of the map, so that one drive which loses a write does
//! not have it pass for one that has none. Other changes are written to one: where a mark is lost, what a crash has torn
//! counts as rotten; where its removal is lost, the labels show that the volume was closed, and no mark is believed.
//!
//! Where the region before is marked already, writes are likely to go on in their direction, and a few regions are
//! marked at once.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::area::{HAS_SUMS, MARKED, MapBlock};
use super::cache::Cache;
use super::store::Store;

/// Regions that are marked ahead of sequential writes.
const AHEAD: u64 = 3;

/// See the module's argument.
#[derive(Debug)]
pub struct Marks {
    /// [`HAS_SUMS`] and [`MARKED`] of each region, as the map on the members has them or is about to.
    entries: Box<[AtomicU8]>,
    /// Whether marks of a session that was not closed are left.
    is_unclean: AtomicBool,
    /// Blocks that were given a new checksum after a crash, in the life of the volume.
    resealed: AtomicU64,
    most_active: usize,
    state: Mutex<State>,
    changed: Condvar,
    /// Slots and blocks of the map that were not as they were written when the volume was opened.
    pub damaged: DamagedMap,
}

/// What of the map is damaged.
#[derive(Debug, Default, Clone)]
pub struct DamagedMap {
    /// Blocks of which one slot is damaged.
    pub slots: Vec<u64>,
    /// Blocks of which both are.
    pub blocks: Vec<u64>,
}

#[derive(Debug, Default)]
struct State {
    generations: Vec<u64>,
    active: BTreeMap<u64, Active>,
    /// One thread at a time changes the map.
    is_changing: bool,
    /// Counts uses of regions.
    uses: u64,
    failure: Option<(io::ErrorKind, String)>,
}

/// A region that is marked by this session.
#[derive(Debug, Default)]
struct Active {
    writers: u32,
    last_use: u64,
}

/// Regions that stay marked until this is dropped.
#[derive(Debug)]
pub struct Writing<'a> {
    marks: &'a Marks,
    regions: Range<u64>,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = self.marks.state();
        for region in self.regions.clone() {
            if let Some(active) = state.active.get_mut(&region) {
                active.writers -= 1;
            }
        }
    }
}

impl Marks {
    /// Reads the map.
    ///
    /// A block of which both slots are damaged says nothing: its regions then count as ones that have checksums and are
    /// not marked, so that whatever does not fit is an error.
    pub fn read(store: &Store, most_active: usize) -> io::Result<Self> {
        let area = &store.area;
        let (mut entries, mut generations) = (Vec::new(), Vec::new());
        let (mut resealed, mut damaged) = (0, DamagedMap::default());
        for index in 0..area.map_blocks() {
            let (block, are_whole) = store.read_map(index)?;
            if !are_whole {
                damaged.slots.push(index);
            }
            let block = block.unwrap_or_else(|| {
                damaged.blocks.push(index);
                let regions = area.regions_of(index);
                let entries = vec![HAS_SUMS; (regions.end - regions.start) as usize];
                MapBlock { generation: 0, resealed: 0, entries }
            });
            entries.extend(block.entries);
            generations.push(block.generation);
            resealed += block.resealed;
        }
        // The drive that was to take the marks away may have lost that write; the labels of all members know.
        if store.was_closed()? {
            entries.iter_mut().for_each(|entry| *entry &= !MARKED);
        }
        let is_unclean = entries.iter().any(|entry| entry & MARKED != 0);
        Ok(Self {
            entries: entries.into_iter().map(AtomicU8::new).collect(),
            is_unclean: AtomicBool::new(is_unclean),
            resealed: AtomicU64::new(resealed),
            most_active: most_active.max(1),
            state: Mutex::new(State { generations, ..State::default() }),
            changed: Condvar::new(),
            damaged,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entry(&self, region: u64) -> u8 {
        self.entries[region as usize].load(Ordering::Acquire)
    }

    /// Whether the blocks of sums of a region were ever written.
    #[inline]
    pub fn has_sums(&self, region: u64) -> bool {
        self.entry(region) & HAS_SUMS != 0
    }

    /// Whether a region was being written by a session that was not closed.
    pub fn is_suspect(&self, region: u64) -> bool {
        self.is_unclean.load(Ordering::Acquire) && self.entry(region) & MARKED != 0
    }

    /// The regions that were being written by a session that was not closed.
    pub fn suspects(&self) -> Vec<u64> {
        (0..self.entries.len() as u64).filter(|region| self.is_suspect(*region)).collect()
    }

    /// Blocks that were given a new checksum after a crash, in the life of the volume.
    pub fn resealed(&self) -> u64 {
        self.resealed.load(Ordering::Relaxed)
    }

    /// Regions that have checksums.
    pub fn regions_with_sums(&self) -> Vec<u64> {
        (0..self.entries.len() as u64).filter(|region| self.has_sums(*region)).collect()
    }

    /// Marks regions, unless they are, and keeps them marked until what this returns is dropped.
    ///
    /// # Errors
    /// What kept the map from being written, now or the first time.
    pub fn enter(&self, store: &Store, cache: &Cache, regions: Range<u64>) -> io::Result<Writing<'_>> {
        let mut state = self.state();
        loop {
            if let Some((kind, why)) = &state.failure {
                return Err(io::Error::new(*kind, why.clone()));
            }
            if regions.clone().all(|region| state.active.contains_key(&region)) {
                state.uses += 1;
                let last_use = state.uses;
                for region in regions.clone() {
                    let active = state.active.entry(region).or_default();
                    (active.writers, active.last_use) = (active.writers + 1, last_use);
                }
                return Ok(Writing { marks: self, regions });
            }
            if state.is_changing {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let wanted = self.wanted(&state, regions.clone());
            let settled = self.to_settle(&mut state, &regions, wanted.len());
            state.is_changing = true;
            drop(state);
            let marked = self.mark(store, cache, &wanted, &settled);
            state = self.state();
            state.is_changing = false;
            match marked {
                Ok(()) => state.active.extend(wanted.into_iter().map(|region| (region, Active::default()))),
                Err(error) => state.failure = Some((error.kind(), base::with_causes(&error))),
            }
            self.changed.notify_all();
        }
    }

    /// The regions that are to be marked for those that are to be written.
    fn wanted(&self, state: &State, regions: Range<u64>) -> BTreeSet<u64> {
        let goes_on = regions.start.checked_sub(1).is_some_and(|before| state.active.contains_key(&before));
        let end = if goes_on { regions.end + AHEAD } else { regions.end };
        let range = regions.start..end.min(self.entries.len() as u64);
        range.filter(|region| !state.active.contains_key(region)).collect()
    }

    /// Takes those off the active regions that make room for `more`: the ones that were not written for longest, and are
    /// not to be written now.
    fn to_settle(&self, state: &mut State, regions: &Range<u64>, more: usize) -> BTreeSet<u64> {
        if state.active.len() + more <= self.most_active {
            return BTreeSet::new();
        }
        let is_idle = |region: &u64, active: &Active| active.writers == 0 && !regions.contains(region);
        let idle = state.active.iter().filter(|(region, active)| is_idle(region, active));
        let mut idle: Vec<(u64, u64)> = idle.map(|(region, active)| (active.last_use, *region)).collect();
        idle.sort_unstable();
        let count = more.max(self.most_active / 4);
        let settled: BTreeSet<u64> = idle.into_iter().take(count).map(|(_, region)| region).collect();
        state.active.retain(|region, _| !settled.contains(region));
        settled
    }

    /// Makes the map say that `wanted` have checksums and may be written, and `settled` may not.
    fn mark(
        &self,
        store: &Store,
        cache: &Cache,
        wanted: &BTreeSet<u64>,
        settled: &BTreeSet<u64>,
    ) -> io::Result<()> {
        if !settled.is_empty() {
            cache.write_back(store, |(_, group)| settled.contains(&store.area.region_of(group)))?;
        }
        let fresh: Vec<u64> = wanted.iter().copied().filter(|region| !self.has_sums(*region)).collect();
        fresh.iter().try_for_each(|region| store.write_fresh_sums(*region))?;
        // Fresh ones need no sync: they are in a region that is marked until all is synced.
        if !settled.is_empty() {
            store.sync_all()?;
        }
        // What a reader fetched of a region while it had none.
        if !fresh.is_empty() {
            cache.forget(|(_, group)| fresh.contains(&store.area.region_of(group)));
        }
        let write = || {
            self.write(store, wanted.iter().chain(settled).copied(), |region, _| {
                if wanted.contains(&region) { HAS_SUMS | MARKED } else { HAS_SUMS }
            })
        };
        // To both slots where regions get their first checksums: were the one write lost, they would not be verified.
        if !fresh.is_empty() {
            write()?;
        }
        write()
    }

    fn set(&self, region: u64, entry: u8) {
        self.entries[region as usize].store(entry, Ordering::Release);
    }

    /// Writes the blocks of the map that `changed` lie in, with `entry` for each region of those, durably; then the
    /// entries are those of this session too. Called by whoever changes the map.
    fn write(
        &self,
        store: &Store,
        changed: impl Iterator<Item = u64>,
        entry: impl Fn(u64, u8) -> u8,
    ) -> io::Result<()> {
        let changed: BTreeSet<u64> = changed.collect();
        for index in 0..store.area.map_blocks() {
            let regions = store.area.regions_of(index);
            if changed.range(regions.clone()).next().is_none() {
                continue;
            }
            let value = |region: u64| {
                let now = self.entry(region);
                if changed.contains(&region) { entry(region, now) } else { now }
            };
            let entries: Vec<u8> = regions.clone().map(value).collect();
            let generation = self.state().generations[index as usize] + 1;
            let resealed = if index == 0 { self.resealed() } else { 0 };
            let block = MapBlock { generation, resealed, entries };
            store.write_map(index, &block)?;
            self.state().generations[index as usize] = generation;
            regions.zip(block.entries).for_each(|(region, entry)| self.set(region, entry));
        }
        Ok(())
    }

    /// Waits until nothing else changes the map, and has `change` do so.
    fn exclusively(&self, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state();
        while state.is_changing {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some((kind, why)) = &state.failure {
            return Err(io::Error::new(*kind, why.clone()));
        }
        state.is_changing = true;
        drop(state);
        let changed = change();
        let mut state = self.state();
        state.is_changing = false;
        if let Err(error) = &changed {
            state.failure = Some((error.kind(), base::with_causes(&error)));
        }
        self.changed.notify_all();
        changed
    }

    /// Takes the checksums off regions that nothing writes to, durably: they are as if they had never been written.
    pub fn reset(&self, store: &Store, cache: &Cache, regions: Range<u64>) -> io::Result<()> {
        self.exclusively(|| {
            self.state().active.retain(|region, _| !regions.contains(region));
            self.write(store, regions.clone(), |_, _| 0)?;
            cache.forget(|(_, group)| regions.contains(&store.area.region_of(group)));
            Ok(())
        })
    }

    /// Unmarks what a session left marked that was not closed, of which `resealed` blocks were given new checksums that
    /// are durable by now.
    pub fn forgive(&self, store: &Store, resealed: u64) -> io::Result<()> {
        self.exclusively(|| {
            self.resealed.fetch_add(resealed, Ordering::Relaxed);
            // Block 0 has the count.
            let suspects = self.suspects().into_iter().chain((resealed > 0).then_some(0));
            self.write(store, suspects, |_, entry| entry & !MARKED)?;
            self.is_unclean.store(false, Ordering::Release);
            Ok(())
        })
    }

    /// Unmarks all that this session marked, whose checksums are durable by now.
    pub fn close(&self, store: &Store) -> io::Result<()> {
        self.exclusively(|| {
            let active = std::mem::take(&mut self.state().active);
            self.write(store, active.into_keys(), |_, entry| entry & !MARKED)
        })
    }

    /// Takes over what the map says now, for a reader beside a writer.
    pub fn refresh(&self, store: &Store) -> io::Result<()> {
        let now = Self::read(store, 1)?;
        for (entry, now) in self.entries.iter().zip(&now.entries) {
            entry.store(now.load(Ordering::Relaxed), Ordering::Release);
        }
        self.is_unclean.store(now.is_unclean.load(Ordering::Relaxed), Ordering::Release);
        Ok(())
    }
}
