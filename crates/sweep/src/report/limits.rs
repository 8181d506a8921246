//! What limits it: the tables of the verdicts, for every form that shows them.
//!
//! A sweep may have 240 configurations of 14 tests, so the matrix counts: a row for each kind of request, a
//! column for each limit. Where there are few enough to be read, the configurations themselves are columns in
//! [`by_configuration`]; each one's own verdict stands in the table of configurations.

use std::collections::{BTreeMap, BTreeSet};

use measure::Limit;

use crate::analysis::PointSummary;

use super::Report;
use super::sheet::Sheet;
use super::sheets::NONE;

/// As many configurations as can be read side by side.
pub(super) const FEW: usize = 8;

/// Each limit that was found: how often, what was seen, what to do.
pub(super) fn found(report: &Report) -> Sheet {
    let mut sheet = Sheet::new(
        "What kept the figures from being higher; the evidence is of the fastest configuration with that limit",
        &["Limit", ">Configurations", ">Of all", "Evidence", "What to do"],
    );
    let all: usize = report.limits.iter().map(|l| l.points.len()).sum();
    for limit in &report.limits {
        let label = report.point(limit.example).map_or("", |p| p.label.as_str());
        sheet.push(vec![
            limit.limit.label().to_owned(),
            limit.points.len().to_string(),
            units::percent(limit.points.len() as f64 / all as f64),
            format!("{label}: {}", limit.evidence),
            limit.remedy.clone(),
        ]);
    }
    sheet
}

/// How many configurations of each test have which limit.
pub(super) fn matrix(report: &Report) -> Sheet {
    let mut limits: Vec<Limit> = report.limits.iter().map(|found| found.limit).collect();
    limits.sort_unstable();
    // Those of later versions share a column.
    let mut columns: Vec<&'static str> = limits.into_iter().map(right).collect();
    columns.dedup();
    let titles: Vec<&'static str> = ["Test"].into_iter().chain(columns.iter().copied()).collect();
    let mut sheet = Sheet::new("Configurations by test and limit", &titles);
    for (test, points) in by_test(report) {
        let count = |title: &str| points.iter().filter(|p| limit_of(p).map(right) == Some(title)).count();
        let cell = |n: usize| if n == 0 { NONE.to_owned() } else { n.to_string() };
        sheet.push(std::iter::once(test).chain(columns.iter().map(|title| cell(count(title)))).collect());
    }
    sheet
}

/// A limit's label as the title of a column of figures.
fn right(limit: Limit) -> &'static str {
    match limit {
        Limit::Drives => ">drives",
        Limit::OneCpu => ">one CPU",
        Limit::LoadGenerator => ">load generator",
        Limit::RaidLayer => ">RAID layer",
        Limit::FileSystem => ">file system",
        Limit::QueueDepth => ">queue depth",
        Limit::Link => ">link",
        Limit::Throttle => ">throttle",
        Limit::UnbalancedDrives => ">unbalanced drives",
        Limit::Rate => ">rate asked for",
        Limit::Unknown => ">unknown",
        Limit::Later(_) => ">of a later version",
    }
}

/// The verdict of each test (rows) on each configuration (columns), where these are few: names of the
/// columns, then rows with the test first.
pub(super) fn by_configuration(report: &Report) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let names: BTreeSet<String> = report.points.iter().map(configuration).collect();
    if names.len() < 2 || names.len() > FEW || report.limits.is_empty() {
        return None;
    }
    let rows = by_test(report).into_iter().map(|(test, points)| {
        let verdict = |name: &String| {
            let point = points.iter().find(|p| configuration(p) == *name);
            let verdict = point.and_then(|p| p.verdict.as_ref());
            verdict.map_or_else(|| NONE.to_owned(), measure::limit::Verdict::short)
        };
        std::iter::once(test).chain(names.iter().map(verdict)).collect()
    });
    let rows = rows.collect();
    Some((names.into_iter().collect(), rows))
}

/// The points of each test, in the order of the first of each.
fn by_test(report: &Report) -> Vec<(String, Vec<&PointSummary>)> {
    let mut tests: Vec<(String, Vec<&PointSummary>)> = Vec::new();
    let mut place: BTreeMap<String, usize> = BTreeMap::new();
    for point in report.points.iter().filter(|p| p.verdict.is_some()) {
        let jobs = if point.numjobs > 1 { format!(", {} jobs", point.numjobs) } else { String::new() };
        let name = format!("{} {}, depth {}{jobs}", point.rw, point.request, point.iodepth);
        let at = *place.entry(name.clone()).or_insert_with(|| {
            tests.push((name, Vec::new()));
            tests.len() - 1
        });
        tests[at].1.push(point);
    }
    tests
}

/// What of a point is not its workload: target, layout and settings around it.
fn configuration(point: &PointSummary) -> String {
    let mut parts: Vec<String> = crate::analysis::further(&point.settings)
        .filter(|(name, _)| name.as_str() != "direct")
        .map(|(name, value)| format!("{name}={value}"))
        .chain(point.work.conditions.iter().cloned())
        .collect();
    if parts.is_empty() {
        parts.push(point.target.clone());
    }
    parts.join(" ")
}

fn limit_of(point: &PointSummary) -> Option<Limit> {
    point.verdict.as_ref().map(|verdict| verdict.limit)
}
