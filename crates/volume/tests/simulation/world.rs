//! The members, the volume over them, and what it must hold.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use storage::device::Device;
use volume::{Candidate, Fault, Flaw, LabelPosition, NewVolume, Volume, VolumeError};

use crate::rig::disk::{Clock, Disk, SECTOR};
use crate::rig::random::Random;
use crate::rig::{KIB, MIB};

const CHUNK: u64 = 2 * KIB;
/// Bytes of data on each member.
const DATA: u64 = 16 * KIB;
const SIZE: usize = (MIB + DATA + 4 * KIB) as usize;
/// Where a member holds anything: the head of its label; its data and the tail.
const HELD: [Range<usize>; 2] = [0..8 * KIB as usize, MIB as usize..SIZE];
/// Where the copies of a label are.
const COPIES: [Range<usize>; 2] = [4096..8192, SIZE - 4096..SIZE];
/// Images that are kept of each member.
const KEPT: usize = 12;
/// The longest request, sectors.
const LONGEST: u64 = 12;

/// What was done, and how often.
#[derive(Debug, Default)]
pub struct Tally {
    writes: u64,
    reads: u64,
    syncs: u64,
    closed: u64,
    power_cuts: u64,
    /// Of those, before the first write had ended, or after the last one.
    while_turning: u64,
    /// Labels of which the power took one copy.
    repaired: u64,
    put_back: u64,
    refused: u64,
    /// Members of which a part went back in time, with one copy of the label, and of those the refused.
    part_put_back: u64,
    part_refused: u64,
    /// Images of the epoch under way, which nothing tells.
    untold: u64,
    /// Copies of labels that rotted, were lost, or were written to another's place.
    damaged: u64,
    /// Of those, as many as nobody could write past, and everybody could read past.
    withheld: u64,
}

impl Tally {
    /// Fails where a run has shown nothing, because something in it never happened.
    pub fn is_of_use(&self, width: usize) {
        assert!(self.writes > 0 && self.reads > 0 && self.syncs > 0 && self.closed > 0, "{self:?}");
        assert!(self.power_cuts > 0 && self.while_turning > 0, "{self:?}");
        assert!(self.damaged > 0 && self.withheld > 0, "{self:?}");
        assert!(self.part_put_back > 0 && self.part_refused > 0, "{self:?}");
        assert!(width == 1 || (self.put_back > 0 && self.refused > 0 && self.repaired > 0), "{self:?}");
    }
}

/// An image of a member.
#[derive(Debug)]
struct Image {
    parts: Vec<Vec<u8>>,
    /// How often the volume had been opened then.
    life: u64,
}

/// A sector of the volume: the values that may be found there after a loss of power, of which the last is read until then.
/// None is a mixture, as a write leaves that was cut short within the sector.
type Sector = Vec<Option<u64>>;

/// Whether a value may be found in a sector after a loss of power.
fn allows(sector: &Sector, found: Option<u64>) -> bool {
    sector.contains(&found) || (found.is_none() && sector.len() > 1)
}

pub struct World {
    random: Random,
    clock: Arc<Clock>,
    disks: Vec<Arc<Disk>>,
    volume: Option<Volume>,
    model: Vec<Sector>,
    images: Vec<VecDeque<Image>>,
    /// How often the volume was opened.
    life: u64,
    /// The life that wrote last, unless it was closed in peace: its epoch lasts.
    unclosed: Option<u64>,
    /// [`Tally::while_turning`] when it was opened.
    turned: u64,
    /// The value that is written next.
    value: u64,
    buffer: Vec<u8>,
    pub tally: Tally,
}

impl World {
    pub fn new(width: usize, seed: u64) -> Self {
        let clock = Arc::new(Clock::default());
        let disks: Vec<_> = (0..width).map(|number| Disk::of(number, vec![0; SIZE], &clock)).collect();
        let members = devices(&disks);
        volume::create_on(
            &members,
            &NewVolume { name: "world".to_owned(), chunk: CHUNK, ..NewVolume::default() },
        )
        .expect("it is made");
        let sectors = width * DATA as usize / SECTOR;
        Self {
            random: Random::of(seed),
            clock,
            disks,
            volume: None,
            model: vec![vec![Some(0)]; sectors],
            images: (0..width).map(|_| VecDeque::new()).collect(),
            life: 0,
            unclosed: None,
            turned: 0,
            value: 0,
            buffer: vec![0; sectors * SECTOR],
            tally: Tally::default(),
        }
    }

