//! Work that the machine does on the drives of its own accord while a run is under way: md resync,
//! btrfs balance, ext4 lazy initialisation, trims and scrubs.
//!
//! A hit voids the run (`W-BACKGROUND-WORK`), so a hit must be ours: each finding is tied to the
//! drives below the target by what the kernel or the command line says, and what cannot be tied to
//! them is not reported. Three sources, read before and after the run, and the first two once a second within it:
//!
//! 1. `/proc/mdstat`: an array under resync, recovery, check or reshape, with its members;
//! 2. `/sys/fs/btrfs/UUID/exclusive_operation`: balance, device replace, resize;
//! 3. `/proc/PID/comm`: `ext4lazyinit` (a kernel thread that lives only while it has work),
//!    `fstrim`, `btrfs … scrub`, `xfs_scrub`, `xfs_fsr`, `e4defrag`, `blkdiscard`, with the paths on
//!    their command lines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use storage::sysfs::Sysfs;

/// The drives and mounts whose background work matters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ours {
    /// Kernel names of every device below the target, whole disks and partitions.
    pub devices: BTreeSet<String>,
    /// Mounts of file systems on those drives: mount point, then type.
    pub mounts: BTreeMap<String, String>,
    /// Whether any ext4 file system is mounted on other drives.
    pub ext4_elsewhere: bool,
    /// UUIDs of the btrfs file systems on those drives.
    pub btrfs: BTreeSet<String>,
}

/// One piece of background work, in words.
pub type Finding = String;

/// Everything under way on our drives now.
#[must_use]
pub fn look(sysfs: &Sysfs, ours: &Ours) -> BTreeSet<Finding> {
    let mut found = by_kernel(sysfs, ours);
    found.extend(processes(sysfs, ours));
    found
}

/// The part of it that the kernel does by itself: two or three small files, which can be read while a run is under way.
#[must_use]
pub fn by_kernel(sysfs: &Sysfs, ours: &Ours) -> BTreeSet<Finding> {
    let mut found = BTreeSet::new();
    if let Some(text) = sysfs.text("/proc/mdstat") {
        found.extend(mdstat(&text, &ours.devices));
    }
    for uuid in &ours.btrfs {
        let file = format!("/sys/fs/btrfs/{uuid}/exclusive_operation");
        if let Some(operation) = sysfs.text(file).filter(|operation| operation != "none") {
            found.insert(format!("btrfs {operation} on file system {uuid}"));
        }
    }
    found
}

/// Arrays in `/proc/mdstat` that are below the target, or share a drive with it, and are being
/// resynced, recovered, checked or reshaped.
fn mdstat(text: &str, devices: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut array: Option<(&str, bool)> = None;
    for line in text.lines() {
        if let Some((name, rest)) = line.split_once(" : ").filter(|(name, _)| !name.starts_with(' ')) {
            let mut members = rest.split_ascii_whitespace().filter_map(|word| Some(word.split_once('[')?.0));
            let shared = devices.contains(name)
                || members.any(|member| devices.iter().any(|device| same_drive(member, device)));
            array = Some((name, shared));
        } else if let Some((name, true)) = array {
            let kinds = ["resync", "recovery", "reshape", "check", "repair"];
            let under_way = kinds.into_iter().find(|kind| line.contains(&format!("{kind} =")));
            if let Some(kind) = under_way {
                let progress = line.split_ascii_whitespace().find(|word| word.ends_with('%'));
                let progress = progress.unwrap_or("progress unknown");
                findings.push(format!("md {kind} of {name} ({progress} done)"));
            }
        }
    }
    findings
}

/// Whether `a` is `b`, or one is a partition of the other by its name: `sda1` of `sda`, `nvme0n1p2`
/// of `nvme0n1`.
fn same_drive(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let Some(rest) = long.strip_prefix(short) else { return false };
    let ends_in_digit = short.ends_with(|c: char| c.is_ascii_digit());
    let number = if ends_in_digit { rest.strip_prefix('p') } else { Some(rest) };
    rest.is_empty() || number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Background work by name of process. Only a handful of names are looked for, and a command line
/// is read only behind such a name.
fn processes(sysfs: &Sysfs, ours: &Ours) -> Vec<Finding> {
    let proc = sysfs.at_root("/proc");
    let Ok(entries) = std::fs::read_dir(&proc) else { return Vec::new() };
    let pids = entries
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| name.to_str().is_some_and(|name| name.bytes().all(|b| b.is_ascii_digit())));
    pids.filter_map(|pid| {
        let dir = proc.join(pid);
        let comm = super::read(&dir.join("comm"))?;
        let finding = process(&comm, || command_line(&dir), ours)?;
        (comm != LAZY_INIT || may_be_initialised(sysfs, ours)).then_some(finding)
    })
    .collect()
}

