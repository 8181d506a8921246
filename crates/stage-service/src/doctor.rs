//! What is stuck, and why: a pure function of what can be seen from beside.
//!
//! [`scene_of`] gathers a [`Scene`]: the jobs, the room where they are going, the file system of the journal, parts that lie
//! beside destinations. [`diagnose`] judges it and touches nothing, so that every verdict has a test. Both work with
//! the rights of the process that asks: in a server, of the server's user.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use stage::error::{Cause, RETRY, shown};
use stage::job::{JobId, JobStatus, Remedy, State};
use stage::names::{PathText, is_part};
use storage::fs_type;

use crate::commands;

/// Directories that are looked at for parts, and names in each; beyond that a doctor would be a burden.
const DIRECTORIES: usize = 64;
const NAMES: usize = 10_000;
/// A clock that is slow by less than this is called right.
const CLOCK_S: u64 = 60;

/// Something that keeps a job from its end, or might.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Finding {
    /// A word that stays the same, for programs: `no-space`, `fsync-failed`.
    pub code: String,
    /// The job, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Nothing gets on before it is put right.
    pub stuck: bool,
    /// What is the matter, one line.
    pub what: String,
    /// Why, as far as can be seen from here.
    pub why: String,
    /// What to do about it.
    #[serde(rename = "do")]
    pub remedy: String,
    /// The file or directory, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathText>,
}

/// Why, and what to do about it, with [`RETRY`] where a job is to be begun again.
fn why_and_remedy(cause: Cause) -> (&'static str, &'static str) {
    match cause {
        Cause::NoSpace => (
            "the destination's file system or the quota on it is full; what was copied is kept",
            "make room (df, quota), then: stage retry",
        ),
        Cause::FsyncFailed => (
            "the kernel could not make written data durable, and has dropped it; the source is where it was",
            "look into the kernel's log (dmesg) for the device, mend that, then: stage retry",
        ),
        Cause::VerificationFailed => (
            "what was read back around the cache is not what was written: the medium or the way to it is at fault",
            "do not trust the destination's device: check it (smartctl, the kernel's log); the source has been kept",
        ),
        Cause::SourceChanged => (
            "the source was written to, replaced or removed while it was copied",
            "let the writer finish before it asks (a semaphore after its fsync), then: stage retry",
        ),
        Cause::Permission => (
            "jobs run with the rights of the user who asked for them, and those do not suffice",
            "ask as a user who may read the source (and remove it, for a move) and write the destination",
        ),
        Cause::ReadOnly => (
            "the destination's file system is mounted read-only, perhaps by the kernel after an error",
            "look into the kernel's log (dmesg), mount it for writing, then: stage retry",
        ),
        Cause::SourceCorrupt => (
            "the source is a set that is not what its manifest says: it was changed, or rotted, where it lies",
            "bring it from another copy; flashwright stage verify names all that differs",
        ),
        Cause::DestinationExists => (
            "a destination is never overwritten",
            "move away what is there, then: stage retry; or ask for another name",
        ),
        Cause::Request => {
            ("the request itself is at fault, and fails each time", "ask for what is meant instead")
        }
        Cause::Busy => ("a server had all that it may have", "wait, then: stage retry"),
        Cause::Other => ("a system call, a store or the journal failed", "mend that, then: stage retry"),
    }
}

/// Room at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes free to this user.
    pub bytes: u64,
    /// Files that can still be made; none where the file system does not count them.
    pub files: Option<u64>,
}

/// Why no server has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoServer {
    /// None is there.
    NoAnswer(String),
    /// None was asked, because what a socket would be found by is not safe. One may be running.
    NotAsked {
        /// What is not safe.
        why: String,
        /// What to do about it.
        remedy: String,
    },
}

/// What can be seen.
#[derive(Debug, Clone, Default)]
pub struct Scene {
    /// Seconds since 1970.
    pub now: u64,
    /// The state directory.
    pub state: PathBuf,
    /// Its file system, where that is one that the journal does not belong on, and why.
    pub state_on: Option<(&'static str, &'static str)>,
    /// The room there.
    pub state_room: Option<Room>,
    /// Why no server has answered; None if one has.
    pub no_server: Option<NoServer>,
    /// All jobs.
    pub jobs: Vec<JobStatus>,
    /// They belong to a command without a server: it has no numbers for them, and goes on with them when it is given again.
    pub of_command: bool,
    /// The process that is at work on them, if they belong to a command.
    pub at_work: Option<String>,
    /// Jobs of commands without a server in this state directory, whose parts are theirs.
    pub jobs_of_commands: Vec<JobStatus>,
    /// Room where open jobs are going.
    pub rooms: BTreeMap<JobId, Room>,
    /// Parts beside the destinations of jobs.
    pub parts: Vec<PathBuf>,
}

