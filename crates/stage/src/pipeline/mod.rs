//! A tree on its way: threads that copy, one that makes durable, threads that read back, one that records.
//!
//! ```text
//! walk ─▶ batches ─▶ copiers ─▶ written ─▶ syncer ─▶ synced ─▶ readers ─▶ verified ─▶ recorder ─▶ journal
//!                       │                                                               ▲
//!                       └──────────▶ large files, few at a time, chunks in flight ──────┘
//! ```
//!
//! Durability is bought by the batch. An fsync a file would cost a commit of the file system's journal and a flush of
//! the drive each; instead the syncer takes all that was written while it synced last, and makes one syncfs(2) for it.
//! Since Linux 5.8 that call tells of every write-back error on the file system since its descriptor was opened, which
//! was before the first byte was written; where that cannot be relied on, each file is fsynced by the thread that
//! wrote it. Nothing is read back before it is durable, and nothing recorded before it was read back.
//!
//! All queues are bounded, so a tree of any size takes the same memory.

mod by_chunk;
mod hands;
mod links;
mod turns;

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, Statx};
use rustix::io::Errno;

use crate::calls;
use crate::crew::{Crew, Errand};
use crate::error::StageError;
use crate::fault::{Check, enforced};
use crate::job::JobId;
use crate::journal::{Done, Identity, Journal};
use crate::large::{Lane, LaneConfig};
use crate::manifest::Kind;
use crate::small::{self, Copied, Copier, Terms, Written};
use crate::tree::{Directory, Visitor, Walk, entry_of};
pub use hands::By;
use links::Links;
use turns::{Turn, Turns};

/// Files that one sync makes durable at most, and their bytes: what is lost of the work when one fails.
const GROUP_FILES: usize = 16384;
const GROUP_BYTES: u64 = 512 << 20;
/// What a sync is worth waiting for, as each costs a commit of the file system's journal and a flush of the drive; and
/// how long, so that what comes slowly is durable soon as well.
const GROUP_LEAST_FILES: usize = 1024;
const GROUP_LEAST_BYTES: u64 = 64 << 20;
const GROUP_WAIT: Duration = Duration::from_millis(200);
/// Files that one reader takes at a time.
const READ_BACK: usize = 128;
/// Notes of one kind that are kept.
const NOTES: usize = 4;
/// Large files at once, and those of them that are written: while the end of one is read back, others are. Each lane has
/// buffers of its own.
const LANES: usize = 3;
const WRITING: usize = 2;
/// Chunks under way in each lane. What is under way is what a sync has to wait for, and so how far reading back lags.
pub(crate) const LANE_DEPTH: u32 = 4;
/// The same of a drain that yields to the application, whose requests wait behind all that is under way: one chunk is
/// copied, and one read back.
pub(crate) const BACKGROUND_DEPTH: u32 = 2;
/// Entries in one transaction of the journal at most, and what one is worth waiting for, as long as for a sync.
const RECORD: usize = 8192;
const RECORD_LEAST: usize = 2048;

/// What a tree needs to be copied.
pub struct Pipeline<'a> {
    /// The job.
    pub id: JobId,
    /// Its journal.
    pub journal: &'a Journal,
    /// How files are copied.
    pub terms: Terms<'a>,
    /// Threads that copy, and as many that read back.
    pub threads: usize,
    /// Other processes that copy, and what they are told of the move.
    pub crew: Option<(&'a dyn Crew, Errand)>,
    /// Was something copied by an earlier attempt?
    pub resumed: bool,
    /// How large files are.
    pub lane: LaneConfig,
    /// Does the application's I/O go first?
    pub background: bool,
    /// What is worth knowing, for the job's notes; of many notes the first few.
    pub notes: Mutex<Vec<String>>,
}

/// Names of one directory that are not directories.
struct Batch {
    directory: Arc<Directory>,
    names: Vec<OsString>,
}

/// A file that goes by the chunk.
struct LargeItem {
    directory: Arc<Directory>,
    name: OsString,
}

