//! Many files at once, in bounded memory.
//!
//! A lane is a thread that takes one file after another and does all that it needs; there are enough of them that
//! many requests are under way while each waits for its answer. What a file's bytes take in memory until the store
//! has them comes out of one [`Budget`]. The first error stops the other lanes at their next step.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use stage::error::StageError;
use stage::pace::Stop;

/// A waiting thread checks for a stop this often.
pub(super) const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Bytes in memory.
#[derive(Debug)]
pub(super) struct Budget {
    most: u64,
    used: Mutex<u64>,
    freed: Condvar,
}

/// Some of them; they go back when it goes.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { most, used: Mutex::new(0), freed: Condvar::new() })
    }

    /// Waits for `bytes`. A request for more than there are in all is granted once all others are given back.
    pub fn take(self: &Arc<Self>, bytes: u64, halt: &Halt<'_>) -> Result<Share, StageError> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        while *used != 0 && *used + bytes > self.most {
            halt.check()?;
            used =
                self.freed.wait_timeout(used, STOP_CHECK_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        *used += bytes;
        Ok(Share { budget: Arc::clone(self), bytes })
    }

    /// [`Self::take`] for a caller that has some already: it gives that back rather than wait.
    pub fn try_take(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if *used != 0 && *used + bytes > self.most {
            return None;
        }
        *used += bytes;
        Some(Share { budget: Arc::clone(self), bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        *self.budget.used.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.budget.freed.notify_all();
    }
}

/// Should a lane go on?
#[derive(Debug, Clone)]
pub(super) struct Halt<'a> {
    pub stop: &'a Stop,
    failed: Arc<AtomicBool>,
}

impl<'a> Halt<'a> {
    pub fn new(stop: &'a Stop) -> Self {
        Self { stop, failed: Arc::default() }
    }

    /// An error if a stop was requested, or another lane has failed.
    pub fn check(&self) -> Result<(), StageError> {
        self.stop.check()?;
        if self.failed.load(Ordering::Relaxed) {
            return Err(StageError::Stopped { what: "another file failed".to_owned() });
        }
        Ok(())
    }
}

/// Has `lanes` threads do `work` on all `items`, each of which is taken once, in their order.
pub(super) fn for_each<T: Sync>(
    items: &[T],
    lanes: usize,
    stop: &Stop,
    work: &(dyn Fn(&T, &Halt<'_>) -> Result<(), StageError> + Sync),
) -> Result<(), StageError> {
    let halt = Halt::new(stop);
    let next = AtomicUsize::new(0);
    let first: Mutex<Option<StageError>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..lanes.min(items.len()) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Err(error) = halt.check().and_then(|()| work(item, &halt)) else { continue };
                    // What comes after the first is what the first brought about.
                    first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    halt.failed.store(true, Ordering::Relaxed);
                    break;
                }
            });
        }
    });
    first.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_taken_once_whatever_the_number_of_lanes() {
        for lanes in [1, 3, 16] {
            let items: Vec<usize> = (0..100).collect();
            let seen = Mutex::new(Vec::new());
            for_each(&items, lanes, &Stop::new(), &|item, _| {
                seen.lock().unwrap().push(*item);
                Ok(())
            })
            .unwrap();
            let mut seen = seen.into_inner().unwrap();
            seen.sort_unstable();
            assert_eq!(seen, items);
        }
    }

    #[test]
    fn the_first_error_is_the_one_that_is_told() {
        let items: Vec<usize> = (0..1000).collect();
        let error = for_each(&items, 4, &Stop::new(), &|item, halt| {
            if *item == 17 {
                return Err(StageError::Refused { what: "seventeen".to_owned(), hint: None });
            }
            // The others wait until they are told to stop, or have nothing to do with it.
            if *item < 17 {
                return Ok(());
            }
            loop {
                halt.check()?;
                std::thread::yield_now();
            }
        });
        assert_eq!(error.unwrap_err().to_string(), "seventeen");
    }

    #[test]
    fn a_budget_is_never_overdrawn_but_by_one_that_is_larger_than_all_of_it() {
        let budget = Budget::new(100);
        let stop = Stop::new();
        let halt = Halt::new(&stop);
        let large = budget.take(1000, &halt).unwrap();
        stop.ask();
        assert!(budget.take(1, &halt).is_err(), "nothing is left");
        drop(large);
        let stop = Stop::new();
        let most = Mutex::new(0);
        let items = [30_u64; 64];
        for_each(&items, 8, &stop, &|bytes, halt| {
            let _share = budget.take(*bytes, halt)?;
            let used = *budget.used.lock().unwrap();
            let mut most = most.lock().unwrap();
            *most = used.max(*most);
            Ok(())
        })
        .unwrap();
        assert!(*most.lock().unwrap() <= 100);
        assert_eq!(*budget.used.lock().unwrap(), 0);
    }
}
