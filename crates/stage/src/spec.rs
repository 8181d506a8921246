//! What is to be moved: a request as the command line, the socket, Python and C all say it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::address::{Address, Scheme, without_secrets};
use crate::digest::{Algorithm, Digest, Hasher};
use crate::error::StageError;
use crate::names::PathText;
use crate::parts::PartRecord;
use crate::semaphore::Semaphore;

/// Does the source stay?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// It stays.
    Copy,
    /// It goes, when the copy is durable and verified.
    Move,
}

/// What URLs of object stores begin with; the last is for tests and for tries on one machine.
const OBJECT_STORES: [&str; 2] = ["s3://", "file:///"];

/// Does the first segment of a relative name contain a colon, as in `s3:/bucket`, `host:path`, `user@host:/path` and
/// `remote:bucket`? Other programs read such a name as a place on another host.
fn looks_like_a_url(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'/').next().unwrap_or_default().contains(&b':')
}

/// A place on some tier.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// A file or directory, absolute.
    Path(PathText),
    /// An object, or what lies under a prefix of objects: `s3://bucket/prefix`, or `file:///…` in tests.
    Object(Address),
}

impl Place {
    /// A path; relative ones are taken from the current directory.
    pub fn of_path(path: &Path) -> std::io::Result<Self> {
        Ok(Self::Path(PathText(std::path::absolute(path)?)))
    }

    /// What a person or a program names: a URL of an object store, or else a path, which is left as it is. A name that
    /// looks like a URL and is not a known one fails: taken for a path, it would be made below the current directory,
    /// and a move would delete its source for that. A file whose name looks so is `./NAME`.
    ///
    /// # Errors
    /// [`StageError::Invalid`] for a URL that no store can be opened with ([`Address::parse`]), for what looks like a URL
    /// and is not one of an object store, and for an empty name. The message holds no secret of the URL.
    pub fn of_name(name: impl AsRef<OsStr>) -> Result<Self, StageError> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(StageError::invalid("a path is empty", "name a file or a directory"));
        }
        if let Some(text) = name.to_str()
            && OBJECT_STORES.iter().any(|scheme| text.starts_with(scheme))
        {
            return Address::parse(text).map(Self::Object);
        }
        if looks_like_a_url(name.as_bytes()) {
            return Err(StageError::invalid(
                format!(
                    "{}: looks like a URL, and is not one of an object store",
                    without_secrets(&name.to_string_lossy())
                ),
                "an object store is s3://BUCKET/PREFIX; a file whose name looks so is ./NAME",
            ));
        }
        Ok(Self::Path(PathText(name.into())))
    }

    /// The path, if it is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path(path) => Some(&path.0),
            Self::Object(_) => None,
        }
    }

    /// Where it is in this host's file systems: a path, or what a URL of the scheme `file` names.
    #[must_use]
    pub fn local_path(&self) -> Option<PathBuf> {
        match self {
            Self::Path(path) => Some(path.0.clone()),
            Self::Object(url) => (*url.scheme() == Scheme::File).then(|| Path::new("/").join(url.prefix())),
        }
    }

    /// What lies at this path below.
    ///
    /// # Errors
    /// [`StageError::Invalid`] for a name that no object has.
    pub fn join(&self, path: &Path) -> Result<Self, StageError> {
        match self {
            Self::Path(above) => Ok(Self::Path(PathText(above.0.join(path)))),
            Self::Object(above) => above.join(path).map(Self::Object),
        }
    }

    /// The last name of a path, or of what a URL names; a bucket has none.
    #[must_use]
    pub fn name(&self) -> Option<OsString> {
        match self {
            Self::Path(path) => path.0.file_name().map(std::ffi::OsStr::to_owned),
            Self::Object(url) => url.split().map(|(_, name)| name.into()),
        }
    }

    /// What it is in, a directory or a prefix, and its name there. None for what has no name.
    #[must_use]
    pub fn split(&self) -> Option<(Self, OsString)> {
        match self {
            Self::Path(path) => match (path.0.parent(), path.0.file_name()) {
                (Some(above), Some(name)) => Some((Self::Path(above.into()), name.to_owned())),
                _ => None,
            },
            Self::Object(url) => url.split().map(|(above, name)| (Self::Object(above), name.into())),
        }
    }

    /// As a person reads it.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Self::Path(path) => crate::error::shown(&path.0),
            Self::Object(url) => url.to_string(),
        }
    }
}