/// What the threads share.
struct Shared<'a> {
    of: &'a Pipeline<'a>,
    failure: Mutex<Option<StageError>>,
    failed: AtomicBool,
    links: Mutex<Links>,
}

impl Shared<'_> {
    /// The first error is the one that is told; the others follow from it as often as not.
    fn fail(&self, error: StageError) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
        self.failed.store(true, Relaxed);
    }

    fn gone(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// A file of several names is found: all of them are made once they are known.
    fn linked(&self, inode: (u32, u32, u64), path: PathBuf) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.entry(inode).or_default().push(path);
    }

    /// A file that goes by the chunk is found.
    fn large(&self, directory: &Arc<Directory>, name: &OsStr, size: u64, large: &SyncSender<LargeItem>) {
        self.of.found(size);
        let item = LargeItem { directory: Arc::clone(directory), name: name.to_owned() };
        // The receiver is gone: another thread has failed and recorded why.
        let _ = put(large, item);
    }

    /// A copier has found nothing more. The last of them knows that what was counted until now is all there is.
    fn walked(&self, copiers: &AtomicUsize) {
        if copiers.fetch_sub(1, Relaxed) == 1 && !self.gone() {
            self.of.terms.progress.walked.store(true, Relaxed);
        }
    }
}

/// The thread at the other end of a queue has ended; the reason is in the first error.
struct Hung;

