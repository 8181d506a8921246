//! What is served and lies on other servers itself: no more is promised than they keep.

use std::os::unix::net::UnixListener;
use std::path::Path;

use nbd::server::{ExportInfo, Exports, Policy, negotiate};
use nbd::stream::Stream;
use nbd::wire::TransmissionFlags as Flag;
use storage::device::{DeviceSpec, OpenOptions};

use crate::export::Export;

/// A server that agrees on an export with such flags, and answers nothing.
struct Says(u16);

impl Exports for Says {
    fn list(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn find(&self, name: &str) -> Option<ExportInfo> {
        Some(ExportInfo::new(name, 1 << 20, Flag::of(self.0)))
    }
}

impl Says {
    /// Lets everybody in at a socket until the test ends.
    fn at(self, socket: &Path) {
        let door = UnixListener::bind(socket).expect("a socket");
        std::thread::spawn(move || {
            let policy = Policy::default();
            door.incoming()
                .flatten()
                .map(|stream| negotiate(Stream::unix(stream), &policy, &self))
                .collect::<Vec<_>>()
        });
    }
}

/// The flags of an export that lies on memory and on a server that says such flags.
fn flags_above(theirs: u16) -> Flag {
    let folder = tempfile::tempdir().expect("a directory");
    let socket = folder.path().join("socket");
    Says(theirs).at(&socket);
    let spec = format!("stripe(chunk=64k):mem:1m,nbd+unix:///?socket={}", socket.display());
    let options = OpenOptions { direct: false, ..OpenOptions::reading() };
    let device = volume::open(&DeviceSpec::parse(&spec).expect("a spec"), &options).expect("opens");
    Export { name: String::new(), description: String::new(), device, writable: false }.flags()
}

#[test]
fn a_flush_is_promised_where_every_server_below_knows_one() {
    let able = flags_above(Flag::FLUSH | Flag::FUA);
    assert!(able.flush() && able.fua() && !able.multi_conn(), "{able}");
    assert!(flags_above(Flag::FLUSH | Flag::MULTI_CONN).multi_conn());
    for unable in [flags_above(0), flags_above(Flag::FUA | Flag::MULTI_CONN)] {
        assert!(!unable.flush() && !unable.fua(), "{unable}");
    }
}
