//! How a sweep goes, for somebody who watches: what runs, the last figure, the time left.
//!
//! Drawn on standard error, and only on a terminal. The bar is redrawn when a run begins and when it ends,
//! not by a timer: a thread that wakes up ten times a second would be seen by short runs on few CPUs.

use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sweep::model::RunRow;
use sweep::plan::StepKind;
use sweep::run::{Observer, RunFailed, RunFinished, RunStarted, SessionBegun};

use crate::{output, paint};

/// A bar of runs.
const OF_RUNS: &str = "{bar:20} {pos}/{len} runs  {wide_msg}";
/// A bar of time.
const OF_TIME: &str = "{bar:20} {prefix}  {wide_msg}";

/// The progress of a sweep.
#[derive(Debug)]
pub struct Watch {
    bar: ProgressBar,
    last: String,
    /// The bar is of the budget's time, and not of runs.
    counts_time: bool,
}

impl Watch {
    /// Watches silently unless standard error is a terminal.
    pub fn new() -> Self {
        Self { bar: bar(0, output::is_watched(), OF_RUNS), last: String::new(), counts_time: false }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// A voice for others.
    pub fn speaker(&self) -> Speaker {
        Speaker { bar: self.bar.clone() }
    }

    /// Draws how far it is: in runs, or where blocks run until a decision, which have no number of runs beforehand, in the
    /// time of the budget.
    fn count(&mut self, done: u32, planned: u32, spent: Option<(Duration, Duration)>) {
        let Some((used, budget)) = spent else {
            self.bar.set_length(planned.max(done + 1).into());
            self.bar.set_position(done.into());
            return;
        };
        if !self.counts_time {
            self.counts_time = true;
            self.bar.set_style(style(OF_TIME));
        }
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.bar.set_length(milliseconds(budget));
        self.bar.set_position(milliseconds(used));
        self.bar.set_prefix(format!("{} of {}, {done} runs", units::seconds(used), units::seconds(budget)));
    }

    fn above(&self, line: &str) {
        if !self.bar.is_hidden() {
            self.bar.suspend(|| output::tell(&format!("{line}\n")));
        }
    }

    fn show(&self, left: Option<Duration>, what: &str) {
        let left = left.map(|left| format!("{} left  ", units::seconds(left))).unwrap_or_default();
        let last = if self.last.is_empty() { String::new() } else { format!("last {}  ", self.last) };
        // What may be long comes last, for the line is cut where the terminal ends.
        self.bar.set_message(format!("{left}{last}{what}"));
    }
}

/// Says what others have to say above the bar, where somebody watches.
#[derive(Debug, Clone)]
pub struct Speaker {
    bar: ProgressBar,
}

impl Speaker {
    /// Says a line.
    pub fn say(&self, words: &str) {
        if !self.bar.is_hidden() {
            self.bar.suspend(|| output::tell(&format!("{}\n", paint::dim(words))));
        }
    }
}

impl Observer for Watch {
    fn session_begun(&mut self, session: &SessionBegun) {
        self.bar.set_length(session.planned.into());
        self.bar.set_position(session.done.into());
        self.show(session.time_left, "");
    }

    fn run_started(&mut self, run: &RunStarted<'_>) {
        self.count(run.done, run.planned, run.spent);
        let what = match run.kind {
            StepKind::Run => format!("{}, no. {}", run.point.label(), run.pass),
            StepKind::Control => format!("control: {}", run.point.label()),
        };
        self.show(run.time_left, &what);
    }

    fn run_finished(&mut self, run: &RunFinished<'_>) {
        self.last = figure(run.row);
        if !self.counts_time {
            self.bar.set_position(run.done.into());
        }
        if run.void {
            self.above(&format!(
                "{} {} is void; the report says why",
                paint::bad("void:"),
                run.point.label()
            ));
        }
    }

    fn run_failed(&mut self, run: &RunFailed<'_>) {
        self.above(&format!(
            "{} {}, pass {}: {}",
            paint::bad("failed:"),
            run.point.label(),
            run.pass,
            run.error
        ));
    }

    fn notice(&mut self, text: &str) {
        self.above(&format!("{} {text}", paint::warn("note:")));
    }
}

/// A run in a few words: bandwidth where requests are large, IOPS where they are small.
fn figure(row: &RunRow) -> String {
    if row.ios > 0 && row.bytes / row.ios >= 64 << 10 {
        units::bandwidth(row.bandwidth_bytes_per_s)
    } else {
        units::iops(row.iops)
    }
}

/// The progress of something that goes through `bytes`.
pub fn bytes(bytes: u64, watched: bool) -> ProgressBar {
    bar(bytes, watched, "{bar:20} {bytes}/{total_bytes}  {bytes_per_sec}, {eta} left  {wide_msg}")
}

/// The progress of writing a file of `bytes` that is going to be read.
pub fn laying(what: &Path, bytes: u64, watched: bool) -> ProgressBar {
    let bar = self::bytes(bytes, watched);
    bar.set_message(format!("laying data in {}", what.display()));
    bar
}

/// The progress of bringing a target into the state that a space asks for.
pub fn preparing(what: &Path, watched: bool) -> ProgressBar {
    let bar = self::bytes(0, watched);
    bar.set_message(format!("preparing {}", what.display()));
    bar
}

/// The progress of something that is expected to take a while, counted in milliseconds.
pub fn seconds(watched: bool) -> ProgressBar {
    bar(0, watched, "{bar:20} {eta} left  {wide_msg}")
}

fn bar(length: u64, watched: bool, template: &str) -> ProgressBar {
    let target = if watched { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    ProgressBar::with_draw_target(Some(length), target).with_style(style(template))
}

/// The templates are ours, and a test draws them; a bar in the library's own style does as well.
fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("━╸─")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_of_the_bars_are_understood() {
        for template in [
            OF_RUNS,
            OF_TIME,
            "{bar:20} {bytes}/{total_bytes}  {bytes_per_sec}, {eta} left  {wide_msg}",
            "{bar:20} {eta} left  {wide_msg}",
        ] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }

    #[test]
    fn a_sweep_with_a_budget_is_as_far_as_its_time_and_not_as_its_runs() {
        let mut watch = Watch::new();
        watch.count(3, 10, None);
        assert_eq!((watch.bar.position(), watch.bar.length()), (3, Some(10)));
        watch.count(4, 4, Some((Duration::from_secs(30), Duration::from_secs(120))));
        assert_eq!((watch.bar.position(), watch.bar.length()), (30_000, Some(120_000)));
        assert_eq!(watch.bar.prefix(), "30 s of 2 min 00 s, 4 runs");
    }

    #[test]
    fn nothing_is_drawn_where_nobody_watches() {
        assert!(bar(1, false, "{msg}").is_hidden());
    }
}
