//! What serving memory and serving devices have in common: listeners, the line that says ready, the end.

pub mod announce;
pub mod args;
pub mod listen;

use std::io::{self, PipeReader};
use std::os::fd::AsFd;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ::serve::{Allowed, Event, Export, Options, ServeError, Server};
use base::ErrorClass;
use nbd::tls::{Clients, ServerTls};
use schemars::JsonSchema;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use storage::device::Device;

use self::announce::Announcement;
use self::args::ServeArgs;
use crate::failure::Failure;
use crate::{output, paint};

/// Failed requests that are told one by one; of a broken drive there may be millions.
const TOLD: u64 = 20;

/// What is said when a server is ready, as one JSON document.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Serving {
    /// `flashwright.serve/1`.
    pub schema: String,
    /// Where it is found, one for each listener.
    pub uris: Vec<String>,
    /// The export's name; empty for the default export.
    pub export: String,
    /// What is served, as a device spec.
    pub target: String,
    /// Bytes.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether TLS is demanded.
    pub tls: bool,
    /// Of memory: bytes of it in huge pages.
    pub huge_page_bytes: Option<u64>,
    /// Bytes loaded from `--file`.
    pub loaded_bytes: Option<u64>,
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        Self::of(ErrorClass::Failed, &error).hint_if(error.hint())
    }
}

/// What is to be served.
#[derive(Debug)]
pub struct Subject {
    /// The device.
    pub device: Arc<dyn Device>,
    /// For people: `8 GiB of memory`.
    pub description: String,
    /// Bytes loaded from a file, where there is one.
    pub loaded_bytes: Option<u64>,
}

/// A request that was checked: where the socket will be, and the keys, which are read once (a pipe has them once).
pub struct Checked {
    socket: Option<PathBuf>,
    tls: Option<ServerTls>,
}

/// Checks what can be checked of a request before memory is taken or a device is opened for it.
///
/// # Errors
/// A [`Failure`] that names flag and value.
pub fn check(args: &ServeArgs) -> Result<Checked, Failure> {
    listen::check(args)?;
    Ok(Checked { socket: listen::socket(args)?, tls: tls(args)? })
}

/// Serves until a signal comes, and says how many connections there were.
pub fn serve(args: &ServeArgs, checked: Checked, subject: &Subject) -> Result<u64, Failure> {
    let stop = stop_pipe()?;
    let export = Export {
        name: args.export.clone(),
        description: subject.description.clone(),
        device: Arc::clone(&subject.device),
        writable: !args.read_only,
    };
    let options = Options { max_connections: args.max_connections as usize, tls: checked.tls };
    let teller = Teller::default();
    let mut server = Server::new(export, options, move |event| teller.tell(event))?;
    let mut places = Vec::new();
    for address in &args.listen {
        places.push(announce::place(server.listen(*address)?));
    }
    if let Some(path) = &checked.socket {
        let allowed = Allowed { users: args.allow_user.clone(), groups: args.allow_group.clone() };
        server.listen_unix(path, &allowed)?;
    }
    let announced = args.announce.as_deref().map(|path| Announcement::make(path, &places)).transpose()?;
    say_ready(args, subject, &uris(args, &places, checked.socket.as_deref()))?;
    let summary = server.run(stop.as_fd())?;
    drop(announced);
    Ok(summary.connections)
}

/// What is said at the end.
pub fn summary(connections: u64) -> String {
    format!("served {}", units::counted(connections, "connection"))
}

/// Readable from the first signal that asks for an end. The second one ends the process there and then.
fn stop_pipe() -> Result<PipeReader, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("cannot listen for signals: {error}"));
    let (reader, writer) = io::pipe().map_err(failed)?;
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stopping))
            .map_err(failed)?;
        signal_hook::flag::register(signal, Arc::clone(&stopping)).map_err(failed)?;
        let writer = writer.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, writer).map_err(failed)?;
    }
    Ok(reader)
}

fn tls(args: &ServeArgs) -> Result<Option<ServerTls>, Failure> {
    let (flag, path, made) = match (&args.tls_psk, &args.tls_certificates) {
        (Some(file), _) => ("--tls-psk", file, ServerTls::psk(file)),
        (None, Some(directory)) => {
            ("--tls-certificates", directory, ServerTls::certificates(directory, &clients(args)))
        }
        (None, None) => return Ok(None),
    };
    made.map(Some).map_err(|error| {
        Failure::invalid(format!("{flag}={}: {}", path.display(), base::with_causes(&error)))
            .hint("docs/nbd.md says how keys (psktool -u NAME -p FILE) and certificates are made")
            .hint_if(error.hint())
    })
}

/// Whom a server with a certificate lets in.
fn clients(args: &ServeArgs) -> Clients {
    match (args.tls_anonymous, args.tls_authorize.as_slice()) {
        (true, _) => Clients::Anonymous,
        (false, []) => Clients::Certified,
        (false, names) => Clients::Named(names.to_vec()),
    }
}

fn say_ready(args: &ServeArgs, subject: &Subject, uris: &[String]) -> Result<(), Failure> {
    if !args.json {
        let lines: String = uris.iter().map(|uri| format!("ready: {uri}\n")).collect();
        return output::print(&lines);
    }
    let serving = Serving {
        schema: "flashwright.serve/1".to_owned(),
        uris: uris.to_vec(),
        export: args.export.clone(),
        target: subject.device.spec().to_owned(),
        size_bytes: subject.device.size(),
        read_only: args.read_only || !subject.device.is_writable(),
        tls: args.tls_psk.is_some() || args.tls_certificates.is_some(),
        huge_page_bytes: subject.device.memory().map(storage::memory::SharedMemory::huge_bytes),
        loaded_bytes: subject.loaded_bytes,
    };
    output::print_document(&serving)
}

/// Where clients find it. What they need for TLS is theirs to add.
fn uris(args: &ServeArgs, places: &[String], socket: Option<&Path>) -> Vec<String> {
    let export = nbd::uri::encode(&args.export);
    let scheme = if args.tls_psk.is_some() || args.tls_certificates.is_some() { "nbds" } else { "nbd" };
    let mut uris: Vec<String> = places.iter().map(|place| format!("{scheme}://{place}/{export}")).collect();
    if let Some(path) = socket {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        uris.push(format!("{scheme}+unix:///{export}?socket={}", nbd::uri::encode(&path.to_string_lossy())));
    }
    uris
}

/// Says what goes wrong, on standard error.
#[derive(Debug, Default)]
struct Teller {
    requests: AtomicU64,
}

impl Teller {
    fn tell(&self, event: &Event<'_>) {
        match event {
            Event::Failed { peer, command, offset, length, cause } => {
                let told = self.requests.fetch_add(1, Ordering::Relaxed);
                if told < TOLD {
                    let cause = base::with_causes(*cause);
                    say(&format!("{peer}: {command} of {length} bytes at offset {offset} failed: {cause}"));
                } else if told == TOLD {
                    say("more requests have failed and are not told one by one");
                }
            }
            Event::Ended { peer, ending } if !ending.is_orderly() => {
                say(&format!("{peer}: {}", base::with_causes(*ending)))
            }
            Event::Full { peer, most } => {
                say(&format!("{peer}: turned away, because {most} connections are open (--max-connections)"));
            }
            Event::Stranger { peer } => say(&format!("{peer}: turned away (--allow-user, --allow-group)")),
            Event::NotAccepted { cause } => say(&format!("a connection could not be taken: {cause}")),
            Event::Begun { .. } | Event::Ended { .. } => {}
        }
    }
}

fn say(words: &str) {
    output::tell(&format!("{} {words}\n", paint::warn("note:")));
}
