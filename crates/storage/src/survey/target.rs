//! What a given path stands on.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::device::sys::{self, Status};
use crate::extents::{WrittenState, written_state};
use crate::safety;
use crate::sysfs::{Backing, DeviceNumber, Sysfs};

/// A path, and what it stands on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SurveyedTarget {
    /// As it was given.
    pub path: String,
    /// `file`, `directory`, `block`, `other`.
    pub kind: String,
    /// Bytes of a file.
    pub size_bytes: Option<u64>,
    /// File system, mount and devices.
    pub backing: Backing,
    /// Bytes free to this user on the file system.
    pub free_bytes: Option<u64>,
    /// Bytes of the file system.
    pub capacity_bytes: Option<u64>,
    /// Direct I/O on files there; none where nobody says.
    pub direct: Option<DirectIo>,
    /// What of a file was ever written.
    pub written: Option<WrittenState>,
    /// Why a block device may not be written just now, one sentence each; empty where nothing stands in the way but
    /// perhaps a signature.
    pub in_use: Vec<String>,
}

/// What direct I/O asks of requests (statx(2), STATX_DIOALIGN).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectIo {
    /// Whether there is any.
    pub supported: bool,
    /// Alignment of memory, bytes.
    pub memory_alignment: u32,
    /// Alignment of offsets and lengths, bytes.
    pub offset_alignment: u32,
}

/// Looks at one path.
pub(super) fn look_at(system: &Sysfs, path: &Path) -> io::Result<SurveyedTarget> {
    let status = sys::status_of_path(path)?;
    let kind = match status.file_type() {
        libc::S_IFREG => "file",
        libc::S_IFDIR => "directory",
        libc::S_IFBLK => "block",
        _ => "other",
    };
    let on_filesystem = matches!(kind, "file" | "directory");
    let space = sys::space(path).ok().filter(|_| on_filesystem);
    Ok(SurveyedTarget {
        path: path.display().to_string(),
        kind: kind.to_owned(),
        size_bytes: (kind == "file").then_some(status.size),
        backing: system.backing(path)?,
        free_bytes: space.map(|(free, _)| free),
        capacity_bytes: space.map(|(_, all)| all),
        direct: direct(path, &status),
        written: (kind == "file").then(|| written(path)).flatten(),
        in_use: if kind == "block" { in_use(system, &status) } else { Vec::new() },
    })
}

/// What direct I/O asks on this file, or on a file made in this directory, which has no name and so is gone when
/// it is closed (open(2), O_TMPFILE).
fn direct(path: &Path, status: &Status) -> Option<DirectIo> {
    let (memory_alignment, offset_alignment) = if status.file_type() == libc::S_IFDIR {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_TMPFILE)
            .open(path)
            .ok()?;
        sys::status(file.as_fd()).ok()?.direct?
    } else {
        status.direct?
    };
    let supported = memory_alignment != 0 && offset_alignment != 0;
    Some(DirectIo { supported, memory_alignment, offset_alignment })
}

fn written(path: &Path) -> Option<WrittenState> {
    let file = OpenOptions::new().read(true).open(path).ok()?;
    written_state(file.as_fd(), 0, u64::MAX).ok()
}

fn in_use(system: &Sysfs, status: &Status) -> Vec<String> {
    let users = safety::users(system, DeviceNumber::from(status.special)).unwrap_or_default();
    users.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_and_a_file_in_it_stand_on_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        std::fs::write(&path, vec![7; 8192]).unwrap();
        let system = Sysfs::host();
        let above = look_at(&system, directory.path()).unwrap();
        let file = look_at(&system, &path).unwrap();
        assert_eq!((above.kind.as_str(), file.kind.as_str()), ("directory", "file"));
        assert_eq!(above.backing, file.backing);
        assert_eq!(file.size_bytes, Some(8192));
        assert!(file.written.unwrap().never_written() == 0);
        assert!(above.free_bytes <= above.capacity_bytes);
        assert_eq!(above.direct, file.direct);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no debris");
    }
}
