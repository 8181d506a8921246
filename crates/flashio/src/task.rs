//! A task: does what the coordinator tells, until it is told to end.

use std::path::Path;
use std::time::{Duration, Instant};

use ranks::{Ranks, now_ns};
use stage::names::PathText;

use crate::checkpoint::{Files, path};
use crate::error::FlashioError;
use crate::matrices::Matrices;
use crate::orders::{Calibrated, Order, Restored, Written, answer, far, hear};
use crate::pattern::Stamp;
use crate::record::Work;

/// Exchanges by which clocks are compared.
pub(crate) const CLOCK_ROUNDS: u32 = 16;

/// Serves as a task of the group until the coordinator ends it.
///
/// # Errors
/// What ended the work. The coordinator names it; a task's process need not print it.
pub fn serve(mut ranks: Ranks) -> Result<(), FlashioError> {
    ranks.clock_offsets(CLOCK_ROUNDS, far())?;
    loop {
        let done = match hear(&mut ranks)? {
            Order::End => return Ok(ranks.finish(far())?),
            Order::Calibrate { matrix, for_ms } => {
                calibrate(&mut ranks, matrix, Duration::from_millis(for_ms))
            }
            Order::Run { work, leg, checkpoints } => run(&mut ranks, &work, leg, checkpoints),
            Order::Compute { work } => loop {
                Matrices::new(work.matrix as usize).multiply(work.multiplications);
            },
            Order::Restore { work, leg, step, directory, compute } => {
                let stamp = Stamp { leg, task: ranks.rank(), step };
                restore(&mut ranks, &work, &directory.0, Some(stamp), compute)
            }
            Order::Read { work, directory } => restore(&mut ranks, &work, &directory.0, None, false),
        };
        // What went wrong here is told to the others; what they said is known to all.
        done.map_err(|error| match error {
            FlashioError::Task(_) | FlashioError::Interrupted | FlashioError::Ranks(_) => error,
            own => ranks.fail(&base::with_causes(&own)).into(),
        })?;
    }
}

fn calibrate(ranks: &mut Ranks, matrix: u32, for_: Duration) -> Result<(), FlashioError> {
    let mut matrices = Matrices::new(matrix as usize);
    matrices.multiply(1);
    ranks.barrier(far())?;
    let one = matrices.time_one(for_);
    Ok(answer(ranks, &Calibrated { one_ns: one.as_nanos() as u64 })?)
}

fn run(ranks: &mut Ranks, work: &Work, leg: u16, checkpoints: u32) -> Result<(), FlashioError> {
    let task = ranks.rank();
    let mut matrices = Matrices::new(work.matrix as usize);
    let mut files = files(work, task)?;
    ranks.barrier(far())?;
    for step in 1..=checkpoints {
        let directory: PathText = hear(ranks)?;
        let begun = Instant::now();
        (0..work.every).for_each(|_| matrices.multiply(work.multiplications));
        let compute_s = begun.elapsed().as_secs_f64();
        let stamp = Stamp { leg, task, step };
        let begun_ns = now_ns();
        files.write(&path(&directory.0, task), work.checkpoint_bytes, stamp)?;
        answer(ranks, &Written { compute_s, begun_ns, ended_ns: now_ns() })?;
    }
    Ok(())
}

fn restore(
    ranks: &mut Ranks,
    work: &Work,
    directory: &Path,
    stamp: Option<Stamp>,
    compute: bool,
) -> Result<(), FlashioError> {
    let task = ranks.rank();
    let begun_ns = now_ns();
    let blocks = files(work, task)?.read(&path(directory, task), work.checkpoint_bytes, stamp)?;
    let restored_ns = now_ns();
    if compute {
        Matrices::new(work.matrix as usize).multiply(work.multiplications);
    }
    Ok(answer(ranks, &Restored { begun_ns, restored_ns, done_ns: now_ns(), blocks })?)
}

fn files(work: &Work, task: u32) -> Result<Files, FlashioError> {
    Files::new(work.checkpoint_bytes, u64::from(task))
        .map_err(FlashioError::io("set up requests for files in", Path::new(".")))
}
