//! Devices that take their time or break down, and servers that are to stop.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nbd::wire::ErrorCode;
use nbd::wire::request::{self, Request};
use storage::device::{Device, DeviceKind, Geometry};

use super::peer::Peer;
use super::{Held, MIB, open};
use crate::error::Ending;
use crate::link::GRACE;

/// A device whose discards do what the test says, and before each of its reads that are fetches into the cache.
struct Odd<F> {
    inner: Arc<dyn Device>,
    hint: F,
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
        (self.hint)()?;
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn discard(&self, _offset: u64, _length: u64) -> io::Result<()> {
        (self.hint)()
    }
}

fn odd(hint: impl Fn() -> io::Result<()> + Send + Sync + 'static) -> (tempfile::TempDir, Arc<dyn Device>) {
    let folder = tempfile::tempdir().expect("a directory");
    let inner = open(&format!("file:{}?size=256m", folder.path().join("f").display()));
    (folder, Arc::new(Odd { inner, hint }))
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
        // The wish comes at another moment of the requests each time.
        for round in 0..200 {
            let mut held = Held::begin(&device, true, true, through);
            assert_eq!(held.peer.call(request::WRITE, 0, 0, 4, b"done"), Ok(vec![]));
            for cookie in 0..50 {
                let request =
                    Request { flags: 0, command: request::FLUSH, cookie, offset: 0, length: 0 }.encode();
                held.peer.stream.write_all(&request).expect("is sent");
            }
            held.stop.ask();
            let mut answers = Vec::new();
            held.peer.stream.read_to_end(&mut answers).expect("comes in");
            held.peer.stream.shutdown(Shutdown::Both).expect("goes");
            assert_eq!(answers.len() / 16, 50, "round {round}, engine {through}");
            assert!(matches!(held.ended(), Ending::Stopped));
        }
    }
}

#[test]
fn a_server_that_stops_gives_up_after_a_while_what_is_not_done() {
    let begun = Instant::now();
    // Three minutes of discards or of a fetch, or half of a message that does not go on.
    let (_folder, device) = odd(|| {
        std::thread::sleep(Duration::from_secs(1));
        Ok(())
    });
    let mut held: Vec<Held> = (0..4).map(|_| Held::begin(&device, true, true, true)).collect();
    held.push(Held::begin(&open("mem:4m"), true, true, false));
    for _ in 0..180 {
        held[0].peer.ask(request::TRIM, 0, 0, 4096, &[]);
    }
    held[1].peer.ask(request::CACHE, 0, 0, 180 * MIB as u32, &[]);
    held[2..].iter_mut().for_each(|held| held.peer.send(vec![0x25; 3]));
    // What was sent is under way.
    std::thread::sleep(Duration::from_secs(1));
    held.iter().for_each(|held| held.stop.ask());
    for held in &mut held {
        assert!(matches!(held.ended(), Ending::Stopped));
    }
    assert!((GRACE..10 * GRACE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
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

/// How many hints are begun of what a client asks for that goes when the first of them is; 20 ms each.
fn begun_of(ask: impl Fn(&mut Peer)) -> usize {
    let (begun, seen) = channel();
    let begun = Mutex::new(begun);
    let (_folder, device) = odd(move || {
        begun.lock().expect("is not poisoned").send(()).expect("somebody counts");
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    });
    let mut held = Held::begin(&device, true, true, true);
    ask(&mut held.peer);
    // Some of them, so that the server has taken in all that it has room for.
    for _ in 0..10 {
        seen.recv().expect("they begin");
    }
    held.peer.stream.shutdown(Shutdown::Both).expect("goes");
    assert!(matches!(held.ended(), Ending::Closed | Ending::Io(_)));
    10 + seen.try_iter().count()
}

#[test]
fn what_a_client_that_is_gone_has_asked_for_is_not_done() {
    // Of four seconds' work no more is done than the server needs to see that nobody is there.
    for command in [request::TRIM, request::CACHE] {
        let begun = begun_of(|peer| {
            for _ in 0..200 {
                peer.ask(command, 0, 0, 4096, &[]);
            }
        });
        assert!(begun < 100, "{begun} of 200 requests {command} were done");
    }
    // The second time more than are taken in at a time: the client's end stands behind what there is no room for.
    for asked in [1, 3000] {
        let steps = begun_of(|peer| {
            for _ in 0..asked {
                peer.ask(request::CACHE, 0, 0, 200 * MIB as u32, &[]);
            }
        });
        assert!(steps < 100, "{steps} of 200 steps of the first of {asked} fetches were made");
    }
}

#[test]
fn what_changes_data_is_done_when_its_client_has_closed_its_side() {
    let (_folder, device) = odd(|| Ok(()));
    device.write_at(&[7; 8192], 0).expect("writes");
    let mut held = Held::begin(&device, true, true, true);
    // The zeroes come behind hints, of which nobody is left.
    for _ in 0..100 {
        held.peer.ask(request::CACHE, 0, 0, 4096, &[]);
    }
    held.peer.ask(request::WRITE_ZEROES, 0, 0, 4096, &[]);
    held.peer.ask(request::WRITE, 0, 4096, 4096, &[9; 4096]);
    held.peer.ask(request::CACHE, 0, 0, 4096, &[]);
    held.peer.finish();
    assert!(matches!(held.ended(), Ending::Closed));
    let mut found = [1; 8192];
    device.read_at(&mut found, 0).expect("reads");
    assert_eq!(found, std::array::from_fn(|at| if at < 4096 { 0 } else { 9 }));
}
