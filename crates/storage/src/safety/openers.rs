//! Processes that have a block device open for writing.
//!
//! `O_EXCL` keeps out only those who use it, too; a virtual machine or a database on a raw device often does not. Their
//! descriptors show in `/proc/PID/fd` as far as this user may look.

use std::fs;
use std::path::Path;

use super::Obstacle;
use crate::device::sys;
use crate::sysfs::{BlockDevice, DeviceNumber, Sysfs, entries, read_text};

/// For each family of devices the processes, other than this one, that have one of it open for writing.
pub(super) fn writers(system: &Sysfs, families: &[Vec<BlockDevice>]) -> Vec<Vec<Obstacle>> {
    let own = std::process::id();
    let processes = entries(&system.at_root("/proc")).into_iter().filter_map(|n| n.parse().ok());
    let mut found = vec![Vec::new(); families.len()];
    for pid in processes.filter(|pid: &u32| !(system.is_host() && *pid == own)) {
        let opened = opened_for_writing(system, pid);
        for (family, found) in families.iter().zip(&mut found) {
            // One that has several of a family open is one obstacle.
            let Some(device) = family.iter().find(|device| opened.contains(&device.number)) else { continue };
            let command = system.text(format!("/proc/{pid}/comm")).unwrap_or_else(|| "?".into());
            found.push(Obstacle::Open { device: device.dev_path(), pid, command });
        }
    }
    found
}

/// The block devices that the process has open for writing.
fn opened_for_writing(system: &Sysfs, pid: u32) -> Vec<DeviceNumber> {
    let process = system.at_root(format!("/proc/{pid}"));
    let opened = entries(&process.join("fd")).into_iter().filter_map(|fd| {
        let link = process.join("fd").join(&fd);
        // Sockets, pipes and memory have no path; reading the link is cheaper than looking behind it.
        let target = fs::read_link(&link).ok()?;
        if !target.is_absolute() || !is_for_writing(&process.join("fdinfo").join(&fd)) {
            return None;
        }
        let status = sys::status_of_path(&link).ok()?;
        (status.file_type() == libc::S_IFBLK).then(|| DeviceNumber::from(status.special))
    });
    opened.collect()
}

/// Whether a descriptor can write: `flags` in fdinfo is octal, its last two bits the access mode
/// (proc_pid_fdinfo(5)).
fn is_for_writing(fdinfo: &Path) -> bool {
    let text = read_text(fdinfo).unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|value| i64::from_str_radix(value.trim(), 8).ok());
    flags.is_some_and(|flags| {
        let mode = flags & i64::from(libc::O_ACCMODE);
        mode == i64::from(libc::O_WRONLY) || mode == i64::from(libc::O_RDWR)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_access_mode_is_read_from_the_octal_flags() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("3");
        for (text, writes) in [
            ("pos:\t0\nflags:\t0100000\nmnt_id:\t1\n", false),
            ("pos:\t0\nflags:\t0100001\n", true),
            ("pos:\t0\nflags:\t0140002\n", true),
            ("flags:\t9x\n", false),
            ("", false),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(is_for_writing(&path), writes, "{text:?}");
        }
        assert!(!is_for_writing(&directory.path().join("4")));
    }
}
