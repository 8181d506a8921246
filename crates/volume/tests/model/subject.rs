//! A volume, the model of it, and random operations on both.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use storage::device::{Device, DeviceSpec, OpenError, OpenOptions, ZeroOptions};
use volume::{NewVolume, Queue, QueueOptions, Ticket, Volume, VolumeError};

use crate::rig::random::Random;
use crate::rig::{KIB, writing};

/// The longest request, bytes.
const LONGEST: u64 = 64 * KIB;
/// What block devices discard.
const SECTOR: u64 = 512;

/// Where a volume comes from, each time that it is opened.
#[derive(Debug)]
pub enum Source {
    /// Devices that stay open, with labels on them.
    Members(Vec<Arc<dyn Device>>),
    /// What a spec names, closed in between.
    Spec(Box<DeviceSpec>, OpenOptions),
}

impl Source {
    /// What `text` names, to be opened directly or not. Whatever lies there may be lost.
    pub fn spec(text: &str, direct: bool) -> Self {
        let spec = DeviceSpec::parse(text).expect("a spec");
        let name = |leaf: &DeviceSpec| {
            leaf.path().map_or_else(|| PathBuf::from(leaf.to_string()), |path| path.to_owned())
        };
        // What chance writes may look like somebody's signature.
        let destroy = spec.leaves().into_iter().map(name).collect();
        Self::Spec(Box::new(spec), OpenOptions { destroy, ..writing(direct) })
    }

    /// The volume; of a labelled one the members in an order that chance gives.
    fn open(&self, random: &mut Random) -> Volume {
        match self {
            Self::Members(members) => {
                let mut members = members.clone();
                random.shuffle(&mut members);
                Volume::of_members(members).expect("the labels are as they were").0
            }
            Self::Spec(spec, options) => {
                let mut spec = DeviceSpec::clone(spec);
                if let DeviceSpec::Volume { members } = &mut spec {
                    random.shuffle(members);
                }
                Volume::open(&spec, options).unwrap_or_else(|error| panic!("{spec}: {error}"))
            }
        }
    }

    /// Whether it can be opened. What cannot, because its file system has no direct I/O, is said.
    pub fn is_possible(&self) -> bool {
        let Self::Spec(spec, options) = self else { return true };
        match Volume::open(spec, options) {
            Err(VolumeError::Open(error @ OpenError::DirectUnsupported { .. })) => {
                println!("SKIP {spec} directly: {error}");
                false
            }
            _ => true,
        }
    }

    /// Whether what was written is there when it is opened again.
    fn is_lasting(&self) -> bool {
        let is_memory = |leaf: &&DeviceSpec| matches!(leaf, DeviceSpec::Memory { .. });
        match self {
            Self::Members(_) => true,
            Self::Spec(spec, _) => !spec.leaves().iter().any(is_memory),
        }
    }
}

/// What is closed and opened again.
struct Opened {
    volume: Volume,
    queue: Queue,
}

impl Opened {
    fn from(source: &Source, random: &mut Random) -> Self {
        let volume = source.open(random);
        let queue = volume.queue(&QueueOptions { depth: 4, ..QueueOptions::default() }).expect("a queue");
        Self { volume, queue }
    }
}

/// A volume and what it should hold.
pub struct Subject {
    label: &'static str,
    source: Source,
    opened: Option<Opened>,
    model: Vec<u8>,
    random: Random,
    /// Fresh bytes to write, more than any request.
    noise: Vec<u8>,
    scratch: Vec<u8>,
    tally: Tally,
}

/// What was done, in operations.
#[derive(Debug, Default)]
struct Tally {
    plain: u64,
    queued: u64,
    opened_again: u64,
}

impl Subject {
    /// A labelled volume, newly made.
    pub fn labelled(label: &'static str, source: Source, chunk: u64, seed: u64) -> Self {
        let new = NewVolume { name: label.to_owned(), chunk, ..NewVolume::default() };
        match &source {
            Source::Members(members) => volume::create_on(members, &new),
            Source::Spec(spec, options) => volume::create(spec, &new, &options.destroy),
        }
        .expect(label);
        Self::over(label, source, seed)
    }

