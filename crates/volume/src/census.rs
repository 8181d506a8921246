//! Which volume a set of labels makes, and if none, why not.
//!
//! A pure function of what was read. The first of these that holds is told, so that the words name the cause and
//! not what follows from it:
//!
//! 1. a member cannot be read as a label at all: none there, damaged in both copies, of a later version, or of copies
//!    that no writer leaves together, as after a restore that broke off;
//! 2. members of different volumes;
//! 3. a volume whose labelling was never finished;
//! 4. one member twice, as after copying an image; two that claim the same place;
//! 5. a member of an older epoch, as after bringing an old image back;
//! 6. labels of one volume that contradict each other;
//! 7. members missing;
//! 8. a device that has another size than when it was labelled.
//!
//! A member counts as what its copy of the higher generation says; one whole copy is enough to know it. Where both are
//! whole and differ, they must be what a writer that was stopped leaves: anything else is a member of two times, or of two
//! volumes, and what lies between the copies is then of neither.
//!
//! Members belong together that are of the same epoch; and those that an epoch was announced to beside those that are
//! of it, for nothing was written in it before all were ([`crate::session`]).

use std::collections::BTreeMap;

use storage::device::{Device, ErrorClass};

use crate::label::{self, Found, Label, LabelPosition, State, VERSION};
use storage::uuid::Uuid;

/// A device, and what was read from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its spec.
    pub spec: String,
    /// Its size, bytes.
    pub size: u64,
    /// The copy at its beginning.
    pub head: Found,
    /// The copy at its end.
    pub tail: Found,
}

impl Candidate {
    /// Reads both copies.
    pub fn read(device: &dyn Device) -> std::io::Result<Self> {
        Ok(Self {
            spec: device.spec().to_owned(),
            size: device.size(),
            head: label::read(device, LabelPosition::Head)?,
            tail: label::read(device, LabelPosition::Tail)?,
        })
    }

    /// The copy at `place`.
    #[must_use]
    pub fn copy(&self, place: LabelPosition) -> &Found {
        match place {
            LabelPosition::Head => &self.head,
            LabelPosition::Tail => &self.tail,
        }
    }

    /// What holds of it: the whole copy with the higher generation.
    #[must_use]
    pub fn label(&self) -> Option<&Label> {
        let whole = LabelPosition::BOTH.into_iter().filter_map(|place| self.copy(place).label());
        // Of equals the head.
        whole.reduce(|one, other| if other.generation > one.generation { other } else { one })
    }

    /// Whether there is a label, whole or not.
    #[must_use]
    pub fn bears_a_label(&self) -> bool {
        LabelPosition::BOTH.into_iter().any(|place| *self.copy(place) != Found::Nothing)
    }

    /// Head and tail, where both can be read and are not what a writer that was stopped leaves.
    fn contradiction(&self) -> Option<(&Label, &Label)> {
        let (head, tail) = (self.head.label()?, self.tail.label()?);
        (head != tail && !are_of_one_writer(head, tail)).then_some((head, tail))
    }

    /// What is wrong with the copy at `place`, if it is not what holds of the member.
    #[must_use]
    pub fn fault(&self, place: LabelPosition) -> Option<Fault> {
        let holds = self.label();
        match self.copy(place) {
            Found::Whole(label) if Some(label) == holds => None,
            Found::Torn(label) if Some(label) == holds => Some(Fault::Torn),
            Found::Whole(_) | Found::Torn(_) if self.contradiction().is_some() => Some(Fault::Apart),
            Found::Whole(_) | Found::Torn(_) => Some(Fault::Stale),
            Found::Nothing => Some(Fault::Missing),
            Found::Damaged(why) => Some(Fault::Damaged(why)),
            Found::Later(version) => Some(Fault::Later(*version)),
        }
    }
}

