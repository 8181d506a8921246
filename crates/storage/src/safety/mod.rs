//! What must not be written.
//!
//! Nothing is written to a device that is
//!
//! - **mounted**, itself, a partition of it or the disk it is a part of; as the source of a mount, as a member of
//!   a btrfs with several devices, or as the log of another;
//! - **swapped to**;
//! - **held**: by md, dm, bcache (sysfs `holders`), or as what is behind a loop device;
//! - **open elsewhere**: for writing by another process, by the character device of its namespace as well, or exclusively
//!   by anyone (`O_EXCL`);
//! - **signed**: a known file system, partition table, RAID member or other label lies on it.
//!
//! The first four are facts about now, and nothing lifts them. A signature is a fact about the past;
//! naming that very device in `--destroy` gives its contents up. What a device is called does not matter:
//! devices are compared by number, so `/dev/disk/by-id/…` and `/dev/sda` are one.
//!
//! Looking first is for the sake of the message. What makes it safe is the exclusive claim that
//! [`crate::device`] takes in between two looks, which the kernel grants only while nobody mounts,
//! swaps or stacks on the device, in any mount namespace.

mod openers;
mod signature;
mod users;

use std::fmt;
use std::path::{Path, PathBuf};

pub(crate) use signature::is_member;
pub use signature::{
    GRAPH, LABEL_AT, LABEL_BYTES, LABEL_MAGIC, LABEL_NAME, MEMBER, Signature, magic_of, signatures,
    signatures_in,
};
pub(crate) use users::file_obstacles;
pub use users::{users, users_of_each};

/// One reason not to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// A file system on it is mounted.
    Mounted {
        /// The device that is mounted: the target, a partition or the disk of it.
        device: String,
        /// Where.
        mount_point: String,
        /// Its type.
        filesystem: String,
    },
    /// The kernel swaps to it.
    Swap {
        /// The device or file that is swapped to.
        device: String,
    },
    /// Another device is made of it.
    Held {
        /// The device that is held: the target, a partition or the disk of it.
        device: String,
        /// Who holds it: `/dev/dm-0 (LVM vg-lv)`.
        holder: String,
        /// Where the holder, or one above it, is mounted.
        mount_point: Option<String>,
    },
    /// It is what is behind a loop device.
    Loop {
        /// The device or file.
        device: String,
        /// The loop device.
        holder: String,
    },
    /// A process has it open for writing.
    Open {
        /// The device that is open.
        device: String,
        /// The process.
        pid: u32,
        /// Its name.
        command: String,
    },
    /// Somebody whom we cannot see has it exclusively.
    Claimed,
    /// Something known lies on it.
    Signature(Signature),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted { device, mount_point, filesystem } => {
                write!(f, "{device} is mounted on {mount_point} ({filesystem})")
            }
            Self::Swap { device } => write!(f, "{device} is swapped to"),
            Self::Held { device, holder, mount_point: None } => {
                write!(f, "{device} is held by {holder}")
            }
            Self::Held { device, holder, mount_point: Some(mount_point) } => {
                write!(f, "{device} is held by {holder}, which is mounted on {mount_point}")
            }
            Self::Loop { device, holder } => write!(f, "{device} is what is behind {holder}"),
            Self::Open { device, pid, command } => {
                write!(f, "{device} is open in process {pid} ({command})")
            }
            Self::Claimed => f.write_str(
                "the kernel or another process has claimed it exclusively (a mount in another \
                 namespace, ZFS, or a device being set up)",
            ),
            Self::Signature(signature) => write!(f, "it bears the signature of an earlier use: {signature}"),
        }
    }
}

/// Writing was refused. The message names the target and whatever stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("refusing to write to {}: {}", target.display(), list(obstacles))]
pub struct Refusal {
    /// What was to be written, as it was named.
    pub target: PathBuf,
    /// Why not; at least one.
    pub obstacles: Vec<Obstacle>,
}

/// The most obstacles that a message names.
const NAMED: usize = 3;

fn list(obstacles: &[Obstacle]) -> String {
    let named: Vec<String> = obstacles.iter().take(NAMED).map(ToString::to_string).collect();
    let text = named.join("; ");
    match obstacles.len().saturating_sub(NAMED) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}

impl Refusal {
    pub(crate) fn new(target: &Path, obstacles: Vec<Obstacle>) -> Self {
        Self { target: target.to_owned(), obstacles }
    }

    /// Whether nothing stands in the way but open descriptors, which may be closed in a moment.
    pub(crate) fn may_pass(&self) -> bool {
        self.obstacles.iter().all(|o| matches!(o, Obstacle::Open { .. } | Obstacle::Claimed))
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let target = self.target.display();
        Some(match self.obstacles.first()? {
            Obstacle::Signature(_) => {
                format!("if its contents may be lost add --destroy {target}")
            }
            Obstacle::Mounted { .. } => {
                "measure a file on it (file:PATH?size=1g), or unmount it first; --destroy does not \
                 lift this"
                    .to_owned()
            }
            Obstacle::Swap { device } => format!("swapoff {device} first, or name another target"),
            Obstacle::Held { holder, .. } => {
                format!("take {holder} apart first, or name another target; --destroy does not lift this")
            }
            Obstacle::Loop { holder, .. } => {
                format!("losetup --detach {holder} first, or name another target")
            }
            Obstacle::Open { pid, .. } => format!("end process {pid} first, or name another target"),
            Obstacle::Claimed => "find its user with lsblk, zpool status or fuser".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_target_and_its_holders() {
        let mounted = |n: u32| Obstacle::Mounted {
            device: format!("/dev/vda{n}"),
            mount_point: format!("/m{n}"),
            filesystem: "ext4".to_owned(),
        };
        let refusal = Refusal::new(Path::new("/dev/vda"), (1..=5).map(mounted).collect());
        assert_eq!(
            refusal.to_string(),
            "refusing to write to /dev/vda: /dev/vda1 is mounted on /m1 (ext4); \
             /dev/vda2 is mounted on /m2 (ext4); /dev/vda3 is mounted on /m3 (ext4); and 2 more"
        );
        assert!(refusal.hint().unwrap().contains("unmount"));
    }

    #[test]
    fn only_a_signature_is_lifted_by_destroy_and_the_hints_say_so() {
        let hint = |obstacle| Refusal::new(Path::new("/dev/x"), vec![obstacle]).hint().unwrap();
        let signature = Signature { kind: "xfs".into(), offset: 0, label: None };
        assert!(hint(Obstacle::Signature(signature)).contains("--destroy /dev/x"));
        let swap = Obstacle::Swap { device: "/dev/x".to_owned() };
        assert!(!hint(swap).contains("--destroy"));
    }
}
