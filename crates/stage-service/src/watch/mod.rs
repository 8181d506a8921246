//! Semaphores: an application says that a checkpoint is whole by a file, and what the file vouches for is moved.
//!
//! ```text
//! application   write data, fsync, write the semaphore beside, fsync, rename it into place
//! here          find it ([`finder`]), read what it vouches for ([`set`]), compare, hand the jobs in;
//!               the semaphore goes when all of them are durable, or stays and is remembered
//! ```
//!
//! What was found is kept in memory alone: a semaphore that is still there at the next start is found again. Which jobs are
//! its own the journal says (`asked`), where each job has the semaphore that asked for it.

mod asked;
pub mod finder;
pub mod list;
pub mod pattern;
mod room;
pub mod set;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use self::asked::Asked;
pub use self::finder::{Finder, Found, Timing};
pub use self::pattern::Pattern;
use self::room::Full;
use self::set::Set;
use crate::desk::{Desk, submit_or_retry};
use crate::error::ServiceError;
use stage::calls;
use stage::error::{Cause, StageError};
use stage::job::{JobId, JobStatus, State, Why};
use stage::mounts;
use stage::names::{PathText, joined};
use stage::semaphore::{self, Identity, Removal, Semaphore};
use stage::spec::{JobSpec, Level, Options, Place, Verb};

/// What is done with what semaphores vouch for.
#[derive(Debug, Clone)]
pub struct Orders {
    /// Where it goes: below it each source has the path that it has below the watched directory.
    pub to: Place,
    /// Whether what is vouched for stays (a copy) or goes (a move).
    pub verb: Verb,
    /// How it is moved.
    pub options: Options,
    /// The semaphore stays; a set whose destination is there and right is not moved again.
    pub keep_trigger: bool,
    /// What a semaphore holds is a list.
    pub lists: bool,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Happened {
    /// A set was handed in.
    Submitted {
        /// Its semaphore, relative to the watched directory.
        trigger: PathBuf,
        /// Its jobs.
        jobs: Vec<JobId>,
    },
    /// All of a set is durable.
    Durable {
        /// Its semaphore.
        trigger: PathBuf,
        /// Its jobs, as they ended.
        jobs: Vec<JobStatus>,
    },
    /// The set is at its destination already.
    AlreadyThere {
        /// Its semaphore.
        trigger: PathBuf,
    },
    /// A job of a set failed, was cancelled, or its copy is not durable; the semaphore stays.
    Failed {
        /// Its semaphore.
        trigger: PathBuf,
        /// The job.
        job: JobId,
        /// How it ended: only one that failed can be retried.
        state: State,
        /// Why.
        why: Why,
    },
    /// A semaphore that nothing was done about; it is looked at again when it changes.
    Refused {
        /// Which.
        trigger: PathBuf,
        /// Why.
        why: Why,
    },
    /// What is worth knowing.
    Note(String),
}

static NEVER: AtomicBool = AtomicBool::new(false);

/// Tells whether what a request asks for is at its destination, whole and right; the jobs are all that are known.
pub type Check<'a> = dyn Fn(&JobSpec, &[JobStatus]) -> Result<bool, StageError> + 'a;

/// A directory whose semaphores are obeyed.
pub struct Watch<'a> {
    finder: Finder,
    pattern: Pattern,
    orders: Orders,
    desk: &'a dyn Desk,
    check: &'a Check<'a>,
    stop: &'a AtomicBool,
    /// By semaphore. One that was replaced has an entry for each state that was read.
    under_way: BTreeMap<PathBuf, Vec<UnderWay>>,
    failures: u64,
    /// Happened before an error, and not returned yet.
    early: Vec<Happened>,
    /// The server had no room when it was asked last.
    full: Option<Full>,
}

/// What of a set was handed in.
struct Handed {
    jobs: Vec<JobId>,
    /// The server had no room for the others.
    full: Option<StageError>,
}

#[derive(Debug)]
struct UnderWay {
    identity: Identity,
    jobs: Vec<JobId>,
    /// All of the set is handed in.
    is_whole: bool,
    /// Those that have moved their sources, as they ended.
    moved: BTreeMap<JobId, JobStatus>,
    /// Of each job that has not, the end that was told: one that is retried has another.
    reported: BTreeMap<JobId, (u32, State)>,
    /// Jobs that have not ended.
    open: usize,
}

