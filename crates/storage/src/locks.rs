//! Who holds a lock, for those who are kept waiting by it.

use std::io;
use std::os::fd::BorrowedFd;

use crate::device::sys;

/// The process that locks a file, with its name, as far as proc(5) tells.
///
/// # Errors
/// The file cannot be looked at.
pub fn holder(file: BorrowedFd<'_>) -> io::Result<Option<String>> {
    let found = sys::status(file)?;
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else { return Ok(None) };
    let device = format!("{:02x}:{:02x}", found.device.0, found.device.1);
    let others = holders(&locks, &device, found.inode).find(|pid| *pid != std::process::id());
    // Its own lock on another descriptor comes last.
    let Some(pid) = others.or_else(|| holders(&locks, &device, found.inode).next()) else { return Ok(None) };
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name: String = name.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    Ok(Some(if name.is_empty() { format!("process {pid}") } else { format!("process {pid} ({name})") }))
}

/// The processes in the lines of `/proc/locks` that hold a lock on a file. The device is that of the file system's super
/// block, which some file systems (btrfs) do not show to stat(2): there the inode's number has to do.
fn holders(locks: &str, device: &str, inode: u64) -> impl Iterator<Item = u32> {
    let held = locks.lines().filter_map(move |line| {
        // `1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF`; one that waits has an arrow behind its number.
        let mut words = line.split_ascii_whitespace().skip(1);
        if words.next()? == "->" {
            return None;
        }
        let pid = words.nth(2)?.parse().ok()?;
        let (on, number) = words.next()?.rsplit_once(':')?;
        (number.parse() == Ok(inode)).then_some((pid, on))
    });
    let held: Vec<(u32, &str)> = held.collect();
    let exact = held.iter().any(|(_, on)| *on == device);
    let held: Vec<u32> = held.iter().filter(|(_, on)| !exact || *on == device).map(|(pid, _)| *pid).collect();
    held.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_read_from_proc() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fd:01:5678 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 fd:01:99 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 fd:01:99 0 EOF\n\
                     3: FLOCK  ADVISORY  READ  14 00:2a:99 0 EOF\n";
        let of = |device, inode| holders(locks, device, inode).collect::<Vec<_>>();
        assert_eq!(of("fd:01", 5678), [11]);
        assert_eq!(of("fd:01", 99), [12]);
        assert_eq!(of("00:33", 99), [12, 14], "btrfs shows another device");
        assert_eq!(of("fd:01", 1), [0; 0]);
    }
}
