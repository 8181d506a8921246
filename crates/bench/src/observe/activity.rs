//! Work that the machine does on the drives of its own accord while a run is under way: md resync,
//! btrfs balance, ext4 lazy initialisation, trims and scrubs.
//!
//! A hit voids the run (`W-BACKGROUND-WORK`), so a hit must be ours: each finding is tied to the
//! drives below the target by what the kernel or the command line says, and what cannot be tied to
//! them is not reported. Three sources, read before and after the run, and the first two once a second within it:
//!
//! 1. `/proc/mdstat`: an array under resync, recovery, check or reshape, with its members;
//! 2. `/sys/fs/btrfs/UUID/exclusive_operation`: balance, device replace, resize;
//! 3. `/proc/PID/comm`: `ext4lazyinit` ([`LazyInit`]), `fstrim`, `btrfs … scrub`, `xfs_scrub`, `xfs_fsr`, `e4defrag`,
//!    `blkdiscard`, with the paths on their command lines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

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
    let of = |dir: PathBuf| process(&super::read(&dir.join("comm"))?, || command_line(&dir), ours);
    all_processes(sysfs).filter_map(of).collect()
}

/// The directories of all processes.
fn all_processes(sysfs: &Sysfs) -> impl Iterator<Item = PathBuf> {
    let is_process = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit))
    };
    super::entries(&sysfs.at_root("/proc"), "").into_iter().filter(is_process)
}

/// The kernel's thread that writes inode tables of ext4, where it may be ours that it writes.
///
/// There is one for all of the machine's ext4; it does not say which it serves, and sleeps on for seconds after the last of
/// them has gone. So it counts only while no ext4 is in use on other drives; where descriptors of groups can be read, as long as ours
/// has tables to be written; and else if it ran within the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LazyInit {
    directory: PathBuf,
    /// How often it went to sleep so far; none where it counts whatever it does.
    slept: Option<u64>,
}

impl LazyInit {
    const NAME: &str = "ext4lazyinit";

    /// The thread, if there is one and ours may be what it works on.
    #[must_use]
    pub fn look(sysfs: &Sysfs, ours: &Ours) -> Option<Self> {
        if !ours.mounts.values().any(|kind| kind == "ext4") || ours.ext4_elsewhere {
            return None;
        }
        let is_named = |dir: &PathBuf| super::read(&dir.join("comm")).is_some_and(|comm| comm == Self::NAME);
        let directory = all_processes(sysfs).find(is_named)?;
        let in_use = ext4_in_use(sysfs);
        if in_use.iter().any(|name| !ours.devices.contains(name)) {
            return None;
        }
        let unwritten = |name: &String| {
            let device = sysfs.at_root("/dev").join(name.replace('!', "/"));
            super::ext4::has_unwritten_tables(&device)
        };
        let unwritten: Vec<Option<bool>> = in_use.iter().map(unwritten).collect();
        if !unwritten.is_empty() && unwritten.iter().all(|unwritten| *unwritten == Some(false)) {
            return None;
        }
        let is_certain = unwritten.contains(&Some(true));
        let slept = if is_certain { None } else { Some(slept(&directory)?) };
        Some(Self { directory, slept })
    }

    /// What it has done to our drives since it was looked at.
    #[must_use]
    pub fn worked(&self, sysfs: &Sysfs, ours: &Ours) -> Option<Finding> {
        let is_active = match self.slept {
            None => true,
            Some(before) => {
                slept(&self.directory).is_some_and(|now| now != before)
                    && ext4_in_use(sysfs).iter().all(|name| ours.devices.contains(name))
            }
        };
        is_active.then(|| format!("{} is initialising inode tables", Self::NAME))
    }
}

/// The devices on which ext4 is in use, in any mount namespace: a table of mounts has those of one.
fn ext4_in_use(sysfs: &Sysfs) -> Vec<String> {
    let in_use = super::entries(&sysfs.at_root("/sys/fs/ext4"), "");
    let in_use = in_use.into_iter().filter(|entry| entry.join("session_write_kbytes").exists());
    in_use.filter_map(|entry| Some(entry.file_name()?.to_str()?.to_owned())).collect()
}

