//! How many requests are simulated a second of CPU time: one station, one flash drive, and stripes of up to 512 of them.
//!
//! `cargo run --release -p flashwright-sim --example speed`

use std::sync::Arc;
use std::time::Instant;

use measure::{Target, Workload};
use sim::{Layout, Machine, SimTarget, Stop};

const HOST: &str = "name = \"speed\"\n[host]\ncores = 64\nsubmission = \"threads\"\npath_us = 1\n[host.interrupts]\n\
                    delivery = \"any-cpu\"\ncompletion_us = 0.5\n";

const STATION: &str = "model = \"network\"\nsize = \"64g\"\nqueue_depth = 256\nstations = 1\nservice_us = 1\n\
                       read_bytes_per_s = 1e12\nwrite_bytes_per_s = 1e12\n";

fn main() {
    let brought = sim::machine::brought::text("dash-io-node").expect("is brought");
    let drive = brought.split("[drive]").nth(1).expect("has a drive").split_once('\n').expect("has lines").1;
    println!("{:<12} {:>7} {:>12} {:>14}", "drive", "drives", "requests", "requests/s");
    for (name, drive, drives) in
        [("station", STATION, 1)].into_iter().chain([1_u64, 8, 64, 512].map(|drives| ("ssd", drive, drives)))
    {
        let text = format!("drives = {drives}\n{HOST}[drive]\n{drive}");
        let machine = Arc::new(Machine::parse("speed", &text).expect("can be"));
        let layout = Layout::all(&machine);
        // As many requests are in flight for any number of drives, so that only that number differs.
        let workload = Workload { iodepth: 512, norandommap: true, ..Workload::default() };
        let stop =
            Stop { precision: 0.0, min_interval_ns: 0, max_interval_ns: 60_000_000_000 / drives.min(16) };
        let mut target = SimTarget::new(machine, layout, stop).expect("can be");
        let began = Instant::now();
        let requests = target.run(&workload).expect("runs").total.ios;
        let rate = requests as f64 / began.elapsed().as_secs_f64();
        println!("{name:<12} {drives:>7} {requests:>12} {rate:>14.0}");
    }
}
