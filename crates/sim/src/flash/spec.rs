//! What a machine file says about a flash drive, and what of it cannot be.

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::InvalidMachine;
use crate::values::{self, Bytes, Checked};

/// A flash drive with a page-mapped translation layer. Sizes as fio writes them, times with their unit in the key.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlashSpec {
    /// Buses between controller and chips, each of which carries one transfer at a time.
    pub channels: u32,
    /// Chips on a channel.
    pub chips_per_channel: u32,
    /// Dies in a chip.
    pub dies_per_chip: u32,
    /// Planes in a die: a multi-plane command works on the same page number of several planes.
    pub planes_per_die: u32,
    /// Blocks in a plane; a block is erased as a whole.
    pub blocks_per_plane: u32,
    /// Pages in a block.
    pub pages_per_block: u32,
    /// Bytes in a page, which is what the translation layer maps.
    #[serde(deserialize_with = "size")]
    pub page_bytes: u64,
    /// Physical over logical pages, less one: 0.07 for a drive of 1.07 TB of flash sold as 1 TB.
    pub over_provisioning: f64,

    /// Time of the array for a page read, microseconds.
    pub read_us: f64,
    /// Time of the array for a page program, microseconds.
    pub program_us: f64,
    /// Time of the array for a block erase, microseconds.
    pub erase_us: f64,
    /// What a channel carries, bytes/s.
    pub channel_bytes_per_s: f64,
    /// Command and address cycles of an operation on its channel, nanoseconds.
    #[serde(default)]
    pub channel_command_ns: u64,
    /// What executes one operation at a time.
    #[serde(default)]
    pub one_operation_per: Unit,

    /// Where a page of new data goes.
    #[serde(default)]
    pub placement: Placement,
    /// Share of a plane's blocks that are free when garbage collection of the plane starts.
    #[serde(default = "gc_start_free")]
    pub gc_start_free: f64,
    /// Free blocks of a plane below which new data waits, so that collection has room. At least 2; one less is how many
    /// blocks of a plane are collected at once.
    #[serde(default = "gc_reserve_blocks")]
    pub gc_reserve_blocks: u32,
    /// Blocks of which the one with the fewest valid pages is collected, drawn at random; 0 looks at all of the plane (greedy).
    #[serde(default)]
    pub gc_sample_blocks: u32,
    /// How collection shares its unit with the host.
    #[serde(default)]
    pub gc: Collection,

    /// Entries of the map that the controller's memory holds; 0: all. A miss reads a page of the map from flash.
    #[serde(default)]
    pub mapping_cache_entries: u32,
    /// Bytes of an entry in the map's pages on flash.
    #[serde(default = "mapping_entry_bytes")]
    pub mapping_entry_bytes: u32,

    /// Data that is acknowledged before it is programmed, bytes; 0: a write ends when it is programmed.
    #[serde(deserialize_with = "size")]
    pub write_buffer_bytes: u64,
    /// Pages of the buffer that wait for the rest of their data, so that small sequential writes fill pages.
    #[serde(default)]
    pub open_pages: u32,
    /// Buffered data is lost with power: a flush waits for its programs. Otherwise a flush ends at once.
    #[serde(default)]
    pub volatile_cache: bool,

    /// What the host's link carries in each direction, bytes/s of data.
    pub link_bytes_per_s: f64,
    /// Latency of a command besides data and flash, nanoseconds.
    #[serde(default)]
    pub command_ns: u64,
    /// Time of the controller for a command, one after another, nanoseconds: bounds IOPS.
    #[serde(default)]
    pub controller_ns: u64,
    /// Commands that the drive takes at once.
    pub queue_depth: u32,
    /// Largest command.
    #[serde(default = "max_command_bytes", deserialize_with = "size")]
    pub max_command_bytes: u64,

    /// What is on the drive before the run.
    #[serde(default)]
    pub state: Preconditioning,
    /// Share of the logical space that holds data in that state, from its start.
    #[serde(default = "occupied")]
    pub occupied: f64,
}

/// What executes one operation at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Each die.
    #[default]
    Die,
    /// Each chip: its dies do not overlap.
    Chip,
}

/// How garbage collection shares a die or chip with commands of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Collection {
    /// As many pages are moved for each page of new data as the block being collected has valid pages for each that it gains;
    /// reads of the host go first. When a plane is down to its reserve, collection is exclusive.
    #[default]
    Paced,
    /// A collection that has started keeps its unit until the block is erased.
    Exclusive,
}

/// Where a page of new data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// To a plane that follows from its address: channels first, then chips, dies, planes.
    Static,
    /// To the next plane in the same order that has room, whatever its address.
    #[default]
    Dynamic,
}

/// What is on a drive before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Preconditioning {
    /// Nothing: each block is erased.
    Empty,
    /// Written once from start to end.
    Full,
    /// As random writes leave it in the long run.
    #[default]
    Steady,
}

fn gc_start_free() -> f64 {
    0.01
}
fn gc_reserve_blocks() -> u32 {
    2
}
fn mapping_entry_bytes() -> u32 {
    4
}
fn max_command_bytes() -> u64 {
    1 << 20
}
fn occupied() -> f64 {
    1.0
}

fn size<'de, D: Deserializer<'de>>(source: D) -> Result<u64, D::Error> {
    Ok(Bytes::deserialize(source)?.0)
}

