//! TLS with ourselves and with GnuTLS-based peers, and everything that must not get through.

mod common;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use common::{Peer, Server, has, read, run, write};
use nbd::client::{ConnectError, ConnectOptions, HandshakeError, Session, connect, list};
use nbd::server::{NegotiationError, Policy, TlsPolicy, negotiate};
use nbd::stream::Stream;
use nbd::tls::{Clients, ServerTls, TlsError};
use nbd::wire::options::{self, Greeting};

const KEY: &str = "alice:b2f1c6a1d0e94f0fa1c6e0c1a2d3f4b5968778695a4b3c2d1e0f00112233445f\n";

fn required(tls: ServerTls) -> Policy {
    Policy { tls: TlsPolicy::Required(tls), ..Policy::default() }
}

fn try_connect(uri: &str) -> Result<Session, ConnectError> {
    connect(&uri.parse().unwrap(), &ConnectOptions::default())
}

fn handshake_error(uri: &str) -> HandshakeError {
    match try_connect(uri) {
        Err(ConnectError::Handshake { source, .. }) => source,
        other => panic!("{uri}: {other:?}"),
    }
}

/// A directory with files of keys: the right one, and one of the same name with another key.
struct Keys(tempfile::TempDir);

impl Keys {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("keys"), KEY).unwrap();
        std::fs::write(dir.path().join("wrong"), KEY.replace("445f", "4450")).unwrap();
        std::fs::write(dir.path().join("bob"), KEY.replace("alice", "bob")).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn query(&self, name: &str) -> String {
        format!("?tls-psk-file={}", self.path(name).display())
    }

    fn server(&self) -> Server {
        Server::start(required(ServerTls::psk(&self.path("keys")).unwrap()))
    }
}

