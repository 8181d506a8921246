//! File locks, and the process that holds one.
//!
//! flock(2) belongs to the open file description: duplicated descriptors and child processes share it, and it lasts until the
//! last of them is closed. `/proc/locks` names the process that took it, which may have ended; a child that inherited the
//! descriptor then holds the lock, and is found by its `fdinfo`.
//!
//! So closing a descriptor does not end its lock at once: a program that another thread is just starting has the descriptor
//! too, from fork(2) until execve(2) closes it. [`Held`] gives the lock back by word.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FlockOperation, flock};

use crate::device::sys;
use crate::fs_type;

/// How much of `/proc/locks` the kernel hands out at once (`seq_read_iter`), if as much is asked for: a page.
const PIECE_BYTES: usize = 4096;
/// How often a list of several pieces is read that does not have a lock.
const READS_MAX: u32 = 10;
/// File systems whose files have another device for stat(2) than in `/proc/locks`.
const WITH_OTHER_DEVICES: [u32; 3] = [fs_type::BTRFS, fs_type::OVERLAY, fs_type::BCACHEFS];

/// The kinds of locks that do not know of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// flock(2).
    Flock,
    /// fcntl(2) with F_SETLK, as SQLite takes.
    Posix,
}

impl LockKind {
    /// As `/proc/locks` has it.
    fn word(self) -> &'static str {
        match self {
            Self::Flock => "FLOCK",
            Self::Posix => "POSIX",
        }
    }
}

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
        Err(TryLockError::WouldBlock) => Ok(Attempt::Held { by: holder(file, LockKind::Flock) }),
        Err(TryLockError::Error(error)) => match error.raw_os_error() {
            Some(libc::ENOLCK | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL) => Ok(Attempt::Unsupported),
            _ => Err(error),
        },
    }
}

/// The process that has a lock of this kind on a file, with its name, as far as proc(5) tells. This process is named only if no
/// other is. None if no process is listed.
#[must_use]
pub fn holder(file: BorrowedFd<'_>, kind: LockKind) -> Option<String> {
    let locked = Locked::of(file, kind).ok()?;
    let mut holders = locked.listed();
    // Stable: this process's own lock on another descriptor comes last.
    holders.sort_by_key(|pid| *pid == std::process::id());
    let first = holders.first().copied()?;
    let alive = holders.into_iter().find_map(|pid| Some((pid, command(pid)?)));
    let found = alive.or_else(|| locked.inherited());
    Some(found.map_or_else(|| format!("process {first}"), |(pid, name)| format!("process {pid} ({name})")))
}

/// The kernel's list of locks, read in pieces as large as it hands out. A String that is empty is read into in pieces of 32 bytes
/// at first.
fn list() -> io::Result<String> {
    let mut locks = String::with_capacity(16 * PIECE_BYTES);
    File::open("/proc/locks")?.read_to_string(&mut locks)?;
    Ok(locks)
}

/// The name of a process; None if it has ended.
fn command(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect())
}

/// A file as lists of locks have it.
#[derive(Debug)]
struct Locked {
    kind: LockKind,
    /// None where stat(2) shows another: there the inode's number has to do.
    device: Option<String>,
    inode: u64,
}

impl Locked {
    fn of(file: BorrowedFd<'_>, kind: LockKind) -> io::Result<Self> {
        let found = sys::status(file)?;
        let is_other = WITH_OTHER_DEVICES.contains(&fs_type::of(file)?);
        let device = (!is_other).then(|| format!("{:02x}:{:02x}", found.device.0, found.device.1));
        Ok(Self { kind, device, inode: found.inode })
    }

    /// The processes that hold a lock on the file; none where the list cannot be read.
    ///
    /// The kernel finds its place by counting lines: where a lock is given up between two pieces, the lines behind it move up,
    /// and one that was to begin the next piece is in neither. So a list of several pieces is read again if it does not have the
    /// lock.
    fn listed(&self) -> Vec<u32> {
        let mut found = Vec::new();
        for _ in 0..READS_MAX {
            let locks = list().unwrap_or_default();
            found = self.holders(&locks);
            if !found.is_empty() || locks.len() <= PIECE_BYTES {
                break;
            }
        }
        found
    }

