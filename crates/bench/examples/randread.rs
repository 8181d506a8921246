//! Measures random reads of a file from Rust: `cargo run --release --example randread -- FILE`.
//!
//! Everything that `flashwright bench` does is available like this: a workload in fio's words, a
//! target that opens the device as the workload needs it, and a record with its warnings.

use std::time::Duration;

use bench::RunOptions;
use bench::target::{BenchTarget, TargetOptions};
use measure::Workload;
use measure::record::LatencySummary;
use measure::workload::Rw;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("name a file to read")?;
    let workload = Workload {
        rw: Rw::RandRead,
        bs: 4096,
        iodepth: 128,
        direct: !arguments.any(|word| word == "--buffered"),
        runtime: Some(Duration::from_secs(2)),
        time_based: true,
        ..Workload::default()
    };
    let mut target = BenchTarget::new(&file, TargetOptions::default())?;
    let outcome = target.run_once(&workload, RunOptions::default())?;
    for record in &outcome.records {
        let latency = LatencySummary::from(&record.latency());
        let per_io = |ns: u64| ns as f64 / record.ios().max(1) as f64;
        println!("{}: {}", record.workload.summary(), units::iops(record.iops()));
        println!(
            "p50 {}, p99 {}",
            units::nanoseconds(latency.p50 as f64),
            units::nanoseconds(latency.p99 as f64)
        );
        let user: u64 = record.jobs.iter().map(|job| job.user_ns).sum();
        let system: u64 = record.jobs.iter().map(|job| job.system_ns).sum();
        println!("CPU a request: {:.0} ns user, {:.0} ns kernel", per_io(user), per_io(system));
        println!("engine: {} ({})", record.engine.used, record.engine.features.join(", "));
        for warning in &record.warnings {
            println!("{}: {}", warning.code, warning.message);
        }
    }
    Ok(())
}
