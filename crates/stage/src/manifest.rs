//! Manifests: what a set consists of, in a file that is part of it. The format is `flashwright.manifest/1`
//! (docs/formats.md): JSON lines, a header, one line an entry in the order of the paths' bytes, and a last line with
//! counts and a digest of all before it, so that one that was cut short is told from a whole one.
//!
//! A manifest may come from anywhere, so reading trusts nothing in it: paths are relative, go nowhere but down, come
//! in order and once, and nothing lies beneath what is not a directory.

use std::io::{BufRead, Write};
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};

use crate::digest::{Algorithm, CHUNK_BYTES, Digest, Hasher};
use crate::error::StageError;
use crate::names::PathText;
use crate::parts::{PartRecord, SetRecord};

/// The name that a manifest has in its set.
pub const NAME: &str = ".flashwright-manifest";
/// The word in the first line.
pub const FORMAT: &str = "flashwright.manifest/1";
/// Bytes of the longest line that is read or written: the chunks of a file of [`FILE_BYTES_MAX`] fit, by any algorithm.
const LINE_BYTES_MAX: usize = 144 << 20;
/// Bytes of the largest file that a manifest can list, 16 TiB.
pub const FILE_BYTES_MAX: u64 = 16 << 40;
/// Bytes of the largest chunk that a manifest may have. A chunk is read in one piece, by each thread.
pub const CHUNK_BYTES_MAX: u64 = 64 << 20;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
}

impl Kind {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
        }
    }
}

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Header {
    /// `flashwright.manifest/1`.
    pub format: String,
    /// How bytes are digested.
    pub algorithm: Algorithm,
    /// Bytes that one digest of `chunks` is of.
    pub chunk_bytes: u64,
    /// The set's name when it was made.
    pub name: PathText,
    /// When, seconds since 1970.
    pub created: u64,
    /// Of a part of a set that many nodes write: which it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartRecord>,
    /// Of a set of parts, complete: which it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<SetRecord>,
}

impl Header {
    /// The first line of a manifest of a set, which is no part.
    #[must_use]
    pub fn new(algorithm: Algorithm, name: &Path, created: u64) -> Self {
        let name = PathText(name.to_owned());
        let format = FORMAT.to_owned();
        Self { format, algorithm, chunk_bytes: CHUNK_BYTES, name, created, part: None, set: None }
    }
}

/// One file, directory or symbolic link. The set's own directory is the entry with the empty path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Entry {
    /// Relative to the set.
    pub path: PathText,
    /// What it is.
    pub kind: Kind,
    /// Bytes; 0 of what is no file.
    #[serde(default)]
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of modification, seconds since 1970; negative before.
    pub mtime_s: i64,
    /// And nanoseconds.
    pub mtime_ns: u32,
    /// Of a file's bytes (see `digest`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub digest: Option<Digest>,
    /// Of each chunk, where there is more than one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub chunks: Vec<Digest>,
    /// Where a symbolic link leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<PathText>,
    /// The entry that this is another name of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_to: Option<PathText>,
}

#[derive(Serialize, Deserialize)]
struct End {
    end: bool,
    entries: u64,
    bytes: u64,
    digest: Digest,
}

/// Writes a manifest.
pub struct Writer<W: Write> {
    out: W,
    hasher: Hasher,
    entries: u64,
    bytes: u64,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins with the header.
    pub fn new(out: W, header: &Header) -> std::io::Result<Self> {
        let mut writer =
            Self { out, hasher: Hasher::new(Algorithm::Xxh3), entries: 0, bytes: 0, line: Vec::new() };
        writer.line(header)?;
        Ok(writer)
    }

    /// One entry; they come in the order of their paths' bytes.
    pub fn entry(&mut self, entry: &Entry) -> std::io::Result<()> {
        self.entries += 1;
        if entry.link_to.is_none() {
            self.bytes += entry.size;
        }
        self.line(entry)
    }

    /// Ends it, and returns the stream and the digest of all that is before the last line, which tells one manifest
    /// from another.
    pub fn finish(mut self) -> std::io::Result<(W, Digest)> {
        let hasher = std::mem::replace(&mut self.hasher, Hasher::new(Algorithm::Xxh3));
        let digest = hasher.finish();
        let (entries, bytes) = (self.entries, self.bytes);
        self.line(&End { end: true, entries, bytes, digest })?;
        self.out.flush()?;
        Ok((self.out, digest))
    }

