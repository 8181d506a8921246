//! What limits a run, found on a real kernel: a loop device under a control group's throttle, and the same
//! device without one. Needs root, loop devices and version 1's blkio controller (or version 2's io.max).

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::loop_device::LoopDevice;
use common::{command, finish, is_root, place, skipped, written};
use serde_json::Value;

/// `7:0`.
fn number(device: &LoopDevice) -> String {
    let name = device.text().trim_start_matches("/dev/");
    let number = std::fs::read_to_string(format!("/sys/class/block/{name}/dev"));
    number.expect("a block device").trim().to_owned()
}

/// A control group of its own in which I/O can be bounded, removed at the end.
struct Group {
    folder: PathBuf,
    is_v2: bool,
}

impl Group {
    fn new(name: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let hierarchies = mounts.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (at, kind, options) = (words.next()?, words.next()?, words.next()?);
            match kind {
                "cgroup" => options.split(',').any(|o| o == "blkio").then(|| (at.to_owned(), false)),
                "cgroup2" => Some((at.to_owned(), true)),
                _ => None,
            }
        });
        hierarchies.into_iter().find_map(|(at, is_v2)| {
            let folder = Path::new(&at).join(format!("flashwright-{name}-{}", std::process::id()));
            std::fs::create_dir(&folder).ok()?;
            let group = Self { folder, is_v2 };
            group.file("io.max", "blkio.throttle.read_iops_device").exists().then_some(group)
        })
    }

    fn file(&self, v2: &str, v1: &str) -> PathBuf {
        self.folder.join(if self.is_v2 { v2 } else { v1 })
    }

    /// Reads a second that the group allows on a device.
    fn bound(&self, device: &LoopDevice, read_iops: u64) -> bool {
        let path = self.file("io.max", "blkio.throttle.read_iops_device");
        let number = number(device);
        let text =
            if self.is_v2 { format!("{number} riops={read_iops}") } else { format!("{number} {read_iops}") };
        std::fs::write(path, text).is_ok()
    }

    /// The JSON of a bench that runs in the group.
    fn bench(&self, folder: &Path, arguments: &[&str]) -> Value {
        let inner = command(folder, arguments);
        let script = format!("echo $$ > {} && exec \"$@\"", self.folder.join("cgroup.procs").display());
        let mut outer = Command::new("sh");
        outer.args(["-c", &script, "sh"]).arg(inner.get_program()).args(inner.get_args()).current_dir(folder);
        let came = finish(&mut outer);
        assert_eq!(came.code, 0, "{came:#?}");
        serde_json::from_str(&came.out).expect("one JSON document")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.folder);
    }
}

fn verdict(document: &Value) -> (String, String) {
    let verdict = &document["record"]["verdict"];
    let text = |name: &str| verdict[name].as_str().expect("a verdict").to_owned();
    (text("limit"), text("evidence"))
}

const READS: [&str; 9] = [
    "bench",
    "--rw=randread",
    "--bs=4k",
    "--iodepth=16",
    "--ramp_time=1s",
    "--runtime=1500ms",
    "--allow-unwritten",
    "--json",
    "--target",
];

#[test]
fn a_throttled_device_is_found_throttled_and_an_unthrottled_one_is_not() {
    if !is_root() {
        return skipped("control groups and loop devices need root");
    }
    let folder = place();
    let image = written(folder.path(), "image", 64);
    let Ok(device) = LoopDevice::attach(&image, &["--direct-io=on"]) else {
        return skipped("no loop device can be had");
    };
    let Some(group) = Group::new("throttled") else { return skipped("no control group bounds I/O here") };
    let bench = || group.bench(folder.path(), &[&READS[..], &[device.text()]].concat());

    let (limit, evidence) = verdict(&bench());
    assert_ne!(limit, "throttle", "{evidence}");
    if !group.bound(&device, 200) {
        return skipped("this control group takes no limit on a loop device");
    }
    let document = bench();
    let (limit, evidence) = verdict(&document);
    assert_eq!(limit, "throttle", "{evidence}");
    assert!(evidence.contains("of the 200 IOPS that"), "{evidence}");
    assert_eq!(document["record"]["bounds"]["throttles"][0]["per_second"], 200);
}

#[test]
fn a_rate_that_is_kept_is_what_limits_and_bench_says_so_in_a_line() {
    let folder = place();
    written(folder.path(), "file", 32);
    let arguments = ["bench", "--rw=randread", "--rate_iops=50", "--runtime=1s", "--target", "file"];
    let came = common::works(folder.path(), &arguments);
    let line = came.out.lines().find(|line| line.trim_start().starts_with("limit")).expect("a line");
    assert!(line.contains("rate asked for: 5") || line.contains("rate asked for: 4"), "{line}");
}
