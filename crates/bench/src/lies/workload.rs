//! Does the request make sense, and did the run live up to it?

use measure::record::FailedRequests;
use measure::stats::fit::linear_fit;
use measure::stats::steady::{SLOPE_LIMIT, SteadyVerdict, within_run_of};
use measure::{Warning, WarningCode};

use super::Evidence;

/// Requests in flight that a region must have blocks for, times over.
const BLOCKS_PER_REQUEST: u64 = 8;
/// Part of a rate that must be met.
const RATE_LIMIT: f64 = 0.95;
/// Fewer requests than these are an anecdote: even where their times spread no more than half their
/// mean, the mean of 32 is uncertain by 0.5/√32 = 9 %.
const FEWEST_REQUESTS: u64 = 32;
/// A shorter interval is a few time slices of the scheduler, milliseconds.
const SHORTEST_INTERVAL_NS: u64 = 50_000_000;
/// SNIA's rounds last a minute; fifths shorter than a fifth of a second show the machine's other
/// work and the drive's housekeeping, which the spread between passes measures better. A run of less is judged by its
/// trend alone.
const SHORTEST_STEADY_NS: u64 = 1_000_000_000;
/// A shorter run has too few steps of 10 ms for a trend.
const SHORTEST_TREND_NS: u64 = 200_000_000;
/// Part of the mean by which a short run's trend moves: twice SNIA's.
const TREND_LIMIT: f64 = 2.0 * SLOPE_LIMIT;
/// Standard errors that a trend must be worth. Waves of a few steps make neighbours alike, so that 5 are as rare as 3
/// would be of independent ones.
const TREND_ERRORS: f64 = 5.0;
/// Steps that a trend needs.
const FEWEST_STEPS: usize = 10;
/// Completions come in bursts of up to a full queue. With twenty queues in a fifth of the run, one
/// burst more or less is 5 % of it, half of what the slope rule allows.
const QUEUES_PER_FIFTH: u64 = 20;

