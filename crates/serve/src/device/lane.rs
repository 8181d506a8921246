//! What no engine makes asynchronously: discards, zeroing, fetching into the cache, looking up extents.
//!
//! A thread beside the conversation makes them one after the other, so that a discard of a terabyte keeps nobody from
//! reading meanwhile. It is started with the first of them. Its answers come through a channel, and a pipe becomes
//! readable with each.
//!
//! What nobody waits for any more is not done. Of a client that has closed its side, hints (discards, fetching into the
//! cache) are dropped before they begin, and a long one goes in steps and ends with the step at which it finds that; they
//! count as taken, for the client may still read its replies. A server that has waited long enough for its end drops all.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use storage::device::{Device, DeviceKind, ZeroOptions, discard_pieces, whole_zones};
use storage::extents::{self, Stretch};

/// Bytes that are fetched at a time.
const FETCH: usize = 1 << 20;
/// Bytes that are made zero at a time: a drive without a command for it takes some milliseconds to write them.
const ZERO: u64 = 64 << 20;
/// Bytes that are discarded at a time; a zone at least where the drive gives back whole ones only.
const DISCARD: u64 = 1 << 30;
/// Discards of block devices are cut to multiples of this: the sector of the kernel's block layer.
const SECTOR: u64 = 512;

/// What is given up: nothing,
const NOTHING: u8 = 0;
/// hints,
const HINTS: u8 = 1;
/// or all of it.
const ALL: u8 = 2;

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub(super) enum Job {
    /// Give the range back.
    Trim,
    /// Make it zero.
    Zero(ZeroOptions),
    /// Read it, for the cache to have it.
    Cache,
    /// Tell at most so many extents.
    Extents(usize),
}

/// What came of it: extents, where they were asked for.
pub(super) type Answer = io::Result<Vec<Stretch>>;

#[derive(Debug)]
struct Task {
    id: usize,
    job: Job,
    offset: u64,
    length: u64,
}

/// The thread, and the ways to it.
#[derive(Debug)]
pub(super) struct Lane {
    tasks: Option<Sender<Task>>,
    answers: Receiver<(usize, Answer)>,
    bell: PipeReader,
    abandoned: Arc<AtomicU8>,
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    pub fn start(device: &Arc<dyn Device>) -> io::Result<Self> {
        let (bell, ringer) = io::pipe()?;
        let (tasks, inbox) = channel();
        let (outbox, answers) = channel();
        let abandoned = Arc::new(AtomicU8::new(NOTHING));
        let (device, seen) = (Arc::clone(device), Arc::clone(&abandoned));
        let thread = std::thread::Builder::new()
            .name("nbd-slow".into())
            .spawn(move || work(&*device, &seen, &inbox, &outbox, ringer))?;
        Ok(Self { tasks: Some(tasks), answers, bell, abandoned, thread: Some(thread) })
    }

    /// Hands over a task. False where the thread is gone, because the device panicked.
    pub fn ask(&self, id: usize, job: Job, offset: u64, length: u64) -> bool {
        self.tasks.as_ref().is_some_and(|tasks| tasks.send(Task { id, job, offset, length }).is_ok())
    }

    /// Takes hints without following them from now on.
    pub fn abandon_hints(&self) {
        self.abandoned.fetch_max(HINTS, Ordering::Relaxed);
    }

    /// Answers all that was asked for with an error from now on, without doing it.
    pub fn abandon(&self) {
        self.abandoned.store(ALL, Ordering::Relaxed);
    }

    /// What poll(2) finds readable when an answer is there, and hung up when the thread is gone.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Takes the ring of the bell back, once poll(2) found it readable. False where the thread is gone.
    pub fn silence(&mut self) -> bool {
        matches!(self.bell.read(&mut [0; 64]), Ok(rings) if rings > 0)
    }

    /// The next answer, if there is one.
    pub fn answer(&self) -> Option<(usize, Answer)> {
        self.answers.try_recv().ok()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.abandon();
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            // A device that panicked was told of by the answers that never came.
            let _ = thread.join();
        }
    }
}

fn work(
    device: &dyn Device,
    abandoned: &AtomicU8,
    inbox: &Receiver<Task>,
    outbox: &Sender<(usize, Answer)>,
    mut ringer: PipeWriter,
) {
    while let Ok(Task { id, job, offset, length }) = inbox.recv() {
        let answer = perform(device, abandoned, job, offset, length);
        if outbox.send((id, answer)).is_err() || ringer.write_all(&[1]).is_err() {
            return;
        }
    }
}

fn perform(device: &dyn Device, abandoned: &AtomicU8, job: Job, offset: u64, length: u64) -> Answer {
    let is_hint = matches!(job, Job::Trim | Job::Cache);
    let in_pieces = |pieces: &mut dyn Iterator<Item = Range<u64>>,
                     act: &mut dyn FnMut(u64, u64) -> io::Result<()>| {
        loop {
            match abandoned.load(Ordering::Relaxed) {
                ALL => return Err(io::ErrorKind::Interrupted.into()),
                HINTS if is_hint => return Ok(Vec::new()),
                _ => {}
            }
            let Some(piece) = pieces.next() else { return Ok(Vec::new()) };
            act(piece.start, piece.end - piece.start)?;
        }
    };
    let range = offset..offset + length;
    match job {
        Job::Trim => {
            let range = whole_zones(device, whole_sectors(device, range));
            in_pieces(&mut discard_pieces(device, range, DISCARD), &mut |at, part| discard(device, at, part))
        }
        Job::Zero(how) => {
            in_pieces(&mut pieces(range, ZERO), &mut |at, part| device.write_zeroes(at, part, how))
        }
        Job::Cache => {
            let mut buffer = vec![0; FETCH.min(usize::try_from(length).unwrap_or(FETCH))];
            in_pieces(&mut pieces(range, FETCH as u64), &mut |at, part| {
                device.read_at(&mut buffer[..part as usize], at)
            })
        }
        Job::Extents(most) => extents(device, offset, length, most),
    }
}

/// A range in pieces of `step` bytes, the last of which may be less.
fn pieces(range: Range<u64>, step: u64) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    range.step_by(step as usize).map(move |at| at..end.min(at + step))
}

/// What of a range can be discarded: of a block device the sectors that lie inside. A discard is a hint
/// (doc/proto.md, `NBD_CMD_TRIM`).
fn whole_sectors(device: &dyn Device, range: Range<u64>) -> Range<u64> {
    if device.kind() == DeviceKind::File {
        return range;
    }
    range.start.next_multiple_of(SECTOR)..range.end - range.end % SECTOR
}

/// Discards; a device that knows no such thing has done its part.
fn discard(device: &dyn Device, offset: u64, length: u64) -> io::Result<()> {
    match device.discard(offset, length) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        result => result,
    }
}

/// Holes of a file; anything else is data throughout.
fn extents(device: &dyn Device, offset: u64, length: u64, most: usize) -> Answer {
    if device.kind() == DeviceKind::File && device.spread().is_none() {
        return extents::stretches(device.fd(), offset..offset + length, most);
    }
    Ok(vec![Stretch { length, hole: false }])
}
