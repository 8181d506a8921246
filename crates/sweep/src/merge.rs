//! Putting together what several machines measured of one sweep.
//!
//! Each shard is a results file of its own, with its part of the plan at the positions that the whole plan gives
//! it ([`crate::plan`]). Merging makes a results file of all of them, which is then a results file like any other:
//! it is reported, compared, and gone on with where runs are missing.
//!
//! Figures of unlike machines must not be compared as if only the settings differed, so shards are refused that
//!
//! - are not parts of the same sweep: the plan's digest, which covers points, order, seed and number of shards;
//! - come from machines that differ in anything that bears on figures and is no dimension: architecture, CPU,
//!   CPUs, NUMA nodes, memory, hypervisor, kernel, governor, flashwright's version, and the drives below (model
//!   and size of each);
//! - hold different figures for the same step.
//!
//! A shard that is missing, or that is not complete, is said and no reason to refuse. The new file appears under
//! its name only when it is whole and durable.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::plan::{Plan, PlannedRun, Step, StepKind};
use crate::store::{self, Completeness, FILE_NAME, Machine, Meta, NOTE_DRIVES, Store, StoreError};

/// Shards that cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A results file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A sweep that nobody shared.
    #[error("{}: is a whole sweep and no shard of one", path.display())]
    Whole {
        /// The file.
        path: PathBuf,
    },
    /// A shard that is being measured.
    #[error("{}: is still being measured ({holder})", path.display())]
    Running {
        /// The file.
        path: PathBuf,
        /// Who does it.
        holder: String,
    },
    /// Shards of different sweeps.
    #[error("{} and {}: are not shards of one sweep: {}", first.display(), other.display(), differences.join(", "))]
    OtherSweep {
        /// The first file.
        first: PathBuf,
        /// The one that differs.
        other: PathBuf,
        /// What differs, each as `name: first → other`.
        differences: Vec<String>,
    },
    /// Shards of unlike machines.
    #[error("{} and {}: were measured on unlike machines: {}", first.display(), other.display(), differences.join(", "))]
    UnlikeMachines {
        /// The first file.
        first: PathBuf,
        /// The one that differs.
        other: PathBuf,
        /// What differs, each as `name: first → other`.
        differences: Vec<String>,
    },
}

impl MergeError {
    /// What to do about it, where there is something to do.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Whole { .. } => {
                Some("name directories of sweeps that ran with --shard; `sweep diff` compares whole ones")
            }
            Self::Running { .. } => Some("wait for it; a shard that was stopped can be merged as it is"),
            Self::OtherSweep { .. } => {
                Some("run all shards with the same space and the same flags but --shard")
            }
            Self::UnlikeMachines { .. } => {
                Some("share a sweep among nodes of one kind, set up alike; `sweep diff` compares unlike ones")
            }
        }
    }
}

/// What came of merging.
#[derive(Debug)]
pub struct Merged {
    /// The new file.
    pub path: PathBuf,
    /// How much of its plan is there.
    pub completeness: Completeness,
    /// The shards that none of the files holds.
    pub absent: Vec<u32>,
    /// Shards altogether.
    pub shards: u32,
}

/// A shard, opened.
struct Source {
    path: PathBuf,
    meta: Meta,
    plan: Plan,
    machines: Vec<Machine>,
    drives: Option<String>,
}

impl Source {
    fn open(path: &Path) -> Result<Self, MergeError> {
        let store = Store::open_read_only(path)?;
        let path = store.path().to_owned();
        if let Some(holder) = store::running(&path)? {
            return Err(MergeError::Running { path, holder });
        }
        let meta = store.meta()?;
        if meta.shards < 2 {
            return Err(MergeError::Whole { path });
        }
        let sessions = store.sessions()?.into_iter().map(|session| session.machine);
        Ok(Self {
            plan: store.plan()?,
            machines: std::iter::once(meta.machine.clone()).chain(sessions).collect(),
            drives: store.notes()?.remove(NOTE_DRIVES),
            path,
            meta,
        })
    }

    /// Why the other one is no shard of the same sweep.
    fn other_sweep(&self, other: &Self) -> Vec<String> {
        let (a, b) = (&self.meta, &other.meta);
        let told = [
            ("name", a.name.clone(), b.name.clone()),
            ("seed", a.seed.to_string(), b.seed.to_string()),
            ("shards", a.shards.to_string(), b.shards.to_string()),
            ("passes", a.passes.to_string(), b.passes.to_string()),
            ("points", self.plan.points.len().to_string(), other.plan.points.len().to_string()),
            ("discard_first", a.discard_first.to_string(), b.discard_first.to_string()),
            ("digest of the plan", a.plan_digest.clone(), b.plan_digest.clone()),
        ];
        let differs = told.iter().filter(|(_, a, b)| a != b);
        let mut words: Vec<String> = differs.map(|(name, a, b)| format!("{name}: {a} → {b}")).collect();
        // A digest differs with everything else; by itself it is all that can be told.
        if words.len() > 1 {
            words.pop();
        }
        words
    }

