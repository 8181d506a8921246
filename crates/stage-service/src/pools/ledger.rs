//! Who has reserved what: a directory with a file for each user, `UID.json`, which that user alone writes.
//!
//! A reservation is there, durably, before its holder may write a byte. It goes when it is released, or when its time is up
//! (`lease`).
//!
//! Users may share a ledger without trusting each other. The directory is sticky then (mode 1777 or 1770), so that the
//! kernel keeps each user from the others' files. A file counts if it belongs to the user after whom it is named, or to
//! root, or to this process's user; all of its reservations are that user's, whatever it says. What cannot be read or is too
//! large is left out with a warning. The directory itself belongs to root, to this process's user, or to the one who describes
//! the pools: the owner of a sticky directory may remove what others have in it. [`super`] counts of each user no more than that user's share, so that the worst that a
//! false file does is to claim its own user's share, or to hide what its own user has reserved.
//!
//! Steps exclude each other by a lock on the directory (flock(2)). Any member may hold it, so the wait has a bound.
//! `changes` counts what may have made room or hidden use; a remembered walk of a pool is dropped when it has moved.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::lease::Lease;
use stage::calls;
use stage::error::{StageError, shown};
use stage::lock;
use stage::names::hex;
use stage::pace::always;
use storage::uuid::Uuid;

/// The form of a user's file.
const SCHEMA: &str = "flashwright.stage-ledger/1";
/// Bytes of a user's file at most: thousands of reservations.
const FILE_MAX_BYTES: u64 = 1 << 20;
/// The highest number of a reservation: every JSON reader keeps integers up to it.
const ID_MAX: i64 = 1 << 53;
/// How the name of a file that is being written ends.
const PART: &str = ".part";

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reserved {
    pub(super) id: i64,
    pub(super) pool: String,
    /// By the file's name.
    #[serde(skip)]
    pub(super) owner: u32,
    pub(super) label: String,
    pub(super) bytes: u64,
    pub(super) created: u64,
    pub(super) lease: Lease,
}

impl Reserved {
    /// Where it is written to, relative to the pool.
    pub(super) fn directory(&self) -> PathBuf {
        directory(self.owner, &self.label)
    }
}

/// Where a user's set of a name is, relative to its pool.
pub(super) fn directory(owner: u32, label: &str) -> PathBuf {
    PathBuf::from(owner.to_string()).join(label)
}

/// May a set be called so?
pub(super) fn is_label(label: &str) -> bool {
    let plain = |byte: u8| byte != b'/' && !byte.is_ascii_control();
    !label.is_empty() && label.len() <= 200 && !label.starts_with('.') && label.bytes().all(plain)
}

/// A user's file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct UserFile {
    schema: String,
    /// The highest number that a reservation in it has had.
    last: i64,
    changes: u64,
    reservations: Vec<Reserved>,
    /// This process may write it.
    #[serde(skip)]
    is_own: bool,
    #[serde(skip)]
    has_changed: bool,
}

/// How the name of a file begins that this process's user is writing.
fn part_prefix() -> String {
    format!(".{}.", rustix::process::geteuid().as_raw())
}

impl UserFile {
    /// A number that no reservation in this file has.
    fn next_id(&self) -> i64 {
        if self.last < ID_MAX {
            return self.last + 1;
        }
        let is_free = |id: &i64| self.reservations.iter().all(|row| row.id != *id);
        (1..ID_MAX).find(is_free).expect("a file is too short for as many")
    }

    fn new() -> Self {
        let schema = SCHEMA.to_owned();
        Self { schema, last: 0, changes: 0, reservations: Vec::new(), is_own: true, has_changed: false }
    }
}

/// The ledger.
#[derive(Debug)]
pub(super) struct Ledger {
    path: PathBuf,
    /// The user who describes the pools.
    describer: u32,
    /// One step of this process at a time; `flock` is for those of others.
    step: Mutex<()>,
}

/// One step, which others see whole or not at all.
pub(super) struct Step<'a> {
    ledger: &'a Ledger,
    files: BTreeMap<u32, UserFile>,
}