/// How often a thread went to sleep; none if it has ended.
fn slept(directory: &Path) -> Option<u64> {
    let status = super::read(&directory.join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

fn command_line(dir: &Path) -> Vec<String> {
    let bytes = std::fs::read(dir.join("cmdline")).unwrap_or_default();
    let arguments = bytes.split(|byte| *byte == 0).filter(|argument| !argument.is_empty());
    arguments.map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

/// What a process called `comm` does to our drives, if anything.
fn process(comm: &str, arguments: impl FnOnce() -> Vec<String>, ours: &Ours) -> Option<Finding> {
    match comm {
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
    fn lazy_initialisation_counts_where_it_is_ours_and_only_while_it_works() {
        let dir = tempfile::tempdir().expect("a directory");
        let put = |path: &str, text: &[u8]| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            std::fs::write(path, text).expect("a file");
        };
        let sleeps =
            |n: u64| put("proc/41/status", format!("State:\tS\nvoluntary_ctxt_switches:\t{n}\n").as_bytes());
        put("proc/41/comm", b"ext4lazyinit\n");
        put("sys/fs/ext4/features/lazy_itable_init", b"supported\n");
        put("sys/fs/ext4/nvme0n1p2/session_write_kbytes", b"1\n");
        sleeps(2);
        let sysfs = Sysfs::at(dir.path());
        // Where nobody may read the device, what counts is whether the thread works.
        let thread = LazyInit::look(&sysfs, &ours()).expect("may be ours");
        assert_eq!(thread.worked(&sysfs, &ours()), None, "it outlives what it did elsewhere");
        sleeps(3);
        assert!(thread.worked(&sysfs, &ours()).is_some());
        std::fs::remove_file(dir.path().join("proc/41/status")).expect("goes");
        assert_eq!(thread.worked(&sysfs, &ours()), None, "it has ended");
        sleeps(3);
        // Descriptors say what is left. The superblock has blocks of 1 KiB, one group, and checksums.
        let mut device = vec![0; 8192];
        let mut field = |at: usize, bytes: &[u8]| device[at..][..bytes.len()].copy_from_slice(bytes);
        for (at, value) in [(0x4, 8_u32), (0x14, 1), (0x20, 8192), (0x64, 0x10)] {
            field(1024 + at, &value.to_le_bytes());
        }
        field(1024 + 0x38, &[0x53, 0xEF]);
        put("dev/nvme0n1p2", &device);
        let thread = LazyInit::look(&sysfs, &ours()).expect("ours");
        assert!(thread.worked(&sysfs, &ours()).is_some(), "as long as a table is to be written");
        device[2048 + 0x12] = 4;
        put("dev/nvme0n1p2", &device);
        assert_eq!(LazyInit::look(&sysfs, &ours()), None, "all are written");
        std::fs::remove_file(dir.path().join("dev/nvme0n1p2")).expect("goes");
        let thread = LazyInit::look(&sysfs, &ours()).expect("may be ours");
        sleeps(4);
        put("sys/fs/ext4/loop7/session_write_kbytes", b"1\n");
        assert_eq!(thread.worked(&sysfs, &ours()), None, "another came into use meanwhile");
        assert_eq!(LazyInit::look(&sysfs, &ours()), None, "another may be what is initialised");
        std::fs::remove_dir_all(dir.path().join("sys/fs/ext4/loop7")).expect("goes");
        let elsewhere = Ours { ext4_elsewhere: true, ..ours() };
        assert_eq!(LazyInit::look(&sysfs, &elsewhere), None);
        let xfs = Ours { mounts: BTreeMap::from([("/x".to_owned(), "xfs".to_owned())]), ..ours() };
        assert_eq!(LazyInit::look(&sysfs, &xfs), None);
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
