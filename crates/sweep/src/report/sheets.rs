//! The report's tables, for every form that shows them.

use std::collections::BTreeMap;

use measure::TestType;
use measure::stats::describe;

use crate::analysis::{
    BySetting, DepthCurve, Direction, Estimate, Interaction, Interval, Metric, PointSummary, Scaling,
    WarningSummary,
};
use crate::recommend::{Change, Compromise, Gain, Ladder, Outcome, Recommendation, choice, words};

use super::sheet::Sheet;
use super::{Report, time};

/// Where there is no figure.
pub(super) const NONE: &str = "–";

/// What to use for each kind of work.
pub(super) fn recommendations(report: &Report) -> Sheet {
    let mut sheet = Sheet::new(
        "Best setting for each kind of work, with 95 % intervals",
        &[
            "Work",
            "Use",
            ">Bandwidth",
            ">IOPS",
            ">p99 latency",
            ">Against the cheapest",
            ">Against the runner-up",
            "Verdict",
        ],
    );
    for r in &report.recommendations {
        sheet.push(vec![
            r.work.label(),
            r.setting.clone().unwrap_or_else(|| "nothing recommended".to_owned()),
            r.bandwidth.map_or_else(dash, bandwidth),
            r.iops.map_or_else(dash, units::count),
            r.latency_ns_p99.map_or_else(dash, units::nanoseconds),
            against(r.over_cheapest.as_ref()),
            against(r.over_runner_up.as_ref()),
            verdict(r),
        ]);
    }
    sheet
}

/// The verdict in a few words.
pub(super) fn verdict(r: &Recommendation) -> String {
    match r.outcome {
        Outcome::Better => "better than all others".to_owned(),
        Outcome::Equivalent => {
            let by_latency = r.tail.as_ref().is_some_and(|tail| tail.outcome == Outcome::Better);
            let by = if by_latency { "; this has the lowest p99 latency" } else { "" };
            format!("equivalent: {} within ± {}{by}", r.tied.len(), r.equivalence)
        }
        Outcome::Undecided => undecided(r),
        Outcome::Sufficient => {
            format!("sufficient: none is more than {} faster", words::margin(r))
        }
        Outcome::OnlyOne => "the only setting measured".to_owned(),
        Outcome::Incomplete => "runs are missing".to_owned(),
        Outcome::NoFigure => "no usable run".to_owned(),
    }
}

/// `undecided: up to 1.50×, about 14 more blocks (5 to 46)`.
fn undecided(r: &Recommendation) -> String {
    let mut text = "undecided".to_owned();
    let Some(far) = &r.undecided else { return text };
    if let Some(ratio) = far.could_be {
        text += &format!(": up to {}", words::times(ratio));
    }
    if let Some(more) = far.more_blocks {
        text += &format!(", about {} more blocks ({} to {})", more.likely, more.low, more.high);
    }
    text
}

fn against(gain: Option<&Gain>) -> String {
    gain.map_or_else(dash, |gain| {
        let noise = if gain.beyond_noise { "" } else { ", not told apart" };
        format!("{} {}{noise}", words::gain(gain), gain.setting)
    })
}

/// Where more depth stops paying.
pub(super) fn knees(report: &Report) -> Sheet {
    let mut sheet = Sheet::new(
        "Smallest depth within 5 % of the best by the estimates, and the p99 latency there",
        &[
            "Work",
            ">Depth enough",
            ">Of the best",
            ">p99 there",
            ">Best depth",
            ">p99 at best",
            ">Lowest depth",
            ">p99 at lowest",
        ],
    );
    for r in &report.recommendations {
        let Some(knee) = &r.knee else { continue };
        sheet.push(vec![
            r.work.label(),
            knee.at.iodepth.to_string(),
            units::percent(knee.of_best),
            units::nanoseconds(knee.at.latency_ns_p99),
            knee.best.iodepth.to_string(),
            units::nanoseconds(knee.best.latency_ns_p99),
            knee.lowest.iodepth.to_string(),
            units::nanoseconds(knee.lowest.latency_ns_p99),
        ]);
    }
    sheet
}

