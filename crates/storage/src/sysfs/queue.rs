//! Settings and limits of a block queue (kernel, `Documentation/ABI/stable/sysfs-block`).

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DeviceNumber, Sysfs, read_flag, read_number, read_text};

/// What `/sys/block/*/queue` says. Facts that this kernel or driver does not have are none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueFacts {
    /// The I/O scheduler in force: `none`, `mq-deadline`, ….
    pub scheduler: Option<String>,
    /// All that could be chosen.
    pub schedulers: Vec<String>,
    /// Read-ahead, KiB.
    pub read_ahead_kb: Option<u64>,
    /// Requests that the block layer allows in the queue.
    pub nr_requests: Option<u64>,
    /// 0 all merging, 1 simple merging only, 2 none.
    pub nomerges: Option<u64>,
    /// 0 complete anywhere, 1 on the submitter's group, 2 on the very CPU.
    pub rq_affinity: Option<u64>,
    /// `write back` (volatile) or `write through`.
    pub write_cache: Option<String>,
    /// Target latency of writeback throttling, microseconds; 0 is off.
    pub wbt_lat_usec: Option<i64>,
    /// Whether the device can be polled for completions.
    pub io_poll: Option<bool>,
    /// Largest request that the block layer makes, KiB; larger ones are split.
    pub max_sectors_kb: Option<u64>,
    /// Largest request that the device takes, KiB.
    pub max_hw_sectors_kb: Option<u64>,
    /// Most pieces of memory in one request.
    pub max_segments: Option<u64>,
    /// Whether the kernel believes that the medium turns.
    pub rotational: Option<bool>,
    /// Smallest unit that can be addressed, bytes.
    pub logical_block_bytes: u32,
    /// Smallest unit that is written without reading first, bytes.
    pub physical_block_bytes: u32,
    /// Preferred smallest request, bytes; the chunk of a stripe.
    pub minimum_io_bytes: Option<u64>,
    /// Preferred request for streaming, bytes; the width of a stripe. 0 where the device does not say.
    pub optimal_io_bytes: Option<u64>,
    /// Unit of discards, bytes; 0 where the device cannot discard.
    pub discard_granularity_bytes: Option<u64>,
    /// Largest discard, bytes; 0 where the device cannot discard.
    pub discard_max_bytes: Option<u64>,
    /// Whether diskstats are counted.
    pub iostats: Option<bool>,
    /// Whether the device can be mapped directly (persistent memory).
    pub dax: Option<bool>,
    /// Whether the device writes through its cache on request (forced unit access).
    pub fua: Option<bool>,
    /// `none`, `host-aware` or `host-managed`.
    pub zoned: Option<String>,
}

/// What the zones of a zoned block device are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneFacts {
    /// Whether sequential zones take writes at their pointers only; else the drive only prefers it.
    pub is_host_managed: bool,
    /// How large a zone is, bytes.
    pub zone_bytes: u64,
    /// The most zones that may be open at a time; 0 for any number.
    pub max_open: u32,
    /// The most zones that may be partly written at a time; 0 for any number.
    pub max_active: u32,
}

impl QueueFacts {
    /// Reads a `queue` directory; none where there is none.
    pub(crate) fn read(directory: &Path) -> Option<Self> {
        if !directory.is_dir() {
            return None;
        }
        let at = |name: &str| directory.join(name);
        let number = |name: &str| read_number::<u64>(&at(name));
        let flag = |name: &str| read_flag(&at(name));
        let (scheduler, schedulers) =
            read_text(&at("scheduler")).map(|text| parse_scheduler(&text)).unwrap_or_default();
        Some(Self {
            scheduler,
            schedulers,
            read_ahead_kb: number("read_ahead_kb"),
            nr_requests: number("nr_requests"),
            nomerges: number("nomerges"),
            rq_affinity: number("rq_affinity"),
            write_cache: read_text(&at("write_cache")),
            wbt_lat_usec: read_number(&at("wbt_lat_usec")),
            io_poll: flag("io_poll"),
            max_sectors_kb: number("max_sectors_kb"),
            max_hw_sectors_kb: number("max_hw_sectors_kb"),
            max_segments: number("max_segments"),
            rotational: flag("rotational"),
            logical_block_bytes: block(&at("logical_block_size"), 512),
            physical_block_bytes: block(&at("physical_block_size"), 512),
            minimum_io_bytes: number("minimum_io_size"),
            optimal_io_bytes: number("optimal_io_size"),
            discard_granularity_bytes: number("discard_granularity"),
            discard_max_bytes: number("discard_max_bytes"),
            iostats: flag("iostats"),
            dax: flag("dax"),
            fua: flag("fua"),
            zoned: read_text(&at("zoned")),
        })
    }
}

