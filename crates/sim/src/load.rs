//! Where requests come from: the offsets, sizes and directions of a job, and when they are due.

use measure::dealing::Region;
use measure::pattern::{Blocks, Cover, Given, Pareto, Rng, Sequential, Uniform, Zipf, Zoned};
use measure::workload::{RandomDistribution, RateProcess, Rw, Workload, all_draws};

use crate::device::{Operation, Time};

/// A request as a job makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    pub operation: Operation,
    pub offset: u64,
    pub bytes: u32,
}

/// A job on one target; of separate devices each has jobs of its own.
pub(crate) struct Stream {
    /// The device of separate ones; 0 where there is one target.
    pub target: u32,
    /// The job's CPU, where jobs have one.
    pub cpu: u32,
    pub depth: u32,
    pub in_flight: u32,
    /// CPU time of its requests, nanoseconds.
    pub cpu_ns: u64,
    /// When the first of the requests was due that are due and have no place.
    pub overdue: Option<Time>,
    gap_ns: Option<f64>,
    process: RateProcess,
    due: f64,
    order: Box<dyn Blocks + Send>,
    is_random: bool,
    position: u64,
    region: Region,
    unit: u64,
    /// Sizes with their cumulative shares of `draws` requests.
    sizes: Vec<(u32, u64)>,
    draws: u64,
    /// Percentage of reads, and what the rest is.
    read_percent: u8,
    other: Operation,
    left: u64,
    is_over: bool,
    rng: Rng,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("target", &self.target)
            .field("depth", &self.depth)
            .finish_non_exhaustive()
    }
}

fn order(workload: &Workload, blocks: u64, seed: u64) -> Box<dyn Blocks + Send> {
    if !workload.rw.is_random() {
        return Box::new(Sequential::new(blocks));
    }
    match &workload.random_distribution {
        RandomDistribution::Zipf(theta) => Box::new(Zipf::new(blocks, *theta, seed)),
        RandomDistribution::Pareto(h) => Box::new(Pareto::new(blocks, *h, seed)),
        RandomDistribution::Zoned(zones) => Box::new(Zoned::new(blocks, zones, seed)),
        RandomDistribution::Sequence(sequence) => Box::new(Given::new(blocks, sequence)),
        RandomDistribution::Random if workload.norandommap => Box::new(Uniform::new(blocks, seed)),
        RandomDistribution::Random => Box::new(Cover::new(blocks, seed)),
    }
}

/// Nanoseconds between the requests of a job under a rate.
fn gap_ns(workload: &Workload) -> Option<f64> {
    let bytes = workload.rate.map(|rate| workload.bs as f64 / rate as f64);
    let requests = workload.rate_iops.map(|rate| 1.0 / rate as f64);
    requests.or(bytes).map(|seconds| seconds * 1e9)
}

impl Stream {
    /// The `number`th stream of a workload, over a region that holds at least one request.
    pub fn new(workload: &Workload, number: u32, target: u32, cpu: u32, region: Region) -> Self {
        let seed = workload.randseed.wrapping_add(u64::from(number));
        let unit = workload.min_bs();
        let mut share = 0;
        let sizes = match workload.bssplit.as_slice() {
            [] => vec![(workload.bs as u32, 100)],
            split => split
                .iter()
                .map(|size| {
                    share += size.draws();
                    (size.bs as u32, share)
                })
                .collect(),
        };
        let read_percent = match workload.rw {
            Rw::Read | Rw::RandRead => 100,
            Rw::Rw | Rw::RandRw => workload.rwmixread,
            _ => 0,
        };
        let endless = workload.time_based || workload.runtime.is_some();
        Self {
            target,
            cpu,
            depth: workload.iodepth,
            in_flight: 0,
            cpu_ns: 0,
            overdue: None,
            gap_ns: gap_ns(workload),
            process: workload.rate_process,
            due: 0.0,
            order: order(workload, region.length / unit, seed),
            is_random: workload.rw.is_random(),
            position: 0,
            region,
            unit,
            sizes,
            draws: all_draws(&workload.bssplit),
            read_percent,
            other: if workload.rw.writes() { Operation::Write } else { Operation::Trim },
            left: if endless { u64::MAX } else { region.length / unit * unit },
            is_over: false,
            rng: Rng::new(seed ^ 0x5117_ea11),
        }
    }

    /// When the next request is due, after the last that was; none in a closed loop, and where the job's share is done.
    pub fn next_due(&mut self) -> Option<Time> {
        let gap = self.gap_ns.filter(|_| !self.is_over)?;
        self.due += match self.process {
            RateProcess::Linear => gap,
            RateProcess::Poisson => gap * self.rng.exponential(),
        };
        Some(self.due.round() as Time)
    }

    /// Whether requests are due at times of their own.
    pub fn is_open_loop(&self) -> bool {
        self.gap_ns.is_some()
    }

    /// The next request; none where the job's share is done.
    #[inline]
    pub fn next_wish(&mut self) -> Option<Wish> {
        let bytes = match self.sizes.as_slice() {
            [(bytes, _)] => *bytes,
            sizes => {
                let drawn = self.rng.below(self.draws);
                sizes.iter().find(|(_, share)| drawn < *share).map_or(sizes[0].0, |(bytes, _)| *bytes)
            }
        };
        if self.left < u64::from(bytes) {
            self.is_over = true;
            return None;
        }
        if self.left != u64::MAX {
            self.left -= u64::from(bytes);
        }
        let room = self.region.length - u64::from(bytes);
        let offset = if self.is_random {
            (self.order.next_block() * self.unit).min(room / self.unit * self.unit)
        } else {
            let at = if self.position > room { 0 } else { self.position };
            self.position = at + u64::from(bytes);
            at
        };
        let reads = match self.read_percent {
            100 => true,
            0 => false,
            percent => self.rng.below(100) < u64::from(percent),
        };
        let operation = if reads { Operation::Read } else { self.other };
        Some(Wish { operation, offset: self.region.start + offset, bytes })
    }
}
