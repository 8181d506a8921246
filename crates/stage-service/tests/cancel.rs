//! Jobs that are cancelled while the store that they were to reach does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use stage::digest::Digest;
use stage::error::StageError;
use stage::fingerprint::Fingerprint;
use stage::journal::{JobRow, Journal};
use stage::pace::Stop;
use stage::tier::{Destination, Notes, Objects, Run, Source, There, Tier, Tiers};
use stage::{JobSpec, Level, Options, Place, State, Verb};
use stage_service::{Mover, MoverConfig};

/// A store that takes nothing, and then does not answer.
#[derive(Clone, Default)]
struct Silent {
    asked: Arc<AtomicBool>,
}

fn nothing<T>() -> Result<T, StageError> {
    Err(StageError::refused("the store has nothing of this", "none"))
}

impl Objects for Silent {
    fn tier(&self, _: &str, _: &Stop) -> Result<Box<dyn Tier>, StageError> {
        nothing()
    }

    fn destination(&self, _: &str) -> Result<Box<dyn Destination>, StageError> {
        Ok(Box::new(self.clone()))
    }

    fn source(&self, _: &str) -> Result<Box<dyn Source>, StageError> {
        nothing()
    }

    fn digest(&self, _: &str) -> Result<Option<Digest>, StageError> {
        nothing()
    }
}

impl Destination for Silent {
    fn there(&mut self, _: &Run<'_>, _: &JobRow) -> Result<There, StageError> {
        nothing()
    }

    fn read_back(&mut self, _: &Run<'_>, _: &JobRow) -> Result<(), StageError> {
        nothing()
    }

    fn check(&self, _: &Run<'_>, _: &dyn Source) -> Result<(), StageError> {
        nothing()
    }

    fn adopt(
        &mut self,
        _: &Run<'_>,
        _: &JobRow,
        _: &mut dyn Source,
        _: &mut Notes,
    ) -> Result<(), StageError> {
        nothing()
    }

    fn put(
        &mut self,
        _: &Run<'_>,
        _: &JobRow,
        _: &mut dyn Source,
        _: &mut Notes,
    ) -> Result<Fingerprint, StageError> {
        nothing()
    }

    fn publish(&mut self, _: &Run<'_>, _: &mut Notes) -> Result<(), StageError> {
        nothing()
    }

    fn settle(&mut self, _: &Run<'_>) -> Result<(), StageError> {
        nothing()
    }

    fn is_as_committed(&mut self, _: &Run<'_>, _: &JobRow) -> Result<bool, StageError> {
        nothing()
    }

    fn has_manifest(&self, _: &Run<'_>) -> Result<bool, StageError> {
        nothing()
    }

    fn give_up(&mut self, _: &Journal, _: &JobRow, stop: &Stop, _: &mut Notes) -> Result<(), StageError> {
        self.asked.store(true, SeqCst);
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            stop.check()?;
            std::thread::sleep(Duration::from_millis(5));
        }
        nothing()
    }
}

#[test]
fn a_store_that_does_not_answer_holds_up_no_other_request_and_ends_with_the_mover() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["fast/set", "slow"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    let silent = Silent::default();
    let config =
        MoverConfig { tiers: Tiers::with(Arc::new(silent.clone())), ..MoverConfig::new(at("state")) };
    let spec = |destination: Place| JobSpec {
        verb: Verb::Copy,
        source: Place::of_path(&at("fast/set")).unwrap(),
        destination,
        options: Options::default(),
    };
    let mover = Mover::open(&config).unwrap();
    let id = mover.submit(spec(Place::of_name("s3://bucket/set").unwrap())).unwrap();
    assert_eq!(mover.wait(id, Level::Durable, None).unwrap().state, State::Failed);
    let cancelling = std::thread::spawn({
        let mover = mover.clone();
        move || mover.cancel(id)
    });
    while !silent.asked.load(SeqCst) {
        std::thread::yield_now();
    }
    let began = Instant::now();
    assert_eq!(mover.status(Some(id)).unwrap()[0].state, State::Failed);
    assert!(mover.retry(id).unwrap_err().to_string().contains("is being cancelled"));
    let other = mover.submit(spec(Place::of_path(&at("slow/set")).unwrap())).unwrap();
    assert_eq!(mover.wait(other, Level::Durable, None).unwrap().state, State::Done);
    mover.stop();
    assert!(matches!(cancelling.join().unwrap(), Err(StageError::Stopped { .. })));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}
