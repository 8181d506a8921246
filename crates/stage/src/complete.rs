//! Sets of parts ([`crate::parts`]): what of one is there, and its record once all of it is.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

use crate::digest::{Algorithm, CHUNK_BYTES, Digest};
use crate::error::StageError;
use crate::fault::{Check, enforced};
use crate::manifest::{Entry, Header, Kind, NAME, Writer};
use crate::names::PathText;
use crate::owned::Record;
use crate::parts::{PartFault, PartId, SetId, SetRecord};
use crate::set::Manifest;
use crate::tier::Tier;

/// Parts that are looked at together.
const TOGETHER: usize = 16;

/// What became of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// Its record was published by this call.
    Made,
    /// Another process has published the same record.
    There,
    /// Parts are missing, or not what they should be.
    Lacks(Vec<PartFault>),
}

/// A set as it lies on a tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetSurvey {
    /// Which.
    pub id: SetId,
    /// Its parts, as their names state; 0 if there is none.
    pub ranks: u32,
    /// Its record is there, and every file that it lists in its size.
    pub is_complete: bool,
    /// What it lacks, by rank. None of a complete set; none as well of one that lacks its record alone.
    pub faults: Vec<PartFault>,
}

/// The sets of parts on a tier, oldest first.
pub fn sets(slow: &dyn Tier) -> Result<Vec<SetId>, StageError> {
    let names = slow.children(&|name| SetId::of_name(name).is_some())?;
    let mut sets: Vec<SetId> = names.iter().filter_map(|name| SetId::of_name(name)).collect();
    sets.sort();
    Ok(sets)
}

/// The record of a set that is complete: it is whole, every file that it lists is there in its size, and every part states
/// that it is of this set.
pub fn record_of(slow: &dyn Tier, id: &SetId) -> Result<Option<SetRecord>, StageError> {
    let found = slow.durable(OsStr::new(&id.to_string()))?.and_then(|manifest| manifest.set().cloned());
    let Some(record) = found.filter(|record| (&record.run, record.step) == (&id.run, id.step)) else {
        return Ok(None);
    };
    let Some(parts) = Found::of(slow, id)? else { return Ok(None) };
    let mut is_right = parts.ranks == record.ranks && parts.absent().is_empty();
    if is_right {
        parts.each_present(false, &mut |_, state| {
            is_right &= state.is_ok();
            Ok(())
        })?;
    }
    Ok(is_right.then_some(record))
}

/// Looks at every part of a set and names what it lacks. Nothing is changed.
pub fn survey(slow: &dyn Tier, id: &SetId) -> Result<SetSurvey, StageError> {
    if let Some(record) = record_of(slow, id)? {
        return Ok(SetSurvey { id: id.clone(), ranks: record.ranks, is_complete: true, faults: Vec::new() });
    }
    let Some(found) = Found::of(slow, id)? else {
        return Ok(SetSurvey { id: id.clone(), ranks: 0, is_complete: false, faults: Vec::new() });
    };
    let mut faults = found.absent();
    found.each_present(true, &mut |part, state| {
        if let Err(fault) = state {
            faults.push(PartFault { rank: part.rank, ..fault });
        }
        Ok(())
    })?;
    faults.sort_by_key(|fault| fault.rank);
    name_nodes(slow, id, &mut faults)?;
    Ok(SetSurvey { id: id.clone(), ranks: found.ranks, is_complete: false, faults })
}

/// Publishes a set's record if all of its parts are there.
///
/// # Errors
/// [`StageError::Refused`] if another record is there.
pub fn complete(slow: &dyn Tier, id: &SetId, record: &dyn Record) -> Result<Completion, StageError> {
    let Some(found) = Found::of(slow, id)? else { return Ok(Completion::Lacks(Vec::new())) };
    let absent = found.absent();
    if !absent.is_empty() {
        return Ok(Completion::Lacks(absent));
    }
    let mut faults = Vec::new();
    let mut merged: Option<Merged> = None;
    found.each_present(true, &mut |part, state| {
        match state {
            Err(fault) => faults.push(fault),
            Ok(manifest) => {
                let merged = match &mut merged {
                    Some(merged) => merged,
                    none => none.insert(Merged::new(id, found.ranks, &manifest)?),
                };
                if manifest.algorithm() == merged.algorithm {
                    merged.add(part, &manifest)?;
                } else {
                    let why = "it is digested by another algorithm than the first part".to_owned();
                    faults.push(PartFault { rank: part.rank, node: node_of(&manifest), why });
                }
            }
        }
        Ok(())
    })?;
    let Some(merged) = merged.filter(|_| faults.is_empty()) else { return Ok(Completion::Lacks(faults)) };
    let made = slow.put_record(OsStr::new(&id.to_string()), &merged.finish()?, record)?;
    Ok(if made { Completion::Made } else { Completion::There })
}

