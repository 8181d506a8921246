//! Which options of a workload the model has.
//!
//! A figure that does not move with an option would be taken for one that does not depend on it. So each option is
//! obeyed, or harmless because the model has nothing that it could act on, or refused by its name. All fields of a [`Workload`] are
//! listed here: one that is added does not compile until it is decided what becomes of it.

use measure::Workload;
use measure::options;
use measure::workload::{InvalidWorkload, IoEngine, Pages, WriteSync, ZoneMode};

const NO_DATA: &str = "simulated drives hold no data";
const NO_FLUSHES: &str = "the model has no flushes";
const EVERY_BLOCK: &str = "the model visits every block";
const ONCE: &str = "the model moves a region once";
const ANY_CPU: &str = "the model deals its jobs out to all CPUs of the machine";
const LEAVE: &str = "leave it out";

/// Refuses a workload with an option that the model does not have.
///
/// # Errors
/// [`InvalidWorkload`] naming the first such option with its value.
pub fn check_modelled(workload: &Workload) -> Result<(), InvalidWorkload> {
    let Workload {
        // Obeyed: by the streams (`load`), the regions (`measure::dealing`), the meter, or the target.
        bs: _,
        bssplit: _,
        iodepth: _,
        numjobs: _,
        rwmixread: _,
        rate_iops: _,
        rate: _,
        rate_process: _,
        runtime: _,
        time_based: _,
        ramp_time: _,
        size: _,
        offset: _,
        offset_increment: _,
        random_distribution: _,
        norandommap: _,
        randseed: _,
        // A label.
        name: _,
        // Every simulated request is answered.
        request_timeout: _,
        // Virtual time is read for each request, at no cost.
        latency_clock: _,
        // They refine an option that is refused below, and are nothing without it.
        zonerange: _,
        zoneskip: _,
        zonecapacity: _,
        read_beyond_wp: _,
        max_open_zones: _,
        job_max_open_zones: _,
        ignore_zone_limits: _,
        zone_reset_threshold: _,
        zone_reset_frequency: _,
        verify_interval: _,
        verify_pattern: _,
        verify_backlog: _,
        dedupe_mode: _,
        dedupe_working_set_percentage: _,
        dedupe_global: _,
        thinktime_spin: _,
        thinktime_blocks: _,
        cpus_allowed_policy: _,
        // `Workload::validate` refuses them.
        later_options: _,
        rw,
        write_bssplit,
        blockalign,
        iodepth_batch,
        iodepth_batch_complete_min,
        rw_step,
        percentage_random,
        io_size,
        loops,
        number_ios,
        thinktime,
        zonemode,
        zonesize,
        verify,
        buffer_pattern,
        buffer_compress_percentage,
        dedupe_percentage,
        direct,
        ioengine,
        hipri,
        sqthread_poll,
        fdatasync,
        fsync,
        sync,
        end_fsync,
        cpus_allowed,
        numa_cpu_nodes,
        pages,
    } = workload;
    let refused = [
        (rw.trims_and_writes(), "rw", "a stream has one direction, or reads and writes", "write rw=write"),
        (!write_bssplit.is_empty(), "write_bssplit", "a stream has one list of sizes", LEAVE),
        (blockalign.is_some(), "blockalign", EVERY_BLOCK, LEAVE),
        (*iodepth_batch != 0, "iodepth_batch", "the model makes a request as soon as it has a place", LEAVE),
        (
            *iodepth_batch_complete_min > 1,
            "iodepth_batch_complete_min",
            "the model takes each completion as it comes",
            LEAVE,
        ),
        (*rw_step != 0, "rw_step", EVERY_BLOCK, LEAVE),
        (*percentage_random < 100, "percentage_random", "the model draws every offset", LEAVE),
        (io_size.is_some(), "io_size", ONCE, "give --size"),
        (*loops > 1, "loops", ONCE, "give --time_based"),
        (number_ios.is_some(), "number_ios", "the model counts bytes", "give --size"),
        (!thinktime.is_zero(), "thinktime", "the model keeps its queues full", "give --rate_iops"),
        (*zonemode == ZoneMode::Zbd, "zonemode", "simulated drives have no zones", LEAVE),
        (zonesize.is_some(), "zonesize", EVERY_BLOCK, LEAVE),
        (verify.is_some(), "verify", NO_DATA, LEAVE),
        (buffer_pattern.is_some(), "buffer_pattern", NO_DATA, LEAVE),
        (*buffer_compress_percentage > 0, "buffer_compress_percentage", NO_DATA, LEAVE),
        (*dedupe_percentage > 0, "dedupe_percentage", NO_DATA, LEAVE),
        (!*direct, "direct", "the model has no page cache", "leave it out: --direct=1"),
        (
            *ioengine != IoEngine::Auto,
            "ioengine",
            "the model knows no difference between engines",
            "leave it out; host.submission and host.path_us in the machine's file say how requests are made",
        ),
        (*hipri, "hipri", "the model has no polled queues", LEAVE),
        (*sqthread_poll, "sqthread_poll", "the model has no thread that polls", LEAVE),
        (*fdatasync > 0, "fdatasync", NO_FLUSHES, LEAVE),
        (*fsync > 0, "fsync", NO_FLUSHES, LEAVE),
        (*sync != WriteSync::None, "sync", NO_FLUSHES, LEAVE),
        (*end_fsync, "end_fsync", NO_FLUSHES, LEAVE),
        (cpus_allowed.is_some(), "cpus_allowed", ANY_CPU, LEAVE),
        (numa_cpu_nodes.is_some(), "numa_cpu_nodes", ANY_CPU, LEAVE),
        (*pages != Pages::Auto, "pages", "the model has no buffers", LEAVE),
    ];
    match refused.into_iter().find(|refused| refused.0) {
        Some((_, option, reason, hint)) => {
            let value = options::find(option).and_then(|option| option.text(workload)).unwrap_or_default();
            Err(InvalidWorkload { option, value, reason, hint })
        }
        None => Ok(()),
    }
}
