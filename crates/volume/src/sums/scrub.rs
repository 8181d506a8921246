//! Reading all data that have checksums, as a document: `flashwright.volume-data/1`.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::area::{LOST_SUM, NO_SUM};
use super::cache::Key;
use super::reseal::for_each_block;
use super::{Store, Sums};
use crate::sums_layout::BLOCK;

/// Groups of each member that are read at the same time.
const THREADS_PER_MEMBER: usize = 4;
const MOST_THREADS: usize = 32;
/// Findings that are kept; the others are only counted.
const MOST_FINDINGS: usize = 10_000;
/// How often the caller hears of progress.
const TICK: Duration = Duration::from_millis(200);

/// What reading all data of a volume has found. [`DataCheck`](crate::DataCheck) says what each of these is.
#[derive(Debug)]
pub(crate) struct Scrubbed {
    pub interrupted: bool,
    pub read_bytes: u64,
    pub verified_bytes: u64,
    pub resealed_blocks: u64,
    pub findings: Vec<DataFinding>,
    pub finding_count: u64,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DataFinding {
    /// What it is.
    pub kind: FindingKind,
    /// The member's spec.
    pub member: String,
    /// Where on the member, bytes.
    pub member_offset: u64,
    /// How much is concerned, bytes of the volume.
    pub length: u64,
    /// Where in the volume; null for what holds no data of it.
    pub volume_offset: Option<u64>,
    /// More about it, in words; may be empty.
    pub detail: String,
}

/// What is wrong with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// It does not fit its checksum: it changed, or its last write was lost.
    Rotten,
    /// It does not fit its checksum, and its region was being written when the volume was not closed.
    Torn,
    /// It has the contents that were written for another block, which is among the findings.
    Misdirected,
    /// Its block of sums is damaged.
    Sums,
    /// A slot of the map is damaged.
    Map,
    /// It cannot be read.
    Unreadable,
}

impl FindingKind {
    /// The word in tables: `rotten`, `torn`, `misdirected`, `sums`, `map`, `unreadable`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Rotten => "rotten",
            Self::Torn => "torn",
            Self::Misdirected => "misdirected",
            Self::Sums => "sums",
            Self::Map => "map",
            Self::Unreadable => "unreadable",
        }
    }
}

/// How far a check is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are done with: read, or found to be unreadable.
    pub passed_bytes: u64,
    /// Bytes that are to be read.
    pub total_bytes: u64,
    /// Findings so far.
    pub findings: u64,
}

/// A block that does not fit: its checksum, and the plain CRC-32C of its contents.
#[derive(Debug, Clone, Copy)]
struct Misfit {
    stored: u32,
    found: u32,
    plain: u32,
    is_suspect: bool,
}

/// What reading a group has given.
#[derive(Debug, Default)]
struct Compared {
    /// Blocks that could be read.
    read_blocks: u64,
    /// Those of them that have a checksum.
    verified_blocks: u64,
    /// The blocks that do not fit, or why they cannot be read.
    misfits: Vec<(u64, Result<Misfit, String>)>,
}

/// What the threads have found.
#[derive(Debug, Default)]
struct Found {
    misfits: BTreeMap<(u32, u64), Misfit>,
    others: Vec<DataFinding>,
    count: u64,
}

/// The work, and what became of it.
struct Scrub<'a> {
    sums: &'a Sums,
    items: Vec<Key>,
    next: AtomicUsize,
    at_work: AtomicUsize,
    stop: AtomicBool,
    passed_bytes: AtomicU64,
    read_bytes: AtomicU64,
    verified_bytes: AtomicU64,
    found: Mutex<Found>,
}

