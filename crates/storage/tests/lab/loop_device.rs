//! Loop devices of tests. Their names are the machine's: the next losetup(8), of any process, takes the lowest that is free.
#![allow(dead_code)] // each test binary uses a part of it

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device over a file; detached when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    pub path: PathBuf,
    image: PathBuf,
}

impl LoopDevice {
    /// Attaches `image` with these options of losetup(8); fails with what that printed.
    pub fn attach(image: &Path, options: &[&str]) -> Result<Self, String> {
        let image = image.canonicalize().map_err(|error| format!("{}: {error}", image.display()))?;
        let mut arguments = options.to_vec();
        arguments.extend(["--find", "--show", image.to_str().ok_or("a name that is not UTF-8")?]);
        Ok(Self { path: losetup(&arguments)?.into(), image })
    }

    /// The path of its node.
    pub fn text(&self) -> &str {
        self.path.to_str().expect("a name in ASCII")
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(reason) = detach(&self.path, &self.image) {
            eprintln!("left behind: {}: {reason}", self.path.display());
        }
    }
}

/// Detaches `device` if it is over `owned`, or a file below it; a device that is over another file is another test's.
///
/// A device whose detachment was asked for keeps its name until its last user closes it, and a process that was just forked may be
/// that user. So the name can change hands at any time, except while the device is open: this holds it open from
/// before the check until it is detached.
pub fn detach(device: &Path, owned: &Path) -> Result<(), String> {
    let Ok(_open) = File::open(device) else { return Ok(()) };
    if !is_over(device, owned) {
        return Ok(());
    }
    losetup(&["--detach", device.to_str().expect("a name in ASCII")]).map(drop)
}

/// Whether `device` is attached to `owned`, or to a file below it.
pub fn is_over(device: &Path, owned: &Path) -> bool {
    let name = device.file_name().expect("a node");
    let backing = std::fs::read_to_string(Path::new("/sys/class/block").join(name).join("loop/backing_file"));
    let owned = owned.canonicalize().unwrap_or_else(|_| owned.to_owned());
    backing.is_ok_and(|backing| Path::new(backing.trim().trim_end_matches(" (deleted)")).starts_with(owned))
}

fn losetup(arguments: &[&str]) -> Result<String, String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new("losetup").args(arguments).env("PATH", path).output();
    let output = output.map_err(|error| format!("losetup: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
