//! How a plan is shown: an answer, tables, a chart, notes and the formulas, on a terminal or as a page.

use planner::Formula;
use sweep::report::{Page, PageChart, PageMark, PageTable};

use crate::{output, paint};

/// A table of titles; rows are pushed.
pub fn table(caption: impl Into<String>, titles: &[&str]) -> PageTable {
    let titles = titles.iter().map(|title| (*title).to_owned()).collect();
    PageTable { caption: caption.into(), titles, rows: Vec::new() }
}

/// The table without columns in which nothing is known; the first one stays.
pub fn without_empty_columns(mut table: PageTable) -> PageTable {
    let is_known = |c: usize| c == 0 || table.rows.iter().any(|row| row[c] != NONE);
    let keep: Vec<bool> = (0..table.titles.len()).map(is_known).collect();
    for row in table.rows.iter_mut().chain([&mut table.titles]) {
        let mut kept = keep.iter();
        row.retain(|_| *kept.next().unwrap_or(&true));
    }
    table
}

fn table_text(table: &PageTable) -> String {
    let title = |c: usize| table.titles[c].trim_start_matches(['>', '~']);
    let width = |c: usize| {
        let cells = table.rows.iter().map(|row| row[c].chars().count());
        cells.chain([title(c).chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.titles.len()).map(width).collect();
    let line = |cell: &dyn Fn(usize) -> String| {
        let cells = (0..table.titles.len()).map(|c| {
            let (text, width) = (cell(c), widths[c]);
            if table.titles[c].starts_with('>') {
                format!("{text:>width$}")
            } else {
                format!("{text:<width$}")
            }
        });
        format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_owned() + "\n"
    };
    let mut text = format!("\n{}\n", paint::title(&table.caption));
    if (0..table.titles.len()).any(|c| !title(c).is_empty()) {
        text += &paint::dim(&line(&|c| title(c).to_owned()));
    }
    table.rows.iter().for_each(|row| text += &line(&|c| row[c].clone()));
    text
}

/// What is not known.
pub const NONE: &str = "–";

/// Bars of eighths of a column; of a curve as well, one for each mark.
fn chart_text(chart: &PageChart) -> String {
    let widest = |of: &dyn Fn(&PageMark) -> &str| chart.marks.iter().map(|m| of(m).chars().count()).max();
    let labels = widest(&|mark| &mark.label).unwrap_or(0);
    let words = widest(&|mark| &mark.words).unwrap_or(0);
    let columns = output::width().saturating_sub(labels + words + 6).clamp(10, 60);
    let mut text = format!("\n{}\n", paint::title(&chart.title));
    for (mark, share) in chart.marks.iter().zip(shares(chart)) {
        let bar = bar(share, columns);
        text += &format!("  {:>labels$}  {bar:<columns$}  {}\n", mark.label, mark.words);
    }
    text
}

/// Each height as a share of the longest bar.
fn shares(chart: &PageChart) -> Vec<f64> {
    let heights: Vec<f64> = chart.marks.iter().map(|mark| mark.y).collect();
    let high = heights.iter().copied().fold(0.0, f64::max);
    if !chart.is_logarithmic {
        return heights.iter().map(|y| y / high).collect();
    }
    // The shortest bar of a logarithmic chart stands for a third of a decade.
    let low = heights.iter().copied().filter(|y| *y > 0.0).fold(f64::INFINITY, f64::min) / 2.0;
    heights.iter().map(|y| (y / low).log10().max(0.0) / (high / low).log10()).collect()
}

fn bar(share: f64, columns: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (columns * 8) as f64).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// What is computed how, for a page.
pub fn sources(formulas: &[Formula]) -> Vec<[&'static str; 3]> {
    formulas.iter().map(|f| [f.gives, f.formula, f.source]).collect()
}

/// A page for a terminal.
pub fn text(page: &Page) -> String {
    let mut text = format!("{}\n", paint::good(&page.answer));
    page.tables.iter().for_each(|table| text += &table_text(table));
    page.charts.iter().for_each(|chart| text += &chart_text(chart));
    if !page.notes.is_empty() {
        text += "\n";
    }
    page.notes.iter().for_each(|note| text += &format!("{} {note}\n", paint::warn("note:")));
    text += &format!("\n{}\n", paint::title("Formulas"));
    for [gives, formula, source] in &page.formulas {
        text += &format!("  {gives}: {formula}\n    {}\n", paint::dim(source));
    }
    text
}

/// A figure in at most three significant digits, thousands grouped: `0.487`, `28.3`, `562,365`.
pub fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 99.95 => grouped(value),
        v => {
            let digits = (2 - v.log10().floor() as i32).clamp(0, 9) as usize;
            format!("{value:.digits$}")
        }
    }
}

/// A whole number, thousands grouped.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// A figure, or a dash.
pub fn known(value: Option<f64>, write: impl Fn(f64) -> String) -> String {
    value.map_or(NONE.to_owned(), write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_thousands_are_grouped() {
        for (value, text) in [
            (0.4871, "0.487"),
            (28.26, "28.3"),
            (562_365.0, "562,365"),
            (0.0, "0"),
            (123.4, "123"),
            (0.000_123_4, "0.000123"),
        ] {
            assert_eq!(figure(value), text);
        }
        assert_eq!(grouped(-1_234_567.0), "-1,234,567");
    }

    #[test]
    fn bars_grow_by_eighths() {
        assert_eq!(bar(0.0, 2), "");
        assert_eq!(bar(1.0, 2), "██");
        assert_eq!(bar(0.5, 1), "▌");
    }
}
