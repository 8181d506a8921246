//! How a drive is held while it is worked on.
//!
//! A name is looked up once. What it leads to is then held open, and stays held:
//!
//! - The kernel gives the number and the name of an open disk to no other: a loop device detaches when it is closed for
//!   the last time, and drivers give a disk's number back then.
//! - Programs are told the descriptor (`/proc/PID/fd/N`), not the name, wherever they take it: what lies at the name in
//!   `/dev` does not matter to them. Our own reads and writes go through it as well.
//! - Programs open drives with `O_EXCL` themselves, so the descriptor that stays is not exclusive. Beside it is a claim
//!   that is, from the first look at what lies on the drive until the program is started. In between nobody mounts
//!   it, builds on it, or makes a file system on it.
//! - What a drive is, is compared again before and after each program: its number, the kernel's count of disks
//!   (`diskseq`, Linux 5.15), and all that it is known by.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;

use storage::device::Device;
use storage::safety::{self, Signature};
use storage::sysfs::{DeviceNumber, Sysfs};

use crate::drive::{DriveId, node, sequence};
use crate::error::LayoutError;
use crate::system::{Purpose, System};

/// What a descriptor is open on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its number, which is its own while it is open.
    pub number: DeviceNumber,
    /// Which of the disks that this boot has seen, where the kernel counts them.
    pub sequence: Option<u64>,
}

impl Identity {
    /// What the kernel says of the device with that number.
    ///
    /// # Errors
    /// ENODEV where it has gone.
    pub fn of(system: &Sysfs, number: DeviceNumber) -> io::Result<Self> {
        let disk = system.name(number).and_then(|name| system.disk_of(&name));
        let disk = disk.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        Ok(Self { number, sequence: sequence(system, &disk) })
    }
}

/// A block device that is held open.
#[derive(Debug)]
pub struct Held {
    pub(crate) drive: DriveId,
    identity: Identity,
    /// Not for writing: closing it makes no event for udev.
    file: File,
    claim: Option<Arc<dyn Device>>,
    /// What lay on it when it was claimed.
    seen: Vec<Signature>,
}

impl Held {
    /// Holds what has that kernel name now.
    pub(crate) fn open(system: &dyn System, name: &str) -> Result<Self, LayoutError> {
        let path = node(name);
        let failed = |source| LayoutError::io(&path, "open", source);
        let file = system.open_drive(&path).map_err(failed)?;
        let identity = system.identity(&file).map_err(failed)?;
        // From here on the name is this disk's, if it is its.
        let drive = DriveId::of(&system.sysfs(), &path)?;
        let held = Self { drive, identity, file, claim: None, seen: Vec::new() };
        held.check(system)?;
        Ok(held)
    }

    /// The descriptor.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The exclusive claim, while there is one.
    #[must_use]
    pub fn claim(&self) -> Option<&dyn Device> {
        self.claim.as_deref()
    }

    /// Its name, for people.
    #[must_use]
    pub fn node(&self) -> PathBuf {
        node(&self.drive.name)
    }

    /// The descriptor as a path, for programs: it lasts as long as this process and this.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Whether it still is what it was, and what lies at its name still is it.
    pub(crate) fn check(&self, system: &dyn System) -> Result<(), LayoutError> {
        let now = || -> io::Result<_> {
            let held = system.identity(&self.file)?;
            Ok((held, system.identity(&system.open_drive(&self.node())?)?))
        };
        let is_same = now().is_ok_and(|(held, named)| held == self.identity && named == self.identity)
            && DriveId::of(&system.sysfs(), &self.node()).is_ok_and(|now| now == self.drive);
        if is_same { Ok(()) } else { Err(self.replaced()) }
    }

    /// Its number, which is its own while it is held.
    pub(crate) fn number(&self) -> DeviceNumber {
        self.identity.number
    }

    /// That its name leads to another drive now.
    pub(crate) fn replaced(&self) -> LayoutError {
        LayoutError::Replaced { drive: self.node(), serial: self.drive.serial.clone() }
    }

    /// Claims it exclusively: nobody may use it, and nothing known may lie on it that was not given up.
    pub(crate) fn claim_for(
        &mut self,
        system: &dyn System,
        purpose: Purpose,
        destroy: &[PathBuf],
    ) -> Result<(), LayoutError> {
        self.claim = None;
        self.claim = system.check_free(&self.node(), purpose, destroy)?;
        if let Some(claim) = &self.claim {
            let claimed = claim.fd().try_clone_to_owned().and_then(|fd| system.identity(&File::from(fd)));
            if claimed.ok() != Some(self.identity) {
                return Err(self.replaced());
            }
        }
        self.check(system)?;
        let seen = self.signatures();
        self.seen = seen.map_err(|source| LayoutError::io(self.node(), "read signatures", source))?;
        Ok(())
    }

    /// Gives the claim up, to a program that needs it.
    pub(crate) fn release(&mut self) {
        self.claim = None;
    }

    /// The signatures on it.
    pub(crate) fn signatures(&self) -> io::Result<Vec<Signature>> {
        use std::io::{Seek, SeekFrom};
        let size = (&self.file).seek(SeekFrom::End(0))?;
        safety::signatures(&self.file, size)
    }

    /// Refuses a signature that came after it was claimed: its bytes are somebody's, and nobody gave them up.
    pub(crate) fn check_signatures(&self) -> Result<(), LayoutError> {
        let failed = |source| LayoutError::io(self.node(), "read signatures", source);
        let found = self.signatures().map_err(failed)?;
        match found.into_iter().find(|signature| !self.seen.contains(signature)) {
            Some(new) => Err(LayoutError::Appeared { drive: self.node(), signature: new.to_string() }),
            None => Ok(()),
        }
    }
}

impl DriveId {
    /// Holds it, under whatever name it has now; none where it is not there.
    pub(crate) fn hold(&self, system: &dyn System) -> Result<Option<Held>, LayoutError> {
        let Some(name) = self.name_now(&system.sysfs()) else { return Ok(None) };
        let held = Held::open(system, &name)?;
        if self.is(&held.drive) { Ok(Some(held)) } else { Err(held.replaced()) }
    }

    /// Holds it under the name that it was just found by.
    pub(crate) fn hold_named(&self, system: &dyn System) -> Result<Held, LayoutError> {
        let held = Held::open(system, &self.name)?;
        if held.drive == *self { Ok(held) } else { Err(held.replaced()) }
    }
}