impl FlashSpec {
    /// Planes of the drive.
    #[must_use]
    pub fn planes(&self) -> u32 {
        self.channels * self.chips_per_channel * self.dies_per_chip * self.planes_per_die
    }

    /// Blocks that are free when collection of a plane starts.
    pub(super) fn gc_start_blocks(&self) -> u32 {
        let lead = if self.gc == Collection::Paced { 2 } else { 0 };
        ((self.gc_start_free * f64::from(self.blocks_per_plane)) as u32).max(self.gc_reserve_blocks + lead)
    }

    /// Entries of the map in a page of it on flash; `None` if the map is in memory.
    pub(super) fn entries_per_mapping_page(&self) -> Option<u32> {
        (self.mapping_cache_entries > 0).then(|| self.page_bytes as u32 / self.mapping_entry_bytes)
    }

    /// Pages of the map on each plane.
    fn mapping_pages_per_plane(&self, data_pages: u64) -> u64 {
        self.entries_per_mapping_page()
            .map_or(0, |entries| data_pages.div_ceil(u64::from(entries)).div_ceil(u64::from(self.planes())))
    }

    /// Pages for the host's data: what the over-provisioning leaves, the same number on each plane.
    pub(super) fn data_pages(&self) -> u64 {
        let plane = u64::from(self.blocks_per_plane) * u64::from(self.pages_per_block);
        (plane as f64 / (1.0 + self.over_provisioning)) as u64 * u64::from(self.planes())
    }

    /// Bytes for the host's data.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.data_pages() * self.page_bytes
    }

    /// About how much memory the map and its reverse take, bytes.
    pub(crate) fn state_bytes(&self) -> u64 {
        let physical =
            u64::from(self.planes()) * u64::from(self.blocks_per_plane) * u64::from(self.pages_per_block);
        4 * (self.data_pages() + physical) + physical / 8
    }

    /// What of this cannot be; `table` is the name of its table.
    ///
    /// # Errors
    /// The first key that is wrong.
    pub fn check(&self, table: &str) -> Checked {
        let key = |name: &str| format!("{table}.{name}");
        let counts = [
            ("channels", self.channels, 1 << 10),
            ("chips_per_channel", self.chips_per_channel, 1 << 10),
            ("dies_per_chip", self.dies_per_chip, 1 << 6),
            ("planes_per_die", self.planes_per_die, 1 << 6),
            ("blocks_per_plane", self.blocks_per_plane, 1 << 20),
            ("pages_per_block", self.pages_per_block, 1 << 15),
            ("mapping_entry_bytes", self.mapping_entry_bytes, 64),
            ("queue_depth", self.queue_depth, 1 << 17),
        ];
        for (name, value, most) in counts {
            values::count(&key(name), value, most)?;
        }
        values::rate(&key("channel_bytes_per_s"), self.channel_bytes_per_s)?;
        values::rate(&key("link_bytes_per_s"), self.link_bytes_per_s)?;
        for (name, value) in
            [("read_us", self.read_us), ("program_us", self.program_us), ("erase_us", self.erase_us)]
        {
            values::micros(&key(name), value)?;
        }
        for (name, value) in [("gc_start_free", self.gc_start_free), ("occupied", self.occupied)] {
            values::within(&key(name), value, 0.0, 1.0, "a share")?;
        }
        values::multiple(&key("page_bytes"), Bytes(self.page_bytes), 512, "a sector")?;
        values::within(&key("page_bytes"), self.page_bytes as f64, 512.0, 1048576.0, "for instance \"4k\"")?;
        values::multiple(
            &key("max_command_bytes"),
            Bytes(self.max_command_bytes),
            self.page_bytes,
            "a page",
        )?;
        values::within(
            &key("max_command_bytes"),
            self.max_command_bytes as f64,
            512.0,
            1e9,
            "for instance \"1m\"",
        )?;
        self.check_space(&key)
    }

    /// Whether data, map, reserve and open blocks have room.
    fn check_space(&self, key: &impl Fn(&str) -> String) -> Checked {
        let planes = [self.channels, self.chips_per_channel, self.dies_per_chip, self.planes_per_die];
        let planes: f64 = planes.map(f64::from).iter().product();
        let plane_pages = f64::from(self.blocks_per_plane) * f64::from(self.pages_per_block);
        let hint = "describe a smaller drive: rates do not follow from its size";
        values::within(&key("pages_per_block"), planes * plane_pages, 1.0, 4e9, hint).map_err(
            |mut error| {
                error.reason = "makes more than 4 × 10⁹ pages with the planes and blocks".to_owned();
                error
            },
        )?;
        let most = f64::from(self.blocks_per_plane);
        values::within(
            &key("gc_reserve_blocks"),
            f64::from(self.gc_reserve_blocks),
            2.0,
            most,
            "for instance 2",
        )?;
        values::within(&key("over_provisioning"), self.over_provisioning, 0.0, 100.0, "for instance 0.07")?;
        let data = self.data_pages();
        let used = (data as f64 / planes * self.occupied).ceil() + self.mapping_pages_per_plane(data) as f64;
        let kept = f64::from((self.gc_start_blocks() + 3) * self.pages_per_block);
        if used + kept <= plane_pages {
            return Ok(());
        }
        let (value, reason) = (self.over_provisioning, "leaves garbage collection no room");
        let hint = "more of it, more blocks_per_plane, or less gc_start_free or gc_reserve_blocks";
        Err(InvalidMachine::new(key("over_provisioning"), value, reason, hint))
    }
}
