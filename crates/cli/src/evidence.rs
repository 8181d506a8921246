//! What the judge of lies is handed of a simulated run.
//!
//! `bench::lies::judge` looks at a record, at what lies below the target, and at what was seen beside the run. All of that follows from a
//! machine, its layout and a record in virtual time, so a lie that a machine file plants draws the warning that it would draw on
//! drives. What no machine file can say is left out, as it is on a real machine that does not tell: temperatures, PCIe links, governors, other
//! programs, what the data look like.
//!
//! One code is dropped: `W-SMALL-SET` says that a drive's memory may hold the region, and simulated drives answer no read from memory.

use ::bench::lies::{Evidence, Known, Traffic, judge};
use ::bench::observe::{Layer, Observed, Stack};
use ::sim::machine::DriveSpec;
use ::sim::{Layout, Machine};
use base::LayoutKind;
use measure::WarningCode;
use measure::record::{DriveCounts, RunRecord};
use storage::extents::{self, WrittenState};
use storage::sysfs::{BlockDevice, QueueFacts, RaidFacts};

/// Adds to a record of `machine` with `layout` the warnings that its evidence supports.
pub fn judged(machine: &Machine, layout: &Layout, mut record: RunRecord) -> RunRecord {
    let members: Vec<Member<'_>> = layout.devices.iter().map(|device| Member::of(machine, *device)).collect();
    let stack = stack(machine, layout, &members, &record);
    let observed = Observed {
        window_ns: record.interval_ns,
        drives: record.drives.clone(),
        cpus: record.cpus.clone(),
        bounds: record.bounds.clone(),
        ..Observed::default()
    };
    let known = known(machine, layout, &members, &record);
    let evidence = Evidence { record: &record, stack: &stack, observed: &observed, known: &known };
    let mut warnings = judge(&evidence);
    warnings.retain(|warning| warning.code != WarningCode::SmallSet);
    record.warnings = warnings;
    record
}

/// A block device of the host: a drive, or those behind a RAID processor, which are alike.
struct Member<'m> {
    first: &'m DriveSpec,
    drives: u64,
}

impl<'m> Member<'m> {
    fn of(machine: &'m Machine, device: u32) -> Self {
        let each = machine.drives / machine.host_devices();
        Self { first: machine.drive_spec(device * each), drives: u64::from(each) }
    }

    fn size_bytes(&self) -> u64 {
        self.first.size_bytes() * self.drives
    }
}

/// The array, if md makes one, and the members below it.
fn stack(machine: &Machine, layout: &Layout, members: &[Member<'_>], record: &RunRecord) -> Stack {
    let is_md = layout.kind == LayoutKind::MdRaid0;
    let depth_of_members = u32::from(is_md && members.len() > 1);
    let (arrays, drives): (Vec<&DriveCounts>, Vec<&DriveCounts>) =
        record.drives.iter().partition(|drive| !drive.below.is_empty());
    let mut layers: Vec<Layer> = Vec::new();
    if let Some(array) = arrays.first().filter(|_| is_md) {
        let size_bytes = members.iter().map(Member::size_bytes).sum();
        let raid = RaidFacts {
            level: "raid0".to_owned(),
            raid_disks: Some(members.len() as u32),
            chunk_bytes: Some(layout.chunk_bytes),
            ..RaidFacts::default()
        };
        let device = BlockDevice {
            raid: Some(raid),
            ..device(machine, layout, &array.name, "md", &members[0], size_bytes)
        };
        layers.push(Layer { device, below: array.below.clone(), ..Layer::default() });
    }
    layers.extend(drives.iter().zip(members).map(|(drive, member)| Layer {
        device: device(machine, layout, &drive.name, "simulated", member, member.size_bytes()),
        depth: depth_of_members,
        ..Layer::default()
    }));
    // What no layer of the kernel's joins is one target of several devices.
    let is_joined = !is_md && members.len() > 1;
    let offset = u64::from(machine.host.partition_offset_bytes);
    for layer in layers.iter_mut().filter(|layer| layer.depth == 0 && offset > 0) {
        layer.device.partition_start_bytes = Some(offset);
    }
    Stack {
        layers,
        filesystem: layout.filesystem.map(|filesystem| filesystem.word().to_owned()),
        members: if is_joined { members.len() as u32 } else { 0 },
        chunk: (is_joined && layout.kind.has_chunk()).then_some(layout.chunk_bytes),
        ..Stack::default()
    }
}

fn device(
    machine: &Machine,
    layout: &Layout,
    name: &str,
    transport: &str,
    member: &Member<'_>,
    size_bytes: u64,
) -> BlockDevice {
    let is_drive = transport != "md";
    let largest = layout.request_bytes.map_or(machine.host.request_bytes.0, u64::from);
    let cache = if is_drive && member.first.has_volatile_cache() { "write back" } else { "write through" };
    BlockDevice {
        name: name.to_owned(),
        transport: transport.to_owned(),
        size_bytes,
        queue: Some(QueueFacts {
            scheduler: layout.scheduler.clone().filter(|_| is_drive),
            write_cache: Some(cache.to_owned()),
            io_poll: Some(false),
            max_sectors_kb: Some(largest >> 10).filter(|_| is_drive),
            rotational: Some(member.first.is_rotational()),
            logical_block_bytes: 512,
            physical_block_bytes: member.first.physical_block_bytes(),
            ..QueueFacts::default()
        }),
        ..BlockDevice::default()
    }
}

/// What is on the drives before a run, and what the file system writes beside it. A drive in its steady state has been written without
/// end.
fn known(machine: &Machine, layout: &Layout, members: &[Member<'_>], record: &RunRecord) -> Known {
    let occupied = |member: &Member<'_>| member.first.occupied_bytes() * member.drives;
    let is_steady = members.iter().all(|member| member.first.is_steady());
    let written_before_bytes = if is_steady { u64::MAX } else { members.iter().map(occupied).sum() };
    // A stripe takes the same part of each of its members: what the emptiest holds is held of all of it.
    let share =
        members.iter().map(|member| occupied(member) as f64 / member.size_bytes() as f64).fold(1.0, f64::min);
    let whole = record.target.size_bytes;
    let end = if layout.is_separate() { whole / members.len().max(1) as u64 } else { whole };
    let workload = &record.workload;
    let begin = workload.offset.min(end);
    let total = workload.size.unwrap_or(end - begin).min(end - begin);
    let held = ((end as f64 * share) as u64).saturating_sub(begin).min(total);
    Known {
        written: Some(WrittenState {
            total,
            unwritten: total - held,
            evidence: extents::Evidence::Fiemap,
            ..WrittenState::default()
        }),
        written_before_bytes,
        beside: log(machine, layout, record),
        ..Known::default()
    }
}

/// What the file system's log took: one write to it for each write of the run.
fn log(machine: &Machine, layout: &Layout, record: &RunRecord) -> Traffic {
    let costs = layout.filesystem.and_then(|filesystem| machine.host.filesystems.get(filesystem.word()));
    match costs.and_then(|costs| costs.log_bytes) {
        Some(bytes) => Traffic {
            write_bytes: record.write.ios * bytes.0,
            write_ios: record.write.ios,
            ..Traffic::default()
        },
        None => Traffic::default(),
    }
}