#[test]
fn a_key_lets_in_and_carries_data() {
    let keys = Keys::new();
    let server = keys.server();
    let uri = server.uri("nbds", &keys.query("keys"));
    let mut session = try_connect(&uri).unwrap();
    assert_eq!((session.stream.tls_version(), session.stream.is_plain()), (Some("TLSv1.3"), false));
    assert!(session.structured && session.export.contexts.len() == 1);
    // More than one record of TLS, both ways.
    let data: Vec<u8> = (0..300_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
    write(&mut session, 1234, &data);
    assert_eq!(read(&mut session, 1234, data.len() as u32), data);
    assert_eq!(list(&uri.parse().unwrap(), &ConnectOptions::default()).unwrap().len(), 1);
}

#[test]
fn a_wrong_key_an_unknown_name_and_no_tls_are_refused() {
    let keys = Keys::new();
    let server = keys.server();
    for (file, name) in [("wrong", "the key of the same name"), ("bob", "a name that is not known")] {
        let error = handshake_error(&server.uri("nbds", &keys.query(file)));
        assert!(matches!(error, HandshakeError::Tls(TlsError::Handshake(_))), "{name}: {error:?}");
        assert!(error.hint().is_some());
        let error = server.failure();
        assert!(matches!(error, NegotiationError::Tls(_)), "{name}: {error:?}");
    }
    let error = handshake_error(&server.uri("nbd", ""));
    assert!(matches!(error, HandshakeError::TlsRequired), "{error:?}");
    assert!(error.hint().unwrap().contains("nbds://"));
}

#[test]
fn without_tls_nothing_is_told_but_that_it_is_required() {
    let keys = Keys::new();
    let server = keys.server();
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
    let mut greeting = [0; options::GREETING_BYTES];
    socket.read_exact(&mut greeting).unwrap();
    socket.write_all(&3u32.to_be_bytes()).unwrap();
    let asked = [
        options::option(options::LIST, &[]),
        options::option(options::INFO, &options::InfoRequest::encode("disk", &[])),
        options::option(options::GO, &options::InfoRequest::encode("nothing", &[])),
        options::option(options::STRUCTURED_REPLY, &[]),
        options::option(options::SET_META_CONTEXT, &options::ContextQuery::encode("disk", &[])),
        options::option(4711, b"what"),
    ];
    for option in asked {
        socket.write_all(&option).unwrap();
        let mut head = [0; options::REPLY_BYTES];
        socket.read_exact(&mut head).unwrap();
        let head = options::ReplyHead::parse(&head).unwrap();
        assert_eq!(head.kind, options::ERR_TLS_REQD);
        let mut text = vec![0; head.length as usize];
        socket.read_exact(&mut text).unwrap();
    }
    socket.write_all(&options::option(options::EXPORT_NAME, b"disk")).unwrap();
    assert_eq!(socket.read(&mut [0; 1]).unwrap(), 0, "there is no answer that could say no");
    assert!(matches!(server.failure(), NegotiationError::WithoutTls));
}

#[test]
fn a_server_without_tls_is_left_by_a_client_that_wants_it() {
    let keys = Keys::new();
    let server = Server::start(Policy::default());
    let error = handshake_error(&server.uri("nbds", &keys.query("keys")));
    assert!(matches!(error, HandshakeError::NoTls { .. }), "{error:?}");
    assert!(error.hint().unwrap().contains("in between"));
}

#[test]
fn tls_that_is_offered_is_used_or_not_as_the_client_wants() {
    let keys = Keys::new();
    let tls = ServerTls::psk(&keys.path("keys")).unwrap();
    let server = Server::start(Policy { tls: TlsPolicy::Offered(tls), ..Policy::default() });
    assert!(try_connect(&server.uri("nbd", "")).unwrap().stream.is_plain());
    assert!(!try_connect(&server.uri("nbds", &keys.query("keys"))).unwrap().stream.is_plain());
}

/// Somebody between a client and a server, who sees every byte until TLS begins.
struct Between {
    port: u16,
    seen: mpsc::Receiver<Vec<u8>>,
}

impl Between {
    /// `act` gets the client's socket, and one to the server.
    fn start(server: u16, act: impl FnOnce(TcpStream, TcpStream) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, seen) = mpsc::channel();
        std::thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).unwrap();
            for socket in [&client, &server] {
                socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            }
            sender.send(act(client, server)).unwrap();
        });
        Self { port, seen }
    }

    fn uri(&self, query: &str) -> String {
        format!("nbds://127.0.0.1:{}/disk{query}", self.port)
    }

    /// All that the client said after its flags.
    fn seen(self) -> Vec<u8> {
        self.seen.recv_timeout(Duration::from_secs(120)).unwrap()
    }
}

/// Hands the greeting on, with flags of its own, and reads the client's flags.
fn greet(client: &mut TcpStream, server: &mut TcpStream, flags: Option<u16>) -> [u8; 4] {
    let mut greeting = [0; options::GREETING_BYTES];
    server.read_exact(&mut greeting).unwrap();
    let greeting = flags.map_or(greeting, |flags| Greeting { flags }.encode());
    client.write_all(&greeting).unwrap();
    let mut answer = [0; 4];
    let _ = client.read_exact(&mut answer);
    answer
}

fn rest_of(mut client: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest);
    rest
}

#[test]
fn who_strips_starttls_makes_the_client_fail_and_learns_nothing() {
    let keys = Keys::new();
    let server = keys.server();
    let answers = [
        options::ERR_UNSUP,
        options::ERR_POLICY,
        options::ERR_INVALID,
        options::ERR_PLATFORM,
        options::ERR_SHUTDOWN,
        0x8fff_ffff,
    ];
    for answer in answers {
        let between = Between::start(server.port, move |mut client, mut server| {
            greet(&mut client, &mut server, None);
            let mut option = [0; options::OPTION_BYTES];
            client.read_exact(&mut option).unwrap();
            client.write_all(&options::reply(options::STARTTLS, answer, b"no TLS here")).unwrap();
            [&option[..], &rest_of(client)].concat()
        });
        let error = handshake_error(&between.uri(&keys.query("keys")));
        assert!(matches!(error, HandshakeError::NoTls { .. }), "{error:?}");
        // STARTTLS and the good-bye, and no name of an export.
        let said = between.seen();
        let allowed =
            [options::option(options::STARTTLS, &[]), options::option(options::ABORT, &[])].concat();
        assert!(allowed.starts_with(&said), "{said:?}");
    }
}

