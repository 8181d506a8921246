//! Sets in a store that speaks S3: moto's server (`python3 -m moto.server`), over TCP, plain and with TLS.
//!
//! The drain that is killed runs in a process of its own, which is this program again with [`CHILD`] set.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use stage::StageError;
use stage::digest::CHUNK_BYTES;
use stage::names::hex;
use stage::pace::{Pace, Progress, Stop, Unlimited};
use stage_object::{DrainOptions, Drained, Environment, FetchOptions, Forgetful, ObjectSet, Resume, Source};

/// What the child is to do: `drain` or `fetch`, URL, directory, notes, and the request before which it stops for good,
/// each on a line.
const CHILD: &str = "FLASHWRIGHT_TEST_S3_CHILD";
const BUCKET: &str = "checkpoints";

/// A server of its own, gone with its end.
struct Server {
    child: Child,
    port: u16,
    tls: bool,
}

/// The Python that has moto: `make test` makes one where the system's has not.
fn python() -> std::ffi::OsString {
    std::env::var_os("FLASHWRIGHT_MOTO_PYTHON").unwrap_or_else(|| "python3".into())
}

impl Server {
    /// None, said aloud, where there is no moto.
    fn start(tls: Option<(&Path, &Path)>) -> Option<Self> {
        let known =
            Command::new(python()).args(["-c", "import moto.server, flask"]).stderr(Stdio::null()).status();
        if !known.is_ok_and(|status| status.success()) {
            println!("SKIP a server that speaks S3: python3 has no moto[server]");
            return None;
        }
        // Somebody else may get the port in between; then this server ends, and another is tried.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut command = Command::new(python());
            command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
            if let Some((certificate, key)) = tls {
                command.arg("-c").arg(certificate).arg("-k").arg(key);
            }
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let mut server = Self { child, port, tls: tls.is_some() };
            if server.answers() {
                if !server.tls {
                    server.make_bucket();
                }
                return Some(server);
            }
        }
        panic!("moto's server does not start");
    }

    /// Waits until it accepts connections, or has ended.
    fn answers(&mut self) -> bool {
        loop {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Makes the bucket. Moto takes that from anybody.
    fn make_bucket(&self) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = format!("PUT /{BUCKET} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer.split(' ').nth(1), Some("200"), "{answer}");
    }

    /// An object as Amazon's own library for Python gives it; none where there is none.
    fn object(&self, key: &str) -> Option<Vec<u8>> {
        const SCRIPT: &str = "
import sys, boto3
store = boto3.client('s3', endpoint_url=sys.argv[1], region_name='us-east-1',
                     aws_access_key_id='testing', aws_secret_access_key='testing')
try:
    body = store.get_object(Bucket=sys.argv[2], Key=sys.argv[3])['Body'].read()
except store.exceptions.NoSuchKey:
    sys.exit(7)
sys.stdout.buffer.write(body)
";
        let mut command = Command::new(python());
        command.args(["-c", SCRIPT, &format!("http://127.0.0.1:{}", self.port), BUCKET, key]);
        let output = command.stderr(Stdio::inherit()).output().unwrap();
        match output.status.code() {
            Some(0) => Some(output.stdout),
            Some(7) => None,
            other => panic!("{key}: {other:?}"),
        }
    }

    fn url(&self, prefix: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!(
            "s3://{BUCKET}/{prefix}?endpoint={scheme}://127.0.0.1:{}&region=us-east-1&allow_http={}",
            self.port, !self.tls
        )
    }

    fn set(&self, prefix: &str) -> ObjectSet {
        ObjectSet::open(&self.url(prefix), &environment()).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn environment() -> Environment {
    let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    [set("AWS_ACCESS_KEY_ID", "testing"), set("AWS_SECRET_ACCESS_KEY", "testing")].into_iter().collect()
}

/// Notes as files, durable as a journal's.
struct Notes(PathBuf);

impl Notes {
    fn path(&self, key: &str) -> PathBuf {
        self.0.join(hex(key.as_bytes()))
    }
}

impl Resume for Notes {
    fn load(&self, key: &str) -> Result<Option<Vec<u8>>, StageError> {
        match fs::read(self.path(key)) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StageError::io("read", &self.path(key), error)),
        }
    }

    fn save(&self, key: &str, value: &[u8]) -> Result<(), StageError> {
        let (path, new) = (self.path(key), self.0.join("new"));
        let saved = || {
            let mut file = fs::File::create(&new)?;
            file.write_all(value)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            fs::File::open(&self.0)?.sync_all()
        };
        saved().map_err(|error| StageError::io("save", &path, error))
    }
}

fn drain(set: &ObjectSet, source: &Path, notes: &dyn Resume, pace: &dyn Pace) -> Result<Drained, StageError> {
    let root = fs::File::open(source).unwrap();
    let source = Source::directory(root.as_fd(), source);
    set.drain(&source, &DrainOptions::default(), notes, pace, &Stop::new(), &Progress::default())
}

fn assert_comes_back(set: &ObjectSet, source: &Path) {
    let back = tempfile::tempdir().unwrap();
    fetch(set, back.path(), false, &Forgetful::default(), &Unlimited).unwrap();
    assert_same(source, back.path());
}

fn assert_same(a: &Path, b: &Path) {
    let compared = Command::new("diff").args(["-r", "--no-dereference"]).arg(a).arg(b).status();
    assert!(compared.unwrap().success());
}

fn fetch(
    set: &ObjectSet,
    directory: &Path,
    resumed: bool,
    notes: &dyn Resume,
    pace: &dyn Pace,
) -> Result<(), StageError> {
    let root = fs::File::open(directory).unwrap();
    let manifest = set.manifest(&Stop::new()).unwrap();
    let options = FetchOptions { resumed, ..FetchOptions::default() };
    let progress = Progress::default();
    set.fetch_into(&manifest, root.as_fd(), directory, &options, notes, pace, &Stop::new(), &progress)
}

fn pattern(bytes: u64) -> Vec<u8> {
    (0..bytes / 8).flat_map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

#[test]
fn a_set_is_stored_listed_verified_fetched_and_deleted() {
    let Some(server) = Server::start(None) else { return };
    let source = tempfile::tempdir().unwrap();
    fs::create_dir_all(source.path().join("a/b")).unwrap();
    for n in 0..40 {
        fs::write(source.path().join(format!("a/b/shard-{n}")), pattern(n * 1000)).unwrap();
    }
    fs::write(source.path().join("plain.txt"), b"for anybody").unwrap();
    fs::write(source.path().join(OsStr::from_bytes(b" &<+\xff\n%41~#1")), b"named").unwrap();
    fs::write(source.path().join("grüße 日本"), b"greetings").unwrap();
    fs::write(source.path().join("large"), pattern(2 * CHUNK_BYTES + 8000)).unwrap();
    std::os::unix::fs::symlink("plain.txt", source.path().join("link")).unwrap();

    let set = server.set("run 1/step+7");
    let drained = drain(&set, source.path(), &Forgetful::default(), &Unlimited).unwrap();
    assert_eq!((drained.files, drained.already, drained.strangers), (44, false, 0));
    assert!(drain(&set, source.path(), &Forgetful::default(), &Unlimited).unwrap().already);
    assert_eq!(server.object("run 1/step+7/plain.txt").unwrap(), b"for anybody");
    assert_eq!(server.object("run 1/step+7/%20%26%3C%2B%FF%0A%2541%7E%231").unwrap(), b"named");
    assert!(server.object("run 1/step+7/large").unwrap() == pattern(2 * CHUNK_BYTES + 8000));
    assert_comes_back(&set, source.path());

    let listed = server.set("run 1").list(&Stop::new()).unwrap();
    assert_eq!(listed.iter().map(|set| set.name.as_str()).collect::<Vec<_>>(), ["step+7"]);
    let again = ObjectSet::open(&listed[0].url, &environment()).unwrap();
    let verified = again.verify(&Unlimited, &Stop::new(), &Progress::default()).unwrap();
    assert_eq!((verified.files, verified.faults.len()), (44, 0));
    assert_eq!(set.delete(&Stop::new()).unwrap(), 44);
    assert!(server.set("run 1").list(&Stop::new()).unwrap().is_empty());
    assert_eq!(server.object("run 1/step+7/plain.txt"), None);
}

/// Counts bytes, and holds the drain for good before one of its requests.
struct Gate {
    bytes: AtomicU64,
    asked: AtomicU64,
    hold: u64,
    told: PathBuf,
}

impl Pace for Gate {
    fn admit(&self, bytes: u64, _: u64, _: &Stop) {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        if self.asked.fetch_add(1, Ordering::SeqCst) == self.hold {
            fs::write(&self.told, b"").unwrap();
            loop {
                std::thread::park();
            }
        }
    }
}

#[test]
fn child() {
    let Ok(orders) = std::env::var(CHILD) else { return };
    let orders: Vec<&str> = orders.lines().collect();
    let [what, url, directory, notes, hold] = orders[..] else { panic!("{orders:?}") };
    let set = ObjectSet::open(url, &environment()).unwrap();
    let told = Path::new(notes).join("held");
    let gate = Gate { bytes: 0.into(), asked: 0.into(), hold: hold.parse().unwrap(), told };
    let (directory, notes) = (Path::new(directory), Notes(notes.into()));
    match what {
        "drain" => drain(&set, directory, &notes, &gate).map(drop).unwrap(),
        _ => fetch(&set, directory, false, &notes, &gate).unwrap(),
    }
}

fn spawn_child(
    what: &str,
    url: &str,
    directory: &Path,
    notes: &Path,
    hold: u64,
    certificate: Option<&Path>,
) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]);
    command.env(CHILD, format!("{what}\n{url}\n{}\n{}\n{hold}", directory.display(), notes.display()));
    if let Some(certificate) = certificate {
        command.env("SSL_CERT_FILE", certificate);
    }
    command.stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_drain_that_is_killed_goes_on_without_uploading_what_was_noted() {
    const PARTS: u64 = 14;
    let Some(server) = Server::start(None) else { return };
    let (source, notes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(source.path().join("large"), pattern(PARTS * CHUNK_BYTES)).unwrap();
    let url = server.url("run/killed");
    kill_when_held(spawn_child("drain", &url, source.path(), notes.path(), PARTS - 1, None), notes.path());
    let set = server.set("run/killed");
    assert!(set.manifest(&Stop::new()).is_err(), "a set without its last part");
    let count = |notes: &Notes| {
        let piece = |nth: u64| notes.load(&format!("object/upload/run/killed/large/{nth}")).unwrap();
        (0..)
            .map_while(piece)
            .map(|piece| String::from_utf8(piece).unwrap().matches("\"number\"").count() as u64)
            .sum()
    };
    let kept = Notes(notes.path().to_owned());
    let noted: u64 = count(&kept);
    assert!((1..PARTS).contains(&noted), "{noted}");
    let gate = Gate { bytes: 0.into(), asked: 0.into(), hold: u64::MAX, told: PathBuf::new() };
    drain(&set, source.path(), &kept, &gate).unwrap();
    assert_eq!(gate.bytes.load(Ordering::SeqCst), (PARTS - noted) * CHUNK_BYTES);
    assert_comes_back(&set, source.path());
}

fn kill_when_held(mut child: Child, notes: &Path) {
    while !notes.join("held").exists() {
        assert!(child.try_wait().unwrap().is_none(), "the child has ended by itself");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_fetch_that_is_killed_goes_on_without_fetching_what_was_noted() {
    const CHUNKS: u64 = 14;
    let Some(server) = Server::start(None) else { return };
    let [source, notes, back] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    fs::write(source.path().join("large"), pattern(CHUNKS * CHUNK_BYTES)).unwrap();
    fs::write(source.path().join("small"), b"small").unwrap();
    let set = server.set("run/fetched");
    drain(&set, source.path(), &Forgetful::default(), &Unlimited).unwrap();
    let url = server.url("run/fetched");
    kill_when_held(spawn_child("fetch", &url, back.path(), notes.path(), CHUNKS, None), notes.path());
    let kept = Notes(notes.path().to_owned());
    let noted: u64 = (0..)
        .map_while(|nth| kept.load(&format!("object/fetch/large/{nth}")).unwrap())
        .map(|piece| {
            piece.split(|byte| *byte == b'[').nth(1).unwrap().split(|byte| *byte == b',').count() as u64
        })
        .sum();
    assert!((1..CHUNKS).contains(&noted), "{noted}");
    let gate = Gate { bytes: 0.into(), asked: 0.into(), hold: u64::MAX, told: PathBuf::new() };
    fetch(&set, back.path(), true, &kept, &gate).unwrap();
    // The small one had been fetched; whether that was noted is a matter of time.
    let fetched = gate.bytes.load(Ordering::SeqCst);
    assert!([0, 5].contains(&(fetched - (CHUNKS - noted) * CHUNK_BYTES)), "{fetched}");
    assert_same(source.path(), back.path());
}

/// Has somebody else try for the same name while a drain is at work.
struct Rival<'a> {
    tries: &'a (dyn Fn() + Sync),
    asked: AtomicU64,
}

impl Pace for Rival<'_> {
    fn admit(&self, _: u64, _: u64, _: &Stop) {
        if self.asked.fetch_add(1, Ordering::SeqCst) == 0 {
            (self.tries)();
        }
    }
}

#[test]
fn of_two_who_want_a_name_at_once_one_is_refused_and_the_others_set_is_whole() {
    let Some(server) = Server::start(None) else { return };
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(ours.path().join("f"), b"ours").unwrap();
    fs::write(theirs.path().join("f"), b"theirs").unwrap();
    let tries = || {
        let error =
            drain(&server.set("run/raced"), theirs.path(), &Forgetful::default(), &Unlimited).unwrap_err();
        assert_eq!(error.class(), stage::ErrorClass::Refused, "{error}");
    };
    let rival = Rival { tries: &tries, asked: 0.into() };
    drain(&server.set("run/raced"), ours.path(), &Forgetful::default(), &rival).unwrap();
    assert!(rival.asked.load(Ordering::SeqCst) > 0);
    assert_comes_back(&server.set("run/raced"), ours.path());
    let error =
        drain(&server.set("run/raced"), theirs.path(), &Forgetful::default(), &Unlimited).unwrap_err();
    assert_eq!(error.class(), stage::ErrorClass::Refused, "{error}");
}

#[test]
fn a_server_that_never_answers_is_a_time_out_that_names_what_was_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!(
        "s3://{BUCKET}/run/stalled?endpoint=http://127.0.0.1:{port}&allow_http=true&timeout_s=1&retries=0"
    );
    let set = ObjectSet::open(&url, &environment()).unwrap();
    let error = set.manifest(&Stop::new()).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("s3://checkpoints/run/stalled/.flashwright-manifest: cannot read the manifest"),
        "{error}"
    );
    assert!(error.contains("timed out"), "{error}");
}

