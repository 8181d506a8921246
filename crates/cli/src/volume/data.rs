//! `flashwright volume check --data`: all data of a volume, compared with their checksums.

use std::sync::atomic::Ordering;

use ::volume::{DataCheck, Progress, survey};
use storage::device::DeviceSpec;

use super::screen;
use crate::failure::Failure;
use crate::sweep::watch;
use crate::{output, signals};

/// Verifies the labels and then all data of the volume that `spec` names. Exit code 1 with findings or damaged labels,
/// 130 where a signal stopped it.
pub fn check(spec: &DeviceSpec, json: bool) -> Result<(), Failure> {
    let check = read_all(spec)?;
    if json {
        output::print_document(&check)?;
    } else {
        output::print(&screen::data(&check))?;
    }
    verdict(&check)
}

fn read_all(spec: &DeviceSpec) -> Result<DataCheck, Failure> {
    let stop = signals::stop_flag()?;
    let bar = watch::bytes(0, output::is_watched());
    let checked = survey::check_data(spec.members(), |progress: Progress| {
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.passed_bytes);
        if progress.findings > 0 {
            bar.set_message(findings(progress.findings));
        }
        !stop.load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    Ok(checked?)
}

fn findings(count: u64) -> String {
    if count == 1 { "one finding".to_owned() } else { format!("{count} findings") }
}

/// The error that the command ends with: all that is wrong, with the hint for the first of it.
fn verdict(check: &DataCheck) -> Result<(), Failure> {
    let volume = &check.volume.uuid;
    let mut wrong = Vec::new();
    if check.interrupted {
        wrong.push(format!("stopped before all data of {volume} were read"));
    }
    if check.finding_count > 0 {
        wrong.push(format!("{} in the data of {volume}", findings(check.finding_count)));
    }
    if !check.problems.is_empty() {
        wrong.push(format!("{} with the labels of {volume}", super::problems(check.problems.len())));
    }
    let message = wrong.join("; ");
    match () {
        () if check.interrupted => Err(Failure::interrupted(message)),
        () if check.finding_count > 0 => Err(Failure::failed(message)
            .hint("docs/verbs/volume.md has what each of them means, and what mends it")),
        () if !check.problems.is_empty() => Err(Failure::failed(message).hint(super::REPAIR_HINT)),
        () => Ok(()),
    }
}