/// Every point with its figures.
pub(super) fn points(report: &Report) -> Sheet {
    // In blocks nothing is removed, so there is nothing before and after.
    let cv = if report.cleaning.is_applied { ">CV before" } else { ">CV" };
    let mut sheet = Sheet::new(
        "Every configuration: mean of the kept runs with its 95 % interval",
        &[
            ">No.",
            "Test",
            ">Bandwidth",
            ">IOPS",
            ">p50",
            ">p99",
            ">p99.9",
            cv,
            ">CV after",
            ">Kept",
            "Limit",
            "#Warnings",
        ],
    );
    for p in &report.points {
        let codes: Vec<&str> = p.warnings.iter().map(|code| code.code()).collect();
        sheet.push(vec![
            number(p),
            p.label.clone(),
            p.bandwidth.map_or_else(dash, bandwidth),
            p.iops.map_or_else(dash, |iops| units::count(iops.mean)),
            p.latency_ns_p50.map_or_else(dash, units::nanoseconds),
            p.latency_ns_p99.map_or_else(dash, units::nanoseconds),
            p.latency_ns_p99_9.map_or_else(dash, units::nanoseconds),
            p.cv_before.map_or_else(dash, units::percent),
            p.cv_after.map_or_else(dash, units::percent),
            format!("{} of {}", p.runs.kept, p.runs.total()),
            p.verdict.as_ref().map_or_else(dash, measure::limit::Verdict::short),
            codes.join(" "),
        ]);
    }
    sheet
}

/// The paper's number of a test type; otherwise the point's position in the space.
pub(super) fn number(point: &PointSummary) -> String {
    point.test_type.map_or_else(|| point.point.to_string(), |t| t.number().to_string())
}

/// Mean by pass.
pub(super) fn passes(report: &Report) -> Sheet {
    let mut sheet = Sheet::new(
        "Bandwidth of each pass relative to the configuration's own mean",
        &["Direction", ">Pass", ">Relative", "95 % interval", ">Configurations", "Use"],
    );
    for trend in &report.passes {
        for pass in &trend.passes {
            sheet.push(vec![
                capital(trend.direction),
                pass.pass.to_string(),
                format!("{:.3}", pass.relative),
                pass.interval.map_or_else(dash, |i| format!("{:.3} to {:.3}", i.low, i.high)),
                pass.points.to_string(),
                if pass.set_aside { "set aside" } else { "kept" }.to_owned(),
            ]);
        }
    }
    sheet
}

/// `Reads`.
pub(super) fn capital(direction: Direction) -> String {
    let word = direction.plural();
    let (first, rest) = word.split_at(1);
    format!("{}{rest}", first.to_uppercase())
}

/// Coefficients of variation before cleaning, and after.
type Variations = (Vec<f64>, Vec<f64>);

/// How the passes of configurations vary before and after cleaning, by what runs.
pub(super) fn variation(report: &Report) -> Sheet {
    let mut sheet = Sheet::new(
        "Coefficient of variation of the bandwidth over the passes of a configuration",
        &[
            "Workload",
            ">Before, median",
            ">Before, largest",
            ">After, median",
            ">After, largest",
            ">Configurations",
        ],
    );
    // By the paper's number where there is one, and what runs: before and after.
    let mut works: BTreeMap<(Option<u8>, String), Variations> = BTreeMap::new();
    for point in &report.points {
        if let (Some(before), Some(after)) = (point.cv_before, point.cv_after) {
            let number = point.test_type.map(TestType::number);
            let label = point
                .test_type
                .map_or_else(|| point.work.label(), |t| format!("{}: {}", t.number(), t.label()));
            let both = works.entry((number, label)).or_default();
            both.0.push(before);
            both.1.push(after);
        }
    }
    for ((_, label), (before, after)) in works {
        let median = |values: &[f64]| describe::median(values).map_or_else(dash, units::percent);
        let largest = |values: &[f64]| units::percent(values.iter().copied().fold(0.0, f64::max));
        let count = before.len().to_string();
        sheet.push(vec![label, median(&before), largest(&before), median(&after), largest(&after), count]);
    }
    sheet
}

