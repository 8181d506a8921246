//! The computer: CPUs, what the kernel's layers cost, interrupts, and what stands between host and drives.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::device::Time;
use crate::error::InvalidMachine;
use crate::values::{self, Bytes, Checked};

/// The computer, all times of CPUs in microseconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// CPUs.
    pub cores: u32,
    /// Which CPU makes a request.
    pub submission: Submission,
    /// CPU time of a request on its way through the block layer and back, its first page and bio included.
    pub path_us: f64,
    /// CPU time of each further page of a request.
    #[serde(default)]
    pub page_us: f64,
    /// CPU time of each further bio of a request.
    #[serde(default)]
    pub bio_us: f64,
    /// Largest bio.
    #[serde(default = "one_mebibyte")]
    pub bio_bytes: Bytes,
    /// Largest request to a device, to which neighbours are merged and bios cut (`max_sectors_kb`).
    #[serde(default = "half_mebibyte")]
    pub request_bytes: Bytes,
    /// Requests that wait in a device's queue before it is unplugged, while further ones are being submitted.
    #[serde(default = "plug_requests")]
    pub plug_requests: u32,
    /// Where an array's data begin, behind a multiple of the chunk: 63 sectors for a partition of old.
    #[serde(default)]
    pub partition_offset_bytes: u32,
    /// Interrupts.
    #[serde(default)]
    pub interrupts: Interrupts,
    /// CPU time that the md driver adds to a request.
    #[serde(default)]
    pub md_us: Option<f64>,
    /// What file systems there are, and what they cost.
    #[serde(default)]
    pub filesystems: BTreeMap<String, FilesystemCosts>,
    /// What I/O schedulers there are; the first in the alphabet is the default, unless one is called `none`.
    #[serde(default)]
    pub schedulers: BTreeMap<String, Scheduler>,
}

fn one_mebibyte() -> Bytes {
    Bytes(1 << 20)
}

fn half_mebibyte() -> Bytes {
    Bytes(512 << 10)
}

fn plug_requests() -> u32 {
    4
}

/// Which CPU makes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Submission {
    /// Any: each request in flight has a thread of its own, as XDD makes them.
    Threads,
    /// That of the job: one thread makes all requests of a job, as with io_uring or libaio.
    Jobs,
}

/// What interrupts cost.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interrupts {
    /// Where they go.
    pub delivery: Delivery,
    /// CPU time of a completion.
    #[serde(default)]
    pub completion_us: f64,
    /// CPU time of a completion for each member of the md array that it belongs to.
    #[serde(default)]
    pub member_us: f64,
    /// CPU time of an interrupt, which several completions share that arrive while the last is handled.
    #[serde(default)]
    pub interrupt_us: f64,
}

impl Default for Interrupts {
    fn default() -> Self {
        Self { delivery: Delivery::AnyCpu, completion_us: 0.0, member_us: 0.0, interrupt_us: 0.0 }
    }
}

/// Where interrupts go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// All to CPU 0, which does nothing else.
    OneCpu,
    /// To whichever CPU has time.
    AnyCpu,
    /// To the CPU that made the request.
    Submitter,
}

/// What a file system costs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesystemCosts {
    /// Time of a read under a lock of its file, so that one follows the other.
    #[serde(default)]
    pub read_lock_us: f64,
    /// Bytes of the synchronous write to the log that follows each write to a file, one after the other: a sector to 1 MiB.
    #[serde(default)]
    pub log_bytes: Option<Bytes>,
}

