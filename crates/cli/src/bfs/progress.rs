//! How far long work on a graph is, and Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use graph::{GraphError, Steps};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;
use crate::{output, signals};

/// Between two looks at the work.
const LOOK: Duration = Duration::from_millis(100);
/// Work that ends before needs no bar.
const PATIENCE: Duration = Duration::from_secs(2);

/// Does the work on a thread, shows its steps where standard error is a terminal, and passes Ctrl-C on. `phases` names the phases
/// by their numbers, from 1.
pub fn watch<T: Send>(
    phases: &[&'static str],
    work: impl FnOnce(&Steps) -> Result<T, GraphError> + Send,
) -> Result<T, Failure> {
    let stop = signals::stop_flag()?;
    let steps = Steps::default();
    let result = std::thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let (steps, stop) = (&steps, &*stop);
        scope.spawn(move || {
            let bar = bar();
            let begun = Instant::now();
            // The sender is dropped when the work has ended, also by a panic.
            while is_done.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                look(&bar, begun, phases, steps, stop);
            }
            bar.finish_and_clear();
        });
        let result = work(steps);
        drop(done);
        result
    });
    Ok(result?)
}

fn look(bar: &ProgressBar, begun: Instant, phases: &[&'static str], steps: &Steps, stop: &AtomicBool) {
    if stop.load(Ordering::Relaxed) {
        steps.stop();
    }
    let (phase, done, total) = steps.now();
    if phase == 0 || begun.elapsed() < PATIENCE {
        return;
    }
    let name = phases.get(phase as usize - 1).copied().unwrap_or_default();
    if bar.message() != name {
        bar.reset();
        bar.set_message(name);
    }
    bar.set_length(total);
    bar.set_position(done.min(total));
}

fn bar() -> ProgressBar {
    let target =
        if output::is_watched() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(0), target);
    match ProgressStyle::with_template("{msg} {wide_bar} {percent} %, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
