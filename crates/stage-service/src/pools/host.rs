//! What pools ask of the machine, behind a trait, so that tests can fill file systems and restart the machine.

use std::fmt;
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::lease::Uptime;

pub(super) trait Host: Send + Sync + fmt::Debug {
    /// Bytes that may still be written to the file system, by others than root.
    fn free(&self, directory: BorrowedFd<'_>) -> std::io::Result<u64>;

    /// Bytes that a project quota of this directory counts; none where it has no such quota.
    fn quota_used(&self, directory: &Path) -> std::io::Result<Option<u64>>;

    /// How long the machine is up, which no setting of its clock changes; none if it does not say.
    fn uptime(&self) -> Option<Uptime>;
}

/// This machine.
#[derive(Debug)]
pub(super) struct Machine;

impl Host for Machine {
    fn free(&self, directory: BorrowedFd<'_>) -> std::io::Result<u64> {
        let found = rustix::fs::fstatvfs(directory)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn quota_used(&self, directory: &Path) -> std::io::Result<Option<u64>> {
        // XFS and ext4 tell the quota's size as the file system's, of a directory whose project is inherited and limited.
        // At the mount point, whose project is another, they tell the file system's own.
        let device = std::fs::metadata(directory)?.dev();
        let is_here = |above: &&Path| std::fs::metadata(above).is_ok_and(|facts| facts.dev() == device);
        let real = std::fs::canonicalize(directory)?;
        let top = real.ancestors().take_while(is_here).last().unwrap_or(&real);
        let (whole, part) = (rustix::fs::statvfs(top)?, rustix::fs::statvfs(&real)?);
        let used = part.f_blocks.saturating_sub(part.f_bfree).saturating_mul(part.f_frsize);
        Ok((part.f_blocks < whole.f_blocks).then_some(used))
    }

    fn uptime(&self) -> Option<Uptime> {
        // proc_uptime(5): seconds, sleep included, with a fraction.
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        Some(Uptime { boot: boot()?, seconds: uptime.split('.').next()?.parse().ok()? })
    }
}

/// Which boot this is.
fn boot() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}
