//! Retention and `latest` in a store, with every request of it failing once.

use super::fixture::fixture;
use super::*;
use crate::ObjectTier;
use stage::retention::{Keep, Outcome, Witness, evict, tidy};
use stage::spec;

/// A witness that vouches for all copies, or for none.
struct Vouching(bool);

impl Witness for Vouching {
    fn vouches(&self, _: &Path, _: &spec::Place) -> std::result::Result<bool, StageError> {
        Ok(self.0)
    }
}

/// A fast tier and a store with sets of one series, drained from there.
struct Series {
    directory: tempfile::TempDir,
    memory: Arc<InMemory>,
}

impl Series {
    fn new() -> Self {
        Self { directory: folder(), memory: Arc::default() }
    }

    fn of(steps: &[u32]) -> Self {
        let series = Self::new();
        for step in steps {
            series.drain(*step);
        }
        series
    }

    fn fast(&self, step: u32) -> PathBuf {
        self.directory.path().join(format!("step-{step}"))
    }

    fn drain(&self, step: u32) {
        let path = self.fast(step);
        fs::create_dir_all(path.join("below")).unwrap();
        fs::write(path.join("model"), format!("model {step}")).unwrap();
        fs::write(path.join("below/part"), format!("part {step}")).unwrap();
        let set = self.tier(Arc::new(self.store())).set(&format!("step-{step}")).unwrap();
        self.copy(step, &set).unwrap();
    }

    fn copy(&self, step: u32, set: &ObjectSet) -> std::result::Result<Notes, StageError> {
        let places = [place_of(&self.fast(step)), url()];
        Scratch::new().copy(places, set, &Unlimited, &Stop::new(), &Progress::default())
    }

    fn store(&self) -> Remote<InMemory> {
        Remote::new(Arc::clone(&self.memory))
    }

    fn tier(&self, store: Arc<dyn Store>) -> ObjectTier {
        ObjectTier::of(ObjectSet::with(Address::parse("s3://memory/run").unwrap(), store).unwrap())
    }

    fn tidy(
        &self,
        faulty: &Arc<Faulty>,
        step: u32,
        keep: Keep,
        witness: &dyn Witness,
    ) -> std::result::Result<Outcome, StageError> {
        let tier = self.tier(Arc::new(Arc::clone(faulty)));
        tidy(self.directory.path(), &tier, OsStr::new(&format!("step-{step}")), keep, witness, &Stop::new())
    }