    /// Why figures of the other one cannot stand beside these.
    fn unlike(&self, other: &Self) -> Vec<String> {
        let mut differences: Vec<String> =
            other.machines.iter().flat_map(|machine| self.machines[0].unlike(machine)).collect();
        if self.meta.version != other.meta.version {
            differences.push(format!("flashwright: {} → {}", self.meta.version, other.meta.version));
        }
        if let (Some(a), Some(b)) = (&self.drives, &other.drives)
            && a != b
        {
            differences.push(format!("drives: {a} → {b}"));
        }
        differences.sort();
        differences.dedup();
        differences
    }
}

/// Makes `results.db` in the directory `output` out of shards. The directory must be there.
///
/// # Errors
/// [`MergeError`]; there is no new file then.
pub fn merge(shards: &[PathBuf], output: &Path) -> Result<Merged, MergeError> {
    let target = output.join(FILE_NAME);
    if target.exists() {
        return Err(StoreError::Exists { path: target }.into());
    }
    let sources = shards.iter().map(|path| Source::open(path)).collect::<Result<Vec<_>, _>>()?;
    let Some(first) = sources.first() else {
        return Err(StoreError::Missing { path: output.to_owned() }.into());
    };
    for source in &sources {
        let (a, b) = (first.path.clone(), source.path.clone());
        let differences = first.other_sweep(source);
        if !differences.is_empty() {
            return Err(MergeError::OtherSweep { first: a, other: b, differences });
        }
        let differences = first.unlike(source);
        if !differences.is_empty() {
            return Err(MergeError::UnlikeMachines { first: a, other: b, differences });
        }
    }
    refuse_other_plans(&sources)?;
    let parts: BTreeSet<u32> = sources.iter().flat_map(|source| source.meta.parts.iter().copied()).collect();
    let meta = Meta {
        parts: parts.iter().copied().collect(),
        created_unix_ns: sources.iter().map(|s| s.meta.created_unix_ns).min().unwrap_or_default(),
        ..first.meta.clone()
    };
    let completeness = write(&target, &meta, &sources)?;
    Ok(Merged {
        path: target,
        completeness,
        absent: (1..=meta.shards).filter(|shard| !parts.contains(shard)).collect(),
        shards: meta.shards,
    })
}

/// Refuses files of one shard that was measured twice: blocks are drawn while they are measured, so that a second
/// measurement has other steps at the same places, or the same step at another place.
fn refuse_other_plans(sources: &[Source]) -> Result<(), StoreError> {
    let mut steps: BTreeMap<u32, (PlannedRun, StepKind)> = BTreeMap::new();
    let mut places: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for source in sources {
        for Step { planned, kind } in source.plan.steps() {
            let known = *steps.entry(planned.position).or_insert((planned, kind));
            let place = match kind {
                StepKind::Run => *places.entry((planned.point, planned.pass)).or_insert(planned.position),
                StepKind::Control => planned.position,
            };
            if known != (planned, kind) || place != planned.position {
                let (path, PlannedRun { point, pass, .. }) = (source.path.clone(), planned);
                return Err(StoreError::Contradicts { path, point, pass });
            }
        }
    }
    Ok(())
}

/// Fills a file under another name, and gives it its own when it is whole.
fn write(target: &Path, meta: &Meta, sources: &[Source]) -> Result<Completeness, StoreError> {
    let mut unfinished = target.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let unfinished = PathBuf::from(unfinished);
    let file_error =
        |operation| move |source| StoreError::File { path: target.to_owned(), operation, source };
    // What a merge that was killed left; whoever merges now does it anew.
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(file_error("remove what an earlier merge left")(error));
        }
        _ => {}
    }
    let filled = fill(&unfinished, meta, sources);
    let finished = filled.and_then(|completeness| {
        // link(2) and not rename(2): it never takes the place of a file that somebody else made meanwhile.
        std::fs::hard_link(&unfinished, target).map_err(file_error("give it its name"))?;
        Ok(completeness)
    });
    // Either it failed, or the file has its name.
    let _ = std::fs::remove_file(&unfinished);
    let completeness = finished?;
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(file_error("make its name durable"))?;
    Ok(completeness)
}

fn fill(path: &Path, meta: &Meta, sources: &[Source]) -> Result<Completeness, StoreError> {
    let mut store = Store::create(path, meta, &whole(sources))?;
    for source in sources {
        store.absorb(&source.path)?;
    }
    store.completeness()
}

/// The plan of all sources together, as it stands in them; there is at least one.
fn whole(sources: &[Source]) -> Plan {
    let mut steps: BTreeSet<(PlannedRun, StepKind)> = BTreeSet::new();
    for source in sources {
        steps.extend(source.plan.steps().into_iter().map(|step| (step.planned, step.kind)));
    }
    let of = |wanted: StepKind| {
        steps.iter().filter(|(_, kind)| *kind == wanted).map(|(planned, _)| *planned).collect()
    };
    let (runs, controls) = (of(StepKind::Run), of(StepKind::Control));
    Plan { runs, controls, ..sources[0].plan.clone() }
}
