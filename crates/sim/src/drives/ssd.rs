//! A flash drive by a few constants: what a data sheet says and a handful of measurements fix.
//!
//! - The front end, which is processor and link in one, serves commands one after the other: a fixed time each, and the
//!   transfer of their data. A read passes it twice: its command, then, when its pages are there, its data.
//! - Reads of pages lie on channels by their address; each channel reads one page at a time.
//! - Written pages go to a buffer of few pages and from there to the medium, where so many programs run at once. A write
//!   holds the front end while the buffer is full. With the write cache on, it ends when its last page is in the buffer, else
//!   when it is programmed.
//! - Garbage collection is a factor: a page of a random write costs as many programs. Every so many programs the medium
//!   stands still for an erase. When the first comes is drawn from the seed, so that the drives of a stripe stall at different times,
//!   and a stripe waits for each of them.

use measure::pattern::Rng;
use serde::Deserialize;

use crate::device::{Command, DeviceCounts, DeviceModel, Effects, Limits, Operation, Time};
use crate::values::{self, Bytes, Checked, ns, transfer_ns};

/// What the model is made of.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SsdSpec {
    /// Usable bytes.
    pub size: Bytes,
    /// Commands at once (NCQ: 32).
    pub queue_depth: u32,
    /// Flash page.
    pub page_bytes: Bytes,
    /// Front-end time of a command.
    pub command_us: f64,
    /// Data rate of the link after framing, bytes a second.
    pub link_bytes_per_s: f64,
    /// Time to read a page.
    pub read_us: f64,
    /// Channels that read side by side.
    pub channels: u32,
    /// Time to program a page, its transfer from the buffer included.
    pub program_us: f64,
    /// Programs at once.
    pub programs_at_once: u32,
    /// Programs between two stalls.
    pub programs_per_erase: u32,
    /// Length of a stall.
    pub erase_us: f64,
    /// Pages of the write buffer.
    pub buffer_pages: u32,
    /// Whether a write ends when it is in the buffer.
    pub write_cache: bool,
    /// Programs that a page of a random write costs.
    pub random_write_amplification: f64,
    /// A write that continues none of the last streams and is smaller than this is a random write.
    pub random_below_bytes: Bytes,
}

impl SsdSpec {
    /// Checks each value; `table` leads to them.
    ///
    /// # Errors
    /// [`InvalidMachine`](crate::error::InvalidMachine) naming the first that cannot be.
    pub fn check(&self, table: &str) -> Checked {
        let key = |name: &str| format!("{table}.{name}");
        values::multiple(&key("page_bytes"), self.page_bytes, 512, "a sector")?;
        values::within(
            &key("page_bytes"),
            self.page_bytes.0 as f64,
            512.0,
            1_048_576.0,
            "for instance \"4k\"",
        )?;
        values::multiple(&key("size"), self.size, self.page_bytes.0, "a page")?;
        let random_below = self.random_below_bytes.0 as f64;
        values::within(&key("random_below_bytes"), random_below, 0.0, 1e9, "for instance \"64k\"")?;
        values::rate(&key("link_bytes_per_s"), self.link_bytes_per_s)?;
        let amplification = self.random_write_amplification;
        let hint = "programs a page, for instance 4.6";
        values::within(&key("random_write_amplification"), amplification, 1.0, 1000.0, hint)?;
        let counts = [
            ("queue_depth", self.queue_depth),
            ("channels", self.channels),
            ("programs_at_once", self.programs_at_once),
            ("programs_per_erase", self.programs_per_erase),
            ("buffer_pages", self.buffer_pages),
        ];
        counts.into_iter().try_for_each(|(name, n)| values::count(&key(name), n, 1 << 20))?;
        let times = [
            ("command_us", self.command_us),
            ("read_us", self.read_us),
            ("program_us", self.program_us),
            ("erase_us", self.erase_us),
        ];
        times.into_iter().try_for_each(|(name, us)| values::micros(&key(name), us))
    }
}

/// Sequential streams of writes that the drive tells apart: a log that goes round a stripe comes back after a row of chunks, between
/// which other writes came.
const STREAMS: usize = 32;

/// The drive.
#[derive(Debug)]
pub struct Ssd {
    spec: SsdSpec,
    page_bytes: u32,
    /// The times of a command, and of a page's read, program and transfer, nanoseconds.
    command_ns: Time,
    read_ns: Time,
    program_ns: Time,
    page_transfer_ns: Time,
    /// When the front end is free.
    front_end: Time,
    /// When each channel is free.
    channels: Vec<Time>,
    /// When each place of the medium can program again.
    programs: Vec<Time>,
    /// When each page of the buffer is free.
    buffer: Vec<Time>,
    /// Programs until the next stall.
    until_erase: f64,
    /// No program starts before: the end of the last stall.
    stalled_until: Time,
    /// Where the last write streams ended, latest first.
    streams: [u64; STREAMS],
    /// Reads whose pages are being fetched, by token.
    reads: Vec<(u32, u32)>,
    free_tokens: Vec<u32>,
    counts: DeviceCounts,
    programmed_pages: f64,
}

/// The place that is free first.
#[inline]
fn earliest(free_at: &[Time]) -> usize {
    let mut least = 0;
    for (n, at) in free_at.iter().enumerate() {
        if *at < free_at[least] {
            least = n;
        }
    }
    least
}