impl<'a> Watch<'a> {
    /// Watches `root`. `check` is asked for sets that were moved before, where semaphores stay.
    ///
    /// # Errors
    /// The directory cannot be opened. [`StageError::Refused`] for a destination in memory, where nothing becomes durable.
    pub fn new(
        root: &Path,
        pattern: Pattern,
        timing: Timing,
        orders: Orders,
        desk: &'a dyn Desk,
        check: &'a Check<'a>,
    ) -> Result<Self, StageError> {
        let root = std::path::absolute(root).map_err(|error| StageError::io("find it", root, error))?;
        let to = mounts::of_place(&orders.to, false);
        mounts::check_durable(&orders.to, to.as_ref(), "a semaphore asks for a durable copy")?;
        let finder = Finder::new(&root, pattern.clone(), timing)?;
        Ok(Self {
            finder,
            pattern,
            orders,
            desk,
            check,
            stop: &NEVER,
            under_way: BTreeMap::new(),
            failures: 0,
            early: Vec::new(),
            full: None,
        })
    }

    /// Breaks off what takes long, the digests of a set's files, once `stop` is set. The set is found again.
    #[must_use]
    pub fn until(self, stop: &'a AtomicBool) -> Self {
        Self { stop, ..self }
    }

    /// How many sets are under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.values().flatten().filter(|set| set.open > 0).count()
    }

    /// How often something was refused or failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Nothing is left to be done about what is there now.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.finder.is_quiet() && self.under_way() == 0
    }

    /// Looks for semaphores for as long as `most`, hands in what they ask for, and tells what has become of earlier ones.
    ///
    /// # Errors
    /// The directory cannot be read any more; the server is not there ([`is_gone`]): call again later, nothing is
    /// lost.
    pub fn step(&mut self, most: Duration) -> Result<Vec<Happened>, StageError> {
        let mut happened = std::mem::take(&mut self.early);
        let mut found = self.finder.next(most)?.into_iter();
        happened.extend(self.finder.notes().into_iter().map(Happened::Note));
        while let Some(one) = found.next() {
            if self.full.as_ref().is_some_and(Full::lasts) {
                self.finder.requeue(&one.path);
                continue;
            }
            let began = Instant::now();
            match self.obey(&one) {
                // Of one that is being written the server was not asked.
                Ok(None) => {}
                Ok(Some(obeyed)) => {
                    self.full = None;
                    happened.push(obeyed);
                }
                // Whatever was broken off says nothing of the semaphore. It is found again.
                Err(_) if self.stop.load(Ordering::Relaxed) => self.finder.requeue(&one.path),
                Err(error) if is_gone(&error) => {
                    // The server is gone: semaphores wait where they are.
                    for waiting in std::iter::once(one).chain(found) {
                        self.finder.requeue(&waiting.path);
                    }
                    self.early.append(&mut happened);
                    return Err(error);
                }
                Err(error) if ServiceError::is_busy(&error) => {
                    self.finder.requeue(&one.path);
                    if self.full.is_none() {
                        happened.push(Happened::Note(format!("{error}; the watch waits for room")));
                    }
                    self.full = Some(Full::after(self.full.as_ref(), began.elapsed()));
                }
                Err(error) => {
                    self.failures += 1;
                    happened.push(Happened::Refused { trigger: one.path, why: Why::of(&error) });
                }
            }
            if self.stop.load(Ordering::Relaxed) {
                found.by_ref().for_each(|waiting| self.finder.requeue(&waiting.path));
            }
        }
        if let Err(error) = self.follow(&mut happened) {
            self.early.append(&mut happened);
            return Err(error);
        }
        Ok(happened)
    }

    /// None if the semaphore is being written or has changed, or if the watch is to stop: then it is found again.
    fn obey(&mut self, found: &Found) -> Result<Option<Happened>, StageError> {
        let Some(set) = self.read(found)? else { return Ok(None) };
        let trigger = found.path.clone();
        let specs = self.specs(&set, found)?;
        let known = match self.stays(&set) {
            true => self.desk.known_to(&self.finder.root().join(&found.path))?,
            false => self.desk.status(None)?,
        };
        // What was handed in of it before there was no room, and has failed since, is told, and is not begun again meanwhile.
        let begun = self.begun_in_part(found).map_or(&[][..], |set| &set.jobs);
        let has_failed = |job: &JobStatus| job.state.is_final() && !has_moved(job);
        if known.iter().any(|job| begun.contains(&job.id) && has_failed(job)) {
            return Ok(None);
        }
        let mut lacking = None;
        if self.orders.keep_trigger {
            let Some(first) = self.first_not_there(&specs, &known)? else {
                return Ok(Some(Happened::AlreadyThere { trigger }));
            };
            lacking = Some(first.destination.shown());
        }
        let absent: Vec<bool> = set.sources.iter().map(|source| self.is_absent(source)).collect();
        let may_be_finished = !absent.contains(&false);
        let asked = Asked::find(&specs, &known, found.identity, may_be_finished);
        let gone = |at: usize| asked.moved(at).or_else(|| asked.left_over(at)).filter(|_| absent[at]);
        let earlier: Vec<Option<&JobStatus>> =
            (0..specs.len()).map(|at| asked.under_way(at).or_else(|| gone(at))).collect();
        for ((source, spec), job) in set.sources.iter().zip(&specs).zip(&earlier) {
            // A committed job may have removed part of its source; and what this same state asked for was compared then.
            if job.is_some_and(|job| job.level.is_committed() || is_asked_by(job, spec)) {
                continue;
            }
            let Err(wrong) = set.check(self.finder.root_fd().as_fd(), &found.path, source, self.stop) else {
                continue;
            };
            if self.stop.load(Ordering::Relaxed) {
                self.finder.requeue(&found.path);
                return Ok(None);
            }
            match job {
                Some(job) if self.has_taken(job.id, source)? => {}
                _ => return Err(wrong),
            }
        }
        // Last, because digests take their time, and jobs go by the path of the directory.
        self.finder.check_root()?;
        // After a crash between the end of the jobs and the end of the semaphore.
        let moved = |job: &Option<&JobStatus>| job.filter(|job| has_moved(job)).cloned();
        if let Some(jobs) = earlier.iter().map(moved).collect() {
            if let Some(lacking) = lacking {
                return Err(StageError::refused(
                    format!("{lacking}: was moved there, and is not there any more"),
                    "bring back what is missing; the semaphore is looked at again when it changes",
                ));
            }
            self.remove(&found.path, found.identity)?;
            return Ok(Some(Happened::Durable { trigger, jobs }));
        }
        let Handed { jobs, full } = self.hand_in(&set, specs, &earlier, &known)?;
        let under_way = UnderWay {
            identity: found.identity,
            open: jobs.len(),
            jobs: jobs.clone(),
            is_whole: full.is_none(),
            moved: BTreeMap::new(),
            reported: BTreeMap::new(),
        };
        let sets = self.under_way.entry(trigger.clone()).or_default();
        // The same jobs: the server was away for a time, or the semaphore was replaced. Or some of them: it had no room.
        sets.retain(|set| set.jobs != jobs && (set.is_whole || set.identity != found.identity));
        sets.push(under_way);
        full.map_or(Ok(Some(Happened::Submitted { trigger, jobs })), Err)
    }

    /// What was handed in of this state of a semaphore, if that was not all.
    fn begun_in_part(&self, found: &Found) -> Option<&UnderWay> {
        let mut sets = self.under_way.get(&found.path)?.iter();
        sets.find(|set| !set.is_whole && set.identity == found.identity)
    }

    /// Hands in the jobs of a set, but for those that have moved their sources, and those that this state of the semaphore has
    /// asked for. One that is under way for another state is handed in again: it is the same job, and the journal has the
    /// new state from then on. If one is refused, those that were begun here are given up: a set moves as a whole. If there is
    /// no room for one, those that were begun go on.
    fn hand_in(
        &self,
        set: &Set,
        specs: Vec<JobSpec>,
        earlier: &[Option<&JobStatus>],
        known: &[JobStatus],
    ) -> Result<Handed, StageError> {
        let (stays, mut jobs) = (self.stays(set), Vec::new());
        // What the first look at one of several requests refuses would come when others are at work, or done.
        if specs.len() > 1 {
            let mut new = specs.iter().zip(earlier).filter(|(_, job)| job.is_none());
            new.try_for_each(|(spec, _)| stage::runner::check_request(spec))?;
        }
        for ((spec, job), source) in specs.into_iter().zip(earlier).zip(&set.sources) {
            let id = match job {
                Some(job) if has_moved(job) || !job.state.is_final() && is_asked_by(job, &spec) => Ok(job.id),
                job => submit_or_retry(self.desk, spec, known).or_else(|error| match job {
                    Some(job) if stays && self.has_taken(job.id, source)? => Ok(job.id),
                    _ => Err(error),
                }),
            };
            match id {
                Ok(id) => jobs.push(id),
                Err(error) if is_gone(&error) => return Err(error),
                Err(error) if ServiceError::is_busy(&error) => return Ok(Handed { jobs, full: Some(error) }),
                Err(error) => {
                    for (id, _) in jobs.into_iter().zip(earlier).filter(|(_, job)| job.is_none()) {
                        // One that is done already counts as moved when the semaphore is looked at again.
                        let _ = self.desk.cancel(id);
                    }
                    return Err(error);
                }
            }
        }
        Ok(Handed { jobs, full: None })
    }

    /// Has a job, which was under way a moment ago, moved its source since, so that it cannot be asked for any more?
    fn has_taken(&self, id: JobId, source: &set::Source) -> Result<bool, StageError> {
        let now = self.desk.status(Some(id))?;
        let has_moved = now.iter().any(|now| now.state == State::Committed || has_moved(now));
        Ok(has_moved && self.is_absent(source))
    }

    /// Is nothing of a source there? What cannot be looked at may be there. A directory of which a list names files may hold
    /// others, which came since.
    fn is_absent(&self, source: &set::Source) -> bool {
        let is_absent = |path: &Path| {
            let found = set::find(self.finder.root_fd().as_fd(), path);
            found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        };
        let mut listed = source.expected.iter().map(|file| joined(&source.path, &file.path.0));
        is_absent(&source.path) || !source.expected.is_empty() && listed.all(|path| is_absent(&path))
    }

    /// What a semaphore asks for; None if it is being written, or is not as it was found.
    fn read(&mut self, found: &Found) -> Result<Option<Set>, StageError> {
        let wrong = |error| StageError::io("read it", &found.path, error);
        let file = match self.finder.open(&found.path) {
            Ok(Some(file)) => file,
            Ok(None) => {
                self.finder.await_close(found);
                return Ok(None);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.finder.settle_again(found);
                return Ok(None);
            }
            // What it holds does not count, and it need not be ours to read.
            Err(error) if !self.orders.lists && error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Set::new(None, &found.path, &self.pattern).map(Some);
            }
            Err(error) => return Err(wrong(error)),
        };
        let list = self.orders.lists.then(|| set::contents(file.as_fd())).transpose().map_err(wrong)?;
        // After it was read, because there may be no leases.
        if Identity::of(&calls::stat(file.as_fd()).map_err(wrong)?) != found.identity {
            self.finder.settle_again(found);
            return Ok(None);
        }
        // A long list takes its time, and others may write meanwhile.
        drop(file);
        Set::new(list.as_deref(), &found.path, &self.pattern).map(Some)
    }

    /// Is the semaphore of a set no affair of its jobs?
    fn stays(&self, set: &Set) -> bool {
        set.sources.len() > 1 || self.orders.keep_trigger
    }

    /// The jobs that a set asks for. The semaphore of a set of one job is that job's affair, so that it goes with the
    /// same certainty as the source of a move.
    fn specs(&self, set: &Set, found: &Found) -> Result<Vec<JobSpec>, StageError> {
        let stays = self.stays(set);
        let spec = |source: &set::Source| {
            let mut options = self.orders.options.clone();
            options.expected.clone_from(&source.expected);
            options.digest = set.algorithm.unwrap_or(options.digest);
            options.semaphore = Some(Semaphore {
                path: PathText(self.finder.root().join(&found.path)),
                identity: found.identity,
                watched: Some(PathText(self.finder.root().to_owned())),
                stays,
            });
            Ok(JobSpec {
                verb: self.orders.verb,
                source: Place::Path(PathText(self.finder.root().join(&source.path))),
                destination: self.orders.to.join(&source.path)?,
                options,
            })
        };
        set.sources.iter().map(spec).collect()
    }

    /// The first of a set's requests of which the copy is not at its destination.
    fn first_not_there<'b>(
        &self,
        specs: &'b [JobSpec],
        known: &[JobStatus],
    ) -> Result<Option<&'b JobSpec>, StageError> {
        for spec in specs {
            if !(self.check)(spec, known)? {
                return Ok(Some(spec));
            }
        }
        Ok(None)
    }

    /// Tells what has become of jobs.
    fn follow(&mut self, happened: &mut Vec<Happened>) -> Result<(), StageError> {
        if self.under_way.is_empty() {
            return Ok(());
        }
        let desk = self.desk;
        let all = match desk.status(None) {
            // All its connections are taken; it is asked again.
            Err(error) if ServiceError::is_busy(&error) => return Ok(()),
            all => all?,
        };
        let mut known: BTreeMap<JobId, JobStatus> = all.into_iter().map(|job| (job.id, job)).collect();
        let mut ended = Vec::new();
        let sets = self
            .under_way
            .iter_mut()
            .flat_map(|(trigger, sets)| sets.iter_mut().map(move |set| (trigger, set)));
        for (trigger, set) in sets {
            set.open = 0;
            for id in &set.jobs {
                if set.moved.contains_key(id) {
                    continue;
                }
                if !known.contains_key(id) {
                    // Many may have ended since, and all of them are not in one answer.
                    match desk.status(Some(*id)) {
                        Err(error) if is_gone(&error) => return Err(error),
                        Err(error) if ServiceError::is_busy(&error) => {}
                        job => known.extend(job.into_iter().flatten().map(|job| (job.id, job))),
                    }
                }
                let Some(job) = known.get(id) else { continue };
                let end = (job.attempts, job.state);
                if has_moved(job) {
                    set.moved.insert(*id, job.clone());
                } else if !job.state.is_final() {
                    set.open += 1;
                } else if set.reported.insert(*id, end) != Some(end) {
                    self.failures += 1;
                    happened.push(failed(trigger, job));
                }
            }
            if set.is_whole && set.moved.len() == set.jobs.len() {
                let jobs: Vec<JobStatus> = set.jobs.iter().filter_map(|id| set.moved.remove(id)).collect();
                ended.push((trigger.clone(), set.identity, jobs));
            }
        }
        for (trigger, identity, jobs) in ended {
            if let Some(sets) = self.under_way.get_mut(&trigger) {
                sets.retain(|set| set.identity != identity);
                if sets.is_empty() {
                    self.under_way.remove(&trigger);
                }
            }
            if jobs.len() > 1
                && !self.orders.keep_trigger
                && let Err(error) = self.remove(&trigger, identity)
            {
                // What it asks for is done, and at the next start it asks again.
                self.failures += 1;
                happened.push(Happened::Refused { trigger: trigger.clone(), why: Why::of(&error) });
            }
            happened.push(Happened::Durable { trigger, jobs });
        }
        Ok(())
    }

    /// Removes a semaphore, durably, if it is the one that was obeyed.
    fn remove(&self, trigger: &Path, identity: Identity) -> Result<(), StageError> {
        let shown = self.finder.root().join(trigger);
        let wrong = |error: std::io::Error| StageError::io("remove the semaphore", &shown, error);
        let directory = match trigger.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => calls::open_beneath(
                self.finder.root_fd().as_fd(),
                parent,
                OFlags::RDONLY | OFlags::DIRECTORY,
                Mode::empty(),
            ),
            None => self.finder.root_fd().try_clone(),
        };
        let directory = match directory {
            // It went with the directory that it vouched for.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(wrong)?,
        };
        let name = trigger.file_name().unwrap_or_default();
        match semaphore::remove(directory.as_fd(), name, &identity).map_err(wrong)? {
            Removal::Removed => calls::sync_outside_move(directory.as_fd()).map_err(wrong),
            // One that replaced it is found by itself.
            Removal::Absent | Removal::Replaced => Ok(()),
        }
    }
}

