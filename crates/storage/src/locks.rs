//! File locks, and the process that holds one.
//!
//! flock(2) belongs to the open file description: duplicated descriptors and child processes share it, and it lasts until the
//! last of them is closed. `/proc/locks` names the process that took it, which may have ended; a child that inherited the
//! descriptor then holds the lock, and is found by its `fdinfo`.
//!
//! So closing a descriptor does not end its lock at once: a program that another thread is just starting has the descriptor
//! too, from fork(2) until execve(2) closes it. [`Held`] gives the lock back by word.

use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FlockOperation, flock};

use crate::device::sys;

/// How much of `/proc/locks` the kernel hands out at once (`seq_read_iter`): a page.
const AT_ONCE: usize = 4096;
/// How often a longer list is read that does not have a lock.
const READINGS: u32 = 10;

/// What came of an attempt to take a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// The caller's open file description has the lock.
    Taken,
    /// Another open file description has it.
    Held {
        /// As by [`holder`].
        by: Option<String>,
    },
    /// The file system has no locks.
    Unsupported,
}

/// A locked file. Its lock ends when this is dropped, whoever else has the descriptor; a fork(2) of the process that took it
/// only closes its own.
#[derive(Debug)]
pub struct Held<F: AsFd> {
    file: F,
    process: u32,
}

impl<F: AsFd> Held<F> {
    /// Of a file that this process has locked. Where the file system has no locks, there is none to give back.
    pub fn new(file: F) -> Self {
        Self { file, process: std::process::id() }
    }
}

impl<F: AsFd> Deref for Held<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.file
    }
}

impl<F: AsFd> Drop for Held<F> {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let _ = flock(self.file.as_fd(), FlockOperation::Unlock);
        }
    }
}

/// Takes an exclusive flock(2) if it is free. It lasts until all duplicates of the descriptor are closed.
///
/// # Errors
/// EBADF on NFS, where the descriptor is not open for writing.
pub fn try_exclusive(file: BorrowedFd<'_>) -> io::Result<Attempt> {
    // Closing the duplicate leaves the lock with the original.
    let duplicate = File::from(file.try_clone_to_owned()?);
    match duplicate.try_lock() {
        Ok(()) => Ok(Attempt::Taken),
        Err(TryLockError::WouldBlock) => Ok(Attempt::Held { by: holder(file).ok().flatten() }),
        Err(TryLockError::Error(error)) => match error.raw_os_error() {
            Some(libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL) => Ok(Attempt::Unsupported),
            _ => Err(error),
        },
    }
}

/// The process that locks a file, with its name, as far as proc(5) tells. This process is named only if no other is.
pub fn holder(file: BorrowedFd<'_>) -> io::Result<Option<String>> {
    let found = sys::status(file)?;
    let device = format!("{:02x}:{:02x}", found.device.0, found.device.1);
    let Some(mut holders) = listed(&device, found.inode) else { return Ok(None) };
    // Stable: this process's own lock on another descriptor comes last.
    holders.sort_by_key(|pid| *pid == std::process::id());
    let Some(first) = holders.first().copied() else { return Ok(None) };
    let alive = holders.into_iter().find_map(|pid| Some((pid, command(pid)?)));
    let found = alive.or_else(|| inherited(&device, found.inode));
    Ok(Some(
        found.map_or_else(|| format!("process {first}"), |(pid, name)| format!("process {pid} ({name})")),
    ))
}

/// The processes that hold a lock on a file; None where the list cannot be read.
///
/// The kernel finds its place by counting lines: where a lock is given up between two pieces, the lines behind it move up, and
/// one that was to begin the next piece is in neither. So a list of several pieces is read again if it does not have the lock.
fn listed(device: &str, inode: u64) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    for _ in 0..READINGS {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        found = holders(&locks, device, inode);
        if !found.is_empty() || locks.len() <= AT_ONCE {
            break;
        }
    }
    Some(found)
}

/// The name of a process; None if it has ended.
fn command(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect())
}

/// A process with a descriptor that holds a lock on the file, whichever process took it. Only descriptors that this user
/// may read are searched.
fn inherited(device: &str, inode: u64) -> Option<(u32, String)> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |pid: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
        let texts = descriptors.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        texts.into_iter().any(|text| {
            let locks: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("lock:")).collect();
            !holders(&locks.join("\n"), device, inode).is_empty()
        })
    };
    pids.filter(holds).find_map(|pid| Some((pid, command(pid)?)))
}

