//! What a job or an eviction removes is held elsewhere, with all that it is: whatever a source contains.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use stage::pace::Stop;
use stage::spec::{JobSpec, Level, Options, Place, Preserve, Verb};
use stage::tier::directory::Directory;
use stage::{JobStatus, State, retention};
use stage_service::{Mover, MoverConfig};

struct Tiers {
    folder: tempfile::TempDir,
    mover: Mover,
}

impl Tiers {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for tier in ["fast", "slow"] {
            fs::create_dir(folder.path().join(tier)).unwrap();
        }
        let mover = Mover::open(&MoverConfig::new(folder.path().join("state"))).unwrap();
        Self { folder, mover }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: &str) {
        fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
        fs::write(self.at(name), bytes).unwrap();
    }

    fn run(&self, verb: Verb, from: &str, to: &str, options: Options) -> JobStatus {
        let place = |name| Place::of_path(&self.at(name)).unwrap();
        let spec = JobSpec { verb, source: place(from), destination: place(to), options };
        let id = self.mover.submit(spec).unwrap();
        self.mover.wait(id, Level::Durable, Some(Duration::from_secs(120))).unwrap()
    }

    fn done(&self, verb: Verb, from: &str, to: &str, options: Options) -> JobStatus {
        let status = self.run(verb, from, to, options);
        assert_eq!(status.state, State::Done, "{status:?}");
        status
    }

    /// Asks for the eviction of a fast set, by the journal's word; why it stayed.
    fn evict(&self, name: &str) -> Option<String> {
        let slow = Directory::open(&self.at("slow")).unwrap();
        let journal = self.mover.journal();
        let evicted = retention::evict(&self.at("fast"), &slow, name.as_ref(), journal, &Stop::new());
        evicted.err().map(|error| error.to_string())
    }

    fn holds(&self, name: &str, bytes: &str) -> bool {
        fs::read_to_string(self.at(name)).is_ok_and(|found| found == bytes)
    }
}

fn notes_say(status: &JobStatus, what: &str) -> bool {
    status.notes.iter().any(|note| note.contains(what))
}

/// Replaces a hard link by a file with the same kind, size and time, and other bytes.
fn replace_link(path: &Path, bytes: &str) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

#[test]
fn a_file_that_replaced_a_hard_link_is_not_taken_for_the_link() {
    let tiers = Tiers::new();
    let with_links = |name: &str| {
        tiers.write(&format!("{name}/a"), "old1\n");
        fs::create_dir(tiers.at(name).join("below")).unwrap();
        fs::hard_link(tiers.at(name).join("a"), tiers.at(name).join("below/b")).unwrap();
    };
    for number in [1, 2, 3] {
        with_links(&format!("fast/ckpt-{number}"));
        let (from, to) = (format!("fast/ckpt-{number}"), format!("slow/ckpt-{number}"));
        tiers.done(Verb::Copy, &from, &to, Options::default());
    }
    assert_eq!(tiers.evict("ckpt-3"), None, "hard links that are left alone are no difference");
    // A request for an eviction, and one that nobody asked for by name.
    replace_link(&tiers.at("fast/ckpt-1/below/b"), "NEW1\n");
    let why = tiers.evict("ckpt-1").expect("it is not what was copied");
    assert!(why.contains("below/b is not the hard link that it was"), "{why}");
    tiers.write("fast/ckpt-4/x", "x");
    let keep = Options { keep_fast: Some(1), ..Options::default() };
    let status = tiers.done(Verb::Copy, "fast/ckpt-4", "slow/ckpt-4", keep);
    assert!(notes_say(&status, "below/b is not the hard link that it was"), "{status:?}");
    assert!(tiers.holds("fast/ckpt-1/below/b", "NEW1\n") && !tiers.at("fast/ckpt-2").exists());
    // What is brought back, whether its hard links are kept or not.
    for (number, links) in [(2, true), (3, false)] {
        let (from, to) = (format!("slow/ckpt-{number}"), format!("fast/back-{number}"));
        replace_link(&tiers.at(&format!("{from}/below/b")), "NEW1\n");
        let preserve = Preserve { links, ..Preserve::default() };
        let inward = Options { inward: true, preserve, ..Options::default() };
        let status = tiers.run(Verb::Copy, &from, &to, inward);
        assert_eq!(status.state, State::Failed, "{status:?}");
        assert!(!tiers.at(&to).exists());
    }
    let inward = Options {
        inward: true,
        preserve: Preserve { links: false, ..Preserve::default() },
        ..Options::default()
    };
    with_links("fast/ckpt-5");
    tiers.done(Verb::Copy, "fast/ckpt-5", "slow/ckpt-5", Options::default());
    tiers.done(Verb::Copy, "slow/ckpt-5", "fast/back-5", inward);
}

