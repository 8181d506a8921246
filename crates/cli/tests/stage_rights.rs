//! Whom a user's server answers, alone and under systemd. Needs root, which plays the users.

mod common;
mod stage_server;

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{skipped, tool};
use stage::{State, Verb};
use stage_server::Server;
use stage_server::world::{ALICE, BOB, World, by};
use stage_service::{Client, ServiceError};

/// The server of `alice`, who may run the binary nowhere but here.
fn alices(world: &World, wrapper: &str) -> Command {
    let binary = world.at("flashwright");
    common::install(Path::new(env!("CARGO_BIN_EXE_flashwright")), &binary);
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={ALICE}"), &format!("--regid={ALICE}"), "--clear-groups", "--"]);
    command.args(["sh", "-c", wrapper, "sh"]).arg(&binary);
    command.args(["stage", "serve", "--state", "alice/state"]).current_dir(world.folder.path());
    command.env_remove("STATE_DIRECTORY").env_remove("FLASHWRIGHT_LOG").stderr(Stdio::piped());
    command
}

/// What a stranger is told who does not mind whose server it is.
fn is_turned_away(socket: &Path) {
    let mut stream = UnixStream::connect(socket).expect("the mode lets it");
    let _ = stream.write_all(b"{\"op\":\"status\"}\n");
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    assert!(text.contains("this server works for uid 12345, and 65534 asks"), "{text}");
}

#[test]
fn a_users_own_server_answers_nobody_else() {
    let Some(world) = World::new() else { return };
    // A project's directory, of its head and the group of its members.
    chown(world.at("alice"), Some(BOB), Some(ALICE)).expect("chown");
    std::fs::set_permissions(world.at("alice"), Permissions::from_mode(0o775)).expect("chmod");
    let socket = world.at("alice/state/stage.sock");
    let server = Server::spawn_at(socket.clone(), alices(&world, "exec \"$@\""));
    by(ALICE, &[], || assert_eq!(Client::connect(Some(&socket)).expect("is answered").server().uid, ALICE));
    let ask = || Client::connect(Some(&socket)).expect_err("is refused");
    by(BOB, &[], || assert!(ServiceError::is_no_server(&ask()), "the directory is closed"));
    // Even with the directory and the socket opened by mistake, the kernel says who asks.
    std::fs::set_permissions(world.at("alice/state"), Permissions::from_mode(0o755)).expect("chmod");
    std::fs::set_permissions(&socket, Permissions::from_mode(0o666)).expect("chmod");
    by(BOB, &[], || {
        assert!(ask().to_string().contains("uid 12345 listens there"), "clients do not talk to strangers");
        is_turned_away(&socket);
    });
    assert_eq!(server.end().0, 0);
}

#[test]
fn roots_client_asks_another_users_server_only_where_it_is_named() {
    let Some(world) = World::new() else { return };
    let socket = world.at("root/flashwright/stage.sock");
    std::fs::create_dir(world.at("root/flashwright")).expect("mkdir");
    chown(world.at("root/flashwright"), Some(ALICE), Some(ALICE)).expect("chown");
    std::fs::set_permissions(world.at("root/flashwright"), Permissions::from_mode(0o700)).expect("chmod");
    let mut command = alices(&world, "exec \"$@\"");
    command.arg("--socket").arg(&socket);
    let server = Server::spawn_at(socket.clone(), command);
    let ask = |flags: &[&str], runtime: &Path| {
        let mut command = common::command(world.folder.path(), &[&["stage", "status"], flags].concat());
        command.env_remove("FLASHWRIGHT_STAGE_SOCKET").env("HOME", world.at("root"));
        common::finish(command.env("XDG_RUNTIME_DIR", runtime))
    };
    let came = ask(&[], &world.at("root"));
    assert_eq!(came.code, 3, "{came:?}");
    assert!(came.err.contains("stage.sock: uid 12345 listens there\nhint: "), "{came:?}");
    let came = ask(&["--socket", socket.to_str().expect("UTF-8")], &world.at("root"));
    assert_eq!(came.code, 0, "{came:?}");
    // Their runtime directory, which root's shell may have kept, is not root's.
    let came = ask(&[], &world.at("alice"));
    assert_eq!(came.code, 3, "{came:?}");
    assert!(came.err.contains("belongs to uid 12345, and this is uid 0"), "{came:?}");
    assert_eq!(server.end().0, 0);
}

