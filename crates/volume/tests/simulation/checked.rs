//! A volume with checksums of which one member is at fault, beside a plain model of what it must hold.
//!
//! The member loses writes that it acknowledges, makes them elsewhere, and lets bits rot, in data, checksums and map
//! alike; the power goes at any moment, and what was not synced is there, lost or torn. What must hold, always:
//!
//! - a read returns what was written, or is an error; never anything else;
//! - after a crash, of what was not synced any of the values that were written since, sector by sector, without an
//!   error;
//! - no error at all as long as the member has done nothing wrong.
//!
//! What a faulty member did to a region that was marked when the power went passes for torn (docs/volumes.md), so blocks
//! that a fault has met are not compared after a crash before they are written again. They are counted.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use storage::device::{Device, DeviceKind, Geometry};
use volume::{NewVolume, SumsLayout, SumsLimits, Volume, VolumeError};

use crate::rig::disk::{Clock, Disk, SECTOR};
use crate::rig::random::Random;
use crate::rig::{KIB, MIB};

const BLOCK: u64 = 4 * KIB;
const CHUNK: u64 = 8 * KIB;
const BLOCK_SECTORS: usize = BLOCK as usize / SECTOR;
const SIZE: usize = (MIB + 128 * KIB) as usize;
const LAYOUT: SumsLayout = SumsLayout { group_blocks: 3, region_groups: 2 };
const LIMITS: SumsLimits = SumsLimits { cached_blocks: 3, marked_regions: 2 };
/// The longest request, sectors.
const LONGEST: u64 = 20;

/// A disk that does not always do what it says.
#[derive(Debug)]
struct Faulty {
    disk: Arc<Disk>,
    is_at_fault: AtomicBool,
    random: Mutex<Random>,
    /// Where it was at fault: bytes of whole blocks.
    met: Mutex<BTreeSet<u64>>,
    descriptor: File,
}

impl Faulty {
    fn meet(&self, offset: u64, length: u64) {
        let mut met = self.met.lock().unwrap();
        met.extend((offset / BLOCK..(offset + length).div_ceil(BLOCK)).map(|block| block * BLOCK));
    }
}

impl Device for Faulty {
    fn spec(&self) -> &str {
        self.disk.spec()
    }

    fn kind(&self) -> DeviceKind {
        self.disk.kind()
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let (length, end) = (buffer.len() as u64, SIZE as u64 - BLOCK);
        // Labels have rules of their own.
        let is_label = offset < MIB || offset >= end;
        if is_label || !self.is_at_fault.load(Ordering::Relaxed) {
            return self.disk.write_at(buffer, offset);
        }
        let mut random = self.random.lock().unwrap();
        match random.below(60) {
            0 => {
                self.meet(offset, length);
                Ok(())
            }
            1 => {
                let blocks = (end - MIB - length) / BLOCK;
                let elsewhere = MIB + random.below(blocks + 1) * BLOCK;
                self.meet(offset, length);
                self.meet(elsewhere, length);
                self.disk.write_at(buffer, elsewhere)
            }
            _ => self.disk.write_at(buffer, offset),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.sync_data()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.disk.discard(offset, length)
    }
}

/// What was done, and how often.
#[derive(Debug, Default)]
pub struct Tally {
    writes: u64,
    reads: u64,
    errors: u64,
    faults: u64,
    closed: u64,
    power_cuts: u64,
    resealed: u64,
    not_compared: u64,
}

impl Tally {
    /// Fails where a run has shown nothing.
    pub fn is_of_use(&self) {
        assert!(self.writes > 0 && self.reads > 0 && self.errors > 0 && self.faults > 0, "{self:?}");
        assert!(self.closed > 0 && self.power_cuts > 0 && self.resealed > 0, "{self:?}");
    }
}

/// The values that may be found in a sector after a loss of power, of which the last is read until then. None is one that
/// is not known.
type Sector = Vec<Option<u64>>;

pub struct World {
    random: Random,
    clock: Arc<Clock>,
    disks: Vec<Arc<Disk>>,
    faulty: Arc<Faulty>,
    victim: usize,
    volume: Option<Volume>,
    model: Vec<Sector>,
    value: u64,
    data: (u64, u64),
    pub tally: Tally,
}

impl World {
    pub fn new(width: usize, seed: u64) -> Self {
        let clock = Arc::new(Clock::default());
        let disks: Vec<_> = (0..width).map(|number| Disk::of(number, vec![0; SIZE], &clock)).collect();
        let members: Vec<_> = disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>).collect();
        let new = NewVolume { chunk: CHUNK, checksums: Some(LAYOUT), ..NewVolume::default() };
        let label = volume::create_on(&members, &new).expect("it is made");
        let mut random = Random::of(seed);
        let victim = random.below(width as u64) as usize;
        let faulty = Arc::new(Faulty {
            disk: Arc::clone(&disks[victim]),
            is_at_fault: AtomicBool::new(false),
            random: Mutex::new(Random::of(seed ^ 0x5555)),
            met: Mutex::default(),
            descriptor: File::open("/dev/null").expect("there is one"),
        });
        let sectors = label.volume_bytes() as usize / SECTOR;
        let data = (label.data_start, label.data_bytes);
        let model = vec![vec![Some(0)]; sectors];
        let tally = Tally::default();
        Self { random, clock, disks, faulty, victim, volume: None, model, value: 0, data, tally }
    }