impl Pipeline<'_> {
    /// Copies what `walk` finds from `source` to `part`: all of it durable and verified, and recorded, when this
    /// returns. Directories have their final metadata later, when nothing is added to them any more.
    pub fn run(
        &self,
        walk: &Walk<'_>,
        source: OwnedFd,
        part: OwnedFd,
        sync: &OwnedFd,
    ) -> Result<(), StageError> {
        let shared = Shared {
            of: self,
            failure: Mutex::new(None),
            failed: AtomicBool::new(false),
            links: Mutex::new(Links::new()),
        };
        let duplicate =
            |fd: &OwnedFd| fd.try_clone().map_err(|error| StageError::io("duplicate", walk.source, error));
        let roots = (duplicate(&source)?, duplicate(&part)?);
        let (batches_in, batches) = sync_channel::<Batch>(self.threads * 4);
        let (written_in, written) = sync_channel::<Vec<Written>>(64);
        let (synced_in, synced) = sync_channel::<Vec<Written>>(self.threads * 2);
        let (large_in, large) = sync_channel::<LargeItem>(64);
        let (verified_in, verified) = sync_channel::<Vec<Done>>(64);
        // Each end of a queue goes with the last thread that has it, so that a thread that waits at the other end is woken.
        let (batches, synced) = (Arc::new(Mutex::new(batches)), Arc::new(Mutex::new(synced)));
        let large = Arc::new(Mutex::new(large));
        let hands = self.crew.as_ref().map_or(0, |(crew, _)| crew.hands());
        let copiers = Arc::new(AtomicUsize::new(self.threads + hands));
        let turns = &Turns::new(WRITING);
        std::thread::scope(|scope| {
            let shared = &shared;
            for _ in 0..self.threads {
                let (written_in, large_in, verified_in) =
                    (written_in.clone(), large_in.clone(), verified_in.clone());
                let (batches, synced, read_in) =
                    (Arc::clone(&batches), Arc::clone(&synced), verified_in.clone());
                let copiers = Arc::clone(&copiers);
                scope.spawn(move || {
                    shared.guard(|| copy_batches(shared, &batches, &written_in, &large_in, &verified_in));
                    shared.walked(&copiers);
                });
                scope.spawn(move || shared.guard(|| read_back(shared, &synced, &read_in)));
            }
            for hand in 0..hands {
                let (batches, copiers) = (Arc::clone(&batches), Arc::clone(&copiers));
                let (large_in, verified_in) = (large_in.clone(), verified_in.clone());
                scope.spawn(move || {
                    shared.guard(|| hands::give_names(shared, hand, &batches, &large_in, &verified_in));
                    shared.walked(&copiers);
                });
            }
            let found = verified_in.clone();
            scope.spawn(move || shared.guard(|| sync_groups(shared, sync, &written, &synced_in)));
            for lane in 0..LANES + hands {
                let (large, large_done) = (Arc::clone(&large), verified_in.clone());
                let hand = lane.checked_sub(LANES);
                scope.spawn(move || {
                    shared.guard(|| copy_large_ones(shared, turns, hand, &large, &large_done))
                });
            }
            scope.spawn(move || shared.guard(|| record(shared, &verified)));
            drop((written_in, large_in, verified_in, batches, synced, large));
            let mut found = Walking {
                shared,
                part: &part,
                batches: batches_in,
                directories: Vec::new(),
                recorded: found,
            };
            let walked = walk.run(source, &mut found).and_then(|()| found.flush());
            if let Err(error) = walked {
                shared.fail(error);
            }
        });
        match shared.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => return Err(error),
            None => self.terms.stop.check()?,
        }
        let links = shared.links.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.link(links, roots, sync)
    }

    /// Keeps notes, as long as they are few: of a thousand files there is the same to be said.
    fn note(&self, said: Vec<String>) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let room = NOTES.saturating_sub(notes.len());
        notes.extend(said.into_iter().take(room));
    }

    /// A file that goes by the chunk is found. It is counted before its turn comes, so that totals are known early.
    pub(crate) fn found(&self, size: u64) {
        self.terms.progress.files_total.fetch_add(1, Relaxed);
        self.terms.progress.bytes_total.fetch_add(size, Relaxed);
    }

    /// Of these names those that are to be copied, and what an earlier attempt has recorded of the others.
    fn wanted(
        &self,
        directory: &Directory,
        names: Vec<OsString>,
    ) -> Result<(Vec<OsString>, Vec<Done>), StageError> {
        let (mut wanted, mut done) = (Vec::with_capacity(names.len()), Vec::new());
        for name in names {
            match self.is_done(directory, &name, &directory.path.join(&name))? {
                Some(earlier) => done.push(earlier),
                None => wanted.push(name),
            }
        }
        Ok((wanted, done))
    }

    /// What an earlier attempt recorded of a path, if the source is still that and the copy is there.
    fn is_done(
        &self,
        directory: &Directory,
        name: &std::ffi::OsStr,
        path: &std::path::Path,
    ) -> Result<Option<Done>, StageError> {
        if !self.resumed {
            return Ok(None);
        }
        let Some(done) = self.journal.entry(self.id, path)? else { return Ok(None) };
        let (Ok(source), Ok(copy)) =
            (calls::stat_at(directory.source.as_fd(), name), calls::stat_at(directory.copy.as_fd(), name))
        else {
            return Ok(None);
        };
        let same = done.source.change(&Identity::of(&source)).is_none() || !enforced(Check::SourceOnResume);
        // Bytes are as they were recorded: they were durable then. The name may not be: a directory that was not
        // synced when the power went has lost it.
        let there = done.entry.kind != Kind::File || copy.stx_size == done.entry.size;
        // Names of one file are made when all of them are known.
        let alone = done.source.nlink <= 1 || !self.terms.preserve.links;
        if !(same && there && alone) {
            return Ok(None);
        }
        let progress = self.terms.progress;
        progress.files_total.fetch_add(1, Relaxed);
        progress.files_done.fetch_add(1, Relaxed);
        progress.bytes_total.fetch_add(done.entry.size, Relaxed);
        progress.bytes_written.fetch_add(done.entry.size, Relaxed);
        progress.bytes_verified.fetch_add(done.entry.size, Relaxed);
        Ok(Some(done))
    }
}

impl Shared<'_> {
    /// Runs a thread's work; what it fails of ends all.
    fn guard(&self, work: impl FnOnce() -> Result<(), StageError>) {
        if self.of.background {
            let _ = storage::usage::idle_io_priority();
        }
        if let Err(error) = work() {
            self.fail(error);
        }
    }
}

/// What the walk finds goes into the queues; directories are made in the part.
struct Walking<'a> {
    shared: &'a Shared<'a>,
    part: &'a OwnedFd,
    batches: SyncSender<Batch>,
    directories: Vec<Done>,
    recorded: SyncSender<Vec<Done>>,
}

