//! What the papers show in figures without numbers, and the Cray's tables: claims that the model must show as well.

use base::LayoutKind;
use measure::workload::Rw;
use measure::{TestType, Workload};
use toml::{Table, Value};

use super::{Setup, on_all_cpus};

/// A claim, and what the model shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    /// Where the paper claims it.
    pub source: &'static str,
    /// The claim.
    pub claim: &'static str,
    /// The model's figures, each with its name; MB/s unless the claim says otherwise.
    pub model: Vec<(String, f64)>,
    /// Whether they show it.
    pub holds: bool,
    /// What the model needs for it, or does not have.
    pub note: &'static str,
}

const WIDTHS: [u32; 5] = [1, 2, 4, 8, 16];

/// A cell of DASH-IO's space.
#[derive(Debug, Clone, Copy)]
struct Cell {
    machine: &'static str,
    chunk_kib: u64,
    has_xfs: bool,
    scheduler: &'static str,
    /// How long its scheduler waits for a process, where that is not what the file says.
    idle_us: Option<f64>,
    test: u8,
}

/// The file that says what schedulers do.
const NODE: &str = "dash-io-node";

const CELL: Cell =
    Cell { machine: NODE, chunk_kib: 64, has_xfs: false, scheduler: "none", idle_us: None, test: 1 };

impl Cell {
    /// MB/s at one width.
    fn at(&self, width: u32) -> f64 {
        let test = TestType::try_from(self.test).expect("1 to 14");
        let setup = Setup {
            machine: self.machine,
            kind: LayoutKind::MdRaid0,
            width,
            chunk_bytes: self.chunk_kib << 10,
            has_xfs: self.has_xfs,
            scheduler: self.scheduler,
            workload: test.workload(&Workload::default()),
        };
        let adjust = |file: &str, table: &mut Table| {
            if let Some(idle_us) = self.idle_us.filter(|_| file == NODE) {
                let all = table.get_mut("host").and_then(|host| host.get_mut("schedulers"));
                let own = all.and_then(|all| all.get_mut(self.scheduler)?.as_table_mut());
                own.expect("the file has it").insert("idle_us".to_owned(), Value::Float(idle_us));
            }
        };
        setup.run(1, &adjust).bandwidth_bytes_per_s() / 1e6
    }

    /// MB/s, the mean over the widths, as the paper's figures have it.
    fn mean(&self) -> f64 {
        WIDTHS.iter().map(|width| self.at(*width)).sum::<f64>() / WIDTHS.len() as f64
    }
}

/// The means of several cells, with their names.
fn means(cells: &[(&str, Cell)]) -> Vec<(String, f64)> {
    let means = on_all_cpus(cells, |(_, cell)| cell.mean());
    cells.iter().map(|(name, _)| (*name).to_owned()).zip(means).collect()
}

fn values(model: &[(String, f64)]) -> Vec<f64> {
    model.iter().map(|(_, value)| *value).collect()
}

/// Whether `a` is within a part of `b`.
fn near(a: f64, b: f64, part: f64) -> bool {
    (a / b - 1.0).abs() <= part
}

/// All claims.
#[must_use]
pub fn shapes() -> Vec<Shape> {
    vec![
        first_pass(),
        chunk_sequential(),
        chunk_random(),
        chunk_random_misaligned(),
        xfs(),
        schedulers(),
        cfq(),
        anticipatory(),
        depth_sequential(3),
        depth_sequential(4),
        depth_random(),
        scaling(NODE),
        scaling("dash-no-msi"),
        cray_flash(),
        cray_disk(),
    ]
}

/// The X25-E with a translation layer instead of a factor: the constants of the node's drive, in the packages that it has, and a
/// sixteenth of its blocks. A command takes the controller as long as it takes the node's drive with the transfer of a page. The spare is what greedy collection needs for the node's `random_write_amplification`.
const ONE_DRIVE_WITH_FTL: &str = r#"
model = "ftl"
channels = 10
chips_per_channel = 2
dies_per_chip = 1
planes_per_die = 1
blocks_per_plane = 860
pages_per_block = 64
page_bytes = "4k"
over_provisioning = 0.12
read_us = 50
program_us = 200
erase_us = 2000
channel_bytes_per_s = 1.64e8
write_buffer_bytes = "64k"
link_bytes_per_s = 2.8e8
controller_ns = 25100
queue_depth = 32
"#;

