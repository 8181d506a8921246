//! A server of one export, and what it may hold.

use std::fs::File;
use std::io::PipeWriter;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use nbd::wire::request;
use serve::{Allowed, Event, Export, Options, Server};
use storage::device::{Device, DeviceSpec, OpenOptions};

use super::Way;
use super::client::{PATIENCE, SHORT};
use super::reference::Reading;

/// Bytes of the exports: enough for requests of several parts of 128 KiB, and few enough to be looked at each time.
const SIZE: usize = 640 << 10;

/// What a connection holds, about memory: two buffers of 256 KiB, room behind one of them for a reply of 16 KiB, and
/// lists of what is to be sent.
const MEMORY: usize = (2 << 18) + (16 << 10) + (96 << 10);
/// About a device: a buffer of 256 KiB, one to fetch into of up to the export's size, and lists of slots and requests.
const DEVICE: usize = (1 << 18) + SIZE + (768 << 10);
/// Bytes of replies that are put together at a time, about a device.
const GATHERED: usize = 64 << 20;
/// Replies beyond this are put together of parts, where they have to be whole.
const SLOT: u32 = 128 << 10;

pub struct Served {
    way: Way,
    device: Arc<dyn Device>,
    pristine: Arc<Vec<u8>>,
    writable: bool,
    socket: PathBuf,
    endings: Receiver<String>,
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
    folder: Arc<tempfile::TempDir>,
}

/// The word of an ending: what stands before its values.
fn word(ending: &serve::Ending) -> String {
    let text = format!("{ending:?}");
    text.split(['(', '{']).next().unwrap_or_default().trim().to_owned()
}

impl Served {
    /// Serves a new device for writing, or another's for reading.
    pub fn start(way: Way, of: Option<&Self>) -> Self {
        let folder = of
            .map_or_else(|| Arc::new(tempfile::tempdir().expect("a directory")), |of| Arc::clone(&of.folder));
        let writable = of.is_none();
        let device = of.map_or_else(|| open(way, folder.path()), |of| Arc::clone(&of.device));
        let pristine = of.map_or_else(|| Arc::new(lay(&*device)), |of| Arc::clone(&of.pristine));
        let export =
            Export { name: String::new(), description: String::new(), device: Arc::clone(&device), writable };
        let (tell, endings) = channel();
        let options = Options { max_connections: 4, tls: None };
        let mut server = Server::new(export, options, move |event| {
            // A conversation that ends after the fuzzer has is nobody's concern.
            let _ = match event {
                Event::Ended { ending, .. } => tell.send(word(ending)),
                Event::Failed { command, cause, .. } => tell.send(format!("{command} failed: {cause}")),
                Event::NotAccepted { cause } => tell.send(format!("not accepted: {cause}")),
                _ => Ok(()),
            };
        })
        .expect("a server");
        let socket = folder.path().join(if writable { "writable" } else { "readable" });
        server.listen_unix(&socket, &Allowed::default()).expect("a socket");
        let (reader, stop) = std::io::pipe().expect("a pipe");
        let thread = std::thread::spawn(move || {
            server.run(reader.as_fd()).expect("it serves");
        });
        Self {
            way,
            device,
            pristine,
            writable,
            socket,
            endings,
            stop: Some(stop),
            thread: Some(thread),
            folder,
        }
    }

    pub fn size(&self) -> u64 {
        self.device.size()
    }

    pub fn is_writable(&self) -> bool {
        self.writable
    }

    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// What the device holds when an execution begins.
    pub fn pristine(&self) -> &Arc<Vec<u8>> {
        &self.pristine
    }

    /// How the conversation ended, once it has.
    pub fn ending(&self) -> Result<String, String> {
        // In short waits, so that one in which this process was suspended counts for little.
        let found = (0..PATIENCE).find_map(|_| self.endings.recv_timeout(SHORT).ok());
        found.ok_or_else(|| "the conversation does not end".to_owned())
    }

    /// What the connection may hold for these requests.
    pub fn limit(&self, phases: &[Reading], structured: bool) -> usize {
        if self.way == Way::Memory {
            return MEMORY;
        }
        let asked = phases.iter().flat_map(|reading| &reading.asked).map(|asked| asked.request);
        let whole = asked
            .filter(|r| r.command == request::READ && r.length > SLOT && u64::from(r.length) <= self.size())
            .filter(|r| !structured || r.flags & request::FLAG_DF != 0);
        let gathered: usize = whole.map(|request| request.length as usize).sum();
        DEVICE + gathered.min(GATHERED)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // What it panicked with has been printed.
            let _ = thread.join();
        }
    }
}

fn open(way: Way, folder: &Path) -> Arc<dyn Device> {
    let spec = match way {
        Way::Memory => format!("mem:{SIZE}"),
        Way::Engine => format!("stripe(chunk=32k):mem:{},mem:{}", SIZE / 2, SIZE / 2),
        Way::File => {
            let path = folder.join("file");
            File::create(&path).and_then(|file| file.set_len(SIZE as u64)).expect("a file");
            path.display().to_string()
        }
    };
    let options = OpenOptions { direct: false, allow_unwritten: true, ..OpenOptions::writing() };
    let device = volume::open(&DeviceSpec::parse(&spec).expect("a spec"), &options).expect("opens");
    assert_eq!(device.size(), SIZE as u64);
    device
}

/// Gives each byte a value that its neighbours and its likes elsewhere do not have.
fn lay(device: &dyn Device) -> Vec<u8> {
    let bytes: Vec<u8> = (0..SIZE).map(|at| (at ^ (at >> 7) ^ (at >> 14)) as u8 | 1).collect();
    device.write_at(&bytes, 0).expect("lays bytes");
    bytes
}
