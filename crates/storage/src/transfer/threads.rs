//! Requests by plain system calls, on threads of our own: where there is no io_uring.
//!
//! As many threads as may have requests at once, up to a limit, and never fewer than two, so that a sync does not stand in
//! the way of what is read meanwhile.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::{io, mem};

use super::Attempt;
use crate::engine::Op;
use crate::kernel::Kernel;

/// More threads than large requests have any use for.
const MOST: u32 = 16;
/// Enough for a few frames and a system call.
const STACK: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    attempts: VecDeque<Attempt>,
    finished: Vec<(u32, i64)>,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No thread can panic while it holds the lock: it only moves plain values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Threads {
    /// Starts threads for up to `requests` at once.
    pub fn start<K: Kernel + Send + Sync>(kernel: &K, requests: u32, idle: bool) -> io::Result<Self> {
        let mut threads = Self { shared: Arc::default(), workers: Vec::new() };
        for n in 0..requests.clamp(2, MOST) {
            let (shared, kernel) = (Arc::clone(&threads.shared), kernel.clone());
            let life = move || {
                if idle {
                    // A kernel that does not know of it serves us as it serves others.
                    let _ = crate::usage::idle_io_priority();
                }
                work(&shared, &kernel);
            };
            let builder = std::thread::Builder::new().name(format!("transfer-{n}")).stack_size(STACK);
            threads.workers.push(builder.spawn(life)?);
        }
        Ok(threads)
    }

    /// Passes an attempt on to whichever thread is free first.
    pub fn push(&mut self, attempt: Attempt) {
        self.shared.lock().attempts.push_back(attempt);
        self.shared.work.notify_one();
    }

    /// Fetches what is over, waiting for something if asked to.
    pub fn exchange(&mut self, wait: bool, results: &mut Vec<(u32, i64)>) {
        let mut state = self.shared.lock();
        while wait && state.finished.is_empty() {
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        results.append(&mut state.finished);
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.work.notify_all();
        for worker in mem::take(&mut self.workers) {
            // One that panicked has nothing more to say.
            let _ = worker.join();
        }
    }
}

/// A thread's life. What is still queued when it is told to stop is not made.
fn work<K: Kernel>(shared: &Shared, kernel: &K) {
    let mut state = shared.lock();
    loop {
        if state.stop {
            return;
        }
        let Some(attempt) = state.attempts.pop_front() else {
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(state);
        let result = kernel.completed(make(kernel, attempt));
        state = shared.lock();
        state.finished.push((attempt.id, result));
        shared.done.notify_one();
    }
}

/// Makes the call; bytes moved, or `-errno`.
fn make<K: Kernel>(kernel: &K, attempt: Attempt) -> i64 {
    let Attempt { op, fd, address, offset, length, .. } = attempt;
    let fd: RawFd = fd;
    let result = match op {
        // SAFETY: the slot is in flight, so length bytes from address on are this attempt's alone, and mapped.
        Op::Read => unsafe { kernel.pread(fd, address, length as usize, offset) },
        // SAFETY: as above.
        Op::Write => unsafe { kernel.pwrite(fd, address, length as usize, offset) },
        Op::SyncData | Op::Trim => kernel.fdatasync(fd).map(|()| 0),
        Op::Sync => kernel.fsync(fd).map(|()| 0),
    };
    match result {
        Ok(bytes) => bytes as i64,
        Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
    }
}
