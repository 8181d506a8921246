//! From what the threads counted and what was seen beside to a record with its warnings.

use std::collections::BTreeMap;

use measure::Warning;
use measure::dealing::part_of;
use measure::limit::Context;
use measure::record::{
    DirectionCounts, EngineFacts, FailedRequests, JobCounts, ProcessCounts, RunRecord, SCHEMA, TotalCounts,
    ZoneCounts,
};
use storage::clock::Clock;
use storage::device::DeviceKind;
use storage::usage;

use super::Job;
use super::conduct::{ByPriority, memory_words, merge_priorities};
use super::tally::{Directions, Summary, merge_samples};
use super::tolerance;
use super::worker::Report;
use crate::lies::{Evidence, Known, Traffic, judge};
use crate::observe::Observed;

/// Counts the whole run of each job that has done its work without a request that was completed within the interval: it
/// opened so late that nothing was left. What runs for a time, and stalls for all of it, has its zeros.
pub(super) fn count_whole_where_none_was_measured(jobs: &[Job], reports: &mut [Vec<Report>]) {
    let clock = Clock::get();
    for (job, reports) in jobs.iter().zip(reports) {
        let any = |of: fn(&Summary) -> &Directions| {
            reports.iter().any(|report| of(&report.summary).iter().any(|counts| counts.ios > 0))
        };
        if !job.workload.time_based && any(|s| &s.total) && !any(|s| &s.measured) {
            reports.iter_mut().for_each(|report| report.summary.count_whole(clock));
        }
    }
}

/// What all records of a group share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Common {
    pub process: usage::Usage,
    pub started_unix_ns: u64,
    pub pass: u32,
}

/// One record a job. Warnings come last, because what a drive did beside one job may have been
/// another's doing.
pub(super) fn records(
    jobs: &[Job],
    reports: &[Vec<Report>],
    seen: &[Observed],
    common: Common,
) -> Vec<RunRecord> {
    let parts = || jobs.iter().zip(reports).zip(seen);
    let mut records: Vec<RunRecord> =
        parts().map(|((job, reports), observed)| record(job, reports, observed, common)).collect();
    // Drives served the search as well, at depths that no record has counts of.
    let searches = reports.iter().flatten().any(|report| report.summary.has_restarted);
    let verdicts: Vec<Vec<Warning>> = parts()
        .enumerate()
        .map(|(at, ((job, reports), observed))| verdict(job, reports, observed, &records, at, searches))
        .collect();
    for (at, (record, warnings)) in records.iter_mut().zip(verdicts).enumerate() {
        record.warnings = warnings;
        // What limits requests that move nothing is neither a drive nor a link. And what was seen beside a search was
        // seen at depths that are not in its figures.
        let moves = record.target.kind != DeviceKind::Operations.word();
        let is_seen = !reports[at].iter().any(|report| report.summary.has_restarted);
        record.verdict = (moves && is_seen).then(|| measure::limit::judge(record, &Context::default()));
    }
    records
}

/// One job's record from its threads' reports.
fn record(job: &Job, reports: &[Report], observed: &Observed, common: Common) -> RunRecord {
    let Common { process, started_unix_ns, pass } = common;
    let clock = Clock::get();
    let summaries = || reports.iter().map(|r| &r.summary);
    let began = summaries().map(|s| s.began).max().unwrap_or(0);
    let ended = summaries().map(|s| s.ended).min().unwrap_or(0);
    let first = summaries().map(|s| s.started).min().unwrap_or(0);
    let last = summaries().map(|s| s.closed).max().unwrap_or(0);
    // Threads that search end each for itself; rates are over the longest of their intervals, as in fio.
    let own = summaries().filter(|s| s.has_restarted).map(|s| s.ended.saturating_sub(s.began)).max();
    let ended = own.map_or(ended, |longest| began + longest);
    let interval_ns = clock.nanoseconds(ended.saturating_sub(began));
    let [read, write, trim] = total(summaries().map(|s| &s.measured));
    let [all_read, all_write, all_trim] = total(summaries().map(|s| &s.total));
    let samples: Vec<_> = summaries().map(|s| s.samples.as_slice()).collect();
    let subject = job.observer.subject();
    RunRecord {
        schema: SCHEMA.to_owned(),
        workload: job.workload.clone(),
        target: subject.facts.clone(),
        layout: layout(job, observed),
        pass,
        precondition: job.known.precondition.as_deref().cloned(),
        host: job.observer.host(),
        engine: engine_facts(job, reports),
        started_unix_ns,
        interval_ns,
        ramp_ns: clock.nanoseconds(began.saturating_sub(first)),
        tail_ns: clock.nanoseconds(last.saturating_sub(ended)),
        total: TotalCounts {
            read_bytes: all_read.bytes,
            write_bytes: all_write.bytes,
            trim_bytes: all_trim.bytes,
            ios: all_read.ios + all_write.ios + all_trim.ios,
            elapsed_ns: clock.nanoseconds(last.saturating_sub(first)),
        },
        read,
        write,
        trim,
        jobs: reports.iter().map(|r| job_counts(r, clock)).collect(),
        samples: merge_samples(&samples, interval_ns),
        drives: observed.drives.clone(),
        cpus: observed.cpus.clone(),
        process: ProcessCounts {
            user_ns: process.user_ns,
            system_ns: process.system_ns,
            voluntary_context_switches: process.voluntary_context_switches,
            involuntary_context_switches: process.involuntary_context_switches,
            major_faults: process.major_faults,
        },
        verified_blocks: reports.iter().map(|r| r.verified_blocks).sum(),
        failed: failed(reports),
        zones: reports.iter().filter_map(|report| report.zones).reduce(ZoneCounts::plus),
        warnings: Vec::new(),
        observed_ns: observed.window_ns,
        bounds: observed.bounds.clone(),
        verdict: None,
    }
}

