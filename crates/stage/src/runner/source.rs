//! Is a source still what a job has copied? Asked before the copy gets its name, and for requests that come again.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Run;
use super::find::Source;
use crate::calls;
use crate::error::{StageError, shown};
use crate::fault::{Check, enforced};
use crate::fingerprint::Fingerprint;
use crate::journal::{Done, Entries, Identity, JobRow, Journal};
use crate::manifest::Kind;
use crate::names::joined;
use crate::pace::Stop;
use crate::spec::{JobSpec, Place, Verb};
use crate::tier::Tiers;
use crate::tree::{Seen, Walk};

impl Source {
    /// Hands `visit` every entry, as it is now.
    pub fn each(
        &self,
        walk: &Walk<'_>,
        visit: &mut dyn FnMut(&Seen<'_>) -> Result<(), StageError>,
    ) -> Result<(), StageError> {
        if self.is_directory {
            walk.each(self.open_root()?.as_fd(), None, visit)
        } else {
            walk.each(self.parent.as_fd(), Some(&self.name), visit)
        }
    }

    /// Its state now.
    fn fingerprint(&self, walk: &Walk<'_>) -> Result<Fingerprint, StageError> {
        let mut fingerprint = Fingerprint::default();
        self.each(walk, &mut |seen| {
            let Some(kind) = seen.kind() else { return Err(special(walk, seen.path)) };
            fingerprint.add(seen.path, kind, &Identity::of(seen.stat), walk.only.is_some());
            Ok(())
        })?;
        Ok(fingerprint)
    }
}

fn special(walk: &Walk<'_>, path: &Path) -> StageError {
    StageError::refused(
        format!("{}: neither a file nor a directory nor a link", shown(&joined(walk.source, path))),
        "sockets, FIFOs and devices are not moved; remove it, or move what is beside it",
    )
}

impl Run<'_> {
    /// How the source is walked.
    pub(super) fn walk<'a>(&'a self, source: &'a Path, only: Option<&'a BTreeSet<PathBuf>>) -> Walk<'a> {
        Walk { source, across: self.spec.verb == Verb::Copy, only, stop: self.stop }
    }

    /// The state of the source that is recorded; `visit` sees every entry on the way.
    pub fn recorded(
        &self,
        visit: &mut dyn FnMut(&Done) -> Result<(), StageError>,
    ) -> Result<Fingerprint, StageError> {
        let listed = !self.spec.options.expected.is_empty();
        let mut fingerprint = Fingerprint::default();
        self.each(|done| {
            fingerprint.add(&done.entry.path.0, done.entry.kind, &done.source, listed);
            visit(done)
        })?;
        Ok(fingerprint)
    }

    /// Walks the source once more. All that was copied has to be there as it was when it was read, and nothing else:
    /// then the copy is one state of it, that of the moment at which this walk began.
    ///
    /// # Errors
    /// [`StageError::SourceChanged`] with the first path that differs.
    pub(super) fn is_what_was_copied(&self, source: &Source, copied: Fingerprint) -> Result<(), StageError> {
        // Before the walk, so that a request that comes from now on is compared with it, and is not taken to be served by
        // a walk that has begun already.
        self.journal.vouch_for(self.id, Some(copied))?;
        let only = self.spec.listed();
        let walk = self.walk(&source.path, only.as_ref());
        let found = source.fingerprint(&walk)?;
        if found == copied || !enforced(Check::SourceAfterRead) {
            return Ok(());
        }
        let (path, how) = first_change(self.journal, self.entries(), source, &walk, Extent::All)?
            .unwrap_or_else(|| (PathBuf::new(), "something in it changed back and forth"));
        Err(StageError::SourceChanged { path: shown(&joined(&source.path, &path)), how: how.to_owned() })
    }
}

/// How much of what was copied has to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    All,
    /// The source may have been removed in part, or wholly; directories that lost entries have other times.
    Remains,
}

