//! The state of a source in 128 bits: two walks that find the same names with the same identities give the same, in
//! whatever order they find them.
//!
//! It is the sum, modulo 2^128, of one XXH3 for each entry, over its path, kind, inode, size, time of modification and
//! time of change. What writes to a file, replaces it, or changes its mode moves one of them; what appears or goes
//! changes the sum. Device numbers are left out, because they may be others after the machine has started again.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::manifest::Kind;

/// What tells one state of a source file from another. A file that was written to since has another change time;
/// one that was replaced has another inode. The device's number is left out: it may change when the machine starts
/// again, and everything is looked up beneath one root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    /// Inode.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Modification time, seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Change time.
    pub ctime: (i64, u32),
    /// Names that it has.
    pub nlink: u32,
}

impl Identity {
    /// Of what statx(2) said. The size of what is no file means nothing: a directory's moves with its entries.
    #[must_use]
    pub fn of(stat: &rustix::fs::Statx) -> Self {
        use rustix::fs::FileType;
        let is_file = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
        Self {
            ino: stat.stx_ino,
            size: if is_file { stat.stx_size } else { 0 },
            mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            ctime: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            nlink: stat.stx_nlink,
        }
    }

    /// How `later` differs; none if it is the same.
    #[must_use]
    pub fn change(&self, later: &Self) -> Option<&'static str> {
        if self.ino != later.ino {
            Some("it was replaced")
        } else if self.size != later.size {
            Some("its size is another")
        } else if self.mtime != later.mtime {
            Some("its modification time is another")
        } else if self.ctime != later.ctime {
            Some("its change time is another")
        } else {
            None
        }
    }
}

/// See the module's argument. The default is that of no entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// Adds an entry. Where a list says what is in a source (`listed`), other files may come and go beside those that
    /// it names, so the times of directories do not count.
    pub fn add(&mut self, path: &Path, kind: Kind, identity: &Identity, listed: bool) {
        let Identity { ino, size, mtime, ctime, .. } = *identity;
        let (mtime, ctime) =
            if listed && kind == Kind::Directory { Default::default() } else { (mtime, ctime) };
        let path = path.as_os_str().as_bytes();
        let mut bytes = Vec::with_capacity(path.len() + 48);
        bytes.extend_from_slice(path);
        // A path has no zero byte, so what follows it is not taken for its end.
        bytes.extend_from_slice(&[0, kind as u8]);
        for number in [ino, size, mtime.0 as u64, u64::from(mtime.1), ctime.0 as u64, u64::from(ctime.1)] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.0 = self.0.wrapping_add(xxhash_rust::xxh3::xxh3_128(&bytes));
    }

    /// Of something that has a digest itself: a set in an object store, by that of its manifest.
    #[must_use]
    pub fn of_digest(digest: &crate::Digest) -> Self {
        Self(xxhash_rust::xxh3::xxh3_128(&digest.0))
    }

    /// As the journal stores it.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// What [`Self::to_bytes`] made.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self(u128::from_be_bytes(bytes)))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:?}"))
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Fingerprint {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Fingerprint".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "pattern": "^[0-9a-f]{32}$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(entries: &[(&str, Kind, Identity)], listed: bool) -> Fingerprint {
        let mut fingerprint = Fingerprint::default();
        for (path, kind, identity) in entries {
            fingerprint.add(Path::new(path), *kind, identity, listed);
        }
        fingerprint
    }

    #[test]
    fn any_difference_of_an_entry_changes_the_fingerprint_and_their_order_does_not() {
        let a = Identity { ino: 1, size: 2, mtime: (3, 4), ctime: (5, 6), nlink: 1 };
        let b = Identity { ino: 7, ..a };
        let all = of(&[("a", Kind::File, a), ("b", Kind::File, b)], false);
        assert_eq!(all, of(&[("b", Kind::File, b), ("a", Kind::File, a)], false));
        let others = [
            of(&[("a", Kind::File, b), ("b", Kind::File, a)], false),
            of(&[("a", Kind::File, a)], false),
            of(&[("a", Kind::File, a), ("b", Kind::File, b), ("c", Kind::File, b)], false),
            of(&[("a", Kind::Symlink, a), ("b", Kind::File, b)], false),
            of(&[("a", Kind::File, Identity { size: 3, ..a }), ("b", Kind::File, b)], false),
            of(&[("a", Kind::File, Identity { mtime: (3, 5), ..a }), ("b", Kind::File, b)], false),
            of(&[("a", Kind::File, Identity { ctime: (5, 7), ..a }), ("b", Kind::File, b)], false),
        ];
        assert!(others.iter().all(|other| *other != all), "{others:?}");
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&text).unwrap(), all);
        assert_eq!(Fingerprint::from_slice(&all.to_bytes()), Some(all));
    }

    #[test]
    fn only_the_times_of_directories_are_left_out_where_a_list_says_what_counts() {
        let a = Identity { ino: 1, size: 0, mtime: (3, 4), ctime: (5, 6), nlink: 1 };
        let later = Identity { mtime: (9, 9), ctime: (9, 9), ..a };
        assert_eq!(of(&[("d", Kind::Directory, a)], true), of(&[("d", Kind::Directory, later)], true));
        assert_ne!(of(&[("d", Kind::File, a)], true), of(&[("d", Kind::File, later)], true));
        assert_ne!(of(&[("d", Kind::Directory, a)], false), of(&[("d", Kind::Directory, later)], false));
    }
}
