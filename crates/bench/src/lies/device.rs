//! Which drive was it, in what state, and who else was using it?

use measure::record::DriveCounts;
use measure::stats::knee::{LEAST_FALL, curve};
use measure::workload::IoEngine;
use measure::{Warning, WarningCode};

use super::memory::{is_made_of_memory_or_file, is_memory_filesystem};
use super::{Asked, Evidence, about, names};
use crate::observe::{Layer, heat::Temperature};

/// Part by which the number of requests a drive did may differ from those made.
pub(super) const REQUEST_TOLERANCE: f64 = 0.05;
/// Bytes beyond those asked for from which another user disturbs the figure.
const OTHER_TRAFFIC_LIMIT: f64 = 0.10;
/// What a quiet system writes by itself (journals, logs, access times), bytes a second.
const QUIET_BYTES_PER_S: f64 = 2.0 * 1024.0 * 1024.0;
/// The same in requests a second, for the direction that the run does not use.
const QUIET_IOS_PER_S: f64 = 100.0;
/// A commit of a journal comes every few seconds; in a shorter window it counts as if in this one.
const SHORTEST_QUIET_S: f64 = 0.5;
/// A shorter run has too few steps to tell a cliff from a wave of the drive's housekeeping.
const SHORTEST_CURVE_NS: u64 = 2_000_000_000;
/// SNIA's workload-independent preconditioning writes the capacity this many times over.
const PRECONDITIONING_PASSES: u64 = 2;

/// `W-VOLATILE-CACHE`, `W-SLC-CACHE`, `W-HEAT`, `W-MERGED`, `W-SPLIT`, `W-CHUNK`, `W-VIRTUAL`, `W-MISALIGNED`,
/// `W-POLL-UNAVAILABLE`, `W-LINK-DEGRADED`, `W-BACKGROUND-WORK`, `W-SETTINGS-DRIFT`,
/// `W-OTHER-TRAFFIC`, `W-UNPRECONDITIONED`.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Vec<Warning> {
    [
        volatile_cache(evidence),
        slc_cache(evidence),
        heat(evidence),
        merged(evidence),
        split(evidence),
        super::chunk::chunk(evidence),
        virtual_layer(evidence),
        misaligned(evidence),
        poll_unavailable(evidence),
        link_degraded(evidence),
        background_work(evidence),
        settings_drift(evidence),
        other_traffic(evidence),
        unpreconditioned(evidence),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Devices behind which a hypervisor, another machine or a user process stands.
fn is_remote(layer: &Layer) -> bool {
    let transport = layer.device.transport.as_str();
    matches!(
        transport,
        "virtio"
            | "virtio-scsi"
            | "xen"
            | "hyperv"
            | "nbd"
            | "rnbd"
            | "rbd"
            | "ublk"
            | "iscsi"
            | "drbd"
            | "zvol"
    )
}

/// Whether a drive is flash as far as the kernel can tell. What it says of the medium of remote devices is a default.
fn may_be_flash(drive: &Layer) -> bool {
    !drive.is_rotational() || is_remote(drive)
}

fn volatile_cache(evidence: &Evidence<'_>) -> Option<Warning> {
    let record = evidence.record;
    let flushes = record.workload.makes_durable();
    if record.write.ios == 0 || flushes {
        return None;
    }
    let drives = || evidence.stack.drives().filter(|drive| drive.has_volatile_cache());
    drives().next()?;
    let message = format!(
        "queue/write_cache of {} is write back, and none of {} writes was followed by a flush",
        names(drives()),
        record.write.ios,
    );
    Some(Warning::new(WarningCode::VolatileCache, message))
}

/// The shape of a writing run with a cliff: [`knee`](measure::stats::knee) says when a fall is one. Buffered writes fall
/// when the page cache is full, which is not the drive's; memory has no cache; and a disk that turns falls by half or more
/// from its outer tracks to its inner ones, and has no flash.
fn slc_cache(evidence: &Evidence<'_>) -> Option<Warning> {
    let record = evidence.record;
    let workload = &record.workload;
    let judged = workload.rw.writes() && workload.direct && !workload.is_open_loop();
    if !judged || record.interval_ns < SHORTEST_CURVE_NS || !evidence.stack.drives().any(may_be_flash) {
        return None;
    }
    if evidence.stack.layers.iter().any(is_made_of_memory_or_file) {
        return None;
    }
    let knee = curve(&super::workload::rates(evidence)).knee?;
    let written: u64 = record.samples.iter().take(knee.at).map(|sample| sample.write_bytes).sum();
    let message = format!(
        "after {} the rate fell for good from {} to {} ({} less; limit {})",
        units::bytes(written),
        units::bandwidth(knee.before),
        units::bandwidth(knee.after),
        units::percent(knee.fall()),
        units::percent(LEAST_FALL),
    );
    Some(Warning::new(WarningCode::SlcCache, message))
}

/// The highest reading of each sensor that was in the drive's own warning range, before, within or after the run.
fn heat(evidence: &Evidence<'_>) -> Option<Warning> {
    let observed = evidence.observed;
    let readings = observed.heat_before.iter().chain(&observed.heat_during).chain(&observed.heat_after);
    let mut hot: Vec<&Temperature> = readings.filter(|reading| reading.is_hot()).collect();
    hot.sort_by(|a, b| (&a.drive, &a.label).cmp(&(&b.drive, &b.label)).then(b.celsius.total_cmp(&a.celsius)));
    hot.dedup_by(|later, first| (&later.drive, &later.label) == (&first.drive, &first.label));
    let findings: Vec<String> = hot
        .into_iter()
        .map(|reading| {
            let limit = match reading.warning_celsius {
                Some(limit) => format!("it warns at {limit:.0} °C"),
                None => "it raised its alarm".to_owned(),
            };
            format!("{} ({}) was at {:.0} °C; {limit}", reading.drive, reading.label, reading.celsius)
        })
        .collect();
    about(WarningCode::Heat, &findings)
}

/// Requests made and done in one direction, by the deepest devices that they reach as they were made.
struct Requests<'a> {
    devices: Vec<&'a Layer>,
    verb: &'static str,
    made: Asked,
    /// Bytes of a request as it was made, on average.
    made_size: f64,
    done: f64,
    merges: u64,
    done_bytes: f64,
}

