//! Trees that are deeper than descriptors, stacks and paths of system calls reach. A process of its own, because its limit
//! of descriptors is the whole process's.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stage::existing::make_durable;
use stage::owned::{FileId, Left, discard};
use stage::pace::Stop;
use stage::tree::Walk;

const LEVELS: u64 = 3000;

/// Each directory has two, and a file: the way back up comes by all of them.
fn make(root: &Path) {
    std::fs::create_dir(root).unwrap();
    let mut at: OwnedFd = File::open(root).unwrap().into();
    for _ in 0..LEVELS {
        let file = OFlags::CREATE | OFlags::WRONLY;
        rustix::fs::openat(&at, "file", file, Mode::RUSR | Mode::WUSR).unwrap();
        for name in ["beside", "deeper"] {
            rustix::fs::mkdirat(&at, name, Mode::RWXU).unwrap();
        }
        at = rustix::fs::openat(&at, "deeper", OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
}

#[test]
fn a_tree_is_walked_synced_and_removed_however_deep_it_is() {
    let limit = Rlimit { current: Some(256), ..getrlimit(Resource::Nofile) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let root = folder.path().join("deep");
    make(&root);
    let open = File::open(&root).unwrap();
    let mut entries = 0;
    let walk = Walk { source: &root, across: false, only: None, stop: &Stop::new() };
    walk.each(open.as_fd(), None, &mut |_| {
        entries += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(entries, 1 + 3 * LEVELS);
    make_durable(&root, None, &Stop::new()).unwrap();
    let made = FileId::of(open.as_fd()).unwrap();
    let above: OwnedFd = File::open(folder.path()).unwrap().into();
    assert_eq!(discard(&above, OsStr::new("deep"), folder.path(), Some(&made)).unwrap(), Left::Nothing);
    assert!(!root.exists());
}