/// The processes in the lines of `/proc/locks` that hold a lock on a file. The device is that of the file system's super
/// block, which some file systems (btrfs) do not show to stat(2): there the inode's number has to do.
fn holders(locks: &str, device: &str, inode: u64) -> Vec<u32> {
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
    held.iter().filter(|(_, on)| !exact || *on == device).map(|(pid, _)| *pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_when_it_is_dropped_though_a_child_has_the_descriptor() {
        use std::process::{Command, Stdio};
        let file = tempfile::NamedTempFile::new().unwrap();
        let held = Held::new(file.reopen().unwrap());
        assert_eq!(try_exclusive(held.as_fd()).unwrap(), Attempt::Taken);
        // As standard input the child keeps what execve(2) would close.
        let duplicate = held.as_fd().try_clone_to_owned().unwrap();
        let mut child =
            Command::new("sleep").arg("60").stdin(Stdio::from(duplicate)).spawn().expect("start sleep");
        let other = file.reopen().unwrap();
        let while_held = try_exclusive(other.as_fd()).unwrap();
        drop(held);
        let afterwards = try_exclusive(other.as_fd()).unwrap();
        child.kill().and_then(|()| child.wait()).unwrap();
        assert!(matches!(while_held, Attempt::Held { .. }), "{while_held:?}");
        assert_eq!(afterwards, Attempt::Taken);
    }

    #[test]
    fn a_lock_that_outlives_its_process_is_named_after_the_child_that_inherited_it() {
        use std::io::Read;
        use std::process::{Command, Stdio};
        let file = tempfile::tempfile().unwrap();
        assert_eq!(try_exclusive(file.as_fd()).unwrap(), Attempt::Taken);
        assert_eq!(try_exclusive(file.as_fd()).unwrap(), Attempt::Taken, "by the same open file description");
        drop(file);

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        fs::write(&path, "").unwrap();
        // flock(1) takes the lock on descriptor 9 and ends; the sleep has inherited it.
        let script = r#"exec 9<"$0"; flock -x 9; sleep 60 >/dev/null 2>&1 & echo $!"#;
        let shell = Command::new("sh").args(["-c", script]).arg(&path).stdout(Stdio::piped()).spawn();
        let mut shell = shell.unwrap();
        let mut child = String::new();
        shell.stdout.take().unwrap().read_to_string(&mut child).unwrap();
        shell.wait().unwrap();
        let ours = File::open(&path).unwrap();
        let attempt = try_exclusive(ours.as_fd()).unwrap();
        let ended = Command::new("kill").arg(child.trim()).status().unwrap();
        assert!(ended.success());
        let by = Some(format!("process {} (sleep)", child.trim()));
        assert_eq!(attempt, Attempt::Held { by });
    }

    #[test]
    fn the_holder_is_found_while_others_take_and_give_back_locks() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let files = |numbers: std::ops::Range<u32>| -> Vec<File> {
            numbers.map(|number| File::create(folder.path().join(number.to_string())).unwrap()).collect()
        };
        // More lines than the kernel hands out at once.
        let (held, others) = (files(0..150), files(150..190));
        held.iter().for_each(|file| file.lock().unwrap());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    others.iter().for_each(|file| file.lock().unwrap());
                    others.iter().for_each(|file| file.unlock().unwrap());
                }
            });
            let unnamed =
                held.iter().cycle().take(1500).filter(|file| holder(file.as_fd()).unwrap().is_none());
            let unnamed = unnamed.count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(unnamed, 0, "of 1500");
        });
    }

    #[test]
    fn the_holder_of_a_lock_is_read_from_proc() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fd:01:5678 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 fd:01:99 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 fd:01:99 0 EOF\n\
                     3: FLOCK  ADVISORY  READ  14 00:2a:99 0 EOF\n";
        let of = |device, inode| holders(locks, device, inode);
        assert_eq!(of("fd:01", 5678), [11]);
        assert_eq!(of("fd:01", 99), [12]);
        assert_eq!(of("00:33", 99), [12, 14], "btrfs shows another device");
        assert_eq!(of("fd:01", 1), [0; 0]);
    }
}
