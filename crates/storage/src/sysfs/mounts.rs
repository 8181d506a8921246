//! Mounts: `/proc/self/mountinfo` (proc_pid_mountinfo(5)).

use std::path::{Path, PathBuf};

use super::DeviceNumber;

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Identity of the mount, as in `statx`'s `stx_mnt_id` and in fdinfo.
    pub id: u64,
    /// `st_dev` of the files on it; major 0 where no single block device is below (btrfs, overlay, tmpfs, …).
    pub device: DeviceNumber,
    /// The directory of the file system that is mounted; `/` but for bind mounts and subvolumes.
    pub root: PathBuf,
    /// Where.
    pub mount_point: PathBuf,
    /// Options of this mount: `rw,relatime`.
    pub options: String,
    /// Type: `ext4`.
    pub filesystem: String,
    /// Device or other source, as mount(8) was told it.
    pub source: String,
    /// Options of the file system: `rw,discard`.
    pub super_options: String,
}

impl Mount {
    /// The options of mount and file system as mount(8) would list them, each once.
    #[must_use]
    pub fn all_options(&self) -> String {
        let mut seen = Vec::new();
        for option in self.options.split(',').chain(self.super_options.split(',')) {
            // A read-only mount of a writable file system is read-only: the mount's word comes first.
            let opposite = match option {
                "rw" => "ro",
                "ro" => "rw",
                _ => "",
            };
            if !option.is_empty() && !seen.contains(&option) && !seen.contains(&opposite) {
                seen.push(option);
            }
        }
        seen.join(",")
    }

    /// The value of an option: of `upperdir=/a` for `upperdir`.
    #[must_use]
    pub fn option(&self, key: &str) -> Option<&str> {
        self.super_options.split(',').chain(self.options.split(',')).find_map(|option| {
            option.split_once('=').filter(|(name, _)| *name == key).map(|(_, value)| value)
        })
    }

    /// The devices that the mount names: its source (several in bcachefs, `a:b`), and those of logs and
    /// journals that lie elsewhere (xfs(5), ext4(5)).
    pub(crate) fn named_devices(&self) -> Vec<PathBuf> {
        let sources: Vec<&str> = match self.filesystem.as_str() {
            "bcachefs" => self.source.split(':').collect(),
            _ => vec![self.source.as_str()],
        };
        let others = ["logdev", "rtdev", "journal_path", "jdev"].map(|key| self.option(key));
        sources
            .into_iter()
            .chain(others.into_iter().flatten())
            .filter(|name| name.starts_with('/'))
            .map(PathBuf::from)
            .collect()
    }
}

/// Reads mountinfo. Lines that are not as the manual says are left out.
#[must_use]
pub fn parse_mountinfo(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &str) -> Option<Mount> {
    let (head, tail) = line.split_once(" - ")?;
    let mut head = head.split(' ');
    let id = head.next()?.parse().ok()?;
    let _parent = head.next()?;
    let device = head.next()?.parse().ok()?;
    let root = PathBuf::from(unescape(head.next()?));
    let mount_point = PathBuf::from(unescape(head.next()?));
    let options = head.next()?.to_owned();
    // The source may be empty (`mount -t tmpfs '' /x`), which leaves two blanks in a row.
    let mut tail = tail.splitn(3, ' ');
    let filesystem = unescape(tail.next()?);
    let source = unescape(tail.next()?);
    let super_options = unescape(tail.next().unwrap_or(""));
    Some(Mount { id, device, root, mount_point, options, filesystem, source, super_options })
}

/// Undoes the kernel's escapes of blank, tab, newline, backslash and hash: `\040` (seq_path(9)).
pub(crate) fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = (bytes[at] == b'\\').then(|| bytes.get(at + 1..at + 4)).flatten();
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match value {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The mount that holds `path` (absolute, links resolved): the last of those whose mount point is the
/// longest beginning of it, since later mounts cover earlier ones.
pub(crate) fn mount_of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.mount_point))
        .max_by_key(|mount| mount.mount_point.components().count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:44 /sub /data\\040and\\040more ro,noatime shared:1 master:2 - btrfs /dev/sdb1 rw,compress=zstd:3,subvol=/sub
31 27 0:45 / /merged rw - overlay overlay rw,lowerdir=/l1:/l2,upperdir=/up,workdir=/w
32 27 0:46 / /tmp rw - tmpfs  rw,size=4k
33 27 8:1 / /data rw - xfs /dev/sda1 rw,logdev=/dev/sdc
not a line
1 2 x:y / / rw - a b c
";

    #[test]
    fn mountinfo_is_read_line_by_line_and_garbage_left_out() {
        let mounts = parse_mountinfo(TEXT);
        assert_eq!(mounts.len(), 5);
        assert_eq!(mounts[0].device, DeviceNumber { major: 254, minor: 0 });
        assert_eq!(mounts[0].all_options(), "rw,relatime,discard");
        assert_eq!(mounts[1].mount_point, Path::new("/data and more"));
        assert_eq!(mounts[1].all_options(), "ro,noatime,compress=zstd:3,subvol=/sub");
        assert_eq!(mounts[2].option("upperdir"), Some("/up"));
        assert_eq!((mounts[3].source.as_str(), mounts[3].super_options.as_str()), ("", "rw,size=4k"));
        assert_eq!(mounts[4].named_devices(), [PathBuf::from("/dev/sda1"), PathBuf::from("/dev/sdc")]);
    }

    #[test]
    fn a_path_belongs_to_the_deepest_mount_above_it() {
        let mounts = parse_mountinfo(TEXT);
        let found = |path: &str| mount_of(&mounts, Path::new(path)).map(|m| m.filesystem.clone());
        assert_eq!(found("/home/a").as_deref(), Some("ext4"));
        assert_eq!(found("/data/x").as_deref(), Some("xfs"));
        assert_eq!(found("/database").as_deref(), Some("ext4"));
        assert_eq!(found("/data and more/x").as_deref(), Some("btrfs"));
        assert_eq!(found("relative"), None);
    }

    #[test]
    fn escapes_are_undone_and_stray_backslashes_kept() {
        assert_eq!(unescape(r"a\040b\134c"), r"a b\c");
        assert_eq!(unescape(r"a\9\04"), r"a\9\04");
        assert_eq!(unescape(r"\777"), r"\777");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9a-z:/ \\\\,=-]{0,120}|.{0,80}") {
            let _ = parse_mountinfo(&text);
            let _ = unescape(&text);
        }
    }
}
