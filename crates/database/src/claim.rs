//! Which databases are a command's own: those that `db compare` and `db ingest` make for themselves and remove at their end.
//!
//! A claim is a file beside the database, `flashwright-ptf.sqlite.claim`, locked (flock(2)) as long as its command runs. After `kill -9` or
//! a loss of power it stays, unlocked, and says to the next command that what is beside it may go.
//!
//! | what it says | what is beside it |
//! |---|---|
//! | nothing | whatever is there was there before: it is not ours |
//! | `made` | nothing, or what the command was about to make |
//! | `made DEVICE INODE` | the command's own, if it is that file or directory; another one was put in its place by somebody else |
//!
//! The claim is durable before the database is begun, and goes after it. A claim of another user is never taken.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use storage::locks::{self, Attempt, Held};

use crate::dataset::{Dataset, Workload, is_complete};
use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::open::{EngineChoice, EngineKind, INGEST, check_directory, named, open_at, path, remove};
use crate::sqlite::Journal;

/// What a claim says once nothing is beside it.
const MADE: &str = "made";

/// Whose the database at a place is.
#[derive(Debug)]
pub struct Claim {
    database: PathBuf,
    /// The locked claim; None for a database that was there without one.
    held: Option<Held<File>>,
    /// A database of an earlier command is there, whose process has ended.
    is_left: bool,
}

impl Claim {
    /// Takes the place of a database, which need not be there.
    ///
    /// # Errors
    /// [`DatabaseError::Engine`] if another process has it, or the claim is another user's; [`DatabaseError::Io`].
    pub fn take(database: &Path) -> Result<Self, DatabaseError> {
        let file = file_of(database);
        loop {
            if database.exists() && !file.exists() {
                return Ok(Self { database: database.to_owned(), held: None, is_left: false });
            }
            // One that its holder has just removed is no claim any more.
            if let Some(held) = lock(&file)? {
                return Self::locked(database, held);
            }
        }
    }

    fn locked(database: &Path, held: Held<File>) -> Result<Self, DatabaseError> {
        let file = file_of(database);
        let mut said = String::new();
        (&*held).read_to_string(&mut said).map_err(DatabaseError::io("read it", &file))?;
        let is_there = database.exists();
        let is_ours = match said.trim_end().strip_prefix(MADE) {
            Some("") => true,
            Some(identity) => is_there && Some(identity.trim()) == identity_of(database).as_deref(),
            None => false,
        };
        let mut claim =
            Self { database: database.to_owned(), held: Some(held), is_left: is_there && is_ours };
        if is_there && !is_ours {
            claim.give_up()?;
        } else if !is_there {
            claim.say(MADE)?;
        }
        Ok(claim)
    }

    /// Whether the database is this command's to remove.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.held.is_some()
    }

    /// Whether an earlier command left the database that is there.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.is_left
    }

    /// Notes which file or directory was made.
    ///
    /// # Errors
    /// [`DatabaseError::Io`].
    pub fn note(&mut self) -> Result<(), DatabaseError> {
        match (self.is_ours(), identity_of(&self.database)) {
            (true, Some(identity)) => self.say(&format!("{MADE} {identity}")),
            _ => Ok(()),
        }
    }

    /// Leaves the database to whoever wants it.
    ///
    /// # Errors
    /// [`DatabaseError::Io`].
    pub fn give_up(&mut self) -> Result<(), DatabaseError> {
        if self.held.is_none() {
            return Ok(());
        }
        let file = file_of(&self.database);
        fs::remove_file(&file).map_err(DatabaseError::io("remove it", &file))?;
        // The lock goes last: who waits for it finds no file.
        self.held = None;
        Ok(())
    }

    fn say(&mut self, words: &str) -> Result<(), DatabaseError> {
        let file = file_of(&self.database);
        let Some(mut held) = self.held.as_deref() else { return Ok(()) };
        let said = held
            .rewind()
            .and_then(|()| held.set_len(0))
            .and_then(|()| held.write_all(format!("{words}\n").as_bytes()))
            .and_then(|()| held.sync_all())
            .and_then(|()| File::open(file.parent().unwrap_or(Path::new("/")))?.sync_all());
        said.map_err(DatabaseError::io("write it", &file))
    }
}

