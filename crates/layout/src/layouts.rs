//! Layouts, made and unmade.
//!
//! One process at a time works on layouts of a state directory: it holds `layout.lock` (flock(2)). Beside it is
//! `layout.journal`, which says what is to be undone ([`crate::journal`]).
//!
//! [`Layouts::switch`] goes from what stands to what is asked for, with the least work:
//!
//! 1. the drives are found, and what the machine cannot do is refused;
//! 2. drives that are not ours already are checked: nobody may use them, nothing may lie on them;
//! 3. what stands and is not part of the new layout is taken down, in reverse;
//! 4. the parts that are missing are made, each journalled before;
//! 5. settings are written, each owner's old values journalled before, and read back;
//! 6. what is really in force is read from the machine ([`Built::facts`]).
//!
//! A step that fails is undone at once; what stood before it still stands, and is known. [`Layouts::down`] and the
//! end of a [`Layouts`] that was not told to [`Layouts::leave`] undo everything.

mod tune;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::change::{Change, Owner};
use crate::check::{self, Drift};
use crate::drive::{DriveId, node};
use crate::error::LayoutError;
use crate::facts::{self, Built};
use crate::held::Held;
use crate::interrupts;
use crate::journal::Journal;
use crate::label;
use crate::locks::{Locks, take_state};
use crate::order;
use crate::parts::{self, Made, Part};
use crate::settings::{self, Recorded, Wanted};
use crate::spec::{LayoutKind, LayoutSpec};
use crate::stop::Stop;
use crate::survey::Availability;
use crate::system::{Host, Purpose, System};
use crate::undo::{JOURNAL, Undone, boot, undo_all};

/// What the user allows.
#[derive(Debug, Clone, Default)]
pub struct Permits {
    /// Drives whose contents may be lost.
    pub destroy: Vec<PathBuf>,
}

/// Where words on progress go.
type Teller = Box<dyn FnMut(&str) + Send>;

/// The right to make layouts, and what was made.
pub struct Layouts {
    system: Box<dyn System>,
    state: PathBuf,
    permits: Permits,
    journal: Journal,
    made: Vec<Made>,
    recorded: Vec<Recorded>,
    /// The drives that the layout before uses; they were checked.
    ours: Vec<DriveId>,
    locks: Locks,
    /// The drives of the layout, each from before its check to the end.
    held: Vec<Held>,
    standing: Option<(LayoutSpec, Built)>,
    file_bytes: Option<u64>,
    stop: Stop,
    teller: Option<Teller>,
    /// Whether the end leaves all as it is.
    leave: bool,
}

impl fmt::Debug for Layouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layouts")
            .field("state", &self.state)
            .field("made", &self.made)
            .field("standing", &self.standing)
            .finish_non_exhaustive()
    }
}

impl Layouts {
    /// Takes the lock of a state directory, which is made where it is missing. `stop` ends waits for locks, this one and
    /// later ones, and the work between two steps.
    ///
    /// # Errors
    /// [`LayoutError::Locked`] if another process is at work, [`LayoutError::Stands`] if a layout stands that was made by
    /// hand or left by a process that died, [`LayoutError::Interrupted`] by `stop`.
    pub fn open(state: &Path, permits: Permits, stop: Stop) -> Result<Self, LayoutError> {
        Self::open_on(Box::new(Host::default()), state, permits, stop)
    }

    /// The same on a system that is not this machine.
    ///
    /// # Errors
    /// As [`Layouts::open`].
    pub fn open_on(
        mut system: Box<dyn System>,
        state: &Path,
        permits: Permits,
        stop: Stop,
    ) -> Result<Self, LayoutError> {
        let state = take_state(system.as_mut(), state, &stop)?;
        let path = state.join(JOURNAL);
        if let Some(journal) = Journal::read(&path)? {
            let standing = journal.standing();
            let by_hand = standing.by_hand;
            return Err(LayoutError::Stands { journal: path, standing: standing.to_string(), by_hand });
        }
        // Of a process that ended before its first change. What stays does not count.
        let _ = order::leave(system.as_mut(), &path);
        let boot = boot(system.as_ref())?;
        Ok(Self {
            journal: Journal::new(path, boot),
            system,
            state,
            permits,
            made: Vec::new(),
            recorded: Vec::new(),
            ours: Vec::new(),
            locks: Locks::default(),
            held: Vec::new(),
            standing: None,
            file_bytes: None,
            stop,
            teller: None,
            leave: false,
        })
    }

