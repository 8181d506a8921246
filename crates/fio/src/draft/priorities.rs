//! Options of I/O priorities: `prio` and `prioclass` of a job's threads, `cmdprio…` of single requests.

use measure::workload::IoEngine;
use storage::usage::{IoClass, IoPriority};

use super::MAX_SPLITS;
use crate::error::{Fault, Problem};
use crate::values::{self, ByDirection};
use bench::run::priorities::{PriorityShare, RequestPriorities};

/// What a section says of priorities.
#[derive(Debug, Clone, Default)]
pub struct PrioritiesDraft {
    pub class: Option<IoClass>,
    pub level: u16,
    pub hint: u16,
    pub percentage: ByDirection<u8>,
    pub of_class: ByDirection<IoClass>,
    pub of_level: ByDirection<u16>,
    pub of_hint: ByDirection<u16>,
    pub of_sizes: ByDirection<Vec<SizeEntry>>,
}

/// `64k/25`, or `64k/25/1/4`, or `64k/25/1/4/2`.
#[derive(Debug, Clone, PartialEq)]
pub struct SizeEntry {
    bytes: u64,
    percent: u8,
    priority: Option<IoPriority>,
}

impl PrioritiesDraft {
    /// The priority of the job's threads; None where nothing is said, or as much as nothing.
    pub fn of_threads(&self) -> Result<Option<IoPriority>, Fault> {
        let class = self.class.unwrap_or(IoClass::Unset);
        if class == IoClass::Unset && (self.level > 0 || self.hint > 0) {
            let option = if self.level > 0 { "prio" } else { "priohint" };
            return Err((option, Problem::new("a level means nothing without a class", "add prioclass=2")));
        }
        // The ranges were checked as the options were read.
        Ok(IoPriority::new(class, self.level, self.hint).filter(|priority| *priority != IoPriority::UNSET))
    }

    /// Those of single requests.
    pub fn of_requests(&self, engine: IoEngine) -> Result<Option<RequestPriorities>, Fault> {
        let is_percentage = self.percentage.iter().take(2).flatten().any(|percent| *percent > 0);
        let is_sizes = self.of_sizes.iter().take(2).flatten().any(|entries| !entries.is_empty());
        let option = match (is_percentage, is_sizes) {
            (false, false) => return Ok(None),
            (true, true) => {
                let reason = "cmdprio_percentage says which requests have a priority, and so does this";
                return Err(("cmdprio_bssplit", Problem::new(reason, "leave out one of the two")));
            }
            (true, false) => "cmdprio_percentage",
            (false, true) => "cmdprio_bssplit",
        };
        if !engine.has_request_flags() {
            let engines = IoEngine::words_with(IoEngine::has_request_flags);
            let reason = format!("requests have priorities of their own with {engines} only");
            return Err((option, Problem::new(reason, "write ioengine=io_uring, or prio and prioclass")));
        }
        Ok(Some(RequestPriorities { reads: self.shares(0), writes: self.shares(1) }))
    }

    /// The shares of a direction.
    fn shares(&self, direction: usize) -> Vec<PriorityShare> {
        // As in fio, the real-time class where nothing is said.
        let class = self.of_class[direction].filter(|class| *class != IoClass::Unset);
        let (level, hint) = (self.of_level[direction].unwrap_or(0), self.of_hint[direction].unwrap_or(0));
        let usual = IoPriority::new(class.unwrap_or(IoClass::RealTime), level, hint);
        let usual = usual.expect("the ranges were checked as the options were read");
        let percent = self.percentage[direction].filter(|percent| *percent > 0);
        let of_any = percent.map(|percent| PriorityShare { bytes: None, percent, priority: usual });
        let of_size = |entry: &SizeEntry| PriorityShare {
            bytes: Some(entry.bytes),
            percent: entry.percent,
            priority: entry.priority.unwrap_or(usual),
        };
        let entries = self.of_sizes[direction].iter().flatten().filter(|entry| entry.percent > 0);
        of_any.into_iter().chain(entries.map(of_size)).collect()
    }
}

pub fn class(text: &str) -> Result<IoClass, Problem> {
    Ok(match values::number(text, 0, 3)? {
        0 => IoClass::Unset,
        1 => IoClass::RealTime,
        2 => IoClass::BestEffort,
        _ => IoClass::Idle,
    })
}

pub fn level(text: &str) -> Result<u16, Problem> {
    Ok(values::number(text, 0, 7)? as u16)
}

pub fn hint(text: &str) -> Result<u16, Problem> {
    Ok(values::number(text, 0, 1023)? as u16)
}

/// The entries of one direction. Those of one size must not come to more than all of its requests.
pub fn entries(text: &str) -> Result<Vec<SizeEntry>, Problem> {
    let entries = text.split(':').map(str::trim).filter(|entry| !entry.is_empty()).map(entry);
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    let example = "write for instance 64k/25/1/4:64k/75/3/0";
    if entries.len() > MAX_SPLITS {
        return Err(Problem::new("it takes at most 64 entries", example));
    }
    for entry in &entries {
        let same = entries.iter().filter(|other| other.bytes == entry.bytes);
        let sum: u32 = same.map(|other| u32::from(other.percent)).sum();
        if sum > 100 {
            let size = units::bytes_short(entry.bytes);
            return Err(Problem::new(format!("the shares of {size} come to {sum} %"), example));
        }
    }
    Ok(entries)
}

fn entry(text: &str) -> Result<SizeEntry, Problem> {
    let parts: Vec<&str> = text.split('/').collect();
    let (size, share, priority) = match parts.as_slice() {
        [size, share] => (size, share, None),
        [size, share, class, level] => (size, share, Some((class, level, "0"))),
        [size, share, class, level, hint] => (size, share, Some((class, level, *hint))),
        _ => {
            let hint = "write size/percent, size/percent/class/level or size/percent/class/level/hint";
            return Err(Problem::new(format!("'{text}' has {} parts", parts.len()), hint));
        }
    };
    let priority = match priority {
        Some((of_class, of_level, of_hint)) => {
            IoPriority::new(class(of_class)?, level(of_level)?, hint(of_hint)?)
        }
        None => None,
    };
    Ok(SizeEntry { bytes: values::block(size)?, percent: values::percent(share)?, priority })
}
