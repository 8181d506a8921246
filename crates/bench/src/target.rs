//! A device as a [`Target`]: opened as each workload needs it, looked at before it is read.
//!
//! A workload decides how its device is opened (direct or buffered, for reading or writing too), so a
//! target keeps one open device for each way that was needed. What the table of lies needs to know
//! about the contents is found out here, before a reading run: the extent map, and what blocks drawn
//! at random look like.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use measure::dealing::part_of;
use measure::precondition::Preconditioned;
use measure::record::{RunRecord, TargetFacts};
use measure::{Target, TargetError, Workload, workload};
use storage::device::{
    self, Access, BlockMetadata, Device, DeviceKind, DeviceSpec, MetadataTransfer, OpenOptions,
    ProtectionAction, ScratchFile, WriteSync, check_written,
};
use storage::extents::WrittenState;
use storage::sysfs::Sysfs;

use crate::lies::{Known, blocks};
use crate::observe::{Observer, Subject};
use crate::problem::Problem;
use crate::run::conduct::Conduct;
use crate::run::{BenchError, Job, Outcome, RunOptions, run};
use crate::zones::Zones;

/// What the user allows.
#[derive(Debug, Clone, Default)]
pub struct TargetOptions {
    /// Devices and files whose contents the user has given up.
    pub destroy: Vec<PathBuf>,
    /// Measure reads of what was never written, knowingly.
    pub allow_unwritten: bool,
    /// Refuse to read a raw device of which so many blocks are zeros that it was never written, as far as anybody can
    /// tell; unless [`allow_unwritten`](Self::allow_unwritten) is set.
    pub refuse_zeros: bool,
    /// Set to stop runs that are started through [`Target::run`].
    pub stop: Option<Arc<AtomicBool>>,
}

/// What this program did to a target's contents, apart from what lies there: to be handed on where the same
/// contents are opened as another target.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// Bytes that were written, and that no purge has undone.
    pub written_bytes: u64,
    /// How it was prepared, for the records of the runs that follow.
    pub precondition: Option<Arc<Preconditioned>>,
}

/// How a device is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Way {
    direct: bool,
    writes: bool,
    sync: WriteSync,
    /// Who makes the protection information of a namespace's blocks.
    protection: Option<ProtectionAction>,
}

impl Way {
    /// As a workload needs it; for writing even if the workload only reads.
    fn of(workload: &Workload, writes: bool) -> Self {
        // What only reads has nothing to make durable, and shares a descriptor with others that read.
        let sync = match workload.sync {
            workload::WriteSync::Dsync if writes => WriteSync::Data,
            workload::WriteSync::Sync if writes => WriteSync::File,
            _ => WriteSync::None,
        };
        Self { direct: workload.direct, writes, sync, protection: None }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Opened {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) observer: Observer,
}

#[derive(Debug)]
enum Source {
    Spec(Box<DeviceSpec>),
    Scratch(Arc<ScratchFile>),
}

/// A device that workloads run on.
#[derive(Debug)]
pub struct BenchTarget {
    source: Source,
    spec: String,
    options: TargetOptions,
    facts: TargetFacts,
    open: HashMap<Way, Opened>,
    /// See [`BenchTarget::protect`].
    protection: Option<ProtectionAction>,
    zones: Zones,
    /// What blocks drawn from a region of a device looked like, until something was written.
    sampled: HashMap<(usize, u64, u64), blocks::Sampled>,
    /// What this program is known to have written, and a purge has not undone.
    pub(crate) written_bytes: u64,
    /// What was done beforehand, for the records of the runs that follow.
    pub(crate) precondition: Option<Arc<Preconditioned>>,
}

impl BenchTarget {
    /// A target from a device spec as it was typed. Nothing is opened yet.
    ///
    /// # Errors
    /// [`Problem::Spec`] naming the text and the part at fault.
    pub fn new(spec: &str, options: TargetOptions) -> Result<Self, Problem> {
        let parsed = DeviceSpec::parse(spec)?;
        Ok(Self::over(Source::Spec(Box::new(parsed)), spec.to_owned(), options))
    }

