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

/// The progress of a sweep.
#[derive(Debug)]
pub struct Watch {
    bar: ProgressBar,
    last: String,
}

impl Watch {
    /// Watches silently unless standard error is a terminal.
    pub fn new() -> Self {
        Self {
            bar: bar(0, output::is_watched(), "{bar:20} {pos}/{len} runs  {wide_msg}"),
            last: String::new(),
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    /// A voice for others.
    pub fn speaker(&self) -> Speaker {
        Speaker { bar: self.bar.clone() }
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
        // Blocks until a decision have no number of runs beforehand.
        self.bar.set_length(run.planned.max(run.done + 1).into());
        self.bar.set_position(run.done.into());
        let what = match run.kind {
            StepKind::Run => format!("{}, no. {}", run.point.label(), run.pass),
            StepKind::Control => format!("control: {}", run.point.label()),
        };
        self.show(run.time_left, &what);
    }

    fn run_finished(&mut self, run: &RunFinished<'_>) {
        self.last = figure(run.row);
        self.bar.set_position(run.done.into());
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
    let bar = ProgressBar::with_draw_target(Some(length), target);
    // The templates are ours, and a test draws them; a bar in the library's own style does as well.
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("━╸─")),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_of_the_bars_are_understood() {
        for template in [
            "{bar:20} {pos}/{len} runs  {wide_msg}",
            "{bar:20} {bytes}/{total_bytes}  {bytes_per_sec}, {eta} left  {wide_msg}",
            "{bar:20} {eta} left  {wide_msg}",
        ] {
            assert!(ProgressStyle::with_template(template).is_ok());
        }
    }

    #[test]
    fn nothing_is_drawn_where_nobody_watches() {
        assert!(bar(1, false, "{msg}").is_hidden());
    }
}
