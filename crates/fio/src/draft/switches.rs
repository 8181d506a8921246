//! Options that are on or off.

use measure::workload::RandomDistribution;

use super::Draft;
use crate::error::Problem;
use crate::values;

pub fn direct(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.direct = values::boolean(value)?;
    Ok(())
}

pub fn buffered(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.direct = !values::boolean(value)?;
    Ok(())
}

pub fn read_beyond_wp(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.read_beyond_wp = values::boolean(value)?;
    Ok(())
}

pub fn ignore_zone_limits(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.ignore_zone_limits = values::switch(value)?;
    Ok(())
}

pub fn time_based(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.time_based = values::switch(value)?;
    Ok(())
}

pub fn norandommap(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.norandommap = values::switch(value)?;
    Ok(())
}

pub fn randrepeat(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.randrepeat = values::boolean(value)?;
    Ok(())
}

pub fn fill_device(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.fill_device = values::boolean(value)?;
    Ok(())
}

pub fn end_fsync(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.end_fsync = values::boolean(value)?;
    Ok(())
}

pub fn atomic(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.atomic = values::switch(value)?;
    Ok(())
}

pub fn verify_write_sequence(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.checks_sequence = values::boolean(value)?;
    Ok(())
}

pub fn stonewall(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.stonewall = values::switch(value)?;
    Ok(())
}

pub fn exitall(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.exitall = values::switch(value)?;
    Ok(())
}

pub fn group_reporting(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.group_reporting = values::switch(value)?;
    Ok(())
}

pub fn overwrite(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.overwrite = values::boolean(value)?;
    Ok(())
}

pub fn allow_file_create(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.allow_file_create = values::boolean(value)?;
    Ok(())
}

pub fn random_sequence_stride(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.sequence_stride = values::boolean(value)?;
    if let RandomDistribution::Sequence(sequence) = &mut draft.workload.random_distribution {
        sequence.strided = draft.sequence_stride;
    }
    Ok(())
}

pub fn dedupe_global(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.dedupe_global = values::boolean(value)?;
    Ok(())
}

pub fn create_on_open(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.create_on_open = values::boolean(value)?;
    Ok(())
}

pub fn new_group(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.new_group = values::switch(value)?;
    Ok(())
}

pub fn invalidate(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.invalidate = values::boolean(value)?;
    Ok(())
}

pub fn unlink(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.unlink = values::boolean(value)?;
    Ok(())
}

pub fn hipri(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.hipri = values::switch(value)?;
    Ok(())
}

pub fn sqthread_poll(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.sqthread_poll = values::switch(value)?;
    Ok(())
}

/// `fixedbufs` and `registerfiles`: flashwright's io_uring engine always has both.
pub fn always_on(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.fixed = true;
    if values::switch(value)? {
        return Ok(());
    }
    Err(Problem::new("flashwright always registers buffers and files", "leave it out"))
}

pub fn clat_percentiles(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.reporting.clat_percentiles = values::boolean(value)?;
    Ok(())
}

pub fn lat_percentiles(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.reporting.lat_percentiles = values::boolean(value)?;
    Ok(())
}
