//! What the system's service must not do for anybody: more than they could do themselves. Needs root.

mod common;
mod stage_server;

use std::collections::HashMap;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use common::{skipped, tool, wait_until};
use stage::service::Client;
use stage::{ErrorClass, StageError, State, Verb};
use stage_server::world::{ALICE, BOB, STAFF, World, by};
use stage_server::{Server, spec};

#[test]
fn nobody_reads_through_the_server_what_they_could_not_read() {
    let Some(world) = World::new() else { return };
    world.secret("root/file", 0o600);
    std::fs::create_dir(world.at("root/closed")).expect("mkdir");
    world.secret("root/closed/file", 0o644);
    std::fs::set_permissions(world.at("root/closed"), Permissions::from_mode(0o700)).expect("chmod");
    by(BOB, &[], || std::fs::write(world.at("bob/mail"), "private").expect("writes"));
    std::fs::set_permissions(world.at("bob/mail"), Permissions::from_mode(0o600)).expect("chmod");

    by(ALICE, &[], || {
        // By their names, through a link in a tree, and through a link on the way.
        for (name, target) in [("link", "root/file"), ("way", "root/closed")] {
            symlink(world.at(target), world.at(&format!("alice/{name}"))).expect("links");
        }
        std::fs::create_dir(world.at("alice/tree")).expect("mkdir");
        symlink(world.at("root/file"), world.at("alice/tree/link")).expect("links");
        for from in ["root/file", "root/closed", "root/closed/file", "bob/mail", "alice/way/file"] {
            world.is_denied(Verb::Copy, from, "alice/stolen");
            assert!(!world.at("alice/stolen").exists(), "{from}");
        }
        // A link in a tree is copied as a link, whatever it leads to.
        let job = world.ends(Verb::Copy, "alice/tree", "alice/copy").expect("is answered");
        assert_eq!(job.state, State::Done, "{job:?}");
        let copied = std::fs::symlink_metadata(world.at("alice/copy/link")).expect("is there");
        assert!(copied.file_type().is_symlink());
    });
    let stolen = tool("grep", &["-rl", "the secret", &world.at("alice").display().to_string()]);
    assert_eq!(stolen, None, "grep as root follows links on the command line alone");
}

#[test]
fn nobody_writes_or_removes_through_the_server_what_they_could_not() {
    let Some(world) = World::new() else { return };
    world.secret("root/readable", 0o644);
    by(BOB, &[], || std::fs::write(world.at("bob/readable"), "bob's").expect("writes"));
    by(ALICE, &[], || {
        std::fs::write(world.at("alice/file"), "mine").expect("writes");
        symlink(world.at("bob"), world.at("alice/to-bob")).expect("links");
        for to in ["root/planted", "bob/planted", "alice/to-bob/planted", "planted", "state/users/planted"] {
            world.is_denied(Verb::Copy, "alice/file", to);
            assert!(!world.at(to).exists(), "{to}");
        }
        // What may be read and not removed is copied, and stays: a move is told so.
        for (from, to) in [("root/readable", "alice/one"), ("bob/readable", "alice/two")] {
            if let Ok(job) = world.ends(Verb::Move, from, to) {
                assert!(job.error.is_some(), "{from}: {job:?}");
            }
            assert!(world.at(from).exists(), "{from} was removed");
        }
    });
    let names = |of: &str| std::fs::read_dir(world.at(of)).expect("lists").count();
    assert_eq!((names("root"), names("bob")), (1, 1), "no part is left there either");
}

