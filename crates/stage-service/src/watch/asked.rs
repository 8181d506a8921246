//! Which jobs of a journal are those of a semaphore.
//!
//! Checkpoints that follow one another have files of the same names and sizes, so that a job of the same request may be that
//! of the set before. A job is a semaphore's if it was asked for by this state of it. Who wants it looked at again touches it:
//! then what was moved for the states before counts as well, unless all of the set was moved for them and some of it is there
//! again, because then the semaphore was written anew where it lay and asks for another set.

use std::collections::HashMap;

use super::has_moved;
use stage::job::JobStatus;
use stage::semaphore::Identity;
use stage::spec::{JobSpec, Place};

/// The newest job of each request of a semaphore.
pub struct Asked<'a> {
    newest: Vec<Option<&'a JobStatus>>,
    by: Identity,
    /// All was moved for earlier states, and more is asked for.
    is_over: bool,
}

impl<'a> Asked<'a> {
    /// Those of the requests of a semaphore in this state, among all that are known. Nothing of another set can be meant where
    /// `nothing_is_there` and the semaphore goes with its set.
    pub fn find(specs: &[JobSpec], known: &'a [JobStatus], by: Identity, nothing_is_there: bool) -> Self {
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
        let is_over = !nothing_is_there && newest.iter().all(is_earlier);
        Self { newest, by, is_over }
    }

    /// The job of this request that has not ended.
    pub fn under_way(&self, at: usize) -> Option<&'a JobStatus> {
        self.newest[at].filter(|job| !job.state.is_final())
    }

    /// The job that has made the copy of this request's source for the semaphore.
    pub fn moved(&self, at: usize) -> Option<&'a JobStatus> {
        self.newest[at].filter(|job| {
            let counts = |it: Identity| it == self.by || it.is_touched(&self.by) && !self.is_over;
            moved_for(Some(job)).is_some_and(counts)
        })
    }
}

/// The state of the semaphore that asked for a job, if that has done what it was to do.
fn moved_for(job: Option<&JobStatus>) -> Option<Identity> {
    Some(job.filter(|job| has_moved(job))?.spec.options.semaphore.as_ref()?.identity)
}