#[test]
fn a_set_that_was_moved_just_now_stays_whatever_its_number() {
    let tiers = Tiers::new();
    tiers.write("fast/ckpt-9/x", "nine");
    tiers.write("fast/ckpt-3/x", "three");
    let keep = Options { keep_slow: Some(1), ..Options::default() };
    tiers.done(Verb::Move, "fast/ckpt-9", "slow/ckpt-9", keep.clone());
    let status = tiers.done(Verb::Move, "fast/ckpt-3", "slow/ckpt-3", keep.clone());
    assert!(tiers.holds("slow/ckpt-3/x", "three") && tiers.holds("slow/ckpt-9/x", "nine"), "{status:?}");
    assert!(notes_say(&status, "it was stored just now"), "{status:?}");
    tiers.write("fast/ckpt-10/x", "ten");
    tiers.done(Verb::Move, "fast/ckpt-10", "slow/ckpt-10", keep);
    assert!(!tiers.at("slow/ckpt-3").exists() && !tiers.at("slow/ckpt-9").exists(), "the next one's turn");
}

#[test]
fn what_has_a_manifests_name_goes_only_if_it_is_one_and_the_copy_has_another() {
    const NAME: &str = stage::manifest::NAME;
    let tiers = Tiers::new();
    let without = Options { no_manifest: true, ..Options::default() };
    // Something of the user's, in a directory that is moved and in one that is evicted.
    tiers.write("fast/p1/x", "x");
    tiers.write(&format!("fast/p1/{NAME}"), "precious");
    let status = tiers.done(Verb::Move, "fast/p1", "slow/p1", Options::default());
    assert!(tiers.holds(&format!("fast/p1/{NAME}"), "precious"), "{status:?}");
    assert!(notes_say(&status, "is not a manifest, and was not copied"), "{status:?}");
    assert!(!tiers.at("fast/p1/x").exists() && tiers.holds("slow/p1/x", "x"));
    tiers.write("fast/ckpt-1/x", "x");
    tiers.write(&format!("fast/ckpt-1/{NAME}"), "precious");
    tiers.done(Verb::Copy, "fast/ckpt-1", "slow/ckpt-1", Options::default());
    let why = tiers.evict("ckpt-1").expect("nothing else holds it");
    assert!(why.contains("is not a manifest, and was not copied"), "{why}");
    // The manifest of a set, whose copy has one or has none.
    for (number, options, stays) in [(2, without, true), (3, Options::default(), false)] {
        let [one, two, three] = ["one", "fast", "slow"].map(|tier| format!("{tier}/ckpt-{number}"));
        fs::create_dir_all(tiers.at("one")).unwrap();
        tiers.write(&format!("{one}/x"), "x");
        tiers.done(Verb::Move, &one, &two, Options::default());
        let manifest = fs::read_to_string(tiers.at(&two).join(NAME)).unwrap();
        let status = tiers.done(Verb::Move, &two, &three, options);
        assert_eq!(tiers.holds(&format!("{two}/{NAME}"), &manifest), stays, "{status:?}");
        assert_eq!(notes_say(&status, "the copy has no manifest"), stays, "{status:?}");
        assert_eq!((tiers.at(&two).exists(), tiers.at(&three).join(NAME).exists()), (stays, !stays));
        assert!(tiers.holds(&format!("{three}/x"), "x"));
    }
}

#[test]
fn a_file_of_a_set_whose_name_looks_like_a_part_is_copied() {
    let part = ".x.abababababababababababababababab.part";
    let tiers = Tiers::new();
    for (verb, to) in [(Verb::Copy, "slow/ckpt-1"), (Verb::Move, "slow/moved")] {
        tiers.write("fast/ckpt-1/x", "x");
        tiers.write(&format!("fast/ckpt-1/{part}"), "precious");
        tiers.write(&format!("fast/ckpt-1/below/{part}/y"), "y");
        tiers.done(verb, "fast/ckpt-1", to, Options::default());
        assert!(tiers.holds(&format!("{to}/{part}"), "precious"));
        assert!(tiers.holds(&format!("{to}/below/{part}/y"), "y"));
        if verb == Verb::Copy {
            // One that has come since is a difference.
            tiers.write(&format!("fast/ckpt-1/below/{part}/z"), "z");
            assert!(tiers.evict("ckpt-1").is_some());
            fs::remove_file(tiers.at(&format!("fast/ckpt-1/below/{part}/z"))).unwrap();
            assert_eq!(tiers.evict("ckpt-1"), None);
        }
        assert!(!tiers.at("fast/ckpt-1").exists());
    }
}