#[test]
fn who_takes_away_fixed_newstyle_makes_the_client_fail() {
    let keys = Keys::new();
    let server = keys.server();
    for flags in [0, 2] {
        let between = Between::start(server.port, move |mut client, mut server| {
            greet(&mut client, &mut server, Some(flags));
            rest_of(client)
        });
        let error = handshake_error(&between.uri(&keys.query("keys")));
        assert!(matches!(error, HandshakeError::NoTls { .. }), "{error:?}");
        assert!(between.seen().is_empty());
    }
}

#[test]
fn what_is_slipped_in_behind_starttls_is_not_taken_by_the_client_for_what_came_through_tls() {
    let keys = Keys::new();
    let server = keys.server();
    let between = Between::start(server.port, |mut client, mut server| {
        let flags = greet(&mut client, &mut server, None);
        server.write_all(&flags).unwrap();
        let mut option = [0; options::OPTION_BYTES];
        client.read_exact(&mut option).unwrap();
        // With the acknowledgement, in one piece: answers to what the client would ask next.
        let mut said = options::reply(options::STARTTLS, options::REP_ACK, &[]);
        said.extend(options::reply(options::STRUCTURED_REPLY, options::REP_ACK, &[]));
        client.write_all(&said).unwrap();
        rest_of(client)
    });
    let error = handshake_error(&between.uri(&keys.query("keys")));
    assert!(matches!(error, HandshakeError::Tls(TlsError::Handshake(_))), "{error:?}");
    let said = between.seen();
    assert_eq!(said[0], 0x16, "a handshake of TLS, and no option");
}

#[test]
fn what_is_slipped_in_behind_starttls_is_not_taken_by_the_server_for_what_came_through_tls() {
    let keys = Keys::new();
    let server = keys.server();
    let between = Between::start(server.port, |mut client, mut server| {
        let flags = greet(&mut client, &mut server, None);
        let mut option = [0; options::OPTION_BYTES];
        client.read_exact(&mut option).unwrap();
        // In one piece with STARTTLS: an option that would hold for the client's session.
        let slipped = [&flags[..], &option, &options::option(options::STRUCTURED_REPLY, &[])].concat();
        server.write_all(&slipped).unwrap();
        let relay = relay(client, server);
        relay.join().unwrap();
        Vec::new()
    });
    let error = handshake_error(&between.uri(&keys.query("keys")));
    assert!(matches!(error, HandshakeError::Closed | HandshakeError::Tls(_)), "{error:?}");
    assert!(matches!(server.failure(), NegotiationError::Tls(_)));
}

/// Hands everything on, both ways, until both have ended.
fn relay(client: TcpStream, server: TcpStream) -> std::thread::JoinHandle<()> {
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        let up = std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Write);
        });
        let (mut from, mut to) = (server, client);
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
        up.join().unwrap();
    })
}