impl Ledger {
    /// Opens it; a directory that is not there is made for this user alone. `describer` is the user who describes the pools.
    ///
    /// # Errors
    /// [`StageError::Refused`] if the directory is a stranger's, or if others may replace what is in it.
    pub(super) fn open(path: &Path, describer: u32) -> Result<Self, StageError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| StageError::io("make the directory", path, error))?;
        let ledger = Self { path: path.to_owned(), describer, step: Mutex::default() };
        ledger.step(|_| Ok(()))?;
        Ok(ledger)
    }

    /// No other step is made until `work` is done. All that it writes is durable when this returns, or none of it is there.
    pub(super) fn step<T>(
        &self,
        work: impl FnOnce(&mut Step<'_>) -> Result<T, StageError>,
    ) -> Result<T, StageError> {
        let _one = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        let directory =
            calls::open_directory(&self.path).map_err(|error| StageError::io("open", &self.path, error))?;
        // At each step: the name may have been given to another directory since the last one.
        let facts =
            calls::stat(directory.as_fd()).map_err(|error| StageError::io("stat", &self.path, error))?;
        self.check_owner(facts.stx_uid)?;
        check_sticky(&self.path, u32::from(facts.stx_mode))?;
        // Until `directory` is closed. A file system without such locks has no other process's steps to exclude.
        lock::wait(directory.as_fd(), true, &self.path, &always)?;
        let mut step = Step { ledger: self, files: self.read()? };
        let worked = work(&mut step)?;
        let changed: Vec<_> = step.files.iter().filter(|(_, file)| file.has_changed).collect();
        for (user, file) in &changed {
            self.write(**user, file)?;
        }
        if !changed.is_empty() {
            calls::sync_outside_move(directory.as_fd())
                .map_err(|error| StageError::sync("fsync", &self.path, error))?;
        }
        Ok(worked)
    }

    /// Refuses the directory of a user who was there first.
    fn check_owner(&self, owner: u32) -> Result<(), StageError> {
        let me = rustix::process::geteuid().as_raw();
        if [0, me, self.describer].contains(&owner) {
            return Ok(());
        }
        Err(StageError::refused(
            format!("{}: belongs to uid {owner}, who could remove what others reserve", shown(&self.path)),
            "the ledger of users who share pools is root's, or of the user who describes the pools",
        ))
    }

    fn read(&self) -> Result<BTreeMap<u32, UserFile>, StageError> {
        let failed = |error| StageError::io("read it", &self.path, error);
        let own_part = part_prefix();
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(&self.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(|name| name.starts_with(&own_part) && name.ends_with(PART)) {
                // A process of this user died while it wrote. What another user calls so is not removed from here.
                let _ = std::fs::remove_file(&path);
            }
            let Some(user) = name.and_then(|name| name.strip_suffix(".json")?.parse::<u32>().ok()) else {
                continue;
            };
            match read_file(&path, user) {
                Ok(file) => {
                    files.insert(user, file);
                }
                Err(error) if user == rustix::process::geteuid().as_raw() => return Err(error),
                Err(error) => tracing::warn!(%error, user, "reservations of a user are left out"),
            }
        }
        Ok(files)
    }

    fn write(&self, user: u32, file: &UserFile) -> Result<(), StageError> {
        let path = self.path.join(format!("{user}.json"));
        // Another user cannot take the name beforehand: it cannot be guessed.
        let random = Uuid::random().map_err(|error| StageError::io("get a UUID for", &path, error))?;
        let part = self.path.join(format!("{}{}{PART}", part_prefix(), hex(&random.0)));
        let text = serde_json::to_vec(file).map_err(std::io::Error::from);
        let written = text.and_then(|text| {
            if text.len() as u64 > FILE_MAX_BYTES {
                return Err(std::io::Error::other("too many reservations"));
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&part)?;
            file.write_all(&text)?;
            calls::sync_outside_move(file.as_fd())?;
            std::fs::rename(&part, &path)
        });
        written.map_err(|error| {
            let _ = std::fs::remove_file(&part);
            StageError::io("write the reservations", &path, error)
        })
    }
}

/// In a directory that others may write to, only the sticky bit keeps them from replacing what is this user's.
pub(super) fn check_sticky(path: &Path, mode: u32) -> Result<(), StageError> {
    if mode & 0o022 == 0 || mode & 0o1000 != 0 {
        return Ok(());
    }
    Err(StageError::refused(
        format!(
            "{}: others may write to it and could replace what is yours (mode {:o})",
            shown(path),
            mode & 0o7777
        ),
        format!("chmod +t {}", shown(path)),
    ))
}

fn read_file(path: &Path, user: u32) -> Result<UserFile, StageError> {
    let failed = |error| StageError::io("read", path, error);
    let wrong = |what: String| {
        StageError::refused(format!("{}: {what}", shown(path)), "its owner or root may remove it")
    };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path).map_err(failed)?;
    let facts = file.metadata().map_err(failed)?;
    let me = rustix::process::geteuid().as_raw();
    if ![user, 0, me].contains(&facts.uid()) {
        return Err(wrong(format!("belongs to uid {}", facts.uid())));
    }
    if !facts.is_file() || facts.len() > FILE_MAX_BYTES {
        return Err(wrong("is not a file of reservations".to_owned()));
    }
    let mut read: UserFile = parse(file).map_err(|error| wrong(error.to_string()))?;
    if read.schema != SCHEMA {
        return Err(wrong(format!("is not {SCHEMA}")));
    }
    read.is_own = facts.uid() == me;
    read.reservations.retain(|row| is_label(&row.label) && (1..=ID_MAX).contains(&row.id));
    let highest = read.reservations.iter().map(|row| row.id).max().unwrap_or_default();
    read.last = read.last.clamp(highest, ID_MAX);
    for row in &mut read.reservations {
        row.owner = user;
    }
    Ok(read)
}