/// Whether whoever wrote both copies, and was stopped before the second, leaves them: [`crate::create`] when it says
/// *ready*, and [`crate::session`] when an epoch is announced by the tail and when it is begun by the head.
fn are_of_one_writer(head: &Label, tail: &Label) -> bool {
    let member = |label: &Label| (label.member, label.position, label.member_bytes);
    let announces = tail.next != tail.epoch;
    let follows = match head.generation > tail.generation {
        true => {
            head.generation == tail.generation + 1
                && head.epoch == tail.next
                && head.next == head.epoch
                && announces != (tail.state == State::Creating)
        }
        // Of a member that was stopped when only others had begun an epoch, the tail tells that one and the next.
        false => {
            tail.generation == head.generation + 1
                && [head.epoch, head.next].contains(&tail.epoch)
                && tail.state == head.state
                && announces
        }
    };
    follows && head.agrees(tail) && member(head) == member(tail)
}

/// What is wrong with one copy of a label whose other copy is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// There is none.
    Missing,
    /// It is not as it was written.
    Damaged(&'static str),
    /// It is of the generation before: whoever wrote the labels was stopped before this copy.
    Stale,
    /// It is of another time than the other copy, or of another member, as no writer leaves them: a [`Flaw::Mixed`].
    Apart,
    /// It says what it is to say, and its block is not as it was written: whoever wrote it lost power then.
    Torn,
    /// It is of a format that is not understood.
    Later(u32),
}

impl Fault {
    /// Whether somebody other than an interrupted flashwright must have brought it about.
    #[must_use]
    pub fn is_damage(self) -> bool {
        !matches!(self, Self::Stale | Self::Torn)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => f.write_str("is not there"),
            Self::Damaged(why) => write!(f, "is damaged: {why}"),
            Self::Stale => f.write_str("is of an earlier generation"),
            Self::Apart => f.write_str("does not belong to the other copy"),
            Self::Torn => f.write_str("was cut short when it was written"),
            Self::Later(version) => write!(f, "is of format {version}"),
        }
    }
}

/// Why devices do not make a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// No label.
    #[error("{member} bears no label of a volume")]
    Unlabelled {
        /// The device.
        member: String,
    },
    /// A label, and no copy of it whole.
    #[error("no copy of the label of {member} is whole: {why}")]
    Damaged {
        /// The device.
        member: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Copies of one label that no writer leaves together.
    #[error("{member} is of two times or volumes: its label's head is of {head}, and the tail of {tail}")]
    Mixed {
        /// The device.
        member: String,
        /// What the head is of.
        head: String,
        /// What the tail is of.
        tail: String,
    },
    /// A label from a later flashwright.
    #[error("the label of {member} is of format {version}; this flashwright reads {VERSION}")]
    Later {
        /// The device.
        member: String,
        /// Its format.
        version: u32,
    },
    /// Members of several volumes.
    #[error("{member} belongs to volume {its}, the others to {theirs}")]
    Foreign {
        /// The device.
        member: String,
        /// Its volume.
        its: String,
        /// That of the others.
        theirs: String,
    },
    /// Somebody was stopped while making the volume.
    #[error("volume {volume} is half-made: the label of {member} was never completed")]
    HalfMade {
        /// The volume.
        volume: String,
        /// A member that shows it.
        member: String,
    },
    /// The same member twice.
    #[error("{one} and {other} are both member {position} of volume {volume}: one is a copy of the other")]
    Copied {
        /// The volume.
        volume: String,
        /// Which one, from 1.
        position: u32,
        /// A device.
        one: String,
        /// Another.
        other: String,
    },
    /// A member from an earlier time.
    #[error(
        "{member} is of epoch {epoch} of volume {volume}, and {other} of {newest}: {member} is an old state"
    )]
    Older {
        /// The volume.
        volume: String,
        /// The device.
        member: String,
        /// Its epoch.
        epoch: u64,
        /// A device of the newest.
        other: String,
        /// The highest one.
        newest: u64,
    },
    /// Members that were written without each other.
    #[error(
        "{one} and {other} are members of copies of volume {volume} that were each written without the other"
    )]
    Apart {
        /// The volume.
        volume: String,
        /// A device.
        one: String,
        /// Another.
        other: String,
    },
    /// Labels that cannot be of one volume.
    #[error("the labels of {one} and {other} say different things of volume {volume}")]
    Contradiction {
        /// The volume.
        volume: String,
        /// A device.
        one: String,
        /// Another.
        other: String,
    },
    /// Not all members are there.
    #[error(
        "volume {volume} has {width} members; missing {} {}",
        if positions.len() == 1 { "is member" } else { "are members" },
        listed(positions)
    )]
    Missing {
        /// The volume.
        volume: String,
        /// How many it has.
        width: u32,
        /// Which are not there, from 1.
        positions: Vec<u32>,
    },
    /// A device of another size.
    #[error("{member} has {actual} bytes now, and had {labelled} when it became a member of volume {volume}")]
    Resized {
        /// The volume.
        volume: String,
        /// The device.
        member: String,
        /// Bytes that it has.
        actual: u64,
        /// Bytes that it had.
        labelled: u64,
    },
}

