//! A healthy run, to be spoiled one lie at a time.

use std::collections::BTreeMap;

use bench::lies::{Evidence, Known, judge};
use bench::observe::{Layer, Observed, Settings, Stack};
use measure::record::{
    Bounds, CpuCounts, DirectionCounts, DriveCounts, EngineFacts, HostFacts, JobCounts, ProcessCounts,
    RunRecord, Sample, TargetFacts, TotalCounts,
};
use measure::workload::{LatencyClock, Rw};
use measure::{Warning, WarningCode, Workload};
use storage::sysfs::{BlockDevice, PcieLink, QueueFacts};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const SECOND: u64 = 1_000_000_000;
/// Requests a second of the healthy run.
pub const IOPS: u64 = 200_000;
/// Its length in seconds.
pub const SECONDS: u64 = 5;

/// All parts of the evidence about one run.
#[derive(Debug, Clone)]
pub struct Case {
    pub record: RunRecord,
    pub stack: Stack,
    pub observed: Observed,
    pub known: Known,
}

impl Case {
    pub fn warnings(&self) -> Vec<Warning> {
        let Self { record, stack, observed, known } = self;
        judge(&Evidence { record, stack, observed, known })
    }

    /// The codes drawn, without the label that every closed loop bears.
    pub fn codes(&self) -> Vec<WarningCode> {
        let codes = self.warnings().into_iter().map(|warning| warning.code);
        codes.filter(|code| *code != WarningCode::ClosedLoop).collect()
    }

    pub fn message(&self, code: WarningCode) -> String {
        let warnings = self.warnings();
        let found = warnings.iter().find(|warning| warning.code == code);
        found.unwrap_or_else(|| panic!("{code} is not among {warnings:#?}")).message.clone()
    }

    pub fn workload(&mut self) -> &mut Workload {
        &mut self.record.workload
    }

    /// The drive at the bottom.
    pub fn drive(&mut self) -> &mut BlockDevice {
        &mut self.stack.layers.last_mut().expect("a drive").device
    }

    /// Its queue.
    pub fn queue(&mut self) -> &mut QueueFacts {
        self.drive().queue.as_mut().expect("a queue")
    }

    /// Its link.
    pub fn link(&mut self) -> &mut PcieLink {
        self.drive().pcie.as_mut().expect("a link")
    }

    /// Puts the target on another file system.
    pub fn mounted(mut self, filesystem: &str, options: &str) -> Self {
        self.stack.filesystem = Some(filesystem.into());
        self.stack.options = options.into();
        self.record.target.filesystem = Some(filesystem.into());
        self
    }

    /// Turns the run around: what was read is written, by record and by counters.
    pub fn writing(mut self) -> Self {
        self.record.workload.rw = Rw::RandWrite;
        std::mem::swap(&mut self.record.read, &mut self.record.write);
        for sample in &mut self.record.samples {
            std::mem::swap(&mut sample.read_bytes, &mut sample.write_bytes);
        }
        for drive in &mut self.observed.drives {
            std::mem::swap(&mut drive.read_ios, &mut drive.write_ios);
            std::mem::swap(&mut drive.read_bytes, &mut drive.write_bytes);
        }
        self.known.written_before_bytes = 1 << 50;
        self
    }

    /// Puts `layers` below the target, all with the healthy run's counts.
    pub fn on(mut self, layers: Vec<Layer>) -> Self {
        self.observed.drives = layers.iter().map(|layer| counts(layer.name())).collect();
        self.stack.layers = layers;
        self
    }
}

/// A layer that is fully there.
pub fn layer(depth: u32, name: &str, transport: &str, below: &[&str]) -> Layer {
    let queue = QueueFacts {
        physical_block_bytes: 4096,
        max_sectors_kb: Some(1024),
        max_hw_sectors_kb: Some(2048),
        io_poll: Some(false),
        rotational: Some(false),
        write_cache: Some("write through".into()),
        ..QueueFacts::default()
    };
    let device = BlockDevice {
        name: name.into(),
        transport: transport.into(),
        size_bytes: 1_920_383_410_176,
        queue: Some(queue),
        ..BlockDevice::default()
    };
    Layer { device, below: below.iter().map(|name| (*name).to_owned()).collect(), depth, ..Layer::default() }
}

/// What a device counts that did just what the healthy run asked for.
pub fn counts(name: &str) -> DriveCounts {
    DriveCounts {
        name: name.into(),
        read_ios: IOPS * SECONDS,
        read_bytes: IOPS * SECONDS * 4096,
        busy_ms: 5000,
        ..DriveCounts::default()
    }
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    for (name, value) in [("scheduler", "none"), ("iostats", "1"), ("read_ahead_kb", "128")] {
        settings.set("nvme0n1", name, value);
    }
    settings
}

