//! `flashwright stage` without a server: requests, work in the foreground, semaphores, verification, eviction.

mod common;

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Came, command, ended, finish, fits_schema, memory_beside, names, place, signal, wait_until};
use serde_json::Value;

/// The binary, with a home of its own, so that no server and no journal of the user's is in it.
fn stage(folder: &Path, arguments: &[&str]) -> Command {
    let mut all = vec!["stage"];
    all.extend(arguments);
    let mut command = command(folder, &all);
    command.env("HOME", folder.join("home"));
    for variable in [
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
        "XDG_RUNTIME_DIR",
        "STATE_DIRECTORY",
        "FLASHWRIGHT_STAGE_SOCKET",
    ] {
        command.env_remove(variable);
    }
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
    let came = works(folder, arguments);
    serde_json::from_str(&came.out).expect("one JSON document")
}

fn refused(folder: &Path, arguments: &[&str], code: i32, words: &str) {
    let came = run(folder, arguments);
    assert_eq!((came.err.as_str(), came.code, came.out.as_str()), (words, code, ""), "{arguments:?}");
}

/// Bytes that are the same nowhere else.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = 2 * seed + 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A checkpoint of two files, one of more than a chunk, and a directory.
fn checkpoint(folder: &Path, name: &str) -> PathBuf {
    let set = folder.join(name);
    fs::create_dir_all(set.join("deep")).expect("makes");
    fs::write(set.join("large"), bytes(1, 9 << 20)).expect("writes");
    fs::write(set.join("deep/small"), bytes(2, 5000)).expect("writes");
    set
}

fn is_the_checkpoint(set: &Path) {
    assert!(fs::read(set.join("large")).expect("reads") == bytes(1, 9 << 20));
    assert!(fs::read(set.join("deep/small")).expect("reads") == bytes(2, 5000));
}

#[test]
fn a_url_that_no_store_can_have_ends_the_command_before_there_is_a_job() {
    let folder = tempfile::tempdir().expect("makes");
    let here = folder.path();
    fs::create_dir(here.join("set")).expect("makes");
    fs::write(here.join("set/file"), "x").expect("writes");
    let up = format!("file://{}/store/../../escaped/set", here.display());
    for url in [
        "memory:///run/set",
        "s3://user:hunter2@bucket/set",
        "s3://bucket/set?regoin=hunter2",
        "s3://bucket/set?timeout_s=hunter2",
        "s3://bucket/set?endpoint=http://user:hunter2@host",
        "s3://bucket/a/../set",
        "s3://bucket/set#1",
        &up,
    ] {
        for verb in [
            &["mv", "--foreground", "-T", "set", url][..],
            &["cp", "-T", "set", url],
            &["get", url, "elsewhere"],
            &["evict", "set", "--copy", url],
            &["watch", ".", "--to", url, "--trigger", "*.done", "--once"],
            &["verify", url],
        ] {
            let came = run(here, verb);
            assert_eq!((came.code, came.out.as_str()), (2, ""), "{verb:?}: {came:#?}");
            assert!(!came.err.contains("hunter2"), "{verb:?}: {came:#?}");
        }
    }
    assert_eq!(names(here), ["set"], "neither a journal nor a copy");
    assert_eq!(fs::read(here.join("set/file")).expect("reads"), b"x");
}

