//! The governor on a tier that really is limited: a loop device under blkio's throttle (control groups, version 1). Needs
//! root. Nothing is said of how fast anything is; `tools/ratios_governor.py` measures that.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stage::qos::{GovernorConfig, Qos, QosConfig};
use stage::{JobSpec, Level, Mover, MoverConfig, Options, Place, State, Verb};

const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device";
const MIB: u64 = 1 << 20;

/// What a tool says; none where it is not there or fails.
fn tool(name: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(name).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A file system on a loop device. All of it goes with it.
#[derive(Default)]
struct Tier {
    device: Option<String>,
    number: Option<String>,
    place: Option<PathBuf>,
}

impl Tier {
    fn make(folder: &Path) -> Option<Self> {
        let shown = |path: &Path| path.display().to_string();
        let image = folder.join("image");
        let mut tier = Self::default();
        let place = folder.join("fast");
        fs::File::create(&image).and_then(|file| file.set_len(128 * MIB)).ok()?;
        fs::create_dir(&place).ok()?;
        let device = tool("losetup", &["--find", "--show", &shown(&image)])?;
        tier.device = Some(device.clone());
        tool("mkfs.ext4", &["-q", "-F", &device])?;
        tool("mount", &[&device, &shown(&place)])?;
        tier.place = Some(place);
        // In hexadecimal, both.
        let number = tool("stat", &["-c", "%t:%T", &device])?;
        let decimal = |word: &str| u32::from_str_radix(word, 16).ok();
        let (major, minor) = number.split_once(':')?;
        tier.number = Some(format!("{}:{}", decimal(major)?, decimal(minor)?));
        Some(tier)
    }

    fn throttle(&self, bytes_per_s: u64) -> bool {
        self.number
            .as_ref()
            .is_some_and(|number| fs::write(THROTTLE, format!("{number} {bytes_per_s}")).is_ok())
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        self.throttle(0);
        if let Some(place) = &self.place {
            tool("umount", &[&place.display().to_string()]);
        }
        if let Some(device) = &self.device {
            tool("losetup", &["--detach", device]);
        }
    }
}

#[test]
fn a_drain_that_uses_up_its_tier_is_held_back_and_comes_to_its_end() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let Some(tier) = Tier::make(folder.path()) else {
        return println!("SKIP a governed drain: no loop device can be made and mounted here");
    };
    let at = |name: &str| folder.path().join(name);
    let bytes: Vec<u8> = (0..40 * MIB).map(|n| ((n * n) >> 7) as u8).collect();
    fs::write(at("fast/a"), &bytes).expect("writes");
    fs::File::open(at("fast/a")).and_then(|file| file.sync_all()).expect("fsync");
    if !tier.throttle(8 * MIB) {
        return println!("SKIP a governed drain: blkio of control groups version 1 is not there");
    }
    let governor = GovernorConfig { floor: 4 * MIB, all_jobs: true, ..GovernorConfig::default() };
    let qos = Qos::new(QosConfig { governor: Some(governor), ..QosConfig::default() });
    let mover =
        Mover::open(&MoverConfig { qos: qos.clone(), ..MoverConfig::new(at("state")) }).expect("opens");
    let place = |name: &str| Place::of_path(&at(name)).expect("a path");
    let (source, destination) = (place("fast/a"), place("a"));
    let spec = JobSpec { verb: Verb::Copy, source, destination, options: Options::default() };
    let id = mover.submit(spec).expect("accepted");
    let job = mover.wait(id, Level::Durable, None).expect("is known");
    assert_eq!(job.state, State::Done, "{job:?}");
    assert!(fs::read(at("a")).expect("is there") == bytes);
    let tiers = qos.status().tiers;
    let Some(governor) = &tiers[0].governor else {
        return println!("SKIP a governed drain: the tier cannot be probed: {:?}", tiers[0].without);
    };
    // With 8 MiB/s to be had, what the drain reads at once takes a second: thousands of times a probe at rest.
    assert!(governor.backoffs > 0, "{governor:?}");
}