#[test]
fn options_before_tls_are_forgotten_when_it_begins() {
    // CVE-2021-3716: somebody in between asks for structured replies before TLS, and the client, which did not, cannot read
    // what it gets.
    let keys = Keys::new();
    let tls = ServerTls::psk(&keys.path("keys")).unwrap();
    let server = Server::start(Policy { tls: TlsPolicy::Offered(tls), ..Policy::default() });
    let between = Between::start(server.port, |mut client, mut server| {
        let flags = greet(&mut client, &mut server, None);
        let contexts = options::ContextQuery::encode("disk", &["base:allocation"]);
        server.write_all(&flags).unwrap();
        for option in [
            options::option(options::STRUCTURED_REPLY, &[]),
            options::option(options::SET_META_CONTEXT, &contexts),
        ] {
            server.write_all(&option).unwrap();
            loop {
                let mut head = [0; options::REPLY_BYTES];
                server.read_exact(&mut head).unwrap();
                let head = options::ReplyHead::parse(&head).unwrap();
                server.read_exact(&mut vec![0; head.length as usize]).unwrap();
                if head.kind == options::REP_ACK {
                    break;
                }
            }
        }
        relay(client, server).join().unwrap();
        Vec::new()
    });
    let options = ConnectOptions { structured: false, ..ConnectOptions::default() };
    let uri = between.uri(&keys.query("keys")).parse().unwrap();
    let mut session = connect(&uri, &options).unwrap();
    assert!(!session.export.flags.df(), "which is there with structured replies only");
    write(&mut session, 0, b"hello");
    assert_eq!(read(&mut session, 0, 5), b"hello");
}

#[test]
fn tls_that_is_cut_off_is_no_end() {
    let keys = Keys::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let policy = required(ServerTls::psk(&keys.path("keys")).unwrap());
    let thread = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let raw = socket.try_clone().unwrap();
        let agreed = negotiate(Stream::tcp(socket).unwrap(), &policy, &common::Disk).unwrap();
        raw.shutdown(std::net::Shutdown::Both).unwrap();
        drop(agreed);
    });
    let mut session = try_connect(&format!("nbds://127.0.0.1:{port}/disk{}", keys.query("keys"))).unwrap();
    let error = session.stream.read(&mut [0; 16]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
    thread.join().unwrap();
}