/// Whether a layer hands each request on as it is: a partition, a linear or striped LVM volume, an
/// encrypted device. What arrays, caches, VDO and integrity devices ask of those below them is more
/// than was asked of them, and below a loop device a page cache makes requests of its own.
fn hands_on(layer: &Layer) -> bool {
    let uuid = layer.device.mapper.as_ref().and_then(|mapper| mapper.uuid.as_deref()).unwrap_or_default();
    let volume = uuid.starts_with("LVM-") && !uuid.ends_with("-vpool");
    let encrypted = uuid.starts_with("CRYPT-") && !uuid.starts_with("CRYPT-SUBDEV");
    layer.device.disk.is_some() || volume || encrypted
}

/// The deepest devices that requests reach as they were made: one, or one below each member of a target that is made
/// of several, where every request goes to one member as a whole. None where they are cut on the way, for then nobody
/// says how many there were.
fn deepest<'a>(evidence: &Evidence<'a>) -> Vec<&'a Layer> {
    let stack = evidence.stack;
    // Where members lie in memory or share a device there are fewer of these than members.
    let tops = stack.top().count();
    if tops > 1 && !(tops == stack.members as usize && uncut(evidence)) {
        return Vec::new();
    }
    let mut found: Vec<&Layer> = Vec::new();
    for top in stack.top() {
        let chain: Vec<&Layer> = stack.chain_from(Some(top)).collect();
        let passed = chain.iter().take_while(|layer| hands_on(layer)).count();
        // Two partitions are one disk.
        let layer = chain.get(passed).or(chain.last()).copied();
        found.extend(layer.filter(|layer| !found.iter().any(|other| other.name() == layer.name())));
    }
    found
}

/// Whether each request lies on one member: separate devices have no bounds to cross, and chunks are not crossed by
/// blocks of which each holds a whole number.
fn uncut(evidence: &Evidence<'_>) -> bool {
    let workload = &evidence.record.workload;
    let (largest, smallest) = (workload.max_bs(), workload.min_bs());
    let lies_within = |chunk: u64| {
        largest == smallest && chunk.is_multiple_of(largest) && workload.offset.is_multiple_of(largest)
    };
    evidence.is_separate() || evidence.stack.chunk.is_some_and(lies_within)
}

