//! The journal: what was changed, and what is needed to undo it.
//!
//! **Invariants.** A change is in the journal, durably, before any part of it is made. It carries all that undoing
//! needs: old values, and the UUIDs that will be on the drives, which are chosen before mkfs. A change is
//! marked undone only after it is. So at any moment, what is journalled and not marked is a superset of
//! what is changed, and undoing what was never made does nothing.
//!
//! **Form** (`flashwright.layout-journal/1`). Text, one line an entry: the CRC-32C of the rest in eight hexadecimal
//! digits, a blank, JSON. The first line is the head. A last line that is torn or whose sum is wrong was never
//! finished, so what it announces was never begun; it is left out. Before anything is appended to it, that is made
//! known to all later readers, for it will be the last no more: a torn line is ended by the control character CAN and a
//! newline, and of one that is whole and wrong an entry says its number. Any other wrong line is damage: what the
//! others say is undone, and it is told. A line whose sum is right and whose entry is not known was written by a later
//! version, for something that it did: nothing is undone then. When all is undone the file is removed.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use storage::trust;

use crate::change::Change;
use crate::error::LayoutError;
use crate::system::System;

/// The form written into the head.
const FORMAT: &str = "flashwright.layout-journal/1";

/// What ends a line that was never finished ("cancel", ASCII 24). JSON holds no such byte.
const CANCEL: u8 = 0x18;

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    /// The first line.
    Head(Head),
    /// A change that is about to be made.
    Change { number: u64, change: Change },
    /// A change that is undone.
    Undone { number: u64 },
    /// What stands from here on; `by_hand` where it is to outlast the process.
    Stands { spec: String, device_spec: String, by_hand: bool },
    /// A line that is whole and wrong, and was the last: its writing was never finished.
    Void { line: usize },
}

/// Who began the journal, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    format: String,
    process: u32,
    /// Of this boot (`/proc/sys/kernel/random/boot_id`): numbers of interrupts mean nothing in another.
    boot: String,
}

/// What a journal says stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Standing {
    /// The layout; none where it was never finished.
    pub spec: Option<String>,
    /// The device spec of what is to be measured.
    pub device_spec: Option<String>,
    /// Whether it was made to stay (`layout up`).
    pub by_hand: bool,
    /// The process that made it.
    pub process: u32,
    /// The changes that are not undone, in the order in which they were made.
    pub changes: Vec<Change>,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = self.spec.as_deref().unwrap_or("a layout that was never finished");
        match self.by_hand {
            true => write!(f, "{spec} stands, made by hand"),
            false => write!(f, "process {} ended without taking down {spec}", self.process),
        }
    }
}

/// An open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    head: Head,
    next: u64,
    pending: Vec<(u64, Change)>,
    standing: Option<(String, String, bool)>,
    /// Lines that could not be read, other than a torn last one.
    pub damaged: Vec<usize>,
    is_torn: bool,
    /// A last line that is whole and wrong, until an entry says so.
    void: Option<usize>,
    exists: bool,
}

impl Journal {
    /// An empty journal, which is written with the first change.
    pub fn new(path: PathBuf, boot: String) -> Self {
        let head = Head { format: FORMAT.to_owned(), process: std::process::id(), boot };
        Self {
            path,
            head,
            next: 1,
            pending: Vec::new(),
            standing: None,
            damaged: Vec::new(),
            is_torn: false,
            void: None,
            exists: false,
        }
    }