/// Bandwidth and latency by depth, of some curves.
pub(super) fn depth<'a>(curves: impl IntoIterator<Item = &'a DepthCurve>) -> Sheet {
    let mut sheet = Sheet::new(
        "Bandwidth and latency by queue depth",
        &["Curve", ">Depth", ">Bandwidth", ">IOPS", ">p99 latency"],
    );
    for curve in curves {
        for step in &curve.steps {
            sheet.push(vec![
                curve.label.clone(),
                step.iodepth.to_string(),
                bandwidth(step.bandwidth),
                units::count(step.iops),
                units::nanoseconds(step.latency_ns_p99),
            ]);
        }
    }
    sheet
}

/// Each workload by the values of one setting.
pub(super) fn by_setting(of: &BySetting) -> Sheet {
    let mut sheet = Sheet::new(
        format!("Mean bandwidth by {}", of.setting),
        &["Workload", "Value", ">Bandwidth", ">Configurations"],
    );
    for bar in &of.bars {
        let number = bar.test_type.map_or_else(String::new, |t| format!("{}: ", t.number()));
        sheet.push(vec![
            format!("{number}{}", bar.workload),
            bar.value.clone(),
            bandwidth(bar.bandwidth),
            bar.configurations.to_string(),
        ]);
    }
    sheet
}

/// Figures over the number of drives.
pub(super) fn scaling(of: &Scaling) -> Sheet {
    let mut sheet = Sheet::new(
        format!("{} over the number of drives", of.work.label()),
        &["Layout", ">Depth", ">Drives", ">Figure", ">Of the sum of the drives", "95 % interval"],
    );
    for curve in &of.curves {
        for step in &curve.steps {
            sheet.push(vec![
                curve.layout.clone().unwrap_or_else(dash),
                curve.iodepth.to_string(),
                step.width.to_string(),
                metric(of.metric, step.figure),
                units::percent(step.of_drives),
                step.of_drives_interval.map_or_else(dash, percents),
            ]);
        }
    }
    sheet
}

fn percents(interval: Interval) -> String {
    format!("{} to {}", units::percent(interval.low), units::percent(interval.high))
}

/// `441k IOPS ± 0.4 %`.
fn metric(of: Metric, estimate: Estimate) -> String {
    let figure = of.words(estimate.mean);
    match estimate.interval.filter(|_| estimate.mean > 0.0) {
        Some(i) => format!("{figure} ± {}", units::percent((i.high - i.low) / 2.0 / estimate.mean)),
        None => figure,
    }
}

/// From the baseline to the best.
pub(super) fn ladder(of: &Ladder) -> Sheet {
    let mut sheet = Sheet::new(
        format!("{}, from the baseline to the best, one setting at a time", of.work.label()),
        &[
            "Change",
            ">Figure",
            ">Over the rung below",
            ">Over the baseline",
            ">p, corrected",
            ">Runs",
            "As good",
        ],
    );
    let from: Vec<String> = of.from.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let baseline = format!("baseline: {}", from.join(", "));
    sheet.push(vec![baseline, metric(of.metric, of.figure), dash(), dash(), dash(), dash(), dash()]);
    for rung in &of.rungs {
        let changes: Vec<String> = rung.changes.iter().map(change).collect();
        sheet.push(vec![
            changes.join(", "),
            metric(of.metric, rung.figure),
            words::ratio(rung.gain, rung.interval),
            words::ratio(rung.total, rung.total_interval),
            rung.p_adjusted.map_or_else(dash, probability),
            rung.runs.to_string(),
            if rung.as_good.is_empty() { dash() } else { rung.as_good.join(", ") },
        ]);
    }
    sheet
}

/// `scheduler: bfq → none`.
pub(super) fn change(of: &Change) -> String {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(dash);
    format!("{}: {} → {}", of.setting, value(&of.from), value(&of.to))
}

