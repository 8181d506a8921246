//! Several users of one host, and the system's service.
//!
//! Users are played by threads: on Linux identity belongs to a thread, and what a thread connects, makes and reads is
//! done with its own. Needs root.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use stage::service::Client;
use stage::{JobStatus, Level, StageError, State, Verb};

use super::{Server, spec};
use crate::common::{is_root, skipped};

pub const ALICE: u32 = 12345;
pub const BOB: u32 = 65534;
pub const STAFF: u32 = 23456;

/// Does something as somebody else, in a thread that is nobody else afterwards.
pub fn by<T: Send>(uid: u32, groups: &[u32], work: impl FnOnce() -> T + Send) -> T {
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
            set_thread_groups(&groups).expect("setgroups");
            set_thread_res_gid(group, group, group).expect("setresgid");
            set_thread_res_uid(user, user, user).expect("setresuid");
            work()
        });
        thread.join().expect("no panic")
    })
}

/// A place that all users can reach, and the system's service.
pub struct World {
    pub folder: tempfile::TempDir,
    pub server: Option<Server>,
}

impl World {
    /// None, having said so, where the tests may not play other users.
    pub fn new() -> Option<Self> {
        if !is_root() {
            skipped("SKIP rights of other users: not root");
            return None;
        }
        // Directories above the build may be closed to others.
        let folder = tempfile::tempdir_in("/var/tmp").expect("a directory");
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("chmod");
        let mut world = Self { folder, server: None };
        for (name, uid) in [("alice", ALICE), ("bob", BOB), ("root", 0)] {
            let home = world.at(name);
            std::fs::create_dir(&home).expect("mkdir");
            chown(&home, Some(uid), Some(uid)).expect("chown");
        }
        world.start();
        Some(world)
    }

    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    /// Begins the service, with more flags.
    pub fn start_with(&mut self, more: &[&str]) {
        let flags = ["--system", "--state", "state", "--socket", "run/stage.sock", "--worker-idle", "1s"];
        let server = Server::command(self.folder.path(), &[&flags, more].concat());
        // As the unit has it: what must be open to users is opened by the server itself.
        let mut command = Command::new("sh");
        command
            .args(["-c", "umask 077; exec \"$@\"", "sh"])
            .arg(server.get_program())
            .args(server.get_args());
        command.current_dir(self.folder.path()).env_remove("STATE_DIRECTORY").env_remove("FLASHWRIGHT_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        self.server = Some(Server::spawn_at(self.at("run/stage.sock"), command));
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn client(&self) -> Client {
        self.server().client()
    }

    /// A file of root's.
    pub fn secret(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.at(name);
        std::fs::write(&path, "the secret").expect("writes");
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("chmod");
        path
    }

    /// Asks for a move and waits for its end. A request that is refused at once has ended as well.
    pub fn ends(&self, verb: Verb, from: &str, to: &str) -> Result<JobStatus, StageError> {
        let mut client = self.client();
        let id = client.submit(&spec(verb, self.folder.path(), from, to))?;
        client.wait(id, Level::Durable, None)
    }

    /// It was not done, by whatever way.
    pub fn is_denied(&self, verb: Verb, from: &str, to: &str) {
        match self.ends(verb, from, to) {
            Ok(job) => assert_eq!(job.state, State::Failed, "{from} to {to}: {job:?}"),
            Err(error) => assert!(matches!(error, StageError::Answered(_)), "{from} to {to}: {error}"),
        }
    }
}