    /// Reads a journal; none where there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, LayoutError> {
        let mut bytes = Vec::new();
        match trust::open(path) {
            Err(error) if error.is_missing() => return Ok(None),
            file => file?.read_to_end(&mut bytes).map_err(|source| LayoutError::io(path, "read", source))?,
        };
        let problem =
            |problem: &str| LayoutError::Journal { path: path.to_owned(), problem: problem.to_owned() };
        let mut journal = Self::new(path.to_owned(), String::new());
        journal.exists = true;
        let is_whole = bytes.last() == Some(&b'\n');
        let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        // What follows the last newline: nothing, or a torn line.
        let (last, lines) = lines.split_last().map_or((&[][..], &[][..]), |(last, lines)| (*last, lines));
        journal.is_torn = !is_whole && !last.is_empty();
        for (index, line) in lines.iter().enumerate() {
            match parse_line(line) {
                Line::Unknown(what) => {
                    return Err(problem(&format!("line {} is whole and not known: {what}", index + 1)));
                }
                Line::Entry(entry) => match (*entry, index) {
                    (Entry::Head(head), 0) => {
                        if head.format != FORMAT {
                            return Err(problem(&format!("its form is {}, not {FORMAT}", head.format)));
                        }
                        journal.head = head;
                    }
                    (_, 0) => journal.damaged.push(1),
                    (entry, _) => journal.take(entry),
                },
                Line::Damaged if is_unfinished(line) => {}
                Line::Damaged => journal.damaged.push(index + 1),
            }
        }
        // A last line that is whole and wrong was never finished either: the disk may write its parts in any order.
        let last = lines.iter().rposition(|line| !is_unfinished(line)).map(|index| index + 1);
        if last.is_some() && journal.damaged.last().copied() == last {
            journal.void = journal.damaged.pop();
        }
        if journal.head.boot.is_empty() && !journal.damaged.is_empty() {
            return Err(problem("is no journal of layouts"));
        }
        Ok(Some(journal))
    }

    fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Head(_) => {}
            Entry::Change { number, change } => {
                self.next = self.next.max(number + 1);
                self.pending.push((number, change));
            }
            Entry::Undone { number } => self.pending.retain(|(pending, _)| *pending != number),
            Entry::Stands { spec, device_spec, by_hand } => {
                self.standing = Some((spec, device_spec, by_hand));
            }
            Entry::Void { line } => self.damaged.retain(|damaged| *damaged != line),
        }
    }

    /// Announces a change. When this returns, it may be made.
    pub fn announce(&mut self, system: &mut dyn System, change: Change) -> Result<u64, LayoutError> {
        let number = self.next;
        // A line whose writing failed may be there all the same: its number is not used again.
        self.next += 1;
        self.write(system, &Entry::Change { number, change: change.clone() })?;
        self.pending.push((number, change));
        Ok(number)
    }

    /// Marks a change as undone; the journal of nothing is removed.
    pub fn undone(&mut self, system: &mut dyn System, number: u64) -> Result<(), LayoutError> {
        if self.pending.iter().all(|(pending, _)| *pending == number) {
            return self.remove(system);
        }
        self.write(system, &Entry::Undone { number })?;
        self.pending.retain(|(pending, _)| *pending != number);
        Ok(())
    }

    /// Notes what stands.
    pub fn stands(
        &mut self,
        system: &mut dyn System,
        spec: &str,
        device_spec: &str,
        by_hand: bool,
    ) -> Result<(), LayoutError> {
        self.write(
            system,
            &Entry::Stands { spec: spec.to_owned(), device_spec: device_spec.to_owned(), by_hand },
        )?;
        self.standing = Some((spec.to_owned(), device_spec.to_owned(), by_hand));
        Ok(())
    }

    /// Removes the file: nothing is left to be undone, or to be remembered.
    pub fn remove(&mut self, system: &mut dyn System) -> Result<(), LayoutError> {
        let removed = system.remove_file(&self.path);
        removed.map_err(|source| LayoutError::io(&self.path, "remove", source))?;
        self.exists = false;
        self.is_torn = false;
        self.void = None;
        self.pending.clear();
        self.standing = None;
        Ok(())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that it is in.
    pub fn state(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// The changes that are not undone, oldest first.
    pub fn pending(&self) -> &[(u64, Change)] {
        &self.pending
    }

    /// The boot in which it was begun.
    pub fn boot(&self) -> &str {
        &self.head.boot
    }

    /// What it says stands.
    pub fn standing(&self) -> Standing {
        let (spec, device_spec, by_hand) = match &self.standing {
            Some((spec, device_spec, by_hand)) => {
                (Some(spec.clone()), Some(device_spec.clone()).filter(|text| !text.is_empty()), *by_hand)
            }
            None => (None, None, false),
        };
        let changes = self.pending.iter().map(|(_, change)| change.clone()).collect();
        Standing { spec, device_spec, by_hand, process: self.head.process, changes }
    }

    fn write(&mut self, system: &mut dyn System, entry: &Entry) -> Result<(), LayoutError> {
        let mut bytes = Vec::new();
        if !self.exists {
            bytes.extend(line(&Entry::Head(self.head.clone())));
        } else if self.is_torn {
            bytes.extend([CANCEL, b'\n']);
        }
        if let Some(number) = self.void {
            bytes.extend(line(&Entry::Void { line: number }));
        }
        bytes.extend(line(entry));
        let written = system.append(&self.path, &bytes);
        if written.is_ok() {
            self.void = None;
        }
        // Whatever came of it, the next line must begin on a line of its own.
        self.is_torn = written.is_err();
        self.exists = self.exists || written.is_ok() || self.path.exists();
        written.map_err(|source| LayoutError::io(&self.path, "append", source))
    }
}

fn line(entry: &Entry) -> Vec<u8> {
    let json = serde_json::to_string(entry).unwrap_or_default();
    format!("{:08x} {json}\n", crc32c::crc32c(json.as_bytes())).into_bytes()
}

/// An append that was cut short, and whose line the next one ended.
fn is_unfinished(line: &[u8]) -> bool {
    line.is_empty() || line.last() == Some(&CANCEL)
}

/// What a line of the file is.
enum Line {
    Entry(Box<Entry>),
    /// Its sum is right, so that it was written as it stands, and it is no entry of this version: what it says was done.
    Unknown(serde_json::Error),
    /// Its sum is wrong.
    Damaged,
}

fn parse_line(line: &[u8]) -> Line {
    let parts = std::str::from_utf8(line).ok().and_then(|line| line.split_once(' '));
    let Some((sum, json)) = parts.filter(|(sum, _)| sum.len() == 8) else { return Line::Damaged };
    if u32::from_str_radix(sum, 16) != Ok(crc32c::crc32c(json.as_bytes())) {
        return Line::Damaged;
    }
    serde_json::from_str(json).map_or_else(Line::Unknown, |entry| Line::Entry(Box::new(entry)))
}