    /// Something happens.
    pub fn step(&mut self) {
        if self.volume.is_none() {
            self.open();
        }
        // Now and then the power goes a little later, whatever happens until then.
        if self.random.one_in(400) {
            let longest = if self.random.one_in(2) { 12 } else { 90 };
            self.clock.stop_after(self.random.below(longest) as u32);
        }
        match self.random.below(1000) {
            0..450 => self.write(),
            450..900 => self.read(),
            900..970 => self.sync(),
            970..990 => self.keep(),
            990..993 => self.close(),
            _ => {}
        }
        if self.clock.is_stopped() {
            self.lose_power();
        }
    }

    fn range(&mut self) -> (usize, usize) {
        let sectors = self.model.len() as u64;
        let length = 1 + self.random.below(LONGEST.min(sectors));
        (self.random.below(sectors - length + 1) as usize, length as usize)
    }

    fn write(&mut self) {
        self.tally.writes += 1;
        let (start, length) = self.range();
        self.value += 1;
        let bytes = &mut self.buffer[..length * SECTOR];
        for (word, number) in bytes.chunks_exact_mut(8).zip(0_u64..) {
            let sector = start as u64 + number / (SECTOR as u64 / 8);
            word.copy_from_slice(&word_of(self.value, sector).to_le_bytes());
        }
        let volume = self.volume.as_ref().expect("it is open");
        let ended = volume.write_at(bytes, (start * SECTOR) as u64);
        assert!(ended.is_ok() || self.clock.is_stopped(), "{ended:?}");
        if ended.is_ok() {
            self.unclosed = Some(self.life);
        } else if self.unclosed != Some(self.life) {
            self.tally.while_turning += 1;
        }
        for sector in &mut self.model[start..start + length] {
            sector.push(Some(self.value));
        }
    }

    fn read(&mut self) {
        self.tally.reads += 1;
        let (start, length) = self.range();
        let bytes = &mut self.buffer[..length * SECTOR];
        let volume = self.volume.as_ref().expect("it is open");
        volume.read_at(bytes, (start * SECTOR) as u64).expect("the members are there");
        for (sector, bytes) in (start..).zip(bytes.chunks(SECTOR)) {
            let found = value_of(bytes, sector as u64);
            // The power may be gone since a write that was not made.
            let expected = self.model[sector].last().copied();
            assert!(
                Some(found) == expected || self.clock.is_stopped(),
                "sector {sector}: {found:?}, not {expected:?}"
            );
        }
    }

    fn sync(&mut self) {
        self.tally.syncs += 1;
        match self.volume.as_ref().expect("it is open").sync() {
            Ok(()) => self.settle(),
            Err(error) => assert!(self.clock.is_stopped(), "{error}"),
        }
    }

    /// What was written is durable.
    fn settle(&mut self) {
        for sector in &mut self.model {
            sector.drain(..sector.len() - 1);
        }
    }

    /// Keeps an image of each member, as it is at this moment.
    fn keep(&mut self) {
        for (disk, images) in self.disks.iter().zip(&mut self.images) {
            if images.len() == KEPT {
                // Old ones too.
                images.remove(self.random.below(KEPT as u64) as usize);
            }
            images.push_back(Image { parts: disk.parts(&HELD), life: self.life });
        }
    }

    /// Closes the volume in peace, unless the power goes meanwhile.
    fn close(&mut self) {
        self.volume = None;
        if self.clock.is_stopped() {
            self.tally.while_turning += 1;
            return;
        }
        self.tally.closed += 1;
        self.settle();
        if self.unclosed == Some(self.life) {
            self.unclosed = None;
        }
        self.put_some_back();
        self.put_a_part_back();
        self.damage();
    }

    fn lose_power(&mut self) {
        self.tally.power_cuts += 1;
        self.volume = None;
        self.disks.iter().for_each(|disk| disk.lose_power(&mut self.random));
        self.clock.go_on();
        self.put_some_back();
        self.put_a_part_back();
        self.damage();
    }

