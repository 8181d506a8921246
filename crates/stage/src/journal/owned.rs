//! Names in directories that a journal has made, or is about to remove, and what has them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};

use super::Journal;
use super::open::peek;
use crate::error::StageError;
use crate::owned::{FileId, Record, TakenAside};

/// What a recorded name is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A program fills it and has not committed it.
    Begun,
    /// A set that may go has lost its name, and has to be compared once more before it does.
    Aside,
    /// It is to be removed.
    Doomed,
}

impl Purpose {
    fn word(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Aside => "aside",
            Self::Doomed => "doomed",
        }
    }
}

impl Journal {
    /// Records durably that a name in a directory is, or is about to be, this journal's, and is removed if no job goes on with it.
    pub fn own(
        &self,
        directory: &Path,
        name: &OsStr,
        purpose: Purpose,
        id: Option<&FileId>,
    ) -> Result<(), StageError> {
        self.own_as(directory, name, purpose, id, None)
    }

    /// `own_name`: of a set that is aside, the name that it gets back.
    fn own_as(
        &self,
        directory: &Path,
        name: &OsStr,
        purpose: Purpose,
        id: Option<&FileId>,
        own_name: Option<&OsStr>,
    ) -> Result<(), StageError> {
        self.step("a name is taken", |step| {
            let (ino, born) = (id.map(|id| id.ino as i64), id.and_then(|id| id.born));
            let (directory, name) = (directory.as_os_str().as_bytes(), name.as_bytes());
            step.execute(
                "INSERT OR REPLACE INTO owned VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![directory, name, purpose.word(), ino, born, own_name.map(OsStr::as_bytes)],
            )
        })?;
        Ok(())
    }

    /// The directories in which a name of this purpose is recorded.
    pub fn directories_of(&self, purpose: Purpose) -> Result<Vec<PathBuf>, StageError> {
        self.query("where its own is", |connection| directories_of(connection, purpose))
    }

    /// The same of a state directory's journal that another process may have open.
    pub fn peek_directories_of(state: &Path, purpose: Purpose) -> Result<Vec<PathBuf>, StageError> {
        peek(state, |connection| directories_of(connection, purpose))
    }

    /// What is recorded for a directory, with its identity where that was known.
    pub fn owned(
        &self,
        directory: &Path,
        purpose: Purpose,
    ) -> Result<Vec<(OsString, Option<FileId>)>, StageError> {
        self.query("what is its own", |connection| {
            let mut query = connection
                .prepare_cached("SELECT name, ino, born FROM owned WHERE directory = ?1 AND purpose = ?2")?;
            let directory = directory.as_os_str().as_bytes();
            let rows = query.query_map(params![directory, purpose.word()], |row| {
                let id = row.get::<_, Option<i64>>(1)?.map(|ino| ino as u64);
                let born = row.get(2)?;
                let name = OsString::from_vec(row.get(0)?);
                Ok((name, id.map(|ino| FileId { ino, born })))
            })?;
            rows.collect()
        })
    }

    /// Forgets a name that is gone, or has been given to something that stays.
    pub fn disown(&self, directory: &Path, name: &OsStr) -> Result<(), StageError> {
        self.step("a name is given up", |step| {
            let (directory, name) = (directory.as_os_str().as_bytes(), name.as_bytes());
            step.execute("DELETE FROM owned WHERE directory = ?1 AND name = ?2", params![directory, name])
        })?;
        Ok(())
    }
}

fn directories_of(connection: &Connection, purpose: Purpose) -> rusqlite::Result<Vec<PathBuf>> {
    let mut query = connection.prepare("SELECT DISTINCT directory FROM owned WHERE purpose = ?1")?;
    let rows = query.query_map([purpose.word()], |row| Ok(OsString::from_vec(row.get(0)?).into()))?;
    rows.collect()
}

impl Record for Journal {
    fn takes_aside(
        &self,
        directory: &Path,
        name: &OsStr,
        part: &OsStr,
        id: &FileId,
    ) -> Result<(), StageError> {
        self.own_as(directory, part, Purpose::Aside, Some(id), Some(name))
    }

    fn taken_aside(&self, directory: &Path) -> Result<Vec<TakenAside>, StageError> {
        self.query("what is aside", |connection| {
            let mut query = connection.prepare_cached(
                "SELECT name, own_name, ino, born FROM owned WHERE directory = ?1 AND purpose = ?2",
            )?;
            let directory = directory.as_os_str().as_bytes();
            let rows = query.query_map(params![directory, Purpose::Aside.word()], |row| {
                let id = FileId { ino: row.get::<_, i64>(2)? as u64, born: row.get(3)? };
                let [part, name] = [row.get(0)?, row.get(1)?].map(OsString::from_vec);
                Ok(TakenAside { part, name, id })
            })?;
            rows.collect()
        })
    }

    fn dooms(&self, directory: &Path, name: &OsStr, id: Option<&FileId>) -> Result<(), StageError> {
        self.own(directory, name, Purpose::Doomed, id)
    }

    fn doomed(&self, directory: &Path) -> Result<Vec<(OsString, Option<FileId>)>, StageError> {
        self.owned(directory, Purpose::Doomed)
    }

    fn forgets(&self, directory: &Path, name: &OsStr) -> Result<(), StageError> {
        self.disown(directory, name)
    }
}