/// What goes with a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Preserve {
    /// Owner and group, where the caller may give files away; otherwise what cannot be kept is counted and said.
    pub owner: bool,
    /// Permission bits.
    pub mode: bool,
    /// Time of modification, and of access, to the nanosecond.
    pub times: bool,
    /// Extended attributes of `user.`, and of `security.` and `trusted.` where the caller may.
    pub xattrs: bool,
    /// POSIX access control lists.
    pub acls: bool,
    /// Holes stay holes.
    pub sparse: bool,
    /// Names of one file stay names of one file.
    pub links: bool,
}

impl Preserve {
    /// Mode, times, holes and hard links: all that takes no privilege to set.
    pub const USUAL: Self =
        Self { owner: false, mode: true, times: true, xattrs: false, acls: false, sparse: true, links: true };
    /// Everything.
    pub const ALL: Self =
        Self { owner: true, mode: true, times: true, xattrs: true, acls: true, sparse: true, links: true };
    /// Bytes and names alone.
    pub const NONE: Self = Self {
        owner: false,
        mode: false,
        times: false,
        xattrs: false,
        acls: false,
        sparse: false,
        links: false,
    };
}

impl Default for Preserve {
    fn default() -> Self {
        Self::USUAL
    }
}

impl FromStr for Preserve {
    type Err = String;

    /// `all`, `none`, or a list: `owner,mode,times,xattrs,acls,sparse,links`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut kept = Self::NONE;
        for word in text.split(',') {
            match word.trim() {
                "all" => kept = Self::ALL,
                "none" => kept = Self::NONE,
                "owner" => kept.owner = true,
                "mode" => kept.mode = true,
                "times" => kept.times = true,
                "xattrs" => kept.xattrs = true,
                "acls" => kept.acls = true,
                "sparse" => kept.sparse = true,
                "links" => kept.links = true,
                other => {
                    return Err(format!(
                        "{other:?} is none of owner, mode, times, xattrs, acls, sparse, links, all, none"
                    ));
                }
            }
        }
        Ok(kept)
    }
}

/// A file that a semaphore vouched for: what must be there, or nothing is moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// Relative to the source; empty for a source that is one file.
    pub path: PathText,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Of the whole file's bytes in order, by the job's algorithm, as `xxhsum -H2` or `b3sum` prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub digest: Option<Digest>,
}

/// How it is to be moved. All of it has a default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Most bytes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bwlimit: Option<u64>,
    /// Most reads and writes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops_limit: Option<u64>,
    /// Before others with a lower one; 0 where nothing is said.
    pub priority: i32,
    /// When it must be durable, seconds since 1970: the rate is raised as late as possible, as far as needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// What goes with the bytes.
    pub preserve: Preserve,
    /// How bytes are digested.
    pub digest: Algorithm,
    /// Leave the manifest out of a directory that is copied.
    pub no_manifest: bool,
    /// What must be there. It is not in a job's JSON: a client hands it over in pieces, and the journal has a row for each
    /// file.
    #[serde(skip_serializing)]
    pub expected: Vec<Expected>,
    /// The digest of `expected` ([`JobSpec::sealed`]), by which requests are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub expected_digest: Option<Digest>,
    /// The semaphore that asked for this, removed when all is durable if it is still in the state in which it was read, and
    /// does not stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub semaphore: Option<Semaphore>,
    /// Have `latest`, beside the destination, point to it once it is durable.
    pub latest: bool,
    /// Once durable, keep this many of the set's siblings on the fast tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_fast: Option<u32>,
    /// Once durable, keep this many on the slow tier; the last durable one always.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_slow: Option<u32>,
    /// Let others' I/O go first (the idle class of ioprio_set(2)), and back off when the fast tier slows down.
    pub background: bool,
    /// Towards the fast tier: what is brought back for an application. The fast tier, whose latency a governor looks at, is
    /// then the destination's and not the source's. What comes out of an object store is so in any case.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inward: bool,
    /// The source is a part of a set that many nodes write, and this one. Its place is `SLOW/SET/PART` ([`crate::parts`]); once
    /// it is durable the set is completed if no other part lacks, and what is kept on the slow tier is whole sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<PartRecord>,
    /// Make directories above the destination that are not there. Without it they have to be: a tier that is not mounted
    /// lacks them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub parents: bool,
}

