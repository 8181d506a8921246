//! Files that are acted on with the rights of the one who reads them: journals of what is to be undone or moved.
//!
//! Whoever writes such a file decides what is done, so it is believed only where nobody but root and this user can have
//! written it, as sudo and ssh (`StrictModes`) look at theirs. Each directory on the way belongs to one of the two and
//! others may not write to it, unless it is sticky, as `/tmp` is: what lies in there has an owner that is checked next.
//! The way is gone from descriptor to descriptor and follows no link, so that what was checked is what is used.
//!
//! For a user other than root the last directory counts and not those above it, which on clusters often belong to a
//! project's head and its group: what its members could put in the place of a directory is theirs, and so is refused.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::device::sys;

/// Why a file or directory is not to be believed.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// Others can write it.
    #[error("{}: {what}", path.display())]
    Untrusted {
        /// The file, or the directory on the way to it.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// It cannot be looked at.
    #[error("{}: cannot be opened", path.display())]
    Open {
        /// The file, or the directory on the way to it.
        path: PathBuf,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
}

impl TrustError {
    /// Whether it is only that nothing is there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Open { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Checks who may write to a directory and to those above it. The path is absolute and leads through no links.
///
/// # Errors
/// [`TrustError`] with the first that others can change.
pub fn check_directory(path: &Path) -> Result<(), TrustError> {
    walk(path).map(drop)
}

/// A directory that the environment names and that a user's sockets lie in (`XDG_RUNTIME_DIR`), by its path without links.
/// One that is not there has nothing in it, and is returned as it is.
///
/// # Errors
/// [`TrustError`]: it is another user's, others can write to it, or it cannot be looked at.
pub fn runtime_directory(path: &Path) -> Result<PathBuf, TrustError> {
    let real = match path.canonicalize() {
        Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(path.to_owned()),
        Err(source) => return Err(TrustError::Open { path: path.to_owned(), source }),
        Ok(real) => real,
    };
    check_directory(&real)?;
    Ok(real)
}

/// Opens a regular file in such a directory for reading, without following a link. What it has to be is checked of the
/// open file.
///
/// # Errors
/// [`TrustError`]: others can write it or something on the way to it; it is not a regular file; it cannot be opened.
pub fn open(path: &Path) -> Result<File, TrustError> {
    open_with(path, OFlags::RDONLY | NO_WAIT)
}

/// [`open`] for appending. A file that is not there is made, for its owner alone.
///
/// # Errors
/// As [`open`].
pub fn open_to_append(path: &Path) -> Result<File, TrustError> {
    open_with(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | NO_WAIT)
}

/// A FIFO is not waited for.
const NO_WAIT: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

fn open_with(path: &Path, flags: OFlags) -> Result<File, TrustError> {
    let untrusted = |what: &str| TrustError::Untrusted { path: path.to_owned(), what: what.to_owned() };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(untrusted("is not a file"));
    };
    let directory = walk(parent)?;
    let failed = |source| TrustError::Open { path: path.to_owned(), source };
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = retry_on_intr(|| rustix::fs::openat(&directory, name, flags, Mode::RUSR | Mode::WUSR));
    let file = File::from(opened.map_err(|errno| match errno {
        Errno::LOOP => untrusted("is a symbolic link"),
        _ => failed(errno.into()),
    })?);
    let facts = file.metadata().map_err(failed)?;
    if !facts.is_file() {
        return Err(untrusted("is not a regular file"));
    }
    let reach = directory.metadata().map_err(failed)?.mode() & 0o011;
    check(path, &facts, reach != 0)?;
    Ok(file)
}

/// Checks who may write to a file in such a directory, if it is there, without opening it for anything else: to close a descriptor that
/// reads or writes would give back the locks that this process has on the file (fcntl(2)).
///
/// # Errors
/// As [`open`].
pub fn check_file(path: &Path) -> Result<(), TrustError> {
    match open_with(path, OFlags::PATH) {
        Err(error) if error.is_missing() => Ok(()),
        checked => checked.map(drop),
    }
}

/// The directory, open, after all on the way to it were checked.
fn walk(path: &Path) -> Result<File, TrustError> {
    let mut at = PathBuf::from("/");
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir => {}
            Component::Normal(name) => names.push(name),
            _ => {
                let what = "is not an absolute path without . and ..".to_owned();
                return Err(TrustError::Untrusted { path: path.to_owned(), what });
            }
        }
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |above: &dyn AsFd, name: &Path, at: &Path| -> Result<(File, Metadata), TrustError> {
        let opened = retry_on_intr(|| rustix::fs::openat(above, name, flags, Mode::empty()));
        let opened = opened.map(File::from).map_err(io::Error::from);
        let facts = opened.and_then(|file| file.metadata().map(|facts| (file, facts)));
        facts.map_err(|source| TrustError::Open { path: at.to_owned(), source })
    };
    let is_root = sys::effective_user() == 0;
    let counts = |at: &Path| is_root || at == path;
    let (mut directory, mut facts) = open(&rustix::fs::CWD, &at, &at)?;
    if counts(&at) {
        check(&at, &facts, facts.mode() & 0o1000 == 0)?;
    }
    for name in names {
        at.push(name);
        (directory, facts) = open(&directory, name.as_ref(), &at)?;
        if counts(&at) {
            check(&at, &facts, at == path || facts.mode() & 0o1000 == 0)?;
        }
    }
    Ok(directory)
}

