//! What arrives: bytes, names, metadata.

use super::*;

#[test]
fn a_tree_arrives_whole_with_its_manifest_and_stays_where_it_was() {
    let bench = Bench::new();
    bench.tree("fast");
    let before = snapshot(&bench.at("fast"));
    let status = bench.done(Verb::Copy, "fast", "slow/ckpt");
    assert_eq!(snapshot(&bench.at("slow/ckpt")), before);
    assert_eq!(snapshot(&bench.at("fast")), before);
    assert_eq!(names(&bench.at("slow")), ["ckpt"]);
    let uno = fs::metadata(bench.at("slow/ckpt/a/b/uno")).unwrap();
    assert_eq!((uno.nlink(), uno.ino()), (2, fs::metadata(bench.at("slow/ckpt/one")).unwrap().ino()));
    assert!(bench.at("slow/ckpt/.flashwright-manifest").exists());
    assert_eq!(status.files_total, 8, "{status:?}");
    assert_eq!(status.files_done, 8, "{status:?}");
    assert_eq!(status.bytes_written, status.bytes_verified);
}

#[test]
fn what_its_owner_has_changed_on_the_fast_tier_is_copied_as_it_is() {
    let bench = Bench::new();
    bench.tree("fast");
    bench.done(Verb::Copy, "fast", "slow/one");
    let back = Options { inward: true, ..Options::default() };
    assert_eq!(bench.run(Verb::Copy, "slow/one", "fast-2", back).state, State::Done);
    fs::write(bench.at("fast-2/one"), "changed").unwrap();
    fs::write(bench.at("fast-2/new"), "new").unwrap();
    bench.done(Verb::Move, "fast-2", "slow/two");
    assert_eq!(fs::read(bench.at("slow/two/one")).unwrap(), b"changed");
    assert!(bench.at("slow/two/new").exists());
}

#[test]
fn a_mode_that_is_not_preserved_is_that_of_cp() {
    let bench = Bench::new();
    fs::create_dir(bench.at("set")).unwrap();
    for (name, mode) in
        [("plain", 0o644), ("script", 0o755), ("secret", 0o600), ("open", 0o666), ("suid", 0o4755)]
    {
        fs::write(bench.at("set").join(name), name).unwrap();
        fs::set_permissions(bench.at("set").join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(bench.at("set/large"), vec![7; 9 << 20]).unwrap();
    fs::write(bench.at("single"), "x").unwrap();
    let cp = |from: &str, to: &str| {
        let done = std::process::Command::new("cp").arg("-r").args([bench.at(from), bench.at(to)]).status();
        assert!(done.unwrap().success());
    };
    let plain = || Options { preserve: "times".parse().unwrap(), ..Options::default() };
    let modes = |directory: &str| {
        let mut all: Vec<_> =
            snapshot(&bench.at(directory)).into_iter().map(|(name, mode, ..)| (name, mode)).collect();
        all.sort();
        all
    };
    cp("set", "by-cp");
    assert_eq!(bench.run(Verb::Copy, "set", "by-us", plain()).state, State::Done);
    assert_eq!(modes("by-us"), modes("by-cp"));
    cp("single", "single-by-cp");
    assert_eq!(bench.run(Verb::Copy, "single", "single-by-us", plain()).state, State::Done);
    let mode = |name: &str| fs::metadata(bench.at(name)).unwrap().mode();
    assert_eq!(mode("single-by-us"), mode("single-by-cp"));
}

#[test]
fn a_moved_tree_is_gone_from_where_it_was() {
    let bench = Bench::new();
    bench.tree("fast");
    let before = snapshot(&bench.at("fast"));
    let status = bench.done(Verb::Move, "fast", "slow/ckpt");
    assert_eq!(snapshot(&bench.at("slow/ckpt")), before);
    assert!(!bench.at("fast").exists(), "{status:?}");
    assert!(status.notes.is_empty(), "{status:?}");
}

#[test]
fn single_files_of_all_sizes_are_moved() {
    let bench = Bench::new();
    for size in [0, 1, 4095, 4096, 4097, (4 << 20) - 1, 4 << 20, (8 << 20) + 1, 20 << 20] {
        let bytes: Vec<u8> = (0..size).map(|at: u64| (at ^ (at >> 9)) as u8).collect();
        fs::write(bench.at("file"), &bytes).unwrap();
        let to = format!("slow/file-{size}");
        bench.done(Verb::Move, "file", &to);
        assert!(fs::read(bench.at(&to)).unwrap() == bytes, "{size} bytes");
        assert!(!bench.at("file").exists());
    }
}

#[test]
fn attributes_and_holes_are_kept_where_they_are_asked_for() {
    let bench = Bench::new();
    fs::create_dir(bench.at("fast")).unwrap();
    let file = fs::File::create(bench.at("fast/sparse")).unwrap();
    file.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"in the middle", 500 << 20).unwrap();
    let set = rustix::fs::fsetxattr(&file, "user.note", b"kept", rustix::fs::XattrFlags::empty());
    let options = Options { preserve: Preserve::ALL, ..Options::default() };
    let status = bench.run(Verb::Copy, "fast", "slow/copy", options);
    assert_eq!(status.state, State::Done, "{status:?}");
    let copy = fs::File::open(bench.at("slow/copy/sparse")).unwrap();
    let meta = copy.metadata().unwrap();
    assert_eq!(meta.len(), 1 << 30);
    assert!(meta.blocks() * 512 < 16 << 20, "{} blocks", meta.blocks());
    let mut middle = [0; 13];
    std::os::unix::fs::FileExt::read_exact_at(&copy, &mut middle, 500 << 20).unwrap();
    assert_eq!(&middle, b"in the middle");
    if set.is_ok() {
        let mut value = [0; 16];
        assert_eq!(rustix::fs::fgetxattr(&copy, "user.note", &mut value), Ok(4));
    } else {
        eprintln!("SKIP attributes: this file system has none");
    }
}