    /// The size of the files on file systems, bytes each; none is as much as fits, less a tenth.
    pub fn set_file_bytes(&mut self, bytes: Option<u64>) {
        self.file_bytes = bytes;
    }

    /// Where words on long steps go, for somebody who watches.
    pub fn tell(&mut self, teller: impl FnMut(&str) + Send + 'static) {
        self.teller = Some(Box::new(teller));
    }

    /// What stands.
    #[must_use]
    pub fn standing(&self) -> Option<(&LayoutSpec, &Built)> {
        self.standing.as_ref().map(|(spec, built)| (spec, built))
    }

    /// Goes from what stands to `spec`, with the least work; nothing where it stands already.
    ///
    /// # Errors
    /// [`LayoutError`]: what the machine cannot do, a drive that is refused, a step that failed. The step is
    /// undone; what was made before stands until [`Layouts::down`].
    pub fn switch(&mut self, spec: &LayoutSpec) -> Result<Built, LayoutError> {
        let built = self.go_to(spec);
        // Whoever measures claims the drives.
        self.held.iter_mut().for_each(Held::release);
        built
    }

    fn go_to(&mut self, spec: &LayoutSpec) -> Result<Built, LayoutError> {
        let drives = self.find(spec)?;
        Availability::at_a_glance(self.system.as_ref(), &spec.drives).check_spec(spec)?;
        let parts = parts::plan(spec, &drives);
        self.check_file_bytes(spec, &drives)?;
        let shared = self.made.iter().zip(&parts).take_while(|(made, part)| made.part == **part).count();
        let purpose = if parts.is_empty() { Purpose::Settings } else { Purpose::Contents };
        let foreign: Vec<_> = drives.iter().filter(|drive| !self.ours.contains(drive)).cloned().collect();
        self.lock(spec, &drives)?;
        self.check_queues(spec, &foreign)?;
        self.hold(&drives)?;
        self.check_free(&foreign, purpose)?;
        self.standing = None;
        self.take_down_to(shared)?;
        self.restore_others(&drives)?;
        self.held.retain(|held| drives.contains(&held.drive));
        let built: Vec<_> = self.made.iter().flat_map(|made| made.part.drives().to_vec()).collect();
        let is_free = |drive: &&DriveId| !built.contains(drive) && !foreign.contains(drive);
        let free: Vec<_> = drives.iter().filter(is_free).cloned().collect();
        self.check_free(&free, purpose)?;
        self.ours = drives.clone();
        for part in parts.into_iter().skip(shared) {
            self.make(part)?;
        }
        let notes = self.apply(spec, &drives)?;
        let built = self.built(spec, notes)?;
        self.journal.stands(self.system.as_mut(), &spec.to_string(), &built.device_spec, false)?;
        self.standing = Some((spec.clone(), built.clone()));
        Ok(built)
    }

    /// Compares what was asked for with what is there, and looks for others on the drives.
    pub fn check(&self) -> Result<Vec<Drift>, LayoutError> {
        let Some((spec, built)) = &self.standing else { return Ok(Vec::new()) };
        check::drifts(
            self.system.as_ref(),
            spec,
            built,
            &self.ours,
            &self.made,
            &self.wanted(spec, &self.ours),
        )
    }

    /// Undoes everything, in reverse.
    ///
    /// # Errors
    /// [`LayoutError::Left`] with what could not be undone, after all else was.
    pub fn down(&mut self) -> Result<Undone, LayoutError> {
        self.standing = None;
        let teller = &mut self.teller;
        let mut tell = |words: &str| {
            if let Some(teller) = teller {
                teller(words);
            }
        };
        let undone = undo_all(self.system.as_mut(), &mut self.journal, &Stop::default(), &mut tell, false);
        let pending: Vec<u64> = self.journal.pending().iter().map(|(number, _)| *number).collect();
        self.made.retain(|made| pending.contains(&made.number));
        self.recorded.retain(|record| record.numbers.iter().any(|number| pending.contains(number)));
        self.ours.clear();
        self.held.clear();
        self.locks = Locks::default();
        undone
    }

    /// Leaves what stands after the end of this process: `layout up`. [`crate::undo()`] takes it down.
    ///
    /// # Errors
    /// Where the journal cannot be written; everything is then undone as usual.
    pub fn leave(mut self) -> Result<(), LayoutError> {
        if let Some((spec, built)) = &self.standing {
            self.journal.stands(self.system.as_mut(), &spec.to_string(), &built.device_spec, true)?;
        }
        self.leave = true;
        Ok(())
    }

