//! A `stage serve` for tests, which ends with them.
#![allow(dead_code)] // each test binary uses its part

pub mod world;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use stage::{JobSpec, Options, Place, Verb};
use stage_service::Client;

use crate::common::{command, ended, signal, wait_until};

/// A server that runs.
pub struct Server {
    pub child: Child,
    pub socket: PathBuf,
}

impl Server {
    /// `stage serve` with flags; `--state state` puts its socket at `state/stage.sock`.
    pub fn command(folder: &Path, flags: &[&str]) -> Command {
        let mut command = command(folder, &[&["stage", "serve"], flags].concat());
        for variable in
            ["XDG_RUNTIME_DIR", "STATE_DIRECTORY", "NOTIFY_SOCKET", "LISTEN_FDS", "FLASHWRIGHT_LOG"]
        {
            command.env_remove(variable);
        }
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    pub fn start(folder: &Path, flags: &[&str]) -> Self {
        Self::spawn(folder, Self::command(folder, flags))
    }

    /// Starts it, and waits until it answers at `state/stage.sock`.
    pub fn spawn(folder: &Path, command: Command) -> Self {
        Self::spawn_at(folder.join("state/stage.sock"), command)
    }

    pub fn spawn_at(socket: PathBuf, mut command: Command) -> Self {
        let mut server = Self { child: command.spawn().expect("the binary runs"), socket };
        wait_until("the server", || {
            if let Ok(Some(status)) = server.child.try_wait() {
                panic!("the server ended with {status}: {}", server.log());
            }
            Client::connect(Some(&server.socket)).is_ok()
        });
        server
    }

    pub fn client(&self) -> Client {
        Client::connect(Some(&self.socket)).expect("the server answers")
    }

    /// Ends it as systemd does: the exit code, and what it has logged.
    pub fn end(self) -> (i32, String) {
        signal(&self.child, "-TERM");
        self.reap()
    }

    /// Waits for its end: the exit code, and what it has logged.
    pub fn reap(mut self) -> (i32, String) {
        let log = self.log();
        (ended(&mut self.child).code().unwrap_or(-1), log)
    }

    /// As a power cut ends it.
    pub fn kill(mut self) {
        self.child.kill().expect("can be killed");
        ended(&mut self.child);
    }

    /// Everything that it has logged, once nobody writes to the log any more.
    fn log(&mut self) -> String {
        let mut log = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut log);
        }
        log
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job between two names in a folder.
pub fn spec(verb: Verb, folder: &Path, from: &str, to: &str) -> JobSpec {
    JobSpec {
        verb,
        source: Place::of_path(&folder.join(from)).expect("a path"),
        destination: Place::of_path(&folder.join(to)).expect("a path"),
        options: Options::default(),
    }
}
