//! The work directory of a build: beside the graph, if that is a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use storage::locks::{self, Attempt};

use super::BuildOptions;
use super::arcs::Arcs;
use crate::GraphError;
use crate::edges::EdgeList;
use crate::format;

/// A directory that this process has locked.
#[derive(Debug)]
pub struct WorkDirectory {
    path: PathBuf,
    /// Holds the lock.
    _handle: File,
}

impl WorkDirectory {
    /// Makes or takes over the directory `NAME.build` beside `graph`.
    ///
    /// # Errors
    /// [`GraphError::Busy`] if another process has it.
    pub fn open(graph: &Path) -> Result<Self, GraphError> {
        let mut name = graph.file_name().unwrap_or_default().to_owned();
        name.push(".build");
        Self::at(graph.with_file_name(name), graph)
    }

    /// Makes or takes over the directory at `path`, of a build of `graph`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn at(path: PathBuf, graph: &Path) -> Result<Self, GraphError> {
        let is_new = match std::fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            made => made.map(|()| true).map_err(|source| GraphError::io("create", &path, source))?,
        };
        let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits() as i32;
        let handle = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        let handle = handle.map_err(|source| GraphError::io("open", &path, source))?;
        // What lies in it is gone on with, and removed in the end: it is to be this user's, and no link to something else.
        let owner = handle.metadata().map_err(|source| GraphError::io("stat", &path, source))?.uid();
        if !is_new && owner != rustix::process::geteuid().as_raw() {
            return Err(GraphError::WouldReplace { path, expected: "a directory of this user" });
        }
        match locks::try_exclusive(handle.as_fd()) {
            Ok(Attempt::Held { by }) => {
                let by = by.unwrap_or_else(|| "another process".to_owned());
                Err(GraphError::Busy { path: graph.to_owned(), by })
            }
            // NFS takes no such lock of a directory; the lists' own locks remain.
            _ => Ok(Self { path, _handle: handle }),
        }
    }

    /// Where the arcs are.
    pub fn sorted_path(&self) -> PathBuf {
        self.path.join("arcs.el")
    }

    /// Where the degrees are.
    pub fn degrees_path(&self) -> PathBuf {
        self.path.join("degrees.el")
    }

    /// Whether the arcs of a build with this key are complete.
    pub fn is_sorted(&self, key: &str) -> bool {
        // A build that ended while the second of them got its name leaves lists of two builds.
        [self.sorted(), self.degrees()]
            .into_iter()
            .all(|list| list.is_ok_and(|list| list.header().origin == key))
    }

    /// The arcs.
    pub fn sorted(&self) -> Result<EdgeList, GraphError> {
        EdgeList::open(&self.sorted_path())
    }

    /// The degrees.
    pub fn degrees(&self) -> Result<EdgeList, GraphError> {
        EdgeList::open(&self.degrees_path())
    }

    /// Removes the directory once the graph is in its place.
    pub fn remove(self) {
        // What stays is only space: the next build of the same graph takes it over.
        let _ = std::fs::remove_file(self.sorted_path());
        let _ = std::fs::remove_file(self.degrees_path());
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        // It stays if it holds something to go on with.
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// What the arcs of a build depend on.
pub fn key(list: &EdgeList, arcs: Arcs, options: &BuildOptions) -> Result<String, GraphError> {
    let facts =
        std::fs::metadata(list.path()).map_err(|source| GraphError::io("stat", list.path(), source))?;
    let BuildOptions { keep_duplicates, keep_self_loops, .. } = options;
    Ok(format!(
        "arcs of inode {} on device {}, {} bytes, changed {}.{:09}; header {:08x}; {arcs:?} \
         keep_duplicates={keep_duplicates} keep_self_loops={keep_self_loops}",
        facts.ino(),
        facts.dev(),
        facts.len(),
        // Not the time of modification, which cp -p and rsync -t set back.
        facts.ctime(),
        facts.ctime_nsec(),
        crc32c::crc32c(&list.header().encode()),
    ))
}

/// Fails if something else than a graph lies at `path`: a build replaces what is there.
pub fn check_replaceable(path: &Path) -> Result<(), GraphError> {
    let would_replace =
        || GraphError::WouldReplace { path: path.to_owned(), expected: "a graph (.fwg) or an empty file" };
    let facts = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(GraphError::io("stat", path, source)),
        Ok(facts) => facts,
    };
    if !facts.is_file() {
        return Err(would_replace());
    }
    let mut magic = [0; 8];
    let file = File::open(path).map_err(|source| GraphError::io("open", path, source))?;
    match (&file).read_exact(&mut magic) {
        Err(_) if facts.len() == 0 => Ok(()),
        Ok(()) if format::is_graph(&magic) => Ok(()),
        _ => Err(would_replace()),
    }
}
