//! What limits a figure: which part of the system kept it from being higher.
//!
//! [`judge`] is a pure function of a record and of what is known from sibling runs ([`Context`]). It
//! gathers every limit for which there is evidence, and the first in the order below is the verdict; the
//! others stay beside it. A limit is only named where counters show it or a comparison proves it;
//! otherwise the verdict is [`Limit::Unknown`], and says what was missing. `docs/limits.md` lists each with
//! its thresholds, which stand beside the checks.
//!
//! The order, and why:
//!
//! 1. [`Limit::Rate`]: under a rate that is kept, the rate is what was asked for, and nothing below was
//!    asked for more.
//! 2. [`Limit::UnbalancedDrives`] where some members of an array run against a throttle that the others do
//!    not have: that is a throttle, but what to mend is the difference.
//! 3. [`Limit::Throttle`], [`Limit::Link`]: bounds with a number of their own. A figure within a few percent
//!    of such a number is no accident, and nothing else can raise it.
//! 4. [`Limit::OneCpu`], [`Limit::LoadGenerator`]: a CPU without idle time. What a drive would do with more
//!    requests cannot be seen while nobody makes them. One CPU comes first, because a thread that shares
//!    its CPU with all interrupts looks busy itself.
//! 5. [`Limit::UnbalancedDrives`]: one member is slower; all others wait for it. Before the layers above,
//!    because any layer over such drives compares badly with the drives one by one.
//! 6. [`Limit::RaidLayer`], [`Limit::FileSystem`]: the same drives are faster without the layer, at the same
//!    depth. A throttle that stands on the layer itself, so that the drives one by one are free of it, is
//!    that layer's ceiling and named as such.
//! 7. [`Limit::QueueDepth`]: a deeper queue is faster (measured), or drives are idle because fewer
//!    requests are in flight than there are drives (counted). By Little's law (requests in flight =
//!    rate × latency) a closed loop cannot be faster than depth by latency; that alone names no
//!    limit, since latency at the ceiling grows with the depth.
//! 8. [`Limit::Drives`]: what is left when all of the above is ruled out and the drives are busy.
//!
//! What is no evidence: that a thread or CPU is busy which polls (`hipri`, `sqthread_poll`), that a PCIe link
//! of a virtual machine claims a speed, that the first and last requests of an interval fall outside
//! it. Counters of a few requests prove nothing, so each check has a least number.

mod bounds;
mod context;
mod evidence;
mod host;
mod members;

use crate::record::RunRecord;
pub use crate::verdict::{Explanation, Finding, Limit, Verdict};
pub use context::{Achieved, Context, DrivesAlone, Sibling, refine};
use evidence::Seen;

/// Judges a record with what is known from its siblings.
#[must_use]
pub fn judge(record: &RunRecord, context: &Context) -> Verdict {
    refine(&alone(record), &Achieved::of(record), context)
}

/// Judges a record by itself.
fn alone(record: &RunRecord) -> Verdict {
    let seen = Seen::new(record);
    if record.interval_ns == 0 || record.ios() == 0 {
        return verdict(vec![], "no request was completed".into());
    }
    let mut findings: Vec<Finding> = Vec::new();
    findings.extend(host::rate(&seen));
    findings.extend(bounds::throttle(&seen));
    findings.extend(bounds::link(&seen));
    findings.extend(host::one_cpu(&seen));
    findings.extend(host::load_generator(&seen));
    findings.extend(members::unbalanced(&seen));
    findings.extend(members::queue_depth(&seen));
    let missing = match members::drives(&seen, findings.is_empty()) {
        Ok(finding) => {
            findings.push(finding);
            String::new()
        }
        Err(missing) => missing,
    };
    verdict(findings, missing)
}

/// How busy all CPUs together were, from 0 to 1, where that left no time for anything else. None where they had time left,
/// and where jobs poll, which keeps CPUs busy by design.
#[must_use]
pub fn no_cpu_left(record: &RunRecord) -> Option<f64> {
    host::no_cpu_left(&Seen::new(record))
}

/// The first finding as verdict, each limit once.
fn verdict(findings: Vec<Finding>, missing: String) -> Verdict {
    let mut others: Vec<Finding> = Vec::new();
    for finding in findings {
        if others.iter().all(|known| known.limit != finding.limit) {
            others.push(finding);
        }
    }
    if others.is_empty() {
        return Verdict { limit: Limit::Unknown, evidence: missing, at_percent_of_drives: None, others };
    }
    let first = others.remove(0);
    Verdict { limit: first.limit, evidence: first.evidence, at_percent_of_drives: None, others }
}