/// The parts that have names in a set.
struct Found<'a> {
    id: &'a SetId,
    parts: Box<dyn Tier>,
    /// By rank; of those that state `ranks`.
    names: BTreeMap<u32, OsString>,
    ranks: u32,
}

impl<'a> Found<'a> {
    /// None if there is no part. Parts of two numbers of ranks do not belong together: those of the number that most of
    /// them state are the set's.
    fn of(slow: &dyn Tier, id: &'a SetId) -> Result<Option<Self>, StageError> {
        let Some(parts) = slow.within(OsStr::new(&id.to_string()))? else { return Ok(None) };
        let mut by_ranks: BTreeMap<u32, BTreeMap<u32, OsString>> = BTreeMap::new();
        for name in parts.children(&|name| PartId::of_name(name).is_some())? {
            if let Some(part) = PartId::of_name(&name) {
                by_ranks.entry(part.ranks).or_default().insert(part.rank, name);
            }
        }
        let most = by_ranks.into_iter().max_by_key(|(_, names)| names.len());
        Ok(most.map(|(ranks, names)| Self { id, parts, names, ranks }))
    }

    fn absent(&self) -> Vec<PartFault> {
        let absent = (0..self.ranks).filter(|rank| !self.names.contains_key(rank));
        absent.map(|rank| PartFault { rank, node: None, why: "its part is not there".to_owned() }).collect()
    }

    /// Calls `see` with each part that has a name, by rank: its manifest if it is right, or what is wrong with it. With
    /// `files` it is looked whether the files are there as well. Several parts are looked at together, for the sake of stores
    /// that are far away.
    fn each_present(
        &self,
        files: bool,
        see: &mut dyn FnMut(PartId, Result<Manifest, PartFault>) -> Result<(), StageError>,
    ) -> Result<(), StageError> {
        let parts: Vec<(PartId, &OsString)> =
            self.names.iter().map(|(rank, name)| (PartId { rank: *rank, ranks: self.ranks }, name)).collect();
        for together in parts.chunks(TOGETHER) {
            let states: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = together
                    .iter()
                    .map(|&(part, name)| scope.spawn(move || (part, self.part(part, name, files))))
                    .collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
                    .collect()
            });
            for (part, state) in states {
                see(part, state?)?;
            }
        }
        Ok(())
    }

    fn part(
        &self,
        part: PartId,
        name: &OsStr,
        files: bool,
    ) -> Result<Result<Manifest, PartFault>, StageError> {
        let fault = |node, why: &str| Ok(Err(PartFault { rank: part.rank, node, why: why.to_owned() }));
        let Some(manifest) = self.parts.manifest(name)? else {
            return fault(None, "its part has no manifest that is whole");
        };
        if let Some(why) = stranger(self.id, part, &manifest).filter(|_| enforced(Check::PartRecord)) {
            return fault(node_of(&manifest), &why);
        }
        if files && self.parts.durable(name)?.is_none() {
            let why = "its part lacks a file, or has one of another size, than its manifest lists";
            return fault(node_of(&manifest), why);
        }
        Ok(Ok(manifest))
    }
}

/// How a part's manifest is not that of the part whose place it has.
fn stranger(id: &SetId, part: PartId, manifest: &Manifest) -> Option<String> {
    let Some(record) = manifest.part() else { return Some("its part states no run and rank".to_owned()) };
    if record.run != id.run {
        return Some(format!("its part is of run {}", record.run));
    }
    let is_own = (record.step, record.rank, record.ranks) == (id.step, part.rank, part.ranks);
    (!is_own)
        .then(|| format!("its part is of step {}, rank {} of {}", record.step, record.rank, record.ranks))
}

