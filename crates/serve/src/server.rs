//! Listeners, connections, and the end of them all.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::Scope;
use std::time::Duration;

use nbd::server::{Context, ExportInfo, Exports, Policy, TlsPolicy, negotiate};
use nbd::stream::Stream;
use nbd::tls::ServerTls;
use nbd::wire::BASE_ALLOCATION;
use rustix::event::{PollFd, PollFlags, poll};

use crate::door::{Door, Seat};
use crate::error::{Ending, ServeError};
use crate::export::Export;
use crate::flushes::Flushes;
use crate::link::Link;
use crate::listen::{Allowed, Listener, Taken};
use crate::stop::Stop;
use crate::{device, memory};

/// The number by which replies name `base:allocation`.
const ALLOCATION: u32 = 1;
/// How long to wait after a connection that could not be taken for want of descriptors or memory.
const SHORTAGE: Duration = Duration::from_millis(100);
/// How long a client may take to choose an export.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How a server is to be run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Connections at a time. Who comes beyond is turned away, unless another gives its place up: one that does not
    /// end its handshake, or has had no request for a minute.
    pub max_connections: usize,
    /// Nobody is served without it, where it is there.
    pub tls: Option<ServerTls>,
}

/// What happens to a server, for whoever wants to tell of it.
#[derive(Debug)]
pub enum Event<'a> {
    /// A client has chosen the export.
    Begun {
        /// Whose connection it is.
        peer: &'a str,
    },
    /// A conversation is over.
    Ended {
        /// Whose connection it was.
        peer: &'a str,
        /// How it ended.
        ending: &'a Ending,
    },
    /// The device failed a request; the client was told, and the conversation goes on.
    Failed {
        /// Whose request it was.
        peer: &'a str,
        /// What was asked: `read`, `write`, `flush`, `trim`, `cache`, `write_zeroes`, `block_status`.
        command: &'static str,
        /// Where, bytes.
        offset: u64,
        /// How much, bytes.
        length: u32,
        /// Why.
        cause: &'a dyn Error,
    },
    /// A client was turned away, because there are as many as are let in.
    Full {
        /// Whose connection it was.
        peer: &'a str,
        /// How many are let in.
        most: usize,
    },
    /// Somebody came to a Unix socket who may not.
    Stranger {
        /// Who.
        peer: &'a str,
    },
    /// A connection was there and could not be taken.
    NotAccepted {
        /// Why.
        cause: &'a io::Error,
    },
}

/// What a server did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Connections that were taken.
    pub connections: u64,
}

/// See the [crate's](crate) argument.
pub struct Server {
    export: Export,
    policy: Policy,
    max_connections: usize,
    listeners: Vec<Listener>,
    stop: Stop,
    door: Door,
    flushes: Arc<Flushes>,
    tell: Box<dyn Fn(&Event<'_>) + Send + Sync>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { export, listeners, .. } = self;
        f.debug_struct("Server").field("export", export).field("listeners", listeners).finish_non_exhaustive()
    }
}