/// Only with O_DIRECT are requests made one by one; the page cache makes its own.
fn requests<'a>(evidence: &Evidence<'a>) -> Vec<Requests<'a>> {
    let record = evidence.record;
    let devices = if record.workload.direct { deepest(evidence) } else { Vec::new() };
    let Some(counts) = evidence.counted(devices.iter().copied()) else { return Vec::new() };
    let read = (&record.read, "read", counts.read_ios, counts.read_merges, counts.read_bytes);
    let write = (&record.write, "write", counts.write_ios, counts.write_merges, counts.write_bytes);
    [read, write]
        .into_iter()
        .filter_map(|(asked, verb, done, merges, bytes)| {
            let made = evidence.asked(asked).filter(|made| made.least_ios > 0.0)?;
            let made_size = made.least_bytes / made.least_ios;
            Some(Requests {
                devices: devices.clone(),
                verb,
                made,
                made_size,
                done: done as f64,
                merges,
                done_bytes: bytes as f64,
            })
        })
        .collect()
}

/// Fewer requests done than made, with merges that account for it. Sequential requests of one job
/// may meet in a plug or a scheduler; random ones hardly do, so no healthy random run comes near.
fn merged(evidence: &Evidence<'_>) -> Option<Warning> {
    let edge = 2.0 * evidence.in_flight() as f64;
    let findings: Vec<String> = requests(evidence)
        .iter()
        .filter(|r| {
            let fewer = r.done + edge < r.made.least_ios * (1.0 - REQUEST_TOLERANCE);
            fewer && r.merges as f64 > r.made.least_ios * REQUEST_TOLERANCE
        })
        .map(|r| {
            format!(
                "{} did {} {}s for {} made, and merged {} (limit {})",
                names(r.devices.iter().copied()),
                units::count(r.done),
                r.verb,
                units::count(r.made.least_ios),
                units::count(r.merges as f64),
                units::percent(REQUEST_TOLERANCE),
            )
        })
        .collect();
    about(WarningCode::Merged, &findings)
}

/// More and smaller requests done than made. Another user's requests count in the same place, so
/// where the bytes do not match either, that user is the explanation (`W-OTHER-TRAFFIC`).
fn split(evidence: &Evidence<'_>) -> Option<Warning> {
    let edge = 2.0 * evidence.in_flight() as f64;
    let findings: Vec<String> = requests(evidence)
        .iter()
        .filter(|r| {
            let more = r.done > r.made.most_ios * (1.0 + REQUEST_TOLERANCE) + edge;
            let alone =
                r.done_bytes <= r.made.most_bytes * (1.0 + OTHER_TRAFFIC_LIMIT) + evidence.edge_bytes();
            more && alone && r.done_bytes / r.done < r.made_size * (1.0 - REQUEST_TOLERANCE)
        })
        .map(|r| {
            let largest = evidence.record.workload.max_bs();
            let limits = r.devices.iter().filter_map(|device| device.max_request_bytes());
            let limit = match limits.min().filter(|limit| *limit < largest) {
                Some(limit) => format!("queue/max_sectors_kb lets {} through", units::bytes(limit)),
                None => "the file's extents, segments or chunks end within a request".to_owned(),
            };
            format!(
                "{} did {} {}s of {} for {} made of {}; {limit}",
                names(r.devices.iter().copied()),
                units::count(r.done),
                r.verb,
                units::bytes((r.done_bytes / r.done).round() as u64),
                units::count(r.made.most_ios),
                units::bytes(r.made_size.round() as u64),
            )
        })
        .collect();
    about(WarningCode::Split, &findings)
}

fn virtual_layer(evidence: &Evidence<'_>) -> Option<Warning> {
    let record = evidence.record;
    let mut findings = Vec::new();
    if record.target.kind == "memory" || evidence.stack.in_memory {
        findings.push("the target is this process's memory".to_owned());
    } else if is_memory_filesystem(evidence.stack) {
        let kind = evidence.stack.filesystem.as_deref().unwrap_or_default();
        findings.push(format!("the target is in memory ({kind})"));
    }
    for layer in &evidence.stack.layers {
        if is_made_of_memory_or_file(layer) || is_remote(layer) {
            findings.push(format!("{} is a {} device", layer.name(), layer.device.transport));
        }
    }
    if let Some(hypervisor) = &record.host.virtualization {
        findings.push(format!("the machine is a virtual one ({hypervisor})"));
    }
    about(WarningCode::Virtual, &findings)
}

