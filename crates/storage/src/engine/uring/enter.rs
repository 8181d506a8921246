//! io_uring_enter(2): hands entries over, waits for completions, goes on where the kernel takes no entry for a time, and drains
//! the ring before what it uses is given back.

use std::io;
use std::time::{Duration, Instant};

use super::IoUring;
use super::form::Form;
use crate::engine::{Engine, EngineError, LONGEST_WAIT};
use crate::kernel::Kernel;
use crate::uring_abi::{self as abi, GeteventsArg, KernelTimespec};

/// How long a submission that the kernel keeps refusing with EAGAIN or EBUSY is tried.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);
/// How long one call goes on trying a submission that the kernel refuses.
const RETRY_WAIT: Duration = Duration::from_millis(100);

impl<K: Kernel, F: Form> IoUring<K, F> {
    /// One io_uring_enter(2). `Ok(false)` where it was cut short by a signal, a time-out or a lack
    /// that passes.
    #[inline]
    pub(super) fn enter(
        &mut self,
        to_submit: u32,
        min_complete: u32,
        timeout: Option<Duration>,
    ) -> Result<bool, EngineError> {
        let mut flags = self.enter_flags | abi::ENTER_GETEVENTS;
        if self.sqthread_poll && self.ring.sq_flags() & abi::SQ_NEED_WAKEUP != 0 {
            flags |= abi::ENTER_SQ_WAKEUP;
        }
        let time;
        let arg;
        let (arg_ptr, arg_bytes): (*const libc::c_void, usize) = match timeout {
            Some(limit) if self.can_time_out => {
                let limit = limit.min(LONGEST_WAIT);
                time = KernelTimespec {
                    seconds: limit.as_secs() as i64,
                    nanoseconds: i64::from(limit.subsec_nanos()),
                };
                arg = GeteventsArg {
                    sigmask: 0,
                    sigmask_bytes: 0,
                    min_wait_us: 0,
                    timeout: (&raw const time) as u64,
                };
                flags |= abi::ENTER_EXT_ARG;
                ((&raw const arg).cast(), size_of::<GeteventsArg>())
            }
            _ => (std::ptr::null(), 0),
        };
        // SAFETY: every entry up to the tail names an arena slot that is marked in flight and so stays
        // untouched until reaped, as does its metadata (`protection`); time and arg live until the call returns.
        let result = unsafe {
            self.kernel.io_uring_enter(self.enter_fd, to_submit, min_complete, flags, arg_ptr, arg_bytes)
        };
        match result {
            Ok(consumed) => {
                if !self.sqthread_poll {
                    self.submitted = self.submitted.wrapping_add(consumed);
                }
                Ok(consumed == to_submit || self.sqthread_poll)
            }
            Err(error) => match error.raw_os_error() {
                Some(errno @ (libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY)) => {
                    self.slots.retries += u64::from(to_submit > 0 && errno != libc::ETIME);
                    Ok(false)
                }
                _ => Err(EngineError { engine: F::NAME, operation: "io_uring_enter", source: error }),
            },
        }
    }

    /// Goes on after a submission that was cut short. Returns to the caller as soon as everything is
    /// handed over, something is there to reap, or a little time has passed, so that the caller can look
    /// for a wish to stop; what is left goes with the next call.
    #[cold]
    pub(super) fn submit_rest(&mut self, timeout: Option<Duration>) -> Result<(), EngineError> {
        let limit = timeout.unwrap_or(RETRY_WAIT).min(RETRY_WAIT);
        let started = Instant::now();
        loop {
            let rest = self.tail.wrapping_sub(self.submitted);
            if rest == 0 || self.ready() > 0 {
                return Ok(());
            }
            // The patience is with one entry, over as many calls as it takes.
            let since = match self.stalled {
                Some((since, at)) if at == self.submitted => since,
                _ => self.stalled.insert((Instant::now(), self.submitted)).0,
            };
            if since.elapsed() > BUSY_PATIENCE {
                let source = io::Error::from_raw_os_error(libc::EBUSY);
                return Err(EngineError { engine: F::NAME, operation: "io_uring_enter", source });
            }
            let left = limit.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            if self.under_way() > 0 {
                // A completion frees what the kernel lacked. It is asked for alone: where entries cannot be
                // taken, the call ends before it gets to completions.
                self.enter(0, u32::from(self.can_time_out), Some(left))?;
                if self.ready() > 0 {
                    return Ok(());
                }
            }
            if self.under_way() == 0 || !self.can_time_out {
                std::thread::sleep(Duration::from_micros(100));
            }
            self.enter(rest, 0, None)?;
        }
    }

    /// Submits, and looks for completions until enough are there or the time is up: for rings whose
    /// waits know no time-out.
    #[cold]
    pub(super) fn submit_and_look(
        &mut self,
        to_submit: u32,
        wanted: u32,
        limit: Duration,
    ) -> Result<(), EngineError> {
        let started = Instant::now();
        if !self.enter(to_submit, 0, None)? {
            return self.submit_rest(Some(limit));
        }
        while self.ready() < wanted {
            let left = limit.saturating_sub(started.elapsed());
            if left.is_zero() {
                break;
            }
            if !self.hipri {
                std::thread::sleep(left.min(Duration::from_micros(50)));
            }
            self.enter(0, 0, None)?;
        }
        Ok(())
    }

    /// Waits until the kernel has no request of ours. False where the ring no longer answers.
    pub(super) fn drain(&mut self) -> bool {
        let mut refused: Option<Instant> = None;
        // A caller who panicked inside `reap` left this undone, and waiting would not wait.
        self.ring.publish_head(self.head);
        while self.under_way() > 0 {
            match self.enter(0, 1, None) {
                Ok(true) => refused = None,
                Ok(false) if refused.get_or_insert_with(Instant::now).elapsed() < BUSY_PATIENCE => {}
                _ => return false,
            }
            self.reap(|_, _| {});
        }
        true
    }
}