#[test]
fn nobody_sees_or_ends_the_jobs_of_others() {
    let Some(world) = World::new() else { return };
    let id = by(ALICE, &[], || {
        std::fs::write(world.at("alice/a"), "mine").expect("writes");
        world.ends(Verb::Copy, "alice/a", "alice/b").expect("is answered").id
    });
    for uid in [BOB, 0] {
        by(uid, &[], || {
            let mut client = world.client();
            assert_eq!(client.server().uid, uid);
            assert_eq!(client.status(None).expect("is answered"), []);
            for error in [client.cancel(id), client.retry(id)] {
                assert_eq!(error.expect_err("is refused").class(), ErrorClass::Invalid);
            }
            assert!(client.metrics().expect("is answered").contains("jobs{state=\"done\"} 0\n"));
        });
    }
    // Nor do they get at the journal by its path.
    let journals: Vec<_> = std::fs::read_dir(world.at("state/users")).expect("lists").flatten().collect();
    // Root's may be two: with and without the groups of whoever runs the tests.
    assert!(journals.len() >= 3);
    for journal in journals {
        let facts = journal.metadata().expect("stat");
        assert_eq!(facts.mode() & 0o777, 0o700);
        let others = if facts.uid() == ALICE { BOB } else { ALICE };
        by(others, &[], || assert!(std::fs::read_dir(journal.path()).is_err()));
    }
    by(ALICE, &[], || assert_eq!(world.client().status(None).expect("is answered").len(), 1));
}

#[test]
fn a_worker_has_its_users_rights_and_nothing_else() {
    let Some(world) = World::new() else { return };
    let (pid, home) = by(ALICE, &[STAFF, 77], || {
        let client = world.client();
        (client.server().pid, client.server().state.0.clone())
    });
    assert_ne!(pid, world.server().child.id());
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let fields: HashMap<&str, String> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name, value.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect();
    let nothing = "0000000000000000";
    for (name, value) in [
        ("Uid", "12345 12345 12345 12345"),
        ("Gid", "12345 12345 12345 12345"),
        ("Groups", "77 23456"),
        ("CapEff", nothing),
        ("CapPrm", nothing),
        ("CapInh", nothing),
        ("CapAmb", nothing),
        ("NoNewPrivs", "1"),
    ] {
        assert_eq!(fields[name], value, "{name}");
    }
    // All threads of it, and nothing of the service's environment.
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("lists").flatten() {
        let text = std::fs::read_to_string(task.path().join("status")).expect("it runs");
        assert!(text.contains("Uid:\t12345\t12345\t12345\t12345\n"), "{text}");
    }
    let variables = std::fs::read(format!("/proc/{pid}/environ")).expect("root may read it");
    assert!(!String::from_utf8_lossy(&variables).contains("PATH="));
    // Its user may not look into it: not dumpable, so that its files in /proc are root's.
    by(ALICE, &[], || assert!(std::fs::read(format!("/proc/{pid}/environ")).is_err()));
    assert!(home.starts_with(world.at("state/users")));
}

#[test]
fn groups_count_as_they_were_when_the_user_connected() {
    let Some(world) = World::new() else { return };
    let shared = world.secret("root/shared", 0o640);
    chown(&shared, Some(0), Some(STAFF)).expect("chown");
    by(ALICE, &[], || world.is_denied(Verb::Copy, "root/shared", "alice/without"));
    by(ALICE, &[STAFF], || {
        let job = world.ends(Verb::Copy, "root/shared", "alice/with").expect("is answered");
        assert_eq!(job.state, State::Done, "{job:?}");
    });
    let facts = std::fs::metadata(world.at("alice/with")).expect("is there");
    assert_eq!((facts.uid(), facts.gid()), (ALICE, ALICE));
}

#[test]
fn a_worker_that_is_killed_is_followed_by_another_and_idle_ones_go() {
    let Some(world) = World::new() else { return };
    let pid =
        || by(ALICE, &[], || Client::connect(Some(&world.server().socket)).map(|client| client.server().pid));
    let first = pid().expect("is answered");
    tool("kill", &["-KILL", &first.to_string()]).expect("kill works");
    // Whoever asks in the moment in which it dies may be cut off; whoever asks again is answered.
    wait_until("another worker", || pid().is_ok_and(|pid| pid != first));
    let second = pid().expect("is answered");
    wait_until("the worker to be retired", || !Path::new(&format!("/proc/{second}")).exists());
    wait_until("the register to forget", || {
        std::fs::read_dir(world.at("state/register")).expect("lists").count() == 0
    });
    pid().expect("is answered all the same");
}