    /// What can be opened as it is.
    pub fn over(label: &'static str, source: Source, seed: u64) -> Self {
        let mut random = Random::of(seed);
        let opened = Opened::from(&source, &mut random);
        let model = vec![0; opened.volume.size() as usize];
        opened.volume.write_at(&model, 0).expect(label);
        let noise = (0..2 * LONGEST / 8).flat_map(|_| random.next().to_le_bytes()).collect();
        let scratch = vec![0; LONGEST as usize];
        let (opened, tally) = (Some(opened), Tally::default());
        Self { label, source, opened, model, random, noise, scratch, tally }
    }

    fn volume(&self) -> &Volume {
        &self.opened.as_ref().expect("it is open").volume
    }

    fn queue(&mut self) -> &mut Queue {
        &mut self.opened.as_mut().expect("it is open").queue
    }

    fn block(&self) -> u64 {
        u64::from(self.volume().block())
    }

    /// A range of whole units, mostly short, now and then over several rows of chunks.
    fn range(&mut self, unit: u64) -> Range<usize> {
        let longest = match self.random.below(16) {
            0 => LONGEST,
            1..4 => 16 * KIB,
            _ => 2 * KIB,
        };
        let units = self.model.len() as u64 / unit;
        let length = 1 + self.random.below((longest / unit).max(1));
        let start = self.random.below(units - length.min(units - 1));
        let end = (start + length).min(units);
        (start * unit) as usize..(end * unit) as usize
    }

    /// A range of bytes, or of blocks, which take another way where they are larger than a byte.
    fn any_range(&mut self) -> Range<usize> {
        let unit = if self.random.one_in(4) { 1 } else { self.block() };
        self.range(unit)
    }

    fn fresh(&mut self, length: usize) -> Range<usize> {
        let start = self.random.below(LONGEST) as usize;
        start..start + length
    }

    fn assert_holds(&self, found: &[u8], range: &Range<usize>, how: &str) {
        let expected = &self.model[range.clone()];
        if found == expected {
            return;
        }
        let at = found.iter().zip(expected).position(|(one, other)| one != other).unwrap_or(0);
        let (found, expected) = (found[at], expected[at]);
        panic!("{}: {how} of {range:?}: byte {} is {found}, not {expected}", self.label, range.start + at);
    }

    /// One operation, or a batch of several.
    fn step(&mut self) {
        match self.random.below(1000) {
            0..380 => self.read(),
            380..740 => self.write(),
            740..800 => self.read_vectored(),
            800..860 => self.write_vectored(),
            860..970 => return self.batch(),
            970..980 => self.discard(),
            980..990 => self.zero(),
            990 if self.random.one_in(2) => self.volume().sync().expect("syncs"),
            991 if self.source.is_lasting() && self.random.one_in(4) => return self.reopen(),
            _ => self.read(),
        }
        self.tally.plain += 1;
    }

    fn read(&mut self) {
        let range = self.any_range();
        let mut found = std::mem::take(&mut self.scratch);
        self.volume().read_at(&mut found[..range.len()], range.start as u64).expect("reads");
        self.assert_holds(&found[..range.len()], &range, "read");
        self.scratch = found;
    }

    fn write(&mut self) {
        let range = self.any_range();
        let fresh = self.fresh(range.len());
        self.volume().write_at(&self.noise[fresh.clone()], range.start as u64).expect("writes");
        self.model[range].copy_from_slice(&self.noise[fresh]);
    }

    /// Two places at which a range is cut in three, any of them empty.
    fn cuts(&mut self, length: usize) -> (usize, usize) {
        let cut = |random: &mut Random| random.below(length as u64 + 1) as usize;
        let (one, other) = (cut(&mut self.random), cut(&mut self.random));
        (one.min(other), one.max(other))
    }

    fn read_vectored(&mut self) {
        let range = self.any_range();
        let (first, second) = self.cuts(range.len());
        let mut found = vec![0; range.len()];
        let (head, rest) = found.split_at_mut(first);
        let (middle, tail) = rest.split_at_mut(second - first);
        let mut buffers = [head, middle, tail].map(IoSliceMut::new);
        self.volume().read_vectored_at(&mut buffers, range.start as u64).expect("reads");
        self.assert_holds(&found, &range, "vectored read");
    }

