//! What a store removes when it is opened: what its journal says that it had begun, and nothing by its name.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::Command;

use stage_service::store::{Store, StoreConfig};

const VARIABLE: &str = "FLASHWRIGHT_CHILD_STORE";

fn open(place: &Path) -> Store {
    Store::open(StoreConfig::new(place.join("fast"), place.join("slow"))).unwrap()
}

/// Not a test of its own: begins a checkpoint, and dies.
#[test]
fn begins_and_dies() {
    let Some(place) = std::env::var_os(VARIABLE) else { return };
    let store = open(Path::new(&place));
    let part = store.begin(7).unwrap();
    fs::write(part.join("rank-0"), b"half").unwrap();
    std::process::abort();
}

fn parts(place: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(place.join("fast")).unwrap().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "part")).collect()
}

#[test]
fn a_store_removes_what_it_had_begun_and_leaves_what_only_has_such_a_name() {
    for swapped in [false, true] {
        let place = tempfile::tempdir().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["begins_and_dies", "--exact"])
            .env(VARIABLE, place.path())
            .output()
            .unwrap();
        assert!(!child.status.success(), "it dies");
        let [part] = &parts(place.path())[..] else { panic!("one is begun: {child:?}") };
        // The name that an earlier release gave to what it had begun.
        let stray = place.path().join("fast/.step-00000003.0123456789ab805e8123456789abcdef.part");
        fs::create_dir(&stray).unwrap();
        fs::write(stray.join("thesis"), b"the only copy").unwrap();
        if swapped {
            fs::rename(part, place.path().join("aside")).unwrap();
            fs::create_dir(part).unwrap();
            fs::write(part.join("thesis"), b"the only copy").unwrap();
        }
        open(place.path()).close().unwrap();
        assert!(stray.join("thesis").exists(), "a name is no proof");
        assert_eq!(part.join("thesis").exists(), swapped, "somebody else's stays");
        assert_eq!(part.exists(), swapped, "what it had begun goes");
    }
}