/// Judges the jobs of a command without a server, which are in a journal of its own. `at_work` names the process of the
/// command if it runs.
#[must_use]
pub fn of_command(jobs: Vec<JobStatus>, at_work: Option<String>) -> Vec<Finding> {
    let scene = Scene { now: stage::runner::now(), jobs, of_command: true, at_work, ..Scene::default() };
    scene.jobs.iter().flat_map(|job| one_job(&scene, job)).collect()
}

/// An eviction without a job was interrupted in this directory.
#[must_use]
pub fn of_eviction(directory: &Path) -> Finding {
    finding(
        "eviction-interrupted",
        true,
        format!("a removal of old sets in {} was interrupted", shown(directory)),
        "a set there may have lost its name (.NAME.UUID.part), or be removed in part",
        "give the same command again, which gives the set its name back or finishes: flashwright stage evict",
    )
}

/// Looks at all of it. What cannot be looked at is left out.
#[must_use]
pub fn scene_of(state: &Path, jobs: Vec<JobStatus>) -> Scene {
    let mut rooms = BTreeMap::new();
    let mut directories = BTreeSet::new();
    for job in &jobs {
        let Some(parent) = job.spec.destination.path().and_then(Path::parent) else { continue };
        if directories.len() < DIRECTORIES {
            directories.insert(parent.to_owned());
        }
        if matches!(job.state, State::Queued | State::Running)
            && let Some(room) = room(parent)
        {
            rooms.insert(job.id, room);
        }
    }
    // The journals of commands are read after the parts are listed: a job is in its journal before it has a part.
    let parts = directories.iter().flat_map(|directory| parts(directory)).collect();
    let of_commands = commands::journals(state).into_iter().filter_map(|(_, jobs)| jobs.ok());
    Scene {
        now: stage::runner::now(),
        state: state.to_owned(),
        state_on: fs_type::at(state).ok().and_then(unfit),
        state_room: room(state),
        no_server: None,
        jobs,
        of_command: false,
        at_work: None,
        jobs_of_commands: of_commands.flatten().collect(),
        rooms,
        parts,
    }
}

/// Room at the nearest ancestor that is there.
fn room(path: &Path) -> Option<Room> {
    let facts = path.ancestors().find_map(|path| rustix::fs::statvfs(path).ok())?;
    Some(Room {
        bytes: facts.f_bavail.saturating_mul(facts.f_frsize),
        files: (facts.f_files > 0).then_some(facts.f_favail),
    })
}

fn parts(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let names = entries.take(NAMES).flatten();
    names.filter(|entry| is_part(&entry.file_name())).map(|entry| entry.path()).collect()
}

/// File systems that a journal does not belong on.
fn unfit(number: u32) -> Option<(&'static str, &'static str)> {
    let far =
        "its locks and its order of writes depend on another host: two servers may take the journal at once";
    Some(match number {
        fs_type::NFS => ("NFS", far),
        fs_type::CIFS | fs_type::SMB2 | fs_type::SMBFS => ("SMB", far),
        fs_type::LUSTRE => ("Lustre", far),
        fs_type::GPFS => ("GPFS", far),
        fs_type::BEEGFS => ("BeeGFS", far),
        fs_type::CEPH => ("Ceph", far),
        fs_type::AFS => ("AFS", far),
        fs_type::NINE_P => ("9P", far),
        fs_type::FUSE => ("FUSE", "what fsync means there is up to a program"),
        fs_type::TMPFS | fs_type::RAMFS => ("memory", "a power cut loses what was accepted"),
        _ => return None,
    })
}

/// Judges what was seen: what is stuck first, and in the order of the jobs.
#[must_use]
pub fn diagnose(scene: &Scene) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(server(scene));
    findings.extend(journal(scene));
    findings.extend(clock(scene));
    for job in &scene.jobs {
        findings.extend(one_job(scene, job));
    }
    findings.extend(left_behind(scene));
    findings.sort_by_key(|finding| !finding.stuck);
    findings
}

fn finding(
    code: &str,
    stuck: bool,
    what: String,
    why: impl Into<String>,
    remedy: impl Into<String>,
) -> Finding {
    let (code, why, remedy) = (code.to_owned(), why.into(), remedy.into());
    Finding { code, job: None, stuck, what, why, remedy, path: None }
}

