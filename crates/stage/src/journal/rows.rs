//! What the rows of the journal say, and how they are read and written.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rusqlite::{Connection, Row, params};

use crate::digest::Digest;
use crate::job::{JobId, JobStatus, State, Why};
use crate::manifest::{Entry, Kind};
use crate::names::PathText;
use crate::spec::{JobSpec, Level};

/// What tells one state of a source file from another. A file that was written to since has another change time;
/// one that was replaced has another inode. The device's number is left out: it may change when the machine starts
/// again, and everything is looked up beneath one root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    /// Inode.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Modification time, seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Change time.
    pub ctime: (i64, u32),
    /// Names that it has.
    pub nlink: u32,
}

impl Identity {
    /// Of what statx(2) said. The size of what is no file means nothing: a directory's moves with its entries.
    #[must_use]
    pub fn of(stat: &rustix::fs::Statx) -> Self {
        use rustix::fs::FileType;
        let is_file = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
        Self {
            ino: stat.stx_ino,
            size: if is_file { stat.stx_size } else { 0 },
            mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            ctime: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            nlink: stat.stx_nlink,
        }
    }

    /// How `later` differs; none if it is the same. A file of several names has its change time moved when one of
    /// them goes, so there it does not count.
    #[must_use]
    pub fn change(&self, later: &Self) -> Option<&'static str> {
        if self.ino != later.ino {
            Some("it was replaced")
        } else if self.size != later.size {
            Some("its size is another")
        } else if self.mtime != later.mtime {
            Some("its modification time is another")
        } else if self.ctime != later.ctime && self.nlink <= 1 && later.nlink <= 1 {
            Some("its change time is another")
        } else {
            None
        }
    }
}

/// An entry that is durable and verified in the part, and the source that it was copied from.
#[derive(Debug, Clone)]
pub struct Done {
    /// As the manifest will have it.
    pub entry: Entry,
    /// The source, when it was read.
    pub source: Identity,
}

/// A job's row.
#[derive(Debug, Clone)]
pub struct JobRow {
    /// Its number.
    pub id: JobId,
    /// What was asked for.
    pub spec: JobSpec,
    /// Where it is.
    pub state: State,
    /// How far.
    pub level: Level,
    /// How often it was begun.
    pub attempts: u32,
    /// When it was accepted, when durable, when finished.
    pub times: (u64, Option<u64>, Option<u64>),
    /// Why it failed.
    pub error: Option<Why>,
    /// What is worth knowing.
    pub notes: Vec<String>,
    /// The name that the destination has until it is whole.
    pub part: Option<OsString>,
    /// The inode of what has that name.
    pub part_ino: Option<u64>,
    /// Files total and done, bytes total, written, verified.
    pub counts: [u64; 5],
}

pub(super) fn page_after(
    connection: &Connection,
    id: JobId,
    after: Option<&Path>,
    most: usize,
) -> rusqlite::Result<Vec<Done>> {
    let mut query = connection.prepare_cached(
        "SELECT * FROM entries WHERE job = ?1 AND (?2 IS NULL OR path > ?2) ORDER BY path LIMIT ?3",
    )?;
    let after = after.map(|path| path.as_os_str().as_bytes());
    query.query_map(params![id, after, most as i64], done_of)?.collect()
}

/// A job of which no more is known than the journal has.
impl From<JobRow> for JobStatus {
    fn from(row: JobRow) -> Self {
        let [files_total, files_done, bytes_total, bytes_written, bytes_verified] = row.counts;
        Self {
            id: row.id,
            spec: row.spec,
            state: row.state,
            level: row.level,
            error: row.error,
            notes: row.notes,
            attempts: row.attempts,
            created: row.times.0,
            durable: row.times.1,
            finished: row.times.2,
            files_total,
            files_done,
            bytes_total,
            bytes_written,
            bytes_verified,
            walked: matches!(row.state, State::Committed | State::Done),
            bytes_per_s: None,
            held_back_by: None,
        }
    }
}

