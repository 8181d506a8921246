//! nbdkit as a peer: a process that ends with its value. What is not installed is said aloud and skipped.
#![allow(dead_code)] // each test binary uses a part of it

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::rig::LONG;

pub struct Nbdkit {
    child: Child,
    address: String,
    _directory: tempfile::TempDir,
}

impl Nbdkit {
    /// Serves on a Unix socket.
    pub fn on_socket(arguments: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let place = ["--unix", socket.to_str().unwrap()];
        let address = format!("nbd+unix:///?socket={}", socket.display());
        Self::start(&place, arguments, directory, address)
    }

    /// Serves on a port of the loopback interface.
    pub fn on_port(arguments: &[&str]) -> Option<Self> {
        // Taken and given back, so that it is likely to be free.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (text, directory) = (port.to_string(), tempfile::tempdir().unwrap());
        let place = ["--ipaddr", "127.0.0.1", "--port", &text];
        let address = format!("nbd://127.0.0.1:{port}/");
        Self::start(&place, arguments, directory, address)
    }

    fn start(
        place: &[&str],
        arguments: &[&str],
        directory: tempfile::TempDir,
        address: String,
    ) -> Option<Self> {
        let pid = directory.path().join("pid");
        let child = Command::new("nbdkit")
            .args(["--foreground", "--exit-with-parent", "--threads", "4", "--pidfile"])
            .arg(&pid)
            .args(place)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                eprintln!("SKIP nbdkit: {error}");
                return None;
            }
        };
        let mut kit = Self { child, address, _directory: directory };
        let begun = Instant::now();
        // It writes its number once it listens; a connection to try that would use up what `limit=1` allows.
        while !pid.exists() {
            assert!(begun.elapsed() < LONG, "nbdkit does not begin");
            if let Ok(Some(status)) = kit.child.try_wait() {
                eprintln!("SKIP nbdkit {arguments:?}: {status}");
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Some(kit)
    }

    /// The device spec, with parameters behind it.
    pub fn spec(&self, parameters: &str) -> String {
        format!("{}{parameters}", self.address)
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