fn probability(p: f64) -> String {
    if p < 0.0001 { "< 0.0001".to_owned() } else { format!("{p:.4}") }
}

/// The settings of the one layout for all, with the measurements behind each.
pub(super) fn settings(of: &Compromise) -> Sheet {
    let mut sheet = Sheet::new(
        "Its settings, each with what is lost without it, all else as recommended",
        &["Setting", "Value", "Matters", "Work", "Against", ">Gain", ">Runs"],
    );
    let mut settings: Vec<_> = of.settings.iter().filter(|(name, _)| *name != "drives").collect();
    settings.sort_by_key(|(name, _)| choice::rank(name));
    for (name, setting) in settings {
        let matters = match (setting.varied, setting.matters) {
            (false, _) => "not varied",
            (true, Some(true)) => "yes",
            (true, Some(false)) => "not shown",
            (true, None) => "not tested",
        };
        let mut lead = vec![name.clone(), setting.value.clone(), matters.to_owned()];
        if setting.measured.is_empty() {
            lead.extend([dash(), dash(), dash(), dash()]);
            sheet.push(lead);
            continue;
        }
        for m in &setting.measured {
            let noise = if m.beyond_noise { "" } else { ", not told apart" };
            let mut row = std::mem::replace(&mut lead, vec![String::new(); 3]);
            row.extend([
                m.work.label(),
                if m.is_baseline { format!("{} (baseline)", m.against) } else { m.against.clone() },
                format!("{}{noise}", words::ratio(m.ratio, m.interval)),
                m.runs.to_string(),
            ]);
            sheet.push(row);
        }
    }
    sheet
}

/// What each kind of work gets from the one layout.
pub(super) fn shares(of: &Compromise) -> Sheet {
    let mut sheet = Sheet::new(
        "What each kind of work gets from it",
        &["Work", ">Figure", ">Of the best layout", "95 % interval", ">Over the baseline"],
    );
    for share in &of.works {
        sheet.push(vec![
            share.work.label(),
            metric(share.metric, share.figure),
            units::percent(share.of_best),
            share.interval.map_or_else(dash, percents),
            share.over_baseline.map_or_else(dash, |r| words::ratio(r, share.over_baseline_interval)),
        ]);
    }
    sheet
}

/// Every combination of two settings.
pub(super) fn interaction(of: &Interaction) -> Sheet {
    let mut sheet = Sheet::new(
        format!("{} and {}, {}", of.first, of.second, of.work.label().to_lowercase()),
        &["First", "Second", ">Of the mean over all", ">Of what both effects would give"],
    );
    for cell in &of.cells {
        sheet.push(vec![
            format!("{}={}", of.first, cell.first),
            format!("{}={}", of.second, cell.second),
            format!("{:.3}", cell.level),
            format!("{:.3}", cell.ratio),
        ]);
    }
    sheet
}

/// All pairs of settings, strongest first.
pub(super) fn interactions(report: &Report) -> Sheet {
    let mut sheet = Sheet::new(
        "Pairs of settings by how much they depend on each other: the combination furthest from the product of the two effects",
        &["Work", "Settings", "Combination", ">Of the product", "95 % interval", ">Blocks", "Verdict"],
    );
    for i in &report.interactions {
        let verdict = match i.matters {
            Some(true) if i.changes_the_best => "depends, and changes the best",
            Some(true) => "depends",
            Some(false) => "not shown",
            None => "not tested",
        };
        sheet.push(vec![
            i.work.label(),
            format!("{} × {}", i.first, i.second),
            format!("{} with {}", i.largest.first, i.largest.second),
            format!("{:.3}", i.largest.ratio),
            i.interval.map_or_else(dash, |i| format!("{:.3} to {:.3}", i.low, i.high)),
            i.blocks.to_string(),
            verdict.to_owned(),
        ]);
    }
    sheet
}