#[test]
fn wrong_requests_are_named_with_their_values() {
    let folder = place();
    fs::write(folder.path().join("file"), "x").expect("writes");
    let here = folder.path().display().to_string();
    let no_directory = "error: --state=file: is not a directory\n\
                        hint: name a directory; one that is not there is made when it is needed\n";
    let cases: Vec<(&[&str], i32, String)> = vec![
        (
            &["mv", "a"],
            2,
            "error: 'a' is one place, and there must be two\nhint: name what is moved, and where to: SRC… DST\n".into(),
        ),
        (
            &["cp", "--bwlimit=2x", "a", "b"],
            2,
            "error: --bwlimit=2x: 'x' in '2x' is not a unit (expected none, b, k, m, g, t, p)\n\
             hint: a rate is 2g or 1GiB/s (powers of 1024) or 2GB/s (powers of ten)\n"
                .into(),
        ),
        (
            &["cp", "--deadline=soon", "a", "b"],
            2,
            "error: --deadline=soon: 'soon' is neither a time from now nor a date and time\n\
             hint: for instance 30m, 2026-12-01T10:00, or 2026-12-01T10:00:00Z\n"
                .into(),
        ),
        (
            &["cp", "--preserve=time", "a", "b"],
            2,
            "error: --preserve=time: \"time\" is none of owner, mode, times, xattrs, acls, sparse, links, all, none\n\
             hint: for instance mode,times,links, or all\n"
                .into(),
        ),
        (
            &["cp", "--digest=md5", "a", "b"],
            2,
            "error: --digest=md5: 'md5' is not known\nhint: there are xxh3, blake3\n".into(),
        ),
        (
            &["wait", "7", "--level=durabel"],
            2,
            "error: --level=durabel: 'durabel' is not known\n\
             hint: did you mean durable? There are staged, local, durable\n"
                .into(),
        ),
        (
            &["mv", "file", "s3:/bucket/run"],
            2,
            "error: s3:/bucket/run: looks like a URL, and is not one of an object store\n\
             hint: an object store is s3://BUCKET/PREFIX; a file whose name looks so is ./NAME\n"
                .into(),
        ),
        (
            &["mv", "file", "user@host:run"],
            2,
            "error: user@host:run: looks like a URL, and is not one of an object store\n\
             hint: an object store is s3://BUCKET/PREFIX; a file whose name looks so is ./NAME\n"
                .into(),
        ),
        (
            &["watch", ".", "--to", "S3://bucket/run", "--trigger", "*.done"],
            2,
            "error: S3://bucket/run: looks like a URL, and is not one of an object store\n\
             hint: an object store is s3://BUCKET/PREFIX; a file whose name looks so is ./NAME\n"
                .into(),
        ),
        (
            &["mv", "--foreground", "missing", "x"],
            2,
            format!(
                "error: {here}/missing: is not there\n\
                 hint: name what is to be moved or copied; what was moved before lies at its destination\n"
            ),
        ),
        (
            &["cp", "a", "b", "c"],
            2,
            format!(
                "error: {here}/c: is no directory, and 2 sources need one\n\
                 hint: for a directory that is to be made, let a slash follow: --parents DST/\n"
            ),
        ),
        (
            &["watch", "file", "--to", "x", "--trigger", "*.done"],
            2,
            format!("error: {here}/file: is no directory\nhint: name the directory that semaphores come into\n"),
        ),
        (
            &["watch", ".", "--to", "x", "--trigger", "*.done"],
            2,
            format!(
                "error: --to={here}/x: lies in the directory that is watched\n\
                 hint: what is moved there would be found again; name a directory outside of it\n"
            ),
        ),
        (
            &["watch", ".", "--to", "/elsewhere", "--trigger", "a//b"],
            2,
            "error: --trigger=a//b: has a level without a name\n\
             hint: a name with a wildcard, such as '*.done', or one in each directory, such as 'ckpt-*/DONE'\n"
                .into(),
        ),
        (
            &["verify", "nothing"],
            2,
            format!(
                "error: {here}/nothing: is not there\n\
                 hint: name what was made, or the number of the job that made it\n"
            ),
        ),
        (
            &["verify", "file"],
            2,
            "error: file: has no manifest, and no journal knows it\n\
             hint: only what flashwright stage has copied can be compared with what it was\n"
                .into(),
        ),
        (
            &["evict", "s3://x/y"],
            2,
            "error: s3://x/y: is not on a fast tier\n\
             hint: name the fast copy; its slow copy is named by --copy\n"
                .into(),
        ),
        (
            &["evict", "nothing"],
            2,
            format!("error: {here}/nothing: is not there\nhint: name the fast copy of a set\n"),
        ),
        (
            &["evict", "/"],
            2,
            "error: /: has no name\nhint: name the fast copy of a set: a directory in a directory\n".into(),
        ),
        (
            &["serve", "--config=nothing"],
            2,
            "error: --config=nothing: is not there\nhint: name a file in TOML\n".into(),
        ),
        (
            &["serve", "--pools=/"],
            2,
            "error: --pools=/: is a directory\nhint: name a file in TOML\n".into(),
        ),
        (
            &["pools", "--config=file/nothing"],
            2,
            "error: --config=file/nothing: is not there\nhint: name a file in TOML\n".into(),
        ),
        (
            &["doctor", "--state=nothing"],
            2,
            "error: --state=nothing: is not there\n\
             hint: name the state directory of a server, or of commands with --foreground\n"
                .into(),
        ),
        (&["serve", "--state=file"], 2, no_directory.into()),
        (&["doctor", "--state=file"], 2, no_directory.into()),
        (&["wait", "--state=file", "7"], 2, no_directory.into()),
        (&["pools", "--state=file"], 2, no_directory.into()),
        (&["cp", "--foreground", "--state=file", "file", "copy"], 2, no_directory.into()),
        (&["verify", "--state=file", "file"], 2, no_directory.into()),
        (
            &["serve", "--iops-limit=0"],
            2,
            "error: --iops-limit=0: must be above zero\nhint: leave it out for no limit\n".into(),
        ),
        (
            &["evict", "file"],
            2,
            format!(
                "error: {here}/file: is no directory, and has no manifest\n\
                 hint: sets are evicted: directories that flashwright stage has copied\n"
            ),
        ),
    ];
    for (arguments, code, words) in cases {
        refused(folder.path(), arguments, code, &words);
    }
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn without_a_server_it_is_said_what_to_do() {
    let folder = place();
    for arguments in [&["mv", "a", "b"][..], &["status"], &["wait", "7"], &["cancel", "7"], &["retry", "7"]] {
        let came = run(folder.path(), arguments);
        assert_eq!((came.code, came.out.as_str()), (1, ""), "{arguments:?}: {came:?}");
        assert!(came.err.starts_with("error: no server answers at "), "{came:?}");
        assert!(came.err.contains("hint: start one: flashwright stage serve"), "{came:?}");
        assert_eq!(came.err.contains("--foreground"), arguments[0] == "mv", "{came:?}");
        assert_eq!(came.err.lines().count(), 2, "{came:?}");
    }
}

#[test]
fn a_set_is_moved_in_the_foreground_verified_and_its_rot_is_found() {
    let folder = place();
    let set = checkpoint(folder.path(), "ckpt-7");
    fs::create_dir(folder.path().join("slow")).expect("makes");
    let came = works(folder.path(), &["mv", "--foreground", "ckpt-7", "slow"]);
    let at = folder.path().join("slow/ckpt-7");
    assert!(came.out.starts_with(&format!("{}: durable and verified, ", at.display())), "{came:?}");
    assert!(!set.exists());
    is_the_checkpoint(&at);
    // Nothing stays in the state directory that nobody needs.
    let state = folder.path().join("home/.local/state/flashwright/stage/foreground");
    assert_eq!(names(&state), [] as [String; 0]);

    let document = json(folder.path(), &["verify", "slow/ckpt-7", "--json"]);
    fits_schema(folder.path(), "stage-verify", &document);
    assert_eq!((document["right"].as_bool(), document["files"].as_u64()), (Some(true), Some(2)));
    fs::write(at.join("later"), "").expect("writes");
    let came = works(folder.path(), &["verify", "slow/ckpt-7"]);
    assert_eq!(came.err, format!("note: {}/later: is there, and was not written with it\n", at.display()));

    // One bit in the second chunk, with the times put back.
    let large = fs::OpenOptions::new().write(true).open(at.join("large")).expect("opens");
    large.write_all_at(&[!bytes(1, 9 << 20)[(8 << 20) + 77]], (8 << 20) + 77).expect("writes");
    large.sync_all().expect("syncs");
    let came = run(folder.path(), &["verify", "slow/ckpt-7"]);
    assert_eq!(came.code, 1, "{came:?}");
    let words = format!("error: {}/large: is not as it was written at offset ", at.display());
    assert!(came.err.contains(&words), "{came:?}");
    let came = run(folder.path(), &["verify", "slow/ckpt-7", "--json"]);
    let document: Value = serde_json::from_str(&came.out).expect("a document");
    assert_eq!(document["faults"][0]["path"], "large", "{document:#}");
    fs::remove_file(at.join("deep/small")).expect("removes");
    let came = run(folder.path(), &["verify", "slow/ckpt-7"]);
    assert!(came.err.contains("2 faults") && came.out.contains("deep/small"), "{came:?}");
}

#[test]
fn a_single_file_is_verified_by_the_journal_of_its_job() {
    let folder = place();
    fs::write(folder.path().join("a"), bytes(3, 100_000)).expect("writes");
    works(folder.path(), &["cp", "--foreground", "a", "b"]);
    let came = works(folder.path(), &["verify", "b"]);
    assert!(came.out.contains("1 file, "), "{came:?}");
    let file = fs::OpenOptions::new().write(true).open(folder.path().join("b")).expect("opens");
    file.write_all_at(b"rot", 5000).expect("writes");
    file.sync_all().expect("syncs");
    let came = run(folder.path(), &["verify", "b"]);
    assert_eq!(came.code, 1);
    let words = format!("error: {}/b: is not as it was written at offset 0", folder.path().display());
    assert!(came.err.starts_with(&words), "{came:?}");
    fs::remove_file(folder.path().join("b")).expect("removes");
    let came = run(folder.path(), &["verify", "b"]);
    assert!(came.code == 1 && came.err.contains("/b: is not there, where a copy of "), "{came:?}");
}

#[test]
fn a_directory_without_its_manifest_is_not_called_right_unread() {
    for (no_manifest, manifest_removed) in [(true, false), (false, true)] {
        let folder = place();
        checkpoint(folder.path(), "a");
        let at = folder.path().join("b");
        let mut moves = vec!["mv", "--foreground", "--state=state", "-T", "a", "b"];
        moves.extend(no_manifest.then_some("--no-manifest"));
        works(folder.path(), &moves);
        // The journal of a set goes with its command; here a server's is stood in for.
        let verify = ["verify", "--state=state", "b"];
        if manifest_removed {
            fs::remove_file(at.join(".flashwright-manifest")).expect("removes");
            let came = run(folder.path(), &verify);
            assert_eq!((came.code, came.out.as_str()), (2, ""), "{came:?}");
            continue;
        }
        let came = works(folder.path(), &verify);
        assert!(came.out.contains("/b: 2 files, 9.00 MiB, all as they were written"), "{came:?}");
        moves.push("--idempotent");
        let came = works(folder.path(), &moves);
        assert!(came.out.ends_with("/b: there already, and right\n"), "{came:?}");
        fs::write(at.join("later"), "").expect("writes");
        let came = works(folder.path(), &verify);
        assert_eq!(
            came.err,
            format!("note: {}/later: is there, and was not written with it\n", at.display())
        );
        fs::remove_file(at.join("deep/small")).expect("removes");
        let file = fs::OpenOptions::new().write(true).open(at.join("large")).expect("opens");
        file.write_all_at(b"rot", 5000).and_then(|()| file.sync_all()).expect("writes");
        let came = run(folder.path(), &verify);
        assert_eq!(came.code, 1, "{came:?}");
        assert!(came.err.contains("2 faults") && came.out.contains("deep/small"), "{came:?}");
    }
}

#[test]
fn an_eviction_that_was_killed_is_named_by_doctor_and_finished_by_the_same_command() {
    if !Command::new("strace").arg("true").output().is_ok_and(|ended| ended.status.success()) {
        println!("SKIP evictions that are killed: strace does not work here");
        return;
    }
    let folder = place();
    for tier in ["fast", "slow"] {
        fs::create_dir(folder.path().join(tier)).expect("makes");
    }
    let evict = ["evict", "--state=state", "fast/ckpt-7", "--copy=slow/ckpt-7"];
    let doctor = ["doctor", "--state=state"];
    let (mut renamed, mut finished) = (0, false);
    // Killed at each sync in turn, until an eviction needs no more of them.
    for nth in 1..100 {
        if !folder.path().join("fast/ckpt-7").exists() {
            let _ = fs::remove_dir_all(folder.path().join("slow/ckpt-7"));
            checkpoint(folder.path(), "fast/ckpt-7");
            let copy = ["cp", "--foreground", "--state=state", "-T", "fast/ckpt-7", "slow/ckpt-7"];
            works(folder.path(), &copy);
        }
        let command = stage(folder.path(), &evict);
        let mut traced = Command::new("strace");
        traced.args(["-f", "-q", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e"]);
        traced.arg(format!("inject=fsync,fdatasync:signal=KILL:when={nth}"));
        traced.arg(command.get_program()).args(command.get_args());
        traced.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let ended = traced.current_dir(folder.path()).output().expect("strace runs");
        if ended.status.code() == Some(0) {
            finished = true;
            break;
        }
        let is_renamed = names(&folder.path().join("fast")).iter().any(|name| name.ends_with(".part"));
        if is_renamed {
            renamed += 1;
            let came = run(folder.path(), &doctor);
            assert!(came.out.contains("a removal of old sets in"), "{nth}: {came:?}");
            // What is left may be all there is, whatever was read back before.
            let [slow, away] = ["slow/ckpt-7", "slow/away"].map(|name| folder.path().join(name));
            fs::rename(&slow, &away).expect("renames");
            let came = run(folder.path(), &evict);
            assert_eq!((came.code, came.out.as_str()), (3, ""), "{nth}: {came:?}");
            assert_eq!(names(&folder.path().join("fast")).len(), 1, "{nth}: {came:?}");
            fs::rename(&away, &slow).expect("renames");
        }
        let came = works(folder.path(), &evict);
        let said = ["evicted", "is not there any more"];
        let said =
            said.map(|words| format!("/fast/ckpt-7: {words}; {}", folder.path().join("slow").display()));
        assert!(said.iter().any(|words| came.out.contains(words)), "{nth}: {came:?}");
        assert_eq!(names(&folder.path().join("fast")), [] as [String; 0], "{nth}");
        is_the_checkpoint(&folder.path().join("slow/ckpt-7"));
        let came = run(folder.path(), &doctor);
        assert!(!came.out.contains("a removal of old sets"), "{nth}: {came:?}");
    }
    assert!(finished && renamed > 1, "killed {renamed} times without a name");
}

#[test]
fn evictions_beside_each_other_do_not_find_each_others_journals() {
    let folder = place();
    fs::create_dir(folder.path().join("slow")).expect("makes");
    let sets: Vec<String> = (0..12).map(|n| format!("ckpt-{n}")).collect();
    for set in &sets {
        checkpoint(folder.path(), set);
        works(folder.path(), &["cp", "--foreground", "--state=state", set, "slow/"]);
    }
    let ended = std::thread::scope(|scope| {
        let evict =
            |set| run(folder.path(), &["evict", "--state=state", set, "--copy", &format!("slow/{set}")]);
        let evictions: Vec<_> = sets.iter().map(|set| scope.spawn(move || evict(set))).collect();
        let beside = scope.spawn(|| run(folder.path(), &["doctor", "--state=state"]));
        let mut ended: Vec<_> = evictions.into_iter().map(|one| one.join().expect("no panic")).collect();
        let beside = beside.join().expect("no panic");
        assert!(!beside.out.contains("a removal of old sets"), "{beside:?}");
        ended.push(beside);
        ended
    });
    for came in ended {
        assert_eq!((came.code, came.err.as_str()), (0, ""), "{came:?}");
    }
    assert_eq!(names(&folder.path().join("state/evictions")), [] as [String; 0]);
}

#[test]
fn an_eviction_that_is_refused_does_not_make_its_set_another() {
    use std::os::unix::fs::MetadataExt;
    let folder = place();
    checkpoint(folder.path(), "ckpt-7");
    fs::create_dir_all(folder.path().join("slow/ckpt-7")).expect("makes");
    let changed =
        || fs::metadata(folder.path().join("ckpt-7")).map(|at| (at.ctime(), at.ctime_nsec())).expect("stat");
    let before = changed();
    let came = run(folder.path(), &["evict", "--state=state", "ckpt-7", "--copy", "slow/ckpt-7"]);
    assert_eq!(came.code, 3, "{came:?}");
    assert_eq!(changed(), before, "a copy of it would begin again");
}

#[test]
fn what_is_interrupted_goes_on_by_the_same_command() {
    let folder = place();
    checkpoint(folder.path(), "ckpt-7");
    // So slow that it is not done before the signal comes.
    let slow = ["mv", "--foreground", "--bwlimit=1MB/s", "ckpt-7", "there"];
    let mut child =
        stage(folder.path(), &slow).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let part = |name: &String| name.starts_with(".ckpt-7.") || name.starts_with(".there.");
    wait_until("a part", || names(folder.path()).iter().any(part));
    signal(&child, "-INT");
    let status = ended(&mut child);
    let output = child.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.contains("hint: the same command goes on where it stopped"), "{said}");
    assert!(!folder.path().join("there").exists() && folder.path().join("ckpt-7/large").exists());

    let document = json(folder.path(), &["mv", "--foreground", "--json", "ckpt-7", "there"]);
    fits_schema(folder.path(), "stage-status", &document);
    assert_eq!(document["jobs"][0]["state"], "done", "{document:#}");
    is_the_checkpoint(&folder.path().join("there"));
    assert!(!folder.path().join("ckpt-7").exists());
    assert!(!names(folder.path()).iter().any(part), "{:?}", names(folder.path()));
}

#[test]
fn what_is_there_already_is_no_error_where_that_is_asked_for() {
    let folder = place();
    fs::create_dir(folder.path().join("slow")).expect("makes");
    checkpoint(folder.path(), "out");
    let again = ["mv", "--foreground", "--idempotent", "--parents", "-T", "out", "slow/out"];
    for _ in 0..2 {
        works(folder.path(), &again);
        is_the_checkpoint(&folder.path().join("slow/out"));
    }
    // A file of a move likewise, by its journal.
    fs::write(folder.path().join("file"), "x").expect("writes");
    let file = ["mv", "--foreground", "--idempotent", "--parents", "-T", "file", "slow/file"];
    works(folder.path(), &file);
    let came = works(folder.path(), &file);
    assert!(came.out.ends_with("/slow/file: there already, and right\n"), "{came:?}");
    // Another set under the same name is refused, and so is what has rotted.
    checkpoint(folder.path(), "out");
    fs::write(folder.path().join("out/large"), "another").expect("writes");
    let came = run(folder.path(), &again);
    assert_eq!(came.code, 3, "{came:?}");
    assert!(came.err.contains("is there already, and the source is another set"), "{came:?}");
    fs::remove_dir_all(folder.path().join("out")).expect("removes");
    fs::write(folder.path().join("slow/out/deep/small"), bytes(3, 5000)).expect("writes");
    assert_eq!(run(folder.path(), &again).code, 1);
    // Names, sizes and times do not vouch for bytes.
    checkpoint(folder.path(), "out");
    works(folder.path(), &["cp", "--foreground", "-T", "out", "slow/copy"]);
    let small = folder.path().join("out/deep/small");
    let before = fs::metadata(&small).and_then(|facts| facts.modified()).expect("a file");
    fs::write(&small, bytes(4, fs::metadata(&small).expect("a file").len() as usize)).expect("writes");
    fs::File::options().write(true).open(&small).and_then(|file| file.set_modified(before)).expect("sets it");
    let came = run(folder.path(), &["cp", "--foreground", "--idempotent", "-T", "out", "slow/copy"]);
    assert_eq!(came.code, 3, "right was said of other bytes: {came:?}");
    fs::remove_dir_all(folder.path().join("out")).expect("removes");
    // Without the word a destination that is there is never overwritten.
    checkpoint(folder.path(), "out");
    let came = run(folder.path(), &["cp", "--foreground", "-T", "out", "slow/out"]);
    assert!(came.code == 1 || came.code == 3, "{came:?}");
    assert!(fs::read(folder.path().join("slow/out/deep/small")).expect("reads") == bytes(3, 5000));
}

#[test]
fn a_fast_copy_is_evicted_only_if_the_slow_one_is_right() {
    let folder = place();
    fs::create_dir(folder.path().join("slow")).expect("makes");
    let fast = checkpoint(folder.path(), "ckpt-7");
    works(folder.path(), &["cp", "--foreground", "--parents", "ckpt-7", "slow/"]);
    let came = run(folder.path(), &["evict", "ckpt-7"]);
    assert_eq!(came.code, 3, "{came:?}");
    assert_eq!(
        works(
            folder.path(),
            &["cp", "--foreground", "--no-manifest", "--state=kept", "--parents", "ckpt-7", "plain/"]
        )
        .code,
        0
    );
    // That journal says where a copy is; it has no manifest to evict by.
    let came = run(folder.path(), &["evict", "--state=kept", "ckpt-7"]);
    assert!(came.code == 3 && came.err.contains("no durable copy of it is on the slow tier"), "{came:?}");
    // What was copied is not what is verified where it is named itself.
    let came = run(folder.path(), &["verify", "--state=kept", "ckpt-7"]);
    assert!(came.code == 2 && came.err.contains("its copy is ") && came.out.is_empty(), "{came:?}");
    let came = run(folder.path(), &["evict", "ckpt-7"]);
    assert!(came.err.contains("hint: name its slow copy: --copy PATH"), "{came:?}");

    let evict = ["evict", "ckpt-7", "--copy", "slow/ckpt-7"];
    let small = folder.path().join("slow/ckpt-7/deep/small");
    let file = fs::OpenOptions::new().write(true).open(&small).expect("opens");
    file.write_all_at(b"rot", 7).expect("writes");
    file.sync_all().expect("syncs");
    let came = run(folder.path(), &evict);
    assert!(came.code == 3 || came.code == 1, "{came:?}");
    is_the_checkpoint(&fast);

    file.write_all_at(&bytes(2, 5000)[7..10], 7).expect("writes");
    file.sync_all().expect("syncs");
    // The application has gone on writing: the slow copy is of something else.
    fs::write(fast.join("new"), "x").expect("writes");
    let came = run(folder.path(), &evict);
    assert_eq!(came.code, 3, "{came:?}");
    is_the_checkpoint(&fast);
    fs::remove_file(fast.join("new")).expect("removes");
    let document = json(folder.path(), &["evict", "ckpt-7", "--copy", "slow/ckpt-7", "--json"]);
    fits_schema(folder.path(), "stage-evict", &document);
    assert!(!fast.exists());
    is_the_checkpoint(&folder.path().join("slow/ckpt-7"));
}

#[test]
fn a_copy_in_memory_is_not_called_durable_and_nothing_goes_for_it() {
    let disk = place();
    let Some(memory) = memory_beside(disk.path()) else { return };
    let to = |name: &str| memory.path().join(name).display().to_string();
    checkpoint(disk.path(), "ckpt-7");
    for destination in [to("ckpt-7"), format!("file://{}", to("ckpt-7")), to("new/ckpt-7")] {
        let came = run(disk.path(), &["mv", "--foreground", "--parents", "-T", "ckpt-7", &destination]);
        assert_eq!(came.code, 3, "{destination}: {came:?}");
        assert!(
            came.err.contains("is in memory (tmpfs at /dev/shm)") && came.err.contains("hint: "),
            "{came:?}"
        );
        assert_eq!(fs::read_dir(memory.path()).expect("lists").count(), 0);
    }
    is_the_checkpoint(&disk.path().join("ckpt-7"));
    let came = run(disk.path(), &["cp", "--foreground", "ckpt-7", &to("")]);
    assert_eq!(came.code, 0, "{came:?}");
    let copied = format!("{}: copied to memory, not durable, ", to("ckpt-7"));
    assert!(came.out.starts_with(&copied), "{came:?}");
    let came = run(disk.path(), &["mv", "--foreground", "--idempotent", "ckpt-7", &to("")]);
    assert!(came.code == 3 && came.err.contains("a restart would lose it"), "{came:?}");
    // Nor is it called moved because its source has gone by another hand.
    fs::rename(disk.path().join("ckpt-7"), disk.path().join("aside")).expect("renames");
    let came = run(disk.path(), &["mv", "--foreground", "--idempotent", "ckpt-7", &to("")]);
    assert!(came.code == 3 && came.err.contains("a restart would lose it"), "{came:?}");
    fs::rename(disk.path().join("aside"), disk.path().join("ckpt-7")).expect("renames");
    let came = run(disk.path(), &["evict", "ckpt-7", "--copy", &to("ckpt-7")]);
    assert_eq!(came.code, 3, "{came:?}");
    assert!(came.err.contains("its slow copy is in memory (tmpfs at /dev/shm), and it is not"), "{came:?}");
    is_the_checkpoint(&disk.path().join("ckpt-7"));
    // What is in memory already may go on to be.
    let came = run(memory.path(), &["mv", "--foreground", "-T", "ckpt-7", &to("ckpt-8")]);
    assert_eq!(came.code, 0, "{came:?}");
}

#[test]
fn a_fast_copy_is_not_evicted_for_itself_by_another_path() {
    let folder = place();
    checkpoint(folder.path(), "made/ckpt-7");
    for directory in ["fast", "beside", "mounted", "of-set/ckpt-7"] {
        fs::create_dir_all(folder.path().join(directory)).expect("makes");
    }
    works(folder.path(), &["mv", "--foreground", "made/ckpt-7", "fast/"]);
    std::os::unix::fs::symlink("../fast", folder.path().join("beside/fast")).expect("links");
    let url = format!("file://{}/fast/ckpt-7", folder.path().display());
    let mut copies = vec!["fast/ckpt-7", "fast/../fast/ckpt-7", "beside/fast/ckpt-7", &url];
    let bind = |from: &str, to: &str| {
        let mut mount = Command::new("mount");
        mount.arg("--bind").args([folder.path().join(from), folder.path().join(to)]).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success())
    };
    let binds = [("fast", "mounted", "mounted/ckpt-7"), ("fast/ckpt-7", "of-set/ckpt-7", "of-set/ckpt-7")];
    let bound: Vec<_> = binds.into_iter().filter(|(from, to, _)| bind(from, to)).collect();
    if bound.len() < binds.len() {
        println!("SKIP bind mounts: mount(8) needs privilege");
    }
    copies.extend(bound.iter().map(|(_, _, copy)| *copy));
    let set_url = format!("file://{}/of-set/ckpt-7", folder.path().display());
    copies.extend((bound.len() == binds.len()).then_some(&*set_url));
    let came: Vec<_> = copies
        .iter()
        .map(|copy| (copy, run(folder.path(), &["evict", "fast/ckpt-7", "--copy", copy])))
        .collect();
    for (_, to, _) in bound {
        Command::new("umount").arg(folder.path().join(to)).status().expect("runs");
    }
    is_the_checkpoint(&folder.path().join("fast/ckpt-7"));
    for (copy, came) in came {
        assert_eq!(came.code, 3, "{copy}: {came:?}");
        let words = ["both may be one", "something is mounted there"];
        assert!(words.iter().any(|words| came.err.contains(words)), "{copy}: {came:?}");
    }
}

#[test]
fn sets_in_an_object_store_are_kept_by_number_read_back_and_vouch_for_fast_copies() {
    let folder = place();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let to = format!("file://{}/run/", at("bucket"));
    fs::create_dir(at("bucket")).expect("makes");
    for name in ["ckpt-8", "ckpt-9", "ckpt-10"] {
        checkpoint(folder.path(), name);
        works(folder.path(), &["cp", "--foreground", "--latest", "--keep-slow=2", name, &to]);
    }
    let there = |name: &str| Path::new(&at("bucket/run")).join(name).join("large").exists();
    assert!(there("ckpt-8"), "its fast copy is still there");
    fs::remove_dir_all(at("ckpt-8")).expect("removes");
    let again = works(folder.path(), &["cp", "--foreground", "--idempotent", "ckpt-10", &to]);
    assert!(again.err.contains("it was there already, and the same, byte for byte"), "{again:#?}");
    checkpoint(folder.path(), "ckpt-11");
    works(folder.path(), &["cp", "--foreground", "--latest", "--keep-slow=2", "ckpt-11", &to]);
    assert_eq!((there("ckpt-8"), there("ckpt-9"), there("ckpt-11")), (false, true, true));
    let latest: Value =
        serde_json::from_slice(&fs::read(at("bucket/run/latest")).expect("reads")).expect("JSON");
    assert_eq!(latest["name"], "ckpt-11");

    let set = format!("{to}ckpt-11");
    let found = json(folder.path(), &["verify", &set, "--json"]);
    fits_schema(folder.path(), "stage-verify", &found);
    assert_eq!(
        (&found["right"], &found["files"], &found["path"]),
        (&true.into(), &2.into(), &set.clone().into())
    );
    let none = run(folder.path(), &["verify", to.trim_end_matches('/')]);
    assert_eq!(none.code, 1, "{none:#?}");
    assert!(
        none.err.contains("no set is there") && none.err.contains("ckpt-10, ckpt-11, ckpt-9"),
        "{none:#?}"
    );

    let large = fs::File::options().write(true).open(at("bucket/run/ckpt-11/large")).expect("opens");
    large.write_all_at(b"rot", 8 << 20).expect("writes");
    let rotten = run(folder.path(), &["verify", &set]);
    assert_eq!(rotten.code, 1, "{rotten:#?}");
    assert!(rotten.err.contains("ckpt-11/large: is not as it was written at offset 8388608"), "{rotten:#?}");
    let kept = run(folder.path(), &["evict", "ckpt-11", "--copy", &set]);
    assert_eq!(kept.code, 3, "{kept:#?}");
    is_the_checkpoint(&folder.path().join("ckpt-11"));
    works(folder.path(), &["evict", "ckpt-10", "--copy", &format!("{to}ckpt-10")]);
    assert!(!folder.path().join("ckpt-10").exists());
    works(folder.path(), &["get", "--foreground", &format!("{to}ckpt-10"), "ckpt-10"]);
    is_the_checkpoint(&folder.path().join("ckpt-10"));
}

/// `watch` of `fast` for semaphores of this pattern, with these flags beside.
fn watch_once<'a>(trigger: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let words = ["watch", "fast", "--to", "slow", "--parents", "--foreground", "--once", "--settle=10ms"];
    [&words[..], &["--trigger", trigger], more].concat()
}

