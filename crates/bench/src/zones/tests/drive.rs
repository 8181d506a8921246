//! A zoned drive in memory that refuses what a real one refuses, and remembers that it had to.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use measure::pattern::Rng;
use storage::device::{Device, DeviceKind, Geometry, Zone, ZoneCondition, ZoneKind, Zoned};
use storage::sysfs::ZoneFacts;

/// What a drive is like.
#[derive(Debug, Clone, Copy)]
pub struct Make {
    pub zones: u64,
    pub zone_bytes: u64,
    pub capacity: u64,
    /// How many of them, from the first, are conventional.
    pub conventional: u64,
    pub max_open: u32,
    pub max_active: u32,
    /// How large the last zone is; 0 for as large as the others.
    pub last_bytes: u64,
}

impl Make {
    fn size(&self) -> u64 {
        self.zones * self.zone_bytes
            - if self.last_bytes == 0 { 0 } else { self.zone_bytes - self.last_bytes }
    }
}

#[derive(Debug)]
struct Contents {
    zones: Vec<Zone>,
    bytes: Vec<u8>,
    /// Requests in flight in each zone.
    in_flight: Vec<(u32, u32)>,
    refused: Vec<String>,
    resets: u64,
    finished: u64,
    /// It says nothing of its zones any more.
    is_mute: bool,
}

#[derive(Debug)]
pub struct Drive {
    make: Make,
    null: File,
    contents: Mutex<Contents>,
    /// While it is locked no zone is finished.
    finishing: Mutex<()>,
}

impl Drive {
    pub fn new(make: Make) -> Arc<Self> {
        let zone = |number: u64| {
            let is_conventional = number < make.conventional;
            let start = number * make.zone_bytes;
            let length = make.zone_bytes.min(make.size() - start);
            Zone {
                start,
                length,
                capacity: if is_conventional { length } else { make.capacity.min(length) },
                pointer: start,
                kind: if is_conventional { ZoneKind::Conventional } else { ZoneKind::Sequential },
                condition: if is_conventional { ZoneCondition::NoPointer } else { ZoneCondition::Empty },
            }
        };
        let contents = Contents {
            zones: (0..make.zones).map(zone).collect(),
            bytes: vec![0; make.size() as usize],
            in_flight: vec![(0, 0); make.zones as usize],
            refused: Vec::new(),
            resets: 0,
            finished: 0,
            is_mute: false,
        };
        let null = File::open("/dev/null").expect("opens");
        Arc::new(Self { make, null, contents: Mutex::new(contents), finishing: Mutex::default() })
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().expect("not poisoned")
    }

    /// Writes some of the zones up to some block, as another program has left them.
    pub fn fill(&self, rng: &mut Rng, bs: u64, at_most_open: u64) {
        let (mut contents, mut open) = (self.contents(), 0);
        for zone in contents.zones.iter_mut().filter(|zone| zone.kind == ZoneKind::Sequential) {
            let blocks = rng.below(zone.capacity / bs + 1);
            zone.pointer = zone.start + blocks * bs;
            zone.condition = match zone.pointer - zone.start {
                0 => ZoneCondition::Empty,
                bytes if bytes == zone.capacity => ZoneCondition::Full,
                _ if open < at_most_open => {
                    open += 1;
                    ZoneCondition::Closed
                }
                _ => {
                    zone.pointer = zone.start + zone.capacity;
                    ZoneCondition::Full
                }
            };
        }
    }

    /// What it had to refuse.
    pub fn refused(&self) -> Vec<String> {
        self.contents().refused.clone()
    }

    pub fn resets(&self) -> u64 {
        self.contents().resets
    }

    pub fn finished(&self) -> u64 {
        self.contents().finished
    }