    fn write_vectored(&mut self) {
        let range = self.any_range();
        let (first, second) = self.cuts(range.len());
        let fresh = self.fresh(range.len());
        let bytes = &self.noise[fresh];
        let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]].map(IoSlice::new);
        self.volume().write_vectored_at(&parts, range.start as u64).expect("writes");
        self.model[range].copy_from_slice(bytes);
    }

    /// What can be discarded, and reads as zeros then: whole sectors and whole blocks.
    fn discardable(&mut self) -> Range<usize> {
        self.range(self.block().max(SECTOR))
    }

    fn discard(&mut self) {
        let range = self.discardable();
        self.volume().discard(range.start as u64, range.len() as u64).expect("discards");
        self.model[range].fill(0);
    }

    fn zero(&mut self) {
        let range = self.any_range();
        let how = ZeroOptions { keep_space: self.random.one_in(2), fast_only: self.random.one_in(2) };
        match self.volume().device().write_zeroes(range.start as u64, range.len() as u64, how) {
            Ok(()) => self.model[range].fill(0),
            // Nothing was changed, which reads find out.
            Err(error) => {
                let is_slow = how.fast_only && error.kind() == std::io::ErrorKind::Unsupported;
                assert!(is_slow, "{}: zeroes {range:?} with {how:?}: {error}", self.label);
            }
        }
    }

    /// Up to eight requests at once through the queue, none of which overlaps another.
    fn batch(&mut self) {
        let mut asked: Vec<(Ticket, Range<usize>, bool)> = Vec::new();
        for _ in 0..1 + self.random.below(8) {
            let what = self.random.below(64);
            let range = if what == 0 { self.discardable() } else { self.range(self.block()) };
            if asked.iter().any(|(_, other, _)| range.start < other.end && other.start < range.end) {
                continue;
            }
            let (start, length) = (range.start as u64, range.len());
            let ticket = match what {
                0 => {
                    self.model[range.clone()].fill(0);
                    self.queue().discard(start, length as u64)
                }
                1..32 => {
                    let fresh = self.fresh(length);
                    let bytes = self.noise[fresh].to_vec();
                    self.model[range.clone()].copy_from_slice(&bytes);
                    self.queue().write(start, bytes)
                }
                _ => self.queue().read(start, vec![0; length]),
            };
            asked.push((ticket.expect("inside and aligned"), range, what >= 32));
        }
        if self.random.one_in(200) {
            asked.push((self.queue().sync(), 0..0, false));
        }
        let mut over = 0;
        while let Some(done) = self.queue().wait().expect("the engine goes on") {
            done.result.expect("nothing fails");
            let (_, range, is_read) =
                asked.iter().find(|(ticket, ..)| *ticket == done.ticket).expect("it was asked for");
            if *is_read {
                self.assert_holds(&done.buffer, range, "queued read");
            }
            over += 1;
        }
        assert_eq!(over, asked.len(), "each comes back once");
        self.tally.queued += over as u64;
    }

    fn reopen(&mut self) {
        // Closed first: what is written is written by one at a time.
        self.opened = None;
        self.opened = Some(Opened::from(&self.source, &mut self.random));
        self.tally.opened_again += 1;
    }

    /// Makes at least `operations`, and then looks at the whole.
    pub fn run(mut self, operations: u64) {
        while self.tally.plain + self.tally.queued < operations {
            self.step();
        }
        if self.source.is_lasting() {
            self.reopen();
        }
        let all = 0..self.model.len();
        let mut found = vec![0; all.len()];
        self.volume().read_at(&mut found, 0).expect("reads");
        self.assert_holds(&found, &all, "the whole");
        let Tally { plain, queued, opened_again } = self.tally;
        let (label, spec) = (self.label, self.volume().device().spec());
        println!(
            "{label}: {} operations, {queued} of them queued, opened again {opened_again} times: {spec}",
            plain + queued
        );
    }
}
