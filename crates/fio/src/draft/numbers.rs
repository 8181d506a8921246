//! Options that are a number, a size or a time.

use std::time::Duration;

use measure::workload::{NumberList, SizeShare};

use super::{Draft, MAX_SPLITS};
use crate::error::Problem;
use crate::values;

fn count(value: Option<&str>, lowest: u32, highest: u32) -> Result<u32, Problem> {
    values::number32(values::required(value)?, lowest, highest)
}

pub fn bs(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.bs = values::by_direction(values::required(value)?, |t| values::number(t, 1, 1 << 30))?;
    Ok(())
}

pub fn blockalign(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let read = |text: &str| values::number(text, 1, 1 << 30);
    draft.blockalign = values::by_direction(values::required(value)?, read)?;
    Ok(())
}

pub fn bsrange(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.bsrange = values::by_direction(values::required(value)?, |text| {
        let (low, high) = text
            .split_once(['-', ':'])
            .ok_or_else(|| Problem::new("it is not a range", "write for instance 4k-4k"))?;
        Ok((values::number(low, 1, 1 << 30)?, values::number(high, 1, 1 << 30)?))
    })?;
    Ok(())
}

/// `cpus_allowed` as the bits of a number.
pub fn cpumask(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let mask = values::number(values::required(value)?, 1, u64::MAX)?;
    draft.workload.cpus_allowed = NumberList::new((0..64).filter(|cpu| mask >> cpu & 1 == 1));
    Ok(())
}

/// `4k/60:64k/40`; shares left out divide what is left of 100 percent.
pub fn bssplit(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.bssplit = values::by_direction(values::required(value)?, split)?;
    Ok(())
}

fn split(text: &str) -> Result<Vec<SizeShare>, Problem> {
    let example = "write for instance 4k/60:64k/40";
    let mut entries = Vec::new();
    for entry in text.split(':').filter(|entry| !entry.trim().is_empty()) {
        let (size, share) = match entry.split_once('/') {
            Some((size, share)) => (size, share.trim()),
            None => (entry, ""),
        };
        let share = match share {
            "" => None,
            text => Some(
                text.parse::<u8>()
                    .ok()
                    .filter(|p| *p <= 100)
                    .ok_or_else(|| Problem::new(format!("'{text}' is not a percentage"), example))?,
            ),
        };
        // fio reads a share of 0 as one that was left out.
        entries.push((values::number(size, 1, 1 << 30)?, share.filter(|p| *p > 0)));
    }
    if entries.is_empty() || entries.len() > MAX_SPLITS {
        return Err(Problem::new("it needs 1 to 64 sizes", example));
    }
    let given: u32 = entries.iter().filter_map(|(_, share)| share.map(u32::from)).sum();
    let missing = entries.iter().filter(|(_, share)| share.is_none()).count() as u32;
    let left = 100u32.checked_sub(given).filter(|left| missing == 0 || *left >= missing);
    let Some(left) = left.filter(|left| if missing == 0 { *left == 0 } else { left % missing == 0 }) else {
        return Err(Problem::new(
            format!("the shares given add up to {given} %, and do not come to 100 %"),
            example,
        ));
    };
    let each = left.checked_div(missing).unwrap_or(0) as u8;
    Ok(entries.into_iter().map(|(bs, share)| SizeShare { bs, percent: share.unwrap_or(each) }).collect())
}

pub fn iodepth(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.iodepth = count(value, 1, 32_768)?;
    Ok(())
}

pub fn iodepth_batch(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.iodepth_batch = count(value, 0, u32::MAX)?;
    Ok(())
}

pub fn iodepth_batch_complete_min(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.iodepth_batch_complete_min = match count(value, 0, u32::MAX)? {
        0 => {
            return Err(Problem::new(
                "looking for completions without ever waiting is not supported",
                "write 1, or poll the drive with hipri",
            ));
        }
        n => n,
    };
    Ok(())
}

/// More completions reaped in one call change nothing that the drive sees.
pub fn iodepth_batch_complete_max(_: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    count(value, 0, u32::MAX).map(drop)
}

pub fn numjobs(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.numjobs = count(value, 1, 4096)?;
    Ok(())
}

pub fn rwmixread(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.rwmixread = count(value, 0, 100)? as u8;
    Ok(())
}

pub fn rwmixwrite(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.rwmixread = 100 - count(value, 0, 100)? as u8;
    Ok(())
}

pub fn rate(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.rate = values::by_direction(values::required(value)?, values::bytes)?;
    Ok(())
}