    /// A target over a scratch file, which may be overwritten freely.
    #[must_use]
    pub fn scratch(file: Arc<ScratchFile>, options: TargetOptions) -> Self {
        Self::over(Source::Scratch(file), "scratch".to_owned(), options)
    }

    fn over(source: Source, spec: String, options: TargetOptions) -> Self {
        let facts = TargetFacts { spec: spec.clone(), ..TargetFacts::default() };
        Self {
            source,
            spec,
            options,
            facts,
            open: HashMap::new(),
            protection: None,
            zones: Zones::default(),
            sampled: HashMap::new(),
            written_bytes: 0,
            precondition: None,
        }
    }

    /// What was done to its contents up to now.
    #[must_use]
    pub fn history(&self) -> History {
        History { written_bytes: self.written_bytes, precondition: self.precondition.clone() }
    }

    /// The target over contents to which all this was done before.
    #[must_use]
    pub fn with_history(mut self, history: &History) -> Self {
        self.written_bytes = history.written_bytes;
        self.precondition.clone_from(&history.precondition);
        self
    }

    /// Says who makes the protection information of a namespace's blocks in the jobs that follow; None where none of them
    /// expects any.
    pub fn protect(&mut self, protection: Option<ProtectionAction>) {
        if self.protection != protection {
            // The same offsets are of other blocks then.
            self.contents_changed();
            self.protection = protection;
        }
    }

    /// The device, opened as `workload` needs it, with all that a run needs to know.
    ///
    /// # Errors
    /// [`Problem`]; a region with holes is refused for reading unless that is allowed.
    pub fn job(&mut self, workload: &Workload) -> Result<Job, Problem> {
        workload.validate().map_err(BenchError::from)?;
        let way = Way::of(workload, workload.rw.modifies());
        let Opened { device, observer } = self.opened(way)?;
        check_write_sync(&device, workload)?;
        check_direct(&device, workload)?;
        check_verify(&device, workload)?;
        let mut known = Known {
            written_before_bytes: self.written_bytes,
            precondition: self.precondition.clone(),
            ..Known::default()
        };
        if workload.rw.reads() {
            self.look(&device, workload, &mut known)?;
        }
        let (workload, zones) = (workload.clone(), self.zones.clone());
        Ok(Job { device, workload, observer, known, conduct: Conduct::default(), zones })
    }

    /// Runs a workload once.
    pub fn run_once(&mut self, workload: &Workload, options: RunOptions<'_>) -> Result<Outcome, Problem> {
        let job = self.job(workload)?;
        let result = run(std::slice::from_ref(&job), options);
        self.note_written(workload, &result);
        Ok(result?)
    }

    /// Remembers that a run changed the contents, even if it failed.
    fn note_written(&mut self, workload: &Workload, result: &Result<Outcome, BenchError>) {
        if workload.rw.modifies() {
            self.contents_changed();
        }
        if workload.rw.modifies() && !workload.rw.writes() && !workload.is_zbd() {
            self.contents_given_back();
        }
        if let Ok(outcome) = result {
            outcome.records.iter().for_each(|record| self.count_written(record));
        }
    }

    /// Counts what a run of this target wrote.
    pub fn count_written(&mut self, record: &RunRecord) {
        self.written_bytes += record.total.write_bytes;
    }

    /// The device, open for writing as `workload` would write it.
    pub(crate) fn opened_for_writing(&mut self, workload: &Workload) -> Result<Opened, Problem> {
        workload.validate().map_err(BenchError::from)?;
        self.opened(Way::of(workload, true))
    }

    /// Bytes of the part that a writing workload works on.
    ///
    /// # Errors
    /// [`Problem`] where the device cannot be opened for it.
    pub fn region_bytes(&mut self, workload: &Workload) -> Result<u64, Problem> {
        let opened = self.opened_for_writing(workload)?;
        let region = self.region(&*opened.device, workload);
        Ok(region.end - region.start)
    }

