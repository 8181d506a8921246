//! `flashwright stage` without a server: copies that are verified, kept by number and evicted.

mod common;
mod stage_alone;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{fits_schema, memory_beside, names, place};
use serde_json::Value;
use stage_alone::{bytes, checkpoint, is_the_checkpoint, json, run, stage, works};

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

/// Between a removal that failed and its retry the copy may become anything.
#[test]
fn a_move_that_goes_on_reads_its_copy_before_the_source_goes() {
    type Happens = fn(&Path) -> std::io::Result<()>;
    let rot: Happens = |copy| fs::write(copy.join("deep/small"), bytes(9, 5000));
    let lose: Happens = |copy| fs::remove_file(copy.join("deep/small"));
    let cases: [(&str, bool, Happens); 5] = [
        ("file", false, |copy| fs::write(copy, "")),
        ("set", false, rot),
        ("set", false, lose),
        ("set", true, rot),
        ("set", true, lose),
    ];
    for (name, is_in_store, happens) in cases {
        let folder = place();
        let at = |name: &str| folder.path().join(name);
        checkpoint(folder.path(), "set");
        fs::write(at("file"), "x").expect("writes");
        let reader = fs::File::open(at(name)).expect("opens");
        reader.lock_shared().expect("locks");
        let copy = if is_in_store { format!("file://{}", at("copy").display()) } else { "copy".to_owned() };
        let command = ["mv", "--foreground", "-T", name, &copy];
        assert_eq!(run(folder.path(), &command).code, 3);
        happens(&at("copy")).expect("the copy is there");
        // Before all of it is read.
        assert!(run(folder.path(), &command).err.contains("is locked by"));
        drop(reader);
        let came = run(folder.path(), &command);
        let words = "is not what was committed any more; the source was left alone";
        assert!(came.code == 3 && came.out.is_empty() && came.err.contains(words), "{name} {copy}: {came:?}");
        assert!(came.err.contains("hint: compare the two before anything is removed"), "{came:?}");
        is_the_checkpoint(&at("set"));
        assert_eq!(fs::read(at("file")).expect("reads"), b"x");
    }
}

/// A set that is fetched has digests of its own, whatever the job asks for.
#[test]
fn a_fetched_set_is_read_again_by_the_digests_that_it_came_with() {
    let folder = place();
    let at = |name: &str| folder.path().join(name);
    checkpoint(folder.path(), "set");
    let store = format!("file://{}", at("store").display());
    works(folder.path(), &["mv", "--foreground", "--digest=xxh3", "-T", "set", &store]);
    // By the word of the journal.
    let fetch = ["--foreground", "--state=state", "--digest=blake3", "-T", &store];
    works(folder.path(), &[&["cp", "--no-manifest"], &fetch[..], &["copy"]].concat());
    let came = works(folder.path(), &["verify", "--state=state", "copy"]);
    assert!(came.out.contains("all as they were written"), "{came:?}");
    // By a move that goes on, because it could not remove its source.
    let is_immutable = |sign: &str| {
        let manifest = at("store/.flashwright-manifest");
        Command::new("chattr")
            .arg(format!("{sign}i"))
            .arg(manifest)
            .output()
            .is_ok_and(|it| it.status.success())
    };
    if !is_immutable("+") {
        println!(
            "SKIP a move that could not remove its source: chattr +i takes root, and a file system that has it"
        );
        return;
    }
    let fetch = [&["mv"], &fetch[..], &["back"]].concat();
    let refused = run(folder.path(), &fetch);
    assert!(is_immutable("-"));
    assert!(refused.code == 1 && refused.err.contains("is durable and verified, but: "), "{refused:?}");
    works(folder.path(), &fetch);
    is_the_checkpoint(&at("back"));
}

#[test]
fn a_move_that_goes_on_misses_a_manifest_that_was_damaged_and_reads_nothing_for_a_source_that_is_gone() {
    for is_gone in [false, true] {
        let folder = place();
        let at = |name: &str| folder.path().join(name);
        checkpoint(folder.path(), "set");
        let reader = fs::File::open(at("set")).expect("opens");
        reader.lock_shared().expect("locks");
        let command = ["mv", "--foreground", "-T", "set", "copy"];
        assert_eq!(run(folder.path(), &command).code, 3);
        drop(reader);
        fs::write(at("copy/.flashwright-manifest"), "garbage").expect("writes");
        if is_gone {
            fs::remove_dir_all(at("set")).expect("removes");
            works(folder.path(), &command);
        } else {
            let came = run(folder.path(), &command);
            assert!(
                came.code == 3 && came.err.contains("(a manifest expected, something else found)"),
                "{came:?}"
            );
            is_the_checkpoint(&at("set"));
        }
    }
}

#[test]
fn a_link_is_no_manifest() {
    let folder = place();
    let at = |name: &str| folder.path().join(name);
    checkpoint(folder.path(), "set");
    works(folder.path(), &["mv", "--foreground", "-T", "set", "copy"]);
    let again = ["mv", "--foreground", "--idempotent", "-T", "set", "copy"];
    assert!(works(folder.path(), &again).out.contains("there already"));
    let manifest = at("copy/.flashwright-manifest");
    fs::rename(&manifest, at("aside")).expect("renames");
    std::os::unix::fs::symlink(at("aside"), &manifest).expect("links");
    assert_ne!(run(folder.path(), &again).code, 0);
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
