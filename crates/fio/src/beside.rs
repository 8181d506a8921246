//! What the sections of a job file ask for beside their workloads: names of logs, and what does not go together.

use std::collections::HashMap;
use std::path::Path;

use super::draft::Draft;
use super::draft::conduct::LogName;
use super::error::JobFileError;
use super::job::{Group, Job, LogKind};
use bench::acts::Act;
use bench::run::cohorts::{Arrangement, Ends};

/// Refuses names that several sections would make, remove or rely on. Those that are looked up or removed are made
/// before anything runs, so that a section that makes or removes them as well would find them there.
pub(super) fn names_of_several(jobs: &[&Job]) -> Option<JobFileError> {
    let of_names = |job: &&&Job| matches!(job.act, Some(Act::Names(_)));
    let is_once = |job: &Job| matches!(job.act, Some(Act::Names(operation)) if operation.is_once());
    let jobs: Vec<&&Job> = jobs.iter().filter(of_names).collect();
    if jobs.len() < 2 || !jobs.iter().any(|job| is_once(job)) {
        return None;
    }
    let mut owners: HashMap<&Path, &Job> = HashMap::new();
    for job in jobs {
        for path in &job.files {
            let owner = *owners.entry(path).or_insert(job);
            if !std::ptr::eq(owner, *job) && (is_once(owner) || is_once(job)) {
                let reason = format!(
                    "job '{}': {} is a name of job '{}' as well, and one of the two makes or removes it",
                    job.name,
                    path.display(),
                    owner.name
                );
                let hint = "leave filename out: filestat and filedelete make names of their own".to_owned();
                return Some(JobFileError::Syntax { at: job.at.clone(), reason, hint });
            }
        }
    }
    None
}

/// What the jobs of a group cannot do beside each other.
pub(super) fn not_together(group: &Group) -> Vec<JobFileError> {
    let alone = |job: &&Job| job.conduct.steady.is_some() && group.jobs.len() > 1;
    let is_awaited = |place: &usize| group.jobs.iter().any(|job| job.arrangement.after.contains(place));
    let ends_groups = group.jobs.iter().any(|job| job.arrangement.ends == Ends::Group);
    // Those of a flow are measured together, so that nothing may part them.
    let is_beside = |a: &Arrangement, b: &Arrangement| {
        a.after == b.after && a.delay == b.delay && (a.group == b.group || !ends_groups)
    };
    let is_parted = |(place, job): &(usize, &Job)| {
        let Some(flow) = job.conduct.flow else { return false };
        let mut of_flow = group.jobs.iter().filter(|job| job.conduct.flow.is_some_and(|of| of.id == flow.id));
        let is_together = of_flow.next().is_none_or(|first| is_beside(&first.arrangement, &job.arrangement));
        !is_together || job.arrangement.ends != Ends::Nothing || is_awaited(place)
    };
    let error = |job: &Job, key: &str, reason: &str, hint: &str| JobFileError::Syntax {
        at: job.at.clone(),
        reason: format!("job '{}': {key}: {reason}", job.name),
        hint: hint.to_owned(),
    };
    let steady = group.jobs.iter().filter(alone).map(|job| {
        let reason = "a job that ends once it is steady has no other beside it";
        error(job, "steadystate", reason, "write stonewall, and numjobs for copies on one file")
    });
    let flows = group.jobs.iter().enumerate().filter(is_parted).map(|(_, job)| {
        let reason = "jobs of a flow begin together, end by themselves, and none is waited for";
        error(job, "flow", reason, "write the same startdelay and wait_for for all of them, and no exitall")
    });
    steady.chain(flows).collect()
}

/// The logs that a section asks for.
pub(super) fn logs(draft: &Draft, job: &str) -> Vec<(LogKind, String)> {
    let conduct = &draft.conduct;
    let asked = [
        (LogKind::Bandwidth, &conduct.bw_log),
        (LogKind::Latency, &conduct.lat_log),
        (LogKind::Requests, &conduct.iops_log),
    ];
    let name = |name: &LogName| match name {
        LogName::OfJob => job.to_owned(),
        LogName::Given(name) => name.clone(),
    };
    asked.into_iter().filter_map(|(kind, asked)| Some((kind, name(asked.as_ref()?)))).collect()
}