#[test]
fn semaphores_are_obeyed_once_and_names_may_be_any_bytes() {
    let folder = place();
    fs::create_dir(folder.path().join("slow")).expect("makes");
    let fast = folder.path().join("fast");
    checkpoint(&fast, "ckpt-7");
    fs::write(fast.join("ckpt-7.done"), "").expect("writes");
    let odd = std::ffi::OsString::from_vec(b"odd\n\xff".to_vec());
    fs::write(fast.join(&odd), "odd").expect("writes");
    fs::write(fast.join(std::ffi::OsString::from_vec(b"odd\n\xff.done".to_vec())), "").expect("writes");
    // One byte short of what its list says.
    fs::write(fast.join("short"), "12").expect("writes");
    fs::write(fast.join("short.done"), "short 3\n").expect("writes");
    let watch = watch_once("*.done", &[]);
    let came = run(folder.path(), &watch);
    assert_eq!(came.code, 1, "{came:?}");
    assert!(came.out.contains("ckpt-7.done: durable and verified"), "{came:?}");
    assert!(came.out.contains("odd\\n\\xff.done: durable and verified"), "{came:?}");
    assert!(
        came.out.contains("refused: short.done: vouches for short, which has 2 bytes, not 3"),
        "{came:?}"
    );
    assert!(came.err.contains("error: one semaphore could not be obeyed"), "{came:?}");
    is_the_checkpoint(&folder.path().join("slow/ckpt-7"));
    assert_eq!(fs::read(folder.path().join("slow").join(&odd)).expect("reads"), b"odd");
    assert_eq!(names(&fast), ["short", "short.done"]);

    fs::write(fast.join("short"), "123").expect("writes");
    let mut lines = stage(folder.path(), &watch);
    let came = finish(lines.arg("--json"));
    assert_eq!(came.code, 0, "{came:?}");
    for line in came.out.lines() {
        let document: Value = serde_json::from_str(line).expect("a document a line");
        fits_schema(folder.path(), "stage-watch", &document);
    }
    assert_eq!(names(&fast), [] as [String; 0]);
}

