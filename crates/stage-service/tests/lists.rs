//! What a semaphore's list says must be at a source, from the request to the journal and back.

use std::path::Path;

use stage::spec::Expected;
use stage::{JobSpec, Level, Options, Place, State, Verb};
use stage_service::{Mover, MoverConfig};

fn file(path: &str, size: u64) -> Expected {
    Expected { path: Path::new(path).into(), size: Some(size), digest: None }
}

#[test]
fn a_list_is_in_rows_of_the_journal_and_holds_after_a_restart() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["fast/set", "slow"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    std::fs::write(at("fast/set/a"), "a").unwrap();
    let config = MoverConfig::new(at("state"));
    let spec = |expected: Vec<Expected>| JobSpec {
        verb: Verb::Copy,
        source: Place::of_path(&at("fast/set")).unwrap(),
        destination: Place::of_path(&at("slow/set")).unwrap(),
        options: Options { expected, ..Options::default() },
    };
    let mover = Mover::open(&config).unwrap();
    let id = mover.submit(spec(vec![file("a", 1), file("a-name-of-the-list", 2)])).unwrap();
    let failed = mover.wait(id, Level::Durable, None).unwrap();
    assert_eq!(failed.state, State::Failed, "{failed:?}");
    assert!(failed.spec.options.expected.is_empty() && failed.spec.options.expected_digest.is_some());
    drop(mover);
    let mover = Mover::open(&config).unwrap();
    mover.retry(id).unwrap();
    let again = mover.wait(id, Level::Durable, None).unwrap();
    assert_eq!((again.state, again.attempts > failed.attempts), (State::Failed, true), "{again:?}");
    let why = again.error.unwrap().message;
    assert!(why.contains("a-name-of-the-list"), "{why}");
    // Once it is there, the same list lets the set through; and a list that was lost lets through nothing.
    std::fs::write(at("fast/set/a-name-of-the-list"), "ab").unwrap();
    mover.retry(id).unwrap();
    assert_eq!(mover.wait(id, Level::Durable, None).unwrap().state, State::Done);
    let mut lost = spec(vec![file("a", 1)]).sealed();
    lost.options.expected.clear();
    lost.destination = Place::of_path(&at("slow/other")).unwrap();
    assert!(mover.submit(lost).unwrap_err().to_string().contains("is not the one"));
    drop(mover);
    let journal = std::fs::read(at("state/journal.db")).unwrap();
    let text = String::from_utf8_lossy(&journal);
    assert!(text.contains("expected_digest") && !text.contains("\"expected\":"));
}