fn drives() -> Vec<Layer> {
    let mut partition = layer(0, "nvme0n1p2", "nvme", &["nvme0n1"]);
    partition.device.disk = Some("nvme0n1".into());
    partition.device.partition_start_bytes = Some(MIB);
    let mut drive = layer(1, "nvme0n1", "nvme", &[]);
    drive.device.numa_node = Some(0);
    drive.device.pcie = Some(PcieLink {
        address: "0000:01:00.0".into(),
        speed_gts: 16.0,
        width: 4,
        max_speed_gts: 16.0,
        max_width: 4,
        port_max_speed_gts: Some(32.0),
        port_max_width: Some(16),
    });
    vec![partition, drive]
}

/// Five seconds of 4 KiB random reads at depth 32 from a 16 GiB file on ext4 on an NVMe partition
/// of a bare-metal server with two NUMA nodes, by one job, bound to a CPU of the drive's node.
pub fn healthy() -> Case {
    let (ios, interval_ns) = (IOPS * SECONDS, SECONDS * SECOND);
    let mut read = DirectionCounts { bytes: ios * 4096, ios, ..DirectionCounts::default() };
    read.latency.record_n(160_000, ios);
    let steps = SECONDS * 10;
    let sample = |n: u64| Sample {
        end_ns: (n + 1) * SECOND / 10,
        read_bytes: IOPS / 10 * 4096 + (n % 3) * 40_960,
        write_bytes: 0,
        ios: IOPS / 10,
    };
    let cpu = |cpu, interrupts| CpuCounts {
        cpu,
        user_ms: 300,
        system_ms: 2200,
        irq_ms: 200,
        idle_ms: 2290,
        interrupts,
        drive_interrupts: interrupts,
        ..CpuCounts::default()
    };
    let record = RunRecord {
        schema: measure::record::SCHEMA.into(),
        workload: Workload { iodepth: 32, time_based: true, size: Some(16 * GIB), ..Workload::default() },
        target: target(),
        layout: settings().layout(&["nvme0n1p2".into(), "nvme0n1".into()]),
        pass: 1,
        precondition: None,
        host: host(),
        engine: EngineFacts {
            used: "io_uring".into(),
            fallback: None,
            features: vec!["fixed buffers".into()],
            latency_clock: LatencyClock::Batch,
            clock_source: "tsc".into(),
            retries: 0,
        },
        started_unix_ns: 1_700_000_000 * SECOND,
        interval_ns,
        ramp_ns: SECOND,
        tail_ns: SECOND / 1000,
        read,
        write: DirectionCounts::default(),
        trim: DirectionCounts::default(),
        jobs: vec![JobCounts {
            bytes: ios * 4096,
            ios,
            interval_ns,
            user_ns: 300_000_000,
            system_ns: 2_200_000_000,
            cpu: Some(0),
            seen_on: vec![0],
        }],
        samples: (0..steps).map(sample).collect(),
        drives: vec![counts("nvme0n1p2"), counts("nvme0n1")],
        cpus: vec![cpu(0, 180_000), cpu(1, 12)],
        process: ProcessCounts { user_ns: 300_000_000, system_ns: 2_200_000_000, ..ProcessCounts::default() },
        total: TotalCounts {
            read_bytes: ios * 4096 / 5 * 6,
            ios: ios / 5 * 6,
            elapsed_ns: interval_ns + SECOND,
            ..TotalCounts::default()
        },
        verified_blocks: 0,
        failed: Vec::new(),
        zones: None,
        warnings: vec![],
        observed_ns: interval_ns + 400_000,
        bounds: Bounds::default(),
        verdict: None,
    };
    let observed = Observed {
        window_ns: interval_ns + 400_000,
        drives: record.drives.clone(),
        cpus: record.cpus.clone(),
        settings_before: settings(),
        settings_after: settings(),
        ..Observed::default()
    };
    let node_of_cpu = BTreeMap::from([(0, 0), (1, 1)]);
    let stack = Stack {
        layers: drives(),
        filesystem: Some("ext4".into()),
        options: "rw,relatime".into(),
        node_of_cpu,
        ..Stack::default()
    };
    Case { record, stack, observed, known: Known::default() }
}

fn target() -> TargetFacts {
    TargetFacts {
        spec: "/scratch/file".into(),
        kind: "file".into(),
        path: Some("/scratch/file".into()),
        size_bytes: 16 * GIB,
        logical_block_bytes: 512,
        filesystem: Some("ext4".into()),
        mount_options: Some("rw,relatime".into()),
        block_devices: vec!["nvme0n1p2".into(), "nvme0n1".into()],
        model: Some("a drive".into()),
        transport: Some("nvme".into()),
        rotational: Some(false),
        ..TargetFacts::default()
    }
}

fn host() -> HostFacts {
    HostFacts {
        kernel: "6.12.0".into(),
        architecture: "x86_64".into(),
        cpu_model: "a CPU".into(),
        cpus: 2,
        numa_nodes: 2,
        memory_bytes: 64 * GIB,
        governor: Some("performance".into()),
        virtualization: None,
        container: None,
    }
}
