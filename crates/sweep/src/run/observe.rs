//! What somebody who watches a sweep is told. The command line draws a progress bar from it.

use std::time::Duration;

use crate::model::{Point, RunRow};
use crate::plan::StepKind;

/// A session begins.
#[derive(Debug, Clone, Copy)]
pub struct SessionBegun {
    /// Runs in the plan.
    pub planned: u32,
    /// Runs stored by earlier sessions.
    pub done: u32,
    /// Controls still to be made.
    pub controls_left: u32,
    /// Estimate for all that is missing; none where runs end by size and none has been measured.
    pub time_left: Option<Duration>,
}

/// A step begins.
#[derive(Debug, Clone, Copy)]
pub struct RunStarted<'a> {
    /// What runs.
    pub point: &'a Point,
    /// Run or control.
    pub kind: StepKind,
    /// Repetition, from 1.
    pub pass: u32,
    /// Runs stored so far, of all sessions.
    pub done: u32,
    /// Runs in the plan.
    pub planned: u32,
    /// Estimate for this step and all after it.
    pub time_left: Option<Duration>,
    /// The time that is used of the budget, and the budget, where blocks run until a decision.
    pub spent: Option<(Duration, Duration)>,
}

/// A step is stored.
#[derive(Debug, Clone, Copy)]
pub struct RunFinished<'a> {
    /// What ran.
    pub point: &'a Point,
    /// Run or control.
    pub kind: StepKind,
    /// Its figures.
    pub row: &'a RunRow,
    /// Whether no conclusion may be drawn from them.
    pub void: bool,
    /// Runs stored so far, of all sessions.
    pub done: u32,
    /// Runs in the plan.
    pub planned: u32,
    /// Estimate for all that is left.
    pub time_left: Option<Duration>,
}

/// A step gave no record.
#[derive(Debug, Clone, Copy)]
pub struct RunFailed<'a> {
    /// What was attempted.
    pub point: &'a Point,
    /// Run or control.
    pub kind: StepKind,
    /// Repetition, from 1.
    pub pass: u32,
    /// The error with its causes, one line.
    pub error: &'a str,
}

/// Watches a sweep. Each method does nothing where it is not written.
pub trait Observer {
    /// A session begins.
    fn session_begun(&mut self, _: &SessionBegun) {}
    /// A step begins.
    fn run_started(&mut self, _: &RunStarted<'_>) {}
    /// A step is stored.
    fn run_finished(&mut self, _: &RunFinished<'_>) {}
    /// A step gave no record.
    fn run_failed(&mut self, _: &RunFailed<'_>) {}
    /// Something worth a line.
    fn notice(&mut self, _: &str) {}
}

/// Watches without a word.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Observer for Quiet {}