fn first_pass() -> Shape {
    let cell = |test: u8, state: &'static str| (test, state);
    let cells = [
        ("random write, laid in order", cell(10, "full")),
        ("after random writes", cell(10, "steady")),
        ("4 MB write, laid in order", cell(2, "full")),
        ("after random writes", cell(2, "steady")),
        ("random read, laid in order", cell(9, "full")),
        ("after random writes", cell(9, "steady")),
        ("4 MB read, laid in order", cell(1, "full")),
        ("after random writes", cell(1, "steady")),
    ];
    let rates = on_all_cpus(&cells, |(_, (test, state))| {
        let setup = Setup {
            machine: "dash-one-drive",
            kind: LayoutKind::Single,
            width: 1,
            chunk_bytes: 0,
            has_xfs: false,
            scheduler: "none",
            workload: TestType::try_from(*test).expect("1 to 14").workload(&Workload::default()),
        };
        let with_ftl = |file: &str, table: &mut Table| {
            if file == setup.machine {
                let mut drive: Table = ONE_DRIVE_WITH_FTL.parse().expect("is TOML");
                drive.insert("state".to_owned(), Value::String((*state).to_owned()));
                table.insert("drive".to_owned(), Value::Table(drive));
            }
        };
        setup.run(1, &with_ftl).bandwidth_bytes_per_s() / 1e6
    });
    let model: Vec<(String, f64)> = cells.iter().map(|(name, _)| (*name).to_owned()).zip(rates).collect();
    let v = values(&model);
    Shape {
        source: "DASH-IO, Figs. 4, 5",
        claim: "the first pass is off the trend, in writes more than in reads, which are almost constant",
        holds: v[0] > 1.5 * v[1] && v[2] > 1.1 * v[3] && near(v[4], v[5], 0.03) && near(v[6], v[7], 0.03),
        model,
        note: "takes a translation layer, whose state a run leaves to the next; shown of one drive with the node's constants and spare. The node's drives have a \
               factor instead, and each run begins alike: for how many runs a state lasts follows from the order of the tests and the part of the drives that \
               they used, which the paper does not tell",
    }
}

fn chunk_sequential() -> Shape {
    let cell = |chunk_kib| Cell { chunk_kib, test: 3, ..CELL };
    let model = means(&[("16 KB", cell(16)), ("64 KB", cell(64)), ("256 KB", cell(256))]);
    let v = values(&model);
    Shape {
        source: "DASH-IO, Fig. 8",
        claim: "16 KB is the worst chunk for 4 MB reads; 64 and 256 KB are nearly the same, 256 a little better",
        holds: v[0] < 0.9 * v[1] && v[1] <= v[2] && near(v[1], v[2], 0.15),
        model,
        note: "takes a cost of each bio, and plugged queues",
    }
}

fn chunk_random() -> Shape {
    let cell = |chunk_kib| Cell { chunk_kib, test: 11, ..CELL };
    let model = means(&[("16 KB", cell(16)), ("64 KB", cell(64)), ("256 KB", cell(256))]);
    let v = values(&model);
    Shape {
        source: "DASH-IO, Fig. 8",
        claim: "with aligned drives the chunk does nothing to 4 KB random reads (the paper shows a difference)",
        holds: near(v[0], v[2], 0.03) && near(v[1], v[2], 0.03),
        model,
        note: "the paper's difference takes requests that lie across chunks: the next row",
    }
}

fn chunk_random_misaligned() -> Shape {
    let cell = |chunk_kib| Cell { machine: "dash-misaligned", chunk_kib, test: 11, ..CELL };
    let model = means(&[("16 KB", cell(16)), ("64 KB", cell(64)), ("256 KB", cell(256))]);
    let v = values(&model);
    Shape {
        source: "DASH-IO, Fig. 8",
        claim: "16 KB is the worst chunk for 4 KB random reads too",
        holds: v[0] < 0.95 * v[1] && v[1] < v[2],
        model,
        note: "takes partitions that begin at sector 63, so that 4 KB of each chunk's size lie across its border",
    }
}

