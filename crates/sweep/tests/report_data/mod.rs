//! A sweep of the fourteen test types as a drive might have given it: depth pays until the drive is full,
//! the first pass is off the trend, passes scatter by one percent. Drawn from a seed, so always the same.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod layouts;

use std::collections::BTreeMap;

use measure::record::{EngineFacts, HostFacts, TargetFacts};
use measure::{Histogram, TestType, WarningCode, Workload};
use sweep::analysis::{SweepData, SweepMeta, TargetSeen};
use sweep::model::{Point, RunRow, SCRATCH};
use sweep::plan::Protocol;

/// SplitMix64 (Steele, Lea and Flood 2014).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal by the sum of twelve uniforms, which is near enough for scatter.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// MB/s of test types 1 to 14. Depth 4 already fills sequential reads; depth 128 random ones.
const MEGABYTES: [f64; 14] = [
    1420.0, 1105.0, 1240.0, 1010.0, 2360.0, 1490.0, 2371.0, 1502.0, 402.0, 288.0, 731.0, 391.0, 736.0, 388.0,
];

pub const START: u64 = 1_735_689_600_000_000_000;

pub fn point(id: u32, test_type: u8) -> Point {
    let test_type = TestType::try_from(test_type).unwrap();
    Point {
        id,
        settings: BTreeMap::from([("test_type".to_owned(), test_type.number().to_string())]),
        test_type: Some(test_type),
        target: SCRATCH.to_owned(),
        workload: test_type.workload(&Workload::default()),
        layout: BTreeMap::new(),
    }
}

/// A run of `point` at a given bandwidth in MB/s, with latencies by Little's law.
pub fn run(point: &Point, pass: u32, position: u32, megabytes: f64) -> RunRow {
    let bandwidth = megabytes * 1e6;
    let iops = bandwidth / point.workload.bs as f64;
    let mean = f64::from(point.workload.iodepth) / iops * 1e9;
    RunRow {
        id: i64::from(position) + 1,
        point: point.id,
        pass,
        position,
        started_unix_ns: START + u64::from(position) * 700_000_000,
        interval_ns: 500_000_000,
        bytes: (bandwidth / 2.0) as u64,
        ios: (iops / 2.0) as u64,
        bandwidth_bytes_per_s: bandwidth,
        iops,
        latency_ns_mean: mean,
        latency_ns_p50: (mean * 0.93) as u64,
        latency_ns_p99: (mean * 1.9) as u64,
        latency_ns_p99_9: (mean * 3.4) as u64,
        latency_ns_max: (mean * 9.0) as u64,
        warnings: vec![WarningCode::ClosedLoop, WarningCode::Virtual],
        limit: None,
    }
}

pub fn meta(passes: u32, runs: usize) -> SweepMeta {
    SweepMeta {
        name: "dash14".to_owned(),
        version: "0.1.0".to_owned(),
        seed: 20_100_802,
        order: "random within each pass".to_owned(),
        protocol: Protocol::Dash,
        equivalence: Default::default(),
        budget_s: None,
        passes,
        discard_first: true,
        started_unix_ns: Some(START),
        finished_unix_ns: Some(START + runs as u64 * 700_000_000),
        space: "[sweep]\nname = \"dash14\"\npasses = 6\n\n[space]\ntest_type = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]\n".to_owned(),
        baseline: BTreeMap::new(),
        hostname: "node1".to_owned(),
        directory: "/scratch".to_owned(),
    }
}

/// The fourteen, `passes` times, with control runs.
pub fn fourteen(passes: u32) -> SweepData {
    let mut random = Random(14);
    let points: Vec<Point> = (1..=14).map(|n| point(u32::from(n) - 1, n)).collect();
    let mut runs = Vec::new();
    let mut controls = Vec::new();
    let mut position = 0;
    for pass in 1..=passes {
        let mut order: Vec<usize> = (0..points.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, (random.bits() % (i as u64 + 1)) as usize);
        }
        for (n, &i) in order.iter().enumerate() {
            if n % 7 == 0 {
                let mut control = run(&points[8], pass, position, 402.0 * (1.0 + 0.012 * random.normal()));
                control.id = controls.len() as i64 + 1;
                controls.push(control);
                position += 1;
            }
            let first = match (pass, points[i].workload.rw.reads()) {
                (1, true) => 0.955,
                (1, false) => 0.80,
                _ => 1.0,
            };
            let megabytes = MEGABYTES[i] * first * (1.0 + 0.009 * random.normal());
            runs.push(run(&points[i], pass, position, megabytes));
            position += 1;
        }
    }
    let total = runs.len();
    SweepData {
        meta: meta(passes, total + controls.len()),
        latencies: points
            .iter()
            .map(|p| (p.id, latencies_of(p, MEGABYTES[p.id as usize], &mut random)))
            .collect(),
        points,
        runs,
        controls,
        host: Some(host()),
        targets: vec![target()],
        messages: BTreeMap::from([(
            WarningCode::Virtual,
            "vda is a virtio device; the machine is a kvm guest".to_owned(),
        )]),
        ..SweepData::default()
    }
}

pub fn latencies_of(point: &Point, megabytes: f64, random: &mut Random) -> Histogram {
    let iops = megabytes * 1e6 / point.workload.bs as f64;
    let mean = f64::from(point.workload.iodepth) / iops * 1e9;
    let mut histogram = Histogram::new();
    for _ in 0..20_000 {
        let tail = if random.uniform() < 0.004 { 4.0 + 6.0 * random.uniform() } else { 1.0 };
        histogram.record_n(
            (mean * (0.25 * random.normal()).exp() * 0.96 * tail) as u64,
            1 + (iops / 10_000.0) as u64,
        );
    }
    histogram
}

pub fn host() -> HostFacts {
    HostFacts {
        kernel: "6.18.0".to_owned(),
        architecture: "x86_64".to_owned(),
        cpu_model: "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz".to_owned(),
        cpus: 2,
        numa_nodes: 1,
        memory_bytes: 24 << 30,
        governor: None,
        virtualization: Some("kvm".to_owned()),
        container: None,
    }
}

pub fn target() -> TargetSeen {
    TargetSeen {
        target: SCRATCH.to_owned(),
        facts: TargetFacts {
            spec: "flashwright.scratch".to_owned(),
            kind: "file".to_owned(),
            path: Some("/data/flashwright.scratch".to_owned()),
            size_bytes: 8 << 30,
            logical_block_bytes: 512,
            filesystem: Some("ext4".to_owned()),
            mount_options: Some("rw,relatime,discard".to_owned()),
            block_devices: vec!["vda1".to_owned(), "vda".to_owned()],
            model: None,
            transport: Some("virtio".to_owned()),
            rotational: Some(false),
            ..TargetFacts::default()
        },
        layout: BTreeMap::from([
            ("scheduler".to_owned(), "none".to_owned()),
            ("read_ahead_kb".to_owned(), "128".to_owned()),
        ]),
        engine: EngineFacts {
            used: "io_uring".to_owned(),
            fallback: None,
            features: vec![
                "fixed buffers".to_owned(),
                "registered file".to_owned(),
                "defer_taskrun".to_owned(),
            ],
            ..EngineFacts::default()
        },
    }
}
