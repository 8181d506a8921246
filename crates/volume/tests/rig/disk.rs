//! A disk in memory that loses what was not synced when the power goes, tears what was under way, and can be put back
//! to an earlier time.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use storage::device::{Device, DeviceKind, Geometry};

use super::random::Random;

/// What a disk writes whole or not at all.
pub const SECTOR: usize = 512;
/// For ever.
const NEVER: u32 = u32::MAX;

/// When the power goes, for all disks that share it: after so many writes and syncs.
#[derive(Debug)]
pub struct Clock {
    made: AtomicU32,
    stop_at: AtomicU32,
}

impl Default for Clock {
    /// Never.
    fn default() -> Self {
        Self { made: AtomicU32::new(0), stop_at: AtomicU32::new(NEVER) }
    }
}

impl Clock {
    /// Writes and syncs that were made.
    pub fn made(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }

    /// Lets the power go after so many more.
    pub fn stop_after(&self, steps: u32) {
        self.made.store(0, Ordering::Relaxed);
        self.stop_at.store(steps, Ordering::Relaxed);
    }

    /// Brings the power back, to stay.
    pub fn go_on(&self) {
        self.stop_after(NEVER);
    }

    pub fn is_stopped(&self) -> bool {
        self.made() > self.stop_at.load(Ordering::Relaxed)
    }

    fn step(&self) -> Step {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        match made.cmp(&self.stop_at.load(Ordering::Relaxed)) {
            std::cmp::Ordering::Less => Step::Whole,
            std::cmp::Ordering::Equal => Step::Last,
            std::cmp::Ordering::Greater => Step::Never,
        }
    }
}

/// How much of a step is made.
#[derive(PartialEq, Eq)]
enum Step {
    Whole,
    /// The power goes meanwhile.
    Last,
    Never,
}

/// A write that is not durable yet: what it put in the place of what.
#[derive(Debug)]
struct Volatile {
    at: usize,
    before: Vec<u8>,
    after: Vec<u8>,
}

#[derive(Debug)]
struct Media {
    /// With all that was written.
    bytes: Vec<u8>,
    volatile: Vec<Volatile>,
}

/// See the module's argument.
#[derive(Debug)]
pub struct Disk {
    name: String,
    media: Mutex<Media>,
    clock: Arc<Clock>,
    /// Whether it is open to be written; a reader that writes all the same is an error.
    pub writable: AtomicBool,
    pub writes: AtomicU64,
    pub syncs: AtomicU64,
    /// The next write that begins here is acknowledged and not made.
    pub loses: Mutex<Option<std::ops::Range<u64>>>,
    /// What cannot be read for the time being.
    pub unreadable: Mutex<std::ops::Range<u64>>,
    descriptor: File,
}

fn stopped() -> io::Error {
    io::Error::other("the power went")
}

impl Disk {
    pub fn of(number: usize, bytes: Vec<u8>, clock: &Arc<Clock>) -> Arc<Self> {
        let descriptor = File::open("/dev/null").expect("there is one");
        Arc::new(Self {
            name: format!("disk{number}"),
            media: Mutex::new(Media { bytes, volatile: Vec::new() }),
            clock: Arc::clone(clock),
            writable: AtomicBool::new(true),
            writes: AtomicU64::default(),
            syncs: AtomicU64::default(),
            loses: Mutex::default(),
            unreadable: Mutex::default(),
            descriptor,
        })
    }

    /// What was not synced is there, lost, or torn at a sector, as chance has it; and seldom a sector is left half written.
    pub fn lose_power(&self, random: &mut Random) {
        let mut media = self.media.lock().unwrap();
        let Media { bytes, volatile } = &mut *media;
        for Volatile { at, before, .. } in volatile.iter().rev() {
            bytes[*at..at + before.len()].copy_from_slice(before);
        }
        for Volatile { at, after, .. } in volatile.drain(..) {
            let fate = random.below(4);
            for (number, sector) in after.chunks(SECTOR).enumerate() {
                let kept = match fate {
                    0 => false,
                    1 => true,
                    // A prefix, or here and there.
                    2 => !random.one_in(8),
                    _ => random.one_in(2),
                };
                if kept {
                    let (at, length) = (at + number * SECTOR, sector.len());
                    let length = if random.one_in(4) { length / 2 } else { length };
                    bytes[at..at + length].copy_from_slice(&sector[..length]);
                }
            }
        }
    }

    /// All that it holds.
    pub fn image(&self) -> Vec<u8> {
        self.media.lock().unwrap().bytes.clone()
    }

    /// What it holds in some ranges.
    pub fn parts(&self, ranges: &[std::ops::Range<usize>]) -> Vec<Vec<u8>> {
        let media = self.media.lock().unwrap();
        ranges.iter().map(|range| media.bytes[range.clone()].to_vec()).collect()
    }

    /// Lets bits of a byte rot, on the medium and in what is on its way there.
    pub fn flip(&self, at: usize, bits: u8) {
        let mut media = self.media.lock().unwrap();
        media.bytes[at] ^= bits;
        for volatile in &mut media.volatile {
            let places = [&mut volatile.before, &mut volatile.after];
            for bytes in places {
                if let Some(byte) = at.checked_sub(volatile.at).and_then(|at| bytes.get_mut(at)) {
                    *byte ^= bits;
                }
            }
        }
    }

    /// Puts such parts back, durably, and past all counting.
    pub fn put_back(&self, ranges: &[std::ops::Range<usize>], parts: &[Vec<u8>]) {
        let mut media = self.media.lock().unwrap();
        media.volatile.clear();
        for (range, part) in ranges.iter().zip(parts) {
            media.bytes[range.clone()].copy_from_slice(part);
        }
    }
}

impl Device for Disk {
    fn spec(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Block
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        self.media.lock().unwrap().bytes.len() as u64
    }

    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 512, physical_block: 512, memory_alignment: 512 }
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Relaxed)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let unreadable = self.unreadable.lock().unwrap().clone();
        if offset < unreadable.end && unreadable.start < offset + buffer.len() as u64 {
            return Err(io::Error::other("it cannot be read for the time being"));
        }
        let media = self.media.lock().unwrap();
        buffer.copy_from_slice(&media.bytes[offset as usize..offset as usize + buffer.len()]);
        Ok(())
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        assert!(self.is_writable(), "nothing is written through {}", self.name);
        if self.loses.lock().unwrap().take_if(|range| range.contains(&offset)).is_some() {
            return Ok(());
        }
        let step = self.clock.step();
        if step != Step::Never {
            let (mut media, at) = (self.media.lock().unwrap(), offset as usize);
            let place = at..at + buffer.len();
            let before = media.bytes[place.clone()].to_vec();
            media.volatile.push(Volatile { at, before, after: buffer.to_vec() });
            media.bytes[place].copy_from_slice(buffer);
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        if step == Step::Whole { Ok(()) } else { Err(stopped()) }
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.clock.step() != Step::Whole {
            return Err(stopped());
        }
        self.media.lock().unwrap().volatile.clear();
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
