//! A disk: one arm, a seek by its distance, rotation, and zones whose tracks hold less towards the middle.
//!
//! The seek from track to track, over the whole surface, and the square root between them are the usual form (Ruemmler and
//! Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994). Where the platter stands after a seek is drawn.
//! A command that begins where the last one ended neither seeks nor waits for the platter. Of the commands in its queue
//! it takes the one with the shortest seek; those that come meanwhile wait until the queue is done, so that none waits for ever.

use measure::pattern::Rng;
use serde::Deserialize;

use crate::device::{Command, DeviceCounts, DeviceModel, Effects, Limits, Operation, Time};
use crate::error::InvalidMachine;
use crate::values::{self, Bytes, Checked};

/// What the model is made of.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskSpec {
    /// Usable bytes.
    pub size: Bytes,
    /// Commands at once.
    pub queue_depth: u32,
    /// Overhead of a command.
    pub command_us: f64,
    /// Seek to the next track.
    pub track_seek_us: f64,
    /// Seek over the whole surface.
    pub full_seek_us: f64,
    /// Revolutions a minute.
    pub rpm: f64,
    /// Data rate of the outermost zone, bytes a second.
    pub outer_bytes_per_s: f64,
    /// Data rate of the innermost zone, bytes a second.
    pub inner_bytes_per_s: f64,
    /// Zones of equal capacity.
    pub zones: u32,
}

impl DiskSpec {
    /// Checks each value; `table` leads to them.
    ///
    /// # Errors
    /// [`InvalidMachine`] naming the first that cannot be.
    pub fn check(&self, table: &str) -> Checked {
        let key = |name: &str| format!("{table}.{name}");
        values::multiple(&key("size"), self.size, 512, "a sector")?;
        values::count(&key("queue_depth"), self.queue_depth, 65_536)?;
        values::count(&key("zones"), self.zones, 10_000)?;
        values::within(&key("rpm"), self.rpm, 1.0, 1e6, "revolutions a minute, for instance 7200")?;
        values::micros(&key("command_us"), self.command_us)?;
        values::micros(&key("track_seek_us"), self.track_seek_us)?;
        values::micros(&key("full_seek_us"), self.full_seek_us)?;
        values::rate(&key("outer_bytes_per_s"), self.outer_bytes_per_s)?;
        values::rate(&key("inner_bytes_per_s"), self.inner_bytes_per_s)?;
        if self.full_seek_us >= self.track_seek_us {
            return Ok(());
        }
        let reason = format!("is less than the seek to the next track, {}", self.track_seek_us);
        Err(InvalidMachine::new(key("full_seek_us"), self.full_seek_us, reason, "exchange the two"))
    }
}

/// The disk.
#[derive(Debug)]
pub struct Disk {
    spec: DiskSpec,
    rng: Rng,
    /// Where the arm stands: the byte after the last one served.
    arm: u64,
    waiting: Vec<Command>,
    /// Commands that came since the first of `waiting` was served.
    arrived: Vec<Command>,
    is_busy: bool,
    counts: DeviceCounts,
}

impl Disk {
    /// A disk whose rotation follows from `seed`.
    #[must_use]
    pub fn new(spec: DiskSpec, seed: u64) -> Self {
        let rng = Rng::new(seed);
        Self {
            spec,
            rng,
            arm: 0,
            waiting: Vec::new(),
            arrived: Vec::new(),
            is_busy: false,
            counts: DeviceCounts::default(),
        }
    }

    fn rate(&self, offset: u64) -> f64 {
        let c = &self.spec;
        let zone = (u128::from(offset) * u128::from(c.zones) / u128::from(c.size.0)) as f64;
        let part = if c.zones > 1 { zone / f64::from(c.zones - 1) } else { 0.0 };
        c.outer_bytes_per_s + (c.inner_bytes_per_s - c.outer_bytes_per_s) * part.min(1.0)
    }

    /// Time to bring the head to `offset`.
    fn position_ns(&mut self, offset: u64) -> f64 {
        if offset == self.arm {
            return 0.0;
        }
        let c = &self.spec;
        let distance = offset.abs_diff(self.arm) as f64 / c.size.0 as f64;
        let seek = (c.track_seek_us + (c.full_seek_us - c.track_seek_us) * distance.sqrt()) * 1e3;
        seek + self.rng.unit() * 60e9 / c.rpm
    }

    fn start(&mut self, now: Time, effects: &mut Effects) {
        if self.waiting.is_empty() {
            std::mem::swap(&mut self.waiting, &mut self.arrived);
        }
        let nearest = (0..self.waiting.len()).min_by_key(|n| self.waiting[*n].offset.abs_diff(self.arm));
        let Some(nearest) = nearest else { return self.is_busy = false };
        let command = self.waiting.swap_remove(nearest);
        self.is_busy = true;
        let moves = matches!(command.operation, Operation::Read | Operation::Write);
        let mut time = self.spec.command_us * 1e3;
        if moves {
            time +=
                self.position_ns(command.offset) + f64::from(command.bytes) / self.rate(command.offset) * 1e9;
            self.arm = command.offset + u64::from(command.bytes);
        }
        let end = now.saturating_add(time as Time);
        effects.complete(end, command.tag);
        effects.wake(end, 0);
    }
}

impl DeviceModel for Disk {
    fn limits(&self) -> Limits {
        Limits {
            size_bytes: self.spec.size.0,
            logical_block_bytes: 512,
            max_command_bytes: 32 << 20,
            queue_depth: self.spec.queue_depth,
        }
    }

    fn submit(&mut self, now: Time, command: Command, effects: &mut Effects) {
        if command.operation == Operation::Write {
            self.counts.host_write_bytes += u64::from(command.bytes);
            self.counts.media_write_bytes += u64::from(command.bytes);
        }
        self.arrived.push(command);
        if !self.is_busy {
            self.start(now, effects);
        }
    }

    fn wake(&mut self, now: Time, _token: u32, effects: &mut Effects) {
        self.start(now, effects);
    }

    fn counts(&self) -> DeviceCounts {
        self.counts
    }
}