    fn plainly(&self, step: u32, keep: Keep) -> Outcome {
        self.tidy(&Faulty::new(&self.memory, vec![]), step, keep, &Vouching(true)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        self.tier(Arc::new(self.store())).names(&|_| true).unwrap()
    }

    fn keys(&self) -> Vec<String> {
        let all = self.store().list(Key::ROOT).collect::<Vec<_>>().now_or_never().unwrap();
        all.into_iter().map(|object| object.unwrap().location.to_string()).collect()
    }

    fn latest(&self) -> Option<String> {
        let read = self.store().get(Key::from("run/latest"), None).now_or_never().unwrap().ok()?;
        let text = read.bytes().now_or_never().unwrap().unwrap();
        let latest: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(latest["format"], "flashwright.latest/1");
        Some(latest["name"].as_str().unwrap().to_owned())
    }

    fn put(&self, key: &str, text: impl Into<Bytes>) {
        self.store()
            .put(Key::from(key), PutPayload::from(text.into()), false)
            .now_or_never()
            .unwrap()
            .unwrap();
    }

    /// Every set that is there is whole.
    fn check(&self) {
        for name in self.names() {
            let set = self.tier(Arc::new(self.store())).set(&name).unwrap();
            let verified = set.verify(&Unlimited, &Stop::new(), &Progress::default()).unwrap();
            assert!(verified.faults.is_empty(), "{name}: {verified:?}");
        }
    }
}

const KEEP: Keep = Keep { fast: Some(1), slow: Some(2), latest: true };

#[test]
fn as_many_sets_are_kept_on_each_tier_as_were_asked_for() {
    let series = Series::of(&[9, 10, 11, 100]);
    let outcome = series.plainly(100, KEEP);
    assert_eq!(series.names(), ["step-100", "step-11"]);
    assert_eq!(outcome.removed, [PathBuf::from("s3://memory/run/step-10"), "s3://memory/run/step-9".into()]);
    assert_eq!(outcome.evicted, [series.fast(9), series.fast(10), series.fast(11)]);
    assert!(series.fast(100).exists());
    assert_eq!(series.latest().as_deref(), Some("step-100"));
    assert!(!series.keys().iter().any(|key| key.contains("step-9/") || key.contains("claim")));
    series.check();
}

#[test]
fn latest_never_goes_back_and_what_it_names_stays() {
    let series = Series::of(&[1, 2, 3]);
    let latest = Keep { latest: true, ..Keep::default() };
    assert_eq!(series.plainly(2, latest).latest, Some("step-2".into()));
    assert_eq!(series.plainly(1, latest).latest, None);
    assert_eq!(series.latest().as_deref(), Some("step-2"));
    fs::remove_dir_all(series.fast(2)).unwrap();
    let kept = series.plainly(3, Keep { slow: Some(1), ..Keep::default() }).kept;
    assert!(kept.iter().any(|(path, why)| path.ends_with("step-2") && why.contains("latest")), "{kept:?}");
    // What it names is gone: it goes to what is there.
    series.tier(Arc::new(series.store())).set("step-2").unwrap().delete(&Stop::new()).unwrap();
    assert_eq!(series.plainly(1, latest).latest, Some("step-1".into()));
}

#[test]
fn the_object_latest_is_read_for_ever() {
    let series = Series::of(&[1, 2]);
    series.plainly(1, Keep { latest: true, ..Keep::default() });
    let read = series.store().get(Key::from("run/latest"), None).now_or_never().unwrap().unwrap();
    let written = read.bytes().now_or_never().unwrap().unwrap();
    let kept = fixture("latest-1.json", || written.to_vec());
    assert!(written == kept, "what is written today is the same, byte for byte");
    let series = Series::of(&[1, 2]);
    series.put("run/latest", kept);
    let tier = series.tier(Arc::new(series.store()));
    assert_eq!(tier.latest().unwrap(), Some("step-1".into()));
}

#[test]
fn an_object_named_latest_that_names_no_set_is_left_alone() {
    let series = Series::of(&[1]);
    series.put("run/latest", "mine");
    let error = series
        .tidy(
            &Faulty::new(&series.memory, vec![]),
            1,
            Keep { latest: true, ..Keep::default() },
            &Vouching(true),
        )
        .unwrap_err();
    assert_eq!(error.class(), stage::ErrorClass::Refused, "{error}");
}

#[test]
fn of_two_who_move_latest_at_once_the_newer_wins() {
    let series = Arc::new(Series::of(&[1, 2, 3]));
    let latest = Keep { latest: true, ..Keep::default() };
    series.plainly(1, latest);
    // Between the reading and the put of whoever moves it to 2, somebody else moves it to 3.
    let other = Arc::clone(&series);
    let hook = Effect::Hook(Arc::new(move || {
        other.plainly_elsewhere(3);
    }));
    let faulty = Faulty::new(&series.memory, vec![(Op::Put, 0, hook)]);
    let outcome = series.tidy(&faulty, 2, latest, &Vouching(true)).unwrap();
    assert_eq!((outcome.latest, series.latest().as_deref()), (None, Some("step-3")));
}

impl Series {
    /// As another host does it, without this process's turn-taking.
    fn plainly_elsewhere(&self, step: u32) {
        use stage::series::place;
        use stage::tier::Tier;
        let (name, store) = (format!("step-{step}"), self.store());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let tier = self.tier(Arc::new(store));
                tier.move_latest(OsStr::new(&name), &place(OsStr::new(&name)).unwrap(), &()).unwrap();
            });
        });
    }
}

