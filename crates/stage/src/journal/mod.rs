//! The journal: what was accepted and how far it has come, in one SQLite file with `synchronous=FULL`.
//!
//! A row is written only after what it says is durable: an entry's row after its bytes were synced and read back, a
//! chunk's row after its fdatasync, COMMITTED after the fsync of the directory that the final name is in. So whatever
//! a row says holds after any crash; what it does not say is done again.
//!
//! One process at a time has a journal: the lock is flock(2) on a file beside it, which goes with the process.

mod digests;
mod entries;
mod forget;
mod open;
mod owned;
mod rows;

pub use digests::Digests;
pub use owned::Purpose;
pub use rows::{Done, JobRow};

pub use crate::fingerprint::Identity;

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, OptionalExtension, params};
use storage::locks::Held;

use open::{check_owner, connect, lock, peek};
use rows::{job_of, page_after, rows, text};

use crate::error::StageError;
use crate::fault::{self, Call, Moment, comes_to};
use crate::fingerprint::Fingerprint;
use crate::job::{JobId, State, Why};
use crate::mounts;
use crate::owned::FileId;
use crate::spec::{JobSpec, Level, Options};

/// The note that says of a part, while it is not empty, that something in it is being synced, or was without success, and
/// could not be copied into another inode: the part is not gone on with.
pub const PART_IN_DOUBT: &str = "part/in-doubt";

/// The note of the name of the file that an adoption makes in its source for a moment ([`crate::distinct`]).
const PROBE: &str = "adoption/probe";

/// Which entries of a job are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entries {
    /// The job.
    pub job: JobId,
    /// Those of a destination that exists, while it is compared with the source; otherwise those of the part, which stay
    /// until the destination is adopted.
    pub compared: bool,
}

/// Those of the job's part.
impl From<JobId> for Entries {
    fn from(job: JobId) -> Self {
        Self { job, compared: false }
    }
}

/// Entries that are read at a time.
const PAGE: usize = 4096;

/// What became of a request.
#[derive(Debug)]
pub enum Accepted {
    /// A new job.
    New(JobId),
    /// This job, which is in this state.
    Same(JobId, State),
    /// This job, if its source is still what it vouches for: [`Judged`].
    Judge(Box<JobRow>),
}

/// Whether the source of a job was what the job vouched for.
#[derive(Debug, Clone, Copy)]
pub struct Judged {
    /// The job.
    pub id: JobId,
    /// Its state, when that was judged.
    pub state: State,
    /// What it vouched for.
    pub source: Option<Fingerprint>,
    /// The source was that.
    pub same: bool,
}

/// Makes a state directory, for its owner alone, if it is not there.
///
/// # Errors
/// [`StageError::StateDirectory`].
pub fn make_state_directory(state: &Path) -> Result<(), StageError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state);
    made.map_err(|source| StageError::StateDirectory { path: crate::error::shown(state), source })
}

/// The journal, open and locked.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    connection: Mutex<Connection>,
    _lock: Held<OwnedFd>,
}

impl Journal {
    /// Opens the journal in `state`, which is made, for its owner alone, if it is not there.
    ///
    /// # Errors
    /// Another process has it; it is of another version; the directory, or a file in it, belongs to another user or may be
    /// written by others; /proc is not mounted, without which no step of a job is safe.
    pub fn open(state: &Path) -> Result<Self, StageError> {
        crate::mounts::check_known()?;
        make_state_directory(state)?;
        check_owner(state)?;
        let lock = lock(state)?;
        let path = state.join("journal.db");
        let journal = Self { connection: Mutex::new(connect(&path)?), path, _lock: lock };
        // SQLite syncs what is in its files; that they have names is for us to see to.
        for directory in [Some(state), state.parent()].into_iter().flatten() {
            if let Ok(open) = crate::calls::open_directory(directory) {
                fault::changed(std::os::fd::AsFd::as_fd(&open));
                crate::calls::sync(std::os::fd::AsFd::as_fd(&open), fault::Barrier::JournalName)
                    .map_err(|error| StageError::sync("fsync", directory, error))?;
            }
        }
        journal.prune()?;
        Ok(journal)
    }

    /// Reads the journal of a state directory that another process may have open. Changes nothing.
    ///
    /// # Errors
    /// There is none; it is of another version; it cannot be read.
    pub fn peek(state: &Path) -> Result<Vec<JobRow>, StageError> {
        peek(state, |connection| rows(connection, None))
    }

    /// Entries of a job in the journal of such a state directory, as [`Journal::every_entry`] has them: up to `most` after the path `after`.
    pub fn peek_entries(
        state: &Path,
        id: JobId,
        after: Option<&Path>,
        most: usize,
    ) -> Result<Vec<Done>, StageError> {
        peek(state, |connection| page_after(connection, id.into(), after, most))
    }

