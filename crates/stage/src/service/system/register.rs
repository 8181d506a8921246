//! Whose jobs there may be: a file for each set of credentials, written durably before their worker is first started.
//!
//! It lies in a directory that root alone may enter, `STATE/register`; the journals lie in `STATE/users/NAME`, each
//! in a directory that its user alone may enter. An entry goes when its worker was retired with nothing to do. An entry too
//! many costs a process that looks into a journal and is retired again; one too few would leave accepted jobs undone.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::error::{StageError, shown};
use crate::service::system::credentials::Credentials;

/// The state directory of the system's service.
#[derive(Debug)]
pub struct Register {
    state: PathBuf,
    entries: PathBuf,
    users: PathBuf,
}

impl Register {
    /// Makes the directories where they are not there, and looks whether they are root's.
    ///
    /// # Errors
    /// The kernel's; a directory that others may write to.
    pub fn open(state: &Path) -> Result<Self, StageError> {
        // Users have to get through to their own directories, and to see no others on the way.
        directory(state, 0o711)?;
        let (entries, users) = (state.join("register"), state.join("users"));
        directory(&entries, 0o700)?;
        directory(&users, 0o711)?;
        Ok(Self { state: state.to_owned(), entries, users })
    }

    /// Where it is.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Remembers them, durably, and makes the directory of their journal.
    ///
    /// # Errors
    /// The kernel's; what is there is not theirs.
    pub fn remember(&self, credentials: &Credentials) -> Result<PathBuf, StageError> {
        let name = credentials.name();
        let path = self.entries.join(&name);
        if !path.exists() {
            let text = serde_json::to_string(credentials).unwrap_or_default() + "\n";
            let beside = self.entries.join(format!(".{name}"));
            let write = || -> io::Result<()> {
                let mut file =
                    OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
                file.write_all(text.as_bytes())?;
                file.sync_all()?;
                std::fs::rename(&beside, &path)?;
                File::open(&self.entries)?.sync_all()
            };
            write().map_err(|error| StageError::io("write durably", &path, error))?;
        }
        self.home(credentials, &self.users.join(name))
    }

    /// The directory of a user's journal. Its parent is root's, so that nobody can put anything else there.
    fn home(&self, credentials: &Credentials, path: &Path) -> Result<PathBuf, StageError> {
        let failed = |operation: &str, error: io::Error| StageError::io(operation, path, error);
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {
                let directory = File::open(path).map_err(|error| failed("open", error))?;
                fchown(&directory, Some(credentials.uid), Some(credentials.gid))
                    .map_err(|error| failed("give to its user", error))?;
                File::open(&self.users)
                    .and_then(|users| users.sync_all())
                    .map_err(|error| StageError::io("fsync", &self.users, error))?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("make the directory", error)),
        }
        let facts = std::fs::symlink_metadata(path).map_err(|error| failed("stat", error))?;
        if facts.is_dir() && facts.uid() == 0 && credentials.uid != 0 {
            // A crash fell between mkdir and chown.
            std::os::unix::fs::chown(path, Some(credentials.uid), Some(credentials.gid))
                .map_err(|error| failed("give to its user", error))?;
        } else if !facts.is_dir() || facts.uid() != credentials.uid {
            return Err(StageError::refused(
                format!("{}: is not a directory of uid {}", shown(path), credentials.uid),
                "somebody has changed the service's state by hand: put that right",
            ));
        }
        Ok(path.to_owned())
    }

    /// Forgets them: nothing is left to be done for them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn forget(&self, credentials: &Credentials) -> Result<(), StageError> {
        let path = self.entries.join(credentials.name());
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StageError::io("remove", &path, error))
            }
            _ => Ok(()),
        }
    }

    /// All that are remembered. An entry that cannot be read is told and left alone.
    ///
    /// # Errors
    /// The kernel's.
    pub fn all(&self) -> Result<Vec<Credentials>, StageError> {
        let entries =
            std::fs::read_dir(&self.entries).map_err(|error| StageError::io("list", &self.entries, error))?;
        let mut all = Vec::new();
        for entry in entries.flatten().filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        {
            let read = std::fs::read(entry.path()).ok();
            match read.and_then(|text| serde_json::from_slice::<Credentials>(&text).ok()) {
                Some(credentials) if credentials.name().as_str() == entry.file_name() => {
                    all.push(credentials)
                }
                _ => tracing::error!(path = shown(&entry.path()), "not an entry of the register"),
            }
        }
        all.sort();
        Ok(all)
    }
}

fn directory(path: &Path, mode: u32) -> Result<(), StageError> {
    let is_new = !path.exists();
    // Closed first, then as it is to be, whatever the umask takes away.
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| StageError::io("make the directory", path, error))?;
    if is_new {
        std::fs::set_permissions(path, Permissions::from_mode(mode))
            .map_err(|error| StageError::io("set the mode", path, error))?;
    }
    let facts = std::fs::symlink_metadata(path).map_err(|error| StageError::io("stat", path, error))?;
    let me = rustix::process::geteuid().as_raw();
    if !facts.is_dir() || facts.uid() != me || facts.mode() & 0o022 != 0 {
        return Err(StageError::refused(
            format!(
                "--state: {} must be a directory of the service that nobody else may write to",
                shown(path)
            ),
            format!("chown root {0}; chmod go-w {0}", shown(path)),
        ));
    }
    if facts.mode() & 0o111 & mode != 0o111 & mode && !is_new {
        return Err(StageError::refused(
            format!("--state: users cannot get through {} to their journals", shown(path)),
            format!("chmod {mode:o} {}", shown(path)),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mine() -> Credentials {
        let uid = rustix::process::geteuid().as_raw();
        Credentials { uid, gid: rustix::process::getegid().as_raw(), groups: vec![3, 4] }
    }

    #[test]
    fn what_is_remembered_is_there_after_a_restart_until_it_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let register = Register::open(&state).unwrap();
        let home = register.remember(&mine()).unwrap();
        assert_eq!(register.remember(&mine()).unwrap(), home);
        assert_eq!(std::fs::metadata(&home).unwrap().mode() & 0o777, 0o700);
        std::fs::write(state.join("register/7-7-0"), b"{\"uid\":0}").unwrap();
        let register = Register::open(&state).unwrap();
        assert_eq!(register.all().unwrap(), [mine()]);
        register.forget(&mine()).unwrap();
        register.forget(&mine()).unwrap();
        assert_eq!(register.all().unwrap(), []);
    }

    #[test]
    fn a_state_directory_that_others_may_write_to_or_not_pass_through_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for mode in [0o777, 0o700] {
            std::fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
            assert!(matches!(Register::open(directory.path()), Err(StageError::Refused { .. })), "{mode:o}");
        }
    }

    #[test]
    fn a_journals_directory_that_is_something_else_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let register = Register::open(&directory.path().join("state")).unwrap();
        let home = register.remember(&mine()).unwrap();
        std::fs::remove_dir(&home).unwrap();
        std::os::unix::fs::symlink("/etc", &home).unwrap();
        assert!(matches!(register.remember(&mine()), Err(StageError::Refused { .. })));
    }
}
