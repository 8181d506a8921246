//! `flashwright sim`: a workload on a described machine, in virtual time.
//!
//! [`papers`] prints the papers' figures, [`fit`] a drive fitted to a sweep. The result of a workload
//! is that of `bench`, in the same words and the same document.

pub mod args;
pub mod fit;
pub mod papers;

use std::sync::Arc;

use ::sim::{Layout, SimRun, SimTarget, Stop};

use crate::failure::Failure;
use crate::{bench, evidence, machine, output, signals};
use args::{SimArgs, SimCommand};

/// Does what the flags say.
pub fn sim(args: &SimArgs) -> Result<(), Failure> {
    match &args.command {
        Some(SimCommand::Papers(args)) => papers::papers(args),
        Some(SimCommand::Fit(args)) => fit::fit(args),
        None => run(args),
    }
}

fn run(args: &SimArgs) -> Result<(), Failure> {
    let path =
        args.machine.as_deref().ok_or_else(|| Failure::invalid("flashwright sim needs a MACHINE.toml"))?;
    let machine = Arc::new(machine::load(path)?);
    let workload = bench::workload(&args.workload, args.file.as_deref())?;
    let layout = match &args.layout {
        Some(text) => machine::layout(&machine, text)?,
        None => Layout::all(&machine),
    };
    let precision = if args.whole { 0.0 } else { Stop::default().precision };
    let target = SimTarget::new(Arc::clone(&machine), layout.clone(), Stop { precision, ..Stop::default() });
    let target = target.map_err(|error| machine::invalid(&error, "layout"))?;
    let run = target.interrupted_by(signals::stop_flag()?).run_once(&workload);
    let SimRun { record, interrupted } = run.map_err(machine::run_failed)?;
    let record = evidence::judged(&machine, &layout, record);
    output::print(&bench::presented(SimRun { record, interrupted }, args.json)?)?;
    if interrupted { Err(Failure::interrupted(bench::INTERRUPTED)) } else { Ok(()) }
}