fn node_of(manifest: &Manifest) -> Option<String> {
    manifest.part().map(|record| record.node.clone())
}

/// Names the hosts of parts that are not there, by the newest other set of the run that has a part of that rank.
fn name_nodes(slow: &dyn Tier, id: &SetId, faults: &mut [PartFault]) -> Result<(), StageError> {
    if faults.iter().all(|fault| fault.node.is_some()) {
        return Ok(());
    }
    for other in sets(slow)?.iter().rev().filter(|other| other.run == id.run && *other != id) {
        let Some(found) = Found::of(slow, other)? else { continue };
        for fault in faults.iter_mut().filter(|fault| fault.node.is_none()) {
            if let Some(name) = found.names.get(&fault.rank) {
                fault.node = found.parts.manifest(name)?.as_ref().and_then(node_of);
            }
        }
    }
    Ok(())
}

/// A set's record in the making: the entries of all parts, in the order of their paths' bytes.
struct Merged {
    writer: Writer<Vec<u8>>,
    algorithm: Algorithm,
    name: PathBuf,
}

impl Merged {
    /// Begins with the first part. Its time stands for the set's, so that the bytes are the same whoever writes them.
    fn new(id: &SetId, ranks: u32, first: &Manifest) -> Result<Self, StageError> {
        let (name, algorithm) = (PathBuf::from(id.to_string()), first.algorithm());
        let mut header = Header::new(algorithm, &name, first.created());
        header.set = Some(SetRecord { run: id.run.clone(), step: id.step, ranks });
        let writer = Writer::new(Vec::new(), &header).map_err(|error| failed(&name, error))?;
        let mut merged = Self { writer, algorithm, name };
        let root = first.each(|entry| Ok(ControlFlow::Break(entry)))?;
        if let Some(root) = root {
            merged.entry(&Entry { path: PathText::default(), ..root })?;
        }
        Ok(merged)
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), StageError> {
        self.writer.entry(entry).map_err(|error| failed(&self.name, error))
    }

    /// Adds a part: its entries beneath its name, and its manifest, which is a file of the set.
    fn add(&mut self, part: PartId, manifest: &Manifest) -> Result<(), StageError> {
        let above = PathBuf::from(part.to_string());
        let beneath = |path: &Path| {
            PathText(if path.as_os_str().is_empty() { above.clone() } else { above.join(path) })
        };
        let mut own = None;
        manifest.each::<()>(|entry| {
            if entry.path.0.as_os_str().is_empty() {
                own = Some(self.manifest_entry(&above, &entry, manifest)?);
            } else if own.is_some() && entry.path.0.as_os_str() > OsStr::new(NAME) {
                self.entries(own.take())?;
            }
            let link_to = entry.link_to.as_ref().map(|first| beneath(&first.0));
            self.entry(&Entry { path: beneath(&entry.path.0), link_to, ..entry })?;
            Ok(ControlFlow::Continue(()))
        })?;
        self.entries(own)
    }

    fn entries(&mut self, entry: Option<Entry>) -> Result<(), StageError> {
        entry.map_or(Ok(()), |entry| self.entry(&entry))
    }

    fn manifest_entry(&self, above: &Path, root: &Entry, manifest: &Manifest) -> Result<Entry, StageError> {
        let text = manifest.text()?;
        let chunks: Vec<Digest> =
            text.chunks(CHUNK_BYTES as usize).map(|chunk| self.algorithm.of(chunk)).collect();
        Ok(Entry {
            path: PathText(above.join(NAME)),
            kind: Kind::File,
            size: text.len() as u64,
            mode: 0o644,
            uid: root.uid,
            gid: root.gid,
            mtime_s: i64::try_from(manifest.created()).unwrap_or(0),
            mtime_ns: 0,
            digest: Some(self.algorithm.of_chunks(&chunks)),
            chunks: if chunks.len() > 1 { chunks } else { Vec::new() },
            target: None,
            link_to: None,
        })
    }

    fn finish(self) -> Result<Vec<u8>, StageError> {
        let name = self.name;
        self.writer.finish().map(|(text, _)| text).map_err(|error| failed(&name, error))
    }
}

fn failed(name: &Path, error: std::io::Error) -> StageError {
    StageError::io("write the record of", name, error)
}