/// Reads all regions of a volume that have checksums. `progress` is called before the first and every 200 ms, and stops
/// the work by returning false.
pub(crate) fn scrub(sums: &Sums, mut progress: impl FnMut(Progress) -> bool) -> Scrubbed {
    let area = &sums.store.area;
    let groups = sums.marks.regions_with_sums().into_iter().flat_map(|region| area.groups_of(region));
    let items: Vec<Key> =
        groups.flat_map(|group| (0..area.width()).map(move |member| (member, group))).collect();
    let bytes_of = |group: u64| {
        let blocks = area.blocks_of(group);
        (blocks.end - blocks.start) * BLOCK
    };
    let total_bytes = items.iter().map(|(_, group)| bytes_of(*group)).sum();
    let threads = (area.width() as usize * THREADS_PER_MEMBER).min(MOST_THREADS).min(items.len());
    let scrub = Scrub {
        sums,
        items,
        next: AtomicUsize::new(0),
        at_work: AtomicUsize::new(threads),
        stop: AtomicBool::new(false),
        passed_bytes: AtomicU64::new(0),
        read_bytes: AtomicU64::new(0),
        verified_bytes: AtomicU64::new(0),
        found: Mutex::default(),
    };
    scrub.look_at_map();
    let mut is_interrupted = false;
    let mut tell = || {
        let passed_bytes = scrub.passed_bytes.load(Ordering::Relaxed);
        let now = Progress { passed_bytes, total_bytes, findings: scrub.found().count };
        if !progress(now) {
            is_interrupted = true;
            scrub.stop.store(true, Ordering::Relaxed);
        }
    };
    // Once before any region is read: who says then that it is to stop is heard, however soon the work would be done.
    tell();
    std::thread::scope(|scope| {
        let main = std::thread::current();
        for _ in 0..threads {
            let (scrub, main) = (&scrub, main.clone());
            scope.spawn(move || {
                scrub.work();
                scrub.at_work.fetch_sub(1, Ordering::Release);
                main.unpark();
            });
        }
        while scrub.at_work.load(Ordering::Acquire) > 0 {
            std::thread::park_timeout(TICK);
            tell();
        }
    });
    scrub.finish(is_interrupted)
}