    /// Holds up what finishes zones.
    pub fn hold_finishing(&self) -> MutexGuard<'_, ()> {
        self.finishing.lock().expect("not poisoned")
    }

    /// From now on it does not report its zones.
    pub fn fall_silent(&self) {
        self.contents().is_mute = true;
    }

    /// Writes a block into some zones, as another program has left them.
    pub fn leave_partly_written(&self, zones: std::ops::Range<usize>, bs: u64) {
        for zone in &mut self.contents().zones[zones] {
            (zone.pointer, zone.condition) = (zone.start + bs, ZoneCondition::Closed);
        }
    }

    pub fn zones_now(&self) -> Vec<Zone> {
        self.contents().zones.clone()
    }

    /// A request is handed over.
    pub fn begin(&self, offset: u64, writes: bool) {
        let mut contents = self.contents();
        let at = (offset / self.make.zone_bytes) as usize;
        let zone = contents.zones[at];
        let flight = &mut contents.in_flight[at];
        if writes {
            flight.1 += 1
        } else {
            flight.0 += 1
        }
        if writes && flight.1 > 1 && zone.kind == ZoneKind::Sequential {
            contents.refused.push(format!("a second write in flight in the zone of {offset}"));
        }
    }

    /// It is over.
    pub fn end(&self, offset: u64, writes: bool) {
        let mut contents = self.contents();
        let flight = &mut contents.in_flight[(offset / self.make.zone_bytes) as usize];
        if writes { flight.1 -= 1 } else { flight.0 -= 1 }
    }

    /// What is wrong is told, and remembered.
    fn refuse<T>(contents: &mut Contents, words: String) -> io::Result<T> {
        contents.refused.push(words.clone());
        Err(io::Error::other(words))
    }

    fn write(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        let mut contents = self.contents();
        let length = buffer.len() as u64;
        let at = (offset / self.make.zone_bytes) as usize;
        let zone = contents.zones[at];
        if offset + length > zone.start + zone.capacity {
            return Self::refuse(&mut contents, format!("{length} bytes at {offset} leave the zone"));
        }
        if zone.kind == ZoneKind::Sequential {
            if zone.pointer != offset || zone.condition == ZoneCondition::Full {
                return Self::refuse(
                    &mut contents,
                    format!("a write at {offset} and not at {}", zone.pointer),
                );
            }
            if let Some(words) = self.open(&mut contents, at) {
                return Self::refuse(&mut contents, words);
            }
            let zone = &mut contents.zones[at];
            zone.pointer += length;
            if zone.pointer == zone.start + zone.capacity {
                zone.condition = ZoneCondition::Full;
            }
        }
        contents.bytes[offset as usize..][..buffer.len()].copy_from_slice(buffer);
        Ok(())
    }

    /// Opens a zone; why it cannot be.
    fn open(&self, contents: &mut Contents, at: usize) -> Option<String> {
        let count = |conditions: &[ZoneCondition]| {
            contents.zones.iter().filter(|zone| conditions.contains(&zone.condition)).count() as u32
        };
        let open = count(&[ZoneCondition::ImplicitlyOpen]);
        let active = open + count(&[ZoneCondition::Closed]);
        let condition = contents.zones[at].condition;
        let is_over = |count: u32, limit: u32| limit > 0 && count >= limit;
        if condition == ZoneCondition::Empty && is_over(active, self.make.max_active) {
            return Some(format!("more than {} active zones", self.make.max_active));
        }
        if condition != ZoneCondition::ImplicitlyOpen && is_over(open, self.make.max_open) {
            // It closes one by itself in which nothing is written just now.
            let idle = |at: &usize| {
                let is_open = contents.zones[*at].condition == ZoneCondition::ImplicitlyOpen;
                is_open && contents.in_flight[*at].1 == 0
            };
            let Some(other) = (0..contents.zones.len()).find(idle) else {
                return Some(format!("more than {} open zones", self.make.max_open));
            };
            contents.zones[other].condition = ZoneCondition::Closed;
        }
        contents.zones[at].condition = ZoneCondition::ImplicitlyOpen;
        None
    }

    /// Resets or finishes a zone.
    fn manage(&self, start: u64, length: u64, condition: ZoneCondition) -> io::Result<()> {
        let mut contents = self.contents();
        let at = (start / self.make.zone_bytes) as usize;
        let zone = contents.zones[at];
        if zone.kind != ZoneKind::Sequential || (zone.start, zone.length) != (start, length) {
            return Self::refuse(&mut contents, format!("{length} bytes at {start} are no sequential zone"));
        }
        let is_reset = condition == ZoneCondition::Empty;
        let (reads, writes) = contents.in_flight[at];
        if writes > 0 || (is_reset && reads > 0) {
            return Self::refuse(
                &mut contents,
                format!("a change of the zone at {start} in the midst of requests"),
            );
        }
        contents.resets += u64::from(is_reset);
        contents.finished += u64::from(!is_reset);
        let zone = &mut contents.zones[at];
        zone.condition = condition;
        zone.pointer = start + if is_reset { 0 } else { zone.capacity };
        Ok(())
    }
}

impl Zoned for Drive {
    fn facts(&self) -> ZoneFacts {
        let Make { zone_bytes, max_open, max_active, .. } = self.make;
        ZoneFacts { is_host_managed: true, zone_bytes, max_open, max_active }
    }

    fn report(&self, from: u64, most: usize) -> io::Result<Vec<Zone>> {
        let contents = self.contents();
        if contents.is_mute {
            return Err(io::Error::other("it is mute"));
        }
        let first = (from / self.make.zone_bytes) as usize;
        Ok(contents.zones[first..].iter().take(most.min(3)).copied().collect())
    }

    fn reset(&self, start: u64, length: u64) -> io::Result<()> {
        self.manage(start, length, ZoneCondition::Empty)
    }

    fn finish(&self, start: u64, length: u64) -> io::Result<()> {
        let _turn = self.finishing.lock().expect("not poisoned");
        self.manage(start, length, ZoneCondition::Full)
    }
}

/// A request takes a moment, so that others meet it. Not by leaving the CPU, which on a busy machine takes milliseconds.
fn linger() {
    for _ in 0..200 {
        std::hint::spin_loop();
    }
}

impl Device for Drive {
    fn spec(&self) -> &str {
        "/dev/zoned"
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::File
    }

    fn path(&self) -> Option<&Path> {
        None
    }

    fn size(&self) -> u64 {
        self.make.size()
    }

    fn geometry(&self) -> Geometry {
        Geometry { logical_block: 512, physical_block: 4096, memory_alignment: 512 }
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.null.as_fd()
    }

    /// Engines make every request by the calls below.
    fn verifies(&self) -> bool {
        true
    }

    fn zones(&self) -> Option<&dyn Zoned> {
        Some(self)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.begin(offset, false);
        linger();
        let mut contents = self.contents();
        let zone = contents.zones[(offset / self.make.zone_bytes) as usize];
        let end = offset + buffer.len() as u64;
        let result = match zone.kind == ZoneKind::Sequential && end > zone.pointer {
            true => Self::refuse(&mut contents, format!("a read up to {end}, beyond {}", zone.pointer)),
            false => {
                buffer.copy_from_slice(&contents.bytes[offset as usize..end as usize]);
                Ok(())
            }
        };
        drop(contents);
        self.end(offset, false);
        result
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.begin(offset, true);
        linger();
        let result = self.write(buffer, offset);
        self.end(offset, true);
        result
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let kind = self.contents().zones[(offset / self.make.zone_bytes) as usize].kind;
        if kind == ZoneKind::Conventional {
            return Ok(());
        }
        for at in (offset..offset + length).step_by(self.make.zone_bytes as usize) {
            self.reset(at, self.make.zone_bytes.min(offset + length - at))?;
        }
        Ok(())
    }
}
