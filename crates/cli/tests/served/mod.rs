//! A server that a test has started, and what asks it.
#![allow(dead_code)] // each test binary uses its part

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use nbd::client::{ConnectOptions, Session, connect};
use nbd::wire::reply::Head;
use nbd::wire::request::{READ, Request, WRITE};

use super::common::{command, ended, signal};

/// Ended with the test, however that ends.
pub struct Served {
    pub child: Child,
    out: BufReader<ChildStdout>,
    /// What was said before it was ready.
    pub said: String,
    /// Where it is found.
    pub uri: String,
}

impl Served {
    /// Starts a server on a free port of this host, which every user of it can reach, and waits until it is ready.
    pub fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::start_at(folder, &[arguments, &["--listen", "127.0.0.1:0", "--insecure"]].concat())
    }

    /// The same, listening as the arguments say.
    pub fn start_at(folder: &Path, arguments: &[&str]) -> Self {
        Self::of(command(folder, arguments))
    }

    /// The same of a prepared command.
    pub fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let out = BufReader::new(child.stdout.take().expect("is piped"));
        // Whole from here on, so that it is ended whatever comes.
        let mut served = Self { child, out, said: String::new(), uri: String::new() };
        let mut line = String::new();
        while served.out.read_line(&mut line).expect("can be read") > 0 {
            if let Some(uri) = line.strip_prefix("ready: ") {
                uri.trim().clone_into(&mut served.uri);
                return served;
            }
            served.said.push_str(&std::mem::take(&mut line));
        }
        let mut err = String::new();
        let _ = served.child.stderr.take().expect("is piped").read_to_string(&mut err);
        panic!("{command:?} ended before it was ready: {}{err}", served.said);
    }

    /// Asks for its end and gives exit code and standard error.
    pub fn end(mut self) -> (i32, String) {
        signal(&self.child, "-TERM");
        let status = ended(&mut self.child);
        let mut err = String::new();
        self.child.stderr.take().expect("is piped").read_to_string(&mut err).expect("is text");
        (status.code().unwrap_or(-1), err)
    }

    /// Ends it as the loss of power would.
    pub fn kill(mut self) {
        self.child.kill().expect("can be killed");
        let _ = self.child.wait();
    }

    /// A connection to it.
    pub fn connect(&self) -> Asker {
        let options = ConnectOptions { structured: false, ..ConnectOptions::default() };
        Asker(connect(&self.uri.parse().expect("a URI"), &options).expect("connects"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that asks one thing at a time.
pub struct Asker(pub Session);

impl Asker {
    fn ask(&mut self, command: u16, offset: u64, length: usize, payload: &[u8]) -> Result<Vec<u8>, u32> {
        let request = Request { flags: 0, command, cookie: 7, offset, length: length as u32 };
        self.0.stream.write_all(&[&request.encode()[..], payload].concat()).expect("goes out");
        let mut head = [0; 16];
        self.0.stream.read_exact(&mut head).expect("comes in");
        match Head::parse(&head).expect("a reply") {
            Some((Head::Simple(reply), _)) if reply.error != 0 => Err(reply.error),
            Some((Head::Simple(_), _)) => {
                let mut data = vec![0; if command == READ { length } else { 0 }];
                self.0.stream.read_exact(&mut data).expect("comes in");
                Ok(data)
            }
            other => panic!("{other:?} is no simple reply"),
        }
    }

    pub fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, u32> {
        self.ask(READ, offset, length, &[])
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), u32> {
        self.ask(WRITE, offset, data.len(), data).map(drop)
    }
}

/// Whether programs are here; says what is left out where one is not.
pub fn have(programs: &[&str]) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let missing: Vec<&&str> = programs
        .iter()
        .filter(|program| !std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
        .collect();
    if !missing.is_empty() {
        eprintln!("SKIP a test with {programs:?}: {missing:?} are not installed (make test-tools)");
    }
    missing.is_empty()
}

/// Runs a program of somebody else's: whether it succeeded, and all that it said.
pub fn peer(folder: &Path, program: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(folder).stdin(Stdio::null()).output().expect("runs");
    let text = [&output.stdout[..], &output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Runs what has to succeed.
pub fn peer_works(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let (success, text) = peer(folder, program, arguments);
    assert!(success, "{program} {arguments:?}: {text}");
    text
}

/// A file of noise.
pub fn noise(path: &Path, bytes: usize) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let data = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    });
    std::fs::write(path, data.take(bytes).collect::<Vec<u8>>()).expect("writes");
}