/// Is the server missing, as opposed to a fault of a job?
#[must_use]
pub fn is_gone(error: &StageError) -> bool {
    ServiceError::is_no_answer(error) || matches!(error, StageError::Journal { .. })
}

/// Is a job done, and its copy durable? One whose copy is in memory is done only.
fn is_durable(job: &JobStatus) -> bool {
    job.state == State::Done && job.level >= Level::Durable
}

/// Was a job asked for by the same state of the same semaphore?
fn is_asked_by(job: &JobStatus, spec: &JobSpec) -> bool {
    job.spec.options.semaphore == spec.options.semaphore
}

/// Is a job done as its semaphore asked for it?
fn has_moved(job: &JobStatus) -> bool {
    is_durable(job) && !job.has_left_its_source()
}

fn failed(trigger: &Path, job: &JobStatus) -> Happened {
    let (message, class) = match job.state {
        State::Done => {
            (format!("{}: {}", job.spec.destination.shown(), job.promise()), stage::ErrorClass::Failed)
        }
        _ => (format!("job {} was cancelled", job.id), stage::ErrorClass::Interrupted),
    };
    let why =
        job.error.clone().unwrap_or(Why { message, hint: None, class, errno: None, cause: Cause::Other });
    Happened::Failed { trigger: trigger.to_owned(), job: job.id, state: job.state, why }
}
