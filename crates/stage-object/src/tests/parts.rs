//! Sets of parts in a store: the record, with every request for it failing once, and how they go.

use super::*;
use crate::ObjectTier;
use stage::complete::{Completion, complete, record_of, survey};
use stage::manifest::Header;
use stage::parts::{PartRecord, SetId};

fn set() -> SetId {
    SetId { step: 1, run: "a".parse().unwrap() }
}

fn tier(store: impl Store) -> ObjectTier {
    ObjectTier::of(ObjectSet::with(Address::parse("s3://memory/run").unwrap(), Arc::new(store)).unwrap())
}

fn plain(memory: &Arc<InMemory>) -> ObjectTier {
    tier(Remote::new(Arc::clone(memory)))
}

fn put(memory: &Arc<InMemory>, key: &str, text: Vec<u8>) {
    let store = Remote::new(Arc::clone(memory));
    store.put(Key::from(key), PutPayload::from(text), false).now_or_never().unwrap().unwrap();
}

fn keys(memory: &Arc<InMemory>) -> Vec<String> {
    let all = Remote::new(Arc::clone(memory)).list(Key::ROOT).collect::<Vec<_>>().now_or_never().unwrap();
    all.into_iter().map(|object| object.unwrap().location.to_string()).collect()
}

fn entry(path: &str, kind: Kind, text: &[u8]) -> Entry {
    Entry {
        path: PathText(path.into()),
        kind,
        size: text.len() as u64,
        mode: 0o644,
        uid: 0,
        gid: 0,
        mtime_s: 5,
        mtime_ns: 0,
        digest: (kind == Kind::File).then(|| Algorithm::Xxh3.of(text)),
        chunks: Vec::new(),
        target: None,
        link_to: None,
    }
}

/// Stores a rank's part of a set of three, as a drain does.
fn store_part(memory: &Arc<InMemory>, rank: u32) {
    store_part_by(memory, rank, Algorithm::Xxh3);
}

fn store_part_by(memory: &Arc<InMemory>, rank: u32, algorithm: Algorithm) {
    let record = PartRecord { run: set().run, step: 1, rank, ranks: 3, node: "n".to_owned() };
    let place = format!("run/{}/{}", record.set(), record.part().unwrap());
    let text = format!("weights of rank {rank}").into_bytes();
    let mut header = Header::new(algorithm, Path::new("part"), u64::from(rank));
    header.part = Some(record);
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    writer.entry(&entry("", Kind::Directory, b"")).unwrap();
    writer.entry(&entry("weights", Kind::File, &text)).unwrap();
    put(memory, &format!("{place}/weights"), text);
    put(memory, &format!("{place}/.flashwright-manifest"), writer.finish().unwrap().0);
}

fn stored() -> Arc<InMemory> {
    let memory = Arc::default();
    (0..3).for_each(|rank| store_part(&memory, rank));
    memory
}

fn is_whole(memory: &Arc<InMemory>) {
    let found = plain(memory).set(&set().to_string()).unwrap();
    let verified = found.verify(&Unlimited, &Stop::new(), &Progress::default()).unwrap();
    assert_eq!((verified.files, verified.faults.len()), (6, 0), "{verified:?}");
}

#[test]
fn whatever_request_for_a_record_fails_the_next_that_completes_the_set_ends_as_without_faults() {
    let counting = Faulty::new(&stored(), vec![]);
    assert_eq!(complete(&tier(Arc::clone(&counting)), &set(), &()).unwrap(), Completion::Made);
    let mut failed = 0;
    for op in [Op::Put, Op::Get, Op::List] {
        let count = counting.count(op);
        assert!(count > 0, "{op:?} is never used");
        for nth in 0..count {
            for effect in [Effect::Fail, Effect::FailAfter] {
                let memory = stored();
                let faulty = Faulty::new(&memory, vec![(op, nth, effect)]);
                failed += u32::from(complete(&tier(faulty), &set(), &()).is_err());
                let done = complete(&plain(&memory), &set(), &()).unwrap();
                assert!(!matches!(done, Completion::Lacks(_)), "{op:?} {nth}: {done:?}");
                assert_eq!(record_of(&plain(&memory), &set()).unwrap().map(|record| record.ranks), Some(3));
                is_whole(&memory);
            }
        }
    }
    assert!(failed > 5, "only {failed} of the faults were noticed");
}

#[test]
fn of_two_that_complete_a_set_at_once_both_have_the_same_record() {
    let memory = stored();
    let other = Arc::clone(&memory);
    let hook = Effect::Hook(Arc::new(move || {
        let done = std::thread::scope(|scope| {
            scope.spawn(|| complete(&plain(&other), &set(), &()).unwrap()).join().unwrap()
        });
        assert_eq!(done, Completion::Made);
    }));
    let faulty = Faulty::new(&memory, vec![(Op::Put, 0, hook)]);
    assert_eq!(complete(&tier(faulty), &set(), &()).unwrap(), Completion::There);
    is_whole(&memory);
}

#[test]
fn a_set_that_lacks_an_object_of_a_part_has_no_record_and_says_which_rank() {
    let memory = stored();
    let store = Remote::new(Arc::clone(&memory));
    let gone = Key::from(format!("run/{}/rank-000001-of-000003/weights", set()));
    store.delete(vec![gone]).now_or_never().unwrap().unwrap();
    let Completion::Lacks(faults) = complete(&plain(&memory), &set(), &()).unwrap() else {
        panic!("it is not complete")
    };
    assert_eq!(faults.iter().map(|fault| fault.rank).collect::<Vec<_>>(), [1]);
    assert_eq!(survey(&plain(&memory), &set()).unwrap().faults, faults);
    assert!(!keys(&memory).contains(&format!("run/{}/.flashwright-manifest", set())));
}

#[test]
fn parts_of_two_algorithms_are_not_put_into_one_record() {
    let memory = stored();
    store_part_by(&memory, 2, Algorithm::Blake3);
    let Completion::Lacks(faults) = complete(&plain(&memory), &set(), &()).unwrap() else {
        panic!("its digests are of two kinds")
    };
    assert_eq!(faults[0].to_string(), "rank 2 (n): it is digested by another algorithm than the first part");
}

#[test]
fn a_set_goes_with_all_its_parts_also_if_its_deletion_was_cut_short() {
    for is_complete in [true, false] {
        for nth in 0..2 {
            let memory = stored();
            put(&memory, "run/another/x", b"stays".to_vec());
            if is_complete {
                complete(&plain(&memory), &set(), &()).unwrap();
            }
            let name = set().to_string();
            let faulty = Faulty::new(&memory, vec![(Op::Delete, nth, Effect::Fail)]);
            let cut = tier(faulty).remove(OsStr::new(&name), &());
            assert!(cut.is_err() || !is_complete, "{nth}");
            let next = plain(&memory);
            next.names(&|_| true).unwrap();
            next.sweep(&()).unwrap();
            if !is_complete || nth == 0 {
                next.remove(OsStr::new(&name), &()).unwrap();
            }
            assert_eq!(keys(&memory), ["run/another/x"], "complete {is_complete}, {nth}");
        }
    }
}
