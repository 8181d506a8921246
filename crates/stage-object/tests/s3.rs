//! Sets in a store that speaks S3: moto's server (`python3 -m moto.server`), over TCP, plain and with TLS.
//!
//! The drain that is killed runs in a process of its own, which is this program again with [`CHILD`] set.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use stage::digest::CHUNK_BYTES;
use stage::journal::{Accepted, Journal};
use stage::pace::{Pace, Progress, Stop, Unlimited};
use stage::tier::{Notes, Run};
use stage::{JobSpec, Options, Place, StageError, Verb};
use stage_object::{Environment, ObjectSet, StoreError, tiers_with};

/// What the child is to do: source, destination, state directory, and the request before which it stops for good,
/// each on a line.
const CHILD: &str = "FLASHWRIGHT_CHILD_S3";
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

/// Copies from one place to the other, as far as it comes. `state` has the journal.
fn copy(state: &Path, from: &str, to: &str, pace: &dyn Pace) -> Result<Notes, StageError> {
    let [source, destination] = [from, to].map(|place| match place.starts_with("s3:") {
        true => Place::of_name(place).unwrap(),
        false => Place::Path(Path::new(place).into()),
    });
    let spec = JobSpec { verb: Verb::Copy, source, destination, options: Options::default() };
    let journal = Journal::open(state)?;
    let id = match journal.accept(&spec, 0, None)? {
        Accepted::New(id) | Accepted::Same(id, _) => id,
        Accepted::Judge(row) => row.id,
    };
    let (tiers, stop, progress) = (&tiers_with(environment), &Stop::new(), &Progress::default());
    Run {
        journal: &journal,
        id,
        compares: false,
        spec: &spec,
        tiers,
        pace,
        stop,
        progress,
        threads: 2,
        crew: None,
    }
    .run()
    .map(|ended| ended.notes)
}