fn server(scene: &Scene) -> Option<Finding> {
    let open = scene.jobs.iter().filter(|job| !job.state.is_final()).count();
    let (is_absent, why, remedy) = match scene.no_server.clone()? {
        NoServer::NoAnswer(why) => {
            let remedy = "start one: flashwright stage serve, or systemctl --user start flashwright-stage";
            (true, why, remedy.to_owned())
        }
        NoServer::NotAsked { why, remedy } => (false, why, remedy),
    };
    let what = match (is_absent, open) {
        (false, _) => "no server was asked, one may be running".to_owned(),
        (true, 0) => "no server is running".to_owned(),
        (true, _) => format!("no server is running, and {open} jobs wait for one"),
    };
    Some(finding("no-server", is_absent && open > 0, what, why, remedy))
}

fn journal(scene: &Scene) -> Vec<Finding> {
    let mut findings = Vec::new();
    let state = shown(&scene.state);
    if let Some((kind, why)) = scene.state_on {
        let code = if kind == "memory" { "journal-in-memory" } else { "journal-far-away" };
        let what = format!("the journal is on {kind}: {state}");
        findings.push(finding(code, false, what, why, "put it on a local disk: stage serve --state DIR"));
    }
    if scene.state_room.is_some_and(|room| room.bytes < 1 << 20 || room.files == Some(0)) {
        findings.push(finding(
            "journal-no-space",
            true,
            format!("there is no room for the journal: {state}"),
            "a step that is not in the journal is not taken",
            "make room there",
        ));
    }
    findings
}

fn clock(scene: &Scene) -> Option<Finding> {
    let ahead =
        scene.jobs.iter().filter(|job| job.created > scene.now + CLOCK_S).max_by_key(|job| job.created)?;
    Some(Finding {
        job: Some(ahead.id),
        ..finding(
            "clock-jumped",
            false,
            format!("job {} was accepted {} s from now", ahead.id, ahead.created - scene.now),
            "the clock was set back; ages and deadlines are off by that much, moves themselves do not depend on it",
            "check the time service (timedatectl); jobs with --deadline may have to be asked for again",
        )
    })
}

/// Has a newer job moved what another has left?
fn is_moved_anew(job: &JobStatus, newer: &JobStatus) -> bool {
    let is_moved = newer.state == State::Done && !newer.has_left_its_source();
    newer.id > job.id && is_moved && newer.spec.has_places_of(&job.spec)
}

fn one_job(scene: &Scene, job: &JobStatus) -> Vec<Finding> {
    let mut findings = Vec::new();
    let places = format!("{} to {}", job.spec.source.shown(), job.spec.destination.shown());
    let name = || match scene.of_command {
        true => places.clone(),
        false => format!("job {} ({places})", job.id),
    };
    match (job.state, &job.error) {
        (State::Failed, Some(error)) => {
            let cause = error.cause;
            let (why, remedy) = why_and_remedy(cause);
            let own = matches!(cause, Cause::Request | Cause::Other);
            let template = error.hint.as_deref().filter(|_| own).unwrap_or(remedy);
            let retry = if scene.of_command { Remedy::SameCommand } else { Remedy::Retry(job.id) };
            let mut remedy = retry.spell(template);
            // Until it is retried or cancelled, a failed job is kept with what it has copied.
            if scene.of_command {
                let name = job.spec.destination.shown();
                remedy += &format!("; or: flashwright stage cancel {name}, which clears this");
            } else if !template.contains(RETRY) {
                remedy += &format!("; then: flashwright stage cancel {}, which clears this", job.id);
            }
            let what = if job.level.is_committed() {
                format!("{} is {}, but failed after that: {}", name(), job.promise(), error.message)
            } else {
                format!("{} failed: {}", name(), error.message)
            };
            findings.push(finding(cause.word(), true, what, why, remedy));
        }
        (State::Done, Some(_)) if scene.jobs.iter().any(|newer| is_moved_anew(job, newer)) => {}
        (State::Done, Some(error)) => findings.push(finding(
            "copy-lost",
            false,
            format!("{}: {}", name(), error.message),
            "the copy was taken away or changed after it was committed, and the source may be the only one that is whole",
            error.hint.as_deref().unwrap_or("compare the two before anything is removed"),
        )),
        (State::Queued | State::Running | State::Committed, _) if scene.of_command => {
            let destination = job.spec.destination.shown();
            let (why, remedy) = match &scene.at_work {
                Some(process) => (
                    format!("a command without a server is at work on it: {process}"),
                    "wait for that process, or end it: the same command goes on then".to_owned(),
                ),
                None => {
                    let gives_up = match job.state {
                        State::Committed => String::new(),
                        _ => format!("; flashwright stage cancel {destination} gives it up"),
                    };
                    (
                        "the command without a server that was at work on it was interrupted".to_owned(),
                        format!("the same command goes on{gives_up}"),
                    )
                }
            };
            findings.push(finding("not-finished", false, format!("{} is not finished", name()), why, remedy));
        }
        (State::Queued | State::Running, _) => {
            findings.extend(short_of_room(scene, job));
            if let Some(by) = &job.held_back_by {
                findings.push(finding(
                    "held-back",
                    false,
                    format!("{} is held back by {by}", name()),
                    "a limit or a governor was asked for",
                    "nothing, if that is wanted; otherwise ask again with another --bwlimit, --priority or --deadline",
                ));
            }
            if job.spec.options.deadline.is_some_and(|deadline| deadline < scene.now) {
                findings.push(finding(
                    "deadline-missed",
                    false,
                    format!("{} should have been durable by now", name()),
                    "the tiers, or the limits set, were too slow for it",
                    "raise --bwlimit or --priority, or ask earlier",
                ));
            }
        }
        _ => {}
    }
    for finding in &mut findings {
        finding.job = (!scene.of_command).then_some(job.id);
    }
    findings
}

