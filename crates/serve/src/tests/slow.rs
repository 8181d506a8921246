//! Devices that take their time or break down, and servers that are to stop.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use nbd::wire::ErrorCode;
use nbd::wire::request;
use storage::device::{Device, DeviceKind, Geometry};

use super::{Held, MIB, open};
use crate::error::Ending;

/// A device whose discards do what the test says.
struct Odd<F> {
    inner: Arc<dyn Device>,
    discard: F,
}

impl<F> fmt::Debug for Odd<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Odd")
    }
}

impl<F: Fn() -> io::Result<()> + Send + Sync> Device for Odd<F> {
    fn spec(&self) -> &str {
        self.inner.spec()
    }

    fn kind(&self) -> DeviceKind {
        self.inner.kind()
    }

    fn path(&self) -> Option<&Path> {
        self.inner.path()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn is_writable(&self) -> bool {
        self.inner.is_writable()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.inner.fd()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn discard(&self, _offset: u64, _length: u64) -> io::Result<()> {
        (self.discard)()
    }
}

fn odd(discard: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> (tempfile::TempDir, Arc<dyn Device>) {
    let folder = tempfile::tempdir().expect("a directory");
    let inner = open(&format!("file:{}?size=4m", folder.path().join("f").display()));
    (folder, Arc::new(Odd { inner, discard }))
}

#[test]
fn a_discard_that_takes_long_delays_nobody() {
    let (go, wait): (Sender<()>, Receiver<()>) = channel();
    let wait = Mutex::new(wait);
    let (_folder, device) = odd(move || {
        let waited = wait.lock().expect("is not poisoned").recv();
        waited.map_err(io::Error::other)
    });
    let mut held = Held::begin(&device, true, true, true);
    let slow = held.peer.ask(request::TRIM, 0, 0, 4096, &[]);
    for round in 0..200_u64 {
        let byte = [round as u8; 100];
        assert_eq!(held.peer.call(request::WRITE, request::FLAG_FUA, round * 100, 100, &byte), Ok(vec![]));
        assert_eq!(held.peer.call(request::READ, 0, round * 100, 100, &[]), Ok(byte.to_vec()));
    }
    go.send(()).expect("somebody waits");
    assert_eq!(held.peer.reply(), (slow, Ok(vec![])));
    assert!(matches!(held.end(), Ending::Disconnected));
}

#[test]
fn a_discard_is_a_hint_and_its_failure_is_told() {
    for (errno, said) in [(95, Ok(vec![])), (5, Err(ErrorCode::EIO.0)), (28, Err(ErrorCode::ENOSPC.0))] {
        let (_folder, device) = odd(move || Err(io::Error::from_raw_os_error(errno)));
        let mut held = Held::begin(&device, true, true, true);
        assert_eq!(held.peer.call(request::TRIM, 0, 0, 4096, &[]), said);
        assert!(held.end().is_orderly());
    }
}

#[test]
fn a_device_that_panics_fails_its_requests_and_the_conversation_goes_on() {
    let (_folder, device) = odd(|| panic!("a defect, for the test"));
    let mut held = Held::begin(&device, true, true, true);
    for _ in 0..3 {
        assert_eq!(held.peer.call(request::TRIM, 0, 0, 4096, &[]), Err(ErrorCode::EIO.0));
        assert_eq!(held.peer.call(request::READ, 0, MIB, 2, &[]), Ok(vec![0, 0]));
    }
    assert!(held.end().is_orderly());
}

#[test]
fn a_server_that_stops_answers_what_was_asked_and_closes() {
    let (_folder, device) = odd(|| Ok(()));
    for (device, through) in [(open("mem:4m"), false), (device, true)] {
        let mut held = Held::begin(&device, true, true, through);
        assert_eq!(held.peer.call(request::WRITE, 0, 0, 4, b"done"), Ok(vec![]));
        let asked: Vec<u64> = (0..50).map(|n| held.peer.ask(request::READ, 0, n * 4096, 4096, &[])).collect();
        for _ in &asked {
            assert!(held.peer.reply().1.is_ok());
        }
        held.stop.ask();
        assert!(held.peer.is_closed());
        assert!(matches!(held.ended(), Ending::Stopped));
    }
}

#[test]
fn a_server_that_stops_is_not_kept_by_a_client_that_keeps_asking() {
    for through in [false, true] {
        let mut held = Held::begin(&open("mem:4m"), true, true, through);
        held.stop.ask();
        // Each answer allows another question; the end comes all the same, in the midst of them.
        while held.peer.goes_on_answering() {}
        assert!(matches!(held.ended(), Ending::Stopped));
    }
}