impl Walking<'_> {
    fn flush(&mut self) -> Result<(), StageError> {
        let directories = std::mem::take(&mut self.directories);
        // The receiver is gone: another thread has failed and recorded why.
        let _ = self.recorded.send(directories);
        Ok(())
    }

    /// The copy of a directory, for its owner alone until all is in it.
    fn make(&self, above: &Directory, name: &OsStr, path: &Path) -> Result<OwnedFd, StageError> {
        let shown = self.shared.of.terms.part.join(path);
        match calls::make_directory(above.copy.as_fd(), name, Mode::RWXU) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::EXIST) => {
                // An earlier attempt's, which may have its final mode already.
                let path =
                    calls::open_at(above.copy.as_fd(), name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
                        .map_err(|error| StageError::io("open the directory", &shown, error))?;
                calls::set_mode_of_path(path.as_fd(), 0o700)
                    .map_err(|error| StageError::io("set the mode", &shown, error))?;
                return crate::owned::open_directory(&path)
                    .map_err(|error| StageError::io("open the directory", &shown, error));
            }
            made => made.map_err(|error| StageError::io("make the directory", &shown, error))?,
        }
        calls::open_at(above.copy.as_fd(), name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
            .map_err(|error| StageError::io("open the directory", &shown, error))
    }
}

impl Visitor for Walking<'_> {
    type Copy = OwnedFd;

    fn directory(
        &mut self,
        above: Option<(&Directory, &OsStr)>,
        path: &Path,
        stat: &Statx,
    ) -> Result<OwnedFd, StageError> {
        let copy = match above {
            Some((above, name)) => self.make(above, name, path)?,
            None => self
                .part
                .try_clone()
                .map_err(|error| StageError::io("duplicate", self.shared.of.terms.part, error))?,
        };
        let entry = entry_of(path, Kind::Directory, stat);
        self.directories.push(Done::new(entry, Identity::of(stat)));
        if self.directories.len() >= RECORD {
            self.flush()?;
        }
        Ok(copy)
    }

    fn open_again(&mut self, path: &Path) -> Result<OwnedFd, StageError> {
        let beneath = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        calls::open_beneath(self.part.as_fd(), beneath, flags, Mode::empty()).map_err(|error| {
            StageError::io("open the directory", &self.shared.of.terms.part.join(path), error)
        })
    }

    fn names(&mut self, directory: &Arc<Directory>, names: Vec<OsString>) -> Result<(), StageError> {
        let batch = Batch { directory: Arc::clone(directory), names };
        if self.batches.send(batch).is_err() || self.shared.gone() {
            return Err(StageError::Stopped { what: "the copy has failed".to_owned() });
        }
        Ok(())
    }
}

fn take<T>(queue: &Mutex<Receiver<T>>) -> Option<T> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

fn put<T>(queue: &SyncSender<T>, what: T) -> Result<(), Hung> {
    queue.send(what).map_err(|_| Hung)
}