impl Flaw {
    /// What kind of failure it is: naming the wrong devices is a wrong request, and what might be somebody's data
    /// in a state that nobody foresaw is refused.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Unlabelled { .. } | Self::Foreign { .. } | Self::Missing { .. } | Self::Later { .. } => {
                ErrorClass::Invalid
            }
            Self::Damaged { .. }
            | Self::Mixed { .. }
            | Self::HalfMade { .. }
            | Self::Copied { .. }
            | Self::Older { .. }
            | Self::Apart { .. }
            | Self::Contradiction { .. }
            | Self::Resized { .. } => ErrorClass::Refused,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Unlabelled { .. } => {
                "flashwright volume show lists what is labelled; stripe(chunk=64k):SPEC,SPEC takes devices without labels"
                    .to_owned()
            }
            Self::Damaged { member, .. } => {
                format!("bring {member} back from a copy; flashwright volume show tells what is left of the others")
            }
            Self::Mixed { member, .. } => {
                format!("only a part of {member} was brought back or overwritten: bring all of it back from one time")
            }
            Self::Later { .. } => "use the flashwright that made it, or a later one".to_owned(),
            Self::Foreign { .. } => "name the members of one volume: flashwright volume show".to_owned(),
            Self::HalfMade { .. } => {
                "nothing was ever stored on it: make it again with flashwright volume create".to_owned()
            }
            Self::Copied { one, other, .. } => {
                format!("leave {one} or {other} out, whichever is the copy")
            }
            Self::Older { member, .. } => {
                format!("{member} was brought back from an earlier time: name the device that took its place")
            }
            Self::Apart { .. } => "name the members of one copy".to_owned(),
            Self::Contradiction { .. } => {
                "one of them was brought back from an earlier time, or written by something else".to_owned()
            }
            Self::Missing { .. } => {
                "name all members, in any order; flashwright volume show lists those that are block devices".to_owned()
            }
            Self::Resized { member, actual, labelled, .. } if actual > labelled => {
                format!("make {member} {labelled} bytes long again; what was added holds nothing of the volume")
            }
            Self::Resized { .. } => "what was cut off is lost; bring the device back in its full size".to_owned(),
        }
    }
}

/// Numbers as one reads them out: `1, 3 and 4`.
fn listed(numbers: &[u32]) -> String {
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// What a volume is called in messages: its name and its UUID.
#[must_use]
pub fn called(label: &Label) -> String {
    match label.name.as_str() {
        "" => label.volume.to_string(),
        name => format!("'{}' ({})", name.escape_debug(), label.volume),
    }
}

/// A volume that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    /// The number of each member among the candidates, in the order of the volume.
    pub order: Vec<usize>,
    /// The first member's label.
    pub label: Label,
}