/// Latency percentiles of each point that has a curve.
pub(super) fn latency(report: &Report, of: impl Fn(&PointSummary) -> bool) -> Sheet {
    let mut sheet = Sheet::new(
        "Latency percentiles of all kept passes together",
        &[">No.", "Test", ">p50", ">p90", ">p99", ">p99.9", ">p99.99", ">Largest", ">Requests"],
    );
    for curve in &report.latency {
        let Some(point) = report.point(curve.point).filter(|p| of(p)) else { continue };
        let s = &curve.summary;
        let mut row = vec![number(point), point.label.clone()];
        // A percentile with less than one request above it is the largest under another name.
        let steps = [(s.p50, 2), (s.p90, 10), (s.p99, 100), (s.p99_9, 1000), (s.p99_99, 10_000), (s.max, 1)];
        let told = |(ns, needs): (u64, u64)| (curve.requests >= needs).then(|| units::nanoseconds(ns as f64));
        row.extend(steps.map(|step| told(step).unwrap_or_else(dash)));
        row.push(units::count(curve.requests as f64));
        sheet.push(row);
    }
    sheet
}

/// What each dimension does.
pub(super) fn effects(report: &Report) -> Sheet {
    let mut sheet = Sheet::new(
        "Bandwidth with each value relative to the dimension's best, everything else equal",
        &["Work", "Dimension", "Best", "Value", ">Of the best", "95 % interval", ">Pairs", "Verdict"],
    );
    for effect in &report.effects {
        for value in &effect.values {
            sheet.push(vec![
                effect.work.label(),
                effect.dimension.clone(),
                effect.best.clone(),
                value.value.clone(),
                format!("{:.3}", value.ratio),
                value.interval.map_or_else(dash, |i| format!("{:.3} to {:.3}", i.low, i.high)),
                value.pairs.to_string(),
                value.word().to_owned(),
            ]);
        }
    }
    sheet
}

/// The warnings with their remedies.
pub(super) fn warnings(report: &Report) -> Sheet {
    let mut sheet = Sheet::new(
        "Warnings on the runs",
        &["Code", "Severity", ">Runs", "What it means", "What to do", "For instance"],
    );
    for w in &report.warnings {
        sheet.push(vec![
            w.code.code().to_owned(),
            severity(w).to_owned(),
            w.runs.to_string(),
            w.meaning.clone(),
            w.remedy.clone(),
            w.example.clone().unwrap_or_else(dash),
        ]);
    }
    sheet
}

/// The severity in a word.
pub(super) fn severity(warning: &WarningSummary) -> &'static str {
    match warning.severity {
        measure::warning::Severity::Note => "note",
        measure::warning::Severity::Warning => "warning",
        measure::warning::Severity::Void => "void",
    }
}

/// Attempts without a record.
pub(super) fn failures(report: &Report) -> Sheet {
    let mut sheet = Sheet::new("Runs that failed", &["When", "Test", ">Pass", "~Error"]);
    for failure in &report.failures {
        sheet.push(vec![
            time::utc(failure.at_unix_ns),
            report.point(failure.point).map_or_else(|| failure.point.to_string(), |p| p.label.clone()),
            failure.pass.to_string(),
            failure.error.clone(),
        ]);
    }
    sheet
}

/// Runs that are missing, by point.
pub(super) fn missing(report: &Report) -> Sheet {
    let mut sheet = Sheet::new("Missing runs", &["Test", "Passes missing"]);
    for missing in &report.completeness.missing {
        let passes: Vec<String> = missing.passes.iter().map(u32::to_string).collect();
        let label = report.point(missing.point).map_or_else(String::new, |p| p.label.clone());
        sheet.push(vec![label, passes.join(", ")]);
    }
    sheet
}

/// `1.39 GB/s ± 0.4 %`.
pub(super) fn bandwidth(estimate: Estimate) -> String {
    let mut text = units::bandwidth(estimate.mean);
    if let Some(interval) = estimate.interval.filter(|_| estimate.mean > 0.0) {
        let half = (interval.high - interval.low) / 2.0 / estimate.mean;
        text += &format!(" ± {}", units::percent(half));
    }
    text
}

pub(super) fn dash() -> String {
    NONE.to_owned()
}
