//! `flashwright stage` with a server of the user's own: jobs handed in, waited for, given up, gone on with after a kill.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::{Came, command, ended, finish, fits_schema, memory_beside, names, place, signal, wait_until};
use serde_json::Value;

/// The binary, with a home and a socket of its own. Socket paths are short (108 bytes, unix(7)), so it is beside.
fn stage(folder: &Path, arguments: &[&str]) -> Command {
    let mut all = vec!["stage"];
    all.extend(arguments);
    let mut command = command(folder, &all);
    for variable in ["XDG_STATE_HOME", "XDG_RUNTIME_DIR", "STATE_DIRECTORY"] {
        command.env_remove(variable);
    }
    command.env("HOME", folder.join("home")).env("FLASHWRIGHT_STAGE_SOCKET", folder.join("sock"));
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Came {
    finish(&mut stage(folder, arguments))
}

fn works(folder: &Path, arguments: &[&str]) -> Came {
    let came = run(folder, arguments);
    assert_eq!(came.code, 0, "{arguments:?}: {came:#?}");
    came
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&works(folder, arguments).out).expect("one JSON document")
}

/// A server that ends with its test.
struct Server(Child);

impl Server {
    fn start(folder: &Path) -> Self {
        let log = fs::File::create(folder.join("log")).expect("a log");
        let mut serve = stage(folder, &["serve", "--state", "state", "--socket", "sock"]);
        let mut child = serve.stdout(Stdio::null()).stderr(log).spawn().expect("runs");
        wait_until("the server", || {
            if let Some(status) = child.try_wait().expect("can be asked") {
                panic!("{status}: {}", fs::read_to_string(folder.join("log")).unwrap_or_default());
            }
            run(folder, &["status"]).code == 0
        });
        Self(child)
    }