fn short_of_room(scene: &Scene, job: &JobStatus) -> Option<Finding> {
    let room = scene.rooms.get(&job.id)?;
    let missing = job.bytes_total.saturating_sub(job.bytes_written);
    let files = job.files_total.saturating_sub(job.files_done);
    if room.bytes >= missing && room.files.is_none_or(|free| free >= files) {
        return None;
    }
    let what = if room.bytes < missing {
        format!(
            "job {} needs {missing} bytes more, and {} are free at {}",
            job.id,
            room.bytes,
            job.spec.destination.shown()
        )
    } else {
        format!("job {} needs {files} files more than {} has room for", job.id, job.spec.destination.shown())
    };
    let (why, remedy) = ("it will fail when the room is used up", "make room at the destination now");
    Some(finding("room-short", false, what, why, remedy))
}

/// Parts that no job goes on with.
fn left_behind(scene: &Scene) -> Vec<Finding> {
    let wanted = destinations(scene.jobs.iter().chain(&scene.jobs_of_commands));
    let orphans = scene.parts.iter().filter(|part| !is_part_of(part, &wanted));
    orphans
        .map(|part| Finding {
            path: Some(PathText(part.clone())),
            ..finding(
                PART_LEFT,
                false,
                format!("{} belongs to no job of this journal", shown(part)),
                "another server or command is at work on a move or an eviction there, or a move was given up where its part \
                 could not be removed",
                "if no other server or command works there, remove it by hand; one with a manifest may be a set that was \
                 about to be removed: flashwright stage verify reads it",
            )
        })
        .collect()
}

/// The code of a part that belongs to no job.
const PART_LEFT: &str = "part-left";

/// Takes out what a server says of parts that these jobs have: commands without a server may have another state directory.
pub fn leave_out_parts_of(findings: &mut Vec<Finding>, jobs: &[JobStatus]) {
    let wanted = destinations(jobs);
    let is_wanted = |path: &PathText| is_part_of(&path.0, &wanted);
    findings.retain(|finding| finding.code != PART_LEFT || !finding.path.as_ref().is_some_and(is_wanted));
}

/// Where jobs are going that may go on with their parts.
fn destinations<'a>(jobs: impl IntoIterator<Item = &'a JobStatus>) -> BTreeSet<(&'a Path, &'a OsStr)> {
    jobs.into_iter()
        .filter(|job| !matches!(job.state, State::Done | State::Cancelled))
        .filter_map(|job| job.spec.destination.path())
        .filter_map(|path| Some((path.parent()?, path.file_name()?)))
        .collect()
}

fn is_part_of(part: &Path, destinations: &BTreeSet<(&Path, &OsStr)>) -> bool {
    let (Some(directory), Some(name)) = (part.parent(), part.file_name().and_then(whole_name)) else {
        return false;
    };
    destinations.contains(&(directory, name.as_os_str()))
}

/// The name that a part is to have: what stands before the UUID.
fn whole_name(part: &OsStr) -> Option<OsString> {
    let bytes = part.as_bytes();
    let end = bytes.len().checked_sub(".".len() + 32 + ".part".len())?;
    is_part(part).then(|| OsStr::from_bytes(&bytes[1..end]).to_owned())
}

#[cfg(test)]
mod tests;
