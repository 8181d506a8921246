//! Bits that change on the medium after all was said to be well.

use std::fs::{self, File};
use std::io::BufReader;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use stage::manifest::Reader;
use stage::pace::{Progress, Stop};
use stage::retention::{self, Keep};
use stage::tier::directory::Directory;
use stage::{StageError, State, Verb};

use crate::child::{Order, run};
use crate::world::{MANIFEST, Scenario, World};

/// What reading a set back against its manifest finds: path and offset of each fault.
fn faults(set: &Path) -> Vec<(String, u64)> {
    let root: OwnedFd = File::open(set).unwrap().into();
    let manifest = BufReader::new(File::open(set.join(MANIFEST)).unwrap());
    let mut manifest = Reader::new(manifest, "the manifest").unwrap();
    let (algorithm, chunk_bytes) = (manifest.header().algorithm, manifest.header().chunk_bytes);
    let found = Mutex::new(Vec::new());
    stage::verify::tree(
        &root,
        set,
        algorithm,
        chunk_bytes,
        2,
        &Progress::default(),
        &Stop::new(),
        &mut || manifest.next_entry(),
        &|fault| match fault {
            StageError::Corrupt { path, offset, .. } => {
                found.lock().unwrap().push((path, offset));
                Ok(())
            }
            other => Err(other),
        },
    )
    .unwrap();
    let mut found = found.into_inner().unwrap();
    found.sort();
    found
}

/// Changes a bit as a medium does, which touches no time.
fn flip(path: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let before = file.metadata().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_bit_that_changes_at_the_destination_is_found_with_its_file_and_chunk() {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.latest = false;
    crate::world::file(&world.source.join("chunks"), (16 << 20) + 100, 11);
    let report = run(&Order::to(&world.state, &world.spec)).told();
    assert_eq!(report.job().state, State::Done, "{:?}", report.jobs);
    assert_eq!(faults(&world.destination), [], "nothing has changed yet");
    let path = |name: &str| world.destination.join(name).display().to_string();
    for (name, at, chunk) in [
        ("rank-1", 0, 0),
        ("rank-1", 50_000, 0),
        ("chunks", 0, 0),
        ("chunks", (8 << 20) - 1, 0),
        ("chunks", 8 << 20, 8 << 20),
        ("chunks", (16 << 20) + 99, 16 << 20),
    ] {
        flip(&world.destination.join(name), at);
        assert_eq!(faults(&world.destination), [(path(name), chunk)], "{name} at {at}");
        flip(&world.destination.join(name), at);
    }
    assert_eq!(faults(&world.destination), [], "all bits are back");
    // What is shorter, longer or gone is found as well.
    File::options().append(true).open(world.destination.join("rank-2")).unwrap().set_len(10).unwrap();
    assert_eq!(faults(&world.destination).len(), 1);
}

#[test]
fn a_bit_that_changes_in_a_manifest_voids_it() {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.latest = false;
    let report = run(&Order::to(&world.state, &world.spec)).told();
    assert_eq!(report.job().state, State::Done, "{:?}", report.jobs);
    let manifest = world.destination.join(MANIFEST);
    let size = fs::metadata(&manifest).unwrap().len();
    let is_whole = || {
        let Ok(mut reader) = Reader::new(BufReader::new(File::open(&manifest).unwrap()), "the manifest")
        else {
            return false;
        };
        loop {
            match reader.next_entry() {
                Ok(Some(_)) => {}
                Ok(None) => return reader.digest().is_some(),
                Err(_) => return false,
            }
        }
    };
    assert!(is_whole());
    for at in (0..size).step_by(7) {
        flip(&manifest, at);
        assert!(!is_whole(), "byte {at} of {size} has changed unnoticed");
        flip(&manifest, at);
    }
}

#[test]
fn a_fast_copy_whose_slow_copy_has_rotted_is_not_evicted_whatever_the_journal_says() {
    let mut world = World::new(Scenario::Checkpoint, Verb::Copy);
    world.spec.options.latest = false;
    let report = run(&Order::to(&world.state, &world.spec)).told();
    assert_eq!(report.job().state, State::Done, "{:?}", report.jobs);
    let journal = stage::journal::Journal::open(&world.state).unwrap();
    let slow = Directory::open(world.slow()).unwrap();
    let none = Keep { fast: Some(0), ..Keep::default() };
    let tidy =
        || retention::tidy(world.fast(), &slow, "ckpt-7".as_ref(), none, &journal, &Stop::new()).unwrap();
    flip(&world.destination.join("rank-1"), 17);
    let outcome = tidy();
    assert_eq!(outcome.evicted, Vec::<std::path::PathBuf>::new(), "the only whole copy is gone");
    assert!(world.source.join("rank-1").exists());
    assert!(outcome.notes()[0].contains("stage verify"), "{:?}", outcome.notes());
    flip(&world.destination.join("rank-1"), 17);
    assert_eq!(tidy().evicted, [world.source.clone()], "its slow copy is whole again");
}