#[test]
fn a_digest_that_is_not_the_listed_one_moves_nothing() {
    let folder = place();
    fs::create_dir(folder.path().join("slow")).expect("makes");
    let fast = folder.path().join("fast");
    checkpoint(&fast, "ckpt-7");
    let wrong = "99aa06d3014798d86001c324468d497f";
    fs::write(fast.join("ckpt-7.done"), format!("ckpt-7/large\nckpt-7/deep/small 5000 {wrong}\n"))
        .expect("writes");
    let watch = watch_once("*.done", &[]);
    let came = run(folder.path(), &watch);
    assert_eq!(came.code, 1, "{came:?}");
    assert!(came.out.contains("failed: ckpt-7.done: "), "{came:?}");
    is_the_checkpoint(&fast.join("ckpt-7"));
    assert!(fast.join("ckpt-7.done").exists() && !folder.path().join("slow/ckpt-7").exists());
}

#[test]
fn a_semaphore_in_its_directory_may_stay_and_its_set_is_moved_once() {
    let folder = place();
    fs::create_dir(folder.path().join("slow")).expect("makes");
    let fast = folder.path().join("fast");
    checkpoint(&fast, "ckpt-7");
    fs::write(fast.join("ckpt-7/DONE"), "").expect("writes");
    let watch = watch_once("ckpt-*/DONE", &["--copy", "--keep-trigger"]);
    let came = works(folder.path(), &watch);
    assert!(came.out.contains("ckpt-7/DONE: durable and verified"), "{came:?}");
    let came = works(folder.path(), &watch);
    assert_eq!(came.out, "ckpt-7/DONE: there already, and right\n");
    is_the_checkpoint(&folder.path().join("slow/ckpt-7"));
    is_the_checkpoint(&fast.join("ckpt-7"));
}

