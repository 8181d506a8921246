//! Did the drive do the work, or did something on the way answer for it?

use measure::record::DirectionCounts;
use measure::{Warning, WarningCode};
use storage::extents;

use super::memory::{is_made_of_memory_or_file, is_memory};
use super::{Evidence, blocks, names};
use crate::observe::Layer;

/// A device that moved less than this part of what was asked for did not do all of the work. With
/// O_DIRECT the two are equal but for the edges of the window, which are subtracted first; without,
/// read-ahead makes the device move more, never less. Ten percent of requests answered from memory,
/// at no time, raise a figure by eleven percent: more than runs differ by.
const DEVICE_SHARE_LIMIT: f64 = 0.9;
/// No drive's DRAM is known to be smaller than its share below, but small drives' is not below this.
const SMALLEST_DRIVE_CACHE_BYTES: u64 = 1 << 30;
/// Drives carry about one byte of DRAM for each thousand of flash (1 GiB a TB, to hold the map).
const FLASH_BYTES_PER_CACHE_BYTE: u64 = 1000;
/// Less of a region than this in holes is rounding of the file's end, not a lie.
const UNWRITTEN_SHARE_LIMIT: f64 = 0.001;

/// `W-UNWRITTEN`, `W-CACHED`, `W-DIRECT-BUFFERED`, `W-UNWATCHED`, `W-SMALL-SET`, `W-COMPRESSIBLE`,
/// `W-REPEATED-DATA`.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Vec<Warning> {
    [
        unwritten(evidence),
        cached(evidence),
        direct_buffered(evidence),
        unwatched(evidence),
        small_set(evidence),
        compressible(evidence),
        super::blocks::repeated_data(evidence),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Holes by the extent map; without one, data that came faster than the link to the drive can carry.
fn unwritten(evidence: &Evidence<'_>) -> Option<Warning> {
    if !evidence.record.workload.rw.reads() {
        return None;
    }
    let map = evidence.known.written.filter(|map| map.evidence != extents::Evidence::Unknown);
    let Some(map) = map else { return faster_than_link(evidence) };
    if map.never_written() as f64 <= map.total as f64 * UNWRITTEN_SHARE_LIMIT {
        return None;
    }
    let share = map.never_written() as f64 / map.total as f64;
    let message = format!(
        "{map} of {} were never written ({}; limit {})",
        units::bytes(map.total),
        units::percent(share),
        units::percent(UNWRITTEN_SHARE_LIMIT),
    );
    Some(Warning::new(WarningCode::Unwritten, message))
}

/// With O_DIRECT on a single drive, all bytes cross its PCIe link. The limit is the raw rate of the
/// lanes, which protocol overhead keeps a drive from ever reaching.
fn faster_than_link(evidence: &Evidence<'_>) -> Option<Warning> {
    let record = evidence.record;
    if !record.workload.direct || record.interval_ns == 0 {
        return None;
    }
    let drive = evidence.stack.chain().last().filter(|drive| drive.below.is_empty())?;
    let limit = drive.device.pcie.as_ref()?.bytes_per_s();
    let seen = record.read.bytes as f64 / evidence.interval_s();
    (limit > 0.0 && seen > limit).then(|| {
        let message = format!(
            "read {} over {}'s link, which carries at most {}: these bytes were never on the drive",
            units::bandwidth(seen),
            drive.name(),
            units::bandwidth(limit),
        );
        Warning::new(WarningCode::Unwritten, message)
    })
}

/// The directions of a run that move data, with the word for what a device does.
fn directions<'a>(evidence: &Evidence<'a>) -> [(&'static str, &'a DirectionCounts, bool); 2] {
    [("read", &evidence.record.read, true), ("wrote", &evidence.record.write, false)]
}

/// What `layers` together moved of what was asked, where that is too little: the evidence in words.
fn shortfall<'a>(evidence: &Evidence<'a>, layers: &[&'a Layer]) -> Option<String> {
    if evidence.stack.is_partly_elsewhere {
        return None; // Their part of what was asked for is not known.
    }
    let counts = evidence.counted(layers.iter().copied())?;
    let short = directions(evidence).into_iter().find_map(|(verb, direction, reads)| {
        let asked = evidence.asked(direction)?.least_bytes;
        let moved = if reads { counts.read_bytes } else { counts.write_bytes };
        let least = asked * DEVICE_SHARE_LIMIT - evidence.edge_bytes();
        ((moved as f64) < least).then_some((verb, moved, asked))
    });
    let (verb, moved, asked) = short?;
    Some(format!(
        "{} {verb} {} of {} asked for ({}; limit {})",
        names(layers.iter().copied()),
        units::bytes(moved),
        units::bytes(asked as u64),
        units::percent(moved as f64 / asked),
        units::percent(DEVICE_SHARE_LIMIT),
    ))
}

