//! Loop devices, mounts and the like for tests, undone when they go out of scope. What this machine or
//! user cannot do is said aloud and skipped.
#![allow(dead_code)] // each test binary uses a part of it

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

pub mod loop_device;

use loop_device::LoopDevice;

/// Runs a command; its standard output, or why it failed.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let shown = format!("{program} {}", arguments.join(" "));
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{shown}: {}", said.trim().lines().next().unwrap_or("failed")))
        }
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

/// A temporary directory with an image of `size` zero bytes in it, as a loop device.
pub struct Loop {
    pub path: PathBuf,
    pub image: PathBuf,
    device: LoopDevice,
    directory: tempfile::TempDir,
}

impl Loop {
    /// None, said aloud, where there are no loop devices to be had.
    pub fn new(size: u64) -> Option<Self> {
        Self::with(size, &[])
    }

    /// The same with further options of losetup(8).
    pub fn with(size: u64, options: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(size).unwrap();
        match LoopDevice::attach(&image, options) {
            Ok(device) => Some(Self { path: device.path.clone(), image, device, directory }),
            Err(reason) => {
                eprintln!("SKIPPED: no loop device: {reason}");
                None
            }
        }
    }

    pub fn text(&self) -> &str {
        self.device.text()
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// A mount in a directory of its own.
pub struct Mounted {
    pub point: PathBuf,
    _directory: tempfile::TempDir,
}

impl Mounted {
    pub fn new(arguments: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let point = directory.path().canonicalize().unwrap().join("mnt");
        std::fs::create_dir(&point).unwrap();
        let mut all = arguments.to_vec();
        all.push(point.to_str().unwrap());
        match run("mount", &all) {
            Ok(_) => Some(Self { point, _directory: directory }),
            Err(reason) => {
                eprintln!("SKIPPED: cannot mount: {reason}");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        persist("umount", &[self.point.to_str().unwrap()]);
    }
}

/// Tries for a while, since a device may be looked at by udev just now.
fn persist(program: &str, arguments: &[&str]) {
    for _ in 0..20 {
        match run(program, arguments) {
            Ok(_) => return,
            Err(_) => sleep(Duration::from_millis(50)),
        }
    }
    eprintln!("left behind: {program} {arguments:?} does not succeed");
}
