//! Where the socket and the state directory are by default.
//!
//! State: `$STATE_DIRECTORY` (systemd sets it), `$XDG_STATE_HOME/flashwright/stage`, `~/.local/state/flashwright/stage`.
//! Socket: `$XDG_RUNTIME_DIR/flashwright/stage.sock`, else `stage.sock` in the state directory; of the unit
//! `flashwright-stage@USER` it is `/run/flashwright/USER/stage.sock`. A client connects to the socket that it is given
//! (`--socket`, `FLASHWRIGHT_STAGE_SOCKET`), else to its user's own, else to its user's unit's.

use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use stage::error::StageError;

/// Where systemd makes the sockets of `flashwright-stage@USER.socket`, in a directory for each user. Both directories are
/// root's, so that no user can put a socket there.
pub const UNIT_SOCKETS: &str = "/run/flashwright";
/// The variable that names a socket to clients.
pub const SOCKET_VARIABLE: &str = base::environment::STAGE_SOCKET;

/// How a client came to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Its user named it, by a flag or by [`SOCKET_VARIABLE`].
    Named,
    /// It is where a server of the user's would listen.
    Default,
}

/// The variables that decide, so that tests need not change the process's own.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// `STATE_DIRECTORY`.
    pub state_directory: Option<OsString>,
    /// `XDG_STATE_HOME`.
    pub xdg_state_home: Option<OsString>,
    /// `XDG_RUNTIME_DIR`.
    pub xdg_runtime_dir: Option<OsString>,
    /// `HOME`.
    pub home: Option<OsString>,
    /// [`SOCKET_VARIABLE`].
    pub socket: Option<OsString>,
}

impl Surroundings {
    /// This process's.
    #[must_use]
    pub fn here() -> Self {
        let get = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            state_directory: get("STATE_DIRECTORY"),
            xdg_state_home: get("XDG_STATE_HOME"),
            xdg_runtime_dir: get("XDG_RUNTIME_DIR"),
            home: get("HOME"),
            socket: get(SOCKET_VARIABLE),
        }
    }

    /// The state directory of a user's own server.
    ///
    /// # Errors
    /// No variable says where it is.
    pub fn state(&self) -> Result<PathBuf, StageError> {
        // systemd separates several by colons (systemd.exec(5)); the first is ours.
        if let Some(directories) = &self.state_directory
            && let Some(first) = std::env::split_paths(directories).next().filter(|path| path.is_absolute())
        {
            return Ok(first);
        }
        let xdg = self.xdg_state_home.as_ref().map(PathBuf::from).filter(|path| path.is_absolute());
        let home = self.home.as_ref().map(PathBuf::from).filter(|path| path.is_absolute());
        xdg.or_else(|| home.map(|home| home.join(".local/state")))
            .map(|base| base.join("flashwright/stage"))
            .ok_or_else(|| {
                StageError::invalid(
                    "--state: neither XDG_STATE_HOME nor HOME says where the journal is to be",
                    "name a directory: --state DIR",
                )
            })
    }

    /// The socket of a user's own server with this state directory, if it is not the usual one.
    ///
    /// # Errors
    /// [`StageError::Invalid`] if no variable says where it is, [`StageError::Refused`] if `XDG_RUNTIME_DIR` is another
    /// user's directory, or one that others can write to: whoever can put a socket there would be handed jobs.
    pub fn own_socket(&self, state: Option<&Path>) -> Result<PathBuf, StageError> {
        match (state, &self.xdg_runtime_dir) {
            (None, Some(runtime)) if Path::new(runtime).is_absolute() => {
                let runtime = storage::trust::runtime_directory(Path::new(runtime)).map_err(|error| {
                    StageError::refused(
                        format!("XDG_RUNTIME_DIR={error}"),
                        "name a socket: --socket PATH; or set XDG_RUNTIME_DIR to a directory of your own, of mode 0700",
                    )
                })?;
                Ok(runtime.join("flashwright/stage.sock"))
            }
            (Some(state), _) => Ok(state.join("stage.sock")),
            (None, _) => Ok(self.state()?.join("stage.sock")),
        }
    }

    /// The sockets that a client tries, the first that answers being the one, and whether its user named them.
    ///
    /// # Errors
    /// [`StageError::Refused`] of [`Self::own_socket`].
    pub fn tried(&self, named: Option<&Path>) -> Result<(Vec<PathBuf>, Choice), StageError> {
        if let Some(path) = named.or(self.socket.as_ref().map(Path::new)) {
            return Ok((vec![path.to_owned()], Choice::Named));
        }
        let own = match self.own_socket(None) {
            Err(refused @ StageError::Refused { .. }) => return Err(refused),
            own => own.ok(),
        };
        let user = rustix::process::geteuid().as_raw();
        let sockets = own.into_iter().chain(unit_sockets(Path::new(UNIT_SOCKETS), user)).collect();
        Ok((sockets, Choice::Default))
    }
}