#[test]
fn a_request_that_cannot_succeed_makes_no_job() {
    let folder = place();
    fs::create_dir(folder.path().join("watched")).expect("makes");
    let nowhere = ["watch", "watched", "--to", "nosuch", "--trigger=*.done", "--foreground", "--once"];
    let came = run(folder.path(), &nowhere);
    assert!(came.code == 2 && came.err.contains("/nosuch: is no directory\n"), "{came:?}");
    checkpoint(folder.path(), "set");
    fs::create_dir(folder.path().join("directory")).expect("makes");
    fs::write(folder.path().join("file"), "x").expect("writes");
    fs::write(folder.path().join("longer"), "longer").expect("writes");
    std::os::unix::fs::symlink("set", folder.path().join("link")).expect("links");
    for (places, code, words) in [
        (["set", "file"], 3, "/file: is there already, and is a file"),
        (["file", "longer"], 3, "/longer: is there already, and is a file of another size"),
        (["set", "file/"], 2, "/file: is not a directory"),
        (["file", "link/new/"], 2, "/set/new: there is no such directory"),
        (["set", "set/deep"], 3, "lies in what is to be copied"),
        ([".", "set"], 3, "lies in what is to be copied"),
        (["set", "."], 3, "/set: is the source itself"),
        (["link", "new"], 2, "/link: a symbolic link"),
        (["/dev/null", "new"], 2, "/dev/null: neither a file nor a directory"),
        (["/proc/self", "new"], 2, "/proc/self: a symbolic link"),
    ] {
        let came = run(folder.path(), &["cp", "--foreground", places[0], places[1]]);
        assert_eq!((came.code, came.out.as_str()), (code, ""), "{places:?}: {came:?}");
        let words = words.replace("/set/new: there", "/link/new: there");
        assert!(came.err.contains(&words) && !came.err.contains("job 1"), "{places:?}: {came:?}");
    }
    is_the_checkpoint(&folder.path().join("set"));
    let state = folder.path().join("home/.local/state/flashwright/stage");
    assert!(!state.exists(), "no journal is made for it");
    // One with a name that has no number has no `latest`, and that is said.
    fs::remove_file(folder.path().join("link")).expect("removes");
    let came =
        works(folder.path(), &["cp", "--foreground", "--latest", "--keep-slow=1", "set", "directory/"]);
    assert!(
        came.err.contains("directory/set: `latest` and what is to be kept were not applied: "),
        "{came:?}"
    );
}

