//! Two sides that alternated ([`crate::space::Space::against`]): B by A in each pair.

use measure::decide::Bounds;

use super::sheet::Sheet;
use super::{Report, sheets};
use crate::analysis::ContestSummary;
use crate::model::SIDE;

/// Intervals within this ratio tell something.
const MOST_TELLING: f64 = 100.0;

/// One row a pair; none where no sides alternated.
pub(super) fn sides(report: &Report) -> Sheet {
    let mut sheet = Sheet::new(
        "Bandwidth of B by that of A within blocks, with 95 % intervals that agree with the verdict",
        &["Pair", ">B by A", "Verdict", ">Blocks"],
    );
    for contest in &report.contests {
        let Some([a, b]) = pair(report, contest) else { continue };
        let bounds = contest.bandwidth.b_by_a(a, b);
        let figure =
            |b: Bounds| match (1.0 / MOST_TELLING..MOST_TELLING).contains(&b.low) && b.high <= MOST_TELLING {
                true => format!("{:.3}× ({:.3}–{:.3})", b.ratio, b.low, b.high),
                false => format!("{:.3}× (no interval yet)", b.ratio),
            };
        sheet.push(vec![
            contest.work.label(),
            bounds.map_or_else(sheets::dash, figure),
            verdict(contest, b),
            contest.bandwidth.blocks.to_string(),
        ]);
    }
    sheet
}

/// The numbers of A and B among the settings of a contest.
fn pair(report: &Report, contest: &ContestSummary) -> Option<[usize; 2]> {
    let of = |side: &str| {
        contest.points.iter().position(|id| {
            report.point(*id).and_then(|point| point.settings.get(SIDE)).is_some_and(|own| own == side)
        })
    };
    let [a, b] = crate::space::SIDES;
    Some([of(a)?, of(b)?])
}

fn verdict(contest: &ContestSummary, b: usize) -> String {
    let [first, second] = crate::space::SIDES;
    let names = if b == 1 { [first, second] } else { [second, first] };
    contest.bandwidth.words_of_two(names).unwrap_or_else(|| "one side has no usable run".to_owned())
}
