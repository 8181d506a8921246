//! Options that are numbers, sizes or times, where more is to be said of them than a row of the table of keys holds.

use measure::workload::{NumberList, SizeShare};

use super::{Draft, MAX_SPLITS};
use crate::error::Problem;
use crate::values;

pub fn bsrange(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.bsrange = values::by_direction(value, |text| {
        let (low, high) = text
            .split_once(['-', ':'])
            .ok_or_else(|| Problem::new("it is not a range", "write for instance 4k-4k"))?;
        Ok((values::block(low)?, values::block(high)?))
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
pub fn split(text: &str) -> Result<Vec<SizeShare>, Problem> {
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
        entries.push((values::block(size)?, share.filter(|p| *p > 0)));
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

pub fn iodepth_batch_complete_min(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.workload.iodepth_batch_complete_min = match values::count(value, 0, u32::MAX)? {
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
