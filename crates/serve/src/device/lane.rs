//! What no engine makes asynchronously: discards, zeroing, fetching into the cache, looking up extents.
//!
//! A thread beside the conversation makes them one after the other, so that a discard of a terabyte keeps nobody from
//! reading meanwhile. It is started with the first of them. Its answers come through a channel, and a pipe becomes
//! readable with each.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use storage::device::{Device, DeviceKind, ZeroOptions};
use storage::extents::{self, Stretch};

/// Bytes that are fetched at a time.
const FETCH: usize = 1 << 20;
/// Discards of block devices are cut to multiples of this: the sector of the kernel's block layer.
const SECTOR: u64 = 512;

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
    thread: Option<JoinHandle<()>>,
}

impl Lane {
    pub fn start(device: &Arc<dyn Device>) -> io::Result<Self> {
        let (bell, ringer) = io::pipe()?;
        let (tasks, inbox) = channel();
        let (outbox, answers) = channel();
        let device = Arc::clone(device);
        let thread = std::thread::Builder::new()
            .name("nbd-slow".into())
            .spawn(move || work(&*device, &inbox, &outbox, ringer))?;
        Ok(Self { tasks: Some(tasks), answers, bell, thread: Some(thread) })
    }

    /// Hands over a task. False where the thread is gone, because the device panicked.
    pub fn ask(&self, id: usize, job: Job, offset: u64, length: u64) -> bool {
        self.tasks.as_ref().is_some_and(|tasks| tasks.send(Task { id, job, offset, length }).is_ok())
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
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            // A device that panicked was told of by the answers that never came.
            let _ = thread.join();
        }
    }
}

fn work(
    device: &dyn Device,
    inbox: &Receiver<Task>,
    outbox: &Sender<(usize, Answer)>,
    mut ringer: PipeWriter,
) {
    while let Ok(Task { id, job, offset, length }) = inbox.recv() {
        let answer = perform(device, job, offset, length);
        if outbox.send((id, answer)).is_err() || ringer.write_all(&[1]).is_err() {
            return;
        }
    }
}

fn perform(device: &dyn Device, job: Job, offset: u64, length: u64) -> Answer {
    let nothing = |()| Vec::new();
    match job {
        Job::Trim => trim(device, offset, length).map(nothing),
        Job::Zero(how) => device.write_zeroes(offset, length, how).map(nothing),
        Job::Cache => fetch(device, offset, length).map(nothing),
        Job::Extents(most) => extents(device, offset, length, most),
    }
}

/// Discards. It is a hint (doc/proto.md, `NBD_CMD_TRIM`), so a device that knows no such thing has done its part, and of a
/// block device the sectors that lie inside are discarded.
fn trim(device: &dyn Device, offset: u64, length: u64) -> io::Result<()> {
    let (mut begin, mut end) = (offset, offset + length);
    if device.kind() != DeviceKind::File {
        (begin, end) = (begin.next_multiple_of(SECTOR), end - end % SECTOR);
    }
    if begin >= end {
        return Ok(());
    }
    match device.discard(begin, end - begin) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        result => result,
    }
}

fn fetch(device: &dyn Device, offset: u64, length: u64) -> io::Result<()> {
    let mut buffer = vec![0; FETCH.min(usize::try_from(length).unwrap_or(FETCH))];
    let mut done = 0;
    while done < length {
        let part = (FETCH as u64).min(length - done) as usize;
        device.read_at(&mut buffer[..part], offset + done)?;
        done += part as u64;
    }
    Ok(())
}

/// Holes of a file; anything else is data throughout.
fn extents(device: &dyn Device, offset: u64, length: u64, most: usize) -> Answer {
    if device.kind() == DeviceKind::File && device.spread().is_none() {
        return extents::stretches(device.fd(), offset..offset + length, most);
    }
    Ok(vec![Stretch { length, hole: false }])
}
