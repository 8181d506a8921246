//! Reading back what a verifying job wrote, once it has written all of it.

use storage::clock::Clock;
use storage::engine::Engine;

use crate::run::BenchError;
use crate::run::control::{Control, Phase, Pulse};
use crate::run::requests::{ReadBack, Requests};

/// Reads everything back, unmeasured, until done or told to stop.
pub(super) fn read_back<E: Engine>(
    engine: &mut E,
    check: &mut ReadBack,
    control: &Control,
    pulse: &Pulse,
) -> Result<(), BenchError> {
    let clock = Clock::get();
    let mut idle: Vec<u32> = (0..engine.depth()).rev().collect();
    let mut reaped = Vec::new();
    let mut more = true;
    let mut newest = 0;
    while more || engine.in_flight() > 0 {
        pulse.beat(clock.now());
        more = more && control.phase() != Phase::Stop;
        while more && let Some(slot) = idle.pop() {
            if !check.issue(engine, slot) {
                idle.push(slot);
                more = false;
                break;
            }
            newest = slot;
        }
        pulse.waits_for(engine.request(newest));
        engine.submit(1, None)?;
        let mut failure = None;
        engine.reap(|slot, result| match result {
            Ok(()) => reaped.push(slot),
            Err(error) => failure = Some(error),
        });
        if let Some(error) = failure {
            return Err(error.into());
        }
        for slot in reaped.drain(..) {
            check.settle(engine, slot).map_err(|failure| verify_error(engine, failure))?;
            idle.push(slot);
        }
    }
    Ok(())
}

pub(super) fn verify_error<E: Engine>(engine: &E, source: crate::payload::VerifyFailure) -> BenchError {
    BenchError::Verify { device: engine.device().spec().to_owned(), source }
}
