//! A million random operations on labelled volumes over every kind of device, against a model that is an array of
//! bytes: reads and writes of any length at any place, vectored ones, batches through a queue, syncs, discards, and
//! now and then the volume closed and opened again with its members in another order.
//!
//! After fsx, with which Apple and NeXT tested their file systems. `SEED=… cargo test …` repeats a run, and
//! `OPERATIONS=…` makes it shorter or longer.

mod rig;

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rig::{KIB, Loop, MIB, seed};
use storage::device::{self, Device, DeviceSpec, OpenOptions};
use volume::{NewVolume, Queue, QueueOptions, Volume};

/// All tests of this file together.
const OPERATIONS: u64 = 1_000_000;
const MEMBER: u64 = MIB + 192 * KIB;

/// Marsaglia's xorshift64 (2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        // The low bits of a xorshift are its weakest.
        (self.next() >> 11) % bound
    }
}

/// A volume and what it should hold.
struct Subject {
    label: &'static str,
    members: Vec<Arc<dyn Device>>,
    volume: Volume,
    queue: Queue,
    model: Vec<u8>,
    random: Random,
    /// What offsets and lengths are multiples of.
    unit: u64,
    /// Whether what was discarded reads as zeros.
    discards: bool,
    /// Fresh bytes to write, more than any request.
    noise: Vec<u8>,
    scratch: Vec<u8>,
}

/// The longest request, bytes.
const LONGEST: u64 = 64 * KIB;

impl Subject {
    fn over(
        label: &'static str,
        members: Vec<Arc<dyn Device>>,
        chunk: u64,
        unit: u64,
        discards: bool,
        seed: u64,
    ) -> Self {
        volume::create_on(&members, &NewVolume { name: label.to_owned(), chunk }).expect(label);
        let mut random = Random(seed | 1);
        let (volume, queue) = open(&members, &mut random);
        let model = vec![0; volume.size() as usize];
        volume.write_at(&model, 0).expect(label);
        let noise = (0..2 * LONGEST / 8).flat_map(|_| random.next().to_le_bytes()).collect();
        let scratch = vec![0; LONGEST as usize];
        Self { label, members, volume, queue, model, random, unit, discards, noise, scratch }
    }

    /// A range, mostly short, now and then over several rows of chunks.
    fn range(&mut self) -> Range<usize> {
        let longest = match self.random.below(16) {
            0 => LONGEST,
            1..4 => 16 * KIB,
            _ => 2 * KIB,
        };
        let units = self.model.len() as u64 / self.unit;
        let length = 1 + self.random.below((longest / self.unit).max(1));
        let start = self.random.below(units - length.min(units - 1));
        let end = (start + length).min(units);
        (start * self.unit) as usize..(end * self.unit) as usize
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

    /// One operation, or a batch of several; how many.
    fn step(&mut self) -> u64 {
        match self.random.below(1000) {
            0..420 => self.read(),
            420..800 => self.write(),
            800..860 => self.read_vectored(),
            860..920 => self.write_vectored(),
            920..990 => return self.batch(),
            990..995 if self.discards => self.discard(),
            995 => self.volume.sync().expect("syncs"),
            996 if self.random.below(20) == 0 => self.reopen(),
            _ => self.read(),
        }
        1
    }

    fn read(&mut self) {
        let range = self.range();
        let mut found = std::mem::take(&mut self.scratch);
        self.volume.read_at(&mut found[..range.len()], range.start as u64).expect("reads");
        self.assert_holds(&found[..range.len()], &range, "read");
        self.scratch = found;
    }

    fn write(&mut self) {
        let range = self.range();
        let fresh = self.fresh(range.len());
        self.volume.write_at(&self.noise[fresh.clone()], range.start as u64).expect("writes");
        self.model[range].copy_from_slice(&self.noise[fresh]);
    }

    /// Two places at which a range is cut in three, any of them empty.
    fn cuts(&mut self, length: usize) -> (usize, usize) {
        let cut = |random: &mut Random| random.below(length as u64 + 1) as usize;
        let (one, other) = (cut(&mut self.random), cut(&mut self.random));
        (one.min(other), one.max(other))
    }

    fn read_vectored(&mut self) {
        let range = self.range();
        let (first, second) = self.cuts(range.len());
        let mut found = vec![0; range.len()];
        let (head, rest) = found.split_at_mut(first);
        let (middle, tail) = rest.split_at_mut(second - first);
        let mut buffers = [head, middle, tail].map(IoSliceMut::new);
        self.volume.read_vectored_at(&mut buffers, range.start as u64).expect("reads");
        self.assert_holds(&found, &range, "vectored read");
    }

    fn write_vectored(&mut self) {
        let range = self.range();
        let (first, second) = self.cuts(range.len());
        let fresh = self.fresh(range.len());
        let bytes = &self.noise[fresh];
        let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]].map(IoSlice::new);
        self.volume.write_vectored_at(&parts, range.start as u64).expect("writes");
        self.model[range].copy_from_slice(bytes);
    }

    /// Up to eight requests at once through the queue, none of which overlaps another.
    fn batch(&mut self) -> u64 {
        let mut taken: Vec<(Range<usize>, bool)> = Vec::new();
        for _ in 0..1 + self.random.below(8) {
            let range = self.range();
            if taken.iter().any(|(other, _)| range.start < other.end && other.start < range.end) {
                continue;
            }
            let writes = self.random.below(2) == 0;
            let ticket = if writes {
                let fresh = self.fresh(range.len());
                let bytes = self.noise[fresh].to_vec();
                self.model[range.clone()].copy_from_slice(&bytes);
                self.queue.write(range.start as u64, bytes)
            } else {
                self.queue.read(range.start as u64, vec![0; range.len()])
            };
            ticket.expect("inside and aligned");
            taken.push((range, writes));
        }
        let mut over = 0;
        while let Some(done) = self.queue.wait().expect("the engine goes on") {
            done.result.expect("nothing fails");
            let place = done.offset as usize..done.offset as usize + done.buffer.len();
            let asked = taken.iter().find(|(range, _)| *range == place).expect("it was asked for");
            if !asked.1 {
                self.assert_holds(&done.buffer, &place, "queued read");
            }
            over += 1;
        }
        assert_eq!(over, taken.len(), "each comes back once");
        over as u64
    }

    fn discard(&mut self) {
        let range = self.range();
        self.volume.discard(range.start as u64, range.len() as u64).expect("discards");
        self.model[range].fill(0);
    }

    fn reopen(&mut self) {
        (self.volume, self.queue) = open(&self.members, &mut self.random);
    }

    fn run(mut self, operations: u64) {
        let mut made = 0;
        while made < operations {
            made += self.step();
        }
        self.reopen();
        let all = 0..self.model.len();
        let mut found = vec![0; all.len()];
        self.volume.read_at(&mut found, 0).expect("reads");
        self.assert_holds(&found, &all, "the whole");
        println!("{}: {made} operations on {}", self.label, self.volume.device().spec());
    }
}

