//! A drive without a host: a load that keeps a number of commands in it, at no cost but the drive's. For what compares drive
//! models with other simulators, fits their constants, or tests them.

use measure::pattern::Rng;

use crate::device::{Command, DeviceCounts, DeviceModel, Effects, Operation, Time};
use crate::event::Events;

/// What is asked of the drive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Share of reads; the others are writes.
    pub reads: f64,
    /// Random places, multiples of `align_bytes`; otherwise one after another.
    pub random: bool,
    /// Bytes of each command.
    pub block_bytes: u32,
    /// Bytes between possible places.
    pub align_bytes: u32,
    /// Share of the drive that is used, from its start.
    pub share: f64,
    /// Commands in the drive.
    pub depth: u32,
    /// Commands that are not counted, at the start.
    pub ramp: u64,
    /// Commands that are counted.
    pub commands: u64,
}

/// What was seen of the counted commands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Commands a second.
    pub iops: f64,
    /// Mean time from submission to completion, nanoseconds.
    pub mean_ns: f64,
    /// Longest such time.
    pub max_ns: Time,
    /// Bytes programmed per byte written by the host; 1 without writes.
    pub write_amplification: f64,
}

/// Runs `load` on `drive`, which is new. The same seed gives the same answer.
pub fn run<M: DeviceModel + ?Sized>(drive: &mut M, load: &Load, seed: u64) -> Seen {
    series(drive, load, seed, 1)[0]
}

/// Runs `load` on `drive`, which is new, with `windows` times its counted commands, and returns what was seen of each time.
pub fn series<M: DeviceModel + ?Sized>(drive: &mut M, load: &Load, seed: u64, windows: usize) -> Vec<Seen> {
    let mut next = Commands::new(load, drive.limits().size_bytes, seed);
    let mut events = Events::<Event>::default();
    let mut submitted = vec![0; load.depth as usize];
    let mut effects = Effects::default();
    for tag in 0..load.depth {
        drive.submit(0, next.command(tag), &mut effects);
        take(&mut events, &mut effects);
    }
    let mut all = Vec::with_capacity(windows);
    let mut window = Window { start: 0, ended: 0, sum: 0, max_ns: 0, counts: drive.counts() };
    let mut ramp = load.ramp;
    while all.len() < windows {
        let event = events.pop().expect("a drive that holds commands has an event to come");
        let now = event.at;
        match event.kind {
            Event::Wake(token) => drive.wake(now, token, &mut effects),
            Event::Completion(tag) => {
                let took = now - std::mem::replace(&mut submitted[tag as usize], now);
                window.ended += 1;
                window.sum += u128::from(took);
                window.max_ns = window.max_ns.max(took);
                if ramp > 0 {
                    ramp -= 1;
                    window = Window { start: now, ended: 0, sum: 0, max_ns: 0, counts: drive.counts() };
                } else if window.ended == load.commands {
                    all.push(window.seen(now, drive.counts()));
                    window = Window { start: now, ended: 0, sum: 0, max_ns: 0, counts: drive.counts() };
                }
                drive.submit(now, next.command(tag), &mut effects);
            }
        }
        take(&mut events, &mut effects);
    }
    all
}

/// The commands of a load, one after another.
struct Commands {
    load: Load,
    places: u64,
    step: u64,
    next: u64,
    rng: Rng,
}

impl Commands {
    fn new(load: &Load, size_bytes: u64, seed: u64) -> Self {
        let step = u64::from(load.block_bytes.div_ceil(load.align_bytes));
        let places = (size_bytes as f64 * load.share) as u64 / u64::from(load.align_bytes);
        Self {
            load: *load,
            places: (places + 1).saturating_sub(step).max(1),
            step,
            next: 0,
            rng: Rng::new(seed),
        }
    }

    fn command(&mut self, tag: u32) -> Command {
        let place = if self.load.random { self.rng.below(self.places) } else { self.next };
        self.next = (self.next + self.step) % self.places;
        let reads = self.load.reads;
        let read = reads >= 1.0 || (reads > 0.0 && self.rng.unit() < reads);
        let operation = if read { Operation::Read } else { Operation::Write };
        Command {
            tag,
            operation,
            offset: place * u64::from(self.load.align_bytes),
            bytes: self.load.block_bytes,
        }
    }
}

/// What happens at an instant.
#[derive(Debug, Clone, Copy)]
enum Event {
    Wake(u32),
    Completion(u32),
}

/// Puts what a call of the drive made happen in the order of time.
fn take(events: &mut Events<Event>, effects: &mut Effects) {
    for (at, tag) in effects.completions.drain(..) {
        events.push(at, Event::Completion(tag));
    }
    for (at, token) in effects.wakes.drain(..) {
        events.push(at, Event::Wake(token));
    }
}

/// Sums of the commands that are counted.
struct Window {
    start: Time,
    ended: u64,
    sum: u128,
    max_ns: Time,
    counts: DeviceCounts,
}

impl Window {
    fn seen(&self, now: Time, counts: DeviceCounts) -> Seen {
        let host = counts.host_write_bytes - self.counts.host_write_bytes;
        let media = counts.media_write_bytes - self.counts.media_write_bytes;
        Seen {
            iops: self.ended as f64 * 1e9 / (now - self.start).max(1) as f64,
            mean_ns: self.sum as f64 / self.ended as f64,
            max_ns: self.max_ns,
            write_amplification: if host == 0 { 1.0 } else { media as f64 / host as f64 },
        }
    }
}
