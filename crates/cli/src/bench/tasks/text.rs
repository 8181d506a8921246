//! The same for people: IOR's table, then what lies behind it.

use measure::RunRecord;

use super::super::text::{bandwidth, engine, latency, row, target, warning_lines, workload};
use super::document::{TaskFigures, TasksReport};
use crate::paint;

/// Stragglers that are named one by one.
const STRAGGLERS_MAX: usize = 8;

/// Everything on a screen.
pub fn text(report: &TasksReport) -> String {
    let first = report.by_task.iter().find_map(|task| task.record.as_ref());
    let mut text = first.map(|record| setup(report, record)).unwrap_or_default();
    text += &table(report);
    let sum = units::bandwidth(report.bandwidth_sum_bytes_per_s);
    text += &row("own sum", &format!("{sum}, each task by its own time"));
    if let Some(figures) = &report.figures {
        text += &row("IOPS", units::iops(figures.iops).trim_end_matches(" IOPS"));
        text += &row("latency", &latency(&figures.latency_ns));
    }
    text += &row("timing", &timing(report));
    text += &row("tasks", &spread(report));
    for rank in report.stragglers.iter().take(STRAGGLERS_MAX) {
        text += &row("", &straggler(&report.by_task[*rank as usize]));
    }
    let unnamed = report.stragglers.len().saturating_sub(STRAGGLERS_MAX);
    if unnamed > 0 {
        text += &row("", &format!("and {unnamed} more below the same limit"));
    }
    if let Some(lost) = &report.lost {
        text +=
            &row("lost", &paint::bad(&format!("{lost}; the figures are what was known of each task before")));
    }
    text + "\n" + &warning_lines(&report.warnings)
}

fn setup(report: &TasksReport, record: &RunRecord) -> String {
    let how = match (report.shared, report.reorder) {
        (true, false) => "one for all tasks, a block each",
        (true, true) => "one for all tasks; each reads another's block",
        (false, false) => "a file each",
        (false, true) => "a file each; each reads another's",
    };
    row("target", &format!("{}; {how}", target(record)))
        + &row("workload", &workload(record))
        + &row("engine", &engine(record))
        + "\n"
}

/// Table I of IOR's users: nodes, tasks a node, size, bandwidth.
fn table(report: &TasksReport) -> String {
    let [least, most] = report.tasks_per_node;
    let per_node = if least == most { most.to_string() } else { format!("{least}–{most}") };
    let head =
        format!("{:>5}  {:>10}  {:>14}  {:>9}  bandwidth", "nodes", "tasks/node", "aggregate size", "time");
    let (size, time) = (units::bytes(report.aggregate_bytes), units::nanoseconds(report.elapsed_ns as f64));
    let all = paint::title(&bandwidth(report.bandwidth_bytes_per_s));
    format!("{}\n{:>5}  {per_node:>10}  {size:>14}  {time:>9}  {all}\n\n", paint::dim(&head), report.nodes)
}

fn timing(report: &TasksReport) -> String {
    let ns = |ns: u64| units::nanoseconds(ns as f64);
    format!(
        "all began within {} and ended within {}; clocks known to {}",
        ns(report.begin_spread_ns),
        ns(report.end_spread_ns),
        ns(report.clock_error_ns)
    )
}

fn spread(report: &TasksReport) -> String {
    let mut rates: Vec<f64> = report.by_task.iter().map(|task| task.bandwidth_bytes_per_s).collect();
    rates.sort_by(f64::total_cmp);
    let at = |at: usize| units::bandwidth(rates.get(at).copied().unwrap_or(0.0));
    let (slowest, median, fastest) = (at(0), at(rates.len() / 2), at(rates.len().saturating_sub(1)));
    let stragglers = match report.stragglers.len() {
        0 => "no stragglers".to_owned(),
        1 => "1 straggler".to_owned(),
        many => format!("{many} stragglers"),
    };
    format!("slowest {slowest}, median {median}, fastest {fastest}; {stragglers}")
}

fn straggler(task: &TaskFigures) -> String {
    let began = task.began_ns.map(|ns| format!(", began {} after the first", units::nanoseconds(ns as f64)));
    format!(
        "{} on {}: {} in {}{}",
        paint::warn(&format!("rank {}", task.rank)),
        task.node,
        units::bandwidth(task.bandwidth_bytes_per_s),
        units::nanoseconds(task.elapsed_ns as f64),
        began.unwrap_or_default()
    )
}