/// A move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Does the source stay?
    pub verb: Verb,
    /// What is moved: a file or a directory with all below it.
    pub source: Place,
    /// The name that it is to have: not the directory to put it in.
    pub destination: Place,
    /// How.
    #[serde(default)]
    pub options: Options,
}

/// The directory that a destination is to be in is not there.
#[must_use]
pub fn no_parent(parent: &Path) -> crate::StageError {
    crate::StageError::invalid(
        format!("{}: there is no such directory", crate::error::shown(parent)),
        "is the tier mounted? If the directory is to be made: --parents",
    )
}

impl JobSpec {
    /// Refuses a destination whose directory is not there and is not to be made.
    ///
    /// # Errors
    /// [`crate::StageError::Invalid`].
    pub fn check_parents(&self) -> Result<(), crate::StageError> {
        let parent = self.destination.path().filter(|_| !self.options.parents).and_then(Path::parent);
        // The directory of a set of parts is made by the first of them.
        let parent = if self.options.part.is_some() { parent.and_then(Path::parent) } else { parent };
        match parent.map(|parent| (parent, parent.metadata())) {
            Some((parent, Err(error))) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(no_parent(parent))
            }
            _ => Ok(()),
        }
    }

    /// The tier of sets that a place of a part is in, and the set's name: of `SLOW/SET/PART`.
    #[must_use]
    pub fn set_of_part(&self) -> Option<(Place, OsString)> {
        let (set, _) = self.destination.split()?;
        set.split()
    }

    /// Refuses a destination that is not the place of the part that the source is said to be.
    ///
    /// # Errors
    /// [`StageError::Invalid`].
    pub fn check_part(&self) -> Result<(), StageError> {
        let Some(record) = &self.options.part else { return Ok(()) };
        let (set, part) = (record.set().to_string(), record.part()?.to_string());
        let is_there = self.destination.name().is_some_and(|name| name == part.as_str())
            && self.set_of_part().is_some_and(|(_, name)| name == set.as_str());
        if !is_there {
            return Err(StageError::invalid(
                format!("{}: not the place of rank {} of {set}", self.destination.shown(), record.rank),
                format!("a part is stored as {set}/{part} in the directory of sets"),
            ));
        }
        if self.options.no_manifest {
            return Err(StageError::invalid(
                "a part of a set without a manifest: nothing would say which part it is",
                "leave the manifest in",
            ));
        }
        Ok(())
    }

    /// Is there something to move? What may not be looked at is left to the job, which runs with other rights perhaps.
    ///
    /// # Errors
    /// [`StageError::Invalid`] if nothing has the source's name.
    pub fn check_source(&self) -> Result<(), StageError> {
        use std::io::ErrorKind::{NotADirectory, NotFound};
        match self.source.path().map(|path| path.symlink_metadata()) {
            Some(Err(error)) if matches!(error.kind(), NotFound | NotADirectory) => Err(StageError::invalid(
                format!("{}: is not there", self.source.shown()),
                "name what is to be moved or copied; what was moved before lies at its destination",
            )),
            _ => Ok(()),
        }
    }

    /// With the digest of what must be there, where something must.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        if !self.options.expected.is_empty() {
            let mut hasher = Hasher::new(Algorithm::Blake3);
            for file in &self.options.expected {
                let path = file.path.0.as_os_str().as_bytes();
                hasher.update(&(path.len() as u64).to_le_bytes());
                hasher.update(path);
                hasher.update(&file.size.map_or(u64::MAX, |size| size).to_le_bytes());
                hasher.update(&file.digest.unwrap_or(Digest([0; 32])).0);
            }
            self.options.expected_digest = Some(hasher.finish());
        }
        self
    }

    /// As a job's status has it: the digest stands for what must be there.
    #[must_use]
    pub fn without_expected(&self) -> Self {
        let (semaphore, part) = (self.options.semaphore.clone(), self.options.part.clone());
        let options = Options { expected: Vec::new(), semaphore, part, ..self.options };
        let Self { verb, source, destination, .. } = self;
        Self { verb: *verb, source: source.clone(), destination: destination.clone(), options }
    }

    /// Is it between the same places?
    #[must_use]
    pub fn has_places_of(&self, other: &Self) -> bool {
        (&self.source, &self.destination) == (&other.source, &other.destination)
    }

    /// Is it the same request but for how fast it is carried out, and for the state of the semaphore that asks for it? A semaphore
    /// that stays is not compared.
    #[must_use]
    pub fn is_same_request(&self, other: &Self) -> bool {
        // Most are between other places, and the rest takes longer to compare.
        if !self.has_places_of(other) {
            return false;
        }
        let comparable = |spec: &Self| {
            // A journal keeps the digest of what must be there, and who asks may have the list alone.
            let mut spec = spec.clone().sealed().of_any_semaphore();
            let options = std::mem::take(&mut spec.options);
            spec.options = Options {
                bwlimit: None,
                iops_limit: None,
                priority: 0,
                deadline: None,
                background: false,
                expected: Vec::new(),
                ..options
            };
            spec
        };
        comparable(self) == comparable(other)
    }

    /// The same, whichever state its semaphore was read in, and of none if that stays.
    #[must_use]
    pub fn of_any_semaphore(mut self) -> Self {
        self.options.semaphore = self.options.semaphore.filter(|semaphore| !semaphore.stays);
        if let Some(semaphore) = &mut self.options.semaphore {
            semaphore.identity = crate::semaphore::Identity::default();
        }
        self
    }

    /// The directory below which no symbolic link leads to the source.
    #[must_use]
    pub fn watched(&self) -> Option<&Path> {
        Some(&self.options.semaphore.as_ref()?.watched.as_ref()?.0)
    }

    /// The files that a semaphore names, where it names any: nothing else of the source is moved.
    #[must_use]
    pub fn listed(&self) -> Option<std::collections::BTreeSet<PathBuf>> {
        let expected = &self.options.expected;
        (!expected.is_empty()).then(|| expected.iter().map(|expected| expected.path.0.clone()).collect())
    }

    /// A directory on the fast tier: the one that holds the source of a drain, or where what is brought back is to be,
    /// or the nearest above it that is there already. None where that end is no path.
    #[must_use]
    pub fn fast_directory(&self) -> Option<&Path> {
        let fetched = matches!(self.source, Place::Object(_));
        let end = if self.options.inward || fetched { &self.destination } else { &self.source };
        end.path()?.ancestors().skip(1).find(|above| above.is_dir())
    }
}