    fn kill(mut self) {
        self.0.kill().expect("kills");
        self.0.wait().expect("ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn set(folder: &Path, name: &str, mebibytes: usize) {
    let set = folder.join(name);
    fs::create_dir_all(&set).expect("makes");
    for file in 0..mebibytes {
        fs::write(set.join(format!("{file}")), vec![file as u8 + 1; 1 << 20]).expect("writes");
    }
}

#[test]
fn a_job_is_handed_in_waited_for_and_told_of() {
    let folder = place();
    fs::create_dir(folder.path().join("slow")).expect("makes");
    let _server = Server::start(folder.path());
    set(folder.path(), "fast/ckpt-7", 2);
    let here = folder.path().display();
    let came = works(folder.path(), &["mv", "--parents", "fast/ckpt-7", "slow/"]);
    assert_eq!(came.out, format!("job 1: {here}/fast/ckpt-7 → {here}/slow/ckpt-7\n"));
    let came = works(folder.path(), &["wait", "slow/ckpt-7", "--timeout=60s"]);
    assert!(
        came.out.starts_with(&format!("{here}/slow/ckpt-7: durable and verified, 2 files, 2 MiB")),
        "{came:?}"
    );
    assert_eq!(names(&folder.path().join("fast")), [] as [String; 0]);
    let came = works(folder.path(), &["wait", "1", "--level=staged"]);
    assert_eq!(came.out, "job 1: accepted\n");

    let document = json(folder.path(), &["status", "--json"]);
    fits_schema(folder.path(), "stage-status", &document);
    assert_eq!(document["jobs"][0]["state"], "done");
    let came = works(folder.path(), &["status"]);
    assert!(came.out.contains("your server, pid ") && came.out.contains("   1  done       mv  "), "{came:?}");
    let came = works(folder.path(), &["status", "1", "--follow"]);
    assert_eq!(came.out, "", "what had ended before is no news");
    works(folder.path(), &["verify", "1"]);
    let came = works(folder.path(), &["doctor"]);
    assert_eq!(came.out, "nothing is stuck\n");
}

#[test]
fn a_wait_for_a_durable_copy_that_is_in_memory_fails_and_a_semaphore_is_not_removed_for_it() {
    let folder = place();
    let Some(memory) = memory_beside(folder.path()) else { return };
    let _server = Server::start(folder.path());
    set(folder.path(), "fast/ckpt-7", 2);
    let copy = memory.path().join("ckpt-7").display().to_string();
    let is_told = |arguments: &[&str]| {
        let came = run(folder.path(), arguments);
        assert_eq!(came.code, 1, "{arguments:?}: {came:#?}");
        let told = format!("{copy}: is in memory, and is not durable\nhint: ");
        assert!(came.err.contains(&told), "{arguments:?}: {came:#?}");
        came
    };
    is_told(&["cp", "--wait", "-T", "fast/ckpt-7", &copy]);
    is_told(&["cp", "--wait=durable", "-T", "--idempotent", "fast/ckpt-7", &copy]);
    is_told(&["wait", "1", "--level", "durable"]);
    is_told(&["wait", &copy, "--timeout=60s"]);
    works(folder.path(), &["wait", "1", "--level=local"]);
    let came = is_told(&["wait", "1", "--json"]);
    let document: Value = serde_json::from_str(&came.out).expect("one JSON document");
    fits_schema(folder.path(), "stage-status", &document);
    let job = &document["jobs"][0];
    assert_eq!((&job["state"], &job["level"]), (&"done".into(), &"in-memory".into()), "{document}");
    assert_eq!((&job["in_memory"], &job["durable"]), (&true.into(), &Value::Null), "{document}");
    let came = works(folder.path(), &["status"]);
    assert!(
        came.out.contains("copied to memory, not durable") && !came.out.contains("durable after"),
        "{came:#?}"
    );

    fs::write(folder.path().join("fast/ckpt-7.done"), "").expect("writes");
    let to = memory.path().display().to_string();
    let came = run(folder.path(), &["watch", "fast", "--to", &to, "--trigger=*.done", "--copy", "--once"]);
    assert_eq!(came.code, 3, "{came:#?}");
    assert!(came.err.contains("is in memory (tmpfs at /dev/shm), and a semaphore asks for"), "{came:#?}");
    assert!(folder.path().join("fast/ckpt-7.done").exists());
}

#[test]
fn a_move_of_what_a_copy_has_stored_already_removes_the_source() {
    let folder = place();
    let _server = Server::start(folder.path());
    let store = format!("file://{}/store", folder.path().canonicalize().expect("is there").display());
    for name in ["store", "slow"] {
        fs::create_dir(folder.path().join(name)).expect("makes");
    }
    for (name, to) in [("ckpt-7", "slow".to_owned()), ("ckpt-8", store)] {
        let (source, copy) = (format!("fast/{name}"), format!("{to}/{name}"));
        set(folder.path(), &source, 2);
        works(folder.path(), &["cp", "--wait", "-T", &source, &copy]);
        let came = works(folder.path(), &["cp", "--wait", "--idempotent", "-T", &source, &copy]);
        assert!(came.out.contains("there already, and right"), "{came:?}");
        works(folder.path(), &["mv", "--wait", "--idempotent", "-T", &source, &copy]);
        assert!(!folder.path().join(&source).exists(), "the source stays");
        works(folder.path(), &["verify", &copy]);
        let came = works(folder.path(), &["mv", "--wait", "--idempotent", "-T", &source, &copy]);
        assert!(came.out.contains("there already, and right"), "{came:?}");
    }
}

#[test]
fn a_bucket_in_which_no_set_is_named_becomes_no_job() {
    let folder = place();
    fs::write(folder.path().join("file"), "x").expect("writes");
    let _server = Server::start(folder.path());
    for more in [&[][..], &["--foreground", "--state=own"]] {
        for places in [["file", "s3://bucket"], ["s3://bucket", "copy"]] {
            let came = run(folder.path(), &[&["cp"], more, &places].concat());
            assert_eq!((came.code, came.out.as_str()), (2, ""), "{came:?}");
            assert!(came.err.starts_with("error: s3://bucket: no set is named\nhint: "), "{came:?}");
        }
    }
    assert_eq!(json(folder.path(), &["status", "--all", "--json"])["jobs"].as_array().map(Vec::len), Some(0));
}

#[test]
fn jobs_that_are_not_there_or_not_in_that_state_are_refused() {
    let folder = place();
    let _server = Server::start(folder.path());
    let none = "error: nowhere: no job has this number, source or destination\n\
                hint: `flashwright stage status --all` lists them\n";
    for verb in ["wait", "status", "cancel", "retry"] {
        let came = run(folder.path(), &[verb, "nowhere"]);
        assert_eq!((came.code, came.err.as_str(), came.out.as_str()), (2, none, ""), "{verb}");
        let came = run(folder.path(), &[verb, "99"]);
        assert_eq!((came.code, came.out.as_str(), came.err.lines().count()), (2, "", 2), "{verb}: {came:?}");
    }
    fs::write(folder.path().join("a"), "a").expect("writes");
    works(folder.path(), &["cp", "--wait", "a", "b"]);
    let came = run(folder.path(), &["cancel", "1"]);
    assert_eq!((came.code, came.err.lines().count()), (3, 2), "{came:?}");
    let came = run(folder.path(), &["retry", "1"]);
    assert_eq!((came.code, came.err.lines().count()), (2, 2), "{came:?}");
}

#[test]
fn a_failure_is_told_with_its_class_and_begun_again_by_retry() {
    let folder = place();
    let _server = Server::start(folder.path());
    let came = run(folder.path(), &["mv", "--wait", "missing", "there"]);
    assert_ne!(came.code, 0, "{came:?}");
    assert!(came.err.starts_with("error: ") && came.err.contains("missing"), "{came:?}");
    let came = run(folder.path(), &["doctor"]);
    if came.code == 1 {
        assert!(came.out.contains("stuck: job 1"), "{came:?}");
        fs::write(folder.path().join("missing"), "here now").expect("writes");
        works(folder.path(), &["retry", "1"]);
        works(folder.path(), &["wait", "1"]);
        assert_eq!(fs::read(folder.path().join("there")).expect("reads"), b"here now");
    }
}

#[test]
fn a_job_that_is_given_up_leaves_its_source_and_nothing_else() {
    let folder = place();
    fs::create_dir(folder.path().join("slow")).expect("makes");
    let _server = Server::start(folder.path());
    set(folder.path(), "fast/ckpt-7", 8);
    works(folder.path(), &["mv", "--parents", "--bwlimit=100kB/s", "fast/ckpt-7", "slow/"]);
    wait_until("a part", || {
        folder.path().join("slow").is_dir() && !names(&folder.path().join("slow")).is_empty()
    });
    let came = run(folder.path(), &["wait", "1", "--timeout=10ms"]);
    assert_eq!(came.code, 1, "{came:?}");
    assert!(came.err.contains("it is not durable yet"), "{came:?}");
    works(folder.path(), &["cancel", "1"]);
    assert_eq!(names(&folder.path().join("slow")), [] as [String; 0]);
    assert_eq!(names(&folder.path().join("fast/ckpt-7")).len(), 8);
    let came = run(folder.path(), &["wait", "1"]);
    assert_eq!((came.code, came.err.as_str()), (1, "error: job 1: was cancelled\n"), "{came:?}");
}

#[test]
fn a_watch_outlives_its_server_and_a_kill_loses_nothing() {
    let folder = place();
    fs::create_dir(folder.path().join("slow")).expect("makes");
    let server = Server::start(folder.path());
    set(folder.path(), "fast/ckpt-1", 6);
    set(folder.path(), "fast/ckpt-2", 6);
    let watch = [
        "watch",
        "fast",
        "--to",
        "slow",
        "--parents",
        "--trigger",
        "*.done",
        "--settle=10ms",
        "--bwlimit=4MB/s",
    ];
    let log = fs::File::create(folder.path().join("watched")).expect("a log");
    let mut watcher = stage(folder.path(), &watch).stdout(log).stderr(Stdio::null()).spawn().expect("runs");
    fs::write(folder.path().join("fast/ckpt-1.done"), "").expect("writes");
    wait_until("the job", || {
        let jobs = json(folder.path(), &["status", "--json"]);
        jobs["jobs"][0]["bytes_written"].as_u64().is_some_and(|bytes| bytes > 0)
    });
    server.kill();
    fs::write(folder.path().join("fast/ckpt-2.done"), "").expect("writes");
    let visible = |name: &str| folder.path().join("slow").join(name).exists();
    assert!(!visible("ckpt-2"));
    let _server = Server::start(folder.path());
    wait_until("both semaphores to go", || names(&folder.path().join("fast")).is_empty());
    signal(&watcher, "-INT");
    assert_eq!(ended(&mut watcher).code(), Some(0));
    for name in ["ckpt-1", "ckpt-2"] {
        let document = json(folder.path(), &["verify", &format!("slow/{name}"), "--json"]);
        assert_eq!((document["right"].as_bool(), document["files"].as_u64()), (Some(true), Some(6)));
    }
}

#[test]
fn a_copy_is_evicted_by_the_word_of_the_server_and_the_bytes_of_the_slow_tier() {
    let folder = place();
    fs::create_dir(folder.path().join("slow")).expect("makes");
    let _server = Server::start(folder.path());
    set(folder.path(), "fast/ckpt-7", 2);
    works(folder.path(), &["cp", "--wait", "--parents", "fast/ckpt-7", "slow/"]);
    // What is verified is the place that was named: of a source, the copy is another one.
    let came = run(folder.path(), &["verify", "fast/ckpt-7"]);
    assert!(came.code == 2 && came.out.is_empty() && came.err.contains("its copy is "), "{came:?}");
    works(folder.path(), &["evict", "fast/ckpt-7"]);
    assert_eq!(names(&folder.path().join("fast")), [] as [String; 0]);
    works(folder.path(), &["get", "--wait", "slow/ckpt-7", "fast"]);
    assert_eq!(fs::read(folder.path().join("fast/ckpt-7/1")).expect("reads"), vec![2; 1 << 20]);
    works(folder.path(), &["evict", "fast/ckpt-7"]);
    // A missing source is told at once, and is no job.
    let came = run(folder.path(), &["mv", "fast/missing", "slow/"]);
    assert!(
        came.code == 2 && came.out.is_empty() && came.err.contains("fast/missing: is not there"),
        "{came:?}"
    );
    // Nothing is removed of which there is no copy.
    set(folder.path(), "fast/ckpt-8", 1);
    let came = run(folder.path(), &["evict", "fast/ckpt-8"]);
    assert_eq!(came.code, 3, "{came:?}");
    assert_eq!(names(&folder.path().join("fast/ckpt-8")).len(), 1);
}

#[test]
fn waiting_for_a_path_is_about_the_bytes_that_are_there_now() {
    let folder = place();
    let server = Server::start(folder.path());
    fs::write(folder.path().join("a"), "one").expect("writes");
    let job = json(folder.path(), &["cp", "-T", "a", "b", "--wait", "--json"]);
    let id = job["jobs"][0]["id"].to_string();
    works(folder.path(), &["wait", "./a"]);
    fs::write(folder.path().join("a"), "two").expect("writes");
    let came = run(folder.path(), &["wait", "./a"]);
    assert!(
        came.code == 1 && came.err.contains("has changed since job"),
        "durable was said of other bytes: {came:?}"
    );
    works(folder.path(), &["wait", &id]);
    works(folder.path(), &["wait", "./b"]);
    server.kill();
}

#[test]
fn a_manifest_that_is_gone_is_a_fault() {
    let folder = place();
    let server = Server::start(folder.path());
    fs::create_dir(folder.path().join("a")).expect("makes");
    fs::write(folder.path().join("a/file"), "bytes").expect("writes");
    works(folder.path(), &["mv", "--wait", "-T", "a", "b"]);
    fs::remove_file(folder.path().join("b/.flashwright-manifest")).expect("removes");
    for what in ["b", "1"] {
        let came = run(folder.path(), &["verify", what]);
        let words = format!(
            "error: {}/b/.flashwright-manifest: is not as it was written: the manifest that was written with it is gone",
            folder.path().display()
        );
        assert!(came.code == 1 && came.out.is_empty() && came.err.starts_with(&words), "{came:?}");
    }
    server.kill();
}

/// A journal that is used for years, and a set that is looked at at each start of the watch.
#[test]
fn a_set_is_known_for_moved_after_more_jobs_than_a_server_tells_of() {
    let folder = place();
    for directory in ["fast", "slow"] {
        fs::create_dir(folder.path().join(directory)).expect("makes");
    }
    for (name, text) in [("a", "1"), ("b", "2"), ("x.done", "a\nb\n")] {
        fs::write(folder.path().join("fast").join(name), text).expect("writes");
    }
    let words =
        ["watch", "fast", "--to", "slow", "--once", "--settle=10ms", "--trigger=*.done", "--keep-trigger"];
    let server = Server::start(folder.path());
    works(folder.path(), &words);
    server.kill();
    let script = "import sqlite3, sys; journal = sqlite3.connect(sys.argv[1]); journal.execute(\
                  'WITH RECURSIVE more(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM more WHERE n < 10003) \
                  INSERT INTO jobs (spec, state, level, created) \
                  SELECT json_set(json_remove(spec, \"$.options.semaphore\"), \"$.source.path\", \"/fast/\" || n), \
                  state, level, created FROM jobs, more WHERE id = 1'); journal.commit()";
    let mut python = Command::new("python3");
    python.args(["-c", script]).arg(folder.path().join("state/journal.db"));
    assert!(python.status().expect("runs").success());
    let _server = Server::start(folder.path());
    let jobs = json(folder.path(), &["status", "--json"]);
    let jobs = jobs["jobs"].as_array().expect("jobs");
    assert!(
        jobs.len() == 10_000 && jobs[0]["id"].as_u64() > Some(2),
        "{} jobs from {}",
        jobs.len(),
        jobs[0]["id"]
    );
    let came = works(folder.path(), &words);
    assert_eq!(came.out.lines().last(), Some("x.done: there already, and right"), "{came:?}");
}
