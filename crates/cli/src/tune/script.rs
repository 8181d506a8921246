//! The script that builds the layout, and the line that mounts it at boot.
//!
//! It is for a node that is going to be set up, so it lays on the drives without a journal; everything on them is lost, and
//! it does nothing until it is told so. Geometry is that of the layout that was measured: `su` and `sw` of XFS,
//! `stride` and `stripe_width` of ext4 (mkfs.xfs(8), mke2fs(8)).

use std::fmt::Write;
use std::path::Path;

use ::layout::LayoutSpec;
use ::layout::spec::{Filesystem, LayoutKind};

use super::parts::{comment, head};
use super::tuning::Tuning;
use crate::sweep::shell_word;

/// The name of the array, the volume group and the file system; XFS takes twelve characters.
const NAME: &str = "flashwright";

/// The script.
pub fn build(tuning: &Tuning, spec: &LayoutSpec, mount: &Path) -> String {
    let drives: Vec<String> =
        spec.drives.iter().map(|drive| shell_word(&drive.display().to_string())).collect();
    let mut text = String::from("#!/bin/bash\n");
    text += &head(tuning, "Builds the layout. EVERYTHING ON THE DRIVES IS LOST.");
    let _ = write!(
        text,
        "set -euo pipefail\ndrives=({})\nif [ \"${{1:-}}\" != --destroy ]; then\n  \
         echo \"this destroys what is on ${{drives[*]}}; say --destroy\" >&2\n  exit 3\nfi\n\n",
        drives.join(" ")
    );
    for name in ["layout", "width", "chunk"] {
        if tuning.settings.contains_key(name) {
            text += &comment(tuning, name);
        }
    }
    text += &layer(spec);
    if let Some(kind) = spec.mounted_filesystem() {
        for name in ["filesystem", "mount_options"] {
            if tuning.settings.contains_key(name) {
                text += &comment(tuning, name);
            }
        }
        text += &filesystems(spec, kind, mount);
    }
    text
}

/// What is built on the drives.
fn layer(spec: &LayoutSpec) -> String {
    let (width, chunk) = (spec.width(), spec.chunk_bytes().unwrap_or_default());
    match spec.kind {
        LayoutKind::MdRaid0 => format!(
            "mdadm --create /dev/md/{NAME} --run --metadata=1.2 --level=0 --force --chunk={} --raid-devices={width} \"${{drives[@]}}\"\n\
             # So that it has this name after a restart: mdadm --detail --scan /dev/md/{NAME} >> /etc/mdadm/mdadm.conf\n",
            chunk >> 10
        ),
        LayoutKind::LvmStripe => format!(
            "vgcreate --yes {NAME} \"${{drives[@]}}\"\n\
             lvcreate --yes --wipesignatures y --stripes {width} --stripesize {}k --extents 100%FREE --name data {NAME}\n",
            chunk >> 10
        ),
        LayoutKind::Stripe => format!(
            "# Striped by the application, through the device spec\n#   {}\n",
            super::tuning::one_line(&spec.to_string())
        ),
        _ => "# The drives are used as they are.\n".to_owned(),
    }
}

/// The devices that bear a file system, each with its label and where it is mounted.
fn places(spec: &LayoutSpec, mount: &Path) -> Vec<(String, String, String)> {
    let mounted = |suffix: &str| shell_word(&format!("{}{suffix}", mount.display()));
    match spec.kind {
        LayoutKind::MdRaid0 => vec![(format!("/dev/md/{NAME}"), NAME.to_owned(), mounted(""))],
        LayoutKind::LvmStripe => vec![(format!("/dev/{NAME}/data"), NAME.to_owned(), mounted(""))],
        LayoutKind::BtrfsRaid0 => vec![("\"${drives[@]}\"".to_owned(), NAME.to_owned(), mounted(""))],
        _ => {
            let each =
                |i: usize| (format!("\"${{drives[{i}]}}\""), format!("flash-{i}"), mounted(&format!("/{i}")));
            (0..spec.width()).map(each).collect()
        }
    }
}

fn filesystems(spec: &LayoutSpec, kind: Filesystem, mount: &Path) -> String {
    let stripe = matches!(spec.kind, LayoutKind::MdRaid0 | LayoutKind::LvmStripe)
        .then(|| (spec.chunk_bytes().unwrap_or_default(), spec.width()));
    let options = spec.mount_options.as_ref().map_or_else(String::new, |o| format!("-o {} ", shell_word(o)));
    let mut text = String::new();
    for (device, label, point) in places(spec, mount) {
        let made = match (kind, stripe) {
            (Filesystem::Xfs, Some((chunk, width))) => {
                format!("mkfs.xfs -f -L {label} -d su={chunk},sw={width}")
            }
            (Filesystem::Xfs, None) => format!("mkfs.xfs -f -L {label}"),
            (Filesystem::Ext4, Some((chunk, width))) => {
                let stride = chunk / 4096;
                let stripe_width = stride * width as u64;
                format!("mkfs.ext4 -F -b 4096 -L {label} -E stride={stride},stripe_width={stripe_width}")
            }
            (Filesystem::Ext4, None) => format!("mkfs.ext4 -F -b 4096 -L {label}"),
            (Filesystem::Btrfs, _) if spec.kind == LayoutKind::BtrfsRaid0 && spec.width() > 1 => {
                format!("mkfs.btrfs -f -L {label} -d raid0 -m raid0")
            }
            (Filesystem::Btrfs, _) => format!("mkfs.btrfs -f -L {label}"),
            (Filesystem::F2fs, _) => format!("mkfs.f2fs -f -l {label}"),
        };
        let _ = write!(
            text,
            "{made} {device}\nudevadm settle\nmkdir -p {point}\nmount -t {} {options}LABEL={label} {point}\n",
            kind.word()
        );
    }
    text
}

/// Lines for /etc/fstab (fstab(5)).
pub fn fstab(tuning: &Tuning, spec: &LayoutSpec, mount: &Path) -> String {
    let mut text = head(tuning, "Lines for /etc/fstab");
    let Some(kind) = spec.mounted_filesystem() else {
        return text + "# The layout has no file system; nothing is mounted.\n";
    };
    for name in ["filesystem", "mount_options"] {
        if tuning.settings.contains_key(name) {
            text += &comment(tuning, name);
        }
    }
    // A machine should start without its flash rather than not at all.
    let options: Vec<&str> = spec.mount_options.as_deref().into_iter().chain(["nofail"]).collect();
    let root = mount.display().to_string();
    let several = !matches!(spec.kind, LayoutKind::MdRaid0 | LayoutKind::LvmStripe | LayoutKind::BtrfsRaid0);
    for (i, (_, label, _)) in places(spec, mount).into_iter().enumerate() {
        let point = if several { format!("{root}/{i}") } else { root.clone() };
        // fstab(5): blanks in a name are written in octal.
        let point =
            point.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012");
        let _ = writeln!(text, "LABEL={label} {point} {} {} 0 0", kind.word(), options.join(","));
    }
    text
}
