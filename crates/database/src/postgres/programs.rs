//! PostgreSQL's programs on this machine, and the user that they run as.
//!
//! Looked for, in this order: the directory that the user names; the directories of `PATH`; where Debian, Red Hat and a build from source
//! put them, the highest version first. A cluster that is there already takes programs of its own version and no others.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::User;

use super::problem::problem;
use crate::error::DatabaseError;

/// The lowest version that is started: the first whose `EXPLAIN` has `SETTINGS` and whose auto_explain counts buffers of planning.
pub const OLDEST_MAJOR: u32 = 13;

/// The user of PostgreSQL's packages, as which root starts a server.
const PACKAGED_USER: &str = "postgres";
/// What has to be in one directory.
const NEEDED: [&str; 2] = ["postgres", "initdb"];

/// A directory with the programs of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The directory.
    pub directory: PathBuf,
    /// The first number of the version.
    pub major: u32,
}

/// The user that a server runs as, if that is not the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its number.
    pub user: u32,
    /// The number of its group.
    pub group: u32,
}

/// Finds programs: in `directory` if the user named one, and of a version if a cluster demands one.
///
/// # Errors
/// [`DatabaseError::Engine`] if there are none, or only ones of another version.
pub fn find(directory: Option<&Path>, demanded: Option<u32>) -> Result<Programs, DatabaseError> {
    let places = directory.map_or_else(usual_places, |one| vec![one.to_owned()]);
    let mut versions = Vec::new();
    for place in places.iter().filter(|place| NEEDED.iter().all(|name| place.join(name).is_file())) {
        let Some(major) = major_of(place) else { continue };
        if demanded.map_or(major >= OLDEST_MAJOR, |demanded| demanded == major) {
            return Ok(Programs { directory: place.clone(), major });
        }
        versions.push(format!("{major} in {}", place.display()));
    }
    let at = directory.map_or_else(|| "PATH".to_owned(), |one| one.display().to_string());
    let wanted = demanded.map_or_else(|| format!("{OLDEST_MAJOR} or later"), |major| major.to_string());
    let found = if versions.is_empty() {
        format!("no {}", NEEDED.join(" and "))
    } else {
        format!("only version {}", versions.join(", "))
    };
    let version = demanded.map_or_else(String::new, |major| format!("-{major}"));
    Err(problem(&at, &format!("find PostgreSQL {wanted}"), found).hinted(format!(
        "install it (Debian: postgresql{version}), name the directory of its programs, or use your own server by its connection string"
    )))
}

fn usual_places() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> =
        env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
    let mut versioned = Vec::new();
    for (parent, prefix) in [("/usr/lib/postgresql", ""), ("/usr", "pgsql-")] {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
            versioned.extend(number.map(|number| (number, entry.path().join("bin"))));
        }
    }
    versioned.sort_unstable_by(|a, b| b.cmp(a));
    places.extend(versioned.into_iter().map(|(_, place)| place));
    places.push("/usr/local/pgsql/bin".into());
    places
}

fn major_of(place: &Path) -> Option<u32> {
    let said = Command::new(place.join("postgres")).arg("--version").stdin(Stdio::null()).output().ok()?;
    parse_major(&String::from_utf8_lossy(&said.stdout))
}

/// Of `postgres (PostgreSQL) 15.18 (Debian …)`, or of a file `PG_VERSION`.
pub(super) fn parse_major(text: &str) -> Option<u32> {
    let number = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// As whom a server with data in `directory` runs; None is the caller. PostgreSQL refuses to run as root, so root starts it as the
/// owner of what is there, else as the user of the packages.
///
/// # Errors
/// [`DatabaseError::Engine`] if root has no such user, [`DatabaseError::Io`] if the directory cannot be looked at.
pub fn account(directory: &Path) -> Result<Option<Account>, DatabaseError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let owner = match fs::metadata(directory) {
        Ok(facts) => Some(facts.uid()).filter(|user| *user != 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(DatabaseError::io("look at it", directory)(error)),
    };
    let user = match owner {
        Some(number) => User::from_uid(number.into()),
        None => User::from_name(PACKAGED_USER),
    };
    match user {
        Ok(Some(user)) => {
            Ok(Some(Account { name: user.name, user: user.uid.as_raw(), group: user.gid.as_raw() }))
        }
        _ => {
            let who = owner.map_or_else(|| PACKAGED_USER.to_owned(), |number| number.to_string());
            let operation = "start a server, which must not run as root";
            Err(problem(&directory.display().to_string(), operation, format!("there is no user {who}"))
                .hinted(format!("useradd --system {PACKAGED_USER}, or call flashwright as another user")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(place: &Path, version: &str) {
        fs::create_dir_all(place).unwrap();
        for name in NEEDED {
            let path = place.join(name);
            let text = path.with_extension("text");
            fs::write(&text, format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")).unwrap();
            // By another process: what this one has open for writing, children of other threads inherit, and cannot be executed.
            assert!(
                Command::new("install").args(["-m", "755"]).args([text, path]).status().unwrap().success()
            );
        }
    }

    #[test]
    fn the_version_is_the_first_number() {
        assert_eq!(parse_major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(parse_major("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(parse_major("15\n"), Some(15));
        assert_eq!(parse_major("postgres"), None);
    }

    #[test]
    fn programs_that_are_missing_too_old_or_of_another_version_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("bin");
        let missing = find(Some(&place), None).unwrap_err();
        assert!(base::with_causes(&missing).contains("no postgres and initdb"), "{missing:?}");
        assert!(missing.hint().unwrap().contains("postgresql"));
        fake(&place, "9.6.24");
        let old = base::with_causes(&find(Some(&place), None).unwrap_err());
        assert!(old.contains("13 or later") && old.contains("only version 9"), "{old}");
        fake(&place, "15.18 (Debian)");
        assert_eq!(find(Some(&place), None).unwrap(), Programs { directory: place.clone(), major: 15 });
        assert_eq!(find(Some(&place), Some(15)).unwrap().major, 15);
        let other = find(Some(&place), Some(14)).unwrap_err();
        assert!(
            base::with_causes(&other).contains("PostgreSQL 14")
                && other.hint().unwrap().contains("postgresql-14")
        );
    }
}
