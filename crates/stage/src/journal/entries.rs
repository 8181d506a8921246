//! What of a job is durable and verified at its destination: whole entries, and chunks of large files that are begun.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rusqlite::{OptionalExtension, params};

use super::rows::{done_of, identity_text, kind_number, page_after};
use super::{Done, Entries, Identity, Journal, PAGE};
use crate::digest::Digest;
use crate::error::StageError;
use crate::fault::{self, Moment, comes_to};
use crate::job::JobId;

/// Entries of a job, one after another. Whoever asks after the last is told once more that there is none, so that several threads
/// may ask for their next.
pub struct EveryEntry<'a> {
    journal: &'a Journal,
    of: Entries,
    /// The last one that was read.
    after: Option<PathBuf>,
    page: std::vec::IntoIter<Done>,
}

impl Iterator for EveryEntry<'_> {
    type Item = Result<Done, StageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(done) = self.page.next() {
            return Some(Ok(done));
        }
        let after = self.after.as_deref();
        let page = self
            .journal
            .query("which files are done", |connection| page_after(connection, self.of, after, PAGE));
        match page {
            Ok(page) => {
                if let Some(last) = page.last() {
                    self.after = Some(last.entry.path.0.clone());
                }
                self.page = page.into_iter();
                self.page.next().map(Ok)
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl Journal {
    /// Entries that are durable and verified.
    pub fn record(&self, of: impl Into<Entries>, done: &[Done]) -> Result<(), StageError> {
        let Entries { job, compared } = of.into();
        if done.is_empty() {
            return Ok(());
        }
        comes_to(Moment::Recorded, || {
            // What a directory needs is set last.
            let files = done.iter().filter(|done| done.entry.kind == crate::manifest::Kind::File);
            files.map(|done| done.entry.path.0.clone()).collect()
        });
        self.step("files are durable", |step| {
            let mut insert = step.prepare_cached(
                "INSERT OR REPLACE INTO entries VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18)",
            )?;
            let mut forget_chunks = step.prepare_cached("DELETE FROM chunks WHERE job = ?1 AND path = ?2")?;
            let mut forget_begun = step.prepare_cached("DELETE FROM begun WHERE job = ?1 AND path = ?2")?;
            for Done { entry, source, object } in done {
                let path = entry.path.0.as_os_str().as_bytes();
                let chunks: Option<Vec<u8>> = (!entry.chunks.is_empty())
                    .then(|| entry.chunks.iter().flat_map(|digest| digest.0).collect());
                let other = entry.target.as_ref().or(entry.link_to.as_ref());
                insert.execute(params![
                    job,
                    path,
                    kind_number(entry),
                    entry.size as i64,
                    entry.mode,
                    entry.uid,
                    entry.gid,
                    entry.mtime_s,
                    entry.mtime_ns,
                    source.ctime.0,
                    source.ctime.1,
                    source.ino as i64,
                    source.nlink,
                    entry.digest.map(|digest| digest.0),
                    chunks,
                    other.map(|other| other.0.as_os_str().as_bytes()),
                    object,
                    compared,
                ])?;
                if !compared && !entry.chunks.is_empty() {
                    forget_chunks.execute(params![job, path])?;
                    forget_begun.execute(params![job, path])?;
                }
            }
            Ok(())
        })
    }

    /// What is recorded of a path.
    pub fn entry(&self, of: impl Into<Entries>, path: &Path) -> Result<Option<Done>, StageError> {
        let Entries { job, compared } = of.into();
        self.query("whether a file is done", |connection| {
            connection
                .prepare_cached("SELECT * FROM entries WHERE job = ?1 AND compared = ?2 AND path = ?3")?
                .query_row(params![job, compared, path.as_os_str().as_bytes()], done_of)
                .optional()
        })
    }

    /// All entries, in the order of the bytes of their paths, of which some thousand are in memory at a time.
    pub fn every_entry(&self, of: impl Into<Entries>) -> EveryEntry<'_> {
        EveryEntry { journal: self, of: of.into(), after: None, page: Vec::new().into_iter() }
    }

    /// Up to `most` entries whose paths sort before `before`, the last first.
    pub fn entries_before(
        &self,
        of: impl Into<Entries>,
        before: Option<&Path>,
        most: usize,
    ) -> Result<Vec<Done>, StageError> {
        let Entries { job, compared } = of.into();
        self.query("which files are done", |connection| {
            let mut query = connection.prepare_cached(
                "SELECT * FROM entries WHERE job = ?1 AND compared = ?2 AND (?3 IS NULL OR path < ?3)
                 ORDER BY path DESC LIMIT ?4",
            )?;
            let before = before.map(|path| path.as_os_str().as_bytes());
            query.query_map(params![job, compared, before, most as i64], done_of)?.collect()
        })
    }

    /// How many entries there are.
    pub fn entry_count(&self, of: impl Into<Entries>) -> Result<u64, StageError> {
        let Entries { job, compared } = of.into();
        self.query("how many files are done", |connection| {
            connection.query_row(
                "SELECT count(*) FROM entries WHERE job = ?1 AND compared = ?2",
                params![job, compared],
                |row| row.get::<_, i64>(0),
            )
        })
        .map(|count| count as u64)
    }

    /// Forgets entries of a job's part: what they name is no longer there, or not to be trusted.
    pub fn forget(&self, id: JobId, paths: &[PathBuf]) -> Result<(), StageError> {
        self.step("files are to be copied again", |step| {
            for path in paths {
                let path = path.as_os_str().as_bytes();
                for table in ["entries", "chunks", "begun"] {
                    // An equality, so that the primary key finds the row: NOT would read all entries for each path.
                    let of_part = if table == "entries" { "AND compared = 0" } else { "" };
                    let forget = format!("DELETE FROM {table} WHERE job = ?1 {of_part} AND path = ?2");
                    step.prepare_cached(&forget)?.execute(params![id, path])?;
                }
            }
            Ok(())
        })
    }

    /// A large file is begun: which source, and the inode that it is copied to.
    pub fn begin_large(
        &self,
        id: JobId,
        path: &Path,
        source: &Identity,
        destination_ino: u64,
    ) -> Result<(), StageError> {
        self.step("a large file is begun", |step| {
            let name = path.as_os_str().as_bytes();
            step.execute("DELETE FROM chunks WHERE job = ?1 AND path = ?2", params![id, name])?;
            step.execute(
                "INSERT OR REPLACE INTO begun VALUES (?1, ?2, ?3, ?4)",
                params![id, name, identity_text(source), destination_ino as i64],
            )
        })?;
        Ok(())
    }

    /// The chunks of a large file that are durable and verified, if it was begun with this very source and in this
    /// very inode; otherwise none.
    pub fn chunks(
        &self,
        id: JobId,
        path: &Path,
        source: &Identity,
        destination_ino: u64,
    ) -> Result<Option<BTreeMap<u64, Digest>>, StageError> {
        self.query("which chunks are durable", |connection| {
            let name = path.as_os_str().as_bytes();
            let begun: Option<(Vec<u8>, i64)> = connection
                .prepare_cached("SELECT identity, destination_ino FROM begun WHERE job = ?1 AND path = ?2")?
                .query_row(params![id, name], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let same = begun == Some((identity_text(source), destination_ino as i64));
            if begun.is_none() || !same && fault::enforced(fault::Check::ChunksOnResume) {
                return Ok(None);
            }
            let mut query =
                connection.prepare_cached("SELECT chunk, digest FROM chunks WHERE job = ?1 AND path = ?2")?;
            let chunks = query.query_map(params![id, name], |row| {
                let digest: [u8; 32] = row.get(1)?;
                Ok((row.get::<_, i64>(0)? as u64, Digest(digest)))
            })?;
            chunks.collect::<rusqlite::Result<_>>().map(Some)
        })
    }

    /// Has a large file of this path been begun?
    pub fn is_begun(&self, id: JobId, path: &Path) -> Result<bool, StageError> {
        self.query("whether a file is begun", |connection| {
            connection
                .prepare_cached("SELECT 1 FROM begun WHERE job = ?1 AND path = ?2")?
                .exists(params![id, path.as_os_str().as_bytes()])
        })
    }

    /// Notes chunks of a large file as durable and verified.
    pub fn seal(&self, id: JobId, path: &Path, chunks: &[(u64, Digest)]) -> Result<(), StageError> {
        comes_to(Moment::Recorded, || vec![path.to_owned()]);
        self.step("chunks are durable", |step| {
            let mut insert = step.prepare_cached("INSERT OR REPLACE INTO chunks VALUES (?1, ?2, ?3, ?4)")?;
            for (chunk, digest) in chunks {
                insert.execute(params![id, path.as_os_str().as_bytes(), *chunk as i64, digest.0])?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Entry, Kind};
    use crate::names::PathText;

    #[test]
    fn every_entry_comes_once_and_then_none_however_often_is_asked() {
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::open(state.path()).unwrap();
        let job: JobId = 1;
        // With a full page, one that is not, and one that only the next question finds empty.
        for count in [0, 1, PAGE, PAGE + 1] {
            let source = Identity { ino: 1, size: 0, mtime: (0, 0), ctime: (0, 0), nlink: 1 };
            let done: Vec<_> = (0..count)
                .map(|number| {
                    let path = PathText(format!("{number:05}").into());
                    let entry = Entry {
                        path,
                        kind: Kind::Directory,
                        size: 0,
                        mode: 0o755,
                        uid: 0,
                        gid: 0,
                        mtime_s: 0,
                        mtime_ns: 0,
                        digest: None,
                        chunks: Vec::new(),
                        target: None,
                        link_to: None,
                    };
                    Done::new(entry, source)
                })
                .collect();
            journal.record(job, &done).unwrap();
            let mut entries = journal.every_entry(job);
            let read: Vec<_> = entries.by_ref().map(Result::unwrap).collect();
            assert!(read == done, "{} of {count}", read.len());
            assert!((0..3).all(|_| entries.next().is_none()), "of {count} some come again");
        }
    }
}