pub(super) fn rows(connection: &Connection, id: Option<JobId>) -> rusqlite::Result<Vec<JobRow>> {
    connection
        .prepare_cached(
            "SELECT id, spec, state, level, attempts, created, durable, finished, error, notes, part, part_ino,
             files_total, files_done, bytes_total, bytes_written, bytes_verified
             FROM jobs WHERE ?1 IS NULL OR id = ?1 ORDER BY id",
        )?
        .query_map([id], job_of)?
        .collect()
}

fn job_of(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    let unsigned = |at: usize| row.get::<_, i64>(at).map(|value| value as u64);
    let optional = |at: usize| row.get::<_, Option<i64>>(at).map(|value| value.map(|value| value as u64));
    let error: Option<String> = row.get(8)?;
    Ok(JobRow {
        id: row.get(0)?,
        spec: document(&row.get::<_, String>(1)?, 1)?,
        state: word(row, 2)?,
        level: word(row, 3)?,
        attempts: row.get(4)?,
        times: (unsigned(5)?, optional(6)?, optional(7)?),
        error: error.map(|text| document(&text, 8)).transpose()?,
        notes: document(&row.get::<_, String>(9)?, 9)?,
        part: row.get::<_, Option<Vec<u8>>>(10)?.map(OsString::from_vec),
        part_ino: optional(11)?,
        counts: [unsigned(12)?, unsigned(13)?, unsigned(14)?, unsigned(15)?, unsigned(16)?],
    })
}

pub(super) fn done_of(row: &Row<'_>) -> rusqlite::Result<Done> {
    let path = |at: usize| {
        row.get::<_, Option<Vec<u8>>>(at)
            .map(|bytes| bytes.map(|bytes| PathText(OsString::from_vec(bytes).into())))
    };
    let number: i64 = row.get(2)?;
    let kind = match number {
        1 => Kind::Directory,
        2 => Kind::Symlink,
        _ => Kind::File,
    };
    let other = path(15)?;
    let (target, link_to) = match number {
        2 => (other, None),
        3 => (None, other),
        _ => (None, None),
    };
    let chunks: Option<Vec<u8>> = row.get(14)?;
    let chunks = chunks.map(|bytes| bytes.chunks_exact(32).filter_map(Digest::from_slice).collect());
    let entry = Entry {
        path: path(1)?.unwrap_or_default(),
        kind,
        size: row.get::<_, i64>(3)? as u64,
        mode: row.get(4)?,
        uid: row.get(5)?,
        gid: row.get(6)?,
        mtime_s: row.get(7)?,
        mtime_ns: row.get(8)?,
        digest: row.get::<_, Option<[u8; 32]>>(13)?.map(Digest),
        chunks: chunks.unwrap_or_default(),
        target,
        link_to,
    };
    let source = Identity {
        ino: row.get::<_, i64>(11)? as u64,
        size: entry.size,
        mtime: (entry.mtime_s, entry.mtime_ns),
        ctime: (row.get(9)?, row.get(10)?),
        nlink: row.get(12)?,
    };
    Ok(Done { entry, source })
}

/// 0 a file, 1 a directory, 2 a symbolic link, 3 another name of a file.
pub(super) fn kind_number(entry: &Entry) -> i64 {
    match entry.kind {
        Kind::File if entry.link_to.is_some() => 3,
        Kind::File => 0,
        Kind::Directory => 1,
        Kind::Symlink => 2,
    }
}

pub(super) fn identity_text(identity: &Identity) -> Vec<u8> {
    let Identity { ino, size, mtime, ctime, .. } = identity;
    format!("{ino} {size} {}.{} {}.{}", mtime.0, mtime.1, ctime.0, ctime.1).into_bytes()
}

pub(super) fn text(document: &impl serde::Serialize) -> String {
    serde_json::to_string(document).expect("plain data becomes JSON")
}

fn document<T: serde::de::DeserializeOwned>(text: &str, column: usize) -> rusqlite::Result<T> {
    serde_json::from_str(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
    })
}

fn word<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    document(&format!("\"{}\"", row.get::<_, String>(column)?), column)
}