pub fn rate_iops(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let read = |text: &str| values::number(text, 0, u64::from(u32::MAX));
    draft.rate_iops = values::by_direction(values::required(value)?, read)?;
    Ok(())
}

/// fio reads 0 as "no limit".
pub fn runtime(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let time = values::time(values::required(value)?)?;
    draft.workload.runtime = Some(time).filter(|t| *t > Duration::ZERO);
    Ok(())
}

pub fn ramp_time(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.ramp_time = values::time(values::required(value)?)?;
    Ok(())
}

pub fn size(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.size = Some(values::size(values::required(value)?)?);
    Ok(())
}

pub fn io_size(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.io_size = Some(values::size(values::required(value)?)?);
    Ok(())
}

pub fn filesize(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.filesize = Some(values::bytes(values::required(value)?)?);
    Ok(())
}

pub fn offset(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.offset = values::size(values::required(value)?)?;
    Ok(())
}

pub fn offset_increment(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.offset_increment = values::size(values::required(value)?)?;
    Ok(())
}

pub fn randseed(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.randseed = Some(values::bytes(values::required(value)?)?);
    Ok(())
}

pub fn buffer_compress_percentage(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.buffer_compress_percentage = count(value, 0, 100)? as u8;
    Ok(())
}

pub fn dedupe_percentage(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.dedupe_percentage = count(value, 0, 100)? as u8;
    Ok(())
}

pub fn dedupe_working_set_percentage(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.dedupe_working_set_percentage = count(value, 1, 100)? as u8;
    Ok(())
}

pub fn zonesize(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.zonesize = Some(values::bytes(values::required(value)?)?).filter(|bytes| *bytes > 0);
    Ok(())
}

pub fn zonerange(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.zonerange = Some(values::bytes(values::required(value)?)?).filter(|bytes| *bytes > 0);
    Ok(())
}

pub fn zoneskip(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.zoneskip = values::bytes(values::required(value)?)?;
    Ok(())
}

pub fn zonecapacity(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.zonecapacity = Some(values::bytes(values::required(value)?)?).filter(|bytes| *bytes > 0);
    Ok(())
}

pub fn max_open_zones(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.max_open_zones = count(value, 0, u32::MAX)?;
    Ok(())
}

pub fn job_max_open_zones(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.job_max_open_zones = count(value, 0, u32::MAX)?;
    Ok(())
}

pub fn zone_reset_threshold(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.zone_reset_threshold = fraction(value)?;
    Ok(())
}

pub fn zone_reset_frequency(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.zone_reset_frequency = fraction(value)?;
    Ok(())
}

/// A number from 0 to 1.
fn fraction(value: Option<&str>) -> Result<f64, Problem> {
    let text = values::required(value)?;
    let part = text.parse::<f64>().ok().filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| {
        Problem::new(format!("'{text}' is not a number from 0 to 1"), "write for instance 0.5")
    })
}

pub fn fdatasync(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.fdatasync = count(value, 0, u32::MAX)?;
    Ok(())
}

pub fn fsync(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.fsync = count(value, 0, u32::MAX)?;
    Ok(())
}

pub fn loops(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.loops = count(value, 1, u32::MAX)?;
    Ok(())
}

/// fio reads 0 as "no limit".
pub fn number_ios(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let requests = values::number(values::required(value)?, 0, u64::MAX)?;
    draft.workload.number_ios = Some(requests).filter(|n| *n > 0);
    Ok(())
}

pub fn percentage_random(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let read = |text: &str| values::number32(text, 0, 100).map(|percent| percent as u8);
    draft.percentage_random = values::by_direction(values::required(value)?, read)?;
    Ok(())
}

pub fn thinktime(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.thinktime = values::short_time(values::required(value)?)?;
    Ok(())
}

pub fn thinktime_spin(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.thinktime_spin = values::short_time(values::required(value)?)?;
    Ok(())
}

pub fn thinktime_blocks(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.thinktime_blocks = count(value, 1, u32::MAX)?;
    Ok(())
}

/// fio draws from a range; a run here is to be the same each time.
pub fn startdelay(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let text = values::required(value)?;
    if text.contains('-') {
        return Err(Problem::new(
            "a delay drawn from a range is not supported",
            "write one time, such as 5s",
        ));
    }
    draft.start_delay = values::time(text)?;
    Ok(())
}

pub fn nrfiles(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.nrfiles = count(value, 1, 1 << 20)?;
    Ok(())
}
