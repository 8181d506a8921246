//! What holds a job back, as a person reads it.

use std::fmt;
use std::time::Duration;

use super::bucket::{Bucket, Limits, Which};
use super::clock::Now;
use super::sched::{Hold, JobKey, Scheduler};

/// What holds a job back now; none where nothing does.
pub(super) fn held_back_by(scheduler: &mut Scheduler, key: JobKey, now: Now) -> Option<String> {
    let job = scheduler.jobs.get_mut(&key)?;
    let (hold, pressed) = (job.held(now), job.pressed(now));
    let needed = job.needed(now).filter(|_| pressed);
    let tier = job.tier.and_then(|tier| scheduler.tiers.get(&tier));
    let own = scheduler.jobs.get(&key).map(|job| &job.limits)?;
    let governor = || {
        let status = tier.map(|tier| tier.governor.status())?;
        let slower = status.slower.filter(|_| status.limit_bytes_per_s.is_some())?;
        let limit = units::bandwidth(status.limit_bytes_per_s?);
        Some(format!("the fast tier answers {slower:.1}x slower than at rest: held to {limit}"))
    };
    let held = hold.and_then(|hold| match hold {
        Hold::Own(which) => limit("", own, which),
        Hold::Mover(which) => limit("the mover's ", &scheduler.mover, which),
        Hold::Turn(which) => limit("the mover's ", &scheduler.mover, which)
            .map(|limit| format!("{limit}, at which other requests are first")),
        Hold::Governor => governor(),
        Hold::Rest => Some("the fast tier is left alone for a moment, to see its latency at rest".to_owned()),
    });
    match needed {
        Some((rate, left_s)) => Some(raised(rate, left_s, held.as_deref())),
        None => held,
    }
}

fn limit(whose: &str, limits: &Limits, which: Which) -> Option<String> {
    match which {
        Which::Bytes => {
            let rate = limits.bytes.as_ref().map(Bucket::rate)?;
            Some(format!("{whose}bwlimit {}", units::bandwidth(rate)))
        }
        Which::Ios => {
            let rate = limits.ios.as_ref().map(Bucket::rate)?;
            Some(format!("{whose}limit of {}", units::iops(rate)))
        }
    }
}

/// A deadline that exceeds what held the job back.
fn raised(rate: f64, left_s: f64, held: Option<&str>) -> String {
    let when = if left_s < 0.0 {
        format!("the deadline was {} ago", units::seconds(Duration::from_secs_f64(-left_s)))
    } else {
        let left = Duration::try_from_secs_f64(left_s).unwrap_or(Duration::MAX);
        format!("the deadline is in {}", units::seconds(left))
    };
    let how = if rate.is_finite() {
        format!("raised to {}", units::bandwidth(rate))
    } else {
        "all limits are lifted".to_owned()
    };
    match held {
        Some(held) => format!("{when}: {how}, over {held}"),
        None => format!("{when}: {how}"),
    }
}

/// Why there is no governor.
pub(super) fn without_governor(why: fmt::Arguments<'_>) -> String {
    format!("without a governor: {why}")
}

/// That the wall clock was set while a job with a deadline ran.
pub(super) fn of_the_clock(scheduler: &Scheduler, key: JobKey) -> Option<String> {
    let seconds = scheduler.jobs.get(&key)?.jumped()?;
    let way = if seconds > 0.0 { "forward" } else { "back" };
    let by = units::seconds(Duration::try_from_secs_f64(seconds.abs()).unwrap_or(Duration::MAX));
    Some(format!("the clock was set {way} by {by}: the deadline is by what it says now"))
}
