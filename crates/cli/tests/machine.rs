//! What needs root and a kernel to play with: loop devices and small file systems.

mod common;

use std::path::{Path, PathBuf};

use common::loop_device::LoopDevice;
use common::{finish, is_root, names, place, refused, run, skipped, tool, works};

/// A mount that is taken away at the end.
struct Mount(PathBuf);

impl Mount {
    fn new(at: &Path, arguments: &[&str]) -> Option<Self> {
        std::fs::create_dir_all(at).expect("makes");
        let at_text = at.display().to_string();
        tool("mount", &[arguments, &[&at_text]].concat()).map(|_| Self(at.to_owned()))
    }

    fn tmpfs(at: &Path, size: &str) -> Option<Self> {
        Self::new(at, &["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: nothing of a failed test may keep it.
        let _ = tool("umount", &["-l", &self.0.display().to_string()]);
    }
}

#[test]
fn a_mounted_block_device_is_not_written() {
    if !is_root() {
        return skipped("mounting needs root");
    }
    let folder = place();
    let image = folder.path().join("image");
    std::fs::File::create(&image).and_then(|f| f.set_len(32 << 20)).expect("makes");
    let Ok(device) = LoopDevice::attach(&image, &[]) else { return skipped("no loop device can be had") };
    if tool("mkfs.ext4", &["-q", device.text()]).is_none() {
        return skipped("mkfs.ext4 is not installed");
    }
    // Not mounted it bears a signature, which --destroy lifts.
    let write = ["bench", "--rw=randwrite", "--runtime=50ms", "--target", device.text()];
    let came = run(folder.path(), &write);
    assert_eq!((came.code, came.out.as_str()), (3, ""), "{}", came.err);
    assert!(
        came.err.contains("ext4")
            && came
                .err
                .contains(&format!("hint: if its contents may be lost add --destroy {}", device.text())),
        "{}",
        came.err
    );

    let at = folder.path().join("mounted");
    let Some(mount) = Mount::new(&at, &[device.text()]) else {
        return skipped("ext4 cannot be mounted here");
    };
    for arguments in [write.to_vec(), [&write[..], &["--destroy", device.text()]].concat()] {
        let came = run(folder.path(), &arguments);
        assert_eq!((came.code, came.out.as_str()), (3, ""), "{}", came.err);
        assert!(
            came.err.starts_with(&format!(
                "error: refusing to write to {}: {} is mounted on {}",
                device.text(),
                device.text(),
                at.display()
            )),
            "{}",
            came.err
        );
        assert_eq!(came.err.lines().count(), 2, "{}", came.err);
    }
    let came = run(
        folder.path(),
        &["sweep", "--target", device.text(), "--destroy", device.text(), "--output", "out"],
    );
    assert_eq!((came.code, came.out.as_str()), (3, ""), "{}", came.err);
    assert!(!folder.path().join("out").exists(), "a refused sweep leaves nothing");
    // Reading needs no permission; but most of a fresh file system was never written.
    let read = ["bench", "--rw=randread", "--runtime=50ms", "--allow-unwritten", "--target", device.text()];
    works(folder.path(), &read);
    drop(mount);
    works(folder.path(), &[&write[..], &["--destroy", device.text()]].concat());
}

#[test]
fn a_result_is_not_written_to_a_block_device() {
    if !is_root() {
        return skipped("loop devices need root");
    }
    let folder = place();
    let image = folder.path().join("image");
    std::fs::File::create(&image).and_then(|f| f.set_len(1 << 20)).expect("makes");
    let Ok(device) = LoopDevice::attach(&image, &[]) else { return skipped("no loop device can be had") };
    std::os::unix::fs::symlink(device.text(), folder.path().join("link")).expect("links");
    for output in [device.text(), "link"] {
        let words = format!(
            "error: --output={output}: is a block device, and would be overwritten\nhint: name a file\n"
        );
        refused(
            folder.path(),
            &["bench", "--runtime=50ms", "--target", "mem:1m", "--output", output],
            3,
            &words,
        );
    }
    // Pages that were written there would be seen through the device.
    assert_eq!(std::fs::read(&device.path).expect("reads"), vec![0; 1 << 20]);
}

#[test]
fn a_full_disk_is_an_error_of_one_line_and_leaves_nothing() {
    if !is_root() {
        return skipped("mounting needs root");
    }
    let folder = place();
    let at = folder.path().join("small");
    let Some(_mount) = Mount::tmpfs(&at, "8m") else { return skipped("tmpfs cannot be mounted here") };
    refused(
        &at,
        &["bench", "--rw=write", "--size=64m", "--target", "file"],
        1,
        "\
error: file: no space for 64 MiB (8 MiB free): No space left on device (os error 28)
hint: free space, ask for less, or name another directory
",
    );
    for arguments in [&["sweep", "--size=64m"][..], &["sweep", "--size=64m", "--output", "a/b"], &["sweep"]] {
        let came = run(&at, arguments);
        assert_eq!((came.code, came.out.as_str()), (1, ""), "{}", came.err);
        assert_eq!(came.err.lines().count(), 2, "{}", came.err);
        assert!(names(&at).is_empty(), "{:?}", names(&at));
    }
}

#[test]
fn a_target_that_cannot_be_written_is_an_error_of_one_line() {
    let folder = place();
    let at = folder.path().join("there");
    if is_root() {
        let Some(mount) = Mount::tmpfs(&at, "8m") else { return skipped("tmpfs cannot be mounted here") };
        std::fs::write(at.join("file"), vec![1; 1 << 20]).expect("writes");
        assert!(tool("mount", &["-o", "remount,ro", &mount.0.display().to_string()]).is_some());
        let arguments =
            ["bench", "--rw=write", "--runtime=50ms", "--target", "there/file", "--destroy", "there/file"];
        refused(
            folder.path(),
            &arguments,
            1,
            "\
error: there/file: not permitted to open for writing: Read-only file system (os error 30)
hint: the mount or device is read-only
",
        );
        let came = run(&at, &["sweep", "--size=4m"]);
        assert_eq!((came.code, came.out.as_str()), (1, ""), "{}", came.err);
        assert_eq!(came.err.lines().count(), 2, "{}", came.err);
        drop(mount);
        return;
    }
    std::fs::create_dir(&at).expect("makes");
    std::fs::write(at.join("file"), vec![1; 1 << 20]).expect("writes");
    let mut facts = std::fs::metadata(at.join("file")).expect("facts").permissions();
    facts.set_readonly(true);
    std::fs::set_permissions(at.join("file"), facts).expect("sets");
    let came =
        run(folder.path(), &["bench", "--rw=write", "--target", "there/file", "--destroy", "there/file"]);
    assert_eq!((came.code, came.err.lines().count()), (1, 2), "{}", came.err);
}

#[test]
fn without_root_it_works_all_the_same() {
    if !is_root() {
        return skipped("the tests do not run as root, so all of them show that");
    }
    let folder = place();
    let binary = env!("CARGO_BIN_EXE_flashwright");
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", "sh", "-c"]);
    command.arg(format!("test -x {binary}"));
    if !command.status().is_ok_and(|status| status.success()) {
        return skipped("nobody may not run the binary here, or setpriv is not installed");
    }
    // The directory is nobody's.
    tool("chown", &["65534:65534", &folder.path().display().to_string()]).expect("chown works");
    let nobody = |arguments: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", binary]).args(arguments);
        finish(command.current_dir(folder.path()))
    };
    let came = nobody(&["sweep", "--output=out", "--size=16m", "--runtime=20ms", "--passes=2"]);
    assert_eq!((came.code, came.err.as_str()), (0, ""), "{}", came.out);
    let came = nobody(&["probe", ".", "--json"]);
    assert_eq!((came.code, came.err.as_str()), (0, ""));
}
