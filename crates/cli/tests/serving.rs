//! `memory serve` and `volume export` as a user meets them: readiness, refusals, ends, files.

mod common;
mod served;

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::{fits_schema, names, place, refused, run, signal, wait_until};
use serde_json::Value;
use served::Served;

const EPERM: u32 = 1;

#[test]
fn memory_is_there_and_zero_before_the_server_says_ready_and_is_gone_when_it_ends() {
    let folder = place();
    let served = Served::start(folder.path(), &["memory", "serve", "--size", "16m"]);
    assert!(served.said.starts_with("memory: 16 MiB"), "{}", served.said);
    assert!(served.uri.starts_with("nbd://127.0.0.1:"), "{}", served.uri);
    let (mut one, mut other) = (served.connect(), served.connect());
    assert_eq!(one.0.export.size, 16 << 20);
    assert!(one.0.export.flags.multi_conn() && !one.0.export.flags.read_only());
    assert_eq!(one.read(0, 4096), Ok(vec![0; 4096]));
    one.write(12_345, b"what one writes").expect("writes");
    assert_eq!(other.read(12_345, 15), Ok(b"what one writes".to_vec()));
    let (code, err) = served.end();
    assert_eq!((code, err.as_str()), (0, "served 2 connections\n"));
}

#[test]
fn a_file_is_loaded_at_the_start_and_written_back_at_the_end_and_not_in_between() {
    let folder = place();
    let serve = ["memory", "serve", "--size", "8m", "--file", "image"];
    let served = Served::start(folder.path(), &serve);
    served.connect().write(5_000_000, b"to be kept").expect("writes");
    assert!(!folder.path().join("image").exists());
    let (code, err) = served.end();
    assert_eq!(code, 0, "{err}");
    assert!(err.starts_with("wrote 8 MiB back to image\n"), "{err}");

    let served = Served::start(folder.path(), &serve);
    assert!(served.said.contains("8 MiB loaded from image"), "{}", served.said);
    let mut asker = served.connect();
    assert_eq!(asker.read(5_000_000, 10), Ok(b"to be kept".to_vec()));
    asker.write(0, b"lost with the power").expect("writes");
    served.kill();

    let served = Served::start(folder.path(), &[&serve[..], &["--read-only"]].concat());
    let mut asker = served.connect();
    assert_eq!(asker.read(0, 4), Ok(vec![0; 4]));
    assert_eq!(asker.read(5_000_000, 10), Ok(b"to be kept".to_vec()));
    assert_eq!(asker.write(0, b"x"), Err(EPERM));
    let (code, err) = served.end();
    assert_eq!((code, err.as_str()), (0, "served 1 connection\n"), "what was only read is not written back");
    assert_eq!(names(folder.path()), ["image"]);
}

#[test]
fn keys_are_read_once_so_that_a_pipe_may_have_them() {
    let folder = place();
    let keys = folder.path().join("keys");
    assert!(Command::new("mkfifo").arg(&keys).status().expect("there is mkfifo").success());
    // Written once, as a shell does it that substitutes a command.
    let writer = std::thread::spawn(move || std::fs::write(keys, "alice:00112233445566778899aabbccddeeff\n"));
    let served = Served::start(folder.path(), &["memory", "serve", "--size", "1m", "--tls-psk", "keys"]);
    assert!(served.uri.starts_with("nbds://"), "{}", served.uri);
    writer.join().expect("no panic").expect("writes");
    let (code, err) = served.end();
    assert_eq!((code, err.as_str()), (0, "served 0 connections\n"));
}