fn copy_batches(
    shared: &Shared<'_>,
    batches: &Mutex<Receiver<Batch>>,
    written_in: &SyncSender<Vec<Written>>,
    large_in: &SyncSender<LargeItem>,
    verified_in: &SyncSender<Vec<Done>>,
) -> Result<(), StageError> {
    let pipeline = shared.of;
    let mut copier = Copier::default();
    while let Some(Batch { directory, names }) = take(batches) {
        if shared.gone() {
            return Ok(());
        }
        pipeline.terms.stop.check()?;
        let mut written = Vec::with_capacity(names.len());
        let (wanted, done) = pipeline.wanted(&directory, names)?;
        let mut became = |name: &std::ffi::OsStr, copied| {
            match copied {
                Copied::Written(one) => written.push(one),
                Copied::Linked { inode } => shared.linked(inode, directory.path.join(name)),
                Copied::Large(size) => shared.large(&directory, name, size, large_in),
            }
            Ok(())
        };
        copier.copy_many(&directory, wanted, pipeline.terms.preserve.links, &pipeline.terms, &mut became)?;
        if !done.is_empty() {
            let _ = verified_in.send(done);
        }
        if !written.is_empty() && put(written_in, written).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Makes groups durable: all that was written while the group before was synced.
fn sync_groups(
    shared: &Shared<'_>,
    sync: &OwnedFd,
    written: &Receiver<Vec<Written>>,
    synced: &SyncSender<Vec<Written>>,
) -> Result<(), StageError> {
    while let Ok(mut group) = written.recv() {
        let mut bytes: u64 = group.iter().map(|written| written.done.entry.size).sum();
        let until = Instant::now() + GROUP_WAIT;
        while group.len() < GROUP_FILES && bytes < GROUP_BYTES {
            let worth_it = group.len() >= GROUP_LEAST_FILES || bytes >= GROUP_LEAST_BYTES;
            let Ok(more) = written.recv_timeout(patience(worth_it, until)) else { break };
            bytes += more.iter().map(|written| written.done.entry.size).sum::<u64>();
            group.extend(more);
        }
        if shared.gone() {
            return Ok(());
        }
        if !shared.of.terms.sync_each {
            small::sync_group(sync.as_fd(), shared.of.terms.part)?;
        }
        let mut group = group.into_iter();
        loop {
            let some: Vec<Written> = group.by_ref().take(READ_BACK).collect();
            if some.is_empty() {
                break;
            }
            if put(synced, some).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// How long to wait for more.
fn patience(enough: bool, until: Instant) -> Duration {
    if enough { Duration::ZERO } else { until.saturating_duration_since(Instant::now()) }
}

fn read_back(
    shared: &Shared<'_>,
    synced: &Mutex<Receiver<Vec<Written>>>,
    verified: &SyncSender<Vec<Done>>,
) -> Result<(), StageError> {
    let mut copier = Copier::default();
    while let Some(group) = take(synced) {
        if shared.gone() {
            return Ok(());
        }
        copier.verify_many(&group, &shared.of.terms)?;
        let done: Vec<Done> = group.into_iter().map(|written| written.done).collect();
        shared.of.terms.progress.files_done.fetch_add(done.len() as u64, Relaxed);
        if put(verified, done).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Copies large files in turn: here, or by a hand.
fn copy_large_ones(
    shared: &Shared<'_>,
    turns: &Turns,
    hand: Option<usize>,
    large: &Mutex<Receiver<LargeItem>>,
    verified: &SyncSender<Vec<Done>>,
) -> Result<(), StageError> {
    let mut lane = None;
    while let Some(LargeItem { directory, name }) = take(large) {
        if shared.gone() {
            return Ok(());
        }
        // A hand's writes are its node's.
        let mut turn = hand.is_none().then(|| turns.take());
        shared.of.terms.stop.check()?;
        let by = match hand {
            Some(hand) => By::Hand(hand),
            None => By::Lane(lane_of(&mut lane, &shared.of.lane)?),
        };
        let done = shared.of.copy_large(by, &directory, &name, &mut || turn = None)?;
        drop::<Option<Turn<'_>>>(turn);
        if put(verified, vec![done]).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn record(shared: &Shared<'_>, verified: &Receiver<Vec<Done>>) -> Result<(), StageError> {
    while let Ok(mut done) = verified.recv() {
        let until = Instant::now() + GROUP_WAIT;
        while done.len() < RECORD {
            let Ok(more) = verified.recv_timeout(patience(done.len() >= RECORD_LEAST, until)) else { break };
            done.extend(more);
        }
        shared.of.journal.record(shared.of.id, &done)?;
    }
    Ok(())
}

/// The lane, made when the first large file comes: it holds tens of megabytes.
fn lane_of<'a>(lane: &'a mut Option<Lane>, config: &LaneConfig) -> Result<&'a mut Lane, StageError> {
    if lane.is_none() {
        *lane = Some(Lane::new(config)?);
    }
    Ok(lane.as_mut().expect("it was made above"))
}