    /// A process with a descriptor that holds a lock on the file, whichever process took it. Only descriptors that this user
    /// may read are searched.
    fn inherited(&self) -> Option<(u32, String)> {
        let processes = fs::read_dir("/proc").ok()?.flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let holds = |pid: &u32| {
            let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
            let texts = descriptors.filter_map(|entry| fs::read_to_string(entry.path()).ok());
            texts.into_iter().any(|text| {
                let locks: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("lock:")).collect();
                !self.holders(&locks.join("\n")).is_empty()
            })
        };
        pids.filter(holds).find_map(|pid| Some((pid, command(pid)?)))
    }

    /// The processes in the lines of `/proc/locks` that hold a lock on the file.
    fn holders(&self, locks: &str) -> Vec<u32> {
        let held = locks.lines().filter_map(|line| {
            // `1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF`; one that waits has an arrow behind its number.
            let mut words = line.split_ascii_whitespace().skip(1);
            if words.next()? != self.kind.word() {
                return None;
            }
            let pid = words.nth(2)?.parse().ok()?;
            let (device, inode) = words.next()?.rsplit_once(':')?;
            let is_there = self.device.as_deref().is_none_or(|ours| ours == device);
            (is_there && inode.parse() == Ok(self.inode)).then_some(pid)
        });
        held.collect()
    }
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
        // More lines than the kernel hands out at once, and fewer.
        for (held, others) in [(150, 40), (15, 8)] {
            assert_eq!(unnamed(held, others), 0, "of 1500, with {held} locks held");
        }
    }

    /// How often of 1500 times the holder of one of `held` locks is not found, while `others` come and go.
    fn unnamed(held: u32, others: u32) -> usize {
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::sync::mpsc;
        let folder = tempfile::tempdir().unwrap();
        let files: Vec<File> = (0..held + others)
            .map(|number| File::create(folder.path().join(number.to_string())).unwrap())
            .collect();
        let (held, others) = files.split_at(held as usize);
        let is_over = &AtomicBool::new(false);
        let (ready, is_ready) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // Each CPU has a list, and a lock that goes from another one leaves no gap.
                let own = rustix::thread::sched_getaffinity(None).unwrap();
                let mut one = rustix::thread::CpuSet::new();
                one.set((0..).find(|cpu| own.is_set(*cpu)).unwrap());
                rustix::thread::sched_setaffinity(None, &one).unwrap();
                held.iter().for_each(|file| file.lock().unwrap());
                ready.send(()).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    others.iter().for_each(|file| file.lock().unwrap());
                    others.iter().for_each(|file| file.unlock().unwrap());
                }
            });
            is_ready.recv().unwrap();
            let of = |file: &&File| holder(file.as_fd(), LockKind::Flock);
            let unnamed = held.iter().cycle().take(1500).filter(|file| of(file).is_none()).count();
            is_over.store(true, Ordering::Relaxed);
            unnamed
        })
    }

    #[test]
    fn the_holder_of_a_lock_is_read_from_proc() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fd:01:5678 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 fd:01:99 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 fd:01:99 0 EOF\n\
                     3: FLOCK  ADVISORY  READ  14 00:2a:99 0 EOF\n";
        let of = |kind, device: Option<&str>, inode| {
            Locked { kind, device: device.map(str::to_owned), inode }.holders(locks)
        };
        assert_eq!(of(LockKind::Posix, Some("fd:01"), 5678), [11]);
        assert_eq!(
            of(LockKind::Flock, Some("fd:01"), 5678),
            [0; 0],
            "locks of another kind do not keep it out"
        );
        assert_eq!(of(LockKind::Flock, Some("fd:01"), 99), [12]);
        assert_eq!(of(LockKind::Flock, Some("00:33"), 99), [0; 0], "another file system's inode");
        assert_eq!(of(LockKind::Flock, None, 99), [12, 14], "btrfs shows another device");
        assert_eq!(of(LockKind::Flock, Some("fd:01"), 1), [0; 0]);
    }
}
