//! Runs the binary as a user does, in a directory of its own on a real file system.
#![allow(dead_code)] // each test binary uses its part

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

#[path = "../../../storage/tests/lab/loop_device.rs"]
pub mod loop_device;

/// What a command came to.
#[derive(Debug)]
pub struct Came {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// A directory beside the build, because /tmp may be memory.
pub fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// An executable copy of a program, made by install(1): children that other threads of this process start while it has a file
/// open for writing inherit that, and what somebody has open for writing is not executed (ETXTBSY).
pub fn install(program: &Path, at: &Path) {
    let made =
        Command::new("install").args(["-m", "755"]).args([program, at]).status().expect("install runs");
    assert!(made.success(), "{}", at.display());
}

/// An executable script.
pub fn script(at: &Path, text: &str) {
    let source = at.with_extension("text");
    std::fs::write(&source, text).expect("writes");
    install(&source, at);
}

/// A directory in memory, beside a scratch directory on a disk. None, having said so, if there is none, or if the scratch
/// directory is in memory itself.
pub fn memory_beside(disk: &Path) -> Option<tempfile::TempDir> {
    let kind = |path: &Path| {
        let found = Command::new("stat").args(["-f", "-c", "%T"]).arg(path).output().expect("stat runs");
        String::from_utf8_lossy(&found.stdout).trim().to_owned()
    };
    let memory = tempfile::tempdir_in("/dev/shm").ok().filter(|memory| kind(memory.path()) == "tmpfs");
    let memory = memory.filter(|_| kind(disk) != "tmpfs");
    if memory.is_none() {
        skipped("SKIP a copy in memory: the scratch directory is in memory, or /dev/shm is not");
    }
    memory
}

/// The binary with arguments, in a directory, with nothing of the caller's terminal.
pub fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashwright"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "TERM"] {
        command.env_remove(variable);
    }
    command
}

/// Runs to the end.
pub fn run(folder: &Path, arguments: &[&str]) -> Came {
    finish(&mut command(folder, arguments))
}

/// Runs a prepared command to its end.
pub fn finish(command: &mut Command) -> Came {
    let output = command.output().expect("the binary runs");
    Came {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// Whether a mount could be undone. The kernel lets go of the files of a process that had rings (io_uring_setup(2)) only some time
/// after it has ended.
pub fn unmounted(point: &Path) -> bool {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let is_gone = Command::new("umount").arg(point).output().is_ok_and(|output| output.status.success());
        if is_gone || Instant::now() >= until {
            return is_gone;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs what has to work.
pub fn works(folder: &Path, arguments: &[&str]) -> Came {
    let came = run(folder, arguments);
    assert_eq!(came.code, 0, "{arguments:?}: {came:#?}");
    came
}

/// Runs what has to print one JSON document and nothing else.
pub fn json(folder: &Path, arguments: &[&str]) -> Value {
    let came = works(folder, arguments);
    assert_eq!(came.err, "", "{arguments:?}");
    serde_json::from_str(&came.out).expect("one JSON document")
}

/// Asserts the exact words of a refusal, and that nothing else was said.
pub fn refused(folder: &Path, arguments: &[&str], code: i32, words: &str) {
    let came = run(folder, arguments);
    assert_eq!((came.err.as_str(), came.code), (words, code), "{arguments:?}");
    if arguments.contains(&"--json") {
        let document: Value = serde_json::from_str(&came.out).expect("an error is a document, too");
        let message = document["error"]["message"].as_str().unwrap_or_default();
        assert!(words.starts_with(&format!("error: {message}\n")), "{document}");
    } else {
        assert_eq!(came.out, "", "{arguments:?}");
    }
}

/// Asserts that a document is what `flashwright schema NAME` says.
pub fn fits_schema(folder: &Path, name: &str, document: &Value) {
    let schema = json(folder, &["schema", name]);
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> =
        validator.iter_errors(document).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{name}: {errors:#?}");
}

/// Names in a directory, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("lists")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Sends a signal by the usual tool.
pub fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
}

/// How a process ends, and the rest of what it prints. It is read all the while: a pipe holds 64 KiB, and a process whose
/// output nobody takes does not end.
pub fn ended_and_printed(child: &mut Child) -> (ExitStatus, String, String) {
    fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
        std::thread::spawn(move || {
            let mut text = String::new();
            pipe.expect("piped").read_to_string(&mut text).expect("reads");
            text
        })
    }
    let (out, err) = (read(child.stdout.take()), read(child.stderr.take()));
    let status = ended(child);
    (status, out.join().expect("text"), err.join().expect("text"))
}

/// How long a wait is that ends a test which hangs. A machine that does other things may need minutes for what takes seconds.
const HANGS_AFTER: Duration = Duration::from_secs(600);

/// Waits until `true`.
pub fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < HANGS_AFTER, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A written file of `mebibytes`, as a user would make one.
pub fn written(folder: &Path, name: &str, mebibytes: u64) -> PathBuf {
    let size = format!("--size={mebibytes}m");
    works(folder, &["bench", "--rw=write", "--bs=1m", &size, "--time_based=0", "--target", name]);
    folder.join(name)
}

/// Runs a tool of the system; none where it is not there or fails.
pub fn tool(name: &str, arguments: &[&str]) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new(name).args(arguments).env("PATH", path).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    tool("id", &["-u"]).as_deref() == Some("0")
}

/// Says why a part of a test is left out.
pub fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

/// Waits for a child, and fails where it hangs.
pub fn ended(child: &mut Child) -> ExitStatus {
    let mut status = None;
    wait_until("the end of the process", || {
        status = child.try_wait().expect("can be asked");
        status.is_some()
    });
    status.expect("it ended")
}