/// Owner, and mode where it counts.
fn check(path: &Path, facts: &Metadata, mode_counts: bool) -> Result<(), TrustError> {
    let me = sys::effective_user();
    let what = if facts.uid() != me && facts.uid() != 0 {
        format!("belongs to uid {}, and this is uid {me}", facts.uid())
    } else if mode_counts && facts.mode() & 0o022 != 0 {
        format!("others may write to it (mode {:o})", facts.mode() & 0o7777)
    } else {
        return Ok(());
    };
    Err(TrustError::Untrusted { path: path.to_owned(), what })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn what_others_can_write_or_have_made_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let state = root.join("state");
        let file = state.join("journal");
        fs::create_dir(&state).unwrap();
        fs::write(&file, "text").unwrap();
        let attempt = |path: &Path| open(path).map(drop);
        let refused = |path: &Path, why: &str| {
            let error = attempt(path).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        mode(&state, 0o755);
        mode(&file, 0o644);
        attempt(&file).unwrap();
        for bits in [0o775, 0o757, 0o1777] {
            mode(&state, bits);
            refused(&file, "state: others may write to it");
        }
        mode(&state, 0o755);
        mode(&file, 0o664);
        refused(&file, "journal: others may write to it");
        mode(&file, 0o644);
        mode(&root, 0o777);
        refused(&file, "others may write to it");
        // What lies in a sticky directory is replaced by its owner only.
        mode(&root, 0o1777);
        attempt(&file).unwrap();
        symlink(&file, state.join("link")).unwrap();
        refused(&state.join("link"), "is a symbolic link");
        symlink(&state, root.join("other")).unwrap();
        assert!(attempt(&root.join("other/journal")).is_err());
        assert_eq!(runtime_directory(&root.join("other")).unwrap(), state);
        assert_eq!(runtime_directory(&root.join("none")).unwrap(), root.join("none"));
        let shared = runtime_directory(&root).unwrap_err().to_string();
        assert!(shared.contains("others may write to it (mode 1777)"), "{shared}");
        refused(&root.join("state/../state/journal"), "without . and ..");
        mode(&root, 0o700);
        refused(&state, "is not a regular file");
        assert!(attempt(&state.join("none")).unwrap_err().is_missing());
        if sys::effective_user() != 0 {
            println!("SKIP a file of another user: it takes root to make one");
            return;
        }
        chown(&state, Some(65_534), None).unwrap();
        assert!(runtime_directory(&state).unwrap_err().to_string().contains("belongs to uid 65534"));
        chown(&state, Some(0), None).unwrap();
        for path in [&file, &state] {
            chown(path, Some(65_534), None).unwrap();
            refused(&file, "belongs to uid 65534");
            chown(path, Some(0), None).unwrap();
        }
    }

    #[test]
    fn owners_are_checked_and_modes_set_where_proc_is_not_mounted() {
        const INSIDE: &str = "FLASHWRIGHT_CHILD_WITHOUT_PROC";
        if let Some(folder) = std::env::var_os(INSIDE) {
            let folder = Path::new(&folder);
            assert!(!Path::new("/proc/self").exists());
            check_directory(folder).unwrap();
            open_to_append(&folder.join("file")).unwrap();
            check_file(&folder.join("file")).unwrap();
            open(&folder.join("file")).unwrap();
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let directory = rustix::fs::open(folder, flags, Mode::empty()).unwrap();
            match sys::set_mode_of_path(directory.as_fd(), 0o700) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    println!("SKIP modes without /proc: fchmodat2(2) is not to be had: {error}");
                }
                _ => {
                    crate::mode::set_of_path(directory.as_fd(), 0o711).unwrap();
                    assert_eq!(fs::metadata(folder).unwrap().mode() & 0o777, 0o711);
                }
            }
            println!("DONE");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let name = "trust::tests::owners_are_checked_and_modes_set_where_proc_is_not_mounted";
        let ended = std::process::Command::new("unshare")
            .args(["--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(INSIDE, folder.path().canonicalize().unwrap())
            .output();
        match ended {
            Ok(ended) if String::from_utf8_lossy(&ended.stdout).contains("running 1 test") => {
                let said = String::from_utf8_lossy(&ended.stdout) + String::from_utf8_lossy(&ended.stderr);
                assert!(ended.status.success() && said.contains("DONE"), "{said}");
            }
            _ => println!("SKIP a process without /proc: it takes root and a mount namespace"),
        }
    }
}
