//! The result of `bench` for people: one screen.

use std::time::Duration;

use measure::RunRecord;
use measure::record::LatencySummary;
use measure::warning::Severity;

use super::figures::{BenchWarning, DirectionFigures, Figures, warnings_of};
use super::prepare;
use super::run::Run;
use crate::{output, paint};

/// From this length of the interval on, the division of CPU time into user and system is shown.
const SPLIT_FROM_NS: u64 = 1_000_000_000;

/// Everything on a screen.
pub fn text(run: &Run<'_>) -> String {
    let mut text = String::new();
    for done in &run.done {
        if run.done.len() > 1 {
            let group = if run.done.iter().any(|d| d.group > 0) {
                format!(" (group {})", done.group + 1)
            } else {
                String::new()
            };
            text += &format!("{}{group}\n", paint::title(&done.job.name));
        }
        text += &job(&done.record);
        text.push('\n');
    }
    if run.done.len() > 1 {
        let figures = Figures::of_all(&run.done);
        text += &format!("{}\n{}", paint::title("all jobs"), rates(&figures, &run.done[0].record));
        text.push('\n');
    }
    text += &warning_lines(&warnings_of(&run.done));
    text
}

fn job(record: &RunRecord) -> String {
    let figures = Figures::of(&[record]);
    let limit = record.verdict.as_ref().map(|verdict| row("limit", &verdict.sentence()));
    format!(
        "{}{}{}{}{}{}",
        row("target", &target(record)),
        record.precondition.as_ref().map(|done| row("prepared", &prepare::words(done))).unwrap_or_default(),
        row("workload", &workload(record)),
        row("engine", &engine(record)),
        rates(&figures, record),
        limit.unwrap_or_default()
    )
}

/// Columns before a row's value.
const INDENT: usize = 11;

pub(super) fn row(name: &str, value: &str) -> String {
    format!("{}  {}\n", paint::dim(&format!("{name:<9}")), wrapped(value, INDENT))
}

/// Text broken at blanks where the terminal ends, later lines indented; not before a percent sign. Text in colours is short.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let width = output::width().max(60) - indent;
    let mut lines = vec![String::new()];
    let text = text.replace(" %", "\u{a0}%");
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a first line");
        if line.is_empty() {
            word.clone_into(line);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            *line += " ";
            *line += word;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join(&format!("\n{}", " ".repeat(indent))).replace("\u{a0}%", " %")
}

pub(super) fn target(record: &RunRecord) -> String {
    let target = &record.target;
    let mut parts = vec![units::bytes(target.size_bytes)];
    let volume = matches!(target.kind.as_str(), "stripe" | "separate");
    let word = if volume { "files" } else { "file" };
    parts.extend(target.filesystem.as_ref().map(|fs| format!("{fs} {word}")));
    if target.is_file_in_memory() {
        parts.push("in memory, no drive".to_owned());
    }
    let below: Vec<&str> = target.block_devices.iter().map(String::as_str).collect();
    let named = target.kind == "block" && below.len() == 1;
    if volume && !below.is_empty() {
        // Side by side as well as upon each other, so that no order tells how they lie.
        parts.push(format!("on {}", below.join(", ")));
    } else if !below.is_empty() && !named {
        parts.push(format!("on {}", below.join(" on ")));
    }
    parts.extend(target.transport.clone());
    parts.extend(target.model.as_ref().map(|model| model.trim().to_owned()));
    format!("{} ({})", target.spec, parts.join(", "))
}

pub(super) fn workload(record: &RunRecord) -> String {
    let w = &record.workload;
    let mut line = w.summary();
    if let Some(depth) = record.layout.get("separate.depth_per_drive") {
        line += &format!(", divided: {depth} on each device");
    }
    if w.rw.reads() && w.rw.modifies() {
        line += &format!(", {} % reads", w.rwmixread);
    }
    if let Some(rate) = w.rate_iops {
        line += &format!(", {rate} a second and job");
    }
    if let Some(rate) = w.rate {
        line += &format!(", {}/s and job", units::bytes(rate));
    }
    if let Some(size) = w.size {
        line += &format!(", over {}", units::bytes(size));
    }
    if let Some(verify) = w.verify {
        let wrong = record.failed.iter().filter(|failed| failed.operation == "verify");
        let wrong = match wrong.map(|failed| failed.count).sum::<u64>() {
            0 => String::new(),
            wrong => format!(", {wrong} of them wrong"),
        };
        line += &format!(", verified by {} ({} blocks{wrong})", verify.word(), record.verified_blocks);
    }
    if let Some(zones) = record.zones.filter(|zones| zones.resets > 0 || zones.finished > 0) {
        line += &format!(", {} zones reset", zones.resets);
        if zones.finished > 0 {
            line += &format!(" and {} finished", zones.finished);
        }
    }
    format!("{line}; measured for {}", units::seconds(Duration::from_nanos(record.interval_ns)))
}