/// Buffered, the first devices tell how much the page cache answered. With O_DIRECT they see
/// everything, but a layer below them may cache: a loop device reads its file through the page cache.
fn cached(evidence: &Evidence<'_>) -> Option<Warning> {
    if explains_itself(evidence) {
        return None;
    }
    let top: Vec<&Layer> = evidence.stack.top().collect();
    let seen = if evidence.record.workload.direct {
        if shortfall(evidence, &top).is_some() {
            return None; // W-DIRECT-BUFFERED says so.
        }
        let drives: Vec<&Layer> = evidence.stack.drives().collect();
        shortfall(evidence, &drives).map(|seen| format!("below {}, {seen}", names(top.into_iter())))
    } else {
        shortfall(evidence, &top)
    };
    seen.map(|seen| Warning::new(WarningCode::Cached, seen))
}

/// O_DIRECT was asked for and the first devices moved too little.
fn direct_buffered(evidence: &Evidence<'_>) -> Option<Warning> {
    if !evidence.record.workload.direct || explains_itself(evidence) {
        return None;
    }
    let top: Vec<&Layer> = evidence.stack.top().collect();
    Some(Warning::new(WarningCode::DirectBuffered, shortfall(evidence, &top)?))
}

/// Whether devices move less than was asked for another reason, which has a code of its own: holes
/// that no device is asked for, or data that a layer compresses.
fn explains_itself(evidence: &Evidence<'_>) -> bool {
    unwritten(evidence).is_some() || (compressible(evidence).is_some() && may_have_shrunk(evidence))
}

/// Whether a layer that compresses can have made this run's data smaller. That a file system is mounted with compression
/// says nothing of data that do not compress: it stores those as they are.
fn may_have_shrunk(evidence: &Evidence<'_>) -> bool {
    let workload = &evidence.record.workload;
    if !by_option(evidence) {
        return true;
    }
    let shrinks = workload.buffer_compress_percentage > 0 || workload.pattern().is_some();
    let written = workload.rw.writes() && shrinks;
    let map = evidence.known.written.filter(|map| map.evidence == extents::Evidence::Fiemap);
    let read = workload.rw.reads()
        && match (map, evidence.known.sampled.filter(|sampled| sampled.blocks > 0)) {
            (Some(map), _) => map.encoded > 0,
            (None, Some(sampled)) => {
                sampled.compressed_ratio < blocks::COMPRESSED_SHARE_LIMIT || sampled.zero > 0
            }
            (None, None) => true,
        };
    written || read
}

/// Whether a mount's option is all that speaks for compression.
fn by_option(evidence: &Evidence<'_>) -> bool {
    let kind = evidence.stack.filesystem.as_deref().unwrap_or_default();
    evidence.stack.options.split(',').any(|option| is_compression(kind, option))
        && !evidence.stack.layers.iter().any(is_compressing)
}

/// No counters of the first devices, or not of all, so nothing above could be ruled out. Memory has no device below
/// it that could be watched, and says so under `W-VIRTUAL`.
fn unwatched(evidence: &Evidence<'_>) -> Option<Warning> {
    if !evidence.stack.hosts.is_empty() {
        let hosts = evidence.stack.hosts.join(" and ");
        let message = format!("what the exports stand on is seen by their own hosts only: {hosts}");
        return Some(Warning::new(WarningCode::Unwatched, message));
    }
    if evidence.stack.is_partly_elsewhere {
        let message = "some of the target's members are memory, of which nothing is counted";
        return Some(Warning::new(WarningCode::Unwatched, message));
    }
    if is_memory(evidence) || evidence.counted(evidence.stack.top()).is_some() {
        return None;
    }
    let target = &evidence.record.target;
    let lost = &evidence.observed.lost;
    let message = if evidence.stack.is_bypassed {
        "NVMe commands pass by the block layer, whose counters do not have them".to_owned()
    } else if evidence.stack.layers.is_empty() {
        let filesystem = target.filesystem.as_deref().unwrap_or("the target");
        format!("{filesystem} has no block device whose counters could be read")
    } else if lost.is_empty() && evidence.observed.silent.is_empty() {
        format!("queue/iostats of {} is 0", names(evidence.stack.top()))
    } else if lost.is_empty() {
        format!("the kernel counts nothing for {}", evidence.observed.silent.join(" and "))
    } else {
        format!("{} vanished or was replaced during the run", lost.join(" and "))
    };
    Some(Warning::new(WarningCode::Unwatched, message))
}

