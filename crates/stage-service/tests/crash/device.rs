//! A drive with a volatile cache that can lose its power at any moment of its past.
//!
//! It is an NBD server in this process, shown by `nbdfuse` as a file, attached as a loop device: a block device to the
//! kernel, with writes and flushes that arrive here one by one and are written down. An image of any moment is then made
//! of what it is bound to keep, all that was written before the last flush, and of as much of the rest as a drive
//! might have kept: nothing, or each sector as chance has it. Drives of one [`Host`] share the clock, so that they
//! lose their power together.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nbd::server::{Exports, Policy, negotiate};
use nbd::stream::Stream;
use nbd::wire::{Request, SimpleReply, TransmissionFlags, reply, request};

use crate::sample::Random;

const SECTOR: usize = 512;
/// Bytes of an image's pieces.
const PIECE: usize = 64 << 10;

/// What happened to a drive.
enum Event {
    Write { offset: usize, bytes: Vec<u8> },
    Flush,
}

/// Drives, and all that happened to them in one order.
#[derive(Default)]
pub struct Host {
    log: Mutex<Vec<(usize, Event)>>,
}

impl Host {
    /// The present, as a number that [`Host::image`] takes.
    pub fn now(&self) -> usize {
        self.log.lock().unwrap().len()
    }

    /// Moments in `from..to` right before and after a flush of `drive`.
    pub fn flushes(&self, drive: usize, from: usize, to: usize) -> Vec<usize> {
        let log = self.log.lock().unwrap();
        let of_it = |at: &usize| log[*at].0 == drive && matches!(log[*at].1, Event::Flush);
        (from..to).filter(of_it).flat_map(|at| [at, at + 1]).collect()
    }

    /// What is on `drive` after a power cut at `moment`, by pieces of [`PIECE`] bytes, without those that were never
    /// written; of what it was not bound to keep, what `luck` has, or nothing.
    pub fn image(&self, drive: usize, moment: usize, luck: Option<&mut Random>) -> Image {
        let log = self.log.lock().unwrap();
        let its = || log[..moment].iter().enumerate().filter(|(_, (of, _))| *of == drive);
        let flushed =
            its().filter(|(_, (_, event))| matches!(event, Event::Flush)).map(|(at, _)| at).next_back();
        let mut image = Image::new();
        let mut luck = luck;
        for (at, (_, event)) in its() {
            let Event::Write { offset, bytes } = event else { continue };
            if flushed.is_some_and(|flushed| at < flushed) {
                put(&mut image, *offset, bytes);
            } else if let Some(luck) = &mut luck {
                // Kept, lost, or torn between sectors.
                let fate = luck.below(3);
                let mut is_kept = fate == 0;
                for (n, sector) in bytes.chunks(SECTOR).enumerate() {
                    let at = offset + n * SECTOR;
                    // ext4 checks the sum of its superblock, sectors 2 and 3, before it replays its journal: torn between
                    // them, it does not mount.
                    if fate == 1 && (n == 0 || at != 3 * SECTOR) {
                        is_kept = luck.below(2) == 0;
                    }
                    if is_kept {
                        put(&mut image, at, sector);
                    }
                }
            }
        }
        image
    }
}

/// What was written, by the number of the piece.
pub type Image = BTreeMap<usize, Vec<u8>>;

fn put(image: &mut Image, offset: usize, bytes: &[u8]) {
    let mut done = 0;
    while done < bytes.len() {
        let (piece, within) = ((offset + done) / PIECE, (offset + done) % PIECE);
        let length = (PIECE - within).min(bytes.len() - done);
        let piece = image.entry(piece).or_insert_with(|| vec![0; PIECE]);
        piece[within..within + length].copy_from_slice(&bytes[done..done + length]);
        done += length;
    }
}

/// A drive with a file system on it, mounted.
pub struct Drive {
    pub bytes: usize,
    pub point: PathBuf,
    directory: tempfile::TempDir,
    /// Of its loop device.
    number: KeptLoop,
    loop_device: Option<String>,
    nbdfuse: Option<Child>,
}

/// Why there can be no drives here, if there can be none.
pub fn lacking() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it takes root to attach a loop device".to_owned());
    }
    if !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
        return Some("there is no /dev/fuse or no /dev/loop-control".to_owned());
    }
    let tools = ["nbdfuse", "losetup", "mkfs.ext4", "mkfs.xfs", "mount", "umount"];
    let missing = tools.iter().find(|tool| found(tool).is_none());
    missing.map(|tool| format!("{tool} is not installed"))
}

/// Where a program is.
fn found(program: &str) -> Option<PathBuf> {
    let places = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    places.iter().map(|place| Path::new(place).join(program)).find(|path| path.exists())
}

