//! `flashwright stage` without a server: requests, work in the foreground, semaphores, diagnosis, pools.

mod common;
mod stage_alone;

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;

use common::{ended, finish, fits_schema, names, place, signal, wait_until};
use serde_json::Value;
use stage_alone::{bytes, checkpoint, is_the_checkpoint, json, refused, run, stage, works};

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
        (
            &["serve", "--socket=file"],
            2,
            "error: --socket=file: is there, and is not a socket\n\
             hint: name a path that is free, or the socket of a server that has ended\n"
                .into(),
        ),
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
fn where_the_state_directory_cannot_be_made_another_is_to_be_named() {
    let folder = place();
    fs::write(folder.path().join("file"), "x").expect("writes");
    let home = folder.path().join("file");
    let state = home.join(".local/state/flashwright/stage");
    for arguments in [&["cp", "--foreground", "file", "copy"][..], &["serve"]] {
        let came = finish(stage(folder.path(), arguments).env("HOME", &home));
        assert_eq!((came.code, came.out.as_str()), (1, ""), "{arguments:?}: {came:?}");
        assert!(came.err.starts_with(&format!("error: {}", state.display())), "{came:?}");
        assert!(came.err.contains(": cannot make the state directory"), "{came:?}");
        assert!(came.err.ends_with("\nhint: name a directory for the journal: --state DIR\n"), "{came:?}");
    }
}

/// An image of a read-only file system (erofs, uncompressed) with one file: blocks of 4096 bytes, the first with the super
/// block at 1024 and compact inodes of 32 bytes, the second with the directory, the rest with the file's bytes.
fn erofs_image(name: &str, content: &[u8]) -> Vec<u8> {
    let mut image = vec![0; 8192];
    image.extend(content);
    image.resize(image.len().next_multiple_of(4096), 0);
    let (root, file) = (36_u64, 37_u64);
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(1024, &0xe0f5_e1e2_u32.to_le_bytes());
    put(1024 + 12, &[12]);
    put(1024 + 14, &(root as u16).to_le_bytes());
    put(1024 + 16, &2_u64.to_le_bytes());
    let entries = [(".", root, 2_u8), ("..", root, 2), (name, file, 1)];
    let mut at = 12 * entries.len();
    for (number, (name, inode, kind)) in entries.into_iter().enumerate() {
        put(4096 + 12 * number, &inode.to_le_bytes());
        put(4096 + 12 * number + 8, &(at as u16).to_le_bytes());
        put(4096 + 12 * number + 10, &[kind]);
        put(4096 + at, name.as_bytes());
        at += name.len();
    }
    for (inode, mode, links, size, block) in
        [(root, 0o40_755_u16, 2_u16, at, 1_u32), (file, 0o100_644, 1, content.len(), 2)]
    {
        let at = 32 * inode as usize;
        put(at + 4, &mode.to_le_bytes());
        put(at + 6, &links.to_le_bytes());
        put(at + 8, &(size as u32).to_le_bytes());
        put(at + 16, &block.to_le_bytes());
        put(at + 20, &(block).to_le_bytes());
    }
    image
}

