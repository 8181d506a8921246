//! What an engineer would want to know before believing a figure measured here.
//!
//! Each rule looks at the survey and says at most one thing about one subject. A note is no verdict: runs have
//! warnings with codes for that.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Survey, SurveyedTarget, export};
use crate::sysfs::{BlockDevice, QueueFacts};

/// Something that bears on measurements here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    /// What it is about: a device, a path, `machine`.
    pub subject: String,
    /// What is so, and what follows.
    pub text: String,
    /// What could be done, where something could.
    pub remedy: Option<String>,
}

pub(super) fn note(subject: &str, text: impl Into<String>, remedy: impl Into<String>) -> Note {
    let remedy = remedy.into();
    let remedy = (!remedy.is_empty()).then_some(remedy);
    Note { subject: subject.to_owned(), text: text.into(), remedy }
}

/// All notes: on the machine, then on devices, on paths, and on exports.
pub(super) fn notes(survey: &Survey) -> Vec<Note> {
    let mut all = machine(survey);
    for device in survey.devices_concerned() {
        // A partition's settings are its disk's, which is in the list, too.
        if device.disk.is_some() {
            all.extend(misaligned(device));
            continue;
        }
        all.extend(identity(device));
        if let Some(queue) = &device.queue {
            all.extend(settings(device, queue));
            all.extend(limits(device, queue));
        }
        all.extend(nvme(survey, device));
    }
    all.extend(survey.targets.iter().flat_map(target));
    all.extend(survey.exports.iter().flat_map(export::notes));
    all
}

fn machine(survey: &Survey) -> Vec<Note> {
    let (host, limits) = (&survey.host, &survey.limits);
    let mut all = Vec::new();
    let mut say = |text: String, remedy: &str| all.push(note("machine", text, remedy));
    if let Some(hypervisor) = &host.virtualization {
        say(
            format!(
                "virtual ({hypervisor}): the host's caches and its other guests are part of every figure"
            ),
            "",
        );
    }
    if let Some(container) = &host.container {
        say(format!("in a container ({container}): its limits apply, and some facts are hidden"), "");
    }
    if host.governors.iter().any(|governor| governor != "performance") {
        let governors = host.governors.join(", ");
        say(
            format!("CPU frequency governor {governors}: clock changes add noise to latency"),
            "cpupower frequency-set -g performance",
        );
    }
    for engine in survey.engines.iter().filter(|engine| !engine.available) {
        let reason = engine.reason.as_deref().unwrap_or("no reason given");
        say(format!("{} cannot be used ({reason})", engine.name), "");
    }
    // A queue of depth 512 with 4 KiB blocks, and some for the rings.
    let low = limits.memlock_bytes.filter(|bytes| *bytes < 8 << 20 && !limits.memlock_is_lifted);
    if let Some(bytes) = low {
        say(
            format!("only {} may be locked: large registered buffers will not fit", units::bytes(bytes)),
            "raise it: ulimit -l unlimited",
        );
    }
    if let Some(files) = limits.open_files.filter(|files| *files < 1024) {
        say(format!("only {files} files may be open"), "raise it: ulimit -n 4096");
    }
    if let (Some(used), Some(max)) = (limits.aio_nr, limits.aio_max_nr)
        && used.saturating_mul(2) > max
    {
        say(format!("{used} of {max} requests of native asynchronous I/O are taken"), "raise fs.aio-max-nr");
    }
    all
}