    /// Refuses files that are larger than the drives below them, before anything is made. Whether they fit on the file system
    /// is known when that is there ([`room`](Self::room)).
    fn check_file_bytes(&self, spec: &LayoutSpec, drives: &[DriveId]) -> Result<(), LayoutError> {
        let Some(asked) = self.file_bytes.filter(|_| spec.mounted_filesystem().is_some()) else {
            return Ok(());
        };
        let sizes = drives.iter().map(|drive| drive.size_bytes);
        let is_one =
            matches!(spec.kind, LayoutKind::MdRaid0 | LayoutKind::LvmStripe | LayoutKind::BtrfsRaid0);
        let available = if is_one { Some(sizes.sum()) } else { sizes.min() };
        match (drives.first(), available.filter(|available| asked > *available)) {
            (Some(drive), Some(available)) => {
                Err(LayoutError::NoRoom { place: node(&drive.name), asked, available })
            }
            _ => Ok(()),
        }
    }

    /// The drives of a layout, each once under whatever name.
    fn find(&self, spec: &LayoutSpec) -> Result<Vec<DriveId>, LayoutError> {
        let sysfs = self.system.sysfs();
        let mut drives: Vec<DriveId> = Vec::new();
        for path in &spec.drives {
            let drive = DriveId::of(&sysfs, path)?;
            if let Some(first) = drives.iter().position(|known| known.name == drive.name) {
                let first = spec.drives[first].clone();
                return Err(LayoutError::SameDrive { first, second: path.clone() });
            }
            drives.push(drive);
        }
        Ok(drives)
    }

    /// Locks what the layout changes against layouts of other state directories.
    fn lock(&mut self, spec: &LayoutSpec, drives: &[DriveId]) -> Result<(), LayoutError> {
        self.locks.take(self.system.as_ref(), drives, &self.stop)?;
        if spec.irq_cpus.is_some() {
            self.locks.take_interrupts(self.system.as_ref(), &self.stop)?;
        }
        Ok(())
    }

    /// Holds drives that are not held yet. One that is has to be what it was.
    fn hold(&mut self, drives: &[DriveId]) -> Result<(), LayoutError> {
        for drive in drives {
            match self.held.iter().find(|held| held.drive == *drive) {
                Some(held) => held.check(self.system.as_ref())?,
                None => self.held.push(drive.hold_named(self.system.as_ref())?),
            }
        }
        Ok(())
    }

    /// Claims drives, if nobody uses them and nothing lies on them that was not given up.
    fn check_free(&mut self, drives: &[DriveId], purpose: Purpose) -> Result<(), LayoutError> {
        let (system, destroy) = (self.system.as_ref(), &self.permits.destroy);
        let mut held = self.held.iter_mut().filter(|held| drives.contains(&held.drive));
        held.try_for_each(|held| held.claim_for(system, purpose, destroy))
    }

    /// A partition's queue is its disk's: the settings of it are nobody's who shares it.
    fn check_queues(&self, spec: &LayoutSpec, drives: &[DriveId]) -> Result<(), LayoutError> {
        if spec.queue.is_empty() && spec.irq_cpus.is_none() {
            return Ok(());
        }
        let sysfs = self.system.sysfs();
        for drive in drives {
            let Some(disk) = sysfs.block_node(&drive.name).and_then(|device| device.disk) else { continue };
            self.system.check_free(&node(&disk), Purpose::Settings, &self.permits.destroy)?;
        }
        Ok(())
    }

    fn make(&mut self, part: Part) -> Result<(), LayoutError> {
        let words = part.words();
        self.stop.check(&words)?;
        if let Some(teller) = &mut self.teller {
            teller(&words);
        }
        for held in self.held.iter().filter(|held| part.drives().contains(&held.drive)) {
            held.check(self.system.as_ref())?;
            held.check_signatures()?;
            label::clear(self.system.as_mut(), held).map_err(|source| {
                LayoutError::io(held.node(), "wipe signatures that were given up", source)
            })?;
        }
        let change = part.change(self.system.as_ref(), &self.made, &self.state)?;
        let number = self.journal.announce(self.system.as_mut(), change.clone())?;
        match self.make_part(&part, &change) {
            Ok(device) => {
                self.made.push(Made { part, number, change, device });
                Ok(())
            }
            Err(error) => {
                // What cannot be undone now stays in the journal, and the end tries again.
                if change.undo(self.system.as_mut(), true).is_ok() {
                    self.journal.undone(self.system.as_mut(), number)?;
                }
                Err(self.stop.check(&words).err().unwrap_or(error))
            }
        }
    }