#[test]
fn an_equal_destination_gets_the_metadata_that_was_asked_for_and_keeps_a_manifest_that_fits() {
    const NAME: &str = stage::manifest::NAME;
    let tiers = Tiers::new();
    let is_root = rustix::process::geteuid().is_root();
    let preserve = Preserve { owner: is_root, ..Preserve::default() };
    let options = Options { preserve, ..Options::default() };
    let of = |name: &str| {
        let stat = fs::symlink_metadata(tiers.at(name)).unwrap();
        (stat.mode(), stat.uid(), stat.mtime(), stat.mtime_nsec())
    };
    // A directory, and a single file.
    for (source, copy, names) in
        [("fast/run", "slow/run", &["", "/x", "/link"][..]), ("fast/f", "slow/f", &[""])]
    {
        for tree in [source, copy] {
            if names.len() > 1 {
                tiers.write(&format!("{tree}/x"), "x");
                std::os::unix::fs::symlink("x", tiers.at(tree).join("link")).unwrap();
            } else {
                tiers.write(tree, "x");
            }
        }
        let file = format!("{source}{}", names.get(1).unwrap_or(&""));
        fs::set_permissions(tiers.at(&file), fs::Permissions::from_mode(0o640)).unwrap();
        let past = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::File::open(tiers.at(source)).unwrap().set_modified(past).unwrap();
        if is_root {
            chown(tiers.at(&file), Some(2001), Some(2001)).unwrap();
        }
        let expected: Vec<_> = names.iter().map(|name| of(&format!("{source}{name}"))).collect();
        tiers.done(Verb::Move, source, copy, options.clone());
        let found: Vec<_> = names.iter().map(|name| of(&format!("{copy}{name}"))).collect();
        assert_eq!(found, expected);
        assert!(!tiers.at(source).exists());
    }
    // One that is not equal is not touched.
    for (tree, last) in [("fast/other", "x"), ("slow/other", "y")] {
        tiers.write(&format!("{tree}/a"), "a");
        tiers.write(&format!("{tree}/z"), last);
    }
    fs::set_permissions(tiers.at("fast/other/a"), fs::Permissions::from_mode(0o600)).unwrap();
    let before = ["", "/a", "/z"].map(|name| of(&format!("slow/other{name}")));
    assert_eq!(tiers.run(Verb::Move, "fast/other", "slow/other", options).state, State::Failed);
    assert_eq!(["", "/a", "/z"].map(|name| of(&format!("slow/other{name}"))), before);
    // A manifest that both sides have outlived.
    tiers.write("fast/ckpt-1/x", "old");
    tiers.done(Verb::Copy, "fast/ckpt-1", "slow/ckpt-1", Options::default());
    tiers.write("fast/ckpt-1/x", "new");
    tiers.write("slow/ckpt-1/x", "new");
    let status = tiers.run(Verb::Move, "fast/ckpt-1", "slow/ckpt-1", Options::default());
    assert_eq!(status.state, State::Failed, "{status:?}");
    assert!(tiers.holds("fast/ckpt-1/x", "new"));
    fs::remove_file(tiers.at("slow/ckpt-1").join(NAME)).unwrap();
    tiers.done(Verb::Move, "fast/ckpt-1", "slow/ckpt-1", Options::default());
    // One that fits.
    tiers.write("fast/ckpt-2/x", "x");
    tiers.done(Verb::Copy, "fast/ckpt-2", "slow/ckpt-2", Options::default());
    tiers.done(Verb::Move, "fast/ckpt-2", "slow/ckpt-2", Options::default());
    assert!(tiers.at("slow/ckpt-2").join(NAME).exists() && !tiers.at("fast/ckpt-2").exists());
}

#[test]
fn set_id_bits_are_kept_only_where_the_owner_is() {
    let tiers = Tiers::new();
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tried: files of another owner can be made by root only");
        return;
    }
    let with_owner = Preserve { owner: true, ..Preserve::default() };
    // Owner and mode of the source, whether owners are kept, mode of the copy.
    let cases = [
        (1001, 0o4755, Preserve::default(), 0o755),
        (1001, 0o2755, Preserve::default(), 0o755),
        (1001, 0o6755, with_owner, 0o6755),
        (0, 0o4755, Preserve::default(), 0o4755),
    ];
    for (owner, mode, preserve, expected) in cases {
        for (at, source) in [("", "fast/program"), ("/program", "fast/tree")] {
            let file = tiers.at(&format!("{source}{at}"));
            tiers.write(&format!("{source}{at}"), "#!");
            chown(&file, Some(owner), Some(owner)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let options = Options { preserve, ..Options::default() };
            let copy = source.replace("fast", "slow");
            let status = tiers.done(Verb::Copy, source, &copy, options.clone());
            let found = fs::metadata(tiers.at(&format!("{copy}{at}"))).unwrap();
            assert_eq!(found.mode() & 0o7777, expected, "{owner} {mode:o}");
            assert_eq!(notes_say(&status, "could not be kept"), expected != mode, "{status:?}");
            // The same request, which finds it.
            tiers.done(Verb::Move, source, &copy, options);
            let found = fs::metadata(tiers.at(&format!("{copy}{at}"))).unwrap();
            assert_eq!(found.mode() & 0o7777, expected, "{owner} {mode:o}");
            let _ = fs::remove_file(tiers.at(&copy));
            let _ = fs::remove_dir_all(tiers.at(&copy));
        }
    }
}