/// What a device is.
fn identity(device: &BlockDevice) -> Vec<Note> {
    let name = device.dev_path();
    let mut all = Vec::new();
    let mut say = |text: String, remedy: &str| all.push(note(&name, text, remedy));
    match device.transport.as_str() {
        "zram" => {
            say("compressed memory: figures depend on the data, and say nothing about flash".into(), "")
        }
        "loop" => {
            let direct = device.loop_device.as_ref().and_then(|facts| facts.direct) == Some(true);
            let remedy = if direct { "" } else { "losetup --direct-io=on" };
            let cached = if direct { "" } else { ", through the page cache" };
            say(format!("a loop device: a file stands behind it{cached}"), remedy);
        }
        "usb" => say("on USB: the bridge limits depth and bandwidth".into(), ""),
        _ => {}
    }
    if let Some(raid) = &device.raid {
        if let Some(missing) = raid.degraded.filter(|missing| *missing > 0) {
            say(format!("{missing} members of the array are missing"), "");
        }
        if let Some(action) = raid.sync_action.as_deref().filter(|action| *action != "idle") {
            say(
                format!("the array is busy with {action}: figures taken now are void"),
                "wait until it is done",
            );
        }
    }
    if let Some(celsius) = device.temperature_celsius.filter(|celsius| *celsius >= 70.0) {
        say(format!("{celsius:.0} °C: the drive may slow itself down"), "improve the cooling");
    }
    if let Some(link) = device.pcie.as_ref().filter(|link| link.is_degraded()) {
        say(
            format!(
                "PCIe link at {} GT/s × {}, though device and slot support more ({} GT/s × {})",
                link.speed_gts, link.width, link.max_speed_gts, link.max_width
            ),
            "reseat the drive or check the slot; see lspci -vv",
        );
    }
    all
}

/// Settings that could be otherwise.
fn settings(device: &BlockDevice, queue: &QueueFacts) -> Vec<Note> {
    let name = device.dev_path();
    let set = |file: &str, value: &str| format!("echo {value} > /sys/block/{}/queue/{file}", device.name);
    let mut all = Vec::new();
    let mut say = |text: String, remedy: String| all.push(note(&name, text, remedy));
    let is_flash = queue.rotational == Some(false) || device.transport.starts_with("nvme");
    if queue.rotational == Some(true)
        && matches!(device.transport.as_str(), "nvme" | "virtio" | "loop" | "mmc")
    {
        say(
            "the kernel believes that it turns, and orders and merges requests for a disk".into(),
            set("rotational", "0"),
        );
    }
    if let Some(scheduler) = queue.scheduler.as_deref().filter(|s| *s != "none" && is_flash) {
        say(
            format!("I/O scheduler {scheduler}: it costs CPU time on every request"),
            set("scheduler", "none"),
        );
    }
    if queue.wbt_lat_usec.is_some_and(|latency| latency > 0) {
        say("writeback throttling holds buffered writes back".into(), set("wbt_lat_usec", "0"));
    }
    if let Some(read_ahead) = queue.read_ahead_kb.filter(|kb| *kb == 0 || *kb >= 4096) {
        say(
            format!("read-ahead of {read_ahead} KiB: buffered reads are far from the default of 128 KiB"),
            set("read_ahead_kb", "128"),
        );
    }
    if queue.iostats == Some(false) {
        say(
            "it keeps no statistics, so that what it did cannot be compared with what was asked".into(),
            set("iostats", "1"),
        );
    }
    all
}

/// Limits and properties that are what they are.
fn limits(device: &BlockDevice, queue: &QueueFacts) -> Vec<Note> {
    let name = device.dev_path();
    let mut all = Vec::new();
    let mut say = |text: String, remedy: String| all.push(note(&name, text, remedy));
    if let (Some(now), Some(most)) = (queue.max_sectors_kb, queue.max_hw_sectors_kb)
        && now < most.min(4096)
    {
        say(
            format!("requests above {now} KiB are split, though the device takes {most} KiB"),
            format!("echo {} > /sys/block/{}/queue/max_sectors_kb", most.min(4096), device.name),
        );
    }
    if queue.write_cache.as_deref() == Some("write back") {
        say(
            "volatile write cache: what was written is safe only after a flush".into(),
            "use --fdatasync or --end_fsync where durability is the question".into(),
        );
    }
    if queue.physical_block_bytes > queue.logical_block_bytes {
        say(
            format!(
                "smaller writes than {} bytes, or such as begin elsewhere, read first",
                queue.physical_block_bytes
            ),
            String::new(),
        );
    }
    if let Some(zoned) = queue.zoned.as_deref().filter(|zoned| *zoned != "none") {
        say(
            format!(
                "zoned ({zoned}): zones are written at their write pointers; bench does so with --zonemode=zbd"
            ),
            String::new(),
        );
    }
    all
}

fn nvme(survey: &Survey, device: &BlockDevice) -> Option<Note> {
    let polls = survey.nvme_poll_queues.unwrap_or(0) > 0;
    (device.transport == "nvme" && !polls).then(|| {
        note(
            &device.dev_path(),
            "no polled queues: --hipri will not poll",
            "load the nvme driver with poll_queues=4",
        )
    })
}