#[test]
fn nobody_is_let_in_by_oversight() {
    let folder = place();
    let hint = "hint: add --tls-psk FILE or --tls-certificates DIR, or use --socket; --insecure where all of them \
                are trusted\n";
    for verb in [&["memory", "serve", "--size", "1m"][..], &["volume", "export", "mem:1m"]] {
        for (address, who) in
            [("0.0.0.0:10809", "whoever reaches it"), ("127.0.0.1:10809", "every user of this host")]
        {
            let words = format!("error: --listen={address}: {who} could read and write\n{hint}");
            refused(folder.path(), &[verb, &["--listen", address]].concat(), 2, &words);
        }
        let served = Served::start_at(
            folder.path(),
            &[verb, &["--listen", "0.0.0.0:0", "--insecure", "--read-only"]].concat(),
        );
        assert_eq!(served.end().0, 0);
    }
    refused(
        folder.path(),
        &["memory", "serve", "--size", "1m", "--listen", "127.0.0.1:0", "--insecure", "--allow-user", "0"],
        2,
        "error: --allow-user: there is no Unix socket for it to be about\n\
         hint: add --socket PATH; who may connect over TCP is a matter of --tls-psk or --tls-certificates\n",
    );
    refused(
        folder.path(),
        &["memory", "serve", "--size", "1m", "--allow-user", "no such user"],
        2,
        "error: --allow-user=no such user: there is no such user\n\
         hint: a user's name, or the number that `id -u` prints\n",
    );
}

/// Whether a user gets the greeting of a server.
fn is_greeted(socket: &Path, user: u32) -> bool {
    let ask = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
               sys.exit(s.recv(8) != b'NBDMAGIC')";
    let mut python = std::process::Command::new("python3");
    python.args(["-c", ask]).arg(socket).stderr(std::process::Stdio::null());
    python.uid(user).gid(user).current_dir("/").status().expect("python3 runs").success()
}

