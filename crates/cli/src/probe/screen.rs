//! A survey for people. Facts first, in the order machine, drives, paths; then what follows from them.

use storage::survey::{EngineAvailability, Host, Limits, Survey, SurveyedTarget};
use storage::sysfs::{BlockDevice, QueueFacts};

use super::far;
use crate::paint;

/// Columns that a name takes.
const NAME: usize = 9;

/// Everything on a screen.
pub fn screen(survey: &Survey) -> String {
    let mut text = machine(&survey.host);
    text += &engines(&survey.engines);
    text += &limits(&survey.limits);
    let drives = drives(survey);
    if !drives.is_empty() {
        text.push('\n');
        text += &drives;
    }
    text += &queues(survey);
    for target in &survey.targets {
        text.push('\n');
        text += &path(target);
    }
    let exports = survey.exports.iter().map(far::export);
    for told in exports.chain(survey.volumes.iter().map(far::volume)) {
        text.push('\n');
        text += &told;
    }
    text.push('\n');
    text += &notes(survey);
    text
}

pub(super) fn row(name: &str, value: &str) -> String {
    format!("{}  {value}\n", paint::dim(&format!("{name:<NAME$}")))
}

fn machine(host: &Host) -> String {
    let mut kernel = format!("Linux {} {}", host.kernel, host.architecture);
    kernel += &host.distribution.as_ref().map(|d| format!(", {d}")).unwrap_or_default();
    kernel += &match (&host.virtualization, &host.container) {
        (Some(vm), Some(container)) => format!(", {container} container in a {vm} guest"),
        (Some(vm), None) => format!(", {vm} guest"),
        (None, Some(container)) => format!(", {container} container"),
        (None, None) => ", bare metal".to_owned(),
    };
    let cpu = format!(
        "{} × {}{}",
        host.cpus,
        host.cpu_model.as_deref().unwrap_or("unknown CPU"),
        match host.governors.as_slice() {
            [] => String::new(),
            governors => format!(", governor {}", governors.join(" and ")),
        }
    );
    let memory = format!(
        "{}{}{}",
        units::bytes(host.memory_bytes),
        host.memory_available_bytes.map(|n| format!(", {} available", units::bytes(n))).unwrap_or_default(),
        host.huge_pages.as_ref().map(|h| format!(", huge pages {h}")).unwrap_or_default()
    );
    let mut text = row("machine", &kernel) + &row("CPUs", &cpu) + &row("memory", &memory);
    if host.numa_nodes.len() > 1 {
        for node in &host.numa_nodes {
            let value =
                format!("node {}: CPUs {}, {}", node.node, node.cpus, units::bytes(node.memory_bytes));
            text += &row("NUMA", &value);
        }
    }
    text
}

fn engines(engines: &[EngineAvailability]) -> String {
    let one = |engine: &EngineAvailability| {
        if engine.available {
            return paint::good(&engine.name);
        }
        let why = engine.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        paint::warn(&format!("no {}{why}", engine.name))
    };
    row("engines", &engines.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn limits(limits: &Limits) -> String {
    let bytes = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), units::bytes);
    let memlock = if limits.memlock_is_lifted { "unlimited".to_owned() } else { bytes(limits.memlock_bytes) };
    let files = limits.open_files.map_or("unlimited".to_owned(), |n| n.to_string());
    let mut text = format!("locked memory {memlock}, open files {files}");
    if let (Some(used), Some(all)) = (limits.aio_nr, limits.aio_max_nr) {
        text += &format!(", libaio requests {used} of {all}");
    }
    row("limits", &text)
}

/// A table whose columns are as wide as they need to be; empty ones are left out.
fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let filled: Vec<usize> =
        (0..titles.len()).filter(|c| rows.iter().any(|row| !row[*c].is_empty())).collect();
    let width = |c: usize| {
        rows.iter().map(|row| row[c].chars().count()).max().unwrap_or(0).max(titles[c].chars().count())
    };
    let line = |cells: &dyn Fn(usize) -> String| {
        let cells: Vec<String> = filled.iter().map(|c| format!("{:<1$}", cells(*c), width(*c))).collect();
        cells.join("  ").trim_end().to_owned()
    };
    let mut text = format!("{}\n", paint::dim(&line(&|c| titles[c].to_owned())));
    for row in rows {
        text += &format!("{}\n", line(&|c| row[c].clone()));
    }
    text
}

fn drives(survey: &Survey) -> String {
    let devices = survey.devices_concerned();
    if devices.is_empty() && !survey.exports.is_empty() {
        // What they stand on is the other host's to tell.
        return String::new();
    }
    if devices.is_empty() {
        return format!("{}\n", paint::dim("no block devices"));
    }
    let rows: Vec<Vec<String>> = devices
        .iter()
        .map(|d| {
            let indent = if d.disk.is_some() { "  " } else { "" };
            vec![
                format!("{indent}{}", d.name),
                units::bytes(d.size_bytes),
                if d.disk.is_some() { String::new() } else { d.transport.clone() },
                model(d),
                medium(d),
                d.numa_node.map(|n| n.to_string()).unwrap_or_default(),
                d.pcie.as_ref().map(link).unwrap_or_default(),
                d.temperature_celsius.map(|t| format!("{t:.0} °C")).unwrap_or_default(),
                made_of(d),
            ]
        })
        .collect();
    table(&["device", "size", "transport", "model", "medium", "NUMA", "PCIe", "heat", "stack"], &rows)
}

