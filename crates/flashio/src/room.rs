//! The two tiers: where they are, and whether the work fits.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stage::mounts::Mount;
use stage::names::PathText;

use crate::error::FlashioError;

/// Room beside checkpoints, for journals, manifests and directories: bytes.
const BESIDE_BYTES: u64 = 32 << 20;

/// A tier.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TierRoom {
    /// Its directory.
    pub path: PathText,
    /// The type of its file system, where it is known.
    pub file_system: Option<String>,
    /// What is mounted there.
    pub source: Option<String>,
    /// It is in memory: nothing is durable there.
    pub is_in_memory: bool,
    /// Bytes free before the run.
    pub free_bytes: u64,
    #[serde(skip)]
    device: u64,
    #[serde(skip)]
    inode: u64,
}

impl TierRoom {
    fn of(flag: &str, path: &Path) -> Result<Self, FlashioError> {
        let invalid = |error: &io::Error| FlashioError::Invalid {
            flag: format!("{flag}={}", path.display()),
            problem: error.to_string(),
            hint: "name a directory that is there and may be written to",
        };
        let facts = std::fs::metadata(path).map_err(|error| invalid(&error))?;
        if !facts.is_dir() {
            return Err(invalid(&io::ErrorKind::NotADirectory.into()));
        }
        let free = rustix::fs::statvfs(path).map_err(|error| invalid(&error.into()))?;
        let mount = Mount::nearest(path);
        Ok(Self {
            path: PathText(std::path::absolute(path).map_err(|error| invalid(&error))?),
            file_system: mount.as_ref().map(|mount| mount.kind.clone()),
            source: mount.as_ref().map(|mount| mount.source.0.display().to_string()),
            is_in_memory: mount.is_some_and(|mount| mount.is_in_memory()),
            free_bytes: free.f_bavail * free.f_frsize,
            device: facts.dev(),
            inode: facts.ino(),
        })
    }
}

/// Both tiers, fast and slow, with what bears on comparing them.
#[derive(Debug, Clone)]
pub struct Tiers {
    /// The fast one.
    pub fast: TierRoom,
    /// The slow one.
    pub slow: TierRoom,
    /// What a reader of the figures has to know.
    pub notes: Vec<String>,
}

/// Looks at both tiers, on each of which a leg leaves at most `bytes`.
///
/// # Errors
/// [`FlashioError::Invalid`] if one is no directory, both are one, or the bytes do not fit.
pub fn tiers(fast: &Path, slow: &Path, bytes: u64) -> Result<Tiers, FlashioError> {
    let (fast, slow) = (TierRoom::of("fast", fast)?, TierRoom::of("slow", slow)?);
    if (fast.device, fast.inode) == (slow.device, slow.inode) {
        return Err(FlashioError::Invalid {
            flag: format!("slow={}", slow.path.0.display()),
            problem: "is the directory of the fast tier".to_owned(),
            hint: "name two directories, on different devices",
        });
    }
    let is_one_file_system = fast.device == slow.device;
    let needed = bytes.saturating_mul(if is_one_file_system { 2 } else { 1 }).saturating_add(BESIDE_BYTES);
    for (flag, tier) in [("fast", &fast), ("slow", &slow)] {
        if tier.free_bytes < needed {
            let (needed, free) = (units::bytes(needed), units::bytes(tier.free_bytes));
            return Err(FlashioError::Invalid {
                flag: format!("{flag}={}", tier.path.0.display()),
                problem: format!("{needed} are needed there, and {free} are free"),
                hint: "a smaller --checkpoint-size, fewer --tasks or --checkpoints, or another directory",
            });
        }
    }
    let mut notes = Vec::new();
    if is_one_file_system {
        notes.push("both tiers are on one file system: the three ways share what it can do".to_owned());
    }
    for (name, tier) in [("fast", &fast), ("slow", &slow)] {
        if tier.is_in_memory {
            let kind = tier.file_system.as_deref().unwrap_or_default();
            notes.push(format!("the {name} tier is in memory ({kind}): nothing is durable there"));
        }
    }
    Ok(Tiers { fast, slow, notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_directory_under_two_names_and_too_little_room_are_refused_with_the_flag() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        std::fs::create_dir(&one).unwrap();
        std::os::unix::fs::symlink(&one, &other).unwrap();
        let error = tiers(&one, &other, 1).unwrap_err().to_string();
        assert!(
            error.starts_with("--slow=") && error.ends_with("is the directory of the fast tier"),
            "{error}"
        );
        std::fs::remove_file(&other).unwrap();
        let error = tiers(&one, &other, 1).unwrap_err().to_string();
        assert!(error.starts_with("--slow=") && error.contains("No such file"), "{error}");
        std::fs::create_dir(&other).unwrap();
        let error = tiers(&one, &other, 1 << 60).unwrap_err().to_string();
        assert!(
            error.starts_with("--fast=") && error.contains("2 EiB") || error.contains("PiB are needed"),
            "{error}"
        );
        let right = tiers(&one, &other, 4096).unwrap();
        assert!(right.notes[0].contains("one file system"), "{:?}", right.notes);
    }
}
