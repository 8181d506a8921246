//! The seam between layouts and the machine.
//!
//! All that is changed goes through [`System`], the journal's own lines included, so that a test can end the
//! world before, in the middle of, and after any single change, and then look whether undoing brings back
//! what was there. [`Host`] is the machine itself.
//!
//! Programs are started without a shell, with `LC_ALL=C`, and with the lock of the state directory as
//! their standard input. The lock is flock(2), which belongs to the open file: where flashwright is killed and
//! its mkfs lives on, the lock is held until that has ended, and whoever undoes waits for it.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use storage::device::{self, Device, DeviceSpec, OpenError};
use storage::safety::{self, Obstacle, Refusal};
use storage::sysfs::{DeviceNumber, Sysfs};

use crate::error::ProgramError;
use crate::held::{Held, Identity};
use crate::interrupts;

/// How often something that may pass by itself (udev looks at each device that was just closed) is tried again, after a
/// [`System::pause`].
pub(crate) const TRIES: u32 = 40;

/// What is to be done with a drive, and so what has to be ruled out first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Its settings change, its contents do not: nobody may use it.
    Settings,
    /// Its contents go: nobody may use it, and nothing known may lie on it that was not given up.
    Contents,
}

/// The machine, as far as layouts look at it and change it.
pub trait System: fmt::Debug + Send {
    /// The kernel's files.
    fn sysfs(&self) -> Sysfs;

    /// Where a program is.
    fn find_program(&self, name: &str) -> Option<PathBuf>;

    /// Refuses a drive that is in use, or whose contents were not given up. What is returned claims it exclusively as long
    /// as it lives.
    fn check_free(
        &self,
        drive: &Path,
        purpose: Purpose,
        destroy: &[PathBuf],
    ) -> Result<Option<Arc<dyn Device>>, OpenError>;

    /// Opens a drive to look at it.
    fn open_drive(&self, node: &Path) -> io::Result<File>;

    /// What a descriptor is open on.
    ///
    /// # Errors
    /// ENODEV where it has gone.
    fn identity(&self, drive: &File) -> io::Result<Identity>;

    /// Who uses each of the devices now, in their order.
    fn users(&self, numbers: &[DeviceNumber]) -> io::Result<Vec<Vec<Obstacle>>>;

    /// Whether the kernel alone says which CPU takes an interrupt, so that writing its affinity fails.
    fn is_managed(&self, interrupt: u32) -> bool;

    /// Bytes that a file in the directory can have.
    fn free_bytes(&self, directory: &Path) -> io::Result<u64>;

    /// A new random UUID, in lower case with dashes.
    ///
    /// # Errors
    /// Where there is no source of them.
    fn new_uuid(&self) -> io::Result<String>;