    /// Opens the volume as it is, which nothing may keep from it, and looks at all of it.
    fn open(&mut self) {
        let found = match self.look() {
            Err(VolumeError::OneCopy { .. }) => {
                self.tally.repaired += 1;
                volume::repair_on(&devices(&self.disks)).expect("the other copy is whole");
                self.look()
            }
            looked => looked,
        };
        let found = found.unwrap_or_else(|error| panic!("nothing was put back: {error}"));
        for ((sector, found), number) in self.model.iter_mut().zip(found).zip(0..) {
            assert!(allows(sector, found), "sector {number}: {found:?} is none of {sector:?}");
            *sector = vec![found];
        }
        self.life += 1;
        // Often before the first write is over, and more often where it was so the last time.
        let turned = std::mem::replace(&mut self.turned, self.tally.while_turning);
        if self.random.one_in(if turned < self.turned { 2 } else { 8 }) {
            self.clock.stop_after(self.random.below(8 * self.disks.len() as u64) as u32);
        }
    }

    /// Opens the volume; what each sector of it holds.
    fn look(&mut self) -> Result<Vec<Option<u64>>, VolumeError> {
        let mut members = devices(&self.disks);
        self.random.shuffle(&mut members);
        let (volume, _) = Volume::of_members(members)?;
        volume.read_at(&mut self.buffer, 0).expect("the members are there");
        self.volume = Some(volume);
        Ok(self.buffer.chunks(SECTOR).zip(0..).map(|(bytes, sector)| value_of(bytes, sector)).collect())
    }

    /// Puts some members back to an earlier time, though not all, sees what comes of it, and brings them again as they
    /// were.
    fn put_some_back(&mut self) {
        let width = self.disks.len();
        if width == 1 || !self.random.one_in(2) || self.images[0].is_empty() {
            return;
        }
        let mut numbers: Vec<usize> = (0..width).collect();
        self.random.shuffle(&mut numbers);
        numbers.truncate(1 + self.random.below(width as u64 - 1) as usize);
        // Of the same moment, as after restoring a part of a backup, or of any.
        let moment = self.random.one_in(2).then(|| self.random.below(self.images[0].len() as u64) as usize);
        let mut as_they_were = Vec::new();
        let mut is_untold = false;
        for number in &numbers {
            let (disk, images) = (&self.disks[*number], &self.images[*number]);
            let image = &images[moment.unwrap_or_else(|| self.random.below(images.len() as u64) as usize)];
            as_they_were.push(disk.parts(&HELD));
            is_untold |= self.unclosed.is_some_and(|life| image.life >= life);
            disk.put_back(&HELD, &image.parts);
        }
        self.tally.put_back += 1;
        // A reader is told what a writer is.
        let writes = self.random.one_in(4);
        self.let_write(writes);
        match self.look() {
            Ok(_) if is_untold => self.tally.untold += 1,
            Ok(found) => self.is_held(&found, &format!("stale {numbers:?}")),
            // What the power did to one copy of a label, of whichever member, is told first.
            Err(VolumeError::OneCopy { .. }) => {}
            Err(VolumeError::Flaw(Flaw::Older { member, .. } | Flaw::Apart { one: member, .. })) => {
                let is_named = numbers.iter().any(|number| self.disks[*number].spec() == member);
                assert!(is_named, "{member} was not put back, but {numbers:?}");
                self.tally.refused += 1;
            }
            Err(other) => panic!("{numbers:?} were put back: {other}"),
        }
        self.volume = None;
        self.let_write(true);
        for (number, parts) in numbers.iter().zip(as_they_were) {
            self.disks[*number].put_back(&HELD, &parts);
        }
    }