    fn line(&mut self, document: &impl Serialize) -> std::io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, document)?;
        self.line.push(b'\n');
        if self.line.len() > LINE_BYTES_MAX {
            return Err(std::io::Error::new(
                std::io::ErrorKind::FileTooLarge,
                format!("a file of more than {FILE_BYTES_MAX} bytes cannot be listed in a manifest"),
            ));
        }
        self.hasher.update(&self.line);
        self.out.write_all(&self.line)
    }
}

/// Reads a manifest, an entry at a time. An error ends it; only after the last entry is it known to be whole.
pub struct Reader<R: BufRead> {
    input: R,
    shown: String,
    header: Header,
    hasher: Hasher,
    entries: u64,
    bytes: u64,
    /// The path of the entry before.
    before: Option<PathText>,
    /// Directories that the entry before lies in, itself included if it is one: what an entry may lie beneath.
    above: Vec<PathText>,
    digest: Option<Digest>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header. `shown` is what errors call the manifest.
    ///
    /// # Errors
    /// The stream's; what is no manifest, or of a format that this program does not know.
    pub fn new(mut input: R, shown: impl Into<String>) -> Result<Self, StageError> {
        let shown = shown.into();
        let mut hasher = Hasher::new(Algorithm::Xxh3);
        let Some(line) = read_line(&mut input, &shown)? else { return Err(wrong(&shown, "it is empty")) };
        let header: Header = serde_json::from_slice(&line)
            .map_err(|error| wrong(&shown, format!("its first line: {error}")))?;
        if header.format != FORMAT {
            return Err(wrong(
                &shown,
                format!("its format is {:?}, and {FORMAT} is known here", header.format),
            ));
        }
        if !(1..=CHUNK_BYTES_MAX).contains(&header.chunk_bytes) {
            let what =
                format!("its chunks are of {} bytes; 1 to {CHUNK_BYTES_MAX} can be", header.chunk_bytes);
            return Err(wrong(&shown, what));
        }
        hasher.update(&line);
        let above = Vec::new();
        Ok(Self { input, shown, header, hasher, entries: 0, bytes: 0, before: None, above, digest: None })
    }

