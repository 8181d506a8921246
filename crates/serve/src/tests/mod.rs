//! Both conversations, without the negotiation before them: what a client may do to them, and a model that holds.

mod crowd;
mod peer;
mod proxy;
mod random;
mod rules;
mod slow;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;

use nbd::stream::Stream;
use storage::device::{Device, DeviceSpec, OpenOptions};

use self::peer::Peer;
use crate::door::{Door, Peer as Whose};
use crate::error::Ending;
use crate::export::Export;
use crate::flushes::Flushes;
use crate::link::Link;
use crate::stop::Stop;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A device for reading and writing through the page cache.
fn open(spec: &str) -> Arc<dyn Device> {
    let options = OpenOptions { direct: false, ..OpenOptions::writing() };
    volume::open(&DeviceSpec::parse(spec).expect("a spec"), &options).expect("opens")
}

/// A conversation under way, and its client.
struct Held {
    peer: Peer,
    stop: Arc<Stop>,
    server: Option<JoinHandle<Ending>>,
}

impl Held {
    /// Talks about `device`; through an engine, where it is memory and `through` is set.
    fn begin(device: &Arc<dyn Device>, structured: bool, writable: bool, through: bool) -> Self {
        Self::begin_with(device, structured, writable, through, &Arc::default())
    }

    /// The same, on an export with such flushes before it.
    fn begin_with(
        device: &Arc<dyn Device>,
        structured: bool,
        writable: bool,
        through: bool,
        flushes: &Arc<Flushes>,
    ) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let (name, description) = (String::new(), String::new());
        let export = Export { name, description, device: Arc::clone(device), writable };
        let terms = export.terms(structured, structured.then_some(7), flushes);
        let stop = Arc::new(Stop::new().expect("a pipe"));
        let wish = Arc::clone(&stop);
        let server = std::thread::spawn(move || {
            let stop = &*wish;
            let door = Door::new(1);
            let place = door.enter(Whose::Unknown, ours.as_fd()).expect("has descriptors").expect("is empty");
            let stream = Stream::unix(ours);
            match export.device.memory().filter(|_| !through) {
                Some(memory) => {
                    let link = Link::waiting(stream, stop, &place).expect("can wait");
                    crate::memory::Conversation::new(&*export.device, memory, &terms, link).hold()
                }
                None => {
                    let link = Link::polled(stream, stop, &place).expect("can be polled");
                    crate::device::hold(&export.device, &terms, link, &|_, _, _, _| {})
                }
            }
        });
        Self { peer: Peer::new(theirs, structured), stop, server: Some(server) }
    }

    /// Says good-bye.
    fn end(mut self) -> Ending {
        self.peer.say_goodbye();
        self.ended()
    }

    /// How it ended, once it did.
    fn ended(&mut self) -> Ending {
        self.server.take().expect("ends once").join().expect("does not panic")
    }
}
