//! Every run as a row of comma-separated values (RFC 4180), with its verdict.
//!
//! Figures carry their unit in the column's name and stand in full, so that a program that reads them
//! back has the same numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::analysis::{JudgedRun, PointSummary};

use super::Report;

const COLUMNS: [&str; 29] = [
    "run",
    "position",
    "point",
    "pass",
    "verdict",
    "deviations",
    "mad_outlier",
    "test_type",
    "label",
    "target",
    "rw",
    "bs",
    "iodepth",
    "numjobs",
    "started_unix_ns",
    "interval_ns",
    "bytes",
    "ios",
    "bandwidth_bytes_per_s",
    "iops",
    "latency_ns_mean",
    "latency_ns_p50",
    "latency_ns_p99",
    "latency_ns_p99_9",
    "latency_ns_max",
    "repeated",
    "warnings",
    "limit",
    "point_limit",
];

/// All runs, in the order in which they ran, with a column for each setting that varies (`setting.NAME`).
#[must_use]
pub fn csv(report: &Report) -> String {
    let settings: BTreeSet<&str> =
        report.points.iter().flat_map(|p| p.settings.keys().map(String::as_str)).collect();
    let points: BTreeMap<u32, &PointSummary> = report.points.iter().map(|p| (p.point, p)).collect();
    let mut text = String::with_capacity(256 * (report.runs.len() + 1));
    let mut header: Vec<String> = COLUMNS.iter().map(|&c| c.to_owned()).collect();
    header.extend(settings.iter().map(|name| format!("setting.{name}")));
    push_row(&mut text, &header);
    for run in &report.runs {
        let Some(point) = points.get(&run.run.point) else { continue };
        let mut row = fields(run, point);
        let value = |name: &&str| point.settings.get(*name).cloned().unwrap_or_default();
        row.extend(settings.iter().map(value));
        push_row(&mut text, &row);
    }
    text
}

fn fields(judged: &JudgedRun, point: &PointSummary) -> Vec<String> {
    let run = &judged.run;
    let codes: Vec<&str> = run.warnings.iter().map(|code| code.code()).collect();
    vec![
        run.id.to_string(),
        run.position.to_string(),
        run.point.to_string(),
        run.pass.to_string(),
        judged.fate.label().to_owned(),
        judged.deviations.map_or_else(String::new, |z| z.to_string()),
        judged.mad_outlier.to_string(),
        point.test_type.map_or_else(String::new, |t| t.number().to_string()),
        point.label.clone(),
        point.target.clone(),
        point.rw.clone(),
        point.request.clone(),
        point.iodepth.to_string(),
        point.numjobs.to_string(),
        run.started_unix_ns.to_string(),
        run.interval_ns.to_string(),
        run.bytes.to_string(),
        run.ios.to_string(),
        run.bandwidth_bytes_per_s.to_string(),
        run.iops.to_string(),
        run.latency_ns_mean.to_string(),
        run.latency_ns_p50.to_string(),
        run.latency_ns_p99.to_string(),
        run.latency_ns_p99_9.to_string(),
        run.latency_ns_max.to_string(),
        judged.repeated.to_string(),
        codes.join(" "),
        run.limit.map_or_else(String::new, |limit| limit.to_string()),
        point.verdict.as_ref().map_or_else(String::new, |verdict| verdict.limit.to_string()),
    ]
}

/// Adds one row; a field with a comma, a quote or a line break is quoted.
pub fn push_row(text: &mut String, fields: &[String]) {
    for (i, field) in fields.iter().enumerate() {
        if i > 0 {
            text.push(',');
        }
        if field.contains(['"', ',', '\n', '\r']) {
            let _ = write!(text, "\"{}\"", field.replace('"', "\"\""));
        } else {
            text.push_str(field);
        }
    }
    text.push_str("\r\n");
}