    /// Appends to a file, which is made where there is none, and returns when it is durable.
    fn append(&mut self, file: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Removes a file durably.
    ///
    /// # Errors
    /// An [`io::Error`] if the file cannot be removed or its directory cannot be synced. A missing file is no error.
    fn remove_file(&mut self, file: &Path) -> io::Result<()>;

    /// Makes a directory, and those above it, for the owner only.
    ///
    /// # Errors
    /// An [`io::Error`] if a directory cannot be made. A directory that exists already is no error.
    fn make_directory(&mut self, directory: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// An [`io::Error`] if the directory is not empty or cannot be removed. A missing directory is no error.
    fn remove_directory(&mut self, directory: &Path) -> io::Result<()>;

    /// Writes a setting of the kernel.
    fn write_setting(&mut self, path: &Path, value: &str) -> io::Result<()>;

    /// Writes zeros to parts of a device that nobody else holds, and returns when they are durable.
    ///
    /// # Errors
    /// An [`io::Error`] if the device cannot be opened, written or synced: EBUSY if it is held elsewhere.
    fn zero(&mut self, device: &Held, ranges: &[Range<u64>]) -> io::Result<()>;

    /// Runs a program to its end; what it printed.
    ///
    /// # Errors
    /// [`ProgramError`] with what it said.
    fn run(&mut self, program: &str, arguments: &[String]) -> Result<String, ProgramError>;

    /// Keeps the lock, so that programs hold it as well.
    fn keep_lock(&mut self, lock: File);

    /// Waits a moment for something to pass.
    fn pause(&self);
}

/// Where programs of the system are, beside PATH, which users often have without them.
const SYSTEM_PATHS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// This machine.
#[derive(Debug, Default)]
pub struct Host {
    lock: Option<File>,
}

impl Host {
    /// PATH with the directories of system programs behind it.
    fn path() -> String {
        let own = std::env::var("PATH").unwrap_or_default();
        let own = own.split(':').filter(|part| part.starts_with('/'));
        own.chain(SYSTEM_PATHS).collect::<Vec<_>>().join(":")
    }
}

impl System for Host {
    fn sysfs(&self) -> Sysfs {
        Sysfs::host()
    }

    fn find_program(&self, name: &str) -> Option<PathBuf> {
        Self::path().split(':').map(|directory| Path::new(directory).join(name)).find(|path| path.is_file())
    }

    fn check_free(
        &self,
        drive: &Path,
        purpose: Purpose,
        destroy: &[PathBuf],
    ) -> Result<Option<Arc<dyn Device>>, OpenError> {
        // Opening for writing is the check, and leaves no trace: the claim ends with the descriptor.
        let all = vec![drive.to_owned()];
        let destroy = match purpose {
            Purpose::Contents => destroy.to_vec(),
            Purpose::Settings => all,
        };
        let options = device::OpenOptions { destroy, ..device::OpenOptions::writing().buffered() };
        device::open(&DeviceSpec::from(drive), &options).map(Some)
    }

    fn open_drive(&self, node: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(node)
    }

    fn identity(&self, drive: &File) -> io::Result<Identity> {
        let facts = drive.metadata()?;
        if !facts.file_type().is_block_device() {
            return Err(io::Error::from_raw_os_error(libc::ENOTBLK));
        }
        let number = (libc::major(facts.rdev()), libc::minor(facts.rdev()));
        Identity::of(&self.sysfs(), DeviceNumber::from(number))
    }

    fn users(&self, numbers: &[DeviceNumber]) -> io::Result<Vec<Vec<Obstacle>>> {
        safety::users_of_each(&self.sysfs(), numbers)
    }

    #[expect(clippy::disallowed_methods, reason = "a file of /proc, where only the kernel makes names")]
    fn is_managed(&self, interrupt: u32) -> bool {
        // No file says it. Writing back what was read changes nothing, and fails where anything would.
        let path = interrupts::affinity(interrupt);
        let written = fs::read_to_string(&path).and_then(|now| fs::write(&path, now.trim()));
        written.is_err_and(|error| interrupts::is_refusal(&error))
    }

    fn free_bytes(&self, directory: &Path) -> io::Result<u64> {
        device::space(directory).map(|(free, _)| free)
    }

    fn new_uuid(&self) -> io::Result<String> {
        fs::read_to_string("/proc/sys/kernel/random/uuid").map(|text| text.trim().to_lowercase())
    }

    fn append(&mut self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        let is_new = !file.exists();
        let mut open = OpenOptions::new().append(true).create(true).mode(0o644).open(file)?;
        // One write: a line is torn by a power cut only, and then it is the last.
        open.write_all(bytes)?;
        open.sync_all()?;
        if is_new { sync_directory_of(file) } else { Ok(()) }
    }

    fn remove_file(&mut self, file: &Path) -> io::Result<()> {
        match fs::remove_file(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => sync_directory_of(file),
        }
    }

    fn make_directory(&mut self, directory: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
    }

    fn remove_directory(&mut self, directory: &Path) -> io::Result<()> {
        match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn write_setting(&mut self, path: &Path, value: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
    }

    fn zero(&mut self, device: &Held, ranges: &[Range<u64>]) -> io::Result<()> {
        let file = match device.claim() {
            Some(claim) => File::from(claim.fd().try_clone_to_owned()?),
            None => {
                OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(device.path())?
            }
        };
        for range in ranges {
            let length = usize::try_from(range.end - range.start).unwrap_or(0);
            file.write_all_at(&vec![0; length], range.start)?;
        }
        file.sync_all()
    }

    fn run(&mut self, program: &str, arguments: &[String]) -> Result<String, ProgramError> {
        let Some(path) = self.find_program(program) else {
            return Err(ProgramError::Missing { program: program.to_owned() });
        };
        let command = format!("{program} {}", arguments.join(" "));
        let start = |source| ProgramError::Start { command: command.clone(), source };
        let stdin = match &self.lock {
            Some(lock) => Stdio::from(lock.try_clone().map_err(start)?),
            None => Stdio::null(),
        };
        let output = Command::new(path)
            .args(arguments)
            .env("LC_ALL", "C")
            .env("PATH", Self::path())
            .stdin(stdin)
            .output()
            .map_err(start)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().replace('\n', "; ");
        let said = Some(text(&output.stderr)).filter(|said| !said.is_empty());
        let said = said.unwrap_or_else(|| text(&output.stdout));
        Err(ProgramError::Failed { command, status: output.status.to_string(), said })
    }

    fn keep_lock(&mut self, lock: File) {
        self.lock = Some(lock);
    }

    fn pause(&self) {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

fn sync_directory_of(file: &Path) -> io::Result<()> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// A refusal of a drive for one reason, for systems that are not the host.
#[must_use]
pub fn refusal(drive: &Path, obstacle: Obstacle) -> OpenError {
    OpenError::InUse(Refusal { target: drive.to_owned(), obstacles: vec![obstacle] })
}
