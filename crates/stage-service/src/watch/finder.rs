//! Finds semaphores that are whole, each once.
//!
//! Two sources, neither of which is enough: inotify(7) tells at once, but its queue overflows, it is deaf to what was
//! there before and, on network file systems, to what other hosts do; a scan finds everything, but late. So events are
//! hints that are acted on at once, and a scan at the start, at each interval, and after an overflow is the truth. A
//! directory is watched first and listed then, so that no name falls between the two.
//!
//! A semaphore counts when its writer has closed it or has renamed it into its place (`IN_CLOSE_WRITE`,
//! `IN_MOVED_TO`). One that only a scan has found counts when it has stayed the same for [`Timing::settle`], unless it
//! was seen being opened here and has not been closed. It is handed out once; again only after it has changed.
//!
//! Events do not tell all: one closes a file that another still writes, or that has the name no more. So what is handed out
//! is opened with a read lease ([`Finder::open`]), which the kernel refuses while a process has it open for writing, and must be
//! as it was found; otherwise it is waited for. The lease also shows that what was opened here needs no close (link(2), mknod(2),
//! truncate(2)), or that its event was lost.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::pattern::Pattern;
use stage::calls;
use stage::error::StageError;
use stage::semaphore::Identity;
use storage::lease::Unwritten;

/// How long things take to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Between two scans.
    pub rescan: Duration,
    /// For which a semaphore must stay the same that no event vouches for.
    pub settle: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { rescan: Duration::from_secs(10), settle: Duration::from_secs(2) }
    }
}

/// A semaphore that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Relative to the directory that is watched.
    pub path: PathBuf,
    /// The state that it was found in.
    pub identity: Identity,
}

/// Finds semaphores below a directory.
#[derive(Debug)]
pub struct Finder {
    root: PathBuf,
    root_fd: OwnedFd,
    pattern: Pattern,
    timing: Timing,
    inotify: Option<OwnedFd>,
    /// Watch descriptor → directory relative to the root.
    watches: HashMap<i32, PathBuf>,
    /// Open for writing, as far as is known.
    being_written: HashMap<PathBuf, BeingWritten>,
    /// Found by a scan, and since when they are the same.
    settling: HashMap<PathBuf, (Identity, Instant)>,
    /// Handed out.
    given: HashMap<PathBuf, Identity>,
    scanned: Option<Instant>,
    notes: Vec<String>,
}

/// A semaphore that is waited for.
#[derive(Debug)]
struct BeingWritten {
    /// Of what has the name; None if it went away meanwhile.
    ino: Option<u64>,
    since: Instant,
    is_told: bool,
}

/// How long a semaphore may be open for writing before that is told.
const OPEN_NOTE_AFTER: Duration =
    if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(10) };

const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::EXCL_UNLINK)
    .union(WatchFlags::ONLYDIR);