/// An I/O scheduler of the machine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheduler {
    /// What it does.
    pub policy: Policy,
    /// CPU time that it adds to a request.
    #[serde(default)]
    pub io_us: f64,
    /// Anticipatory and CFQ: how long a device waits for the next request of the process whose last one it served.
    #[serde(default)]
    pub idle_us: f64,
    /// Anticipatory and CFQ: how long a process has a device while others wait for it.
    #[serde(default = "slice_us")]
    pub slice_us: f64,
    /// CFQ: requests of a process in a device while others wait for it.
    #[serde(default = "quantum")]
    pub quantum: u32,
    /// Deadline: requests of a batch.
    #[serde(default = "batch")]
    pub batch: u32,
    /// Deadline: time after which a read begins the next batch of reads.
    #[serde(default = "read_expire_us")]
    pub read_expire_us: f64,
    /// Deadline: time after which a write begins the next batch of writes.
    #[serde(default = "write_expire_us")]
    pub write_expire_us: f64,
}

/// Linux 2.6, `block/cfq-iosched.c`: `cfq_slice_sync`.
fn slice_us() -> f64 {
    100_000.0
}

/// Linux 2.6, `block/cfq-iosched.c`: `cfq_quantum`.
fn quantum() -> u32 {
    4
}

/// Linux 2.6, `block/deadline-iosched.c`: `fifo_batch`.
fn batch() -> u32 {
    16
}

/// Linux 2.6, `block/deadline-iosched.c`: `read_expire`.
fn read_expire_us() -> f64 {
    500_000.0
}

/// Linux 2.6, `block/deadline-iosched.c`: `write_expire`.
fn write_expire_us() -> f64 {
    5_000_000.0
}

/// What a scheduler does with the requests that wait for a device. All merge neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// First come, first served.
    Noop,
    /// By address upwards, then from the lowest again.
    Elevator,
    /// Batches of reads and batches of writes, each by address but for those whose time is over.
    Deadline,
    /// By address, and one request in the device at a time, so that the next one's neighbour may still come.
    Anticipatory,
    /// A slice of time for each process, one after the other, by address within it.
    Cfq,
}

impl Scheduler {
    fn check(&self, name: &str) -> Checked {
        let key = |key: &str| format!("host.schedulers.{name}.{key}");
        let times = [
            ("io_us", self.io_us),
            ("idle_us", self.idle_us),
            ("slice_us", self.slice_us),
            ("read_expire_us", self.read_expire_us),
            ("write_expire_us", self.write_expire_us),
        ];
        times.into_iter().try_for_each(|(time, value)| values::micros(&key(time), value))?;
        values::count(&key("quantum"), self.quantum, 1 << 16)?;
        values::count(&key("batch"), self.batch, 1 << 16)?;
        let waits = matches!(self.policy, Policy::Anticipatory | Policy::Cfq);
        if self.idle_us > 0.0 && !waits {
            let hint = "leave it out, or take policy = \"anticipatory\" or \"cfq\"";
            let reason = "is for schedulers that wait for a request, which this policy does not";
            return Err(InvalidMachine::new(key("idle_us"), self.idle_us, reason, hint));
        }
        Ok(())
    }
}

impl Host {
    /// CPU time of each request, at least, nanoseconds.
    pub(super) fn least_ns(&self) -> Time {
        values::ns(self.path_us) + values::ns(self.interrupts.completion_us)
    }