    /// The first line.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The digest that tells this manifest from another, once the last line was read.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// The next entry; none after the last, when the manifest is known to be whole.
    ///
    /// # Errors
    /// The stream's; a manifest that is cut short, damaged, or not to be trusted.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, StageError> {
        if self.digest.is_some() {
            return Ok(None);
        }
        let number = self.entries + 2;
        let Some(line) = read_line(&mut self.input, &self.shown)? else {
            return Err(wrong(&self.shown, format!("it is cut short after {} entries", self.entries)));
        };
        if line.starts_with(b"{\"end\":") {
            let end: End = serde_json::from_slice(&line)
                .map_err(|error| wrong(&self.shown, format!("line {number}: {error}")))?;
            let hasher = std::mem::replace(&mut self.hasher, Hasher::new(Algorithm::Xxh3));
            if (end.entries, end.bytes, end.digest) != (self.entries, self.bytes, hasher.finish()) {
                return Err(wrong(
                    &self.shown,
                    "its last line does not fit what is before it: it is damaged",
                ));
            }
            self.digest = Some(end.digest);
            return Ok(None);
        }
        self.hasher.update(&line);
        let entry: Entry = serde_json::from_slice(&line)
            .map_err(|error| wrong(&self.shown, format!("line {number}: {error}")))?;
        self.check(&entry).map_err(|what| wrong(&self.shown, format!("line {number}: {what}")))?;
        self.entries += 1;
        if entry.link_to.is_none() {
            self.bytes = self.bytes.saturating_add(entry.size);
        }
        self.before = Some(entry.path.clone());
        Ok(Some(entry))
    }

    /// Is this entry one that may be made?
    fn check(&mut self, entry: &Entry) -> Result<(), String> {
        use std::os::unix::ffi::OsStrExt;
        let path = &entry.path.0;
        let shown = crate::error::shown(path);
        let bytes = path.as_os_str().as_bytes();
        if !is_safe(path) {
            return Err(format!("{shown:?} leads out of the set"));
        }
        if let Some(before) = &self.before
            && before.0.as_os_str().as_bytes() >= bytes
        {
            return Err(format!("{shown:?} is out of order or comes twice"));
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        // Bytes sort "a-b" between "a" and "a/b": a directory may still get entries as long as names go on with its own and
        // a byte up to the slash. Such a range holds those of the directories in it, so the last one ends first.
        let is_open = |directory: &[u8]| {
            bytes.strip_prefix(directory).and_then(<[u8]>::first).is_some_and(|next| *next <= b'/')
        };
        while self.above.last().is_some_and(|last| !is_open(last.0.as_os_str().as_bytes())) {
            self.above.pop();
        }
        if !bytes.is_empty() && !parent.as_os_str().is_empty() && !self.known(parent) {
            return Err(format!("{shown:?} lies in what is not a directory of this set"));
        }
        if entry.kind == Kind::Directory {
            self.directory(path);
        }
        let fits = match entry.kind {
            Kind::File if entry.link_to.is_some() => entry.digest.is_none(),
            Kind::File => {
                let chunks = entry.size.div_ceil(self.header.chunk_bytes).max(1);
                let listed = entry.chunks.len() as u64;
                entry.digest.is_some() && (listed == chunks || listed == 0 && chunks == 1)
            }
            Kind::Directory => entry.size == 0 && entry.digest.is_none() && entry.chunks.is_empty(),
            Kind::Symlink => entry.target.is_some() && entry.digest.is_none(),
        };
        if !fits {
            return Err(format!("{shown:?}: what is said of it does not fit a {}", entry.kind.word()));
        }
        if let Some(other) = &entry.link_to
            && (!is_safe(&other.0) || other.0.as_os_str().as_bytes() >= bytes)
        {
            return Err(format!("{shown:?} is another name of what does not come before it"));
        }
        Ok(())
    }

    fn known(&self, directory: &Path) -> bool {
        self.above.iter().rev().any(|above| above.0.as_os_str() == directory.as_os_str())
    }

    fn directory(&mut self, path: &Path) {
        self.above.push(PathText(path.to_owned()));
    }
}

/// Relative, without `..`, and spelt in the one way there is.
fn is_safe(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let bytes = path.as_os_str().as_bytes();
    let clean = bytes.is_empty()
        || bytes.split(|byte| *byte == b'/').all(|name| !name.is_empty() && name != b"." && name != b"..");
    clean
        && !bytes.contains(&0)
        && path.components().all(|component| matches!(component, Component::Normal(_)))
}

fn wrong(shown: &str, what: impl std::fmt::Display) -> StageError {
    StageError::Manifest { path: shown.to_owned(), what: format!("not a manifest that can be used: {what}") }
}