pub(super) fn engine(record: &RunRecord) -> String {
    let engine = &record.engine;
    let features = match engine.features.as_slice() {
        [] => String::new(),
        features => format!(" ({})", features.join(", ")),
    };
    let fallback = engine.fallback.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
    format!("{}{features}{fallback}", engine.used)
}

fn rates(figures: &Figures, record: &RunRecord) -> String {
    let directions = [("read", &figures.read), ("write", &figures.write), ("trim", &figures.trim)];
    let mixed = directions.iter().filter(|(_, d)| d.is_some()).count() > 1;
    let mut text = String::from("\n");
    text += &row("IOPS", &paint::title(&iops(figures.iops)));
    text += &row("bandwidth", &paint::title(&bandwidth(figures.bandwidth_bytes_per_s)));
    text += &row("latency", &latency(&figures.latency_ns));
    if record.workload.is_open_loop() {
        text += &row("", &paint::dim("from the intended start (open loop)"));
    }
    for (name, direction) in directions {
        if let (true, Some(direction)) = (mixed, direction) {
            text += &row(name, &one_way(direction));
        }
    }
    let cpu = figures.cpu_ns_per_io;
    let mut cost = units::nanoseconds(cpu.user + cpu.system);
    // The kernel knows a thread's CPU time exactly, but divides it by ticks of 1 to 10 ms.
    if record.interval_ns >= SPLIT_FROM_NS {
        let (user, system) = (units::nanoseconds(cpu.user), units::nanoseconds(cpu.system));
        cost += &format!(" (user {user}, system {system})");
    }
    text += &row("CPU / I/O", &cost);
    text
}

fn one_way(figures: &DirectionFigures) -> String {
    format!(
        "{}, {}, {}",
        iops(figures.iops),
        units::bandwidth(figures.bandwidth_bytes_per_s),
        latency(&figures.latency_ns)
    )
}

fn iops(value: f64) -> String {
    units::iops(value).trim_end_matches(" IOPS").to_owned()
}

/// Named in powers of ten, as drives are sold, and of two, as memory is.
pub(super) fn bandwidth(bytes_per_s: f64) -> String {
    format!("{:.1} MB/s = {:.3} GiB/s", bytes_per_s / 1e6, bytes_per_s / f64::from(1 << 30))
}

pub(super) fn latency(l: &LatencySummary) -> String {
    let ns = |ns: u64| units::nanoseconds(ns as f64);
    format!(
        "p50 {}  p99 {}  p99.9 {}  max {}  mean {}",
        ns(l.p50),
        ns(l.p99),
        ns(l.p99_9),
        ns(l.max),
        units::nanoseconds(l.mean)
    )
}

pub(crate) fn warning_lines(warnings: &[BenchWarning]) -> String {
    if warnings.is_empty() {
        return format!("{}\n", paint::good("no warnings"));
    }
    let mut text = String::new();
    for warning in warnings {
        let code = warning.code.code();
        let label = match warning.severity {
            Severity::Void => format!("{code} (void)"),
            Severity::Warning => code.to_owned(),
            Severity::Note => format!("{code} (note)"),
        };
        // Wrapped as it is read, then coloured.
        let message = wrapped(&format!("{label}: {}", warning.message), 4);
        let message = message.strip_prefix(&label).unwrap_or(&message).to_owned();
        let label = match warning.severity {
            Severity::Void => paint::bad(&label),
            Severity::Warning => paint::warn(&label),
            Severity::Note => label,
        };
        text += &format!("{label}{message}\n    {}\n", paint::dim(&wrapped(&warning.remedy, 4)));
    }
    text
}
