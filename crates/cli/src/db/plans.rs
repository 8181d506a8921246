//! What each query asks and how it is answered, as tables of a page.
//!
//! A plan is shown in fewer words than the engine's: a step that is there many times in a row, as Q3C's hundred ranges are, is shown once
//! with its number, and a condition ends where a line of a page does. `--json` has every word.

use database::compare::Plan;
use sweep::report::PageTable;

use super::document::DbCompareDocument;
use crate::plan::screen::table;

/// Characters of a step's line.
const LINE_CHARS: usize = 110;

/// What each query asks, and what is known of it in the original.
pub fn asks(document: &DbCompareDocument) -> PageTable {
    let mut sheet = table("What each query asks", &["Query", "~Asks", "~Known and inferred"]);
    for of in &document.queries {
        sheet.rows.push(vec![of.query.word().to_owned(), of.asks.to_owned(), of.origin.to_owned()]);
    }
    sheet
}

/// How each is answered; nothing for results without plans.
pub fn plans(document: &DbCompareDocument) -> Option<PageTable> {
    let mut sheet = table("How each is answered: the engine's plan", &["Query", "Tiers", "Steps"]);
    for Plan { query, tiers, plan } in &document.plans {
        let tiers = if tiers.len() == document.tiers.len() { "all".to_owned() } else { tiers.join(", ") };
        for (n, step) in steps(plan).into_iter().enumerate() {
            // Named once, so that a plan is seen as one.
            let of = if n == 0 { [query.word(), &tiers] } else { [""; 2] };
            sheet.rows.push(vec![of[0].to_owned(), of[1].to_owned(), step]);
        }
    }
    (!sheet.rows.is_empty()).then_some(sheet)
}

/// The lines of a plan, repeated steps once.
fn steps(plan: &str) -> Vec<String> {
    // A step and what belongs to it: the lines until the next arrow.
    let mut steps: Vec<(Vec<&str>, usize)> = Vec::new();
    for line in plan.lines() {
        match steps.last_mut() {
            Some((step, _)) if !line.trim_start().starts_with("->") && line.starts_with(' ') => {
                step.push(line)
            }
            _ => steps.push((vec![line], 1)),
        }
    }
    let mut shown: Vec<(Vec<&str>, usize)> = Vec::new();
    for (step, times) in steps {
        match shown.last_mut() {
            Some((last, count)) if last[0] == step[0] && step[0].starts_with(' ') => *count += times,
            _ => shown.push((step, times)),
        }
    }
    let lines = shown.iter().flat_map(|(step, times)| {
        let first = if *times > 1 { format!("{}, {times} times", step[0]) } else { step[0].to_owned() };
        [first].into_iter().chain(step[1..].iter().map(|line| (*line).to_owned()))
    });
    lines.map(|line| cut(&line)).collect()
}

/// A line of a width; blanks at its beginning are kept by a page.
fn cut(line: &str) -> String {
    let words = line.trim_start_matches(' ');
    let indent = "\u{a0}".repeat(line.len() - words.len());
    if words.chars().count() <= LINE_CHARS {
        return indent + words;
    }
    indent + &words.chars().take(LINE_CHARS - 1).collect::<String>() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_there_many_times_is_shown_once_and_a_long_line_is_cut() {
        let range = "  ->  Bitmap Index Scan on candidate_sky\n        Index Cond: (cell = 1)";
        let plan = format!(
            "BitmapOr\n  Filter: {}\n{range}\n{range}\n{range}\n  ->  Seq Scan on b",
            "x".repeat(200)
        );
        let steps = steps(&plan);
        assert_eq!(steps.len(), 5, "{steps:?}");
        assert_eq!(steps[0], "BitmapOr");
        assert!(steps[1].starts_with("\u{a0}\u{a0}Filter: x") && steps[1].ends_with('…'), "{steps:?}");
        assert_eq!(steps[1].chars().count(), LINE_CHARS + 2);
        assert_eq!(steps[2], "\u{a0}\u{a0}->  Bitmap Index Scan on candidate_sky, 3 times");
        assert!(steps[3].ends_with("Index Cond: (cell = 1)") && steps[4].ends_with("->  Seq Scan on b"));
        // Steps of SQLite stand at the margin, and two that are alike are two.
        assert_eq!(super::steps("SCAN c\nSEARCH b\nSEARCH b"), ["SCAN c", "SEARCH b", "SEARCH b"]);
    }
}