#[test]
fn what_failed_without_a_server_is_shown_without_a_number() {
    let folder = place();
    checkpoint(folder.path(), "ckpt-7");
    fs::create_dir(folder.path().join("fast")).expect("makes");
    works(folder.path(), &["mv", "--foreground", "-T", "ckpt-7", "slow-7"]);
    let small = folder.path().join("slow-7/deep/small");
    fs::write(&small, bytes(3, 5000)).expect("writes");
    let came = run(folder.path(), &["get", "--foreground", "slow-7", "fast/"]);
    assert_eq!((came.code, came.out.as_str()), (1, ""), "{came:?}");
    assert!(came.err.contains("/slow-7/deep/small: is not what its manifest says: "), "{came:?}");
    assert!(came.err.contains("hint: bring it from another copy"), "{came:?}");
    let status = run(folder.path(), &["status"]);
    assert!(status.code == 1 && status.out.contains("/fast/slow-7: failed: "), "{status:?}");
    let doctor = run(folder.path(), &["doctor"]);
    assert!(doctor.code == 1 && doctor.out.contains("do:  bring it from another copy"), "{doctor:?}");
    let document = run(folder.path(), &["doctor", "--json"]);
    let document: Value = serde_json::from_str(&document.out).expect("a document");
    fits_schema(folder.path(), "stage-doctor", &document);
    assert_eq!(document["findings"][0]["code"], "source-corrupt", "{document:#}");
    for came in [came, status, doctor] {
        let all = came.out + &came.err;
        assert!(!all.contains("job 1") && !all.contains("stage retry") && !all.contains("stage cp"), "{all}");
    }
    let came = works(folder.path(), &["cancel", "fast/slow-7"]);
    assert!(came.out.ends_with("/slow-7 is where it was\n") && small.exists(), "{came:?}");
    let status = run(folder.path(), &["status"]);
    assert_eq!(status.out, "", "{status:?}");
    works(folder.path(), &["doctor"]);
    // Given up once.
    let came = run(folder.path(), &["cancel", "fast/slow-7"]);
    assert!(came.code == 1 && came.err.contains("no server answers"), "{came:?}");
}

