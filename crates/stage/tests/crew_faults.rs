//! What a hand of a crew returns rests on its syncs: each is made in its place, and a task whose sync fails is not done. The plan
//! is the process's, so that the tests of this binary take turns.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use stage::crew::{Copied, Errand, Hand, Task};
use stage::digest::Algorithm;
use stage::fault::{Call, Effect, Fault, Plan, fired, install};
use stage::fingerprint::Identity;
use stage::names::PathText;
use stage::owned::FileId;
use stage::pace::Stop;
use stage::{Preserve, StageError, calls};

const SYNCS: [Call; 3] = [Call::Syncfs, Call::Fsync, Call::Fdatasync];

static TURN: Mutex<()> = Mutex::new(());

fn id(path: &Path) -> FileId {
    FileId::of(File::open(path).unwrap().as_fd()).unwrap()
}

fn errand(folder: &Path) -> Errand {
    let [source, part] = ["source", "part"].map(|name| folder.join(name));
    std::fs::create_dir(&source).unwrap();
    std::fs::create_dir(&part).unwrap();
    Errand {
        source_id: id(&source),
        part_id: id(&part),
        source: PathText(source),
        part: PathText(part),
        is_directory: true,
        algorithm: Algorithm::default(),
        preserve: Preserve { sparse: true, ..Preserve::default() },
        sync_source: true,
    }
}

/// Does a task in directories of its own that `make` fills, under a plan.
fn done(plan: Plan, make: impl Fn(&Errand) -> Task) -> (Result<Copied, StageError>, u64, Vec<Call>) {
    let folder = tempfile::tempdir().unwrap();
    let errand = errand(folder.path());
    let task = make(&errand);
    let mut hand = Hand::open(&errand).unwrap();
    install(Some(plan));
    let result = hand.work(&task, &Stop::new());
    let struck = fired();
    let calls = install(None).and_then(|plan| plan.calls).unwrap_or_default();
    (result, struck, calls)
}

/// The calls of a task; and each of its syncs, struck in turn, fails it.
fn calls_where_each_sync_counts(make: impl Fn(&Errand) -> Task) -> Vec<Call> {
    let (result, _, calls) = done(Plan::recording(), &make);
    result.expect("is done");
    for sync in SYNCS {
        for after in 0..calls.iter().filter(|call| **call == sync).count() as u64 {
            let effect = Effect::Errno(Errno::IO.raw_os_error());
            let fault = Fault { call: Some(sync), after, times: 1, effect };
            let (result, struck, _) = done(Plan::new([fault]), &make);
            assert_eq!(struck, 1, "{sync:?} {after}");
            assert!(result.is_err(), "{sync:?} {after} failed, and the task is called done");
        }
    }
    calls
}

fn names(errand: &Errand) -> Task {
    for name in ["one", "two"] {
        std::fs::write(errand.source.0.join(name), name).unwrap();
    }
    Task::Names(vec![(PathText::default(), ["one", "two"].map(|name| PathText(name.into())).to_vec())])
}

fn chunks(errand: &Errand) -> Task {
    let [from, to] = [&errand.source, &errand.part].map(|root| root.0.join("file"));
    let file = File::create(&from).unwrap();
    file.write_all_at(&[7; 4096], 1 << 20).unwrap();
    File::create(&to).unwrap();
    let source = Identity::of(&calls::stat(file.as_fd()).unwrap());
    Task::Chunks { path: PathText("file".into()), source, copy: id(&to), chunks: 0..1 }
}

#[test]
fn names_are_synced_after_the_last_byte_was_written() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let calls = calls_where_each_sync_counts(names);
    let last_write = calls.iter().rposition(|call| *call == Call::Write).expect("files are written");
    assert!(calls[last_write..].iter().any(|call| SYNCS.contains(call)), "{calls:?}");
}

#[test]
fn sparse_source_is_synced_before_its_holes_are_believed() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let calls = calls_where_each_sync_counts(chunks);
    let holes = calls.iter().position(|call| *call == Call::Lseek).expect("holes are asked for");
    assert!(calls[..holes].contains(&Call::Fsync), "{calls:?}");
}