/// Buffered, the page cache may grow to all of the memory, so only a region of twice the memory is
/// mostly missed. Direct, the cache is the drive's DRAM, about a thousandth of its flash.
fn small_set(evidence: &Evidence<'_>) -> Option<Warning> {
    let region = evidence.region_bytes();
    if is_memory(evidence) || region == 0 {
        return None;
    }
    let memory = evidence.record.host.memory_bytes;
    let (limit, cache) = if evidence.record.workload.direct {
        let mut drives = evidence.stack.drives().peekable();
        drives.peek()?;
        if evidence.stack.layers.iter().any(is_made_of_memory_or_file) {
            return None; // Such a device has no DRAM of its own; W-VIRTUAL and W-CACHED speak for it.
        }
        let flash: u64 = drives.map(|drive| drive.device.size_bytes).sum();
        let limit = (flash / FLASH_BYTES_PER_CACHE_BYTE).max(SMALLEST_DRIVE_CACHE_BYTES);
        (limit, format!("a drive of {} may hold as much in its DRAM", units::bytes(flash)))
    } else {
        (
            memory.saturating_mul(2),
            format!("the page cache may grow to the memory's {}", units::bytes(memory)),
        )
    };
    (region < limit).then(|| {
        let message = format!(
            "the run visits {}, below the limit of {}; {cache}",
            units::bytes(region),
            units::bytes(limit)
        );
        Warning::new(WarningCode::SmallSet, message)
    })
}

/// A layer that stores fewer bytes than it is given.
fn compressible(evidence: &Evidence<'_>) -> Option<Warning> {
    let kind = evidence.stack.filesystem.as_deref();
    let in_filesystem = kind.and_then(|kind| match kind {
        "zfs" => Some("zfs compresses by default".to_owned()),
        "squashfs" | "erofs" | "cramfs" => Some(format!("{kind} is a compressed image")),
        _ => {
            let option = evidence.stack.options.split(',').find(|option| is_compression(kind, option))?;
            Some(format!("{kind} is mounted with {option}"))
        }
    });
    let in_device = || {
        let layer = evidence.stack.layers.iter().find(|layer| is_compressing(layer))?;
        let what = if layer.device.transport == "zram" { "compressed memory" } else { "a VDO device" };
        Some(format!("{} is {what}", layer.name()))
    };
    // FIEMAP marks extents that were compressed or encrypted; which of the two it does not say, so
    // it counts only on a file system that compresses.
    let encoded = || {
        let map = evidence.known.written.filter(|map| map.encoded > 0)?;
        let kind = kind.filter(|kind| COMPRESSING.iter().any(|(known, _)| known == kind))?;
        Some(format!("{kind} stores {} of {} encoded", units::bytes(map.encoded), units::bytes(map.total)))
    };
    in_filesystem
        .or_else(in_device)
        .or_else(encoded)
        .map(|seen| Warning::new(WarningCode::Compressible, seen))
}

/// Whether a device compresses what it stores: zram, VDO.
fn is_compressing(layer: &Layer) -> bool {
    let uuid = layer.device.mapper.as_ref().and_then(|mapper| mapper.uuid.as_deref()).unwrap_or_default();
    // VDO's own manager begins its UUIDs so; LVM gives its VDO pools the layer `vpool`.
    layer.device.transport == "zram" || uuid.starts_with("VDO-") || uuid.ends_with("-vpool")
}

/// Whether a mount option of this name and value switches compression on.
type SwitchesOn = fn(&str, &str) -> bool;

/// File systems that compress (btrfs(5), f2fs(5), bcachefs(8), ntfs3).
const COMPRESSING: [(&str, SwitchesOn); 4] = [
    ("btrfs", |name, value| matches!(name, "compress" | "compress-force") && !matches!(value, "no" | "none")),
    ("bcachefs", |name, value| matches!(name, "compression" | "background_compression") && value != "none"),
    // f2fs shows its algorithm wherever the feature is there; files opt in by extension or flag.
    ("f2fs", |name, _| name == "compress_extension"),
    ("ntfs3", |name, _| name == "compress"),
];

/// Whether a mount option switches compression on.
fn is_compression(filesystem: &str, option: &str) -> bool {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    COMPRESSING.iter().any(|(kind, switches_on)| *kind == filesystem && switches_on(name, value))
}
