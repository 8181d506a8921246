//! Parts on another node's flash, and parts that are left on this one's.
//!
//! With a partner each part is copied from this rank's directory to one of the same name in the partner's fast directory,
//! which this node reaches by a path (NFS, NVMe over Fabrics, an export of `volume export`). It is an ordinary job of the
//! mover: hidden until it is whole, synced, and read back. Once the part is durable on the slow tier its copy there is removed.
//!
//! So what a node has on its flash is the same for its own ranks and for those whose partner it is: directories of ranks with
//! parts in them. [`drain_left`] drains what of it is not on the slow tier. Which rank it was, and of which set, the names tell.
//! A part that its own node and its partner drain at once is stored once: the second finds an equal one.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::files::{is_directory, same, tier};
use super::{GoOn, Member, SLICE, Store, StoreConfig};
use crate::mover::Mover;
use stage::calls;
use stage::error::StageError;
use stage::job::{JobId, JobStatus};
use stage::names::PathText;
use stage::owned;
use stage::parts::{PartId, RunId, SetId};
use stage::spec::{JobSpec, Level, Options, Place, Verb};

/// This rank's directory on its partner's flash.
#[derive(Debug)]
pub(super) struct Partner {
    path: PathBuf,
    directory: OwnedFd,
}

impl Partner {
    /// Opens it, and makes this rank's directory there.
    ///
    /// # Errors
    /// [`StageError::Invalid`] if it is `node`, the fast directory of this node itself.
    pub(super) fn open(config: &mut StoreConfig, node: Option<&Path>) -> Result<Option<Self>, StageError> {
        let (Some(member), Some(node), false) = (&mut config.member, node, config.read_only) else {
            return Ok(None);
        };
        let Some(partner) = &mut member.partner else { return Ok(None) };
        *partner = super::absolute(partner)?;
        let failed = |error| StageError::io("stat", partner, error);
        let (there, here) = (tier("partner", partner, true, false)?, tier("fast", node, true, false)?);
        if same(&there, &here).map_err(failed)? {
            return Err(StageError::invalid(
                format!("partner {}: is this node's own fast directory", stage::error::shown(partner)),
                "name that of another node",
            ));
        }
        let path = partner.join(member.part.to_string());
        let directory = tier("partner", &path, false, false)?;
        Ok(Some(Self { path, directory }))
    }
}

impl Store {
    /// Has a part copied to the partner's flash, if there is a partner.
    pub(super) fn keep_at_partner(&self, mover: &Mover, name: &OsStr) -> Result<(), StageError> {
        let Some(partner) = &self.partner else { return Ok(()) };
        let options = Options {
            digest: self.config.options.digest,
            preserve: self.config.options.preserve,
            priority: self.config.options.priority.saturating_add(1),
            ..Options::default()
        };
        let id = mover.submit_drain(JobSpec {
            verb: Verb::Copy,
            source: Place::Path(PathText(self.config.fast.join(name))),
            destination: Place::Path(PathText(partner.path.join(name))),
            options,
        })?;
        self.locked().kept.insert(name.to_owned(), id);
        Ok(())
    }

    /// Finds the copies at the partner that the journal knows.
    pub(super) fn know_kept(&self, jobs: &[JobStatus]) {
        let Some(partner) = &self.partner else { return };
        let mut inner = self.locked();
        for job in jobs {
            if let Some(path) = job.spec.destination.path()
                && path.parent() == Some(&partner.path)
                && let Some(name) = path.file_name()
            {
                inner.kept.insert(name.to_owned(), job.id);
            }
        }
    }

    /// Removes the copies at the partner of parts that are durable on the slow tier by now.
    pub(super) fn release_partner(&self, mover: &Mover) -> Result<(), StageError> {
        let Some(partner) = &self.partner else { return Ok(()) };
        let kept = self.locked().kept.clone();
        if kept.is_empty() {
            return Ok(());
        }
        let jobs = mover.journal().jobs()?;
        for (name, id) in kept {
            let place = self.slow.place(&name);
            let is_durable = |level: Level| level == Level::Durable;
            if !jobs.iter().any(|job| job.spec.destination == place && is_durable(job.level)) {
                continue;
            }
            let Some(job) = jobs.iter().find(|job| job.id == id) else { continue };
            if job.state.is_final() {
                if let Some(made) = &job.part_id {
                    let left = owned::discard(&partner.directory, &name, &partner.path, Some(made))?;
                    if let Some(note) = left.note(&partner.path.join(&name)) {
                        tracing::warn!("{note}");
                    }
                }
            } else if let Err(error) = mover.cancel(id) {
                // It has ended since, and goes the next time.
                tracing::info!(job = id, %error, "a copy at the partner that is not needed is still there");
                continue;
            }
            self.locked().kept.remove(&name);
        }
        Ok(())
    }