impl Finder {
    /// Opens the directory; what cannot be watched is scanned.
    pub fn new(root: &Path, pattern: Pattern, timing: Timing) -> Result<Self, StageError> {
        let root_fd = calls::open_directory(root).map_err(|error| StageError::io("watch it", root, error))?;
        let mut notes = Vec::new();
        let inotify = match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(fd) => Some(fd),
            Err(error) => {
                notes
                    .push(format!("inotify cannot be had ({error}): semaphores are found by scanning alone"));
                None
            }
        };
        Ok(Self {
            root: root.to_owned(),
            root_fd,
            pattern,
            timing,
            inotify,
            watches: HashMap::new(),
            being_written: HashMap::new(),
            settling: HashMap::new(),
            given: HashMap::new(),
            scanned: None,
            notes,
        })
    }

    /// The directory that is watched.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its descriptor.
    #[must_use]
    pub fn root_fd(&self) -> &OwnedFd {
        &self.root_fd
    }

    /// What is worth knowing, once.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Hands a semaphore out again, at the next call.
    pub fn requeue(&mut self, path: &Path) {
        self.given.remove(path);
        self.scanned = None;
    }

    /// Opens a semaphore, to be read while nobody writes it. None if a process has it open for writing.
    ///
    /// # Errors
    /// It is not there any more, or is not ours to read.
    pub fn open(&self, path: &Path) -> io::Result<Option<Unwritten<OwnedFd>>> {
        // NONBLOCK: neither a FIFO that has come into the file's place nor a lease of another must hold this process.
        let way = OFlags::RDONLY | OFlags::NONBLOCK;
        match calls::try_open_beneath(self.root_fd.as_fd(), path, way, Mode::empty()) {
            Ok(file) => Ok(Unwritten::new(file)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hands a semaphore out once more, when it has settled: it is not as it was found.
    pub fn settle_again(&mut self, found: &Found) {
        if self.take_back(found)
            && let Some(identity) = self.identify(&found.path)
        {
            self.settling.insert(found.path.clone(), (identity, Instant::now()));
        }
    }

    /// Hands a semaphore out once more, when the process that has it open for writing has closed it.
    pub fn await_close(&mut self, found: &Found) {
        if self.take_back(found) {
            let ino = self.identify(&found.path).map(|at| at.ino);
            self.is_written(found.path.clone(), ino);
        }
    }

    /// False if a newer state was handed out meanwhile, which stays so.
    fn take_back(&mut self, found: &Found) -> bool {
        let is_newest = self.given.get(&found.path) == Some(&found.identity);
        if is_newest {
            self.given.remove(&found.path);
        }
        is_newest
    }

    fn is_written(&mut self, path: PathBuf, ino: Option<u64>) {
        self.settling.remove(&path);
        let new = BeingWritten { ino, since: Instant::now(), is_told: false };
        self.being_written.entry(path).or_insert(new).ino = ino;
    }

    /// Semaphores that became whole; waits `most` for the first of them.
    pub fn next(&mut self, most: Duration) -> Result<Vec<Found>, StageError> {
        let mut found = Vec::new();
        self.scan_and_collect(&mut found)?;
        if found.is_empty() {
            self.sleep(most);
            self.scan_and_collect(&mut found)?;
        }
        Ok(found)
    }

    /// Nothing is being written or settling, as far as is known: what is there has been handed out.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.scanned.is_some() && self.settling.is_empty() && self.being_written.is_empty()
    }

    /// Scans where it is time, takes the events that are there, and hands out what has settled.
    ///
    /// In this order: the event of a semaphore that the scan has seen being written is older than the scan, and is heard before
    /// the semaphore can be handed out.
    fn scan_and_collect(&mut self, found: &mut Vec<Found>) -> Result<(), StageError> {
        if self.scanned.is_none_or(|at| at.elapsed() >= self.timing.rescan) {
            self.scan()?;
        }
        let now = Instant::now();
        let due: Vec<PathBuf> = self
            .settling
            .iter()
            .filter(|(_, (_, since))| now >= *since + self.timing.settle)
            .map(|(path, _)| path.clone())
            .collect();
        self.events(found)?;
        for path in due {
            // Handed out by its event, or being written.
            let Some((seen, _)) = self.settling.remove(&path) else { continue };
            match self.identify(&path) {
                Some(identity) if identity == seen => self.give(path, identity, found),
                Some(identity) => {
                    self.settling.insert(path, (identity, Instant::now()));
                }
                None => {}
            }
        }
        found.retain(|one| {
            // Opened again after the event for which it was to be handed out.
            let is_open = self.being_written.contains_key(&one.path);
            if is_open {
                self.given.remove(&one.path);
            }
            !is_open
        });
        Ok(())
    }

    fn give(&mut self, path: PathBuf, identity: Identity, found: &mut Vec<Found>) {
        if self.given.get(&path) != Some(&identity) {
            self.given.insert(path.clone(), identity);
            found.push(Found { path, identity });
        }
    }

    /// The state of a semaphore, if it is there and a regular file.
    fn identify(&self, path: &Path) -> Option<Identity> {
        let way = OFlags::PATH;
        let file = calls::open_beneath(self.root_fd.as_fd(), path, way, Mode::empty()).ok()?;
        let facts = calls::stat(file.as_fd()).ok()?;
        let regular = FileType::from_raw_mode(facts.stx_mode.into()) == FileType::RegularFile;
        regular.then(|| Identity::of(&facts))
    }

    /// Waits for an event, for something to settle, or for the next scan.
    fn sleep(&self, most: Duration) {
        let now = Instant::now();
        let settles = self
            .settling
            .values()
            .map(|(_, since)| (*since + self.timing.settle).saturating_duration_since(now));
        let scan = self.scanned.map(|at| (at + self.timing.rescan).saturating_duration_since(now));
        let wait = settles.chain(scan).fold(most, Duration::min);
        match &self.inotify {
            Some(fd) => {
                let wait =
                    Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
                // An interruption is as good as an event: the caller looks whether it is to stop.
                let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&wait));
            }
            None => std::thread::sleep(wait),
        }
    }

    /// Takes the events that are there by now. Those that come meanwhile may come faster than they are taken.
    fn events(&mut self, found: &mut Vec<Found>) -> Result<(), StageError> {
        let Some(fd) = &self.inotify else { return Ok(()) };
        let wrong = |error| StageError::io("read events of inotify", &self.root, error);
        let there = rustix::io::ioctl_fionread(fd).map_err(wrong)? as usize;
        if there == 0 {
            return Ok(());
        }
        let mut seen = Vec::new();
        // With room for all of them, and to align them, they come in one piece.
        let mut room = vec![MaybeUninit::uninit(); there + 8];
        let mut reader = Reader::new(fd, &mut room);
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsString::from_vec(name.to_bytes().to_vec()));
                    seen.push((event.wd(), event.events(), name));
                }
                Err(Errno::INTR) => continue,
                Err(error) => return Err(wrong(error)),
            }
            if reader.is_buffer_empty() {
                break;
            }
        }
        for (wd, mask, name) in seen {
            self.event(wd, mask, name.as_deref(), found)?;
        }
        Ok(())
    }

    fn event(
        &mut self,
        wd: i32,
        mask: ReadFlags,
        name: Option<&OsStr>,
        found: &mut Vec<Found>,
    ) -> Result<(), StageError> {
        if mask.contains(ReadFlags::QUEUE_OVERFLOW) {
            // What was closed meanwhile was not told: those being written settle like any other. Nor what was renamed.
            self.being_written.clear();
            self.unwatch(Path::new(""));
            return Ok(());
        }
        if mask.contains(ReadFlags::IGNORED) {
            self.watches.remove(&wd);
            return Ok(());
        }
        if mask.contains(ReadFlags::MOVE_SELF) {
            self.moved(wd);
            return Ok(());
        }
        let (Some(directory), Some(name)) = (self.watches.get(&wd), name) else { return Ok(()) };
        let level = directory.components().count();
        if !self.pattern.matches(level, name) {
            return Ok(());
        }
        let path = directory.join(name);
        if level + 1 < self.pattern.levels() {
            if mask.contains(ReadFlags::ISDIR) {
                self.scan_directory(&path)?;
            }
            return Ok(());
        }
        if mask.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MOVED_TO) {
            self.being_written.remove(&path);
            self.settling.remove(&path);
            if let Some(identity) = self.identify(&path) {
                self.give(path, identity, found);
            }
        } else if mask.intersects(ReadFlags::CREATE | ReadFlags::MODIFY) {
            // A hard link is created and never closed; the next scan finds it, and it settles.
            let at = self.identify(&path);
            if mask.contains(ReadFlags::MODIFY) || at.is_some_and(|at| at.size == 0) {
                self.is_written(path, at.map(|at| at.ino));
            }
        }
        Ok(())
    }

    /// A directory that is watched has another name: its events, and those of the directories in it, tell nothing of the old
    /// one.
    fn moved(&mut self, wd: i32) {
        let Some(from) = self.watches.get(&wd).cloned() else { return };
        self.unwatch(&from);
        // Where it comes back, what it holds may have changed, though its semaphores have not.
        self.given.retain(|path, _| !path.starts_with(&from));
        self.being_written.retain(|path, _| !path.starts_with(&from));
        self.settling.retain(|path, _| !path.starts_with(&from));
    }

    /// Watches a directory, and those in it, no more. A scan watches them anew where they belong.
    fn unwatch(&mut self, directory: &Path) {
        let Some(inotify) = &self.inotify else { return };
        self.watches.retain(|wd, path| {
            let stays = !path.starts_with(directory);
            if !stays {
                // At worst its events go to nobody.
                let _ = inotify::remove_watch(inotify, *wd);
            }
            stays
        });
        self.scanned = None;
    }

    fn scan(&mut self) -> Result<(), StageError> {
        self.scanned = Some(Instant::now());
        self.check_root()?;
        self.scan_directory(Path::new(""))?;
        // Those that went away may come back in the very state that they had.
        let gone: Vec<PathBuf> = self
            .given
            .keys()
            .chain(self.being_written.keys())
            .filter(|path| self.identify(path).is_none())
            .cloned()
            .collect();
        for path in gone {
            self.given.remove(&path);
            self.being_written.remove(&path);
            self.settling.remove(&path);
        }
        for (path, written) in &mut self.being_written {
            if !written.is_told && written.since.elapsed() >= OPEN_NOTE_AFTER {
                written.is_told = true;
                let path = stage::error::shown(&self.root.join(path));
                self.notes.push(format!(
                    "{path}: is open for writing, or another process has a lease on it, and is waited for"
                ));
            }
        }
        Ok(())
    }

    /// Jobs go by the path of the directory: it must be the one whose semaphores are found.
    ///
    /// # Errors
    /// There is none at the path, or another.
    pub fn check_root(&self) -> Result<(), StageError> {
        let wrong = |error| StageError::io("watch it", &self.root, error);
        let place = |directory: &OwnedFd| {
            calls::stat(directory.as_fd()).map(|it| (it.stx_dev_major, it.stx_dev_minor, it.stx_ino))
        };
        let now = calls::open_directory(&self.root).map_err(wrong)?;
        if place(&now).map_err(wrong)? != place(&self.root_fd).map_err(wrong)? {
            return Err(wrong(io::Error::other("another directory has its name now")));
        }
        Ok(())
    }

    /// Watches a directory, and notes the semaphores in it and below.
    fn scan_directory(&mut self, relative: &Path) -> Result<(), StageError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let at_root = relative.as_os_str().is_empty();
        let beneath = if at_root { Path::new(".") } else { relative };
        let directory = match calls::open_beneath(self.root_fd.as_fd(), beneath, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(error) if at_root => return Err(StageError::io("scan it", &self.root, error)),
            // Gone, a symbolic link, or not ours to read: nothing of it is moved.
            Err(_) => return Ok(()),
        };
        self.watch_directory(&directory, relative);
        let names = match calls::list(directory.as_fd()) {
            Ok(names) => names,
            Err(error) if at_root => return Err(StageError::io("scan it", &self.root, error)),
            Err(_) => return Ok(()),
        };
        let level = relative.components().count();
        for (name, kind) in names {
            if !self.pattern.matches(level, &name) {
                continue;
            }
            let path = relative.join(&name);
            if level + 1 < self.pattern.levels() {
                if matches!(kind, FileType::Directory | FileType::Unknown) {
                    self.scan_directory(&path)?;
                }
            } else if matches!(kind, FileType::RegularFile | FileType::Unknown) {
                self.note(path);
            }
        }
        Ok(())
    }

    /// A semaphore that a scan has found.
    fn note(&mut self, path: PathBuf) {
        let Some(identity) = self.identify(&path) else { return };
        let is_this = |written: &BeingWritten| written.ino == Some(identity.ino);
        if self.being_written.get(&path).is_some_and(is_this) && !self.is_unwritten(&path) {
            return;
        }
        self.being_written.remove(&path);
        if self.given.get(&path) == Some(&identity) {
            return;
        }
        let now = Instant::now();
        let settling = self.settling.entry(path).or_insert((identity, now));
        if settling.0 != identity {
            *settling = (identity, now);
        }
    }

    /// True if the kernel has granted a read lease: no process has it open for writing.
    fn is_unwritten(&self, path: &Path) -> bool {
        self.open(path).is_ok_and(|file| file.is_some_and(|file| file.is_certain()))
    }

    fn watch_directory(&mut self, directory: &OwnedFd, relative: &Path) {
        use std::os::fd::AsRawFd;
        let Some(inotify) = &self.inotify else { return };
        // By its descriptor, so that it is this directory and not what has its name by now.
        let by_fd = format!("/proc/self/fd/{}", directory.as_raw_fd());
        match inotify::add_watch(inotify, by_fd, EVENTS) {
            Ok(wd) => {
                self.watches.insert(wd, relative.to_owned());
            }
            Err(error) => self.unwatched(relative, error),
        }
    }

    fn unwatched(&mut self, relative: &Path, error: Errno) {
        if self.notes.is_empty() {
            let full = if error == Errno::NOSPC { " (fs.inotify.max_user_watches is used up)" } else { "" };
            self.notes.push(format!(
                "{}: cannot be watched{full}: {}; its semaphores are found by scanning",
                stage::error::shown(&self.root.join(relative)),
                io::Error::from(error)
            ));
        }
    }
}