    fn is_at_fault(&self) -> bool {
        self.faulty.is_at_fault.load(Ordering::Relaxed)
    }

    /// From now on the member may be at fault.
    pub fn let_fail(&self) {
        self.faulty.is_at_fault.store(true, Ordering::Relaxed);
    }

    pub fn step(&mut self) {
        if self.volume.is_none() {
            self.open();
        }
        if self.random.one_in(300) {
            self.clock.stop_after(self.random.below(40) as u32);
        }
        match self.random.below(1000) {
            0..450 => self.write(),
            450..930 => self.read(),
            930..970 => self.sync(),
            970..990 => self.rot(),
            990..996 => self.close(),
            _ => {}
        }
        if self.clock.is_stopped() {
            self.lose_power();
        }
    }

    fn open(&mut self) {
        let members = || {
            let member = |(number, disk): (usize, &Arc<Disk>)| match number == self.victim {
                true => Arc::clone(&self.faulty) as Arc<dyn Device>,
                false => Arc::clone(disk) as Arc<dyn Device>,
            };
            self.disks.iter().enumerate().map(member).collect::<Vec<_>>()
        };
        let opened = match Volume::of_members_within(members(), LIMITS) {
            Err(VolumeError::OneCopy { .. }) => {
                volume::repair_on(&members()).expect("the other copy is whole");
                Volume::of_members_within(members(), LIMITS)
            }
            opened => opened,
        };
        self.volume = Some(opened.expect("labels are never at fault").0);
    }

    fn range(&mut self) -> (usize, usize) {
        let sectors = self.model.len() as u64;
        let length = 1 + self.random.below(LONGEST);
        let start = self.random.below(sectors - length + 1);
        // Whole blocks most often, which is what mends a block that does not fit.
        if self.random.one_in(3) {
            return (start as usize, length as usize);
        }
        let each = BLOCK_SECTORS as u64;
        (
            (start / each * each) as usize,
            length.next_multiple_of(each).min(sectors - start / each * each) as usize,
        )
    }

    fn write(&mut self) {
        self.tally.writes += 1;
        let (start, length) = self.range();
        self.value += 1;
        let mut bytes = vec![0; length * SECTOR];
        for (sector, bytes) in (start as u64..).zip(bytes.chunks_mut(SECTOR)) {
            bytes
                .chunks_mut(8)
                .for_each(|word| word.copy_from_slice(&(self.value << 16 | sector).to_le_bytes()));
        }
        let volume = self.volume.as_ref().expect("it is open");
        let was_stopped = self.clock.is_stopped();
        let ended = volume.write_at(&bytes, (start * SECTOR) as u64);
        match ended {
            Ok(()) => {}
            Err(_) if self.clock.is_stopped() || was_stopped => {}
            // A part of a block that does not fit: nothing was written.
            Err(error) => {
                assert!(self.is_at_fault(), "{error}");
                self.tally.errors += 1;
                return;
            }
        }
        self.model[start..start + length].iter_mut().for_each(|values| values.push(Some(self.value)));
    }

    fn read(&mut self) {
        self.tally.reads += 1;
        let (start, length) = self.range();
        let mut bytes = vec![0; length * SECTOR];
        let volume = self.volume.as_ref().expect("it is open");
        if let Err(error) = volume.read_at(&mut bytes, (start * SECTOR) as u64) {
            assert!(self.is_at_fault(), "{error}");
            self.tally.errors += 1;
            return;
        }
        if self.clock.is_stopped() {
            return;
        }
        for (sector, bytes) in (start..).zip(bytes.chunks(SECTOR)) {
            let Some(Some(last)) = self.model[sector].last() else { continue };
            let found = value_of(bytes, sector);
            assert!(found == Some(*last), "sector {sector}: {found:?}, not {last}");
        }
    }

    fn sync(&mut self) {
        let volume = self.volume.as_ref().expect("it is open");
        if let Err(error) = volume.sync() {
            assert!(self.clock.is_stopped(), "{error}");
        } else {
            self.settle();
        }
    }

    fn settle(&mut self) {
        for values in &mut self.model {
            values.drain(..values.len() - 1);
        }
    }