    /// Forgets what blocks drawn from the contents looked like: something has written to them.
    pub fn contents_changed(&mut self) {
        self.sampled.clear();
    }

    /// Forgets besides what zones hold that are kept account of: parts of the target have become holes.
    pub(crate) fn contents_given_back(&mut self) {
        self.contents_changed();
        self.zones.forget_data();
    }

    /// The part of the device that a workload works on, all its jobs together; separate devices are taken whole,
    /// for their parts do not follow each other.
    pub(crate) fn region(&self, device: &dyn Device, workload: &Workload) -> Range<u64> {
        match device.kind() {
            DeviceKind::Separate => 0..device.size(),
            _ => region(device, workload),
        }
    }

    fn opened(&mut self, way: Way) -> Result<Opened, Problem> {
        // Memory has one way only, and its contents live with it, in whatever it is a part of.
        let way = match &self.source {
            Source::Spec(spec) if all_memory(spec) => {
                Way { direct: false, writes: true, sync: WriteSync::None, protection: None }
            }
            _ => Way { protection: self.protection, ..way },
        };
        if let Some(opened) = self.open.get(&way) {
            return Ok(opened.clone());
        }
        let options = OpenOptions {
            direct: way.direct,
            access: if way.writes { Access::ReadWrite } else { Access::ReadOnly },
            destroy: self.options.destroy.clone(),
            // The region that a workload reads is looked at by `look`, not all of the device here.
            allow_unwritten: true,
            region: None,
            as_owner: false,
            sync: way.sync,
            protection: way.protection,
        };
        let device = match &self.source {
            Source::Scratch(file) => file.open(&self.spec, &options)?,
            Source::Spec(spec) => {
                if way.writes {
                    // A block device is claimed for writing once; the other way must let go first.
                    self.open.retain(|open, opened| !open.writes || !holds_a_claim(&*opened.device));
                }
                volume::open(spec, &options)?
            }
        };
        let subject = Subject::of(&Sysfs::host(), &*device).map_err(|source| Problem::Look {
            device: self.spec.clone(),
            operation: "find what lies below",
            source,
        })?;
        self.facts = TargetFacts { spec: self.spec.clone(), ..subject.facts.clone() };
        let subject = Subject { facts: self.facts.clone(), ..subject };
        let opened = Opened { device, observer: Observer::new(Sysfs::host(), subject) };
        self.open.insert(way, opened.clone());
        Ok(opened)
    }