#[test]
fn what_a_store_that_refuses_the_keys_has_left_failed_is_given_up() {
    use std::io::{Read, Write};
    let folder = place();
    fs::write(folder.path().join("file"), "bytes").expect("writes");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 8192]);
            let refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(refusal);
        }
    });
    let asked = |arguments: &[&str]| {
        let mut command = stage(folder.path(), arguments);
        command
            .env("AWS_ENDPOINT_URL", &endpoint)
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_REGION", "us-east-1");
        finish(command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret"))
    };
    let url = "s3://bucket/run/file";
    let came = asked(&["cp", "--foreground", "file", url]);
    assert!(came.code != 0 && came.err.contains("403"), "{came:?}");
    let doctor = asked(&["doctor"]);
    assert!(doctor.out.contains(&format!("flashwright stage cancel {url}, which clears this")), "{doctor:?}");
    let came = asked(&["cancel", url]);
    assert_eq!(came.code, 0, "{came:?}");
    works(folder.path(), &["doctor"]);
}

#[test]
fn a_directory_goes_with_the_semaphore_that_lies_in_it() {
    // Of the first the semaphore is a part, and moves; of the second it is a list, and does not.
    for list in ["", "rank-0\nsub/rank-1\n"] {
        let folder = place();
        fs::create_dir(folder.path().join("slow")).expect("makes");
        let set = folder.path().join("fast/ckpt-7");
        fs::create_dir_all(set.join("sub")).expect("makes");
        fs::write(set.join("rank-0"), "0").expect("writes");
        fs::write(set.join("sub/rank-1"), "1").expect("writes");
        fs::write(set.join("DONE"), list).expect("writes");
        let watch = watch_once("ckpt-*/DONE", &[]);
        let came = works(folder.path(), &watch);
        assert!(came.out.contains("ckpt-7/DONE: durable and verified"), "{came:?}");
        assert!(!set.exists(), "{list:?}: it stays behind: {came:?}");
        let slow = folder.path().join("slow/ckpt-7");
        assert_eq!(fs::read(slow.join("sub/rank-1")).expect("reads"), b"1");
        assert_eq!(slow.join("DONE").exists(), list.is_empty());
    }
}