#[test]
fn nothing_goes_where_nobody_vouches_or_the_newer_ones_are_not_whole() {
    let series = Series::of(&[1, 2]);
    let keep = Keep { slow: Some(1), fast: Some(0), latest: false };
    let faulty = Faulty::new(&series.memory, vec![]);
    let outcome = series.tidy(&faulty, 2, keep, &Vouching(false)).unwrap();
    assert_eq!((outcome.removed.len(), outcome.evicted.len(), outcome.kept.len()), (0, 0, 3));
    fs::remove_dir_all(series.fast(1)).unwrap();
    series.store().delete(vec![Key::from("run/step-2/model")]).now_or_never().unwrap().unwrap();
    let outcome = series.plainly(2, keep);
    assert_eq!((outcome.removed.len(), outcome.evicted.len()), (0, 0), "{outcome:?}");
    assert_eq!(series.names(), ["step-1", "step-2"]);
    assert!(series.fast(2).exists());
    // A manifest that cannot be read is no set, and not somebody's to remove.
    series.drain(3);
    series.put("run/step-1/.flashwright-manifest", "torn");
    series.plainly(3, keep);
    assert!(series.keys().contains(&"run/step-1/model".to_owned()));
}

#[test]
fn a_fast_copy_that_was_written_to_or_of_which_there_is_no_slow_one_stays() {
    let series = Series::of(&[1, 2]);
    fs::write(series.fast(1).join("model"), "another").unwrap();
    let nowhere = ObjectTier::of(
        ObjectSet::with(Address::parse("s3://memory/nowhere").unwrap(), Arc::new(series.store())).unwrap(),
    );
    let there = |name: &str| {
        evict(series.directory.path(), &nowhere, OsStr::new(name), &Vouching(true), &Stop::new())
    };
    assert_eq!(there("step-2").unwrap_err().class(), stage::ErrorClass::Refused);
    let keep = Keep { fast: Some(0), ..Keep::default() };
    let outcome = series.plainly(2, keep);
    assert_eq!(outcome.evicted, [series.fast(2)]);
    assert!(outcome.kept[0].1.contains("model"), "{outcome:?}");
}

#[test]
fn whatever_request_of_retention_fails_the_next_time_ends_as_without_faults() {
    let counting = {
        let series = Series::of(&[1, 2, 3]);
        let faulty = Faulty::new(&series.memory, vec![]);
        series.tidy(&faulty, 3, KEEP, &Vouching(true)).unwrap();
        faulty
    };
    let mut failed = 0;
    for op in [Op::Put, Op::Get, Op::List, Op::Delete] {
        let count = counting.count(op);
        assert!(count > 0, "{op:?} is never used");
        for nth in 0..count {
            for effect in [Effect::Fail, Effect::FailAfter] {
                let series = Series::of(&[1, 2, 3]);
                let faulty = Faulty::new(&series.memory, vec![(op, nth, effect)]);
                failed += u32::from(series.tidy(&faulty, 3, KEEP, &Vouching(true)).is_err());
                assert!(
                    series.names().ends_with(&["step-2".to_owned(), "step-3".to_owned()]),
                    "{op:?} {nth}"
                );
                series.check();
                series.plainly(3, KEEP);
                assert_eq!(series.names(), ["step-2", "step-3"], "{op:?} {nth}");
                assert_eq!(series.latest().as_deref(), Some("step-3"));
                let left = series.keys();
                assert!(
                    !left.iter().any(|key| key.starts_with("run/step-1/")),
                    "{op:?} {nth}: half a deletion stays: {left:?}"
                );
                series.check();
            }
        }
    }
    assert!(failed > 10, "only {failed} of the faults were noticed");
}

#[test]
fn no_drain_begins_where_a_deletion_was_cut_short() {
    let series = Series::of(&[1]);
    let set = |store: Arc<dyn Store>| series.tier(store).set("step-1").unwrap();
    let faulty = Faulty::new(&series.memory, vec![(Op::Delete, 1, Effect::Fail)]);
    set(Arc::new(faulty)).delete(&Stop::new()).unwrap_err();
    let drain = || series.copy(1, &set(Arc::new(series.store())));
    let error = drain().unwrap_err();
    assert!(error.to_string().contains("is being deleted"), "{error}");
    set(Arc::new(series.store())).delete(&Stop::new()).unwrap();
    assert_eq!(series.keys(), Vec::<String>::new());
    drain().unwrap();
    series.check();
}
