//! A process on the machine, which ends when the power fails.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use layout::error::ProgramError;
use layout::held::{Held, Identity};
use layout::system::{Purpose, System, refusal};
use storage::device::{Device, OpenError};
use storage::safety::{self, Obstacle};
use storage::sysfs::{DeviceNumber, Sysfs};

use super::programs::name_of;
use super::{DRIVE, Moment, SWAPPED, World};

/// A process's view of the machine.
#[derive(Debug)]
pub struct Process(pub(super) World);

impl Process {
    /// Makes a change, unless the power fails before or in the middle of it; what it came to is not told to whoever
    /// is dead by then.
    fn change<T>(&self, half: Option<impl FnOnce()>, whole: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let dead = || io::Error::other("the power has failed");
        self.0.call();
        let mut fate = self.0.fate.lock().expect("no panic");
        if fate.is_dead {
            return Err(dead());
        }
        fate.changes += 1;
        let number = fate.changes;
        if half.is_some() {
            fate.halves.insert(number);
        }
        let end = fate.end.filter(|(at, _)| *at == fate.changes).map(|(_, moment)| moment);
        fate.is_dead = end.is_some();
        drop(fate);
        match end {
            None => whole(),
            Some(Moment::Before) => Err(dead()),
            Some(Moment::Half) => {
                if let Some(half) = half {
                    half();
                }
                Err(dead())
            }
            Some(Moment::After) => {
                let _ = whole();
                Err(dead())
            }
        }
    }
}

impl System for Process {
    fn sysfs(&self) -> Sysfs {
        Sysfs::at(self.0.root.path())
    }

    fn find_program(&self, name: &str) -> Option<PathBuf> {
        Some(Path::new("/bin").join(name))
    }

    fn check_free(
        &self,
        drive: &Path,
        purpose: Purpose,
        destroy: &[PathBuf],
    ) -> Result<Option<Arc<dyn Device>>, OpenError> {
        let name = self.sysfs().device_at(drive).ok_or(OpenError::Missing { path: drive.to_owned() })?;
        let users = self.users(&[self.sysfs().number(&name).expect("a number")]).expect("users").concat();
        let file = self.open_drive(drive).expect("a drive");
        let signatures = safety::signatures(&file, DRIVE).expect("signatures");
        let signatures = signatures.into_iter().map(Obstacle::Signature);
        let given_up = purpose == Purpose::Settings || destroy.iter().any(|path| path == drive);
        match users.into_iter().chain(signatures.filter(|_| !given_up)).next() {
            Some(obstacle) => Err(refusal(drive, obstacle)),
            None => Ok(None),
        }
    }

    fn open_drive(&self, node: &Path) -> io::Result<File> {
        self.0.call();
        File::open(self.0.at(node))
    }

    fn identity(&self, drive: &File) -> io::Result<Identity> {
        self.0.call();
        let inode = drive.metadata()?.ino();
        let is_this =
            |name: &String| fs::metadata(self.0.at(format!("dev/{name}"))).is_ok_and(|f| f.ino() == inode);
        let sysfs = Sysfs::at(self.0.root.path());
        let name = sysfs.disks().into_iter().find(is_this);
        self.0.fate.lock().expect("no panic").held |= name.as_deref() == Some(SWAPPED);
        let number = name.and_then(|name| sysfs.number(&name));
        Identity::of(&sysfs, number.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?)
    }

    fn users(&self, numbers: &[DeviceNumber]) -> io::Result<Vec<Vec<Obstacle>>> {
        safety::users_of_each(&self.sysfs(), numbers)
    }

    fn is_managed(&self, interrupt: u32) -> bool {
        interrupt == 11
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(100 << 20)
    }

    fn new_uuid(&self) -> io::Result<String> {
        let mut fate = self.0.fate.lock().expect("no panic");
        fate.uuids += 1;
        Ok(format!("{:08x}-0000-4000-8000-{:012x}", fate.uuids.wrapping_mul(0x9e37_79b9) as u32, fate.uuids))
    }

    fn append(&mut self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let append = |bytes: &[u8]| {
            use std::io::Write;
            File::options().append(true).create(true).open(file)?.write_all(bytes)
        };
        self.change(Some(|| append(&bytes[..bytes.len() / 2]).expect("appends")), || append(bytes))
    }

    fn remove_file(&mut self, file: &Path) -> io::Result<()> {
        self.change(None::<fn()>, || match fs::remove_file(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        })
    }

    fn make_directory(&mut self, directory: &Path) -> io::Result<()> {
        if directory == self.0.state {
            return Ok(());
        }
        self.change(None::<fn()>, || fs::create_dir_all(directory))
    }

    fn remove_directory(&mut self, directory: &Path) -> io::Result<()> {
        self.change(None::<fn()>, || match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        })
    }

    fn write_setting(&mut self, path: &Path, value: &str) -> io::Result<()> {
        self.change(None::<fn()>, || self.0.set(path, value))
    }

    fn zero(&mut self, device: &Held, ranges: &[Range<u64>]) -> io::Result<()> {
        let name = name_of(device.node());
        let holders = self.sysfs().block_device(&name).map(|device| device.holders).unwrap_or_default();
        if !holders.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        let zero = |range: &Range<u64>| {
            let length = (range.end.min(DRIVE) - range.start) as usize;
            let path = format!("/proc/self/fd/{}", device.file().as_raw_fd());
            self.0.write_at(&path, range.start, &vec![0; length]);
        };
        self.change(Some(|| zero(&ranges[0])), || {
            ranges.iter().for_each(zero);
            Ok(())
        })
    }

    fn run(&mut self, program: &str, arguments: &[String]) -> Result<String, ProgramError> {
        let world = &self.0;
        let run = |half| world.execute(program, arguments, half);
        let ran = self
            .change(Some(|| run(true).expect("half of it works")), || run(false).map_err(io::Error::other));
        ran.map(|()| String::new()).map_err(|error| ProgramError::Failed {
            command: format!("{program} {}", arguments.join(" ")),
            status: "exit status: 1".to_owned(),
            said: error.to_string(),
        })
    }

    fn keep_lock(&mut self, _: File) {}

    fn pause(&self) {}
}