/// Which volume `candidates` are, all of it and nothing else.
///
/// # Errors
/// [`Flaw`], by the order in the module's argument.
pub fn census(candidates: &[Candidate]) -> Result<Census, Flaw> {
    let labels = candidates.iter().map(known).collect::<Result<Vec<_>, _>>()?;
    let pairs: Vec<(&Candidate, &Label)> = candidates.iter().zip(labels).collect();
    let Some((_, first)) = most_common(&pairs) else {
        return Err(Flaw::Unlabelled { member: "nothing".to_owned() });
    };
    for (candidate, label) in &pairs {
        if label.volume != first.volume {
            let (member, its, theirs) = (candidate.spec.clone(), called(label), called(first));
            return Err(Flaw::Foreign { member, its, theirs });
        }
    }
    let volume = || called(first);
    if let Some((candidate, _)) = pairs.iter().find(|(_, label)| label.state == State::Creating) {
        return Err(Flaw::HalfMade { volume: volume(), member: candidate.spec.clone() });
    }
    let mut placed: BTreeMap<u32, usize> = BTreeMap::new();
    for (at, (candidate, label)) in pairs.iter().enumerate() {
        let Some(earlier) = placed.insert(label.position, at) else { continue };
        let (one, other) = (pairs[earlier].0.spec.clone(), candidate.spec.clone());
        return Err(match pairs[earlier].1.member == label.member {
            true => Flaw::Copied { volume: volume(), position: label.position + 1, one, other },
            false => Flaw::Contradiction { volume: volume(), one, other },
        });
    }
    consistent(&pairs, first)?;
    let absent: Vec<u32> = (0..first.width).filter(|at| !placed.contains_key(at)).map(|at| at + 1).collect();
    if !absent.is_empty() {
        return Err(Flaw::Missing { volume: volume(), width: first.width, positions: absent });
    }
    for (candidate, label) in &pairs {
        if candidate.size != label.member_bytes {
            let (actual, labelled) = (candidate.size, label.member_bytes);
            return Err(Flaw::Resized { volume: volume(), member: candidate.spec.clone(), actual, labelled });
        }
    }
    let order: Vec<usize> = placed.into_values().collect();
    let label = pairs[order[0]].1.clone();
    Ok(Census { order, label })
}

/// What a label is of, and of which time.
fn placed(label: &Label) -> String {
    let (position, generation, epoch) = (label.position + 1, label.generation, label.epoch.number);
    format!("member {position} of volume {}, generation {generation}, epoch {epoch}", called(label))
}

/// The label that holds of a candidate.
fn known(candidate: &Candidate) -> Result<&Label, Flaw> {
    let member = || candidate.spec.clone();
    if let Some((head, tail)) = candidate.contradiction() {
        return Err(Flaw::Mixed { member: member(), head: placed(head), tail: placed(tail) });
    }
    if let Some(label) = candidate.label() {
        return Ok(label);
    }
    let copies = [&candidate.head, &candidate.tail];
    let later = copies.iter().find_map(|copy| match copy {
        Found::Later(version) => Some(Flaw::Later { member: member(), version: *version }),
        _ => None,
    });
    let damaged = copies.iter().find_map(|copy| match copy {
        Found::Damaged(why) => Some(Flaw::Damaged { member: member(), why }),
        _ => None,
    });
    Err(later.or(damaged).unwrap_or_else(|| Flaw::Unlabelled { member: member() }))
}

/// One of the volume that has most of the members; of equals the one named first.
fn most_common<'c>(pairs: &[(&'c Candidate, &'c Label)]) -> Option<(&'c Candidate, &'c Label)> {
    let count = |volume: Uuid| pairs.iter().filter(|(_, label)| label.volume == volume).count();
    let most = pairs.iter().map(|(_, label)| count(label.volume)).max()?;
    pairs.iter().find(|(_, label)| count(label.volume) == most).copied()
}

/// Refuses members of different epochs, and labels that disagree.
fn consistent(pairs: &[(&Candidate, &Label)], first: &Label) -> Result<(), Flaw> {
    let Some((newest, latest)) = pairs.iter().max_by_key(|(_, label)| label.epoch.number) else {
        return Ok(());
    };
    let belongs = |label: &Label| label.epoch == latest.epoch || label.next == latest.epoch;
    if let Some((candidate, label)) = pairs.iter().find(|(_, label)| !belongs(label)) {
        let (volume, member, other) = (called(first), candidate.spec.clone(), newest.spec.clone());
        let (epoch, newest) = (label.epoch.number, latest.epoch.number);
        return Err(match epoch == newest {
            true => Flaw::Apart { volume, one: member, other },
            false => Flaw::Older { volume, member, epoch, other, newest },
        });
    }
    let (reference, _) = pairs.iter().find(|(_, label)| std::ptr::eq(*label, first)).unwrap_or(&pairs[0]);
    match pairs.iter().find(|(_, label)| !label.agrees(first)) {
        None => Ok(()),
        Some((candidate, _)) => Err(Flaw::Contradiction {
            volume: called(first),
            one: reference.spec.clone(),
            other: candidate.spec.clone(),
        }),
    }
}
