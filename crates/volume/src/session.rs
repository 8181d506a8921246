//! One opening of a labelled volume, and the epochs that keep its members of one time.
//!
//! Each label holds the [`Epoch`] whose writes may be on its member. The first write after opening begins a new epoch on
//! all members, and closing begins the epoch at rest. A member that was absent meanwhile (an old image that was brought
//! back, memory that lost its contents) is of another epoch, and [`crate::census`] refuses it. Other writes do not touch
//! the labels, so they cost what they cost without them.
//!
//! A new epoch begins in three steps, each on all members and durable on all of them before the next:
//!
//! 1. tails that are of the epoch before, and announce the new one;
//! 2. heads that are of the new one;
//! 3. tails that are of the new one.
//!
//! Whoever is stopped on the way leaves members of which some are of the new epoch and all others had it announced:
//! they belong together, for nothing was written yet (or, at the end, nothing any more). A copy that is not what the other
//! says, because somebody was stopped before, is written again first, so that the copy that holds is never the one
//! that is overwritten.
//!
//! What no label can tell is a member that was put back, while an epoch lasts, to an earlier moment of the same epoch.
//! It is told as soon as the next has begun.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use storage::device::Device;
use storage::remote::Witness;

use crate::census::{Candidate, census};
use crate::error::VolumeError;
use crate::label::{self, Epoch, Label, LabelPosition, State};
use crate::traces::{no_damage, read_labels};

/// See the module's argument.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Whether [`Stage::Open`] was reached: what each write looks at.
    is_open: AtomicBool,
    /// Whether a write or a sync failed, so that what is on the members is not what was meant.
    is_spoilt: AtomicBool,
    stage: Mutex<Stage>,
    reached: Arc<Reached>,
}

/// The epochs of which members may be now, the latest last.
#[derive(Debug, Default)]
struct Reached(Mutex<Vec<Epoch>>);

impl Reached {
    fn set(&self, epochs: Vec<Epoch>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = epochs;
    }

    /// Whether a member may be of `epoch`; else why not.
    fn judge(&self, epoch: Epoch) -> Result<(), String> {
        let epochs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Two copies of a volume may each have come to the same number, and one to a higher.
        match epochs.last() {
            _ if epochs.contains(&epoch) => Ok(()),
            Some(latest) if latest.number != epoch.number => {
                Err(format!("it was of epoch {} of its volume and is of {}", latest.number, epoch.number))
            }
            _ => Err(format!("it is of epoch {} of another copy of its volume", epoch.number)),
        }
    }
}

#[derive(Debug, Default)]
enum Stage {
    /// Nothing was written.
    #[default]
    Idle,
    /// The epoch in which it is written.
    Open(Epoch),
    /// It could not be begun; nor is that tried again, for a sync that failed says nothing when it is repeated.
    Failed(io::ErrorKind, String),
}

impl Session {
    /// Has members that are exports of other hosts show their label whenever they are connected to anew: a host that was
    /// started again, and may say that it is what it was, is not taken for what it was.
    pub fn watch(&self, members: &[Arc<dyn Device>], candidates: &[Candidate]) {
        let labels = || candidates.iter().filter_map(|candidate| Some((candidate, candidate.label()?)));
        self.reached.set(by_number(labels().map(|(_, label)| label.epoch)));
        for (member, (candidate, label)) in members.iter().zip(labels()) {
            let Some(remote) = member.remote() else { continue };
            let holds = |place: &LabelPosition| candidate.fault(*place).is_none();
            let Some(place) = LabelPosition::BOTH.into_iter().find(holds) else { continue };
            let Some(at) = place.offset(member.size()) else { continue };
            let who = |label: &Label| (label.volume, label.member, label.position);
            let (reached, expected) = (Arc::clone(&self.reached), who(label));
            let judge = move |block: &[u8]| match Label::decode(block, place).label() {
                Some(found) if who(found) == expected => reached.judge(found.epoch),
                Some(found) if found.volume == expected.0 => {
                    Err("it is another member of its volume".to_owned())
                }
                _ => Err("it bears the label of its volume no more".to_owned()),
            };
            remote.watch(Some(Witness::new(at, label::BYTES as u32, judge)));
        }
    }

    /// Begins the epoch of this session, if that was not done yet: from now on `members` may be written.
    ///
    /// # Errors
    /// What kept it from that, now or the first time.
    #[inline]
    pub fn begin(&self, members: &[Arc<dyn Device>]) -> io::Result<()> {
        if self.is_open.load(Ordering::Acquire) { Ok(()) } else { self.begin_first(members) }
    }

