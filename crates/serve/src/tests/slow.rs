//! Devices that take their time or break down, and servers that are to stop.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
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

/// A device whose descriptor cannot be synced: a pipe (fsync(2), EINVAL).
fn without_sync() -> Arc<dyn Device> {
    struct Piped(Arc<dyn Device>, std::io::PipeReader);
    impl fmt::Debug for Piped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Piped")
        }
    }
    impl Device for Piped {
        fn spec(&self) -> &str {
            self.0.spec()
        }
        fn kind(&self) -> DeviceKind {
            self.0.kind()
        }
        fn path(&self) -> Option<&Path> {
            self.0.path()
        }
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }
        fn is_direct(&self) -> bool {
            false
        }
        fn is_writable(&self) -> bool {
            true
        }
        fn fd(&self) -> BorrowedFd<'_> {
            self.1.as_fd()
        }
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            self.0.read_at(buffer, offset)
        }
        fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
            self.0.write_at(buffer, offset)
        }
        fn sync_data(&self) -> io::Result<()> {
            Err(io::ErrorKind::InvalidInput.into())
        }
        fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
            self.0.discard(offset, length)
        }
    }
    let (reader, _) = io::pipe().expect("a pipe");
    Arc::new(Piped(open("mem:4m"), reader))
}

#[test]
fn a_flush_that_failed_fails_for_every_client_from_then_on() {
    let flushes = Arc::default();
    let (_folder, sound) = odd(|| Ok(()));
    let mut before = Held::begin_with(&sound, true, true, true, &flushes);
    assert_eq!(before.peer.call(request::FLUSH, 0, 0, 0, &[]), Ok(vec![]));
    let mut unlucky = Held::begin_with(&without_sync(), true, true, true, &flushes);
    let failed = unlucky.peer.call(request::FLUSH, 0, 0, 0, &[]);
    assert!(failed.is_err());
    // The device of the others syncs well; what was lost is lost for them as well.
    let mut after = Held::begin_with(&sound, true, true, true, &flushes);
    for held in [&mut before, &mut after, &mut unlucky] {
        assert_eq!(held.peer.call(request::FLUSH, 0, 0, 0, &[]), failed);
    }
    assert_eq!(after.peer.call(request::WRITE, request::FLAG_FUA, 0, 4, b"data"), failed);
    assert_eq!(after.peer.call(request::WRITE, 0, 0, 4, b"data"), Ok(vec![]));
    assert_eq!(after.peer.call(request::READ, 0, 0, 4, &[]), Ok(b"data".to_vec()));
    for held in [before, after, unlucky] {
        assert!(held.end().is_orderly());
    }
}

#[test]
fn what_a_client_that_is_gone_has_asked_for_is_not_done() {
    let (begun, seen) = channel();
    let begun = Mutex::new(begun);
    let (_folder, device) = odd(move || {
        begun.lock().expect("is not poisoned").send(()).expect("somebody counts");
        // Long enough, all of them together, for the server to see that nobody is there.
        std::thread::sleep(std::time::Duration::from_millis(20));
        Ok(())
    });
    let mut held = Held::begin(&device, true, true, true);
    for _ in 0..200 {
        held.peer.ask(request::TRIM, 0, 0, 4096, &[]);
    }
    seen.recv().expect("the first one begins");
    held.peer.stream.shutdown(std::net::Shutdown::Both).expect("goes");
    assert!(matches!(held.ended(), Ending::Closed | Ending::Io(_)));
    assert!(seen.try_iter().count() < 199, "all of them were done");
}
