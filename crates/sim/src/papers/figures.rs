//! The figures of the DASH papers.

use base::LayoutKind;
use measure::Workload;
use measure::workload::Rw;

use super::{Adjust, SEEDS, Setup, TOLERANCE, on_all_cpus};

/// What a figure is to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A constant is set so that it comes out: it is one of those that [`PINS`](super::refit::PINS) names.
    Fit,
    /// No constant is set from it.
    Predicted,
    /// Predicted, and known to come out beyond the tolerance.
    Miss,
}

impl Standing {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Fit => "fit",
            Self::Predicted => "predicted",
            Self::Miss => "predicted, missed",
        }
    }
}

/// A figure of a paper.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Where it stands.
    pub source: &'static str,
    /// What it is of.
    pub what: &'static str,
    /// Its value: requests a second, or 10⁶ bytes a second where [`Figure::is_bandwidth`].
    pub paper: f64,
    /// What it is to the model.
    pub standing: Standing,
    /// How it is run.
    pub setup: Setup,
}

/// A figure and what the model gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Reproduced {
    /// The figure.
    pub figure: Figure,
    /// The model's mean over the seeds.
    pub model: f64,
    /// The least and the largest of the seeds.
    pub range: [f64; 2],
}

impl Reproduced {
    /// The model by the paper, less one.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.model / self.figure.paper - 1.0
    }

    /// Whether no constant is set from the figure.
    #[must_use]
    pub fn is_held_out(&self) -> bool {
        self.figure.standing != Standing::Fit
    }

    /// Whether it is within the tolerance.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.error().abs() <= TOLERANCE
    }
}

impl Figure {
    /// Whether it is a bandwidth, and not a number of requests.
    #[must_use]
    pub fn is_bandwidth(&self) -> bool {
        self.setup.workload.bs > 1 << 16
    }

    /// What a run of a seed gives.
    #[must_use]
    pub fn model(&self, seed: u64, adjust: Adjust<'_>) -> f64 {
        let record = self.setup.run(seed, adjust);
        if self.is_bandwidth() { record.bandwidth_bytes_per_s() / 1e6 } else { record.iops() }
    }
}

/// All figures as the model gives them, from seeds 1 to [`SEEDS`].
#[must_use]
pub fn reproduce() -> Vec<Reproduced> {
    reproduce_with(SEEDS, super::AS_THEY_ARE)
}

/// The same from fewer seeds or with other constants.
#[must_use]
pub fn reproduce_with(seeds: u64, adjust: Adjust<'_>) -> Vec<Reproduced> {
    let figures = figures();
    let runs: Vec<(usize, u64)> =
        (0..figures.len()).flat_map(|n| (1..=seeds).map(move |seed| (n, seed))).collect();
    let models = on_all_cpus(&runs, |(n, seed)| figures[*n].model(*seed, adjust));
    let of_each = models.chunks(seeds as usize);
    let reproduced = |(figure, models): (Figure, &[f64])| Reproduced {
        figure,
        model: models.iter().sum::<f64>() / models.len() as f64,
        range: [models.iter().copied().fold(f64::MAX, f64::min), models.iter().copied().fold(0.0, f64::max)],
    };
    figures.into_iter().zip(of_each).map(reproduced).collect()
}

/// One of the recipe's four tests, with the recipe's depths unless another is given.
fn test(rw: Rw, depth: Option<u32>) -> Workload {
    let (bs, own) = if rw.is_random() { (4 << 10, 128) } else { (4 << 20, 1) };
    Workload { rw, bs, iodepth: depth.unwrap_or(own), ..Workload::default() }
}