impl Server {
    /// A server of one export, which nobody can reach yet. `tell` is called from the threads of the connections.
    pub fn new(
        export: Export,
        options: Options,
        tell: impl Fn(&Event<'_>) + Send + Sync + 'static,
    ) -> Result<Self, ServeError> {
        let stop = Stop::new().map_err(|source| ServeError::System { operation: "pipe", source })?;
        let tls = options.tls.map_or(TlsPolicy::Never, TlsPolicy::Required);
        Ok(Self {
            export,
            policy: Policy { tls, timeout: HANDSHAKE, ..Policy::default() },
            max_connections: options.max_connections,
            listeners: Vec::new(),
            stop,
            door: Door::new(options.max_connections),
            flushes: Arc::default(),
            tell: Box::new(tell),
        })
    }

    /// Listens at an address, and gives the one that it came to be: port 0 becomes one that is free.
    ///
    /// # Errors
    /// [`ServeError::Listen`].
    pub fn listen(&mut self, address: SocketAddr) -> Result<SocketAddr, ServeError> {
        let listener = Listener::tcp(address)?;
        let found = listener.address().unwrap_or(address);
        self.listeners.push(listener);
        Ok(found)
    }

    /// Listens at a Unix socket of mode 0600, which is removed at the end. With users or groups that are allowed, they
    /// can connect as well, and anybody else but root is sent away.
    ///
    /// # Errors
    /// [`ServeError::Socket`].
    pub fn listen_unix(&mut self, path: &Path, allowed: &Allowed) -> Result<(), ServeError> {
        self.listeners.push(Listener::unix(path, allowed)?);
        Ok(())
    }

    /// Serves until `stop` becomes readable, or hangs up, and all conversations have come to their ends.
    ///
    /// # Errors
    /// [`ServeError::System`] where it cannot wait.
    pub fn run(mut self, stop: BorrowedFd<'_>) -> Result<Summary, ServeError> {
        let listeners = std::mem::take(&mut self.listeners);
        let (mut summary, server) = (Summary::default(), &self);
        std::thread::scope(|scope| {
            let result = server.accept(scope, &listeners, stop, &mut summary);
            // Nobody new from here on; the scope waits for those who are there.
            drop(listeners);
            server.stop.ask();
            result
        })?;
        Ok(summary)
    }

    fn accept<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        listeners: &[Listener],
        stop: BorrowedFd<'_>,
        summary: &mut Summary,
    ) -> Result<(), ServeError> {
        loop {
            let mut fds = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
            fds.extend(listeners.iter().map(|l| PollFd::from_borrowed_fd(l.fd(), PollFlags::IN)));
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return Err(ServeError::System { operation: "poll", source: error.into() });
                }
            }
            if !fds[0].revents().is_empty() {
                return Ok(());
            }
            for (listener, fd) in listeners.iter().zip(&fds[1..]) {
                if !fd.revents().is_empty() {
                    summary.connections += u64::from(self.take(scope, listener));
                }
            }
        }
    }

    /// Takes a connection and starts its thread; whether it was let in.
    fn take<'s>(&'s self, scope: &'s Scope<'s, '_>, listener: &Listener) -> bool {
        let (stream, name, peer) = match listener.accept() {
            Ok(Taken::In(stream, name, peer)) => (stream, name, peer),
            Ok(Taken::Stranger(name)) => {
                (self.tell)(&Event::Stranger { peer: &name });
                return false;
            }
            Err(error) => {
                // Whoever came may have gone again before being taken.
                if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) {
                    (self.tell)(&Event::NotAccepted { cause: &error });
                    std::thread::sleep(SHORTAGE);
                }
                return false;
            }
        };
        let place = match self.door.enter(peer, stream.as_fd()) {
            Ok(Some(place)) => place,
            Ok(None) => {
                (self.tell)(&Event::Full { peer: &name, most: self.max_connections });
                return false;
            }
            Err(error) => {
                (self.tell)(&Event::NotAccepted { cause: &error });
                std::thread::sleep(SHORTAGE);
                return false;
            }
        };
        let thread = std::thread::Builder::new().name("nbd".into());
        let started = thread.spawn_scoped(scope, move || {
            let conversation = AssertUnwindSafe(|| self.converse(stream, &name, &place));
            let ending = catch_unwind(conversation).unwrap_or(Ending::Panicked);
            let ending = if place.must_go() { Ending::GaveWay } else { ending };
            // Who hears of the end may connect again at once, and is not to be turned away for want of this place.
            drop(place);
            (self.tell)(&Event::Ended { peer: &name, ending: &ending });
        });
        if let Err(error) = &started {
            (self.tell)(&Event::NotAccepted { cause: error });
            std::thread::sleep(SHORTAGE);
        }
        started.is_ok()
    }

    /// A connection from its first byte to its last.
    fn converse(&self, stream: Stream, peer: &str, place: &Seat<'_>) -> Ending {
        let agreed = match negotiate(stream, &self.policy, self) {
            Ok(agreed) => agreed,
            Err(error) if error.is_ordinary() => return Ending::Closed,
            Err(error) => return Ending::Negotiation(error),
        };
        (self.tell)(&Event::Begun { peer });
        place.works();
        let allocation = agreed.export.context(BASE_ALLOCATION);
        let terms = self.export.terms(agreed.structured, allocation, &self.flushes);
        let device = &self.export.device;
        match device.memory() {
            Some(memory) => match Link::waiting(agreed.stream, &self.stop, place) {
                Ok(link) => memory::Conversation::new(&**device, memory, &terms, link).hold(),
                Err(error) => Ending::Io(error),
            },
            None => match Link::polled(agreed.stream, &self.stop, place) {
                Ok(link) => device::hold(device, &terms, link, &|command, offset, length, cause| {
                    (self.tell)(&Event::Failed { peer, command, offset, length, cause });
                }),
                Err(error) => Ending::Io(error),
            },
        }
    }
}

impl Exports for Server {
    fn list(&self) -> Vec<(String, String)> {
        vec![(self.export.name.clone(), self.export.description.clone())]
    }

    /// The export by its name; the empty name asks for the default, which is the only one.
    fn find(&self, name: &str) -> Option<ExportInfo> {
        let export = &self.export;
        if !name.is_empty() && name != export.name {
            return None;
        }
        let mut info = ExportInfo::new(&export.name, export.size(), export.flags());
        info.description = Some(export.description.clone());
        (info.minimum_block, info.preferred_block) = (export.block(), export.preferred());
        info.contexts = vec![Context { id: ALLOCATION, name: BASE_ALLOCATION.to_owned() }];
        Some(info)
    }

    fn is_closing(&self) -> bool {
        self.stop.is_asked()
    }
}
