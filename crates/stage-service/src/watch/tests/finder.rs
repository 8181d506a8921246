//! What is found, when, and how often.

use super::*;

#[test]
fn what_was_there_before_is_found_once_and_again_only_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.done"), "").unwrap();
    fs::write(folder.path().join("a"), "").unwrap();
    let mut finder = finder(folder.path(), "*.done", SOON, SOON);
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
    for _ in 0..20 {
        assert_eq!(finder.next(SOON).unwrap(), []);
    }
    renamed_into_place(&folder.path().join("a.done"), "changed");
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
    // Gone and back, in whatever state.
    fs::rename(folder.path().join("a.done"), folder.path().join("kept")).unwrap();
    for _ in 0..20 {
        assert_eq!(finder.next(SOON).unwrap(), []);
    }
    fs::rename(folder.path().join("kept"), folder.path().join("a.done")).unwrap();
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
}

#[test]
fn one_that_is_renamed_into_place_or_closed_is_found_by_its_event() {
    let folder = tempfile::tempdir().unwrap();
    let mut finder = finder(folder.path(), "*.done", HOUR, HOUR);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    renamed_into_place(&folder.path().join("a.done"), "");
    fs::write(folder.path().join("b\n.done"), "x").unwrap();
    fs::write(folder.path().join("c.other"), "x").unwrap();
    assert_eq!(find(&mut finder, 2), [Path::new("a.done"), Path::new("b\n.done")]);
}

#[test]
fn one_that_is_still_being_written_waits_for_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut finder = finder(folder.path(), "*.done", SOON, SOON);
    assert_eq!(finder.next(SOON).unwrap(), []);
    let mut file = fs::File::create(folder.path().join("a.done")).unwrap();
    file.write_all(b"half").unwrap();
    for _ in 0..20 {
        assert_eq!(finder.next(SOON).unwrap(), [], "it is open for writing");
    }
    drop(file);
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
}

#[test]
fn one_that_a_scan_sees_before_its_event_is_heard_waits_for_its_end_as_well() {
    let folder = tempfile::tempdir().unwrap();
    // Each call scans first, and what a scan has found would be whole at once.
    let mut finder = finder(folder.path(), "*.done", Duration::ZERO, Duration::ZERO);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    let mut file = fs::File::create(folder.path().join("a.done")).unwrap();
    file.write_all(b"half").unwrap();
    for _ in 0..20 {
        assert_eq!(finder.next(Duration::ZERO).unwrap(), [], "it is open for writing");
    }
    drop(file);
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
}

#[test]
fn one_that_is_opened_again_waits_for_its_end_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let mut finder = finder(folder.path(), "*.done", HOUR, HOUR);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    let at = folder.path().join("a.done");
    fs::write(&at, "whole\n").unwrap();
    let mut file = fs::File::create(&at).unwrap();
    file.write_all(b"half").unwrap();
    for _ in 0..20 {
        assert_eq!(finder.next(SOON).unwrap(), [], "it is open for writing again");
    }
    drop(file);
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
}

#[test]
fn the_end_of_a_file_that_had_the_name_before_is_not_the_end_of_this() {
    let folder = tempfile::tempdir().unwrap();
    let mut finder = finder(folder.path(), "*.done", HOUR, HOUR);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    let at = folder.path().join("a.done");
    let before = fs::File::create(&at).unwrap();
    fs::remove_file(&at).unwrap();
    let mut file = fs::File::create(&at).unwrap();
    file.write_all(b"half").unwrap();
    drop(before);
    for _ in 0..20 {
        assert_eq!(finder.next(SOON).unwrap(), [], "it is open for writing");
    }
    drop(file);
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")]);
}

#[test]
fn what_happens_in_a_directory_that_was_renamed_tells_nothing_of_its_old_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut finder = finder(folder.path(), "run-*/ckpt-*/DONE", HOUR, HOUR);
    fs::create_dir_all(at("run-1/ckpt-7")).unwrap();
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    fs::rename(at("run-1"), at("old-1")).unwrap();
    fs::create_dir_all(at("run-1/ckpt-7")).unwrap();
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    let mut file = fs::File::create(at("run-1/ckpt-7/DONE")).unwrap();
    file.write_all(b"half").unwrap();
    fs::write(at("old-1/ckpt-7/DONE"), "").unwrap();
    for _ in 0..20 {
        assert_eq!(finder.next(SOON).unwrap(), [], "it is open for writing");
    }
    drop(file);
    assert_eq!(find(&mut finder, 1), [Path::new("run-1/ckpt-7/DONE")]);
}

#[test]
fn an_overflow_may_have_swallowed_that_a_directory_was_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let longest: usize =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    if longest > 100_000 {
        println!("SKIP overflow of inotify's queue: it holds {longest} events");
        return;
    }
    let mut finder = finder(folder.path(), "ckpt-*/DONE", HOUR, HOUR);
    fs::create_dir(at("ckpt-7")).unwrap();
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    for number in 0..longest / 2 + 100 {
        fs::write(at(&format!("ckpt-7/{number}")), "").unwrap();
    }
    fs::rename(at("ckpt-7"), at("old-7")).unwrap();
    fs::create_dir(at("ckpt-7")).unwrap();
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), [], "it is scanned");
    let mut file = fs::File::create(at("ckpt-7/DONE")).unwrap();
    file.write_all(b"half").unwrap();
    fs::write(at("old-7/DONE"), "").unwrap();
    for _ in 0..20 {
        assert_eq!(finder.next(SOON).unwrap(), [], "it is open for writing");
    }
    drop(file);
    assert_eq!(find(&mut finder, 1), [Path::new("ckpt-7/DONE")]);
}