    /// Puts one member back to an earlier time from one end up to some place, as a restore does that broke off, sees what
    /// comes of it, and brings it again as it was.
    fn put_a_part_back(&mut self) {
        if !self.random.one_in(2) || self.images[0].is_empty() {
            return;
        }
        let victim = self.chosen(self.disks.len());
        let disk = Arc::clone(&self.disks[victim]);
        // Where the power took one copy too, the other is all that is known of the member.
        let candidate = Candidate::read(&*disk).expect("the member is there");
        if [LabelPosition::Head, LabelPosition::Tail]
            .iter()
            .any(|place| candidate.fault(*place).is_some_and(Fault::is_damage))
        {
            return;
        }
        let as_it_was = disk.parts(&HELD);
        let chosen = self.chosen(self.images[victim].len());
        let image = &self.images[victim][chosen];
        let is_untold = self.unclosed.is_some_and(|life| image.life >= life);
        let cut = self.random.below(DATA / SECTOR as u64 + 1) as usize * SECTOR;
        let (from, to) = match self.random.one_in(2) {
            true => (&image.parts, &as_it_was),
            false => (&as_it_was, &image.parts),
        };
        disk.put_back(&HELD, &[from[0].clone(), [&from[1][..cut], &to[1][cut..]].concat()]);
        self.tally.part_put_back += 1;
        let writes = self.random.one_in(4);
        self.let_write(writes);
        match self.look() {
            Ok(_) if is_untold => self.tally.untold += 1,
            Ok(found) => self.is_held(&found, &format!("a part of {victim} stale")),
            // What the power did to the copy of another.
            Err(VolumeError::OneCopy { .. }) => {}
            Err(VolumeError::Flaw(
                Flaw::Mixed { member, .. } | Flaw::Older { member, .. } | Flaw::Apart { one: member, .. },
            )) => {
                assert_eq!(disk.spec(), member, "which was not put back");
                self.tally.part_refused += 1;
            }
            Err(other) => panic!("a part of {victim} was put back: {other}"),
        }
        self.volume = None;
        self.let_write(true);
        disk.put_back(&HELD, &as_it_was);
    }

    /// Lets one copy of a label rot, get lost, or be overwritten by another label, sees what comes of it, and puts it right.
    fn damage(&mut self) {
        if !self.random.one_in(2) {
            return;
        }
        let (victim, source) = (self.chosen(self.disks.len()), self.chosen(self.disks.len()));
        let copy = COPIES[self.chosen(2)].clone();
        let before = self.disks[victim].parts(std::slice::from_ref(&copy));
        let mut block = before[0].clone();
        match self.random.below(3) {
            0 => block[self.chosen(4096)] ^= 1 << self.random.below(8),
            1 => block.fill(0),
            _ => {
                let other = &COPIES[self.chosen(2)];
                block = self.disks[source].parts(std::slice::from_ref(other)).remove(0);
            }
        }
        self.tally.damaged += 1;
        // All but the label's last checksum: where that alone is wrong, all that the label says is there.
        let is_as_before = block[..4092] == before[0][..4092];
        self.disks[victim].put_back(std::slice::from_ref(&copy), &[block]);
        let mut ended = [false, false];
        for writes in [false, true] {
            self.let_write(writes);
            match self.look() {
                Ok(found) => {
                    assert!(!writes || is_as_before, "{victim} is opened for writing, with a label damaged");
                    self.is_held(&found, &format!("a label of {victim} damaged"));
                    ended[usize::from(writes)] = true;
                }
                // Or what the power did to the copy of another, which is told first.
                Err(VolumeError::OneCopy { .. }) => {}
                Err(error) => {
                    let named = self.disks[victim].spec();
                    assert!(error.to_string().contains(named), "{named} was damaged, of {source}: {error}");
                }
            }
            self.volume = None;
        }
        self.tally.withheld += u64::from(ended == [true, false]);
        self.disks[victim].put_back(std::slice::from_ref(&copy), &before);
    }

    fn chosen(&mut self, among: usize) -> usize {
        self.random.below(among as u64) as usize
    }

    fn let_write(&self, writes: bool) {
        self.disks.iter().for_each(|disk| disk.writable.store(writes, Ordering::Relaxed));
    }

    /// Fails where a sector holds what it cannot.
    fn is_held(&self, found: &[Option<u64>], in_spite_of: &str) {
        for ((sector, found), number) in self.model.iter().zip(found).zip(0..) {
            assert!(
                allows(sector, *found),
                "sector {number}: {found:?} is none of {sector:?}, with {in_spite_of}"
            );
        }
    }
}

fn devices(disks: &[Arc<Disk>]) -> Vec<Arc<dyn Device>> {
    disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>).collect()
}

/// What a write of `value` puts into each word of a sector: another value anywhere else. Nothing was ever 0.
fn word_of(value: u64, sector: u64) -> u64 {
    value << 16 | sector
}

/// The value that a sector holds; none where it was not written in one piece, or for another place.
fn value_of(bytes: &[u8], sector: u64) -> Option<u64> {
    let mut words =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let first = words.next()?;
    let is_whole = words.all(|word| word == first) && (first == 0 || first & 0xffff == sector);
    is_whole.then_some(first >> 16)
}
