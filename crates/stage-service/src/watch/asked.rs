//! Which jobs of a journal are those of a semaphore.
//!
//! Checkpoints that follow one another have files of the same names and sizes, so that an equal request proves nothing. A job
//! counts if this state of the semaphore asked for it, or an earlier state of the same file, which was touched since
//! (touch(1)). But if all of the set was moved for earlier states, and a source is there again, then the semaphore was written
//! anew where it lay, asks for the next set, and none counts.

use std::collections::HashMap;

use super::has_moved;
use stage::job::{JobStatus, State};
use stage::semaphore::Identity;
use stage::spec::{JobSpec, Place};

/// The newest job of each request of a semaphore.
pub struct Asked<'a> {
    newest: Vec<Option<&'a JobStatus>>,
    by: Identity,
    /// All was moved for earlier states: it asks for the next set.
    is_next_set: bool,
}

impl<'a> Asked<'a> {
    /// Those of the requests of a semaphore in this state, among all that are known. The set `may_be_finished` if none of its
    /// sources is there: then no next set can be meant.
    pub fn find(specs: &[JobSpec], known: &'a [JobStatus], by: Identity, may_be_finished: bool) -> Self {
        let mut jobs: HashMap<[&Place; 2], Vec<&'a JobStatus>> = HashMap::new();
        for job in known {
            jobs.entry([&job.spec.source, &job.spec.destination]).or_default().push(job);
        }
        let newest = specs.iter().map(|spec| {
            let same = jobs.get(&[&spec.source, &spec.destination])?;
            same.iter().rev().find(|job| job.spec.is_same_request(spec)).copied()
        });
        let newest: Vec<Option<&JobStatus>> = newest.collect();
        let is_earlier = |job: &Option<&JobStatus>| moved_for(*job).is_some_and(|it| it.is_touched(&by));
        let is_next_set = !may_be_finished && newest.iter().all(is_earlier);
        Self { newest, by, is_next_set }
    }

    /// The job of this request that has not ended.
    pub fn under_way(&self, at: usize) -> Option<&'a JobStatus> {
        self.newest[at].filter(|job| !job.state.is_final())
    }

    /// The job that has failed when its copy was whole and its source, or its semaphore, was to go. If the source has gone, it
    /// goes on.
    pub fn left_over(&self, at: usize) -> Option<&'a JobStatus> {
        self.newest[at].filter(|job| job.state == State::Failed && job.level.is_committed())
    }

    /// The job that has made the copy of this request's source for the semaphore.
    pub fn moved(&self, at: usize) -> Option<&'a JobStatus> {
        self.newest[at].filter(|job| {
            let counts = |it: Identity| it == self.by || it.is_touched(&self.by) && !self.is_next_set;
            moved_for(Some(job)).is_some_and(counts)
        })
    }
}

/// The state of the semaphore that asked for a job, if that has done what it was to do.
fn moved_for(job: Option<&JobStatus>) -> Option<Identity> {
    Some(job.filter(|job| has_moved(job))?.spec.options.semaphore.as_ref()?.identity)
}
