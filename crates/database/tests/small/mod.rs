//! A file system of a size in memory: a disk that is full soon, and grows.

use std::path::Path;
use std::process::Command;

/// Unmounted when it is dropped.
pub struct Small(tempfile::TempDir);

impl Small {
    /// None, having said so, where it cannot be mounted.
    pub fn new(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        // A server's user must be able to enter it.
        let options = format!("size={size},mode=755");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()).output();
        if mounted.is_ok_and(|mounted| mounted.status.success()) {
            return Some(Self(folder));
        }
        eprintln!("SKIP a full disk: no file system can be mounted here, which takes root");
        None
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Makes room.
    pub fn grow(&self, size: &str) {
        let options = format!("remount,size={size}");
        let grown = Command::new("mount").args(["-o", &options]).arg(self.path()).status().expect("mount");
        assert!(grown.success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}