fn xfs() -> Shape {
    let cell = |test, has_xfs| Cell { has_xfs, test, ..CELL };
    let model = means(&[
        ("random write, raw", cell(12, false)),
        ("XFS", cell(12, true)),
        ("random read, raw", cell(11, false)),
        ("XFS", cell(11, true)),
        ("4 MB read, raw", cell(5, false)),
        ("XFS", cell(5, true)),
        ("4 MB write, raw", cell(6, false)),
        ("XFS", cell(6, true)),
    ]);
    let v = values(&model);
    Shape {
        source: "DASH-IO, Fig. 11",
        claim: "XFS: sequential the same, random reads lower, random writes dramatically lower",
        holds: v[1] < 0.5 * v[0]
            && v[3] <= v[2]
            && v[3] > 0.75 * v[2]
            && near(v[5], v[4], 0.06)
            && near(v[7], v[6], 0.06),
        model,
        note: "takes a synchronous write to the log after each write to a file (a hypothesis)",
    }
}

fn schedulers() -> Shape {
    let cell = |scheduler, test| Cell { scheduler, test, ..CELL };
    let model = means(&[
        ("4 MB read, no-op", cell("noop", 5)),
        ("deadline", cell("deadline", 5)),
        ("random read, no-op", cell("noop", 11)),
        ("deadline", cell("deadline", 11)),
    ]);
    let v = values(&model);
    Shape {
        source: "DASH-IO, Fig. 12",
        claim: "no-op and deadline work best, and differ little",
        holds: near(v[0], v[1], 0.03) && near(v[2], v[3], 0.03),
        model,
        note: "which of the two is ahead is not reproduced",
    }
}

fn cfq() -> Shape {
    let cell = |scheduler| Cell { scheduler, test: 11, ..CELL };
    let model = means(&[
        ("random read, no-op", cell("noop")),
        ("CFQ that waits for nobody", cell("cfq")),
        ("CFQ that waits 300 µs", Cell { idle_us: Some(300.0), ..cell("cfq") }),
    ]);
    let v = values(&model);
    Shape {
        source: "DASH-IO, Fig. 12",
        claim: "CFQ varies a lot",
        holds: near(v[1], v[0], 0.05) && v[2] < 0.6 * v[0],
        model,
        note: "as it waits for a process's next request or does not it is anticipatory or no-op; the kernel decides by what it has seen, which is not \
               modelled, so that the model varies with the setting and not from run to run",
    }
}

fn anticipatory() -> Shape {
    let cell = |scheduler, test| Cell { scheduler, test, ..CELL };
    let model = means(&[
        ("random read, no-op", cell("noop", 11)),
        ("anticipatory", cell("anticipatory", 11)),
        ("without waiting", cell("bfq", 11)),
        ("4 MB read, no-op", cell("noop", 5)),
        ("anticipatory", cell("anticipatory", 5)),
        ("without waiting", cell("bfq", 5)),
    ]);
    let v = values(&model);
    Shape {
        source: "DASH-IO, Fig. 12",
        claim: "anticipatory is systematically bad",
        holds: v[1] < 0.6 * v[0] && v[4] < 0.95 * v[3] && v[2] < 0.6 * v[0] && near(v[5], v[3], 0.15),
        model,
        note: "one request in a drive at a time spoils random reads; that 4 MB reads suffer as well takes waiting, here 300 µs, which nothing fixes",
    }
}

fn depth_sequential(first: u8) -> Shape {
    let cell = |test| Cell { test, ..CELL };
    let model = means(&[("depth 1", cell(first)), ("4", cell(first + 2)), ("16", cell(first + 4))]);
    let v = values(&model);
    Shape {
        source: "DASH-IO, Fig. 13",
        claim: if first == 3 { "4 MB reads rise with the depth" } else { "4 MB writes rise with the depth" },
        holds: v[0] < v[1] && v[1] <= v[2] * 1.01,
        model,
        note: "reads are flat from depth 4 on in the model",
    }
}

fn depth_random() -> Shape {
    let cell = |test| Cell { test, ..CELL };
    let model = means(&[("depth 32", cell(9)), ("128", cell(11)), ("512", cell(13))]);
    let v = values(&model);
    Shape {
        source: "DASH-IO, Fig. 14",
        claim: "4 KB random reads rise to depth 128, and little beyond",
        holds: v[0] < 0.95 * v[1] && v[1] <= v[2] && near(v[1], v[2], 0.08),
        model,
        note: "NCQ, and requests that fall on the drives at random",
    }
}

