//! Random requests that go to several drives of a stripe.
//!
//! Chunks are those of md arrays, of device-mapper devices that stripe (LVM), of a target that is made of members, and of btrfs.
//! Of requests no larger than a chunk, the part that crosses from one chunk to the next follows from their size, the unit of
//! their offsets and where the first one lies. Where a file lies within a chunk is not known, and counts as its beginning.

use measure::{Warning, WarningCode};
use storage::device::DeviceKind;
use storage::sysfs::BTRFS_CHUNK_BYTES;

use super::Evidence;
use crate::observe::Layer;

/// Part of the requests that may go to two drives. Each of them waits for the slower of two, which a twentieth of them cannot
/// move a mean by more than runs differ.
const CROSSING_LIMIT: f64 = 0.05;

/// How a layer spreads consecutive bytes over drives.
struct Striping<'a> {
    name: &'a str,
    chunk: u64,
    drives: u32,
    /// Whether offsets of the target count from the beginning of a chunk.
    begins_a_chunk: bool,
}

/// Random requests larger than a chunk, or that cross from one chunk to the next.
pub(super) fn chunk(evidence: &Evidence<'_>) -> Option<Warning> {
    let workload = &evidence.record.workload;
    let stripe = stripings(evidence)
        .into_iter()
        .filter(|stripe| stripe.chunk > 0 && stripe.drives > 1)
        .min_by_key(|stripe| stripe.chunk)
        .filter(|_| workload.rw.is_random())?;
    let chunk = stripe.chunk;
    let of = format!(
        "{} on chunks of {} of {}",
        units::bytes(workload.max_bs()),
        units::bytes(chunk),
        stripe.name
    );
    if workload.max_bs() > chunk {
        let reached = workload.max_bs().div_ceil(chunk).min(u64::from(stripe.drives));
        let message = format!("random requests of {of}: each goes to {reached} of {} drives", stripe.drives);
        return Some(Warning::new(WarningCode::Chunk, message));
    }
    let offset = if stripe.begins_a_chunk { workload.offset } else { 0 };
    let unit = workload.blockalign.unwrap_or(workload.min_bs());
    let crossing = crossing(workload.max_bs(), unit, offset, chunk);
    (workload.min_bs() == workload.max_bs() && crossing > CROSSING_LIMIT).then(|| {
        let message = format!(
            "of random requests of {of}, {} go to two drives (limit {})",
            units::percent(crossing),
            units::percent(CROSSING_LIMIT),
        );
        Warning::new(WarningCode::Chunk, message)
    })
}

/// The stripes below the target: of md arrays and device-mapper devices, of a target made of members, and of btrfs.
fn stripings<'a>(evidence: &Evidence<'a>) -> Vec<Striping<'a>> {
    let stack = evidence.stack;
    let is_block = evidence.record.target.kind == DeviceKind::Block.word();
    let of_layer = |layer: &'a Layer| {
        let below: Vec<&Layer> =
            stack.layers.iter().filter(|lower| layer.below.iter().any(|name| name == lower.name())).collect();
        let raid = layer.device.raid.as_ref().filter(|raid| raid.level != "raid1" && raid.level != "linear");
        let of_raid = raid.and_then(|raid| Some((raid.chunk_bytes?, raid.raid_disks?)));
        let (chunk, drives) = of_raid.or_else(|| layer.mapped_stripe(&below))?;
        Some(Striping { name: layer.name(), chunk, drives, begins_a_chunk: is_block && layer.depth == 0 })
    };
    let of_members = stack.chunk.map(|chunk| ("the target", chunk, stack.members, true));
    let of_files = stack.btrfs_stripe_drives.map(|drives| ("btrfs", BTRFS_CHUNK_BYTES, drives, false));
    let whole = of_members
        .into_iter()
        .chain(of_files)
        .map(|(name, chunk, drives, begins_a_chunk)| Striping { name, chunk, drives, begins_a_chunk });
    whole.chain(stack.layers.iter().filter_map(of_layer)).collect()
}

/// Part of the requests of `bs` bytes at `offset` and random multiples of `unit` beyond it that cross from one chunk to the
/// next. Their places within a chunk are all those with the same remainder by the common divisor of unit and chunk.
fn crossing(bs: u64, unit: u64, offset: u64, chunk: u64) -> f64 {
    let step = common_divisor(unit.max(1), chunk);
    // From the last place within a chunk backwards, those from which `bs` bytes reach beyond its end.
    let beyond = (bs + offset % step).saturating_sub(step);
    beyond.div_ceil(step) as f64 * step as f64 / chunk as f64
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossings_are_those_that_counting_all_places_gives() {
        let chunk = 64u64 << 10;
        for bs in [512, 4096, 12_288, 20_480, 49_152, chunk] {
            for unit in [512, 4096, 12_288, bs] {
                for offset in [0, 512, 4096, 61_440] {
                    let places = (0..chunk).map(|n| (offset + n * unit) % chunk);
                    let expected = places.filter(|place| place + bs > chunk).count() as f64 / chunk as f64;
                    let found = crossing(bs, unit, offset, chunk);
                    assert!((found - expected).abs() < 1e-9, "{bs} {unit} {offset}: {found}, not {expected}");
                }
            }
        }
    }
}