#[test]
fn a_source_without_fsync_is_copied_from_a_read_only_file_system_and_refused_from_another() {
    let folder = place();
    let came = run(folder.path(), &["cp", "--foreground", "/proc/version", "version"]);
    assert_eq!(came.code, 3, "{came:?}");
    assert!(came.err.contains("/proc/version: its file system has no fsync(2)"), "{came:?}");
    assert!(came.err.contains("hint: make that file system read-only"), "{came:?}");
    let doctor = run(folder.path(), &["doctor"]);
    assert!(doctor.code == 1 && !doctor.out.contains("dropped"), "{doctor:?}");
    works(folder.path(), &["cancel", "/proc/version"]);

    let (content, mount) = (bytes(1, 9 << 20), folder.path().join("mount"));
    fs::create_dir(&mount).expect("makes");
    let image = folder.path().join("image");
    fs::write(&image, erofs_image("file", &content)).expect("writes");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "erofs", "-o", "loop,ro"])
        .args([&image, &mount])
        .output()
        .is_ok_and(|ended| ended.status.success());
    if !mounted {
        common::skipped("SKIP a source on a read-only file system: erofs cannot be mounted here");
        return;
    }
    let file = run(folder.path(), &["cp", "--foreground", "mount/file", "copy"]);
    let set = run(folder.path(), &["cp", "--foreground", "-T", "mount", "set"]);
    assert!(common::unmounted(mount.as_ref()));
    assert!(file.code == 0 && set.code == 0, "{file:?} {set:?}");
    assert!(fs::read(folder.path().join("copy")).expect("reads") == content);
    assert!(fs::read(folder.path().join("set/file")).expect("reads") == content);
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
fn where_the_runtime_directory_is_unsafe_no_server_is_asked_and_what_needs_none_is_done() {
    use std::os::unix::fs::PermissionsExt;
    let folder = place();
    let runtime = folder.path().join("run");
    for name in ["run", "slow", "fast"] {
        fs::create_dir(folder.path().join(name)).expect("makes");
    }
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o1777)).expect("chmod");
    checkpoint(folder.path(), "ckpt-7");
    fs::write(folder.path().join("file"), "x").expect("writes");
    // The journal stays: the digest of the file is in it alone.
    works(folder.path(), &["cp", "--foreground", "ckpt-7", "file", "slow/"]);
    works(
        folder.path(),
        &["mv", "--foreground", "-T", &checkpoint(folder.path(), "a").display().to_string(), "b"],
    );
    fs::write(folder.path().join("b/deep/small"), bytes(3, 5000)).expect("writes");
    assert_eq!(run(folder.path(), &["get", "--foreground", "b", "fast/"]).code, 1);

    let asked = |arguments: &[&str]| finish(stage(folder.path(), arguments).env("XDG_RUNTIME_DIR", &runtime));
    let unsafe_runtime = format!("XDG_RUNTIME_DIR={}: others may write to it (mode 1777)", runtime.display());
    for (arguments, code, words) in [
        (&["doctor"][..], 1, "/b to "),
        (&["cancel", "fast/b"], 0, "/fast/b: cancelled; "),
        (&["doctor"], 0, &unsafe_runtime),
        (&["verify", "slow/file"], 0, "/slow/file: 1 file, "),
        (&["evict", "ckpt-7"], 0, "/ckpt-7: evicted; "),
    ] {
        let came = asked(arguments);
        assert!(came.code == code && came.out.contains(words), "{arguments:?}: {came:?}");
        let warning = format!("warning: no server is asked: {unsafe_runtime}\n");
        assert!(came.err.starts_with(&warning), "{arguments:?}: {came:?}");
    }
    for arguments in
        [&["mv", "file", "copy"][..], &["status"], &["wait", "7"], &["cancel", "7"], &["retry", "7"]]
    {
        let came = asked(arguments);
        assert_eq!((came.code, came.out.as_str()), (3, ""), "{arguments:?}: {came:?}");
        assert!(came.err.starts_with(&format!("error: {unsafe_runtime}\nhint: ")), "{arguments:?}: {came:?}");
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
fn a_command_at_work_is_named_by_status_and_doctor_and_keeps_its_part() {
    let folder = place();
    checkpoint(folder.path(), "ckpt-7");
    fs::create_dir(folder.path().join("slow")).expect("makes");
    // The state directory has had a server, whose job went to the same directory.
    checkpoint(folder.path(), "ckpt-6");
    let state = folder.path().join("home/.local/state/flashwright/stage");
    let server = stage_service::Mover::open(&stage_service::MoverConfig::new(&state)).expect("a journal");
    let job = stage::JobSpec {
        verb: stage::Verb::Copy,
        source: stage::Place::of_path(&folder.path().join("ckpt-6")).expect("a path"),
        destination: stage::Place::of_path(&folder.path().join("slow/ckpt-6")).expect("a path"),
        options: stage::Options::default(),
    };
    let id = server.submit(job).expect("is accepted");
    server.wait(id, stage::Level::Durable, None).expect("is durable");
    drop(server);
    let slow = ["cp", "--foreground", "--bwlimit=1MB/s", "ckpt-7", "slow/"];
    let mut child =
        stage(folder.path(), &slow).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
    let part = |name: &String| name.starts_with(".ckpt-7.");
    wait_until("a part", || names(&folder.path().join("slow")).iter().any(part));
    let (at, process) = (folder.path().join("slow/ckpt-7"), format!("process {} (flashwright)", child.id()));

    let doctor = works(folder.path(), &["doctor"]);
    assert!(!doctor.out.contains("belongs to no job"), "{doctor:?}");
    assert!(doctor.out.contains(&format!("at work on it: {process}")), "{doctor:?}");
    let status = run(folder.path(), &["status"]);
    assert_eq!(status.out, format!("{}: at work, {process}\n", at.display()), "{status:?}");
    for other in [&slow[..], &["cancel", "slow/ckpt-7"]] {
        let came = run(folder.path(), other);
        assert_eq!(came.code, 3, "{came:?}");
        assert!(came.err.ends_with(&format!("\nhint: wait for {process}, or end it\n")), "{came:?}");
    }

    child.kill().expect("can be killed");
    ended(&mut child);
    let status = run(folder.path(), &["status"]);
    let words = format!("{}: not finished; the same command goes on (--foreground)\n", at.display());
    assert_eq!(status.out, words, "{status:?}");
    let doctor = works(folder.path(), &["doctor"]);
    assert!(
        !doctor.out.contains("belongs to no job") && doctor.out.contains("was interrupted"),
        "{doctor:?}"
    );
    works(folder.path(), &["cancel", "slow/ckpt-7"]);
    assert_eq!(names(&folder.path().join("slow")), ["ckpt-6"]);
}

#[test]
fn a_move_whose_source_was_locked_counts_what_was_copied_when_it_goes_on() {
    let folder = place();
    for name in ["ckpt-7", "ckpt-8"] {
        let set = checkpoint(folder.path(), name);
        fs::hard_link(set.join("large"), set.join("link")).expect("links");
        let reader = fs::File::open(&set).expect("opens");
        reader.lock_shared().expect("locks");
        let slow = format!("slow-{name}");
        let command = ["mv", "--foreground", "-T", name, &slow];
        let came = run(folder.path(), &command);
        assert!(came.code == 3 && came.err.contains("is durable and verified, but: "), "{came:?}");
        drop(reader);
        if name == "ckpt-7" {
            let came = works(folder.path(), &command);
            assert!(came.out.contains("durable and verified, 3 files, 9.00 MiB"), "{came:?}");
        } else {
            let document = json(folder.path(), &[&command[..], &["--json"]].concat());
            let job = &document["jobs"][0];
            let bytes = (9 << 20) + 5000;
            assert_eq!((job["files_total"].as_u64(), job["files_done"].as_u64()), (Some(3), Some(3)));
            for count in ["bytes_total", "bytes_written", "bytes_verified"] {
                assert_eq!(job[count], bytes, "{document:#}");
            }
        }
        assert!(!set.exists());
    }
}

/// The copy is not there, and what was to be moved is where it was.
#[test]
fn a_move_that_leaves_its_source_because_the_copy_was_taken_away_has_not_succeeded() {
    for json in [false, true] {
        let folder = place();
        fs::write(folder.path().join("file"), "x").expect("writes");
        let reader = fs::File::open(folder.path().join("file")).expect("opens");
        reader.lock_shared().expect("locks");
        let command = ["mv", "--foreground", "-T", "file", "slow"];
        assert_eq!(run(folder.path(), &command).code, 3);
        drop(reader);
        fs::remove_file(folder.path().join("slow")).expect("removes");
        let json: &[&str] = if json { &["--json"] } else { &[] };
        let came = run(folder.path(), &[&command[..], json].concat());
        assert_eq!((came.code, came.out.is_empty()), (3, json.is_empty()), "{came:?}");
        assert!(came.err.contains("/slow: is not there any more as it was committed"), "{came:?}");
        assert!(came.err.contains("hint: move what is at the source again"), "{came:?}");
        works(folder.path(), &command);
        assert_eq!(fs::read(folder.path().join("slow")).expect("reads"), b"x");
    }
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
    // As documents, and of a copy that is damaged.
    let watch = [&watch[..], &["--json"]].concat();
    for (what, class) in [("already-there", None), ("refused", Some("failed"))] {
        let came = run(folder.path(), &watch);
        let document: Value = serde_json::from_str(&came.out).expect("one line");
        assert_eq!(
            (document["what"].as_str(), document["why"]["class"].as_str()),
            (Some(what), class),
            "{came:?}"
        );
        assert_eq!(document["why"]["hint"].is_string(), class.is_some(), "{came:?}");
        fits_schema(folder.path(), "stage-watch", &document);
        fs::write(folder.path().join("slow/ckpt-7/deep/small"), bytes(9, 5000)).expect("writes");
    }
}

#[test]
fn copies_of_files_are_read_where_the_semaphore_stays_and_refused_if_they_are_gone_or_damaged() {
    for options in [["--keep-trigger"].as_slice(), &["--keep-trigger", "--copy"]] {
        let folder = place();
        let [fast, slow] = ["fast", "slow"].map(|name| folder.path().join(name));
        [&fast, &slow].into_iter().for_each(|directory| fs::create_dir(directory).expect("makes"));
        for (name, text) in [("a", "1"), ("b", "2"), ("y.done", "a\nb\n")] {
            fs::write(fast.join(name), text).expect("writes");
        }
        let watch = watch_once("*.done", options);
        works(folder.path(), &watch);
        let came = works(folder.path(), &watch);
        assert_eq!(came.out, "y.done: there already, and right\n");
        let copies = options.len() > 1;
        fs::write(slow.join("b"), "3").expect("damages");
        let came = run(folder.path(), &watch);
        assert!(came.code == 1 && came.out.starts_with("refused: y.done: "), "{came:?}");
        assert!(came.out.contains("/b: is not as it was written"), "{came:?}");
        fs::remove_file(slow.join("b")).expect("removes");
        let came = run(folder.path(), &watch);
        assert_eq!(came.code, i32::from(!copies), "{came:?}");
        assert_eq!(came.out.contains("/b: was moved there, and is not there any more"), !copies, "{came:?}");
        // One that is copied is copied again.
        assert_eq!((slow.join("b").exists(), fast.join("y.done").exists()), (copies, true));
        // What another list vouches for is not what was moved.
        fs::write(slow.join("b"), "2").expect("brings it back");
        fs::write(fast.join("y.done"), "a 1\nb 5\n").expect("writes");
        let came = run(folder.path(), &watch);
        let wrong = if copies { "y.done: vouches for b, which" } else { "y.done: vouches for a, which" };
        assert!(came.code == 1 && came.out.contains(wrong), "{came:?}");
    }
}

#[test]
fn what_comes_into_a_listed_directory_later_is_not_of_its_set() {
    for options in [&["--copy"][..], &[], &["--copy", "--no-manifest"], &["--no-manifest"]] {
        for (pattern, semaphore, list) in [("*.done", "d.done", "d/x\n"), ("d/DONE", "d/DONE", "x\n")] {
            let folder = place();
            let [fast, slow] = ["fast", "slow"].map(|name| folder.path().join(name));
            [&slow, &fast, &fast.join("d")].into_iter().for_each(|it| fs::create_dir(it).expect("makes"));
            for (name, text) in [("d/x", "x"), (semaphore, list)] {
                fs::write(fast.join(name), text).expect("writes");
            }
            let watch = watch_once(pattern, &[&["--keep-trigger"], options].concat());
            works(folder.path(), &watch);
            fs::create_dir_all(fast.join("d")).expect("makes");
            fs::write(fast.join("d/other"), "").expect("writes");
            let came = works(folder.path(), &watch);
            assert_eq!(came.out, format!("{semaphore}: there already, and right\n"), "{options:?}");
            assert!(slow.join("d/x").exists() && !slow.join("d/other").exists());
            // Another set in its place is not what was listed.
            fs::remove_dir_all(slow.join("d")).expect("removes");
            fs::create_dir(folder.path().join("another")).expect("makes");
            fs::write(folder.path().join("another/y"), "y").expect("writes");
            works(folder.path(), &["cp", "--foreground", "-T", "another", "slow/d"]);
            let came = run(folder.path(), &watch);
            assert!(came.code == 1 && came.out.starts_with("refused: "), "{options:?}: {came:?}");
        }
    }
}

#[test]
fn a_copy_that_no_journal_knows_is_there_if_its_manifest_is_as_listed() {
    let folder = place();
    let [fast, slow] = ["fast", "slow"].map(|name| folder.path().join(name));
    [&slow, &fast, &fast.join("d")].into_iter().for_each(|it| fs::create_dir(it).expect("makes"));
    fs::write(fast.join("d/x"), "x").expect("writes");
    works(folder.path(), &["mv", "--foreground", "fast/d", "slow"]);
    let digest = |text: &[u8]| stage::Algorithm::Xxh3.of(text).text(stage::Algorithm::Xxh3);
    for (list, is_right) in [
        ("d/x 5\n".to_owned(), false),
        (format!("d/x 1 {}\n", digest(b"y")), false),
        ("d/x 1\nd/y\n".to_owned(), false),
        ("d/y\n".to_owned(), false),
        (format!("d/x 1 {}\n", digest(b"x")), true),
        ("d/x\n".to_owned(), true),
    ] {
        fs::write(fast.join("d.done"), &list).expect("writes");
        let came = run(folder.path(), &watch_once("*.done", &["--keep-trigger"]));
        let says =
            if is_right { ": there already, and right" } else { ": vouches for d, which is not there" };
        assert!(came.code == i32::from(!is_right) && came.out.contains(says), "{list}: {came:?}");
    }
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