impl Ssd {
    /// A drive whose first stall follows from `seed`.
    #[must_use]
    pub fn new(spec: SsdSpec, seed: u64) -> Self {
        let page_bytes = spec.page_bytes.0 as u32;
        Self {
            page_bytes,
            command_ns: ns(spec.command_us),
            read_ns: ns(spec.read_us),
            program_ns: ns(spec.program_us),
            page_transfer_ns: transfer_ns(page_bytes, spec.link_bytes_per_s),
            front_end: 0,
            channels: vec![0; spec.channels as usize],
            programs: vec![0; spec.programs_at_once as usize],
            buffer: vec![0; spec.buffer_pages as usize],
            until_erase: Rng::new(seed).unit() * f64::from(spec.programs_per_erase),
            stalled_until: 0,
            streams: [u64::MAX; STREAMS],
            reads: Vec::new(),
            free_tokens: Vec::new(),
            counts: DeviceCounts::default(),
            programmed_pages: 0.0,
            spec,
        }
    }

    /// Reads all pages of a command; returns when the data can flow to the host without a pause.
    fn fetch(&mut self, from: Time, command: &Command) -> Time {
        let page = u64::from(self.page_bytes);
        let first = command.offset / page;
        let pages = (command.offset + u64::from(command.bytes)).div_ceil(page) - first;
        let channels = self.channels.len() as u64;
        let mut ready = from;
        for n in 0..pages {
            let channel = &mut self.channels[((first + n) % channels) as usize];
            *channel = (*channel).max(from).saturating_add(self.read_ns);
            // The pages of earlier rows are on the link while this one is read.
            let on_the_link = n / channels * channels * self.page_transfer_ns;
            ready = ready.max(channel.saturating_sub(on_the_link));
        }
        ready
    }

    /// Programs one page that costs `cost` programs and is in the buffer at `from`; returns when it is done.
    fn program(&mut self, from: Time, cost: f64) -> Time {
        let first = earliest(&self.programs);
        let place = &mut self.programs[first];
        let start = (*place).max(from).max(self.stalled_until);
        let end = start.saturating_add((self.program_ns as f64 * cost) as Time);
        *place = end;
        self.until_erase -= cost;
        self.programmed_pages += cost;
        if self.until_erase <= 0.0 {
            self.until_erase += f64::from(self.spec.programs_per_erase);
            self.stalled_until = start.saturating_add(ns(self.spec.erase_us));
            self.counts.erases += 1;
        }
        end
    }

    /// Whether a write is random, and remembers where it ends.
    fn is_random(&mut self, command: &Command) -> bool {
        let end = command.offset + u64::from(command.bytes);
        let continues = self.streams.iter().position(|stream| *stream == command.offset);
        let place = continues.unwrap_or(STREAMS - 1);
        self.streams[..=place].rotate_right(1);
        self.streams[0] = end;
        continues.is_none() && u64::from(command.bytes) < self.spec.random_below_bytes.0
    }

    fn write(&mut self, now: Time, command: &Command, effects: &mut Effects) {
        let random = self.is_random(command);
        let cost = if random { self.spec.random_write_amplification } else { 1.0 };
        let mut at = self.front_end.max(now).saturating_add(self.command_ns);
        let mut left = command.bytes;
        let mut done = at;
        while left > 0 {
            let bytes = left.min(self.page_bytes);
            let page = earliest(&self.buffer);
            let transfer = transfer_ns(bytes, self.spec.link_bytes_per_s);
            at = at.max(self.buffer[page]).saturating_add(transfer);
            self.buffer[page] = self.program(at, cost);
            done = self.buffer[page].max(done);
            left -= bytes;
        }
        self.front_end = at;
        self.counts.host_write_bytes += u64::from(command.bytes);
        effects.complete(if self.spec.write_cache { at } else { done }, command.tag);
    }
}

impl DeviceModel for Ssd {
    fn limits(&self) -> Limits {
        Limits {
            size_bytes: self.spec.size.0,
            logical_block_bytes: 512,
            max_command_bytes: 32 << 20,
            queue_depth: self.spec.queue_depth,
        }
    }

    fn submit(&mut self, now: Time, command: Command, effects: &mut Effects) {
        match command.operation {
            Operation::Write => self.write(now, &command, effects),
            Operation::Read => {
                self.front_end = self.front_end.max(now).saturating_add(self.command_ns);
                let ready = self.fetch(self.front_end, &command);
                let read = (command.tag, command.bytes);
                let token = match self.free_tokens.pop() {
                    Some(token) => {
                        self.reads[token as usize] = read;
                        token
                    }
                    None => {
                        self.reads.push(read);
                        self.reads.len() as u32 - 1
                    }
                };
                effects.wake(ready, token);
            }
            Operation::Trim | Operation::Flush => {
                self.front_end = self.front_end.max(now).saturating_add(self.command_ns);
                effects.complete(self.front_end, command.tag);
            }
        }
    }

    fn wake(&mut self, now: Time, token: u32, effects: &mut Effects) {
        let (tag, bytes) = self.reads[token as usize];
        self.free_tokens.push(token);
        let transfer = transfer_ns(bytes, self.spec.link_bytes_per_s);
        self.front_end = self.front_end.max(now).saturating_add(transfer);
        effects.complete(self.front_end, tag);
    }

    fn counts(&self) -> DeviceCounts {
        let page = f64::from(self.page_bytes);
        DeviceCounts { media_write_bytes: (self.programmed_pages * page) as u64, ..self.counts }
    }
}