#[test]
fn a_tree_whose_paths_are_longer_than_system_calls_take_is_moved() {
    use std::os::fd::{AsFd, OwnedFd};
    let tiers = Tiers::new();
    let name = "directory".repeat(20);
    let deep = |root: &Path, make: bool| -> Vec<OwnedFd> {
        let mut at: Vec<OwnedFd> = vec![fs::File::open(root).unwrap().into()];
        for _ in 0..30 {
            let here = at.last().unwrap().as_fd();
            if make {
                rustix::fs::mkdirat(here, &*name, rustix::fs::Mode::RWXU).unwrap();
            }
            let flags = rustix::fs::OFlags::DIRECTORY;
            at.push(rustix::fs::openat(here, &*name, flags, rustix::fs::Mode::empty()).unwrap());
        }
        at
    };
    fs::create_dir(tiers.at("fast/deep")).unwrap();
    let bottom = deep(&tiers.at("fast/deep"), true).pop().unwrap();
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let file = rustix::fs::openat(&bottom, "x", flags, rustix::fs::Mode::RUSR).unwrap();
    rustix::io::write(&file, b"x").unwrap();
    rustix::fs::linkat(&bottom, "x", &bottom, "y", rustix::fs::AtFlags::empty()).unwrap();
    drop((file, bottom));
    tiers.done(Verb::Copy, "fast/deep", "slow/ckpt-1", Options::default());
    fs::rename(tiers.at("fast/deep"), tiers.at("fast/ckpt-1")).unwrap();
    tiers.done(Verb::Move, "fast/ckpt-1", "slow/ckpt-1", Options::default());
    assert!(!tiers.at("fast/ckpt-1").exists());
    // What was fetched is evicted: every name is compared.
    tiers.done(Verb::Copy, "slow/ckpt-1", "fast/ckpt-1", Options { inward: true, ..Options::default() });
    let bottom = deep(&tiers.at("fast/ckpt-1"), false).pop().unwrap();
    assert_eq!(rustix::fs::statat(&bottom, "y", rustix::fs::AtFlags::empty()).unwrap().st_nlink, 2);
}

#[test]
fn a_source_stays_while_it_is_held_as_a_copy_and_while_its_own_copy_is_removed() {
    use rustix::fs::{FlockOperation, flock};
    let tiers = Tiers::new();
    for (kind, file) in [("set", "set/a"), ("file", "file")] {
        // What another move holds: its copy, which is this one's source; or its source, which is this one's copy.
        for (tier, lock) in [
            ("fast", FlockOperation::NonBlockingLockShared),
            ("slow", FlockOperation::NonBlockingLockExclusive),
        ] {
            let (source, copy) = (format!("fast/{tier}/{kind}"), format!("slow/{tier}/{kind}"));
            let files = ["fast", "slow"].map(|at| format!("{at}/{tier}/{file}"));
            for file in &files {
                tiers.write(file, "the same");
            }
            let held = fs::File::open(tiers.at(if tier == "fast" { &source } else { &copy })).unwrap();
            flock(&held, lock).unwrap();
            let status = tiers.run(Verb::Move, &source, &copy, Options::default());
            let why = status.error.as_ref().map(|why| why.message.clone()).unwrap_or_default();
            assert!(why.contains("is locked by"), "{status:?}");
            assert!(files.iter().all(|file| tiers.holds(file, "the same")), "{status:?}");
            drop(held);
            tiers.mover.retry(status.id).unwrap();
            let status = tiers.mover.wait(status.id, Level::Durable, Some(Duration::from_secs(120))).unwrap();
            assert_eq!(status.error, None, "{status:?}");
            assert_eq!(
                (status.files_total, status.bytes_total, status.bytes_verified),
                (1, 8, 8),
                "{status:?}"
            );
            assert!(tiers.holds(&files[1], "the same"));
        }
    }
}
