//! The papers' figures beside those of the machines that the program brings.
//!
//! [`figures`]: each figure of the two DASH papers, how it is run, and whether a constant is set from it. [`refit`]: the constants set
//! again from these alone, and what the others come to. [`shapes`]: what the papers show rather than measure, and the Cray's tables.
//! [`sensitivity`]: which figures move when a constant moves. All machines share one set of constants (`machines/dash-io-node.toml`).

pub mod figures;
pub mod refit;
pub mod sensitivity;
pub mod shapes;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::LayoutKind;
use measure::{RunRecord, Target, Workload};
use toml::Table;

use crate::machine::Machine;
use crate::meter::Stop;
use crate::node::Layout;
use crate::target::SimTarget;

/// Runs of as many seeds make a figure: stripes of drives that stall at times drawn from the seed vary by 3 %.
pub const SEEDS: u64 = 8;

/// A figure may differ from the paper's by this part.
pub const TOLERANCE: f64 = 0.10;

/// What the papers leave open or say in two ways, and how it was read.
pub const AMBIGUITIES: &[&str] = &[
    "16 drives under md: 254,808 (recipe, Table 7) against 350 K (DASH-IO §3.4). Read as XFS at depth 128 against raw at depth 512; neither \
     paper says so.",
    "Separate drives reach 562 K, so the recipe blames RAID; DASH-IO blames interrupts. One cost of an interrupt cannot give both: fitted to \
     350 K, it caps separate drives at 352 K. Here the cost grows with the members of the array.",
    "Table 7's 254,808 is of \"16 drives\", section III gives 255 K for 8.",
    "The upper bound is 560 K, \"600 K\" and 636 K (16 × 39,756); 460 K is called 80 % of it and is 77 % of 600 K. \"9×\" is none of 7.6, 10 and 5.2.",
    "XFS is \"almost the same\" (separate drives) and \"quite poor\" (md).",
    "No-op is always best (recipe) against deadline best for sequential tests (DASH-IO).",
    "16,800 runs of 10 s are 1.94 days, not four.",
    "A megabyte is 10⁶ or 2²⁰ bytes (4.9 %); read as 10⁶. 11,264 is 11 × 1024.",
    "Half of 460 K at depth 32 without MSI, read as 230 K, comes out 14 % high; read as half of the depth-32 figure with MSI it takes a latency \
     of 125 µs for a pin-based interrupt. Neither is claimed.",
    "Strips of 64 and 128 KB differ by 10 to 20 % in random tests (Table 6). The model has no mechanism for it and gives nearly one figure for both.",
    "NCQ is said to give more than 10×; a drive of this model that takes one command at a time gives 3.4× less.",
    "42 GB/s of the RAM drive's reads (Table 8) exceed DDR InfiniBand; some of the copies must have been local.",
];

/// What is run for a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// The machine that the program brings.
    pub machine: &'static str,
    /// How its devices are used.
    pub kind: LayoutKind,
    /// The first so many of its block devices.
    pub width: u32,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// With XFS.
    pub has_xfs: bool,
    /// The scheduler, by its name of today.
    pub scheduler: &'static str,
    /// What runs, without its seed.
    pub workload: Workload,
}

/// Changes keys of the machine files that the program brings.
pub type Adjust<'a> = &'a (dyn Fn(&str, &mut Table) + Sync);

/// The machines as they are.
pub const AS_THEY_ARE: Adjust<'static> = &|_, _| {};

impl Setup {
    /// Runs it once.
    ///
    /// # Panics
    /// If a machine that the program brings, or an adjusted one, cannot be.
    #[must_use]
    pub fn run(&self, seed: u64, adjust: Adjust<'_>) -> RunRecord {
        let machine = Machine::brought(self.machine, adjust).expect("the program's own machines can be");
        let schedulers = !machine.host.schedulers.is_empty();
        let layout = Layout {
            kind: self.kind,
            devices: (0..self.width).collect(),
            chunk_bytes: self.chunk_bytes,
            filesystem: self.has_xfs.then_some(base::Filesystem::Xfs),
            scheduler: schedulers.then(|| self.scheduler.to_owned()),
            request_bytes: None,
        };
        let stop = Stop { min_interval_ns: 50_000_000, ..Stop::default() };
        let workload = Workload { randseed: seed.wrapping_mul(0x9e37_79b9), ..self.workload.clone() };
        let target = SimTarget::new(Arc::new(machine), layout, stop);
        target.expect("the machine can have it").run(&workload).expect("the workload fits")
    }

    /// Its bandwidth, MB/s, from one seed.
    #[must_use]
    pub fn megabytes_per_s(&self, seed: u64) -> f64 {
        self.run(seed, AS_THEY_ARE).bandwidth_bytes_per_s() / 1e6
    }
}

/// Does `work` for each of `items` on all CPUs; the results are in the order of the items.
pub fn on_all_cpus<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let done = std::sync::Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len().max(1));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(item) = items.get(n) else { break };
                    let result = work(item);
                    done.lock().expect("no thread panicked").insert(n, result);
                }
            });
        }
    });
    done.into_inner().expect("no thread panicked").into_values().collect()
}