/// The settings in force: those of the queues, and how the target is made of others.
fn layout(job: &Job, observed: &Observed) -> BTreeMap<String, String> {
    let subject = job.observer.subject();
    let mut layout = observed.settings_before.layout(&subject.facts.block_devices);
    layout.extend(subject.arrangement.clone());
    if let Some(policy) = &job.conduct.memory {
        layout.insert("numa_mem_policy".to_owned(), memory_words(policy));
    }
    if let Some(priority) = job.conduct.priority {
        layout.insert("io_priority".to_owned(), priority.to_string());
    }
    if let Some(priorities) = &job.conduct.request_priorities {
        layout.insert("io_priority.requests".to_owned(), priorities.words());
    }
    if job.device.kind() == DeviceKind::Separate {
        let members = job.device.members().len() as u32;
        let depth = |number| part_of(&job.workload, members, number).map_or(0, |part| part.iodepth);
        let (most, least) = (depth(0), depth(members - 1));
        let each = if most == least { most.to_string() } else { format!("{least} or {most}") };
        layout.insert("separate.depth_per_drive".to_owned(), each);
    }
    layout
}

/// What is to be warned of in record `at`, beside the others that ran at the same time.
fn verdict(
    job: &Job,
    reports: &[Report],
    observed: &Observed,
    records: &[RunRecord],
    at: usize,
    searches: bool,
) -> Vec<Warning> {
    let expected: Option<Vec<u64>> = reports.iter().map(|r| r.verify_expected).collect();
    let known = Known {
        verify_expected_blocks: expected.filter(|e| !e.is_empty()).map(|e| e.iter().sum()),
        beside: Traffic::beside(records, at),
        drives_are_shared: job.known.drives_are_shared || searches,
        ..job.known.clone()
    };
    let stack = &job.observer.subject().stack;
    judge(&Evidence { record: &records[at], stack, observed, known: &known })
}

/// What all threads lived with.
fn failed(reports: &[Report]) -> Vec<FailedRequests> {
    let mut all = Vec::new();
    reports.iter().flat_map(|report| &report.failed).for_each(|kind| tolerance::add(&mut all, kind.clone()));
    all
}

/// The latencies of all threads by priority.
pub(super) fn by_priority(reports: &[Report]) -> [ByPriority; 3] {
    let mut sums: [ByPriority; 3] = Default::default();
    for report in reports {
        for (sum, counts) in sums.iter_mut().zip(&report.summary.measured) {
            merge_priorities(sum, &counts.by_priority);
        }
    }
    sums
}

fn total<'a>(parts: impl Iterator<Item = &'a Directions>) -> [DirectionCounts; 3] {
    let mut sums: [DirectionCounts; 3] = Default::default();
    for part in parts {
        for (sum, counts) in sums.iter_mut().zip(part) {
            sum.bytes += counts.bytes;
            sum.ios += counts.ios;
            sum.latency.merge(&counts.latency);
        }
    }
    sums
}

/// What a thread counted in its interval.
pub(super) fn job_counts(report: &Report, clock: Clock) -> JobCounts {
    let summary = &report.summary;
    JobCounts {
        bytes: summary.measured.iter().map(|c| c.bytes).sum(),
        ios: summary.measured.iter().map(|c| c.ios).sum(),
        interval_ns: clock.nanoseconds(summary.ended.saturating_sub(summary.began)),
        user_ns: summary.usage.user_ns,
        system_ns: summary.usage.system_ns,
        cpu: report.cpu,
        seen_on: summary.seen_on.clone(),
    }
}

fn engine_facts(job: &Job, reports: &[Report]) -> EngineFacts {
    let first = reports.first();
    EngineFacts {
        used: first.map_or_else(String::new, |r| r.engine.to_owned()),
        fallback: first.and_then(|r| r.fallback.clone()),
        features: first.map_or_else(Vec::new, |r| r.features.clone()),
        latency_clock: job.workload.latency_clock,
        clock_source: Clock::get().source().word().to_owned(),
        retries: reports.iter().map(|report| report.retries).sum(),
    }
}
