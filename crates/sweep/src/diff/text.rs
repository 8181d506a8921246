//! A comparison for people: a table of plain text.

use std::fmt;

use measure::stats::compare::{Comparison, Verdict};

use super::{Diff, PointDiff, Side};

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_side(f, "A", &self.a)?;
        write_side(f, "B", &self.b)?;
        for change in &self.conditions {
            writeln!(f, "  {}: {} → {}", change.what, change.a, change.b)?;
        }
        writeln!(f)?;
        let width = self.points.iter().map(|p| p.label.chars().count()).max().unwrap_or(0).max(5);
        if !self.points.is_empty() {
            writeln!(
                f,
                "{:<width$}  {:>10}  {:>10}  {:>24}  p99 latency",
                "point", "A", "B", "bandwidth, B by A"
            )?;
        }
        for point in &self.points {
            write_point(f, point, width)?;
        }
        for (name, only) in [("A", &self.only_in_a), ("B", &self.only_in_b)] {
            for label in only {
                writeln!(f, "only in {name}: {label}")?;
            }
        }
        writeln!(
            f,
            "\n{} better, {} worse, {} without a difference beyond noise, {} with too few passes",
            self.better, self.worse, self.no_difference, self.not_enough_data
        )
    }
}

fn write_side(f: &mut fmt::Formatter<'_>, name: &str, side: &Side) -> fmt::Result {
    write!(f, "{name}: {} ({})", side.path, side.name)?;
    if side.done < side.planned {
        write!(f, ", incomplete: {} of {} runs", side.done, side.planned)?;
    }
    if side.void > 0 {
        write!(f, ", {} void", side.void)?;
    }
    writeln!(f)
}

fn write_point(f: &mut fmt::Formatter<'_>, point: &PointDiff, width: usize) -> fmt::Result {
    let mean = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), units::bandwidth);
    let bandwidth = &point.bandwidth;
    writeln!(
        f,
        "{:<width$}  {:>10}  {:>10}  {:>24}  {} {}",
        point.label,
        mean(bandwidth.baseline_mean),
        mean(bandwidth.candidate_mean),
        change(bandwidth),
        change(&point.latency_p99),
        mark(bandwidth.verdict)
    )
}

/// `+12.3 % (+10.1 to +14.6)`: the ratio and its interval as changes.
fn change(comparison: &Comparison) -> String {
    let percent = |ratio: f64| format!("{:+.1}", (ratio - 1.0) * 100.0);
    match (comparison.ratio, comparison.interval) {
        (Some(ratio), Some(interval)) => {
            format!("{} % ({} to {})", percent(ratio), percent(interval.low), percent(interval.high))
        }
        _ => "–".to_owned(),
    }
}

fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better | Verdict::Worse => verdict.label(),
        Verdict::NoDifference => "",
        Verdict::NotEnoughData => "(too few passes)",
    }
}
