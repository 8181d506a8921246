//! A comparison for people: a table of plain text.

use std::fmt;

use measure::decide::Bounds;
use measure::decide::sessions::{Shift, ShiftVerdict};

use super::{Diff, PointDiff, Side, Verdicts};

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
                "{:<width$}  {:>10}  {:>10}  {:>8}  {:>24} {:<11} p99 latency by reference",
                "point", "A", "B", "level", "bandwidth by reference", ""
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
        let bandwidth = Verdicts {
            better: self.better,
            worse: self.worse,
            equivalent: self.equivalent,
            undecided: self.undecided,
            not_enough_data: self.not_enough_data,
        };
        writeln!(f)?;
        for (name, of) in [("bandwidth:", bandwidth), ("p99 latency:", self.latency_p99)] {
            writeln!(
                f,
                "{name:<13}{} better, {} worse, {} equivalent, {} undecided, {} with too few passes",
                of.better, of.worse, of.equivalent, of.undecided, of.not_enough_data
            )?;
        }
        let of = match self.tau.sessions {
            0 => "taken for granted; estimated with two sweeps or more in --like".to_owned(),
            sessions => format!("estimated from {sessions} sweeps"),
        };
        let tau = self.tau.sd * 100.0;
        writeln!(
            f,
            "A level moves from session to session, so it has no verdict. Verdicts are on each figure by its reference, \
             which moves by {tau:.1} % (SD, {of})."
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
    let level = bandwidth.ratio.map_or_else(|| "–".to_owned(), |ratio| percent(ratio) + " %");
    write!(
        f,
        "{:<width$}  {:>10}  {:>10}  {level:>8}  ",
        point.label,
        mean(bandwidth.mean_a),
        mean(bandwidth.mean_b)
    )?;
    match (&bandwidth.contrast, &point.latency_p99.contrast) {
        (Some(bandwidth), Some(latency)) => {
            let (changed, is) = (change(bandwidth), mark(bandwidth.verdict));
            let line = format!("{changed:>24} {is:<11} {} {}", change(latency), mark(latency.verdict));
            writeln!(f, "{}", line.trim_end())
        }
        _ => writeln!(f, "{:>24}", "reference"),
    }
}

fn percent(ratio: f64) -> String {
    format!("{:+.1}", (ratio - 1.0) * 100.0)
}

/// `+12.3 % (+10.1 to +14.6)`: the ratio and its interval as changes.
fn change(shift: &Shift) -> String {
    let of = |bounds: Bounds| {
        format!("{} % ({} to {})", percent(bounds.ratio), percent(bounds.low), percent(bounds.high))
    };
    shift.bounds.map_or_else(|| "–".to_owned(), of)
}

fn mark(verdict: ShiftVerdict) -> &'static str {
    match verdict {
        ShiftVerdict::Better => "better",
        ShiftVerdict::Worse => "worse",
        ShiftVerdict::Equivalent => "equivalent",
        ShiftVerdict::Undecided => "",
        ShiftVerdict::NotEnoughData => "too few",
    }
}