    /// Makes a part of its drives, whose claims end with the program's start, and looks before and after that whether
    /// they are what was checked.
    fn make_part(&mut self, part: &Part, change: &Change) -> Result<Option<String>, LayoutError> {
        for held in self.held.iter_mut().filter(|held| part.drives().contains(&held.drive)) {
            held.release();
        }
        let of = |drive: &DriveId| self.held.iter().find(|held| held.drive == *drive);
        let held: Vec<_> = part.drives().iter().filter_map(of).collect();
        held.iter().try_for_each(|held| held.check(self.system.as_ref()))?;
        let made = part.make(self.system.as_mut(), change, &self.made, &held);
        held.iter().try_for_each(|held| held.check(self.system.as_ref()))?;
        made
    }

    /// Takes down all parts but the first few; what belongs to this boot's layers goes with them.
    fn take_down_to(&mut self, parts: usize) -> Result<(), LayoutError> {
        if self.made.len() <= parts {
            return Ok(());
        }
        let is_of_layer = |record: &Recorded| is_of_layer(&record.owner);
        for record in std::mem::take(&mut self.recorded) {
            if is_of_layer(&record) {
                self.restore(&record)?;
            } else {
                self.recorded.push(record);
            }
        }
        while self.made.len() > parts {
            let Some(made) = self.made.last().cloned() else { break };
            if let Some(teller) = &mut self.teller {
                teller(&format!("take down: {}", made.change));
            }
            made.change
                .undo(self.system.as_mut(), true)
                .map_err(|left| LayoutError::Left { left: vec![left], undone: 0 })?;
            self.journal.undone(self.system.as_mut(), made.number)?;
            self.made.pop();
        }
        Ok(())
    }

    /// Sets back all that was changed of drives that the new layout does not use.
    fn restore_others(&mut self, drives: &[DriveId]) -> Result<(), LayoutError> {
        let kept = self.queue_owners(drives);
        for record in std::mem::take(&mut self.recorded) {
            if is_of_layer(&record.owner) || kept.contains(&record.owner) {
                self.recorded.push(record);
            } else {
                self.restore(&record)?;
            }
        }
        Ok(())
    }

    /// Undoes what the journal says of one owner.
    fn restore(&mut self, record: &Recorded) -> Result<(), LayoutError> {
        for number in record.numbers.iter().rev() {
            let change = self.journal.pending().iter().find(|(pending, _)| pending == number);
            let Some(change) = change.map(|(_, change)| change.clone()) else { continue };
            change
                .undo(self.system.as_mut(), true)
                .map_err(|left| LayoutError::Left { left: vec![left], undone: 0 })?;
            self.journal.undone(self.system.as_mut(), *number)?;
        }
        Ok(())
    }

    fn queue_owners(&self, drives: &[DriveId]) -> Vec<Owner> {
        let queues = self.queues(drives).into_iter().map(Owner::Drive);
        let interrupts = drives
            .iter()
            .map(|drive| Owner::ThisBoot { what: interrupts_of(drive), device: Some(drive.clone()) });
        queues.chain(interrupts).collect()
    }

    /// The drives whose queues these have: of partitions their disks, each once.
    fn queues(&self, drives: &[DriveId]) -> Vec<DriveId> {
        let sysfs = self.system.sysfs();
        let mut queues: Vec<DriveId> = Vec::new();
        for drive in drives {
            let whole = sysfs.disk_of(&drive.name);
            let queue = whole
                .filter(|name| *name != drive.name)
                .and_then(|name| DriveId::of(&sysfs, &node(&name)).ok())
                .unwrap_or_else(|| drive.clone());
            if !queues.contains(&queue) {
                queues.push(queue);
            }
        }
        queues
    }

    /// All that is asked of drives, interrupts and layers.
    fn wanted(&self, spec: &LayoutSpec, drives: &[DriveId]) -> Vec<Wanted> {
        let sysfs = self.system.sysfs();
        let mut all: Vec<Wanted> =
            self.queues(drives).iter().map(|drive| Wanted::of_queue(drive, &spec.queue)).collect();
        for drive in drives {
            let numbers = interrupts::of_drive(&sysfs, &drive.name);
            let files = spec.irq_cpus.as_ref().map(|asked| interrupts::assign(&sysfs, &numbers, asked));
            all.push(Wanted::of_files(&interrupts_of(drive), Some(drive.clone()), files.unwrap_or_default()));
        }
        all.extend(self.read_ahead(spec));
        all
    }