/// Whole blocks written at block boundaries never make a drive read first. Reads below the physical
/// block cost time, but do no such thing. A misplaced partition spoils both.
fn misaligned(evidence: &Evidence<'_>) -> Option<Warning> {
    let mut findings: Vec<String> = evidence
        .stack
        .layers
        .iter()
        .filter(|layer| layer.misalignment_bytes() != 0)
        .map(|layer| {
            let (off, block) = (layer.misalignment_bytes(), layer.physical_block_bytes());
            format!(
                "{} begins {off} B off its drive's physical blocks of {}",
                layer.name(),
                units::bytes(block)
            )
        })
        .collect();
    let workload = &evidence.record.workload;
    let block = evidence.stack.top().map(Layer::physical_block_bytes).max().unwrap_or(0);
    let writes_directly = workload.direct && workload.rw.writes() && block > 1;
    for (option, value) in [("bs", workload.min_bs()), ("offset", workload.offset)] {
        if writes_directly && !value.is_multiple_of(block) {
            let (value, block) = (units::bytes_short(value), units::bytes(block));
            findings.push(format!("{option}={value} is no multiple of the physical block of {block}"));
        }
    }
    about(WarningCode::Misaligned, &findings)
}

/// Polling was asked for and could not have happened.
pub(super) fn poll_unavailable(evidence: &Evidence<'_>) -> Option<Warning> {
    let record = evidence.record;
    if !record.workload.hipri {
        return None;
    }
    let engine = record.engine.engine();
    let deaf: Vec<&Layer> = evidence.stack.drives().filter(|drive| !drive.can_poll()).collect();
    // Where commands are sent past the block layer, the engine has asked before it polls.
    if engine.is_some_and(IoEngine::sends_commands) {
        return None;
    }
    let message = if evidence.stack.layers.is_empty() {
        "the target has no block device whose queues could be polled".to_owned()
    } else if !deaf.is_empty() {
        format!("queue/io_poll of {} is 0: no polled queues", names(deaf.into_iter()))
    } else if !engine.is_some_and(IoEngine::is_ring) {
        format!("hipri=1 has no effect with ioengine={}", record.engine.used)
    } else if !record.workload.direct {
        "hipri=1 has no effect with direct=0".to_owned()
    } else {
        return None;
    };
    Some(Warning::new(WarningCode::PollUnavailable, message))
}

fn link_degraded(evidence: &Evidence<'_>) -> Option<Warning> {
    let links = evidence.stack.drives().filter_map(|drive| Some((drive, drive.device.pcie.as_ref()?)));
    let findings: Vec<String> = links
        .filter(|(_, link)| link.is_degraded())
        .map(|(drive, link)| {
            format!(
                "{} runs at {} GT/s ×{}, and both ends support {} GT/s ×{}",
                drive.name(),
                link.speed_gts,
                link.width,
                link.port_max_speed_gts.map_or(link.max_speed_gts, |port| port.min(link.max_speed_gts)),
                link.port_max_width.map_or(link.max_width, |port| port.min(link.max_width)),
            )
        })
        .collect();
    about(WarningCode::LinkDegraded, &findings)
}

fn background_work(evidence: &Evidence<'_>) -> Option<Warning> {
    let findings: Vec<String> = evidence.observed.background_work.iter().cloned().collect();
    about(WarningCode::BackgroundWork, &findings)
}

fn settings_drift(evidence: &Evidence<'_>) -> Option<Warning> {
    let changes = evidence.observed.settings_before.changes(&evidence.observed.settings_after);
    let findings: Vec<String> = changes
        .iter()
        .map(|c| format!("{} of {} was {} before and {} after", c.setting, c.device, c.before, c.after))
        .collect();
    about(WarningCode::SettingsDrift, &findings)
}

/// File systems whose own writes come to many times a small write's bytes: copies on write,
/// checksums, log-structured metadata.
fn writes_more_than_asked(evidence: &Evidence<'_>) -> bool {
    let kind = evidence.stack.filesystem.as_deref();
    matches!(kind, Some("btrfs" | "zfs" | "bcachefs" | "f2fs" | "nilfs2"))
        || evidence.stack.options.split(',').any(|option| option == "data=journal")
}