    /// Lets a bit of the faulty member change.
    fn rot(&mut self) {
        if !self.is_at_fault() || self.clock.is_stopped() || !self.random.one_in(3) {
            return;
        }
        let at = MIB as usize + self.random.below((SIZE as u64 - MIB) - BLOCK) as usize;
        let mut byte = vec![0];
        self.disks[self.victim].read_at(&mut byte, at as u64).expect("it is there");
        self.faulty.disk.flip(at, 1 << self.random.below(8));
        self.faulty.meet(at as u64, 1);
    }

    fn close(&mut self) {
        self.volume = None;
        if !self.clock.is_stopped() {
            self.tally.closed += 1;
            self.settle();
        }
    }

    /// After a crash: of what was not synced any value, and of what the faulty member had met nothing is asked.
    fn lose_power(&mut self) {
        self.tally.power_cuts += 1;
        self.volume = None;
        self.clock.go_on();
        self.disks.iter().for_each(|disk| disk.lose_power(&mut self.random));
        self.forget_what_was_met();
        self.open();
        let volume = self.volume.take().expect("it is open");
        let mut bytes = vec![0; BLOCK as usize];
        for block in 0..self.model.len() / BLOCK_SECTORS {
            let first = block * BLOCK_SECTORS;
            let read = volume.read_at(&mut bytes, (first * SECTOR) as u64);
            assert!(read.is_ok() || self.is_at_fault(), "{read:?}");
            for (sector, bytes) in (first..).zip(bytes.chunks(SECTOR)) {
                // Of what cannot be read, any of the values may be there, and come back with a later crash.
                if read.is_err() {
                    if self.model[sector].len() > 1 {
                        self.model[sector] = vec![None];
                    }
                    continue;
                }
                let (values, found) = (&self.model[sector], value_of(bytes, sector));
                let is_torn = found.is_none() && values.len() > 1;
                let is_open = values.contains(&None) || is_torn;
                assert!(is_open || values.contains(&found), "sector {sector}: {found:?}, not of {values:?}");
                self.model[sector] = vec![found];
            }
        }
        // As found: the first write has them get new checksums.
        self.volume = Some(volume);
        let blocks = self.model.len() / BLOCK_SECTORS;
        let block = self.random.below(blocks as u64) as usize;
        // The power may go again while torn blocks get new checksums.
        if self.random.one_in(2) {
            self.clock.stop_after(self.random.below(16) as u32);
        }
        if !self.rewrite(block) {
            return self.lose_power();
        }
        self.clock.go_on();
        // What it has met meanwhile may have been in a region whose turn was to come.
        self.forget_what_was_met();
        let notices = self.volume.as_ref().map_or(0, |volume| volume.notices().len());
        self.tally.resealed += notices.saturating_sub(1) as u64;
    }

    /// Of the blocks that the faulty member has met nothing is known.
    fn forget_what_was_met(&mut self) {
        let met = std::mem::take(&mut *self.faulty.met.lock().unwrap());
        self.tally.faults += met.len() as u64;
        let (data_start, data_bytes) = self.data;
        let width = self.disks.len() as u64;
        let of_data = met.iter().filter(|at| (data_start..data_start + data_bytes).contains(at));
        for at in of_data {
            let within = at - data_start;
            let offset = (within / CHUNK * width + self.victim as u64) * CHUNK + within % CHUNK;
            let first = offset as usize / SECTOR;
            self.tally.not_compared += 1;
            self.model[first..first + BLOCK_SECTORS].fill(vec![None]);
        }
    }

    /// Writes a whole block; whether the power is there still.
    fn rewrite(&mut self, block: usize) -> bool {
        self.value += 1;
        let first = block * BLOCK_SECTORS;
        let mut bytes = vec![0; BLOCK as usize];
        for (sector, bytes) in (first as u64..).zip(bytes.chunks_mut(SECTOR)) {
            bytes
                .chunks_mut(8)
                .for_each(|word| word.copy_from_slice(&(self.value << 16 | sector).to_le_bytes()));
        }
        let volume = self.volume.as_ref().expect("it is open");
        let ended = volume.write_at(&bytes, (first * SECTOR) as u64);
        assert!(ended.is_ok() || self.clock.is_stopped(), "{ended:?}");
        let sectors = &mut self.model[first..first + BLOCK_SECTORS];
        sectors.iter_mut().for_each(|values| values.push(Some(self.value)));
        !self.clock.is_stopped()
    }
}

/// The value that a sector holds; none where it was not written in one piece, or for another place.
fn value_of(bytes: &[u8], sector: usize) -> Option<u64> {
    let mut words =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let first = words.next()?;
    let is_whole = words.all(|word| word == first) && (first == 0 || first & 0xffff == sector as u64);
    is_whole.then_some(first >> 16)
}