/// [`copy`] with a journal of its own.
fn copy_once(from: &str, to: &str) -> Result<Notes, StageError> {
    copy(tempfile::tempdir().unwrap().path(), from, to, &Unlimited)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn assert_comes_back(url: &str, source: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let back = folder.path().join("back");
    copy_once(url, text(&back)).unwrap();
    assert_same(source, &back);
}

/// What `count` finds in the notes with this key and a number, of the one job of a journal.
fn noted(state: &Path, key: &str, count: impl Fn(&serde_json::Value) -> usize) -> u64 {
    let journal = Journal::open(state).unwrap();
    let notes = (0..).map_while(|nth| journal.note(1, &format!("{key}/{nth}")).unwrap());
    notes.map(|note| count(&serde_json::from_slice(&note).unwrap()) as u64).sum()
}

fn assert_same(a: &Path, b: &Path) {
    let compared = Command::new("diff")
        .args(["-r", "--no-dereference", "-x", stage::manifest::NAME])
        .arg(a)
        .arg(b)
        .status();
    assert!(compared.unwrap().success());
}

fn pattern(bytes: u64) -> Vec<u8> {
    let mut all = vec![0; (bytes / 8 * 8) as usize];
    for (number, word) in (0u64..).zip(all.chunks_exact_mut(8)) {
        word.copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    all
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

    let (set, url) = (server.set("run 1/step+7"), server.url("run 1/step+7"));
    assert_eq!(copy_once(text(source.path()), &url).unwrap(), Notes::new());
    assert!(copy_once(text(source.path()), &url).unwrap()[0].contains("was there already"));
    assert_eq!(server.object("run 1/step+7/plain.txt").unwrap(), b"for anybody");
    assert_eq!(server.object("run 1/step+7/%20%26%3C%2B%FF%0A%2541%7E%231").unwrap(), b"named");
    assert!(server.object("run 1/step+7/large").unwrap() == pattern(2 * CHUNK_BYTES + 8000));
    assert_comes_back(&url, source.path());

    let tier =
        tiers_with(environment).open(&Place::of_name(server.url("run 1")).unwrap(), &Stop::new()).unwrap();
    let names = || tier.names(&|_| true).unwrap();
    assert_eq!(names(), ["step+7"]);
    let verified = set.verify(&Unlimited, &Stop::new(), &Progress::default()).unwrap();
    assert_eq!((verified.files, verified.faults.len()), (44, 0));
    assert_eq!(set.delete(&Stop::new()).unwrap(), 44);
    assert!(names().is_empty());
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
    let [from, to, state, hold] = orders[..] else { panic!("{orders:?}") };
    let told = Path::new(state).join("held");
    let gate = Gate { bytes: 0.into(), asked: 0.into(), hold: hold.parse().unwrap(), told };
    copy(Path::new(state), from, to, &gate).unwrap();
}

fn spawn_child(from: &str, to: &str, state: &Path, hold: u64, certificate: Option<&Path>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]);
    command.env(CHILD, format!("{from}\n{to}\n{}\n{hold}", state.display()));
    if let Some(certificate) = certificate {
        command.env("SSL_CERT_FILE", certificate);
    }
    command.stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_drain_that_is_killed_goes_on_without_uploading_what_was_noted() {
    const PARTS: u64 = 14;
    let Some(server) = Server::start(None) else { return };
    let (source, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(source.path().join("large"), pattern(PARTS * CHUNK_BYTES)).unwrap();
    let (from, url) = (text(source.path()), server.url("run/killed"));
    kill_when_held(spawn_child(from, &url, state.path(), PARTS - 1, None), state.path());
    assert!(server.set("run/killed").manifest(&Stop::new()).is_err(), "a set without its last part");
    let of_note = |note: &serde_json::Value| note["parts"].as_array().unwrap().len();
    let noted = noted(state.path(), "object/upload/run/killed/large", of_note);
    assert!((1..PARTS).contains(&noted), "{noted}");
    let gate = Gate { bytes: 0.into(), asked: 0.into(), hold: u64::MAX, told: PathBuf::new() };
    copy(state.path(), from, &url, &gate).unwrap();
    assert_eq!(gate.bytes.load(Ordering::SeqCst), (PARTS - noted) * CHUNK_BYTES);
    assert_comes_back(&url, source.path());
}

fn kill_when_held(mut child: Child, state: &Path) {
    while !state.join("held").exists() {
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
    let [source, state, folder] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    fs::write(source.path().join("large"), pattern(CHUNKS * CHUNK_BYTES)).unwrap();
    fs::write(source.path().join("small"), b"small").unwrap();
    let (url, back) = (server.url("run/fetched"), folder.path().join("back"));
    copy_once(text(source.path()), &url).unwrap();
    kill_when_held(spawn_child(&url, text(&back), state.path(), CHUNKS, None), state.path());
    let of_note = |note: &serde_json::Value| note["chunks"].as_array().unwrap().len();
    let noted = noted(state.path(), "object/fetch/large", of_note);
    assert!((1..CHUNKS).contains(&noted), "{noted}");
    let gate = Gate { bytes: 0.into(), asked: 0.into(), hold: u64::MAX, told: PathBuf::new() };
    copy(state.path(), &url, text(&back), &gate).unwrap();
    // The small one had been fetched; whether that was recorded is a matter of time.
    let fetched = gate.bytes.load(Ordering::SeqCst);
    assert!([0, 5].contains(&(fetched - (CHUNKS - noted) * CHUNK_BYTES)), "{fetched}");
    assert_same(source.path(), &back);
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
    let [ours, theirs, state] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    fs::write(ours.path().join("f"), b"ours").unwrap();
    fs::write(theirs.path().join("f"), b"theirs").unwrap();
    let url = server.url("run/raced");
    let refused = || {
        let error = copy_once(text(theirs.path()), &url).unwrap_err();
        assert_eq!(error.class(), stage::ErrorClass::Refused, "{error}");
    };
    let rival = Rival { tries: &refused, asked: 0.into() };
    copy(state.path(), text(ours.path()), &url, &rival).unwrap();
    assert!(rival.asked.load(Ordering::SeqCst) > 0);
    assert_comes_back(&url, ours.path());
    refused();
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
    let error = copy_once(text(source.path()), &url).unwrap_err().to_string();
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
    let (source, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(source.path().join("f"), pattern(100_000)).unwrap();
    // The bucket is made by the same request that moto takes from anybody; here it is the client's own library's.
    let url = format!("{}&retries=0", server.url("run/tls"));
    let set = ObjectSet::open(&url, &environment()).unwrap();
    let error = set.manifest(&Stop::new()).map(drop).unwrap_err();
    assert!(error.foreign::<StoreError>().is_some(), "{error}");
    let made = Command::new(python())
        .args(["-c", "import sys,boto3; boto3.client('s3', endpoint_url=sys.argv[1], verify=sys.argv[2], region_name='us-east-1', aws_access_key_id='a', aws_secret_access_key='b').create_bucket(Bucket=sys.argv[3])"])
        .arg(format!("https://127.0.0.1:{}", server.port))
        .arg(&certificate)
        .arg(BUCKET)
        .status();
    assert!(made.unwrap().success());
    let mut child = spawn_child(text(source.path()), &url, state.path(), u64::MAX, Some(&certificate));
    assert!(child.wait().unwrap().success());
}
