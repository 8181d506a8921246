//! Which mount a place is on, so that a job that goes on later finds the same one there.
//!
//! A tier that is not mounted leaves an empty directory, the mount point, on the file system above it: a job that went on
//! then would publish there, and a move would find its source gone. INTENT holds the mount of the nearest existing
//! directory on the way to the source and to the destination; whoever goes on with the job compares.
//!
//! The number of a device (`st_dev`) may be another after a restart, and of a network file system it is another after each
//! mount. What stays is the file system's own UUID, where it can be had without privileges (ext4 and btrfs give it in
//! statfs(2), of others udev knows it), and else, as in a container without udev, when the mount's root was made (statx(2),
//! `stx_btime`), and else what was mounted: its source. The path within it, the mount point and the type have to be the same
//! in any case.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{RETRY, StageError, shown};
use crate::fault::{Check, enforced};
use crate::fs_kind;
use crate::names::PathText;
use crate::spec::{JobSpec, Place, Verb};

/// What is mounted, and where: a line of `/proc/self/mountinfo`, proc(5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The mount point.
    pub point: PathText,
    /// The type of the file system.
    pub kind: String,
    /// What is mounted: a device, an export, a word.
    pub source: PathText,
    /// The directory within it.
    pub root: PathText,
    /// The file system's own UUID, or what it makes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// When the mount's root was made, nanoseconds since 1970, where the file system keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<i64>,
}

impl Mount {
    /// Is it in memory? What is there lasts until it is unmounted, or the host stops. Memory behind another file system is
    /// not seen: the upper directory of an overlay, the export of another host, a block device of RAM.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        matches!(&*self.kind, "tmpfs" | "ramfs" | "devtmpfs" | "rootfs")
    }

    /// Of a path, or of the nearest directory above it that is there. None where `/proc` does not say.
    #[must_use]
    pub fn nearest(path: &Path) -> Option<Self> {
        for above in path.ancestors() {
            match open(above, above == path) {
                Ok(file) => return Self::of(file.as_fd()),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(_) => return None,
            }
        }
        None
    }

    fn of(file: BorrowedFd<'_>) -> Option<Self> {
        let (mut mount, device) = parse(&fs_kind::mount_line(file)?)?;
        mount.uuid = uuid(file, &mount, &device);
        // Others make the root's time up when they are mounted (exfat), or have none (vfat).
        let keeps_birth = matches!(&*mount.kind, "xfs" | "f2fs" | "bcachefs" | "tmpfs");
        mount.born = if keeps_birth { born(file, &mount.point.0) } else { None };
        Some(mount)
    }

    /// Is it the same?
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let same = match (&self.uuid, &other.uuid, self.born, other.born) {
            (Some(one), Some(other), ..) => one == other,
            (.., Some(one), Some(other)) => one == other,
            _ => self.source == other.source,
        };
        same && (&self.point, &self.kind, &self.root) == (&other.point, &other.kind, &other.root)
    }
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { point, kind, source, root, uuid, born } = self;
        write!(f, "{kind} of {}", shown(&source.0))?;
        if root.0 != Path::new("/") {
            write!(f, " ({})", shown(&root.0))?;
        }
        write!(f, " at {}", shown(&point.0))?;
        match (uuid, born) {
            (Some(uuid), _) => write!(f, ", {uuid}"),
            (None, Some(born)) => {
                write!(f, ", made {}.{:09} s after 1970", born / 1_000_000_000, born % 1_000_000_000)
            }
            (None, None) => Ok(()),
        }
    }
}

/// Would what is on `from` be lost if a copy of it on `to` were the only one? If so, what `to` is, in words: it is in memory,
/// and `from` is not.
#[must_use]
pub fn is_lost_with(from: Option<&Mount>, to: Option<&Mount>) -> Option<String> {
    let to = to.filter(|to| to.is_in_memory() && enforced(Check::InMemory))?;
    let lasts = !from.is_some_and(Mount::is_in_memory);
    lasts.then(|| in_memory(to))
}

fn in_memory(mount: &Mount) -> String {
    format!("is in memory ({} at {})", mount.kind, shown(&mount.point.0))
}

/// Refuses a move after which the one copy would be in memory.
///
/// # Errors
/// [`StageError::Refused`].
pub fn check_lasting(spec: &JobSpec, [from, to]: [Option<&Mount>; 2]) -> Result<(), StageError> {
    match is_lost_with(from, to).filter(|_| spec.verb == Verb::Move) {
        Some(how) => Err(StageError::refused(
            format!("{}: {how}, and its source is not: a restart would lose it", spec.destination.shown()),
            "copy it instead: flashwright stage cp; or name a destination on a disk",
        )),
        None => Ok(()),
    }
}