    /// What is known about the region that a workload reads.
    fn look(
        &mut self,
        device: &Arc<dyn Device>,
        workload: &Workload,
        known: &mut Known,
    ) -> Result<(), Problem> {
        // A mix reads what it may just have written, so only a pure reader is refused.
        let allow = self.options.allow_unwritten || workload.rw.modifies();
        let (mut written, mut sampled) = (Vec::new(), Vec::new());
        let parts = separate_parts(device, workload)?;
        let devices = parts.len();
        for (device, part, place) in parts {
            let region = region(&**device, &part);
            // Of zones, no more is read than lies below their pointers.
            let ranges = match part.is_zbd() && !part.read_beyond_wp {
                true => self.zones.readable(device, &part, &region).map_err(BenchError::from)?,
                false => vec![region],
            };
            let device = &**device;
            let count = blocks::sample_count(devices, is_raw(device));
            for range in &ranges {
                written.push(check_written(device, range.clone(), allow)?);
            }
            let Some(region) = ranges.into_iter().max_by_key(|range| range.end - range.start) else {
                continue;
            };
            let key = (place, region.start, region.end - region.start);
            let seen = match self.sampled.get(&key) {
                Some(seen) => *seen,
                None => {
                    let seen = blocks::sample(device, region.start, key.2, count, workload.randseed)
                        .map_err(|source| Problem::Look {
                            device: device.spec().to_owned(),
                            operation: "read sample blocks",
                            source,
                        })?;
                    self.sampled.insert(key, seen);
                    seen
                }
            };
            if self.options.refuse_zeros && !allow && is_raw(device) && seen.seems_never_written() {
                let device = device.spec().to_owned();
                return Err(Problem::NeverWritten { device, zero: seen.zero, blocks: seen.blocks });
            }
            sampled.push(seen);
        }
        known.written = written.into_iter().reduce(WrittenState::plus);
        known.sampled = sampled.into_iter().reduce(blocks::Sampled::plus);
        Ok(())
    }
}

/// Refuses writes that are to be durable when they complete on what has no descriptor whose flags would make them so.
fn check_write_sync(device: &Arc<dyn Device>, workload: &Workload) -> Result<(), BenchError> {
    if workload.sync == workload::WriteSync::None || !workload.rw.writes() {
        return Ok(());
    }
    let sync = workload.sync.word();
    let refuse = |what| Err(BenchError::NoWriteSync { sync, device: device.spec().to_owned(), what });
    match device::leaves(device) {
        leaves if leaves.iter().any(|leaf| leaf.memory().is_some()) => refuse("memory"),
        leaves if leaves.iter().any(|leaf| leaf.remote().is_some()) => refuse("an export of another host"),
        _ => Ok(()),
    }
}

/// Refuses to go through the page cache where commands go past it.
fn check_direct(device: &Arc<dyn Device>, workload: &Workload) -> Result<(), BenchError> {
    if workload.direct || device::leaves(device).iter().all(|leaf| leaf.namespace().is_none()) {
        return Ok(());
    }
    Err(BenchError::Invalid(workload::InvalidWorkload {
        option: "direct",
        value: "0".to_owned(),
        reason: "a namespace by its character device takes NVMe commands, which pass by the page cache",
        hint: "write direct=1, or name the namespace's block device, such as /dev/nvme0n1",
    }))
}

/// Refuses to verify blocks part of which is made by somebody else on the way.
fn check_verify(device: &Arc<dyn Device>, workload: &Workload) -> Result<(), BenchError> {
    let is_changed = |metadata: BlockMetadata| {
        metadata.transfer == MetadataTransfer::Interleaved && metadata.protection.is_some()
    };
    let mut metadata = device::leaves(device).iter().filter_map(|leaf| leaf.namespace()?.metadata);
    let Some(verify) = workload.verify.filter(|_| metadata.any(is_changed)) else { return Ok(()) };
    Err(BenchError::Invalid(workload::InvalidWorkload {
        option: "verify",
        value: verify.word().to_owned(),
        reason: "protection information lies in each block here, and takes the place of what is verified there",
        hint: "leave verify out: pi_chk=GUARD finds blocks that are not what was written",
    }))
}

/// A device, its part of a workload, and its number.
type SeparatePart<'d> = (&'d Arc<dyn Device>, Workload, usize);

/// The devices whose regions a workload visits, each with its part of the workload and its number: one, or each of
/// separate ones.
fn separate_parts<'d>(
    device: &'d Arc<dyn Device>,
    workload: &Workload,
) -> Result<Vec<SeparatePart<'d>>, BenchError> {
    if device.kind() != DeviceKind::Separate {
        return Ok(vec![(device, workload.clone(), 0)]);
    }
    let members = device.members();
    let part = |(number, member): (usize, &'d Arc<dyn Device>)| {
        let part = part_of(workload, members.len() as u32, number as u32)?;
        Ok((member, part, number))
    };
    members.iter().enumerate().map(part).collect()
}

/// Whether nothing but block devices lies below, of which nobody knows what was written.
fn is_raw(device: &dyn Device) -> bool {
    match device.spread() {
        None => device.kind() == DeviceKind::Block,
        Some(spread) => spread.members().iter().all(|member| is_raw(&**member)),
    }
}

