//! How the digests that are recorded of a job were made: as it asks for, but of a set that it fetches they are the set's own.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};

use super::{Journal, peek};
use crate::digest::{Algorithm, CHUNK_BYTES};
use crate::error::StageError;
use crate::job::JobId;
use crate::spec::JobSpec;

/// The note of those that were taken over.
pub(super) const KEY: &str = "digests";

/// How digests of files were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digests {
    /// Of each chunk, and of their digests.
    pub algorithm: Algorithm,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
}

impl Journal {
    /// The digests that are recorded of a job from now on were made so.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn take_over_digests(&self, id: JobId, made: Digests) -> Result<(), StageError> {
        let Digests { algorithm, chunk_bytes } = made;
        self.keep_note(id, KEY, format!("{} {chunk_bytes}", algorithm.word()).as_bytes())
    }

    /// How the recorded digests of a job were made.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn digests(&self, id: JobId, spec: &JobSpec) -> Result<Digests, StageError> {
        self.query("what was noted", |connection| digests(connection, id, spec))
    }

    /// The same of a job in the journal of such a state directory.
    ///
    /// # Errors
    /// There is none; it is of another version; it cannot be read.
    pub fn peek_digests(state: &Path, id: JobId, spec: &JobSpec) -> Result<Digests, StageError> {
        peek(state, |connection| digests(connection, id, spec))
    }
}

fn digests(connection: &Connection, id: JobId, spec: &JobSpec) -> rusqlite::Result<Digests> {
    let noted: Option<Vec<u8>> = connection
        .prepare_cached("SELECT value FROM notes WHERE job = ?1 AND key = ?2")?
        .query_row(params![id, KEY], |row| row.get(0))
        .optional()?;
    let taken_over = noted.and_then(|noted| {
        let (word, bytes) = std::str::from_utf8(&noted).ok()?.split_once(' ')?;
        Some(Digests { algorithm: word.parse().ok()?, chunk_bytes: bytes.parse().ok()? })
    });
    Ok(taken_over.unwrap_or(Digests { algorithm: spec.options.digest, chunk_bytes: CHUNK_BYTES }))
}