    /// Read-ahead belongs to what files or requests are read from: the array, the volume, or a file system that has its own.
    fn read_ahead(&self, spec: &LayoutSpec) -> Vec<Wanted> {
        let asked = spec.queue.get("read_ahead_kb");
        let sysfs = self.system.sysfs();
        let wanted = |what: &str, device: Option<DriveId>, path: String| {
            let files = asked.map(|value| (PathBuf::from(path), value.clone()));
            Wanted::of_files(&format!("{LAYER}{what}"), device, files.into_iter().collect())
        };
        self.made
            .iter()
            .filter_map(|made| match (&made.part, &made.change, &made.device) {
                (Part::Array { .. } | Part::Volume { .. }, _, Some(name)) => {
                    let device = DriveId::of(&sysfs, &node(name)).ok();
                    Some(wanted(name, device, format!("/sys/class/block/{name}/queue/read_ahead_kb")))
                }
                (_, Change::Filesystem { kind, uuid, .. }, _) if kind.has_own_read_ahead() => {
                    let kind = kind.word();
                    Some(wanted(kind, None, format!("/sys/fs/{kind}/{uuid}/bdi/read_ahead_kb")))
                }
                _ => None,
            })
            .collect()
    }

    fn apply(&mut self, spec: &LayoutSpec, drives: &[DriveId]) -> Result<Vec<String>, LayoutError> {
        let mut notes = Vec::new();
        if !spec.queue.is_empty() || spec.irq_cpus.is_some() {
            order::enter(self.system.as_mut(), &self.locks, self.journal.path())?;
        }
        for wanted in self.wanted(spec, drives) {
            self.stop.check("setting up queues")?;
            let said = settings::apply(self.system.as_mut(), &mut self.journal, &mut self.recorded, &wanted)?;
            notes.extend(said);
        }
        Ok(notes)
    }

    fn built(&self, spec: &LayoutSpec, notes: Vec<String>) -> Result<Built, LayoutError> {
        let mounts: Vec<PathBuf> = self
            .made
            .iter()
            .filter_map(|made| match &made.change {
                Change::Mount { point } => Some(point.clone()),
                _ => None,
            })
            .collect();
        let is_layer = |made: &&Made| matches!(made.part, Part::Array { .. } | Part::Volume { .. });
        let layers = self.made.iter().filter(is_layer).filter_map(|made| Some(node(made.device.as_ref()?)));
        let mut built = Built { layers: layers.collect(), notes, ..Built::default() };
        built.files = mounts.iter().map(|point| point.join("data")).collect();
        built.file_bytes = self.room(&mounts, &built.files)?;
        built.mounts = mounts;
        built.device_spec = facts::device_spec(spec, &built);
        built.facts = facts::facts(self.system.as_ref(), spec, &built, &self.ours);
        Ok(built)
    }

    /// Bytes for each file: what was asked for, if that fits, or nine tenths of the least room. What a file has already is room.
    fn room(&self, mounts: &[PathBuf], files: &[PathBuf]) -> Result<u64, LayoutError> {
        let mut least: Option<u64> = None;
        for (mount, file) in mounts.iter().zip(files) {
            let free = self.system.free_bytes(mount);
            let free = free.map_err(|source| LayoutError::io(mount, "look for room", source))?;
            let has = std::fs::metadata(file).map(|file| file.len()).unwrap_or(0);
            if let Some(asked) = self.file_bytes.filter(|asked| *asked > free.saturating_add(has)) {
                let available = free.saturating_add(has);
                return Err(LayoutError::NoRoom { place: mount.clone(), asked, available });
            }
            let room = if has > 0 { has } else { free / 10 * 9 / (1 << 20) * (1 << 20) };
            least = Some(least.map_or(room, |least| least.min(room)));
        }
        Ok(least.map_or(0, |least| self.file_bytes.unwrap_or(least)))
    }
}

/// How the owners of settings that go with a layer are named.
const LAYER: &str = "layer ";

fn is_of_layer(owner: &Owner) -> bool {
    matches!(owner, Owner::ThisBoot { what, .. } if what.starts_with(LAYER))
}

fn interrupts_of(drive: &DriveId) -> String {
    format!("interrupts of {}", drive.name)
}

impl Drop for Layouts {
    fn drop(&mut self) {
        if self.leave {
            return;
        }
        // Nobody is left to be told; what could not be undone is in the journal.
        let _ = undo_all(self.system.as_mut(), &mut self.journal, &Stop::default(), &mut |_| {}, false);
    }
}