/// The claim of a database.
fn file_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".claim");
    PathBuf::from(name)
}

fn identity_of(database: &Path) -> Option<String> {
    fs::symlink_metadata(database).ok().map(|facts| format!("{} {}", facts.dev(), facts.ino()))
}

/// Opens or makes a claim and locks it; None if it was removed meanwhile.
fn lock(file: &Path) -> Result<Option<Held<File>>, DatabaseError> {
    let refused = |problem: String, hint: &str| DatabaseError::Engine {
        at: file.display().to_string(),
        operation: "take it".to_owned(),
        source: problem.into(),
        hint: Some(hint.to_owned()),
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let open = options.custom_flags(flags.bits().cast_signed()).open(file);
    let open = open.map_err(DatabaseError::io("open it", file))?;
    let facts = open.metadata().map_err(DatabaseError::io("look at it", file))?;
    if !facts.is_file() || facts.uid() != geteuid().as_raw() {
        let hint = "name another directory, or ask its owner to remove it";
        return Err(refused(format!("it belongs to user {}", facts.uid()), hint));
    }
    match locks::try_exclusive(open.as_fd()).map_err(DatabaseError::io("lock it", file))? {
        Attempt::Taken | Attempt::Unsupported => {}
        Attempt::Held { by } => {
            let by = by.unwrap_or_else(|| "another process".to_owned());
            return Err(refused(format!("{by} uses the database"), "wait for it, or name another directory"));
        }
    }
    let open = Held::new(open);
    let is_named = match fs::symlink_metadata(file) {
        Ok(named) => (named.dev(), named.ino()) == (facts.dev(), facts.ino()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(DatabaseError::io("look at it", file)(error)),
    };
    Ok(is_named.then_some(open))
}

/// A database, and whose it is.
pub struct Claimed {
    /// Its engine.
    pub engine: Box<dyn Engine>,
    claim: Claim,
}

impl Claimed {
    /// Leaves it where it is, to whoever wants it.
    ///
    /// # Errors
    /// [`DatabaseError::Io`].
    pub fn keep(mut self) -> Result<Box<dyn Engine>, DatabaseError> {
        self.claim.give_up()?;
        Ok(self.engine)
    }

    /// Removes it if it was made here, and then the claim.
    ///
    /// # Errors
    /// [`DatabaseError::Io`], and those of the engine. The claim stays then, so that the next command removes the rest.
    pub fn end(mut self) -> Result<(), DatabaseError> {
        if self.claim.is_ours() {
            self.engine.remove()?;
        }
        self.claim.give_up()
    }
}

/// Opens or makes the database of a dataset in a directory, with whose it is. What an earlier command left is gone on with if it is the same
/// dataset, and removed if not.
///
/// # Errors
/// As [`Claim::take`], and those of making the database.
pub fn open_claimed(
    choice: &EngineChoice,
    dataset: &Dataset,
    directory: &Path,
) -> Result<Claimed, DatabaseError> {
    check_directory(directory)?;
    let place = path(choice.kind, dataset.workload(), directory);
    let claim = Claim::take(&place)?;
    if claim.is_left() {
        let left = open_at(choice, &place, Journal::Rollback)
            .and_then(|mut engine| is_complete(&mut *engine, dataset).map(|_| engine));
        match left {
            Ok(engine) => return Ok(Claimed { engine, claim }),
            // Whatever is wrong with it.
            Err(_) => remove(choice.kind, &place)?,
        }
    }
    made(choice, &place, Journal::Rollback, claim)
}

/// Makes the database of `db ingest` in a directory, in the place of what an earlier one left.
///
/// # Errors
/// [`DatabaseError::Other`] if there is a database that no command has left; as [`open_claimed`].
pub fn open_scratch(choice: &EngineChoice, directory: &Path) -> Result<Claimed, DatabaseError> {
    check_directory(directory)?;
    let place = named(choice.kind, INGEST, directory);
    let claim = Claim::take(&place)?;
    if claim.is_left() {
        remove(choice.kind, &place)?;
    } else if !claim.is_ours() {
        let (found, expected) = (place.display().to_string(), "one that this command makes".to_owned());
        return Err(DatabaseError::Other { found, expected });
    }
    made(choice, &place, Journal::WriteAhead, claim)
}

fn made(
    choice: &EngineChoice,
    place: &Path,
    journal: Journal,
    mut claim: Claim,
) -> Result<Claimed, DatabaseError> {
    match open_at(choice, place, journal) {
        Ok(engine) => {
            claim.note()?;
            Ok(Claimed { engine, claim })
        }
        Err(error) => {
            // What cannot be opened is told; a claim without a database says nothing.
            if !place.exists() {
                let _ = claim.give_up();
            }
            Err(error)
        }
    }
}

/// Removes all databases that commands which have ended left in a directory, but for one place. Returns where they were.
///
/// # Errors
/// [`DatabaseError::Io`], and those of the engine.
pub fn clear(directory: &Path, but: &Path) -> Result<Vec<PathBuf>, DatabaseError> {
    let mut cleared = Vec::new();
    let names = Workload::ALL.iter().map(|workload| workload.word()).chain([INGEST]);
    for name in names {
        for kind in EngineKind::ALL {
            let place = named(kind, name, directory);
            if place == but || !file_of(&place).exists() {
                continue;
            }
            // One that another process has, or another user, is not ours.
            let Ok(mut claim) = Claim::take(&place) else { continue };
            if claim.is_left() {
                remove(kind, &place)?;
                cleared.push(place);
            }
            claim.give_up()?;
        }
    }
    Ok(cleared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("flashwright-ptf.sqlite");
        (folder, database)
    }

    /// What is left by a command that ended when its claim said this.
    fn left(database: &Path, said: &str) {
        fs::write(file_of(database), said).unwrap();
    }

    #[test]
    fn what_was_there_before_is_never_ours() {
        let (_folder, database) = place();
        fs::write(&database, "data").unwrap();
        let claim = Claim::take(&database).unwrap();
        assert!(!claim.is_ours() && !claim.is_left() && !file_of(&database).exists());
        // A claim that was cut off before it said a word, and one of a database that another has taken the place of.
        for said in ["", "made 1 2\n", "mad", "else"] {
            left(&database, said);
            let claim = Claim::take(&database).unwrap();
            assert!(!claim.is_ours() && !claim.is_left() && !file_of(&database).exists(), "{said}");
        }
    }

    #[test]
    fn what_an_ended_command_made_is_ours_and_what_a_running_one_makes_is_not() {
        let (folder, database) = place();
        let mut claim = Claim::take(&database).unwrap();
        assert!(claim.is_ours() && !claim.is_left());
        let held = Claim::take(&database).unwrap_err();
        assert!(base::with_causes(&held).contains("uses the database"), "{held:?}");
        assert!(clear(folder.path(), Path::new("")).unwrap().is_empty());
        fs::write(&database, "data").unwrap();
        // Killed before it noted what it made, then after.
        for is_noted in [false, true] {
            if is_noted {
                claim.note().unwrap();
            }
            drop(claim);
            claim = Claim::take(&database).unwrap();
            assert!(claim.is_ours() && claim.is_left(), "{is_noted}");
        }
        drop(claim);
        assert!(clear(folder.path(), &database).unwrap().is_empty());
        assert_eq!(clear(folder.path(), Path::new("")).unwrap(), [database]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_claim_behind_a_link_or_of_another_user_is_not_taken() {
        let (folder, database) = place();
        fs::write(folder.path().join("other"), "made").unwrap();
        std::os::unix::fs::symlink(folder.path().join("other"), file_of(&database)).unwrap();
        assert!(matches!(Claim::take(&database), Err(DatabaseError::Io { .. })));
        fs::remove_file(file_of(&database)).unwrap();
        left(&database, "made");
        if std::os::unix::fs::chown(file_of(&database), Some(12345), None).is_err() {
            return eprintln!("SKIP claims of another user: giving a file away takes root");
        }
        fs::write(&database, "data").unwrap();
        let refused = Claim::take(&database).unwrap_err();
        assert!(base::with_causes(&refused).contains("belongs to user 12345"), "{refused:?}");
        assert!(clear(folder.path(), Path::new("")).unwrap().is_empty() && database.exists());
    }
}
