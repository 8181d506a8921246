//! `fill_device`: a job that writes as far as there is room.
//!
//! fio writes until the file system says that it is full. Here the end is known beforehand: that of the device, or of a file
//! that takes [`SHARE`] of what is free where it lies. The rest is left to the file system's own blocks, so that no request
//! fails.

use std::path::{Path, PathBuf};

use measure::Workload;
use measure::workload::Rw;
use storage::device::space;

use super::error::{Fault, Problem};
use super::paths::is_device;

/// The part of the free bytes that a file takes: numerator and denominator.
const SHARE: (u64, u64) = (63, 64);

/// The workload of a job that fills the device or file of these paths, or an export.
pub(super) fn filling(
    workload: Workload,
    paths: &[PathBuf],
    is_export: bool,
    notes: &mut Vec<String>,
) -> Result<Workload, Fault> {
    if !workload.rw.modifies() {
        notes.push("fill_device has no effect in a job that reads".to_owned());
        return Ok(workload);
    }
    let refuse = |reason: &str, hint: &str| Err(("fill_device", Problem::new(reason, hint)));
    let ([path], Rw::Write, 0, 1) = (paths, workload.rw, workload.rw_step, workload.numjobs) else {
        let reason = "one copy that writes one file or device block after block fills it";
        return refuse(reason, "write rw=write, and one filename");
    };
    if workload.size.is_some() {
        return refuse("size says where the job ends, and so does fill_device", "leave out one of the two");
    }
    if is_export || is_device(path) {
        return Ok(workload);
    }
    if path.exists() {
        return refuse("a file that is there does not grow", "remove it first, or name another");
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok((free, _)) = space(directory) else {
        // There is no such directory, which is told when the file is to be made.
        return Ok(workload);
    };
    let end = (u128::from(free) * u128::from(SHARE.0) / u128::from(SHARE.1)) as u64;
    let size = end.saturating_sub(workload.offset) / workload.bs * workload.bs;
    if size == 0 {
        return refuse("there is no room for a block", "free some space");
    }
    notes.push(format!(
        "fill_device ends at {} of the {} that are free; fio goes on until a write fails",
        units::bytes(end),
        units::bytes(free)
    ));
    Ok(Workload { size: Some(size), ..workload })
}
