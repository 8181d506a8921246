//! The report's gist for a terminal: the answer, the recommendation, the tests, the warnings.
//!
//! Lines are made of spans that say what they *are* ([`Style`]); whoever prints them decides on colours.
//! Nothing here emits an escape sequence, and none that comes in with a name gets out.

use measure::warning::Severity;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::recommend::Outcome;
use crate::search::SearchSummary;

use super::sheet::{Align, Sheet};
use super::{Report, facts, sheets, sides};

/// What a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Style {
    /// Ordinary text.
    Plain,
    /// A title, or a column's.
    Title,
    /// What is recommended.
    Good,
    /// A warning, or work for which nothing is recommended.
    Warn,
    /// A void figure, or a failure.
    Bad,
    /// What may be skipped.
    Dim,
}

/// Text in one style.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What it is.
    pub style: Style,
    /// The text, without control characters.
    pub text: String,
}

/// One line of the terminal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// Its parts, from left to right.
    pub spans: Vec<Span>,
}

impl Line {
    fn of(style: Style, text: impl AsRef<str>) -> Self {
        let mut line = Self::default();
        line.push(style, text);
        line
    }

    fn push(&mut self, style: Style, text: impl AsRef<str>) {
        self.spans.push(Span { style, text: clean(text.as_ref()) });
    }

    /// The line without styles.
    #[must_use]
    pub fn plain(&self) -> String {
        let text: String = self.spans.iter().map(|span| span.text.as_str()).collect();
        text.trim_end().to_owned()
    }
}

/// Configurations beyond which a terminal shows only those that a sentence names.
const MOST_POINTS: usize = 60;

/// A terminal too narrow to hold a table is treated as one of this width.
const NARROWEST: usize = 40;

/// The gist of a report in lines of at most `width` columns.
#[must_use]
pub fn table(report: &Report, width: usize) -> Vec<Line> {
    let width = width.max(NARROWEST);
    let mut lines = wrap(&report.title(), width, 0, Style::Title);
    lines.extend(wrap(&report.headline, width, 0, Style::Good));
    lines.push(Line::default());
    let sides = sides::sides(report);
    if !sides.rows.is_empty() {
        lines.extend(grid(&sides, width, |_, column| if column == 2 { Style::Good } else { Style::Plain }));
        lines.push(Line::default());
    }
    let mut points = sheets::points(report).without_empty_columns();
    let all = points.rows.len();
    if all > MOST_POINTS {
        let told: Vec<bool> = report.points.iter().map(|p| is_told(report, p.point)).collect();
        let mut keep = told.into_iter();
        points.rows.retain(|_| keep.next().unwrap_or(false));
    }
    lines.extend(grid(&points, width, |_, column| if column == 0 { Style::Dim } else { Style::Plain }));
    if all > points.rows.len() {
        let text = format!("Those named below, of {all} configurations; the report has them all.");
        lines.extend(wrap(&text, width, 2, Style::Dim));
    }
    lines.push(Line::default());
    if let Some(compromise) = &report.compromise {
        lines.extend(wrap(&compromise.sentence, width, 2, Style::Good));
    }
    for ladder in report.ladders.iter().filter(|l| report.compromise.is_some() && !l.rungs.is_empty()) {
        lines.extend(wrap(&ladder.sentence, width, 2, Style::Plain));
    }
    for r in &report.recommendations {
        let style = match r.outcome {
            Outcome::Better | Outcome::Equivalent | Outcome::Sufficient => Style::Good,
            Outcome::OnlyOne | Outcome::Undecided => Style::Plain,
            Outcome::Incomplete | Outcome::NoFigure => Style::Warn,
        };
        lines.extend(wrap(&r.sentence, width, 2, style));
        for caveat in &r.caveats {
            lines.extend(wrap(&format!("  {caveat}"), width, 4, Style::Warn));
        }
    }
    for sentence in report.search.iter().flat_map(SearchSummary::sentences) {
        lines.extend(wrap(&sentence, width, 2, Style::Plain));
    }
    lines.extend(steadiness(report, width));
    lines.extend(limits(report, width));
    lines.extend(warnings(report, width));
    if !report.failures.is_empty() {
        let noun = if report.failures.len() == 1 { "attempt" } else { "attempts" };
        let text = format!("{} {noun} failed; the report lists them.", report.failures.len());
        lines.extend(wrap(&text, width, 2, Style::Bad));
    }
    lines
}

/// How the machine itself moved meanwhile: the control point, and blocks in which everything was slower.
fn steadiness(report: &Report, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(drift) = &report.drift {
        let style = if drift.moved { Style::Warn } else { Style::Dim };
        lines.extend(wrap(&format!("Control: {}.", drift.sentence()), width, 2, style));
    }
    for text in facts::slow_blocks(report) {
        lines.extend(wrap(&text, width, 2, Style::Dim));
    }
    lines
}

/// What limits the configurations, a line for each limit.
fn limits(report: &Report, width: usize) -> Vec<Line> {
    let line = |limit: &crate::analysis::LimitSummary| {
        let n = limit.points.len();
        let noun = if n == 1 { "configuration" } else { "configurations" };
        let label = report.point(limit.example).map_or("", |p| p.label.as_str());
        let text = format!("Limit of {n} {noun}: {}. {label}: {}", limit.limit.label(), limit.evidence);
        wrap(&text, width, 2, Style::Plain)
    };
    report.limits.iter().flat_map(line).collect()
}