/// What the disk did beyond what was asked of it. Judged where requests reach it one by one: with
/// O_DIRECT, on the deepest devices that they pass through as they are.
fn other_traffic(evidence: &Evidence<'_>) -> Option<Warning> {
    let record = evidence.record;
    let disks = if record.workload.direct { deepest(evidence) } else { Vec::new() };
    let counts = evidence.counted(disks.iter().copied())?;
    let (read, write) = (evidence.asked(&record.read)?, evidence.asked(&record.write)?);
    let judges_writes = !(record.workload.rw.modifies() && writes_more_than_asked(evidence));
    let found = strange_bytes(evidence, &counts, [read, write], judges_writes)
        .or_else(|| strange_requests(evidence, &counts, [read, write], judges_writes))?;
    Some(Warning::new(WarningCode::OtherTraffic, format!("{} {found}", names(disks.into_iter()))))
}

/// Bytes beyond those asked for.
fn strange_bytes(
    evidence: &Evidence<'_>,
    counts: &DriveCounts,
    [read, write]: [Asked; 2],
    judges_writes: bool,
) -> Option<String> {
    let beyond = |done: u64, asked: f64| (done as f64 - asked).max(0.0);
    let extra_read = beyond(counts.read_bytes, read.most_bytes);
    let extra_write = if judges_writes { beyond(counts.write_bytes, write.most_bytes) } else { 0.0 };
    let asked = read.most_bytes + write.most_bytes;
    let quiet = QUIET_BYTES_PER_S * evidence.window_s().max(SHORTEST_QUIET_S);
    let limit = asked * OTHER_TRAFFIC_LIMIT + quiet + evidence.edge_bytes();
    (extra_read + extra_write > limit).then(|| {
        format!(
            "read {} and wrote {} beyond the {} that this run asked for (limit {})",
            units::bytes(extra_read as u64),
            units::bytes(extra_write as u64),
            units::bytes(asked as u64),
            units::bytes(limit as u64),
        )
    })
}

/// Small requests of another user hide among large ones of ours by their bytes, but not by their
/// number, where they go in the direction that the run does not use.
fn strange_requests(
    evidence: &Evidence<'_>,
    counts: &DriveCounts,
    [read, write]: [Asked; 2],
    judges_writes: bool,
) -> Option<String> {
    let unused = |asked: Asked, done: u64| if asked.most_ios == 0.0 { done as f64 } else { 0.0 };
    // Discards change metadata, which a file system writes.
    let writes = if judges_writes && !evidence.record.workload.rw.modifies() { counts.write_ios } else { 0 };
    let strange = unused(read, counts.read_ios) + unused(write, writes);
    let asked = read.most_ios + write.most_ios;
    let quiet = QUIET_IOS_PER_S * evidence.window_s().max(SHORTEST_QUIET_S);
    let limit = asked * OTHER_TRAFFIC_LIMIT + quiet;
    (asked > 0.0 && strange > limit).then(|| {
        format!(
            "did {} requests in a direction that this run does not use, beside its own {} (limit {})",
            units::count(strange),
            units::count(asked),
            units::count(limit),
        )
    })
}

/// Flash is fresh until twice its capacity has been written; discs and memory have no such state.
/// Virtual disks say nothing true about turning, so they count as flash.
fn unpreconditioned(evidence: &Evidence<'_>) -> Option<Warning> {
    if !evidence.record.workload.rw.writes() || evidence.stack.layers.iter().any(is_made_of_memory_or_file) {
        return None;
    }
    let flash = || evidence.stack.drives().filter(|drive| may_be_flash(drive));
    flash().next()?;
    let needed =
        flash().map(|drive| drive.device.size_bytes).sum::<u64>().saturating_mul(PRECONDITIONING_PASSES);
    let written = evidence.known.written_before_bytes;
    (written < needed).then(|| {
        let message = format!(
            "{} are known to have been written before this run, of {} (twice the capacity of {})",
            units::bytes(written),
            units::bytes(needed),
            names(flash()),
        );
        Warning::new(WarningCode::Unpreconditioned, message)
    })
}