#[test]
fn a_socket_is_its_users_own_unless_others_are_named() {
    let folder = tempfile::tempdir().expect("a directory that others reach");
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("can be set");
    let socket = folder.path().join("flashwright/nbd.sock");
    let mut alone = common::command(folder.path(), &["memory", "serve", "--size", "1m"]);
    alone.env("XDG_RUNTIME_DIR", folder.path());
    let served = Served::of(alone);
    assert_eq!(served.uri, format!("nbd+unix:///?socket={}", socket.display()));
    assert_eq!(served.connect().read(0, 1), Ok(vec![0]));
    let mode = |path: &Path| std::fs::metadata(path).expect("is there").permissions().mode() & 0o777;
    assert_eq!((mode(&socket), mode(&folder.path().join("flashwright"))), (0o600, 0o700));
    assert_eq!(served.end().0, 0);
    assert!(!socket.exists());
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o775)).expect("can be set");
    let mut shared = common::command(folder.path(), &["memory", "serve", "--size", "1m"]);
    let came = common::finish(shared.env("XDG_RUNTIME_DIR", folder.path()));
    assert!(came.code == 3 && came.err.contains("others may write to it (mode 775)"), "{came:?}");
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("can be set");
    if !rustix::process::geteuid().is_root() {
        println!("SKIP other users at a socket: not root");
        return;
    }
    let serve = ["memory", "serve", "--size", "1m", "--socket", "s"];
    let socket = folder.path().join("s");
    for (more, let_in) in [
        (&[][..], [false, false]),
        (&["--allow-user", "1234"], [true, false]),
        (&["--allow-group", "1235"], [false, true]),
        (&["--allow-user", "1234", "--allow-group", "1235"], [true, true]),
    ] {
        let served = Served::start_at(folder.path(), &[&serve[..], more].concat());
        assert_eq!([1234, 1235].map(|user| is_greeted(&socket, user)), let_in, "{more:?}");
        assert!(is_greeted(&socket, 0));
        assert_eq!(served.end().0, 0);
    }
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    let folder = place();
    let serve = |more: &[&'static str]| [&["memory", "serve"][..], more].concat();
    let came = run(folder.path(), &serve(&["--size", "1000t"]));
    assert_eq!(came.code, 1, "{came:?}");
    assert!(came.err.starts_with("error: mem:1000t: only ") && came.err.contains(" free"), "{}", came.err);
    refused(
        folder.path(),
        &serve(&["--size", "1m", "--listen", "127.0.0.1:nbd"]),
        2,
        "error: --listen=127.0.0.1:nbd: the port is no number from 0 to 65535\n\
         hint: for instance 0.0.0.0:10809, [::]:10809, or a name of this host\n",
    );
    refused(
        folder.path(),
        &serve(&["--size", "1m", "--tls-psk", "keys", "--tls-certificates", "pki"]),
        2,
        "error: --tls-psk and --tls-certificates exclude each other\nhint: give one of them\n",
    );
    let came = run(folder.path(), &serve(&["--size", "1m", "--tls-psk", "nowhere"]));
    assert_eq!(came.code, 2, "{came:?}");
    let came = run(folder.path(), &serve(&["--size", "1m", "--numa-node", "999"]));
    assert!(
        came.code == 2 && came.err.contains("--numa-node=999: this machine has no such node"),
        "{came:?}"
    );
    std::fs::write(folder.path().join("big"), vec![1; 2 << 20]).expect("writes");
    refused(
        folder.path(),
        &serve(&["--size", "1m", "--file", "big"]),
        2,
        "error: --file=big: holds 2 MiB, more than the 1 MiB of memory\nhint: --size=2097152 is the least that holds it\n",
    );
    let fifo = Command::new("mkfifo").arg(folder.path().join("fifo")).status().expect("mkfifo runs");
    assert!(fifo.success());
    for more in [&[][..], &["--read-only"]] {
        refused(
            folder.path(),
            &serve(&[&["--size", "1m", "--file", "fifo"], more].concat()),
            2,
            "error: --file=fifo: is no regular file\nhint: name a file, or a name that is free\n",
        );
        refused(
            folder.path(),
            &serve(&[&["--size", "1m", "--file", "nodir/img"], more].concat()),
            2,
            "error: --file=nodir/img: there is no directory nodir\nhint: make the directory, or name another file\n",
        );
    }
    refused(
        folder.path(),
        &serve(&["--size", "1m", "--read-only", "--file", "missing"]),
        2,
        "error: --file=missing: there is no such file\n\
         hint: name a file that is there: with --read-only it is not made\n",
    );
    let long = "x".repeat(4097);
    let came = run(folder.path(), &["memory", "serve", "--size", "1m", "--export", &long]);
    let words = "--export=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…: has 4097 bytes, more than the 4096";
    assert!(came.code == 2 && came.err.contains(words), "{came:?}");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("has one").to_string();
    let came = run(folder.path(), &["memory", "serve", "--size", "1m", "--insecure", "--listen", &address]);
    assert!(came.code == 1 && came.err.contains("hint: another server has that port"), "{came:?}");
}

#[test]
fn a_server_is_announced_while_it_is_there() {
    let folder = place();
    std::fs::create_dir(folder.path().join("found")).expect("makes it");
    let serve = ["memory", "serve", "--size", "1m", "--announce"];
    let served = Served::start(folder.path(), &[&serve[..], &["found"]].concat());
    let place = served.uri.trim_start_matches("nbd://").trim_end_matches('/').to_owned();
    assert_eq!(names(&folder.path().join("found")), std::slice::from_ref(&place));
    let line = std::fs::read_to_string(folder.path().join("found").join(&place)).expect("is there");
    assert_eq!(line, format!("{place}\n"));
    assert_eq!(served.end().0, 0);
    assert_eq!(names(&folder.path().join("found")), Vec::<String>::new());
    for _ in 0..2 {
        assert_eq!(Served::start(folder.path(), &[&serve[..], &["hosts"]].concat()).end().0, 0);
    }
    let lines = std::fs::read_to_string(folder.path().join("hosts")).expect("is there");
    assert_eq!(lines.lines().count(), 2, "{lines}");
}