/// Whether a point is named in what is recommended.
fn is_told(report: &Report, point: u32) -> bool {
    let recommended = report.recommendations.iter().any(|r| {
        let over = r.over_cheapest.iter().chain(&r.over_runner_up).any(|gain| gain.over == point);
        r.point == Some(point) || over
    });
    let climbed =
        report.ladders.iter().any(|l| l.baseline == point || l.rungs.iter().any(|r| r.point == point));
    recommended || climbed || report.compromise.iter().flat_map(|c| &c.works).any(|w| w.point == point)
}

/// The warnings in full, and the notes by name: they bear on reading a figure, not on believing it.
fn warnings(report: &Report, width: usize) -> Vec<Line> {
    let (notes, serious): (Vec<_>, Vec<_>) =
        report.warnings.iter().partition(|w| w.severity == Severity::Note);
    let mut lines = Vec::new();
    for w in serious {
        let style = if w.severity == Severity::Void { Style::Bad } else { Style::Warn };
        let noun = if w.runs == 1 { "run" } else { "runs" };
        let text = format!("{} ({} {noun}): {} {}", w.code, w.runs, w.meaning, w.remedy);
        lines.extend(wrap(&text, width, 2, style));
    }
    if !notes.is_empty() {
        let codes: Vec<&str> = notes.iter().map(|w| w.code.code()).collect();
        lines.extend(wrap(
            &format!("Notes, explained in the report: {}.", codes.join(", ")),
            width,
            2,
            Style::Dim,
        ));
    }
    lines
}

/// Blanks between columns.
const GAP: usize = 2;

/// A table in columns, as many as fit.
fn grid(sheet: &Sheet, width: usize, style: impl Fn(usize, usize) -> Style) -> Vec<Line> {
    let titles: Vec<String> = sheet.columns.iter().map(|c| c.title.to_string()).collect();
    let cells: Vec<Vec<String>> =
        sheet.rows.iter().map(|row| row.iter().map(|cell| clean(cell)).collect()).collect();
    let shown = columns(&titles, &cells, width);
    let line = |row: &[String], style: &dyn Fn(usize) -> Style| {
        let mut line = Line::default();
        for (i, &(c, wide)) in shown.iter().enumerate() {
            if i > 0 {
                line.push(Style::Plain, " ".repeat(GAP));
            }
            line.push(style(c), pad(&row[c], wide, sheet.columns[c].align));
        }
        line
    };
    let mut lines = vec![line(&titles, &|_| Style::Title)];
    lines.extend(cells.iter().enumerate().map(|(r, row)| line(row, &|c| style(r, c))));
    lines
}

/// Which columns are shown, and how wide. Where they do not all fit, the least telling ones go first, and only then is the
/// longest one cut.
fn columns(titles: &[String], cells: &[Vec<String>], width: usize) -> Vec<(usize, usize)> {
    let widest = |c: usize| cells.iter().map(|row| row[c].width()).max().unwrap_or(0).max(titles[c].width());
    let mut shown: Vec<(usize, usize)> = (0..titles.len()).map(|c| (c, widest(c))).collect();
    let needed = |shown: &[(usize, usize)]| {
        shown.iter().map(|(_, wide)| wide).sum::<usize>() + GAP * shown.len().saturating_sub(1)
    };
    for title in ["Warnings", "p99.9", "Limit", "CV before", "CV", "p50", "Kept", "CV after", "p99", "IOPS"] {
        if needed(&shown) > width {
            shown.retain(|(c, _)| titles[*c] != title);
        }
    }
    let excess = needed(&shown).saturating_sub(width);
    if let Some((_, longest)) = shown.iter_mut().max_by_key(|(_, wide)| *wide) {
        *longest = longest.saturating_sub(excess).max(4);
    }
    shown
}

/// Exactly `width` columns: filled up with blanks, or cut in the middle, because what tells names apart
/// stands at their ends.
fn pad(text: &str, width: usize, align: Align) -> String {
    let taken = text.width();
    if taken <= width {
        let blanks = " ".repeat(width - taken);
        return match align {
            Align::Left | Align::Prose | Align::Codes => format!("{text}{blanks}"),
            Align::Right => format!("{blanks}{text}"),
        };
    }
    let tail_width = width.saturating_sub(1) / 2;
    let tail: String = fitting(text.chars().rev(), tail_width).chars().rev().collect();
    let head = fitting(text.chars(), width.saturating_sub(1 + tail.width()));
    let cut = format!("{head}…{tail}");
    let blanks = " ".repeat(width.saturating_sub(cut.width()));
    format!("{cut}{blanks}")
}

/// As many characters as fit into `width` columns.
fn fitting(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut taken = 0;
    chars
        .take_while(|c| {
            taken += c.width().unwrap_or(0);
            taken <= width
        })
        .collect()
}

/// Text broken between words, later lines indented.
fn wrap(text: &str, width: usize, indent: usize, style: Style) -> Vec<Line> {
    let text = clean(text);
    let lead: String = text.chars().take_while(|c| *c == ' ').collect();
    let mut lines = Vec::new();
    let mut current = lead;
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && current.width() + 1 + word.width() > width {
            lines.push(Line::of(style, &current));
            current = " ".repeat(indent);
            empty = true;
        }
        if !empty {
            current.push(' ');
        }
        // A word longer than the line is cut into pieces.
        for c in word.chars() {
            if current.width() + c.width().unwrap_or(0) > width {
                lines.push(Line::of(style, &current));
                current = " ".repeat(indent);
            }
            current.push(c);
        }
        empty = false;
    }
    lines.push(Line::of(style, &current));
    lines
}

/// Text that cannot steer a terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
