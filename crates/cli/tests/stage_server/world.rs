//! Several users of one host.
//!
//! Users are played by threads: on Linux identity belongs to a thread, and what a thread connects, makes and reads is
//! done with its own. Needs root.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use stage::{JobStatus, Level, StageError, Verb};
use stage_service::Client;

use super::spec;
use crate::common::{is_root, skipped};

pub const ALICE: u32 = 12345;
pub const BOB: u32 = 65534;

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

/// A place that all users can reach.
pub struct World {
    pub folder: tempfile::TempDir,
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
        let world = Self { folder };
        for (name, uid) in [("alice", ALICE), ("bob", BOB), ("root", 0)] {
            let home = world.at(name);
            std::fs::create_dir(&home).expect("mkdir");
            chown(&home, Some(uid), Some(uid)).expect("chown");
        }
        Some(world)
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of root's.
    pub fn secret(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.at(name);
        std::fs::write(&path, "the secret").expect("writes");
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("chmod");
        path
    }

    /// Asks for a move and waits for its end. A request that is refused at once has ended as well.
    pub fn ends(&self, socket: &Path, verb: Verb, from: &str, to: &str) -> Result<JobStatus, StageError> {
        let mut client = Client::connect(Some(socket))?;
        let id = client.submit(&spec(verb, self.folder.path(), from, to))?;
        client.wait(id, Level::Durable, None)
    }
}