fn read_line(input: &mut impl BufRead, shown: &str) -> Result<Option<Vec<u8>>, StageError> {
    use std::io::Read;
    let mut line = Vec::new();
    let read = input.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line).map_err(|source| {
        StageError::Io {
            operation: "read the manifest".to_owned(),
            path: shown.to_owned(),
            offset: None,
            source,
        }
    })?;
    match line.last() {
        None if read == 0 => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        _ if read == LINE_BYTES_MAX => {
            Err(wrong(shown, format!("a line is longer than {LINE_BYTES_MAX} bytes")))
        }
        _ => Err(wrong(shown, "it is cut short within a line")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: Kind) -> Entry {
        Entry {
            path: PathText(path.into()),
            kind,
            size: 0,
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime_s: -1,
            mtime_ns: 5,
            digest: (kind == Kind::File).then(|| Algorithm::Xxh3.of(b"")),
            chunks: Vec::new(),
            target: (kind == Kind::Symlink).then(|| PathText("../elsewhere".into())),
            link_to: None,
        }
    }

    fn written(entries: &[Entry]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), &Header::new(Algorithm::Xxh3, Path::new("set"), 7)).unwrap();
        for entry in entries {
            writer.entry(entry).unwrap();
        }
        writer.finish().unwrap().0
    }

    fn read(bytes: &[u8]) -> Result<Vec<Entry>, StageError> {
        let mut reader = Reader::new(bytes, "m")?;
        let mut entries = Vec::new();
        while let Some(entry) = reader.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }

    fn usual() -> Vec<Entry> {
        vec![
            entry("", Kind::Directory),
            entry("a", Kind::Directory),
            entry("a-b", Kind::File),
            entry("a/b", Kind::File),
            entry("a/c", Kind::Symlink),
            entry("z", Kind::File),
        ]
    }

    #[test]
    fn what_is_written_reads_back() {
        assert_eq!(read(&written(&usual())).unwrap(), usual());
    }

    #[test]
    fn a_manifest_cut_short_or_damaged_anywhere_is_no_manifest() {
        let whole = written(&usual());
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "cut to {length} bytes");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x04;
            assert!(read(&damaged).is_err(), "byte {at} changed");
        }
    }

    #[test]
    fn what_a_manifest_makes_its_reader_keep_in_memory_is_bounded() {
        let header = |chunk_bytes: u64| {
            let header = Header { chunk_bytes, ..Header::new(Algorithm::Xxh3, Path::new("set"), 7) };
            [serde_json::to_vec(&header).unwrap(), b"\n".to_vec()].concat()
        };
        for (chunk_bytes, is_read) in
            [(0, false), (1, true), (CHUNK_BYTES_MAX, true), (CHUNK_BYTES_MAX + 1, false)]
        {
            assert_eq!(Reader::new(&*header(chunk_bytes), "m").is_ok(), is_read, "{chunk_bytes}");
        }
        // A line without an end is not read to its end.
        struct Endless(usize);
        impl std::io::Read for Endless {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.0 += buffer.len();
                assert!(self.0 < 256 << 20, "no more is asked for");
                buffer.fill(b' ');
                Ok(buffer.len())
            }
        }
        let mut endless = std::io::BufReader::with_capacity(1 << 20, Endless(0));
        assert!(Reader::new(&mut endless, "m").is_err());
        // The largest file that may be listed fits into a line.
        let digest = Algorithm::Blake3.of(b"").text(Algorithm::Blake3);
        let bytes = FILE_BYTES_MAX.div_ceil(CHUNK_BYTES) as usize * (digest.len() + "\"\",".len());
        assert!(bytes + (1 << 20) < LINE_BYTES_MAX);
    }

    #[test]
    fn no_entry_leads_out_of_the_set_or_through_what_is_no_directory() {
        for path in ["..", "../x", "a/../../x", "/etc/passwd", "a//b", "./a", "a/.", "a/"] {
            assert!(
                read(&written(&[
                    entry("", Kind::Directory),
                    entry("a", Kind::Directory),
                    entry(path, Kind::File)
                ]))
                .is_err(),
                "{path}"
            );
        }
        for second in [Kind::Symlink, Kind::File] {
            assert!(read(&written(&[entry("a", second), entry("a/b", Kind::File)])).is_err());
        }
        assert!(read(&written(&[entry("b", Kind::File), entry("a", Kind::File)])).is_err(), "out of order");
        assert!(read(&written(&[entry("a", Kind::File), entry("a", Kind::File)])).is_err(), "twice");
        let other = Entry { link_to: Some(PathText("../x".into())), digest: None, ..entry("a", Kind::File) };
        assert!(read(&written(&[other])).is_err(), "another name of what lies outside");
        let short = Entry { size: 3 * CHUNK_BYTES, ..entry("a", Kind::File) };
        assert!(read(&written(&[short])).is_err(), "chunks that are not listed");
    }

    #[test]
    fn a_manifest_lists_a_tree_of_thousands_of_levels() {
        const LEVELS: usize = 5_000;
        let entry = |path: &Path| Entry {
            path: PathText(path.to_owned()),
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
        let mut writer =
            Writer::new(Vec::new(), &Header::new(Algorithm::Xxh3, Path::new("deep"), 0)).unwrap();
        let mut path = std::path::PathBuf::new();
        for _ in 0..LEVELS {
            writer.entry(&entry(&path)).unwrap();
            path.push("d");
        }
        let (text, _) = writer.finish().unwrap();
        let mut reader = Reader::new(&text[..], "deep".to_owned()).unwrap();
        let mut listed = 0;
        while reader.next_entry().unwrap().is_some() {
            listed += 1;
        }
        assert_eq!(listed, LEVELS);
    }
}