/// The sockets of units that belong to this user (`SocketUser=`). The unit's name is not relied upon: it may be a user's
/// name or number, and the environment's `USER` may be another user's.
fn unit_sockets(directory: &Path, user: u32) -> Vec<PathBuf> {
    let units = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let sockets = units.map(|unit| unit.path().join("stage.sock"));
    let is_own = |path: &PathBuf| {
        std::fs::symlink_metadata(path)
            .is_ok_and(|facts| facts.file_type().is_socket() && facts.uid() == user)
    };
    let mut sockets: Vec<PathBuf> = sockets.filter(is_own).collect();
    sockets.sort();
    sockets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_where_systemd_xdg_or_home_say() {
        let mut around = Surroundings { home: Some("/home/u".into()), ..Surroundings::default() };
        assert_eq!(around.state().unwrap(), Path::new("/home/u/.local/state/flashwright/stage"));
        around.xdg_state_home = Some("relative".into());
        assert_eq!(around.state().unwrap(), Path::new("/home/u/.local/state/flashwright/stage"));
        around.xdg_state_home = Some("/s".into());
        assert_eq!(around.state().unwrap(), Path::new("/s/flashwright/stage"));
        around.state_directory = Some("/var/lib/a:/var/lib/b".into());
        assert_eq!(around.state().unwrap(), Path::new("/var/lib/a"));
        assert!(Surroundings::default().state().is_err());
    }

    #[test]
    fn a_client_asks_the_named_socket_or_its_own() {
        let mut around = Surroundings { home: Some("/home/u".into()), ..Surroundings::default() };
        around.xdg_runtime_dir = Some("/run/user/7".into());
        let own = PathBuf::from("/run/user/7/flashwright/stage.sock");
        let (tried, choice) = around.tried(None).unwrap();
        assert_eq!((&tried[0], choice), (&own, Choice::Default));
        around.socket = Some("/x".into());
        assert_eq!(around.tried(None).unwrap(), (vec![PathBuf::from("/x")], Choice::Named));
        let named = around.tried(Some(Path::new("/y"))).unwrap();
        assert_eq!(named, (vec![PathBuf::from("/y")], Choice::Named));
        assert_eq!(around.own_socket(Some(Path::new("/st"))).unwrap(), Path::new("/st/stage.sock"));
    }

    #[test]
    fn a_runtime_directory_that_others_can_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let run = tempfile::tempdir().unwrap();
        let runtime = Some(run.path().as_os_str().to_owned());
        let around = Surroundings { xdg_runtime_dir: runtime, home: Some("/u".into()), ..Default::default() };
        around.own_socket(None).unwrap();
        around.tried(None).unwrap();
        for mode in [0o770, 0o1777] {
            std::fs::set_permissions(run.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            for refused in [around.own_socket(None).map(drop), around.tried(None).map(drop)] {
                let error = refused.unwrap_err();
                assert!(matches!(error, StageError::Refused { .. }), "{error}");
                assert!(error.to_string().starts_with("XDG_RUNTIME_DIR=/"), "{error}");
            }
        }
        around.own_socket(Some(Path::new("/st"))).unwrap();
        around.tried(Some(Path::new("/y"))).unwrap();
    }

    #[test]
    fn a_client_finds_the_unit_of_its_user_and_no_other() {
        let run = tempfile::tempdir().unwrap();
        for unit in ["alice", "1000", "empty", "file"] {
            std::fs::create_dir(run.path().join(unit)).unwrap();
        }
        let socket = |unit: &str| run.path().join(unit).join("stage.sock");
        let _listeners = ["alice", "1000"].map(|unit| std::os::unix::net::UnixListener::bind(socket(unit)));
        std::fs::write(socket("file"), "").unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert_eq!(unit_sockets(run.path(), user), [socket("1000"), socket("alice")]);
        assert_eq!(unit_sockets(run.path(), user + 1), [] as [PathBuf; 0]);
        assert_eq!(unit_sockets(&run.path().join("none"), user), [] as [PathBuf; 0]);
    }
}
