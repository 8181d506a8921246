//! The system's allocator, which counts what each thread holds and held at most.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes held, and the most since it was last asked to begin. Less than nothing where a thread frees what is another's.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// See the module's words.
pub struct Counting;

fn count(bytes: isize) {
    // A thread that ends frees its last allocations when this is gone.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        held.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: every call is the system allocator's with the same arguments, and what it returns is returned. The counters
// are plain numbers of the thread that need no allocation. What is not overridden is made of these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// The most bytes that this thread held at a time during `work`, beyond what it held before.
pub fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.with(|held| {
        let (now, _) = held.get();
        held.set((now, now));
        now
    });
    let result = work();
    let (_, most) = HELD.with(Cell::get);
    (result, (most - before).max(0) as usize)
}
