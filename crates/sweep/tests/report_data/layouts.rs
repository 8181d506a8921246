//! A sweep of layouts as sixteen drives might have given it, from a model that is plain enough to say what the report
//! must find: a drive takes requests in parallel up to its limit, md has a ceiling on its requests, a file system costs
//! random writes most, an elaborate scheduler costs requests, and read-ahead does nothing to direct I/O. Drawn from a
//! seed, so always the same.

use std::collections::BTreeMap;

use measure::{TestType, Workload};
use sweep::analysis::SweepData;
use sweep::model::Point;

use super::{Random, host, latencies_of, meta, run};

/// The papers' Table 1, less of it for quick tests.
pub struct Table1 {
    pub layouts: &'static [&'static str],
    pub chunks: &'static [&'static str],
    pub widths: &'static [u32],
    pub filesystems: &'static [&'static str],
    pub read_ahead_kb: &'static [u32],
    pub schedulers: &'static [&'static str],
    pub passes: u32,
}

/// All of it: 240 configurations × 14 test types × 5 passes = 16,800 runs.
pub const FULL: Table1 = Table1 {
    layouts: &["md-raid0"],
    chunks: &["16k", "64k", "256k"],
    widths: &[1, 2, 4, 8, 16],
    filesystems: &["xfs", "raw"],
    read_ahead_kb: &[128, 0],
    schedulers: &["bfq", "mq-deadline", "kyber", "none"],
    passes: 5,
};

/// A corner of it, and the drives one by one.
pub const SMALL: Table1 = Table1 {
    layouts: &["md-raid0", "separate"],
    chunks: &["16k", "256k"],
    widths: &[1, 4, 16],
    filesystems: &["xfs", "raw"],
    read_ahead_kb: &[128],
    schedulers: &["bfq", "none"],
    passes: 5,
};

/// Requests per second of 4 KiB that md passes on, and a file system on it.
pub const MD_CEILING: f64 = 350_000.0;

/// MB/s of one point, without noise.
pub fn megabytes(test_type: TestType, layout: &BTreeMap<String, String>) -> f64 {
    let of = |name: &str| layout.get(name).map_or("", String::as_str);
    let width: f64 = of("width").parse().unwrap();
    let reads = test_type.is_read();
    let depth = f64::from(test_type.iodepth());
    let md = of("layout") == "md-raid0";
    let (xfs, bfq) = (of("filesystem") == "xfs", of("scheduler") == "bfq");
    let scheduler: f64 = match of("scheduler") {
        "bfq" => 0.72,
        "kyber" => 0.97,
        "mq-deadline" => 0.985,
        _ => 1.0,
    };
    if test_type.is_sequential() {
        let one = if reads { 260.0 } else { 200.0 };
        // A request of 4 MB spans the stripe; more depth uses the parallelism inside each drive.
        let parallel = depth / (depth + 0.45);
        let chunk = match of("chunk") {
            "16k" => 0.72,
            "64k" => 0.96,
            _ => 1.0,
        };
        let scheduler = if of("scheduler") == "mq-deadline" { 1.02 } else { scheduler.max(0.9) };
        return one
            * width
            * parallel
            * if md { chunk } else { 1.0 }
            * scheduler
            * if xfs { 0.99 } else { 1.0 };
    }
    let one = if reads { 36_000.0 } else { 11_000.0 };
    let each = depth / width;
    let mut iops = one * width * (each / (each + 2.5));
    iops *= scheduler;
    if md {
        // A ceiling that is approached, not hit.
        iops = 1.0 / (1.0 / iops.powi(4) + 1.0 / MD_CEILING.powi(4)).powf(0.25);
    }
    if bfq {
        iops = iops.min(150_000.0);
    }
    if xfs {
        iops *= if reads { 0.86 } else { 0.42 };
    }
    iops * 4096.0 / 1e6
}

/// The sweep.
pub fn layouts(table: &Table1) -> SweepData {
    let mut random = Random(240);
    let points = points(table);
    let mut runs = Vec::with_capacity(points.len() * table.passes as usize);
    let mut position = 0;
    for pass in 1..=table.passes {
        for point in &points {
            let first =
                if pass > 1 { 1.0 } else { 0.96 - 0.12 * f64::from(u8::from(point.workload.rw.modifies())) };
            let exact = megabytes(point.test_type.unwrap(), &point.layout);
            runs.push(run(point, pass, position, exact * first * (1.0 + 0.008 * random.normal())));
            position += 1;
        }
    }
    let mut meta = meta(table.passes, runs.len());
    meta.name = "dash-io".to_owned();
    meta.space = String::new();
    let latencies = points
        .iter()
        .take(14)
        .map(|p| (p.id, latencies_of(p, megabytes(p.test_type.unwrap(), &p.layout), &mut random)));
    SweepData {
        meta,
        latencies: latencies.collect(),
        points,
        runs,
        host: Some(host()),
        ..SweepData::default()
    }
}

fn points(table: &Table1) -> Vec<Point> {
    let mut points = Vec::new();
    let drives: Vec<String> = (0..16).map(|n| format!("/dev/nvme{n}n1")).collect();
    for layout in table.layouts {
        for chunk in table.chunks {
            // The drives one by one have no chunk.
            let chunk = (*layout == "md-raid0").then_some(*chunk);
            if chunk.is_none() && points.iter().any(|p: &Point| p.settings["layout"] == *layout) {
                continue;
            }
            for width in table.widths {
                for filesystem in table.filesystems {
                    for ra in table.read_ahead_kb {
                        for scheduler in table.schedulers {
                            let mut settings = BTreeMap::from([
                                ("layout".to_owned(), (*layout).to_owned()),
                                ("width".to_owned(), width.to_string()),
                                ("filesystem".to_owned(), (*filesystem).to_owned()),
                                ("read_ahead_kb".to_owned(), ra.to_string()),
                                ("scheduler".to_owned(), (*scheduler).to_owned()),
                            ]);
                            settings.extend(chunk.map(|c| ("chunk".to_owned(), c.to_owned())));
                            let mut layout = settings.clone();
                            layout.insert("drives".to_owned(), drives.join(","));
                            push(&mut points, &settings, &layout);
                        }
                    }
                }
            }
        }
    }
    points
}

/// The fourteen test types on one layout.
fn push(points: &mut Vec<Point>, settings: &BTreeMap<String, String>, layout: &BTreeMap<String, String>) {
    for test_type in TestType::all() {
        let mut settings = settings.clone();
        settings.insert("test_type".to_owned(), test_type.number().to_string());
        points.push(Point {
            id: points.len() as u32,
            settings,
            test_type: Some(test_type),
            target: "layout".to_owned(),
            layout: layout.clone(),
            workload: test_type.workload(&Workload::default()),
        });
    }
}
