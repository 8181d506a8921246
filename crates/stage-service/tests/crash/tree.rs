//! A tree as it is on a file system: what a copy must have, and what tells that it has not.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use stage::digest::{Algorithm, CHUNK_BYTES, Digest};

/// One name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    pub owner: (u32, u32),
    pub modified: (i64, i64),
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first name of the same file, if there is one before this.
    pub link_to: Option<Vec<u8>>,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    File {
        size: u64,
        digest: Digest,
        /// Bytes that it has room for on its medium.
        allocated: u64,
    },
    Directory,
    Symlink(Vec<u8>),
    Other(&'static str),
}

/// All names below a path, and the path itself as the empty name.
pub type Tree = BTreeMap<Vec<u8>, Entry>;

/// What is at `path`; nothing where there is nothing.
pub fn snapshot(path: &Path) -> io::Result<Option<Tree>> {
    let mut tree = Tree::new();
    let mut inodes = HashMap::new();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(metadata) => {
            take(path, Vec::new(), &metadata, &mut tree, &mut inodes)?;
            Ok(Some(tree))
        }
    }
}

fn take(
    path: &Path,
    name: Vec<u8>,
    metadata: &Metadata,
    tree: &mut Tree,
    inodes: &mut HashMap<(u64, u64), Vec<u8>>,
) -> io::Result<()> {
    let kind = metadata.file_type();
    let link_to = if kind.is_dir() {
        None
    } else {
        let first = inodes.entry((metadata.dev(), metadata.ino())).or_insert_with(|| name.clone());
        (*first != name).then(|| first.clone())
    };
    let entry = Entry {
        kind: if kind.is_file() {
            Kind::File { size: metadata.size(), digest: digest(path)?, allocated: metadata.blocks() * 512 }
        } else if kind.is_dir() {
            Kind::Directory
        } else if kind.is_symlink() {
            Kind::Symlink(fs::read_link(path)?.as_os_str().as_bytes().to_vec())
        } else if kind.is_fifo() {
            Kind::Other("fifo")
        } else if kind.is_socket() {
            Kind::Other("socket")
        } else {
            Kind::Other("device")
        },
        mode: metadata.mode() & 0o7777,
        owner: (metadata.uid(), metadata.gid()),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        attributes: attributes(path)?,
        link_to,
    };
    let is_directory = entry.kind == Kind::Directory;
    tree.insert(name.clone(), entry);
    if is_directory {
        let mut names =
            fs::read_dir(path)?.map(|one| Ok(one?.file_name())).collect::<io::Result<Vec<_>>>()?;
        names.sort();
        for child in names {
            let below = path.join(&child);
            let mut full = name.clone();
            if !full.is_empty() {
                full.push(b'/');
            }
            full.extend_from_slice(child.as_bytes());
            take(&below, full, &fs::symlink_metadata(&below)?, tree, inodes)?;
        }
    }
    Ok(())
}

/// A file's digest as `stage::digest` defines it, by reads of its own.
pub fn digest(path: &Path) -> io::Result<Digest> {
    let mut file = File::open(path)?;
    let mut chunks = Vec::new();
    loop {
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(CHUNK_BYTES).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Ok(Algorithm::Xxh3.of_chunks(&chunks));
        }
        chunks.push(Algorithm::Xxh3.of(&bytes));
    }
}

fn attributes(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0_u8; 4096];
    let bytes = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(bytes) => bytes,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut found = BTreeMap::new();
    for name in names[..bytes].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0_u8; 65536];
        let length = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..])?;
        value.truncate(length);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}

/// How two trees differ, a line each; nothing where they do not. Time of access is nobody's concern.
pub fn differences(expected: &Tree, found: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, one) in expected {
        let shown = stage::names::shown(name);
        match found.get(name) {
            None => lines.push(format!("{shown:?} is missing")),
            Some(other) => lines.extend(entry_differences(&shown, one, other)),
        }
    }
    for name in found.keys().filter(|name| !expected.contains_key(*name)) {
        lines.push(format!("{:?} is there and should not be", stage::names::shown(name)));
    }
    lines
}

fn entry_differences(shown: &str, one: &Entry, other: &Entry) -> Vec<String> {
    let mut lines = Vec::new();
    match (&one.kind, &other.kind) {
        (
            Kind::File { size, digest, allocated },
            Kind::File { size: found, digest: other_digest, allocated: room },
        ) => {
            if size != found || digest != other_digest {
                lines.push(format!(
                    "{shown:?} has other bytes: {size} of {digest:?} expected, {found} of {other_digest:?} found"
                ));
            }
            // Blocks and indirect blocks differ between file systems; a hole that was filled is larger than that.
            if allocated + (1 << 20) < *size && *room > allocated + (256 << 10) {
                lines.push(format!(
                    "{shown:?} has lost its holes: {allocated} bytes allocated expected, {room} found"
                ));
            }
        }
        (expected, found) if expected == found => {}
        (expected, found) => lines.push(format!("{shown:?} is {found:?} and should be {expected:?}")),
    }
    let mut compare = |what: &str, equal: bool, expected: String, found: String| {
        if !equal {
            lines.push(format!("{shown:?} has another {what}: {expected} expected, {found} found"));
        }
    };
    compare("mode", one.mode == other.mode, format!("{:o}", one.mode), format!("{:o}", other.mode));
    compare("owner", one.owner == other.owner, format!("{:?}", one.owner), format!("{:?}", other.owner));
    compare(
        "time of modification",
        one.modified == other.modified,
        format!("{:?}", one.modified),
        format!("{:?}", other.modified),
    );
    compare(
        "attributes",
        one.attributes == other.attributes,
        format!("{:?}", one.attributes),
        format!("{:?}", other.attributes),
    );
    compare(
        "links",
        one.link_to == other.link_to,
        format!("{:?}", one.link_to),
        format!("{:?}", other.link_to),
    );
    lines
}