/// Refuses what a semaphore asks for if its copy would be in memory: a semaphore is removed once the copy is durable, and
/// this one never would be.
///
/// # Errors
/// [`StageError::Refused`].
pub fn check_semaphore(spec: &JobSpec, to: Option<&Mount>) -> Result<(), StageError> {
    let asked_for = spec.options.semaphore.is_some();
    check_durable(&spec.destination, to.filter(|_| asked_for), "a semaphore asks for a durable copy")
}

/// Refuses a destination in memory where `why` the copy has to be durable.
///
/// # Errors
/// [`StageError::Refused`].
pub fn check_durable(place: &Place, to: Option<&Mount>, why: &str) -> Result<(), StageError> {
    match to.filter(|to| to.is_in_memory() && enforced(Check::InMemory)) {
        Some(to) => Err(StageError::refused(
            format!("{}: {}, and {why}", place.shown(), in_memory(to)),
            "name a destination on a disk",
        )),
        None => Ok(()),
    }
}

/// Refuses to work where the table of mounts cannot be read, as where /proc is not mounted: whether the place is the one that was
/// accepted, and whether it is in memory, would be taken for right.
///
/// # Errors
/// [`StageError::Refused`].
pub fn check_known() -> Result<(), StageError> {
    const TABLE: &str = "/proc/self/mountinfo";
    match std::fs::File::open(TABLE) {
        Err(error) if enforced(Check::Mount) => Err(StageError::refused(
            format!("{TABLE}: {error}, so that what is mounted where, and what is in memory, is not known"),
            "mount /proc",
        )),
        _ => Ok(()),
    }
}

/// Refuses a place that is on another mount than when the job was accepted.
///
/// # Errors
/// [`StageError::Refused`]: what was expected, what is there, how to go on.
pub fn check(path: &Path, expected: Option<&Mount>) -> Result<(), StageError> {
    let (Some(expected), Some(there)) = (expected, Mount::nearest(path)) else { return Ok(()) };
    if expected.is(&there) || !enforced(Check::Mount) {
        return Ok(());
    }
    Err(StageError::refused(
        format!("{}: was on {expected} when the job was accepted, and is on {there} now", shown(path)),
        format!(
            "mount what was there, then: {RETRY}. If it has moved for good, cancel this job and ask for it again"
        ),
    ))
}

/// A mount point at `name` in an open directory, or below it.
pub fn at_or_below(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<PathBuf>> {
    let top = path_of(directory)?.join(name);
    first(|point| point.starts_with(&top))
}

/// A mount point below an open directory.
pub fn below(directory: BorrowedFd<'_>) -> io::Result<Option<PathBuf>> {
    let top = path_of(directory)?;
    first(|point| point != top && point.starts_with(&top))
}

fn path_of(directory: BorrowedFd<'_>) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

fn first(is_wanted: impl Fn(&Path) -> bool) -> io::Result<Option<PathBuf>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    let mut points = table.split(|byte| *byte == b'\n').filter_map(parse).map(|(mount, _)| mount.point.0);
    Ok(points.find(|point| is_wanted(point)).filter(|_| enforced(Check::InnerMounts)))
}

/// A directory is opened by what is below it, which mounts what is mounted on demand (autofs(5)).
fn open(path: &Path, last: bool) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::open(path.join("."), flags | OFlags::DIRECTORY, Mode::empty()) {
        Err(Errno::NOTDIR) if last => rustix::fs::open(path, flags | OFlags::NOFOLLOW, Mode::empty()),
        opened => opened,
    }
}

/// A line of mountinfo, and the numbers of its device.
fn parse(line: &[u8]) -> Option<(Mount, String)> {
    let mut fields = line.split(|byte| *byte == b' ').skip(2);
    let device = String::from_utf8_lossy(fields.next()?).into_owned();
    let (root, point) = (path(fields.next()?), path(fields.next()?));
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    Some((Mount { point, kind, source: path(fields.next()?), root, uuid: None, born: None }, device))
}

