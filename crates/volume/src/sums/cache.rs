//! Checksums in memory: a bounded number of blocks of sums, of which changed ones are written at a sync, at the end, and
//! where another needs the room.
//!
//! A block that is being read or written is in flight, and only one thread has it there: what another wants of a block
//! that is being read waits, and what is changed while a block is written makes it dirty anew. So a block on the medium
//! is never replaced by an older state, and never read while it is.
//!
//! Room is made by the clock algorithm (Corbató 1968): a block that was used since the hand passed it stays for another
//! round.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::store::Store;

/// A group of a member: its position, and the group.
pub type Key = (u32, u64);

/// Blocks of sums that are written at once where they lie beside each other.
const MOST_IN_A_ROW: usize = 64;

/// See the module's argument.
#[derive(Debug)]
pub struct Cache {
    most: usize,
    state: Mutex<State>,
    landed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    blocks: HashMap<Key, Cached>,
    /// The keys in the order in which the hand passes them.
    clock: VecDeque<Key>,
}

#[derive(Debug)]
struct Cached {
    /// None while they are being read.
    sums: Option<Box<[u32]>>,
    is_dirty: bool,
    is_being_written: bool,
    was_used: bool,
}

impl Cache {
    /// Room for `most` blocks, one at least.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), state: Mutex::default(), landed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.landed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands `read` the checksums of a group.
    pub fn read<R>(&self, store: &Store, key: Key, read: impl FnOnce(&[u32]) -> R) -> io::Result<R> {
        self.with(store, key, |cached| read(cached.sums.as_deref().unwrap_or_default()))
    }

    /// Has `change` change the checksums of a group, which are written some time later.
    ///
    /// # Errors
    /// The member's that holds them; nothing was changed then.
    pub fn change(&self, store: &Store, key: Key, change: impl FnOnce(&mut [u32])) -> io::Result<()> {
        self.with(store, key, |cached| {
            change(cached.sums.as_deref_mut().unwrap_or_default());
            cached.is_dirty = true;
        })
    }

    fn with<R>(&self, store: &Store, key: Key, work: impl FnOnce(&mut Cached) -> R) -> io::Result<R> {
        let mut state = self.state();
        loop {
            match state.blocks.get_mut(&key) {
                Some(cached) if cached.sums.is_some() => {
                    cached.was_used = true;
                    return Ok(work(cached));
                }
                Some(_) => state = self.wait(state),
                None => {
                    let empty =
                        Cached { sums: None, is_dirty: false, is_being_written: false, was_used: true };
                    state.blocks.insert(key, empty);
                    state.clock.push_back(key);
                    drop(state);
                    self.make_room(store);
                    let read = store.read_sums(key);
                    state = self.state();
                    let result = match read {
                        Ok(sums) => {
                            let cached = state.blocks.get_mut(&key).expect("it is being read, so it stays");
                            cached.sums = Some(sums);
                            Ok(work(cached))
                        }
                        Err(error) => {
                            state.forget(key);
                            Err(error)
                        }
                    };
                    self.landed.notify_all();
                    return result;
                }
            }
        }
    }

    /// Removes blocks until there are no more than there is room for, or none can be: one that cannot be written
    /// stays, and the next sync reports why.
    fn make_room(&self, store: &Store) {
        let mut state = self.state();
        let mut left = 2 * state.clock.len();
        while state.blocks.len() > self.most && left > 0 {
            left -= 1;
            let Some(key) = state.clock.pop_front() else { return };
            state.clock.push_back(key);
            let Some(cached) = state.blocks.get_mut(&key) else { continue };
            if cached.sums.is_none() || cached.is_being_written || std::mem::take(&mut cached.was_used) {
                continue;
            }
            if cached.is_dirty {
                let (returned, written) = self.write_run(state, store, &[key]);
                state = returned;
                if written.is_err() {
                    return;
                }
            }
            let is_idle = |c: &Cached| !c.is_dirty && !c.is_being_written && !c.was_used;
            if state.blocks.get(&key).is_some_and(is_idle) {
                state.forget(key);
            }
        }
    }

    /// Writes the changed blocks among those that `of_interest` names, and waits for those that are being written.
    ///
    /// # Errors
    /// The first member's; the blocks that were not written stay changed.
    pub fn write_back(&self, store: &Store, of_interest: impl Fn(Key) -> bool) -> io::Result<()> {
        let mut state = self.state();
        let unsettled = state
            .blocks
            .iter()
            .filter(|(key, cached)| of_interest(**key) && (cached.is_dirty || cached.is_being_written));
        // What is changed from now on is left to the next call.
        let mut left: BTreeSet<Key> = unsettled.map(|(key, _)| *key).collect();
        while !left.is_empty() {
            let is_being_written = |key: &Key| state.blocks.get(key).is_some_and(|c| c.is_being_written);
            let Some(first) = left.iter().copied().find(|key| !is_being_written(key)) else {
                state = self.wait(state);
                continue;
            };
            let is_due = |key: &Key| {
                left.contains(key) && state.blocks.get(key).is_some_and(|c| c.is_dirty && !c.is_being_written)
            };
            let beside = (0..MOST_IN_A_ROW as u64).map(|number| (first.0, first.1 + number));
            let row: Vec<Key> = beside.take_while(is_due).collect();
            // The first may have been written, or forgotten, meanwhile.
            left.remove(&first);
            row.iter().for_each(|key| _ = left.remove(key));
            if !row.is_empty() {
                let (returned, written) = self.write_run(state, store, &row);
                state = returned;
                written?;
            }
        }
        Ok(())
    }

    /// Writes changed blocks of one member that lie beside each other, none of which is being written, all of which are there.
    fn write_run<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        store: &Store,
        keys: &[Key],
    ) -> (MutexGuard<'a, State>, io::Result<()>) {
        let mut all = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(cached) = state.blocks.get_mut(key) else { continue };
            (cached.is_dirty, cached.is_being_written) = (false, true);
            all.push(cached.sums.clone().unwrap_or_default());
        }
        drop(state);
        let written = store.write_sums(keys[0], &all);
        let mut state = self.state();
        for key in keys {
            let Some(cached) = state.blocks.get_mut(key) else { continue };
            cached.is_being_written = false;
            cached.is_dirty |= written.is_err();
        }
        self.landed.notify_all();
        (state, written)
    }

    /// Drops what is known of some groups, changes included.
    pub fn forget(&self, of_interest: impl Fn(Key) -> bool) {
        let mut state = self.state();
        let in_flight = |state: &State| {
            let moving = |c: &Cached| c.sums.is_none() || c.is_being_written;
            state.blocks.iter().any(|(key, cached)| of_interest(*key) && moving(cached))
        };
        while in_flight(&state) {
            state = self.wait(state);
        }
        state.blocks.retain(|key, _| !of_interest(*key));
        state.clock.retain(|key| !of_interest(*key));
    }
}

impl State {
    fn forget(&mut self, key: Key) {
        self.blocks.remove(&key);
        // Most often the hand has just passed it.
        if let Some(at) = self.clock.iter().rposition(|other| *other == key) {
            self.clock.remove(at);
        }
    }
}
