//! What the rows of the journal say, and how they are read and written.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rusqlite::{Connection, Row, params};

use super::Entries;
use crate::digest::Digest;
use crate::fingerprint::{Fingerprint, Identity};
use crate::job::{JobId, JobStatus, State, Why};
use crate::manifest::{Entry, Kind};
use crate::mounts::Mount;
use crate::names::PathText;
use crate::owned::FileId;
use crate::spec::{Expected, JobSpec, Level};

/// An entry that is durable and verified in the part, and the source that it was copied from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// As the manifest will have it.
    pub entry: Entry,
    /// The source, when it was read. Of a file that was fetched from a store, the copy, when it was read back.
    pub source: Identity,
    /// The ETag of the object that holds a file, which this job has stored and read back; empty if the store has no ETags.
    /// None if this job stored no such object.
    pub object: Option<String>,
}

impl Done {
    /// An entry whose bytes are in no object.
    #[must_use]
    pub fn new(entry: Entry, source: Identity) -> Self {
        Self { entry, source, object: None }
    }
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
    /// Which file or directory it is; of a job that is committed, which one the destination is.
    pub part_id: Option<FileId>,
    /// Files total and done, bytes total, written, verified.
    pub counts: [u64; 5],
    /// The mounts of the source and of the destination's directory when the job was accepted.
    pub mounts: [Option<Mount>; 2],
    /// The state of the source that the copy is of, from right before it is published.
    pub source: Option<Fingerprint>,
}

/// What must be at a job's source.
pub(super) fn expected(connection: &Connection, id: JobId) -> rusqlite::Result<Vec<Expected>> {
    let mut query = connection
        .prepare_cached("SELECT path, size, digest FROM expected WHERE job = ?1 ORDER BY number")?;
    let file = |row: &Row<'_>| {
        let path = OsString::from_vec(row.get(0)?);
        Ok(Expected {
            path: PathText(path.into()),
            size: row.get::<_, Option<i64>>(1)?.map(|size| size as u64),
            digest: row.get::<_, Option<[u8; 32]>>(2)?.map(Digest),
        })
    };
    query.query_map([id], file)?.collect()
}

pub(super) fn page_after(
    connection: &Connection,
    of: Entries,
    after: Option<&Path>,
    most: usize,
) -> rusqlite::Result<Vec<Done>> {
    let mut query = connection.prepare_cached(
        "SELECT * FROM entries WHERE job = ?1 AND compared = ?2 AND (?3 IS NULL OR path > ?3) ORDER BY path LIMIT ?4",
    )?;
    let after = after.map(|path| path.as_os_str().as_bytes());
    query.query_map(params![of.job, of.compared, after, most as i64], done_of)?.collect()
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
            durable: row.times.1.filter(|_| row.level == Level::Durable),
            finished: row.times.2,
            files_total,
            files_done,
            bytes_total,
            bytes_written,
            bytes_verified,
            walked: matches!(row.state, State::Committed | State::Done),
            bytes_per_s: None,
            held_back_by: None,
            in_memory: row.mounts[1].as_ref().is_some_and(Mount::is_in_memory),
            source: row.source,
        }
    }
}

pub(super) fn rows(connection: &Connection, id: Option<JobId>) -> rusqlite::Result<Vec<JobRow>> {
    connection
        .prepare_cached("SELECT * FROM jobs WHERE ?1 IS NULL OR id = ?1 ORDER BY id")?
        .query_map([id], job_of)?
        .collect()
}

pub(super) fn job_of(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    let unsigned = |at: usize| row.get::<_, i64>(at).map(|value| value as u64);
    let optional = |at: usize| row.get::<_, Option<i64>>(at).map(|value| value.map(|value| value as u64));
    let error: Option<String> = row.get(8)?;
    let mount = |column| row.get::<_, Option<String>>(column)?.map(|text| document(&text, 0)).transpose();
    let born = row.get("part_born")?;
    let mounts = [mount("source_mount")?, mount("destination_mount")?];
    Ok(JobRow {
        id: row.get(0)?,
        spec: document(&row.get::<_, String>(1)?, 1)?,
        state: word(row, 2)?,
        level: level_at(word(row, 3)?, mounts[1].as_ref()),
        attempts: row.get(4)?,
        times: (unsigned(5)?, optional(6)?, optional(7)?),
        error: error.map(|text| document(&text, 8)).transpose()?,
        notes: document(&row.get::<_, String>(9)?, 9)?,
        part: row.get::<_, Option<Vec<u8>>>(10)?.map(OsString::from_vec),
        part_id: optional(11)?.map(|ino| FileId { ino, born }),
        mounts,
        counts: [unsigned(12)?, unsigned(13)?, unsigned(14)?, unsigned(15)?, unsigned(16)?],
        source: row.get::<_, Option<Vec<u8>>>("source")?.and_then(|bytes| Fingerprint::from_slice(&bytes)),
    })
}

/// The table says `durable` of every job that is committed, which all versions of this program understand. What a job's
/// level is follows from that and from where its destination is.
fn level_at(word: Level, destination: Option<&Mount>) -> Level {
    match destination {
        Some(at) if word == Level::Durable && at.is_in_memory() => Level::InMemory,
        _ => word,
    }
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
    Ok(Done { entry, source, object: row.get("object")? })
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
