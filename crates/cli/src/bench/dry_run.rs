//! `bench --dry-run`: what would run, and on what. Nothing is opened for writing, made or changed.

use std::path::Path;

use bench::acts::Act;
use storage::device::DeviceSpec;

use super::aside;
use super::request::{self, Job, Missing, Request};

/// The groups, their jobs, and what would be done to each target first.
pub fn text(request: &Request) -> String {
    let several = request.groups.len() > 1;
    let mut text = String::new();
    for (number, group) in request.groups.iter().enumerate() {
        if several {
            let jobs = match group.len() {
                1 => "1 job".to_owned(),
                n => format!("{n} jobs at once"),
            };
            text += &format!("group {}: {jobs}\n", number + 1);
        }
        for job in group {
            let name = if job.name.is_empty() { "bench" } else { &job.name };
            text += &format!(
                "{name}: {}, {}, {}\n",
                job.workload.summary(),
                job.act().map_or(job.workload.ioengine.word(), Act::word),
                end(job)
            );
            text += &format!("  on {}{}\n", job.target, state(job));
            text += &logs(job);
        }
    }
    for note in request::notes(request) {
        text += &format!("note: {note}\n");
    }
    text += "nothing was changed\n";
    text
}

/// The logs that it would leave.
fn logs(job: &Job) -> String {
    let files = job.fio.iter().flat_map(|fio| fio.log_files()).flatten();
    let names: Vec<String> = files.map(|(path, _)| path.display().to_string()).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!("  logs to {one}\n"),
        [first, .., last] => format!("  logs to {first} … {last} ({} files)\n", names.len()),
    }
}

/// When the job ends.
fn end(job: &Job) -> String {
    let w = &job.workload;
    let mut ends = Vec::new();
    if let Some(runtime) = w.runtime {
        let how = if w.time_based { "for" } else { "for at most" };
        ends.push(format!("{how} {}", units::seconds(runtime)));
    }
    if !w.time_based {
        let amount = match w.io_size.or(w.size) {
            Some(bytes) => units::bytes(bytes),
            None => "its target once".to_owned(),
        };
        let times = if w.loops > 1 { format!(" {} times", w.loops) } else { String::new() };
        ends.push(match job.fio.as_ref().and_then(|fio| fio.conduct.steady_writes) {
            Some(plan) => {
                let factor = 1.0 + plan.over_provisioning;
                format!("until the steady state of random writes, {factor} times {amount}{times}")
            }
            None => format!("until each copy moved {amount}{times}"),
        });
    }
    if let Some(requests) = w.number_ios {
        ends.push(format!("at most {requests} requests"));
    }
    if let Some(steady) = job.fio.as_ref().and_then(|fio| fio.conduct.steady) {
        ends.push(format!("or once it is steady ({})", aside::limit(&steady)));
    }
    if let Some(floor) = job.fio.as_ref().and_then(|fio| fio.conduct.floor) {
        let option = if floor.bytes == [0; 3] { "rate_iops_min" } else { "rate_min" };
        ends.push(format!("fails below {option}"));
    }
    ends.join(", ")
}

/// What would be done with names that are there or are not.
fn acts(act: Act) -> &'static str {
    match act {
        Act::Names(operation) if operation.is_made_ready() && operation.is_once() => {
            ", which would be made first and must not be there"
        }
        Act::Names(operation) if operation.is_made_ready() => {
            ", of which those that are missing would be made"
        }
        Act::Names(_) => ", which must not be there",
        Act::Nothing | Act::Compute | Act::Fault | Act::OnFile(_) => "",
    }
}

/// What is there, and what would be done about it.
fn state(job: &Job) -> String {
    if let Some(act) = job.act_alone() {
        return acts(act).to_owned();
    }
    let Ok(spec) = DeviceSpec::parse(&job.target) else { return String::new() };
    let Some(path) = spec.path() else { return String::new() };
    if Path::new(path).exists() {
        let would = if job.workload.rw.modifies() { ", whose contents it changes" } else { "" };
        return would.to_owned();
    }
    match job.missing {
        Missing::Make(bytes) => format!(", which would be made with {}", units::bytes(bytes)),
        Missing::Lay(bytes) => {
            format!(", which would be made with {} and written in full first", units::bytes(bytes))
        }
        Missing::Refuse => ", which does not exist".to_owned(),
    }
}
