//! Exports of other hosts over NBD: one [`Remote`] a device, shared by all that use it.
//!
//! What a user of an export gets is that of a drive: a request is done once, with its own bytes, or fails with a
//! reason; it never hangs, and a flush that succeeds covers every write that was acknowledged before it. What makes
//! this so, from below:
//!
//! 1. `replies` and `table` take an answer for a claim to check. What does not fit what was asked ends the
//!    connection and the use of the host: a server that was wrong once is not asked again.
//! 2. `link` is one connection. It never waits.
//! 3. `fleet` has the connections of one user to one or several exports. It sends, waits for any of them,
//!    replaces those that are lost, sends again what was under way on them, and puts an end to waiting.
//! 4. `durability` keeps the promise of a flush when connections were lost in between.
//! 5. `witness` sees that a host that comes back holds what it held, where whoever uses it has said how to tell.
//! 6. `device` is the plain path; the engine `nbd` ([`crate::engine`]) is the fast one. Both are users of a fleet.
//!
//! Requests may be sent again because each of them has the same effect twice as once: reads, writes of the same
//! bytes, discards. (As with the kernel's own client, a server that loses a connection and goes on working off what
//! came over it could do a write after its repetition was acknowledged.)

mod device;
mod durability;
mod error;
mod fleet;
mod link;
mod replies;
mod table;
mod waiter;
mod witness;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nbd::ExportInfo;
use nbd::client::{ConnectError, ConnectOptions, HandshakeError, Session, connect};
use nbd::uri::Uri;

pub use device::NbdDevice;
pub(crate) use durability::Handle;
pub use error::{RemoteError, told_by};
pub(crate) use error::{errno_of, io_error};
pub(crate) use fleet::Fleet;
pub(crate) use table::{Call, Command};
pub use witness::Witness;

use self::durability::Durability;

/// Connections for each job where the spec does not say and the server keeps several coherent.
const USUAL_CONNECTIONS: u32 = 4;
/// How long a server may be silent or gone, where the spec does not say.
const USUAL_TIMEOUT: Duration = Duration::from_secs(30);
/// The most data of one request, also where the server takes more: what is longer gains nothing.
const LARGEST: u32 = 32 << 20;

/// An export that was reached, and how to reach it again.
#[derive(Debug)]
pub struct Remote {
    uri: Uri,
    host: String,
    export: ExportInfo,
    timeout: Duration,
    connections: u32,
    durability: Arc<Durability>,
    /// Connections with nothing under way, for the next user.
    spare: Mutex<Vec<Session>>,
    /// What each new connection must show.
    witness: Mutex<Option<Arc<Witness>>>,
}

impl Remote {
    /// Connects to an export.
    ///
    /// # Errors
    /// [`RemoteError`] where that fails, or the export is not fit for what it is wanted for.
    pub(crate) fn open(uri: &Uri, for_writing: bool) -> Result<Self, RemoteError> {
        let host = uri.host();
        let timeout = uri.timeout().unwrap_or(USUAL_TIMEOUT);
        let session = connect(uri, &options(timeout))
            .map_err(|source| RemoteError::Connect { host: host.clone(), source: Box::new(source) })?;
        let export = session.export.clone();
        let asked = uri.connections();
        if for_writing && export.flags.read_only() {
            return Err(RemoteError::ReadOnly { host });
        }
        let coherent = export.flags.multi_conn();
        if let Some(connections) = asked.filter(|asked| *asked > 1 && for_writing && !coherent) {
            return Err(RemoteError::NotShared { host, connections });
        }
        let connections = asked.unwrap_or(if coherent { USUAL_CONNECTIONS } else { 1 });
        let remote = Self {
            uri: uri.clone(),
            host,
            export,
            timeout,
            connections,
            durability: Arc::default(),
            spare: Mutex::new(vec![session]),
            witness: Mutex::default(),
        };
        let needed = u64::from(remote.minimum());
        if remote.export.size < needed {
            return Err(RemoteError::TooSmall { host: remote.host, size: remote.export.size, needed });
        }
        Ok(remote)
    }

    /// Where it is: address and port, or socket.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What the server says of the export.
    #[must_use]
    pub fn export(&self) -> &ExportInfo {
        &self.export
    }