#[test]
fn a_doctor_without_a_server_says_so() {
    let folder = place();
    let came = works(folder.path(), &["doctor"]);
    assert!(came.out.contains("no server is running"), "{came:?}");
    let document = json(folder.path(), &["doctor", "--json"]);
    fits_schema(folder.path(), "stage-doctor", &document);
}

#[test]
fn room_in_a_pool_is_reserved_before_it_is_written_to() {
    let folder = place();
    fs::create_dir(folder.path().join("pool")).expect("makes");
    let config = format!("[pool.scratch]\npath = \"{}/pool\"\nquota = \"10m\"\n", folder.path().display());
    fs::write(folder.path().join("pools.toml"), config).expect("writes");
    let at = ["--config", "pools.toml"];
    let with = |arguments: &[&'static str]| [arguments, &at].concat();
    let first = json(folder.path(), &with(&["pools", "reserve", "scratch", "ckpt-7", "--size=8m", "--json"]));
    fits_schema(folder.path(), "stage-reservation", &first);
    assert!(Path::new(first["reservation"]["directory"].as_str().expect("a path")).is_dir());
    let came = run(folder.path(), &with(&["pools", "reserve", "scratch", "ckpt-8", "--size=8m"]));
    assert_eq!((came.code, came.out.as_str(), came.err.lines().count()), (3, "", 2), "{came:?}");
    let listed = json(folder.path(), &with(&["pools", "list", "--json"]));
    fits_schema(folder.path(), "stage-pools", &listed);
    for listed in [listed, json(folder.path(), &with(&["pools", "--json"]))] {
        assert_eq!(listed["pools"][0]["reserved"], 8 << 20);
    }
    works(folder.path(), &with(&["pools", "release", "1"]));
    let came = works(folder.path(), &with(&["pools", "reserve", "scratch", "ckpt-8", "--size=8m"]));
    assert!(came.out.ends_with("/ckpt-8\n"), "{came:?}");
    let came = run(folder.path(), &["pools", "list"]);
    assert_eq!(came.code, 1, "{came:?}");
    assert!(came.err.contains("hint: name the file that describes them: --config FILE.toml"), "{came:?}");
}