    /// Where the database is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One durable step: all of `change`, or nothing.
    fn step<T>(
        &self,
        what: &str,
        change: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StageError> {
        let struck = fault::before(Call::Journal);
        let verdict =
            struck.map_err(|errno| StageError::io(format!("record that {what}"), &self.path, errno))?;
        let mut connection = self.connection();
        let made = (|| {
            let transaction =
                connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            let value = change(&transaction)?;
            transaction.commit()?;
            Ok(value)
        })();
        verdict.made();
        made.map_err(|source| self.failed(format!("cannot record that {what}"), source))
    }

    fn query<T>(
        &self,
        what: &str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StageError> {
        read(&self.connection()).map_err(|source| self.failed(format!("cannot tell {what}"), source))
    }

    fn failed(&self, what: String, source: rusqlite::Error) -> StageError {
        crate::lock::database_error(&self.path, what, source)
    }

    /// INTENT: a job is accepted. The same request is the job that is under way for it, if that one publishes the source
    /// as it is now; whether it does has to be `judged` where the job has vouched for a state of its source already.
    ///
    /// A semaphore that was written anew and asks for the same is that of the job from now on, which removes it in its
    /// end. It asks for a new job if the other one is committed, so that it may have removed its semaphore already, or may not
    /// come to this one any more. Of two semaphores that stay and ask for the same the first keeps the job.
    pub fn accept(&self, spec: &JobSpec, now: u64, judged: Option<Judged>) -> Result<Accepted, StageError> {
        let document = text(spec);
        let mounts = [mounts::of_place(&spec.source, false), mounts::of_place(&spec.destination, true)];
        let [source, destination] = mounts.map(|mount| mount.as_ref().map(text));
        comes_to(Moment::Accepted, Vec::new);
        self.step("a job is accepted", |step| {
            // What failed after it was durable has work left that belongs to it.
            let mut under_way = step.prepare_cached(
                "SELECT * FROM jobs WHERE json_extract(spec, '$.source') = json_extract(?1, '$.source')
                 AND (state IN ('queued', 'running', 'committed')
                     OR (state = 'failed' AND (level = 'durable'
                         OR json_extract(spec, '$.options.semaphore') IS NOT NULL))) ORDER BY id DESC",
            )?;
            let mut rows = under_way.query([&document])?;
            while let Some(row) = rows.next()? {
                let row = job_of(row)?;
                let (old, new) = (&row.spec.options.semaphore, &spec.options.semaphore);
                // Who asks without one leaves the job its own.
                let is_renewed = new.is_some() && old != new;
                let has_work_left = row.state != State::Failed || row.level.is_committed() || is_renewed;
                let stays = old.as_ref().or(new.as_ref()).is_some_and(|semaphore| semaphore.stays);
                let is_removing = row.state == State::Committed && !stays;
                if !has_work_left || !row.spec.is_same_request(spec) || is_renewed && is_removing {
                    continue;
                }
                let both = old.as_ref().zip(new.as_ref());
                let is_of_another = both.is_some_and(|(old, new)| old.path != new.path);
                let same = || {
                    if is_renewed && !is_of_another {
                        let options = Options { semaphore: new.clone(), ..row.spec.options.clone() };
                        let renewed = JobSpec { options, ..row.spec.clone() };
                        step.execute(
                            "UPDATE jobs SET spec = ?2 WHERE id = ?1",
                            params![row.id, text(&renewed)],
                        )?;
                    }
                    Ok(Accepted::Same(row.id, row.state))
                };
                let known = judged.filter(|judged| {
                    (judged.id, judged.state, judged.source) == (row.id, row.state, row.source)
                });
                match known {
                    _ if row.source.is_none() && !row.state.is_final() => return same(),
                    // It is not durable: what it has copied is compared with the source when it goes on.
                    _ if row.state == State::Failed && !row.level.is_committed() => return same(),
                    Some(judged) if judged.same => return same(),
                    Some(_) => break,
                    None => return Ok(Accepted::Judge(Box::new(row))),
                }
            }
            step.execute(
                "INSERT INTO jobs (spec, state, level, created, source_mount, destination_mount)
                 VALUES (?1, 'queued', 'staged', ?2, ?3, ?4)",
                params![document, now as i64, source, destination],
            )?;
            let id = step.last_insert_rowid();
            let mut expect = step.prepare_cached("INSERT INTO expected VALUES (?1, ?2, ?3, ?4, ?5)")?;
            for (number, file) in spec.options.expected.iter().enumerate() {
                let path = file.path.0.as_os_str().as_bytes();
                let (size, digest) = (file.size.map(|size| size as i64), file.digest.map(|digest| digest.0));
                expect.execute(params![id, number as i64, path, size, digest])?;
            }
            Ok(Accepted::New(id))
        })
    }

    /// A job's row.
    pub fn job(&self, id: JobId) -> Result<Option<JobRow>, StageError> {
        Ok(self.query("what became of a job", |connection| rows(connection, Some(id)))?.pop())
    }

    /// A job's row with what must be at its source ([`Options::expected`]), which may be a long list.
    pub fn with_expected(&self, mut row: JobRow) -> Result<JobRow, StageError> {
        if row.spec.options.expected_digest.is_some() {
            row.spec.options.expected =
                self.query("what a job expects", |connection| rows::expected(connection, row.id))?;
        }
        Ok(row)
    }

    /// All jobs, in the order they were accepted.
    pub fn jobs(&self) -> Result<Vec<JobRow>, StageError> {
        self.query("which jobs there are", |connection| rows(connection, None))
    }

    /// Gives a job that is not running the rates, priority and deadline of these options. What is moved, and how, stays.
    pub fn hurry(&self, id: JobId, options: &Options) -> Result<(), StageError> {
        let Some(row) = self.job(id)? else { return Ok(()) };
        let Options { bwlimit, iops_limit, priority, deadline, background, .. } = *options;
        let options =
            Options { bwlimit, iops_limit, priority, deadline, background, ..row.spec.options.clone() };
        let spec = JobSpec { options, ..row.spec };
        self.step("a job is hurried", |step| {
            step.execute("UPDATE jobs SET spec = ?2 WHERE id = ?1", params![id, text(&spec)])?;
            Ok(())
        })
    }

    /// A job is begun, or begun again.
    pub fn begin(&self, id: JobId) -> Result<(), StageError> {
        self.step("a job begins", |step| {
            step.execute(
                "UPDATE jobs SET state = CASE state WHEN 'committed' THEN state ELSE 'running' END,
                 attempts = attempts + 1, error = NULL, finished = NULL WHERE id = ?1",
                [id],
            )
        })?;
        Ok(())
    }

    /// The name that the destination has until it is whole, before anything has it; what an earlier one had is forgotten.
    pub fn name_part(&self, id: JobId, part: &std::ffi::OsStr) -> Result<(), StageError> {
        self.step("a part has a name", |step| {
            for table in ["entries", "chunks", "begun", "notes"] {
                step.execute(&format!("DELETE FROM {table} WHERE job = ?1"), [id])?;
            }
            step.execute(
                "UPDATE jobs SET part = ?2, part_ino = NULL, part_born = NULL, source = NULL WHERE id = ?1",
                params![id, part.as_bytes()],
            )
        })?;
        Ok(())
    }

    /// A destination that exists is about to be compared; what an earlier comparison recorded is forgotten. `probe`: the
    /// name of the file that is made in the source for a moment. The part of an earlier attempt and its entries stay.
    pub fn begin_adoption(&self, id: JobId, probe: &OsStr) -> Result<(), StageError> {
        self.step("an adoption begins", |step| {
            step.execute("DELETE FROM entries WHERE job = ?1 AND compared", [id])?;
            step.execute("UPDATE jobs SET source = NULL WHERE id = ?1", [id])?;
            step.execute(
                "INSERT OR REPLACE INTO notes VALUES (?1, ?2, ?3)",
                params![id, PROBE, probe.as_bytes()],
            )
        })?;
        Ok(())
    }

    /// The name of the file that the last adoption of a job made in its source. None if there was no adoption.
    pub fn probe(&self, id: JobId) -> Result<Option<OsString>, StageError> {
        Ok(self.note(id, PROBE)?.map(OsString::from_vec))
    }

    /// A destination is adopted: the entries that were recorded while it was compared are the job's from now on. Its part,
    /// which is gone, is forgotten with its entries.
    pub fn adopted(&self, id: JobId) -> Result<(), StageError> {
        self.step("a destination is adopted", |step| {
            step.execute("DELETE FROM entries WHERE job = ?1 AND NOT compared", [id])?;
            for table in ["chunks", "begun", "notes"] {
                step.execute(&format!("DELETE FROM {table} WHERE job = ?1"), [id])?;
            }
            step.execute("UPDATE entries SET compared = 0 WHERE job = ?1", [id])?;
            step.execute("UPDATE jobs SET part = NULL, part_ino = NULL, part_born = NULL WHERE id = ?1", [id])
        })?;
        Ok(())
    }

    /// Which file or directory the part is, before anything is put into it.
    pub fn made_part(&self, id: JobId, made: &FileId) -> Result<(), StageError> {
        self.step("a part is there", |step| {
            step.execute(
                "UPDATE jobs SET part_ino = ?2, part_born = ?3 WHERE id = ?1",
                params![id, made.ino as i64, made.born],
            )
        })?;
        Ok(())
    }

    /// The state of the source that will be published, if it is still that; none while files are copied.
    pub fn vouch_for(&self, id: JobId, source: Option<Fingerprint>) -> Result<(), StageError> {
        self.step("a source is vouched for", |step| {
            let source = source.map(Fingerprint::to_bytes);
            step.execute("UPDATE jobs SET source = ?2 WHERE id = ?1", params![id, source])
        })?;
        Ok(())
    }

    /// The source has been synced where it is.
    pub fn level(&self, id: JobId, level: Level) -> Result<(), StageError> {
        comes_to(Moment::Local, Vec::new);
        self.step("a level is reached", |step| {
            step.execute("UPDATE jobs SET level = ?2 WHERE id = ?1", params![id, level.word()])
        })?;
        Ok(())
    }

    /// COMMITTED.
    pub fn commit(&self, id: JobId, now: u64) -> Result<(), StageError> {
        comes_to(Moment::Committed, Vec::new);
        self.step("a job is committed", |step| {
            step.execute(
                "UPDATE jobs SET state = 'committed', level = 'durable', durable = ?2 WHERE id = ?1",
                params![id, now as i64],
            )
        })?;
        Ok(())
    }

    /// The end of a job, or a state on the way there. What was needed to go on with it is forgotten once it is done
    /// or cancelled.
    pub fn settle(
        &self,
        id: JobId,
        state: State,
        now: u64,
        why: Option<&Why>,
        notes: &[String],
    ) -> Result<(), StageError> {
        if state == State::Done {
            comes_to(Moment::Done, Vec::new);
        }
        self.step("a job is settled", |step| {
            step.execute(
                "UPDATE jobs SET state = ?2, finished = ?3, error = ?4, notes = ?5 WHERE id = ?1",
                params![
                    id,
                    state.word(),
                    state.is_final().then_some(now as i64),
                    why.map(text),
                    text(&notes)
                ],
            )?;
            if matches!(state, State::Done | State::Cancelled) {
                for table in ["chunks", "begun", "expected"] {
                    step.execute(&format!("DELETE FROM {table} WHERE job = ?1"), [id])?;
                }
                // How digests were made is told as long as they are.
                let told = if state == State::Done { digests::KEY } else { "" };
                step.execute("DELETE FROM notes WHERE job = ?1 AND key <> ?2", params![id, told])?;
                let without_manifest = step
                    .prepare_cached("SELECT * FROM jobs WHERE id = ?1")?
                    .query_row([id], job_of)
                    .optional()?
                    .is_some_and(|row| row.spec.options.no_manifest);
                // The manifest of a set lists its entries from now on. A single file, and a directory without a
                // manifest, have their digests here alone.
                let gone = match (state, without_manifest) {
                    (State::Done, true) => "AND compared",
                    (State::Done, false) => "AND (compared OR path <> x'')",
                    _ => "",
                };
                step.execute(&format!("DELETE FROM entries WHERE job = ?1 {gone}"), [id])?;
            }
            Ok(())
        })
    }

    /// Counts for those who look at the journal later. They vouch for nothing.
    pub fn count(&self, id: JobId, counts: [u64; 5]) -> Result<(), StageError> {
        let [files_total, files_done, bytes_total, written, verified] = counts.map(|count| count as i64);
        self.query("what to count", |connection| {
            connection.execute(
                "UPDATE jobs SET files_total = ?2, files_done = ?3, bytes_total = ?4, bytes_written = ?5, bytes_verified = ?6
                 WHERE id = ?1",
                params![id, files_total, files_done, bytes_total, written, verified],
            )
        })?;
        Ok(())
    }

    /// A note of a job's own, such as the number of an upload.
    pub fn note(&self, id: JobId, key: &str) -> Result<Option<Vec<u8>>, StageError> {
        self.query("what was noted", |connection| {
            connection
                .prepare_cached("SELECT value FROM notes WHERE job = ?1 AND key = ?2")?
                .query_row(params![id, key], |row| row.get(0))
                .optional()
        })
    }

    /// Keeps a note.
    pub fn keep_note(&self, id: JobId, key: &str, value: &[u8]) -> Result<(), StageError> {
        self.step("something is noted", |step| {
            step.execute("INSERT OR REPLACE INTO notes VALUES (?1, ?2, ?3)", params![id, key, value])
        })?;
        Ok(())
    }
}