/// The first path at which a source is not what is recorded, and in what.
fn first_change(
    journal: &Journal,
    of: Entries,
    source: &Source,
    walk: &Walk<'_>,
    extent: Extent,
) -> Result<Option<(PathBuf, &'static str)>, StageError> {
    let mut changed = None;
    let mut count = 0;
    let listed = walk.only.is_some();
    source.each(walk, &mut |seen| {
        if changed.is_some() {
            return Ok(());
        }
        count += 1;
        let how = match (journal.entry(of, seen.path)?, seen.kind()) {
            (None, _) => Some("it is new"),
            (Some(_), None) => Some("it is something else"),
            (Some(done), Some(kind)) => change(&done, kind, &Identity::of(seen.stat), listed, extent),
        };
        changed = how.map(|how| (seen.path.to_owned(), how));
        Ok(())
    })?;
    if changed.is_some() || extent == Extent::Remains || count == journal.entry_count(of)? {
        return Ok(changed);
    }
    let root = source.open_root()?;
    for done in journal.every_entry(of) {
        let path = done?.entry.path.0;
        let opened = calls::open_beneath(root.as_fd(), &path, OFlags::PATH, Mode::empty());
        let gone = opened
            .is_err_and(|error| matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::NOTDIR)));
        if gone && !path.as_os_str().is_empty() {
            return Ok(Some((path, "it is gone")));
        }
    }
    Ok(None)
}

fn change(done: &Done, kind: Kind, now: &Identity, listed: bool, extent: Extent) -> Option<&'static str> {
    let was = &done.source;
    if kind != done.entry.kind {
        return Some("it is something else");
    }
    if kind == Kind::Directory && (listed || extent == Extent::Remains) {
        return (was.ino != now.ino).then_some("it was replaced");
    }
    if extent == Extent::Remains && now.nlink < was.nlink {
        // Its other names went, which moves its time of change. The removal compares bytes before this one goes.
        return was.change(&Identity { ctime: was.ctime, ..*now });
    }
    was.change(now)
}

/// Is the source of a job that has vouched for it still what the job has copied? Of a job that is committed, what
/// is left of it: the job itself may have removed the rest.
pub fn is_source_of(journal: &Journal, row: &JobRow, tiers: &Tiers) -> Result<bool, StageError> {
    let committed = row.level.is_committed();
    let Place::Path(path) = &row.spec.source else {
        return Ok(fingerprint_of(&row.spec, tiers)?.map_or(committed, |now| row.source == Some(now)));
    };
    let source = match Source::open(&path.0, row.spec.watched()) {
        Err(error) if is_gone(&error) => return Ok(committed),
        Err(StageError::Invalid { .. }) => return Ok(false),
        source => source?,
    };
    let (only, stop) = (row.spec.listed(), Stop::new());
    let walk = Walk { source: &path.0, across: true, only: only.as_ref(), stop: &stop };
    let compared = if committed {
        first_change(journal, row.id.into(), &source, &walk, Extent::Remains).map(|changed| changed.is_none())
    } else {
        source.fingerprint(&walk).map(|now| row.source == Some(now))
    };
    match compared {
        Err(StageError::SourceChanged { .. } | StageError::Refused { .. }) => Ok(false),
        compared => compared,
    }
}

/// The state of a request's source now, to be compared with [`crate::JobStatus::source`]. None if there is no source.
pub fn fingerprint_of(spec: &JobSpec, tiers: &Tiers) -> Result<Option<Fingerprint>, StageError> {
    let stop = Stop::new();
    let path = match &spec.source {
        Place::Path(path) => &path.0,
        Place::Object(url) => {
            let digest = tiers.objects()?.digest(url.as_str())?;
            return Ok(digest.map(|digest| Fingerprint::of_digest(&digest)));
        }
    };
    let only = spec.listed();
    match Source::open(path, spec.watched()) {
        Err(error) if is_gone(&error) => Ok(None),
        source => source?
            .fingerprint(&Walk { source: path, across: true, only: only.as_ref(), stop: &stop })
            .map(Some),
    }
}

fn is_gone(error: &StageError) -> bool {
    matches!(error, StageError::Io { source, .. }
        if matches!(Errno::from_io_error(source), Some(Errno::NOENT | Errno::NOTDIR)))
}