    /// Waits until the part of a step is on the partner's flash, durable and read back. False if the time is up before.
    ///
    /// # Errors
    /// [`StageError::Invalid`] if the store has no partner, or no such part; the copy's failure; what `go_on` says.
    pub fn wait_partner(
        &self,
        step: u64,
        most: Option<Duration>,
        go_on: GoOn<'_>,
    ) -> Result<bool, StageError> {
        let mover = self.mover()?;
        if self.partner.is_none() {
            return Err(StageError::invalid("this store has no partner", "open it with partner"));
        }
        let kept = self.locked().kept.get(&self.name(step)).copied();
        let until = most.and_then(|most| Instant::now().checked_add(most));
        match kept {
            Some(id) => {
                self.wait_job(&mover, id, until, go_on, &format!("step {step} is not at the partner"))
            }
            // Its copy was removed since, because the part is durable.
            None => self.wait(Some(step), Level::Durable, most, go_on),
        }
    }

    /// The jobs of this store that have not ended.
    fn under_way(&self) -> Result<Vec<JobId>, StageError> {
        let jobs = self.mover()?.status(None)?;
        Ok(jobs.into_iter().filter(|job| !job.state.is_final()).map(|job| job.id).collect())
    }
}

/// What [`drain_left`] has found in one rank's directory.
#[derive(Debug)]
pub struct LeftBehind {
    /// Which part its sets have there.
    pub part: PartId,
    /// Sets whose part is there and on the slow tier.
    pub durable: Vec<SetId>,
    /// Sets whose part is not on the slow tier, and why.
    pub failed: Vec<(SetId, String)>,
    /// Why nothing was looked at: a process writes to the directory.
    pub busy: Option<String>,
}

/// Drains the parts that are left on a node's flash: those of ranks that ran there, and those that it keeps as a partner. To be
/// called before ranks of a new launch open their stores there, or afterwards: directories that are open are left out. `config`
/// is a store's, with the node's directory as `fast`; its member is not looked at.
///
/// # Errors
/// The directory's; the slow tier's; what `go_on` says.
pub fn drain_left(config: &StoreConfig, node: &str, go_on: GoOn<'_>) -> Result<Vec<LeftBehind>, StageError> {
    let directory = tier("fast", &config.fast, true, false)?;
    let names = calls::list(directory.as_fd())
        .map_err(|error| StageError::io("read the directory", &config.fast, error))?;
    let mut parts: Vec<PartId> = names
        .iter()
        .filter(|(name, _)| is_directory(&directory, name))
        .filter_map(|(name, _)| PartId::of_name(name))
        .collect();
    parts.sort_unstable();
    parts.into_iter().map(|part| drain_one(config, part, node, go_on)).collect()
}

/// A run that no launch has: all sets of the directory are of earlier ones.
fn no_run() -> Result<RunId, StageError> {
    "0-left-behind".parse()
}

fn drain_one(
    config: &StoreConfig,
    part: PartId,
    node: &str,
    go_on: GoOn<'_>,
) -> Result<LeftBehind, StageError> {
    let mut left = LeftBehind { part, durable: Vec::new(), failed: Vec::new(), busy: None };
    let member = Member { run: no_run()?, part, node: node.to_owned(), partner: None };
    let store = match Store::open(StoreConfig { member: Some(member), ..config.clone() }) {
        Err(StageError::Refused { what, .. }) => {
            left.busy = Some(what);
            return Ok(left);
        }
        store => store?,
    };
    while !store.under_way()?.is_empty() {
        go_on()?;
        std::thread::sleep(SLICE);
    }
    let jobs = store.mover()?.status(None)?;
    let names = calls::list(store.fast.as_fd())
        .map_err(|error| StageError::io("read the directory", &store.config.fast, error))?;
    for (name, id) in names.iter().filter_map(|(name, _)| Some((name, SetId::of_name(name)?))) {
        if store.slow.has(name)? {
            left.durable.push(id);
        } else {
            let place: OsString = store.config.fast.join(name).into();
            let why = jobs.iter().rev().find(|job| job.spec.source.path() == Some(Path::new(&place)));
            let why = why.and_then(|job| job.error.as_ref().map(|why| why.message.clone()));
            left.failed.push((id, why.unwrap_or_else(|| "its set was removed".to_owned())));
        }
    }
    left.durable.sort();
    Ok(left)
}