impl Scrub<'_> {
    fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self) -> &Store {
        &self.sums.store
    }

    fn spec(&self, member: u32) -> String {
        self.store().member(member).spec().to_owned()
    }

    fn add(&self, finding: DataFinding) {
        let mut found = self.found();
        found.count += 1;
        if found.others.len() < MOST_FINDINGS {
            found.others.push(finding);
        }
    }

    fn look_at_map(&self) {
        let damaged = &self.sums.marks.damaged;
        for index in &damaged.slots {
            let slot_is_whole = |slot: u64| {
                let (holder, at) = self.store().area.map_place(*index, slot);
                let mut block = storage::device::AlignedBuffer::zeroed(BLOCK as usize, BLOCK as usize);
                self.store().read(holder, &mut block, at)?;
                Ok::<_, io::Error>(self.store().area.decode_map(*index, &block).is_some())
            };
            for slot in (0..2).filter(|slot| !slot_is_whole(*slot).unwrap_or(false)) {
                let (holder, member_offset) = self.store().area.map_place(*index, slot);
                let detail = match damaged.blocks.contains(index) {
                    true => "both slots are damaged: which regions have checksums is not known",
                    false => "the other slot holds; the next change of the map writes this one",
                };
                self.add(DataFinding {
                    kind: FindingKind::Map,
                    member: self.spec(holder),
                    member_offset,
                    length: 0,
                    volume_offset: None,
                    detail: detail.to_owned(),
                });
            }
        }
    }

    fn work(&self) {
        while !self.stop.load(Ordering::Relaxed)
            && let Some(key) = self.items.get(self.next.fetch_add(1, Ordering::Relaxed))
        {
            self.verify(*key);
        }
    }

    /// Compares a group, and once more where a block does not fit: another process may be writing it.
    fn verify(&self, key: Key) {
        match self.compare(key) {
            Ok(compared) if compared.misfits.is_empty() => self.count(&compared),
            _ => {
                let _ = self.sums.marks.refresh(self.store());
                self.report(key, self.compare(key));
            }
        }
        let blocks = self.store().area.blocks_of(key.1);
        self.passed_bytes.fetch_add((blocks.end - blocks.start) * BLOCK, Ordering::Relaxed);
    }

    fn count(&self, compared: &Compared) {
        self.read_bytes.fetch_add(compared.read_blocks * BLOCK, Ordering::Relaxed);
        self.verified_bytes.fetch_add(compared.verified_blocks * BLOCK, Ordering::Relaxed);
    }

    /// Adds what was found in a group to the findings, and what was read of it to the counts.
    fn report(&self, (member, group): Key, compared: Result<Compared, Option<io::Error>>) {
        let area = &self.store().area;
        let (holder, sums_offset) = area.sums_place(member, group);
        let blocks = area.blocks_of(group);
        let is_suspect = self.sums.marks.is_suspect(area.region_of(group));
        let of_sums = |kind, detail: String| DataFinding {
            kind,
            member: self.spec(holder),
            member_offset: sums_offset,
            length: (blocks.end - blocks.start) * BLOCK,
            volume_offset: None,
            detail,
        };
        match compared {
            Ok(compared) => {
                self.count(&compared);
                for (block, misfit) in compared.misfits {
                    self.add_misfit(member, block, misfit.map(|m| Misfit { is_suspect, ..m }));
                }
            }
            Err(None) => {
                let kind = if is_suspect { FindingKind::Torn } else { FindingKind::Sums };
                let data = format!("at {} of {}", area.data_start + blocks.start * BLOCK, self.spec(member));
                let what =
                    format!("the block of checksums of the {} blocks {data}", blocks.end - blocks.start);
                self.add(of_sums(kind, what));
            }
            Err(Some(error)) => self.add(of_sums(FindingKind::Unreadable, base::with_causes(&error))),
        }
    }

    fn add_misfit(&self, member: u32, block: u64, misfit: Result<Misfit, String>) {
        match misfit {
            Ok(misfit) => {
                let mut found = self.found();
                found.count += 1;
                if found.misfits.len() < MOST_FINDINGS {
                    found.misfits.insert((member, block), misfit);
                }
            }
            Err(detail) => self.add(self.of_block(FindingKind::Unreadable, member, block, detail)),
        }
    }

    fn of_block(&self, kind: FindingKind, member: u32, block: u64, detail: String) -> DataFinding {
        let area = &self.store().area;
        DataFinding {
            kind,
            member: self.spec(member),
            member_offset: area.data_start + block * BLOCK,
            length: BLOCK,
            volume_offset: Some(area.volume_offset(member, block * BLOCK)),
            detail,
        }
    }

    /// Reads a group and compares its blocks with their checksums. The error is None if the block of sums is damaged,
    /// and the member's if it cannot be read; no data are read then.
    fn compare(&self, (member, group): Key) -> Result<Compared, Option<io::Error>> {
        let area = &self.store().area;
        let sums = self.store().read_sums_if_whole((member, group)).map_err(Some)?.ok_or(None)?;
        let blocks = area.blocks_of(group);
        let mut compared = Compared::default();
        for_each_block(self.store(), member, blocks.clone(), |block, bytes| {
            let stored = sums[(block - blocks.start) as usize];
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(error) => return compared.misfits.push((block, Err(base::with_causes(&error)))),
            };
            compared.read_blocks += 1;
            if stored == NO_SUM {
                return;
            }
            compared.verified_blocks += u64::from(stored != LOST_SUM);
            let found = area.sum(member, block, bytes);
            if found != stored {
                let plain = crc32c::crc32c(bytes);
                compared.misfits.push((block, Ok(Misfit { stored, found, plain, is_suspect: false })));
            }
        });
        Ok(compared)
    }

    /// Where else what lies in a block was to lie: in another that does not fit, whose checksum is that of these contents
    /// there.
    fn meant_for(
        &self,
        misfits: &BTreeMap<(u32, u64), Misfit>,
        at: (u32, u64),
        plain: u32,
    ) -> Option<(u32, u64)> {
        let area = &self.store().area;
        let others = misfits.iter().filter(|(place, _)| **place != at);
        let fits = |(member, block): (u32, u64), stored| area.sum_of_contents(member, block, plain) == stored;
        others
            .map(|(place, misfit)| (*place, misfit.stored))
            .find(|(p, stored)| fits(*p, *stored))
            .map(|f| f.0)
    }

    fn finish(&self, interrupted: bool) -> Scrubbed {
        let mut found = std::mem::take(&mut *self.found());
        let area = &self.store().area;
        let mut findings = std::mem::take(&mut found.others);
        // Each is compared with all others, so not if there are very many.
        let compares = found.misfits.len() <= 1000;
        for (&(member, block), misfit) in &found.misfits {
            let meant = || self.meant_for(&found.misfits, (member, block), misfit.plain);
            let meant = compares.then(meant).flatten();
            let (kind, detail) = match meant {
                Some((other, at)) => {
                    let at = area.data_start + at * BLOCK;
                    (FindingKind::Misdirected, format!("written for {at} of {}", self.spec(other)))
                }
                None if misfit.is_suspect => (FindingKind::Torn, "was being written".to_owned()),
                None if misfit.stored == LOST_SUM => {
                    (FindingKind::Sums, "its block of checksums was damaged".to_owned())
                }
                None => {
                    let (stored, found) = (misfit.stored, misfit.found);
                    (FindingKind::Rotten, format!("expected {stored:08x}, found {found:08x}"))
                }
            };
            findings.push(self.of_block(kind, member, block, detail));
        }
        findings.sort_by_key(|finding| (finding.volume_offset, finding.member_offset));
        findings.truncate(MOST_FINDINGS);
        Scrubbed {
            interrupted,
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            verified_bytes: self.verified_bytes.load(Ordering::Relaxed),
            resealed_blocks: self.sums.marks.resealed(),
            findings,
            finding_count: found.count,
        }
    }
}
