//! What this process may use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::device::sys;
use crate::sysfs::Sysfs;

/// Limits that bear on I/O. No limit is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// Memory that may be locked, bytes (RLIMIT_MEMLOCK, soft): registered buffers count against it.
    pub memlock_bytes: Option<u64>,
    /// Whether this process is above that limit (CAP_IPC_LOCK).
    pub memlock_is_lifted: bool,
    /// Files that may be open (RLIMIT_NOFILE, soft).
    pub open_files: Option<u64>,
    /// Files that may be open (RLIMIT_NOFILE, hard).
    pub open_files_hard: Option<u64>,
    /// Requests of native asynchronous I/O that all processes may prepare together (fs.aio-max-nr).
    pub aio_max_nr: Option<u64>,
    /// How many are prepared now (fs.aio-nr).
    pub aio_nr: Option<u64>,
    /// kernel.io_uring_disabled: 0 for all, 1 for members of a group, 2 for nobody; none before Linux 6.6.
    pub io_uring_disabled: Option<u32>,
    /// Part of memory that may be dirty before writers wait, percent (vm.dirty_ratio; 0 where bytes are set).
    pub dirty_ratio: Option<u32>,
    /// Part of memory that may be dirty before writing back begins, percent.
    pub dirty_background_ratio: Option<u32>,
}

/// Whether an engine may be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EngineAvailability {
    /// `io_uring`, `libaio`, `psync`.
    pub name: String,
    /// Whether the kernel let this process set it up just now.
    pub available: bool,
    /// Why not.
    pub reason: Option<String>,
}

/// capability.h: CAP_IPC_LOCK.
const CAP_IPC_LOCK: u64 = 1 << 14;

impl Limits {
    /// Reads this process's limits, and the system's below `system`.
    #[must_use]
    pub fn read(system: &Sysfs) -> Self {
        let number = |path: &str| system.text(path)?.parse().ok();
        let small = |path: &str| system.text(path)?.parse().ok();
        let some_limit = |value: u64| (value != libc::RLIM64_INFINITY).then_some(value);
        let memlock = sys::limit(libc::RLIMIT_MEMLOCK).ok();
        let files = sys::limit(libc::RLIMIT_NOFILE).ok();
        let status = system.raw("/proc/self/status").unwrap_or_default();
        Self {
            memlock_bytes: memlock.and_then(|(soft, _)| some_limit(soft)),
            memlock_is_lifted: effective_capabilities(&status) & CAP_IPC_LOCK != 0,
            open_files: files.and_then(|(soft, _)| some_limit(soft)),
            open_files_hard: files.and_then(|(_, hard)| some_limit(hard)),
            aio_max_nr: number("/proc/sys/fs/aio-max-nr"),
            aio_nr: number("/proc/sys/fs/aio-nr"),
            io_uring_disabled: small("/proc/sys/kernel/io_uring_disabled"),
            dirty_ratio: small("/proc/sys/vm/dirty_ratio"),
            dirty_background_ratio: small("/proc/sys/vm/dirty_background_ratio"),
        }
    }
}

/// `CapEff` of proc_pid_status(5).
fn effective_capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|value| u64::from_str_radix(value.trim(), 16).ok()).unwrap_or(0)
}

/// Tries each engine.
pub(super) fn engines() -> Vec<EngineAvailability> {
    crate::engine::availability()
        .into_iter()
        .map(|(name, result)| EngineAvailability {
            name: name.to_owned(),
            available: result.is_ok(),
            reason: result.err(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::tests::Tree;

    #[test]
    fn limits_of_the_system_are_read_from_its_files() {
        let tree = Tree::new();
        tree.file("/proc/sys/fs/aio-max-nr", "65536\n");
        tree.file("/proc/sys/kernel/io_uring_disabled", "2\n");
        tree.file("/proc/sys/vm/dirty_ratio", "garbage\n");
        tree.file("/proc/self/status", "Name:\tx\nCapEff:\t0000000000004000\n");
        let limits = Limits::read(&tree.sysfs());
        assert_eq!((limits.aio_max_nr, limits.aio_nr), (Some(65_536), None));
        assert_eq!((limits.io_uring_disabled, limits.dirty_ratio), (Some(2), None));
        assert!(limits.memlock_is_lifted);
        assert!(limits.open_files_hard >= limits.open_files);
        assert_eq!(effective_capabilities("CapEff: zz"), 0);
    }
}
