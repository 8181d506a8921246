//! The drive of a machine file, of model `ftl`, under a load without a host, for comparisons with other simulators:
//!
//! ```text
//! cargo run --release -p flashwright-sim --example drive_alone -- machines/mqsim-default.toml depth=32 reads=1 bs=4096
//! ```
//!
//! `reads`, `bs`, `align`, `share`, `depth`, `ramp`, `commands`, `seed` and `sequential=true` are the load; any other key is laid
//! over the drive's. Prints one line of JSON.

use std::error::Error;

use sim::alone::{Load, run};
use sim::flash::FlashSpec;
use toml::{Table, Value};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("name a machine file")?;
    let mut machine: Table = toml::from_str(&std::fs::read_to_string(file)?)?;
    let Some(Value::Table(mut drive)) = machine.remove("drive") else {
        return Err("the machine has no [drive]".into());
    };
    drive.remove("model");
    let mut load = Load {
        reads: 1.0,
        random: true,
        block_bytes: 4096,
        align_bytes: 4096,
        share: 1.0,
        depth: 1,
        ramp: 10_000,
        commands: 100_000,
    };
    let mut seed = 1;
    for argument in arguments {
        let (key, value) = argument.split_once('=').ok_or("say KEY=VALUE")?;
        match key {
            "reads" => load.reads = value.parse()?,
            "bs" => load.block_bytes = value.parse()?,
            "align" => load.align_bytes = value.parse()?,
            "share" => load.share = value.parse()?,
            "depth" => load.depth = value.parse()?,
            "ramp" => load.ramp = value.parse()?,
            "commands" => load.commands = value.parse()?,
            "seed" => seed = value.parse()?,
            "sequential" => load.random = value != "true",
            _ => {
                let value = toml::from_str::<Table>(&format!("value = {value}"))
                    .map_or_else(|_| value.into(), |table| table["value"].clone());
                drive.insert(key.to_owned(), value);
            }
        }
    }
    let spec: FlashSpec = drive.try_into()?;
    spec.check("drive")?;
    let mut drive = spec.build(seed);
    let begin = cpu_seconds()?;
    let seen = run(&mut drive, &load, seed);
    let seconds = cpu_seconds()? - begin;
    println!(
        "{{\"iops\": {}, \"mean_us\": {}, \"write_amplification\": {}, \"cpu_seconds\": {seconds}, \"commands_per_cpu_second\": {}}}",
        seen.iops,
        seen.mean_ns / 1e3,
        seen.write_amplification,
        (load.ramp + load.commands) as f64 / seconds
    );
    Ok(())
}

/// CPU time of this thread so far.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: f64 = schedstat.split(' ').next().ok_or("schedstat is empty")?.parse()?;
    Ok(nanoseconds / 1e9)
}
