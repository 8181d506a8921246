//! A machine on paper: a closed loop of requests over drives with queues of their own, and the record
//! that a run on it would give.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use measure::record::{
    CpuCounts, DirectionCounts, DriveCounts, EngineFacts, HostFacts, JobCounts, TargetFacts,
};
use measure::{Histogram, RunRecord, Workload};

pub const SECOND: u64 = 1_000_000_000;

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Debug, Clone)]
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
        ((self.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
}

/// How long a drive takes for a request.
#[derive(Debug, Clone, Copy)]
pub enum Service {
    /// Always as long, as a throttle makes it.
    Fixed,
    /// Exponential.
    Random,
}

/// One drive: so many requests at once, each so long.
#[derive(Debug, Clone, Copy)]
pub struct Drive {
    pub parallel: u32,
    pub service_ns: f64,
}

/// A closed loop over drives.
#[derive(Debug, Clone)]
pub struct System {
    pub drives: Vec<Drive>,
    pub service: Service,
    pub depth: u32,
    /// Time of the host between a completion and the next request, nanoseconds.
    pub host_ns: f64,
    pub seconds: f64,
    pub seed: u64,
}

struct Station {
    waiting: VecDeque<f64>,
    serving: u32,
    ios: u64,
    in_flight_ns: f64,
    busy_ns: f64,
    busy_since: f64,
}

impl System {
    pub fn alike(drives: usize, parallel: u32, service_ns: f64, depth: u32) -> Self {
        Self {
            drives: vec![Drive { parallel, service_ns }; drives],
            service: Service::Random,
            depth,
            host_ns: 2_000.0,
            seconds: 1.0,
            seed: 7,
        }
    }

    /// The record of random 4 KiB reads on it: each request goes to a drive drawn at random, as in a stripe.
    pub fn record(&self) -> RunRecord {
        let mut random = Random(self.seed);
        let mut stations: Vec<Station> = self
            .drives
            .iter()
            .map(|_| Station {
                waiting: VecDeque::new(),
                serving: 0,
                ios: 0,
                in_flight_ns: 0.0,
                busy_ns: 0.0,
                busy_since: 0.0,
            })
            .collect();
        let end = self.seconds * 1e9;
        let mut latency = Histogram::new();
        // Time, then station, then when the request arrived there; `usize::MAX` is the host's turn.
        let mut events: BinaryHeap<Reverse<(u64, usize, u64)>> = BinaryHeap::new();
        for n in 0..self.depth {
            events.push(Reverse((u64::from(n), usize::MAX, 0)));
        }
        while let Some(Reverse((now, at, arrived))) = events.pop() {
            let time = now as f64;
            if time >= end {
                break;
            }
            if at == usize::MAX {
                let to = (random.bits() % self.drives.len() as u64) as usize;
                let station = &mut stations[to];
                if station.serving == 0 {
                    station.busy_since = time;
                }
                if station.serving < self.drives[to].parallel {
                    station.serving += 1;
                    events.push(Reverse((now + self.service(to, &mut random), to, now)));
                } else {
                    station.waiting.push_back(time);
                }
            } else {
                let station = &mut stations[at];
                station.ios += 1;
                station.in_flight_ns += time - arrived as f64;
                latency.record((time - arrived as f64 + self.host_ns / 2.0) as u64);
                match station.waiting.pop_front() {
                    Some(next) => {
                        events.push(Reverse((now + self.service(at, &mut random), at, next as u64)));
                    }
                    None => {
                        station.serving -= 1;
                        if station.serving == 0 {
                            station.busy_ns += time - station.busy_since;
                        }
                    }
                }
                events.push(Reverse((now + self.host_ns as u64, usize::MAX, 0)));
            }
        }
        for station in stations.iter_mut().filter(|s| s.serving > 0) {
            station.busy_ns += end - station.busy_since;
        }
        self.written(&stations, latency)
    }

    fn service(&self, at: usize, random: &mut Random) -> u64 {
        let mean = self.drives[at].service_ns;
        match self.service {
            Service::Fixed => mean as u64,
            Service::Random => (-random.uniform().ln() * mean) as u64 + 1,
        }
    }

    fn written(&self, stations: &[Station], latency: Histogram) -> RunRecord {
        let ios = latency.count();
        let mut drives: Vec<DriveCounts> = stations
            .iter()
            .enumerate()
            .map(|(n, station)| DriveCounts {
                name: format!("nvme{n}n1"),
                read_ios: station.ios,
                read_bytes: station.ios * 4096,
                busy_ms: (station.busy_ns / 1e6) as u64,
                in_flight_ms: (station.in_flight_ns / 1e6) as u64,
                ..DriveCounts::default()
            })
            .collect();
        if drives.len() > 1 {
            let array = DriveCounts {
                name: "md0".into(),
                below: drives.iter().map(|d| d.name.clone()).collect(),
                read_ios: ios,
                read_bytes: ios * 4096,
                busy_ms: (self.seconds * 1e3) as u64,
                in_flight_ms: drives.iter().map(|d| d.in_flight_ms).sum(),
                ..DriveCounts::default()
            };
            drives.insert(0, array);
        }
        let interval_ns = (self.seconds * 1e9) as u64;
        // A microsecond and a half of CPU time for each request, over four CPUs.
        let system_ms = (ios as f64 * 1.5e-3 / 4.0).min(self.seconds * 300.0) as u64;
        let all_ms = (self.seconds * 1e3) as u64;
        let cpu = |cpu| CpuCounts {
            cpu,
            user_ms: system_ms / 10,
            system_ms,
            idle_ms: all_ms - system_ms - system_ms / 10,
            interrupts: ios / 4,
            drive_interrupts: ios / 4,
            block_softirqs: ios / 8,
            ..CpuCounts::default()
        };
        let read = DirectionCounts { bytes: ios * 4096, ios, latency };
        RunRecord {
            workload: Workload { iodepth: self.depth, ..Workload::default() },
            interval_ns,
            jobs: vec![JobCounts {
                bytes: read.bytes,
                ios,
                interval_ns,
                system_ns: system_ms * 1_000_000,
                seen_on: vec![0, 2],
                ..JobCounts::default()
            }],
            read,
            drives,
            cpus: (0..4).map(cpu).collect(),
            observed_ns: interval_ns,
            host: HostFacts { cpus: 4, ..HostFacts::default() },
            ..empty_record()
        }
    }
}

/// A record of nothing, read as data: fields that records gain are optional there.
fn empty_record() -> RunRecord {
    let nothing = serde_json::to_value(DirectionCounts::default()).unwrap();
    serde_json::from_value(serde_json::json!({
        "schema": measure::record::SCHEMA, "workload": {}, "target": TargetFacts::default(), "layout": {},
        "pass": 1, "host": HostFacts::default(), "engine": EngineFacts::default(), "started_unix_ns": 1,
        "interval_ns": 1, "ramp_ns": 0, "tail_ns": 0, "read": nothing, "write": nothing, "trim": nothing,
        "jobs": [], "samples": [], "drives": [], "cpus": [],
        "process": measure::record::ProcessCounts::default(), "verified_blocks": 0, "warnings": [],
    }))
    .unwrap()
}