    pub(super) fn check(&self) -> Checked {
        values::count("host.cores", self.cores, 4096)?;
        let interrupts = &self.interrupts;
        let times = [
            ("host.path_us", self.path_us),
            ("host.page_us", self.page_us),
            ("host.bio_us", self.bio_us),
            ("host.md_us", self.md_us.unwrap_or(0.0)),
            ("host.interrupts.completion_us", interrupts.completion_us),
            ("host.interrupts.member_us", interrupts.member_us),
            ("host.interrupts.interrupt_us", interrupts.interrupt_us),
        ];
        times.into_iter().try_for_each(|(key, value)| values::micros(key, value))?;
        values::multiple("host.bio_bytes", self.bio_bytes, 4096, "a page")?;
        values::multiple("host.request_bytes", self.request_bytes, 4096, "a page")?;
        values::within(
            "host.request_bytes",
            self.request_bytes.0 as f64,
            4096.0,
            1e9,
            "for instance \"512k\"",
        )?;
        values::count("host.plug_requests", self.plug_requests, 1 << 20)?;
        if !self.partition_offset_bytes.is_multiple_of(512) {
            let reason = "is not a multiple of a sector, 512 bytes";
            let value = self.partition_offset_bytes;
            return Err(InvalidMachine::new(
                "host.partition_offset_bytes",
                value,
                reason,
                "32256 is 63 sectors",
            ));
        }
        if interrupts.delivery == Delivery::OneCpu && self.cores < 2 {
            let hint = "give the host two cores, or delivery = \"any-cpu\"";
            let reason = "leaves no core for the requests";
            return Err(InvalidMachine::new("host.interrupts.delivery", "one-cpu", reason, hint));
        }
        for (name, costs) in &self.filesystems {
            values::micros(&format!("host.filesystems.{name}.read_lock_us"), costs.read_lock_us)?;
            if base::Filesystem::ALL.iter().all(|known| known.word() != name) {
                let key = format!("host.filesystems.{name}");
                let hint = format!("there are {}", base::Filesystem::WORDS.join(", "));
                return Err(InvalidMachine::new(key, "…", "no layout has such a file system", hint));
            }
            if let Some(log) = costs.log_bytes {
                let key = format!("host.filesystems.{name}.log_bytes");
                values::multiple(&key, log, 512, "a sector")?;
                values::within(
                    &key,
                    log.0 as f64,
                    512.0,
                    f64::from(1 << 20),
                    "bytes of one write, for instance \"4k\"",
                )?;
            }
        }
        self.schedulers.iter().try_for_each(|(name, scheduler)| scheduler.check(name))
    }
}

/// What stands between host and drives. There are as many as the drives need.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Controller {
    /// A plain host bus adapter.
    Hba {
        /// Drives on each.
        drives: u32,
        /// Its time of a command, which it does one after the other.
        io_us: f64,
        /// Rate of its bus to the host, bytes a second.
        bytes_per_s: f64,
    },
    /// A RAID controller, whose drives are one RAID-0 array for the host.
    Raid {
        /// Drives on each.
        drives: u32,
        /// Time of its processor for each command to a drive.
        io_us: f64,
        /// Time that its settings add to that.
        #[serde(default)]
        untuned_us: f64,
        /// Bytes that one drive holds before the next one's turn comes.
        strip_bytes: Bytes,
        /// Commands at once.
        queue_depth: u32,
        /// Rate of its bus to the host, bytes a second.
        bytes_per_s: f64,
    },
}

impl Controller {
    /// Drives on each.
    #[must_use]
    pub fn drives(&self) -> u32 {
        match self {
            Self::Hba { drives, .. } | Self::Raid { drives, .. } => *drives,
        }
    }

    /// Rate of its bus to the host, bytes a second.
    #[must_use]
    pub fn bus_bytes_per_s(&self) -> f64 {
        match self {
            Self::Hba { bytes_per_s, .. } | Self::Raid { bytes_per_s, .. } => *bytes_per_s,
        }
    }

    pub(super) fn check(&self, all: u32) -> Checked {
        values::count("controller.drives", self.drives(), 4096)?;
        values::rate("controller.bytes_per_s", self.bus_bytes_per_s())?;
        match self {
            Self::Hba { io_us, .. } => values::micros("controller.io_us", *io_us),
            Self::Raid { drives, io_us, untuned_us, strip_bytes, queue_depth, .. } => {
                values::micros("controller.io_us", *io_us)?;
                values::micros("controller.untuned_us", *untuned_us)?;
                values::count("controller.queue_depth", *queue_depth, 65_536)?;
                values::multiple("controller.strip_bytes", *strip_bytes, 4096, "a page")?;
                if all.is_multiple_of(*drives) {
                    return Ok(());
                }
                let reason = format!("{all} drives are not a multiple of it");
                Err(InvalidMachine::new("controller.drives", drives, reason, "each array has as many drives"))
            }
        }
    }
}
