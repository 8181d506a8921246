//! Devices served over NBD by this process, over loopback or a Unix socket.

use std::io::PipeWriter;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread::JoinHandle;

use serve::{Allowed, Export, Options, ServeError, Server, Summary};

use crate::rig::writing;

/// This process is its own host, and is not lost where the machine has other things to do for a while.
const PATIENCE: &str = "timeout=600";

/// A server with one export; gone with its value.
pub struct Served {
    /// The device spec of the export.
    pub spec: String,
    /// The server ends when this is closed.
    stop: Option<PipeWriter>,
    server: Option<JoinHandle<Result<Summary, ServeError>>>,
}

impl Served {
    /// At a port of loopback.
    pub fn on_loopback(device: &str, direct: bool) -> Self {
        let mut server = server(device, direct);
        let address = server.listen(([127, 0, 0, 1], 0).into()).expect("a free port");
        Self::begin(server, format!("nbd://{address}/model?{PATIENCE}"))
    }

    /// At a Unix socket.
    pub fn on_socket(socket: &Path, device: &str, direct: bool) -> Self {
        let mut server = server(device, direct);
        server.listen_unix(socket, &Allowed::default()).expect("a socket");
        Self::begin(server, format!("nbd+unix:///model?socket={}&{PATIENCE}", socket.display()))
    }

    fn begin(server: Server, spec: String) -> Self {
        let (told, stop) = std::io::pipe().expect("a pipe");
        let server = std::thread::spawn(move || server.run(told.as_fd()));
        Self { spec, stop: Some(stop), server: Some(server) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop = None;
        let ended = self.server.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(Ok(_)))), "{}: {ended:?}", self.spec);
        }
    }
}

/// A server of what a spec names, where nobody reaches it yet.
fn server(device: &str, direct: bool) -> Server {
    let open = crate::rig::open(device, &writing(direct)).unwrap_or_else(|error| panic!("{device}: {error}"));
    let export = Export { name: "model".into(), description: device.into(), device: open, writable: true };
    Server::new(export, Options { max_connections: 64, tls: None }, |_| {}).expect("a server")
}