/// How far a move has come, for those who wait.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// The request is in the journal, and will be carried out whatever happens to the server.
    Staged,
    /// The source has been synced where it is.
    Local,
    /// The bytes are at the destination under their name and verified, and the destination is in memory (tmpfs, ramfs):
    /// they last until it is unmounted or the host stops. Such a job never becomes durable.
    InMemory,
    /// The bytes are at the destination under their name, verified and durable.
    Durable,
}

impl Level {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Local => "local",
            Self::InMemory => "in-memory",
            Self::Durable => "durable",
        }
    }

    /// Is the copy at its destination under its name, and verified?
    #[must_use]
    pub fn is_committed(self) -> bool {
        self >= Self::InMemory
    }
}

impl FromStr for Level {
    type Err = ();

    /// The levels that a client waits for. Where a destination is in memory is not asked for.
    fn from_str(word: &str) -> Result<Self, ()> {
        [Self::Staged, Self::Local, Self::Durable].into_iter().find(|level| level.word() == word).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_tier_is_where_a_drain_comes_from_and_where_what_is_brought_back_goes() {
        let directory = tempfile::tempdir().unwrap();
        let (fast, slow) = (directory.path().join("fast"), directory.path().join("slow"));
        std::fs::create_dir(&fast).unwrap();
        std::fs::create_dir(&slow).unwrap();
        let spec = |source: Place, destination: Place, inward: bool| JobSpec {
            verb: Verb::Copy,
            source,
            destination,
            options: Options { inward, ..Options::default() },
        };
        let path = |path: PathBuf| Place::of_path(&path).unwrap();
        let drain = spec(path(fast.join("a")), path(slow.join("a")), false);
        assert_eq!(drain.fast_directory(), Some(fast.as_path()));
        let get = spec(path(slow.join("a")), path(fast.join("a")), true);
        assert_eq!(get.fast_directory(), Some(fast.as_path()));
        // Directories that the job will make are not there yet.
        let deep = spec(path(slow.join("a")), path(fast.join("x/y/a")), true);
        assert_eq!(deep.fast_directory(), Some(fast.as_path()));
        let object = || Place::of_name("s3://bucket/x").unwrap();
        assert_eq!(spec(object(), path(fast.join("a")), false).fast_directory(), Some(fast.as_path()));
        assert_eq!(spec(path(fast.join("a")), object(), false).fast_directory(), Some(fast.as_path()));
    }

    #[test]
    fn what_looks_like_a_url_and_is_none_is_not_taken_for_a_path() {
        for wrong in [
            "s3:/bucket/run",
            "host:path",
            "user@host:path/x",
            "remote:bucket",
            "a:b",
            "2026-11-22T10:00:00",
            "ckpt:7/x",
            "x:",
            "S3://bucket/run",
            " s3://bucket/run",
            "s3:bucket",
            "s3:",
            "s3a://b/x",
            "gs://b/x",
            "http://host/x",
            "file:/x",
            "file://host/x",
            "FILE:///x",
            "memory:///x",
            "s3://bucket/x?regoin=eu",
            "s3://bucket/x?timeout_s=soon",
            "s3://bucket/a/../x",
            "file:///a/../x",
            "azure://b/x",
            "host:/path",
            "user@host:/path",
            "s3 ://bucket/x",
            "s3://",
            "s3:///",
            "\tgs:/b",
            "",
        ] {
            let named = Place::of_name(wrong);
            assert!(matches!(named, Err(StageError::Invalid { .. })), "{wrong:?}: {named:?}");
        }
        assert!(Place::of_name(OsStr::from_bytes(b"s3://bucket/\xff")).is_err(), "a URL is UTF-8");
        for url in ["s3://bucket/run", "s3://bucket", "file:///x"] {
            assert_eq!(Place::of_name(url).unwrap().shown(), url);
        }
        assert_eq!(Place::of_name("s3://bucket/run/").unwrap().shown(), "s3://bucket/run");
        for secret in ["s3://user:hunter2@bucket/x", "http://user:hunter2@host/x", "s3:user:hunter2@bucket"] {
            let error = Place::of_name(secret).unwrap_err();
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
        for path in ["./s3:/bucket", "/s3:/x", "a/s3:/x", "./2026-11-22T10:00:00", "/a/b:c", "s3", "s3/x"] {
            assert_eq!(Place::of_name(path).unwrap().path(), Some(Path::new(path)));
        }
    }
}