#[test]
fn a_bucket_that_is_not_there_is_named_with_the_key_and_the_request() {
    let Some(server) = Server::start(None) else { return };
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("f"), b"f").unwrap();
    let url = server.url("run/x").replace(BUCKET, "nowhere");
    let set = ObjectSet::open(&url, &environment()).unwrap();
    let error = drain(&set, source.path(), &Forgetful::default(), &Unlimited).unwrap_err().to_string();
    assert!(error.starts_with("s3://nowhere/run/x: cannot list what is there"), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[test]
fn a_set_goes_over_tls_and_not_to_a_server_that_nobody_vouches_for() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&key)
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        println!("SKIP TLS: no openssl to make a certificate with");
        return;
    }
    let Some(server) = Server::start(Some((&certificate, &key))) else { return };
    let (source, notes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(source.path().join("f"), pattern(100_000)).unwrap();
    // The bucket is made by the same request that moto takes from anybody; here it is the client's own library's.
    let url = format!("{}&retries=0", server.url("run/tls"));
    let set = ObjectSet::open(&url, &environment()).unwrap();
    let error = set.manifest(&Stop::new()).map(drop).unwrap_err();
    assert!(matches!(error, StageError::Peer { .. }), "{error}");
    let made = Command::new(python())
        .args(["-c", "import sys,boto3; boto3.client('s3', endpoint_url=sys.argv[1], verify=sys.argv[2], region_name='us-east-1', aws_access_key_id='a', aws_secret_access_key='b').create_bucket(Bucket=sys.argv[3])"])
        .arg(format!("https://127.0.0.1:{}", server.port))
        .arg(&certificate)
        .arg(BUCKET)
        .status();
    assert!(made.unwrap().success());
    let mut child = spawn_child("drain", &url, source.path(), notes.path(), u64::MAX, Some(&certificate));
    assert!(child.wait().unwrap().success());
}