fn parse(file: File) -> std::io::Result<UserFile> {
    let mut text = Vec::new();
    // The file may grow while it is read.
    file.take(FILE_MAX_BYTES).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

impl Step<'_> {
    /// All reservations, the oldest first.
    pub(super) fn rows(&self) -> Vec<Reserved> {
        let rows = self.files.values().flat_map(|file| file.reservations.iter().cloned());
        let mut rows: Vec<Reserved> = rows.collect();
        rows.sort_by_key(|row| (row.created, row.id, row.owner));
        rows
    }

    /// Records a reservation under a number that no other of its owner has. Other users' files have no part in it.
    pub(super) fn insert(&mut self, mut row: Reserved) -> Result<Reserved, StageError> {
        let path = self.ledger.path.join(format!("{}.json", row.owner));
        if !self.files.contains_key(&row.owner) && path.exists() {
            return Err(StageError::refused(
                format!("{}: another user has put something there", shown(&path)),
                "root may remove it",
            ));
        }
        let file = self.files.entry(row.owner).or_insert_with(UserFile::new);
        if !file.is_own {
            return Err(StageError::refused(
                format!("{}: is another user's to write", shown(&path)),
                "each user reserves by a process of their own",
            ));
        }
        row.id = file.next_id();
        file.last = file.last.max(row.id);
        file.has_changed = true;
        file.reservations.push(row.clone());
        Ok(row)
    }

    /// Has a user had a reservation of this number?
    pub(super) fn had(&self, id: i64, owner: u32) -> bool {
        self.files.get(&owner).is_some_and(|file| (1..=file.last).contains(&id))
    }

    /// Removes what this process may remove. Another user's reservation stays in that user's file, until that user's next
    /// step.
    pub(super) fn delete(&mut self, id: i64, owner: u32) {
        if let Some(file) = self.own_file(owner)
            && let Some(at) = file.reservations.iter().position(|row| row.id == id)
        {
            file.reservations.remove(at);
            file.changes = file.changes.wrapping_add(1);
            file.has_changed = true;
        }
    }

    /// Records another lease. False if this process may not, or there is no such reservation.
    pub(super) fn note(&mut self, id: i64, owner: u32, lease: &Lease) -> bool {
        let Some(file) = self.own_file(owner) else { return false };
        let Some(row) = file.reservations.iter_mut().find(|row| row.id == id) else { return false };
        row.lease = lease.clone();
        file.has_changed = true;
        true
    }

    /// How many reservations have been deleted so far, in all files.
    pub(super) fn changes(&self) -> u64 {
        self.files.values().fold(0, |sum, file| sum.wrapping_add(file.changes))
    }

    fn own_file(&mut self, owner: u32) -> Option<&mut UserFile> {
        self.files.get_mut(&owner).filter(|file| file.is_own)
    }
}

#[cfg(test)]
#[path = "../../../../formats/fixture.rs"]
mod fixture;

#[cfg(test)]
mod tests {
    use super::super::lease::Uptime;
    use super::*;

    #[test]
    fn a_users_file_is_read_for_ever() {
        let row = |id, label: &str, lease| Reserved {
            id,
            pool: "fast".to_owned(),
            owner: 1000,
            label: label.to_owned(),
            bytes: 5 << 30,
            created: 1_750_000_000,
            lease,
        };
        let until = Uptime { boot: "6f3f1e0a-28c2-4d2f-8e41-1f0f5f6c2b11".to_owned(), seconds: 90_000 };
        let ends = |until| Lease { expires: 1_750_086_400, until };
        let rows = vec![row(3, "run-7", ends(None)), row(5, "run 8", ends(Some(until)))];
        let written = UserFile { last: 6, changes: 2, reservations: rows, ..UserFile::new() };
        let text = serde_json::to_vec(&written).unwrap();
        let kept = fixture::fixture("stage-ledger-1.json", || text.clone());
        let read: UserFile = serde_json::from_slice(&kept).unwrap();
        assert_eq!((read.schema.as_str(), read.last, read.changes), (SCHEMA, 6, 2));
        let rows = read.reservations.into_iter().map(|row| Reserved { owner: 1000, ..row });
        assert_eq!(rows.collect::<Vec<_>>(), written.reservations);
        assert!(text == kept, "what is written today is the same, byte for byte");
    }
}