fn model(device: &BlockDevice) -> String {
    let parts = [&device.vendor, &device.model, &device.firmware];
    parts
        .into_iter()
        .flatten()
        .map(|part| part.trim())
        .filter(|p| !p.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn medium(device: &BlockDevice) -> String {
    if device.disk.is_some() {
        return String::new();
    }
    let mut words = Vec::new();
    words.extend(device.is_virtual.then_some("virtual"));
    words.extend(device.read_only.then_some("read-only"));
    match device.queue.as_ref().and_then(|q| q.rotational) {
        Some(true) => words.push("rotational"),
        Some(false) if !device.is_virtual => words.push("flash"),
        _ => {}
    }
    words.join(", ")
}

fn link(link: &storage::sysfs::PcieLink) -> String {
    let now = format!("{} GT/s ×{}", link.speed_gts, link.width);
    if link.is_degraded() {
        format!("{now} of {} GT/s ×{}", link.max_speed_gts, link.max_width)
    } else {
        now
    }
}

fn made_of(device: &BlockDevice) -> String {
    let mut words = Vec::new();
    words.extend(device.raid.as_ref().map(|raid| {
        let chunk = raid.chunk_bytes.map(|c| format!(", chunk {}", units::bytes(c))).unwrap_or_default();
        format!("{}{chunk}", raid.level)
    }));
    words.extend(device.mapper.as_ref().map(|mapper| mapper.name.clone()));
    words.extend(device.loop_device.as_ref().map(|behind| format!("of {}", behind.backing_file)));
    words.extend(device.compression.as_ref().map(|how| format!("compressed ({how})")));
    if !device.slaves.is_empty() {
        words.push(format!("of {}", device.slaves.join(", ")));
    }
    if !device.holders.is_empty() {
        words.push(format!("held by {}", device.holders.join(", ")));
    }
    words.join("; ")
}

/// How the queues are set up; a partition's is its disk's.
fn queues(survey: &Survey) -> String {
    let whole = survey.devices_concerned().into_iter().filter(|d| d.disk.is_none());
    let rows: Vec<Vec<String>> =
        whole.filter_map(|d| d.queue.as_ref().map(|q| queue(&d.name, q, survey))).collect();
    if rows.is_empty() {
        return String::new();
    }
    let titles = [
        "queue",
        "scheduler",
        "read-ahead",
        "requests",
        "largest",
        "blocks",
        "write cache",
        "wbt",
        "polling",
        "interrupts",
    ];
    format!("\n{}", table(&titles, &rows))
}

fn queue(name: &str, q: &QueueFacts, survey: &Survey) -> Vec<String> {
    let kib = |n: Option<u64>| n.map(|n| units::bytes(n * 1024)).unwrap_or_default();
    let interrupts = survey.interrupts.iter().filter(|i| i.drive == name).count();
    vec![
        name.to_owned(),
        q.scheduler.clone().unwrap_or_default(),
        kib(q.read_ahead_kb),
        q.nr_requests.map(|n| n.to_string()).unwrap_or_default(),
        kib(q.max_sectors_kb),
        format!("{}/{}", q.logical_block_bytes, q.physical_block_bytes),
        match q.write_cache.as_deref() {
            Some("write back") => "volatile".to_owned(),
            Some("write through") => "none".to_owned(),
            other => other.unwrap_or_default().to_owned(),
        },
        match q.wbt_lat_usec {
            None | Some(0) => String::new(),
            Some(us) => units::nanoseconds(us as f64 * 1000.0),
        },
        match q.io_poll {
            Some(true) => "yes".to_owned(),
            Some(false) => "no".to_owned(),
            None => String::new(),
        },
        if interrupts == 0 { String::new() } else { interrupts.to_string() },
    ]
}

fn path(target: &SurveyedTarget) -> String {
    let backing = &target.backing;
    let mut text = format!("{}\n", paint::title(&target.path));
    let mut what = target.kind.clone();
    what += &target.size_bytes.map(|n| format!(" of {}", units::bytes(n))).unwrap_or_default();
    what += &backing.filesystem.as_ref().map(|fs| format!(" on {fs}")).unwrap_or_default();
    what += &backing.mount_point.as_ref().map(|at| format!(", mounted on {at}")).unwrap_or_default();
    if let (Some(free), Some(all)) = (target.free_bytes, target.capacity_bytes) {
        what += &format!(", {} free of {}", units::bytes(free), units::bytes(all));
    }
    text += &row("  is", &what);
    text += &backing.options.as_ref().map(|o| row("  options", o)).unwrap_or_default();
    let below: Vec<&str> = backing.block_devices.iter().map(|d| d.name.as_str()).collect();
    text += &match (&below[..], &backing.note) {
        ([], Some(note)) => row("  below", note),
        ([], None) => String::new(),
        (names, _) => row("  below", &names.join(" on ")),
    };
    text += &match &target.direct {
        Some(direct) if direct.supported => row(
            "  direct",
            &format!(
                "yes; memory aligned to {}, offsets to {}",
                direct.memory_alignment, direct.offset_alignment
            ),
        ),
        Some(_) => row("  direct", &paint::warn("no")),
        None => String::new(),
    };
    if let Some(written) = target.written.as_ref().filter(|w| w.never_written() > 0) {
        text += &row("  written", &paint::warn(&format!("{written} were never written")));
    }
    for reason in &target.in_use {
        text += &row("  in use", &paint::warn(reason));
    }
    text
}

fn notes(survey: &Survey) -> String {
    let mut text = String::new();
    for note in &survey.notes {
        text += &format!("{} {}: {}\n", paint::warn("note"), note.subject, note.text);
        if let Some(remedy) = &note.remedy {
            text += &format!("     {}\n", paint::dim(remedy));
        }
    }
    text
}