/// The table.
#[must_use]
pub fn figures() -> Vec<Figure> {
    use Standing::{Fit, Miss, Predicted};
    let md = LayoutKind::MdRaid0;
    let [write, read, random_write, random_read] = [Rw::Write, Rw::Read, Rw::RandWrite, Rw::RandRead];
    let node = "dash-io-node";
    let mut all = Vec::new();
    let mut add = |source, what, machine, kind, width, xfs, rw, depth, paper, standing| {
        let row = if machine == "dash-raid-128k" { 1 << 20 } else { 512 << 10 };
        let setup = Setup {
            machine,
            kind,
            width,
            chunk_bytes: if machine.starts_with("dash-raid") { row } else { 64 << 10 },
            has_xfs: xfs,
            scheduler: "none",
            workload: test(rw, depth),
        };
        all.push(Figure { source, what, paper, standing, setup });
    };
    let mut four = |source, machine, kind, width, xfs, depth, papers: [(f64, Standing); 4]| {
        let tests = [
            ("sequential write", write),
            ("sequential read", read),
            ("random write", random_write),
            ("random read", random_read),
        ];
        for ((what, rw), (paper, standing)) in tests.into_iter().zip(papers) {
            let depth = if rw.is_random() { None } else { depth };
            add(source, what, machine, kind, width, xfs, rw, depth, paper, standing);
        }
    };
    four(
        "recipe, Table 4, one drive",
        "dash-one-drive",
        LayoutKind::Single,
        1,
        false,
        None,
        [(203.0, Fit), (261.0, Predicted), (10_724.0, Fit), (39_756.0, Fit)],
    );
    four(
        "recipe, Table 6, 64 KB",
        "dash-raid",
        md,
        2,
        true,
        None,
        [(1179.0, Predicted), (2199.0, Predicted), (3749.0, Predicted), (87_563.0, Fit)],
    );
    four(
        "recipe, Table 6, 128 KB",
        "dash-raid-128k",
        md,
        2,
        true,
        None,
        [(1275.0, Predicted), (2056.0, Predicted), (3121.0, Predicted), (79_639.0, Predicted)],
    );
    four(
        "recipe, Table 7, md",
        node,
        md,
        16,
        true,
        None,
        [(1395.0, Fit), (2119.0, Fit), (19_784.0, Fit), (254_808.0, Fit)],
    );
    four(
        "recipe, Table 7, separate",
        node,
        LayoutKind::Separate,
        16,
        true,
        None,
        [(2958.0, Predicted), (3225.0, Fit), (143_649.0, Predicted), (562_365.0, Predicted)],
    );
    // The depth of Table 8's sequential tests is not told; one request at a time could not occupy both copies of the memory.
    four(
        "recipe, Table 8, RAM drive",
        "dash-ram-drive",
        LayoutKind::Single,
        1,
        false,
        Some(16),
        [(11_264.0, Fit), (42_139.0, Fit), (2_719_635.0, Predicted), (4_495_592.0, Fit)],
    );
    let read = |what| (what, random_read);
    let singles = [
        (
            "recipe, Fig. 3",
            read("out of the box, RAID controllers"),
            "dash-raid-untuned",
            2,
            true,
            None,
            45_500.0,
            Fit,
        ),
        (
            "recipe §III.C",
            read("6 drives, onboard HBA, md"),
            "dash-onboard",
            6,
            true,
            None,
            153_578.0,
            Predicted,
        ),
        ("recipe §III.C", read("8 drives, md, XFS"), node, 8, true, None, 255_000.0, Predicted),
        (
            "DASH-IO §3.4",
            read("8 drives, md, raw, depth 512"),
            node,
            8,
            false,
            Some(512),
            250_000.0,
            Predicted,
        ),
        ("DASH-IO §3.4", read("16 drives, md, raw, depth 512"), node, 16, false, Some(512), 350_000.0, Fit),
        ("DASH-IO §3.4", read("the same without MSI"), "dash-no-msi", 16, false, Some(512), 460_000.0, Fit),
        (
            "DASH-IO §3.4",
            read("without MSI, depth 32, as half of 460 K"),
            "dash-no-msi",
            16,
            false,
            Some(32),
            230_000.0,
            Miss,
        ),
    ];
    for (source, (what, rw), machine, width, xfs, depth, paper, standing) in singles {
        add(source, what, machine, md, width, xfs, rw, depth, paper, standing);
    }
    all
}