/// Certificates of an authority: for a server named localhost, and a client.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Option<Self> {
        if !has("certtool", "certificates") {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let made = Self(dir);
        made.template("ca", "cn = an authority\nca\ncert_signing_key\ncrl_signing_key\n");
        made.template(
            "server",
            "cn = localhost\ndns_name = localhost\ntls_www_server\nencryption_key\nsigning_key\n",
        );
        made.template("client", "cn = a client\ntls_www_client\nencryption_key\nsigning_key\n");
        for who in ["ca", "server", "client"] {
            made.certtool(&[
                "--generate-privkey",
                "--key-type=ed25519",
                "--outfile",
                &format!("{who}-key.pem"),
            ]);
        }
        let own = [
            "--generate-self-signed",
            "--template=ca.info",
            "--load-privkey=ca-key.pem",
            "--outfile=ca-cert.pem",
        ];
        made.certtool(&own);
        for who in ["server", "client"] {
            made.certtool(&[
                "--generate-certificate",
                "--load-ca-certificate=ca-cert.pem",
                "--load-ca-privkey=ca-key.pem",
                &format!("--template={who}.info"),
                &format!("--load-privkey={who}-key.pem"),
                &format!("--outfile={who}-cert.pem"),
            ]);
        }
        Some(made)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn template(&self, who: &str, text: &str) {
        std::fs::write(self.path().join(format!("{who}.info")), text).unwrap();
    }

    fn certtool(&self, arguments: &[&str]) {
        let output = Command::new("certtool")
            .args(arguments)
            .current_dir(self.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// The same without a file.
    fn without(&self, files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(self.path()).unwrap() {
            let name = entry.unwrap().file_name();
            if !files.contains(&name.to_str().unwrap()) {
                std::fs::copy(self.path().join(&name), dir.path().join(&name)).unwrap();
            }
        }
        dir
    }

    fn query(&self) -> String {
        format!("?tls-certificates={}", self.path().display())
    }
}

#[test]
fn certificates_let_in_who_has_one_and_let_the_client_know_the_server() {
    let Some(certificates) = Certificates::new() else { return };
    let server =
        Server::start(required(ServerTls::certificates(certificates.path(), &Clients::Certified).unwrap()));
    let uri = |host: &str, query: &str| format!("nbds://{host}:{}/disk{query}", server.port);
    let query = certificates.query();
    let mut session = try_connect(&uri("localhost", &query)).unwrap();
    assert_eq!(session.stream.tls_version(), Some("TLSv1.3"));
    write(&mut session, 0, b"hello");
    assert_eq!(read(&mut session, 0, 5), b"hello");

    // The certificate is localhost's, not that address's.
    let error = handshake_error(&uri("127.0.0.1", &query));
    assert!(matches!(error, HandshakeError::Tls(TlsError::Unverified { .. })), "{error:?}");
    assert!(error.hint().unwrap().contains("tls-hostname"));
    try_connect(&uri("127.0.0.1", &format!("{query}&tls-hostname=localhost"))).unwrap();
    try_connect(&uri("127.0.0.1", &format!("{query}&tls-verify-peer=0"))).unwrap();

    // An authority that did not make the server's.
    let other = Certificates::new().unwrap();
    let error = handshake_error(&uri("localhost", &other.query()));
    assert!(matches!(error, HandshakeError::Tls(TlsError::Unverified { .. })), "{error:?}");
    // None at all of the client's: TLS 1.3 tells it after the client's side is done.
    let bare = certificates.without(&["client-cert.pem", "client-key.pem"]);
    let error = handshake_error(&uri("localhost", &format!("?tls-certificates={}", bare.path().display())));
    assert!(matches!(error, HandshakeError::Tls(TlsError::Ended(_)) | HandshakeError::Closed), "{error:?}");
    let anybody =
        Server::start(required(ServerTls::certificates(certificates.path(), &Clients::Anonymous).unwrap()));
    let there = format!("nbds://localhost:{}/disk?tls-certificates={}", anybody.port, bare.path().display());
    try_connect(&there).unwrap();
}

#[test]
fn a_certificate_that_was_revoked_is_refused_and_so_is_one_of_another_name() {
    let Some(certificates) = Certificates::new() else { return };
    let uri = |server: &Server| format!("nbds://localhost:{}/disk{}", server.port, certificates.query());
    let refused = |server: &Server| {
        let error = handshake_error(&uri(server));
        assert!(
            matches!(error, HandshakeError::Tls(TlsError::Ended(_)) | HandshakeError::Closed),
            "{error:?}"
        );
        server.failure()
    };
    let named = |name: &str| {
        let clients = Clients::Named(vec!["somebody".to_owned(), name.to_owned()]);
        Server::start(required(ServerTls::certificates(certificates.path(), &clients).unwrap()))
    };
    try_connect(&uri(&named("a client"))).unwrap();
    let error = refused(&named("another client"));
    assert!(
        matches!(&error, NegotiationError::Tls(TlsError::NotAuthorized { names }) if names == &["a client"]),
        "{error:?}"
    );
    let certified = || {
        Server::start(required(ServerTls::certificates(certificates.path(), &Clients::Certified).unwrap()))
    };
    let list = |revoked: &[&str]| {
        certificates.template("crl", "crl_next_update = 10\ncrl_number = 1\n");
        let own = ["--generate-crl", "--load-ca-certificate=ca-cert.pem", "--load-ca-privkey=ca-key.pem"];
        certificates
            .certtool(&[&own[..], revoked, &["--template=crl.info", "--outfile=ca-crl.pem"]].concat());
    };
    // A list that names nobody lets in; one that names the client does not.
    list(&[]);
    try_connect(&uri(&certified())).unwrap();
    list(&["--load-certificate=client-cert.pem"]);
    let error = refused(&certified());
    assert!(
        matches!(&error, NegotiationError::Tls(TlsError::Unverified { reason }) if reason.contains("revoked")),
        "{error:?}"
    );
    std::fs::write(certificates.path().join("ca-crl.pem"), "no list").unwrap();
    let error = ServerTls::certificates(certificates.path(), &Clients::Certified).unwrap_err().to_string();
    assert!(error.contains("ca-crl.pem"), "{error}");
}

#[test]
fn a_certificate_is_no_proof_of_a_key_and_a_key_is_none_of_a_certificate() {
    let Some(certificates) = Certificates::new() else { return };
    let keys = Keys::new();
    let with_certificates =
        Server::start(required(ServerTls::certificates(certificates.path(), &Clients::Anonymous).unwrap()));
    let error = handshake_error(&with_certificates.uri("nbds", &keys.query("keys")));
    assert!(matches!(error, HandshakeError::Tls(_)), "{error:?}");
    let with_keys = keys.server();
    let uri = format!("nbds://localhost:{}/disk{}", with_keys.port, certificates.query());
    assert!(matches!(handshake_error(&uri), HandshakeError::Tls(_)));
}

#[test]
fn files_that_are_missing_or_do_not_belong_together_are_named() {
    let Some(certificates) = Certificates::new() else { return };
    let bare = certificates.without(&["ca-cert.pem"]);
    let error = ServerTls::certificates(bare.path(), &Clients::Certified).unwrap_err().to_string();
    assert!(error.contains("ca-cert.pem"), "{error}");
    std::fs::copy(certificates.path().join("client-key.pem"), bare.path().join("server-key.pem")).unwrap();
    let error = ServerTls::certificates(bare.path(), &Clients::Anonymous).unwrap_err().to_string();
    assert!(error.contains("server-key.pem"), "{error}");
    let uri = format!("nbds+unix:///?socket=/nowhere&tls-certificates={}", certificates.path().display());
    let error = try_connect(&uri).unwrap_err();
    assert!(error.hint().unwrap().contains("tls-hostname"), "{error}");
}

#[test]
fn peers_with_gnutls_come_in_with_a_key() {
    let keys = Keys::new();
    let file = keys.path("keys");
    if has("psktool", "a key that psktool made") {
        let made = keys.path("made");
        let (success, text) = run("psktool", &["-u", "alice", "-p", made.to_str().unwrap()]);
        assert!(success, "{text}");
        std::fs::rename(made, &file).unwrap();
    }
    let server = keys.server();
    let query = |file: &Path| format!("?tls-psk-file={}", file.display());
    let uri = format!("nbds://alice@127.0.0.1:{}/disk{}", server.port, query(&file));
    if has("nbdinfo", "libnbd as a client with a key") {
        let (success, text) = run("nbdinfo", &[&uri]);
        assert!(success && text.contains("with TLS") && text.contains("1048576"), "{text}");
        let wrong = uri.replace("keys", "wrong");
        let (success, text) = run("nbdinfo", &[&wrong]);
        assert!(!success, "{text}");
        let (success, text) = run("nbdinfo", &[&server.uri("nbd", "")]);
        assert!(!success, "without TLS: {text}");
    }
    if has("nbdcopy", "nbdcopy with a key") {
        let mut session = try_connect(&server.uri("nbds", &query(&file))).unwrap();
        let data: Vec<u8> = (0..common::SIZE as u32).map(|n| ((n * 31) >> 5) as u8).collect();
        write(&mut session, 0, &data);
        let copy = keys.path("copy");
        let (success, text) = run("nbdcopy", &[&uri, copy.to_str().unwrap()]);
        assert!(success, "{text}");
        assert!(std::fs::read(copy).unwrap() == data, "what nbdcopy read is what was written");
    }
    if has("qemu-img", "qemu as a client with a key") {
        // qemu wants a directory, with the file named so.
        std::fs::copy(&file, keys.path("keys.psk")).unwrap();
        let object =
            format!("tls-creds-psk,id=t,endpoint=client,username=alice,dir={}", keys.0.path().display());
        let image = format!("driver=nbd,host=127.0.0.1,port={},export=disk,tls-creds=t", server.port);
        let (success, text) = run("qemu-img", &["info", "--object", &object, "--image-opts", &image]);
        assert!(success && text.contains("1 MiB"), "{text}");
    }
}

#[test]
fn peers_with_gnutls_let_us_in_with_a_key() {
    let keys = Keys::new();
    let (file, socket) = (keys.path("keys"), keys.path("sock"));
    let path = socket.to_str().unwrap();
    if has("nbdkit", "nbdkit as a server with a key") {
        let psk = format!("--tls-psk={}", file.display());
        let _peer =
            Peer::start("nbdkit", &["-f", "-U", path, "--tls=require", &psk, "memory", "1M"], &socket);
        let uri =
            |file: &str| format!("nbds+unix:///?socket={path}&tls-psk-file={}", keys.path(file).display());
        let mut session = try_connect(&uri("keys")).unwrap();
        assert_eq!(session.stream.tls_version(), Some("TLSv1.3"));
        write(&mut session, 0, b"hello");
        assert_eq!(read(&mut session, 0, 5), b"hello");
        assert!(matches!(handshake_error(&uri("wrong")), HandshakeError::Tls(_) | HandshakeError::Closed));
        let error = handshake_error(&format!("nbd+unix:///?socket={path}"));
        assert!(matches!(error, HandshakeError::TlsRequired), "{error:?}");
    }
    let _ = std::fs::remove_file(&socket);
    if has("qemu-nbd", "qemu as a server with a key") {
        std::fs::copy(&file, keys.path("keys.psk")).unwrap();
        let image = keys.path("image");
        std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
        let object = format!("tls-creds-psk,id=t,endpoint=server,dir={}", keys.0.path().display());
        let arguments =
            ["-k", path, "-f", "raw", "-t", "--object", &object, "--tls-creds", "t", image.to_str().unwrap()];
        let _peer = Peer::start("qemu-nbd", &arguments, &socket);
        let uri = format!("nbds+unix:///?socket={path}&tls-psk-file={}", file.display());
        let mut session = try_connect(&uri).unwrap();
        write(&mut session, 4096, b"hello");
        assert_eq!(read(&mut session, 4096, 5), b"hello");
    }
}

#[test]
fn peers_with_gnutls_and_certificates_both_ways() {
    let Some(certificates) = Certificates::new() else { return };
    let directory = certificates.path().to_str().unwrap();
    if has("nbdkit", "nbdkit as a server with certificates") {
        let socket = certificates.path().join("sock");
        let path = socket.to_str().unwrap();
        let tls = format!("--tls-certificates={directory}");
        let arguments = ["-f", "-U", path, "--tls=require", &tls, "--tls-verify-peer", "memory", "1M"];
        let _peer = Peer::start("nbdkit", &arguments, &socket);
        let uri = format!("nbds+unix:///?socket={path}&tls-certificates={directory}&tls-hostname=localhost");
        let mut session = try_connect(&uri).unwrap();
        write(&mut session, 0, b"hello");
        assert_eq!(read(&mut session, 0, 5), b"hello");
        let error = handshake_error(&uri.replace("localhost", "example.com"));
        assert!(matches!(error, HandshakeError::Tls(TlsError::Unverified { .. })), "{error:?}");
    }
    let server =
        Server::start(required(ServerTls::certificates(certificates.path(), &Clients::Certified).unwrap()));
    if has("nbdinfo", "libnbd as a client with certificates") {
        let uri = |host: &str| format!("nbds://{host}:{}/disk{}", server.port, certificates.query());
        let (success, text) = run("nbdinfo", &[&uri("localhost")]);
        assert!(success && text.contains("with TLS"), "{text}");
        let (success, text) = run("nbdinfo", &[&uri("127.0.0.1")]);
        assert!(!success, "the certificate is localhost's: {text}");
    }
    if has("qemu-img", "qemu as a client with certificates") {
        let object = format!("tls-creds-x509,id=t,endpoint=client,dir={directory}");
        let image = format!("driver=nbd,host=localhost,port={},export=disk,tls-creds=t", server.port);
        let (success, text) = run("qemu-img", &["info", "--object", &object, "--image-opts", &image]);
        assert!(success && text.contains("1 MiB"), "{text}");
    }
}
