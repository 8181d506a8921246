//! The jobs that share an entry: those of one reporting group that say `group_reporting`, as in fio.
//!
//! The entry has the name and the options of the first. Requests, bytes and latencies are summed; rates are of all threads
//! together, as those of the copies of one job are. What does not follow from a sum is left at fio's sign for nothing counted:
//! samples where jobs have different numbers of them are those that all have.

use measure::RunRecord;
use measure::record::DirectionCounts;

use super::JobResult;
use bench::run::conduct::{ByPriority, merge_priorities};

/// The results of each entry, in the order of their first.
pub(super) fn entries<'r, 'a>(results: &'r [JobResult<'a>]) -> Vec<Vec<&'r JobResult<'a>>> {
    let mut entries: Vec<Vec<&JobResult<'a>>> = Vec::new();
    for result in results {
        let joins = |entry: &&mut Vec<&JobResult<'a>>| {
            result.is_grouped && entry[0].is_grouped && entry[0].group_id == result.group_id
        };
        match entries.iter_mut().find(joins) {
            Some(entry) => entry.push(result),
            None => entries.push(vec![result]),
        }
    }
    entries
}

/// The record of an entry of several results; None of one.
pub(super) fn sum(entry: &[&JobResult<'_>]) -> Option<RunRecord> {
    let (first, others) = entry.split_first()?;
    if others.is_empty() {
        return None;
    }
    let mut sum = first.record.clone();
    for record in others.iter().map(|other| other.record) {
        add(&mut sum.read, &record.read);
        add(&mut sum.write, &record.write);
        add(&mut sum.trim, &record.trim);
        if sum.workload.iodepth != record.workload.iodepth {
            // No depth is everybody's: 0 has no class.
            sum.workload.iodepth = 0;
        }
        sum.interval_ns = sum.interval_ns.max(record.interval_ns);
        sum.failed.extend(record.failed.iter().cloned());
        sum.jobs.extend(record.jobs.iter().cloned());
        sum.samples.truncate(record.samples.len());
        for (sample, own) in sum.samples.iter_mut().zip(&record.samples) {
            sample.read_bytes += own.read_bytes;
            sample.write_bytes += own.write_bytes;
            sample.ios += own.ios;
        }
    }
    Some(sum)
}

/// Latencies by priority of all results of an entry.
pub(super) fn by_priority(entry: &[&JobResult<'_>]) -> [ByPriority; 3] {
    let mut sums: [ByPriority; 3] = Default::default();
    for result in entry {
        sums.iter_mut().zip(&result.by_priority).for_each(|(sum, part)| merge_priorities(sum, part));
    }
    sums
}

fn add(sum: &mut DirectionCounts, part: &DirectionCounts) {
    sum.bytes += part.bytes;
    sum.ios += part.ios;
    sum.latency.merge(&part.latency);
}