#[test]
fn jobs_are_gone_on_with_after_a_restart_without_being_asked_for() {
    let Some(mut world) = World::new() else { return };
    by(ALICE, &[], || {
        std::fs::create_dir(world.at("alice/set")).expect("mkdir");
        for file in 0..300 {
            std::fs::write(world.at(&format!("alice/set/{file}")), vec![file as u8; 5000]).expect("writes");
        }
        world
            .client()
            .submit(&spec(Verb::Move, world.folder.path(), "alice/set", "alice/there"))
            .expect("accepted");
    });
    world.server.take().expect("it runs").kill();
    world.start();
    // The last thing that a move does is to remove its source.
    wait_until("the move to be finished", || !world.at("alice/set").exists());
    for file in 0..300 {
        let bytes = std::fs::read(world.at(&format!("alice/there/{file}"))).expect("is there");
        assert_eq!(bytes, vec![file as u8; 5000]);
    }
    let (code, log) = world.server.take().expect("it runs").end();
    assert_eq!(code, 0, "{log}");
}

#[test]
fn a_users_own_server_answers_nobody_else() {
    let Some(world) = World::new() else { return };
    // It runs as its user from the start, so it needs a binary that the user may run.
    let binary = world.at("flashwright");
    std::fs::copy(env!("CARGO_BIN_EXE_flashwright"), &binary).expect("copies");
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={ALICE}"), &format!("--regid={ALICE}"), "--clear-groups", "--"]);
    command.arg(&binary).args(["stage", "serve", "--state", "alice/state"]).current_dir(world.folder.path());
    command.stderr(Stdio::piped());
    let socket = world.at("alice/state/stage.sock");
    let server = Server::spawn_at(socket.clone(), command);
    by(ALICE, &[], || assert_eq!(Client::connect(Some(&socket)).expect("is answered").server().uid, ALICE));
    let ask = || Client::connect(Some(&socket)).expect_err("is refused");
    by(BOB, &[], || assert!(matches!(ask(), StageError::NoServer { .. }), "the directory is closed"));
    // Even with the directory and the socket opened by mistake, the kernel says who asks.
    std::fs::set_permissions(world.at("alice/state"), Permissions::from_mode(0o755)).expect("chmod");
    std::fs::set_permissions(&socket, Permissions::from_mode(0o666)).expect("chmod");
    by(BOB, &[], || {
        // Our client does not talk to strangers; one that would is turned away all the same.
        assert!(ask().to_string().contains("uid 12345 listens there"));
        let mut stream = UnixStream::connect(&socket).expect("the mode lets it");
        let _ = stream.write_all(b"{\"op\":\"status\"}\n");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        assert!(text.contains("this server works for uid 12345, and 65534 asks"), "{text}");
    });
    assert_eq!(server.end().0, 0);
}

#[test]
fn whoever_sees_other_files_under_the_same_paths_is_refused() {
    let Some(world) = World::new() else { return };
    if tool("unshare", &["--mount", "true"]).is_none() {
        return skipped("SKIP mount namespaces: unshare(1) cannot make one here");
    }
    let mut command = Command::new("unshare");
    command.arg("--mount").arg(std::env::current_exe().expect("this program"));
    command.args(["--exact", "child_asks_from_where_it_is", "--nocapture"]);
    let output = command.env("ASK_AT", world.at("run/stage.sock")).output().expect("runs");
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

/// A store that has nothing, and tells who signed each request.
fn store_that_tells_who_asks() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (send, asked) = channel();
    // It lives as long as the test's process does.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let who = head.split_once("Credential=").and_then(|(_, rest)| rest.split('/').next());
            let _ = send.send(who.unwrap_or("nobody").to_owned());
            let _ =
                stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (port, asked)
}

