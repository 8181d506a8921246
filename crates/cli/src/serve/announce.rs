//! Telling others where a server is found: a file they all see, as on the shared file system of an allocation.
//!
//! In a directory each server has a file of its own, which appears whole, because it is renamed into place, and goes
//! when the server does. A file is shared: each server adds its line in one write with O_APPEND, and none takes it away.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::output;

/// What was announced, taken back when dropped.
#[derive(Debug)]
pub struct Announcement(Option<PathBuf>);

/// `HOST:PORT` of an address as others reach it: an address that stands for all of this host's becomes its name.
pub fn place(address: SocketAddr) -> String {
    if !address.ip().is_unspecified() {
        return address.to_string();
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => address.to_string(),
        name => format!("{name}:{}", address.port()),
    }
}

impl Announcement {
    /// Announces these places, of which there is one at least ([`super::listen::check`]).
    pub fn make(path: &Path, places: &[String]) -> Result<Self, Failure> {
        let Some(first) = places.first() else { return Ok(Self(None)) };
        let lines: String = places.iter().map(|place| format!("{place}\n")).collect();
        let failed = |error: io::Error| Failure::io(path, "announce this server there", &error);
        if path.is_dir() {
            let file = path.join(first);
            output::replace(&file, &lines).map_err(failed)?;
            return Ok(Self(Some(file)));
        }
        // What others put there under this name is not followed.
        let no_link = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let file = OpenOptions::new().append(true).create(true).custom_flags(no_link).open(path);
        file.and_then(|mut file| file.write_all(lines.as_bytes())).map_err(failed)?;
        Ok(Self(None))
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        if let Some(file) = &self.0 {
            // Whoever finds it after this finds nobody there, and is told so by the connection.
            let _ = std::fs::remove_file(file);
        }
    }
}