fn scaling(machine: &'static str) -> Shape {
    let cell = Cell { machine, test: 13, ..CELL };
    let iops = on_all_cpus(&WIDTHS, |width| cell.at(*width) / 0.004_096);
    let model: Vec<(String, f64)> = WIDTHS.iter().map(|width| format!("{width} drives")).zip(iops).collect();
    let v = values(&model);
    let is_linear = near(v[3], 8.0 * v[0], 0.12);
    let last = v[4] / v[3];
    let msi = machine == NODE;
    Shape {
        source: if msi { "DASH-IO, Fig. 9" } else { "DASH-IO, Fig. 10" },
        claim: if msi {
            "random reads a second scale to 8 drives and hardly beyond"
        } else {
            "without MSI they scale on to 16 drives"
        },
        holds: is_linear && if msi { last < 1.45 } else { last > 1.65 },
        model,
        note: "all interrupts on one CPU, which each member of the array makes dearer",
    }
}

/// Table I of the Cray paper: tasks, MB/s to flash, MB/s to disk.
pub const CRAY_TABLE_1: [(u32, f64, f64); 8] = [
    (2, 1132.44, 406.46),
    (4, 1786.57, 316.02),
    (8, 2066.55, 326.52),
    (24, 3491.05, 397.47),
    (48, 3520.62, 401.62),
    (60, 3649.77, 406.10),
    (144, 3781.97, 377.39),
    (288, 3534.52, 368.19),
];

/// Rows of Table I's disk that one rate misses, with the disk of Table II, where the same tasks wrote to the same disk: tasks, MB/s.
const CRAY_TABLE_2_DISK: [(u32, f64); 2] = [(4, 480.0), (8, 455.0)];

/// MB/s of so many tasks.
fn cray(machine: &'static str, tasks: u32) -> f64 {
    let workload = Workload { rw: Rw::Write, bs: 4 << 20, numjobs: tasks, ..Workload::default() };
    let setup = Setup {
        machine,
        kind: LayoutKind::Single,
        width: 1,
        chunk_bytes: 0,
        has_xfs: false,
        scheduler: "none",
        workload,
    };
    setup.megabytes_per_s(1)
}

fn cray_flash() -> Shape {
    let rates = on_all_cpus(&CRAY_TABLE_1, |(tasks, ..)| cray("cray-flash", *tasks));
    let model: Vec<(String, f64)> = CRAY_TABLE_1
        .iter()
        .zip(rates)
        .map(|((tasks, paper, _), rate)| (format!("{tasks} tasks, paper {paper:.0}"), rate))
        .collect();
    let holds = CRAY_TABLE_1.iter().zip(&model).all(|((tasks, paper, _), (_, rate))| {
        // The row of 8 tasks is a miss: no smooth curve passes through it.
        if *tasks == 8 { *rate > 1.10 * paper && *rate < 1.25 * paper } else { near(*rate, *paper, 0.10) }
    });
    Shape {
        source: "Cray, Table I",
        claim: "flash: seven of eight rows within 10 %, 8 tasks missed (16 % high)",
        model,
        holds,
        note: "a closed network of six equal stations, 3900 · N / (N + 5); both constants are fitted",
    }
}

fn cray_disk() -> Shape {
    let table_2 = |tasks: u32| {
        let row = CRAY_TABLE_2_DISK.iter().find(|(own, _)| *own == tasks);
        row.map(|(_, rate)| *rate)
    };
    let rates = on_all_cpus(&CRAY_TABLE_1, |(tasks, ..)| cray("cray-disk", *tasks));
    let model: Vec<(String, f64)> = CRAY_TABLE_1
        .iter()
        .zip(rates)
        .map(|((tasks, _, paper), rate)| match table_2(*tasks) {
            Some(other) => (format!("{tasks} tasks, paper {paper:.0} and {other:.0}"), rate),
            None => (format!("{tasks} tasks, paper {paper:.0}"), rate),
        })
        .collect();
    let holds = CRAY_TABLE_1.iter().zip(&model).all(|((tasks, _, paper), (_, rate))| match table_2(*tasks) {
        Some(other) => *rate > 1.10 * paper && *rate < 0.90 * other,
        None => near(*rate, *paper, 0.10),
    });
    Shape {
        source: "Cray, Table I",
        claim: "disk: six of eight rows within 10 %; 4 and 8 tasks missed by Table I (19 and 16 % high) and by Table II (21 and 17 % low)",
        model,
        holds,
        note: "one server, one rate for all rows; what the paper measured of the same tasks differs by 52 and 39 % between its two tables",
    }
}