    /// Connections that each engine makes, where its depth allows it.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections
    }

    /// How long the server may be silent or gone.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How its connections are, by one that nobody uses just now.
    pub(crate) fn idle_connection(&self) -> Manner {
        let of =
            |session: &Session| Manner { tls: session.stream.tls_version(), structured: session.structured };
        self.spare().last().map(of).unwrap_or_default()
    }

    /// Smallest unit of requests, bytes.
    pub(crate) fn minimum(&self) -> u32 {
        self.export.minimum_block.max(1)
    }

    /// The most data of one request, bytes: a multiple of the smallest unit.
    pub(crate) fn maximum(&self) -> u32 {
        let maximum = self.export.maximum_block.min(LARGEST);
        (maximum - maximum % self.minimum()).max(self.minimum())
    }

    /// Has each new connection show what `witness` wants to see, or, without one, nothing any more.
    pub fn watch(&self, witness: Option<Witness>) {
        let fits = |witness: &Witness| witness.fits(self.minimum());
        *self.witness.lock().unwrap_or_else(PoisonError::into_inner) = witness.filter(fits).map(Arc::new);
    }

    /// Refuses an export whose bytes are not what they must be.
    fn is_witnessed(&self, session: &mut Session, within: Duration) -> Result<(), Again> {
        let witness = self.witness.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(witness) = witness else { return Ok(()) };
        let host = || self.host.clone();
        match witness.question(session, Instant::now() + within) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(what)) => Err(Again::Changed(RemoteError::Changed { host: host(), what })),
            Err(source) => {
                let source = HandshakeError::Io(source);
                Err(Again::Failed(Box::new(ConnectError::Handshake { host: host(), source })))
            }
        }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Session>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that nobody uses, or a new one.
    fn session(&self) -> Result<Session, RemoteError> {
        if let Some(session) = self.spare().pop() {
            return Ok(session);
        }
        self.again(self.timeout).map_err(|failed| match failed {
            Again::Failed(source) => RemoteError::Connect { host: self.host.clone(), source },
            Again::Changed(error) => error,
        })
    }

    /// Keeps a connection for the next user, unless enough are kept; then it is handed back.
    fn keep(&self, session: Session) -> Option<Session> {
        let mut spare = self.spare();
        if spare.len() >= self.connections as usize {
            return Some(session);
        }
        spare.push(session);
        None
    }

    /// A connection in the place of one that was lost; `within` bounds the attempt.
    fn again(&self, within: Duration) -> Result<Session, Again> {
        let mut session =
            connect(&self.uri, &options(within)).map_err(|error| Again::Failed(error.into()))?;
        self.is_the_same(&session.export).map_err(Again::Changed)?;
        self.is_witnessed(&mut session, within)?;
        Ok(session)
    }

    /// Refuses an export that is not what it was.
    fn is_the_same(&self, now: &ExportInfo) -> Result<(), RemoteError> {
        let before = &self.export;
        let mut what = Vec::new();
        let mut compare = |name: &str, before: String, now: String| {
            if before != now {
                what.push(format!("its {name} was {before} and is {now}"));
            }
        };
        compare("size", before.size.to_string(), now.size.to_string());
        compare("flags", format!("{:?}", before.flags), format!("{:?}", now.flags));
        let blocks = |info: &ExportInfo| {
            format!("{}/{}/{}", info.minimum_block, info.preferred_block, info.maximum_block)
        };
        compare("block sizes", blocks(before), blocks(now));
        // Servers of memory put into it what tells one incarnation from the next.
        compare("description", format!("{:?}", before.description), format!("{:?}", now.description));
        if what.is_empty() {
            return Ok(());
        }
        Err(RemoteError::Changed { host: self.host.clone(), what: what.join(", ") })
    }

    /// A user of the export, who has not written yet.
    pub(crate) fn handle(&self) -> Handle {
        Handle::new(Arc::clone(&self.durability))
    }
}

/// What was agreed on for a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// The version of TLS, where there is any.
    pub tls: Option<&'static str>,
    /// Whether replies to reads come in chunks.
    pub structured: bool,
}

/// Why a connection was not replaced.
enum Again {
    /// Perhaps the next attempt fares better.
    Failed(Box<ConnectError>),
    /// It never will.
    Changed(RemoteError),
}

fn options(timeout: Duration) -> ConnectOptions {
    ConnectOptions {
        connect_timeout: timeout,
        handshake_timeout: timeout,
        allocation: false,
        ..ConnectOptions::default()
    }
}
