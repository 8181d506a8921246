//! What others do to the files of a job while it is at work.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// What is written to a file: a text over and over again, because an order that spells out megabytes takes long to read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Content {
    text: Vec<u8>,
    /// Bytes in all.
    length: usize,
}

impl Content {
    pub fn repeated(text: impl Into<Vec<u8>>, length: usize) -> Self {
        Self { text: text.into(), length }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.text.repeat(self.length.div_ceil(self.text.len().max(1)));
        bytes.truncate(self.length);
        bytes
    }
}

impl<T: Into<Vec<u8>>> From<T> for Content {
    fn from(text: T) -> Self {
        let text = text.into();
        let length = text.len();
        Self::repeated(text, length)
    }
}

/// What somebody else does to the files between two calls.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Change {
    /// Bytes are written over what is there; time of modification is set back to what it was where asked.
    Write { path: stage::names::PathText, offset: u64, content: Content, keep_times: bool },
    /// The length is set.
    Truncate { path: stage::names::PathText, bytes: u64 },
    /// A file goes.
    Remove { path: stage::names::PathText },
    /// A directory goes with all in it.
    RemoveAll { path: stage::names::PathText },
    /// A name is given to something else.
    Rename { from: stage::names::PathText, to: stage::names::PathText },
    /// A symbolic link is made.
    Symlink { path: stage::names::PathText, target: stage::names::PathText },
    /// A new file is made.
    Create { path: stage::names::PathText, content: Content },
    /// Another program makes this file, which is waited for.
    Await { path: stage::names::PathText },
    /// Mode and time of modification are set.
    Finish { path: stage::names::PathText, mode: u32, seconds: i64 },
    /// There is nothing of this name, or the changes end here.
    Absent { path: stage::names::PathText },
    /// Parts in a directory are renamed away, and a directory with a file of these bytes has the name of each. Where there
    /// is none, the changes end here.
    SwapPart { directory: stage::names::PathText, content: Content },
    /// A directory with a file of these bytes is made and then renamed to a name.
    Plant { made: stage::names::PathText, to: stage::names::PathText, content: Content },
    /// A file is made and synced by itself.
    Sync { path: stage::names::PathText },
    /// A bit changes in the file of this name below, or in the only file where the name is empty; a link leads elsewhere.
    Rot { below: stage::names::PathText, name: String },
    /// Every file below that is copied with others in a batch is held open, and its inode is told in the report.
    Hold { path: stage::names::PathText },
}

impl Change {
    pub fn make(&self) -> std::io::Result<()> {
        match self {
            Self::Write { path, offset, content, keep_times } => {
                let file = File::options().write(true).open(&path.0)?;
                let before = file.metadata()?;
                file.write_all_at(&content.bytes(), *offset)?;
                if *keep_times {
                    file.set_modified(before.modified()?)?;
                }
                Ok(())
            }
            Self::Truncate { path, bytes } => File::options().write(true).open(&path.0)?.set_len(*bytes),
            Self::Remove { path } => fs::remove_file(&path.0),
            Self::RemoveAll { path } => fs::remove_dir_all(&path.0),
            Self::Rename { from, to } => fs::rename(&from.0, &to.0),
            Self::Symlink { path, target } => std::os::unix::fs::symlink(&target.0, &path.0),
            Self::Create { path, content } => fs::write(&path.0, content.bytes()),
            Self::Await { path } => {
                let until = Instant::now() + Duration::from_secs(20);
                while !path.0.exists() {
                    if Instant::now() > until {
                        return Err(std::io::ErrorKind::TimedOut.into());
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            }
            Self::Finish { path, mode, seconds } => {
                fs::set_permissions(&path.0, fs::Permissions::from_mode(*mode))?;
                let since = Duration::from_secs(seconds.unsigned_abs());
                File::open(&path.0)?.set_modified(std::time::UNIX_EPOCH + since)
            }
            Self::Absent { path } if fs::symlink_metadata(&path.0).is_ok() => {
                Err(std::io::ErrorKind::AlreadyExists.into())
            }
            Self::Absent { .. } => Ok(()),
            Self::SwapPart { directory, content } => swap_part(&directory.0, &content.bytes()),
            Self::Plant { made, to, content } => {
                fs::create_dir(&made.0)?;
                fs::write(made.0.join("planted"), content.bytes())?;
                fs::rename(&made.0, &to.0).or_else(|_| {
                    // Another file system.
                    fs::create_dir(&to.0)?;
                    fs::write(to.0.join("planted"), content.bytes())
                })
            }
            Self::Sync { path } => {
                fs::write(&path.0, b"sentinel")?;
                File::open(&path.0)?.sync_all()
            }
            Self::Rot { below, name } => {
                if rot(&below.0, name)? {
                    Ok(())
                } else {
                    Err(std::io::ErrorKind::NotFound.into())
                }
            }
            Self::Hold { path } => hold(&path.0),
        }
    }
}

fn swap_part(directory: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let part = fs::read_dir(directory)?
        .flatten()
        .find(|one| stage::names::is_part(&one.file_name()) && !one.path().join("planted").exists())
        .ok_or(std::io::ErrorKind::NotFound)?;
    fs::rename(part.path(), directory.join(format!("taken-{}", part.file_name().len())))?;
    fs::create_dir(part.path())?;
    fs::write(part.path().join("planted"), bytes)
}

fn rot(below: &Path, name: &str) -> std::io::Result<bool> {
    for one in fs::read_dir(below)? {
        let path = one?.path();
        let kind = fs::symlink_metadata(&path)?.file_type();
        let wanted = path.file_name().is_some_and(|its| name.is_empty() || its == name);
        if kind.is_dir() {
            // The checkpoint before is nobody's copy.
            if !path.ends_with("ckpt-6") && rot(&path, name)? {
                return Ok(true);
            }
        } else if wanted && kind.is_symlink() {
            fs::remove_file(&path)?;
            std::os::unix::fs::symlink("elsewhere", &path)?;
            return Ok(true);
        } else if wanted && kind.is_file() {
            let file = File::options().read(true).write(true).open(&path)?;
            let mut byte = [0];
            file.read_exact_at(&mut byte, 5)?;
            file.write_all_at(&[byte[0] ^ 4], 5)?;
            return Ok(true);
        }
    }
    Ok(false)
}

static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Files of [`Change::Hold`]: device and inode.
pub fn held() -> Vec<(u64, u64)> {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let metadata = held.iter().filter_map(|file| file.metadata().ok());
    metadata.map(|metadata| (metadata.dev(), metadata.ino())).collect()
}

fn hold(path: &Path) -> std::io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_dir() {
        for one in fs::read_dir(path)? {
            hold(&one?.path())?;
        }
    } else if metadata.is_file() && metadata.len() < 4 << 20 {
        HELD.lock().unwrap_or_else(PoisonError::into_inner).push(File::open(path)?);
    }
    Ok(())
}