/// The bytes of a device that a workload visits.
fn region(device: &dyn Device, workload: &Workload) -> Range<u64> {
    let length = workload.size.unwrap_or(u64::MAX).min(device.size().saturating_sub(workload.offset));
    let end = match workload.offset_increment {
        Some(step) => {
            let last = step.saturating_mul(u64::from(workload.numjobs) - 1);
            workload.offset.saturating_add(last).saturating_add(length).min(device.size())
        }
        // Requests lie at multiples of the smallest: what is shorter at the end is neither written nor read.
        None => {
            workload.offset
                + if length < workload.min_bs() { length } else { length - length % workload.min_bs() }
        }
    };
    workload.offset..end.max(workload.offset)
}

/// Whether a spec names memory and nothing else.
fn all_memory(spec: &DeviceSpec) -> bool {
    spec.leaves().iter().all(|leaf| matches!(leaf, DeviceSpec::Memory { .. }))
}

/// Whether a device, open for writing, keeps others from opening it so: block devices do, and so do exports of servers
/// that serve one client at a time, and labelled volumes, whose files are locked.
fn holds_a_claim(device: &dyn Device) -> bool {
    matches!(device.kind(), DeviceKind::Block | DeviceKind::Nbd | DeviceKind::Volume)
        || device.members().iter().any(|member| holds_a_claim(&**member))
}

impl Target for BenchTarget {
    fn facts(&self) -> &TargetFacts {
        &self.facts
    }

    fn run(&mut self, workload: &Workload) -> Result<RunRecord, TargetError> {
        let stop = self.options.stop.clone();
        let options = RunOptions { stop: stop.as_deref(), pass: 1, ..RunOptions::default() };
        let outcome = self.run_once(workload, options).map_err(TargetError::from)?;
        if outcome.interrupted {
            return Err(TargetError::Interrupted);
        }
        let record = outcome.records.into_iter().next();
        record.ok_or_else(|| TargetError::Failed("the run gave no record".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_not_driven_through_the_page_cache_that_it_does_not_have() {
        let buffered = Workload { direct: false, ..Workload::default() };
        let namespace = crate::namespaced::namespaced(None);
        let error = check_direct(&namespace, &buffered).expect_err("is refused");
        assert!(error.is_about_the_request());
        let said = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        assert!(said.contains("direct") && error.hint().expect("a hint").contains("/dev/nvme0n1"), "{said}");
        assert!(check_direct(&namespace, &Workload::default()).is_ok());
        let memory = device::open(&"mem:1m".parse().expect("a spec"), &OpenOptions::writing());
        assert!(check_direct(&memory.expect("memory"), &buffered).is_ok());
    }

    #[test]
    fn blocks_are_not_verified_where_protection_information_takes_the_place_of_a_part_of_them() {
        use storage::device::{Guard, ProtectionFormat};
        let verified = Workload { verify: Some(workload::Verify::Crc32c), ..Workload::default() };
        let format = ProtectionFormat { kind: 1, is_first: false, guard: Guard::Bits16 };
        let metadata = |transfer, protection| BlockMetadata {
            data_bytes: 512,
            bytes: 8,
            transfer,
            action: ProtectionAction::Host,
            protection,
        };
        let of = |metadata| crate::namespaced::with_metadata(None, metadata);
        let check = |metadata, workload: &Workload| check_verify(&of(metadata), workload);
        let within = Some(metadata(MetadataTransfer::Interleaved, Some(format)));
        let error = check(within, &verified).expect_err("is refused");
        assert!(error.is_about_the_request() && error.hint().expect("a hint").contains("pi_chk"));
        assert!(check(within, &Workload::default()).is_ok());
        // Nor where they are of one of several devices.
        let several = crate::namespaced::joined(vec![of(None), of(within)]);
        let error = check_verify(&several, &verified).expect_err("is refused");
        assert!(error.is_about_the_request());
        assert!(check_verify(&crate::namespaced::joined(vec![of(None), of(None)]), &verified).is_ok());
        assert!(check(Some(metadata(MetadataTransfer::Separate, Some(format))), &verified).is_ok());
        assert!(check(Some(metadata(MetadataTransfer::Interleaved, None)), &verified).is_ok());
        assert!(check(None, &verified).is_ok());
    }
}