/// The volume of these members, in an order that chance gives.
fn open(members: &[Arc<dyn Device>], random: &mut Random) -> (Volume, Queue) {
    let mut shuffled = members.to_vec();
    for at in (1..shuffled.len()).rev() {
        shuffled.swap(at, random.below(at as u64 + 1) as usize);
    }
    let (volume, _) = Volume::of_members(shuffled).expect("the labels are as they were");
    let queue = volume.queue(&QueueOptions { depth: 4, ..QueueOptions::default() }).expect("a queue");
    (volume, queue)
}

fn share(percent: u64) -> u64 {
    let given = std::env::var("OPERATIONS").ok();
    let all = given.map_or(OPERATIONS, |text| text.parse().expect("OPERATIONS is a number"));
    all * percent / 100
}

fn opened(spec: &DeviceSpec, direct: bool) -> Arc<dyn Device> {
    let options = OpenOptions { direct, ..OpenOptions::writing() };
    device::open(spec, &options).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

fn memory(count: usize) -> Vec<Arc<dyn Device>> {
    (0..count).map(|_| opened(&DeviceSpec::Memory { size: MEMBER }, false)).collect()
}

fn files(folder: &Path, count: usize) -> Vec<Arc<dyn Device>> {
    let path = |n| folder.join(format!("member{n}"));
    (0..count).map(|n| opened(&DeviceSpec::File { path: path(n), size: Some(MEMBER) }, false)).collect()
}

fn on_loops(loops: &[Loop], direct: bool) -> Vec<Arc<dyn Device>> {
    loops.iter().map(|l| opened(&DeviceSpec::Path(PathBuf::from(&l.path)), direct)).collect()
}

#[test]
fn memory_holds_what_the_model_holds() {
    Subject::over("memory", memory(3), 20 * KIB, 1, true, seed()).run(share(30));
}

#[test]
fn files_hold_what_the_model_holds() {
    let folder = tempfile::tempdir().unwrap();
    Subject::over("files", files(folder.path(), 4), 4 * KIB, 1, true, seed()).run(share(30));
}

#[test]
fn block_devices_hold_what_the_model_holds() {
    let folder = tempfile::tempdir().unwrap();
    let Some(loops) = Loop::several(folder.path(), 3, MEMBER) else { return };
    Subject::over("block devices", on_loops(&loops, false), 16 * KIB, 1, false, seed()).run(share(18));
    drop(loops);
    let Some(loops) = Loop::several(folder.path(), 3, MEMBER) else { return };
    let members = on_loops(&loops, true);
    let unit = members.iter().map(|m| u64::from(m.geometry().logical_block)).max().unwrap_or(1);
    Subject::over("block devices, directly", members, 4 * KIB, unit, false, seed()).run(share(2));
}

#[test]
fn members_of_all_kinds_hold_what_the_model_holds() {
    let folder = tempfile::tempdir().unwrap();
    let loops = Loop::several(folder.path(), 1, MEMBER + 4096).unwrap_or_default();
    let mut members = memory(1);
    members.extend(files(folder.path(), 2));
    members.extend(on_loops(&loops, false));
    members.extend(memory(1));
    Subject::over("all kinds", members, 8 * KIB, 1, false, seed()).run(share(20));
}
