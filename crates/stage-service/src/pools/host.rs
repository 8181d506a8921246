//! What pools ask of the machine, behind a trait, so that random tests may fill file systems and kill holders.

use std::fmt;
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::lease::Uptime;
use super::ledger::Process;

pub(super) trait Host: Send + Sync + fmt::Debug {
    /// Bytes that may still be written to the file system, by others than root.
    fn free(&self, directory: BorrowedFd<'_>) -> std::io::Result<u64>;

    /// Bytes that a project quota of this directory counts; none where it has no such quota.
    fn quota_used(&self, directory: &Path) -> std::io::Result<Option<u64>>;

    /// Is this process still there?
    fn lives(&self, process: &Process) -> bool;

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

    fn lives(&self, process: &Process) -> bool {
        // A process in another PID namespace, or hidden by hidepid, is not seen; the rest of what identifies it then
        // differs or is missing as well, and its reservation goes. What it has written counts all the same.
        Process::of(process.pid).is_some_and(|found| found == *process)
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

impl Process {
    /// A process by its number, if it is there and no zombie.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command, in parentheses, may hold anything; what follows the last one is fields 3 and on.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?;
        let started = fields.nth(18)?.parse().ok()?;
        let boot = boot()?;
        (!matches!(state, "Z" | "X")).then_some(Self { pid, started, boot })
    }

    /// This one.
    #[must_use]
    pub fn own() -> Option<Self> {
        Self::of(std::process::id())
    }
}
