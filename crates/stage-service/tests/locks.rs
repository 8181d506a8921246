//! Locks that other processes hold while a mover works.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use stage::State;
use stage::spec::{JobSpec, Level, Options, Place, Verb};
use stage_service::{Mover, MoverConfig};

#[test]
fn a_slow_directory_that_a_reader_keeps_locked_holds_up_no_move() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["fast/ckpt-1", "slow"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    std::fs::write(at("fast/ckpt-1/x"), "x").unwrap();
    let reader = std::fs::File::open(at("slow")).unwrap();
    assert!(stage::lock::at_once(reader.as_fd(), true, &at("slow")).unwrap());
    let mover = Mover::open(&MoverConfig::new(at("state"))).unwrap();
    let place = |name: &str| Place::of_path(&at(name)).unwrap();
    let spec = |number| JobSpec {
        verb: Verb::Copy,
        source: place(&format!("fast/ckpt-{number}")),
        destination: place(&format!("slow/ckpt-{number}")),
        options: Options { latest: true, keep_fast: Some(1), ..Options::default() },
    };
    let bound = Some(Duration::from_secs(120));
    let id = mover.submit(spec(1)).unwrap();
    let status = mover.wait(id, Level::Durable, bound).unwrap();
    assert_eq!(status.state, State::Done, "{status:?}");
    assert!(status.notes.iter().any(|note| note.contains("is locked by process ")), "{status:?}");
    assert!(at("slow/ckpt-1/x").exists() && !at("slow/latest").is_symlink());
    // The next set has it seen to.
    drop(reader);
    std::fs::create_dir_all(at("fast/ckpt-2")).unwrap();
    let id = mover.submit(spec(2)).unwrap();
    assert_eq!(mover.wait(id, Level::Durable, bound).unwrap().state, State::Done);
    assert_eq!(std::fs::read_link(at("slow/latest")).unwrap(), Path::new("ckpt-2"));
    assert!(!at("fast/ckpt-1").exists());
}