/// Spaces, tabs, newlines and backslashes are three octal digits there.
fn path(field: &[u8]) -> PathText {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *byte == b'\\');
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    PathText(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

/// When the root was made of the mount that `file` is on. None where that is not kept, where another mount hides its point,
/// or where the caller may not look at it.
fn born(file: BorrowedFd<'_>, point: &Path) -> Option<i64> {
    let wanted = StatxFlags::BTIME | StatxFlags::MNT_ID;
    let root = open(point, true).ok()?;
    let of = |file: BorrowedFd<'_>| rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted).ok();
    let (here, root) = (of(file)?, of(root.as_fd())?);
    let told = StatxFlags::from_bits_retain(here.stx_mask & root.stx_mask);
    let is_root = told.contains(wanted) && here.stx_mnt_id == root.stx_mnt_id;
    let (s, ns) = (root.stx_btime.tv_sec, i64::from(root.stx_btime.tv_nsec));
    is_root.then(|| s.saturating_mul(1_000_000_000).saturating_add(ns))
}

fn uuid(file: BorrowedFd<'_>, mount: &Mount, device: &str) -> Option<String> {
    if matches!(&*mount.kind, "ext2" | "ext3" | "ext4" | "btrfs") {
        let id = rustix::fs::fstatvfs(file).ok()?.f_fsid;
        return (id != 0).then(|| format!("fsid {id:016x}"));
    }
    // The links are udev's, each to the device that the file system is on.
    let number = device
        .split_once(':')
        .and_then(|(major, minor)| Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?)));
    let links = std::fs::read_dir("/dev/disk/by-uuid").ok()?.flatten();
    let is_it = |link: &std::fs::DirEntry| {
        std::fs::metadata(link.path()).is_ok_and(|facts| Some(facts.rdev()) == number)
    };
    let found = links.into_iter().find(is_it)?;
    Some(format!("UUID {}", String::from_utf8_lossy(found.file_name().as_bytes())))
}

/// [`Mount::nearest`] as INTENT has it.
#[must_use]
pub fn of_place(place: &Place, destination: bool) -> Option<Mount> {
    let path = place.local_path()?;
    Mount::nearest(if destination { path.parent()? } else { &path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read_with_its_escapes() {
        let line =
            br"36 35 98:7 /of it /mnt/a\040b\134 rw,noatime master:1 - nfs4 host:/export\011x rw,vers=4.2";
        let line: Vec<u8> = line.to_vec();
        let line = String::from_utf8(line).unwrap().replace("/of it", "/of\\040it").into_bytes();
        let (mount, device) = parse(&line).unwrap();
        assert_eq!(mount.point.0, Path::new("/mnt/a b\\"));
        assert_eq!(mount.root.0, Path::new("/of it"));
        assert_eq!(mount.source.0, Path::new("host:/export\tx"));
        assert_eq!((&*mount.kind, &*device), ("nfs4", "98:7"));
        assert!(parse(b"36 35 98:7 /").is_none());
    }

    #[test]
    fn a_mount_is_told_by_its_uuid_or_else_by_its_source_and_always_by_its_place() {
        let mount = |point: &str, source: &str, uuid: Option<&str>| Mount {
            point: PathText(point.into()),
            kind: "xfs".to_owned(),
            source: PathText(source.into()),
            root: PathText("/".into()),
            uuid: uuid.map(str::to_owned),
            born: None,
        };
        let one = mount("/slow", "/dev/sdb", Some("1"));
        assert!(one.is(&mount("/slow", "/dev/sdc", Some("1"))), "drives may be found in another order");
        assert!(!one.is(&mount("/slow", "/dev/sdb", Some("2"))));
        assert!(one.is(&mount("/slow", "/dev/sdb", None)));
        assert!(!one.is(&mount("/slow", "/dev/sdc", None)));
        assert!(!one.is(&mount("/", "/dev/sdb", Some("1"))));
        let born = |source, born| Mount { born: Some(born), ..mount("/slow", source, None) };
        assert!(born("/dev/loop0", 7).is(&born("/dev/loop1", 7)));
        assert!(!born("/dev/loop0", 7).is(&born("/dev/loop0", 8)), "another file system on the same device");
        assert!(born("/dev/loop0", 7).is(&mount("/slow", "/dev/loop0", None)));
    }

    #[test]
    fn the_mount_of_what_is_not_there_is_that_of_the_nearest_directory_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let here = Mount::nearest(folder.path()).expect("/proc is there");
        assert_eq!(Mount::nearest(&folder.path().join("a/b/c")), Some(here.clone()));
        std::fs::write(folder.path().join("file"), b"").unwrap();
        assert_eq!(Mount::nearest(&folder.path().join("file")), Some(here));
        let proc = Mount::nearest(Path::new("/proc/self")).expect("/proc is there");
        assert_eq!((&*proc.kind, proc.point.0.as_path()), ("proc", Path::new("/proc")));
    }
}
