//! The models of drives that a machine file may name.

use measure::pattern::split_mix;
use serde::Deserialize;

use crate::device::{DeviceModel, Time};
use crate::drives::disk::{Disk, DiskSpec};
use crate::drives::network::{Network, NetworkSpec};
use crate::drives::ssd::{Ssd, SsdSpec};
use crate::flash::{FlashSpec, Preconditioning};
use crate::values::{self, Checked};

/// What a drive is.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case")]
pub enum DriveSpec {
    /// Flash by its constants.
    Ssd(SsdSpec),
    /// Flash by its chips, with a translation layer and garbage collection.
    Ftl(FlashSpec),
    /// Stations one behind the other.
    Network(NetworkSpec),
    /// Seek, rotation and zones.
    Disk(DiskSpec),
}

impl DriveSpec {
    /// Drive `index` of a machine whose run has `seed`. Once `stopped` says so it is not filled any further, and of no use.
    #[must_use]
    pub fn build(&self, seed: u64, index: u32, stopped: &dyn Fn() -> bool) -> Box<dyn DeviceModel> {
        let mut state = seed ^ (u64::from(index) << 32);
        let own = split_mix(&mut state);
        match self {
            Self::Ssd(spec) => Box::new(Ssd::new(spec.clone(), own)),
            Self::Ftl(spec) => Box::new(spec.build_unless(own, stopped)),
            Self::Network(spec) => Box::new(Network::new(spec.clone(), own)),
            Self::Disk(spec) => Box::new(Disk::new(spec.clone(), own)),
        }
    }

    /// Usable bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::Ssd(spec) => spec.size.0,
            Self::Ftl(spec) => spec.size_bytes(),
            Self::Network(spec) => spec.size.0,
            Self::Disk(spec) => spec.size.0,
        }
    }

    /// Whether it turns.
    #[must_use]
    pub fn is_rotational(&self) -> bool {
        matches!(self, Self::Disk(_))
    }

    /// Whether it is flash, whose garbage collection writes more than the host does.
    #[must_use]
    pub fn is_flash(&self) -> bool {
        matches!(self, Self::Ssd(_) | Self::Ftl(_))
    }

    /// Whether it acknowledges writes that are lost with power.
    #[must_use]
    pub fn has_volatile_cache(&self) -> bool {
        match self {
            Self::Ssd(spec) => spec.write_cache,
            Self::Ftl(spec) => spec.volatile_cache && spec.write_buffer_bytes > 0,
            Self::Network(_) | Self::Disk(_) => false,
        }
    }

    /// The unit that it would tell the host to write in, bytes: a page of flash, where that is not more than 4 KiB, which is the most that drives tell.
    #[must_use]
    pub fn physical_block_bytes(&self) -> u32 {
        match self {
            Self::Ssd(spec) => spec.page_bytes.0.min(4096) as u32,
            Self::Ftl(spec) => spec.page_bytes.min(4096) as u32,
            Self::Network(_) | Self::Disk(_) => 512,
        }
    }

    /// Bytes from its start that hold data before a run.
    #[must_use]
    pub fn occupied_bytes(&self) -> u64 {
        match self {
            Self::Ftl(spec) if spec.state == Preconditioning::Empty => 0,
            Self::Ftl(spec) => (spec.size_bytes() as f64 * spec.occupied) as u64,
            _ => self.size_bytes(),
        }
    }

    /// Whether a run begins as the drive's writes leave it in the long run, and not after a single one.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        !matches!(self, Self::Ftl(spec) if spec.state != Preconditioning::Steady)
    }

    /// The rate of the link to it, bytes a second, where the model has one.
    #[must_use]
    pub fn link_bytes_per_s(&self) -> Option<f64> {
        match self {
            Self::Ssd(spec) => Some(spec.link_bytes_per_s),
            Self::Ftl(spec) => Some(spec.link_bytes_per_s),
            _ => None,
        }
    }

    /// Time of a command of one sector, at least, nanoseconds.
    pub(super) fn least_ns(&self) -> Time {
        match self {
            Self::Ssd(spec) => values::ns(spec.command_us),
            Self::Ftl(spec) => spec.command_ns + spec.controller_ns,
            Self::Network(spec) => {
                let rate = spec.read_bytes_per_s.max(spec.write_bytes_per_s);
                values::ns(spec.service_us) + values::ns(spec.latency_us) + values::transfer_ns(512, rate)
            }
            Self::Disk(spec) => values::ns(spec.command_us),
        }
    }

    /// Items of state that a drive by its constants keeps in memory; the size of one with a translation layer has a bound of its own.
    pub(super) fn items(&self) -> u64 {
        match self {
            Self::Ssd(spec) => {
                [spec.channels, spec.programs_at_once, spec.buffer_pages].map(u64::from).iter().sum()
            }
            _ => 0,
        }
    }

    /// About how much memory its state takes while a run lasts, bytes.
    pub(super) fn state_bytes(&self) -> u64 {
        /// What a request, an event or a queue's entry takes.
        const ITEM_BYTES: u64 = 64;
        match self {
            Self::Ftl(spec) => spec.state_bytes(),
            _ => self.items() * ITEM_BYTES,
        }
    }

    pub(super) fn check(&self, table: &str) -> Checked {
        match self {
            Self::Ssd(spec) => spec.check(table),
            Self::Ftl(spec) => spec.check(table),
            Self::Network(spec) => spec.check(table),
            Self::Disk(spec) => spec.check(table),
        }
    }
}