/// A program to run, by its path: a name that is looked for in a PATH of its own takes a fork of this process, whose drives
/// are gigabytes of memory.
pub fn tool(program: &str) -> Command {
    Command::new(found(program).unwrap_or_else(|| panic!("{program} is not installed")))
}

/// Whether a mount could be undone. The kernel lets go of the files of a process that had rings (io_uring_setup(2)) only some time
/// after it has ended.
pub fn unmounted(point: &Path) -> bool {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let is_gone = tool("umount").arg(point).output().is_ok_and(|output| output.status.success());
        if is_gone || Instant::now() >= until {
            return is_gone;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn ran(program: &str, arguments: &[&str]) -> String {
    let output = tool(program)
        .args(arguments)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Of the loop devices from here on none is given to who asks for a free one (the lowest is), so that they can be attached again
/// under the same number: a mover knows a mount by its device.
const FIRST_KEPT: u32 = 64;

/// A loop device that no other test has while this lives; the lowest that is free, because the kernel keeps a device for each
/// number that was ever attached, and every program that looks through /sys/block pays for it.
pub struct KeptLoop {
    number: u32,
    /// Bound to a name that goes with the process, however that ends.
    _claim: UnixListener,
}

impl KeptLoop {
    pub fn claim() -> Self {
        let claimed = |number: u32| {
            let name = SocketAddr::from_abstract_name(format!("flashwright-crash-loop-{number}")).ok()?;
            let this = Self { number, _claim: UnixListener::bind_addr(&name).ok()? };
            let is_free = !Path::new(&format!("/sys/block/loop{number}/loop/backing_file")).exists();
            is_free.then_some(this)
        };
        (FIRST_KEPT..FIRST_KEPT + 64).find_map(claimed).expect("a loop device that is not attached")
    }

    /// Attaches a file to it.
    pub fn attach(&self, file: &Path) -> String {
        let device = format!("/dev/loop{}", self.number);
        for _ in 0..100 {
            let attached = tool("losetup").arg(&device).arg(file).output().expect("losetup");
            if attached.status.success() {
                return device;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{device} cannot be attached")
    }
}

impl Drive {
    /// Attaches drive number `drive` of a host, makes a file system on it and mounts it.
    pub fn make(host: &Arc<Host>, drive: usize, bytes: usize, file_system: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("flashwright-drive").tempdir().unwrap();
        let socket = directory.path().join("socket");
        let (shown, point) = (directory.path().join("shown"), directory.path().join("mounted"));
        fs::create_dir(&shown).unwrap();
        fs::create_dir(&point).unwrap();
        serve(UnixListener::bind(&socket).unwrap(), host.clone(), drive, bytes);
        let nbdfuse = Command::new("nbdfuse")
            .arg(&shown)
            .arg(format!("nbd+unix:///?socket={}", socket.display()))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut this = Self {
            bytes,
            point,
            directory,
            number: KeptLoop::claim(),
            loop_device: None,
            nbdfuse: Some(nbdfuse),
        };
        let file = shown.join("nbd");
        let mut waited = 0;
        while !file.exists() {
            waited += 1;
            assert!(waited < 6000, "nbdfuse shows no file");
            std::thread::sleep(Duration::from_millis(10));
        }
        let device = this.number.attach(&file);
        this.loop_device = Some(device.clone());
        if file_system == "xfs" {
            ran("mkfs.xfs", &["-q", "-K", &device]);
        } else {
            ran(
                "mkfs.ext4",
                &["-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", "-N", "4096", &device],
            );
        }
        // Sizes may be durable before bytes are: what ext4 promises least.
        let writeback = ["-o", "data=writeback,nodelalloc"];
        let options: &[&str] = if file_system == "ext4-writeback" { &writeback } else { &[] };
        ran("mount", &[options, &[&device, &this.point.to_string_lossy()]].concat());
        this
    }

    /// Takes the drive away. What it had is in the host's log.
    pub fn unplug(&mut self) {
        if Command::new("umount").arg(&self.point).output().is_ok_and(|output| !output.status.success()) {
            let _ = Command::new("umount").arg("-l").arg(&self.point).output();
        }
        if let Some(device) = self.loop_device.take() {
            let _ = Command::new("losetup").args(["-d", &device]).output();
        }
        if let Some(mut nbdfuse) = self.nbdfuse.take() {
            let shown = self.directory.path().join("shown");
            let _ = Command::new("umount").arg(&shown).output();
            let _ = nbdfuse.kill();
            let _ = nbdfuse.wait();
            let _ = Command::new("umount").arg("-l").arg(&shown).output();
        }
    }

    /// Mounts an image where the drive was mounted.
    pub fn power_up(&self, image: &Image) -> Mounted {
        let path = self.directory.path().join("image");
        let _ = fs::remove_file(&path);
        let file = File::create(&path).unwrap();
        file.set_len(self.bytes as u64).unwrap();
        for (n, piece) in image {
            file.write_all_at(piece, (n * PIECE) as u64).unwrap();
        }
        let device = self.number.attach(&path);
        ran("mount", &[&device, &self.point.to_string_lossy()]);
        Mounted(self.point.clone(), device)
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.unplug();
    }
}

/// An image that is mounted; until this goes.
pub struct Mounted(PathBuf, String);

impl Drop for Mounted {
    fn drop(&mut self) {
        if Command::new("umount").arg(&self.0).output().is_ok_and(|output| !output.status.success()) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).output();
        }
        let _ = Command::new("losetup").args(["-d", &self.1]).output();
    }
}

struct One(usize);

impl Exports for One {
    fn list(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn find(&self, name: &str) -> Option<nbd::ExportInfo> {
        let flags = TransmissionFlags::of(TransmissionFlags::HAS_FLAGS | TransmissionFlags::FLUSH);
        Some(nbd::ExportInfo::new(name, self.0 as u64, flags))
    }
}

/// Serves whoever connects, until nobody can any more.
fn serve(listener: UnixListener, host: Arc<Host>, drive: usize, bytes: usize) {
    let contents = Arc::new(Mutex::new(vec![0_u8; bytes]));
    std::thread::spawn(move || {
        // The socket goes with its directory; this thread waits for nobody then, and ends with the process.
        for connection in listener.incoming().map_while(Result::ok) {
            let (host, contents) = (host.clone(), contents.clone());
            std::thread::spawn(move || converse(connection, &host, drive, &contents));
        }
    });
}

fn converse(connection: UnixStream, host: &Host, drive: usize, contents: &Mutex<Vec<u8>>) {
    let size = contents.lock().unwrap().len();
    let Ok(agreed) = negotiate(Stream::unix(connection), &Policy::default(), &One(size)) else { return };
    let (mut stream, structured) = (agreed.stream, agreed.structured);
    let mut head = [0; request::BYTES];
    while stream.read_exact(&mut head).is_ok() {
        let Ok(asked) = Request::parse(&head) else { return };
        let (from, length) = (asked.offset as usize, asked.length as usize);
        let mut answer = SimpleReply { cookie: asked.cookie, error: 0 }.encode().to_vec();
        match asked.command {
            request::READ => {
                let contents = contents.lock().unwrap();
                if structured {
                    answer = reply::data_head(asked.cookie, asked.offset, asked.length, true).to_vec();
                }
                answer.extend_from_slice(&contents[from..from + length]);
            }
            request::WRITE => {
                let mut bytes = vec![0; length];
                if stream.read_exact(&mut bytes).is_err() {
                    return;
                }
                let mut contents = contents.lock().unwrap();
                contents[from..from + length].copy_from_slice(&bytes);
                host.log.lock().unwrap().push((drive, Event::Write { offset: from, bytes }));
            }
            // Everything that was answered before is in the log before this.
            request::FLUSH => host.log.lock().unwrap().push((drive, Event::Flush)),
            _ => return,
        }
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

#[test]
fn a_drive_keeps_what_was_synced_and_loses_what_was_not() {
    if let Some(why) = lacking() {
        println!("SKIP drives that lose their power: {why}");
        return;
    }
    for file_system in ["ext4", "xfs"] {
        let host = Arc::new(Host::default());
        let mut drive = Drive::make(&host, 0, 320 << 20, file_system);
        fs::write(drive.point.join("synced"), [1; 100_000]).unwrap();
        File::open(drive.point.join("synced")).unwrap().sync_all().unwrap();
        File::open(&drive.point).unwrap().sync_all().unwrap();
        let synced = host.now();
        fs::write(drive.point.join("not synced"), [2; 100_000]).unwrap();
        let written = host.now();
        drive.unplug();
        for moment in [synced, written] {
            let image = host.image(0, moment, None);
            let _mounted = drive.power_up(&image);
            assert_eq!(fs::read(drive.point.join("synced")).unwrap(), [1; 100_000], "{file_system} {moment}");
            let other = fs::read(drive.point.join("not synced")).unwrap_or_default();
            assert_ne!(other, [2; 100_000], "{file_system} {moment}: nothing had asked for it to be kept");
        }
        // And unplugged in order, everything is there.
        let _mounted = drive.power_up(&host.image(0, host.now(), None));
        assert_eq!(fs::read(drive.point.join("not synced")).unwrap(), [2; 100_000], "{file_system}");
    }
}