#[test]
fn a_directory_that_comes_back_is_looked_into_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut finder = finder(folder.path(), "ckpt-*/DONE", HOUR, SOON);
    fs::create_dir(at("ckpt-7")).unwrap();
    fs::write(at("ckpt-7/DONE"), "").unwrap();
    assert_eq!(find(&mut finder, 1), [Path::new("ckpt-7/DONE")]);
    fs::rename(at("ckpt-7"), at("out")).unwrap();
    fs::rename(at("out"), at("ckpt-7")).unwrap();
    assert_eq!(find(&mut finder, 1), [Path::new("ckpt-7/DONE")]);
}

#[test]
fn another_directory_of_the_name_is_not_watched() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("watched")).unwrap();
    let mut finder = finder(&at("watched"), "*.done", HOUR, SOON);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    fs::rename(at("watched"), at("old")).unwrap();
    fs::create_dir(at("watched")).unwrap();
    fs::write(at("old/a.done"), "").unwrap();
    let error = std::iter::repeat_with(|| finder.next(SOON)).take(100).find_map(Result::err).unwrap();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "another directory has its name now", "{error}");
}

/// Semaphores that nobody closes, although the events of their making look as if somebody had opened them.
#[test]
fn what_needs_no_close_is_found_by_a_scan() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut finder = finder(folder.path(), "*.done", SOON, SOON);
    fs::write(at("empty"), "").unwrap();
    fs::write(at("cut.done"), "contents").unwrap();
    assert_eq!(find(&mut finder, 1), [Path::new("cut.done")]);
    fs::hard_link(at("empty"), at("linked.done")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, at("made.done"), FileType::RegularFile, Mode::RUSR, 0).unwrap();
    // truncate(2), without a descriptor.
    assert!(
        std::process::Command::new("python3")
            .args(["-c", "import os, sys; os.truncate(sys.argv[1], 1)"])
            .arg(at("cut.done"))
            .status()
            .unwrap()
            .success()
    );
    let all = ["cut.done", "linked.done", "made.done"].map(PathBuf::from);
    assert_eq!(find(&mut finder, 3), all);
    assert!(finder.is_quiet());
}

/// The kernel grants a lease to the owner and to root alone.
#[test]
fn events_alone_tell_of_the_semaphores_of_another_user() {
    use rustix::process::Uid;
    if !rustix::process::geteuid().is_root() {
        println!("SKIP the semaphores of another user: it takes root to become one");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut finder = finder(folder.path(), "*.done", SOON, SOON);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    fs::write(at("other"), "").unwrap();
    fs::hard_link(at("other"), at("a.done")).unwrap();
    let mut finder = std::thread::scope(|scope| {
        let as_nobody = scope.spawn(|| {
            // Of this thread alone.
            rustix::thread::set_thread_uid(Uid::from_raw(65534)).unwrap();
            for _ in 0..20 {
                assert_eq!(finder.next(SOON).unwrap(), [], "it may be open");
            }
            finder
        });
        as_nobody.join().unwrap()
    });
    assert_eq!(find(&mut finder, 1), [Path::new("a.done")], "of one's own it is known");
}

#[test]
fn nothing_is_lost_when_the_queue_of_events_overflows() {
    let folder = tempfile::tempdir().unwrap();
    let longest: usize =
        fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    if longest > 100_000 {
        println!("SKIP overflow of inotify's queue: it holds {longest} events");
        return;
    }
    let mut finder = finder(folder.path(), "*.done", HOUR, SOON);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    // Two events each, none of which is taken meanwhile.
    let count = longest / 2 + 100;
    for number in 0..count {
        fs::write(folder.path().join(format!("{number}.done")), "").unwrap();
    }
    assert_eq!(find(&mut finder, count).len(), count);
}

#[test]
fn directories_that_come_later_are_looked_into_and_links_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("DONE"), "").unwrap();
    let mut finder = finder(folder.path(), "ckpt-*/DONE", HOUR, SOON);
    assert_eq!(finder.next(Duration::ZERO).unwrap(), []);
    std::os::unix::fs::symlink(outside.path(), folder.path().join("ckpt-0")).unwrap();
    fs::create_dir(folder.path().join("ckpt-2")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("DONE"), folder.path().join("ckpt-2/DONE")).unwrap();
    fs::create_dir(folder.path().join("ckpt-1")).unwrap();
    fs::write(folder.path().join("ckpt-1/DONE"), "").unwrap();
    // A directory that gets its name when it is whole, as writers do that publish by renaming.
    fs::create_dir(folder.path().join("hidden")).unwrap();
    fs::write(folder.path().join("hidden/DONE"), "").unwrap();
    fs::rename(folder.path().join("hidden"), folder.path().join("ckpt-3")).unwrap();
    assert_eq!(find(&mut finder, 2), [Path::new("ckpt-1/DONE"), Path::new("ckpt-3/DONE")]);
    fs::remove_file(folder.path().join("ckpt-2/DONE")).unwrap();
    fs::write(folder.path().join("ckpt-2/DONE"), "").unwrap();
    assert_eq!(find(&mut finder, 1), [Path::new("ckpt-2/DONE")]);
}
