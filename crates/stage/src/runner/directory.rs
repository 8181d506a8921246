//! A path as the destination of a move: a part beside it, which is renamed to it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::adopt::Standing;
use super::find::{self, Destination};
use super::publish::taken;
use super::{Notes, Part, replaced};
use crate::calls;
use crate::error::StageError;
use crate::existing::make_durable_at;
use crate::fault::{Barrier, Check, Moment, comes_to, enforced};
use crate::fingerprint::Fingerprint;
use crate::journal::{JobRow, Journal};
use crate::mounts;
use crate::owned::FileId;
use crate::pace::Stop;
use crate::set::Manifest;
use crate::tier::{self, At, Run, Source, There};

/// See the module.
pub(super) struct AtPath {
    destination: Destination,
    /// The directory that it is in, once it was opened.
    parent: Option<OwnedFd>,
    part: Option<Part>,
    /// Which file or directory was copied or compared.
    made: Option<FileId>,
}

impl AtPath {
    pub fn of(path: &Path) -> Result<Self, StageError> {
        Ok(Self { destination: Destination::of(path)?, parent: None, part: None, made: None })
    }

    fn parent(&self) -> &OwnedFd {
        self.parent.as_ref().expect("what has the name is asked first")
    }

    fn id(&self) -> Result<Option<FileId>, StageError> {
        self.destination.id(self.parent())
    }

    fn at(&self) -> At<'_> {
        At { parent: self.parent(), path: &self.destination.parent, name: &self.destination.name }
    }
}

impl tier::Destination for AtPath {
    fn there(&mut self, run: &Run<'_>, row: &JobRow) -> Result<There, StageError> {
        match run.spec.options.part {
            Some(_) => self.destination.has_set(run.spec.options.parents)?,
            None => self.destination.has_parents(run.spec.options.parents)?,
        }
        self.parent = Some(self.destination.open()?);
        let there = self.id()?;
        Ok(match (there, row.part_id) {
            (None, _) => There::Nothing,
            (Some(there), Some(made)) if there.is(&made) => {
                self.made = Some(made);
                There::Own
            }
            _ if self.destination.is_claimed(self.parent())? => There::Claim,
            _ => There::Other,
        })
    }

    fn read_back(&mut self, run: &Run<'_>, row: &JobRow) -> Result<(), StageError> {
        if enforced(Check::RenamedPartBytes) {
            run.read_again(self.parent(), &self.destination)?;
        }
        self.destination.drop_link(self.parent(), row)
    }

    fn check(&self, run: &Run<'_>, source: &dyn Source) -> Result<(), StageError> {
        match source.local() {
            Some(source) => find::check(&source, self.parent(), &self.destination, run.spec.verb),
            None => Ok(()),
        }
    }

    fn adopt(
        &mut self,
        run: &Run<'_>,
        row: &JobRow,
        source: &mut dyn Source,
        notes: &mut Notes,
    ) -> Result<(), StageError> {
        let taken = || taken(&self.destination.path());
        run.begin_adoption(&self.destination)?;
        let compared = self.id()?.ok_or_else(taken)?;
        let at = self.at();
        let standing = Standing::of(&at, source.is_directory(), run.stop)?;
        let path = self.destination.path();
        make_durable_at(at.parent.as_fd(), at.name, &path, Some(Barrier::Adopted), run.stop)?;
        comes_to(Moment::Compared, Vec::new);
        source.adopt(&run.comparing(), &at, &|| standing.is_still(&at, run.stop))?;
        if !self.id()?.is_some_and(|there| there.is(&compared)) {
            return Err(taken());
        }
        // Once the journal has forgotten the part of an earlier attempt, nothing would remove it any more.
        self.destination.discard_part(self.parent(), row, notes)?;
        comes_to(Moment::Forgotten, Vec::new);
        run.journal.adopted(run.id)?;
        if let Some(identity) = source.identity() {
            run.journal.keep_note(run.id, tier::SOURCE_IDENTITY, &identity.0)?;
        }
        self.made = Some(compared);
        Ok(())
    }

    fn put(
        &mut self,
        run: &Run<'_>,
        row: &JobRow,
        source: &mut dyn Source,
        notes: &mut Notes,
    ) -> Result<Fingerprint, StageError> {
        let begun = self.part.take();
        let (parent, destination) = (self.parent(), &self.destination);
        let part = match begun {
            None => run.part(row, source, parent, destination, notes)?,
            Some(part) if source.goes_on_in(run, &part.id)? => Part { resumed: true, ..part },
            Some(part) => {
                // What was written to it may not be trusted; a new copy goes to a new inode.
                destination.discard(parent, &part.name, Some(&part.id), notes)?;
                run.new_part(parent, destination, source)?
            }
        };
        let at = At { name: &part.name, ..self.at() };
        let copied = source.copy_into(
            run,
            &tier::Part { at, id: part.id, file: &part.file, resumed: part.resumed },
            notes,
        );
        self.made = Some(part.id);
        self.part = Some(part);
        copied
    }

    fn publish(&mut self, _: &Run<'_>, _: &mut Notes) -> Result<(), StageError> {
        let part = self.part.as_ref().expect("it was filled");
        let shown = self.destination.parent.join(&part.name);
        let there = FileId::at(self.parent().as_fd(), &part.name)
            .map_err(|error| StageError::io("look at", &shown, error))?;
        if there.is_some_and(|there| !there.is(&part.id)) && enforced(Check::PartBeforeRename) {
            return Err(replaced(&shown));
        }
        self.destination.publish(self.parent(), &part.name)
    }

    fn settle(&mut self, run: &Run<'_>) -> Result<(), StageError> {
        calls::sync(self.parent().as_fd(), Barrier::Name)
            .map_err(|error| StageError::sync("fsync", &self.destination.parent, error))?;
        let made = self.made.expect("something has the name by now");
        // By its path: the directory that was synced may have another path by now, and others see that one.
        let parent = self.destination.open()?;
        if !self.destination.id(&parent)?.is_some_and(|there| there.is(&made))
            && enforced(Check::PartAfterRename)
        {
            return Err(replaced(&self.destination.path()));
        }
        // The source's removal looks for it.
        run.journal.made_part(run.id, &made)
    }

    fn is_as_committed(&mut self, _: &Run<'_>, row: &JobRow) -> Result<bool, StageError> {
        self.parent = Some(self.destination.open()?);
        Ok(row.part_id.zip(self.id()?).is_some_and(|(made, there)| there.is(&made)))
    }

    fn has_manifest(&self, _: &Run<'_>) -> Result<bool, StageError> {
        let shown = self.destination.path();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match calls::open_at(self.parent().as_fd(), &self.destination.name, flags, Mode::empty()) {
            Ok(root) => Ok(Manifest::read(root.as_fd(), &shown)?.is_some()),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOTDIR) => Ok(false),
            Err(error) => Err(StageError::io("open the directory", &shown, error)),
        }
    }

    fn give_up(&mut self, _: &Journal, row: &JobRow, _: &Stop, notes: &mut Notes) -> Result<(), StageError> {
        let path = &self.destination.parent;
        if row.part.is_none() {
            return Ok(());
        }
        let parent = calls::open_directory(path);
        // What is there may not be what the job worked on.
        if let Err(error) = mounts::check(path, row.mounts[1].as_ref()) {
            notes.push(format!("what was copied was left: {error}"));
            return Ok(());
        }
        match parent {
            Ok(parent) => {
                self.destination.discard_part(&parent, row, notes)?;
                calls::release_claim(parent.as_fd(), &self.destination.name);
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StageError::io("open the directory", path, error)),
        }
    }
}