/// `W-SAME-OFFSETS`, `W-CLOSED-LOOP`, `W-RATE-MISSED`, `W-ENGINE-FALLBACK`, `W-UNSTEADY`,
/// `W-SHORT-RUN`, `W-NOT-STEADY`, `W-FEW-BLOCKS`, `W-VERIFY-PARTIAL`, `W-FAILED-REQUESTS`,
/// `W-ZONES`.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Vec<Warning> {
    [
        same_offsets(evidence),
        closed_loop(evidence),
        rate_missed(evidence),
        engine_fallback(evidence),
        unsteady(evidence),
        short_run(evidence),
        not_steady(evidence),
        few_blocks(evidence),
        verify_partial(evidence),
        failed_requests(evidence),
        zones(evidence),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Sequential jobs overlap where a job gets as far as the next one's beginning within the run. The
/// record counts the interval only, so ramp and tail are added at the interval's rate.
fn same_offsets(evidence: &Evidence<'_>) -> Option<Warning> {
    let record = evidence.record;
    let step = record.workload.offset_increment?;
    if record.workload.numjobs < 2 || record.workload.rw.is_random() {
        return None;
    }
    let farthest = record.jobs.iter().map(|job| job.bytes).max().unwrap_or(0) as f64;
    let whole = record.ramp_ns as f64 + record.interval_ns as f64 + record.tail_ns as f64;
    let walked = farthest * whole / record.interval_ns.max(1) as f64;
    (step == 0 || walked > step as f64).then(|| {
        let message = format!(
            "{} jobs walk {} each and begin {} apart (offset_increment)",
            record.workload.numjobs,
            units::bytes(walked as u64),
            units::bytes(step),
        );
        Warning::new(WarningCode::SameOffsets, message)
    })
}

/// A label rather than a finding: true of every run without a rate that has latencies to show.
fn closed_loop(evidence: &Evidence<'_>) -> Option<Warning> {
    let workload = &evidence.record.workload;
    (!workload.is_open_loop() && evidence.record.ios() > 0).then(|| {
        let message = format!(
            "each request was made when an earlier one ended, with {} in flight",
            evidence.in_flight()
        );
        Warning::new(WarningCode::ClosedLoop, message)
    })
}

/// What was started is bounded by what was done plus a full queue. Poisson arrivals scatter by the
/// root of their number, of which four are allowed.
fn rate_missed(evidence: &Evidence<'_>) -> Option<Warning> {
    let record = evidence.record;
    let jobs = f64::from(record.workload.numjobs);
    let seconds = evidence.interval_s();
    let (asked, done, size) = match (record.workload.rate_iops, record.workload.rate) {
        (Some(iops), _) => (iops as f64 * jobs, record.iops(), 1.0),
        (None, Some(bytes)) => {
            (bytes as f64 * jobs, record.bandwidth_bytes_per_s(), record.workload.max_bs() as f64)
        }
        (None, None) => return None,
    };
    let requests = asked * seconds / size;
    let slack = (4.0 * requests.sqrt() + evidence.in_flight() as f64) * size;
    let short = done < asked * RATE_LIMIT && done * seconds + slack < asked * seconds;
    short.then(|| {
        let figure = |value| {
            if record.workload.rate_iops.is_some() { units::iops(value) } else { units::bandwidth(value) }
        };
        let message = format!(
            "{} of {} asked for ({}; limit {})",
            figure(done),
            figure(asked),
            units::percent(done / asked),
            units::percent(RATE_LIMIT),
        );
        Warning::new(WarningCode::RateMissed, message)
    })
}

fn engine_fallback(evidence: &Evidence<'_>) -> Option<Warning> {
    let engine = &evidence.record.engine;
    let reason = engine.fallback.as_ref()?;
    Some(Warning::new(WarningCode::EngineFallback, format!("{} ran: {reason}", engine.used)))
}

/// SNIA's two rules over the fifths of the run. Under a rate the rate decides, not the drive.
fn unsteady(evidence: &Evidence<'_>) -> Option<Warning> {
    let record = evidence.record;
    let enough = record.ios() >= 5 * QUEUES_PER_FIFTH * evidence.in_flight();
    if record.interval_ns < SHORTEST_TREND_NS || !enough || record.workload.is_open_loop() {
        return None;
    }
    if record.interval_ns < SHORTEST_STEADY_NS {
        return trend(&rates(evidence)).map(|seen| Warning::new(WarningCode::Unsteady, seen));
    }
    let steadiness = within_run_of(&rates(evidence), record.ios());
    (steadiness.verdict == SteadyVerdict::NotReached)
        .then(|| Warning::new(WarningCode::Unsteady, steadiness.explain()))
}

/// The line through the steps of a run, where it moves too far and scatter does not explain it.
fn trend(rates: &[f64]) -> Option<String> {
    if rates.len() < FEWEST_STEPS {
        return None;
    }
    let places: Vec<f64> = (0..rates.len()).map(|place| place as f64).collect();
    let fit = linear_fit(&places, rates).filter(|fit| fit.mean_y > 0.0)?;
    let moved = fit.slope * (rates.len() - 1) as f64 / fit.mean_y;
    (moved.abs() > TREND_LIMIT && fit.slope.abs() > TREND_ERRORS * fit.slope_se?).then(|| {
        format!(
            "slope {:+.0} % over {} steps (limit {:.0} % below one second)",
            moved * 100.0,
            rates.len(),
            TREND_LIMIT * 100.0
        )
    })
}

/// Bytes a second in each step (requests a second where no bytes move, as for discards). The last
/// step may be cut short by the end of the run; below half a step it says too little.
pub(super) fn rates(evidence: &Evidence<'_>) -> Vec<f64> {
    let samples = &evidence.record.samples;
    let first_ns = samples.first().map_or(0, |sample| sample.end_ns);
    let mut start_ns = 0;
    let mut rates = Vec::with_capacity(samples.len());
    for sample in samples {
        let length_ns = sample.end_ns.saturating_sub(start_ns);
        start_ns = sample.end_ns;
        if length_ns == 0 || length_ns < first_ns / 2 {
            continue;
        }
        let bytes = sample.read_bytes + sample.write_bytes;
        let amount =
            if evidence.record.read.bytes + evidence.record.write.bytes > 0 { bytes } else { sample.ios };
        rates.push(amount as f64 * 1e9 / length_ns as f64);
    }
    rates
}

fn short_run(evidence: &Evidence<'_>) -> Option<Warning> {
    let (ios, interval_ns) = (evidence.record.ios(), evidence.record.interval_ns);
    let message = if ios < FEWEST_REQUESTS {
        format!("{ios} requests in {} (limit {FEWEST_REQUESTS})", units::nanoseconds(interval_ns as f64))
    } else if interval_ns < SHORTEST_INTERVAL_NS {
        let limit = units::nanoseconds(SHORTEST_INTERVAL_NS as f64);
        format!("an interval of {} (limit {limit})", units::nanoseconds(interval_ns as f64))
    } else {
        return None;
    };
    Some(Warning::new(WarningCode::ShortRun, message))
}

/// The rounds before the run ended without SNIA's rule being obeyed.
fn not_steady(evidence: &Evidence<'_>) -> Option<Warning> {
    let done = evidence.record.precondition.as_ref().filter(|done| done.is_unsteady())?;
    let rounds = done.rounds.as_ref()?;
    let message = format!(
        "{} rounds of {}: {}",
        rounds.iops.len(),
        units::nanoseconds(rounds.round_ns as f64),
        rounds.steadiness.explain(),
    );
    Some(Warning::new(WarningCode::NotSteady, message))
}

/// Sequential requests do not meet unless the region is smaller than the queue.
fn few_blocks(evidence: &Evidence<'_>) -> Option<Warning> {
    let workload = &evidence.record.workload;
    let blocks = evidence.region_bytes() / workload.max_bs().max(1);
    let in_flight = evidence.in_flight();
    let needed = if workload.rw.is_random() { in_flight * BLOCKS_PER_REQUEST } else { in_flight };
    // One request at a time meets nobody.
    if blocks == 0 || in_flight < 2 || blocks >= needed {
        return None;
    }
    let message = format!(
        "{blocks} blocks of {} for {in_flight} requests in flight (limit {needed})",
        units::bytes(workload.max_bs())
    );
    Some(Warning::new(WarningCode::FewBlocks, message))
}

fn verify_partial(evidence: &Evidence<'_>) -> Option<Warning> {
    let expected = evidence.known.verify_expected_blocks?;
    let verified = evidence.record.verified_blocks;
    (verified < expected).then(|| {
        let message = format!("{verified} of {expected} blocks were read back and checked");
        Warning::new(WarningCode::VerifyPartial, message)
    })
}

fn failed_requests(evidence: &Evidence<'_>) -> Option<Warning> {
    let failed = &evidence.record.failed;
    let total: u64 = failed.iter().map(|kind| kind.count).sum();
    let kind = |kind: &FailedRequests| {
        format!("{} of {} ({}; the first: {})", kind.count, kind.operation, kind.error, kind.first)
    };
    (total > 0).then(|| {
        let kinds: Vec<String> = failed.iter().map(kind).collect();
        let message = format!("{total} requests failed: {}", kinds.join(", "));
        Warning::new(WarningCode::FailedRequests, message)
    })
}

fn zones(evidence: &Evidence<'_>) -> Option<Warning> {
    let ended = evidence.record.zones.map_or(0, |zones| zones.ended_early);
    (ended > 0).then(|| {
        let message = format!(
            "{ended} of {} threads ended early: there was no zone for the next request",
            evidence.record.jobs.len()
        );
        Warning::new(WarningCode::Zones, message)
    })
}