#[test]
fn a_worker_signs_with_the_keys_in_its_users_home_and_never_with_the_services() {
    let Some(world) = World::new() else { return };
    for program in ["nsenter", "setpriv"] {
        if tool(program, &["--version"]).is_none() {
            return skipped("SKIP a user with a home of their own: no nsenter(1) and setpriv(1)");
        }
    }
    if tool("unshare", &["--mount", "true"]).is_none() {
        return skipped(
            "SKIP a user with a home of their own: unshare(1) cannot make a mount namespace here",
        );
    }
    let (port, asked) = store_that_tells_who_asks();
    let home = world.at("alice");
    std::fs::create_dir(home.join(".aws")).expect("mkdir");
    let keys = "[default]\naws_access_key_id = ALICE\naws_secret_access_key = a\n\
                [other]\naws_access_key_id = OTHER\naws_secret_access_key = b\n";
    std::fs::write(home.join(".aws/credentials"), keys).expect("writes");
    let settings = format!("[default]\nregion = here\nendpoint_url = http://127.0.0.1:{port}\n");
    std::fs::write(
        home.join(".aws/config"),
        settings.clone() + &settings.replace("default", "profile other"),
    )
    .expect("writes");
    std::fs::write(home.join("data"), "x").expect("writes");
    let url = "s3://bucket/run/set?allow_http=true&retries=0";

    let binary = Server::command(world.folder.path(), &[]).get_program().to_owned();

    // A process of one's own: its home, and the profile that it names.
    for (profile, key) in [("default", "ALICE"), ("other", "OTHER")] {
        let mut verify = Command::new(&binary);
        verify.args(["stage", "verify", url]).env("HOME", &home).env("AWS_PROFILE", profile);
        let came = verify.env_remove("AWS_ACCESS_KEY_ID").output().expect("runs");
        assert_eq!(came.status.code(), Some(1), "{came:?}");
        assert_eq!(asked.recv().expect("it has asked"), key);
        while asked.try_recv().is_ok() {}
    }

    // Under the system's service, in a place where this user has a home.
    let users = std::fs::read_to_string("/etc/passwd").expect("reads");
    let users = format!("{users}alice:x:{ALICE}:{ALICE}::{}:/bin/sh\n", home.display());
    std::fs::write(world.at("passwd"), users).expect("writes");
    let socket = world.at("own/stage.sock");
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", "mount --bind passwd /etc/passwd && exec \"$@\"", "sh"])
        .arg(&binary);
    command.args(["stage", "serve", "--system", "--state", "own-state", "--socket"]).arg(&socket);
    command.current_dir(world.folder.path()).env_remove("STATE_DIRECTORY");
    command.env("AWS_ACCESS_KEY_ID", "SERVICE").env("AWS_SECRET_ACCESS_KEY", "c");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Server { child: command.spawn().expect("runs"), socket: socket.clone() };
    let pid = server.child.id().to_string();
    let alice = |arguments: &[&str]| {
        let mut client = Command::new("nsenter");
        client.args(["--mount", "--target", &pid, "setpriv", "--reuid", &ALICE.to_string()]);
        client
            .args(["--regid", &ALICE.to_string(), "--clear-groups"])
            .arg(&binary)
            .arg("stage")
            .args(arguments);
        client.arg("--socket").arg(&socket).env("AWS_ACCESS_KEY_ID", "CLIENT").current_dir("/");
        client.output().expect("runs")
    };
    wait_until("the server", || alice(&["status"]).status.success());
    let source = home.join("data").display().to_string();
    let came = alice(&["cp", "-T", "--wait", &source, url]);
    let who = asked.try_recv().unwrap_or_else(|_| panic!("nobody has asked: {came:?}"));
    assert_eq!(who, "ALICE");
    assert!(asked.try_iter().all(|who| who == "ALICE"));
    assert_eq!(came.status.code(), Some(1), "a store that answers nothing but 404 stores nothing: {came:?}");
}