#[test]
fn the_unit_of_a_user_works_with_that_users_rights_for_that_user_alone() {
    let Some(world) = World::new() else { return };
    world.secret("root/file", 0o600);
    // As the units have it: root makes the socket and listens, the user's process is handed the descriptor.
    std::fs::create_dir(world.at("run")).expect("mkdir");
    let socket = world.at("run/stage.sock");
    let listener = UnixListener::bind(&socket).expect("binds");
    chown(&socket, Some(ALICE), None).expect("chown");
    std::fs::set_permissions(&socket, Permissions::from_mode(0o600)).expect("chmod");
    let mut command = alices(&world, "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\" 3<&0 </dev/null");
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)));
    let server = Server::spawn_at(socket.clone(), command);
    by(ALICE, &[], || {
        std::fs::write(world.at("alice/file"), "hers").expect("writes");
        let ends = |from: &str, to: &str| world.ends(&socket, Verb::Copy, from, to);
        assert_eq!(ends("alice/file", "alice/copy").expect("is answered").state, State::Done);
        for (from, to) in [("root/file", "alice/stolen"), ("alice/file", "bob/planted")] {
            if let Ok(job) = ends(from, to) {
                assert_eq!(job.state, State::Failed, "{from} to {to}: {job:?}");
            }
            assert!(!world.at(to).exists(), "{to}");
        }
    });
    by(BOB, &[], || {
        assert!(Client::connect(Some(&socket)).is_err_and(|error| ServiceError::is_no_server(&error)))
    });
    std::fs::set_permissions(&socket, Permissions::from_mode(0o666)).expect("chmod");
    by(BOB, &[], || is_turned_away(&socket));
    assert_eq!(server.end().0, 0);
}

#[test]
fn whoever_sees_other_files_under_the_same_paths_is_refused() {
    let Some(world) = World::new() else { return };
    if tool("unshare", &["--mount", "true"]).is_none() {
        return skipped("SKIP mount namespaces: unshare(1) cannot make one here");
    }
    let server = Server::start(world.folder.path(), &["--state", "state"]);
    let mut command = Command::new("unshare");
    command.arg("--mount").arg(std::env::current_exe().expect("this program"));
    command.args(["--exact", "child_asks_from_where_it_is", "--nocapture"]);
    let output = command.env("ASK_AT", &server.socket).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("ANSWER: the caller's paths are not the server's"), "{said}");
}

/// No test by itself: what the one above runs elsewhere.
#[test]
fn child_asks_from_where_it_is() {
    let Some(socket) = std::env::var_os("ASK_AT") else { return };
    match Client::connect(Some(Path::new(&socket))) {
        Ok(_) => println!("ANSWER: let in"),
        Err(error) => println!("ANSWER: {error}"),
    }
}

#[test]
fn systemd_finds_no_fault_with_the_units() {
    if tool("systemd-analyze", &["--version"]).is_none() {
        return skipped("SKIP units: no systemd-analyze(1)");
    }
    let folder = tempfile::tempdir().expect("a directory");
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/systemd");
    let mut names = Vec::new();
    for unit in std::fs::read_dir(&units).expect("lists").flatten().filter(|unit| unit.path().is_file()) {
        let text = std::fs::read_to_string(unit.path()).expect("reads");
        let name = unit.file_name().into_string().expect("a name").replace('@', "@daemon");
        // An instance by its own file, with a program that is there.
        let text = text.replace("/usr/local/bin/flashwright", "/bin/true").replace("%i", "daemon");
        std::fs::write(folder.path().join(&name), text).expect("writes");
        names.push(name);
    }
    assert_eq!(names.len(), 2, "{names:?}");
    let mut command = Command::new("systemd-analyze");
    let output = command.args(["verify", "--man=no"]).args(&names).current_dir(folder.path()).output();
    let output = output.expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("flashwright"), "{said}");
}
