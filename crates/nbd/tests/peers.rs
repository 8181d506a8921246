//! The handshake with programs that are not ours, in the clear, both ways.

mod common;

use common::{Peer, SIZE, Server, has, read, run, write};
use nbd::client::{ConnectError, ConnectOptions, HandshakeError, connect, list};
use nbd::server::Policy;
use nbd::uri::Uri;

fn uri(text: &str) -> Uri {
    text.parse().unwrap()
}

#[test]
fn our_client_and_our_server_agree() {
    let server = Server::start(Policy::default());
    let uri = uri(&server.uri("nbd", ""));
    for structured in [true, false] {
        let options = ConnectOptions { structured, ..ConnectOptions::default() };
        let mut session = connect(&uri, &options).unwrap();
        assert_eq!((session.export.size, session.structured), (SIZE as u64, structured));
        assert_eq!(session.export.flags.df(), structured, "only where there are chunks");
        assert_eq!(session.export.context("base:allocation"), structured.then_some(7));
        assert_eq!(session.export.description.as_deref(), Some("a mebibyte of memory"));
        write(&mut session, 4096, b"hello");
        assert_eq!(read(&mut session, 4094, 9), b"\0\0hello\0\0");
    }
    let listed = list(&uri, &ConnectOptions::default()).unwrap();
    assert_eq!((listed.len(), listed[0].name.as_str()), (1, "disk"));
    let error = connect(&uri.with_export("other"), &ConnectOptions::default()).unwrap_err();
    let ConnectError::Handshake { source: HandshakeError::NoExport { export, .. }, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(export, "other");
}

#[test]
fn our_client_agrees_with_nbdkit() {
    if !has("nbdkit", "a client of nbdkit's") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Without structured replies, and without options that are newer than 2011, as old servers are.
    for (more, structured, contexts) in
        [(&[][..], true, 1), (&["--no-sr"][..], false, 0), (&["--mask-handshake=0"][..], false, 0)]
    {
        let socket = dir.path().join("nbdkit.sock");
        let _ = std::fs::remove_file(&socket);
        let path = socket.to_str().unwrap();
        let arguments = [&["-f", "-U", path][..], more, &["memory", "1M"]].concat();
        let _peer = Peer::start("nbdkit", &arguments, &socket);
        let mut session =
            connect(&uri(&format!("nbd+unix:///?socket={path}")), &ConnectOptions::default()).unwrap();
        assert_eq!((session.export.size, session.structured), (1 << 20, structured), "{more:?}");
        assert_eq!(session.export.contexts.len(), contexts, "{more:?}");
        assert!(session.export.flags.multi_conn() && session.export.flags.flush());
        write(&mut session, 65536 - 2, b"hello");
        assert_eq!(read(&mut session, 65536 - 4, 9), b"\0\0hello\0\0");
    }
}

#[test]
fn our_client_agrees_with_qemu() {
    if !has("qemu-nbd", "a client of qemu-nbd's") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, socket) = (dir.path().join("image"), dir.path().join("qemu.sock"));
    std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let path = socket.to_str().unwrap();
    let arguments =
        ["-k", path, "-f", "raw", "-x", "disk", "-D", "an image", "-e", "4", "-t", image.to_str().unwrap()];
    let _peer = Peer::start("qemu-nbd", &arguments, &socket);
    let there = uri(&format!("nbd+unix:///disk?socket={path}"));
    let mut session = connect(&there, &ConnectOptions::default()).unwrap();
    assert_eq!((session.export.size, session.structured), (1 << 20, true));
    assert_eq!(session.export.contexts.len(), 1);
    assert_eq!(session.export.description.as_deref(), Some("an image"));
    write(&mut session, 4096, b"hello");
    assert_eq!(read(&mut session, 4094, 9), b"\0\0hello\0\0");
    let listed = list(&there, &ConnectOptions::default()).unwrap();
    assert_eq!((listed[0].name.as_str(), listed[0].description.as_str()), ("disk", "an image"));
    let error = connect(&there.with_export("other"), &ConnectOptions::default()).unwrap_err();
    assert!(
        matches!(error, ConnectError::Handshake { source: HandshakeError::NoExport { .. }, .. }),
        "{error:?}"
    );
}

#[test]
fn nbdinfo_and_qemu_img_agree_with_our_server() {
    let server = Server::start(Policy::default());
    let uri = server.uri("nbd", "");
    if has("nbdinfo", "libnbd as a client") {
        let (success, text) = run("nbdinfo", &["--json", &uri]);
        assert!(success, "{text}");
        for says in [
            "\"export-size\": 1048576",
            "newstyle-fixed",
            "\"structured\": true",
            "base:allocation",
            "a mebibyte",
        ] {
            assert!(text.contains(says), "{says}: {text}");
        }
        let (success, text) = run("nbdinfo", &["--list", &uri]);
        assert!(success && text.contains("export=\"disk\""), "{text}");
        let (success, text) = run("nbdinfo", &["--map", &uri]);
        assert!(success && text.contains("1048576"), "{text}");
        let (success, text) = run("nbdinfo", &[&uri.replace("disk", "other")]);
        assert!(!success && text.contains("for export: other"), "{text}");
    }
    if has("qemu-img", "qemu as a client") {
        let (success, text) = run("qemu-img", &["info", "--output=json", &uri]);
        assert!(success && text.contains("\"virtual-size\": 1048576"), "{text}");
        let (success, text) = run("qemu-img", &["compare", &uri, &uri]);
        assert!(success && text.contains("identical"), "{text}");
    }
}