fn misaligned(device: &BlockDevice) -> Option<Note> {
    let block = u64::from(device.queue.as_ref()?.physical_block_bytes.max(1));
    let start = device.partition_start_bytes?;
    (start % block != 0).then(|| {
        note(
            &device.dev_path(),
            format!("the partition begins at byte {start}, within a physical block of {block} bytes"),
            "make it anew at a multiple of 1 MiB",
        )
    })
}

fn target(target: &SurveyedTarget) -> Vec<Note> {
    let mut all = Vec::new();
    let mut say = |text: String, remedy: &str| all.push(note(&target.path, text, remedy));
    let filesystem = target.backing.filesystem.as_deref().unwrap_or("");
    if let Some(reason) = &target.backing.note {
        say(format!("no drive is known below {filesystem}: {reason}"), "");
    }
    let options = target.backing.options.as_deref().unwrap_or("");
    for option in options.split(',') {
        match option.split('=').next().unwrap_or("") {
            "sync" | "dirsync" => say(format!("mounted with {option}: every write waits for the medium"), ""),
            "compress" | "compress-force" => {
                say(format!("mounted with {option}: compressible data will look fast"), "");
            }
            "nobarrier" => say("mounted without barriers: flushes do not reach the drive".into(), ""),
            "barrier" if option == "barrier=0" => {
                say("mounted without barriers: flushes do not reach the drive".into(), "");
            }
            "data" if option == "data=journal" => {
                say("ext4 with data=journal: O_DIRECT is silently buffered".into(), "");
            }
            "ro" => say("mounted read-only".into(), ""),
            _ => {}
        }
    }
    if target.direct.is_some_and(|direct| !direct.supported) {
        say("no direct I/O: figures will be of the page cache".into(), "");
    }
    if let (Some(free), Some(all)) = (target.free_bytes, target.capacity_bytes)
        && all > 0
        && free < all / 10
    {
        say(
            format!(
                "{} free of {}: flash and file systems slow down when they are full",
                units::bytes(free),
                units::bytes(all)
            ),
            "",
        );
    }
    if let Some(written) = target.written.filter(|written| written.never_written() > 0) {
        say(format!("{written} were never written: reading them measures nothing"), "write it first");
    }
    for reason in &target.in_use {
        say(format!("cannot be written: {reason}"), "");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::survey_of;
    use super::*;
    use crate::survey::{DirectIo, EngineAvailability};
    use crate::sysfs::Backing;
    use crate::sysfs::tests::Tree;

    fn texts(survey: &Survey) -> String {
        let all = notes(survey);
        all.iter().map(|n| format!("{}: {}\n", n.subject, n.text)).collect()
    }

    /// An NVMe drive with nothing to say about.
    fn sound() -> (Tree, String) {
        let tree = Tree::new();
        let disk = tree.disk("pci/nvme/nvme0", "nvme0n1", "259:0", 1 << 40);
        tree.file("/sys/module/nvme/parameters/poll_queues", "4\n");
        for (file, value) in [
            ("physical_block_size", "512"),
            ("scheduler", "[none] mq-deadline"),
            ("read_ahead_kb", "128"),
            ("wbt_lat_usec", "0"),
            ("write_cache", "write through"),
            ("iostats", "1"),
            ("max_sectors_kb", "1280"),
            ("max_hw_sectors_kb", "1280"),
            ("zoned", "none"),
        ] {
            tree.file(&format!("{disk}/queue/{file}"), value);
        }
        (tree, disk)
    }

    fn surveyed(tree: &Tree) -> Survey {
        let mut survey = survey_of(&tree.sysfs(), &[]).unwrap();
        // This process's own limits are not the fake machine's.
        survey.limits = super::super::Limits::default();
        survey
    }

    #[test]
    fn a_sound_machine_draws_no_note() {
        let (tree, _) = sound();
        assert_eq!(texts(&surveyed(&tree)), "");
    }

    #[test]
    fn each_setting_that_matters_draws_its_note() {
        for (file, value, part) in [
            ("queue/rotational", "1", "believes that it turns"),
            ("queue/scheduler", "none [mq-deadline]", "scheduler mq-deadline"),
            ("queue/wbt_lat_usec", "2000", "throttling"),
            ("queue/read_ahead_kb", "0", "read-ahead of 0"),
            ("queue/read_ahead_kb", "8192", "read-ahead of 8192"),
            ("queue/iostats", "0", "no statistics"),
            ("queue/max_sectors_kb", "128", "above 128 KiB are split"),
            ("queue/write_cache", "write back", "volatile"),
            ("queue/physical_block_size", "4096", "read first"),
            ("queue/zoned", "host-managed", "zoned"),
        ] {
            let (tree, disk) = sound();
            tree.file(&format!("{disk}/{file}"), value);
            let survey = surveyed(&tree);
            assert!(texts(&survey).contains(part), "{file}: {}", texts(&survey));
            assert_eq!(notes(&survey).len(), 1, "{file}: {}", texts(&survey));
        }
    }

    #[test]
    fn devices_are_noted_for_what_they_are() {
        let (tree, _) = sound();
        tree.file("/sys/module/nvme/parameters/poll_queues", "0\n");
        let mut survey = surveyed(&tree);
        assert!(texts(&survey).contains("no polled queues"));
        let base = survey.drives[0].clone();
        survey.nvme_poll_queues = Some(1);
        for (change, part) in [
            (BlockDevice { transport: "zram".into(), ..base.clone() }, "compressed memory"),
            (BlockDevice { transport: "loop".into(), ..base.clone() }, "through the page cache"),
            (BlockDevice { transport: "usb".into(), ..base.clone() }, "USB"),
            (BlockDevice { temperature_celsius: Some(75.0), ..base.clone() }, "75 °C"),
            (
                BlockDevice {
                    disk: Some("nvme0n1".into()),
                    partition_start_bytes: Some(63 * 512 + 1),
                    ..base.clone()
                },
                "within a physical block",
            ),
        ] {
            survey.drives = vec![change];
            assert!(texts(&survey).contains(part), "{part}: {}", texts(&survey));
        }
    }

    #[test]
    fn the_machine_and_its_limits_are_noted() {
        let (tree, _) = sound();
        let mut survey = surveyed(&tree);
        survey.host.virtualization = Some("kvm".into());
        survey.host.container = Some("docker".into());
        survey.host.governors = vec!["powersave".into()];
        survey.limits.memlock_bytes = Some(65_536);
        survey.limits.open_files = Some(256);
        (survey.limits.aio_nr, survey.limits.aio_max_nr) = (Some(60_000), Some(65_536));
        survey.engines = vec![EngineAvailability {
            name: "io_uring".into(),
            available: false,
            reason: Some("kernel.io_uring_disabled=2".into()),
        }];
        let text = texts(&survey);
        for part in [
            "kvm",
            "docker",
            "powersave",
            "64 KiB may be locked",
            "256 files",
            "60000 of",
            "io_uring_disabled=2",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        survey.limits.memlock_is_lifted = true;
        assert!(!texts(&survey).contains("may be locked"));
    }

    #[test]
    fn paths_are_noted_for_mount_options_space_and_holes() {
        let backing = Backing {
            filesystem: Some("btrfs".into()),
            options: Some("ro,sync,compress=zstd,data=journal,nobarrier".into()),
            note: Some("hidden".into()),
            ..Backing::default()
        };
        let written = crate::extents::WrittenState { total: 10, holes: 10, ..Default::default() };
        let surveyed = SurveyedTarget {
            path: "/data".into(),
            kind: "file".into(),
            size_bytes: Some(10),
            backing,
            free_bytes: Some(1),
            capacity_bytes: Some(100),
            direct: Some(DirectIo { supported: false, memory_alignment: 0, offset_alignment: 0 }),
            written: Some(crate::extents::WrittenState {
                evidence: crate::extents::Evidence::Fiemap,
                ..written
            }),
            in_use: vec!["/dev/x is mounted on / (ext4)".into()],
        };
        let all: String = target(&surveyed).into_iter().map(|n| n.text + "\n").collect();
        for part in [
            "hidden",
            "read-only",
            "sync",
            "zstd",
            "data=journal",
            "barriers",
            "no direct I/O",
            "1 B free",
            "holes",
            "mounted on /",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
    }
}
