//! Manifests and journals of moves are read for ever: the fixtures of `formats/`.

#[path = "../../../formats/dump.rs"]
mod dump;
#[path = "../../../formats/fixture.rs"]
mod fixture;

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fixture::fixture;
use rusqlite::Connection;
use stage::digest::{Algorithm, Digest};
use stage::fingerprint::Identity;
use stage::job::State;
use stage::journal::{Accepted, Done, Entries, Journal, Purpose};
use stage::manifest::{Entry, Header, Kind, Reader, Writer};
use stage::names::PathText;
use stage::{JobSpec, Level, Options, Place, Verb};

fn entry(path: &str, kind: Kind) -> Entry {
    Entry {
        path: PathText(path.into()),
        kind,
        size: 0,
        mode: 0o755,
        uid: 1000,
        gid: 1000,
        mtime_s: 1_750_000_000,
        mtime_ns: 5,
        digest: None,
        chunks: Vec::new(),
        target: None,
        link_to: None,
    }
}

/// A directory with a file, a second name of it, and a symbolic link.
fn entries() -> [Entry; 4] {
    let digest = Digest::parse("99aa06d3014798d86001c324468d497f");
    [
        entry("", Kind::Directory),
        Entry { size: 3, digest, ..entry("a", Kind::File) },
        Entry { size: 3, link_to: Some(PathText("a".into())), ..entry("b", Kind::File) },
        Entry { target: Some(PathText("a".into())), ..entry("c", Kind::Symlink) },
    ]
}

#[test]
fn a_manifest_of_format_1_is_read() {
    let text = fixture("manifest-1.jsonl", || {
        let header = Header::new(Algorithm::Xxh3, Path::new("step-7"), 1_750_000_001);
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        entries().iter().for_each(|entry| writer.entry(entry).unwrap());
        writer.finish().unwrap().0
    });
    let mut reader = Reader::new(text.as_slice(), "manifest-1.jsonl").unwrap();
    assert_eq!((&*reader.header().name.0, reader.header().created), (Path::new("step-7"), 1_750_000_001));
    for expected in entries() {
        assert_eq!(reader.next_entry().unwrap(), Some(expected));
    }
    assert_eq!(reader.next_entry().unwrap(), None, "the last line's counts and digest are right");
}

fn spec(name: &str) -> JobSpec {
    let place = |tier: &str| Place::Path(PathText(Path::new(tier).join(name)));
    let options = Options { bwlimit: Some(1 << 20), priority: 5, ..Options::default() };
    JobSpec { verb: Verb::Move, source: place("/fast"), destination: place("/slow"), options }
}

fn identity(ino: u64) -> Identity {
    Identity { ino, size: 3, mtime: (1_750_000_000, 5), ctime: (1_750_000_000, 6), nlink: 2 }
}

/// What is copied, and what was compared: of the same names, and not the same.
fn done() -> (Vec<Done>, Vec<Done>) {
    let all: Vec<Done> = (10..)
        .zip(entries())
        .map(|(ino, entry)| Done::new(entry.clone(), Identity { size: entry.size, ..identity(ino) }))
        .collect();
    let stored = Done { object: Some("etag".to_owned()), ..all[1].clone() };
    (all, vec![stored])
}

/// A job that waits, one that is committed, one that is done; a name that is a store's own.
fn journal() -> Vec<u8> {
    let state = tempfile::tempdir().unwrap();
    let journal = Journal::open(state.path()).unwrap();
    let accept = |name: &str, now| match journal.accept(&spec(name), now, None).unwrap() {
        Accepted::New(id) => id,
        _ => panic!("{name} is new"),
    };
    accept("step-1", 1_750_000_000);
    for (name, is_done) in [("step-2", false), ("step-3", true)] {
        let id = accept(name, 1_750_000_001);
        journal.begin(id).unwrap();
        journal.name_part(id, OsStr::new(".step.00000000-0000-4000-8000-000000000000.part")).unwrap();
        journal.level(id, Level::Durable).unwrap();
        journal.commit(id, 1_750_000_002).unwrap();
        if is_done {
            journal.settle(id, State::Done, 1_750_000_003, None, &["a note".to_owned()]).unwrap();
        }
    }
    let id = accept("step-4", 1_750_000_004);
    journal.begin(id).unwrap();
    let (copied, compared) = done();
    journal.record(id, &copied).unwrap();
    journal.record(Entries { job: id, compared: true }, &compared).unwrap();
    journal.begin_large(id, Path::new("large"), &identity(9), 77).unwrap();
    journal.seal(id, Path::new("large"), &[(1, Digest([6; 32]))]).unwrap();
    journal.keep_note(id, "a key", b"a value").unwrap();
    journal.own(Path::new("/fast"), OsStr::new(".step-4.part"), Purpose::Begun, None).unwrap();
    drop(journal);
    let connection = Connection::open(state.path().join("journal.db")).unwrap();
    // The mounts are those of the machine that made it.
    connection.execute_batch("UPDATE jobs SET source_mount = NULL, destination_mount = NULL").unwrap();
    dump::dump(&connection).into_bytes()
}

#[test]
fn a_journal_of_version_5_is_read_and_goes_on() {
    let sql = fixture("stage-journal-5.sql", journal);
    let state = tempfile::tempdir().unwrap();
    std::fs::set_permissions(state.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let path = state.path().join("journal.db");
    Connection::open(&path).unwrap().execute_batch(std::str::from_utf8(&sql).unwrap()).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let journal = Journal::open(state.path()).unwrap();
    let jobs = journal.jobs().unwrap();
    let found: Vec<_> = jobs.iter().map(|job| (job.spec.clone(), job.state, job.times.1)).collect();
    assert_eq!(
        found,
        [
            (spec("step-1"), State::Queued, None),
            (spec("step-2"), State::Committed, Some(1_750_000_002)),
            (spec("step-3"), State::Done, Some(1_750_000_002)),
            (spec("step-4"), State::Running, None),
        ]
    );
    assert_eq!((jobs[2].level, jobs[2].notes.as_slice()), (Level::Durable, &["a note".to_owned()][..]));
    assert_eq!(journal.directories_of(Purpose::Begun).unwrap(), [PathBuf::from("/fast")]);
    let id = jobs[3].id;
    let (copied, compared) = done();
    let of = Entries { job: id, compared: true };
    let path = |done: &Done| done.entry.path.0.clone();
    for done in &copied {
        assert_eq!(journal.entry(id, &path(done)).unwrap().as_ref(), Some(done));
    }
    assert_eq!(journal.entry(of, &path(&compared[0])).unwrap().as_ref(), compared.first());
    assert_eq!(journal.entry(Entries { job: id, compared: true }, &path(&copied[0])).unwrap(), None);
    let chunks = journal.chunks(id, Path::new("large"), &identity(9), 77).unwrap();
    assert_eq!(chunks, Some([(1, Digest([6; 32]))].into()));
    assert_eq!(journal.note(id, "a key").unwrap().as_deref(), Some(&b"a value"[..]));
    journal.begin(jobs[0].id).unwrap();
    assert_eq!(journal.job(jobs[0].id).unwrap().unwrap().state, State::Running);
}
