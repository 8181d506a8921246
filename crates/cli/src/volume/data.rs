//! `flashwright volume check --data`: all data of a volume, compared with their checksums.

use std::sync::atomic::Ordering;

use ::volume::survey::{self, Check};
use ::volume::{DataCheck, Progress};
use storage::device::DeviceSpec;

use super::{print_json, screen};
use crate::failure::Failure;
use crate::sweep::watch;
use crate::{output, signals};

/// Verifies the labels and then all data of the volume that `spec` names. Exit code 1 with findings.
pub fn check(spec: &DeviceSpec, json: bool) -> Result<(), Failure> {
    let labels = survey::check(spec.members(), &[])?;
    let data = read_all(spec)?;
    if json {
        print_json(&data)?;
    } else {
        output::print(&(screen::check(&labels) + &screen::data(&data)))?;
    }
    verdict(&labels, &data)
}

fn read_all(spec: &DeviceSpec) -> Result<DataCheck, Failure> {
    let stop = signals::stop_flag()?;
    let bar = watch::bytes(0, output::is_watched());
    let checked = survey::check_data(spec, |progress: Progress| {
        bar.set_length(progress.total_bytes);
        bar.set_position(progress.read_bytes);
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

fn verdict(labels: &Check, data: &DataCheck) -> Result<(), Failure> {
    let volume = &labels.volume.uuid;
    match () {
        () if data.finding_count > 0 => {
            Err(Failure::failed(format!("{} in the data of {volume}", findings(data.finding_count)))
                .hint("docs/verbs/volume.md has what each of them means, and what mends it"))
        }
        () if data.interrupted => {
            Err(Failure::failed(format!("stopped before all data of {volume} were read")))
        }
        () if !labels.sound => Err(Failure::failed(format!("the labels of {volume} are not sound"))
            .hint("flashwright volume check --repair writes a lost copy again from the other one")),
        () => Ok(()),
    }
}