/// A block size; what cannot be one counts as not said.
fn block(path: &Path, otherwise: u32) -> u32 {
    read_number::<u32>(path).filter(|size| size.is_power_of_two()).unwrap_or(otherwise)
}

/// `[none] mq-deadline kyber` is `none` of three; a bare `none` is a driver without a choice.
fn parse_scheduler(text: &str) -> (Option<String>, Vec<String>) {
    let mut chosen = None;
    let mut all = Vec::new();
    for word in text.split_whitespace() {
        let bare = word.trim_start_matches('[').trim_end_matches(']');
        if word.starts_with('[') {
            chosen = Some(bare.to_owned());
        }
        all.push(bare.to_owned());
    }
    if let [only] = all.as_slice() {
        chosen.get_or_insert_with(|| only.clone());
    }
    (chosen, all)
}

impl Sysfs {
    /// The queue of a block device; a partition's is its disk's.
    #[must_use]
    pub fn queue(&self, number: DeviceNumber) -> Option<QueueFacts> {
        self.queue_of(&self.name(number)?)
    }

    /// The zones of a block device; None if it has none.
    #[must_use]
    pub fn zones(&self, number: DeviceNumber) -> Option<ZoneFacts> {
        let queue = self.directory(&self.name(number)?)?.join("queue");
        let is_host_managed = match read_text(&queue.join("zoned"))?.as_str() {
            "host-managed" => true,
            "host-aware" => false,
            _ => return None,
        };
        let limit = |name: &str| read_number(&queue.join(name)).unwrap_or(0);
        // The chunk of a zoned device is its zone, in sectors of 512 bytes.
        let sectors = read_number::<u64>(&queue.join("chunk_sectors")).filter(|sectors| *sectors > 0)?;
        let zone_bytes = sectors.checked_mul(512)?;
        Some(ZoneFacts {
            is_host_managed,
            zone_bytes,
            max_open: limit("max_open_zones"),
            max_active: limit("max_active_zones"),
        })
    }

    /// The queue of a block device by kernel name.
    #[must_use]
    pub fn queue_of(&self, name: &str) -> Option<QueueFacts> {
        let directory = self.directory(name)?;
        QueueFacts::read(&directory.join("queue"))
            .or_else(|| QueueFacts::read(&directory.parent()?.join("queue")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Tree;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_scheduler_in_force_is_the_one_in_brackets() {
        let all = |text: &str| parse_scheduler(text);
        assert_eq!(all("mq-deadline kyber [none]").0.as_deref(), Some("none"));
        assert_eq!(all("none").0.as_deref(), Some("none"));
        assert_eq!(all("a b").0, None);
        assert_eq!(all("").1.len(), 0);
    }

    #[test]
    fn a_partition_has_the_queue_of_its_disk() {
        let tree = Tree::new();
        let disk = tree.disk("x", "sda", "8:0", 1 << 30);
        tree.partition(&disk, "sda1", "8:1", 1 << 20);
        tree.file(&format!("{disk}/queue/scheduler"), "[mq-deadline] none\n");
        tree.file(&format!("{disk}/queue/write_cache"), "write back\n");
        tree.file(&format!("{disk}/queue/wbt_lat_usec"), "-1\n");
        tree.file(&format!("{disk}/queue/nr_requests"), "garbage\n");
        let queue = tree.sysfs().queue("8:1".parse().unwrap()).unwrap();
        assert_eq!(queue.scheduler.as_deref(), Some("mq-deadline"));
        assert_eq!(queue.write_cache.as_deref(), Some("write back"));
        assert_eq!((queue.logical_block_bytes, queue.physical_block_bytes), (512, 4096));
        assert_eq!((queue.wbt_lat_usec, queue.nr_requests), (Some(-1), None));
        assert_eq!(queue.rotational, Some(false));
        assert_eq!(tree.sysfs().queue("8:99".parse().unwrap()), None);
    }

    #[test]
    fn zones_of_a_drive_are_read_with_their_limits() {
        let tree = Tree::new();
        let disk = tree.disk("x", "sda", "8:0", 1 << 30);
        assert_eq!(tree.sysfs().zones("8:0".parse().unwrap()), None);
        for (file, text) in
            [("zoned", "host-managed\n"), ("chunk_sectors", "524288\n"), ("max_open_zones", "128\n")]
        {
            tree.file(&format!("{disk}/queue/{file}"), text);
        }
        let facts = ZoneFacts { is_host_managed: true, zone_bytes: 256 << 20, max_open: 128, max_active: 0 };
        assert_eq!(tree.sysfs().zones("8:0".parse().unwrap()), Some(facts));
        tree.file(&format!("{disk}/queue/zoned"), "none\n");
        assert_eq!(tree.sysfs().zones("8:0".parse().unwrap()), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_scheduler_parser_panic(text in ".{0,60}") {
            let _ = parse_scheduler(&text);
        }
    }
}