#[test]
fn a_socket_that_a_killed_server_left_is_taken_over_and_one_in_use_is_not() {
    let folder = place();
    let serve = ["memory", "serve", "--size", "1m", "--socket", "s", "--export", "scratch"];
    Served::start_at(folder.path(), &serve).kill();
    assert_eq!(names(folder.path()), ["s"]);
    let served = Served::start_at(folder.path(), &serve);
    assert!(served.uri.starts_with("nbd+unix:///scratch?socket="), "{}", served.uri);
    let came = run(folder.path(), &serve);
    assert!(came.code == 1 && came.err.contains("hint: another server listens there"), "{came:?}");
    assert_eq!(served.connect().read(0, 1), Ok(vec![0]));
    assert_eq!(served.end().0, 0);
    assert_eq!(names(folder.path()), Vec::<String>::new());
}

#[test]
fn who_comes_beyond_the_limit_is_turned_away_and_the_others_stay() {
    let folder = place();
    let serve = ["memory", "serve", "--size", "1m", "--max-connections", "1"];
    let served = Served::start(folder.path(), &serve);
    let mut first = served.connect();
    let uri = served.uri.parse().expect("a URI");
    assert!(nbd::client::connect(&uri, &nbd::client::ConnectOptions::default()).is_err());
    assert_eq!(first.read(0, 1), Ok(vec![0]));
    let (code, err) = served.end();
    assert!(code == 0 && err.contains("turned away"), "{err}");
}

#[test]
fn the_document_says_where_it_is() {
    let folder = place();
    let arguments = ["memory", "serve", "--size", "4m", "--listen", "127.0.0.1:0", "--insecure", "--json"];
    let out = std::fs::File::create(folder.path().join("ready.json")).expect("makes it");
    let mut child = common::command(folder.path(), &arguments).stdout(out).spawn().expect("starts");
    let mut document = Value::Null;
    wait_until("the document", || {
        let text = std::fs::read_to_string(folder.path().join("ready.json")).unwrap_or_default();
        document = serde_json::from_str(&text).unwrap_or_default();
        !document.is_null() || child.try_wait().expect("can be asked").is_some()
    });
    signal(&child, "-TERM");
    assert_eq!(common::ended(&mut child).code(), Some(0));
    fits_schema(folder.path(), "serve", &document);
    assert_eq!(document["size_bytes"], 4 << 20);
    assert!(
        document["uris"][0].as_str().is_some_and(|uri| uri.starts_with("nbd://127.0.0.1:")),
        "{document}"
    );
}

#[test]
fn devices_are_exported_with_the_rules_that_hold_for_them() {
    let folder = place();
    let served = Served::start(
        folder.path(),
        &["volume", "export", "stripe(chunk=16k):file:a?size=1m,file:b?size=1m"],
    );
    let mut asker = served.connect();
    assert_eq!(asker.0.export.size, 2 << 20);
    let block = asker.0.export.minimum_block as usize;
    asker.write(0, &vec![7; 16 << 10]).expect("writes");
    asker.write(16 << 10, &vec![8; block]).expect("writes");
    assert_eq!(served.end().0, 0);
    assert_eq!(std::fs::read(folder.path().join("a")).expect("is there")[..16 << 10], vec![7; 16 << 10]);
    assert_eq!(std::fs::read(folder.path().join("b")).expect("is there")[..block], vec![8; block]);

    std::fs::write(folder.path().join("thesis"), "my thesis\n".repeat(2048)).expect("writes");
    refused(
        folder.path(),
        &["volume", "export", "thesis"],
        3,
        "error: thesis: holds 20 KiB that were not laid by flashwright; writing would destroy them\n\
         hint: if its contents may be lost add --destroy thesis; otherwise name a new file\n",
    );
    let served =
        Served::start(folder.path(), &["volume", "export", "--direct", "0", "--read-only", "thesis"]);
    let mut asker = served.connect();
    assert_eq!(asker.read(3, 6), Ok(b"thesis".to_vec()));
    assert_eq!(asker.write(3, b"ruined"), Err(EPERM));
    assert_eq!(served.end().0, 0);
}