    #[cold]
    fn begin_first(&self, members: &[Arc<dyn Device>]) -> io::Result<()> {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        match &*stage {
            Stage::Open(_) => return Ok(()),
            Stage::Failed(kind, why) => return Err(io::Error::new(*kind, why.clone())),
            Stage::Idle => {}
        }
        match Labels::read(members).and_then(|labels| labels.turn(members, State::Open, &self.reached)) {
            Ok(epoch) => {
                *stage = Stage::Open(epoch);
                self.is_open.store(true, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                let (kind, why) = (kind_of(&error), base::with_causes(&error));
                *stage = Stage::Failed(kind, why.clone());
                Err(io::Error::new(kind, why))
            }
        }
    }

    /// Notes that something which was to be written may not be.
    pub fn spoil(&self) {
        self.is_spoilt.store(true, Ordering::Relaxed);
    }

    /// Whether this session has written, and all that it wrote is on the members as it was meant.
    pub fn may_close(&self) -> bool {
        let is_open = self.is_open.load(Ordering::Acquire);
        is_open && !self.is_spoilt.load(Ordering::Relaxed) && !std::thread::panicking()
    }

    /// Says in the labels that nothing more will be written. Where that cannot be had, or would not be true, the volume
    /// stays as one that was not closed cleanly, which whoever opens it next is told.
    pub fn end(&self, members: &[Arc<dyn Device>]) {
        self.close(members);
        members.iter().filter_map(|member| member.remote()).for_each(|remote| remote.watch(None));
    }

    fn close(&self, members: &[Arc<dyn Device>]) {
        let stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        let Stage::Open(epoch) = *stage else { return };
        // A thread that unwinds writes nothing more.
        if std::thread::panicking() || self.is_spoilt.load(Ordering::Relaxed) {
            return;
        }
        if members.iter().any(|member| member.sync_data().is_err()) {
            return;
        }
        let Ok(labels) = Labels::read(members) else { return };
        // Somebody else's by now: the rest is theirs to say.
        if labels.0.iter().any(|(label, _)| label.epoch != epoch) {
            return;
        }
        let _ = labels.turn(members, State::Ready, &self.reached);
    }
}

/// What holds of each member, and what was found there.
struct Labels(Vec<(Label, Candidate)>);

impl Labels {
    /// Those of `members`, which are the volume in its order.
    fn read(members: &[Arc<dyn Device>]) -> Result<Self, VolumeError> {
        let candidates = members.iter().map(read_labels).collect::<Result<Vec<_>, _>>()?;
        census(&candidates)?;
        for (member, candidate) in members.iter().zip(&candidates) {
            no_damage(&**member, candidate)?;
        }
        let label = |candidate: Candidate| Some((candidate.label()?.clone(), candidate));
        Ok(Self(candidates.into_iter().filter_map(label).collect()))
    }

    /// Begins an epoch that is `state`, and returns it. Until all members are of it, and where that fails for good, each
    /// may be of it or of what it was.
    fn turn(
        mut self,
        members: &[Arc<dyn Device>],
        state: State,
        reached: &Reached,
    ) -> Result<Epoch, VolumeError> {
        let labels = || self.0.iter().map(|(label, _)| label);
        let current = labels().map(|label| label.epoch).max_by_key(|epoch| epoch.number);
        let highest = labels().map(|label| label.epoch.number.max(label.next.number)).max().unwrap_or(0);
        let next = Epoch::after(highest)
            .map_err(|source| VolumeError::System { operation: "draw a UUID", source })?;
        reached.set(by_number(labels().map(|label| label.epoch).chain([next])));
        for ((label, candidate), member) in self.0.iter().zip(members) {
            for place in LabelPosition::BOTH.into_iter().filter(|place| candidate.fault(*place).is_some()) {
                write(&**member, place, label)?;
                sync(&**member)?;
            }
        }
        for (label, _) in &mut self.0 {
            label.generation += 1;
            (label.epoch, label.next) = (current.unwrap_or(label.epoch), next);
        }
        self.write_all(members, LabelPosition::Tail)?;
        for (label, _) in &mut self.0 {
            label.generation += 1;
            (label.epoch, label.state) = (next, state);
        }
        self.write_all(members, LabelPosition::Head)?;
        self.write_all(members, LabelPosition::Tail)?;
        reached.set(vec![next]);
        Ok(next)
    }

    /// Writes one copy on all members, and makes all of them durable.
    fn write_all(&self, members: &[Arc<dyn Device>], place: LabelPosition) -> Result<(), VolumeError> {
        for ((label, _), member) in self.0.iter().zip(members) {
            write(&**member, place, label)?;
        }
        members.iter().try_for_each(|member| sync(&**member))
    }
}

/// Each epoch once, the latest last.
fn by_number(epochs: impl Iterator<Item = Epoch>) -> Vec<Epoch> {
    let mut epochs: Vec<_> = epochs.collect();
    epochs.sort_by_key(|epoch| epoch.number);
    epochs.dedup();
    epochs
}

fn write(member: &dyn Device, place: LabelPosition, label: &Label) -> Result<(), VolumeError> {
    label::write(member, place, label).map_err(|source| VolumeError::label("write", member, source))
}

fn sync(member: &dyn Device) -> Result<(), VolumeError> {
    member.sync_data().map_err(|source| VolumeError::label("sync", member, source))
}

fn kind_of(error: &VolumeError) -> io::ErrorKind {
    match error {
        VolumeError::Label { source, .. } | VolumeError::System { source, .. } => source.kind(),
        _ => io::ErrorKind::InvalidData,
    }
}
