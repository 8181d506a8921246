//! Asking for a ring: everything that helps one thread with its own ring, and less of it on older kernels.
//!
//! `EINVAL` is how a kernel says that it does not know a flag, so each attempt leaves out what is newest
//! in the one before. Any other error is final.

use std::io;
use std::os::fd::OwnedFd;

use crate::engine::{EngineConfig, EngineError, Misfit};
use crate::kernel::Kernel;
use crate::uring_abi::{self as abi, Params};

/// The error of a ring that the kernel does not set up. A CPU that there is not has the same number as a flag that it does not
/// know, so `unbound` tries it without one.
pub(super) fn not_set_up(
    engine: &'static str,
    config: &EngineConfig,
    source: io::Error,
    unbound: impl FnOnce(&EngineConfig) -> bool,
) -> EngineError {
    match config.sqthread_poll_cpu {
        Some(cpu)
            if source.raw_os_error() == Some(libc::EINVAL)
                && unbound(&EngineConfig { sqthread_poll_cpu: None, ..config.clone() }) =>
        {
            Misfit::NoSuchCpu { cpu }.of(engine)
        }
        _ => EngineError { engine, operation: "io_uring_setup", source },
    }
}

/// Sets a ring of `entries` entries, a power of two, up with the most that this kernel takes. `form` are the flags without
/// which its entries would be of another size.
pub(crate) fn setup<K: Kernel>(
    kernel: &K,
    config: &EngineConfig,
    entries: u32,
    form: u32,
) -> io::Result<(OwnedFd, Params)> {
    let mut base = abi::SETUP_CQSIZE | form;
    if config.hipri {
        base |= abi::SETUP_IOPOLL;
    }
    let single = abi::SETUP_SUBMIT_ALL | abi::SETUP_SINGLE_ISSUER;
    let attempts = if config.sqthread_poll {
        let bound = if config.sqthread_poll_cpu.is_some() { abi::SETUP_SQ_AFF } else { 0 };
        let base = base | abi::SETUP_SQPOLL | bound;
        vec![base | single | abi::SETUP_NO_SQARRAY, base | single, base]
    } else {
        let deferred = base | single | abi::SETUP_COOP_TASKRUN | abi::SETUP_DEFER_TASKRUN;
        vec![
            deferred | abi::SETUP_NO_SQARRAY,
            deferred,
            base | abi::SETUP_SUBMIT_ALL | abi::SETUP_COOP_TASKRUN,
            base,
        ]
    };
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for flags in attempts {
        let mut params = Params {
            flags,
            // Room for every request twice, so that the completion queue cannot overflow.
            cq_entries: entries * 2,
            sq_thread_cpu: config.sqthread_poll_cpu.unwrap_or(0),
            sq_thread_idle: 1000,
            ..Params::default()
        };
        match kernel.io_uring_setup(entries, &mut params) {
            Ok(fd) => return Ok((fd, params)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// The words for the flags in force.
pub(super) fn setup_features(flags: u32) -> Vec<String> {
    [
        (abi::SETUP_DEFER_TASKRUN, "defer_taskrun"),
        (abi::SETUP_SINGLE_ISSUER, "single_issuer"),
        (abi::SETUP_COOP_TASKRUN, "coop_taskrun"),
        (abi::SETUP_NO_SQARRAY, "no_sqarray"),
        (abi::SETUP_IOPOLL, "iopoll"),
        (abi::SETUP_SQPOLL, "sqpoll"),
    ]
    .into_iter()
    .filter(|(flag, _)| flags & flag != 0)
    .map(|(_, word)| word.to_owned())
    .collect()
}