/// The kernel thread that initialises inode tables of ext4.
const LAZY_INIT: &str = "ext4lazyinit";

/// Whether an ext4 of ours may be what the kernel initialises: none is in use elsewhere, in any mount namespace (a table of
/// mounts has those of one), and ours has tables to be written, where that can be told.
fn may_be_initialised(sysfs: &Sysfs, ours: &Ours) -> bool {
    let in_use = super::entries(&sysfs.at_root("/sys/fs/ext4"), "");
    let in_use = in_use.into_iter().filter(|entry| entry.join("session_write_kbytes").exists());
    let names: Vec<String> =
        in_use.filter_map(|entry| Some(entry.file_name()?.to_str()?.to_owned())).collect();
    let is_done = |name: &String| {
        let device = sysfs.at_root("/dev").join(name.replace('!', "/"));
        super::ext4::has_unwritten_tables(&device) == Some(false)
    };
    names.iter().all(|name| ours.devices.contains(name)) && (names.is_empty() || !names.iter().all(is_done))
}

fn command_line(dir: &Path) -> Vec<String> {
    let bytes = std::fs::read(dir.join("cmdline")).unwrap_or_default();
    let arguments = bytes.split(|byte| *byte == 0).filter(|argument| !argument.is_empty());
    arguments.map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

/// What a process called `comm` does to our drives, if anything.
fn process(comm: &str, arguments: impl FnOnce() -> Vec<String>, ours: &Ours) -> Option<Finding> {
    let ext4 = ours.mounts.values().any(|kind| kind == "ext4");
    match comm {
        // The thread serves every ext4 of the machine and does not say which; it is ours for
        // certain only where no other drive has one.
        LAZY_INIT if ext4 && !ours.ext4_elsewhere => {
            Some(format!("{LAZY_INIT} is initialising inode tables"))
        }
        "fstrim" => {
            let arguments = arguments();
            (arguments.iter().any(|argument| trims_every_mount(argument)) || names_ours(&arguments, ours))
                .then(|| format!("`{}` is running", arguments.join(" ")))
        }
        "btrfs" => {
            let arguments = arguments();
            let works = ["scrub", "balance", "defragment", "replace"];
            let working = arguments.iter().any(|argument| works.contains(&argument.as_str()));
            (working && names_ours(&arguments, ours)).then(|| format!("`{}` is running", arguments.join(" ")))
        }
        "xfs_scrub" | "xfs_fsr" | "e4defrag" | "blkdiscard" | "badblocks" => {
            let arguments = arguments();
            names_ours(&arguments, ours).then(|| format!("`{}` is running", arguments.join(" ")))
        }
        _ => None,
    }
}

/// fstrim(8)'s flags for more than one mount: `-a`, `-A`, `-I` and their long forms.
fn trims_every_mount(argument: &str) -> bool {
    let long = ["--all", "--fstab", "--listed-in"].iter().any(|flag| argument.starts_with(flag));
    let short = argument.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    long || short.is_some_and(|flags| flags.contains(['a', 'A', 'I']))
}

/// Whether an argument after the first is one of our mount points or one of our devices.
fn names_ours(arguments: &[String], ours: &Ours) -> bool {
    arguments.iter().skip(1).any(|argument| {
        let path = argument.trim_end_matches('/');
        let path = if path.is_empty() && !argument.is_empty() { "/" } else { path };
        let device = path.strip_prefix("/dev/");
        ours.mounts.contains_key(path) || device.is_some_and(|device| ours.devices.contains(device))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Ours {
        Ours {
            devices: ["nvme0n1p2", "nvme0n1", "md127"].map(str::to_owned).into(),
            mounts: BTreeMap::from([("/scratch".to_owned(), "ext4".to_owned())]),
            ext4_elsewhere: false,
            btrfs: BTreeSet::new(),
        }
    }

    fn running(comm: &str, arguments: &[&str], ours: &Ours) -> Option<Finding> {
        process(comm, || arguments.iter().map(|a| (*a).to_owned()).collect(), ours)
    }

    const MDSTAT: &str = "Personalities : [raid1] [raid0]\n\
        md127 : active raid1 sdb1[1] sda1[0]\n      \
        976630464 blocks super 1.2 [2/2] [UU]\n      \
        [===>.................]  resync = 18.2% (178000000/976630464) finish=80.1min speed=166000K/sec\n      \
        bitmap: 7/8 pages [28KB], 65536KB chunk\n\n\
        md5 : active raid1 sdd1[1] sdc1[0]\n      \
        976630464 blocks super 1.2 [2/2] [UU]\n      \
        [=>...................]  check =  5.0% (1/2) finish=1.0min speed=1K/sec\n\n\
        unused devices: <none>\n";

    #[test]
    fn a_resync_of_our_array_is_found_and_a_strangers_is_not() {
        assert_eq!(mdstat(MDSTAT, &ours().devices), ["md resync of md127 (18.2% done)"]);
        let stranger = BTreeSet::from(["sdx".to_owned()]);
        assert_eq!(mdstat(MDSTAT, &stranger), Vec::<String>::new());
    }

    #[test]
    fn a_check_of_an_array_that_shares_our_drive_is_found() {
        let on_sdc = BTreeSet::from(["sdc".to_owned()]);
        assert_eq!(mdstat(MDSTAT, &on_sdc), ["md check of md5 (5.0% done)"]);
    }

    #[test]
    fn an_idle_array_is_no_work() {
        let idle = "md127 : active raid1 sdb1[1] sda1[0]\n      976 blocks [2/2] [UU]\n";
        assert_eq!(mdstat(idle, &ours().devices), Vec::<String>::new());
    }

    #[test]
    fn partitions_belong_to_their_drive_and_names_that_only_begin_alike_do_not() {
        assert!(same_drive("sda1", "sda") && same_drive("nvme0n1", "nvme0n1p2") && same_drive("md0", "md0"));
        assert!(!same_drive("sda", "sdaa") && !same_drive("md1", "md12") && !same_drive("sda1", "sda2"));
        assert!(!same_drive("nvme0n1", "nvme0n12"));
    }

    #[test]
    fn lazy_initialisation_counts_where_it_must_be_ours() {
        assert!(running("ext4lazyinit", &[], &ours()).is_some());
        let elsewhere = Ours { ext4_elsewhere: true, ..ours() };
        assert_eq!(running("ext4lazyinit", &[], &elsewhere), None);
        let xfs = Ours { mounts: BTreeMap::from([("/x".to_owned(), "xfs".to_owned())]), ..ours() };
        assert_eq!(running("ext4lazyinit", &[], &xfs), None);
    }

    #[test]
    fn trims_and_scrubs_count_where_they_name_our_mount_or_device() {
        assert!(running("fstrim", &["fstrim", "-v", "/scratch/"], &ours()).is_some());
        assert!(running("fstrim", &["fstrim", "--all"], &ours()).is_some());
        assert_eq!(running("fstrim", &["fstrim", "/other"], &ours()), None);
        assert!(running("btrfs", &["btrfs", "scrub", "start", "/scratch"], &ours()).is_some());
        assert_eq!(running("btrfs", &["btrfs", "subvolume", "list", "/scratch"], &ours()), None);
        assert!(running("blkdiscard", &["blkdiscard", "/dev/nvme0n1"], &ours()).is_some());
        assert_eq!(running("bash", &["bash", "/scratch"], &ours()), None);
    }

    #[test]
    fn an_ext4_of_another_mount_namespace_may_be_what_is_initialised() {
        let dir = tempfile::tempdir().expect("a directory");
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            std::fs::write(path, text).expect("a file");
        };
        put("proc/41/comm", "ext4lazyinit\n");
        put("sys/fs/ext4/features/lazy_itable_init", "supported\n");
        put("sys/fs/ext4/nvme0n1p2/session_write_kbytes", "1\n");
        let sysfs = Sysfs::at(dir.path());
        assert_eq!(look(&sysfs, &ours()).len(), 1);
        // Without checksums of its descriptors nothing of an ext4 is left to the kernel.
        let mut done = vec![0; 2048];
        done[1024 + 0x38..][..2].copy_from_slice(&[0x53, 0xEF]);
        std::fs::create_dir(dir.path().join("dev")).expect("a directory");
        std::fs::write(dir.path().join("dev/nvme0n1p2"), done).expect("a file");
        assert!(look(&sysfs, &ours()).is_empty(), "the thread outlives what it did elsewhere");
        std::fs::remove_file(dir.path().join("dev/nvme0n1p2")).expect("goes");
        assert_eq!(look(&sysfs, &ours()).len(), 1);
        put("sys/fs/ext4/loop7/session_write_kbytes", "1\n");
        assert!(look(&sysfs, &ours()).is_empty());
    }

    #[test]
    fn a_fake_proc_is_searched_by_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            std::fs::write(path, text).expect("a file");
        };
        put("proc/41/comm", "fstrim\n");
        put("proc/41/cmdline", "/sbin/fstrim\0/scratch\0");
        put("proc/42/comm", "sleep\n");
        put("proc/mdstat", MDSTAT);
        put("sys/fs/btrfs/abcd/exclusive_operation", "balance\n");
        let ours = Ours { btrfs: BTreeSet::from(["abcd".to_owned()]), ..ours() };
        let found = look(&Sysfs::at(dir.path()), &ours);
        let expected = [
            "`/sbin/fstrim /scratch` is running",
            "btrfs balance on file system abcd",
            "md resync of md127 (18.2% done)",
        ];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }
}
